//! The rules of the fair queue: placing, picking, charging, yielding, leaving, changing parameters
//! (cpu-authority D.5 and D.6).
//!
//! Law kept here (D-I2): with `V` the weighted average of the virtual runtimes of all competing
//! entities, the lags `w * (V - v)` sum to zero. The queue keeps `W = sum(w)` and `S = sum(w * (v -
//! origin))`, so `V = origin + floor(S / W)`. An entity is eligible when `S >= (v - origin) * W`,
//! without a division; since times are whole numbers that is the same as `v <= V`, which a search
//! uses with `V` divided out once. Moving the origin changes no decision ([`FairQueue::rebase`]).
//!
//! A wrong call (placing what is queued, charging when nothing runs) is a bug of the lane and
//! panics; no guest input reaches it.

use super::entity::{
    Carried, Departure, Entity, FairSettings, Overload, Picked, Place, Placement, SERVICE_UNITS,
    Share, VirtualTime, divide_floor, lag_limit, units,
};
use super::tree::{Arena, Tree};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, LatencyClass, Weight};

/// Delayed entities that one pick dequeues at most. A pick stays O(log n) when many sleepers become
/// eligible at once; the rest wait for the next picks, without gaining anything.
pub const REMOVALS_PER_PICK: usize = 8;

/// The most cycles one charge moves virtual time by; more than sixteen times the largest slice.
pub const CHARGE_LIMIT: Cycles = Cycles(1 << 36);

