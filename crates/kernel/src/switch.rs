//! Ending a slice: the fast path to the next slice, and the token of a slice it began.
//!
//! [`Lane::stop`] (and [`Lane::reap`] after a finish) followed by [`Lane::dispatch`] define what
//! happens. [`Lane::switch`] does the same in one call for the common case: FIFO picks, no
//! contexts, no measuring, no preferred coroutine, and no bound reached.
//!
//! Contract: when [`Lane::switch`] returns a slice, the lane is in the state that those calls would
//! have left, to the last bit (`tests/switch.rs` compares them). When it returns `None`, nothing
//! has changed. It checks everything first, in one prelude for all departures; what differs is
//! where the coroutine goes; one epilogue starts the next slice.
//!
//! What it gains: a yield with it takes 0.6 of the time, a message of a pair 0.8 (instruction counts
//! in docs/performance/system.md).

use crate::lane::{Lane, Running};
use crate::record::{NIL, PREFETCH, Place};
use crate::types::{BlockReason, BoundReason, Outcome, Prefetch, Tag};
use wavelock_abi::{CoroutineRef, Cycles, Frame, SchedulerOperation};

/// How the running coroutine gives up the lane; see [`Lane::switch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// It yields: to the tail of the ready queue.
    Yield,
    /// It waits for a wake.
    Block(BlockReason),
    /// It sleeps until this frame.
    Sleep(Frame),
    /// It ended, and its record is freed.
    Finish,
}

impl Departure {
    /// The same for [`Lane::stop`].
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Yield => Outcome::Yielded,
            Self::Block(reason) => Outcome::Blocked(reason),
            Self::Sleep(frame) => Outcome::Slept(frame),
            Self::Finish => Outcome::Finished,
        }
    }
}

/// A slice that [`Lane::switch`] began. It has no token; [`Lane::token`] makes one if needed.
#[must_use = "a slice that began must be stopped"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Began {
    /// The caller's name for the coroutine.
    pub tag: Tag,
    /// Cycles it may run; at least one.
    pub bound: Cycles,
    /// What the pick and the switch cost.
    pub overhead: Cycles,
}

impl Lane {
    /// Ends the open slice after `used` cycles and dispatches the next coroutine. `None` if this is
    /// not the common case; then nothing has changed, and the caller uses [`Lane::stop`] (with
    /// [`Departure::outcome`], and [`Lane::reap`] after a finish) and [`Lane::dispatch`].
    #[inline(always)]
    #[must_use]
    pub fn switch(&mut self, used: Cycles, departure: Departure) -> Option<Began> {
        debug_assert!(self.in_slice, "a slice is open");
        let slot = self.current;
        let queue = *self.ready.class(0);
        let is_alone = queue.list.head == NIL;
        let next = if is_alone && departure == Departure::Yield { slot } else { queue.list.head };
        let overhead = if is_alone { self.cache.pick_cost } else { self.cache.switch_cost };
        let stopped = self.clock + used.0;
        let clock = stopped + overhead;
        if next == NIL
            || !self.cache.is_fast
            || queue.heap != NIL
            || self.preferred.is_some()
            || clock >= self.cache.end
            || self.steps >= self.last_step
        {
            return None;
        }
        // Which of two equal bounds applies is decided by the slow path.
        let left = self.cache.end - clock;
        let wakes_later = !matches!(departure, Departure::Sleep(frame) if frame <= self.frame);
        if left == self.cache.quantum || !wakes_later {
            return None;
        }
        let (records, links) = self.slab.parts();
        let hot = &records[slot as usize];
        let runtime = hot.runtime_after(used)?;
        if !hot.held.is_empty() {
            return None;
        }
        if !is_alone {
            records[next as usize].begin_slice(stopped, true)?;
        }

        let hot = &mut records[slot as usize];
        hot.set_runtime(runtime);
        hot.since = stopped;
        match departure {
            Departure::Yield => {
                hot.arrival = self.arrivals;
                hot.picks_at = self.operations[SchedulerOperation::Pick as usize];
                self.arrivals += 1;
                if is_alone {
                    hot.tokens = hot.tokens.saturating_sub(1);
                } else {
                    hot.place = Place::ReadyList;
                    self.ready.rotate(links, slot);
                }
            }
            Departure::Block(reason) => {
                hot.place = Place::Blocked;
                self.ready.pop_head(links);
                self.leave_runnable(slot);
                self.counts.blocked += 1;
                self.slab.count_wait(slot, reason);
            }
            Departure::Sleep(frame) => {
                self.ready.pop_head(links);
                self.leave_runnable(slot);
                self.slab.count_sleep(slot);
                self.sleep_until(slot, frame);
            }
            Departure::Finish => {
                self.ready.pop_head(links);
                self.leave_runnable(slot);
                self.sessions.remove(&mut self.slab, slot);
                self.slab.free(slot);
            }
        }
        self.clock = clock;
        self.charged += used.0;
        self.steps += 1;
        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.operations[SchedulerOperation::Switch as usize] += u64::from(!is_alone);
        self.current = next;
        self.quantum_left = self.cache.quantum;
        let bound = Cycles(left.min(self.cache.quantum));
        Some(Began { tag: self.slab.hot(next).tag, bound, overhead: Cycles(overhead) })
    }

    /// Sets how the lane prefetches records; it does not before this.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.slab.prefetch = prefetch;
    }

    /// Prefetches the records of the coroutines that will probably run next and calls `with` with
    /// their tags, so that the caller can prefetch what it holds of them. Returns after how many
    /// switches to call it again. Changes nothing else.
    #[inline(always)]
    pub fn prefetch(&self, with: impl FnOnce(&[Tag])) -> u32 {
        let first = self.ready.class(0).list.head;
        // Records in slot order are prefetched by the processor itself.
        if first != NIL && self.slab.links(first).next != first.wrapping_add(1) {
            let (mut slots, mut tags) = ([NIL; PREFETCH], [Tag(0); PREFETCH]);
            let (count, _) = self.slab.follow(first, &mut slots);
            slots[..count].iter().for_each(|&slot| self.slab.prefetch(slot));
            for (tag, &slot) in tags.iter_mut().zip(&slots[..count]) {
                *tag = self.slab.hot(slot).tag;
            }
            with(&tags[..count]);
        }
        PREFETCH as u32
    }

    /// The token of the open slice, which [`Lane::switch`] began with this bound. It is made after
    /// the slice began, so it says neither picked nor switched.
    pub fn token(&self, bound: Cycles) -> Running {
        debug_assert!(self.in_slice, "a slice is open");
        let hot = self.slab.hot(self.current);
        let is_quantum = bound.0 == self.cache.quantum;
        Running {
            reference: CoroutineRef::new(self.current, hot.generation),
            tag: hot.tag,
            bound,
            reason: if is_quantum { BoundReason::Quantum } else { self.cache.end_reason },
            picked: false,
            switched: false,
        }
    }
}
