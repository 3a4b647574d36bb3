//! The fair queue as plain data, rebuilding it from that, and the one check of every invariant.
//!
//! Times in a [`FairState`] are relative to the queue's virtual time, so two queues that decide
//! alike export alike, whatever their origin and the shape of their trees. The trace crate gives
//! this data its bytes.

use super::entity::{Entity, FairSettings, Place, Share, VirtualTime};
use super::queue::FairQueue;
use super::tree::Tree;
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

/// One entity as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntityState {
    /// The lane's slot.
    pub slot: u32,
    /// Its parameters.
    pub share: Share,
    /// Service below one unit, in 1/weight units; less than the weight.
    pub remainder: u16,
    /// Where it is.
    pub standing: Standing,
}

/// Where an entity is. Times are units of virtual time after the queue's virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Not competing.
    Resting {
        /// The lag it left with.
        lag: i64,
        /// The rest of its request, if it was taken out in the middle of one.
        request_left: Option<i64>,
    },
    /// Waiting for the lane.
    Queued {
        /// Virtual runtime.
        time: i64,
        /// Virtual deadline.
        deadline: i64,
        /// Arrival number.
        arrival: u64,
    },
    /// Asleep, still paying its debt.
    Delayed {
        /// Virtual runtime.
        time: i64,
        /// Virtual deadline.
        deadline: i64,
        /// Arrival number.
        arrival: u64,
    },
    /// On the lane.
    Running {
        /// Virtual runtime.
        time: i64,
        /// Virtual deadline.
        deadline: i64,
        /// Arrival number.
        arrival: u64,
        /// The virtual runtime up to which it is protected.
        protected_until: i64,
    },
}

/// Why plain data is not a fair queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateRefused {
    /// Slots are not ascending, or beyond the room.
    Slot {
        /// The slot.
        slot: u32,
    },
    /// More than one entity runs.
    SecondRunning {
        /// The second.
        slot: u32,
    },
    /// A number no queue can have: a remainder not below the weight, a time or lag farther than any
    /// queue spreads, a deadline not after its runtime, or an arrival that is not yet given or
    /// given twice.
    Number {
        /// The entity's slot.
        slot: u32,
    },
    /// The host has not enough memory.
    OutOfMemory,
}

/// An invariant that does not hold: a bug of this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FairViolation {
    /// A tree is out of order, badly filled, its least virtual runtimes are wrong, or an entity is
    /// in none.
    Tree(&'static str),
    /// Nodes are neither in a tree nor free.
    LostNodes,
    /// An entity is in a tree with another place, key or virtual runtime than its own, or on the
    /// lane in another state than running.
    Misplaced {
        /// The slot.
        slot: u32,
    },
    /// An entity's own numbers are wrong: remainder, request, deadline, distance.
    Entity {
        /// The slot.
        slot: u32,
    },
    /// The weighted sum is not the recomputed sum of weight times distance (D-I2).
    WeightedSum {
        /// What the queue keeps.
        kept: i128,
        /// What recomputation gives.
        recomputed: i128,
    },
    /// A weight sum or a count per class is wrong.
    Sums,
}

/// No time of a queue is farther than this from its virtual time; a quarter of what comparison
/// needs.
const SPREAD: i64 = 1 << 60;

impl FairQueue {
    /// The whole queue as plain data. Allocates.
    #[must_use]
    pub fn export(&self) -> FairState {
        let now = self.virtual_time();
        let mut entities = Vec::new();
        for (slot, entity) in (0u32..).zip(&self.entities) {
            let (time, deadline, arrival) =
                (entity.v.since(now), entity.deadline.since(now), entity.arrival);
            let standing = match entity.place {
                Place::Absent => continue,
                Place::Resting => {
                    Standing::Resting { lag: entity.v.0, request_left: entity.request_left() }
                }
                Place::Queued => Standing::Queued { time, deadline, arrival },
                Place::Delayed => Standing::Delayed { time, deadline, arrival },
                Place::Running => Standing::Running {
                    time,
                    deadline,
                    arrival,
                    protected_until: self.protected_until.since(now),
                },
            };
            let (share, remainder) = (entity.share(), entity.remainder);
            entities.push(EntityState { slot, share, remainder, standing });
        }
        FairState {
            settings: self.settings,
            slots: self.entities.len() as u32,
            arrivals: self.arrivals,
            entities,
        }
    }

