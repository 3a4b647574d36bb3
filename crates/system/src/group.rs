//! A group: lanes, the sessions that live on them and their channels, as one value that a worker can own for a wave.
//!
//! Within a wave a group sees nothing outside itself; what it does to others goes to its lanes' outboxes and is applied by
//! `boundary` at the wave's end. So running groups one after the other or at the same time is the same run (law 1).
//!
//! One step is: the kernel's dispatch, one slice of the machine with its host operations, the kernel's stop.

use crate::boundary::Notice;
use crate::call::Caller;
use crate::channel::{Channel, Message, WaitingSender, share};
use crate::context::Request;
use crate::direct::{Counts, Direct};
use crate::ending::At;
use crate::parcels::{Incoming, Parcel};
use crate::queue::Front;
use crate::session::{FaultRecord, Handle, SessionState};
use crate::spec::Limits;
use crate::task::{EndStatus, NONE, TaskTable, Wait};
use crate::wait::Ticket;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, FaultCode, Frame, HostOperation, LaneId, SessionId};
use wavelock_kernel::{BlockReason, BoundReason, Lane, Next, Outcome, Refusal, Reservation, Running, Spawn, WakeSource};
use wavelock_machine::{Coroutine, Fault, Stop};
use wavelock_trace::{Event, LaneLog, StopCode};

/// How many bytes of a lane's log are hashed at a wave's end, and so many more as there are; fewer wait for the next, or for the frame's end. A whole branch of the hash's tree.
const SETTLED_BYTES: usize = 16 * 1024;

/// What every group knows about the machine: constants of the run.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) frame_cycles: Cycles,
    pub(crate) lanes: u16,
    pub(crate) handoff: bool,
    /// By lane: its group, and its place there.
    pub(crate) lane_places: Arc<[(usize, usize)]>,
    pub(crate) rules: crate::rules::Rules,
}

/// What a lane may still send to a channel of another lane before the wave's end.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    /// Lanes that share the channel's space.
    pub(crate) lanes: Arc<[u16]>,
    /// The space that was divided at the last wave's end.
    pub(crate) free: u32,
    /// What this lane has used of its share, in wave `wave`.
    used: u32,
    wave: u64,
    pub(crate) closed: bool,
}

impl Credit {
    pub(crate) const fn new(lanes: Arc<[u16]>, free: u32) -> Self {
        Self { lanes, free, used: 0, wave: 0, closed: false }
    }

    /// Takes one place of this lane's share, if there is one left in this wave. What was left of an earlier wave's share has lapsed.
    fn take(&mut self, lane: u16, wave: u64, machine_lanes: u16) -> bool {
        if self.wave != wave {
            self.wave = wave;
            self.used = 0;
        }
        let granted = share(self.free, &self.lanes, lane, wave, machine_lanes) > self.used;
        self.used += u32::from(granted);
        granted
    }
}

/// Something a lane does to another lane; visible at the wave's end (semantics 15).
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// A message sent with credit.
    Message { channel: ChannelId, message: Message },
    /// A sender without credit waits at the channel.
    WaitToSend { channel: ChannelId, sender: CoroutineName, message: Message },
    /// A sender that stood in the channel's queue was canceled.
    Withdraw { channel: ChannelId, ticket: Ticket },
    /// A wired sender closed its port, or ended.
    ClosePort { channel: ChannelId },
    /// A coroutine of a split session begins on this lane.
    Publish { session: SessionId, reference: CoroutineRef },
    /// A wait of a coroutine of a split session is over.
    Wake { session: SessionId, reference: CoroutineRef, source: WakeSource },
    /// A coroutine of a split session is canceled by one on another lane.
    Cancel { session: SessionId, target: CoroutineRef, by: CoroutineRef },
    /// A split session ends: its coroutines on this lane too.
    Exit { session: SessionId },
    /// The answer to a call of this lane's.
    Answer { caller: Caller, answer: Wait },
}

/// An effect and the lane it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) lane: u16,
    pub(crate) effect: Effect,
}

/// A lane with what the system keeps for it.
pub(crate) struct LaneState {
    pub(crate) id: u16,
    pub(crate) kernel: Lane,
    pub(crate) log: LaneLog,
    /// Effects of this wave, in order of (lane-local step, sequence): the order they were pushed in.
    pub(crate) outbox: Vec<Outgoing>,
    /// The same by the group they go to, when the wave has run; ascending by group.
    pub(crate) parcels: Vec<Parcel>,
    pub(crate) credits: Vec<Credit>,
    /// By channel: its line in `credits`.
    pub(crate) credit_lines: BTreeMap<ChannelId, u32>,
    /// The lane's clock when its last step ended.
    pub(crate) mark: Cycles,
    pub(crate) steps: u64,
    /// What the kernel asks to be done about contexts before the next step.
    pub(crate) requests: Vec<Request>,
    /// The last refusal about time, for whoever asks why. Nothing decides by it, and it is no part of the machine's state.
    pub(crate) refusal: Option<wavelock_kernel::ContextRefusal>,
}

