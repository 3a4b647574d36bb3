//! The sequential definition of behaviour: what a machine of guests does, step by step.
//!
//! A [`MachineSpec`] says what a machine is made of. [`World::load`] links its modules to the guest interface and makes sessions, channels
//! and first coroutines; [`World::run`] runs frames until every session ended, nothing can go on, or the frames are used up. What guests
//! can ask for is in `host` and `wasi`; how lanes see each other is in `boundary`.
//!
//! Law kept here: the run digest is a function of the spec, the modules and the inputs. A driver that runs an open wave's groups in another
//! order, or at once, gets the same run, because groups share nothing between [`World::open_wave`] and [`World::close_wave`].
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_module::{Limits, Module};
//! use wavelock_system::{MachineSpec, RunOutcome, World};
//! let text = br#"(module (import "wavelock" "yield" (func $yield)) (func (export "_start") call $yield))"#;
//! let mut spec = MachineSpec::new();
//! let module = spec.add_module(Arc::new(Module::from_text(text, &Limits::default()).unwrap()), text);
//! spec.add_session("main", module);
//! let mut world = World::load(spec, Vec::new(), false).unwrap().world;
//! assert_eq!(world.run(&mut ()), Ok(RunOutcome::Finished));
//! assert_eq!(world.summary().steps, 2);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(clippy::vec_box, reason = "a group goes to a worker and back by its pointer, not by its bytes")]

extern crate alloc;

mod authority;
mod identity;
mod spec;

mod input;
mod load;
mod random;

mod channel;
mod observe;
mod session;
mod task;
mod wait;

mod call;
mod context;
mod direct;
mod ending;
mod group;
mod host;
mod turns;
mod wasi;

mod books;
mod boundary;
mod choose;
mod deadlock;
mod fork;
mod look;
mod moves;
mod parcels;
mod probe;
mod profile;
mod queue;
#[cfg_attr(test, path = "planted.rs")]
mod rules;
mod wave_profile;
mod world;

mod report;
mod state;

pub use authority::{CONTROL_NAME, ContextSpec, Grant, GrantSpec, MOST_CONTEXTS, POLICY_NAME};
pub use books::ContextAccount;
pub use context::ContextSummary;
pub use deadlock::{Deadlock, WaitTarget, Waiting};
pub use group::Group;
pub use identity::SpecError;
pub use input::{InputEvent, Recipient};
pub use load::{LoadError, Loaded, MAX_LANES, MOST_CYCLES, MissingImport, Warning, provided_import};
pub use look::{ChannelLook, CoroutineLook, LaneLook, Presence};
pub use probe::Probe;
pub use profile::{FrameCosts, HostCost, Profile};
pub use report::{Cycles, RunSummary, SessionSummary};
pub use session::{FaultRecord, SessionOutcome};
pub use spec::{ChannelSpec, Limits, MachineSpec, Placement, SessionSpec, Span};
pub use state::{STATE_PAGE_BYTES, STATE_VERSION, StateError, StateHead};
pub use task::EndStatus;
pub use wave_profile::{ChannelTraffic, GroupLoad, WIDTH_BUCKETS, WaveProfile};
pub use world::{HostFailure, RunOutcome, Sink, Stage, World};
