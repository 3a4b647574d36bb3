//! What the kernel's own tests share: lanes with settings, a seeded generator, and one call for a
//! whole slice.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod lane_set;
#[path = "../model/random.rs"]
mod random;

use lane_set::LaneSet;

#[allow(unused_imports, reason = "not every test file draws")]
pub(crate) use random::Random;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    FairSettings, Lane, LaneSettings, Next, Outcome, Policy, PolicyKind, PriorityRule, Reservation,
    Running, Sharing, Span, Spawn, Stopped, Tag,
};

pub(crate) const QUANTUM: Cycles = Cycles(10_000);
pub(crate) const ROUND_ROBIN: Policy = Policy::RoundRobin { quantum: QUANTUM };

/// Every policy, with its name; `fair` in both forms.
pub(crate) fn policies() -> impl Iterator<Item = (&'static str, Policy)> {
    let fair = FairSettings::new(QUANTUM, Cycles(1_000), Cycles(1_000_000))
        .expect("settings within their limits");
    PolicyKind::ALL
        .iter()
        .map(move |kind| (kind.name(), kind.with_quantum(QUANTUM).unwrap_or(Policy::Fair(fair))))
        .chain([("fair among sessions", Policy::Fair(fair.shared_by(Sharing::Session)))])
}

pub(crate) fn priority(rule: PriorityRule) -> Policy {
    Policy::Priority { rule, quantum: QUANTUM }
}

pub(crate) fn settings(policy: Policy) -> LaneSettings {
    LaneSettings {
        policy,
        frame_cycles: Cycles(1_000_000),
        costs: SCHEDULER_COSTS_V1,
        handoff: true,
    }
}

/// A lane with room, in an endless wave.
pub(crate) fn lane(policy: Policy) -> Lane {
    let mut lane = Lane::new(LaneId(0), settings(policy));
    lane.reserve(Reservation { coroutines: 1_000, sessions: 100 }).expect("memory");
    lane.begin_wave(Span::Until(Cycles::MAX));
    lane
}

/// Lanes with room.
pub(crate) fn lanes(lanes: u16, policy: Policy) -> LaneSet {
    let mut set = LaneSet::new(lanes, settings(policy));
    for lane in 0..lanes {
        let room = Reservation { coroutines: 1_000, sessions: 100 };
        set[LaneId(lane)].reserve(room).expect("memory");
    }
    set
}

pub(crate) fn spawn(lane: &mut Lane, session: u32, slot: u32) -> CoroutineRef {
    lane.spawn(Spawn::new(Tag::new(session, slot))).expect("there is room")
}

pub(crate) fn spawn_with_priority(lane: &mut Lane, slot: u32, priority: u8) -> CoroutineRef {
    lane.spawn(Spawn { priority: Priority(priority), ..Spawn::new(Tag::new(0, slot)) })
        .expect("there is room")
}

/// The next slice; there must be one.
pub(crate) fn run(lane: &mut Lane) -> Running {
    match lane.dispatch() {
        Next::Run(running) => running,
        other => panic!("expected a slice, got {other:?}"),
    }
}

/// The next slice, in a later frame if this one is over.
pub(crate) fn run_across_frames(lane: &mut Lane) -> Running {
    loop {
        match lane.dispatch() {
            Next::Run(running) => return running,
            Next::Idle => panic!("nothing is ready"),
            Next::Over => {
                let _ = lane.end_frame();
                lane.begin_frame(Frame(lane.frame().0 + 1));
            }
        }
    }
}

/// Runs one slice of `used` cycles to `outcome` and says who ran.
pub(crate) fn slice(lane: &mut Lane, used: u64, outcome: Outcome) -> (CoroutineRef, Stopped) {
    let running = run(lane);
    let reference = running.reference();
    let stopped = lane.stop(running, Cycles(used), outcome);
    (reference, stopped)
}

/// Who runs in the next slices, when each yields after a few cycles.
pub(crate) fn order(lane: &mut Lane, slices: usize) -> Vec<u32> {
    (0..slices).map(|_| slice(lane, 10, Outcome::Yielded).0.slot).collect()
}

pub(crate) fn checked(lane: &Lane) {
    if let Err(violation) = lane.check() {
        panic!("{violation:?}");
    }
}
