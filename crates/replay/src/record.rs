//! Recording: a sink that buffers a run's frames and writes them on its own thread.
//!
//! The run passes complete chunks through a bounded queue. A slow disk makes the run wait for space
//! (counted); a disk error ends the recording after the last complete chunk, and the run continues.
//! No frame is ever dropped from the middle.

use crate::certificates::CertificateWriter;
use crate::live::{KnownModules, put_inputs};
use crate::machine::{RecordedMachine, put_bytes, put_number};
use crate::snapshot::SnapshotWriter;
use crate::states::{StateSpacing, StateWriter};
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wavelock_abi::{Frame, SessionId};
use wavelock_certify::{Certificate, Facts};
use wavelock_system::{Input, RunSummary, Sink, StateError, World};
use wavelock_trace::{
    ChunkKind, Digest, Event, EventReader, TraceWriter, read_frames, write_frame,
};

/// Bytes of frames after which a chunk is passed to the writer.
const CHUNK_BYTES: usize = 256 * 1024;

/// Frames after which a smaller chunk is passed on, so that little is lost if the host crashes.
const CHUNK_FRAMES: u64 = 256;

/// Maximum number of queued chunks.
const WAITING_CHUNKS: usize = 16;

/// The engine of this build with its version, as traces record it.
pub const ENGINE: &str = concat!("wavelock-", env!("CARGO_PKG_VERSION"));

/// What a trace contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Level {
    /// Modules, description, inputs and a digest per frame: enough to replay.
    Inputs = 0,
    /// Also which coroutine ran when.
    Schedule = 1,
    /// Also every event.
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

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes of the trace.
    pub bytes: u64,
    /// Chunks of it.
    pub chunks: u64,
    /// Number of times the run waited for the disk.
    pub waits: u64,
    /// Total time it waited.
    pub waited: Duration,
    /// The disk error that ended the recording early, if any. What was written before is a valid
    /// truncated trace.
    pub error: Option<io::Error>,
}

struct Written {
    bytes: u64,
    chunks: u64,
    error: Option<io::Error>,
}

/// A sink that records and forwards everything to another sink.
pub struct Recorder<'a> {
    inner: &'a mut dyn Sink,
    level: Level,
    pending: Vec<u8>,
    frames: u64,
    /// Frames after which a chunk is passed on: after each one of a live machine, so that its
    /// trace can be read while it runs.
    most_frames: u64,
    /// Inputs of the frames in `pending`.
    inputs: Vec<u8>,
    /// Modules whose bytes the trace has.
    modules: KnownModules,
    sender: Option<SyncSender<(ChunkKind, Vec<u8>)>>,
    writer: Option<JoinHandle<Written>>,
    waits: u64,
    waited: Duration,
    snapshots: Option<Spacing>,
    states: StateWriter,
    /// Certificates for the next chunk of certificates.
    certificates: CertificateWriter,
}

/// When the next snapshot is due.
struct Spacing {
    writer: SnapshotWriter,
    every: u64,
    next: u64,
}

