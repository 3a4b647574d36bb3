//! The outside of a live run: who may tell the machine something, and who gets what it writes.
//!
//! ```text
//!   standard input ─┐                                            ┌─▶ standard output
//!   client ─ reader ┼─▶ Inbox ─▶ the run, at a boundary ─▶ Outlet┼─▶ client ─ writer
//!   watched folder ─┘   bounded                         bounded  └─▶ client ─ writer
//! ```
//!
//! Contract: nobody outside can stop the run or make it grow. A line has at most
//! [`MOST_LINE_BYTES`]; a source that sends faster than frames take its lines waits; a reader that
//! does not read loses the output of whole frames, which is counted; a client beyond
//! [`MOST_CLIENTS`] is refused.
//! Everything here is the host's: what reaches a digest are the requests that the run gives to the
//! machine as inputs of a frame.
//!
//! Elsewhere: when frames are due, and what a request does, is in `commands/live.rs`.

mod address;
mod clients;
mod inbox;
mod lines;
mod modules;
mod outlet;
mod request;
mod watch;

pub(crate) use address::Address;
pub(crate) use clients::{Clients, Served};
pub(crate) use inbox::{Inbox, Message, STANDARD_INPUT, WATCH};
pub(crate) use lines::Lines;
pub(crate) use modules::{Modules, Shelf};
pub(crate) use outlet::{Dropped, Outlet, WhenFull};
pub(crate) use request::{Form, Request, Verb, shown};
pub(crate) use watch::{Change, Watch};

/// Bytes of one line, its newline not counted.
pub(crate) const MOST_LINE_BYTES: usize = 1 << 20;

/// Clients connected at once.
pub(crate) const MOST_CLIENTS: usize = 64;
