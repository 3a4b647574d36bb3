//! The fair queue as plain data, the way back, and the one check of every invariant.
//!
//! Times in a [`FairState`] are relative to the queue's virtual time, so two queues that decide alike export alike, whatever their
//! origin and the shape of their trees. The trace crate gives this data its bytes.

use super::entity::{Entity, FairSettings, Place, Share, VirtualTime};
use super::queue::{FairQueue, entry};
use super::tree::{Arena, Tree};
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
    /// A number no queue can have: a remainder not below the weight, a time or lag farther than any queue spreads, a deadline not after
    /// its runtime, or an arrival that is not yet given or given twice.
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
    /// A tree is out of order, badly filled, or its least virtual runtimes are wrong.
    Tree(&'static str),
    /// Nodes are neither in a tree nor free.
    LostNodes,
    /// A tree holds an entry that is not its entity's, or an entity is in no tree.
    Misplaced {
        /// The slot.
        slot: u32,
    },
    /// An entity's own numbers are wrong: remainder, request, deadline, distance.
    Entity {
        /// The slot.
        slot: u32,
    },
    /// The moment is not the recomputed sum of weight times distance (D-I2).
    Moment {
        /// What the queue keeps.
        kept: i128,
        /// What recomputation gives.
        recomputed: i128,
    },
    /// A weight sum or a count per class is wrong.
    Sums,
}

/// No time of a queue is farther than this from its virtual time; a quarter of what comparison needs.
const SPREAD: i64 = 1 << 60;

impl FairQueue {
    /// The whole queue as plain data. Allocates.
    #[must_use]
    pub fn export(&self) -> FairState {
        let now = self.virtual_time();
        let mut entities = Vec::new();
        for (slot, entity) in (0u32..).zip(&self.entities) {
            let (time, deadline, arrival) = (entity.v.since(now), entity.deadline.since(now), entity.arrival);
            let standing = match entity.place {
                Place::Absent => continue,
                Place::Resting => Standing::Resting { lag: entity.v.0, request_left: entity.mid_request.then_some(entity.deadline.0) },
                Place::Queued => Standing::Queued { time, deadline, arrival },
                Place::Delayed => Standing::Delayed { time, deadline, arrival },
                Place::Running => Standing::Running { time, deadline, arrival, protected_until: self.protected_until.since(now) },
            };
            let share = Share { weight: entity.weight, class: entity.class };
            entities.push(EntityState { slot, share, remainder: entity.remainder, standing });
        }
        FairState { settings: self.settings, slots: self.entities.len() as u32, arrivals: self.arrivals, entities }
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

    /// Restores one entity; its arrival number if it competes.
    fn restore(&mut self, state: &EntityState) -> Result<Option<u64>, StateRefused> {
        let slot = state.slot;
        let refused = Err(StateRefused::Number { slot });
        let far = |time: i64| !(-SPREAD..=SPREAD).contains(&time);
        let (time, deadline, arrival, place) = match state.standing {
            Standing::Resting { lag, request_left } => (lag, request_left.unwrap_or(1), None, Place::Resting),
            Standing::Queued { time, deadline, arrival } => (time, deadline, Some(arrival), Place::Queued),
            Standing::Delayed { time, deadline, arrival } => (time, deadline, Some(arrival), Place::Delayed),
            Standing::Running { time, deadline, arrival, .. } => (time, deadline, Some(arrival), Place::Running),
        };
        let late = if arrival.is_some() { deadline <= time } else { deadline < 1 };
        if far(time) || far(deadline) || late || state.remainder >= state.share.weight.get() {
            return refused;
        }
        let mid_request = matches!(state.standing, Standing::Resting { request_left: Some(_), .. });
        let entity = Entity {
            v: VirtualTime(time),
            deadline: VirtualTime(deadline),
            request: self.request_units(state.share),
            arrival: arrival.unwrap_or(0),
            remainder: state.remainder,
            weight: state.share.weight,
            class: state.share.class,
            place,
            mid_request,
        };
        self.entities[slot as usize] = entity;
        match state.standing {
            Standing::Resting { .. } => return Ok(None),
            Standing::Queued { .. } => self.ready.insert(&mut self.arena, entry(&entity, slot)),
            Standing::Delayed { .. } => self.delayed.insert(&mut self.arena, entry(&entity, slot)),
            Standing::Running { protected_until, .. } => {
                if self.running.is_some() {
                    return Err(StateRefused::SecondRunning { slot });
                }
                if far(protected_until) {
                    return refused;
                }
                self.running = Some(slot);
                self.protected_until = VirtualTime(protected_until);
            }
        }
        self.count_in(slot);
        if place != Place::Delayed {
            self.runnable_weight += u64::from(entity.weight.get());
        }
        Ok(arrival)
    }

    /// Verifies every invariant of the queue by recomputation: O(n), for tests and the simulator.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), FairViolation> {
        let (mut leaves, mut inners) = (0, 0);
        self.ready.check(&self.arena, &mut leaves, &mut inners).map_err(FairViolation::Tree)?;
        self.delayed.check(&self.arena, &mut leaves, &mut inners).map_err(FairViolation::Tree)?;
        if !self.arena.accounts_for(leaves, inners) {
            return Err(FairViolation::LostNodes);
        }
        self.check_places()?;
        let now = self.virtual_time();
        let (mut moment, mut weight, mut runnable) = (0i128, 0i64, 0u64);
        let mut classes = [0u32; LatencyClass::ALL.len()];
        for (slot, entity) in (0u32..).zip(&self.entities) {
            let broken = Err(FairViolation::Entity { slot });
            if entity.place == Place::Absent {
                continue;
            }
            let share = Share { weight: entity.weight, class: entity.class };
            if entity.remainder >= entity.weight.get() || entity.request != self.request_units(share) {
                return broken;
            }
            if entity.place == Place::Resting {
                continue;
            }
            let far = entity.v.since(now).abs() > SPREAD || entity.deadline.since(now).abs() > SPREAD;
            if far || !entity.v.before(entity.deadline) || entity.arrival >= self.arrivals {
                return broken;
            }
            moment += i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
            weight += entity.factor();
            runnable += if entity.place == Place::Delayed { 0 } else { u64::from(entity.weight.get()) };
            classes[entity.class as usize] += 1;
        }
        if moment != self.moment {
            return Err(FairViolation::Moment { kept: self.moment, recomputed: moment });
        }
        let sums = (weight, runnable, classes) == (self.weight, self.runnable_weight, self.classes);
        if sums && self.extremes == self.recomputed_extremes() { Ok(()) } else { Err(FairViolation::Sums) }
    }

