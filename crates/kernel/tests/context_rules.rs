//! Contexts on a lane: what each operation does, what each refusal says, and what the dispatcher
//! enforces.

mod support;

use support::{ROUND_ROBIN, checked, lane, policies, run, run_across_frames, spawn};
use wavelock_abi::{CoroutineRef, Cycles, Frame, SchedulerOperation};
use wavelock_kernel::{
    Activation, BlockReason, BoundReason, ContextEventKind, ContextParameters, ContextPhase,
    ContextRefusal, ContextSettings, Fallback, HoldReason, Lane, Next, Outcome, OverrunPolicy,
    Policy, Refusal, State, Stopped, WakeSource,
};

const GAP: Cycles = Cycles(100);

fn with_contexts(policy: Policy) -> Lane {
    let mut lane = lane(policy);
    lane.reserve_contexts(ContextSettings { gap: GAP, wave: None }, 64).expect("memory");
    lane
}

fn parameters(budget: u64, period: u64) -> ContextParameters {
    ContextParameters::new(Cycles(budget), Cycles(period))
}

fn notifies(policy: OverrunPolicy) -> bool {
    matches!(policy, OverrunPolicy::NotifyAndThrottle | OverrunPolicy::NotifyOnly)
}

/// Everything that happened to contexts, in words.
fn events(lane: &mut Lane) -> Vec<ContextEventKind> {
    let mut kinds = Vec::new();
    lane.drain_context_events(|event| kinds.push(event.kind));
    kinds
}

/// Runs the next slice to its bound and stops it.
fn to_the_bound(lane: &mut Lane) -> (CoroutineRef, BoundReason, Stopped) {
    let running = run(lane);
    let (who, bound, reason) = (running.reference(), running.bound(), running.bound_reason());
    let stopped = lane.stop(running, bound, Outcome::OutOfCycles);
    checked(lane);
    (who, reason, stopped)
}

#[test]
fn a_holder_goes_before_the_policy_until_its_refill_is_used() {
    for (name, policy) in policies() {
        let mut lane = with_contexts(policy);
        let (hog, voice) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 1, 0));
        let context = lane.create_context(parameters(5_000, 50_000)).expect("admitted");
        lane.bind_context(context, voice).expect("both are free");
        checked(&lane);
        let running = run(&mut lane);
        assert_eq!(
            (running.reference(), running.bound_reason()),
            (voice, BoundReason::Refill),
            "{name}"
        );
        let overhead = lane.clock();
        assert_eq!(
            running.bound(),
            Cycles(5_000) - overhead,
            "{name}: the pick and the switch are the context's to pay"
        );
        let over = running.bound() + Cycles(60);
        assert_eq!(lane.stop(running, over, Outcome::OutOfCycles), Stopped::Throttled, "{name}");
        checked(&lane);
        assert_eq!(
            events(&mut lane),
            [ContextEventKind::Throttled { until: Cycles(50_060), overrun: Cycles(60) }],
            "{name}"
        );
        assert_eq!(
            lane.next_release(),
            Some(Cycles(50_060)),
            "{name}: the overrun was taken from the refill at 50,000"
        );
        // Best effort runs meanwhile, and stops where the context is released.
        loop {
            let (who, reason, _) = to_the_bound(&mut lane);
            assert_eq!(who, hog, "{name}");
            if reason == BoundReason::Release {
                break;
            }
        }
        let (who, _, _) = to_the_bound(&mut lane);
        assert_eq!(who, voice, "{name}");
        assert!(lane.clock() >= Cycles(50_060), "{name}");
        let view = lane.context(context).expect("live");
        assert_eq!(
            (view.counts.throttles, view.counts.replenishments, view.counts.misses),
            (2, 1, 0),
            "{name}"
        );
        assert_eq!(
            lane.ledger(voice).expect("live").runtime + Cycles(36 * 2),
            view.counts.consumed,
            "{name}"
        );
    }
}

