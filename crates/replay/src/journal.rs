//! A journal: a trace at level inputs that has each input as soon as it was given and each frame as
//! soon as it has run, written on the caller's thread.
//!
//! ```text
//!   machine | pages, snapshot | inputs that wait | (inputs | frames | telemetry)* | end
//! ```
//!
//! [`Recorder`](crate::Recorder) writes an input when its frame has run, later and on a thread of
//! its own. A journal is for those who promise that an input is kept before its frame has run. What
//! it writes is an ordinary trace: `verify`, [`Archive`](crate::Archive) and
//! [`Timeline`](crate::Timeline) read it, complete or cut off at any byte.
//!
//! Elsewhere: making the bytes durable, which only the owner of the file can do.

use crate::live::{KnownModules, put_inputs};
use crate::machine::RecordedMachine;
use crate::record::{Level, end_chunk, engine};
use crate::snapshot::SnapshotWriter;
use std::io::{self, Write};
use wavelock_abi::Frame;
use wavelock_system::{Input, RunSummary, World};
use wavelock_trace::{ChunkKind, Digest, TraceWriter, write_frame};

/// The name of the fact that time has passed up to a frame although no frame ran.
pub(crate) const REACHED: &str = "reached";

/// A trace that is written as the run goes. See the module's page.
pub struct Journal {
    trace: TraceWriter<Box<dyn Write + Send>>,
    modules: KnownModules,
    /// Inputs of one frame that are not written yet.
    waiting: Vec<Input>,
    waiting_for: Frame,
    /// The first frame that the file does not have.
    reached: Frame,
}

impl Journal {
    /// Starts a journal: the machine, its state between two frames, and the inputs that wait for
    /// their frames.
    ///
    /// # Errors
    /// The bytes could not be written, or the world is not at a boundary.
    pub fn begin(
        out: Box<dyn Write + Send>,
        machine: &RecordedMachine,
        world: &mut World,
    ) -> io::Result<Self> {
        let mut trace = TraceWriter::new(out)?;
        trace.append(ChunkKind::Machine, &machine.first_chunk(Level::Inputs))?;
        trace.append(ChunkKind::Telemetry, &engine())?;
        for (kind, payload) in SnapshotWriter::new().take(world).map_err(io::Error::other)? {
            trace.append(kind, &payload)?;
        }
        let (modules, reached) = (machine.known_modules(), world.next_frame_number());
        let (waiting, waiting_for) = (Vec::new(), reached);
        let mut journal = Self { trace, modules, waiting, waiting_for, reached };
        for (frame, input) in world.inputs_to_come() {
            journal.input(frame, input.clone())?;
        }
        journal.flush(reached)?;
        Ok(journal)
    }

    /// An input that was given for a frame. It is written with the next [`Journal::flush`] or
    /// frame.
    ///
    /// # Errors
    /// Inputs of another frame that waited could not be written.
    pub fn input(&mut self, frame: Frame, input: Input) -> io::Result<()> {
        if frame != self.waiting_for {
            self.write_inputs()?;
            self.waiting_for = frame;
        }
        self.waiting.push(input);
        Ok(())
    }

    /// Writes the inputs that were given, and that time has passed up to `next`.
    ///
    /// # Errors
    /// The bytes could not be written.
    pub fn flush(&mut self, next: Frame) -> io::Result<()> {
        self.write_inputs()?;
        if next > self.reached {
            let fact = format!("{REACHED} {}\n", next.0);
            self.trace.append(ChunkKind::Telemetry, fact.as_bytes())?;
            self.reached = next;
        }
        Ok(())
    }

    /// Writes a frame that has run.
    ///
    /// # Errors
    /// The bytes could not be written.
    pub fn frame(&mut self, frame: Frame, digest: Digest) -> io::Result<()> {
        self.write_inputs()?;
        let mut payload = Vec::new();
        write_frame(frame.0, digest, &[], [].into_iter(), &mut payload);
        self.trace.append(ChunkKind::Frames, &payload)?;
        self.reached = Frame(frame.0.saturating_add(1));
        Ok(())
    }

    /// Writes the end of the trace.
    ///
    /// # Errors
    /// The bytes could not be written.
    pub fn finish(mut self, summary: &RunSummary) -> io::Result<()> {
        self.write_inputs()?;
        self.trace.append(ChunkKind::End, &end_chunk(summary))
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.trace.written()
    }

    fn write_inputs(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        put_inputs(self.waiting_for, &self.waiting, &mut self.modules, &mut payload);
        self.waiting.clear();
        self.trace.append(ChunkKind::Inputs, &payload)
    }
}
