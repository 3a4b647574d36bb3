//! Islands: sets of contexts with the channels between them, admitted as a whole or refused with
//! the arithmetic (cpu-authority G).
//!
//! ```text
//!   Parse ──▶ Authority ──▶ Memory ──▶ Channels ──▶ Context ──▶ Path ──▶ Wcet
//! ```
//!
//! Contract: admission reads the description alone and changes nothing; it runs after the lanes
//! have admitted the contexts one by one (E.6), so that each member is guaranteed its budget by its
//! deadline. An island in the description that is not admitted refuses the machine. Elsewhere: the
//! worst case of a member's code (`wavelock_module::wcet`).

use crate::authority::ContextSpec;
use crate::errors::errors;
use crate::functions::HostKind;
use crate::load::LoadError;
use crate::spec::{MachineSpec, Span};
use crate::world::World;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{Cycles, HostOperation as Op, LaneId, SCHEDULER_COSTS_V1, SessionId};
use wavelock_module::wcet::{self, ImportCost, Wcet};
use wavelock_module::{BoundError, Bounds, ExportKind, Import, Module};

/// What the manifest says about an island.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IslandSpec {
    /// Its name.
    pub name: String,
    /// Its members: indices into [`MachineSpec::contexts`], ascending.
    pub members: Vec<usize>,
    /// Its channels: indices into [`MachineSpec::channels`], ascending.
    pub path: Vec<usize>,
    /// Pages that the memories of all members may have together.
    pub memory_pages: u64,
    /// The period of every member.
    pub period: Cycles,
    /// Cycles from the release of the first member of a path to the end of the last.
    pub deadline: Cycles,
    /// Bounds of its members' code, beside those of their modules.
    pub bounds: Vec<String>,
}

/// A stage of admission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IslandStage {
    /// The island's own values.
    Parse,
    /// Who holds the ends of its channels.
    Authority,
    /// Pages.
    Memory,
    /// The graph of its channels.
    Channels,
    /// The members' contexts.
    Context,
    /// The end-to-end deadline.
    Path,
    /// The members' code.
    Wcet,
}

impl IslandStage {
    /// Its name in refusals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Authority => "authority",
            Self::Memory => "memory",
            Self::Channels => "channels",
            Self::Context => "context",
            Self::Path => "path",
            Self::Wcet => "wcet",
        }
    }
}

/// A part of the time that a message takes along a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathTerm {
    /// The member's session, or the channel that crosses lanes.
    pub of: String,
    /// Its cycles.
    pub cycles: Cycles,
    /// Whether it is a crossing.
    pub crosses: bool,
}

/// The longest path, term by term.
struct Terms<'a>(&'a [PathTerm]);

impl fmt::Display for Terms<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.0.iter().enumerate() {
            let sign = if at == 0 { "" } else { " + " };
            let what = if term.crosses { "crossing by" } else { "deadline of" };
            write!(f, "{sign}{} ({what} `{}`)", term.cycles.0, term.of)?;
        }
        Ok(())
    }
}

