//! From a plain yield to the next pick in one go, and the pick that `leave` shares.
//!
//! Contract: when [`Lane::pass`] gives a slice, it was a [`Lane::stop`] with [`Outcome::Yielded`](crate::Outcome::Yielded) followed by a
//! [`Lane::dispatch`] that gave it, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. It
//! exists because this pair is the commonest thing a lane does: everything is looked at before anything is changed, and no token is made.

use crate::lane::{Began, Lane, Running};
use crate::record::{ABREAST, Links, NIL, Place};
use crate::types::{BoundReason, Tag};
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

/// A pick of another coroutine than the one that ran, where it is known that nothing stands against it.
#[derive(Clone, Copy)]
pub(crate) struct Turnover {
    /// Who comes up.
    pub(crate) first: u32,
    /// The clock when the slice before ended.
    pub(crate) stopped: u64,
    /// The clock when the next begins.
    pub(crate) clock: u64,
    pub(crate) bound: u64,
}

impl Lane {
    /// The running coroutine, whose token is not needed any more, yields and the lane picks the next. `None` if this is not the usual
    /// case; then nothing has changed, and a [`Lane::stop`] and a [`Lane::dispatch`] do it.
    #[inline(always)]
    #[must_use]
    pub fn pass(&mut self, used: Cycles) -> Option<Began> {
        let slot = self.current;
        let Some(turnover) = self.turnover(used) else { return self.pass_to_itself(used) };
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.hot_mut(slot);
        if !hot.held.is_empty() {
            return None;
        }
        // The one that ran goes to the tail, which is another one's.
        hot.runtime += used.0;
        hot.arrival = arrival;
        hot.picks_at = picks;
        hot.since = turnover.stopped;
        hot.place = Place::ReadyList;
        let tail = self.ready.replace_tail(slot);
        *self.slab.links_mut(slot) = Links { prev: tail, next: NIL };
        self.slab.links_mut(tail).next = slot;
        self.arrivals = arrival + 1;
        self.charged += used.0;
        self.ready.replace_head(self.slab.links(turnover.first).next);
        Some(self.come_up(turnover))
    }

    /// What follows when the open slice ends now and its coroutine leaves the lane, if picks go by arrival, somebody else is ready and no bound is
    /// reached.
    #[inline(always)]
    pub(crate) fn turnover(&self, used: Cycles) -> Option<Turnover> {
        debug_assert!(self.in_slice, "a slice is open");
        let first = self.ready.head_in_order();
        let stopped = self.clock + used.0;
        let clock = stopped + self.turn_cost;
        if first == NIL || !self.picks_by_arrival() || clock >= self.end || self.steps >= self.last_step {
            return None;
        }
        // Which of two equal bounds is meant is a question for `bound`.
        let left = self.end - clock;
        if left == self.quantum {
            return None;
        }
        Some(Turnover { first, stopped, clock, bound: left.min(self.quantum) })
    }

    /// Somebody comes up who is in no queue any more. It is not the one that ran, so this is a switch.
    #[inline(always)]
    pub(crate) fn come_up(&mut self, Turnover { first, stopped, clock, bound }: Turnover) -> Began {
        let hot = self.slab.hot_mut(first);
        let tag = hot.tag;
        let wait = stopped.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
        hot.switches += 1;
        if hot.tokens != 0 {
            hot.tokens -= 1;
        }
        hot.place = Place::Running;

        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.operations[SchedulerOperation::Switch as usize] += 1;
        self.clock = clock;
        self.steps += 1;
        self.quantum_left = self.quantum;
        self.current = first;
        Began { tag, bound: Cycles(bound), overhead: Cycles(clock - stopped) }
    }

    /// [`Lane::pass`] when nobody else is ready: the coroutine goes to the tail and comes up again at once, without a switch.
    #[inline(never)]
    fn pass_to_itself(&mut self, used: Cycles) -> Option<Began> {
        let stopped = self.clock + used.0;
        let overhead = self.settings.costs.of(SchedulerOperation::Pick);
        let clock = stopped + overhead.0;
        let is_usual = self.picks_by_arrival() && clock < self.end && self.steps < self.last_step;
        if !is_usual || !self.ready.is_class_empty(0) || self.end - clock == self.quantum {
            return None;
        }
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.hot_mut(self.current);
        if !hot.held.is_empty() {
            return None;
        }
        let tag = hot.tag;
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
        Some(Began { tag, bound: Cycles(self.quantum.min(self.end - clock)), overhead })
    }

    /// The token of the open slice, which [`Lane::pass`] or [`Lane::leave`] began with this bound. It is asked for when the slice has begun, so it is neither picked nor
    /// switched now.
    pub fn token(&self, bound: Cycles) -> Running {
        debug_assert!(self.in_slice, "a slice is open");
        let hot = self.slab.hot(self.current);
        let reason = if bound.0 == self.quantum { BoundReason::Quantum } else { self.end_reason };
        let reference = CoroutineRef::new(self.current, hot.generation);
        Running { reference, tag: hot.tag, bound, reason, picked: false, switched: false }
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

    /// Whether picks go by arrival alone and nobody watches them: what [`Lane::pass`] takes for granted.
    #[inline(always)]
    pub(crate) fn picks_by_arrival(&self) -> bool {
        debug_assert_eq!(self.is_simple, self.is_fifo && self.is_plain && !self.is_measured && self.preferred.is_none());
        self.is_simple
    }

    /// One of the flags that `is_simple` sums up has changed.
    pub(crate) fn renew_simple(&mut self) {
        self.is_simple = self.is_fifo && self.is_plain && !self.is_measured && self.preferred.is_none();
    }
}
