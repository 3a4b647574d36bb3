//! Whether the parts of a state fit each other: kernel records and coroutines, waits and the queues
//! that hold them, joiners and their targets.
//!
//! A run relies on this, and the bytes are untrusted. Waits and queues are compared as two sorted
//! lists.

use super::StateError;
use crate::ask::audit_ask;
use crate::call::Caller;
use crate::channel::Message;
use crate::group::{Group, is_host_function, pending};
use crate::index::{SessionIndex, TaskIndex};
use crate::session::SessionState;
use crate::task::{NONE, Task, TaskTable, Wait};
use crate::wait::Ticket;
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, State, Tag};

/// An entry of a queue: the queue, the ticket, the waiter.
type Queued = (QueueName, Ticket, CoroutineName);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueueName {
    Receivers(ChannelId),
    Selectors(ChannelId),
    Senders(ChannelId),
    Input(SessionId),
    /// Waits of the first session for the second.
    Watchers(SessionId, SessionId),
}

impl World {
    /// Checks the whole machine.
    pub(super) fn audit(&self) -> Result<(), StateError> {
        // The queue entries according to coroutines, and according to queues.
        let (mut waits, mut entries) = (Vec::new(), Vec::new());
        let is_known = |caller: &Caller| {
            (caller.name.session.0 as usize) < self.session_groups.len()
                && caller.lane < self.spec.lanes
        };
        self.audit_caps()?;
        self.audit_leases()?;
        for group in &self.groups {
            audit_lanes(group)?;
            for (at, state) in group.sessions.iter().enumerate() {
                audit_coroutines(group, SessionIndex::new(at), &mut waits)?;
                audit_joiners(state)?;
                list_queues(state, &mut entries);
                if !callers(state).all(is_known) {
                    return Err(unfit(state.id, "the caller of a call"));
                }
                let mut watched = state.watches.iter().flat_map(|watches| &watches.queues);
                let is_live = |id: SessionId| {
                    self.session_groups.get(id.0 as usize).is_some()
                        && self.session_ref(id).ended.is_none()
                };
                if !watched.all(|(id, _)| is_live(*id)) {
                    return Err(unfit(state.id, "a wait for a session that has ended"));
                }
                let senders = state.channels.iter().flat_map(|channel| channel.senders.iter());
                let mut local = senders.filter(|sender| sender.local);
                if !local.all(|sender| group.local.get(sender.name.session).is_some()) {
                    return Err(unfit(state.id, "a sender of another group"));
                }
            }
        }
        waits.sort_unstable();
        entries.sort_unstable();
        if let Some(((_, _, name), _)) = waits.iter().zip(&entries).find(|(one, two)| one != two) {
            return Err(unfit(name.session, "a wait and its entry in a queue"));
        }
        if waits.len() != entries.len() {
            return Err(unfit(SessionId(0), "waits and entries of queues"));
        }
        Ok(())
    }
}

impl World {
    /// A lane has a lease of the description that is for it, and whoever waits for one is its
    /// waiter.
    fn audit_leases(&self) -> Result<(), StateError> {
        for (lane, state) in self.lanes().filter_map(|lane| Some((lane.id, lane.kernel.lease()?))) {
            let spec = self.spec.leases.get(state.name as usize);
            let is_own = spec.is_some_and(|spec| {
                self.session_ref(spec.session).home() == lane && spec.session.0 == state.session
            });
            if state.generation > 0 && !is_own {
                return Err(unfit(SessionId(state.session), "the lease of a lane"));
            }
            let owner = state.owner.map(SessionId);
            if owner.is_some_and(|owner| self.session_groups.get(owner.0 as usize).is_none()) {
                return Err(unfit(SessionId(0), "the owner of a lease"));
            }
        }
        let mut waiters: Vec<CoroutineName> =
            self.leases.iter().filter_map(|lease| lease.waiter).collect();
        waiters.sort_unstable();
        let unknown =
            |name: &&CoroutineName| self.session_groups.get(name.session.0 as usize).is_none();
        if waiters.iter().find(unknown).is_some() || waiters.windows(2).any(|two| two[0] == two[1])
        {
            return Err(unfit(SessionId(0), "a coroutine that waits for a lease"));
        }
        for state in self.groups.iter().flat_map(|group| &group.sessions) {
            for (slot, task) in state.tasks.iter_live() {
                let name = state.coroutine_name(slot);
                if task.wait == Wait::Lease && waiters.binary_search(&name).is_err() {
                    return Err(unfit(state.id, "a coroutine that waits for a lease"));
                }
            }
        }
        Ok(())
    }

