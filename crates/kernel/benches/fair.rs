//! Pick + charge + requeue of the fair queue against its floor: `BinaryHeap` pop + push of (u64,
//! u32), in one run.
//!
//! `cargo bench -p wavelock-kernel --bench fair`. Prints nanoseconds per step and the ratio, at 1,
//! 1,000 and 1,000,000 entities, for equal weights and for random weights and classes. The heap's
//! new key follows the same distribution of requests, so that both reinsert at like depths. Each
//! number is the least of many short runs, heap and queue alternating: on a shared machine the
//! least is what the code takes, the rest is what the neighbours took.

#[path = "../tests/model/random.rs"]
mod random;

use random::Random;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;
use wavelock_abi::{Cycles, LatencyClass, Weight};
use wavelock_kernel::fair::{Carried, FairQueue, FairSettings, Placement, Share};

const RUNS: usize = 400;
const STEPS: u64 = 3_000;
const BASE: u64 = 10_000;

fn shares(count: u32, mixed: bool) -> Vec<Share> {
    let mut numbers = Random(42);
    let share = |_| {
        if !mixed {
            return Share::default();
        }
        let weight = Weight::new(1 + (numbers.next() % 65_535) as u16).expect("not zero");
        Share { weight, class: LatencyClass::ALL[(numbers.next() % 5) as usize] }
    };
    (0..count).map(share).collect()
}

fn queue(shares: &[Share]) -> FairQueue {
    let settings =
        FairSettings::new(Cycles(BASE), Cycles(1_000), Cycles(BASE * 100)).expect("good settings");
    let mut queue = FairQueue::new(settings);
    queue.reserve(shares.len() as u32).expect("memory");
    for (slot, &share) in (0u32..).zip(shares) {
        queue.adopt(slot, Carried::fresh(share));
        queue.place(slot, Placement::Initial);
    }
    queue
}

fn run_queue(queue: &mut FairQueue, steps: u64) -> f64 {
    let start = Instant::now();
    for _ in 0..steps {
        queue.pick().expect("never empty");
        queue.charge(black_box(queue.bound()));
        queue.requeue();
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}

/// The floor holds (key, slot) and nothing else; `requests` is what a step adds to a slot's key.
fn run_heap(
    heap: &mut BinaryHeap<std::cmp::Reverse<(u64, u32)>>,
    requests: &[u64],
    steps: u64,
) -> f64 {
    let mask = requests.len() - 1;
    let start = Instant::now();
    for step in 0..steps {
        let std::cmp::Reverse((key, slot)) = heap.pop().expect("never empty");
        heap.push(std::cmp::Reverse((black_box(key + requests[step as usize & mask]), slot)));
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}

fn main() {
    println!(
        "{:>9} {:>8} {:>10} {:>10} {:>7}",
        "entities", "shares", "fair ns", "heap ns", "ratio"
    );
    for count in [1u32, 1_000, 1_000_000] {
        for mixed in [false, true] {
            let shares = shares(count, mixed);
            let mut fair = queue(&shares);
            let request = |share: &Share| {
                (share.class.request(Cycles(BASE)).0.max(1_000) << 20)
                    / u64::from(share.weight.get())
            };
            let requests: Vec<u64> = self::shares(1_024, mixed).iter().map(request).collect();
            let mut numbers = Random(7);
            let spread = requests.iter().max().expect("not empty");
            let mut heap: BinaryHeap<_> =
                (0..count).map(|slot| std::cmp::Reverse((numbers.next() % spread, slot))).collect();
            // Warm both until the steady state: everyone has run.
            run_queue(&mut fair, u64::from(count) * 3);
            run_heap(&mut heap, &requests, u64::from(count) * 3);
            let (mut fair_ns, mut heap_ns) = (f64::MAX, f64::MAX);
            for _ in 0..RUNS {
                fair_ns = fair_ns.min(run_queue(&mut fair, STEPS));
                heap_ns = heap_ns.min(run_heap(&mut heap, &requests, STEPS));
            }
            let shares = if mixed { "mixed" } else { "equal" };
            println!(
                "{count:>9} {shares:>8} {fair_ns:>10.1} {heap_ns:>10.1} {:>7.2}",
                fair_ns / heap_ns
            );
        }
    }
}
