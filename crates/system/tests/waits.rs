//! Park and unpark, and waits for sessions (semantics 60, 61): wakes that come first, at the same
//! time, from another lane, or never; sessions that ended before, later, in the same wave, on any
//! lane; waits that are canceled; machines that move, stop and are restored meanwhile.

mod kit;

use kit::{Collected, Machine, numbers};
use wavelock_abi::{Errno, SessionId};
use wavelock_kernel::BlockReason;
use wavelock_system::{RunOutcome, WaitTarget, World};

const ECANCELED: i64 = Errno::Canceled.code() as i64;

/// A mutex and a condition built from park and unpark: each of three coroutines waits for its
/// number, and wakes the next.
#[test]
fn coroutines_take_turns_by_park_and_unpark() {
    let body = r#"
    (func $turn (param $n i64) (result i64)
      (loop $wait
        (if (i64.ne (i64.load (i32.const 8)) (local.get $n)) (then (drop (call $park)) (br $wait))))
      (call $out (local.get $n))
      (i64.store (i32.const 8) (i64.add (local.get $n) (i64.const 1)))
      (drop (call $unpark (i64.sub (i64.const 2) (local.get $n))))
      (local.get $n))
    (elem (i32.const 0) $turn)
    (func (export "_start")
      (drop (call $spawn (i32.const 0) (i64.const 2)))
      (drop (call $spawn (i32.const 0) (i64.const 1)))
      (call $yield)
      (drop (call $turn (i64.const 0)))
      (drop (call $join (i64.const 1) (i32.const -1)))
      (drop (call $join (i64.const 2) (i32.const -1))))"#;
    // Reference 2 has turn 1, reference 1 turn 2.
    assert_eq!(numbers(body), [0, 1, 2]);
}