    /// A queue from plain data: from here on it decides exactly like the one exported.
    ///
    /// # Errors
    /// The data is of no queue, or memory is short. Nothing is built then.
    pub fn rebuild(state: &FairState) -> Result<Self, StateRefused> {
        let mut queue = Self::new(state.settings);
        queue.reserve(state.slots).map_err(|_| StateRefused::OutOfMemory)?;
        let mut next = 0;
        let mut arrivals = Vec::new();
        arrivals.try_reserve_exact(state.entities.len()).map_err(|_| StateRefused::OutOfMemory)?;
        for entity in &state.entities {
            let slot = entity.slot;
            if slot < next || slot >= state.slots {
                return Err(StateRefused::Slot { slot });
            }
            next = slot + 1;
            if let Some(arrival) = queue.restore(entity)? {
                arrivals.push((arrival, slot));
            }
        }
        arrivals.sort_unstable();
        for (at, &(arrival, slot)) in arrivals.iter().enumerate() {
            if arrival >= state.arrivals || (at > 0 && arrivals[at - 1].0 == arrival) {
                return Err(StateRefused::Number { slot });
            }
        }
        queue.arrivals = state.arrivals;
        Ok(queue)
    }

    /// Restores one entity; returns its arrival number if it competes.
    fn restore(&mut self, state: &EntityState) -> Result<Option<u64>, StateRefused> {
        let EntityState { slot, share, remainder, standing } = *state;
        let far = |time: i64| !(-SPREAD..=SPREAD).contains(&time);
        let (v, deadline, arrival, place) = match standing {
            Standing::Resting { lag, request_left } => (lag, request_left, None, Place::Resting),
            Standing::Queued { time, deadline, arrival } => {
                (time, Some(deadline), Some(arrival), Place::Queued)
            }
            Standing::Delayed { time, deadline, arrival } => {
                (time, Some(deadline), Some(arrival), Place::Delayed)
            }
            Standing::Running { time, deadline, arrival, .. } => {
                (time, Some(deadline), Some(arrival), Place::Running)
            }
        };
        let earliest = if arrival.is_some() { v } else { 0 };
        if far(v)
            || deadline.is_some_and(|deadline| far(deadline) || deadline <= earliest)
            || remainder >= share.weight.get()
        {
            return Err(StateRefused::Number { slot });
        }
        if let Standing::Running { protected_until, .. } = standing {
            if self.running.is_some() {
                return Err(StateRefused::SecondRunning { slot });
            }
            if far(protected_until) {
                return Err(StateRefused::Number { slot });
            }
            self.protected_until = VirtualTime(protected_until);
        }
        self.entities[slot as usize] = Entity {
            v: VirtualTime(v),
            deadline: VirtualTime(deadline.unwrap_or(0)),
            arrival: arrival.unwrap_or(0),
            request: self.request_units(share),
            remainder,
            weight: share.weight,
            class: share.class,
            place,
        };
        if arrival.is_some() {
            self.count_in(slot);
            self.link(slot);
        }
        Ok(arrival)
    }

