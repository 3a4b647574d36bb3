//! Views: what the events of a run mean, as plain values in virtual time.
//!
//! [`Moments`] reads the events of frames, lane by lane as a trace keeps them, and gives
//! [`Moment`]s in canonical order, each with its time in cycles: slices with how long their
//! coroutine waited for them, wakes, spawns, messages. `perfetto` writes them as a Perfetto trace,
//! with the budgets of contexts as counters if whoever runs the machine samples them ([`Budget`]).
//!
//! Law kept here: a view is a function of the events and samples and of nothing else, so two
//! exports of one run are the same bytes. Nothing here runs a machine.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod context;
mod words;

mod moment;
mod protobuf;

mod perfetto;

pub use budget::Budget;
pub use moment::{Moment, Moments, Slice, Who};
pub use perfetto::{Names, Perfetto};
pub use words::{OUTCOMES, SESSION_OUTCOMES, bytes_apart, describe};
