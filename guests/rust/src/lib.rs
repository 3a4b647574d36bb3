//! The guest interface of Wavelock, version 1, for Rust compiled to WebAssembly. `no_std`, no
//! dependencies, no allocation.
//!
//! [`raw`] declares the imports with the names and types of the interface; the rest are safe
//! wrappers: [`Coroutine`], [`Channel`], an error [`Code`], and functions for time, random numbers,
//! input and output.
//!
//! A coroutine needs its own shadow stack, where compiled Rust keeps arrays and variables whose
//! address is taken. A [`Stack`] is a `static` that can be taken once:
//!
//! ```text
//! static STACK: Stack<8192> = Stack::new();
//!
//! extern "C" fn work(arg: i64) -> i64 { arg * 2 }
//!
//! let child = Coroutine::start(work, 21, STACK.take().unwrap())?;
//! assert_eq!(child.join()?, 42);
//! ```
//!
//! Coroutines of a session share its statics. They switch only at safepoints (calls, loop headers,
//! host operations), but under every policy except `cooperative` at any of them: share by channels,
//! or by single atomic operations.
#![no_std]
#![warn(missing_docs)]

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

pub mod time;

/// The imports of module `wavelock`, as the interface defines them.
#[allow(missing_docs)]
pub mod raw {
    #[link(wasm_import_module = "wavelock")]
    unsafe extern "C" {
        pub fn spawn(entry: i32, arg: i64) -> i64;
        pub fn spawn_on(entry: i32, arg: i64, lane: i32) -> i64;
        pub fn spawn_stack(entry: i32, arg: i64, top: i32) -> i64;
        pub fn detach(reference: i64) -> i32;
        #[link_name = "yield"]
        pub fn yield_now();
        pub fn sleep(frames: i64);
        #[link_name = "self"]
        pub fn own() -> i64;
        pub fn join(reference: i64, result: *mut i64) -> i32;
        pub fn cancel(reference: i64) -> i32;
        pub fn park() -> i32;
        pub fn unpark(reference: i64) -> i32;
        pub fn session_name(bytes: *mut u8, capacity: usize) -> i32;
        pub fn session_index() -> i32;
        pub fn session_wait(channel: i32, exit: *mut i64) -> i32;
        pub fn exit(value: i64) -> !;
        pub fn channel(capacity: i32) -> i32;
        pub fn port(name: *const u8, length: usize) -> i32;
        pub fn send(channel: i32, value: i64) -> i32;
        pub fn try_send(channel: i32, value: i64) -> i32;
        pub fn recv(channel: i32, value: *mut i64) -> i32;
        pub fn try_recv(channel: i32, value: *mut i64) -> i32;
        pub fn send_bytes(channel: i32, bytes: *const u8, length: usize) -> i32;
        pub fn recv_bytes(channel: i32, bytes: *mut u8, capacity: usize) -> i32;
        pub fn select(channels: *const i32, count: usize) -> i32;
        pub fn close(channel: i32) -> i32;
        pub fn frame() -> i64;
        pub fn lane() -> i32;
        pub fn cycles() -> i64;
        pub fn remaining() -> i64;
        pub fn random() -> i64;
        pub fn input(bytes: *mut u8, capacity: usize) -> i32;
        pub fn output(bytes: *const u8, length: usize) -> i32;
        pub fn log(bytes: *const u8, length: usize);
        pub fn call(channel: i32, answer: *mut i64, value: i64) -> i32;
        pub fn accept(channel: i32, value: *mut i64) -> i32;
        pub fn reply(reply: i32, value: i64) -> i32;
        pub fn serve(channel: i32, value: *mut i64, reply: i32, answer: i64) -> i32;
        pub fn capability(name: *const u8, length: usize) -> i32;
        pub fn context_create(control: i32, parameters: *const i64) -> i32;
        pub fn context_configure(context: i32, parameters: *const i64) -> i32;
        pub fn context_bind(context: i32, reference: i64) -> i32;
        pub fn context_unbind(context: i32) -> i32;
        pub fn context_revoke(context: i32) -> i32;
        pub fn context_consumed(context: i32) -> i64;
        pub fn context_notice(context: i32, notice: *mut i64) -> i32;
        pub fn context_timeout(context: i32, channel: i32) -> i32;
        pub fn context_yield() -> i32;
        pub fn weight(policy: i32, reference: i64, weight: i32) -> i32;
        pub fn latency_class(policy: i32, reference: i64, class: i32) -> i32;
        pub fn priority(policy: i32, reference: i64, priority: i32) -> i32;
    }
}

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal, $doc:literal;)*) => {
        /// An error code.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(i32)]
        pub enum Code {
            $(#[doc = $doc] $name = $value,)*
            /// A code that this version of the kit does not have.
            Unknown = i32::MIN,
        }

        impl Code {
            /// The code of a negative number.
            #[must_use]
            pub const fn of(value: i32) -> Self {
                match value { $($value => Self::$name,)* _ => Self::Unknown }
            }

            /// Its name in the interface.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Unknown => "unknown" }
            }
        }
    };
}

