//! From the end of a slice whose coroutine leaves the ready ones to the next pick, in one go.
//!
//! Contract: when [`Lane::leave`] gives a slice, it was a [`Lane::stop`] followed by a
//! [`Lane::dispatch`] that gave it, to the last bit of the lane's state (`tests/pass.rs` compares
//! them); otherwise nothing has changed. For a yield there is `pass`, for an end `finish`.

use crate::digest::mix;
use crate::lane::{Began, Lane};
use crate::record::{Links, NIL, Place};
use crate::types::{BlockReason, Outcome, Tag};
use wavelock_abi::Cycles;

impl Lane {
    /// The running coroutine, whose token is not needed any more, waits or sleeps, and the lane
    /// picks the next. `None` if this is not the usual case; then nothing has changed.
    #[inline(always)]
    #[must_use]
    pub fn leave(&mut self, used: Cycles, outcome: Outcome) -> Option<Began> {
        let slot = self.current;
        let leaves = match outcome {
            Outcome::Blocked(_) => true,
            Outcome::Slept(frame) => frame > self.frame,
            _ => false,
        };
        if !leaves {
            return None;
        }
        let turnover = self.turnover(used)?;
        let (first, stopped) = (turnover.first, turnover.stopped);
        let hot = self.slab.hot_mut(slot);
        hot.runtime = hot.runtime_after(used)?;

        self.charged += used.0;
        // Whoever sleeps does so at this clock, and is not current any more.
        (self.clock, self.current) = (stopped, NIL);
        match outcome {
            Outcome::Blocked(reason) => {
                // `block` written out, for one that is in no fair queue: it is half of every
                // message between coroutines that wait for each other.
                hot.place = Place::Blocked;
                hot.since = stopped;
                self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
                self.blocked += 1;
                self.slab.count_wait(slot, reason);
            }
            Outcome::Slept(frame) if self.sleepers.is_near(frame.0) => {
                // `sleep` written out.
                hot.place = Place::SleepWheel;
                hot.arrival = self.arrivals;
                hot.since = frame.0;
                self.arrivals += 1;
                self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
                if hot.count_sleep() {
                    self.slab.carry_sleeps(slot);
                }
                self.sleepers.insert_near(&mut self.slab, slot, frame.0);
            }
            Outcome::Slept(frame) => {
                let _ = self.sleep(slot, frame);
            }
            _ => unreachable!("others do not leave"),
        }
        self.ready.remove_first(first, 0, self.slab.links(first).next);
        let tag = self.slab.hot_mut(first).come_up(stopped);
        Some(self.begin(turnover, tag))
    }

    /// [`Lane::leave`] of one that waits for the reason it last waited for: without a call, for a
    /// lane on which that is common. `begins` is told what begins as soon as it is certain, as by
    /// [`Lane::pass`].
    #[inline(always)]
    #[must_use]
    pub fn leave_waiting(
        &mut self,
        used: Cycles,
        reason: BlockReason,
        begins: impl FnOnce(Cycles, Cycles),
    ) -> Option<Tag> {
        debug_assert!(self.in_slice, "a slice is open");
        let (slot, first) = (self.current as usize, self.ready.in_order().head);
        let (records, links, mixes) = self.slab.waiting_parts();
        // Nobody has the record of `NIL`.
        if slot >= mixes.len() || first as usize >= records.len() {
            return None;
        }
        let hot = records.get_mut(slot)?;
        if hot.reason != reason || !hot.counts_near() {
            return None;
        }
        let Links { next, .. } = *links.get(first as usize)?;
        let mix = mixes[slot];
        let stopped = self.clock + used.0;
        let clock = stopped + self.turn_cost;
        let runtime = hot.runtime_after(used)?;
        if clock >= self.whole_until {
            core::hint::cold_path();
            if clock >= self.rest_until {
                return None;
            }
            begins(Cycles(self.end - clock), Cycles(clock - stopped));
        }
        // What was looked up goes where it belongs at once, so that little is kept at hand.
        self.clock = clock;
        hot.runtime = runtime;
        self.digest = self.digest.wrapping_sub(mix);
        self.ready.remove_head_in_order(first, next);
        hot.waits += 1;
        hot.place = Place::Blocked;
        hot.since = stopped;
        self.steps += 1;
        self.charged += used.0;
        self.blocked += 1;
        self.current = first;
        Some(records[first as usize].come_up(stopped))
    }
}
