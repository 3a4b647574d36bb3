//! The end of a slice and the next pick in one are the same as one after the other: two lanes, the
//! same random life, one of them passing.

mod support;

use support::{Random, policies, settings};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, Weight};
use wavelock_kernel::{
    Began, BlockReason, BoundReason, Departure, HoldReason, Lane, LaneSettings, Next, Outcome,
    Policy, Reservation, Running, Span, Spawn, State, Tag, WakeSource,
};

/// Something that happens to a lane while a coroutine runs. What is refused is refused on both
/// lanes.
fn disturb(lane: &mut Lane, choice: u64, other: CoroutineRef) {
    match choice {
        0 => drop(lane.wake(other, WakeSource::Channel)),
        1 => drop(lane.hold(other, HoldReason::Operator)),
        2 | 3 => drop(lane.release(other, HoldReason::Operator)),
        4 => drop(lane.set_priority(other, Priority(other.slot as u8 * 9))),
        5 => drop(lane.prefer(other)),
        _ => {}
    }
}

/// What wakes: mostly what ends the waits here.
const SOURCES: [WakeSource; 4] =
    [WakeSource::Channel, WakeSource::Channel, WakeSource::Join, WakeSource::SessionEnd];

/// A wake, in the short way on the second lane; whether that was taken.
fn wake([one, two]: &mut [Lane; 2], other: CoroutineRef, source: WakeSource) -> bool {
    let expected = one.wake(other, source);
    let before = two.left_in_slice();
    // The shorter way for a channel's receivers, half of the time.
    let receives = source == WakeSource::Channel && other.slot.is_multiple_of(2);
    let sooner =
        if receives { two.receivers().and_then(|receivers| receivers.wake(other)) } else { None };
    match sooner.or_else(|| two.wake_in_order(other, source)) {
        Some(sooner) => {
            assert_eq!((expected, before - two.left_in_slice()), (Ok(()), sooner));
            true
        }
        None => {
            assert_eq!(two.wake(other, source), expected);
            false
        }
    }
}

/// A spawn, in the short way on the second lane; whether that was taken.
fn spawn([one, two]: &mut [Lane; 2], spawn: Spawn) -> bool {
    let reservation = Reservation { coroutines: 1, sessions: 1 };
    let expected = one.reserve(reservation).and_then(|()| one.spawn(spawn));
    match two.spawn_in_order(&spawn) {
        Some(reference) => {
            assert_eq!(expected, Ok(reference));
            true
        }
        None => {
            assert_eq!(two.reserve(reservation).and_then(|()| two.spawn(spawn)), expected);
            false
        }
    }
}

/// What is spawned: mostly neutral, of a session that the lane has already or not.
fn another(random: &mut Random, slot: u32) -> Spawn {
    let weight =
        if random.below(8) == 0 { Weight::new(2).expect("a weight") } else { Weight::NEUTRAL };
    Spawn {
        priority: Priority(slot as u8),
        weight,
        ..Spawn::new(Tag::new(random.below(3) as u32, 100 + slot))
    }
}

/// What a slice that does not yield ends with.
fn outcome(lane: &Lane, choice: u64) -> Outcome {
    match choice {
        0 => Outcome::Blocked(if lane.clock().0.is_multiple_of(2) {
            BlockReason::Select
        } else {
            BlockReason::ChannelReceive
        }),
        1 => Outcome::Slept(Frame(lane.frame().0 + 1)),
        2 => Outcome::Finished,
        _ => Outcome::OutOfCycles,
    }
}

/// What a lane does next, but for what only the first look at a slice says: whether it was picked
/// and switched to.
fn seen(next: &Next) -> Result<(CoroutineRef, Tag, Cycles, BoundReason), &Next> {
    match next {
        Next::Run(running) => {
            Ok((running.reference(), running.tag(), running.bound(), running.bound_reason()))
        }
        _ => Err(next),
    }
}

/// What the second lane does next, or the slice that it has begun in a short way.
enum Second {
    Next(Next),
    Began(Began),
}

impl Second {
    /// The token of the slice that is open.
    fn token(self, lane: &mut Lane) -> Option<Running> {
        match self {
            Self::Next(Next::Run(running)) => Some(running),
            Self::Next(_) => None,
            Self::Began(began) => {
                let token = lane.token(began.bound);
                assert_eq!((token.tag(), token.bound()), (began.tag, began.bound));
                Some(token)
            }
        }
    }

