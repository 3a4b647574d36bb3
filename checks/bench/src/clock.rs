//! CPU time of this thread, which other processes do not affect.

use rustix::time::{ClockId, clock_gettime};

/// A span of CPU time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Nanoseconds(pub u64);

/// Runs a closure; returns its result and the CPU time it took.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Nanoseconds) {
    let start = now();
    let answer = work();
    (answer, Nanoseconds(now() - start))
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
