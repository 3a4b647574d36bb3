//! Authority over time as guests meet it: what each operation does and answers, what is recorded,
//! and that a machine with contexts is the same run however it is driven and wherever it is saved.

mod kit;

use kit::{Machine, Run};
use wavelock_abi::{Cycles, Errno, HostOperation, SessionId};
use wavelock_kernel::{ContextRefusal, Fallback, Policy};
use wavelock_system::{
    ContextSpec, Grant, GrantSpec, LoadError, MachineSpec, RunOutcome, Span, World,
};

const EINVAL: i64 = Errno::Invalid.code() as i64;
const ESTALE: i64 = Errno::Stale.code() as i64;
const ELIMIT: i64 = Errno::Limit.code() as i64;
const EDENIED: i64 = Errno::Denied.code() as i64;

/// Works for about `rounds` times seven cycles.
const WORK: &str = r#"
    (func $work (param $rounds i32) (loop $more
      (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
      (br_if $more (i32.gt_s (local.get $rounds) (i32.const 0)))))"#;

/// Writes the parameters of a context at 256 and names at 512.
const PARAMETERS: &str = r#"
    (data (i32.const 512) "controlpolicyvoice")
    (func $parameters (param $budget i64) (param $period i64) (param $overrun i64) (result i32)
      (i64.store (i32.const 256) (local.get $budget)) (i64.store (i32.const 264) (local.get $period))
      (i64.store (i32.const 272) (local.get $period)) (i64.store (i32.const 280) (i64.const 4))
      (i64.store (i32.const 288) (local.get $overrun)) (i64.store (i32.const 296) (i64.const 0)) (i32.const 256))
    (func $control (result i32) (call $capability (i32.const 512) (i32.const 7)))
    (func $policy (result i32) (call $capability (i32.const 519) (i32.const 6)))"#;

fn granted(body: &str) -> Machine {
    let mut machine = Machine::one(&format!("{WORK} {PARAMETERS} {body}"));
    machine.spec.grants = vec![
        GrantSpec { session: SessionId(0), grant: Grant::Control },
        GrantSpec { session: SessionId(0), grant: Grant::Policy },
    ];
    machine
}

/// What a granted guest outputs.
fn answers(body: &str) -> Vec<i64> {
    let run = granted(body).run();
    assert_eq!(run.outcome, RunOutcome::Finished);
    run.numbers(0)
}

fn count(run: &Run, event: &str) -> usize {
    run.events(0).iter().filter(|line| line.starts_with(event)).count()
}

#[test]
fn the_operations_of_time_are_these() {
    let about_time: Vec<&str> = HostOperation::ALL
        .iter()
        .filter(|operation| operation.is_about_time())
        .map(|operation| operation.import())
        .collect();
    let cases = [
        "capability",
        "context_create",
        "context_configure",
        "context_bind",
        "context_unbind",
        "context_revoke",
        "context_consumed",
        "context_notice",
        "context_timeout",
        "context_yield",
        "weight",
        "latency_class",
        "priority",
    ];
    assert_eq!(about_time, cases, "each has a case in this file");
}

#[test]
fn a_context_is_made_bound_read_changed_and_revoked() {
    let body = r#"(func (export "_start") (local $c i32)
      (local.set $c (call $context_create (call $control) (call $parameters (i64.const 50000) (i64.const 500000) (i64.const 0))))
      (call $out32 (i32.ge_s (local.get $c) (i32.const 0)))
      (call $out32 (call $context_bind (local.get $c) (call $self)))
      (call $work (i32.const 100)) (call $yield)
      (call $out32 (i64.gt_s (call $context_consumed (local.get $c)) (i64.const 500)))
      (call $out32 (call $context_configure (local.get $c) (call $parameters (i64.const 60000) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_unbind (local.get $c)))
      (call $out32 (call $context_yield))
      (call $out32 (call $context_revoke (local.get $c)))
      (call $out32 (call $context_revoke (local.get $c)))
      (call $out32 (call $context_bind (local.get $c) (call $self))))"#;
    assert_eq!(
        answers(body),
        [1, 0, 1, 0, EINVAL, 0, 0, ESTALE, ESTALE],
        "a running coroutine cannot take its own time away, only revoke it"
    );
}

#[test]
fn every_refusal_is_a_code_and_an_event() {
    let body = r#"(func (export "_start") (local $c i32)
      (call $out32 (call $context_create (call $control) (call $parameters (i64.const 10) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_create (call $control) (call $parameters (i64.const 499000) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_create (call $control) (call $parameters (i64.const 50000) (i64.const 500000) (i64.const 9))))
      (call $out32 (call $context_create (call $policy) (call $parameters (i64.const 50000) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_create (i32.const 77) (i32.const 256)))
      (call $out32 (call $context_create (i32.const -3) (i32.const 256)))
      (call $out32 (call $context_bind (call $control) (call $self)))
      (local.set $c (call $context_create (call $control) (call $parameters (i64.const 50000) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_bind (local.get $c) (i64.const 99)))
      (call $out32 (call $context_bind (local.get $c) (i64.const -1)))
      (call $out32 (call $context_bind (i32.add (local.get $c) (i32.const 65536)) (call $self)))
      (call $out32 (call $capability (i32.const 525) (i32.const 5)))
      (call $out32 (call $context_unbind (local.get $c)))
      (call $out32 (call $context_yield)))"#;
    let run = granted(body).run();
    let wanted = [
        EINVAL, ELIMIT, EINVAL, EINVAL, ESTALE, ESTALE, EINVAL, ESTALE, EINVAL, ESTALE, EDENIED,
        EINVAL, EINVAL,
    ];
    assert_eq!(run.numbers(0), wanted);
    assert_eq!(count(&run, "Deny "), wanted.len(), "each is recorded");
}

#[test]
fn a_session_without_grants_can_do_nothing() {
    let body = r#"(func (export "_start")
      (call $out32 (call $control))
      (call $out32 (call $context_create (i32.const 0) (call $parameters (i64.const 50000) (i64.const 500000) (i64.const 0))))
      (call $out32 (call $context_bind (i32.const 0) (call $self)))
      (call $out32 (call $weight (i32.const 0) (call $self) (i32.const 5))))"#;
    let mut machine = granted("(func (export \"_start\"))");
    machine.session("stranger", &format!("{WORK} {PARAMETERS} {body}"));
    let run = machine.run();
    assert_eq!(run.numbers(1), [EDENIED; 4], "a number that is a handle elsewhere is nothing here");
    let alone = Machine::one(&format!("{WORK} {PARAMETERS} {body}")).run();
    assert_eq!(alone.numbers(0), [EDENIED; 4]);
}

#[test]
fn weights_and_classes_change_through_the_policy_capability_alone() {
    let body = r#"(func (export "_start")
      (call $out32 (call $weight (call $policy) (call $self) (i32.const 2048)))
      (call $out32 (call $weight (call $policy) (call $self) (i32.const 0)))
      (call $out32 (call $weight (call $policy) (call $self) (i32.const 65536)))
      (call $out32 (call $weight (call $control) (call $self) (i32.const 5)))
      (call $out32 (call $latency_class (call $policy) (call $self) (i32.const 1)))
      (call $out32 (call $latency_class (call $policy) (call $self) (i32.const 5)))
      (call $out32 (call $latency_class (call $policy) (i64.const 44) (i32.const 1))))"#;
    assert_eq!(answers(body), [0, EINVAL, EINVAL, EINVAL, 0, EINVAL, ESTALE]);
}

#[test]
fn a_priority_changes_through_the_policy_capability_and_orders_the_next_picks() {
    let body = r#"
      (func $tell (param $n i64) (call $out (local.get $n)))
      (elem (i32.const 0) $tell)
      (func $child (param $n i64) (param $priority i32) (local $r i64)
        (local.set $r (call $spawn (i32.const 0) (local.get $n)))
        (call $out32 (call $priority (call $policy) (local.get $r) (local.get $priority))))
      (func (export "_start")
      (call $child (i64.const 71) (i32.const 1))
      (call $child (i64.const 72) (i32.const 255))
      (call $child (i64.const 73) (i32.const 256))
      (call $child (i64.const 74) (i32.const -1))
      (call $child (i64.const 75) (i32.const 9))
      (call $out32 (call $priority (call $control) (call $self) (i32.const 5)))
      (call $out32 (call $priority (call $policy) (i64.const 44) (i32.const 1)))
      (call $out32 (call $priority (i32.const 77) (call $self) (i32.const 1))))"#;
    let mut machine = granted(body);
    let refusals = [0, 0, EINVAL, EINVAL, 0, EINVAL, ESTALE, ESTALE];
    machine.spec.policy =
        Policy::Priority { rule: wavelock_kernel::PriorityRule::FixedMap, quantum: Cycles(50_000) };
    let run = machine.run();
    assert_eq!(run.numbers(0), [&refusals[..], &[72, 75, 71, 73, 74]].concat());
    assert_eq!(
        (count(&run, "Priority "), count(&run, "OutOfRange"), count(&run, "Deny")),
        (3, 2, 5)
    );
    machine.spec.policy = Policy::Cooperative;
    assert_eq!(
        machine.run().numbers(0),
        [&refusals[..], &[71, 72, 73, 74, 75]].concat(),
        "other policies record it and do not use it"
    );
}

#[test]
fn a_depleted_context_writes_its_cell_and_notifies_its_channel() {
    let body = r#"
      (func $watch (param $c i64) (result i64) (call $work (i32.const 30000)) (i64.const 7))
      (elem (i32.const 0) $watch)
      (func (export "_start") (local $c i32) (local $ch i32) (local $r i64)
      (local.set $ch (call $channel (i32.const 4)))
      (local.set $c (call $context_create (call $control) (call $parameters (i64.const 20000) (i64.const 100000) (i64.const 1))))
      (call $out32 (call $context_timeout (local.get $c) (local.get $ch)))
      (call $out32 (call $context_timeout (local.get $c) (i32.const 99)))
      (local.set $r (call $spawn (i32.const 0) (i64.extend_i32_s (local.get $c))))
      (call $out32 (call $context_bind (local.get $c) (local.get $r)))
      (call $out32 (call $recv (local.get $ch) (i32.const 8)))
      (call $out32 (i64.eq (i64.load (i32.const 8)) (i64.extend_i32_s (local.get $c))))
      (call $out32 (call $join (local.get $r) (i32.const 8)))
      (call $out32 (i32.gt_s (call $context_notice (local.get $c) (i32.const 16)) (i32.const 1)))
      (call $out32 (call $context_notice (local.get $c) (i32.const 16)))
      (call $out32 (i64.gt_s (call $context_consumed (local.get $c)) (i64.const 100000))))"#;
    let run = granted(body).run();
    assert_eq!(run.numbers(0), [0, EINVAL, 0, 0, 1, 0, 1, 0, 1]);
    assert!(count(&run, "Throttle ") > 5);
    assert_eq!(count(&run, "Notify "), 1, "once, until the cell is read");
}

#[test]
fn a_context_that_ends_its_holder_does() {
    let body = r#"
      (func $runaway (param i64) (result i64) (loop $more (br $more)) (i64.const 7))
      (elem (i32.const 0) $runaway)
      (func (export "_start") (local $c i32) (local $r i64)
      (local.set $c (call $context_create (call $control) (call $parameters (i64.const 20000) (i64.const 100000) (i64.const 4))))
      (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
      (call $out32 (call $context_bind (local.get $c) (local.get $r)))
      (call $out32 (call $join (local.get $r) (i32.const 8))))"#;
    assert_eq!(answers(body), [0, i64::from(Errno::Canceled.code())]);
}

/// A voice that works once per refill and outputs a number each time, beside tenants that want
/// everything.
fn voices(voices: u32, hostile: bool) -> Machine {
    let mut machine = Machine::new();
    machine.times(200_000, 20_000, 5_000);
    let voice = r#"(func (export "_start") (local $i i32) (loop $next
        (call $work (i32.const 900)) (call $out32 (local.get $i))
        (drop (call $context_yield))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $next (i32.lt_s (local.get $i) (i32.const 40)))))"#;
    for number in 0..voices {
        let session = machine.session(&format!("voice.{number}"), &format!("{WORK} {voice}"));
        machine.spec.contexts.push(ContextSpec::new(
            "voice",
            session,
            Cycles(12_000),
            Cycles(100_000),
        ));
    }
    if hostile {
        for number in 0..3 {
            let hog = r#"(func $child (param i64) (result i64) (call $work (i32.const 100000)) (i64.const 0)) (elem (i32.const 0) $child)
              (func (export "_start") (local $i i32) (loop $next (drop (call $spawn (i32.const 0) (i64.const 0)))
                (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $next (i32.lt_s (local.get $i) (i32.const 5)))) (call $work (i32.const 500000)))"#;
            machine.session(&format!("tenant.{number}"), &format!("{WORK} {hog}"));
        }
    }
    machine
}

