//! What the dispatcher does with contexts: timers, the choice between tier and policy, slice bounds, charges and depletion.
//!
//! Contract: called only on a lane that has contexts; a lane without them never comes here. Everything is decided between slices, at the lane's
//! own clock (semantics 23, 25). The order of a dispatch: refills that are due come back and deadlines that passed are noted; a boundary is passed;
//! the first of the tier displaces whoever is current and later; then tier before policy before idling to the next refill.

use super::tier::{First, ORPHAN};
use super::{Activation, ContextEventKind, ContextPhase, OverrunPolicy};
use crate::fair::Departure;
use crate::lane::{Lane, Next, Running};
use crate::queue::Entrance;
use crate::record::{NIL, Place};
use crate::types::{BoundReason, HoldReason, Outcome, Stopped, Tag};
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

impl Lane {
    /// [`Lane::dispatch`] on a lane with contexts.
    #[cold]
    #[inline(never)]
    pub(crate) fn dispatch_in_tier(&mut self) -> Next {
        loop {
            self.fire_timers();
            if self.is_over() {
                return Next::Over;
            }
            self.settle_if_due();
            if self.boundary {
                self.pass_boundary_below_tier();
            }
            let first = self.tier_first();
            self.make_way(first);
            self.tier_mut().mark = self.clock;
            let (mut picked, mut switched) = (false, false);
            if self.current == NIL {
                if self.is_measured {
                    self.measure_pick();
                }
                let context = match first {
                    Some((_, First::Context(context))) => context,
                    _ => NIL,
                };
                let slot = if context == NIL { self.choose() } else { self.take_first(context) };
                if slot == NIL {
                    match self.tier_mut().next_release() {
                        at if at < self.end => self.idle_to(Cycles(at)),
                        _ => return Next::Idle,
                    }
                    continue;
                }
                switched = self.take_up_in_tier(slot, context);
                picked = true;
                if self.clock >= self.end {
                    self.charge_elapsed();
                    return Next::Over;
                }
            }
            let hot = self.slab.hot(self.current);
            let (reference, tag) = (CoroutineRef::new(self.current, hot.generation), hot.tag);
            let (bound, reason) = self.bound();
            self.in_slice = true;
            self.step_apart();
            return Next::Run(Running { reference, tag, bound: bound.max(Cycles(1)), reason, picked, switched });
        }
    }

    /// The first of the tier as of now, the server included if best effort waits for it.
    fn tier_first(&mut self) -> Option<(super::heap::Key, First)> {
        let best_effort = self.best_effort_waits();
        let clock = self.clock;
        let tier = self.tier_mut();
        tier.server.roll(clock);
        if !best_effort {
            tier.server.active = None;
        } else if tier.server.active.is_none()
            && let Some(start) = tier.server.latest_start()
            && start <= clock
        {
            let sequence = tier.next_sequence();
            let deadline = start.saturating_add(tier.server.period);
            tier.server.active = Some((deadline, sequence));
        }
        tier.first()
    }

    /// Whether the policy has somebody to run, or runs somebody.
    fn best_effort_waits(&self) -> bool {
        let Some(tier) = &self.tier else { return false };
        self.ready_count() > tier.queued() || self.current != NIL && tier.current == NIL
    }

    /// The policy's own preemption test, for a current coroutine of the policy.
    fn pass_boundary_below_tier(&mut self) {
        if self.tier_mut().current == NIL {
            self.pass_boundary();
        }
        self.boundary = false;
    }

    /// Sends the current coroutine back to its queue when the first of the tier goes before it.
    fn make_way(&mut self, first: Option<(super::heap::Key, First)>) {
        let Some((key, first)) = first else { return };
        if self.current == NIL {
            return;
        }
        let slot = self.current;
        let context = self.tier_mut().current;
        if context == NIL {
            if first != First::Server {
                self.vacate();
                self.count_preemption(slot);
                let _ = self.enqueue(slot, Entrance::Slice);
            }
        } else {
            let own = self.tier_mut().context(context);
            let (is_missed, own) = (own.is_missed, (own.deadline, own.sequence, context));
            if key < own || first == First::Server && is_missed {
                self.vacate();
                self.count_preemption(slot);
                self.queue_in_tier(slot, context);
            }
        }
    }

