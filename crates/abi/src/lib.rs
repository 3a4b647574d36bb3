//! The vocabulary that all Wavelock crates share: ids, units, error codes, costs, host operations.
//!
//! In reading order:
//! - [`SessionId`], [`LaneId`], [`ChannelId`], [`CoroutineRef`], [`ContextRef`], [`LeaseRef`]: ids,
//!   with a generation where they can outlive what they refer to;
//! - [`Cycles`], [`Frame`], [`Nanos`], [`Priority`], [`Weight`], [`LatencyClass`]: units;
//! - [`Errno`], [`FaultCode`]: what a guest can handle, and what ends a coroutine;
//! - [`SchedulerCosts`], [`HostOperation`]: what scheduler and host operations cost and do.
//!
//! The crate has no behaviour beyond checked arithmetic on its own types. It is `no_std`, has no
//! dependencies and allocates nothing, so that a checker or a guest kit can depend on it alone.
//!
//! Law: a unit is a type. [`Cycles`], [`Frame`] and [`Nanos`] never convert into each other.
//!
//! ```
//! use wavelock_abi::{CoroutineRef, Cycles};
//! let reference = CoroutineRef::new(7, 3);
//! assert_eq!(CoroutineRef::from_guest(reference.to_guest()), Some(reference));
//! assert_eq!(Cycles(40) + Cycles(2), Cycles(42));
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod ids;
mod units;

mod codes;
mod cost;
mod host;

pub use codes::{Errno, FaultCode};
pub use cost::{
    COST_TABLE_VERSION, MAX_GAP, SCHEDULER_COSTS_V1, SchedulerCosts, SchedulerOperation,
};
pub use host::{
    GUEST_INTERFACE_VERSION, HostOperation, HostValue, Manual, WASI_MODULE, WAVELOCK_MODULE,
};
pub use ids::{ChannelId, ContextRef, CoroutineName, CoroutineRef, LaneId, LeaseRef, SessionId};
pub use units::{Cycles, Frame, LatencyClass, Nanos, Priority, Weight};
