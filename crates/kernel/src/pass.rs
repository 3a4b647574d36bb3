//! From a plain yield to the next pick in one go, and the pick that `leave` shares.
//!
//! Contract: when [`Lane::pass`] gives a slice, it was a [`Lane::stop`] with
//! [`Outcome::Yielded`](crate::Outcome::Yielded) followed by a [`Lane::dispatch`] that gave it, to
//! the last bit of the lane's state (`tests/pass.rs` compares them); otherwise nothing has changed.
//! It exists because this pair is the commonest thing a lane does: everything is looked at before
//! anything is changed, and no token is made.

use crate::carry::PicksAt;
use crate::lane::{Began, Lane, Running};
use crate::record::{ABREAST, Hot, Links, NIL, Place};
use crate::sleep::Woken;
use crate::types::{BoundReason, Fetch, Tag};
use wavelock_abi::{CoroutineRef, Cycles, SchedulerOperation};

/// A pick of another coroutine than the one that ran, where it is known that nothing stands against
/// it.
#[derive(Clone, Copy)]
pub(crate) struct Turnover {
    /// Who comes up.
    pub(crate) first: u32,
    /// The clock when the slice before ended.
    pub(crate) stopped: u64,
    /// The clock when the next begins.
    pub(crate) clock: u64,
    pub(crate) bound: u64,
}

impl Hot {
    /// It comes up, after a wait that ended at `stopped`, and is not the one that ran. Gives its
    /// tag.
    #[inline(always)]
    pub(crate) fn come_up(&mut self, stopped: u64) -> Tag {
        let wait = stopped.wrapping_sub(self.since);
        self.wait_total += wait;
        if wait > self.wait_longest {
            core::hint::cold_path();
            self.wait_longest = wait;
        }
        self.switches += 1;
        if self.tokens != 0 {
            self.tokens -= 1;
        }
        self.place = Place::Running;
        self.tag
    }
}

impl Lane {
    /// The running coroutine, whose token is not needed any more, yields and the lane picks
    /// another, whose tag it gives. `None` if it is not known that this is the usual case; then
    /// nothing has changed, and [`Lane::pass_at_length`] does it if it is.
    ///
    /// As soon as it is certain, `begins` is told the bound of the slice that begins, and the
    /// lane's overhead before it: whoever is told then has nothing to keep meanwhile. It is not
    /// told if they are those of the slice before, which had no token. The same order, from what is
    /// known first to what is known last, is that of the changes here.
    #[inline(always)]
    #[must_use]
    pub fn pass(&mut self, used: Cycles, begins: impl FnOnce(Cycles, Cycles)) -> Option<Tag> {
        debug_assert!(self.in_slice, "a slice is open");
        let (slot, list) = (self.current, self.ready.in_order());
        let first = list.head;
        let (records, links) = self.slab.parts();
        let hot = records.get_mut(slot as usize)?;
        let runtime = hot.runtime_after(used)?;
        if !hot.held.is_empty() || first == NIL {
            return None;
        }
        let stopped = self.clock + used.0;
        let clock = stopped + self.turn_cost;
        if clock >= self.whole_until {
            core::hint::cold_path();
            if clock >= self.rest_until {
                return None;
            }
            begins(Cycles(self.end - clock), Cycles(clock - stopped));
        }
        self.clock = clock;
        self.charged += used.0;
        hot.runtime = runtime;
        hot.since = stopped;
        hot.arrival = self.arrivals;
        hot.picks_at = PicksAt::of(self.operations.count(SchedulerOperation::Pick, self.steps));
        hot.place = Place::ReadyList;
        self.arrivals += 1;
        self.steps += 1;
        self.current = first;
        // The one that ran goes to the tail, which is another one's, and the first leaves the head.
        let tail = core::mem::replace(&mut list.tail, slot);
        links[slot as usize] = Links { prev: tail, next: NIL };
        links[tail as usize].next = slot;
        list.head = links[first as usize].next;
        Some(records[first as usize].come_up(stopped))
    }

    /// [`Lane::pass`], where it is not known yet that it is the usual case. `None` if it is not;
    /// then nothing has changed, and [`Lane::pass_to_itself`], or a [`Lane::stop`] and a
    /// [`Lane::dispatch`], do it.
    #[inline(never)]
    #[must_use]
    pub fn pass_at_length(&mut self, used: Cycles) -> Option<Began> {
        let turnover = self.turnover(used)?;
        self.learn_turn(turnover);
        let Some(tag) = self.pass(used, |_, _| ()) else {
            self.forget_turn();
            return None;
        };
        self.quantum_left = self.quantum;
        Some(Began { tag, bound: Cycles(turnover.bound), overhead: Cycles(self.turn_cost) })
    }

    /// What follows when the open slice ends now and its coroutine leaves the lane, if picks go by
    /// arrival, somebody else is ready and no bound is reached.
    #[inline(always)]
    pub(crate) fn turnover(&self, used: Cycles) -> Option<Turnover> {
        debug_assert!(self.in_slice, "a slice is open");
        let first = self.ready.head_in_order();
        let stopped = self.clock + used.0;
        let clock = stopped + self.turn_cost;
        if first == NIL
            || !self.picks_by_arrival()
            || clock >= self.end
            || self.steps >= self.short_until
        {
            return None;
        }
        // Which of two equal bounds is meant is a question for `bound`.
        let left = self.end - clock;
        if left == self.quantum {
            return None;
        }
        Some(Turnover { first, stopped, clock, bound: left.min(self.quantum) })
    }

