//! A journal cut off at any byte gives the machine as it was: nothing that was flushed is missing,
//! and it goes on with the digests of a run that never stopped.

use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use wavelock::{
    CapOverrun, CapSettings, Cycles, Digest, Engine, Error, Frame, Machine, Module, Session,
    SessionBuilder, Weight,
};

const ECHO: &[u8] = include_bytes!("../examples/guests/echo.wat");

const FRAMES: u64 = 30;

#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl File {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn other(engine: &Engine) -> Module {
    let text = std::str::from_utf8(ECHO).expect("text").replace("65536", "32768");
    engine.module(text.as_bytes()).expect("a module")
}

fn machine(engine: &Engine) -> Machine {
    let echo = engine.module(ECHO).expect("a module");
    let builder = Machine::builder(engine).lanes(2).session(SessionBuilder::new("echo", &echo));
    builder.build().expect("a machine")
}

/// What the machine is told before a frame: nothing in most of them, so that it is idle.
fn tell(machine: &mut Machine, other: &Module) {
    let (frame, echo) = (machine.frame().0, Session::of_number(0));
    match frame {
        3 => {
            machine.input_at(Frame(20), echo, b"later").expect("an input");
            let late = machine.start_session(SessionBuilder::new("late", other)).expect("room");
            machine.input(late, b"first").expect("an input");
        }
        5 => {
            machine.set_weight(echo, Weight::new(9).expect("a weight")).expect("an input");
        }
        6 | 11 => {
            machine.hold(Session::of_number(1)).expect("an input");
        }
        8 => {
            machine.input_all(b"to all").expect("an input");
        }
        9 | 14 => {
            machine.release(Session::of_number(1)).expect("an input");
        }
        12 => {
            let overrun = CapOverrun::Throttle;
            let cap = CapSettings { budget: Cycles(200_000), period_frames: 2, overrun };
            machine.set_cap(echo, Some(cap)).expect("an input");
        }
        17 | 27 => {
            machine.input_all(&frame.to_le_bytes()).expect("an input");
        }
        _ => {}
    }
}

/// The digests before each frame of a run that nothing stops.
fn straight(engine: &Engine) -> Vec<Digest> {
    let (mut machine, other) = (machine(engine), other(engine));
    let mut digests = vec![machine.digest()];
    for _ in 0..FRAMES {
        tell(&mut machine, &other);
        machine.advance().expect("a frame");
        digests.push(machine.digest());
    }
    digests
}

/// A journal of a whole run, with the length that was flushed before each frame and after it.
fn journal(engine: &Engine) -> (Vec<u8>, Vec<(usize, usize)>) {
    let (mut machine, other, file) = (machine(engine), other(engine), File::default());
    machine.journal(file.clone()).expect("a boundary");
    let mut lengths = Vec::new();
    for _ in 0..FRAMES {
        tell(&mut machine, &other);
        machine.flush_journal().expect("memory");
        let told = file.bytes().len();
        machine.advance().expect("a frame");
        machine.flush_journal().expect("memory");
        lengths.push((told, file.bytes().len()));
    }
    (file.bytes(), lengths)
}

#[test]
fn a_journal_that_is_cut_off_anywhere_gives_the_machine_as_it_was() {
    let engine = Engine::new(2).expect("threads");
    let (expected, other) = (straight(&engine), other(&engine));
    let (bytes, lengths) = journal(&engine);
    let began = lengths[0].0;
    let (mut compared, mut partial) = (0, 0);
    for cut in (began..bytes.len()).step_by(7).chain([bytes.len()]) {
        let mut machine = Machine::recover(&engine, Cursor::new(&bytes[..cut]), |_| {})
            .unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let frame = machine.frame().0;
        let flushed = lengths.iter().filter(|(_, ran)| *ran <= cut).count() as u64;
        assert!(frame >= flushed, "cut at {cut}: frame {frame} of {flushed}");
        assert_eq!(machine.digest(), expected[frame as usize], "cut at {cut}");
        // What was told for the next frame and flushed is there; the rest is told again.
        let told = lengths.get(frame as usize).is_some_and(|(told, _)| *told <= cut);
        if !told && let Some((told, _)) = lengths.get(frame as usize) {
            let before = frame.checked_sub(1).map_or(began, |frame| lengths[frame as usize].1);
            // Some inputs of the frame may be there and others not: then it cannot be told again.
            if cut > before && *told > before {
                partial += 1;
                continue;
            }
            tell(&mut machine, &other);
        }
        while machine.frame().0 < FRAMES {
            machine.advance().expect("a frame");
            tell(&mut machine, &other);
        }
        assert_eq!(machine.digest(), *expected.last().expect("frames"), "cut at {cut}");
        compared += 1;
    }
    assert!(compared > 200 && partial < compared, "{compared} compared, {partial} not");
}

