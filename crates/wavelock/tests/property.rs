//! The law of the crate as a property: a machine with random inputs, control inputs, host calls and
//! replies, saved, loaded and stopped inside frames at random, on 1 to 4 threads, has the digests
//! and the exported bytes of the straight run, and so has the replay of its recording. Planted
//! faults of the embedder are noticed.

use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use wavelock::{
    CapOverrun, CapSettings, Cycles, Digest, Engine, Frame, Host, Level, Machine, Policy, Session,
    SessionBuilder, Weight,
};

const FRAMES: u64 = 48;
const MACHINES: u64 = 10;

/// Each frame: echoes its inputs, reads a cell of the host, mixes it, sets the next cell, outputs
/// it; every fourth turn it asks and outputs the reply.
const GUEST: &str = r#"(module
  (import "world" "get" (func $get (param i32) (result i64)))
  (import "world" "set" (func $set (param i32 i64)))
  (import "math" "mix" (func $mix (param i64 i32) (result i64)))
  (import "net" "score" (func $score (param i64) (result i64)))
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func $out (param i64)
    (i64.store (i32.const 64) (local.get 0))
    (i64.store (i32.add (i32.const 4096) (i32.wrap_i64 (i64.rem_u (local.get 0) (i64.const 50000))))
      (local.get 0))
    (drop (call $output (i32.const 64) (i32.const 8))))
  (func (export "_start") (local $turn i32) (local $value i64) (local $length i32)
    (loop $forever
      (loop $more
        (local.set $length (call $input (i32.const 0) (i32.const 32)))
        (if (i32.gt_s (local.get $length) (i32.const 0))
          (then (drop (call $output (i32.const 0) (local.get $length))) (br $more))))
      (local.set $value (call $get (i32.rem_u (local.get $turn) (i32.const 8))))
      (local.set $value (call $mix (local.get $value) (local.get $turn)))
      (call $set (i32.rem_u (i32.add (local.get $turn) (i32.const KIND)) (i32.const 8))
        (local.get $value))
      (call $out (local.get $value))
      (if (i32.eqz (i32.rem_u (local.get $turn) (i32.const 4)))
        (then (call $out (call $score (local.get $value)))))
      (local.set $turn (i32.add (local.get $turn) (i32.const 1)))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A fault of the embedder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A view answers from a state that is not the wave's.
    View,
    /// An input is given a frame late.
    Input,
    /// The host's state does not go back with the machine.
    Host,
    /// The last frames are never confirmed.
    Confirm,
}

fn host(fault: Fault) -> Host<Cells> {
    let ahead = AtomicI64::new(0);
    let cells = Cells { cells: [0; 8], is_copied: fault != Fault::Host, shared: Arc::default() };
    Host::new("property", 1, cells)
        .pure(("math", "mix"), Cycles(20), |(value, turn): (i64, i32)| {
            value.wrapping_mul(31).wrapping_add(i64::from(turn))
        })
        .view(("world", "get"), Cycles(40), move |cells: &Cells, _, at: u32| {
            let calls = ahead.fetch_add(1, Ordering::Relaxed);
            let value = cells.with(|cells| cells[at as usize % 8]);
            if fault == Fault::View { value ^ calls } else { value }
        })
        .command(("world", "set"), Cycles(60), |cells, caller, (at, value): (u32, i64)| {
            let session = i64::from(caller.session().number());
            cells.with_mut(|cells| {
                let cell = &mut cells[at as usize % 8];
                *cell = cell.wrapping_mul(7).wrapping_add(value ^ session);
            });
        })
        .ask::<i64, i64>(("net", "score"), Cycles(100))
}

/// Cells that are copied with the host, or wrongly shared by all copies.
struct Cells {
    cells: [i64; 8],
    is_copied: bool,
    shared: Arc<Mutex<[i64; 8]>>,
}

impl Clone for Cells {
    fn clone(&self) -> Self {
        Self { cells: self.cells, is_copied: self.is_copied, shared: self.shared.clone() }
    }
}

impl Cells {
    fn with<R>(&self, read: impl FnOnce(&[i64; 8]) -> R) -> R {
        if self.is_copied { read(&self.cells) } else { read(&self.shared.lock().expect("free")) }
    }

    fn with_mut<R>(&mut self, change: impl FnOnce(&mut [i64; 8]) -> R) -> R {
        match self.is_copied {
            true => change(&mut self.cells),
            false => change(&mut self.shared.lock().expect("free")),
        }
    }
}

fn guest(engine: &Engine, kind: u64) -> wavelock::Module {
    let text = GUEST.replace("KIND", &(1 + kind % 3).to_string());
    engine.module(text.as_bytes()).expect("a module")
}

fn machine(engine: &Engine, seed: u64, fault: Fault) -> Machine {
    let mut draws = Draws(seed);
    let policy = [Policy::Fair, Policy::RoundRobin][draws.below(2) as usize];
    let builder = Machine::builder(engine).lanes(4).policy(policy).seed(seed).events(true);
    let builder = builder.frame_cycles(Cycles(200_000)).wave_cycles(Cycles(50_000));
    let mut builder = builder.rollback(12).host(host(fault));
    for number in 0..2 + draws.below(4) {
        let session = SessionBuilder::new(&format!("s{number}"), &guest(engine, draws.next()));
        builder = builder.session(session.lane(draws.below(4) as u16));
    }
    builder.build().expect("a machine")
}

/// Gives the inputs of a frame: a function of the seed, the frame and the machine's state.
fn give(engine: &Engine, machine: &mut Machine, seed: u64, fault: Fault) {
    let frame = machine.frame().0;
    let mut draws = Draws(seed ^ (frame + 1) << 32);
    let sessions = machine.sessions().count() as u64;
    let replies: Vec<_> = machine
        .asks()
        .filter(|ask| {
            let id = ask.id();
            (frame + id.number() + u64::from(id.session().number())).is_multiple_of(3)
        })
        .map(|ask| (ask.id(), ask.arguments::<i64>().unwrap_or(0) / 3))
        .collect();
    for (ask, answer) in replies {
        // One that has a reply already is refused, and nothing changes.
        let _ = machine.answer(ask, answer);
    }
    for _ in 0..draws.below(4) {
        let session = Session::of_number(draws.below(sessions) as u32);
        let frames = 1 + draws.below(3);
        // A session may have ended, or been started by no one: a refusal is part of the run.
        let given = match draws.below(12) {
            0..5 => {
                let bytes = draws.next().to_le_bytes();
                let at = Frame(frame + u64::from(fault == Fault::Input));
                machine.input_at(at, session, &bytes)
            }
            5 => {
                machine.set_weight(session, Weight::new(1 + frame as u16).expect("small")).map(drop)
            }
            6 => {
                let (budget, overrun) = (Cycles(5_000 + draws.below(9_000)), CapOverrun::Throttle);
                let cap = CapSettings { budget, period_frames: frames, overrun };
                machine.set_cap(session, Some(cap)).map(drop)
            }
            7 => machine.hold(session).map(drop),
            8 | 9 => machine.release(session).map(drop),
            10 if draws.below(3) == 0 => machine.end_session(session).map(drop),
            10 => {
                let late = SessionBuilder::new(&format!("late{frame}"), &guest(engine, frame));
                machine.start_session(late).map(drop)
            }
            _ => {
                let module = guest(engine, draws.next());
                machine.replace_session(session, &module, &frame.to_le_bytes()).map(drop)
            }
        };
        drop(given);
    }
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

/// What a run must have in common with every other.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    digests: Vec<Digest>,
    exported: Vec<u8>,
}

/// A machine driven straight, or with detours, and its trace.
fn run(seed: u64, threads: usize, wanders: bool, fault: Fault) -> (Run, Vec<u8>, u64) {
    let engine = Engine::new(threads).expect("threads");
    let mut machine = machine(&engine, seed, fault);
    let file = File::default();
    machine.record(file.clone(), Level::Full).expect("a boundary");
    let mut draws = Draws(seed ^ threads as u64);
    let (mut digests, mut detours) = (Vec::new(), 0);
    while machine.frame().0 < FRAMES {
        if wanders && draws.below(3) == 0 {
            let kept = machine.save().expect("a boundary");
            machine.input_all(b"of a future that never was").expect("an input");
            for _ in 0..1 + draws.below(6) {
                machine.advance().expect("a frame");
            }
            if draws.below(2) == 0 {
                // From the middle of a frame too.
                let _ = machine.advance_until(Instant::now()).expect("a wave");
            }
            machine.load(&kept).expect("an open frame");
            detours += 1;
        }
        give(&engine, &mut machine, seed, fault);
        while machine.advance_until(Instant::now()).expect("a wave").is_none() {}
        digests.push(machine.digest());
    }
    let mut exported = Vec::new();
    machine.export(&mut exported).expect("a boundary");
    if fault != Fault::Confirm {
        machine.finish_recording().expect("memory").expect("a recording");
    }
    drop(machine);
    let trace = std::mem::take(&mut *file.0.lock().expect("not poisoned"));
    (Run { digests, exported }, trace, detours)
}

/// The digest at the end of a replay without the program, and whether anything diverged.
fn replayed(trace: &[u8], workers: usize) -> (Digest, bool) {
    let trace = wavelock_replay::Trace::open(trace).expect("a trace");
    let verified = wavelock_replay::verify(trace, workers).expect("it runs");
    (verified.summary.digest, verified.divergence.is_some())
}

#[test]
fn a_machine_that_wanders_is_the_straight_one_and_replays() {
    let mut all = 0;
    for seed in 0..MACHINES {
        let (straight, trace, _) = run(seed, 1, false, Fault::None);
        let last = straight.digests.last().copied().expect("frames");
        assert_eq!(replayed(&trace, 2), (last, false), "seed {seed}");
        for threads in 1..=4 {
            let (found, trace, detours) = run(seed, threads, true, Fault::None);
            let apart = found.digests.iter().zip(&straight.digests).position(|(a, b)| a != b);
            assert_eq!(apart, None, "seed {seed}, {threads} threads");
            assert_eq!(found.exported, straight.exported, "seed {seed}, {threads} threads");
            assert_eq!(replayed(&trace, threads), (last, false), "seed {seed}");
            all += detours;
        }
        // What was exported goes on as a machine with the same host.
        let engine = Engine::new(1).expect("a thread");
        let file = Cursor::new(&straight.exported);
        let mut again = Machine::import_with(&engine, file, host(Fault::None)).expect("its own");
        assert_eq!(again.digest(), last);
        again.advance().expect("a frame");
    }
    assert!(all > 12 * MACHINES, "{all} detours");
}

#[test]
fn faults_of_the_embedder_are_noticed() {
    let (straight, _, _) = run(3, 1, false, Fault::None);
    for fault in [Fault::View, Fault::Host] {
        let (alone, _, _) = run(3, 1, false, fault);
        let (found, _, _) = run(3, 2, true, fault);
        assert_ne!(found.digests, alone.digests, "{fault:?}: its own straight run");
    }
    let (late, _, _) = run(3, 1, false, Fault::Input);
    assert_ne!(late.digests, straight.digests);
    let (same, trace, _) = run(3, 1, false, Fault::Confirm);
    assert_eq!(same.digests, straight.digests);
    let (last, diverged) = replayed(&trace, 1);
    let (at, of) = (straight.digests.iter().position(|digest| *digest == last), FRAMES as usize);
    assert!(!diverged && at.is_some_and(|at| at < of - 1), "the trace lacks frames: {at:?}");
}
