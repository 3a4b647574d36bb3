//! A machine that is kept, rolled back and restored at random boundaries is the same machine: at
//! every boundary it has the digest and the bytes of the straight run, on any number of workers.

use std::collections::BTreeMap;
use wavelock_abi::Frame;
use wavelock_system::{RunSummary, Snapshot, Stage, World};
use wavelock_trace::Digest;
use wavelock_waves::Waves;

/// Machines of the property; each runs once per number of workers.
const MACHINES: u64 = 40;

fn load(seed: u64) -> World {
    World::load(wavelock_generate::machine(seed), wavelock_generate::inputs(seed), false)
        .expect("generated machines load")
        .world
}

/// The state at a boundary, as both runs must have it.
#[derive(PartialEq, Eq, Debug)]
struct At {
    digest: Digest,
    bytes: Digest,
}

fn at(world: &World) -> At {
    let bytes = world.save().expect("a boundary");
    At { digest: world.digest(), bytes: Digest::of(&bytes) }
}

/// Runs to the next boundary or to the end; `false` at the end.
fn next_boundary(waves: &mut Waves) -> bool {
    loop {
        match waves.world_mut().advance(&mut ()).expect("the host can") {
            Stage::Wave => {
                waves.round(&mut ()).expect("the host can");
            }
            Stage::Over => return false,
            Stage::Frame => {}
            _ => return true,
        }
    }
}

fn waves(world: World, workers: usize) -> Waves {
    let mut waves = Waves::new(world, workers).expect("a worker");
    waves.certify_always();
    waves.set_parallel_threshold(0);
    waves
}

fn straight(seed: u64) -> (BTreeMap<u64, At>, RunSummary) {
    let mut waves = waves(load(seed), 1);
    let mut states = BTreeMap::from([(0, at(waves.world()))]);
    while next_boundary(&mut waves) {
        states.insert(waves.world().next_frame_number().0, at(waves.world()));
    }
    (states, waves.world_mut().summary())
}

/// Numbers below a bound from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Default, Debug)]
struct Seen {
    snapshots: u64,
    rollbacks: u64,
    after_the_end: u64,
    restored: u64,
}

/// Runs a machine with snapshots, rollbacks and restores at random boundaries.
fn wander(seed: u64, workers: usize, states: &BTreeMap<u64, At>, seen: &mut Seen) -> RunSummary {
    let mut draws = Draws(seed ^ (workers as u64) << 40);
    let mut run = waves(load(seed), workers);
    let mut kept: Vec<(u64, Snapshot)> = Vec::new();
    let mut left = 12;
    loop {
        let world = run.world_mut();
        let frame = world.next_frame_number().0;
        if draws.below(8) == 0 {
            assert_eq!(world.unmarked_page(), None, "seed {seed}, {workers} workers, {frame}");
        }
        if world.outcome().is_none() {
            assert_eq!(
                Some(&at(world)),
                states.get(&frame),
                "seed {seed}, {workers} workers, {frame}"
            );
            if draws.below(2) == 0 {
                let snapshot = world.snapshot().expect("a boundary");
                assert_eq!(snapshot.next_frame(), Frame(frame));
                kept.push((frame, snapshot));
                seen.snapshots += 1;
            }
            if draws.below(16) == 0 {
                let (spec, bytes) = (world.spec().clone(), world.save().expect("a boundary"));
                let inputs = wavelock_generate::inputs(seed);
                let restored = World::restore(spec, inputs, false, &bytes).expect("its own bytes");
                run = waves(restored, workers);
                seen.restored += 1;
            }
        }
        let is_over = run.world().outcome().is_some();
        if !kept.is_empty() && left > 0 && (is_over || draws.below(6) == 0) {
            let (_, snapshot) = &kept[draws.below(kept.len() as u64) as usize];
            run.roll_back(snapshot);
            left -= 1;
            seen.rollbacks += 1;
            seen.after_the_end += u64::from(is_over);
            continue;
        }
        if !next_boundary(&mut run) && (left == 0 || kept.is_empty()) {
            assert_eq!(run.telemetry().refused, 0, "{:?}", run.telemetry().last_refusal);
            return run.world_mut().summary();
        }
    }
}

#[test]
fn a_machine_that_rolls_back_at_random_equals_the_straight_run() {
    let mut seen = Seen::default();
    for seed in 0..MACHINES {
        let (states, summary) = straight(seed);
        for workers in 1..=4 {
            let found = wander(seed, workers, &states, &mut seen);
            assert_eq!(found, summary, "seed {seed}, {workers} workers");
        }
    }
    assert!(
        seen.snapshots > 1_000
            && seen.rollbacks > 1_000
            && seen.after_the_end > 100
            && seen.restored > 50,
        "the test reaches what it is about: {seen:?}"
    );
}

/// A snapshot outlives its world and makes another world of the same machine into its own.
#[test]
fn a_snapshot_moves_to_another_world_and_thread() {
    let (states, summary) = straight(7);
    let mut first = waves(load(7), 2);
    (0..5).for_each(|_| assert!(next_boundary(&mut first)));
    let snapshot = first.world_mut().snapshot().expect("a boundary");
    drop(first);
    let found = std::thread::spawn(move || {
        let mut second = waves(load(7), 3);
        assert!(snapshot.is_of(second.world()) && !snapshot.is_of(&load(8)));
        second.roll_back(&snapshot);
        drop(snapshot);
        let state = (second.world().next_frame_number().0, at(second.world()));
        while next_boundary(&mut second) {}
        (state, second.world_mut().summary())
    });
    let ((frame, state), found) = found.join().expect("no panic");
    assert_eq!(Some(&state), states.get(&frame));
    assert_eq!(found, summary);
}

#[test]
fn the_middle_of_a_frame_has_no_snapshot() {
    let mut world = load(3);
    assert!(world.open_wave(&mut ()).expect("the host can"));
    assert!(world.snapshot().is_err());
}
