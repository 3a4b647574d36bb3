//! Runs one machine sequentially and on workers, and compares the runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wavelock_abi::SessionId;
use wavelock_generate::Case;
use wavelock_system::{RunSummary, Sink, World};
use wavelock_waves::{EnvelopeDiff, PARALLEL_THRESHOLD_CYCLES, RunView, Waves};

/// The result of a run: everything that must not depend on workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Digests, outcomes, steps, cycles.
    pub summary: RunSummary,
    /// The output of the machine, in order.
    pub output: Vec<(SessionId, Vec<u8>)>,
    /// Effects that crossed lanes.
    pub crossings: u64,
    /// Sessions that moved.
    pub moves: u64,
}

/// A run on workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parallel {
    /// Its result.
    pub observed: Observed,
    /// Certified waves of several groups.
    pub multi_lane: u64,
    /// Waves on several threads.
    pub parallel: u64,
    /// Why the last refused certificate was refused, if any was.
    pub refused: Option<String>,
}

/// Runs a machine on this many workers.
pub type Driver<'a> = &'a dyn Fn(&Case, usize) -> Parallel;

/// How a run on workers differs from the sequential run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The workers.
    pub workers: usize,
    /// What differs: `trace`, `output`, a session, `certificate`, or `panic`.
    pub at: String,
    /// The value in the sequential run.
    pub expected: String,
    /// The value on the workers.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, at, expected, found } = self;
        write!(f, "on {workers} workers, {at}: expected {expected}, found {found}")
    }
}

/// A sink that keeps the output.
#[derive(Default)]
struct Output(Vec<(SessionId, Vec<u8>)>);

impl Sink for Output {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.0.push((session, bytes.to_vec()));
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

fn load(case: &Case) -> World {
    World::load(case.spec.clone(), case.inputs.clone(), false)
        .expect("generated machines load")
        .world
}

fn observe(world: &mut World, output: Output) -> Observed {
    let (crossings, moves) = world.crossings_and_moves();
    Observed { summary: world.summary(), output: output.0, crossings, moves }
}

/// The sequential run, which every other must equal.
///
/// # Panics
/// The host cannot run the machine; generated machines are small enough for any host.
#[must_use]
pub fn sequential(case: &Case) -> Observed {
    let mut world = load(case);
    let mut output = Output::default();
    world.run(&mut output).expect("the host can");
    observe(&mut world, output)
}

/// The run on workers, with every wave certified. Every second machine uses threads for all waves;
/// the others only for waves that are long enough.
///
/// # Panics
/// The host cannot run the machine.
#[must_use]
pub fn on_workers(case: &Case, workers: usize) -> Parallel {
    let mut waves = Waves::new(load(case), workers).expect("at least one worker");
    waves.certify_always();
    waves.set_parallel_threshold(if case.spec.seed.is_multiple_of(2) {
        0
    } else {
        PARALLEL_THRESHOLD_CYCLES / 8
    });
    let mut output = Output::default();
    waves.run(&mut output).expect("the host can");
    let telemetry = waves.telemetry();
    Parallel {
        observed: observe(waves.world_mut(), output),
        multi_lane: telemetry.multi_lane,
        parallel: telemetry.parallel,
        refused: telemetry.last_refusal,
    }
}

/// Runs a machine on 1 to `most` workers.
///
/// # Errors
/// The first difference; a panic is one too.
pub fn try_case(
    case: &Case,
    expected: &Observed,
    most: usize,
    driver: Driver<'_>,
) -> Result<Vec<Parallel>, Difference> {
    let groups_at_most = usize::from(case.spec.lanes);
    // More workers than groups would repeat the same run.
    (1..=most.min(groups_at_most)).map(|workers| compare(case, expected, workers, driver)).collect()
}

fn compare(
    case: &Case,
    expected: &Observed,
    workers: usize,
    driver: Driver<'_>,
) -> Result<Parallel, Difference> {
    let difference =
        |at: String, expected: String, found: String| Difference { workers, at, expected, found };
    let run = catch_unwind(AssertUnwindSafe(|| driver(case, workers)))
        .map_err(|panic| difference("panic".into(), "none".into(), words(panic.as_ref())))?;
    if let Some(refusal) = &run.refused {
        return Err(difference("certificate".into(), "accepted".into(), refusal.clone()));
    }
    let view = |observed: &Observed| RunView::of(&observed.summary, 1);
    if let Some(first) = EnvelopeDiff::between(&view(expected), &view(&run.observed)).first {
        return Err(difference(first.at, first.first, first.second));
    }
    if run.observed.output != expected.output {
        let bytes = |observed: &Observed| {
            observed.output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
        };
        return Err(difference(
            "output".into(),
            format!("{} bytes", bytes(expected)),
            format!("{} bytes", bytes(&run.observed)),
        ));
    }
    if run.observed != *expected {
        return Err(difference(
            "counts".into(),
            format!("{:?}", expected.summary.cycles),
            format!("{:?}", run.observed.summary.cycles),
        ));
    }
    Ok(run)
}

pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
