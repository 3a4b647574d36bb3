//! One machine, many runs.
//!
//! [`explore`] runs a machine under many schedules and says whether what its sessions show depends
//! on the schedule; if it does, it gives the shortest schedule it found that shows it, as a machine
//! that can be run, recorded and replayed like any other. [`compare`] runs one workload under every
//! policy and measures what each costs whom; [`picture`] draws that.
//!
//! Law kept here: a schedule is part of a machine's description
//! ([`wavelock_system::MachineSpec::deviations`], the policy, the lanes), never a hook into a run.
//! So whatever is found here is found again from the description alone. Every draw comes from a
//! seed.
#![forbid(unsafe_code)]

mod draws;
mod observe;

mod explore;
mod shrink;

mod compare;
mod picture;

pub use compare::{CompareError, PolicyRow, Stops, Waits, compare};
pub use explore::{
    Difference, Exploration, ExploreError, Explorer, Limits, Progress, Proof, Schedule, Setting,
    Stage, StageRow, Verdict, Witness, explore,
};
pub use observe::{Observed, SessionObserved};
pub use picture::picture;
