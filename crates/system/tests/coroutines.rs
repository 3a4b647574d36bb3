//! Coroutines and sessions (semantics 8 to 13): how they begin, end and are waited for, their
//! limits, faults, random streams; deadlocks named.

mod kit;

use kit::{Machine, Run, numbers};
use wavelock_abi::{Cycles, Errno, FaultCode};
use wavelock_kernel::BlockReason;
use wavelock_system::{LoadError, RunOutcome, SessionOutcome, WaitTarget, World};

const ESTALE: i64 = Errno::Stale.code() as i64;
const ELIMIT: i64 = Errno::Limit.code() as i64;
const ECANCELED: i64 = Errno::Canceled.code() as i64;

#[test]
fn start_then_initialize_then_the_entry_run_in_the_first_coroutine() {
    for entry in ["_start", "main"] {
        let body = format!(
            r#"(func $s (call $out (i64.const 1)) (call $out (call $self)) (call $yield))
            (func (export "_initialize") (call $out (i64.const 2)) (call $out (call $self)))
            (func (export "{entry}") (call $out (i64.const 3)) (call $out (call $self)))
            (start $s)"#
        );
        assert_eq!(numbers(&body), [1, 0, 2, 0, 3, 0]);
    }
    let both = r#"(func (export "main") (result i32) (call $out (i64.const 4)) (i32.const 0)) (func (export "_start") (call $out (i64.const 5)))"#;
    assert_eq!(numbers(both), [5], "_start goes before main");
}

#[test]
fn the_start_function_is_metered_and_may_trap_or_never_end() {
    let mut endless =
        Machine::one(r#"(func $s (loop $l (br $l))) (start $s) (func (export "_start"))"#);
    endless.spec.max_frames = Some(3);
    let run = endless.run();
    assert_eq!((run.outcome, run.summary.frames), (RunOutcome::Frames, 3));
    let run = Machine::one(
        r#"(func $s unreachable) (start $s) (func (export "_start") (call $out (i64.const 1)))"#,
    )
    .run();
    assert_eq!(
        (run.outcome, run.session(0).outcome, run.numbers(0).len()),
        (RunOutcome::Faulted, SessionOutcome::Faulted, 0)
    );
    let yields =
        Machine::one(r#"(func $s (call $sleep (i64.const 2))) (start $s) (func (export "_start") (call $out (call $frame)))"#).run();
    assert_eq!(yields.numbers(0), [2]);
}

#[test]
fn an_entry_that_cannot_be_called_is_refused_at_load() {
    let locals = "(local i64)".repeat(100);
    let mut machine = Machine::one(&format!(
        r#"(func $s) (start $s) (func (export "_start") {locals} (call $out (i64.const 1)))"#
    ));
    machine.spec.limits.stack_bytes = 512;
    assert!(
        matches!(machine.refusal(), LoadError::Start { .. }),
        "the second entry is checked too"
    );
}

#[test]
fn a_child_too_large_for_the_stack_limit_is_refused() {
    let locals = "(local i64)".repeat(100);
    let mut machine = Machine::one(&format!(
        r#"(func $child (param i64) {locals}) (elem (i32.const 0) $child) (func (export "_start") (call $out (call $spawn (i32.const 0) (i64.const 0))))"#
    ));
    machine.spec.limits.stack_bytes = 512;
    assert_eq!(machine.run().numbers(0), [ELIMIT]);
}

#[test]
fn named_globals_belong_to_each_coroutine() {
    let body = r#"
    (global $mine (export "mine") (mut i64) (i64.const 10)) (global $shared (mut i64) (i64.const 10))
    (func $bump (global.set $mine (i64.add (global.get $mine) (i64.const 1))) (global.set $shared (i64.add (global.get $shared) (i64.const 1))))
    (func $child (param i64) (call $bump) (call $yield) (call $bump) (call $out (global.get $mine)) (call $out (global.get $shared)))
    (elem (i32.const 0) $child)
    (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $spawn (i32.const 0) (i64.const 0)))
      (call $bump) (call $yield) (call $yield) (call $yield) (call $out (global.get $mine)) (call $out (global.get $shared)))"#;
    let mut machine = Machine::one(body);
    machine.spec.sessions[0].coroutine_globals = vec!["mine".into()];
    assert_eq!(machine.run().numbers(0), [12, 14, 12, 15, 11, 15]);
    // The first named global that can hold a pointer counts as the stack pointer: a plain spawn
    // begins it at 0.
    let mut pointer = Machine::one(
        &body
            .replace("i64) (i64.const 10)) (global $shared", "i32) (i32.const 10)) (global $shared")
            .replace(
                "(global.set $mine (i64.add (global.get $mine) (i64.const 1)))",
                "(global.set $mine (i32.add (global.get $mine) (i32.const 1)))",
            )
            .replace("(call $out (global.get $mine))", "(call $out32 (global.get $mine))"),
    );
    pointer.spec.sessions[0].coroutine_globals = vec!["mine".into()];
    assert_eq!(pointer.run().numbers(0), [2, 14, 2, 15, 11, 15]);
    let mut missing = Machine::one(body);
    missing.spec.sessions[0].coroutine_globals = vec!["nowhere".into()];
    assert!(matches!(missing.refusal(), LoadError::NoGlobal { global, .. } if global == "nowhere"));
}

