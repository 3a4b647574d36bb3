//! Leases of a lane: the steps, every refusal and every part of the evidence with its numbers, what
//! a leased lane refuses, and the noise that it has not.

mod support;

use support::{ROUND_ROBIN, Random, checked, policies, run, settings, spawn};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, Frame, LaneId, LeaseRef, SchedulerOperation};
use wavelock_kernel::{
    BlockReason, CapOverrun, CapSettings, ContextParameters, ContextSettings, Evidence, Lane,
    LeaseEnd, LeasePhase, LeaseRefusal, LeaseRequest, LeaseState, Missing, MoveKind, Next, Outcome,
    OverrunPolicy, Policy, Refusal, Reservation, Span, Spawn, Tag, WakeSource,
};

const GAP: Cycles = Cycles(100);
const WAVE: Cycles = Cycles(10_000);
const LEAST: Cycles = Cycles(10_200);

/// A lane that may be leased, with room and contexts, in an endless wave.
fn leasable(id: u16, policy: Policy) -> Lane {
    let mut lane = Lane::new(LaneId(id), settings(policy));
    lane.reserve(Reservation { coroutines: 100, sessions: 20 }).expect("memory");
    lane.reserve_contexts(ContextSettings { gap: GAP, wave: Some(WAVE) }, 8).expect("memory");
    lane.reserve_lease();
    lane.begin_wave(Span::Until(Cycles::MAX));
    lane
}

/// A coroutine with a context.
fn holder(lane: &mut Lane, session: u32, overrun: OverrunPolicy) -> (CoroutineRef, ContextRef) {
    let coroutine = spawn(lane, session, 0);
    let parameters =
        ContextParameters { overrun, ..ContextParameters::new(Cycles(5_000), Cycles(50_000)) };
    let context = lane.create_context(parameters).expect("admitted");
    lane.bind_context(context, coroutine).expect("both are free");
    (coroutine, context)
}

fn request(context: ContextRef) -> LeaseRequest {
    LeaseRequest {
        name: 7,
        context,
        owner: None,
        bound: LEAST,
        expires_frames: None,
        asked: Cycles::ZERO,
    }
}

/// A lane whose lease is active.
fn leased(policy: Policy) -> (Lane, CoroutineRef, ContextRef) {
    let mut lane = leasable(1, policy);
    let (coroutine, context) = holder(&mut lane, 3, OverrunPolicy::Throttle);
    lane.request_lease(request(context)).expect("free");
    lane.drain_lease();
    lane.flush_lease();
    assert_eq!(lane.activate_lease(None), Ok(()));
    checked(&lane);
    (lane, coroutine, context)
}

fn state(lane: &Lane) -> LeaseState {
    *lane.lease().expect("reserved")
}

#[test]
fn a_lease_goes_through_its_steps_and_each_closes_more() {
    let mut lane = leasable(1, ROUND_ROBIN);
    let (coroutine, context) = holder(&mut lane, 3, OverrunPolicy::Throttle);
    assert_eq!(
        (state(&lane).phase, lane.is_open(), lane.takes_spawns()),
        (LeasePhase::Free, true, true)
    );
    let lease = lane.request_lease(LeaseRequest { expires_frames: Some(4), ..request(context) });
    assert_eq!(lease, Ok(LeaseRef { lane: LaneId(1), generation: 1 }));
    assert_eq!((lane.is_open(), lane.takes_spawns()), (true, true));
    lane.drain_lease();
    assert_eq!((lane.is_open(), lane.takes_spawns(), lane.is_quiet()), (false, true, false));
    lane.flush_lease();
    assert_eq!((lane.is_open(), lane.takes_spawns(), lane.is_quiet()), (false, false, false));
    assert_eq!(lane.activate_lease(None), Ok(()));
    assert_eq!((lane.is_open(), lane.takes_spawns(), lane.is_quiet()), (false, false, true));
    let LeaseState { name, holder, session, began, expires, .. } = state(&lane);
    assert_eq!((name, holder, session), (7, coroutine, 3));
    assert_eq!((began, expires), (Some(lane.clock()), Some(Frame(4))));
    assert!(lane.end_lease(LeaseEnd::Revoked, Cycles(10), Cycles(30)));
    assert_eq!((lane.is_open(), lane.takes_spawns(), lane.is_quiet()), (false, true, false));
    assert!(!lane.end_lease(LeaseEnd::Expired, Cycles(10), Cycles(99)), "it has ended");
    assert!(lane.release_lease() && !lane.release_lease());
    let after = state(&lane);
    assert_eq!((after.phase, after.ended), (LeasePhase::Released, Some(LeaseEnd::Revoked)));
    assert_eq!(after.latency(), Cycles(20));
    assert!(lane.is_open() && lane.takes_spawns());
    // The next lease of the lane is another one.
    assert_eq!(lane.request_lease(request(context)).map(|lease| lease.generation), Ok(2));
    checked(&lane);
}

