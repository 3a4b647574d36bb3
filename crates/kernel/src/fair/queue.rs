//! The rules of the fair queue: placing, picking, charging, yielding, leaving, changing parameters (cpu-authority D.5 and D.6).
//!
//! Law kept here (D-I2): with `V` the average virtual runtime of everyone competing, weighted, the lags `w * (V - v)` sum to zero. The queue
//! keeps `W = sum(w)` and the moment `sum(w * (v - origin))`, so `V = origin + floor(moment / W)`. An entity is eligible when
//! `moment >= (v - origin) * W`, without a division; since times are whole numbers that is the same as `v <= V`, which a search uses with `V`
//! divided out once. Moving the origin changes no decision ([`FairQueue::rebase`]).
//!
//! A wrong call (placing what is queued, charging when nothing runs) is a bug of the lane and panics; no guest input reaches it.

use super::entity::{
    Carried, Departure, Entity, FairSettings, Overload, Picked, Place, Placement, SERVICE_UNITS, Share, VirtualTime, divide_floor,
    lag_limit, units,
};
use super::tree::{Arena, Entry, Key, Tree};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, LatencyClass};

/// Delayed entities one pick really takes out at most. A pick stays O(log n) when a crowd of sleepers becomes eligible at once; the rest
/// wait for the next picks, without gaining anything.
pub const REMOVALS_PER_PICK: usize = 8;

/// The most cycles one charge moves virtual time by; more than sixteen times the largest slice.
pub const CHARGE_LIMIT: Cycles = Cycles(1 << 36);

/// The origin follows when the running entity is this far from it, so that moments stay small and divisions cheap.
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
    /// Sleepers that owe service.
    pub(super) delayed: Tree,
    /// The entity on the lane: competes, but is in no tree.
    pub(super) running: Option<u32>,
    /// Until here the running entity keeps the lane while it is eligible.
    pub(super) protected_until: VirtualTime,
    /// The reference of the moment.
    pub(super) origin: VirtualTime,
    /// Sum of `w * (v - origin)` over everyone competing.
    pub(super) moment: i128,
    /// Sum of `w` over everyone competing. At most 2^32 * 65535, so it fits.
    pub(super) weight: i64,
    /// Sum of `w` over the queued and the running.
    pub(super) runnable_weight: u64,
    /// How many of each class compete.
    pub(super) classes: [u32; CLASSES],
    /// The least and the largest slice competing; the base slice when nobody does.
    pub(super) extremes: (Cycles, Cycles),
    /// The next arrival number.
    pub(super) arrivals: u64,
}

