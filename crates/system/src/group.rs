//! A group: lanes, the sessions on them and their channels, as one value that a worker can own for
//! a wave.
//!
//! Contract: within a wave a group sees nothing outside itself. Its effects on other groups go to
//! its lanes' outboxes, and `boundary` applies them at the wave's end. So running groups one after
//! the other or at the same time is the same run.
//!
//! Here: what a group holds, what a planner may read of it, ends and answers of coroutines, and the
//! queues of channels. Elsewhere: steps (`step`), host operations (`host`).

use crate::boundary::Notice;
use crate::call::Caller;
use crate::channel::{Channel, Message, share};
use crate::context::Request;
use crate::functions::{Answers, FIRST_FUNCTION, Host, HostCommand};
use crate::host::event_fields;
use crate::index::{ChannelIndex, GroupIndex, LaneIndex, LocalSessions, SessionIndex, TaskIndex};
use crate::lease::{LeaseAsk, SharedLease};
use crate::parcels::{Incoming, Parcel};
use crate::queue::Front;
use crate::session::{Handle, SessionState};
use crate::spec::Limits;
use crate::task::{EndStatus, NONE, Wait};
use crate::wait::Ticket;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, Frame, HostOperation, LaneId, SessionId,
};
use wavelock_kernel::{Lane, LeaseState, Outbox, Refusal, Reservation, Spawn, WakeSource};
use wavelock_machine::Coroutine;
use wavelock_trace::{Event, LaneLog};

/// A lane's log is hashed at a wave's end once it has this many bytes, a whole branch of the hash's
/// tree; fewer wait for a later wave or the frame's end.
const HASHED_BYTES: usize = 16 * 1024;

/// Constants of the run, shared by all groups.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) frame_cycles: Cycles,
    pub(crate) lanes: u16,
    pub(crate) handoff: bool,
    /// By lane: its group, and its position there.
    pub(crate) lane_positions: Arc<[(GroupIndex, LaneIndex)]>,
    pub(crate) rules: crate::rules::Rules,
    pub(crate) host: Host,
    /// By position in the description.
    pub(crate) leases: Arc<[SharedLease]>,
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

    /// Spends one message of this lane's share, if any is left in this wave. What was left of an
    /// earlier wave's share has lapsed.
    pub(crate) fn take(&mut self, lane: u16, wave: u64, machine_lanes: u16) -> bool {
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
    Message { channel: ChannelId, sender: CoroutineName, message: Message },
    /// A sender without credit waits at the channel.
    WaitToSend { channel: ChannelId, sender: CoroutineName, message: Message },
    /// A sender in the channel's queue was canceled.
    Withdraw { channel: ChannelId, ticket: Ticket },
    /// A wired sender closed its port, or ended.
    ClosePort { channel: ChannelId },
    /// A coroutine of a split session was spawned on this lane.
    Publish { name: CoroutineName },
    /// A wait of a coroutine of a split session is over.
    Wake { name: CoroutineName, source: WakeSource },
    /// A coroutine of a split session was unparked by one on another lane.
    Unpark { target: CoroutineName },
    /// A coroutine of a split session is canceled by one on another lane.
    Cancel { target: CoroutineName, by: CoroutineRef },
    /// A split session ends: its coroutines on this lane too.
    Exit { session: SessionId },
    /// The answer to a call from this lane.
    Answer { caller: Caller, answer: Wait },
}

/// The origin of a message that arrives from another lane, while it is delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    pub(crate) sender: CoroutineName,
    pub(crate) lane: u16,
    pub(crate) how: Arrived,
}

/// How a message came from another lane. The numbers are those of [`Event::Handoff`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Arrived {
    /// With credit.
    Sent = 0,
    /// Its sender waited for room.
    Entered = 1,
}

