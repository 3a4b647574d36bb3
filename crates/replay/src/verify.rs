//! Verification: runs the machine of a trace again and compares every frame, state digest and
//! snapshot with the recorded one.

use crate::divergence::{Divergence, MemoryPosition, Occurrence};
use crate::record::{Level, keep_schedule};
use crate::snapshot::{Snapshot, StateDifference};
use crate::states::{StateRecord, StatesDiffer, page_in_words};
use crate::trace::{Ending, NO_END, OpenError, Part, Trace};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::Read;
use wavelock_abi::{Frame, SessionId};
use wavelock_machine::MemoryAddress;
use wavelock_system::{
    HostFailure, Input, LoadError, RunSummary, STATE_PAGE_BYTES, Sink, Stage, UnreadInput, World,
};
use wavelock_trace::{Digest, Event, EventError, EventReader, FrameRecord, read_frames};
use wavelock_waves::{StartError, Waves};

/// The result of a verification.
#[derive(Debug)]
pub struct Verified {
    /// Frames that were compared and equal.
    pub frames: u64,
    /// The summary of the replayed run.
    pub summary: RunSummary,
    /// By session: the input events that the replayed run did not read.
    pub unread: Vec<UnreadInput>,
    /// How the recorded run ended, if the trace is complete.
    pub ending: Option<Ending>,
    /// The first difference.
    pub divergence: Option<Divergence>,
    /// Why the trace is incomplete, if it is.
    pub missing: Option<String>,
    /// The trace's record of how it was made.
    pub telemetry: BTreeMap<String, String>,
}

/// Why a trace could not be verified at all.
#[derive(Debug)]
pub enum VerifyError {
    /// The trace cannot be read.
    Open(OpenError),
    /// Its machine cannot be loaded.
    Load(LoadError),
    /// The host failed.
    Host(HostFailure),
    /// The driver does not start.
    Start(StartError),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for VerifyError {}

/// The sink that compares a run with a trace: the frames not reached yet, and the first divergence.
struct Comparison<'a, R> {
    trace: &'a mut Trace<R>,
    expected: VecDeque<OwnedFrame>,
    ending: Option<Ending>,
    missing: Option<String>,
    error: Option<OpenError>,
    snapshot: Option<Box<Snapshot>>,
    states: VecDeque<StateRecord>,
    /// Inputs that were read and not given yet, of a live machine.
    inputs: Vec<(Frame, Input)>,
    /// A page whose hash differs: the next snapshot has its bytes. Until there the run is not
    /// compared.
    page: Option<(SessionId, MemoryAddress, u32)>,
    /// Steps before this frame.
    steps: u64,
    equal: u64,
    divergence: Option<Divergence>,
}

pub(crate) struct OwnedFrame {
    frame: u64,
    digest: Digest,
    boundary: Vec<u8>,
    lanes: Vec<Vec<u8>>,
}

impl OwnedFrame {
    /// The first different event of two frames: first those at the frame's start, then the lanes'
    /// steps in canonical order, then the rest. `steps` is the number of steps before the frame.
    pub(crate) fn difference(
        &self,
        level: Level,
        boundary: &[u8],
        lanes: &[&[u8]],
        steps: u64,
    ) -> Option<Divergence> {
        if level == Level::Inputs {
            return None;
        }
        let mut found: Option<Divergence> = None;
        let mut scratch = Vec::new();
        let outside = first_difference(self.frame, None, &self.boundary, boundary);
        for (number, &lane) in lanes.iter().enumerate() {
            let replayed = if level == Level::Schedule {
                keep_schedule(lane, &mut scratch);
                &scratch
            } else {
                lane
            };
            let recorded = self.lanes.get(number).map_or(&[][..], Vec::as_slice);
            if let Some(mut here) =
                first_difference(self.frame, Some(number as u16), recorded, replayed)
            {
                here.step = Some(steps + canonical_step(lanes, number, here.step_in_lane));
                found = found.into_iter().chain([here]).min_by_key(|difference| difference.step);
            }
        }
        // Events at a frame's start come before the lanes' steps, other boundary events after them.
        let begins = |had: &Occurrence| {
            matches!(
                had.event(),
                Some(
                    Event::FrameStart { .. }
                        | Event::Sample { .. }
                        | Event::InputEnd { .. }
                        | Event::Stop { .. }
                        | Event::Control { .. }
                        | Event::ControlRefused { .. }
                        | Event::Start { .. }
                        | Event::Replace { .. }
                        | Event::Jump { .. }
                )
            )
        };
        match outside {
            Some(outside) if begins(&outside.recorded) || begins(&outside.replayed) => {
                Some(outside)
            }
            outside => found.or(outside),
        }
    }

