//! The owner's interface to contexts: reserve, create, configure, bind, unbind, revoke, read.
//!
//! Contract: each call checks everything before it changes anything; a refusal is typed and has its
//! numbers. Bandwidth is admitted before a context exists and is free again when it is revoked. All
//! of it may be called inside a slice of the lane. After [`Lane::reserve_contexts`] nothing here
//! allocates.
//!
//! Elsewhere: capabilities (`system`), loans (`loan`).

use super::admission::{admit, largest_budget};
use super::refill::CAPACITIES;
use super::tier::Context;
use super::{
    ContextEvent, ContextEventKind, ContextParameters, ContextPhase, ContextRefusal,
    ContextSettings, ContextView, Denied, Fallback, Notification, OverrunPolicy, Payer, Tier,
};
use crate::lane::Lane;
use crate::queue::Entrance;
use crate::record::{NIL, Place};
use crate::types::{HoldReason, Refusal, Tag};
use alloc::boxed::Box;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// The longest period: no sum of two overflows a lane's clock.
const MOST_PERIOD: Cycles = Cycles(1 << 56);

impl Lane {
    /// Turns contexts on, with room for `contexts`. Called again it makes more room; the settings
    /// of the first call stay.
    ///
    /// # Errors
    /// The host has no memory.
    ///
    /// # Panics
    /// When a slice is open.
    pub fn reserve_contexts(
        &mut self,
        settings: ContextSettings,
        contexts: u32,
    ) -> Result<(), Refusal> {
        assert!(!self.in_slice, "room for contexts is made between slices");
        let slots = self.slab.slots_reserved();
        let (costs, frame_cycles) = (self.settings.costs, self.settings.frame_cycles.0);
        let tier =
            self.tier.get_or_insert_with(|| Box::new(Tier::new(settings, costs, frame_cycles)));
        tier.reserve(contexts, slots)?;
        self.refresh();
        Ok(())
    }

    /// Whether this lane has contexts.
    #[must_use]
    pub const fn has_contexts(&self) -> bool {
        self.tier.is_some()
    }

    pub(crate) fn tier(&self) -> Result<&Tier, ContextRefusal> {
        self.tier.as_deref().ok_or(ContextRefusal::Off)
    }

    fn context_slot(&self, context: ContextRef) -> Result<u32, ContextRefusal> {
        self.tier()?.live_slot(context)
    }

    fn live_context(&mut self, context: ContextRef) -> Result<&mut Context, ContextRefusal> {
        let slot = self.context_slot(context)?;
        Ok(self.tier_mut().context_mut(slot))
    }

    /// Checks parameters alone, without the lane's other contexts.
    fn check_parameters(&self, parameters: &ContextParameters) -> Result<&Tier, ContextRefusal> {
        let tier = self.tier()?;
        let ContextParameters { budget, period, deadline, refills, .. } = *parameters;
        let least = tier.least_budget();
        if budget < least {
            return Err(ContextRefusal::BudgetTooSmall {
                budget,
                least,
                gap: tier.settings.gap,
                switch: tier.costs.switch,
            });
        }
        if period > MOST_PERIOD {
            return Err(ContextRefusal::PeriodTooLong { period, most: MOST_PERIOD });
        }
        if budget > deadline {
            return Err(ContextRefusal::BudgetAboveDeadline { budget, deadline });
        }
        if deadline > period {
            return Err(ContextRefusal::DeadlineAbovePeriod { deadline, period });
        }
        if !CAPACITIES.contains(&refills) {
            return Err(ContextRefusal::Refills { found: refills });
        }
        Ok(tier)
    }

    /// Checks that a context with these parameters is admitted beside all others, or instead of one
    /// of them.
    fn check_admission(
        &self,
        parameters: &ContextParameters,
        instead_of: Option<u32>,
    ) -> Result<(), ContextRefusal> {
        let tier = self.check_parameters(parameters)?;
        let others = (0u32..)
            .zip(&tier.contexts)
            .filter(move |(slot, entry)| entry.is_live && Some(*slot) != instead_of)
            .map(|(_, entry)| entry.parameters.demand());
        let (terms, wanted) = (tier.terms(), parameters.demand());
        admit(&terms, others.clone().chain([wanted])).map_err(|shortfall| {
            ContextRefusal::Denied(Denied {
                contexts: tier.live,
                wanted,
                shortfall,
                fits: largest_budget(&terms, others, wanted, tier.least_budget()),
            })
        })
    }

    /// Creates a context if it is admitted. Its budget is ready at once.
    ///
    /// # Errors
    /// A parameter is out of range, there is no room, or admission is denied.
    pub fn create_context(
        &mut self,
        parameters: ContextParameters,
    ) -> Result<ContextRef, ContextRefusal> {
        self.check_admission(&parameters, None)?;
        self.create_context_unadmitted(parameters)
    }

