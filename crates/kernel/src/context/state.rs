//! The contexts of a lane as plain data, and rebuilding them from that: part of `export`.
//!
//! Contract: everything a later decision can depend on is here; heaps and the tables of holders and
//! lenders are rebuilt from the contexts. The data is untrusted: every index is checked, and the
//! lane's own check runs over the result. Its encoding is in the system crate.

use super::refill::{Refill, RefillRing};
use super::tier::Context;
use super::{
    ContextCounts, ContextParameters, ContextPhase, ContextSettings, LOAN_DEPTH, Notification,
    Payer, Tier,
};
use crate::record::NIL;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles, SchedulerCosts};

/// One slot of the table of contexts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextState {
    /// The generation of the slot.
    pub generation: u32,
    /// The context in it, if it is live.
    pub live: Option<LiveContextState>,
}

/// A live context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveContextState {
    /// Its parameters.
    pub parameters: ContextParameters,
    /// Its refills, the head first.
    pub refills: Vec<Refill>,
    /// Its state.
    pub phase: ContextPhase,
    /// Slot of its holder.
    pub holder: Option<u32>,
    /// Slots of its lenders, the oldest first.
    pub lenders: Vec<u32>,
    /// The deadline of the head refill, and whether it was missed.
    pub deadline: (Cycles, bool),
    /// Its order among equal deadlines.
    pub sequence: u64,
    /// Charged since it was last read.
    pub consumed: Cycles,
    /// Its statistics.
    pub counts: ContextCounts,
    /// Its notification cell.
    pub cell: Notification,
}

/// The progress of the fair server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerState {
    /// When its current period began.
    pub began: Cycles,
    /// Best-effort time in it.
    pub served: Cycles,
    /// Its deadline and sequence while it is in the tier.
    pub active: Option<(Cycles, u64)>,
}

/// The deadline tier of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierState {
    /// Its settings.
    pub settings: ContextSettings,
    /// Contexts it has room for.
    pub capacity: u32,
    /// By slot.
    pub contexts: Vec<ContextState>,
    /// Free slots, the next to be used first.
    pub free: Vec<u32>,
    /// The fair server.
    pub server: ServerState,
    /// The context of the current coroutine.
    pub current: Option<u32>,
    /// The last sequence number.
    pub sequence: u64,
    /// Coroutines that lost their context and may not run without one.
    pub stranded: u32,
}

impl Tier {
    pub(crate) fn export(&self) -> TierState {
        let link = |slot: u32| (slot != NIL).then_some(slot);
        let next = |&slot: &u32| link(self.context(slot).next_free);
        TierState {
            settings: self.settings,
            capacity: self.capacity,
            contexts: self.contexts.iter().map(Context::export).collect(),
            free: core::iter::successors(link(self.free), next).collect(),
            server: self.server.state,
            current: self.current_context(),
            sequence: self.sequence,
            stranded: self.stranded,
        }
    }

    /// A tier from plain data, for a lane with `coroutines` slots; `None` if none has this state.
    pub(crate) fn rebuild(
        state: &TierState,
        costs: SchedulerCosts,
        frame_cycles: u64,
        coroutines: u32,
    ) -> Option<Self> {
        let slots = state.contexts.len() as u32;
        if slots > state.capacity || state.settings.gap.0 > 1 << 32 {
            return None;
        }
        let mut tier = Self::new(state.settings, costs, frame_cycles);
        tier.reserve(state.capacity, coroutines).ok()?;
        let least = tier.least_budget();
        for entry in &state.contexts {
            let context = Context::rebuild(entry, least, coroutines)?;
            tier.live += u32::from(context.is_live);
            tier.contexts.push(context);
        }
        let mut seen = alloc::vec![false; slots as usize];
        for &slot in state.free.iter().rev() {
            let seen = seen.get_mut(slot as usize)?;
            if core::mem::replace(seen, true) || tier.context(slot).is_live {
                return None;
            }
            tier.context_mut(slot).next_free = core::mem::replace(&mut tier.free, slot);
        }
        tier.server.state = state.server;
        tier.payer = state.current.map_or(Payer::BestEffort, Payer::Context);
        (tier.sequence, tier.stranded) = (state.sequence, state.stranded);
        let mut current = None;
        for slot in 0..slots {
            let Context { is_live, phase, .. } = *tier.context(slot);
            if is_live {
                tier.restore_links(slot)?;
                current = current.or((phase == ContextPhase::Current).then_some(slot));
            }
        }
        (current == state.current).then_some(tier)
    }

