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
    CHARGE_LIMIT, Carried, Entity, FairSettings, Leave, Phase, Placement, Share, VirtualTime,
    divide_floor, lag_limit, units,
};
use super::lane::FairKey;
use super::ready::{Average, Ready};
use super::tree::{Arena, Tree};
use crate::room::Room;
use alloc::collections::TryReserveError;
use wavelock_abi::{Cycles, LatencyClass};

/// Delayed entities that one pick dequeues at most, so that it stays O(log n) when many become
/// eligible at once. The others wait for the next picks and gain nothing by it.
pub const REMOVALS_PER_PICK: usize = 8;

/// The origin moves when the running entity is this far from it, so that the weighted sum stays
/// small and divisions stay cheap.
const REBASE_DISTANCE: i64 = 1 << 32;

/// Trees that share the arena.
const TREES: usize = 2;

const CLASSES: usize = LatencyClass::ALL.len();

/// The entities that competitions name by slot, and the nodes of all their trees.
#[derive(Clone, Debug)]
pub(super) struct EntityTable {
    pub(super) settings: FairSettings,
    /// Effective slice of each class.
    slices: [Cycles; CLASSES],
    pub(super) entities: Room<Entity>,
    pub(super) arena: Arena,
}

/// One EEVDF queue: some entities of an [`EntityTable`], each in this competition or resting.
#[derive(Clone, Debug)]
pub(super) struct Competition {
    /// Queued entities.
    pub(super) ready: Ready,
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

impl EntityTable {
    /// An empty table. Allocates nothing.
    pub(super) fn new(settings: FairSettings) -> Self {
        Self {
            settings,
            slices: LatencyClass::ALL.map(|class| settings.slice(class)),
            entities: Room::new(),
            arena: Arena::new(),
        }
    }

    /// Makes room for entities in slots `0..slots`, all of them competing in one of `competitions`.
    /// Nothing else allocates. Never shrinks.
    pub(super) fn reserve(&mut self, slots: u32, competitions: u32) -> Result<(), TryReserveError> {
        let more = (slots as usize).saturating_sub(self.entities.len());
        self.arena.reserve(slots as usize, TREES * competitions as usize)?;
        self.entities.try_reserve(more)?;
        self.entities.fill_to(slots as usize, Entity::ABSENT);
        Ok(())
    }

    /// The entity in `slot` if its phase is `first` or a later one of [`Phase`].
    fn entity(&self, slot: u32, first: Phase) -> Option<&Entity> {
        self.entities.get(slot as usize).filter(|entity| entity.phase as u8 >= first as u8)
    }

    /// Weight and class of an entity.
    pub(super) fn share(&self, slot: u32) -> Option<Share> {
        self.entity(slot, Phase::Resting).map(Entity::share)
    }

    /// The phase of an entity; absent where there is none.
    #[inline]
    pub(super) fn phase(&self, slot: u32) -> Phase {
        self.entities.get(slot as usize).map_or(Phase::Absent, |entity| entity.phase)
    }

    /// Units of one request.
    pub(super) fn request_units(&self, share: Share) -> i64 {
        units(self.slices[share.class as usize], share.weight)
    }

