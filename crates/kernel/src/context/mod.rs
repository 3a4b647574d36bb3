//! Scheduling contexts: CPU time that a lane guarantees and limits. A budget per period, by a
//! deadline, enforced at every slice (sporadic servers as in seL4 MCS, ordered by EDF).
//!
//! Reading order: [`RefillRing`] is the replenishment state of one budget; [`admit`] the test that
//! a lane can keep one more guarantee; `tier` holds the contexts of a lane and orders the runnable
//! ones by deadline; `enforce` is their part of dispatching; `operations` is the interface of the
//! owner (create, configure, bind, unbind, revoke, read); `loan` donates a context along a call and
//! returns it.
//!
//! ```text
//!                bind               wakes, refill ready           dispatched
//!     Idle ---------------> Waiting ---------------------> Ready <---------> Current
//!      ^                     |  ^                            ^                 |  head refill
//!      | unbind,             |  | blocks, sleeps             | replenished     v  used up
//!      | holder ended        |  +----------------------------|------- Throttled or Demoted
//!      +---------------------+           wakes, no refill ready: Throttled or Demoted
//! ```
//!
//! Contract: a context runs at most one coroutine and a coroutine holds at most one context. While
//! a holder is in the tier it is in no other queue. A slice exceeds the head refill by less than
//! `G`. A context pays for all of its lane's time while its holder is current: guest cycles, and
//! the picks, switches and wakes that it causes (the coroutine's own ledger has the guest cycles
//! alone). A revoked reference is stale, and nothing runs through it. Without contexts a lane
//! decides and costs exactly what it would without this module.
//!
//! Elsewhere: who may do any of this (capabilities: `system`), and names.

mod admission;
mod books;
mod enforce;
mod heap;
mod loan;
mod operations;
mod refill;
mod state;
mod tier;

pub use admission::{Demand, Shortfall, Terms, admit};
pub use books::{ContextBook, Executed};
pub use loan::{LOAN_DEPTH, Loan};
pub use refill::{Charged, Refill, RefillRing};
pub use state::{ContextState, LiveContextState, ServerState, TierState};
pub(crate) use tier::{Payer, Tier};

pub use crate::refusal::{ContextRefusal, Denied};
use crate::types::{Tag, numbered};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// Parts in a thousand of a lane that contexts may take together, unless settings say otherwise.
pub const CONTEXT_CAP: u32 = 950;
/// Parts in a thousand of a lane that best-effort work is never denied; what is left beside this
/// and the cap covers the boundaries' overhead.
pub const FAIR_SERVER: u32 = 40;

numbered! {
    /// What happens to the holder of a context when its head refill is used up.
    OverrunPolicy {
        Throttle = 0, "throttle", "the holder waits for the next refill";
        NotifyAndThrottle = 1, "notify-and-throttle", "the same, and the timeout channel is notified";
        Demote = 2, "demote", "the holder runs as best effort until the next refill";
        NotifyOnly = 3, "notify-only", "the timeout channel is notified and the holder runs on with the deadline of the refill it borrows from: other contexts are not harmed, best-effort work may be; for measuring which budget would be enough";
        End = 4, "end", "the holder is to be ended";
    }
}

impl OverrunPolicy {
    /// Whether it notifies the timeout channel.
    #[must_use]
    pub const fn notifies(self) -> bool {
        matches!(self, Self::NotifyAndThrottle | Self::NotifyOnly)
    }
}

/// When a refill is activated: the start of the period after which it is replenished.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Activation {
    /// When its holder becomes runnable: releases keep their grid whatever delays the holder, so
    /// that a periodic loop does not drift. In any period a context consumes at most the budget,
    /// the delay before it ran, and `G`.
    #[default]
    Sporadic = 0,
    /// When its holder becomes current: in any period a context consumes at most the budget and
    /// `G`, whatever else runs; a delayed holder gets its next refill later.
    ConstantBandwidth = 1,
}

/// What a holder that loses its context does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Fallback {
    /// It runs under the lane's policy.
    #[default]
    BestEffort = 0,
    /// It does not run until it is bound to another context.
    Held = 1,
}

/// The parameters of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextParameters {
    /// Cycles per period.
    pub budget: Cycles,
    /// The period.
    pub period: Cycles,
    /// Cycles from a release to its deadline.
    pub deadline: Cycles,
    /// Capacity of its refill ring, 2 to 8.
    pub refills: u8,
    /// What happens when the head refill is used up.
    pub overrun: OverrunPolicy,
    /// When a refill is activated.
    pub activation: Activation,
    /// What the holder does without the context.
    pub fallback: Fallback,
    /// The session that owns it: its end revokes it.
    pub owner: u32,
    /// The caller's name for the channel that is notified of timeouts.
    pub timeout: Option<u64>,
}

