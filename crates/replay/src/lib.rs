//! A run is a function of its log: record it, run it again, find the first difference.
//!
//! [`Recorder`] is a sink that writes a trace in the background while a world runs; [`Trace`] reads
//! one back, whole or as far as it goes; [`verify`] runs the machine of a trace again, on any
//! number of workers, and stops at the first [`Divergence`]; a [`Timeline`] goes to any frame or
//! step of it, forwards and backwards.
//!
//! Law kept here: recording changes nothing about a run, and a dead disk never stops one: it ends
//! the recording at a chunk boundary and says so.
#![forbid(unsafe_code)]

mod anchor;
mod apart;
mod archive;
mod certificates;
mod divergence;
mod fill;
mod machine;
mod record;
mod snapshot;
mod states;
mod table;
mod timeline;
mod trace;
mod verify;

pub use apart::first_apart;
pub use archive::Archive;
pub use certificates::{Recheck, Refused, Unsound, recheck};
pub use divergence::{Divergence, Had, MemoryPlace};
pub use machine::{MachineError, RecordedMachine};
pub use record::{ENGINE, Level, Recorded, Recorder};
pub use snapshot::{Snapshot, SnapshotError, SnapshotPlace, state_digest, write_snapshot};
pub use states::{StateSpacing, StatesError};
pub use table::SNAPSHOT_FORMAT;
pub use timeline::{Happened, Position, Timeline, TimelineError};
pub use trace::{Ending, Frames, NO_END, OpenError, Trace};
pub use verify::{Verified, VerifyError, verify};
