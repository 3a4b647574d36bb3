//! What a scheduling decision costs, against floors in the same run.
//!
//! `cargo bench -p wavelock-kernel` prints, for every policy at 1, 1,000 and 1,000,000 ready coroutines, nanoseconds per pick + charge + requeue and the
//! ratio to the floor: for FIFO policies a `VecDeque` of indices with one read-modify-write of a record of our size per pick, for the ordered ones
//! a `BinaryHeap` pop and push of `(u64, u32)`. Then block + wake, sleep + wake of a million, steal, and bytes per coroutine.
//!
//! `cargo bench -p wavelock-kernel -- count POLICY N OPERATIONS` runs only that many operations, for an instruction counter;
//! `crates/kernel/benches/instructions.sh` uses it.
//!
//! The best of many short windows is reported: the least disturbed one. The clock is read here only, never in the kernel.

use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;
use wavelock_abi::{Cycles, Frame, LaneId, Priority, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    BlockReason, FairSettings, Lane, LaneSettings, MoveKind, Next, Outcome, Policy, PriorityRule, Reservation, Span, Spawn, Tag, WakeSource,
};

const QUANTUM: Cycles = Cycles(10_000);
/// Windows measured; the best counts. They are short, so that on a busy machine some of them run undisturbed.
const WINDOWS: usize = 100;
/// Operations in a window.
const WINDOW: u64 = 20_000;