    /// What follows now follows again until one of these clocks, if nothing forgets it.
    #[inline(always)]
    fn learn_turn(&mut self, Turnover { clock, bound, .. }: Turnover) {
        // Each step costs a turn, and this is one.
        let settled =
            clock.saturating_add((self.short_until - self.steps).saturating_mul(self.turn_cost));
        if bound == self.quantum {
            self.whole_until = settled.min(self.end - bound);
        } else {
            self.rest_until = settled.min(self.end);
        }
    }

    /// Nothing is known of turns any more.
    #[inline(always)]
    pub(crate) const fn forget_turn(&mut self) {
        (self.whole_until, self.rest_until) = (0, 0);
    }

    /// The slice of somebody begins who has come up. It is not the one that ran, so this is a
    /// switch.
    #[inline(always)]
    pub(crate) fn begin(&mut self, turnover: Turnover, tag: Tag) -> Began {
        let Turnover { first, stopped, clock, bound } = turnover;
        if clock >= self.whole_until && clock >= self.rest_until {
            self.learn_turn(turnover);
        }
        self.clock = clock;
        self.steps += 1;
        self.quantum_left = self.quantum;
        self.current = first;
        Began { tag, bound: Cycles(bound), overhead: Cycles(clock - stopped) }
    }

    /// [`Lane::pass`] when nobody else is ready: the coroutine goes to the tail and comes up again
    /// at once, without a switch.
    #[inline(always)]
    #[must_use]
    pub fn pass_to_itself(&mut self, used: Cycles) -> Option<Began> {
        let stopped = self.clock + used.0;
        let overhead = self.settings.costs.of(SchedulerOperation::Pick);
        let clock = stopped + overhead.0;
        let is_usual = self.picks_by_arrival() && clock < self.end && self.steps < self.short_until;
        if !is_usual || !self.ready.is_class_empty(0) || self.end - clock == self.quantum {
            return None;
        }
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.hot_mut(self.current);
        if !hot.held.is_empty() {
            return None;
        }
        hot.runtime = hot.runtime_after(used)?;
        let tag = hot.tag;
        hot.arrival = arrival;
        hot.picks_at = PicksAt::of(picks);
        hot.since = stopped;
        hot.tokens = hot.tokens.saturating_sub(1);

        // A step that is a pick and no switch.
        self.operations.step_without(SchedulerOperation::Switch);
        self.clock = clock;
        self.charged += used.0;
        self.arrivals = arrival + 1;
        self.steps += 1;
        self.quantum_left = self.quantum;
        self.forget_turn();
        Some(Began { tag, bound: Cycles(self.quantum.min(self.end - clock)), overhead })
    }

    /// The token of the open slice, which [`Lane::pass`] or [`Lane::leave`] began with this bound.
    /// It is asked for when the slice has begun, so it is neither picked nor switched now.
    pub fn token(&mut self, bound: Cycles) -> Running {
        debug_assert!(self.in_slice, "a slice is open");
        self.forget_turn();
        let hot = self.slab.hot(self.current);
        let reason = if bound.0 == self.quantum { BoundReason::Quantum } else { self.end_reason };
        let reference = CoroutineRef::new(self.current, hot.generation);
        Running { reference, tag: hot.tag, bound, reason, picked: false, switched: false }
    }

    /// How the lane asks for what it needs soon to be in a cache. It asks nobody before this.
    pub fn set_fetch(&mut self, fetch: Fetch) {
        self.slab.fetch = fetch;
    }

    /// Fetches the records of those that will probably run next, and names them, and once more
    /// those of them who run soon: whoever keeps more of them can fetch that too. With what their
    /// ends need, if they may end. Changes nothing. Gives after how many turns to ask again.
    #[inline(always)]
    pub fn read_ahead(&mut self, may_end: bool, mut each: impl FnMut(Tag, bool)) -> u32 {
        let [soon, later] = self.woken.next();
        if !(soon.is_empty() && later.is_empty()) {
            for &(slot, tag) in later {
                self.slab.fetch(slot);
                if may_end {
                    (self.slab.fetch)(self.slab.kin(slot));
                }
                each(tag, false);
            }
            soon.iter().for_each(|&(_, tag)| each(tag, true));
            return Woken::STEP as u32;
        }
        let first = self.ready.head_in_order();
        if first == NIL || self.slab.links(first).next == first.wrapping_add(1) {
            // In the order in which they are in memory: a processor reads that ahead by itself.
            return ABREAST as u32;
        }
        let mut slots = [NIL; ABREAST];
        let (count, _) = self.slab.follow(first, &mut slots);
        slots[..count].iter().for_each(|&slot| self.slab.fetch(slot));
        for is_soon in [false, true] {
            slots[..count].iter().for_each(|&slot| each(self.slab.hot(slot).tag, is_soon));
        }
        ABREAST as u32
    }

    /// Whether picks go by arrival alone and nobody watches them: what [`Lane::pass`] takes for
    /// granted.
    #[inline(always)]
    pub(crate) fn picks_by_arrival(&self) -> bool {
        debug_assert_eq!(
            self.is_simple,
            self.is_fifo && self.is_plain && !self.is_measured && self.preferred.is_none()
        );
        self.is_simple
    }

    /// One of the flags that `is_simple` sums up has changed.
    pub(crate) fn renew_simple(&mut self) {
        self.is_simple =
            self.is_fifo && self.is_plain && !self.is_measured && self.preferred.is_none();
        self.wakes_simply = self.is_simple && !self.settings.handoff;
        self.forget_turn();
    }
}