#[test]
fn every_refusal_has_its_numbers() {
    let mut plain = Lane::new(LaneId(1), settings(ROUND_ROBIN));
    let none = ContextRef::new(0, 0);
    let refused = plain.request_lease(request(none)).expect_err("no place");
    assert_eq!(refused, LeaseRefusal::Off { lane: LaneId(1) });
    let mut first = leasable(0, ROUND_ROBIN);
    let (_, context) = holder(&mut first, 0, OverrunPolicy::Throttle);
    assert_eq!(first.request_lease(request(context)), Err(LeaseRefusal::Housekeeping));
    let mut lane = leasable(1, ROUND_ROBIN);
    let (coroutine, context) = holder(&mut lane, 0, OverrunPolicy::Throttle);
    let tight = LeaseRequest { bound: Cycles(10_199), ..request(context) };
    let refused = lane.request_lease(tight).expect_err("too tight");
    assert_eq!(refused, LeaseRefusal::BoundTooTight { asked: Cycles(10_199), least: LEAST });
    assert_eq!(
        refused.to_string(),
        "a revocation within 10199 cycles cannot be promised; 10200 can: a wave + 2 * G"
    );
    lane.request_lease(request(context)).expect("free");
    type Step = fn(&mut Lane);
    let steps: [(LeasePhase, Step); 4] = [
        (LeasePhase::Requested, Lane::drain_lease),
        (LeasePhase::Draining, Lane::flush_lease),
        (LeasePhase::Flushing, |lane: &mut Lane| lane.activate_lease(None).expect("all holds")),
        (LeasePhase::Active, |_: &mut Lane| ()),
    ];
    for (phase, step) in steps {
        let busy = LeaseRefusal::Busy { lane: LaneId(1), phase };
        assert_eq!(lane.request_lease(request(context)), Err(busy));
        assert!(busy.to_string().starts_with("lane 1 has a lease already: it is "), "{busy}");
        step(&mut lane);
    }
    lane.cancel(coroutine).expect("live");
    let busy = LeaseRefusal::Busy { lane: LaneId(1), phase: LeasePhase::Revoking };
    assert_eq!(lane.request_lease(request(context)), Err(busy));
    assert!(lane.release_lease());
    let refused = lane.request_lease(request(context)).expect_err("no holder");
    assert_eq!(refused, LeaseRefusal::NoTarget { context });
    assert!(lane.request_lease(request(ContextRef::new(5, 9))).is_err(), "a stale context");
}

/// A lane with a flushed lease, changed by `spoil` before.
fn flushed(overrun: OverrunPolicy, spoil: impl FnOnce(&mut Lane, ContextRef)) -> Lane {
    let mut lane = leasable(1, ROUND_ROBIN);
    let (_, context) = holder(&mut lane, 3, overrun);
    spoil(&mut lane, context);
    lane.request_lease(request(context)).expect("free");
    lane.drain_lease();
    lane.flush_lease();
    lane
}