#[test]
fn every_waiting_joiner_gets_the_result_in_order_and_later_ones_are_stale() {
    let body = r#"
    (func $slow (param i64) (result i64) (call $sleep (i64.const 2)) (i64.const 42))
    (func $joiner (param i64) (local $cell i32)
      (local.set $cell (i32.add (i32.const 100) (i32.shl (i32.wrap_i64 (local.get 0)) (i32.const 3))))
      (call $out (local.get 0)) (call $out32 (call $join (i64.const 1) (local.get $cell))) (call $out (i64.load (local.get $cell))))
    (elem (i32.const 0) $slow $joiner)
    (func (export "_start")
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (drop (call $spawn (i32.const 1) (i64.const 1))) (drop (call $spawn (i32.const 1) (i64.const 2))) (drop (call $spawn (i32.const 1) (i64.const 3)))
      (call $sleep (i64.const 3))
      (call $out32 (call $join (i64.const 1) (i32.const 8))))"#;
    assert_eq!(numbers(body), [1, 2, 3, 0, 42, 0, 42, 0, 42, ESTALE]);
}

#[test]
fn slots_are_used_again_with_the_next_generation() {
    let body = r#"
    (func $child (param i64))
    (elem (i32.const 0) $child)
    (func $round (local $r i64) (local.set $r (call $spawn (i32.const 0) (i64.const 0))) (call $out (local.get $r)) (drop (call $join (local.get $r) (i32.const -1))))
    (func (export "_start") (call $round) (call $round) (call $round)
      (call $out32 (call $join (i64.const 1) (i32.const -1))) (call $out32 (call $cancel (i64.const 0x100000001))))"#;
    assert_eq!(numbers(body), [1, 0x1_0000_0001, 0x2_0000_0001, ESTALE, ESTALE]);
}

#[test]
fn ended_coroutines_count_until_joined_or_detached() {
    let body = r#"
    (func $child (param i64))
    (elem (i32.const 0) $child)
    (func $try (result i64) (call $spawn (i32.const 0) (i64.const 0)))
    (func (export "_start")
      (call $out (call $try)) (call $out (call $try)) (call $out (call $try))
      (call $yield) (call $yield)
      (call $out (call $try))
      (call $out32 (call $join (i64.const 1) (i32.const -1))) (call $out (call $try))
      (call $out32 (call $detach (i64.const 2))) (call $out (call $try)) (call $out (call $try)))"#;
    let mut machine = Machine::one(body);
    machine.spec.limits.coroutines = 3;
    let run = machine.run();
    assert_eq!(run.numbers(0), [1, 2, ELIMIT, ELIMIT, 0, 0x1_0000_0001, 0, 0x1_0000_0002, ELIMIT]);
    assert!(run.session(0).peak <= 3);
}

