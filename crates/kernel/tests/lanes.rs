//! Several lanes: canonical order, inboxes, migration, steal, stalls.

mod support;

use support::{ROUND_ROBIN, Random, checked, kernel, policies, priority, slice, spawn};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SchedulerOperation};
use wavelock_kernel::{
    Applied, BlockReason, Effect, FrameRow, HandoffRecord, HoldReason, Inbox, Kernel, Lane, Letter, MoveBan, MoveKind, OrderKey, Outbox,
    Outcome, PriorityRule, Refusal, Span, Spawn, State, Steal, Tag, WakeSource, WaveSpan, steal_victims,
};

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);
const C: LaneId = LaneId(2);

fn check_all(kernel: &Kernel) {
    (0..kernel.lanes()).for_each(|lane| checked(kernel.lane(LaneId(lane)).unwrap()));
}

fn on(kernel: &mut Kernel, lane: LaneId) -> &mut Lane {
    kernel.lane_mut(lane).unwrap()
}

#[test]
fn lanes_are_send() {
    fn is_send<T: Send>() {}
    is_send::<Lane>();
    is_send::<Kernel>();
}

#[test]
fn canonical_order_is_lane_by_lane_within_a_wave() {
    let mut kernel = kernel(3, ROUND_ROBIN);
    for session in 0..6 {
        let lane = kernel.assign_lane(session);
        spawn(on(&mut kernel, lane), session, 0);
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        kernel.begin_wave(WaveSpan::Picks(1));
        while let Some((lane, running)) = kernel.dispatch() {
            seen.push((lane.0, running.tag().session()));
            on(&mut kernel, lane).stop(running, Cycles(10), Outcome::Yielded);
        }
        kernel.end_wave(|_, _| ());
    }
    assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (2, 5)]);
}

#[test]
fn a_wave_end_aligns_clocks_with_idle() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    spawn(on(&mut kernel, A), 0, 0);
    kernel.begin_wave(WaveSpan::Cycles(Cycles(1_000)));
    while let Some((lane, running)) = kernel.dispatch() {
        on(&mut kernel, lane).stop(running, Cycles(700), Outcome::Yielded);
    }
    let latest = kernel.lane(A).unwrap().clock();
    kernel.end_wave(|_, _| ());
    assert_eq!(kernel.lane(B).unwrap().clock(), latest);
    assert_eq!(kernel.lane(B).unwrap().totals().idle, latest);
    check_all(&kernel);
}

