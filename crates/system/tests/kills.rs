//! What a budget ends is killed and never called finished; what another coroutine cancels is
//! canceled (semantics 70 and 71). Kills keep their numbers in snapshots.

mod kit;

use kit::{Machine, Run};
use wavelock_abi::{Cycles, SessionId};
use wavelock_kernel::OverrunPolicy;
use wavelock_system::{ContextSpec, KillRule, RunOutcome, SessionOutcome, World};

/// Runs until its context ends it.
const ENDLESS: &str = r#"(func (export "_start") (loop $l (br $l)))"#;

/// The same, with a second coroutine that sleeps and outputs 7.
const TWO: &str = r#"
    (func $well (param i64) (result i64) (call $sleep (i64.const 4)) (call $out (i64.const 7)) (i64.const 0))
    (elem (i32.const 0) $well)
    (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (loop $l (br $l)))"#;

fn bounded(body: &str) -> Machine {
    let mut machine = Machine::one(body);
    machine.spec.max_frames = Some(20);
    machine.spec.contexts = vec![ContextSpec {
        overrun: OverrunPolicy::End,
        ..ContextSpec::new("audio", SessionId(0), Cycles(9_000), Cycles(100_000))
    }];
    machine
}

fn kills(run: &Run) -> Vec<(u32, Option<&str>)> {
    let kills = &run.session(0).kills;
    kills.iter().map(|(kill, name)| (kill.coroutine.slot, name.as_deref())).collect()
}

#[test]
fn a_session_that_its_context_ended_is_killed_with_the_numbers() {
    let run = bounded(ENDLESS).run();
    assert_eq!((run.outcome, run.session(0).outcome), (RunOutcome::Killed, SessionOutcome::Killed));
    assert_eq!((kills(&run), run.session(0).killed), (vec![(0, Some("audio"))], 1));
    let (kill, _) = &run.session(0).kills[0];
    assert_eq!((kill.rule, kill.budget, kill.frame.0), (KillRule::Context, Cycles(9_000), 0));
    assert!(kill.clock.0 >= 9_000 && kill.clock.0 < 20_000, "{kill:?}");
    let events = run.events(0);
    let told = format!(
        "Kill {{ session: 0, slot: 0, rule: 0, budget: 9000, overrun: {} }}",
        kill.overrun.0
    );
    assert_eq!(events.iter().filter(|event| **event == told).count(), 1, "{events:?}");
    assert!(events.iter().any(|event| event.contains("End { session: 0, slot: 0, status: 3")));
    assert!(!events.iter().any(|event| event.starts_with("Cancel")), "a kill is no cancellation");
}

#[test]
fn a_kill_of_the_first_coroutine_is_the_outcome_while_others_continue() {
    let run = bounded(TWO).run();
    assert_eq!((run.outcome, run.session(0).outcome), (RunOutcome::Killed, SessionOutcome::Killed));
    assert_eq!(run.numbers(0), [7], "the other coroutine ran to its end");
}

#[test]
fn a_kill_that_was_joined_is_handled() {
    // The context moves to the second coroutine, which it then ends; `rest` is what the first does.
    let body = |rest: &str| {
        format!(
            r#"(data (i32.const 512) "audio")
    (func $hog (param i64) (result i64) (loop $l (br $l)) (i64.const 0))
    (func $binds (param i64) (result i64) (local $audio i32)
      (local.set $audio (call $capability (i32.const 512) (i32.const 5)))
      (drop (call $context_unbind (local.get $audio)))
      (drop (call $context_bind (local.get $audio) (local.get 0))) (i64.const 0))
    (elem (i32.const 0) $hog $binds)
    (func (export "_start") (local $child i64)
      (local.set $child (call $spawn (i32.const 0) (i64.const 0)))
      (drop (call $spawn (i32.const 1) (local.get $child)))
      {rest})"#
        )
    };
    let joined =
        bounded(&body("(call $out32 (call $join (local.get $child) (i32.const 8)))")).run();
    assert_eq!(joined.session(0).outcome, SessionOutcome::Finished);
    assert_eq!((joined.outcome, kills(&joined)), (RunOutcome::Finished, vec![(1, Some("audio"))]));
    assert_eq!(joined.numbers(0), [i64::from(wavelock_abi::Errno::Canceled.code())]);
    let left = bounded(&body("(call $sleep (i64.const 3))")).run();
    assert_eq!(left.session(0).outcome, SessionOutcome::Killed, "nobody read how it ended");
}

#[test]
fn a_session_whose_first_coroutine_another_canceled_is_canceled() {
    let run = Machine::one(
        r#"
    (func $killer (param i64) (result i64) (drop (call $cancel (local.get 0))) (i64.const 0))
    (elem (i32.const 0) $killer)
    (func (export "_start")
      (drop (call $spawn (i32.const 0) (call $self))) (call $sleep (i64.const 100)))"#,
    )
    .run();
    assert_eq!(
        (run.outcome, run.session(0).outcome),
        (RunOutcome::Finished, SessionOutcome::Canceled)
    );
    let exits = Machine::one(
        r#"
    (func $leaves (param i64) (result i64) (call $proc_exit (i32.const 3)) (i64.const 0))
    (elem (i32.const 0) $leaves)
    (func (export "_start")
      (drop (call $spawn (i32.const 0) (i64.const 0))) (call $sleep (i64.const 100)))"#,
    )
    .run();
    let session = exits.session(0);
    assert_eq!(
        (session.outcome, session.exit),
        (SessionOutcome::Finished, 3),
        "an exit is no cancel"
    );
}

#[test]
fn a_kill_is_in_every_snapshot_after_it() {
    let mut machine = bounded(TWO);
    machine.spec.max_frames = Some(3);
    let (saver, summary) = machine.run_saving();
    assert_eq!(summary.sessions[0].killed, 1);
    let (state, ..) = saver.saved.last().expect("a boundary after the kill");
    let again = World::restore(machine.spec.clone(), Vec::new(), false, state).expect("own state");
    assert_eq!(again.save().as_ref(), Ok(state));
    assert_eq!(again.summary().sessions[0].kills, summary.sessions[0].kills);
    // The end of the outline has the kills: a state that is cut there is refused.
    let outline = again.outline().expect("a boundary");
    for cut in 1..60 {
        let bytes = &outline[..outline.len() - cut];
        assert!(World::restore_outline(machine.spec.clone(), Vec::new(), false, bytes).is_err());
    }
}
