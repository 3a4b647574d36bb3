//! Traces of live machines: readable while the run goes on, and enough to run it again.

mod kit;

use kit::{Shared, machine};
use std::sync::Arc;
use wavelock_abi::{Cycles, Frame, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_module::{Limits, Module};
use wavelock_replay::{Level, RecordedMachine, Recorder, Timeline, Trace, Verified, verify};
use wavelock_system::{Control, Input, LaterModule, NewSession, Recipient, RunOutcome, World};
use wavelock_trace::{ChunkKind, TraceReader, TraceWriter};

/// Reads standard input for ever.
const READER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read"
        (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const 24))
        (loop $more
            (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (br $more))))"#;

fn live() -> RecordedMachine {
    let mut machine = machine();
    let bytes = kit::wat(READER);
    let module = Module::new(&bytes, &Limits::default()).expect("valid");
    let module = machine.spec.add_module(Arc::new(module), &bytes);
    machine.modules.push(bytes);
    machine.spec.add_session("reader", module);
    machine.spec.live = true;
    machine.inputs.clear();
    machine
}

/// The inputs of a frame, as somebody might give them.
fn given(frame: u64) -> Vec<Input> {
    let bytes = |to, value: u64| Input::Bytes { to, bytes: value.to_le_bytes()[..5].into() };
    match frame {
        120 => vec![Input::End { to: Recipient::All }, Input::Stop],
        0..120 if frame.is_multiple_of(7) => {
            let one = bytes(Recipient::Session(SessionId(1)), frame + 1);
            let inputs = [bytes(Recipient::All, frame), one];
            inputs.into_iter().chain(control(frame).map(Input::Control)).collect()
        }
        _ => Vec::new(),
    }
}

/// A session of a module that the machine was not loaded with; both that start have the same one.
fn start(name: &str) -> Control {
    let bytes = kit::wat(&READER.replace("(i32.const 24)", "(i32.const 20)"));
    let module = Module::new(&bytes, &Limits::default()).expect("valid");
    let mut new = NewSession::new(name, LaterModule::new(Arc::new(module), bytes.into()));
    new.ports.push(("out".into(), "sum".into()));
    new.channels.push((name.into(), 3));
    new.limits.coroutines = Some(2);
    new.limits.session_stack_bytes = Some(1 << 20);
    Control::Start(Box::new(new))
}

/// The control input of a frame.
fn control(frame: u64) -> Option<Control> {
    // The reader, which is the last of four.
    let session = SessionId(3);
    Some(match frame {
        35 => Control::Hold { session },
        42 => Control::Release { session },
        49 => Control::Weight { session, weight: Weight::new(77).expect("a weight") },
        56 => {
            let (budget, overrun) = (Cycles(40_000), CapOverrun::Throttle);
            let cap = Some(CapSettings { budget, period_frames: 3, overrun });
            Control::Cap { session, cap }
        }
        63 => start("later"),
        77 => Control::Cap { session, cap: None },
        84 => Control::End { session },
        91 => start("latest"),
        98 => Control::Hold { session: SessionId(5) },
        _ => return None,
    })
}

/// Runs the machine up to `until`, giving inputs as they come. `see` sees what is written so far
/// before each frame. Returns the trace.
fn record(level: Level, until: u64, mut see: impl FnMut(u64, &[u8])) -> (Vec<u8>, World) {
    let (machine, file) = (live(), Shared::default());
    let mut world = World::load(machine.spec.clone(), Vec::new(), true).expect("loads").world;
    let mut nothing = ();
    let recorder = Recorder::new(file.clone(), &machine, level, &mut nothing).expect("memory");
    let mut recorder = recorder.with_snapshots(25);
    for frame in 0..until {
        see(frame, &file.bytes.lock().expect("not poisoned"));
        for input in given(frame) {
            assert_eq!(world.give(input), Ok(Frame(frame)));
        }
        world.allow(Frame(frame + 1));
        world.run_allowed(&mut recorder).expect("the host can");
    }
    let recorded = recorder.finish(&world.summary());
    assert!(recorded.error.is_none());
    (std::mem::take(&mut *file.bytes.lock().expect("not poisoned")), world)
}

fn replay(bytes: &[u8], workers: usize) -> Verified {
    verify(Trace::open(bytes).expect("a trace"), workers).expect("it runs")
}

#[test]
fn a_live_run_replays_from_its_trace_alone() {
    for level in Level::ALL {
        let (bytes, world) = record(level, 130, |_, _| {});
        assert_eq!(world.outcome(), Some(RunOutcome::Stopped));
        let expected = world.summary();
        for workers in 1..=4 {
            let verified = replay(&bytes, workers);
            assert!(verified.divergence.is_none(), "{level:?}: {:?}", verified.divergence);
            assert_eq!(verified.missing, None);
            assert_eq!(verified.summary, expected, "{level:?}, {workers} workers");
        }
    }
}

#[test]
fn a_trace_that_is_cut_anywhere_replays_up_to_its_last_whole_frame() {
    let (bytes, _) = record(Level::Full, 130, |_, _| {});
    let (mut last, mut most) = (0, 0);
    let mut borders = Vec::new();
    let mut reader = TraceReader::new(&bytes[..]).expect("a trace");
    while let Ok(Some(_)) = reader.next_chunk() {
        borders.push(reader.offset() as usize);
    }
    for (at, border) in borders.iter().enumerate().skip(1) {
        for cut in [*border, border + 7].into_iter().filter(|cut| *cut < bytes.len()) {
            let verified = replay(&bytes[..cut], 1 + at % 4);
            assert!(verified.divergence.is_none(), "{cut}: {:?}", verified.divergence);
            assert!(verified.missing.is_some(), "{cut}");
            assert!(verified.frames >= last, "{cut}");
            last = verified.frames;
        }
        most = most.max(last);
    }
    assert!(most > 50, "{most} frames");
}

