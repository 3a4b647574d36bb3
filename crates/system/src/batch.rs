//! A batch: consecutive slices of one session, run without leaving the machine in between.
//!
//! Contract: the same steps, log and state as the slow path ([`Group::step`] with `host`). Tests:
//! `in_place`, `step_equals_run`. Each operation here checks everything before its first change;
//! whatever it does not handle it leaves to the slow path, unchanged.
//!
//! Fast paths, and what each saves:
//! - switch: a yield, sleep, block or end and the next dispatch are one call of the kernel, without
//!   a token and without leaving and entering the machine;
//! - send and receive of numbers over a channel that the guest made ([`Channel::is_simple`]), and
//!   the waits in them: no stop of the machine, no lookup of handles, ports and credits;
//! - resume: the result of such a wait is given when its coroutine is dispatched;
//! - spawn: a coroutine in a new slot gets no stack until its first slice ([`Wait::NotStarted`]),
//!   and never one in the table if it ends in that slice;
//! - prefetch: with many coroutines, the records of the next ones are loaded into the cache early.

use crate::channel::{Channel, Message, WaitingSender};
use crate::group::{Group, LaneState};
use crate::host::is_entry;
use crate::step::{Batched, Slice, wait_code};
use crate::task::{EndStatus, Task, TaskTable, Wait};
use alloc::vec::Vec;
use wavelock_abi::{CoroutineName, Cycles, Frame, HostOperation, SessionId};
use wavelock_kernel::{Began, BlockReason, Departure, Next, Running, Spawn, Tag, WakeSource};
use wavelock_machine::{
    BatchEnd, CallOutcome, Coroutine, CoroutineTable, Dispatch, Host, LazyCoroutine, Prefetch,
    TableAddress,
};
use wavelock_module::FunctionType;
use wavelock_trace::{Event, StopCode};

/// The longest slice of a batch: the machine counts its cycles in 32 bits.
pub(crate) const LONGEST_SLICE: Cycles = Cycles(Dispatch::MAX_CYCLES as u64);

/// Prefetching starts at this many live coroutines, whose records no longer fit a cache. Without it
/// a yield among 1,000,000 coroutines in random order takes 2.0 times as long.
const PREFETCH_FROM: u32 = 32_768;

const RECV: u16 = HostOperation::Recv as u16;
const SEND: u16 = HostOperation::Send as u16;
const SLEEP: u16 = HostOperation::Sleep as u16;
const SPAWN: u16 = HostOperation::Spawn as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
const YIELD: u16 = HostOperation::Yield as u16;

/// What ends with a slice.
#[derive(Clone, Copy)]
enum Ends {
    /// The step alone.
    Step(StopCode),
    /// The coroutine, whose function returned this.
    Coroutine(u64),
}

impl Ends {
    const fn stop_code(self) -> StopCode {
        match self {
            Self::Step(stop) => stop,
            Self::Coroutine(_) => StopCode::Finished,
        }
    }
}

/// The [`Host`] of a batch.
struct Batch<'a> {
    session: SessionId,
    /// The channels that the guest made; those of the manifest have no fast path.
    channels: &'a mut [Channel],
    /// The handle of `channels[0]`; the others follow it.
    first_handle: u32,
    /// The index of `channels[0]` among all channels of the session.
    first_channel: u32,
    /// The session's coroutines, but for their stacks, which the machine has.
    tasks: &'a mut TaskTable,
    lane: &'a mut LaneState,
    /// The running coroutine.
    slot: u32,
    /// The kernel's token of the open slice, if the slow path dispatched it.
    token: Option<Running>,
    /// The bound of the open slice when it began, and now: wakes that it causes make it less.
    bound: Cycles,
    bound_now: Cycles,
    /// The lane's overhead before the open slice.
    overhead: Cycles,
    /// What the lane does next, if no slice is open.
    next: Option<Next>,
    frame: Frame,
    /// How the coroutine that blocks leaves the lane: set by the call, read by [`Host::block`].
    departure: Departure,
    /// Completed host calls, without sends, yields and sleeps.
    calls: u64,
    /// Messages sent.
    messages: u64,
    /// Messages whose send waits, and slices that ended without completing a host call: blocked or
    /// finished.
    incomplete: u64,
    /// Live coroutines of the group, and their peak in this wave.
    live: &'a mut u64,
    wave_peak: &'a mut u64,
    /// The table of entry functions, if the session may spawn.
    table: Option<TableAddress>,
    /// The kernel's parameters of a spawned coroutine.
    spawn: Spawn,
    /// The limit on the session's coroutines.
    limit: u32,
    /// Calls were accepted and not replied to: a coroutine that ends may owe a reply.
    has_replies: bool,
}