#[test]
fn a_session_can_have_limits_of_its_own() {
    let body = r#"
    (func $child (param i64))
    (elem (i32.const 0) $child)
    (func $try (result i64) (call $spawn (i32.const 0) (i64.const 0)))
    (func (export "_start")
      (call $out (call $try)) (call $out (call $try)) (call $sleep (i64.const 2))
      (call $out (call $try))
      (call $out32 (memory.grow (i32.const 2)))
      (call $out32 (call $channel (i32.const 1))) (call $out32 (call $channel (i32.const 1))))"#;
    let mut machine = Machine::new();
    machine.session("plain", body);
    let own = machine.session("own", body);
    let limits = &mut machine.spec.sessions[own.0 as usize].limits;
    (limits.coroutines, limits.memory_pages, limits.channels) = (Some(3), Some(2), Some(1));
    let run = machine.run();
    assert_eq!(run.numbers(0), [1, 2, 3, 1, 0, 1]);
    assert_eq!(run.numbers(1), [1, 2, ELIMIT, -1, 0, ELIMIT]);
    // They may be larger than the machine's too.
    machine.spec.limits.coroutines = 1;
    let run = machine.run();
    assert_eq!(run.numbers(0)[..3], [ELIMIT; 3]);
    assert_eq!(run.numbers(1)[..3], [1, 2, ELIMIT]);
    // A run is restored with them.
    let (saver, whole) = machine.run_saving();
    assert!(!saver.saved.is_empty());
    for (bytes, ..) in &saver.saved {
        let mut world = World::restore(machine.spec.clone(), Vec::new(), false, bytes).unwrap();
        world.run(&mut ()).expect("the host can go on");
        assert_eq!(world.summary(), whole);
    }
    // What one session may not have, it is refused by its name.
    machine.spec.sessions[own.0 as usize].limits.memory_pages = Some(0);
    let refusal = machine.refusal().to_string();
    assert!(refusal.contains("session `own`") && refusal.contains("memory_pages"), "{refusal}");
}

