//! Calls: a message that waits for its answer, and the context that is lent along with it.
//!
//! ```text
//!   caller:    call ──▶ waits in the channel ──▶ waits for the answer ──▶ a number or a code
//!   acceptor:                 accept, serve ──▶ holds a reply object ──▶ reply, serve, or its end
//! ```
//!
//! A call is a message of a channel that names its caller. The coroutine that takes it gets a
//! *reply object*: a handle of its session, which only that coroutine may answer, once. A caller
//! that holds a context lends it to an acceptor on its lane that has none, from the moment the call
//! is taken until it is answered; the acceptor may lend it on. `accept` takes every call. `serve`,
//! the loop of a passive server, answers the last call and takes only calls that bring a context,
//! so that such a server runs on lent time alone. Nothing is lent across lanes: a call from another
//! lane arrives and is answered at waves' ends, and one to a passive server is refused (`EDENIED`).
//!
//! Contract: every call is answered at most once, by the coroutine that took it; a call whose
//! acceptor ends, whose channel's session ends or whose lent context is revoked is answered with a
//! code. An answer names the call, not only its coroutine, so that a late one never ends another
//! wait. Elsewhere: how lent time is charged (`kernel::context`), sending (`host`), the queue
//! (`channel`).

use crate::channel::Message;
use crate::group::{Effect, Group, pending};
use crate::host::{Done, HostResult, Refused, Region, Route, Target};
use crate::index::{ChannelIndex, LaneIndex, SessionIndex, TaskIndex};
use crate::observe::Chain;
use crate::queue::Front;
use crate::session::SessionState;
use crate::step::Site;
use crate::task::{EndStatus, Wait};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineName, Cycles, Errno, HostOperation as Op, SessionId};
use wavelock_kernel::{BlockReason, Loan, Tag, WakeSource};
use wavelock_trace::Event;

/// Calls that a session can have taken and not answered.
const MOST_REPLIES: usize = 1 << 10;

/// Slots of replies that handles have numbers for.
const MOST_SLOTS: usize = 1 << 16;

/// A slot of this generation is not given out any more: the number of the next handle would be
/// negative.
const LAST_GENERATION: u16 = i16::MAX as u16;

/// The coroutine to answer, and in which of its calls.
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
    /// The slot of the coroutine that took it, and alone may answer it.
    pub(crate) acceptor: u32,
    /// The context that came with it.
    pub(crate) loan: Option<Loan>,
}

/// One slot of a session's table of replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplyEntry {
    pub(crate) generation: u16,
    pub(crate) reply: Option<Reply>,
}

/// The calls of a session whose module can call or be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Calls {
    /// Calls it has made.
    pub(crate) made: u64,
    pub(crate) replies: Vec<ReplyEntry>,
    /// What it answered, as an observable.
    pub(crate) answered: Chain,
    /// Its coroutines that wait for an answer. Recounted when a state is read.
    pub(crate) inside: u32,
    /// Slots that can be given out; the lowest is next. Recomputed when a state is read.
    pub(crate) free: BTreeSet<u16>,
    /// Open replies by the coroutine that took them. Recomputed when a state is read.
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

    /// Whether no more calls can be taken: too many are open, or slots whose generations are used
    /// up leave no number for a handle.
    fn is_full(&self) -> bool {
        self.open() >= MOST_REPLIES || self.replies.len() > MOST_SLOTS - MOST_REPLIES
    }

    /// A handle for a call that is taken. The table must not be full.
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

    /// Recomputes `free` and `taken` from the table of an untrusted state. `false` when no run
    /// could have made it.
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