    /// Each capped session has its part of the cap on each of its lanes, and nothing else has one.
    fn audit_caps(&self) -> Result<(), StateError> {
        let mut expected = 0;
        for (id, spec) in self.session_ids().zip(&self.spec.sessions) {
            for (position, &lane) in self.session_ref(id).lanes.iter().enumerate() {
                let found = self.lane_ref(lane).kernel.cap(id.0).map(|account| account.settings);
                let part = spec.cap_at(position);
                expected += usize::from(part.is_some());
                if found != part {
                    return Err(unfit(id, "the cap of a session on its lane"));
                }
            }
        }
        let found: usize = self.lanes().map(|lane| lane.kernel.caps().len()).sum();
        if found == expected { Ok(()) } else { Err(unfit(SessionId(0), "caps of other lanes")) }
    }
}

const fn unfit(session: SessionId, what: &'static str) -> StateError {
    StateError::Inconsistent { session, what }
}

/// The callers of all calls that a session holds, taken or not.
fn callers(state: &SessionState) -> impl Iterator<Item = &Caller> {
    let queued = state.channels.iter().flat_map(|channel| {
        channel.queue.mixed().chain(channel.senders.iter().map(|sender| &sender.message))
    });
    let queued = queued.filter_map(|message| match message {
        Message::Call(call) => Some(&call.caller),
        _ => None,
    });
    let replies = state.calls.iter().flat_map(|calls| &calls.replies);
    queued.chain(replies.filter_map(|entry| entry.reply.as_ref().map(|reply| &reply.caller)))
}

/// Each lane's kernel has as many coroutines as its sessions have there. With every coroutine's own
/// check they are the same ones.
fn audit_lanes(group: &Group) -> Result<(), StateError> {
    for lane in &group.lanes {
        let on_lane = |tasks: &TaskTable| {
            tasks.iter_live().filter(|&(slot, _)| tasks.lane_at(slot) == lane.id).count() as u64
        };
        let coroutines: u64 = group.sessions.iter().map(|state| on_lane(&state.tasks)).sum();
        if coroutines != u64::from(lane.kernel.live()) {
            return Err(unfit(SessionId(0), "coroutines of a lane"));
        }
    }
    Ok(())
}

fn audit_coroutines(
    group: &Group,
    session: SessionIndex,
    waits: &mut Vec<Queued>,
) -> Result<(), StateError> {
    let state = &group.sessions[session];
    for (slot, task) in state.tasks.iter_live() {
        let wrong = |what| unfit(state.id, what);
        let home = state.tasks.lane_at(slot);
        let lane = group.lanes.iter().find(|lane| lane.id == home && state.lanes.contains(&home));
        let kernel = &lane.ok_or(wrong("the lane of a coroutine"))?.kernel;
        let scheduled = kernel.state(task.kernel).ok();
        let scheduled = scheduled
            .filter(|_| kernel.tag(task.kernel) == Ok(Tag::new(state.id.0, slot)))
            .ok_or(wrong("a coroutine without a record in its lane"))?;
        let reason = audit_wait(group, TaskIndex { session, slot }, task, waits)
            .ok_or(wrong("the wait of a coroutine"))?;
        use State::{Blocked, Ready, Running, Sleeping, Throttled};
        let fits = match (scheduled, reason) {
            (Blocked { reason: found }, Some(reason)) => found == reason,
            (Ready | Running | Sleeping { .. } | Throttled { .. }, None) => true,
            _ => false,
        };
        if !fits {
            return Err(wrong("a coroutine's wait and its state in its lane"));
        }
    }
    Ok(())
}

