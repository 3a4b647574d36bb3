//! Compares one workload under every policy: cost, wait times and fairness.
//!
//! A *wait* is the time from when a coroutine became ready to when it ran, in cycles of its lane,
//! computed from the events of the run. The *fairness* of a policy is Jain's index over the
//! coroutines' shares, where a share is the fraction of its runnable time in which a coroutine ran.
//! 1 means equal shares; 1/n means that one of n coroutines got everything. All arithmetic is in
//! integers, so that two runs print the same.

use std::collections::BTreeMap;
use wavelock_abi::{Frame, SchedulerOperation, SessionId};
use wavelock_kernel::Policy;
use wavelock_system::{
    HostFailure, InputEvent, LoadError, MachineSpec, RunOutcome, SessionSummary, Sink, World,
};
use wavelock_trace::{Digest, EventError, StopCode};
use wavelock_view::{CoroutineSlot, Moment, Moments};

/// A histogram of wait times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    lengths: BTreeMap<u64, u64>,
    count: u64,
    total: u64,
}

impl Waits {
    fn add(&mut self, cycles: u64) {
        *self.lengths.entry(cycles).or_default() += 1;
        self.count += 1;
        self.total += cycles;
    }

    /// The number of waits.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean, rounded down; 0 if there were none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// The smallest length that `per_mille` of all waits do not exceed.
    #[must_use]
    pub fn percentile(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (&cycles, &count) in &self.lengths {
            seen += count;
            if seen >= wanted {
                return cycles;
            }
        }
        0
    }

    /// The longest.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.lengths.last_key_value().map_or(0, |(&cycles, _)| cycles)
    }
}

/// Why slices stopped, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stops {
    /// The coroutine yielded.
    pub yielded: u64,
    /// Its quantum was used up.
    pub preempted: u64,
    /// It blocked on a channel, a coroutine, input or another lane.
    pub blocked: u64,
    /// It went to sleep.
    pub slept: u64,
}

/// The results of one policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRow {
    /// Its name.
    pub policy: String,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The run digest.
    pub digest: Digest,
    /// Frames it took.
    pub frames: u64,
    /// Steps it took.
    pub steps: u64,
    /// Cycles charged to guests.
    pub charged: u64,
    /// Cycles of the scheduler.
    pub overhead: u64,
    /// Cycles in which nothing ran.
    pub idle: u64,
    /// Times the picked coroutine was not the previous one.
    pub switches: u64,
    /// From ready to running.
    pub waits: Waits,
    /// Jain's index over the coroutines' shares, per mille.
    pub fairness: u64,
    /// Why slices stopped.
    pub stops: Stops,
    /// Cycles charged to each session, in manifest order.
    pub sessions: Vec<SessionRow>,
}

impl PolicyRow {
    /// The cycles of all lanes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.charged + self.overhead + self.idle
    }
}

/// What a session got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// Its name.
    pub name: String,
    /// Cycles charged to its coroutines.
    pub cycles: u64,
}

/// Why a workload cannot be measured.
#[derive(Debug)]
pub enum CompareError {
    /// It does not load under a policy.
    Load(String, Box<LoadError>),
    /// The host failed.
    Host(HostFailure),
    /// The events of a run could not be decoded: our bug.
    Events(EventError),
}

