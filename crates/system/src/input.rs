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

/// Input of a session that is not delivered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coming {
    /// This many events, of a machine that is not live. At 0, a stream is at its end.
    Known(u64),
    /// Any number of events, of a live machine.
    Open,
    /// A live machine was told that none will come.
    Ended,
}

impl Default for Coming {
    fn default() -> Self {
        Self::Known(0)
    }
}

/// What happens to unread events at the end of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Unread {
    /// They are dropped.
    #[default]
    Dropped = 0,
    /// They are kept: the session reads its input as a stream.
    Kept = 1,
    /// They are kept until the next is taken, which is what a replaced session begins with.
    KeptUntilTaken = 2,
}

impl Unread {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Dropped),
            1 => Some(Self::Kept),
            2 => Some(Self::KeptUntilTaken),
            _ => None,
        }
    }

    const fn of(is_stream: bool) -> Self {
        if is_stream { Self::Kept } else { Self::Dropped }
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
    /// What is not delivered yet.
    pub(crate) coming: Coming,
    /// Bytes of `events`. Not state: it follows from them.
    pub(crate) held: u64,
    /// What happens to `events` at the end of a frame.
    pub(crate) unread: Unread,
    /// Coroutines that wait in `fd_read`, first come first.
    pub(crate) waiting: WaitQueue<u32>,
    pub(crate) next_ticket: u64,
    /// Events dropped at frame ends since the machine was loaded or restored. Not state.
    pub(crate) dropped: u64,
}

impl InputQueue {
    pub(crate) fn new(coming: Coming, is_stream: bool) -> Self {
        Self { coming, unread: Unread::of(is_stream), ..Self::default() }
    }

    /// The input of a session that begins anew with these bytes: they come before what was not
    /// read. The rest of an event that was read in part is dropped; returns how many were.
    pub(crate) fn begin_anew(&mut self, carry: &[u8], is_stream: bool) -> u64 {
        let dropped = u64::from(self.read > 0);
        if dropped > 0 {
            self.take_event();
        }
        self.dropped += dropped;
        self.unread = Unread::of(is_stream);
        if !carry.is_empty() {
            self.held += carry.len() as u64;
            self.events.push_front(carry.into());
            if !is_stream {
                self.unread = Unread::KeptUntilTaken;
            }
        }
        dropped
    }

    pub(crate) fn deliver(&mut self, bytes: Box<[u8]>) {
        if let Coming::Known(events) = &mut self.coming {
            *events -= 1;
        }
        self.held += bytes.len() as u64;
        self.events.push_back(bytes);
    }

    /// Whether an event of this many bytes may be delivered: none after the end, nor beyond what
    /// may be kept unread.
    pub(crate) fn has_room(&self, bytes: usize, most_events: usize, most_bytes: u64) -> bool {
        self.coming != Coming::Ended
            && self.events.len() < most_events
            && self.held + bytes as u64 <= most_bytes
    }

    /// No event will come any more.
    pub(crate) const fn end(&mut self) {
        self.coming = Coming::Ended;
    }

    /// No event will be delivered any more.
    pub(crate) const fn finished(&self) -> bool {
        matches!(self.coming, Coming::Known(0) | Coming::Ended)
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
        if let Some(event) = self.events.pop_front() {
            self.held -= event.len() as u64;
        }
        if self.unread == Unread::KeptUntilTaken {
            self.unread = Unread::Dropped;
        }
        self.read = 0;
    }

    /// Bytes that `fd_read` could read now.
    pub(crate) const fn available(&self) -> usize {
        self.held as usize - self.read
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
        if self.unread != Unread::Dropped {
            return 0;
        }
        let dropped = self.events.len() as u64;
        self.events.clear();
        (self.held, self.read) = (0, 0);
        self.dropped += dropped;
        dropped
    }

    pub(crate) fn unread(&self) -> UnreadInput {
        let coming = if let Coming::Known(events) = self.coming { events } else { 0 };
        UnreadInput { dropped: self.dropped, left: self.events.len() as u64 + coming }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_crosses_event_borders_and_keeps_the_rest() {
        let mut queue = InputQueue::new(Coming::Known(2), true);
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
        let mut queue = InputQueue::new(Coming::Known(3), false);
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
