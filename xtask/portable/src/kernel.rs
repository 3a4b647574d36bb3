//! Cases of `kernel`: three lanes under every policy, driven through waves and frames by a seeded
//! stream, with every decision recorded.

use wavelock_abi::{
    CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, SCHEDULER_COSTS_V1, Weight,
};
use wavelock_kernel::{
    BlockReason, FairSettings, HoldReason, LaneSettings, Outcome, Policy, PolicyKind, Reservation,
    Running, Spawn, Tag, WakeSource,
};

use crate::{Report, Size, Stream, Trail};
use lane_set::{Applied, Effect, LaneSet, WaveSpan};

#[allow(dead_code, reason = "the driver of the kernel's tests, of which this needs a part")]
#[path = "../../../crates/kernel/tests/support/lane_set.rs"]
mod lane_set;

const LANES: u16 = 3;
const SESSIONS: u32 = 12;
const FRAME_CYCLES: Cycles = Cycles(400_000);

pub(crate) fn cases(report: &mut Report) {
    let quantum = Cycles(10_000);
    let fair = FairSettings::new(quantum, Cycles(1_000), Cycles(200_000))
        .expect("the settings are in range");
    let policies = PolicyKind::ALL
        .iter()
        .map(|kind| (kind.name(), kind.with_quantum(quantum).unwrap_or(Policy::Fair(fair))));
    for (name, policy) in policies {
        for (size, scale, coroutines, frames) in
            [(Size::Small, "small", 60, 12), (Size::Full, "large", 3_000, 60)]
        {
            report.case(size, &format!("kernel/{name}/{scale}"), |trail| {
                Workload::new(policy, coroutines).run(frames, trail)
            });
        }
    }
}

/// The lanes, and where each coroutine is now.
struct Workload {
    lanes: LaneSet,
    places: Vec<(LaneId, CoroutineRef)>,
    stream: Stream,
    /// Coroutines that changed lanes, sleepers that woke, effects that crossed lanes: a run must
    /// have some of each.
    moved: u64,
    woken: u64,
    crossed: u64,
}

impl Workload {
    fn new(policy: Policy, coroutines: u32) -> Self {
        let settings = LaneSettings {
            policy,
            frame_cycles: FRAME_CYCLES,
            costs: SCHEDULER_COSTS_V1,
            handoff: true,
        };
        let mut lanes = LaneSet::new(LANES, settings);
        let mut stream = Stream(u64::from(coroutines));
        for lane in (0..LANES).map(LaneId) {
            // Reserve space for every session on every lane, so that no move is refused for lack of
            // it.
            let room = Reservation { coroutines, sessions: SESSIONS };
            lanes[lane].reserve(room).expect("there is memory for the reservation");
        }
        let mut places = Vec::new();
        for index in 0..coroutines {
            let session = index % SESSIONS;
            let lane = LaneId((session % u32::from(LANES)) as u16);
            let spawn = Spawn {
                priority: Priority(stream.below(5) as u8),
                weight: Weight::new(1 + stream.below(4_000) as u16).expect("a weight in range"),
                latency: LatencyClass::ALL[stream.below(5) as usize],
                ..Spawn::new(Tag::new(session, index))
            };
            let reference = lanes[lane].spawn(spawn).expect("room was reserved");
            places.push((lane, reference));
        }
        Self { lanes, places, stream, moved: 0, woken: 0, crossed: 0 }
    }

    fn run(mut self, frames: u64, trail: &mut Trail) {
        for frame in 0..frames {
            // A lane is created inside frame 0.
            if frame > 0 {
                self.woken += u64::from(self.lanes.begin_frame(Frame(frame)));
                trail.number(self.woken);
            }
            while self.has_work() {
                self.wave(frame, trail);
            }
            let mut lane = 0;
            self.lanes.end_frame(|row| {
                assert!(row.is_conserved(FRAME_CYCLES), "lane {lane} lost cycles: {row:?}");
                trail.numbers(&[
                    lane,
                    row.charged.0,
                    row.overhead.0,
                    row.idle.0,
                    row.overrun_out.0,
                ]);
                lane += 1;
            });
        }
        assert!(
            self.moved > 0 && self.woken > 0 && self.crossed > 0,
            "{} moved, {} woken, {} crossed",
            self.moved,
            self.woken,
            self.crossed
        );
        for lane in self.lanes.iter() {
            lane.check().expect("the lane keeps its laws");
            trail.numbers(&[lane.clock().0, lane.ready_digest(), lane.picks(), lane.step()]);
        }
        for (lane, reference) in &self.places {
            let ledger = self.lanes[*lane].ledger(*reference);
            trail.number(
                ledger.map_or(u64::MAX, |ledger| {
                    ledger.runtime.0 ^ ledger.wait_total.0.rotate_left(32)
                }),
            );
        }
    }

    fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| lane.has_work() && lane.clock() < lane.frame_end())
    }

    fn wave(&mut self, frame: u64, trail: &mut Trail) {
        self.lanes.begin_wave(WaveSpan::Cycles(Cycles(40_000)));
        while let Some((lane, running)) = self.lanes.dispatch() {
            self.slice(lane, running, frame, trail);
        }
        let crossed = &mut self.crossed;
        self.lanes.end_wave(|posted, applied| {
            *crossed += 1;
            trail.numbers(&[u64::from(posted.from.0), posted.step, u64::from(posted.to.0)]);
            trail.number(match applied {
                Applied::Woken(result) => u64::from(result.is_ok()),
                Applied::Published(result) => 2 + u64::from(result.is_ok()),
                Applied::HandedOff { woken, preferred } => {
                    4 + u64::from(woken.is_ok()) + 2 * u64::from(preferred)
                }
            });
        });
        if self.stream.below(4) == 0 {
            self.move_a_session(trail);
        }
    }

    /// Runs one slice for part of its bound, ends it in a random way, and applies a random
    /// operation to another coroutine.
    fn slice(&mut self, lane: LaneId, running: Running, frame: u64, trail: &mut Trail) {
        trail.numbers(&[
            u64::from(lane.0),
            running.tag().0,
            running.bound().0,
            running.bound_reason() as u64,
        ]);
        let bound = running.bound().0.min(20_000);
        let (used, outcome) = match self.stream.below(10) {
            0 => (bound / 3, Outcome::Slept(Frame(frame + 1 + self.stream.below(3)))),
            1..4 => (
                bound / 2,
                Outcome::Blocked(
                    [BlockReason::ChannelReceive, BlockReason::Join, BlockReason::Input]
                        [self.stream.below(3) as usize],
                ),
            ),
            4..8 => (self.stream.below(bound.max(1)), Outcome::Yielded),
            _ if running.bound().0 > 20_000 => (bound, Outcome::Yielded),
            _ => (bound + self.stream.below(100), Outcome::OutOfCycles),
        };
        self.disturb(lane, trail);
        let home = &mut self.lanes[lane];
        trail.number(home.stop(running, Cycles(used), outcome) as u64);
        trail.number(home.clock().0);
    }

    /// Wakes, hands off to, holds or releases a random coroutine; refusals are recorded too.
    fn disturb(&mut self, from: LaneId, trail: &mut Trail) {
        for _ in 0..2 {
            let (lane, target) = self.places[self.stream.below(self.places.len() as u64) as usize];
            let source = [WakeSource::Channel, WakeSource::Join, WakeSource::Input]
                [self.stream.below(3) as usize];
            let done = if lane != from {
                let effect = if self.stream.below(4) == 0 {
                    Effect::Handoff { target, source }
                } else {
                    Effect::Wake { target, source }
                };
                self.lanes.post(from, lane, effect);
                true
            } else {
                let home = &mut self.lanes[lane];
                match self.stream.below(8) {
                    0 => home.hold(target, HoldReason::Operator).is_ok(),
                    1..3 => home.release(target, HoldReason::Operator).is_ok(),
                    3 => home.wake(target, source).is_ok() && home.prefer(target).is_ok(),
                    _ => home.wake(target, source).is_ok(),
                }
            };
            trail.number(u64::from(done));
        }
    }

    fn move_a_session(&mut self, trail: &mut Trail) {
        let session = self.stream.below(u64::from(SESSIONS)) as u32;
        let from = self.places[session as usize].0;
        let to = LaneId((from.0 + 1) % LANES);
        let places = &mut self.places;
        let moved = self.lanes.migrate(session, from, to, |tag, reference| {
            places[tag.slot() as usize] = (to, reference)
        });
        self.moved += moved.as_ref().map_or(0, |moved| u64::from(*moved));
        trail.number(moved.map_or(u64::MAX, u64::from));
    }
}
