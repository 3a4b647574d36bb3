//! `Lane::switch` equals `stop`, `reap` and `dispatch`: two lanes get the same random operations,
//! and only the second takes the fast path. Their exported states stay equal.

mod support;

use support::{Random, policies, settings};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, Weight};
use wavelock_kernel::{
    Began, BlockReason, Departure, FairSettings, HoldReason, Lane, LaneSettings, MoveKind, Next,
    Outcome, Policy, Reservation, Running, Span, Spawn, Tag, WakeSource,
};

/// An operation from outside while a slice is open. A refusal is the same on both lanes.
fn disturb(lane: &mut Lane, choice: u64, other: CoroutineRef, source: WakeSource) {
    match choice {
        0 => drop(lane.hold(other, HoldReason::Operator)),
        1 | 2 => drop(lane.release(other, HoldReason::Operator)),
        3 => drop(lane.set_priority(other, Priority(other.slot as u8 * 9))),
        4 => drop(lane.prefer(other)),
        5 => {
            let weight =
                Weight::new(1 + u16::from(other.slot.is_multiple_of(8))).expect("a weight");
            let spawn = Spawn { weight, ..Spawn::new(Tag::new(other.slot % 3, 100 + other.slot)) };
            let room = lane.reserve(Reservation { coroutines: 1, sessions: 1 });
            let _ = room.and_then(|()| lane.spawn(spawn));
        }
        50.. => drop(lane.wake(other, source)),
        _ => {}
    }
}

/// How a slice ends: mostly by a yield, else as `choice` says.
fn departure(lane: &Lane, choice: u64) -> Option<Departure> {
    Some(match choice {
        0 if lane.clock().0.is_multiple_of(2) => Departure::Block(BlockReason::Select),
        0 => Departure::Block(BlockReason::ChannelReceive),
        1 => Departure::Sleep(Frame(lane.frame().0 + 1)),
        2 => Departure::Sleep(lane.frame()),
        3 => Departure::Finish,
        4 => return None,
        _ => Departure::Yield,
    })
}

/// The open slice of a lane: by a token, or begun by the fast path.
enum Open {
    Token(Running),
    Began(Began),
}

impl Open {
    fn token(self, lane: &Lane) -> Running {
        match self {
            Self::Token(running) => running,
            Self::Began(began) => lane.token(began.bound),
        }
    }
}

/// Ends a slice and dispatches the next on the slow path.
fn slowly(lane: &mut Lane, running: Running, used: Cycles, end: Option<Departure>) -> Next {
    let reference = running.reference();
    let _ = lane.stop(running, used, end.map_or(Outcome::OutOfCycles, Departure::outcome));
    if end == Some(Departure::Finish) {
        lane.reap(reference).expect("it just ended");
    }
    lane.dispatch()
}

/// How many slices took the fast path, by departure (yield, alone, block, sleep, finish), and how
/// many did not.
type Taken = [u32; 6];

