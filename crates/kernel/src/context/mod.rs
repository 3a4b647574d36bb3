//! Scheduling contexts: CPU time as something a lane owes. A budget per period, by a deadline, enforced at every slice.
//!
//! The story in reading order: [`RefillRing`] says how much of a budget may be used and from when; [`admit`] whether a lane can
//! keep one more promise; the tier holds the contexts of a lane and orders those that can run by deadline; `enforce` is what the dispatcher does
//! with them; `operations` is what the owner of time does (create, configure, bind, unbind, revoke, consumed, yield); `loan` lends a
//! context along a call and takes it back.
//!
//! ```text
//!                bind               wakes, budget ready           picked
//!     Idle ---------------> Waiting ---------------------> Ready <--------> Current
//!      ^                     |  ^                            ^                |  head used up
//!      | unbind, its         |  | waits, sleeps              | refill         v
//!      | holder ended        |  +----------------------------|------ Throttled or Demoted
//!      +---------------------+           wakes, budget used up: Throttled or Demoted
//! ```
//!
//! Contract: a context runs at most one coroutine and a coroutine holds at most one context. While a holder is in the tier it is in no
//! other queue. A slice exceeds the head refill by less than `G`. A context pays for the whole of its lane's time while its holder is current: guest
//! cycles, and the pick, switch and wakes that it causes (the coroutine's own ledger has the guest cycles alone). A revoked reference is stale,
//! and nothing runs through it. Without contexts a lane decides and costs exactly what it did before there were any.
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

pub use admission::{Demand, MOST_POINTS, Shortfall, Terms, admit, largest_budget};
pub use books::{ContextBook, Executed};
pub use loan::{LOAN_DEPTH, Loan};
pub use refill::{Charged, LEAST_REFILLS, MOST_REFILLS, Refill, RefillRing};
pub use state::{ContextState, LiveContextState, ServerState, TierState};
pub(crate) use tier::Tier;

use crate::types::{Refusal, State, Tag};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// Parts in a thousand of a lane that contexts may take together, unless settings say otherwise.
pub const CONTEXT_CAP: u32 = 950;
/// Parts in a thousand of a lane that best-effort work is never denied; what is left beside this and the cap covers the boundaries' overhead.
pub const FAIR_SERVER: u32 = 40;

/// What a context does when its holder has used up what it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum OverrunPolicy {
    /// The holder waits for the next refill.
    #[default]
    Throttle = 0,
    /// The same, and the timeout channel is told.
    NotifyAndThrottle = 1,
    /// The holder goes on as best effort until the next refill.
    Demote = 2,
    /// The timeout channel is told and the holder goes on with the deadline of the refill it borrows from: other contexts are not harmed,
    /// best-effort work may be. For measuring how much a budget would have to be.
    NotifyOnly = 3,
    /// The holder is to be ended.
    End = 4,
}

impl OverrunPolicy {
    /// Every policy; the position is the code.
    pub const ALL: &'static [Self] = &[Self::Throttle, Self::NotifyAndThrottle, Self::Demote, Self::NotifyOnly, Self::End];

    /// The word of manifests and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttle",
            Self::NotifyAndThrottle => "notify-and-throttle",
            Self::Demote => "demote",
            Self::NotifyOnly => "notify-only",
            Self::End => "end",
        }
    }

    /// The policy of a number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether it tells the timeout channel.
    #[must_use]
    pub const fn notifies(self) -> bool {
        matches!(self, Self::NotifyAndThrottle | Self::NotifyOnly)
    }
}

/// From when a refill counts as in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Activation {
    /// When its holder becomes runnable: releases keep their grid whatever delays the holder, so that a periodic loop does not drift. In any
    /// period at most the budget, the delay before it ran, and `G`.
    #[default]
    Sporadic = 0,
    /// When its holder becomes current: in any period at most the budget and `G`, whatever else runs; a delayed holder gets its next refill later.
    ConstantBandwidth = 1,
}

/// What becomes of a holder that loses its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Fallback {
    /// It is an ordinary coroutine of the lane's policy.
    #[default]
    BestEffort = 0,
    /// It does not run until it is bound to another context.
    Held = 1,
}

