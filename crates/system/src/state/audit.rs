//! Whether the parts of a state fit each other: kernel records and coroutines, waits and the queues
//! they stand in, joiners and whom they join.
//!
//! A run relies on this; the bytes are anybody's. Everything here is a comparison of two lists made
//! in order.

use super::StateError;
use crate::channel::Message;
use crate::group::{Group, is_send, pending};
use crate::index::SessionIndex;
use crate::session::{Handle, SessionState};
use crate::task::{NONE, Task, TaskTable, Wait};
use crate::wait::Ticket;
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, State, Tag};

/// A place in a queue: which queue, its ticket, who stands there.
type Standing = (QueueName, Ticket, CoroutineName);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueueName {
    Receivers(ChannelId),
    Selectors(ChannelId),
    Senders(ChannelId),
    Input(SessionId),
}

impl World {
    /// Checks the whole machine, and makes again what follows from the rest.
    pub(super) fn audit(&mut self) -> Result<(), StateError> {
        let mut said = Vec::new();
        let mut stood = Vec::new();
        for group in &self.groups {
            audit_lanes(group)?;
            for (at, state) in group.sessions.iter().enumerate() {
                audit_coroutines(group, at, &mut said)?;
                audit_joiners(state)?;
                note_queues(state, &mut stood);
                let (sessions, lanes) = (self.session_places.len(), self.lane_places.len() as u16);
                if !callers(state).all(|caller| crate::call::is_known(caller, sessions, lanes)) {
                    return Err(unfit(state.id, "a call of nobody"));
                }
                let senders = state.channels.iter().flat_map(|channel| channel.senders.iter());
                let near = |session: SessionId| group.local.get(session).is_some();
                if !senders.filter(|sender| sender.local).all(|sender| near(sender.name.session)) {
                    return Err(unfit(state.id, "a sender of another group"));
                }
            }
        }
        said.sort_unstable();
        stood.sort_unstable();
        if let Some((_, _, name)) =
            said.iter().zip(&stood).find(|(one, two)| one != two).map(|(one, _)| *one)
        {
            return Err(unfit(name.session, "a wait and its place in a queue"));
        }
        if said.len() != stood.len() {
            return Err(unfit(SessionId(0), "waits and places in queues"));
        }
        Ok(())
    }
}

const fn unfit(session: SessionId, what: &'static str) -> StateError {
    StateError::Inconsistent { session, what }
}

