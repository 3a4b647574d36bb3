//! The description of a machine, as plain data: the manifest after parsing, and the defaults.
//!
//! Contract: no file, path or syntax is used here (the command line reads manifests), and no
//! default comes from the host. A spec together with its modules and inputs determines the run, so
//! the run digest starts with [`MachineSpec::identity`].

use crate::authority::{ContextSpec, GrantSpec};
use crate::functions::HostImports;
use crate::island::IslandSpec;
use crate::lease::LeaseSpec;
use crate::load::can_park_or_watch;
use crate::start::{LaterModule, most_gap};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, LatencyClass, Priority, SCHEDULER_COSTS_V1, SessionId, Weight};
use wavelock_kernel::{CapSettings, Deviation, LaneSettings, Policy};
use wavelock_module::Module;

/// The length of a wave: how far lanes run before they see each other's effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Each lane runs slices until its clock passes the wave's end.
    Cycles(Cycles),
    /// Each lane runs this many picks (the strict form: 1).
    Picks(u32),
}

/// The limits of a machine: each finite, each per session, coroutine or channel (law 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Coroutines of a session, including ended ones that were not joined.
    pub coroutines: u32,
    /// Bytes of a coroutine's call and operand stack.
    pub stack_bytes: u32,
    /// Bytes of the stacks of all coroutines of a session, the first 56 bytes of each not counted.
    pub session_stack_bytes: u64,
    /// 64 KiB pages of a session's memory.
    pub memory_pages: u32,
    /// Elements of each of a session's tables.
    pub table_elements: u32,
    /// Bytes of one message.
    pub message_bytes: u32,
    /// Messages a channel can hold.
    pub channel_capacity: u32,
    /// Channels a session can make, its wired ones not counted.
    pub channels: u32,
    /// Channels one `select` can wait on.
    pub select: u32,
    /// Sessions of the machine.
    pub sessions: u32,
    /// Bytes a session can output in a frame.
    pub output_bytes: u32,
    /// Bytes a session can log in a frame.
    pub log_bytes: u32,
    /// Bytes of guest memory the machine may reserve at load.
    pub machine_memory: u64,
}

impl Limits {
    /// The default of [`Limits::session_stack_bytes`]: a machine that has it does not name it in
    /// its identity.
    pub(crate) const SESSION_STACK_BYTES: u64 = 1 << 30;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            coroutines: 1_000_000,
            stack_bytes: 1_048_576,
            session_stack_bytes: Self::SESSION_STACK_BYTES,
            memory_pages: 1024,
            table_elements: 1_000_000,
            message_bytes: 65_536,
            channel_capacity: 65_536,
            channels: 65_536,
            select: 1_024,
            sessions: 65_536,
            output_bytes: 1_048_576,
            log_bytes: 1_048_576,
            machine_memory: 8 << 30,
        }
    }
}

/// Limits of one session in place of the machine's; `None` is the machine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnLimits {
    /// See [`Limits::coroutines`].
    pub coroutines: Option<u32>,
    /// See [`Limits::stack_bytes`].
    pub stack_bytes: Option<u32>,
    /// See [`Limits::session_stack_bytes`].
    pub session_stack_bytes: Option<u64>,
    /// See [`Limits::memory_pages`].
    pub memory_pages: Option<u32>,
    /// See [`Limits::channels`].
    pub channels: Option<u32>,
    /// See [`Limits::output_bytes`].
    pub output_bytes: Option<u32>,
}

impl OwnLimits {
    /// The limits that hold for the session, in a machine with these.
    #[must_use]
    pub fn over(&self, machine: &Limits) -> Limits {
        Limits {
            coroutines: self.coroutines.unwrap_or(machine.coroutines),
            stack_bytes: self.stack_bytes.unwrap_or(machine.stack_bytes),
            session_stack_bytes: self.session_stack_bytes.unwrap_or(machine.session_stack_bytes),
            memory_pages: self.memory_pages.unwrap_or(machine.memory_pages),
            channels: self.channels.unwrap_or(machine.channels),
            output_bytes: self.output_bytes.unwrap_or(machine.output_bytes),
            ..*machine
        }
    }
}

/// Where a session's coroutines run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// On one lane.
    Lane(u16),
    /// Split over several; the first is its home: it holds the session's channels and its first
    /// coroutine.
    Split(Vec<u16>),
}

