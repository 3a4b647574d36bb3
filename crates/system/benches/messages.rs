//! What a message inside a session costs in `system`: machine, channel, kernel, ledger, log and
//! digest, on one lane, without a process around it.
//!
//! `cargo bench -p wavelock-system --bench messages [-- GUEST A B]`: CPU nanoseconds per message,
//! the least of five, for a pair, 1,000 pairs, a ring of 1,000 and a stream over a channel 64 deep;
//! or once for a guest (`pingpong`, `ring`, `stream`) and its two arguments, with the run's digest.
//! For instruction counts run it under `valgrind --tool=callgrind` with two sizes; the difference
//! is theirs. Whole processes are timed by `benches/speed.py`.

mod guest;

use guest::Guest;
use wavelock_system::{MachineSpec, World};

/// How many messages a run with two arguments sends.
type Count = fn(u64, u64) -> u64;

/// The guests that send messages.
const GUESTS: [(Guest, Count); 3] = [
    (guest::PINGPONG, |pairs, rounds| pairs * rounds * 2),
    (guest::RING, |_, hops| hops),
    (guest::STREAM, |messages, _| messages),
];

fn main() {
    let arguments = guest::arguments();
    if let Some((name, numbers)) = arguments.split_first() {
        let numbers: Vec<u64> =
            numbers.iter().filter_map(|argument| argument.parse().ok()).collect();
        let [first, second] = numbers[..] else { panic!("a guest has two numbers") };
        let (mut world, messages) = world(name, first, second);
        println!(
            "{name} {first} {second} {:8.2} ns per message",
            guest::run(&mut world) / messages as f64
        );
        println!("digest {}", world.summary().digest);
        return;
    }
    for (name, first, second) in [
        ("pingpong", 1, 200_000),
        ("pingpong", 1_000, 200),
        ("ring", 1_000, 400_000),
        ("stream", 1_000_000, 64),
    ] {
        let once = || {
            let (mut world, messages) = world(name, first, second);
            guest::run(&mut world) / messages as f64
        };
        let least = (0..5).map(|_| once()).fold(f64::MAX, f64::min);
        println!("{name:>9} {first:>8} {second:>7} {least:8.2} ns per message");
    }
}

/// A guest with its arguments, and how many messages it sends.
fn world(wanted: &str, first: u64, second: u64) -> (World, u64) {
    let found = GUESTS.into_iter().find(|((name, _), _)| *name == wanted);
    let (guest, messages) =
        found.unwrap_or_else(|| panic!("no guest {wanted}: pingpong, ring or stream"));
    (guest::world(guest, &[first, second], MachineSpec::new()), messages(first, second))
}
