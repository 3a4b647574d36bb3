//! The contexts of one lane: a slab with generations, the ready ones by deadline, the throttled ones by release, and the fair server.
//!
//! Contract: every context is in at most one heap, the one its phase names: `Ready` in `ready` or, once its deadline passed, in `missed`;
//! `Throttled` and `Demoted` in `releases`. A missed deadline is earlier than any that is not, so the tier's first is the first of `missed`, else of
//! `ready`. Room comes from [`Tier::reserve`]; nothing else allocates.
//!
//! The fair server keeps contexts from starving best-effort work. It is deferred: while best effort gets its part of each period by itself the server
//! does nothing; when only just enough time is left for the rest of that part, the server joins the tier for it, with a deadline one
//! period away, as one more admitted entity.

use super::heap::{IndexHeap, Key};
use super::loan::LOAN_DEPTH;
use super::refill::RefillRing;
use super::{
    ContextCounts, ContextEvent, ContextEventKind, ContextParameters, ContextPhase, ContextRefusal, ContextSettings, Notification, Terms,
};
use crate::record::NIL;
use crate::types::{Refusal, Tag};
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, SchedulerCosts};

/// The current coroutine began its slice on a context and has lost it.
pub(crate) const ORPHAN: u32 = NIL - 1;

/// Contexts a lane can have.
pub(crate) const MOST_CONTEXTS: u32 = 1 << 20;

/// One context.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) generation: u32,
    pub(crate) is_live: bool,
    pub(crate) parameters: ContextParameters,
    pub(crate) ring: RefillRing,
    pub(crate) phase: ContextPhase,
    /// The coroutine slot that runs on it, or [`NIL`].
    pub(crate) holder: u32,
    /// Coroutine slots that lent it, the oldest first. The first is whom it is bound to while it is lent.
    pub(crate) lenders: [u32; LOAN_DEPTH as usize],
    pub(crate) depth: u8,
    pub(crate) deadline: u64,
    pub(crate) is_missed: bool,
    pub(crate) sequence: u64,
    /// Charged since it was read last.
    pub(crate) consumed: u64,
    pub(crate) counts: ContextCounts,
    pub(crate) cell: Notification,
    /// Free: the next free slot.
    pub(crate) next_free: u32,
}

impl Context {
    /// A context that nothing has happened to.
    pub(crate) fn fresh(parameters: ContextParameters, ring: RefillRing) -> Self {
        Self {
            generation: 0,
            is_live: true,
            parameters,
            ring,
            phase: ContextPhase::Idle,
            holder: NIL,
            lenders: [NIL; LOAN_DEPTH as usize],
            depth: 0,
            deadline: 0,
            is_missed: false,
            sequence: 0,
            consumed: 0,
            counts: ContextCounts::default(),
            cell: Notification::default(),
            next_free: NIL,
        }
    }
}

/// The deferred server of the fair class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub(crate) budget: u64,
    pub(crate) period: u64,
    /// The lane clock at which the running period began.
    pub(crate) began: u64,
    /// What best effort got in it.
    pub(crate) served: u64,
    /// Its deadline and sequence while it is in the tier.
    pub(crate) active: Option<(u64, u64)>,
}

impl Server {
    /// When it must begin so that the rest of its budget fits its period; `None` when best effort has had it.
    pub(crate) fn latest_start(&self) -> Option<u64> {
        let rest = self.budget.checked_sub(self.served).filter(|&rest| rest > 0)?;
        Some(self.began.saturating_add(self.period) - rest)
    }

    /// Begins the period that `now` is in.
    pub(crate) fn roll(&mut self, now: u64) {
        if self.active.is_none() && now >= self.began.saturating_add(self.period) {
            self.began = now - (now - self.began) % self.period;
            self.served = 0;
        }
    }

    /// Best effort ran.
    pub(crate) fn debit(&mut self, cycles: u64) {
        self.served = self.served.saturating_add(cycles);
        if self.active.is_some() && self.served >= self.budget {
            self.active = None;
            self.began = self.began.saturating_add(self.period);
            self.served -= self.budget;
        }
    }
}

/// Who is first in the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// A context's holder.
    Context(u32),
    /// The fair server: whoever the policy chooses.
    Server,
}

