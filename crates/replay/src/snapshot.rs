//! Snapshots in a trace: states of the whole machine, with every page of guest memory stored once.
//!
//! A snapshot is a table (chunk kind `Snapshot`) that refers to pages by the number of their
//! `Pages` chunk. A page that an earlier snapshot wrote and that is still in use is referred to
//! again instead of written, so a snapshot costs what changed. When the pages in use are scattered
//! over too many old chunks, all are written again, so that loading reads at most [`MOST_SPREAD`]
//! times the size of the state. Every reference to a chunk includes the hash of its contents, so a
//! snapshot can be checked without reading the file before it.
//!
//! Elsewhere: the bytes of a table (`table`), random access to snapshots in a file (`archive`,
//! `fill`).

use crate::machine::{MachineError, RecordedMachine};
use crate::record::{Level, engine};
use crate::states::page_address;
use crate::table::{
    Draft, Hash, Location, Run, SNAPSHOT_FORMAT, Table, block_hashes, chunk_hash, zero_hash,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use wavelock_abi::SessionId;
use wavelock_machine::MemoryAddress;
use wavelock_system::{InputEvent, MachineSpec, STATE_PAGE_BYTES, StateError, StateHead, World};
use wavelock_trace::{ChunkKind, Digest, TraceWriter};

/// Pages of one chunk.
const CHUNK_PAGES: usize = 256;

/// Bytes of the outline in one chunk.
const OUTLINE_PIECE: usize = CHUNK_PAGES * STATE_PAGE_BYTES;

/// Maximum ratio of the bytes read by loading a snapshot to its size.
const MOST_SPREAD: usize = 3;

/// Makes the snapshots of one file.
pub(crate) struct SnapshotWriter {
    /// Pages that the last snapshot uses, by hash.
    known: BTreeMap<Hash, Location>,
    /// The hash of each chunk of pages written so far, by number.
    chunks: Vec<Hash>,
    zero: Hash,
}

/// A chunk to append.
pub(crate) type Made = (ChunkKind, Vec<u8>);

/// The chunk of pages being filled.
struct Filling<'a> {
    chunks: &'a mut Vec<Hash>,
    open: Vec<u8>,
    /// The hash of each block of `open`.
    hashes: Vec<Hash>,
    made: Vec<Made>,
}

impl Filling<'_> {
    fn page(&mut self, page: &[u8], hash: Hash) -> Location {
        let location = Location {
            chunk: self.chunks.len() as u64,
            index: (self.open.len() / STATE_PAGE_BYTES) as u64,
        };
        self.open.extend_from_slice(page);
        self.hashes.push(hash);
        if self.open.len() >= CHUNK_PAGES * STATE_PAGE_BYTES {
            self.close();
        }
        location
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let payload = std::mem::take(&mut self.open);
            self.chunks.push(chunk_hash(SNAPSHOT_FORMAT, &payload, &self.hashes));
            self.hashes.clear();
            self.made.push((ChunkKind::Pages, payload));
        }
    }
}

impl SnapshotWriter {
    pub(crate) fn new() -> Self {
        Self { known: BTreeMap::new(), chunks: Vec::new(), zero: zero_hash() }
    }

    /// The chunks of a snapshot of `world`, in order. Hashes only pages written since the last one.
    ///
    /// # Errors
    /// The world is not at a boundary.
    pub(crate) fn take(&mut self, world: &mut World) -> Result<Vec<Made>, StateError> {
        let outline = world.outline()?;
        let head = StateHead::of(&outline)?;
        let mut filling = Filling {
            chunks: &mut self.chunks,
            open: Vec::new(),
            hashes: Vec::new(),
            made: Vec::new(),
        };
        let first_piece = filling.chunks.len() as u64;
        for piece in outline.chunks(OUTLINE_PIECE) {
            filling.open.extend_from_slice(piece);
            filling.hashes.extend(block_hashes(piece));
            filling.close();
        }
        let pieces = filling.chunks.len() as u64 - first_piece;
        let spread = self
            .known
            .values()
            .map(|location| location.chunk)
            .collect::<std::collections::BTreeSet<_>>()
            .len();
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
                (*hash != zero).then(|| {
                    *used.entry(*hash).or_insert_with(|| {
                        known.get(hash).copied().unwrap_or_else(|| filling.page(page, *hash))
                    })
                })
            });
            let locations = locations.collect();
            memories.push((session, memory, locations));
        });
        filling.close();
        let mut made = filling.made;
        self.known = used;
        let digest = state_digest(&outline, world);
        let table = Draft {
            head,
            digest,
            outline: outline.len() as u64,
            pieces: (first_piece, pieces),
            memories: &memories,
        };
        made.push((ChunkKind::Snapshot, table.encode(&self.chunks)));
        Ok(made)
    }
}