    /// Takes the first context out of its heap; gives its holder.
    fn take_first(&mut self, context: u32) -> u32 {
        self.quantum_left = u64::MAX;
        let tier = self.tier_mut();
        tier.take_out(context, ContextPhase::Current);
        tier.context(context).holder
    }

    /// Makes a picked coroutine current, on its context if it was picked for one; whether that switched.
    fn take_up_in_tier(&mut self, slot: u32, context: u32) -> bool {
        let streak = self.streak;
        let (_, _, switched) = self.take_up(slot);
        let mark = self.tier_mut().mark;
        let tier = self.tier_mut();
        tier.current = context;
        if context != NIL {
            let entry = tier.context_mut(context);
            if entry.parameters.activation == Activation::ConstantBandwidth {
                entry.ring.activate(Cycles(mark));
            }
            // Picks of the tier are not the policy's.
            self.streak = streak;
        }
        switched
    }

    /// Refills that are due come back; deadlines that passed are noted.
    fn fire_timers(&mut self) {
        while let Some((at, _, context)) = self.tier_mut().releases.first()
            && at <= self.clock
        {
            self.book(SchedulerOperation::Refill);
            self.replenish(context);
        }
        let clock = self.clock;
        while let Some((deadline, _, context)) = self.tier_mut().ready.first()
            && deadline < clock
        {
            self.book(SchedulerOperation::Timer);
            self.tier_mut().ready.remove(context);
            self.miss(context);
            self.tier_mut().push_ready(context);
        }
        let context = self.tier_mut().current;
        if context != NIL
            && context != ORPHAN
            && !self.tier_mut().context(context).is_missed
            && self.tier_mut().context(context).deadline < clock
        {
            self.book(SchedulerOperation::Timer);
            self.miss(context);
        }
    }

    fn miss(&mut self, context: u32) {
        let clock = self.clock;
        let tag = self.holder_tag(context);
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        entry.is_missed = true;
        entry.counts.misses += 1;
        let deadline = Cycles(entry.deadline);
        tier.note(clock, context, tag, ContextEventKind::Missed { deadline });
    }

    /// A refill of a throttled or demoted context can be used.
    fn replenish(&mut self, context: u32) {
        let clock = self.clock;
        let tag = self.holder_tag(context);
        let tier = self.tier_mut();
        let phase = tier.context(context).phase;
        tier.take_out(context, ContextPhase::Waiting);
        tier.context_mut(context).counts.replenishments += 1;
        let entry = tier.context(context);
        let (amount, holder) = (entry.ring.head().amount, entry.holder);
        let deadline = entry.ring.head().at.saturating_add(entry.parameters.deadline);
        tier.note(clock, context, tag, ContextEventKind::Replenished { amount, deadline });
        if phase == ContextPhase::Throttled {
            let hot = self.slab.hot_mut(holder);
            hot.held = hot.held.without(HoldReason::Throttled);
            if hot.place == Place::Held && hot.held.is_empty() {
                self.held -= 1;
                self.renew(context);
                self.queue_in_tier(holder, context);
                self.join_runnable(holder);
            }
            return;
        }
        let place = self.slab.hot(holder).place;
        if place.is_ready() {
            self.end_wait(holder);
            self.dequeue(holder);
        } else if place == Place::Running {
            self.vacate();
            self.leave_runnable(holder);
        } else {
            return;
        }
        self.leave_fair(holder);
        self.renew(context);
        self.queue_in_tier(holder, context);
        self.join_runnable(holder);
    }

    /// The head is another refill: its deadline is its own.
    fn renew(&mut self, context: u32) {
        let entry = self.tier_mut().context_mut(context);
        entry.deadline = entry.ring.head().at.saturating_add(entry.parameters.deadline).0;
        entry.is_missed = false;
    }

