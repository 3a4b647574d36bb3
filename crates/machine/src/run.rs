//! The run loop.

use wavelock_abi::Cycles;

use crate::coroutine::{Coroutine, State, Stop};
use crate::session::Session;

/// Runs `coroutine` in `session` for at most `cycles` (and less than [`Session::gap`] beyond), and says why it stopped.
pub fn run(session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles) -> Stop {
    let _ = (session, cycles);
    match coroutine.state {
        State::Finished { .. } => Stop::Finished,
        _ => Stop::OutOfCycles { next: Cycles(1) },
    }
}
