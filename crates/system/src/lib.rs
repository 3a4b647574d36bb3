//! The sequential definition of behaviour: what a machine of guests does, step by step.
//!
//! In reading order:
//!
//! 1. *What a machine is*: a [`MachineSpec`] (`spec`, `authority`), and its canonical bytes
//!    (`identity`).
//! 2. *Loading*: [`World::load`] checks a spec, links modules to the guest interface, and makes
//!    sessions, channels and first coroutines (`load`).
//! 3. *What a session holds*: coroutines, channels, input, observables (`session`, `task`,
//!    `channel`, `wait`, `queue`, `input`, `observe`, `random`).
//! 4. *Guest calls*: the guest interface (`host`, `wasi`), calls with an answer (`call`), contexts
//!    (`context`), and ends (`ending`).
//! 5. *A wave*: a [`Group`] steps its lanes (`group`, `step`, `batch`); effects cross lanes when
//!    the wave closes (`boundary`, `parcels`, `moves`).
//! 6. *The frame loop*: [`World::run`] runs frames until every session ended, none can continue, or
//!    the frame limit is reached (`world`, `deadlock`). `choose`, `fork` and `probe` steer it from
//!    outside.
//! 7. *Reading a machine*: summaries, looks and profiles (`report`, `look`, `books`, `profile`,
//!    `wave_profile`), which change nothing.
//! 8. *State*: a whole machine between two frames as bytes, and back (`state`, over `codec`).
//!
//! Law kept here: the run digest is a function of the spec, the modules and the inputs. A driver
//! that runs an open wave's groups in another order, or at once, gets the same run, because groups
//! share nothing between [`World::open_wave`] and [`World::close_wave`].
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
    reason = "a group goes to a worker and back by its pointer, not by its bytes"
)]

extern crate alloc;

mod authority;
mod codec;
mod errors;
mod identity;
mod spec;

mod load;

mod channel;
mod index;
mod input;
mod observe;
mod queue;
mod random;
mod session;
mod task;
mod wait;

mod call;
mod context;
mod ending;
mod host;
mod wasi;

mod batch;
mod boundary;
mod group;
mod moves;
mod parcels;
#[cfg_attr(test, path = "../tests/planted/rules.rs")]
mod rules;
mod step;

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

mod state;

pub use authority::{ContextSpec, Grant, GrantSpec, MOST_CONTEXTS};
pub use books::ContextAccount;
pub use context::ContextSummary;
pub use deadlock::{Deadlock, WaitTarget, Waiting};
pub use group::Group;
pub use identity::SpecError;
pub use input::{InputEvent, Recipient};
pub use load::{LoadError, Loaded, MAX_LANES, MOST_CYCLES, MissingImport, Warning};
pub use look::{ChannelLook, CoroutineLook, LaneLook, Presence};
pub use probe::Probe;
pub use profile::{FrameCosts, HostCost, Profile};
pub use report::{Cycles, RunSummary, SessionSummary};
pub use session::{FaultRecord, SessionOutcome};
pub use spec::{ChannelSpec, Limits, MachineSpec, Placement, SessionSpec, Span};
pub use state::{STATE_PAGE_BYTES, STATE_VERSION, StateError, StateHead};
pub use wave_profile::{ChannelTraffic, GroupLoad, WIDTH_BUCKETS, WaveProfile};
pub use world::{HostFailure, RunOutcome, Sink, Stage, World};