/// What a context promises and is promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextParameters {
    /// Cycles per period.
    pub budget: Cycles,
    /// The period.
    pub period: Cycles,
    /// Cycles from a release to its deadline.
    pub deadline: Cycles,
    /// Refills it can keep apart, [`LEAST_REFILLS`] to [`MOST_REFILLS`].
    pub refills: u8,
    /// What happens when a refill is used up.
    pub overrun: OverrunPolicy,
    /// When a refill is in use.
    pub activation: Activation,
    /// What becomes of the holder when the context goes.
    pub fallback: Fallback,
    /// The session that owns it: its end revokes it.
    pub owner: u32,
    /// The caller's name for the channel that is told about timeouts.
    pub timeout: Option<u64>,
}

impl ContextParameters {
    /// A context with the deadline at the period's end, four refills and the defaults.
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

    /// What it asks of a lane.
    #[must_use]
    pub const fn demand(&self) -> Demand {
        Demand { budget: self.budget, period: self.period, deadline: self.deadline }
    }
}

/// What a lane with contexts is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextSettings {
    /// `G`: the longest gap between safepoints of what runs here.
    pub gap: Cycles,
    /// Parts in a thousand of the lane for contexts.
    pub cap: u32,
    /// Parts in a thousand for the fair server.
    pub server: u32,
    /// The wave's span if other lanes can make this one wait at its end.
    pub wave: Option<Cycles>,
}

impl ContextSettings {
    /// The defaults for a gap.
    #[must_use]
    pub const fn new(gap: Cycles) -> Self {
        Self { gap, cap: CONTEXT_CAP, server: FAIR_SERVER, wave: None }
    }
}

/// What a context's cell says: written in place, read and cleared by its owner. Never queued, never allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notification {
    /// Depletions since it was read.
    pub count: u64,
    /// Depletions in all.
    pub sequence: u64,
    /// Lane clock of the first since it was read.
    pub first: Cycles,
    /// Lane clock of the last.
    pub last: Cycles,
    /// Cycles beyond the refill at the last.
    pub overrun: Cycles,
}

/// What a lane did with a context, for the record. In the order it happened; drained by [`Lane::drain_context_events`](crate::Lane::drain_context_events).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextEvent {
    /// The lane's clock.
    pub at: Cycles,
    /// The context.
    pub context: ContextRef,
    /// Its holder.
    pub holder: Option<Tag>,
    /// What.
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
    /// The holder goes on as best effort.
    Demoted {
        /// Until this clock.
        until: Cycles,
        /// Cycles used beyond the refill.
        overrun: Cycles,
    },
    /// The refill was used up and the holder goes on, with the next refill's deadline.
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
    /// The deadline passed before the holder had what it was promised, or was done.
    Missed {
        /// The deadline.
        deadline: Cycles,
    },
    /// The timeout channel is to be told: the cell was empty before.
    Notify {
        /// The caller's name for the channel.
        channel: u64,
    },
    /// The holder is to be ended.
    End,
    /// The context was lent along a call.
    Donated {
        /// Loans on it now.
        depth: u8,
    },
    /// A loan came back.
    Returned {
        /// Loans left on it.
        depth: u8,
    },
    /// The context is gone.
    Revoked {
        /// Loans that were cut.
        loans: u8,
    },
}

