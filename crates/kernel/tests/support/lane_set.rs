//! The lanes of a machine and a driver for them: the smallest one that uses every rule between
//! lanes which `system` uses ([`exchange`], [`latest_clock`], [`find_steal`],
//! [`Lane::move_session`], `Population::is_stalled`).

use std::ops::{Index, IndexMut};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId};
use wavelock_kernel::{
    Exchange, FrameRow, Lane, LaneSettings, MigrationStuck, MoveBan, MoveKind, Next, Outbox,
    Refusal, Running, Span, Spawn, Tag, WakeSource, exchange, find_steal, latest_clock,
};

/// What one lane does to another at the wave's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Makes a blocked coroutine ready.
    Wake { target: CoroutineRef, source: WakeSource },
    /// Publishes a coroutine.
    Publish(Spawn),
    /// Wakes a coroutine and prefers it for the next pick, as a message to a blocked receiver does.
    Handoff { target: CoroutineRef, source: WakeSource },
}

/// An effect with its place in canonical order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) from: LaneId,
    /// The sending lane's step.
    pub(crate) step: u64,
    /// Which of that step's effects.
    pub(crate) sequence: u32,
    pub(crate) to: LaneId,
    pub(crate) effect: Effect,
}

/// The result of an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Applied {
    Woken(Result<(), Refusal>),
    Published(Result<CoroutineRef, Refusal>),
    HandedOff { woken: Result<(), Refusal>, preferred: bool },
}

/// What a steal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steal {
    Won {
        session: u32,
        victim: LaneId,
        coroutines: u32,
    },
    /// The thief has work of its own.
    Busy,
    Nothing(Option<MigrationStuck>),
}

/// The length of a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaveSpan {
    /// Slices per lane.
    Picks(u32),
    /// Cycles after the latest lane's clock.
    Cycles(Cycles),
}

/// The lanes of a machine.
pub(crate) struct LaneSet {
    lanes: Vec<Lane>,
    outboxes: Vec<Outbox<Posted>>,
    waves: u64,
    /// The lane that dispatches next in canonical order.
    cursor: usize,
}

impl Index<LaneId> for LaneSet {
    type Output = Lane;

    fn index(&self, lane: LaneId) -> &Lane {
        &self.lanes[usize::from(lane.0)]
    }
}

impl IndexMut<LaneId> for LaneSet {
    fn index_mut(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.lanes[usize::from(lane.0)]
    }
}

impl LaneSet {
    pub(crate) fn new(lanes: u16, settings: LaneSettings) -> Self {
        Self {
            lanes: (0..lanes).map(|lane| Lane::new(LaneId(lane), settings)).collect(),
            // Room for a wave's effects, so that tests can count allocations.
            outboxes: (0..lanes).map(|_| with_room()).collect(),
            waves: 0,
            cursor: 0,
        }
    }

