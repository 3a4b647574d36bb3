//! What `fair` among sessions promises (docs/fair.md), as properties of lanes under adversarial
//! load: whatever a session spawns and however its coroutines behave, it gets its part and no more.
//!
//! A load is a script per coroutine (run to the bound, yield, sleep, call another). Fluid shares
//! are computed in floating point: they are what the lane is measured against, never part of it.

mod support;

use support::Random;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, LatencyClass, SCHEDULER_COSTS_V1, Weight};
use wavelock_kernel::{
    BlockReason, FairSettings, Lane, LaneSettings, MoveKind, Next, Outcome, Policy, Reservation,
    Share, Sharing, Span, Spawn, Tag, WakeSource,
};

const BASE: u64 = 10_000;
const FRAME: u64 = 1_000_000;
/// What a slice can use beyond its bound here: a gap, its pick and switch, and a few wakes.
const GAP: u64 = 500;

fn share(weight: u16, class: LatencyClass) -> Share {
    Share { weight: Weight::new(weight).expect("not zero"), class }
}

fn normal(weight: u16) -> Share {
    share(weight, LatencyClass::Normal)
}

/// How a coroutine behaves.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Habit {
    /// Runs to its bound, and up to a gap beyond it.
    Hog,
    /// Runs `n` cycles and yields.
    Yields(u64),
    /// Runs `n` cycles and sleeps until the next frame.
    Naps(u64),
    /// Runs `n` cycles, wakes the next coroutine of its session, and blocks.
    Calls(u64),
    /// The same with the next coroutine of another session that has this habit.
    CallsOther(u64),
}

struct Load {
    lane: Lane,
    habits: Vec<Habit>,
    coroutines: Vec<CoroutineRef>,
    sessions: Vec<u32>,
    /// Lane time of each session: cycles, picks, switches and wakes of its slices.
    service: Vec<u64>,
    numbers: Random,
}

impl Load {
    fn new(sharing: Sharing, sessions: &[(Share, &[Habit])]) -> Self {
        let settings = FairSettings::new(Cycles(BASE), Cycles(1_000), Cycles(FRAME));
        let policy = Policy::Fair(settings.expect("good settings").shared_by(sharing));
        let settings = LaneSettings {
            policy,
            frame_cycles: Cycles(FRAME),
            costs: SCHEDULER_COSTS_V1,
            handoff: true,
        };
        let mut lane = Lane::new(LaneId(0), settings);
        let coroutines = sessions.iter().map(|(_, habits)| habits.len() as u32).sum();
        let reservation = Reservation { coroutines, sessions: sessions.len() as u32 };
        lane.reserve(reservation).expect("memory");
        let service = vec![0; sessions.len()];
        let numbers = Random::new(7);
        let (habits, coroutines, of) = (Vec::new(), Vec::new(), Vec::new());
        let mut load = Self { lane, habits, coroutines, sessions: of, service, numbers };
        for (session, (share, habits)) in (0u32..).zip(sessions) {
            for &habit in *habits {
                load.spawn(session, *share, habit);
            }
        }
        load.lane.begin_wave(Span::Until(Cycles(100_000)));
        load
    }

    fn spawn(&mut self, session: u32, share: Share, habit: Habit) {
        let tag = Tag::new(session, self.habits.len() as u32);
        let reference = self.lane.spawn(Spawn { session: share, ..Spawn::new(tag) }).expect("room");
        self.habits.push(habit);
        self.coroutines.push(reference);
        self.sessions.push(session);
    }

    /// The coroutine that one calls: the next of its session, or of another with its habit.
    fn called(&self, coroutine: usize) -> usize {
        let count = self.habits.len();
        let mut others = (1..=count).map(|step| (coroutine + step) % count);
        let is_own = |at: usize| self.sessions[at] == self.sessions[coroutine];
        let found = match self.habits[coroutine] {
            habit @ Habit::CallsOther(_) => {
                others.find(|&at| !is_own(at) && self.habits[at] == habit)
            }
            _ => others.find(|&at| is_own(at)),
        };
        found.expect("there is one to call")
    }