    /// The same as on the first lane, as far as it is seen without a token.
    fn is_like(&self, one: &Next) -> bool {
        match (self, one) {
            (Self::Next(next), one) => seen(next) == seen(one),
            (Self::Began(began), Next::Run(running)) => {
                (began.tag, began.bound) == (running.tag(), running.bound())
            }
            _ => false,
        }
    }

    /// A slice that a short way began, and what it told of it: nothing, if it is as the slice
    /// before, which has no token.
    fn begun(&self, tag: Option<Tag>, told: Option<(Cycles, Cycles)>) -> Option<Began> {
        assert!(tag.is_some() || told.is_none(), "it is told when it is certain");
        match (tag, told, self) {
            (None, ..) => None,
            (Some(tag), Some((bound, overhead)), _) => Some(Began { tag, bound, overhead }),
            (Some(tag), None, Self::Began(before)) => Some(Began { tag, ..*before }),
            (Some(_), None, Self::Next(_)) => {
                panic!("a slice with a token, and nothing is told of the next")
            }
        }
    }
}

/// The short way of one that waits for this reason, or has finished, and what begins.
fn leave_shortly(
    lane: &mut Lane,
    used: Cycles,
    reason: Option<BlockReason>,
    before: &Second,
) -> Option<Began> {
    let mut told = None;
    let begins = |bound, overhead| told = Some((bound, overhead));
    let tag = match reason {
        Some(reason) => lane.leave_waiting(used, reason, begins),
        None => lane.leave_finished(used, begins),
    };
    before.begun(tag, told)
}

