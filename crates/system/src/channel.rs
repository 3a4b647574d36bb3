//! Channels: bounded queues owned by one session, the only way across sessions (semantics 27, 28).
//!
//! A channel belongs to its owner's home lane. Sends from that lane act at once; sends from other lanes spend a credit and
//! arrive at the wave's end, or wait there. This file holds the queue, its waiters and the arithmetic of credits; who may call
//! what, and when a lane learns of it, is in `host` and `boundary`.

use crate::call::Call;
use crate::queue::Queue;
use crate::wait::{SeldomQueue, Ticket};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, SessionId};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_trace::{Packed, PackedTwo};

/// What a channel carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Number(i64),
    Bytes(Box<[u8]>),
    /// A number that waits for its answer.
    Call(Box<Call>),
}

/// A coroutine that waits to send, with what it sends.
#[derive(Clone, Debug)]
pub(crate) struct WaitingSender {
    pub(crate) name: CoroutineName,
    /// It runs on the channel's own lane, so its message may enter as soon as there is room.
    pub(crate) local: bool,
    pub(crate) message: Message,
}

/// How a wired channel shares its space among the lanes that send to it.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// Lanes with a wired sender, ascending.
    pub(crate) lanes: Arc<[u16]>,
    /// By entry of `lanes`: where that lane keeps its credit. Unused for the home lane.
    pub(crate) credits: Vec<u32>,
    /// The owner's home lane.
    pub(crate) home: u16,
    /// Free space that was divided at the last wave's end.
    pub(crate) free: u32,
    /// Wired sender sessions that have neither closed their port nor ended.
    pub(crate) open_senders: u32,
}

/// The share of `lane` when `free` places are divided among `lanes` in wave `wave`: evenly, the remainder from lane
/// (wave mod `machine_lanes`) on.
pub(crate) fn share(free: u32, lanes: &[u16], lane: u16, wave: u64, machine_lanes: u16) -> u32 {
    let count = lanes.len() as u32;
    if count == 0 {
        return 0;
    }
    let Ok(index) = lanes.binary_search(&lane) else { return 0 };
    let first = lanes.partition_point(|&other| u64::from(other) < wave % u64::from(machine_lanes.max(1)));
    let place = (index + lanes.len() - first % lanes.len()) % lanes.len();
    free / count + u32::from((place as u32) < free % count)
}

/// A bounded FIFO with its waiters. Two lines of memory, in this order: a message to one who waits for it looks at the first only.
///
/// Four fields say in one word each that a message is the usual one. They may say no where it is, and never say yes where it is not: whatever makes it unusual
/// goes through the methods here, which say no; who finds no, looks in full, and says yes again with [`Channel::renew`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Channel {
    pub(crate) way: Way,
    /// What the log gets for a message to the taker and its wake.
    pub(crate) handed: PackedTwo,
    /// What the log gets when somebody waits to receive.
    pub(crate) wait: Packed,
    pub(crate) next_ticket: u64,
    pub(crate) capacity: u32,
    pub(crate) closed: bool,
    /// On the owner's list of channels whose space must be divided anew at the wave's end.
    pub(crate) touched: bool,
    /// It is open and unwired, and nobody waits to send or on several channels.
    pub(crate) is_plain: bool,
    /// What the log gets for a message; nothing if that is too long for a word.
    pub(crate) send: Packed,
    pub(crate) queue: Queue,
    /// What the log gets for a message that is taken out, where that is a number and leaves a place that nobody waits for: it is unwired, and no sender waits. Nothing otherwise, or if
    /// it is too long for a word.
    pub(crate) received: Packed,
    /// Waiting receivers but for the taker: slots of the owner's coroutines.
    pub(crate) receivers: SeldomQueue<u32>,
    /// Set for channels of the manifest, which other sessions send to.
    pub(crate) wiring: Option<Box<Wiring>>,
    pub(crate) senders: SeldomQueue<WaitingSender>,
    /// Coroutines of the owner that wait on this channel among others.
    pub(crate) selectors: SeldomQueue<u32>,
}

