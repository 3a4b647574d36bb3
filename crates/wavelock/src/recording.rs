//! Recording on a thread of its own: confirmed frames go there and become a trace.

use crate::error::Error;
use crate::frames::Ran;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use wavelock_replay::{Level, RecordedMachine, Recorder};
use wavelock_system::{RunSummary, Sink, World};

/// Batches of frames that may wait for the writer; then the machine waits.
const WAITING: usize = 64;

enum Message {
    Frames(Vec<Arc<Ran>>),
    Finish(Box<RunSummary>),
}

/// What a recording wrote.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// Bytes of the trace.
    pub bytes: u64,
    /// Chunks of it.
    pub chunks: u64,
}

/// A trace that is being written.
pub(crate) struct Recording {
    sender: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<Option<wavelock_replay::Recorded>>>,
}

impl Recording {
    /// Starts a trace of this machine. `from` is its state if it has run already.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        machine: RecordedMachine,
        level: Level,
        from: Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel::<Message>(WAITING);
        let (started, answer) = sync_channel::<Result<(), Error>>(1);
        let thread = std::thread::Builder::new().name("wavelock-record".into());
        let thread = thread.spawn(move || {
            let mut nothing = ();
            let mut recorder = match begin(out, &machine, level, from.as_deref(), &mut nothing) {
                Ok(recorder) => recorder,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return None;
                }
            };
            let _ = started.send(Ok(()));
            for message in receiver {
                match message {
                    Message::Frames(frames) => {
                        frames.iter().for_each(|ran| ran.send(&mut recorder))
                    }
                    Message::Finish(summary) => return Some(recorder.finish(&summary)),
                }
            }
            None
        })?;
        answer.recv().unwrap_or(Err(Error::Io(io::Error::other("the recorder died"))))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Frames that are final. A recorder that has died is found at the end.
    pub(crate) fn frames(&self, frames: Vec<Arc<Ran>>) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(Message::Frames(frames));
        }
    }

    /// Writes the end of the trace and waits for the disk.
    pub(crate) fn finish(mut self, summary: RunSummary) -> Result<Recorded, Error> {
        if let Some(sender) = &self.sender {
            let _ = sender.send(Message::Finish(Box::new(summary)));
        }
        let recorded = self.thread.take().and_then(|thread| thread.join().ok()).flatten();
        let recorded = recorded.ok_or_else(|| io::Error::other("the recorder died"))?;
        match recorded.error {
            Some(error) => Err(error.into()),
            None => Ok(Recorded { bytes: recorded.bytes, chunks: recorded.chunks }),
        }
    }
}

/// A recording that was not finished leaves a valid trace without an end.
impl Drop for Recording {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn begin<'a>(
    out: impl Write + Send + 'static,
    machine: &RecordedMachine,
    level: Level,
    from: Option<&[u8]>,
    nothing: &'a mut dyn Sink,
) -> Result<Recorder<'a>, Error> {
    let mut recorder = Recorder::new(out, machine, level, nothing)?;
    if let Some(bytes) = from {
        let mut world = World::restore(machine.spec.clone(), Vec::new(), false, bytes)?;
        recorder.begin_from(&mut world)?;
    }
    Ok(recorder)
}
