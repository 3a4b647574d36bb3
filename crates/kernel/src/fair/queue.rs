//! The rules of the fair queue: placing, picking, charging, yielding, leaving, changing parameters
//! (cpu-authority D.5 and D.6).
//!
//! Law kept here (D-I2): with `V` the weighted average of the virtual runtimes of all competing
//! entities, the lags `w * (V - v)` sum to zero. The queue keeps `W = sum(w)` and `S = sum(w * (v -
//! origin))`, so `V = origin + floor(S / W)`. An entity is eligible if `S >= (v - origin) * W`,
//! without a division; since times are whole numbers this is `v <= V`, which searches use with `V`
//! computed once. Moving the origin changes no decision ([`FairQueue::rebase`]).
//!
//! A call that the phase forbids (placing a queued entity, charging while none runs) is a bug of
//! the lane and panics; no guest input reaches it.
//!
//! Elsewhere: search by deadline and eligibility (`tree`), plain data and `check` (`state`).

use super::entity::{
    Carried, Entity, FairSettings, Leave, Phase, Placement, SERVICE_UNITS, Share, VirtualTime,
    divide_floor, lag_limit, units,
};
use super::tree::{Arena, Tree};
use crate::room::Room;
use alloc::collections::TryReserveError;
use wavelock_abi::{Cycles, LatencyClass};

/// Delayed entities that one pick dequeues at most, so that it stays O(log n) when many become
/// eligible at once. The others wait for the next picks and gain nothing by it.
pub const REMOVALS_PER_PICK: usize = 8;

/// The most cycles that one charge counts; sixteen times the largest slice.
const CHARGE_LIMIT: Cycles = Cycles(1 << 36);

/// The origin moves when the running entity is this far from it, so that the weighted sum stays
/// small and divisions stay cheap.
const REBASE_DISTANCE: i64 = 1 << 32;

/// Trees that share the arena.
const TREES: usize = 2;

const CLASSES: usize = LatencyClass::ALL.len();

/// The EEVDF queue of one lane.
#[derive(Clone, Debug)]
pub struct FairQueue {
    pub(super) settings: FairSettings,
    /// Effective slice of each class.
    slices: [Cycles; CLASSES],
    /// Indexed by the lane's slot.
    pub(super) entities: Room<Entity>,
    pub(super) arena: Arena,
    /// Queued entities.
    pub(super) ready: Tree,
    /// Sleepers with negative lag.
    pub(super) delayed: Tree,
    /// The entity on the lane: competes, but is in no tree.
    pub(super) running: Option<u32>,
    /// The running entity keeps the lane while it is eligible and before this virtual runtime.
    pub(super) protected_until: VirtualTime,
    /// The reference of the weighted sum.
    pub(super) origin: VirtualTime,
    /// `S`: sum of `w * (v - origin)` over all competing entities.
    pub(super) weighted_sum: i128,
    /// `W`: sum of `w` over all competing entities. At most 2^32 * 65535, so it fits.
    pub(super) weight: i64,
    /// Competing entities of each class.
    pub(super) class_counts: [u32; CLASSES],
    /// The shortest and the longest slice competing; the base slice when the queue is empty.
    pub(super) slice_range: (Cycles, Cycles),
    /// The next arrival number.
    pub(super) arrivals: u64,
}

impl FairQueue {
    /// An empty queue. Allocates nothing.
    #[must_use]
    pub fn new(settings: FairSettings) -> Self {
        let normal = settings.slice(LatencyClass::Normal);
        Self {
            settings,
            slices: LatencyClass::ALL.map(|class| settings.slice(class)),
            entities: Room::new(),
            arena: Arena::new(),
            ready: Tree::new(),
            delayed: Tree::new(),
            running: None,
            protected_until: VirtualTime(0),
            origin: VirtualTime(0),
            weighted_sum: 0,
            weight: 0,
            class_counts: [0; CLASSES],
            slice_range: (normal, normal),
            arrivals: 0,
        }
    }

