//! Why the dispatch loop ended: [`Exit`] inside the crate, [`Stop`] outside.
//!
//! `switch` handles some exits by dispatching another coroutine. All others become a `Stop` and the
//! coroutine's state.

use wavelock_abi::{Cycles, FaultCode};

use crate::coroutine::{Coroutine, HostCall, State, Stop};
use crate::session::Session;

/// Why the loop ended, packed into one word: a tag in the lowest byte, its value above. As an enum
/// the tag would be set up before every instruction, because most instructions can end the loop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u64);

/// An [`Exit`], unpacked.
pub(crate) enum ExitReason {
    /// At a safepoint without cycles left; the next charge.
    OutOfCycles(u64),
    /// In a host call; the coroutine's state holds which.
    Host,
    /// Its function returned this many values.
    Finished(u16),
    Fault(FaultCode),
    /// It yielded, and resumes after the call.
    Yielded,
    /// It blocks in a call.
    Blocked,
    /// The next slice is left to the caller.
    Deferred,
    /// The dispatched coroutine blocks in a call that the host did not complete, or has ended.
    Suspended,
    /// In a call that spawns a coroutine with a function in this table.
    Spawn(u32),
}

#[allow(non_snake_case, reason = "named as the variants of `ExitReason` that they pack")]
impl Exit {
    pub(crate) const HOST: Self = Self(1);
    pub(crate) const YIELDED: Self = Self(4);
    pub(crate) const BLOCKED: Self = Self(5);
    pub(crate) const DEFERRED: Self = Self(6);
    pub(crate) const SUSPENDED: Self = Self(7);

    #[inline(always)]
    pub(crate) const fn OutOfCycles(next: u32) -> Self {
        Self::out_of_cycles(next as u64)
    }

    /// [`Exit::OutOfCycles`] before a bulk operation, whose cost may exceed 32 bits.
    #[inline(always)]
    pub(crate) const fn out_of_cycles(next: u64) -> Self {
        Self(next << 8)
    }

    #[inline(always)]
    pub(crate) const fn Finished(results: u16) -> Self {
        Self((results as u64) << 8 | 2)
    }

    #[inline(always)]
    pub(crate) const fn Fault(code: FaultCode) -> Self {
        Self((code as u64) << 8 | 3)
    }

    #[inline(always)]
    pub(crate) const fn Spawn(table: u32) -> Self {
        Self((table as u64) << 8 | 8)
    }

    #[inline(always)]
    pub(crate) fn reason(self) -> ExitReason {
        let value = self.0 >> 8;
        match self.0 as u8 {
            0 => ExitReason::OutOfCycles(value),
            1 => ExitReason::Host,
            2 => ExitReason::Finished(value as u16),
            3 => ExitReason::Fault(
                FaultCode::from_code(value as u8).expect("packed from a fault code"),
            ),
            4 => ExitReason::Yielded,
            5 => ExitReason::Blocked,
            6 => ExitReason::Deferred,
            7 => ExitReason::Suspended,
            _ => ExitReason::Spawn(value as u32),
        }
    }

    /// Converts to a stop, and updates the coroutine's state to match.
    #[inline(always)]
    pub(crate) fn stop(self, session: &Session, coroutine: &mut Coroutine) -> Stop {
        // Fast path: nearly all stops are host calls.
        if self == Self::HOST {
            Stop::Host(HostCall { number: coroutine.called() })
        } else {
            self.other_stop(session, coroutine)
        }
    }

    #[inline(never)]
    fn other_stop(self, session: &Session, coroutine: &mut Coroutine) -> Stop {
        match self.reason() {
            ExitReason::OutOfCycles(next) => return Stop::OutOfCycles { next: Cycles(next) },
            ExitReason::Finished(results) => {
                coroutine.state = State::Finished { results };
                coroutine.word = Coroutine::NO_WORD;
            }
            ExitReason::Fault(code) => coroutine.state = State::Faulted(code),
            ExitReason::Host
            | ExitReason::Yielded
            | ExitReason::Blocked
            | ExitReason::Deferred
            | ExitReason::Suspended
            | ExitReason::Spawn(_) => {}
        }
        suspended(session, coroutine)
    }
}

/// The stop of a coroutine that cannot run in its present state.
#[cold]
#[inline(never)]
pub(crate) fn suspended(session: &Session, coroutine: &Coroutine) -> Stop {
    match coroutine.state {
        State::Ready => Stop::OutOfCycles { next: Cycles::ZERO },
        State::Host { call, .. } => Stop::Host(HostCall { number: call.number }),
        State::Finished { .. } => Stop::Finished,
        State::Faulted(code) => Stop::Fault(coroutine.fault_at(session, code)),
    }
}