#[test]
fn effects_cross_at_the_wave_end_in_canonical_order() {
    let mut kernel = kernel(3, ROUND_ROBIN);
    let waiting: Vec<CoroutineRef> = (0..4).map(|slot| spawn(on(&mut kernel, A), 0, slot)).collect();
    kernel.begin_wave(WaveSpan::Cycles(Cycles(100_000)));
    for _ in &waiting {
        slice(on(&mut kernel, A), 10, Outcome::Blocked(BlockReason::ChannelReceive));
    }
    for (lane, session) in [(B, 1), (C, 2)] {
        spawn(on(&mut kernel, lane), session, 0);
    }
    let wake = |slot: usize| Effect::Wake { target: waiting[slot], source: WakeSource::Channel };
    // Lane C runs before lane B here, as on a second worker: the order of application is B before C all the same.
    for (lane, targets) in [(C, [0, 1]), (B, [2, 3])] {
        let running = support::run(on(&mut kernel, lane));
        for target in targets {
            on(&mut kernel, lane).post(A, wake(target)).unwrap();
        }
        on(&mut kernel, lane).stop(running, Cycles(10), Outcome::Yielded);
    }
    on(&mut kernel, C).post(A, wake(0)).unwrap();
    on(&mut kernel, C).post(A, Effect::Publish(Spawn::new(Tag::new(0, 9)))).unwrap();
    assert_eq!(kernel.lane(A).unwrap().state(waiting[0]), Ok(State::Blocked { reason: BlockReason::ChannelReceive }), "not before the end");
    let inbox = SchedulerOperation::Inbox as usize;
    let before = kernel.lane(A).unwrap().totals().overhead[inbox];
    let mut seen = Vec::new();
    kernel.end_wave(|letter, applied| seen.push((letter.key.from.0, letter.key.sequence, applied)));
    let keys: Vec<_> = seen.iter().map(|(from, sequence, _)| (*from, *sequence)).collect();
    assert_eq!(keys, [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
    assert!(matches!(seen[4].2, Applied::Woken(Err(Refusal::NotWaiting { .. }))), "woken once already");
    assert!(matches!(seen[5].2, Applied::Published(Ok(_))));
    assert_eq!(kernel.lane(A).unwrap().totals().overhead[inbox] - before, Cycles(6 * 16));
    kernel.begin_wave(WaveSpan::Cycles(Cycles(100_000)));
    assert_eq!(support::order(on(&mut kernel, A), 5)[..4], [2, 3, 0, 1]);
    check_all(&kernel);
}

#[test]
fn an_outbox_is_bounded_and_an_inbox_refuses_disorder() {
    let mut outbox = Outbox::new(A);
    outbox.reserve(2).unwrap();
    assert_eq!(outbox.post(A, 0, 'x'), Err(Refusal::SameLane { lane: A }));
    assert_eq!(outbox.post(B, 3, 'a'), Ok(OrderKey { from: A, step: 3, sequence: 0 }));
    assert_eq!(outbox.post(B, 3, 'b'), Ok(OrderKey { from: A, step: 3, sequence: 1 }));
    assert_eq!(outbox.post(B, 4, 'c'), Err(Refusal::OutboxFull { capacity: 2 }));
    let letters: Vec<Letter<char>> = outbox.drain().collect();
    let mut inbox = Inbox::open();
    assert_eq!(inbox.accept(letters[1]), 'b');
    let disorder = std::panic::catch_unwind(move || inbox.accept(letters[0]));
    assert!(disorder.is_err(), "a planted disorder trips it");
}

#[test]
fn a_handoff_across_lanes_is_recorded_and_preferred() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    let (first, target) = (spawn(on(&mut kernel, B), 1, 0), spawn(on(&mut kernel, B), 1, 1));
    spawn(on(&mut kernel, A), 0, 0);
    kernel.begin_wave(WaveSpan::Cycles(Cycles(50_000)));
    let running = support::run(on(&mut kernel, B));
    on(&mut kernel, B).stop(running, Cycles(5), Outcome::Yielded);
    slice(on(&mut kernel, B), 5, Outcome::Blocked(BlockReason::ChannelReceive));
    let running = support::run(on(&mut kernel, A));
    let (from, step) = (running.tag(), kernel.lane(A).unwrap().step());
    on(&mut kernel, A).post(B, Effect::Handoff { from, target, source: WakeSource::Channel }).unwrap();
    on(&mut kernel, A).stop(running, Cycles(5), Outcome::Yielded);
    let mut records = Vec::new();
    kernel.end_wave(|_, applied| records.push(applied));
    let record = HandoffRecord { from, to: Tag::new(1, 1), from_lane: A, to_lane: B, step, reason: WakeSource::Channel };
    assert_eq!(records, [Applied::HandedOff { record: Ok(record), preferred: true }]);
    kernel.begin_wave(WaveSpan::Cycles(Cycles(50_000)));
    let running = support::run(on(&mut kernel, B));
    assert_eq!((running.reference(), running.bound()), (target, Cycles(10_000)), "before {first:?}, with a quantum of its own");
    on(&mut kernel, B).stop(running, Cycles(1), Outcome::Finished);
}

#[test]
fn a_session_moves_whole_with_everything_it_has() {
    for (name, policy) in policies() {
        let mut kernel = kernel(2, policy);
        let all: Vec<_> = (0..6).map(|slot| spawn(on(&mut kernel, A), 5, slot)).collect();
        spawn(on(&mut kernel, B), 6, 0);
        kernel.begin_wave(WaveSpan::Cycles(Cycles(1_000_000)));
        let ran: Vec<_> = [Outcome::Slept(Frame(4)), Outcome::Blocked(BlockReason::Join), Outcome::Finished]
            .into_iter()
            .map(|outcome| slice(on(&mut kernel, A), 100, outcome).0)
            .collect();
        let held = all.iter().copied().find(|one| !ran.contains(one)).unwrap();
        on(&mut kernel, A).hold(held, HoldReason::Operator).unwrap();
        kernel.end_wave(|_, _| ());
        let before: Vec<_> =
            all.iter().map(|&one| (kernel.lane(A).unwrap().tag(one).unwrap(), kernel.lane(A).unwrap().state(one).unwrap())).collect();
        let overhead = kernel.lane(B).unwrap().totals().overhead_total();
        let mut moved = Vec::new();
        assert_eq!(kernel.migrate(5, A, B, |tag, reference| moved.push((tag, reference))), Ok(6), "{name}");
        check_all(&kernel);
        assert_eq!(kernel.lane(A).unwrap().live(), 0, "{name}");
        assert_eq!(kernel.lane(B).unwrap().totals().overhead_total() - overhead, Cycles(6 * 120), "{name}");
        assert!(all.iter().all(|&one| kernel.lane(A).unwrap().state(one).is_err()), "{name}: old references are stale");
        for (tag, state) in before {
            let reference = moved.iter().find(|(moved, _)| *moved == tag).unwrap().1;
            assert_eq!(kernel.lane(B).unwrap().state(reference), Ok(state), "{name} {tag:?}");
            let ledger = kernel.lane(B).unwrap().ledger(reference).unwrap();
            assert_eq!((ledger.migrations, ledger.steals), (1, 0), "{name}");
        }
        let blocked = moved.iter().find(|(tag, _)| *tag == Tag::new(5, ran[1].slot)).unwrap().1;
        on(&mut kernel, B).wake(blocked, WakeSource::Join).unwrap();
        kernel.end_frame(|_, row: FrameRow| assert!(row.is_conserved(Cycles(1_000_000))));
        assert_eq!(kernel.begin_frame(Frame(4)), 1, "{name}: the sleeper slept on");
        check_all(&kernel);
        assert_eq!(kernel.migrate(5, A, B, |_, _| ()), Err(Refusal::NoSession { session: 5, lane: A }));
        assert_eq!(kernel.migrate(5, B, B, |_, _| ()), Err(Refusal::SameLane { lane: B }));
    }
}

#[test]
fn moving_keeps_the_order_of_arrivals() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    let all: Vec<_> = (0..5).map(|slot| spawn(on(&mut kernel, A), 1, slot)).collect();
    on(&mut kernel, A).begin_wave(Span::Until(Cycles::MAX));
    on(&mut kernel, A).hold(all[1], HoldReason::Operator).unwrap();
    assert_eq!(support::order(on(&mut kernel, A), 3), [0, 2, 3]);
    on(&mut kernel, A).release(all[1], HoldReason::Operator).unwrap();
    let mut moved = Vec::new();
    kernel.migrate(1, A, B, |tag, _| moved.push(tag.slot())).unwrap();
    assert_eq!(moved, [1, 4, 0, 2, 3]);
    on(&mut kernel, B).begin_wave(Span::Until(Cycles::MAX));
    let order: Vec<u32> = (0..5)
        .map(|_| {
            let running = support::run(on(&mut kernel, B));
            let slot = running.tag().slot();
            on(&mut kernel, B).stop(running, Cycles(1), Outcome::Yielded);
            slot
        })
        .collect();
    assert_eq!(order, [1, 4, 0, 2, 3]);
}

