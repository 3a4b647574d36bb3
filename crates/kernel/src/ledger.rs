//! The ledger as its readers see it: what one coroutine consumed, what a lane spent per operation,
//! and the conservation row of a frame.
//!
//! Contract: these are copies. The only writer of runtime is `Lane::stop`; aggregates are sums made
//! by the reader, and nothing is ever enforced against an aggregate.

use crate::types::BlockReason;
use wavelock_abi::{Cycles, Frame, SchedulerOperation};

/// What one coroutine has consumed. Counts of 32 bits stop at their largest value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Cycles charged to it.
    pub runtime: Cycles,
    /// Lane cycles it was ready and not picked, summed. Time held is not waiting.
    pub wait_total: Cycles,
    /// The longest such wait.
    pub wait_longest: Cycles,
    /// Picks that switched the lane to it from another coroutine.
    pub switches: u64,
    /// Times it was stopped at a safepoint and sent back to the queue.
    pub preemptions: u32,
    /// Times it waited, by reason.
    pub blocks: [u32; BlockReason::COUNT],
    /// Times it slept.
    pub sleeps: u32,
    /// Times it moved to another lane.
    pub migrations: u32,
    /// How many of those were steals.
    pub steals: u32,
}

/// What a lane's clock is made of. `charged + overhead + idle` is the clock, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneTotals {
    /// Cycles charged to coroutines.
    pub charged: Cycles,
    /// Cycles of the scheduler's own operations, by [`SchedulerOperation`] in table order.
    pub overhead: [Cycles; SchedulerOperation::ALL.len()],
    /// Cycles in which nothing ran.
    pub idle: Cycles,
}

impl LaneTotals {
    /// All overhead.
    #[must_use]
    pub fn overhead_total(&self) -> Cycles {
        self.overhead.iter().fold(Cycles::ZERO, |sum, &cycles| sum + cycles)
    }

    /// All of it: the lane's clock.
    #[must_use]
    pub fn total(&self) -> Cycles {
        self.charged + self.overhead_total() + self.idle
    }
}

/// One frame of one lane: `charged + overhead + idle = frame_cycles + overrun_out - overrun_in`
/// (semantics 20).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRow {
    /// The frame.
    pub frame: Frame,
    /// Cycles charged to coroutines.
    pub charged: Cycles,
    /// Cycles of scheduler operations.
    pub overhead: Cycles,
    /// Cycles in which nothing ran.
    pub idle: Cycles,
    /// Cycles the frame before ran over the grid.
    pub overrun_in: Cycles,
    /// Cycles this frame ran over the grid.
    pub overrun_out: Cycles,
}

impl FrameRow {
    /// Whether the row adds up for frames of this length.
    #[must_use]
    pub fn is_conserved(&self, frame_cycles: Cycles) -> bool {
        self.charged + self.overhead + self.idle + self.overrun_in
            == frame_cycles + self.overrun_out
    }
}
