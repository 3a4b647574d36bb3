//! The manifest as plain data: what the machine is told, checked, with every default filled in and
//! every count expanded.
//!
//! Nothing here knows TOML, files or places in them; `read` makes these values and guarantees the
//! ranges named in `keys`.

use super::keys::Limits;
use std::path::PathBuf;
use wavelock_abi::{Cycles, Frame, LaneId, LatencyClass, Priority, SessionId, Weight};
use wavelock_system::{ContextSpec, GrantSpec};

macro_rules! policies {
    ($($(#[$attribute:meta])* $name:ident $text:literal $doc:literal;)*) => {
        /// Which coroutine of a lane runs next.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum Policy {
            $($(#[$attribute])* #[doc = $doc] $name,)*
        }

        impl Policy {
            /// Every policy, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),*];

            /// Its name in manifests, flags and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it does, for the documentation table.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }

            /// The policy of a name.
            #[must_use]
            pub fn find(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|policy| policy.name() == name)
            }
        }
    };
}

policies! {
    Cooperative "cooperative" "switches only at yield, sleep, wait and frame end; no bound on how long others wait";
    #[default] RoundRobin "round-robin" "in turn, each for at most a quantum";
    PriorityFixed "priority-fixed" "larger `priority` first; no bound across priorities, first come first served within one";
    PriorityAging "priority-aging" "larger `priority` first, and one more for every 16 picks waited";
    PriorityToken "priority-token" "more progress tokens first; no bound across counts, first come first served within one";
    ProgressAware "progress-aware" "holders of progress tokens first, but after 8 of them in a row the oldest other";
    Fair "fair" "EEVDF: time in proportion to `weight`, latency by `class`";
}

/// The classes of `class`, most urgent first, by name.
pub(crate) const CLASS_NAMES: &[&str] = &["urgent", "interactive", "normal", "batch", "idle"];

/// The latency class of a name.
#[must_use]
pub(super) fn find_class(name: &str) -> Option<LatencyClass> {
    CLASS_NAMES.iter().position(|known| *known == name).map(|index| LatencyClass::ALL[index])
}

/// The span of a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaveSpan {
    /// Each lane runs slices until its clock passes the wave's end.
    Cycles(Cycles),
    /// Each lane makes this many picks; 1 is the strict form.
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
    /// Every context, in manifest order.
    pub contexts: Vec<ContextSpec>,
    /// Every grant, in manifest order.
    pub grants: Vec<GrantSpec>,
}

/// `[machine]`: the model that every session shares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// How many lanes.
    pub lanes: u16,
    /// The policy of every lane.
    pub policy: Policy,
    /// How long a coroutine runs before another of its lane does.
    pub quantum_cycles: Cycles,
    /// How long a frame is, on every lane.
    pub frame_cycles: Cycles,
    /// How long a wave is.
    pub wave: WaveSpan,
    /// The root of every random stream.
    pub seed: u64,
    /// How many frames the run may have.
    pub max_frames: Option<Frame>,
    /// Whether a send to a waiting receiver prefers it as the next coroutine.
    pub handoff: bool,
    /// Whether an idle lane takes over a whole session of another at a wave's end.
    pub steal: bool,
    /// Whether the lane with most to run gives a session to the one with least at a frame's end.
    pub balance: bool,
}

/// A module's place in [`Manifest::modules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ModuleIndex(pub u32);

/// A channel's place in [`Manifest::channels`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChannelIndex(pub u32);

/// A global that each coroutine has for itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GlobalName {
    /// By its name in the module's name section or exports.
    Name(String),
    /// By its index in the module.
    Index(u32),
}

/// One session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Its name; unique.
    pub name: String,
    /// What it runs.
    pub module: ModuleIndex,
    /// The lanes it may use, never empty, each once. The first is its home; more than one: it is
    /// split, and they form a group.
    pub lanes: Vec<LaneId>,
    /// The manifest names its lanes, so `steal` does not move it.
    pub pinned: bool,
    /// Priority of its coroutines.
    pub priority: Priority,
    /// Weight of its coroutines under `fair`.
    pub weight: Weight,
    /// Latency class of its coroutines under `fair`.
    pub class: LatencyClass,
    /// What `args_get` answers.
    pub args: Vec<String>,
    /// What `environ_get` answers, in name order.
    pub env: Vec<(String, String)>,
    /// Its ports, in name order: what `port` finds. The owner of a channel finds it also under the
    /// channel's own name.
    pub ports: Vec<(String, ChannelIndex)>,
    /// Globals each coroutine has for itself, beside `__stack_pointer`; `None` when the manifest
    /// does not say.
    pub coroutine_globals: Option<Vec<GlobalName>>,
}

/// One channel that the manifest wires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Its name; unique.
    pub name: String,
    /// The session that receives from it.
    pub owner: SessionId,
    /// How many messages it holds.
    pub capacity: u32,
}
