//! The table of a snapshot: the location of each page of the machine's memories, as the number of
//! its chunk and its index there.
//!
//! Numbers have 64 bits and are little-endian: format, frame, steps, state digest, the list of
//! chunks as (number, hash), the outline (length, first chunk, number of chunks), then for each
//! memory its session, number, size in pages and runs of pages (first page, count, chunk, index in
//! it). Runs refer to chunks by their index in the list. In format 2 the hash of a chunk is the
//! hash of the hashes of its page-sized blocks, so that checking a chunk also yields the hashes of
//! its pages; in format 1 it is the hash of its bytes. Both are read, 2 is written.
//!
//! The bytes are untrusted: a table is checked for consistency and against the lengths of the
//! chunks. Elsewhere: which pages are written (`snapshot`), loading chunks into memories (`fill`).

use crate::machine::{Reader, put_number};
use crate::snapshot::{SnapshotError, SnapshotPosition};
use std::collections::BTreeMap;
use wavelock_abi::SessionId;
use wavelock_machine::{Memory, MemoryAddress, PageSlot};
use wavelock_system::{STATE_PAGE_BYTES, StateError, StateHead};
use wavelock_trace::Digest;

/// The version that is written.
pub(crate) const SNAPSHOT_FORMAT: u64 = 2;

/// The oldest version that is read.
const OLDEST_FORMAT: u64 = 1;

/// Maximum number of pages of a memory.
const MOST_PAGES: u64 = 1 << 20;

pub(crate) type Hash = [u8; 32];

/// A memory of a machine.
pub(crate) type MemoryKey = (SessionId, MemoryAddress);

/// The location of a page: a chunk of pages, and its index there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) chunk: u64,
    pub(crate) index: u64,
}

/// The hash of each block of a page's size; the last may be shorter.
pub(crate) fn block_hashes(bytes: &[u8]) -> impl Iterator<Item = Hash> {
    bytes.chunks(STATE_PAGE_BYTES).map(|block| *blake3::hash(block).as_bytes())
}

/// The hash of a chunk, from its bytes and the hashes of its blocks.
pub(crate) fn chunk_hash(format: u64, bytes: &[u8], blocks: &[Hash]) -> Hash {
    if format == 1 {
        *blake3::hash(bytes).as_bytes()
    } else {
        *blake3::hash(blocks.as_flattened()).as_bytes()
    }
}

pub(crate) fn zero_hash() -> Hash {
    *blake3::hash(&[0; STATE_PAGE_BYTES]).as_bytes()
}

/// The contents of a table to write.
pub(crate) struct Draft<'a> {
    pub(crate) head: StateHead,
    pub(crate) digest: Digest,
    pub(crate) outline: u64,
    /// The first chunk of the outline, and the number of chunks.
    pub(crate) pieces: (u64, u64),
    pub(crate) memories: &'a [(SessionId, MemoryAddress, Vec<Option<Location>>)],
}

impl Draft<'_> {
    pub(crate) fn encode(&self, hashes: &[Hash]) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, SNAPSHOT_FORMAT);
        put_number(&mut out, self.head.frame.0);
        put_number(&mut out, self.head.steps);
        out.extend_from_slice(&self.digest.0);
        let locations = self.memories.iter().flat_map(|(_, _, locations)| locations).flatten();
        let mut chunks: Vec<u64> = (self.pieces.0..self.pieces.0 + self.pieces.1)
            .chain(locations.map(|location| location.chunk))
            .collect();
        chunks.sort_unstable();
        chunks.dedup();
        put_number(&mut out, chunks.len() as u64);
        for &chunk in &chunks {
            put_number(&mut out, chunk);
            out.extend_from_slice(&hashes[chunk as usize]);
        }
        let place = |chunk: u64| chunks.binary_search(&chunk).unwrap_or(0) as u64;
        put_number(&mut out, self.outline);
        put_number(&mut out, place(self.pieces.0));
        put_number(&mut out, self.pieces.1);
        put_number(&mut out, self.memories.len() as u64);
        for (session, memory, locations) in self.memories {
            put_number(&mut out, u64::from(session.0));
            put_number(&mut out, u64::from(memory.0));
            put_number(&mut out, locations.len() as u64);
            let runs = runs(locations);
            put_number(&mut out, runs.len() as u64);
            for (first, count, location) in runs {
                [first, count, place(location.chunk), location.index]
                    .iter()
                    .for_each(|&number| put_number(&mut out, number));
            }
        }
        out
    }
}

/// Groups pages that are adjacent in memory and in a chunk.
fn runs(locations: &[Option<Location>]) -> Vec<(u64, u64, Location)> {
    let mut runs: Vec<(u64, u64, Location)> = Vec::new();
    for (page, location) in (0u64..)
        .zip(locations)
        .filter_map(|(page, location)| location.map(|location| (page, location)))
    {
        match runs.last_mut() {
            Some((first, count, start))
                if *first + *count == page
                    && start.chunk == location.chunk
                    && start.index + *count == location.index =>
            {
                *count += 1;
            }
            _ => runs.push((page, 1, location)),
        }
    }
    runs
}

/// Pages that are adjacent in a memory and in a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Index of the chunk in the table's list.
    pub(crate) chunk: usize,
    pub(crate) index: u64,
}

/// A table that was read.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) format: u64,
    pub(crate) place: SnapshotPosition,
    pub(crate) digest: Digest,
    /// The list of chunks: number and hash.
    pub(crate) chunks: Vec<(u64, Hash)>,
    /// Indices in `chunks` of the outline's pieces.
    pub(crate) pieces: std::ops::Range<usize>,
    /// By memory: ascending runs of pages that are not zero.
    pub(crate) memories: BTreeMap<MemoryKey, Vec<Run>>,
}