codes! {
    Invalid = -1, "EINVAL", "An argument is outside what the operation accepts.";
    Stale = -2, "ESTALE", "The reference or handle is no longer valid.";
    Closed = -3, "ECLOSED", "The channel is closed and, for a receiver, drained.";
    Again = -4, "EAGAIN", "It would have to block, and this call never blocks.";
    MessageSize = -5, "EMSGSIZE", "The message does not fit the buffer, or is of the other kind; it stays in the channel.";
    Limit = -6, "ELIMIT", "A limit of the manifest is reached.";
    Denied = -7, "EDENIED", "The session has no right to do this.";
    Faulted = -8, "EFAULTED", "The coroutine waited for ended with a fault.";
    Canceled = -9, "ECANCELED", "The coroutine waited for was canceled.";
    Revoked = -10, "EREVOKED", "The time lent with a call was revoked.";
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl core::error::Error for Code {}

fn check(value: i32) -> Result<i32, Code> {
    if value < 0 { Err(Code::of(value)) } else { Ok(value) }
}

/// Memory for one coroutine's shadow stack: a `static` that can be taken once.
#[repr(align(16))]
pub struct Stack<const BYTES: usize> {
    bytes: UnsafeCell<[u8; BYTES]>,
    taken: AtomicBool,
}

// SAFETY: the bytes are accessed only through `take`, which returns them once.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    /// A stack that is not taken yet.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; BYTES]), taken: AtomicBool::new(false) }
    }

    /// The memory, for the first caller; `None` for every later one.
    #[allow(clippy::mut_from_ref)] // the flag makes the reference unique
    pub fn take(&'static self) -> Option<&'static mut [u8]> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: `taken` was false, so this is the only reference ever made to the bytes.
        Some(unsafe { &mut *self.bytes.get() })
    }
}

/// The entry function of a coroutine.
pub type Entry = extern "C" fn(i64) -> i64;

/// A coroutine of this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coroutine(pub(crate) i64);

impl Coroutine {
    /// Starts `entry(arg)` on its own shadow stack. Does not switch to it.
    ///
    /// # Errors
    /// `Limit` if the session has as many coroutines as the manifest allows.
    pub fn start(entry: Entry, arg: i64, stack: &'static mut [u8]) -> Result<Self, Code> {
        let top = (stack.as_mut_ptr() as usize + stack.len()) & !15;
        // SAFETY: the stack is 'static and borrowed forever, so nothing else writes below `top`.
        let reference = unsafe { raw::spawn_stack(entry as usize as i32, arg, top as i32) };
        if reference < 0 { Err(Code::of(reference as i32)) } else { Ok(Self(reference)) }
    }

    /// The calling coroutine.
    #[must_use]
    pub fn own() -> Self {
        // SAFETY: no memory is involved.
        Self(unsafe { raw::own() })
    }

    /// Waits for its end and takes its result.
    ///
    /// # Errors
    /// `Faulted` or `Canceled` if it ended that way, `Stale` if it was joined or detached before.
    pub fn join(self) -> Result<i64, Code> {
        let mut result = 0;
        // SAFETY: `result` is valid for one write.
        check(unsafe { raw::join(self.0, &mut result) })?;
        Ok(result)
    }

    /// Gives up the right to join it.
    ///
    /// # Errors
    /// `Stale` if it was joined before.
    pub fn detach(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::detach(self.0) }).map(drop)
    }

    /// Ends it at its next safepoint.
    ///
    /// # Errors
    /// `Stale` if it was joined or detached, `Invalid` for the caller itself.
    pub fn cancel(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::cancel(self.0) }).map(drop)
    }

    /// Ends its [`park`], or keeps a wake for its next one.
    ///
    /// # Errors
    /// `Stale` if it was joined or detached.
    pub fn unpark(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::unpark(self.0) }).map(drop)
    }
}

