//! One lane: states, wake sources, holds, bounds, conservation, handoff, counters. One rule per
//! test.

mod support;

use support::{
    ROUND_ROBIN, checked, lane, order, policies, priority, run, slice, spawn, spawn_with_priority,
};
use wavelock_abi::{CoroutineRef, Cycles, Frame, Priority, SchedulerOperation};
use wavelock_kernel::{
    BlockReason, BoundReason, Counter, CounterClass, HoldReason, Lane, LaneSettings, Next, Outcome,
    Policy, PriorityRule, Refusal, Reservation, Span, Spawn, State, Stopped, Tag, WakeSource,
};

fn blocked(lane: &mut Lane, reason: BlockReason) -> CoroutineRef {
    let reference = spawn(lane, 0, 0);
    assert_eq!(slice(lane, 10, Outcome::Blocked(reason)), (reference, Stopped::Waiting));
    reference
}

// Wake sources: one test each.

#[test]
fn a_channel_wake_ends_channel_waits_and_mints_a_token() {
    for reason in [BlockReason::ChannelSend, BlockReason::ChannelReceive, BlockReason::Select] {
        let mut lane = lane(ROUND_ROBIN);
        let reference = blocked(&mut lane, reason);
        let wrong = lane.wake(reference, WakeSource::Join);
        assert_eq!(wrong, Err(Refusal::WrongSource { reason, source: WakeSource::Join }));
        let before = lane.totals().overhead[SchedulerOperation::Wake as usize];
        lane.wake(reference, WakeSource::Channel).unwrap();
        assert_eq!(lane.tokens(reference), Ok(1));
        assert_eq!(lane.state(reference), Ok(State::Ready));
        assert_eq!(lane.totals().overhead[SchedulerOperation::Wake as usize] - before, Cycles(16));
        checked(&lane);
    }
}

#[test]
fn a_join_wake_ends_join_waits_and_mints_a_token() {
    let mut lane = lane(ROUND_ROBIN);
    let reference = blocked(&mut lane, BlockReason::Join);
    assert!(lane.wake(reference, WakeSource::Channel).is_err());
    lane.wake(reference, WakeSource::Join).unwrap();
    assert_eq!(lane.tokens(reference), Ok(1));
    assert_eq!(lane.wakes()[WakeSource::Join as usize], 1);
}

#[test]
fn a_timer_wakes_sleepers_by_frame_then_arrival_and_costs_a_timer() {
    let mut lane = lane(ROUND_ROBIN);
    let sleepers: Vec<_> = (0..6).map(|slot| spawn(&mut lane, 0, slot)).collect();
    for frame in [3, 1, 3, 2, 1, 300] {
        slice(&mut lane, 10, Outcome::Slept(Frame(frame)));
    }
    assert_eq!(lane.state(sleepers[0]), Ok(State::Sleeping { until: Frame(3) }));
    assert_eq!(
        lane.wake(sleepers[0], WakeSource::SessionEnd),
        Err(Refusal::NotWaiting { state: State::Sleeping { until: Frame(3) } })
    );
    assert_eq!(lane.next_wake(), Some(Frame(1)));
    let _ = lane.end_frame();
    let before = lane.totals();
    assert_eq!(lane.begin_frame(Frame(3)), 5);
    assert_eq!(
        lane.totals().overhead[SchedulerOperation::Timer as usize]
            - before.overhead[SchedulerOperation::Timer as usize],
        Cycles(5 * 8)
    );
    assert_eq!(order(&mut lane, 5), [1, 4, 3, 0, 2]);
    assert!(sleepers.iter().take(5).all(|&sleeper| lane.tokens(sleeper) == Ok(0)));
    assert_eq!(lane.next_wake(), Some(Frame(300)));
    checked(&lane);
}

