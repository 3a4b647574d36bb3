//! All lanes of a machine, and the rules that hold between them: canonical order, the end of a wave, migration, steal.
//!
//! Contract: within a wave lanes cannot see each other, so a lane can be taken out ([`Kernel::take`]), run by anyone and put back. At the wave's
//! end ([`Kernel::end_wave`]) every lane is back, clocks align to the latest, and the effects the lanes posted are applied in canonical
//! order. Nothing here looks at anything but the lanes' own state.
//!
//! Elsewhere: what the coroutines do (`machine`), what messages mean (`system`), threads (`waves`).

use crate::inbox::{Inbox, Letter, OrderKey, Outbox};
use crate::lane::{Inheritance, Lane, LaneSettings, Next, Population, Running};
use crate::ledger::FrameRow;
use crate::migrate::{MigrationStuck, MoveBan, MoveKind, Offer, steal_victims};
use crate::types::{Refusal, Span, Spawn, Tag, WakeSource};
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, SchedulerOperation};

/// What one lane does to another at the wave's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Makes a blocked coroutine ready.
    Wake {
        /// The coroutine, as its own lane knows it.
        target: CoroutineRef,
        /// Who wakes it.
        source: WakeSource,
    },
    /// Publishes a coroutine.
    Publish(Spawn),
    /// Wakes a coroutine and prefers it for the next pick, without a quantum to inherit: that is lane-local.
    Handoff {
        /// The coroutine that hands over.
        from: Tag,
        /// The coroutine that should run.
        target: CoroutineRef,
        /// Why it can run.
        source: WakeSource,
    },
}

/// A handoff between lanes, for the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandoffRecord {
    /// The coroutine that handed over.
    pub from: Tag,
    /// The coroutine that runs next, if the policy lets it.
    pub to: Tag,
    /// The sender's lane.
    pub from_lane: LaneId,
    /// The receiver's lane.
    pub to_lane: LaneId,
    /// The sender's step.
    pub step: u64,
    /// Why the receiver can run.
    pub reason: WakeSource,
}

/// What became of an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// A coroutine was woken, or why not (it may have been woken by another lane, or have ended).
    Woken(Result<(), Refusal>),
    /// A coroutine was published, or why not.
    Published(Result<CoroutineRef, Refusal>),
    /// A coroutine was woken by a handoff, or why not; `preferred` says whether the next pick will consider it first.
    HandedOff {
        /// The record.
        record: Result<HandoffRecord, Refusal>,
        /// Whether the preference was taken.
        preferred: bool,
    },
}

/// What a steal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steal {
    /// Took a session.
    Won {
        /// The session.
        session: u32,
        /// From this lane.
        victim: LaneId,
        /// So many coroutines.
        coroutines: u32,
    },
    /// The thief has work of its own.
    Busy,
    /// No victim had anything to take; and the first coroutine found that should move and may not.
    Nothing(Option<MigrationStuck>),
    /// A session could be taken, but the thief has no reserved room for it.
    NoRoom {
        /// The session.
        session: u32,
        /// What was missing.
        refusal: Refusal,
    },
}

/// How long every wave of a machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaveSpan {
    /// So many slices per lane.
    Picks(u32),
    /// So many cycles after the latest lane's clock.
    Cycles(Cycles),
}

impl Lane {
    /// Posts an effect on another lane; it happens at the wave's end.
    ///
    /// # Errors
    /// The outbox is full, or the other lane is this one.
    pub fn post(&mut self, to: LaneId, effect: Effect) -> Result<OrderKey, Refusal> {
        self.outbox.post(to, self.steps, effect)
    }

    /// Takes out everything posted, in order; for a driver that delivers it itself.
    pub fn take_outbox(&mut self) -> Outbox<Effect> {
        core::mem::replace(&mut self.outbox, Outbox::new(self.id))
    }

    /// Gives a drained outbox back, with its room.
    ///
    /// # Panics
    /// When it still holds letters.
    pub fn return_outbox(&mut self, outbox: Outbox<Effect>) {
        assert!(outbox.is_empty() && self.outbox.is_empty(), "an outbox comes back empty");
        self.outbox = outbox;
    }

    /// Whether nothing was posted in this wave.
    #[must_use]
    pub const fn outbox_is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Applies an effect that another lane posted, at the cost of one inbox operation.
    pub fn apply(&mut self, key: OrderKey, effect: Effect) -> Applied {
        self.book(SchedulerOperation::Inbox);
        match effect {
            Effect::Wake { target, source } => Applied::Woken(self.wake(target, source)),
            Effect::Publish(spawn) => Applied::Published(self.spawn(spawn)),
            Effect::Handoff { from, target, source } => {
                let record = self.wake(target, source).and_then(|()| {
                    let to = self.tag(target)?;
                    Ok(HandoffRecord { from, to, from_lane: key.from, to_lane: self.id(), step: key.step, reason: source })
                });
                let preferred = record.is_ok() && self.prefer_for(target, Inheritance::Own).is_ok();
                Applied::HandedOff { record, preferred }
            }
        }
    }
}

