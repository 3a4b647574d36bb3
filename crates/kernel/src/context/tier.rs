//! The deadline tier of one lane: a slab of contexts with generations, the ready ones by deadline
//! (EDF), the throttled ones by release, and the fair server.
//!
//! Contract: every context is in at most one heap, the one its phase names: `Ready` in `ready` or,
//! once its deadline passed, in `missed`; `Throttled` and `Demoted` in `releases`. A missed
//! deadline is earlier than any that is not, so the tier's first is the first of `missed`, else of
//! `ready`. Room comes from [`Tier::reserve`]; nothing else allocates.
//!
//! The fair server keeps contexts from starving best-effort work. It is deferred, as Linux's: while
//! best effort gets its part of each period by itself the server does nothing; at zero laxity, when
//! the rest of the period is only just enough for the rest of that part, it joins the tier with a
//! deadline one period away, as one more admitted entity.

use super::heap::{IndexHeap, Key};
use super::loan::LOAN_DEPTH;
use super::refill::RefillRing;
use super::{
    ContextCounts, ContextEvent, ContextEventKind, ContextParameters, ContextPhase, ContextRefusal,
    ContextSettings, Notification, Terms,
};
use crate::record::NIL;
use crate::types::{Refusal, Tag};
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, SchedulerCosts};

/// What pays for the lane's time while its current coroutine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// Best effort: the policy picked it, or nothing is current.
    BestEffort,
    /// Its context.
    Context(u32),
    /// Best effort until the end of the slice: it lost the context that it began the slice on.
    Lost,
}

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
    /// The coroutine slot of its holder, or [`NIL`].
    pub(crate) holder: u32,
    /// Coroutine slots that lent it, the oldest first; the first is the one it is bound to.
    pub(crate) lenders: [u32; LOAN_DEPTH as usize],
    pub(crate) depth: u8,
    pub(crate) deadline: u64,
    pub(crate) is_missed: bool,
    pub(crate) sequence: u64,
    /// Charged since it was last read.
    pub(crate) consumed: u64,
    pub(crate) counts: ContextCounts,
    pub(crate) cell: Notification,
    /// Free: the next free slot.
    pub(crate) next_free: u32,
}

impl Context {
    /// A context without a holder.
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

    /// The deadline of the head refill.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.ring.head().at.saturating_add(self.parameters.deadline).0
    }

    /// The head is another refill: its deadline applies.
    pub(crate) fn renew(&mut self) {
        self.deadline = self.next_deadline();
        self.is_missed = false;
    }

    /// Whether its deadline passed before `now` and was not recorded as missed yet.
    pub(crate) const fn is_late(&self, now: u64) -> bool {
        !self.is_missed && self.deadline < now
    }
}

/// The deferred server of the fair class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub(crate) budget: u64,
    pub(crate) period: u64,
    /// The lane clock at which the current period began.
    pub(crate) began: u64,
    /// Best-effort time in it.
    pub(crate) served: u64,
    /// Its deadline and sequence while it is in the tier.
    pub(crate) active: Option<(u64, u64)>,
}

impl Server {
    /// When it must start so that the rest of its budget fits its period; `None` when best effort
    /// had all of it.
    pub(crate) fn latest_start(&self) -> Option<u64> {
        let rest = self.budget.checked_sub(self.served).filter(|&rest| rest > 0)?;
        Some(self.began.saturating_add(self.period) - rest)
    }

    /// Starts the period that `now` is in.
    pub(crate) fn roll(&mut self, now: u64) {
        if self.active.is_none() && now >= self.began.saturating_add(self.period) {
            self.began = now - (now - self.began) % self.period;
            self.served = 0;
        }
    }

    /// Counts best-effort time.
    pub(crate) fn debit(&mut self, cycles: u64) {
        self.served = self.served.saturating_add(cycles);
        if self.active.is_some() && self.served >= self.budget {
            self.active = None;
            self.began = self.began.saturating_add(self.period);
            self.served -= self.budget;
        }
    }
}

/// The first of the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// A context's holder.
    Context(u32),
    /// The fair server: the policy's pick runs.
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
    pub(crate) payer: Payer,
    /// The current coroutine gave up the rest of its head refill.
    pub(crate) discards_refill: bool,
    /// The lane clock up to which time is charged to its payer.
    pub(crate) charged_until: u64,
    pub(crate) sequence: u64,
    /// Coroutines that lost their context and may not run without one.
    pub(crate) stranded: u32,
    pub(crate) events: Vec<ContextEvent>,
    /// Who ran on which context, if that is recorded.
    pub(crate) books: Option<alloc::boxed::Box<super::books::Books>>,
}