errors! {
    /// Why an island is not admitted, with the numbers.
    IslandRefusal {
        /// It has no members.
        NoMembers => "it has no members",
        /// A member or channel that does not exist, or that is named twice.
        Named {
            /// What.
            what: &'static str,
            /// Its index.
            index: u64,
        } => "{what} {index} does not exist, or is named twice or by another island",
        /// Two members are of one session.
        SameSession {
            /// The session.
            session: String,
        } => "two members are contexts of session `{session}`",
        /// The deadline is not within the period.
        Deadline {
            /// The deadline.
            deadline: Cycles,
            /// The period.
            period: Cycles,
        } => "deadline_cycles = {}: 1 to period_cycles = {} are allowed" (deadline.0, period.0),
        /// A line of bounds is wrong.
        Bounds {
            /// The session whose module it is about; empty for the line itself.
            session: String,
            /// Why.
            error: BoundError,
        } => "{}{error}" (if session.is_empty() { String::new() } else { format!("session `{session}`: ") }),
        /// A channel of the path has an end outside the island.
        Stranger {
            /// The channel.
            channel: String,
            /// The session.
            session: String,
        } => "session `{session}` has an end of channel `{channel}` and is no member",
        /// A member's session is on several lanes.
        Split {
            /// The session.
            session: String,
        } => "session `{session}` is split over several lanes: a member runs on one",
        /// The members' memories do not fit.
        Pages {
            /// Pages of all members at their maximum.
            need: u64,
            /// `memory_pages`.
            have: u64,
        } => "the members' memories can have {need} pages together, and memory_pages = {have}",
        /// The channels lead in a circle.
        Circle {
            /// A channel of it.
            channel: String,
        } => "channel `{channel}` is part of a circle: a path has an end",
        /// A member has another period.
        Period {
            /// Its context.
            context: String,
            /// Its period.
            found: Cycles,
            /// The island's.
            period: Cycles,
        } => "context `{context}` has period_cycles = {}, and the island {}" (found.0, period.0),
        /// A member has lost its context since.
        Revoked {
            /// Its context.
            context: String,
        } => "context `{context}` was revoked or has no holder any more",
        /// The longest path takes longer than the deadline.
        TooLong {
            /// Its parts, in order.
            terms: Vec<PathTerm>,
            /// Their sum.
            total: Cycles,
            /// The island's deadline.
            deadline: Cycles,
        } => "the longest path takes {} = {} cycles, and deadline_cycles = {}" (Terms(terms), total.0, deadline.0),
        /// A member's code has no worst case.
        NoWorstCase {
            /// The session.
            session: String,
            /// Why, in words.
            why: String,
        } => "session `{session}` has no worst case: {why}",
        /// A member's budget is below its worst case.
        Budget {
            /// Its context.
            context: String,
            /// Its budget.
            have: Cycles,
            /// Its worst case per period.
            need: Need,
        } => "context `{context}` has budget_cycles = {}, and its period takes up to {} = {} * {} (steps, worst case of one) \
              + {} * {} (dispatches after a preemption or a wave's end, cost of one)"
            (have.0, need.total().0, need.steps, need.step.0, need.dispatches, DISPATCH.0),
    }
}

impl IslandRefusal {
    /// The stage that refused it.
    #[must_use]
    pub const fn stage(&self) -> IslandStage {
        match self {
            Self::NoMembers
            | Self::Named { .. }
            | Self::SameSession { .. }
            | Self::Deadline { .. } => IslandStage::Parse,
            Self::Stranger { .. } | Self::Split { .. } => IslandStage::Authority,
            Self::Pages { .. } => IslandStage::Memory,
            Self::Circle { .. } => IslandStage::Channels,
            Self::Period { .. } | Self::Revoked { .. } => IslandStage::Context,
            Self::TooLong { .. } => IslandStage::Path,
            Self::Bounds { .. } | Self::NoWorstCase { .. } | Self::Budget { .. } => {
                IslandStage::Wcet
            }
        }
    }
}

/// The cost of dispatching a holder again.
const DISPATCH: Cycles = Cycles(SCHEDULER_COSTS_V1.pick.0 + SCHEDULER_COSTS_V1.switch.0);

/// The worst case of a member per period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The longest step of its code, with the scheduler operations that it causes.
    pub step: Cycles,
    /// Steps per period: the messages that it receives, at least one.
    pub steps: u64,
    /// Times that it is dispatched again within its deadline.
    pub dispatches: u64,
}

impl Need {
    /// Cycles of its context.
    #[must_use]
    pub fn total(&self) -> Cycles {
        let steps = self.step.0.saturating_mul(self.steps);
        Cycles(steps.saturating_add(self.dispatches.saturating_mul(DISPATCH.0)))
    }
}

/// A member of an admitted island.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IslandMember {
    /// Its context's name.
    pub context: String,
    /// Its session.
    pub session: SessionId,
    /// Its lane.
    pub lane: LaneId,
    /// What it needs per period.
    pub need: Need,
    /// What it has.
    pub budget: Cycles,
}

/// An admitted island.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IslandSummary {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<IslandMember>,
    /// The longest path, term by term.
    pub path: Vec<PathTerm>,
    /// Its deadline.
    pub deadline: Cycles,
    /// Its period.
    pub period: Cycles,
    /// Pages that its members can have.
    pub pages: u64,
}

impl IslandSummary {
    /// The time that the longest path takes at most.
    #[must_use]
    pub fn longest(&self) -> Cycles {
        sum(&self.path)
    }
}

fn sum(terms: &[PathTerm]) -> Cycles {
    terms.iter().fold(Cycles::ZERO, |sum, term| Cycles(sum.0.saturating_add(term.cycles.0)))
}

/// Admits every island of a description whose contexts are placed and admitted.
///
/// # Errors
/// The first island that is refused.
pub(crate) fn admit_all(spec: &MachineSpec) -> Result<(), LoadError> {
    let mut taken = BTreeSet::new();
    for island in &spec.islands {
        let refused = |refusal| LoadError::Island { island: island.name.clone(), refusal };
        Admission { spec, island }.run().map_err(refused)?;
        if let Some(&twice) = island.members.iter().find(|&&member| !taken.insert(member)) {
            return Err(refused(IslandRefusal::Named { what: "context", index: twice as u64 }));
        }
    }
    Ok(())
}

