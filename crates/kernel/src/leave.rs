//! From the end of a slice whose coroutine leaves the ready ones to the next pick, in one go.
//!
//! Contract: when [`Lane::leave`] gives a slice, it was a [`Lane::stop`] (after [`Outcome::Finished`] also a [`Lane::reap`]) followed by a
//! [`Lane::dispatch`] that gave it, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed. For a
//! yield there is `pass`.

use crate::digest::mix;
use crate::lane::{Began, Lane};
use crate::record::{NIL, Place};
use crate::types::{BlockReason, Outcome};
use wavelock_abi::Cycles;

impl Lane {
    /// The running coroutine, whose token is not needed any more, waits, sleeps or ends, and the lane picks the next. `None` if this is not
    /// the usual case; then nothing has changed.
    #[inline(always)]
    #[must_use]
    pub fn leave(&mut self, used: Cycles, outcome: Outcome) -> Option<Began> {
        let slot = self.current;
        let leaves = match outcome {
            Outcome::Blocked(_) | Outcome::Finished => true,
            Outcome::Slept(frame) => frame > self.frame,
            _ => false,
        };
        if !leaves {
            return None;
        }
        let turnover = self.turnover(used)?;
        let (first, stopped) = (turnover.first, turnover.stopped);

        self.charged += used.0;
        // Whoever sleeps or ends does so at this clock, and is not current any more.
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
            Outcome::Slept(frame) if self.sleepers.is_near(frame.0) => {
                // `sleep` written out.
                hot.place = Place::SleepWheel;
                hot.sleeps = hot.sleeps.saturating_add(1);
                hot.arrival = self.arrivals;
                hot.since = frame.0;
                self.arrivals += 1;
                self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
                self.sleepers.insert_near(&mut self.slab, slot, frame.0);
            }
            Outcome::Slept(frame) => {
                let _ = self.sleep(slot, frame);
            }
            _ => {
                // `end` and `reap` written out: a lane that picks by arrival has nothing else that names it.
                let session = hot.tag.session();
                self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
                let is_last = hot.retire();
                self.slab.give_back(slot, is_last);
                self.sessions.remove_of(session, &mut self.slab, slot);
            }
        }
        self.ready.remove_first(first, 0, self.slab.links(first).next);
        let tag = self.slab.hot_mut(first).come_up(stopped);
        Some(self.begin(turnover, tag))
    }

    /// [`Lane::leave`] of one that waits, and has waited before: without a call, for a lane on which that is common.
    #[inline(always)]
    #[must_use]
    pub fn leave_waiting(&mut self, used: Cycles, reason: BlockReason) -> Option<Began> {
        let slot = self.current;
        let turnover = self.turnover(used)?;
        // What is not there was never changed: the general way makes it.
        let blocks = &mut self.slab.filled_cold_mut(slot)?.blocks[reason as usize];
        if let Some(more) = blocks.checked_add(1) {
            *blocks = more;
        }
        let (records, links) = self.slab.parts();
        let hot = &mut records[slot as usize];
        hot.runtime += used.0;
        hot.place = Place::Blocked;
        hot.reason = reason;
        hot.since = turnover.stopped;
        self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
        self.ready.remove_first(turnover.first, 0, links[turnover.first as usize].next);
        let tag = records[turnover.first as usize].come_up(turnover.stopped);
        self.blocked += 1;
        self.charged += used.0;
        Some(self.begin(turnover, tag))
    }
}