impl std::fmt::Display for CompareError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Load(policy, error) => write!(f, "under `{policy}`: {error}"),
            Self::Host(error) => error.fmt(f),
            Self::Events(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompareError {}

/// Runs a machine under each policy, one after the other.
///
/// # Errors
/// See [`CompareError`].
pub fn compare(
    spec: &MachineSpec,
    inputs: &[InputEvent],
    policies: &[(String, Policy)],
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<PolicyRow>, CompareError> {
    let mut rows = Vec::new();
    for (done, (name, policy)) in policies.iter().enumerate() {
        progress(done);
        let spec = MachineSpec { policy: *policy, ..spec.clone() };
        let mut meter = Meter::new(&spec);
        let loaded = World::load(spec, inputs.to_vec(), true)
            .map_err(|error| CompareError::Load(name.clone(), Box::new(error)))?;
        let mut world = loaded.world;
        let outcome = world.run(&mut meter).map_err(CompareError::Host)?;
        if let Some(error) = meter.error {
            return Err(CompareError::Events(error));
        }
        let run = world.summary();
        let switch = wavelock_abi::SCHEDULER_COSTS_V1.of(SchedulerOperation::Switch).0;
        rows.push(PolicyRow {
            policy: name.clone(),
            outcome,
            digest: run.digest,
            frames: run.frames,
            steps: run.steps,
            charged: run.cycles.charged,
            overhead: run.cycles.overhead_total(),
            idle: run.cycles.idle,
            switches: run.cycles.overhead[SchedulerOperation::Switch as usize]
                .checked_div(switch)
                .unwrap_or(0),
            fairness: jain(
                meter
                    .shares
                    .values()
                    .filter(|(used, waited)| used + waited > 0)
                    .map(|&(used, waited)| share(used, waited)),
            ),
            waits: meter.waits,
            stops: meter.stops,
            sessions: run.sessions.into_iter().map(row).collect(),
        });
    }
    Ok(rows)
}

fn row(session: SessionSummary) -> SessionRow {
    SessionRow { name: session.name, cycles: session.cycles.0 }
}

/// The fraction of its runnable time in which a coroutine ran, in parts per million.
fn share(used: u64, waited: u64) -> u64 {
    (u128::from(used) * 1_000_000 / (u128::from(used) + u128::from(waited)).max(1)) as u64
}

/// Jain's fairness index, per mille: the square of the sum over n times the sum of squares.
fn jain(shares: impl Iterator<Item = u64>) -> u64 {
    let (mut count, mut sum, mut squares) = (0u128, 0u128, 0u128);
    for share in shares {
        count += 1;
        sum += u128::from(share);
        squares += u128::from(share) * u128::from(share);
    }
    if squares == 0 { 1_000 } else { (sum * sum * 1_000 / (count * squares)) as u64 }
}

/// A sink that collects waits, shares and stops.
struct Meter {
    moments: Moments,
    waits: Waits,
    stops: Stops,
    /// By coroutine: cycles it ran, cycles it was ready but did not run.
    shares: BTreeMap<CoroutineSlot, (u64, u64)>,
    error: Option<EventError>,
}

impl Meter {
    fn new(spec: &MachineSpec) -> Self {
        let mut moments = Moments::new(spec.lanes, spec.frame_cycles.0);
        moments.begin(spec.sessions.len() as u64);
        Self {
            moments,
            waits: Waits::default(),
            stops: Stops::default(),
            shares: BTreeMap::new(),
            error: None,
        }
    }
}

impl Sink for Meter {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        frame: Frame,
        _: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        let lanes: Vec<&[u8]> = lanes.collect();
        let Self { moments, waits, stops, shares, error } = self;
        let read = moments.frame(frame.0, boundary, &lanes, &mut |moment| {
            let Moment::Slice(slice) = moment else { return };
            let entry = shares.entry(slice.coroutine).or_default();
            entry.0 += slice.used;
            if let Some(waited) = slice.waited() {
                waits.add(waited);
                entry.1 += waited;
            }
            match slice.stop {
                StopCode::Yielded => stops.yielded += 1,
                StopCode::EndOfQuantum
                | StopCode::EndOfRefill
                | StopCode::EndOfCap
                | StopCode::Release => stops.preempted += 1,
                StopCode::Slept => stops.slept += 1,
                StopCode::WaitSend
                | StopCode::WaitReceive
                | StopCode::WaitSelect
                | StopCode::WaitJoin
                | StopCode::WaitInput
                | StopCode::WaitLane => stops.blocked += 1,
                _ => {}
            }
        });
        if let Err(found) = read {
            error.get_or_insert(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_jains_index_are_correct() {
        let mut waits = Waits::default();
        (1..=100).for_each(|cycles| waits.add(cycles));
        assert_eq!(
            (waits.percentile(500), waits.percentile(990), waits.longest(), waits.mean()),
            (50, 99, 100, 50)
        );
        assert_eq!(jain([7, 7, 7].into_iter()), 1_000);
        assert_eq!(jain([9, 0, 0].into_iter()), 333, "one of three gets everything");
        assert_eq!(Waits::default().percentile(990), 0);
    }
}