impl ContextParameters {
    /// An implicit deadline (the period's end), four refills and the defaults.
    #[must_use]
    pub const fn new(budget: Cycles, period: Cycles) -> Self {
        Self {
            budget,
            period,
            deadline: period,
            refills: 4,
            overrun: OverrunPolicy::Throttle,
            activation: Activation::Sporadic,
            fallback: Fallback::BestEffort,
            owner: 0,
            timeout: None,
        }
    }

    /// Its demand on a lane, for admission.
    #[must_use]
    pub const fn demand(&self) -> Demand {
        Demand { budget: self.budget, period: self.period, deadline: self.deadline }
    }
}

/// Configuration of a lane with contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextSettings {
    /// `G`: the longest gap between safepoints of what runs here.
    pub gap: Cycles,
    /// Parts in a thousand of the lane for contexts.
    pub cap: u32,
    /// Parts in a thousand for the fair server.
    pub server: u32,
    /// The wave's span, if this lane can have to wait for others at its end.
    pub wave: Option<Cycles>,
}

impl ContextSettings {
    /// The defaults for a gap.
    #[must_use]
    pub const fn new(gap: Cycles) -> Self {
        Self { gap, cap: CONTEXT_CAP, server: FAIR_SERVER, wave: None }
    }
}

/// The notification cell of a context: written in place, read and cleared by its owner. Never
/// queued, never allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notification {
    /// Depletions since it was last read.
    pub count: u64,
    /// Depletions in all.
    pub sequence: u64,
    /// Lane clock of the first since it was last read.
    pub first: Cycles,
    /// Lane clock of the last.
    pub last: Cycles,
    /// Cycles beyond the refill at the last.
    pub overrun: Cycles,
}

/// What happened to a context, in order; drained by
/// [`Lane::drain_context_events`](crate::Lane::drain_context_events).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextEvent {
    /// The lane's clock.
    pub at: Cycles,
    /// The context.
    pub context: ContextRef,
    /// Its holder.
    pub holder: Option<Tag>,
    /// What happened.
    pub kind: ContextEventKind,
}

/// See [`ContextEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextEventKind {
    /// The holder waits for a refill.
    Throttled {
        /// Until this clock.
        until: Cycles,
        /// Cycles used beyond the refill.
        overrun: Cycles,
    },
    /// The holder runs as best effort.
    Demoted {
        /// Until this clock.
        until: Cycles,
        /// Cycles used beyond the refill.
        overrun: Cycles,
    },
    /// The refill was used up and the holder runs on, with the next refill's deadline.
    Overran {
        /// That deadline.
        deadline: Cycles,
        /// Cycles used beyond the refill.
        overrun: Cycles,
    },
    /// A refill can be used.
    Replenished {
        /// How much.
        amount: Cycles,
        /// Its deadline.
        deadline: Cycles,
    },
    /// The deadline passed before the holder had consumed its refill, or blocked.
    Missed {
        /// The deadline.
        deadline: Cycles,
    },
    /// The timeout channel is to be notified: the cell was empty before.
    Notify {
        /// The caller's name for the channel.
        channel: u64,
    },
    /// The holder is to be ended.
    End,
    /// The context was donated along a call.
    Donated {
        /// Loans on it now.
        depth: u8,
    },
    /// A loan came back.
    Returned {
        /// Loans left on it.
        depth: u8,
    },
    /// The context was revoked.
    Revoked {
        /// Loans that were cancelled.
        loans: u8,
    },
}

numbered! {
    /// The state of a context; see the picture in [`context`](crate::context).
    ContextPhase {
        Idle = 0, "idle", "it has no holder";
        Waiting = 1, "waiting", "its holder is not runnable";
        Ready = 2, "ready", "its holder is queued in the tier";
        Current = 3, "current", "its holder is the lane's current coroutine";
        Throttled = 4, "throttled", "its holder is runnable, and waits for a refill";
        Demoted = 5, "demoted", "its holder is best effort until the next refill";
    }
}

/// Statistics of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextCounts {
    /// Lane time charged to it.
    pub consumed: Cycles,
    /// Times its holder was throttled.
    pub throttles: u64,
    /// Times its holder was demoted.
    pub demotions: u64,
    /// Refills that ended a throttling or a demotion.
    pub replenishments: u64,
    /// Deadlines missed.
    pub misses: u64,
    /// Most cycles a slice ran beyond a refill.
    pub longest_overrun: Cycles,
    /// Times it was donated.
    pub donations: u64,
}

/// A context, for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextView {
    /// Its reference.
    pub context: ContextRef,
    /// Its parameters.
    pub parameters: ContextParameters,
    /// Its state.
    pub phase: ContextPhase,
    /// Its holder.
    pub holder: Option<CoroutineRef>,
    /// The deadline of the head refill.
    pub deadline: Cycles,
    /// Loans on it.
    pub loans: u8,
    /// Its refills.
    pub ring: RefillRing,
    /// Its statistics.
    pub counts: ContextCounts,
    /// Its notification cell.
    pub cell: Notification,
}
