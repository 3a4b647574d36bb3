//! Records runs, replays them, and finds the first difference.
//!
//! [`Recorder`] is a sink that writes a trace in the background while a world runs. [`Trace`] reads
//! one from its start, complete or truncated; [`Archive`] reads parts of one at random. [`verify`]
//! runs the machine of a trace again, on any number of workers, and stops at the first
//! [`Divergence`]. A [`Timeline`] moves to any frame or step of a trace, forwards and backwards.
//!
//! The law kept here: recording changes nothing about a run, and a disk error never stops one: it
//! ends the recording at a chunk boundary and is reported.
#![forbid(unsafe_code)]

mod anchor;
mod archive;
mod certificates;
mod compare;
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

pub use archive::Archive;
pub use certificates::{Recheck, Refused, Unsound, recheck};
pub use compare::compare_traces;
pub use divergence::{Divergence, MemoryPlace, Occurrence};
pub use machine::{MachineError, RecordedMachine};
pub use record::{ENGINE, Level, Recorded, Recorder};
pub use snapshot::{Snapshot, SnapshotError, SnapshotPlace, write_snapshot};
pub use states::{StateSpacing, StatesError};
pub use timeline::{Happened, Position, Timeline, TimelineError};
pub use trace::{Ending, Frames, NO_END, OpenError, Trace};
pub use verify::{Verified, VerifyError, verify};
