//! What a run says about itself when it is over: plain numbers for the command line to print.

use crate::session::{FaultRecord, SessionOutcome};
use crate::world::RunOutcome;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{Cycles as Amount, SchedulerOperation};
use wavelock_trace::Digest;

/// Where the lanes' cycles went. `charged + overhead + idle` is the sum of the lanes' clocks,
/// exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cycles {
    /// Charged to coroutines.
    pub charged: u64,
    /// By scheduler operation, in table order.
    pub overhead: [u64; SchedulerOperation::ALL.len()],
    /// Nothing to run.
    pub idle: u64,
}

impl Cycles {
    /// All overhead.
    #[must_use]
    pub fn overhead_total(&self) -> u64 {
        self.overhead.iter().sum()
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.charged + self.overhead_total() + self.idle
    }
}

/// One session of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSummary {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: SessionOutcome,
    /// Its exit code.
    pub exit: i32,
    /// Cycles charged to its coroutines.
    pub cycles: Amount,
    /// The digest of its observables.
    pub digest: Digest,
    /// Coroutines it had in all, the first included.
    pub spawned: u64,
    /// Coroutines that finished.
    pub finished: u64,
    /// Coroutines that faulted.
    pub faulted: u64,
    /// Most coroutines at once.
    pub peak: u32,
    /// Host operations asked for.
    pub host_calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Log bytes that exceeded the limit and were dropped.
    pub log_dropped: u64,
    /// Its first faults.
    pub faults: Vec<FaultRecord>,
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSummary {
    /// How it ended, if it has.
    pub outcome: Option<RunOutcome>,
    /// The run digest.
    pub digest: Digest,
    /// Frames, those jumped over included.
    pub frames: u64,
    /// Steps.
    pub steps: u64,
    /// Waves.
    pub waves: u64,
    /// Cycles of all lanes.
    pub cycles: Cycles,
    /// Most coroutines at once, lane by lane within a wave.
    pub peak: u64,
    /// The sessions, in manifest order.
    pub sessions: Vec<SessionSummary>,
}

impl RunSummary {
    /// Coroutines in all: spawned, finished, faulted.
    #[must_use]
    pub fn coroutines(&self) -> (u64, u64, u64) {
        self.sessions.iter().fold((0, 0, 0), |(spawned, finished, faulted), session| {
            (spawned + session.spawned, finished + session.finished, faulted + session.faulted)
        })
    }
}
