//! What a scheduling decision costs, against floors in the same run.
//!
//! `cargo bench -p wavelock-kernel` prints, for every policy at 1, 1,000 and 1,000,000 ready
//! coroutines, nanoseconds per pick + charge + requeue and the ratio to the floor: for FIFO
//! policies a `VecDeque` of indices with one read-modify-write of a record of our size per pick,
//! for the ordered ones a `BinaryHeap` pop and push of `(u64, u32)`. Then block + wake, sleep +
//! wake of a million, steal, and bytes per coroutine.
//!
//! `cargo bench -p wavelock-kernel -- count POLICY N OPERATIONS` runs only that many operations,
//! for an instruction counter; `crates/kernel/benches/instructions.sh` uses it.
//!
//! The best of many short windows is reported: the least disturbed one. The clock is read here
//! only, never in the kernel.

#[allow(dead_code, reason = "only dispatch and stop of the model are measured")]
#[path = "../tests/model/mod.rs"]
mod model;
#[allow(unused_imports, reason = "the model names the driver's effects")]
#[path = "../tests/support/mod.rs"]
mod support;

use model::lane::{Decision, ModelLane, Settings};
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    BlockReason, ContextParameters, ContextSettings, FairSettings, Lane, LaneSettings, MoveKind,
    Next, Outcome, Policy, PolicyKind, Reservation, Span, Spawn, Tag, WakeSource,
};

const QUANTUM: Cycles = Cycles(10_000);
/// Windows measured; the best counts. They are short, so that on a busy machine some of them run
/// undisturbed.
const WINDOWS: usize = 100;
/// Operations in a window.
const WINDOW: u64 = 20_000;

/// The policies by name, and whether their floor is the FIFO one.
fn policies() -> impl Iterator<Item = (&'static str, Policy, bool)> {
    let fair = FairSettings::new(QUANTUM, Cycles(1_000), Cycles(1_000_000))
        .expect("settings within their limits");
    PolicyKind::ALL.iter().map(move |kind| {
        let is_fifo = matches!(
            kind,
            PolicyKind::Cooperative | PolicyKind::RoundRobin | PolicyKind::ProgressAware
        );
        (kind.name(), kind.with_quantum(QUANTUM).unwrap_or(Policy::Fair(fair)), is_fifo)
    })
}

fn lane(policy: Policy, coroutines: u32) -> Lane {
    let settings = LaneSettings {
        policy,
        frame_cycles: Cycles(1 << 48),
        costs: SCHEDULER_COSTS_V1,
        handoff: false,
    };
    let mut lane = Lane::new(LaneId(0), settings);
    lane.reserve(Reservation { coroutines, sessions: 1 }).expect("memory");
    for slot in 0..coroutines {
        let spawn =
            Spawn { priority: Priority((slot % 16) as u8), ..Spawn::new(Tag::new(0, slot)) };
        lane.spawn(spawn).expect("reserved");
    }
    lane.begin_wave(Span::Until(Cycles(1 << 48)));
    lane
}

