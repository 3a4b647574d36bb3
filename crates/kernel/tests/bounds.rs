//! The promise of each policy, under load that tries to break it. The promises are those of
//! docs/scheduler.md; policies that promise nothing across classes are shown to promise nothing.

mod support;

use support::{
    QUANTUM, ROUND_ROBIN, Random, lane, priority, run_across_frames, spawn, spawn_with_priority,
};
use wavelock_abi::{CoroutineRef, Cycles, MAX_GAP, Priority};
use wavelock_kernel::{BlockReason, Lane, Outcome, Policy, PriorityRule, Spawn, Tag, WakeSource};

/// Runs slices of hostile coroutines until `victim` is picked; gives the picks made before and the
/// cycles it waited.
fn wait_of(
    lane: &mut Lane,
    victim: CoroutineRef,
    most: u64,
    mut hostile: impl FnMut(&mut Lane, CoroutineRef) -> Outcome,
) -> Option<(u64, Cycles)> {
    let (picks, waited) = (lane.picks(), lane.ledger(victim).unwrap().wait_total);
    for _ in 0..most {
        let running = run_across_frames(lane);
        if running.reference() == victim {
            let waited = lane.ledger(victim).unwrap().wait_total - waited;
            let picks = lane.picks() - picks - u64::from(running.picked());
            lane.stop(running, Cycles(10), Outcome::Yielded);
            return Some((picks, waited));
        }
        let (reference, used) = (running.reference(), Cycles(running.bound().0 + MAX_GAP.0 - 1));
        // The worst slice: the whole bound and all but one cycle of the longest gap.
        let outcome = hostile(lane, reference);
        lane.stop(running, used, outcome);
    }
    None
}

#[test]
fn round_robin_waits_for_each_other_once() {
    let overhead = 12 + 24;
    for count in [2u32, 3, 17, 64] {
        let mut lane = lane(ROUND_ROBIN);
        for slot in 1..count {
            spawn(&mut lane, 0, slot);
        }
        let victim = spawn(&mut lane, 0, 0);
        let (picks, waited) =
            wait_of(&mut lane, victim, 10_000, |_, _| Outcome::OutOfCycles).expect("it is picked");
        assert_eq!(picks, u64::from(count - 1));
        let bound = u64::from(count - 1) * (QUANTUM.0 + MAX_GAP.0 + overhead);
        assert!(waited.0 <= bound, "{waited:?} > {bound}");
        assert!(
            waited.0 + 1_000 * u64::from(count) > bound,
            "the load is not the worst: {waited:?} of {bound}"
        );
    }
}

#[test]
fn round_robin_holds_against_newcomers_and_wakes() {
    let mut lane = lane(ROUND_ROBIN);
    let sleepers: Vec<_> = (1..20).map(|slot| spawn(&mut lane, 0, slot)).collect();
    let victim = spawn(&mut lane, 0, 0);
    let mut fresh = 100;
    let (picks, _) = wait_of(&mut lane, victim, 10_000, |lane, _| {
        // Every slice spawns two newcomers: they come after the victim.
        for _ in 0..2 {
            spawn(lane, 0, fresh);
            fresh += 1;
        }
        Outcome::Yielded
    })
    .expect("it is picked");
    assert_eq!(picks, sleepers.len() as u64);
}

#[test]
fn cooperative_promises_nothing() {
    let mut lane = lane(Policy::Cooperative);
    spawn(&mut lane, 0, 0);
    let victim = spawn(&mut lane, 0, 1);
    assert_eq!(wait_of(&mut lane, victim, 1_000, |_, _| Outcome::OutOfCycles), None);
}

#[test]
fn fixed_priority_promises_nothing_across_and_fifo_within() {
    let mut starved = lane(priority(PriorityRule::FixedMap));
    spawn_with_priority(&mut starved, 0, 200);
    let victim = spawn_with_priority(&mut starved, 1, 199);
    assert_eq!(wait_of(&mut starved, victim, 1_000, |_, _| Outcome::OutOfCycles), None);
    let mut within = lane(priority(PriorityRule::FixedMap));
    for slot in 0..30 {
        spawn_with_priority(&mut within, slot, 7);
    }
    let victim = spawn_with_priority(&mut within, 99, 7);
    assert_eq!(
        wait_of(&mut within, victim, 1_000, |_, _| Outcome::OutOfCycles).map(|(picks, _)| picks),
        Some(30)
    );
}

