//! What a hostile session does to another one on its lane, under every policy: the table of
//! docs/scheduler.md.
//!
//! `cargo run --release -p wavelock-kernel --example hostile`. The victim is a session with one
//! coroutine that always has work. The figure is the victim's part of the lane's time (its slices
//! with their picks and switches) over 100 million cycles, in percent; half of it is its due. The
//! hostile session has the same weight and priority, where not said otherwise.

use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    BlockReason, FairSettings, Lane, LaneSettings, Next, Outcome, Policy, PolicyKind, Reservation,
    Sharing, Span, Spawn, Tag, WakeSource,
};

const QUANTUM: Cycles = Cycles(10_000);
const FRAME: Cycles = Cycles(1_000_000);
const END: Cycles = Cycles(100_000_000);

/// How the coroutines of the hostile session behave.
#[derive(Clone, Copy, PartialEq)]
enum Attack {
    /// They never stop by themselves.
    Loop,
    /// They yield after 10 cycles.
    Yield,
    /// They wake each other and block after 10 cycles.
    Call,
    /// They sleep to the next frame after 9,000 cycles.
    Nap,
}

/// The attacks: what they are called, how many coroutines, which priority above the victim's.
const ATTACKS: [(&str, Attack, u32, u8); 6] = [
    ("1 loop", Attack::Loop, 1, 0),
    ("99 loops", Attack::Loop, 99, 0),
    ("99 yielders", Attack::Yield, 99, 0),
    ("2 callers", Attack::Call, 2, 0),
    ("200 nappers", Attack::Nap, 200, 0),
    ("1 loop, higher priority", Attack::Loop, 1, 1),
];

struct Machine {
    lane: Lane,
    hostile: Vec<CoroutineRef>,
    attack: Attack,
    /// Time of the victim, and of both.
    victim: u64,
    total: u64,
}

impl Machine {
    fn new(policy: Policy, attack: Attack, count: u32, priority: u8) -> Self {
        let costs = SCHEDULER_COSTS_V1;
        let settings = LaneSettings { policy, frame_cycles: FRAME, costs, handoff: false };
        let mut lane = Lane::new(LaneId(0), settings);
        let room = Reservation { coroutines: count + 1, sessions: 2 };
        lane.reserve(room).expect("memory");
        let hostile = (0..count).map(|slot| {
            let spawn = Spawn::new(Tag::new(1, slot));
            lane.spawn(Spawn { priority: Priority(priority), ..spawn }).expect("room")
        });
        let hostile = hostile.collect();
        lane.spawn(Spawn::new(Tag::new(0, 0))).expect("room");
        lane.begin_wave(Span::Until(FRAME));
        Self { lane, hostile, attack, victim: 0, total: 0 }
    }

    fn step(&mut self) {
        let before = self.lane.clock();
        let running = match self.lane.dispatch() {
            Next::Run(running) => running,
            _ => {
                let _ = self.lane.end_frame();
                let frame = Frame(self.lane.frame().0 + 1);
                let _ = self.lane.begin_frame(frame);
                let end = self.lane.frame_end();
                return self.lane.begin_wave(Span::Until(end));
            }
        };
        let (tag, bound) = (running.tag(), running.bound());
        let (used, outcome) = match self.attack {
            _ if tag.session() == 0 => (bound, Outcome::OutOfCycles),
            Attack::Yield if bound > Cycles(10) => (Cycles(10), Outcome::Yielded),
            Attack::Nap if bound > Cycles(9_000) => {
                (Cycles(9_000), Outcome::Slept(Frame(self.lane.frame().0 + 1)))
            }
            Attack::Call if bound > Cycles(10) => {
                let other = self.hostile[1 - tag.slot() as usize];
                match self.lane.wake(other, WakeSource::Channel) {
                    Ok(()) => (Cycles(10), Outcome::Blocked(BlockReason::ChannelReceive)),
                    Err(_) => (Cycles(10), Outcome::Yielded),
                }
            }
            _ => (bound, Outcome::OutOfCycles),
        };
        let _ = self.lane.stop(running, used, outcome);
        let time = (self.lane.clock() - before).0;
        self.total += time;
        self.victim += if tag.session() == 0 { time } else { 0 };
    }
}

fn main() {
    let fair = FairSettings::new(QUANTUM, Cycles(5_000), FRAME).expect("settings in range");
    let names = ATTACKS.map(|(name, ..)| name).join(" | ");
    println!("| policy | {names} |\n|---|{}", "---:|".repeat(ATTACKS.len()));
    let kinds = PolicyKind::ALL
        .iter()
        .filter_map(|kind| Some((format!("`{}`", kind.name()), kind.with_quantum(QUANTUM)?)));
    let shared = [Sharing::Coroutine, Sharing::Session].map(|sharing| {
        (format!("`fair` by {}", sharing.name()), Policy::Fair(fair.shared_by(sharing)))
    });
    for (name, policy) in kinds.chain(shared) {
        let figures = ATTACKS.map(|(_, attack, count, priority)| {
            let mut machine = Machine::new(policy, attack, count, priority);
            while machine.lane.clock() < END {
                machine.step();
            }
            format!("{:.1}", machine.victim as f64 * 100.0 / machine.total as f64)
        });
        println!("| {name} | {} |", figures.join(" | "));
    }
}
