//! Ending a slice: the fast path to the next slice, and the token of a slice it began.
//!
//! [`Lane::stop`] (and [`Lane::reap`] after a finish) followed by [`Lane::dispatch`] define what
//! happens. [`Lane::switch`] does the same in one call for the common case: FIFO or fair picks, no
//! contexts, no measuring, no preferred coroutine, waves bounded by the clock, and no bound
//! reached.
//!
//! Contract: when [`Lane::switch`] returns a slice, the lane exports the same state as after those
//! calls (`tests/switch.rs` compares them). When it returns `None`, nothing
//! has changed. It checks everything first, in one prelude for all departures; what differs is
//! where the coroutine goes; one epilogue starts the next slice.
//!
//! What it gains is in docs/performance/system.md.

use crate::digest::mix;
use crate::fair::Leave;
use crate::lane::{Cache, Lane, Running};
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
        let (slot, queue) = (self.current, *self.ready.class(0));
        let next = queue.list.head;
        if next == NIL {
            return self.switch_unlisted(used, departure);
        }
        let Cache { quantum, switch_cost, fast_end, .. } = self.cache;
        let stopped = self.clock + used.0;
        let clock = stopped + switch_cost;
        if clock >= fast_end || queue.heap != NIL || self.preferred.is_some() {
            return None;
        }
        // Which of two equal bounds applies is decided by the slow path.
        let left = fast_end - clock;
        if left == quantum {
            return None;
        }
        let (records, _) = self.slab.parts();
        let [hot, first] = records.get_disjoint_mut([slot as usize, next as usize]).ok()?;
        let runtime = hot.runtime_after(used)?;
        let departs = match departure {
            Departure::Yield | Departure::Finish => true,
            Departure::Block(reason) => hot.counts_wait(reason),
            Departure::Sleep(frame) => frame > self.frame,
        };
        if !departs || !hot.held.is_empty() {
            return None;
        }
        first.begin_slice(stopped, true)?;

        // Each value is stored as soon as it is known, so that few have to stay in registers.
        let (tag, bound) = (first.tag, Cycles(left.min(quantum)));
        (self.clock, self.quantum_left, self.current) = (clock, quantum, next);
        self.charged += used.0;
        self.steps += 1;
        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.operations[SchedulerOperation::Switch as usize] += 1;
        hot.set_runtime(runtime);
        hot.since = stopped;
        if departure == Departure::Yield {
            hot.arrival = self.arrivals;
            hot.picks_at = self.operations[SchedulerOperation::Pick as usize] - 1;
            hot.place = Place::ReadyList;
            self.arrivals += 1;
        } else {
            self.digest = self.digest.wrapping_sub(mix(hot.tag, hot.generation));
        }
        if let Departure::Block(reason) = departure {
            hot.place = Place::Blocked;
            hot.count_wait(reason);
            self.counts.blocked += 1;
        }
        let (_, links) = self.slab.parts();
        match departure {
            Departure::Yield => self.ready.rotate(links, slot, next),
            _ => self.ready.pop_head(links, next),
        }
        self.depart(slot, departure);
        Some(Began { tag, bound, overhead: Cycles(self.cache.switch_cost) })
    }

    /// A coroutine that sleeps joins the sleepers; the record of one that ended is freed.
    #[inline(always)]
    fn depart(&mut self, slot: u32, departure: Departure) {
        match departure {
            Departure::Yield | Departure::Block(_) => {}
            Departure::Sleep(frame) => {
                self.slab.count_sleep(slot);
                self.sleep_until(slot, frame);
            }
            Departure::Finish => {
                self.sessions.remove(&mut self.slab, slot);
                self.slab.free(slot);
            }
        }
    }

    /// [`Lane::switch`] without a FIFO to take the next coroutine from.
    #[inline(never)]
    fn switch_unlisted(&mut self, used: Cycles, departure: Departure) -> Option<Began> {
        match (self.cache.fair_end, departure) {
            (0, Departure::Yield) => self.yield_alone(used),
            (0, _) => None,
            _ => self.switch_shared(used, departure),
        }
    }

    /// [`Lane::switch`] under `Fair`.
    #[inline(never)]
    fn switch_shared(&mut self, used: Cycles, departure: Departure) -> Option<Began> {
        if departure == Departure::Yield
            && let Some(began) = self.yield_fair(used)
        {
            return Some(began);
        }
        self.switch_fair(used, departure)
    }

    /// [`Lane::switch`] under `Fair` after a yield, but for the end of a session's protection.
    #[inline(always)]
    fn yield_fair(&mut self, used: Cycles) -> Option<Began> {
        let Cache { fair_end, switch_cost, .. } = self.cache;
        let (slot, stopped) = (self.current, self.clock + used.0);
        let hot = self.slab.hot(slot);
        if stopped + switch_cost >= fair_end || self.preferred.is_some() || !hot.held.is_empty() {
            return None;
        }
        let runtime = hot.runtime_after(used)?;
        let (next, bound) = self.fair.as_mut()?.yield_to_next(used, stopped)?;
        let hot = self.slab.hot_mut(slot);
        hot.set_runtime(runtime);
        hot.since = stopped;
        hot.arrival = self.arrivals;
        hot.picks_at = self.operations[SchedulerOperation::Pick as usize];
        (hot.place, hot.class) = (Place::ReadyFair, 0);
        self.arrivals += 1;
        self.charged += used.0;
        self.steps += 1;
        Some(self.begin_fair(next, stopped, bound.0))
    }

    /// Begins a slice of `next`, which `fair` picked, for `quantum` or to the end of the wave.
    #[inline(always)]
    fn begin_fair(&mut self, next: u32, stopped: u64, quantum: u64) -> Began {
        let Cache { fair_end, pick_cost, switch_cost, end_reason, .. } = self.cache;
        let is_switch = next != self.current;
        self.quantum_left = quantum;
        let hot = self.slab.hot_mut(next);
        let tag = hot.tag;
        if hot.begin_slice(stopped, is_switch).is_none() {
            self.slab.begin_slice(next, stopped, is_switch);
        }
        self.current = next;
        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.operations[SchedulerOperation::Switch as usize] += u64::from(is_switch);
        let overhead = if is_switch { switch_cost } else { pick_cost };
        self.clock = stopped + overhead;
        let left = fair_end - self.clock;
        // The frame's end goes before the quantum, and that before the wave's end.
        let by_quantum = self.quantum_left < left
            || self.quantum_left == left && end_reason == BoundReason::WaveEnd;
        self.fair_reason = if by_quantum { BoundReason::Quantum } else { end_reason };
        let bound = Cycles(self.quantum_left.min(left));
        Began { tag, bound, overhead: Cycles(overhead) }
    }

    /// [`Lane::switch`] under `Fair`, of any kind.
    #[inline(never)]
    fn switch_fair(&mut self, used: Cycles, departure: Departure) -> Option<Began> {
        let Cache { fair_end, switch_cost, .. } = self.cache;
        let (slot, stopped) = (self.current, self.clock + used.0);
        let hot = self.slab.hot_mut(slot);
        if stopped + switch_cost >= fair_end || self.preferred.is_some() || !hot.held.is_empty() {
            return None;
        }
        let runtime = hot.runtime_after(used)?;
        let fair = self.fair.as_mut()?;
        let departs = match departure {
            Departure::Yield => true,
            Departure::Block(reason) => hot.counts_wait(reason) && fair.has_queued(),
            Departure::Sleep(frame) => frame > self.frame && fair.has_queued(),
            Departure::Finish => fair.has_queued(),
        };
        if !departs {
            return None;
        }

        hot.set_runtime(runtime);
        hot.since = stopped;
        self.charged += used.0;
        self.steps += 1;
        fair.charge_later(used, stopped);
        match departure {
            Departure::Yield => {
                hot.arrival = self.arrivals;
                hot.picks_at = self.operations[SchedulerOperation::Pick as usize];
                (hot.place, hot.class) = (Place::ReadyFair, 0);
                self.arrivals += 1;
                fair.yield_running();
            }
            Departure::Block(reason) => {
                hot.place = Place::Blocked;
                hot.count_wait(reason);
                self.counts.blocked += 1;
                fair.leave(slot, Leave::Sleep);
            }
            Departure::Sleep(_) => fair.leave(slot, Leave::Sleep),
            Departure::Finish => fair.leave(slot, Leave::Exit),
        }
        let (tag, generation) = (hot.tag, hot.generation);
        let next = fair.pick().expect("fair: a coroutine is queued");
        fair.mark(stopped);
        let quantum = fair.bound().0.max(1);
        if departure != Departure::Yield {
            self.digest = self.digest.wrapping_sub(mix(tag, generation));
        }
        self.depart(slot, departure);
        Some(self.begin_fair(next, stopped, quantum))
    }

    /// A yield while no other coroutine is ready: the same one is picked again, without a switch.
    #[inline(always)]
    fn yield_alone(&mut self, used: Cycles) -> Option<Began> {
        let Cache { quantum, pick_cost, fast_end, .. } = self.cache;
        let stopped = self.clock + used.0;
        let clock = stopped + pick_cost;
        let is_plain = self.ready.class(0).heap == NIL && self.preferred.is_none();
        if clock >= fast_end || !is_plain || fast_end - clock == quantum {
            return None;
        }
        let hot = self.slab.hot_mut(self.current);
        let runtime = hot.runtime_after(used)?;
        if !hot.held.is_empty() {
            return None;
        }
        hot.set_runtime(runtime);
        hot.since = stopped;
        hot.arrival = self.arrivals;
        hot.picks_at = self.operations[SchedulerOperation::Pick as usize];
        hot.tokens = hot.tokens.saturating_sub(1);
        let tag = hot.tag;
        self.arrivals += 1;
        self.clock = clock;
        self.charged += used.0;
        self.steps += 1;
        self.operations[SchedulerOperation::Pick as usize] += 1;
        self.quantum_left = quantum;
        let bound = Cycles(quantum.min(fast_end - clock));
        Some(Began { tag, bound, overhead: Cycles(pick_cost) })
    }

    /// Sets how the lane prefetches records; it does not before this.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.slab.prefetch = prefetch;
    }

    /// Prefetches the coroutines that will run next, as a pipeline of two stages: of the ready
    /// queue's first 28 coroutines the last 14 get their records; `with` gets the tags of the first
    /// 14, whose records the last call prefetched, and of the others, so that the caller can
    /// prefetch what it holds of them. Returns after how many switches to call it again. Changes
    /// nothing else.
    #[inline(always)]
    pub fn prefetch(&self, with: impl FnOnce(&[Tag], &[Tag])) -> u32 {
        let first = self.ready.class(0).list.head;
        // Records in slot order are prefetched by the processor itself.
        if first != NIL && self.slab.links(first).next != first.wrapping_add(1) {
            let (mut slots, mut tags) = ([NIL; 2 * PREFETCH], [Tag(0); 2 * PREFETCH]);
            let (count, _) = self.slab.follow(first, &mut slots);
            let near = count.min(PREFETCH);
            slots[near..count].iter().for_each(|&slot| self.slab.prefetch(slot));
            for (tag, &slot) in tags.iter_mut().zip(&slots[..count]) {
                *tag = self.slab.hot(slot).tag;
            }
            with(&tags[..near], &tags[near..count]);
        }
        PREFETCH as u32
    }

    /// The token of the open slice, which [`Lane::switch`] began with this bound. It is made after
    /// the slice began, so it says neither picked nor switched.
    pub fn token(&self, bound: Cycles) -> Running {
        debug_assert!(self.in_slice, "a slice is open");
        let hot = self.slab.hot(self.current);
        let is_quantum = bound.0 == self.cache.quantum;
        let reason = match self.fair {
            Some(_) => self.fair_reason,
            None if is_quantum => BoundReason::Quantum,
            None => self.cache.end_reason,
        };
        Running {
            reference: CoroutineRef::new(self.current, hot.generation),
            tag: hot.tag,
            bound,
            reason,
            picked: false,
            switched: false,
        }
    }
}