/// The policies by name, and whether their floor is the FIFO one.
fn policies() -> [(&'static str, Policy, bool); 7] {
    let fair = FairSettings::new(QUANTUM, Cycles(1_000), Cycles(1_000_000)).expect("settings within their limits");
    let priority = |rule| Policy::Priority { rule, quantum: QUANTUM };
    [
        ("cooperative", Policy::Cooperative, true),
        ("round-robin", Policy::RoundRobin { quantum: QUANTUM }, true),
        ("priority-fixed", priority(PriorityRule::FixedMap), false),
        ("priority-aging", priority(PriorityRule::Aging), false),
        ("priority-token", priority(PriorityRule::TokenWeighted), false),
        ("progress-aware", Policy::ProgressAware { quantum: QUANTUM }, true),
        ("fair", Policy::Fair(fair), false),
    ]
}

fn lane(policy: Policy, coroutines: u32) -> Lane {
    let settings = LaneSettings { policy, frame_cycles: Cycles(1 << 48), costs: SCHEDULER_COSTS_V1, handoff: false };
    let mut lane = Lane::new(LaneId(0), settings);
    lane.reserve(Reservation { coroutines, sessions: 1, effects: 0 }).expect("memory");
    for slot in 0..coroutines {
        let spawn = Spawn { priority: Priority((slot % 16) as u8), ..Spawn::new(Tag::new(0, slot)) };
        lane.spawn(spawn).expect("reserved");
    }
    lane.begin_wave(Span::Until(Cycles(1 << 48)));
    lane
}

/// Pick, charge, requeue.
#[inline]
fn yields(lane: &mut Lane, operations: u64) {
    for _ in 0..operations {
        let Next::Run(running) = lane.dispatch() else { unreachable!("something is always ready") };
        let used = Cycles(running.tag().0 & 63);
        lane.stop(running, used, Outcome::Yielded);
    }
}

/// Nanoseconds per operation in the best window.
fn best(mut window: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..WINDOWS {
        let start = Instant::now();
        window();
        least = least.min(start.elapsed().as_nanos() as f64 / WINDOW as f64);
    }
    least
}

/// A record of the size of ours.
#[derive(Clone)]
struct FloorRecord([u64; 11]);

fn fifo_floor(count: u32) -> f64 {
    let mut records = vec![FloorRecord([1; 11]); count as usize];
    let mut queue: VecDeque<u32> = (0..count).collect();
    best(|| {
        for _ in 0..WINDOW {
            let slot = queue.pop_front().expect("never empty");
            let record = &mut records[slot as usize];
            record.0[0] = record.0[0].wrapping_add(record.0[10] & 63);
            queue.push_back(slot);
        }
        black_box(&records);
    })
}

fn heap_floor(count: u32) -> f64 {
    let mut queue: BinaryHeap<(u64, u32)> = (0..count).map(|slot| (u64::MAX - u64::from(slot), slot)).collect();
    best(|| {
        for _ in 0..WINDOW {
            let (key, slot) = queue.pop().expect("never empty");
            queue.push((key - u64::from(count), slot));
        }
        black_box(&queue);
    })
}

fn table_of_picks() {
    println!("| policy | ready | ns per pick + charge + requeue | floor ns | ratio |");
    println!("|---|---|---|---|---|");
    for count in [1, 1_000, 1_000_000] {
        let (fifo, heap) = (fifo_floor(count), heap_floor(count));
        for (name, policy, is_fifo) in policies() {
            let mut lane = lane(policy, count);
            yields(&mut lane, u64::from(count));
            let cost = best(|| yields(&mut lane, WINDOW));
            let floor = if is_fifo { fifo } else { heap };
            println!("| {name} | {count} | {cost:.1} | {floor:.1} ({}) | {:.2} |", if is_fifo { "deque" } else { "heap" }, cost / floor);
        }
    }
}

fn block_and_wake() {
    let count = 1_000;
    let mut lane = lane(Policy::RoundRobin { quantum: QUANTUM }, count);
    let cost = best(|| {
        for _ in 0..WINDOW {
            let Next::Run(running) = lane.dispatch() else { unreachable!("something is always ready") };
            let reference = running.reference();
            lane.stop(running, Cycles(50), Outcome::Blocked(BlockReason::ChannelReceive));
            lane.wake(reference, WakeSource::Channel).expect("it is blocked");
        }
    });
    println!("| block + wake (with the pick), 1,000 ready | {cost:.1} |");
}

fn million_sleepers() {
    let count = 1_000_000u32;
    let mut lane = lane(Policy::RoundRobin { quantum: QUANTUM }, count);
    let mut frame = 0u64;
    let mut slept = 0u64;
    let start = Instant::now();
    for index in 0..u64::from(count) {
        let Next::Run(running) = lane.dispatch() else { unreachable!("all are ready") };
        lane.stop(running, Cycles(50), Outcome::Slept(Frame(1 + index * 7919 % 1_000)));
        slept += 1;
    }
    let sleep = start.elapsed().as_nanos() as f64 / slept as f64;
    let start = Instant::now();
    let mut woken = 0u64;

    while let Some(next) = lane.next_wake() {
        frame = next.0;
        woken += u64::from(lane.begin_frame(next));
    }
    let wake = start.elapsed().as_nanos() as f64 / woken as f64;
    assert_eq!((woken, frame), (u64::from(count), 1_000));
    println!("| sleep (with the pick) of a million, 1 to 1,000 frames | {sleep:.1} |");
    println!("| wake of a million sleepers | {wake:.1} |");
}

fn steal() {
    let sessions = 10_000u32;
    let settings = *lane(Policy::RoundRobin { quantum: QUANTUM }, 1).settings();
    let (mut from, mut to) = (Lane::new(LaneId(0), settings), Lane::new(LaneId(1), settings));
    for lane in [&mut from, &mut to] {
        lane.reserve(Reservation { coroutines: sessions * 4, sessions, effects: 0 }).expect("memory");
    }
    for index in 0..sessions * 4 {
        from.spawn(Spawn::new(Tag::new(index / 4, index % 4))).expect("reserved");
    }
    let start = Instant::now();
    for session in 0..sessions {
        from.move_session(session, &mut to, MoveKind::Stolen, |_, reference| {
            black_box(reference);
        })
        .expect("reserved");
    }
    let cost = start.elapsed().as_nanos() as f64 / f64::from(sessions * 4);
    println!("| move of a session of four, per coroutine | {cost:.1} |");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [mode, name, count, operations] = arguments.as_slice()
        && mode == "count"
    {
        let (_, policy, _) = policies().into_iter().find(|(known, ..)| known == name).expect("a policy's name");
        let mut lane = lane(policy, count.parse().expect("a number of coroutines"));
        yields(&mut lane, operations.parse().expect("a number of operations"));
        black_box(&lane);
        return;
    }
    table_of_picks();
    println!("\n| operation | ns |\n|---|---|");
    block_and_wake();
    million_sleepers();
    steal();
}