/// Runs both lanes through one random sequence of operations.
fn compare(policy: Policy, handoff: bool, measured: bool, seed: u64, taken: &mut Taken) {
    let settings = LaneSettings { frame_cycles: Cycles(20_000), handoff, ..settings(policy) };
    let mut random = Random(seed);
    let mut lanes = [Lane::new(LaneId(0), settings), Lane::new(LaneId(0), settings)];
    for lane in &mut lanes {
        lane.reserve(Reservation { coroutines: 400, sessions: 4 }).expect("memory");
        lane.set_measured(measured);
        for slot in 0..1 + seed as u32 % 9 {
            let latency = LatencyClass::ALL[slot as usize % LatencyClass::ALL.len()];
            let priority = Priority(slot as u8);
            let tag = Tag::new(slot % (1 + seed as u32 % 3), slot);
            let spawn = Spawn { priority, latency, ..Spawn::new(tag) };
            lane.spawn(spawn).expect("room");
        }
    }
    for wave in 0..40 {
        let span = match random.below(4) {
            0 => Span::Picks(1 + random.below(9) as u32),
            _ => Span::Until(lanes[0].clock() + Cycles(3_000)),
        };
        lanes.iter_mut().for_each(|lane| lane.begin_wave(span));
        let [mut one, first] = lanes.each_mut().map(Lane::dispatch);
        assert_eq!(one, first, "{policy:?}, seed {seed}, wave {wave}");
        let Next::Run(first) = first else { continue };
        let mut two = Open::Token(first);
        while let Next::Run(running) = one {
            let bound = running.bound();
            assert!(lanes.iter().all(|lane| bound <= lane.longest_slice()), "seed {seed}");
            let (choice, other) = (random.below(60), CoroutineRef::new(random.below(12) as u32, 0));
            let sources = [WakeSource::Channel, WakeSource::Channel, WakeSource::Join];
            let source = sources[random.below(3) as usize];
            lanes.iter_mut().for_each(|lane| disturb(lane, choice, other, source));
            let used = Cycles(random.below(200));
            let end = departure(&lanes[0], random.below(24));
            one = slowly(&mut lanes[0], running, used, end);

            let stopped = lanes[1].clock() + used;
            let was_alone = lanes[1].population().ready == 0;
            let (next, began) = match end.and_then(|end| lanes[1].switch(used, end)) {
                Some(began) => {
                    let kind = match end.expect("it was taken") {
                        Departure::Yield => usize::from(was_alone),
                        Departure::Block(_) => 2,
                        Departure::Sleep(_) => 3,
                        Departure::Finish => 4,
                    };
                    taken[kind] += 1;
                    assert_eq!(lanes[1].clock() - stopped, began.overhead, "seed {seed}");
                    ((began.tag, began.bound), Some(began))
                }
                None => {
                    taken[5] += 1;
                    let running = two.token(&lanes[1]);
                    assert_eq!(running.bound(), bound, "seed {seed}");
                    match slowly(&mut lanes[1], running, used, end) {
                        Next::Run(running) => {
                            two = Open::Token(running);
                            let Open::Token(running) = &two else { unreachable!() };
                            ((running.tag(), running.bound()), None)
                        }
                        next => {
                            assert_eq!(next, one, "{policy:?}, seed {seed}, wave {wave}");
                            break;
                        }
                    }
                }
            };
            let Next::Run(running) = &one else { panic!("only the second lane runs: seed {seed}") };
            assert_eq!(next, (running.tag(), running.bound()), "{policy:?}, seed {seed}");
            if let Some(began) = began {
                two = Open::Began(began);
                let token = lanes[1].token(began.bound);
                assert_eq!(
                    (token.reference(), token.bound_reason()),
                    (running.reference(), running.bound_reason()),
                    "{policy:?}, seed {seed}, wave {wave}"
                );
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
}

#[test]
fn a_switch_is_a_stop_and_a_dispatch() {
    for (name, policy) in policies() {
        for (handoff, measured) in [(false, false), (true, false), (false, true)] {
            let mut taken = [0; 6];
            (0..60).for_each(|seed| compare(policy, handoff, measured, seed, &mut taken));
            let is_fast = (matches!(name, "cooperative" | "round-robin")
                || name.starts_with("fair"))
                && !measured
                && !cfg!(feature = "plain");
            let [yields, alone, blocks, sleeps, ends, slow] = taken;
            assert!(slow > 150, "{name}: {taken:?}");
            assert_eq!(yields > 1_000, is_fast, "{name}: {taken:?}");
            for count in [alone, blocks, sleeps, ends] {
                assert_eq!(count > 15, is_fast, "{name}: {taken:?}");
            }
            assert!(is_fast || yields + alone + blocks + sleeps + ends == 0, "{name}: {taken:?}");
        }
    }
}

/// Two coroutines that wake each other and block, more often than a byte counts, for one reason and
/// then another; after each stage they move to another lane in the middle of a wait.
#[test]
fn waits_are_counted_over_overflows_and_moves() {
    let settings = LaneSettings {
        frame_cycles: Cycles(1_000_000_000),
        ..settings(Policy::RoundRobin { quantum: Cycles(5_000) })
    };
    let new = |id| {
        let mut lane = Lane::new(LaneId(id), settings);
        lane.reserve(Reservation { coroutines: 4, sessions: 2 }).expect("memory");
        // A coroutine of another session that is always ready.
        assert!(lane.spawn(Spawn::new(Tag::new(1, 0))).is_ok());
        lane
    };
    let mut lane = new(0);
    let mut names =
        [0, 1].map(|slot| lane.spawn(Spawn::new(Tag::new(0, slot))).expect("room for it"));
    let mut expected = [[0; BlockReason::COUNT]; 2];
    for (stage, waits) in [700, 3, 254, 255, 256].into_iter().enumerate() {
        let reason =
            if stage.is_multiple_of(2) { BlockReason::ChannelReceive } else { BlockReason::Select };
        lane.begin_wave(Span::Until(Cycles::MAX));
        let Next::Run(running) = lane.dispatch() else { panic!("one is ready") };
        let mut open = Open::Token(running);
        for _ in 0..3 * waits {
            let who = match &open {
                Open::Token(running) => running.tag(),
                Open::Began(began) => began.tag,
            };
            let mut end = Departure::Yield;
            if who.session() == 0 {
                let _ = lane.wake(names[1 - who.slot() as usize], WakeSource::Channel);
                expected[who.slot() as usize][reason as usize] += 1;
                end = Departure::Block(reason);
            }
            open = match lane.switch(Cycles(10), end) {
                Some(began) => Open::Began(began),
                None => {
                    let running = open.token(&lane);
                    let Next::Run(running) = slowly(&mut lane, running, Cycles(10), Some(end))
                    else {
                        panic!("one is always ready")
                    };
                    Open::Token(running)
                }
            };
        }
        let running = open.token(&lane);
        lane.stop(running, Cycles(1), Outcome::Yielded);
        let mut to = new(1);
        let each = |tag: Tag, reference| names[tag.slot() as usize] = reference;
        assert_eq!(lane.move_session(0, &mut to, MoveKind::Assigned, each), Ok(2));
        to.check().expect("the invariants hold");
        lane = to;
        for (name, expected) in names.iter().zip(expected) {
            assert_eq!(lane.ledger(*name).expect("it is live").blocks, expected, "stage {stage}");
        }
    }
}

/// The longest slice bounds every class of `Fair`: a batch counts a slice's cycles in 32 bits and
/// asks for it.
#[test]
fn the_longest_slice_covers_every_latency_class() {
    let fair = FairSettings::new(Cycles(1_000), Cycles(100), Cycles(1_000_000)).expect("settings");
    let settings = LaneSettings { frame_cycles: Cycles(1_000_000), ..settings(Policy::Fair(fair)) };
    for latency in LatencyClass::ALL {
        let mut lane = Lane::new(LaneId(0), settings);
        lane.reserve(Reservation { coroutines: 2, sessions: 1 }).expect("memory");
        for slot in 0..2 {
            lane.spawn(Spawn { latency, ..Spawn::new(Tag::new(0, slot)) }).expect("room");
        }
        lane.begin_wave(Span::Until(Cycles(1_000_000)));
        let longest = lane.longest_slice();
        for _ in 0..10 {
            let Next::Run(running) = lane.dispatch() else { panic!("two are ready") };
            assert!(running.bound() <= longest, "{latency:?}: {:?} > {longest:?}", running.bound());
            lane.stop(running, Cycles(10), Outcome::Yielded);
        }
    }
}
