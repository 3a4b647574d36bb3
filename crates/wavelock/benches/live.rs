//! What a live machine costs: an input, waiting for one, and a long run.
//!
//! `cargo bench -p wavelock --bench live`: CPU nanoseconds of an input of 16 bytes, dropped unread
//! and read by the guest (the least of nine runs); the share of a core that an idle machine takes
//! at 60 Hz, over ten seconds; and the resident memory of a machine over ten million frames, of
//! which one in 64 has an input. The goals: 2 us, 1 %, no growth. `-- --frames N` sets the length.

use std::time::Instant;
use wavelock::{Cycles, Engine, Error, Host, Machine, Pacer, SessionBuilder};

/// Waits for a reply that never comes.
const WAITER: &[u8] = br#"(module
  (import "net" "wait" (func $wait))
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (memory 1)
  (func (export "_start") (call $wait) (drop (call $input (i32.const 0) (i32.const 16)))))"#;

/// Reads all inputs of each frame.
const READER: &[u8] = br#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start")
    (loop $forever
      (loop $read
        (br_if $read (i32.gt_s (call $input (i32.const 0) (i32.const 64)) (i32.const 0))))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

/// CPU nanoseconds of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

/// Resident bytes of this process.
fn resident_kib() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: i64| pages * 4)
}

fn machine(guest: &[u8]) -> Result<Machine, Error> {
    let engine = Engine::new(1)?;
    let guest = engine.module(guest)?;
    let host = Host::new("bench", 1, ()).ask::<(), ()>(("net", "wait"), Cycles(10));
    let session = SessionBuilder::new("guest", &guest);
    Machine::builder(&engine).frame_cycles(Cycles(100_000_000)).host(host).session(session).build()
}

/// CPU nanoseconds of one input, with its part of a frame of many.
fn input_nanoseconds(guest: &[u8]) -> Result<f64, Error> {
    // The kernel counts CPU time by its ticks: a sample takes many of them.
    const FRAMES: u32 = 60;
    const INPUTS: u32 = 20_000;
    let mut machine = machine(guest)?;
    let to = machine.session("guest").ok_or(Error::Over)?;
    machine.advance()?;
    let mut least = f64::MAX;
    for _ in 0..9 {
        let before = cpu_nanoseconds();
        for _ in 0..FRAMES {
            for _ in 0..INPUTS {
                machine.input(to, &[7; 16])?;
            }
            machine.advance()?;
        }
        least = least.min((cpu_nanoseconds() - before) / f64::from(FRAMES * INPUTS));
    }
    Ok(least)
}

/// The part of a core that a machine takes which is advanced 60 times a second, in percent.
fn share_at_60_hz(guest: &[u8]) -> Result<f64, Error> {
    let mut machine = machine(guest)?;
    machine.advance()?;
    let (mut pacer, mut frames) = (Pacer::hz(60.0), 0);
    let (began, before) = (Instant::now(), cpu_nanoseconds());
    while frames < 600 {
        let now = pacer.wait();
        let due = pacer.due(now, 4);
        for _ in 0..due {
            machine.advance()?;
        }
        frames += due;
    }
    Ok((cpu_nanoseconds() - before) / began.elapsed().as_nanos() as f64 * 100.0)
}

/// Prints the resident memory in ten parts of a long run.
fn long_run(frames: u64) -> Result<(), Error> {
    let mut machine = machine(READER)?;
    let to = machine.session("guest").ok_or(Error::Over)?;
    let (mut rows, mut before) = (Vec::new(), 0);
    let start = cpu_nanoseconds();
    for frame in 0..frames {
        if frame % 64 == 0 {
            machine.input(to, &[7; 16])?;
        }
        machine.advance()?;
        if (frame + 1) % (frames / 10).max(1) == 0 {
            rows.push(resident_kib() - before);
            before = resident_kib();
        }
    }
    let nanoseconds = (cpu_nanoseconds() - start) / frames as f64;
    println!(
        "{frames} frames of {nanoseconds:.0} ns; KiB resident, then growth by tenth: {rows:?}"
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--frames").skip(1);
    let frames = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000_000);
    println!("an input that is dropped {:6.0} ns", input_nanoseconds(WAITER)?);
    println!("an input that is read    {:6.0} ns", input_nanoseconds(READER)?);
    println!("idle at 60 Hz, the guest waits        {:.3} % of a core", share_at_60_hz(WAITER)?);
    println!("idle at 60 Hz, it polls every frame   {:.3} % of a core", share_at_60_hz(READER)?);
    long_run(frames)
}
