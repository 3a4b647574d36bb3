//! Calls: a message that waits for its answer, and the time that goes along with it.
//!
//! ```text
//!   caller:    call ──▶ waits in the channel ──▶ waits for the answer ──▶ a number or a code
//!   acceptor:                 accept, serve ──▶ holds a reply object ──▶ reply, serve, or its end
//! ```
//!
//! A call is a message of a channel with a place to answer to. Whoever takes it gets a *reply
//! object*: a handle of its session that belongs to the coroutine which took the call, and answers
//! once. A caller that holds a context lends it to an acceptor on its lane that has none, from the
//! moment the call is taken to the moment it is answered; the acceptor may lend it on. `accept`
//! takes every call; `serve`, the loop of a passive server, answers the last and takes only calls
//! that bring time, so that such a server runs on what it is lent and on nothing else. Nothing is
//! lent across lanes: a call from another lane arrives and is answered at waves' ends, and one to a
//! passive server is refused (`EDENIED`).
//!
//! Contract: every call is answered at most once, by whoever took it; one whose acceptor ends,
//! whose channel's session ends or whose lent time is revoked is answered with a code. An answer
//! names the call, not only its coroutine, so that a late one never ends another wait. Elsewhere:
//! the way of time along the chain (`kernel::context`), the queue itself (`channel`, `host`).

use crate::channel::{Message, WaitingSender};
use crate::group::{Effect, Group, pending};
use crate::host::Region;
use crate::index::{LaneIndex, SessionIndex};
use crate::observe::Chain;
use crate::queue::Front;
use crate::session::{Handle, SessionState};
use crate::step::{Flow, Site};
use crate::task::{EndStatus, Wait};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, Errno, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, Loan, Tag, WakeSource};
use wavelock_trace::Event;

/// Calls that a session can have taken and not answered.
const MOST_REPLIES: usize = 1 << 10;

/// Slots of replies that handles have numbers for.
const MOST_SLOTS: usize = 1 << 16;

/// A slot of this generation is not given out any more: the number of the next handle would be
/// negative.
const LAST_GENERATION: u16 = i16::MAX as u16;

/// Who is to be answered, and in which of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) name: CoroutineName,
    /// The lane it is on; a session that is in a call does not move.
    pub(crate) lane: u16,
    /// The number of the call in its session.
    pub(crate) call: u64,
}

/// A call in a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) caller: Caller,
}

/// A call that was taken and is to be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) caller: Caller,
    /// The coroutine that took it, and alone may answer it.
    pub(crate) acceptor: u32,
    /// What it brought.
    pub(crate) loan: Option<Loan>,
}

/// One slot of a session's table of replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplyEntry {
    pub(crate) generation: u16,
    pub(crate) reply: Option<Reply>,
}

/// What a session whose module can call or be called keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Calls {
    /// Calls it has made.
    pub(crate) made: u64,
    pub(crate) replies: Vec<ReplyEntry>,
    /// What it answered, as an observable.
    pub(crate) answered: Chain,
    /// Its coroutines that wait for an answer. Counted again when a state is read.
    pub(crate) inside: u32,
    /// Slots that can be given out; the lowest is next. Collected again when a state is read.
    pub(crate) free: BTreeSet<u16>,
    /// Open replies by the coroutine that took them. Collected again when a state is read.
    pub(crate) taken: BTreeSet<(u32, u16)>,
}

impl Calls {
    pub(crate) const fn new() -> Self {
        Self {
            made: 0,
            replies: Vec::new(),
            answered: Chain::new(),
            inside: 0,
            free: BTreeSet::new(),
            taken: BTreeSet::new(),
        }
    }

    /// Calls that were taken and not answered.
    pub(crate) fn open(&self) -> usize {
        self.taken.len()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inside == 0 && self.taken.is_empty()
    }

    /// Whether no more calls can be taken: too many are open, or slots whose generations are used
    /// up leave no number for a handle.
    fn is_full(&self) -> bool {
        self.open() >= MOST_REPLIES || self.replies.len() > MOST_SLOTS - MOST_REPLIES
    }

