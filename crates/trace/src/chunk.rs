//! The chunks of a trace file. Each has a kind, its lengths and a checksum over the file up to its
//! end.
//!
//! ```text
//!   file  = magic "WAVELOCK" | version u32 | chunk*
//!   chunk = "CHNK" | kind u8 | packing u8 | 0 u16 | raw length u32 | stored length u32
//!           | checksum 16 bytes | stored bytes
//! ```
//!
//! The checksum is the first half of `link = H(previous link, the 16 bytes before it, stored
//! bytes)`, so a changed, missing, repeated or moved chunk is found at its position. Numbers are
//! little-endian. Reading treats its input as untrusted: lengths are bounded before they are used.

use crate::{Digest, TRACE_VERSION};
use alloc::vec::Vec;
use core::fmt;

/// The first bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"WAVELOCK";

/// Bytes before the first chunk.
pub const FILE_HEAD: usize = 12;

/// Bytes of a chunk before its payload.
pub const CHUNK_HEAD: usize = 32;

/// The maximum size of a chunk, compressed or not.
pub const MAX_CHUNK: usize = 64 << 20;

const CHUNK_MARK: [u8; 4] = *b"CHNK";

macro_rules! kinds {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        /// The content of a chunk.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum ChunkKind {
            $(#[doc = $doc] $name = $code,)*
        }

        impl ChunkKind {
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
    Pages = 6, "parts of machine states, which snapshots refer to by chunk number";
    Snapshot = 7, "the position and content of a machine state, outside every digest";
    States = 8, "hashes of the machine's states between frames, outside every digest of the run";
    Inputs = 9, "inputs that a live machine was given, by frame; before the chunk with those frames";
}

/// Why bytes are not a valid trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The file does not start with the magic bytes.
    NotATrace,
    /// Another format version.
    Version {
        /// The version found.
        found: u32,
    },
    /// The file ends inside a chunk, as after a kill. Everything before it is complete.
    Unfinished {
        /// Byte offset of the chunk.
        offset: u64,
        /// Bytes of the chunk.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// The chunk is damaged, or was moved.
    Damaged {
        /// Byte offset of the chunk.
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
                    "byte {offset}: the last chunk is incomplete, {found} of {expected} bytes; everything before it is intact"
                )
            }
            Self::Damaged { offset, what } => {
                write!(f, "byte {offset}: damaged chunk: {what}")
            }
        }
    }
}

impl core::error::Error for ChunkError {}

/// The first bytes of a trace file.
#[must_use]
pub(crate) fn file_head() -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..].copy_from_slice(&TRACE_VERSION.to_le_bytes());
    head
}

/// The little-endian number at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The hash chain over a file's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain(Digest);

impl Chain {
    /// The start of the chain.
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
    /// If the payload is larger than [`MAX_CHUNK`].
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

    /// Decodes a chunk's head: its kind, and the number of bytes that follow it.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read_head(
        head: &[u8; CHUNK_HEAD],
        offset: u64,
    ) -> Result<(ChunkKind, usize), ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        if head[..4] != CHUNK_MARK || head[6..8] != [0, 0] || head[5] > 1 {
            return Err(damaged("it does not start with the mark of a chunk"));
        }
        let kind =
            ChunkKind::from_code(head[4]).ok_or(damaged("this build does not know its kind"))?;
        let (raw, stored) = (word(head, 8) as usize, word(head, 12) as usize);
        if raw > MAX_CHUNK || stored > raw {
            return Err(damaged("its length exceeds the maximum"));
        }
        Ok((kind, stored))
    }

    /// Checks a chunk against the chain and decompresses it.
    ///
    /// # Errors
    /// It is damaged, or not the next chunk of this chain.
    pub fn read(
        &mut self,
        head: &[u8; CHUNK_HEAD],
        stored: &[u8],
        offset: u64,
    ) -> Result<Vec<u8>, ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        let next = self.link(&head[..16], stored);
        if next.0.0[..16] != head[16..] {
            return Err(damaged("its checksum does not match the file up to its end"));
        }
        *self = next;
        Self::unpack(head, stored, offset)
    }

    /// Decompresses a chunk without checking the chain: for random access with other hashes.
    ///
    /// # Errors
    /// It does not decompress.
    pub fn unpack(
        head: &[u8; CHUNK_HEAD],
        stored: &[u8],
        offset: u64,
    ) -> Result<Vec<u8>, ChunkError> {
        let mut buffer = Vec::new();
        let bytes = Self::unpack_into(head, stored, offset, &mut buffer)?;
        if head[5] == 0 {
            return Ok(bytes.into());
        }
        Ok(buffer)
    }

    /// [`Chain::unpack`] without a copy: returns `stored` if it is not compressed, otherwise
    /// decompresses it into `buffer`.
    ///
    /// # Errors
    /// It does not decompress.
    pub fn unpack_into<'a>(
        head: &[u8; CHUNK_HEAD],
        stored: &'a [u8],
        offset: u64,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ChunkError> {
        let damaged = |what| ChunkError::Damaged { offset, what };
        let raw = Self::raw_length(head);
        if raw > MAX_CHUNK {
            return Err(damaged("its length exceeds the maximum"));
        }
        let length = if head[5] == 0 {
            stored.len()
        } else {
            buffer.resize(raw, 0);
            lz4_flex::block::decompress_into(stored, buffer)
                .map_err(|_| damaged("it does not decompress"))?
        };
        if length != raw {
            return Err(damaged("it decompresses to another length"));
        }
        Ok(if head[5] == 0 { stored } else { buffer })
    }

    /// The decompressed length of a chunk with this head.
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