    /// One slice; waves and frames pass when they are over.
    fn step(&mut self) {
        let before = self.lane.clock();
        let running = match self.lane.dispatch() {
            Next::Run(running) => running,
            Next::Idle => {
                let next = self.lane.next_wake().expect("somebody sleeps");
                return self.next_frame(next);
            }
            Next::Over => {
                // What a pick cost is charged to the one that was picked.
                if let Some(current) = self.lane.current() {
                    let at = self.coroutines.iter().position(|one| *one == current);
                    let session = self.sessions[at.expect("known")] as usize;
                    self.service[session] += (self.lane.clock() - before).0;
                }
                if self.lane.clock() >= self.lane.frame_end() {
                    return self.next_frame(Frame(self.lane.frame().0 + 1));
                }
                let end = self.lane.clock() + Cycles(100_000);
                return self.lane.begin_wave(Span::Until(end));
            }
        };
        let coroutine = running.tag().slot() as usize;
        let bound = running.bound().0;
        let (used, outcome) = match self.habits[coroutine] {
            Habit::Hog => (bound + self.numbers.below(GAP), Outcome::OutOfCycles),
            Habit::Yields(cycles) if cycles < bound => (cycles, Outcome::Yielded),
            Habit::Naps(cycles) if cycles < bound => {
                (cycles, Outcome::Slept(Frame(self.lane.frame().0 + 1)))
            }
            Habit::Calls(cycles) | Habit::CallsOther(cycles) if cycles < bound => {
                let called = self.coroutines[self.called(coroutine)];
                if self.lane.wake(called, WakeSource::Channel).is_ok() {
                    let _ = self.lane.prefer(called);
                    (cycles, Outcome::Blocked(BlockReason::ChannelReceive))
                } else {
                    (cycles, Outcome::Yielded)
                }
            }
            _ => (bound, Outcome::OutOfCycles),
        };
        let _ = self.lane.stop(running, Cycles(used), outcome);
        let session = self.sessions[coroutine] as usize;
        self.service[session] += (self.lane.clock() - before).0;
    }

    fn next_frame(&mut self, frame: Frame) {
        let _ = self.lane.end_frame();
        let _ = self.lane.begin_frame(frame);
        let end = self.lane.clock() + Cycles(100_000);
        self.lane.begin_wave(Span::Until(end));
    }

    fn run_until(&mut self, clock: u64) {
        while self.lane.clock() < Cycles(clock) {
            self.step();
        }
        assert_eq!(self.lane.check(), Ok(()));
    }

    /// Parts per thousand of what the sessions got in all.
    fn per_mille(&self) -> Vec<u64> {
        let total: u64 = self.service.iter().sum();
        self.service.iter().map(|one| (one * 1_000 + total / 2) / total).collect()
    }
}

#[test]
fn a_session_with_99_coroutines_gets_no_more_than_one_with_1() {
    let hogs = [Habit::Hog; 99];
    let sessions = [(normal(1_024), &hogs[..1]), (normal(1_024), &hogs[..])];
    let mut load = Load::new(Sharing::Session, &sessions);
    load.run_until(40_000_000);
    assert_eq!(load.per_mille(), [500, 500]);
    let mut flat = Load::new(Sharing::Coroutine, &sessions);
    flat.run_until(40_000_000);
    assert_eq!(flat.per_mille(), [10, 990], "which is what the flat form is for");
}

