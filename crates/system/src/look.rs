//! Looking at a machine that stands still: coroutines, channels, memory, and what the next step
//! would be.
//!
//! Contract: looking changes nothing that a later step depends on. It is for people between two
//! steps, so it may walk over everything and allocate.
//!
//! Elsewhere: what decided (`Lane::explain` of the kernel), who waits for whom in a deadlock
//! (`deadlock`), words for all of it (the command line).

use crate::deadlock::Waiting;
use crate::session::{SessionOutcome, SessionState};
use crate::task::Named;
use crate::world::{Phase, World};
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Frame, Priority, SessionId, Weight,
};
use wavelock_kernel::{Candidate, Explanation, Lane, Ledger, Population, State};
use wavelock_machine::Location;

/// A coroutine as it stands.
#[derive(Clone, Debug)]
pub struct CoroutineLook {
    /// Its name.
    pub name: CoroutineName,
    /// Its lane.
    pub lane: u16,
    /// Its state; none when it was spawned on another lane and begins there at the wave's end.
    pub state: Option<State>,
    /// What it consumed and how long it waited.
    pub ledger: Option<Ledger>,
    /// Cycles it was charged.
    pub used: Cycles,
    /// What it waits for.
    pub waiting: Option<Waiting>,
    /// The places of its active functions, innermost first.
    pub stack: Vec<Location>,
    /// Its priority.
    pub priority: Priority,
    /// Its weight.
    pub weight: Weight,
}

/// A channel as it stands.
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

/// A lane as it stands.
#[derive(Clone, Debug)]
pub struct LaneLook {
    /// Its number.
    pub lane: u16,
    /// Its clock.
    pub clock: Cycles,
    /// Where its frame ends.
    pub frame_end: Cycles,
    /// Whether its wave is over.
    pub over: bool,
    /// Who could be chosen, best first, with what they are compared by.
    pub candidates: Vec<Candidate>,
    /// What would run next, and why; none when nothing can.
    pub next: Option<Explanation>,
    /// Its coroutines by state.
    pub population: Population,
}

/// What a reference of a session names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It lives.
    Live,
    /// It ended; its result waits to be joined.
    Ended,
    /// It is another generation, or the slot was never used: the generation found, if any.
    Gone(Option<u32>),
    /// Its session is over.
    SessionOver(SessionOutcome),
}

impl World {
    /// The lane that makes the next step of the open wave; none when the wave has none left, or
    /// none is open.
    #[must_use]
    pub fn next_lane(&self) -> Option<u16> {
        let Phase::Wave(turn) = self.phase else { return None };
        let ready = |lane: &Lane| !lane.is_over() && lane.has_work();
        (turn..self.lane_places.len())
            .find(|&lane| ready(self.kernel(lane as u16)))
            .map(|lane| lane as u16)
    }

    /// A session that there is.
    pub(crate) fn state_of(&self, session: SessionId) -> &SessionState {
        let group = &self.groups[self.session_places[session.0 as usize]];
        &group.sessions[group.local[session]]
    }

    fn kernel(&self, lane: u16) -> &Lane {
        let (group, place) = self.lane_places[usize::from(lane)];
        &self.groups[group].lanes[place].kernel
    }

    /// A lane as it stands.
    #[must_use]
    pub fn look_at_lane(&self, lane: u16) -> Option<LaneLook> {
        self.lane_places.get(usize::from(lane))?;
        let kernel = self.kernel(lane);
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
        if name.session.0 as usize >= self.session_places.len() {
            return None;
        }
        let state = self.state_of(name.session);
        if let Some(outcome) = state.ended {
            return Some(Presence::SessionOver(outcome));
        }
        Some(match state.tasks.named(name.reference) {
            Named::Live => Presence::Live,
            Named::Ended { .. } => Presence::Ended,
            Named::Stale => Presence::Gone(state.tasks.generation_of(name.reference.slot)),
        })
    }

    /// The generation that a slot of a session has now.
    #[must_use]
    pub fn generation(&self, session: SessionId, slot: u32) -> Option<u32> {
        self.session_places.get(session.0 as usize)?;
        self.state_of(session).tasks.generation_of(slot)
    }

    /// The live coroutines of a session, in slot order.
    #[must_use]
    pub fn coroutines(&self, session: SessionId) -> Vec<CoroutineRef> {
        if session.0 as usize >= self.session_places.len() {
            return Vec::new();
        }
        let tasks = &self.state_of(session).tasks;
        tasks.iter_live().map(|(slot, _)| tasks.reference_at(slot)).collect()
    }

    /// A live coroutine as it stands.
    #[must_use]
    pub fn look(&self, name: CoroutineName) -> Option<CoroutineLook> {
        if self.presence(name)? != Presence::Live {
            return None;
        }
        let group = &self.groups[self.session_places[name.session.0 as usize]];
        let index = group.local[name.session];
        let slot = name.reference.slot;
        let state = &group.sessions[index];
        let (priority, weight) = (state.priority, state.weight);
        let task = state.tasks.live_ref(slot)?;
        let waiting = if task.wait.is_none() { None } else { group.waiting_at(index, slot) };
        let coroutine = state.tasks.coroutine_ref(slot)?;
        let (lane, reference, used) = (state.tasks.lane_at(slot), task.kernel, coroutine.used());
        let stack = coroutine.backtrace(&state.machine).collect();
        let kernel = self.kernel(lane);
        Some(CoroutineLook {
            name,
            lane,
            state: kernel.state(reference).ok(),
            ledger: kernel.ledger(reference).ok(),
            used,
            waiting,
            stack,
            priority,
            weight,
        })
    }

    /// The channels of a session, in order.
    #[must_use]
    pub fn channels(&self, session: SessionId) -> Vec<ChannelLook> {
        if session.0 as usize >= self.session_places.len() {
            return Vec::new();
        }
        let count = self.state_of(session).channels.len() as u32;
        (0..count)
            .filter_map(|index| self.look_at_channel(ChannelId { owner: session, index }))
            .collect()
    }

    /// A channel as it stands.
    #[must_use]
    pub fn look_at_channel(&self, id: ChannelId) -> Option<ChannelLook> {
        self.session_places.get(id.owner.0 as usize)?;
        let sources = self.senders_of(id);
        let state = self.state_of(id.owner);
        let channel = state.channels.get(id.index as usize)?;
        let own = |slot: u32| CoroutineName {
            session: id.owner,
            reference: state.tasks.reference_at(slot),
        };
        Some(ChannelLook {
            id,
            queued: u64::from(channel.queue.len()),
            capacity: channel.capacity,
            closed: channel.closed,
            receivers: channel
                .receivers
                .tickets()
                .map(|(_, &slot)| slot)
                .chain(channel.selectors.iter().copied())
                .map(own)
                .collect(),
            senders: channel.senders.iter().map(|sender| sender.name).collect(),
            sources,
        })
    }

    /// The frame of the next input event.
    #[must_use]
    pub fn next_input(&self) -> Option<Frame> {
        self.inputs.front().map(|event| event.frame)
    }

    /// Bytes of a session's memory 0; none when they are not all inside it.
    #[must_use]
    pub fn memory(&self, session: SessionId, address: u64, length: u64) -> Option<Vec<u8>> {
        self.session_places.get(session.0 as usize)?;
        let state = self.state_of(session);
        // A session that is over has given its memory back.
        if state.ended.is_some() {
            return None;
        }
        let bytes = state.machine.memory(state.memory?).bytes();
        let end = address.checked_add(length)?;
        bytes.get(usize::try_from(address).ok()?..usize::try_from(end).ok()?).map(Vec::from)
    }
}