impl<'a> Recorder<'a> {
    /// Starts a trace of `machine` on `out`.
    ///
    /// # Errors
    /// The header could not be written, or the thread could not be started.
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
                    // Frames arrive complete; extracting the schedule here does not slow the run
                    // down.
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
            most_frames: if machine.spec.live { 1 } else { CHUNK_FRAMES },
            inputs: Vec::new(),
            modules: machine.known_modules(),
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
            certificates: CertificateWriter::default(),
        })
    }

    /// Sets how often the machine's state is digested. Default: [`StateSpacing::Affordable`], and
    /// never at level inputs.
    #[must_use]
    pub fn with_states(mut self, spacing: StateSpacing) -> Self {
        self.states = StateWriter::new(spacing);
        self
    }

    /// Stores a snapshot of the machine every `every` frames, at least 1.
    #[must_use]
    pub fn with_snapshots(mut self, every: u64) -> Self {
        let every = every.max(1);
        self.snapshots = Some(Spacing { writer: SnapshotWriter::new(), every, next: every });
        self
    }

    /// Stores the state that a run continues from: the first part of a resumed run's trace.
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

    /// Passes a chunk to the writer. If the writer has stopped, the recording ends and the run
    /// continues.
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

    /// State digests precede the frames after which they were made, so that a reader has them when
    /// it finishes these frames; inputs precede the frames that take them.
    fn flush(&mut self) {
        if let Some(states) = self.states.take() {
            self.hand_over(ChunkKind::States, states);
        }
        if !self.inputs.is_empty() {
            let inputs = std::mem::take(&mut self.inputs);
            self.hand_over(ChunkKind::Inputs, inputs);
        }
        if !self.pending.is_empty() {
            let payload = std::mem::take(&mut self.pending);
            self.frames = 0;
            self.hand_over(ChunkKind::Frames, payload);
        }
    }

    /// Whether certificates are recorded: at level full only.
    #[must_use]
    pub fn keeps_certificates(&self) -> bool {
        self.level == Level::Full
    }

    /// Records the certificate of a wave and the facts it was checked against, at level full only.
    /// Outside every digest.
    pub fn certificate(&mut self, certificate: &Certificate, facts: &Facts<'_>) {
        if self.sender.is_some() && self.keeps_certificates() {
            self.certificates.put(certificate, facts);
            if self.certificates.bytes.len() >= CHUNK_BYTES {
                self.flush_certificates();
            }
        }
    }

    fn flush_certificates(&mut self) {
        if !self.certificates.bytes.is_empty() {
            let payload = std::mem::take(&mut self.certificates.bytes);
            self.hand_over(ChunkKind::Certificates, payload);
        }
    }

    /// Records named facts about how the run was executed, outside every digest. A name is one
    /// word, a value one line.
    pub fn telemetry(&mut self, facts: &[(&str, u64)]) {
        let lines = facts
            .iter()
            .fold(String::new(), |lines, (name, value)| lines + &format!("{name} {value}\n"));
        self.hand_over(ChunkKind::Telemetry, lines.into_bytes());
    }

    /// Writes the end of the trace with the run's outcome, and waits for the disk.
    #[must_use]
    pub fn finish(mut self, summary: &RunSummary) -> Recorded {
        self.flush();
        self.flush_certificates();
        self.hand_over(ChunkKind::End, end_chunk(summary));
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

    /// Waits for the writer to finish its queue.
    fn close(&mut self) -> Option<Written> {
        self.sender = None;
        self.writer.take().and_then(|writer| writer.join().ok())
    }
}

/// A run that failed leaves a valid trace without an end.
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
        // Every boundary has a state; if one had none, the snapshot would be skipped and the run
        // would continue.
        let made = spacing.writer.take(world).unwrap_or_default();
        made.into_iter().for_each(|(kind, payload)| self.hand_over(kind, payload));
    }

    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.inner.output(session, bytes);
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.inner.log(session, bytes);
    }

    fn inputs(&mut self, frame: Frame, inputs: &[Input]) {
        self.inner.inputs(frame, inputs);
        if self.sender.is_some() {
            put_inputs(frame, inputs, &mut self.modules, &mut self.inputs);
        }
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
        if self.pending.len() >= CHUNK_BYTES || self.frames >= self.most_frames {
            self.flush();
        }
    }
}

/// The payload of the chunk that ends a trace.
pub(crate) fn end_chunk(summary: &RunSummary) -> Vec<u8> {
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
    end
}

/// The build that writes the trace: telemetry, because no digest may depend on it.
pub(crate) fn engine() -> Vec<u8> {
    format!("engine {ENGINE}\n").into_bytes()
}

/// The frames of a chunk's payload, reduced to the events of level schedule.
fn schedule_of(payload: &[u8]) -> Vec<u8> {
    let frames = read_frames(payload).expect("the recorder wrote a list of frames");
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

/// Copies the events of level schedule: which coroutine ran when.
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
