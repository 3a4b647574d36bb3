//! A driver that single-steps a coroutine and compares every slice with a run of a copy.
//!
//! Elsewhere: the other drivers (`drive`).

use crate::drive::{Driver, MOST_CYCLES};
use crate::random::Random;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{
    Coroutine, Session, Stepped, Stepper, Stop, coroutine_digest, run, session_digest,
};
use wavelock_module::Module;

/// Single steps of a call, after which the rest is run.
const MOST_STEPS: u64 = 20_000;

/// Slices of seeded lengths, each single-stepped and compared with a run of a copy.
pub(crate) struct SteppedThrough {
    random: Random,
    stepper: Stepper,
    /// Instructions that were run.
    pub(crate) steps: u64,
}

impl SteppedThrough {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), stepper: Stepper::default(), steps: 0 }
    }

    /// One slice by instruction.
    fn slice(&mut self, session: &mut Session, coroutine: &mut Coroutine, bound: u64) -> Stop {
        let end = coroutine.used() + Cycles(bound);
        loop {
            self.steps += 1;
            match self.stepper.step(session, coroutine, end.saturating_sub(coroutine.used())) {
                Stepped::Moved => {}
                Stepped::Stopped(stop) | Stepped::Over(stop) => return stop,
            }
        }
    }
}

impl Driver for SteppedThrough {
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, _: &[Arc<Module>]) -> Stop {
        self.stepper = Stepper::default();
        let first = self.steps;
        while self.steps - first < MOST_STEPS {
            let scale = [1, 4, 40, 400, 4_096][self.random.below(5) as usize];
            let bound = 1 + self.random.below(scale);
            let (mut other, mut twin) = (session.clone(), coroutine.clone());
            let expected = run(&mut other, &mut twin, Cycles(bound));
            let stop = self.slice(session, coroutine, bound);
            assert_eq!(stop, expected, "a slice of {bound}");
            assert_eq!(coroutine.used(), twin.used(), "a slice of {bound}");
            assert_eq!(
                coroutine_digest(session, coroutine),
                coroutine_digest(&other, &twin),
                "a slice of {bound}"
            );
            assert_eq!(session_digest(session), session_digest(&mut other), "a slice of {bound}");
            if !matches!(stop, Stop::OutOfCycles { .. }) {
                return stop;
            }
        }
        run(session, coroutine, Cycles(MOST_CYCLES))
    }
}
