//! The trace of a run: its events, their encoding, digests and files.
//!
//! In reading order:
//! - [`Event`]: the vocabulary, one table; [`EventWriter`] and [`EventReader`] encode and decode
//!   it;
//! - [`LaneLog`]: the events of one lane in the current frame, without access to other lanes;
//! - [`RunDigest`]: at FRAME_SYNC, the lanes' hashes in lane order and the boundary events
//!   (semantics 30);
//! - [`Chain`], `TraceWriter`, `TraceReader`: a trace file, chunks linked by a hash chain;
//!   [`write_frame`] and [`read_frames`] are the payload of a chunk of frames.
//!
//! Law: the events of a run and its digests are the same for every worker count, host and build;
//! telemetry and certificate chunks are not, and no digest covers them. Nothing here decides
//! anything or depends on workers, time or hash order.
//!
//! ```
//! use wavelock_abi::{Cycles, Frame};
//! use wavelock_trace::{Event, EventReader, LaneLog, RunDigest, StopCode};
//! let mut log = LaneLog::new(true);
//! log.wave(Cycles(0));
//! log.step(0, 3, Cycles(36), Cycles(250), StopCode::Yielded);
//! let events: Vec<Event> = EventReader::new(log.bytes()).map(Result::unwrap).collect();
//! assert!(matches!(events[1], Event::Step { slot: 3, used: 250, .. }));
//! let mut digest = RunDigest::new(b"machine");
//! digest.frame_sync(Frame(0), &[log.finish_frame()], &[]);
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod event;

mod digest;
mod log;

mod chunk;
#[cfg(feature = "std")]
mod file;
mod frames;

pub use chunk::{CHUNK_HEAD, Chain, ChunkError, ChunkKind, FILE_HEAD, MAGIC, MAX_CHUNK};
#[cfg(feature = "std")]
pub use file::{TraceError, TraceReader, TraceWriter};
pub use frames::{FrameRecord, FramesError, read_frames, write_frame};

pub use digest::{Digest, RunDigest};
pub use event::{Event, EventError, EventReader, EventWriter, StopCode};
pub use log::{LaneLog, Packed};

/// Version of the trace format and of the event vocabulary. Other versions are refused.
pub const TRACE_VERSION: u32 = 1;
