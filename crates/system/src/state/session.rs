//! The fields of a session that running changes. Names, wiring and limits come from the spec.

use super::StateError;
use crate::ask::Asks;
use crate::authority::{Capabilities, Capability, CapabilityEntry, MOST_CAPABILITIES};
use crate::call::{Call, Caller, Calls, Reply, ReplyEntry};
use crate::channel::{Channel, Message, WaitingSender, Wiring};
use crate::codec::{
    Codec, CodecError, Reader, Unlimited, Update, Writer, codes, converted, newtypes, parts,
    record, variants,
};
use crate::input::{InputQueue, Unread};
use crate::kill::{KILLS_KEPT, KillRecord, KillRule, Kills};
use crate::observe::Chain;
use crate::queue::Queue;
use crate::random::{Key, Stream};
use crate::session::{FAULTS_KEPT, FaultRecord, Handle, Port, SessionOutcome, SessionState};
use crate::task::{EndStatus, Entry, Family, NONE, State, Task, TaskTable, Wait};
use crate::wait::{SeldomQueue, Ticket, WaitQueue};
use crate::watch::Watches;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineRef, FaultCode, HostOperation, LeaseRef, SessionId};
use wavelock_kernel::Loan;
use wavelock_machine::{Coroutine, Session, decode_changes, encode_changes};

record! {
    CapabilityEntry { generation, capability }
    Call { number, caller }
    Caller { name, lane, call }
    ContextRef { slot, generation }
    LeaseRef { lane, generation }
    Loan { context, lender }
    Reply { caller, acceptor, loan }
    ReplyEntry { generation, reply }
    FaultRecord { coroutine, code, function, offset }
    KillRecord { coroutine, rule, lane, handle, frame, clock, budget, overrun }
    Kills { records, count, first }
    WaitingSender { name, local, message }
}

variants! {
    Capability {
        0 Control,
        1 Policy,
        2 Context(context),
        3 Isolation,
        4 Lease(lease),
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
        12 NotStarted { instance, word, argument },
        13 Parked,
        14 Session(ticket),
        15 Asking(number),
        16 Lease,
    }
    EndStatus {
        0 Finished,
        1 Faulted,
        2 Canceled,
        3 Killed,
    }
    SessionOutcome {
        0 Finished,
        1 Faulted,
        2 Running,
        3 Deadlock,
        4 Killed,
        5 Canceled,
    }
}

codes! {
    FaultCode: FaultCode::from_code;
    KillRule: KillRule::from_code;
    Unread: Unread::from_code;
}

newtypes! {
    Codec: Ticket;
    Unlimited: Key;
}

