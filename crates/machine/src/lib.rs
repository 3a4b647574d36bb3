//! Runs one WebAssembly coroutine for a bounded number of cycles, and returns why it stopped.
//!
//! In reading order:
//! - [`Session`]: the store of linked instances: memories, tables, globals, functions;
//! - [`Coroutine`]: a call stack that runs in a session, as plain data;
//! - [`run()`]: runs a coroutine for at most `n` cycles and returns a [`Stop`]: out of cycles, a
//!   host call, finished, or a fault;
//! - [`run_batch`]: the same for many coroutines of a session. A [`Host`] handles frequent calls in
//!   place and dispatches the next coroutine without leaving the interpreter;
//! - [`encode`], [`decode`]: canonical bytes of a session and its coroutines; [`session_digest`];
//! - [`Session::keep`], [`Session::restore`]: a copy in memory that shares what did not change;
//! - [`Stepper`]: single steps, for a debugger;
//! - [`run_tiered`]: [`run()`] with a [`Tier`] of native code.
//!
//! A guest call never uses the host's stack, and a host call never leaves a host frame on the
//! guest's. This crate has no queue, clock or policy: who runs next is the host's decision.
//!
//! Laws: what a coroutine does and what it is charged do not depend on how its run is sliced
//! (semantics 3 to 6); it overruns its bound by less than [`Session::gap`]; floats have the same
//! bits everywhere (semantics 7).
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_abi::Cycles;
//! use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
//! use wavelock_module::{FunctionType, Limits, Module, ValueType};
//!
//! let text = r#"(module
//!     (import "host" "twice" (func $twice (param i32) (result i32)))
//!     (func (export "main") (param i32) (result i32)
//!         (call $twice (i32.add (local.get 0) (i32.const 1)))))"#;
//! let bytes = wat::parse_str(text).unwrap();
//! let module = Arc::new(Module::new(&bytes, &Limits::default()).unwrap());
//! let mut session = Session::new(SessionLimits::default());
//! let kind = FunctionType::new(&[ValueType::I32], &[ValueType::I32]);
//! let twice = session.add_host_function(7, &kind, Cycles(4)).unwrap();
//! let instance = session.instantiate(module, &[Extern::Function(twice)]).unwrap();
//! let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!() };
//!
//! let mut coroutine = Coroutine::start(&session, main, &[20]).unwrap();
//! assert!(matches!(run(&mut session, &mut coroutine, Cycles(0)), Stop::OutOfCycles { .. }));
//! let Stop::Host(call) = run(&mut session, &mut coroutine, Cycles(1_000)) else { panic!() };
//! assert_eq!((call.number, coroutine.host_arguments()), (7, &[21][..]));
//! coroutine.resume(&[42]);
//! assert_eq!(run(&mut session, &mut coroutine, Cycles(1_000)), Stop::Finished);
//! assert_eq!(coroutine.results(), &[42]);
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod keep;
mod memory;
mod session;

mod coroutine;
mod link;
mod number;
#[cfg(not(feature = "checked"))]
mod raw;
#[cfg(feature = "checked")]
#[path = "raw_checked.rs"]
mod raw;

mod bulk;
mod exit;
#[macro_use]
mod handlers;
mod run;

mod coroutines;
mod host;
mod switch;

mod bytes;
mod step;
mod tier;

pub use bytes::{
    DecodeError, Digest, SNAPSHOT_VERSION, coroutine_digest, decode, decode_changes, encode,
    encode_changes, session_digest,
};
pub use coroutine::{Coroutine, Fault, HostCall, Location, StartError, Stop};
pub use coroutines::{CoroutineTable, Prefetch, push_with_small_growth};
pub use host::{CallOutcome, Dispatch, Host, LazyCoroutine};
pub use keep::KeptSession;
pub use link::LinkError;
pub use memory::{DIRTY_PAGE_BYTES, Memory, PAGE_BYTES, PageSlot};
pub use raw::prefetch;
pub use run::run;
pub use session::{
    Extern, FunctionAddress, FunctionEntry, GlobalAddress, InstanceId, MemoryAddress, Session,
    SessionError, SessionLimits, Table, TableAddress,
};
pub use step::{Change, Stepped, Stepper};
pub use switch::{BatchEnd, run_batch};
pub use tier::{NativeReason, NativeState, NativeStop, Tier, run_tiered};