impl LaneState {
    pub(crate) fn new(id: u16, mut kernel: Lane, keep_events: bool) -> Self {
        kernel.set_fetch(wavelock_machine::fetch);
        Self {
            id,
            kernel,
            log: LaneLog::new(keep_events),
            outbox: Vec::new(),
            parcels: Vec::new(),
            credits: Vec::new(),
            credit_lines: BTreeMap::new(),
            mark: Cycles::ZERO,
            steps: 0,
            requests: Vec::new(),
            refusal: None,
        }
    }

    /// The wave begins: a mark in the log, the kernel's span set.
    pub(crate) fn begin_wave(&mut self, span: wavelock_kernel::Span) {
        self.mark = self.kernel.clock();
        self.log.wave(self.mark);
        self.kernel.begin_wave(span);
    }

    /// What the lane does next.
    #[inline(never)]
    pub(crate) fn dispatch(&mut self) -> Next {
        self.kernel.dispatch()
    }

    /// What the lane's clock advanced by since its last step: the overhead of the step that was just dispatched.
    #[inline]
    pub(crate) fn overhead(&self) -> Cycles {
        self.kernel.clock() - self.mark
    }

    /// Ends a step: the kernel's stop, and the step's line in the log.
    #[inline(always)]
    fn commit(&mut self, running: Running, overhead: Cycles, used: Cycles, outcome: Outcome, code: StopCode) {
        let tag = running.tag();
        let _ = self.kernel.stop(running, used, outcome);
        if self.kernel.has_context_events() {
            self.log_contexts();
        }
        self.log.step(tag.session(), tag.slot(), overhead, used, code);
        self.mark = self.kernel.clock();
        self.steps += 1;
    }

    /// Cycles of work so far: charged and overhead.
    pub(crate) fn worked(&self) -> Cycles {
        let totals = self.kernel.totals();
        totals.charged + totals.overhead_total()
    }

    /// Publishes a coroutine on this lane, making room for it first.
    pub(crate) fn publish(&mut self, spawn: Spawn) -> Result<CoroutineRef, Refusal> {
        self.kernel.reserve(Reservation { coroutines: 1, sessions: 1, effects: 0 })?;
        self.kernel.spawn(spawn)
    }

    /// A coroutine has ended: in the log and among its session's coroutines.
    #[inline]
    pub(crate) fn end(&mut self, session: SessionId, tasks: &mut TaskTable, slot: u32, status: EndStatus, value: i64) {
        let (session, value_bits) = (u64::from(session.0), value as u64);
        self.log.event(&Event::End { session, slot: u64::from(slot), status: status as u64, value: value_bits });
        tasks.end(slot, status, value);
    }

    /// Makes a waiting coroutine of this lane ready.
    #[inline(always)]
    pub(crate) fn wake(&mut self, session: SessionId, slot: u32, reference: CoroutineRef, source: WakeSource) {
        self.log.event(&Event::Wake { session: u64::from(session.0), slot: u64::from(slot), source: source as u64 });
        let woken = self.kernel.wake(reference, source);
        debug_assert!(woken.is_ok(), "the system wakes only what waits: {woken:?}");
    }
}

/// How a host operation leaves the coroutine.
pub(crate) enum Flow {
    /// It goes on.
    Continue,
    /// It has used what it may.
    OutOfCycles,
    /// Its slice is over; it has its answer or waits for one.
    Stop(Outcome, StopCode),
    /// It ended itself with a value.
    Exit(i64),
    /// It ended its whole session.
    ExitSession,
    /// It faulted.
    Fault,
}

/// Lanes and the sessions on them.
pub struct Group {
    /// Ascending by lane number.
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) sessions: Vec<SessionState>,
    /// By session id: its index in `sessions`, or `NONE`.
    pub(crate) local: Vec<u32>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) set_version: u64,
    last_cost: Cycles,
    pub(crate) wave: u64,
    pub(crate) frame: Frame,
    /// Sessions that ended since the last boundary.
    pub(crate) ended: Vec<SessionId>,
    /// Wired channels whose space must be divided anew at the wave's end.
    pub(crate) touched: Vec<ChannelId>,
    /// Effects of other lanes, in canonical order, while a wave is being closed.
    pub(crate) inbox: Vec<Vec<Incoming>>,
    /// Parcels that were emptied, for their room.
    pub(crate) spare: Vec<Vec<Incoming>>,
    /// What settling the inbox means for other groups.
    pub(crate) notices: Vec<Notice>,
    /// Sessions with output or log in this frame.
    pub(crate) voiced: Vec<SessionId>,
    /// Live coroutines, and the most there were in this wave.
    pub(crate) live: u64,
    pub(crate) wave_peak: u64,
    /// The host could not do its part; the run ends.
    pub(crate) failure: Option<Refusal>,
}

/// Where a slice runs: indices into the group.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) lane: usize,
    pub(crate) session: usize,
    pub(crate) slot: u32,
    /// Guest cycles the coroutine had been charged when the slice began.
    pub(crate) began: Cycles,
    /// The kernel's token of the slice.
    pub(crate) running: &'a Running,
}