#[test]
fn output_and_stacks_are_limited_by_session() {
    let body = r#"
    (func $deep (param i64) (result i64)
      (i64.add (call $deep (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
    (func (export "_start")
      (drop (call $output (i32.const 0) (i32.const 20)))
      (drop (call $output (i32.const 0) (i32.const 20)))
      (drop (call $deep (i64.const 0))))"#;
    let mut machine = Machine::new();
    let sessions = ["plain", "own"].map(|name| machine.session(name, body));
    let limits = &mut machine.spec.sessions[sessions[1].0 as usize].limits;
    (limits.output_bytes, limits.stack_bytes) = (Some(30), Some(4_096));
    let run = machine.run();
    assert_eq!([0, 1].map(|session| run.bytes(session).len()), [40, 20]);
    let cycles = [0, 1].map(|session| run.session(session).cycles.0);
    assert!(cycles[0] > 50 * cycles[1], "the smaller stack is exhausted earlier: {cycles:?}");
    let faults = [0, 1].map(|session| run.session(session).faults[0].code);
    assert_eq!(faults, [FaultCode::StackExhausted; 2]);
}

/// One child that traps, and what the first coroutine does about it.
fn with_fault(about: &str) -> Run {
    Machine::one(&format!(
        r#"(func $traps (param i64) (call $yield) (drop (i32.div_s (i32.const 1) (i32.const 0))))
        (func $helper (param i64) (call $out32 (call $join (i64.const 1) (i32.const -1))))
        (elem (i32.const 0) $traps $helper)
        (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) {about})"#
    ))
    .run()
}

#[test]
fn a_session_is_faulted_when_a_fault_was_never_joined() {
    let verdict = |about: &str| {
        let run = with_fault(about);
        assert_eq!(
            (run.session(0).faulted, run.session(0).faults[0].code),
            (1, FaultCode::IntegerDivideByZero)
        );
        assert_eq!(
            run.outcome == RunOutcome::Faulted,
            run.session(0).outcome == SessionOutcome::Faulted
        );
        run.session(0).outcome
    };
    assert_eq!(verdict(""), SessionOutcome::Faulted);
    assert_eq!(
        verdict("(drop (call $join (i64.const 1) (i32.const -1)))"),
        SessionOutcome::Finished
    );
    assert_eq!(
        verdict("(call $sleep (i64.const 1)) (drop (call $join (i64.const 1) (i32.const -1)))"),
        SessionOutcome::Finished
    );
    assert_eq!(
        verdict("(drop (call $detach (i64.const 1)))"),
        SessionOutcome::Faulted,
        "nobody joined it"
    );
    assert_eq!(
        verdict("(call $sleep (i64.const 1)) (drop (call $detach (i64.const 1)))"),
        SessionOutcome::Faulted
    );
    let joined_and_detached = "(drop (call $spawn (i32.const 1) (i64.const 0))) (call $yield) (drop (call $detach (i64.const 1)))";
    assert_eq!(
        verdict(joined_and_detached),
        SessionOutcome::Finished,
        "one waited for it, and knows"
    );
    assert_eq!(
        verdict("(call $sleep (i64.const 1)) (call $proc_exit (i32.const 0))"),
        SessionOutcome::Faulted
    );
}

#[test]
fn the_first_coroutines_fault_makes_the_session_faulted_and_others_continue() {
    let body = r#"
    (func $child (param i64) (drop (call $join (i64.const 0) (i32.const -1))) (call $sleep (i64.const 2)) (call $out (i64.const 8)))
    (elem (i32.const 0) $child)
    (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (call $yield) unreachable)"#;
    let run = Machine::one(body).run();
    assert_eq!(
        (run.outcome, run.session(0).outcome),
        (RunOutcome::Faulted, SessionOutcome::Faulted),
        "even when it was joined"
    );
    assert_eq!(run.numbers(0), [8]);
}

#[test]
fn faults_have_positions_and_only_the_first_are_kept_in_full() {
    let body = r#"
    (func $traps (param i64) (drop (i32.load (i32.const -4))))
    (elem (i32.const 0) $traps)
    (func (export "_start") (local $i i32)
      (loop $l (drop (call $spawn (i32.const 0) (i64.const 0))) (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 40)))))"#;
    let machine = Machine::one(body);
    let traps = machine.spec.modules[0].imported_functions() + 2;
    let run = machine.run();
    let session = run.session(0);
    assert_eq!((session.faulted, session.faults.len()), (40, 16));
    for (at, fault) in session.faults.iter().enumerate() {
        assert_eq!(
            (fault.code, fault.function, fault.coroutine.slot),
            (FaultCode::MemoryOutOfBounds, traps, at as u32 + 1)
        );
        assert_eq!(fault.offset, session.faults[0].offset);
    }
}

#[test]
fn a_canceled_waiter_runs_no_more_code() {
    let body = r#"
    (func $waits (param i64) (drop (call $recv (i32.const 0) (i32.const 8))) (call $out (i64.const -1)))
    (elem (i32.const 0) $waits)
    (func (export "_start") (local $r i64)
      (drop (call $channel (i32.const 1)))
      (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
      (call $yield)
      (drop (call $send (i32.const 0) (i64.const 5)))
      ;; Its message is on the way to it: canceled now, it takes the message along and never runs.
      (drop (call $cancel (local.get $r)))
      (call $out32 (call $join (local.get $r) (i32.const -1)))
      (call $sleep (i64.const 1)))"#;
    assert_eq!(numbers(body), [ECANCELED]);
}

#[test]
fn the_first_coroutine_may_end_before_the_others() {
    let body = r#"
    (func $child (param i64) (call $sleep (i64.const 3)) (call $out (call $frame)))
    (elem (i32.const 0) $child)
    (func (export "main") (result i32) (drop (call $spawn (i32.const 0) (i64.const 0))) (i32.const 6))"#;
    let run = Machine::one(body).run();
    assert_eq!(
        (run.outcome, run.numbers(0), run.session(0).exit),
        (RunOutcome::Finished, vec![3], 6)
    );
}

#[test]
fn random_numbers_follow_the_tree_under_every_schedule() {
    // A tree of depth two; each coroutine puts its number at a place of its own, and the first
    // outputs them all.
    let body = r#"
    (func $leaf (param i64) (result i64)
      (call $yield) (i64.store (i32.add (i32.const 1000) (i32.shl (i32.wrap_i64 (local.get 0)) (i32.const 3))) (call $random)) (i64.const 0))
    (func $branch (param i64) (result i64) (local $a i64) (local $b i64)
      (local.set $a (call $spawn (i32.const 0) (i64.add (local.get 0) (i64.const 1)))) (call $yield)
      (local.set $b (call $spawn (i32.const 0) (i64.add (local.get 0) (i64.const 2))))
      (drop (call $leaf (local.get 0))) (drop (call $join (local.get $a) (i32.const -1))) (drop (call $join (local.get $b) (i32.const -1))) (i64.const 0))
    (elem (i32.const 0) $leaf $branch)
    (func (export "_start") (local $a i64) (local $b i64)
      (local.set $a (call $spawn (i32.const 1) (i64.const 0))) (local.set $b (call $spawn (i32.const 1) (i64.const 3)))
      (drop (call $join (local.get $a) (i32.const -1))) (drop (call $join (local.get $b) (i32.const -1)))
      (drop (call $output (i32.const 1000) (i32.const 48))))"#;
    let first = Machine::one(body).run().numbers(0);
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
    for policy in kit::policies(Cycles(2_000)) {
        let mut machine = Machine::one(body);
        machine.spec.policy = policy;
        assert_eq!(machine.run().numbers(0), first, "{policy:?}");
    }
}

const RECEIVES: &str =
    r#"(func (export "_start") (drop (call $recv (i32.const 0) (i32.const 8))))"#;

#[test]
fn a_deadlock_of_sessions_is_named_with_its_smallest_closed_set_and_cycle() {
    for lanes in 1..=3 {
        let mut machine = Machine::lanes(lanes);
        let (waits, a, b) = (
            machine.session("bystander", RECEIVES),
            machine.session("a", RECEIVES),
            machine.session("b", RECEIVES),
        );
        machine.wire("to_bystander", waits, 1, &[a]);
        machine.wire("to_a", a, 1, &[b]);
        machine.wire("to_b", b, 1, &[a]);
        let run = machine.run();
        let deadlock = run.deadlock.as_ref().expect("a deadlock");
        assert_eq!((run.outcome, deadlock.waiting.len()), (RunOutcome::Deadlock, 3));
        let named: Vec<u32> = deadlock
            .closed_set
            .iter()
            .map(|&at| deadlock.waiting[at].coroutine.session.0)
            .collect();
        assert_eq!(named, [1, 2], "the bystander waits too, and is not why");
        assert_eq!(deadlock.cycle, deadlock.closed_set, "a for b, b for a");
        assert!(
            deadlock.waiting.iter().all(|waiting| waiting.reason == BlockReason::ChannelReceive)
        );
        assert_eq!(run.session(1).outcome, SessionOutcome::Deadlock);
        assert!(run.boundary().contains(&"Deadlock { waiting: 3 }".to_owned()));
    }
}

#[test]
fn a_cycle_of_joins_is_exactly_that_cycle() {
    let body = r#"
    (func $joins (param i64) (drop (call $join (local.get 0) (i32.const -1))))
    (elem (i32.const 0) $joins)
    (func (export "_start")
      (drop (call $spawn (i32.const 0) (i64.const 2))) (drop (call $spawn (i32.const 0) (i64.const 3))) (drop (call $spawn (i32.const 0) (i64.const 1)))
      (drop (call $join (i64.const 1) (i32.const -1))))"#;
    let run = Machine::one(body).run();
    let deadlock = run.deadlock.expect("a deadlock");
    let slots = |list: &[usize]| -> Vec<u32> {
        list.iter().map(|&at| deadlock.waiting[at].coroutine.reference.slot).collect()
    };
    assert_eq!(
        (slots(&deadlock.closed_set), slots(&deadlock.cycle)),
        (vec![1, 2, 3], vec![1, 2, 3])
    );
    assert!(
        deadlock.waiting.iter().all(|waiting| matches!(waiting.target, WaitTarget::Coroutine(_)))
    );
}

/// Philosophers as coroutines of one session; forks are channels with one token. `last` takes its
/// forks the other way round, or not.
fn philosophers(count: u32, last_is_left_handed: bool) -> Run {
    let body = format!(
        r#"(func $take (param i32) (drop (call $recv (local.get 0) (i32.add (i32.const 800) (i32.shl (local.get 0) (i32.const 3))))))
        (func $eat (param i64) (local $left i32) (local $right i32) (local $meals i32)
          (local.set $left (i32.wrap_i64 (local.get 0))) (local.set $right (i32.rem_u (i32.add (local.get $left) (i32.const 1)) (i32.const {count})))
          (if (i32.and (i32.const {swap}) (i32.eqz (local.get $right))) (then (local.set $right (local.get $left)) (local.set $left (i32.const 0))))
          (loop $again
            (call $take (local.get $left)) (call $sleep (i64.const 1)) (call $take (local.get $right))
            (drop (call $send (local.get $left) (i64.const 1))) (drop (call $send (local.get $right) (i64.const 1)))
            (br_if $again (i32.lt_u (local.tee $meals (i32.add (local.get $meals) (i32.const 1))) (i32.const 3)))))
        (elem (i32.const 0) $eat)
        (func (export "_start") (local $i i32)
          (loop $l (drop (call $channel (i32.const 1))) (drop (call $send (local.get $i) (i64.const 1)))
            (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count}))))
          (local.set $i (i32.const 0))
          (loop $s (drop (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $i))))
            (br_if $s (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count})))))"#,
        swap = u32::from(last_is_left_handed)
    );
    Machine::one(&body).run()
}

