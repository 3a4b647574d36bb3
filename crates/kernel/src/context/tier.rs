//! The deadline tier of one lane: a slab of contexts with generations, the ready ones by deadline
//! (EDF), the throttled ones by release, and the fair server.
//!
//! Contract: a context is in at most one heap, that of its phase: `Ready` in `ready` or, after its
//! deadline, in `missed`; `Throttled` and `Demoted` in `releases`. A missed deadline is earlier
//! than any other, so the first context is the first of `missed`, else of `ready`. Only
//! [`Tier::reserve`] allocates.
//!
//! The fair server keeps contexts from starving best effort. It is deferred, as Linux's: it does
//! nothing while best effort receives its part of each period by itself. At zero laxity, when the
//! remaining period is only just enough for the remaining budget, it joins the tier with a deadline
//! one period away, like one more admitted context.
//!
//! Elsewhere: dispatching and charging (`enforce`), loans (`loan`), plain data (`state`).

use super::heap::{IndexHeap, Key, reserve_total};
use super::loan::LOAN_DEPTH;
use super::refill::RefillRing;
use super::state::ServerState;
use super::{
    CONTEXT_CAP, ContextCounts, ContextEvent, ContextEventKind, ContextParameters, ContextPhase,
    ContextRefusal, ContextSettings, FAIR_SERVER, Notification, Terms,
};
use crate::lease::Lease;
use crate::record::NIL;
use crate::room::Room;
use crate::types::{Refusal, Tag};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, SchedulerCosts};

/// What pays for the lane's time while its current coroutine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// Best effort: the policy picked it, or no coroutine is current.
    BestEffort,
    /// Its context.
    Context(u32),
    /// Best effort until the end of the slice: it lost the context it was dispatched on, or got one
    /// without a ready refill.
    Lost,
}

/// The most contexts of a lane.
const MOST_CONTEXTS: u32 = 1 << 20;

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

    /// Takes over the deadline of a new head refill.
    pub(crate) fn renew(&mut self) {
        self.deadline = self.next_deadline();
        self.is_missed = false;
    }

    /// Whether its deadline passed before `now` and was not recorded as missed yet.
    pub(crate) const fn is_late(&self, now: u64) -> bool {
        !self.is_missed && self.deadline < now
    }
}

/// The fair server: its budget per period, and its progress.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) budget: Cycles,
    pub(crate) period: Cycles,
    pub(crate) state: ServerState,
}

impl Server {
    /// The end of its current period.
    fn end(&self) -> Cycles {
        self.state.began.saturating_add(self.period)
    }

    /// The latest start at which the remaining budget fits the period; `None` if best effort has
    /// received all of it.
    pub(crate) fn latest_start(&self) -> Option<Cycles> {
        let ServerState { served, .. } = self.state;
        (served < self.budget).then(|| self.end() - (self.budget - served))
    }

    /// Starts the period that `now` is in.
    pub(crate) fn roll(&mut self, now: Cycles) {
        if self.state.active.is_none() && now >= self.end() {
            self.state.began = Cycles(now.0 - (now - self.state.began).0 % self.period.0);
            self.state.served = Cycles::ZERO;
        }
    }

    /// Counts best-effort time.
    pub(crate) fn debit(&mut self, cycles: Cycles) {
        self.state.served = self.state.served.saturating_add(cycles);
        if self.state.active.is_some() && self.state.served >= self.budget {
            let (began, served) = (self.end(), self.state.served - self.budget);
            self.state = ServerState { began, served, active: None };
        }
    }
}

/// The slot of the fair server in the key that [`Tier::first`] returns.
pub(crate) const SERVER: u32 = NIL;

/// See the header.
#[derive(Clone)]
pub(crate) struct Tier {
    pub(crate) settings: ContextSettings,
    pub(crate) costs: SchedulerCosts,
    pub(crate) contexts: Room<Context>,
    pub(crate) free: u32,
    pub(crate) live: u32,
    pub(crate) capacity: u32,
    /// By coroutine slot: the context it holds, or [`NIL`].
    pub(crate) by_coroutine: Room<u32>,
    /// By coroutine slot: the context it has lent, or [`NIL`].
    pub(crate) lent: Room<u32>,
    pub(crate) ready: IndexHeap,
    pub(crate) missed: IndexHeap,
    pub(crate) releases: IndexHeap,
    pub(crate) server: Server,
    pub(crate) payer: Payer,
    /// The current coroutine gave up what is left of its head refill.
    pub(crate) discards_refill: bool,
    /// The lane clock up to which time has been charged to its payer.
    pub(crate) charged_until: u64,
    pub(crate) sequence: u64,
    /// Coroutines that lost their context and may not run without one.
    pub(crate) stranded: u32,
    pub(crate) events: Room<ContextEvent>,
    /// The place for a lease, on lanes that may be leased.
    pub(crate) lease: Option<Lease>,
    /// Which coroutine ran on which context, if that is recorded.
    pub(crate) books: Option<alloc::boxed::Box<super::books::Books>>,
}

