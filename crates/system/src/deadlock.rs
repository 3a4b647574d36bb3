//! Deadlock: found after a wave's end when nothing can ever wake what waits, and named (semantics
//! 29).
//!
//! The graph goes through sessions and channels, so that it is linear in what waits: a coroutine
//! that waits to receive waits for its channel, a channel for any session that could send to it, a
//! session for any of its coroutines.

use crate::group::{Group, pending};
use crate::index::SessionIndex;
use crate::task::Wait;
use crate::world::World;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, WaitNode, find_deadlock};

/// What a waiting coroutine waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitTarget {
    /// A message, or room, in a channel.
    Channel(ChannelId),
    /// A message in one of several channels.
    Channels(Vec<ChannelId>),
    /// The end of a coroutine.
    Coroutine(CoroutineName),
    /// Input, of which none is left.
    Input,
}

/// One waiting coroutine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Who.
    pub coroutine: CoroutineName,
    /// Why.
    pub reason: BlockReason,
    /// For what.
    pub target: WaitTarget,
}

/// A deadlock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// Everyone who waits, in session and slot order.
    pub waiting: Vec<Waiting>,
    /// The smallest set that waits only for itself: indices into `waiting`.
    pub closed_set: Vec<usize>,
    /// A cycle in it, each waiting for the next and the last for the first: indices into `waiting`;
    /// empty if there is none.
    pub cycle: Vec<usize>,
}

impl World {
    /// The deadlock, if the machine is in one. To be asked after a wave's end only.
    pub(crate) fn find_deadlock(&mut self) -> Option<Deadlock> {
        let mut lanes = self.groups.iter().flat_map(|group| &group.lanes);
        if !lanes.all(|lane| lane.kernel.population().is_stalled()) || !self.inputs.is_empty() {
            return None;
        }
        let waiting: Vec<Waiting> = (0..self.session_places.len() as u32)
            .flat_map(|session| self.waiting_of(SessionId(session)))
            .collect();
        if waiting.is_empty() {
            return None;
        }
        let graph = Graph::of(self, &waiting);
        let nodes: Vec<WaitNode<'_>> =
            graph.edges.iter().map(|targets| WaitNode::Any(targets)).collect();
        let found = find_deadlock(&nodes)?;
        let closed_set: Vec<usize> = found
            .members
            .iter()
            .map(|&node| node as usize)
            .filter(|&node| node < waiting.len())
            .collect();
        let cycle = graph.cycle(&waiting, &closed_set);
        Some(Deadlock { waiting, closed_set, cycle })
    }

    fn waiting_of(&mut self, id: SessionId) -> Vec<Waiting> {
        let group = self.session_group(id);
        let index = group.local[id];
        let state = &group.sessions[index];
        let slots: Vec<u32> = state
            .tasks
            .iter_live()
            .filter(|(_, task)| !task.wait.is_none())
            .map(|(slot, _)| slot)
            .collect();
        slots.into_iter().filter_map(|slot| group.waiting_at(index, slot)).collect()
    }
}

impl Group {
    /// What one waiting coroutine waits for.
    pub(crate) fn waiting_at(&self, session: SessionIndex, slot: u32) -> Option<Waiting> {
        let state = &self.sessions[session];
        let coroutine =
            CoroutineName { session: state.id, reference: state.tasks.reference_at(slot) };
        let task = state.tasks.live_ref(slot)?;
        let (operation, arguments) = pending(&*state.tasks.coroutine_ref(slot)?);
        let (reason, target) = match (&task.wait, operation) {
            (Wait::Selecting(places), _) => {
                let owner = coroutine.session;
                let channels =
                    places.iter().map(|&(index, _)| ChannelId { owner, index }).collect();
                (BlockReason::Select, WaitTarget::Channels(channels))
            }
            (Wait::Joining { .. }, _) => {
                let reference = CoroutineRef::from_guest(arguments[0] as i64)?;
                (
                    BlockReason::Join,
                    WaitTarget::Coroutine(CoroutineName { session: coroutine.session, reference }),
                )
            }
            (Wait::Input(_), _) => (BlockReason::Input, WaitTarget::Input),
            (Wait::Queued(_) | Wait::Lane | Wait::Reply(_), HostOperation::Call) => {
                (BlockReason::Reply, WaitTarget::Channel(self.waits_on(session, &arguments)?))
            }
            (Wait::Queued(_) | Wait::Lane, HostOperation::Send | HostOperation::SendBytes) => {
                (BlockReason::ChannelSend, WaitTarget::Channel(self.waits_on(session, &arguments)?))
            }
            (Wait::Queued(_) | Wait::Taking(_), _) => (
                BlockReason::ChannelReceive,
                WaitTarget::Channel(self.waits_on(session, &arguments)?),
            ),
            _ => return None,
        };
        Some(Waiting { coroutine, reason, target })
    }
}