impl Host for Batch<'_> {
    #[inline(always)]
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> CallOutcome {
        // The most frequent first: cheaper than the jump table of a `match`.
        if number == SEND || number == TRY_SEND {
            self.send(first as u32, second as i64, number == SEND)
        } else if number == RECV || number == TRY_RECV {
            self.receive(first as u32, second as u32, memory_bytes, number == RECV)
        } else if number == SPAWN {
            self.table.map_or(CallOutcome::DECLINED, CallOutcome::spawn)
        } else {
            CallOutcome::DECLINED
        }
    }

    #[inline(never)]
    fn call_blocking(&mut self, number: u16, argument: u64) -> bool {
        if number != SLEEP || argument as i64 <= 0 {
            return false;
        }
        self.lane.log.event(&Event::Sleep { frames: argument });
        self.departure = Departure::Sleep(Frame(self.frame.0.saturating_add(argument)));
        true
    }

    #[inline(always)]
    fn yield_now(&mut self, used: Cycles) -> Dispatch {
        self.switch(used, Departure::Yield, Ends::Step(StopCode::Yielded))
    }

    /// Not inlined: a yield takes 4 % fewer instructions if the dispatch loop has one switch only.
    #[inline(never)]
    fn block(&mut self, used: Cycles) -> Dispatch {
        const RECEIVES: Departure = Departure::Block(BlockReason::ChannelReceive);
        match self.departure {
            // A copy of the switch for each of the most frequent: 4 % fewer instructions.
            RECEIVES => self.leave(used, RECEIVES),
            Departure::Sleep(frame) => self.leave_asleep(used, frame),
            departure => self.leave_otherwise(used, departure),
        }
    }

    #[inline(never)]
    fn finish(&mut self, used: Cycles, value: u64) -> Dispatch {
        let slot = self.slot;
        if self.has_replies || !self.tasks.finish(slot, value as i64) {
            return Dispatch::DECLINED;
        }
        self.incomplete += 1;
        *self.live -= 1;
        self.switch(used, Departure::Finish, Ends::Coroutine(value))
    }

    #[inline(always)]
    fn prefetch(&mut self, prefetch: &mut dyn FnMut(u32, Prefetch)) -> u32 {
        if self.tasks.live() < PREFETCH_FROM {
            return 0;
        }
        let session = self.session.0;
        self.lane.kernel.prefetch(|near, far| {
            for (tags, part) in [(far, Prefetch::Record), (near, Prefetch::Stack)] {
                for tag in tags.iter().filter(|tag| tag.session() == session) {
                    prefetch(tag.slot(), part);
                }
            }
        })
    }

    fn can_spawn(&self, kind: &FunctionType) -> bool {
        is_entry(kind)
    }

    /// Fast path of `Group::spawn`.
    #[inline(never)]
    fn spawn(&mut self, lazy: LazyCoroutine, slots: u32) -> (u32, u64) {
        const DECLINED: (u32, u64) = (Dispatch::NO_SLOT, 0);
        if self.tasks.occupied() >= self.limit {
            return DECLINED;
        }
        let reference = self.tasks.next_reference();
        let slot = reference.slot;
        let spawn = Spawn { tag: Tag::new(self.session.0, slot), ..self.spawn };
        let Ok(kernel) = self.lane.publish(spawn) else { return DECLINED };
        let key = self.tasks.child_key(self.slot);
        let wait = if slot < slots { Wait::None } else { Wait::not_started(lazy) };
        self.tasks.publish_at(reference, Task { kernel, key, wait }, self.lane.id);
        *self.live += 1;
        *self.wave_peak = (*self.wave_peak).max(*self.live);
        self.calls += 1;
        self.lane.log.event(&Event::Spawn {
            session: u64::from(self.session.0),
            slot: u64::from(slot),
            generation: u64::from(reference.generation),
            lane: u64::from(self.lane.id),
        });
        (slot, reference.to_guest() as u64)
    }

    #[inline(always)]
    fn materialise(&mut self, slot: u32, scratch: &mut Coroutine) -> bool {
        self.tasks.take(slot, scratch)
    }

    fn stash(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        slots: &mut Vec<Coroutine>,
        needs_slot: bool,
    ) {
        if needs_slot {
            self.tasks.put(slot, coroutine, slots);
        } else {
            self.tasks.keep(slot, coroutine, slots);
        }
    }

    /// Fast path of `Group::finish_wait`: the dispatched coroutine was sent a number, or its own
    /// number entered a channel.
    #[inline(always)]
    fn resume(&mut self, slot: u32, write: &mut dyn FnMut(u64) -> bool) -> bool {
        let Some(Task { wait, .. }) = self.tasks.live_get(slot) else { return false };
        let completes = match *wait {
            Wait::Number(number) => write(number as u64),
            Wait::Code(0) => true,
            _ => false,
        };
        if !completes {
            return false;
        }
        wait.replace_plain(Wait::None);
        self.calls += 1;
        true
    }
}