    /// The frame reduced to the events of a level.
    pub(crate) fn at_level(&self, level: Level) -> Self {
        let mut lanes = self.lanes.clone();
        if level == Level::Schedule {
            self.lanes.iter().zip(&mut lanes).for_each(|(lane, kept)| keep_schedule(lane, kept));
        }
        Self { frame: self.frame, digest: self.digest, boundary: self.boundary.clone(), lanes }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.frame
    }

    pub(crate) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its recorded events: those of the boundary, and lane by lane.
    pub(crate) fn events(&self) -> (&[u8], Vec<&[u8]>) {
        (&self.boundary, self.lanes.iter().map(Vec::as_slice).collect())
    }

    pub(crate) fn of(frame: &FrameRecord<'_>) -> Self {
        let lanes = frame.lanes.iter().map(|lane| lane.to_vec()).collect();
        Self { frame: frame.frame, digest: frame.digest, boundary: frame.boundary.into(), lanes }
    }
}

/// Runs the machine of a trace again on `workers` threads and compares every frame; stops at the
/// first difference, or at the trace's end.
///
/// # Errors
/// See [`VerifyError`].
pub fn verify<R: Read>(mut trace: Trace<R>, workers: usize) -> Result<Verified, VerifyError> {
    let machine = trace.machine.clone();
    let keep_events = trace.level != Level::Inputs;
    let world = match &trace.origin {
        None => {
            World::load(machine.spec, machine.inputs, keep_events).map_err(VerifyError::Load)?.world
        }
        Some(origin) => {
            let unusable = |error| VerifyError::Open(OpenError::Snapshot(error));
            origin.restore(machine.spec, machine.inputs, keep_events).map_err(unusable)?
        }
    };
    let mut waves = Waves::new(world, workers).map_err(VerifyError::Start)?;
    let mut comparison = Comparison {
        trace: &mut trace,
        expected: VecDeque::new(),
        ending: None,
        missing: None,
        error: None,
        snapshot: None,
        states: VecDeque::new(),
        inputs: Vec::new(),
        page: None,
        steps: 0,
        equal: 0,
        divergence: None,
    };
    comparison.feed(waves.world_mut());
    while waves.round(&mut comparison).map_err(VerifyError::Host)? != wavelock_waves::Round::Over {
        if comparison.is_over() && comparison.page.is_none() {
            break;
        }
    }
    let summary = waves.world_mut().summary();
    let unread = waves.world_mut().unread_input();
    let finished = waves.world().stage() == Stage::Over;
    comparison.check_waiting(waves.world());
    comparison.check_end(finished, &summary);
    if let Some(error) = comparison.error {
        return Err(VerifyError::Open(error));
    }
    let Comparison { equal, ending, divergence, missing, .. } = comparison;
    let telemetry = trace.telemetry;
    Ok(Verified { frames: equal, summary, unread, ending, divergence, missing, telemetry })
}

