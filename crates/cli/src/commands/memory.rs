//! The host's own memory, watched while guests run.
//!
//! Every limit of a machine is per session, coroutine or channel, so what all of them may hold
//! together can be more than a host has: a guest that fills channel after channel breaks no rule. A
//! run that comes to hold more than the host can give ends as a failure of the host (exit 1)
//! between two waves, which no guest sees and no trace contains, instead of being killed by the
//! system or taking it down.
//!
//! Where the system does not say what a process holds (outside Linux) nothing is watched.

use crate::exit::Exit;
use crate::failure::Failure;

/// Waves between two looks: in as many a lane of the default width fills a hundred megabytes at
/// most, and a look takes ten microseconds or so.
const EVERY: u32 = 128;

/// The part of the memory that was available at the start which a run may take, in percent.
const PART: u64 = 90;

/// How much this process may hold.
pub(super) struct MemoryGuard {
    limit: Option<u64>,
    countdown: u32,
}

impl MemoryGuard {
    /// With a limit in bytes, or what the host can give now.
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.or_else(affordable), countdown: 0 }
    }

    /// After each wave: fails when the process holds more than it may.
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
                    "out of host memory: this run holds {} MiB and may hold {} MiB (--host-memory); lower [limits] bound what one session, coroutine or \
                     channel can hold",
                    held >> 20,
                    limit >> 20
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes of memory this process holds.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmRSS:")
}

/// The most bytes of memory that this process has held.
pub(super) fn peak() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmHWM:")
}

/// Bytes this process may come to hold, by what is available now.
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
    fn lines_of_the_system_are_read_and_nonsense_is_nothing() {
        assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2 << 20));
        for nonsense in ["", "VmRSS:", "VmRSS: many kB", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!(kibibytes(nonsense, "VmRSS:"), None, "{nonsense}");
        }
    }
}