/// Host operations.
impl Group {
    pub(crate) fn call_operation(
        &mut self,
        site: Site<'_>,
        operation: Op,
        [first, second, third, fourth]: [u64; 4],
    ) -> HostResult {
        match operation {
            Op::Call => self.call(site, first as i32, second, third as i64),
            Op::Accept => {
                let at = self.acceptable(site, first as i32, second)?;
                self.take_call(site, at, second as u32)
            }
            Op::Serve => {
                let reply = (third as i32, fourth as i64);
                self.serve(site, first as i32, second, reply)
            }
            _ => match self.answer_reply(site, first as i32, second as i64) {
                Ok(true) => Ok(Done::code(0)),
                Ok(false) => Err(Errno::Stale.into()),
                Err(errno) => Err(Refused::from(errno).denied()),
            },
        }
    }

    /// `call`: to a waiting acceptor of this lane at once, or as any message.
    fn call(&mut self, site: Site<'_>, handle: i32, pointer: u64, number: i64) -> HostResult {
        let state = &self.sessions[site.session];
        state.bytes(Region::word(pointer))?;
        let (name, lane) = (state.coroutine_name(site.slot), self.lanes[site.lane].id);
        let call = state.calls.as_ref().map_or(0, |calls| calls.made + 1);
        let call = Call { number, caller: Caller { name, lane, call } };
        let route = self.route(site, handle)?;
        let has_room = self.has_room(site, route.target);
        if let Target::Here(at) = route.target
            && has_room
            && self.sessions[at].queue.is_empty()
            && let Some(to) = self.acceptor(site.lane, at)
        {
            return self.call_acceptor(site, route, at, to, call);
        }
        self.send_on(site, route, Message::Call(Box::new(call)), has_room)
    }

    /// A call that is taken as it is made.
    fn call_acceptor(
        &mut self,
        site: Site<'_>,
        route: Route,
        at: ChannelIndex,
        to: TaskIndex,
        call: Call,
    ) -> HostResult {
        let lends = self.may_lend(site.lane, site.task(), to);
        if !lends && self.is_passive(site.lane, to) {
            return Err(Refused::from(Errno::Denied).denied());
        }
        let (owner, index) = crate::host::event_fields(route.id);
        let state = &mut self.sessions[site.session];
        if let Some(port) = route.port {
            state.ports[port as usize].sent.add_call(call.number);
        }
        state.messages += 1;
        state.made_call(true);
        self.lanes[site.lane].log.event(&Event::Call { owner, index });
        let wait = Wait::Reply(call.caller.call);
        let done = self.wait(site, wait, BlockReason::Reply, (owner, index));
        let _ = self.sessions[at].receivers.pop();
        self.touch(at);
        let lender = lends.then(|| (site.task(), self.used(site)));
        self.hand_over(site.lane, to, call, lender);
        done
    }

    /// `serve`: everything is checked, then the last call is answered, then the next is taken.
    fn serve(
        &mut self,
        site: Site<'_>,
        handle: i32,
        pointer: u64,
        (reply, number): (i32, i64),
    ) -> HostResult {
        let at = self.acceptable(site, handle, pointer);
        let at = at.map_err(Refused::denied)?;
        if reply != -1 {
            let answered = self.answer_reply(site, reply, number);
            let _ = answered.map_err(|errno| Refused::from(errno).denied())?;
        }
        self.take_call(site, at, pointer as u32)
    }

    /// The channel that a call can be taken from.
    fn acceptable(
        &mut self,
        site: Site<'_>,
        handle: i32,
        pointer: u64,
    ) -> Result<ChannelIndex, Refused> {
        let state = &mut self.sessions[site.session];
        let (operation, _) = pending(state.tasks.coroutine_at(site.slot));
        state.bytes(Region::word(pointer))?;
        let index = state.own_channel(handle)?;
        // Contexts are lent on one lane: none can be lent to a server away from where calls arrive.
        if operation == Op::Serve && self.lanes[site.lane].id != state.home() {
            return Err(Errno::Denied.into());
        }
        Ok(ChannelIndex { owner: site.session, index })
    }

