//! The world: all groups, and the frame loop that defines behaviour (semantics 20 to 25, 29 to 33).
//!
//! ```text
//!   open_wave:  FrameStart ──▶ sample input ──▶ deliver, wake sleepers ──▶ ┐
//!                   ▲                                                      ▼
//!                   └── FRAME_SYNC ◀── no work, or frame over ◀── WAVE (lanes run) ──▶ close_wave
//! ```
//!
//! [`World::run`] is the sequential run. Another driver may run the groups of an open wave in any
//! order or at once: between [`World::open_wave`] and [`World::close_wave`] groups share nothing.
//! [`World::step`] runs one step in canonical order. Output leaves, and a recorder sees the frame,
//! only at FRAME_SYNC.

use crate::deadlock::Deadlock;
use crate::group::Group;
use crate::index::LaneIndex;
use crate::input::{InputEvent, Recipient};
use crate::profile::FrameCosts;
use crate::report::{Cycles as CycleTotals, RunSummary, SessionSummary};
use crate::session::SessionOutcome;
use crate::spec::{MachineSpec, Span};
use crate::wave_profile::WaveProfile;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, Cycles, Frame, SchedulerOperation, SessionId};
use wavelock_kernel::{Refusal, WakeSource, latest_clock};
use wavelock_trace::{Digest, Event, EventWriter, RunDigest};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RunOutcome {
    /// Every session ended well.
    Finished = 0,
    /// The frame limit ended it.
    Frames = 1,
    /// What is left waits for what can never come.
    Deadlock = 2,
    /// A session faulted.
    Faulted = 3,
}

impl RunOutcome {
    /// The word of the command line's JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Frames => "frames",
            Self::Deadlock => "deadlock",
            Self::Faulted => "faulted",
        }
    }
}

/// The host could not go on. No guest is told; the run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostFailure {
    /// The scheduler's structures could not grow.
    Kernel(Refusal),
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(refusal) => {
                write!(f, "the host could not hold another coroutine: {refusal}")
            }
        }
    }
}

impl core::error::Error for HostFailure {}

/// What leaves the machine at FRAME_SYNC, and nowhere else.
pub trait Sink {
    /// Output of a session, in emission order; sessions come in manifest order.
    fn output(&mut self, session: SessionId, bytes: &[u8]);
    /// Diagnostics of a session. Not an observable.
    fn log(&mut self, session: SessionId, bytes: &[u8]);
    /// A frame is over: its boundary events and, where lanes keep them, each lane's events in lane
    /// order.
    fn frame(
        &mut self,
        _frame: Frame,
        _digest: Digest,
        _boundary: &[u8],
        _lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
    }
    /// What the frame cost, if the world keeps costs; comes right after [`Sink::frame`].
    fn costs(&mut self, _costs: &FrameCosts) {}
    /// Between two frames, after everything of the last one has left: what a snapshot keeps. Not
    /// called after the last frame.
    fn boundary(&mut self, _world: &mut World) {}
}

/// A sink that drops everything.
impl Sink for () {
    fn output(&mut self, _: SessionId, _: &[u8]) {}
    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Between two frames: the last one has left, this one comes next. Logs and outputs are empty
    /// here.
    Boundary(Frame),
    /// The frame has begun: input is sampled, sleepers are awake; waves may run.
    Frame,
    /// A wave is open; the number is the lane whose turn it is in canonical one-step order.
    Wave(usize),
    /// The run is over.
    Done(RunOutcome),
}

/// Where [`World::advance`] has brought the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Between two frames: what the last one was has left, nothing of the next has happened. The
    /// place for a snapshot.
    Boundary,
    /// A frame has begun; no wave is open.
    Frame,
    /// A wave is open.
    Wave,
    /// The run is over.
    Over,
}