impl Group {
    pub(crate) fn new(shared: Arc<Shared>, sessions: usize) -> Self {
        Self {
            lanes: Vec::new(),
            sessions: Vec::new(),
            local: alloc::vec![NONE; sessions],
            shared,
            set_version: 1,
            last_cost: Cycles::MAX,
            wave: 0,
            frame: Frame::ZERO,
            ended: Vec::new(),
            touched: Vec::new(),
            inbox: Vec::new(),
            spare: Vec::new(),
            notices: Vec::new(),
            voiced: Vec::new(),
            live: 0,
            wave_peak: 0,
            failure: None,
        }
    }
}

/// What a planner may know about a group.
impl Group {
    /// Its lanes, ascending, each with its ready-set digest.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneId, u64)> + '_ {
        self.lanes.iter().map(|lane| (LaneId(lane.id), lane.kernel.ready_digest()))
    }

    /// Whether any of its lanes has something to run.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| lane.kernel.has_work() || lane.kernel.next_release().is_some())
    }

    /// Which version of its sessions and channels this is; it rises when a session moves in or out.
    #[must_use]
    pub const fn set_version(&self) -> u64 {
        self.set_version
    }

    /// Its sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.iter().map(|state| state.id)
    }

    /// The wired channels whose queues it holds.
    pub fn wired_channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.sessions.iter().flat_map(|state| {
            let wired = (0u32..).zip(&state.channels).filter(|(_, channel)| channel.wiring.is_some());
            wired.map(|(index, _)| ChannelId { owner: state.id, index })
        })
    }

    /// What each of its lanes with work would run now, lane by lane.
    pub fn next_picks(&self) -> impl Iterator<Item = (LaneId, CoroutineName)> + '_ {
        self.lanes.iter().filter_map(|lane| {
            let tag = lane.kernel.peek()?;
            let state = &self.sessions[self.local[tag.session() as usize] as usize];
            let reference = state.tasks.reference_at(tag.slot());
            Some((LaneId(lane.id), CoroutineName { session: state.id, reference }))
        })
    }

    /// Cycles its lanes spent on work in the last wave they ran: what a driver may expect of the next. No decision depends on it.
    #[must_use]
    pub const fn last_cost(&self) -> Cycles {
        self.last_cost
    }
}

/// What the machine may use of a session and its lane while it runs: all but the machine itself and the running coroutine.
macro_rules! direct {
    ($state:expr, $lane:expr, $slot:expr) => {
        Direct {
            session: $state.id,
            first_handle: $state.handles.len() as u32 - $state.made_channels,
            first_channel: $state.channels.len() as u32 - $state.made_channels,
            channels: {
                let first = $state.channels.len() - $state.made_channels as usize;
                &mut $state.channels[first..]
            },
            tasks: &mut $state.tasks,
            lane: $lane,
            slot: $slot,
            counts: Counts::default(),
            waits: Some(BlockReason::ChannelReceive),
        }
    };
}
pub(crate) use direct;

impl Group {
    /// Runs every lane to its wave's end, in lane order.
    pub fn run_wave(&mut self) {
        let before = self.worked();
        let frame_end = (self.frame.0 + 1) * self.shared.frame_cycles.0;
        for lane in 0..self.lanes.len() {
            self.run_lane(lane);
            let state = &mut self.lanes[lane];
            // What is hashed here need not be hashed at the frame's end, by one thread for all lanes.
            state.log.settle(if state.kernel.clock().0 >= frame_end { 0 } else { SETTLED_BYTES });
        }
        let cost = self.worked() - before;
        if cost > Cycles::ZERO {
            self.last_cost = cost;
        }
        self.post();
    }

    /// Cycles of work of its lanes so far: charged and overhead.
    #[must_use]
    pub fn worked(&self) -> Cycles {
        self.lanes.iter().map(LaneState::worked).fold(Cycles::ZERO, |sum, cycles| sum + cycles)
    }

    /// One step of a lane: pick, slice, commit. `false` if the lane has nothing more to run in this wave. `run_lane` is this until it is `false`.
    pub(crate) fn step(&mut self, lane: usize) -> bool {
        if !self.lanes[lane].requests.is_empty() {
            self.settle_requests(lane);
        }
        let Next::Run(running) = self.lanes[lane].dispatch() else {
            if self.lanes[lane].kernel.has_context_events() {
                self.lanes[lane].log_contexts();
            }
            return false;
        };
        self.slice_of(lane, running);
        true
    }

    /// A step after its dispatch.
    ///
    /// A slice that begins in guest code and ends in a yield, a sleep or a message that waits is done here, in one look at each of lane, session and
    /// coroutine; `begun` is everything else.
    pub(crate) fn slice_of(&mut self, lane: usize, running: Running) {
        let lane_state = &mut self.lanes[lane];
        let tag = running.tag();
        let overhead = lane_state.overhead();
        let (session, slot) = (self.local[tag.session() as usize] as usize, tag.slot());
        let state = &mut self.sessions[session];
        state.tasks.settle(slot);
        let (task, coroutine) = state.tasks.both_at(slot);
        let began = coroutine.used();
        let begins = task.wait == Wait::None && state.profile.is_none();
        if !begins {
            return self.begun(lane, session, began, overhead, running, None);
        }
        let mut coroutines = core::mem::take(&mut state.tasks.coroutines);
        let mut direct = direct!(state, lane_state, slot);
        let stop = wavelock_machine::run_with(&mut state.machine, &mut coroutines[slot as usize], running.bound(), &mut direct);
        let counts = direct.counts;
        state.tasks.coroutines = coroutines;
        state.count(counts);
        let waits = state.tasks.live_at(slot).wait.in_place();
        self.stopped((lane, session), began, overhead, running, stop, waits);
    }

