//! Policies: which ready coroutine a lane picks next, and whether a ready one preempts the current
//! coroutine at a boundary.
//!
//! Contract: a policy orders picks and nothing else (law 3, docs/spec/laws.md). Every policy but
//! `Fair` is a row of one table: a class function (which of 256 classes a coroutine queues in) and
//! a rule that selects the class; within a class the order is arrival. Both are pure functions of
//! the record and of the lane's pick count and streak, so that a decision can be explained by
//! making it again.
//!
//! Elsewhere: the queue itself (`ready`), the fair queue (`fair`), quantum accounting (`lane`). The
//! bounds are derived in docs/scheduler.md and tested in tests/bounds.rs.

use crate::fair::{FairSettings, Sharing};
use crate::ready::Ready;
use crate::record::{Hot, NIL, Slab};
use wavelock_abi::Cycles;

/// Picks a coroutine waits under `Aging` for one level of priority.
pub(crate) const AGING_PICKS: u64 = 16;

/// Holder picks in a row after which `ProgressAware` serves the oldest other.
pub(crate) const PROGRESS_STREAK: u32 = 8;

/// How a lane orders its ready coroutines, with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// FIFO without a quantum.
    Cooperative,
    /// FIFO with a quantum.
    RoundRobin {
        /// Cycles a coroutine runs before it moves to the tail.
        quantum: Cycles,
    },
    /// By priority.
    Priority {
        /// Which number is the priority.
        rule: PriorityRule,
        /// Cycles a coroutine runs before it moves to the tail of its class.
        quantum: Cycles,
    },
    /// Holders of progress tokens first, with a bound on how often others are passed over.
    ProgressAware {
        /// Cycles a coroutine runs before it moves to the tail.
        quantum: Cycles,
    },
    /// By virtual deadline among the eligible: time in proportion to weight (EEVDF).
    Fair(FairSettings),
}

/// What `Priority` orders by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorityRule {
    /// The priority as set.
    FixedMap,
    /// The priority plus one per 16 picks waited.
    Aging,
    /// The progress tokens held.
    TokenWeighted,
}

/// Which class a pick comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Selector {
    /// Class 0: every coroutine is in it.
    Only,
    /// The highest class.
    Highest,
    /// The class whose first coroutine has the highest aged priority.
    Aged,
    /// Class 1, the holders, but class 0 after 8 of them in a row.
    Holders,
}

