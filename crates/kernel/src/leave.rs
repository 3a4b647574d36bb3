//! From the end of a slice whose coroutine leaves the ready ones to the next pick, in one go.
//!
//! Contract: when [`Lane::leave`] answers `true`, it was a [`Lane::stop`] (after [`Outcome::Finished`] also a [`Lane::reap`]) followed by a
//! [`Lane::dispatch`] that gave a slice, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. What
//! becomes of the coroutine and of the one picked is done by the functions that those use. For a yield there is `pass`.

use crate::lane::{Lane, Running};
use crate::record::{NIL, Place};
use crate::types::Outcome;
use wavelock_abi::{Cycles, SchedulerOperation};

impl Lane {
    /// The running coroutine waits, sleeps or ends, and the lane picks the next: the token is that of the next slice then. `false` if this is not
    /// the usual case; then nothing has changed.
    #[inline(always)]
    #[must_use]
    pub fn leave(&mut self, running: &mut Running, used: Cycles, outcome: Outcome) -> bool {
        let slot = running.reference.slot;
        let (first, costs) = (self.ready.head_in_order(), &self.settings.costs);
        let stopped = self.clock + used.0;
        let clock = stopped + costs.of(SchedulerOperation::Pick).0 + costs.of(SchedulerOperation::Switch).0;
        let goes_on = first != NIL && self.picks_by_arrival() && clock < self.end && self.steps < self.last_step;
        let leaves = match outcome {
            Outcome::Blocked(_) | Outcome::Finished => true,
            Outcome::Slept(frame) => frame > self.frame,
            _ => false,
        };
        if !(goes_on && leaves && slot == self.current && self.in_slice) {
            return false;
        }

        self.clock = stopped;
        self.charged += used.0;
        self.slab.hot_mut(slot).runtime += used.0;
        self.current = NIL;
        let _ = match outcome {
            Outcome::Slept(frame) => self.sleep(slot, frame),
            Outcome::Blocked(reason) => self.block(slot, reason),
            _ => {
                self.leave_runnable(slot);
                let ended = self.end(slot, Place::Finished);
                self.forget(slot);
                ended
            }
        };

        // The first one comes up. It is another one, so this is a switch.
        self.quantum_left = self.quantum;
        self.steps += 1;
        (running.reference, running.tag, running.switched) = self.take_up(first);
        running.picked = true;
        self.begin_slice(running);
        true
    }
}