    /// The rest of a step whose machine stopped once; `waits` if the running coroutine waits in a channel's queue now.
    #[inline]
    pub(crate) fn stopped(
        &mut self,
        (lane, session): (usize, usize),
        began: Cycles,
        overhead: Cycles,
        running: Running,
        stop: Stop,
        waits: Option<BlockReason>,
    ) {
        let Stop::Host(call) = stop else { return self.begun(lane, session, began, overhead, running, Some(stop)) };
        let lane_state = &mut self.lanes[lane];
        let state = &mut self.sessions[session];
        let coroutine = state.tasks.coroutine_at(running.tag().slot());
        let (outcome, code);
        if call.number == HostOperation::Yield as u16 {
            state.host_calls += 1;
            coroutine.resume(&[]);
            (outcome, code) = (Outcome::Yielded, StopCode::Yielded);
        } else if let Some(reason) = waits {
            (outcome, code) = (Outcome::Blocked(reason), wait_code(reason));
        } else if call.number == HostOperation::Sleep as u16
            && let &[frames] = coroutine.host_arguments()
            && frames as i64 > 0
        {
            state.host_calls += 1;
            coroutine.resume(&[]);
            lane_state.log.event(&Event::Sleep { frames });
            (outcome, code) = (Outcome::Slept(Frame(self.frame.0.saturating_add(frames))), StopCode::Slept);
        } else {
            return self.begun(lane, session, began, overhead, running, Some(stop));
        }
        let used = coroutine.used() - began;
        state.cycles += used.0;
        lane_state.commit(running, overhead, used, outcome, code);
    }

    /// The rest of a step that has begun and may have stopped once already.
    #[inline(never)]
    fn begun(&mut self, lane: usize, session: usize, began: Cycles, overhead: Cycles, running: Running, stop: Option<Stop>) {
        let slot = running.tag().slot();
        let flow = self.slice(Place { lane, session, slot, began, running: &running }, stop);
        self.conclude((lane, session), began, overhead, running, flow);
    }

    /// The end of a step: what the kernel, the log and those who wait for its coroutine are told.
    pub(crate) fn conclude(&mut self, (lane, session): (usize, usize), began: Cycles, overhead: Cycles, running: Running, flow: Flow) {
        let slot = running.tag().slot();
        let state = &mut self.sessions[session];
        let (task, coroutine) = state.tasks.both_at(slot);
        let (used, reference) = (coroutine.used() - began, task.kernel);
        state.cycles += used.0;
        let (outcome, code) = match flow {
            Flow::Continue | Flow::OutOfCycles => (Outcome::OutOfCycles, bound_code(reached(&running, used, &self.lanes[lane].kernel))),
            Flow::Stop(outcome, code) => (outcome, code),
            Flow::Exit(_) => (Outcome::Finished, StopCode::Finished),
            Flow::ExitSession => (Outcome::Finished, StopCode::SessionExit),
            Flow::Fault => (Outcome::Faulted, StopCode::Faulted),
        };
        self.lanes[lane].commit(running, overhead, used, outcome, code);
        match flow {
            Flow::Continue | Flow::OutOfCycles | Flow::Stop(..) => {}
            Flow::Exit(value) => self.ended((lane, session, slot), reference, EndStatus::Finished, value),
            Flow::Fault => self.ended((lane, session, slot), reference, EndStatus::Faulted, 0),
            Flow::ExitSession => {
                self.ended((lane, session, slot), reference, EndStatus::Finished, 0);
                self.exit_session(lane, session);
            }
        }
    }

