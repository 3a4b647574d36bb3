//! Runs each check target for a number of seeded iterations, without a fuzzer.
//!
//! `smoke [--target NAME] [--iterations N] [--first SEED] [--write FOLDER]`; by default 500
//! iterations of every target from seed 0. With `--write` the inputs are written to files, as a
//! corpus for a fuzzer, and nothing is run. A failure prints the target, the seed and the command
//! that reproduces it. Exit 0: all passed; 1: a law is broken or a file could not be written; 2:
//! usage.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use wavelock_check_targets::{TARGETS, Target};

const USAGE: &str = "usage: smoke [--target load|snapshot|state|trace|description|laws|differential] \
    [--iterations N] [--first SEED] [--write FOLDER]";

struct Options {
    targets: Vec<&'static Target>,
    iterations: u64,
    first: u64,
    write: Option<PathBuf>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options =
        Options { targets: TARGETS.iter().collect(), iterations: 500, first: 0, write: None };
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--target" => {
                options.targets = vec![TARGETS.iter().find(|target| target.name == value)?]
            }
            "--iterations" => options.iterations = value.parse().ok()?,
            "--first" => options.first = value.parse().ok()?,
            "--write" => options.write = Some(PathBuf::from(value)),
            _ => return None,
        }
    }
    Some(options)
}

/// Runs one target; returns the number of failed seeds.
fn run(target: &Target, options: &Options) -> u64 {
    let start = Instant::now();
    let mut failed = 0;
    for seed in options.first..options.first.saturating_add(options.iterations) {
        if catch_unwind(|| (target.run)(&(target.input)(seed))).is_err() {
            failed += 1;
            eprintln!(
                "{}: seed {seed} fails; again with: smoke --target {} --first {seed} --iterations 1",
                target.name, target.name
            );
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{:12} {} iterations from seed {}, {failed} failed, {seconds:.1} s",
        target.name, options.iterations, options.first
    );
    failed
}

/// Writes one target's inputs; returns the number that could not be written.
fn write(target: &Target, options: &Options, folder: &Path) -> u64 {
    let mut failed = u64::from(std::fs::create_dir_all(folder).is_err());
    for seed in options.first..options.first.saturating_add(options.iterations) {
        let file = folder.join(format!("{}-{seed}", target.name));
        if let Err(error) = std::fs::write(&file, (target.input)(seed)) {
            eprintln!("{}: {error}", file.display());
            failed += 1;
        }
    }
    failed
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let failed: u64 = match &options.write {
        Some(folder) => options.targets.iter().map(|target| write(target, &options, folder)).sum(),
        None => options.targets.iter().map(|target| run(target, &options)).sum(),
    };
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
