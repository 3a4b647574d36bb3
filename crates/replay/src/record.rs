//! Recording: a sink that keeps a run's frames and has a thread of its own write them.
//!
//! The run hands over whole chunks through a bounded buffer. A slow disk makes the run wait for
//! room (counted); a disk error ends the recording at the last whole chunk and the run goes on. No
//! frame is ever left out of the middle.

use crate::certificates::put_certificate;
use crate::machine::{RecordedMachine, put_bytes, put_number};
use crate::snapshot::SnapshotWriter;
use crate::states::{StateSpacing, StateWriter};
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wavelock_abi::{Frame, SessionId};
use wavelock_certify::{Certificate, LaneFacts};
use wavelock_system::{RunSummary, Sink, StateError, World};
use wavelock_trace::{
    ChunkKind, Digest, Event, EventReader, TraceWriter, read_frames, write_frame,
};

/// Bytes of frames after which a chunk is handed to the writer.
const CHUNK_BYTES: usize = 256 * 1024;

/// Frames after which a chunk is handed over all the same, so that little is lost when the host
/// dies.
const CHUNK_FRAMES: u64 = 256;

/// Chunks that may wait for the disk.
const WAITING_CHUNKS: usize = 16;

/// The engine of this build, by its version: what a trace says it was recorded by.
pub const ENGINE: &str = concat!("wavelock-", env!("CARGO_PKG_VERSION"));

/// How much of a run a trace keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Level {
    /// Modules, spec, inputs and a digest per frame: enough to run it again.
    Inputs = 0,
    /// And which coroutine ran when.
    Schedule = 1,
    /// And every event.
    #[default]
    Full = 2,
}

impl Level {
    /// Every level, least first.
    pub const ALL: [Self; 3] = [Self::Inputs, Self::Schedule, Self::Full];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inputs => "inputs",
            Self::Schedule => "schedule",
            Self::Full => "full",
        }
    }
}

/// What a recording came to.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes of the trace.
    pub bytes: u64,
    /// Chunks of it.
    pub chunks: u64,
    /// How often the run waited for the disk.
    pub waits: u64,
    /// How long it waited in all.
    pub waited: Duration,
    /// The disk error that ended the recording early, if one did. What was written before is a
    /// whole, shorter trace.
    pub error: Option<io::Error>,
}

struct Written {
    bytes: u64,
    chunks: u64,
    error: Option<io::Error>,
}

/// A sink that records, and passes everything on to another.
pub struct Recorder<'a> {
    inner: &'a mut dyn Sink,
    level: Level,
    pending: Vec<u8>,
    frames: u64,
    sender: Option<SyncSender<(ChunkKind, Vec<u8>)>>,
    writer: Option<JoinHandle<Written>>,
    waits: u64,
    waited: Duration,
    snapshots: Option<Spacing>,
    states: StateWriter,
    /// Certificates that wait for a chunk of their own.
    certificates: Vec<u8>,
}

/// When the next snapshot is due.
struct Spacing {
    writer: SnapshotWriter,
    every: u64,
    next: u64,
}

impl<'a> Recorder<'a> {
    /// Begins a trace of `machine` on `out`.
    ///
    /// # Errors
    /// The beginning could not be written, or no thread could be had.
    pub fn new(
        out: impl Write + Send + 'static,
        machine: &RecordedMachine,
        level: Level,
        inner: &'a mut dyn Sink,
    ) -> io::Result<Self> {
        let mut trace = TraceWriter::new(out)?;
        trace.append(ChunkKind::Machine, &machine.first_chunk(level))?;
        trace.append(ChunkKind::Telemetry, &engine())?;
        let (sender, receiver) = sync_channel::<(ChunkKind, Vec<u8>)>(WAITING_CHUNKS);
        let writer =
            std::thread::Builder::new().name("wavelock-trace".into()).spawn(move || {
                let mut written = Written { bytes: 0, chunks: 2, error: None };
                for (kind, mut payload) in receiver {
                    // Frames are handed over whole: taking the schedule out of them costs this
                    // thread's time and not the run's.
                    if kind == ChunkKind::Frames && level == Level::Schedule {
                        payload = schedule_of(&payload);
                    }
                    if let Err(error) = trace.append(kind, &payload) {
                        written.error = Some(error);
                        break;
                    }
                    written.chunks += 1;
                }
                written.bytes = trace.written();
                written
            })?;
        Ok(Self {
            inner,
            level,
            pending: Vec::new(),
            frames: 0,
            sender: Some(sender),
            writer: Some(writer),
            waits: 0,
            waited: Duration::ZERO,
            snapshots: None,
            states: StateWriter::new(if level == Level::Inputs {
                StateSpacing::Never
            } else {
                StateSpacing::Affordable
            }),
            certificates: Vec::new(),
        })
    }