impl Table {
    /// Format and position; the rest is not read.
    pub(crate) fn begin(bytes: &[u8]) -> Result<(u64, SnapshotPosition), SnapshotError> {
        let mut input = Reader { bytes, offset: 0 };
        let found = input.number()?;
        if !(OLDEST_FORMAT..=SNAPSHOT_FORMAT).contains(&found) {
            return Err(SnapshotError::Format { found });
        }
        Ok((found, SnapshotPosition { frame: input.number()?, steps: input.number()? }))
    }

    /// Reads a table. `length` returns the length of a chunk by its number, if it exists.
    pub(crate) fn read(
        bytes: &[u8],
        length: impl Fn(u64) -> Option<u64>,
    ) -> Result<Self, SnapshotError> {
        let (format, place) = Self::begin(bytes)?;
        let mut input = Reader { bytes, offset: 24 };
        let digest = Digest(read_hash(&mut input)?);
        let (mut chunks, mut lengths) = (Vec::new(), Vec::new());
        for _ in 0..input.count()? {
            let number = input.number()?;
            lengths.push(length(number).ok_or(SnapshotError::Chunk { number })?);
            chunks.push((number, read_hash(&mut input)?));
        }
        let malformed = |input: &Reader<'_>| SnapshotError::Malformed { offset: input.offset };
        let (outline, first, pieces) = (input.number()?, input.number()?, input.number()?);
        let end = first
            .checked_add(pieces)
            .filter(|&end| end <= chunks.len() as u64)
            .ok_or(malformed(&input))?;
        let pieces = first as usize..end as usize;
        if lengths[pieces.clone()].iter().sum::<u64>() != outline {
            return Err(malformed(&input));
        }
        let mut memories = BTreeMap::new();
        for _ in 0..input.count()? {
            let session = u32::try_from(input.number()?).map_err(|_| malformed(&input))?;
            let memory = u32::try_from(input.number()?).map_err(|_| malformed(&input))?;
            let pages = input.number()?;
            let mut runs = Vec::new();
            let mut next = 0;
            for _ in 0..input.count()? {
                let [first, count, chunk, index] =
                    [input.number()?, input.number()?, input.number()?, input.number()?];
                let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
                let held = lengths.get(chunk).map_or(0, |length| length / STATE_PAGE_BYTES as u64);
                let inside = index.checked_add(count).is_some_and(|end| end <= held);
                let end = first
                    .checked_add(count)
                    .filter(|&end| first >= next && end <= pages && pages <= MOST_PAGES);
                next = end.filter(|_| inside && count > 0).ok_or(malformed(&input))?;
                runs.push(Run { first, count, chunk, index });
            }
            if memories.insert((SessionId(session), MemoryAddress(memory)), runs).is_some() {
                return Err(malformed(&input));
            }
        }
        if input.offset != bytes.len() {
            return Err(malformed(&input));
        }
        Ok(Self { format, place, digest, chunks, pieces, memories })
    }

    /// For each chunk of the list, the destinations of its pages. Every page of `memories` is
    /// offered to `take` first, which returns the slot if the page must come from a chunk. Pages in
    /// no run are zeroed at once.
    pub(crate) fn wanted<'w>(
        &self,
        memories: BTreeMap<MemoryKey, &'w mut Memory>,
        mut take: impl FnMut(MemoryKey, u32, PageSlot<'w>) -> Option<PageSlot<'w>>,
    ) -> Result<Vec<Vec<(usize, PageSlot<'w>)>>, SnapshotError> {
        let mut wanted: Vec<Vec<_>> = self.chunks.iter().map(|_| Vec::new()).collect();
        let missing = |session| {
            SnapshotError::State(StateError::Inconsistent {
                session,
                what: "a page beyond the memory's end",
            })
        };
        if let Some(((session, _), _)) =
            self.memories.iter().find(|(key, runs)| !runs.is_empty() && !memories.contains_key(key))
        {
            return Err(missing(*session));
        }
        let (zero, zeros) = (zero_hash(), [0; STATE_PAGE_BYTES]);
        for (key, memory) in memories {
            let mut runs = self.memories.get(&key).map_or(&[][..], Vec::as_slice).iter().peekable();
            let pages = (memory.bytes().len() / STATE_PAGE_BYTES) as u64;
            for (page, slot) in (0u32..).zip(memory.page_slots()) {
                let number = u64::from(page);
                let _ = runs.next_if(|run| run.first + run.count <= number);
                let Some(slot) = take(key, page, slot) else { continue };
                match runs.peek().filter(|run| run.first <= number) {
                    Some(run) => {
                        wanted[run.chunk].push(((run.index + number - run.first) as usize, slot))
                    }
                    None => slot.fill(&zeros, zero),
                }
            }
            if runs.last().is_some_and(|run| run.first + run.count > pages) {
                return Err(missing(key.0));
            }
        }
        Ok(wanted)
    }

    /// Bytes of guest memory, without zero pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memories.values().flatten().map(|run| run.count * STATE_PAGE_BYTES as u64).sum()
    }
}

fn read_hash(input: &mut Reader<'_>) -> Result<Hash, SnapshotError> {
    let words = [input.number()?, input.number()?, input.number()?, input.number()?];
    let mut hash = [0; 32];
    hash.chunks_mut(8)
        .zip(words)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    Ok(hash)
}
