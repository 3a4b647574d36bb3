//! A run on threads is the same run: random machines, every policy, both spans, any number of
//! workers.

use wavelock_system::{RunSummary, World};
use wavelock_waves::{
    EffectClass, EnvelopeDiff, FailureClass, OrderClass, RunView, Telemetry, Waves,
};

fn load(seed: u64) -> World {
    World::load(wavelock_generate::machine(seed), wavelock_generate::inputs(seed), false)
        .expect("generated machines load")
        .world
}

fn sequential(seed: u64) -> (RunSummary, (u64, u64)) {
    let mut world = load(seed);
    world.run(&mut ()).expect("the host can");
    (world.summary(), world.crossings_and_moves())
}

fn parallel(seed: u64, workers: usize) -> (RunSummary, Telemetry) {
    let mut waves = Waves::new(load(seed), workers).expect("a worker");
    waves.certify_always();
    waves.set_parallel_threshold(0);
    waves.run(&mut ()).expect("the host can");
    (waves.world_mut().summary(), waves.telemetry())
}

#[test]
fn canonical_parity_is_exact_at_concurrency_one() {
    for seed in 0..200 {
        let (expected, _) = sequential(seed);
        let mut world = load(seed);
        while world.step(&mut ()).expect("the host can") {}
        assert_eq!(world.summary(), expected, "seed {seed}, step by step");
        let mut waves = Waves::new(load(seed), 1).expect("a worker");
        waves.certify_always();
        waves.run(&mut ()).expect("the host can");
        assert_eq!(
            waves.world_mut().summary(),
            expected,
            "seed {seed}, one worker with certificates"
        );
        assert_eq!(
            waves.telemetry().refused,
            0,
            "seed {seed}: {:?}",
            waves.telemetry().last_refusal
        );
    }
}

#[test]
fn envelope_bounded_parity_holds_for_n_gt_1() {
    const MACHINES: u64 = 2_000;
    let (mut several_lanes, mut threads, mut crossed, mut moved) = (0, 0, 0, 0);
    for seed in 0..MACHINES {
        let (expected, (crossings, moves)) = sequential(seed);
        let (mut wide, mut parted) = (false, false);
        for workers in 1..=4 {
            let (found, telemetry) = parallel(seed, workers);
            let diff = EnvelopeDiff::between(
                &RunView::of(&expected, 1),
                &RunView::of(&found, telemetry.widest.max(1)),
            );
            assert_eq!(
                diff.order,
                OrderClass::Exact,
                "seed {seed}, {workers} workers: {:?}",
                diff.first
            );
            assert_eq!(
                (diff.effects, diff.failures),
                (EffectClass::Exact, FailureClass::Exact),
                "seed {seed}, {workers} workers"
            );
            assert_eq!(found, expected, "seed {seed}, {workers} workers");
            assert_eq!(
                telemetry.refused, 0,
                "seed {seed}, {workers} workers: {:?}",
                telemetry.last_refusal
            );
            wide |= telemetry.multi_lane > 0;
            parted |= telemetry.parallel > 0;
        }
        several_lanes += u64::from(wide);
        threads += u64::from(parted);
        crossed += u64::from(crossings > 0);
        moved += u64::from(moves > 0);
    }
    println!(
        "{MACHINES} machines: {several_lanes} with certified waves of several lanes, {threads} on several threads, {crossed} with cross-lane \
         effects, {moved} with moves"
    );
    for count in [several_lanes, threads, crossed, moved] {
        // Machines with contexts keep their sessions in place.
        assert!(
            count * 2 > MACHINES,
            "{several_lanes}, {threads}, {crossed}, {moved} of {MACHINES}"
        );
    }
}