    /// A handle for a call that is taken; the caller has made sure of room.
    fn take(&mut self, reply: Reply) -> i32 {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.replies.push(ReplyEntry { generation: 0, reply: None });
            (self.replies.len() - 1) as u16
        });
        self.taken.insert((reply.acceptor, slot));
        let entry = &mut self.replies[usize::from(slot)];
        entry.reply = Some(reply);
        i32::from(entry.generation) << 16 | i32::from(slot)
    }

    fn get(&self, handle: i32) -> Option<&Reply> {
        let entry = self
            .replies
            .get(handle as usize & 0xffff)
            .filter(|entry| handle >= 0 && i32::from(entry.generation) == handle >> 16);
        entry.and_then(|entry| entry.reply.as_ref())
    }

    /// Takes a reply out: its handle is stale. A slot that used up its generations is not used
    /// again.
    fn close(&mut self, slot: u16) -> Option<Reply> {
        let entry = self.replies.get_mut(usize::from(slot))?;
        let reply = entry.reply.take()?;
        entry.generation += 1;
        if entry.generation < LAST_GENERATION {
            self.free.insert(slot);
        }
        self.taken.remove(&(reply.acceptor, slot));
        Some(reply)
    }

    /// The lowest slot with a call that a coroutine took and did not answer.
    fn first_of(&self, acceptor: u32) -> Option<u16> {
        self.taken.range((acceptor, 0)..=(acceptor, u16::MAX)).next().map(|&(_, slot)| slot)
    }

    /// Collects which slots are free and taken, from the table of a state, which is anybody's.
    /// `false` when no run could have made it.
    pub(crate) fn collect(&mut self) -> bool {
        let slots = || self.replies.iter().zip(0..=u16::MAX);
        let is_free =
            |entry: &ReplyEntry| entry.reply.is_none() && entry.generation < LAST_GENERATION;
        self.free = slots().filter(|(entry, _)| is_free(entry)).map(|(_, slot)| slot).collect();
        self.taken = slots()
            .filter_map(|(entry, slot)| entry.reply.as_ref().map(|reply| (reply.acceptor, slot)))
            .collect();
        let reachable = |entry: &ReplyEntry| {
            entry.generation < LAST_GENERATION + u16::from(entry.reply.is_none())
        };
        self.replies.len() <= MOST_SLOTS
            && self.open() <= MOST_REPLIES
            && self.replies.iter().all(reachable)
    }
}

/// Whether an operation takes calls.
pub(crate) const fn accepts(operation: HostOperation) -> bool {
    matches!(operation, HostOperation::Accept | HostOperation::Serve)
}

/// Eight bytes at a pointer.
const fn word(pointer: u64) -> Region {
    Region { start: pointer as u32, length: 8 }
}

/// Where a coroutine is: indices into the group.
#[derive(Clone, Copy)]
struct At {
    session: SessionIndex,
    slot: u32,
}

/// What guests ask for.
impl Group {
    pub(crate) fn call_operation(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        arguments: [u64; 4],
    ) -> Flow {
        let [first, second, third, fourth] = arguments;
        match operation {
            HostOperation::Call => self.call(place, first as i32, second, third as i64),
            HostOperation::Accept => self.accept_call(place, operation, first as i32, second),
            HostOperation::Serve => {
                self.serve(place, (first as i32, second), third as i32, fourth as i64)
            }
            _ => self.reply(place, first as i32, second as i64),
        }
    }

