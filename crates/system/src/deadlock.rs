//! Deadlock: detected after a wave's end, when nothing can ever wake the coroutines that wait, and
//! reported with its members (semantics 29).
//!
//! The wait-for graph has nodes for sessions and channels, so that its size is linear in the number
//! of waiting coroutines: a blocked receiver waits for its channel, a channel for any session that
//! could send to it, a session for any of its coroutines. The search itself is the kernel's.

use crate::functions::FIRST_FUNCTION;
use crate::group::{Group, is_host_function, pending};
use crate::host::Region;
use crate::index::TaskIndex;
use crate::task::Wait;
use crate::world::World;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, WaitNode, find_deadlock};

/// The object of a wait.
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
    /// The reply of the embedder, to a call of the function at this position.
    Reply(usize),
    /// An unpark, by a coroutine of this session, its own.
    Unpark(SessionId),
    /// The end of a session.
    Session(SessionId),
    /// A lease, by its position in the description: until it is active or denied.
    Lease(usize),
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
    /// All waiting coroutines, in session and slot order.
    pub waiting: Vec<Waiting>,
    /// The smallest set that waits only for itself: indices into `waiting`.
    pub closed_set: Vec<usize>,
    /// A cycle in it, each waiting for the next and the last for the first: indices into `waiting`;
    /// empty if there is none.
    pub cycle: Vec<usize>,
}

impl World {
    /// The deadlock, if the machine is in one. Called after a wave's end only.
    pub(crate) fn find_deadlock(&self) -> Option<Deadlock> {
        if self.spec.live {
            return None;
        }
        let is_stalled = self.lanes().all(|lane| lane.kernel.population().is_stalled());
        if !is_stalled || !self.inputs.is_empty() || self.has_pending_lease() {
            return None;
        }
        let waiting: Vec<Waiting> =
            self.session_ids().flat_map(|session| self.waiting_of(session)).collect();
        if waiting.is_empty() {
            return None;
        }
        let graph = Graph::of(self, &waiting);
        let nodes: Vec<WaitNode<'_>> =
            graph.edges.iter().map(|targets| WaitNode::Any(targets)).collect();
        let found = find_deadlock(&nodes)?;
        let members = found.members.iter().map(|&node| node as usize);
        let closed_set: Vec<usize> = members.filter(|&node| node < waiting.len()).collect();
        let cycle = graph.cycle(&waiting, &closed_set);
        Some(Deadlock { waiting, closed_set, cycle })
    }

    fn waiting_of(&self, id: SessionId) -> impl Iterator<Item = Waiting> {
        let group = &self.groups[self.session_groups[id.0 as usize]];
        let session = group.local[id];
        let live = group.sessions[session].tasks.iter_live();
        live.filter_map(move |(slot, _)| group.waiting_at(TaskIndex { session, slot }))
    }

    /// The sessions that may send to a channel: its owner, and those with an open port to it.
    pub(crate) fn senders_of(&self, channel: ChannelId) -> Vec<SessionId> {
        let wired = self.wired_senders.get(&channel).into_iter().flatten().copied();
        let is_open = |sender: &SessionId| self.session_ref(*sender).has_open_port(channel);
        let mut senders: Vec<SessionId> = wired.filter(is_open).collect();
        senders.push(channel.owner);
        senders.sort_unstable();
        senders
    }
}

impl Group {
    /// What a coroutine waits for, if it waits.
    pub(crate) fn waiting_at(&self, at: TaskIndex) -> Option<Waiting> {
        let state = &self.sessions[at.session];
        let session = state.id;
        let task = state.tasks.live_ref(at.slot).filter(|task| !task.wait.is_none())?;
        let coroutine = state.tasks.coroutine_ref(at.slot)?;
        if let Wait::Asking(_) = task.wait {
            let function = coroutine.host_call()?.number.checked_sub(FIRST_FUNCTION)?;
            let (coroutine, target) =
                (state.coroutine_name(at.slot), WaitTarget::Reply(function.into()));
            return Some(Waiting { coroutine, reason: BlockReason::Input, target });
        }
        if is_host_function(&coroutine) {
            return None;
        }
        let (operation, [first, ..]) = pending(&coroutine);
        let channel = || self.waits_on(at.session, first).map(WaitTarget::Channel);
        let (reason, target) = match (&task.wait, operation) {
            (Wait::Selecting(tickets), _) => {
                let ids = tickets.iter().map(|&(index, _)| ChannelId { owner: session, index });
                (BlockReason::Select, WaitTarget::Channels(ids.collect()))
            }
            (Wait::Joining { .. }, _) => {
                let reference = CoroutineRef::from_guest(first as i64)?;
                let target = WaitTarget::Coroutine(CoroutineName { session, reference });
                (BlockReason::Join, target)
            }
            (Wait::Input(_), _) => (BlockReason::Input, WaitTarget::Input),
            (Wait::Lease, _) => {
                let [_, pointer, length, _] = pending(&coroutine).1;
                let name = state.bytes(Region::new(pointer, length)).ok()?;
                let mut leases = self.shared.leases.iter();
                let lease = leases.position(|lease| lease.name.as_bytes() == name)?;
                (BlockReason::OtherLane, WaitTarget::Lease(lease))
            }
            (Wait::Parked, _) => (BlockReason::Park, WaitTarget::Unpark(session)),
            (Wait::Session(_), _) => {
                let target = self.waits_on(at.session, first)?.owner;
                (BlockReason::Session, WaitTarget::Session(target))
            }
            (Wait::Queued(_) | Wait::Lane | Wait::Reply(_), HostOperation::Call) => {
                (BlockReason::Reply, channel()?)
            }
            (Wait::Queued(_) | Wait::Lane, HostOperation::Send | HostOperation::SendBytes) => {
                (BlockReason::ChannelSend, channel()?)
            }
            (Wait::Queued(_) | Wait::Taking(_), _) => (BlockReason::ChannelReceive, channel()?),
            _ => return None,
        };
        Some(Waiting { coroutine: state.coroutine_name(at.slot), reason, target })
    }
}

