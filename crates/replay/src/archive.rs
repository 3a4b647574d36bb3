//! A trace file that can be jumped into: where its chunks are, found by hopping from head to head without reading what is between.
//!
//! Opening reads the machine and 32 bytes a chunk; a snapshot is found by bisection and read with the chunks it names, checked by their
//! hashes. So going to a place costs what its snapshot weighs, not what the file does. The chain over the whole file is for those who read it
//! whole (`verify`).

use crate::machine::RecordedMachine;
use crate::record::Level;
use crate::snapshot::{PageChunk, Snapshot, SnapshotError, SnapshotPlace};
use crate::trace::{OpenError, first_chunk};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use wavelock_trace::{CHUNK_HEAD, Chain, ChunkKind, TraceError, TraceReader};

/// Where a chunk is: its offset, its head, its length without it.
struct Spot {
    offset: u64,
    head: [u8; CHUNK_HEAD],
    length: usize,
}

/// An open trace file.
pub struct Archive<R> {
    input: R,
    /// How much of the run it keeps.
    pub level: Level,
    /// Its machine.
    pub machine: RecordedMachine,
    pages: Vec<Spot>,
    snapshots: Vec<Spot>,
    places: BTreeMap<usize, SnapshotPlace>,
    /// Chunks of pages that the last snapshot used: the next one most likely shares some.
    kept: BTreeMap<u64, Arc<PageChunk>>,
    /// Whether the file has an end.
    complete: bool,
    /// The snapshot that the run began from.
    origin: Option<SnapshotPlace>,
}

impl<R: Read + Seek> Archive<R> {
    /// Opens a trace: reads its machine, and where its chunks are. What a kill cut off is passed over.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(mut input: R) -> Result<Self, OpenError> {
        let mut reader = TraceReader::new(&mut input)?;
        let (level, machine) = first_chunk(&mut reader)?;
        let mut offset = reader.offset();
        let (mut pages, mut snapshots, mut complete, mut frames, mut begins) = (Vec::new(), Vec::new(), false, false, false);
        let length = input.seek(SeekFrom::End(0)).map_err(TraceError::Io)?;
        while offset + CHUNK_HEAD as u64 <= length {
            input.seek(SeekFrom::Start(offset)).map_err(TraceError::Io)?;
            let mut head = [0; CHUNK_HEAD];
            input.read_exact(&mut head).map_err(TraceError::Io)?;
            let (kind, stored) = Chain::read_head(&head, offset).map_err(TraceError::Chunk)?;
            let end = offset + (CHUNK_HEAD + stored) as u64;
            if end > length {
                break;
            }
            let spot = Spot { offset, head, length: stored };
            match kind {
                ChunkKind::Pages => pages.push(spot),
                ChunkKind::Snapshot => {
                    begins |= !frames;
                    snapshots.push(spot);
                }
                ChunkKind::Frames => frames = true,
                ChunkKind::End => complete = true,
                _ => {}
            }
            offset = end;
        }
        let (places, kept) = (BTreeMap::new(), BTreeMap::new());
        let mut archive = Self { input, level, machine, pages, snapshots, places, kept, complete, origin: None };
        if begins {
            archive.origin = Some(archive.place(0)?);
        }
        Ok(archive)
    }

    /// Where the run began, if it was resumed from a snapshot.
    #[must_use]
    pub const fn origin(&self) -> Option<SnapshotPlace> {
        self.origin
    }

    /// Whether the recording was ended and not cut off.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many snapshots it holds.
    #[must_use]
    pub fn snapshot_count(&self) -> usize {
        self.snapshots.len()
    }

    /// Where the `number`-th snapshot was taken.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn place(&mut self, number: usize) -> Result<SnapshotPlace, OpenError> {
        if let Some(&place) = self.places.get(&number) {
            return Ok(place);
        }
        let table = read_spot(&mut self.input, &self.snapshots[number])?;
        let place = SnapshotPlace::of(&table).map_err(OpenError::Snapshot)?;
        self.places.insert(number, place);
        Ok(place)
    }

    /// The last snapshot for which `before` holds; it must hold for all that come before one for which it does.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn last_snapshot(&mut self, before: impl Fn(SnapshotPlace) -> bool) -> Result<Option<usize>, OpenError> {
        let (mut low, mut high) = (0, self.snapshots.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.place(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1))
    }

    /// Reads a snapshot and everything it names.
    ///
    /// # Errors
    /// Something is damaged or missing.
    pub fn snapshot(&mut self, number: usize) -> Result<Snapshot, OpenError> {
        let table = read_spot(&mut self.input, &self.snapshots[number])?;
        let mut stored = BTreeMap::new();
        let mut used = BTreeMap::new();
        for number in Snapshot::named(&table)? {
            let Some(spot) = usize::try_from(number).ok().and_then(|number| self.pages.get(number)) else { continue };
            match self.kept.remove(&number) {
                Some(chunk) => drop(used.insert(number, chunk)),
                None if used.contains_key(&number) || stored.contains_key(&number) => {}
                None => drop(stored.insert(number, (spot, read_stored(&mut self.input, spot)?))),
            }
        }
        used.extend(unpack_all(stored.into_iter().collect())?);
        let snapshot = Snapshot::read(&table, |number| used.get(&number).cloned());
        self.kept = used;
        Ok(snapshot?)
    }
}

/// Chunks as they lie in the file, by number.
type Stored<'a> = Vec<(u64, (&'a Spot, Vec<u8>))>;

/// Unpacks and hashes chunks, on two threads: most of going to a place is this.
fn unpack_all(mut stored: Stored<'_>) -> Result<Vec<(u64, Arc<PageChunk>)>, OpenError> {
    let unpack = |stored: Stored<'_>| -> Result<Vec<_>, OpenError> {
        let chunk = |(number, (spot, bytes)): (u64, (&Spot, Vec<u8>))| Ok((number, Arc::new(PageChunk::new(unpack(spot, &bytes)?))));
        stored.into_iter().map(chunk).collect()
    };
    let half = stored.split_off(stored.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| unpack(half));
        let mut chunks = unpack(stored)?;
        chunks.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        Ok(chunks)
    })
}

fn read_spot(input: &mut (impl Read + Seek), spot: &Spot) -> Result<Vec<u8>, OpenError> {
    unpack(spot, &read_stored(input, spot)?)
}

fn read_stored(input: &mut (impl Read + Seek), spot: &Spot) -> Result<Vec<u8>, OpenError> {
    input.seek(SeekFrom::Start(spot.offset + CHUNK_HEAD as u64)).map_err(TraceError::Io)?;
    let mut stored = vec![0; spot.length];
    input.read_exact(&mut stored).map_err(TraceError::Io)?;
    Ok(stored)
}

fn unpack(spot: &Spot, stored: &[u8]) -> Result<Vec<u8>, OpenError> {
    Chain::unpack(&spot.head, stored, spot.offset).map_err(|error| OpenError::Trace(TraceError::Chunk(error)))
}

impl From<SnapshotError> for OpenError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}
