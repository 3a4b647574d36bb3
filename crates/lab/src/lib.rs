//! Runs one machine many times: explores schedules and compares policies.
//!
//! [`explore`] runs a machine under many schedules and reports whether the observable behaviour of
//! its sessions depends on the schedule. If it does, the shortest schedule found is returned as a
//! [`Witness`]: a machine that can be run, recorded and replayed like any other. [`compare`] runs
//! one workload under every policy and measures wait times, fairness and cost; [`picture`] draws
//! the result.
//!
//! The law kept here: a schedule is part of a machine's description
//! ([`wavelock_system::MachineSpec::deviations`], the policy, the lanes), never a hook into a run,
//! so every result is reproducible from the description alone. Every random number comes from a
//! seed.
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_kernel::Policy;
//! use wavelock_lab::{Limits, Verdict, explore};
//! use wavelock_system::MachineSpec;
//!
//! let bytes = wat::parse_str(r#"(module (func (export "_start")))"#).unwrap();
//! let module = wavelock_module::Module::new(&bytes, &Default::default()).unwrap();
//! let mut spec = MachineSpec::new();
//! let number = spec.add_module(Arc::new(module), &bytes);
//! spec.add_session("one", number);
//! spec.add_session("two", number);
//! let limits = Limits { runs: 100, steps: 1_000, depth: 4, seed: 0 };
//! let found = explore(&spec, &[], &[], Policy::Cooperative, limits, &mut |_| {}).unwrap();
//! assert!(matches!(found.verdict, Verdict::Independent));
//! ```
#![forbid(unsafe_code)]

mod draws;
mod observe;

mod explore;
mod shrink;

mod compare;
mod picture;

pub use compare::{CompareError, PolicyRow, SessionRow, Stops, Waits, compare};
pub use explore::{
    Difference, Exploration, ExploreError, Limits, Progress, Proof, Schedule, Setting, Stage,
    StageRow, Verdict, Witness, explore,
};
pub use observe::{Observed, SessionObserved};
pub use picture::picture;