/// Messages. Not inlined into the dispatch loop: they would take registers from it.
impl Batch<'_> {
    /// Fast path of `Group::send`: into a queue that is not full, or to the first blocked receiver;
    /// into a full queue it blocks if `may_block`.
    #[inline(never)]
    fn send(&mut self, handle: u32, number: i64, may_block: bool) -> CallOutcome {
        let at = handle.wrapping_sub(self.first_handle);
        let Some(channel) = self.channels.get_mut(at as usize) else {
            return CallOutcome::DECLINED;
        };
        if !channel.is_simple || !channel.receivers.is_empty() {
            return self.hand_over(at, number);
        }
        if channel.queue.len() >= channel.capacity {
            return if may_block { self.block_to_send(at, number) } else { CallOutcome::DECLINED };
        }
        if !channel.queue.push_number(number) {
            return CallOutcome::DECLINED;
        }
        self.log_send(at);
        CallOutcome::DONE
    }

    /// Sends a number to the first blocked receiver.
    #[inline(never)]
    fn hand_over(&mut self, at: u32, number: i64) -> CallOutcome {
        let Some(channel) = self.channels.get_mut(at as usize) else {
            return CallOutcome::DECLINED;
        };
        let Some(&slot) = channel.receivers.front() else { return CallOutcome::DECLINED };
        let Some((lane, task)) = self.tasks.live_on(slot) else { return CallOutcome::DECLINED };
        let is_here = lane == self.lane.id && matches!(task.wait, Wait::Taking(_));
        if !channel.is_simple || !is_here || !channel.queue.is_empty() {
            return CallOutcome::DECLINED;
        }
        channel.receivers.pop();
        task.wait.replace_plain(Wait::Number(number));
        let reference = task.kernel;
        self.log_send(at);
        self.lane.wake(self.session, slot, reference, WakeSource::Channel);
        if self.lane.kernel.hands_off() {
            let _ = self.lane.kernel.prefer(reference);
        }
        CallOutcome::DONE.shortening_slice(self.shortened())
    }

    /// Queues the running coroutine as a sender into a full channel.
    #[inline(never)]
    fn block_to_send(&mut self, at: u32, number: i64) -> CallOutcome {
        self.log_send(at);
        self.incomplete += 1;
        self.block_on(at, BlockReason::ChannelSend);
        let reference = self.tasks.reference_at(self.slot);
        let name = CoroutineName { session: self.session, reference };
        let channel = &mut self.channels[at as usize];
        let ticket = channel.ticket();
        self.tasks.live_at(self.slot).wait.replace_plain(Wait::Queued(ticket));
        let message = Message::Number(number);
        channel.push_sender(ticket, WaitingSender { name, local: true, message });
        CallOutcome::BLOCKED
    }

    /// Fast path of `Group::receive`: takes the first message, or blocks if `may_block`.
    #[inline(never)]
    fn receive(
        &mut self,
        handle: u32,
        pointer: u32,
        memory_bytes: u64,
        may_block: bool,
    ) -> CallOutcome {
        let at = handle.wrapping_sub(self.first_handle);
        let Some(channel) = self.channels.get_mut(at as usize) else {
            return CallOutcome::DECLINED;
        };
        if !channel.is_simple || u64::from(pointer) + 8 > memory_bytes {
            return CallOutcome::DECLINED;
        }
        if !channel.senders.is_empty() {
            return self.receive_and_admit(at);
        }
        let Some(number) = channel.queue.pop_number() else {
            return if may_block { self.block_to_receive(at) } else { CallOutcome::DECLINED };
        };
        self.log_receive(at);
        CallOutcome::number(number as u64)
    }

    /// Takes the first message of a full channel; that of the first blocked sender enters.
    #[inline(never)]
    fn receive_and_admit(&mut self, at: u32) -> CallOutcome {
        let channel = &mut self.channels[at as usize];
        let Some(sender) = channel.senders.front() else { return CallOutcome::DECLINED };
        let slot = sender.name.reference.slot;
        let Some((lane, task)) = self.tasks.live_on(slot) else { return CallOutcome::DECLINED };
        if lane != self.lane.id {
            return CallOutcome::DECLINED;
        }
        let Some(number) = channel.queue.pop_number() else { return CallOutcome::DECLINED };
        if let Some(sender) = channel.senders.pop() {
            channel.push(sender.message);
        }
        task.wait.replace_plain(Wait::Code(0));
        let reference = task.kernel;
        self.log_receive(at);
        self.lane.wake(self.session, slot, reference, WakeSource::Channel);
        CallOutcome::number(number as u64).shortening_slice(self.shortened())
    }

    /// Queues the running coroutine as a receiver.
    #[inline(never)]
    fn block_to_receive(&mut self, at: u32) -> CallOutcome {
        self.block_on(at, BlockReason::ChannelReceive);
        let (channel, task) = (&mut self.channels[at as usize], self.tasks.live_at(self.slot));
        let ticket = channel.ticket();
        task.wait.replace_plain(Wait::Taking(ticket));
        channel.receivers.push(ticket, self.slot);
        CallOutcome::BLOCKED
    }

    /// The running coroutine waits at a channel: the event, and how it leaves the lane.
    #[inline(always)]
    fn block_on(&mut self, at: u32, reason: BlockReason) {
        match self.channels[at as usize].events {
            Some(events) if reason == BlockReason::ChannelReceive => {
                self.lane.log.packed(events.wait);
            }
            _ => self.log_channel(at, |owner, index| Event::Wait {
                reason: reason as u64,
                owner,
                index,
            }),
        }
        self.departure = Departure::Block(reason);
    }

    /// How many cycles sooner the open slice ends, because a wake that it caused moved the clock.
    #[inline(always)]
    fn shortened(&mut self) -> u32 {
        let now = self.lane.kernel.slice_bound();
        (core::mem::replace(&mut self.bound_now, now) - now).0 as u32
    }

    /// Counts and logs a send.
    #[inline(always)]
    fn log_send(&mut self, at: u32) {
        self.messages += 1;
        match self.channels[at as usize].events {
            Some(events) => self.lane.log.packed(events.send),
            None => self.log_channel(at, |owner, index| Event::Send { owner, index }),
        }
    }

    /// Counts and logs a receive.
    #[inline(always)]
    fn log_receive(&mut self, at: u32) {
        self.calls += 1;
        match self.channels[at as usize].events {
            Some(events) => self.lane.log.packed(events.receive),
            None => self.log_channel(at, |owner, index| Event::Receive { owner, index }),
        }
    }

    /// The event of a channel whose numbers are too large to be packed.
    #[cold]
    #[inline(never)]
    fn log_channel(&mut self, at: u32, event: impl FnOnce(u64, u64) -> Event<'static>) {
        let index = u64::from(self.first_channel) + u64::from(at);
        self.lane.log.event(&event(u64::from(self.session.0), index));
    }
}