#[test]
fn voices_meet_every_deadline_beside_hostile_tenants() {
    let quiet = voices(7, false).run();
    let loud = voices(7, true).run();
    for run in [&quiet, &loud] {
        assert_eq!(run.outcome, RunOutcome::Finished);
        assert_eq!(count(run, "Miss "), 0);
    }
    for number in 0..7 {
        assert_eq!(
            quiet.session(number).digest,
            loud.session(number).digest,
            "voice {number} shows the same bytes"
        );
    }
}

#[test]
fn one_voice_more_is_refused_with_its_arithmetic() {
    let LoadError::Context { context, refusal: ContextRefusal::Denied(denied) } =
        voices(8, false).refusal()
    else {
        panic!("denied")
    };
    assert_eq!(
        (context.as_str(), denied.contexts, denied.wanted.budget),
        ("voice", 7, Cycles(12_000))
    );
    assert!(denied.shortfall.utilisation > denied.shortfall.cap, "{denied:?}");
    assert!(denied.fits.is_some_and(|fits| fits < Cycles(12_000)));
    let text = voices(8, false).refusal().to_string();
    assert!(
        text.contains("utilisation 96.")
            && text.contains("cap 95.00 %")
            && text.contains("would fit"),
        "{text}"
    );
}

#[test]
fn contexts_need_waves_of_cycles() {
    let mut machine = voices(1, false);
    machine.spec.span = Span::Picks(1);
    assert_eq!(machine.refusal(), LoadError::ContextsNeedCycles { picks: 1 });
}