#[test]
fn activation_is_all_or_nothing_and_names_the_first_missing_evidence() {
    let throttle = OverrunPolicy::Throttle;
    let sleeper = |lane: &mut Lane, _: ContextRef| {
        let other = spawn(lane, 5, 0);
        loop {
            let running = run(lane);
            let (who, outcome) = (running.reference(), Outcome::Slept(Frame(40)));
            let is_other = who == other;
            let _ = lane.stop(
                running,
                Cycles(10),
                if is_other { outcome } else { Outcome::Blocked(BlockReason::Join) },
            );
            if is_other {
                break;
            }
        }
    };
    let second = |lane: &mut Lane, _: ContextRef| {
        spawn(lane, 6, 0);
    };
    let demoted = |lane: &mut Lane, _: ContextRef| {
        let running = run(lane);
        let _ = lane.stop(running, Cycles(6_000), Outcome::OutOfCycles);
    };
    let missing = |evidence, session, count, until| Missing { evidence, session, count, until };
    let mut lane = flushed(throttle, sleeper);
    assert_eq!(lane.activate_lease(None), Err(missing(Evidence::TimersMigrated, Some(5), 1, 40)));
    let mut lane = flushed(throttle, second);
    assert_eq!(lane.activate_lease(None), Err(missing(Evidence::SingleRunnable, Some(6), 1, 0)));
    let mut lane = flushed(OverrunPolicy::Demote, demoted);
    let until = lane.next_release().expect("a refill is due").0;
    let denied = missing(Evidence::NoStarvationServer, Some(3), 1, until);
    assert_eq!(lane.activate_lease(None), Err(denied));
    let mut lane = flushed(throttle, |_, _| ());
    let context = state(&lane).context;
    lane.unbind_context(context).expect("bound");
    let denied = missing(Evidence::AccountingTarget, Some(3), 0, 0);
    assert_eq!(lane.activate_lease(None), Err(denied));
    // What the caller found is in the same order.
    for evidence in [
        Evidence::HousekeepingElsewhere,
        Evidence::DeferredCleanupDrained,
        Evidence::WakeSourcesRouted,
    ] {
        let outside = missing(evidence, Some(9), 2, 0);
        let mut lane = flushed(throttle, |_, _| ());
        assert_eq!(lane.activate_lease(Some(outside)), Err(outside));
        assert_eq!((state(&lane).phase, state(&lane).missing), (LeasePhase::Denied, Some(outside)));
        let first =
            if evidence > Evidence::TimersMigrated { Evidence::TimersMigrated } else { evidence };
        let mut lane = flushed(throttle, sleeper);
        let denied = lane.activate_lease(Some(outside)).expect_err("two are missing");
        assert_eq!(denied.evidence, first);
        // Denied changes nothing else: the lane is open, and its fair server on.
        assert!(lane.is_open() && lane.takes_spawns() && lane.noise() == [0; 8]);
        checked(&lane);
    }
}

#[test]
fn a_bound_that_cannot_be_kept_is_found_at_activation_too() {
    let mut lane = flushed(OverrunPolicy::Throttle, |_, _| ());
    let mut plain = lane.export();
    if let Some(lease) = &mut plain.lease {
        lease.bound = Cycles(1);
    }
    lane = Lane::rebuild(&plain, u32::MAX).expect("a lane");
    let denied = lane.activate_lease(None).expect_err("too tight");
    assert_eq!(
        (denied.evidence, denied.count, denied.until),
        (Evidence::RevocationBound, 1, LEAST.0)
    );
}

#[test]
fn nothing_comes_to_a_leased_lane() {
    let (mut lane, _, _) = leased(ROUND_ROBIN);
    let refused = Refusal::Leased { lane: LaneId(1) };
    assert_eq!(lane.spawn(Spawn::new(Tag::new(3, 1))), Err(refused));
    let mut other = leasable(2, ROUND_ROBIN);
    spawn(&mut other, 8, 0);
    let moved = other.move_session(8, &mut lane, MoveKind::Stolen, |_, _| ());
    assert_eq!(moved, Err(refused));
    assert_eq!((other.live(), lane.live()), (1, 1), "nothing has moved");
    assert_eq!(lane.totals().overhead_total(), Cycles::ZERO);
    assert_eq!(
        refused.to_string(),
        "lane 1 is leased: it runs the holder of its lease and nothing else"
    );
}

/// Everything a holder can do to itself, under every policy: none of it is noise. Whatever it does,
/// the lane's totals are the same as without the lease.
#[test]
fn a_holder_makes_no_noise_and_the_lease_changes_no_total() {
    for (name, policy) in policies() {
        for overrun in [OverrunPolicy::Throttle, OverrunPolicy::Demote, OverrunPolicy::NotifyOnly] {
            let totals = [true, false].map(|is_leased| {
                let mut lane = leasable(1, policy);
                let cap = CapSettings {
                    budget: Cycles(40_000),
                    period_frames: 1,
                    overrun: CapOverrun::Throttle,
                };
                lane.set_cap(3, cap).expect("a cap");
                let (coroutine, context) = holder(&mut lane, 3, overrun);
                if is_leased {
                    lane.request_lease(request(context)).expect("free");
                    lane.drain_lease();
                    lane.flush_lease();
                    assert_eq!(lane.activate_lease(None), Ok(()));
                }
                let mut random = Random::new(11);
                for _ in 0..3_000 {
                    match lane.dispatch() {
                        Next::Run(running) => {
                            let used = running.bound().0.min(1 + random.below(6_000));
                            let outcome = match random.below(6) {
                                0 => Outcome::Slept(Frame(lane.frame().0 + random.below(3))),
                                1 => Outcome::Blocked(BlockReason::ChannelReceive),
                                2 => Outcome::Yielded,
                                _ => Outcome::OutOfCycles,
                            };
                            let _ = lane.stop(running, Cycles(used), outcome);
                        }
                        Next::Idle | Next::Over => {
                            if lane.wake(coroutine, WakeSource::Channel).is_ok() {
                                lane.accept_effect_of_holder();
                            } else {
                                let _ = lane.end_frame();
                                lane.begin_frame(Frame(lane.frame().0 + 1));
                            }
                        }
                    }
                    lane.drain_context_events(|_| ());
                    lane.drain_cap_events(|_| ());
                    assert_eq!(lane.noise(), [0; 8], "{name}");
                }
                checked(&lane);
                assert!(lane.totals().overhead.iter().filter(|cycles| cycles.0 > 0).count() >= 5);
                lane.totals()
            });
            assert_eq!(totals[0], totals[1], "{name}");
        }
    }
}

