//! Runs programs on our machine, on `wasmtime` and on `wasmi`, and compares results, traps,
//! memories, globals and tables. On our machine each program also runs in slices, serialized and
//! restored, and by single instructions.
//!
//! `differ [--iterations N] [--first SEED] [--source NAME] [--save FOLDER]`. Two child processes of
//! this binary run the programs; each prints a seed before it runs it, so that a crash or a hang
//! can be attributed. Exit 0: all agree, and, in a run of all sources with at least 2,000 programs,
//! every lowered instruction was executed; 1: otherwise; 2: usage.

mod compiler;
mod coverage;
#[allow(dead_code)] // Only its programs: what they show is compared in other terms here.
#[path = "../../../crates/machine/tests/generate/mod.rs"]
mod generate;
mod host;
mod interpreter;
mod mutants;
mod ours;
mod parent;
mod program;
#[path = "../../../crates/machine/tests/random/mod.rs"]
mod random;
mod shapes;
mod write;

use coverage::Coverage;
use ours::{Mode, Shown};
use parent::Options;
use program::{Ended, Observed, Plan, Program};
use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use wavelock_compiled::{CompiledModule, CompiledTier};
use wavelock_module::{ExportKind, Limits, LoadError, Module};

/// A program that uses more cycles is long.
const LONG_CYCLES: u64 = 400_000;

/// The message of the last panic of this process, for the line of its seed.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// The source of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Shapes,
    Mutants,
    Smith,
}

impl Source {
    pub(crate) const ALL: [(&str, Self); 3] =
        [("shapes", Self::Shapes), ("mutants", Self::Mutants), ("smith", Self::Smith)];

    /// The source of a seed if all sources are used.
    fn of(seed: u64) -> Self {
        [Self::Shapes, Self::Mutants, Self::Shapes, Self::Smith, Self::Shapes][(seed % 5) as usize]
    }
}

/// The counters of a child process.
#[derive(Default)]
struct Tally {
    /// Programs that our machine refused for a limit, or that an oracle could not run.
    refused: u64,
    /// Programs with a result at which engines may differ, after which nothing was compared.
    open: u64,
    /// Programs on which `wasmtime` agrees with us and `wasmi` does not.
    wasmi_alone: u64,
}

/// The program of a seed.
fn program(seed: u64, source: Source) -> Option<Program> {
    let random = &mut Random::new(seed ^ 0x5eed);
    let (origin, bytes, first, most_cycles): (_, _, &[&str], _) = match source {
        Source::Shapes => ("shapes".to_owned(), shapes::module(random), &[], 100_000),
        Source::Mutants => {
            let (name, bytes) = mutants::mutant(random);
            (format!("mutant of {name}"), bytes, &["run", "_start", "main"], 8_000_000)
        }
        Source::Smith => ("wasm-smith".to_owned(), generate::program(seed)?.bytes, &[], 1 << 30),
    };
    let must_load = source != Source::Mutants;
    let mut program = Program { origin, bytes, calls: Vec::new(), most_cycles, must_load };
    if let Ok(module) = Module::new(&program.bytes, &Limits::default()) {
        program.calls = program::calls(&module, first, 4, random);
    }
    Some(program)
}

/// The name of the memory that host functions use.
pub(crate) fn first_memory(module: &Module) -> Option<&str> {
    let memory =
        module.exports().iter().find(|export| matches!(export.kind, ExportKind::Memory(_)));
    memory.map(|export| export.name.as_str())
}

/// A tier with native code for the module.
fn tier_of(module: &Arc<Module>) -> Result<CompiledTier, String> {
    let code = CompiledModule::new(module, &wavelock_compiled::Options::default());
    let mut tier = CompiledTier::default();
    tier.add(Arc::new(code.map_err(|error| error.to_string())?));
    Ok(tier)
}

