//! The sequential definition of behaviour: what a machine of guests does, step by step.
//!
//! In reading order:
//!
//! 1. *The machine as data*: a [`MachineSpec`] lists modules, sessions, channels and grants
//!    (`spec`, `authority`). Its canonical bytes start the run digest (`identity`, over `codec`).
//! 2. *Loading*: [`World::load`] checks a spec, links modules to the guest interface, and makes
//!    sessions, channels and first coroutines (`load`).
//! 3. *A session* (`session`): coroutines (`task`, `random`), channels (`channel`, `queue`), who
//!    waits for what (`wait`, `watch`), input and observables (`input`, `observe`). `index` has the
//!    types that name positions.
//! 4. *A group* of lanes and their sessions, which a worker can own for a wave (`group`): steps
//!    (`step`), with a fast path that runs many slices at once (`batch`).
//! 5. *Host operations*: the guest interface (`host`), functions of the embedder (`functions`;
//!    `ask` for those that reply in a later frame), calls with an answer (`call`), contexts
//!    (`context`), caps (`cap`), WASI (`wasi`), and how coroutines and sessions end (`ending`,
//!    `kill`).
//! 6. *The end of a wave*: effects cross lanes in one order (`boundary`, `parcels`; `rules` can be
//!    broken by tests), and sessions move (`moves`).
//! 7. *The frame loop*: [`World::run`] runs frames until every session has ended, none can
//!    continue, or the frame limit is reached (`world`, `deadlock`). `choose` replaces picks,
//!    `fork` continues under another policy, `probe` stops inside a slice.
//! 8. *Live machines*: inputs while a machine runs (`live`), among them those that change, start
//!    and replace sessions (`control`, `start`, `replace`).
//! 9. *Reports*, which change nothing: summaries (`report`), inspection (`look`), costs (`profile`,
//!    `wave_profile`, `books`).
//! 10. *State*: a whole machine between two frames as bytes, and back (`state`); or kept in memory
//!     to return to (`snapshot`).
//!
//! Law: the run digest is a function of the spec, the modules and the inputs. A driver that runs
//! the groups of an open wave in another order, or at once, gets the same run, because groups share
//! nothing between [`World::open_wave`] and [`World::close_wave`].
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_module::{Limits, Module};
//! use wavelock_system::{MachineSpec, RunOutcome, World};
//! let text = br#"(module
//!     (import "wavelock" "yield" (func $yield))
//!     (func (export "_start") call $yield))"#;
//! let mut spec = MachineSpec::new();
//! let module = Module::from_text(text, &Limits::default()).unwrap();
//! let module = spec.add_module(Arc::new(module), text);
//! spec.add_session("main", module);
//! let mut world = World::load(spec, Vec::new(), false).unwrap().world;
//! assert_eq!(world.run(&mut ()), Ok(RunOutcome::Finished));
//! assert_eq!(world.summary().steps, 2);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(
    clippy::vec_box,
    reason = "a group is handed to a worker and back by its pointer, not by its bytes"
)]

extern crate alloc;

mod authority;
mod codec;
mod errors;
mod identity;
mod spec;

mod control;
mod live;
mod load;
mod replace;
mod start;

mod channel;
mod index;
mod input;
mod observe;
mod queue;
mod random;
mod session;
mod task;
mod wait;
mod watch;

mod batch;
mod group;
mod step;

mod ask;
mod call;
mod cap;
mod context;
mod ending;
mod functions;
mod host;
mod island;
mod kill;
mod lease;
mod wasi;

mod boundary;
mod moves;
mod parcels;
#[cfg_attr(test, path = "../tests/planted/rules.rs")]
mod rules;

mod choose;
mod deadlock;
mod fork;
mod probe;
mod world;

mod books;
mod look;
mod profile;
mod report;
mod wave_profile;

mod snapshot;
mod state;

pub use ask::{AskId, OpenAsk};
pub use authority::{ContextSpec, Grant, GrantSpec, MOST_CONTEXTS};
pub use books::ContextAccount;
pub use cap::CapSummary;
pub use context::ContextSummary;
pub use control::{Control, ControlRefusal};
pub use deadlock::{Deadlock, WaitTarget, Waiting};
pub use functions::{
    GuestMemory, HostCode, HostCommand, HostFailed, HostImport, HostImports, HostKind, HostNumber,
    MOST_HOST_FUNCTIONS, MOST_HOST_VALUES,
};
pub use group::Group;
pub use identity::SpecError;
pub use input::{InputEvent, Recipient, UnreadInput};
pub use island::{
    Island, IslandMember, IslandRefusal, IslandSpec, IslandStage, IslandSummary, Need, PathTerm,
};
pub use kill::{KillRecord, KillRule};
pub use lease::{LeaseCounts, LeaseError, LeaseSpec, LeaseSummary};
pub use live::{
    GiveError, Input, MOST_INPUT_BYTES, MOST_UNREAD_BYTES, MOST_UNREAD_EVENTS, MOST_WAITING_BYTES,
    MOST_WAITING_INPUTS,
};
pub use load::{
    LoadError, Loaded, MAX_LANES, MOST_CYCLES, MOST_PERIOD_FRAMES, MissingImport, Warning,
};
pub use look::{ChannelLook, CoroutineLook, LaneLook, Presence, SessionUsage};
pub use moves::StuckMigrations;
pub use probe::Probe;
pub use profile::{FrameCosts, HostCost, Profile};
pub use replace::Replacement;
pub use report::{Cycles, LaneSummary, RunSummary, SessionSummary};
pub use session::{FaultRecord, FaultStack, LostStack, SessionOutcome};
pub use snapshot::Snapshot;
pub use spec::{ChannelSpec, Limits, MachineSpec, OwnLimits, Placement, SessionSpec, Span};
pub use start::{LaterModule, NewSession};
pub use state::{STATE_PAGE_BYTES, STATE_VERSION, StateError, StateHead};
pub use wave_profile::{ChannelTraffic, GroupLoad, WIDTH_BUCKETS, WaveProfile};
pub use world::{HostFailure, RunOutcome, Sink, Stage, World};
