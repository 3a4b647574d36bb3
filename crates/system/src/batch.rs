//! A batch: slices of one session, one after the other, without leaving the machine in between.
//!
//! Contract: the same steps, with the same log and state, as the slow path ([`Group::step`] with
//! `host`) makes one by one; `in_place` and `step_equals_run` compare both. Each operation here
//! checks everything before its first change, and otherwise leaves all of it to the slow path.
//!
//! Fast paths, each with what it skips:
//! - switch: a yield, sleep, block or end and the next dispatch in one call of the kernel, without
//!   a token, a return from the machine and a new start of it;
//! - send and receive of numbers over a channel that the guest made ([`Channel::is_simple`]): no
//!   stop of the machine, no lookup of handles, ports and credits;
//! - resume: a number that a dispatched receiver waited for is written as it is dispatched;
//! - spawn: no stack until the first slice ([`Wait::Unborn`]).

use crate::channel::Channel;
use crate::group::{Group, LaneState};
use crate::host::is_entry;
use crate::step::{Batched, Slice, wait_code};
use crate::task::{EndStatus, Task, TaskTable, Wait};
use wavelock_abi::{Cycles, Frame, HostOperation, SessionId};
use wavelock_kernel::{Began, BlockReason, Departure, Next, Running, Spawn, Tag, WakeSource};
use wavelock_machine::{
    Ahead, Answer, Coroutine, Coroutines, Host, Newborn, Nursery, TableAddress, Turn, Turned,
};
use wavelock_module::FunctionType;
use wavelock_trace::{Event, StopCode};

/// The longest slice that can be part of a batch: the machine counts its cycles in 32 bits.
pub(crate) const LONGEST_SLICE: Cycles = Cycles(Turn::LONGEST as u64);

/// From this many live coroutines on, those that will run next are prefetched: their records do not
/// fit a cache. Without prefetching, a yield among 1,000,000 coroutines in random order takes 2.0
/// times as long, and a wake of one of 1,000,000 sleepers 3.0 times.
const MANY: u32 = 32_768;

const RECV: u16 = HostOperation::Recv as u16;
const SEND: u16 = HostOperation::Send as u16;
const SLEEP: u16 = HostOperation::Sleep as u16;
const SPAWN: u16 = HostOperation::Spawn as u16;
const TRY_RECV: u16 = HostOperation::TryRecv as u16;
const TRY_SEND: u16 = HostOperation::TrySend as u16;
const YIELD: u16 = HostOperation::Yield as u16;

/// What the machine's loop calls while slices of one session run.
struct Batch<'a> {
    session: SessionId,
    /// The channels that the guest made itself; those of the manifest are never on the fast path.
    channels: &'a mut [Channel],
    /// The handle of the first of `channels`; the others follow it.
    first_handle: u32,
    /// The number of the first of `channels` among all of the session.
    first_channel: u32,
    /// The session's coroutines; their stacks are with the machine meanwhile.
    tasks: &'a mut TaskTable,
    lane: &'a mut LaneState,
    /// The running coroutine.
    slot: u32,
    /// The token of the open slice, if the slow path dispatched it.
    token: Option<Running>,
    /// The bound of the open slice.
    bound: Cycles,
    /// The lane's overhead before the open slice.
    overhead: Cycles,
    /// What the lane does next, once no slice is open.
    left: Option<Next>,
    frame: Frame,
    /// The frame that the running coroutine goes to sleep until; otherwise it blocks to receive.
    sleeps_until: Option<Frame>,
    /// Host calls that were answered, but for yields and sleeps.
    calls: u64,
    /// Messages that were sent.
    messages: u64,
    /// Slices that ended without an answer to a host call: in a block or an end.
    unanswered: u64,
    /// Live coroutines of the group, and the most there were in this wave.
    live: &'a mut u64,
    wave_peak: &'a mut u64,
    /// The table of entry functions, if the session may spawn.
    table: Option<TableAddress>,
    /// What the kernel needs of a spawned coroutine.
    spawn: Spawn,
    /// The most coroutines of the session.
    limit: u32,
    /// Calls were taken and not answered: a coroutine that ends may owe an answer.
    has_replies: bool,
}

