//! Several lanes: canonical order, inboxes, migration, steal, stalls.

mod support;

use support::lane_set::{Applied, Effect, LaneSet, Steal, WaveSpan};
use support::{ROUND_ROBIN, Random, checked, lanes, policies, priority, slice, spawn};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SchedulerOperation};
use wavelock_kernel::{
    BlockReason, FrameRow, HoldReason, Lane, MoveBan, Next, Outcome, PriorityRule, Refusal, Span,
    Spawn, State, Tag, WakeSource,
};

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);
const C: LaneId = LaneId(2);

fn check_all(set: &LaneSet) {
    set.iter().for_each(checked);
}

#[test]
fn lanes_are_send() {
    fn is_send<T: Send>() {}
    is_send::<Lane>();
}

#[test]
fn canonical_order_is_lane_by_lane_within_a_wave() {
    let mut set = lanes(3, ROUND_ROBIN);
    for session in 0..6 {
        let lane = LaneId((session % 3) as u16);
        spawn(&mut set[lane], session, 0);
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        set.begin_wave(WaveSpan::Picks(1));
        while let Some((lane, running)) = set.dispatch() {
            seen.push((lane.0, running.tag().session()));
            set[lane].stop(running, Cycles(10), Outcome::Yielded);
        }
        set.end_wave(|_, _| ());
    }
    assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (2, 5)]);
}

#[test]
fn a_wave_end_aligns_clocks_with_idle() {
    let mut set = lanes(2, ROUND_ROBIN);
    spawn(&mut set[A], 0, 0);
    set.begin_wave(WaveSpan::Cycles(Cycles(1_000)));
    while let Some((lane, running)) = set.dispatch() {
        set[lane].stop(running, Cycles(700), Outcome::Yielded);
    }
    let latest = set[A].clock();
    set.end_wave(|_, _| ());
    assert_eq!(set[B].clock(), latest);
    assert_eq!(set[B].totals().idle, latest);
    check_all(&set);
}

