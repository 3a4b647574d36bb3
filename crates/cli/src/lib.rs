//! The `wavelock` command: the only crate with arguments, files, terminals and JSON.
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod diagnostic;
mod exit;
mod failure;
mod input;
pub mod manifest;
pub mod report;
mod suggest;
mod table;
mod view;

pub use arguments::Arguments;
pub use commands::main;
pub use diagnostic::{Diagnostic, DiagnosticRow, Diagnostics, Ink, Mark, SHOWN_DIAGNOSTICS, Severity, Source, Span};
pub use exit::Exit;
pub use failure::{Failure, Reason};
pub use input::{InputEvent, Recipient, read_input, whole_input};
