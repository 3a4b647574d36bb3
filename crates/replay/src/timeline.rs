//! Time travel: the machine of a trace at any frame or step, forwards and backwards.
//!
//! A position is a number of steps in canonical order (lane by lane within a wave), the same for every number of workers. Between two
//! steps the world stands still and can be looked at; going on from there is the recorded run. Backwards means: from a place before, forwards
//! again. What happened on the way is seen as the events of the trace's own vocabulary.
//!
//! Elsewhere: what a person sees of it is the command line's.

use crate::trace::{OpenError, Trace};
use std::fmt;
use std::io::{Read, Seek};
use wavelock_abi::{Frame, SessionId};
use wavelock_system::{HostFailure, LoadError, Sink, Stage, World};
use wavelock_trace::{Digest, Event, EventError, EventReader};

/// A place in a run: so many steps have been made, and this is the frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Steps made before it.
    pub step: u64,
    /// The frame; at a boundary the one that comes next.
    pub frame: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}, step {}", self.frame, self.step)
    }
}

/// Why a timeline could not be opened or moved.
#[derive(Debug)]
pub enum TimelineError {
    /// The trace.
    Open(OpenError),
    /// Its machine could not be made.
    Load(LoadError),
    /// The host could not go on.
    Host(HostFailure),
}

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TimelineError {}

/// Events that were written since the last step, of one lane or of none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// The lane whose events they are; none for those of a frame's boundary.
    pub lane: Option<u16>,
    bytes: Vec<u8>,
}

impl Happened {
    /// The events, in order.
    pub fn events(&self) -> impl Iterator<Item = Result<Event<'_>, EventError>> {
        EventReader::new(&self.bytes)
    }
}

/// A run that can be moved through in both directions.
pub struct Timeline<R> {
    trace: Trace<R>,
    world: World,
    /// Steps made in the open wave, which the world counts at its end only.
    in_wave: u64,
    /// By lane: how much of its log has been reported.
    seen: Vec<usize>,
    seen_boundary: usize,
    happened: Vec<Happened>,
}

impl<R: Read + Seek> Timeline<R> {
    /// Opens a trace at its beginning: nothing has run.
    ///
    /// # Errors
    /// See [`TimelineError`].
    pub fn open(input: R) -> Result<Self, TimelineError> {
        let trace = Trace::open(input).map_err(TimelineError::Open)?;
        let world = fresh(&trace)?;
        let lanes = usize::from(world.spec().lanes);
        Ok(Self { trace, world, in_wave: 0, seen: vec![0; lanes], seen_boundary: 0, happened: Vec::new() })
    }

    /// The trace, for its machine and level.
    #[must_use]
    pub const fn trace(&self) -> &Trace<R> {
        &self.trace
    }

