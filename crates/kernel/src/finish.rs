//! The end of a coroutine that finishes in its slice, and the next pick, in one go.
//!
//! Contract: when [`Lane::leave_finished`] gives a tag, it was a [`Lane::stop`] with
//! [`Outcome::Finished`](crate::Outcome::Finished), a [`Lane::reap`] and a [`Lane::dispatch`] that
//! picked it, to the last bit of the lane's state (`tests/pass.rs` compares them); otherwise
//! nothing has changed. Its begin is in `begin`; other ends of slices are in `leave`.

use crate::digest::mix;
use crate::lane::Lane;
use crate::pass::Turnover;
use crate::record::{Links, Place};
use crate::types::Tag;
use wavelock_abi::{CoroutineRef, Cycles};

impl Lane {
    /// The running coroutine, whose token is not needed any more, is over, and the lane picks the
    /// next, whose tag it gives. `None` if this is not the usual case: the last of its session
    /// here, or the last use of its slot, for a start. `begins` is told what begins as soon as it
    /// is certain, as by [`Lane::pass`].
    #[inline(always)]
    #[must_use]
    pub fn leave_finished(
        &mut self,
        used: Cycles,
        begins: impl FnOnce(Cycles, Cycles),
    ) -> Option<Tag> {
        debug_assert!(self.in_slice, "a slice is open");
        let slot = self.current;
        let Turnover { first, stopped, clock, bound } = self.turnover(used)?;
        let (records, links) = self.slab.parts();
        let hot = records.get_mut(slot as usize)?;
        let (tag, generation) = (hot.tag, hot.generation);
        let list = self.sessions.list_mut(tag.session())?;
        if list.count == 1 || generation == CoroutineRef::LAST_GENERATION {
            return None;
        }
        // Nobody has the links of `NIL`.
        let Links { next, .. } = *links.get(first as usize)?;
        // What was looked up goes where it belongs at once, so that little is kept at hand.
        self.steps += 1;
        self.quantum_left = self.quantum;
        begins(Cycles(bound), Cycles(clock - stopped));
        self.clock = clock;
        self.charged += used.0;
        self.digest = self.digest.wrapping_sub(mix(tag, generation));
        self.ready.remove_head_in_order(first, next);
        // `end` and `reap` written out: a lane that picks by arrival has nothing else that names
        // it, and of a record that is free only the generation counts.
        hot.place = Place::Free;
        hot.generation = generation + 1;
        list.unlink(self.slab.kin_parts(), slot);
        self.slab.give_back(slot, false);
        self.current = first;
        Some(self.slab.hot_mut(first).come_up(stopped))
    }
}
