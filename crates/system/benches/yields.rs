//! What a yield costs in `system`: kernel, machine, ledger, log and digest, on one lane, without a process around it.
//!
//! `cargo bench -p wavelock-system --bench yields [-- COROUTINES YIELDS]`: CPU nanoseconds per yield, the least of five, for 1, 1,000 and 10,000
//! coroutines, or once for what is named, with the run's digest. For instruction counts run it under `valgrind --tool=callgrind` with two numbers of
//! yields; the difference is theirs. Whole processes are timed by `benches/speed.py`.

use std::sync::Arc;

use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, World};

/// The guest of `benches/guests/yield-*.toml`.
const GUEST: &str = include_str!("../../../benches/guests/yield.wat");

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if let [coroutines, yields] = numbers[..] {
        let mut world = world(coroutines, yields);
        println!("{coroutines:>9} coroutines {:8.2} ns per yield", run(&mut world) / (coroutines * yields) as f64);
        println!("digest {}", world.summary().digest);
        return;
    }
    for (coroutines, yields) in [(1, 2_000_000), (1_000, 2_000), (10_000, 200)] {
        let least = (0..5).map(|_| run(&mut world(coroutines, yields))).fold(f64::MAX, f64::min);
        println!("{coroutines:>9} coroutines {:8.2} ns per yield", least / (coroutines * yields) as f64);
    }
}

/// So many coroutines that yield so many times each, in turn.
fn world(coroutines: u64, yields: u64) -> World {
    let mut spec = MachineSpec::new();
    // Long, so that the first coroutine spawns all before any of them runs.
    spec.policy = Policy::RoundRobin { quantum: Cycles(1_000_000_000) };
    let module = Module::from_text(GUEST.as_bytes(), &Limits::default()).expect("the guest is valid");
    let module = spec.add_module(Arc::new(module), GUEST.as_bytes());
    let session = spec.add_session("yield", module);
    spec.sessions[session.0 as usize].args = ["yield".into(), coroutines.to_string(), yields.to_string()].into();
    World::load(spec, Vec::new(), false).expect("a machine that can be made").world
}

/// CPU nanoseconds of the run.
fn run(world: &mut World) -> f64 {
    let before = cpu_nanoseconds();
    let outcome = world.run(&mut ());
    let time = cpu_nanoseconds() - before;
    assert!(outcome.is_ok(), "{outcome:?}");
    time
}

/// CPU time of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}
