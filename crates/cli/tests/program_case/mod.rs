//! Cases of real programs: the `[[program]]` entries of `corpus/index.toml`, and a runner for one
//! of them.
//!
//! Shared by the test of the committed modules (`programs.rs`) and by `checks/programs`, which runs
//! every build and other engines. [`Case::judge`] checks the output of a case; the caller chooses
//! its modules and engines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};
use wavelock_abi::{Cycles, Frame, SessionId};
use wavelock_kernel::Policy;
use wavelock_module::Module;
use wavelock_system::{
    InputEvent, MachineSpec, Recipient, RunOutcome, SessionOutcome, Sink, Span, World,
};

/// Default builds of a program.
const BUILDS: [&str; 5] = ["O0", "O2", "O3", "Os", "opt"];
/// Frames after which a run is aborted: 20 billion cycles.
const MOST_FRAMES: u64 = 20_000;
/// Memory limit of a program in pages: 256 MiB.
const MEMORY_PAGES: u32 = 4_096;
/// Bytes of call and operand stack: recursive programs at -O0 need more than the default.
const STACK_BYTES: u32 = 8 << 20;

/// The source of standard input.
#[derive(Debug)]
enum Input {
    Files(Vec<String>),
    OutputOf(String),
}

/// The expected standard output.
#[derive(Debug)]
enum Expected {
    File(String),
    Hash(u64),
    OutputOf(String),
}

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: String,
    /// The program: modules are named PROGRAM-BUILD.wasm.
    pub(crate) program: String,
    /// All its builds.
    pub(crate) builds: Vec<String>,
    /// Builds whose modules are in the repository.
    pub(crate) committed: Vec<String>,
    /// Arguments, the program's name first.
    pub(crate) args: Vec<String>,
    /// Environment, in name order.
    pub(crate) env: Vec<(String, String)>,
    input: Input,
    expected: Expected,
    exit: i32,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// The exit code.
    pub(crate) exit: i32,
}

/// Outputs of earlier cases, by name.
pub(crate) type Outputs = BTreeMap<String, Vec<u8>>;

/// The folder of the index.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// The 64-bit FNV-1a hash.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn file(name: &str) -> Vec<u8> {
    let path = corpus().join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn texts(entry: &Table, key: &str) -> Option<Vec<String>> {
    let list = entry.get(key)?.as_array().unwrap_or_else(|| panic!("`{key}` is a list: {entry:?}"));
    Some(
        list.iter()
            .map(|text| {
                text.as_str().unwrap_or_else(|| panic!("`{key}` has texts: {entry:?}")).to_owned()
            })
            .collect(),
    )
}

impl Case {
    /// Every case of the index, in order: a case comes after those it refers to.
    pub(crate) fn all() -> Vec<Case> {
        let index = String::from_utf8(file("index.toml")).expect("the index is UTF-8");
        let mut table: Table = index.parse().expect("the index is TOML");
        let Some(Value::Array(entries)) = table.remove("program") else {
            panic!("the index has no [[program]]")
        };
        entries
            .into_iter()
            .map(|entry| Case::read(&entry.try_into().expect("an entry is a table")))
            .collect()
    }

    fn read(entry: &Table) -> Case {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let required =
            |key: &str| text(key).unwrap_or_else(|| panic!("a program has no `{key}`: {entry:?}"));
        let input = match (texts(entry, "stdin"), text("stdin_of")) {
            (Some(files), None) => Input::Files(files),
            (None, Some(case)) => Input::OutputOf(case),
            _ => panic!("exactly one of `stdin` and `stdin_of`: {entry:?}"),
        };
        let expected = match (text("stdout"), text("stdout_fnv"), text("stdout_of")) {
            (Some(name), None, None) => Expected::File(name),
            (None, Some(hash), None) => {
                Expected::Hash(u64::from_str_radix(&hash, 16).expect("a hash is hexadecimal"))
            }
            (None, None, Some(case)) => Expected::OutputOf(case),
            _ => panic!("exactly one of `stdout`, `stdout_fnv` and `stdout_of`: {entry:?}"),
        };
        let arguments =
            texts(entry, "args").expect("a program has `args`").into_iter().map(|argument| {
                match argument.strip_prefix('@') {
                    Some(name) => String::from_utf8(file(name)).expect("an argument is UTF-8"),
                    None => argument,
                }
            });
        let variables = entry.get("env").and_then(Value::as_table).cloned().unwrap_or_default();
        Case {
            name: required("name"),
            program: required("program"),
            builds: texts(entry, "builds").unwrap_or_else(|| BUILDS.map(str::to_owned).into()),
            committed: texts(entry, "committed").expect("a program has `committed`"),
            args: arguments.collect(),
            env: variables
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned()))
                .collect(),
            input,
            expected,
            exit: i32::try_from(entry["exit"].as_integer().expect("`exit` is a number"))
                .expect("an exit code"),
        }
    }

    /// Its standard input.
    pub(crate) fn stdin(&self, outputs: &Outputs) -> Vec<u8> {
        match &self.input {
            Input::Files(names) => names.iter().flat_map(|name| file(name)).collect(),
            Input::OutputOf(case) => outputs
                .get(case)
                .unwrap_or_else(|| panic!("{}: {case} did not run before", self.name))
                .clone(),
        }
    }

    /// Checks the result of a run.
    pub(crate) fn judge(&self, shown: &Shown, outputs: &Outputs) -> Result<(), String> {
        if shown.exit != self.exit {
            return Err(format!("exit code {} instead of {}", shown.exit, self.exit));
        }
        let whole = match &self.expected {
            Expected::Hash(hash) if fnv(&shown.stdout) == *hash => return Ok(()),
            Expected::Hash(hash) => {
                return Err(format!(
                    "{} bytes of output have the hash {:016x} instead of {hash:016x}",
                    shown.stdout.len(),
                    fnv(&shown.stdout)
                ));
            }
            Expected::File(name) => file(name),
            Expected::OutputOf(case) => outputs
                .get(case)
                .unwrap_or_else(|| panic!("{}: {case} did not run before", self.name))
                .clone(),
        };
        match shown.stdout.iter().zip(&whole).position(|(found, wanted)| found != wanted) {
            _ if shown.stdout == whole => Ok(()),
            Some(at) => {
                Err(format!("output differs at byte {at}: {:?}", excerpt(&shown.stdout, at)))
            }
            None => {
                Err(format!("{} bytes of output instead of {}", shown.stdout.len(), whole.len()))
            }
        }
    }
}

