//! Host operations that are answered in place, inside the machine's loop: messages of numbers inside a session.
//!
//! A send to, or a receive from, an open and unwired channel of the coroutine's own session changes the channel and at most makes one other coroutine
//! of this lane ready; then the coroutine goes on at once, with the cycles that the wake left it. One that has to wait takes its place in the
//! channel's queue, and its turn is over. One whose turn comes with an answer gets it here too.
//! Everything else is left to `host`, which has the rules in full: what is done here is what `Group::send`, `Group::receive` and
//! `Group::finish_wait` do in these cases (`messages_in_place_are_the_same_run` compares them).

use crate::channel::{AWAY, Channel, Message, WaitingSender, Way};
use crate::group::LaneState;
use crate::task::{Entry, State, Task, TaskTable, Wait};
use crate::wait::Ticket;
use wavelock_abi::{CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_machine::{Answer, Bare, Host};
use wavelock_trace::{Event, Packed};

/// What messages inside a session touch while one of its coroutines runs.
pub(crate) struct Direct<'a> {
    pub(crate) session: SessionId,
    /// The handle of the first of `channels`; the others' follow it.
    pub(crate) first_handle: u32,
    /// The first of `channels` among all of the session.
    pub(crate) first_channel: u32,
    /// The channels that the guest made itself. Those of the manifest are most often wired, and never dealt with here.
    pub(crate) channels: &'a mut [Channel],
    /// The session's coroutines; their stacks are taken out meanwhile.
    pub(crate) tasks: &'a mut TaskTable,
    pub(crate) lane: &'a mut LaneState,
    /// The running coroutine.
    pub(crate) slot: u32,
    pub(crate) counts: Counts,
    /// Why the running coroutine waits in a channel's queue, if its slice is over with that; nothing if it sleeps. The log has the wait, and not yet the step that ends.
    /// That is to receive, and whoever finds another here puts that back.
    pub(crate) waits: Option<BlockReason>,
}

/// What was counted meanwhile, for [`SessionState::count`](crate::session::SessionState::count).
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Calls answered, but for those of `sent`.
    pub(crate) calls: u64,
    /// Messages sent by calls that are answered: each is both.
    pub(crate) sent: u64,
    /// Messages whose senders wait. One counts when it is sent, whether its sender then waits or not.
    pub(crate) waiting: u64,
}

pub(crate) const SEND: u16 = HostOperation::Send as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
pub(crate) const RECV: u16 = HostOperation::Recv as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;

impl Host for Direct<'_> {
    #[inline(always)]
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> Answer {
        match number {
            SEND => Answer::bare(self.send(first as u32, second as i64)),
            RECV => self.receive(first as u32, second as u32, memory_bytes),
            _ => self.attempt(number, first as u32, second, memory_bytes),
        }
    }
}

