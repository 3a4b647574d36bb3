//! Contexts in the dispatcher: timers, the choice between tier and policy, slice bounds, charges
//! and depletion.
//!
//! Contract: called only on a lane that has contexts. Everything is decided between slices, at the
//! lane's own clock (semantics 23, 25). The order of a dispatch: replenish refills that are due and
//! record missed deadlines; pass a boundary; preempt the current coroutine if the first of the tier
//! has an earlier deadline; then dispatch from the tier, else by the policy, else idle until the
//! next refill.
//!
//! Elsewhere: the heaps and the fair server (`tier`), how refills are charged (`refill`).

use super::heap::Key;
use super::tier::SERVER;
use super::{
    Activation, Charged, ContextEventKind, ContextPhase, Notification, OverrunPolicy, Payer, Tier,
};
use crate::fair::Leave;
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
            if self.boundary {
                if self.tier_mut().payer == Payer::BestEffort {
                    self.pass_boundary();
                }
                self.boundary = false;
            }
            let first = self.tier_first();
            if let Some(key) = first {
                self.preempt_for(key);
            }
            self.tier_mut().charged_until = self.clock;
            self.mark_cap();
            self.mark_fair();
            let (mut picked, mut switched) = (false, false);
            if self.current == NIL {
                if self.tally.is_measured {
                    self.measure_pick();
                }
                let context = first.map(|(.., slot)| slot).filter(|&slot| slot != SERVER);
                let Some(has_switched) = self.pick_in_tier(context) else {
                    let release = self.tier_mut().next_release();
                    if release >= self.cache.end {
                        return Next::Idle;
                    }
                    self.idle_to(Cycles(release));
                    continue;
                };
                (picked, switched) = (true, has_switched);
                if self.clock >= self.cache.end {
                    self.charge_until(self.clock);
                    if self.tier_mut().payer == Payer::BestEffort {
                        self.charge_fair(Cycles::ZERO);
                    }
                    if !self.caps.is_empty() {
                        let _ = self.charge_cap(self.clock);
                    }
                    return Next::Over;
                }
            }
            let hot = self.slab.hot(self.current);
            let (reference, tag) = (CoroutineRef::new(self.current, hot.generation), hot.tag);
            let (bound, reason) = self.bound();
            let bound = bound.max(Cycles(1));
            self.in_slice = true;
            self.steps += 1;
            return Next::Run(Running { reference, tag, bound, reason, picked, switched });
        }
    }

    /// The first key of the tier, with the server in it if best effort is runnable.
    fn tier_first(&mut self) -> Option<Key> {
        let (clock, ready, is_current) = (self.clock, self.ready_count(), self.current != NIL);
        let is_quiet = self.is_quiet();
        let tier = self.tier_mut();
        let is_best_effort_runnable =
            ready > tier.queued() || is_current && tier.payer == Payer::BestEffort;
        tier.server.roll(Cycles(clock));
        // A leased lane has no best effort to serve but its own holder, demoted.
        if !is_best_effort_runnable || is_quiet {
            tier.server.state.active = None;
        } else if tier.server.state.active.is_none()
            && let Some(start) = tier.server.latest_start()
            && start <= Cycles(clock)
        {
            let deadline = start.saturating_add(tier.server.period);
            tier.server.state.active = Some((deadline, tier.next_sequence()));
        }
        tier.first()
    }

    /// Requeues the current coroutine if the first of the tier has precedence over it.
    fn preempt_for(&mut self, first: Key) {
        let slot = self.current;
        if slot == NIL {
            return;
        }
        let is_server = first.2 == SERVER;
        let tier = self.tier_mut();
        let context = tier.current_context();
        let is_preempted = context.map_or(!is_server, |context| {
            let own = tier.context(context);
            first < (own.deadline, own.sequence, context) || is_server && own.is_missed
        });
        if is_preempted {
            self.vacate();
            self.count_preemption(slot);
            match context {
                Some(context) => self.queue_in_tier(slot, context),
                None => {
                    let _ = self.enqueue(slot, Entrance::Slice);
                }
            }
        }
    }

    /// Makes the holder of `context` current, or without one the policy's pick; returns whether
    /// that switched. `None` if no coroutine is ready.
    fn pick_in_tier(&mut self, context: Option<u32>) -> Option<bool> {
        let slot = match context {
            None => self.choose(),
            Some(context) => {
                self.quantum_left = u64::MAX;
                let tier = self.tier_mut();
                tier.take_out(context, ContextPhase::Current);
                tier.context(context).holder
            }
        };
        if slot == NIL {
            return None;
        }
        let streak = self.ready.streak;
        let (_, _, switched) = self.take(slot);
        self.caused_by(slot, SchedulerOperation::Pick);
        if switched {
            self.caused_by(slot, SchedulerOperation::Switch);
        }
        let Some(context) = context else { return Some(switched) };
        // A pick of the tier does not count for the policy.
        self.ready.streak = streak;
        let tier = self.tier_mut();
        tier.payer = Payer::Context(context);
        let now = Cycles(tier.charged_until);
        let entry = tier.context_mut(context);
        if entry.parameters.activation == Activation::ConstantBandwidth {
            entry.ring.activate(now);
        }
        Some(switched)
    }

    /// Replenishes refills that are due and records missed deadlines.
    fn fire_timers(&mut self) {
        while let Some((at, _, context)) = self.tier_mut().releases.first()
            && at <= self.clock
        {
            self.book(SchedulerOperation::Refill);
            self.caused_by_context(context, SchedulerOperation::Refill);
            self.replenish(context);
        }
        let clock = self.clock;
        while let Some((deadline, _, context)) = self.tier_mut().ready.first()
            && deadline < clock
        {
            self.book(SchedulerOperation::Timer);
            self.caused_by_context(context, SchedulerOperation::Timer);
            self.tier_mut().ready.remove(context);
            self.miss(context);
            self.tier_mut().push_ready(context);
        }
        if let Some(context) = self.tier_mut().current_context()
            && self.tier_mut().context(context).is_late(clock)
        {
            self.book(SchedulerOperation::Timer);
            self.caused_by_context(context, SchedulerOperation::Timer);
            self.miss(context);
        }
    }

    fn miss(&mut self, context: u32) {
        let entry = self.tier_mut().context_mut(context);
        entry.is_missed = true;
        entry.counts.misses += 1;
        let deadline = Cycles(entry.deadline);
        self.note_context(context, ContextEventKind::Missed { deadline });
    }

    /// Queues a throttled or demoted context whose head refill is ready.
    fn replenish(&mut self, context: u32) {
        let tier = self.tier_mut();
        let is_throttled = tier.context(context).phase == ContextPhase::Throttled;
        tier.take_out(context, ContextPhase::Waiting);
        let entry = tier.context_mut(context);
        entry.counts.replenishments += 1;
        let (amount, holder) = (entry.ring.head().amount, entry.holder);
        let deadline = Cycles(entry.next_deadline());
        self.note_context(context, ContextEventKind::Replenished { amount, deadline });
        if is_throttled {
            self.unthrottle(holder);
        }
        if self.take_out_runnable(holder) {
            self.leave_fair(holder);
            self.enter_ready(holder, context);
        }
    }

    /// Removes a coroutine that could run (ready, current between slices, or held without a reason
    /// left) from its queue and the runnable set. `false` if it could not.
    pub(crate) fn take_out_runnable(&mut self, slot: u32) -> bool {
        let hot = self.slab.hot(slot);
        let is_runnable = match hot.place {
            Place::Running => !self.in_slice,
            Place::Throttled => hot.held.is_empty(),
            place => place.is_ready(),
        };
        if is_runnable {
            if hot.place.is_ready() {
                self.end_wait(slot);
            }
            self.withdraw(slot);
        }
        is_runnable
    }

    pub(crate) fn leave_fair(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.leave(slot, Leave::Move);
        }
    }

    /// Queues a holder that becomes runnable on the head refill of its context.
    fn enter_ready(&mut self, slot: u32, context: u32) {
        self.tier_mut().context_mut(context).renew();
        self.queue_in_tier(slot, context);
        self.join_runnable(slot);
    }

    /// Queues a runnable holder in the tier at the deadline of its context.
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

    /// Queues a holder, or throttles it. `None` if it is demoted: the policy queues it.
    pub(crate) fn enqueue_holder(
        &mut self,
        slot: u32,
        context: u32,
        entrance: Entrance,
    ) -> Option<Stopped> {
        if !entrance.begins() {
            self.queue_in_tier(slot, context);
            return Some(Stopped::Requeued);
        }
        self.leave_fair(slot);
        let clock = self.clock;
        let tier = self.tier_mut();
        // A slice that lent or returned the context has advanced time beyond the clock.
        let now = Cycles(clock.max(tier.charged_until));
        let entry = tier.context_mut(context);
        entry.ring.activate(now);
        let overrun = entry.parameters.overrun;
        if entry.ring.is_ready(now) || overrun == OverrunPolicy::NotifyOnly {
            self.enter_ready(slot, context);
            return Some(Stopped::Requeued);
        }
        if overrun == OverrunPolicy::Demote {
            tier.push_release(context, ContextPhase::Demoted);
            return None;
        }
        self.throttle(slot, context);
        Some(Stopped::Throttled)
    }

    /// Holds back a holder, which has left the runnable set, until its context's next refill.
    fn throttle(&mut self, slot: u32, context: u32) {
        self.tier_mut().push_release(context, ContextPhase::Throttled);
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.with(HoldReason::Context);
        self.hold_back(slot);
    }

    pub(crate) fn unthrottle(&mut self, slot: u32) {
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.without(HoldReason::Context);
    }

    /// Removes a queued holder from the tier.
    pub(crate) fn leave_tier(&mut self, slot: u32) {
        let tier = self.tier_mut();
        let context = tier.held_by(slot);
        tier.take_out(context, ContextPhase::Waiting);
    }

    /// Whether a coroutine is ready in the policy's own queue.
    pub(crate) fn is_queued_by_policy(&self, slot: u32) -> bool {
        let place = self.slab.hot(slot).place;
        place.is_ready() && !matches!(place, Place::ReadyTier | Place::ReadyBackground)
    }

    /// The bound of a slice of the current coroutine on a lane with contexts, and its reason
    /// (semantics 25): the least, and of equal ones the first.
    #[cold]
    pub(crate) fn bound_in_tier(&self) -> (Cycles, BoundReason) {
        let Some(tier) = self.tier.as_deref() else { return (Cycles::ZERO, self.cache.end_reason) };
        let Tier { server, charged_until, .. } = tier;
        let until = |clock: u64| clock.saturating_sub(self.clock);
        let charged = self.clock.saturating_sub(*charged_until);
        let unlimited = u64::MAX;
        let refill = match tier.payer {
            Payer::Lost => 0,
            // A context that was taken over in this slice pays from `charged_until` on, which is
            // ahead of the clock until the slice is booked.
            Payer::Context(context) => {
                let amount = tier.context(context).ring.head().amount.0;
                (amount + until(*charged_until)).saturating_sub(charged)
            }
            Payer::BestEffort if server.state.active.is_some() && tier.queued() > 0 => {
                server.budget.0.saturating_sub(server.state.served.0 + charged)
            }
            Payer::BestEffort => unlimited,
        };
        let server_start = match (tier.payer, server.latest_start()) {
            (Payer::Context(_), Some(start))
                if self.ready_count() > tier.queued() && server.state.active.is_none() =>
            {
                until(start.0)
            }
            _ => unlimited,
        };
        let (left, is_frame_end) =
            (until(self.cache.end), self.cache.end_reason == BoundReason::FrameEnd);
        let is_best_effort = tier.payer == Payer::BestEffort;
        let bounds = [
            (refill, BoundReason::Refill),
            (server_start, BoundReason::Release),
            (until(tier.next_release()), BoundReason::Release),
            (if is_frame_end { left } else { unlimited }, BoundReason::FrameEnd),
            (if is_best_effort { self.quantum_left } else { unlimited }, BoundReason::Quantum),
            (if is_frame_end { unlimited } else { left }, BoundReason::WaveEnd),
        ];
        let least = bounds.into_iter().min_by_key(|&(cycles, _)| cycles);
        least.map(|(cycles, reason)| (Cycles(cycles), reason)).expect("six bounds")
    }

    /// Charges the lane's time up to `until` to its payer.
    pub(crate) fn charge_until(&mut self, until: u64) -> Charged {
        let tier = self.tier_mut();
        let elapsed = Cycles(until.saturating_sub(tier.charged_until));
        tier.charged_until = until;
        let Payer::Context(context) = tier.payer else {
            tier.server.debit(elapsed);
            return Charged::default();
        };
        let entry = tier.context_mut(context);
        entry.consumed = entry.consumed.saturating_add(elapsed.0);
        entry.counts.consumed = entry.counts.consumed.saturating_add(elapsed);
        let charged = entry.ring.charge(elapsed);
        let by = self.slab.hot(self.current).tag;
        if let Some(books) = &mut self.tier_mut().books {
            books.charge(context, by, elapsed, charged.overrun);
        }
        charged
    }

    /// The stop of a slice on a lane with contexts: charges it, and moves a coroutine that was
    /// dispatched on a context. `None`: the policy's rules apply.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop_in_tier(&mut self, slot: u32, outcome: Outcome) -> Option<Stopped> {
        let charged = self.charge_until(self.clock);
        let payer = self.tier_mut().payer;
        if payer == Payer::BestEffort {
            return None;
        }
        let discards = core::mem::take(&mut self.tier_mut().discards_refill);
        let is_runnable = match outcome {
            Outcome::Slept(frame) => frame <= self.frame,
            Outcome::Yielded | Outcome::OutOfCycles => true,
            Outcome::Blocked(_) | Outcome::Finished | Outcome::Faulted => false,
        };
        if let Payer::Context(context) = payer {
            // A slice that ends with all work done can still miss its deadline; what it ran beyond
            // its refill was not due by then.
            let done = self.clock.saturating_sub(charged.overrun.0);
            if self.tier_mut().context(context).is_late(done) {
                self.miss(context);
            }
            if is_runnable {
                let keeps = outcome == Outcome::OutOfCycles;
                return Some(self.stop_runnable(slot, context, charged, discards, keeps));
            }
        }
        self.vacate();
        Some(match outcome {
            Outcome::Slept(frame) if !is_runnable => self.sleep(slot, frame),
            Outcome::Blocked(reason) => self.block(slot, reason),
            _ => {
                self.leave_runnable(slot);
                match outcome {
                    Outcome::Finished => self.end(slot, Place::Finished),
                    Outcome::Faulted => self.end(slot, Place::Faulted),
                    _ => self.arrive(slot, Entrance::Return),
                }
            }
        })
    }

    /// The stop of a holder that is still runnable: it continues if its context has a ready refill,
    /// as the current coroutine if it `keeps` the lane, else requeued.
    fn stop_runnable(
        &mut self,
        slot: u32,
        context: u32,
        charged: Charged,
        discards: bool,
        keeps: bool,
    ) -> Stopped {
        let clock = Cycles(self.clock);
        let ring = &mut self.tier_mut().context_mut(context).ring;
        if discards && !charged.exhausted {
            ring.charge(ring.head().amount);
        }
        if !ring.is_ready(clock) {
            return self.deplete(slot, context, charged.overrun, discards);
        }
        if charged.exhausted || discards {
            self.tier_mut().context_mut(context).renew();
        }
        if keeps {
            return self.keep(slot);
        }
        self.vacate();
        self.requeue_holder(slot, context)
    }

    /// Requeues a holder that left the lane, or holds it back if it was held during its slice.
    fn requeue_holder(&mut self, slot: u32, context: u32) -> Stopped {
        if self.slab.hot(slot).held.is_empty() {
            self.queue_in_tier(slot, context);
            return Stopped::Requeued;
        }
        self.leave_runnable(slot);
        self.hold_back(slot);
        Stopped::Throttled
    }

    /// Applies the overrun policy to the current holder, whose context has no ready refill. A
    /// holder that discarded its refill is only throttled.
    fn deplete(&mut self, slot: u32, context: u32, overrun: Cycles, discards: bool) -> Stopped {
        self.vacate();
        let entry = self.tier_mut().context_mut(context);
        entry.counts.longest_overrun = entry.counts.longest_overrun.max(overrun);
        let until = entry.ring.head().at;
        let policy = if discards { OverrunPolicy::Throttle } else { entry.parameters.overrun };
        if matches!(policy, OverrunPolicy::NotifyAndThrottle | OverrunPolicy::NotifyOnly) {
            self.notify(context, overrun);
        }
        let is_held = !self.slab.hot(slot).held.is_empty();
        let entry = self.tier_mut().context_mut(context);
        match policy {
            OverrunPolicy::NotifyOnly => {
                entry.renew();
                let deadline = Cycles(entry.deadline);
                self.note_context(context, ContextEventKind::Overran { deadline, overrun });
                return self.requeue_holder(slot, context);
            }
            OverrunPolicy::Demote if !is_held => {
                entry.counts.demotions += 1;
                self.note_context(context, ContextEventKind::Demoted { until, overrun });
                self.tier_mut().push_release(context, ContextPhase::Demoted);
                self.leave_runnable(slot);
                return self.arrive(slot, Entrance::Return);
            }
            _ => {}
        }
        if !discards {
            entry.counts.throttles += 1;
            self.note_context(context, ContextEventKind::Throttled { until, overrun });
        }
        if policy == OverrunPolicy::End {
            // Ends the coroutine the context is bound to, never a borrower.
            let entry = self.tier_mut().context(context);
            let bound = if entry.depth > 0 { entry.lenders[0] } else { entry.holder };
            let (clock, tag) = (self.clock, self.slab.hot(bound).tag);
            self.tier_mut().note(clock, context, Some(tag), ContextEventKind::End { overrun });
        }
        self.leave_runnable(slot);
        self.throttle(slot, context);
        Stopped::Throttled
    }

    /// Writes a context's notification cell; the timeout channel is notified if it was empty.
    fn notify(&mut self, context: u32, overrun: Cycles) {
        let clock = Cycles(self.clock);
        let entry = self.tier_mut().context_mut(context);
        let Notification { count, sequence, first, .. } = entry.cell;
        entry.cell = Notification {
            count: count + 1,
            sequence: sequence + 1,
            first: if count == 0 { clock } else { first },
            last: clock,
            overrun,
        };
        if let Some(channel) = entry.parameters.timeout.filter(|_| count == 0) {
            self.note_context(context, ContextEventKind::Notify { channel });
        }
    }

    /// The part of [`Lane::vacate`] on a lane with contexts.
    pub(crate) fn vacate_context(&mut self) {
        let tier = self.tier_mut();
        if let Payer::Context(context) = core::mem::replace(&mut tier.payer, Payer::BestEffort) {
            tier.context_mut(context).phase = ContextPhase::Waiting;
        }
    }

    /// Records an event of a context with its current holder.
    pub(crate) fn note_context(&mut self, context: u32, kind: ContextEventKind) {
        let (clock, tag) = (self.clock, self.holder_tag(context));
        self.tier_mut().note(clock, context, tag, kind);
    }

    pub(crate) fn holder_tag(&self, context: u32) -> Option<Tag> {
        let holder = self.tier.as_ref()?.context(context).holder;
        (holder != NIL).then(|| self.slab.hot(holder).tag)
    }

    pub(crate) fn tier_mut(&mut self) -> &mut Tier {
        self.tier.as_mut().expect("the lane has contexts")
    }
}