    /// `call`: the message goes, the caller waits.
    fn call(&mut self, place: Site<'_>, handle: i32, pointer: u64, number: i64) -> Flow {
        let state = &self.sessions[place.session];
        if !state.holds(word(pointer)) {
            return self.bad_pointer(place);
        }
        let lane = self.lanes[place.lane].id;
        let name =
            CoroutineName { session: state.id, reference: state.tasks.reference_at(place.slot) };
        let next = state.calls.as_ref().map_or(0, |calls| calls.made + 1);
        let call = Call { number, caller: Caller { name, lane, call: next } };
        match state.handle(handle) {
            None => self.refuse(place, Errno::Invalid),
            Some(Handle::Own(index)) => {
                let channel = ChannelId { owner: state.id, index };
                self.call_here(place, channel, place.session, call, None)
            }
            Some(Handle::Port(port)) => {
                let (channel, home, closed) = {
                    let port = &state.ports[port as usize];
                    (port.channel, port.home, port.closed)
                };
                if closed {
                    return self.refuse(place, Errno::Closed);
                }
                if lane == home {
                    let owner = self.local[channel.owner];
                    return self.call_here(place, channel, owner, call, Some(port));
                }
                self.call_away(place, channel, home, call, port)
            }
        }
    }

    /// The call is made: it counts, it is recorded, and its caller will wait with `wait`.
    fn calling(&mut self, place: Site<'_>, channel: ChannelId, wait: Wait) -> Flow {
        let on = (u64::from(channel.owner.0), u64::from(channel.index));
        let state = &mut self.sessions[place.session];
        state.messages += 1;
        if let Some(calls) = &mut state.calls {
            calls.made += 1;
            calls.inside += u32::from(matches!(wait, Wait::Reply(_)));
        }
        self.lanes[place.lane].log.event(&Event::Call { owner: on.0, index: on.1 });
        self.wait(place, wait, BlockReason::Reply, on)
    }

    /// A call through a channel of this lane: to a waiting acceptor at once, or into the queue.
    fn call_here(
        &mut self,
        place: Site<'_>,
        id: ChannelId,
        owner: SessionIndex,
        call: Call,
        port: Option<u32>,
    ) -> Flow {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let channel = &self.sessions[owner].channels[id.index as usize];
        if channel.closed {
            return self.refuse(place, Errno::Closed);
        }
        let number = call.caller.call;
        if !channel.senders.is_empty() || channel.local_room(wave, lanes) == 0 {
            let channel = &mut self.sessions[owner].channels[id.index as usize];
            let ticket = channel.ticket();
            let name = call.caller.name;
            channel.push_sender(
                ticket,
                WaitingSender { name, local: true, message: Message::Call(Box::new(call)) },
            );
            self.touch(owner, id.index);
            return self.calling(place, id, Wait::Queued(ticket));
        }
        let from = At { session: place.session, slot: place.slot };
        if channel.queue.is_empty()
            && let Some(to) = self.acceptor(place.lane, owner, id.index)
        {
            let lends = self.may_lend(place.lane, from, to);
            if !lends && self.is_passive(place.lane, to) {
                return self.deny(place, HostOperation::Call, Errno::Denied);
            }
            self.note_call(place.session, port, &call);
            let flow = self.calling(place, id, Wait::Reply(number));
            let _ = self.sessions[owner].channels[id.index as usize].receivers.pop();
            self.touch(owner, id.index);
            let used = self.used(place);
            self.hand_over(place.lane, from, to, (call, lends), used);
            return flow;
        }
        self.note_call(place.session, port, &call);
        let flow = self.calling(place, id, Wait::Reply(number));
        self.sessions[owner].channels[id.index as usize].push(Message::Call(Box::new(call)));
        self.wake_selectors(place.lane, owner, id.index);
        self.touch(owner, id.index);
        flow
    }

    /// A call to another lane: it arrives at the wave's end, and brings no time.
    fn call_away(
        &mut self,
        place: Site<'_>,
        channel: ChannelId,
        home: u16,
        call: Call,
        port: u32,
    ) -> Flow {
        let state = &self.sessions[place.session];
        let own_lane = self.lanes[place.lane].id;
        let at = state.lanes.iter().position(|&lane| lane == own_lane).unwrap_or(0);
        let credit = state.ports[port as usize].credits[at];
        if self.lanes[place.lane].credits[credit as usize].closed {
            return self.refuse(place, Errno::Closed);
        }
        let (sender, number) = (call.caller.name, call.caller.call);
        let (wait, effect) = if self.take_credit(place.lane, credit) {
            self.note_call(place.session, Some(port), &call);
            (
                Wait::Reply(number),
                Effect::Message { channel, message: Message::Call(Box::new(call)) },
            )
        } else {
            (
                Wait::Lane,
                Effect::WaitToSend { channel, sender, message: Message::Call(Box::new(call)) },
            )
        };
        self.lanes[place.lane].post(home, effect);
        self.calling(place, channel, wait)
    }

