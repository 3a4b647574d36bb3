//! Asks: guests that wait for replies of the embedder. Exact on any number of threads, over
//! rollbacks and in replays; wrong replies are refused.

use std::io::Write;
use std::sync::{Arc, Mutex};
use wavelock::{
    Ask, AskId, Cycles, Digest, Engine, Error, GiveError, Host, Level, Machine, RunOutcome,
    SessionBuilder,
};

/// Each turn asks for a score and outputs the sum of what came and the frame in which it came. A
/// child asks too, and is canceled when the reply to its parent is there.
const GUEST: &[u8] = br#"(module
  (import "net" "score" (func $score (param i32 i64) (result i64 f64)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "cancel" (func $cancel (param i64) (result i32)))
  (import "wavelock" "detach" (func $detach (param i64) (result i32)))
  (import "wavelock" "frame" (func $frame (result i64)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (table 1 funcref)
  (elem (i32.const 0) $child)
  (func $child (param $turn i64)
    (i32.store (i32.const 64) (i32.const 7))
    (call $score (i32.const -1) (local.get $turn))
    drop drop)
  (func (export "_start") (local $turn i32) (local $sum i64) (local $child i64) (local $part f64)
    (loop $forever
      (local.set $child (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $turn))))
      (call $score (local.get $turn) (local.get $sum))
      (local.set $part)
      (local.set $sum (i64.add (local.get $sum)))
      (i64.store (i32.const 0) (local.get $sum))
      (f64.store (i32.const 8) (local.get $part))
      (i64.store (i32.const 16) (call $frame))
      (drop (call $output (i32.const 0) (i32.const 24)))
      (drop (call $cancel (local.get $child)))
      (drop (call $detach (local.get $child)))
      (local.set $turn (i32.add (local.get $turn) (i32.const 1)))
      (call $sleep (i64.extend_i32_u (i32.and (local.get $turn) (i32.const 1))))
      (br $forever))))"#;

fn host() -> Host<()> {
    Host::new("net", 1, ()).ask::<(i32, i64), (i64, f64)>(("net", "score"), Cycles(100))
}

fn machine(threads: usize, rollback: u64) -> Machine {
    let engine = Engine::new(threads).expect("threads");
    let guest = engine.module(GUEST).expect("a module");
    let sessions = (0..4).map(|at| SessionBuilder::new(&format!("s{at}"), &guest).lane(at));
    let builder = Machine::builder(&engine).lanes(4).host(host()).rollback(rollback).events(true);
    sessions.fold(builder, |builder, session| builder.session(session)).build().expect("it loads")
}

/// A well-mixed number of these.
fn mixed(numbers: [u64; 4]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |sum: u64, number| {
        (sum ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
    })
}

/// What the embedder of `seed` replies in this frame, to about one ask in three: first through the
/// machine, then through a remote, unless the replies are to be part of a snapshot. With a `lie`,
/// other values.
fn answer(machine: &mut Machine, seed: u64, lie: i64, is_remote: bool) {
    let frame = machine.frame().0;
    let asks: Vec<Ask> = machine.asks().filter(|ask| !ask.has_reply()).collect();
    for kind in [0, 1] {
        for ask in &asks {
            let (turn, sum) = ask.arguments::<(i32, i64)>().expect("its types");
            let id = ask.id();
            let draw = mixed([seed, frame, u64::from(id.session().number()), id.number()]);
            let score = i64::from(turn) * 3 + (sum >> 3) + (draw >> 48) as i64 + lie;
            if draw % 6 == kind && is_remote && kind == 1 {
                machine.remote().answer(id, (score, -0.0)).expect("there is room");
            } else if draw % 6 == kind {
                machine.answer(id, (score, -0.0)).expect("it waits");
            }
        }
    }
}

fn run(machine: &mut Machine, frames: u64, seed: u64, lie: i64) -> Vec<Digest> {
    let mut digests = Vec::new();
    for _ in 0..frames {
        answer(machine, seed, lie, true);
        let report = machine.advance().expect("a frame");
        assert!(report.refused().is_empty(), "{:?}", report.refused());
        digests.push(report.digest());
    }
    digests
}

fn exported(machine: &mut Machine) -> Vec<u8> {
    let mut bytes = Vec::new();
    machine.export(&mut bytes).expect("a boundary");
    bytes
}