/// A lane: its kernel, and the state that the system keeps beside it.
#[derive(Clone)]
pub(crate) struct LaneState {
    pub(crate) id: u16,
    pub(crate) kernel: Lane,
    pub(crate) log: LaneLog,
    /// Effects of this wave on other lanes.
    pub(crate) outbox: Outbox<Effect>,
    /// The same by receiving group, when the wave has run; ascending by group.
    pub(crate) parcels: Vec<Parcel>,
    pub(crate) credits: Vec<Credit>,
    /// By channel: its index in `credits`.
    pub(crate) credit_lines: BTreeMap<ChannelId, u32>,
    /// The lane's clock when its last step ended.
    pub(crate) mark: Cycles,
    pub(crate) steps: u64,
    /// What the kernel asked for its contexts (end a coroutine, notify a channel), done before the
    /// next step.
    pub(crate) requests: Vec<Request>,
    /// Commands of guests to the embedder, in the order of the calls; applied at the wave's end.
    pub(crate) commands: Vec<HostCommand>,
    /// What coroutines of this lane ask of leases in this wave.
    pub(crate) lease_asks: Vec<LeaseAsk>,
    /// What the embedder's functions answered in this frame.
    pub(crate) answers: Answers,
    /// The last refusal of a context operation, for a debugger. No decision reads it, and it is no
    /// part of the machine's state.
    pub(crate) refusal: Option<wavelock_kernel::ContextRefusal>,
}

impl LaneState {
    pub(crate) fn new(id: u16, mut kernel: Lane, keep_events: bool) -> Self {
        kernel.set_prefetch(wavelock_machine::prefetch);
        Self {
            id,
            kernel,
            log: LaneLog::new(keep_events),
            outbox: Outbox::new(),
            parcels: Vec::new(),
            credits: Vec::new(),
            credit_lines: BTreeMap::new(),
            mark: Cycles::ZERO,
            steps: 0,
            requests: Vec::new(),
            commands: Vec::new(),
            lease_asks: Vec::new(),
            answers: Answers::default(),
            refusal: None,
        }
    }

    /// Posts an effect on another lane, to be applied at the wave's end.
    pub(crate) fn post(&mut self, to: u16, effect: Effect) {
        self.outbox.post(LaneId(to), effect);
    }

    /// Starts a wave: marks it in the log and sets the kernel's span.
    pub(crate) fn begin_wave(&mut self, span: wavelock_kernel::Span) {
        self.mark = self.kernel.clock();
        self.log.wave(self.mark);
        self.kernel.begin_wave(span);
    }

    /// Cycles of work so far: charged and overhead.
    pub(crate) fn worked(&self) -> Cycles {
        let totals = self.kernel.totals();
        totals.charged + totals.overhead_total()
    }

    /// Publishes a coroutine on this lane, making room for it first.
    pub(crate) fn publish(&mut self, spawn: Spawn) -> Result<CoroutineRef, Refusal> {
        self.kernel.reserve(Reservation { coroutines: 1, sessions: 1 })?;
        self.kernel.spawn(spawn)
    }

    /// Makes a waiting coroutine of this lane ready.
    #[inline(always)]
    pub(crate) fn wake(
        &mut self,
        session: SessionId,
        slot: u32,
        reference: CoroutineRef,
        source: WakeSource,
    ) {
        self.log.event(&Event::Wake {
            session: u64::from(session.0),
            slot: u64::from(slot),
            source: source as u64,
        });
        let woken = self.kernel.wake(reference, source);
        debug_assert!(woken.is_ok(), "the system wakes only what waits: {woken:?}");
    }
}

/// Lanes and the sessions on them.
#[derive(Clone)]
pub struct Group {
    /// Ascending by lane number.
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) sessions: Vec<SessionState>,
    /// By session number: the position in `sessions`.
    pub(crate) local: LocalSessions,
    pub(crate) shared: Arc<Shared>,
    pub(crate) set_version: u64,
    last_cost: Cycles,
    pub(crate) wave: u64,
    pub(crate) frame: Frame,
    /// Set while a message from another lane is delivered.
    pub(crate) arriving: Option<Arriving>,
    /// Receivers preferred for a message from another lane, since the machine was loaded or
    /// restored. Not state.
    pub(crate) handoffs: u64,
    /// Sessions that ended since the last boundary.
    pub(crate) ended: Vec<SessionId>,
    /// Sessions with a coroutine that began to wait for another session in this wave.
    pub(crate) watching: Vec<SessionId>,
    /// Wired channels whose space must be divided anew at the wave's end.
    pub(crate) touched: Vec<ChannelId>,
    /// Effects of other lanes, in canonical order, while a wave is being closed.
    pub(crate) inbox: Vec<Vec<Incoming>>,
    /// Emptied parcels, kept for their allocations.
    pub(crate) spare: Vec<Vec<Incoming>>,
    /// Changes to other groups that follow from applying the inbox.
    pub(crate) notices: Vec<Notice>,
    /// Sessions with output or log in this frame.
    pub(crate) unflushed: Vec<SessionId>,
    /// Live coroutines, and the most there were in this wave.
    pub(crate) live: u64,
    pub(crate) wave_peak: u64,
    /// The leases of all lanes as of the last wave's end; empty in a machine without leases.
    pub(crate) lease_views: Vec<(u16, LeaseState)>,
    /// The host ran out of memory; the run ends.
    pub(crate) failure: Option<Refusal>,
}