#[test]
fn every_refusal_carries_its_numbers() {
    let mut plain = lane(ROUND_ROBIN);
    assert_eq!(plain.create_context(parameters(1_000, 10_000)), Err(ContextRefusal::Off));
    let mut lane = with_contexts(ROUND_ROBIN);
    let (a, b) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 0, 1));
    let create =
        |lane: &mut Lane, parameters| lane.create_context(parameters).expect_err("out of range");
    assert_eq!(
        create(&mut lane, parameters(247, 10_000)),
        ContextRefusal::BudgetTooSmall {
            budget: Cycles(247),
            least: Cycles(248),
            gap: GAP,
            switch: Cycles(24)
        }
    );
    assert_eq!(
        create(&mut lane, ContextParameters { deadline: Cycles(900), ..parameters(1_000, 10_000) }),
        ContextRefusal::BudgetAboveDeadline { budget: Cycles(1_000), deadline: Cycles(900) }
    );
    assert_eq!(
        create(
            &mut lane,
            ContextParameters { deadline: Cycles(10_001), ..parameters(1_000, 10_000) }
        ),
        ContextRefusal::DeadlineAbovePeriod { deadline: Cycles(10_001), period: Cycles(10_000) }
    );
    assert!(matches!(
        create(&mut lane, parameters(1_000, u64::MAX)),
        ContextRefusal::PeriodTooLong { .. }
    ));
    assert_eq!(
        create(&mut lane, ContextParameters { refills: 1, ..parameters(1_000, 10_000) }),
        ContextRefusal::Refills { found: 1 }
    );
    let ContextRefusal::Denied(denied) = create(&mut lane, parameters(9_600, 10_000)) else {
        panic!("96 % is over the cap")
    };
    assert_eq!(
        (denied.contexts, denied.wanted.budget, denied.shortfall.cap),
        (0, Cycles(9_600), 950_000)
    );
    assert!(denied.shortfall.utilisation > 960_000);
    let fits = denied.fits.expect("less would fit");
    let context = lane.create_context(parameters(fits.0, 10_000)).expect("what fits is admitted");
    assert!(
        matches!(lane.create_context(parameters(1_000, 10_000)), Err(ContextRefusal::Denied(_))),
        "the lane is full"
    );
    let small = parameters(1_000, 10_000);
    lane.configure_context(context, small).expect("shrinking an idle context");
    let other = lane.create_context(small).expect("there is room again");

    lane.bind_context(context, a).expect("both are free");
    assert_eq!(lane.bind_context(context, b), Err(ContextRefusal::Bound { to: a }));
    assert_eq!(lane.bind_context(other, a), Err(ContextRefusal::TargetBound { to: context }));
    assert_eq!(lane.unbind_context(other), Err(ContextRefusal::NotBound));
    let running = run(&mut lane);
    assert_eq!(lane.unbind_context(context), Err(ContextRefusal::SelfUnbind { reference: a }));
    lane.stop(running, Cycles(900), Outcome::Blocked(BlockReason::Join));
    let shrunk = lane.configure_context(context, parameters(300, 10_000));
    assert_eq!(
        shrunk,
        Err(ContextRefusal::ShrinkBelowDemand { used: Cycles(1_000), budget: Cycles(300) }),
        "the rest is too small to stand alone"
    );
    lane.unbind_context(context).expect("it waits");
    assert_eq!(
        lane.bind_context(context, a),
        Err(ContextRefusal::NothingReady {
            state: State::Blocked { reason: BlockReason::Join },
            ready: Cycles(9_936)
        })
    );
    assert_eq!(lane.revoke_context(context, |_| ()), Ok(true));
    assert_eq!(lane.revoke_context(context, |_| ()), Ok(false), "again is no error");
    let stale = ContextRefusal::Stale { context, found_generation: 1 };
    assert_eq!(lane.bind_context(context, b), Err(stale));
    assert_eq!(lane.take_consumed(context), Err(stale));
    let next = lane.create_context(small).expect("its bandwidth is free");
    assert_eq!((next.slot, next.generation), (context.slot, 1), "the slot is used again");
    assert_eq!(lane.context(context).expect_err("the old reference is not the new context"), stale);
    let gone = lane.bind_context(next, CoroutineRef::new(70, 3)).expect_err("no such coroutine");
    assert!(matches!(gone, ContextRefusal::Coroutine(Refusal::Stale { .. })));
    checked(&lane);
}

