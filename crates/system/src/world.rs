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
//! [`World::step`] runs one step in canonical order. Output leaves, and a recorder gets the frame,
//! only at FRAME_SYNC.
//!
//! Elsewhere: the end of a wave (`boundary`), the bytes of a world (`state`), reports (`report`,
//! `look`).

use crate::control::{Control, ControlRefusal};
use crate::deadlock::Deadlock;
use crate::functions::HostCode;
use crate::group::{Group, LaneState};
use crate::index::{GroupIndex, LaneIndex};
use crate::input::Recipient;
use crate::lease::LeaseRun;
use crate::live::{Given, Input, MOST_UNREAD_BYTES, MOST_UNREAD_EVENTS};
use crate::moves::StuckMigrations;
use crate::profile::FrameCosts;
use crate::session::{SessionOutcome, SessionState};
use crate::spec::{MachineSpec, Span};
use crate::start::Planned;
use crate::state::StateHead;
use crate::task::Wait;
use crate::wave_profile::WaveProfile;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, Cycles, Frame, LaneId, SessionId};
use wavelock_kernel::{Refusal, WakeSource, latest_clock};
use wavelock_trace::{Digest, Event, EventWriter, RunDigest};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RunOutcome {
    /// Every session ended without a fault.
    Finished = 0,
    /// The frame limit ended it.
    Frames = 1,
    /// Every coroutine left waits for an event that can never happen.
    Deadlock = 2,
    /// A session faulted.
    Faulted = 3,
    /// A live machine was told to end before its sessions did.
    Stopped = 4,
    /// A budget's overrun policy ended a session.
    Killed = 5,
}

impl RunOutcome {
    /// All of them, by their numbers.
    pub const ALL: &'static [Self] =
        &[Self::Finished, Self::Frames, Self::Deadlock, Self::Faulted, Self::Stopped, Self::Killed];

    /// The word of the command line's JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["finished", "frames", "deadlocked", "faulted", "stopped", "killed"][self as usize]
    }
}

/// The host could not continue. No guest sees it; the run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostFailure {
    /// The scheduler's structures could not grow.
    Kernel(Refusal),
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Kernel(refusal) = self;
        write!(f, "the host could not hold another coroutine: {refusal}")
    }
}

impl core::error::Error for HostFailure {}

/// Where everything that leaves the machine goes, at FRAME_SYNC only.
pub trait Sink {
    /// Output of a session, in emission order; sessions come in manifest order.
    fn output(&mut self, session: SessionId, bytes: &[u8]);
    /// Diagnostics of a session. Not an observable.
    fn log(&mut self, session: SessionId, bytes: &[u8]);
    /// A frame of a live machine starts with these inputs, of which there is at least one.
    fn inputs(&mut self, _frame: Frame, _inputs: &[Input]) {}
    /// A control input of a live machine could not take effect in its frame.
    fn refused(&mut self, _frame: Frame, _control: &Control, _refusal: &ControlRefusal) {}
    /// What the embedder's functions answered on a lane in this frame, if any was called; comes
    /// before [`Sink::frame`].
    fn answers(&mut self, _frame: Frame, _lane: LaneId, _answers: &[u8]) {}
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
    /// The costs of the frame, if the world keeps costs; comes right after [`Sink::frame`].
    fn costs(&mut self, _costs: &FrameCosts) {}
    /// Between two frames, after the last one has left: the point for a snapshot, and for
    /// [`World::suspend`]. Not called after the last frame.
    fn boundary(&mut self, _world: &mut World) {}
}

/// A sink that drops everything.
impl Sink for () {
    fn output(&mut self, _: SessionId, _: &[u8]) {}
    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Between two frames: the last one has left. Logs and outputs are empty.
    Boundary,
    /// The frame has started: input is sampled, sleepers are awake; waves may run.
    Frame,
    /// A wave is open; the number is the lane that steps next in canonical one-step order.
    Wave(usize),
    /// The run was suspended at a boundary: it has no outcome.
    Suspended,
    /// The run is over.
    Done(RunOutcome),
}

