//! The kernel's states and refusals as sentences, each with its numbers: the one place where they become prose.
//!
//! Contract: no form of the source shows through (no name of a variant or field), so that whoever reports a refusal can hand it on as it is. Names are
//! the caller's: a coroutine or context is called by its slot and generation here, because the kernel knows nothing else of it. What the small sets are
//! called ([`BlockReason`](crate::BlockReason), [`WakeSource`](crate::WakeSource), [`HoldReason`]) is in their own tables.

use crate::context::{ContextRefusal, Denied};
use crate::types::{HoldReason, HoldReasons, Refusal, State};
use core::fmt;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// What it does, as the end of a sentence that begins with the coroutine and "is".
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Running => f.write_str("running"),
            Self::Sleeping { until } => write!(f, "sleeping until frame {}", until.0),
            Self::Blocked { reason } => write!(f, "blocked: waits for {}", reason.meaning()),
            Self::Throttled { held } => write!(f, "held back: {held}"),
            Self::Finished => f.write_str("finished"),
            Self::Faulted => f.write_str("faulted"),
            Self::Canceled => f.write_str("canceled"),
        }
    }
}

/// What each reason means, in the order of their table.
impl fmt::Display for HoldReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let mut comma = "";
        for reason in HoldReason::ALL.iter().filter(|&&reason| self.contains(reason)) {
            write!(f, "{comma}{}", reason.meaning())?;
            comma = ", ";
        }
        Ok(())
    }
}

/// A coroutine as the kernel can name it.
struct Coroutine(CoroutineRef);

impl fmt::Display for Coroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the coroutine of slot {}, generation {}", self.0.slot, self.0.generation)
    }
}

/// A context as the kernel can name it.
struct Context(ContextRef);

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the context of slot {}, generation {}", self.0.slot, self.0.generation)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Stale { reference, found_generation } => {
                write!(f, "{} is gone: the slot is in generation {found_generation}", Coroutine(reference))
            }
            Self::NotReserved { live, capacity } => write!(f, "the lane has {live} coroutines and room for {capacity}"),
            Self::SessionsNotReserved { sessions, capacity } => write!(f, "the lane has {sessions} sessions and room for {capacity}"),
            Self::TooManyCoroutines { wanted, limit } => write!(f, "{wanted} coroutines on one lane; it can number {limit}"),
            Self::OutOfMemory { wanted } => write!(f, "the host has no memory for {wanted} entries more"),
            Self::NotWaiting { state } => write!(f, "the coroutine waits for no wake; it is {state}"),
            Self::WrongSource { reason, source } => {
                write!(f, "a wait for {} is not ended by this wake: {}", reason.meaning(), source.meaning())
            }
            Self::InSlice { reference } => write!(f, "{} is in the middle of a slice", Coroutine(reference)),
            Self::NotEnded { state } => write!(f, "the coroutine has not ended, so its record is still in use; it is {state}"),
            Self::Ended { state } => write!(f, "the coroutine has ended already; it is {state}"),
            Self::NotHeld { reason, held } => write!(f, "the coroutine is not held for this: {}; what holds it: {held}", reason.meaning()),
            Self::NotReady { state } => write!(f, "the coroutine is not ready, so it cannot be preferred; it is {state}"),
            Self::SlotTaken { by } => write!(f, "{} is preferred for the next pick already", Coroutine(by)),
            Self::HandoffOff => f.write_str("handoff is off for this machine"),
            Self::NoLane { lane, lanes } => write!(f, "there is no lane {}: the machine has {lanes}, counted from 0", lane.0),
            Self::LaneOut { lane } => write!(f, "lane {} is out with a worker and not back yet", lane.0),
            Self::NoSession { session, lane } => write!(f, "session {session} has no coroutine on lane {}", lane.0),
            Self::NoRoom { need, room } => write!(f, "{need} coroutines would move; the target lane has room for {room}"),
            Self::SameLane { lane } => write!(f, "both lanes are lane {}", lane.0),
            Self::OutboxFull { capacity } => write!(f, "the outbox is full: {capacity} effects of a wave were reserved"),
            Self::HoldsContext { reference } => {
                write!(f, "{} holds or lends a context, and contexts do not move to another lane", Coroutine(reference))
            }
            Self::NotMeasured => f.write_str("the counter is kept only where a lane measures, and this one does not"),
        }
    }
}

