//! A group: lanes, the sessions that live on them and their channels, as one value that a worker
//! can own for a wave.
//!
//! Within a wave a group sees nothing outside itself; what it does to others goes to its lanes'
//! outboxes and is applied by `boundary` at the wave's end. So running groups one after the other
//! or at the same time is the same run (law 1).
//!
//! One step is: the kernel's dispatch, one slice of the machine with its host operations, the
//! kernel's stop.

use crate::boundary::Notice;
use crate::call::Caller;
use crate::channel::{Channel, Message, WaitingSender, share};
use crate::context::Request;
use crate::ending::At;
use crate::index::{LaneIndex, LocalSessions, SessionIndex};
use crate::parcels::{Incoming, Parcel};
use crate::queue::Front;
use crate::session::{Handle, SessionState};
use crate::spec::Limits;
use crate::task::{EndStatus, NONE, TaskTable, Wait};
use crate::wait::Ticket;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, Frame, HostOperation, LaneId, SessionId,
};
use wavelock_kernel::{Lane, Outbox, Refusal, Reservation, Spawn, WakeSource};
use wavelock_machine::Coroutine;
use wavelock_trace::{Event, LaneLog};

/// How many bytes of a lane's log are hashed at a wave's end, and so many more as there are; fewer
/// wait for the next, or for the frame's end. A whole branch of the hash's tree.
const SETTLED_BYTES: usize = 16 * 1024;

/// What every group knows about the machine: constants of the run.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) frame_cycles: Cycles,
    pub(crate) lanes: u16,
    pub(crate) handoff: bool,
    /// By lane: its group, and its place there.
    pub(crate) lane_places: Arc<[(usize, LaneIndex)]>,
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

    /// Takes one place of this lane's share, if there is one left in this wave. What was left of an
    /// earlier wave's share has lapsed.
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