/// Where a number goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Who waits to receive, where a number goes to it and nothing else changes: it is plain and empty, this is the only one, and `handed` is its. It is the truth then: the
    /// queue of receivers is empty, and the ticket of this one is the last that was given. With [`AWAY`] nobody waits to receive, it is plain, and this is who waited last.
    /// Otherwise [`UNKNOWN`].
    pub(crate) taker: u32,
    /// While the channel holds fewer messages than this, a number goes behind them and nothing else changes: it is open and unwired, nobody waits, and there is room.
    pub(crate) limit: u32,
}

impl Way {
    /// Nothing is known.
    const UNKNOWN: Self = Self { taker: UNKNOWN, limit: 0 };

    /// To this taker.
    #[inline(always)]
    pub(crate) const fn to(taker: u32) -> Self {
        Self { taker, limit: 0 }
    }
}

/// Of [`Way::taker`]: nobody waits, and the channel is plain. No coroutine has so high a slot.
pub(crate) const AWAY: u32 = 1 << 31;
/// Of [`Way::taker`]: nothing is known.
const UNKNOWN: u32 = u32::MAX;

const _: () = assert!(size_of::<Channel>() == 128, "a channel is two lines of memory");

impl Channel {
    pub(crate) fn new(id: ChannelId, capacity: u32, wiring: Option<Box<Wiring>>) -> Self {
        Self {
            way: Way::UNKNOWN,
            handed: PackedTwo::NONE,
            wait: Packed::send(id.owner.0, id.index).wait(BlockReason::ChannelReceive as u8),
            next_ticket: 0,
            capacity,
            closed: false,
            touched: false,
            is_plain: false,
            send: Packed::send(id.owner.0, id.index),
            queue: Queue::new(),
            received: Packed::NONE,
            receivers: SeldomQueue::new(),
            wiring,
            senders: SeldomQueue::new(),
            selectors: SeldomQueue::new(),
        }
    }

    /// Looks in full what is usual from now on.
    pub(crate) fn renew(&mut self) {
        let is_quiet = self.wiring.is_none() && self.senders.is_empty() && self.send != Packed::NONE;
        self.received = if is_quiet && !self.queue.is_mixed() { self.send.receive() } else { Packed::NONE };
        self.is_plain = is_quiet && !self.closed && self.selectors.is_empty();
        let is_free = self.is_plain && self.first_receiver().is_none();
        self.way.limit = if is_free { self.capacity.min(self.queue.room()) } else { 0 };
    }

    /// Who waits to receive as the taker.
    fn taker(&self) -> Option<u32> {
        Some(self.way.taker).filter(|&taker| taker < AWAY)
    }

    /// Who of those who wait to receive is first.
    pub(crate) fn first_receiver(&self) -> Option<u32> {
        self.taker().or_else(|| self.receivers.front().copied())
    }

