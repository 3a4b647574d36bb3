//! When frames are due. Outside every digest: a machine never sees it.

use std::time::{Duration, Instant};

/// Says how many frames are due at a steady rate. Frames that were missed are caught up with, up to
/// a limit; the rest is forgiven.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wavelock::Pacer;
///
/// let (mut pacer, now) = (Pacer::hz(60.0), Instant::now());
/// assert_eq!(pacer.due(now, 4), 1, "the first frame is due at once");
/// assert_eq!(pacer.due(now + Duration::from_millis(35), 4), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    period: Duration,
    next: Option<Instant>,
    forgiven: u64,
}

impl Pacer {
    /// A pacer of this many frames a second. Rates that are not positive numbers, or above a
    /// million, are taken for the nearest that is allowed (one frame in about 11 days to a
    /// million a second).
    #[must_use]
    pub fn hz(rate: f64) -> Self {
        let rate = if rate.is_nan() { 1.0 } else { rate.clamp(1e-6, 1e6) };
        Self { period: Duration::from_secs_f64(1.0 / rate), next: None, forgiven: 0 }
    }

    /// The number of frames due at `now`, at most `most`; what is due beyond that is forgiven. The
    /// first is due at the first call.
    pub fn due(&mut self, now: Instant, most: u32) -> u32 {
        let next = *self.next.get_or_insert(now);
        let Some(late) = now.checked_duration_since(next) else { return 0 };
        let due =
            1 + (late.as_nanos() / self.period.as_nanos().max(1)).min(u128::from(u32::MAX - 1));
        let due = due as u32;
        // After a long pause the next frame is due one period from now, not in the past.
        self.next = Some(match due > most {
            true => now + self.period,
            false => next + self.period * due,
        });
        self.forgiven += u64::from(due.saturating_sub(most));
        due.min(most)
    }

    /// When the next frame is due; `None` before the first call of [`Pacer::due`].
    #[must_use]
    pub const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Frames so far that were due and forgiven.
    #[must_use]
    pub const fn forgiven(&self) -> u64 {
        self.forgiven
    }

    /// Sleeps until a frame is due and returns the time then. Returns at once before the first call
    /// of [`Pacer::due`].
    pub fn wait(&mut self) -> Instant {
        let now = Instant::now();
        match self.next {
            Some(next) if next > now => {
                std::thread::sleep(next - now);
                Instant::now()
            }
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_at_the_rate_and_missed_ones_up_to_the_limit() {
        let (mut pacer, start) = (Pacer::hz(100.0), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(pacer.due(at(0), 4), 1, "the first");
        assert_eq!(pacer.due(at(5), 4), 0, "too early");
        assert_eq!(pacer.due(at(35), 4), 3, "two were missed");
        assert_eq!(pacer.due(at(35), 4), 0);
        assert_eq!(pacer.forgiven(), 0);
        assert_eq!(pacer.due(at(1_000), 4), 4, "the rest is forgiven");
        assert_eq!((pacer.forgiven(), pacer.next()), (93, Some(at(1_010))));
        assert_eq!(pacer.due(at(1_005), 4), 0);
        assert_eq!(pacer.due(at(1_010), 4), 1);
    }

    #[test]
    fn rates_that_are_none_are_taken_for_the_nearest() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let mut pacer = Pacer::hz(rate);
            assert_eq!(pacer.due(Instant::now(), 1), 1, "{rate}");
        }
    }
}
