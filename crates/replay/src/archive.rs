//! Random access to a trace file: the offsets of its chunks, found by reading only the chunk
//! headers.
//!
//! Opening reads the machine and 32 bytes per chunk. A snapshot is found by bisection and read with
//! the chunks it names, checked by their hashes. Seeking therefore costs the size of a snapshot,
//! not of the file. Elsewhere: the hash chain over the whole file is checked by sequential readers
//! (`verify`).

use crate::fill;
use crate::journal::REACHED;
use crate::machine::RecordedMachine;
use crate::record::Level;
use crate::snapshot::{SnapshotError, SnapshotPosition, check_digest};
use crate::table::Table;
use crate::trace::{Ending, OpenError, ending, facts, first_chunk};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use wavelock_abi::Frame;
use wavelock_machine::PageSlot;
use wavelock_system::{Input, World};
use wavelock_trace::{CHUNK_HEAD, Chain, ChunkKind, Digest, TraceError, TraceReader, read_frames};

/// The location of a chunk: its offset, its header, and its length without the header.
pub(crate) struct ChunkLocation {
    pub(crate) offset: u64,
    pub(crate) head: [u8; CHUNK_HEAD],
    pub(crate) length: usize,
}

/// An open trace file.
pub struct Archive<R> {
    input: R,
    /// Its recording level.
    pub level: Level,
    /// Its machine.
    pub machine: RecordedMachine,
    pages: Vec<ChunkLocation>,
    snapshots: Vec<ChunkLocation>,
    places: BTreeMap<usize, SnapshotPosition>,
    /// How the run ended, if the file has its end.
    ending: Option<Ending>,
    /// The inputs that a live machine was given, and the first frame that is not recorded.
    inputs: Vec<(Frame, Input)>,
    frames_end: Frame,
    /// The digest after the last recorded frame.
    last_digest: Option<Digest>,
    /// The frame up to which time has passed, as far as recorded.
    reached: Frame,
    /// The snapshot that the run was resumed from.
    origin: Option<SnapshotPosition>,
}