/// The origin follows when the running entity is this far from it, so that the weighted sum stays
/// small and divisions cheap.
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
    pub(super) entities: Vec<Entity>,
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
    /// Sum of `w` over the delayed ones.
    pub(super) delayed_weight: i64,
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
            entities: Vec::new(),
            arena: Arena::new(),
            ready: Tree::new(),
            delayed: Tree::new(),
            running: None,
            protected_until: VirtualTime(0),
            origin: VirtualTime(0),
            weighted_sum: 0,
            weight: 0,
            delayed_weight: 0,
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
        self.entities.resize(self.entities.len() + more, Entity::ABSENT);
        Ok(())
    }

    /// Queued entities, without the running one and the delayed.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.ready.len()
    }

    /// Sleepers whose departure is delayed.
    #[must_use]
    pub const fn delayed(&self) -> u32 {
        self.delayed.len()
    }

    /// The entity on the lane.
    #[must_use]
    pub const fn running(&self) -> Option<u32> {
        self.running
    }

    /// Runnable weight compared with what a round of the settings serves.
    #[must_use]
    pub const fn overload(&self) -> Overload {
        let requests = self.settings.round().0 / self.settings.base_slice().0;
        Overload {
            runnable_weight: (self.weight - self.delayed_weight) as u64,
            capacity_weight: requests.saturating_mul(Weight::NEUTRAL.get() as u64),
        }
    }

    // Joining and leaving.

    /// An entity in `slot`, resting: new ([`Carried::fresh`]), from another lane, or from before a
    /// policy switch. Follow with [`Placement::Initial`] if it is new, [`Placement::Migrate`] if it
    /// is ready, [`Placement::Wake`] when it wakes.
    pub fn adopt(&mut self, slot: u32, carried: Carried) {
        let Carried { share: Share { weight, class }, lag, request_left, remainder } = carried;
        let most = lag_limit(Cycles(FairSettings::SLICE_LIMIT.0 * 16), weight);
        let request = self.request_units(carried.share);
        let entity = &mut self.entities[slot as usize];
        assert!(entity.place == Place::Absent, "fair: slot {slot} already has an entity");
        *entity = Entity {
            v: VirtualTime(lag.clamp(-most, most)),
            deadline: VirtualTime(request_left.map_or(0, |left| left.clamp(1, most))),
            request,
            remainder: remainder.min(weight.get() - 1),
            weight,
            class,
            place: Place::Resting,
            ..Entity::ABSENT
        };
    }

    /// Removes an entity in any state; returns what it takes along to another lane. The slot is
    /// free after.
    #[must_use]
    pub fn release(&mut self, slot: u32) -> Carried {
        self.depart(slot, Departure::Move);
        let entity = &mut self.entities[slot as usize];
        entity.place = Place::Absent;
        Carried {
            share: entity.share(),
            lag: entity.v.0,
            request_left: entity.request_left(),
            remainder: entity.remainder,
        }
    }

    /// A resting entity joins the competition; [`Placement::Wake`] also ends a delayed departure.
    /// Charge the running entity first: the placement depends on its virtual runtime.
    pub fn place(&mut self, slot: u32, placement: Placement) {
        let entity = self.entities[slot as usize];
        match entity.place {
            Place::Resting => {}
            Place::Delayed if placement == Placement::Wake => {
                if self.virtual_time().since(entity.v) <= 0 {
                    // Its debt and its request continue as if it had not slept.
                    self.unlink(slot);
                    self.enqueue(slot, Place::Queued);
                    return;
                }
                // The others have more than caught up: the gain is clipped.
                self.rest(slot, 0, None);
            }
            place => panic!("fair: slot {slot} is placed while {place:?}"),
        }
        let now = self.virtual_time();
        let entity = &mut self.entities[slot as usize];
        let lag = if placement == Placement::Initial || self.weight == 0 {
            0
        } else {
            // Its own weight will drag the average towards it; the inflation makes the lag after
            // that the lag it came with.
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
        self.enqueue(slot, Place::Queued);
    }

    /// An entity leaves the competition. A resting one stays as it is, unless it exits.
    pub fn depart(&mut self, slot: u32, departure: Departure) {
        let entity = self.entities[slot as usize];
        match (entity.place, departure) {
            (Place::Absent, _) => panic!("fair: slot {slot} departs and has no entity"),
            (Place::Resting, _) | (Place::Delayed, Departure::Sleep) => {}
            // Asleep already: it keeps the debt but no gain.
            (Place::Delayed, _) => self.rest(slot, self.kept_lag(&entity).min(0), None),
            (_, Departure::Sleep) if !self.is_eligible(entity.v) => {
                self.unlink(slot);
                self.enqueue(slot, Place::Delayed);
            }
            _ => {
                let left = entity.deadline.since(entity.v);
                let left = (departure == Departure::Move).then_some(left);
                self.rest(slot, self.kept_lag(&entity), left);
            }
        }
        if departure == Departure::Exit {
            self.entities[slot as usize].place = Place::Absent;
        }
    }

    // One step.

    /// Picks the earliest virtual deadline among the eligible. `None` when nothing is queued. The
    /// lane must be free.
    ///
    /// A delayed sleeper that would be picked has paid its debt: it is dequeued instead (at most
    /// [`REMOVALS_PER_PICK`] per pick).
    pub fn pick(&mut self) -> Option<Picked> {
        assert!(self.running.is_none(), "fair: a pick while slot {:?} runs", self.running);
        if !self.delayed.is_empty() {
            self.dequeue_paid_sleepers();
        }
        let now = self.virtual_time();
        let slot = self.ready.take_first(&mut self.arena, now).or_else(|| {
            // Only when paid sleepers are left over: they hold the average below every queued
            // entity. The one nearest to it is picked.
            let least = self.ready.least_v(&self.arena)?;
            self.ready.take_first(&mut self.arena, least)
        })?;
        self.dispatch(slot);
        Some(Picked { slot, bound: self.bound() })
    }

    /// Direct handoff: `slot` runs next for at most `rest` if it is queued and eligible; else
    /// nothing changes and a normal pick decides.
    pub fn hand_to(&mut self, slot: u32, rest: Cycles) -> Option<Picked> {
        assert!(self.running.is_none(), "fair: a handoff while slot {:?} runs", self.running);
        let entity = self.entities[slot as usize];
        if entity.place != Place::Queued || !self.is_eligible(entity.v) || rest == Cycles::ZERO {
            return None;
        }
        self.unlink(slot);
        self.dispatch(slot);
        let rest = units(rest.min(self.slices[entity.class as usize]), entity.weight).max(1);
        self.protected_until = self.protected_until.earlier(entity.v.plus(rest));
        Some(Picked { slot, bound: self.bound() })
    }

    /// Charges the running entity. A request that is used up is renewed. May be called several
    /// times in a slice: at every point where another entity is placed, and at its end.
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
        self.enqueue(slot, Place::Queued);
    }

    /// The running entity yields: if it is eligible it gives up the rest of its request; then it is
    /// requeued.
    pub fn give_way(&mut self) {
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = &self.entities[slot as usize];
        if self.is_eligible(entity.v) {
            let entity = &mut self.entities[slot as usize];
            let given = entity.deadline.since(entity.v);
            self.weighted_sum += i128::from(given) * i128::from(entity.factor());
            entity.v = entity.deadline;
            entity.deadline = entity.deadline.plus(entity.request);
        }
        self.requeue();
    }

    // Preemption.

    /// Whether `waker`, just placed, should preempt the running entity at its next safepoint.
    ///
    /// A waker with a shorter slice (or any, against an idle one) ignores the running entity's
    /// protection; if a pick would still not choose it, it only shortens that protection, so read
    /// [`Self::bound`] again. An idle waker never preempts.
    #[must_use]
    pub fn wake_preempts(&mut self, waker: u32) -> bool {
        let Some(slot) = self.running else { return false };
        let (current, waking) = (self.entities[slot as usize], self.entities[waker as usize]);
        if waking.class == LatencyClass::Idle || waking.place != Place::Queued {
            return false;
        }
        let shorter = self.slices[waking.class as usize] < self.slices[current.class as usize]
            || current.class == LatencyClass::Idle;
        if self.preferred(!shorter) == Some(waker) {
            self.protected_until = current.v;
            return true;
        }
        if shorter {
            let least = current.v.plus(units(self.slice_range.0, current.weight));
            self.protected_until = self.protected_until.earlier(least);
        }
        false
    }

    /// Whether a pick now would preempt the running entity; the test at a wave's or frame's end
    /// (semantics 25). An idle entity never preempts another class.
    #[must_use]
    pub fn prefers_another(&self) -> bool {
        let class = |slot: u32| self.entities[slot as usize].class;
        match (self.running, self.preferred(true)) {
            (Some(slot), Some(best)) if best != slot => {
                class(best) != LatencyClass::Idle || class(slot) == LatencyClass::Idle
            }
            _ => false,
        }
    }

    // Parameters.

    /// Changes weight and class at once. The lag is rescaled so that weight times lag is unchanged,
    /// for this entity and all others: no service is created or lost. A new class starts a new
    /// request; a new weight keeps the progress of the current one. A queued entity goes behind
    /// others with the same deadline; a running one stays on the lane, and gains no protection.
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
        match old.place {
            Place::Absent => panic!("fair: slot {slot} has no entity to change"),
            Place::Resting => {
                let left = old.request_left().filter(|_| keeps_request);
                new.v = VirtualTime(rescale(old.v.0));
                new.deadline = VirtualTime(left.map_or(0, |left| rescale(left).max(1)));
                self.entities[slot as usize] = new;
            }
            Place::Queued | Place::Delayed | Place::Running => {
                let now = self.virtual_time();
                let left = rescale(old.deadline.since(old.v)).max(1);
                new.v = now.plus(-rescale(now.since(old.v)));
                new.deadline = new.v.plus(if keeps_request { left } else { request });
                self.leave(slot);
                self.entities[slot as usize] = new;
                self.count_in(slot);
                if old.place != Place::Running {
                    return self.enqueue(slot, old.place);
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
        self.entity(slot, Place::Resting).map(Entity::share)
    }

    /// Whether a competing entity received no more than its share so far. `None` when it does not
    /// compete.
    #[must_use]
    pub fn eligible(&self, slot: u32) -> Option<bool> {
        self.entity(slot, Place::Queued).map(|entity| self.is_eligible(entity.v))
    }

    /// Service owed to an entity in units of virtual time (1024 are one cycle at the neutral
    /// weight): `V - v` while it competes, the kept lag while it rests.
    #[must_use]
    pub fn lag(&self, slot: u32) -> Option<i64> {
        let entity = self.entity(slot, Place::Resting)?;
        Some(match entity.place {
            Place::Resting => entity.v.0,
            _ => self.virtual_time().since(entity.v),
        })
    }

    /// Units from the queue's virtual time to a competing entity's deadline: with the arrival, the
    /// key of a decision.
    #[must_use]
    pub fn deadline(&self, slot: u32) -> Option<i64> {
        let entity = self.entity(slot, Place::Queued)?;
        Some(entity.deadline.since(self.virtual_time()))
    }

    /// The arrival number of a competing entity.
    #[must_use]
    pub fn arrival(&self, slot: u32) -> Option<u64> {
        self.entity(slot, Place::Queued).map(|entity| entity.arrival)
    }

    /// Calls `visit` with each queued slot by (deadline, arrival) until it returns false.
    pub fn visit_queued(&self, mut visit: impl FnMut(u32) -> bool) {
        self.ready.visit(&self.arena, &mut |entry| visit(entry.slot));
    }

    /// Moves the origin to the present virtual time. Changes no decision; keeps numbers small.
    /// Called at every wave's end, and by the queue itself when the running entity is far ahead.
    pub fn rebase(&mut self) {
        if self.weight > 0 {
            let advance = divide_floor(self.weighted_sum, self.weight);
            self.origin = self.origin.plus(advance);
            self.weighted_sum -= i128::from(advance) * i128::from(self.weight);
        }
    }

    // Inside.

    /// The entity in `slot` if its state is `least` or a later one of [`Place`].
    fn entity(&self, slot: u32, least: Place) -> Option<&Entity> {
        self.entities.get(slot as usize).filter(|entity| entity.place as u8 >= least as u8)
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
        let present = || {
            self.slices
                .iter()
                .zip(self.class_counts)
                .filter(|(_, count)| *count > 0)
                .map(|(&slice, _)| slice)
        };
        let normal = self.slices[LatencyClass::Normal as usize];
        (present().min().unwrap_or(normal), present().max().unwrap_or(normal))
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
        self.weighted_sum += i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
        let count = &mut self.class_counts[entity.class as usize];
        *count += 1;
        if *count == 1 {
            self.slice_range = self.recomputed_slice_range();
        }
    }

    /// Removes a competing entity from its tree or the lane, and from every sum. Its fields stay.
    fn leave(&mut self, slot: u32) {
        self.unlink(slot);
        let entity = &self.entities[slot as usize];
        self.weight -= entity.factor();
        self.weighted_sum -= i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
        if self.weight == 0 {
            // Virtual time stops while nothing competes.
            self.origin = entity.v;
        }
        let count = &mut self.class_counts[entity.class as usize];
        *count -= 1;
        if *count == 0 {
            self.slice_range = self.recomputed_slice_range();
        }
    }

    /// A competing entity leaves and rests with this lag and rest of its request.
    fn rest(&mut self, slot: u32, lag: i64, request_left: Option<i64>) {
        self.leave(slot);
        let entity = &mut self.entities[slot as usize];
        entity.place = Place::Resting;
        entity.v = VirtualTime(lag);
        entity.deadline = VirtualTime(request_left.unwrap_or(0));
    }

    /// Queues a competing entity that is in no tree, as `place` says: `Queued` or `Delayed`. It
    /// goes behind those with the same deadline.
    #[inline]
    fn enqueue(&mut self, slot: u32, place: Place) {
        let entity = &mut self.entities[slot as usize];
        entity.place = place;
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.link(slot);
    }

    /// Inserts a competing entity into the tree of its place, or puts it on the lane.
    #[inline]
    pub(super) fn link(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        match entity.place {
            Place::Queued => self.ready.insert(&mut self.arena, entity.entry(slot)),
            Place::Delayed => {
                self.delayed_weight += entity.factor();
                self.delayed.insert(&mut self.arena, entity.entry(slot));
            }
            Place::Running => self.running = Some(slot),
            place => panic!("fair: slot {slot} is linked while {place:?}"),
        }
    }

    /// The reverse of [`Self::link`].
    #[inline]
    fn unlink(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        let tree = match entity.place {
            Place::Queued => &mut self.ready,
            Place::Delayed => {
                self.delayed_weight -= entity.factor();
                &mut self.delayed
            }
            Place::Running => {
                self.running = None;
                return;
            }
            place => panic!("fair: slot {slot} is unlinked while {place:?}"),
        };
        tree.remove(&mut self.arena, entity.key());
    }

    fn dequeue_paid_sleepers(&mut self) {
        for _ in 0..REMOVALS_PER_PICK {
            let now = self.virtual_time();
            let Some(sleeper) = self.delayed.first(&self.arena, now) else { return };
            let best = self.ready.first(&self.arena, now);
            if best.is_some_and(|best| best.key.before(sleeper.key)) {
                return;
            }
            self.rest(sleeper.slot, 0, None);
        }
    }

    /// Puts an entity that was just unlinked on the lane.
    #[inline]
    fn dispatch(&mut self, slot: u32) {
        self.entities[slot as usize].place = Place::Running;
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

    /// The slot that a pick would choose, with the running entity among the candidates.
    fn preferred(&self, protect: bool) -> Option<u32> {
        let slot = self.running?;
        let current = &self.entities[slot as usize];
        let stays = self.is_eligible(current.v);
        if stays && protect && current.v.before(self.protected_until) {
            return Some(slot);
        }
        match self.ready.first(&self.arena, self.virtual_time()) {
            Some(best) if !(stays && current.key().before(best.key)) => Some(best.slot),
            _ => Some(slot),
        }
    }
}