/// Everyone whose call a session has, taken or not.
fn callers(state: &SessionState) -> impl Iterator<Item = &crate::call::Caller> {
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

/// Each lane's kernel knows as many coroutines as its sessions have there. With every coroutine's
/// own check they are the same ones.
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

fn audit_coroutines(group: &Group, at: usize, said: &mut Vec<Standing>) -> Result<(), StateError> {
    let state = &group.sessions[at];
    for (slot, task) in state.tasks.iter_live() {
        let wrong = |what| unfit(state.id, what);
        let home = state.tasks.lane_at(slot);
        let lane = group.lanes.iter().find(|lane| lane.id == home && state.lanes.contains(&home));
        let kernel = &lane.ok_or(wrong("the lane of a coroutine"))?.kernel;
        if kernel.tag(task.kernel) != Ok(Tag::new(state.id.0, slot)) {
            return Err(wrong("a coroutine that its lane does not know"));
        }
        let scheduled = kernel
            .state(task.kernel)
            .map_err(|_| wrong("a coroutine that its lane does not know"))?;
        let name = CoroutineName { session: state.id, reference: state.tasks.reference_at(slot) };
        let reason =
            audit_wait(group, at, task, name, said).ok_or(wrong("the wait of a coroutine"))?;
        let fits = match (scheduled, reason) {
            (State::Blocked { reason: found }, Some(reason)) => found == reason,
            (
                State::Ready | State::Running | State::Sleeping { .. } | State::Throttled { .. },
                None,
            ) => true,
            _ => false,
        };
        if !fits {
            return Err(wrong("a coroutine's wait and what its lane says of it"));
        }
    }
    Ok(())
}

/// Notes the queues a coroutine says it stands in; gives what the kernel must say of it. `None` if
/// that cannot be.
fn audit_wait(
    group: &Group,
    at: usize,
    task: &Task,
    name: CoroutineName,
    said: &mut Vec<Standing>,
) -> Option<Option<BlockReason>> {
    let state = &group.sessions[at];
    if task.wait.is_none() {
        return Some(None);
    }
    let coroutine = state.tasks.coroutine_ref(name.reference.slot)?;
    let _ = coroutine.host_call().and_then(|call| HostOperation::from_code(call.number as u8))?;
    let (operation, arguments) = pending(&coroutine);
    use HostOperation::{
        Accept, Call, Cancel, FdRead, Join, Recv, RecvBytes, Select, Send, SendBytes, Serve,
    };
    let sends = matches!(operation, Send | SendBytes | Call);
    let receives = matches!(operation, Recv | RecvBytes | Accept | Serve);
    Some(match &task.wait {
        Wait::None => None,
        Wait::Queued(ticket) | Wait::Taking(ticket) if sends || receives => {
            let channel = group.waits_on(SessionIndex::new(at), &arguments)?;
            let owned = matches!(state.handle(arguments[0] as i32)?, Handle::Own(_));
            let queue = if is_send(operation) {
                QueueName::Senders(channel)
            } else {
                QueueName::Receivers(channel)
            };
            if receives && !owned {
                return None;
            }
            said.push((queue, *ticket, name));
            Some(match operation {
                Call => BlockReason::Reply,
                _ if sends => BlockReason::ChannelSend,
                _ => BlockReason::ChannelReceive,
            })
        }
        Wait::Selecting(places) if operation == Select => {
            for &(index, ticket) in places.iter() {
                state.channels.get(index as usize)?;
                said.push((
                    QueueName::Selectors(ChannelId { owner: state.id, index }),
                    ticket,
                    name,
                ));
            }
            (!places.is_empty()).then_some(())?;
            Some(BlockReason::Select)
        }
        Wait::Joining { .. } if operation == Join => Some(BlockReason::Join),
        Wait::Input(ticket) if operation == FdRead => {
            said.push((QueueName::Input(state.id), *ticket, name));
            Some(BlockReason::Input)
        }
        Wait::Reply(call) if operation == Call => {
            let made = state.calls.as_ref().map_or(0, |calls| calls.made);
            (*call <= made).then_some(())?;
            Some(BlockReason::Reply)
        }
        Wait::Taken(_) if matches!(operation, Accept | Serve) => None,
        Wait::Code(_) if sends || receives || matches!(operation, Select | Join | Cancel) => None,
        Wait::Number(_) if matches!(operation, Recv | Join | Call) => None,
        Wait::Bytes(_) if operation == RecvBytes => None,
        _ => return None,
    })
}

/// Everyone who joins is in the list of whom it joins, once, with true links.
fn audit_joiners(state: &SessionState) -> Result<(), StateError> {
    let wrong = || unfit(state.id, "who joins whom");
    let joining = state
        .tasks
        .iter_live()
        .filter(|(_, task)| matches!(task.wait, Wait::Joining { .. }))
        .count();
    let mut met = 0;
    for (slot, _) in state.tasks.iter_live() {
        let target = state.tasks.reference_at(slot);
        let (mut before, mut next) = (NONE, state.tasks.family(slot).joiners);
        while next != NONE {
            let joiner = state.tasks.live_ref(next).ok_or_else(wrong)?;
            let Wait::Joining { next: after, previous } = joiner.wait else { return Err(wrong()) };
            let (_, arguments) = pending(&*state.tasks.coroutine_ref(next).ok_or_else(wrong)?);
            met += 1;
            if met > joining
                || previous != before
                || CoroutineRef::from_guest(arguments[0] as i64) != Some(target)
            {
                return Err(wrong());
            }
            (before, next) = (next, after);
        }
    }
    if met == joining { Ok(()) } else { Err(wrong()) }
}

/// Who stands in a session's queues.
fn note_queues(state: &SessionState, stood: &mut Vec<Standing>) {
    // A slot that is none gives a name that nobody has.
    let reference = |slot: u32| {
        state
            .tasks
            .live_ref(slot)
            .map_or(CoroutineRef::new(NONE, 0), |_| state.tasks.reference_at(slot))
    };
    let own = |slot: u32| CoroutineName { session: state.id, reference: reference(slot) };
    for (index, channel) in (0u32..).zip(&state.channels) {
        let id = ChannelId { owner: state.id, index };
        stood.extend(
            channel
                .receivers
                .tickets()
                .map(|(ticket, &slot)| (QueueName::Receivers(id), ticket, own(slot))),
        );
        stood.extend(
            channel
                .selectors
                .tickets()
                .map(|(ticket, slot)| (QueueName::Selectors(id), ticket, own(*slot))),
        );
        stood.extend(
            channel
                .senders
                .tickets()
                .map(|(ticket, sender)| (QueueName::Senders(id), ticket, sender.name)),
        );
    }
    stood.extend(
        state
            .input
            .waiting
            .tickets()
            .map(|(ticket, slot)| (QueueName::Input(state.id), ticket, own(*slot))),
    );
}
