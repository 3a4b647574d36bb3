//! What a yield costs in `system`: kernel, machine, ledger, log and digest, on one lane, without a
//! process around it.
//!
//! `cargo bench -p wavelock-system --bench yields [-- COROUTINES YIELDS]`: CPU nanoseconds per
//! yield, the least of five, for 1, 1,000 and 10,000 coroutines, or once for what is named, with
//! the run's digest. For instruction counts run it under `valgrind --tool=callgrind` with two
//! numbers of yields; the difference is theirs. Whole processes are timed by `benches/speed.py`.

mod guest;

use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_system::{MachineSpec, World};

fn main() {
    let numbers: Vec<u64> =
        guest::arguments().iter().filter_map(|argument| argument.parse().ok()).collect();
    if let [coroutines, yields] = numbers[..] {
        let mut world = world(coroutines, yields);
        println!(
            "{coroutines:>9} coroutines {:8.2} ns per yield",
            guest::run(&mut world) / (coroutines * yields) as f64
        );
        println!("digest {}", world.summary().digest);
        return;
    }
    for (coroutines, yields) in [(1, 2_000_000), (1_000, 2_000), (10_000, 200)] {
        let least =
            (0..5).map(|_| guest::run(&mut world(coroutines, yields))).fold(f64::MAX, f64::min);
        println!(
            "{coroutines:>9} coroutines {:8.2} ns per yield",
            least / (coroutines * yields) as f64
        );
    }
}

/// So many coroutines that yield so many times each, in turn.
fn world(coroutines: u64, yields: u64) -> World {
    let mut spec = MachineSpec::new();
    // Long, so that the first coroutine spawns all before any of them runs.
    spec.policy = Policy::RoundRobin { quantum: Cycles(1_000_000_000) };
    guest::world(guest::YIELD, &[coroutines, yields], spec)
}
