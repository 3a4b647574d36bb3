//! Host operations that are answered in place, inside the machine's loop: messages that nobody waits for.
//!
//! A send to, or a receive from, a channel of the coroutine's own session that is open and unwired, with room or with a number in it, and with
//! nobody waiting at it, wakes nobody and moves no clock; so the slice's bound stands and the coroutine goes on at once. Everything else is left
//! to `host`, which has the rules in full: what is done here is what `Group::send` and `Group::receive` do in this case.

use crate::channel::{Channel, Message};
use crate::session::Handle;
use wavelock_abi::HostOperation;
use wavelock_machine::{Answer, Host};
use wavelock_trace::{Event, LaneLog};

/// What messages inside a session touch while the session's machine runs.
pub(crate) struct Direct<'a> {
    /// The session's number.
    pub(crate) owner: u32,
    pub(crate) handles: &'a [Handle],
    pub(crate) channels: &'a mut [Channel],
    pub(crate) log: &'a mut LaneLog,
    pub(crate) host_calls: &'a mut u64,
    pub(crate) messages: &'a mut u64,
}

const SEND: u16 = HostOperation::Send as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
const RECV: u16 = HostOperation::Recv as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;

impl Host for Direct<'_> {
    #[inline]
    fn call(&mut self, number: u16, [first, second]: [u64; 2], memory_bytes: u64) -> Answer {
        match number {
            SEND | TRY_SEND => self.send(first as u32, second as i64),
            RECV | TRY_RECV => self.receive(first as u32, second as u32, memory_bytes),
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
        channel.queue.push_back(Message::Number(number));
        *self.host_calls += 1;
        *self.messages += 1;
        self.log.event(&Event::Send { owner: u64::from(self.owner), index: u64::from(index) });
        Answer::Result(0)
    }

    #[inline]
    fn receive(&mut self, handle: u32, at: u32, memory_bytes: u64) -> Answer {
        let Some(index) = self.own(handle) else { return Answer::Stop };
        let channel = &mut self.channels[index as usize];
        let Some(&Message::Number(number)) = channel.queue.front() else { return Answer::Stop };
        if u64::from(at) + 8 > memory_bytes || !channel.gives_in_place() {
            return Answer::Stop;
        }
        channel.queue.pop_front();
        *self.host_calls += 1;
        self.log.event(&Event::Receive { owner: u64::from(self.owner), index: u64::from(index) });
        Answer::Number { at, number: number as u64 }
    }
}