    /// The machine as it stands here.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The machine as it stands here, for what needs to write to look (a summary, a digest). Changing it changes what comes.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Where this is.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { step: self.world.steps() + self.in_wave, frame: self.world.next_frame_number().0 }
    }

    /// Whether the run is over here.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.world.stage() == Stage::Over
    }

    /// What happened from the step before the last to the last one: boundaries in between first, the step's own events last.
    #[must_use]
    pub fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// Makes one step. `false` when the run is over; what happened up to its end is then in [`Timeline::happened`].
    ///
    /// # Errors
    /// The host could not go on.
    pub fn step_forward(&mut self) -> Result<bool, TimelineError> {
        self.happened.clear();
        while self.world.stage() != Stage::Over {
            if self.world.stage() == Stage::Wave {
                if self.world.step_in_wave() {
                    self.in_wave += 1;
                    let lane = self.world.turn().unwrap_or(0);
                    self.note_lane(lane);
                    return Ok(true);
                }
                self.world.close_wave();
                self.in_wave = 0;
                self.note_lanes();
            } else {
                self.advance()?;
            }
        }
        Ok(false)
    }

    /// Goes one step back. `false` at the beginning.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn step_back(&mut self) -> Result<bool, TimelineError> {
        match self.position().step.checked_sub(1) {
            Some(step) => self.seek_step(step).map(|_| true),
            None => Ok(false),
        }
    }

    /// Goes to where `step` steps have been made, or to the run's end if it has fewer. What happened is then that last step.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn seek_step(&mut self, step: u64) -> Result<Position, TimelineError> {
        if self.position().step >= step {
            self.restart()?;
        }
        while self.position().step < step && self.step_forward()? {}
        Ok(self.position())
    }

    /// Goes to the boundary before `frame`: nothing of it has happened. A frame that was jumped over is the next one that was not; beyond the
    /// last frame is the run's end.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn seek_frame(&mut self, frame: u64) -> Result<Position, TimelineError> {
        if self.position().frame >= frame {
            self.restart()?;
        }
        while !(self.is_over() || (self.world.stage() == Stage::Boundary && self.position().frame >= frame)) {
            if self.world.stage() == Stage::Wave {
                while self.world.step_in_wave() {}
                self.world.close_wave();
                self.in_wave = 0;
                self.note_lanes();
            } else {
                self.advance()?;
            }
            self.happened.clear();
        }
        Ok(self.position())
    }

    /// Back to the beginning.
    fn restart(&mut self) -> Result<(), TimelineError> {
        self.world = fresh(&self.trace)?;
        self.in_wave = 0;
        self.seen.fill(0);
        self.seen_boundary = 0;
        self.happened.clear();
        Ok(())
    }

    /// One stage that is not a step. A frame that ends is reported before its log is gone.
    fn advance(&mut self) -> Result<(), TimelineError> {
        let mut ended = EndedFrame { lanes: Vec::new(), boundary: None, seen: &self.seen, seen_boundary: self.seen_boundary };
        self.world.advance(&mut ended).map_err(TimelineError::Host)?;
        let EndedFrame { lanes, boundary, .. } = ended;
        if let Some(bytes) = boundary {
            self.happened.extend(lanes);
            push(&mut self.happened, None, &bytes);
            self.seen.fill(0);
            self.seen_boundary = 0;
        }
        self.note_lanes();
        Ok(())
    }

    fn note_lanes(&mut self) {
        let bytes = self.world.boundary_events();
        push(&mut self.happened, None, &bytes[self.seen_boundary..]);
        self.seen_boundary = bytes.len();
        for lane in 0..self.world.spec().lanes {
            self.note_lane(lane);
        }
    }

    fn note_lane(&mut self, lane: u16) {
        let bytes = self.world.lane_events(lane);
        let seen = &mut self.seen[usize::from(lane)];
        push(&mut self.happened, Some(lane), &bytes[*seen..]);
        *seen = bytes.len();
    }
}

fn push(happened: &mut Vec<Happened>, lane: Option<u16>, bytes: &[u8]) {
    if !bytes.is_empty() {
        happened.push(Happened { lane, bytes: bytes.into() });
    }
}

fn fresh<R>(trace: &Trace<R>) -> Result<World, TimelineError> {
    let machine = &trace.machine;
    Ok(World::load(machine.spec.clone(), machine.inputs.clone(), true).map_err(TimelineError::Load)?.world)
}

/// A sink that keeps what a frame's end would take away: the rest of the lanes' logs and of the boundary's.
struct EndedFrame<'a> {
    lanes: Vec<Happened>,
    boundary: Option<Vec<u8>>,
    seen: &'a [usize],
    seen_boundary: usize,
}

impl Sink for EndedFrame<'_> {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(&mut self, _: Frame, _: Digest, boundary: &[u8], lanes: &mut dyn Iterator<Item = &[u8]>) {
        for (lane, bytes) in lanes.enumerate() {
            push(&mut self.lanes, Some(lane as u16), &bytes[self.seen[lane]..]);
        }
        self.boundary = Some(boundary[self.seen_boundary..].into());
    }
}
