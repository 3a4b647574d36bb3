//! Machines with contexts, grants, calls, caps, parks and waits for sessions have the same run
//! under every driver: step by step, groups in another order, restored from bytes, on workers.
//!
//! Every sixteenth generated machine has contexts, grants and calls; another sixteenth has caps; a
//! third has parks and waits for sessions. Together they reach every event about time and calls,
//! which this file asserts; `step_equals_run` of `system` leaves those events to it. A failure
//! prints the seed.

use std::collections::BTreeMap;
use wavelock_abi::Frame;
use wavelock_kernel::WakeSource;
use wavelock_system::{MachineSpec, RunSummary, Sink, Stage, World};
use wavelock_trace::{Digest, Event, EventReader};
use wavelock_waves::Waves;

/// How many machines are tried.
const MACHINES: u64 = 120;

fn load(seed: u64, keep_events: bool) -> World {
    World::load(wavelock_generate::machine(seed), wavelock_generate::inputs(seed), keep_events)
        .expect("generated machines load")
        .world
}

/// Counts events by name, and wakes by source.
#[derive(Default)]
struct Reached(BTreeMap<&'static str, u64>, [u64; WakeSource::COUNT]);

impl Sink for Reached {
    fn output(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}

    fn log(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}

    fn frame(&mut self, _: Frame, _: Digest, _: &[u8], lanes: &mut dyn Iterator<Item = &[u8]>) {
        for bytes in lanes {
            for event in EventReader::new(bytes) {
                let event = event.expect("own encoding");
                *self.0.entry(event.name()).or_default() += 1;
                if let Event::Wake { source, .. } = event {
                    self.1[source as usize] += 1;
                }
            }
        }
    }
}

fn whole(seed: u64, reached: &mut Reached) -> RunSummary {
    let mut world = load(seed, true);
    world.run(reached).expect("the host can");
    world.summary()
}

fn stepped(seed: u64) -> RunSummary {
    let mut world = load(seed, false);
    while world.step(&mut ()).expect("the host can") {}
    world.summary()
}

fn reversed(seed: u64) -> RunSummary {
    let mut world = load(seed, false);
    while world.open_wave(&mut ()).expect("the host can") {
        world.groups_mut().iter_mut().rev().for_each(|group| group.run_wave());
        world.close_wave();
    }
    world.summary()
}

fn on_workers(seed: u64, workers: usize) -> RunSummary {
    let mut waves = Waves::new(load(seed, false), workers).expect("a worker");
    waves.certify_always();
    waves.set_parallel_threshold(0);
    waves.run(&mut ()).expect("the host can");
    assert_eq!(waves.telemetry().refused, 0, "seed {seed}: {:?}", waves.telemetry().last_refusal);
    waves.world_mut().summary()
}

/// Saves at some boundaries; each restored machine ends as the one that was not stopped.
fn restored(seed: u64, every: u64, expected: &RunSummary) -> u64 {
    let spec = wavelock_generate::machine(seed);
    let mut world = load(seed, false);
    let (mut boundaries, mut saved) = (0, 0);
    while world.advance(&mut ()).is_ok_and(|stage| stage != Stage::Over) {
        if world.stage() == Stage::Wave {
            world.groups_mut().iter_mut().for_each(|group| group.run_wave());
            world.close_wave();
        }
        let Ok(bytes) = world.save() else { continue };
        boundaries += 1;
        if boundaries % every != 1 {
            continue;
        }
        saved += 1;
        let modules =
            spec.modules.iter().cloned().zip(spec.module_hashes.iter().copied()).collect();
        let twin =
            MachineSpec::from_identity(&spec.identity(), modules).expect("an identity is a spec");
        let mut twin = World::restore(twin, wavelock_generate::inputs(seed), false, &bytes)
            .unwrap_or_else(|error| panic!("seed {seed}, boundary {boundaries}: {error}"));
        assert_eq!(twin.save().expect("a boundary"), bytes, "seed {seed}, boundary {boundaries}");
        twin.run(&mut ()).expect("the host can");
        assert_eq!(
            twin.summary().digest,
            expected.digest,
            "seed {seed}, from boundary {boundaries}"
        );
    }
    saved
}

/// Runs a machine under every driver. Returns how often it was saved and restored.
fn under_every_driver(seed: u64, save_every: u64, reached: &mut Reached) -> u64 {
    println!("seed {seed}");
    let expected = whole(seed, reached);
    assert_eq!(stepped(seed), expected, "seed {seed}: step by step");
    assert_eq!(reversed(seed), expected, "seed {seed}: groups in reverse");
    for workers in [2, 3] {
        assert_eq!(on_workers(seed, workers), expected, "seed {seed}: {workers} workers");
    }
    restored(seed, save_every, &expected)
}

#[test]
fn contexts_and_calls_have_the_same_run_under_every_driver_and_reach_every_event() {
    let mut reached = Reached::default();
    let (mut saved, mut contexts) = (0, 0);
    for seed in (0..MACHINES).map(|number| number * wavelock_generate::TIMED_EVERY + 3) {
        contexts += wavelock_generate::machine(seed).contexts.len();
        saved += under_every_driver(seed, 7, &mut reached);
    }
    println!("{contexts} contexts, {saved} boundaries saved, {:?}", reached.0);
    // What was admitted misses nothing, so no machine should reach a miss;
    // `refused_sets_do_miss_when_forced` of the kernel does.
    let about_time = Event::TABLE
        .iter()
        .filter(|(name, tag, _)| matches!(tag, 17..=31 | 49 | 50) && *name != "Miss");
    let never: Vec<_> = about_time.filter(|(name, _, _)| !reached.0.contains_key(name)).collect();
    assert!(never.is_empty(), "events that no machine reached: {never:?}");
    let donations = reached.0.get("Donate").copied().unwrap_or_default();
    assert!(
        contexts > 100 && saved > 100 && donations > 100,
        "{contexts} contexts, {saved} boundaries, {donations} donations"
    );
}

#[test]
fn caps_have_the_same_run_under_every_driver() {
    let mut reached = Reached::default();
    let (mut saved, mut capped) = (0, 0);
    for seed in (0..MACHINES).map(|number| number * wavelock_generate::CAPPED_EVERY + 9) {
        let spec = wavelock_generate::machine(seed);
        capped += spec.sessions.iter().filter(|session| session.cap.is_some()).count();
        saved += under_every_driver(seed, 5, &mut reached);
    }
    let count = |name| reached.0.get(name).copied().unwrap_or_default();
    let (throttles, refills) = (count("CapThrottle"), count("CapRefill"));
    let (demoted, killed) = (count("CapDemote"), count("Kill"));
    println!(
        "{capped} caps: throttled {throttles}, demoted {demoted}, killed {killed}, refilled \
         {refills}; {saved} saved"
    );
    assert!(capped > 150 && saved > 100, "{capped} caps, {saved} boundaries saved");
    assert!(throttles > 1_000 && demoted > 200 && refills > 1_000 && killed > 50);
}

#[test]
fn parks_and_waits_for_sessions_have_the_same_run_under_every_driver() {
    let mut reached = Reached::default();
    let seeds = (0..MACHINES).map(|number| number * wavelock_generate::WAITING_EVERY + 5);
    let saved: u64 = seeds.map(|seed| under_every_driver(seed, 5, &mut reached)).sum();
    let wakes = |source: WakeSource| reached.1[source as usize];
    let (unparked, ended) = (wakes(WakeSource::Unpark), wakes(WakeSource::SessionEnd));
    println!("{unparked} woken by an unpark, {ended} by a session's end; {saved} saved");
    assert!(unparked > 100 && ended > 30, "{unparked} unparked, {ended} by a session's end");
    assert!(saved > 100, "{saved} boundaries saved");
}