    /// Runs the machine and the host operations it asks for until the bound, a wait or the end. `first` is what the machine has answered
    /// already, if it ran.
    #[inline]
    pub(crate) fn slice(&mut self, place: Place<'_>, first: Option<Stop>) -> Flow {
        // Here only under a profile: `slice_of` does it otherwise, up to the token's own bound.
        let mut begins = first.is_none() && self.sessions[place.session].tasks.live_at(place.slot).wait.is_none();
        if first.is_none()
            && !begins
            && let flow @ (Flow::OutOfCycles | Flow::Fault) = self.finish_wait(place)
        {
            return flow;
        }
        let mut stopped = first;
        loop {
            let left = if begins { place.running.bound() } else { self.left(place) };
            begins = false;
            let state = &mut self.sessions[place.session];
            let stop = match (stopped.take(), &mut state.profile) {
                (Some(stop), _) => stop,
                (None, None) => {
                    state.tasks.settle(place.slot);
                    let mut coroutines = core::mem::take(&mut state.tasks.coroutines);
                    let mut direct = direct!(state, &mut self.lanes[place.lane], place.slot);
                    let stop = wavelock_machine::run_with(&mut state.machine, &mut coroutines[place.slot as usize], left, &mut direct);
                    let counts = direct.counts;
                    state.tasks.coroutines = coroutines;
                    state.count(counts);
                    if let Some(reason) = state.tasks.live_at(place.slot).wait.in_place() {
                        return Flow::Stop(Outcome::Blocked(reason), wait_code(reason));
                    }
                    stop
                }
                (None, Some(profile)) => profile.run(&mut state.machine, state.tasks.coroutine_at(place.slot), left),
            };
            match stop {
                Stop::Host(call) if call.number == HostOperation::Yield as u16 => {
                    state.host_calls += 1;
                    state.tasks.coroutine_at(place.slot).resume(&[]);
                    return Flow::Stop(Outcome::Yielded, StopCode::Yielded);
                }
                Stop::OutOfCycles { .. } => return Flow::OutOfCycles,
                Stop::Host(_) => match self.host_operation(place) {
                    Flow::Continue => {}
                    flow => return flow,
                },
                Stop::Finished => {
                    let value = state.tasks.coroutine_at(place.slot).results().first().map_or(0, |&value| value as i64);
                    match self.function_returned(place, value) {
                        Flow::Continue => {}
                        flow => return flow,
                    }
                }
                Stop::Fault(fault) => return self.faulted(place, fault),
            }
        }
    }

    /// Cycles the slice may still use: wakes it caused have moved the lane's clock, so this is the kernel's to say.
    #[inline]
    pub(crate) fn left(&mut self, place: Place<'_>) -> Cycles {
        let used = self.sessions[place.session].tasks.coroutine_at(place.slot).used() - place.began;
        self.lanes[place.lane].kernel.left(place.running, used)
    }

    /// The coroutine's function returned. The first coroutine may have more to call; otherwise it exits with this value.
    fn function_returned(&mut self, place: Place<'_>, value: i64) -> Flow {
        let state = &mut self.sessions[place.session];
        let first = state.tasks.reference_at(place.slot) == CoroutineRef::new(0, 0);
        if first && let Some(function) = state.startup.pop() {
            let coroutine = state.tasks.coroutine_at(place.slot);
            // Loading has checked its arguments and its own stack: only the session's stacks can be too many now.
            if coroutine.call_next(&state.machine, function, &[]).is_ok() {
                return Flow::Continue;
            }
            let fault = coroutine.fail(&state.machine, FaultCode::StackExhausted);
            return self.faulted(place, fault);
        }
        state.note_exit(place.slot, value);
        Flow::Exit(value)
    }

    pub(crate) fn faulted(&mut self, place: Place<'_>, fault: Fault) -> Flow {
        let state = &mut self.sessions[place.session];
        let coroutine = state.tasks.reference_at(place.slot);
        state.record_fault(FaultRecord { coroutine, code: fault.code, function: fault.function, offset: fault.offset });
        self.lanes[place.lane].log.event(&Event::Fault {
            session: u64::from(state.id.0),
            slot: u64::from(place.slot),
            code: fault.code as u64,
            function: u64::from(fault.function),
            offset: u64::from(fault.offset),
        });
        Flow::Fault
    }

    /// A slice's coroutine ended: its record goes from the kernel, its result to those who join it.
    fn ended(&mut self, (lane, session, slot): (usize, usize, u32), reference: CoroutineRef, status: EndStatus, value: i64) {
        let _ = self.lanes[lane].kernel.reap(reference).expect("the kernel just ended it");
        self.end_task(lane, session, slot, status, value);
    }

    /// Ends a coroutine that the kernel no longer has: result, joiners, and the session if it was the last.
    pub(crate) fn end_task(&mut self, lane: usize, session: usize, slot: u32, status: EndStatus, value: i64) {
        self.drop_replies(lane, session, slot, status);
        let state = &mut self.sessions[session];
        let reference = state.tasks.reference_at(slot);
        self.lanes[lane].end(state.id, &mut state.tasks, slot, status, value);
        state.tasks.vacate(slot, &state.machine);
        self.live -= 1;
        let joiners = state.tasks.family(slot).joiners;
        if joiners != NONE {
            self.answer_joiners(lane, session, joiners, status, value);
            self.sessions[session].tasks.joined_at_end(reference, status);
        }
        if self.sessions[session].tasks.live() == 0 {
            self.end_session(lane, session);
        }
    }

    /// Everyone who waited for the end of a coroutine gets its result, first come first.
    fn answer_joiners(&mut self, lane: usize, session: usize, head: u32, status: EndStatus, value: i64) {
        let mut joiners = Vec::new();
        let mut slot = head;
        while slot != NONE {
            joiners.push(slot);
            let Wait::Joining { next, .. } = self.sessions[session].tasks.live_at(slot).wait else {
                unreachable!("the list of joiners holds joiners")
            };
            slot = next;
        }
        for slot in joiners.into_iter().rev() {
            let answer = match SessionState::join_code(status) {
                0 => Wait::Number(value),
                code => Wait::Code(code),
            };
            self.answer(lane, session, slot, answer, WakeSource::Join);
        }
    }

