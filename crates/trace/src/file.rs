//! Trace files: appended chunk by chunk, read chunk by chunk.
//!
//! A writer appends whole chunks, so a kill at any byte loses at most the last one; a reader
//! reports it.

use crate::TRACE_VERSION;
use crate::chunk::{
    CHUNK_HEAD, Chain, ChunkError, ChunkKind, FILE_HEAD, MAGIC, MAX_CHUNK, file_head, word,
};
use std::fmt;
use std::io::{self, Read, Write};
use std::vec::Vec;

/// Appends chunks to a [`Write`].
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    chain: Chain,
    scratch: Vec<u8>,
    written: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace.
    ///
    /// # Errors
    /// The bytes could not be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&file_head())?;
        Ok(Self { out, chain: Chain::new(), scratch: Vec::new(), written: FILE_HEAD as u64 })
    }

    /// Appends and flushes one chunk.
    ///
    /// # Errors
    /// The bytes could not be written, or exceed the size of a chunk; the trace then ends with the
    /// previous chunk.
    pub fn append(&mut self, kind: ChunkKind, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_CHUNK {
            let (found, most) = (payload.len(), MAX_CHUNK);
            return Err(io::Error::other(std::format!(
                "a chunk of {kind:?} would have {found} bytes, at most {most} are allowed"
            )));
        }
        self.scratch.clear();
        self.chain.write(kind, payload, &mut self.scratch);
        self.out.write_all(&self.scratch)?;
        self.out.flush()?;
        self.written += self.scratch.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }
}

/// Why reading a trace failed.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read.
    Io(io::Error),
    /// The bytes are not a complete trace.
    Chunk(ChunkError),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Chunk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ChunkError> for TraceError {
    fn from(error: ChunkError) -> Self {
        Self::Chunk(error)
    }
}

/// Checks the first bytes of a file.
///
/// # Errors
/// Not a trace, or another version.
fn check_file_head(bytes: &[u8]) -> Result<(), ChunkError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(ChunkError::NotATrace);
    }
    let unfinished =
        ChunkError::Unfinished { offset: 0, expected: FILE_HEAD as u64, found: bytes.len() as u64 };
    let head = bytes.get(..FILE_HEAD).ok_or(unfinished)?;
    let found = word(head, 8);
    if found == TRACE_VERSION { Ok(()) } else { Err(ChunkError::Version { found }) }
}

/// Reads chunks in order and checks each against the chain.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    chain: Chain,
    offset: u64,
}

