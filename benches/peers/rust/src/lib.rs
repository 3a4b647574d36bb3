//! Common code of the Rust peers of the speed table: arguments and CPU clock.

/// The workload's name and its numbers, from the command line.
#[must_use]
pub fn workload() -> (String, Vec<usize>) {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    (name, arguments.filter_map(|number| number.parse().ok()).collect())
}

/// CPU time of this process in nanoseconds, which other processes do not affect.
#[must_use]
pub fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
