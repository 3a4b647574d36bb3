//! Sequential reader of a trace: its machine, its frames and snapshots one chunk at a time, and its
//! end if it has one. Elsewhere: random access (`archive`).

use crate::live::read_inputs;
use crate::machine::{MachineError, Reader, RecordedMachine};
use crate::record::Level;
use crate::snapshot::{PageChunk, Snapshot, SnapshotError};
use crate::states::{StateRecord, StatesError, read_states};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use wavelock_abi::Frame;
use wavelock_system::{GiveError, Input, SessionOutcome};
use wavelock_trace::{ChunkKind, Digest, FramesError, TraceError, TraceReader};

/// Why a trace without an end chunk is incomplete.
pub const NO_END: &str =
    "the trace has no end: the run was killed before it could write one, or the file is a snapshot";

/// Why a trace could not be opened or read.
#[derive(Debug)]
pub enum OpenError {
    /// The file, or its chunks.
    Trace(TraceError),
    /// Its machine.
    Machine(MachineError),
    /// Its frames.
    Frames(FramesError),
    /// A snapshot in it.
    Snapshot(SnapshotError),
    /// State digests in it.
    States(StatesError),
    /// An input in it.
    Input(GiveError),
    /// It does not start with a machine.
    NoMachine,
    /// Bytes follow its end.
    Trailing {
        /// The offset of the first one.
        offset: u64,
    },
    /// It was recorded at a level this build does not support.
    Level {
        /// The level's number.
        found: u8,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::Frames(error) => error.fmt(f),
            Self::Snapshot(error) => error.fmt(f),
            Self::States(error) => error.fmt(f),
            Self::Input(error) => error.fmt(f),
            Self::NoMachine => {
                write!(
                    f,
                    "the trace does not start with a machine: the recording was stopped at its start"
                )
            }
            Self::Trailing { offset } => {
                write!(f, "byte {offset}: the trace ends here, but more bytes follow")
            }
            Self::Level { found } => write!(
                f,
                "recording level {found}: this build supports 0 (inputs), 1 (schedule) and 2 (full)"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<TraceError> for OpenError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

/// How a recorded run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// The outcome's number; `u64::MAX` if the run had not ended.
    pub outcome: u64,
    /// The run digest.
    pub digest: Digest,
    /// Frames.
    pub frames: u64,
    /// Steps.
    pub steps: u64,
    /// By session: name, outcome's number, exit code, digest of its observables.
    pub sessions: Vec<(String, u64, i32, Digest)>,
}

impl Ending {
    /// Whether the run was stopped at a boundary, without an outcome.
    #[must_use]
    pub const fn was_interrupted(&self) -> bool {
        self.outcome == u64::MAX
    }

    /// Whether the run could have gone on: it was stopped, or its frame limit ended it.
    #[must_use]
    pub fn can_continue(&self) -> bool {
        let is_running = |outcome: u64| outcome == SessionOutcome::Running as u64;
        self.was_interrupted() || self.sessions.iter().any(|(_, outcome, ..)| is_running(*outcome))
    }
}

/// The next part of a trace.
#[derive(Debug)]
pub enum Frames {
    /// The payload of a frames chunk: see [`wavelock_trace::read_frames`].
    Some(Vec<u8>),
    /// The trace is complete; this is its end.
    End(Ending),
    /// The trace is truncated: its writer was stopped. The error, if the last chunk is incomplete.
    Missing(Option<TraceError>),
}

/// The next part of a trace, snapshots included.
pub(crate) enum Part {
    Frames(Vec<u8>),
    Snapshot(Box<Snapshot>),
    States(Vec<StateRecord>),
    Inputs(Vec<(Frame, Input)>),
    End(Ending),
    Missing(Option<TraceError>),
}

/// A trace that is read sequentially.
pub struct Trace<R> {
    reader: TraceReader<R>,
    /// By number: chunks of pages that a snapshot may still refer to.
    pages: BTreeMap<u64, Arc<PageChunk>>,
    next_pages: u64,
    /// The snapshot that the run was resumed from, if it was.
    pub origin: Option<Box<Snapshot>>,
    /// A part that was read ahead to find the origin.
    ahead: Option<Part>,
    /// Its recording level.
    pub level: Level,
    /// Its machine.
    pub machine: RecordedMachine,
    /// How it was made, from the parts read so far: `engine`, and counters. Outside every digest.
    pub telemetry: BTreeMap<String, String>,
}

impl<R: Read> Trace<R> {
    /// Opens a trace and reads its machine.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(input: R) -> Result<Self, OpenError> {
        let mut reader = TraceReader::new(input)?;
        let (level, machine) = first_chunk(&mut reader)?;
        let (pages, telemetry) = (BTreeMap::new(), BTreeMap::new());
        let mut trace = Self {
            reader,
            pages,
            next_pages: 0,
            origin: None,
            ahead: None,
            level,
            machine,
            telemetry,
        };
        match trace.read_part()? {
            Part::Snapshot(origin) => trace.origin = Some(origin),
            part => trace.ahead = Some(part),
        }
        Ok(trace)
    }

    /// The next part that a run can be compared with.
    pub(crate) fn next_part(&mut self) -> Result<Part, OpenError> {
        match self.ahead.take() {
            Some(part) => Ok(part),
            None => self.read_part(),
        }
    }

    fn read_part(&mut self) -> Result<Part, OpenError> {
        loop {
            match self.reader.next_chunk() {
                Ok(Some((ChunkKind::Frames, payload))) => return Ok(Part::Frames(payload)),
                Ok(Some((ChunkKind::End, payload))) => {
                    nothing_after(&mut self.reader)?;
                    return ending(&payload).map(Part::End).map_err(OpenError::Machine);
                }
                Ok(Some((ChunkKind::Pages, payload))) => {
                    self.pages.insert(self.next_pages, Arc::new(PageChunk::new(payload)));
                    self.next_pages += 1;
                }
                Ok(Some((ChunkKind::States, payload))) => {
                    return read_states(&payload).map(Part::States).map_err(OpenError::States);
                }
                Ok(Some((ChunkKind::Inputs, payload))) => {
                    let read = read_inputs(&payload, &mut self.machine);
                    return read.map(Part::Inputs).map_err(OpenError::Machine);
                }
                Ok(Some((ChunkKind::Snapshot, table))) => {
                    return self.read_snapshot(&table).map(|found| Part::Snapshot(Box::new(found)));
                }
                Ok(Some((ChunkKind::Telemetry, payload))) => self.telemetry.extend(facts(&payload)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Part::Missing(None)),
                Err(error @ TraceError::Chunk(wavelock_trace::ChunkError::Unfinished { .. })) => {
                    return Ok(Part::Missing(Some(error)));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next snapshot can only refer to pages of the last one, so only these are kept.
    fn read_snapshot(&mut self, table: &[u8]) -> Result<Snapshot, OpenError> {
        let snapshot = Snapshot::read(table, |number| self.pages.get(&number).cloned())
            .map_err(OpenError::Snapshot)?;
        let mut pages = std::mem::take(&mut self.pages);
        self.pages = snapshot
            .named()
            .filter_map(|number| pages.remove(&number).map(|chunk| (number, chunk)))
            .collect();
        Ok(snapshot)
    }

    /// The next frames, or the end of the trace. Other kinds of chunks are skipped.
    ///
    /// # Errors
    /// A chunk is damaged, or the end is malformed. A truncated trace is not an error.
    pub fn next_frames(&mut self) -> Result<Frames, OpenError> {
        loop {
            match self.next_part()? {
                Part::Frames(payload) => return Ok(Frames::Some(payload)),
                Part::End(ending) => return Ok(Frames::End(ending)),
                Part::Missing(reason) => return Ok(Frames::Missing(reason)),
                Part::Snapshot(_) | Part::States(_) | Part::Inputs(_) => {}
            }
        }
    }
}

/// Named facts, one per line. Malformed lines are skipped.
pub(crate) fn facts(payload: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(payload);
    let fact =
        |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().take(MOST_FACTS).filter_map(fact).collect()
}

/// Maximum number of facts of one chunk.
const MOST_FACTS: usize = 256;

/// Reads the first chunk of a trace.
pub(crate) fn first_chunk<R: Read>(
    reader: &mut TraceReader<R>,
) -> Result<(Level, RecordedMachine), OpenError> {
    let Some((ChunkKind::Machine, payload)) = reader.next_chunk()? else {
        return Err(OpenError::NoMachine);
    };
    let (&code, machine) = payload.split_first().ok_or(OpenError::NoMachine)?;
    let level = *Level::ALL.get(usize::from(code)).ok_or(OpenError::Level { found: code })?;
    Ok((level, RecordedMachine::decode(machine).map_err(OpenError::Machine)?))
}

/// Nothing may follow the chunk that ends a trace.
pub(crate) fn nothing_after<R: Read>(reader: &mut TraceReader<R>) -> Result<(), OpenError> {
    let offset = reader.offset();
    match reader.next_chunk() {
        Ok(None) => Ok(()),
        _ => Err(OpenError::Trailing { offset }),
    }
}

pub(crate) fn ending(payload: &[u8]) -> Result<Ending, MachineError> {
    let mut input = Reader { bytes: payload, offset: 0 };
    let outcome = input.number()?;
    let digest = read_digest(&mut input)?;
    let (frames, steps) = (input.number()?, input.number()?);
    let count = input.count()?;
    let sessions = (0..count)
        .map(|_| {
            let name = String::from_utf8_lossy(input.bytes()?).into_owned();
            Ok((name, input.number()?, input.number()? as u32 as i32, read_digest(&mut input)?))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Ending { outcome, digest, frames, steps, sessions })
}

fn read_digest(input: &mut Reader<'_>) -> Result<Digest, MachineError> {
    let words = [input.number()?, input.number()?, input.number()?, input.number()?];
    let mut bytes = [0; 32];
    for (chunk, word) in bytes.chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Ok(Digest(bytes))
}
