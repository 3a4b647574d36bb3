//! Manifests: from the text of a `.toml` (or the path of a module) to a checked [`Manifest`].
//!
//! `keys` is the table of everything a manifest may say, `model` the plain result, `read` the way
//! from one to the other, and `problem` every way it can fail with the words for it. All problems
//! of a file are reported, each with its place.
//!
//! Deliberately elsewhere: rules that need the modules (safepoint gap against `frame_cycles`,
//! imports, globals that exist) are checked at load, with the same
//! [`Diagnostic`](crate::Diagnostic) and the places kept in [`Read`].

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
pub use read::{Overrides, Place, Read, of_module, read};