#[test]
fn each_overrun_policy_does_what_it_says() {
    let cases = [
        (OverrunPolicy::Throttle, Stopped::Throttled, ContextPhase::Throttled),
        (OverrunPolicy::NotifyAndThrottle, Stopped::Throttled, ContextPhase::Throttled),
        (OverrunPolicy::Demote, Stopped::Requeued, ContextPhase::Demoted),
        (OverrunPolicy::NotifyOnly, Stopped::Requeued, ContextPhase::Ready),
        (OverrunPolicy::End, Stopped::Throttled, ContextPhase::Throttled),
    ];
    for (name, policy) in policies() {
        for (overrun, stopped, phase) in cases {
            let mut lane = with_contexts(policy);
            let voice = spawn(&mut lane, 0, 0);
            let wanted =
                ContextParameters { overrun, timeout: Some(7), ..parameters(5_000, 50_000) };
            let context = lane.create_context(wanted).expect("admitted");
            lane.bind_context(context, voice).expect("free");
            let (_, _, found) = to_the_bound(&mut lane);
            assert_eq!(
                (found, lane.context(context).expect("live").phase),
                (stopped, phase),
                "{name} {overrun:?}"
            );
            let kinds = events(&mut lane);
            assert_eq!(
                kinds.contains(&ContextEventKind::Notify { channel: 7 }),
                notifies(overrun),
                "{name} {overrun:?}"
            );
            assert_eq!(
                kinds
                    .iter()
                    .any(|kind| matches!(kind, ContextEventKind::End { overrun: Cycles(0) })),
                overrun == OverrunPolicy::End,
                "{name} {overrun:?}"
            );
            let cell = lane.take_notification(context).expect("live");
            assert_eq!(cell.count, u64::from(notifies(overrun)), "{name} {overrun:?}");
            if overrun == OverrunPolicy::End {
                lane.cancel(voice).expect("held");
                checked(&lane);
                assert_eq!(
                    lane.context(context).expect("live").phase,
                    ContextPhase::Idle,
                    "{name}"
                );
                continue;
            }
            // A lane with nothing ready advances, as idle, to the refill.
            let idle = lane.totals().idle;
            let running = run(&mut lane);
            assert_eq!(running.reference(), voice);
            let waited = matches!(phase, ContextPhase::Throttled);
            assert_eq!(lane.totals().idle > idle, waited, "{name} {overrun:?}");
            lane.stop(running, Cycles(10), Outcome::Finished);
            checked(&lane);
        }
    }
}

#[test]
fn a_demoted_holder_comes_back_to_its_context_at_the_refill() {
    for (name, policy) in policies() {
        let mut lane = with_contexts(policy);
        let voice = spawn(&mut lane, 0, 0);
        let wanted =
            ContextParameters { overrun: OverrunPolicy::Demote, ..parameters(5_000, 20_000) };
        let context = lane.create_context(wanted).expect("admitted");
        lane.bind_context(context, voice).expect("free");
        let (mut on_context, mut below) = (0, 0);
        for _ in 0..40 {
            let running = run(&mut lane);
            let is_current = lane.context(context).expect("live").phase == ContextPhase::Current;
            let bound = running.bound();
            *if is_current { &mut on_context } else { &mut below } += bound.0;
            lane.stop(running, bound, Outcome::OutOfCycles);
            checked(&lane);
        }
        assert!(
            on_context > 0 && below > on_context,
            "{name}: {on_context} on the context, {below} below it"
        );
        let view = lane.context(context).expect("live");
        assert!(
            view.counts.demotions >= 2 && view.counts.replenishments >= 2,
            "{name}: {:?}",
            view.counts
        );
    }
}

