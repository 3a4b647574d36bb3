//! Time travel: the machine of a trace at any frame or step, forwards and backwards.
//!
//! A position is a number of steps in canonical order (lane by lane within a wave), the same for
//! every number of workers. Between two steps the world can be inspected; continuing from there is
//! the recorded run. Moving backwards restores an earlier state and runs forwards again. These
//! states are the snapshots of the file and, near the current position, anchors in memory that
//! share their pages, so the cost of a move does not grow with the length of the trace.
//! [`Timeline::happened`] returns the events of the last step.
//!
//! Elsewhere: the debugger and the command line print it.

use crate::anchor::{Anchor, Base};
use crate::archive::Archive;
use crate::snapshot::SnapshotPosition;
use crate::trace::OpenError;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek};
use std::sync::Arc;
use wavelock_abi::{Frame, LaneId, SessionId};
use wavelock_system::{HostFailure, LoadError, Sink, Stage, World};
use wavelock_trace::{Digest, Event, EventError, EventReader};

/// A position in a run: the number of steps made, and the frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Number of steps before it.
    pub step: u64,
    /// The frame; at a boundary, the next one.
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
    /// The trace cannot be read.
    Open(OpenError),
    /// Its machine cannot be loaded.
    Load(LoadError),
    /// The host failed.
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

/// Events since the last step, of one lane or of a boundary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// The lane of the events; `None` for those of a frame's boundary.
    pub lane: Option<u16>,
    bytes: Vec<u8>,
}

impl Happened {
    /// The events, in order.
    pub fn events(&self) -> impl Iterator<Item = Result<Event<'_>, EventError>> {
        EventReader::new(&self.bytes)
    }
}

/// Maximum number of anchors.
const MOST_ANCHORS: usize = 16;

/// A run that can be moved through in both directions.
pub struct Timeline<R> {
    archive: Archive<R>,
    world: World,
    /// The snapshot that the world was restored from, if any.
    base: Option<Arc<Base>>,
    /// Steps made in the current wave, which the world counts only at its end.
    in_wave: u64,
    /// The first step of the frame, and the number of steps of the frame before it.
    frame_began: u64,
    frame_steps: u64,
    /// By lane: the length of its log that has been reported.
    seen: Vec<usize>,
    seen_boundary: usize,
    happened: Vec<Happened>,
    /// States to go back to, by number of steps.
    anchors: BTreeMap<u64, Anchor>,
    /// Whether worlds profile costs by function.
    profiled: bool,
}

impl<R: Read + Seek> Timeline<R> {
    /// Opens a trace or a snapshot at its start.
    ///
    /// # Errors
    /// See [`TimelineError`].
    pub fn open(input: R) -> Result<Self, TimelineError> {
        let mut archive = Archive::open(input).map_err(TimelineError::Open)?;
        let (world, base) = beginning(&mut archive)?;
        let lanes = usize::from(world.spec().lanes);
        let began = world.steps();
        Ok(Self {
            archive,
            world,
            base,
            in_wave: 0,
            frame_began: began,
            frame_steps: 0,
            seen: vec![0; lanes],
            seen_boundary: 0,
            happened: Vec::new(),
            anchors: BTreeMap::new(),
            profiled: false,
        })
    }

    /// The file, for its machine, level and snapshots.
    #[must_use]
    pub const fn archive(&self) -> &Archive<R> {
        &self.archive
    }

    /// Profiles costs by function from here on, in every world the timeline makes
    /// ([`World::session_profile`]). Slower, but the same run.
    pub fn profile(&mut self) {
        if !self.profiled {
            self.profiled = true;
            self.world.profile();
        }
    }

