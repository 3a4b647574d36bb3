//! What a run on threads looked like from outside: counts that depend on workers, and so are never part of a trace (semantics 19).

use wavelock_certify::Refusal;

/// Buckets of the width histogram: waves of 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64 and more groups.
pub const WIDTH_BUCKETS: usize = 8;

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
    /// Refusals by code, in the order of [`Refusal::NAMES`].
    pub refusals: [u64; Refusal::KINDS],
    /// The last refusal, in words.
    pub last_refusal: Option<String>,
    /// Accepted waves that ran on more than one thread.
    pub parallel: u64,
    /// Accepted waves that ran on one thread because the others had too little to do.
    pub inline: u64,
    /// Accepted waves of more than one lane with work.
    pub multi_lane: u64,
    /// Waves by number of groups with work.
    pub widths: [u64; WIDTH_BUCKETS],
    /// Sleeping workers that were woken.
    pub unparks: u64,
    /// Waves that a group left its certified footprint in and finished sequentially.
    pub footprint_stops: u64,
}

impl Telemetry {
    pub(crate) fn note_width(&mut self, groups: usize) {
        let bucket = groups.max(1).next_power_of_two().trailing_zeros() as usize;
        self.widths[bucket.min(WIDTH_BUCKETS - 1)] += 1;
    }

    pub(crate) fn note_refusal(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.refusals[refusal.code()] += 1;
        self.last_refusal = Some(refusal.to_string());
    }
}
