//! Counts of a run on threads. They depend on workers, so they are never part of a trace (semantics
//! 19).
//!
//! Every wave is counted once in `certified`, `refused` or `unclaimed`, and once in `parallel`,
//! `one_group`, `short` or `refused`: why it did or did not run on threads. Elsewhere: the model's
//! own counts of waves (`system`).

use wavelock_certify::Refusal;

/// Counts of one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Telemetry {
    /// Threads that run waves.
    pub workers: u64,
    /// Waves.
    pub waves: u64,
    /// Waves whose certificate was accepted.
    pub certified: u64,
    /// Waves whose certificate was refused; they ran one step at a time.
    pub refused: u64,
    /// Waves that ran on one thread and so needed no certificate.
    pub unclaimed: u64,
    /// Refusals by code, in the order of [`Refusal::NAMES`].
    pub refusals: [u64; Refusal::KINDS],
    /// The text of the last refusal.
    pub last_refusal: Option<String>,
    /// Waves that ran on more than one thread.
    pub parallel: u64,
    /// Of those, waves whose effects were settled on more than one thread too.
    pub settled: u64,
    /// Waves on one thread because only one group had work, or only one thread exists.
    pub one_group: u64,
    /// Waves on one thread because the others would have had less than the threshold, or were used
    /// by another driver.
    pub short: u64,
    /// Accepted waves of more than one group with work.
    pub multi_lane: u64,
    /// The maximum number of groups with work in a wave.
    pub widest: u64,
    /// Waves in which the coordinator waited for another thread.
    pub waited: u64,
    /// Groups that another thread than the assigned one ran or settled.
    pub taken_over: u64,
    /// Parked workers that were unparked.
    pub unparks: u64,
    /// The coordinator's time by phase, if it is measured.
    pub time: Time,
}

/// Nanoseconds of the coordinator by phase; zero without [`crate::Waves::measure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// Starting frames and waves, ending frames.
    pub open: u64,
    /// Making and checking certificates, assigning groups to threads.
    pub certify: u64,
    /// Running waves: handover, own share, waiting for others.
    pub run: u64,
    /// Closing waves: the commit.
    pub close: u64,
}

impl Time {
    /// The sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.open + self.certify + self.run + self.close
    }

    /// The serial part: everything but running.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.open + self.certify + self.close
    }
}

impl Telemetry {
    /// Nonzero counts of refusals, by name.
    pub fn refusals_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::NAMES.into_iter().zip(self.refusals).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn note_refusal(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.refusals[refusal.code()] += 1;
        self.last_refusal = Some(refusal.to_string());
    }
}
