//! What the owner of time does with it: reserve, create, configure, bind, unbind, revoke, read.
//!
//! Contract: each call checks everything before it changes anything; a refusal is typed and carries its numbers. Bandwidth is reserved by
//! admission before a context exists, and given back when it is revoked. All of it may be called inside a slice of the lane. After
//! [`Lane::reserve_contexts`] nothing here allocates.
//!
//! Elsewhere: who may call it (`system`).

use super::admission::{admit, largest_budget};
use super::refill::{LEAST_REFILLS, MOST_REFILLS, RefillRing};
use super::tier::ORPHAN;
use super::{
    ContextEvent, ContextEventKind, ContextParameters, ContextPhase, ContextRefusal, ContextSettings, ContextView, Denied, Fallback,
    Notification, Terms, Tier,
};
use crate::lane::Lane;
use crate::queue::Entrance;
use crate::record::{NIL, Place};
use crate::types::{HoldReason, Refusal};
use alloc::boxed::Box;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// The longest period: any sum of two on a lane's clock is far from its end.
const MOST_PERIOD: Cycles = Cycles(1 << 56);

impl Lane {
    /// Lets this lane keep contexts, with room for so many. Asked again it makes more room; the settings are those of the first time.
    ///
    /// # Errors
    /// The host has no memory.
    ///
    /// # Panics
    /// When a slice is open.
    pub fn reserve_contexts(&mut self, settings: ContextSettings, contexts: u32) -> Result<(), Refusal> {
        assert!(!self.in_slice, "room for contexts is made between slices");
        let slots = self.slab.slots_reserved();
        let (costs, frame_cycles) = (self.settings.costs, self.settings.frame_cycles.0);
        let tier = self.tier.get_or_insert_with(|| Box::new(Tier::new(settings, costs, frame_cycles)));
        tier.reserve(contexts, slots)?;
        self.is_plain = false;
        self.renew_simple();
        Ok(())
    }

    /// Whether this lane keeps contexts.
    #[must_use]
    pub const fn has_contexts(&self) -> bool {
        self.tier.is_some()
    }

    /// The smallest budget this lane can enforce, 2 * (G + switch).
    ///
    /// # Errors
    /// The lane keeps no contexts.
    pub fn least_budget(&self) -> Result<Cycles, ContextRefusal> {
        Ok(self.tier.as_ref().ok_or(ContextRefusal::Off)?.least_budget())
    }

    /// What this lane adds to the demand of its contexts, and what it can give.
    ///
    /// # Errors
    /// The lane keeps no contexts.
    pub fn context_terms(&self) -> Result<Terms, ContextRefusal> {
        Ok(self.tier.as_ref().ok_or(ContextRefusal::Off)?.terms())
    }

    fn context_slot(&self, context: ContextRef) -> Result<u32, ContextRefusal> {
        self.tier.as_ref().ok_or(ContextRefusal::Off)?.live_slot(context)
    }