/// Why the kernel did not do something with a context. Nothing has changed when one is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextRefusal {
    /// The lane keeps no contexts.
    Off,
    /// The reference names a use of the slot that is over.
    Stale {
        /// The reference.
        context: ContextRef,
        /// The generation the slot has now.
        found_generation: u32,
    },
    /// The coroutine cannot be bound, lent to or asked about.
    Coroutine(Refusal),
    /// A budget that could not be enforced: 2 * (G + switch) is the least.
    BudgetTooSmall {
        /// Asked for.
        budget: Cycles,
        /// The least.
        least: Cycles,
        /// `G`.
        gap: Cycles,
        /// The cost of a switch.
        switch: Cycles,
    },
    /// The budget does not fit before the deadline.
    BudgetAboveDeadline {
        /// The budget.
        budget: Cycles,
        /// The deadline.
        deadline: Cycles,
    },
    /// The deadline is after the period.
    DeadlineAbovePeriod {
        /// The deadline.
        deadline: Cycles,
        /// The period.
        period: Cycles,
    },
    /// A period longer than clocks are sure to count.
    PeriodTooLong {
        /// Asked for.
        period: Cycles,
        /// The most.
        most: Cycles,
    },
    /// A ring of so many refills cannot be.
    Refills {
        /// Asked for.
        found: u8,
    },
    /// No room was reserved for one more.
    NotReserved {
        /// Contexts there are.
        live: u32,
        /// Contexts that were reserved.
        capacity: u32,
    },
    /// The lane cannot promise this beside what it has promised.
    Denied(Denied),
    /// In the running period more was used than the new budget.
    ShrinkBelowDemand {
        /// Used and not yet back.
        used: Cycles,
        /// The new budget.
        budget: Cycles,
    },
    /// The context is bound.
    Bound {
        /// To this coroutine.
        to: CoroutineRef,
    },
    /// The coroutine has a context.
    TargetBound {
        /// This one.
        to: ContextRef,
    },
    /// The coroutine waits and the context has nothing to give: nobody could say when it runs.
    NothingReady {
        /// What the coroutine does.
        state: State,
        /// When the context has something.
        ready: Cycles,
    },
    /// The context is not bound.
    NotBound,
    /// A running coroutine cannot take its own time away.
    SelfUnbind {
        /// The coroutine.
        reference: CoroutineRef,
    },
    /// The context is lent: configure or unbind it when it is back, or revoke it.
    Lent {
        /// Loans on it.
        depth: u8,
    },
    /// The caller has no context to lend.
    NothingToLend,
    /// The callee has time of its own; the message is delivered without any.
    CalleeHasContext {
        /// Its context.
        context: ContextRef,
    },
    /// The chain of calls is as long as it may be.
    DepthExceeded {
        /// Loans on the context.
        depth: u8,
        /// The most.
        most: u8,
    },
    /// There is no such loan to return: it came back already, or was cut.
    NoLoan,
}

/// An admission that was denied, with its arithmetic. What the lane adds to the demand is in [`Lane::context_terms`](crate::Lane::context_terms).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// Contexts the lane has already.
    pub contexts: u32,
    /// What was asked for.
    pub wanted: Demand,
    /// Where it fails.
    pub shortfall: Shortfall,
    /// The largest budget that would have been admitted with this period and deadline.
    pub fits: Option<Cycles>,
}

/// Where a context is. See the header's picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ContextPhase {
    /// It has no holder.
    Idle = 0,
    /// Its holder is not runnable.
    Waiting = 1,
    /// Its holder is queued in the tier.
    Ready = 2,
    /// Its holder is the lane's current coroutine.
    Current = 3,
    /// Its holder could run, and waits for a refill.
    Throttled = 4,
    /// Its holder is best effort until the next refill.
    Demoted = 5,
}

impl ContextPhase {
    /// The word of reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Current => "current",
            Self::Throttled => "throttled",
            Self::Demoted => "demoted",
        }
    }

    /// The phase of a number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Idle,
            1 => Self::Waiting,
            2 => Self::Ready,
            3 => Self::Current,
            4 => Self::Throttled,
            5 => Self::Demoted,
            _ => return None,
        })
    }
}

/// What a context has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextCounts {
    /// Lane time charged to it, in all.
    pub consumed: Cycles,
    /// Times its holder was throttled.
    pub throttles: u64,
    /// Times its holder was demoted.
    pub demotions: u64,
    /// Refills that came back to a holder waiting for them.
    pub replenishments: u64,
    /// Deadlines missed.
    pub misses: u64,
    /// Most cycles a slice went beyond a refill.
    pub longest_overrun: Cycles,
    /// Times it was lent.
    pub donations: u64,
}

/// What can be read of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextView {
    /// Its reference.
    pub context: ContextRef,
    /// What it promises.
    pub parameters: ContextParameters,
    /// Where it is.
    pub phase: ContextPhase,
    /// Who holds it.
    pub holder: Option<CoroutineRef>,
    /// The deadline of the refill in use.
    pub deadline: Cycles,
    /// Loans on it.
    pub loans: u8,
    /// Its refills.
    pub ring: RefillRing,
    /// What it has done.
    pub counts: ContextCounts,
    /// Its cell.
    pub cell: Notification,
}