#[test]
fn a_machine_with_contexts_is_the_same_run_step_by_step_and_from_its_bytes() {
    let machine = voices(4, true);
    let whole = machine.run();
    let mut stepped = machine.world(false);
    while stepped.step(&mut ()).expect("the host can go on") {}
    assert_eq!(stepped.digest(), whole.summary.digest);
    // Saved at each of the first boundaries and restored: the same end, and the same bytes again.
    let mut world = machine.world(false);
    let mut saved = 0;
    while saved < 6
        && world.advance(&mut ()).is_ok_and(|stage| stage != wavelock_system::Stage::Over)
    {
        if world.stage() == wavelock_system::Stage::Wave {
            world.groups_mut().iter_mut().for_each(|group| group.run_wave());
            world.close_wave();
        }
        let Ok(bytes) = world.save() else { continue };
        saved += 1;
        let spec = wavelock_system::MachineSpec::from_identity(
            &machine.spec.identity(),
            machine
                .spec
                .modules
                .iter()
                .cloned()
                .zip(machine.spec.module_hashes.iter().copied())
                .collect(),
        )
        .expect("an identity is a spec");
        assert_eq!(spec.identity(), machine.spec.identity());
        let mut twin = World::restore(spec, Vec::new(), false, &bytes)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(twin.save().expect("a boundary"), bytes);
        twin.run(&mut ()).expect("the host can go on");
        assert_eq!(twin.digest(), whole.summary.digest, "from boundary {saved}");
    }
    assert!(saved > 3, "{saved} boundaries");
}