    /// Checks parameters alone, without the lane's other promises.
    fn check_parameters(&self, parameters: &ContextParameters) -> Result<&Tier, ContextRefusal> {
        let tier = self.tier.as_ref().ok_or(ContextRefusal::Off)?;
        let ContextParameters { budget, period, deadline, refills, .. } = *parameters;
        let least = tier.least_budget();
        if budget < least {
            return Err(ContextRefusal::BudgetTooSmall { budget, least, gap: tier.settings.gap, switch: tier.costs.switch });
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
        if !(LEAST_REFILLS..=MOST_REFILLS).contains(&refills) {
            return Err(ContextRefusal::Refills { found: refills });
        }
        Ok(tier)
    }

    /// Whether a context with these parameters would be admitted, beside all others or in place of one of them.
    ///
    /// # Errors
    /// A parameter is out of range, or the lane cannot promise it; with the arithmetic.
    pub fn would_admit(&self, parameters: &ContextParameters, instead_of: Option<ContextRef>) -> Result<(), ContextRefusal> {
        let tier = self.check_parameters(parameters)?;
        let without = instead_of.map_or(NIL, |context| context.slot);
        let others = tier.contexts.iter().enumerate().filter(move |(slot, entry)| entry.is_live && *slot as u32 != without);
        let others = others.map(|(_, entry)| entry.parameters.demand());
        let (terms, wanted) = (tier.terms(), parameters.demand());
        admit(&terms, others.clone().chain(core::iter::once(wanted))).map_err(|shortfall| {
            ContextRefusal::Denied(Denied {
                contexts: tier.live,
                wanted,
                shortfall,
                fits: largest_budget(&terms, others, wanted, tier.least_budget()),
            })
        })
    }

    /// Makes a context: bandwidth first, then the object. Its budget is usable from now on.
    ///
    /// # Errors
    /// A parameter is out of range, there is no room, or admission is denied.
    pub fn create_context(&mut self, parameters: ContextParameters) -> Result<ContextRef, ContextRefusal> {
        self.would_admit(&parameters, None)?;
        self.create_context_unadmitted(parameters)
    }

    /// Makes a context without asking whether the lane can keep the promise. For tests of overload and for benchmarks: deadlines may be missed.
    ///
    /// # Errors
    /// A parameter is out of range, or there is no room.
    pub fn create_context_unadmitted(&mut self, parameters: ContextParameters) -> Result<ContextRef, ContextRefusal> {
        let tier = self.check_parameters(&parameters)?;
        if !tier.room() {
            return Err(ContextRefusal::NotReserved { live: tier.live, capacity: tier.capacity });
        }
        let least = tier.least_budget();
        let ring = RefillRing::new(parameters.budget, parameters.period, parameters.refills, least, Cycles(self.clock));
        Ok(self.tier_mut().allocate(parameters, ring))
    }

    /// Changes a context's parameters. One in use keeps its window: what it used stays used.
    ///
    /// # Errors
    /// Stale, lent, out of range, denied, or the new budget is below what the running period used.
    pub fn configure_context(&mut self, context: ContextRef, parameters: ContextParameters) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        self.would_admit(&parameters, Some(context))?;
        let clock = Cycles(self.clock);
        let entry = self.tier_mut().context(slot);
        if entry.depth > 0 {
            return Err(ContextRefusal::Lent { depth: entry.depth });
        }
        let used = entry.ring.outstanding(clock);
        if used > parameters.budget {
            return Err(ContextRefusal::ShrinkBelowDemand { used, budget: parameters.budget });
        }
        let phase = entry.phase;
        let waits_for_refill = matches!(phase, ContextPhase::Throttled | ContextPhase::Demoted);
        let tier = self.tier_mut();
        if waits_for_refill {
            tier.releases.remove(slot);
        }
        let least = tier.least_budget();
        let entry = tier.context_mut(slot);
        if phase == ContextPhase::Idle {
            entry.ring = RefillRing::new(parameters.budget, parameters.period, parameters.refills, least, clock);
        } else {
            entry.ring.reconfigure(parameters.budget, parameters.period, parameters.refills, clock);
        }
        entry.parameters = parameters;
        if waits_for_refill {
            tier.push_release(slot, phase);
        }
        Ok(())
    }

