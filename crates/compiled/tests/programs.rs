//! Programs from real compilers and the hand-written kernels (`corpus/index.toml`,
//! `benches/kernels/index.toml`): native code returns their checksums, with the interpreter's
//! cycles and digest; the shorter ones also in random slices and tiers.

#[path = "../../machine/tests/drive/mod.rs"]
#[allow(dead_code)]
mod drive;
#[path = "../../machine/tests/random/mod.rs"]
mod random;
mod tiers;

use drive::{Driver, Whole};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiers::{Lockstep, Native};
use wavelock_abi::Cycles;
use wavelock_compiled::Planted;
use wavelock_machine::{Coroutine, Digest, Extern, Session, SessionLimits, Stop, session_digest};
use wavelock_module::{ImportKind, Limits, Module};

/// A program, its argument and its expected result.
struct Program {
    file: PathBuf,
    argument: Option<i32>,
    expected: i32,
}

/// The outcome of a run.
#[derive(PartialEq, Debug)]
struct Shown {
    result: i32,
    used: Cycles,
    digest: Digest,
}

/// The values of `keys` in each table of one kind in an index of the repository.
fn tables<const N: usize>(index: &Path, kind: &str, keys: [&str; N]) -> Vec<[String; N]> {
    let text = std::fs::read_to_string(index)
        .unwrap_or_else(|error| panic!("{}: {error}", index.display()));
    let header = format!("[[{kind}]]");
    let sections = text.split("\n[").filter(|part| format!("[{part}").starts_with(&header));
    let value = |section: &str, key: &str| {
        let found = section.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        found.unwrap_or_else(|| panic!("an entry has no `{key}`")).trim_matches('"').to_owned()
    };
    sections.map(|section| keys.map(|key| value(section, key))).collect()
}

fn programs() -> Vec<Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (corpus, kernels) = (root.join("corpus"), root.join("benches/kernels"));
    let number = |text: &str| text.parse().expect("a 32-bit number");
    let compiled = tables(&corpus.join("index.toml"), "run", ["file", "expected"]);
    let compiled = compiled.into_iter().map(|[file, expected]| Program {
        file: corpus.join(file),
        argument: None,
        expected: number(&expected),
    });
    let written = tables(&kernels.join("index.toml"), "kernel", ["file", "check_n", "check"]);
    let written = written.into_iter().map(|[file, argument, expected]| Program {
        file: kernels.join(file),
        argument: Some(number(&argument)),
        expected: number(&expected),
    });
    compiled.chain(written).collect()
}

/// Runs a program; `None` if it does not finish.
fn show(program: &Program, module: &Arc<Module>, driver: &mut dyn Driver) -> Option<Shown> {
    let name = program.file.display();
    let mut session = Session::new(SessionLimits::default());
    let mut imports = Vec::new();
    for import in module.imports() {
        let ImportKind::Function(kind) = &import.kind else { panic!("{name}: an import") };
        let function = session.add_host_function(1, &module.types()[*kind as usize], Cycles(1));
        imports.push(Extern::Function(function.expect("a host function")));
    }
    let instance = session.instantiate(Arc::clone(module), &imports).expect("links");
    let arguments: Vec<u64> =
        program.argument.map(|argument| u64::from(argument as u32)).into_iter().collect();
    let Some(Extern::Function(entry)) = session.export(instance, "run") else {
        panic!("{name} exports no function `run`")
    };
    let start = session.start_function(instance).map(|start| (start, Vec::new()));
    let (mut used, mut result) = (Cycles(0), 0);
    for (function, arguments) in start.into_iter().chain([(entry, arguments)]) {
        let mut coroutine = Coroutine::start(&session, function, &arguments).expect("starts");
        let stop = driver.run(&mut session, &mut coroutine, std::slice::from_ref(module));
        if stop != Stop::Finished {
            return None;
        }
        used += coroutine.used();
        result = coroutine.results().first().map_or(0, |value| *value as u32 as i32);
    }
    Some(Shown { result, used, digest: session_digest(&mut session) })
}

fn load(program: &Program) -> Arc<Module> {
    let bytes = wat::parse_file(&program.file).expect("a program of the repository");
    Arc::new(Module::new(&bytes, &Limits::default()).expect("valid"))
}

#[test]
fn native_code_returns_the_checksums_under_every_driver() {
    let programs = programs();
    assert!(programs.len() >= 40, "the indexes have shrunk to {} programs", programs.len());
    let (mut compiled, mut left_out, mut slices, mut compared) = (0, 0, 0, 0);
    for (seed, program) in programs.iter().enumerate() {
        let (name, module) = (program.file.display(), load(program));
        let whole = show(program, &module, &mut Whole).unwrap_or_else(|| panic!("{name} ends"));
        assert_eq!(whole.result, program.expected, "{name} returned another checksum");
        let mut native = Native::default();
        assert_eq!(show(program, &module, &mut native).as_ref(), Some(&whole), "{name} natively");
        compiled += native.0.compiled;
        left_out += native.0.left_out;
        if whole.used < Cycles(3_000_000) {
            for (most, bytes) in [(u64::MAX, 8 << 20), (50, 8 << 20)] {
                let mut driver = Lockstep::new(seed as u64, most, 5, bytes);
                let shown = show(program, &module, &mut driver);
                assert_eq!(driver.difference, None, "{name}, slices of at most {most}");
                assert_eq!(shown.as_ref(), Some(&whole), "{name} in random tiers");
                slices += driver.slices;
                compared += driver.compared;
            }
        }
    }
    println!(
        "{} programs, {compiled} functions compiled, {left_out} left to the interpreter, \
         {slices} slices, {compared} states compared",
        programs.len()
    );
    assert!(slices > 10_000 && compared > 100, "{slices} slices, {compared} states");
    assert!(left_out * 100 <= compiled, "{left_out} functions are left to the interpreter");
}

/// Whether a program in slices and random tiers shows a planted fault.
fn finds(program: &Program, fault: Planted, most: u64) -> bool {
    let mut driver = Lockstep::new(1, most, 4, 8 << 20).with_planted(fault);
    show(program, &load(program), &mut driver);
    driver.difference.is_some()
}

#[test]
fn planted_miscompilations_are_found() {
    let programs = programs();
    let is_kernel = |program: &&Program| program.argument.is_some();
    for fault in [Planted::LiveSet, Planted::Charge, Planted::Operands, Planted::Mark] {
        let found =
            programs.iter().filter(is_kernel).any(|program| finds(program, fault, u64::MAX));
        assert!(found, "{fault:?} is not found by any kernel");
    }
    // It takes a loop that native code enters in its middle, after a call.
    let tokenizer = programs.iter().find(|program| program.file.ends_with("c/tokenizer-O2.wasm"));
    assert!(finds(tokenizer.expect("a program of the corpus"), Planted::Counter, 50));
}