/// Runs one life of both lanes; gives how many yields were passed, how many were not, how many
/// waits and ends were passed, how many were woken in order, how many spawned, how many waits were
/// passed the shorter way and how many ends, and how many yields it was known of that the quantum
/// is whole, or that it is not.
// Long: one life of two lanes, with every way from a slice to the next.
fn compare(policy: Policy, handoff: bool, measured: bool, seed: u64) -> [u32; 10] {
    let settings = LaneSettings { frame_cycles: Cycles(20_000), handoff, ..settings(policy) };
    let mut random = Random(seed);
    let mut lanes = [Lane::new(LaneId(0), settings), Lane::new(LaneId(0), settings)];
    for lane in &mut lanes {
        lane.reserve(Reservation { coroutines: 400, sessions: 4 }).expect("memory");
        lane.set_measured(measured);
        for slot in 0..1 + seed as u32 % 9 {
            lane.spawn(Spawn { priority: Priority(slot as u8), ..Spawn::new(Tag::new(0, slot)) })
                .expect("room");
        }
    }
    let (
        mut passed,
        mut alone,
        mut not,
        mut left,
        mut woken,
        mut spawned,
        mut waiting,
        mut finished,
    ) = (0, 0, 0, 0, 0, 0, 0, 0);
    let (mut whole, mut rest) = (0, 0);
    for wave in 0..40 {
        let span = if random.below(4) == 0 {
            Span::Picks(1 + random.below(9) as u32)
        } else {
            Span::Until(lanes[0].clock() + Cycles(3_000))
        };
        lanes.iter_mut().for_each(|lane| lane.begin_wave(span));
        let [mut one, first] = lanes.each_mut().map(Lane::dispatch);
        let mut two = Second::Next(first);
        loop {
            assert!(two.is_like(&one), "{policy:?}, seed {seed}, wave {wave}");
            // A token may be asked for at any time; most often it is not.
            if let Second::Began(began) = two
                && random.below(8) == 0
            {
                let token = Second::Began(began).token(&mut lanes[1]).expect("a slice is open");
                two = Second::Next(Next::Run(token));
                assert!(two.is_like(&one), "{policy:?}, seed {seed}, wave {wave}");
            }
            assert_eq!(
                (lanes[0].clock(), lanes[0].ready_digest()),
                (lanes[1].clock(), lanes[1].ready_digest()),
                "{policy:?}, seed {seed}"
            );
            let Next::Run(first) = one else { break };
            assert!(
                lanes.iter().all(|lane| first.bound() <= lane.longest_slice()),
                "{policy:?}, seed {seed}"
            );
            let (choice, other) = (random.below(60), CoroutineRef::new(random.below(12) as u32, 0));
            if choice >= 50 {
                woken += u32::from(wake(&mut lanes, other, SOURCES[random.below(4) as usize]));
            } else if choice == 6 {
                let another = another(&mut random, other.slot);
                spawned += u32::from(spawn(&mut lanes, another));
            } else {
                lanes.iter_mut().for_each(|lane| disturb(lane, choice, other));
            }
            let used = Cycles(random.below(200));
            let stopped = lanes[1].clock() + used;
            if random.below(8) != 0 {
                lanes[0].stop(first, used, Outcome::Yielded);
                one = lanes[0].dispatch();
                let mut told = None;
                let tag = lanes[1].pass(used, |bound, overhead| told = Some((bound, overhead)));
                (whole, rest) = (
                    whole + u32::from(tag.is_some() && told.is_none()),
                    rest + u32::from(told.is_some()),
                );
                let other = two.begun(tag, told).or_else(|| lanes[1].pass_at_length(used));
                if let Some(began) = other.or_else(|| lanes[1].pass_to_itself(used)) {
                    assert_eq!(lanes[1].clock() - stopped, began.overhead);
                    alone += u32::from(other.is_none());
                    passed += 1;
                    two = Second::Began(began);
                } else {
                    not += 1;
                    let second = two.token(&mut lanes[1]).expect("a slice is open");
                    lanes[1].stop(second, used, Outcome::Yielded);
                    two = Second::Next(lanes[1].dispatch());
                }
            } else {
                let end = outcome(&lanes[0], random.below(12));
                let reference = first.reference();
                lanes[0].stop(first, used, end);
                if end == Outcome::Finished {
                    let _ = lanes[0].reap(reference).expect("it just ended");
                }
                one = lanes[0].dispatch();
                // The shorter way for those that wait, half of the time.
                let short = match end {
                    Outcome::Blocked(reason) if random.below(2) == 0 => {
                        leave_shortly(&mut lanes[1], used, Some(reason), &two)
                    }
                    Outcome::Finished => leave_shortly(&mut lanes[1], used, None, &two),
                    _ => None,
                };
                if short.is_some() {
                    *if end == Outcome::Finished { &mut finished } else { &mut waiting } += 1;
                }
                let departure = match end {
                    Outcome::Blocked(reason) => Departure::Block(reason),
                    Outcome::Slept(frame) => Departure::Sleep(frame),
                    _ => Departure::Finish,
                };
                let is_departure = departure.outcome() == end;
                let next = || is_departure.then(|| lanes[1].switch(used, departure)).flatten();
                if let Some(began) = short.or_else(next) {
                    assert_eq!(lanes[1].clock() - stopped, began.overhead);
                    left += 1;
                    two = Second::Began(began);
                } else {
                    let second = two.token(&mut lanes[1]).expect("a slice is open");
                    lanes[1].stop(second, used, end);
                    if end == Outcome::Finished {
                        let _ = lanes[1].reap(reference).expect("it just ended");
                    }
                    two = Second::Next(lanes[1].dispatch());
                }
            }
            if random.below(16) == 0 {
                lanes[1].check().expect("the invariants hold");
            }
        }
        assert_eq!(lanes[0].export(), lanes[1].export(), "{policy:?}, seed {seed}, wave {wave}");
        for lane in &mut lanes {
            lane.check().expect("the invariants hold");
            if lane.clock() >= lane.frame_end() || wave % 7 == 6 {
                let _ = lane.end_frame();
                lane.begin_frame(Frame(lane.frame().0 + 1));
            }
        }
    }
    [passed, alone, not, left, woken, spawned, waiting, finished, whole, rest]
}