#[test]
fn nothing_moves_when_there_is_no_room() {
    let mut kernel = Kernel::new(2, support::settings(ROUND_ROBIN)).unwrap();
    on(&mut kernel, A).reserve(wavelock_kernel::Reservation { coroutines: 2_000, sessions: 1, effects: 0 }).unwrap();
    on(&mut kernel, B).reserve(wavelock_kernel::Reservation { coroutines: 1, sessions: 1, effects: 0 }).unwrap();
    for slot in 0..2_000 {
        spawn(on(&mut kernel, A), 0, slot);
    }
    let room = kernel.lane(B).unwrap().capacity();
    assert_eq!(kernel.migrate(0, A, B, |_, _| panic!("nothing moves")), Err(Refusal::NoRoom { need: 2_000, room }));
    assert_eq!(kernel.lane(A).unwrap().live(), 2_000);
    check_all(&kernel);
}

#[test]
fn a_lane_that_is_out_is_not_touched() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    let lane = kernel.take(A).unwrap();
    assert_eq!(kernel.lane(A).map(Lane::id), Err(Refusal::LaneOut { lane: A }));
    assert!(kernel.take(A).is_err());
    assert_eq!(kernel.migrate(0, A, B, |_, _| ()), Err(Refusal::LaneOut { lane: A }));
    kernel.put(lane);
    assert!(kernel.lane(A).is_ok());
    assert_eq!(kernel.lane(LaneId(9)).map(Lane::id), Err(Refusal::NoLane { lane: LaneId(9), lanes: 2 }));
    assert!(Kernel::new(0, support::settings(ROUND_ROBIN)).is_err());
}

// Steal.