/// A machine in motion.
pub struct World {
    pub(crate) spec: Arc<MachineSpec>,
    pub(crate) groups: Vec<Box<Group>>,
    /// By lane: its group, and its index there.
    pub(crate) lane_places: Arc<[(usize, LaneIndex)]>,
    /// By session: its group.
    pub(crate) session_places: Vec<usize>,
    /// By wired channel: the sessions with a port to it.
    pub(crate) wired_senders: BTreeMap<ChannelId, Vec<SessionId>>,
    pub(crate) inputs: VecDeque<InputEvent>,
    /// Input events that were delivered.
    pub(crate) delivered_inputs: u64,
    pub(crate) frame: Frame,
    pub(crate) wave: u64,
    pub(crate) steps: u64,
    pub(crate) ended_sessions: usize,
    pub(crate) peak: u64,
    pub(crate) phase: Phase,
    pub(crate) digest: RunDigest,
    /// Sessions that were given input they may not have read.
    pub(crate) sampled: Vec<SessionId>,
    /// Boundary events of this frame.
    pub(crate) boundary: Vec<u8>,
    pub(crate) deadlock: Option<Deadlock>,
    pub(crate) dropped_inputs: u64,
    /// Effects that crossed lanes, and sessions that moved.
    pub(crate) crossings: u64,
    pub(crate) moves: u64,
    /// Costs are kept in detail.
    pub(crate) profiling: bool,
    pub(crate) wave_profile: Option<Box<WaveProfile>>,
    /// Most coroutines at once in this frame.
    pub(crate) frame_peak: u64,
}

impl World {
    pub(crate) fn assemble(
        spec: Arc<MachineSpec>,
        groups: Vec<Box<Group>>,
        lane_places: Arc<[(usize, LaneIndex)]>,
        session_places: Vec<usize>,
        inputs: Vec<InputEvent>,
    ) -> Self {
        let digest = RunDigest::new(&spec.identity());
        let peak = groups.iter().map(|group| group.live).sum();
        Self {
            spec,
            groups,
            lane_places,
            session_places,
            wired_senders: BTreeMap::new(),
            inputs: inputs.into(),
            delivered_inputs: 0,
            frame: Frame::ZERO,
            wave: 0,
            steps: 0,
            ended_sessions: 0,
            peak,
            phase: Phase::Boundary(Frame::ZERO),
            digest,
            sampled: Vec::new(),
            boundary: Vec::new(),
            deadlock: None,
            dropped_inputs: 0,
            crossings: 0,
            moves: 0,
            profiling: false,
            wave_profile: None,
            frame_peak: 0,
        }
    }