/// Words for which every bit pattern is valid.
impl Codec for Stream {
    fn write(&self, out: &mut Writer) {
        self.state.iter().for_each(|word| Unlimited::write(word, out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut word = || Unlimited::read(input);
        Ok(Self { state: [word()?, word()?, word()?, word()?] })
    }
}

converted! {
    Chain as ([u8; 32], Box<[u8]>): |chain| (chain.state, chain.pending[..].into()),
        |(state, pending)| (pending.len() < Chain::BLOCK)
            .then(|| Chain { state, pending: pending.into() }),
        "a block that is full";
}

/// Waiters with their tickets; gaps are not state.
impl<T: Codec> Codec for WaitQueue<T> {
    fn write(&self, out: &mut Writer) {
        out.count(self.len());
        for (ticket, waiter) in self.tickets() {
            ticket.write(out);
            waiter.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut queue = Self::new();
        for _ in 0..input.count()? {
            let (ticket, waiter): (Ticket, T) = Codec::read(input)?;
            input.check("tickets out of order", queue.latest().is_none_or(|last| last < ticket))?;
            queue.push(ticket, waiter);
        }
        Ok(queue)
    }
}

impl<T: Codec> Codec for SeldomQueue<T> {
    fn write(&self, out: &mut Writer) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(WaitQueue::read(input)?.into())
    }
}

impl Codec for Queue {
    fn write(&self, out: &mut Writer) {
        out.count(self.len() as usize);
        self.for_each(|message| message.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut queue = Self::new();
        for _ in 0..input.count()? {
            queue.push_back(Message::read(input)?);
        }
        Ok(queue)
    }
}

parts! {
    // Events that are not delivered yet are counted from the inputs; dropped ones from the restore.
    InputQueue { events, read, unread, waiting, next_ticket fixed coming, held, dropped }
    Port { closed, sent fixed channel, name, home, credits }
    Channel {
        capacity, queue, receivers, selectors, senders, closed, next_ticket, wiring as Update
        fixed touched, is_simple, events,
    }
    // The rest follows from where sessions are and which ports are open.
    Wiring { free fixed lanes, credits, home, open_senders }
    Capabilities { entries fixed names }
    Calls { made, replies, answered fixed inside, free, taken }
    Watches { queues, next_ticket fixed }
    Asks { made fixed open }
    // What precedes these in the bytes is written by `write`, because the rest depends on it.
    // Output and log are empty at a boundary; profiles are not state.
    SessionState {
        ports as Update, handles, input as Update, output_chain, closed_streams,
        log_dropped, cycles, host_calls, messages, exit, exiting, first_faulted, faults,
        capabilities as Update, calls as Update, watches as Update, asks as Update
        fixed
        ended, ended_by_host, is_replaced, lanes, machine, startup, tasks, channels, made_channels,
        id, name, memory, table, stack_pointer, priority, weight, sharing, class, limits, port_names, args, env,
        output, log, profile, kills, fault_stacks, missed_ports,
    }
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
        unjoined_kills: _,
    } = tasks;
    out.count(entries.len());
    for (slot, entry) in (0u32..).zip(entries) {
        let Entry { generation, detached, unparked, lane, state } = entry;
        (*generation, u8::from(*detached) | u8::from(*unparked) << 1).write(out);
        match state {
            State::Free { next: _ } => out.bytes.push(FREE),
            State::Live(task) => {
                out.bytes.push(LIVE);
                let (Task { kernel, key, wait }, Family { spawned, joiners }) =
                    (task, tasks.family(slot));
                (*kernel, *key).write(out);
                streams.get(&slot).cloned().map(Box::new).write(out);
                match wait {
                    // Its pending call has the same information.
                    Wait::Taking(ticket) => Wait::Queued(*ticket).write(out),
                    // Its stack has the same information.
                    Wait::NotStarted { .. } => Wait::None.write(out),
                    wait => wait.write(out),
                }
                (spawned, (joiners, *lane)).write(out);
            }
            State::Ended { status, value } => {
                out.bytes.push(ENDED);
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

/// Reads coroutines; the machine has read their stacks, in slot order.
fn read_tasks(input: &mut Reader<'_>, coroutines: Vec<Coroutine>) -> Result<TaskTable, CodecError> {
    let mut coroutines = coroutines.into_iter();
    let mut tasks = TaskTable::new();
    let mut ended_faulted = 0;
    for _ in 0..input.count()? {
        let (generation, flags): (_, u8) = Codec::read(input)?;
        input.check("the flags of a coroutine", flags < 4)?;
        let (detached, unparked) = (flags & 1 != 0, flags & 2 != 0);
        input.check("a generation beyond the last", generation <= CoroutineRef::LAST_GENERATION)?;
        let (mut stack, mut lane) = (Coroutine::vacant(), 0);
        let state = match u8::read(input)? {
            FREE => State::Free { next: NONE },
            LIVE => {
                stack = coroutines.next().ok_or(input.malformed("a coroutine without a stack"))?;
                let (kernel, key) = Codec::read(input)?;
                let (random, wait) = (Option::<Box<Stream>>::read(input)?, Codec::read(input)?);
                if let Some(stream) = random {
                    tasks.streams.insert(tasks.entries.len() as u32, *stream);
                }
                let takes =
                    stack.host_call().is_some_and(|call| call.number == HostOperation::Recv as u16);
                let wait = match wait {
                    Wait::Queued(ticket) | Wait::Taking(ticket) if takes => Wait::Taking(ticket),
                    Wait::Taking(_) | Wait::NotStarted { .. } => {
                        return Err(input.malformed("the wait of a coroutine"));
                    }
                    wait => wait,
                };
                let (spawned, (joiners, own_lane)) = Codec::read(input)?;
                lane = own_lane;
                input.check("children of a coroutine", spawned < u32::MAX / 2)?;
                tasks.live += 1;
                if (spawned, joiners) != (0, NONE) {
                    *tasks.family_mut(tasks.entries.len() as u32) = Family { spawned, joiners };
                }
                State::Live(Task { kernel, key, wait })
            }
            ENDED => {
                let (status, value) = Codec::read(input)?;
                ended_faulted += u64::from(status == EndStatus::Faulted);
                State::Ended { status, value }
            }
            _ => return Err(input.malformed("the state of a coroutine")),
        };
        tasks.occupied += u32::from(!matches!(state, State::Free { .. }));
        let may_be_unparked = matches!(&state, State::Live(task) if task.wait != Wait::Parked);
        input.check("a wake that is kept", !unparked || may_be_unparked)?;
        tasks.entries.push(Entry { generation, detached, unparked, lane, state });
        tasks.coroutines.push(stack);
    }
    input.check("a stack without a coroutine", coroutines.next().is_none())?;
    let list: Vec<u32> = Codec::read(input)?;
    let mut listed = alloc::vec![false; tasks.entries.len()];
    for &slot in list.iter().rev() {
        match tasks.entries.get_mut(slot as usize).map(|entry| &mut entry.state) {
            Some(State::Free { next }) if !core::mem::replace(&mut listed[slot as usize], true) => {
                *next = tasks.free
            }
            _ => return Err(input.malformed("the list of free slots")),
        }
        tasks.free = slot;
    }
    tasks.peak = Codec::read(input)?;
    [tasks.published, tasks.finished, tasks.faulted, tasks.unjoined_faults] = Codec::read(input)?;
    input.check("faults that were not joined", tasks.unjoined_faults >= ended_faulted)?;
    Ok(tasks)
}

/// Everything of a session that running changes.
pub(crate) fn write(state: &SessionState, out: &mut Writer) {
    state.ended.write(out);
    state.lanes.write(out);
    if state.ended.is_none() {
        let tasks = &state.tasks;
        let coroutines: Vec<Cow<'_, Coroutine>> =
            tasks.iter_live().filter_map(|(slot, _)| tasks.coroutine_ref(slot)).collect();
        let coroutines: Vec<&Coroutine> = coroutines.iter().map(|coroutine| &**coroutine).collect();
        debug_assert_eq!(
            state.machine.stack_bytes_held(),
            coroutines.iter().map(|coroutine| coroutine.stack_bytes()).sum::<u64>(),
            "the stack bytes of a session are the sum over its coroutines"
        );
        out.blob(&encode_changes(&state.machine, &coroutines));
    }
    out.count(state.startup.len());
    write_tasks(&state.tasks, out);
    out.count(state.channels.len());
    Update::write(&state.channels, out);
    Update::write(state, out);
}

/// Reads a session into one that was just loaded and has been put on its lanes.
pub(crate) fn read(
    input: &mut Reader<'_>,
    state: &mut SessionState,
    ended: Option<SessionOutcome>,
    lanes: Vec<u16>,
) -> Result<(), StateError> {
    let session = state.id;
    (state.ended, state.lanes) = (ended, lanes);
    let coroutines = if ended.is_none() {
        decode_changes(&mut state.machine, input.blob()?)
            .map_err(|error| StateError::Machine { session, error })?
    } else {
        state.machine = Session::new(*state.machine.limits());
        Vec::new()
    };
    let calls_left = input.count()?;
    input.check("startup calls that are left", calls_left <= state.startup.len())?;
    // They are called from the end.
    state.startup.truncate(calls_left);
    state.tasks = read_tasks(input, coroutines)?;
    read_channels(input, state)?;
    state.update(input)?;
    state.count_calls();
    Ok(check(input, state)?)
}

/// The kills of a session; a state has them only if it has any.
pub(crate) fn write_kills(state: &SessionState, out: &mut Writer) {
    (state.kills.clone(), state.tasks.unjoined_kills).write(out);
}

/// Reads what [`write_kills`] wrote.
pub(crate) fn read_kills(
    input: &mut Reader<'_>,
    state: &mut SessionState,
) -> Result<(), CodecError> {
    let (kills, unjoined): (Kills, u64) = Codec::read(input)?;
    let kept = kills.records.len();
    let most = kills.count + u64::from(kills.is_whole());
    let is_whole = (1..=KILLS_KEPT).contains(&kept) && kept as u64 <= most;
    input.check("the kills of a session", is_whole)?;
    let left = state.tasks.kills_not_joined();
    input.check("kills that were not joined", (left..=kills.count).contains(&unjoined))?;
    (state.kills, state.tasks.unjoined_kills) = (kills, unjoined);
    Ok(())
}

/// Whether the parts of a session fit each other; across sessions, see `audit`.
fn check(input: &Reader<'_>, state: &mut SessionState) -> Result<(), CodecError> {
    let has_coroutines = state.tasks.live > 0;
    input.check("an ended session with coroutines", state.ended.is_none() == has_coroutines)?;
    let known = state.handles.iter().all(|handle| match handle {
        Handle::Own(index) => (*index as usize) < state.channels.len(),
        Handle::Port(index) => (*index as usize) < state.ports.len(),
    });
    input.check("a handle of nothing", known && state.handles.len() >= state.channels.len())?;
    let made = state.made_channels as usize;
    let first = (state.channels.len() - made) as u32;
    let made_handles = state.handles[state.handles.len() - made..].iter();
    input.check(
        "the handles of channels that a guest made",
        made_handles.zip(first..).all(|(handle, index)| *handle == Handle::Own(index)),
    )?;
    let InputQueue { events, read, waiting, next_ticket, .. } = &state.input;
    let within = events.front().map_or(*read == 0, |event| *read <= event.len());
    input.check("bytes read of an input", within)?;
    let held = events.iter().map(|event| event.len() as u64).sum();
    let given = waiting.latest().is_none_or(|ticket| ticket.0 <= *next_ticket);
    input.check("a ticket that was not given", given)?;
    state.input.held = held;
    input.check("faults that are kept", state.faults.len() <= FAULTS_KEPT)?;
    if let Some(Capabilities { entries, .. }) = state.capabilities.as_deref() {
        input.check("a table of capabilities", entries.len() <= MOST_CAPABILITIES)?;
    }
    if let Some(Watches { queues, next_ticket }) = state.watches.as_deref() {
        let is_given = |ticket: Option<Ticket>| ticket.is_some_and(|last| last.0 < *next_ticket);
        let all_given = queues.iter().all(|(_, queue)| is_given(queue.latest()));
        let is_sorted = queues.is_sorted_by(|(one, _), (two, _)| one < two);
        input.check("the waits for sessions", all_given && is_sorted)?;
    }
    if let Some(asks) = &mut state.asks {
        input.check("the asks of a session", asks.collect(&state.tasks))?;
    }
    if let Some(calls) = &mut state.calls {
        let mut replies = calls.replies.iter().filter_map(|entry| entry.reply.as_ref());
        let taken = replies.all(|reply| state.tasks.is_live(reply.acceptor));
        input.check("a reply without a coroutine", taken)?;
        input.check("a table of replies", calls.collect())?;
    }
    Ok(())
}

/// Channels of the manifest first, in their order; then those that the guest made.
fn read_channels(input: &mut Reader<'_>, state: &mut SessionState) -> Result<(), CodecError> {
    let limits = state.limits;
    let (wired, count) = (state.channels.len(), input.count()?);
    let made = count.checked_sub(wired).ok_or(input.malformed("missing channels"))?;
    input.check("channels that a guest made", made <= limits.channels as usize)?;
    state.made_channels = made as u32;
    for at in 0..count {
        if at >= wired {
            state.channels.push(Channel::new(state.id, at, 1, None));
        }
        let channel = &mut state.channels[at];
        let fixed = channel.capacity;
        channel.update(input)?;
        let allowed = if at < wired { fixed..=fixed } else { 1..=limits.channel_capacity };
        input.check("the capacity of a channel", allowed.contains(&channel.capacity))?;
        let free = channel.wiring.as_ref().map_or(0, |wiring| wiring.free);
        input.check("free space beyond the capacity", free <= channel.capacity)?;
        let latest =
            [channel.receivers.latest(), channel.selectors.latest(), channel.senders.latest()];
        let is_given = latest.iter().flatten().all(|ticket| ticket.0 <= channel.next_ticket);
        input.check("a ticket that was not given", is_given)?;
        // Nobody has looked at the messages of senders that wait in this state.
        channel.is_simple = channel.senders.is_empty();
        channel.refresh();
    }
    Ok(())
}

/// Whether a session may be on these lanes.
pub(crate) fn can_be_on(
    lanes: &[u16],
    spec: &crate::spec::MachineSpec,
    session: SessionId,
) -> bool {
    let known = spec.sessions[session.0 as usize].placement.lanes();
    if known.len() > 1 || spec.sessions[session.0 as usize].pinned {
        return lanes == known;
    }
    matches!(lanes, [lane] if *lane < spec.lanes)
}
