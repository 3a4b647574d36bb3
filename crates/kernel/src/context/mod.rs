//! Scheduling contexts: CPU time that a lane guarantees and limits. A budget per period, by a
//! deadline, enforced at every slice: sporadic servers as in seL4 MCS, dispatched by EDF.
//!
//! Reading order: [`RefillRing`] is the replenishment state of one budget; [`admit`] is the
//! schedulability test; `tier` holds the contexts of a lane and orders the runnable ones by
//! deadline; `enforce` is their part of dispatching; `operations` is the owner's interface (create,
//! configure, bind, unbind, revoke, read); `loan` donates a context along a call and returns it.
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
//! `G`. A context pays for its lane's time while its holder is current: guest cycles, and the
//! picks, switches and wakes they cause (the coroutine's ledger has the guest cycles alone). A
//! revoked reference is stale and runs nothing. A lane without contexts has the same decisions and
//! costs as without this module.
//!
//! Elsewhere: capabilities and names (`system`).

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

/// Parts in a thousand of a lane that its contexts may use together.
const CONTEXT_CAP: u32 = 950;
/// Parts in a thousand of a lane that the fair server reserves for best effort. What this and
/// the cap leave covers the overhead of wave and frame ends.
const FAIR_SERVER: u32 = 40;

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

/// When a refill is activated: the start of the period after which it is replenished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Activation {
    /// When its holder becomes runnable: releases keep their grid, so that a periodic loop does not
    /// drift. In any period a context uses at most the budget, the delay before it ran, and `G`.
    Sporadic = 0,
    /// When its holder becomes current: in any period a context uses at most the budget and `G`; a
    /// delayed holder gets its next refill later.
    ConstantBandwidth = 1,
}

/// How a holder that loses its context continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fallback {
    /// As best effort, under the lane's policy.
    BestEffort = 0,
    /// Not at all, until it is bound to another context.
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
    /// How its holder continues without it.
    pub fallback: Fallback,
    /// The session that owns it, whose end revokes it.
    pub owner: u32,
    /// The caller's name for the channel that is notified of timeouts.
    pub timeout: Option<u64>,
}

impl ContextParameters {
    /// A context with an implicit deadline (the period's end), four refills and the defaults.
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
    /// `G`: the longest gap between safepoints of the machine's modules.
    pub gap: Cycles,
    /// The wave's span, if this lane may wait for other lanes at its end.
    pub wave: Option<Cycles>,
}

/// The notification cell of a context: written in place, read and cleared by its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notification {
    /// Depletions since it was last read.
    pub count: u64,
    /// Depletions in all.
    pub sequence: u64,
    /// Lane clock of the first since it was last read.
    pub first: Cycles,
    /// Lane clock of the latest.
    pub last: Cycles,
    /// Cycles beyond the refill at the latest.
    pub overrun: Cycles,
}

/// An event of a context, for [`Lane::drain_context_events`](crate::Lane::drain_context_events).
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

/// What happened to a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's sentence names its fields")]
pub enum ContextEventKind {
    /// The holder used `overrun` cycles beyond its refill and waits for the next, at clock `until`.
    Throttled { until: Cycles, overrun: Cycles },
    /// The same, but the holder runs as best effort until then.
    Demoted { until: Cycles, overrun: Cycles },
    /// The holder used `overrun` cycles beyond its refill and runs on with the next one's deadline.
    Overran { deadline: Cycles, overrun: Cycles },
    /// A refill of this amount and deadline can be used.
    Replenished { amount: Cycles, deadline: Cycles },
    /// The deadline passed before the holder had used its refill, or blocked.
    Missed { deadline: Cycles },
    /// The timeout channel (by the caller's name) is to be notified: the cell was empty before.
    Notify { channel: u64 },
    /// The holder is to be ended: it used `overrun` cycles beyond its refill.
    End { overrun: Cycles },
    /// The context was lent along a call; it has `depth` loans now.
    Donated { depth: u8 },
    /// A loan was returned; `depth` are left.
    Returned { depth: u8 },
    /// The context was revoked and its `loans` were canceled.
    Revoked { loans: u8 },
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

/// A snapshot of a context, for reports.
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