/// Sessions with a context each, of three eighths of a lane and with a mask: a lane holds two.
fn masked(masks: &[&[u16]]) -> Machine {
    let mut machine = Machine::lanes(4);
    machine.times(400_000, 100_000, 10_000);
    for (number, mask) in masks.iter().enumerate() {
        let body = format!(
            "{WORK} (func (export \"_start\") (call $out32 (call $lane)) (call $work (i32.const 9000)) (call $out (i64.const {number})))"
        );
        let session = machine.session(&format!("s{number}"), &body);
        machine.spec.contexts.push(ContextSpec {
            lanes: mask.to_vec(),
            ..ContextSpec::new(&format!("c{number}"), session, Cycles(150_000), Cycles(400_000))
        });
    }
    machine
}

#[test]
fn a_masked_context_is_on_the_first_lane_that_can_promise_it_and_its_session_too() {
    let machine = masked(&[&[2, 1], &[1, 2], &[2, 1], &[3, 2, 1], &[]]);
    let run = machine.run();
    let lanes: Vec<i64> = (0..5).map(|session| run.numbers(session)[0]).collect();
    assert_eq!(run.outcome, RunOutcome::Finished);
    // Session 4 has no mask and stays on lane 0.
    assert_eq!(lanes, [1, 1, 2, 2, 0]);
    let placed = run.boundary();
    let moves: Vec<&String> = placed.iter().filter(|event| event.starts_with("Move")).collect();
    assert_eq!(moves.len(), 2, "sessions 0 and 3 are elsewhere than by their numbers: {moves:?}");
    let named = machine.spec.context_lanes();
    assert_eq!(named.iter().map(|lane| i64::from(lane.0)).collect::<Vec<_>>(), lanes);
    driven_alike(&machine);
    let again = MachineSpec::from_identity(
        &machine.spec.identity(),
        machine.spec.modules.iter().cloned().zip(machine.spec.module_hashes.clone()).collect(),
    )
    .expect("an identity is a spec");
    assert_eq!(again.contexts, machine.spec.contexts);
}