    /// Ends a coroutine's wait with an answer and makes it ready, on its lane at once or on another lane at the wave's end.
    pub(crate) fn answer(&mut self, lane: usize, session: usize, slot: u32, answer: Wait, source: WakeSource) {
        let state = &mut self.sessions[session];
        let id = state.id;
        let home = state.tasks.lane_at(slot);
        let task = state.tasks.live_at(slot);
        let before = core::mem::replace(&mut task.wait, answer);
        let reference = task.kernel;
        if let Wait::Reply(_) = before {
            state.left_call();
        }
        if self.lanes[lane].id == home {
            self.lanes[lane].wake(id, slot, reference, source);
        } else {
            let reference = state.tasks.reference_at(slot);
            self.lanes[lane].outbox.push(Outgoing { lane: home, effect: Effect::Wake { session: id, reference, source } });
        }
    }

    /// All coroutines of a session have ended: its channels close, its ports too.
    fn end_session(&mut self, lane: usize, session: usize) {
        let state = &mut self.sessions[session];
        let outcome = state.verdict();
        state.ended = Some(outcome);
        let id = state.id;
        self.ended.push(id);
        self.lanes[lane].log.event(&Event::SessionEnd {
            session: u64::from(id.0),
            outcome: outcome as u64,
            exit: u64::from(state.exit as u32),
        });
        self.log_out(At { lane, session, slot: NONE });
    }

    /// `proc_exit`: every other coroutine of the session ends too; those on other lanes at the wave's end.
    fn exit_session(&mut self, lane: usize, session: usize) {
        let state = &mut self.sessions[session];
        if state.ended.is_some() {
            return;
        }
        state.exiting = true;
        let id = state.id;
        let own = self.lanes[lane].id;
        for &other in state.lanes.iter().filter(|&&other| other != own) {
            self.lanes[lane].outbox.push(Outgoing { lane: other, effect: Effect::Exit { session: id } });
        }
        self.cancel_lane(lane, session);
    }

    /// Cancels every coroutine of a session that runs on this lane, in slot order.
    pub(crate) fn cancel_lane(&mut self, lane: usize, session: usize) {
        let own = self.lanes[lane].id;
        let tasks = &self.sessions[session].tasks;
        let slots: Vec<u32> = tasks.iter_live().map(|(slot, _)| slot).filter(|&slot| tasks.lane_at(slot) == own).collect();
        for slot in slots {
            if self.sessions[session].ended.is_none() {
                self.cancel_task(lane, session, slot);
            }
        }
    }

    /// Ends a coroutine of this lane that does not run now: out of every queue it stands in, then as any end.
    pub(crate) fn cancel_task(&mut self, lane: usize, session: usize, slot: u32) {
        let state = &mut self.sessions[session];
        let id = state.id;
        self.lanes[lane].log.event(&Event::Cancel { session: u64::from(id.0), slot: u64::from(slot) });
        self.withdraw(At { lane, session, slot });
        self.end_task(lane, session, slot, EndStatus::Canceled, 0);
    }

    /// Takes a waiting coroutine out of the queues it stands in.
    pub(crate) fn leave_queues(&mut self, lane: usize, session: usize, slot: u32) {
        let state = &mut self.sessions[session];
        if state.tasks.live_at(slot).wait.is_none() {
            return;
        }
        let (task, coroutine) = state.tasks.both_at(slot);
        match core::mem::replace(&mut task.wait, Wait::None) {
            Wait::Queued(ticket) | Wait::Taking(ticket) => {
                let (operation, arguments) = pending(coroutine);
                let Some(handle) = state.handle(arguments[0] as i32) else { return };
                match handle {
                    Handle::Own(channel) => {
                        let channel = &mut state.channels[channel as usize];
                        if is_send(operation) {
                            channel.senders.remove(ticket);
                        } else {
                            channel.remove_receiver(ticket);
                        }
                    }
                    Handle::Port(port) => {
                        let (channel, home) = (state.ports[port as usize].channel, state.ports[port as usize].home);
                        if self.lanes[lane].id == home {
                            let owner = self.local[channel.owner.0 as usize] as usize;
                            self.sessions[owner].channels[channel.index as usize].senders.remove(ticket);
                        } else {
                            self.lanes[lane].outbox.push(Outgoing { lane: home, effect: Effect::Withdraw { channel, ticket } });
                        }
                    }
                }
            }
            Wait::Selecting(places) => {
                for (channel, ticket) in *places {
                    state.channels[channel as usize].selectors.remove(ticket);
                }
            }
            Wait::Joining { next, previous } => {
                let (_, arguments) = pending(coroutine);
                let target = CoroutineRef::from_guest(arguments[0] as i64).map_or(NONE, |reference| reference.slot);
                unlink_joiner(state, target, next, previous);
            }
            Wait::Input(ticket) => drop(state.input.waiting.remove(ticket)),
            Wait::Reply(_) => state.left_call(),
            _ => {}
        }
    }