/// The stage that [`World::advance`] has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Between two frames: everything of the last one has left, nothing of the next has happened.
    /// The point for a snapshot.
    Boundary,
    /// A boundary, and the next frame may not start yet ([`World::allow`]). Also a point for a
    /// snapshot.
    Waiting,
    /// A frame has started; no wave is open.
    Frame,
    /// A wave is open.
    Wave,
    /// The run is over.
    Over,
}

impl Stage {
    /// Whether the machine is between two frames, where it has a state to save.
    #[must_use]
    pub const fn is_boundary(self) -> bool {
        matches!(self, Self::Boundary | Self::Waiting)
    }
}

/// A machine in motion.
///
/// Its state at a boundary is `groups` and `progress`. Everything else follows from the spec and
/// the inputs, is empty at a boundary, or is a profile, which is not state.
pub struct World {
    pub(crate) spec: Arc<MachineSpec>,
    pub(crate) groups: Vec<Box<Group>>,
    /// The current frame (`ended_frame`; at a boundary `frame` is the next), and the totals so far.
    /// The digest is in `digest`.
    pub(crate) progress: StateHead,
    pub(crate) phase: Phase,
    pub(crate) digest: RunDigest,
    /// By lane: its group, and its position there.
    pub(crate) lane_positions: Arc<[(GroupIndex, LaneIndex)]>,
    /// By session: its group.
    pub(crate) session_groups: Vec<GroupIndex>,
    /// By session: the first lane of its group.
    pub(crate) group_lanes: Vec<LaneId>,
    /// By lease of the description.
    pub(crate) leases: Vec<LeaseRun>,
    /// By wired channel: the sessions with a port to it.
    pub(crate) wired_senders: BTreeMap<ChannelId, Vec<SessionId>>,
    /// Input events that are not delivered yet.
    pub(crate) inputs: VecDeque<Given>,
    /// Bytes of them.
    pub(crate) waiting_bytes: u64,
    /// The description with the sessions that wait to start, if any do. Not state.
    pub(crate) planned: Option<Planned>,
    /// Asks with a reply among `inputs`, by session and number. Not state, as those are not.
    pub(crate) replies: BTreeSet<(SessionId, u64)>,
    /// The first frame that may not start. Not state.
    pub(crate) until: Frame,
    /// A live machine was told to end with this frame.
    pub(crate) is_stopping: bool,
    pub(crate) ended_sessions: usize,
    /// Sessions that got input in this frame.
    pub(crate) sampled: Vec<SessionId>,
    /// Boundary events of this frame.
    pub(crate) boundary: Vec<u8>,
    pub(crate) deadlock: Option<Deadlock>,
    /// If the frame limit ended the run: the digest without the outcome, and the next frame.
    pub(crate) before_end: Option<(Digest, Frame)>,
    /// Steals that a ban of moves prevented. Not state.
    pub(crate) stuck: Option<StuckMigrations>,
    /// Set while costs are kept in detail.
    pub(crate) wave_profile: Option<Box<WaveProfile>>,
    /// The code of the embedder's functions. Not state.
    pub(crate) host_code: Option<Arc<dyn HostCode>>,
    /// Most coroutines at once in this frame.
    pub(crate) frame_peak: u64,
}

/// Driving a machine.
impl World {
    /// Runs to the end, sequentially: the definition that every other driver must equal. A live
    /// machine ends with a stop input, or with its last frame.
    ///
    /// # Errors
    /// The host could not continue.
    pub fn run(&mut self, sink: &mut dyn Sink) -> Result<RunOutcome, HostFailure> {
        self.allow(Frame(u64::MAX));
        self.run_allowed(sink)?;
        Ok(self.outcome().unwrap_or(RunOutcome::Finished))
    }

