//! The scheduler: lanes, policies, sleepers and ledger as a state machine without clock, threads,
//! bytecode or names.
//!
//! It does no I/O: time and events come in as arguments, decisions go out as `#[must_use]` values.
//! A [`Lane`] is self-contained, so that a worker can own it for a wave. (Lane, wave, frame, slice:
//! ARCHITECTURE.md.)
//!
//! How a lane is used:
//!
//! 1. [`Lane::reserve`] makes room; [`Lane::spawn`] adds a coroutine, described by a [`Spawn`].
//! 2. [`Lane::begin_frame`] wakes sleepers, [`Lane::begin_wave`] sets how far the wave goes.
//! 3. [`Lane::dispatch`] picks a coroutine. [`Next::Run`] has a [`Running`] token with a bound in
//!    cycles. The caller runs the coroutine, and gives the token to [`Lane::stop`] with the cycles
//!    used and the [`Outcome`]. [`Lane::switch`] does a stop and the next dispatch at once.
//! 4. Between slices and inside them: [`Lane::wake`], [`Lane::hold`] and [`Lane::release`],
//!    [`Lane::cancel`], [`Lane::prefer`] (direct handoff). [`Lane::reap`] frees the record of a
//!    coroutine that ended, [`Lane::end_session`] ends all of a session.
//! 5. When a dispatch returns [`Next::Over`] or [`Next::Idle`], the lane's wave has ended.
//!    [`Lane::align`] moves its clock to that of the latest lane. [`Lane::end_frame`] closes the
//!    frame and returns its [`FrameRow`].
//!
//! Between lanes: an effect on another lane is posted to an [`Outbox`], and [`exchange`] applies it
//! at the wave's end. [`find_steal`] chooses a session for an idle lane, [`Lane::move_session`]
//! moves it. When no lane can continue ([`Population::is_stalled`]), [`find_deadlock`] returns who
//! waits for whom.
//!
//! Leases: [`Lane::request_lease`] to [`Lane::release_lease`] give one coroutine the lane.
//!
//! Inspection: [`Lane::explain`] explains the next pick, [`Lane::counters`] counts,
//! [`Lane::export`] copies a lane to plain data, from which [`Lane::rebuild`] makes a lane.
//! [`Lane::set_deviations`] replaces picks of the policy. Bounds and details: docs/scheduler.md.
//!
//! Laws: every coroutine is in exactly one state, and in the queue of that state alone; clock =
//! charged + overhead + idle; a decision is a function of the model alone; nothing allocates after
//! a reservation. [`Lane::check`] verifies the first two, `tests/no_allocation.rs` the last.
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
mod lease;
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
pub use fair::{FairKey, FairSettings, Share, Sharing};
pub use lane::{Lane, LaneSettings, Next, Population, Reservation, Running};
pub use lease::{Evidence, LeaseEnd, LeasePhase, LeaseRefusal, LeaseRequest, LeaseState, Missing};
pub use ledger::{FrameRow, LaneTotals, Ledger};
pub use migrate::{MigrationStuck, MoveBan, MoveKind, RunnableSession, find_steal};
pub use policy::{Policy, PolicyKind, PriorityRule};
pub use switch::{Began, Departure};
pub use types::{
    BlockReason, BoundReason, HoldReason, HoldReasons, Outcome, Prefetch, Refusal, Span, Spawn,
    State, Stopped, Tag, WakeSource,
};
