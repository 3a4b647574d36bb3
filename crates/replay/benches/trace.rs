//! The cost of recording and of seeking: `cargo bench -p wavelock-replay`. Prints Markdown.
//!
//! The first argument is the number of events of the long trace, in millions (default 100). Times
//! are the minimum of several rounds in which recorded and unrecorded runs alternate; the trace is
//! written to the temporary directory.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wavelock_module::{Limits, Module};
use wavelock_replay::{Archive, Level, RecordedMachine, Recorder, StateSpacing, Timeline};
use wavelock_system::{MachineSpec, RunSummary, World};
use wavelock_waves::{Round, Waves};

/// Computes, with rare yields.
const COMPUTE: &str = r#"(module (import "wavelock" "yield" (func $yield))
    (func (export "_start") (local $i i32) (local $x i64) (local $round i32)
        (loop $rounds
            (local.set $i (i32.const 2000))
            (loop $work
                (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
                (br_if $work (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (call $yield)
            (br_if $rounds (i32.lt_u (local.tee $round (i32.add (local.get $round) (i32.const 1))) (i32.const 4000))))))"#;

/// Does nothing but yield.
const SWITCH: &str = r#"(module (import "wavelock" "yield" (func $yield))
    (func (export "_start") (local $i i32)
        (loop $again (call $yield)
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1500000))))))"#;

/// Fills 64 MiB, then yields forever and writes eight bytes each time, at increasing addresses.
const LARGE: &str = r#"(module (import "wavelock" "yield" (func $yield))
    (memory 1024)
    (func (export "_start") (local $at i32) (local $x i64)
        (local.set $x (i64.const 88172645463325252))
        (loop $fill
            (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
            (i64.store (local.get $at) (local.get $x))
            (br_if $fill (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 0x4000000))))
        (loop $again
            (i64.store (i32.and (local.get $at) (i32.const 0x3fffff8)) (local.get $x))
            (local.set $x (i64.add (local.get $x) (i64.const 1)))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (call $yield)
            (br $again))))"#;

fn machine(texts: &[&str], max_frames: Option<u64>) -> RecordedMachine {
    let modules: Vec<Vec<u8>> =
        texts.iter().map(|text| wat::parse_str(text).expect("valid text")).collect();
    let mut spec = MachineSpec { max_frames, ..MachineSpec::new() };
    for (at, bytes) in modules.iter().enumerate() {
        let module = spec
            .add_module(Arc::new(Module::new(bytes, &Limits::default()).expect("a module")), bytes);
        spec.add_session(&format!("session.{at}"), module);
    }
    RecordedMachine { spec, modules, inputs: Vec::new() }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("wavelock-bench-{name}-{}", std::process::id()))
}

/// What is recorded of a run.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    Nothing,
    /// A level, without state digests and certificates.
    Level(Level),
    /// Level full, and a digest of the state every frame.
    States,
    /// Level full, and the certificate of every wave.
    Certificates,
    /// As `Level`, with the default state digests and periodic snapshots.
    Snapshots(Level, u64),
}

fn run(machine: &RecordedMachine, kept: Kept, file: &PathBuf) -> (Duration, RunSummary, u64) {
    let level = match kept {
        Kept::Nothing | Kept::Level(Level::Inputs) => Level::Inputs,
        Kept::Level(level) | Kept::Snapshots(level, _) => level,
        Kept::States | Kept::Certificates => Level::Full,
    };
    let mut world = World::load(machine.spec.clone(), Vec::new(), level != Level::Inputs)
        .expect("it loads")
        .world;
    let mut nothing = ();
    let began = Instant::now();
    if kept == Kept::Nothing {
        world.run(&mut ()).expect("it runs");
        return (began.elapsed(), world.summary(), 0);
    }
    let out = BufWriter::new(File::create(file).expect("a file"));
    let mut recorder = Recorder::new(out, machine, level, &mut nothing).expect("a recorder");
    recorder = match kept {
        Kept::States => recorder.with_states(StateSpacing::Every(1)),
        Kept::Snapshots(_, every) => recorder.with_snapshots(every),
        _ => recorder.with_states(StateSpacing::Never),
    };
    if kept != Kept::Certificates {
        world.run(&mut recorder).expect("it runs");
        return finish(began, recorder, &mut world);
    }
    let mut waves = Waves::new(world, 1).expect("a worker");
    waves.certify_always();
    while waves.round(&mut recorder).expect("it runs") != Round::Over {
        if let Some(certificate) = waves.certificate() {
            recorder.certificate(certificate, &waves.facts());
        }
    }
    finish(began, recorder, waves.world_mut())
}