#[test]
fn effects_cross_at_the_wave_end_in_canonical_order() {
    let mut set = lanes(3, ROUND_ROBIN);
    let waiting: Vec<CoroutineRef> = (0..4).map(|slot| spawn(&mut set[A], 0, slot)).collect();
    set.begin_wave(WaveSpan::Cycles(Cycles(100_000)));
    for _ in &waiting {
        slice(&mut set[A], 10, Outcome::Blocked(BlockReason::ChannelReceive));
    }
    for (lane, session) in [(B, 1), (C, 2)] {
        spawn(&mut set[lane], session, 0);
    }
    let wake = |slot: usize| Effect::Wake { target: waiting[slot], source: WakeSource::Channel };
    // Lane C runs before lane B here, as on a second worker: the order of application is B before C
    // all the same.
    for (lane, targets) in [(C, [0, 1]), (B, [2, 3])] {
        let running = support::run(&mut set[lane]);
        for target in targets {
            set.post(lane, A, wake(target));
        }
        set[lane].stop(running, Cycles(10), Outcome::Yielded);
    }
    set.post(C, A, wake(0));
    set.post(C, A, Effect::Publish(Spawn::new(Tag::new(0, 9))));
    assert_eq!(
        set[A].state(waiting[0]),
        Ok(State::Blocked { reason: BlockReason::ChannelReceive }),
        "not before the end"
    );
    let inbox = SchedulerOperation::Inbox as usize;
    let before = set[A].totals().overhead[inbox];
    let mut seen = Vec::new();
    set.end_wave(|posted, applied| seen.push((posted.from.0, posted.sequence, applied)));
    let keys: Vec<_> = seen.iter().map(|(from, sequence, _)| (*from, *sequence)).collect();
    assert_eq!(keys, [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
    assert!(
        matches!(seen[4].2, Applied::Woken(Err(Refusal::NotWaiting { .. }))),
        "woken once already"
    );
    assert!(matches!(seen[5].2, Applied::Published(Ok(_))));
    assert_eq!(set[A].totals().overhead[inbox] - before, Cycles(6 * 16));
    set.begin_wave(WaveSpan::Cycles(Cycles(100_000)));
    assert_eq!(support::order(&mut set[A], 5)[..4], [2, 3, 0, 1]);
    check_all(&set);
}

#[test]
fn a_handoff_across_lanes_is_preferred() {
    let mut set = lanes(2, ROUND_ROBIN);
    let (first, target) = (spawn(&mut set[B], 1, 0), spawn(&mut set[B], 1, 1));
    spawn(&mut set[A], 0, 0);
    set.begin_wave(WaveSpan::Cycles(Cycles(50_000)));
    slice(&mut set[B], 5, Outcome::Yielded);
    slice(&mut set[B], 5, Outcome::Blocked(BlockReason::ChannelReceive));
    let running = support::run(&mut set[A]);
    set.post(A, B, Effect::Handoff { target, source: WakeSource::Channel });
    set[A].stop(running, Cycles(5), Outcome::Yielded);
    let mut applied = Vec::new();
    set.end_wave(|_, result| applied.push(result));
    assert_eq!(applied, [Applied::HandedOff { woken: Ok(()), preferred: true }]);
    set.begin_wave(WaveSpan::Cycles(Cycles(50_000)));
    let running = support::run(&mut set[B]);
    assert_eq!(
        (running.reference(), running.bound()),
        (target, Cycles(10_000)),
        "before {first:?}, with a quantum of its own"
    );
    set[B].stop(running, Cycles(1), Outcome::Finished);
}

#[test]
fn a_session_moves_whole_with_everything_it_has() {
    for (name, policy) in policies() {
        let mut set = lanes(2, policy);
        let all: Vec<_> = (0..6).map(|slot| spawn(&mut set[A], 5, slot)).collect();
        spawn(&mut set[B], 6, 0);
        set.begin_wave(WaveSpan::Cycles(Cycles(1_000_000)));
        let ran: Vec<_> =
            [Outcome::Slept(Frame(4)), Outcome::Blocked(BlockReason::Join), Outcome::Finished]
                .into_iter()
                .map(|outcome| slice(&mut set[A], 100, outcome).0)
                .collect();
        let held = all.iter().copied().find(|one| !ran.contains(one)).unwrap();
        set[A].hold(held, HoldReason::Operator).unwrap();
        set.end_wave(|_, _| ());
        let before: Vec<_> =
            all.iter().map(|&one| (set[A].tag(one).unwrap(), set[A].state(one).unwrap())).collect();
        let overhead = set[B].totals().overhead_total();
        let mut moved = Vec::new();
        assert_eq!(
            set.migrate(5, A, B, |tag, reference| moved.push((tag, reference))),
            Ok(6),
            "{name}"
        );
        check_all(&set);
        assert_eq!(set[A].live(), 0, "{name}");
        assert_eq!(set[B].totals().overhead_total() - overhead, Cycles(6 * 120), "{name}");
        assert!(
            all.iter().all(|&one| set[A].state(one).is_err()),
            "{name}: old references are stale"
        );
        for (tag, state) in before {
            let reference = moved.iter().find(|(moved, _)| *moved == tag).unwrap().1;
            assert_eq!(set[B].state(reference), Ok(state), "{name} {tag:?}");
            let ledger = set[B].ledger(reference).unwrap();
            assert_eq!((ledger.migrations, ledger.steals), (1, 0), "{name}");
        }
        let blocked = moved.iter().find(|(tag, _)| *tag == Tag::new(5, ran[1].slot)).unwrap().1;
        set[B].wake(blocked, WakeSource::Join).unwrap();
        set.end_frame(|row: FrameRow| assert!(row.is_conserved(Cycles(1_000_000))));
        assert_eq!(set.begin_frame(Frame(4)), 1, "{name}: the sleeper slept on");
        check_all(&set);
        assert_eq!(
            set.migrate(5, A, B, |_, _| ()),
            Err(Refusal::NoSession { session: 5, lane: A })
        );
    }
}

#[test]
fn moving_keeps_the_order_of_arrivals() {
    let mut set = lanes(2, ROUND_ROBIN);
    let all: Vec<_> = (0..5).map(|slot| spawn(&mut set[A], 1, slot)).collect();
    set[A].begin_wave(Span::Until(Cycles::MAX));
    set[A].hold(all[1], HoldReason::Operator).unwrap();
    assert_eq!(support::order(&mut set[A], 3), [0, 2, 3]);
    set[A].release(all[1], HoldReason::Operator).unwrap();
    let mut moved = Vec::new();
    set.migrate(1, A, B, |tag, _| moved.push(tag.slot())).unwrap();
    assert_eq!(moved, [1, 4, 0, 2, 3]);
    set[B].begin_wave(Span::Until(Cycles::MAX));
    let order: Vec<u32> = (0..5)
        .map(|_| {
            let running = support::run(&mut set[B]);
            let slot = running.tag().slot();
            set[B].stop(running, Cycles(1), Outcome::Yielded);
            slot
        })
        .collect();
    assert_eq!(order, [1, 4, 0, 2, 3]);
}

#[test]
fn nothing_moves_when_there_is_no_room() {
    let mut set = LaneSet::new(2, support::settings(ROUND_ROBIN));
    set[A].reserve(wavelock_kernel::Reservation { coroutines: 2_000, sessions: 1 }).unwrap();
    set[B].reserve(wavelock_kernel::Reservation { coroutines: 1, sessions: 1 }).unwrap();
    for slot in 0..2_000 {
        spawn(&mut set[A], 0, slot);
    }
    let room = set[B].capacity();
    assert_eq!(
        set.migrate(0, A, B, |_, _| panic!("nothing moves")),
        Err(Refusal::NoRoom { need: 2_000, room })
    );
    assert_eq!(set[A].live(), 2_000);
    check_all(&set);
}

// Steal.

#[test]
fn a_steal_takes_a_whole_session_and_leaves_work_behind() {
    let mut set = lanes(2, ROUND_ROBIN);
    for session in [3, 5] {
        (0..3).for_each(|slot| assert!(spawn(&mut set[A], session, slot).slot < 6));
    }
    assert_eq!(set.steal(A, |_| None, |_, _| ()), Ok(Steal::Busy));
    let mut moved = Vec::new();
    let steal = set.steal(B, |_| None, |tag, _| moved.push(tag)).unwrap();
    assert_eq!(steal, Steal::Won { session: 3, victim: A, coroutines: 3 });
    assert_eq!(moved, [Tag::new(3, 0), Tag::new(3, 1), Tag::new(3, 2)]);
    let (reference, _) = set[B].session(3).next().unwrap();
    assert_eq!(set[B].ledger(reference).unwrap().steals, 1);
    let overhead = set[B].totals().overhead;
    // One steal, and a migration per coroutine.
    assert_eq!(overhead[SchedulerOperation::Steal as usize], Cycles(60));
    assert_eq!(overhead[SchedulerOperation::Migrate as usize], Cycles(360));
    check_all(&set);
}

#[test]
fn a_lone_session_and_the_current_one_are_not_stolen() {
    let mut set = lanes(2, ROUND_ROBIN);
    (0..3).for_each(|slot| assert!(spawn(&mut set[A], 3, slot).slot < 3));
    assert_eq!(set.steal(B, |_| None, |_, _| ()), Ok(Steal::Nothing(None)));
    // A second session, but it only waits: taking session 3 would leave nothing to run.
    set[A].begin_wave(Span::Until(Cycles::MAX));
    spawn(&mut set[A], 4, 0);
    (0..3).for_each(|_| assert!(matches!(slice(&mut set[A], 1, Outcome::Yielded), (_, _))));
    slice(&mut set[A], 1, Outcome::Blocked(BlockReason::Join));
    assert_eq!(set.steal(B, |_| None, |_, _| ()), Ok(Steal::Nothing(None)));
    // Now the current one is of session 3: session 5 can go, 3 cannot.
    assert_eq!(slice(&mut set[A], 1, Outcome::OutOfCycles).1, wavelock_kernel::Stopped::Kept);
    spawn(&mut set[A], 5, 0);
    assert_eq!(
        set.steal(B, |_| None, |_, _| ()),
        Ok(Steal::Won { session: 5, victim: A, coroutines: 1 })
    );
    check_all(&set);
}

#[test]
fn a_session_that_may_not_move_is_reported_when_it_waits_too_long() {
    let mut set = lanes(2, ROUND_ROBIN);
    for session in [1, 2] {
        spawn(&mut set[A], session, 0);
    }
    let ban = |_| Some(MoveBan::Pinned);
    assert_eq!(set.steal(B, ban, |_, _| ()), Ok(Steal::Nothing(None)), "not yet too long");
    set.end_frame(|_| ());
    set.begin_frame(Frame(9));
    let Ok(Steal::Nothing(Some(stuck))) = set.steal(B, ban, |_, _| ()) else {
        panic!("it has waited nine frames")
    };
    assert_eq!((stuck.lane, stuck.ban, stuck.limit), (A, MoveBan::Pinned, Cycles(8_000_000)));
    assert!(stuck.waited > stuck.limit);
}

#[test]
fn steal_inspects_at_most_eight_sessions() {
    let mut set = lanes(2, ROUND_ROBIN);
    set[A].begin_wave(Span::Until(Cycles::MAX));
    for session in 0..12 {
        spawn(&mut set[A], session, 0);
    }
    // The first nine wait; the work is beyond the eight that round 0 inspects.
    for _ in 0..9 {
        slice(&mut set[A], 1, Outcome::Blocked(BlockReason::Join));
    }
    let mut asked = 0;
    let count = |asked: &mut u32| {
        *asked += 1;
        None
    };
    assert_eq!(set.steal(B, |_| count(&mut asked), |_, _| ()), Ok(Steal::Nothing(None)));
    assert_eq!(asked, 0);
    // A later round begins later in the table.
    (0..4).for_each(|_| set.end_wave(|_, _| ()));
    assert_eq!(
        set.steal(B, |_| None, |_, _| ()),
        Ok(Steal::Won { session: 9, victim: A, coroutines: 1 })
    );
}

// Stalls.

#[test]
fn a_stall_needs_everyone_to_wait() {
    let mut set = lanes(2, ROUND_ROBIN);
    assert!(!set.is_stalled(), "nobody waits");
    let waiting = spawn(&mut set[A], 0, 0);
    let sleeper = spawn(&mut set[B], 1, 0);
    set.begin_wave(WaveSpan::Picks(1));
    slice(&mut set[A], 1, Outcome::Blocked(BlockReason::Join));
    slice(&mut set[B], 1, Outcome::Slept(Frame(2)));
    set.end_wave(|_, _| ());
    assert!(!set.is_stalled(), "one sleeps");
    assert_eq!(set.next_wake(), Some(Frame(2)));
    set[B].cancel(sleeper).unwrap();
    assert!(set.is_stalled());
    set.post(B, A, Effect::Wake { target: waiting, source: WakeSource::Join });
    assert!(!set.is_stalled(), "an effect is on its way");
    set.end_wave(|_, _| ());
    assert!(!set.is_stalled(), "one is ready");
}

/// The same run with the lanes of each wave in another order: equal lanes at the end.
#[test]
fn the_order_in_which_lanes_run_does_not_matter() {
    let run = |shuffled: bool| {
        let mut set = lanes(4, priority(PriorityRule::Aging));
        let mut references = Vec::new();
        for index in 0..40u32 {
            let lane = LaneId((index % 10 % 4) as u16);
            let spawn = Spawn {
                priority: Priority(index as u8),
                ..Spawn::new(Tag::new(index % 10, index))
            };
            references.push((lane, set[lane].spawn(spawn).unwrap()));
        }
        for wave in 0..60u64 {
            set.begin_wave(WaveSpan::Cycles(Cycles(5_000)));
            let mut order: Vec<u16> = (0..4).collect();
            if shuffled {
                order.rotate_left((wave % 4) as usize);
                order.swap(0, 2);
            }
            for lane in order.into_iter().map(LaneId) {
                let mut random = Random(wave * 4 + u64::from(lane.0));
                while let Next::Run(running) = set[lane].dispatch() {
                    let used = Cycles(random.below(1_000));
                    let (to, target) = references[random.below(40) as usize];
                    if to == lane {
                        let _ = set[lane].wake(target, WakeSource::Channel);
                    } else {
                        set.post(lane, to, Effect::Wake { target, source: WakeSource::Channel });
                    }
                    let outcome = match random.below(3) {
                        0 => Outcome::Yielded,
                        _ => Outcome::Blocked(BlockReason::Select),
                    };
                    set[lane].stop(running, used, outcome);
                }
            }
            set.end_wave(|_, _| ());
            check_all(&set);
            if set[A].clock() >= set[A].frame_end() {
                set.end_frame(|_| ());
                let frame = set[A].frame();
                set.begin_frame(Frame(frame.0 + 1));
            }
        }
        set.iter().map(Lane::export).collect::<Vec<_>>()
    };
    let (canonical, shuffled) = (run(false), run(true));
    assert!(
        canonical.iter().any(|lane| lane.wakes[WakeSource::Channel as usize] > 10),
        "the run did cross lanes"
    );
    assert_eq!(canonical, shuffled);
}
