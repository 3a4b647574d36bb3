//! The fair queue as plain data, rebuilding it from that, and the check of its invariants.
//!
//! Times in a [`FairState`] are relative to the queue's virtual time, so two queues that decide
//! alike export alike, whatever their origin and the shape of their trees. The data is untrusted:
//! rebuilding verifies every number. Its encoding is in the system crate.

use super::competition::{Competition, EntityTable};
use super::entity::{Entity, FairSettings, Phase, Share, VirtualTime};
use super::queue::FairQueue;
use super::tree::Tree;
use crate::check::{Violation, equal, holds};
use alloc::vec::Vec;
use wavelock_abi::LatencyClass;

/// A fair queue as plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FairState {
    /// Its settings.
    pub settings: FairSettings,
    /// Slots it has room for.
    pub slots: u32,
    /// The next arrival number.
    pub arrivals: u64,
    /// Every entity, by slot.
    pub entities: Vec<EntityState>,
}

/// A session on a lane that sessions share, as plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FairSessionState {
    /// Its entity; the slot is the session's number.
    pub entity: EntityState,
    /// The next arrival number among its coroutines.
    pub arrivals: u64,
    /// The entities of its coroutines on the lane, by slot; at least one.
    pub coroutines: Vec<EntityState>,
}

/// One entity as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntityState {
    /// The coroutine's slot.
    pub slot: u32,
    /// Its parameters.
    pub share: Share,
    /// Service below one unit, in 1/weight units; less than the weight.
    pub remainder: u16,
    /// Whether and how it competes.
    pub phase: EntityPhase,
}

/// The phase of an entity and the times that apply in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's sentence names its fields")]
pub enum EntityPhase {
    /// Not competing: the `lag` it left with and what is left of its request, if it was in one.
    Resting { lag: i64, request_left: Option<i64> },
    /// Waiting for the lane.
    Queued(VirtualTimes),
    /// Asleep in debt, its dequeue delayed.
    Delayed(VirtualTimes),
    /// On the lane, protected up to a virtual runtime (the second field).
    Running(VirtualTimes, i64),
}

/// The times of a competing entity, in units after the queue's virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualTimes {
    /// Virtual runtime.
    pub time: i64,
    /// Virtual deadline.
    pub deadline: i64,
    /// Arrival number.
    pub arrival: u64,
}

/// No time of a queue is farther than this from its virtual time; a quarter of what comparison
/// needs.
const SPREAD: i64 = 1 << 60;

impl FairQueue {
    /// The whole queue as plain data. Allocates.
    #[must_use]
    pub fn export(&self) -> FairState {
        let entities = (0..self.table.slots())
            .filter_map(|slot| self.competition.export(&self.table, slot))
            .collect();
        FairState {
            settings: self.table.settings,
            slots: self.table.slots(),
            arrivals: self.competition.arrivals,
            entities,
        }
    }

    /// A queue from plain data, which decides exactly like the exported one. `None` if no queue has
    /// this state, or the host has not enough memory.
    #[must_use]
    pub fn rebuild(state: &FairState) -> Option<Self> {
        let mut queue = Self::new(state.settings);
        queue.reserve(state.slots).ok()?;
        queue.competition.restore_all(&mut queue.table, state.arrivals, &state.entities)?;
        Some(queue)
    }

    /// Verifies every invariant of the queue by recomputation: O(n), for tests and the simulator.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        let nodes = self.competition.check(&self.table, 0..self.table.slots())?;
        self.table.check_nodes(nodes)
    }
}

impl EntityTable {
    /// Every node of the arena is in a tree of a competition, which have `nodes`, or free.
    pub(super) fn check_nodes(&self, nodes: usize) -> Result<(), Violation> {
        equal("every node is in a tree or free", 0, nodes as u64, self.arena.in_use() as u64)
    }
}

impl Competition {
    /// An entity as plain data; `None` where there is none.
    pub(super) fn export(&self, table: &EntityTable, slot: u32) -> Option<EntityState> {
        let entity = &table.entities[slot as usize];
        let now = self.virtual_time();
        let times = VirtualTimes {
            time: entity.v.since(now),
            deadline: entity.deadline.since(now),
            arrival: entity.arrival,
        };
        let phase = match entity.phase {
            Phase::Absent => return None,
            Phase::Resting => {
                EntityPhase::Resting { lag: entity.v.0, request_left: entity.request_left() }
            }
            Phase::Queued => EntityPhase::Queued(times),
            Phase::Delayed => EntityPhase::Delayed(times),
            Phase::Running => EntityPhase::Running(times, self.protected_until.since(now)),
        };
        Some(EntityState { slot, share: entity.share(), remainder: entity.remainder, phase })
    }