/// See the header.
pub(crate) struct Tier {
    pub(crate) settings: ContextSettings,
    pub(crate) costs: SchedulerCosts,
    pub(crate) contexts: Vec<Context>,
    pub(crate) free: u32,
    pub(crate) live: u32,
    pub(crate) capacity: u32,
    /// By coroutine slot: the context it holds, or [`NIL`].
    pub(crate) by_coroutine: Vec<u32>,
    /// By coroutine slot: the context it has lent, or [`NIL`].
    pub(crate) lent: Vec<u32>,
    pub(crate) ready: IndexHeap,
    pub(crate) missed: IndexHeap,
    pub(crate) releases: IndexHeap,
    pub(crate) server: Server,
    /// The context of the lane's current coroutine, [`ORPHAN`] if it lost it in its slice, or [`NIL`] if the policy picked it.
    pub(crate) current: u32,
    /// The current coroutine gave up the rest of its refill.
    pub(crate) gave_up: bool,
    /// The lane clock up to which the current coroutine's time is charged.
    pub(crate) mark: u64,
    pub(crate) sequence: u64,
    /// Holders that lost their context and may not run without one.
    pub(crate) stranded: u32,
    pub(crate) events: Vec<ContextEvent>,
    /// Who ran on which context, if somebody wants to know.
    pub(crate) books: Option<alloc::boxed::Box<super::books::Books>>,
}

impl Tier {
    pub(crate) fn new(settings: ContextSettings, costs: SchedulerCosts, frame_cycles: u64) -> Self {
        let least = 2 * (settings.gap.0 + costs.switch.0);
        // Of its part of a period the server leaves room for an overrun and a switch; a period too short for that is taken several times.
        let spare = settings.gap.0 + costs.switch.0 + costs.pick.0;
        let part = |period: u64| (u128::from(period) * u128::from(settings.server) / 1_000) as u64;
        let mut period = frame_cycles.max(1);
        while settings.server > 0 && part(period) < least + spare && period < 1 << 40 {
            period *= 2;
        }
        let server = Server { budget: part(period).saturating_sub(spare), period, began: 0, served: 0, active: None };
        Self {
            settings,
            costs,
            contexts: Vec::new(),
            free: NIL,
            live: 0,
            capacity: 0,
            by_coroutine: Vec::new(),
            lent: Vec::new(),
            ready: IndexHeap::new(),
            missed: IndexHeap::new(),
            releases: IndexHeap::new(),
            server,
            current: NIL,
            gave_up: false,
            mark: 0,
            sequence: 0,
            stranded: 0,
            events: Vec::new(),
            books: None,
        }
    }

    /// Room for so many contexts in all, and for coroutine slots `0..coroutines`.
    pub(crate) fn reserve(&mut self, contexts: u32, coroutines: u32) -> Result<(), Refusal> {
        let refused = Refusal::OutOfMemory { wanted: contexts };
        if contexts > MOST_CONTEXTS {
            return Err(refused);
        }
        let more = (contexts as usize).saturating_sub(self.contexts.len());
        self.contexts.try_reserve_exact(more).map_err(|_| refused)?;
        // Between two drains a context can be released, missed, used up and told of; lending adds no more.
        let events = contexts as usize * 8 + 16;
        self.events.try_reserve_exact(events.saturating_sub(self.events.len())).map_err(|_| refused)?;
        for heap in [&mut self.ready, &mut self.missed, &mut self.releases] {
            heap.reserve(contexts as usize)?;
        }
        self.reserve_coroutines(coroutines)?;
        self.capacity = self.capacity.max(contexts);
        Ok(())
    }

    pub(crate) fn reserve_coroutines(&mut self, coroutines: u32) -> Result<(), Refusal> {
        for table in [&mut self.by_coroutine, &mut self.lent] {
            let more = (coroutines as usize).saturating_sub(table.len());
            table.try_reserve(more).map_err(|_| Refusal::OutOfMemory { wanted: coroutines })?;
            table.resize(table.len().max(coroutines as usize), NIL);
        }
        Ok(())
    }

    /// The smallest budget that can be enforced.
    pub(crate) fn least_budget(&self) -> Cycles {
        Cycles(2 * (self.settings.gap.0 + self.costs.switch.0))
    }