/// An island of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Island {
    /// Its name.
    pub name: String,
    /// What it was admitted with, or what it lost since: then it is degraded.
    pub state: Result<IslandSummary, IslandRefusal>,
}

impl World {
    /// Every island with what it has now: control inputs and guests may take from one what it was
    /// admitted with. The analysis runs again for each call.
    #[must_use]
    pub fn islands(&self) -> Vec<Island> {
        if self.spec.islands.is_empty() {
            return Vec::new();
        }
        let mut spec = self.spec.placed().unwrap_or_else(|| (*self.spec).clone());
        let (live, mut lost) = (self.contexts(), BTreeSet::new());
        for (index, context) in spec.contexts.iter_mut().enumerate() {
            let now = live.iter().find(|other| {
                other.owner == context.session && other.name.as_ref() == Some(&context.name)
            });
            match now.filter(|now| now.holder.is_some()) {
                Some(now) => {
                    let now = &now.view.parameters;
                    (context.budget, context.period) = (now.budget, now.period);
                    context.deadline = now.deadline;
                }
                None => _ = lost.insert(index),
            }
        }
        let spec = &spec;
        let island = |island: &IslandSpec| {
            let state = match island.members.iter().find(|member| lost.contains(member)) {
                Some(&member) => {
                    Err(IslandRefusal::Revoked { context: spec.contexts[member].name.clone() })
                }
                None => Admission { spec, island }.run(),
            };
            Island { name: island.name.clone(), state }
        };
        spec.islands.iter().map(island).collect()
    }
}

/// The admission of one island.
struct Admission<'a> {
    spec: &'a MachineSpec,
    island: &'a IslandSpec,
}

impl<'a> Admission<'a> {
    fn run(&self) -> Result<IslandSummary, IslandRefusal> {
        self.parse()?;
        self.authority()?;
        let pages = self.memory()?;
        let order = self.channels()?;
        self.context()?;
        let path = self.path(&order)?;
        let members = self.wcet()?;
        let IslandSpec { name, deadline, period, .. } = self.island;
        let (name, deadline, period) = (name.clone(), *deadline, *period);
        Ok(IslandSummary { name, members, path, deadline, period, pages })
    }