/// Edges of the wait-for graph: coroutines first (as in the list of who waits), then the sessions
/// and channels they wait through.
struct Graph {
    edges: Vec<Vec<u32>>,
    sessions: BTreeMap<SessionId, u32>,
    channels: BTreeMap<ChannelId, u32>,
}

impl Graph {
    fn of(world: &mut World, waiting: &[Waiting]) -> Self {
        let mut graph = Self {
            edges: alloc::vec![Vec::new(); waiting.len()],
            sessions: BTreeMap::new(),
            channels: BTreeMap::new(),
        };
        let mut members: BTreeMap<SessionId, Vec<u32>> = BTreeMap::new();
        let mut places: BTreeMap<CoroutineName, u32> = BTreeMap::new();
        for (at, entry) in (0u32..).zip(waiting) {
            members.entry(entry.coroutine.session).or_default().push(at);
            places.insert(entry.coroutine, at);
        }
        for (at, entry) in waiting.iter().enumerate() {
            let targets = match &entry.target {
                WaitTarget::Input => Vec::new(),
                WaitTarget::Coroutine(name) => places.get(name).copied().into_iter().collect(),
                // Room and answers come from the owner, who alone receives; a message from whoever
                // may send.
                WaitTarget::Channel(id)
                    if matches!(entry.reason, BlockReason::ChannelSend | BlockReason::Reply) =>
                {
                    alloc::vec![graph.session(&members, id.owner)]
                }
                WaitTarget::Channel(id) => alloc::vec![graph.channel(world, &members, *id)],
                WaitTarget::Channels(ids) => {
                    ids.iter().map(|id| graph.channel(world, &members, *id)).collect()
                }
            };
            graph.edges[at] = targets;
        }
        graph
    }

    /// Follows who waits for whom from the least of a closed set until one repeats. Through a
    /// channel a coroutine could be waiting for itself, or for any other of its session; that
    /// explains nothing, so another session goes first, and itself never.
    fn cycle(&self, waiting: &[Waiting], closed_set: &[usize]) -> Vec<usize> {
        let mut path: Vec<usize> = Vec::new();
        let mut next = closed_set.first().copied();
        while let Some(at) = next {
            if let Some(start) = path.iter().position(|&other| other == at) {
                path.drain(..start);
                let least = path
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, other)| **other)
                    .map_or(0, |(place, _)| place);
                path.rotate_left(least);
                return path;
            }
            path.push(at);
            let own = waiting[at].coroutine.session;
            next = self
                .reachable(at, waiting.len())
                .min_by_key(|&other| (waiting[other].coroutine.session == own, other));
        }
        Vec::new()
    }

    /// Other coroutines that could end a wait, through channels and sessions; of each session the
    /// first.
    fn reachable(&self, at: usize, coroutines: usize) -> impl Iterator<Item = usize> {
        let mut open: Vec<u32> = self.edges[at].clone();
        let mut found = Vec::new();
        while let Some(node) = open.pop() {
            let node = node as usize;
            if node < coroutines {
                found.push(node);
            } else {
                let is_session =
                    self.edges[node].first().is_some_and(|&target| (target as usize) < coroutines);
                let kept = self.edges[node]
                    .iter()
                    .filter(|&&target| target as usize != at)
                    .take(if is_session { 1 } else { usize::MAX });
                open.extend(kept);
            }
        }
        found.into_iter().filter(move |&other| other != at)
    }

    fn session(&mut self, members: &BTreeMap<SessionId, Vec<u32>>, session: SessionId) -> u32 {
        if let Some(&node) = self.sessions.get(&session) {
            return node;
        }
        let node = self.edges.len() as u32;
        self.edges.push(members.get(&session).cloned().unwrap_or_default());
        self.sessions.insert(session, node);
        node
    }

    fn channel(
        &mut self,
        world: &mut World,
        members: &BTreeMap<SessionId, Vec<u32>>,
        channel: ChannelId,
    ) -> u32 {
        if let Some(&node) = self.channels.get(&channel) {
            return node;
        }
        let senders = world.senders_of(channel);
        let targets = senders.into_iter().map(|session| self.session(members, session)).collect();
        let node = self.edges.len() as u32;
        self.edges.push(targets);
        self.channels.insert(channel, node);
        node
    }
}

impl World {
    /// The sessions that may send to a channel: its owner, and those with an open port to it.
    pub(crate) fn senders_of(&self, channel: ChannelId) -> Vec<SessionId> {
        let mut senders = alloc::vec![channel.owner];
        for sender in self.wired_senders.get(&channel).cloned().unwrap_or_default() {
            if self
                .state_of(sender)
                .ports
                .iter()
                .any(|port| port.channel == channel && !port.closed)
            {
                senders.push(sender);
            }
        }
        senders.sort_unstable();
        senders
    }
}
