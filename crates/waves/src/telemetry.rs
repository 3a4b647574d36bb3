//! What a run on threads looked like from outside: counts that depend on workers, and so are never
//! part of a trace (semantics 19).
//!
//! Every wave is counted once in `certified`, `refused` or `unclaimed`, and once in `parallel`,
//! `one_group`, `short` or `refused`: the second says why it was not spread over threads. What the
//! model says about waves (widths, the heaviest groups) is in `system`.

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
    /// The last refusal, in words.
    pub last_refusal: Option<String>,
    /// Waves that ran on more than one thread.
    pub parallel: u64,
    /// Waves whose inboxes were settled on more than one thread too.
    pub settled: u64,
    /// Waves that ran on one thread because one group had work, or because there is one thread.
    pub one_group: u64,
    /// Waves that ran on one thread because the others would have had too little to do.
    pub short: u64,
    /// Accepted waves of more than one group with work.
    pub multi_lane: u64,
    /// The most groups with work in a wave.
    pub widest: u64,
    /// Waves in which the coordinator was done first and waited for another thread.
    pub waited: u64,
    /// Groups that another thread than theirs ran or settled, because theirs was late.
    pub taken_over: u64,
    /// Sleeping workers that were woken: at most one wake is under way per worker.
    pub unparks: u64,
    /// Where the coordinator's time went, when it was measured.
    pub time: Time,
}

/// Nanoseconds of the coordinator, if [`crate::Waves::measure`] asked for them; otherwise zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// Frames and waves begun, frames ended.
    pub open: u64,
    /// Certificates made and checked, groups assigned to threads.
    pub certify: u64,
    /// Waves run: hand-over, own share, waiting for others.
    pub run: u64,
    /// Waves closed: the commit.
    pub close: u64,
}

impl Time {
    /// All of it.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.open + self.certify + self.run + self.close
    }

    /// What only the coordinator does: everything but running.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.open + self.certify + self.close
    }
}

impl Telemetry {
    /// The refusals that happened, by name.
    pub fn refusals_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::NAMES.into_iter().zip(self.refusals).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn note_refusal(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.refusals[refusal.code()] += 1;
        self.last_refusal = Some(refusal.to_string());
    }
}