    /// Makes room for entities in slots `0..slots`, all of them competing. Nothing else allocates.
    /// Never shrinks.
    ///
    /// # Errors
    /// The host has not enough memory; the queue is unchanged but for unused room.
    pub fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        let more = (slots as usize).saturating_sub(self.entities.len());
        self.arena.reserve(slots as usize, TREES)?;
        self.entities.try_reserve(more)?;
        self.entities.fill_to(slots as usize, Entity::ABSENT);
        Ok(())
    }

    /// The entity on the lane.
    #[must_use]
    pub const fn running(&self) -> Option<u32> {
        self.running
    }

    // Joining and leaving.

    /// Creates a resting entity in `slot`: new ([`Carried::fresh`]) or from another lane. Place it
    /// as [`Placement::Initial`] if it is new, [`Placement::Migrate`] if it is ready,
    /// [`Placement::Wake`] when it wakes.
    pub fn adopt(&mut self, slot: u32, carried: Carried) {
        let Carried { share: Share { weight, class }, lag, request_left, remainder } = carried;
        let most = lag_limit(Cycles(FairSettings::SLICE_LIMIT.0 * 16), weight);
        let request = self.request_units(carried.share);
        let entity = &mut self.entities[slot as usize];
        assert!(entity.phase == Phase::Absent, "fair: slot {slot} already has an entity");
        *entity = Entity {
            v: VirtualTime(lag.clamp(-most, most)),
            deadline: VirtualTime(request_left.map_or(0, |left| left.clamp(1, most))),
            request,
            remainder: remainder.min(weight.get() - 1),
            weight,
            class,
            phase: Phase::Resting,
            ..Entity::ABSENT
        };
    }

    /// Removes an entity in any phase; returns what it carries to another lane.
    #[must_use]
    pub fn remove(&mut self, slot: u32) -> Carried {
        self.leave(slot, Leave::Move);
        let entity = &mut self.entities[slot as usize];
        entity.phase = Phase::Absent;
        Carried {
            share: entity.share(),
            lag: entity.v.0,
            request_left: entity.request_left(),
            remainder: entity.remainder,
        }
    }

    /// A resting entity joins the competition; [`Placement::Wake`] also cancels a delayed dequeue.
    /// Charge the running entity first: the placement depends on its virtual runtime.
    pub fn place(&mut self, slot: u32, placement: Placement) {
        let entity = self.entities[slot as usize];
        match entity.phase {
            Phase::Resting => {}
            Phase::Delayed if placement == Placement::Wake => {
                if self.virtual_time().since(entity.v) <= 0 {
                    // Still in debt: debt and request continue as if it had not slept.
                    self.unlink(slot);
                    self.enqueue(slot, Phase::Queued);
                    return;
                }
                // The others have more than caught up: the gain is clipped.
                self.make_resting(slot, 0, None);
            }
            phase => panic!("fair: slot {slot} is placed while {phase:?}"),
        }
        let now = self.virtual_time();
        let entity = &mut self.entities[slot as usize];
        let lag = if placement == Placement::Initial || self.weight == 0 {
            0
        } else {
            // Its own weight moves the average towards it; inflated by that, the lag after the
            // placement is the lag it kept.
            let weight = i128::from(self.weight + entity.factor());
            divide_floor(i128::from(entity.v.0) * weight, self.weight)
        };
        let request = match (placement, entity.request_left()) {
            (Placement::Initial, _) => entity.request / 2,
            (Placement::Migrate, Some(left)) => left,
            (Placement::Wake | Placement::Migrate, _) => entity.request,
        };
        entity.v = now.plus(-lag);
        entity.deadline = entity.v.plus(request);
        self.count_in(slot);
        self.enqueue(slot, Phase::Queued);
    }

    /// An entity leaves the competition. No effect on a resting one, except [`Leave::Exit`].
    pub fn leave(&mut self, slot: u32, leave: Leave) {
        let entity = self.entities[slot as usize];
        match (entity.phase, leave) {
            (Phase::Absent, _) => panic!("fair: slot {slot} leaves and has no entity"),
            (Phase::Resting, _) | (Phase::Delayed, Leave::Sleep) => {}
            // Asleep already: it keeps the debt but no gain.
            (Phase::Delayed, _) => self.make_resting(slot, self.kept_lag(&entity).min(0), None),
            (_, Leave::Sleep) if !self.is_eligible(entity.v) => {
                self.unlink(slot);
                self.enqueue(slot, Phase::Delayed);
            }
            _ => {
                let left = entity.deadline.since(entity.v);
                let left = (leave == Leave::Move).then_some(left);
                self.make_resting(slot, self.kept_lag(&entity), left);
            }
        }
        if leave == Leave::Exit {
            self.entities[slot as usize].phase = Phase::Absent;
        }
    }

    // One step.

    /// Dispatches the earliest virtual deadline among the eligible; returns its slot, or `None` if
    /// none is queued. No entity may be running. [`Self::bound`] is the length of its slice.
    ///
    /// A delayed sleeper that would be picked is no longer in debt: it is dequeued instead (at most
    /// [`REMOVALS_PER_PICK`] per pick).
    pub fn pick(&mut self) -> Option<u32> {
        assert!(self.running.is_none(), "fair: a pick while slot {:?} runs", self.running);
        if !self.delayed.is_empty() {
            self.dequeue_caught_up();
        }
        let now = self.virtual_time();
        let slot = self.ready.take_first(&mut self.arena, now).or_else(|| {
            // More sleepers than one pick dequeues hold the average below every queued entity: the
            // entity nearest to it runs.
            let min_v = self.ready.min_v(&self.arena)?;
            self.ready.take_first(&mut self.arena, min_v)
        })?;
        self.dispatch(slot);
        Some(slot)
    }

    /// Direct handoff: dispatches `slot` for at most `rest` if it is queued and eligible; returns
    /// whether it did. Otherwise nothing changes and a normal pick decides.
    pub fn hand_to(&mut self, slot: u32, rest: Cycles) -> bool {
        assert!(self.running.is_none(), "fair: a handoff while slot {:?} runs", self.running);
        let entity = self.entities[slot as usize];
        if entity.phase != Phase::Queued || !self.is_eligible(entity.v) || rest == Cycles::ZERO {
            return false;
        }
        self.unlink(slot);
        self.dispatch(slot);
        let rest = units(rest.min(self.slices[entity.class as usize]), entity.weight).max(1);
        self.protected_until = self.protected_until.earlier(entity.v.plus(rest));
        true
    }

    /// Charges the running entity; a request that is used up is renewed. Called at the end of a
    /// slice, and within it before another entity is placed.
    pub fn charge(&mut self, cycles: Cycles) {
        let slot = self.running.expect("fair: a charge while nothing runs");
        let entity = &mut self.entities[slot as usize];
        let weight = u64::from(entity.weight.get());
        let service = cycles.0.min(CHARGE_LIMIT.0) * SERVICE_UNITS + u64::from(entity.remainder);
        let advance = service / weight;
        entity.remainder = (service % weight) as u16;
        entity.v = entity.v.plus(advance as i64);
        if !entity.v.before(entity.deadline) {
            entity.deadline = entity.v.plus(entity.request);
        }
        let distance = entity.v.since(self.origin);
        self.weighted_sum += i128::from(advance * weight);
        if distance > REBASE_DISTANCE {
            self.rebase();
        }
    }

    /// Cycles the running entity may run before the next decision; zero when one is due now.
    #[must_use]
    pub fn bound(&self) -> Cycles {
        let Some(slot) = self.running else { return Cycles::ZERO };
        let entity = &self.entities[slot as usize];
        let left = self.protected_until.since(entity.v);
        if left <= 0 {
            return Cycles::ZERO;
        }
        let service = left as u64 * u64::from(entity.weight.get()) - u64::from(entity.remainder);
        Cycles(service.div_ceil(SERVICE_UNITS))
    }

    /// Requeues the running entity: its slice ended. It keeps its deadline unless its request was
    /// used up.
    pub fn requeue(&mut self) {
        let slot = self.running.take().expect("fair: a requeue while nothing runs");
        self.enqueue(slot, Phase::Queued);
    }

    /// Requeues the running entity after a yield: if it is eligible it forfeits the remainder of
    /// its request.
    pub fn yield_running(&mut self) {
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = &self.entities[slot as usize];
        if self.is_eligible(entity.v) {
            let entity = &mut self.entities[slot as usize];
            let forfeited = entity.deadline.since(entity.v);
            self.weighted_sum += i128::from(forfeited) * i128::from(entity.factor());
            entity.v = entity.deadline;
            entity.deadline = entity.deadline.plus(entity.request);
        }
        self.requeue();
    }

    /// Whether a pick now would preempt the running entity; the test at a wave's or frame's end
    /// (semantics 25). An idle entity never preempts another class.
    #[must_use]
    pub fn prefers_another(&self) -> bool {
        let Some(slot) = self.running else { return false };
        let current = &self.entities[slot as usize];
        let is_eligible = self.is_eligible(current.v);
        if is_eligible && current.v.before(self.protected_until) {
            return false;
        }
        let is_idle = |slot: u32| self.entities[slot as usize].class == LatencyClass::Idle;
        self.ready.first(&self.arena, self.virtual_time()).is_some_and(|best| {
            !(is_eligible && current.key().before(best.key))
                && (!is_idle(best.slot) || is_idle(slot))
        })
    }

    // Parameters.

    /// Changes weight and class at once. Weight times lag is unchanged for every entity, so no
    /// service is created or lost. A new class starts a new request; a new weight keeps the
    /// progress of the current one. A queued entity is requeued behind others with the same
    /// deadline; a running one keeps running and gains no protection.
    pub fn set_share(&mut self, slot: u32, share: Share) {
        let old = self.entities[slot as usize];
        let request = self.request_units(share);
        let rescale = |units: i64| {
            let service = i128::from(units) * i128::from(old.factor());
            divide_floor(service, i64::from(share.weight.get()))
        };
        let remainder =
            u32::from(old.remainder) * u32::from(share.weight.get()) / u32::from(old.weight.get());
        let mut new = Entity {
            weight: share.weight,
            class: share.class,
            request,
            remainder: remainder as u16,
            ..old
        };
        let keeps_request = share.class == old.class;
        match old.phase {
            Phase::Absent => panic!("fair: slot {slot} has no entity to change"),
            Phase::Resting => {
                let left = old.request_left().filter(|_| keeps_request);
                new.v = VirtualTime(rescale(old.v.0));
                new.deadline = VirtualTime(left.map_or(0, |left| rescale(left).max(1)));
                self.entities[slot as usize] = new;
            }
            Phase::Queued | Phase::Delayed | Phase::Running => {
                let now = self.virtual_time();
                let left = rescale(old.deadline.since(old.v)).max(1);
                new.v = now.plus(-rescale(now.since(old.v)));
                new.deadline = new.v.plus(if keeps_request { left } else { request });
                self.withdraw(slot);
                self.entities[slot as usize] = new;
                self.count_in(slot);
                if old.phase != Phase::Running {
                    return self.enqueue(slot, old.phase);
                }
                let protection = rescale(self.protected_until.since(old.v));
                self.running = Some(slot);
                self.protect(slot);
                self.protected_until = self.protected_until.earlier(new.v.plus(protection));
            }
        }
    }

    // Reading.

    /// Weight and class of an entity.
    #[must_use]
    pub fn share(&self, slot: u32) -> Option<Share> {
        self.entity(slot, Phase::Resting).map(Entity::share)
    }

    /// Whether a competing entity received no more than its share; `None` if it does not compete.
    #[must_use]
    pub fn eligible(&self, slot: u32) -> Option<bool> {
        self.entity(slot, Phase::Queued).map(|entity| self.is_eligible(entity.v))
    }

    /// Service owed to an entity, as in [`Carried::lag`]: `V - v` while it competes, else the kept
    /// lag.
    #[must_use]
    pub fn lag(&self, slot: u32) -> Option<i64> {
        let entity = self.entity(slot, Phase::Resting)?;
        Some(match entity.phase {
            Phase::Resting => entity.v.0,
            _ => self.virtual_time().since(entity.v),
        })
    }

    /// Units from the queue's virtual time to a competing entity's deadline.
    #[must_use]
    pub fn deadline(&self, slot: u32) -> Option<i64> {
        let entity = self.entity(slot, Phase::Queued)?;
        Some(entity.deadline.since(self.virtual_time()))
    }

    /// The arrival number of a competing entity.
    #[must_use]
    pub fn arrival(&self, slot: u32) -> Option<u64> {
        self.entity(slot, Phase::Queued).map(|entity| entity.arrival)
    }

    /// Calls `visit` with each queued slot by (deadline, arrival) until it returns false.
    pub fn visit_queued(&self, mut visit: impl FnMut(u32) -> bool) {
        self.ready.visit(&self.arena, &mut |entry| visit(entry.slot));
    }

    /// Moves the origin to the current virtual time, which keeps numbers small and changes no
    /// decision. Called at every wave's end, and by the queue if the running entity is far ahead.
    pub fn rebase(&mut self) {
        if self.weight > 0 {
            let advance = divide_floor(self.weighted_sum, self.weight);
            self.origin = self.origin.plus(advance);
            self.weighted_sum -= i128::from(advance) * i128::from(self.weight);
        }
    }

    // Internals.

    /// The entity in `slot` if its phase is `first` or a later one of [`Phase`].
    fn entity(&self, slot: u32, first: Phase) -> Option<&Entity> {
        self.entities.get(slot as usize).filter(|entity| entity.phase as u8 >= first as u8)
    }

    /// Units of one request.
    pub(super) fn request_units(&self, share: Share) -> i64 {
        units(self.slices[share.class as usize], share.weight)
    }

    /// `V`, rounded down.
    pub(super) fn virtual_time(&self) -> VirtualTime {
        if self.weight == 0 {
            self.origin
        } else {
            self.origin.plus(divide_floor(self.weighted_sum, self.weight))
        }
    }

    /// `v <= V` without a division.
    #[inline]
    fn is_eligible(&self, v: VirtualTime) -> bool {
        self.weighted_sum >= i128::from(v.since(self.origin)) * i128::from(self.weight)
    }

    /// The shortest and the longest slice competing, from the counts.
    pub(super) fn recomputed_slice_range(&self) -> (Cycles, Cycles) {
        let classes = self.slices.iter().zip(self.class_counts);
        let present = classes.filter(|(_, count)| *count > 0).map(|(&slice, _)| slice);
        let normal = self.slices[LatencyClass::Normal as usize];
        (present.clone().min().unwrap_or(normal), present.max().unwrap_or(normal))
    }

    /// The lag an entity leaves with.
    fn kept_lag(&self, entity: &Entity) -> i64 {
        let limit = lag_limit(self.slice_range.1, entity.weight);
        self.virtual_time().since(entity.v).clamp(-limit, limit)
    }

    /// Adds an entity to the sums over all competing ones.
    pub(super) fn count_in(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        self.weight += entity.factor();
        self.weighted_sum += entity.moment(self.origin);
        let count = &mut self.class_counts[entity.class as usize];
        *count += 1;
        if *count == 1 {
            self.slice_range = self.recomputed_slice_range();
        }
    }

    /// Unlinks a competing entity and subtracts it from every sum. Its fields stay.
    fn withdraw(&mut self, slot: u32) {
        self.unlink(slot);
        let entity = &self.entities[slot as usize];
        self.weight -= entity.factor();
        self.weighted_sum -= entity.moment(self.origin);
        if self.weight == 0 {
            // Virtual time stops while no entity competes.
            self.origin = entity.v;
        }
        let count = &mut self.class_counts[entity.class as usize];
        *count -= 1;
        if *count == 0 {
            self.slice_range = self.recomputed_slice_range();
        }
    }

    /// A competing entity becomes resting with this lag and remainder of its request.
    fn make_resting(&mut self, slot: u32, lag: i64, request_left: Option<i64>) {
        self.withdraw(slot);
        let entity = &mut self.entities[slot as usize];
        entity.phase = Phase::Resting;
        entity.v = VirtualTime(lag);
        entity.deadline = VirtualTime(request_left.unwrap_or(0));
    }

    /// Adds a competing entity that is in no tree to the tree of `phase` (`Queued` or `Delayed`),
    /// behind entries with the same deadline.
    #[inline]
    fn enqueue(&mut self, slot: u32, phase: Phase) {
        let entity = &mut self.entities[slot as usize];
        entity.phase = phase;
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.link(slot);
    }

    /// Inserts a competing entity into the tree of its phase, or makes it the running one.
    #[inline]
    pub(super) fn link(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        let tree = match entity.phase {
            Phase::Queued => &mut self.ready,
            Phase::Delayed => &mut self.delayed,
            Phase::Running => return self.running = Some(slot),
            phase => panic!("fair: slot {slot} is linked while {phase:?}"),
        };
        tree.insert(&mut self.arena, entity.entry(slot));
    }

    /// The reverse of [`Self::link`].
    #[inline]
    fn unlink(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        let tree = match entity.phase {
            Phase::Queued => &mut self.ready,
            Phase::Delayed => &mut self.delayed,
            Phase::Running => return self.running = None,
            phase => panic!("fair: slot {slot} is unlinked while {phase:?}"),
        };
        tree.remove(&mut self.arena, entity.key());
    }

    /// Dequeues the delayed sleepers that a pick would choose.
    fn dequeue_caught_up(&mut self) {
        for _ in 0..REMOVALS_PER_PICK {
            let now = self.virtual_time();
            let Some(sleeper) = self.delayed.first(&self.arena, now) else { return };
            let best = self.ready.first(&self.arena, now);
            if best.is_some_and(|best| best.key.before(sleeper.key)) {
                return;
            }
            self.make_resting(sleeper.slot, 0, None);
        }
    }

    /// Makes an unlinked entity the running one.
    #[inline]
    fn dispatch(&mut self, slot: u32) {
        self.entities[slot as usize].phase = Phase::Running;
        self.running = Some(slot);
        self.protect(slot);
    }

    /// Run to parity: protection for the shortest slice competing, and never beyond the deadline.
    fn protect(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        let least = self.slice_range.0;
        let slice = if least < self.slices[entity.class as usize] {
            units(least, entity.weight)
        } else {
            entity.request
        };
        self.protected_until = entity.v.plus(slice).earlier(entity.deadline);
    }
}
