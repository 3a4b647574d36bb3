//! Refusals: why the kernel did not do something. One row each: the facts, and the sentence that
//! reports them.
//!
//! Contract: nothing has changed when a refusal is returned. The sentence names every fact and no
//! identifier of the source, so a caller can print it as it is. Coroutines and contexts are named
//! by slot and generation, because the kernel has no other name for it.

use crate::context::{Demand, Shortfall};
use crate::types::{BlockReason, HoldReason, HoldReasons, State, WakeSource};
use core::fmt::{self, Display, Formatter};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, LaneId};

/// A fact as a part of a sentence.
trait Fact {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result;
}

struct Words<'a, T>(&'a T);

impl<T: Fact> Display for Words<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

macro_rules! facts {
    ($($fact:ty: $value:ident => $text:literal, $($argument:expr),*;)*) => {
        $(impl Fact for $fact {
            fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
                let $value = self;
                write!(f, $text, $($argument),*)
            }
        })*
    };
}

facts! {
    u8: number => "{}", number;
    u32: number => "{}", number;
    u64: number => "{}", number;
    Cycles: cycles => "{}", cycles.0;
    LaneId: lane => "{}", lane.0;
    CoroutineRef: this => "the coroutine of slot {}, generation {}", this.slot, this.generation;
    ContextRef: this => "the context of slot {}, generation {}", this.slot, this.generation;
    BlockReason: reason => "{}", reason.meaning();
    WakeSource: source => "{}", source.meaning();
    HoldReason: reason => "{}", reason.meaning();
    HoldReasons: held => "{}", held;
    State: state => "{}", state;
    Refusal: refusal => "{}", refusal;
    Denied: denied => "{}", denied;
}

macro_rules! refusals {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident $({ $($field:ident: $fact:ty),* })? $(($inner:ident: $inner_fact:ty))?,
            $text:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "the sentence of each row names its facts")]
        pub enum $name {
            $(#[doc = $text] $variant $({ $($field: $fact),* })? $(($inner_fact))?,)*
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? => {
                        $($(let $field = Words($field);)*)?
                        $(let $inner = Words($inner);)?
                        write!(f, $text)
                    })*
                }
            }
        }

        impl core::error::Error for $name {}
    };
}

refusals! {
    /// Why the kernel did not do something. Nothing has changed when one is returned.
    Refusal {
        Stale { reference: CoroutineRef, found_generation: u32 }, "{reference} was removed: its slot is in generation {found_generation}";
        NotReserved { live: u32, capacity: u32 }, "the lane has {live} coroutines and room for {capacity}";
        SessionsNotReserved { sessions: u32, capacity: u32 }, "the lane has {sessions} sessions and room for {capacity}";
        TooManyCoroutines { wanted: u64, limit: u64 }, "{wanted} coroutines on one lane; it can number {limit}";
        OutOfMemory { wanted: u32 }, "the host has no memory for {wanted} entries more";
        NotWaiting { state: State }, "the coroutine waits for no wake; it is {state}";
        WrongSource { reason: BlockReason, source: WakeSource }, "a wait for {reason} is not ended by this wake: {source}";
        InSlice { reference: CoroutineRef }, "{reference} is in the middle of a slice; stop it first";
        NotEnded { state: State }, "the coroutine has not ended, so its record is still in use; it is {state}";
        Ended { state: State }, "the coroutine has ended already; it is {state}";
        NotHeld { reason: HoldReason, held: HoldReasons }, "the coroutine is not held for this: {reason}; what holds it: {held}";
        NotReady { state: State }, "the coroutine is not ready, so it cannot be preferred; it is {state}";
        SlotTaken { by: CoroutineRef }, "{by} is preferred for the next pick already";
        HandoffOff, "handoff is off for this machine";
        NoSession { session: u32, lane: LaneId }, "session {session} has no coroutine on lane {lane}";
        NoRoom { need: u32, room: u32 }, "{need} coroutines would move; the target lane has room for {room}";
        NoRoomForCap { session: u32, room: u32 }, "session {session} has a cap; the target lane has room for {room} caps, all taken";
        Cap { budget: Cycles, least: Cycles, period_frames: u64 }, "a cap of {budget} cycles per {period_frames} frames cannot be set: it needs at least {least} cycles and 1 frame, and an account that is not used up";
        Leased { lane: LaneId }, "lane {lane} is leased: it runs the holder of its lease and nothing else";
        HoldsContext { reference: CoroutineRef }, "{reference} holds or lends a context, and contexts do not move to another lane";
    }
}