    /// Digests the machine's state this often. Without it: as often as is affordable, and at the
    /// level of inputs never.
    #[must_use]
    pub fn with_states(mut self, spacing: StateSpacing) -> Self {
        self.states = StateWriter::new(spacing);
        self
    }

    /// Keeps a snapshot of the machine every so many frames, at least one apart.
    #[must_use]
    pub fn with_snapshots(mut self, every: u64) -> Self {
        let every = every.max(1);
        self.snapshots = Some(Spacing { writer: SnapshotWriter::new(), every, next: every });
        self
    }

    /// Keeps the state that a run goes on from: what a trace of a resumed run begins with.
    ///
    /// # Errors
    /// The world is not at a boundary.
    pub fn begin_from(&mut self, world: &mut World) -> Result<(), StateError> {
        let spacing = self.snapshots.get_or_insert_with(|| Spacing {
            writer: SnapshotWriter::new(),
            every: u64::MAX,
            next: u64::MAX,
        });
        let made = spacing.writer.take(world)?;
        spacing.next = world.next_frame_number().0.saturating_add(spacing.every);
        made.into_iter().for_each(|(kind, payload)| self.hand_over(kind, payload));
        Ok(())
    }

    /// Hands a chunk to the writer. When the writer is gone, the recording is over and the run goes
    /// on.
    fn hand_over(&mut self, kind: ChunkKind, payload: Vec<u8>) {
        let Some(sender) = &self.sender else { return };
        let alive = match sender.try_send((kind, payload)) {
            Ok(()) => true,
            Err(TrySendError::Full(chunk)) => {
                self.waits += 1;
                let began = Instant::now();
                let sent = sender.send(chunk).is_ok();
                self.waited += began.elapsed();
                sent
            }
            Err(TrySendError::Disconnected(_)) => false,
        };
        if !alive {
            self.sender = None;
        }
    }

    /// State digests go before the frames after which they were made, so that whoever reads has
    /// them when the frames are done.
    fn flush(&mut self) {
        if let Some(states) = self.states.take() {
            self.hand_over(ChunkKind::States, states);
        }
        if !self.pending.is_empty() {
            let payload = std::mem::take(&mut self.pending);
            self.frames = 0;
            self.hand_over(ChunkKind::Frames, payload);
        }
    }

    /// Whether certificates are kept: at the level of everything.
    #[must_use]
    pub fn keeps_certificates(&self) -> bool {
        self.level == Level::Full
    }

    /// Keeps the certificate of a wave and what the machine stated when it was checked, at the
    /// level of everything: outside every digest.
    pub fn certificate(&mut self, certificate: &Certificate, lanes: &[LaneFacts]) {
        if self.sender.is_some() && self.keeps_certificates() {
            put_certificate(&mut self.certificates, certificate, lanes);
            if self.certificates.len() >= CHUNK_BYTES {
                self.flush_certificates();
            }
        }
    }

    fn flush_certificates(&mut self) {
        if !self.certificates.is_empty() {
            let payload = std::mem::take(&mut self.certificates);
            self.hand_over(ChunkKind::Certificates, payload);
        }
    }

    /// Keeps facts about how the run was driven, each with a name: outside every digest. A name is
    /// one word, a value one line.
    pub fn telemetry(&mut self, facts: &[(&str, u64)]) {
        let lines = facts
            .iter()
            .fold(String::new(), |lines, (name, value)| lines + &format!("{name} {value}\n"));
        self.hand_over(ChunkKind::Telemetry, lines.into_bytes());
    }

