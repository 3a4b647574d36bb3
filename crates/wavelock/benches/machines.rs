//! What many machines in one process cost.
//!
//! `cargo bench -p wavelock --bench machines`: makes a thousand machines of one small guest, and
//! prints the CPU milliseconds to make one, the resident bytes of one after three frames, and the
//! CPU microseconds of a frame with an input and of an idle frame. The goals: 1 ms and 400 KiB.

use wavelock::{Engine, Error, Machine, SessionBuilder};

const MACHINES: usize = 1_000;
/// The kernel counts CPU time by its ticks: they take many of them.
const FRAMES: u32 = 100_000;

/// CPU nanoseconds of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

/// Resident bytes of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: u64| pages * 4096)
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let echo = engine.module(include_bytes!("../examples/guests/echo.wat"))?;
    let (before, resident) = (cpu_nanoseconds(), resident_bytes());
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        let session = SessionBuilder::new("echo", &echo);
        machines.push(Machine::builder(&engine).session(session).build()?);
    }
    let load = (cpu_nanoseconds() - before) / MACHINES as f64 / 1e6;
    for machine in &mut machines {
        for _ in 0..3 {
            machine.input_all(b"hello")?;
            machine.advance()?;
        }
    }
    let bytes = (resident_bytes() - resident) / MACHINES as u64;
    let machine = &mut machines[0];
    let before = cpu_nanoseconds();
    for _ in 0..FRAMES {
        machine.input_all(b"hello")?;
        machine.advance()?;
    }
    let fed = (cpu_nanoseconds() - before) / f64::from(FRAMES) / 1e3;
    println!("load {load:.3} ms, {} KiB resident, frame with an input {fed:.1} us", bytes / 1024);
    Ok(())
}
