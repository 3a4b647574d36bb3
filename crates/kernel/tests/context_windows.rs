//! The window property: in any interval of one period a context uses at most its budget and one
//! overrun. By brute force over all intervals of thousands of random schedules, for the ring alone
//! and for contexts on a lane among others; and the planted fault that breaks it.

mod support;

use support::{QUANTUM, Random, checked, lane, policies, spawn};
use wavelock_abi::{CoroutineRef, Cycles, Frame};
use wavelock_kernel::context::RefillRing;
use wavelock_kernel::{
    Activation, BlockReason, ContextParameters, ContextPhase, ContextSettings, Next, Outcome,
    OverrunPolicy, WakeSource,
};

/// The most that was used in any interval of `period`: intervals that matter begin where a use
/// begins or end where one ends.
fn fullest_window(uses: &[(u64, u64)], period: u64) -> u64 {
    let used_in = |from: u64, to: u64| -> u64 {
        uses.iter().map(|&(start, end)| end.min(to).saturating_sub(start.max(from))).sum()
    };
    let begins = uses.iter().map(|&(start, _)| (start, start + period));
    let ends = uses.iter().map(|&(_, end)| (end.saturating_sub(period), end));
    begins.chain(ends).map(|(from, to)| used_in(from, to)).max().unwrap_or(0)
}

/// A random schedule of one ring: wakes, runs with overruns up to `gap`, waits. Gives the uses.
fn schedule(seed: u64, activates: bool) -> (Vec<(u64, u64)>, u64, u64, u64) {
    let mut random = Random(seed);
    let gap = random.below(4);
    let least = 2 * (gap + 1);
    let period = 40 + random.below(100);
    let budget = least + random.below(period / 2 - least);
    let mut ring = RefillRing::new(
        Cycles(budget),
        Cycles(period),
        2 + random.below(7) as u8,
        Cycles(least),
        Cycles(0),
    );
    let (mut now, mut uses) = (0, Vec::new());
    for _ in 0..60 {
        now += random.below(period / 2);
        if !ring.is_ready(Cycles(now)) {
            if random.below(3) > 0 {
                now = ring.head().at.0;
            }
            continue;
        }
        if activates {
            ring.activate(Cycles(now));
        }
        let head = ring.head().amount.0;
        let wanted = 1 + random.below(head + head / 2);
        let used = if wanted >= head {
            head + if gap > 0 { random.below(gap) } else { 0 }
        } else {
            wanted
        };
        uses.push((now, now + used));
        now += used;
        ring.charge(Cycles(used));
        assert!(ring.is_sound(), "seed {seed}: {ring:?}");
    }
    (uses, budget, period, gap)
}

#[test]
fn vector_8_no_window_holds_more_than_the_budget_and_one_overrun() {
    let mut reached = 0;
    for seed in 0..3_000 {
        let (uses, budget, period, gap) = schedule(seed, true);
        let most = fullest_window(&uses, period);
        assert!(
            most <= budget + gap.saturating_sub(1),
            "seed {seed}: {most} in {period}, budget {budget}, G {gap}"
        );
        reached += u32::from(most >= budget);
    }
    assert!(reached > 1_000, "schedules that use their whole budget: {reached}");
}

#[test]
fn without_the_activation_step_the_window_breaks() {
    let broken = (0..2_000).filter(|&seed| {
        let (uses, budget, period, gap) = schedule(seed, false);
        fullest_window(&uses, period) > budget + gap
    });
    let broken = broken.count();
    assert!(broken > 1_500, "a saved-up budget is used twice: {broken} of 2000");
}

/// What one run of a lane showed of its contexts.
struct Shown {
    /// By context: the lane time it was charged for, in pieces.
    uses: Vec<Vec<(u64, u64)>>,
    /// By context: the longest wait from the time its refill counted to its run.
    delays: Vec<u64>,
    wanted: Vec<ContextParameters>,
}

