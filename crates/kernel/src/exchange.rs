//! Crossing lanes: what one lane does to another during a wave, and the order in which it happens
//! at the wave's end.
//!
//! During a wave lanes cannot see each other, so a lane can run on any thread. An effect on another
//! lane goes into the sending lane's [`Outbox`]. When every lane has stopped, the machine aligns
//! the clocks to the latest ([`latest_clock`], [`Lane::align`](crate::Lane::align)) and
//! [`exchange`] applies the effects.
//!
//! Contract: canonical order is (sending lane, lane-local step, sequence within the step),
//! whichever threads ran the lanes (semantics 15). An outbox is in order of steps already, so
//! [`exchange`] drains the outboxes in lane order and sorts nothing.
//!
//! Elsewhere: what an effect does is the machine's (`system`; in the tests `tests/support`). Moving
//! sessions at a wave's end is `migrate`.

use crate::lane::{Lane, Population};
use alloc::vec::Vec;
use wavelock_abi::{Cycles, LaneId};

/// The effects of one lane on others in one wave, in the order they were made.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    effects: Vec<(LaneId, T)>,
}

impl<T> Outbox<T> {
    /// An empty outbox.
    #[must_use]
    pub const fn new() -> Self {
        Self { effects: Vec::new() }
    }

    /// Posts an effect on lane `to`.
    pub fn post(&mut self, to: LaneId, effect: T) {
        self.effects.push((to, effect));
    }

    /// Removes and returns every effect, in order, with its target lane. The capacity stays.
    pub fn drain(&mut self) -> impl Iterator<Item = (LaneId, T)> + '_ {
        self.effects.drain(..)
    }

    /// The effects, in order, with their target lanes.
    pub fn iter(&self) -> impl Iterator<Item = &(LaneId, T)> {
        self.effects.iter()
    }

    /// Whether nothing was posted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The lanes of a machine at a wave's end, for [`exchange`].
pub trait Exchange {
    /// What a lane can do to another.
    type Effect;

    /// The number of lanes.
    fn lanes(&self) -> u16;

    /// A lane's outbox.
    fn outbox(&mut self, lane: LaneId) -> &mut Outbox<Self::Effect>;

    /// Applies an effect of lane `from` on lane `to`. May post further effects.
    fn apply(&mut self, from: LaneId, to: LaneId, effect: Self::Effect);

    /// The sending lane at `position` of the canonical order: ascending. Tests override it, to show
    /// that another order is noticed.
    fn sender(&self, position: u16) -> LaneId {
        LaneId(position)
    }
}

/// Applies every posted effect in canonical order. Effects that are posted meanwhile are applied
/// too: by a lane that comes later in the order in the same round, by others in the next.
pub fn exchange<M: Exchange>(machine: &mut M) {
    let lanes = machine.lanes();
    while (0..lanes).any(|lane| !machine.outbox(LaneId(lane)).is_empty()) {
        for position in 0..lanes {
            let from = machine.sender(position);
            let mut outbox = core::mem::take(machine.outbox(from));
            for (to, effect) in outbox.drain() {
                machine.apply(from, to, effect);
            }
            // Reuse its capacity, unless an effect posted to this lane's outbox again.
            let own = machine.outbox(from);
            if own.is_empty() {
                *own = outbox;
            }
        }
    }
}

/// The clock of the latest lane, to which all are aligned at a wave's end.
#[must_use]
pub fn latest_clock<'a>(lanes: impl Iterator<Item = &'a Lane>) -> Cycles {
    lanes.map(Lane::clock).max().unwrap_or(Cycles::ZERO)
}

impl Population {
    /// Whether no coroutine can run, now or by itself later: each has ended or waits for a wake. If
    /// this holds on every lane, no effect is posted and no input is left, then what waits is
    /// deadlocked (semantics 29).
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.ready == 0 && self.running == 0 && self.sleeping == 0 && self.throttled == 0
    }
}