    /// Takes the first call of a channel, or waits for one. A passive server refuses the calls
    /// before it that bring no context.
    fn take_call(&mut self, site: Site<'_>, at: ChannelIndex, pointer: u32) -> HostResult {
        let to = site.task();
        loop {
            let state = &mut self.sessions[site.session];
            let on = (u64::from(state.id.0), u64::from(at.index));
            let is_full = state.calls.as_ref().is_none_or(|calls| calls.is_full());
            let channel = &mut state.channels[at.index as usize];
            let call = match channel.queue.front() {
                None if channel.closed => return Err(Errno::Closed.into()),
                None => {
                    let ticket = channel.ticket();
                    channel.receivers.push(ticket, site.slot);
                    let wait = Wait::Queued(ticket);
                    return self.wait(site, wait, BlockReason::ChannelReceive, on);
                }
                Some(Front::Call(_)) if is_full => return Err(Errno::Limit.into()),
                Some(Front::Call(call)) => call.clone(),
                Some(_) => return Err(Errno::MessageSize.into()),
            };
            let lender = self.lender(site.lane, &call, to);
            let is_refused = lender.is_none() && self.is_passive(site.lane, to);
            let _ = self.sessions[at].queue.pop_front();
            self.touch(at);
            if is_refused {
                self.answer_call(site.lane, call.caller, Wait::refused(Errno::Denied));
                self.admit_senders(site.lane, at);
                continue;
            }
            let used = self.used(site);
            let loan = lender.and_then(|from| self.lend(site.lane, from, to, used));
            let handle = self.open_reply(site.lane, to, call.caller, loan);
            self.admit_senders(site.lane, at);
            self.sessions[site.session].write_checked(pointer, &call.number.to_le_bytes());
            return Ok(Done::code(handle));
        }
    }

    /// Answers the call of a reply object and returns its loan. `false` when the caller no longer
    /// waits for it.
    fn answer_reply(&mut self, site: Site<'_>, handle: i32, number: i64) -> Result<bool, Errno> {
        let used = self.used(site);
        let calls = self.sessions[site.session].calls.as_mut().ok_or(Errno::Stale)?;
        if calls.get(handle).ok_or(Errno::Stale)?.acceptor != site.slot {
            return Err(Errno::Denied);
        }
        let reply = calls.close(handle as u16).ok_or(Errno::Stale)?;
        calls.answered.add_call(number);
        let is_answered = self.answer_call(site.lane, reply.caller, Wait::Number(number));
        if let Some(loan) = reply.loan {
            // The loan may have ended before: revoked, or its lender ended.
            let lane = &mut self.lanes[site.lane];
            let _ = lane.kernel.return_loan(loan, used);
            lane.log_context_events();
        }
        Ok(is_answered)
    }
}

/// From a call to its acceptor.
impl Group {
    /// The first acceptor that waits at a channel. Receivers before it that take no calls get the
    /// code for a message that does not fit; an acceptor whose session can take no more gets
    /// `ELIMIT`.
    fn acceptor(&mut self, lane: LaneIndex, at: ChannelIndex) -> Option<TaskIndex> {
        loop {
            let state = &mut self.sessions[at.owner];
            let is_full = state.calls.as_ref().is_none_or(|calls| calls.is_full());
            let channel = &mut state.channels[at.index as usize];
            let slot = *channel.receivers.front()?;
            let (operation, _) = pending(state.tasks.coroutine_at(slot));
            let task = TaskIndex { session: at.owner, slot };
            let errno = match operation {
                Op::Accept | Op::Serve if !is_full => return Some(task),
                Op::Accept | Op::Serve => Errno::Limit,
                _ => Errno::MessageSize,
            };
            let _ = channel.receivers.pop();
            self.answer(lane, task, Wait::refused(errno), WakeSource::Channel);
        }
    }

