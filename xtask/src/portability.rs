//! `cargo xtask portability`: compares digests across targets and lists those that differ.
//!
//! The corpus is the package `wavelock-portable`. The native release build is the reference. The
//! native development build (with the checked variant of the machine's unsafe code) and WebAssembly
//! run all of it; the emulated processors, one of them big-endian, run a smaller part within a time
//! limit.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::compare::compare;
use crate::process::{answer_within, run as run_command};
use crate::toolchain::{Missing, Route, Runner, TARGETS, Target, Toolchain, cargo};

/// The script that installs what is missing.
const SETUP: &str = ".ci/setup";

/// The package of the corpus.
const PACKAGE: &str = "wavelock-portable";

/// Time limit of the corpus on one target.
const LIMIT: Duration = Duration::from_secs(240);
const EMULATED_LIMIT: Duration = Duration::from_secs(90);

/// The arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    route: Option<Route>,
    targets: Vec<&'static str>,
}

impl Options {
    /// Parses the arguments after `portability`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let names = TARGETS.map(|target| target.name);
        let mut options = Self { route: None, targets: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if *argument == "--toolchain" {
                options.route = match rest.next() {
                    Some(&"rustup") => Some(Route::Rustup),
                    Some(&"source") => Some(Route::Source),
                    other => {
                        return Err(format!(
                            "--toolchain takes rustup or source, not {}",
                            other.unwrap_or(&"nothing")
                        ));
                    }
                };
            } else if let Some(name) = names.into_iter().find(|name| name == argument) {
                options.targets.push(name);
            } else {
                return Err(format!("`{argument}` is not a target; targets: {}", names.join(", ")));
            }
        }
        if options.targets.is_empty() {
            options.targets = names.to_vec();
        }
        Ok(options)
    }
}

/// Builds, runs and compares; prints a line per target.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let asked = || TARGETS.into_iter().filter(|target| options.targets.contains(&target.name));
    let found: Vec<(Target, Result<Toolchain, Missing>)> =
        asked().map(|target| (target, Toolchain::find(target, options.route))).collect();
    let missing: Vec<String> = found
        .iter()
        .filter_map(|(target, found)| {
            Some(format!("{}: {}", target.name, found.as_ref().err()?.0.join(", ")))
        })
        .collect();
    if !missing.is_empty() {
        return Err(format!("missing tools; {SETUP} installs them:\n  {}", missing.join("\n  ")));
    }

    let folder = target_folder()?.join("portability");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let yardstick = native(&folder, "release", &[])?;
    let mut failures = Vec::new();
    let mut judge =
        |name: &str, by: &str, report: Result<Report, String>| match report.and_then(|report| {
            let agreed = compare(&yardstick.text, &report.text)?;
            println!(
                "{name:<8} {agreed:>4} digests agree; built in {:>3} s, ran in {:>3} s  ({by})",
                report.build.as_secs(),
                report.run.as_secs()
            );
            Ok(())
        }) {
            Ok(()) => {}
            Err(error) => failures.push(format!("{name}: {error}")),
        };
    judge("native", "release build, the reference", Ok(yardstick.clone()));
    judge(
        "native",
        "development build, without unsafe code",
        native(&folder, "dev", &["--features", "checked"]),
    );
    for (target, toolchain) in &found {
        if let Ok(toolchain) = toolchain {
            judge(target.name, &toolchain.describe()?, foreign(*target, toolchain, &folder));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The report of a target, and the time it took.
#[derive(Clone, Debug)]
struct Report {
    text: String,
    build: Duration,
    run: Duration,
}

/// The corpus on this machine.
fn native(folder: &Path, profile: &str, features: &[&str]) -> Result<Report, String> {
    let start = Instant::now();
    let mut command = Command::new(cargo());
    run_command(
        command
            .args([
                "build",
                "--quiet",
                "--package",
                PACKAGE,
                "--bin",
                PACKAGE,
                "--profile",
                profile,
            ])
            .args(features),
    )?;
    let build = start.elapsed();
    let program =
        target_folder()?.join(if profile == "dev" { "debug" } else { profile }).join(PACKAGE);
    measured(
        Command::new(program).arg("full"),
        build,
        LIMIT,
        &folder.join(format!("native-{profile}.txt")),
    )
}

/// The corpus on a foreign target.
fn foreign(target: Target, toolchain: &Toolchain, folder: &Path) -> Result<Report, String> {
    let start = Instant::now();
    let mut build = toolchain.cargo(folder, PACKAGE)?;
    let built = toolchain.built(folder)?;
    let output = folder.join(format!("{}.txt", target.name));
    let mut runner = toolchain.runner();
    let limit = match target.runner {
        Runner::Node(script) => {
            build.args(["--lib", "--crate-type", "cdylib"]);
            runner
                .arg(corpus_folder().join(script))
                .arg(built.join(format!("{}.wasm", PACKAGE.replace('-', "_"))));
            LIMIT
        }
        Runner::Emulator(_) => {
            build.args(["--bin", PACKAGE]);
            runner.arg(built.join(PACKAGE)).arg("small");
            EMULATED_LIMIT
        }
    };
    run_command(&mut build)?;
    measured(&mut runner, start.elapsed(), limit, &output)
}

fn measured(
    command: &mut Command,
    build: Duration,
    limit: Duration,
    output: &Path,
) -> Result<Report, String> {
    let start = Instant::now();
    let text = answer_within(command, limit, output)?;
    Ok(Report { text, build, run: start.elapsed() })
}

/// The directory of the corpus.
fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("portable")
}

/// Cargo's target directory, which contains this program.
fn target_folder() -> Result<PathBuf, String> {
    let program = env::current_exe()
        .map_err(|error| format!("cannot find the path of this program: {error}"))?;
    program
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} is not in a target directory", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused_by_name() {
        assert_eq!(Options::parse(&[]).map(|options| options.targets.len()), Ok(TARGETS.len()));
        let some = Options::parse(&["s390x", "--toolchain", "source"]).expect("these are known");
        assert_eq!((some.targets, some.route), (vec!["s390x"], Some(Route::Source)));
        assert!(Options::parse(&["sparc"]).unwrap_err().contains("`sparc`"));
        assert!(Options::parse(&["--toolchain"]).unwrap_err().contains("nothing"));
    }
}
