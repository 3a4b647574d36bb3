//! What leaves a machine: outputs, ends and costs of a frame, and who watches them.

use crate::ask::Ask;
use crate::error::Error;
use crate::machine::Session;
use std::fmt;
use std::time::Duration;
use wavelock_abi::Frame;
use wavelock_system::{RunOutcome, SessionOutcome, SessionUsage};
use wavelock_trace::{Digest, Event};

/// What one frame did. A frame in which nothing happened has no output and the digest of the one
/// before.
pub struct FrameReport<'a> {
    pub(crate) frame: Frame,
    pub(crate) digest: Digest,
    pub(crate) outputs: &'a [(Session, Vec<u8>)],
    pub(crate) logs: &'a [(Session, Vec<u8>)],
    pub(crate) ended: &'a [(Session, SessionOutcome)],
    pub(crate) asks: &'a [Ask],
    pub(crate) refused: &'a [Error],
    pub(crate) outcome: Option<RunOutcome>,
    pub(crate) wall: Duration,
}

impl FrameReport<'_> {
    /// The frame.
    #[must_use]
    pub const fn frame(&self) -> Frame {
        self.frame
    }

    /// The run digest at its end: equal on every host, thread count and replay.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// What guests wrote to their output and to standard output and error, by session in the order
    /// of the machine.
    #[must_use]
    pub const fn outputs(&self) -> &[(Session, Vec<u8>)] {
        self.outputs
    }

    /// What guests wrote with `log`: for diagnostics, in no digest.
    #[must_use]
    pub const fn logs(&self) -> &[(Session, Vec<u8>)] {
        self.logs
    }

    /// The sessions that ended in it, and how.
    #[must_use]
    pub const fn ended(&self) -> &[(Session, SessionOutcome)] {
        self.ended
    }

    /// The asks that guests made in it and that wait for a reply. A frame that runs again after a
    /// rollback has them again; their names are equal if they are the same.
    #[must_use]
    pub const fn asks(&self) -> &[Ask] {
        self.asks
    }

    /// What a [`Remote`](crate::Remote) asked for since the last frame and was refused, and control
    /// inputs that could not take effect in this frame.
    #[must_use]
    pub const fn refused(&self) -> &[Error] {
        self.refused
    }

    /// How the run ended, if this was its last frame.
    #[must_use]
    pub const fn outcome(&self) -> Option<RunOutcome> {
        self.outcome
    }

    /// The time the host took for it: in no digest.
    #[must_use]
    pub const fn wall(&self) -> Duration {
        self.wall
    }
}

impl fmt::Debug for FrameReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReport")
            .field("frame", &self.frame.0)
            .field("digest", &self.digest.to_string())
            .field("outputs", &self.outputs.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Sees every confirmed frame once, in order; changes nothing. See
/// [`MachineBuilder::rollback`](crate::MachineBuilder::rollback).
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use wavelock::{Engine, FrameReport, Machine, Observer, SessionBuilder};
///
/// struct Frames(Sender<u64>);
///
/// impl Observer for Frames {
///     fn frame(&mut self, report: &FrameReport<'_>) {
///         let _ = self.0.send(report.frame().0);
///     }
/// }
///
/// let engine = Engine::new(1)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// let session = SessionBuilder::new("guest", &guest);
/// let mut machine = Machine::builder(&engine).session(session).build()?;
/// let (sender, frames) = channel();
/// machine.observe(Frames(sender));
/// machine.advance()?;
/// assert_eq!(frames.try_recv(), Ok(0));
/// # Ok::<(), wavelock::Error>(())
/// ```
pub trait Observer: Send {
    /// A frame is final.
    fn frame(&mut self, report: &FrameReport<'_>);

    /// An event of a final frame, before [`Observer::frame`]: those outside every lane first, then
    /// lane by lane, each in its order. Only of machines that keep them:
    /// [`MachineBuilder::events`](crate::MachineBuilder::events).
    fn event(&mut self, _frame: Frame, _lane: Option<u16>, _event: &Event<'_>) {}
}

/// What a session has used so far: counters, cheap to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Cycles charged to its coroutines.
    pub cycles: u64,
    /// Host operations it called.
    pub host_calls: u64,
    /// Messages it sent.
    pub messages: u64,
    /// Coroutines alive.
    pub coroutines: u32,
    /// Bytes of its memories.
    pub memory_bytes: u64,
    /// How it ended, once it has.
    pub outcome: Option<SessionOutcome>,
}

impl From<SessionUsage> for Usage {
    fn from(usage: SessionUsage) -> Self {
        let SessionUsage { cycles, host_calls, messages, coroutines, memory_bytes, outcome } =
            usage;
        Self { cycles, host_calls, messages, coroutines, memory_bytes, outcome }
    }
}
