//! The guests of a million coroutines in `system`, without a process around them: spawns, sleepers, idle ones, yields.
//!
//! `cargo bench -p wavelock-system --bench guests -- GUEST NUMBERS...` runs one of `spawn`, `sleepers`, `idle` and `yield` with these arguments
//! (`spawn 1000000`, `sleepers 1000000 10`): CPU nanoseconds per operation, user and system time apart, the largest resident set, and the digest. For instruction counts run it under
//! `valgrind --tool=callgrind` with two sizes; the difference is theirs. Whole processes are timed by `benches/speed.py`.

use std::sync::Arc;

use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, World};

const GUESTS: [(&str, &str); 4] = [
    ("spawn", include_str!("../../../benches/guests/spawn.wat")),
    ("sleepers", include_str!("../../../benches/guests/sleepers.wat")),
    ("idle", include_str!("../../../benches/guests/idle.wat")),
    ("yield", include_str!("../../../benches/guests/yield.wat")),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let Some((name, numbers)) = arguments.split_first() else {
        println!("usage: guests GUEST NUMBERS...");
        return;
    };
    let Some(&(_, text)) = GUESTS.iter().find(|(guest, _)| guest == name) else {
        println!("no guest {name}");
        return;
    };
    let mut world = world(name, text, numbers);
    let before = ticks();
    world.run(&mut ()).expect("a run");
    let after = ticks();
    let operations: f64 = numbers.iter().take(2).filter_map(|number| number.parse::<f64>().ok()).product();
    let [user, system] = [0, 1].map(|at| (after[at] - before[at]) * 1e7 / operations);
    println!("{name} {numbers:?}: {:.0} ns per operation, {user:.0} user and {system:.0} system; {} KiB at most", user + system, largest());
    println!("digest {}", world.summary().digest);
}

fn world(name: &str, text: &str, numbers: &[String]) -> World {
    let mut spec = MachineSpec::new();
    spec.limits.coroutines = 1_000_001;
    // As the manifests have it: a long quantum lets the first coroutine spawn all before any of them runs, and sleepers have long frames.
    match name {
        "sleepers" => spec.frame_cycles = Cycles(100_000_000),
        _ => spec.policy = Policy::RoundRobin { quantum: Cycles(1_000_000_000) },
    }
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("the guest is valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    let session = spec.add_session(name, module);
    spec.sessions[session.0 as usize].args = std::iter::once(name.into()).chain(numbers.iter().cloned()).collect();
    World::load(spec, Vec::new(), false).expect("a machine that can be made").world
}

/// User and system time of this process, in hundredths of a second.
fn ticks() -> [f64; 2] {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // Behind the name, which may hold anything.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].map(|at| fields[at].parse().expect("a number"))
}

/// The largest resident set, in KiB.
fn largest() -> String {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?").replace("kB", "").trim().into()
}