#[test]
fn victims_are_probed_in_rotation_and_bounded() {
    let probed = |thief, lanes, round| steal_victims(LaneId(thief), lanes, round).map(|lane| lane.0).collect::<Vec<_>>();
    assert_eq!(probed(0, 1, 5), [0u16; 0]);
    assert_eq!(probed(0, 3, 0), [1, 2]);
    assert_eq!(probed(1, 4, 2), [3, 0, 2]);
    assert_eq!(probed(2, 16, 13), [15, 0, 1, 3]);
    for (thief, round) in (0..16).flat_map(|thief| (0..40).map(move |round| (thief, round))) {
        let victims = probed(thief, 16, round);
        assert!(victims.len() == 4 && !victims.contains(&thief));
    }
}

#[test]
fn a_steal_takes_a_whole_session_and_leaves_work_behind() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    for session in [3, 5] {
        (0..3).for_each(|slot| assert!(spawn(on(&mut kernel, A), session, slot).slot < 6));
    }
    assert_eq!(kernel.steal(A, |_| None, |_, _| ()), Ok(Steal::Busy));
    let mut moved = Vec::new();
    let steal = kernel.steal(B, |_| None, |tag, _| moved.push(tag)).unwrap();
    assert_eq!(steal, Steal::Won { session: 3, victim: A, coroutines: 3 });
    assert_eq!(moved, [Tag::new(3, 0), Tag::new(3, 1), Tag::new(3, 2)]);
    let (reference, _) = kernel.lane(B).unwrap().session(3).next().unwrap();
    assert_eq!(kernel.lane(B).unwrap().ledger(reference).unwrap().steals, 1);
    let overhead = kernel.lane(B).unwrap().totals().overhead;
    assert_eq!(overhead[SchedulerOperation::Steal as usize], Cycles(60));
    assert_eq!(overhead[SchedulerOperation::Migrate as usize], Cycles(360));
    check_all(&kernel);
}

#[test]
fn a_lone_session_and_the_current_one_are_not_stolen() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    (0..3).for_each(|slot| assert!(spawn(on(&mut kernel, A), 3, slot).slot < 3));
    assert_eq!(kernel.steal(B, |_| None, |_, _| ()), Ok(Steal::Nothing(None)));
    // A second session, but it only waits: taking session 3 would leave nothing to run.
    on(&mut kernel, A).begin_wave(Span::Until(Cycles::MAX));
    spawn(on(&mut kernel, A), 4, 0);
    (0..3).for_each(|_| assert!(matches!(slice(on(&mut kernel, A), 1, Outcome::Yielded), (_, _))));
    slice(on(&mut kernel, A), 1, Outcome::Blocked(BlockReason::Join));
    assert_eq!(kernel.steal(B, |_| None, |_, _| ()), Ok(Steal::Nothing(None)));
    // Now the current one is of session 3: session 5 can go, 3 cannot.
    assert_eq!(slice(on(&mut kernel, A), 1, Outcome::OutOfCycles).1, wavelock_kernel::Stopped::Kept);
    spawn(on(&mut kernel, A), 5, 0);
    assert_eq!(kernel.steal(B, |_| None, |_, _| ()), Ok(Steal::Won { session: 5, victim: A, coroutines: 1 }));
    check_all(&kernel);
}

#[test]
fn a_session_that_may_not_move_is_reported_when_it_waits_too_long() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    for session in [1, 2] {
        spawn(on(&mut kernel, A), session, 0);
    }
    let ban = |_| Some(MoveBan::Pinned);
    assert_eq!(kernel.steal(B, ban, |_, _| ()), Ok(Steal::Nothing(None)), "not yet too long");
    kernel.end_frame(|_, _| ());
    kernel.begin_frame(Frame(9));
    let Ok(Steal::Nothing(Some(stuck))) = kernel.steal(B, ban, |_, _| ()) else { panic!("it has waited nine frames") };
    assert_eq!((stuck.lane, stuck.ban, stuck.limit), (A, MoveBan::Pinned, Cycles(8_000_000)));
    assert!(stuck.waited > stuck.limit);
}

#[test]
fn steal_inspects_at_most_eight_sessions() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    on(&mut kernel, A).begin_wave(Span::Until(Cycles::MAX));
    for session in 0..12 {
        spawn(on(&mut kernel, A), session, 0);
    }
    // The first nine wait; the work is beyond the eight that round 0 inspects.
    for _ in 0..9 {
        slice(on(&mut kernel, A), 1, Outcome::Blocked(BlockReason::Join));
    }
    let mut asked = 0;
    let count = |asked: &mut u32| {
        *asked += 1;
        None
    };
    assert_eq!(kernel.steal(B, |_| count(&mut asked), |_, _| ()), Ok(Steal::Nothing(None)));
    assert_eq!(asked, 0);
    // A later round begins later in the table.
    (0..4).for_each(|_| kernel.end_wave(|_, _| ()));
    assert_eq!(kernel.steal(B, |_| None, |_, _| ()), Ok(Steal::Won { session: 9, victim: A, coroutines: 1 }));
}

