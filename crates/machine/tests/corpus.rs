//! Programs from real compilers, and the hand-written kernels, with their results in
//! `corpus/index.toml` and `benches/kernels/index.toml`.
//!
//! Each runs in one slice; all but the longest run again in many, the short ones also through
//! canonical bytes at their safepoints: the same result, cycles and digest every time. The programs
//! never call the host functions that they import.

mod drive;
mod random;

use drive::{Driver, Sliced, Snapshots, Whole};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Digest, Extern, Session, SessionLimits, Stop, session_digest};
use wavelock_module::{ImportKind, Limits, Module};

/// A program and its expected result.
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

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The tables of one kind in an index, each as its lines `key = value`. The indexes use no other
/// TOML.
fn tables(text: &str, kind: &str) -> Vec<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == format!("[[{kind}]]");
            if inside {
                found.push(Vec::new());
            }
        } else if let (true, Some((key, value)), Some(table)) =
            (inside, line.split_once(" = "), found.last_mut())
        {
            table.push((key.to_owned(), value.trim_matches('"').to_owned()));
        }
    }
    found
}

fn field<'a>(table: &'a [(String, String)], key: &str) -> &'a str {
    let found = table.iter().find(|(name, _)| name == key);
    &found.unwrap_or_else(|| panic!("an entry has no `{key}`: {table:?}")).1
}

fn programs() -> Vec<Program> {
    let number =
        |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no 32-bit number"));
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (corpus, kernels) = (repository().join("corpus"), repository().join("benches/kernels"));
    let compiled =
        tables(&read(&corpus.join("index.toml")), "run").into_iter().map(|table| Program {
            file: corpus.join(field(&table, "file")),
            argument: None,
            expected: number(field(&table, "expected")),
        });
    let written =
        tables(&read(&kernels.join("index.toml")), "kernel").into_iter().map(|table| Program {
            file: kernels.join(field(&table, "file")),
            argument: Some(number(field(&table, "check_n"))),
            expected: number(field(&table, "check")),
        });
    compiled.chain(written).collect()
}

fn show(program: &Program, driver: &mut dyn Driver) -> Shown {
    let name = program.file.display();
    let bytes = wat::parse_file(&program.file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let module = Arc::new(
        Module::new(&bytes, &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}")),
    );
    let mut session = Session::new(SessionLimits::default());
    let mut imports = Vec::new();
    for import in module.imports() {
        let ImportKind::Function(kind) = &import.kind else {
            panic!("{name} imports something other than a function")
        };
        let function = session.add_host_function(1, &module.types()[*kind as usize], Cycles(1));
        imports.push(Extern::Function(function.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
    let instance = session
        .instantiate(Arc::clone(&module), &imports)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let modules = [module];
    let arguments: Vec<u64> =
        program.argument.map(|argument| u64::from(argument as u32)).into_iter().collect();
    let Some(Extern::Function(entry)) = session.export(instance, "run") else {
        panic!("{name} exports no function `run`")
    };
    let start = session.start_function(instance).map(|start| (start, Vec::new()));
    let mut shown = Shown { result: 0, used: Cycles(0), digest: session_digest(&mut session) };
    for (function, arguments) in start.into_iter().chain([(entry, arguments)]) {
        let mut coroutine = Coroutine::start(&session, function, &arguments)
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let stop = driver.run(&mut session, &mut coroutine, &modules);
        assert_eq!(stop, Stop::Finished, "{name} did not finish");
        shown.used += coroutine.used();
        shown.result = coroutine.results().first().map_or(0, |value| *value as u32 as i32);
    }
    shown.digest = session_digest(&mut session);
    shown
}

#[test]
fn compiled_programs_return_their_checksums_under_every_driver() {
    let programs = programs();
    assert!(programs.len() >= 40, "the indexes have shrunk to {} programs", programs.len());
    let (mut sliced, mut through_bytes) = (0, 0);
    for (seed, program) in programs.iter().enumerate() {
        let name = program.file.display();
        let whole = show(program, &mut Whole);
        assert_eq!(whole.result, program.expected, "{name} returned another checksum");
        if whole.used < Cycles(20_000_000) {
            assert_eq!(
                show(program, &mut Sliced::new(seed as u64, u64::MAX)),
                whole,
                "{name} in slices, seed {seed}"
            );
            sliced += 1;
        }
        if whole.used < Cycles(200_000) {
            let mut snapshots = Snapshots::new(1 << 22);
            assert_eq!(show(program, &mut snapshots), whole, "{name} through canonical bytes");
            through_bytes += snapshots.taken;
        }
    }
    assert!(sliced >= 30, "only {sliced} programs ran in slices");
    assert!(through_bytes > 1_000, "only {through_bytes} snapshots were taken");
}
