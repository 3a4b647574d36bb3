//! Deterministic WebAssembly coroutines in your program: guests that run to the same result on
//! every host, can be saved and rolled back between any two frames, and replay from what they were
//! told.
//!
//! 1. An [`Engine`] holds threads and loaded [`Module`]s, for any number of machines.
//! 2. A [`MachineBuilder`] describes a [`Machine`], in code or from a manifest: lanes, frames,
//!    sessions, channels, limits.
//! 3. [`Machine::input`] tells it something; [`Machine::advance`] runs one frame and returns a
//!    [`FrameReport`] with what came out. A [`Pacer`] says when frames are due, a [`Remote`] feeds
//!    the machine from other threads.
//! 4. A [`Host`] gives guests functions of the embedder, typed by Rust closures, with costs. A
//!    guest waits for the reply to an [`Ask`].
//! 5. [`Machine::save`] and [`Machine::load`] go back in time; [`Machine::confirm`] ends that.
//!    [`Machine::export`] writes a file.
//! 6. [`Machine::record`] writes a trace that `wavelock replay` verifies without your program; an
//!    [`Observer`] sees every confirmed frame.
//! 7. [`Machine::journal`] keeps every input before its frame has run; [`Machine::recover`] makes
//!    the machine again after the process was killed.
//!
//! The law: a run is a function of modules, description and inputs, each with its frame. Threads,
//! pacing, snapshots, recorders and observers are in no digest.
//!
//! ```
//! use wavelock::{Engine, Machine, SessionBuilder};
//!
//! let engine = Engine::new(1)?;
//! let echo = engine.module(br#"(module
//!     (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
//!     (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
//!     (import "wavelock" "sleep" (func $sleep (param i64)))
//!     (memory 1)
//!     (func (export "_start") (local $length i32)
//!       (loop $forever
//!         (local.set $length (call $input (i32.const 0) (i32.const 1024)))
//!         (if (i32.gt_s (local.get $length) (i32.const 0))
//!           (then (drop (call $output (i32.const 0) (local.get $length)))))
//!         (call $sleep (i64.const 1))
//!         (br $forever))))"#)?;
//! let mut machine =
//!     Machine::builder(&engine).session(SessionBuilder::new("echo", &echo)).build()?;
//! let session = machine.session("echo").unwrap();
//!
//! let before = machine.save();
//! machine.input(session, b"hello")?;
//! let report = machine.advance()?;
//! assert_eq!(report.outputs(), [(session, b"hello".to_vec())]);
//! # before?;
//! # Ok::<(), wavelock::Error>(())
//! ```
//!
//! # Errors and panics
//!
//! Every refusal is an [`Error`] that names the rule and the numbers and has changed nothing.
//! Nothing here panics on wrong arguments, and no guest can make it panic, block or grow without
//! bound.
//!
//! # Versions
//!
//! This crate follows semantic versioning; `tests/surface.txt` is its whole surface. Before 1.0 a
//! minor version may change it. What digests, traces and state files mean has versions of its own
//! (cost table, guest interface, formats): a release that changes one of them says so, and files of
//! another version are refused by number, never misread.
#![forbid(unsafe_code)]

mod ask;
mod builder;
mod control;
mod engine;
mod error;
mod frames;
mod host;
mod journal;
mod machine;
mod pacer;
mod recording;
mod remote;
mod report;

pub use ask::{Ask, AskId};
pub use builder::{Budget, MachineBuilder, SessionBuilder};
pub use engine::{Engine, Module};
pub use error::Error;
pub use host::{Caller, Host, Number, State, Values};
pub use machine::{Machine, Session, Snapshot};
pub use pacer::Pacer;
pub use recording::Recorded;
pub use remote::Remote;
pub use report::{FrameReport, Observer, Usage};

pub use wavelock_abi::{Cycles, Frame, LatencyClass, Weight};
pub use wavelock_kernel::{CapOverrun, CapSettings};
pub use wavelock_manifest::{Diagnostics, Policy};
pub use wavelock_replay::{Level, MachineError, OpenError};
pub use wavelock_system::{
    ControlRefusal, GiveError, HostFailure, HostKind, HostNumber, Limits, LoadError, OwnLimits,
    RunOutcome, SessionOutcome, StateError,
};
pub use wavelock_trace::{Digest, Event};
