//! [`FairQueue`]: one competition with entities of its own.
//!
//! The queue of the sessions of a lane is one ([`super::FairLane`]); tests and benchmarks use it
//! alone.
//! Elsewhere: the rules (`competition`), the two levels of a lane (`lane`).

use super::competition::{Competition, EntityTable};
use super::entity::{Carried, FairSettings, Leave, Phase, Placement, Share};
use alloc::collections::TryReserveError;
use wavelock_abi::Cycles;

/// An EEVDF queue of entities that are named by slots.
#[derive(Clone, Debug)]
pub struct FairQueue {
    pub(super) table: EntityTable,
    pub(super) competition: Competition,
}

impl FairQueue {
    /// An empty queue. Allocates nothing.
    #[must_use]
    pub fn new(settings: FairSettings) -> Self {
        let competition = Competition::new(&settings);
        Self { table: EntityTable::new(settings), competition }
    }

    /// Makes room for entities in slots `0..slots`, all of them competing. Nothing else allocates.
    /// Never shrinks.
    ///
    /// # Errors
    /// The host has not enough memory; the queue is unchanged but for unused room.
    pub fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.table.reserve(slots, 1)
    }

    /// The entity on the lane.
    #[must_use]
    pub const fn running(&self) -> Option<u32> {
        self.competition.running
    }

    /// The phase of an entity.
    #[inline]
    pub(super) fn phase(&self, slot: u32) -> Phase {
        self.table.phase(slot)
    }

    // Joining and leaving.

    /// Creates a resting entity in `slot`: new ([`Carried::fresh`]) or from another lane. Place it
    /// as [`Placement::Initial`] if it is new, [`Placement::Migrate`] if it is ready,
    /// [`Placement::Wake`] when it wakes.
    pub fn adopt(&mut self, slot: u32, carried: Carried) {
        self.table.adopt(slot, carried);
    }

    /// Removes an entity in any phase; returns what it carries to another lane.
    #[must_use]
    pub fn remove(&mut self, slot: u32) -> Carried {
        self.competition.remove(&mut self.table, slot)
    }

    /// A resting entity joins the competition; [`Placement::Wake`] also cancels a delayed dequeue.
    /// Charge the running entity first: the placement depends on its virtual runtime.
    pub fn place(&mut self, slot: u32, placement: Placement) {
        self.competition.place(&mut self.table, slot, placement);
    }

    /// An entity leaves the competition. No effect on a resting one, except [`Leave::Exit`].
    pub fn leave(&mut self, slot: u32, leave: Leave) {
        self.competition.leave(&mut self.table, slot, leave);
    }

    // One step.

    /// Dispatches the earliest virtual deadline among the eligible; returns its slot, or `None` if
    /// none is queued. No entity may be running. [`Self::bound`] is the length of its slice.
    ///
    /// A delayed sleeper that would be picked is no longer in debt: it is dequeued instead (at most
    /// [`super::REMOVALS_PER_PICK`] per pick).
    #[inline]
    pub fn pick(&mut self) -> Option<u32> {
        self.competition.pick(&mut self.table)
    }

    /// Direct handoff: dispatches `slot` for at most `rest` if it is queued and eligible; returns
    /// whether it did. Otherwise nothing changes and a normal pick decides.
    pub fn hand_to(&mut self, slot: u32, rest: Cycles) -> bool {
        self.competition.hand_to(&mut self.table, slot, rest)
    }

    /// Charges the running entity; a request that is used up is renewed. Called at the end of a
    /// slice, and within it before another entity is placed.
    #[inline]
    pub fn charge(&mut self, cycles: Cycles) {
        self.competition.charge(&mut self.table, cycles);
    }

    /// Cycles the running entity may run before the next decision; zero when one is due now.
    #[inline]
    #[must_use]
    pub fn bound(&self) -> Cycles {
        self.competition.bound(&self.table)
    }

    /// Requeues the running entity: its slice ended. It keeps its deadline unless its request was
    /// used up.
    #[inline]
    pub fn requeue(&mut self) {
        self.competition.requeue(&mut self.table);
    }

    /// Requeues the running entity after a yield: if it is eligible it forfeits the remainder of
    /// its request.
    #[inline]
    pub fn yield_running(&mut self) {
        self.competition.yield_running(&mut self.table);
    }

    /// Whether a pick now would preempt the running entity; the test at a wave's or frame's end
    /// (semantics 25). An idle entity never preempts another class.
    #[must_use]
    pub fn prefers_another(&self) -> bool {
        self.competition.prefers_another(&self.table)
    }

    /// Changes weight and class at once. Weight times lag is unchanged for every entity, so no
    /// service is created or lost. A new class starts a new request; a new weight keeps the
    /// progress of the current one. A queued entity is requeued behind others with the same
    /// deadline; a running one keeps running and gains no protection.
    pub fn set_share(&mut self, slot: u32, share: Share) {
        self.competition.set_share(&mut self.table, slot, share);
    }

    // Reading.

    /// Whether an entity is queued.
    #[inline]
    pub(super) const fn has_queued(&self) -> bool {
        !self.competition.ready.is_empty()
    }

    /// Weight and class of an entity.
    #[must_use]
    pub fn share(&self, slot: u32) -> Option<Share> {
        self.table.share(slot)
    }

    /// Whether a competing entity received no more than its share; `None` if it does not compete.
    #[must_use]
    pub fn eligible(&self, slot: u32) -> Option<bool> {
        self.competition.eligible(&self.table, slot)
    }

    /// Service owed to an entity, as in [`Carried::lag`]: `V - v` while it competes, else the kept
    /// lag.
    #[must_use]
    pub fn lag(&self, slot: u32) -> Option<i64> {
        self.competition.lag(&self.table, slot)
    }

    /// Units from the queue's virtual time to a competing entity's deadline.
    #[must_use]
    pub fn deadline(&self, slot: u32) -> Option<i64> {
        self.competition.deadline(&self.table, slot)
    }

    /// The arrival number of a competing entity.
    #[must_use]
    pub fn arrival(&self, slot: u32) -> Option<u64> {
        self.competition.arrival(&self.table, slot)
    }

    /// Moves the origin to the current virtual time, which keeps numbers small and changes no
    /// decision. Called at every wave's end, and by the queue if the running entity is far ahead.
    pub fn rebase(&mut self) {
        self.competition.rebase();
    }
}