impl Host for Batch<'_> {
    #[inline(always)]
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> Answer {
        match number {
            SEND | TRY_SEND => self.send(first as u32, second as i64),
            RECV => self.receive(first as u32, second as u32, memory_bytes, true),
            TRY_RECV => self.receive(first as u32, second as u32, memory_bytes, false),
            SPAWN => self.table.map_or(Answer::STOP, Answer::start),
            _ => Answer::STOP,
        }
    }

    #[inline(never)]
    fn last(&mut self, number: u16, argument: u64) -> bool {
        if number != SLEEP || argument as i64 <= 0 {
            return false;
        }
        self.lane.log.event(&Event::Sleep { frames: argument });
        self.sleeps_until = Some(Frame(self.frame.0.saturating_add(argument)));
        true
    }

    #[inline(always)]
    fn pass(&mut self, used: Cycles) -> Turn {
        self.log_step(used, StopCode::Yielded);
        self.switch(used, Departure::Yield)
    }

    #[inline(always)]
    fn leave(&mut self, used: Cycles) -> Turn {
        if let Some(frame) = self.sleeps_until {
            return self.sleep(used, frame);
        }
        const RECEIVES: BlockReason = BlockReason::ChannelReceive;
        self.unanswered += 1;
        self.log_step(used, const { wait_code(RECEIVES) });
        self.switch(used, Departure::Block(RECEIVES))
    }

    #[inline(never)]
    fn finish(&mut self, used: Cycles, value: u64) -> Turn {
        let slot = self.slot;
        if self.has_replies || !self.tasks.finish(slot, value as i64) {
            return Turn::GOES_ON;
        }
        self.log_step(used, StopCode::Finished);
        self.lane.log.event(&Event::End {
            session: u64::from(self.session.0),
            slot: u64::from(slot),
            status: EndStatus::Finished as u64,
            value,
        });
        self.unanswered += 1;
        *self.live -= 1;
        self.switch(used, Departure::Finish)
    }

    #[inline(always)]
    fn ahead(&mut self, each: &mut dyn FnMut(u32, Ahead)) -> u32 {
        if self.tasks.live() < MANY {
            return 0;
        }
        let session = self.session.0;
        self.lane.kernel.prefetch(|tags| {
            for ahead in [Ahead::Far, Ahead::Near] {
                for tag in tags.iter().filter(|tag| tag.session() == session) {
                    each(tag.slot(), ahead);
                }
            }
        })
    }

    fn begins(&self, kind: &FunctionType) -> bool {
        is_entry(kind)
    }

    /// Fast path of `Group::spawn`, where nothing is refused.
    #[inline(never)]
    fn begin(&mut self, newborn: Newborn, places: u32) -> (u32, u64) {
        const REFUSED: (u32, u64) = (Turn::NOBODY.slot, 0);
        if self.tasks.occupied() >= self.limit {
            return REFUSED;
        }
        let reference = self.tasks.next_reference();
        let slot = reference.slot;
        let spawn = Spawn { tag: Tag::new(self.session.0, slot), ..self.spawn };
        let Ok(kernel) = self.lane.publish(spawn) else { return REFUSED };
        let key = self.tasks.child_key(self.slot);
        let wait = if slot < places { Wait::None } else { Wait::unborn(newborn) };
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
    fn take(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        self.tasks.take(slot, into)
    }

    fn keep(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        coroutines: &mut dyn Coroutines,
        is_needed: bool,
    ) {
        if is_needed {
            self.tasks.put(slot, coroutine, coroutines);
        } else {
            self.tasks.keep(slot, coroutine, coroutines);
        }
    }

    /// Fast path of `Group::finish_wait`: the dispatched coroutine waited for a number.
    #[inline(always)]
    fn number(&mut self, slot: u32, put: &mut dyn FnMut(u64) -> bool) -> bool {
        let Some(Task { wait, .. }) = self.tasks.live_get(slot) else { return false };
        let Wait::Number(number) = *wait else { return false };
        if !put(number as u64) {
            return false;
        }
        *wait = Wait::None;
        self.calls += 1;
        true
    }
}

