//! The trace: what a run says about itself, byte for byte the same for every worker count, host and
//! build.
//!
//! [`Event`] is the vocabulary, one table. Each lane writes its events into a [`LaneLog`] while it
//! runs, without looking at any other lane; at FRAME_SYNC the lanes' hashes are joined in lane
//! order with the boundary events into the [`RunDigest`] (semantics 30). Nothing here decides
//! anything, and nothing here may depend on workers, time or hash order.
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

mod digest;
mod event;
mod log;

mod chunk;
#[cfg(feature = "std")]
mod file;
mod frames;

pub use chunk::{
    CHUNK_HEAD, Chain, ChunkError, ChunkKind, FILE_HEAD, MAGIC, MAX_CHUNK, check_file_head,
    file_head,
};
#[cfg(feature = "std")]
pub use file::{TraceError, TraceReader, TraceWriter};
pub use frames::{FrameRecord, FramesError, read_frames, write_frame};

pub use digest::{Digest, RunDigest};
pub use event::{Event, EventError, EventReader, EventWriter, StopCode};
pub use log::{LaneLog, Packed};

/// Version of the trace format and of the event vocabulary. Another version is refused by name.
pub const TRACE_VERSION: u32 = 1;