#[test]
fn a_release_gives_the_place_back_and_mints_nothing() {
    let mut lane = lane(ROUND_ROBIN);
    let all: Vec<_> = (0..4).map(|slot| spawn(&mut lane, 0, slot)).collect();
    for reason in [HoldReason::Operator, HoldReason::Cap] {
        lane.hold(all[1], reason).unwrap();
    }
    checked(&lane);
    assert_eq!(order(&mut lane, 3), [0, 2, 3]);
    lane.release(all[1], HoldReason::Operator).unwrap();
    let held = lane.state(all[1]).unwrap();
    assert!(matches!(held, State::Throttled { held } if held.contains(HoldReason::Cap)
            && !held.contains(HoldReason::Operator)));
    assert!(matches!(lane.release(all[1], HoldReason::Operator), Err(Refusal::NotHeld { .. })));
    lane.release(all[1], HoldReason::Cap).unwrap();
    checked(&lane);
    assert_eq!(order(&mut lane, 4), [1, 0, 2, 3], "its arrival is the oldest");
    assert_eq!(lane.tokens(all[1]), Ok(0));
}

#[test]
fn a_session_end_ends_any_wait_and_mints_nothing() {
    for &reason in BlockReason::ALL {
        let mut lane = lane(ROUND_ROBIN);
        let reference = blocked(&mut lane, reason);
        lane.wake(reference, WakeSource::SessionEnd).unwrap();
        assert_eq!(lane.tokens(reference), Ok(0));
    }
}

#[test]
fn input_answer_and_unpark_wakes_end_only_their_own_waits() {
    for (reason, source) in [
        (BlockReason::Input, WakeSource::Input),
        (BlockReason::OtherLane, WakeSource::Answer),
        (BlockReason::Park, WakeSource::Unpark),
    ] {
        let mut lane = lane(ROUND_ROBIN);
        let reference = blocked(&mut lane, reason);
        assert!(
            lane.wake(reference, WakeSource::Timer).is_err()
                && lane.wake(reference, WakeSource::Channel).is_err()
        );
        lane.wake(reference, source).unwrap();
        assert_eq!(lane.tokens(reference), Ok(0));
    }
}

// Holds.

#[test]
fn holds_take_effect_where_the_coroutine_would_become_ready() {
    let mut lane = lane(ROUND_ROBIN);
    let (a, b) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 0, 1));
    slice(&mut lane, 10, Outcome::Blocked(BlockReason::Join));
    lane.hold(a, HoldReason::Operator).unwrap();
    assert_eq!(lane.state(a), Ok(State::Blocked { reason: BlockReason::Join }));
    lane.wake(a, WakeSource::Join).unwrap();
    assert!(matches!(lane.state(a), Ok(State::Throttled { .. })));
    // In the middle of a slice: at its stop, even if the quantum has a rest.
    let running = run(&mut lane);
    lane.hold(b, HoldReason::Operator).unwrap();
    checked(&lane);
    assert_eq!(lane.stop(running, Cycles(5), Outcome::OutOfCycles), Stopped::Throttled);
    assert_eq!(lane.dispatch(), Next::Idle);
    lane.release(b, HoldReason::Operator).unwrap();
    lane.release(a, HoldReason::Operator).unwrap();
    checked(&lane);
    assert_eq!(
        order(&mut lane, 2),
        [1, 0],
        "b kept its first arrival; a got a new one when it was woken"
    );
}

#[test]
fn time_held_is_not_waiting() {
    let mut lane = lane(ROUND_ROBIN);
    let (_, b) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 0, 1));
    slice(&mut lane, 100, Outcome::Yielded);
    lane.hold(b, HoldReason::Operator).unwrap();
    let waited = lane.ledger(b).unwrap().wait_total;
    assert_eq!(waited, Cycles(12 + 24 + 100));
    slice(&mut lane, 5_000, Outcome::Yielded);
    lane.release(b, HoldReason::Operator).unwrap();
    slice(&mut lane, 10, Outcome::Yielded);
    slice(&mut lane, 10, Outcome::Yielded);
    assert!(lane.ledger(b).unwrap().wait_total < Cycles(5_000));
}

// References.

