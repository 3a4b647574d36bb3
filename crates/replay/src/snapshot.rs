//! Snapshots in a trace: states of the whole machine, each page of guest memory kept once.
//!
//! A snapshot is a table (chunk kind `Snapshot`) that names pieces by the number of the `Pages` chunk they are in. A page that an earlier
//! snapshot wrote and that is still in use is named again and not written again, so a snapshot costs what has changed. When what is in use
//! is spread too thin over old chunks, everything is written anew: loading reads at most a few times the size of the state. Every chunk
//! that is named is named with the hash of its contents, so a snapshot can be checked without reading the file before it.
//!
//! Format 1: numbers of 64 bits, little-endian: 1, frame, steps, state digest, then the outline (length, its chunks), then for each memory its
//! session, number, size in pages and runs of pages (first page, count, chunk, place in the chunk). Chunks come before as (number, hash).

use crate::machine::{MachineError, Reader, RecordedMachine, put_number};
use crate::record::Level;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use wavelock_abi::SessionId;
use wavelock_machine::MemoryAddress;
use wavelock_system::{InputEvent, MachineSpec, STATE_PAGE_BYTES, StateError, StateHead, World};
use wavelock_trace::{ChunkKind, Digest, TraceWriter};

/// Version of the table.
pub const SNAPSHOT_FORMAT: u64 = 1;

/// Pages of one chunk.
const CHUNK_PAGES: usize = 256;

/// Bytes of the outline in one chunk.
const OUTLINE_PIECE: usize = CHUNK_PAGES * STATE_PAGE_BYTES;

/// How many times its own size a snapshot may have to read.
const MOST_SPREAD: usize = 3;

type Hash = [u8; 32];

/// Where a page is: a chunk of pages, and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Location {
    chunk: u64,
    index: u64,
}

/// Makes snapshots for one file, one after the other.
pub(crate) struct SnapshotWriter {
    /// Pages that the last snapshot uses, by hash.
    known: BTreeMap<Hash, Location>,
    /// By number: the hash of each chunk of pages that was made.
    chunks: Vec<Hash>,
    zero: Hash,
}

/// A chunk to append.
pub(crate) type Made = (ChunkKind, Vec<u8>);

/// Pages on their way into chunks.
struct Filling<'a> {
    chunks: &'a mut Vec<Hash>,
    open: Vec<u8>,
    made: Vec<Made>,
}

impl Filling<'_> {
    fn page(&mut self, page: &[u8]) -> Location {
        let location = Location { chunk: self.chunks.len() as u64, index: (self.open.len() / STATE_PAGE_BYTES) as u64 };
        self.open.extend_from_slice(page);
        if self.open.len() >= CHUNK_PAGES * STATE_PAGE_BYTES {
            self.close();
        }
        location
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let payload = std::mem::take(&mut self.open);
            self.chunks.push(*blake3::hash(&payload).as_bytes());
            self.made.push((ChunkKind::Pages, payload));
        }
    }
}

impl SnapshotWriter {
    pub(crate) fn new() -> Self {
        Self { known: BTreeMap::new(), chunks: Vec::new(), zero: zero_hash() }
    }

    /// The chunks of a snapshot of `world`, in order. Hashes only pages that were written since the last one.
    ///
    /// # Errors
    /// The world is not at a boundary.
    pub(crate) fn take(&mut self, world: &mut World) -> Result<Vec<Made>, StateError> {
        let outline = world.outline()?;
        let head = StateHead::of(&outline)?;
        let mut filling = Filling { chunks: &mut self.chunks, open: Vec::new(), made: Vec::new() };
        let first_piece = filling.chunks.len() as u64;
        for piece in outline.chunks(OUTLINE_PIECE) {
            filling.open.extend_from_slice(piece);
            filling.close();
        }
        let pieces = filling.chunks.len() as u64 - first_piece;
        let spread = self.known.values().map(|location| location.chunk).collect::<std::collections::BTreeSet<_>>().len();
        let mut known = std::mem::take(&mut self.known);
        if spread * CHUNK_PAGES > MOST_SPREAD * known.len() + 4 * CHUNK_PAGES {
            known.clear();
        }
        let mut used = BTreeMap::new();
        let mut memories: Vec<(SessionId, MemoryAddress, Vec<Option<Location>>)> = Vec::new();
        let zero = self.zero;
        world.visit_memories(|session, memory, contents| {
            let hashes: Vec<Hash> = contents.page_hashes().to_vec();
            let pages = contents.bytes().chunks_exact(STATE_PAGE_BYTES);
            let locations = hashes.iter().zip(pages).map(|(hash, page)| {
                (*hash != zero)
                    .then(|| *used.entry(*hash).or_insert_with(|| known.get(hash).copied().unwrap_or_else(|| filling.page(page))))
            });
            let locations = locations.collect();
            memories.push((session, memory, locations));
        });
        filling.close();
        let mut made = filling.made;
        self.known = used;
        let digest = state_digest(&outline, world);
        let table = Table { head, digest, outline: outline.len() as u64, pieces: (first_piece, pieces), memories: &memories };
        made.push((ChunkKind::Snapshot, table.encode(&self.chunks)));
        Ok(made)
    }
}

