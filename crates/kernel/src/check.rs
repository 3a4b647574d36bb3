//! The invariants of a lane, all of them, in one function. O(n log n): for tests, the simulator and
//! after a restore.
//!
//! 1. One place: every live record is in exactly the structure its place names, once; a free record
//!    is in none but the free list.
//! 2. Order: the list of a class is in ascending arrival and holds only its class; the bitmaps say
//!    which classes and wheel lists are occupied; a sleeper is where the wheel would look for it.
//! 3. Counts: ready, sleeping, blocked, throttled, ended and live agree with the records; arrivals
//!    are unique and below the next.
//! 4. Digest: the sum over the queued records and the current one.
//! 5. Current: the slot of the current coroutine is the one running record; a slice is open only
//!    with one.
//! 6. Conservation: clock = charged + overhead + idle.
//! 7. Fair: each living coroutine has an entity; the lag sum and the rest of the fair queue's own
//!    invariants.
//! 8. Contexts: each is where its phase says, and so is its holder; refills sum to the budget;
//!    chains of loans name each lender once.
//! 9. Cache: it is what [`Lane::refresh`] derives.
//! 10. Caps: the coroutines of a session are held by its cap, or in the background, exactly while
//!     it is spent.
//! 11. Leases: the holder lives and has its context; on an active lease's lane it is alone, the
//!     fair server is off, and there is no overhead that it did not cause.
//! 12. Sessions: each list holds exactly the records of its session, and the table is ascending.

use crate::context::{ContextPhase, Payer};
use crate::digest::mix;
use crate::fair::Share;
use crate::heap;
use crate::lane::{Counts, Lane};
use crate::record::{NIL, Place};
use crate::types::HoldReason;
use alloc::vec;
use alloc::vec::Vec;
use wavelock_abi::CoroutineRef;

/// An invariant that does not hold: our bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which, in words.
    pub rule: &'static str,
    /// The slot where it was seen; 0 where none is involved.
    pub slot: u32,
    /// What was found.
    pub found: u64,
    /// What should have been.
    pub expected: u64,
}

pub(crate) fn equal(
    rule: &'static str,
    slot: u32,
    found: impl Into<u64>,
    expected: impl Into<u64>,
) -> Result<(), Violation> {
    let (found, expected) = (found.into(), expected.into());
    if found == expected { Ok(()) } else { Err(Violation { rule, slot, found, expected }) }
}

pub(crate) fn holds(rule: &'static str, slot: u32, truth: bool) -> Result<(), Violation> {
    equal(rule, slot, truth, true)
}

