//! What a message inside a session costs in `system`: machine, channel, kernel, ledger, log and digest, on one lane, without a process around it.
//!
//! `cargo bench -p wavelock-system --bench messages [-- GUEST A B]`: CPU nanoseconds per message, the least of five, for a pair, 1,000 pairs, a ring of
//! 1,000 and a stream over a channel 64 deep; or once for a guest (`pingpong`, `ring`, `stream`) and its two arguments, with the run's digest. For
//! instruction counts run it under `valgrind --tool=callgrind` with two sizes; the difference is theirs. Whole processes are timed by
//! `benches/speed.py`.

use std::sync::Arc;

use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, World};

/// A guest's name and text, and how many messages a run with two arguments sends.
type Guest = (&'static str, &'static str, fn(u64, u64) -> u64);

/// The guests of `benches/guests` that send messages.
const GUESTS: [Guest; 3] = [
    ("pingpong", include_str!("../../../benches/guests/pingpong.wat"), |pairs, rounds| pairs * rounds * 2),
    ("ring", include_str!("../../../benches/guests/ring.wat"), |_, hops| hops),
    ("stream", include_str!("../../../benches/guests/stream.wat"), |messages, _| messages),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| GUESTS.iter().any(|(name, ..)| name == argument)) {
        let numbers: Vec<u64> = arguments[at + 1..].iter().filter_map(|argument| argument.parse().ok()).collect();
        let [first, second] = numbers[..] else { panic!("a guest has two numbers") };
        let (mut world, messages) = world(&arguments[at], first, second);
        println!("{} {first} {second} {:8.2} ns per message", arguments[at], run(&mut world) / messages as f64);
        println!("digest {}", world.summary().digest);
        return;
    }
    for (guest, first, second) in [("pingpong", 1, 200_000), ("pingpong", 1_000, 200), ("ring", 1_000, 400_000), ("stream", 1_000_000, 64)]
    {
        let once = || {
            let (mut world, messages) = world(guest, first, second);
            run(&mut world) / messages as f64
        };
        let least = (0..5).map(|_| once()).fold(f64::MAX, f64::min);
        println!("{guest:>9} {first:>8} {second:>7} {least:8.2} ns per message");
    }
}

/// A guest with its arguments, and how many messages it sends.
fn world(guest: &str, first: u64, second: u64) -> (World, u64) {
    let (name, text, messages) = GUESTS.into_iter().find(|(name, ..)| *name == guest).expect("a guest of this list");
    let mut spec = MachineSpec::new();
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("the guest is valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    let session = spec.add_session(name, module);
    spec.sessions[session.0 as usize].args = [name.into(), first.to_string(), second.to_string()].into();
    (World::load(spec, Vec::new(), false).expect("a machine that can be made").world, messages(first, second))
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