/// Writes a file with a machine and its state here, and nothing else: what [`crate::Archive`] opens. Gives the state's head and the bytes written.
///
/// # Errors
/// The bytes could not be written, or the world is not at a boundary.
pub fn write_snapshot(out: impl Write, machine: &RecordedMachine, world: &mut World) -> io::Result<(StateHead, u64)> {
    let head = world.outline().and_then(|outline| StateHead::of(&outline)).map_err(io::Error::other)?;
    let mut trace = TraceWriter::new(out)?;
    trace.append(ChunkKind::Machine, &machine.first_chunk(Level::Inputs))?;
    for (kind, payload) in SnapshotWriter::new().take(world).map_err(io::Error::other)? {
        trace.append(kind, &payload)?;
    }
    Ok((head, trace.written()))
}

fn zero_hash() -> Hash {
    *blake3::hash(&[0; STATE_PAGE_BYTES]).as_bytes()
}

/// The digest of a state: of its outline and of the hashes of its pages. Reads only pages that were written since the last digest.
pub fn state_digest(outline: &[u8], world: &mut World) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(blake3::hash(outline).as_bytes());
    world.visit_memories(|session, memory, contents| {
        hasher.update(&session.0.to_le_bytes());
        hasher.update(&memory.0.to_le_bytes());
        for hash in contents.page_hashes() {
            hasher.update(hash);
        }
    });
    Digest(*hasher.finalize().as_bytes())
}

struct Table<'a> {
    head: StateHead,
    digest: Digest,
    outline: u64,
    pieces: (u64, u64),
    memories: &'a [(SessionId, MemoryAddress, Vec<Option<Location>>)],
}

impl Table<'_> {
    fn encode(&self, hashes: &[Hash]) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, SNAPSHOT_FORMAT);
        put_number(&mut out, self.head.frame.0);
        put_number(&mut out, self.head.steps);
        out.extend_from_slice(&self.digest.0);
        let locations = self.memories.iter().flat_map(|(_, _, locations)| locations).flatten();
        let mut chunks: Vec<u64> = (self.pieces.0..self.pieces.0 + self.pieces.1).chain(locations.map(|location| location.chunk)).collect();
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
                [first, count, place(location.chunk), location.index].iter().for_each(|&number| put_number(&mut out, number));
            }
        }
        out
    }
}

/// Pages that follow each other in memory and in a chunk, together.
fn runs(locations: &[Option<Location>]) -> Vec<(u64, u64, Location)> {
    let mut runs: Vec<(u64, u64, Location)> = Vec::new();
    for (page, location) in (0u64..).zip(locations).filter_map(|(page, location)| location.map(|location| (page, location))) {
        match runs.last_mut() {
            Some((first, count, start))
                if *first + *count == page && start.chunk == location.chunk && start.index + *count == location.index =>
            {
                *count += 1;
            }
            _ => runs.push((page, 1, location)),
        }
    }
    runs
}

/// Why a snapshot cannot be used.
#[derive(Debug)]
pub enum SnapshotError {
    /// Its table is of another format.
    Format {
        /// The format found.
        found: u64,
    },
    /// Its table makes no sense.
    Malformed {
        /// Where.
        offset: usize,
    },
    /// A chunk it names is not there, or holds something else.
    Chunk {
        /// The number of the chunk of pages.
        number: u64,
    },
    /// It is not a state of the machine.
    State(StateError),
    /// The state is not the one that was digested.
    Digest {
        /// As recorded.
        recorded: Digest,
        /// As found.
        found: Digest,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { found } => write!(f, "snapshot format {found}: this build has format {SNAPSHOT_FORMAT}"),
            Self::Malformed { offset } => write!(f, "byte {offset} of a snapshot's table: not what should stand there"),
            Self::Chunk { number } => write!(f, "chunk of pages {number} is missing, or not the one the snapshot was made with"),
            Self::State(error) => error.fmt(f),
            Self::Digest { recorded, found } => write!(f, "the snapshot's state has digest {found}, recorded was {recorded}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<MachineError> for SnapshotError {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Malformed { offset } => Self::Malformed { offset },
            _ => Self::Malformed { offset: 0 },
        }
    }
}

