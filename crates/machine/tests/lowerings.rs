//! One module, two lowerings: with and without the peephole pass a coroutine stops at the same
//! positions with the same state, and a snapshot of one lowering resumes in the other.

#[allow(dead_code)]
mod drive;
#[allow(dead_code)]
mod generate;
#[allow(dead_code)]
mod observe;
mod random;

use generate::{Program, program};
use random::Random;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, Stop, decode, encode, run, session_digest};
use wavelock_module::{Limits, Module, Peepholes};

/// A coroutine of one lowering.
struct Side {
    module: Arc<Module>,
    session: Session,
    coroutine: Coroutine,
}

impl Side {
    fn new(bytes: &[u8], peepholes: Peepholes, export: &str, arguments: &[u64]) -> Option<Self> {
        let module = Module::with_peepholes(bytes, &Limits::default(), peepholes)
            .expect("both lowerings are accepted");
        Self::of(module, export, arguments)
    }

    fn of(module: Module, export: &str, arguments: &[u64]) -> Option<Self> {
        let module = Arc::new(module);
        let (session, instance) = observe::instantiate(&module).ok()?;
        let Some(Extern::Function(function)) = session.export(instance.ok()?, export) else {
            return None;
        };
        let coroutine = Coroutine::start(&session, function, arguments).ok()?;
        Some(Self { module, session, coroutine })
    }

    fn bytes(&self) -> Vec<u8> {
        encode(&self.session, &[&self.coroutine])
    }

    /// Continues from the other lowering's bytes.
    fn take(&mut self, bytes: &[u8]) {
        let decoded = decode(bytes, std::slice::from_ref(&self.module), self.session.limits());
        let (session, mut coroutines) =
            decoded.unwrap_or_else(|error| panic!("the other lowering's bytes: {error}"));
        (self.session, self.coroutine) =
            (session, coroutines.pop().expect("one coroutine was encoded"));
    }
}

/// Runs both in the same slices and swaps their states now and then; returns the number of stops
/// compared.
fn compare(what: &str, mut sides: [Side; 2], seed: u64, most_stops: u32) -> u32 {
    let mut random = Random::new(seed);
    for stop in 0..most_stops {
        let scale = [1, 3, 40, 2_000][random.below(4) as usize];
        let bound = Cycles(1 + random.below(scale));
        let [first, second] = &mut sides;
        let stops = [first, second].map(|side| run(&mut side.session, &mut side.coroutine, bound));
        assert_eq!(stops[0], stops[1], "{what}, stop {stop}");
        let bytes = sides[0].bytes();
        assert!(bytes == sides[1].bytes(), "{what}: states differ at stop {stop}, {:?}", stops[0]);
        match stops[0] {
            Stop::OutOfCycles { .. } if stop % 7 == 3 => {
                sides.iter_mut().for_each(|side| side.take(&bytes))
            }
            Stop::OutOfCycles { .. } => {}
            Stop::Host(call) => {
                let results = vec![
                    random.below(3);
                    [0, 1, 2].get(usize::from(call.number)).copied().unwrap_or(0)
                ];
                sides.iter_mut().for_each(|side| side.coroutine.resume(&results));
            }
            Stop::Finished | Stop::Fault(_) => {
                let digests = sides.each_mut().map(|side| session_digest(&mut side.session));
                assert_eq!(digests[0], digests[1], "{what}");
                return stop + 1;
            }
        }
    }
    most_stops
}

/// Both lowerings of an exported function; `None` if it cannot be started.
fn sides(bytes: &[u8], peepholes: Peepholes, export: &str, arguments: &[u64]) -> Option<[Side; 2]> {
    Some([
        Side::new(bytes, Peepholes::NONE, export, arguments)?,
        Side::new(bytes, peepholes, export, arguments)?,
    ])
}

fn of_program(program: &Program, peepholes: Peepholes, seed: u64) -> u32 {
    let calls = program.sequences.iter().flatten();
    calls
        .filter_map(|(export, arguments)| {
            let sides = sides(&program.bytes, peepholes, &export.name, arguments)?;
            Some(compare(&format!("seed {seed}, {}", export.name), sides, seed, 300))
        })
        .sum()
}

#[test]
fn generated_programs_show_the_same_states_in_both_lowerings() {
    let stops: u32 =
        (0..250).filter_map(|seed| Some(of_program(&program(seed)?, Peepholes::ALL, seed))).sum();
    println!("{stops} stops compared");
    assert!(stops > 20_000, "{stops} stops are too few to show anything");
}

#[test]
fn each_row_can_be_disabled() {
    let mut stops = 0;
    for name in Peepholes::names() {
        for seed in 0..12 {
            let Some(program) = program(seed) else { continue };
            stops += of_program(&program, Peepholes::ALL.without(name), seed);
        }
    }
    assert!(stops > 5_000, "{stops} stops are too few to show anything");
}

/// The hand-written kernels have loops and addresses that generated programs lack.
#[test]
fn kernels_show_the_same_states_in_both_lowerings() {
    let kernels = [
        "fib",
        "lcg",
        "sieve",
        "sort",
        "sha256",
        "matmul",
        "copy_bulk",
        "copy_loop",
        "indirect",
        "vm",
    ];
    let (mut stops, mut ran) = (0, 0);
    for kernel in kernels {
        let path = format!("{}/../../benches/kernels/{kernel}.wat", env!("CARGO_MANIFEST_DIR"));
        let bytes = wat::parse_file(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        // Some want more memory than these sessions have.
        let Some(sides) = sides(&bytes, Peepholes::ALL, "run", &[12]) else { continue };
        stops += compare(kernel, sides, 5, 3_000);
        ran += 1;
    }
    assert!(ran >= 7, "only {ran} kernels ran");
    assert!(stops > 2_000, "{stops} stops are too few to show anything");
}

/// A planted fault: another constant in one lowering is noticed.
#[test]
fn a_planted_difference_is_noticed() {
    let text = r#"(module (func (export "run") (param i32) (result i32)
        (loop $l (local.set 0 (i32.sub (local.get 0) (i32.const 1))) (br_if $l (local.get 0))) (local.get 0)))"#;
    let bytes = wat::parse_str(text).expect("text");
    let [plain, fused] = sides(&bytes, Peepholes::ALL, "run", &[40]).expect("it starts");
    // The step, in the upper 16 bits of the fused branch's first word.
    let at = fused
        .module
        .code()
        .instructions()
        .find(|&at| fused.module.instruction_text(at).contains("loop."));
    let at = at.expect("a fused loop") as usize;
    let changed =
        fused.module.with_words(|words| words[at] ^= 1 << 50).expect("a step is any number");
    let changed = Side::of(changed, "run", &[40]).expect("it starts");
    let noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        compare("planted", [plain, changed], 1, 100)
    }));
    assert!(noticed.is_err());
}