#[test]
fn shares_follow_the_weights_of_sessions_whatever_they_do() {
    let habits: [&[Habit]; 6] = [
        &[Habit::Hog],
        &[Habit::Hog; 40],
        &[Habit::Yields(30), Habit::Yields(30), Habit::Yields(30)],
        &[Habit::Calls(40), Habit::Calls(40)],
        &[Habit::Hog, Habit::Naps(200), Habit::Yields(5)],
        &[Habit::Calls(900), Habit::Hog, Habit::Naps(10)],
    ];
    // Every pair, at three ratios: both always have something ready, so shares are exact in the
    // limit, whoever splits its time into slices of a few cycles.
    for (one, other) in (0..6).flat_map(|one| (0..6).map(move |other| (one, other))) {
        for (weights, expected) in [([1_024, 1_024], 500), ([1_024, 3_072], 250), ([9, 1], 900)] {
            let sessions = [(normal(weights[0]), habits[one]), (normal(weights[1]), habits[other])];
            let mut load = Load::new(Sharing::Session, &sessions);
            load.run_until(8_000_000);
            let found = load.per_mille()[0];
            // A slice of 8 million cycles is 1.25 in a thousand; each level may owe one.
            assert!(found.abs_diff(expected) <= 6, "{one} against {other}, {weights:?}: {found}");
        }
    }
}

#[test]
fn many_sessions_of_unequal_size_share_as_their_weights() {
    let mut numbers = Random::new(3);
    let hogs = [Habit::Hog; 64];
    let sizes: Vec<usize> = (0..60).map(|_| 1 + numbers.below(64) as usize).collect();
    let weights: Vec<u16> = (0..60).map(|_| 200 + numbers.below(4_000) as u16).collect();
    let sessions: Vec<_> = (0..60).map(|at| (normal(weights[at]), &hogs[..sizes[at]])).collect();
    let mut load = Load::new(Sharing::Session, &sessions);
    load.run_until(60 * 4_000_000);
    let total: f64 = load.service.iter().map(|&one| one as f64).sum();
    let weight: f64 = weights.iter().map(|&one| f64::from(one)).sum();
    for (at, &service) in load.service.iter().enumerate() {
        let fluid = total * f64::from(weights[at]) / weight;
        let error = service as f64 - fluid;
        assert!(error.abs() <= (BASE + 2 * GAP) as f64, "session {at}: {error} cycles");
    }
}

/// The bound on lag, at every step, on both levels, while weights and classes change and
/// coroutines nap, call and yield.
#[test]
fn lag_stays_bounded_on_both_levels_while_everything_changes() {
    let habits = [
        Habit::Hog,
        Habit::Yields(70),
        Habit::Naps(4_000),
        Habit::Calls(300),
        Habit::Calls(2_000),
        Habit::Hog,
    ];
    let sessions: Vec<_> = (1..=6)
        .map(|count| (share(1_024, LatencyClass::ALL[count % 5]), &habits[..count]))
        .collect();
    let mut load = Load::new(Sharing::Session, &sessions);
    let mut changes = 0;
    let mut worst = 0.0f64;
    for step in 0..60_000 {
        load.step();
        if step % 50 == 0 {
            let weight = 1 << load.numbers.below(15);
            let class = LatencyClass::ALL[load.numbers.below(5) as usize];
            let session = load.numbers.below(6) as u32;
            let coroutine = load.numbers.below(load.coroutines.len() as u64) as usize;
            if step % 100 == 0 {
                load.lane.set_session_share(session, share(weight, class)).expect("it is here");
            } else {
                let reference = load.coroutines[coroutine];
                load.lane.set_share(reference, share(weight, class)).expect("it lives");
            }
            changes += 1;
        }
        let cycles = |lag: i64, share: Share| {
            lag as f64 * f64::from(share.weight.get()) / f64::from(1u32 << 20)
        };
        let state = load.lane.export().fair_sessions.filter(|_| step % 7 == 0);
        for session in state.iter().flat_map(|(_, sessions)| sessions) {
            let number = session.entity.slot;
            let lag = load.lane.session_lag(number).expect("it is here");
            worst = worst.max(cycles(lag, session.entity.share).abs());
        }
    }
    // The largest slice is 16 base slices.
    let bound = (16 * BASE + 2 * GAP) as f64;
    assert!(worst < bound, "{worst}");
    assert!(changes == 1_200 && worst > BASE as f64 / 2.0);
}

