//! The next operation of a random sequence, chosen by looking at the model so that sequences reach
//! deep states.
//!
//! The generator reads the world and never changes it: a sequence it made can be replayed without
//! it.

use super::driver::World;
use super::{End, Kind, Op};
use crate::model::lane::State;
use crate::support::Random;
use wavelock_abi::SCHEDULER_COSTS_V1;
use wavelock_kernel::{BlockReason, HoldReason, WakeSource};

/// Numbers of coroutines that are gone which the generator still uses, for stale references.
const REMEMBERED: usize = 64;

/// What the generator knows beyond the world.
pub(crate) struct Generator {
    random: Random,
    next_name: u32,
    sessions: u32,
    /// Numbers that may name somebody.
    alive: Vec<u32>,
    gone: Vec<u32>,
    mood: Mood,
}

/// What a stretch of a sequence does more of: many wait, then all wake, so that many hold tokens at
/// once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Even,
    Waiting,
    Waking,
}

impl Generator {
    pub(crate) fn new(seed: u64, sessions: u32) -> Self {
        Self {
            random: Random::new(seed),
            next_name: 0,
            sessions,
            alive: Vec::new(),
            gone: Vec::new(),
            mood: Mood::Even,
        }
    }

    fn lane(&mut self, world: &World) -> u16 {
        self.random.below(u64::from(world.setup.lanes)) as u16
    }

    fn session(&mut self) -> u32 {
        self.random.below(u64::from(self.sessions)) as u32
    }

    /// A coroutine, and whether to use a reference of its past.
    fn name(&mut self, world: &World) -> (u32, bool) {
        if !self.gone.is_empty() && self.random.chance(1, 40) {
            return (self.random.pick(&self.gone), false);
        }
        while !self.alive.is_empty() {
            let index = self.random.below(self.alive.len() as u64) as usize;
            let name = self.alive[index];
            match world.names.get(name as usize).and_then(Option::as_ref) {
                Some(named) if !named.gone => return (name, self.random.chance(1, 40)),
                _ => {
                    self.alive.swap_remove(index);
                    self.gone.push(name);
                    if self.gone.len() > REMEMBERED {
                        self.gone.swap_remove(0);
                    }
                }
            }
        }
        (0, false)
    }

    /// A coroutine in a state that `wanted` accepts, if a few tries find one.
    fn name_in(&mut self, world: &World, wanted: impl Fn(State) -> bool) -> (u32, bool) {
        for _ in 0..6 {
            let (name, old) = self.name(world);
            if self.state(world, name).is_some_and(&wanted) {
                return (name, old);
            }
        }
        self.name(world)
    }

    fn state(&self, world: &World, name: u32) -> Option<State> {
        let named = world.names.get(name as usize)?.as_ref()?;
        world.model.lanes[named.lane].state(named.reference).ok()
    }

    /// The next operation of the world.
    pub(crate) fn next(&mut self, world: &mut World) -> Op {
        self.alive.append(&mut world.fresh);
        let lane = self.lane(world);
        if self.random.chance(1, 60) {
            self.mood = match self.mood {
                Mood::Even => self.random.pick(&[Mood::Even, Mood::Waiting]),
                Mood::Waiting => Mood::Waking,
                Mood::Waking => Mood::Even,
            };
        }
        if self.mood == Mood::Waking && self.random.chance(4, 5) {
            let (name, old) = self.name_in(world, |state| matches!(state, State::Blocked(_)));
            return Op::Wake { name, old, source: self.source(world, name) };
        }
        if world.is_open(usize::from(lane)) && self.random.chance(6, 10) {
            return self.stop(world, lane);
        }
        if !world.is_open(usize::from(lane))
            && !world.quiet[usize::from(lane)]
            && self.random.chance(5, 10)
        {
            return if self.random.chance(1, 5) { Op::DispatchNext } else { Op::Dispatch { lane } };
        }
        let quiet = world.quiet.iter().all(|&quiet| quiet);
        if self.random.chance(if quiet { 12 } else { 1 }, 20) {
            return self.boundary(world);
        }
        let room = (self.alive.len() as u32) < world.setup.population;
        let few = (self.alive.len() as u32) < world.setup.population / 3;
        if room && self.random.chance(if few { 10 } else { 3 }, 20) {
            return self.spawn(lane);
        }
        self.intervene(world, lane)
    }

    /// Operations that only fill the machine.
    pub(crate) fn fill(&mut self, world: &mut World) -> Op {
        self.alive.append(&mut world.fresh);
        let lane = self.lane(world);
        self.spawn(lane)
    }

    fn new_name(&mut self) -> u32 {
        self.next_name += 1;
        self.next_name
    }

    fn weight(&mut self) -> u16 {
        match self.random.below(4) {
            0 => 1024,
            1 => 1 + self.random.below(8) as u16,
            2 => 60_000 + self.random.below(5_536) as u16,
            _ => 256 << self.random.below(5),
        }
    }

    fn priority(&mut self) -> u8 {
        if self.random.chance(1, 2) {
            self.random.below(4) as u8
        } else {
            self.random.below(256) as u8
        }
    }

    fn spawn(&mut self, lane: u16) -> Op {
        let (name, session, priority) = (self.new_name(), self.session(), self.priority());
        Op::Spawn {
            name,
            lane,
            session,
            priority,
            weight: self.weight(),
            class: self.random.below(5) as u8,
        }
    }

