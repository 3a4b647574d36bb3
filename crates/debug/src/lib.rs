//! A debugger for recorded machines.
//!
//! [`why`] explains why a coroutine runs in the next step, or why it does not: the candidates with
//! their keys, what it waits for, and which coroutines could wake it. [`Debugger`] takes a line of
//! text and returns text, so that a terminal, a script and a test use it in the same way;
//! [`Debugger::screen`] prints an overview. Both move a [`wavelock_replay::Timeline`] forwards and
//! backwards.
//!
//! The law kept here: inspecting changes nothing. Whatever is inspected, the run in the timeline
//! remains the recorded one.
//!
//! ```
//! use wavelock_debug::Command;
//! assert_eq!(Command::parse("goto frame 0x10"), Ok(Command::GotoFrame(16)));
//! let error = Command::parse("stpe 3").unwrap_err();
//! assert_eq!(error, "`stpe` is not a command; did you mean `step`? `help` lists them");
//! ```
#![forbid(unsafe_code)]

mod names;
mod symbols;
mod words;

mod inversion;
mod time;
mod why;

mod breakpoint;
mod command;
mod debugger;
mod inside;
mod screen;
mod walk;

pub use breakpoint::Breakpoint;
pub use command::{Command, HELP};
pub use debugger::{Debugger, Reply};
pub use inversion::{Inversion, can_invert, inversions};
pub use names::{NameError, function_name, parse_coroutine, parse_session, show};
pub use symbols::Lines;
pub use time::ContextRow;
pub use walk::Progress;
pub use why::{CandidateRow, HolderRow, Verdict, WaitRow, Why, why};
pub use words::kill_text;
