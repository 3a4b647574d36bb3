//! Views of a run: its events as plain values in virtual time.
//!
//! [`Moments`] reads the events of frames, lane by lane as in a trace, and yields [`Moment`]s in
//! canonical order, each with its time in cycles: slices with their wait time, wakes, spawns,
//! messages. [`Perfetto`] writes them as a Perfetto trace, with the budgets of contexts as counters
//! if the caller samples them ([`Budget`]). [`describe`] prints one event as text.
//!
//! The law kept here: a view is a function of the events and samples alone, so two exports of one
//! run are equal byte for byte. Nothing here runs a machine.
//!
//! ```
//! use wavelock_trace::Event;
//! use wavelock_view::describe;
//! let event = Event::Sleep { frames: 3 };
//! let text = describe(&event, &|_| "session".into(), &|_| "context".into());
//! assert_eq!(text, "sleeps for 3 frames");
//! ```
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod context;
mod lease;
mod words;

mod moment;
mod protobuf;

mod perfetto;

pub use budget::Budget;
pub use lease::{lease, missing as missing_evidence};
pub use moment::{CoroutineSlot, Moment, Moments, Slice};
pub use perfetto::{Names, Perfetto};
pub use words::{OUTCOMES, SESSION_OUTCOMES, describe, first_different_byte};
