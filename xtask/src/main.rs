//! `cargo xtask`: one entry per habit of this repository. The work of each is in the file of its
//! name.
//!
//! Tools are found by name; a missing one is named together with the script that installs it.
#![forbid(unsafe_code)]

mod compare;
mod portability;
mod process;
mod toolchain;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask portability [--toolchain rustup|source] [TARGET...]

  portability   builds the deterministic crates for wasm32, aarch64 and big-endian s390x, runs a corpus there and compares every
                digest with the native run. Without TARGET all of them; --toolchain says where the target's standard library
                comes from: rustup's component, or a compiler with its library source, from which a sysroot is built once.
                Without it: rustup's where it is installed.";

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