/// Runs a program in every way; returns the first difference.
fn check(
    program: &Program,
    seed: u64,
    coverage: &mut Coverage,
    tally: &mut Tally,
) -> Result<(), String> {
    let module = match Module::new(&program.bytes, &Limits::default()) {
        Ok(module) => Arc::new(module),
        Err(LoadError::Limit { .. }) if !program.must_load => {
            tally.refused += 1;
            return Ok(());
        }
        Err(error) => return Err(format!("our machine refuses it: {error}")),
    };
    let whole = match ours::observe(program, &module, Mode::Whole, seed) {
        Ok(whole) => whole,
        Err(error) if program.must_load => return Err(error),
        Err(_) => {
            tally.refused += 1;
            return Ok(());
        }
    };
    tally.open += u64::from(whole.observed.ends.iter().any(Ended::is_open));
    let (mut one, mut two) = (tier_of(&module)?, tier_of(&module)?);
    let modes = [
        ("restored", Mode::Restored),
        ("in random tiers", Mode::Tiers(&mut one)),
        ("natively", Mode::Native(&mut two)),
        ("sliced", Mode::Sliced),
        ("stepped", Mode::Stepped(coverage)),
    ];
    // Long programs run in one way per tier, sliced and serialized together.
    let ways = if whole.cycles.iter().sum::<u64>() > LONG_CYCLES { 2 } else { modes.len() };
    for (name, mode) in modes.into_iter().take(ways) {
        let other = ours::observe(program, &module, mode, seed)?;
        if let Some(text) = other.difference(&whole) {
            return Err(format!("{name}: {text}"));
        }
    }
    let exports = module.exports().iter().map(|export| export.name.as_str()).collect();
    let plan = Plan { memory: first_memory(&module), exports, fuel: fuel(program, &whole) };
    // A panic of `wasmi` is not our failure.
    let interpreted = catch_unwind(AssertUnwindSafe(|| interpreter::observe(program, &plan)));
    let interpreted = interpreted.unwrap_or_else(|_| Err(last_panic()));
    let interpreted = against("wasmi", &whole, program, interpreted);
    let compiled = against("wasmtime", &whole, program, compiler::observe(program, &plan));
    match (interpreted, compiled) {
        (_, Err(text)) => Err(text),
        (Err(text), Ok(())) => {
            println!("note {seed} {text}");
            tally.wasmi_alone += 1;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The fuel of the oracles for each call. If the call ended on our machine there is no limit: an
/// oracle that does not end hangs and is reported for that. Otherwise it is our machine's limit.
fn fuel(program: &Program, whole: &Shown) -> Vec<u64> {
    let ends = whole.observed.ends.iter().map(|end| match end {
        Ended::Exhausted => program.most_cycles,
        _ => u64::MAX / 4,
    });
    ends.chain(std::iter::repeat(program.most_cycles)).take(program.calls.len() + 1).collect()
}

/// Compares the result of an oracle.
fn against(
    name: &str,
    whole: &Shown,
    program: &Program,
    theirs: Result<(Observed, Vec<u64>), String>,
) -> Result<(), String> {
    let (theirs, used) = theirs?;
    for (number, (end, other)) in whole.observed.ends.iter().zip(&theirs.ends).enumerate() {
        match (end, other) {
            // A mutant may fill gigabytes beyond its memory: we charge that before it traps.
            (Ended::Exhausted, other)
                if *other != Ended::Exhausted
                    && program.must_load
                    && used[number] < program.most_cycles / 1_000 =>
            {
                return Err(format!("{name}: end {number}: ours runs on, theirs {other:x?}"));
            }
            _ => {}
        }
    }
    match whole.observed.difference(&theirs) {
        Some(text) => Err(format!("{name}: {text}")),
        None => Ok(()),
    }
}

/// The message and position of the last panic of this process.
fn last_panic() -> String {
    PANIC.lock().map_or_else(|_| "a panic".to_owned(), |text| text.clone())
}

/// Runs seeds in this process and prints one line each for the parent.
fn child(options: &Options) {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.lock() {
            *text = info.to_string().replace('\n', " ");
        }
    }));
    let (mut coverage, mut tally) = (Coverage::default(), Tally::default());
    for seed in options.first..options.first + options.programs {
        println!("begin {seed}");
        let source = options.source.unwrap_or(Source::of(seed));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let Some(program) = program(seed, source) else { return Ok(()) };
            if let Some(folder) = &options.save {
                let file = folder.join(format!("{seed}.wasm"));
                std::fs::write(&file, &program.bytes)
                    .map_err(|error| format!("{}: {error}", file.display()))?;
            }
            let checked = check(&program, seed, &mut coverage, &mut tally);
            checked
                .map_err(|text| format!("{}: {text} (calls {:x?})", program.origin, program.calls))
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(text)) => println!("fail {seed} {}", text.replace('\n', " ")),
            Err(_) => println!("fail {seed} {}", last_panic()),
        }
    }
    println!("tally {} {} {}", tally.refused, tally.open, tally.wasmi_alone);
    let counts: Vec<String> = coverage.counts().iter().map(u64::to_string).collect();
    println!("counts {}", counts.join(" "));
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        eprintln!("{}", parent::USAGE);
        return ExitCode::from(2);
    };
    if options.child {
        child(&options);
        return ExitCode::SUCCESS;
    }
    parent::run(&options)
}
