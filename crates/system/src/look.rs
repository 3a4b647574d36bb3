//! Inspecting a machine between two steps: coroutines, channels, memory, and the next step.
//!
//! Contract: nothing here changes what a later step depends on. It is for debuggers, so it may walk
//! over everything and allocate.
//!
//! Elsewhere: why a coroutine was picked (`Lane::explain` of the kernel), who waits for whom in a
//! deadlock (`deadlock`), the text of it all (`debug`, `cli`).

use crate::deadlock::Waiting;
use crate::session::{FaultStack, SessionOutcome, SessionState};
use crate::task::Named;
use crate::world::{Phase, World};
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Frame, LaneId, Priority, SessionId, Weight,
};
use wavelock_kernel::{Candidate, Explanation, Lane, Ledger, Population, State};
use wavelock_machine::Location;

/// A coroutine at this moment.
#[derive(Clone, Debug)]
pub struct CoroutineLook {
    /// Its name.
    pub name: CoroutineName,
    /// Its lane.
    pub lane: LaneId,
    /// Its state; `None` when it was spawned from another lane and is published at the wave's end.
    pub state: Option<State>,
    /// The cycles it consumed and the time it waited.
    pub ledger: Option<Ledger>,
    /// Cycles it was charged.
    pub used: Cycles,
    /// What it waits for.
    pub waiting: Option<Waiting>,
    /// The positions of its active functions, innermost first.
    pub stack: Vec<Location>,
    /// Its priority.
    pub priority: Priority,
    /// Its weight.
    pub weight: Weight,
}

/// A channel at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelLook {
    /// Its name.
    pub id: ChannelId,
    /// Messages it holds.
    pub queued: u64,
    /// Messages it can hold.
    pub capacity: u32,
    /// Nothing more can be sent.
    pub closed: bool,
    /// Coroutines that wait to receive or select, first come first.
    pub receivers: Vec<CoroutineName>,
    /// Coroutines that wait to send, first come first.
    pub senders: Vec<CoroutineName>,
    /// Sessions that may send to it.
    pub sources: Vec<SessionId>,
}

/// What a session has used so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionUsage {
    /// Cycles charged to its coroutines.
    pub cycles: u64,
    /// Host operations it called.
    pub host_calls: u64,
    /// Messages it sent.
    pub messages: u64,
    /// Coroutines alive.
    pub coroutines: u32,
    /// Bytes of its memories.
    pub memory_bytes: u64,
    /// How it ended, once it has.
    pub outcome: Option<SessionOutcome>,
}

/// A lane at this moment.
#[derive(Clone, Debug)]
pub struct LaneLook {
    /// Its number.
    pub lane: LaneId,
    /// Its clock.
    pub clock: Cycles,
    /// The end of its frame.
    pub frame_end: Cycles,
    /// Whether its wave is over.
    pub over: bool,
    /// The coroutines that could be picked, best first, with their ranking keys.
    pub candidates: Vec<Candidate>,
    /// The coroutine that would run next, and why; `None` when none can.
    pub next: Option<Explanation>,
    /// Its coroutines by state.
    pub population: Population,
}

/// What a reference names now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// A live coroutine.
    Live,
    /// An ended coroutine whose result was not joined.
    Ended,
    /// Nothing: the slot was never used, or has another generation, given here.
    Gone(Option<u32>),
    /// Its session is over.
    SessionOver(SessionOutcome),
}

impl World {
    /// The lane that makes the next step of the open wave; `None` when the wave has none left, or
    /// no wave is open.
    #[must_use]
    pub fn next_lane(&self) -> Option<LaneId> {
        let Phase::Wave(turn) = self.phase else { return None };
        let ready = |lane: &Lane| !lane.is_over() && lane.has_work();
        (turn..self.lane_positions.len())
            .find(|&lane| ready(self.kernel(lane as u16)))
            .map(|lane| LaneId(lane as u16))
    }

    fn kernel(&self, lane: u16) -> &Lane {
        &self.lane_ref(lane).kernel
    }

    /// A session by an id from outside.
    fn find_session(&self, session: SessionId) -> Option<&SessionState> {
        self.session_groups.get(session.0 as usize)?;
        Some(self.session_ref(session))
    }

    /// A lane at this moment.
    #[must_use]
    pub fn look_at_lane(&self, lane: LaneId) -> Option<LaneLook> {
        self.lane_positions.get(usize::from(lane.0))?;
        let kernel = self.kernel(lane.0);
        Some(LaneLook {
            lane,
            clock: kernel.clock(),
            frame_end: kernel.frame_end(),
            over: kernel.is_over(),
            candidates: kernel.candidates(),
            next: kernel.explain(),
            population: kernel.population(),
        })
    }

    /// What a reference names now.
    #[must_use]
    pub fn presence(&self, name: CoroutineName) -> Option<Presence> {
        let state = self.find_session(name.session)?;
        if let Some(outcome) = state.ended {
            return Some(Presence::SessionOver(outcome));
        }
        Some(match state.tasks.named(name.reference) {
            Named::Live => Presence::Live,
            Named::Ended { .. } => Presence::Ended,
            Named::Stale => Presence::Gone(state.tasks.generation_of(name.reference.slot)),
        })
    }

