//! Into and out of the ready queue, whichever it is: the class queue, the fair queue, or the
//! deadline tier.
//!
//! Contract: becoming runnable adds to the ready-set digest, ceasing to be subtracts; under every
//! policy alike. Under `Fair` each live, not ended coroutine also has an entity in the fair queue,
//! named by its slot.

use crate::digest::mix;
use crate::fair::{Carried, FairLane, Leave, Placement, Share};
use crate::lane::{Counts, Inheritance, Lane};
use crate::policy::Policy;
use crate::record::{NIL, Place};
use crate::types::{Refusal, Stopped};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::Cycles;

/// Why a coroutine enters the ready queue; only `Fair` distinguishes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entrance {
    /// Published.
    New,
    /// After a wait.
    Wake,
    /// After a hold or a move.
    Return,
    /// It yielded.
    Yield,
    /// Its slice ended at a bound.
    Slice,
}

impl Entrance {
    /// Whether the coroutine was not runnable before.
    #[inline]
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::New | Self::Wake | Self::Return)
    }

    /// Applies it to the fair queue.
    pub(crate) fn enter(self, fair: &mut FairLane, slot: u32) {
        match self {
            Self::New => fair.place(slot, Placement::Initial),
            Self::Wake => fair.place(slot, Placement::Wake),
            Self::Return => fair.place(slot, Placement::Migrate),
            Self::Yield => fair.yield_running(),
            Self::Slice => fair.requeue(),
        }
    }
}