impl<R: Read> Comparison<'_, R> {
    fn is_over(&self) -> bool {
        self.divergence.is_some() || self.error.is_some() || self.missing.is_some()
    }

    /// The next recorded frame, if the trace has one.
    fn next(&mut self) -> Option<OwnedFrame> {
        while self.expected.is_empty() && self.ending.is_none() && !self.is_over() {
            self.read_on();
            if self.snapshot.take().is_some() {
                let place = self.equal;
                self.divergence =
                    Some(Divergence::plain(place, "a snapshot", "no boundary at that frame"));
            }
        }
        self.expected.pop_front()
    }

    /// Reads the next part of the trace.
    fn read_on(&mut self) {
        match self.trace.next_part() {
            Ok(Part::Snapshot(snapshot)) => self.snapshot = Some(snapshot),
            Ok(Part::States(records)) => self.states.extend(records),
            Ok(Part::Inputs(inputs)) => self.inputs.extend(inputs),
            Ok(Part::Frames(payload)) => match read_frames(&payload) {
                Ok(frames) => self.expected.extend(frames.iter().map(OwnedFrame::of)),
                Err(error) => self.error = Some(OpenError::Frames(error)),
            },
            Ok(Part::End(ending)) => self.ending = Some(ending),
            Ok(Part::Missing(reason)) => {
                let reason = reason.map_or_else(|| NO_END.into(), |error| error.to_string());
                self.missing = Some(reason);
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// Gives a live machine the inputs of the next recorded frames, and lets it run up to them.
    fn feed(&mut self, world: &mut World) {
        if !world.spec().live {
            return;
        }
        while self.expected.is_empty() && self.ending.is_none() && !self.is_over() {
            self.read_on();
        }
        let next = world.next_frame_number().0;
        if let Err(error) = world.give_recorded(std::mem::take(&mut self.inputs)) {
            let found = error.to_string();
            self.divergence.get_or_insert_with(|| Divergence::plain(next, "an input", &found));
        }
        if let Some(last) = self.expected.back() {
            world.allow(Frame(last.frame.saturating_add(1)));
        }
    }

    /// A live machine that waits has run every recorded frame, and the recorded run had not ended.
    fn check_waiting(&mut self, world: &World) {
        if world.stage() != Stage::Waiting || self.is_over() {
            return;
        }
        let frame = world.next_frame_number().0;
        if let Some(expected) = self.expected.pop_front() {
            let recorded = format!("frame {}", expected.frame);
            let found = "no frame: nothing happens in it";
            self.divergence = Some(Divergence::plain(expected.frame, &recorded, found));
        } else if self.ending.as_ref().is_some_and(|ending| ending.outcome != u64::MAX) {
            self.divergence =
                Some(Divergence::plain(frame, "the end of the run", "the run continues"));
        }
    }

    fn check_end(&mut self, finished: bool, summary: &RunSummary) {
        if !finished || self.is_over() {
            return;
        }
        if let Some(extra) = self.next() {
            self.divergence = Some(Divergence::plain(extra.frame, "a frame", "the end of the run"));
            return;
        }
        if let Some(ending) = &self.ending
            && ending.digest != summary.digest
        {
            self.divergence = Some(Divergence::plain(
                summary.frames,
                &ending.digest.to_string(),
                &summary.digest.to_string(),
            ));
        }
    }
}

/// Comparison of states.
impl<R: Read> Comparison<'_, R> {
    /// Compares the current state with its record, if there is one.
    fn compare_record(&mut self, world: &mut World) {
        let frame = world.next_frame_number().0;
        let Some(recorded) = self.states.pop_front_if(|record| record.frame <= frame) else {
            return;
        };
        if recorded.frame < frame {
            self.divergence = Some(Divergence::plain(
                recorded.frame,
                "a state digest",
                "no boundary at that frame",
            ));
            return;
        }
        let Ok((replayed, _)) = StateRecord::of(world) else { return };
        let Some(difference) = recorded.difference(&replayed) else { return };
        let mut found = Divergence::plain(frame, "", "");
        found.step = Some(self.steps);
        let (recorded, replayed) = match difference {
            StatesDiffer::Page { session, memory, page, recorded, replayed } => {
                found.memory = Some(MemoryPosition {
                    session: u64::from(session),
                    page: u64::from(page),
                    address: None,
                });
                self.page = Some((SessionId(session), MemoryAddress(memory), page));
                (page_in_words(recorded), page_in_words(replayed))
            }
            StatesDiffer::Outline { recorded, replayed } => {
                let words = |hash| format!("state outside memories with hash {}", Digest(hash));
                (words(recorded), words(replayed))
            }
            StatesDiffer::Steps { recorded, replayed } => {
                (format!("{recorded} steps"), format!("{replayed} steps"))
            }
            StatesDiffer::Rest => (
                "pages of memory".to_owned(),
                "different pages of memory, beyond the listed ones".to_owned(),
            ),
        };
        (found.recorded, found.replayed) = (recorded.into(), replayed.into());
        self.divergence = Some(found);
        self.look_for_bytes(world);
    }

    /// Reads up to the next snapshot. If it is of this boundary, it has the bytes of the page that
    /// differs.
    fn look_for_bytes(&mut self, world: &World) {
        while let Some((session, memory, page)) = self.page.filter(|_| self.expected.is_empty()) {
            self.page = None;
            match self.trace.next_part() {
                Ok(Part::States(_)) => self.page = Some((session, memory, page)),
                Ok(Part::Frames(payload)) => {
                    if let Ok(frames) = read_frames(&payload) {
                        self.expected.extend(frames.iter().map(OwnedFrame::of));
                        self.page = Some((session, memory, page));
                    }
                }
                Ok(Part::Snapshot(snapshot))
                    if snapshot.place().frame == world.next_frame_number().0 =>
                {
                    let bytes = snapshot.byte_of_page(world, session, memory, page);
                    if let (Some((address, recorded, replayed)), Some(found)) =
                        (bytes, &mut self.divergence)
                    {
                        found.memory.iter_mut().for_each(|place| place.address = Some(address));
                        let frame = snapshot.place().frame;
                        found.recorded =
                            format!("byte {recorded:#04x} (in the snapshot before frame {frame})")
                                .into();
                        found.replayed = format!("byte {replayed:#04x}").into();
                    }
                }
                // Errors here come after the difference found, so they are ignored.
                Ok(Part::Inputs(inputs)) => {
                    self.inputs.extend(inputs);
                    self.page = Some((session, memory, page));
                }
                Ok(Part::Snapshot(_) | Part::End(_) | Part::Missing(_)) | Err(_) => {}
            }
        }
    }

    fn compare_state(&mut self, snapshot: &Snapshot, world: &mut World) {
        let frame = world.next_frame_number().0;
        if snapshot.place().frame != frame {
            self.divergence = Some(Divergence::plain(
                frame,
                &format!("a snapshot at frame {}", snapshot.place().frame),
                &format!("frame {frame}"),
            ));
            return;
        }
        if let Err(error) = snapshot.check_version() {
            self.error = Some(OpenError::Snapshot(error));
            return;
        }
        let Some(difference) = snapshot.difference(world) else { return };
        let mut found = Divergence::plain(frame, "", "");
        found.step = Some(self.steps);
        let (recorded, replayed) = match difference {
            StateDifference::Byte { session, address, recorded, found: replayed } => {
                let page = address / STATE_PAGE_BYTES as u64;
                found.memory = Some(MemoryPosition {
                    session: u64::from(session),
                    page,
                    address: Some(address),
                });
                (format!("byte {recorded:#04x}"), format!("byte {replayed:#04x}"))
            }
            StateDifference::Outline { offset } => (
                format!("state {}", snapshot.digest()),
                format!("a different state, at byte {offset} of its outline"),
            ),
        };
        (found.recorded, found.replayed) = (recorded.into(), replayed.into());
        self.divergence = Some(found);
    }
}

impl<R: Read> Sink for Comparison<'_, R> {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    /// A snapshot of this boundary must equal the current state.
    fn boundary(&mut self, world: &mut World) {
        self.steps = world.steps();
        if self.page.is_some() {
            self.look_for_bytes(world);
            return self.feed(world);
        }
        self.compare_record(world);
        while self.expected.is_empty() && self.ending.is_none() && !self.is_over() {
            self.read_on();
            self.compare_record(world);
            if let Some(snapshot) = self.snapshot.take() {
                self.compare_state(&snapshot, world);
            }
        }
        // The recorded run was stopped at this boundary.
        if self.expected.is_empty() && self.ending.as_ref().is_some_and(Ending::was_interrupted) {
            world.suspend();
            return;
        }
        self.feed(world);
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        if self.page.is_some()
            && self.expected.pop_front().is_none_or(|expected| expected.frame != frame.0)
        {
            self.page = None;
        }
        if self.is_over() {
            return;
        }
        let Some(expected) = self.next() else {
            if !self.is_over() {
                self.divergence =
                    Some(Divergence::plain(frame.0, "the end of the run", "another frame"));
            }
            return;
        };
        if expected.frame == frame.0 && expected.digest == digest {
            self.equal += 1;
            return;
        }
        if expected.frame != frame.0 {
            self.divergence = Some(Divergence::plain(
                frame.0,
                &format!("frame {}", expected.frame),
                &format!("frame {}", frame.0),
            ));
            return;
        }
        let lanes: Vec<&[u8]> = lanes.collect();
        let found = expected.difference(self.trace.level, boundary, &lanes, self.steps);
        self.divergence = Some(found.unwrap_or_else(|| {
            Divergence::plain(
                frame.0,
                &format!("digest {}", expected.digest),
                &format!("digest {digest}"),
            )
        }));
    }
}