    /// The current generation of a slot of a session.
    #[must_use]
    pub fn generation(&self, session: SessionId, slot: u32) -> Option<u32> {
        self.find_session(session)?.tasks.generation_of(slot)
    }

    /// The live coroutines of a session, in slot order.
    #[must_use]
    pub fn coroutines(&self, session: SessionId) -> Vec<CoroutineRef> {
        let tasks = self.find_session(session).map(|state| &state.tasks);
        tasks.map_or_else(Vec::new, |tasks| {
            tasks.iter_live().map(|(slot, _)| tasks.reference_at(slot)).collect()
        })
    }

    /// A live coroutine at this moment.
    #[must_use]
    pub fn look(&self, name: CoroutineName) -> Option<CoroutineLook> {
        if self.presence(name)? != Presence::Live {
            return None;
        }
        let group = &self.groups[self.session_groups[name.session.0 as usize]];
        let at = group.task(name);
        let state = &group.sessions[at.session];
        let reference = state.tasks.live_ref(at.slot)?.kernel;
        let coroutine = state.tasks.coroutine_ref(at.slot)?;
        let lane = state.tasks.lane_at(at.slot);
        let kernel = self.kernel(lane);
        Some(CoroutineLook {
            name,
            lane: LaneId(lane),
            state: kernel.state(reference).ok(),
            ledger: kernel.ledger(reference).ok(),
            used: coroutine.used(),
            waiting: group.waiting_at(at),
            stack: coroutine.backtrace(&state.machine).collect(),
            priority: kernel.priority(reference).unwrap_or(state.priority),
            weight: kernel.share(reference).map_or(state.weight, |share| share.weight),
        })
    }

    /// The channels of a session, in order.
    #[must_use]
    pub fn channels(&self, session: SessionId) -> Vec<ChannelLook> {
        let count = self.find_session(session).map_or(0, |state| state.channels.len() as u32);
        (0..count)
            .filter_map(|index| self.look_at_channel(ChannelId { owner: session, index }))
            .collect()
    }

    /// A channel at this moment.
    #[must_use]
    pub fn look_at_channel(&self, id: ChannelId) -> Option<ChannelLook> {
        let state = self.find_session(id.owner)?;
        let channel = state.channels.get(id.index as usize)?;
        let receivers = channel.receivers.iter().chain(channel.selectors.iter());
        Some(ChannelLook {
            id,
            queued: u64::from(channel.queue.len()),
            capacity: channel.capacity,
            closed: channel.closed,
            receivers: receivers.map(|&slot| state.coroutine_name(slot)).collect(),
            senders: channel.senders.iter().map(|sender| sender.name).collect(),
            sources: self.senders_of(id),
        })
    }

    /// What a session has used so far, in constant time; `None` if it does not exist.
    #[must_use]
    pub fn usage(&self, session: SessionId) -> Option<SessionUsage> {
        self.session_groups.get(session.0 as usize)?;
        let state = self.session_ref(session);
        Some(SessionUsage {
            cycles: state.cycles,
            host_calls: state.host_calls,
            messages: state.messages,
            coroutines: state.tasks.live(),
            memory_bytes: state.machine.memory_pages() * wavelock_machine::PAGE_BYTES as u64,
            outcome: state.ended,
        })
    }

    /// The number of sessions that have ended.
    #[must_use]
    pub const fn ended_sessions(&self) -> usize {
        self.ended_sessions
    }

    /// The frame of the next input event.
    #[must_use]
    pub fn next_input(&self) -> Option<Frame> {
        self.inputs.front().map(|given| given.frame)
    }

    /// The first names for which `port` found nothing, since the machine was loaded or restored.
    #[must_use]
    pub fn missed_ports(&self, session: SessionId) -> &[String] {
        self.find_session(session).map_or(&[], |state| &state.missed_ports)
    }

    /// The stack of a coroutine that faulted since the machine was loaded or restored; only the
    /// first of a session are kept.
    #[must_use]
    pub fn fault_stack(&self, name: CoroutineName) -> Option<&FaultStack> {
        let mut stacks = self.find_session(name.session)?.fault_stacks.iter();
        stacks.find(|stack| stack.coroutine == name.reference)
    }

    /// Bytes of a session's memory 0; `None` when they are not all inside it, or the session is
    /// over and its memory was released.
    #[must_use]
    pub fn memory(&self, session: SessionId, address: u64, length: u64) -> Option<Vec<u8>> {
        let state = self.find_session(session).filter(|state| state.ended.is_none())?;
        let bytes = state.machine.memory(state.memory?).bytes();
        let end = address.checked_add(length)?;
        bytes.get(usize::try_from(address).ok()?..usize::try_from(end).ok()?).map(Vec::from)
    }
}
