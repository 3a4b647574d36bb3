//! Frames between their end and their confirmation: what the report of the last one borrows, and
//! what recorder and observers have still to get.

use crate::ask::Ask;
use crate::error::Error;
use crate::machine::Session;
use crate::recording::Recording;
use crate::report::{FrameReport, Observer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wavelock_abi::{Frame, LaneId, SessionId};
use wavelock_system::{Control, ControlRefusal, Input, RunOutcome, SessionOutcome, Sink};
use wavelock_trace::{Digest, EventReader};

/// What leaves the machine while a frame runs.
#[derive(Default)]
pub(crate) struct Collected {
    outputs: Vec<(Session, Vec<u8>)>,
    logs: Vec<(Session, Vec<u8>)>,
    /// Inputs of the frame that is running.
    inputs: Vec<Input>,
    /// The frame that ran, for a recorder; none when nothing happened.
    ran: Vec<Arc<Ran>>,
    /// Control inputs that could not take effect in the frame.
    pub(crate) refused: Vec<Error>,
    /// Sessions that were replaced in the frame.
    pub(crate) replaced: Vec<SessionId>,
    /// Whether a recorder or an observer needs the frame, and its events.
    recorded: Option<bool>,
}

/// A frame that ran, as a recorder gets it.
pub(crate) struct Ran {
    frame: Frame,
    digest: Digest,
    inputs: Vec<Input>,
    boundary: Vec<u8>,
    lanes: Vec<Vec<u8>>,
}

impl Ran {
    pub(crate) const fn frame(&self) -> Frame {
        self.frame
    }

    pub(crate) const fn digest(&self) -> Digest {
        self.digest
    }

    /// What functions of the host answered in it.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().filter(|input| matches!(input, Input::Answers { .. }))
    }

    /// Sends it on as the machine did.
    pub(crate) fn send(&self, sink: &mut dyn Sink) {
        if !self.inputs.is_empty() {
            sink.inputs(self.frame, &self.inputs);
        }
        let mut lanes = self.lanes.iter().map(Vec::as_slice);
        sink.frame(self.frame, self.digest, &self.boundary, &mut lanes);
    }

    fn show(&self, observer: &mut dyn Observer) {
        let lanes = self.lanes.iter().zip(0u16..).map(|(events, lane)| (events, Some(lane)));
        for (events, lane) in [(&self.boundary, None)].into_iter().chain(lanes) {
            for event in EventReader::new(events).flatten() {
                observer.event(self.frame, lane, &event);
            }
        }
    }
}

impl Collected {
    /// The frames that ran: one, or none when nothing happened.
    pub(crate) fn frames(&self) -> impl DoubleEndedIterator<Item = &Ran> {
        self.ran.iter().map(|ran| &**ran)
    }
}

impl Sink for Collected {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.outputs.push((Session::new(session), bytes.into()));
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.logs.push((Session::new(session), bytes.into()));
    }

    fn inputs(&mut self, _frame: Frame, inputs: &[Input]) {
        self.replaced.extend(inputs.iter().filter_map(|input| match input {
            Input::Control(Control::Replace(replacement)) => Some(replacement.session),
            _ => None,
        }));
        if self.recorded.is_some() {
            self.inputs = inputs.into();
        }
    }

    fn refused(&mut self, frame: Frame, _: &Control, refusal: &ControlRefusal) {
        self.refused.push(Error::Refused { frame, refusal: *refusal });
    }

    fn answers(&mut self, _frame: Frame, lane: LaneId, answers: &[u8]) {
        if self.recorded.is_some() {
            self.inputs.push(Input::Answers { lane, bytes: answers.into() });
        }
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        let Some(with_events) = self.recorded else { return };
        let (boundary, lanes) = match with_events {
            true => (boundary.into(), lanes.map(<[u8]>::to_vec).collect()),
            false => (Vec::new(), Vec::new()),
        };
        let inputs = std::mem::take(&mut self.inputs);
        self.ran.push(Arc::new(Ran { frame, digest, inputs, boundary, lanes }));
    }
}

/// A frame that has ended.
pub(crate) struct Ended {
    pub(crate) frame: Frame,
    pub(crate) digest: Digest,
    pub(crate) outcome: Option<RunOutcome>,
    pub(crate) ended: Vec<(Session, SessionOutcome)>,
    pub(crate) asks: Vec<Ask>,
    pub(crate) refused: Vec<Error>,
    pub(crate) wall: Duration,
    pub(crate) collected: Collected,
}

impl Ended {
    pub(crate) fn report(&self) -> FrameReport<'_> {
        FrameReport {
            frame: self.frame,
            digest: self.digest,
            outputs: &self.collected.outputs,
            logs: &self.collected.logs,
            ended: &self.ended,
            asks: &self.asks,
            refused: &self.refused,
            outcome: self.outcome,
            wall: self.wall,
        }
    }
}

/// Frames that are not confirmed, and those who get them when they are.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) recording: Option<Recording>,
    with_events: bool,
    keeps_digests: bool,
    observers: Vec<Box<dyn Observer>>,
    open: VecDeque<Arc<Ended>>,
    /// Frames before this one are final.
    pub(crate) confirmed: Frame,
}

impl Frames {
    /// What the next frame is collected in, of a machine that keeps `events` or not.
    pub(crate) fn collector(&self, events: bool) -> Collected {
        let recorded = self.recording.as_ref().map(|_| self.with_events);
        let recorded = recorded.or(self.keeps_digests.then_some(false));
        let is_observed = events && !self.observers.is_empty();
        Collected {
            recorded: if is_observed { Some(true) } else { recorded },
            ..Collected::default()
        }
    }

    pub(crate) fn record(&mut self, recording: Recording, with_events: bool) {
        (self.recording, self.with_events) = (Some(recording), with_events);
    }

    /// Keeps the digest of each frame that ran.
    pub(crate) const fn keep_digests(&mut self) {
        self.keeps_digests = true;
    }

    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// A frame has ended. It stays open until it is confirmed.
    pub(crate) fn push(&mut self, ended: Arc<Ended>) {
        if self.recording.is_some() || !self.observers.is_empty() {
            self.open.push_back(ended);
        }
    }

    /// Frames before `frame` are final: recorder and observers get them.
    pub(crate) fn confirm(&mut self, frame: Frame) {
        self.confirmed = self.confirmed.max(frame);
        while let Some(ended) = self.open.pop_front_if(|open| open.frame < frame) {
            if let Some(recording) = &self.recording
                && !ended.collected.ran.is_empty()
            {
                recording.frames(ended.collected.ran.clone());
            }
            for observer in &mut self.observers {
                ended.collected.ran.iter().for_each(|ran| ran.show(&mut **observer));
                observer.frame(&ended.report());
            }
        }
    }

    /// The machine returned to the boundary before `frame`: later frames never were.
    pub(crate) fn undo(&mut self, frame: Frame) {
        while self.open.pop_back_if(|open| open.frame >= frame).is_some() {}
    }
}