#[test]
fn passing_is_a_stop_and_a_pick() {
    for (name, policy) in policies() {
        for (handoff, measured) in [(false, false), (true, false), (false, true)] {
            let mut counts = [0; 10];
            for seed in 0..60 {
                let more = compare(policy, handoff, measured, seed);
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            }
            let [passed, alone, not, left, woken, spawned, waiting, finished, whole, rest] = counts;
            let usual = matches!(name, "cooperative" | "round-robin") && !measured;
            assert_eq!(passed > 1_000, usual, "{name}: {passed} passed, {not} not");
            assert_eq!(
                whole > 150,
                usual && name != "cooperative",
                "{name}: {whole} passed with a whole quantum"
            );
            assert_eq!(rest > 150, usual, "{name}: {rest} passed with the rest of a wave");
            assert_eq!(alone > 25, usual, "{name}: {alone} passed to themselves");
            assert_eq!(left > 25, usual, "{name}: {left} waits and ends passed");
            assert_eq!(waiting > 5, usual, "{name}: {waiting} waits passed the shorter way");
            assert_eq!(finished > 20, usual, "{name}: {finished} ends passed");
            assert_eq!(woken > 50, usual, "{name}: {woken} woken in order");
            assert_eq!(spawned > 50, usual, "{name}: {spawned} spawned in order");
            assert!(not > 150, "{name}: {passed} passed, {not} not");
        }
    }
}

/// The sleepers of a frame wake together where picks are simple; one by one where somebody watches
/// them. The lanes are the same after it.
#[test]
fn waking_together_is_waking_one_by_one() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let settings = LaneSettings {
            frame_cycles: Cycles(1_000_000),
            ..settings(Policy::RoundRobin { quantum: Cycles(5_000) })
        };
        let mut lanes = [Lane::new(LaneId(0), settings), Lane::new(LaneId(0), settings)];
        lanes[1].set_measured(true);
        for lane in &mut lanes {
            lane.reserve(Reservation { coroutines: 300, sessions: 2 }).expect("memory");
            (0..300)
                .for_each(|slot| assert!(lane.spawn(Spawn::new(Tag::new(slot % 2, slot))).is_ok()));
        }
        for frame in 1..40 {
            lanes.iter_mut().for_each(|lane| lane.begin_wave(Span::Until(Cycles(u64::MAX))));
            while let [Next::Run(one), Next::Run(two)] = lanes.each_mut().map(Lane::dispatch) {
                assert_eq!(one, two, "seed {seed}, frame {frame}");
                // Some are held in their sleep, some taken out of it, some sleep until a frame
                // beyond the near ones, some go on.
                let other = CoroutineRef::new(random.below(300) as u32, 0);
                let (used, until) = (
                    Cycles(random.below(50)),
                    Frame(frame - 1 + [1, 2, 9, 3_000][random.below(4) as usize]),
                );
                let (choice, end) = (
                    random.below(40),
                    if random.below(9) == 0 { Outcome::OutOfCycles } else { Outcome::Slept(until) },
                );
                for lane in &mut lanes {
                    match choice {
                        0 => drop(lane.hold(other, HoldReason::Operator)),
                        1 | 2 => drop(lane.release(other, HoldReason::Operator)),
                        3 => drop(lane.cancel(other)),
                        _ => {}
                    }
                }
                lanes[0].stop(one, used, end);
                lanes[1].stop(two, used, end);
            }
            for lane in &mut lanes {
                let _ = lane.end_frame();
            }
            let [woken, expected] = lanes.each_mut().map(|lane| lane.begin_frame(Frame(frame)));
            assert_eq!(woken, expected, "seed {seed}, frame {frame}");
            lanes.iter().for_each(|lane| lane.check().expect("the invariants hold"));
            assert_eq!(lanes[0].export(), lanes[1].export(), "seed {seed}, frame {frame}");
        }
    }
}