    fn stop(&mut self, world: &World, lane: u16) -> Op {
        let bound = world.bound(usize::from(lane)).max(1);
        let end = match self.random.below(100) {
            0..70 if self.mood == Mood::Waiting => End::Block(self.random.below(4) as u8),
            0..35 => End::Spent,
            35..60 => End::Yield,
            60..72 => End::Sleep(if self.random.chance(1, 30) {
                300 + self.random.below(100_000)
            } else {
                self.random.below(5)
            }),
            72..91 => End::Block(self.random.below(BlockReason::ALL.len() as u64) as u8),
            91..97 => End::Finish,
            _ => End::Fault,
        };
        let used = match end {
            End::Spent if self.random.chance(1, 3) => bound + self.random.below(200),
            End::Spent => bound,
            _ if self.random.chance(1, 2) => 1 + self.random.below(bound.min(300)),
            _ => self.random.below(bound + 1),
        };
        Op::Stop { lane, used, end }
    }

    fn span(&mut self, world: &World) -> (bool, u64) {
        let frame = world.setup.frame_cycles;
        let latest = world.model.lanes.iter().map(|lane| lane.clock).max().unwrap_or(0);
        match self.random.below(8) {
            0 | 1 => (true, 1 + self.random.below(4)),
            // Ends that coincide: the wave with the frame, or with the quantum of the first pick.
            2 => (false, frame - latest % frame),
            3 => (
                false,
                world.setup.quantum + SCHEDULER_COSTS_V1.pick.0 + SCHEDULER_COSTS_V1.switch.0,
            ),
            _ => (false, 1 + self.random.below(frame / 2)),
        }
    }

    fn boundary(&mut self, world: &World) -> Op {
        let (picks, span) = self.span(world);
        match self.random.below(10) {
            0..6 => Op::Wave { picks, span },
            6 | 7 => Op::NextFrame { skip: 0, picks, span },
            8 => Op::NextFrame { skip: self.random.below(4), picks, span },
            _ => Op::Jump { picks, span },
        }
    }

    fn source(&mut self, world: &World, name: u32) -> u8 {
        let wanted = match self.state(world, name) {
            Some(State::Blocked(
                BlockReason::ChannelSend | BlockReason::ChannelReceive | BlockReason::Select,
            )) => WakeSource::Channel,
            Some(State::Blocked(BlockReason::Join)) => WakeSource::Join,
            Some(State::Blocked(BlockReason::Input)) => WakeSource::Input,
            Some(State::Blocked(BlockReason::OtherLane)) => WakeSource::Answer,
            Some(State::Blocked(BlockReason::Park)) => WakeSource::Unpark,
            _ => WakeSource::SessionEnd,
        };
        if self.random.chance(1, 12) {
            self.random.below(WakeSource::ALL.len() as u64) as u8
        } else {
            wanted as u8
        }
    }

    // Long: one arm per operation that comes from outside a slice.
    fn intervene(&mut self, world: &World, lane: u16) -> Op {
        let blocked = |state: State| matches!(state, State::Blocked(_));
        match self.random.below(100) {
            0..30 if self.mood == Mood::Waiting => Op::Dispatch { lane },
            0..30 => {
                let (name, old) = self.name_in(world, blocked);
                Op::Wake { name, old, source: self.source(world, name) }
            }
            30..36 => {
                let (name, old) = self.name(world);
                Op::Hold {
                    name,
                    old,
                    reason: self.random.below(HoldReason::ALL.len() as u64) as u8,
                }
            }
            36..50 => {
                let (name, old) = self.name_in(world, |state| matches!(state, State::Held(_)));
                let held = match self.state(world, name) {
                    Some(State::Held(holds)) => holds.trailing_zeros() as u8,
                    _ => self.random.below(HoldReason::ALL.len() as u64) as u8,
                };
                Op::Release { name, old, reason: held }
            }
            50..52 => {
                let (name, old) = self.name(world);
                Op::Cancel { name, old }
            }
            52..60 => {
                let ended = |state: State| {
                    matches!(state, State::Finished | State::Faulted | State::Canceled)
                };
                let (name, old) = self.name_in(world, ended);
                Op::Reap { name, old }
            }
            60 => Op::EndSession { lane, session: self.session() },
            61..66 => {
                let (name, old) = self.name_in(world, |state| state == State::Ready);
                Op::Prefer { name, old }
            }
            66..69 => {
                let (name, old) = self.name(world);
                Op::SetPriority { name, old, priority: self.priority() }
            }
            69..72 => {
                let (name, old) = self.name(world);
                Op::SetShare { name, old, weight: self.weight(), class: self.random.below(5) as u8 }
            }
            72..80 => {
                let (name, old) = self.name_in(world, blocked);
                Op::PostWake { from: lane, name, old, source: self.source(world, name) }
            }
            80..84 => {
                let (name, old) = self.name_in(world, blocked);
                Op::PostHandoff { from: lane, name, old, source: self.source(world, name) }
            }
            84..86 if (self.alive.len() as u32) < world.setup.population => {
                let (to, name, session) = (self.lane(world), self.new_name(), self.session());
                Op::PostSpawn { from: lane, to, name, session, priority: self.priority() }
            }
            86..90 => Op::Migrate { session: self.session(), from: lane, to: self.lane(world) },
            90 if self.random.chance(1, 4) => Op::Measure { lane, on: self.random.chance(1, 2) },
            90 => Op::Rebuild { lane },
            91..99 => {
                let idle = (0..world.setup.lanes)
                    .find(|&lane| !world.model.lanes[usize::from(lane)].has_work());
                Op::Steal { lane: idle.unwrap_or(lane), banned: self.session() }
            }
            _ if world.setup.switches => Op::SetPolicy {
                lane,
                kind: self.random.pick(&Kind::ALL),
                quantum: 1 + self.random.below(3_000),
            },
            _ => Op::DispatchNext,
        }
    }
}