// Stalls.

#[test]
fn a_stall_needs_everyone_to_wait() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    assert!(!kernel.is_stalled(), "nobody waits");
    let waiting = spawn(on(&mut kernel, A), 0, 0);
    let sleeper = spawn(on(&mut kernel, B), 1, 0);
    kernel.begin_wave(WaveSpan::Picks(1));
    slice(on(&mut kernel, A), 1, Outcome::Blocked(BlockReason::Join));
    slice(on(&mut kernel, B), 1, Outcome::Slept(Frame(2)));
    kernel.end_wave(|_, _| ());
    assert!(!kernel.is_stalled(), "one sleeps");
    assert_eq!(kernel.next_wake(), Some(Frame(2)));
    on(&mut kernel, B).cancel(sleeper).unwrap();
    assert!(kernel.is_stalled());
    on(&mut kernel, B).post(A, Effect::Wake { target: waiting, source: WakeSource::Join }).unwrap();
    assert!(!kernel.is_stalled(), "an effect is on its way");
    kernel.end_wave(|_, _| ());
    assert!(!kernel.is_stalled(), "one is ready");
}

/// The same run with lanes taken out and put back in another order, and lane by lane: equal lanes at the end.
#[test]
fn who_runs_a_lane_does_not_matter() {
    let run = |shuffled: bool| {
        let mut kernel = kernel(4, priority(PriorityRule::Aging));
        let mut references = Vec::new();
        for index in 0..40u32 {
            let lane = kernel.assign_lane(index % 10);
            let spawn = Spawn { priority: Priority(index as u8), ..Spawn::new(Tag::new(index % 10, index)) };
            references.push((lane, on(&mut kernel, lane).spawn(spawn).unwrap()));
        }
        for wave in 0..60u64 {
            kernel.begin_wave(WaveSpan::Cycles(Cycles(5_000)));
            let mut order: Vec<u16> = (0..4).collect();
            if shuffled {
                order.rotate_left((wave % 4) as usize);
                order.swap(0, 2);
            }
            for lane in order {
                let mut lane = kernel.take(LaneId(lane)).unwrap();
                let mut random = Random(wave * 4 + u64::from(lane.id().0));
                while let wavelock_kernel::Next::Run(running) = lane.dispatch() {
                    let used = Cycles(random.below(1_000));
                    let (to, target) = references[random.below(40) as usize];
                    let effect = Effect::Wake { target, source: WakeSource::Channel };
                    let _ = if to == lane.id() { lane.wake(target, WakeSource::Channel) } else { lane.post(to, effect).map(|_| ()) };
                    let blocks = random.below(3) > 0;
                    lane.stop(running, used, if blocks { Outcome::Blocked(BlockReason::Select) } else { Outcome::Yielded });
                }
                kernel.put(lane);
            }
            kernel.end_wave(|_, _| ());
            check_all(&kernel);
            if kernel.lane(A).unwrap().clock() >= kernel.lane(A).unwrap().frame_end() {
                kernel.end_frame(|_, _| ());
                let frame = kernel.lane(A).unwrap().frame();
                kernel.begin_frame(Frame(frame.0 + 1));
            }
        }
        (0..4).map(|lane| kernel.lane(LaneId(lane)).unwrap().export()).collect::<Vec<_>>()
    };
    let (canonical, shuffled) = (run(false), run(true));
    assert!(canonical.iter().any(|lane| lane.wakes[WakeSource::Channel as usize] > 10), "the run did cross lanes");
    assert_eq!(canonical, shuffled);
}

#[test]
fn a_single_coroutine_can_move_too() {
    let mut kernel = kernel(2, ROUND_ROBIN);
    let reference = spawn(on(&mut kernel, A), 0, 0);
    spawn(on(&mut kernel, A), 0, 1);
    kernel.lane(B).unwrap().room_for(0, 1).unwrap();
    let traveller = on(&mut kernel, A).depart(reference).unwrap();
    assert_eq!(kernel.lane(A).unwrap().live(), 1);
    let new = on(&mut kernel, B).receive(traveller, MoveKind::Assigned);
    assert_eq!(kernel.lane(B).unwrap().state(new), Ok(State::Ready));
    check_all(&kernel);
}