    /// Runs, sequentially, the frames that may start ([`World::allow`]).
    ///
    /// # Errors
    /// The host could not continue.
    pub fn run_allowed(&mut self, sink: &mut dyn Sink) -> Result<(), HostFailure> {
        while self.open_wave(sink)? {
            for group in &mut self.groups {
                group.run_wave();
            }
            self.close_wave();
        }
        Ok(())
    }

    /// Runs exactly one step in canonical order. `false` when the run is over, or waits.
    ///
    /// # Errors
    /// The host could not continue.
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
        self.step_after(&mut |_| {})
    }

    /// [`World::step_in_wave`], with `prepare` called before each dispatch.
    pub(crate) fn step_after(&mut self, prepare: &mut dyn FnMut(&mut LaneState)) -> bool {
        while let Phase::Wave(turn) = self.phase
            && let Some(&(group, lane)) = self.lane_positions.get(turn)
        {
            prepare(&mut self.groups[group].lanes[lane]);
            if self.groups[group].step(lane) {
                return true;
            }
            self.phase = Phase::Wave(turn + 1);
        }
        false
    }

    /// Opens the next wave, starting and ending frames as needed; an open one stays open. `false`
    /// when the run is over, or the next frame may not start ([`World::allow`]).
    ///
    /// # Errors
    /// The host could not continue.
    pub fn open_wave(&mut self, sink: &mut dyn Sink) -> Result<bool, HostFailure> {
        loop {
            let was_boundary = self.phase == Phase::Boundary;
            let stage = self.advance(sink)?;
            if stage.is_boundary() && !was_boundary {
                // The sink may let the machine run on.
                sink.boundary(self);
                continue;
            }
            match stage {
                Stage::Over | Stage::Waiting => return Ok(false),
                Stage::Wave => return Ok(true),
                Stage::Boundary | Stage::Frame => {}
            }
        }
    }

    /// Advances by one stage: ends the frame, starts the next, or opens a wave. An open wave stays
    /// open, a run that is over stays over, one that waits stays so.
    ///
    /// # Errors
    /// The host could not continue.
    pub fn advance(&mut self, sink: &mut dyn Sink) -> Result<Stage, HostFailure> {
        if let Some(refusal) = self.groups.iter().find_map(|group| group.failure) {
            return Err(HostFailure::Kernel(refusal));
        }
        match self.phase {
            Phase::Done(_) | Phase::Suspended | Phase::Wave(_) => {}
            Phase::Boundary if self.spec.live => self.begin_due_frame(sink),
            Phase::Boundary if self.progress.frame >= self.until => {}
            Phase::Boundary => self.begin_frame(sink),
            Phase::Frame if self.ended_sessions == self.session_groups.len() && !self.spec.live => {
                self.end(sink, RunOutcome::Finished);
            }
            Phase::Frame if self.clock() < self.frame_end() && self.has_work() => {
                self.begin_wave();
            }
            Phase::Frame
                if self.clock() < self.frame_end()
                    && let Some(at) = self.next_release().filter(|&at| at < self.frame_end()) =>
            {
                // Nothing can run before this refill: every lane is idle until then.
                self.lanes_mut().for_each(|lane| lane.kernel.align(at));
                self.begin_wave();
            }
            Phase::Frame => self.leave_frame(sink),
        }
        Ok(self.stage())
    }

    /// Nothing can run in this frame any more: it ends, or the run. A lease that is on its way
    /// takes a step before, which needs no wave.
    fn leave_frame(&mut self, sink: &mut dyn Sink) {
        if self.clock() < self.frame_end() && self.advance_leases() {
            return;
        }
        match self.find_deadlock() {
            Some(deadlock) => {
                self.deadlock = Some(deadlock);
                self.end(sink, RunOutcome::Deadlock);
            }
            None => self.end_frame(sink),
        }
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
    /// Returns the number of effects to settle, or `None` if no wave is open.
    pub fn begin_close(&mut self) -> Option<usize> {
        if !matches!(self.phase, Phase::Wave(_)) {
            return None;
        }
        self.phase = Phase::Frame;
        let live: u64 = self.groups.iter().map(|group| group.wave_peak).sum();
        self.progress.peak = self.progress.peak.max(live);
        self.frame_peak = self.frame_peak.max(live);
        self.profile_wave();
        Some(self.sort_effects())
    }

    /// The last part of [`World::close_wave`], when every group has settled and is back.
    pub fn finish_close(&mut self) {
        self.finish_exchange();
        self.apply_commands();
        self.answer_session_waits();
        let _ = self.advance_leases();
        if self.spec.steal {
            self.steal();
        }
        self.progress.steps = self.lanes().map(|lane| lane.steps).sum();
        self.count_ended();
    }

    pub(crate) fn count_ended(&mut self) {
        for group in &mut self.groups {
            self.ended_sessions += group.ended.len();
            group.ended.clear();
        }
    }

    /// The groups, for a driver to run while a wave is open. All must be back, in this order, when
    /// it is closed.
    pub fn groups_mut(&mut self) -> &mut Vec<Box<Group>> {
        &mut self.groups
    }
}