/// Writes a file with a machine and its current state, for [`crate::Archive`]. Returns the state's
/// header and the number of bytes written.
///
/// # Errors
/// The bytes could not be written, or the world is not at a boundary.
pub fn write_snapshot(
    out: impl Write,
    machine: &RecordedMachine,
    world: &mut World,
) -> io::Result<(StateHead, u64)> {
    let head =
        world.outline().and_then(|outline| StateHead::of(&outline)).map_err(io::Error::other)?;
    let mut trace = TraceWriter::new(out)?;
    trace.append(ChunkKind::Machine, &machine.first_chunk(Level::Inputs))?;
    trace.append(ChunkKind::Telemetry, &engine())?;
    for (kind, payload) in SnapshotWriter::new().take(world).map_err(io::Error::other)? {
        trace.append(kind, &payload)?;
    }
    Ok((head, trace.written()))
}

/// The digest of a state, over its outline and the hashes of its pages. Reads only pages written
/// since the last digest.
pub(crate) fn state_digest(outline: &[u8], world: &mut World) -> Digest {
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

/// Why a snapshot cannot be used.
#[derive(Debug)]
pub enum SnapshotError {
    /// Its table is of another format.
    Format {
        /// The format found.
        found: u64,
    },
    /// Its table is malformed.
    Malformed {
        /// The offset in the table.
        offset: usize,
    },
    /// A chunk it refers to is missing or has other contents.
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
            Self::Format { found } => write!(
                f,
                "snapshot format {found}: this build reads formats 1 to {SNAPSHOT_FORMAT}"
            ),
            Self::Malformed { offset } => {
                write!(f, "byte {offset} of a snapshot's table is malformed")
            }
            Self::Chunk { number } => write!(
                f,
                "chunk of pages {number} is missing or has other contents than when the snapshot was made"
            ),
            Self::State(error) => error.fmt(f),
            Self::Digest { recorded, found } => {
                write!(f, "the snapshot's state has digest {found}, but {recorded} was recorded")
            }
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

/// The position of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SnapshotPosition {
    /// The frame that starts there.
    pub frame: u64,
    /// Steps before it.
    pub steps: u64,
}

impl SnapshotPosition {
    /// The position in a table's header; the rest is not read.
    pub(crate) fn of(table: &[u8]) -> Result<Self, SnapshotError> {
        Table::begin(table).map(|(_, place)| place)
    }
}

/// The contents of a chunk of pages, with lazily computed hashes.
pub(crate) struct PageChunk {
    bytes: Vec<u8>,
    blocks: OnceLock<Vec<Hash>>,
}

impl PageChunk {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, blocks: OnceLock::new() }
    }

    /// The hash of each page.
    fn blocks(&self) -> &[Hash] {
        self.blocks.get_or_init(|| block_hashes(&self.bytes).collect())
    }

    pub(crate) const fn length(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A snapshot with all its pages, as a sequential reader gets it.
pub struct Snapshot {
    table: Table,
    outline: Vec<u8>,
    chunks: Vec<Arc<PageChunk>>,
}

impl Snapshot {
    /// Reads a table; `chunk` returns a chunk of pages by its number, which is then checked.
    pub(crate) fn read(
        table: &[u8],
        chunk: impl Fn(u64) -> Option<Arc<PageChunk>>,
    ) -> Result<Self, SnapshotError> {
        let table = Table::read(table, |number| chunk(number).map(|chunk| chunk.length()))?;
        let mut chunks = Vec::new();
        for &(number, hash) in &table.chunks {
            let right = |contents: &Arc<PageChunk>| {
                chunk_hash(table.format, &contents.bytes, contents.blocks()) == hash
            };
            chunks.push(chunk(number).filter(right).ok_or(SnapshotError::Chunk { number })?);
        }
        let outline = chunks[table.pieces.clone()]
            .iter()
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect();
        Ok(Self { table, outline, chunks })
    }

    /// The numbers of the chunks it refers to.
    pub(crate) fn named(&self) -> impl Iterator<Item = u64> {
        self.table.chunks.iter().map(|(number, _)| *number)
    }

    /// Its position.
    #[must_use]
    pub const fn place(&self) -> SnapshotPosition {
        self.table.place
    }

    /// The digest of the state, as recorded.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.table.digest
    }

    /// The state's header: totals up to here.
    ///
    /// # Errors
    /// The outline is of another version.
    pub fn head(&self) -> Result<StateHead, SnapshotError> {
        StateHead::of(&self.outline).map_err(SnapshotError::State)
    }

    /// Bytes of guest memory, without zero pages.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.table.memory_bytes()
    }

    /// The machine in this state.
    ///
    /// # Errors
    /// It is not a state of that machine, or its digest is not the recorded one.
    pub fn restore(
        &self,
        spec: MachineSpec,
        inputs: Vec<InputEvent>,
        keep_events: bool,
    ) -> Result<World, SnapshotError> {
        let mut world = World::restore_outline(spec, inputs, keep_events, &self.outline)
            .map_err(SnapshotError::State)?;
        let wanted = self.table.wanted(world.memories_mut(), |_, _, slot| Some(slot))?;
        for (chunk, pages) in self.chunks.iter().zip(wanted) {
            for (index, slot) in pages {
                slot.fill(
                    &chunk.bytes[index * STATE_PAGE_BYTES..][..STATE_PAGE_BYTES],
                    chunk.blocks()[index],
                );
            }
        }
        self.check(&mut world)?;
        Ok(world)
    }

    /// Checks the state against the recorded digest.
    fn check(&self, world: &mut World) -> Result<(), SnapshotError> {
        check_digest(&self.table, &self.outline, world)
    }

    fn pages(&self) -> impl Iterator<Item = (SessionId, MemoryAddress, u32, &[u8])> {
        self.table.memories.iter().flat_map(move |(&(session, memory), runs)| {
            runs.iter().flat_map(move |&Run { first, count, chunk, index }| {
                let chunk = &self.chunks[chunk].bytes;
                (0..count).map(move |at| {
                    let start = (index + at) as usize * STATE_PAGE_BYTES;
                    (session, memory, (first + at) as u32, &chunk[start..start + STATE_PAGE_BYTES])
                })
            })
        })
    }

    /// The first byte of a page that differs between this state and that of `world`: its address
    /// and both values.
    pub(crate) fn byte_of_page(
        &self,
        world: &World,
        session: SessionId,
        memory: MemoryAddress,
        page: u32,
    ) -> Option<(u64, u8, u8)> {
        let zeros = [0; STATE_PAGE_BYTES];
        let kept = self
            .pages()
            .find(|&(at, number, which, _)| (at, number, which) == (session, memory, page));
        let kept = kept.map_or(&zeros[..], |(.., bytes)| bytes);
        let (.., contents) =
            world.memories().find(|&(at, number, _)| (at, number) == (session, memory))?;
        let bytes = contents.bytes().chunks_exact(STATE_PAGE_BYTES).nth(page as usize)?;
        let at = kept.iter().zip(bytes).position(|(one, two)| one != two)?;
        Some((page_address(page) + at as u64, kept[at], bytes[at]))
    }

    /// Checks that its state has this build's version; a replay cannot be compared with another
    /// one.
    pub(crate) fn check_version(&self) -> Result<(), SnapshotError> {
        match StateHead::of(&self.outline) {
            Err(error @ StateError::Version { .. }) => Err(SnapshotError::State(error)),
            _ => Ok(()),
        }
    }

    /// The first difference between this state and that of `world`, which is at the same boundary.
    pub(crate) fn difference(&self, world: &mut World) -> Option<StateDifference> {
        let outline = world.outline().ok()?;
        if state_digest(&outline, world) == self.table.digest {
            return None;
        }
        let mut recorded: BTreeMap<(SessionId, MemoryAddress, u32), &[u8]> = self
            .pages()
            .map(|(session, memory, page, bytes)| ((session, memory, page), bytes))
            .collect();
        let zeros = [0; STATE_PAGE_BYTES];
        let mut found = None;
        for (session, memory, contents) in world.memories() {
            for (page, bytes) in (0u32..).zip(contents.bytes().chunks_exact(STATE_PAGE_BYTES)) {
                let kept = recorded.remove(&(session, memory, page)).unwrap_or(&zeros);
                if let (None, Some(at)) =
                    (&found, kept.iter().zip(bytes).position(|(one, two)| one != two))
                {
                    let address = page as u64 * STATE_PAGE_BYTES as u64 + at as u64;
                    found = Some(StateDifference::Byte {
                        session: session.0,
                        address,
                        recorded: kept[at],
                        found: bytes[at],
                    });
                }
            }
        }
        if let (None, Some(((session, _, page), bytes))) = (&found, recorded.first_key_value()) {
            let address = u64::from(*page) * STATE_PAGE_BYTES as u64;
            return Some(StateDifference::Byte {
                session: session.0,
                address,
                recorded: bytes[0],
                found: 0,
            });
        }
        let offset = || {
            outline
                .iter()
                .zip(&self.outline)
                .position(|(one, two)| one != two)
                .unwrap_or(outline.len().min(self.outline.len()))
        };
        Some(found.unwrap_or_else(|| StateDifference::Outline { offset: offset() }))
    }
}

/// Checks a state that was loaded from a table against the digest in it.
pub(crate) fn check_digest(
    table: &Table,
    outline: &[u8],
    world: &mut World,
) -> Result<(), SnapshotError> {
    let (recorded, found) = (table.digest, state_digest(outline, world));
    if found == recorded { Ok(()) } else { Err(SnapshotError::Digest { recorded, found }) }
}

/// Where two states differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StateDifference {
    /// A byte of a session's memory.
    Byte { session: u32, address: u64, recorded: u8, found: u8 },
    /// A difference outside memories, at this byte of the outline.
    Outline { offset: usize },
}