    fn note_call(&mut self, session: SessionIndex, port: Option<u32>, call: &Call) {
        if let Some(port) = port {
            self.sessions[session].ports[port as usize].sent.add_call(call.number);
        }
    }

    /// `accept`, and the second half of `serve`.
    fn accept_call(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        handle: i32,
        pointer: u64,
    ) -> Flow {
        let index = match self.acceptable(place, operation, handle, pointer) {
            Ok(index) => index,
            Err(Refused::Pointer) => return self.bad_pointer(place),
            Err(Refused::Code(errno)) => return self.refuse(place, errno),
        };
        self.take_call(place, index, pointer as u32)
    }

    /// `serve`: everything is checked, then the last call is answered, then the next is taken.
    fn serve(
        &mut self,
        place: Site<'_>,
        (handle, pointer): (i32, u64),
        reply: i32,
        number: i64,
    ) -> Flow {
        match self.acceptable(place, HostOperation::Serve, handle, pointer) {
            Ok(_) => {}
            Err(Refused::Pointer) => return self.bad_pointer(place),
            Err(Refused::Code(errno)) => return self.deny(place, HostOperation::Serve, errno),
        }
        if reply != -1
            && let Err(errno) = self.answer_reply(place, reply, number)
        {
            return self.deny(place, HostOperation::Serve, errno);
        }
        self.accept_call(place, HostOperation::Serve, handle, pointer)
    }

    /// The channel that a call can be taken from, or why none can.
    fn acceptable(
        &self,
        place: Site<'_>,
        operation: HostOperation,
        handle: i32,
        pointer: u64,
    ) -> Result<u32, Refused> {
        let state = &self.sessions[place.session];
        if !state.holds(word(pointer)) {
            return Err(Refused::Pointer);
        }
        let index = match state.handle(handle) {
            None => return Err(Refused::Code(Errno::Invalid)),
            Some(Handle::Port(_)) => return Err(Refused::Code(Errno::Denied)),
            Some(Handle::Own(index)) => index,
        };
        // Time is lent on one lane: nobody could lend to a server away from where calls arrive.
        if operation == HostOperation::Serve && self.lanes[place.lane].id != state.home() {
            return Err(Refused::Code(Errno::Denied));
        }
        Ok(index)
    }

    /// Takes the first call of a channel, or waits for one. A passive server refuses those that
    /// bring no time on the way.
    fn take_call(&mut self, place: Site<'_>, index: u32, pointer: u32) -> Flow {
        let to = At { session: place.session, slot: place.slot };
        loop {
            let state = &mut self.sessions[place.session];
            let own = u64::from(state.id.0);
            let is_full = state.calls.as_ref().is_none_or(|calls| calls.is_full());
            let channel = &mut state.channels[index as usize];
            let call = match channel.queue.front() {
                None if channel.closed => return self.refuse(place, Errno::Closed),
                None => {
                    let ticket = channel.ticket();
                    channel.receivers.push(ticket, place.slot);
                    return self.wait(
                        place,
                        Wait::Queued(ticket),
                        BlockReason::ChannelReceive,
                        (own, u64::from(index)),
                    );
                }
                Some(Front::Call(_)) if is_full => return self.refuse(place, Errno::Limit),
                Some(Front::Call(call)) => call.clone(),
                Some(_) => return self.refuse(place, Errno::MessageSize),
            };
            let from = self.waiting_caller(place.lane, call.caller);
            let lends = from.is_some_and(|from| self.may_lend(place.lane, from, to));
            let refused = !lends && self.is_passive(place.lane, to);
            let _ = self.sessions[place.session].channels[index as usize].queue.pop_front();
            self.touch(place.session, index);
            if refused {
                self.answer_call(place.lane, call.caller, Wait::Code(Errno::Denied.code()));
                self.admit_senders(place.lane, place.session, index);
                continue;
            }
            let number = call.number;
            let used = self.used(place);
            let loan =
                from.filter(|_| lends).and_then(|from| self.lend(place.lane, from, to, used));
            let handle = self.open_reply(place.lane, to, call.caller, loan);
            self.admit_senders(place.lane, place.session, index);
            // The region was checked and memory never shrinks.
            let _ = self.sessions[place.session].write(pointer, &number.to_le_bytes());
            return self.code(place, handle);
        }
    }