#[test]
fn overhead_of_others_is_noise() {
    let (mut lane, _, _) = leased(ROUND_ROBIN);
    lane.accept_effect();
    let mut expected = [0; 8];
    expected[SchedulerOperation::Inbox as usize] = 1;
    assert_eq!(lane.noise(), expected);
    let violation = lane.check().expect_err("planted");
    assert_eq!(violation.rule, "a leased lane has no overhead but its holder's");
    assert!(lane.end_lease(LeaseEnd::Noise, lane.clock(), lane.clock()));
    assert_eq!(state(&lane).noise, expected, "it is kept with the lease");
    assert_eq!(lane.noise(), [0; 8], "no lease is active");
}

#[test]
fn a_lease_ends_with_its_holder_and_with_what_pays_for_it() {
    let (mut lane, coroutine, _) = leased(ROUND_ROBIN);
    lane.cancel(coroutine).expect("live");
    assert!(lane.lease_ended_itself() && !lane.lease_ended_itself());
    assert_eq!(
        (state(&lane).ended, state(&lane).latency()),
        (Some(LeaseEnd::HolderEnded), Cycles::ZERO)
    );
    let (mut lane, _, _) = leased(ROUND_ROBIN);
    let running = run(&mut lane);
    let _ = lane.stop(running, Cycles(10), Outcome::Finished);
    assert_eq!(state(&lane).ended, Some(LeaseEnd::HolderEnded));
    let (mut lane, _, context) = leased(ROUND_ROBIN);
    lane.unbind_context(context).expect("bound");
    assert_eq!(state(&lane).ended, Some(LeaseEnd::TargetLost));
    let (mut lane, _, context) = leased(ROUND_ROBIN);
    assert_eq!(lane.revoke_context(context, |_| ()), Ok(true));
    assert_eq!(state(&lane).ended, Some(LeaseEnd::TargetLost));
    checked(&lane);
}

#[test]
fn a_lease_survives_its_bytes_in_every_state_and_a_forged_one_is_refused() {
    let (mut lane, _, _) = leased(ROUND_ROBIN);
    let again = Lane::rebuild(&lane.export(), u32::MAX).expect("a lane");
    assert_eq!((again.lease(), again.is_quiet()), (lane.lease(), true));
    let forge = |change: fn(&mut LeaseState)| {
        let mut plain = lane.export();
        plain.lease.as_mut().into_iter().for_each(change);
        Lane::rebuild(&plain, u32::MAX).map(|_| ())
    };
    assert_eq!(forge(|_| ()), Ok(()));
    assert!(forge(|lease| lease.before[0] = 1).is_err(), "operations of the future");
    assert!(forge(|lease| lease.caused[0] = 1).is_err());
    assert!(forge(|lease| lease.began = None).is_err());
    assert!(forge(|lease| lease.phase = LeasePhase::Denied).is_err());
    assert!(forge(|lease| lease.phase = LeasePhase::Released).is_err());
    assert!(forge(|lease| lease.phase = LeasePhase::Free).is_err());
    assert!(forge(|lease| lease.generation = u32::MAX).is_err());
    assert!(forge(|lease| lease.holder.slot = 77).is_err(), "no such holder");
    assert!(forge(|lease| lease.context.slot = 5).is_err(), "no such context");
    lane.end_lease(LeaseEnd::Expired, Cycles(1), Cycles(2));
    let again = Lane::rebuild(&lane.export(), u32::MAX).expect("a lane");
    assert_eq!(again.lease(), lane.lease());
    let mut housekeeping = leasable(0, ROUND_ROBIN);
    let (_, _) = holder(&mut housekeeping, 3, OverrunPolicy::Throttle);
    let mut plain = housekeeping.export();
    plain.lease = Some(state(&lane));
    assert!(Lane::rebuild(&plain, u32::MAX).is_err(), "lane 0 is never leased");
}