/// Where a snapshot was taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SnapshotPlace {
    /// The frame that begins there.
    pub frame: u64,
    /// Steps before it.
    pub steps: u64,
}

impl SnapshotPlace {
    /// The place that a table says, without reading the rest.
    pub(crate) fn of(table: &[u8]) -> Result<Self, SnapshotError> {
        let mut input = Reader { bytes: table, offset: 0 };
        let found = input.number()?;
        if found != SNAPSHOT_FORMAT {
            return Err(SnapshotError::Format { found });
        }
        Ok(Self { frame: input.number()?, steps: input.number()? })
    }
}

/// One memory of a snapshot: runs of pages that are not all zeros.
struct StoredMemory {
    session: SessionId,
    memory: MemoryAddress,
    /// First page, count, chunk in `chunks`, place in it; ascending.
    runs: Vec<[u64; 4]>,
}

/// What a chunk of pages holds, with its hash.
pub(crate) struct PageChunk {
    bytes: Vec<u8>,
    hash: [u8; 32],
}

impl PageChunk {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { hash: *blake3::hash(&bytes).as_bytes(), bytes }
    }
}

/// A snapshot with everything it names.
pub struct Snapshot {
    place: SnapshotPlace,
    digest: Digest,
    outline: Vec<u8>,
    chunks: Vec<Arc<PageChunk>>,
    memories: Vec<StoredMemory>,
}

impl Snapshot {
    /// The numbers of the chunks of pages that a table names.
    pub(crate) fn named(table: &[u8]) -> Result<Vec<u64>, SnapshotError> {
        let (_, _, named, _) = Self::begin(table)?;
        Ok(named.into_iter().map(|(number, _)| number).collect())
    }

    /// What a table begins with: place, digest, chunks with their hashes; and where the rest is.
    #[allow(clippy::type_complexity, reason = "four parts of one thing, taken apart at once by its two callers")]
    fn begin(table: &[u8]) -> Result<(SnapshotPlace, Digest, Vec<(u64, [u8; 32])>, Reader<'_>), SnapshotError> {
        let place = SnapshotPlace::of(table)?;
        let mut input = Reader { bytes: table, offset: 24 };
        let digest = Digest(read_hash(&mut input)?);
        let mut named = Vec::new();
        for _ in 0..input.count()? {
            named.push((input.number()?, read_hash(&mut input)?));
        }
        Ok((place, digest, named, input))
    }

    /// Reads a table; `chunk` gives a chunk of pages by its number. What it gives is checked.
    pub(crate) fn read(table: &[u8], mut chunk: impl FnMut(u64) -> Option<Arc<PageChunk>>) -> Result<Self, SnapshotError> {
        let (place, digest, named, mut input) = Self::begin(table)?;
        let mut chunks = Vec::new();
        for (number, hash) in named {
            let contents = chunk(number).filter(|contents| contents.hash == hash);
            chunks.push(contents.ok_or(SnapshotError::Chunk { number })?);
        }
        let malformed = |input: &Reader<'_>| SnapshotError::Malformed { offset: input.offset };
        let (length, first, pieces) = (input.number()?, input.number()?, input.number()?);
        let end = first.checked_add(pieces).filter(|&end| end <= chunks.len() as u64).ok_or(malformed(&input))?;
        let outline: Vec<u8> = chunks[first as usize..end as usize].iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect();
        if outline.len() as u64 != length {
            return Err(malformed(&input));
        }
        let mut memories = Vec::new();
        for _ in 0..input.count()? {
            let session = u32::try_from(input.number()?).map_err(|_| malformed(&input))?;
            let memory = u32::try_from(input.number()?).map_err(|_| malformed(&input))?;
            let pages = input.number()?;
            let mut runs = Vec::new();
            let mut next = 0;
            for _ in 0..input.count()? {
                let run @ [first, count, chunk, index] = [input.number()?, input.number()?, input.number()?, input.number()?];
                let held = chunks.get(chunk as usize).map_or(0, |chunk| (chunk.bytes.len() / STATE_PAGE_BYTES) as u64);
                let inside = index.checked_add(count).is_some_and(|end| end <= held);
                let end = first.checked_add(count).filter(|&end| first >= next && end <= pages && pages <= 1 << 20);
                next = end.filter(|_| inside && count > 0).ok_or(malformed(&input))?;
                runs.push(run);
            }
            memories.push(StoredMemory { session: SessionId(session), memory: MemoryAddress(memory), runs });
        }
        if input.offset != table.len() {
            return Err(malformed(&input));
        }
        Ok(Self { place, digest, outline, chunks, memories })
    }

