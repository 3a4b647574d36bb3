//! Engines: threads that many machines share, our own or the embedder's. Equal digests on any of
//! them, whatever the embedder does with the jobs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wavelock::{Cycles, Digest, Engine, Error, Machine, SessionBuilder};

/// Counts to fifty thousand in every frame and outputs a number that depends on its input.
const GUEST: &[u8] = br#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "lane" (func $lane (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start") (local $i i32)
    (loop $forever
      (drop (call $input (i32.const 8) (i32.const 64)))
      (local.set $i (i32.const 50000))
      (loop $count
        (i32.store (i32.const 0)
          (i32.add (i32.mul (i32.load (i32.const 0)) (i32.const 31)) (i32.load8_u (i32.const 8))))
        (br_if $count (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (drop (call $output (i32.const 0) (i32.add (call $lane) (i32.const 1))))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

/// Answers each input, and does nothing else.
const SMALL: &[u8] = include_bytes!("../examples/guests/echo.wat");

fn machine(engine: &Engine, lanes: u16) -> Machine {
    let guest = engine.module(GUEST).expect("a module");
    let sessions = (0..lanes).map(|at| SessionBuilder::new(&format!("s{at}"), &guest).lane(at));
    let builder = Machine::builder(engine).lanes(lanes);
    let builder = builder.frame_cycles(Cycles(10_000_000)).wave_cycles(Cycles(200_000));
    sessions.fold(builder, |builder, session| builder.session(session)).build().expect("it loads")
}

fn run(machine: &mut Machine, frames: u8) -> Vec<Digest> {
    let one = |frame: u8| {
        machine.input_all(&[frame, 7]).expect("an input");
        machine.advance().expect("a frame").digest()
    };
    (0..frames).map(one).collect()
}

fn expected(lanes: u16) -> Vec<Digest> {
    run(&mut machine(&Engine::new(1).expect("a thread"), lanes), 3)
}

/// What an engine gives the embedder to run.
type Job = Box<dyn FnOnce() + Send>;

/// A pool of the embedder: two threads that run jobs from a list.
fn two_threads() -> impl Fn(Job) + Send + Sync + 'static {
    let (sender, receiver) = channel::<Job>();
    let (sender, receiver) = (Mutex::new(sender), Arc::new(Mutex::new(receiver)));
    for _ in 0..2 {
        let receiver = receiver.clone();
        std::thread::spawn(move || {
            while let Ok(job) = { receiver.lock().expect("no panic").recv() } {
                job();
            }
        });
    }
    move |job| sender.lock().expect("no panic").send(job).expect("the threads live")
}

#[test]
fn digests_are_equal_on_any_threads() {
    for lanes in [2, 5] {
        let expected = expected(lanes);
        for threads in 2..=4 {
            let engine = Engine::new(threads).expect("threads");
            assert_eq!(run(&mut machine(&engine, lanes), 3), expected, "{threads} of its own");
            let engine = Engine::on(threads, two_threads()).expect("threads");
            assert_eq!(run(&mut machine(&engine, lanes), 3), expected, "{threads} lent");
        }
    }
}

#[test]
fn jobs_that_run_late_at_once_never_or_panic_change_nothing() {
    let expected = expected(4);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let dropped = Engine::on(4, move |job| {
        counted.fetch_add(1, Ordering::Relaxed);
        drop(job);
    });
    assert_eq!(run(&mut machine(&dropped.expect("threads"), 4), 3), expected);
    assert!(calls.load(Ordering::Relaxed) > 10, "waves were spread");
    let at_once = Engine::on(4, |job| job()).expect("threads");
    assert_eq!(run(&mut machine(&at_once, 4), 3), expected);
    let panics = Engine::on(4, |_| panic!("on purpose")).expect("threads");
    assert_eq!(run(&mut machine(&panics, 4), 3), expected);
    let kept: Arc<Mutex<Vec<Job>>> = Arc::default();
    let keeps = kept.clone();
    let late = Engine::on(4, move |job| keeps.lock().expect("no panic").push(job));
    let mut machine = machine(&late.expect("threads"), 4);
    assert_eq!(run(&mut machine, 3), expected);
    let jobs = std::mem::take(&mut *kept.lock().expect("no panic"));
    assert!(jobs.len() > 10);
    jobs.into_iter().for_each(|job| job());
    drop(machine);
}

/// Machines of one engine, advanced by several threads at once, with waves that are worth threads.
#[test]
fn machines_that_run_at_once_share_the_threads() {
    let expected = expected(3);
    let lent = Engine::on(3, two_threads()).expect("threads");
    for engine in [Engine::new(3).expect("threads"), lent] {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        assert_eq!(run(&mut machine(&engine, 3), 3), expected);
                    }
                });
            }
        });
    }
}

/// The threads of this process whose names say that they are an engine's.
#[cfg(target_os = "linux")]
fn engine_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("wavelock-")).count()
}

/// A thousand machines in one process: one digest, and no more threads than the engine's.
#[test]
fn a_thousand_machines_share_one_engine() {
    let engine = Engine::new(4).expect("threads");
    let small = engine.module(SMALL).expect("a module");
    let make = || {
        let session = |name| SessionBuilder::new(name, &small);
        let builder = Machine::builder(&engine).lanes(2).session(session("one"));
        builder.session(session("two")).build().expect("it loads")
    };
    let mut machines: Vec<Machine> = (0..1_000).map(|_| make()).collect();
    let expected = run(&mut make(), 2);
    std::thread::scope(|scope| {
        for part in machines.chunks_mut(250) {
            scope.spawn(|| part.iter_mut().for_each(|one| assert_eq!(run(one, 2), expected)));
        }
    });
    // Another test may run beside this one.
    #[cfg(target_os = "linux")]
    assert!(engine_threads() < 100, "not one for each machine");
}

/// A frame of a hundred waves stops between two of them, and goes on as if it had not.
#[test]
fn a_deadline_stops_between_waves() {
    let engine = Engine::new(2).expect("threads");
    let (mut straight, mut stopped) = (machine(&engine, 2), machine(&engine, 2));
    let mut stops = 0;
    for _ in 0..3 {
        let expected = straight.advance().expect("a frame").digest();
        loop {
            match stopped.advance_until(Instant::now()).expect("a frame") {
                Some(report) => break assert_eq!(report.digest(), expected),
                None => stops += 1,
            }
        }
    }
    assert!(stops > 3, "{stops}");
    let later = Instant::now() + Duration::from_secs(3600);
    assert!(stopped.advance_until(later).expect("a frame").is_some());
}

#[test]
fn wrong_numbers_of_threads_are_refused() {
    for found in [0, 1_025, usize::MAX] {
        let refused = Engine::new(found).expect_err("refused");
        assert!(matches!(refused, Error::Threads { most: 1_024, .. }));
        assert!(refused.to_string().contains(&found.to_string()));
        assert!(Engine::on(found, |job| job()).is_err());
    }
    let engine = Engine::on(usize::from(u8::MAX), drop).expect("allowed");
    let garbage = catch_unwind(AssertUnwindSafe(|| engine.module(b"\0asm garbage").is_err()));
    assert!(garbage.expect("no panic"));
}