    /// Queues a live context as its phase says and adds it to the tables of holders and lenders.
    fn restore_links(&mut self, slot: u32) -> Option<()> {
        let entry = *self.context(slot);
        if (entry.holder == NIL) != (entry.phase == ContextPhase::Idle)
            || entry.depth > 0 && entry.holder == NIL
        {
            return None;
        }
        if entry.holder != NIL {
            let held = self.by_coroutine.get_mut(entry.holder as usize)?;
            if core::mem::replace(held, slot) != NIL {
                return None;
            }
        }
        for &lender in &entry.lenders[..usize::from(entry.depth)] {
            let lent = self.lent.get_mut(lender as usize)?;
            if core::mem::replace(lent, slot) != NIL {
                return None;
            }
        }
        match entry.phase {
            ContextPhase::Ready => self.push_ready(slot),
            ContextPhase::Throttled | ContextPhase::Demoted => self.push_release(slot, entry.phase),
            ContextPhase::Idle | ContextPhase::Waiting | ContextPhase::Current => {}
        }
        Some(())
    }
}

impl Context {
    fn export(&self) -> ContextState {
        let live = self.is_live.then(|| LiveContextState {
            parameters: self.parameters,
            refills: self.ring.refills().to_vec(),
            phase: self.phase,
            holder: (self.holder != NIL).then_some(self.holder),
            lenders: self.lenders[..usize::from(self.depth)].to_vec(),
            deadline: (Cycles(self.deadline), self.is_missed),
            sequence: self.sequence,
            consumed: Cycles(self.consumed),
            counts: self.counts,
            cell: self.cell,
        });
        ContextState { generation: self.generation, live }
    }

    fn rebuild(state: &ContextState, least: Cycles, coroutines: u32) -> Option<Self> {
        if state.generation > CoroutineRef::LAST_GENERATION {
            return None;
        }
        let generation = state.generation;
        let Some(live) = &state.live else {
            let any = least.max(Cycles(1));
            let ring = RefillRing::new(any, any, 2, least, Cycles::ZERO);
            let fresh = Self::fresh(ContextParameters::new(any, any), ring);
            return Some(Self { generation, is_live: false, ..fresh });
        };
        let parameters = live.parameters;
        let ring =
            RefillRing::from_refills(&live.refills, parameters.period, parameters.refills, least)?;
        let is_valid = ring.budget() == parameters.budget
            && parameters.budget <= parameters.deadline
            && parameters.deadline <= parameters.period;
        if !is_valid
            || live.lenders.len() > usize::from(LOAN_DEPTH)
            || live.holder.is_some_and(|holder| holder >= coroutines)
        {
            return None;
        }
        let mut lenders = [NIL; LOAN_DEPTH as usize];
        lenders[..live.lenders.len()].copy_from_slice(&live.lenders);
        Some(Self {
            generation,
            phase: live.phase,
            holder: live.holder.unwrap_or(NIL),
            lenders,
            depth: live.lenders.len() as u8,
            deadline: live.deadline.0.0,
            is_missed: live.deadline.1,
            sequence: live.sequence,
            consumed: live.consumed.0,
            counts: live.counts,
            cell: live.cell,
            ..Self::fresh(parameters, ring)
        })
    }
}
