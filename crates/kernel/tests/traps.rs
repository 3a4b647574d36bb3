//! The four traps of the reference scheduler and vector 9 of cpu-authority
//! section 10, as regressions.

mod support;

use support::{ROUND_ROBIN, checked, lane, order, policies, slice, spawn};
use wavelock_abi::Frame;
use wavelock_kernel::{BlockReason, HoldReason, Outcome, State, WakeSource};

/// Trap 1 and vector 9: a queue with lazy deletion. Push A, remove A, push B, push A must pop B, A
/// and leave nothing behind.
#[test]
fn vector_9_a_removed_and_added_entry_goes_to_the_tail() {
    let mut lane = lane(ROUND_ROBIN);
    let a = spawn(&mut lane, 0, 0);
    slice(&mut lane, 1, Outcome::Blocked(BlockReason::ChannelReceive));
    let b = spawn(&mut lane, 0, 1);
    lane.wake(a, WakeSource::Channel).unwrap();
    assert_eq!(slice(&mut lane, 1, Outcome::Finished).0, b);
    assert_eq!(slice(&mut lane, 1, Outcome::Finished).0, a);
    assert_eq!(lane.population().ready, 0);
    checked(&lane);
}

/// Trap 1 again: a thousand removals without a pick must leave no dead entry, under every policy.
#[test]
fn vector_9_churn_leaves_no_dead_entries() {
    for (name, policy) in policies() {
        let mut lane = lane(policy);
        let (a, b) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 0, 1));
        for _ in 0..1_000 {
            lane.hold(a, HoldReason::Operator).unwrap();
            lane.release(a, HoldReason::Operator).unwrap();
        }
        checked(&lane);
        assert_eq!(lane.population().ready, 2, "{name}");
        // Under Fair the lag is kept, and among equal deadlines the one that came back goes last.
        let order = if name.starts_with("fair") { [b, a] } else { [a, b] };
        assert_eq!(
            [(); 2].map(|()| slice(&mut lane, 1, Outcome::Finished).0),
            order,
            "{name}: a hold loses no place"
        );
        assert!(!lane.has_work(), "{name}");
        checked(&lane);
    }
}

/// Trap 2: removal by scanning. A hundred thousand removals from the middle of a hundred thousand
/// entries finish at once only if none scans: quadratic work here would be five thousand million
/// steps.
#[test]
fn removal_does_not_scan() {
    let count = 100_000;
    for (name, policy) in policies() {
        let mut lane = support::lane(policy);
        lane.reserve(wavelock_kernel::Reservation { coroutines: count, sessions: 1 }).unwrap();
        let all: Vec<_> = (0..count).map(|slot| spawn(&mut lane, 0, slot)).collect();
        for &one in all.iter().rev().step_by(2) {
            lane.hold(one, HoldReason::Operator).unwrap();
        }
        for &one in all.iter().step_by(2) {
            lane.cancel(one).unwrap();
        }
        for &one in all.iter().rev().step_by(2) {
            lane.release(one, HoldReason::Operator).unwrap();
        }
        assert_eq!(lane.population().ready, count / 2, "{name}");
        checked(&lane);
    }
}

/// Trap 3: a ready path that leaves the blocked set stale. Every way to become ready must end every
/// other state.
#[test]
fn becoming_ready_leaves_no_other_state_behind() {
    for (name, policy) in policies() {
        let mut lane = lane(policy);
        let all: Vec<_> = (0..4).map(|slot| spawn(&mut lane, 0, slot)).collect();
        slice(&mut lane, 1, Outcome::Blocked(BlockReason::Join));
        slice(&mut lane, 1, Outcome::Slept(Frame(1)));
        lane.hold(all[2], HoldReason::Context).unwrap();
        let population = lane.population();
        assert_eq!(
            (population.blocked, population.sleeping, population.throttled),
            (1, 1, 1),
            "{name}"
        );
        lane.wake(all[0], WakeSource::Join).unwrap();
        let _ = lane.end_frame();
        lane.begin_frame(Frame(1));
        lane.release(all[2], HoldReason::Context).unwrap();
        let population = lane.population();
        assert_eq!(
            (population.ready, population.blocked, population.sleeping, population.throttled),
            (4, 0, 0, 0),
            "{name}"
        );
        assert!(all.iter().all(|&one| lane.state(one) == Ok(State::Ready)), "{name}");
        assert!(
            lane.wake(all[0], WakeSource::Join).is_err(),
            "{name}: a second wake finds nobody waiting"
        );
        checked(&lane);
    }
}

/// Trap 4: the policy cloned at each pick. The policy lives once in the lane; `ProgressAware` and
/// `Aging` keep their memory (streak, ages) across picks, which a clone per pick would lose.
#[test]
fn a_policy_keeps_its_memory_across_picks() {
    let mut lane = lane(wavelock_kernel::Policy::ProgressAware { quantum: support::QUANTUM });
    let other = spawn(&mut lane, 0, 0);
    let holders: Vec<_> = (1..=12).map(|slot| spawn(&mut lane, 0, slot)).collect();
    lane.hold(other, HoldReason::Operator).unwrap();
    for _ in &holders {
        slice(&mut lane, 1, Outcome::Blocked(BlockReason::ChannelReceive));
    }
    holders.iter().for_each(|&holder| lane.wake(holder, WakeSource::Channel).unwrap());
    lane.release(other, HoldReason::Operator).unwrap();
    let picked = order(&mut lane, 12);
    assert_eq!(
        picked.iter().position(|&slot| slot == other.slot),
        Some(8),
        "after eight holders in a row: {picked:?}"
    );
}

/// An exit storm leaves no dead generation in any structure (cpu-authority B-I8).
#[test]
fn an_exit_storm_leaves_nothing() {
    for (name, policy) in policies() {
        let mut lane = lane(policy);
        let mut random = support::Random(11);
        for round in 0..20 {
            for slot in 0..200 {
                spawn(&mut lane, slot % 5, slot);
            }
            for _ in 0..300 {
                if !lane.has_work() {
                    break;
                }
                let running = support::run_across_frames(&mut lane);
                let outcome = match random.below(5) {
                    0 => Outcome::Slept(Frame(lane.frame().0 + 1 + random.below(1_000))),
                    1 => Outcome::Blocked(BlockReason::ALL[random.below(7) as usize]),
                    2 => Outcome::Finished,
                    3 => Outcome::OutOfCycles,
                    _ => Outcome::Yielded,
                };
                lane.stop(running, wavelock_abi::Cycles(random.below(500)), outcome);
            }
            let before = lane.live();
            let mut ended = 0;
            for session in 0..5 {
                ended +=
                    lane.end_session(session, |tag, _| assert_eq!(tag.session(), session)).unwrap();
            }
            assert_eq!((ended, lane.live()), (before, 0), "{name} round {round}");
            checked(&lane);
            assert_eq!(lane.population(), Default::default(), "{name} round {round}");
            assert_eq!(lane.next_wake(), None, "{name} round {round}");
            assert_eq!(lane.ready_digest(), 0, "{name} round {round}");
        }
    }
}