#[test]
fn giving_up_a_refill_waits_for_the_next_without_drift() {
    let mut lane = with_contexts(ROUND_ROBIN);
    let (hog, voice) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 1, 0));
    let wanted = ContextParameters { overrun: OverrunPolicy::End, ..parameters(5_000, 50_000) };
    let context = lane.create_context(wanted).expect("admitted");
    lane.bind_context(context, voice).expect("free");
    let mut releases = Vec::new();
    while releases.len() < 8 {
        let running = run(&mut lane);
        if running.reference() == hog {
            // A hog overruns its bound by a little less than G each time.
            let used = running.bound() + Cycles(99);
            lane.stop(running, used, Outcome::OutOfCycles);
            continue;
        }
        releases.push(lane.context(context).expect("live").deadline.0 - 50_000);
        assert!(lane.yield_context());
        assert_eq!(lane.stop(running, Cycles(700), Outcome::Yielded), Stopped::Throttled);
        checked(&lane);
    }
    assert_eq!(
        releases,
        (0..8).map(|k| k * 50_000).collect::<Vec<_>>(),
        "sporadic releases keep their grid"
    );
    let view = lane.context(context).expect("live");
    assert_eq!(
        (view.counts.throttles, view.counts.misses),
        (0, 0),
        "giving up is no overrun, also under `end`"
    );
}

#[test]
fn a_holder_that_waits_is_activated_when_it_wakes() {
    let mut lane = with_contexts(ROUND_ROBIN);
    let voice = spawn(&mut lane, 0, 0);
    let context = lane.create_context(parameters(5_000, 50_000)).expect("admitted");
    lane.bind_context(context, voice).expect("free");
    let running = run(&mut lane);
    lane.stop(running, Cycles(964), Outcome::Blocked(BlockReason::ChannelReceive));
    lane.align(Cycles(20_000));
    lane.wake(voice, WakeSource::Channel).expect("it waits");
    let view = lane.context(context).expect("live");
    let shown: Vec<_> =
        view.ring.refills().iter().map(|refill| (refill.amount.0, refill.at.0)).collect();
    assert_eq!(shown, [(4_000, 20_016), (1_000, 50_000)]);
    assert_eq!((view.phase, view.deadline), (ContextPhase::Ready, Cycles(70_016)));
    checked(&lane);
}

#[test]
fn an_earlier_deadline_goes_first_and_ties_by_sequence() {
    let mut lane = with_contexts(ROUND_ROBIN);
    let coroutines: Vec<_> = (0..4).map(|slot| spawn(&mut lane, 0, slot)).collect();
    let deadlines = [40_000, 20_000, 30_000, 20_000];
    for (&coroutine, deadline) in coroutines.iter().zip(deadlines) {
        let wanted = ContextParameters { deadline: Cycles(deadline), ..parameters(2_000, 50_000) };
        let context = lane.create_context(wanted).expect("admitted");
        lane.bind_context(context, coroutine).expect("free");
    }
    let explained = lane.explain().expect("a coroutine is ready");
    assert_eq!(
        (explained.winner.reference, explained.because),
        (coroutines[1], wavelock_kernel::Because::Tier)
    );
    let mut order = Vec::new();
    for _ in 0..4 {
        let running = run(&mut lane);
        order.push(running.reference().slot);
        lane.stop(running, Cycles(500), Outcome::Blocked(BlockReason::Join));
        checked(&lane);
    }
    assert_eq!(order, [1, 3, 2, 0]);
    assert!(matches!(lane.dispatch(), Next::Idle), "none is ready and none waits for a refill");
}

#[test]
fn best_effort_never_starves() {
    for (name, policy) in policies() {
        let mut lane = with_contexts(policy);
        let hog = spawn(&mut lane, 0, 0);
        // Created without admission: two contexts that want all of the lane.
        for slot in 0..2 {
            let voice = spawn(&mut lane, 1, slot);
            let wanted = ContextParameters {
                overrun: OverrunPolicy::NotifyOnly,
                ..parameters(90_000, 100_000)
            };
            let context = lane.create_context_unadmitted(wanted).expect("room");
            lane.bind_context(context, voice).expect("free");
        }
        let frames = 20;
        while lane.frame() < Frame(frames) {
            match lane.dispatch() {
                Next::Run(running) => {
                    let used = running.bound();
                    lane.stop(running, used, Outcome::OutOfCycles);
                }
                _ => {
                    let _ = lane.end_frame();
                    lane.begin_frame(Frame(lane.frame().0 + 1));
                }
            }
        }
        checked(&lane);
        let (got, of) = (lane.ledger(hog).expect("live").runtime.0, lane.clock().0);
        assert!(got * 1_000 >= of * 35, "{name}: best effort got {got} of {of}");
        assert!(got * 1_000 <= of * 60, "{name}: and no more than its part: {got} of {of}");
        assert!(
            lane.contexts().map(|view| view.counts.misses).sum::<u64>() > 0,
            "{name}: such a set misses, and says so"
        );
    }
}