    /// `reply`: answers a call.
    fn reply(&mut self, place: Site<'_>, handle: i32, number: i64) -> Flow {
        match self.answer_reply(place, handle, number) {
            Ok(true) => self.code(place, 0),
            Ok(false) => self.refuse(place, Errno::Stale),
            Err(errno) => self.deny(place, HostOperation::Reply, errno),
        }
    }

    /// Answers the call of a reply object and returns its loan; whether anybody was there to be
    /// answered.
    fn answer_reply(&mut self, place: Site<'_>, handle: i32, number: i64) -> Result<bool, Errno> {
        let used = self.used(place);
        let calls = self.sessions[place.session].calls.as_mut().ok_or(Errno::Stale)?;
        if calls.get(handle).ok_or(Errno::Stale)?.acceptor != place.slot {
            return Err(Errno::Denied);
        }
        let Some(reply) = calls.close(handle as u16) else { return Err(Errno::Stale) };
        calls.answered.add_call(number);
        let answered = self.answer_call(place.lane, reply.caller, Wait::Number(number));
        if let Some(loan) = reply.loan {
            // It may be gone: revoked, or its lender ended.
            let _ = self.lanes[place.lane].kernel.return_loan(loan, used);
            self.settle_contexts(place.lane);
        }
        Ok(answered)
    }
}

/// Why nothing can be taken.
enum Refused {
    Pointer,
    Code(Errno),
}

/// The way of a call and of its time.
impl Group {
    /// The first acceptor that waits at a channel. Receivers before it that take no calls are told
    /// so, as for a message that does not fit; so is an acceptor whose session can take no more.
    fn acceptor(&mut self, lane: LaneIndex, owner: SessionIndex, index: u32) -> Option<At> {
        loop {
            let state = &mut self.sessions[owner];
            let is_full = state.calls.as_ref().is_none_or(|calls| calls.is_full());
            let channel = &mut state.channels[index as usize];
            let slot = *channel.receivers.front()?;
            let (operation, _) = pending(state.tasks.coroutine_at(slot));
            let errno = match accepts(operation) {
                true if !is_full => return Some(At { session: owner, slot }),
                true => Errno::Limit,
                false => Errno::MessageSize,
            };
            let _ = channel.receivers.pop();
            self.answer(lane, owner, slot, Wait::Code(errno.code()), WakeSource::Channel);
        }
    }

    /// Serves acceptors with the call at the head of a channel's queue, whose caller waits already.
    /// `false` when it has to stay there.
    pub(crate) fn serve_call(&mut self, lane: LaneIndex, owner: SessionIndex, index: u32) -> bool {
        let Some(Front::Call(call)) = self.sessions[owner].channels[index as usize].queue.front()
        else {
            return false;
        };
        let call = call.clone();
        let Some(to) = self.acceptor(lane, owner, index) else { return false };
        let from = self.waiting_caller(lane, call.caller);
        let lends = from.is_some_and(|from| self.may_lend(lane, from, to));
        let _ = self.sessions[owner].channels[index as usize].queue.pop_front();
        if !lends && self.is_passive(lane, to) {
            self.answer_call(lane, call.caller, Wait::Code(Errno::Denied.code()));
            return true;
        }
        let _ = self.sessions[owner].channels[index as usize].receivers.pop();
        let from = from.unwrap_or(to);
        self.hand_over(lane, from, to, (call, lends), wavelock_abi::Cycles::ZERO);
        true
    }