/// Frames and waves.
impl World {
    fn begin_wave(&mut self) {
        self.mark_wave();
        let span = match self.spec.span {
            Span::Cycles(cycles) => wavelock_kernel::Span::Until(self.clock() + cycles),
            Span::Picks(picks) => wavelock_kernel::Span::Picks(picks),
        };
        for group in &mut self.groups {
            group.wave_peak = group.live;
            for lane in &mut group.lanes {
                if lane.kernel.has_work() || lane.kernel.next_release().is_some() {
                    lane.begin_wave(span);
                }
            }
        }
        self.phase = Phase::Wave(0);
    }

    /// Starts the next frame; whole frames before it are jumped over, as idle. Sleepers wake, lane
    /// by lane; then inputs are taken in their order: input events are sampled, control inputs
    /// applied; then the coroutines that wait for input wake.
    pub(crate) fn begin_frame(&mut self, sink: &mut dyn Sink) {
        let (from, frame) = (self.frame(), self.progress.frame);
        if frame.0 > from.0 + 1 {
            self.emit(&Event::Jump { from: from.0, to: frame.0 });
        }
        self.progress.ended_frame = frame;
        self.phase = Phase::Frame;
        self.emit(&Event::FrameStart { frame: frame.0 });
        if frame == Frame::ZERO {
            self.announce_contexts();
            self.request_first_leases();
        }
        for group in &mut self.groups {
            group.frame = frame;
            for lane in group.lanes.iter_mut().filter(|_| frame > Frame::ZERO) {
                let woken = lane.kernel.begin_frame(frame);
                if woken > 0 {
                    lane.log.event(&Event::Timers { woken: u64::from(woken) });
                }
                lane.log_cap_events();
            }
        }
        self.expire_leases();
        let mut given: Vec<SessionId> = Vec::new();
        let mut inputs = Vec::new();
        while let Some(Given { input, .. }) = self.inputs.pop_front_if(|given| given.frame <= frame)
        {
            self.waiting_bytes -= input.size();
            if let Input::Answers { lane, bytes } = input {
                self.follow_answers(lane, bytes);
                continue;
            }
            self.progress.inputs += 1;
            self.take(&input, &mut given, sink);
            if self.spec.live {
                inputs.push(input);
            }
        }
        if !inputs.is_empty() {
            sink.inputs(frame, &inputs);
        }
        // After the lanes' frames have started, so that these wakes are booked in this frame.
        given.into_iter().for_each(|session| self.wake_readers(session));
    }