impl Group {
    pub(crate) fn new(shared: Arc<Shared>, sessions: usize) -> Self {
        Self {
            lanes: Vec::new(),
            sessions: Vec::new(),
            local: LocalSessions::new(sessions),
            shared,
            set_version: 1,
            last_cost: Cycles::MAX,
            wave: 0,
            frame: Frame::ZERO,
            arriving: None,
            handoffs: 0,
            ended: Vec::new(),
            watching: Vec::new(),
            touched: Vec::new(),
            inbox: Vec::new(),
            spare: Vec::new(),
            notices: Vec::new(),
            unflushed: Vec::new(),
            live: 0,
            wave_peak: 0,
            lease_views: Vec::new(),
            failure: None,
        }
    }
}

/// What a planner may read of a group.
impl Group {
    /// Its lanes, ascending, each with its ready-set digest.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneId, u64)> + '_ {
        self.lanes.iter().map(|lane| (LaneId(lane.id), lane.kernel.ready_digest()))
    }

    /// Whether any of its lanes has something to run, or a refill to wait for.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| lane.kernel.has_work() || lane.kernel.next_release().is_some())
    }

    /// The version of its set of sessions and channels: incremented when a session moves in or out.
    #[must_use]
    pub const fn set_version(&self) -> u64 {
        self.set_version
    }

    /// The number of its sessions.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.sessions.len() as u32
    }

    /// Its sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.iter().map(|state| state.id)
    }

    /// The wired channels whose queues it holds.
    pub fn wired_channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.sessions.iter().flat_map(|state| {
            let wired =
                (0u32..).zip(&state.channels).filter(|(_, channel)| channel.wiring.is_some());
            wired.map(|(index, _)| ChannelId { owner: state.id, index })
        })
    }

    /// The coroutine that each of its lanes would dispatch next, lane by lane.
    pub fn next_picks(&self) -> impl Iterator<Item = (LaneId, CoroutineName)> + '_ {
        self.lanes.iter().filter_map(|lane| {
            let tag = lane.kernel.peek()?;
            let state = &self.sessions[self.local[SessionId(tag.session())]];
            Some((LaneId(lane.id), state.coroutine_name(tag.slot())))
        })
    }

    /// Cycles its lanes spent on work in the last wave they ran: an estimate of the next for a
    /// driver. No decision of the model depends on it.
    #[must_use]
    pub const fn last_cost(&self) -> Cycles {
        self.last_cost
    }
}