#[test]
fn stale_references_are_refused_everywhere_and_slots_are_reused() {
    let mut lane = lane(ROUND_ROBIN);
    let old = spawn(&mut lane, 0, 0);
    slice(&mut lane, 10, Outcome::Finished);
    assert!(matches!(lane.cancel(old), Err(Refusal::Ended { state: State::Finished })));
    lane.reap(old).unwrap();
    let new = spawn(&mut lane, 0, 1);
    assert_eq!((new.slot, new.generation), (old.slot, old.generation + 1));
    let stale = Refusal::Stale { reference: old, found_generation: new.generation };
    assert_eq!(lane.state(old), Err(stale));
    assert_eq!(lane.wake(old, WakeSource::Channel), Err(stale));
    assert_eq!(lane.hold(old, HoldReason::Operator), Err(stale));
    assert_eq!(lane.release(old, HoldReason::Operator), Err(stale));
    assert_eq!(lane.cancel(old), Err(stale));
    assert_eq!(lane.reap(old), Err(stale));
    assert_eq!(lane.prefer(old), Err(stale));
    assert_eq!(lane.set_priority(old, Priority(1)), Err(stale));
    assert_eq!(lane.ledger(old), Err(stale));
    assert!(lane.state(CoroutineRef::new(999, 0)).is_err());
}

#[test]
fn nothing_is_published_without_a_reservation() {
    let mut lane = Lane::new(wavelock_abi::LaneId(0), support::settings(ROUND_ROBIN));
    assert!(matches!(
        lane.spawn(Spawn::new(Tag::new(0, 0))),
        Err(Refusal::SessionsNotReserved { .. })
    ));
    lane.reserve(Reservation { coroutines: 1, sessions: 1 }).unwrap();
    let capacity = lane.capacity();
    for slot in 0..capacity {
        spawn(&mut lane, 0, slot);
    }
    assert_eq!(
        lane.spawn(Spawn::new(Tag::new(0, 0))),
        Err(Refusal::NotReserved { live: capacity, capacity })
    );
    assert!(matches!(
        lane.spawn(Spawn::new(Tag::new(1, 0))),
        Err(Refusal::SessionsNotReserved { sessions: 1, capacity: 1 })
    ));
    checked(&lane);
}

// Slices and bounds.

#[test]
fn the_bound_is_the_least_and_the_first_of_equals() {
    let mut lane = Lane::new(
        wavelock_abi::LaneId(0),
        LaneSettings { frame_cycles: Cycles(50_000), ..support::settings(ROUND_ROBIN) },
    );
    lane.reserve(Reservation { coroutines: 1, sessions: 1 }).unwrap();
    spawn(&mut lane, 0, 0);
    let costs = 12 + 24;
    // Quantum and wave equal: the quantum is named. Frame, quantum and wave equal would name the
    // frame.
    lane.begin_wave(Span::Until(Cycles(costs + 10_000)));
    let running = run(&mut lane);
    assert_eq!((running.bound(), running.bound_reason()), (Cycles(10_000), BoundReason::Quantum));
    assert_eq!(lane.stop(running, Cycles(4_000), Outcome::OutOfCycles), Stopped::Kept);
    lane.begin_wave(Span::Until(Cycles(costs + 9_000)));
    let running = run(&mut lane);
    assert!(!running.picked() && !running.switched());
    assert_eq!((running.bound(), running.bound_reason()), (Cycles(5_000), BoundReason::WaveEnd));
    assert_eq!(lane.left(&running, Cycles(1_000)), Cycles(4_000));
    assert_eq!(lane.stop(running, Cycles(5_003), Outcome::OutOfCycles), Stopped::Kept);
    assert_eq!(lane.dispatch(), Next::Over);
    // The rest of the quantum is 997; the frame has more. Overrun of the wave counted against it.
    lane.begin_wave(Span::Until(Cycles(50_000)));
    let running = run(&mut lane);
    assert_eq!((running.bound(), running.bound_reason()), (Cycles(997), BoundReason::Quantum));
    assert_eq!(lane.stop(running, Cycles(1_000), Outcome::OutOfCycles), Stopped::Requeued);
    let ledger = lane.ledger(CoroutineRef::new(0, 0)).unwrap();
    assert_eq!((ledger.preemptions, ledger.switches, ledger.runtime), (1, 1, Cycles(10_003)));
    // The same coroutine again: a pick, but no switch. Then frame and wave end together: the frame
    // is named.
    let running = run(&mut lane);
    assert!(running.picked() && !running.switched());
    lane.stop(running, Cycles(9_999), Outcome::OutOfCycles);
    lane.begin_wave(Span::Until(Cycles(50_000)));
    let running = run(&mut lane);
    assert_eq!(running.bound_reason(), BoundReason::Quantum);
    lane.stop(running, Cycles(1), Outcome::Yielded);
    while lane.clock() < Cycles(50_000) - Cycles(5_000) {
        slice(&mut lane, 1_000, Outcome::Yielded);
    }
    let running = run(&mut lane);
    assert_eq!(
        (running.bound(), running.bound_reason()),
        (Cycles(50_000) - lane.clock(), BoundReason::FrameEnd)
    );
    lane.stop(running, Cycles(5), Outcome::Yielded);
    checked(&lane);
}