/// A writer that others read.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Random replies at random frames; saved, run ahead with other replies, rolled back; on 1 to 4
/// threads; replayed from the trace. One digest for each frame, one state at the end.
#[test]
fn replies_are_exact_on_any_number_of_threads_over_rollbacks_and_in_replays() {
    const FRAMES: u64 = 40;
    for seed in 0..6 {
        let mut straight = machine(1, 0);
        let expected = run(&mut straight, FRAMES, seed, 0);
        let (state, made) = (exported(&mut straight), asks_made(&straight));
        assert!(made > 20, "the run asks often: {made}");
        for threads in 1..=4 {
            let mut machine = machine(threads, 8);
            let trace = Bytes::default();
            machine.record(trace.clone(), Level::Full).expect("a recording");
            let mut at = 0;
            while at < FRAMES {
                let draw = mixed([seed, threads as u64, at, 1]);
                let (ahead, then) = (draw % 7, (draw >> 8) % 7 + 1);
                answer(&mut machine, seed, 0, false);
                let saved = machine.save().expect("a boundary");
                run(&mut machine, ahead, seed, 1000);
                machine.load(&saved).expect("an open frame");
                let then = then.min(FRAMES - at);
                assert_eq!(
                    run(&mut machine, then, seed, 0),
                    expected[at as usize..(at + then) as usize],
                    "seed {seed}, {threads} threads, from frame {at}"
                );
                at += then;
            }
            assert_eq!(exported(&mut machine), state, "seed {seed}, {threads} threads");
            machine.stop().expect("an input");
            machine.advance().expect("the last frame");
            machine.finish_recording().expect("no disk error");
            let bytes = trace.0.lock().expect("no panic").clone();
            let read = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
            let verified = wavelock_replay::verify(read, threads).expect("it can be run");
            assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
            assert_eq!(verified.summary.digest, machine.digest());
        }
    }
}

fn asks_made(machine: &Machine) -> u64 {
    let last = machine.asks().map(|ask| ask.id().number() + 1);
    last.max().unwrap_or(0)
}

#[test]
fn an_exported_machine_asks_on() {
    let (mut straight, mut machine) = (machine(1, 0), machine(2, 0));
    let expected = run(&mut straight, 30, 9, 0);
    run(&mut machine, 12, 9, 0);
    let file = std::io::Cursor::new(exported(&mut machine));
    let engine = Engine::new(3).expect("threads");
    let mut imported = Machine::import_with(&engine, file, host()).expect("its own host");
    let ids = |machine: &Machine| machine.asks().map(|ask| ask.id()).collect::<Vec<AskId>>();
    assert_eq!(ids(&imported), ids(&machine));
    assert_eq!(run(&mut imported, 18, 9, 0), expected[12..]);
}

/// Asks through a machine of one session that asks for the double of 21 and outputs it.
fn one() -> Machine {
    let engine = Engine::new(1).expect("a thread");
    let guest = engine
        .module(
            br#"(module
              (import "net" "double" (func $double (param i32) (result i32)))
              (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
              (memory 1)
              (func (export "_start")
                (i32.store (i32.const 0) (call $double (i32.const 21)))
                (drop (call $output (i32.const 0) (i32.const 4)))))"#,
        )
        .expect("a module");
    let host = Host::new("net", 1, ()).ask::<i32, i32>(("net", "double"), Cycles(10));
    let session = SessionBuilder::new("guest", &guest);
    Machine::builder(&engine).host(host).session(session).rollback(9).build().expect("it loads")
}

#[test]
fn the_embedder_is_told_and_a_reply_arrives_in_its_frame() {
    let mut machine = one();
    let report = machine.advance().expect("a frame");
    let [ask] = report.asks() else { panic!("one ask: {report:?}") };
    assert_eq!((ask.function(), ask.arguments()), (("net", "double"), Some(21i32)));
    assert_eq!(ask.arguments::<i64>(), None, "other types");
    let id = ask.id();
    assert!(machine.advance().expect("a frame").asks().is_empty(), "it is told once");
    assert_eq!(machine.answer(id, 42).expect("it waits").0, 2);
    let report = machine.advance().expect("a frame");
    assert_eq!(report.outputs()[0].1, 42i32.to_le_bytes());
    assert_eq!(machine.asks().count(), 0);
}

fn refused(result: Result<impl Sized, Error>) -> GiveError {
    match result.map(drop) {
        Err(Error::Input(error)) => error,
        other => panic!("refused as an input: {other:?}"),
    }
}

