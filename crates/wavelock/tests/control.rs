//! What a program changes about a machine's sessions while it runs: inputs of a frame, that replay
//! without the program.

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};
use wavelock::{
    Budget, CapOverrun, CapSettings, Cycles, Engine, Error, Frame, GiveError, Level, Machine,
    Session, SessionBuilder, SessionOutcome, Weight,
};

const ECHO: &[u8] = include_bytes!("../examples/guests/echo.wat");

/// Another module than the echo that a machine is made with.
fn other(engine: &Engine) -> wavelock::Module {
    let text = std::str::from_utf8(ECHO).expect("text").replace("65536", "32768");
    engine.module(text.as_bytes()).expect("a module")
}

fn machine(engine: &Engine, rollback: u64) -> (Machine, Session) {
    let echo = engine.module(ECHO).expect("a module");
    let builder = Machine::builder(engine).lanes(2).session(SessionBuilder::new("echo", &echo));
    let machine = builder.rollback(rollback).build().expect("a machine");
    let session = machine.session("echo").expect("a session");
    (machine, session)
}

fn outputs(machine: &mut Machine) -> Vec<(Session, Vec<u8>)> {
    machine.advance().expect("a frame").outputs().to_vec()
}

#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn sessions_start_are_held_and_end_and_the_recording_replays() {
    let engine = Engine::new(2).expect("threads");
    let (mut machine, echo) = machine(&engine, 0);
    outputs(&mut machine);
    let late = SessionBuilder::new("late", &other(&engine)).channel("mail", 4).lane(1);
    let late = machine.start_session(late).expect("a session");
    machine.input(late, b"first").expect("it is there in this frame");
    assert_eq!(machine.session("late"), None, "not before its frame");
    assert_eq!(outputs(&mut machine), [(late, b"first".to_vec())]);
    assert_eq!(machine.session("late"), Some(late));
    // From here on it is recorded: the machine, its later module and its state are in the trace.
    let file = File::default();
    machine.record(file.clone(), Level::Inputs).expect("a boundary");
    let second = SessionBuilder::new("second", &other(&engine)).port("mail", "mail");
    let second = machine.start_session(second).expect("a session");
    machine.set_weight(echo, Weight::new(9).expect("a weight")).expect("an input");
    let cap =
        CapSettings { budget: Cycles(100_000), period_frames: 2, overrun: CapOverrun::Throttle };
    machine.set_cap(second, Some(cap)).expect("an input");
    machine.hold(late).expect("an input");
    machine.input_all(b"x").expect("an input");
    assert_eq!(outputs(&mut machine), [(echo, b"x".to_vec()), (second, b"x".to_vec())]);
    let mut state = Vec::new();
    machine.export(&mut state).expect("a boundary");
    machine.remote().release(late).expect("room");
    machine.remote().end_session(echo).expect("room");
    machine.end_session(second).expect("an input");
    let report = machine.advance().expect("a frame");
    let canceled = SessionOutcome::Canceled;
    assert_eq!(report.ended(), [(echo, canceled), (second, canceled)]);
    machine.input_all(b"y").expect("an input");
    assert_eq!(outputs(&mut machine), [(late, b"y".to_vec())]);
    let digest = machine.digest();
    machine.finish_recording().expect("memory").expect("a recording");
    let bytes = std::mem::take(&mut *file.0.lock().expect("not poisoned"));
    for workers in 1..=2 {
        let trace = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
        let verified = wavelock_replay::verify(trace, workers).expect("it runs");
        assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
        assert_eq!((verified.summary.digest, verified.summary.sessions.len()), (digest, 3));
    }
    // An exported machine has its later sessions too.
    let mut again = Machine::import(&engine, Cursor::new(state)).expect("its own file");
    assert_eq!((again.name(second), again.sessions().count()), (Some("second"), 3));
    again.input_all(b"z").expect("an input");
    assert_eq!(outputs(&mut again).len(), 2, "the held one has its input later");
}