    /// Restores the entities of a competition, ascending by slot, into an empty one. `None` for
    /// what no competition has, or if the host has not enough memory.
    pub(super) fn restore_all(
        &mut self,
        table: &mut EntityTable,
        arrivals: u64,
        entities: &[EntityState],
    ) -> Option<()> {
        self.arrivals = arrivals;
        let mut seen = Vec::new();
        seen.try_reserve_exact(entities.len()).ok()?;
        let mut first_slot = 0;
        for entity in entities {
            let is_free = (first_slot..table.slots()).contains(&entity.slot)
                && table.phase(entity.slot) == Phase::Absent;
            if !is_free {
                return None;
            }
            first_slot = entity.slot + 1;
            seen.extend(self.restore(table, entity)?);
        }
        seen.sort_unstable();
        seen.windows(2).all(|pair| pair[0] != pair[1]).then_some(())
    }

    /// Restores one entity; returns its arrival number if it competes. `None` for numbers that no
    /// queue has.
    fn restore(&mut self, table: &mut EntityTable, state: &EntityState) -> Option<Option<u64>> {
        let EntityState { slot, share, remainder, phase } = *state;
        let is_near = |time: i64| (-SPREAD..=SPREAD).contains(&time);
        let (phase, times) = match phase {
            EntityPhase::Resting { lag, request_left } => {
                let is_sound = is_near(lag) && request_left.is_none_or(|left| left > 0);
                let deadline = is_sound.then_some(request_left.unwrap_or(0))?;
                (Phase::Resting, VirtualTimes { time: lag, deadline, arrival: 0 })
            }
            EntityPhase::Queued(times) => (Phase::Queued, times),
            EntityPhase::Delayed(times) => (Phase::Delayed, times),
            EntityPhase::Running(times, protected_until) => {
                if self.running.is_some() || !is_near(protected_until) {
                    return None;
                }
                self.protected_until = VirtualTime(protected_until);
                (Phase::Running, times)
            }
        };
        let VirtualTimes { time, deadline, arrival } = times;
        let competes = phase != Phase::Resting;
        let is_sound = is_near(time) && is_near(deadline) && remainder < share.weight.get();
        if !is_sound || competes && (deadline <= time || arrival >= self.arrivals) {
            return None;
        }
        table.entities[slot as usize] = Entity {
            v: VirtualTime(time),
            deadline: VirtualTime(deadline),
            arrival,
            request: table.request_units(share),
            remainder,
            weight: share.weight,
            class: share.class,
            phase,
            ..Entity::ABSENT
        };
        if competes {
            self.count_in(table, slot);
            self.link(table, slot);
        }
        Some(competes.then_some(arrival))
    }

    /// Verifies every invariant over the entities in `slots`, which are those of this competition
    /// (absent ones may be among them); returns the number of nodes of its trees.
    pub(super) fn check(
        &self,
        table: &EntityTable,
        slots: impl IntoIterator<Item = u32>,
    ) -> Result<usize, Violation> {
        let now = self.virtual_time();
        let (mut weighted_sum, mut weight) = (0i128, 0i64);
        let mut class_counts = [0u32; LatencyClass::ALL.len()];
        let (mut queued, mut delayed) = (0, 0);
        for slot in slots {
            let entity = &table.entities[slot as usize];
            let is_running = entity.phase == Phase::Running;
            holds(
                "the running entity, and no other, is on the lane",
                slot,
                (self.running == Some(slot)) == is_running,
            )?;
            if entity.phase == Phase::Absent {
                continue;
            }
            holds("a remainder is below the weight", slot, entity.remainder < entity.weight.get())?;
            holds(
                "a request is that of weight and class",
                slot,
                entity.request == table.request_units(entity.share()),
            )?;
            if entity.phase == Phase::Resting {
                continue;
            }
            let is_near = |time: VirtualTime| time.since(now).abs() <= SPREAD;
            holds(
                "times are near the virtual time",
                slot,
                is_near(entity.v) && is_near(entity.deadline),
            )?;
            holds(
                "a deadline is after the virtual runtime",
                slot,
                entity.v.before(entity.deadline),
            )?;
            holds(
                "an arrival in the fair queue was given out",
                slot,
                entity.arrival < self.arrivals,
            )?;
            queued += u32::from(entity.phase == Phase::Queued);
            delayed += u32::from(entity.phase == Phase::Delayed);
            weighted_sum += entity.moment(self.origin);
            weight += entity.factor();
            class_counts[entity.class as usize] += 1;
        }
        let nodes = self.ready.check(table, queued)?
            + check_tree(table, &self.delayed, Phase::Delayed, delayed)?;
        holds(
            "the weighted sum is the sum over the entities (D-I2)",
            0,
            weighted_sum == self.weighted_sum,
        )?;
        let slice_range = self.recomputed_slice_range(table);
        let are_equal = (weight, class_counts, slice_range)
            == (self.weight, self.class_counts, self.slice_range);
        holds(
            "weight, counts by class and the range of slices are those of the entities",
            0,
            are_equal,
        )?;
        Ok(nodes)
    }
}