#[test]
fn a_wave_of_picks_runs_that_many_slices() {
    let mut lane = lane(ROUND_ROBIN);
    for slot in 0..3 {
        spawn(&mut lane, 0, slot);
    }
    lane.begin_wave(Span::Picks(2));
    assert_eq!(order(&mut lane, 2), [0, 1]);
    assert_eq!(lane.dispatch(), Next::Over);
    lane.begin_wave(Span::Picks(1));
    assert_eq!(order(&mut lane, 1), [2]);
}

#[test]
fn overhead_that_reaches_the_wave_end_keeps_the_pick() {
    let mut lane = lane(ROUND_ROBIN);
    let reference = spawn(&mut lane, 0, 0);
    lane.begin_wave(Span::Until(Cycles(20)));
    assert_eq!(lane.dispatch(), Next::Over);
    assert_eq!(lane.current(), Some(reference));
    checked(&lane);
    lane.begin_wave(Span::Until(Cycles(1_000)));
    let running = run(&mut lane);
    assert!(!running.picked(), "picked once, charged once");
    lane.stop(running, Cycles(1), Outcome::Finished);
    assert_eq!(lane.picks(), 1);
}

#[test]
fn at_a_boundary_only_a_higher_priority_displaces_the_current() {
    for (policy, displaced) in [
        (priority(PriorityRule::FixedMap), true),
        (ROUND_ROBIN, false),
        (Policy::Cooperative, false),
    ] {
        let mut lane = lane(policy);
        let low = spawn_with_priority(&mut lane, 0, 1);
        let running = run(&mut lane);
        assert_eq!(lane.stop(running, Cycles(100), Outcome::OutOfCycles), Stopped::Kept);
        let high = spawn_with_priority(&mut lane, 1, 9);
        // Not at a boundary: it goes on.
        assert_eq!(slice(&mut lane, 100, Outcome::OutOfCycles), (low, Stopped::Kept));
        lane.begin_wave(Span::Until(Cycles::MAX));
        let expected = if displaced { high } else { low };
        assert_eq!(slice(&mut lane, 10, Outcome::Finished).0, expected, "{policy:?}");
        checked(&lane);
    }
}

// Conservation.

