//! Host operations that are answered in place, inside the machine's loop: messages of numbers inside a session.
//!
//! A send to, or a receive from, an open and unwired channel of the coroutine's own session changes the channel and at most makes one other coroutine
//! of this lane ready; then the coroutine goes on at once, with the cycles that the wake left it. One that has to wait takes its place in the
//! channel's queue, and its turn is over. One whose turn comes with an answer gets it here too.
//! Everything else is left to `host`, which has the rules in full: what is done here is what `Group::send`, `Group::receive` and
//! `Group::finish_wait` do in these cases (`messages_in_place_are_the_same_run` compares them).

use crate::channel::{Channel, Message, WaitingSender};
use crate::group::LaneState;
use crate::session::Handle;
use crate::task::{TaskTable, Wait};
use wavelock_abi::{CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_machine::{Answer, Host};
use wavelock_trace::Event;

/// What messages inside a session touch while one of its coroutines runs.
pub(crate) struct Direct<'a> {
    pub(crate) session: SessionId,
    pub(crate) handles: &'a [Handle],
    pub(crate) channels: &'a mut [Channel],
    /// The session's coroutines; their stacks are taken out meanwhile.
    pub(crate) tasks: &'a mut TaskTable,
    pub(crate) lane: &'a mut LaneState,
    /// The running coroutine.
    pub(crate) slot: u32,
    pub(crate) host_calls: &'a mut u64,
    pub(crate) messages: &'a mut u64,
    /// The running coroutine waits in a channel's queue from now on, and its slice is over.
    pub(crate) waits: Option<BlockReason>,
}

const SEND: u16 = HostOperation::Send as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
const RECV: u16 = HostOperation::Recv as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;

impl Host for Direct<'_> {
    #[inline(always)]
    fn call(&mut self, number: u16, (first, second): (u64, u64), memory_bytes: u64) -> Answer {
        match number {
            SEND => self.send(first as u32, second as i64, true),
            TRY_SEND => self.send(first as u32, second as i64, false),
            RECV => self.receive(first as u32, second as u32, memory_bytes, true),
            TRY_RECV => self.receive(first as u32, second as u32, memory_bytes, false),
            _ => Answer::Stop,
        }
    }
}

