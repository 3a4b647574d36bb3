//! The manifest as plain data: checked, with every default filled in and every count expanded.
//!
//! Independent of TOML, files and positions in them; `read` makes these values and guarantees the
//! ranges given in `keys`.

use crate::keys::Limits;
use std::path::PathBuf;
use wavelock_abi::{Cycles, Frame, LaneId, LatencyClass, Priority, SessionId, Weight};
use wavelock_kernel::{CapSettings, Sharing};
use wavelock_system::{
    ContextSpec, GrantSpec, IslandSpec, LaterModule, LeaseSpec, NewSession, OwnLimits,
};

/// Which coroutine of a lane runs next.
pub use wavelock_kernel::PolicyKind as Policy;

/// The classes of `class`, most urgent first, by name.
pub const CLASS_NAMES: &[&str] = &["urgent", "interactive", "normal", "batch", "idle"];

/// The values of `share`, in the order of [`Sharing`].
pub(crate) const SHARE_NAMES: &[&str] = &[Sharing::Coroutine.name(), Sharing::Session.name()];

/// The latency class of a name.
#[must_use]
pub(crate) fn find_class(name: &str) -> Option<LatencyClass> {
    CLASS_NAMES.iter().position(|known| *known == name).map(|index| LatencyClass::ALL[index])
}

/// The span of a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaveSpan {
    /// Each lane runs slices until its clock passes the wave's end.
    Cycles(Cycles),
    /// Each lane makes this many picks; with 1, effects cross lanes after every pick.
    Picks(u32),
}

/// The whole manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// `[machine]`.
    pub machine: Machine,
    /// `[limits]`.
    pub limits: Limits,
    /// The modules, each once, in the order they are first named; paths as seen from the working
    /// directory.
    pub modules: Vec<PathBuf>,
    /// Every session, counts expanded, in manifest order: index i is `SessionId(i)`. Never empty.
    pub sessions: Vec<Session>,
    /// Every channel, in manifest order.
    pub channels: Vec<Channel>,
    /// `[template]`.
    pub template: Template,
    /// Every context, in manifest order.
    pub contexts: Vec<ContextSpec>,
    /// Every grant, in manifest order.
    pub grants: Vec<GrantSpec>,
    /// Every island, in manifest order.
    pub islands: Vec<IslandSpec>,
    /// Every lease, in manifest order.
    pub leases: Vec<LeaseSpec>,
}

/// `[machine]`: the model that every session shares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The number of lanes.
    pub lanes: u16,
    /// The policy of every lane.
    pub policy: Policy,
    /// Who shares a lane under `fair`.
    pub share: Sharing,
    /// Cycles a coroutine runs before it is preempted.
    pub quantum_cycles: Cycles,
    /// How long a frame is, on every lane.
    pub frame_cycles: Cycles,
    /// How long a wave is.
    pub wave: WaveSpan,
    /// The seed of every random stream.
    pub seed: u64,
    /// The run stops after this many frames.
    pub max_frames: Option<Frame>,
    /// Direct handoff: the receiver that a send wakes is the preferred next coroutine of its lane.
    pub handoff: bool,
    /// Work stealing: an idle lane takes a session from another lane at a wave's end.
    pub steal: bool,
    /// Load balancing: the most loaded lane gives a session to the least loaded at a frame's end.
    pub balance: bool,
    /// The machine takes inputs while it runs.
    pub live: bool,
    /// The longest gap of modules of sessions that are started later.
    pub most_gap: Option<Cycles>,
}

/// An index into [`Manifest::modules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ModuleIndex(pub u32);

/// An index into [`Manifest::channels`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChannelIndex(pub u32);

/// A global of which each coroutine has its own copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GlobalName {
    /// By its name in the module's name section or exports.
    Name(String),
    /// By its index in the module.
    Index(u32),
}

impl GlobalName {
    /// As `system` takes it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Index(index) => index.to_string(),
        }
    }
}

/// One session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Its name; unique.
    pub name: String,
    /// The module it runs.
    pub module: ModuleIndex,
    /// The lanes it may use, never empty, each once. The first is its home lane; several lanes form
    /// a group.
    pub lanes: Vec<LaneId>,
    /// The manifest names its lanes, so `steal` and `balance` do not move it.
    pub pinned: bool,
    /// Priority of its coroutines.
    pub priority: Priority,
    /// Weight of its coroutines under `fair`.
    pub weight: Weight,
    /// Latency class of its coroutines under `fair`.
    pub class: LatencyClass,
    /// What `args_get` returns.
    pub args: Vec<String>,
    /// What `environ_get` returns, in name order.
    pub env: Vec<(String, String)>,
    /// Its ports, in name order: what `port` finds. The owner of a channel finds it also under the
    /// channel's own name.
    pub ports: Vec<(String, ChannelIndex)>,
    /// Globals of which each coroutine has its own copy, in addition to `__stack_pointer`; `None`
    /// if the key is absent.
    pub coroutine_globals: Option<Vec<GlobalName>>,
    /// Its cap.
    pub cap: Option<CapSettings>,
    /// Its own limits.
    pub limits: OwnLimits,
}

/// One channel of the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Its name; unique.
    pub name: String,
    /// The session that receives from it.
    pub owner: SessionId,
    /// Its capacity in messages.
    pub capacity: u32,
}

/// `[template]`: what a session has that a live run starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Template {
    /// The lane it stays on; without it: its number modulo the lanes, and it may move.
    pub lane: Option<LaneId>,
    /// Priority of its coroutines.
    pub priority: Priority,
    /// Its weight under `fair`.
    pub weight: Weight,
    /// Latency class of its coroutines under `fair`.
    pub class: LatencyClass,
    /// What `args_get` returns; without it, its name.
    pub args: Option<Vec<String>>,
    /// What `environ_get` returns, in name order.
    pub env: Vec<(String, String)>,
    /// Its ports, in name order, and the channels that they lead to.
    pub ports: Vec<(String, String)>,
    /// Globals of which each coroutine has its own copy, in addition to `__stack_pointer`.
    pub coroutine_globals: Vec<GlobalName>,
    /// Its cap.
    pub cap: Option<CapSettings>,
    /// Its own limits.
    pub limits: OwnLimits,
}

impl Template {
    /// The session of a name and a module.
    #[must_use]
    pub fn session(&self, name: &str, module: LaterModule) -> NewSession {
        NewSession {
            lane: self.lane.map(|lane| lane.0),
            priority: self.priority,
            weight: self.weight,
            class: self.class,
            args: self.args.clone().unwrap_or_else(|| vec![name.to_owned()]),
            env: self.env.clone(),
            ports: self.ports.clone(),
            coroutine_globals: self.coroutine_globals.iter().map(GlobalName::text).collect(),
            cap: self.cap,
            limits: self.limits,
            ..NewSession::new(name, module)
        }
    }
}