/// Switching.
impl Batch<'_> {
    /// Logs the slice that ends.
    #[inline(always)]
    fn log_end(&mut self, used: Cycles, ends: Ends) {
        let (stop, slot) = (ends.stop_code(), self.slot);
        self.lane.log.step(self.session.0, slot, self.overhead, used, stop);
        if let Ends::Coroutine(value) = ends {
            self.lane.log.event(&Event::End {
                session: u64::from(self.session.0),
                slot: u64::from(slot),
                status: EndStatus::Finished as u64,
                value,
            });
        }
    }

    /// Ends the open slice with a wait.
    #[inline(always)]
    fn leave(&mut self, used: Cycles, departure: Departure) -> Dispatch {
        let stop = match departure {
            Departure::Block(reason) => {
                self.incomplete += 1;
                wait_code(reason)
            }
            _ => StopCode::Slept,
        };
        self.switch(used, departure, Ends::Step(stop))
    }

    #[inline(never)]
    fn leave_asleep(&mut self, used: Cycles, until: Frame) -> Dispatch {
        self.leave(used, Departure::Sleep(until))
    }

    #[inline(never)]
    fn leave_otherwise(&mut self, used: Cycles, departure: Departure) -> Dispatch {
        self.leave(used, departure)
    }

    /// Ends the open slice and dispatches the next.
    #[inline(always)]
    fn switch(&mut self, used: Cycles, departure: Departure, ends: Ends) -> Dispatch {
        match self.lane.kernel.switch(used, departure) {
            Some(began) => {
                self.token = None;
                self.log_end(used, ends);
                self.open_slice(began)
            }
            None => self.switch_slow(used, departure, ends),
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_slow(&mut self, used: Cycles, departure: Departure, ends: Ends) -> Dispatch {
        let kernel = &mut self.lane.kernel;
        let running = self.token.take().unwrap_or_else(|| kernel.token(self.bound));
        let reference = running.reference();
        let _ = kernel.stop(running, used, departure.outcome());
        self.lane.log_cap_events();
        debug_assert!(
            self.lane.requests.is_empty(),
            "a batch has no contexts, and no session that its cap ends"
        );
        self.log_end(used, ends);
        let kernel = &mut self.lane.kernel;
        if departure == Departure::Finish {
            let _ = kernel.reap(reference).expect("the kernel just ended it");
        }
        let mark = kernel.clock();
        let next = kernel.dispatch();
        let overhead = kernel.clock() - mark;
        match next {
            Next::Run(running) => {
                let began = Began { tag: running.tag(), bound: running.bound(), overhead };
                self.token = Some(running);
                self.open_slice(began)
            }
            next => {
                (self.next, self.overhead) = (Some(next), overhead);
                self.lane.log_cap_events();
                Dispatch::NONE
            }
        }
    }

    /// Opens the slice that the kernel dispatched; the machine runs it if it is of this session.
    #[inline(always)]
    fn open_slice(&mut self, Began { tag, bound, overhead }: Began) -> Dispatch {
        debug_assert!(bound <= LONGEST_SLICE, "`may_batch` checked the lane");
        (self.bound, self.bound_now) = (bound, bound);
        (self.overhead, self.slot) = (overhead, tag.slot());
        if tag.session() == self.session.0 {
            Dispatch { slot: tag.slot(), cycles: bound.0 as u32 }
        } else {
            core::hint::cold_path();
            Dispatch::NONE
        }
    }
}

impl Group {
    /// Runs the open slice and those of the same session that follow it, until the machine stops
    /// for another reason than a switch.
    pub(crate) fn run_batch(&mut self, slice: Slice) -> Batched {
        let left = self.left(slice.site());
        let Slice { lane: lane_index, session, running, overhead, began } = slice;
        let (state, lane) = (&mut self.sessions[session], &mut self.lanes[lane_index]);
        let slot = running.tag().slot();
        let spent = state.tasks.used_at(slot) - began;
        let bound_now = lane.kernel.slice_bound();
        let (step_before, charged_before) = (lane.kernel.step(), lane.kernel.charged());
        let mut coroutines = CoroutineTable::new(core::mem::take(&mut state.tasks.coroutines));
        let made = state.made_channels as usize;
        let first_channel = state.channels.len() - made;
        let mut batch = Batch {
            session: state.id,
            spawn: state.spawn(slot),
            table: state.table.filter(|_| !state.exiting),
            has_replies: state.calls.as_ref().is_some_and(|calls| calls.open() > 0),
            first_handle: (state.handles.len() - made) as u32,
            first_channel: first_channel as u32,
            channels: &mut state.channels[first_channel..],
            tasks: &mut state.tasks,
            lane,
            slot,
            bound: running.bound(),
            bound_now,
            token: Some(running),
            overhead,
            next: None,
            frame: self.frame,
            departure: Departure::Yield,
            calls: 0,
            messages: 0,
            incomplete: 0,
            live: &mut self.live,
            wave_peak: &mut self.wave_peak,
            limit: state.limits.coroutines,
        };
        let first = (Dispatch { slot, cycles: left.0 as u32 }, spent.0 as u32);
        let BatchEnd { stop, used_before: began } = wavelock_machine::run_batch(
            &mut state.machine,
            &mut coroutines,
            first,
            &mut batch,
            YIELD,
        );

        // All charges, and all slices but the open one, belong to this session. Yields and sleeps
        // are completed host calls; a blocked call is counted when it is completed.
        let Batch { next, token, bound, overhead, calls, messages, incomplete, .. } = batch;
        let (is_open, lane) = (next.is_none(), &mut self.lanes[lane_index]);
        let steps = lane.kernel.step() - step_before + u64::from(!is_open);
        state.tasks.coroutines = coroutines.into_slots();
        state.host_calls += calls + messages + steps - incomplete;
        state.messages += messages;
        state.cycles += (lane.kernel.charged() - charged_before).0;
        lane.steps += steps;
        lane.mark = lane.kernel.clock() - overhead;
        if let Some(next) = next {
            return Batched::Left(next);
        }
        let running = token.unwrap_or_else(|| lane.kernel.token(bound));
        if running.tag().session() != state.id.0 {
            return Batched::Left(Next::Run(running));
        }
        let is_blocked = !state.tasks.live_at(running.tag().slot()).wait.is_none();
        match stop {
            Some(stop) if !is_blocked => {
                let slice = Slice { lane: lane_index, session, running, overhead, began };
                Batched::Stopped(slice, stop)
            }
            // The dispatched coroutine is blocked in a call that `Host::resume` did not complete.
            _ => Batched::Dispatched(self.open_slice(lane_index, running)),
        }
    }
}