#[test]
fn a_park_without_an_unpark_is_a_deadlock_that_names_its_session() {
    let run = Machine::one(r#"(func (export "_start") (drop (call $park)))"#).run();
    let deadlock = run.deadlock.expect("a deadlock");
    assert_eq!(
        (deadlock.waiting[0].reason, &deadlock.waiting[0].target),
        (BlockReason::Park, &WaitTarget::Unpark(SessionId(0)))
    );
    assert_eq!((deadlock.closed_set.len(), deadlock.cycle.len()), (1, 0));
}

#[test]
fn a_canceled_park_is_over_and_its_slot_starts_without_a_wake() {
    let body = r#"
    (func $parks (param i64) (drop (call $park)) (call $out (local.get 0)))
    (func $naps (param i64) (call $sleep (i64.const 9)))
    (elem (i32.const 0) $parks $naps)
    (func (export "_start") (local $r i64)
      (local.set $r (call $spawn (i32.const 0) (i64.const 1)))
      (call $yield)
      (drop (call $cancel (local.get $r)))
      (call $out32 (call $join (local.get $r) (i32.const -1)))
      ;; A wake that is kept ends with its coroutine.
      (local.set $r (call $spawn (i32.const 1) (i64.const 2)))
      (call $yield)
      (drop (call $unpark (local.get $r)))
      (drop (call $cancel (local.get $r)))
      (drop (call $join (local.get $r) (i32.const -1)))
      (local.set $r (call $spawn (i32.const 0) (i64.const 3)))
      (call $out (i64.and (local.get $r) (i64.const 0xffffffff)))
      (call $sleep (i64.const 2))
      (call $out (i64.const 4))
      (drop (call $unpark (local.get $r))))"#;
    assert_eq!(numbers(body), [ECANCELED, 1, 4, 3]);
}

/// Across lanes an unpark is decided at the wave's end: a coroutine that parks in the same wave
/// wakes then, one that parks later does not wait.
#[test]
fn an_unpark_from_another_lane_is_never_lost() {
    for work in [1, 50, 3_000, 40_000] {
        for parks_late in [0, 1] {
            let body = format!(
                r#"
            (func $busy (param $n i32)
              (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
            (func $far (param i64) (result i64)
              (if (i32.const {parks_late}) (then (call $busy (i32.const {work}))))
              (call $out32 (call $park)) (call $out32 (call $lane)) (i64.const 0))
            (elem (i32.const 0) $far)
            (func (export "_start") (local $r i64)
              (local.set $r (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 1)))
              (call $sleep (i64.const 1))
              (if (i32.eqz (i32.const {parks_late})) (then (call $busy (i32.const {work}))))
              (drop (call $unpark (local.get $r)))
              (call $out (i64.const 5))
              (drop (call $join (local.get $r) (i32.const -1))))"#
            );
            let mut machine = Machine::lanes(2);
            let session = machine.session("main", &body);
            machine.split(session, &[0, 1]).times(100_000, 10_000, 5_000);
            let run = machine.run();
            assert_eq!(run.outcome, RunOutcome::Finished, "{work} {parks_late}");
            let mut found = run.numbers(0);
            found.sort_unstable();
            assert_eq!(found, [0, 1, 5], "{work} {parks_late}");
        }
    }
}

/// A waiter and the session it waits for: `lanes` apart, the second ending after `frames`.
fn waiting_machine(lanes: u16, frames: u32) -> Machine {
    let mut machine = Machine::lanes(lanes);
    let waits = machine.session(
        "waits",
        r#"(data (i32.const 0) "a")
        (func $other (param i64) (call $out32 (call $session_wait (call $port (i32.const 0) (i32.const 1)) (i32.const 72))) (call $out (call $frame)))
        (elem (i32.const 0) $other)
        (func (export "_start")
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (drop (call $close (call $port (i32.const 0) (i32.const 1))))
          (call $out32 (call $session_wait (call $port (i32.const 0) (i32.const 1)) (i32.const 64)))
          (call $out (i64.load (i32.const 64))))"#,
    );
    let ends = machine.session(
        "ends",
        &format!(
            r#"(func (export "main") (result i32) (local $left i32)
              (local.set $left (i32.const {frames}))
              (loop $next (if (local.get $left) (then
                (call $sleep (i64.const 1))
                (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                (br $next))))
              (i32.const 40))"#
        ),
    );
    machine.wire("a", ends, 1, &[waits]);
    machine
}

#[test]
fn a_session_is_waited_for_on_the_same_lane_and_on_another() {
    for lanes in [1, 2] {
        for frames in [0, 3] {
            let run = waiting_machine(lanes, frames).run();
            let frames = i64::from(frames);
            assert_eq!(run.outcome, RunOutcome::Finished);
            assert_eq!(run.numbers(0), [0, 40, 0, frames], "{lanes} lanes, {frames} frames");
        }
    }
}

#[test]
fn a_machine_in_such_waits_is_restored() {
    let machine = waiting_machine(2, 5);
    let (saver, summary) = machine.run_saving();
    assert!(saver.saved.len() >= 4);
    for (at, (bytes, ..)) in saver.saved.iter().enumerate() {
        let mut world =
            World::restore(machine.spec.clone(), Vec::new(), false, bytes).expect("a state");
        assert_eq!(world.save().expect("a boundary"), *bytes, "boundary {at}");
        world.run(&mut Collected::default()).expect("the host can");
        assert_eq!(world.summary(), summary, "boundary {at}");
    }
}

/// Bytes of a state in which the flags of a coroutine or its wait are impossible are refused.
#[test]
fn a_forged_wait_is_refused_or_harmless() {
    let machine = waiting_machine(2, 5);
    let (saver, _) = machine.run_saving();
    let bytes = &saver.saved[1].0;
    let mut refused = 0;
    for at in 0..bytes.len().min(8_000) {
        let mut forged = bytes.clone();
        forged[at] ^= 0x0e;
        match World::restore(machine.spec.clone(), Vec::new(), false, &forged) {
            Err(_) => refused += 1,
            Ok(mut world) => {
                for _ in 0..40 {
                    if !world.step(&mut ()).unwrap_or(false) {
                        break;
                    }
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn a_wait_for_a_session_ends_with_its_coroutine() {
    let waiter = r#"(data (i32.const 0) "a")
    (func $other (param i64) (call $out32 (call $session_wait (call $port (i32.const 0) (i32.const 1)) (i32.const -1))))
    (elem (i32.const 0) $other)
    (func (export "_start") (local $n i32) (local $r i64)
      (local.set $n (i32.const 20))
      (loop $again
        (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
        (call $sleep (i64.const 1))
        (drop (call $cancel (local.get $r)))
        (drop (call $join (local.get $r) (i32.const -1)))
        (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (call $out (i64.const 1)))"#;
    let mut machine = Machine::lanes(2);
    let waits = machine.session("waits", waiter);
    let ends = machine.session("ends", r#"(func (export "_start") (call $sleep (i64.const 60)))"#);
    machine.wire("a", ends, 1, &[waits]);
    let run = machine.run();
    assert_eq!((run.outcome, run.numbers(0)), (RunOutcome::Finished, vec![1]));
}

#[test]
fn two_sessions_that_wait_for_each_other_are_a_named_deadlock() {
    let body = r#"(data (i32.const 0) "p")
    (func (export "_start") (drop (call $session_wait (call $port (i32.const 0) (i32.const 1)) (i32.const -1))))"#;
    let mut machine = Machine::lanes(2);
    let (one, two) = (machine.session("one", body), machine.session("two", body));
    let (first, second) =
        (machine.spec.add_channel("c1", one, 1), machine.spec.add_channel("c2", two, 1));
    machine.spec.sessions[0].ports.push(("p".into(), second));
    machine.spec.sessions[1].ports.push(("p".into(), first));
    let run = machine.run();
    let deadlock = run.deadlock.expect("a deadlock");
    assert_eq!(deadlock.waiting[0].target, WaitTarget::Session(two));
    assert_eq!((deadlock.closed_set, deadlock.cycle), (vec![0, 1], vec![0, 1]));
}
