//! The `wavelock` binary: everything is in the library, so that tests and other tools can use it,
//! except the allocator, which only a program can choose.
#![deny(unsafe_code)]

mod allocator;

#[global_allocator]
static ALLOCATOR: allocator::LineAligned = allocator::LineAligned;

fn main() -> std::process::ExitCode {
    wavelock_cli::main()
}