    /// Verifies every invariant of the queue by recomputation: O(n), for tests and the simulator.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), FairViolation> {
        let now = self.virtual_time();
        let (mut weighted_sum, mut weight, mut delayed_weight) = (0i128, 0i64, 0i64);
        let mut class_counts = [0u32; LatencyClass::ALL.len()];
        let mut places = [0u32; 5];
        for (slot, entity) in (0u32..).zip(&self.entities) {
            places[entity.place as usize] += 1;
            if (self.running == Some(slot)) != (entity.place == Place::Running) {
                return Err(FairViolation::Misplaced { slot });
            }
            if entity.place == Place::Absent {
                continue;
            }
            let is_sound = entity.remainder < entity.weight.get()
                && entity.request == self.request_units(entity.share());
            let is_near = |time: VirtualTime| time.since(now).abs() <= SPREAD;
            let competes_soundly = || {
                is_near(entity.v)
                    && is_near(entity.deadline)
                    && entity.v.before(entity.deadline)
                    && entity.arrival < self.arrivals
            };
            if !is_sound || entity.place != Place::Resting && !competes_soundly() {
                return Err(FairViolation::Entity { slot });
            }
            if entity.place == Place::Resting {
                continue;
            }
            weighted_sum += i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
            weight += entity.factor();
            delayed_weight += if entity.place == Place::Delayed { entity.factor() } else { 0 };
            class_counts[entity.class as usize] += 1;
        }
        let nodes = self.check_tree(&self.ready, Place::Queued, places[Place::Queued as usize])?
            + self.check_tree(&self.delayed, Place::Delayed, places[Place::Delayed as usize])?;
        if nodes != self.arena.in_use() {
            return Err(FairViolation::LostNodes);
        }
        if weighted_sum != self.weighted_sum {
            let (kept, recomputed) = (self.weighted_sum, weighted_sum);
            return Err(FairViolation::WeightedSum { kept, recomputed });
        }
        let sums = (weight, delayed_weight, class_counts, self.recomputed_slice_range());
        if sums == (self.weight, self.delayed_weight, self.class_counts, self.slice_range) {
            Ok(())
        } else {
            Err(FairViolation::Sums)
        }
    }

    /// A tree is sound and holds exactly the `count` entities whose place it is, each with its own
    /// key and virtual runtime. Returns the number of nodes.
    fn check_tree(&self, tree: &Tree, place: Place, count: u32) -> Result<usize, FairViolation> {
        let nodes = tree.check(&self.arena).map_err(FairViolation::Tree)?;
        let mut misplaced = None;
        tree.visit(&self.arena, &mut |found| {
            let entity = self.entities.get(found.slot as usize);
            let is_its =
                entity.is_some_and(|one| one.place == place && one.entry(found.slot) == found);
            misplaced = (!is_its).then_some(found.slot);
            is_its
        });
        match misplaced {
            Some(slot) => Err(FairViolation::Misplaced { slot }),
            None if tree.len() != count => Err(FairViolation::Tree("an entity is in no tree")),
            None => Ok(nodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::{Carried, Departure, Placement};
    use wavelock_abi::{Cycles, Weight};

    /// Two hundred entities with something in every place.
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
            let picked = queue.pick().expect("somebody is ready");
            queue.charge(picked.bound);
            if step % 7 == 0 {
                queue.depart(picked.slot, Departure::Sleep)
            } else {
                queue.requeue()
            }
        }
        let _ = queue.pick();
        assert!(queue.delayed() > 0 && queue.running().is_some());
        queue
    }

    /// Each planted fault is found, and by the check it belongs to.
    #[test]
    fn check_finds_planted_faults() {
        assert_eq!(queue().check(), Ok(()));
        let found = |plant: &dyn Fn(&mut FairQueue)| {
            let mut queue = queue();
            plant(&mut queue);
            queue.check()
        };
        let running = queue().running().expect("one runs") as usize;
        let queued = queue()
            .entities
            .iter()
            .position(|entity| entity.place == Place::Queued)
            .expect("one is queued");
        assert!(matches!(
            found(&|queue| queue.weighted_sum += 1),
            Err(FairViolation::WeightedSum { .. })
        ));
        assert_eq!(found(&|queue| queue.weight += 1), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.delayed_weight -= 1), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.class_counts.swap(0, 4)), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.slice_range.0 = Cycles(1)), Err(FairViolation::Sums));
        assert_eq!(
            found(&|queue| queue.entities[queued].remainder = u16::MAX),
            Err(FairViolation::Entity { slot: queued as u32 })
        );
        assert!(matches!(
            found(&|queue| queue.entities[queued].v.0 += 1),
            Err(FairViolation::Misplaced { .. })
        ));
        assert!(matches!(
            found(&|queue| queue.entities[queued].place = Place::Resting),
            Err(FairViolation::Misplaced { .. })
        ));
        assert!(matches!(
            found(&|queue| queue.entities[running].place = Place::Resting),
            Err(FairViolation::Misplaced { .. })
        ));
        assert!(matches!(
            found(&|queue| queue.running = None),
            Err(FairViolation::Misplaced { .. })
        ));
        assert!(matches!(
            found(&|queue| core::mem::swap(&mut queue.ready, &mut queue.delayed)),
            Err(FairViolation::Misplaced { .. })
        ));
        assert_eq!(
            found(&|queue| queue.delayed = Tree::new()),
            Err(FairViolation::Tree("an entity is in no tree"))
        );
        for fault in 0..5 {
            let broken = found(&|queue| queue.ready.damage(&mut queue.arena, fault));
            assert!(matches!(broken, Err(FairViolation::Tree(_))), "fault {fault}: {broken:?}");
        }
    }
}