/// A lane with what the system keeps for it.
pub(crate) struct LaneState {
    pub(crate) id: u16,
    pub(crate) kernel: Lane,
    pub(crate) log: LaneLog,
    /// Effects of this wave on other lanes.
    pub(crate) outbox: Outbox<Effect>,
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
    /// The last refusal about time, for whoever asks why. Nothing decides by it, and it is no part
    /// of the machine's state.
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
            refusal: None,
        }
    }

    /// Posts an effect on another lane, to be applied at the wave's end.
    pub(crate) fn post(&mut self, to: u16, effect: Effect) {
        self.outbox.post(LaneId(to), effect);
    }

    /// The wave begins: a mark in the log, the kernel's span set.
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

    /// A coroutine has ended: in the log and among its session's coroutines.
    #[inline]
    pub(crate) fn end(
        &mut self,
        session: SessionId,
        tasks: &mut TaskTable,
        slot: u32,
        status: EndStatus,
        value: i64,
    ) {
        let (session, value_bits) = (u64::from(session.0), value as u64);
        self.log.event(&Event::End {
            session,
            slot: u64::from(slot),
            status: status as u64,
            value: value_bits,
        });
        tasks.end(slot, status, value);
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
            let wired =
                (0u32..).zip(&state.channels).filter(|(_, channel)| channel.wiring.is_some());
            wired.map(|(index, _)| ChannelId { owner: state.id, index })
        })
    }

    /// What each of its lanes with work would run now, lane by lane.
    pub fn next_picks(&self) -> impl Iterator<Item = (LaneId, CoroutineName)> + '_ {
        self.lanes.iter().filter_map(|lane| {
            let tag = lane.kernel.peek()?;
            let state = &self.sessions[self.local[SessionId(tag.session())]];
            let reference = state.tasks.reference_at(tag.slot());
            Some((LaneId(lane.id), CoroutineName { session: state.id, reference }))
        })
    }

    /// Cycles its lanes spent on work in the last wave they ran: what a driver may expect of the
    /// next. No decision depends on it.
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
            // What is hashed here need not be hashed at the frame's end, by one thread for all
            // lanes.
            state.log.hash(if state.kernel.clock().0 >= frame_end { 0 } else { SETTLED_BYTES });
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

    /// Ends a coroutine that the kernel no longer has: result, joiners, and the session if it was
    /// the last.
    pub(crate) fn end_task(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        slot: u32,
        status: EndStatus,
        value: i64,
    ) {
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
    fn answer_joiners(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        head: u32,
        status: EndStatus,
        value: i64,
    ) {
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

    /// Ends a coroutine's wait with an answer and makes it ready, on its lane at once or on another
    /// lane at the wave's end.
    pub(crate) fn answer(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        slot: u32,
        answer: Wait,
        source: WakeSource,
    ) {
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
            self.lanes[lane].post(home, Effect::Wake { session: id, reference, source });
        }
    }

    /// All coroutines of a session have ended: its channels close, its ports too.
    fn end_session(&mut self, lane: LaneIndex, session: SessionIndex) {
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

    /// `proc_exit`: every other coroutine of the session ends too; those on other lanes at the
    /// wave's end.
    pub(crate) fn exit_session(&mut self, lane: LaneIndex, session: SessionIndex) {
        let state = &mut self.sessions[session];
        if state.ended.is_some() {
            return;
        }
        state.exiting = true;
        let id = state.id;
        let own = self.lanes[lane].id;
        for &other in state.lanes.iter().filter(|&&other| other != own) {
            self.lanes[lane].post(other, Effect::Exit { session: id });
        }
        self.cancel_lane(lane, session);
    }

    /// Cancels every coroutine of a session that runs on this lane, in slot order.
    pub(crate) fn cancel_lane(&mut self, lane: LaneIndex, session: SessionIndex) {
        let own = self.lanes[lane].id;
        let tasks = &self.sessions[session].tasks;
        let slots: Vec<u32> = tasks
            .iter_live()
            .map(|(slot, _)| slot)
            .filter(|&slot| tasks.lane_at(slot) == own)
            .collect();
        for slot in slots {
            if self.sessions[session].ended.is_none() {
                self.cancel_task(lane, session, slot);
            }
        }
    }

    /// Ends a coroutine of this lane that does not run now: out of every queue it stands in, then
    /// as any end.
    pub(crate) fn cancel_task(&mut self, lane: LaneIndex, session: SessionIndex, slot: u32) {
        let state = &mut self.sessions[session];
        let id = state.id;
        self.lanes[lane]
            .log
            .event(&Event::Cancel { session: u64::from(id.0), slot: u64::from(slot) });
        self.withdraw(At { lane, session, slot });
        self.end_task(lane, session, slot, EndStatus::Canceled, 0);
    }

    /// Takes a waiting coroutine out of the queues it stands in.
    pub(crate) fn leave_queues(&mut self, lane: LaneIndex, session: SessionIndex, slot: u32) {
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
                            channel.receivers.remove(ticket);
                        }
                    }
                    Handle::Port(port) => {
                        let (channel, home) =
                            (state.ports[port as usize].channel, state.ports[port as usize].home);
                        if self.lanes[lane].id == home {
                            let owner = self.local[channel.owner];
                            self.sessions[owner].channels[channel.index as usize]
                                .senders
                                .remove(ticket);
                        } else {
                            self.lanes[lane].post(home, Effect::Withdraw { channel, ticket });
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
                let target = CoroutineRef::from_guest(arguments[0] as i64)
                    .map_or(NONE, |reference| reference.slot);
                unlink_joiner(state, target, next, previous);
            }
            Wait::Input(ticket) => drop(state.input.waiting.remove(ticket)),
            Wait::Reply(_) => state.left_call(),
            _ => {}
        }
    }

    /// Closes one of a session's own channels: senders are refused, receivers drain and are then
    /// refused.
    pub(crate) fn close_channel(&mut self, lane: LaneIndex, session: SessionIndex, index: u32) {
        let state = &mut self.sessions[session];
        let channel = &mut state.channels[index as usize];
        if channel.closed {
            return;
        }
        channel.close();
        let id = state.id;
        self.lanes[lane]
            .log
            .event(&Event::Close { owner: u64::from(id.0), index: u64::from(index) });
        self.touch(session, index);
        if self.sessions[session].channels[index as usize].queue.is_empty() {
            while let Some(slot) = self.sessions[session].channels[index as usize].receivers.pop() {
                self.answer(
                    lane,
                    session,
                    slot,
                    Wait::Code(Errno::Closed.code()),
                    WakeSource::Channel,
                );
            }
        }
        self.wake_selectors(lane, session, index);
        // Waiting senders of this lane learn of it now; those of other lanes at the wave's end.
        let local =
            self.sessions[session].channels[index as usize].senders.extract(|sender| sender.local);
        for WaitingSender { name, .. } in local {
            let sender = self.local[name.session];
            self.answer(
                lane,
                sender,
                name.reference.slot,
                Wait::Code(Errno::Closed.code()),
                WakeSource::Channel,
            );
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
        self.lanes[lane].log.event(&Event::Close {
            owner: u64::from(channel.owner.0),
            index: u64::from(channel.index),
        });
        if self.lanes[lane].id == home {
            let owner = self.local[channel.owner];
            self.sender_left(lane, owner, channel.index);
        } else {
            self.lanes[lane].post(home, Effect::ClosePort { channel });
        }
    }

    /// A wired sender is gone; the channel closes with the last one.
    pub(crate) fn sender_left(&mut self, lane: LaneIndex, owner: SessionIndex, index: u32) {
        let Some(wiring) = &mut self.sessions[owner].channels[index as usize].wiring else {
            return;
        };
        wiring.open_senders -= 1;
        if wiring.open_senders == 0 {
            self.close_channel(lane, owner, index);
        }
    }

    /// Marks a wired channel for the division of its space at the wave's end.
    #[inline]
    pub(crate) fn touch(&mut self, owner: SessionIndex, index: u32) {
        let state = &mut self.sessions[owner];
        let channel = &mut state.channels[index as usize];
        if channel.wiring.is_some() && !channel.touched {
            channel.touched = true;
            self.touched.push(ChannelId { owner: state.id, index });
        }
    }

    /// A channel became receivable: everyone who selects on it looks again.
    pub(crate) fn wake_selectors(&mut self, lane: LaneIndex, session: SessionIndex, index: u32) {
        while let Some(slot) = self.sessions[session].channels[index as usize].selectors.pop() {
            let state = &mut self.sessions[session];
            let Wait::Selecting(places) =
                core::mem::replace(&mut state.tasks.live_at(slot).wait, Wait::None)
            else {
                unreachable!("selectors select")
            };
            let answer =
                places.iter().position(|&(channel, _)| channel == index).unwrap_or(0) as i32;
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
    pub(crate) fn deliver(
        &mut self,
        lane: LaneIndex,
        owner: SessionIndex,
        index: u32,
        message: Message,
    ) {
        self.sessions[owner].channels[index as usize].push(message);
        self.serve_receivers(lane, owner, index);
        self.touch(owner, index);
    }

    /// Gives queued messages to waiting receivers. One that it does not fit is told so, and the
    /// message stays in place.
    fn serve_receivers(&mut self, lane: LaneIndex, owner: SessionIndex, index: u32) {
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
            let Some(&slot) = channel.receivers.front() else { break };
            let (operation, arguments) = pending(state.tasks.coroutine_at(slot));
            let fits = match (message, operation) {
                (Front::Number(_), HostOperation::Recv) => true,
                (Front::Bytes(bytes), HostOperation::RecvBytes) => {
                    bytes.len() as u64 <= u64::from(arguments[2] as u32)
                }
                _ => false,
            };
            let _ = channel.receivers.pop();
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

    /// Direct handoff: the receiver that a send made ready is preferred for the next pick, where
    /// the manifest asks for it.
    pub(crate) fn prefer(&mut self, lane: LaneIndex, owner: SessionIndex, slot: u32) {
        let tasks = &mut self.sessions[owner].tasks;
        if self.shared.handoff && self.lanes[lane].id == tasks.lane_at(slot) {
            // A preference: a taken slot or a held receiver only means that it queues as usual.
            let _ = self.lanes[lane].kernel.prefer(tasks.live_at(slot).kernel);
        }
    }

    /// A receiver made room: waiting senders of this lane enter, first come first; one of another
    /// lane waits for the wave's end.
    pub(crate) fn admit_senders(&mut self, lane: LaneIndex, owner: SessionIndex, index: u32) {
        loop {
            let (wave, lanes) = (self.wave, self.shared.lanes);
            let channel = &mut self.sessions[owner].channels[index as usize];
            let first_is_local = channel.senders.front().is_some_and(|sender| sender.local);
            if !first_is_local || channel.local_room(wave, lanes) == 0 {
                return;
            }
            let Some(mut sender) = channel.senders.pop() else { return };
            let id = ChannelId { owner: self.sessions[owner].id, index };
            let session = self.local[sender.name.session];
            self.sessions[session].note_entered(id, &sender.message);
            if self.sessions[session].entered_call(sender.name.reference.slot, &mut sender.message)
            {
                self.deliver(lane, owner, index, sender.message);
                continue;
            }
            self.deliver(lane, owner, index, sender.message);
            self.answer(
                lane,
                session,
                sender.name.reference.slot,
                Wait::Code(0),
                WakeSource::Channel,
            );
        }
    }

    /// Takes one place of the running lane's credit for a channel of another lane.
    pub(crate) fn take_credit(&mut self, lane: LaneIndex, credit: u32) -> bool {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let lane = &mut self.lanes[lane];
        lane.credits[credit as usize].take(lane.id, wave, lanes)
    }

    /// The channel a coroutine's wait is about, for reports: (owner session, channel number).
    pub(crate) fn waits_on(&self, session: SessionIndex, arguments: &[u64]) -> Option<ChannelId> {
        let state = &self.sessions[session];
        Some(match state.handle(*arguments.first()? as i32)? {
            Handle::Own(index) => ChannelId { owner: state.id, index },
            Handle::Port(port) => state.ports[port as usize].channel,
        })
    }

    /// How many channels a session has, and one of them: for the boundary.
    pub(crate) fn channel(&mut self, id: ChannelId) -> &mut Channel {
        let owner = self.local[id.owner];
        &mut self.sessions[owner].channels[id.index as usize]
    }
}

/// The host call a waiting coroutine is in.
#[inline]
pub(crate) fn pending(coroutine: &Coroutine) -> (HostOperation, [u64; 4]) {
    let given = coroutine.host_arguments();
    let arguments = core::array::from_fn(|at| given.get(at).copied().unwrap_or(0));
    let operation =
        coroutine.host_call().and_then(|call| HostOperation::from_code(call.number as u8));
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
