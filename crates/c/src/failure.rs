//! Errors as C has them: a code, and a text that the thread can read until its next error.

use std::cell::RefCell;
use std::fmt;
use wavelock::Error;

/// How a call ended. Codes keep their numbers.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types, reason = "the name that C has")]
pub enum wavelock_code {
    /// It did what it should.
    WAVELOCK_OK = 0,
    /// A pointer is null that must not be.
    WAVELOCK_NULL = 1,
    /// A text is not UTF-8.
    WAVELOCK_TEXT = 2,
    /// A number is outside its range.
    WAVELOCK_RANGE = 3,
    /// A handle was dropped, was used up, or never was one.
    WAVELOCK_STALE = 4,
    /// A handle is of another kind of object.
    WAVELOCK_KIND = 5,
    /// The object is in use: by another thread, or by the call that called this function.
    WAVELOCK_BUSY = 6,
    /// There is nothing under this name or number.
    WAVELOCK_UNKNOWN = 7,
    /// The bytes are no module that can be loaded.
    WAVELOCK_MODULE = 8,
    /// The manifest has problems; the text has them all.
    WAVELOCK_MANIFEST = 9,
    /// A file could not be read or written.
    WAVELOCK_IO = 10,
    /// The machine cannot be made.
    WAVELOCK_LOAD = 11,
    /// An input, or a change of a session, is refused.
    WAVELOCK_INPUT = 12,
    /// The machine is in the middle of a frame: finish it first.
    WAVELOCK_IN_FRAME = 13,
    /// The frame was interrupted; the next call continues it.
    WAVELOCK_INTERRUPTED = 14,
    /// The run has ended.
    WAVELOCK_OVER = 15,
    /// The snapshot is of another machine, or of a frame that was confirmed since.
    WAVELOCK_SNAPSHOT = 16,
    /// The machine is recorded already, or keeps no events to record.
    WAVELOCK_RECORDING = 17,
    /// The machine has other host functions.
    WAVELOCK_HOST = 18,
    /// A file is no machine or state that this version reads.
    WAVELOCK_FORMAT = 19,
    /// The host ran out of memory for the scheduler: the machine is lost.
    WAVELOCK_LOST = 20,
    /// A bug of this library; the object is not usable any more. Please report it.
    WAVELOCK_BUG = 21,
    /// Any other refusal.
    WAVELOCK_REFUSED = 22,
}

use wavelock_code as Code;

/// A refusal: its code and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }

    /// Nothing has this number.
    pub(crate) fn no(what: &str, found: impl fmt::Display) -> Self {
        Self::new(Code::WAVELOCK_UNKNOWN, format_args!("there is no {what} {found}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Module(_) => Code::WAVELOCK_MODULE,
            Error::Manifest(_) => Code::WAVELOCK_MANIFEST,
            Error::File { .. } | Error::Io(_) => Code::WAVELOCK_IO,
            Error::Load(_) | Error::Quantum { .. } => Code::WAVELOCK_LOAD,
            Error::Unknown { .. } => Code::WAVELOCK_UNKNOWN,
            Error::Input(_) | Error::NoBudget { .. } | Error::ReplyTypes { .. } => {
                Code::WAVELOCK_INPUT
            }
            Error::InFrame { .. } => Code::WAVELOCK_IN_FRAME,
            Error::Interrupted { .. } => Code::WAVELOCK_INTERRUPTED,
            Error::Over => Code::WAVELOCK_OVER,
            Error::OtherMachine | Error::Confirmed { .. } => Code::WAVELOCK_SNAPSHOT,
            Error::Recording | Error::NoEvents => Code::WAVELOCK_RECORDING,
            Error::OtherHost { .. } => Code::WAVELOCK_HOST,
            Error::Open(_) | Error::Machine(_) | Error::State(_) => Code::WAVELOCK_FORMAT,
            Error::Host(_) => Code::WAVELOCK_LOST,
            Error::Threads { .. } => Code::WAVELOCK_RANGE,
            _ => Code::WAVELOCK_REFUSED,
        };
        Self::new(code, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Code::WAVELOCK_IO, error)
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the text of a refusal for this thread, and returns its code.
pub(crate) fn keep(failure: Failure) -> Code {
    LAST.with(|last| *last.borrow_mut() = failure.text);
    failure.code
}

/// The text of the last refusal on this thread.
pub(crate) fn last() -> String {
    LAST.with(|last| last.borrow().clone())
}