    /// Takes one input of the frame; `given` are the sessions that may wait for it.
    fn take(&mut self, input: &Input, given: &mut Vec<SessionId>, sink: &mut dyn Sink) {
        let first = given.len();
        match input {
            Input::Stop => {
                let running = self.session_groups.len() - self.ended_sessions;
                self.emit(&Event::Stop { running: running as u64 });
                self.is_stopping = true;
            }
            Input::Bytes { to, .. } | Input::End { to } => match to {
                Recipient::Session(session) => given.push(*session),
                Recipient::All => given.extend(self.session_ids()),
            },
            Input::Control(control) => self.control(control, sink),
            Input::Reply { ask, results } => self.take_reply(*ask, results),
            Input::Answers { .. } => {}
        }
        for &session in &given[first..] {
            match input {
                Input::Bytes { bytes, .. } => self.sample(session, bytes),
                _ => self.end_input(session),
            }
        }
    }

    fn sample(&mut self, session: SessionId, bytes: &[u8]) {
        self.emit(&Event::Sample { session: u64::from(session.0), bytes });
        let is_live = self.spec.live;
        let state = self.session(session);
        if state.ended.is_some() {
            return;
        }
        if is_live && !state.input.has_room(bytes.len(), MOST_UNREAD_EVENTS, MOST_UNREAD_BYTES) {
            state.input.dropped += 1;
            self.progress.dropped_inputs += 1;
            return self.emit(&Event::Dropped { session: u64::from(session.0), events: 1 });
        }
        state.input.deliver(bytes.into());
        self.sampled.push(session);
    }

    fn end_input(&mut self, session: SessionId) {
        self.emit(&Event::InputEnd { session: u64::from(session.0) });
        self.session(session).input.end();
    }

    /// Wakes the coroutines that wait in `fd_read`; they read again.
    fn wake_readers(&mut self, session: SessionId) {
        while let Some(slot) = self.session(session).input.waiting.pop() {
            let name = self.session(session).coroutine_name(slot);
            self.answer_across(name, Wait::None, WakeSource::Input);
        }
    }

    /// Ends the frame; the next is the first with any event. A run out of frames ends.
    fn end_frame(&mut self, sink: &mut dyn Sink) {
        let following = Frame(self.frame().0 + 1);
        // When a live machine continues depends on inputs that may still come.
        let next = if self.spec.live || self.has_work() {
            following
        } else {
            self.next_event().map_or(following, |at| at.max(following))
        };
        let last = self.last_frame();
        if self.is_stopping {
            let all = self.ended_sessions == self.session_groups.len();
            return self.end(sink, if all { RunOutcome::Finished } else { RunOutcome::Stopped });
        }
        if self.frame() >= last {
            self.before_end = Some((Digest::of(&[]), next));
            return self.end(sink, RunOutcome::Frames);
        }
        if self.spec.balance {
            self.balance();
        }
        self.frame_sync(sink, false);
        self.progress.frame = next.min(last);
        self.phase = Phase::Boundary;
    }

    /// The frame of the next sleeper, input event, refill of a context or cap, or end of a lease.
    pub(crate) fn next_event(&mut self) -> Option<Frame> {
        let sleeper = self.lanes_mut().filter_map(|lane| lane.kernel.next_wake()).min();
        let refill = self.next_release().map(|at| Frame(at.0 / self.spec.frame_cycles.0));
        let lease = self.next_lease_event();
        let events = [sleeper, self.next_input(), refill, self.next_cap_refill(), lease];
        events.into_iter().flatten().min()
    }

    /// The last frame the run may have: the manifest's limit, and what can be counted.
    pub(crate) fn last_frame(&self) -> Frame {
        let limit = self.spec.max_frames.map_or(u64::MAX, |frames| frames.saturating_sub(1));
        Frame(limit.min(self.spec.countable_frames()))
    }