#[test]
fn token_weighted_promises_nothing_across_and_fifo_within() {
    let mut lane = lane(priority(PriorityRule::TokenWeighted));
    let (a, b) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 0, 1));
    let victim = spawn(&mut lane, 0, 2);
    // Two that feed each other tokens starve the third.
    let mut woken = 0;
    for step in 0..1_000 {
        let running = run_across_frames(&mut lane);
        let reference = running.reference();
        assert!(step < 2 || reference != victim);
        if reference == victim {
            panic!("the victim has no tokens");
        }
        lane.stop(running, Cycles(10), Outcome::Blocked(BlockReason::ChannelReceive));
        let other = if reference == a { b } else { a };
        woken += u32::from(lane.wake(other, WakeSource::Channel).is_ok());
        woken += u32::from(step < 2 && lane.wake(reference, WakeSource::Channel).is_ok());
    }
    assert!(woken > 900, "the load ran: {woken}");
}

#[test]
fn aging_bounds_every_priority() {
    let mut random = Random(5);
    for (count, victim_priority) in [(2u32, 0u8), (10, 0), (50, 0), (50, 100), (200, 0)] {
        let mut lane = lane(priority(PriorityRule::Aging));
        let mut fresh = count;
        for slot in 1..count {
            spawn_with_priority(&mut lane, slot, 255);
        }
        let victim = spawn_with_priority(&mut lane, 0, victim_priority);
        let most = 16 * (256 - u64::from(victim_priority)) + 2 * u64::from(count);
        let (picks, _) = wait_of(&mut lane, victim, 20_000, |lane, _| {
            // Half of them end and come back as newcomers of the highest priority.
            if random.below(2) == 0 {
                fresh += 1;
                let spawned = Spawn { priority: Priority(255), ..Spawn::new(Tag::new(0, fresh)) };
                if lane.live() < lane.capacity() {
                    lane.spawn(spawned).expect("there is room");
                    return Outcome::Finished;
                }
            }
            Outcome::Yielded
        })
        .expect("aging reaches everyone");
        assert!(picks <= most, "{picks} picks > {most} with {count} coroutines");
        assert!(
            picks >= 16 * (255 - u64::from(victim_priority)),
            "the load was not hostile: {picks}"
        );
    }
}

/// A lane where thirty coroutines hold a token at any time they are ready.
fn lane_of_holders() -> (Lane, Vec<CoroutineRef>) {
    let mut lane = lane(Policy::ProgressAware { quantum: QUANTUM });
    let holders: Vec<_> = (10..40).map(|slot| spawn(&mut lane, 0, slot)).collect();
    for &holder in &holders {
        let running = run_across_frames(&mut lane);
        assert_eq!(running.reference(), holder);
        lane.stop(running, Cycles(10), Outcome::Blocked(BlockReason::ChannelReceive));
    }
    holders.iter().for_each(|&holder| lane.wake(holder, WakeSource::Channel).unwrap());
    (lane, holders)
}

#[test]
fn progress_aware_passes_others_over_at_most_eight_times_in_a_row() {
    let (mut lane, holders) = lane_of_holders();
    let others: Vec<_> = (0..5).map(|slot| spawn(&mut lane, 0, slot)).collect();
    let (mut in_a_row, mut longest, mut served) = (0, 0, [0u32; 5]);
    for _ in 0..4_500 {
        let running = run_across_frames(&mut lane);
        let reference = running.reference();
        if holders.contains(&reference) {
            in_a_row += 1;
            longest = longest.max(in_a_row);
            // A neighbour wakes it at once: it always has a token again.
            lane.stop(running, Cycles(10), Outcome::Blocked(BlockReason::ChannelReceive));
            lane.wake(reference, WakeSource::Channel).unwrap();
        } else {
            served[others.iter().position(|&other| other == reference).unwrap()] += 1;
            in_a_row = 0;
            lane.stop(running, QUANTUM, Outcome::OutOfCycles);
        }
    }
    assert_eq!(longest, 8);
    assert_eq!(served, [100; 5], "every ninth pick, in turn");
}

#[test]
fn an_other_under_progress_aware_waits_nine_picks_per_older_one() {
    for older in [0u32, 1, 4] {
        let (mut lane, holders) = lane_of_holders();
        for slot in 0..older {
            spawn(&mut lane, 0, slot);
        }
        let victim = spawn(&mut lane, 0, 9);
        let most = 9 * u64::from(older) + 9;
        let mut picks = 0;
        loop {
            let running = run_across_frames(&mut lane);
            let reference = running.reference();
            if reference == victim {
                break;
            }
            picks += 1;
            if holders.contains(&reference) {
                lane.stop(running, Cycles(10), Outcome::Blocked(BlockReason::ChannelReceive));
                lane.wake(reference, WakeSource::Channel).unwrap();
            } else {
                lane.stop(running, QUANTUM, Outcome::OutOfCycles);
            }
        }
        assert!(picks <= most, "{picks} > {most}");
        assert!(picks >= 8, "the load was not hostile: {picks}");
    }
}