/// A lane whose coroutines all hold contexts: each pick is the first of the tier, each requeue goes
/// to its end (`made` of them; none: the tier alone).
fn lane_with_contexts(coroutines: u32, made: u32) -> Lane {
    let mut lane = lane(Policy::RoundRobin { quantum: QUANTUM }, coroutines);
    lane.reserve_contexts(ContextSettings { gap: Cycles(64), wave: None }, made.max(1))
        .expect("memory");
    let holders: Vec<_> = lane.session(0).map(|(holder, _)| holder).take(made as usize).collect();
    for holder in holders {
        let parameters = ContextParameters::new(Cycles(1 << 22), Cycles(u64::from(made) << 23));
        let context = lane.create_context(parameters).expect("half of the lane is enough for all");
        lane.bind_context(context, holder).expect("free");
    }
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

/// The naive model: every pick looks at everybody.
fn naive(policy: Policy, count: u32) -> f64 {
    let mut lane = ModelLane::new(Settings { policy, frame_cycles: 1 << 48, handoff: false }, None);
    for slot in 0..count {
        let spawn =
            Spawn { priority: Priority((slot % 16) as u8), ..Spawn::new(Tag::new(0, slot)) };
        lane.spawn(CoroutineRef::new(slot, 0), spawn);
    }
    lane.begin_wave(Span::Until(Cycles(1 << 48)));
    let (windows, window) = (5, 100);
    let mut least = f64::INFINITY;
    for _ in 0..windows {
        let start = Instant::now();
        for _ in 0..window {
            let Decision::Run { reference, .. } = lane.dispatch() else {
                unreachable!("something is always ready")
            };
            lane.stop(u64::from(reference.slot) & 63, Outcome::Yielded);
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(window));
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
    let mut queue: BinaryHeap<(u64, u32)> =
        (0..count).map(|slot| (u64::MAX - u64::from(slot), slot)).collect();
    best(|| {
        for _ in 0..WINDOW {
            let (key, slot) = queue.pop().expect("never empty");
            queue.push((key - u64::from(count), slot));
        }
        black_box(&queue);
    })
}

fn table_of_picks() {
    println!(
        "| policy | ready | ns per pick + charge + requeue | floor, ns | times the floor | naive model, ns | times faster |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for count in [1, 1_000, 1_000_000] {
        let (fifo, heap) = (fifo_floor(count), heap_floor(count));
        for (name, policy, is_fifo) in policies() {
            let mut lane = lane(policy, count);
            yields(&mut lane, u64::from(count));
            let cost = best(|| yields(&mut lane, WINDOW));
            let floor = if is_fifo { fifo } else { heap };
            let kind = if is_fifo { "deque" } else { "heap" };
            // At a million the model would take minutes.
            let (model, faster) = if count > 1_000 {
                ("-".to_string(), "-".to_string())
            } else {
                let model = naive(policy, count);
                (format!("{model:.0}"), format!("{:.1}", model / cost))
            };
            println!(
                "| {name} | {count} | {cost:.1} | {floor:.1} ({kind}) | {:.2} | {model} | {faster} |",
                cost / floor
            );
        }
    }
}

fn block_and_wake() {
    let count = 1_000;
    let mut lane = lane(Policy::RoundRobin { quantum: QUANTUM }, count);
    let cost = best(|| {
        for _ in 0..WINDOW {
            let Next::Run(running) = lane.dispatch() else {
                unreachable!("something is always ready")
            };
            let reference = running.reference();
            lane.stop(running, Cycles(50), Outcome::Blocked(BlockReason::ChannelReceive));
            lane.wake(reference, WakeSource::Channel).expect("it is blocked");
        }
    });
    println!("| block + wake (with the pick), 1,000 ready | {cost:.1} |");
}

/// The middle of some measurements.
fn median(mut measured: Vec<f64>) -> f64 {
    measured.sort_by(f64::total_cmp);
    measured[measured.len() / 2]
}

fn million_sleepers() {
    let count = 1_000_000u64;
    let mut lane = lane(Policy::RoundRobin { quantum: QUANTUM }, count as u32);
    let mut slept = Vec::new();
    for window in 0..count / WINDOW {
        let start = Instant::now();
        for index in window * WINDOW..(window + 1) * WINDOW {
            let Next::Run(running) = lane.dispatch() else { unreachable!("all are ready") };
            lane.stop(running, Cycles(50), Outcome::Slept(Frame(1 + index * 7919 % 1_000)));
        }
        slept.push(start.elapsed().as_nanos() as f64 / WINDOW as f64);
    }
    let (mut woken, mut waking) = (0, Vec::new());
    while let Some(next) = lane.next_wake() {
        let start = Instant::now();
        let now = lane.begin_frame(next);
        waking.push(start.elapsed().as_nanos() as f64 / f64::from(now));
        woken += u64::from(now);
    }
    assert_eq!((woken, lane.frame()), (count, Frame(1_000)));
    println!(
        "| sleep (with the pick) of a million, 1 to 1,000 frames, median of windows | {:.1} |",
        median(slept)
    );
    println!("| wake of a million sleepers, median of frames | {:.1} |", median(waking));
}

fn steal() {
    let (sessions, members) = (1_000u32, 4u32);
    let settings = *lane(Policy::RoundRobin { quantum: QUANTUM }, 1).settings();
    let (mut from, mut to) = (Lane::new(LaneId(0), settings), Lane::new(LaneId(1), settings));
    for lane in [&mut from, &mut to] {
        lane.reserve(Reservation { coroutines: sessions * members, sessions }).expect("memory");
    }
    for index in 0..sessions * members {
        from.spawn(Spawn::new(Tag::new(index / members, index % members))).expect("reserved");
    }
    let mut costs = Vec::new();
    for session in 0..sessions {
        let start = Instant::now();
        let _ = black_box(from.offer(u64::from(session), |_| None));
        from.move_session(session, &mut to, MoveKind::Stolen, |_, reference| {
            black_box(reference);
        })
        .expect("reserved");
        costs.push(start.elapsed().as_nanos() as f64 / f64::from(members));
    }
    println!(
        "| steal of a session of four from a thousand, per coroutine, median | {:.1} |",
        median(costs)
    );
}

/// Bytes the allocator gave for a lane of a million, per coroutine.
fn bytes() {
    // All stay alive until the end, so that none is made of memory another gave back.
    let mut lanes = Vec::new();
    for (name, policy, _) in policies().filter(|(name, ..)| matches!(*name, "round-robin" | "fair"))
    {
        let before = resident();
        lanes.push(lane(policy, 1_000_000));
        println!(
            "| per coroutine of a million, {name} (resident) | {} |",
            (resident() - before) / 1_000_000
        );
    }
    black_box(&lanes);
}

/// Resident bytes of this process; 0 where the system does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(0, |pages| pages * 4_096)
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [mode, name, count, operations] = arguments.as_slice()
        && mode == "count"
    {
        let count = count.parse().expect("a number of coroutines");
        let mut lane = match name.as_str() {
            "contexts" => lane_with_contexts(count, count),
            "tier" => lane_with_contexts(count, 0),
            _ => lane(
                policies().find(|(known, ..)| known == name).expect("a policy's name").1,
                count,
            ),
        };
        yields(&mut lane, operations.parse().expect("a number of operations"));
        black_box(&lane);
        return;
    }
    // First, while nothing else has left memory behind for reuse.
    println!("| memory | bytes |\n|---|---:|");
    bytes();
    println!();
    table_of_picks();
    println!("\n| operation | ns |\n|---|---|");
    block_and_wake();
    million_sleepers();
    steal();
}