impl Direct<'_> {
    /// The answer of a waiting coroutine whose turn it is; `None` if it is not given here.
    pub(crate) fn answer(&mut self, slot: u32, (_, pointer): (u64, u64), memory_bytes: u64) -> Option<Answer> {
        let wait = &mut self.tasks.live_at(slot).wait;
        let at = pointer as u32;
        let answer = match *wait {
            Wait::None => return Some(Answer::Stop),
            Wait::Number(number) if u64::from(at) + 8 <= memory_bytes => Answer::Number { at, cycles: 0, number: number as u64 },
            Wait::Code(code) => Answer::Result(i64::from(code) as u64),
            _ => return None,
        };
        *wait = Wait::None;
        *self.host_calls += 1;
        Some(answer)
    }

    /// The index of one of the session's own channels, by its handle. A negative handle is larger than any there is.
    #[inline]
    fn own(&self, handle: u32) -> Option<u32> {
        match self.handles.get(handle as usize) {
            Some(&Handle::Own(index)) => Some(index),
            _ => None,
        }
    }

    #[inline(always)]
    fn send(&mut self, handle: u32, number: i64, waits: bool) -> Answer {
        let Some(index) = self.own(handle) else { return Answer::Stop };
        let channel = &mut self.channels[index as usize];
        if !channel.takes_in_place() {
            return if waits { self.wait_to_send(index, number) } else { Answer::Stop };
        }
        if !channel.receivers.is_empty() {
            return self.hand_over(index, number);
        }
        channel.queue.push_back(Message::Number(number));
        self.sent(index);
        Answer::Result(0)
    }

    #[inline]
    fn sent(&mut self, index: u32) {
        *self.host_calls += 1;
        self.log_send(index);
    }

    /// A message counts when it is sent, whether its sender then waits or not.
    #[inline]
    fn log_send(&mut self, index: u32) {
        *self.messages += 1;
        self.lane.log.event(&Event::Send { owner: u64::from(self.session.0), index: u64::from(index) });
    }

    /// The number goes to the first waiting receiver, if it is on this lane and waits for a number; the channel is empty then.
    #[inline(never)]
    fn hand_over(&mut self, index: u32, number: i64) -> Answer {
        let channel = &mut self.channels[index as usize];
        let Some(&slot) = channel.receivers.front() else { return Answer::Stop };
        let task = self.tasks.live_at(slot);
        if task.lane != self.lane.id || !matches!(task.wait, Wait::Taking(_)) || !channel.queue.is_empty() {
            return Answer::Stop;
        }
        let _ = channel.receivers.pop();
        task.wait = Wait::Number(number);
        let reference = task.kernel;
        self.sent(index);
        let cycles = self.wake(slot, reference);
        // Refused at once where the manifest does not ask for it.
        let _ = self.lane.kernel.prefer(reference);
        Answer::Sooner { result: 0, cycles }
    }

    /// Makes another coroutine ready; gives how much sooner the slice ends for it.
    #[inline(always)]
    fn wake(&mut self, slot: u32, reference: CoroutineRef) -> u32 {
        let before = self.lane.kernel.left_in_slice();
        self.lane.wake(self.session, slot, reference, WakeSource::Channel);
        (before - self.lane.kernel.left_in_slice()).0 as u32
    }

    /// The running coroutine takes its place among the senders of a channel that is full, or that others wait to send to.
    #[inline(never)]
    fn wait_to_send(&mut self, index: u32, number: i64) -> Answer {
        let channel = &mut self.channels[index as usize];
        let is_full = channel.queue.len() as u64 >= u64::from(channel.capacity);
        if channel.closed || channel.wiring.is_some() || channel.senders.is_empty() && !is_full {
            return Answer::Stop;
        }
        let slot = self.slot;
        let reference = self.tasks.reference_at(slot);
        let ticket = channel.ticket();
        let name = CoroutineName { session: self.session, reference };
        channel.senders.push(ticket, WaitingSender { name, local: true, message: Message::Number(number) });
        self.log_send(index);
        self.wait(Wait::Queued(ticket), BlockReason::ChannelSend, index)
    }

    /// The running coroutine waits at a channel.
    #[inline]
    fn wait(&mut self, wait: Wait, reason: BlockReason, index: u32) -> Answer {
        self.tasks.live_at(self.slot).wait = wait;
        self.waits = Some(reason);
        self.lane.log.event(&Event::Wait { reason: reason as u64, owner: u64::from(self.session.0), index: u64::from(index) });
        Answer::Wait
    }

    #[inline(always)]
    fn receive(&mut self, handle: u32, at: u32, memory_bytes: u64, waits: bool) -> Answer {
        let Some(index) = self.own(handle) else { return Answer::Stop };
        let channel = &mut self.channels[index as usize];
        if u64::from(at) + 8 > memory_bytes {
            return Answer::Stop;
        }
        let number = match channel.queue.front() {
            Some(&Message::Number(number)) if channel.wiring.is_none() => number as u64,
            None if waits && !channel.closed => {
                let ticket = channel.ticket();
                channel.receivers.push(ticket, self.slot);
                return self.wait(Wait::Taking(ticket), BlockReason::ChannelReceive, index);
            }
            _ => return Answer::Stop,
        };
        if !channel.senders.is_empty() {
            return self.receive_and_admit(index, at, number);
        }
        channel.queue.pop_front();
        self.received(index);
        Answer::Number { at, cycles: 0, number }
    }

    #[inline]
    fn received(&mut self, index: u32) {
        *self.host_calls += 1;
        self.lane.log.event(&Event::Receive { owner: u64::from(self.session.0), index: u64::from(index) });
    }

    /// Takes a number from a full channel, and the first waiting sender's message takes its place, if that sender is on this lane and no caller.
    #[inline(never)]
    fn receive_and_admit(&mut self, index: u32, at: u32, number: u64) -> Answer {
        let channel = &mut self.channels[index as usize];
        let Some(&WaitingSender { name, ref message, .. }) = channel.senders.front() else { return Answer::Stop };
        let (slot, is_call) = (name.reference.slot, matches!(message, Message::Call(_)));
        let task = self.tasks.live_at(slot);
        // A channel that nobody waits to receive from or selects on, and that is full again after this.
        let is_usual =
            channel.queue.len() as u64 == u64::from(channel.capacity) && channel.receivers.is_empty() && channel.selectors.is_empty();
        if !is_usual || is_call || task.lane != self.lane.id {
            return Answer::Stop;
        }
        let Some(sender) = channel.senders.pop() else { return Answer::Stop };
        channel.queue.pop_front();
        channel.queue.push_back(sender.message);
        task.wait = Wait::Code(0);
        let reference = task.kernel;
        self.received(index);
        Answer::Number { at, cycles: self.wake(slot, reference), number }
    }
}
