//! The `wavelock` binary: everything is in the library, so that tests and other tools can use it, but for the allocator, which is a program's own to choose.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
mod pages;

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: pages::Pages = pages::Pages::new();

fn main() -> std::process::ExitCode {
    wavelock_cli::main()
}
