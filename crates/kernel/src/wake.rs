//! Operations on a coroutine from outside its slices: wake, hold and release, cancel and reap, the
//! end of its session, direct handoff, parameters.
//!
//! Contract: each call checks everything before it changes anything, and a refusal says what was
//! found. All of them may be called inside a slice of another coroutine on the lane.
//!
//! Elsewhere: how a slice ends (`lane`, `switch`) and what arrives from other lanes (`exchange`,
//! `migrate`).

use crate::context::Payer;
use crate::fair::Share;
use crate::lane::{Inheritance, Lane};
use crate::ledger::Ledger;
use crate::queue::Entrance;
use crate::record::{NIL, Place};
use crate::types::{HoldReason, Refusal, State, Tag, WakeSource};
use wavelock_abi::{CoroutineRef, Priority, SchedulerOperation};

impl Lane {
    /// Makes a blocked coroutine ready (or held, if it is held), at the tail. Costs one wake of
    /// overhead.
    ///
    /// # Errors
    /// Stale; not blocked; or the source does not end that wait.
    #[inline(always)]
    pub fn wake(&mut self, reference: CoroutineRef, source: WakeSource) -> Result<(), Refusal> {
        let slot = reference.slot;
        let (records, _) = self.slab.parts();
        let hot = match records.get_mut(slot as usize) {
            Some(hot)
                if hot.generation == reference.generation
                    && hot.place == Place::Blocked
                    && source.ends(hot.reason) =>
            {
                hot
            }
            _ => return self.refuse_wake(reference, source),
        };
        if source.mints() {
            hot.tokens = hot.tokens.saturating_add(1);
        }
        self.counts.blocked -= 1;
        self.book(SchedulerOperation::Wake);
        self.tally.wakes[source as usize] += 1;
        self.caused_by(slot, SchedulerOperation::Wake);
        let _ = self.arrive(slot, Entrance::Wake);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn refuse_wake(&mut self, reference: CoroutineRef, source: WakeSource) -> Result<(), Refusal> {
        self.tally.refused_wakes += 1;
        let slot = self.slab.live_slot(reference)?;
        Err(match self.state_of(slot) {
            State::Blocked { reason } => Refusal::WrongSource { reason, source },
            state => Refusal::NotWaiting { state },
        })
    }

    /// Holds a coroutine back, for a reason. A ready one leaves the queue and keeps its arrival; a
    /// sleeping or blocked one is held when it would become ready; one in a slice is held when the
    /// slice stops. Holding for a reason that holds already changes nothing.
    ///
    /// # Errors
    /// Stale, or ended.
    pub fn hold(&mut self, reference: CoroutineRef, reason: HoldReason) -> Result<(), Refusal> {
        let slot = self.slab.live_slot(reference)?;
        if self.slab.hot(slot).place.is_ended() {
            return Err(Refusal::Ended { state: self.state_of(slot) });
        }
        self.hold_slot(slot, reason);
        Ok(())
    }

    /// [`Lane::hold`] of a coroutine that has not ended.
    pub(crate) fn hold_slot(&mut self, slot: u32, reason: HoldReason) {
        let hot = self.slab.hot_mut(slot);
        hot.held = hot.held.with(reason);
        let place = hot.place;
        if place.is_ready() {
            self.end_wait(slot);
            self.dequeue(slot);
        } else if place == Place::Running && !self.in_slice {
            self.vacate();
            self.leave_runnable(slot);
        } else {
            return;
        }
        self.hold_back(slot);
    }

    /// Books the wait of a ready coroutine that leaves the queue without being picked.
    pub(crate) fn end_wait(&mut self, slot: u32) {
        self.slab.book_wait(slot, self.clock);
    }

    /// Removes one reason to hold a coroutine. When none is left and it is runnable, it is queued
    /// at its old arrival; that is a wake and costs one.
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
        if hot.held.is_empty() && hot.place == Place::Throttled {
            self.counts.throttled -= 1;
            self.book(SchedulerOperation::Wake);
            self.caused_by(slot, SchedulerOperation::Wake);
            self.tally.wakes[WakeSource::Release as usize] += 1;
            let _ = self.enqueue(slot, Entrance::Return);
        }
        Ok(())
    }

    /// Ends a coroutine at once: it is at a safepoint. Its record stays until [`Lane::reap`].
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

    /// Removes a coroutine that is not in a slice from whatever structure holds it. The caller sets
    /// its place and its fair entity.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        match self.slab.hot(slot).place {
            Place::ReadyList
            | Place::ReadyHeap
            | Place::ReadyFair
            | Place::ReadyTier
            | Place::ReadyBackground => self.dequeue(slot),
            Place::Running => {
                self.vacate();
                self.leave_runnable(slot);
            }
            Place::SleepNear | Place::SleepFar | Place::SleepEarly => {
                self.sleepers.remove(&mut self.slab, slot)
            }
            Place::Blocked => self.counts.blocked -= 1,
            Place::Throttled => self.counts.throttled -= 1,
            Place::Finished | Place::Faulted | Place::Canceled => self.counts.ended -= 1,
            Place::Free => unreachable!("a free record is in nothing"),
        }
    }

    /// Frees the record of an ended coroutine and returns its final ledger. Every reference to it
    /// is stale from now on.
    ///
    /// # Errors
    /// Stale, or not ended.
    pub fn reap(&mut self, reference: CoroutineRef) -> Result<Ledger, Refusal> {
        let slot = self.slab.live_slot(reference)?;
        if !self.slab.hot(slot).place.is_ended() {
            return Err(Refusal::NotEnded { state: self.state_of(slot) });
        }
        let ledger = self.slab.ledger(slot);
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

    /// Frees a record that is in no queue.
    pub(crate) fn free(&mut self, slot: u32) {
        if self.preferred.is_some_and(|(target, _)| target.slot == slot) {
            self.preferred = None;
        }
        if self.tier.is_some() {
            self.lease_loses(slot);
            self.leave_contexts(slot);
        }
        self.sessions.remove(&mut self.slab, slot);
        self.slab.free(slot);
    }

    /// Ends every coroutine of a session on this lane and frees their records, oldest on the lane
    /// first; `each` gets every tag with the final ledger. Returns how many there were; none is not
    /// an error.
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
            each(self.slab.hot(slot).tag, self.slab.ledger(slot));
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

    /// Direct handoff: prefers a coroutine for the pick after the running one stops (semantics 35).
    /// It inherits the rest of the quantum, and is picked only if no ready coroutine outranks it:
    /// the pick checks everything again.
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
        let place = self.slab.hot(slot).place;
        if !place.is_ready() || place == Place::ReadyTier {
            return Err(Refusal::NotReady { state: self.state_of(slot) });
        }
        if let Some((by, _)) = self.preferred {
            return Err(Refusal::SlotTaken { by });
        }
        self.preferred = Some((target, inherits));
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
        self.slab.set_share(slot, share.weight, share.class);
        if let Some(fair) = &mut self.fair {
            fair.set_share(slot, share);
        }
        Ok(())
    }

    /// Changes the share of a session on this lane, under `Fair` among sessions. Acts at once, as
    /// [`Lane::set_share`].
    ///
    /// # Errors
    /// It has no coroutine here, or sessions do not share the lane.
    pub fn set_session_share(&mut self, session: u32, share: Share) -> Result<(), Refusal> {
        let is_set = self.fair.as_mut().is_some_and(|fair| fair.set_session_share(session, share));
        if is_set { Ok(()) } else { Err(Refusal::NoSession { session, lane: self.id }) }
    }
}
