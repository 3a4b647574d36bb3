//! The `wavelock` binary: everything is in the library, so that tests and other tools can use it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    wavelock_cli::main()
}
