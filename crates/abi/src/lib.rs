//! The words every Wavelock crate shares: ids with generations, units, versioned costs, and the
//! codes of refusals and faults.
//!
//! This crate holds no behaviour beyond checked arithmetic on its own types. It is `no_std`, uses
//! nothing from outside the workspace and allocates nothing, so a checker or a guest kit can depend
//! on it alone.
//!
//! Law kept here: a unit is a type. [`Cycles`], [`Frame`] and [`Nanos`] never convert into each
//! other.
//!
//! ```
//! use wavelock_abi::{CoroutineRef, Cycles};
//! let reference = CoroutineRef::new(7, 3);
//! assert_eq!(CoroutineRef::from_guest(reference.to_guest()), Some(reference));
//! assert_eq!(Cycles(40) + Cycles(2), Cycles(42));
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod codes;
mod cost;
mod host;
mod ids;
mod units;

pub use codes::{Errno, FaultCode};
pub use cost::{
    COST_TABLE_VERSION, MAX_GAP, SCHEDULER_COSTS_V1, SchedulerCosts, SchedulerOperation,
};
pub use host::{
    GUEST_INTERFACE_VERSION, HostOperation, HostValue, Manual, WASI_MODULE, WAVELOCK_MODULE,
};
pub use ids::{ChannelId, ContextRef, CoroutineName, CoroutineRef, LaneId, SessionId};
pub use units::{Cycles, Frame, LatencyClass, Nanos, Priority, Weight};
