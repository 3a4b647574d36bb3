//! Fast path from the end of one slice to the next dispatch.
//!
//! Contract: when [`Lane::switch`] returns a slice, the lane is in the state that [`Lane::stop`],
//! [`Lane::reap`] for a coroutine that finished, and [`Lane::dispatch`] would have left, to the
//! last bit (`tests/pass.rs` compares them). When it returns `None` nothing has changed, and those
//! calls are the slow path.

use crate::lane::{Began, Lane};
use crate::types::{BlockReason, Outcome};
use wavelock_abi::{Cycles, Frame};

/// How the running coroutine gives up the lane; see [`Lane::switch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// It yields: to the tail of the ready queue.
    Yield,
    /// It waits for a wake.
    Block(BlockReason),
    /// It sleeps until this frame.
    Sleep(Frame),
    /// It ended, and its record is freed.
    Finish,
}

impl Departure {
    /// The same for [`Lane::stop`].
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Yield => Outcome::Yielded,
            Self::Block(reason) => Outcome::Blocked(reason),
            Self::Sleep(frame) => Outcome::Slept(frame),
            Self::Finish => Outcome::Finished,
        }
    }
}

impl Lane {
    /// Ends the open slice after `used` cycles and dispatches the next coroutine. `None` if this is
    /// not the common case; then nothing has changed, and the caller uses [`Lane::stop`] (with
    /// [`Departure::outcome`], and [`Lane::reap`] after a finish) and [`Lane::dispatch`].
    #[inline(always)]
    #[must_use]
    pub fn switch(&mut self, used: Cycles, departure: Departure) -> Option<Began> {
        match departure {
            Departure::Yield => self.pass_at_length(used).or_else(|| self.pass_to_itself(used)),
            Departure::Block(_) | Departure::Sleep(_) => self.leave(used, departure.outcome()),
            Departure::Finish => {
                let mut began = None;
                let tag =
                    self.leave_finished(used, |bound, overhead| began = Some((bound, overhead)))?;
                let (bound, overhead) = began?;
                Some(Began { tag, bound, overhead })
            }
        }
    }
}