/// Waits until another coroutine unparks this one; returns at once if one has since the last park.
pub fn park() {
    // SAFETY: no memory is involved.
    unsafe { raw::park() };
}

/// The index of this session among those of its `count`; 0 for one without.
#[must_use]
pub fn session_index() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { raw::session_index() }
}

/// Reads the name of this session.
///
/// # Errors
/// `MessageSize` if the buffer is too small.
pub fn session_name(buffer: &mut [u8]) -> Result<&[u8], Code> {
    // SAFETY: the buffer is valid for writes of its length.
    let length = check(unsafe { raw::session_name(buffer.as_mut_ptr(), buffer.len()) })?;
    Ok(&buffer[..length as usize])
}

/// A channel, by its handle in this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Channel(pub(crate) i32);

impl Channel {
    /// Waits for the session that this port leads to, and returns its exit code.
    ///
    /// # Errors
    /// `Faulted` or `Canceled` if it ended that way, `Invalid` for a channel of this session.
    pub fn wait_for_session(self) -> Result<i64, Code> {
        let mut exit = 0;
        // SAFETY: `exit` is valid for one write.
        check(unsafe { raw::session_wait(self.0, &mut exit) })?;
        Ok(exit)
    }

    /// A new channel of this session.
    ///
    /// # Errors
    /// `Invalid` for a capacity outside the manifest's limit, `Limit` for too many channels.
    pub fn new(capacity: i32) -> Result<Self, Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::channel(capacity) }).map(Self)
    }

    /// The channel that the manifest wired to a name.
    ///
    /// # Errors
    /// `Invalid` if there is no such port.
    pub fn port(name: &str) -> Result<Self, Code> {
        // SAFETY: the name is valid for reads of its length.
        check(unsafe { raw::port(name.as_ptr(), name.len()) }).map(Self)
    }

    /// The handle, to pass to another coroutine as a number.
    #[must_use]
    pub const fn handle(self) -> i32 {
        self.0
    }

    /// The channel of a handle. A wrong one is refused by the operations.
    #[must_use]
    pub const fn from_handle(handle: i32) -> Self {
        Self(handle)
    }

    /// Sends a number, waiting while the channel is full.
    ///
    /// # Errors
    /// `Closed`.
    pub fn send(self, value: i64) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::send(self.0, value) }).map(drop)
    }

    /// Sends a number unless the channel is full.
    ///
    /// # Errors
    /// `Again` when full, `Closed`.
    pub fn try_send(self, value: i64) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::try_send(self.0, value) }).map(drop)
    }

    /// Receives a number, waiting while the channel is empty.
    ///
    /// # Errors
    /// `Closed` once drained, `MessageSize` if a byte message is next, `Denied` if the channel is
    /// another session's.
    pub fn recv(self) -> Result<i64, Code> {
        let mut value = 0;
        // SAFETY: `value` is valid for one write.
        check(unsafe { raw::recv(self.0, &mut value) })?;
        Ok(value)
    }

    /// Receives a number unless the channel is empty.
    ///
    /// # Errors
    /// `Again` when empty, and as [`Channel::recv`].
    pub fn try_recv(self) -> Result<i64, Code> {
        let mut value = 0;
        // SAFETY: `value` is valid for one write.
        check(unsafe { raw::try_recv(self.0, &mut value) })?;
        Ok(value)
    }

    /// Sends a byte message.
    ///
    /// # Errors
    /// `MessageSize` above the manifest's limit, `Closed`.
    pub fn send_bytes(self, bytes: &[u8]) -> Result<(), Code> {
        // SAFETY: the bytes are valid for reads of their length.
        check(unsafe { raw::send_bytes(self.0, bytes.as_ptr(), bytes.len()) }).map(drop)
    }

    /// Receives a byte message into a buffer and returns its bytes.
    ///
    /// # Errors
    /// `MessageSize` if it does not fit or a number is next (it stays), and as [`Channel::recv`].
    pub fn recv_bytes(self, buffer: &mut [u8]) -> Result<&mut [u8], Code> {
        // SAFETY: the buffer is valid for writes of its length.
        let length = check(unsafe { raw::recv_bytes(self.0, buffer.as_mut_ptr(), buffer.len()) })?;
        Ok(&mut buffer[..length as usize])
    }

    /// Sends a number and waits for its answer. A context that the caller holds is lent until then.
    ///
    /// # Errors
    /// `Closed`; `Denied` if a passive server took it and no context was lent; `Faulted` or
    /// `Canceled` if the acceptor ended that way; `Revoked` if the lent context was revoked.
    pub fn call(self, value: i64) -> Result<i64, Code> {
        let mut answer = 0;
        // SAFETY: `answer` is valid for one write.
        check(unsafe { raw::call(self.0, &mut answer, value) })?;
        Ok(answer)
    }

    /// Takes a call, waiting while there is none: its number and its reply handle.
    ///
    /// # Errors
    /// `Limit` if too many calls are unanswered, and as [`Channel::recv`].
    pub fn accept(self) -> Result<(i64, Reply), Code> {
        let mut value = 0;
        // SAFETY: `value` is valid for one write.
        let reply = check(unsafe { raw::accept(self.0, &mut value) })?;
        Ok((value, Reply(reply)))
    }

    /// Serves forever: takes calls that lend a context, one after the other, and replies to each
    /// with `answer` of its number. For servers without a context of their own.
    ///
    /// # Errors
    /// As [`Channel::accept`]: `Closed` when the last client has closed its port.
    pub fn serve(self, mut answer: impl FnMut(i64) -> i64) -> Result<core::convert::Infallible, Code> {
        let (mut value, mut reply, mut result) = (0, -1, 0);
        loop {
            // SAFETY: `value` is valid for one write.
            reply = check(unsafe { raw::serve(self.0, &mut value, reply, result) })?;
            result = answer(value);
        }
    }

    /// Closes it, or this session's port of it.
    ///
    /// # Errors
    /// `Closed` if it is closed already.
    pub fn close(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::close(self.0) }).map(drop)
    }

    /// Waits until one of several can be received from or is closed; the lowest such index.
    ///
    /// # Errors
    /// `Invalid` for none or too many, `Denied` if one is another session's.
    pub fn select(channels: &[Self]) -> Result<usize, Code> {
        // SAFETY: a `Channel` is a transparent i32, so the slice is a slice of i32 handles.
        check(unsafe { raw::select(channels.as_ptr().cast(), channels.len()) }).map(|index| index as usize)
    }
}

