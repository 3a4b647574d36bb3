//! What can be read of a lane. Reading changes nothing.
//!
//! Elsewhere: reasons for decisions (`explain`), the whole lane as data (`export`), counters
//! (`counters`).

use crate::fair::Share;
use crate::lane::{Lane, LaneSettings, Population};
use crate::ledger::{LaneTotals, Ledger};
use crate::record::NIL;
use crate::types::{Refusal, State, Tag, WakeSource};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority, SchedulerOperation};

impl Lane {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> LaneId {
        self.id
    }

    /// What it was made with, with the policy it has now.
    #[must_use]
    pub const fn settings(&self) -> &LaneSettings {
        &self.settings
    }

    /// The lane's clock.
    #[must_use]
    pub const fn clock(&self) -> Cycles {
        Cycles(self.clock)
    }

    /// The current frame.
    #[must_use]
    pub const fn frame(&self) -> Frame {
        self.frame
    }

    /// Where the current frame ends on the lane's clock.
    #[must_use]
    pub const fn frame_end(&self) -> Cycles {
        Cycles(self.cache.frame_end)
    }

    /// Slices begun so far: the lane-local step.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.steps
    }

    /// Picks made so far; a slice that continues a quantum is not one.
    #[must_use]
    #[inline]
    pub const fn picks(&self) -> u64 {
        self.operations[SchedulerOperation::Pick as usize]
    }

    /// Cycles charged to coroutines so far.
    #[must_use]
    #[inline]
    pub const fn charged(&self) -> Cycles {
        Cycles(self.charged)
    }

    /// Wakes so far, by [`WakeSource`] in table order.
    #[must_use]
    pub const fn wakes(&self) -> &[u64; WakeSource::COUNT] {
        &self.tally.wakes
    }

    /// The ready-set digest; how it is made is in the header of `digest.rs` and in
    /// docs/scheduler.md.
    #[must_use]
    pub const fn ready_digest(&self) -> u64 {
        self.digest
    }

    /// What the clock is made of.
    #[must_use]
    pub fn totals(&self) -> LaneTotals {
        let mut overhead = [Cycles::ZERO; SchedulerOperation::ALL.len()];
        for (&operation, cycles) in SchedulerOperation::ALL.iter().zip(&mut overhead) {
            let count = self.operations[operation as usize];
            *cycles = Cycles(count * self.settings.costs.of(operation).0);
        }
        LaneTotals { charged: Cycles(self.charged), overhead, idle: Cycles(self.idle) }
    }

    /// The current coroutine.
    #[must_use]
    pub fn current(&self) -> Option<CoroutineRef> {
        (self.current != NIL).then(|| self.slab.reference(self.current))
    }

    /// Service that the other sessions of the lane owe a session (negative: it owes), in units of
    /// virtual time as in [`crate::fair::Carried::lag`]. `None` unless sessions share the lane and
    /// it has a coroutine here.
    #[must_use]
    pub fn session_lag(&self, session: u32) -> Option<i64> {
        self.fair.as_ref()?.session_lag(session)
    }

    /// Whether anything can run: a current or a ready coroutine.
    #[inline]
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.current != NIL || self.ready_count() > 0
    }

    /// Coroutines by state.
    #[must_use]
    pub fn population(&self) -> Population {
        Population {
            ready: self.ready_count(),
            running: u32::from(self.current != NIL),
            sleeping: self.sleepers.count(),
            blocked: self.counts.blocked,
            throttled: self.counts.throttled,
            ended: self.counts.ended,
        }
    }

    /// Records in use, ended ones included.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.slab.live()
    }

    /// Records that can be in use without another reservation.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slab.capacity()
    }

    /// A coroutine's state.
    ///
    /// # Errors
    /// Stale.
    pub fn state(&self, reference: CoroutineRef) -> Result<State, Refusal> {
        Ok(self.state_of(self.slab.live_slot(reference)?))
    }

    /// The caller's name for a coroutine.
    ///
    /// # Errors
    /// Stale.
    pub fn tag(&self, reference: CoroutineRef) -> Result<Tag, Refusal> {
        Ok(self.slab.hot(self.slab.live_slot(reference)?).tag)
    }

    /// What a coroutine has consumed.
    ///
    /// # Errors
    /// Stale.
    pub fn ledger(&self, reference: CoroutineRef) -> Result<Ledger, Refusal> {
        Ok(self.slab.ledger(self.slab.live_slot(reference)?))
    }

    /// A coroutine's weight and latency class.
    ///
    /// # Errors
    /// Stale.
    pub fn share(&self, reference: CoroutineRef) -> Result<Share, Refusal> {
        let cold = self.slab.cold(self.slab.live_slot(reference)?);
        Ok(Share { weight: cold.weight, class: cold.latency })
    }

    /// A coroutine's priority.
    ///
    /// # Errors
    /// Stale.
    pub fn priority(&self, reference: CoroutineRef) -> Result<Priority, Refusal> {
        Ok(self.slab.hot(self.slab.live_slot(reference)?).priority)
    }

    /// A coroutine's progress tokens.
    ///
    /// # Errors
    /// Stale.
    pub fn tokens(&self, reference: CoroutineRef) -> Result<u8, Refusal> {
        Ok(self.slab.hot(self.slab.live_slot(reference)?).tokens)
    }

    /// Every coroutine of a session on this lane, in the order they came to it.
    pub fn session(&self, session: u32) -> impl Iterator<Item = (CoroutineRef, Tag)> + '_ {
        let mut at = self.sessions.get(session).map_or(NIL, |list| list.head);
        core::iter::from_fn(move || {
            let slot = at;
            if slot == NIL {
                return None;
            }
            at = self.slab.session_links(slot).next;
            Some((self.slab.reference(slot), self.slab.hot(slot).tag))
        })
    }
}
