//! From the end of a slice whose coroutine leaves the ready ones to the next pick, in one go.
//!
//! Contract: when [`Lane::leave`] answers `true`, it was a [`Lane::stop`] (after [`Outcome::Finished`] also a [`Lane::reap`]) followed by a
//! [`Lane::dispatch`] that gave a slice, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. A wait is
//! written out here; what becomes of one that sleeps or ends is done by the functions that those use. For a yield there is `pass`.

use crate::digest::mix;
use crate::lane::{Lane, Running};
use crate::record::{NIL, Place};
use crate::types::Outcome;
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

impl Lane {
    /// The running coroutine waits, sleeps or ends, and the lane picks the next: the token is that of the next slice then. `false` if this is not
    /// the usual case; then nothing has changed.
    #[inline(always)]
    #[must_use]
    pub fn leave(&mut self, running: &mut Running, used: Cycles, outcome: Outcome) -> bool {
        let slot = running.reference.slot;
        debug_assert!(slot == self.current && self.in_slice, "a token is of its lane's open slice");
        let (first, costs) = (self.ready.head_in_order(), &self.settings.costs);
        let stopped = self.clock + used.0;
        let clock = stopped + costs.of(SchedulerOperation::Pick).0 + costs.of(SchedulerOperation::Switch).0;
        let goes_on = first != NIL && self.picks_by_arrival() && clock < self.end && self.steps < self.last_step;
        let leaves = match outcome {
            Outcome::Blocked(_) | Outcome::Finished => true,
            Outcome::Slept(frame) => frame > self.frame,
            _ => false,
        };
        if !(goes_on && leaves) {
            return false;
        }

        self.charged += used.0;
        (self.clock, self.current) = (stopped, NIL);
        let hot = self.slab.hot_mut(slot);
        hot.runtime += used.0;
        match outcome {
            Outcome::Blocked(reason) => {
                // `block` written out, for one that is in no fair queue: it is half of every message between coroutines that wait for each other.
                hot.place = Place::Blocked;
                hot.reason = reason;
                hot.since = stopped;
                self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
                self.blocked += 1;
                let blocks = &mut self.slab.cold_mut(slot).blocks[reason as usize];
                *blocks = blocks.saturating_add(1);
            }
            Outcome::Slept(frame) => {
                let _ = self.sleep(slot, frame);
            }
            _ => {
                // A lane that picks by arrival has nothing else that names it.
                self.leave_runnable(slot);
                self.sessions.remove(&mut self.slab, slot);
                self.slab.free(slot);
            }
        }
        self.come_up(first, stopped, clock, running);
        true
    }

    /// The first of those that are ready in order comes up, at `clock`, and the time it waited ended before, at `stopped`. It is not the one that ran, so
    /// this is a switch.
    #[inline(always)]
    fn come_up(&mut self, first: u32, stopped: u64, clock: u64, running: &mut Running) {
        let hot = self.slab.hot_mut(first);
        let (reference, tag) = (CoroutineRef::new(first, hot.generation), hot.tag);
        let wait = stopped.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
        hot.switches += 1;
        hot.tokens = hot.tokens.saturating_sub(1);
        hot.place = Place::Running;
        self.ready.remove_first(first, 0, self.slab.links(first).next);

        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.operations[SchedulerOperation::Switch as usize] += 1;
        self.clock = clock;
        self.steps += 1;
        self.quantum_left = self.quantum;
        self.last = reference;
        self.current = first;
        running.reference = reference;
        running.tag = tag;
        (running.picked, running.switched) = (true, true);
        self.begin_slice(running);
    }
}