/// Verifies that a tree is sound and holds exactly the `count` entities of `phase`, each with its
/// own key and virtual runtime. Returns the number of nodes.
pub(super) fn check_tree(
    table: &EntityTable,
    tree: &Tree,
    phase: Phase,
    count: u32,
) -> Result<usize, Violation> {
    let nodes = tree.check(&table.arena)?;
    let mut result = Ok(nodes);
    tree.visit(&table.arena, &mut |found| {
        let entity = table.entities.get(found.slot as usize);
        let is_own = entity.is_some_and(|one| {
            one.phase == phase
                && (phase != Phase::Queued || one.list == Entity::UNLISTED)
                && one.entry(found.slot) == found
        });
        result =
            holds("an entry in a tree is that of its entity", found.slot, is_own).map(|()| nodes);
        is_own
    });
    result.and_then(|nodes| {
        equal("every queued and every delayed entity is in its tree", 0, tree.len(), count)
            .map(|()| nodes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::{Carried, Leave, Placement};
    use wavelock_abi::{Cycles, Weight};

    /// Two hundred entities with entities in every phase.
    fn queue() -> FairQueue {
        let settings = FairSettings::new(Cycles(10_000), Cycles(500), Cycles(1_000_000))
            .expect("good settings");
        let mut queue = FairQueue::new(settings);
        queue.reserve(200).expect("memory");
        for slot in 0..200 {
            let weight = Weight::new(1 + (slot * 337 % 5_000) as u16).expect("not zero");
            let share = Share { weight, class: LatencyClass::ALL[slot as usize % 5] };
            queue.adopt(slot, Carried::fresh(share));
            queue.place(slot, Placement::Initial);
        }
        for step in 0..300 {
            let slot = queue.pick().expect("an entity is ready");
            queue.charge(queue.bound());
            if step % 7 == 0 { queue.leave(slot, Leave::Sleep) } else { queue.requeue() }
        }
        let _ = queue.pick();
        assert!(!queue.competition.delayed.is_empty() && queue.running().is_some());
        queue
    }

    /// Each planted fault is found, and by the check it belongs to.
    #[test]
    fn check_finds_planted_faults() {
        assert_eq!(queue().check(), Ok(()));
        let found = |plant: &dyn Fn(&mut FairQueue)| {
            let mut queue = queue();
            plant(&mut queue);
            queue.check().expect_err("a planted fault").rule
        };
        let running = queue().running().expect("one runs") as usize;
        let queued = queue()
            .table
            .entities
            .iter()
            .position(|entity| entity.phase == Phase::Queued && entity.list == Entity::UNLISTED)
            .expect("one is in the tree");
        let listed =
            queue().table.entities.iter().position(|entity| {
                entity.phase == Phase::Queued && entity.list != Entity::UNLISTED
            });
        let listed = listed.expect("one is in the list");
        assert!(found(&|queue| queue.competition.weighted_sum += 1).contains("D-I2"));
        let plants: [fn(&mut Entity); 2] =
            [|entity| entity.list = Entity::UNLISTED, |entity| entity.next = entity.previous];
        for plant in plants {
            let rule = found(&|queue| plant(&mut queue.table.entities[listed]));
            assert!(rule.contains("list"), "{rule}");
        }
        for rule in [
            found(&|queue| queue.competition.weight += 1),
            found(&|queue| queue.competition.class_counts.swap(0, 4)),
            found(&|queue| queue.competition.slice_range.0 = Cycles(1)),
        ] {
            assert!(rule.starts_with("weight, counts by class"), "{rule}");
        }
        let rule = found(&|queue| queue.table.entities[queued].remainder = u16::MAX);
        assert!(rule.starts_with("a remainder"), "{rule}");
        for rule in [
            found(&|queue| queue.table.entities[queued].v.0 += 1),
            found(&|queue| queue.table.entities[queued].phase = Phase::Resting),
            found(&|queue| {
                let Competition { ready, delayed, .. } = &mut queue.competition;
                core::mem::swap(&mut ready.tree, delayed)
            }),
        ] {
            assert!(rule.starts_with("an entry in a tree"), "{rule}");
        }
        for rule in [
            found(&|queue| queue.table.entities[running].phase = Phase::Resting),
            found(&|queue| queue.competition.running = None),
        ] {
            assert!(rule.starts_with("the running entity"), "{rule}");
        }
        let rule = found(&|queue| queue.competition.delayed = Tree::new());
        assert!(rule.contains("is in its tree"), "{rule}");
        for fault in 0..5 {
            let rule =
                found(&|queue| queue.competition.ready.tree.damage(&mut queue.table.arena, fault));
            assert!(rule.starts_with("fair tree: "), "fault {fault}: {rule}");
        }
    }
}