#[test]
fn replies_that_do_not_fit_are_refused_and_change_nothing() {
    let mut machine = one();
    let start = machine.save().expect("a boundary");
    machine.advance().expect("a frame");
    let id = machine.asks().next().expect("it asks").id();
    let digest = machine.digest();
    let error = machine.answer(id, 42i64).expect_err("other types");
    assert_eq!(
        error.to_string(),
        "a reply to ask 0 of session 0 has values (i64): the function returns (i32)"
    );
    assert!(matches!(machine.remote().answer(id, ()), Err(Error::ReplyTypes { .. })));
    machine.load(&start).expect("an open frame");
    assert_eq!(
        refused(machine.answer(id, 42)),
        GiveError::NoAsk { session: 0, number: 0, made: 0 },
        "it has not asked yet"
    );
    machine.advance().expect("a frame");
    assert_eq!(machine.digest(), digest);
    machine.answer(id, 42).expect("it asks the same again");
    assert!(machine.asks().all(|ask| ask.has_reply()));
    assert_eq!(refused(machine.answer(id, 43)), GiveError::Replied { session: 0, number: 0 });
    machine.remote().answer(id, 44).expect("there is room");
    let report = machine.advance().expect("a frame");
    assert_eq!(report.outputs()[0].1, 42i32.to_le_bytes(), "the first reply");
    let told: Vec<String> = report.refused().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["ask 0 of session 0 has a reply already, which waits for its frame"]);
    let after = refused(machine.answer(id, 42));
    assert_eq!(after, GiveError::NoAsk { session: 0, number: 0, made: 1 });
    machine.stop().expect("an input");
    machine.advance().expect("the last frame");
    assert_eq!(refused(machine.answer(id, 42)), GiveError::Over);
}

/// After a rollback the machine asks something else under the same number: the late reply to what
/// it asked before is refused.
#[test]
fn a_reply_to_an_undone_question_is_refused() {
    let mut machine = machine(1, 20);
    let asks = |machine: &Machine| machine.asks().map(|ask| ask.id()).collect::<Vec<AskId>>();
    machine.advance().expect("a frame");
    let first = asks(&machine)[0];
    let start = machine.save().expect("a boundary");
    machine.answer(first, (5i64, 0.0)).expect("it waits");
    for _ in 0..3 {
        machine.advance().expect("a frame");
    }
    let undone = asks(&machine)[0];
    machine.load(&start).expect("an open frame");
    machine.answer(first, (6i64, 0.0)).expect("it waits");
    for _ in 0..3 {
        machine.advance().expect("a frame");
    }
    let now = asks(&machine)[0];
    assert_eq!((now.session(), now.number()), (undone.session(), undone.number()));
    let number = undone.number();
    assert_eq!(
        refused(machine.answer(undone, (1i64, 0.0))),
        GiveError::OtherAsk { session: 0, number }
    );
    machine.answer(now, (1i64, 0.0)).expect("it waits");
}

#[test]
fn asks_that_end_unanswered_are_named() {
    let mut machine = one();
    machine.advance().expect("a frame");
    machine.stop().expect("an input");
    let report = machine.advance().expect("the last frame");
    assert_eq!(report.outcome(), Some(RunOutcome::Stopped));
    let left: Vec<Ask> = machine.asks().collect();
    assert_eq!(left[0].function(), ("net", "double"));
}

#[test]
fn a_machine_that_is_not_live_cannot_ask() {
    let engine = Engine::new(1).expect("a thread");
    let guest = engine
        .module(
            br#"(module (import "net" "score" (func (param i32 i64) (result i64 f64))) (memory 1)
            (func (export "_start")))"#,
        )
        .expect("a module");
    let session = SessionBuilder::new("guest", &guest);
    let built = Machine::builder(&engine).live(false).host(host()).session(session).build();
    let said = built.expect_err("it is refused").to_string();
    assert!(said.contains("`net` `score`") && said.contains("live"), "{said}");
}

/// Thousands of replies that fit nothing cost no more than their refusals.
#[test]
fn a_storm_of_wrong_replies_is_bounded() {
    let mut machine = one();
    machine.advance().expect("a frame");
    let id = machine.asks().next().expect("it asks").id();
    let remote = machine.remote();
    for _ in 0..2_000 {
        remote.answer(id, 1).expect("there is room");
    }
    let report = machine.advance().expect("a frame");
    assert_eq!(report.refused().len(), 1_999);
    assert_eq!(report.outputs()[0].1, 1i32.to_le_bytes());
}
