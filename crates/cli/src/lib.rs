//! The `wavelock` command: the only crate that handles arguments, files, terminals and JSON.
//!
//! [`Arguments`] is the parsed command line. A command reads its files into plain values
//! ([`manifest::Manifest`], [`InputEvent`]s, profiles), passes them to `system`, and prints the
//! results as text or JSON. A problem in a file is a [`Diagnostic`] with its position, what was
//! found and what is allowed; every command ends with an [`Exit`] or a [`Failure`].
//!
//! The law kept here: no property of the host enters a run. Flags and files become the manifest and
//! the inputs; only the default of `--workers` depends on the host, and the number of workers never
//! affects a digest.
//!
//! ```
//! use std::path::Path;
//! use wavelock_cli::manifest::{Overrides, read};
//! use wavelock_cli::{Ink, Render, Source};
//! let text = "[machine]\nlane = 2\n[[session]]\nname = \"a\"\nmodule = \"a.wasm\"\n";
//! let source = Source::new("m.toml", text);
//! let problems = read(source, Path::new(""), &Overrides::default()).unwrap_err();
//! assert!(problems.render(Ink::Plain).contains("m.toml:2:1"));
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod control;
mod diagnostic;
mod exit;
mod failure;
mod input;
mod live;
pub mod report;
mod suggest;
mod table;

pub use arguments::Arguments;
pub use commands::main;
pub use diagnostic::{
    Diagnostic, DiagnosticRow, Diagnostics, Ink, Mark, Render, SHOWN_DIAGNOSTICS, Severity, Source,
    Span,
};
pub use exit::Exit;
pub use failure::{Failure, Reason};
pub use input::{InputEvent, Recipient, read_input, whole_input};
pub use wavelock_manifest as manifest;