/// Messages.
impl Batch<'_> {
    /// The channel of a handle, if it is one that the guest made: any other handle, a negative one
    /// too, gives a position beyond the end.
    #[inline(always)]
    const fn position(&self, handle: u32) -> u32 {
        handle.wrapping_sub(self.first_handle)
    }

    /// Fast path of `Group::send`: into a queue with room, or to the first waiting receiver.
    /// Not inlined, as `receive` is not, so that neither takes registers from the machine's loop.
    #[inline(never)]
    fn send(&mut self, handle: u32, number: i64) -> Answer {
        let at = self.position(handle);
        let owner = u64::from(self.session.0);
        let index = u64::from(self.first_channel) + u64::from(at);
        let Some(channel) = self.channels.get_mut(at as usize) else { return Answer::STOP };
        if !channel.is_simple {
            return Answer::STOP;
        }
        let Some(&slot) = channel.receivers.front() else {
            if channel.queue.len() >= channel.capacity || !channel.queue.push_number(number) {
                return Answer::STOP;
            }
            self.messages += 1;
            self.calls += 1;
            self.lane.log.event(&Event::Send { owner, index });
            return Answer::DONE;
        };
        let Some((lane, task)) = self.tasks.live_on(slot) else { return Answer::STOP };
        let is_here = lane == self.lane.id && matches!(task.wait, Wait::Taking(_));
        if !is_here || !channel.queue.is_empty() {
            return Answer::STOP;
        }
        channel.receivers.pop();
        task.wait = Wait::Number(number);
        self.messages += 1;
        self.calls += 1;
        self.lane.log.event(&Event::Send { owner, index });
        let before = self.lane.kernel.left_in_slice();
        self.lane.wake(self.session, slot, task.kernel, WakeSource::Channel);
        if self.lane.kernel.hands_off() {
            let _ = self.lane.kernel.prefer(task.kernel);
        }
        Answer::DONE.sooner((before - self.lane.kernel.left_in_slice()).0 as u32)
    }

    /// Fast path of `Group::receive`: from a queue that is not empty, or a wait, if it may.
    #[inline(never)]
    fn receive(&mut self, handle: u32, pointer: u32, memory_bytes: u64, waits: bool) -> Answer {
        let at = self.position(handle);
        let owner = u64::from(self.session.0);
        let index = u64::from(self.first_channel) + u64::from(at);
        let Some(channel) = self.channels.get_mut(at as usize) else { return Answer::STOP };
        if !channel.is_simple || u64::from(pointer) + 8 > memory_bytes {
            return Answer::STOP;
        }
        if let Some(number) = channel.queue.pop_number() {
            self.calls += 1;
            self.lane.log.event(&Event::Receive { owner, index });
            return Answer::number(number as u64);
        }
        let Some(task) = self.tasks.live_get(self.slot).filter(|_| waits) else {
            return Answer::STOP;
        };
        let ticket = channel.ticket();
        channel.receivers.push(ticket, self.slot);
        task.wait = Wait::Taking(ticket);
        self.lane.log.event(&Event::Wait {
            reason: BlockReason::ChannelReceive as u64,
            owner,
            index,
        });
        Answer::WAIT
    }
}

