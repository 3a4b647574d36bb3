//! A machine from other threads.

use crate::ask::AskId;
use crate::error::Error;
use crate::host::Values;
use crate::machine::Session;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wavelock_system::{GiveError, Input, MOST_WAITING_BYTES, MOST_WAITING_INPUTS, Recipient};

/// A machine from other threads: inputs given here wait for the next boundary between two frames.
/// Cheap to clone; outlives its machine without harm.
///
/// ```
/// use wavelock::{Engine, Machine, SessionBuilder};
///
/// let engine = Engine::new(1)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// let session = SessionBuilder::new("guest", &guest);
/// let mut machine = Machine::builder(&engine).session(session).build()?;
/// let remote = machine.remote();
/// std::thread::spawn(move || remote.stop()).join().unwrap()?;
/// assert!(machine.advance()?.outcome().is_some());
/// # Ok::<(), wavelock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Remote(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    interrupted: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    inputs: Vec<Input>,
    bytes: u64,
}

impl Remote {
    /// Gives a session these bytes as an input of the next frame.
    ///
    /// # Errors
    /// Too much waits already: [`GiveError::Full`]. A session that does not exist is reported by
    /// [`FrameReport::refused`](crate::FrameReport::refused).
    pub fn input(&self, to: Session, bytes: &[u8]) -> Result<(), Error> {
        self.give(Input::Bytes { to: Recipient::Session(to.id()), bytes: bytes.into() })
    }

    /// Gives every session these bytes as an input of the next frame.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn input_all(&self, bytes: &[u8]) -> Result<(), Error> {
        self.give(Input::Bytes { to: Recipient::All, bytes: bytes.into() })
    }

    /// Ends the input of a session: what it has not read is the last.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn close_input(&self, to: Session) -> Result<(), Error> {
        self.give(Input::End { to: Recipient::Session(to.id()) })
    }

    /// Ends the machine with its next frame.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn stop(&self) -> Result<(), Error> {
        self.give(Input::Stop)
    }

    /// Gives the reply to an ask, as an input of the next frame.
    ///
    /// # Errors
    /// As [`Remote::input`]; [`Error::ReplyTypes`]. A reply to an ask that waits for none is
    /// reported by [`FrameReport::refused`](crate::FrameReport::refused).
    pub fn answer<R: Values>(&self, ask: AskId, values: R) -> Result<(), Error> {
        self.give(ask.reply(values)?)
    }

    /// Stops the frame that is running between two of its waves: its `advance` returns
    /// [`Error::Interrupted`], and the next call continues the same frame. In no digest.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Release);
    }

    pub(crate) fn take_interrupt(&self) -> bool {
        self.0.interrupted.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn take(&self) -> Vec<Input> {
        std::mem::take(&mut *self.waiting()).inputs
    }

    pub(crate) fn give(&self, input: Input) -> Result<(), Error> {
        let mut waiting = self.waiting();
        let (inputs, bytes) = (waiting.inputs.len(), waiting.bytes + input.size());
        if inputs >= MOST_WAITING_INPUTS || bytes > MOST_WAITING_BYTES {
            let full = GiveError::Full { inputs: inputs as u64, bytes: waiting.bytes };
            return Err(Error::Input(full));
        }
        waiting.bytes = bytes;
        waiting.inputs.push(input);
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A list of inputs is valid whatever thread died.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