    /// Creates a context without the admission test, so deadlines may be missed: for tests of
    /// overload and benchmarks.
    ///
    /// # Errors
    /// A parameter is out of range, or there is no room.
    pub fn create_context_unadmitted(
        &mut self,
        parameters: ContextParameters,
    ) -> Result<ContextRef, ContextRefusal> {
        let tier = self.check_parameters(&parameters)?;
        if tier.free == NIL && tier.contexts.len() as u32 >= tier.capacity {
            return Err(ContextRefusal::NotReserved { live: tier.live, capacity: tier.capacity });
        }
        let ring = tier.full_ring(&parameters, Cycles(self.clock));
        Ok(self.tier_mut().allocate(Context::fresh(parameters, ring)))
    }

    /// Changes a context's parameters. One with a holder keeps its window: what it used stays used.
    ///
    /// # Errors
    /// Stale, lent, out of range, denied, or the new budget is below what the current period used.
    pub fn configure_context(
        &mut self,
        context: ContextRef,
        parameters: ContextParameters,
    ) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        self.check_admission(&parameters, Some(slot))?;
        let now = Cycles(self.clock);
        let tier = self.tier_mut();
        let Context { phase, depth, mut ring, .. } = *tier.context(slot);
        if depth > 0 {
            return Err(ContextRefusal::Lent { depth });
        }
        let ContextParameters { budget, period, refills, .. } = parameters;
        let used = ring.outstanding(now);
        if used > budget {
            return Err(ContextRefusal::ShrinkBelowDemand { used, budget });
        }
        if phase == ContextPhase::Idle {
            ring = tier.full_ring(&parameters, now);
        } else {
            ring.reconfigure(budget, period, refills, now);
        }
        let has_timer = tier.releases.remove(slot);
        let entry = tier.context_mut(slot);
        (entry.parameters, entry.ring) = (parameters, ring);
        if has_timer {
            tier.push_release(slot, phase);
        }
        Ok(())
    }

    /// Binds a context to a coroutine, which becomes its holder.
    ///
    /// # Errors
    /// Stale; either is bound already; the coroutine ended; or it is blocked while the context has
    /// no ready refill.
    pub fn bind_context(
        &mut self,
        context: ContextRef,
        target: CoroutineRef,
    ) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        let coroutine = self.slab.live_slot(target).map_err(ContextRefusal::Coroutine)?;
        let (place, state) = (self.slab.hot(coroutine).place, self.state_of(coroutine));
        if place.is_ended() {
            return Err(ContextRefusal::Coroutine(Refusal::Ended { state }));
        }
        let tier = self.tier()?;
        let (holder, ready) = (tier.context(slot).holder, tier.context(slot).ring.head().at);
        if holder != NIL {
            return Err(ContextRefusal::Bound { to: self.slab.reference(holder) });
        }
        let held = tier.held_by(coroutine);
        if held != NIL {
            return Err(ContextRefusal::TargetBound { to: tier.reference(held) });
        }
        if (place == Place::Blocked || place.is_sleeping()) && ready > Cycles(self.clock) {
            return Err(ContextRefusal::NothingReady { state, ready });
        }
        self.hand_over(slot, coroutine, Cycles::ZERO);
        Ok(())
    }

    /// Makes a coroutine without a context the holder of a context without a holder. A coroutine in
    /// the middle of its slice has used `used` cycles of it.
    pub(crate) fn hand_over(&mut self, context: u32, coroutine: u32, used: Cycles) {
        let tier = self.tier_mut();
        tier.by_coroutine[coroutine as usize] = context;
        let entry = tier.context_mut(context);
        (entry.holder, entry.phase, entry.is_missed) = (coroutine, ContextPhase::Waiting, false);
        if self.slab.hot(coroutine).held.contains(HoldReason::Context) {
            self.unstrand(coroutine);
        }
        if self.slab.hot(coroutine).place == Place::Running && self.in_slice {
            self.continue_on_context(context, used);
        } else if self.take_out_runnable(coroutine) {
            let _ = self.enqueue(coroutine, Entrance::Return);
        } else {
            self.leave_fair(coroutine);
        }
    }

    /// The running coroutine, `used` cycles into its slice, continues on a context that pays for
    /// what follows. Without a ready refill it stops at the next safepoint, where the overrun
    /// policy applies.
    fn continue_on_context(&mut self, context: u32, used: Cycles) {
        let now = Cycles(self.clock) + used;
        self.leave_fair(self.current);
        self.quantum_left = u64::MAX;
        let tier = self.tier_mut();
        // What it used so far was best effort, unless it had a context in this slice.
        if tier.payer == Payer::BestEffort {
            tier.server.debit(now.saturating_sub(Cycles(tier.charged_until)));
        }
        tier.charged_until = now.0.max(tier.charged_until);
        let sequence = tier.next_sequence();
        let entry = tier.context_mut(context);
        entry.ring.activate(now);
        if !entry.ring.is_ready(now) && entry.parameters.overrun != OverrunPolicy::NotifyOnly {
            tier.payer = Payer::Lost;
            return;
        }
        entry.renew();
        (entry.phase, entry.sequence) = (ContextPhase::Current, sequence);
        tier.payer = Payer::Context(context);
    }

    /// Takes a context from its holder, which continues as the fallback says.
    ///
    /// # Errors
    /// Stale; not bound; lent; or its holder is in a slice.
    pub fn unbind_context(&mut self, context: ContextRef) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        let Context { holder, depth, parameters, .. } = *self.tier()?.context(slot);
        if holder == NIL {
            return Err(ContextRefusal::NotBound);
        }
        if depth > 0 {
            return Err(ContextRefusal::Lent { depth });
        }
        if self.in_slice && holder == self.current {
            return Err(ContextRefusal::SelfUnbind { reference: self.slab.reference(holder) });
        }
        self.take_from_holder(slot, parameters.fallback);
        Ok(())
    }

    /// Separates a context from its holder and removes it from the tier's heaps.
    pub(crate) fn detach_holder(&mut self, context: u32) {
        self.lease_loses_target(context);
        let tier = self.tier_mut();
        let Context { holder, phase, .. } = *tier.context(context);
        tier.take_out(context, ContextPhase::Idle);
        tier.context_mut(context).holder = NIL;
        tier.by_coroutine[holder as usize] = NIL;
        if phase == ContextPhase::Throttled {
            self.unthrottle(holder);
        }
    }

    /// Takes a context from its holder, if it has one, which continues as the fallback says. A
    /// holder in a slice stops at its next safepoint.
    pub(crate) fn take_from_holder(&mut self, context: u32, fallback: Fallback) {
        let Context { holder, phase, .. } = *self.tier_mut().context(context);
        if holder == NIL {
            return;
        }
        let is_stranded = fallback == Fallback::Held && !self.slab.hot(holder).place.is_ended();
        let is_in_tier = matches!(phase, ContextPhase::Ready | ContextPhase::Current);
        let was_runnable = (is_stranded || is_in_tier) && self.take_out_runnable(holder);
        self.detach_holder(context);
        if self.tier_mut().payer == Payer::Context(context) {
            self.tier_mut().payer = Payer::Lost;
        }
        if is_stranded {
            self.strand(holder, was_runnable);
        } else if was_runnable || phase == ContextPhase::Throttled && self.take_out_runnable(holder)
        {
            let _ = self.enqueue(holder, Entrance::Return);
        }
    }

    /// Holds a coroutine until it has a context again. One that was runnable has left its queue.
    fn strand(&mut self, slot: u32, was_runnable: bool) {
        self.tier_mut().stranded += 1;
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.with(HoldReason::Context);
        if was_runnable {
            self.hold_back(slot);
        }
    }

    /// A stranded coroutine ends, or has a context again.
    pub(crate) fn unstrand(&mut self, slot: u32) {
        self.tier_mut().stranded -= 1;
        self.unthrottle(slot);
    }

    /// Revokes a context: its references become stale, its loans are canceled, its bandwidth is
    /// free. Idempotent. Calls `lender` with the tag of each lender whose loan was canceled, newest
    /// first; returns whether the context was live.
    ///
    /// # Errors
    /// The lane has no contexts.
    pub fn revoke_context(
        &mut self,
        context: ContextRef,
        mut lender: impl FnMut(Tag),
    ) -> Result<bool, ContextRefusal> {
        let Ok(slot) = self.tier()?.live_slot(context) else { return Ok(false) };
        self.close_book(context);
        let (clock, tag) = (self.clock, self.holder_tag(slot));
        let Context { depth: loans, parameters, .. } = *self.tier_mut().context(slot);
        let fallback = parameters.fallback;
        // The fallback applies to the coroutine the context is bound to, not to a borrower.
        self.take_from_holder(slot, if loans > 0 { Fallback::BestEffort } else { fallback });
        while let Some(cut) = self.tier_mut().pop_lender(slot) {
            let is_oldest = self.tier_mut().context(slot).depth == 0;
            if is_oldest && fallback == Fallback::Held && self.tier_mut().held_by(cut) == NIL {
                let was_runnable = self.take_out_runnable(cut);
                self.strand(cut, was_runnable);
            }
            lender(self.slab.hot(cut).tag);
        }
        let tier = self.tier_mut();
        tier.note(clock, slot, tag, ContextEventKind::Revoked { loans });
        tier.release_slot(slot);
        Ok(true)
    }

    /// Revokes every context that a session owns, in slot order; returns how many.
    pub fn revoke_contexts_of(&mut self, session: u32, mut lender: impl FnMut(Tag)) -> u32 {
        let slots = self.tier.as_ref().map_or(0, |tier| tier.contexts.len() as u32);
        let mut revoked = 0;
        for slot in 0..slots {
            let tier = self.tier_mut();
            if tier.context(slot).parameters.owner == session {
                let context = tier.reference(slot);
                revoked += u32::from(self.revoke_context(context, &mut lender) == Ok(true));
            }
        }
        revoked
    }

    /// Lane time charged to a context since the last call.
    ///
    /// # Errors
    /// Stale.
    pub fn take_consumed(&mut self, context: ContextRef) -> Result<Cycles, ContextRefusal> {
        Ok(Cycles(core::mem::take(&mut self.live_context(context)?.consumed)))
    }

    /// Sets the channel that is notified of timeouts, or `None`.
    ///
    /// # Errors
    /// Stale.
    pub fn set_context_timeout(
        &mut self,
        context: ContextRef,
        timeout: Option<u64>,
    ) -> Result<(), ContextRefusal> {
        self.live_context(context)?.parameters.timeout = timeout;
        Ok(())
    }

    /// Reads a context's notification cell and clears its count.
    ///
    /// # Errors
    /// Stale.
    pub fn take_notification(
        &mut self,
        context: ContextRef,
    ) -> Result<Notification, ContextRefusal> {
        let cell = &mut self.live_context(context)?.cell;
        let read = *cell;
        cell.count = 0;
        Ok(read)
    }

    /// Discards what is left of the running coroutine's head refill; it continues with the next.
    /// The caller must end its slice now, as a yield. `false` if it does not run on a context.
    pub fn yield_context(&mut self) -> bool {
        let in_slice = self.in_slice;
        let Some(tier) = &mut self.tier else { return false };
        let has_context = in_slice && tier.current_context().is_some();
        tier.discards_refill |= has_context;
        has_context
    }

    /// Reads a context.
    ///
    /// # Errors
    /// Stale.
    pub fn context(&self, context: ContextRef) -> Result<ContextView, ContextRefusal> {
        let slot = self.context_slot(context)?;
        let Context { parameters, phase, holder, deadline, depth, ring, counts, cell, .. } =
            *self.tier()?.context(slot);
        Ok(ContextView {
            context,
            parameters,
            phase,
            holder: (holder != NIL).then(|| self.slab.reference(holder)),
            deadline: Cycles(deadline),
            loans: depth,
            ring,
            counts,
            cell,
        })
    }

    /// Every context, by slot.
    pub fn contexts(&self) -> impl Iterator<Item = ContextView> + '_ {
        self.tier.iter().flat_map(|tier| {
            let slots = 0..tier.contexts.len() as u32;
            slots.filter_map(|slot| self.context(tier.reference(slot)).ok())
        })
    }

    /// The context a coroutine holds.
    #[must_use]
    pub fn context_of(&self, coroutine: CoroutineRef) -> Option<ContextRef> {
        self.context_by(coroutine, Tier::held_by)
    }

    /// The context a coroutine has lent.
    #[must_use]
    pub fn context_lent_by(&self, coroutine: CoroutineRef) -> Option<ContextRef> {
        self.context_by(coroutine, Tier::lent_by)
    }

    fn context_by(
        &self,
        coroutine: CoroutineRef,
        of: impl Fn(&Tier, u32) -> u32,
    ) -> Option<ContextRef> {
        let tier = self.tier.as_ref()?;
        let context = of(tier, self.slab.live_slot(coroutine).ok()?);
        (context != NIL).then(|| tier.reference(context))
    }

    /// The lane clock at which the next throttled or demoted context is replenished.
    #[must_use]
    pub fn next_release(&self) -> Option<Cycles> {
        self.tier.as_ref().map(|tier| tier.next_release()).filter(|&at| at != u64::MAX).map(Cycles)
    }

    /// Drains the events of contexts, in order.
    pub fn drain_context_events(&mut self, each: impl FnMut(ContextEvent)) {
        if let Some(tier) = &mut self.tier {
            tier.events.drain(..).for_each(each);
        }
    }

    /// Whether there are events to drain.
    #[inline]
    #[must_use]
    pub fn has_context_events(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| !tier.events.is_empty())
    }
}