/// Two coroutines that wake each other and wait, the second lane in the short ways: more often than
/// a byte counts, for one reason and then another, on one lane and, after a move in the middle of a
/// wait, on the next.
// Long: one life of two lanes and their successors.
#[test]
fn waits_are_counted_however_many_and_wherever() {
    let settings = LaneSettings {
        frame_cycles: Cycles(1_000_000_000),
        handoff: false,
        ..settings(Policy::RoundRobin { quantum: Cycles(5_000) })
    };
    let new = |id| {
        let mut lane = Lane::new(LaneId(id), settings);
        lane.reserve(Reservation { coroutines: 4, sessions: 2 }).expect("memory");
        lane
    };
    let (mut lanes, mut short) = ([new(0), new(0)], 0);
    for lane in &mut lanes {
        (0..2).for_each(|slot| assert!(lane.spawn(Spawn::new(Tag::new(0, slot))).is_ok()));
        // Somebody of another session, so that slots are other ones after the move.
        assert!(lane.spawn(Spawn::new(Tag::new(1, 0))).is_ok());
    }
    let mut names = [CoroutineRef::new(0, 0), CoroutineRef::new(1, 0)];
    for (stage, waits) in [700, 3, 254, 255, 256].into_iter().enumerate() {
        let reason =
            if stage.is_multiple_of(2) { BlockReason::ChannelReceive } else { BlockReason::Select };
        lanes.iter_mut().for_each(|lane| lane.begin_wave(Span::Until(Cycles::MAX)));
        let [Next::Run(mut one), second] = lanes.each_mut().map(Lane::dispatch) else {
            panic!("somebody is ready")
        };
        let mut two = Second::Next(second);
        for turn in 0..3 * waits {
            let who = one.tag();
            if who.session() == 1 {
                // The third yields, so that there is always somebody.
                lanes[0].stop(one, Cycles(10), Outcome::Yielded);
                let Next::Run(next) = lanes[0].dispatch() else { panic!("the third") };
                let mut told = None;
                let tag =
                    lanes[1].pass(Cycles(10), |bound, overhead| told = Some((bound, overhead)));
                let began = two.begun(tag, told).or_else(|| lanes[1].pass_at_length(Cycles(10)));
                let began =
                    began.or_else(|| lanes[1].pass_to_itself(Cycles(10))).expect("the usual case");
                assert_eq!((began.tag, began.bound), (next.tag(), next.bound()));
                (one, two) = (next, Second::Began(began));
                continue;
            }
            let other = names[1 - who.slot() as usize];
            let receives =
                lanes[0].state(other) == Ok(State::Blocked { reason: BlockReason::ChannelReceive });
            match lanes[0].wake(other, WakeSource::Channel) {
                Ok(()) => {
                    let sooner = lanes[1].receivers().and_then(|receivers| receivers.wake(other));
                    assert_eq!(sooner.is_some(), receives, "stage {stage}, turn {turn}");
                    assert_eq!(
                        sooner.or_else(|| lanes[1].wake_in_order(other, WakeSource::Channel)),
                        Some(Cycles(0))
                    );
                }
                refused => assert_eq!(lanes[1].wake(other, WakeSource::Channel), refused),
            }
            let stopped = lanes[1].clock() + Cycles(10);
            lanes[0].stop(one, Cycles(10), Outcome::Blocked(reason));
            let Next::Run(next) = lanes[0].dispatch() else {
                panic!("the third, if not the other")
            };
            let began = leave_shortly(&mut lanes[1], Cycles(10), Some(reason), &two);
            short += u32::from(began.is_some());
            let began = began
                .or_else(|| lanes[1].leave(Cycles(10), Outcome::Blocked(reason)))
                .expect("the usual case");
            assert_eq!(
                (began.tag, began.bound, lanes[1].clock() - stopped),
                (next.tag(), next.bound(), began.overhead)
            );
            (one, two) = (next, Second::Began(began));
            assert_eq!(lanes[0].ready_digest(), lanes[1].ready_digest());
        }
        let second = two.token(&mut lanes[1]).expect("a slice is open");
        lanes[0].stop(one, Cycles(1), Outcome::Yielded);
        lanes[1].stop(second, Cycles(1), Outcome::Yielded);
        lanes.iter().for_each(|lane| lane.check().expect("the invariants hold"));
        assert_eq!(lanes[0].export(), lanes[1].export(), "stage {stage}");
        // One of the two waits; both go to a lane where somebody has their slots.
        let mut moved = [new(1), new(1)];
        for (from, to) in lanes.iter_mut().zip(&mut moved) {
            assert!(to.spawn(Spawn::new(Tag::new(1, 0))).is_ok());
            let each = |tag: Tag, reference| names[tag.slot() as usize] = reference;
            assert_eq!(from.move_session(0, to, wavelock_kernel::MoveKind::Assigned, each), Ok(2));
            to.check().expect("the invariants hold");
        }
        assert_eq!(moved[0].export(), moved[1].export());
        let blocks = moved[0].ledger(names[0]).expect("it is there").blocks;
        assert!(blocks[reason as usize] > waits / 3, "stage {stage}: {blocks:?}");
        lanes = moved;
    }
    assert!(short > 900, "{short} in the short way");
}
