//! A lane's time: frames on a fixed grid, waves, idle cycles and jumps (semantics 20 to 25).
//!
//! Order of a frame: [`Lane::begin_frame`] (sleepers wake) -> [`Lane::begin_wave`] ->
//! ([`Lane::dispatch`], [`Lane::stop`])* -> [`Lane::align`] at the wave's end -> more waves ->
//! [`Lane::end_frame`], which gives the frame's conservation row.
//!
//! Contract: the clock never goes back; what is not charged or overhead is booked as idle.
//! Elsewhere: which lane's clock is the latest and when a wave ends for all (`kernel`).

use crate::carry::PicksAt;
use crate::digest::mix;
use crate::lane::Lane;
use crate::ledger::FrameRow;
use crate::queue::Entrance;
use crate::record::{ABREAST, Links, NIL, Place};
use crate::sleep::Due;
use crate::types::{BoundReason, Span, WakeSource};
use wavelock_abi::{Cycles, Frame, SchedulerOperation};

impl Lane {
    /// Begins frame `frame` (later than the current one, which has ended): skips to its start, the
    /// skipped cycles being idle, and wakes the sleepers due by now in order (frame, arrival), each
    /// at the cost of one timer. Gives how many woke.
    ///
    /// # Panics
    /// When the frame is not later, or a slice is open.
    pub fn begin_frame(&mut self, frame: Frame) -> u32 {
        assert!(frame > self.frame && !self.in_slice, "frames begin in order, between slices");
        let frame_cycles = self.settings.frame_cycles.0;
        self.frame = frame;
        self.idle_to(Cycles(frame.0 * frame_cycles));
        self.frame_end = (frame.0 + 1) * frame_cycles;
        self.frame_mark = self.totals();
        self.set_end();
        self.boundary = true;
        self.wake_sleepers()
    }

    fn wake_sleepers(&mut self) -> u32 {
        let mut woken = 0;
        self.woken.clear();
        loop {
            // A whole frame's list at once where there is one: it is in order, and nothing is
            // unlinked one by one.
            let mut due = self.sleepers.take_due(&mut self.slab, self.frame);
            let (mut next, mut slots) = (due.list().head, [NIL; ABREAST]);
            let mut count = 0;
            for _ in 0..if next == NIL { 0 } else { 2 * ABREAST } {
                self.sleepers.fetch(&self.slab, &mut due);
            }
            while next != NIL {
                let some;
                (some, next) = self.slab.follow(next, &mut slots);
                self.wake_some(&slots[..some], &mut due);
                count += some as u32;
            }
            self.sleepers.left(&due, count);
            if count == 0 {
                match self.sleepers.pop_due(&mut self.slab, self.frame) {
                    Some(early) => self.wake_sleeper(early),
                    None => return woken,
                }
                count = 1;
            }
            woken += count;
        }
    }

    /// [`Self::wake_sleeper`] of each, in this order: where picks go by arrival and none is held,
    /// without a look at the lane for each. Those who are due behind them are fetched meanwhile.
    #[inline(always)]
    fn wake_some(&mut self, slots: &[u32], due: &mut Due) {
        let &[first, .., last] = slots else {
            return slots.iter().for_each(|&slot| self.wake_sleeper(slot));
        };
        if !self.picks_by_arrival()
            || slots.iter().any(|&slot| !self.slab.hot(slot).held.is_empty())
        {
            return slots.iter().for_each(|&slot| self.wake_sleeper(slot));
        }
        let (cost, picks) =
            (self.settings.costs.of(SchedulerOperation::Timer).0, PicksAt::of(self.picks()));
        let (mut clock, mut arrival, mut digest) = (self.clock, self.arrivals, self.digest);
        let mut prev = self.ready.append_some(first, last);
        if prev != NIL {
            self.slab.links_mut(prev).next = first;
        }
        for (at, &slot) in slots.iter().enumerate() {
            clock += cost;
            let hot = self.slab.hot_mut(slot);
            hot.arrival = arrival;
            hot.picks_at = picks;
            hot.since = clock;
            hot.class = 0;
            hot.place = Place::ReadyList;
            digest = digest.wrapping_add(mix(hot.tag, hot.generation));
            self.woken.note(slot, hot.tag);
            *self.slab.links_mut(slot) =
                Links { prev, next: slots.get(at + 1).copied().unwrap_or(NIL) };
            self.sleepers.fetch(&self.slab, due);
            (prev, arrival) = (slot, arrival + 1);
        }
        (self.clock, self.arrivals, self.digest) = (clock, arrival, digest);
        self.operations.book_some(SchedulerOperation::Timer, slots.len() as u64);
        self.wakes[WakeSource::Timer as usize] += slots.len() as u64;
    }