impl Lane {
    /// Verifies every invariant of the lane; see the header of `check.rs`.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        let seen = self.check_queues()?;
        self.check_places(&seen)?;
        self.check_sleepers()?;
        self.check_free_list()?;
        self.check_sessions()?;
        self.check_fair()?;
        self.check_tier()?;
        self.check_caps()?;
        self.check_lease()?;
        holds("the cache is derived from the lane", 0, self.cache == self.derive_cache())?;
        equal("clock = charged + overhead + idle", 0, self.clock, self.totals().total().0)
    }

    /// Walks every queue; returns how often each slot was met, with the place it was met in.
    fn check_queues(&self) -> Result<Vec<(u32, Place)>, Violation> {
        let mut seen = vec![(0u32, Place::Free); self.slab.used() as usize];
        let mut met = |slot: u32, place: Place| {
            let entry = &mut seen[slot as usize];
            *entry = (entry.0 + 1, place);
        };
        let mut queued = 0u32;
        for class in 0..=255u8 {
            let queue = self.ready.class(class);
            let (mut before, mut last) = (None, NIL);
            for slot in queue.list.iter(&self.slab) {
                let hot = self.slab.hot(slot);
                equal("a class list holds its class", slot, hot.class, class)?;
                holds("a class list is in ascending arrival", slot, before < Some(hot.arrival))?;
                before = Some(hot.arrival);
                met(slot, Place::ReadyList);
                queued += 1;
                last = slot;
            }
            if last != NIL {
                equal("a class list's tail", last, queue.list.tail, last)?;
            }
            let mut wrong = None;
            heap::visit(&self.slab, queue.heap, |slot| {
                if self.slab.hot(slot).class != class {
                    wrong = Some(slot);
                }
                met(slot, Place::ReadyHeap);
                queued += 1;
            });
            equal("a class heap holds its class", wrong.unwrap_or(0), wrong.is_some(), false)?;
            let occupied = queue.list.head != NIL || queue.heap != NIL;
            equal(
                "the class bitmap",
                u32::from(class),
                self.ready.occupied().contains(class),
                occupied,
            )?;
        }
        if let Some(fair) = &self.fair {
            fair.visit_queued(|slot| {
                met(slot, Place::ReadyFair);
                queued += 1;
                true
            });
        }
        heap::visit(&self.slab, self.caps.background, |slot| {
            met(slot, Place::ReadyBackground);
            queued += 1;
        });
        if let Some(tier) = &self.tier {
            for (_, _, context) in tier.queued_keys() {
                met(tier.context(context).holder, Place::ReadyTier);
                queued += 1;
            }
        }
        let Counts { blocked, throttled, ended } = self.counts;
        let running = u32::from(self.current != NIL);
        equal(
            "live = ready + running + sleeping + blocked + throttled + ended",
            0,
            u64::from(self.slab.live()),
            [blocked, throttled, ended, self.sleepers.count(), running, queued]
                .iter()
                .map(|&count| u64::from(count))
                .sum::<u64>(),
        )?;
        let mut asleep = 0u32;
        self.sleepers.visit(&self.slab, |slot, place| {
            met(slot, place);
            asleep += 1;
        });
        equal("the sleeper count", 0, self.sleepers.count(), asleep)?;
        Ok(seen)
    }

    /// Compares what the records say with what the queues held, and recounts everything.
    fn check_places(&self, seen: &[(u32, Place)]) -> Result<(), Violation> {
        let (mut blocked, mut throttled, mut ended, mut running, mut live, mut digest) =
            (0u64, 0u64, 0u64, 0u64, 0u64, 0u64);
        let mut arrivals = Vec::new();
        for slot in 0..self.slab.used() {
            let hot = self.slab.hot(slot);
            let (times, place) = seen[slot as usize];
            let queued = hot.place.is_ready() || hot.place.is_sleeping();
            equal("a record is queued exactly where its place says", slot, times, queued)?;
            holds("a record is in the queue its place names", slot, !queued || place == hot.place)?;
            live += u64::from(hot.place != Place::Free);
            if hot.place.is_ready() {
                holds("a ready record is not held", slot, hot.held.is_empty())?;
            }
            if self.is_queued_by_policy(slot) {
                equal(
                    "the class of a ready record",
                    slot,
                    hot.class,
                    self.settings.policy.class(hot),
                )?;
            }
            if hot.place.is_ready() || hot.place == Place::Running {
                digest = digest.wrapping_add(mix(hot.tag, hot.generation));
            }
            if hot.place != Place::Free {
                holds("an arrival was given out", slot, hot.arrival < self.arrivals)?;
                arrivals.push(hot.arrival);
            }
            match hot.place {
                Place::Blocked => blocked += 1,
                Place::Throttled => {
                    throttled += 1;
                    holds("a throttled record has a reason", slot, !hot.held.is_empty())?;
                }
                Place::Running => {
                    running += 1;
                    equal("the running record is the current one", slot, slot, self.current)?;
                    holds(
                        "a held record runs only to the end of its slice",
                        slot,
                        self.in_slice || hot.held.is_empty(),
                    )?;
                }
                place => ended += u64::from(place.is_ended()),
            }
        }
        arrivals.sort_unstable();
        holds("arrivals are unique", 0, arrivals.windows(2).all(|pair| pair[0] != pair[1]))?;
        equal("the blocked count", 0, self.counts.blocked, blocked)?;
        equal("the throttled count", 0, self.counts.throttled, throttled)?;
        equal("the ended count", 0, self.counts.ended, ended)?;
        equal("the live count", 0, self.slab.live(), live)?;
        equal("one current coroutine at most", 0, running, self.current != NIL)?;
        holds("a slice has a current coroutine", 0, !self.in_slice || self.current != NIL)?;
        equal("the ready-set digest", 0, self.digest, digest)
    }

    fn check_sleepers(&self) -> Result<(), Violation> {
        for slot in self.slab.slots().filter(|&slot| self.slab.hot(slot).place.is_sleeping()) {
            holds(
                "a sleeper's frame has not begun",
                slot,
                self.slab.hot(slot).since > self.frame.0,
            )?;
        }
        self.sleepers.check(&self.slab)
    }

    /// Under `Fair` every living coroutine has an entity, with its share; the fair queue's own
    /// invariants (the lag sum among them) hold.
    fn check_fair(&self) -> Result<(), Violation> {
        let Some(fair) = &self.fair else { return Ok(()) };
        for slot in self.slab.slots() {
            let (hot, cold) = (self.slab.hot(slot), self.slab.cold(slot));
            let share = (!hot.place.is_ended())
                .then_some(Share { weight: cold.weight, class: cold.latency });
            holds(
                "a living coroutine has a fair entity with its share",
                slot,
                fair.share(slot) == share,
            )?;
        }
        for slot in self.slab.slots().filter(|&slot| !self.slab.hot(slot).place.is_ended()) {
            let session = self.slab.hot(slot).tag.session();
            holds(
                "a coroutine competes within its session",
                slot,
                fair.session_of(slot).is_none_or(|of| of == session),
            )?;
        }
        let is_charged = self.in_slice || !fair.has_pending();
        holds("between slices all time is charged", 0, is_charged)?;
        let running = fair.running();
        let is_policys = self.current != NIL
            && self.tier.as_ref().is_none_or(|tier| tier.payer == Payer::BestEffort);
        holds(
            "the fair queue runs the current coroutine",
            0,
            running == (is_policys && !self.is_current_in_background()).then_some(self.current),
        )?;
        fair.check()
    }

    /// Contexts, their holders and lenders, and the heaps they are in.
    fn check_tier(&self) -> Result<(), Violation> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let (mut live, mut holders, mut loans) = (0u64, 0u64, 0u64);
        for (slot, entry) in (0u32..).zip(&tier.contexts).filter(|(_, entry)| entry.is_live) {
            live += 1;
            holds(
                "the refills of a context sum to its budget, in order",
                slot,
                entry.ring.is_sound(),
            )?;
            equal(
                "a context's ring has its budget",
                slot,
                entry.ring.budget().0,
                entry.parameters.budget.0,
            )?;
            let is_queued = tier.ready.contains(slot) || tier.missed.contains(slot);
            holds(
                "a ready context is queued",
                slot,
                is_queued == (entry.phase == ContextPhase::Ready),
            )?;
            let waits = matches!(entry.phase, ContextPhase::Throttled | ContextPhase::Demoted);
            holds(
                "a context that waits for a refill has a timer",
                slot,
                tier.releases.contains(slot) == waits,
            )?;
            holds(
                "a context is current with its holder",
                slot,
                (entry.phase == ContextPhase::Current) == (tier.payer == Payer::Context(slot)),
            )?;
            holds(
                "an idle context has no holder",
                slot,
                (entry.phase == ContextPhase::Idle) == (entry.holder == NIL),
            )?;
            for &lender in &entry.lenders[..usize::from(entry.depth)] {
                loans += 1;
                equal("a lender knows what it lent", lender, tier.lent_by(lender), slot)?;
                holds(
                    "a lender is alive",
                    lender,
                    self.slab.live_slot_at(lender).is_some_and(|hot| !hot.place.is_ended()),
                )?;
            }
            if entry.holder != NIL {
                holders += 1;
                self.check_holder(slot, entry.holder, entry.phase)?;
            }
        }
        equal("the count of contexts", 0, tier.live, live)?;
        let known = |table: &[u32]| table.iter().filter(|&&context| context != NIL).count() as u64;
        equal("every holder is known to its context", 0, known(&tier.by_coroutine), holders)?;
        equal("every lender is known to its context", 0, known(&tier.lent), loans)
    }

    fn check_holder(
        &self,
        context: u32,
        holder: u32,
        phase: ContextPhase,
    ) -> Result<(), Violation> {
        let Some(tier) = &self.tier else { return Ok(()) };
        equal("a holder knows its context", holder, tier.held_by(holder), context)?;
        let hot = self.slab.hot(holder);
        let fits = match phase {
            ContextPhase::Idle => false,
            ContextPhase::Waiting => !hot.place.is_ready() && hot.place != Place::Running,
            ContextPhase::Ready => hot.place == Place::ReadyTier,
            ContextPhase::Current => hot.place == Place::Running,
            ContextPhase::Throttled => {
                hot.place == Place::Throttled && hot.held.contains(HoldReason::Context)
            }
            ContextPhase::Demoted => hot.place != Place::ReadyTier,
        };
        holds("a holder is where its context's phase says", holder, fits && !hot.place.is_ended())
    }

    fn check_free_list(&self) -> Result<(), Violation> {
        let mut free = 0u64;
        for CoroutineRef { slot, .. } in self.slab.free_list() {
            let is_free = self.slab.hot(slot).place == Place::Free;
            holds("the free list holds free records", slot, is_free)?;
            free += 1;
            holds("the free list ends", slot, free <= u64::from(self.slab.used()))?;
        }
        let known = u64::from(self.slab.live()) + u64::from(self.slab.retired()) + free;
        equal("used = live + free + retired", 0, self.slab.used(), known)
    }

    fn check_sessions(&self) -> Result<(), Violation> {
        let mut listed = 0u64;
        let mut before = None;
        for list in self.sessions.table() {
            holds("sessions ascend", list.head, before < Some(list.session))?;
            before = Some(list.session);
            let (mut at, mut prev, mut count) = (list.head, NIL, 0u64);
            while at != NIL {
                let links = self.slab.session_links(at);
                equal("a session list links back", at, links.prev, prev)?;
                equal(
                    "a session list holds its session",
                    at,
                    self.slab.hot(at).tag.session(),
                    list.session,
                )?;
                holds(
                    "a session list holds live records",
                    at,
                    self.slab.hot(at).place != Place::Free,
                )?;
                count += 1;
                holds("a session list ends", at, count <= u64::from(list.count))?;
                (prev, at) = (at, links.next);
            }
            equal("a session list's tail", list.head, list.tail, prev)?;
            equal("a session list's count", list.head, list.count, count)?;
            holds("a session without records has no list", list.head, count > 0)?;
            listed += count;
        }
        equal("every live record is in its session's list", 0, listed, self.slab.live())
    }
}

