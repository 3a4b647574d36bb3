//! Soaks of live machines: inputs and control inputs that come while the machine runs, and
//! rollbacks, on 1 to N workers, against the run that had all its inputs before its first frame.

use crate::trial::words;
use crate::{Difference, Settings, Tally, first_bytes};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wavelock_abi::Frame;
use wavelock_generate::{LiveCase, live};
use wavelock_system::{Input, RunSummary, World};
use wavelock_waves::Waves;

/// A live machine whose runs differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveFailure {
    /// Its seed.
    pub seed: u64,
    /// The difference.
    pub difference: Difference,
}

/// Runs a live machine on this many workers as its inputs come.
pub type LiveDriver<'a> = &'a dyn Fn(&LiveCase, usize) -> LiveRun;

/// A run of a live machine: everything that must not depend on workers, and what it covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveRun {
    /// Digests, outcomes, steps, cycles.
    pub summary: RunSummary,
    /// The bytes of its last state before the end.
    pub state: Vec<u8>,
    /// Certified waves of several groups, and waves on several threads.
    pub waves: (u64, u64),
    /// Why the last refused certificate was refused, if any was.
    pub refused: Option<String>,
}

fn load(case: &LiveCase) -> World {
    World::load(case.spec.clone(), Vec::new(), false).expect("generated machines load").world
}

/// The frame of the last input, which stops the machine.
fn last_frame(case: &LiveCase) -> Frame {
    case.inputs.last().map_or(Frame::ZERO, |(frame, _)| *frame)
}

/// The sequential run with all inputs known, which every other must equal.
///
/// # Panics
/// The host cannot run the machine; generated machines are small enough for any host.
#[must_use]
pub fn known_at_load(case: &LiveCase) -> LiveRun {
    let mut world = load(case);
    world.give_recorded(case.inputs.iter().cloned()).expect("generated inputs can be given");
    world.allow(last_frame(case));
    world.run_allowed(&mut ()).expect("the host can");
    let state = world.save().expect("a boundary");
    world.run(&mut ()).expect("the host can");
    LiveRun { summary: world.summary(), state, waves: (0, 0), refused: None }
}

/// The run on workers in which inputs come at the boundary before their frame, and some frames are
/// run twice: kept, run ahead without the inputs of later frames, rolled back.
///
/// # Panics
/// The host cannot run the machine.
#[must_use]
pub fn as_they_come(case: &LiveCase, workers: usize) -> LiveRun {
    let mut waves = Waves::new(load(case), workers).expect("at least one worker");
    waves.certify_always();
    waves.set_parallel_threshold(0);
    let (last, mut state) = (last_frame(case), Vec::new());
    while waves.world().outcome().is_none() {
        let frame = waves.world().next_frame_number();
        if frame == last {
            state = waves.world().save().expect("a boundary");
        }
        for (_, input) in case.inputs.iter().filter(|(of, _)| *of == frame) {
            let world = waves.world_mut();
            if world.give(input.clone()).is_err() {
                // Of a session that has ended: the refusal is an event of the frame.
                assert!(matches!(input, Input::Control(_)));
                world.give_recorded([(frame, input.clone())]).expect("it could be given early");
            }
        }
        let ahead = (frame.0 ^ case.spec.seed) % 5;
        if ahead > 2 && frame < last {
            let kept = waves.world_mut().snapshot().expect("a boundary");
            waves.world_mut().allow(Frame((frame.0 + ahead).min(last.0)));
            waves.run_allowed(&mut ()).expect("the host can");
            waves.roll_back(&kept);
        }
        waves.world_mut().allow(Frame(frame.0 + 1));
        waves.run_allowed(&mut ()).expect("the host can");
    }
    let telemetry = waves.telemetry();
    let (covered, refused) =
        ((telemetry.multi_lane, telemetry.parallel), telemetry.last_refusal.clone());
    LiveRun { summary: waves.world_mut().summary(), state, waves: covered, refused }
}

/// Runs live machines until one differs, all are done, or `go_on`, called after each, returns
/// `false`.
pub fn soak_live(
    settings: Settings,
    driver: LiveDriver<'_>,
    go_on: &mut dyn FnMut(&Tally) -> bool,
) -> (Tally, Option<LiveFailure>) {
    let mut tally = Tally::default();
    for number in 0..settings.machines {
        let seed = settings.seed.wrapping_add(number);
        let case = live(seed);
        let expected = known_at_load(&case);
        tally.machines += 1;
        tally.waves += expected.summary.waves;
        tally.digests = tally.digests.wrapping_add(first_bytes(&expected.summary));
        let groups_at_most = usize::from(case.spec.lanes);
        for workers in 1..=settings.workers.min(groups_at_most) {
            match compare(&case, &expected, workers, driver) {
                Ok((several, parallel)) if workers > 1 => {
                    tally.several_lanes += u64::from(several > 0 && workers == 2);
                    tally.several_threads += u64::from(parallel > 0 && workers == 2);
                    tally.parallel_waves += parallel;
                }
                Ok(_) => {}
                Err(difference) => return (tally, Some(LiveFailure { seed, difference })),
            }
        }
        if !go_on(&tally) {
            break;
        }
    }
    (tally, None)
}

fn compare(
    case: &LiveCase,
    expected: &LiveRun,
    workers: usize,
    driver: LiveDriver<'_>,
) -> Result<(u64, u64), Difference> {
    let difference = |at: &str, expected: String, found: String| Difference {
        workers,
        at: at.into(),
        expected,
        found,
    };
    let run = catch_unwind(AssertUnwindSafe(|| driver(case, workers)))
        .map_err(|panic| difference("panic", "none".into(), words(panic.as_ref())))?;
    let words = |run: &LiveRun| {
        let RunSummary { digest, frames, steps, .. } = &run.summary;
        format!("{digest} after {frames} frames and {steps} steps")
    };
    match &run.refused {
        Some(refusal) => Err(difference("certificate", "accepted".into(), refusal.clone())),
        None if run.summary != expected.summary => {
            Err(difference("trace", words(expected), words(&run)))
        }
        None if run.state != expected.state => Err(difference(
            "state",
            format!("{} bytes", expected.state.len()),
            format!("{} bytes", run.state.len()),
        )),
        None => Ok(run.waves),
    }
}