    fn leave_fair(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.depart(slot, Departure::Move);
        }
    }

    /// Queues a holder in the tier at the deadline its context has. Who was not runnable before also joins the runnable set.
    fn queue_in_tier(&mut self, slot: u32, context: u32) {
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        hot.since = clock;
        hot.class = self.settings.policy.class(hot);
        hot.place = Place::ReadyTier;
        let tier = self.tier_mut();
        let sequence = tier.next_sequence();
        tier.context_mut(context).sequence = sequence;
        tier.push_ready(context);
    }

    /// Queues a holder. `None` if its context leaves it to the policy.
    pub(crate) fn enqueue_holder(&mut self, slot: u32, context: u32, entrance: Entrance) -> Option<Stopped> {
        if entrance.begins() {
            return self.enter_tier(slot, context);
        }
        self.queue_in_tier(slot, context);
        Some(Stopped::Requeued)
    }

    /// A holder becomes runnable (after a wait, a hold or a bind): onto its context if that has something to give. `None` if the context
    /// leaves it to the policy.
    fn enter_tier(&mut self, slot: u32, context: u32) -> Option<Stopped> {
        self.leave_fair(slot);
        // Inside a slice that lent or returned the context, time has gone on to the mark.
        let clock = Cycles(self.clock.max(self.tier_mut().mark));
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        entry.ring.activate(clock);
        let overrun = entry.parameters.overrun;
        if entry.ring.is_ready(clock) || overrun == OverrunPolicy::NotifyOnly {
            self.renew(context);
            self.queue_in_tier(slot, context);
            self.join_runnable(slot);
            return Some(Stopped::Requeued);
        }
        if overrun == OverrunPolicy::Demote {
            tier.push_release(context, ContextPhase::Demoted);
            return None;
        }
        tier.push_release(context, ContextPhase::Throttled);
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.with(HoldReason::Throttled);
        self.hold_back(slot);
        Some(Stopped::Held)
    }

    /// A queued holder leaves the tier.
    pub(crate) fn leave_tier(&mut self, slot: u32) {
        let tier = self.tier_mut();
        let context = tier.held_by(slot);
        tier.take_out(context, ContextPhase::Waiting);
    }

    /// Whether a coroutine is ready in the policy's own queue.
    pub(crate) fn is_queued_by_policy(&self, slot: u32) -> bool {
        let place = self.slab.hot(slot).place;
        place.is_ready() && place != Place::ReadyTier
    }

    /// What limits a slice of the current coroutine on a lane with contexts (semantics 25).
    #[cold]
    pub(crate) fn bound_in_tier(&self) -> (Cycles, BoundReason) {
        let Some(tier) = &self.tier else { return (Cycles::ZERO, self.end_reason) };
        let paid = self.clock - tier.mark.min(self.clock);
        let release = tier.next_release().saturating_sub(self.clock);
        let (mut bound, mut reason) = (u64::MAX, BoundReason::Refill);
        let mut consider = |cycles: u64, because: BoundReason| {
            if cycles < bound {
                (bound, reason) = (cycles, because);
            }
        };
        if tier.current == ORPHAN {
            consider(0, BoundReason::Refill);
        } else if tier.current != NIL {
            // A context that was taken up inside this slice pays from its mark on, which is ahead of the clock until the slice is booked.
            let ahead = tier.mark.saturating_sub(self.clock);
            consider((tier.context(tier.current).ring.head().amount.0 + ahead).saturating_sub(paid), BoundReason::Refill);
            if self.ready_count() > tier.queued()
                && let Some(start) = tier.server.latest_start()
                && tier.server.active.is_none()
            {
                consider(start.saturating_sub(self.clock), BoundReason::Release);
            }
        } else if tier.server.active.is_some() && tier.queued() > 0 {
            consider(tier.server.budget.saturating_sub(tier.server.served + paid), BoundReason::Refill);
        }
        consider(release, BoundReason::Release);
        let left = self.end.saturating_sub(self.clock);
        if self.end_reason == BoundReason::FrameEnd {
            consider(left, BoundReason::FrameEnd);
        }
        if tier.current == NIL {
            consider(self.quantum_left, BoundReason::Quantum);
        }
        if self.end_reason != BoundReason::FrameEnd {
            consider(left, BoundReason::WaveEnd);
        }
        (Cycles(bound), reason)
    }

    /// Charges the lane's time since the mark to whoever is current: its context, or the fair server.
    fn charge_elapsed(&mut self) -> super::Charged {
        let clock = self.clock;
        let by = self.slab.hot(self.current).tag;
        let tier = self.tier_mut();
        let elapsed = clock.saturating_sub(tier.mark);
        tier.mark = clock;
        if tier.current == NIL || tier.current == ORPHAN {
            tier.server.debit(elapsed);
            return super::Charged::default();
        }
        let entry = tier.context_mut(tier.current);
        entry.consumed = entry.consumed.saturating_add(elapsed);
        entry.counts.consumed = entry.counts.consumed.saturating_add(Cycles(elapsed));
        let charged = entry.ring.charge(Cycles(elapsed));
        if let Some(books) = &mut tier.books {
            books.charge(tier.current, by, Cycles(elapsed), charged.overrun);
        }
        charged
    }

    /// The stop of a slice on a lane with contexts: charges, and for a holder decides. `None`: the policy's rules go on.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop_in_tier(&mut self, slot: u32, outcome: Outcome) -> Option<Stopped> {
        let charged = self.charge_elapsed();
        let context = self.tier_mut().current;
        if context == NIL {
            return None;
        }
        if let Some(context) = self.tier_mut().current_context() {
            // Late is late, also for a slice that ends with everything done; what it ran beyond its refill was not owed by then.
            let done = self.clock.saturating_sub(charged.overrun.0);
            let entry = self.tier_mut().context(context);
            if !entry.is_missed && entry.deadline < done {
                self.miss(context);
            }
        }
        let gave_up = core::mem::take(&mut self.tier_mut().gave_up);
        Some(match outcome {
            Outcome::Slept(frame) if frame > self.frame => {
                self.vacate();
                self.sleep(slot, frame)
            }
            Outcome::Blocked(reason) => {
                self.vacate();
                self.block(slot, reason)
            }
            Outcome::Finished | Outcome::Faulted => {
                self.vacate();
                self.leave_runnable(slot);
                self.end(slot, if outcome == Outcome::Finished { Place::Finished } else { Place::Faulted })
            }
            Outcome::OutOfCycles | Outcome::Yielded | Outcome::Slept(_) if context == ORPHAN => {
                self.vacate();
                self.leave_runnable(slot);
                self.arrive(slot, Entrance::Return)
            }
            Outcome::OutOfCycles | Outcome::Yielded | Outcome::Slept(_) => {
                self.go_on(slot, context, (charged, gave_up), outcome == Outcome::OutOfCycles)
            }
        })
    }

    /// A holder could go on: with what its context has, if it has any.
    fn go_on(&mut self, slot: u32, context: u32, (charged, gave_up): (super::Charged, bool), keeps: bool) -> Stopped {
        let clock = Cycles(self.clock);
        let entry = self.tier_mut().context_mut(context);
        if gave_up && !charged.exhausted {
            entry.ring.discard();
        }
        if !entry.ring.is_ready(clock) {
            return self.deplete(slot, context, charged.overrun, gave_up);
        }
        if charged.exhausted || gave_up {
            self.renew(context);
        }
        if keeps {
            return self.keep(slot);
        }
        self.vacate();
        if !self.slab.hot(slot).held.is_empty() {
            self.leave_runnable(slot);
            self.hold_back(slot);
            return Stopped::Held;
        }
        self.queue_in_tier(slot, context);
        Stopped::Requeued
    }

    /// The current holder has used up what its context may give now.
    fn deplete(&mut self, slot: u32, context: u32, overrun: Cycles, gave_up: bool) -> Stopped {
        let (clock, tag) = (self.clock, self.holder_tag(context));
        self.vacate();
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        entry.counts.longest_overrun = entry.counts.longest_overrun.max(overrun);
        let (mut policy, until) = (entry.parameters.overrun, entry.ring.head().at);
        if gave_up {
            // It asked to wait for the next refill: nothing to be told, demoted or ended for.
            policy = OverrunPolicy::Throttle;
        }
        if policy.notifies() {
            self.notify(context, overrun);
        }
        let is_held = !self.slab.hot(slot).held.is_empty();
        match policy {
            OverrunPolicy::NotifyOnly => {
                self.renew(context);
                let deadline = Cycles(self.tier_mut().context(context).deadline);
                self.tier_mut().note(clock, context, tag, ContextEventKind::Overran { deadline, overrun });
                if is_held {
                    self.leave_runnable(slot);
                    self.hold_back(slot);
                    return Stopped::Held;
                }
                self.queue_in_tier(slot, context);
                Stopped::Requeued
            }
            OverrunPolicy::Demote if !is_held => {
                let tier = self.tier_mut();
                tier.context_mut(context).counts.demotions += 1;
                tier.note(clock, context, tag, ContextEventKind::Demoted { until, overrun });
                tier.push_release(context, ContextPhase::Demoted);
                self.leave_runnable(slot);
                self.arrive(slot, Entrance::Return)
            }
            _ => {
                let tier = self.tier_mut();
                if !gave_up {
                    tier.context_mut(context).counts.throttles += 1;
                    tier.note(clock, context, tag, ContextEventKind::Throttled { until, overrun });
                }
                if policy == OverrunPolicy::End {
                    // Whoever it was bound to is to be ended; a borrower only loses it.
                    let entry = self.tier_mut().context(context);
                    let oldest = (entry.depth > 0).then_some(entry.lenders[0]);
                    let bound = oldest.map_or(tag, |lender| Some(self.slab.hot(lender).tag));
                    self.tier_mut().note(clock, context, bound, ContextEventKind::End);
                }
                let tier = self.tier_mut();
                tier.push_release(context, ContextPhase::Throttled);
                let hot = self.slab.hot_mut(slot);
                hot.held = hot.held.with(HoldReason::Throttled);
                self.leave_runnable(slot);
                self.hold_back(slot);
                Stopped::Held
            }
        }
    }

    /// Writes a context's cell; the timeout channel is told when it was empty.
    fn notify(&mut self, context: u32, overrun: Cycles) {
        let (clock, tag) = (Cycles(self.clock), self.holder_tag(context));
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        let was_empty = entry.cell.count == 0;
        if was_empty {
            entry.cell.first = clock;
        }
        entry.cell.count += 1;
        entry.cell.sequence += 1;
        entry.cell.last = clock;
        entry.cell.overrun = overrun;
        if let Some(channel) = entry.parameters.timeout
            && was_empty
        {
            tier.note(clock.0, context, tag, ContextEventKind::Notify { channel });
        }
    }

    /// The current coroutine leaves the lane: its context is nobody's current any more. Part of [`Lane::vacate`].
    pub(crate) fn vacate_context(&mut self) {
        let tier = self.tier_mut();
        let context = core::mem::replace(&mut tier.current, NIL);
        if context != NIL && context != ORPHAN {
            tier.context_mut(context).phase = ContextPhase::Waiting;
        }
    }

    pub(crate) fn holder_tag(&self, context: u32) -> Option<Tag> {
        let holder = self.tier.as_ref()?.context(context).holder;
        (holder != NIL).then(|| self.slab.hot(holder).tag)
    }

    pub(crate) fn tier_mut(&mut self) -> &mut super::Tier {
        self.tier.as_mut().expect("only a lane with contexts comes here")
    }
}