#[cfg(test)]
mod tests {
    use crate::lane::{Lane, LaneSettings, Next, Reservation};
    use crate::policy::{Policy, PriorityRule};
    use crate::record::{NIL, Place};
    use crate::types::{BlockReason, HoldReason, Outcome, Span, Spawn, Tag};
    use wavelock_abi::{Cycles, Frame, LaneId, SCHEDULER_COSTS_V1};

    /// A lane with a coroutine in every state: 0 blocked, 1 asleep, 2 ended, 3 throttled,
    /// 4 current, 5 to 7 ready.
    fn busy_lane() -> Lane {
        let policy = Policy::Priority { rule: PriorityRule::FixedMap, quantum: Cycles(1_000) };
        let settings = LaneSettings {
            policy,
            frame_cycles: Cycles(1_000_000),
            costs: SCHEDULER_COSTS_V1,
            handoff: false,
        };
        let mut lane = Lane::new(LaneId(0), settings);
        lane.reserve(Reservation { coroutines: 10, sessions: 3 }).expect("memory");
        let all: alloc::vec::Vec<_> = (0..8)
            .map(|slot| lane.spawn(Spawn::new(Tag::new(slot % 2, slot))).expect("room"))
            .collect();
        lane.begin_wave(Span::Until(Cycles::MAX));
        for outcome in
            [Outcome::Blocked(BlockReason::Join), Outcome::Slept(Frame(3)), Outcome::Finished]
        {
            let Next::Run(running) = lane.dispatch() else { panic!("ready") };
            lane.stop(running, Cycles(10), outcome);
        }
        lane.hold(all[3], HoldReason::Operator).expect("live");
        let Next::Run(running) = lane.dispatch() else { panic!("ready") };
        lane.stop(running, Cycles(10), Outcome::OutOfCycles);
        lane.check().expect("a lane in order");
        lane
    }

