//! Input: the only thing from outside that a guest can see, recorded and delivered at the start of
//! a frame (semantics 32).

use crate::wait::{Ticket, WaitQueue};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wavelock_abi::{Frame, SessionId};

/// The sessions that get an input event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// One session.
    Session(SessionId),
    /// Every session.
    All,
}

/// One input event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputEvent {
    /// The frame at whose start it is delivered.
    pub frame: Frame,
    /// The sessions that get it.
    pub recipient: Recipient,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// Input events of a session that it did not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnreadInput {
    /// Events that were dropped at the end of their frame. Not part of a snapshot: a resumed run
    /// counts from where it resumed.
    pub dropped: u64,
    /// Events that are still queued, are for a later frame, or came after the session's end.
    pub left: u64,
}

impl UnreadInput {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.dropped + self.left
    }
}

/// The input of one session that it has not read.
///
/// `input` takes whole events of the current frame; `fd_read` reads the same events as a stream.
/// The two share one cursor. A session that has called `fd_read`, or does not import `input`, keeps
/// unread events over frame ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputQueue {
    pub(crate) events: VecDeque<Box<[u8]>>,
    /// Bytes of the first event that `fd_read` has taken.
    pub(crate) read: usize,
    /// Events for this session that are not delivered yet. At 0, a stream is at its end.
    pub(crate) coming: u64,
    /// The session reads its input as a stream.
    pub(crate) stream: bool,
    /// Coroutines that wait in `fd_read`, first come first.
    pub(crate) waiting: WaitQueue<u32>,
    pub(crate) next_ticket: u64,
    /// Events dropped at frame ends since the machine was loaded or restored. Not state.
    pub(crate) dropped: u64,
}

impl InputQueue {
    pub(crate) fn new(coming: u64, stream: bool) -> Self {
        Self { coming, stream, ..Self::default() }
    }

    pub(crate) fn deliver(&mut self, bytes: Box<[u8]>) {
        self.coming -= 1;
        self.events.push_back(bytes);
    }

    /// No event will be delivered any more.
    pub(crate) const fn finished(&self) -> bool {
        self.coming == 0
    }

    /// A coroutine waits for the next event.
    pub(crate) fn wait(&mut self, slot: u32) -> Ticket {
        self.next_ticket += 1;
        self.waiting.push(Ticket(self.next_ticket), slot);
        Ticket(self.next_ticket)
    }

    /// The event that `input` would take next.
    pub(crate) fn next_event(&self) -> Option<&[u8]> {
        self.events.front().map(|event| &event[self.read..])
    }

    pub(crate) fn take_event(&mut self) {
        self.events.pop_front();
        self.read = 0;
    }

    /// Bytes that `fd_read` could read now.
    pub(crate) fn available(&self) -> usize {
        self.events.iter().map(|event| event.len()).sum::<usize>() - self.read
    }

    /// Reads up to `out.len()` bytes of the stream.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let Some(event) = self.events.front() else { break };
            let rest = &event[self.read..];
            let take = rest.len().min(out.len() - done);
            out[done..done + take].copy_from_slice(&rest[..take]);
            done += take;
            self.read += take;
            if self.read == event.len() {
                self.take_event();
            }
        }
        done
    }

    /// The frame ended: unread events are dropped, unless the session reads a stream. Returns their
    /// number.
    pub(crate) fn end_frame(&mut self) -> u64 {
        if self.stream {
            return 0;
        }
        let dropped = self.events.len() as u64;
        self.events.clear();
        self.read = 0;
        self.dropped += dropped;
        dropped
    }

    pub(crate) fn unread(&self) -> UnreadInput {
        UnreadInput { dropped: self.dropped, left: self.events.len() as u64 + self.coming }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_crosses_event_borders_and_keeps_the_rest() {
        let mut queue = InputQueue::new(2, true);
        queue.deliver(b"hello ".as_slice().into());
        queue.deliver(b"world".as_slice().into());
        let mut out = [0; 8];
        assert_eq!((queue.available(), queue.read(&mut out)), (11, 8));
        assert_eq!(&out, b"hello wo");
        assert!(queue.finished());
        assert_eq!(queue.end_frame(), 0);
        assert_eq!((queue.available(), queue.read(&mut out)), (3, 3));
        assert_eq!(queue.available(), 0);
    }

    #[test]
    fn unread_events_are_dropped_and_counted() {
        let mut queue = InputQueue::new(3, false);
        queue.deliver(b"a".as_slice().into());
        queue.deliver(b"b".as_slice().into());
        assert_eq!(queue.next_event(), Some(b"a".as_slice()));
        queue.take_event();
        assert_eq!(queue.end_frame(), 1);
        assert_eq!(queue.next_event(), None);
        assert!(!queue.finished());
        assert_eq!(queue.unread(), UnreadInput { dropped: 1, left: 1 });
    }
}