/// The reply handle of a call: used once, by the coroutine that accepted the call.
#[derive(PartialEq, Eq, Debug)]
pub struct Reply(i32);

impl Reply {
    /// Replies to the call, and returns the context it lent.
    ///
    /// # Errors
    /// `Stale` if the caller has ended.
    pub fn answer(self, value: i64) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::reply(self.0, value) }).map(drop)
    }
}

/// Moves this coroutine to the tail of its ready queue.
pub fn yield_now() {
    // SAFETY: no memory is involved.
    unsafe { raw::yield_now() }
}

/// Sleeps for a number of frames; 0 is [`yield_now`].
pub fn sleep(frames: i64) {
    // SAFETY: no memory is involved.
    unsafe { raw::sleep(frames) }
}

/// Ends this coroutine with a result.
pub fn exit(value: i64) -> ! {
    // SAFETY: no memory is involved; destructors that do not run only leak.
    unsafe { raw::exit(value) }
}

/// The current frame.
#[must_use]
pub fn frame() -> i64 {
    // SAFETY: no memory is involved.
    unsafe { raw::frame() }
}

/// The current lane.
#[must_use]
pub fn lane() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { raw::lane() }
}

/// Cycles charged to this coroutine so far.
#[must_use]
pub fn cycles() -> i64 {
    // SAFETY: no memory is involved.
    unsafe { raw::cycles() }
}

/// Cycles left for this lane in this frame.
#[must_use]
pub fn remaining() -> i64 {
    // SAFETY: no memory is involved.
    unsafe { raw::remaining() }
}

/// The next number of this coroutine's own random stream.
#[must_use]
pub fn random() -> i64 {
    // SAFETY: no memory is involved.
    unsafe { raw::random() }
}