    /// What the lane adds to the demand of its contexts.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            blocking: self.settings.gap + self.costs.switch,
            overrun: self.settings.gap,
            release: self.costs.refill + self.costs.timer,
            boundary: self.settings.wave.map(|wave| (wave, self.settings.gap)),
            cap: self.settings.cap,
        }
    }

    pub(crate) fn context(&self, slot: u32) -> &Context {
        &self.contexts[slot as usize]
    }

    pub(crate) fn context_mut(&mut self, slot: u32) -> &mut Context {
        &mut self.contexts[slot as usize]
    }

    pub(crate) fn reference(&self, slot: u32) -> ContextRef {
        ContextRef::new(slot, self.context(slot).generation)
    }

    /// The slot a reference names, or that it is stale.
    pub(crate) fn live_slot(&self, context: ContextRef) -> Result<u32, ContextRefusal> {
        match self.contexts.get(context.slot as usize) {
            Some(found) if found.is_live && found.generation == context.generation => Ok(context.slot),
            found => Err(ContextRefusal::Stale { context, found_generation: found.map_or(0, |found| found.generation) }),
        }
    }

    /// The context a coroutine slot holds, or [`NIL`].
    #[inline]
    pub(crate) fn held_by(&self, coroutine: u32) -> u32 {
        self.by_coroutine.get(coroutine as usize).copied().unwrap_or(NIL)
    }

    /// The context a coroutine slot has lent, or [`NIL`].
    pub(crate) fn lent_by(&self, coroutine: u32) -> u32 {
        self.lent.get(coroutine as usize).copied().unwrap_or(NIL)
    }

    /// Whether a coroutine that becomes runnable goes to the tier: it holds a context that has not left it to the policy.
    pub(crate) fn claims(&self, coroutine: u32) -> bool {
        let context = self.held_by(coroutine);
        context != NIL && self.context(context).phase != ContextPhase::Demoted
    }

    pub(crate) fn allocate(&mut self, parameters: ContextParameters, ring: RefillRing) -> ContextRef {
        let fresh = Context::fresh(parameters, ring);
        self.live += 1;
        let slot = self.free;
        if slot == NIL {
            self.contexts.push(fresh);
            return ContextRef::new(self.contexts.len() as u32 - 1, 0);
        }
        let entry = self.context_mut(slot);
        let (generation, next) = (entry.generation, entry.next_free);
        *entry = Context { generation, ..fresh };
        self.free = next;
        ContextRef::new(slot, generation)
    }

    /// Gives a slot back: its references are stale from now on.
    pub(crate) fn release_slot(&mut self, slot: u32) {
        let free = self.free;
        let entry = self.context_mut(slot);
        entry.is_live = false;
        self.live -= 1;
        let entry = self.context_mut(slot);
        if entry.generation == CoroutineRef::LAST_GENERATION {
            return;
        }
        entry.generation += 1;
        entry.next_free = free;
        self.free = slot;
    }

    /// Contexts that could be made now.
    pub(crate) fn room(&self) -> bool {
        self.free != NIL || (self.contexts.len() as u32) < self.capacity
    }

    /// Queues a context by its deadline.
    pub(crate) fn push_ready(&mut self, slot: u32) {
        let context = self.context_mut(slot);
        context.phase = ContextPhase::Ready;
        let key: Key = (context.deadline, context.sequence, slot);
        if context.is_missed { self.missed.push(key) } else { self.ready.push(key) }
    }

    /// Sets a timer for a context's next refill.
    pub(crate) fn push_release(&mut self, slot: u32, phase: ContextPhase) {
        let context = self.context_mut(slot);
        context.phase = phase;
        let at = context.ring.head().at.0;
        self.releases.push((at, u64::from(slot), slot));
    }

    /// Takes a context out of whatever heap it is in; its phase becomes `phase`.
    pub(crate) fn take_out(&mut self, slot: u32, phase: ContextPhase) {
        let _ = self.ready.remove(slot) || self.missed.remove(slot) || self.releases.remove(slot);
        self.context_mut(slot).phase = phase;
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Contexts queued in the tier: each stands for one ready coroutine that the policy does not see.
    pub(crate) fn queued(&self) -> u32 {
        (self.ready.len() + self.missed.len()) as u32
    }

    /// Every coroutine slot that holds or lends a context.
    pub(crate) fn parties(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = |table: &'_ [u32]| {
            (0u32..).zip(table.to_vec()).filter(|&(_, context)| context != NIL).map(|(slot, _)| slot).collect::<Vec<_>>()
        };
        slots(&self.by_coroutine).into_iter().chain(slots(&self.lent))
    }

    /// The keys of the queued contexts, in no order.
    pub(crate) fn queued_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.missed.iter().chain(self.ready.iter())
    }

    /// The context of the current coroutine.
    pub(crate) fn current_context(&self) -> Option<u32> {
        (self.current != NIL && self.current != ORPHAN).then_some(self.current)
    }

    /// The first by deadline, with its key.
    pub(crate) fn first(&self) -> Option<(Key, First)> {
        let context = self.missed.first().or_else(|| self.ready.first()).map(|key| (key, First::Context(key.2)));
        let server = self.server.active.map(|(deadline, sequence)| ((deadline, sequence, NIL), First::Server));
        match (context, server) {
            // A missed deadline is an overload, and in an overload best effort keeps its part.
            (Some(context), Some(server)) => Some(if server.0 < context.0 || !self.missed.is_empty() { server } else { context }),
            (context, server) => context.or(server),
        }
    }

    /// When the next refill comes.
    pub(crate) fn next_release(&self) -> u64 {
        self.releases.first().map_or(u64::MAX, |(at, _, _)| at)
    }

    /// Notes what happened to a context. Room was reserved; an event that does not fit is dropped rather than allocated for.
    pub(crate) fn note(&mut self, at: u64, slot: u32, holder: Option<Tag>, kind: ContextEventKind) {
        if self.events.len() < self.events.capacity() {
            let context = self.reference(slot);
            self.events.push(ContextEvent { at: Cycles(at), context, holder, kind });
        }
    }
}
