//! Runs real programs at every optimisation level: on our machine in slices of three lengths, on
//! wasmi and on wasmtime; prints one line per case and build.
//!
//! Modules that are not in the repository are built first, by `guests/programs/build`, and cached
//! in a directory. Each engine must produce the output and exit code of the index; all slicings
//! must be charged the same cycles. Exit 0: all passed; 1: a difference or a failed build; 2:
//! usage.

mod peers;
#[path = "../../../crates/cli/tests/program_case/mod.rs"]
mod program_case;
mod wasi;

use program_case::{Case, Outputs, Shown, Slicing, corpus, load, run};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use wavelock_abi::Cycles;

const USAGE: &str = "usage: wavelock-check-programs [--quick] [--program NAME] [--modules FOLDER]
  --quick            programs that are built in seconds, and what is committed of the others: for CI
  --program NAME     one program and those whose output it reads
  --modules FOLDER   where modules are built and kept; target/programs of this workspace otherwise";

/// Programs of `--quick`: small, permissively licensed, and together built with every compiler
/// option.
const QUICK: [&str; 6] = ["lua", "zlib", "bzip2", "picosat", "awk", "bc"];

struct Options {
    quick: bool,
    program: Option<String>,
    modules: PathBuf,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/programs");
    let mut options = Options { quick: false, program: None, modules };
    while let Some(flag) = arguments.next() {
        match flag.as_str() {
            "--quick" => options.quick = true,
            "--program" => options.program = Some(arguments.next()?),
            "--modules" => options.modules = arguments.next()?.into(),
            _ => return None,
        }
    }
    Some(options)
}

impl Options {
    fn builds_from_source(&self, case: &Case) -> bool {
        match &self.program {
            Some(program) => case.program == *program,
            None => !self.quick || QUICK.contains(&case.program.as_str()),
        }
    }

    /// The builds of a case to run: all of them, or those that are committed.
    fn builds<'a>(&self, case: &'a Case) -> &'a [String] {
        if self.builds_from_source(case) { &case.builds } else { &case.committed }
    }
}

/// Builds the modules that are not in the directory.
fn build(options: &Options, cases: &[Case]) -> Result<(), String> {
    let script = corpus().join("../guests/programs/build");
    let mut programs: Vec<&str> = cases
        .iter()
        .filter(|case| options.builds_from_source(case))
        .map(|case| case.program.as_str())
        .collect();
    programs.sort_unstable();
    programs.dedup();
    let status = Command::new("sh").arg(&script).arg(&options.modules).args(&programs).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", script.display())),
        Err(error) => Err(format!("{}: {error}", script.display())),
    }
}

/// The bytes of a build: the committed module, or else the one built here.
fn module(options: &Options, case: &Case, build: &str) -> Result<Vec<u8>, String> {
    let name = format!("{}-{build}.wasm", case.program);
    let committed = corpus().join("programs").join(&name);
    let path = if committed.exists() { committed } else { options.modules.join(&name) };
    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs one build of one case on every engine; returns its output and cycles.
fn check(
    case: &Case,
    bytes: &[u8],
    outputs: &Outputs,
    compiler: &wasmtime::Engine,
) -> Result<(Shown, Cycles), String> {
    let stdin = case.stdin(outputs);
    let judged = |engine: &str, shown: Result<Shown, String>| -> Result<Shown, String> {
        let shown = shown.map_err(|error| format!("{engine}: {error}"))?;
        case.judge(&shown, outputs).map_err(|error| format!("{engine}: {error}"))?;
        Ok(shown)
    };
    judged("wasmtime", peers::wasmtime(compiler, case, bytes, &stdin))?;
    judged("wasmi", peers::wasmi(case, bytes, &stdin))?;
    let module = load(bytes).map_err(|error| format!("ours: {error}"))?;
    let (shown, cycles) = run(case, bytes, &module, &stdin, Slicing::USUAL)
        .map_err(|error| format!("ours: {error}"))?;
    let shown = judged("ours", Ok(shown))?;
    for (name, slicing) in
        [("one slice", Slicing::WHOLE), ("the shortest slices", Slicing::shortest(&module))]
    {
        let (again, charged) = run(case, bytes, &module, &stdin, slicing)
            .map_err(|error| format!("ours in {name}: {error}"))?;
        judged(&format!("ours in {name}"), Ok(again))?;
        if charged != cycles {
            return Err(format!(
                "ours in {name}: charged {} cycles instead of {}",
                charged.0, cycles.0
            ));
        }
    }
    Ok((shown, cycles))
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let cases = Case::all();
    if let Err(error) = build(&options, &cases) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let (compiler, start) = (peers::compiler(), Instant::now());
    let (mut outputs, mut held, mut failed) = (Outputs::new(), 0, 0);
    for case in &cases {
        for build in options.builds(case) {
            let begun = Instant::now();
            let result = module(&options, case, build)
                .and_then(|bytes| check(case, &bytes, &outputs, &compiler));
            let (name, seconds) =
                (format!("{}-{build}", case.program), begun.elapsed().as_secs_f64());
            match result {
                Ok((shown, Cycles(cycles))) => {
                    held += 1;
                    let bytes = shown.stdout.len();
                    println!(
                        "ok     {:12} {name:16} {cycles:>13} cycles {bytes:>7} bytes out, exit {:>2}, {seconds:5.1} s",
                        case.name, shown.exit
                    );
                    outputs.insert(case.name.clone(), shown.stdout);
                }
                Err(error) => {
                    failed += 1;
                    println!("FAILED {:12} {name:16} {error}", case.name);
                }
            }
        }
    }
    println!("{held} held, {failed} failed, {:.0} s", start.elapsed().as_secs_f64());
    if failed == 0 && held > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