/// Contexts among hogs and sleepers on a lane, with random stops that overrun by less than `gap`.
// Long: one loop with every random choice in the order it is drawn.
fn run_lane(seed: u64, activation: Activation) -> Shown {
    let mut random = Random(seed);
    let gap = 20;
    let (name, policy) = policies().nth(random.below(8) as usize).expect("eight policies");
    let mut lane = lane(policy);
    lane.reserve_contexts(ContextSettings { gap: Cycles(gap), wave: None }, 8).expect("memory");
    for slot in 0..random.below(3) as u32 {
        let _ = spawn(&mut lane, 9, slot);
    }
    let mut holders: Vec<CoroutineRef> = Vec::new();
    let mut wanted = Vec::new();
    for slot in 0..1 + random.below(4) as u32 {
        let period = 5_000 + random.below(20_000);
        let budget = 300 + random.below(period / 3);
        let overrun = [OverrunPolicy::Throttle, OverrunPolicy::Demote][random.below(2) as usize];
        let refills = 2 + random.below(7) as u8;
        let parameters = ContextParameters {
            activation,
            overrun,
            refills,
            ..ContextParameters::new(Cycles(budget), Cycles(period))
        };
        let context = lane.create_context_unadmitted(parameters).expect("room");
        let holder = spawn(&mut lane, slot, 0);
        lane.bind_context(context, holder).expect("free");
        holders.push(holder);
        wanted.push(parameters);
    }
    let mut shown =
        Shown { uses: vec![Vec::new(); holders.len()], delays: vec![0; holders.len()], wanted };
    for _ in 0..400 {
        let before = lane.clock();
        let running = match lane.dispatch() {
            Next::Run(running) => running,
            Next::Over => {
                let _ = lane.end_frame();
                lane.begin_frame(Frame(lane.frame().0 + 1));
                continue;
            }
            Next::Idle => {
                lane.align(before + Cycles(random.below(3_000)));
                let waiting = holders[random.below(holders.len() as u64) as usize];
                let _ = lane.wake(waiting, WakeSource::SessionEnd);
                continue;
            }
        };
        let holder = holders.iter().position(|&holder| holder == running.reference());
        let view = lane
            .context_of(running.reference())
            .map(|context| lane.context(context).expect("live"));
        let used = match random.below(3) {
            0 => running.bound() + Cycles(random.below(gap)),
            1 => Cycles(1 + random.below(running.bound().0)),
            _ => running.bound(),
        };
        let used = used.min(QUANTUM + Cycles(gap - 1));
        let outcome = match random.below(6) {
            0 => Outcome::Blocked(BlockReason::Select),
            1 => Outcome::Yielded,
            2 => Outcome::Slept(Frame(lane.frame().0 + 1)),
            _ if used < running.bound() => Outcome::Yielded,
            _ => Outcome::OutOfCycles,
        };
        if let (Some(at), Some(view)) = (holder, view)
            && view.phase == ContextPhase::Current
        {
            // The context pays from the moment it was picked: the pick and the switch, then the
            // slice.
            let overhead =
                if running.picked() { 12 + if running.switched() { 24 } else { 0 } } else { 0 };
            let begin = lane.clock().0 - overhead;
            shown.uses[at].push((begin, lane.clock().0 + used.0));
            shown.delays[at] = shown.delays[at].max(begin.saturating_sub(view.ring.head().at.0));
        }
        lane.stop(running, used, outcome);
        lane.drain_context_events(|_| ());
        if random.below(8) == 0 {
            let waiting = holders[random.below(holders.len() as u64) as usize];
            let _ = lane.wake(waiting, WakeSource::SessionEnd);
        }
    }
    checked(&lane);
    assert!(!name.is_empty());
    shown
}

#[test]
fn constant_bandwidth_keeps_its_window_whatever_else_runs() {
    let mut reached = 0;
    for seed in 0..1_500 {
        let shown = run_lane(seed, Activation::ConstantBandwidth);
        for (uses, wanted) in shown.uses.iter().zip(&shown.wanted) {
            let most = fullest_window(uses, wanted.period.0);
            assert!(
                most < wanted.budget.0 + 20,
                "seed {seed}: {most} of {} in {}",
                wanted.budget.0,
                wanted.period.0
            );
            reached += u32::from(most >= wanted.budget.0);
        }
    }
    assert!(reached > 500, "windows that are full: {reached}");
}

#[test]
fn sporadic_contexts_exceed_their_window_by_no_more_than_they_were_delayed() {
    let mut exceeded = 0;
    for seed in 0..1_500 {
        let shown = run_lane(seed, Activation::Sporadic);
        for ((uses, wanted), delay) in shown.uses.iter().zip(&shown.wanted).zip(&shown.delays) {
            let most = fullest_window(uses, wanted.period.0);
            assert!(
                most < wanted.budget.0 + 20 + delay,
                "seed {seed}: {most} of {} in {}, delayed {delay}",
                wanted.budget.0,
                wanted.period.0
            );
            exceeded += u32::from(most >= wanted.budget.0 + 20);
        }
    }
    assert!(exceeded > 0, "the looser bound is needed");
}
