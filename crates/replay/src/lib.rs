//! Records runs, replays them, and finds the first difference.
//!
//! [`Recorder`] is a sink that writes a trace in the background while a world runs; a [`Journal`]
//! writes one that has each input before its frame has run. [`Trace`] reads one from its start,
//! complete or truncated; [`Archive`] reads parts of one at random. [`verify`] runs the machine of
//! a trace again, on any number of workers, and stops at the first [`Divergence`]. A [`Timeline`]
//! moves to any frame or step of a trace, forwards and backwards.
//!
//! The law kept here: recording changes nothing about a run, and a disk error never stops one: it
//! ends the recording at a chunk boundary and is reported.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use wavelock_replay::{Level, RecordedMachine, Recorder, Trace, verify};
//! use wavelock_system::{MachineSpec, World};
//!
//! #[derive(Clone, Default)]
//! struct Bytes(Arc<Mutex<Vec<u8>>>);
//! impl std::io::Write for Bytes {
//!     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
//!         self.0.lock().unwrap().write(bytes)
//!     }
//!     fn flush(&mut self) -> std::io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! let bytes = wat::parse_str(r#"(module (func (export "_start")))"#).unwrap();
//! let module = wavelock_module::Module::new(&bytes, &Default::default()).unwrap();
//! let mut spec = MachineSpec::new();
//! let number = spec.add_module(Arc::new(module), &bytes);
//! spec.add_session("main", number);
//! let machine = RecordedMachine { spec, modules: vec![bytes], inputs: Vec::new() };
//!
//! let (file, mut output) = (Bytes::default(), ());
//! let mut world = World::load(machine.spec.clone(), Vec::new(), true).unwrap().world;
//! let mut recorder = Recorder::new(file.clone(), &machine, Level::Full, &mut output).unwrap();
//! world.run(&mut recorder).unwrap();
//! recorder.finish(&world.summary());
//!
//! let trace = file.0.lock().unwrap().clone();
//! let verified = verify(Trace::open(&trace[..]).unwrap(), 2).unwrap();
//! assert!(verified.divergence.is_none());
//! assert_eq!(verified.summary.digest, world.summary().digest);
//! ```
#![forbid(unsafe_code)]

mod anchor;
mod archive;
mod certificates;
mod compare;
mod divergence;
mod fill;
mod journal;
mod live;
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
pub use divergence::{Divergence, MemoryPosition, Occurrence};
pub use journal::Journal;
pub use machine::{MachineError, RecordedMachine};
pub use record::{ENGINE, Level, Recorded, Recorder};
pub use snapshot::{Snapshot, SnapshotError, SnapshotPosition, write_snapshot};
pub use states::{StateSpacing, StatesError};
pub use timeline::{Happened, Position, Timeline, TimelineError};
pub use trace::{Ending, Frames, NO_END, OpenError, Trace};
pub use verify::{Verified, VerifyError, verify};