    /// Closes one of a session's own channels: senders are refused, receivers drain and are then refused.
    pub(crate) fn close_channel(&mut self, lane: usize, session: usize, index: u32) {
        let state = &mut self.sessions[session];
        let channel = &mut state.channels[index as usize];
        if channel.closed {
            return;
        }
        channel.close();
        let id = state.id;
        self.lanes[lane].log.event(&Event::Close { owner: u64::from(id.0), index: u64::from(index) });
        self.touch(session, index);
        if self.sessions[session].channels[index as usize].queue.is_empty() {
            while let Some(slot) = self.sessions[session].channels[index as usize].pop_receiver() {
                self.answer(lane, session, slot, Wait::Code(Errno::Closed.code()), WakeSource::Channel);
            }
        }
        self.wake_selectors(lane, session, index);
        // Waiting senders of this lane learn of it now; those of other lanes at the wave's end.
        let local = self.sessions[session].channels[index as usize].senders.extract(|sender| sender.local);
        for WaitingSender { name, .. } in local {
            let sender = self.local[name.session.0 as usize] as usize;
            self.answer(lane, sender, name.reference.slot, Wait::Code(Errno::Closed.code()), WakeSource::Channel);
        }
    }

    /// Closes this session's port: its owner counts the senders that are left.
    pub(crate) fn close_port(&mut self, lane: usize, session: usize, port: u32) {
        let port = &mut self.sessions[session].ports[port as usize];
        if port.closed {
            return;
        }
        port.closed = true;
        let (channel, home) = (port.channel, port.home);
        self.lanes[lane].log.event(&Event::Close { owner: u64::from(channel.owner.0), index: u64::from(channel.index) });
        if self.lanes[lane].id == home {
            let owner = self.local[channel.owner.0 as usize] as usize;
            self.sender_left(lane, owner, channel.index);
        } else {
            self.lanes[lane].outbox.push(Outgoing { lane: home, effect: Effect::ClosePort { channel } });
        }
    }

    /// A wired sender is gone; the channel closes with the last one.
    pub(crate) fn sender_left(&mut self, lane: usize, owner: usize, index: u32) {
        let Some(wiring) = &mut self.sessions[owner].channels[index as usize].wiring else { return };
        wiring.open_senders -= 1;
        if wiring.open_senders == 0 {
            self.close_channel(lane, owner, index);
        }
    }

    /// Marks a wired channel for the division of its space at the wave's end.
    #[inline]
    pub(crate) fn touch(&mut self, owner: usize, index: u32) {
        let state = &mut self.sessions[owner];
        let channel = &mut state.channels[index as usize];
        if channel.wiring.is_some() && !channel.touched {
            channel.touched = true;
            self.touched.push(ChannelId { owner: state.id, index });
        }
    }

    /// A channel became receivable: everyone who selects on it looks again.
    pub(crate) fn wake_selectors(&mut self, lane: usize, session: usize, index: u32) {
        while let Some(slot) = self.sessions[session].channels[index as usize].selectors.pop() {
            let state = &mut self.sessions[session];
            let Wait::Selecting(places) = core::mem::replace(&mut state.tasks.live_at(slot).wait, Wait::None) else {
                unreachable!("selectors select")
            };
            let answer = places.iter().position(|&(channel, _)| channel == index).unwrap_or(0) as i32;
            // This channel's queue too: the call may have named it twice.
            for (channel, ticket) in *places {
                state.channels[channel as usize].selectors.remove(ticket);
            }
            self.answer(lane, session, slot, Wait::Code(answer), WakeSource::Channel);
        }
    }

    /// Puts a message into a channel of this lane and serves whoever waits for one.
    ///
    /// The caller has made sure that there is room and that no other sender waits before this one.
    pub(crate) fn deliver(&mut self, lane: usize, owner: usize, index: u32, message: Message) {
        self.sessions[owner].channels[index as usize].push(message);
        self.serve_receivers(lane, owner, index);
        self.touch(owner, index);
    }

    /// Gives queued messages to waiting receivers. One that it does not fit is told so, and the message stays in place.
    fn serve_receivers(&mut self, lane: usize, owner: usize, index: u32) {
        loop {
            let state = &mut self.sessions[owner];
            let channel = &mut state.channels[index as usize];
            let Some(message) = channel.queue.front() else { return };
            if let Front::Call(_) = message {
                if self.serve_call(lane, owner, index) {
                    continue;
                }
                break;
            }
            let Some(slot) = channel.first_receiver() else { break };
            let (operation, arguments) = pending(state.tasks.coroutine_at(slot));
            let fits = match (message, operation) {
                (Front::Number(_), HostOperation::Recv) => true,
                (Front::Bytes(bytes), HostOperation::RecvBytes) => bytes.len() as u64 <= u64::from(arguments[2] as u32),
                _ => false,
            };
            let _ = channel.pop_receiver();
            let answer = match fits.then(|| channel.queue.pop_front()).flatten() {
                Some(Message::Number(number)) => Wait::Number(number),
                Some(Message::Bytes(bytes)) => Wait::Bytes(Box::new(bytes)),
                Some(Message::Call(_)) | None => Wait::Code(Errno::MessageSize.code()),
            };
            self.answer(lane, owner, slot, answer, WakeSource::Channel);
            self.prefer(lane, owner, slot);
        }
        if !self.sessions[owner].channels[index as usize].selectors.is_empty() {
            self.wake_selectors(lane, owner, index);
        }
    }

