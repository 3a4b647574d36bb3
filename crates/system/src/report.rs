//! The summary of a run: plain numbers for the command line to print.

use crate::input::UnreadInput;
use crate::kill::{KillRecord, context_name};
use crate::moves::StuckMigrations;
use crate::session::{FaultRecord, SessionOutcome};
use crate::world::{RunOutcome, World};
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{Cycles as Amount, SchedulerOperation, SessionId};
use wavelock_kernel::{Counters, WakeSource};
use wavelock_trace::Digest;

/// How the lanes' cycles were spent. `charged + overhead + idle` is the sum of the lanes' clocks,
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
    /// Host operations performed.
    pub host_calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Log bytes that exceeded the limit and were dropped.
    pub log_dropped: u64,
    /// Its first faults.
    pub faults: Vec<FaultRecord>,
    /// Coroutines that a budget ended.
    pub killed: u64,
    /// The first of them, with the names of their contexts.
    pub kills: Vec<(KillRecord, Option<String>)>,
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

/// One lane of a run: its part of the ledger, and its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneSummary {
    /// Charged to coroutines.
    pub charged: Amount,
    /// Scheduler operations.
    pub overhead: Amount,
    /// Nothing to run.
    pub idle: Amount,
    /// What it counted.
    pub counters: Counters,
    /// Wakes, by [`WakeSource`] in table order.
    pub wakes: [u64; WakeSource::COUNT],
}

impl World {
    /// Turns the measured counters of every lane on. They are no state: a restored world does not
    /// measure.
    pub fn measure(&mut self) {
        self.lanes_mut().for_each(|lane| lane.kernel.set_measured(true));
    }

    /// Every lane, in order.
    #[must_use]
    pub fn lane_summaries(&self) -> Vec<LaneSummary> {
        let lanes = (0..self.spec.lanes).map(|lane| &self.lane_ref(lane).kernel);
        lanes
            .map(|kernel| {
                let totals = kernel.totals();
                LaneSummary {
                    charged: totals.charged,
                    overhead: totals.overhead.iter().fold(Amount(0), |sum, &part| sum + part),
                    idle: totals.idle,
                    counters: kernel.counters(),
                    wakes: *kernel.wakes(),
                }
            })
            .collect()
    }

    /// Steals that took nothing because of a coroutine that may not move, if there were any. No
    /// state: a restored world counts from there.
    #[must_use]
    pub const fn stuck_migrations(&self) -> Option<StuckMigrations> {
        self.stuck
    }

    /// The totals of the run so far, and of each session.
    #[must_use]
    pub fn summary(&self) -> RunSummary {
        let mut cycles = Cycles::default();
        for lane in self.lanes() {
            let totals = lane.kernel.totals();
            cycles.charged += totals.charged.0;
            cycles.idle += totals.idle.0;
            for &operation in SchedulerOperation::ALL {
                cycles.overhead[operation as usize] += totals.overhead[operation as usize].0;
            }
        }
        let sessions = self.session_ids().map(|session| self.session_summary(session)).collect();
        RunSummary {
            outcome: self.outcome(),
            digest: self.digest(),
            frames: self.frame().0 + 1,
            steps: self.steps(),
            waves: self.wave(),
            cycles,
            peak: self.progress.peak,
            sessions,
        }
    }

    /// By session: the input events it has not read so far.
    #[must_use]
    pub fn unread_input(&self) -> Vec<UnreadInput> {
        self.session_ids().map(|session| self.session_ref(session).input.unread()).collect()
    }

    fn session_summary(&self, id: SessionId) -> SessionSummary {
        let deadlocked = self.deadlock.is_some();
        let state = self.session_ref(id);
        let outcome = state.ended.unwrap_or_else(|| match state.verdict() {
            found @ (SessionOutcome::Faulted | SessionOutcome::Killed) => found,
            _ if deadlocked => SessionOutcome::Deadlock,
            _ => SessionOutcome::Running,
        });
        let kills =
            state.kills.records.iter().map(|kill| {
                (kill.clone(), context_name(state.capabilities.as_deref(), kill.handle))
            });
        SessionSummary {
            name: state.name.clone(),
            outcome,
            exit: state.exit,
            cycles: Amount(state.cycles),
            digest: state.digest(),
            spawned: state.tasks.published,
            finished: state.tasks.finished,
            faulted: state.tasks.faulted,
            peak: state.tasks.peak,
            host_calls: state.host_calls,
            messages: state.messages,
            log_dropped: state.log_dropped,
            faults: state.faults.clone(),
            killed: state.kills.count,
            kills: kills.collect(),
        }
    }
}
