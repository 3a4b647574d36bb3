//! What comes to a coroutine from outside its slices: wake, hold and release, cancel and reap, the
//! end of its session, preference, parameters.
//!
//! Contract: each call checks everything before it changes anything, and a refusal names the
//! numbers. All of it may be called inside a slice of another coroutine on the lane.
//! [`Lane::wake_in_order`] is [`Lane::wake`] to the last bit of the lane's state (`tests/pass.rs`
//! compares them).
//!
//! Elsewhere: what a coroutine does to itself (`lane`, at the stop of its slice) and what comes
//! from other lanes (`kernel`, `migrate`).

use crate::carry::PicksAt;
use crate::context::Payer;
use crate::fair::Share;
use crate::lane::{Inheritance, Lane};
use crate::ledger::Ledger;
use crate::queue::Entrance;
use crate::record::{Hot, NIL, Place};
use crate::types::{BlockReason, HoldReason, Refusal, Tag, WakeSource};
use wavelock_abi::{CoroutineRef, Cycles, Priority, SchedulerOperation};

/// A lane on which receivers are woken in the usual way ([`Lane::receivers`]).
pub struct Receivers<'a>(&'a mut Lane);

impl Receivers<'_> {
    /// [`Lane::wake_in_order`] by a channel, of one that waits to receive.
    #[inline(always)]
    #[must_use]
    pub fn wake(self, reference: CoroutineRef) -> Option<Cycles> {
        const RECEIVES: u32 =
            Hot { place: Place::Blocked, reason: BlockReason::ChannelReceive, ..Hot::EMPTY }
                .stands();
        self.0.wake_if(reference, WakeSource::Channel, |hot| hot.stands() == RECEIVES)
    }
}

impl Lane {
    /// Makes a blocked coroutine ready (or held, if it is held), at the tail. Costs one wake of
    /// overhead.
    ///
    /// # Errors
    /// Stale; not blocked; or the source does not end that wait.
    #[inline]
    pub fn wake(&mut self, reference: CoroutineRef, source: WakeSource) -> Result<(), Refusal> {
        let slot =
            self.waiting_slot(reference, source).inspect_err(|_| self.tally.refused_wakes += 1)?;
        let hot = self.slab.hot_mut(slot);
        if source.mints() {
            hot.tokens = hot.tokens.saturating_add(1);
        }
        self.blocked -= 1;
        self.book(SchedulerOperation::Wake);
        self.wakes[source as usize] += 1;
        let _ = self.arrive(slot, Entrance::Wake);
        Ok(())
    }

    /// [`Lane::wake`] from inside a slice, in the usual case: picks go by arrival, nobody watches
    /// them, and the coroutine is not held and of the one class. Gives how many cycles sooner the
    /// slice ends for it (the difference that it makes to [`Lane::left_in_slice`]). `None` if it is
    /// not the usual case, or refused; then nothing has changed, and a [`Lane::wake`] does it.
    #[inline(always)]
    #[must_use]
    pub fn wake_in_order(&mut self, reference: CoroutineRef, source: WakeSource) -> Option<Cycles> {
        if !self.is_simple {
            return None;
        }
        self.wake_if(reference, source, |hot| {
            hot.place == Place::Blocked
                && hot.held.is_empty()
                && hot.class == 0
                && source.ends(hot.reason)
        })
    }

