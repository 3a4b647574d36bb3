//! Instruction counts by callgrind, which do not depend on the load of the machine.
//!
//! A count is the difference of two sizes of the same kernel, so that loading and compiling cancel
//! out.

use crate::engines::Engine;
use crate::kernels::Kernel;
use std::process::Command;

/// The larger size of each kernel (the smaller is the index's `check_n`): some ten million
/// instructions.
const SIZES: &[(&str, i32)] = &[
    ("fib", 23),
    ("lcg", 200_000),
    ("sieve", 150_000),
    ("sort", 12_000),
    ("sha256", 250),
    ("matmul", 40),
    ("copy_bulk", 200),
    ("copy_loop", 30),
    ("indirect", 100_000),
    ("vm", 1_500),
];

/// Instructions that an engine needs for a kernel from its small to its larger size.
pub fn instructions(engine: Engine, kernel: &Kernel) -> Result<u64, String> {
    let size = SIZES
        .iter()
        .find(|(name, _)| *name == kernel.name)
        .map_or(kernel.bench.0, |&(_, size)| size);
    Ok(count(engine, kernel, size)?.saturating_sub(count(engine, kernel, kernel.check.0)?))
}

fn count(engine: Engine, kernel: &Kernel, n: i32) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--one", engine.name(), &kernel.name, &n.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!(
            "{} {}({n}) under valgrind: {}\n{text}",
            engine.name(),
            kernel.name,
            output.status
        ));
    }
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .ok_or_else(|| format!("callgrind says: {text}"))?;
    collected.trim().parse().map_err(|error| format!("callgrind's count {collected}: {error}"))
}