    /// Runs to the end, sequentially: the definition of what every other driver must equal.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn run(&mut self, sink: &mut dyn Sink) -> Result<RunOutcome, HostFailure> {
        while self.open_wave(sink)? {
            for group in &mut self.groups {
                group.run_wave();
            }
            self.close_wave();
        }
        Ok(self.outcome().unwrap_or(RunOutcome::Finished))
    }

    /// Runs exactly one step in canonical order. `false` when the run is over.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn step(&mut self, sink: &mut dyn Sink) -> Result<bool, HostFailure> {
        while self.open_wave(sink)? {
            if self.step_in_wave() {
                return Ok(true);
            }
            self.close_wave();
        }
        Ok(false)
    }

    /// Runs the next step of the open wave in canonical order. `false` when the wave has none left.
    pub fn step_in_wave(&mut self) -> bool {
        while let Phase::Wave(turn) = self.phase
            && turn < self.lane_places.len()
        {
            let (group, lane) = self.lane_places[turn];
            if self.groups[group].step(lane) {
                return true;
            }
            self.phase = Phase::Wave(turn + 1);
        }
        false
    }

    /// Opens the next wave, beginning and ending frames as needed; an open one stays open. `false`
    /// when the run is over.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn open_wave(&mut self, sink: &mut dyn Sink) -> Result<bool, HostFailure> {
        loop {
            match self.advance(sink)? {
                Stage::Over => return Ok(false),
                Stage::Wave => return Ok(true),
                Stage::Boundary => sink.boundary(self),
                Stage::Frame => {}
            }
        }
    }

    /// Goes one stage further: ends the frame, begins the next, or opens a wave. An open wave stays
    /// open, a run that is over stays over.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn advance(&mut self, sink: &mut dyn Sink) -> Result<Stage, HostFailure> {
        if let Some(refusal) = self.groups.iter().find_map(|group| group.failure) {
            return Err(HostFailure::Kernel(refusal));
        }
        match self.phase {
            Phase::Done(_) | Phase::Wave(_) => return Ok(self.stage()),
            Phase::Boundary(next) => self.enter(next),
            Phase::Frame if self.ended_sessions == self.session_places.len() => self.finish(sink),
            Phase::Frame if self.has_work() && !self.frame_over() => self.begin_wave(),
            Phase::Frame
                if self.next_release().is_some_and(|at| at < self.frame_end())
                    && !self.frame_over() =>
            {
                self.idle_to_release()
            }
            Phase::Frame => match self.find_deadlock() {
                Some(deadlock) => {
                    self.deadlock = Some(deadlock);
                    self.end(sink, RunOutcome::Deadlock);
                }
                None => self.next_frame(sink),
            },
        }
        Ok(self.stage())
    }

    /// Where the machine is.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        match self.phase {
            Phase::Boundary(_) => Stage::Boundary,
            Phase::Frame => Stage::Frame,
            Phase::Wave(_) => Stage::Wave,
            Phase::Done(_) => Stage::Over,
        }
    }

    /// In an open wave, the lane whose turn it is in canonical order: after a step, the lane that
    /// made it.
    #[must_use]
    pub const fn turn(&self) -> Option<u16> {
        match self.phase {
            Phase::Wave(turn) => Some(turn as u16),
            _ => None,
        }
    }

    /// What a lane has written to its log in this frame: all of it in a world that keeps events.
    #[must_use]
    pub fn lane_events(&mut self, lane: u16) -> &[u8] {
        self.lane_places
            .get(usize::from(lane))
            .map_or(&[], |&(group, lane)| self.groups[group].lanes[lane].log.bytes())
    }

    /// What happened in this frame outside any lane.
    #[must_use]
    pub fn boundary_events(&self) -> &[u8] {
        &self.boundary
    }

    /// Ends the open wave: lanes see each other's effects.
    pub fn close_wave(&mut self) {
        if self.begin_close().is_some() {
            self.groups.iter_mut().for_each(|group| group.settle());
            self.finish_close();
        }
    }

    /// The first part of [`World::close_wave`], for a driver that lets each group
    /// [`settle`](Group::settle) on a thread of its choice and then calls [`World::finish_close`].
    /// Returns how many effects they have to settle, or `None` if no wave is open.
    pub fn begin_close(&mut self) -> Option<usize> {
        if !matches!(self.phase, Phase::Wave(_)) {
            return None;
        }
        self.phase = Phase::Frame;
        let live: u64 = self.groups.iter().map(|group| group.wave_peak).sum();
        self.peak = self.peak.max(live);
        self.frame_peak = self.frame_peak.max(live);
        self.profile_wave();
        Some(self.sort_effects())
    }

    /// The last part of [`World::close_wave`], when every group has settled and is back.
    pub fn finish_close(&mut self) {
        self.finish_exchange();
        if self.spec.steal {
            self.steal();
        }
        self.steps = 0;
        for group in &mut self.groups {
            self.steps += group.lanes.iter().map(|lane| lane.steps).sum::<u64>();
            self.ended_sessions += group.ended.len();
            group.ended.clear();
        }
    }

    /// The number of the open or next wave.
    #[must_use]
    pub const fn wave(&self) -> u64 {
        self.wave
    }

    /// The groups, in the order of their first lanes.
    #[must_use]
    pub fn groups(&self) -> &[Box<Group>] {
        &self.groups
    }

    /// The groups, for a driver to run while a wave is open. All must be back, in this order, when
    /// it is closed.
    pub fn groups_mut(&mut self) -> &mut Vec<Box<Group>> {
        &mut self.groups
    }

    fn begin_wave(&mut self) {
        self.mark_wave();
        let start = self.clock();
        for group in &mut self.groups {
            group.wave_peak = group.live;
            for lane in &mut group.lanes {
                let span = match self.spec.span {
                    Span::Cycles(cycles) => wavelock_kernel::Span::Until(start + cycles),
                    Span::Picks(picks) => wavelock_kernel::Span::Picks(picks),
                };
                if lane.kernel.has_work() || lane.kernel.next_release().is_some() {
                    lane.begin_wave(span);
                }
            }
        }
        self.phase = Phase::Wave(0);
    }

    /// The latest lane clock: where the next wave begins.
    pub(crate) fn clock(&self) -> Cycles {
        latest_clock(self.lane_states().map(|lane| &lane.kernel))
    }

    fn lane_states(&self) -> impl Iterator<Item = &crate::group::LaneState> {
        self.groups.iter().flat_map(|group| &group.lanes)
    }

    fn has_work(&self) -> bool {
        self.lane_states().any(|lane| lane.kernel.has_work())
    }

    /// With nothing to run but a refill to come in this frame, every lane is idle until then; a
    /// wave begins with it.
    fn idle_to_release(&mut self) {
        let Some(at) = self.next_release() else { return };
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            lane.kernel.align(at);
        }
        self.begin_wave();
    }

    /// When the next refill comes that somebody waits for.
    fn next_release(&self) -> Option<Cycles> {
        self.lane_states().filter_map(|lane| lane.kernel.next_release()).min()
    }

    fn frame_over(&self) -> bool {
        self.clock() >= self.frame_end()
    }

    fn frame_end(&self) -> Cycles {
        Cycles((self.frame.0 + 1) * self.spec.frame_cycles.0)
    }

    fn emit(&mut self, event: &Event<'_>) {
        EventWriter(&mut self.boundary).event(event);
    }

    /// Begins the current frame: input is sampled; then sleepers wake, lane by lane, and those who
    /// wait for input look again.
    fn begin_frame(&mut self) {
        let frame = self.frame;
        self.emit(&Event::FrameStart { frame: frame.0 });
        if frame == Frame::ZERO {
            self.announce_contexts();
        }
        let mut given: Vec<SessionId> = Vec::new();
        while self.inputs.front().is_some_and(|event| event.frame <= frame) {
            let Some(event) = self.inputs.pop_front() else { break };
            self.delivered_inputs += 1;
            let first = given.len();
            match event.recipient {
                Recipient::Session(session) => given.push(session),
                Recipient::All => {
                    given.extend((0..self.session_places.len() as u32).map(SessionId))
                }
            }
            given[first..].iter().for_each(|&session| self.sample(session, &event.bytes));
        }
        for group in &mut self.groups {
            group.frame = frame;
            for lane in &mut group.lanes {
                if frame > Frame::ZERO {
                    let woken = lane.kernel.begin_frame(frame);
                    if woken > 0 {
                        lane.log.event(&Event::Timers { woken: u64::from(woken) });
                    }
                }
            }
        }
        // After the lanes' frames have begun, so that these wakes are booked in the frame they
        // belong to.
        given.into_iter().for_each(|session| self.wake_readers(session));
    }

    fn sample(&mut self, session: SessionId, bytes: &[u8]) {
        self.emit(&Event::Sample { session: u64::from(session.0), bytes });
        let state = self.session(session);
        if state.ended.is_some() {
            return;
        }
        state.input.deliver(bytes.into());
        self.sampled.push(session);
    }

    /// Coroutines that wait in `fd_read` look again.
    fn wake_readers(&mut self, session: SessionId) {
        while let Some(slot) = self.session(session).input.waiting.pop() {
            let lane = self.session(session).tasks.lane_at(slot);
            let (group, lane) = self.lane_places[usize::from(lane)];
            let group = &mut self.groups[group];
            let index = group.local[session];
            group.answer(lane, index, slot, crate::task::Wait::None, WakeSource::Input);
        }
    }

    /// Ends the frame; the next is the one that has anything in it. A run out of frames ends.
    fn next_frame(&mut self, sink: &mut dyn Sink) {
        let next = if self.has_work() { Frame(self.frame.0 + 1) } else { self.next_event_frame() };
        let last = self.last_frame();
        if self.frame >= last {
            return self.end(sink, RunOutcome::Frames);
        }
        if self.spec.balance {
            self.balance();
        }
        self.frame_sync(sink, false);
        self.phase = Phase::Boundary(next.min(last));
    }

    /// Begins `next`; whole frames before it are jumped over, as idle.
    fn enter(&mut self, next: Frame) {
        let from = self.frame.0;
        if next.0 > from + 1 {
            self.emit(&Event::Jump { from, to: next.0 });
        }
        self.frame = next;
        self.phase = Phase::Frame;
        self.begin_frame();
    }

    /// The frame of the next sleeper or input event.
    fn next_event_frame(&mut self) -> Frame {
        let sleeper = self
            .groups
            .iter_mut()
            .flat_map(|group| &mut group.lanes)
            .filter_map(|lane| lane.kernel.next_wake())
            .min();
        let input = self.inputs.front().map(|event| event.frame);
        let refill = self.next_release().map(|at| Frame(at.0 / self.spec.frame_cycles.0));
        let input = refill.into_iter().chain(input).min();
        match (sleeper, input) {
            (Some(sleeper), Some(input)) => sleeper.min(input),
            (Some(frame), None) | (None, Some(frame)) => frame,
            (None, None) => Frame(self.frame.0 + 1),
        }
        .max(Frame(self.frame.0 + 1))
    }

    /// The last frame the run may have: the manifest's limit, and what the clocks of all lanes
    /// together can count.
    pub(crate) fn last_frame(&self) -> Frame {
        let countable =
            (u64::MAX / self.spec.frame_cycles.0 / u64::from(self.spec.lanes)).saturating_sub(2);
        Frame(
            self.spec
                .max_frames
                .map_or(countable, |frames| frames.saturating_sub(1).min(countable)),
        )
    }

    /// FRAME_SYNC: the lanes' frames are hashed in lane order, output leaves in manifest order,
    /// unread input is dropped.
    ///
    /// The last frame is counted to the wave in which the last session ended, or none could go on;
    /// every other one is idle to its end.
    fn frame_sync(&mut self, sink: &mut dyn Sink, last: bool) {
        self.sampled.sort_unstable();
        self.sampled.dedup();
        for session in core::mem::take(&mut self.sampled) {
            let dropped = self.session(session).input.end_frame();
            if dropped > 0 {
                self.dropped_inputs += dropped;
                self.emit(&Event::Dropped { session: u64::from(session.0), events: dropped });
            }
        }
        let frame = self.frame;
        self.emit(&Event::FrameSync { frame: frame.0 });
        let mut hashes = Vec::with_capacity(self.lane_places.len());
        let mut rows = Vec::with_capacity(self.lane_places.len());
        for &(group, lane) in self.lane_places.iter() {
            let lane = &mut self.groups[group].lanes[lane];
            rows.push(if last { lane.kernel.row() } else { lane.kernel.end_frame() });
            hashes.push(lane.log.finish_frame());
        }
        self.digest.frame_sync(frame, &hashes, &self.boundary);
        let lanes = &self.lane_places;
        let groups = &self.groups;
        sink.frame(
            frame,
            self.digest.value(),
            &self.boundary,
            &mut lanes.iter().map(|&(group, lane)| groups[group].lanes[lane].log.finished()),
        );
        if self.profiling {
            sink.costs(&self.frame_costs(rows));
        }
        self.frame_peak = 0;
        self.boundary.clear();
        for &(group, lane) in self.lane_places.iter() {
            self.groups[group].lanes[lane].log.begin_frame();
        }
        let mut voiced: Vec<SessionId> =
            self.groups.iter_mut().flat_map(|group| core::mem::take(&mut group.voiced)).collect();
        voiced.sort_unstable();
        for id in voiced {
            let state = self.session(id);
            if !state.log.is_empty() {
                sink.log(id, &state.log);
                state.log.clear();
            }
            if !state.output.is_empty() {
                sink.output(id, &state.output);
                state.output.clear();
            }
        }
    }

    fn finish(&mut self, sink: &mut dyn Sink) {
        let faulted = (0..self.session_places.len() as u32)
            .any(|session| self.session(SessionId(session)).ended == Some(SessionOutcome::Faulted));
        self.end(sink, if faulted { RunOutcome::Faulted } else { RunOutcome::Finished });
    }

    /// The run is over. Machine outcome: faulted > deadlock > frames > finished (semantics 11).
    fn end(&mut self, sink: &mut dyn Sink, outcome: RunOutcome) {
        let faulted = (0..self.session_places.len() as u32).any(|session| {
            let state = self.session(SessionId(session));
            state.ended == Some(SessionOutcome::Faulted)
                || (state.ended.is_none() && state.verdict() == SessionOutcome::Faulted)
        });
        let whole = outcome == RunOutcome::Frames;
        let outcome = if faulted { RunOutcome::Faulted } else { outcome };
        if let Some(deadlock) = &self.deadlock {
            let waiting = deadlock.waiting.len() as u64;
            self.emit(&Event::Deadlock { waiting });
        }
        self.frame_sync(sink, !whole);
        self.digest.outcome(&Event::Outcome { outcome: outcome as u64 });
        self.phase = Phase::Done(outcome);
    }

    /// How the run ended, once it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<RunOutcome> {
        match self.phase {
            Phase::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The current frame.
    #[must_use]
    pub const fn frame(&self) -> Frame {
        self.frame
    }

    /// The current frame; at a boundary the one that begins next.
    #[must_use]
    pub const fn next_frame_number(&self) -> Frame {
        match self.phase {
            Phase::Boundary(next) => next,
            _ => self.frame,
        }
    }

    /// Steps committed so far, as of the last wave's end.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The run digest as of the last FRAME_SYNC.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest.value()
    }

    /// Effects that have crossed lanes, and sessions that have moved: functions of the model.
    #[must_use]
    pub const fn crossings_and_moves(&self) -> (u64, u64) {
        (self.crossings, self.moves)
    }

    /// What the machine is made of.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The deadlock that ended the run, if one did.
    #[must_use]
    pub const fn deadlock(&self) -> Option<&Deadlock> {
        self.deadlock.as_ref()
    }

    /// Everything the command line reports of a run.
    #[must_use]
    pub fn summary(&mut self) -> RunSummary {
        let mut cycles = CycleTotals::default();
        for lane in self.lane_states() {
            let totals = lane.kernel.totals();
            cycles.charged += totals.charged.0;
            cycles.idle += totals.idle.0;
            for &operation in SchedulerOperation::ALL {
                cycles.overhead[operation as usize] += totals.overhead[operation as usize].0;
            }
        }
        let sessions = (0..self.session_places.len() as u32)
            .map(|session| self.session_summary(SessionId(session)))
            .collect();
        RunSummary {
            outcome: self.outcome(),
            digest: self.digest(),
            frames: self.frame.0 + 1,
            steps: self.steps,
            waves: self.wave,
            cycles,
            peak: self.peak,
            sessions,
        }
    }

    fn session_summary(&mut self, id: SessionId) -> SessionSummary {
        let deadlocked = self.deadlock.is_some();
        let state = self.session(id);
        let outcome = state.ended.unwrap_or_else(|| match state.verdict() {
            SessionOutcome::Faulted => SessionOutcome::Faulted,
            _ if deadlocked => SessionOutcome::Deadlock,
            _ => SessionOutcome::Running,
        });
        SessionSummary {
            name: state.name.clone(),
            outcome,
            exit: state.exit,
            cycles: Cycles(state.cycles),
            digest: state.digest(),
            spawned: state.tasks.published,
            finished: state.tasks.finished,
            faulted: state.tasks.faulted,
            peak: state.tasks.peak,
            host_calls: state.host_calls,
            messages: state.messages,
            log_dropped: state.log_dropped,
            faults: state.faults.clone(),
        }
    }
}