    /// The machine at the current position.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The machine at the current position, for inspections that need `&mut` (a summary, a digest).
    /// Changing it changes the run.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The current position.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            step: self.world.steps() + self.in_wave,
            frame: self.world.next_frame_number().0,
        }
    }

    /// Whether the run has ended, or the recording of a live machine has.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.world.stage(), Stage::Over | Stage::Waiting)
    }

    /// The events of the last step: those of the boundaries before it first, its own last.
    #[must_use]
    pub fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// Makes one step. `false` if the run has ended; [`Timeline::happened`] then has the events up
    /// to its end.
    ///
    /// # Errors
    /// The host failed.
    pub fn step_forward(&mut self) -> Result<bool, TimelineError> {
        self.happened.clear();
        while !self.is_over() {
            if self.world.stage() == Stage::Wave {
                if self.world.step_in_wave() {
                    self.in_wave += 1;
                    let lane = self.world.turn().unwrap_or(LaneId(0));
                    self.note_lane(lane);
                    return Ok(true);
                }
                self.close_wave();
            } else {
                self.advance()?;
            }
        }
        Ok(false)
    }

    /// Goes one step back. `false` at the start of the run.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn step_back(&mut self) -> Result<bool, TimelineError> {
        match self
            .position()
            .step
            .checked_sub(1)
            .filter(|_| self.position().step > self.first_step())
        {
            Some(step) => self.seek_step(step).map(|_| true),
            None => Ok(false),
        }
    }

    /// Moves to the position after `step` steps, or to the run's end if it has fewer.
    /// [`Timeline::happened`] then has the events of the last step.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn seek_step(&mut self, step: u64) -> Result<Position, TimelineError> {
        // The last step is made again to get its events, so the position before it must be reached
        // first.
        let before = step.saturating_sub(1);
        if step != self.position().step + 1 || self.world.stage() != Stage::Wave {
            self.approach(step)?;
        }
        while self.position().step < before && !self.is_over() {
            if self.world.stage() != Stage::Wave {
                self.anchor_before(before);
                self.advance()?;
            } else if self.world.step_in_wave() {
                self.in_wave += 1;
            } else {
                self.close_wave();
            }
            self.happened.clear();
        }
        self.note_lanes();
        self.happened.clear();
        while self.position().step < step && self.step_forward()? {}
        Ok(self.position())
    }

    /// Restores the last stored state before `step`, unless the current position is already between
    /// that and `step`.
    ///
    /// # Errors
    /// The trace could not be read.
    pub fn approach(&mut self, step: u64) -> Result<(), TimelineError> {
        let before = step.saturating_sub(1);
        self.go_near(|place| place.steps < before, self.position().step < before)
    }

    /// Moves to the boundary before `frame`. If that frame was skipped, moves to the next one that
    /// was not; beyond the last frame, to the run's end.
    ///
    /// # Errors
    /// The trace could not be read or run.
    pub fn seek_frame(&mut self, frame: u64) -> Result<Position, TimelineError> {
        let here = self.position();
        let ahead =
            here.frame < frame || (here.frame == frame && self.world.stage() == Stage::Boundary);
        self.go_near(|place| place.frame <= frame, ahead && !self.is_over())?;
        while !(self.is_over()
            || (self.world.stage() == Stage::Boundary && self.position().frame >= frame))
        {
            if self.world.stage() == Stage::Wave {
                while self.world.step_in_wave() {}
                self.close_wave();
            } else {
                self.advance()?;
            }
            self.happened.clear();
        }
        Ok(self.position())
    }

    /// Moves forward step by step until `stop` returns true; the new position is just after that
    /// step. `false` if the run ends first.
    ///
    /// # Errors
    /// The host failed.
    pub fn forward_until(
        &mut self,
        mut stop: impl FnMut(&Self) -> bool,
    ) -> Result<bool, TimelineError> {
        while self.step_forward()? {
            if stop(self) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first position: 0, unless the run was resumed from a snapshot.
    #[must_use]
    pub fn first_step(&self) -> u64 {
        self.archive.origin().map_or(0, |place| place.steps)
    }

    /// The last position with a stored state for which `before` holds.
    fn nearest(
        &mut self,
        before: impl Fn(SnapshotPosition) -> bool,
    ) -> Result<Option<SnapshotPosition>, TimelineError> {
        let stored = match self.archive.last_snapshot(&before).map_err(TimelineError::Open)? {
            Some(number) => Some(self.archive.place(number).map_err(TimelineError::Open)?),
            None => None,
        };
        let anchored = self
            .anchors
            .iter()
            .rev()
            .map(|(&steps, anchor)| SnapshotPosition { frame: anchor.frame, steps })
            .find(|&place| before(place));
        Ok(stored.max(anchored))
    }

    /// Restores the last stored state for which `before` holds, unless the current position is
    /// already between that and the target.
    fn go_near(
        &mut self,
        before: impl Fn(SnapshotPosition) -> bool,
        ahead: bool,
    ) -> Result<(), TimelineError> {
        let nearest = self.nearest(&before)?;
        let here = self.position();
        if ahead && nearest.is_none_or(|place| place.steps <= here.step) {
            return Ok(());
        }
        let Some(place) = nearest else {
            let (world, base) = beginning(&mut self.archive)?;
            self.set_world(world, base);
            return Ok(());
        };
        if let Some(anchor) =
            self.anchors.get_mut(&place.steps).filter(|anchor| anchor.frame == place.frame)
        {
            let world =
                anchor.restore(&mut self.archive, &mut self.world).map_err(TimelineError::Open)?;
            let base = anchor.base.clone();
            self.set_world(world, base);
            return Ok(());
        }
        let number = self
            .archive
            .last_snapshot(|other| other <= place)
            .map_err(TimelineError::Open)?
            .unwrap_or(0);
        let (world, base) = restored(&mut self.archive, number, Some(&mut self.world))?;
        self.set_world(world, base);
        Ok(())
    }

    fn set_world(&mut self, world: World, base: Option<Arc<Base>>) {
        self.world = world;
        self.base = base;
        if self.profiled {
            self.world.profile();
        }
        self.in_wave = 0;
        self.frame_began = self.world.steps();
        self.frame_steps = 0;
        self.seen.fill(0);
        self.seen_boundary = 0;
        self.happened.clear();
    }

    /// Stores an anchor at a boundary that is probably the last one before `step`, so that going
    /// back from there is cheap.
    fn anchor_before(&mut self, step: u64) {
        let here = self.position();
        if self.world.stage() != Stage::Boundary
            || here.frame == 0
            || step - here.step > 2 * self.frame_steps.max(1)
        {
            return;
        }
        let earlier = self.anchors.range(..=here.step).next_back().map(|(_, anchor)| anchor);
        if let Some(anchor) = Anchor::of(&mut self.world, self.base.as_ref(), earlier) {
            self.anchors.insert(here.step, anchor);
        }
        if self.anchors.len() > MOST_ANCHORS {
            // Evict the farthest anchor.
            let far = self.anchors.keys().copied().max_by_key(|step| step.abs_diff(here.step));
            far.into_iter().for_each(|step| drop(self.anchors.remove(&step)));
        }
    }

    fn close_wave(&mut self) {
        self.world.close_wave();
        self.in_wave = 0;
        self.note_lanes();
    }

    /// Runs one stage that is not a step. The events of a frame are reported before its log is
    /// cleared.
    fn advance(&mut self) -> Result<(), TimelineError> {
        let end = self.archive.ending().filter(|ending| ending.was_interrupted());
        let ended = self.world.frame().0 + 1;
        if self.world.stage() == Stage::Boundary
            && self.world.next_frame_number() > Frame::ZERO
            && end.is_some_and(|ending| ending.frames <= ended)
        {
            self.world.suspend();
            return Ok(());
        }
        let mut ended = EndedFrame {
            lanes: Vec::new(),
            boundary: None,
            seen: &self.seen,
            seen_boundary: self.seen_boundary,
        };
        let stage = self.world.advance(&mut ended).map_err(TimelineError::Host)?;
        let EndedFrame { lanes, boundary, .. } = ended;
        if let Some(bytes) = boundary {
            self.happened.extend(lanes);
            push(&mut self.happened, None, &bytes);
            self.seen.fill(0);
            self.seen_boundary = 0;
        }
        if stage.is_boundary() {
            self.frame_steps = self.world.steps() - self.frame_began;
            self.frame_began = self.world.steps();
        }
        self.note_lanes();
        Ok(())
    }

    fn note_lanes(&mut self) {
        let bytes = self.world.boundary_events();
        push(&mut self.happened, None, &bytes[self.seen_boundary..]);
        self.seen_boundary = bytes.len();
        for lane in 0..self.world.spec().lanes {
            self.note_lane(LaneId(lane));
        }
    }

    fn note_lane(&mut self, lane: LaneId) {
        let bytes = self.world.lane_events(lane);
        let seen = &mut self.seen[usize::from(lane.0)];
        push(&mut self.happened, Some(lane.0), &bytes[*seen..]);
        *seen = bytes.len();
    }
}

fn push(happened: &mut Vec<Happened>, lane: Option<u16>, bytes: &[u8]) {
    if !bytes.is_empty() {
        happened.push(Happened { lane, bytes: bytes.into() });
    }
}

/// The machine at the start of the trace: as loaded, or in the state of the snapshot that it was
/// resumed from.
fn beginning<R: Read + Seek>(
    archive: &mut Archive<R>,
) -> Result<(World, Option<Arc<Base>>), TimelineError> {
    if archive.origin().is_some() {
        return restored(archive, 0, None);
    }
    let machine = &archive.machine;
    let loaded = World::load(machine.spec.clone(), machine.inputs.clone(), true)
        .map_err(TimelineError::Load)?;
    let mut world = loaded.world;
    archive.feed(&mut world).map_err(TimelineError::Open)?;
    Ok((world, None))
}

/// The machine in the state of a snapshot, and the base for anchors after it.
fn restored<R: Read + Seek>(
    archive: &mut Archive<R>,
    number: usize,
    old: Option<&mut World>,
) -> Result<(World, Option<Arc<Base>>), TimelineError> {
    let (mut world, table) =
        archive.restore_over(number, true, old).map_err(TimelineError::Open)?;
    let base = Base::new(table, &mut world);
    Ok((world, Some(Arc::new(base))))
}

/// A sink that collects the rest of the logs that a frame's end clears: those of the lanes and of
/// the boundary.
struct EndedFrame<'a> {
    lanes: Vec<Happened>,
    boundary: Option<Vec<u8>>,
    seen: &'a [usize],
    seen_boundary: usize,
}

impl Sink for EndedFrame<'_> {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        _: Frame,
        _: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        for (lane, bytes) in lanes.enumerate() {
            push(&mut self.lanes, Some(lane as u16), &bytes[self.seen[lane]..]);
        }
        self.boundary = Some(boundary[self.seen_boundary..].into());
    }
}