fn excerpt(bytes: &[u8], at: usize) -> String {
    String::from_utf8_lossy(&bytes[at.saturating_sub(20)..bytes.len().min(at + 40)]).into_owned()
}

/// The frame, wave and quantum lengths of a run, which a program without a clock cannot observe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slicing {
    frame: u64,
    wave: u64,
    quantum: u64,
}

impl Slicing {
    /// The defaults of a manifest.
    pub(crate) const USUAL: Slicing = Slicing { frame: 1_000_000, wave: 100_000, quantum: 10_000 };
    /// One long slice.
    #[allow(dead_code, reason = "used by checks/programs")]
    pub(crate) const WHOLE: Slicing = Slicing { frame: 1 << 39, wave: 1 << 39, quantum: 1 << 39 };

    /// The shortest slices that the module allows, and frames that end in the middle of a quantum.
    pub(crate) fn shortest(module: &Module) -> Slicing {
        let least = 2 * (module.code().gap().0 + 100);
        Slicing { frame: 37 * least + 11, wave: 5 * least + 3, quantum: least }
    }
}

/// A sink that keeps the output.
#[derive(Default)]
struct Collected {
    stdout: Vec<u8>,
    log: Vec<u8>,
}

impl Sink for Collected {
    fn output(&mut self, _: SessionId, bytes: &[u8]) {
        self.stdout.extend_from_slice(bytes);
    }

    fn log(&mut self, _: SessionId, bytes: &[u8]) {
        self.log.extend_from_slice(bytes);
    }
}

/// Validates and lowers a module.
pub(crate) fn load(bytes: &[u8]) -> Result<Arc<Module>, String> {
    Module::new(bytes, &wavelock_module::Limits::default())
        .map(Arc::new)
        .map_err(|error| format!("refused: {error}"))
}

/// Runs a case here and returns its result and the cycles charged.
pub(crate) fn run(
    case: &Case,
    bytes: &[u8],
    module: &Arc<Module>,
    stdin: &[u8],
    slicing: Slicing,
) -> Result<(Shown, Cycles), String> {
    let mut spec = MachineSpec::new();
    spec.frame_cycles = Cycles(slicing.frame);
    spec.span = Span::Cycles(Cycles(slicing.wave));
    spec.policy = Policy::RoundRobin { quantum: Cycles(slicing.quantum) };
    spec.max_frames =
        Some(MOST_FRAMES.saturating_mul((Slicing::USUAL.frame / slicing.frame).max(1) + 1));
    spec.limits.memory_pages = MEMORY_PAGES;
    spec.limits.stack_bytes = STACK_BYTES;
    // Allow the whole output in one frame.
    spec.limits.output_bytes = 1 << 30;
    let added = spec.add_module(Arc::clone(module), bytes);
    let session = spec.add_session("program", added);
    spec.sessions[0].args.clone_from(&case.args);
    spec.sessions[0].env.clone_from(&case.env);
    let input =
        InputEvent { frame: Frame(0), recipient: Recipient::Session(session), bytes: stdin.into() };
    let inputs = if stdin.is_empty() { Vec::new() } else { vec![input] };
    let mut world =
        World::load(spec, inputs, false).map_err(|error| format!("refused: {error}"))?.world;
    let mut sink = Collected::default();
    let outcome =
        world.run(&mut sink).map_err(|failure| format!("the host failed: {failure:?}"))?;
    let summary = world.summary();
    let program = &summary.sessions[0];
    if outcome != RunOutcome::Finished || program.outcome != SessionOutcome::Finished {
        let log = String::from_utf8_lossy(&sink.log).into_owned();
        return Err(format!(
            "ended with {outcome:?}, {:?}, {:?}; its log: {log}",
            program.outcome, program.faults
        ));
    }
    Ok((Shown { stdout: sink.stdout, exit: program.exit }, program.cycles))
}
