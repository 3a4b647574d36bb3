//! The guests of a million coroutines in `system`, without a process around them: spawns, sleepers,
//! idle ones, yields.
//!
//! `cargo bench -p wavelock-system --bench guests -- GUEST NUMBERS...` runs one of `spawn`,
//! `sleepers`, `idle` and `yield` with these arguments (`spawn 1000000`, `sleepers 1000000 10`):
//! CPU nanoseconds per operation, user and system time apart, the largest resident set, and the
//! digest. For instruction counts run it under `valgrind --tool=callgrind` with two sizes; the
//! difference is theirs. Whole processes are timed by `benches/speed.py`.

mod guest;

use guest::Guest;
use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_system::MachineSpec;

const GUESTS: [Guest; 7] = [
    guest::SPAWN,
    guest::SLEEPERS,
    guest::IDLE,
    guest::YIELD,
    guest::PINGPONG,
    guest::STREAM,
    guest::RING,
];

fn main() {
    let arguments = guest::arguments();
    let Some((wanted, numbers)) = arguments.split_first() else {
        println!("usage: guests GUEST NUMBERS...");
        return;
    };
    let Some(&guest) = GUESTS.iter().find(|(name, _)| name == wanted) else {
        println!("no guest {wanted}");
        return;
    };
    let numbers: Vec<u64> =
        numbers.iter().map(|number| number.parse().expect("a number")).collect();
    let mut world = guest::world(guest, &numbers, spec(wanted));
    let before = ticks();
    let time = guest::run(&mut world);
    let [user, system] = [0, 1].map(|at| ticks()[at] - before[at]);
    let operations: f64 = numbers.iter().take(2).map(|&number| number as f64).product();
    // The clock in nanoseconds does not tell the two apart; their ticks do, as a share of it.
    let share = time / operations / (user + system).max(1.0);
    println!(
        "{wanted} {numbers:?}: {:.0} ns per operation, {:.0} user and {:.0} system; {} KiB at most",
        time / operations,
        user * share,
        system * share,
        largest()
    );
    println!("digest {}", world.summary().digest);
}

/// As the manifests have it: a long quantum lets the first coroutine spawn all before any of them
/// runs, and sleepers have long frames.
fn spec(guest: &str) -> MachineSpec {
    let mut spec = MachineSpec::new();
    spec.limits.coroutines = 1_000_001;
    match guest {
        "sleepers" => spec.frame_cycles = Cycles(100_000_000),
        "pingpong" | "stream" | "ring" => {}
        _ => spec.policy = Policy::RoundRobin { quantum: Cycles(1_000_000_000) },
    }
    spec
}

/// User and system time of this process, in hundredths of a second.
fn ticks() -> [f64; 2] {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // Behind the name, which may hold anything.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].map(|at| fields[at].parse().expect("a number"))
}

/// The largest resident set, in KiB.
fn largest() -> String {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or("?")
        .replace("kB", "")
        .trim()
        .into()
}