impl Group {
    /// Runs every lane to its wave's end, in lane order.
    pub fn run_wave(&mut self) {
        let before = self.worked();
        let frame_end = (self.frame.0 + 1) * self.shared.frame_cycles.0;
        for lane in LaneIndex::all(&self.lanes) {
            self.run_lane(lane);
            let state = &mut self.lanes[lane];
            // Hashed on this thread, not at the frame's end by one thread for all lanes.
            state.log.hash(if state.kernel.clock().0 >= frame_end { 0 } else { HASHED_BYTES });
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

    /// Ends a coroutine that the kernel has removed: result, joiners, and the session if it was the
    /// last.
    pub(crate) fn end_task(
        &mut self,
        lane: LaneIndex,
        at: TaskIndex,
        status: EndStatus,
        value: i64,
    ) {
        self.drop_replies(lane, at, status);
        let TaskIndex { session, slot } = at;
        let state = &mut self.sessions[session];
        let reference = state.tasks.reference_at(slot);
        self.lanes[lane].log.event(&Event::End {
            session: u64::from(state.id.0),
            slot: u64::from(slot),
            status: status as u64,
            value: value as u64,
        });
        state.tasks.end(slot, status, value);
        state.tasks.vacate(slot, &state.machine);
        self.live -= 1;
        let joiners = state.tasks.family(slot).joiners;
        if joiners != NONE {
            self.answer_joiners(lane, TaskIndex { session, slot: joiners }, status, value);
            self.sessions[session].tasks.joined_at_end(reference, status);
        }
        let state = &self.sessions[session];
        if state.tasks.live() == 0 && !state.is_replaced {
            self.end_session(lane, session);
        }
    }

    /// Gives the result of a coroutine to all its joiners, first come first. `at` is the head of
    /// their list, which is last come first.
    fn answer_joiners(&mut self, lane: LaneIndex, at: TaskIndex, status: EndStatus, value: i64) {
        let mut joiners = Vec::new();
        let mut slot = at.slot;
        while slot != NONE {
            joiners.push(TaskIndex { slot, ..at });
            let Wait::Joining { next, .. } = self.sessions[at.session].tasks.live_at(slot).wait
            else {
                unreachable!("the list of joiners holds joiners")
            };
            slot = next;
        }
        for joiner in joiners.into_iter().rev() {
            let answer = match SessionState::join_code(status) {
                0 => Wait::Number(value),
                code => Wait::Code(code),
            };
            self.answer(lane, joiner, answer, WakeSource::Join);
        }
    }

    /// Ends a coroutine's wait with an answer and makes it ready, on its lane at once or on another
    /// lane at the wave's end.
    pub(crate) fn answer(
        &mut self,
        lane: LaneIndex,
        TaskIndex { session, slot }: TaskIndex,
        answer: Wait,
        source: WakeSource,
    ) {
        let state = &mut self.sessions[session];
        let home = state.tasks.lane_at(slot);
        let task = state.tasks.live_at(slot);
        let before = core::mem::replace(&mut task.wait, answer);
        let reference = task.kernel;
        if let Wait::Reply(_) = before {
            state.left_call();
        }
        let lane = &mut self.lanes[lane];
        if lane.id == home {
            lane.wake(state.id, slot, reference, source);
        } else {
            lane.post(home, Effect::Wake { name: state.coroutine_name(slot), source });
        }
    }

    /// All coroutines of a session have ended.
    fn end_session(&mut self, lane: LaneIndex, session: SessionIndex) {
        let state = &mut self.sessions[session];
        let outcome = state.verdict();
        state.ended = Some(outcome);
        self.ended.push(state.id);
        self.lanes[lane].log.event(&Event::SessionEnd {
            session: u64::from(state.id.0),
            outcome: outcome as u64,
            exit: u64::from(state.exit as u32),
        });
        self.release_session(lane, session);
    }

    /// `proc_exit`, or a cap that ends its session: every other coroutine of the session ends too;
    /// those on other lanes at the wave's end.
    pub(crate) fn exit_session(&mut self, lane: LaneIndex, session: SessionIndex) {
        let state = &mut self.sessions[session];
        if state.ended.is_some() {
            return;
        }
        state.exiting = true;
        let own = self.lanes[lane].id;
        for &other in state.lanes.iter().filter(|&&other| other != own) {
            self.lanes[lane].post(other, Effect::Exit { session: state.id });
        }
        self.cancel_lane(lane, session);
    }

    /// Ends the coroutines that a session has on this lane, in slot order: killed, if it was killed
    /// as a whole, else canceled.
    pub(crate) fn cancel_lane(&mut self, lane: LaneIndex, session: SessionIndex) {
        self.end_leases(lane, session);
        let own = self.lanes[lane].id;
        let tasks = &self.sessions[session].tasks;
        let slots = tasks.iter_live().map(|(slot, _)| slot);
        let slots: Vec<u32> = slots.filter(|&slot| tasks.lane_at(slot) == own).collect();
        for slot in slots {
            let (state, at) = (&mut self.sessions[session], TaskIndex { session, slot });
            if state.ended.is_some() {
                return;
            }
            self.cancel_or_kill(lane, at);
        }
    }

    /// Ends a coroutine of a session that exited or was killed as a whole.
    pub(crate) fn cancel_or_kill(&mut self, lane: LaneIndex, at: TaskIndex) {
        let state = &mut self.sessions[at.session];
        if !state.kills.is_whole() {
            return self.cancel_task(lane, at);
        }
        state.kills.count += 1;
        self.withdraw(lane, at);
        self.end_task(lane, at, EndStatus::Killed, 0);
    }

    /// Ends a coroutine of this lane that is not running: out of the kernel and every wait queue,
    /// then as any end.
    pub(crate) fn cancel_task(&mut self, lane: LaneIndex, at: TaskIndex) {
        let session = u64::from(self.sessions[at.session].id.0);
        self.lanes[lane].log.event(&Event::Cancel { session, slot: u64::from(at.slot) });
        self.withdraw(lane, at);
        self.end_task(lane, at, EndStatus::Canceled, 0);
    }

    /// Takes a coroutine out of the queues it waits in.
    pub(crate) fn leave_queues(&mut self, lane: LaneIndex, at: TaskIndex) {
        let state = &mut self.sessions[at.session];
        if state.tasks.live_at(at.slot).wait.is_none() {
            return;
        }
        let (task, coroutine) = state.tasks.both_at(at.slot);
        if is_host_function(coroutine) {
            if let Wait::Asking(number) = core::mem::replace(&mut task.wait, Wait::None) {
                state.left_ask(number);
            }
            return;
        }
        let (operation, [first, ..]) = pending(coroutine);
        match core::mem::replace(&mut task.wait, Wait::None) {
            Wait::Queued(ticket) | Wait::Taking(ticket) => match state.handle(first as i32) {
                None => {}
                Some(Handle::Own(channel)) => {
                    let channel = &mut state.channels[channel as usize];
                    if is_send(operation) {
                        channel.senders.remove(ticket);
                    } else {
                        channel.receivers.remove(ticket);
                    }
                }
                Some(Handle::Port(port)) => {
                    let port = &state.ports[port as usize];
                    let (channel, home) = (port.channel, port.home);
                    if self.lanes[lane].id == home {
                        self.channel(channel).senders.remove(ticket);
                    } else {
                        self.lanes[lane].post(home, Effect::Withdraw { channel, ticket });
                    }
                }
            },
            Wait::Selecting(tickets) => {
                for (channel, ticket) in *tickets {
                    state.channels[channel as usize].selectors.remove(ticket);
                }
            }
            Wait::Joining { next, previous } => {
                let target = CoroutineRef::from_guest(first as i64);
                state.tasks.unlink_joiner(
                    target.map_or(NONE, |target| target.slot),
                    next,
                    previous,
                );
            }
            Wait::Input(ticket) => drop(state.input.waiting.remove(ticket)),
            Wait::Session(ticket) => {
                if let Some(Handle::Port(port)) = state.handle(first as i32)
                    && let Some(watches) = &mut state.watches
                {
                    watches.remove(state.ports[port as usize].channel.owner, ticket);
                }
            }
            Wait::Reply(_) => state.left_call(),
            _ => {}
        }
    }
}

/// Channels.
impl Group {
    /// Closes one of a session's own channels: senders are refused, receivers drain it and are then
    /// refused.
    pub(crate) fn close_channel(&mut self, lane: LaneIndex, at: ChannelIndex) {
        let channel = &mut self.sessions[at];
        if channel.closed {
            return;
        }
        channel.close();
        let (owner, index) = event_fields(self.channel_id(at));
        self.lanes[lane].log.event(&Event::Close { owner, index });
        self.touch(at);
        if self.sessions[at].queue.is_empty() {
            while let Some(slot) = self.sessions[at].receivers.pop() {
                let receiver = TaskIndex { session: at.owner, slot };
                self.answer(lane, receiver, Wait::refused(Errno::Closed), WakeSource::Channel);
            }
        }
        self.wake_selectors(lane, at);
        // Waiting senders of this lane are answered now; those of other lanes at the wave's end.
        for sender in self.sessions[at].senders.extract(|sender| sender.local) {
            let sender = self.task(sender.name);
            self.answer(lane, sender, Wait::refused(Errno::Closed), WakeSource::Channel);
        }
    }

    /// Closes this session's port: its owner counts the senders that are left.
    pub(crate) fn close_port(&mut self, lane: LaneIndex, session: SessionIndex, port: u32) {
        let port = &mut self.sessions[session].ports[port as usize];
        if port.closed {
            return;
        }
        port.closed = true;
        let (channel, home) = (port.channel, port.home);
        let (owner, index) = event_fields(channel);
        self.lanes[lane].log.event(&Event::Close { owner, index });
        if self.lanes[lane].id == home {
            self.sender_left(lane, self.local.channel(channel));
        } else {
            self.lanes[lane].post(home, Effect::ClosePort { channel });
        }
    }

    /// A wired sender closed its port or ended; the channel closes with the last one.
    pub(crate) fn sender_left(&mut self, lane: LaneIndex, at: ChannelIndex) {
        let Some(wiring) = &mut self.sessions[at].wiring else { return };
        wiring.open_senders -= 1;
        if wiring.open_senders == 0 {
            self.close_channel(lane, at);
        }
    }

    /// Marks a wired channel for the division of its space at the wave's end.
    #[inline]
    pub(crate) fn touch(&mut self, at: ChannelIndex) {
        let channel = &mut self.sessions[at];
        if channel.wiring.is_some() && !channel.touched {
            channel.touched = true;
            self.touched.push(self.channel_id(at));
        }
    }

    /// A channel became receivable: answers every coroutine that selects on it.
    pub(crate) fn wake_selectors(&mut self, lane: LaneIndex, at: ChannelIndex) {
        while let Some(slot) = self.sessions[at].selectors.pop() {
            let state = &mut self.sessions[at.owner];
            let wait = &mut state.tasks.live_at(slot).wait;
            let Wait::Selecting(tickets) = core::mem::replace(wait, Wait::None) else {
                unreachable!("selectors select")
            };
            let position = tickets.iter().position(|&(channel, _)| channel == at.index);
            // This channel's queue too: the call may have named it twice.
            for (channel, ticket) in *tickets {
                state.channels[channel as usize].selectors.remove(ticket);
            }
            let answer = Wait::Code(position.unwrap_or(0) as i32);
            let selector = TaskIndex { session: at.owner, slot };
            self.answer(lane, selector, answer, WakeSource::Channel);
        }
    }

    /// Puts a message into a channel of this lane and serves its waiters. There is room, and no
    /// other sender waits before this one.
    pub(crate) fn deliver(&mut self, lane: LaneIndex, at: ChannelIndex, message: Message) {
        self.sessions[at].push(message);
        self.serve_receivers(lane, at);
        self.touch(at);
    }

    /// Gives queued messages to blocked receivers. A receiver that the message does not fit gets a
    /// code, and the message stays in the queue.
    fn serve_receivers(&mut self, lane: LaneIndex, at: ChannelIndex) {
        loop {
            let state = &mut self.sessions[at.owner];
            let channel = &mut state.channels[at.index as usize];
            let Some(message) = channel.queue.front() else { return };
            if let Front::Call(_) = message {
                if self.serve_call(lane, at) {
                    continue;
                }
                break;
            }
            let Some(&slot) = channel.receivers.front() else { break };
            let (operation, [_, _, capacity, _]) = pending(state.tasks.coroutine_at(slot));
            let fits = match (message, operation) {
                (Front::Number(_), HostOperation::Recv) => true,
                (Front::Bytes(bytes), HostOperation::RecvBytes) => {
                    bytes.len() <= capacity as u32 as usize
                }
                _ => false,
            };
            let _ = channel.receivers.pop();
            let answer = match fits.then(|| channel.queue.pop_front()).flatten() {
                Some(Message::Number(number)) => Wait::Number(number),
                Some(Message::Bytes(bytes)) => Wait::Bytes(Box::new(bytes)),
                Some(Message::Call(_)) | None => Wait::refused(Errno::MessageSize),
            };
            let receiver = TaskIndex { session: at.owner, slot };
            self.answer(lane, receiver, answer, WakeSource::Channel);
            self.prefer(lane, receiver);
        }
        self.wake_selectors(lane, at);
    }

    /// Direct handoff, where the manifest asks for it: the receiver that a send made ready is
    /// preferred for the next pick. One for a message from another lane is recorded.
    pub(crate) fn prefer(&mut self, lane: LaneIndex, TaskIndex { session, slot }: TaskIndex) {
        let state = &mut self.sessions[session];
        let lane = &mut self.lanes[lane];
        if !self.shared.handoff || lane.id != state.tasks.lane_at(slot) {
            return;
        }
        // A preference: if the kernel refuses it, the receiver queues as usual.
        let is_preferred = lane.kernel.prefer(state.tasks.live_at(slot).kernel).is_ok();
        if let Some(Arriving { sender, lane: from, how }) = self.arriving.filter(|_| is_preferred) {
            self.handoffs += 1;
            lane.log.event(&Event::Handoff {
                session: u64::from(sender.session.0),
                slot: u64::from(sender.reference.slot),
                from: u64::from(from),
                to_session: u64::from(state.id.0),
                to_slot: u64::from(slot),
                to: u64::from(lane.id),
                step: lane.steps,
                reason: how as u64,
            });
        }
    }

    /// A receiver made room: waiting senders of this lane enter, first come first; one of another
    /// lane waits for the wave's end.
    pub(crate) fn admit_senders(&mut self, lane: LaneIndex, at: ChannelIndex) {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        loop {
            let channel = &mut self.sessions[at];
            let first_is_local = channel.senders.front().is_some_and(|sender| sender.local);
            if !first_is_local || channel.local_room(wave, lanes) == 0 {
                return;
            }
            let Some(mut sender) = channel.senders.pop() else { return };
            let (id, from) = (self.channel_id(at), self.task(sender.name));
            let is_call = self.sessions[from.session].entered(id, from.slot, &mut sender.message);
            self.deliver(lane, at, sender.message);
            if !is_call {
                self.answer(lane, from, Wait::Code(0), WakeSource::Channel);
            }
        }
    }

    /// The channel that a pending call names by its handle.
    pub(crate) fn waits_on(&self, session: SessionIndex, handle: u64) -> Option<ChannelId> {
        let state = &self.sessions[session];
        Some(match state.handle(handle as i32)? {
            Handle::Own(index) => ChannelId { owner: state.id, index },
            Handle::Port(port) => state.ports[port as usize].channel,
        })
    }

    /// A channel whose owner is in this group.
    pub(crate) fn channel(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.sessions[self.local.channel(id)]
    }

    pub(crate) fn channel_id(&self, at: ChannelIndex) -> ChannelId {
        ChannelId { owner: self.sessions[at.owner].id, index: at.index }
    }

    /// A coroutine whose session is in this group.
    pub(crate) fn task(&self, name: CoroutineName) -> TaskIndex {
        TaskIndex { session: self.local[name.session], slot: name.reference.slot }
    }
}

/// The host call a waiting coroutine is in.
#[inline]
pub(crate) fn pending(coroutine: &Coroutine) -> (HostOperation, [u64; 4]) {
    let given = coroutine.host_arguments();
    let arguments = core::array::from_fn(|at| given.get(at).copied().unwrap_or(0));
    let operation = coroutine
        .host_call()
        .and_then(|call| HostOperation::from_code(u8::try_from(call.number).ok()?));
    (operation.expect("a waiting coroutine is in a host call"), arguments)
}

/// Whether a coroutine is in a call of a function of the embedder.
pub(crate) fn is_host_function(coroutine: &Coroutine) -> bool {
    coroutine.host_call().is_some_and(|call| call.number >= FIRST_FUNCTION)
}

pub(crate) const fn is_send(operation: HostOperation) -> bool {
    matches!(operation, HostOperation::Send | HostOperation::SendBytes | HostOperation::Call)
}