    /// Each competing entity is in exactly the tree its place says, under its own key; the running one in none.
    fn check_places(&self) -> Result<(), FairViolation> {
        let mut expected = [0u32; 2];
        for (slot, at) in (0u32..).zip(&self.entities) {
            match at.place {
                Place::Queued => expected[0] += 1,
                Place::Delayed => expected[1] += 1,
                Place::Running if self.running != Some(slot) => return Err(FairViolation::Misplaced { slot }),
                _ => {}
            }
        }
        if let Some(slot) = self.running.filter(|&slot| self.entities[slot as usize].place != Place::Running) {
            return Err(FairViolation::Misplaced { slot });
        }
        let trees = [(&self.ready, Place::Queued), (&self.delayed, Place::Delayed)];
        for ((tree, place), expected) in trees.into_iter().zip(expected) {
            self.check_tree(tree, &self.arena, place)?;
            if tree.len() != expected {
                return Err(FairViolation::Tree("a tree holds more or fewer than its entities"));
            }
        }
        Ok(())
    }

    fn check_tree(&self, tree: &Tree, arena: &Arena, place: Place) -> Result<(), FairViolation> {
        let mut wrong = None;
        tree.visit(arena, &mut |found| {
            let matches = self.entities.get(found.slot as usize).is_some_and(|at| at.place == place && entry(at, found.slot) == found);
            wrong = if matches { None } else { Some(found.slot) };
            matches
        });
        wrong.map_or(Ok(()), |slot| Err(FairViolation::Misplaced { slot }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::{Departure, Placement};
    use wavelock_abi::{Cycles, Weight};

    /// Two hundred entities with something in every place.
    fn queue() -> FairQueue {
        let settings = FairSettings::new(Cycles(10_000), Cycles(500), Cycles(1_000_000)).expect("good settings");
        let mut queue = FairQueue::new(settings);
        queue.reserve(200).expect("memory");
        for slot in 0..200 {
            let weight = Weight::new(1 + (slot * 337 % 5_000) as u16).expect("not zero");
            queue.admit(slot, Share { weight, class: LatencyClass::ALL[slot as usize % 5] });
            queue.place(slot, Placement::Initial);
        }
        for step in 0..300 {
            let picked = queue.pick().expect("somebody is ready");
            queue.charge(picked.bound);
            if step % 7 == 0 { queue.depart(picked.slot, Departure::Sleep) } else { queue.requeue() }
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
        let queued = queue().entities.iter().position(|entity| entity.place == Place::Queued).expect("one is queued");
        assert!(matches!(found(&|queue| queue.moment += 1), Err(FairViolation::Moment { .. })));
        assert_eq!(found(&|queue| queue.weight += 1), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.runnable_weight -= 1), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.classes.swap(0, 4)), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.extremes.0 = Cycles(1)), Err(FairViolation::Sums));
        assert_eq!(found(&|queue| queue.entities[queued].remainder = u16::MAX), Err(FairViolation::Entity { slot: queued as u32 }));
        assert!(matches!(found(&|queue| queue.entities[queued].v.0 += 1), Err(FairViolation::Misplaced { .. })));
        assert!(matches!(found(&|queue| queue.entities[queued].place = Place::Resting), Err(FairViolation::Misplaced { .. })));
        assert!(matches!(found(&|queue| queue.entities[running].place = Place::Resting), Err(FairViolation::Misplaced { .. })));
        assert!(matches!(found(&|queue| queue.running = None), Err(FairViolation::Misplaced { .. })));
        assert!(matches!(found(&|queue| core::mem::swap(&mut queue.ready, &mut queue.delayed)), Err(FairViolation::Misplaced { .. })));
        assert_eq!(found(&|queue| queue.delayed = Tree::new()), Err(FairViolation::LostNodes));
        for fault in 0..5 {
            let broken = found(&|queue| queue.ready.damage(&mut queue.arena, fault));
            assert!(matches!(broken, Err(FairViolation::Tree(_))), "fault {fault}: {broken:?}");
        }
    }
}
