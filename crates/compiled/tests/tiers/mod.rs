//! Drivers that run native code, alone or mixed with the interpreter.

use crate::drive::{Driver, MOST_CYCLES};
use crate::random::Random;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_compiled::{CompiledModule, CompiledTier, Options, Planted};
use wavelock_machine::{Coroutine, Session, Stop, encode, run, run_tiered, session_digest};
use wavelock_module::Module;

/// A tier that compiles every module when it is first seen.
#[derive(Default)]
pub(crate) struct Eager {
    pub(crate) tier: CompiledTier,
    pub(crate) options: Options,
    pub(crate) compiled: u32,
    pub(crate) left_out: u32,
}

impl Eager {
    pub(crate) fn see(&mut self, modules: &[Arc<Module>]) {
        for module in modules {
            if !self.tier.has(module) {
                let compiled = CompiledModule::new(module, &self.options)
                    .unwrap_or_else(|error| panic!("nothing can be compiled: {error}"));
                let counts = compiled.counts();
                self.compiled += counts.compiled;
                self.left_out += counts.too_large + counts.refused;
                self.tier.add(Arc::new(compiled));
            }
        }
    }
}

/// Native code, in one slice.
#[derive(Default)]
pub(crate) struct Native(pub(crate) Eager);

impl Driver for Native {
    fn run(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        modules: &[Arc<Module>],
    ) -> Stop {
        self.0.see(modules);
        run_tiered(session, coroutine, Cycles(MOST_CYCLES), &mut self.0.tier)
    }
}

/// Slices of random lengths, each in a random tier; a twin runs the same slices in the interpreter.
/// Every stop and charge is compared, and canonical bytes at stops until a budget is used.
pub(crate) struct Lockstep {
    pub(crate) eager: Eager,
    random: Random,
    most: u64,
    /// Of eight slices, how many run natively.
    native: u64,
    bytes: usize,
    pub(crate) slices: u64,
    pub(crate) compared: u64,
    /// Differences found; the first ends the run.
    pub(crate) difference: Option<String>,
}

impl Lockstep {
    pub(crate) fn new(seed: u64, most: u64, native: u64, bytes: usize) -> Self {
        Self {
            eager: Eager::default(),
            random: Random::new(seed),
            most,
            native,
            bytes,
            slices: 0,
            compared: 0,
            difference: None,
        }
    }

    #[allow(dead_code)] // Not every test plants one.
    pub(crate) fn with_planted(mut self, planted: Planted) -> Self {
        self.eager.options.planted = Some(planted);
        self
    }
}

impl Driver for Lockstep {
    fn run(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        modules: &[Arc<Module>],
    ) -> Stop {
        self.eager.see(modules);
        let (mut other, mut twin) = (session.clone(), coroutine.clone());
        loop {
            let scale = [1, 4, 40, 4_096, 100_000][self.random.below(5) as usize];
            let bound = Cycles((1 + self.random.below(scale)).min(self.most));
            let stop = if self.random.below(8) < self.native {
                run_tiered(session, coroutine, bound, &mut self.eager.tier)
            } else {
                run(session, coroutine, bound)
            };
            let expected = run(&mut other, &mut twin, bound);
            self.slices += 1;
            let is_over =
                !matches!(stop, Stop::OutOfCycles { .. }) || coroutine.used().0 > MOST_CYCLES;
            let mut difference = None;
            if stop != expected || coroutine.used() != twin.used() {
                difference = Some(format!(
                    "{stop:?} after {:?}, expected {expected:?} after {:?}",
                    coroutine.used(),
                    twin.used()
                ));
            } else if self.bytes > 0 || is_over {
                let (ours, theirs) = (encode(session, &[&*coroutine]), encode(&other, &[&twin]));
                self.compared += 1;
                self.bytes = self.bytes.saturating_sub(ours.len());
                if ours != theirs {
                    let registers = (coroutine.registers(session), twin.registers(&other));
                    difference = Some(format!(
                        "canonical bytes differ at {stop:?}, before {:?} in {:?}: {registers:?}",
                        coroutine.next_instruction(session),
                        coroutine.backtrace(session).next(),
                    ));
                } else if is_over && session_digest(session) != session_digest(&mut other) {
                    difference = Some("digests of the sessions differ".to_string());
                }
            }
            if difference.is_some() {
                self.difference.get_or_insert(difference.unwrap_or_default());
                return expected;
            }
            if is_over {
                return stop;
            }
        }
    }
}