impl Direct<'_> {
    /// The number that a waiting coroutine whose turn it is gets, if it gets one.
    #[inline(always)]
    pub(crate) fn number(&mut self, slot: u32, put: &mut dyn FnMut(u64) -> bool) -> bool {
        let Some(Task { wait, .. }) = self.tasks.live_get(slot) else { return false };
        let Wait::Number(number) = *wait else { return false };
        if !put(number as u64) {
            return false;
        }
        wait.replace_plain(Wait::None);
        self.counts.calls += 1;
        true
    }

    /// The answer of a waiting coroutine whose turn it is; [`Answer::WAIT`] if it is not given here.
    pub(crate) fn answer(&mut self, slot: u32, pointer: u64, memory_bytes: u64) -> Answer {
        let wait = &mut self.tasks.live_at(slot).wait;
        let answer = match *wait {
            Wait::Number(number) if fits(pointer as u32, memory_bytes) => Answer::number(number as u64),
            Wait::Code(code) => Answer::result(i64::from(code) as u64),
            Wait::None => return Answer::STOP,
            _ => return Answer::WAIT,
        };
        wait.replace_plain(Wait::None);
        self.counts.calls += 1;
        answer
    }

    /// The running coroutine waits from now on.
    fn wait(&mut self, reason: BlockReason, index: u32) {
        let (owner, index) = self.name(index);
        self.lane.log.event(&Event::Wait { reason: reason as u64, owner, index });
        self.waits = Some(reason);
    }

    /// What events call the channel with this index here.
    #[inline(always)]
    fn name(&self, index: u32) -> (u64, u64) {
        (u64::from(self.session.0), u64::from(self.first_channel) + u64::from(index))
    }

    #[inline(always)]
    fn send_event(&self, index: u32) -> Event<'static> {
        let (owner, index) = self.name(index);
        Event::Send { owner, index }
    }

    /// The index of one of the channels here, by its handle, if it is of one: any other handle, a negative one too, gives an index that is too large.
    #[inline(always)]
    fn own(&self, handle: u32) -> u32 {
        handle.wrapping_sub(self.first_handle)
    }

    /// A number that goes behind the others, and nothing else: the whole of most sends over a channel that is deep. By itself, as `receive` is, so that neither takes
    /// registers from the machine's loop; whatever is longer is one call in its last place, so that this one saves none.
    #[inline(never)]
    pub(crate) fn send(&mut self, handle: u32, number: i64) -> Bare {
        let index = self.own(handle);
        let Some(channel) = self.channels.get_mut(index as usize) else { return Bare::STOP };
        if channel.queue.len() < channel.way.limit {
            debug_assert!(channel.takes_in_place() && channel.first_receiver().is_none(), "the limit says what is usual");
            if let Some(vacancy) = channel.queue.vacancy()
                && self.lane.log.packed(channel.send)
            {
                vacancy.fill(number);
                self.counts.sent += 1;
                return Bare::DONE;
            }
        }
        // Not rare; but the way without a call is to save nothing for it.
        core::hint::cold_path();
        self.send_to_receiver(index, number)
    }

    /// A number that is taken from the others, and nothing else.
    #[inline(never)]
    pub(crate) fn receive(&mut self, handle: u32, at: u32, memory_bytes: u64) -> Answer {
        let index = self.own(handle);
        let Some(channel) = self.channels.get_mut(index as usize) else { return Answer::STOP };
        if !fits(at, memory_bytes) {
            return Answer::STOP;
        }
        if !channel.queue.is_empty()
            && channel.received != Packed::NONE
            && let Some(number) = channel.queue.first_in_ring()
            && self.lane.log.packed(channel.received)
        {
            debug_assert!(channel.wiring.is_none() && channel.senders.is_empty(), "what is quiet");
            channel.queue.drop_number();
            self.counts.calls += 1;
            return Answer::number(number as u64);
        }
        core::hint::cold_path();
        self.wait_to_receive(index)
    }

    /// What does not wait.
    #[inline(never)]
    pub(crate) fn attempt(&mut self, number: u16, handle: u32, second: u64, memory_bytes: u64) -> Answer {
        let index = self.own(handle);
        if index as usize >= self.channels.len() {
            return Answer::STOP;
        }
        match number {
            TRY_SEND => Answer::bare(self.send_in_full::<false>(index, second as i64)),
            TRY_RECV if fits(second as u32, memory_bytes) && !self.channels[index as usize].queue.is_empty() => self.receive_in_full(index),
            _ => Answer::STOP,
        }
    }

    /// A number that goes to the one coroutine that waits for it, on this lane, in the usual case: the channel says who. Otherwise it is sent in full.
    #[inline(always)]
    fn send_to_receiver(&mut self, index: u32, number: i64) -> Bare {
        if let Some(channel) = self.channels.get_mut(index as usize)
            && let Some(entry) = self.tasks.entries.get_mut(channel.way.taker as usize)
            && let Entry { lane, state: State::Live(Task { wait: wait @ Wait::Taking(_), kernel, .. }), .. } = &mut **entry
            && *lane == self.lane.id
            && let Some(receivers) = self.lane.kernel.receivers()
            && self.lane.log.packed_two(channel.handed)
        {
            debug_assert!(channel.takes(), "what is said of the taker");
            channel.way.taker |= AWAY;
            wait.replace_plain(Wait::Number(number));
            self.counts.sent += 1;
            // Last, so that it needs no more than the lane at hand. It nearly always wakes.
            return match receivers.wake(*kernel) {
                Some(sooner) => Bare::DONE.sooner(sooner.0 as u32),
                None => self.send_after_all(index, number),
            };
        }
        self.send_in_full::<true>(index, number)
    }

    /// A number that was sent to the taker, but for the wake, which is not the usual one: all of it is taken back, and it is sent in full.
    #[cold]
    #[inline(never)]
    fn send_after_all(&mut self, index: u32, number: i64) -> Bare {
        let channel = &mut self.channels[index as usize];
        let slot = channel.way.taker & !AWAY;
        channel.way = Way::to(slot);
        self.tasks.live_at(slot).wait.replace_plain(Wait::Taking(Ticket(channel.next_ticket)));
        self.counts.sent -= 1;
        self.lane.log.take_back(channel.handed);
        self.send_in_full::<true>(index, number)
    }

    /// A send that the channel's limit does not say is the usual one.
    #[inline(never)]
    fn send_in_full<const WAITS: bool>(&mut self, index: u32, number: i64) -> Bare {
        let channel = &mut self.channels[index as usize];
        if !channel.takes_in_place() {
            return if WAITS { self.wait_to_send(index, number) } else { Bare::STOP };
        }
        let Some(slot) = channel.first_receiver() else {
            channel.push(Message::Number(number));
            channel.renew();
            self.counts.sent += 1;
            let send = self.send_event(index);
            self.lane.log.usual(&send);
            return Bare::DONE;
        };
        // It goes to the first waiting receiver, if that is on this lane and waits for a number; the channel is empty then.
        let home = self.tasks.lane_at(slot);
        let task = self.tasks.live_at(slot);
        if home != self.lane.id || !matches!(task.wait, Wait::Taking(_)) || !channel.queue.is_empty() {
            return Bare::STOP;
        }
        let _ = channel.pop_receiver();
        task.wait.replace_plain(Wait::Number(number));
        let reference = task.kernel;
        self.counts.sent += 1;
        let send = self.send_event(index);
        let cycles = match self.lane.kernel.wake_in_order(reference, WakeSource::Channel) {
            Some(sooner) => {
                let wake = Event::Wake { session: u64::from(self.session.0), slot: u64::from(slot), source: WakeSource::Channel as u64 };
                self.lane.log.two(&send, &wake);
                sooner.0 as u32
            }
            None => {
                self.lane.log.event(&send);
                self.wake(slot, reference)
            }
        };
        if self.lane.kernel.hands_off() {
            let _ = self.lane.kernel.prefer(reference);
        }
        Bare::DONE.sooner(cycles)
    }

    /// Makes another coroutine ready; gives how much sooner the slice ends for it.
    #[cold]
    #[inline(never)]
    fn wake(&mut self, slot: u32, reference: CoroutineRef) -> u32 {
        let before = self.lane.kernel.left_in_slice();
        self.lane.wake(self.session, slot, reference, WakeSource::Channel);
        (before - self.lane.kernel.left_in_slice()).0 as u32
    }

    /// The running coroutine takes its place among the senders of a channel that is full, or that others wait to send to.
    #[inline(never)]
    fn wait_to_send(&mut self, index: u32, number: i64) -> Bare {
        let channel = &mut self.channels[index as usize];
        let is_full = channel.queue.len() >= channel.capacity;
        if channel.closed || channel.wiring.is_some() || channel.senders.is_empty() && !is_full {
            return Bare::STOP;
        }
        let slot = self.slot;
        let reference = self.tasks.reference_at(slot);
        let ticket = channel.ticket();
        let name = CoroutineName { session: self.session, reference };
        channel.push_sender(ticket, WaitingSender { name, local: true, message: Message::Number(number) });
        self.counts.waiting += 1;
        self.tasks.live_at(slot).wait.replace_plain(Wait::Queued(ticket));
        let send = self.send_event(index);
        self.lane.log.event(&send);
        self.wait(BlockReason::ChannelSend, index);
        Bare::WAIT
    }

    /// The running coroutine takes its place among the receivers of a channel that is empty; otherwise it receives in full.
    #[inline(always)]
    fn wait_to_receive(&mut self, index: u32) -> Answer {
        let slot = self.slot;
        if let Some(channel) = self.channels.get_mut(index as usize)
            && channel.queue.is_empty()
            && channel.way.taker == slot | AWAY
            && let Some(task) = self.tasks.live_get(slot)
            && self.lane.log.packed(channel.wait)
        {
            channel.next_ticket += 1;
            channel.way = Way::to(slot);
            debug_assert!(channel.takes(), "what is said of who is away");
            task.wait.replace_plain(Wait::Taking(Ticket(channel.next_ticket)));
            debug_assert!(self.waits == Some(BlockReason::ChannelReceive), "it is what is usual");
            return Answer::WAIT;
        }
        self.receive_otherwise(index)
    }

    /// A receive that is neither of these. One call, so that they save nothing for it.
    #[inline(never)]
    fn receive_otherwise(&mut self, index: u32) -> Answer {
        if self.channels[index as usize].queue.is_empty() { self.wait_to_receive_in_full(index) } else { self.receive_in_full(index) }
    }

    /// A wait to receive from a channel of which it is not known that it is plain, or by another than waited there last.
    #[inline(never)]
    fn wait_to_receive_in_full(&mut self, index: u32) -> Answer {
        let channel = &mut self.channels[index as usize];
        if channel.closed {
            return Answer::STOP;
        }
        let ticket = channel.push_taker(self.session, self.slot);
        self.tasks.live_at(self.slot).wait.replace_plain(Wait::Taking(ticket));
        self.wait(BlockReason::ChannelReceive, index);
        Answer::WAIT
    }

    /// A receive that is not quiet, from a channel that is not empty.
    #[inline(never)]
    fn receive_in_full(&mut self, index: u32) -> Answer {
        let channel = &mut self.channels[index as usize];
        if channel.wiring.is_some() {
            return Answer::STOP;
        }
        if !channel.senders.is_empty() {
            return self.receive_and_admit(index);
        }
        let Some(number) = channel.queue.first_number() else { return Answer::STOP };
        let _ = channel.queue.pop_front();
        channel.renew();
        self.received(index);
        Answer::number(number as u64)
    }

    #[inline(always)]
    fn received(&mut self, index: u32) {
        self.counts.calls += 1;
        let (owner, index) = self.name(index);
        self.lane.log.usual(&Event::Receive { owner, index });
    }

    /// Takes a number from a full channel, and the first waiting sender's message takes its place, if that sender is on this lane and no caller.
    #[inline(never)]
    fn receive_and_admit(&mut self, index: u32) -> Answer {
        let channel = &mut self.channels[index as usize];
        let Some(&WaitingSender { name, ref message, .. }) = channel.senders.front() else { return Answer::STOP };
        let (slot, is_call) = (name.reference.slot, matches!(message, Message::Call(_)));
        let home = self.tasks.lane_at(slot);
        let task = self.tasks.live_at(slot);
        // A channel that nobody waits to receive from or selects on, and that is full again after this.
        let is_usual = channel.queue.len() == channel.capacity && channel.first_receiver().is_none() && channel.selectors.is_empty();
        if !is_usual || is_call || home != self.lane.id {
            return Answer::STOP;
        }
        let Some(number) = channel.queue.first_number() else { return Answer::STOP };
        let Some(sender) = channel.senders.pop() else { return Answer::STOP };
        channel.queue.pop_front();
        channel.push(sender.message);
        task.wait.replace_plain(Wait::Code(0));
        let reference = task.kernel;
        self.received(index);
        Answer::number(number as u64).sooner(self.wake(slot, reference))
    }
}

/// Whether eight bytes at an address are inside a memory of so many.
#[inline(always)]
fn fits(at: u32, memory_bytes: u64) -> bool {
    u64::from(at) + 8 <= memory_bytes
}
