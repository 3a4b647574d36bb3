//! Control inputs are inputs: a machine that is told to change while it runs, and is kept, rolled
//! back and restored at random boundaries on any number of workers, is at every boundary the
//! machine that was given all its inputs before its first frame.

use std::collections::BTreeMap;
use wavelock_abi::Frame;
use wavelock_generate::LiveCase;
use wavelock_system::{
    Control, ControlRefusal, Input, MachineSpec, RunOutcome, RunSummary, SessionOutcome, Sink,
    Snapshot, World,
};
use wavelock_trace::Digest;
use wavelock_waves::Waves;

/// Machines of the property; each runs once per number of workers.
const MACHINES: u64 = 48;

fn load(case: &LiveCase) -> World {
    World::load(case.spec.clone(), Vec::new(), false).expect("generated machines load").world
}

/// The state at a boundary, as every run must have it.
#[derive(PartialEq, Eq, Debug)]
struct At {
    digest: Digest,
    bytes: Digest,
}

fn at(world: &World) -> At {
    let bytes = world.save().expect("a boundary");
    At { digest: world.digest(), bytes: Digest::of(&bytes) }
}

/// Counts what could not take effect.
#[derive(Default)]
struct Refused(u64);

impl Sink for Refused {
    fn output(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}

    fn log(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}

    fn refused(&mut self, _: Frame, _: &Control, refusal: &ControlRefusal) {
        assert!(refusal.to_string().len() > 30, "{refusal}");
        self.0 += 1;
    }
}

/// All inputs are given before the first frame; one thread. The states by frame.
fn straight(case: &LiveCase) -> (BTreeMap<u64, At>, RunSummary, u64) {
    let (mut world, mut refused) = (load(case), Refused::default());
    world.give_recorded(case.inputs.iter().cloned()).expect("in range");
    let mut states = BTreeMap::new();
    while world.outcome().is_none() {
        let frame = world.next_frame_number();
        states.insert(frame.0, at(&world));
        world.allow(Frame(frame.0 + 1));
        world.run_allowed(&mut refused).expect("the host can");
    }
    (states, world.summary(), refused.0)
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn waves(world: World, workers: usize) -> Waves {
    let mut waves = Waves::new(world, workers).expect("a worker");
    waves.certify_always();
    waves.set_parallel_threshold(0);
    waves
}

#[derive(Default, Debug)]
struct Seen {
    rollbacks: u64,
    restored: u64,
    late: u64,
    refused: u64,
    canceled: u64,
    started: u64,
    replaced: u64,
}

/// Inputs come at the boundary before their frame; the machine is kept, rolled back and restored at
/// random boundaries.
fn wander(
    case: &LiveCase,
    workers: usize,
    states: &BTreeMap<u64, At>,
    seen: &mut Seen,
) -> RunSummary {
    let seed = case.spec.seed;
    let mut draws = Draws(seed ^ (workers as u64) << 40);
    let mut run = waves(load(case), workers);
    let mut kept: Vec<Snapshot> = Vec::new();
    let mut left = 12;
    loop {
        let world = run.world_mut();
        let frame = world.next_frame_number();
        let is_over = world.outcome().is_some();
        if !is_over {
            let what = format!("seed {seed}, {workers} workers, frame {}", frame.0);
            assert_eq!(Some(&at(world)), states.get(&frame.0), "{what}");
            if draws.below(3) == 0 {
                kept.push(world.snapshot().expect("a boundary"));
            }
            if draws.below(12) == 0 {
                let bytes = world.save().expect("a boundary");
                // What control inputs have changed is in the state.
                let spec = match draws.below(2) {
                    0 => MachineSpec { library: world.spec().library.clone(), ..case.spec.clone() },
                    _ => world.spec().clone(),
                };
                let restored = World::restore(spec, Vec::new(), false, &bytes).expect("own bytes");
                run = waves(restored, workers);
                seen.restored += 1;
            }
        }
        if !kept.is_empty() && left > 0 && (is_over || draws.below(6) == 0) {
            let snapshot = &kept[draws.below(kept.len() as u64) as usize];
            run.roll_back(snapshot);
            left -= 1;
            seen.rollbacks += 1;
            continue;
        }
        if is_over {
            assert_eq!(run.telemetry().refused, 0, "{:?}", run.telemetry().last_refusal);
            return run.world_mut().summary();
        }
        let world = run.world_mut();
        for (_, input) in case.inputs.iter().filter(|(of, _)| *of == frame) {
            match world.give(input.clone()) {
                Ok(given) => assert_eq!(given, frame),
                // Refused when it is given, or in its frame: a driver that gives it early is told
                // later.
                Err(error) => {
                    assert!(matches!(input, Input::Control(_)), "{error}");
                    world.give_recorded([(frame, input.clone())]).expect("as early as any");
                    seen.late += 1;
                }
            }
        }
        world.allow(Frame(frame.0 + 1));
        run.run_allowed(&mut ()).expect("the host can");
    }
}

#[test]
fn a_machine_that_is_controlled_while_it_runs_is_the_machine_with_known_inputs() {
    let mut seen = Seen::default();
    for seed in 0..MACHINES {
        let case = wavelock_generate::live(seed);
        let (states, summary, refused) = straight(&case);
        assert!(!matches!(summary.outcome, None | Some(RunOutcome::Deadlock)));
        seen.refused += refused;
        let ended = |outcome| summary.sessions.iter().filter(|of| of.outcome == outcome).count();
        seen.started += (summary.sessions.len() - case.spec.sessions.len()) as u64;
        seen.canceled += ended(SessionOutcome::Canceled) as u64;
        let replacements = case
            .inputs
            .iter()
            .filter(|(_, input)| matches!(input, Input::Control(Control::Replace(_))));
        seen.replaced += replacements.count() as u64;
        for workers in 1..=4 {
            let found = wander(&case, workers, &states, &mut seen);
            assert_eq!(found, summary, "seed {seed}, {workers} workers");
        }
    }
    let Seen { rollbacks, restored, late, refused, canceled, started, replaced } = seen;
    assert!(rollbacks > 1_000 && restored > 500 && late > 100, "{seen:?}");
    assert!(refused > 50 && canceled > 50 && started > 150 && replaced > 150, "{seen:?}");
}