    /// Gives the call at the head of a channel's queue to a waiting acceptor. `false` when it has
    /// to stay there.
    pub(crate) fn serve_call(&mut self, lane: LaneIndex, at: ChannelIndex) -> bool {
        let Some(Front::Call(call)) = self.sessions[at].queue.front() else { return false };
        let call = call.clone();
        let Some(to) = self.acceptor(lane, at) else { return false };
        let lender = self.lender(lane, &call, to);
        let _ = self.sessions[at].queue.pop_front();
        if lender.is_none() && self.is_passive(lane, to) {
            self.answer_call(lane, call.caller, Wait::refused(Errno::Denied));
            return true;
        }
        let _ = self.sessions[at].receivers.pop();
        self.hand_over(lane, to, call, lender.map(|from| (from, Cycles::ZERO)));
        true
    }

    /// A waiting acceptor gets a call: it is made ready, with the caller's context if that is lent.
    fn hand_over(
        &mut self,
        lane: LaneIndex,
        to: TaskIndex,
        call: Call,
        lender: Option<(TaskIndex, Cycles)>,
    ) {
        self.answer(lane, to, Wait::None, WakeSource::Channel);
        let loan = lender.and_then(|(from, used)| self.lend(lane, from, to, used));
        let handle = self.open_reply(lane, to, call.caller, loan);
        self.sessions[to.session].tasks.live_at(to.slot).wait =
            Wait::Taken(Box::new((call.number, handle)));
        self.prefer(lane, to);
    }

    fn open_reply(
        &mut self,
        lane: LaneIndex,
        to: TaskIndex,
        caller: Caller,
        loan: Option<Loan>,
    ) -> i32 {
        let state = &mut self.sessions[to.session];
        self.lanes[lane].log.event(&Event::Accept {
            session: u64::from(state.id.0),
            slot: u64::from(to.slot),
            caller: u64::from(caller.name.session.0),
            caller_slot: u64::from(caller.name.reference.slot),
        });
        let calls = state.calls.as_mut().expect("only a session that can take calls waits for one");
        calls.take(Reply { caller, acceptor: to.slot, loan })
    }

    /// A caller of this lane that waits for the answer to this call.
    fn waiting_caller(&mut self, lane: LaneIndex, caller: Caller) -> Option<TaskIndex> {
        let session = self.local.get(caller.name.session)?;
        let (tasks, slot) = (&mut self.sessions[session].tasks, caller.name.reference.slot);
        let waits = tasks.live_named(caller.name.reference)?.wait == Wait::Reply(caller.call)
            && tasks.lane_at(slot) == self.lanes[lane].id;
        waits.then_some(TaskIndex { session, slot })
    }

    /// The caller of a queued call, if it lends its context to the acceptor.
    fn lender(&mut self, lane: LaneIndex, call: &Call, to: TaskIndex) -> Option<TaskIndex> {
        let from = self.waiting_caller(lane, call.caller)?;
        self.may_lend(lane, from, to).then_some(from)
    }

    /// Whether a caller's context can go to an acceptor.
    fn may_lend(&mut self, lane: LaneIndex, from: TaskIndex, to: TaskIndex) -> bool {
        let id = self.lanes[lane].id;
        let ends = [from, to].map(|at| {
            let tasks = &mut self.sessions[at.session].tasks;
            (tasks.lane_at(at.slot) == id).then_some(tasks.live_at(at.slot).kernel)
        });
        let [Some(caller), Some(callee)] = ends else { return false };
        self.lanes[lane].kernel.may_lend(caller, callee).is_ok()
    }

    /// Whether an acceptor takes only calls that bring a context: it serves, and has none itself.
    fn is_passive(&mut self, lane: LaneIndex, to: TaskIndex) -> bool {
        let (task, coroutine) = self.sessions[to.session].tasks.both_at(to.slot);
        pending(coroutine).0 == Op::Serve
            && self.lanes[lane].kernel.context_of(task.kernel).is_none()
    }

    fn lend(
        &mut self,
        lane: LaneIndex,
        from: TaskIndex,
        to: TaskIndex,
        used: Cycles,
    ) -> Option<Loan> {
        let [caller, callee] =
            [from, to].map(|at| self.sessions[at.session].tasks.live_at(at.slot).kernel);
        let lane = &mut self.lanes[lane];
        let loan = lane.kernel.lend_context(caller, callee, used).ok();
        lane.log_context_events();
        loan
    }
}

