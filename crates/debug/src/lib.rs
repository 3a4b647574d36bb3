//! A recorded machine under a debugger.
//!
//! [`why`] says why a coroutine runs in the next step, or why it does not: the candidates with
//! their keys, what it waits for and who could end that. [`Debugger`] takes a line of text and
//! gives an answer in text, so that a person, a script and a test use it the same way;
//! [`Debugger::screen`] is the whole picture at once. Both move over a
//! [`wavelock_replay::Timeline`].
//!
//! Law kept here: looking changes nothing. Whatever is asked, the run that the timeline stands in
//! stays the recorded one.
#![forbid(unsafe_code)]

mod names;
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
pub use names::{NameError, function_name, parse_coroutine, show};
pub use time::ContextRow;
pub use walk::Patience;
pub use why::{CandidateRow, HolderRow, Verdict, WaitRow, Why, why};