    /// Damage done to a lane from inside.
    type Damage = fn(&mut Lane);

    #[test]
    fn every_planted_fault_is_found() {
        let damages: [(&str, Damage); 21] = [
            ("blocked count", |lane| lane.counts.blocked += 1),
            ("throttled count", |lane| lane.counts.throttled -= 1),
            ("ended count", |lane| lane.counts.ended += 1),
            ("digest", |lane| lane.digest ^= 1),
            ("a stale cache", |lane| lane.settings.policy = Policy::Cooperative),
            ("a cached end", |lane| lane.cache.end += 1),
            ("clock", |lane| lane.clock += 1),
            ("charged", |lane| lane.charged += 1),
            ("an operation", |lane| lane.operations[0] += 1),
            ("a stale blocked place", |lane| lane.slab.hot_mut(5).place = Place::Blocked),
            ("a ready place without a queue entry", |lane| {
                lane.slab.hot_mut(0).place = Place::ReadyList
            }),
            ("two current", |lane| lane.slab.hot_mut(3).place = Place::Running),
            ("no current", |lane| lane.current = NIL),
            ("a class that is not the policy's", |lane| lane.slab.hot_mut(5).priority.0 = 9),
            ("an arrival twice", |lane| lane.slab.hot_mut(3).arrival = lane.slab.hot(4).arrival),
            ("an arrival never given", |lane| lane.arrivals = 3),
            ("a list out of order", |lane| {
                lane.slab.hot_mut(7).arrival = lane.slab.hot(5).arrival - 1
            }),
            ("a throttled record without reason", |lane| {
                lane.slab.hot_mut(3).held = crate::types::HoldReasons::NONE
            }),
            ("a sleeper of the past", |lane| lane.frame = Frame(5)),
            ("a sleeper in another list", |lane| lane.slab.hot_mut(1).since = 4),
            ("a session's member", |lane| lane.slab.hot_mut(6).tag = Tag::new(1, 6)),
        ];
        for (what, damage) in damages {
            let mut lane = busy_lane();
            damage(&mut lane);
            assert!(lane.check().is_err(), "{what}");
        }
    }
}