/// The lanes of a machine.
pub struct Kernel {
    lanes: Vec<Option<Lane>>,
    waves: u64,
    /// The lane whose turn it is in the current wave.
    cursor: usize,
}

impl Kernel {
    /// So many lanes, all with the same settings.
    ///
    /// # Errors
    /// No lane at all.
    pub fn new(lanes: u16, settings: LaneSettings) -> Result<Self, Refusal> {
        if lanes == 0 {
            return Err(Refusal::NoLane { lane: LaneId(0), lanes });
        }
        Ok(Self { lanes: (0..lanes).map(|lane| Some(Lane::new(LaneId(lane), settings))).collect(), waves: 0, cursor: 0 })
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lanes(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// Waves ended so far.
    #[must_use]
    pub const fn waves(&self) -> u64 {
        self.waves
    }

    /// The lane a session lives on unless the manifest says otherwise (semantics 14).
    #[must_use]
    pub fn assign_lane(&self, session: u32) -> LaneId {
        LaneId((session % u32::from(self.lanes())) as u16)
    }

    fn index(&self, lane: LaneId) -> Result<usize, Refusal> {
        let index = usize::from(lane.0);
        if index < self.lanes.len() { Ok(index) } else { Err(Refusal::NoLane { lane, lanes: self.lanes() }) }
    }

    /// A lane.
    ///
    /// # Errors
    /// There is no such lane, or a worker has it.
    pub fn lane(&self, lane: LaneId) -> Result<&Lane, Refusal> {
        self.lanes[self.index(lane)?].as_ref().ok_or(Refusal::LaneOut { lane })
    }

    /// A lane, to be changed.
    ///
    /// # Errors
    /// There is no such lane, or a worker has it.
    pub fn lane_mut(&mut self, lane: LaneId) -> Result<&mut Lane, Refusal> {
        let index = self.index(lane)?;
        self.lanes[index].as_mut().ok_or(Refusal::LaneOut { lane })
    }

    /// Takes a lane out, for a worker that will own it for a wave.
    ///
    /// # Errors
    /// There is no such lane, or a worker has it.
    pub fn take(&mut self, lane: LaneId) -> Result<Lane, Refusal> {
        let index = self.index(lane)?;
        self.lanes[index].take().ok_or(Refusal::LaneOut { lane })
    }

    /// Puts a lane back.
    ///
    /// # Panics
    /// When it was not out: our bug.
    pub fn put(&mut self, lane: Lane) {
        let place = &mut self.lanes[usize::from(lane.id().0)];
        assert!(place.is_none(), "lane {:?} is here already", lane.id());
        *place = Some(lane);
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut().map(|lane| lane.as_mut().expect("every lane is back at a wave's end"))
    }

    fn every(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|lane| lane.as_ref().expect("every lane is back at a wave's end"))
    }

    /// Begins a frame on every lane, in lane order. Gives how many sleepers woke.
    ///
    /// # Panics
    /// When a lane is out.
    pub fn begin_frame(&mut self, frame: Frame) -> u32 {
        self.each().map(|lane| lane.begin_frame(frame)).sum()
    }

    /// Ends the frame on every lane, in lane order; `each` gets the conservation rows.
    ///
    /// # Panics
    /// When a lane is out.
    pub fn end_frame(&mut self, mut each: impl FnMut(LaneId, FrameRow)) {
        for lane in self.each() {
            let row = lane.end_frame();
            each(lane.id(), row);
        }
    }

    /// Begins a wave on every lane. With cycles it ends at the same clock everywhere: so many after the latest lane's.
    ///
    /// # Panics
    /// When a lane is out.
    pub fn begin_wave(&mut self, span: WaveSpan) {
        let span = match span {
            WaveSpan::Picks(picks) => Span::Picks(picks),
            WaveSpan::Cycles(cycles) => Span::Until(self.latest().saturating_add(cycles)),
        };
        self.cursor = 0;
        self.each().for_each(|lane| lane.begin_wave(span));
    }

    /// The clock of the latest lane.
    fn latest(&self) -> Cycles {
        self.every().map(Lane::clock).max().unwrap_or(Cycles::ZERO)
    }

    /// The next slice of the wave in canonical order: lane by lane, each until it is over or idle. `None` when the wave has ended.
    pub fn dispatch(&mut self) -> Option<(LaneId, Running)> {
        while let Some(lane) = self.lanes.get_mut(self.cursor) {
            let lane = lane.as_mut().expect("a canonical step has every lane");
            match lane.dispatch() {
                Next::Run(running) => return Some((lane.id(), running)),
                Next::Idle | Next::Over => self.cursor += 1,
            }
        }
        None
    }

    /// Ends a wave: clocks align to the latest, then what the lanes posted is applied in canonical order; `each` gets what became of
    /// every effect.
    ///
    /// # Panics
    /// When a lane is out.
    pub fn end_wave(&mut self, mut each: impl FnMut(Letter<Effect>, Applied)) {
        let latest = self.latest();
        self.each().for_each(|lane| lane.align(latest));
        // Canonical order is per receiving lane; the order of all letters together implies it, so one inbox proves it for all.
        let mut inbox = Inbox::open();
        for from in 0..self.lanes.len() {
            // The outbox leaves its lane while its letters change other lanes; it comes back empty, with its room.
            let mut outbox = self.lanes[from].as_mut().expect("every lane is back at a wave's end").take_outbox();
            for letter in outbox.drain() {
                let to = usize::from(letter.to.0);
                let lane = self.lanes[to].as_mut().expect("every lane is back at a wave's end");
                let effect = inbox.accept(letter);
                each(letter, lane.apply(letter.key, effect));
            }
            self.lanes[from].as_mut().expect("it was here above").return_outbox(outbox);
        }
        self.waves += 1;
    }

    /// Moves all of a session's coroutines from one lane to another, between waves; `each` gets every tag with its new reference.
    ///
    /// # Errors
    /// No such lane, a lane is out, both are the same, or as [`Lane::move_session`].
    pub fn migrate(&mut self, session: u32, from: LaneId, to: LaneId, each: impl FnMut(Tag, CoroutineRef)) -> Result<u32, Refusal> {
        self.moved(session, from, to, MoveKind::Assigned, each)
    }

    fn moved(
        &mut self,
        session: u32,
        from: LaneId,
        to: LaneId,
        kind: MoveKind,
        each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<u32, Refusal> {
        let (source, target) = (self.index(from)?, self.index(to)?);
        if source == target {
            return Err(Refusal::SameLane { lane: to });
        }
        let [source, target] = self.lanes.get_disjoint_mut([source, target]).expect("two lanes that exist and differ");
        let source = source.as_mut().ok_or(Refusal::LaneOut { lane: from })?;
        let target = target.as_mut().ok_or(Refusal::LaneOut { lane: to })?;
        source.move_session(session, target, kind, each)
    }

    /// A lane without work looks for a session to take, between waves; the rule is in the header of `migrate.rs`. `ban` says which
    /// sessions may not leave, `each` gets every moved tag with its new reference. Call it once per lane and wave, in lane order.
    ///
    /// # Errors
    /// No such lane, or a lane is out.
    pub fn steal(
        &mut self,
        thief: LaneId,
        mut ban: impl FnMut(u32) -> Option<MoveBan>,
        each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<Steal, Refusal> {
        if self.lane(thief)?.has_work() {
            return Ok(Steal::Busy);
        }
        let round = self.waves;
        let mut stuck = None;
        for victim in steal_victims(thief, self.lanes(), round) {
            match self.lane(victim)?.offer(round, &mut ban) {
                Offer::Session(session) => {
                    return match self.moved(session, victim, thief, MoveKind::Stolen, each) {
                        Ok(coroutines) => {
                            self.lane_mut(thief)?.book(SchedulerOperation::Steal);
                            Ok(Steal::Won { session, victim, coroutines })
                        }
                        Err(refusal) => Ok(Steal::NoRoom { session, refusal }),
                    };
                }
                Offer::Nothing(found) => stuck = stuck.or(found),
            }
        }
        Ok(Steal::Nothing(stuck))
    }

    /// The frame of the next sleeper on any lane.
    ///
    /// # Panics
    /// When a lane is out.
    pub fn next_wake(&mut self) -> Option<Frame> {
        self.each().filter_map(Lane::next_wake).min()
    }

    /// Coroutines by state, over all lanes.
    ///
    /// # Panics
    /// When a lane is out.
    #[must_use]
    pub fn population(&self) -> Population {
        self.every().map(Lane::population).fold(Population::default(), |sum, lane| Population {
            ready: sum.ready + lane.ready,
            running: sum.running + lane.running,
            sleeping: sum.sleeping + lane.sleeping,
            blocked: sum.blocked + lane.blocked,
            throttled: sum.throttled + lane.throttled,
            ended: sum.ended + lane.ended,
        })
    }

    /// Whether nothing can happen any more without input (semantics 29): at least one coroutine waits, none is ready, sleeping or held, and no
    /// effect is on its way. Meaningful between waves.
    ///
    /// # Panics
    /// When a lane is out.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let all = self.population();
        all.blocked > 0 && all.ready + all.running + all.sleeping + all.throttled == 0 && self.every().all(Lane::outbox_is_empty)
    }
}