    /// Gives a coroutine a context to run on.
    ///
    /// # Errors
    /// Stale; either has another; the coroutine ended; or it waits while the context has nothing to give.
    pub fn bind_context(&mut self, context: ContextRef, target: CoroutineRef) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        let coroutine = self.slab.live_slot(target).map_err(ContextRefusal::Coroutine)?;
        let place = self.slab.hot(coroutine).place;
        if place.is_ended() {
            return Err(ContextRefusal::Coroutine(Refusal::Ended { state: self.state_of(coroutine) }));
        }
        let clock = Cycles(self.clock);
        let tier = self.tier_mut();
        let entry = tier.context(slot);
        if entry.holder != NIL {
            let holder = entry.holder;
            return Err(ContextRefusal::Bound { to: self.slab.reference(holder) });
        }
        let ready = entry.ring.head().at;
        let held = tier.held_by(coroutine);
        if held != NIL {
            return Err(ContextRefusal::TargetBound { to: tier.reference(held) });
        }
        if (place == Place::Blocked || place.is_sleeping()) && ready > clock {
            return Err(ContextRefusal::NothingReady { state: self.state_of(coroutine), ready });
        }
        self.hand_over(slot, coroutine, Cycles::ZERO);
        Ok(())
    }

    /// A coroutine without a context becomes the holder of one without a holder. One in the middle of its slice has used `used` of that.
    pub(crate) fn hand_over(&mut self, context: u32, coroutine: u32, used: Cycles) {
        let tier = self.tier_mut();
        tier.by_coroutine[coroutine as usize] = context;
        let entry = tier.context_mut(context);
        (entry.holder, entry.phase, entry.is_missed) = (coroutine, ContextPhase::Waiting, false);
        let place = self.slab.hot(coroutine).place;
        if self.slab.hot(coroutine).held.contains(HoldReason::Throttled) {
            self.unstrand(coroutine);
        }
        match place {
            Place::Running if self.in_slice => self.begin_on_context(context, used),
            Place::Running => {
                self.vacate();
                self.leave_runnable(coroutine);
                let _ = self.enqueue(coroutine, Entrance::Return);
            }
            place if place.is_ready() => {
                self.end_wait(coroutine);
                self.dequeue(coroutine);
                let _ = self.enqueue(coroutine, Entrance::Return);
            }
            Place::Held if self.slab.hot(coroutine).held.is_empty() => {
                self.held -= 1;
                let _ = self.enqueue(coroutine, Entrance::Return);
            }
            _ => {
                if let Some(fair) = &mut self.fair {
                    fair.depart(coroutine, crate::fair::Departure::Move);
                }
            }
        }
    }

    /// The running coroutine goes on with the rest of its slice on a context, which pays from now on; `used` was used before. One with nothing to
    /// give yet stops it at the next safepoint, to wait as the context says.
    fn begin_on_context(&mut self, context: u32, used: Cycles) {
        let now = Cycles(self.clock) + used;
        // What was used before was best effort, unless a context that it had in this slice has paid for it.
        let best_effort = self.tier_mut().current == NIL;
        if let Some(fair) = &mut self.fair {
            fair.depart(self.current, crate::fair::Departure::Move);
        }
        self.quantum_left = u64::MAX;
        let tier = self.tier_mut();
        if best_effort {
            tier.server.debit(now.0.saturating_sub(tier.mark));
        }
        tier.mark = now.0.max(tier.mark);
        let sequence = tier.next_sequence();
        let entry = tier.context_mut(context);
        entry.ring.activate(now);
        if !entry.ring.is_ready(now) && entry.parameters.overrun != super::OverrunPolicy::NotifyOnly {
            tier.current = ORPHAN;
            return;
        }
        entry.deadline = entry.ring.head().at.saturating_add(entry.parameters.deadline).0;
        (entry.phase, entry.sequence) = (ContextPhase::Current, sequence);
        tier.current = context;
    }

    /// Takes a context from its holder, which then runs as its fallback says.
    ///
    /// # Errors
    /// Stale; not bound; lent; or its holder is in a slice.
    pub fn unbind_context(&mut self, context: ContextRef) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        let entry = self.tier_mut().context(slot);
        let (holder, depth) = (entry.holder, entry.depth);
        if holder == NIL {
            return Err(ContextRefusal::NotBound);
        }
        if depth > 0 {
            return Err(ContextRefusal::Lent { depth });
        }
        if self.in_slice && holder == self.current {
            return Err(ContextRefusal::SelfUnbind { reference: self.slab.reference(holder) });
        }
        let fallback = self.tier_mut().context(slot).parameters.fallback;
        self.take_from_holder(slot, fallback);
        Ok(())
    }

    /// Takes a context from its holder, wherever it is; gives who that was and the phase. The holder's own place is the caller's to settle.
    pub(crate) fn detach_holder(&mut self, context: u32) -> Option<(u32, ContextPhase)> {
        let tier = self.tier_mut();
        let entry = tier.context(context);
        let (holder, phase) = (entry.holder, entry.phase);
        if holder == NIL {
            return None;
        }
        tier.take_out(context, ContextPhase::Idle);
        tier.context_mut(context).holder = NIL;
        tier.by_coroutine[holder as usize] = NIL;
        if phase == ContextPhase::Throttled {
            let hot = self.slab.hot_mut(holder);
            hot.held = hot.held.without(HoldReason::Throttled);
        }
        Some((holder, phase))
    }

    /// The holder goes on without the context, as the fallback says. One in a slice stops at its next safepoint.
    pub(crate) fn take_from_holder(&mut self, context: u32, fallback: Fallback) {
        let Some((holder, phase)) = self.detach_holder(context) else { return };
        let place = self.slab.hot(holder).place;
        if fallback == Fallback::Held && !place.is_ended() {
            return self.strand(holder, phase);
        }
        match phase {
            ContextPhase::Current => {
                if self.in_slice {
                    self.tier_mut().current = ORPHAN;
                } else {
                    self.vacate();
                    self.leave_runnable(holder);
                    let _ = self.enqueue(holder, Entrance::Return);
                }
            }
            ContextPhase::Ready => {
                self.end_wait(holder);
                self.leave_runnable(holder);
                let _ = self.enqueue(holder, Entrance::Return);
            }
            ContextPhase::Throttled if place == Place::Held && self.slab.hot(holder).held.is_empty() => {
                self.held -= 1;
                let _ = self.enqueue(holder, Entrance::Return);
            }
            _ => {}
        }
    }

    /// A holder that may not run without a context.
    fn strand(&mut self, holder: u32, phase: ContextPhase) {
        self.tier_mut().stranded += 1;
        let hot = self.slab.hot_mut(holder);
        hot.held = hot.held.with(HoldReason::Throttled);
        match self.slab.hot(holder).place {
            Place::Running if self.in_slice => {
                if phase == ContextPhase::Current {
                    self.tier_mut().current = ORPHAN;
                }
                return;
            }
            Place::Running => {
                self.vacate();
                self.leave_runnable(holder);
            }
            Place::ReadyTier => {
                self.end_wait(holder);
                self.leave_runnable(holder);
            }
            place if place.is_ready() => {
                self.end_wait(holder);
                self.dequeue(holder);
            }
            _ => return,
        }
        self.hold_back(holder);
    }

    /// A stranded coroutine ends, or has a context again.
    pub(crate) fn unstrand(&mut self, slot: u32) {
        self.tier_mut().stranded -= 1;
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.without(HoldReason::Throttled);
    }

    /// Ends a context: its references are stale, its loans are cut, its bandwidth is free. Revoking it again is no error and does nothing.
    /// Gives the tags of the lenders whose calls lost their time, the newest first.
    ///
    /// # Errors
    /// The lane keeps no contexts.
    pub fn revoke_context(&mut self, context: ContextRef, mut lender: impl FnMut(crate::types::Tag)) -> Result<bool, ContextRefusal> {
        let slot = match self.context_slot(context) {
            Ok(slot) => slot,
            Err(ContextRefusal::Stale { .. }) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        self.close_book(context);
        let clock = self.clock;
        let tag = self.holder_tag(slot);
        let entry = self.tier_mut().context(slot);
        let (loans, fallback) = (entry.depth, entry.parameters.fallback);
        // A borrower never ran by this context's leave alone; whom it is bound to did.
        self.take_from_holder(slot, if loans > 0 { Fallback::BestEffort } else { fallback });
        while self.tier_mut().context(slot).depth > 0 {
            let entry = self.tier_mut().context_mut(slot);
            entry.depth -= 1;
            let cut = entry.lenders[usize::from(entry.depth)];
            let is_oldest = entry.depth == 0;
            self.tier_mut().lent[cut as usize] = NIL;
            if is_oldest && fallback == Fallback::Held && self.tier_mut().held_by(cut) == NIL {
                self.strand(cut, ContextPhase::Waiting);
            }
            lender(self.slab.hot(cut).tag);
        }
        let tier = self.tier_mut();
        tier.note(clock, slot, tag, ContextEventKind::Revoked { loans });
        tier.release_slot(slot);
        Ok(true)
    }

    /// Revokes every context that a session owns, in slot order. Gives how many.
    pub fn revoke_contexts_of(&mut self, session: u32, mut lender: impl FnMut(crate::types::Tag)) -> u32 {
        let slots = self.tier.as_ref().map_or(0, |tier| tier.contexts.len() as u32);
        let mut revoked = 0;
        for slot in 0..slots {
            let tier = self.tier_mut();
            let entry = tier.context(slot);
            if entry.is_live && entry.parameters.owner == session {
                let context = tier.reference(slot);
                revoked += u32::from(self.revoke_context(context, &mut lender) == Ok(true));
            }
        }
        revoked
    }

    /// Lane time charged to a context since it was asked last.
    ///
    /// # Errors
    /// Stale.
    pub fn take_consumed(&mut self, context: ContextRef) -> Result<Cycles, ContextRefusal> {
        let slot = self.context_slot(context)?;
        Ok(Cycles(core::mem::take(&mut self.tier_mut().context_mut(slot).consumed)))
    }

    /// Names the channel that is told about timeouts, or none.
    ///
    /// # Errors
    /// Stale.
    pub fn set_context_timeout(&mut self, context: ContextRef, timeout: Option<u64>) -> Result<(), ContextRefusal> {
        let slot = self.context_slot(context)?;
        self.tier_mut().context_mut(slot).parameters.timeout = timeout;
        Ok(())
    }

    /// Reads and clears a context's cell.
    ///
    /// # Errors
    /// Stale.
    pub fn take_notification(&mut self, context: ContextRef) -> Result<Notification, ContextRefusal> {
        let slot = self.context_slot(context)?;
        let cell = &mut self.tier_mut().context_mut(slot).cell;
        let read = *cell;
        cell.count = 0;
        Ok(read)
    }

    /// The running coroutine gives up the rest of its refill: it goes on with the next one. Its slice must end now, as a yield. `false` if
    /// it has no context.
    pub fn yield_context(&mut self) -> bool {
        let in_slice = self.in_slice;
        let Some(tier) = &mut self.tier else { return false };
        let has_context = in_slice && tier.current != NIL && tier.current != ORPHAN;
        tier.gave_up |= has_context;
        has_context
    }

    /// What can be read of a context.
    ///
    /// # Errors
    /// Stale.
    pub fn context(&self, context: ContextRef) -> Result<ContextView, ContextRefusal> {
        let slot = self.context_slot(context)?;
        let tier = self.tier.as_ref().ok_or(ContextRefusal::Off)?;
        let entry = tier.context(slot);
        Ok(ContextView {
            context,
            parameters: entry.parameters,
            phase: entry.phase,
            holder: (entry.holder != NIL).then(|| self.slab.reference(entry.holder)),
            deadline: Cycles(entry.deadline),
            loans: entry.depth,
            ring: entry.ring,
            counts: entry.counts,
            cell: entry.cell,
        })
    }

    /// Every context, by slot.
    pub fn contexts(&self) -> impl Iterator<Item = ContextView> + '_ {
        let live = self.tier.iter().flat_map(|tier| (0..tier.contexts.len() as u32).map(|slot| tier.reference(slot)));
        live.filter_map(|context| self.context(context).ok())
    }

    /// The context a coroutine holds.
    #[must_use]
    pub fn context_of(&self, coroutine: CoroutineRef) -> Option<ContextRef> {
        let tier = self.tier.as_ref()?;
        let slot = self.slab.live_slot(coroutine).ok()?;
        Some(tier.held_by(slot)).filter(|&context| context != NIL).map(|context| tier.reference(context))
    }

    /// The context a coroutine has lent along a call.
    #[must_use]
    pub fn context_lent_by(&self, coroutine: CoroutineRef) -> Option<ContextRef> {
        let tier = self.tier.as_ref()?;
        let slot = self.slab.live_slot(coroutine).ok()?;
        Some(tier.lent_by(slot)).filter(|&context| context != NIL).map(|context| tier.reference(context))
    }

    /// When the next refill comes that somebody waits for.
    #[must_use]
    pub fn next_release(&self) -> Option<Cycles> {
        self.tier.as_ref().map(|tier| tier.next_release()).filter(|&at| at != u64::MAX).map(Cycles)
    }

    /// Coroutines that are held until somebody gives them a context: not a finite wait.
    #[must_use]
    pub fn stranded(&self) -> u32 {
        self.tier.as_ref().map_or(0, |tier| tier.stranded)
    }

    /// Gives what happened to contexts since it was asked last, in order.
    pub fn drain_context_events(&mut self, each: impl FnMut(ContextEvent)) {
        if let Some(tier) = &mut self.tier {
            tier.events.drain(..).for_each(each);
        }
    }

    /// Whether anything happened to contexts since the last drain.
    #[inline]
    #[must_use]
    pub fn has_context_events(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| !tier.events.is_empty())
    }
}