    /// FRAME_SYNC: the lanes' frames are hashed in lane order, output leaves in manifest order,
    /// unread input is dropped.
    ///
    /// The last frame of a run is counted up to its last wave; every other one is idle to its end.
    fn frame_sync(&mut self, sink: &mut dyn Sink, is_last: bool) {
        self.sampled.sort_unstable();
        self.sampled.dedup();
        for session in core::mem::take(&mut self.sampled) {
            let dropped = self.session(session).input.end_frame();
            if dropped > 0 {
                self.progress.dropped_inputs += dropped;
                self.emit(&Event::Dropped { session: u64::from(session.0), events: dropped });
            }
        }
        let frame = self.frame();
        self.emit(&Event::FrameSync { frame: frame.0 });
        let positions = self.lane_positions.clone();
        let (mut hashes, mut rows) = (Vec::new(), Vec::new());
        for &(group, lane) in positions.iter() {
            let lane = &mut self.groups[group].lanes[lane];
            rows.push(if is_last { lane.kernel.row() } else { lane.kernel.end_frame() });
            hashes.push(lane.log.finish_frame());
        }
        self.digest.frame_sync(frame, &hashes, &self.boundary);
        self.flush_answers(frame, sink);
        let groups = &self.groups;
        let mut events =
            positions.iter().map(|&(group, lane)| groups[group].lanes[lane].log.finished());
        sink.frame(frame, self.digest(), &self.boundary, &mut events);
        if self.wave_profile.is_some() {
            sink.costs(&self.frame_costs(rows));
        }
        self.frame_peak = 0;
        self.boundary.clear();
        self.lanes_mut().for_each(|lane| lane.log.begin_frame());
        let unflushed = self.groups.iter_mut().flat_map(|group| group.unflushed.drain(..));
        let mut unflushed: Vec<SessionId> = unflushed.collect();
        unflushed.sort_unstable();
        for id in unflushed {
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

    /// Ends the run. Its outcome is the first that holds: faulted, killed, deadlock, frames,
    /// finished (semantics 11, 70).
    fn end(&mut self, sink: &mut dyn Sink, outcome: RunOutcome) {
        let has = |wanted: SessionOutcome| {
            self.session_ids().any(|session| {
                let state = self.session_ref(session);
                state.ended.unwrap_or_else(|| state.verdict()) == wanted
            })
        };
        let (is_faulted, is_killed) = (has(SessionOutcome::Faulted), has(SessionOutcome::Killed));
        if let Some(deadlock) = &self.deadlock {
            let waiting = deadlock.waiting.len() as u64;
            self.emit(&Event::Deadlock { waiting });
        }
        self.frame_sync(sink, !matches!(outcome, RunOutcome::Frames | RunOutcome::Stopped));
        let outcome = match outcome {
            _ if is_faulted => RunOutcome::Faulted,
            _ if is_killed => RunOutcome::Killed,
            outcome => outcome,
        };
        let digest = self.digest();
        self.before_end.iter_mut().for_each(|before| before.0 = digest);
        self.digest.outcome(&Event::Outcome { outcome: outcome as u64 });
        self.phase = Phase::Done(outcome);
    }

    pub(crate) fn emit(&mut self, event: &Event<'_>) {
        EventWriter(&mut self.boundary).event(event);
    }

    /// The latest lane clock: where the next wave starts.
    pub(crate) fn clock(&self) -> Cycles {
        latest_clock(self.lanes().map(|lane| &lane.kernel))
    }

    pub(crate) fn has_work(&self) -> bool {
        self.lanes().any(|lane| lane.kernel.has_work())
    }

    /// The time of the next refill that a throttled coroutine waits for.
    fn next_release(&self) -> Option<Cycles> {
        self.lanes().filter_map(|lane| lane.kernel.next_release()).min()
    }

    fn frame_end(&self) -> Cycles {
        Cycles((self.frame().0 + 1) * self.spec.frame_cycles.0)
    }
}

/// Finding lanes and sessions.
impl World {
    pub(crate) fn session_ids(&self) -> impl Iterator<Item = SessionId> + use<> {
        (0..self.session_groups.len() as u32).map(SessionId)
    }

    pub(crate) fn session_group(&mut self, session: SessionId) -> &mut Group {
        &mut self.groups[self.session_groups[session.0 as usize]]
    }

    pub(crate) fn session(&mut self, session: SessionId) -> &mut SessionState {
        let group = self.session_group(session);
        &mut group.sessions[group.local[session]]
    }

    pub(crate) fn session_ref(&self, session: SessionId) -> &SessionState {
        let group = &self.groups[self.session_groups[session.0 as usize]];
        &group.sessions[group.local[session]]
    }

    /// All lanes, group by group.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &LaneState> {
        self.groups.iter().flat_map(|group| &group.lanes)
    }

    pub(crate) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut LaneState> {
        self.groups.iter_mut().flat_map(|group| &mut group.lanes)
    }

    pub(crate) fn lane(&mut self, lane: u16) -> &mut LaneState {
        let (group, lane) = self.lane_positions[usize::from(lane)];
        &mut self.groups[group].lanes[lane]
    }

    pub(crate) fn lane_ref(&self, lane: u16) -> &LaneState {
        let (group, lane) = self.lane_positions[usize::from(lane)];
        &self.groups[group].lanes[lane]
    }
}

/// Where the run is.
impl World {
    /// The stage that the machine is in.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.phase {
            Phase::Boundary if self.progress.frame >= self.until => Stage::Waiting,
            Phase::Boundary => Stage::Boundary,
            Phase::Frame => Stage::Frame,
            Phase::Wave(_) => Stage::Wave,
            Phase::Done(_) | Phase::Suspended => Stage::Over,
        }
    }

    /// In an open wave, the lane that steps next in canonical order: after a step, the lane that
    /// made it.
    #[must_use]
    pub const fn turn(&self) -> Option<LaneId> {
        if let Phase::Wave(turn) = self.phase { Some(LaneId(turn as u16)) } else { None }
    }

    /// How the run ended, once it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<RunOutcome> {
        if let Phase::Done(outcome) = self.phase { Some(outcome) } else { None }
    }

    /// The current frame; at a boundary the one that ended.
    #[must_use]
    #[allow(clippy::misnamed_getters, reason = "the `frame` of a state is the next one")]
    pub const fn frame(&self) -> Frame {
        self.progress.ended_frame
    }

    /// The current frame; at a boundary the one that starts next.
    #[must_use]
    pub const fn next_frame_number(&self) -> Frame {
        self.progress.frame
    }

    /// The number of the open or next wave.
    #[must_use]
    pub const fn wave(&self) -> u64 {
        self.progress.waves
    }

    /// Steps committed so far, as of the last wave's end.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// The run digest as of the last FRAME_SYNC.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest.value()
    }

    /// Effects that have crossed lanes, and sessions that have moved: functions of the model.
    #[must_use]
    pub const fn crossings_and_moves(&self) -> (u64, u64) {
        (self.progress.crossings, self.progress.moves)
    }

    /// Receivers that were preferred for a message from another lane (direct handoff), since the
    /// machine was loaded or restored.
    #[must_use]
    pub fn handoffs_across_lanes(&self) -> u64 {
        self.groups.iter().map(|group| group.handoffs).sum()
    }

    /// The groups, in the order of their first lanes.
    #[must_use]
    pub fn groups(&self) -> &[Box<Group>] {
        &self.groups
    }

    /// By session: the first lane of its group.
    #[must_use]
    pub fn group_lanes(&self) -> &[LaneId] {
        &self.group_lanes
    }

    /// The machine's description.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The deadlock that ended the run, if one did.
    #[must_use]
    pub const fn deadlock(&self) -> Option<&Deadlock> {
        self.deadlock.as_ref()
    }

    /// The events of a lane in this frame, in a world that keeps events.
    #[must_use]
    pub fn lane_events(&mut self, lane: LaneId) -> &[u8] {
        match self.lane_positions.get(usize::from(lane.0)) {
            Some(&(group, lane)) => self.groups[group].lanes[lane].log.bytes(),
            None => &[],
        }
    }

    /// The events of this frame outside any lane.
    #[must_use]
    pub fn boundary_events(&self) -> &[u8] {
        &self.boundary
    }
}