#[test]
fn a_machine_that_is_killed_again_and_again_goes_on() {
    let engine = Engine::new(1).expect("a thread");
    let (expected, other) = (straight(&engine), other(&engine));
    let mut file = File::default();
    let mut first = machine(&engine);
    first.journal(file.clone()).expect("a boundary");
    drop(first);
    for kill in 0..FRAMES {
        let mut seen = Vec::new();
        let again = Machine::recover(&engine, Cursor::new(file.bytes()), |report| {
            seen.push(report.frame());
        });
        let mut machine = again.expect("its own journal");
        assert_eq!(machine.frame(), Frame(kill));
        assert_eq!(machine.digest(), expected[kill as usize]);
        assert!(seen.len() <= 1, "each journal begins with the state: {seen:?}");
        // A new file, as after a rotation, with the inputs that wait.
        file = File::default();
        machine.journal(file.clone()).expect("a boundary");
        tell(&mut machine, &other);
        machine.advance().expect("a frame");
        machine.flush_journal().expect("memory");
    }
    let machine = Machine::recover(&engine, Cursor::new(file.bytes()), |_| {}).expect("a journal");
    assert_eq!(machine.digest(), *expected.last().expect("frames"));
}

#[test]
fn a_journal_is_a_trace_that_replays() {
    let engine = Engine::new(1).expect("a thread");
    let (bytes, _) = journal(&engine);
    for workers in 1..=2 {
        let trace = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
        let verified = wavelock_replay::verify(trace, workers).expect("it runs");
        assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
        assert!(verified.missing.is_some() && verified.frames > 5, "{}", verified.frames);
    }
    // With its end, and with a digest that is another one.
    let (mut machine, file) = (machine(&engine), File::default());
    machine.journal(file.clone()).expect("a boundary");
    machine.remote().input_all(b"from another thread").expect("room");
    machine.advance().expect("a frame");
    machine.finish_journal().expect("memory");
    let bytes = file.bytes();
    let verified = wavelock_replay::verify(wavelock_replay::Trace::open(&bytes[..]).unwrap(), 1);
    assert_eq!(verified.expect("it runs").ending.expect("an end").digest, machine.digest());
}

/// A file that takes only so many bytes.
struct Full(Arc<AtomicUsize>);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.load(Ordering::Relaxed);
        if left < bytes.len() {
            return Err(std::io::Error::other("the disk is full"));
        }
        self.0.fetch_sub(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_machine_stops_with_its_journal() {
    let engine = Engine::new(1).expect("a thread");
    let mut machine = machine(&engine);
    let room = Arc::new(AtomicUsize::new(usize::MAX));
    machine.journal(Full(room.clone())).expect("room");
    machine.advance().expect("a frame");
    room.store(0, Ordering::Relaxed);
    machine.input_all(b"x").expect("it waits in memory");
    assert!(matches!(machine.flush_journal(), Err(Error::Io(_))));
    assert!(matches!(machine.input_all(b"x"), Err(Error::JournalFailed)));
    assert!(matches!(machine.advance(), Err(Error::JournalFailed)));
    assert!(matches!(machine.flush_journal(), Err(Error::JournalFailed)));
}

#[test]
fn what_a_journal_cannot_keep_is_refused() {
    let engine = Engine::new(1).expect("a thread");
    let echo = engine.module(ECHO).expect("a module");
    let builder = Machine::builder(&engine).session(SessionBuilder::new("echo", &echo));
    let mut open = builder.rollback(3).build().expect("a machine");
    assert!(matches!(open.journal(File::default()), Err(Error::JournalRollback)));
    let mut machine = machine(&engine);
    let before = machine.save().expect("a boundary");
    machine.journal(File::default()).expect("a boundary");
    assert!(matches!(machine.load(&before), Err(Error::JournalRollback)));
    machine.stop().expect("an input");
    machine.advance().expect("the last frame");
    assert!(matches!(machine.journal(File::default()), Err(Error::Over)));
    // A planted fault: another digest than the journal's is found.
    let (bytes, _) = journal(&engine);
    let last = straight(&engine).pop().expect("frames").0;
    let at = bytes.windows(32).rposition(|window| window == last).expect("the last digest");
    let mut forged = bytes.clone();
    forged[at] ^= 1;
    let refused = Machine::recover(&engine, Cursor::new(forged), |_| {});
    assert!(matches!(refused, Err(Error::Diverged { .. })), "{refused:?}");
    assert!(Machine::recover(&engine, Cursor::new(&bytes[..100]), |_| {}).is_err());
}