impl Lane {
    /// Queues a coroutine at the tail with the next arrival, or throttles it if it is held.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, slot: u32, entrance: Entrance) -> Stopped {
        let (arrival, picks_at) = (self.arrivals, self.picks());
        self.arrivals += 1;
        let (records, links) = self.slab.parts();
        let hot = &mut records[slot as usize];
        (hot.arrival, hot.picks_at) = (arrival, picks_at);
        if !hot.held.is_empty() {
            return self.arrive_throttled(slot, entrance);
        }
        if self.fair.is_some() || self.tier.is_some() || self.caps.demoted > 0 {
            return self.enqueue(slot, entrance);
        }
        hot.since = self.clock;
        hot.class = if self.cache.is_fifo { 0 } else { self.settings.policy.class(hot) };
        if entrance.begins() {
            self.digest = self.digest.wrapping_add(mix(hot.tag, hot.generation));
        }
        self.ready.append(hot, links, slot);
        Stopped::Requeued
    }

    #[cold]
    fn arrive_throttled(&mut self, slot: u32, entrance: Entrance) -> Stopped {
        if !entrance.begins() {
            self.leave_runnable(slot);
            // A yield gives up the rest of a request, held or not.
            if let Some(fair) = &mut self.fair
                && fair.running() == Some(slot)
            {
                entrance.enter(fair, slot);
            }
        }
        self.hold_back(slot);
        Stopped::Throttled
    }

    /// Holds back a coroutine that has left the runnable set. It keeps its arrival.
    pub(crate) fn hold_back(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.leave(slot, Leave::Move);
        }
        self.slab.hot_mut(slot).place = Place::Throttled;
        self.counts.throttled += 1;
    }

    /// Queues a coroutine at the arrival it carries.
    #[inline(never)]
    pub(crate) fn enqueue(&mut self, slot: u32, entrance: Entrance) -> Stopped {
        if let Some(tier) = &self.tier
            && tier.claims(slot)
            && let context = tier.held_by(slot)
            && let Some(stopped) = self.enqueue_holder(slot, context, entrance)
        {
            return stopped;
        }
        if self.caps.demoted > 0 && self.is_demoted(slot) {
            return self.enqueue_in_background(slot, entrance);
        }
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        hot.since = clock;
        hot.class = self.settings.policy.class(hot);
        if entrance.begins() {
            self.digest = self.digest.wrapping_add(mix(hot.tag, hot.generation));
        }
        match &mut self.fair {
            None => self.ready.insert(&mut self.slab, slot),
            Some(fair) => {
                hot.place = Place::ReadyFair;
                entrance.enter(fair, slot);
            }
        }
        Stopped::Requeued
    }

    /// A coroutine enters the runnable set, in the tier.
    pub(crate) fn join_runnable(&mut self, slot: u32) {
        let hot = self.slab.hot(slot);
        self.digest = self.digest.wrapping_add(mix(hot.tag, hot.generation));
    }

    /// A coroutine that was queued or current leaves the runnable set.
    #[inline]
    pub(crate) fn leave_runnable(&mut self, slot: u32) {
        let hot = self.slab.hot(slot);
        self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
    }

    /// Removes a coroutine from the ready queue and the runnable set. The caller sets its place and
    /// its entity in the fair queue.
    pub(crate) fn dequeue(&mut self, slot: u32) {
        self.leave_runnable(slot);
        match self.slab.hot(slot).place {
            Place::ReadyFair => {}
            Place::ReadyTier => self.leave_tier(slot),
            Place::ReadyBackground => self.leave_background(slot),
            _ => self.ready.remove(&mut self.slab, slot),
        }
    }

    /// How many coroutines are queued: those that are in no other place.
    #[inline]
    pub(crate) fn ready_count(&self) -> u32 {
        let Counts { blocked, throttled, ended } = self.counts;
        let running = u32::from(self.current != NIL);
        self.slab.live() - (blocked + throttled + ended + self.sleepers.count() + running)
    }

    /// Chooses the next coroutine and sets its quantum; [`NIL`] when none is ready. Under `Fair`
    /// the chosen one has left the queue and is the fair queue's running entity.
    #[inline(always)]
    pub(crate) fn choose(&mut self) -> u32 {
        self.quantum_left = self.cache.quantum;
        if self.cache.is_fifo && self.preferred.is_none() {
            let first = self.ready.first(&self.slab, 0);
            return if first == NIL { self.caps.background } else { first };
        }
        if self.fair.is_some() {
            let first = self.choose_fair();
            return if first == NIL { self.caps.background } else { first };
        }
        if !self.deviations.is_empty()
            && let Some(slot) = self.deviated()
        {
            self.preferred = None;
            return slot;
        }
        let best = self.settings.policy.select(&self.slab, &self.ready, self.picks(), self.streak);
        let best = if best == NIL { self.caps.background } else { best };
        if self.preferred.is_some() { self.choose_preferred(best) } else { best }
    }

    /// The preferred coroutine with the quantum it inherits, if it may pass `best`.
    #[cold]
    fn choose_preferred(&mut self, best: u32) -> u32 {
        let Some((reference, inherits)) = self.preferred.take() else { return best };
        match self.slab.live_slot(reference) {
            Ok(slot) if self.may_pass(slot, best) => {
                self.quantum_left = self.inherited(inherits).0;
                self.tally.handoffs += 1;
                slot
            }
            _ => best,
        }
    }

    fn choose_fair(&mut self) -> u32 {
        let preferred = self.preferred.take();
        let target = preferred.and_then(|(reference, inherits)| {
            Some((self.slab.live_slot(reference).ok()?, self.inherited(inherits)))
        });
        let Some(fair) = &mut self.fair else { return NIL };
        fair.mark(self.clock);
        let handed = target.filter(|&(slot, rest)| fair.hand_to(slot, rest));
        self.tally.handoffs += u64::from(handed.is_some());
        let Some(slot) = handed.map(|(slot, _)| slot).or_else(|| fair.pick()) else { return NIL };
        self.quantum_left = fair.bound().0.max(1);
        slot
    }

    /// The quantum of a preferred coroutine.
    fn inherited(&self, inherits: Inheritance) -> Cycles {
        match inherits {
            Inheritance::Rest(rest) => rest,
            Inheritance::Own | Inheritance::Pending => Cycles(self.cache.quantum),
        }
    }

    /// Whether a preferred coroutine may run instead of the policy's choice: it is ready and the
    /// choice does not outrank it.
    pub(crate) fn may_pass(&self, preferred: u32, best: u32) -> bool {
        self.is_queued_by_policy(preferred)
            && (preferred == best
                || !self.settings.policy.outranks(&self.slab, best, preferred, self.picks()))
    }

    /// Whether the policy prefers a ready coroutine to the current one (semantics 25).
    pub(crate) fn is_current_outranked(&self) -> bool {
        if self.caps.demoted > 0 && self.is_current_in_background() {
            return self.is_policys_queue_occupied();
        }
        if let Some(fair) = &self.fair {
            return fair.prefers_another();
        }
        let best = self.settings.policy.select(&self.slab, &self.ready, self.picks(), self.streak);
        best != NIL && self.settings.policy.outranks(&self.slab, best, self.current, self.picks())
    }

    /// Creates a record's entity under `Fair`; one that came from another fair lane keeps its lag.
    /// If it is the first of its session, the session gets the share `of_session`.
    pub(crate) fn adopt(&mut self, slot: u32, carried: Option<Carried>, of_session: Share) {
        if let Some(fair) = &mut self.fair {
            let cold = self.slab.cold(slot);
            let share = Share { weight: cold.weight, class: cold.latency };
            let session = self.slab.hot(slot).tag.session();
            fair.adopt(slot, session, carried.unwrap_or(Carried::fresh(share)), of_session);
        }
    }

    /// Under `Fair` the lane's time from now on belongs to the next slice.
    #[inline]
    pub(crate) fn mark_fair(&mut self) {
        if let Some(fair) = &mut self.fair {
            fair.mark(self.clock);
        }
    }

    /// Charges the open slice under `Fair`, which used `used` guest cycles; what a pick cost if
    /// none was opened.
    #[inline]
    pub(crate) fn charge_fair(&mut self, used: Cycles) {
        if let Some(fair) = &mut self.fair
            && (self.caps.demoted == 0 || fair.running().is_some())
        {
            fair.charge(used, self.clock);
        }
    }

    /// Ends an entity under `Fair`: its coroutine ended.
    pub(crate) fn retire_entity(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.leave(slot, Leave::Exit);
        }
    }

    /// Makes room in the fair queue for every slot and session there is room for.
    pub(crate) fn reserve_fair(&mut self) -> Result<(), Refusal> {
        let (slots, sessions) = (self.slab.slots_reserved(), self.sessions.reserved());
        let Some(fair) = &mut self.fair else { return Ok(()) };
        fair.reserve(slots, sessions).map_err(|_| Refusal::OutOfMemory { wanted: slots })
    }

    /// Changes the policy. Ready coroutines keep their arrival order; a current coroutine returns
    /// to the queue at its arrival and gets a new quantum with its next pick. Lag is lost when the
    /// lane leaves `Fair`; the sessions of one that begins to share it get a neutral weight
    /// ([`Lane::set_session_share`]).
    ///
    /// Allocates (a list of the ready coroutines, the fair queue): for an operator, not for a step
    /// of the scheduler.
    ///
    /// # Errors
    /// The host has no memory for the fair queue. Then nothing changed.
    ///
    /// # Panics
    /// When a slice is open.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), Refusal> {
        assert!(!self.in_slice, "the policy changes between slices");
        let mut fair = None;
        if let Policy::Fair(settings) = policy {
            let mut queue = Box::new(FairLane::new(settings));
            let (slots, sessions) = (self.slab.slots_reserved(), self.sessions.reserved());
            queue.reserve(slots, sessions).map_err(|_| Refusal::OutOfMemory { wanted: slots })?;
            fair = Some(queue);
        }
        if self.current != NIL {
            let slot = self.current;
            self.vacate();
            let _ = self.enqueue(slot, Entrance::Slice);
        }
        let mut slots: Vec<u32> =
            self.slab.slots().filter(|&slot| self.is_queued_by_policy(slot)).collect();
        slots.sort_unstable_by_key(|&slot| self.slab.hot(slot).arrival);
        if self.fair.is_none() {
            slots.iter().for_each(|&slot| self.ready.remove(&mut self.slab, slot));
        }
        self.settings.policy = policy;
        self.fair = fair;
        self.preferred = None;
        self.refresh();
        self.streak = 0;
        let living: Vec<u32> =
            self.slab.slots().filter(|&slot| !self.slab.hot(slot).place.is_ended()).collect();
        living.iter().for_each(|&slot| self.adopt(slot, None, Share::default()));
        for &slot in &slots {
            let hot = self.slab.hot_mut(slot);
            hot.class = policy.class(hot);
            match &mut self.fair {
                None => self.ready.insert(&mut self.slab, slot),
                Some(fair) => {
                    hot.place = Place::ReadyFair;
                    fair.place(slot, Placement::Initial);
                }
            }
        }
        Ok(())
    }
}
