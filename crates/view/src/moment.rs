//! Moments: the events of a run with their times, in canonical order.
//!
//! A trace contains few times: the start of each wave on a lane, and the cost of each step. The
//! others follow from the rules: a step starts after its overhead, a wake costs what the table
//! says, lanes align at a wave's end. A wake or message inside a slice gets the start time of the
//! slice, as in the scheduler's own accounting.

use crate::clock::{Segment, segments};
use std::collections::BTreeMap;
use wavelock_abi::SCHEDULER_COSTS_V1;
use wavelock_trace::{Event, EventError, EventReader, StopCode};

/// A coroutine as traces name it: session and slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoroutineSlot {
    /// The session's number in the manifest.
    pub session: u64,
    /// The slot in that session.
    pub slot: u64,
}

/// One step in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The lane.
    pub lane: u16,
    /// The coroutine.
    pub coroutine: CoroutineSlot,
    /// The lane clock when the coroutine started, after the scheduler's own cycles.
    pub start: u64,
    /// The lane clock when it stopped.
    pub end: u64,
    /// Scheduler cycles before it.
    pub overhead: u64,
    /// Guest cycles in it.
    pub used: u64,
    /// When it became ready; `None` if it continued without being queued.
    pub ready_since: Option<u64>,
    /// Why it stopped.
    pub stop: StopCode,
}

impl Slice {
    /// How long it had been ready when it was picked: its wait in the scheduler's ledger. `None` if
    /// it continued without a pick.
    #[must_use]
    pub fn waited(&self) -> Option<u64> {
        self.ready_since.map(|since| self.start.saturating_sub(self.overhead).saturating_sub(since))
    }
}

/// A slice or an event, with its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment<'a> {
    /// A step.
    Slice(Slice),
    /// Another event of a lane.
    Event {
        /// The lane.
        lane: u16,
        /// The lane's clock.
        at: u64,
        /// The coroutine of the slice; `None` at a boundary.
        by: Option<CoroutineSlot>,
        /// The event.
        event: Event<'a>,
    },
    /// An event of a frame's boundary.
    Boundary {
        /// The machine's clock.
        at: u64,
        /// The event.
        event: Event<'a>,
    },
}

/// Reads frames in order and assigns times to their events.
#[derive(Clone, Debug)]
pub struct Moments {
    frame_cycles: u64,
    /// By lane: its clock.
    clocks: Vec<u64>,
    ready: BTreeMap<CoroutineSlot, u64>,
    /// Sleeping coroutines, by the frame in which they wake.
    sleeping: BTreeMap<u64, Vec<CoroutineSlot>>,
    /// By lane: the coroutine that stopped at a boundary and continues without a pick if the policy
    /// allows it.
    kept: Vec<Option<CoroutineSlot>>,
    /// By lane: the coroutine that ended in the last slice of this wave. The effects of its end
    /// follow its step.
    ended: Vec<Option<CoroutineSlot>>,
}

impl Moments {
    /// A reader for a run from its start.
    #[must_use]
    pub fn new(lanes: u16, frame_cycles: u64) -> Self {
        let count = usize::from(lanes);
        Self {
            frame_cycles,
            clocks: vec![0; count],
            ready: BTreeMap::new(),
            sleeping: BTreeMap::new(),
            kept: vec![None; count],
            ended: vec![None; count],
        }
    }

    /// Marks the first coroutine of each session as ready. Without this their first waits are
    /// unknown.
    pub fn begin(&mut self, sessions: u64) {
        self.ready.extend((0..sessions).map(|session| (CoroutineSlot { session, slot: 0 }, 0)));
    }

