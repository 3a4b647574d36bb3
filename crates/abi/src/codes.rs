//! Error codes that a guest can handle ([`Errno`]), and faults that end a coroutine
//! ([`FaultCode`]). One table each.

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal, $doc:literal;)*) => {
        /// An error that a guest can handle: a host operation returns it as a negative number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i32)]
        pub enum Errno {
            $(#[doc = $doc] $name = $value,)*
        }

        impl Errno {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name in the guests' headers.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it means, for the documentation tables.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }

            /// The negative number.
            #[must_use]
            pub const fn code(self) -> i32 {
                self as i32
            }
        }
    };
}

errnos! {
    Invalid = -1, "EINVAL", "an argument is outside what the operation accepts";
    Stale = -2, "ESTALE", "the reference or handle is not valid: its object was joined, replied to, revoked or never existed";
    Closed = -3, "ECLOSED", "the channel is closed and, for a receiver, drained";
    Again = -4, "EAGAIN", "it would block, and this operation never blocks";
    MessageSize = -5, "EMSGSIZE", "the message does not fit the buffer, or is of the other kind; it was left in place";
    Limit = -6, "ELIMIT", "a limit of the manifest is reached";
    Denied = -7, "EDENIED", "the session has no right to do this";
    Faulted = -8, "EFAULTED", "the coroutine waited for ended with a fault";
    Canceled = -9, "ECANCELED", "the coroutine waited for was canceled";
    Revoked = -10, "EREVOKED", "what was lent or granted was revoked: the time of a call, a lease";
}

macro_rules! faults {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// Why a coroutine was ended: a WebAssembly trap, or a limit reached in an instruction.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum FaultCode {
            $(#[doc = $text] $name = $value,)*
        }

        impl FaultCode {
            /// Every fault.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The fault with this number in a trace or snapshot.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($value => Some(Self::$name),)* _ => None }
            }

            /// A description. Traps use the specification's words, which its test suite compares.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    Unreachable = 1, "unreachable";
    MemoryOutOfBounds = 2, "out of bounds memory access";
    TableOutOfBounds = 3, "out of bounds table access";
    UndefinedElement = 4, "undefined element";
    UninitializedElement = 5, "uninitialized element";
    IndirectCallTypeMismatch = 6, "indirect call type mismatch";
    IntegerDivideByZero = 7, "integer divide by zero";
    IntegerOverflow = 8, "integer overflow";
    InvalidConversion = 9, "invalid conversion to integer";
    StackExhausted = 10, "call stack exhausted";
    NullReference = 11, "null reference";
    BadPointer = 12, "a pointer passed to a host operation is outside the guest's memory";
    BadEntry = 13, "the coroutine's entry is not a function of the type a coroutine needs";
    HostFunction = 14, "a function of the embedder failed, or has no code here";
}
