//! What host calls cost beside an empty host operation.
//!
//! `cargo bench -p wavelock --bench host_calls`: CPU nanoseconds per call of a pure function, a
//! view and a command over those of `lane`, a host operation that does nothing; the least of nine
//! runs. The goals: 60 ns for `pure`, 120 ns for `view`.

use wavelock::{Cycles, Engine, Error, Host, Machine, SessionBuilder};

const CALLS: u64 = 200_000;

/// CPU nanoseconds of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

fn guest(import: &str, call: &str) -> String {
    format!(
        r#"(module
          (import {import})
          (memory 1)
          (func (export "_start") (local $i i64)
            (loop $again
              {call}
              (br_if $again (i64.lt_u
                (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const {CALLS}))))))"#
    )
}

fn nanoseconds(engine: &Engine, import: &str, call: &str) -> Result<f64, Error> {
    let module = engine.module(guest(import, call).as_bytes())?;
    let mut least = f64::MAX;
    for _ in 0..9 {
        let host = Host::new("bench", 1, 5i32)
            .pure(("host", "pure"), Cycles(10), |number: i32| number + 1)
            .view(("host", "view"), Cycles(10), |state: &i32, _, number: i32| number + state)
            .command(("host", "command"), Cycles(10), |state, _, number: i32| *state ^= number);
        let mut machine = Machine::builder(engine)
            .frame_cycles(Cycles(1_000_000_000))
            .wave_cycles(Cycles(1_000_000_000))
            .quantum(Cycles(1_000_000_000))
            .host(host)
            .session(SessionBuilder::new("guest", &module))
            .build()?;
        let before = cpu_nanoseconds();
        machine.advance()?;
        least = least.min((cpu_nanoseconds() - before) / CALLS as f64);
    }
    Ok(least)
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let one = |name: &str| format!("\"host\" \"{name}\" (func $f (param i32) (result i32))");
    let called = "(drop (call $f (i32.const 7)))";
    let empty =
        nanoseconds(&engine, "\"wavelock\" \"lane\" (func $f (result i32))", "(drop (call $f))")?;
    println!("lane    {empty:6.1} ns per call");
    let command = "\"host\" \"command\" (func $f (param i32))";
    for (name, import, call) in [
        ("pure", one("pure").as_str(), called),
        ("view", one("view").as_str(), called),
        ("command", command, "(call $f (i32.const 7))"),
    ] {
        let found = nanoseconds(&engine, import, call)?;
        println!("{name:7} {found:6.1} ns per call, {:6.1} over lane", found - empty);
    }
    Ok(())
}
