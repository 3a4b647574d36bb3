//! The `wavelock` binary: everything but the global allocator is in the library, so that tests and
//! other tools can use it.
#![deny(unsafe_code)]

mod allocator;

#[global_allocator]
static ALLOCATOR: allocator::LineAligned = allocator::LineAligned;

fn main() -> std::process::ExitCode {
    wavelock_cli::main()
}
