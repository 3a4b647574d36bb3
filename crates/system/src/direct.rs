//! Host operations that are answered in place, inside the machine's loop: messages inside a session.
//!
//! A send to, or a receive from, a channel of the coroutine's own session that is open and unwired, with room or with a number in it, changes
//! the channel and at most makes one receiver of this lane ready; the coroutine goes on at once, with the cycles that the wake left it. A receive
//! from an empty one takes its place in the queue, and the caller ends the slice.
//! Everything else is left to `host`, which has the rules in full: what is done here is what `Group::send` and `Group::receive` do in these cases.

use crate::channel::{Channel, Message};
use crate::group::LaneState;
use crate::session::Handle;
use crate::task::{Others, Wait};
use crate::wait::Ticket;
use wavelock_abi::{HostOperation, SessionId};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_machine::{Answer, Host};
use wavelock_trace::Event;

/// What messages inside a session touch while one of its coroutines runs.
pub(crate) struct Direct<'a> {
    pub(crate) session: SessionId,
    pub(crate) handles: &'a [Handle],
    pub(crate) channels: &'a mut [Channel],
    /// The other coroutines, where they are at hand: a send that makes one of them ready is left to `host` where they are not.
    pub(crate) others: Option<Others<'a>>,
    pub(crate) lane: &'a mut LaneState,
    /// The running coroutine.
    pub(crate) slot: u32,
    pub(crate) host_calls: &'a mut u64,
    pub(crate) messages: &'a mut u64,
    /// The running coroutine stands in a channel's queue of receivers from now on: its call stops, and its slice with it.
    pub(crate) waits: Option<Ticket>,
}

const SEND: u16 = HostOperation::Send as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
const RECV: u16 = HostOperation::Recv as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;

impl Host for Direct<'_> {
    fn call(&mut self, number: u16, [first, second]: [u64; 2], memory_bytes: u64) -> Answer {
        match number {
            SEND | TRY_SEND => self.send(first as u32, second as i64),
            RECV => self.receive(first as u32, second as u32, memory_bytes, true),
            TRY_RECV => self.receive(first as u32, second as u32, memory_bytes, false),
            _ => Answer::Stop,
        }
    }
}

impl Direct<'_> {
    /// The index of one of the session's own channels, by its handle. A negative handle is larger than any there is.
    #[inline]
    fn own(&self, handle: u32) -> Option<u32> {
        match self.handles.get(handle as usize) {
            Some(&Handle::Own(index)) => Some(index),
            _ => None,
        }
    }

    #[inline]
    fn send(&mut self, handle: u32, number: i64) -> Answer {
        let Some(index) = self.own(handle) else { return Answer::Stop };
        let channel = &mut self.channels[index as usize];
        if !channel.takes_in_place() {
            return Answer::Stop;
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
        *self.messages += 1;
        self.lane.log.event(&Event::Send { owner: u64::from(self.session.0), index: u64::from(index) });
    }

    /// The number goes to the first waiting receiver, if it is on this lane and waits for a number; the channel is empty then.
    #[inline]
    fn hand_over(&mut self, index: u32, number: i64) -> Answer {
        let channel = &mut self.channels[index as usize];
        let Some(&slot) = channel.receivers.front() else { return Answer::Stop };
        let Some(others) = &mut self.others else { return Answer::Stop };
        let task = others.live_at(slot);
        if task.lane != self.lane.id || !task.receives_number() || !channel.queue.is_empty() {
            return Answer::Stop;
        }
        let _ = channel.receivers.pop();
        task.wait = Wait::Number(number);
        let reference = task.kernel;
        self.sent(index);
        let before = self.lane.kernel.left_in_slice();
        self.lane.wake(self.session, slot, reference, WakeSource::Channel);
        // Refused at once where the manifest does not ask for it.
        let _ = self.lane.kernel.prefer(reference);
        let after = self.lane.kernel.left_in_slice();
        Answer::Sooner { result: 0, cycles: (before - after).0 as u32 }
    }

    #[inline]
    fn receive(&mut self, handle: u32, at: u32, memory_bytes: u64, waits: bool) -> Answer {
        let Some(index) = self.own(handle) else { return Answer::Stop };
        let channel = &mut self.channels[index as usize];
        if u64::from(at) + 8 > memory_bytes {
            return Answer::Stop;
        }
        let number = match channel.queue.front() {
            Some(&Message::Number(number)) if channel.gives_in_place() => number,
            None if waits && !channel.closed => {
                let ticket = channel.ticket();
                channel.receivers.push(ticket, self.slot);
                self.waits = Some(ticket);
                let (reason, owner) = (BlockReason::ChannelReceive as u64, u64::from(self.session.0));
                self.lane.log.event(&Event::Wait { reason, owner, index: u64::from(index) });
                return Answer::Stop;
            }
            _ => return Answer::Stop,
        };
        channel.queue.pop_front();
        *self.host_calls += 1;
        self.lane.log.event(&Event::Receive { owner: u64::from(self.session.0), index: u64::from(index) });
        Answer::Number { at, number: number as u64 }
    }
}
