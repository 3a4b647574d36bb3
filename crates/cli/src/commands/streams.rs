//! Writes the guests' output and log during a run, and the progress line between them.
//!
//! Output leaves the machine at FRAME_SYNC and is written after the round that ended the frame. A
//! write error ends the run, because output would be lost. A closed pipe is not an error: the
//! caller decides whether the run still has something else to produce.

use super::costs::Collector;
use super::interrupt::Interrupt;
use super::output::{GuestOutput, Stream};
use crate::arguments::OutputMode;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::live::{Clients, Dropped, Outlet, WhenFull};
use crate::manifest::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use wavelock_abi::{Frame, SessionId};
use wavelock_replay::Recorder;
use wavelock_system::{Control, ControlRefusal, FrameCosts, Input, MachineSpec, Sink, World};
use wavelock_trace::Digest;
use wavelock_waves::Waves;

/// Interval of the progress line, and the delay before it first appears.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The sink of `wavelock run`.
pub(super) struct Streams<'a> {
    /// Write the guests' output to standard error, because standard output is for JSON.
    swapped: bool,
    /// What the guests write.
    pub(super) guests: GuestOutput,
    /// The reader of the guests' output closed the pipe.
    unread: bool,
    progress: Option<Progress>,
    /// The cost collector, if a report is written.
    pub(super) collector: Option<Collector>,
    /// Ctrl-C, if it stops the run.
    pub(super) interrupt: Interrupt,
    /// The recorder, if a trace is written.
    pub(super) recorder: Option<Recorder<'a>>,
    /// Clients of a live run, which get what standard output gets.
    pub(super) clients: Option<Clients>,
    /// Queues of a live run for standard output and standard error.
    outlets: Option<([Outlet; 2], WhenFull)>,
    /// Ctrl-C was answered.
    told: bool,
}

struct Progress {
    bar: ProgressBar,
    next: Instant,
}

