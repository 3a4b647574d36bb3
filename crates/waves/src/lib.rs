//! Waves on threads: the same run as the sequential `system`, faster.
//!
//! [`Waves`] drives a world. For each wave, the [`Planner`] claims which groups run and what they
//! own; `certify` checks the claim; the pool moves each group to a worker, which owns it while it
//! runs; then `system` commits in canonical order. If the claim is refused, the wave runs one step
//! at a time on one thread, with the same trace. [`Telemetry`] counts what depends on workers;
//! [`EnvelopeDiff`] compares two runs. No scheduling or instruction rule is in this crate: a group
//! runs with [`wavelock_system::Group::run_wave`] on any thread.
//!
//! Law: nothing runs in parallel without a [`wavelock_certify::CheckedWave`]; the worker count
//! changes telemetry, never the trace.
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_module::{Limits, Module};
//! use wavelock_system::{MachineSpec, RunOutcome, World};
//! use wavelock_waves::Waves;
//! let text = br#"(module
//!     (import "wavelock" "yield" (func $yield))
//!     (func (export "_start") call $yield))"#;
//! let machine = || {
//!     let mut spec = MachineSpec { lanes: 2, ..MachineSpec::new() };
//!     let module = Module::from_text(text, &Limits::default()).unwrap();
//!     let module = spec.add_module(Arc::new(module), text);
//!     spec.add_session("a", module);
//!     spec.add_session("b", module);
//!     World::load(spec, Vec::new(), false).unwrap().world
//! };
//! let mut sequential = machine();
//! sequential.run(&mut ()).unwrap();
//! let mut parallel = Waves::new(machine(), 2).unwrap();
//! assert_eq!(parallel.run(&mut ()), Ok(RunOutcome::Finished));
//! assert_eq!(parallel.world().digest(), sequential.digest());
//! ```
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod plan;
mod telemetry;

mod handover;
mod pool;
mod sync;
mod threads;

mod assign;
mod driver;

mod envelope;

pub use driver::{PARALLEL_THRESHOLD_CYCLES, Round, StartError, Waves};
pub use envelope::{
    Difference, ENVELOPE_VERSION, EffectClass, EnvelopeDiff, FailureClass, OrderClass, RunView,
    SessionView,
};
pub use plan::{Plan, Planner};
pub use telemetry::{Telemetry, Time};
pub use threads::Threads;
