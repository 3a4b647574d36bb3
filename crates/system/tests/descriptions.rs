//! Descriptions of machines that nobody would write: refused with words, or machines that run;
//! never a panic.
//!
//! Random ones are made by `describe`, which `checks` runs many more of. A failure prints its seed.

mod describe;
mod kit;

use describe::{Became, describe, describe_input};
use kit::Machine;
use wavelock_abi::{Cycles, SessionId};
use wavelock_system::{ContextSpec, Grant, GrantSpec, LoadError, Placement, RunOutcome};

#[test]
fn random_descriptions_are_refused_or_run() {
    let (mut refused, mut ran, mut calls) = (0, 0, 0);
    for seed in 0..400 {
        println!("seed {seed}");
        match describe(&describe_input(seed)) {
            Became::Refused => refused += 1,
            Became::Ran(made) => {
                ran += 1;
                calls += made;
            }
        }
    }
    println!("{refused} refused, {ran} ran {calls} host calls");
    assert!(
        refused > 40 && ran > 120 && calls > 40_000,
        "{refused} refused, {ran} ran {calls} host calls"
    );
}

/// Joining lanes in descending order once left the middle one in a group of its own: a coroutine
/// spawned there panicked.
#[test]
fn lanes_of_a_split_session_form_one_group_in_any_order() {
    let body = r#"(elem (i32.const 0) $work) (func $work (param i64) (result i64) (call $yield) (local.get 0))
        (func (export "_start") (local $i i32)
            (loop $l (drop (call $spawn_on (i32.const 0) (i64.const 1) (local.get $i)))
                (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4))))
            (drop (call $spawn (i32.const 0) (i64.const 2))) (call $sleep (i64.const 2)))"#;
    for lanes in [&[2, 1, 0][..], &[1, 2, 0], &[0, 1, 2], &[3, 1, 2, 0], &[3, 2], &[1, 3, 0]] {
        let mut machine = Machine::lanes(4);
        let session = machine.session("main", body);
        machine.split(session, lanes);
        assert_eq!(machine.world(false).groups().len(), 4 - (lanes.len() - 1), "{lanes:?}");
        assert_eq!(machine.run().outcome, RunOutcome::Finished, "{lanes:?}");
    }
}

/// Two sessions and a channel, with one thing changed.
fn refused(change: impl Fn(&mut Machine)) -> LoadError {
    let mut machine = Machine::lanes(2);
    let body = r#"(func (export "_start"))"#;
    let (one, two) = (machine.session("one", body), machine.session("two", body));
    machine.wire("line", one, 4, &[two]);
    assert!(machine.world(false).groups().len() == 2, "without the change it loads");
    change(&mut machine);
    machine.refusal()
}

#[test]
fn an_index_that_names_nothing_is_refused_by_name() {
    let text = |change: fn(&mut Machine)| refused(change).to_string();
    assert_eq!(
        text(|machine| machine.spec.sessions[1].module = 2),
        "session `two` names module 2: there are 2, counted from 0"
    );
    assert_eq!(
        text(|machine| machine.spec.sessions[1].ports[0].1 = 7),
        "port `line` of session `two` names channel 7: there are 1, counted from 0"
    );
    assert_eq!(
        text(|machine| machine.spec.channels[0].owner = SessionId(2)),
        "channel `line` names session 2: there are 2, counted from 0"
    );
    assert_eq!(
        text(|machine| {
            machine.spec.contexts.push(ContextSpec::new(
                "time",
                SessionId(9),
                Cycles(9_000),
                Cycles(400),
            ));
        }),
        "context `time` names session 9: there are 2, counted from 0"
    );
    assert_eq!(
        text(|machine| machine
            .spec
            .grants
            .push(GrantSpec { session: SessionId(u32::MAX), grant: Grant::Policy })),
        "a grant names session 4294967295: there are 2, counted from 0"
    );
    assert_eq!(
        text(|machine| {
            let _ = machine.input(3, SessionId(2), b"for nobody");
        }),
        "an input of frame 3 names session 2: there are 2, counted from 0"
    );
}

#[test]
fn a_session_has_lanes_and_each_of_them_once() {
    let lanes = |lanes: &'static [u16]| {
        refused(move |machine| {
            machine.spec.sessions[0].placement = Placement::Split(lanes.to_vec())
        })
        .to_string()
    };
    assert_eq!(lanes(&[]), "session `one` has lanes []: name at least one, and each once");
    assert_eq!(
        lanes(&[1, 0, 1]),
        "session `one` has lanes [1, 0, 1]: name at least one, and each once"
    );
    assert_eq!(lanes(&[0, 2]), "session `one` is on lane 2: there are lanes 0 to 1");
}