/// The first event in which two sequences differ.
fn first_difference(
    frame: u64,
    lane: Option<u16>,
    recorded: &[u8],
    replayed: &[u8],
) -> Option<Divergence> {
    if recorded == replayed {
        return None;
    }
    let (mut one, mut two) = (EventReader::new(recorded), EventReader::new(replayed));
    let mut step_in_lane = 0;
    loop {
        let (left, right) = (one.next(), two.next());
        if left == right {
            left.as_ref()?;
            step_in_lane += u64::from(matches!(left, Some(Ok(Event::Step { .. }))));
            continue;
        }
        let coroutine = next_step(left.as_ref(), one).or_else(|| next_step(right.as_ref(), two));
        let had = |event: Option<Result<Event<'_>, EventError>>| match event {
            Some(Ok(event)) => Occurrence::event_of(&event),
            Some(Err(error)) => Occurrence::Words(error.to_string()),
            None => "nothing more".into(),
        };
        return Some(Divergence {
            frame,
            lane,
            step_in_lane,
            step: None,
            coroutine,
            memory: None,
            recorded: had(left),
            replayed: had(right),
        });
    }
}

/// The number of steps of a frame before the `step`-th of `lane` in canonical order: wave by wave,
/// lane by lane. A wave starts at the same clock on every lane.
fn canonical_step(lanes: &[&[u8]], lane: usize, step: u64) -> u64 {
    let waves = |bytes: &[u8]| {
        let mut waves: Vec<(u64, u64)> = Vec::new();
        for event in EventReader::new(bytes).map_while(Result::ok) {
            match event {
                Event::Wave { clock } => waves.push((clock, 0)),
                Event::Step { .. } => {
                    waves.last_mut().into_iter().for_each(|(_, steps)| *steps += 1)
                }
                _ => {}
            }
        }
        waves
    };
    let (mut clock, mut left) = (u64::MAX, step);
    for (begin, steps) in waves(lanes[lane]) {
        if left < steps {
            clock = begin;
            break;
        }
        left -= steps;
    }
    let before = lanes
        .iter()
        .enumerate()
        .flat_map(|(number, bytes)| waves(bytes).into_iter().map(move |wave| (number, wave)));
    let earlier =
        before.filter(|&(number, (begin, _))| begin < clock || (begin == clock && number < lane));
    earlier.map(|(_, (_, steps))| steps).sum::<u64>() + left
}

/// The coroutine whose step an event belongs to: that of the next step event.
fn next_step<E>(event: Option<&Result<Event<'_>, E>>, rest: EventReader<'_>) -> Option<(u64, u64)> {
    if let Some(Ok(Event::Step { session, slot, .. })) = event {
        return Some((*session, *slot));
    }
    rest.filter_map(Result::ok).find_map(|event| match event {
        Event::Step { session, slot, .. } => Some((session, slot)),
        _ => None,
    })
}