impl Tier {
    pub(crate) fn new(settings: ContextSettings, costs: SchedulerCosts, frame_cycles: u64) -> Self {
        let least = 2 * (settings.gap.0 + costs.switch.0);
        // The server's part of a period includes an overrun and a switch; a period too short for
        // that is doubled.
        let spare = settings.gap.0 + costs.switch.0 + costs.pick.0;
        let part = |period: u64| (u128::from(period) * u128::from(settings.server) / 1_000) as u64;
        let mut period = frame_cycles.max(1);
        while settings.server > 0 && part(period) < least + spare && period < 1 << 40 {
            period *= 2;
        }
        let server = Server {
            budget: part(period).saturating_sub(spare),
            period,
            began: 0,
            served: 0,
            active: None,
        };
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
            payer: Payer::BestEffort,
            discards_refill: false,
            charged_until: 0,
            sequence: 0,
            stranded: 0,
            events: Vec::new(),
            books: None,
        }
    }

    /// Room for `contexts` in all, and for coroutine slots `0..coroutines`.
    pub(crate) fn reserve(&mut self, contexts: u32, coroutines: u32) -> Result<(), Refusal> {
        let refused = Refusal::OutOfMemory { wanted: contexts };
        if contexts > MOST_CONTEXTS {
            return Err(refused);
        }
        let more = (contexts as usize).saturating_sub(self.contexts.len());
        self.contexts.try_reserve_exact(more).map_err(|_| refused)?;
        // Between two drains a context can be released, missed, used up and notified; lending adds
        // no more.
        let events = contexts as usize * 8 + 16;
        self.events
            .try_reserve_exact(events.saturating_sub(self.events.len()))
            .map_err(|_| refused)?;
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
            Some(found) if found.is_live && found.generation == context.generation => {
                Ok(context.slot)
            }
            found => Err(ContextRefusal::Stale {
                context,
                found_generation: found.map_or(0, |found| found.generation),
            }),
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

    /// Whether a coroutine that becomes runnable goes to the tier: it holds a context and is not
    /// demoted.
    pub(crate) fn claims(&self, coroutine: u32) -> bool {
        let context = self.held_by(coroutine);
        context != NIL && self.context(context).phase != ContextPhase::Demoted
    }

    /// A slot with a new context.
    pub(crate) fn allocate(&mut self, fresh: Context) -> ContextRef {
        self.live += 1;
        let slot = self.free;
        if slot == NIL {
            self.contexts.push(fresh);
            return ContextRef::new(self.contexts.len() as u32 - 1, 0);
        }
        let entry = &mut self.contexts[slot as usize];
        self.free = entry.next_free;
        *entry = Context { generation: entry.generation, ..fresh };
        self.reference(slot)
    }

    /// Frees a slot: its references are stale from now on. A slot whose generations are used up is
    /// retired.
    pub(crate) fn release_slot(&mut self, slot: u32) {
        self.live -= 1;
        let entry = &mut self.contexts[slot as usize];
        entry.is_live = false;
        if entry.generation < CoroutineRef::LAST_GENERATION {
            entry.generation += 1;
            entry.next_free = core::mem::replace(&mut self.free, slot);
        }
    }

    /// A ring with the full budget, ready from `now` on.
    pub(crate) fn full_ring(&self, parameters: &ContextParameters, now: Cycles) -> RefillRing {
        let ContextParameters { budget, period, refills, .. } = *parameters;
        RefillRing::new(budget, period, refills, self.least_budget(), now)
    }

    /// Removes the newest lender from the chain of a context; returns its slot.
    pub(crate) fn pop_lender(&mut self, context: u32) -> Option<u32> {
        let entry = self.context_mut(context);
        entry.depth = entry.depth.checked_sub(1)?;
        let lender = entry.lenders[usize::from(entry.depth)];
        self.lent[lender as usize] = NIL;
        Some(lender)
    }

    /// Whether one more context can be created.
    pub(crate) fn has_room(&self) -> bool {
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

    /// Removes a context from the heap it is in; its phase becomes `phase`.
    pub(crate) fn take_out(&mut self, slot: u32, phase: ContextPhase) {
        let _ = self.ready.remove(slot) || self.missed.remove(slot) || self.releases.remove(slot);
        self.context_mut(slot).phase = phase;
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Contexts queued in the tier: each stands for one ready coroutine that the policy's queue
    /// does not hold.
    pub(crate) fn queued(&self) -> u32 {
        (self.ready.len() + self.missed.len()) as u32
    }

    /// Every coroutine slot that holds or lends a context.
    pub(crate) fn parties(&self) -> impl Iterator<Item = u32> + '_ {
        let parties = (0u32..).zip(self.by_coroutine.iter().zip(&self.lent));
        parties.filter(|(_, (held, lent))| **held != NIL || **lent != NIL).map(|(slot, _)| slot)
    }

    /// The keys of the queued contexts, in no order.
    pub(crate) fn queued_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.missed.iter().chain(self.ready.iter())
    }

    /// The context of the current coroutine.
    pub(crate) fn current_context(&self) -> Option<u32> {
        match self.payer {
            Payer::Context(context) => Some(context),
            Payer::BestEffort | Payer::Lost => None,
        }
    }

    /// The first by deadline, with its key.
    pub(crate) fn first(&self) -> Option<(Key, First)> {
        let context = self
            .missed
            .first()
            .or_else(|| self.ready.first())
            .map(|key| (key, First::Context(key.2)));
        let server = self
            .server
            .active
            .map(|(deadline, sequence)| ((deadline, sequence, NIL), First::Server));
        match (context, server) {
            // A missed deadline is an overload, in which best effort keeps its part.
            (Some(context), Some(server)) => {
                Some(if server.0 < context.0 || !self.missed.is_empty() { server } else { context })
            }
            (context, server) => context.or(server),
        }
    }

    /// When the next refill comes.
    pub(crate) fn next_release(&self) -> u64 {
        self.releases.first().map_or(u64::MAX, |(at, _, _)| at)
    }

    /// Records an event of a context. Room was reserved; an event that does not fit is dropped, not
    /// allocated for.
    pub(crate) fn note(&mut self, at: u64, slot: u32, holder: Option<Tag>, kind: ContextEventKind) {
        if self.events.len() < self.events.capacity() {
            let context = self.reference(slot);
            self.events.push(ContextEvent { at: Cycles(at), context, holder, kind });
        }
    }
}