#[test]
fn revoking_takes_time_away_wherever_its_holder_is() {
    for (name, policy) in policies() {
        for fallback in [Fallback::BestEffort, Fallback::Held] {
            for place in 0..5 {
                let mut lane = with_contexts(policy);
                let (other, voice) = (spawn(&mut lane, 0, 0), spawn(&mut lane, 1, 0));
                let wanted = ContextParameters { fallback, ..parameters(5_000, 50_000) };
                let context = lane.create_context(wanted).expect("admitted");
                lane.bind_context(context, voice).expect("free");
                let mut open = None;
                match place {
                    0 => {}
                    1 => {
                        let running = run(&mut lane);
                        lane.stop(running, Cycles(10), Outcome::Blocked(BlockReason::Join));
                    }
                    2 => {
                        let _ = to_the_bound(&mut lane);
                    }
                    3 => open = Some(run(&mut lane)),
                    _ => lane.hold(voice, HoldReason::Operator).expect("live"),
                }
                assert_eq!(lane.revoke_context(context, |_| ()), Ok(true));
                if let Some(running) = open {
                    assert_eq!(
                        lane.left(&running, Cycles(20)),
                        Cycles::ZERO,
                        "it stops at its next safepoint"
                    );
                    lane.stop(running, Cycles(20), Outcome::OutOfCycles);
                }
                checked(&lane);
                if place == 4 {
                    lane.release(voice, HoldReason::Operator).expect("held");
                }
                if place == 1 {
                    lane.wake(voice, WakeSource::Join).expect("it waits");
                }
                checked(&lane);
                let ready = lane.state(voice).expect("live") == State::Ready;
                assert_eq!(
                    ready,
                    fallback == Fallback::BestEffort,
                    "{name} {fallback:?} {place}: {:?}",
                    lane.state(voice)
                );
                assert_eq!(
                    lane.export().contexts.map(|tier| tier.stranded),
                    Some(u32::from(fallback == Fallback::Held)),
                    "{name} {place}"
                );
                let mut ran = Vec::new();
                for _ in 0..4 {
                    let running = run_across_frames(&mut lane);
                    ran.push(running.reference());
                    let used = running.bound();
                    lane.stop(running, used, Outcome::Yielded);
                }
                assert!(ran.contains(&other));
                assert_eq!(ran.contains(&voice), ready, "{name} {fallback:?} {place}");
                if fallback == Fallback::Held {
                    let again = lane.create_context(wanted).expect("admitted");
                    lane.bind_context(again, voice).expect("free");
                    checked(&lane);
                    let running = run_across_frames(&mut lane);
                    assert_eq!(
                        running.reference(),
                        voice,
                        "{name} {place}: another context lets it run"
                    );
                    lane.stop(running, Cycles(1), Outcome::Finished);
                }
            }
        }
    }
}

#[test]
fn a_holder_does_not_move_and_an_ended_one_frees_its_context() {
    let mut lane = with_contexts(ROUND_ROBIN);
    let voice = spawn(&mut lane, 0, 0);
    let context = lane.create_context(parameters(5_000, 50_000)).expect("admitted");
    lane.bind_context(context, voice).expect("free");
    let mut other = support::lane(ROUND_ROBIN);
    assert_eq!(
        lane.move_session(0, &mut other, wavelock_kernel::MoveKind::Assigned, |_, _| ()),
        Err(Refusal::HoldsContext { reference: voice })
    );
    let running = run(&mut lane);
    lane.stop(running, Cycles(10), Outcome::Finished);
    checked(&lane);
    assert_eq!(lane.context(context).expect("live").phase, ContextPhase::Idle);
    lane.reap(voice).expect("ended");
    let second = spawn(&mut lane, 0, 0);
    assert_eq!(second.slot, voice.slot, "the slot is used again");
    assert_eq!(lane.context_of(second), None, "and inherits nothing");
    checked(&lane);
}

