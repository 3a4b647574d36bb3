//! Confluence: what a session shows the world does not depend on the schedule, as long as it does
//! not look at it.
//!
//! Random tame programs (`kit/random.rs`) have the same session digests under every policy, quantum
//! and lane placement. The twin shows that the claim is about something: the same programs with
//! `try_recv` or `select` in them do differ.

mod kit;

use kit::random::{Temper, machine};
use kit::{Choices, Machine};
use std::collections::BTreeSet;
use wavelock_abi::{Cycles, SCHEDULER_COSTS_V1};
use wavelock_system::{Placement, RunOutcome, Span};
use wavelock_trace::Digest;

/// What the sessions of a run show, and how it ended.
fn observables(machine: &Machine) -> (RunOutcome, Vec<Digest>) {
    let run = machine.run_lean();
    (run.outcome, run.summary.sessions.iter().map(|session| session.digest).collect())
}

/// The same machine under every policy, two quanta each, on one to four lanes with sessions placed
/// at random.
fn schedules(machine: &Machine, seed: u64) -> Vec<(String, Machine)> {
    let gap =
        machine.spec.modules.iter().map(|module| module.code().gap()).max().unwrap_or(Cycles::ZERO);
    let least = 2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0);
    let mut choices = Choices(seed);
    let mut made = Vec::new();
    for quantum in [least, 4_000] {
        for policy in kit::policies(Cycles(quantum.max(2_000))) {
            let mut machine = machine.clone();
            machine.spec.policy = policy;
            machine.spec.lanes = 1 + choices.below(4) as u16;
            machine.spec.frame_cycles = Cycles(20_000 + choices.below(100_000));
            let cycles = Cycles(least.max(4_000) + choices.below(20_000));
            machine.spec.span = if choices.one_in(4) {
                Span::Picks(1 + choices.below(2) as u32)
            } else {
                Span::Cycles(cycles)
            };
            machine.spec.handoff = choices.one_in(2);
            machine.spec.steal = choices.one_in(2);
            machine.spec.balance = choices.one_in(2);
            for session in &mut machine.spec.sessions {
                session.placement =
                    Placement::Lane(choices.below(u64::from(machine.spec.lanes)) as u16);
            }
            made.push((
                format!("{policy:?}, {} lanes, {:?}", machine.spec.lanes, machine.spec.span),
                machine,
            ));
        }
    }
    made
}

#[test]
fn schedule_confluence_holds_for_every_policy() {
    let mut messages = 0;
    for seed in 0..25 {
        let machine = machine(seed, Temper::Tame);
        let first = observables(&machine);
        assert_eq!(first.0, RunOutcome::Finished, "seed {seed}: tame programs end");
        for (schedule, machine) in schedules(&machine, seed) {
            assert_eq!(observables(&machine), first, "seed {seed}: {schedule}");
        }
        messages +=
            machine.run_lean().summary.sessions.iter().map(|session| session.messages).sum::<u64>();
    }
    assert!(messages > 200, "the programs do talk: {messages} messages");
}

/// How many different observables a machine shows over its schedules.
fn different(machine: &Machine, seed: u64) -> usize {
    let all: BTreeSet<Vec<Digest>> =
        schedules(machine, seed).iter().map(|(_, machine)| observables(machine).1).collect();
    all.len()
}

#[test]
fn try_recv_breaks_confluence() {
    let found = (0..25).find(|&seed| different(&machine(seed, Temper::TryRecv), seed) > 1);
    assert!(found.is_some(), "no program with try_recv showed its schedule");
}

#[test]
fn select_breaks_confluence() {
    let sender = |name: &str, turns: u32| {
        format!(
            r#"(data (i32.const 0) "{name}")
            (func (export "_start") (local $i i32) (local $k i32)
              (loop $l
                (local.set $k (i32.const {turns})) (loop $s (br_if $s (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
                (drop (call $send (call $port (i32.const 0) (i32.const 1)) (i64.const 1)))
                (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10)))))"#
        )
    };
    let chooser = r#"(func (export "_start") (local $n i32) (local $at i32)
      (i32.store (i32.const 96) (i32.const 0)) (i32.store (i32.const 100) (i32.const 1))
      (loop $l
        (local.set $at (call $select (i32.const 96) (i32.const 2)))
        (call $out32 (local.get $at))
        (drop (call $recv (local.get $at) (i32.const 8)))
        (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 12)))))"#;
    let mut machine = Machine::new();
    let owner = machine.session("chooser", chooser);
    let (a, b) = (machine.session("a", &sender("a", 300)), machine.session("b", &sender("b", 200)));
    machine.wire("a", owner, 2, &[a]);
    machine.wire("b", owner, 2, &[b]);
    assert!(different(&machine, 7) > 1, "no schedule changed what select chose");
}