impl core::error::Error for Refusal {}

impl fmt::Display for ContextRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("the lane keeps no contexts"),
            Self::Stale { context, found_generation } => {
                write!(f, "{} is gone: the slot is in generation {found_generation}", Context(context))
            }
            Self::Coroutine(refusal) => refusal.fmt(f),
            Self::BudgetTooSmall { budget, least, gap, switch } => write!(
                f,
                "a budget of {} cannot be enforced; at least {} can: 2 * (G + switch) with G = {} of the modules and switch = {}",
                budget.0, least.0, gap.0, switch.0
            ),
            Self::BudgetAboveDeadline { budget, deadline } => {
                write!(f, "a budget of {} does not fit before a deadline of {}", budget.0, deadline.0)
            }
            Self::DeadlineAbovePeriod { deadline, period } => write!(f, "a deadline of {} is after the period of {}", deadline.0, period.0),
            Self::PeriodTooLong { period, most } => write!(f, "a period of {} is longer than the most, {}", period.0, most.0),
            Self::Refills { found } => write!(f, "{found} refills; at least 2 and at most 8 can be kept apart"),
            Self::NotReserved { live, capacity } => write!(f, "the lane has {live} contexts and room for {capacity}"),
            Self::Denied(denied) => denied.fmt(f),
            Self::ShrinkBelowDemand { used, budget } => {
                write!(f, "{} cycles of the running period are used; a budget of {} is less", used.0, budget.0)
            }
            Self::Bound { to } => write!(f, "{} holds the context already", Coroutine(to)),
            Self::TargetBound { to } => write!(f, "the coroutine has {} already", Context(to)),
            Self::NothingReady { ready, state } => {
                write!(f, "the context has nothing to give before cycle {}, and the coroutine is {state}", ready.0)
            }
            Self::NotBound => f.write_str("nobody holds the context"),
            Self::SelfUnbind { reference } => write!(f, "{} runs, and cannot take its own time away", Coroutine(reference)),
            Self::Lent { depth } => write!(f, "the context is lent ({depth} loans): wait for its return, or revoke it"),
            Self::NothingToLend => f.write_str("the caller has no context to lend"),
            Self::CalleeHasContext { context } => write!(f, "the callee has time of its own, {}: it is lent none", Context(context)),
            Self::DepthExceeded { depth, most } => write!(f, "{depth} loans are on the context, and a chain of calls has at most {most}"),
            Self::NoLoan => f.write_str("there is no such loan: it came back already, or was cut"),
        }
    }
}

impl core::error::Error for ContextRefusal {}

/// The arithmetic of an admission test that failed.
impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortfall = self.shortfall;
        write!(f, "the lane cannot promise this beside the {} it has promised: ", self.contexts)?;
        if shortfall.at > Cycles::ZERO {
            write!(f, "by the deadline at {} they need {} of {} cycles", shortfall.at.0, shortfall.demand.0, shortfall.supply.0)?;
        } else {
            f.write_str("together they use more than the lane has")?;
        }
        let percent = |part: u32| (part / 10_000, part / 100 % 100);
        let ((whole, part), (cap, rest)) = (percent(shortfall.utilisation), percent(shortfall.cap));
        write!(f, " (utilisation {whole}.{part:02} %, cap {cap}.{rest:02} %)")?;
        match self.fits {
            Some(fits) => write!(f, "; a budget of {} would fit", fits.0),
            None => f.write_str("; no budget that can be enforced would fit"),
        }
    }
}
