//! The state of a session: what running has changed since loading. Names, wiring and limits are the spec's.

use super::StateError;
use super::wire::{Plain, Reader, Writer, plain, tagged};
use crate::authority::{Capability, CapabilityEntry, MOST_CAPABILITIES};
use crate::call::{Call, Caller, Calls, Reply, ReplyEntry};
use crate::channel::{Channel, Message, WaitingSender, Wiring};
use crate::input::InputQueue;
use crate::observe::Chain;
use crate::random::{Key, Stream};
use crate::session::{FAULTS_KEPT, FaultRecord, Handle, Port, SessionOutcome, SessionState};
use crate::spec::Limits;
use crate::task::{EndStatus, Entry, Family, NONE, State, Task, TaskTable, Wait};
use crate::wait::{SeldomQueue, Ticket, WaitQueue};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use wavelock_abi::{ChannelId, ContextRef, CoroutineRef, FaultCode, HostOperation, SessionId};
use wavelock_kernel::Loan;
use wavelock_machine::{Coroutine, Session, decode_changes, encode_changes};

plain! {
    CapabilityEntry { generation, capability }
    Call { number, caller }
    Caller { name, lane, call }
    ContextRef { slot, generation }
    Loan { context, lender }
    Reply { caller, acceptor, loan }
    ReplyEntry { generation, reply }
    FaultRecord { coroutine, code, function, offset }
    WaitingSender { name, local, message }
}

tagged! {
    Capability {
        0 Control,
        1 Policy,
        2 Context(context),
    }
    Message {
        0 Number(number),
        1 Bytes(bytes),
        2 Call(call),
    }
    Handle {
        0 Own(index),
        1 Port(index),
    }
    Wait {
        0 None,
        1 Queued(ticket),
        2 Selecting(places),
        3 Joining { next, previous },
        4 Input(ticket),
        5 Lane,
        6 Code(code),
        7 Number(number),
        8 Bytes(bytes),
        // Never written: see `write_tasks`.
        9 Taking(ticket),
        10 Reply(call),
        11 Taken(taken),
        // Never written.
        12 Unborn { instance, word, argument },
    }
    EndStatus {
        0 Finished,
        1 Faulted,
        2 Canceled,
    }
    SessionOutcome {
        0 Finished,
        1 Faulted,
        2 Running,
        3 Deadlock,
    }
}

impl Plain for Ticket {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Plain::read(input).map(Self)
    }
}

impl Plain for FaultCode {
    fn write(&self, out: &mut Writer) {
        out.out.push(*self as u8);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let code = u8::read(input)?;
        Self::from_code(code).ok_or(input.wrong("the code of a fault"))
    }
}