#[test]
fn every_frame_adds_up_with_overrun_carried() {
    let mut random = support::Random(7);
    for (name, policy) in policies() {
        let mut lane = lane(policy);
        for slot in 0..20 {
            spawn(&mut lane, slot % 3, slot);
        }
        let mut total = Cycles::ZERO;
        let mut before = Cycles::ZERO;
        for frame in 1..50 {
            while let Next::Run(running) = lane.dispatch() {
                let overrun = random.below(40);
                let (used, outcome) = match random.below(4) {
                    0 => (
                        random.below(running.bound().0.max(1)),
                        Outcome::Slept(Frame(frame + random.below(3))),
                    ),
                    1 => (random.below(running.bound().0.max(1)), Outcome::Yielded),
                    _ => (running.bound().0 + overrun, Outcome::OutOfCycles),
                };
                lane.stop(running, Cycles(used), outcome);
            }
            let row = lane.end_frame();
            assert!(row.is_conserved(Cycles(1_000_000)), "{name}: {row:?}");
            assert_eq!(row.overrun_in, before, "{name}");
            before = row.overrun_out;
            total += row.charged + row.overhead + row.idle;
            lane.begin_frame(Frame(frame));
            lane.begin_wave(Span::Until(Cycles::MAX));
            checked(&lane);
        }
        let timers = lane.row();
        assert_eq!(total + timers.charged + timers.overhead + timers.idle, lane.clock(), "{name}");
        let charged: u64 = (0..3)
            .flat_map(|session| lane.session(session))
            .map(|(one, _)| lane.ledger(one).unwrap().runtime.0)
            .sum();
        assert_eq!(
            Cycles(charged),
            lane.totals().charged,
            "{name}: the ledger is what was charged"
        );
    }
}

#[test]
fn skipped_frames_are_idle_whole() {
    let mut lane = lane(ROUND_ROBIN);
    let _ = lane.end_frame();
    lane.begin_frame(Frame(10));
    assert_eq!(lane.totals().idle, Cycles(10_000_000));
    let row = lane.end_frame();
    assert_eq!((row.frame, row.idle), (Frame(10), Cycles(1_000_000)));
}

#[test]
fn a_blocked_coroutine_is_charged_nothing() {
    let mut lane = lane(ROUND_ROBIN);
    let reference = blocked(&mut lane, BlockReason::Input);
    let before = lane.ledger(reference).unwrap();
    spawn(&mut lane, 0, 1);
    for _ in 0..10_000 {
        slice(&mut lane, 50, Outcome::Yielded);
    }
    assert_eq!(lane.ledger(reference).unwrap(), before);
}

// Handoff.

#[test]
fn a_handoff_inherits_the_rest_of_the_quantum() {
    let mut lane = lane(ROUND_ROBIN);
    let all: Vec<_> = (0..4).map(|slot| spawn(&mut lane, 0, slot)).collect();
    let running = run(&mut lane);
    lane.prefer(all[2]).unwrap();
    assert_eq!(lane.prefer(all[3]), Err(Refusal::SlotTaken { by: all[2] }));
    lane.stop(running, Cycles(4_000), Outcome::Blocked(BlockReason::ChannelReceive));
    let running = run(&mut lane);
    assert_eq!((running.reference(), running.bound()), (all[2], Cycles(6_000)));
    lane.stop(running, Cycles(6_000), Outcome::OutOfCycles);
    assert_eq!(order(&mut lane, 3), [1, 3, 2]);
    checked(&lane);
}

#[test]
fn a_handoff_does_not_pass_a_higher_priority_nor_a_used_up_quantum() {
    let mut fixed = lane(priority(PriorityRule::FixedMap));
    let (_, low, high) = (
        spawn_with_priority(&mut fixed, 0, 9),
        spawn_with_priority(&mut fixed, 1, 1),
        spawn_with_priority(&mut fixed, 2, 5),
    );
    let running = run(&mut fixed);
    fixed.prefer(low).unwrap();
    fixed.stop(running, Cycles(10), Outcome::Blocked(BlockReason::Join));
    assert_eq!(slice(&mut fixed, 10, Outcome::Finished).0, high);

    let mut robin = lane(ROUND_ROBIN);
    let all: Vec<_> = (0..3).map(|slot| spawn(&mut robin, 0, slot)).collect();
    let running = run(&mut robin);
    robin.prefer(all[2]).unwrap();
    robin.stop(running, Cycles(10_000), Outcome::OutOfCycles);
    assert_eq!(slice(&mut robin, 10, Outcome::Yielded).0, all[1]);
}