    /// The lane, if a wake of a receiver is likely to be the usual one: not where handoff is on,
    /// and a sender has more to do.
    #[inline(always)]
    #[must_use]
    pub const fn receivers(&mut self) -> Option<Receivers<'_>> {
        if self.wakes_simply { Some(Receivers(self)) } else { None }
    }

    #[inline(always)]
    fn wake_if(
        &mut self,
        reference: CoroutineRef,
        source: WakeSource,
        waits: impl Fn(&Hot) -> bool,
    ) -> Option<Cycles> {
        debug_assert!(self.in_slice, "a slice is open");
        let slot = reference.slot;
        let (records, links, mixes) = self.slab.waiting_parts();
        let mix = *mixes.get(slot as usize)?;
        let hot = records.get_mut(slot as usize)?;
        // Every record has links: said here, so that nothing below can fail.
        if hot.generation != reference.generation || !waits(hot) || slot as usize >= links.len() {
            return None;
        }
        // What was looked up goes where it belongs first, so that no more than this is kept at
        // hand.
        self.digest = self.digest.wrapping_add(mix);
        let cost = self.settings.costs.of(SchedulerOperation::Wake).0;
        let clock = self.clock + cost;
        self.clock = clock;
        hot.since = clock;
        hot.arrival = self.arrivals;
        self.arrivals += 1;
        hot.picks_at = PicksAt::of(self.operations.count(SchedulerOperation::Pick, self.steps));
        hot.tokens += u8::from(source.mints() && hot.tokens != u8::MAX);
        self.ready.append_linked(hot, links, slot);

        self.blocked -= 1;
        self.operations.book(SchedulerOperation::Wake);
        self.wakes[source as usize] += 1;
        // Most often the quantum ends first, before and after.
        if clock < self.whole_until {
            return Some(Cycles(0));
        }
        core::hint::cold_path();
        Some(if clock < self.rest_until { Cycles(cost) } else { self.sooner(cost) })
    }

    /// How many cycles sooner the open slice ends, now that the clock has advanced by `cost`.
    #[inline(never)]
    fn sooner(&self, cost: u64) -> Cycles {
        let [before, left] = [self.clock - cost, self.clock]
            .map(|clock| self.end.saturating_sub(clock).min(self.quantum_left));
        Cycles(before - left)
    }

    /// The slot of a coroutine whose wait this source may end.
    #[inline]
    fn waiting_slot(&self, reference: CoroutineRef, source: WakeSource) -> Result<u32, Refusal> {
        let slot = self.slab.live_slot(reference)?;
        let hot = self.slab.hot(slot);
        if hot.place != Place::Blocked {
            return Err(Refusal::NotWaiting { state: self.state_of(slot) });
        }
        if !source.ends(hot.reason) {
            return Err(Refusal::WrongSource { reason: hot.reason, source });
        }
        Ok(slot)
    }

    /// Holds a coroutine back, for a reason. A ready one leaves the queue and keeps its arrival; a
    /// sleeping or blocked one is held when it would become ready; one in a slice is held when the
    /// slice stops. Holding for a reason that holds already changes nothing.
    ///
    /// # Errors
    /// Stale, or ended.
    pub fn hold(&mut self, reference: CoroutineRef, reason: HoldReason) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        let place = self.slab.hot(slot).place;
        if place.is_ended() {
            return Err(Refusal::Ended { state: self.state_of(slot) });
        }
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.with(reason);
        if place.is_ready() {
            self.end_wait(slot);
            self.dequeue(slot);
        } else if place == Place::Running && !self.in_slice {
            self.vacate();
            self.leave_runnable(slot);
        } else {
            return Ok(());
        }
        self.hold_back(slot);
        Ok(())
    }

    /// Books the wait of a ready coroutine that leaves the queue without being picked.
    pub(crate) fn end_wait(&mut self, slot: u32) {
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        let wait = clock.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
    }

    /// Takes one reason to hold back away. When none is left, a coroutine that would be ready is,
    /// at its old place; that is a wake and costs one.
    ///
    /// # Errors
    /// Stale, or not held for this reason.
    pub fn release(&mut self, reference: CoroutineRef, reason: HoldReason) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        let hot = self.slab.hot_mut(slot);
        if !hot.held.contains(reason) {
            return Err(Refusal::NotHeld { reason, held: hot.held });
        }
        hot.held = hot.held.without(reason);
        if hot.held.is_empty() && hot.place == Place::Held {
            self.held -= 1;
            self.book(SchedulerOperation::Wake);
            self.wakes[WakeSource::Release as usize] += 1;
            let _ = self.enqueue(slot, Entrance::Return);
        }
        Ok(())
    }

    /// Ends a coroutine from outside, at once: it is at a safepoint. Its record stays until
    /// [`Lane::reap`].
    ///
    /// # Errors
    /// Stale; already ended; or in the middle of a slice (stop it first).
    pub fn cancel(&mut self, reference: CoroutineRef) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        let place = self.slab.hot(slot).place;
        if place.is_ended() {
            return Err(Refusal::Ended { state: self.state_of(slot) });
        }
        if place == Place::Running && self.in_slice {
            return Err(Refusal::InSlice { reference });
        }
        if place.is_ready() {
            self.end_wait(slot);
        }
        self.withdraw(slot);
        self.end(slot, Place::Canceled);
        Ok(())
    }

    /// Takes a coroutine that is not in a slice out of whatever it is in. Its place, and its fair
    /// entity, are the caller's to set.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        match self.slab.hot(slot).place {
            Place::ReadyList | Place::ReadyHeap | Place::ReadyFair | Place::ReadyTier => {
                self.dequeue(slot)
            }
            Place::Running => {
                self.vacate();
                self.leave_runnable(slot);
            }
            Place::SleepWheel | Place::SleepFar | Place::SleepEarly => {
                self.sleepers.remove(&mut self.slab, slot)
            }
            Place::Blocked => self.blocked -= 1,
            Place::Held => self.held -= 1,
            Place::Finished | Place::Faulted | Place::Canceled => self.ended -= 1,
            Place::Free => unreachable!("a free record is in nothing"),
        }
    }

    /// Frees the record of an ended coroutine and gives its final ledger. Every reference to it is
    /// stale from now on.
    ///
    /// # Errors
    /// Stale, or not ended.
    pub fn reap(&mut self, reference: CoroutineRef) -> Result<Ledger, Refusal> {
        let slot = self.slab.live_slot(reference)?;
        if !self.slab.hot(slot).place.is_ended() {
            return Err(Refusal::NotEnded { state: self.state_of(slot) });
        }
        let ledger = self.ledger_of(slot);
        self.forget(slot);
        Ok(ledger)
    }

    /// Frees a record that is not in a slice, whatever its state.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.withdraw(slot);
        if !self.slab.hot(slot).place.is_ended() {
            self.retire_entity(slot);
        }
        self.free(slot);
    }

    /// Frees a record that is in no queue; nothing on the lane names it any more.
    pub(crate) fn free(&mut self, slot: u32) {
        if self.preferred.is_some_and(|(target, _)| target.slot == slot) {
            self.preferred = None;
            self.renew_simple();
        }
        if self.tier.is_some() {
            self.leave_contexts(slot);
        }
        self.sessions.remove(&mut self.slab, slot);
        self.slab.free(slot);
    }

    /// Ends every coroutine of a session on this lane and frees their records, oldest on the lane
    /// first; `each` gets every tag with the final ledger. Gives how many there were; none is no
    /// error.
    ///
    /// # Errors
    /// One of them is in the middle of a slice.
    pub fn end_session(
        &mut self,
        session: u32,
        mut each: impl FnMut(Tag, Ledger),
    ) -> Result<u32, Refusal> {
        if self.in_slice && self.slab.hot(self.current).tag.session() == session {
            return Err(Refusal::InSlice { reference: self.slab.reference(self.current) });
        }
        let mut count = 0;
        while let Some(list) = self.sessions.get(session) {
            let slot = list.head;
            if self.slab.hot(slot).place.is_ready() {
                self.end_wait(slot);
            }
            each(self.slab.hot(slot).tag, self.ledger_of(slot));
            self.forget(slot);
            count += 1;
        }
        Ok(count)
    }

    /// Whether direct handoff is on: otherwise every [`Lane::prefer`] is refused.
    #[inline]
    #[must_use]
    pub const fn hands_off(&self) -> bool {
        self.settings.handoff
    }

    /// Prefers a coroutine for the next pick after the running one stops (semantics 35): it
    /// inherits the rest of the quantum, and passes the queue only if the policy ranks nobody
    /// higher. A preference: the pick checks everything again.
    ///
    /// # Errors
    /// Handoff is off; stale; not ready; or another is preferred already.
    #[inline]
    pub fn prefer(&mut self, target: CoroutineRef) -> Result<(), Refusal> {
        if !self.settings.handoff {
            return Err(Refusal::HandoffOff);
        }
        let on_context = self.tier.as_ref().is_some_and(|tier| tier.payer != Payer::BestEffort);
        let inherits =
            if self.current == NIL || on_context { Inheritance::Own } else { Inheritance::Pending };
        self.prefer_for(target, inherits)
    }

    pub(crate) fn prefer_for(
        &mut self,
        target: CoroutineRef,
        inherits: Inheritance,
    ) -> Result<(), Refusal> {
        if !self.settings.handoff {
            return Err(Refusal::HandoffOff);
        }
        let slot = self.slab.live_slot(target)?;
        if !self.is_queued_by_policy(slot) {
            return Err(Refusal::NotReady { state: self.state_of(slot) });
        }
        if let Some((by, _)) = self.preferred {
            return Err(Refusal::SlotTaken { by });
        }
        self.preferred = Some((target, inherits));
        self.renew_simple();
        Ok(())
    }

    /// Changes a coroutine's priority. A ready one moves to its new class at once and keeps its
    /// arrival.
    ///
    /// # Errors
    /// Stale, or ended.
    pub fn set_priority(
        &mut self,
        reference: CoroutineRef,
        priority: Priority,
    ) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        let place = self.slab.hot(slot).place;
        if place.is_ended() {
            return Err(Refusal::Ended { state: self.state_of(slot) });
        }
        if !matches!(place, Place::ReadyList | Place::ReadyHeap) {
            let hot = self.slab.hot_mut(slot);
            hot.priority = priority;
            if place == Place::Running {
                hot.class = self.settings.policy.class_after_pick(hot);
            }
            return Ok(());
        }
        self.ready.remove(&mut self.slab, slot);
        let hot = self.slab.hot_mut(slot);
        hot.priority = priority;
        hot.class = self.settings.policy.class(hot);
        self.ready.insert(&mut self.slab, slot);
        self.forget_turn();
        Ok(())
    }

    /// Changes weight and latency class. Under `Fair` it acts at once: the lag is rescaled and a
    /// ready coroutine requeued.
    ///
    /// # Errors
    /// Stale, or ended.
    pub fn set_share(&mut self, reference: CoroutineRef, share: Share) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        if self.slab.hot(slot).place.is_ended() {
            return Err(Refusal::Ended { state: self.state_of(slot) });
        }
        let cold = self.slab.cold_mut(slot);
        (cold.weight, cold.latency) = (share.weight, share.class);
        if let Some(fair) = &mut self.fair {
            fair.set_share(slot, share);
        }
        Ok(())
    }
}