    pub(crate) fn len(&self) -> u16 {
        self.lanes.len() as u16
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    pub(crate) fn begin_frame(&mut self, frame: Frame) -> u32 {
        self.lanes.iter_mut().map(|lane| lane.begin_frame(frame)).sum()
    }

    pub(crate) fn end_frame(&mut self, each: impl FnMut(FrameRow)) {
        self.lanes.iter_mut().map(Lane::end_frame).for_each(each);
    }

    pub(crate) fn begin_wave(&mut self, span: WaveSpan) {
        let span = match span {
            WaveSpan::Picks(picks) => Span::Picks(picks),
            WaveSpan::Cycles(cycles) => Span::Until(latest_clock(self.iter()) + cycles),
        };
        self.cursor = 0;
        self.lanes.iter_mut().for_each(|lane| lane.begin_wave(span));
    }

    /// The next slice in canonical order: lane by lane, each until its wave is over or it is idle.
    pub(crate) fn dispatch(&mut self) -> Option<(LaneId, Running)> {
        while let Some(lane) = self.lanes.get_mut(self.cursor) {
            match lane.dispatch() {
                Next::Run(running) => return Some((lane.id(), running)),
                Next::Idle | Next::Over => self.cursor += 1,
            }
        }
        None
    }

    /// Posts an effect of one lane on another; returns its step and sequence.
    pub(crate) fn post(&mut self, from: LaneId, to: LaneId, effect: Effect) -> (u64, u32) {
        let step = self[from].step();
        let outbox = &mut self.outboxes[usize::from(from.0)];
        let sequence = outbox.iter().filter(|(_, posted)| posted.step == step).count() as u32;
        outbox.post(to, Posted { from, step, sequence, to, effect });
        (step, sequence)
    }

    /// Ends a wave; `each` gets every effect with its result, in the order they were applied.
    pub(crate) fn end_wave(&mut self, each: impl FnMut(Posted, Applied)) {
        let latest = latest_clock(self.iter());
        self.lanes.iter_mut().for_each(|lane| lane.align(latest));
        exchange(&mut Exchanging { set: self, each });
        self.waves += 1;
    }

    pub(crate) fn migrate(
        &mut self,
        session: u32,
        from: LaneId,
        to: LaneId,
        each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<u32, Refusal> {
        self.move_session(session, from, to, MoveKind::Assigned, each)
    }

    fn move_session(
        &mut self,
        session: u32,
        from: LaneId,
        to: LaneId,
        kind: MoveKind,
        each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<u32, Refusal> {
        let [from, to] = self
            .lanes
            .get_disjoint_mut([usize::from(from.0), usize::from(to.0)])
            .expect("two lanes that exist and differ");
        from.move_session(session, to, kind, each)
    }

    /// A lane without work takes a session, if it finds one.
    pub(crate) fn steal(
        &mut self,
        thief: LaneId,
        ban: impl FnMut(u32) -> Option<MoveBan>,
        each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<Steal, Refusal> {
        if self[thief].has_work() {
            return Ok(Steal::Busy);
        }
        match find_steal(thief, self.len(), self.waves, |lane| &self[lane], ban) {
            Ok((victim, session)) => {
                let coroutines =
                    self.move_session(session, victim, thief, MoveKind::Stolen, each)?;
                Ok(Steal::Won { session, victim, coroutines })
            }
            Err(stuck) => Ok(Steal::Nothing(stuck)),
        }
    }

    pub(crate) fn next_wake(&mut self) -> Option<Frame> {
        self.lanes.iter_mut().filter_map(Lane::next_wake).min()
    }

    /// Whether nothing can happen any more without input (semantics 29).
    pub(crate) fn is_stalled(&self) -> bool {
        let mut lanes = self.iter().map(Lane::population);
        self.iter().any(|lane| lane.population().blocked > 0)
            && lanes.all(|population| population.is_stalled())
            && self.outboxes.iter().all(Outbox::is_empty)
    }
}

fn with_room() -> Outbox<Posted> {
    let mut outbox = Outbox::new();
    let wake = Effect::Wake { target: CoroutineRef::new(0, 0), source: WakeSource::Channel };
    let posted = Posted { from: LaneId(0), step: 0, sequence: 0, to: LaneId(0), effect: wake };
    (0..1_000).for_each(|_| outbox.post(LaneId(0), posted));
    drop(outbox.drain());
    outbox
}

struct Exchanging<'a, F> {
    set: &'a mut LaneSet,
    each: F,
}

impl<F: FnMut(Posted, Applied)> Exchange for Exchanging<'_, F> {
    type Effect = Posted;

    fn lanes(&self) -> u16 {
        self.set.len()
    }

    fn outbox(&mut self, lane: LaneId) -> &mut Outbox<Posted> {
        &mut self.set.outboxes[usize::from(lane.0)]
    }

    fn apply(&mut self, _from: LaneId, to: LaneId, posted: Posted) {
        let lane = &mut self.set[to];
        lane.accept_effect();
        let applied = match posted.effect {
            Effect::Wake { target, source } => Applied::Woken(lane.wake(target, source)),
            Effect::Publish(spawn) => Applied::Published(lane.spawn(spawn)),
            Effect::Handoff { target, source } => {
                let woken = lane.wake(target, source);
                let preferred = woken.is_ok() && lane.prefer(target).is_ok();
                Applied::HandedOff { woken, preferred }
            }
        };
        (self.each)(posted, applied);
    }
}