    #[inline(never)]
    fn wake_sleeper(&mut self, slot: u32) {
        self.book(SchedulerOperation::Timer);
        self.wakes[WakeSource::Timer as usize] += 1;
        let _ = self.arrive(slot, Entrance::Wake);
    }

    /// Begins a wave of this span. A current coroutine has to pass the policy's preemption test
    /// before it goes on.
    ///
    /// # Panics
    /// When a slice is open.
    pub fn begin_wave(&mut self, span: Span) {
        assert!(!self.in_slice, "waves begin between slices");
        self.boundary = true;
        if let Some(fair) = &mut self.fair {
            fair.rebase();
        }
        (self.wave_end, self.last_step) = match span {
            Span::Picks(picks) => (u64::MAX, self.steps + u64::from(picks)),
            Span::Until(end) => (end.0, u64::MAX),
        };
        self.set_end();
        self.set_short_until();
        self.settle_if_due();
    }

    /// The nearer of the wave's and the frame's end; the frame's when they are equal (semantics
    /// 25).
    pub(crate) fn set_end(&mut self) {
        (self.end, self.end_reason) = match self.frame_end <= self.wave_end {
            true => (self.frame_end, BoundReason::FrameEnd),
            false => (self.wave_end, BoundReason::WaveEnd),
        };
    }

    /// Books the delivery of one cross-lane effect that the caller applies to this lane at a wave's
    /// end.
    pub fn accept_effect(&mut self) {
        self.book(SchedulerOperation::Inbox);
    }

    /// Aligns the clock at a wave's end: what is missing to `clock` is idle.
    pub fn align(&mut self, clock: Cycles) {
        self.idle_to(clock);
    }

    /// Ends the current frame: the rest of it is idle. Gives its conservation row.
    ///
    /// # Panics
    /// When a slice is open, or the row does not add up.
    pub fn end_frame(&mut self) -> FrameRow {
        assert!(!self.in_slice, "frames end between slices");
        self.idle_to(Cycles(self.frame_end));
        let row = self.row();
        assert!(row.is_conserved(self.settings.frame_cycles), "conservation: {row:?}");
        row
    }

    /// The row of the current frame so far. It adds up to the frame once the frame has ended;
    /// before, to the time elapsed in it.
    #[must_use]
    pub fn row(&self) -> FrameRow {
        let (mark, totals) = (&self.frame_mark, self.totals());
        let start = self.frame_end - self.settings.frame_cycles.0;
        FrameRow {
            frame: self.frame,
            charged: totals.charged - mark.charged,
            overhead: totals.overhead_total() - mark.overhead_total(),
            idle: totals.idle - mark.idle,
            overrun_in: mark.total() - Cycles(start),
            overrun_out: Cycles(self.clock).saturating_sub(Cycles(self.frame_end)),
        }
    }

    /// The frame in which the next sleeper wakes.
    pub fn next_wake(&mut self) -> Option<Frame> {
        self.sleepers.next(&mut self.slab)
    }

    pub(crate) fn idle_to(&mut self, clock: Cycles) {
        let idle = clock.0.saturating_sub(self.clock);
        self.idle += idle;
        self.clock += idle;
    }
}