    /// A waiting acceptor has a call: it is made ready, with the caller's time if that can be lent.
    fn hand_over(
        &mut self,
        lane: LaneIndex,
        from: At,
        to: At,
        (call, lends): (Call, bool),
        used: wavelock_abi::Cycles,
    ) {
        self.answer(lane, to.session, to.slot, Wait::None, WakeSource::Channel);
        let loan = if lends { self.lend(lane, from, to, used) } else { None };
        let handle = self.open_reply(lane, to, call.caller, loan);
        self.sessions[to.session].tasks.live_at(to.slot).wait =
            Wait::Taken(Box::new((call.number, handle)));
        self.prefer(lane, to.session, to.slot);
    }

    fn open_reply(&mut self, lane: LaneIndex, to: At, caller: Caller, loan: Option<Loan>) -> i32 {
        let state = &mut self.sessions[to.session];
        let session = u64::from(state.id.0);
        self.lanes[lane].log.event(&Event::Accept {
            session,
            slot: u64::from(to.slot),
            caller: u64::from(caller.name.session.0),
            caller_slot: u64::from(caller.name.reference.slot),
        });
        let calls = state.calls.as_mut().expect("only a session that can take calls waits for one");
        calls.take(Reply { caller, acceptor: to.slot, loan })
    }

    /// Where a caller of this lane waits for the answer to this very call.
    fn waiting_caller(&mut self, lane: LaneIndex, caller: Caller) -> Option<At> {
        let session = self.local.get(caller.name.session)?;
        let (tasks, slot) = (&mut self.sessions[session].tasks, caller.name.reference.slot);
        let waits = tasks.live_named(caller.name.reference)?.wait == Wait::Reply(caller.call)
            && tasks.lane_at(slot) == self.lanes[lane].id;
        waits.then_some(At { session, slot })
    }

    /// Whether a caller's context can go to an acceptor.
    fn may_lend(&mut self, lane: LaneIndex, from: At, to: At) -> bool {
        let id = self.lanes[lane].id;
        let ends = [from, to].map(|at| {
            let tasks = &mut self.sessions[at.session].tasks;
            (tasks.lane_at(at.slot) == id).then_some(tasks.live_at(at.slot).kernel)
        });
        let [Some(caller), Some(callee)] = ends else { return false };
        self.lanes[lane].kernel.may_lend(caller, callee).is_ok()
    }

    /// Whether an acceptor takes only calls that bring time: it serves, and has none of its own.
    fn is_passive(&mut self, lane: LaneIndex, to: At) -> bool {
        let (task, coroutine) = self.sessions[to.session].tasks.both_at(to.slot);
        let (operation, _) = pending(coroutine);
        let kernel = task.kernel;
        operation == HostOperation::Serve && self.lanes[lane].kernel.context_of(kernel).is_none()
    }

    fn lend(
        &mut self,
        lane: LaneIndex,
        from: At,
        to: At,
        used: wavelock_abi::Cycles,
    ) -> Option<Loan> {
        let [caller, callee] =
            [from, to].map(|at| self.sessions[at.session].tasks.live_at(at.slot).kernel);
        let loan = self.lanes[lane].kernel.lend_context(caller, callee, used).ok();
        self.settle_contexts(lane);
        loan
    }

    /// What the running coroutine has used of its slice.
    fn used(&mut self, place: Site<'_>) -> wavelock_abi::Cycles {
        self.sessions[place.session].tasks.coroutine_at(place.slot).used() - place.began
    }

    /// Answers a call, on this lane at once and on another at the wave's end. `false` when its
    /// caller is known to wait for it no more.
    pub(crate) fn answer_call(&mut self, lane: LaneIndex, caller: Caller, answer: Wait) -> bool {
        if caller.lane != self.lanes[lane].id {
            let effect = Effect::Answer { caller, answer };
            self.lanes[lane].post(caller.lane, effect);
            return true;
        }
        self.answer_waiting(lane, caller, answer)
    }