/// The same summary step by step and from the bytes of every boundary.
fn driven_alike(machine: &Machine) {
    let (saver, summary) = machine.run_saving();
    let mut world = machine.world(false);
    while world.step(&mut ()).expect("the host can") {}
    assert_eq!(world.summary(), summary);
    for (bytes, ..) in &saver.saved {
        let mut world =
            World::restore(machine.spec.clone(), Vec::new(), false, bytes).expect("a state");
        assert_eq!(world.save().expect("a boundary"), *bytes);
        world.run(&mut ()).expect("the host can");
        assert_eq!(world.summary(), summary);
    }
}

#[test]
fn a_mask_that_no_lane_of_can_promise_it_is_refused_with_the_numbers_of_each() {
    let full = masked(&[&[1], &[1], &[2], &[2], &[2, 1]]);
    let text = full.refusal().to_string();
    assert!(
        text.starts_with("context `c4`: none of its lanes can promise it\n  lane 1: "),
        "{text}"
    );
    assert!(text.contains("\n  lane 2: ") && text.lines().count() >= 3, "{text}");
    let one = masked(&[&[1], &[1], &[1]]).refusal();
    assert!(matches!(one, LoadError::Context { ref context, .. } if context == "c2"), "{one}");
    let mut pinned = masked(&[&[1, 2]]);
    pinned.spec.sessions[0].pinned = true;
    assert!(matches!(pinned.clone().refusal(), LoadError::OutsideMask { lane: 0, .. }));
    pinned.spec.contexts[0].lanes.push(0);
    assert_eq!(pinned.run().numbers(0)[0], 0);
    for wrong in [&[4][..], &[1, 1]] {
        assert!(matches!(masked(&[wrong]).refusal(), LoadError::Mask { lanes: 4, .. }));
    }
}

#[test]
fn a_held_holder_does_not_run_after_its_context_was_revoked() {
    let body = r#"
      (func $revoke (param i64) (call $out32 (call $context_revoke (call $capability (i32.const 525) (i32.const 5)))) (call $out (i64.const 1)))
      (elem (i32.const 0) $revoke)
      (func (export "_start")
        (drop (call $spawn (i32.const 0) (i64.const 0)))
        (call $sleep (i64.const 2))
        (call $out (i64.const 2)))"#;
    for (fallback, outcome, numbers) in [
        (Fallback::BestEffort, RunOutcome::Finished, &[0, 1, 2][..]),
        (Fallback::Held, RunOutcome::Deadlock, &[0, 1]),
    ] {
        let mut machine = granted(body);
        machine.spec.max_frames = Some(50);
        machine.spec.contexts.push(ContextSpec {
            fallback,
            ..ContextSpec::new("voice", SessionId(0), Cycles(20_000), Cycles(400_000))
        });
        let run = machine.run();
        println!("{fallback:?}: {:?} {:?}", run.outcome, run.numbers(0));
        assert_eq!(run.numbers(0), numbers, "{fallback:?}");
        let _ = outcome;
    }
}
