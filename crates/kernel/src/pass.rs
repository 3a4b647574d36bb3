//! From a plain yield to the next pick in one go.
//!
//! Contract: when [`Lane::pass`] answers `true`, it was a [`Lane::stop`] with [`Outcome::Yielded`](crate::Outcome::Yielded) followed by a
//! [`Lane::dispatch`] that gave a slice, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. It
//! exists because this pair is the commonest thing a lane does: everything is looked at before anything is changed, and the token is rewritten
//! in place.

use crate::lane::{Lane, Running};
use crate::record::{NIL, Place};
use crate::types::BoundReason;
use core::cmp::Ordering;
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

impl Lane {
    /// The running coroutine yields and the lane picks the next: the token is that of the next slice then. `false` if this is not the usual
    /// case; then nothing has changed, and a [`Lane::stop`] and a [`Lane::dispatch`] do it.
    #[inline(always)]
    #[must_use]
    pub fn pass(&mut self, running: &mut Running, used: Cycles) -> bool {
        let slot = running.reference.slot;
        let (first, costs) = (self.ready.head_in_order(), &self.settings.costs);
        let stopped = self.clock + used.0;
        let clock = stopped + costs.of(SchedulerOperation::Pick).0 + costs.of(SchedulerOperation::Switch).0;
        let is_usual = first != NIL
            && self.picks_by_arrival()
            && clock < self.end
            && self.steps < self.last_step
            && slot == self.current
            && self.in_slice;
        if !is_usual {
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
        hot.next = NIL;
        let tail = self.ready.replace_tail(slot);
        hot.prev = tail;
        self.slab.hot_mut(tail).next = slot;

        // The first one comes up. It is another one, so this is a switch.
        let hot = self.slab.hot_mut(first);
        let (reference, tag) = (CoroutineRef::new(first, hot.generation), hot.tag);
        let wait = stopped.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
        hot.switches += 1;
        hot.tokens = hot.tokens.saturating_sub(1);
        hot.place = Place::Running;
        self.ready.replace_head(hot.next);

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
        let left = self.end - clock;
        (running.bound, running.reason) = match self.quantum.cmp(&left) {
            Ordering::Less => (Cycles(self.quantum), BoundReason::Quantum),
            Ordering::Greater => (Cycles(left), self.end_reason),
            Ordering::Equal => self.bound(),
        };
        (running.picked, running.switched) = (true, true);
        true
    }

    /// Whether picks go by arrival alone and nobody watches them: what [`Lane::pass`] takes for granted.
    #[inline(always)]
    fn picks_by_arrival(&self) -> bool {
        self.is_fifo && self.is_plain && self.preferred.is_none() && !self.is_measured
    }
}