impl Plain for Key {
    fn write(&self, out: &mut Writer) {
        out.raw(self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        input.raw().map(Self)
    }
}

impl Plain for Stream {
    fn write(&self, out: &mut Writer) {
        let Self { state } = self;
        state.iter().for_each(|word| out.raw(*word));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(Self { state: [input.raw()?, input.raw()?, input.raw()?, input.raw()?] })
    }
}

impl Plain for Chain {
    fn write(&self, out: &mut Writer) {
        let Self { state, pending } = self;
        state.write(out);
        out.blob(pending);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let (state, pending) = (Plain::read(input)?, input.blob()?);
        input.check("a block that is full", pending.len() < Self::BLOCK)?;
        Ok(Self { state, pending: pending.into() })
    }
}

/// Waiters with their tickets; gaps are not state.
impl<T: Plain> Plain for WaitQueue<T> {
    fn write(&self, out: &mut Writer) {
        write_waiters(self.len(), self.tickets(), out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let mut queue = Self::new();
        for _ in 0..input.count()? {
            let (ticket, waiter): (Ticket, T) = Plain::read(input)?;
            input.check("tickets out of order", queue.latest().is_none_or(|last| last < ticket))?;
            queue.push(ticket, waiter);
        }
        Ok(queue)
    }
}

/// As [`WaitQueue`]: that nobody ever waited in one is not state.
impl<T: Plain> Plain for SeldomQueue<T> {
    fn write(&self, out: &mut Writer) {
        write_waiters(self.len(), self.tickets(), out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(WaitQueue::read(input)?.into())
    }
}

fn write_waiters<'a, T: Plain + 'a>(count: usize, waiters: impl Iterator<Item = (Ticket, &'a T)>, out: &mut Writer) {
    out.count(count);
    for (ticket, waiter) in waiters {
        ticket.write(out);
        waiter.write(out);
    }
}

fn write_channel(channel: &Channel, out: &mut Writer) {
    let Channel {
        way: _,
        handed: _,
        wait: _,
        capacity,
        closed,
        touched: _,
        is_plain: _,
        send: _,
        queue,
        received: _,
        next_ticket,
        // With the taker, which `way` says.
        receivers: _,
        wiring,
        senders,
        selectors,
    } = channel;
    capacity.write(out);
    out.count(queue.len() as usize);
    queue.for_each(|message| message.write(out));
    out.count(channel.receivers().count());
    channel.receivers().for_each(|receiver| receiver.write(out));
    selectors.write(out);
    senders.write(out);
    closed.write(out);
    next_ticket.write(out);
    // Lanes, credits, home and the count of open senders follow from who is where and which ports are open.
    if let Some(wiring) = wiring {
        let Wiring { lanes: _, credits: _, home: _, free, open_senders: _ } = &**wiring;
        free.write(out);
    }
}

/// Reads the channel `id`; `wiring` is that of the channel in a machine that was just loaded, if the manifest has it.
fn read_channel(input: &mut Reader<'_>, id: ChannelId, wiring: Option<Box<Wiring>>) -> Result<Channel, StateError> {
    let mut channel = Channel::new(id, u32::read(input)?, wiring);
    for _ in 0..input.count()? {
        channel.push(Message::read(input)?);
    }
    (channel.receivers, channel.selectors, channel.senders) = (Plain::read(input)?, Plain::read(input)?, Plain::read(input)?);
    (channel.closed, channel.next_ticket) = Plain::read(input)?;
    if let Some(wiring) = &mut channel.wiring {
        wiring.free = Plain::read(input)?;
        input.check("free space beyond the capacity", wiring.free <= channel.capacity)?;
    }
    let latest = [channel.receivers.latest(), channel.selectors.latest(), channel.senders.latest()];
    let known = latest.iter().flatten().all(|ticket| ticket.0 <= channel.next_ticket);
    input.check("a ticket that was not given", known)?;
    channel.renew();
    Ok(channel)
}

fn write_input(queue: &InputQueue, out: &mut Writer) {
    // What is coming is counted again from the inputs.
    let InputQueue { events, read, coming: _, stream, waiting, next_ticket } = queue;
    out.count(events.len());
    events.iter().for_each(|event| event.write(out));
    (*read as u64).write(out);
    stream.write(out);
    waiting.write(out);
    next_ticket.write(out);
}

fn read_input(input: &mut Reader<'_>, fresh: &InputQueue) -> Result<InputQueue, StateError> {
    let mut events: VecDeque<Box<[u8]>> = VecDeque::new();
    for _ in 0..input.count()? {
        events.push_back(Plain::read(input)?);
    }
    let read = u64::read(input)? as usize;
    let within = events.front().map_or(read == 0, |event| read <= event.len());
    input.check("bytes read of an input", within)?;
    let (stream, waiting) = Plain::read(input)?;
    let queue = InputQueue { events, read, coming: fresh.coming, stream, waiting, next_ticket: Plain::read(input)? };
    input.check("a ticket that was not given", queue.waiting.latest().is_none_or(|ticket| ticket.0 <= queue.next_ticket))?;
    Ok(queue)
}

const FREE: u8 = 0;
const LIVE: u8 = 1;
const ENDED: u8 = 2;

fn write_tasks(tasks: &TaskTable, out: &mut Writer) {
    // What is occupied and lives is counted again.
    let TaskTable {
        entries,
        families: _,
        coroutines: _,
        late: _,
        streams,
        free,
        occupied: _,
        live: _,
        peak,
        published,
        finished,
        faulted,
        unjoined_faults,
    } = tasks;
    out.count(entries.len());
    for (slot, entry) in (0u32..).zip(entries) {
        let Entry { generation, detached, lane, state } = &**entry;
        (*generation, *detached).write(out);
        match state {
            State::Free { next: _ } => out.out.push(FREE),
            State::Live(task) => {
                out.out.push(LIVE);
                let (Task { kernel, key, wait }, Family { spawned, joiners }) = (task, tasks.family(slot));
                (*kernel, *key).write(out);
                streams.get(&slot).cloned().map(Box::new).write(out);
                match wait {
                    // What it stands in the queue for is in its call.
                    Wait::Taking(ticket) => Wait::Queued(*ticket).write(out),
                    // What it begins with is in its stack.
                    Wait::Unborn { .. } => Wait::None.write(out),
                    wait => wait.write(out),
                }
                (spawned, (joiners, *lane)).write(out);
            }
            State::Ended { status, value } => {
                out.out.push(ENDED);
                (*status, *value).write(out);
            }
        }
    }
    let mut list = Vec::new();
    let mut slot = *free;
    while let Some(State::Free { next }) = entries.get(slot as usize).map(|entry| &entry.state) {
        list.push(slot);
        slot = *next;
    }
    list.write(out);
    peak.write(out);
    [*published, *finished, *faulted, *unjoined_faults].write(out);
}

/// Reads coroutines; their stacks have been read by the machine and come in slot order.
fn read_tasks(input: &mut Reader<'_>, coroutines: Vec<Coroutine>) -> Result<TaskTable, StateError> {
    let mut coroutines = coroutines.into_iter();
    let mut tasks = TaskTable::new();
    let mut ended_faulted = 0;
    for _ in 0..input.count()? {
        let (generation, detached) = Plain::read(input)?;
        input.check("a generation beyond the last", generation <= CoroutineRef::LAST_GENERATION)?;
        let (mut stack, mut lane) = (Coroutine::vacant(), 0);
        let state = match u8::read(input)? {
            FREE => State::Free { next: NONE },
            LIVE => {
                stack = coroutines.next().ok_or(input.wrong("a coroutine without a stack"))?;
                let (kernel, key) = Plain::read(input)?;
                let (random, wait) = (Option::<Box<Stream>>::read(input)?, Plain::read(input)?);
                if let Some(stream) = random {
                    tasks.streams.insert(tasks.entries.len() as u32, *stream);
                }
                let takes = stack.host_call().is_some_and(|call| call.number == HostOperation::Recv as u16);
                let wait = match wait {
                    Wait::Queued(ticket) | Wait::Taking(ticket) if takes => Wait::Taking(ticket),
                    Wait::Taking(_) | Wait::Unborn { .. } => return Err(input.wrong("the wait of a coroutine")),
                    wait => wait,
                };
                let (spawned, (joiners, own_lane)) = Plain::read(input)?;
                lane = own_lane;
                input.check("children of a coroutine", spawned < u32::MAX / 2)?;
                tasks.live += 1;
                if (spawned, joiners) != (0, NONE) {
                    *tasks.family_mut(tasks.entries.len() as u32) = Family { spawned, joiners };
                }
                State::Live(Task { kernel, key, wait })
            }
            ENDED => {
                let (status, value) = Plain::read(input)?;
                ended_faulted += u64::from(status == EndStatus::Faulted);
                State::Ended { status, value }
            }
            _ => return Err(input.wrong("the state of a coroutine")),
        };
        tasks.occupied += u32::from(!matches!(state, State::Free { .. }));
        tasks.entries.push(ManuallyDrop::new(Entry { generation, detached, lane, state }));
        tasks.coroutines.push(stack);
    }
    input.check("a stack without a coroutine", coroutines.next().is_none())?;
    let list: Vec<u32> = Plain::read(input)?;
    let mut listed = alloc::vec![false; tasks.entries.len()];
    for &slot in list.iter().rev() {
        match tasks.entries.get_mut(slot as usize).map(|entry| &mut entry.state) {
            Some(State::Free { next }) if !core::mem::replace(&mut listed[slot as usize], true) => *next = tasks.free,
            _ => return Err(input.wrong("the list of free slots")),
        }
        tasks.free = slot;
    }
    tasks.peak = Plain::read(input)?;
    [tasks.published, tasks.finished, tasks.faulted, tasks.unjoined_faults] = Plain::read(input)?;
    input.check("faults that nobody joined", tasks.unjoined_faults >= ended_faulted)?;
    Ok(tasks)
}

/// Everything of a session that running changes.
// Long: one list of fields, each with its place.
pub(crate) fn write(state: &SessionState, out: &mut Writer) {
    let SessionState {
        id: _,
        name: _,
        machine,
        memory: _,
        table: _,
        stack_pointer: _,
        startup,
        lanes,
        priority: _,
        weight: _,
        class: _,
        tasks,
        channels,
        made_channels: _,
        ports,
        handles,
        port_names: _,
        args: _,
        env: _,
        input,
        // Output and log have left at a boundary; costs in detail are not state.
        output: _,
        log: _,
        log_dropped,
        output_chain,
        closed_streams,
        cycles,
        host_calls,
        profile: _,
        messages,
        exit,
        exiting,
        ended,
        first_faulted,
        faults,
        capabilities,
        calls,
    } = state;
    ended.write(out);
    lanes.write(out);
    if ended.is_none() {
        let coroutines: Vec<Cow<'_, Coroutine>> = tasks.iter_live().filter_map(|(slot, _)| tasks.coroutine_ref(slot)).collect();
        let coroutines: Vec<&Coroutine> = coroutines.iter().map(|coroutine| &**coroutine).collect();
        let stacks: u64 = coroutines.iter().map(|coroutine| coroutine.stack_bytes()).sum();
        debug_assert_eq!(machine.stack_bytes_held(), stacks, "what the stacks of a session hold is their sum");
        out.blob(&encode_changes(machine, &coroutines));
    }
    out.count(startup.len());
    write_tasks(tasks, out);
    out.count(channels.len());
    channels.iter().for_each(|channel| write_channel(channel, out));
    for Port { channel: _, name: _, home: _, credits: _, closed, sent } in ports {
        closed.write(out);
        sent.write(out);
    }
    handles.write(out);
    write_input(input, out);
    output_chain.write(out);
    closed_streams.write(out);
    [*log_dropped, *cycles, *host_calls, *messages].write(out);
    (*exit, (*exiting, *first_faulted)).write(out);
    faults.write(out);
    if let Some(capabilities) = capabilities {
        capabilities.entries.write(out);
    }
    if let Some(calls) = calls {
        let Calls { made, replies, answered, inside: _, free: _, taken: _ } = &**calls;
        made.write(out);
        replies.write(out);
        answered.write(out);
    }
}

/// The lanes of a session, and how it ended: what must be known before the rest can be put in its place.
pub(crate) struct Placed {
    pub(crate) ended: Option<SessionOutcome>,
    pub(crate) lanes: Vec<u16>,
}

impl Plain for Placed {
    fn write(&self, out: &mut Writer) {
        let Self { ended, lanes } = self;
        ended.write(out);
        lanes.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(Self { ended: Plain::read(input)?, lanes: Plain::read(input)? })
    }
}

/// Reads the rest of a session into one that was just loaded.
pub(crate) fn read(input: &mut Reader<'_>, state: &mut SessionState, placed: Placed, limits: &Limits) -> Result<(), StateError> {
    let session = state.id;
    state.ended = placed.ended;
    state.lanes = placed.lanes;
    let coroutines = if placed.ended.is_none() {
        decode_changes(&mut state.machine, input.blob()?).map_err(|error| StateError::Machine { session, error })?
    } else {
        state.machine = Session::new(*state.machine.limits());
        Vec::new()
    };
    let calls_left = input.count()?;
    input.check("calls that are left", calls_left <= state.startup.len())?;
    // They are called from the end.
    state.startup.truncate(calls_left);
    state.tasks = read_tasks(input, coroutines)?;
    input.check("an ended session with coroutines", placed.ended.is_none() == (state.tasks.live > 0))?;
    read_channels(input, state, limits)?;
    for port in &mut state.ports {
        (port.closed, port.sent) = Plain::read(input)?;
    }
    state.handles = Plain::read(input)?;
    let known = state.handles.iter().all(|handle| match handle {
        Handle::Own(index) => (*index as usize) < state.channels.len(),
        Handle::Port(index) => (*index as usize) < state.ports.len(),
    });
    input.check("a handle of nothing", known && state.handles.len() >= state.channels.len())?;
    let (made, first) = (state.made_channels as usize, state.channels.len() as u32 - state.made_channels);
    let made_handles = state.handles[state.handles.len() - made..].iter();
    input.check(
        "the handles of channels that a guest made",
        made_handles.zip(first..).all(|(handle, index)| *handle == Handle::Own(index)),
    )?;
    state.input = read_input(input, &state.input)?;
    state.output_chain = Plain::read(input)?;
    state.closed_streams = Plain::read(input)?;
    [state.log_dropped, state.cycles, state.host_calls, state.messages] = Plain::read(input)?;
    (state.exit, (state.exiting, state.first_faulted)) = Plain::read(input)?;
    state.faults = Plain::read(input)?;
    input.check("faults that are kept", state.faults.len() <= FAULTS_KEPT)?;
    // No byte says whether there is a table: the spec does.
    if let Some(capabilities) = &mut state.capabilities {
        capabilities.entries = Plain::read(input)?;
        input.check("a table of capabilities", capabilities.entries.len() <= MOST_CAPABILITIES)?;
    }
    if let Some(calls) = &mut state.calls {
        calls.made = Plain::read(input)?;
        calls.replies = Plain::read(input)?;
        calls.answered = Plain::read(input)?;
        let acceptors = calls.replies.iter().filter_map(|entry| entry.reply.as_ref()).map(|reply| reply.acceptor);
        input.check("a reply of nobody", acceptors.into_iter().all(|slot| state.tasks.is_live(slot)))?;
        input.check("a table of replies", calls.collect())?;
    }
    state.count_calls();
    Ok(())
}

/// Channels of the manifest first, in their order; then those that the guest made.
fn read_channels(input: &mut Reader<'_>, state: &mut SessionState, limits: &Limits) -> Result<(), StateError> {
    let fresh = core::mem::take(&mut state.channels);
    let wired = fresh.len();
    let count = input.count()?;
    state.made_channels = count.checked_sub(wired).and_then(|made| u32::try_from(made).ok()).ok_or(input.wrong("missing channels"))?;
    input.check("channels that a guest made", state.made_channels <= limits.channels)?;
    let mut wirings = fresh.into_iter().map(|channel| (channel.capacity, channel.wiring));
    for index in 0..count {
        let (capacity, wiring) = wirings.next().map_or((None, None), |(capacity, wiring)| (Some(capacity), wiring));
        let channel = read_channel(input, ChannelId { owner: state.id, index: index as u32 }, wiring)?;
        let allowed = capacity.map_or(1..=limits.channel_capacity, |capacity| capacity..=capacity);
        input.check("the capacity of a channel", allowed.contains(&channel.capacity))?;
        state.channels.push(channel);
    }
    Ok(())
}

/// Whether a session may be on these lanes.
pub(crate) fn can_be_on(lanes: &[u16], spec: &crate::spec::MachineSpec, session: SessionId) -> bool {
    let known = spec.sessions[session.0 as usize].placement.lanes();
    if known.len() > 1 || spec.sessions[session.0 as usize].pinned {
        return lanes == known;
    }
    matches!(lanes, [lane] if *lane < spec.lanes)
}