impl FairQueue {
    /// An empty queue. Allocates nothing.
    #[must_use]
    pub fn new(settings: FairSettings) -> Self {
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
            moment: 0,
            weight: 0,
            runnable_weight: 0,
            classes: [0; CLASSES],
            extremes: (settings.slice(LatencyClass::Normal), settings.slice(LatencyClass::Normal)),
            arrivals: 0,
        }
    }

    /// Makes room for entities in slots `0..slots`, all of them competing. Nothing else allocates. Never shrinks.
    ///
    /// # Errors
    /// The host has not enough memory; the queue is unchanged but for unused room.
    pub fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        let slots = slots as usize;
        if slots <= self.entities.len() {
            return Ok(());
        }
        self.arena.reserve(slots, TREES)?;
        self.entities.try_reserve(slots - self.entities.len())?;
        self.entities.resize(slots, Entity::ABSENT);
        Ok(())
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &FairSettings {
        &self.settings
    }

    /// How many entities are queued: without the running one and the delayed.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.ready.len()
    }

    /// How many sleepers still pay off a debt.
    #[must_use]
    pub const fn delayed(&self) -> u32 {
        self.delayed.len()
    }

    /// The entity on the lane.
    #[must_use]
    pub const fn running(&self) -> Option<u32> {
        self.running
    }

    /// What is asked of the lane, compared with what a round is long enough for.
    #[must_use]
    pub const fn overload(&self) -> Overload {
        Overload { runnable_weight: self.runnable_weight, capacity_weight: self.settings.capacity_weight() }
    }

    // Entities come and go.

    /// A new entity in `slot`, resting, with no lag. Follow with [`Placement::Initial`].
    pub fn admit(&mut self, slot: u32, share: Share) {
        self.adopt(slot, Carried::fresh(share));
    }

    /// An entity from another lane (or from before a policy switch) in `slot`, resting. Follow with [`Placement::Migrate`] if it is
    /// ready, with [`Placement::Wake`] when it wakes.
    pub fn adopt(&mut self, slot: u32, carried: Carried) {
        let Carried { share, lag, request_left, remainder } = carried;
        let request = self.request_units(share);
        let most = lag_limit(Cycles(FairSettings::SLICE_LIMIT.0 * 16), share.weight);
        let entity = &mut self.entities[slot as usize];
        assert!(entity.place == Place::Absent, "fair: slot {slot} already has an entity");
        *entity = Entity {
            v: VirtualTime(lag.clamp(-most, most)),
            deadline: VirtualTime(request_left.unwrap_or(0).clamp(1, most)),
            request,
            arrival: 0,
            remainder: remainder.min(share.weight.get() - 1),
            weight: share.weight,
            class: share.class,
            place: Place::Resting,
            mid_request: request_left.is_some(),
        };
    }

    /// Takes an entity away, wherever it is, with what it takes along to another lane. The slot is free after.
    #[must_use]
    pub fn release(&mut self, slot: u32) -> Carried {
        self.depart(slot, Departure::Move);
        let entity = &mut self.entities[slot as usize];
        entity.place = Place::Absent;
        Carried {
            share: Share { weight: entity.weight, class: entity.class },
            lag: entity.v.0,
            request_left: entity.mid_request.then_some(entity.deadline.0),
            remainder: entity.remainder,
        }
    }

    /// Puts a resting entity into the competition; [`Placement::Wake`] also ends a delayed departure. Charge the running entity first:
    /// the place depends on its virtual runtime.
    pub fn place(&mut self, slot: u32, placement: Placement) {
        let entity = self.entities[slot as usize];
        match entity.place {
            Place::Resting => self.enter(slot, placement),
            Place::Delayed if placement == Placement::Wake => self.wake_delayed(slot),
            _ => panic!("fair: slot {slot} is placed while {:?}", entity.place),
        }
    }

    /// Takes an entity out of the competition. A resting one stays as it is, unless it exits.
    pub fn depart(&mut self, slot: u32, departure: Departure) {
        let entity = self.entities[slot as usize];
        match entity.place {
            Place::Absent => panic!("fair: slot {slot} departs and has no entity"),
            Place::Resting => {}
            Place::Queued | Place::Running => {
                if departure == Departure::Sleep && !self.is_eligible(entity.v) {
                    self.delay(slot);
                    return;
                }
                let lag = self.kept_lag(&entity);
                self.detach(slot);
                let entity = &mut self.entities[slot as usize];
                entity.mid_request = departure == Departure::Move;
                entity.deadline = VirtualTime(entity.deadline.since(entity.v));
                entity.v = VirtualTime(lag);
                entity.place = Place::Resting;
            }
            // Asleep already: only a real departure changes anything, and it keeps the debt but no gain.
            Place::Delayed if departure == Departure::Sleep => {}
            Place::Delayed => {
                let lag = self.kept_lag(&entity).min(0);
                self.detach(slot);
                self.rest_after_delay(slot, lag);
            }
        }
        if departure == Departure::Exit {
            self.entities[slot as usize].place = Place::Absent;
        }
    }

    // One step.

    /// Chooses who runs: the earliest virtual deadline among the eligible. `None` when nothing is queued. The lane must be free.
    ///
    /// A delayed sleeper that would be chosen has paid its debt: it is taken out instead (at most [`REMOVALS_PER_PICK`] per pick).
    pub fn pick(&mut self) -> Option<Picked> {
        assert!(self.running.is_none(), "fair: a pick while slot {:?} runs", self.running);
        if !self.delayed.is_empty() {
            self.remove_paid_sleepers();
        }
        let now = self.virtual_time();
        let slot = self.ready.take_first(&mut self.arena, now).or_else(|| {
            // Only when paid sleepers are left over: they hold the average below everyone queued. The nearest to it goes first.
            let least = self.ready.least_v(&self.arena)?;
            self.ready.take_first(&mut self.arena, least)
        })?;
        Some(self.dispatch(slot))
    }

    /// Direct handoff: `slot` runs next for at most `rest` if it is queued and eligible; else nothing changes and a normal pick decides.
    pub fn hand_to(&mut self, slot: u32, rest: Cycles) -> Option<Picked> {
        assert!(self.running.is_none(), "fair: a handoff while slot {:?} runs", self.running);
        let entity = self.entities[slot as usize];
        if entity.place != Place::Queued || !self.is_eligible(entity.v) || rest == Cycles::ZERO {
            return None;
        }
        remove(&mut self.ready, &mut self.arena, &entity);
        let _ = self.dispatch(slot);
        let rest = units(rest.min(self.slices[entity.class as usize]), entity.weight).max(1);
        self.protected_until = self.protected_until.earlier(entity.v.plus(rest));
        Some(Picked { slot, bound: self.bound() })
    }

    /// Charges the running entity. A request that is used up is renewed. May be called several times in a slice: at every point where
    /// another entity is placed, and at its end.
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
        self.moment += i128::from(advance * weight);
        if distance > REBASE_DISTANCE {
            self.rebase();
        }
    }

    /// How long the running entity may go on before the queue wants to be asked again; zero when it should be asked now.
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

    /// The running entity goes back to the queue: its slice ended. Keeps its deadline unless its request was used up.
    pub fn requeue(&mut self) {
        let slot = self.running.take().expect("fair: a requeue while nothing runs");
        self.enqueue(slot);
    }

    /// The running entity yields: if it is eligible it gives up the rest of its request; then it goes back to the queue.
    pub fn give_way(&mut self) {
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = self.entities[slot as usize];
        if self.is_eligible(entity.v) {
            let given = entity.deadline.since(entity.v);
            self.moment += i128::from(given) * i128::from(entity.factor());
            let entity = &mut self.entities[slot as usize];
            entity.v = entity.deadline;
            entity.deadline = entity.deadline.plus(entity.request);
        }
        self.requeue();
    }

    // Preemption.

    /// Whether `waker`, just placed, should take the lane from the running entity at its next safepoint.
    ///
    /// A waker with a shorter slice (or any, against an idle one) looks past the running entity's protection; if it still is not the
    /// one a pick would choose, it only shortens that protection, so ask [`Self::bound`] again. An idle waker never preempts.
    #[must_use]
    pub fn wake_preempts(&mut self, waker: u32) -> bool {
        let Some(slot) = self.running else { return false };
        let (current, waking) = (self.entities[slot as usize], self.entities[waker as usize]);
        if waking.class == LatencyClass::Idle || waking.place != Place::Queued {
            return false;
        }
        let shorter = self.slices[waking.class as usize] < self.slices[current.class as usize] || current.class == LatencyClass::Idle;
        if self.preferred(!shorter) == Some(waker) {
            self.protected_until = current.v;
            return true;
        }
        if shorter {
            let least = current.v.plus(units(self.extremes.0, current.weight));
            self.protected_until = self.protected_until.earlier(least);
        }
        false
    }

    /// Whether a pick now would take the lane from the running entity; the test at a wave's or frame's end (semantics 25). An idle
    /// entity never takes it from another class.
    #[must_use]
    pub fn prefers_another(&self) -> bool {
        let Some(slot) = self.running else { return false };
        match self.preferred(true) {
            Some(best) if best != slot => {
                let class = |slot: u32| self.entities[slot as usize].class;
                class(best) != LatencyClass::Idle || class(slot) == LatencyClass::Idle
            }
            _ => false,
        }
    }

    // Parameters.

    /// Changes weight and class at once. Service already received or owed stays what it was: the lag is rescaled so that weight times lag is
    /// unchanged, everybody else's lag too. A new class starts a new request; a new weight keeps the progress of the current one. A
    /// queued entity goes behind others with the same deadline; a running one keeps running, and gains no protection.
    pub fn set_share(&mut self, slot: u32, share: Share) {
        let old = self.entities[slot as usize];
        let request = self.request_units(share);
        let rescale = |units: i64| divide_floor(i128::from(units) * i128::from(old.factor()), i64::from(share.weight.get()));
        let mut new = Entity { weight: share.weight, class: share.class, request, ..old };
        new.remainder = (u32::from(old.remainder) * u32::from(share.weight.get()) / u32::from(old.weight.get())) as u16;
        match old.place {
            Place::Absent => panic!("fair: slot {slot} has no entity to change"),
            Place::Resting => {
                new.v = VirtualTime(rescale(old.v.0));
                new.deadline = VirtualTime(rescale(old.deadline.0).max(1));
                new.mid_request = old.mid_request && share.class == old.class;
                self.entities[slot as usize] = new;
                return;
            }
            Place::Queued | Place::Delayed | Place::Running => {}
        }
        let now = self.virtual_time();
        let left = if share.class == old.class { rescale(old.deadline.since(old.v)).max(1) } else { request };
        new.v = now.plus(-rescale(now.since(old.v)));
        new.deadline = new.v.plus(left);
        let protection = rescale(self.protected_until.since(old.v));
        self.detach(slot);
        self.entities[slot as usize] = new;
        match old.place {
            Place::Delayed => self.enqueue_delayed(slot),
            Place::Running => {
                self.running = Some(slot);
                self.count_in(slot);
                self.runnable_weight += u64::from(share.weight.get());
                self.protect(slot);
                self.protected_until = self.protected_until.earlier(new.v.plus(protection));
                return;
            }
            _ => self.enqueue(slot),
        }
        self.count_in(slot);
        if old.place == Place::Queued {
            self.runnable_weight += u64::from(share.weight.get());
        }
    }

    // Questions.

    /// Weight and class of an entity.
    #[must_use]
    pub fn share(&self, slot: u32) -> Option<Share> {
        let entity = self.entities.get(slot as usize).filter(|entity| entity.place != Place::Absent)?;
        Some(Share { weight: entity.weight, class: entity.class })
    }

    /// Whether a competing entity received no more than its share so far. `None` when it does not compete.
    #[must_use]
    pub fn eligible(&self, slot: u32) -> Option<bool> {
        self.competing(slot).map(|entity| self.is_eligible(entity.v))
    }

    /// Service owed to an entity in units of virtual time (1024 are one cycle at the neutral weight): `V - v` while it competes, the
    /// kept lag while it rests.
    #[must_use]
    pub fn lag(&self, slot: u32) -> Option<i64> {
        let entity = self.entities.get(slot as usize)?;
        match entity.place {
            Place::Absent => None,
            Place::Resting => Some(entity.v.0),
            _ => Some(self.virtual_time().since(entity.v)),
        }
    }

    /// Units from the queue's virtual time to an entity's deadline: with the arrival, the key of a decision.
    #[must_use]
    pub fn deadline(&self, slot: u32) -> Option<i64> {
        self.competing(slot).map(|entity| entity.deadline.since(self.virtual_time()))
    }

    /// When a competing entity was last queued, as a number of this queue.
    #[must_use]
    pub fn arrival(&self, slot: u32) -> Option<u64> {
        self.competing(slot).map(|entity| entity.arrival)
    }

    /// Calls `visit` with each queued slot by (deadline, arrival) until it answers false: for a bounded steal, or to explain.
    pub fn visit_queued(&self, mut visit: impl FnMut(u32) -> bool) {
        self.ready.visit(&self.arena, &mut |entry| visit(entry.slot));
    }

    /// Moves the origin to the present virtual time. Changes no decision; keeps numbers small. Called at every wave's end, and by the
    /// queue itself when the running entity is far ahead.
    pub fn rebase(&mut self) {
        if self.weight > 0 {
            let advance = divide_floor(self.moment, self.weight);
            self.origin = self.origin.plus(advance);
            self.moment -= i128::from(advance) * i128::from(self.weight);
        }
    }

    // Inside.

    fn competing(&self, slot: u32) -> Option<&Entity> {
        self.entities.get(slot as usize).filter(|entity| matches!(entity.place, Place::Queued | Place::Delayed | Place::Running))
    }

    /// Units of one request.
    pub(super) fn request_units(&self, share: Share) -> i64 {
        units(self.slices[share.class as usize], share.weight)
    }

    /// The average virtual runtime, rounded down.
    pub(super) fn virtual_time(&self) -> VirtualTime {
        if self.weight == 0 { self.origin } else { self.origin.plus(divide_floor(self.moment, self.weight)) }
    }

    /// `v <= V` without a division.
    #[inline]
    fn is_eligible(&self, v: VirtualTime) -> bool {
        self.moment >= i128::from(v.since(self.origin)) * i128::from(self.weight)
    }

    /// The earliest deadline among the queued that are eligible when the virtual time is `now`.
    fn first_ready(&self, now: VirtualTime) -> Option<Entry> {
        self.ready.first(&self.arena, now)
    }

    /// The least and the largest slice competing, from the counts.
    pub(super) fn recomputed_extremes(&self) -> (Cycles, Cycles) {
        let present = || (0..CLASSES).filter(|&class| self.classes[class] > 0).map(|class| self.slices[class]);
        let normal = self.slices[LatencyClass::Normal as usize];
        (present().min().unwrap_or(normal), present().max().unwrap_or(normal))
    }

    fn count_class(&mut self, class: LatencyClass, joins: bool) {
        let count = &mut self.classes[class as usize];
        let before = *count;
        *count = if joins { before + 1 } else { before - 1 };
        if before == 0 || *count == 0 {
            self.extremes = self.recomputed_extremes();
        }
    }

    /// The lag an entity leaves with.
    fn kept_lag(&self, entity: &Entity) -> i64 {
        let limit = lag_limit(self.extremes.1, entity.weight);
        self.virtual_time().since(entity.v).clamp(-limit, limit)
    }

    /// Counts an entity among the competing.
    pub(super) fn count_in(&mut self, slot: u32) {
        let entity = self.entities[slot as usize];
        self.weight += entity.factor();
        self.moment += i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
        self.count_class(entity.class, true);
    }

    /// Takes a competing entity out of its tree or off the lane and out of every sum. Its fields stay.
    fn detach(&mut self, slot: u32) {
        let entity = self.entities[slot as usize];
        match entity.place {
            Place::Queued => remove(&mut self.ready, &mut self.arena, &entity),
            Place::Delayed => remove(&mut self.delayed, &mut self.arena, &entity),
            Place::Running => self.running = None,
            Place::Absent | Place::Resting => panic!("fair: slot {slot} is detached while {:?}", entity.place),
        }
        if entity.place != Place::Delayed {
            self.runnable_weight -= u64::from(entity.weight.get());
        }
        self.count_class(entity.class, false);
        self.weight -= entity.factor();
        self.moment -= i128::from(entity.v.since(self.origin)) * i128::from(entity.factor());
        if self.weight == 0 {
            // Virtual time stands still while nobody competes.
            self.origin = entity.v;
        }
    }

    fn enter(&mut self, slot: u32, placement: Placement) {
        let entity = self.entities[slot as usize];
        let now = self.virtual_time();
        let lag = if placement == Placement::Initial || self.weight == 0 {
            0
        } else {
            // Its own weight will drag the average towards it; the inflation makes the lag after that the lag it came with.
            divide_floor(i128::from(entity.v.0) * i128::from(self.weight + entity.factor()), self.weight)
        };
        let request = match placement {
            Placement::Initial => entity.request / 2,
            Placement::Migrate if entity.mid_request => entity.deadline.0,
            Placement::Wake | Placement::Migrate => entity.request,
        };
        let v = now.plus(-lag);
        let entity = &mut self.entities[slot as usize];
        entity.v = v;
        entity.deadline = v.plus(request);
        entity.mid_request = false;
        self.runnable_weight += u64::from(entity.weight.get());
        self.count_in(slot);
        self.enqueue(slot);
    }

    /// Inserts into the ready tree, behind everyone with the same deadline.
    fn enqueue(&mut self, slot: u32) {
        let entity = &mut self.entities[slot as usize];
        entity.place = Place::Queued;
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.ready.insert(&mut self.arena, entry(entity, slot));
    }

    fn enqueue_delayed(&mut self, slot: u32) {
        let entity = &mut self.entities[slot as usize];
        entity.place = Place::Delayed;
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.delayed.insert(&mut self.arena, entry(entity, slot));
    }

    /// An ineligible entity falls asleep: it keeps competing, unpicked, until its debt is paid.
    fn delay(&mut self, slot: u32) {
        let entity = self.entities[slot as usize];
        match entity.place {
            Place::Queued => remove(&mut self.ready, &mut self.arena, &entity),
            _ => self.running = None,
        }
        self.runnable_weight -= u64::from(entity.weight.get());
        self.enqueue_delayed(slot);
    }

    /// A delayed entity wakes. If the others have caught up and more, the gain is clipped and it is placed anew; else its debt and its
    /// request go on as if it had not slept.
    fn wake_delayed(&mut self, slot: u32) {
        let entity = self.entities[slot as usize];
        if self.virtual_time().since(entity.v) > 0 {
            self.detach(slot);
            self.rest_after_delay(slot, 0);
            self.enter(slot, Placement::Wake);
            return;
        }
        remove(&mut self.delayed, &mut self.arena, &entity);
        self.runnable_weight += u64::from(entity.weight.get());
        self.enqueue(slot);
    }

    fn rest_after_delay(&mut self, slot: u32, lag: i64) {
        let entity = &mut self.entities[slot as usize];
        entity.v = VirtualTime(lag);
        entity.place = Place::Resting;
        entity.mid_request = false;
    }

    fn remove_paid_sleepers(&mut self) {
        for _ in 0..REMOVALS_PER_PICK {
            let now = self.virtual_time();
            let Some(sleeper) = self.delayed.first(&self.arena, now) else { return };
            let best = self.first_ready(now);
            if best.is_some_and(|best| best.key.before(sleeper.key)) {
                return;
            }
            self.detach(sleeper.slot);
            self.rest_after_delay(sleeper.slot, 0);
        }
    }

    /// Puts an entity that was just taken out of the ready tree on the lane.
    fn dispatch(&mut self, slot: u32) -> Picked {
        self.entities[slot as usize].place = Place::Running;
        self.running = Some(slot);
        self.protect(slot);
        Picked { slot, bound: self.bound() }
    }

    /// Run to parity: protection for the shortest slice competing, and never beyond the deadline.
    fn protect(&mut self, slot: u32) {
        let entity = &self.entities[slot as usize];
        let least = self.extremes.0;
        let slice = if least < self.slices[entity.class as usize] { units(least, entity.weight) } else { entity.request };
        self.protected_until = entity.v.plus(slice).earlier(entity.deadline);
    }

    /// Who a pick would choose, with the running entity among the candidates.
    fn preferred(&self, protect: bool) -> Option<u32> {
        let slot = self.running?;
        let current = &self.entities[slot as usize];
        let stays = self.is_eligible(current.v);
        if stays && protect && current.v.before(self.protected_until) {
            return Some(slot);
        }
        match self.first_ready(self.virtual_time()) {
            Some(best) if !(stays && key(current).before(best.key)) => Some(best.slot),
            _ => Some(slot),
        }
    }
}

const fn key(entity: &Entity) -> Key {
    Key { deadline: entity.deadline, arrival: entity.arrival }
}

pub(super) const fn entry(entity: &Entity, slot: u32) -> Entry {
    Entry { key: key(entity), v: entity.v, slot }
}

fn remove(tree: &mut Tree, arena: &mut Arena, entity: &Entity) {
    tree.take(arena, key(entity)).expect("fair: a competing entity is in its tree");
}
