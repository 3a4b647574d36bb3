//! Operations on a kernel as plain data: what a sequence is made of, what a run is made with, and
//! what a run has reached.
//!
//! An operation names coroutines by numbers that the sequence itself gives out, so a sequence stays
//! meaningful when operations are dropped from it: what names nobody is skipped. The derived
//! `Debug` of an operation is the Rust that makes it.
//!
//! Reading order: here, then `driver` (both sides of one operation), `generate` (the next
//! operation), `shrink` (a small failing sequence).

pub(crate) mod driver;
pub(crate) mod generate;
pub(crate) mod shrink;

use wavelock_abi::Cycles;
use wavelock_kernel::{FairSettings, Policy, PriorityRule, Sharing};

/// Which policy, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cooperative,
    RoundRobin,
    Fixed,
    Aging,
    Tokens,
    Progress,
    Fair,
    Sessions,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Cooperative,
        Self::RoundRobin,
        Self::Fixed,
        Self::Aging,
        Self::Tokens,
        Self::Progress,
        Self::Fair,
        Self::Sessions,
    ];

    /// The policy with this quantum, or base slice.
    pub(crate) fn policy(self, quantum: u64) -> Policy {
        let quantum = Cycles(quantum);
        match self {
            Self::Cooperative => Policy::Cooperative,
            Self::RoundRobin => Policy::RoundRobin { quantum },
            Self::Fixed => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
            Self::Aging => Policy::Priority { rule: PriorityRule::Aging, quantum },
            Self::Tokens => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
            Self::Progress => Policy::ProgressAware { quantum },
            Self::Fair | Self::Sessions => {
                let least = Cycles(quantum.0 / 6 + 1);
                let settings = FairSettings::new(quantum, least, Cycles(quantum.0 * 20));
                let sharing =
                    if self == Self::Fair { Sharing::Coroutine } else { Sharing::Session };
                Policy::Fair(settings.expect("settings in range").shared_by(sharing))
            }
        }
    }
}

/// How a slice ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Yield,
    Sleep(u64),
    Block(u8),
    Spent,
    Finish,
    Fault,
}

/// An operation. `name` is the number a `Spawn` or `PostSpawn` gave; `old` means a reference it had
/// before it moved. Numbers of block reasons, wake sources, hold reasons and latency classes are
/// positions in their tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Spawn {
        name: u32,
        lane: u16,
        session: u32,
        priority: u8,
        weight: u16,
        class: u8,
    },
    Dispatch {
        lane: u16,
    },
    DispatchNext,
    Stop {
        lane: u16,
        used: u64,
        end: End,
    },
    Wake {
        name: u32,
        old: bool,
        source: u8,
    },
    Hold {
        name: u32,
        old: bool,
        reason: u8,
    },
    Release {
        name: u32,
        old: bool,
        reason: u8,
    },
    Cancel {
        name: u32,
        old: bool,
    },
    Reap {
        name: u32,
        old: bool,
    },
    EndSession {
        lane: u16,
        session: u32,
    },
    Prefer {
        name: u32,
        old: bool,
    },
    SetPriority {
        name: u32,
        old: bool,
        priority: u8,
    },
    SetShare {
        name: u32,
        old: bool,
        weight: u16,
        class: u8,
    },
    SetSessionShare {
        lane: u16,
        session: u32,
        weight: u16,
        class: u8,
    },
    SetPolicy {
        lane: u16,
        kind: Kind,
        quantum: u64,
    },
    PostWake {
        from: u16,
        name: u32,
        old: bool,
        source: u8,
    },
    PostHandoff {
        from: u16,
        name: u32,
        old: bool,
        source: u8,
    },
    PostSpawn {
        from: u16,
        to: u16,
        name: u32,
        session: u32,
        priority: u8,
    },
    Migrate {
        session: u32,
        from: u16,
        to: u16,
    },
    Steal {
        lane: u16,
        banned: u32,
    },
    /// The lane is exported and goes on as the lane rebuilt from that.
    Rebuild {
        lane: u16,
    },
    /// Measured mode is turned on or off, which must change nothing.
    Measure {
        lane: u16,
        on: bool,
    },
    /// A wave ends and another begins.
    Wave {
        picks: bool,
        span: u64,
    },
    /// A wave and a frame end; the next frame, or a later one, begins with a wave.
    NextFrame {
        skip: u64,
        picks: bool,
        span: u64,
    },
    /// The same, to the frame of the next sleeper.
    Jump {
        picks: bool,
        span: u64,
    },
}

/// What a run is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub(crate) lanes: u16,
    pub(crate) kind: Kind,
    pub(crate) quantum: u64,
    pub(crate) frame_cycles: u64,
    pub(crate) handoff: bool,
    /// Coroutines there are at most.
    pub(crate) population: u32,
    /// Whether the sequence may switch policies.
    pub(crate) switches: bool,
    /// `check` and the comparison of everything come after so many operations.
    pub(crate) check_every: u64,
    /// Whether some sessions have a cap; then there is one lane.
    pub(crate) capped: bool,
}

macro_rules! events {
    ($($name:ident, $text:literal;)*) => {
        /// Something a run is there to reach.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Event { $($name,)* }

        impl Event {
            pub(crate) const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

events! {
    Slice, "slices";
    Kept, "slices that end with a rest of the quantum";
    Displaced, "coroutines displaced at a boundary";
    Preempted, "quanta used up";
    Steal, "steals";
    Migration, "sessions migrated";
    Hold, "holds";
    HeldInSlice, "holds inside a slice";
    Release, "releases";
    Stale, "stale references";
    Reuse, "slot reuses";
    Sleep, "sleeps";
    SleepersWoken, "sleepers woken";
    Jump, "jumps";
    PolicySwitch, "policy switches";
    Effect, "effects between lanes";
    Handoff, "handoffs taken";
    RemoteHandoff, "handoffs between lanes";
    Refusal, "refusals";
    Wake, "wakes";
    WakeInSlice, "wakes inside a slice";
    SessionEnd, "sessions ended";
    Overrun, "frames with an overrun";
    Delayed, "sleepers that stay in debt";
    Rebuild, "lanes rebuilt from their export";
    Explained, "decisions explained";
    Throttled, "sessions throttled by their cap";
    Demoted, "sessions demoted by their cap";
    EndedByCap, "sessions ended by their cap";
    Refilled, "caps refilled";
}

/// How often each event was reached.
#[derive(Clone, Debug)]
pub(crate) struct Reached([u64; Event::ALL.len()]);

impl Reached {
    pub(crate) fn new() -> Self {
        Self([0; Event::ALL.len()])
    }

    pub(crate) fn count(&mut self, event: Event, times: u64) {
        self.0[event as usize] += times;
    }

    pub(crate) fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, times)| *sum += times);
    }

    /// Fails when something was never reached, unless it cannot be under this run's setup.
    pub(crate) fn require_all_but(&self, unreachable: &[Event]) {
        for &(event, text) in Event::ALL {
            println!("  {text}: {}", self.of(event));
        }
        for &(event, text) in Event::ALL {
            assert!(
                self.of(event) > 0 || unreachable.contains(&event),
                "the run never reached: {text}"
            );
        }
    }
}