    /// Answers a caller of this lane, if it still waits for this. One of another lane may have been
    /// canceled, or told something else, since.
    pub(crate) fn answer_waiting(&mut self, lane: LaneIndex, caller: Caller, answer: Wait) -> bool {
        let Some(at) = self.waiting_caller(lane, caller) else { return false };
        self.note_answer(lane, caller, &answer);
        self.answer(lane, at.session, at.slot, answer, WakeSource::Channel);
        true
    }

    fn note_answer(&mut self, lane: LaneIndex, caller: Caller, answer: &Wait) {
        let code = if let Wait::Code(code) = answer { code.unsigned_abs() } else { 0 };
        let (session, slot) =
            (u64::from(caller.name.session.0), u64::from(caller.name.reference.slot));
        self.lanes[lane].log.event(&Event::Answer { session, slot, code: u64::from(code) });
    }

    /// A coroutine ends: the calls it took and did not answer are answered with how it ended.
    pub(crate) fn drop_replies(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        slot: u32,
        status: EndStatus,
    ) {
        let errno = if status == EndStatus::Faulted { Errno::Faulted } else { Errno::Canceled };
        while let Some(calls) = &mut self.sessions[session].calls
            && let Some(at) = calls.first_of(slot)
            && let Some(reply) = calls.close(at)
        {
            let _ = self.answer_call(lane, reply.caller, Wait::Code(errno.code()));
        }
    }

    /// A session is over: calls that nobody will take any more are answered.
    pub(crate) fn drop_calls(&mut self, lane: LaneIndex, session: SessionIndex) {
        for index in 0..self.sessions[session].channels.len() {
            let queue = &mut self.sessions[session].channels[index].queue;
            if !queue.mixed().any(|message| matches!(message, Message::Call(_))) {
                continue;
            }
            let mut messages = core::mem::take(queue);
            while let Some(message) = messages.pop_front() {
                match message {
                    Message::Call(call) => {
                        let _ =
                            self.answer_call(lane, call.caller, Wait::Code(Errno::Closed.code()));
                    }
                    message => self.sessions[session].channels[index].push(message),
                }
            }
        }
    }

    /// Lenders whose time was revoked: their calls end, newest first.
    pub(crate) fn loans_revoked(&mut self, lane: LaneIndex, lenders: Vec<Tag>) {
        for tag in lenders {
            let session = self.local[SessionId(tag.session())];
            let state = &mut self.sessions[session];
            let Some(task) = state.tasks.live_ref(tag.slot()) else { continue };
            let Wait::Reply(call) = task.wait else { continue };
            let name = CoroutineName {
                session: state.id,
                reference: state.tasks.reference_at(tag.slot()),
            };
            let (caller, answer) = (
                Caller { name, lane: state.tasks.lane_at(tag.slot()), call },
                Wait::Code(Errno::Revoked.code()),
            );
            self.note_answer(lane, caller, &answer);
            self.answer(lane, session, tag.slot(), answer, WakeSource::Channel);
        }
    }

    /// Writes what happened to contexts into the log.
    pub(crate) fn settle_contexts(&mut self, lane: LaneIndex) {
        if self.lanes[lane].kernel.has_context_events() {
            self.lanes[lane].log_contexts();
        }
    }
}

impl SessionState {
    /// Whether the session is in a call, as caller or as who is to answer: then it stays where it
    /// is.
    pub(crate) fn is_in_call(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| !calls.is_quiet())
    }

    /// A message that waited has entered a channel of the lane `lane`'s: if it is a call, its
    /// caller waits for the answer from now on.
    pub(crate) fn entered_call(&mut self, slot: u32, message: &mut Message) -> bool {
        let Message::Call(call) = message else { return false };
        // The session may have moved while the call waited.
        call.caller.lane = self.tasks.lane_at(slot);
        self.tasks.live_at(slot).wait = Wait::Reply(call.caller.call);
        if let Some(calls) = &mut self.calls {
            calls.inside += 1;
        }
        true
    }

    /// A coroutine does not wait for an answer any more.
    pub(crate) fn left_call(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.inside -= 1;
        }
    }

    /// Counts what is under way; for the session of a restored state.
    pub(crate) fn count_calls(&mut self) {
        let Some(calls) = &mut self.calls else { return };
        calls.inside =
            self.tasks.iter_live().filter(|(_, task)| matches!(task.wait, Wait::Reply(_))).count()
                as u32;
    }
}

