//! The `wavelock` binary.
fn main() {}
