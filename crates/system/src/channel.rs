//! Channels: bounded queues owned by one session, the only way across sessions (semantics 27, 28).
//!
//! A channel belongs to its owner's home lane. Sends from that lane act at once; sends from other
//! lanes spend a credit and arrive at the wave's end, or wait there. Here: the queue, its waiters
//! and the arithmetic of credits. Elsewhere: the operations (`host`), the wave's end (`boundary`).

use crate::call::Call;
use crate::queue::Queue;
use crate::wait::{SeldomQueue, Ticket, WaitQueue};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineName, SessionId};
use wavelock_kernel::BlockReason;
use wavelock_trace::{Event, Packed};

/// A message of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Number(i64),
    Bytes(Box<[u8]>),
    /// A number whose sender waits for an answer.
    Call(Box<Call>),
}

/// A blocked sender and its message.
#[derive(Clone, Debug)]
pub(crate) struct WaitingSender {
    pub(crate) name: CoroutineName,
    /// It runs on the channel's own lane, so its message enters as soon as there is room.
    pub(crate) local: bool,
    pub(crate) message: Message,
}

impl WaitingSender {
    /// Whether the fast path can let its message enter.
    fn is_simple(&self) -> bool {
        self.local && matches!(self.message, Message::Number(_))
    }
}

/// How a wired channel shares its space among the lanes that send to it.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// Lanes with a wired sender, ascending.
    pub(crate) lanes: Arc<[u16]>,
    /// By entry of `lanes`: the index of that lane's credit. Unused for the home lane.
    pub(crate) credits: Vec<u32>,
    /// The owner's home lane.
    pub(crate) home: u16,
    /// Free space that was divided at the last wave's end.
    pub(crate) free: u32,
    /// Wired sender sessions that have neither closed their port nor ended.
    pub(crate) open_senders: u32,
}

/// The share of `lane` when room for `free` messages is divided among `lanes` in wave `wave`:
/// evenly, the remainder from lane (wave mod `machine_lanes`) on.
pub(crate) fn share(free: u32, lanes: &[u16], lane: u16, wave: u64, machine_lanes: u16) -> u32 {
    let count = lanes.len() as u32;
    if count == 0 {
        return 0;
    }
    let Ok(index) = lanes.binary_search(&lane) else { return 0 };
    let first =
        lanes.partition_point(|&other| u64::from(other) < wave % u64::from(machine_lanes.max(1)));
    let rank = (index + lanes.len() - first % lanes.len()) % lanes.len();
    free / count + u32::from((rank as u32) < free % count)
}

/// The events of a channel on the fast path, encoded once: they never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelEvents {
    pub(crate) send: Packed,
    pub(crate) receive: Packed,
    /// A wait to receive.
    pub(crate) wait: Packed,
}

impl ChannelEvents {
    /// `None` if the numbers are too large to be packed.
    fn new(owner: SessionId, index: usize) -> Option<Self> {
        let (owner, index) = (u64::from(owner.0), index as u64);
        let reason = BlockReason::ChannelReceive as u64;
        Some(Self {
            send: Packed::of(&Event::Send { owner, index })?,
            receive: Packed::of(&Event::Receive { owner, index })?,
            wait: Packed::of(&Event::Wait { reason, owner, index })?,
        })
    }
}

/// A bounded FIFO with its waiters: two cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Channel {
    /// Blocked receivers: slots of the owner's coroutines.
    pub(crate) receivers: WaitQueue<u32>,
    pub(crate) next_ticket: u64,
    pub(crate) capacity: u32,
    pub(crate) closed: bool,
    /// In [`Group::touched`](crate::group::Group): its space is divided anew at the wave's end.
    pub(crate) touched: bool,
    /// The predicate of the fast path: open, unwired, holds numbers only, and no selector waits; a
    /// sender waits only while it is full, and with a number. Never true by mistake; may stay false
    /// until [`Channel::refresh`].
    pub(crate) is_simple: bool,
    pub(crate) queue: Queue,
    pub(crate) events: Option<ChannelEvents>,
    /// Set for channels of the manifest, which other sessions send to.
    pub(crate) wiring: Option<Box<Wiring>>,
    pub(crate) senders: SeldomQueue<WaitingSender>,
    /// Coroutines of the owner that wait in `select` on this channel.
    pub(crate) selectors: SeldomQueue<u32>,
}

const _: () = assert!(size_of::<Channel>() == 128, "a channel is two cache lines");

impl Channel {
    /// An empty channel, the `index`th of session `owner`.
    pub(crate) fn new(
        owner: SessionId,
        index: usize,
        capacity: u32,
        wiring: Option<Box<Wiring>>,
    ) -> Self {
        let mut channel = Self {
            receivers: WaitQueue::new(),
            next_ticket: 0,
            capacity,
            closed: false,
            touched: false,
            is_simple: false,
            queue: Queue::new(),
            events: ChannelEvents::new(owner, index),
            wiring,
            senders: SeldomQueue::new(),
            selectors: SeldomQueue::new(),
        };
        channel.refresh();
        channel
    }

    /// Recomputes the predicate of the fast path, after a change that may have made it true. Does
    /// not look at waiting senders: once one is not for the fast path, all have to leave.
    pub(crate) fn refresh(&mut self) {
        self.is_simple = self.wiring.is_none()
            && !self.closed
            && !self.queue.is_mixed()
            && (self.senders.is_empty() || self.is_simple && self.queue.len() == self.capacity)
            && self.selectors.is_empty();
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
        self.is_simple &= !self.queue.is_mixed();
    }