    fn contexts(&self) -> impl Iterator<Item = &'a ContextSpec> {
        let spec = self.spec;
        self.island.members.iter().map(|&member| &spec.contexts[member])
    }

    fn session_name(&self, session: SessionId) -> String {
        self.spec.sessions[session.0 as usize].name.clone()
    }

    fn lane(&self, session: SessionId) -> u16 {
        self.spec.sessions[session.0 as usize].placement.home()
    }

    fn module(&self, session: SessionId) -> &'a Module {
        &self.spec.modules[self.spec.sessions[session.0 as usize].module]
    }

    fn parse(&self) -> Result<(), IslandRefusal> {
        let (spec, island) = (self.spec, self.island);
        if island.members.is_empty() {
            return Err(IslandRefusal::NoMembers);
        }
        let each_once = |what, list: &[usize], count: usize| {
            let mut seen = BTreeSet::new();
            let wrong = list.iter().find(|&&index| index >= count || !seen.insert(index));
            let index = |&index: &usize| Err(IslandRefusal::Named { what, index: index as u64 });
            wrong.map_or(Ok(()), index)
        };
        each_once("context", &island.members, spec.contexts.len())?;
        each_once("channel", &island.path, spec.channels.len())?;
        let mut sessions = BTreeSet::new();
        for context in self.contexts() {
            if !sessions.insert(context.session) {
                let session = self.session_name(context.session);
                return Err(IslandRefusal::SameSession { session });
            }
        }
        let (deadline, period) = (island.deadline, island.period);
        if deadline == Cycles::ZERO || deadline > period {
            return Err(IslandRefusal::Deadline { deadline, period });
        }
        Ok(())
    }

    /// The sessions that can send to a channel.
    fn senders(&self, channel: usize) -> impl Iterator<Item = SessionId> {
        let sends = move |ports: &[(String, usize)]| ports.iter().any(|(_, to)| *to == channel);
        let sessions = (0..).zip(&self.spec.sessions);
        sessions.filter(move |(_, session)| sends(&session.ports)).map(|(id, _)| SessionId(id))
    }

    fn authority(&self) -> Result<(), IslandRefusal> {
        let members: BTreeSet<SessionId> = self.contexts().map(|context| context.session).collect();
        for &channel in &self.island.path {
            let owner = self.spec.channels[channel].owner;
            let stranger =
                self.senders(channel).chain([owner]).find(|session| !members.contains(session));
            if let Some(stranger) = stranger {
                let channel = self.spec.channels[channel].name.clone();
                return Err(IslandRefusal::Stranger {
                    channel,
                    session: self.session_name(stranger),
                });
            }
        }
        let lanes = |session: &SessionId| {
            self.spec.sessions[session.0 as usize].placement.lanes().len() > 1
        };
        match members.iter().copied().find(|session| lanes(session)) {
            Some(split) => Err(IslandRefusal::Split { session: self.session_name(split) }),
            None => Ok(()),
        }
    }

    /// Pages of the members' memories at their maximum.
    fn memory(&self) -> Result<u64, IslandRefusal> {
        let pages = |context: &ContextSpec| {
            let session = &self.spec.sessions[context.session.0 as usize];
            let limit = session.limits.over(&self.spec.limits).memory_pages;
            let memory = self.module(context.session).memories().first();
            memory.map_or(0, |memory| u64::from(memory.maximum.unwrap_or(limit).min(limit)))
        };
        let (need, have) = (self.contexts().map(pages).sum(), self.island.memory_pages);
        if need > have { Err(IslandRefusal::Pages { need, have }) } else { Ok(need) }
    }

    /// The members' sessions, senders before receivers.
    fn channels(&self) -> Result<Vec<SessionId>, IslandRefusal> {
        let mut waiting: BTreeMap<SessionId, usize> = self
            .contexts()
            .map(|context| (context.session, self.received(context.session)))
            .collect();
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(next) =
            waiting.iter().find(|(_, edges)| **edges == 0).map(|(session, _)| *session)
        {
            waiting.remove(&next);
            order.push(next);
            for &channel in &self.island.path {
                let sends = self.senders(channel).filter(|sender| *sender == next).count();
                if let Some(edges) = waiting.get_mut(&self.spec.channels[channel].owner) {
                    *edges -= sends;
                }
            }
        }
        let in_circle =
            |channel: &&usize| waiting.contains_key(&self.spec.channels[**channel].owner);
        match self.island.path.iter().find(in_circle) {
            Some(&channel) if !waiting.is_empty() => {
                Err(IslandRefusal::Circle { channel: self.spec.channels[channel].name.clone() })
            }
            _ => Ok(order),
        }
    }

    /// Messages that a member receives per period: one from each sender to its channels.
    fn received(&self, session: SessionId) -> usize {
        let own = self
            .island
            .path
            .iter()
            .filter(|&&channel| self.spec.channels[channel].owner == session);
        own.map(|&channel| self.senders(channel).count()).sum()
    }

    fn context(&self) -> Result<(), IslandRefusal> {
        let period = self.island.period;
        let other = self.contexts().find(|context| context.period != period);
        other.map_or(Ok(()), |context| {
            let (context, found) = (context.name.clone(), context.period);
            Err(IslandRefusal::Period { context, found, period })
        })
    }

    /// The most cycles until an effect reaches another lane: the wave, and what its lanes overran.
    fn crossing(&self) -> Cycles {
        let wave = match self.spec.span {
            Span::Cycles(cycles) => cycles,
            Span::Picks(_) => self.spec.frame_cycles,
        };
        wave + self.spec.longest_gap()
    }

    /// The longest path. A member ends by the deadline of its context after what released it (E.6),
    /// also when messages come unevenly: a refill is usable a period after its latest use.
    fn path(&self, order: &[SessionId]) -> Result<Vec<PathTerm>, IslandRefusal> {
        let mut longest: BTreeMap<SessionId, Vec<PathTerm>> = BTreeMap::new();
        for &session in order {
            let mut before: Vec<PathTerm> = Vec::new();
            for &channel in &self.island.path {
                if self.spec.channels[channel].owner != session {
                    continue;
                }
                for sender in self.senders(channel) {
                    let mut terms = longest.get(&sender).cloned().unwrap_or_default();
                    if self.lane(sender) != self.lane(session) {
                        let of = self.spec.channels[channel].name.clone();
                        terms.push(PathTerm { of, cycles: self.crossing(), crosses: true });
                    }
                    if sum(&terms) > sum(&before) {
                        before = terms;
                    }
                }
            }
            let own = self.contexts().find(|context| context.session == session);
            let cycles = own.map_or(Cycles::ZERO, |context| context.deadline);
            before.push(PathTerm { of: self.session_name(session), cycles, crosses: false });
            longest.insert(session, before);
        }
        let terms = longest.into_values().max_by_key(|terms| sum(terms)).unwrap_or_default();
        let (total, deadline) = (sum(&terms), self.island.deadline);
        if total > deadline {
            return Err(IslandRefusal::TooLong { terms, total, deadline });
        }
        Ok(terms)
    }

    fn wcet(&self) -> Result<Vec<IslandMember>, IslandRefusal> {
        let mut members = Vec::with_capacity(self.island.members.len());
        for context in self.contexts() {
            let need = Need {
                step: self.step(context.session)?,
                steps: (self.received(context.session) as u64).max(1),
                dispatches: self.dispatches(context),
            };
            let have = context.budget;
            if need.total() > have {
                let context = context.name.clone();
                return Err(IslandRefusal::Budget { context, have, need });
            }
            members.push(IslandMember {
                context: context.name.clone(),
                session: context.session,
                lane: LaneId(self.lane(context.session)),
                need,
                budget: have,
            });
        }
        Ok(members)
    }

    /// The longest step of a session's entries.
    fn step(&self, session: SessionId) -> Result<Cycles, IslandRefusal> {
        let (name, module) = (|| self.session_name(session), self.module(session));
        let refused = |error| IslandRefusal::Bounds { session: name(), error };
        let mut bounds = Bounds::of(module).map_err(refused)?;
        for line in &self.island.bounds {
            bounds.add(line).map_err(refused)?;
        }
        let imports = |import: &Import| self.import_cost(import);
        let wcet = Wcet::new(module, &bounds, wcet::Span::Step, &imports).map_err(refused)?;
        let export = |name: &&str| match module.export(name) {
            Some(ExportKind::Function(function)) => Some(function),
            _ => None,
        };
        // What a first coroutine calls: see `link`.
        let entries = ["_initialize", "_start", "main"];
        let entries = entries.iter().filter_map(export).chain(module.start());
        let mut longest = Cycles::ZERO;
        for entry in entries {
            let worst = wcet.function(entry).transpose();
            let worst = worst.map_err(|missing| IslandRefusal::NoWorstCase {
                session: name(),
                why: missing.text(module).to_string(),
            })?;
            longest = longest.max(worst.unwrap_or(Cycles::ZERO));
        }
        Ok(longest)
    }

    /// The cost of an import with what its context pays for the scheduler: the next dispatch if it
    /// may block, the wake of another if it may send.
    fn import_cost(&self, import: &Import) -> Option<ImportCost> {
        let costs = SCHEDULER_COSTS_V1;
        if let Some(operation) = Op::find(&import.module, &import.name) {
            let mut cost = ImportCost::of(operation);
            if !operation.manual().blocks.is_empty() {
                cost.cycles += DISPATCH;
            }
            let wakes = matches!(
                operation,
                Op::Send
                    | Op::TrySend
                    | Op::SendBytes
                    | Op::Reply
                    | Op::Serve
                    | Op::Call
                    | Op::Unpark
                    | Op::Recv
                    | Op::TryRecv
                    | Op::RecvBytes
                    | Op::Accept
            );
            if wakes {
                cost.cycles += costs.wake;
            }
            // Each may wake any number of others.
            let is_unbounded = matches!(
                operation,
                Op::Close
                    | Op::Exit
                    | Op::ProcExit
                    | Op::Cancel
                    | Op::Spawn
                    | Op::SpawnOn
                    | Op::SpawnStack
            );
            return (!is_unbounded).then_some(cost);
        }
        let (_, function) = self.spec.host.find(&import.module, &import.name)?;
        (function.kind != HostKind::Ask).then_some(ImportCost {
            cycles: function.cost,
            size: None,
            waits: false,
            may_end: true,
        })
    }

    /// How often a member can be dispatched again within its deadline: after every wave and frame,
    /// and after every release of another context of its lane.
    fn dispatches(&self, own: &ContextSpec) -> u64 {
        let (lane, within) = (self.lane(own.session), own.deadline.0);
        let times = |every: Cycles| within / every.0.max(1) + 2;
        let waves = match self.spec.span {
            Span::Cycles(cycles) => times(cycles),
            Span::Picks(_) => times(Cycles(1)),
        };
        let others = self
            .spec
            .contexts
            .iter()
            .filter(|other| self.lane(other.session) == lane && other.session != own.session);
        let releases: u64 =
            others.map(|other| times(other.period) * u64::from(other.refills)).sum();
        // The fair server is released once a frame at most.
        waves + 2 * times(self.spec.frame_cycles) + releases
    }
}