#[test]
fn handoff_is_refused_when_off_and_to_the_not_ready() {
    let mut off = Lane::new(
        wavelock_abi::LaneId(0),
        LaneSettings { handoff: false, ..support::settings(ROUND_ROBIN) },
    );
    off.reserve(Reservation { coroutines: 1, sessions: 1 }).unwrap();
    let reference = spawn(&mut off, 0, 0);
    assert_eq!(off.prefer(reference), Err(Refusal::HandoffOff));
    let mut lane = lane(ROUND_ROBIN);
    let reference = blocked(&mut lane, BlockReason::Join);
    assert!(matches!(lane.prefer(reference), Err(Refusal::NotReady { .. })));
}

// Policies on a live lane.

#[test]
fn a_policy_switch_keeps_the_arrival_order() {
    for (from, first) in policies() {
        for (to, second) in policies() {
            let mut lane = lane(first);
            let all: Vec<_> = (0..8).map(|slot| spawn(&mut lane, 0, slot)).collect();
            lane.hold(all[3], HoldReason::Operator).unwrap();
            lane.set_policy(second).unwrap();
            checked(&lane);
            lane.release(all[3], HoldReason::Operator).unwrap();
            lane.set_policy(ROUND_ROBIN).unwrap();
            checked(&lane);
            assert_eq!(order(&mut lane, 8), [0, 1, 2, 3, 4, 5, 6, 7], "{from} to {to}");
        }
    }
}

#[test]
fn a_policy_switch_puts_the_current_back_in_its_place() {
    let mut lane = lane(ROUND_ROBIN);
    for slot in 0..3 {
        spawn(&mut lane, 0, slot);
    }
    assert_eq!(slice(&mut lane, 10, Outcome::OutOfCycles).1, Stopped::Kept);
    for (_, policy) in policies() {
        lane.set_policy(policy).unwrap();
        checked(&lane);
    }
    lane.set_policy(Policy::Cooperative).unwrap();
    assert_eq!(order(&mut lane, 3), [0, 1, 2]);
}

// Counters.

#[test]
fn measuring_changes_no_decision() {
    for (name, policy) in policies() {
        let (mut plain, mut measured) = (lane(policy), lane(policy));
        measured.set_measured(true);
        for lane in [&mut plain, &mut measured] {
            let mut random = support::Random(3);
            for slot in 0..30 {
                spawn_with_priority(lane, slot, (slot * 17) as u8);
            }
            for _ in 0..5_000 {
                let running = support::run_across_frames(lane);
                let used = Cycles(random.below(running.bound().0.min(20_000)) + 1);
                lane.stop(
                    running,
                    used,
                    if random.below(2) == 0 { Outcome::Yielded } else { Outcome::OutOfCycles },
                );
            }
        }
        assert_eq!(plain.export(), measured.export(), "{name}");
        let (plain, measured) = (plain.counters(), measured.counters());
        for &counter in Counter::ALL {
            match counter.class() {
                CounterClass::Permanent => assert_eq!(
                    plain.get(counter),
                    measured.get(counter),
                    "{name} {}",
                    counter.name()
                ),
                CounterClass::Measured => {
                    assert_eq!(plain.get(counter), None, "{name}")
                }
            }
        }
        assert!(
            measured.get(Counter::Considered).unwrap() >= measured.get(Counter::Picks).unwrap()
        );
        assert_eq!(measured.get(Counter::ReadyPeak), Some(30), "{name}");
        assert_eq!(measured.since(&measured).get(Counter::Picks), Some(0));
    }
}

#[test]
fn the_digest_is_the_sum_over_the_runnable() {
    let mut lane = lane(ROUND_ROBIN);
    assert_eq!(lane.ready_digest(), 0);
    let a = spawn(&mut lane, 7, 5);
    let one = lane.ready_digest();
    let b = spawn(&mut lane, 7, 6);
    let both = lane.ready_digest();
    let running = run(&mut lane);
    assert_eq!(lane.ready_digest(), both, "a pick takes nobody out of the runnable set");
    lane.stop(running, Cycles(1), Outcome::Blocked(BlockReason::Join));
    assert_eq!(lane.ready_digest(), both.wrapping_sub(one));
    lane.wake(a, WakeSource::Join).unwrap();
    assert_eq!(lane.ready_digest(), both);
    lane.cancel(b).unwrap();
    assert_eq!(lane.ready_digest(), one);
}
