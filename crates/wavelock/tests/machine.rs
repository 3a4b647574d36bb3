//! Machines as an embedder uses them: the same digests however they are driven, and no panic on
//! wrong arguments.

use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wavelock::{
    Budget, Cycles, Digest, Engine, Error, Event, Frame, FrameReport, GiveError, Level, Machine,
    MachineBuilder, Observer, Policy, RunOutcome, Session, SessionBuilder,
};

const ECHO: &[u8] = include_bytes!("../examples/guests/echo.wat");

fn engine() -> Engine {
    Engine::new(2).expect("two threads")
}

/// Two echoes on two lanes.
fn builder(engine: &Engine) -> MachineBuilder {
    let echo = engine.module(ECHO).expect("a module");
    Machine::builder(engine)
        .lanes(2)
        .session(SessionBuilder::new("red", &echo))
        .session(SessionBuilder::new("blue", &echo))
}

fn machine(rollback: u64) -> Machine {
    builder(&engine()).rollback(rollback).build().expect("a machine")
}

fn session(machine: &Machine, name: &str) -> Session {
    machine.session(name).expect("a session")
}

/// The input of a frame: to one session, to the other, to both or none.
fn tell(machine: &mut Machine, frame: u64) {
    let (red, blue) = (session(machine, "red"), session(machine, "blue"));
    let bytes = frame.to_le_bytes();
    let told = match frame % 5 {
        0 => machine.input(red, &bytes),
        1 => machine.input(blue, &bytes),
        2 => machine.input_all(&bytes),
        _ => return,
    };
    assert_eq!(told.expect("an input"), Frame(frame));
}

/// The digests after each of so many frames.
fn straight(frames: u64) -> Vec<Digest> {
    let mut machine = machine(0);
    (0..frames)
        .map(|frame| {
            tell(&mut machine, frame);
            let report = machine.advance().expect("a frame");
            assert_eq!(report.frame(), Frame(frame));
            report.digest()
        })
        .collect()
}

#[test]
fn a_machine_that_goes_back_has_the_digests_of_the_straight_run() {
    let expected = straight(40);
    let mut machine = machine(100);
    let mut states = vec![machine.save().expect("a boundary")];
    let mut draws = 1u64;
    let mut frame = 0;
    let mut back = 0;
    while frame < 40 {
        tell(&mut machine, frame);
        let mut parts = 0;
        while machine.advance_until(Instant::now()).expect("a part").is_none() {
            parts += 1;
            assert!(matches!(machine.save(), Err(Error::InFrame { .. })) || parts < 2);
        }
        assert_eq!(machine.digest(), expected[frame as usize], "frame {frame}");
        frame += 1;
        states.truncate(frame as usize);
        states.push(machine.save().expect("a boundary"));
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if draws >> 62 == 0 && back < 20 {
            back += 1;
            frame = (draws >> 20) % (frame + 1);
            // Inputs that were given for the frame do not survive the load.
            machine.input_all(b"forgotten").expect("an input");
            machine.load(&states[frame as usize]).expect("an open frame");
            assert_eq!(machine.frame(), Frame(frame));
        }
    }
    assert!(back > 5, "{back} times back");
}

#[test]
fn a_machine_continues_from_its_file() {
    let expected = straight(20);
    let mut first = machine(0);
    for frame in 0..10 {
        tell(&mut first, frame);
        first.advance().expect("a frame");
    }
    let mut file = Vec::new();
    first.export(&mut file).expect("a boundary");
    let mut second = Machine::import(&engine(), Cursor::new(file)).expect("its own file");
    assert_eq!(second.digest(), expected[9]);
    for frame in 10..20 {
        tell(&mut second, frame);
        assert_eq!(second.advance().expect("a frame").digest(), expected[frame as usize]);
    }
}

/// Sees frames.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Frame, Digest)>>>);

impl Observer for Seen {
    fn frame(&mut self, report: &FrameReport<'_>) {
        self.0.lock().expect("no panic").push((report.frame(), report.digest()));
    }
}

#[test]
fn observers_see_each_confirmed_frame_once() {
    let expected = straight(12);
    let seen = Seen::default();
    let frames = || seen.0.lock().expect("no panic").len();
    let mut machine = machine(4);
    machine.observe(seen.clone());
    for frame in 0..6 {
        tell(&mut machine, frame);
        machine.advance().expect("a frame");
    }
    assert_eq!(frames(), 2, "the last four can be undone");
    let state = machine.save().expect("a boundary");
    for _ in 6..9 {
        machine.input_all(b"a wrong guess").expect("an input");
        machine.advance().expect("a frame");
    }
    machine.load(&state).expect("an open frame");
    for frame in 6..12 {
        tell(&mut machine, frame);
        machine.advance().expect("a frame");
    }
    machine.confirm(Frame(100));
    let expected: Vec<_> = (0..).map(Frame).zip(expected).collect();
    assert_eq!(*seen.0.lock().expect("no panic"), expected);
    assert!(matches!(machine.load(&state), Err(Error::Confirmed { frame: Frame(6), .. })));
}

