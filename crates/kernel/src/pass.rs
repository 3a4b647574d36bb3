//! From a plain yield to the next pick in one go.
//!
//! Contract: when [`Lane::pass`] answers `true`, it was a [`Lane::stop`] with [`Outcome::Yielded`](crate::Outcome::Yielded) followed by a
//! [`Lane::dispatch`] that gave a slice, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. It
//! exists because this pair is the commonest thing a lane does: everything is looked at before anything is changed, and the token is rewritten
//! in place.

use crate::lane::{Lane, Running};
use crate::record::{ABREAST, Links, NIL, Place};
use crate::types::{BoundReason, Tag};
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

impl Lane {
    /// The running coroutine yields and the lane picks the next: the token is that of the next slice then. `false` if this is not the usual
    /// case; then nothing has changed, and a [`Lane::stop`] and a [`Lane::dispatch`] do it.
    #[inline(always)]
    #[must_use]
    pub fn pass(&mut self, running: &mut Running, used: Cycles) -> bool {
        let slot = running.reference.slot;
        debug_assert!(slot == self.current && self.in_slice, "a token is of its lane's open slice");
        let (first, costs) = (self.ready.head_in_order(), &self.settings.costs);
        let stopped = self.clock + used.0;
        let clock = stopped + costs.of(SchedulerOperation::Pick).0 + costs.of(SchedulerOperation::Switch).0;
        if first == NIL {
            if !self.pass_to_itself(running.reference, used) {
                return false;
            }
            (running.picked, running.switched) = (true, false);
            self.begin_slice(running);
            return true;
        }
        if !(self.picks_by_arrival() && clock < self.end && self.steps < self.last_step) {
            return false;
        }
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.hot_mut(slot);
        if !hot.held.is_empty() {
            return false;
        }

        // The one that ran goes to the tail.
        hot.runtime += used.0;
        hot.arrival = arrival;
        hot.picks_at = picks;
        hot.since = stopped;
        hot.place = Place::ReadyList;
        let tail = self.ready.replace_tail(slot);
        *self.slab.links_mut(slot) = Links { prev: tail, next: NIL };
        self.slab.links_mut(tail).next = slot;

        // The first one comes up. It is another one, so this is a switch.
        let hot = self.slab.hot_mut(first);
        let (reference, tag) = (CoroutineRef::new(first, hot.generation), hot.tag);
        let wait = stopped.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
        hot.switches += 1;
        if hot.tokens != 0 {
            hot.tokens -= 1;
        }
        hot.place = Place::Running;
        self.ready.replace_head(self.slab.links(first).next);

        self.operations[SchedulerOperation::Pick as usize] = picks + 1;
        self.operations[SchedulerOperation::Switch as usize] += 1;
        self.clock = clock;
        self.charged += used.0;
        self.arrivals = arrival + 1;
        self.steps += 1;
        self.quantum_left = self.quantum;
        self.last = reference;
        self.current = first;
        running.reference = reference;
        running.tag = tag;
        (running.picked, running.switched) = (true, true);
        self.begin_slice(running);
        true
    }

    /// [`Lane::pass`] when nobody else is ready: the coroutine goes to the tail and comes up again at once, without a switch.
    #[inline(never)]
    fn pass_to_itself(&mut self, reference: CoroutineRef, used: Cycles) -> bool {
        let stopped = self.clock + used.0;
        let clock = stopped + self.settings.costs.of(SchedulerOperation::Pick).0;
        let is_usual = self.picks_by_arrival() && clock < self.end && self.steps < self.last_step;
        if !is_usual || !self.ready.is_class_empty(0) || self.last != reference {
            return false;
        }
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.hot_mut(reference.slot);
        if !hot.held.is_empty() {
            return false;
        }
        hot.runtime += used.0;
        hot.arrival = arrival;
        hot.picks_at = picks;
        hot.since = stopped;
        hot.tokens = hot.tokens.saturating_sub(1);

        self.operations[SchedulerOperation::Pick as usize] = picks + 1;
        self.clock = clock;
        self.charged += used.0;
        self.arrivals = arrival + 1;
        self.steps += 1;
        self.quantum_left = self.quantum;
        true
    }

    /// Reads ahead the records of those that will probably run next, and names them: whoever keeps more of them can read that ahead too. Changes nothing. Gives
    /// how many they are at most.
    #[inline]
    pub fn read_ahead(&mut self, each: &mut dyn FnMut(Tag)) -> u32 {
        let mut slots = [NIL; ABREAST];
        let slots = match self.woken.next() {
            [] => {
                let first = self.ready.head_in_order();
                if first == NIL || self.slab.links(first).next == first.wrapping_add(1) {
                    // In the order in which they are in memory: a processor reads that ahead by itself.
                    return ABREAST as u32;
                }
                let (count, _) = self.slab.follow(first, &mut slots);
                &slots[..count]
            }
            woken => woken,
        };
        self.slab.touch(slots);
        slots.iter().for_each(|&slot| each(self.slab.hot(slot).tag));
        ABREAST as u32
    }

    /// Sets the bound of a slice that begins with a full quantum before the wave's and the frame's end.
    #[inline(always)]
    pub(crate) fn begin_slice(&self, running: &mut Running) {
        let left = self.end - self.clock;
        (running.bound, running.reason) = if self.quantum < left {
            (Cycles(self.quantum), BoundReason::Quantum)
        } else if self.quantum > left {
            (Cycles(left), self.end_reason)
        } else {
            self.bound()
        };
    }

    /// Whether picks go by arrival alone and nobody watches them: what [`Lane::pass`] takes for granted.
    #[inline(always)]
    pub(crate) fn picks_by_arrival(&self) -> bool {
        debug_assert_eq!(self.is_simple, self.is_fifo && self.is_plain && !self.is_measured);
        self.is_simple && self.preferred.is_none()
    }

    /// One of the flags that `is_simple` sums up has changed.
    pub(crate) fn renew_simple(&mut self) {
        self.is_simple = self.is_fifo && self.is_plain && !self.is_measured;
    }
}