impl<R: Read> TraceReader<R> {
    /// Opens a trace.
    ///
    /// # Errors
    /// It is not a trace, or of another version.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut head = Vec::new();
        input.by_ref().take(FILE_HEAD as u64).read_to_end(&mut head)?;
        check_file_head(&head)?;
        Ok(Self { input, chain: Chain::new(), offset: FILE_HEAD as u64 })
    }

    /// The next chunk; `None` at the end of the file.
    ///
    /// # Errors
    /// The chunk is incomplete or damaged; earlier ones are complete.
    pub fn next_chunk(&mut self) -> Result<Option<(ChunkKind, Vec<u8>)>, TraceError> {
        let offset = self.offset;
        let mut head = Vec::with_capacity(CHUNK_HEAD);
        self.input.by_ref().take(CHUNK_HEAD as u64).read_to_end(&mut head)?;
        if head.is_empty() {
            return Ok(None);
        }
        let unfinished =
            |expected: u64, found: u64| ChunkError::Unfinished { offset, expected, found };
        let head: [u8; CHUNK_HEAD] = head
            .as_slice()
            .try_into()
            .map_err(|_| unfinished(CHUNK_HEAD as u64, head.len() as u64))?;
        let (kind, length) = Chain::read_head(&head, offset)?;
        let mut stored = Vec::new();
        self.input.by_ref().take(length as u64).read_to_end(&mut stored)?;
        let total = (CHUNK_HEAD + length) as u64;
        if stored.len() < length {
            return Err(unfinished(total, (CHUNK_HEAD + stored.len()) as u64).into());
        }
        let payload = self.chain.read(&head, &stored, offset)?;
        self.offset += total;
        Ok(Some((kind, payload)))
    }

    /// Byte offset of the next chunk.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes).expect("memory");
        writer.append(ChunkKind::Machine, b"machine").expect("memory");
        writer.append(ChunkKind::Frames, &vec![7; 5_000]).expect("memory");
        writer.append(ChunkKind::End, b"").expect("memory");
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<(ChunkKind, Vec<u8>)>, Option<TraceError>) {
        let mut reader = match TraceReader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let mut chunks = Vec::new();
        loop {
            match reader.next_chunk() {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => return (chunks, None),
                Err(error) => return (chunks, Some(error)),
            }
        }
    }

    #[test]
    fn an_oversized_chunk_is_refused_with_both_numbers() {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes).expect("memory");
        let error =
            writer.append(ChunkKind::Frames, &vec![0; MAX_CHUNK + 1]).expect_err("too large");
        assert!(
            std::string::ToString::to_string(&error).contains("would have 67108865 bytes"),
            "{error}"
        );
        writer.append(ChunkKind::End, b"").expect("the trace continues after the refusal");
        assert_eq!(read(&bytes).0.len(), 1);
    }

    #[test]
    fn chunks_round_trip() {
        let (chunks, error) = read(&sample());
        assert!(error.is_none());
        assert_eq!(chunks[1], (ChunkKind::Frames, vec![7; 5_000]));
        assert!(sample().len() < 1_000, "repetition packs");
    }

    #[test]
    fn every_truncation_loses_at_most_the_last_chunk_and_is_reported() {
        let bytes = sample();
        let whole = read(&bytes).0;
        let mut borders = 0;
        for end in FILE_HEAD..bytes.len() {
            let (chunks, error) = read(&bytes[..end]);
            assert_eq!(chunks[..], whole[..chunks.len()]);
            match error {
                None => borders += 1,
                Some(TraceError::Chunk(ChunkError::Unfinished { found, expected, .. })) => {
                    assert!(found < expected)
                }
                Some(other) => panic!("{end}: {other}"),
            }
        }
        assert_eq!(borders, 3, "cut exactly between chunks, a trace is only shorter");
    }

    #[test]
    fn a_truncated_file_head_is_distinguished_from_another_file() {
        let bytes = sample();
        for end in 0..FILE_HEAD {
            match read(&bytes[..end]).1 {
                Some(TraceError::Chunk(ChunkError::NotATrace)) => assert!(end < 8, "{end} bytes"),
                Some(TraceError::Chunk(ChunkError::Unfinished {
                    offset: 0,
                    expected: 12,
                    found,
                })) => assert_eq!(found, end as u64),
                other => panic!("{end} bytes: {other:?}"),
            }
        }
    }

    #[test]
    fn every_changed_byte_is_found_in_its_chunk() {
        let bytes = sample();
        let whole = read(&bytes).0;
        for at in 0..bytes.len() {
            for bit in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                let (chunks, error) = read(&changed);
                assert!(error.is_some(), "byte {at}");
                assert_eq!(chunks[..], whole[..chunks.len()], "byte {at}");
            }
        }
    }

    #[test]
    fn chunks_cannot_be_dropped_repeated_or_swapped() {
        let bytes = sample();
        let first = FILE_HEAD + CHUNK_HEAD + 7;
        let without: Vec<u8> = [&bytes[..FILE_HEAD], &bytes[first..]].concat();
        assert!(matches!(read(&without).1, Some(TraceError::Chunk(ChunkError::Damaged { .. }))));
        let twice: Vec<u8> = [&bytes[..first], &bytes[FILE_HEAD..]].concat();
        let (chunks, error) = read(&twice);
        assert_eq!(chunks.len(), 1);
        assert!(matches!(error, Some(TraceError::Chunk(ChunkError::Damaged { .. }))));
    }
}
