//! Digests: the hashes by which runs are compared.

use crate::event::{Event, EventWriter};
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::Frame;

/// A 256-bit hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// The hash of a lane that had no event in a frame.
pub(crate) const EMPTY: Digest = Digest([0; 32]);

impl Digest {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The run's digest: a chain over frames (semantics 30).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDigest {
    value: Digest,
    scratch: Vec<u8>,
}

impl RunDigest {
    /// The start of the chain: a hash of what the run is a function of (versions, modules,
    /// manifest).
    #[must_use]
    pub fn new(identity: &[u8]) -> Self {
        Self { value: Digest::of(identity), scratch: Vec::new() }
    }

    /// Continues from the value of a snapshot.
    #[must_use]
    pub const fn resume(value: Digest) -> Self {
        Self { value, scratch: Vec::new() }
    }

    /// digest = H(previous, frame, lane hashes in lane order, boundary events).
    pub fn frame_sync(&mut self, frame: Frame, lanes: &[Digest], boundary: &[u8]) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.value.0);
        self.scratch.extend_from_slice(&frame.0.to_le_bytes());
        self.scratch.extend_from_slice(&(lanes.len() as u64).to_le_bytes());
        for lane in lanes {
            self.scratch.extend_from_slice(&lane.0);
        }
        self.scratch.extend_from_slice(boundary);
        self.value = Digest::of(&self.scratch);
    }

    /// Adds the last event, outside any frame: how the machine ended.
    pub fn outcome(&mut self, event: &Event<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.value.0);
        EventWriter(&mut self.scratch).event(event);
        self.value = Digest::of(&self.scratch);
    }

    /// The value so far.
    #[must_use]
    pub const fn value(&self) -> Digest {
        self.value
    }
}