impl Placement {
    /// The lane that holds the session's channels and starts its first coroutine.
    #[must_use]
    pub fn home(&self) -> u16 {
        match self {
            Self::Lane(lane) => *lane,
            Self::Split(lanes) => lanes.first().copied().unwrap_or(0),
        }
    }

    /// All its lanes.
    #[must_use]
    pub fn lanes(&self) -> &[u16] {
        match self {
            Self::Lane(lane) => core::slice::from_ref(lane),
            Self::Split(lanes) => lanes,
        }
    }
}

/// One session to make.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// Its name, unique in the machine.
    pub name: String,
    /// Its module: an index into [`MachineSpec::modules`].
    pub module: usize,
    /// Its lanes.
    pub placement: Placement,
    /// The manifest names its lane, so it does not move.
    pub pinned: bool,
    /// Priority of its coroutines.
    pub priority: Priority,
    /// Weight of its coroutines.
    pub weight: Weight,
    /// Latency class of its coroutines.
    pub class: LatencyClass,
    /// WASI arguments.
    pub args: Vec<String>,
    /// WASI environment, name and value.
    pub env: Vec<(String, String)>,
    /// Port names and the channels (indices into [`MachineSpec::channels`]) wired to them.
    pub ports: Vec<(String, usize)>,
    /// Names of coroutine-local globals, besides `__stack_pointer`.
    pub coroutine_globals: Vec<String>,
    /// Its cap: the most cycles of all its coroutines together, per period.
    pub cap: Option<CapSettings>,
    /// Its own limits, in place of the machine's.
    pub limits: OwnLimits,
}

impl SessionSpec {
    /// The part of its cap on the lane at this position of its placement: an equal part of the
    /// budget each, the remainder on the first (semantics 47).
    #[must_use]
    pub fn cap_at(&self, position: usize) -> Option<CapSettings> {
        let lanes = self.placement.lanes().len().max(1) as u64;
        let cap = self.cap?;
        let rest = if position == 0 { cap.budget.0 % lanes } else { 0 };
        Some(CapSettings { budget: Cycles(cap.budget.0 / lanes + rest), ..cap })
    }
}

/// One wired channel to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelSpec {
    /// Its name, unique in the machine.
    pub name: String,
    /// The session that receives from it.
    pub owner: SessionId,
    /// Messages it can hold.
    pub capacity: u32,
}

/// A whole machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Virtual CPUs.
    pub lanes: u16,
    /// The policy of every lane, with its quantum.
    pub policy: Policy,
    /// Cycles of a frame, per lane.
    pub frame_cycles: Cycles,
    /// The span of a wave.
    pub span: Span,
    /// Seed of every random stream.
    pub seed: u64,
    /// Frames after which the run ends.
    pub max_frames: Option<u64>,
    /// Direct handoff: a send to a blocked receiver makes it the lane's preferred next pick.
    pub handoff: bool,
    /// Lanes without work take a session from a lane with more, at a wave's end.
    pub steal: bool,
    /// The busiest lane gives a session to the idlest, at a frame's end.
    pub balance: bool,
    /// Limits.
    pub limits: Limits,
    /// The modules sessions are made of.
    pub modules: Vec<Arc<Module>>,
    /// Hash of each module's bytes, for the run's identity.
    pub module_hashes: Vec<[u8; 32]>,
    /// The sessions, in manifest order.
    pub sessions: Vec<SessionSpec>,
    /// The wired channels, in manifest order.
    pub channels: Vec<ChannelSpec>,
    /// Contexts that are made at load, in manifest order.
    pub contexts: Vec<ContextSpec>,
    /// Grants of authority over time.
    pub grants: Vec<GrantSpec>,
    /// Islands, in manifest order.
    pub islands: Vec<IslandSpec>,
    /// Leases of lanes that may be asked for, in manifest order.
    pub leases: Vec<LeaseSpec>,
    /// Picks that are not the policy's, by lane and pick, ascending. Part of the model: exploration
    /// writes a schedule this way.
    pub deviations: Vec<(u16, Deviation)>,
    /// The machine takes inputs while it runs, and ends at a stop input (semantics 80).
    pub live: bool,
    /// Functions of the embedder that guests may import (semantics 100).
    pub host: HostImports,
    /// Of a machine that control inputs have changed: the description that it was loaded with,
    /// whose identity it keeps (semantics 84).
    pub origin: Option<Arc<Self>>,
    /// The longest gap between safepoints that modules of later sessions may have, if it is longer
    /// than those of the machine's own (semantics 88).
    pub most_gap: Option<Cycles>,
    /// Modules that control inputs brought, with their bytes. In no identity.
    pub library: Vec<LaterModule>,
}