impl Streams<'_> {
    pub(super) fn new(
        swapped: bool,
        spec: &MachineSpec,
        mode: &OutputMode,
        collector: Option<Collector>,
        live: bool,
    ) -> Result<Self, Failure> {
        let max_frames = spec.max_frames;
        // Clients of a live run get the same bytes as standard output.
        let styled = |stream| stream != anstream::ColorChoice::Never && !live;
        let errors = styled(anstream::AutoStream::choice(&io::stderr()));
        let output =
            if swapped { errors } else { styled(anstream::AutoStream::choice(&io::stdout())) };
        let names = spec.sessions.iter().map(|session| session.name.as_str());
        let guests =
            GuestOutput::new(mode, names, [output, errors], swapped).map_err(
                |error| match mode {
                    OutputMode::Files(path) if path.exists() && !path.is_dir() => Failure::new(
                        Exit::Host,
                        format!(
                            "`{}` is not a directory: --output files=DIR needs one",
                            path.display()
                        ),
                    ),
                    OutputMode::Files(path) => Failure::file("write", path, &error),
                    _ => lost(&error),
                },
            )?;
        let progress = (io::stderr().is_terminal() && !live).then(|| {
            let bar = ProgressBar::new(max_frames.unwrap_or(0));
            let template = if max_frames.is_some() {
                "{bar:30} frame {pos}/{len} {msg}"
            } else {
                "{spinner} frame {pos} {msg}"
            };
            bar.set_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            Progress { bar, next: Instant::now() + PROGRESS_EVERY }
        });
        let interrupt = Interrupt::default();
        Ok(Self {
            swapped,
            guests,
            unread: false,
            progress,
            collector,
            interrupt,
            recorder: None,
            clients: None,
            outlets: None,
            told: false,
        })
    }

    /// From now on output goes to these clients and through these queues, of which a full one drops
    /// it or waits.
    pub(super) fn go_live(&mut self, clients: Clients, outlets: [Outlet; 2], when_full: WhenFull) {
        (self.clients, self.outlets) = (Some(clients), Some((outlets, when_full)));
    }

    /// Waits until the queues of a live run are written, or the time is up. What was dropped.
    pub(super) fn end_outlets(&mut self, until: Option<Instant>) -> Dropped {
        let Some((mut outlets, _)) = self.outlets.take() else { return Dropped::default() };
        outlets.iter_mut().fold(Dropped::default(), |sum, outlet| sum.and(outlet.finish(until)))
    }

    /// Whether the run has nothing left to produce: its output has no reader, and no trace, report
    /// or JSON object is written.
    pub(super) fn is_unwanted(&self) -> bool {
        self.unread
            && !self.swapped
            && self.collector.is_none()
            && self.recorder.is_none()
            && self.clients.as_ref().is_none_or(|clients| !clients.is_listening())
    }

    /// Answers Ctrl-C, once.
    pub(super) fn say_interrupted(&mut self) {
        if self.interrupt.is_set() && !self.told {
            self.told = true;
            self.note("ending at the next frame boundary; Ctrl-C again ends at once");
        }
    }

    /// Writes the output of the round, and updates the progress line if it is due.
    pub(super) fn after_round(&mut self, frame: u64, steps: u64) -> Result<(), Failure> {
        self.write().map_err(|error| lost(&error))?;
        if let Some(progress) = &mut self.progress {
            let now = Instant::now();
            if now >= progress.next {
                progress.next = now + PROGRESS_EVERY;
                progress.bar.set_position(frame);
                progress.bar.set_message(format!("{} steps", grouped(steps)));
            }
        }
        Ok(())
    }

    /// Records the certificate of the last round, if it had one and a trace is written.
    pub(super) fn certificate(&mut self, waves: &Waves) {
        if let (Some(recorder), Some(certificate)) = (&mut self.recorder, waves.certificate()) {
            recorder.certificate(certificate, &waves.facts());
        }
    }

    /// Prints a note beside the progress line.
    pub(super) fn note(&self, text: &str) {
        if let Some(([_, errors], when_full)) = &self.outlets {
            return errors.push(&format!("note: {text}\n").into_bytes().into(), *when_full);
        }
        let write = || {
            let _ = writeln!(io::stderr(), "note: {text}");
        };
        match &self.progress {
            Some(progress) => progress.bar.suspend(write),
            None => write(),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.guests.write_files()?;
        if self.outlets.is_some() {
            return self.queue();
        }
        let ((output, log), swapped) = (self.guests.ready(), self.swapped);
        if self.unread || output.is_empty() && log.is_empty() {
            self.guests.clear();
            return Ok(());
        }
        let write = || -> io::Result<()> {
            if !log.is_empty() {
                io::stderr().write_all(log)?;
            }
            if swapped {
                return io::stderr().write_all(output);
            }
            let mut out = io::stdout().lock();
            out.write_all(output)?;
            out.flush()
        };
        let result = match &self.progress {
            Some(progress) => progress.bar.suspend(write),
            None => write(),
        };
        self.guests.clear();
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            result => result,
        }
    }

    /// Queues what a frame of a live run wrote, for every reader.
    fn queue(&mut self) -> io::Result<()> {
        let (Some((outlets, when_full)), Some(clients)) = (&self.outlets, &self.clients) else {
            return Ok(());
        };
        let [out, errors] = outlets;
        let (output, log) = self.guests.ready();
        if !log.is_empty() {
            errors.push(&log.into(), *when_full);
        }
        if !output.is_empty() {
            let reader = if self.swapped { errors } else { out };
            reader.push(&output.into(), *when_full);
            clients.send(output);
        }
        self.guests.clear();
        match out.gone() {
            Some(io::ErrorKind::BrokenPipe) => self.unread = true,
            Some(kind) => return Err(kind.into()),
            None => {}
        }
        Ok(())
    }

    /// Removes the progress line and writes lines that have no end.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(progress) = self.progress.take() {
            progress.bar.finish_and_clear();
        }
        self.guests.end();
        self.write().map_err(|error| lost(&error))
    }
}

/// A write error of the guests' output.
fn lost(error: &io::Error) -> Failure {
    Failure::new(Exit::Host, format!("the guests' output cannot be written: {error}"))
}

impl Sink for Streams<'_> {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.guests.push(session, Stream::Output, bytes);
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.guests.push(session, Stream::Log, bytes);
    }

    fn inputs(&mut self, frame: Frame, inputs: &[Input]) {
        for input in inputs {
            if let Input::Control(Control::Start(new)) = input {
                self.guests.add(&new.name);
                self.collector.iter_mut().for_each(|collector| collector.add(&new.name));
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.inputs(frame, inputs);
        }
    }

    fn refused(&mut self, frame: Frame, control: &Control, refusal: &ControlRefusal) {
        let name = control.session().map_or("a new session", |session| self.guests.name(session));
        self.note(&format!("frame {}: {name} is not changed: {refusal}", frame.0));
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        self.guests.frame(frame.0);
        if self.collector.is_none() && self.recorder.is_none() {
            return;
        }
        let lanes: Vec<&[u8]> = lanes.collect();
        if let Some(collector) = &mut self.collector {
            collector.frame(frame.0, &mut lanes.iter().copied());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.frame(frame, digest, boundary, &mut lanes.into_iter());
        }
    }

    fn boundary(&mut self, world: &mut World) {
        if let Some(recorder) = &mut self.recorder {
            recorder.boundary(world);
        }
        if self.interrupt.is_set() {
            world.suspend();
        }
    }

    fn costs(&mut self, costs: &FrameCosts) {
        if let Some(collector) = &mut self.collector {
            collector.costs(costs);
        }
    }
}