    /// Direct handoff: the receiver that a send made ready is preferred for the next pick, where the manifest asks for it.
    pub(crate) fn prefer(&mut self, lane: usize, owner: usize, slot: u32) {
        let tasks = &mut self.sessions[owner].tasks;
        if self.shared.handoff && self.lanes[lane].id == tasks.lane_at(slot) {
            // A preference: a taken slot or a held receiver only means that it queues as usual.
            let _ = self.lanes[lane].kernel.prefer(tasks.live_at(slot).kernel);
        }
    }

    /// A receiver made room: waiting senders of this lane enter, first come first; one of another lane waits for the wave's end.
    pub(crate) fn admit_senders(&mut self, lane: usize, owner: usize, index: u32) {
        loop {
            let (wave, lanes) = (self.wave, self.shared.lanes);
            let channel = &mut self.sessions[owner].channels[index as usize];
            let first_is_local = channel.senders.front().is_some_and(|sender| sender.local);
            if !first_is_local || channel.local_room(wave, lanes) == 0 {
                return;
            }
            let Some(mut sender) = channel.senders.pop() else { return };
            let id = ChannelId { owner: self.sessions[owner].id, index };
            let session = self.local[sender.name.session.0 as usize] as usize;
            self.sessions[session].note_entered(id, &sender.message);
            if self.sessions[session].entered_call(sender.name.reference.slot, &mut sender.message) {
                self.deliver(lane, owner, index, sender.message);
                continue;
            }
            self.deliver(lane, owner, index, sender.message);
            self.answer(lane, session, sender.name.reference.slot, Wait::Code(0), WakeSource::Channel);
        }
    }

    /// Takes one place of the running lane's credit for a channel of another lane.
    pub(crate) fn take_credit(&mut self, lane: usize, credit: u32) -> bool {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let lane = &mut self.lanes[lane];
        lane.credits[credit as usize].take(lane.id, wave, lanes)
    }

    /// The channel a coroutine's wait is about, for reports: (owner session, channel number).
    pub(crate) fn waits_on(&self, session: usize, arguments: &[u64]) -> Option<ChannelId> {
        let state = &self.sessions[session];
        Some(match state.handle(*arguments.first()? as i32)? {
            Handle::Own(index) => ChannelId { owner: state.id, index },
            Handle::Port(port) => state.ports[port as usize].channel,
        })
    }

    /// How many channels a session has, and one of them: for the boundary.
    pub(crate) fn channel(&mut self, id: ChannelId) -> &mut Channel {
        let owner = self.local[id.owner.0 as usize] as usize;
        &mut self.sessions[owner].channels[id.index as usize]
    }
}

/// The host call a waiting coroutine is in.
#[inline]
pub(crate) fn pending(coroutine: &Coroutine) -> (HostOperation, [u64; 4]) {
    let given = coroutine.host_arguments();
    let arguments = core::array::from_fn(|at| given.get(at).copied().unwrap_or(0));
    let operation = coroutine.host_call().and_then(|call| HostOperation::from_code(call.number as u8));
    (operation.expect("a waiting coroutine is in a host call"), arguments)
}

pub(crate) const fn is_send(operation: HostOperation) -> bool {
    matches!(operation, HostOperation::Send | HostOperation::SendBytes | HostOperation::Call)
}

fn unlink_joiner(state: &mut SessionState, target: u32, next: u32, previous: u32) {
    if next != NONE
        && let Wait::Joining { previous: back, .. } = &mut state.tasks.live_at(next).wait
    {
        *back = previous;
    }
    if previous == NONE {
        state.tasks.family_mut(target).joiners = next;
    } else if let Wait::Joining { next: forward, .. } = &mut state.tasks.live_at(previous).wait {
        *forward = next;
    }
}

/// The bound that a slice out of cycles reached. Wakes it caused moved the lane's clock, so the wave or frame may have ended before a quantum
/// that seemed nearer when the slice began.
fn reached(running: &Running, used: Cycles, kernel: &Lane) -> BoundReason {
    match running.bound_reason() {
        BoundReason::Quantum if used < running.bound() && kernel.clock() + used >= kernel.frame_end() => BoundReason::FrameEnd,
        BoundReason::Quantum if used < running.bound() => BoundReason::WaveEnd,
        reason => reason,
    }
}

const fn bound_code(reason: BoundReason) -> StopCode {
    match reason {
        BoundReason::Refill => StopCode::EndOfRefill,
        BoundReason::Release => StopCode::Release,
        BoundReason::FrameEnd => StopCode::EndOfFrame,
        BoundReason::Quantum => StopCode::EndOfQuantum,
        BoundReason::WaveEnd => StopCode::EndOfWave,
    }
}

/// The stop code of a wait.
pub(crate) const fn wait_code(reason: BlockReason) -> StopCode {
    match reason {
        BlockReason::ChannelSend => StopCode::WaitSend,
        BlockReason::ChannelReceive => StopCode::WaitReceive,
        BlockReason::Select => StopCode::WaitSelect,
        BlockReason::Join => StopCode::WaitJoin,
        BlockReason::Input => StopCode::WaitInput,
        BlockReason::OtherLane => StopCode::WaitLane,
        BlockReason::Reply => StopCode::WaitReply,
    }
}