/// The name of an event, with its frame and lane.
type Named = (Frame, Option<u16>, &'static str);

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Named>>>);

impl Observer for Events {
    fn frame(&mut self, report: &FrameReport<'_>) {
        self.0.lock().expect("no panic").push((report.frame(), None, "frame"));
    }

    fn event(&mut self, frame: Frame, lane: Option<u16>, event: &Event<'_>) {
        self.0.lock().expect("no panic").push((frame, lane, event.name()));
    }
}

#[test]
fn observers_see_the_events_of_confirmed_frames_before_the_frame() {
    for keeps in [true, false] {
        let mut machine = builder(&engine()).events(keeps).rollback(2).build().expect("a machine");
        let seen = Events::default();
        machine.observe(seen.clone());
        for frame in 0..6 {
            tell(&mut machine, frame);
            machine.advance().expect("a frame");
        }
        let seen = seen.0.lock().expect("no panic").clone();
        let of = |name| seen.iter().filter(|(.., event)| *event == name).count();
        let events = if keeps { 4 } else { 0 };
        assert_eq!((of("frame"), of("FrameStart")), (4, events), "two can be undone");
        if keeps {
            assert_eq!(seen[0], (Frame(0), None, "FrameStart"));
            assert!(of("Step") > 4 && seen.iter().any(|(_, lane, _)| lane.is_some()));
            let frames: Vec<u64> = seen.iter().map(|(frame, ..)| frame.0).collect();
            assert!(frames.is_sorted());
        }
    }
}

#[test]
fn other_threads_give_inputs_and_interrupt() {
    let mut machine = machine(0);
    let (remote, red) = (machine.remote(), session(&machine, "red"));
    std::thread::spawn(move || {
        remote.input(red, b"hello").expect("room");
        remote.input(Session::of_number(9), b"nobody").expect("room");
        remote.interrupt();
    })
    .join()
    .expect("no panic");
    assert!(matches!(machine.advance(), Err(Error::Interrupted { frame: Frame(0) })));
    let report = machine.advance().expect("the same frame");
    assert_eq!((report.frame(), report.outputs()), (Frame(0), &[(red, b"hello".to_vec())][..]));
    let refused: Vec<String> = report.refused().iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["an input is for session 9: there are 2, counted from 0"]);
}

#[test]
fn a_machine_ends_when_its_stop_input_arrives_and_can_return() {
    let mut machine = machine(9);
    machine.advance().expect("a frame");
    let state = machine.save().expect("a boundary");
    machine.stop().expect("an input");
    let report = machine.advance().expect("the last frame");
    assert_eq!(report.outcome(), Some(RunOutcome::Stopped));
    assert!(matches!(machine.advance(), Err(Error::Over)));
    assert!(matches!(machine.input_all(b""), Err(Error::Input(GiveError::Over))));
    machine.load(&state).expect("an open frame");
    assert_eq!(machine.advance().expect("a frame").outcome(), None);
}

#[test]
fn ends_and_usage_are_reported() {
    let engine = engine();
    let module = engine
        .module(
            br#"(module (import "wavelock" "sleep" (func $sleep (param i64)))
                (memory 2)
                (func (export "_start") (call $sleep (i64.const 1))))"#,
        )
        .expect("a module");
    let session = SessionBuilder::new("brief", &module);
    let mut machine = builder(&engine).session(session).build().expect("a machine");
    let brief = machine.session("brief").expect("a session");
    assert!(machine.advance().expect("a frame").ended().is_empty());
    let usage = machine.usage(brief).expect("a session");
    assert_eq!((usage.coroutines, usage.memory_bytes, usage.outcome), (1, 2 << 16, None));
    assert!(usage.cycles > 0);
    let report = machine.advance().expect("a frame");
    assert_eq!(report.ended().iter().map(|(session, _)| *session).collect::<Vec<_>>(), [brief]);
    assert!(machine.advance().expect("a frame").ended().is_empty());
    assert_eq!(machine.usage(Session::of_number(3)), None);
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

