//! Chunks: what a trace file is made of. Each carries its kind, its lengths and a checksum over
//! everything before it in the file.
//!
//! ```text
//!   file  = magic "WAVELOCK" | version u32 | chunk*
//!   chunk = "CHNK" | kind u8 | packing u8 | 0 u16 | raw length u32 | stored length u32
//!           | checksum 16 bytes | stored bytes
//! ```
//!
//! The checksum is the first half of `link = H(previous link, the 16 bytes before it, stored
//! bytes)`, so a changed, missing, repeated or moved chunk is found where it stands. Numbers are
//! little-endian. Reading treats its input as untrusted: no length is believed before it is known
//! to be small.

use crate::{Digest, TRACE_VERSION};
use alloc::vec::Vec;
use core::fmt;

/// The first bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"WAVELOCK";

/// Bytes before the first chunk.
pub const FILE_HEAD: usize = 12;

/// Bytes of a chunk before its payload.
pub const CHUNK_HEAD: usize = 32;

/// Most bytes a chunk may hold, packed or not.
pub const MAX_CHUNK: usize = 64 << 20;

const CHUNK_MARK: [u8; 4] = *b"CHNK";

macro_rules! kinds {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        /// What a chunk holds.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum ChunkKind {
            $(#[doc = $doc] $name = $code,)*
        }

        impl ChunkKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    Machine = 1, "what the run is a function of: versions, modules, spec, inputs; the first chunk of every trace";
    Frames = 2, "frames with their events and digests";
    Certificates = 3, "certificates of waves, outside every digest";
    Telemetry = 4, "counts that depend on workers, outside every digest";
    End = 5, "how the run ended; the last chunk of a complete trace";
    Pages = 6, "pieces of machine states, which snapshots name by the number of their chunk";
    Snapshot = 7, "where and what a state of the machine is, outside every digest";
    States = 8, "hashes of the machine's states between frames, outside every digest of the run";
}

/// Why bytes are not the trace they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The file does not begin like a trace.
    NotATrace,
    /// Another format version.
    Version {
        /// The version found.
        found: u32,
    },
    /// The file ends inside a chunk: what a kill leaves behind. Everything before it is whole.
    Unfinished {
        /// Where that chunk begins.
        offset: u64,
        /// Bytes it should have.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The chunk is damaged, or not where it was written.
    Damaged {
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATrace => write!(f, "this is not a trace: it does not begin with `WAVELOCK`"),
            Self::Version { found } => {
                write!(f, "trace format {found}: this build reads format {TRACE_VERSION}")
            }
            Self::Unfinished { offset, expected, found } => {
                write!(
                    f,
                    "byte {offset}: the last chunk is unfinished, {found} of {expected} bytes; everything before it is whole"
                )
            }
            Self::Damaged { offset, what } => {
                write!(f, "byte {offset}: the chunk that begins here is damaged: {what}")
            }
        }
    }
}

impl core::error::Error for ChunkError {}

/// The bytes a trace file begins with.
#[must_use]
pub fn file_head() -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..].copy_from_slice(&TRACE_VERSION.to_le_bytes());
    head
}

/// Checks the bytes a file begins with.
///
/// # Errors
/// Not a trace, or another version.
pub fn check_file_head(bytes: &[u8]) -> Result<(), ChunkError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(ChunkError::NotATrace);
    }
    let unfinished =
        ChunkError::Unfinished { offset: 0, expected: FILE_HEAD as u64, found: bytes.len() as u64 };
    let head = bytes.get(..FILE_HEAD).ok_or(unfinished)?;
    let found = word(head, 8);
    if found == TRACE_VERSION { Ok(()) } else { Err(ChunkError::Version { found }) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The hash chain over a file's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain(Digest);

impl Chain {
    /// The chain's beginning.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::of(&file_head()))
    }

    fn link(self, head: &[u8], stored: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.0);
        hasher.update(head);
        hasher.update(stored);
        Self(Digest(*hasher.finalize().as_bytes()))
    }

    /// Appends a chunk to `out`.
    ///
    /// # Panics
    /// When the payload is larger than [`MAX_CHUNK`]: writers cut it before.
    pub fn write(&mut self, kind: ChunkKind, payload: &[u8], out: &mut Vec<u8>) {
        assert!(payload.len() <= MAX_CHUNK, "a chunk holds at most {MAX_CHUNK} bytes");
        let packed = lz4_flex::block::compress(payload);
        let (packing, stored) =
            if packed.len() < payload.len() { (1, &packed[..]) } else { (0, payload) };
        let mut head = [0; 16];
        head[..4].copy_from_slice(&CHUNK_MARK);
        head[4] = kind as u8;
        head[5] = packing;
        head[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[12..].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        *self = self.link(&head, stored);
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.0.0[..16]);
        out.extend_from_slice(stored);
    }

    /// Reads a chunk's head: its kind, and how many bytes follow it.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read_head(
        head: &[u8; CHUNK_HEAD],
        offset: u64,
    ) -> Result<(ChunkKind, usize), ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        if head[..4] != CHUNK_MARK || head[6..8] != [0, 0] || head[5] > 1 {
            return Err(damaged("its mark is not that of a chunk"));
        }
        let kind =
            ChunkKind::from_code(head[4]).ok_or(damaged("its kind is unknown to this build"))?;
        let (raw, stored) = (word(head, 8) as usize, word(head, 12) as usize);
        if raw > MAX_CHUNK || stored > raw {
            return Err(damaged("its length is more than a chunk may have"));
        }
        Ok((kind, stored))
    }

    /// Checks a whole chunk against the chain and unpacks it.
    ///
    /// # Errors
    /// It is damaged, or not the next of this chain.
    pub fn read(
        &mut self,
        head: &[u8; CHUNK_HEAD],
        stored: &[u8],
        offset: u64,
    ) -> Result<Vec<u8>, ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        let next = self.link(&head[..16], stored);
        if next.0.0[..16] != head[16..] {
            return Err(damaged("its checksum does not fit its bytes and those before it"));
        }
        *self = next;
        Self::unpack(head, stored, offset)
    }

    /// Unpacks a chunk without looking at the chain: for readers that jump into a file and check
    /// what they find by other hashes.
    ///
    /// # Errors
    /// It does not unpack.
    pub fn unpack(
        head: &[u8; CHUNK_HEAD],
        stored: &[u8],
        offset: u64,
    ) -> Result<Vec<u8>, ChunkError> {
        let mut room = Vec::new();
        let bytes = Self::unpack_into(head, stored, offset, &mut room)?;
        if head[5] == 0 {
            return Ok(bytes.into());
        }
        Ok(room)
    }

    /// The same without a copy: gives the stored bytes as they are, or what they unpack to, in
    /// `room`.
    ///
    /// # Errors
    /// It does not unpack.
    pub fn unpack_into<'a>(
        head: &[u8; CHUNK_HEAD],
        stored: &'a [u8],
        offset: u64,
        room: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        let raw = Self::raw_length(head);
        if raw > MAX_CHUNK {
            return Err(damaged("its length is more than a chunk may have"));
        }
        let length = if head[5] == 0 {
            stored.len()
        } else {
            room.resize(raw, 0);
            lz4_flex::block::decompress_into(stored, room)
                .map_err(|_| damaged("its bytes do not unpack"))?
        };
        if length != raw {
            return Err(damaged("its bytes unpack to another length"));
        }
        Ok(if head[5] == 0 { stored } else { room })
    }

    /// How many bytes a chunk with this head holds when it is unpacked.
    #[must_use]
    pub fn raw_length(head: &[u8; CHUNK_HEAD]) -> usize {
        word(head, 8) as usize
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}