/// The sessions that a caller names must exist, and its lane too: for states, which are anybody's.
pub(crate) fn is_known(caller: &Caller, sessions: usize, lanes: u16) -> bool {
    let SessionId(session) = caller.name.session;
    (session as usize) < sessions && caller.lane < lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavelock_abi::CoroutineRef;

    fn reply(acceptor: u32) -> Reply {
        let name = CoroutineName { session: SessionId(0), reference: CoroutineRef::new(0, 0) };
        Reply { caller: Caller { name, lane: 0, call: 1 }, acceptor, loan: None }
    }

    #[test]
    fn handles_are_never_given_twice_and_run_out_before_they_would_be() {
        let mut calls = Calls::new();
        let first = calls.take(reply(0));
        assert!(
            calls.close(0).is_some() && calls.get(first).is_none(),
            "an answered call's handle is stale"
        );
        let worn_out = ReplyEntry { generation: LAST_GENERATION, reply: None };
        calls.replies = alloc::vec![worn_out; MOST_SLOTS - MOST_REPLIES];
        assert!(calls.collect() && !calls.is_full());
        let last = calls.take(reply(0));
        assert!(calls.get(last).is_some() && last as usize == MOST_SLOTS - MOST_REPLIES);
        assert!(
            calls.close(last as u16).is_some() && calls.is_full(),
            "no call is taken whose handle could be another's"
        );
    }

    /// A slot found and the replies of a coroutine listed by looking at the whole table, as a
    /// model.
    #[test]
    fn free_slots_and_the_replies_of_a_coroutine_are_those_of_the_whole_table() {
        let mut calls = Calls::new();
        let mut state: u64 = 7;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for turn in 0..20_000 {
            if turn == 10_000 {
                calls
                    .replies
                    .iter_mut()
                    .step_by(3)
                    .for_each(|entry| entry.generation = LAST_GENERATION - 1);
            }
            if draw(2) == 0 && calls.open() < 40 {
                let free = calls
                    .replies
                    .iter()
                    .position(|entry| entry.reply.is_none() && entry.generation < LAST_GENERATION);
                let handle = calls.take(reply(draw(5) as u32));
                assert_eq!(
                    handle & 0xffff,
                    free.unwrap_or(calls.replies.len() - 1) as i32,
                    "the lowest free slot"
                );
            } else {
                let acceptor = draw(5) as u32;
                let of = |calls: &Calls| {
                    calls.replies.iter().position(|entry| {
                        entry.reply.as_ref().is_some_and(|reply| reply.acceptor == acceptor)
                    })
                };
                assert_eq!(
                    calls.first_of(acceptor).map(usize::from),
                    of(&calls),
                    "the lowest reply of the coroutine"
                );
                let _ = calls.first_of(acceptor).map(|slot| calls.close(slot));
            }
            let mut collected = calls.clone();
            assert!(collected.collect() && collected == calls, "a state's table says the same");
        }
    }

    #[test]
    fn a_table_that_no_run_could_have_made_is_not_taken() {
        for (generation, is_open, fits) in [
            (LAST_GENERATION, false, true),
            (LAST_GENERATION - 1, true, true),
            (LAST_GENERATION, true, false),
            (u16::MAX, true, false),
            (u16::MAX, false, false),
        ] {
            let mut calls = Calls::new();
            calls.replies.push(ReplyEntry { generation, reply: is_open.then(|| reply(0)) });
            assert_eq!(calls.collect(), fits, "generation {generation}, open: {is_open}");
        }
    }
}