#[test]
fn a_closed_machine_is_recorded_and_verified() {
    for level in [Level::Inputs, Level::Schedule, Level::Full] {
        let engine = engine();
        let file = Bytes::default();
        let mut machine = builder(&engine)
            .live(false)
            .frames(20)
            .events(true)
            .rollback(3)
            .build()
            .expect("a machine");
        machine.record(file.clone(), level).expect("a recording");
        assert!(matches!(machine.record(file.clone(), level), Err(Error::Recording)));
        let state = machine.save().expect("a boundary");
        machine.advance().expect("a frame");
        machine.load(&state).expect("an open frame");
        while machine.outcome().is_none() {
            machine.advance().expect("a frame");
        }
        let recorded = machine.finish_recording().expect("no disk error").expect("a recording");
        let trace = file.0.lock().expect("no panic").clone();
        assert_eq!(recorded.bytes, trace.len() as u64);
        let trace = wavelock_replay::Trace::open(&trace[..]).expect("a trace");
        let verified = wavelock_replay::verify(trace, 2).expect("it can be run");
        assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
        assert_eq!(verified.summary.digest, machine.digest());
    }
}

/// Every wrong argument is a typed error that says what is wrong.
#[test]
fn wrong_arguments_are_refused() {
    let engine = engine();
    let echo = engine.module(ECHO).expect("a module");
    let text = |error: Error| error.to_string();
    let refused = |builder: MachineBuilder| text(builder.build().expect_err("refused"));
    let session = |name: &str| SessionBuilder::new(name, &echo);
    assert_eq!(
        text(Engine::new(0).expect_err("none")),
        "an engine of 0 threads: 1 to 1024 are allowed"
    );
    assert!(text(engine.module(b"\0asm").expect_err("cut")).contains("module"));
    assert!(text(engine.module(b"(module").expect_err("cut")).contains("module"));
    let nothing = |found: &str, wanted: &str| assert!(found.contains(wanted), "{found}");
    nothing(&refused(Machine::builder(&engine).lanes(0).session(session("a"))), "lane");
    nothing(&refused(builder(&engine).session(session("red"))), "`red`");
    nothing(&refused(builder(&engine).session(session("a").lane(7))), "lane");
    nothing(&refused(builder(&engine).channel("c", "rad", 1)), "did you mean `red`?");
    nothing(&refused(builder(&engine).session(session("a").port("p", "c"))), "no channel `c`");
    nothing(&refused(builder(&engine).frame_cycles(Cycles(1))), "frame_cycles");
    let budget = Budget { cycles: Cycles(999_999_999), period: Cycles(1_000) };
    nothing(&refused(builder(&engine).session(session("a").budget(budget))), "budget");
    nothing(&refused(builder(&engine).policy(Policy::Fair).quantum(Cycles(u64::MAX))), "quantum");
    let missing = engine
        .module(br#"(module (import "wavelock" "yeild" (func)) (func (export "_start")))"#)
        .expect("a module");
    nothing(&refused(builder(&engine).session(SessionBuilder::new("a", &missing))), "`yield`");
    let manifest = |text: &str| Machine::builder(&engine).manifest(text, Path::new("/nowhere"));
    nothing(&text(manifest("[machin]").expect_err("unknown")), "machine");
    nothing(
        &text(manifest("[[session]]\nname = \"a\"\nmodule = \"b\"").expect_err("no file")),
        "nowhere",
    );

    let mut machine = machine(0);
    let other = builder(&engine).seed(9).build().expect("a machine").save().expect("a boundary");
    assert!(matches!(machine.load(&other), Err(Error::OtherMachine)));
    let unknown = machine.input(Session::of_number(7), b"");
    assert!(matches!(unknown, Err(Error::Input(GiveError::Session { found: 7, count: 2 }))));
    machine.advance().expect("a frame");
    let red = session_of(&machine);
    let late = machine.input_at(Frame(0), red, b"");
    assert!(matches!(late, Err(Error::Input(GiveError::Past { frame: 0, next: 1 }))));
    let large = machine.input(red, &vec![0; (16 << 20) + 1]);
    assert!(matches!(large, Err(Error::Input(GiveError::TooLarge { .. }))));
    assert!(matches!(machine.record(std::io::sink(), Level::Full), Err(Error::NoEvents)));
    assert!(machine.finish_recording().expect("nothing to write").is_none());
    assert!(Machine::import(&engine, Cursor::new(b"not a file".to_vec())).is_err());
    machine.confirm(Frame(u64::MAX));
    assert_eq!(machine.frame(), Frame(1));
    assert_eq!(machine.name(Session::of_number(2)), None);
}

fn session_of(machine: &Machine) -> Session {
    session(machine, "red")
}

#[test]
fn modules_are_loaded_once_and_machines_move_between_threads() {
    let engine = engine();
    let machine = builder(&engine).build().expect("a machine");
    let moved = std::thread::spawn(move || {
        let mut machine = machine;
        machine.advance().expect("a frame").digest()
    });
    let mut second = builder(&engine).build().expect("a machine");
    let digest = second.advance().expect("a frame").digest();
    assert_eq!(moved.join().expect("no panic"), digest);
    let started = Instant::now();
    for _ in 0..200 {
        let _ = engine.module(ECHO).expect("a module");
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}
