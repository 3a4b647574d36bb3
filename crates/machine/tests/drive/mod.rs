//! Drivers of a coroutine to its next host call or end: in one slice, in slices of any pattern, or
//! through canonical bytes.
//!
//! All must have the same outcome. Every slice is checked: its charge is less than its bound plus
//! `G`.

use crate::random::Random;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{
    Coroutine, Session, Stop, coroutine_digest, decode, encode, run, session_digest,
};
use wavelock_module::Module;

/// More than any script or generated program needs: a run that reaches it does not terminate.
pub(crate) const MOST_CYCLES: u64 = 1 << 36;

/// Runs a coroutine until it stops for another reason than its slice.
pub(crate) trait Driver {
    /// The stop; `OutOfCycles` only when [`MOST_CYCLES`] were used.
    fn run(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        modules: &[Arc<Module>],
    ) -> Stop;
}

/// One slice.
pub(crate) struct Whole;

impl Driver for Whole {
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, _: &[Arc<Module>]) -> Stop {
        run(session, coroutine, Cycles(MOST_CYCLES))
    }
}

/// Runs one slice and checks it: it overruns its bound by less than `G`, and `OutOfCycles` means
/// that no cycles were left.
pub(crate) fn slice(session: &mut Session, coroutine: &mut Coroutine, bound: u64) -> Stop {
    let (before, gap) = (coroutine.used().0, session.gap().0);
    let stop = run(session, coroutine, Cycles(bound));
    let used = coroutine.used().0 - before;
    assert!(
        used < bound + gap.max(1),
        "a slice of {bound} was charged {used}, which reaches its bound plus G = {gap}"
    );
    if let Stop::OutOfCycles { .. } = stop {
        assert!(used >= bound, "stopped for want of cycles after {used} of {bound}");
    }
    stop
}

/// Slices of seeded lengths: single cycles, a few, about a gap, many.
pub(crate) struct Sliced {
    random: Random,
    most: u64,
}

impl Sliced {
    /// A pattern of its own for each seed; no slice is longer than `most`.
    pub(crate) fn new(seed: u64, most: u64) -> Self {
        Self { random: Random::new(seed), most }
    }
}

impl Driver for Sliced {
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, _: &[Arc<Module>]) -> Stop {
        loop {
            let scale = [1, 4, 40, 4_096, 100_000][self.random.below(5) as usize];
            let bound = (1 + self.random.below(scale)).min(self.most);
            let stop = slice(session, coroutine, bound);
            if !matches!(stop, Stop::OutOfCycles { .. }) || coroutine.used().0 > MOST_CYCLES {
                return stop;
            }
        }
    }
}

/// Encodes, decodes and continues at every safepoint, later at some of them.
pub(crate) struct Snapshots {
    /// Safepoints at which the state was encoded and decoded.
    pub(crate) taken: usize,
    /// Safepoints passed.
    pub(crate) passed: usize,
    every: usize,
    bytes: usize,
    limit_bytes: usize,
}

impl Snapshots {
    /// Every safepoint up to 10,000 of them or `limit_bytes` of snapshots; beyond either, ever
    /// fewer.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { taken: 0, passed: 0, every: 1, bytes: 0, limit_bytes }
    }

    fn through_bytes(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        modules: &[Arc<Module>],
    ) {
        let bytes = encode(session, &[&*coroutine]);
        let decoded = decode(&bytes, modules, session.limits());
        let (mut other, mut coroutines) =
            decoded.unwrap_or_else(|error| panic!("what was encoded does not decode: {error}"));
        let twin = coroutines.pop().expect("one coroutine was encoded");
        assert_eq!(encode(&other, &[&twin]), bytes, "encode(decode(bytes)) differs");
        assert_eq!(coroutine_digest(&other, &twin), coroutine_digest(session, coroutine));
        assert_eq!(
            session_digest(&mut other),
            session_digest(session),
            "a decoded session has another digest"
        );
        *session = other;
        *coroutine = twin;
        self.taken += 1;
        self.bytes += bytes.len();
        if self.taken.is_multiple_of(10_000) || self.bytes > self.limit_bytes {
            self.every *= 4;
            self.bytes = 0;
        }
    }
}

impl Driver for Snapshots {
    fn run(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        modules: &[Arc<Module>],
    ) -> Stop {
        loop {
            let stop = slice(session, coroutine, 1);
            self.passed += 1;
            if self.passed.is_multiple_of(self.every) {
                self.through_bytes(session, coroutine, modules);
            }
            if !matches!(stop, Stop::OutOfCycles { .. }) || coroutine.used().0 > MOST_CYCLES {
                return stop;
            }
        }
    }
}