/// Edges of the wait-for graph: coroutines first, as in the list of waiting ones, then the sessions
/// and channels they wait through.
struct Graph<'a> {
    world: &'a World,
    edges: Vec<Vec<u32>>,
    /// The waiting coroutines of each session.
    members: BTreeMap<SessionId, Vec<u32>>,
    sessions: BTreeMap<SessionId, u32>,
    channels: BTreeMap<ChannelId, u32>,
}

impl<'a> Graph<'a> {
    fn of(world: &'a World, waiting: &[Waiting]) -> Self {
        let mut members: BTreeMap<SessionId, Vec<u32>> = BTreeMap::new();
        let mut numbers: BTreeMap<CoroutineName, u32> = BTreeMap::new();
        for (at, entry) in (0u32..).zip(waiting) {
            members.entry(entry.coroutine.session).or_default().push(at);
            numbers.insert(entry.coroutine, at);
        }
        let edges = alloc::vec![Vec::new(); waiting.len()];
        let (sessions, channels) = (BTreeMap::new(), BTreeMap::new());
        let mut graph = Self { world, edges, members, sessions, channels };
        for (at, entry) in waiting.iter().enumerate() {
            graph.edges[at] = match &entry.target {
                // A lease that is on its way is no deadlock, so none of these is waited for.
                WaitTarget::Input | WaitTarget::Reply(_) | WaitTarget::Lease(_) => Vec::new(),
                WaitTarget::Unpark(session) | WaitTarget::Session(session) => {
                    alloc::vec![graph.session(*session)]
                }
                WaitTarget::Coroutine(name) => numbers.get(name).copied().into_iter().collect(),
                // Room and answers come from the owner, which alone receives; a message from any
                // session that may send.
                WaitTarget::Channel(id)
                    if matches!(entry.reason, BlockReason::ChannelSend | BlockReason::Reply) =>
                {
                    alloc::vec![graph.session(id.owner)]
                }
                WaitTarget::Channel(id) => alloc::vec![graph.channel(*id)],
                WaitTarget::Channels(ids) => ids.iter().map(|id| graph.channel(*id)).collect(),
            };
        }
        graph
    }

    /// Follows the edges from the first member of a closed set until one repeats. Through a channel
    /// a coroutine could be waiting for itself, or for any other of its session. That explains
    /// nothing, so another session comes first, and itself never.
    fn cycle(&self, waiting: &[Waiting], closed_set: &[usize]) -> Vec<usize> {
        let mut path: Vec<usize> = Vec::new();
        let mut next = closed_set.first().copied();
        while let Some(at) = next {
            if let Some(start) = path.iter().position(|&other| other == at) {
                path.drain(..start);
                let least = (0..path.len()).min_by_key(|&at| path[at]);
                path.rotate_left(least.unwrap_or(0));
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

    /// Other coroutines that could end a wait, through channels and sessions; the first of each
    /// session.
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

    fn session(&mut self, session: SessionId) -> u32 {
        *self.sessions.entry(session).or_insert_with(|| {
            self.edges.push(self.members.get(&session).cloned().unwrap_or_default());
            self.edges.len() as u32 - 1
        })
    }

    fn channel(&mut self, channel: ChannelId) -> u32 {
        if let Some(&node) = self.channels.get(&channel) {
            return node;
        }
        let senders = self.world.senders_of(channel);
        let targets = senders.into_iter().map(|session| self.session(session)).collect();
        self.edges.push(targets);
        let node = self.edges.len() as u32 - 1;
        self.channels.insert(channel, node);
        node
    }
}