/// Sessions that wake each other and hand the lane on: together they get no more than their parts,
/// and those beside them no less.
#[test]
fn sessions_that_call_each_other_get_no_more_than_their_parts() {
    for cycles in [30, 400, 3_000] {
        let pairs = [Habit::CallsOther(cycles); 5];
        let hogs = [Habit::Hog; 40];
        let sessions = [
            (normal(1_024), &pairs[..1]),
            (normal(1_024), &pairs[..5]),
            (normal(1_024), &hogs[..1]),
            (normal(1_024), &hogs[..]),
        ];
        let mut load = Load::new(Sharing::Session, &sessions);
        load.run_until(20_000_000);
        let found = load.per_mille();
        assert!(found[0] + found[1] <= 503, "{cycles}: {found:?}");
        assert!(found[2..].iter().all(|&one| one >= 247), "{cycles}: {found:?}");
    }
}

/// Weights change on both levels while the lane runs: at every moment each session has had its part
/// of the time at the weights in force, within one largest request a level.
#[test]
fn a_change_of_weight_on_either_level_creates_and_destroys_no_service() {
    let bound = 2.0 * (BASE + 2 * GAP) as f64;
    let worst = worst_error_while_weights_change(Sharing::Session);
    assert!(worst <= bound, "{worst} cycles");
    let flat = worst_error_while_weights_change(Sharing::Coroutine);
    assert!(flat > 10.0 * bound, "the flat form knows no sessions: {flat} cycles");
}

/// How far a session is from its part, at most.
fn worst_error_while_weights_change(sharing: Sharing) -> f64 {
    let habits: [&[Habit]; 5] = [
        &[Habit::Hog],
        &[Habit::Hog; 12],
        &[Habit::Yields(70), Habit::Yields(70)],
        &[Habit::Calls(300), Habit::Calls(300)],
        &[Habit::Calls(2_000), Habit::Hog, Habit::Yields(9)],
    ];
    let sessions: Vec<_> = habits.iter().map(|habits| (normal(1_024), *habits)).collect();
    let mut load = Load::new(sharing, &sessions);
    let mut weights = [1_024.0f64; 5];
    let (mut fluid, mut worst) = ([0.0f64; 5], 0.0f64);
    for step in 0..60_000 {
        let before: u64 = load.service.iter().sum();
        load.step();
        let passed = load.service.iter().sum::<u64>() - before;
        let all: f64 = weights.iter().sum();
        for (fluid, weight) in fluid.iter_mut().zip(weights) {
            *fluid += passed as f64 * weight / all;
        }
        if step % 20 == 0 {
            let weight = 256 << load.numbers.below(6);
            let session = load.numbers.below(5) as usize;
            let _ = load.lane.set_session_share(session as u32, normal(weight));
            weights[session] = f64::from(weight);
        }
        if step % 33 == 0 {
            let coroutine = load.numbers.below(load.coroutines.len() as u64) as usize;
            let weight = 1 << load.numbers.below(15);
            load.lane.set_share(load.coroutines[coroutine], normal(weight)).expect("it lives");
        }
        for (service, fluid) in load.service.iter().zip(fluid) {
            worst = worst.max((*service as f64 - fluid).abs());
        }
    }
    assert_eq!(load.lane.check(), Ok(()));
    assert!(fluid.iter().all(|one| *one > 1_000_000.0), "all have weight: {fluid:?}");
    worst
}

