//! Limits the memory of this process while guests run.
//!
//! Every limit of a machine is per session, coroutine or channel, so together they may exceed the
//! host's memory: a guest that fills channel after channel breaks no rule. A run that exceeds the
//! limit ends with a host error (exit 1) between two waves, which no guest observes and no trace
//! contains, instead of being killed by the kernel.
//!
//! Outside Linux, where the resident size is not available, there is no limit.

use crate::exit::Exit;
use crate::failure::Failure;

/// Waves between two samples. In this many waves a lane of the default width fills at most a
/// hundred megabytes; a sample takes about ten microseconds.
const EVERY: u32 = 128;

/// The default limit, in percent of the memory available at the start.
const PART: u64 = 90;

/// The memory limit of this process.
pub(super) struct MemoryGuard {
    limit: Option<u64>,
    countdown: u32,
}

impl MemoryGuard {
    /// With a limit in bytes, or the default for the memory available now.
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.or_else(affordable), countdown: 0 }
    }

    /// Called after each wave: fails if the process exceeds its limit.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        let Some(limit) = self.limit else { return Ok(()) };
        if self.countdown > 0 {
            self.countdown -= 1;
            return Ok(());
        }
        self.countdown = EVERY;
        match resident() {
            Some(held) if held > limit => Err(Failure::new(
                Exit::Host,
                format!(
                    "out of host memory: this process uses {} MiB and its limit is {} MiB (--host-memory); lower [limits] reduce what one session, coroutine or \
                     channel can hold",
                    held >> 20,
                    limit >> 20
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmRSS:")
}

/// Peak resident memory of this process, in bytes.
pub(super) fn peak() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmHWM:")
}

/// The default limit in bytes, from the memory available now.
fn affordable() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available = kibibytes(&text, "MemAvailable:")?;
    // A container may have less than the host.
    let contained = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let most = contained.map_or(available, |contained: u64| contained.min(available));
    Some(most / 100 * PART)
}

/// The value of a line `Name:   123 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_lines_are_parsed_and_malformed_ones_are_none() {
        assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2 << 20));
        for nonsense in ["", "VmRSS:", "VmRSS: many kB", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!(kibibytes(nonsense, "VmRSS:"), None, "{nonsense}");
        }
    }
}
