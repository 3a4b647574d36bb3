//! The scheduler: lanes, policies, sleepers and ledger as a state machine without clock, threads,
//! bytecode or names.
//!
//! Sans-IO: time and events come in as arguments, decisions go out as `#[must_use]` values. A
//! [`Lane`] is self-contained, so that a worker can own it for a wave.
//!
//! In the order of use: [`Lane::reserve`] room, [`Lane::spawn`] a [`Spawn`], then
//! for each frame [`Lane::begin_frame`]; for each wave [`Lane::begin_wave`], and until
//! [`Next::Over`] or [`Next::Idle`]: [`Lane::dispatch`] gives a [`Running`] token with a bound in
//! cycles, the caller runs the coroutine, and [`Lane::stop`] takes the token back with what was
//! used and the [`Outcome`]. In between (also inside a slice) [`Lane::wake`], [`Lane::hold`],
//! [`Lane::release`], [`Lane::cancel`], [`Lane::prefer`], [`Lane::reap`], [`Lane::end_session`].
//! [`Lane::align`] closes a wave, [`Lane::end_frame`] a frame and gives its [`FrameRow`].
//!
//! Between lanes: effects go through an [`Outbox`] and are applied by [`exchange`] at the wave's
//! end; sessions move by [`find_steal`] and [`Lane::move_session`]; a stall
//! ([`Population::is_stalled`]) is named by [`find_deadlock`]. [`Lane::explain`] explains the next
//! pick, [`Lane::set_deviations`] replaces picks of the policy, [`Lane::export`] copies a lane to
//! plain data and [`Lane::rebuild`] makes a lane from it, [`Lane::counters`] returns counters.
//! Bounds and details are in docs/scheduler.md.
//!
//! Laws kept here: every coroutine is in exactly one place; clock = charged + overhead + idle; a
//! decision is a function of the model alone; nothing allocates after a reservation.
//! [`Lane::check`] verifies the first two,
//! `tests/no_allocation.rs` the last.
//!
//! ```
//! use wavelock_abi::{Cycles, LaneId, SCHEDULER_COSTS_V1};
//! use wavelock_kernel::{Lane, LaneSettings, Next, Outcome, Policy, Reservation, Span, Spawn, Tag};
//!
//! let policy = Policy::RoundRobin { quantum: Cycles(10_000) };
//! let (frame_cycles, costs) = (Cycles(1_000_000), SCHEDULER_COSTS_V1);
//! let settings = LaneSettings { policy, frame_cycles, costs, handoff: false };
//! let mut lane = Lane::new(LaneId(0), settings);
//! lane.reserve(Reservation { coroutines: 2, sessions: 1 }).unwrap();
//! let first = lane.spawn(Spawn::new(Tag::new(0, 0))).unwrap();
//! lane.spawn(Spawn::new(Tag::new(0, 1))).unwrap();
//!
//! lane.begin_wave(Span::Until(Cycles(100_000)));
//! let Next::Run(running) = lane.dispatch() else { panic!("two are ready") };
//! assert_eq!(running.reference(), first);
//! lane.stop(running, Cycles(500), Outcome::Finished);
//! assert_eq!(lane.reap(first).unwrap().runtime, Cycles(500));
//! assert!(lane.check().is_ok());
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod refusal;
mod types;

mod record;
mod room;

mod bitmap;
mod heap;
mod ready;
mod session;
mod sleep;

pub mod context;
pub mod fair;
mod policy;

mod cap;
mod deviate;
mod lane;
mod queue;
mod read;
mod switch;
mod time;
mod wake;

mod exchange;
mod migrate;

mod check;
mod counters;
mod deadlock;
mod digest;
mod explain;
mod export;
mod ledger;

pub use cap::{CapCounts, CapEvent, CapEventKind, CapOverrun, CapSettings, CapState};
pub use check::Violation;
pub use context::{
    Activation, ContextBook, ContextCounts, ContextEvent, ContextEventKind, ContextParameters,
    ContextPhase, ContextRefusal, ContextSettings, ContextView, Denied, Executed, Fallback, Loan,
    Notification, OverrunPolicy,
};
pub use counters::{Counter, CounterClass, Counters};
pub use deadlock::{Deadlock, WaitNode, find_deadlock};
pub use deviate::{Choice, Deviation};
pub use exchange::{Exchange, Outbox, exchange, latest_clock};
pub use explain::{Because, Candidate, DecisionKey, Explanation};
pub use export::{LaneState, PreferredState, RebuildRefused, RecordState};
pub use fair::{FairSettings, Share};
pub use lane::{Lane, LaneSettings, Next, Population, Reservation, Running};
pub use ledger::{FrameRow, LaneTotals, Ledger};
pub use migrate::{MigrationStuck, MoveBan, MoveKind, RunnableSession, find_steal};
pub use policy::{AGING_PICKS, PROGRESS_STREAK, Policy, PolicyKind, PriorityRule};
pub use switch::{Began, Departure};
pub use types::{
    BlockReason, BoundReason, HoldReason, HoldReasons, Outcome, Prefetch, Refusal, Span, Spawn,
    State, Stopped, Tag, WakeSource,
};
