//! When threads are used, by telemetry: none of it is in a trace.

use std::sync::Arc;
use std::time::Duration;
use wavelock_certify::Checker;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, Placement, World};
use wavelock_waves::{Round, StartError, Waves};

/// Sessions that count to `turns`, one per lane, in waves of 20,000 cycles.
fn counters(sessions: u16, turns: u32) -> MachineSpec {
    let text = format!(
        r#"(module (func (export "_start") (local $i i32)
            (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const {turns}))))))"#
    );
    let mut spec = MachineSpec {
        lanes: sessions,
        span: wavelock_system::Span::Cycles(wavelock_abi::Cycles(20_000)),
        ..MachineSpec::new()
    };
    let module = spec.add_module(
        Arc::new(Module::from_text(text.as_bytes(), &Limits::default()).expect("valid")),
        text.as_bytes(),
    );
    for number in 0..sessions {
        spec.add_session(&format!("counter.{number}"), module);
    }
    spec
}

fn load(spec: MachineSpec) -> World {
    World::load(spec, Vec::new(), false).expect("loads").world
}

fn run(spec: MachineSpec, workers: usize) -> wavelock_waves::Telemetry {
    let mut waves = Waves::new(load(spec), workers).expect("a worker");
    waves.run(&mut ()).expect("the host can");
    let telemetry = waves.telemetry();
    assert_eq!(telemetry.waves, telemetry.certified + telemetry.refused + telemetry.unclaimed);
    assert_eq!(
        telemetry.waves,
        telemetry.parallel + telemetry.one_group + telemetry.short + telemetry.refused
    );
    telemetry
}

#[test]
fn only_waves_above_the_threshold_are_certified_and_run_on_threads() {
    let telemetry = run(counters(4, 100_000), 2);
    assert!(telemetry.parallel * 10 > telemetry.waves * 9, "{telemetry:?}");
    assert_eq!((telemetry.certified, telemetry.widest), (telemetry.parallel, 4));
}

#[test]
fn a_short_wave_runs_inline() {
    // A yield each turn, and waves of one pick: a few dozen cycles for each lane.
    let text = r#"(module (import "wavelock" "yield" (func $yield)) (func (export "_start") (local $i i32)
        (loop $l (call $yield) (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 500))))))"#;
    let mut spec =
        MachineSpec { lanes: 4, span: wavelock_system::Span::Picks(1), ..MachineSpec::new() };
    let module = spec.add_module(
        Arc::new(Module::from_text(text.as_bytes(), &Limits::default()).expect("valid")),
        text.as_bytes(),
    );
    (0..4)
        .for_each(|number| assert_eq!(spec.add_session(&format!("s.{number}"), module).0, number));
    let telemetry = run(spec, 2);
    // What a group costs is known when it has run once.
    assert!(telemetry.parallel <= 1 && telemetry.short > 400, "{telemetry:?}");
}

#[test]
fn one_group_runs_inline_without_a_certificate() {
    let mut spec = counters(3, 50_000);
    spec.sessions[0].placement = Placement::Split(vec![0, 1, 2]);
    let telemetry = run(spec, 2);
    assert_eq!(
        (telemetry.workers, telemetry.parallel, telemetry.certified),
        (1, 0, 0),
        "one group is no work for two threads"
    );
    assert_eq!(telemetry.one_group, telemetry.waves);
}

#[test]
fn workers_are_capped_at_the_number_of_groups() {
    assert_eq!(run(counters(3, 1_000), 16).workers, 3);
    assert_eq!(run(counters(3, 1_000), 1).workers, 1);
}