fn finish(
    began: Instant,
    recorder: Recorder<'_>,
    world: &mut World,
) -> (Duration, RunSummary, u64) {
    let summary = world.summary();
    let recorded = recorder.finish(&summary);
    assert!(recorded.error.is_none(), "{:?}", recorded.error);
    (began.elapsed(), summary, recorded.bytes)
}

fn overhead() {
    println!(
        "| workload | steps | not recorded | inputs | schedule | full | full, states | full, certificates | bytes per event, full |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let file = path("overhead");
    for (name, texts) in [("compute", [COMPUTE, COMPUTE]), ("switch", [SWITCH, SWITCH])] {
        let machine = machine(&texts, None);
        let rows = [
            Kept::Nothing,
            Kept::Level(Level::Inputs),
            Kept::Level(Level::Schedule),
            Kept::Level(Level::Full),
            Kept::States,
            Kept::Certificates,
        ];
        let mut best = [Duration::MAX; 6];
        let (mut steps, mut bytes) = (0, 0);
        for _ in 0..7 {
            for (at, kept) in rows.into_iter().enumerate() {
                let (took, summary, written) = run(&machine, kept, &file);
                best[at] = best[at].min(took);
                steps = summary.steps;
                bytes = if kept == Kept::Level(Level::Full) { written } else { bytes };
            }
        }
        let plain = best[0].as_secs_f64();
        let ratio = |at: usize| format!("{:+.1} %", (best[at].as_secs_f64() / plain - 1.0) * 100.0);
        let each = bytes as f64 / steps as f64;
        let more = [1, 2, 3, 4, 5].map(ratio).join(" | ");
        println!("| {name} | {steps} | {:.1} ms | {more} | {each:.2} |", plain * 1e3);
    }
    let _ = std::fs::remove_file(&file);
}

fn travel(events: u64) {
    let file = path("travel");
    // Measure the steps per frame to choose the number of frames.
    let probe = run(&machine(&[LARGE, SWITCH], Some(2_000)), Kept::Nothing, &file).1;
    let frames = (events * probe.frames / probe.steps).max(200);
    let machine = machine(&[LARGE, SWITCH], Some(frames));
    let (took, summary, bytes) = run(&machine, Kept::Snapshots(Level::Full, 20), &file);
    println!();
    println!(
        "Trace of {} steps in {} frames with 64 MiB of guest memory, a snapshot every 20 frames:",
        summary.steps, summary.frames
    );
    println!(
        "{:.2} GiB of file, recorded in {:.1} s.",
        bytes as f64 / f64::from(1 << 30),
        took.as_secs_f64()
    );
    println!();
    println!("| what | time |");
    println!("|---|---|");
    let began = Instant::now();
    let mut timeline = Timeline::open(File::open(&file).expect("the trace")).expect("it opens");
    println!("| open | {:.1} ms |", began.elapsed().as_secs_f64() * 1e3);
    let middle = summary.steps / 2;
    for (name, target) in [
        ("seek to the middle", middle),
        ("seek to a quarter", middle / 2),
        ("seek to three quarters", middle + middle / 2),
    ] {
        let began = Instant::now();
        let found = timeline.seek_step(target).expect("it seeks");
        assert_eq!(found.step, target);
        println!("| {name} | {:.1} ms |", began.elapsed().as_secs_f64() * 1e3);
    }
    let mut archive = Archive::open(File::open(&file).expect("the trace")).expect("it opens");
    let began = Instant::now();
    let number = archive.snapshot_count() / 2;
    drop(archive.restore(number, true).expect("it restores"));
    println!(
        "| of a seek: the snapshot read, unpacked, hashed and put in place | {:.1} ms |",
        began.elapsed().as_secs_f64() * 1e3
    );
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        assert!(timeline.step_back().expect("it goes back"));
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!("| step back, median of 20 | {:.1} ms |", times[10]);
    println!("| step back, longest | {:.1} ms |", times[19]);
    let _ = std::fs::remove_file(&file);
}

fn main() {
    let millions =
        std::env::args().skip(1).find_map(|argument| argument.parse::<u64>().ok()).unwrap_or(100);
    overhead();
    travel(millions * 1_000_000);
}