refusals! {
    /// Why the kernel did not do something with a context. Nothing has changed when one is
    /// returned.
    ContextRefusal {
        Off, "the lane keeps no contexts";
        Stale { context: ContextRef, found_generation: u32 }, "{context} was removed: its slot is in generation {found_generation}";
        Coroutine(refusal: Refusal), "{refusal}";
        BudgetTooSmall { budget: Cycles, least: Cycles, gap: Cycles, switch: Cycles }, "a budget of {budget} cannot be enforced; at least {least} can: 2 * (G + switch) with G = {gap} of the modules and switch = {switch}";
        BudgetAboveDeadline { budget: Cycles, deadline: Cycles }, "a budget of {budget} does not fit before a deadline of {deadline}";
        DeadlineAbovePeriod { deadline: Cycles, period: Cycles }, "a deadline of {deadline} is after the period of {period}";
        PeriodTooLong { period: Cycles, most: Cycles }, "a period of {period} is longer than the most, {most}";
        Refills { found: u8 }, "{found} refills; at least 2 and at most 8 can be kept apart";
        NotReserved { live: u32, capacity: u32 }, "the lane has {live} contexts and room for {capacity}";
        Denied(denied: Denied), "{denied}";
        ShrinkBelowDemand { used: Cycles, budget: Cycles }, "{used} cycles of the running period are used; a budget of {budget} is less";
        Bound { to: CoroutineRef }, "{to} holds the context already";
        TargetBound { to: ContextRef }, "the coroutine has {to} already";
        NothingReady { state: State, ready: Cycles }, "the context has no refill before cycle {ready}, and the coroutine is {state}";
        NotBound, "no coroutine holds the context";
        SelfUnbind { reference: CoroutineRef }, "{reference} runs on this context and cannot unbind it; revoke it instead";
        Lent { depth: u8 }, "the context is lent ({depth} loans): wait for its return, or revoke it";
        NothingToLend, "the caller has no context to lend";
        CalleeHasContext { context: ContextRef }, "the callee has a context of its own, {context}: it is lent none";
        DepthExceeded { depth: u8, most: u8 }, "{depth} loans are on the context, and a chain of calls has at most {most}";
        NoLoan, "there is no such loan: it was returned already, or revoked";
    }
}

/// An admission that was denied, with its arithmetic.
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

impl Display for Denied {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Shortfall { at, demand, supply, utilisation, cap } = self.shortfall;
        write!(f, "the lane cannot promise this beside the {} it has promised: ", self.contexts)?;
        if at > Cycles::ZERO {
            let (at, demand, supply) = (at.0, demand.0, supply.0);
            write!(f, "by the deadline at {at} they need {demand} of {supply} cycles")?;
        } else {
            f.write_str("together they use more than the lane has")?;
        }
        let percent = |part: u32| (part / 10_000, part / 100 % 100);
        let ((whole, part), (cap, rest)) = (percent(utilisation), percent(cap));
        write!(f, " (utilisation {whole}.{part:02} %, cap {cap}.{rest:02} %)")?;
        match self.fits {
            Some(fits) => write!(f, "; a budget of {} would fit", fits.0),
            None => f.write_str("; no budget that can be enforced would fit"),
        }
    }
}