macro_rules! policies {
    ($($(#[$default:meta])* $kind:ident, $name:literal, $class:expr, $selector:ident,
        $bound:literal, $meaning:literal;)*) => {
        /// A policy without its parameters: one row of the table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(u8)]
        pub enum PolicyKind {
            $($(#[$default])* #[doc = $meaning] $kind,)*
        }

        impl PolicyKind {
            /// Every one, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];
            /// Their names, in table order.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Its name in manifests, on the command line and in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// What it does, for help and documents.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }

            /// How long a ready coroutine waits at most with `n` ready, for the documents.
            #[must_use]
            pub const fn bound(self) -> &'static str {
                match self { $(Self::$kind => $bound,)* }
            }

            /// The class that a record queues in.
            fn class(self, hot: &Hot) -> u8 {
                let class: fn(&Hot) -> u8 = match self { $(Self::$kind => $class,)* };
                class(hot)
            }

            const fn selector(self) -> Selector {
                match self { $(Self::$kind => Selector::$selector,)* }
            }
        }
    };
}

policies! {
    Cooperative, "cooperative", |_| 0, Only, "none",
        "switches only at yield, sleep and wait; no bound on how long others wait";
    #[default]
    RoundRobin, "round-robin", |_| 0, Only, "n - 1 quanta and their overhead",
        "in turn, each for at most a quantum";
    PriorityFixed, "priority-fixed", |hot| hot.priority.0, Highest,
        "none across priorities; round-robin within one",
        "larger `priority` first; no bound across priorities, first come first served within one";
    PriorityAging, "priority-aging", |hot| hot.priority.0, Aged,
        "16 picks per level by which another's priority is higher, and n - 1 picks",
        "larger `priority` first, and one more for every 16 picks waited";
    PriorityToken, "priority-token", |hot| hot.tokens, Highest,
        "none across counts; round-robin within one",
        "more progress tokens first; no bound across counts, first come first served within one";
    ProgressAware, "progress-aware", |hot| u8::from(hot.tokens > 0), Holders,
        "9 picks for each of the others",
        "holders of progress tokens first, but after 8 of them in a row the oldest other";
    Fair, "fair", |_| 0, Only, "the lag bound: less than one slice behind its share",
        "EEVDF: time in proportion to `weight`, latency by `class`";
}

impl PolicyKind {
    /// The policy of a name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The policy with this quantum; `None` for `Fair`, which needs [`FairSettings`].
    #[must_use]
    pub const fn with_quantum(self, quantum: Cycles) -> Option<Policy> {
        Some(match self {
            Self::Cooperative => Policy::Cooperative,
            Self::RoundRobin => Policy::RoundRobin { quantum },
            Self::PriorityFixed => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
            Self::PriorityAging => Policy::Priority { rule: PriorityRule::Aging, quantum },
            Self::PriorityToken => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
            Self::ProgressAware => Policy::ProgressAware { quantum },
            Self::Fair => return None,
        })
    }
}

impl Policy {
    /// The policy without its parameters.
    #[must_use]
    pub const fn kind(&self) -> PolicyKind {
        match self {
            Self::Cooperative => PolicyKind::Cooperative,
            Self::RoundRobin { .. } => PolicyKind::RoundRobin,
            Self::Priority { rule: PriorityRule::FixedMap, .. } => PolicyKind::PriorityFixed,
            Self::Priority { rule: PriorityRule::Aging, .. } => PolicyKind::PriorityAging,
            Self::Priority { rule: PriorityRule::TokenWeighted, .. } => PolicyKind::PriorityToken,
            Self::ProgressAware { .. } => PolicyKind::ProgressAware,
            Self::Fair(_) => PolicyKind::Fair,
        }
    }

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

    /// Who shares a lane by weight: coroutines, unless the policy is `Fair` among sessions.
    #[must_use]
    pub const fn sharing(&self) -> Sharing {
        match self {
            Self::Fair(settings) => settings.sharing(),
            _ => Sharing::Coroutine,
        }
    }

    /// Whether the oldest ready coroutine goes first.
    pub(crate) const fn is_fifo(&self) -> bool {
        matches!(self.kind(), PolicyKind::Cooperative | PolicyKind::RoundRobin)
    }

    /// The class that a record queues in.
    pub(crate) fn class(&self, hot: &Hot) -> u8 {
        self.kind().class(hot)
    }

    /// The class of a current record after a change of its priority: tokens stay those it was
    /// picked with.
    pub(crate) fn class_after_pick(&self, hot: &Hot) -> u8 {
        match self.kind() {
            PolicyKind::PriorityFixed | PolicyKind::PriorityAging => hot.priority.0,
            _ => hot.class,
        }
    }

    /// The record to pick, [`NIL`] when none is ready. `picks` is the lane's pick count.
    pub(crate) fn select(&self, slab: &Slab, ready: &Ready, picks: u64) -> u32 {
        match self.kind().selector() {
            Selector::Only => ready.first(slab, 0),
            Selector::Highest => {
                ready.occupied().highest().map_or(NIL, |class| ready.first(slab, class))
            }
            Selector::Aged => select_aged(slab, ready, picks),
            Selector::Holders => {
                let (holder, other) = (ready.first(slab, 1), ready.first(slab, 0));
                let serves_other = holder == NIL || other != NIL && ready.streak >= PROGRESS_STREAK;
                if serves_other { other } else { holder }
            }
        }
    }

    /// Whether `ready`, which is queued, goes before `other` by rank: the class, or under `Aging`
    /// the aged priority; arrival never counts. `other` has the class it is queued in or was picked
    /// from. Decides preemption of the current coroutine at a boundary, and whether a handoff is
    /// taken.
    pub(crate) fn outranks(&self, slab: &Slab, ready: u32, other: u32, picks: u64) -> bool {
        match self.kind().selector() {
            Selector::Only | Selector::Holders => false,
            Selector::Highest => slab.hot(ready).class > slab.hot(other).class,
            Selector::Aged => aged(slab, ready, picks) > aged(slab, other, picks),
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
