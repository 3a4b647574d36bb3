//! One semantics (laws 1 and 2): a run step by step, with groups in another order, with events kept
//! or not, and with costs kept or not is one run.
//!
//! The machines are random and use everything (`kit/random.rs`), so this is also the net for what
//! no guest may do: panic the host. Each run must keep the laws of `kit/laws.rs` too. A failure
//! prints the seed.

mod kit;

use kit::random::wild_machine as wild;
use kit::{Machine, laws};
use std::collections::BTreeMap;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, RunOutcome, RunSummary, Span, World};
use wavelock_trace::Event;

/// How many machines are tried.
const SEEDS: u64 = 200;

/// Everything that must not depend on how a run was driven.
fn facts(world: &mut World) -> (RunSummary, Option<wavelock_system::Deadlock>) {
    let deadlock = world.deadlock().cloned();
    (world.summary(), deadlock)
}

fn run(machine: &Machine, keep_events: bool) -> (RunSummary, Option<wavelock_system::Deadlock>) {
    let mut world = machine.world(keep_events);
    world.run(&mut ()).expect("the host can go on");
    facts(&mut world)
}

fn stepped(machine: &Machine) -> (RunSummary, Option<wavelock_system::Deadlock>) {
    let mut world = machine.world(false);
    while world.step(&mut ()).expect("the host can go on") {}
    facts(&mut world)
}

fn reversed(machine: &Machine) -> (RunSummary, Option<wavelock_system::Deadlock>) {
    let mut world = machine.world(false);
    while world.open_wave(&mut ()).expect("the host can go on") {
        world.groups_mut().iter_mut().rev().for_each(|group| group.run_wave());
        world.close_wave();
    }
    facts(&mut world)
}

fn profiled(machine: &Machine) -> (RunSummary, Option<wavelock_system::Deadlock>) {
    let mut world = machine.world(false);
    world.profile();
    world.run(&mut ()).expect("the host can go on");
    facts(&mut world)
}

fn all_ways_are_one(seed: u64, reached: &mut BTreeMap<String, u64>) -> RunSummary {
    let machine = wild(seed);
    println!("seed {seed}");
    let first = run(&machine, false);
    let kept = machine.run();
    assert_eq!(first, (kept.summary.clone(), kept.deadlock.clone()), "seed {seed}: keeping events");
    laws::conserved(&kept, &machine).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    for frame in &kept.sink.frames {
        laws::frame_order(frame).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
    let lanes = (0..usize::from(machine.spec.lanes)).flat_map(|lane| kept.events(lane));
    for event in lanes.chain(kept.boundary()) {
        let name = event.split(' ').next().unwrap_or_default();
        *reached.entry(name.to_owned()).or_default() += 1;
    }
    assert_eq!(first, stepped(&machine), "seed {seed}: step by step");
    assert_eq!(first, reversed(&machine), "seed {seed}: groups in reverse");
    assert_eq!(first, profiled(&machine), "seed {seed}: costs kept");
    first.0
}

#[test]
fn every_way_to_drive_a_machine_is_the_same_run() {
    let mut outcomes = [0; RunOutcome::ALL.len()];
    let mut reached = BTreeMap::new();
    for seed in 0..SEEDS {
        let summary = all_ways_are_one(seed, &mut reached);
        let outcome = summary.outcome.expect("the run is over");
        outcomes[outcome as usize] += 1;
        let cycles: u64 = summary.sessions.iter().map(|session| session.cycles.0).sum();
        assert_eq!(cycles, summary.cycles.charged, "seed {seed}");
    }
    println!("outcomes: {outcomes:?}; {reached:?}");
    // These machines have no contexts and calls; every sixteenth of `generate` has, and
    // `waves/tests/time.rs` drives those in every way and asserts that they reach these events.
    // Leases are in `leases.rs`. Nor are they live, as those of `live.rs` are, do budgets kill
    // (`kills.rs`), or have they host functions, which may ask (`wavelock`).
    let is_elsewhere = |tag: u8| matches!(tag, 17..=31 | 42 | 45 | 49 | 50 | 56 | 64..=83);
    let expected =
        Event::TABLE.iter().filter(|(name, tag, _)| *name != "Outcome" && !is_elsewhere(*tag));
    let never: Vec<_> = expected.filter(|(name, _, _)| !reached.contains_key(*name)).collect();
    assert!(never.is_empty(), "events that no machine reached: {never:?}");
    // Only a live machine is stopped.
    let mut closed = RunOutcome::ALL.iter().filter(|outcome| **outcome != RunOutcome::Stopped);
    assert!(
        closed.all(|outcome| outcomes[*outcome as usize] > 5),
        "the machines reach every outcome: {outcomes:?}"
    );
}

/// The machine counts a turn in 32 bits; a slice that may be longer runs by itself, and so does one
/// that only the frame's end makes short enough.
#[test]
fn slices_too_long_for_a_turn_are_the_same_run() {
    const YIELDS: &str = include_str!("../../../benches/guests/yield.wat");
    let machine = |quantum: u64| {
        let mut spec = MachineSpec::new();
        spec.policy = Policy::RoundRobin { quantum: Cycles(quantum) };
        // The first slices have more than a turn's cycles before the frame's end, the last ones
        // less.
        spec.frame_cycles = Cycles((1 << 30) + 2_000);
        spec.span = Span::Cycles(spec.frame_cycles);
        let module =
            Module::from_text(YIELDS.as_bytes(), &Limits::default()).expect("the guest is valid");
        let module = spec.add_module(Arc::new(module), YIELDS.as_bytes());
        let session = spec.add_session("yield", module);
        spec.sessions[session.0 as usize].args = ["yield".into(), "5".into(), "40".into()].into();
        World::load(spec, Vec::new(), false).expect("a machine that can be made").world
    };
    for quantum in [1 << 29, 1 << 30, 1 << 31] {
        let mut at_once = machine(quantum);
        at_once.run(&mut ()).expect("the host can go on");
        let mut by_steps = machine(quantum);
        while by_steps.step(&mut ()).expect("the host can go on") {}
        let (first, second) = (facts(&mut at_once), facts(&mut by_steps));
        assert!(
            first.0.cycles.charged > 2_000,
            "the frame's end comes nearer than a turn's most: {:?}",
            first.0.cycles
        );
        assert_eq!(first, second, "quantum {quantum}");
    }
}

#[test]
fn a_difference_would_be_seen() {
    let mut machine = wild(1);
    let first = run(&machine, false);
    machine.spec.seed ^= 1;
    assert_ne!(first.0.digest, run(&machine, false).0.digest, "another machine is another digest");
}
