//! The begin of a coroutine, in the usual case.
//!
//! Contract: when [`Lane::spawn_in_order`] answers a reference, it was a [`Lane::reserve`] of one
//! coroutine and one session followed by a [`Lane::spawn`], to the last bit of the lane's state
//! (`tests/pass.rs` compares them); otherwise nothing has changed. Everything is looked at before
//! anything is changed, and the record is written once. Its end, when it comes in the usual way, is
//! in `finish`.

use crate::carry::PicksAt;
use crate::digest::mix;
use crate::lane::Lane;
use crate::record::{Hot, Links, NIL};
use crate::types::Spawn;
use wavelock_abi::{CoroutineRef, LatencyClass, SchedulerOperation, Weight};

impl Lane {
    /// Publishes a coroutine with neutral attributes, of a session that is on the lane, where picks
    /// go by arrival and there is room. `None` if it is not so; then nothing has changed, and a
    /// [`Lane::reserve`] and a [`Lane::spawn`] do it.
    #[inline(always)]
    #[must_use]
    pub fn spawn_in_order(&mut self, spawn: &Spawn) -> Option<CoroutineRef> {
        let is_neutral = spawn.weight == Weight::NEUTRAL && spawn.latency == LatencyClass::Normal;
        if !(is_neutral && self.is_simple && self.sessions.has_room(1)) {
            return None;
        }
        let list = self.sessions.list_mut(spawn.tag.session())?;
        let CoroutineRef { slot, generation } = self.slab.next_plain()?;

        let (arrival, picks_at, since) = (
            self.arrivals,
            PicksAt::of(self.operations.count(SchedulerOperation::Pick, self.steps)),
            self.clock,
        );
        let (tag, priority) = (spawn.tag, spawn.priority);
        let mut hot = Hot { tag, arrival, since, picks_at, generation, priority, ..Hot::EMPTY };
        self.arrivals = arrival + 1;
        self.digest = self.digest.wrapping_add(mix(tag, generation));
        let prev = self.ready.append_in_order(&mut hot, slot);
        if prev != NIL {
            self.slab.links_mut(prev).next = slot;
        }
        let kin = list.append(self.slab.kin_parts(), slot);
        self.slab.put_plain(slot, hot, Links { prev, next: NIL }, kin);
        Some(CoroutineRef::new(slot, generation))
    }
}