#[test]
fn a_start_is_undone_by_a_rollback_and_can_be_given_again() {
    let engine = Engine::new(2).expect("threads");
    let (mut machine, _) = machine(&engine, 10);
    outputs(&mut machine);
    let before = machine.save().expect("a boundary");
    let module = other(&engine);
    let mut digests = Vec::new();
    for _ in 0..2 {
        let late = machine.start_session(SessionBuilder::new("late", &module)).expect("a session");
        assert_eq!(late.number(), 1);
        machine.advance().expect("a frame");
        machine.end_session(late).expect("an input");
        let report = machine.advance().expect("a frame");
        assert_eq!(report.ended(), [(late, SessionOutcome::Canceled)]);
        digests.push(machine.digest());
        machine.load(&before).expect("an open frame");
        assert_eq!((machine.session("late"), machine.frame()), (None, Frame(1)));
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn what_cannot_be_changed_is_an_error_and_changes_nothing() {
    let engine = Engine::new(1).expect("a thread");
    let (mut machine, echo) = machine(&engine, 0);
    let module = other(&engine);
    let taken = machine.start_session(SessionBuilder::new("echo", &module));
    assert!(matches!(taken, Err(Error::Input(GiveError::Setting { .. }))));
    let (cycles, period) = (Cycles(10_000), Cycles(1_000_000));
    let budget = SessionBuilder::new("late", &module).budget(Budget { cycles, period });
    let refused = machine.start_session(budget).expect_err("no budget");
    assert!(matches!(refused, Error::NoBudget { .. }) && refused.to_string().contains("a cap"));
    let none = machine.set_context_budget(echo, "audio", cycles);
    assert!(matches!(none, Err(Error::Input(GiveError::NoContext { session: 0, .. }))));
    machine.end_session(echo).expect("an input");
    machine.hold(echo).expect("it has not ended yet");
    let report = machine.advance().expect("a frame");
    let [refused] = report.refused() else { panic!("{:?}", report.refused()) };
    assert!(matches!(refused, Error::Refused { frame: Frame(0), .. }), "{refused}");
    let ended = machine.hold(echo);
    assert!(matches!(ended, Err(Error::Input(GiveError::Ended { session: 0 }))));
}

#[test]
fn a_replaced_session_keeps_its_handle_and_the_recording_replays() {
    let engine = Engine::new(2).expect("threads");
    let (mut machine, echo) = machine(&engine, 4);
    let file = File::default();
    machine.record(file.clone(), Level::Inputs).expect("a boundary");
    machine.input(echo, b"old").expect("an input");
    assert_eq!(outputs(&mut machine), [(echo, b"old".to_vec())]);
    let before = machine.save().expect("a boundary");
    let mut digests = Vec::new();
    for _ in 0..2 {
        machine.load(&before).expect("an open frame");
        machine.replace_session(echo, &other(&engine), b"carried").expect("a module");
        machine.input(echo, b"later").expect("an input");
        let both = [b"carried".as_slice(), b"later"].concat();
        let written: Vec<u8> = outputs(&mut machine).into_iter().flat_map(|of| of.1).collect();
        assert_eq!(written, both);
        digests.push(machine.digest());
    }
    assert_eq!(digests[0], digests[1]);
    // One that has ended is replaced by another thread, and its next end is reported too.
    let canceled = [(echo, SessionOutcome::Canceled)];
    for round in 0..2u8 {
        machine.end_session(echo).expect("an input");
        assert_eq!(machine.advance().expect("a frame").ended(), canceled);
        machine.remote().replace_session(echo, &other(&engine), &[round]).expect("room");
        assert_eq!(outputs(&mut machine), [(echo, vec![round])]);
        assert_eq!(machine.usage(echo).expect("a session").outcome, None);
    }
    machine.replace_session(echo, &other(&engine), b"").expect("a module");
    machine.end_session(echo).expect("an input");
    assert_eq!(machine.advance().expect("a frame").ended(), canceled, "in one frame");
    // What a thread asks for and the machine cannot have is reported by the next frame.
    let remote = machine.remote();
    let late = SessionBuilder::new("late", &other(&engine));
    remote.start_session(late.clone()).expect("room");
    remote.start_session(late).expect("room");
    remote.set_weight(echo, Weight::new(9).expect("a weight")).expect("room");
    remote.set_cap(echo, None).expect("room");
    remote.set_context_budget(echo, "audio", Cycles(1)).expect("room");
    let report = machine.advance().expect("a frame");
    assert_eq!(report.refused().len(), 4, "{:?}", report.refused());
    assert_eq!(machine.session("late").map(Session::number), Some(1));
    let digest = machine.digest();
    machine.finish_recording().expect("memory").expect("a recording");
    let bytes = std::mem::take(&mut *file.0.lock().expect("not poisoned"));
    let trace = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
    let verified = wavelock_replay::verify(trace, 2).expect("it runs");
    assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
    assert_eq!(verified.summary.digest, digest);
}
