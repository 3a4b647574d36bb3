//! The `wavelock` command: the only crate with arguments, files, terminals and JSON.
#![forbid(unsafe_code)]

mod diagnostic;
mod exit;
pub mod manifest;
mod suggest;
mod view;

pub use diagnostic::{Diagnostic, DiagnosticRow, Diagnostics, Ink, Mark, SHOWN_DIAGNOSTICS, Severity, Source, Span};
pub use exit::Exit;