#[test]
fn dining_philosophers_deadlock_and_are_named_unless_one_is_left_handed() {
    let run = philosophers(5, false);
    let deadlock = run.deadlock.as_ref().expect("a deadlock");
    assert_eq!(
        (run.outcome, deadlock.waiting.len(), deadlock.closed_set.len()),
        (RunOutcome::Deadlock, 5, 5)
    );
    assert!(deadlock.cycle.len() >= 2, "each could be fed by another only: {:?}", deadlock.cycle);
    assert_eq!(philosophers(5, true).outcome, RunOutcome::Finished);
}

#[test]
fn a_ring_of_sessions_is_named_in_order_and_one_alone_has_no_cycle() {
    let mut machine = Machine::lanes(2);
    let ring: Vec<_> = (0..4).map(|at| machine.session(&format!("s{at}"), RECEIVES)).collect();
    for at in 0..4 {
        machine.wire(&format!("to{at}"), ring[at], 1, &[ring[(at + 1) % 4]]);
    }
    let deadlock = machine.run().deadlock.expect("a deadlock");
    assert_eq!(deadlock.cycle, [0, 1, 2, 3]);
    let alone = Machine::one(r#"(func (export "_start") (drop (call $recv (call $channel (i32.const 1)) (i32.const 8))))"#).run();
    let deadlock = alone.deadlock.expect("a deadlock");
    assert_eq!((deadlock.closed_set, deadlock.cycle), (vec![0], vec![]));
}

#[test]
fn a_machine_that_sleeps_or_has_input_left_is_not_in_a_deadlock() {
    let mut machine = Machine::new();
    let waits = machine.session("waits", RECEIVES);
    let later = machine
        .session("later", r#"(func (export "_start") (call $sleep (i64.const 500)) (drop (call $send (i32.const 0) (i64.const 1))))"#);
    machine.wire("in", waits, 1, &[later]);
    assert_eq!(machine.run().outcome, RunOutcome::Finished);
    let reads = r#"(func (export "_start") (i32.store (i32.const 4) (i32.const 8))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))) (call $out (call $frame)))"#;
    let mut machine = Machine::one(reads);
    machine.input(300, wavelock_abi::SessionId(0), b"x");
    assert_eq!(machine.run().numbers(0), [300]);
}

#[test]
fn outcomes_have_an_order_faulted_deadlock_frames_finished() {
    let (well, faults) = (r#"(func (export "_start"))"#, r#"(func (export "_start") unreachable)"#);
    let exits = r#"(func (export "_start") (call $proc_exit (i32.const 3)))"#;
    let stuck = r#"(func (export "_start") (drop (call $recv (call $channel (i32.const 1)) (i32.const 8))))"#;
    let endless = r#"(func (export "_start") (loop $l (call $sleep (i64.const 1)) (br $l)))"#;
    let half = r#"(func $t (param i64) unreachable) (elem (i32.const 0) $t)
      (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (loop $l (call $sleep (i64.const 1)) (br $l)))"#;
    let outcome = |bodies: &[&str]| {
        let mut machine = Machine::lanes(2);
        for (at, body) in bodies.iter().enumerate() {
            machine.session(&format!("s{at}"), body);
        }
        machine.spec.max_frames = Some(5);
        let run = machine.run();
        (
            run.outcome,
            run.summary.sessions.iter().map(|session| session.outcome).collect::<Vec<_>>(),
        )
    };
    use SessionOutcome as S;
    assert_eq!(
        outcome(&[well, exits]),
        (RunOutcome::Finished, vec![S::Finished, S::Finished]),
        "a nonzero exit is no fault"
    );
    assert_eq!(outcome(&[well, endless]), (RunOutcome::Frames, vec![S::Finished, S::Running]));
    assert_eq!(
        outcome(&[stuck, endless]),
        (RunOutcome::Frames, vec![S::Running, S::Running]),
        "something sleeps, so nothing is proved"
    );
    assert_eq!(outcome(&[well, stuck]), (RunOutcome::Deadlock, vec![S::Finished, S::Deadlock]));
    assert_eq!(outcome(&[faults, stuck]), (RunOutcome::Faulted, vec![S::Faulted, S::Deadlock]));
    assert_eq!(outcome(&[faults, endless]), (RunOutcome::Faulted, vec![S::Faulted, S::Running]));
    assert_eq!(
        outcome(&[well, half]),
        (RunOutcome::Faulted, vec![S::Finished, S::Faulted]),
        "a fault that nobody joined before the end"
    );
}

#[test]
fn references_do_not_depend_on_other_sessions() {
    let body = r#"
    (func $child (param i64) (result i64) (call $random))
    (elem (i32.const 0) $child)
    (func (export "_start") (local $r i64)
      (local.set $r (call $spawn (i32.const 0) (i64.const 0))) (call $out (local.get $r))
      (drop (call $join (local.get $r) (i32.const 8))) (call $out (i64.load (i32.const 8)))
      (call $out (call $spawn (i32.const 0) (i64.const 0))) (call $out32 (call $channel (i32.const 1))))"#;
    let alone = Machine::one(body).run();
    let mut crowd = Machine::new();
    for at in 0..7 {
        crowd.session(&format!("other{at}"), body);
    }
    crowd.session("main", body);
    let run = crowd.run();
    assert_eq!(run.numbers(7), alone.numbers(0));
    assert_eq!(run.session(7).digest, alone.session(0).digest);
}