/// Reads the next input event of this frame into a buffer; `None` if there is none.
///
/// # Errors
/// `MessageSize` if it does not fit.
pub fn input(buffer: &mut [u8]) -> Result<Option<&mut [u8]>, Code> {
    // SAFETY: the buffer is valid for writes of its length.
    let length = check(unsafe { raw::input(buffer.as_mut_ptr(), buffer.len()) })?;
    Ok(if length == 0 { None } else { Some(&mut buffer[..length as usize]) })
}

/// Outputs bytes, which are written at the end of the frame.
///
/// # Errors
/// `Limit` if the frame's output limit is reached.
pub fn output(bytes: &[u8]) -> Result<(), Code> {
    // SAFETY: the bytes are valid for reads of their length.
    check(unsafe { raw::output(bytes.as_ptr(), bytes.len()) }).map(drop)
}

/// Writes diagnostics, which are not part of the session's digest. No newline is added.
pub fn log(text: &str) {
    // SAFETY: the text is valid for reads of its length.
    unsafe { raw::log(text.as_ptr(), text.len()) }
}

/// A line of fixed size to format into; the rest is truncated.
pub struct Line<const BYTES: usize> {
    bytes: [u8; BYTES],
    length: usize,
}

impl<const BYTES: usize> Line<BYTES> {
    /// An empty line.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { bytes: [0; BYTES], length: 0 }
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const BYTES: usize> fmt::Write for Line<BYTES> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = BYTES - self.length;
        let taken = text.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Formats a line of at most 255 bytes and writes it, with a newline, to the output.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {{
        let mut line = $crate::Line::<256>::new();
        let _ = ::core::fmt::Write::write_fmt(&mut line, ::core::format_args!("{}\n", ::core::format_args!($($argument)*)));
        $crate::output(line.as_bytes())
    }};
}

#[cfg(all(feature = "panic-handler", target_arch = "wasm32"))]
#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = Line::<256>::new();
    let _ = fmt::Write::write_fmt(&mut line, format_args!("{information}\n"));
    // SAFETY: the line is valid for reads of its length.
    unsafe { raw::log(line.as_bytes().as_ptr(), line.as_bytes().len()) };
    core::arch::wasm32::unreachable()
}

/// Leases: a lane for one coroutine alone, for sessions with `[[grant]] of = "isolation"`.
pub mod lease {
    use super::{Code, check};

    /// The imports, as the interface defines them.
    #[allow(missing_docs)]
    pub mod raw {
        #[link(wasm_import_module = "wavelock")]
        unsafe extern "C" {
            pub fn lease_request(isolation: i32, name: *const u8, length: usize) -> i32;
            pub fn lease_revoke(lease: i32) -> i32;
            pub fn lease_state(lease: i32, state: *mut i64) -> i32;
        }
    }

    /// The state of a lease, as `lease_state` writes it; `session` and `began` are -1 for none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[repr(C)]
    pub struct State {
        /// 1 requested, 2 draining, 3 flushing, 4 active, 5 revoking, 6 released, 7 denied.
        pub state: i64,
        /// Of its end, or the evidence that was missing.
        pub reason: i64,
        /// The session in the way.
        pub session: i64,
        /// How many of it are.
        pub count: i64,
        /// The lane's clock at its activation.
        pub began: i64,
        /// The lane's clock at its end.
        pub ended: i64,
        /// Cycles that its revocation took.
        pub revocation: i64,
        /// Scheduler operations of others.
        pub noise: i64,
    }

    /// A lease that is active, or was.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Lease(i32);

    impl Lease {
        /// Asks for a lease of the machine, with the isolation capability; waits until it is active
        /// or denied.
        pub fn request(isolation: i32, name: &str) -> Result<Self, Code> {
            // SAFETY: the name is valid for reads of its length.
            check(unsafe { raw::lease_request(isolation, name.as_ptr(), name.len()) }).map(Self)
        }

        /// Ends it; ending twice is ending once.
        pub fn revoke(self) -> Result<(), Code> {
            // SAFETY: it takes numbers alone.
            check(unsafe { raw::lease_revoke(self.0) }).map(drop)
        }

        /// Its state.
        pub fn state(self) -> Result<State, Code> {
            let mut state = State::default();
            // SAFETY: the state is eight numbers, valid for writes.
            check(unsafe { raw::lease_state(self.0, (&raw mut state).cast()) })?;
            Ok(state)
        }
    }
}