    pub(crate) fn push_sender(&mut self, ticket: Ticket, sender: WaitingSender) {
        self.is_simple &= self.queue.len() == self.capacity && sender.is_simple();
        self.senders.push(ticket, sender);
    }

    pub(crate) fn push_selector(&mut self, ticket: Ticket, slot: u32) {
        self.is_simple = false;
        self.selectors.push(ticket, slot);
    }

    pub(crate) fn close(&mut self) {
        self.is_simple = false;
        self.closed = true;
    }

    /// The ticket of the next waiter.
    #[inline(always)]
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Messages that fit, promised to other lanes or not.
    pub(crate) fn room(&self) -> u32 {
        self.capacity - self.queue.len().min(self.capacity)
    }

    /// Messages that a sender on the channel's own lane may add in wave `wave`: those not promised
    /// to other lanes.
    pub(crate) fn local_room(&self, wave: u64, machine_lanes: u16) -> u32 {
        let promised = self.wiring.as_ref().map_or(0, |wiring| {
            wiring.free - share(wiring.free, &wiring.lanes, wiring.home, wave, machine_lanes)
        });
        self.room().saturating_sub(promised)
    }

    /// Whether a receive would return at once.
    pub(crate) fn receivable(&self) -> bool {
        self.closed || !self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_the_remainder_goes_round() {
        let lanes = [0, 2, 3];
        for free in 0..20 {
            for wave in 0..8 {
                let total: u32 = lanes.iter().map(|&lane| share(free, &lanes, lane, wave, 4)).sum();
                assert_eq!(total, free);
            }
        }
        let first_of = |wave| {
            lanes
                .into_iter()
                .find(|&lane| share(1, &lanes, lane, wave, 4) == 1)
                .expect("one lane has it")
        };
        assert_eq!(
            [first_of(0), first_of(1), first_of(2), first_of(3), first_of(4)],
            [0, 2, 2, 3, 0]
        );
        assert_eq!(share(5, &lanes, 1, 0, 4), 0, "a lane without a sender has no share");
    }

    fn sender(message: Message) -> WaitingSender {
        let name = CoroutineName {
            session: SessionId(0),
            reference: wavelock_abi::CoroutineRef::new(1, 0),
        };
        WaitingSender { name, local: true, message }
    }

    /// Senders wait on the fast path while the channel is full and each has a number; after another
    /// kind of message all of them have to leave before the fast path resumes.
    #[test]
    fn numbers_wait_at_a_full_channel_on_the_fast_path() {
        let mut channel = Channel::new(SessionId(0), 0, 1, None);
        channel.push(Message::Number(1));
        channel.push_sender(Ticket(1), sender(Message::Number(2)));
        assert!(channel.is_simple);
        channel.refresh();
        assert!(channel.is_simple);
        channel.push_sender(Ticket(2), sender(Message::Bytes([3].into())));
        assert!(!channel.is_simple);
        let _ = channel.senders.remove(Ticket(2));
        channel.refresh();
        assert!(!channel.is_simple, "a sender still waits");
        let _ = channel.senders.pop();
        channel.refresh();
        assert!(channel.is_simple);
    }

    /// Each change that takes a channel off the fast path clears the predicate, and `refresh` sets
    /// it again only after the change was undone.
    #[test]
    fn the_fast_path_ends_with_any_change_that_it_does_not_handle() {
        type Change = fn(&mut Channel);
        let changes: [(&str, Change, Change); 4] = [
            (
                "bytes arrive",
                |channel| channel.push(Message::Bytes([2].into())),
                |channel| {
                    while channel.queue.pop_front().is_some() {}
                    channel.push(Message::Number(3));
                },
            ),
            (
                "a sender waits",
                |channel| channel.push_sender(Ticket(2), sender(Message::Number(1))),
                |channel| assert!(channel.senders.pop().is_some()),
            ),
            (
                "a selector waits",
                |channel| channel.push_selector(Ticket(2), 8),
                |channel| assert_eq!(channel.selectors.pop(), Some(8)),
            ),
            ("it is closed", Channel::close, |channel| channel.closed = false),
        ];
        for (what, change, undo) in changes {
            let mut channel = Channel::new(SessionId(0), 0, 4, None);
            channel.push(Message::Number(1));
            assert!(channel.is_simple, "{what}");
            change(&mut channel);
            assert!(!channel.is_simple, "{what}");
            channel.refresh();
            assert!(!channel.is_simple, "{what}: refreshed");
            undo(&mut channel);
            channel.refresh();
            assert!(channel.is_simple, "{what}: undone");
        }
    }

    #[test]
    fn local_room_leaves_what_is_promised() {
        let wiring =
            Wiring { lanes: [0, 1].into(), credits: Vec::new(), home: 0, free: 4, open_senders: 2 };
        let mut channel = Channel::new(SessionId(0), 0, 4, Some(Box::new(wiring)));
        assert!(!channel.is_simple);
        assert_eq!(channel.local_room(0, 2), 2);
        channel.push(Message::Number(1));
        assert_eq!(channel.local_room(0, 2), 1);
    }
}