/// Lists the queue entries that a coroutine's wait implies, and returns the reason for which the
/// kernel must have blocked it, if it must. `None` if the wait is impossible.
fn audit_wait(
    group: &Group,
    TaskIndex { session, slot }: TaskIndex,
    task: &Task,
    waits: &mut Vec<Queued>,
) -> Option<Option<BlockReason>> {
    use HostOperation::{
        Accept, Call, Cancel, FdRead, Join, LeaseRequest, LeaseRevoke, Park, Recv, RecvBytes,
        Select, Send, SendBytes, Serve, SessionWait,
    };
    if task.wait.is_none() {
        return Some(None);
    }
    let state = &group.sessions[session];
    let name = state.coroutine_name(slot);
    let coroutine = state.tasks.coroutine_ref(slot)?;
    if is_host_function(&coroutine) {
        return audit_ask(group, state, slot, &task.wait);
    }
    HostOperation::from_code(u8::try_from(coroutine.host_call()?.number).ok()?)?;
    let (operation, [handle, ..]) = pending(&coroutine);
    let sends = matches!(operation, Send | SendBytes | Call);
    let receives = matches!(operation, Recv | RecvBytes | Accept | Serve);
    Some(match &task.wait {
        Wait::Queued(ticket) | Wait::Taking(ticket) if sends || receives => {
            let channel = group.waits_on(session, handle)?;
            let (queue, reason) = match operation {
                Call => (QueueName::Senders(channel), BlockReason::Reply),
                Send | SendBytes => (QueueName::Senders(channel), BlockReason::ChannelSend),
                _ => {
                    state.own_channel(handle as i32).ok()?;
                    (QueueName::Receivers(channel), BlockReason::ChannelReceive)
                }
            };
            waits.push((queue, *ticket, name));
            Some(reason)
        }
        Wait::Selecting(tickets) if operation == Select && !tickets.is_empty() => {
            for &(index, ticket) in tickets.iter() {
                state.channels.get(index as usize)?;
                let id = ChannelId { owner: state.id, index };
                waits.push((QueueName::Selectors(id), ticket, name));
            }
            Some(BlockReason::Select)
        }
        Wait::Joining { .. } if operation == Join => Some(BlockReason::Join),
        Wait::Input(ticket) if operation == FdRead => {
            waits.push((QueueName::Input(state.id), *ticket, name));
            Some(BlockReason::Input)
        }
        Wait::Lease if operation == LeaseRequest => Some(BlockReason::OtherLane),
        Wait::Parked if operation == Park => Some(BlockReason::Park),
        Wait::Session(ticket) if operation == SessionWait => {
            let target = group.waits_on(session, handle)?.owner;
            waits.push((QueueName::Watchers(state.id, target), *ticket, name));
            Some(BlockReason::Session)
        }
        Wait::Code(_) if matches!(operation, Park | SessionWait | LeaseRequest | LeaseRevoke) => {
            None
        }
        Wait::Number(_) if operation == SessionWait => None,
        Wait::Reply(call)
            if operation == Call && *call <= state.calls.as_ref().map_or(0, |calls| calls.made) =>
        {
            Some(BlockReason::Reply)
        }
        Wait::Taken(_) if matches!(operation, Accept | Serve) => None,
        Wait::Code(_) if sends || receives || matches!(operation, Select | Join | Cancel) => None,
        Wait::Number(_) if matches!(operation, Recv | Join | Call) => None,
        Wait::Bytes(_) if operation == RecvBytes => None,
        _ => return None,
    })
}

/// Every joiner is in the list of its target, once, with correct links.
fn audit_joiners(state: &SessionState) -> Result<(), StateError> {
    let tasks = &state.tasks;
    let wrong = || unfit(state.id, "joiners and their target");
    let is_joining = |task: &Task| matches!(task.wait, Wait::Joining { .. });
    let joining = tasks.iter_live().filter(|(_, task)| is_joining(task)).count();
    let mut listed = 0;
    for (slot, _) in tasks.iter_live() {
        let target = Some(tasks.reference_at(slot));
        let (mut before, mut next) = (NONE, tasks.family(slot).joiners);
        while next != NONE {
            let joiner = tasks.live_ref(next).ok_or_else(wrong)?;
            let Wait::Joining { next: after, previous } = joiner.wait else { return Err(wrong()) };
            let (_, [joined, ..]) = pending(&*tasks.coroutine_ref(next).ok_or_else(wrong)?);
            listed += 1;
            let is_linked = previous == before && CoroutineRef::from_guest(joined as i64) == target;
            if listed > joining || !is_linked {
                return Err(wrong());
            }
            (before, next) = (next, after);
        }
    }
    if listed == joining { Ok(()) } else { Err(wrong()) }
}

/// Lists the entries of a session's queues.
fn list_queues(state: &SessionState, entries: &mut Vec<Queued>) {
    // A slot without a live coroutine gives a name that matches no wait.
    let own = |slot: &u32| match state.tasks.is_live(*slot) {
        true => state.coroutine_name(*slot),
        false => CoroutineName { session: state.id, reference: CoroutineRef::new(NONE, 0) },
    };
    for (index, channel) in (0u32..).zip(&state.channels) {
        let id = ChannelId { owner: state.id, index };
        let receivers = channel.receivers.tickets();
        entries.extend(receivers.map(|(at, slot)| (QueueName::Receivers(id), at, own(slot))));
        let selectors = channel.selectors.tickets();
        entries.extend(selectors.map(|(at, slot)| (QueueName::Selectors(id), at, own(slot))));
        let senders = channel.senders.tickets();
        entries.extend(senders.map(|(at, sender)| (QueueName::Senders(id), at, sender.name)));
    }
    for (target, queue) in state.watches.iter().flat_map(|watches| &watches.queues) {
        let watchers = QueueName::Watchers(state.id, *target);
        entries.extend(queue.tickets().map(|(at, slot)| (watchers, at, own(slot))));
    }
    let readers = state.input.waiting.tickets();
    entries.extend(readers.map(|(at, slot)| (QueueName::Input(state.id), at, own(slot))));
}