    /// Creates a resting entity in `slot`, which has none.
    pub(super) fn adopt(&mut self, slot: u32, carried: Carried) {
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

    /// Slots there is room for.
    pub(super) fn slots(&self) -> u32 {
        self.entities.len() as u32
    }
}

impl Competition {
    /// An empty competition. Allocates nothing.
    pub(super) fn new(settings: &FairSettings) -> Self {
        let normal = settings.slice(LatencyClass::Normal);
        Self {
            ready: Ready::new(),
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

    // Joining and leaving.

    /// Prepares a competition without entities for others.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.weight == 0 && self.running.is_none(), "fair: a competition in use");
        (self.origin, self.protected_until) = (VirtualTime(0), VirtualTime(0));
        (self.weighted_sum, self.arrivals) = (0, 0);
    }

    /// Removes an entity in any phase; returns what it carries to another lane.
    pub(super) fn remove(&mut self, table: &mut EntityTable, slot: u32) -> Carried {
        self.leave(table, slot, Leave::Move);
        let entity = &mut table.entities[slot as usize];
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
    pub(super) fn place(&mut self, table: &mut EntityTable, slot: u32, placement: Placement) {
        let entity = table.entities[slot as usize];
        match entity.phase {
            Phase::Resting => {}
            Phase::Delayed if placement == Placement::Wake => {
                if self.virtual_time().since(entity.v) <= 0 {
                    // Still in debt: debt and request continue as if it had not slept.
                    self.unlink(table, slot);
                    self.enqueue(table, slot, Phase::Queued);
                    return;
                }
                // The others have more than caught up: the gain is clipped.
                self.make_resting(table, slot, 0, None);
            }
            phase => panic!("fair: slot {slot} is placed while {phase:?}"),
        }
        let now = self.virtual_time();
        let entity = &mut table.entities[slot as usize];
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
        self.count_in(table, slot);
        self.enqueue(table, slot, Phase::Queued);
    }

    /// An entity leaves the competition. No effect on a resting one, except [`Leave::Exit`].
    pub(super) fn leave(&mut self, table: &mut EntityTable, slot: u32, leave: Leave) {
        let entity = table.entities[slot as usize];
        match (entity.phase, leave) {
            (Phase::Absent, _) => panic!("fair: slot {slot} leaves and has no entity"),
            (Phase::Resting, _) | (Phase::Delayed, Leave::Sleep) => {}
            // Asleep already: it keeps the debt but no gain.
            (Phase::Delayed, _) => {
                self.make_resting(table, slot, self.kept_lag(&entity).min(0), None)
            }
            (_, Leave::Sleep) if !self.is_eligible(entity.v) => {
                self.unlink(table, slot);
                self.enqueue(table, slot, Phase::Delayed);
            }
            _ => {
                let left = entity.deadline.since(entity.v);
                let left = (leave == Leave::Move).then_some(left);
                self.make_resting(table, slot, self.kept_lag(&entity), left);
            }
        }
        if leave == Leave::Exit {
            table.entities[slot as usize].phase = Phase::Absent;
        }
    }

    // One step.

    /// Dispatches the earliest virtual deadline among the eligible; returns its slot, or `None` if
    /// none is queued. No entity may be running. [`Self::bound`] is the length of its slice.
    ///
    /// A delayed sleeper that would be picked is no longer in debt: it is dequeued instead (at most
    /// [`REMOVALS_PER_PICK`] per pick).
    #[inline(always)]
    pub(super) fn pick(&mut self, table: &mut EntityTable) -> Option<u32> {
        assert!(self.running.is_none(), "fair: a pick while slot {:?} runs", self.running);
        if !self.delayed.is_empty() {
            self.dequeue_caught_up(table);
        }
        if self.ready.is_empty() {
            return None;
        }
        let slot = match self.ready.first_list(&table.entities, self.average()) {
            Some(number) => self.ready.take_listed(&mut table.entities, number),
            None => self.take_unlisted(table),
        };
        self.dispatch(table, slot);
        Some(slot)
    }

    /// Direct handoff: dispatches `slot` for at most `rest` if it is queued and eligible; returns
    /// whether it did. Otherwise nothing changes and a normal pick decides.
    pub(super) fn hand_to(&mut self, table: &mut EntityTable, slot: u32, rest: Cycles) -> bool {
        assert!(self.running.is_none(), "fair: a handoff while slot {:?} runs", self.running);
        let entity = table.entities[slot as usize];
        if entity.phase != Phase::Queued || !self.is_eligible(entity.v) || rest == Cycles::ZERO {
            return false;
        }
        self.unlink(table, slot);
        self.dispatch(table, slot);
        let rest = units(rest.min(table.slices[entity.class as usize]), entity.weight).max(1);
        self.protected_until = self.protected_until.earlier(entity.v.plus(rest));
        true
    }

    /// Charges the running entity; a request that is used up is renewed. Called at the end of a
    /// slice, and within it before another entity is placed.
    #[inline(always)]
    pub(super) fn charge(&mut self, table: &mut EntityTable, cycles: Cycles) {
        let slot = self.running.expect("fair: a charge while nothing runs");
        let entity = &mut table.entities[slot as usize];
        let advance = entity.serve(cycles.min(CHARGE_LIMIT));
        entity.v = entity.v.plus(advance);
        if !entity.v.before(entity.deadline) {
            entity.deadline = entity.v.plus(entity.request);
        }
        let distance = entity.v.since(self.origin);
        self.weighted_sum += i128::from(advance * entity.factor());
        if distance > REBASE_DISTANCE {
            self.rebase();
        }
    }

    /// Cycles the running entity may run before the next decision; zero when one is due now.
    #[inline(always)]
    pub(super) fn bound(&self, table: &EntityTable) -> Cycles {
        let Some(slot) = self.running else { return Cycles::ZERO };
        table.entities[slot as usize].bound(self.protected_until)
    }

    /// Requeues the running entity: its slice ended. It keeps its deadline unless its request was
    /// used up.
    pub(super) fn requeue(&mut self, table: &mut EntityTable) {
        let slot = self.running.take().expect("fair: a requeue while nothing runs");
        self.enqueue(table, slot, Phase::Queued);
    }

    /// Requeues the running entity after a yield: if it is eligible it forfeits the remainder of
    /// its request.
    #[inline(always)]
    pub(super) fn yield_running(&mut self, table: &mut EntityTable) {
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = &table.entities[slot as usize];
        if self.is_eligible(entity.v) {
            let entity = &mut table.entities[slot as usize];
            let forfeited = entity.deadline.since(entity.v);
            self.weighted_sum += i128::from(forfeited) * i128::from(entity.factor());
            entity.v = entity.deadline;
            entity.deadline = entity.deadline.plus(entity.request);
        }
        self.requeue(table);
    }

    /// [`Self::charge`], [`Self::yield_running`], [`Self::pick`] and [`Self::bound`] in one pass.
    /// `None`, and nothing changed, if no other entity is queued.
    #[inline(always)]
    pub(super) fn yield_to_next(
        &mut self,
        table: &mut EntityTable,
        cycles: Cycles,
    ) -> Option<(u32, Cycles)> {
        if self.ready.is_empty() {
            return None;
        }
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = &mut table.entities[slot as usize];
        let (factor, request) = (entity.factor(), entity.request);
        let advance = entity.serve(cycles);
        let mut v = entity.v.plus(advance);
        let mut deadline = entity.deadline;
        if !v.before(deadline) {
            deadline = v.plus(request);
        }
        self.weighted_sum += i128::from(advance * factor);
        if v.since(self.origin) > REBASE_DISTANCE {
            self.rebase();
        }
        if self.is_eligible(v) {
            self.weighted_sum += i128::from(deadline.since(v)) * i128::from(factor);
            (v, deadline) = (deadline, deadline.plus(request));
        }
        (entity.v, entity.deadline, entity.phase) = (v, deadline, Phase::Queued);
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        if !self.ready.append(&mut table.entities, slot, (v, deadline)) {
            self.ready.insert_unlisted(table, slot);
        }
        if !self.delayed.is_empty() {
            self.dequeue_caught_up(table);
        }
        let listed = self.ready.first_list(&table.entities, self.average());
        let next = match listed {
            Some(number) => self.ready.take_listed(&mut table.entities, number),
            None => self.take_unlisted(table),
        };
        let entity = &mut table.entities[next as usize];
        entity.phase = Phase::Running;
        self.running = Some(next);
        self.protected_until = protection(entity, self.slice_range.0, &table.slices);
        Some((next, entity.bound(self.protected_until)))
    }

    /// The rest of a pick that looks beyond the lists.
    #[inline(never)]
    fn take_unlisted(&mut self, table: &mut EntityTable) -> u32 {
        let now = self.virtual_time();
        let slot = self.ready.take_first(table, now).or_else(|| {
            // More sleepers than one pick dequeues hold the average below every queued entity: the
            // entity nearest to it runs.
            let min_v = self.ready.min_v(table)?;
            self.ready.take_first(table, min_v)
        });
        slot.expect("fair: an entity is queued")
    }

    /// [`Self::charge`], [`Self::yield_running`], [`Self::pick`] and [`Self::bound`].
    #[inline(always)]
    pub(super) fn yield_on(&mut self, table: &mut EntityTable, cycles: Cycles) -> (u32, Cycles) {
        let cycles = cycles.min(CHARGE_LIMIT);
        if let Some(next) = self.yield_to_next(table, cycles) {
            return next;
        }
        if self.is_alone() {
            let bound = self.yield_to_itself(table, cycles);
            return (self.running.expect("fair: it yields to itself"), bound);
        }
        self.charge(table, cycles);
        self.yield_running(table);
        let next = self.pick(table).expect("fair: the one that yields is queued");
        (next, self.bound(table))
    }

    /// The same as [`Self::yield_to_next`] while no other entity competes: the running one is
    /// picked again. Returns its bound.
    #[inline(always)]
    pub(super) fn yield_to_itself(&mut self, table: &mut EntityTable, cycles: Cycles) -> Cycles {
        let slot = self.running.expect("fair: a yield while nothing runs");
        let entity = &mut table.entities[slot as usize];
        let v = entity.v.plus(entity.serve(cycles));
        // It is the average, and so it is eligible.
        let end = if v.before(entity.deadline) { entity.deadline } else { v.plus(entity.request) };
        self.weighted_sum += i128::from(end.since(entity.v)) * i128::from(entity.factor());
        (entity.v, entity.deadline) = (end, end.plus(entity.request));
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.protected_until = protection(entity, self.slice_range.0, &table.slices);
        let bound = entity.bound(self.protected_until);
        if end.since(self.origin) > REBASE_DISTANCE {
            self.rebase();
        }
        bound
    }

    /// Whether only the running entity competes.
    #[inline]
    pub(super) const fn is_alone(&self) -> bool {
        self.ready.is_empty() && self.delayed.is_empty()
    }

    /// Whether a pick now would preempt the running entity; the test at a wave's or frame's end
    /// (semantics 25). An idle entity never preempts another class.
    pub(super) fn prefers_another(&self, table: &EntityTable) -> bool {
        let Some(slot) = self.running else { return false };
        let current = &table.entities[slot as usize];
        let is_eligible = self.is_eligible(current.v);
        if is_eligible && current.v.before(self.protected_until) {
            return false;
        }
        let is_idle = |slot: u32| table.entities[slot as usize].class == LatencyClass::Idle;
        self.ready.first(table, self.virtual_time()).is_some_and(|best| {
            !(is_eligible && current.key().before(best.key))
                && (!is_idle(best.slot) || is_idle(slot))
        })
    }

    // Parameters.

    /// Changes weight and class at once. Weight times lag is unchanged for every entity, so no
    /// service is created or lost. A new class starts a new request; a new weight keeps the
    /// progress of the current one. A queued entity is requeued behind others with the same
    /// deadline; a running one keeps running and gains no protection.
    pub(super) fn set_share(&mut self, table: &mut EntityTable, slot: u32, share: Share) {
        let old = table.entities[slot as usize];
        let request = table.request_units(share);
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
            list: Entity::UNLISTED,
            ..old
        };
        let keeps_request = share.class == old.class;
        match old.phase {
            Phase::Absent => panic!("fair: slot {slot} has no entity to change"),
            Phase::Resting => {
                let left = old.request_left().filter(|_| keeps_request);
                new.v = VirtualTime(rescale(old.v.0));
                new.deadline = VirtualTime(left.map_or(0, |left| rescale(left).max(1)));
                table.entities[slot as usize] = new;
            }
            Phase::Queued | Phase::Delayed | Phase::Running => {
                let now = self.virtual_time();
                let left = rescale(old.deadline.since(old.v)).max(1);
                new.v = now.plus(-rescale(now.since(old.v)));
                new.deadline = new.v.plus(if keeps_request { left } else { request });
                self.withdraw(table, slot);
                table.entities[slot as usize] = new;
                self.count_in(table, slot);
                if old.phase != Phase::Running {
                    return self.enqueue(table, slot, old.phase);
                }
                let protection = rescale(self.protected_until.since(old.v));
                self.running = Some(slot);
                self.protect(table, slot);
                self.protected_until = self.protected_until.earlier(new.v.plus(protection));
            }
        }
    }

    // Reading.

    /// Whether a competing entity received no more than its share; `None` if it does not compete.
    pub(super) fn eligible(&self, table: &EntityTable, slot: u32) -> Option<bool> {
        table.entity(slot, Phase::Queued).map(|entity| self.is_eligible(entity.v))
    }

    /// Service owed to an entity, as in [`Carried::lag`]: `V - v` while it competes, else the kept
    /// lag.
    pub(super) fn lag(&self, table: &EntityTable, slot: u32) -> Option<i64> {
        let entity = table.entity(slot, Phase::Resting)?;
        Some(match entity.phase {
            Phase::Resting => entity.v.0,
            _ => self.virtual_time().since(entity.v),
        })
    }

    /// Units from the queue's virtual time to a competing entity's deadline.
    pub(super) fn deadline(&self, table: &EntityTable, slot: u32) -> Option<i64> {
        let entity = table.entity(slot, Phase::Queued)?;
        Some(entity.deadline.since(self.virtual_time()))
    }

    /// What decides about a competing entity.
    pub(super) fn key(&self, table: &EntityTable, slot: u32) -> Option<FairKey> {
        let entity = table.entity(slot, Phase::Queued)?;
        let now = self.virtual_time();
        Some(FairKey {
            is_ahead: !self.is_eligible(entity.v),
            deadline: entity.deadline.since(now),
            arrival: entity.arrival,
            lag: now.since(entity.v),
        })
    }

    /// The arrival number of a competing entity.
    pub(super) fn arrival(&self, table: &EntityTable, slot: u32) -> Option<u64> {
        table.entity(slot, Phase::Queued).map(|entity| entity.arrival)
    }

    /// Calls `visit` with each queued slot, in no particular order, until it returns false.
    pub(super) fn visit_queued(&self, table: &EntityTable, mut visit: impl FnMut(u32) -> bool) {
        self.ready.visit(table, &mut visit);
    }

    /// Moves the origin to the current virtual time, which keeps numbers small and changes no
    /// decision. Called at every wave's end, and by the queue if the running entity is far ahead.
    pub(super) fn rebase(&mut self) {
        if self.weight > 0 {
            let advance = divide_floor(self.weighted_sum, self.weight);
            self.origin = self.origin.plus(advance);
            self.weighted_sum -= i128::from(advance) * i128::from(self.weight);
        }
    }

    // Internals.

    /// The average of the competing.
    #[inline]
    const fn average(&self) -> Average {
        let Self { origin, weighted_sum, weight, .. } = *self;
        Average { origin, weighted_sum, weight }
    }

    /// `V`, rounded down.
    pub(super) fn virtual_time(&self) -> VirtualTime {
        self.average().virtual_time()
    }

    /// `v <= V` without a division.
    #[inline]
    fn is_eligible(&self, v: VirtualTime) -> bool {
        self.average().is_eligible(v)
    }

    /// The shortest and the longest slice competing, from the counts.
    pub(super) fn recomputed_slice_range(&self, table: &EntityTable) -> (Cycles, Cycles) {
        let classes = table.slices.iter().zip(self.class_counts);
        let present = classes.filter(|(_, count)| *count > 0).map(|(&slice, _)| slice);
        let normal = table.slices[LatencyClass::Normal as usize];
        (present.clone().min().unwrap_or(normal), present.max().unwrap_or(normal))
    }

    /// The lag an entity leaves with.
    fn kept_lag(&self, entity: &Entity) -> i64 {
        let limit = lag_limit(self.slice_range.1, entity.weight);
        self.virtual_time().since(entity.v).clamp(-limit, limit)
    }

    /// Adds an entity to the sums over all competing ones.
    pub(super) fn count_in(&mut self, table: &EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        self.weight += entity.factor();
        self.weighted_sum += entity.moment(self.origin);
        let count = &mut self.class_counts[entity.class as usize];
        *count += 1;
        if *count == 1 {
            self.slice_range = self.recomputed_slice_range(table);
        }
    }

    /// Unlinks a competing entity and subtracts it from every sum. Its fields stay.
    fn withdraw(&mut self, table: &mut EntityTable, slot: u32) {
        self.unlink(table, slot);
        let entity = &table.entities[slot as usize];
        self.weight -= entity.factor();
        self.weighted_sum -= entity.moment(self.origin);
        if self.weight == 0 {
            // Virtual time stops while no entity competes.
            self.origin = entity.v;
        }
        let count = &mut self.class_counts[entity.class as usize];
        *count -= 1;
        if *count == 0 {
            self.slice_range = self.recomputed_slice_range(table);
        }
    }

    /// A competing entity becomes resting with this lag and remainder of its request.
    fn make_resting(
        &mut self,
        table: &mut EntityTable,
        slot: u32,
        lag: i64,
        request_left: Option<i64>,
    ) {
        self.withdraw(table, slot);
        let entity = &mut table.entities[slot as usize];
        entity.phase = Phase::Resting;
        entity.v = VirtualTime(lag);
        entity.deadline = VirtualTime(request_left.unwrap_or(0));
    }

    /// Queues a competing entity that is in no structure, as `phase` says (`Queued` or `Delayed`),
    /// behind entries with the same deadline.
    #[inline]
    fn enqueue(&mut self, table: &mut EntityTable, slot: u32, phase: Phase) {
        let entity = &mut table.entities[slot as usize];
        entity.phase = phase;
        entity.arrival = self.arrivals;
        self.arrivals += 1;
        self.link(table, slot);
    }

    /// Adds a competing entity to the structure of its phase, or makes it the running one.
    #[inline]
    pub(super) fn link(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        match entity.phase {
            Phase::Queued => self.ready.insert(table, slot),
            Phase::Delayed => self.delayed.insert(&mut table.arena, entity.entry(slot)),
            Phase::Running => self.running = Some(slot),
            phase => panic!("fair: slot {slot} is linked while {phase:?}"),
        }
    }

    /// The reverse of [`Self::link`].
    #[inline]
    fn unlink(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        match entity.phase {
            Phase::Queued => self.ready.remove(table, slot),
            Phase::Delayed => self.delayed.remove(&mut table.arena, entity.key()),
            Phase::Running => self.running = None,
            phase => panic!("fair: slot {slot} is unlinked while {phase:?}"),
        }
    }

    /// Dequeues the delayed sleepers that a pick would choose.
    #[inline(never)]
    fn dequeue_caught_up(&mut self, table: &mut EntityTable) {
        for _ in 0..REMOVALS_PER_PICK {
            let now = self.virtual_time();
            let Some(sleeper) = self.delayed.first(&table.arena, now) else { return };
            let best = self.ready.first(table, now);
            if best.is_some_and(|best| best.key.before(sleeper.key)) {
                return;
            }
            self.make_resting(table, sleeper.slot, 0, None);
        }
    }

    /// Makes an unlinked entity the running one.
    #[inline]
    fn dispatch(&mut self, table: &mut EntityTable, slot: u32) {
        table.entities[slot as usize].phase = Phase::Running;
        self.running = Some(slot);
        self.protect(table, slot);
    }

    /// Run to parity: protection for the shortest slice competing, and never beyond the deadline.
    fn protect(&mut self, table: &EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        self.protected_until = protection(entity, self.slice_range.0, &table.slices);
    }
}

/// Until when an entity that is dispatched now is protected, if the shortest slice competing is
/// `least`.
#[inline(always)]
fn protection(entity: &Entity, least: Cycles, slices: &[Cycles; CLASSES]) -> VirtualTime {
    let is_shorter = least < slices[entity.class as usize];
    let slice = if is_shorter { units(least, entity.weight) } else { entity.request };
    entity.v.plus(slice).earlier(entity.deadline)
}