impl Tier {
    pub(crate) fn new(settings: ContextSettings, costs: SchedulerCosts, frame_cycles: u64) -> Self {
        let least = 2 * (settings.gap.0 + costs.switch.0);
        // The server's part of a period includes an overrun and a switch; a period too short for
        // that is doubled.
        let spare = settings.gap.0 + costs.switch.0 + costs.pick.0;
        let part = |period: u64| (u128::from(period) * u128::from(FAIR_SERVER) / 1_000) as u64;
        let mut period = frame_cycles.max(1);
        while part(period) < least + spare && period < 1 << 40 {
            period *= 2;
        }
        let server = Server {
            budget: Cycles(part(period).saturating_sub(spare)),
            period: Cycles(period),
            state: ServerState::default(),
        };
        Self {
            settings,
            costs,
            contexts: Room::new(),
            free: NIL,
            live: 0,
            capacity: 0,
            by_coroutine: Room::new(),
            lent: Room::new(),
            ready: IndexHeap::default(),
            missed: IndexHeap::default(),
            releases: IndexHeap::default(),
            server,
            payer: Payer::BestEffort,
            discards_refill: false,
            charged_until: 0,
            sequence: 0,
            stranded: 0,
            events: Room::new(),
            lease: None,
            books: None,
        }
    }

    /// Room for `contexts` in total, and for coroutine slots `0..coroutines`.
    pub(crate) fn reserve(&mut self, contexts: u32, coroutines: u32) -> Result<(), Refusal> {
        if contexts > MOST_CONTEXTS {
            return Err(Refusal::OutOfMemory { wanted: contexts });
        }
        reserve_total(&mut self.contexts, contexts as usize, contexts)?;
        // Between two drains a context can be released, missed, depleted and notified; loans add
        // no more.
        reserve_total(&mut self.events, contexts as usize * 8 + 16, contexts)?;
        for heap in [&mut self.ready, &mut self.missed, &mut self.releases] {
            heap.reserve(contexts)?;
        }
        self.reserve_coroutines(coroutines)?;
        self.capacity = self.capacity.max(contexts);
        Ok(())
    }

    pub(crate) fn reserve_coroutines(&mut self, coroutines: u32) -> Result<(), Refusal> {
        for table in [&mut self.by_coroutine, &mut self.lent] {
            let more = (coroutines as usize).saturating_sub(table.len());
            table.try_reserve(more).map_err(|_| Refusal::OutOfMemory { wanted: coroutines })?;
            table.fill_to(coroutines as usize, NIL);
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
            cap: CONTEXT_CAP,
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

    /// The slot of a reference that is not stale.
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

    /// Whether a coroutine that becomes runnable is queued in the tier: it holds a context and is
    /// not demoted.
    pub(crate) fn claims(&self, coroutine: u32) -> bool {
        let context = self.held_by(coroutine);
        context != NIL && self.context(context).phase != ContextPhase::Demoted
    }

    /// Stores a new context; returns its reference.
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

    /// Frees a slot and makes its references stale. A slot whose generations are used up is
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

    /// A ring with the full budget, ready at `now`.
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

    /// Contexts queued in the tier, one for each ready coroutine that is not in the policy's queue.
    pub(crate) fn queued(&self) -> u32 {
        (self.ready.len() + self.missed.len()) as u32
    }

    /// Every coroutine slot that holds or lends a context.
    pub(crate) fn parties(&self) -> impl Iterator<Item = u32> + '_ {
        let parties = (0u32..).zip(self.by_coroutine.iter().zip(&self.lent));
        parties.filter(|(_, (held, lent))| **held != NIL || **lent != NIL).map(|(slot, _)| slot)
    }

    /// The keys of the queued contexts, unordered.
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

    /// The key of the first context by deadline, or of the server, whose slot is [`SERVER`].
    pub(crate) fn first(&self) -> Option<Key> {
        let missed = self.missed.first();
        let context = missed.or_else(|| self.ready.first());
        let server = self.server.state.active.map(|(at, sequence)| (at.0, sequence, SERVER));
        match (context, server) {
            // A missed deadline means overload, in which best effort keeps its part.
            (Some(context), Some(server)) if context < server && missed.is_none() => Some(context),
            _ => server.or(context),
        }
    }

    /// The clock of the next refill that a context waits for; `u64::MAX` if none does.
    pub(crate) fn next_release(&self) -> u64 {
        self.releases.first().map_or(u64::MAX, |(at, _, _)| at)
    }

    /// Records an event of a context. Never allocates: one beyond the reserved room is dropped.
    pub(crate) fn note(&mut self, at: u64, slot: u32, holder: Option<Tag>, kind: ContextEventKind) {
        if self.events.len() < self.events.capacity() {
            let context = self.reference(slot);
            self.events.push(ContextEvent { at: Cycles(at), context, holder, kind });
        }
    }
}
