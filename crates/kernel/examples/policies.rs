//! Ten thousand coroutines under every policy: who gets how much, who waits how long, and what the
//! scheduling costs.
//!
//! `cargo run --release -p wavelock-kernel --example policies`. The kernel knows no bytecode, so
//! the coroutines here are four kinds of behaviour: *hogs* use every quantum, *yielders* run a
//! little and yield, *sleepers* run a little and sleep for some frames, *pairs* wake their partner
//! and wait for it. A quarter of each kind is of higher priority (200 instead of 100) and weight
//! (4096 instead of 1024). All numbers are virtual: the same on every machine. A policy that
//! starves somebody shows it here; docs/scheduler.md says which promise what.

use wavelock_abi::{
    Cycles, Frame, LaneId, Priority, SCHEDULER_COSTS_V1, SchedulerOperation, Weight,
};
use wavelock_kernel::{
    BlockReason, FairSettings, Lane, LaneSettings, Ledger, Next, Outcome, Policy, PolicyKind,
    Refusal, Reservation, Span, Spawn, Tag, WakeSource,
};

const COROUTINES: u32 = 10_000;
const KINDS: [&str; 4] = ["hogs", "yielders", "sleepers", "pairs"];
const QUANTUM: Cycles = Cycles(10_000);
const FRAME: Cycles = Cycles(20_000_000);
const FRAMES: u64 = 20;

fn policies() -> impl Iterator<Item = (&'static str, Policy)> {
    let fair =
        FairSettings::new(QUANTUM, Cycles(5_000), FRAME).expect("settings within their limits");
    PolicyKind::ALL
        .iter()
        .map(move |kind| (kind.name(), kind.with_quantum(QUANTUM).unwrap_or(Policy::Fair(fair))))
}

/// Kind and rank of a coroutine, by its number.
const fn kind(number: u32) -> usize {
    (number % 4) as usize
}

const fn is_favoured(number: u32) -> bool {
    (number / 4).is_multiple_of(4)
}

/// The partner of a number of the kind `pairs`: neighbours among the pairs.
const fn partner(number: u32) -> u32 {
    let index = number / 4;
    (if index.is_multiple_of(2) { index + 1 } else { index - 1 }) * 4 + 3
}

fn run(policy: Policy) -> Result<(Lane, Vec<Ledger>), Refusal> {
    let settings =
        LaneSettings { policy, frame_cycles: FRAME, costs: SCHEDULER_COSTS_V1, handoff: false };
    let mut lane = Lane::new(LaneId(0), settings);
    lane.reserve(Reservation { coroutines: COROUTINES, sessions: 1 })?;
    let mut references = Vec::new();
    for number in 0..COROUTINES {
        let (priority, weight) = if is_favoured(number) { (200, 4096) } else { (100, 1024) };
        let weight = Weight::new(weight).unwrap_or_default();
        references.push(lane.spawn(Spawn {
            priority: Priority(priority),
            weight,
            ..Spawn::new(Tag::new(0, number))
        })?);
    }
    for frame in 0..FRAMES {
        if frame > 0 {
            lane.begin_frame(Frame(frame));
        }
        lane.begin_wave(Span::Until(Cycles::MAX));
        while let Next::Run(running) = lane.dispatch() {
            let number = running.tag().slot();
            let bound = running.bound();
            let (used, outcome) = match kind(number) {
                0 => (bound, Outcome::OutOfCycles),
                1 => (bound.min(Cycles(500)), Outcome::Yielded),
                2 => (
                    bound.min(Cycles(1_000)),
                    Outcome::Slept(Frame(frame + 1 + u64::from(number / 4 % 3))),
                ),
                _ => {
                    // A partner that does not wait yet needs no wake; the refusal says so.
                    let _ = lane.wake(references[partner(number) as usize], WakeSource::Channel);
                    (bound.min(Cycles(300)), Outcome::Blocked(BlockReason::ChannelReceive))
                }
            };
            lane.stop(running, used, outcome);
        }
        let row = lane.end_frame();
        assert!(row.is_conserved(FRAME));
    }
    let ledgers =
        references.iter().map(|&reference| lane.ledger(reference)).collect::<Result<_, _>>()?;
    Ok((lane, ledgers))
}

fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{}%", tenths / 10, tenths % 10)
}

fn main() -> Result<(), Refusal> {
    println!(
        "{COROUTINES} coroutines on one lane, {FRAMES} frames of {} cycles, quantum {}\n",
        FRAME.0, QUANTUM.0
    );
    println!(
        "{:<15} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8}",
        "share of time", "hogs", "yield", "sleep", "pairs", "favoured", "never", "overhead"
    );
    let mut waits = Vec::new();
    let mut costs = Vec::new();
    for (name, policy) in policies() {
        let (lane, ledgers) = run(policy)?;
        let totals = lane.totals();
        let share = |wanted: &dyn Fn(u32) -> bool| {
            (0u32..)
                .zip(&ledgers)
                .filter(|(number, _)| wanted(*number))
                .map(|(_, ledger)| ledger.runtime.0)
                .sum::<u64>()
        };
        let kinds: Vec<String> = (0..4)
            .map(|wanted| percent(share(&|number| kind(number) == wanted), totals.charged.0))
            .collect();
        let favoured = percent(share(&is_favoured), totals.charged.0);
        let never = ledgers.iter().filter(|ledger| ledger.runtime == Cycles::ZERO).count();
        let overhead = percent(totals.overhead_total().0, lane.clock().0);
        println!(
            "{name:<15} {:>8} {:>8} {:>8} {:>8} {favoured:>9} {never:>8} {overhead:>8}",
            kinds[0], kinds[1], kinds[2], kinds[3]
        );
        waits.push((name, ledgers));
        costs.push((name, lane));
    }
    println!(
        "\n{:<15} {:>12} {:>12} {:>12} {:>12}   longest wait of one that ran, in cycles",
        "waits", KINDS[0], KINDS[1], KINDS[2], KINDS[3]
    );
    for (name, ledgers) in &waits {
        let longest = |wanted| {
            let kind = (0u32..).zip(ledgers).filter(|(number, _)| kind(*number) == wanted);
            kind.map(|(_, ledger)| ledger.wait_longest.0).max().unwrap_or(0)
        };
        println!(
            "{name:<15} {:>12} {:>12} {:>12} {:>12}",
            longest(0),
            longest(1),
            longest(2),
            longest(3)
        );
    }
    println!(
        "\n{:<15} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "costs, cycles", "picks", "pick", "switch", "wake", "timer", "preempted"
    );
    for ((name, lane), (_, ledgers)) in costs.iter().zip(&waits) {
        let of = |operation: SchedulerOperation| lane.totals().overhead[operation as usize].0;
        let preempted: u64 = ledgers.iter().map(|ledger| u64::from(ledger.preemptions)).sum();
        let operations = [
            SchedulerOperation::Pick,
            SchedulerOperation::Switch,
            SchedulerOperation::Wake,
            SchedulerOperation::Timer,
        ]
        .map(of);
        let [pick, switch, wake, timer] = operations;
        println!(
            "{name:<15} {:>10} {pick:>10} {switch:>10} {wake:>10} {timer:>10} {preempted:>12}",
            lane.picks()
        );
    }
    Ok(())
}