/// Answers.
impl Group {
    /// Answers a call, on this lane at once and on another at the wave's end. `false` when its
    /// caller no longer waits for it.
    pub(crate) fn answer_call(&mut self, lane: LaneIndex, caller: Caller, answer: Wait) -> bool {
        if caller.lane == self.lanes[lane].id {
            return self.answer_waiting(lane, caller, answer);
        }
        self.lanes[lane].post(caller.lane, Effect::Answer { caller, answer });
        true
    }

    /// Answers a caller of this lane, if it still waits for this call.
    pub(crate) fn answer_waiting(&mut self, lane: LaneIndex, caller: Caller, answer: Wait) -> bool {
        let Some(at) = self.waiting_caller(lane, caller) else { return false };
        self.answer_caller(lane, at, answer);
        true
    }

    fn answer_caller(&mut self, lane: LaneIndex, at: TaskIndex, answer: Wait) {
        let code = if let Wait::Code(code) = answer { code.unsigned_abs() } else { 0 };
        let (session, slot) = (u64::from(self.sessions[at.session].id.0), u64::from(at.slot));
        self.lanes[lane].log.event(&Event::Answer { session, slot, code: u64::from(code) });
        self.answer(lane, at, answer, WakeSource::Channel);
    }

    /// A coroutine ends: the calls it took and did not answer get a code.
    pub(crate) fn drop_replies(&mut self, lane: LaneIndex, at: TaskIndex, status: EndStatus) {
        let errno = if status == EndStatus::Faulted { Errno::Faulted } else { Errno::Canceled };
        while let Some(calls) = &mut self.sessions[at.session].calls
            && let Some(slot) = calls.first_of(at.slot)
            && let Some(reply) = calls.close(slot)
        {
            let _ = self.answer_call(lane, reply.caller, Wait::refused(errno));
        }
    }

    /// A session is over: calls that were not taken get a code.
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
                        self.answer_call(lane, call.caller, Wait::refused(Errno::Closed));
                    }
                    message => self.sessions[session].channels[index].push(message),
                }
            }
        }
    }

    /// Lenders whose context was revoked: their calls end, newest first.
    pub(crate) fn loans_revoked(&mut self, lane: LaneIndex, lenders: Vec<Tag>) {
        for tag in lenders {
            let session = self.local[SessionId(tag.session())];
            let task = self.sessions[session].tasks.live_ref(tag.slot());
            if task.is_some_and(|task| matches!(task.wait, Wait::Reply(_))) {
                let at = TaskIndex { session, slot: tag.slot() };
                self.answer_caller(lane, at, Wait::refused(Errno::Revoked));
            }
        }
    }
}

impl SessionState {
    /// Whether the session is in a call, as caller or acceptor: then it does not move.
    pub(crate) fn is_in_call(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.inside > 0 || !calls.taken.is_empty())
    }

    /// One of its coroutines made a call, and waits for the answer if the call `arrived`.
    pub(crate) fn made_call(&mut self, arrived: bool) {
        if let Some(calls) = &mut self.calls {
            calls.made += 1;
            calls.inside += u32::from(arrived);
        }
    }

    /// A message of its coroutine `slot` that waited has entered a channel. If it is a call
    /// (`true`), the caller waits for the answer from now on.
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

    /// One of its coroutines does not wait for an answer any more.
    pub(crate) fn left_call(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.inside -= 1;
        }
    }

    /// Recounts the coroutines that wait for an answer, in a restored session.
    pub(crate) fn count_calls(&mut self) {
        let Some(calls) = &mut self.calls else { return };
        let waiting =
            self.tasks.iter_live().filter(|(_, task)| matches!(task.wait, Wait::Reply(_)));
        calls.inside = waiting.count() as u32;
    }
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
            assert!(collected.collect() && collected == calls, "recomputed from a state's table");
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
