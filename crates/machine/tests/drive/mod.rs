//! Ways to drive a coroutine to its next host call or end: at once, or in slices of any pattern.
//!
//! Elsewhere: encoding and decoding on the way (`snapshot` drivers in the tests that need them).

use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Session, Stop, run};
use wavelock_module::Module;

/// More than any script or generated program needs; a run that reaches it does not end.
pub(crate) const MOST_CYCLES: u64 = 1 << 36;

/// Runs a coroutine until it stops for another reason than its slice.
pub(crate) trait Driver {
    /// The stop; `OutOfCycles` only when [`MOST_CYCLES`] were used.
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, modules: &[Arc<Module>]) -> Stop;
}

/// One slice as long as it takes.
pub(crate) struct Whole;

impl Driver for Whole {
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, _: &[Arc<Module>]) -> Stop {
        run(session, coroutine, Cycles(MOST_CYCLES))
    }
}
