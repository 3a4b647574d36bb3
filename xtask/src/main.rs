//! `cargo xtask`: development tasks of this repository, one file each.
//!
//! Tools are found by name; for a missing one the error names the script that installs it.
#![forbid(unsafe_code)]

mod compare;
mod portability;
mod process;
mod toolchain;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask portability [--toolchain rustup|source] [TARGET...]

  portability   builds the deterministic crates for wasm32, aarch64 and big-endian s390x, runs a corpus there, and compares every
                digest with the native run. Without TARGET: all targets. --toolchain selects the target's standard library:
                rustup's component, or one built once from the library source of a compiler.
                Default: rustup's if it is installed.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.split_first() {
        Some((&"portability", rest)) => {
            portability::Options::parse(rest).map(|options| portability::run(&options))
        }
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(message)) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
