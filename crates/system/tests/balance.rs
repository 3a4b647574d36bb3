//! Balance at a frame's end (semantics 14): whole sessions, from the busiest lane to the idlest,
//! bounded, and in the trace.

mod kit;

use kit::Machine;
use wavelock_abi::{SchedulerOperation, Weight};
use wavelock_system::{RunOutcome, World};
use wavelock_trace::{Event, EventReader};

/// Counts to `turns` and outputs it.
fn counter(turns: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32)
          (loop $l
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $l (i32.lt_u (local.get $i) (i32.const {turns}))))
          (call $out32 (local.get $i)))"#
    )
}

/// Six sessions on two lanes: those of lane 0 are long, those of lane 1 are over in the first
/// frame.
fn lopsided(balance: bool) -> Machine {
    let mut machine = Machine::lanes(2);
    for number in 0..6 {
        machine
            .session(&format!("s{number}"), &counter(if number % 2 == 0 { 60_000 } else { 100 }));
    }
    machine.times(40_000, 20_000, 3_000);
    machine.spec.balance = balance;
    machine
}

/// Every move of a run: session, from, to, reason.
struct Moves(Vec<(u64, u64, u64, u64)>);

impl wavelock_system::Sink for Moves {
    fn output(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}
    fn log(&mut self, _: wavelock_abi::SessionId, _: &[u8]) {}
    fn frame(
        &mut self,
        _: wavelock_abi::Frame,
        _: wavelock_trace::Digest,
        boundary: &[u8],
        _: &mut dyn Iterator<Item = &[u8]>,
    ) {
        for event in EventReader::new(boundary).flatten() {
            if let Event::Move { session, from, to, reason } = event {
                self.0.push((session, from, to, reason));
            }
        }
    }
}

fn moves(machine: &Machine) -> Vec<(u64, u64, u64, u64)> {
    let mut world = World::load(machine.spec.clone(), Vec::new(), true).expect("loads").world;
    let mut moves = Moves(Vec::new());
    let outcome = world.run(&mut moves).expect("the host can");
    assert!(matches!(outcome, RunOutcome::Finished | RunOutcome::Frames), "{outcome:?}");
    assert_eq!(world.crossings_and_moves().1, moves.0.len() as u64);
    moves.0
}

#[test]
fn the_busiest_lane_gives_a_session_to_the_idlest_at_a_frame_end() {
    let found = moves(&lopsided(true));
    assert_eq!(
        found[..3],
        [(0, 0, 1, 1), (2, 0, 1, 1), (0, 1, 0, 1)],
        "three to none becomes two to one; then they take turns: {found:?}"
    );
    assert_eq!(moves(&lopsided(false)), []);
    let (kept, balanced) = (lopsided(false).run(), lopsided(true).run());
    assert!(
        balanced.summary.frames * 4 < kept.summary.frames * 3,
        "{} and {} frames",
        balanced.summary.frames,
        kept.summary.frames
    );
    for (one, other) in kept.summary.sessions.iter().zip(&balanced.summary.sessions) {
        assert_eq!(
            (one.digest, one.cycles, one.outcome),
            (other.digest, other.cycles, other.outcome),
            "nothing a session can see"
        );
    }
}

#[test]
fn sessions_with_a_lane_of_their_own_stay() {
    let mut machine = lopsided(true);
    machine.spec.sessions.iter_mut().for_each(|session| session.pinned = true);
    assert_eq!(moves(&machine), []);
}

#[test]
fn a_session_larger_than_the_difference_stays() {
    // Lane 0 has sessions of four coroutines each, lane 1 two of one: moving four where two are
    // ahead would only turn the scales.
    let mut machine = Machine::lanes(2);
    let many = r#"(elem (i32.const 0) $work)
        (func $work (param i64) (result i64) (local $i i32)
          (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 60000))))
          (i64.const 0))
        (func (export "_start")
          (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $spawn (i32.const 0) (i64.const 0)))
          (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $work (i64.const 0))))"#;
    for (number, body) in
        [many.to_owned(), many.to_owned(), many.to_owned(), counter(60_000)].iter().enumerate()
    {
        let session = machine.session(&format!("s{number}"), body);
        machine.on(session, [0, 1, 0, 1][number]);
    }
    machine.times(40_000, 20_000, 3_000);
    machine.spec.max_frames = Some(2);
    machine.spec.balance = true;
    let mut world = World::load(machine.spec.clone(), Vec::new(), true).expect("loads").world;
    world.run(&mut ()).expect("the host can");
    assert_eq!(world.crossings_and_moves().1, 0, "eight to five: four are more than three");
}

/// Law 6: each steal is in the books of the lane that takes, one entry beside a migration for its
/// only coroutine. A move by balance is no steal.
#[test]
fn a_steal_is_charged_to_the_lane_that_takes() {
    let mut machine = lopsided(false);
    machine.spec.steal = true;
    let stolen = moves(&machine);
    assert!(!stolen.is_empty() && stolen.iter().all(|step| step.3 == 0), "{stolen:?}");
    let row = |machine: &Machine, operation: SchedulerOperation| {
        machine.run().summary.cycles.overhead[operation as usize]
    };
    let count = stolen.len() as u64;
    assert_eq!(row(&machine, SchedulerOperation::Steal), 60 * count);
    assert_eq!(row(&machine, SchedulerOperation::Migrate), 120 * count);
    assert_eq!(row(&lopsided(true), SchedulerOperation::Steal), 0);
}

/// Endless loops of these weights on two lanes, stopped after `frames` frames of 100,000 cycles.
fn hogs(weights: &[u16], frames: u64, balance: bool) -> Machine {
    let mut machine = Machine::lanes(2);
    for (number, &weight) in weights.iter().enumerate() {
        machine.session(&format!("hog{number}"), r#"(func (export "_start") (loop $l (br $l)))"#);
        machine.spec.sessions[number].weight = Weight::new(weight).expect("a weight");
    }
    machine.times(100_000, 50_000, 3_000);
    machine.spec.max_frames = Some(frames);
    machine.spec.balance = balance;
    machine
}

/// The cycles of each session, in thousandths of all.
fn shares(machine: &Machine) -> Vec<u64> {
    let sessions = machine.run().summary.sessions;
    let all: u64 = sessions.iter().map(|session| session.cycles.0).sum();
    sessions.iter().map(|session| session.cycles.0 * 1_000 / all).collect()
}

#[test]
fn sessions_that_cannot_be_divided_evenly_take_turns() {
    for (count, frames) in [(3, 60), (5, 100), (7, 140)] {
        let machine = hogs(&vec![1_024; count], frames, true);
        let even = 1_000 / count as u64;
        let shares = shares(&machine);
        assert!(shares.iter().all(|share| share.abs_diff(even) <= 10), "{shares:?}");
        assert!(moves(&machine).len() as u64 >= frames - 1, "one turn a frame");
    }
    let alone = shares(&hogs(&[1_024; 3], 60, false));
    assert!(alone[1] > 480, "without balance one of three has a lane alone: {alone:?}");
}

/// Two, one and one are in balance as they are, and so are two and two of equal weight.
#[test]
fn sessions_in_balance_take_no_turns() {
    assert_eq!(moves(&hogs(&[1_024, 2_048, 1_024], 60, true)), []);
    assert_eq!(moves(&hogs(&[1_024; 4], 60, true)), []);
    assert_eq!(moves(&hogs(&[1_024], 60, true)), []);
}