    /// Reads the events of one frame: those of its boundary and of its lanes.
    ///
    /// # Errors
    /// The bytes are not events.
    pub fn frame<'a>(
        &mut self,
        frame: u64,
        boundary: &'a [u8],
        lanes: &[&'a [u8]],
        see: &mut dyn FnMut(Moment<'a>),
    ) -> Result<(), EventError> {
        self.clocks.resize(self.clocks.len().max(lanes.len()), 0);
        self.kept.resize(self.clocks.len(), None);
        self.ended.resize(self.clocks.len(), None);
        let began = self.latest().max(frame.saturating_mul(self.frame_cycles));
        let mut ends = Vec::new();
        for event in EventReader::new(boundary) {
            match event? {
                event @ (Event::FrameSync { .. }
                | Event::Dropped { .. }
                | Event::Deadlock { .. }
                | Event::Outcome { .. }) => ends.push(event),
                event => see(Moment::Boundary { at: began, event }),
            }
        }
        while let Some(entry) = self.sleeping.first_entry()
            && *entry.key() <= frame
        {
            self.ready.extend(entry.remove().into_iter().map(|coroutine| (coroutine, began)));
        }
        let found = segments(lanes)?;
        for wave in found.chunk_by(|one, next| one.began == next.began) {
            self.wave(frame, began, wave, see);
        }
        let at = self.latest().max(began);
        ends.into_iter().for_each(|event| see(Moment::Boundary { at, event }));
        Ok(())
    }

    fn mark_ready(&mut self, coroutine: CoroutineSlot, at: u64) {
        self.ready.insert(coroutine, at);
    }

    fn latest(&self) -> u64 {
        self.clocks.iter().copied().max().unwrap_or(0)
    }

    /// Reads one wave: the slices of each lane, then the events at its end, when lanes have
    /// aligned.
    fn wave<'a>(
        &mut self,
        frame: u64,
        frame_began: u64,
        wave: &[Segment<'a>],
        see: &mut dyn FnMut(Moment<'a>),
    ) {
        let mut rests = Vec::new();
        for segment in wave {
            let lane = usize::from(segment.lane);
            self.clocks[lane] = segment.began.unwrap_or(frame_began);
            self.ended[lane] = None;
            let steps = segment
                .events
                .iter()
                .rposition(|event| matches!(event, Event::Step { .. }))
                .map_or(0, |at| at + 1);
            let (inside, rest) = segment.events.split_at(steps);
            rests.push((segment.lane, rest));
            for slice in inside.split_inclusive(|event| matches!(event, Event::Step { .. })) {
                self.slice(frame, segment.lane, slice, see);
            }
        }
        let at = self.latest().max(frame_began);
        for (lane, rest) in rests {
            for &event in rest {
                self.note(at, event);
                see(Moment::Event { lane, at, by: None, event });
            }
        }
        self.clocks.fill(at);
    }

    /// Reads the events of one slice; its step is the last.
    fn slice<'a>(
        &mut self,
        frame: u64,
        lane: u16,
        events: &[Event<'a>],
        see: &mut dyn FnMut(Moment<'a>),
    ) {
        let Some((&Event::Step { session, slot, overhead, used, stop }, mut inside)) =
            events.split_last()
        else {
            return;
        };
        let coroutine = CoroutineSlot { session, slot };
        let place = usize::from(lane);
        let wave_clock = self.clocks[place];
        if let Some(ended) = self.ended[place].take() {
            let (after, own) = inside.split_at(after_end(inside, overhead));
            for &event in after {
                self.note(wave_clock, event);
                see(Moment::Event { lane, at: wave_clock, by: Some(ended), event });
            }
            inside = own;
        }
        // Another coroutine runs first: the kept one has been queued since the boundary.
        if let Some(kept) = self.kept[place].take()
            && kept != coroutine
        {
            self.ready.insert(kept, wave_clock);
        }
        // A forged trace may contain any numbers: saturate.
        let start = wave_clock.saturating_add(overhead);
        let wakes =
            inside.iter().filter(|event| matches!(event, Event::Wake { .. })).count() as u64;
        let end = start.saturating_add(used).saturating_add(wakes * SCHEDULER_COSTS_V1.wake.0);
        let ready_since = self.ready.remove(&coroutine);
        let mut sleeps = 0;
        for &event in inside {
            if let Event::Sleep { frames } = event {
                sleeps = frames;
            }
            self.note(start, event);
            see(Moment::Event { lane, at: start, by: Some(coroutine), event });
        }
        self.clocks[place] = end;
        match stop {
            StopCode::Yielded
            | StopCode::EndOfQuantum
            | StopCode::EndOfRefill
            | StopCode::EndOfCap
            | StopCode::Release => self.mark_ready(coroutine, end),
            StopCode::Slept => self
                .sleeping
                .entry(frame.saturating_add(sleeps.max(1)))
                .or_default()
                .push(coroutine),
            StopCode::EndOfFrame | StopCode::EndOfWave => self.kept[place] = Some(coroutine),
            StopCode::Finished | StopCode::Faulted | StopCode::SessionExit => {
                self.ended[place] = Some(coroutine)
            }
            _ => {}
        }
        see(Moment::Slice(Slice {
            lane,
            coroutine,
            start,
            end,
            overhead,
            used,
            ready_since,
            stop,
        }));
    }

    /// Updates which coroutines are ready.
    fn note(&mut self, at: u64, event: Event<'_>) {
        match event {
            Event::Wake { session, slot, .. } | Event::Spawn { session, slot, .. } => {
                self.mark_ready(CoroutineSlot { session, slot }, at)
            }
            Event::End { session, slot, .. } => {
                self.ready.remove(&CoroutineSlot { session, slot });
            }
            _ => {}
        }
    }
}

/// The number of events before a step that belong to the end of the previous coroutine. Its wakes
/// are charged to the next step's overhead, together with the pick and the switch that follow an
/// end, so their number is known.
fn after_end(events: &[Event<'_>], overhead: u64) -> usize {
    let costs = &SCHEDULER_COSTS_V1;
    let mut wakes = overhead.saturating_sub(costs.pick.0 + costs.switch.0) / costs.wake.0;
    let belongs = |event: &&Event<'_>| match event {
        Event::Wake { .. } if wakes > 0 => {
            wakes -= 1;
            true
        }
        Event::End { .. }
        | Event::SessionEnd { .. }
        | Event::Close { .. }
        | Event::Kill { .. }
        | Event::Cancel { .. } => true,
        _ => false,
    };
    events.iter().take_while(belongs).count()
}