#[test]
fn a_coroutine_can_be_bound_and_configured_in_its_own_slice() {
    for (name, policy) in policies() {
        let mut lane = with_contexts(policy);
        let voice = spawn(&mut lane, 0, 0);
        let context = lane.create_context(parameters(5_000, 50_000)).expect("admitted");
        let running = run(&mut lane);
        lane.bind_context(context, voice).expect("free");
        assert!(lane.left(&running, Cycles(100)) <= Cycles(4_900), "{name}");
        lane.configure_context(context, parameters(6_000, 50_000)).expect("more");
        assert_eq!(lane.stop(running, Cycles(100), Outcome::OutOfCycles), Stopped::Kept, "{name}");
        checked(&lane);
        let (_, reason, _) = to_the_bound(&mut lane);
        assert_eq!(reason, BoundReason::Refill, "{name}");
    }
}

#[test]
fn timers_and_refills_are_overhead_and_the_clock_adds_up() {
    let mut lane = with_contexts(ROUND_ROBIN);
    let voice = spawn(&mut lane, 0, 0);
    let context = lane
        .create_context(ContextParameters {
            activation: Activation::ConstantBandwidth,
            ..parameters(5_000, 10_000)
        })
        .expect("admitted");
    lane.bind_context(context, voice).expect("free");
    (0..20).for_each(|_| {
        let _ = to_the_bound(&mut lane);
    });
    let totals = lane.totals();
    assert_eq!(totals.overhead[SchedulerOperation::Refill as usize], Cycles(19 * 12));
    assert_eq!(totals.total(), lane.clock());
    assert!(totals.idle > Cycles(50_000), "half of the lane");
}

#[test]
fn an_exported_lane_continues_as_the_original() {
    for (name, policy) in policies() {
        let mut lane = with_contexts(policy);
        for slot in 0..6 {
            let coroutine = spawn(&mut lane, slot % 2, slot);
            if slot > 1 {
                let overrun = OverrunPolicy::ALL[slot as usize % 4];
                let wanted = ContextParameters {
                    overrun,
                    owner: slot % 2,
                    ..parameters(3_000 + u64::from(slot) * 100, 40_000)
                };
                let context = lane.create_context(wanted).expect("admitted");
                lane.bind_context(context, coroutine).expect("free");
            }
        }
        for _ in 0..13 {
            let _ = to_the_bound(&mut lane);
        }
        drop(events(&mut lane));
        let state = lane.export();
        let mut twin =
            Lane::rebuild(&state, 10_000).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        assert_eq!(twin.export(), state, "{name}");
        for _ in 0..60 {
            assert_eq!(to_the_bound(&mut lane), to_the_bound(&mut twin), "{name}");
            assert_eq!(events(&mut lane), events(&mut twin), "{name}");
        }
        assert_eq!(twin.export(), lane.export(), "{name}");
        let mut bad = state.clone();
        bad.contexts.as_mut().expect("it keeps contexts").contexts[0]
            .live
            .as_mut()
            .expect("live")
            .refills[0]
            .amount = Cycles(1);
        assert!(
            Lane::rebuild(&bad, 10_000).is_err(),
            "{name}: a ring that does not sum to its budget"
        );
    }
}

#[test]
fn a_context_taken_from_a_current_holder_between_slices_is_idle() {
    for (name, policy) in policies() {
        for fallback in [Fallback::BestEffort, Fallback::Held] {
            let mut lane = with_contexts(policy);
            let voice = spawn(&mut lane, 0, 0);
            let wanted = ContextParameters { fallback, ..parameters(5_000, 50_000) };
            let context = lane.create_context(wanted).expect("admitted");
            lane.bind_context(context, voice).expect("both are free");
            let running = run(&mut lane);
            assert_eq!(lane.stop(running, Cycles(1_000), Outcome::OutOfCycles), Stopped::Kept);
            lane.unbind_context(context).expect("between slices");
            let phase = lane.context(context).expect("live").phase;
            assert_eq!(phase, ContextPhase::Idle, "{name} {fallback:?}");
            checked(&lane);
        }
    }
}