#[test]
fn a_trace_can_be_read_while_the_run_continues() {
    let mut read = 0;
    record(Level::Inputs, 130, |frame, bytes| {
        // The writer's thread may be a few frames behind.
        std::thread::sleep(std::time::Duration::from_millis(2));
        let Ok(trace) = Trace::open(bytes) else { return };
        let verified = verify(trace, 1).expect("it runs");
        assert!(verified.divergence.is_none() && verified.frames <= frame.max(1));
        read = read.max(verified.frames);
    });
    assert!(read > 20, "{read} frames were there while the run went on");
}

#[test]
fn every_frame_of_a_live_trace_can_be_visited_in_any_order() {
    let (bytes, _) = record(Level::Full, 130, |_, _| {});
    let mut timeline = Timeline::open(std::io::Cursor::new(&bytes[..])).expect("a trace");
    let end = timeline.seek_step(u64::MAX).expect("it runs").step;
    assert!(timeline.is_over());
    let digest = timeline.world().digest();
    for frame in [90, 3, 119, 26, 50, 0, 77] {
        let position = timeline.seek_frame(frame).expect("it runs");
        // Frames in which nothing happens are not run.
        assert!((frame..frame + 8).contains(&position.frame), "{frame}: {position}");
    }
    assert_eq!(timeline.seek_step(end).expect("it runs").step, end);
    assert!(timeline.step_back().expect("it runs"));
    while timeline.step_forward().expect("it runs") {}
    assert_eq!(timeline.world().digest(), digest);
    // Cut in the middle, the recording ends at a boundary where the machine waits.
    let mut reader = TraceReader::new(&bytes[..]).expect("a trace");
    while reader.offset() < bytes.len() as u64 / 2 {
        reader.next_chunk().expect("whole").expect("more");
    }
    let cut = &bytes[..reader.offset() as usize];
    let mut timeline = Timeline::open(std::io::Cursor::new(cut)).expect("a trace");
    let position = timeline.seek_frame(1_000).expect("it runs");
    assert!(timeline.is_over() && position.frame < 120 && timeline.world().outcome().is_none());
}

/// The trace with the inputs of its chunks changed.
fn changed(bytes: &[u8], mut change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = TraceWriter::new(&mut out).expect("memory");
    let mut reader = TraceReader::new(bytes).expect("a trace");
    while let Some((kind, mut payload)) = reader.next_chunk().expect("whole") {
        if kind == ChunkKind::Inputs {
            change(&mut payload);
        }
        if !payload.is_empty() {
            writer.append(kind, &payload).expect("memory");
        }
    }
    out
}

/// The trace with its inputs chunk number `wanted` changed.
fn changed_once(bytes: &[u8], wanted: usize, change: fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut at = 0;
    changed(bytes, |payload| {
        if at == wanted {
            change(payload);
        }
        at += 1;
    })
}

#[test]
fn an_input_that_is_changed_late_or_lost_is_found() {
    let (bytes, _) = record(Level::Full, 130, |_, _| {});
    let nth = |wanted: usize, change: fn(&mut Vec<u8>)| {
        let planted = changed_once(&bytes, wanted, change);
        replay(&planted, 2).divergence.map(|found| found.frame)
    };
    assert_eq!(nth(usize::MAX, Vec::clear), None);
    assert_eq!(nth(3, |payload| *payload.last_mut().expect("bytes") ^= 1), Some(21));
    assert_eq!(nth(3, |payload| payload[0] += 1), Some(21), "a frame late");
    assert_eq!(nth(3, |payload| payload[0] -= 2), Some(21), "for a frame that has started");
    assert_eq!(nth(3, Vec::clear), Some(21), "lost");
    // Frame 120: the end of input is the first of two inputs, of 16 bytes.
    let end = |payload: &mut Vec<u8>| {
        payload[8] = 1;
        payload.drain(16..32);
    };
    assert_eq!(nth(18, end), Some(120), "a lost end of input");
    assert_eq!(nth(18, Vec::clear), Some(120), "a lost stop");
    // The hold of frame 35 is the last of its three inputs, of 24 bytes.
    let forgotten = |payload: &mut Vec<u8>| {
        payload[8] = 2;
        payload.truncate(payload.len() - 24);
    };
    assert_eq!(nth(5, forgotten), Some(35), "a forgotten control input");
    assert_eq!(nth(5, |payload| payload[0] += 1), Some(35), "a control input a frame late");
    let planted = changed_once(&bytes, 5, |payload| {
        let code = payload.len() - 16;
        payload[code] = 99;
    });
    assert!(verify(Trace::open(&planted[..]).expect("a trace"), 2).is_err(), "unknown control");
    // The start of frame 63 comes after the frame, the count and two inputs of 29 bytes.
    let lost = |payload: &mut Vec<u8>| {
        payload[8] = 2;
        payload.truncate(16 + 2 * 29);
    };
    assert_eq!(nth(9, lost), Some(63), "a lost start");
    // An input of no known kind is damage, named when the trace is opened.
    let planted = changed_once(&bytes, 3, |payload| payload[24] = 9);
    assert!(verify(Trace::open(&planted[..]).expect("a trace"), 2).is_err());
}