    /// Ends the trace with how the run ended, and waits for the disk.
    #[must_use]
    pub fn finish(mut self, summary: &RunSummary) -> Recorded {
        self.flush();
        self.flush_certificates();
        let mut end = Vec::new();
        put_number(&mut end, summary.outcome.map_or(u64::MAX, |outcome| outcome as u64));
        end.extend_from_slice(&summary.digest.0);
        put_number(&mut end, summary.frames);
        put_number(&mut end, summary.steps);
        put_number(&mut end, summary.sessions.len() as u64);
        for session in &summary.sessions {
            put_bytes(&mut end, session.name.as_bytes());
            put_number(&mut end, session.outcome as u64);
            put_number(&mut end, u64::from(session.exit as u32));
            end.extend_from_slice(&session.digest.0);
        }
        self.hand_over(ChunkKind::End, end);
        let written = self.close();
        let written = written.unwrap_or(Written {
            bytes: 0,
            chunks: 0,
            error: Some(io::Error::other("the trace writer died")),
        });
        Recorded {
            bytes: written.bytes,
            chunks: written.chunks,
            waits: self.waits,
            waited: self.waited,
            error: written.error,
        }
    }

    /// Waits for the writer to be done with what it has.
    fn close(&mut self) -> Option<Written> {
        self.sender = None;
        self.writer.take().and_then(|writer| writer.join().ok())
    }
}

/// A run that failed keeps what it recorded: a trace without an end.
impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.flush();
            self.flush_certificates();
            self.close();
        }
    }
}

impl Sink for Recorder<'_> {
    fn boundary(&mut self, world: &mut World) {
        self.inner.boundary(world);
        let frame = world.next_frame_number().0;
        let due = self.snapshots.as_ref().is_some_and(|spacing| frame >= spacing.next);
        if self.sender.is_none() {
            return;
        }
        self.states.boundary(world, due);
        if due || self.states.waiting() >= CHUNK_BYTES {
            self.flush();
        }
        if !due {
            return;
        }
        let Some(spacing) = &mut self.snapshots else { return };
        spacing.next = frame.saturating_add(spacing.every);
        // A boundary has a state; one that has none is kept out of the trace, and the run goes on.
        let made = spacing.writer.take(world).unwrap_or_default();
        made.into_iter().for_each(|(kind, payload)| self.hand_over(kind, payload));
    }

    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.inner.output(session, bytes);
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.inner.log(session, bytes);
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        if self.sender.is_none() {
            return;
        }
        match self.level {
            Level::Inputs => write_frame(frame.0, digest, &[], [].into_iter(), &mut self.pending),
            Level::Schedule | Level::Full => {
                let lanes: Vec<&[u8]> = lanes.collect();
                write_frame(frame.0, digest, boundary, lanes.into_iter(), &mut self.pending);
            }
        }
        self.frames += 1;
        if self.pending.len() >= CHUNK_BYTES || self.frames >= CHUNK_FRAMES {
            self.flush();
        }
    }
}

/// Which build writes: telemetry, because no digest may depend on it.
pub(crate) fn engine() -> Vec<u8> {
    format!("engine {ENGINE}\n").into_bytes()
}

/// The frames of a chunk's payload without the events that a schedule leaves out.
fn schedule_of(payload: &[u8]) -> Vec<u8> {
    let frames = read_frames(payload).expect("what was just written is a list of frames");
    let mut kept = Vec::with_capacity(payload.len());
    for frame in frames {
        let mut lanes = vec![Vec::new(); frame.lanes.len()];
        frame.lanes.iter().zip(&mut lanes).for_each(|(lane, out)| keep_schedule(lane, out));
        write_frame(
            frame.frame,
            frame.digest,
            frame.boundary,
            lanes.iter().map(Vec::as_slice),
            &mut kept,
        );
    }
    kept
}

/// Keeps the events that say which coroutine ran when.
pub(crate) fn keep_schedule(lane: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut reader = EventReader::new(lane);
    loop {
        let start = reader.offset();
        let Some(Ok(event)) = reader.next() else { return };
        if matches!(
            event,
            Event::Step { .. }
                | Event::Wave { .. }
                | Event::Wake { .. }
                | Event::Timers { .. }
                | Event::Spawn { .. }
        ) {
            out.extend_from_slice(&lane[start..reader.offset()]);
        }
    }
}
