//! Exit codes: the same seven for every command, as one table.
//!
//! What decides between 1 and 4: a file that cannot be read, or a module that is not WebAssembly,
//! is 1 (the host could not do it); something that was read and understood but breaks a rule of
//! ours (a manifest key, a limit, a missing import) is 4 (refused).

macro_rules! exits {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        /// How the command ends.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $doc] $name = $code,)*
        }

        impl Exit {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The number the process returns.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// What it means, for the documentation table.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }
        }
    };
}

exits! {
    Done = 0, "done; also when `--frames` ended the run, and when a session ended with a nonzero exit of its own";
    Host = 1, "the host could not do it: a missing file, a module that is not WebAssembly, a full disk, no memory";
    Usage = 2, "the command line is wrong";
    Divergence = 3, "two runs that must agree do not";
    Refused = 4, "refused: a manifest, input or profile rule, a limit, a missing import, admission, authority";
    Faulted = 5, "a guest faulted";
    Deadlock = 6, "a deadlock: something waits and nothing can ever wake it";
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