#[test]
fn a_parked_worker_is_unparked_once_per_wave() {
    let mut waves = Waves::new(load(counters(3, 200_000)), 3).expect("a worker");
    let (mut parked, mut pause) = (0, Duration::from_millis(60));
    for _ in 0..8 {
        let before = waves.telemetry();
        // Longer than any worker looks for its next wave; on a busy host a worker may have to wait
        // for its turn to look.
        std::thread::sleep(pause);
        assert_eq!(waves.round(&mut ()).expect("the host can"), Round::Wave);
        let after = waves.telemetry();
        let (woken, parallel) = (after.unparks - before.unparks, after.parallel - before.parallel);
        assert!(
            woken <= 2 * parallel,
            "{woken} wakes for two workers and {parallel} waves on threads"
        );
        parked += woken;
        pause = if parked == 0 { pause * 2 } else { Duration::from_millis(10) };
    }
    assert!(parked >= 1, "workers with nothing to do sleep after a bounded time: {parked} wakes");
    waves.run(&mut ()).expect("the host can");
    let telemetry = waves.telemetry();
    assert!(telemetry.unparks <= 2 * telemetry.parallel, "{telemetry:?}");
}

#[test]
fn no_workers_are_refused_by_name() {
    let refused = Waves::new(load(counters(1, 1)), 0).err().expect("nothing can run");
    assert_eq!(refused, StartError::NoWorkers);
    assert_eq!(refused.to_string(), "0 workers: a round of waves needs at least 1 (semantics 2)");
}

#[test]
fn an_independent_checker_accepts_the_certificates_of_a_run() {
    for seed in 0..40 {
        let world =
            World::load(wavelock_generate::machine(seed), wavelock_generate::inputs(seed), false)
                .expect("loads")
                .world;
        let (lanes, sessions) = (world.spec().lanes, world.spec().sessions.len() as u32);
        let mut waves = Waves::new(world, 2).expect("a worker");
        waves.certify_always();
        let mut checker = Checker::new(lanes, sessions);
        let mut seen = 0;
        while waves.round(&mut ()).expect("the host can") != Round::Over {
            let certificate = waves.certificate().expect("every wave is certified");
            assert_eq!(
                checker.check(certificate, &waves.facts()).map(|wave| wave.wave()),
                Ok(seen),
                "seed {seed}"
            );
            seen += 1;
        }
        assert_eq!(seen, waves.telemetry().certified);
        assert!(waves.certificate().is_none(), "none after the end");
    }
}

/// Two lanes that send each other a hundred messages a wave: more than enough to settle on threads,
/// pinned or not.
#[test]
fn many_effects_are_settled_on_threads() {
    let text = r#"(module
        (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
        (import "wavelock" "try_send" (func $try_send (param i32 i64) (result i32)))
        (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
        (memory 1) (data (i32.const 0) "inout")
        (func (export "_start") (local $turn i32)
          (loop $turns
            (drop (call $try_send (call $port (i32.const 2) (i32.const 3)) (i64.extend_i32_u (local.get $turn))))
            (drop (call $try_recv (call $port (i32.const 0) (i32.const 2)) (i32.const 16)))
            (local.set $turn (i32.add (local.get $turn) (i32.const 1)))
            (br_if $turns (i32.lt_u (local.get $turn) (i32.const 10000))))))"#;
    let mut spec = MachineSpec {
        lanes: 2,
        span: wavelock_system::Span::Cycles(wavelock_abi::Cycles(50_000)),
        ..MachineSpec::new()
    };
    let module = spec.add_module(
        Arc::new(Module::from_text(text.as_bytes(), &Limits::default()).expect("valid")),
        text.as_bytes(),
    );
    let sessions = [0, 1].map(|number| spec.add_session(&format!("s.{number}"), module));
    let channels = [0, 1]
        .map(|number: usize| spec.add_channel(&format!("in.{number}"), sessions[number], 256));
    for number in [0, 1] {
        spec.sessions[number].ports =
            vec![("in".to_owned(), channels[number]), ("out".to_owned(), channels[1 - number])];
    }
    let mut world = load(spec.clone());
    world.run(&mut ()).expect("the host can");
    for pinned in [false, true] {
        let mut waves = Waves::new(load(spec.clone()), 2).expect("a worker");
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert!(
            !pinned || waves.pin() == (cores > 1),
            "two workers can be bound where there are two cores"
        );
        waves.run(&mut ()).expect("the host can");
        let telemetry = waves.telemetry();
        assert!(telemetry.settled * 2 > telemetry.waves, "{telemetry:?}");
        assert_eq!(waves.world_mut().summary(), world.summary());
    }
}