#[test]
fn a_session_that_naps_gains_less_than_a_slice_over_one_that_does_not() {
    // The napper runs a third of each frame, which is its share: it is to get that and no more,
    // although it is at the head of the queue at every frame's start.
    let nappers: Vec<_> = (0..50).map(|_| Habit::Naps(9_000)).collect();
    let sessions = [
        (normal(1_024), &nappers[..]),
        (normal(1_024), &[Habit::Hog][..]),
        (normal(1_024), &[Habit::Hog; 3][..]),
    ];
    let mut load = Load::new(Sharing::Session, &sessions);
    for frame in 1..40 {
        load.run_until(frame * FRAME);
        let third = load.lane.clock().0 / 3;
        // A debt is clipped at most once a frame, and at most by what an exceeded slice leaves.
        let gain = load.service[0].saturating_sub(third);
        assert!(gain < BASE + 2 * GAP, "frame {frame}: {gain}");
    }
    let found = load.per_mille();
    assert!(found.iter().all(|one| one.abs_diff(333) <= 3), "{found:?}");
}

/// Sessions move between two lanes at random: each gets what the fluid model gives it, within a
/// slice per move, and in the end its share.
#[test]
fn moves_between_lanes_keep_the_service_of_sessions() {
    let hogs = [Habit::Hog; 8];
    let sessions: Vec<_> = (0..6).map(|at| (normal(1_024), &hogs[..=at])).collect();
    let mut loads =
        [Load::new(Sharing::Session, &sessions), Load::new(Sharing::Session, &sessions)];
    // The second lane is empty at first, but for a session of its own that stays.
    for session in 0..6 {
        loads[1].lane.end_session(session, |_, _| ()).expect("no slice is open");
    }
    let mut numbers = Random::new(11);
    let mut fluid = [0.0f64; 6];
    let mut at = [0usize; 6];
    let mut served = [0u64; 6];
    for move_ in 0..600 {
        let before: Vec<u64> = loads.iter().map(|load| load.lane.clock().0).collect();
        for load in &mut loads {
            let end = load.lane.clock().0 + 300_000;
            while load.lane.has_work() && load.lane.clock().0 < end {
                load.step();
            }
        }
        for (lane, load) in loads.iter_mut().enumerate() {
            let here: Vec<usize> = (0..6).filter(|&session| at[session] == lane).collect();
            let total: u64 = load.service.iter().sum();
            for &session in &here {
                fluid[session] += total as f64 / here.len() as f64;
            }
            for (sum, service) in served.iter_mut().zip(&mut load.service) {
                *sum += core::mem::take(service);
            }
            assert!(load.lane.clock().0 >= before[lane]);
        }
        let session = numbers.below(6) as usize;
        let (from, to) = (at[session], 1 - at[session]);
        let [one, other] = &mut loads;
        let (source, target) = if from == 0 { (one, other) } else { (other, one) };
        let mut moved = Vec::new();
        source
            .lane
            .move_session(session as u32, &mut target.lane, MoveKind::Assigned, |tag, reference| {
                moved.push((tag.slot() as usize, reference));
            })
            .expect("it can move");
        for (slot, reference) in moved {
            target.coroutines[slot] = reference;
        }
        at[session] = to;
        assert_eq!((source.lane.check(), target.lane.check()), (Ok(()), Ok(())), "{move_}");
    }
    for session in 0..6 {
        let error = (served[session] as f64 - fluid[session]) / fluid[session];
        assert!(error.abs() < 0.02, "session {session}: {error}");
    }
}

#[test]
fn the_coroutines_of_a_session_share_its_part_by_their_own_weights() {
    let sessions = [(normal(3_072), &[Habit::Hog; 3][..]), (normal(1_024), &[Habit::Hog][..])];
    let mut load = Load::new(Sharing::Session, &sessions);
    for (slot, weight) in [(0, 1_024), (1, 2_048), (2, 5_120)] {
        load.lane.set_share(load.coroutines[slot], normal(weight)).expect("it lives");
    }
    load.run_until(40_000_000);
    let total = load.lane.charged().0 as f64;
    for (slot, expected) in [(0, 0.75 / 8.0), (1, 0.75 / 4.0), (2, 0.75 * 5.0 / 8.0), (3, 0.25)] {
        let runtime = load.lane.ledger(load.coroutines[slot]).expect("it lives").runtime.0 as f64;
        assert!((runtime / total - expected).abs() < 0.005, "{slot}: {}", runtime / total);
    }
}
