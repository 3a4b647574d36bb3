//! Manifests: from the text of a `.toml` (or the path of a module) to a checked [`Manifest`], and
//! from that with its modules to the machine that `system` loads.
//!
//! `keys` is the table of all keys, `model` the resulting plain data, `read` and `time` the parser,
//! `problem` every error with its message, and `spec` the one conversion to a
//! [`MachineSpec`](wavelock_system::MachineSpec). All problems of a file are reported as data
//! ([`Diagnostics`]), each with its position. [`View`] and [`Findings`] read a TOML table with a
//! known set of keys; other files than manifests use them too.
//!
//! Law: total. Any text gives either a manifest within every range of its keys or all its problems;
//! no default comes from the host. Elsewhere: files, terminals and JSON (the command line); rules
//! that need the modules are checked at load and reported at positions kept in [`Read`].
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use wavelock_manifest::{Overrides, Source, machine_spec, read};
//! use wavelock_module::{Limits, Module};
//! let text = "[machine]\nlanes = 2\n[[session]]\nname = \"a\"\nmodule = \"a.wat\"\n";
//! let read = read(Source::new("m.toml", text), Path::new(""), &Overrides::default()).unwrap();
//! let wat = b"(module (func (export \"_start\")))";
//! let module = Arc::new(Module::from_text(wat, &Limits::default()).unwrap());
//! let spec = machine_spec(&read, &[(module, wat)]).unwrap();
//! assert_eq!((spec.lanes, spec.sessions.len()), (2, 1));
//! ```
#![forbid(unsafe_code)]

mod channels;
mod diagnostic;
mod islands;
mod keys;
mod model;
mod problem;
mod read;
mod spec;
mod suggest;
mod template;
mod time;
mod view;

pub use diagnostic::{Diagnostic, Diagnostics, Mark, SHOWN_DIAGNOSTICS, Severity, Source, Span};
pub use keys::{
    CHANNEL, Key, LIMITS, Limits, MACHINE, MOST_CYCLES, MOST_LANES, SESSION, TABLES, Takes, grouped,
};
pub use model::{
    CLASS_NAMES, Channel, ChannelIndex, GlobalName, Machine, Manifest, ModuleIndex, Policy,
    Session, Template, WaveSpan,
};
pub use problem::Origin;
pub use read::{ManifestValue, Overrides, Read, name_refusal, of_module, read};
pub use spec::{LoadedModule, in_words, machine_spec, policy_of, refusal, warning};
pub use suggest::{did_you_mean, nearest};
pub use view::{At, Findings, View};