    /// Where it was taken.
    #[must_use]
    pub const fn place(&self) -> SnapshotPlace {
        self.place
    }

    /// The digest of the state, as recorded.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The state's head: totals up to here.
    ///
    /// # Errors
    /// The outline is of another version.
    pub fn head(&self) -> Result<StateHead, SnapshotError> {
        StateHead::of(&self.outline).map_err(SnapshotError::State)
    }

    /// Bytes of guest memory it holds, pages of zeros aside.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memories.iter().flat_map(|memory| &memory.runs).map(|run| run[1] * STATE_PAGE_BYTES as u64).sum()
    }

    /// The machine in this state.
    ///
    /// # Errors
    /// It is not a state of that machine.
    pub fn restore(&self, spec: MachineSpec, inputs: Vec<InputEvent>, keep_events: bool) -> Result<World, SnapshotError> {
        let mut world = World::restore_outline(spec, inputs, keep_events, &self.outline).map_err(SnapshotError::State)?;
        for (session, memory, page, bytes) in self.pages() {
            if !world.write_page(session, memory, page, bytes) {
                return Err(SnapshotError::State(StateError::Inconsistent { session, what: "a page that is not there" }));
            }
        }
        Ok(world)
    }

    /// Whether the state has the digest that was recorded: a check of every byte.
    ///
    /// # Errors
    /// It has another.
    pub fn check(&self, world: &mut World) -> Result<(), SnapshotError> {
        let found = state_digest(&self.outline, world);
        if found == self.digest { Ok(()) } else { Err(SnapshotError::Digest { recorded: self.digest, found }) }
    }

    fn pages(&self) -> impl Iterator<Item = (SessionId, MemoryAddress, u32, &[u8])> {
        self.memories.iter().flat_map(move |memory| {
            memory.runs.iter().flat_map(move |&[first, count, chunk, index]| {
                let chunk = &self.chunks[chunk as usize].bytes;
                (0..count).map(move |at| {
                    let start = (index + at) as usize * STATE_PAGE_BYTES;
                    (memory.session, memory.memory, (first + at) as u32, &chunk[start..start + STATE_PAGE_BYTES])
                })
            })
        })
    }

    /// The first difference between this state and that of `world`, which stands at the same boundary.
    pub(crate) fn difference(&self, world: &mut World) -> Option<StateDifference> {
        let outline = world.outline().ok()?;
        if state_digest(&outline, world) == self.digest {
            return None;
        }
        let mut recorded: BTreeMap<(SessionId, MemoryAddress, u32), &[u8]> =
            self.pages().map(|(session, memory, page, bytes)| ((session, memory, page), bytes)).collect();
        let zeros = [0; STATE_PAGE_BYTES];
        let mut found = None;
        for (session, memory, contents) in world.memories() {
            for (page, bytes) in (0u32..).zip(contents.bytes().chunks_exact(STATE_PAGE_BYTES)) {
                let kept = recorded.remove(&(session, memory, page)).unwrap_or(&zeros);
                if let (None, Some(at)) = (&found, kept.iter().zip(bytes).position(|(one, two)| one != two)) {
                    let address = page as u64 * STATE_PAGE_BYTES as u64 + at as u64;
                    found = Some(StateDifference::Byte { session: session.0, address, recorded: kept[at], found: bytes[at] });
                }
            }
        }
        if let (None, Some(((session, _, page), bytes))) = (&found, recorded.first_key_value()) {
            let address = u64::from(*page) * STATE_PAGE_BYTES as u64;
            return Some(StateDifference::Byte { session: session.0, address, recorded: bytes[0], found: 0 });
        }
        let offset =
            || outline.iter().zip(&self.outline).position(|(one, two)| one != two).unwrap_or(outline.len().min(self.outline.len()));
        Some(found.unwrap_or_else(|| StateDifference::Outline { offset: offset() }))
    }
}

/// Where two states differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StateDifference {
    /// A byte of a session's memory.
    Byte { session: u32, address: u64, recorded: u8, found: u8 },
    /// Something outside memories, at this byte of the outline.
    Outline { offset: usize },
}

fn read_hash(input: &mut Reader<'_>) -> Result<Hash, SnapshotError> {
    let words = [input.number()?, input.number()?, input.number()?, input.number()?];
    let mut hash = [0; 32];
    hash.chunks_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    Ok(hash)
}
