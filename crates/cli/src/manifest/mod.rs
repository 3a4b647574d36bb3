//! Manifests: from the text of a `.toml` (or the path of a module) to a checked [`Manifest`].
//!
//! `keys` is the table of all keys, `model` the resulting plain data, `read` the parser, and
//! `problem` every error with its message. All problems of a file are reported, each with its
//! position.
//!
//! Elsewhere: rules that need the modules (the safepoint gap against `frame_cycles`, imports, names
//! of globals) are checked at load and reported with the same [`Diagnostic`](crate::Diagnostic), at
//! the positions kept in [`Read`].

mod keys;
mod model;
mod problem;
mod read;
mod time;

pub use keys::{
    CHANNEL, Key, LIMITS, Limits, MACHINE, MOST_CYCLES, MOST_LANES, SESSION, TABLES, Takes, grouped,
};
pub(crate) use model::CLASS_NAMES;
pub use model::{
    Channel, ChannelIndex, GlobalName, Machine, Manifest, ModuleIndex, Policy, Session, WaveSpan,
};
pub use problem::Origin;
pub(crate) use problem::Problem;
pub use read::{ManifestValue, Overrides, Read, of_module, read};