    /// Those who wait to receive, with their tickets, first come first.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = (Ticket, u32)> {
        let taker = self.taker().map(|taker| (Ticket(self.next_ticket), taker));
        taker.into_iter().chain(self.receivers.tickets().map(|(ticket, &slot)| (ticket, slot)))
    }

    /// Nothing is known any more: whoever is the taker takes its place in the queue.
    fn forget(&mut self) {
        if let Some(taker) = self.taker() {
            self.receivers.push(Ticket(self.next_ticket), taker);
        }
        self.way = Way::UNKNOWN;
    }

    /// A receiver waits.
    pub(crate) fn push_receiver(&mut self, ticket: Ticket, slot: u32) {
        self.forget();
        self.receivers.push(ticket, slot);
    }

    /// The first waiting receiver waits no more.
    pub(crate) fn pop_receiver(&mut self) -> Option<u32> {
        self.forget();
        self.receivers.pop()
    }

    /// The waiting receiver with this ticket waits no more.
    pub(crate) fn remove_receiver(&mut self, ticket: Ticket) {
        self.forget();
        self.receivers.remove(ticket);
    }

    /// This coroutine of session `owner` waits to receive a number, the last of those who do: if it is the only one, it is the taker. Gives its ticket.
    pub(crate) fn push_taker(&mut self, owner: SessionId, slot: u32) -> Ticket {
        let ticket = self.ticket();
        self.renew();
        let handed = self.send.then(Packed::wake(owner.0, slot, WakeSource::Channel as u8));
        if self.is_plain && self.queue.is_empty() && self.receivers.is_empty() && handed != PackedTwo::NONE && slot < AWAY {
            (self.way, self.handed) = (Way::to(slot), handed);
        } else {
            self.push_receiver(ticket, slot);
        }
        ticket
    }

    /// Whether the taker is what it is said to be: for assertions.
    pub(crate) fn takes(&self) -> bool {
        self.taker().is_some() && self.is_plain && self.takes_in_place() && self.queue.is_empty() && self.receivers.is_empty()
    }

    /// A message goes behind the others, where the rules in full say so.
    pub(crate) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
        if self.queue.is_mixed() {
            (self.way.limit, self.received) = (0, Packed::NONE);
        }
    }

    /// A sender waits.
    pub(crate) fn push_sender(&mut self, ticket: Ticket, sender: WaitingSender) {
        self.forget();
        (self.received, self.is_plain) = (Packed::NONE, false);
        self.senders.push(ticket, sender);
    }

    /// A coroutine waits on this channel among others.
    pub(crate) fn push_selector(&mut self, ticket: Ticket, slot: u32) {
        self.forget();
        self.is_plain = false;
        self.selectors.push(ticket, slot);
    }

    /// Nothing is sent to it any more.
    pub(crate) fn close(&mut self) {
        self.forget();
        self.is_plain = false;
        self.closed = true;
    }

    /// The ticket of whoever waits from now on. The last one before was the taker's, if there is one: it takes its place now.
    pub(crate) fn ticket(&mut self) -> Ticket {
        if self.taker().is_some() {
            self.forget();
        }
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Free places, whoever they are promised to.
    pub(crate) fn room(&self) -> u32 {
        self.capacity - self.queue.len().min(self.capacity)
    }

    /// Free places that a sender on the channel's own lane may use in wave `wave`: those not promised to other lanes.
    pub(crate) fn local_room(&self, wave: u64, machine_lanes: u16) -> u32 {
        let promised =
            self.wiring.as_ref().map_or(0, |wiring| wiring.free - share(wiring.free, &wiring.lanes, wiring.home, wave, machine_lanes));
        self.room().saturating_sub(promised)
    }

    /// Whether a message put into it now stays there, or goes to a waiting receiver, and nothing else changes: it is open, has room, and no
    /// sender or selector waits.
    #[inline]
    pub(crate) fn takes_in_place(&self) -> bool {
        !self.closed && self.wiring.is_none() && self.queue.len() < self.capacity && self.senders.is_empty() && self.selectors.is_empty()
    }

    /// Whether a receive would be answered at once.
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
        let first_of = |wave| lanes.into_iter().find(|&lane| share(1, &lanes, lane, wave, 4) == 1).expect("one lane has it");
        assert_eq!([first_of(0), first_of(1), first_of(2), first_of(3), first_of(4)], [0, 2, 2, 3, 0]);
        assert_eq!(share(5, &lanes, 1, 0, 4), 0, "a lane without a sender has no share");
    }

    /// A channel whose events are longer than a word is never the usual one: what is packed for it is nothing, and would be lost.
    #[test]
    fn a_channel_whose_events_are_too_long_is_never_usual() {
        for (owner, index, is_usual) in [(127, 0, true), (128, 0, false), (0, (1 << 21) - 1, true), (0, 1 << 21, false)] {
            let owner = SessionId(owner);
            let mut channel = Channel::new(ChannelId { owner, index }, 4, None);
            channel.push(Message::Number(1));
            let _ = channel.queue.pop_front();
            channel.renew();
            assert_eq!(
                (channel.received != Packed::NONE, channel.is_plain, channel.way.limit > 0),
                (is_usual, is_usual, is_usual),
                "{owner:?}, channel {index}"
            );
            let _ = channel.queue.pop_front();
            assert_eq!(channel.push_taker(owner, 7), Ticket(1));
            assert_eq!(channel.taker() == Some(7), is_usual, "{owner:?}, channel {index}");
            assert!(channel.receivers().eq([(Ticket(1), 7)]), "{owner:?}, channel {index}");
        }
        let mut channel = Channel::new(ChannelId { owner: SessionId(0), index: 0 }, 4, None);
        assert_eq!(channel.push_taker(SessionId(0), 1 << 21), Ticket(1));
        assert_eq!(channel.way, Way::UNKNOWN, "its wake is too long");
    }

    /// Whatever makes the taker another, or a number to it unusual, says so: otherwise a number would go to somebody who does not wait for it.
    #[test]
    fn whoever_changes_a_channel_forgets_its_taker() {
        let owner = SessionId(0);
        let waited = || {
            let mut channel = Channel::new(ChannelId { owner, index: 0 }, 4, None);
            assert_eq!(channel.push_taker(owner, 7), Ticket(1));
            assert!(channel.way == Way::to(7) && channel.takes() && channel.receivers.is_empty());
            assert!(channel.first_receiver() == Some(7) && channel.receivers().eq([(Ticket(1), 7)]));
            channel
        };
        fn sender() -> WaitingSender {
            let name = CoroutineName { session: SessionId(0), reference: wavelock_abi::CoroutineRef::new(1, 0) };
            WaitingSender { name, local: true, message: Message::Number(1) }
        }
        type Change = fn(&mut Channel);
        type Left = &'static [(Ticket, u32)];
        const STAYS: Left = &[(Ticket(1), 7)];
        let changes: [(&str, Change, Left); 7] = [
            ("another waits", |channel| channel.push_receiver(Ticket(2), 8), &[(Ticket(1), 7), (Ticket(2), 8)]),
            ("it is served", |channel| assert_eq!(channel.pop_receiver(), Some(7)), &[]),
            ("it leaves", |channel| channel.remove_receiver(Ticket(1)), &[]),
            ("a sender waits", |channel| channel.push_sender(Ticket(2), sender()), STAYS),
            ("a selector waits", |channel| channel.push_selector(Ticket(2), 8), STAYS),
            ("a ticket is given", |channel| assert_eq!(channel.ticket(), Ticket(2)), STAYS),
            ("it is closed", Channel::close, STAYS),
        ];
        for (what, change, left) in changes {
            let mut channel = waited();
            change(&mut channel);
            assert!(channel.way == Way::UNKNOWN && !channel.takes(), "{what}");
            assert!(channel.receivers().eq(left.iter().copied()), "{what}");
            assert_eq!(channel.first_receiver(), left.first().map(|&(_, slot)| slot), "{what}");
        }
        let mut channel = waited();
        assert_eq!(channel.push_taker(owner, 8), Ticket(2));
        assert!(channel.way == Way::UNKNOWN && channel.receivers().eq([(Ticket(1), 7), (Ticket(2), 8)]), "two wait");
        // When both are gone, the next is the one.
        assert_eq!((channel.pop_receiver(), channel.pop_receiver()), (Some(7), Some(8)));
        assert_eq!(channel.way, Way::UNKNOWN);
        assert_eq!(channel.push_taker(owner, 9), Ticket(3));
        assert!(channel.way == Way::to(9) && channel.takes());
    }

    /// Bytes are beside the ring, and no number may go into it or come from it meanwhile.
    #[test]
    fn a_channel_that_holds_bytes_is_not_usual() {
        let mut channel = Channel::new(ChannelId { owner: SessionId(0), index: 0 }, 4, None);
        let usual = |channel: &Channel| (channel.way.limit > 0, channel.received != Packed::NONE);
        channel.push(Message::Number(1));
        channel.renew();
        assert_eq!(usual(&channel), (true, true));
        channel.push(Message::Bytes([2].into()));
        assert_eq!(usual(&channel), (false, false));
        channel.renew();
        assert_eq!(usual(&channel), (false, false));
        channel.push(Message::Number(3));
        let messages = [Message::Number(1), Message::Bytes([2].into()), Message::Number(3)];
        assert!(messages.into_iter().eq(core::iter::from_fn(|| channel.queue.pop_front())));
        channel.push(Message::Number(4));
        channel.renew();
        assert_eq!(usual(&channel), (true, true));
    }

    #[test]
    fn local_room_leaves_what_is_promised() {
        let wiring = Wiring { lanes: [0, 1].into(), credits: Vec::new(), home: 0, free: 4, open_senders: 2 };
        let id = ChannelId { owner: wavelock_abi::SessionId(0), index: 0 };
        let mut channel = Channel::new(id, 4, Some(Box::new(wiring)));
        assert_eq!(channel.local_room(0, 2), 2);
        channel.push(Message::Number(1));
        assert_eq!(channel.local_room(0, 2), 1);
    }
}