impl MachineSpec {
    /// A machine with the defaults of the interface and no session.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lanes: 1,
            policy: Policy::RoundRobin { quantum: Cycles(10_000) },
            frame_cycles: Cycles(1_000_000),
            span: Span::Cycles(Cycles(100_000)),
            seed: 0,
            max_frames: None,
            handoff: false,
            steal: false,
            balance: false,
            limits: Limits::default(),
            modules: Vec::new(),
            module_hashes: Vec::new(),
            sessions: Vec::new(),
            channels: Vec::new(),
            contexts: Vec::new(),
            grants: Vec::new(),
            islands: Vec::new(),
            leases: Vec::new(),
            deviations: Vec::new(),
            live: false,
            host: HostImports::default(),
            origin: None,
            most_gap: None,
            library: Vec::new(),
        }
    }

    /// Adds a module and returns its index.
    pub fn add_module(&mut self, module: Arc<Module>, bytes: &[u8]) -> usize {
        self.modules.push(module);
        self.module_hashes.push(*blake3::hash(bytes).as_bytes());
        self.modules.len() - 1
    }

    /// Adds a session of `module` with defaults, on lane (its index mod lanes), and returns its id.
    pub fn add_session(&mut self, name: &str, module: usize) -> SessionId {
        let id = self.sessions.len();
        self.sessions.push(SessionSpec {
            name: name.into(),
            module,
            placement: Placement::Lane((id % usize::from(self.lanes.max(1))) as u16),
            pinned: false,
            priority: Priority::default(),
            weight: Weight::default(),
            class: LatencyClass::default(),
            args: Vec::new(),
            env: Vec::new(),
            ports: Vec::new(),
            coroutine_globals: Vec::new(),
            cap: None,
            limits: OwnLimits::default(),
        });
        SessionId(id as u32)
    }

    /// The longest gap between two safepoints of the modules that sessions use or may use later.
    pub(crate) fn longest_gap(&self) -> Cycles {
        let modules = self.sessions.iter().filter_map(|session| self.modules.get(session.module));
        let costs = self.host.functions.iter().map(|function| function.cost);
        let found = modules.map(|module| module.code().gap()).chain(costs).max();
        most_gap(self.most_gap, found.unwrap_or(Cycles::ZERO))
    }

    /// The last frame at whose end the clocks of all lanes together fit 64 bits, with two frames
    /// to spare.
    pub(crate) fn countable_frames(&self) -> u64 {
        (u64::MAX / self.frame_cycles.0 / u64::from(self.lanes)).saturating_sub(2)
    }

    /// The settings that every lane's kernel is made with.
    pub(crate) fn lane_settings(&self) -> LaneSettings {
        LaneSettings {
            policy: self.policy,
            frame_cycles: self.frame_cycles,
            costs: SCHEDULER_COSTS_V1,
            handoff: self.handoff,
        }
    }

    /// Whether a module can park, unpark or wait for a session. Only states of such machines count
    /// those waits and their wakes: the others keep the bytes they had before there were any.
    pub(crate) fn has_late_waits(&self) -> bool {
        self.modules.iter().any(|module| can_park_or_watch(module))
    }

    /// Whether a session has a cap.
    pub(crate) fn has_caps(&self) -> bool {
        self.sessions.iter().any(|session| session.cap.is_some())
    }

    /// The deviations of a lane from its policy.
    pub(crate) fn deviations_of(&self, lane: u16) -> Vec<Deviation> {
        let of_lane = self.deviations.iter().filter(|(of, _)| *of == lane);
        of_lane.map(|&(_, deviation)| deviation).collect()
    }

    /// The same machine with a change, also to the description that it was loaded with.
    pub(crate) fn with(&self, change: impl Fn(&mut Self)) -> Self {
        let mut spec = self.clone();
        change(&mut spec);
        spec.origin = self.origin.as_ref().map(|origin| Arc::new(origin.with(change)));
        spec
    }

    /// Adds a wired channel and returns its index.
    pub fn add_channel(&mut self, name: &str, owner: SessionId, capacity: u32) -> usize {
        self.channels.push(ChannelSpec { name: name.into(), owner, capacity });
        self.channels.len() - 1
    }
}

impl Default for MachineSpec {
    fn default() -> Self {
        Self::new()
    }
}
