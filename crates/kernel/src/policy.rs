//! Policies: which ready coroutine a lane picks next, and whether a waiting one displaces the
//! current at a boundary.
//!
//! Contract: a policy orders picks and nothing else (policy law). Every policy here but `Fair` is a
//! class function (which of 256 classes a coroutine queues in) and a selector (which class goes
//! first); within a class the order is arrival. Both are pure functions of the record and of three
//! numbers of the lane, so that a decision can be explained by running it again.
//!
//! Elsewhere: the queue itself (`ready`), the fair queue (`fair`), quantum accounting (`lane`). The
//! bounds each policy gives are in docs/scheduler.md and are tested in tests/bounds.rs.

use crate::fair::FairSettings;
use crate::ready::Ready;
use crate::record::{Hot, NIL, Slab};
use wavelock_abi::Cycles;

/// Picks a coroutine waits under `Aging` for one level of priority.
pub const AGING_PICKS: u64 = 16;

/// Holder picks in a row after which `ProgressAware` serves the oldest other.
pub const PROGRESS_STREAK: u32 = 8;

/// How a lane orders its ready coroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// FIFO; a coroutine runs until it yields, sleeps, waits or ends. Gives no bound across
    /// coroutines.
    Cooperative,
    /// FIFO with a quantum: with `n` ready, a coroutine waits for at most `n - 1` quanta and their
    /// overhead.
    RoundRobin {
        /// Cycles a coroutine runs before it goes to the tail.
        quantum: Cycles,
    },
    /// By priority.
    Priority {
        /// Which number is the priority.
        rule: PriorityRule,
        /// Cycles a coroutine runs before it goes to the tail of its class.
        quantum: Cycles,
    },
    /// Holders of progress tokens first, but at most [`PROGRESS_STREAK`] of them in a row while
    /// another waits.
    ProgressAware {
        /// Cycles a coroutine runs before it goes to the tail.
        quantum: Cycles,
    },
    /// By virtual deadline among the eligible: time in proportion to weight (EEVDF).
    Fair(FairSettings),
}

/// What `Priority` orders by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorityRule {
    /// The priority as set. No bound across priorities.
    FixedMap,
    /// The priority plus one per [`AGING_PICKS`] picks waited.
    Aging,
    /// The progress tokens held. No bound across counts.
    TokenWeighted,
}

impl Policy {
    /// The quantum of a pick; [`Cycles::MAX`] where there is none. Under `Fair` each pick has its
    /// own; this is the neutral one.
    #[must_use]
    pub const fn quantum(&self) -> Cycles {
        match self {
            Self::Cooperative => Cycles::MAX,
            Self::Fair(settings) => settings.base_slice(),
            Self::RoundRobin { quantum }
            | Self::Priority { quantum, .. }
            | Self::ProgressAware { quantum } => *quantum,
        }
    }

    /// Whether every coroutine is in class 0 and the oldest goes first.
    pub(crate) const fn is_fifo(&self) -> bool {
        matches!(self, Self::Cooperative | Self::RoundRobin { .. })
    }

    /// The class a record queues in.
    #[inline]
    pub(crate) fn class(&self, hot: &Hot) -> u8 {
        match self {
            Self::Cooperative | Self::RoundRobin { .. } | Self::Fair(_) => 0,
            Self::Priority { rule: PriorityRule::FixedMap | PriorityRule::Aging, .. } => {
                hot.priority.0
            }
            Self::Priority { rule: PriorityRule::TokenWeighted, .. } => hot.tokens,
            Self::ProgressAware { .. } => u8::from(hot.tokens > 0),
        }
    }

    /// The class a current record counts with after a change of its priority: tokens stay those it
    /// was picked with.
    pub(crate) fn class_after_pick(&self, hot: &Hot) -> u8 {
        match self {
            Self::Priority { rule: PriorityRule::FixedMap | PriorityRule::Aging, .. } => {
                hot.priority.0
            }
            _ => hot.class,
        }
    }

    /// The record to pick, [`NIL`] when none is ready. `picks` is the lane's pick count, `streak`
    /// its holder picks in a row.
    #[inline]
    pub(crate) fn select(&self, slab: &Slab, ready: &Ready, picks: u64, streak: u32) -> u32 {
        match self {
            Self::Cooperative | Self::RoundRobin { .. } | Self::Fair(_) => ready.first(slab, 0),
            Self::Priority {
                rule: PriorityRule::FixedMap | PriorityRule::TokenWeighted, ..
            } => match ready.occupied().highest() {
                Some(class) => ready.first(slab, class),
                None => NIL,
            },
            Self::Priority { rule: PriorityRule::Aging, .. } => select_aged(slab, ready, picks),
            Self::ProgressAware { .. } => {
                let (holder, other) = (ready.first(slab, 1), ready.first(slab, 0));
                if holder == NIL || other != NIL && streak >= PROGRESS_STREAK {
                    other
                } else {
                    holder
                }
            }
        }
    }

    /// Whether `waiting`, which is queued, goes before `other` by class alone: a higher priority,
    /// not an older arrival. `other` counts with the class it is queued in or was picked from.
    /// Decides preemption of the current coroutine at a boundary, and whether a handoff may pass.
    #[inline]
    pub(crate) fn outranks(&self, slab: &Slab, waiting: u32, other: u32, picks: u64) -> bool {
        match self {
            Self::Cooperative
            | Self::RoundRobin { .. }
            | Self::ProgressAware { .. }
            | Self::Fair(_) => false,
            Self::Priority {
                rule: PriorityRule::FixedMap | PriorityRule::TokenWeighted, ..
            } => slab.hot(waiting).class > slab.hot(other).class,
            Self::Priority { rule: PriorityRule::Aging, .. } => {
                aged(slab, waiting, picks) > aged(slab, other, picks)
            }
        }
    }
}

/// The effective priority under `Aging`.
#[inline]
pub(crate) fn aged(slab: &Slab, slot: u32, picks: u64) -> u64 {
    u64::from(slab.hot(slot).priority.0) + (picks - slab.hot(slot).picks_at) / AGING_PICKS
}

/// Within a class the oldest has waited longest, so only the first of each class can win: at most
/// 256 candidates.
fn select_aged(slab: &Slab, ready: &Ready, picks: u64) -> u32 {
    let mut best = NIL;
    let mut best_key = (0, 0);
    for class in ready.occupied().iter() {
        let slot = ready.first(slab, class);
        let key = (aged(slab, slot, picks), u64::MAX - slab.hot(slot).arrival);
        if best == NIL || key > best_key {
            (best, best_key) = (slot, key);
        }
    }
    best
}