impl<R: Read + Seek> Archive<R> {
    /// Opens a trace: reads its machine and the locations of its chunks. A truncated last chunk is
    /// ignored.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(mut input: R) -> Result<Self, OpenError> {
        let mut reader = TraceReader::new(&mut input)?;
        let (level, machine) = first_chunk(&mut reader)?;
        let mut offset = reader.offset();
        let (mut pages, mut snapshots, mut end_spot, mut begins) =
            (Vec::new(), Vec::new(), None, false);
        let (mut inputs, mut frames, mut facts): (Vec<ChunkLocation>, _, _) =
            (Vec::new(), None, None);
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
            let spot = ChunkLocation { offset, head, length: stored };
            match kind {
                ChunkKind::Pages => pages.push(spot),
                ChunkKind::Snapshot => {
                    begins |= frames.is_none();
                    snapshots.push(spot);
                }
                ChunkKind::Frames => frames = Some(spot),
                ChunkKind::Inputs => inputs.push(spot),
                ChunkKind::Telemetry => facts = Some(spot),
                ChunkKind::End => end_spot = Some(spot),
                _ => {}
            }
            offset = end;
        }
        let ending = match end_spot {
            Some(spot) => {
                let payload = read_spot(&mut input, &spot)?;
                Some(ending(&payload).map_err(OpenError::Machine)?)
            }
            None => None,
        };
        let places = BTreeMap::new();
        let mut archive = Self {
            input,
            level,
            machine,
            pages,
            snapshots,
            places,
            ending,
            inputs: Vec::new(),
            frames_end: Frame::ZERO,
            last_digest: None,
            reached: Frame::ZERO,
            origin: None,
        };
        if archive.machine.spec.live {
            archive.read_inputs(&inputs, frames.as_ref())?;
            archive.read_reached(facts.as_ref())?;
        }
        if begins {
            archive.origin = Some(archive.place(0)?);
        }
        Ok(archive)
    }

    /// Reads the inputs of a live machine, and how far its frames are recorded.
    fn read_inputs(
        &mut self,
        inputs: &[ChunkLocation],
        frames: Option<&ChunkLocation>,
    ) -> Result<(), OpenError> {
        for spot in inputs {
            let payload = read_spot(&mut self.input, spot)?;
            let read = crate::live::read_inputs(&payload, &mut self.machine);
            let read = read.map_err(OpenError::Machine)?;
            self.inputs.extend(read);
        }
        // A journal has inputs in the order in which they were given.
        self.inputs.sort_by_key(|(frame, _)| *frame);
        if let Some(spot) = frames {
            let payload = read_spot(&mut self.input, spot)?;
            let frames = read_frames(&payload).map_err(OpenError::Frames)?;
            let last = frames.last().map(|frame| Frame(frame.frame.saturating_add(1)));
            self.frames_end = last.unwrap_or_default();
            self.last_digest = frames.last().map(|frame| frame.digest);
        }
        Ok(())
    }

    /// Reads up to which frame time has passed, if the last facts of a journal say so.
    fn read_reached(&mut self, spot: Option<&ChunkLocation>) -> Result<(), OpenError> {
        let Some(spot) = spot else { return Ok(()) };
        let payload = read_spot(&mut self.input, spot)?;
        let reached = facts(&payload).into_iter().find(|(name, _)| name == REACHED);
        let reached = reached.and_then(|(_, frame)| frame.parse().ok()).map(Frame);
        self.reached = reached.unwrap_or_default();
        Ok(())
    }

    /// The inputs that a live machine was given, by frame.
    #[must_use]
    pub fn inputs(&self) -> &[(Frame, Input)] {
        &self.inputs
    }

    /// The last recorded frame of a live machine with the run digest after it.
    #[must_use]
    pub fn last_frame(&self) -> Option<(Frame, Digest)> {
        self.last_digest.map(|digest| (Frame(self.frames_end.0.saturating_sub(1)), digest))
    }

    /// The first frame of a live machine that the recording says nothing about: frames before it
    /// have run, or had nothing to run.
    #[must_use]
    pub fn end(&self) -> Frame {
        self.frames_end.max(self.reached)
    }

    /// Gives a live machine that was made from this trace the inputs it has not taken, and lets it
    /// run the recorded frames.
    ///
    /// # Errors
    /// An input cannot be given: the trace is not the machine's.
    pub fn feed(&self, world: &mut World) -> Result<(), OpenError> {
        if !self.machine.spec.live {
            return Ok(());
        }
        let next = world.next_frame_number();
        let from = self.inputs.partition_point(|(frame, _)| *frame < next);
        world.give_recorded(self.inputs[from..].iter().cloned()).map_err(OpenError::Input)?;
        world.allow(self.frames_end);
        Ok(())
    }

    /// The position of the snapshot that the run was resumed from, if it was.
    #[must_use]
    pub const fn origin(&self) -> Option<SnapshotPosition> {
        self.origin
    }

    /// Whether the recording was finished, not truncated.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.ending.is_some()
    }

    /// How the run ended, if the recording was finished.
    #[must_use]
    pub const fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The number of snapshots.
    #[must_use]
    pub fn snapshot_count(&self) -> usize {
        self.snapshots.len()
    }

    /// The position of the `number`-th snapshot.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn place(&mut self, number: usize) -> Result<SnapshotPosition, OpenError> {
        if let Some(&place) = self.places.get(&number) {
            return Ok(place);
        }
        let table = read_spot(&mut self.input, &self.snapshots[number])?;
        let place = SnapshotPosition::of(&table).map_err(OpenError::Snapshot)?;
        self.places.insert(number, place);
        Ok(place)
    }

    /// The last snapshot for which `before` holds. `before` must be monotonic: true up to some
    /// snapshot, false after it.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn last_snapshot(
        &mut self,
        before: impl Fn(SnapshotPosition) -> bool,
    ) -> Result<Option<usize>, OpenError> {
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

    /// The machine in the state of the `number`-th snapshot, checked against the recorded digest.
    /// `keep_events` as in [`World::load`].
    ///
    /// # Errors
    /// A chunk is damaged or missing, or the snapshot is not a state of this machine.
    pub fn restore(&mut self, number: usize, keep_events: bool) -> Result<World, OpenError> {
        self.restore_over(number, keep_events, None).map(|(world, _)| world)
    }

    /// The same, reusing the memory of a world that is no longer needed. Also returns the
    /// snapshot's table.
    pub(crate) fn restore_over(
        &mut self,
        number: usize,
        keep_events: bool,
        old: Option<&mut World>,
    ) -> Result<(World, Table), OpenError> {
        let table = read_spot(&mut self.input, &self.snapshots[number])?;
        let length =
            |number| usize::try_from(number).ok().and_then(|number| self.pages.get(number));
        let table = Table::read(&table, |number| {
            length(number).map(|spot| Chain::raw_length(&spot.head) as u64)
        })?;
        let outline = fill::outline(&mut self.input, &self.pages, &table)?;
        let restored = World::restore_outline(
            self.machine.spec.clone(),
            self.machine.inputs.clone(),
            keep_events,
            &outline,
        );
        let mut world = restored.map_err(SnapshotError::State)?;
        old.into_iter().for_each(|old| world.take_memories(old));
        let wanted = table.wanted(world.memories_mut(), |_, _, slot| Some(slot))?;
        fill::fill(&mut self.input, &self.pages, &table, wanted)?;
        check_digest(&table, &outline, &mut world)?;
        self.feed(&mut world)?;
        Ok((world, table))
    }

    /// Fills pages of memories from the chunks named by a table of this file.
    pub(crate) fn fill(
        &mut self,
        table: &Table,
        wanted: Vec<Vec<(usize, PageSlot<'_>)>>,
    ) -> Result<(), OpenError> {
        fill::fill(&mut self.input, &self.pages, table, wanted)
    }
}

fn read_spot(input: &mut (impl Read + Seek), spot: &ChunkLocation) -> Result<Vec<u8>, OpenError> {
    let mut stored = Vec::new();
    fill::read_stored(input, spot, &mut stored)?;
    Chain::unpack(&spot.head, &stored, spot.offset)
        .map_err(|error| OpenError::Trace(TraceError::Chunk(error)))
}

impl From<SnapshotError> for OpenError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}
