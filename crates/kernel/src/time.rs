//! A lane's time: frames on a fixed grid, waves, idle cycles and jumps (semantics 20 to 25).
//!
//! Order of a frame: [`Lane::begin_frame`] (sleepers wake) -> [`Lane::begin_wave`] ->
//! ([`Lane::dispatch`], [`Lane::stop`])* -> [`Lane::align`] at the wave's end -> more waves ->
//! [`Lane::end_frame`], which returns the frame's conservation row.
//!
//! Contract: the clock never moves back; cycles that are neither charged nor overhead are idle.
//!
//! Elsewhere: which lane's clock is the latest and when a wave ends for all (`exchange`).

use crate::lane::{Lane, WaveEnd};
use crate::ledger::FrameRow;
use crate::queue::Entrance;
use crate::record::{NIL, PREFETCH};
use crate::types::{Span, WakeSource};
use wavelock_abi::{Cycles, Frame, SchedulerOperation};

impl Lane {
    /// Begins frame `frame` (later than the current one, which has ended): skips to its start, the
    /// skipped cycles being idle, wakes the sleepers due by now in order (frame, arrival), each at
    /// the cost of one timer, and refills the caps whose period begins. Returns how many woke.
    ///
    /// # Panics
    /// When the frame is not later, or a slice is open.
    pub fn begin_frame(&mut self, frame: Frame) -> u32 {
        assert!(frame > self.frame && !self.in_slice, "frames begin in order, between slices");
        let frame_cycles = self.settings.frame_cycles.0;
        let from = core::mem::replace(&mut self.frame, frame);
        self.idle_to(Cycles(frame.0 * frame_cycles));
        self.frame_mark = self.totals();
        self.refresh();
        self.boundary = true;
        let woken = self.wake_sleepers();
        if !self.caps.is_empty() {
            self.refill_caps(from);
        }
        woken
    }

    fn wake_sleepers(&mut self) -> u32 {
        let mut woken = 0;
        loop {
            if let Some(slot) = self.sleepers.pop_early(&mut self.slab, self.frame) {
                self.wake_sleeper(slot);
                woken += 1;
                continue;
            }
            let mut next = self.sleepers.take_due(&mut self.slab, self.frame).head;
            if next == NIL {
                return woken;
            }
            // In batches whose records are prefetched: a million sleepers fit no cache.
            while next != NIL {
                let mut slots = [NIL; PREFETCH];
                let count;
                (count, next) = self.slab.follow(next, &mut slots);
                slots[..count].iter().for_each(|&slot| self.slab.prefetch(slot));
                slots[..count].iter().for_each(|&slot| self.wake_sleeper(slot));
                self.sleepers.forget(count as u32);
                woken += count as u32;
            }
        }
    }

    fn wake_sleeper(&mut self, slot: u32) {
        self.book(SchedulerOperation::Timer);
        self.caused_by(slot, SchedulerOperation::Timer);
        self.tally.wakes[WakeSource::Timer as usize] += 1;
        let _ = self.arrive(slot, Entrance::Wake);
    }

    /// Begins a wave of this span. A current coroutine has to pass the policy's preemption test
    /// before it continues.
    ///
    /// # Panics
    /// When a slice is open.
    pub fn begin_wave(&mut self, span: Span) {
        assert!(!self.in_slice, "waves begin between slices");
        self.boundary = true;
        if let Some(fair) = &mut self.fair {
            fair.rebase();
        }
        self.wave_end = match span {
            Span::Picks(picks) => WaveEnd { clock: u64::MAX, step: self.steps + u64::from(picks) },
            Span::Until(end) => WaveEnd { clock: end.0, step: u64::MAX },
        };
        self.refresh();
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

    /// Ends the current frame: the rest of it is idle. Returns its conservation row.
    ///
    /// # Panics
    /// When a slice is open, or the row does not add up.
    pub fn end_frame(&mut self) -> FrameRow {
        assert!(!self.in_slice, "frames end between slices");
        self.idle_to(Cycles(self.cache.frame_end));
        let row = self.row();
        assert!(row.is_conserved(self.settings.frame_cycles), "conservation: {row:?}");
        row
    }

    /// The row of the current frame so far. It adds up to the frame once the frame has ended;
    /// before, to the time elapsed in it.
    #[must_use]
    pub fn row(&self) -> FrameRow {
        let (mark, totals) = (&self.frame_mark, self.totals());
        let start = self.cache.frame_end - self.settings.frame_cycles.0;
        FrameRow {
            frame: self.frame,
            charged: totals.charged - mark.charged,
            overhead: totals.overhead_total() - mark.overhead_total(),
            idle: totals.idle - mark.idle,
            overrun_in: mark.total() - Cycles(start),
            overrun_out: Cycles(self.clock).saturating_sub(Cycles(self.cache.frame_end)),
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