/// Switching.
impl Batch<'_> {
    /// The event of the slice that ends now.
    #[inline(always)]
    fn log_step(&mut self, used: Cycles, stop: StopCode) {
        self.lane.log.step(self.session.0, self.slot, self.overhead, used, stop);
    }

    #[inline(never)]
    fn sleep(&mut self, used: Cycles, frame: Frame) -> Turn {
        self.sleeps_until = None;
        self.log_step(used, StopCode::Slept);
        self.switch(used, Departure::Sleep(frame))
    }

    /// Ends the open slice and dispatches the next.
    #[inline(always)]
    fn switch(&mut self, used: Cycles, departure: Departure) -> Turn {
        match self.lane.kernel.switch(used, departure) {
            Some(began) => {
                self.token = None;
                self.begin_slice(began)
            }
            None => self.switch_slow(used, departure),
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_slow(&mut self, used: Cycles, departure: Departure) -> Turn {
        let kernel = &mut self.lane.kernel;
        let running = self.token.take().unwrap_or_else(|| kernel.token(self.bound));
        let reference = running.reference();
        let _ = kernel.stop(running, used, departure.outcome());
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
                self.begin_slice(began)
            }
            next => {
                (self.left, self.overhead) = (Some(next), overhead);
                Turn::NOBODY
            }
        }
    }

    /// The slice that the kernel has begun, if it is one of this session.
    #[inline(always)]
    fn begin_slice(&mut self, Began { tag, bound, overhead }: Began) -> Turn {
        debug_assert!(bound <= LONGEST_SLICE, "such a lane has no batches");
        (self.bound, self.overhead, self.slot) = (bound, overhead, tag.slot());
        if tag.session() == self.session.0 {
            Turn { slot: tag.slot(), cycles: bound.0 as u32 }
        } else {
            core::hint::cold_path();
            Turn::NOBODY
        }
    }
}

impl Group {
    /// Runs the open slice and those that follow it in the same session, until the machine stops
    /// for another reason than a switch.
    pub(crate) fn run_batch(&mut self, slice: Slice) -> Batched {
        let left = self.left(slice.site());
        let Slice { lane: lane_index, session, running, overhead, began } = slice;
        let (state, lane) = (&mut self.sessions[session], &mut self.lanes[lane_index]);
        let slot = running.tag().slot();
        let spent = state.tasks.coroutine_at(slot).used() - began;
        let (step_before, charged_before) = (lane.kernel.step(), lane.kernel.charged());
        let mut coroutines = Nursery::new(core::mem::take(&mut state.tasks.coroutines));
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
            token: Some(running),
            overhead,
            left: None,
            frame: self.frame,
            sleeps_until: None,
            calls: 0,
            messages: 0,
            unanswered: 0,
            live: &mut self.live,
            wave_peak: &mut self.wave_peak,
            limit: self.shared.limits.coroutines,
        };
        let first = (Turn { slot, cycles: left.0 as u32 }, spent.0 as u32);
        let Turned { stop, began } = wavelock_machine::run_turns(
            &mut state.machine,
            &mut coroutines,
            first,
            &mut batch,
            YIELD,
        );

        // All that was charged, and all slices but the open one, belong to this session. A yield
        // and a sleep are host calls that were answered; a blocked call is counted once it is.
        let Batch { left, token, bound, overhead, calls, messages, unanswered, .. } = batch;
        let (is_open, lane) = (left.is_none(), &mut self.lanes[lane_index]);
        let steps = lane.kernel.step() - step_before + u64::from(!is_open);
        state.tasks.coroutines = coroutines.into_places();
        state.host_calls += calls + steps - unanswered;
        state.messages += messages;
        state.cycles += (lane.kernel.charged() - charged_before).0;
        lane.steps += steps;
        lane.mark = lane.kernel.clock() - overhead;
        if let Some(next) = left {
            return Batched::Left(next);
        }
        let running = token.unwrap_or_else(|| lane.kernel.token(bound));
        if running.tag().session() != state.id.0 {
            return Batched::Left(Next::Run(running));
        }
        let is_waiting = !state.tasks.live_at(running.tag().slot()).wait.is_none();
        match stop {
            Some(stop) if !is_waiting => {
                let slice = Slice { lane: lane_index, session, running, overhead, began };
                Batched::Stopped(slice, stop)
            }
            // The open slice is that of a coroutine whose answer the machine does not have.
            _ => Batched::Dispatched(self.open_slice(lane_index, running)),
        }
    }
}
