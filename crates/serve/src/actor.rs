//! The thread of a hosted machine: orders in, frames forward, files durable, answers out.
//!
//! ```text
//!   recover ──▶ wait for an order or the next frame ──▶ take orders ──▶ flush, sync ──▶ answer
//!                      ▲                                                                 │
//!                      └──────── new segment, if it is time ◀── run frames that are due ◀┘
//! ```
//!
//! Contract: an answer to a change leaves after the journal has it (and the disk, under
//! [`Sync::Disk`]); a frame is published after the journal has it. The thread never waits for a
//! client: it reads orders from a bounded queue, answers into slots, and appends frames to a ring.
//! A problem of its files ends the machine, not the process; it goes on when the server starts
//! again.

use crate::feed::Feed;
use crate::orders::{Answer, Ask, Change, Order, Slot};
use crate::problem::Problem;
use crate::settings::{Limits, Sync};
use crate::store::{MachineFolder, private, replace};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wavelock::{
    Digest, Engine, Error, FrameReport, LatencyClass, Machine, OwnLimits, Pacer, RunOutcome,
    Session, SessionBuilder, SessionOutcome, Weight,
};
use wavelock_client::api;

/// Orders that may wait for a machine.
pub(crate) const WAITING: usize = 256;

/// Orders that are answered together.
const MOST_TOGETHER: usize = 256;

/// How long a machine runs before it looks at orders again.
const SLICE: Duration = Duration::from_millis(20);

/// Frames that are caught up with at once.
const MOST_LATE: u32 = 4;

/// How often an idle machine notes how far time has passed, and looks after its limits.
const TICK: Duration = Duration::from_secs(1);

/// Frames of one step.
pub(crate) const MOST_STEP: u64 = 100_000;

/// Frames of a recovery that are published again.
const MOST_AGAIN: usize = 1_000;

/// Sessions in one answer.
const MOST_SESSIONS: usize = 1_000;

/// How a machine is driven: the host's affair, in no digest.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Pace {
    pub(crate) hz: f64,
    pub(crate) is_running: bool,
}

impl Pace {
    pub(crate) fn read(folder: &MachineFolder) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(folder.pace())?)?)
    }

    pub(crate) fn write(self, folder: &MachineFolder) -> io::Result<()> {
        replace(&folder.pace(), &serde_json::to_vec(&self)?)
    }
}

/// Counters of a machine, for metrics.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) frames: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) watchers: AtomicU64,
    pub(crate) frame_nanoseconds: AtomicU64,
    pub(crate) cycles: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
}

/// A machine as the rest of the server sees it.
pub(crate) struct Hosted {
    pub(crate) name: String,
    pub(crate) folder: MachineFolder,
    pub(crate) feed: Feed,
    pub(crate) counters: Counters,
    status: Mutex<api::Machine>,
    orders: SyncSender<Order>,
}

impl Hosted {
    pub(crate) fn new(
        name: &str,
        folder: MachineFolder,
        orders: SyncSender<Order>,
        limits: &Limits,
    ) -> Self {
        let status = api::Machine { name: name.into(), ..api::Machine::default() };
        Self {
            name: name.into(),
            folder,
            feed: Feed::new(limits.feed),
            counters: Counters::default(),
            status: Mutex::new(status),
            orders,
        }
    }

    fn status_mut(&self) -> MutexGuard<'_, api::Machine> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> api::Machine {
        let mut status = self.status_mut().clone();
        status.late = self.counters.late.load(Ordering::Relaxed);
        status.watchers = self.counters.watchers.load(Ordering::Relaxed);
        status
    }

    /// Puts an order into the machine's queue. Never waits.
    pub(crate) fn order(
        &self,
        ask: Ask,
    ) -> Result<oneshot::Receiver<Result<Answer, Problem>>, Problem> {
        let (answer, receiver) = oneshot::channel();
        self.orders.try_send(Order { ask, answer }).map_err(|_| {
            Problem::busy(format!(
                "machine `{}` has {WAITING} requests waiting or has stopped",
                self.name
            ))
        })?;
        Ok(receiver)
    }

    /// Asks and waits.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Answer, Problem> {
        let stopped = || Problem::busy(format!("machine `{}` has stopped", self.name));
        self.order(ask)?.await.unwrap_or_else(|_| Err(stopped()))
    }

    fn fail(&self, problem: &str) {
        let mut status = self.status_mut();
        status.state = api::State::Failed;
        status.problem = Some(problem.into());
        drop(status);
        self.feed.wake();
    }
}

/// A frame before the names of its sessions are known.
struct Draft {
    frame: u64,
    digest: Digest,
    outputs: Vec<(Session, Vec<u8>)>,
    logs: Vec<(Session, Vec<u8>)>,
    ended: Vec<(Session, SessionOutcome)>,
    refused: Vec<String>,
    outcome: Option<RunOutcome>,
}

impl Draft {
    fn of(report: &FrameReport<'_>) -> Self {
        Self {
            frame: report.frame().0,
            digest: report.digest(),
            outputs: report.outputs().to_vec(),
            logs: report.logs().to_vec(),
            ended: report.ended().to_vec(),
            refused: report.refused().iter().map(ToString::to_string).collect(),
            outcome: report.outcome(),
        }
    }
}

/// What all machines of a server share.
pub(crate) struct Common {
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    pub(crate) sync: Sync,
    /// The process uses more memory than it may: no machine runs.
    pub(crate) has_no_memory: AtomicBool,
}

struct Actor {
    hosted: Arc<Hosted>,
    common: Arc<Common>,
    machine: Machine,
    file: File,
    segment: u64,
    /// Frames since the segment began, the time they took, and its bytes then.
    segment_frames: u64,
    segment_time: Duration,
    segment_base: u64,
    pace: Pace,
    pacer: Pacer,
    /// Frames that are due and have not run.
    owed: u64,
    /// Frames that the pacer gave up, as counted.
    forgiven: u64,
    is_in_frame: bool,
    step: Option<(u64, Slot)>,
    digest: Digest,
    /// By number.
    names: Vec<String>,
    ticked: Instant,
    /// Why it does not run although it should.
    held_back: Option<String>,
}

/// Runs a machine until it is told to quit. Any panic ends this machine alone.
pub(crate) fn run(hosted: Arc<Hosted>, common: Arc<Common>, orders: Receiver<Order>) {
    let whole = catch_unwind(AssertUnwindSafe(|| {
        Actor::recover(hosted.clone(), common).and_then(|mut actor| actor.run(&orders))
    }));
    let problem = match whole {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its thread panicked; restart the server to make it again".to_owned(),
    };
    hosted.fail(&problem);
    for Order { ask, answer } in orders {
        let refusal = Problem::internal(format!("machine `{}` failed: {problem}", hosted.name));
        let quits = matches!(ask, Ask::Quit);
        let _ = answer.send(if quits { Ok(Answer::Done) } else { Err(refusal) });
        if quits {
            return;
        }
    }
}

impl Actor {
    /// The machine as its newest segment has it, with a new segment.
    fn recover(hosted: Arc<Hosted>, common: Arc<Common>) -> Result<Self, Error> {
        let folder = &hosted.folder;
        let pace = Pace::read(folder)?;
        let (newest, _) = *folder
            .segments()?
            .last()
            .ok_or_else(|| io::Error::other("it has no trace segment"))?;
        let path = folder.segment(newest);
        let mut again = std::collections::VecDeque::new();
        let file = BufReader::new(File::open(&path)?);
        let mut last = None;
        let machine = Machine::recover(&common.engine, file, |report| {
            let draft = Draft::of(report);
            if last != Some(draft.digest) {
                last = Some(draft.digest);
                again.push_back(draft);
            }
            if again.len() > MOST_AGAIN {
                again.pop_front();
            }
        })?;
        let pacer = Pacer::hz(pace.hz);
        let file = File::open(&path)?;
        let digest = machine.digest();
        let mut actor = Self {
            hosted,
            common,
            machine,
            file,
            segment: newest,
            segment_frames: 0,
            segment_time: Duration::ZERO,
            segment_base: 0,
            pace,
            pacer,
            owed: 0,
            forgiven: 0,
            is_in_frame: false,
            step: None,
            digest,
            names: Vec::new(),
            ticked: Instant::now(),
            held_back: None,
        };
        for draft in again {
            actor.publish(draft);
        }
        if actor.machine.outcome().is_none() {
            actor.new_segment()?;
        }
        actor.tell();
        Ok(actor)
    }

    /// Runs until it is told to quit.
    fn run(&mut self, orders: &Receiver<Order>) -> Result<(), Error> {
        loop {
            let first = match orders.recv_timeout(self.wait(Instant::now())) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let mut answers = Vec::new();
            for Order { ask, answer } in
                first.into_iter().chain(orders.try_iter()).take(MOST_TOGETHER)
            {
                if matches!(ask, Ask::Quit) {
                    self.acknowledge(answers)?;
                    self.finish_frame()?;
                    if self.machine.outcome().is_none() {
                        self.machine.flush_journal()?;
                    }
                    self.sync(true)?;
                    let _ = answer.send(Ok(Answer::Done));
                    return Ok(());
                }
                self.take(ask, answer, &mut answers)?;
            }
            self.acknowledge(answers)?;
            self.frames()?;
            self.tick()?;
        }
    }

    /// How long nothing has to be done without an order.
    fn wait(&self, now: Instant) -> Duration {
        let is_busy = self.is_in_frame || self.owed > 0 || self.step.is_some();
        if is_busy && !self.is_held_back() {
            return Duration::ZERO;
        }
        let until_frame = match self.runs() {
            true => self.pacer.next().map_or(Duration::ZERO, |next| next - now),
            false => TICK,
        };
        until_frame.min(TICK)
    }

    fn runs(&self) -> bool {
        self.pace.is_running && self.machine.outcome().is_none()
    }

    fn is_held_back(&self) -> bool {
        self.held_back.is_some() || self.common.has_no_memory.load(Ordering::Relaxed)
    }

    /// Takes an order. What can be answered at once is; changes are answered when they are durable.
    fn take(
        &mut self,
        ask: Ask,
        answer: Slot,
        answers: &mut Vec<(Slot, Result<Answer, Problem>)>,
    ) -> Result<(), Error> {
        let result = match ask {
            Ask::Change(change) => match self.change(change) {
                Err(error @ (Error::Io(_) | Error::JournalFailed | Error::Host(_))) => {
                    return Err(error);
                }
                result => {
                    let counters = &self.hosted.counters;
                    let counter =
                        if result.is_ok() { &counters.changes } else { &counters.refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                    result.map_err(Problem::from)
                }
            },
            Ask::Pace { is_running, hz } => self.set_pace(is_running, hz),
            Ask::Step { frames } => match self.can_step() {
                Ok(()) => {
                    self.step = Some((frames, answer));
                    return Ok(());
                }
                Err(problem) => Err(problem),
            },
            Ask::Snapshot => {
                self.finish_frame()?;
                match self.machine.outcome() {
                    Some(_) => Err(Problem::conflict("the run has ended: its state is kept")),
                    None => {
                        self.new_segment()?;
                        Ok(Answer::Position(self.position()))
                    }
                }
            }
            Ask::Export { to } => {
                self.finish_frame()?;
                self.export(&to).map(|()| Answer::Done).map_err(Problem::from)
            }
            Ask::Sessions { from } => Ok(Answer::Sessions(self.sessions(from))),
            Ask::Report => Ok(Answer::Report(Box::new(self.report()))),
            Ask::Quit => Ok(Answer::Done),
        };
        answers.push((answer, result));
        Ok(())
    }

    /// Makes what was taken durable, then answers.
    fn acknowledge(&mut self, answers: Vec<(Slot, Result<Answer, Problem>)>) -> Result<(), Error> {
        let is_change = |result: &Result<Answer, Problem>| {
            matches!(result, Ok(Answer::Taken(_) | Answer::Started(_) | Answer::Position(_)))
        };
        if answers.iter().any(|(_, result)| is_change(result)) {
            self.machine.flush_journal()?;
            self.sync(false)?;
        }
        for (answer, result) in answers {
            let _ = answer.send(result);
        }
        Ok(())
    }

    fn sync(&self, always: bool) -> Result<(), Error> {
        if always || self.common.sync == Sync::Disk {
            self.hosted.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn session(&self, name: &str) -> Result<Session, Error> {
        // A session that was started and waits for its frame has a number, but no name yet.
        let planned = || self.names.iter().position(|known| known == name);
        let session = self.machine.session(name);
        let session = session.or_else(|| Some(Session::of_number(planned()? as u32)));
        session.ok_or_else(|| Error::Unknown {
            what: "session",
            name: name.chars().take(100).collect(),
            nearest: None,
        })
    }

    fn change(&mut self, change: Change) -> Result<Answer, Error> {
        let machine = &mut self.machine;
        let frame = match change {
            Change::Input { session: None, bytes } => machine.input_all(&bytes)?,
            Change::End => machine.stop()?,
            Change::Start { new, module } => return self.start(&new, &module),
            Change::Input { session: Some(session), bytes } => {
                let session = self.session(&session)?;
                self.machine.input(session, &bytes)?
            }
            Change::Close { session } => {
                let session = self.session(&session)?;
                self.machine.close_input(session)?
            }
            Change::Weight { session, weight } => {
                let session = self.session(&session)?;
                self.machine.set_weight(session, weight)?
            }
            Change::Cap { session, cap } => {
                let session = self.session(&session)?;
                self.machine.set_cap(session, cap)?
            }
            Change::Context { session, context, budget } => {
                let session = self.session(&session)?;
                self.machine.set_context_budget(session, &context, budget)?
            }
            Change::Hold { session } => {
                let session = self.session(&session)?;
                self.machine.hold(session)?
            }
            Change::Release { session } => {
                let session = self.session(&session)?;
                self.machine.release(session)?
            }
            Change::Replace { session, module, carry } => {
                let session = self.session(&session)?;
                self.machine.replace_session(session, &module, &carry)?
            }
            Change::EndSession { session } => {
                let session = self.session(&session)?;
                self.machine.end_session(session)?
            }
        };
        Ok(Answer::Taken(api::Taken { frame: frame.0 }))
    }

    fn start(
        &mut self,
        new: &api::StartSession,
        module: &wavelock::Module,
    ) -> Result<Answer, Error> {
        let mut session = SessionBuilder::new(&new.name, module);
        for arg in &new.args {
            session = session.arg(arg);
        }
        for (name, value) in &new.env {
            session = session.env(name, value);
        }
        for (name, channel) in &new.ports {
            session = session.port(name, channel);
        }
        for (name, capacity) in &new.channels {
            session = session.channel(name, *capacity);
        }
        if let Some(lane) = new.lane {
            session = session.lane(lane);
        }
        if let Some(priority) = new.priority {
            session = session.priority(priority);
        }
        if let Some(weight) = new.weight.and_then(Weight::new) {
            session = session.weight(weight);
        }
        if let Some(class) = new.class {
            session = session.class(match class {
                api::Class::Urgent => LatencyClass::Urgent,
                api::Class::Interactive => LatencyClass::Interactive,
                api::Class::Normal => LatencyClass::Normal,
                api::Class::Batch => LatencyClass::Batch,
                api::Class::Idle => LatencyClass::Idle,
            });
        }
        if let Some(cap) = &new.cap {
            session = session.cap_settings(cap_of(cap));
        }
        let limits = &new.limits;
        session = session.limits(OwnLimits {
            coroutines: limits.coroutines,
            stack_bytes: limits.stack_bytes,
            session_stack_bytes: limits.session_stack_bytes,
            memory_pages: limits.memory_pages,
            channels: limits.channels,
            output_bytes: limits.output_bytes,
        });
        let started = self.machine.start_session(session)?;
        let number = started.number() as usize;
        self.names.resize(number, String::new());
        self.names.push(new.name.clone());
        let frame = self.machine.frame().0 + u64::from(self.is_in_frame);
        Ok(Answer::Started(api::Started { frame, session: started.number() }))
    }

    fn set_pace(&mut self, is_running: bool, hz: Option<f64>) -> Result<Answer, Problem> {
        if self.machine.outcome().is_some() {
            return Err(Problem::conflict("the run has ended"));
        }
        let most = self.common.limits.hz;
        if let Some(hz) = hz.filter(|hz| !(*hz > 0.0 && *hz <= most)) {
            return Err(Problem::invalid(format!("hz = {hz}: more than 0 and at most {most}")));
        }
        let pace = Pace { hz: hz.unwrap_or(self.pace.hz), is_running };
        if pace != self.pace {
            pace.write(&self.hosted.folder).map_err(|error| Problem::disk(&error))?;
            (self.pace, self.pacer) = (pace, Pacer::hz(pace.hz));
            (self.owed, self.forgiven) = (0, 0);
        }
        self.held_back = None;
        self.tell();
        Ok(Answer::Machine(Box::new(self.hosted.status())))
    }

    fn can_step(&self) -> Result<(), Problem> {
        if self.machine.outcome().is_some() {
            return Err(Problem::conflict("the run has ended"));
        }
        if self.pace.is_running || self.step.is_some() {
            return Err(Problem::conflict("the machine runs: pause it before you step it"));
        }
        if self.is_held_back() {
            return Err(Problem::busy("the machine may not run: it is out of memory"));
        }
        Ok(())
    }

    /// Runs frames that are due, for a slice of time.
    fn frames(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.runs() && self.step.is_none() {
            self.owed += u64::from(self.pacer.due(now, MOST_LATE));
            let most = u64::from(MOST_LATE);
            let late = self.owed.saturating_sub(most) + (self.pacer.forgiven() - self.forgiven);
            (self.owed, self.forgiven) = (self.owed.min(most), self.pacer.forgiven());
            self.hosted.counters.late.fetch_add(late, Ordering::Relaxed);
        }
        if self.is_held_back() {
            return Ok(());
        }
        let deadline = now + SLICE;
        while (self.is_in_frame || self.owed > 0 || self.step.is_some())
            && self.machine.outcome().is_none()
        {
            if let Some((0, _)) = &self.step {
                break;
            }
            if !self.part_of_frame(deadline)? {
                break;
            }
            match &mut self.step {
                Some((left, _)) => *left -= 1,
                None => self.owed = self.owed.saturating_sub(1),
            }
            if self.is_segment_full() {
                self.new_segment()?;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let is_over = self.machine.outcome().is_some();
        if let Some((_, answer)) = self.step.take_if(|(left, _)| *left == 0 || is_over) {
            let position = Ok(Answer::Position(self.position()));
            self.acknowledge(vec![(answer, position)])?;
        }
        Ok(())
    }

    /// Whether a frame ended.
    fn part_of_frame(&mut self, deadline: Instant) -> Result<bool, Error> {
        let Some(report) = self.machine.advance_until(deadline)? else {
            self.is_in_frame = true;
            return Ok(false);
        };
        self.is_in_frame = false;
        let wall = report.wall();
        let draft = Draft::of(&report);
        self.hosted.counters.frame_nanoseconds.fetch_add(wall.as_nanos() as u64, Ordering::Relaxed);
        self.hosted.counters.frames.fetch_add(1, Ordering::Relaxed);
        self.segment_frames += 1;
        self.segment_time += wall;
        let says = draft.digest != self.digest || !draft.refused.is_empty();
        if says {
            self.publish(draft);
        }
        let mut status = self.hosted.status_mut();
        status.frame = self.machine.frame().0;
        if says {
            status.digest = self.digest.to_string();
        }
        drop(status);
        if self.machine.outcome().is_some() {
            self.machine.finish_journal()?;
            self.sync(true)?;
            self.tell();
        }
        Ok(true)
    }

    fn finish_frame(&mut self) -> Result<(), Error> {
        while self.is_in_frame {
            self.part_of_frame(Instant::now() + SLICE)?;
        }
        Ok(())
    }

    fn publish(&mut self, draft: Draft) {
        let machine = &self.machine;
        let known = machine.sessions().count();
        if self.names.len() < known {
            self.names.resize(known, String::new());
        }
        for (number, name) in (0u32..).zip(&mut self.names) {
            if name.is_empty() {
                *name = machine.name(Session::of_number(number)).unwrap_or_default().into();
            }
        }
        let name = |session: Session| {
            self.names.get(session.number() as usize).cloned().unwrap_or_default()
        };
        let outputs = |all: Vec<(Session, Vec<u8>)>| -> Vec<api::Output> {
            let one = |(session, bytes): (Session, Vec<u8>)| {
                let api::Bytes { text, hex } = api::Bytes::of(&bytes);
                api::Output { session: name(session), text, hex }
            };
            all.into_iter().map(one).collect()
        };
        let frame = api::Frame {
            frame: draft.frame,
            digest: draft.digest.to_string(),
            outputs: outputs(draft.outputs),
            logs: outputs(draft.logs),
            ended: draft
                .ended
                .iter()
                .map(|(session, outcome)| api::SessionEnd {
                    session: name(*session),
                    outcome: outcome.name().into(),
                })
                .collect(),
            refused: draft.refused,
            outcome: draft.outcome.map(|outcome| outcome.name().into()),
        };
        self.digest = draft.digest;
        let json = serde_json::to_string(&frame).unwrap_or_default();
        self.hosted.feed.push(draft.frame, json);
    }

    fn is_segment_full(&self) -> bool {
        let limits = &self.common.limits;
        let bytes = self.machine.journal_bytes().saturating_sub(self.segment_base);
        self.machine.outcome().is_none()
            && !self.is_in_frame
            && (self.segment_frames >= limits.segment_frames
                || self.segment_time >= limits.segment_time
                || bytes >= limits.segment_bytes.max(self.segment_base))
    }

    /// Begins a new segment with the machine's state. The old one is the newest until the new one
    /// is durable.
    fn new_segment(&mut self) -> Result<(), Error> {
        let folder = &self.hosted.folder;
        let file = private(&folder.new_segment())?;
        self.machine.journal(file.try_clone()?)?;
        file.sync_all()?;
        folder.add_segment(self.segment + 1, self.common.limits.segments)?;
        (self.file, self.segment) = (file, self.segment + 1);
        (self.segment_frames, self.segment_time) = (0, Duration::ZERO);
        self.segment_base = self.machine.journal_bytes();
        self.hosted.status_mut().segment = self.segment;
        Ok(())
    }

    fn export(&mut self, to: &Path) -> Result<(), Error> {
        let mut out = BufWriter::new(private(to)?);
        self.machine.export(&mut out)?;
        out.flush()?;
        Ok(out.get_ref().sync_all()?)
    }

    /// Once a second: notes how far time has passed, looks after memory, updates counters.
    fn tick(&mut self) -> Result<(), Error> {
        if self.ticked.elapsed() < TICK {
            return Ok(());
        }
        self.ticked = Instant::now();
        if !self.is_in_frame && self.machine.outcome().is_none() {
            self.machine.flush_journal()?;
        }
        let (mut cycles, mut memory) = (0, 0);
        for session in self.machine.sessions() {
            if let Some(usage) = self.machine.usage(session) {
                cycles += usage.cycles;
                memory += usage.memory_bytes;
            }
        }
        let counters = &self.hosted.counters;
        counters.cycles.store(cycles, Ordering::Relaxed);
        counters.memory_bytes.store(memory, Ordering::Relaxed);
        let most = self.common.limits.machine_memory;
        if memory > most && self.held_back.is_none() {
            self.held_back =
                Some(format!("its sessions have {memory} bytes of memory: {most} are allowed"));
        }
        self.tell();
        Ok(())
    }

    fn position(&self) -> api::Position {
        let (frame, digest) = (self.machine.frame().0, self.machine.digest().to_string());
        api::Position { frame, digest, segment: self.segment }
    }

    /// Updates what others see.
    fn tell(&self) {
        let outcome = self.machine.outcome();
        let state = match outcome {
            Some(_) => api::State::Ended,
            None if self.pace.is_running => api::State::Running,
            None => api::State::Paused,
        };
        let problem = match self.common.has_no_memory.load(Ordering::Relaxed) {
            true => Some("the process is out of memory: no machine runs".to_owned()),
            false => self.held_back.clone(),
        };
        let mut status = self.hosted.status_mut();
        let has_changed = (status.state, &status.problem) != (state, &problem);
        (status.state, status.problem) = (state, problem);
        status.frame = self.machine.frame().0;
        status.digest = self.machine.digest().to_string();
        status.hz = self.pace.hz;
        status.segment = self.segment;
        status.sessions = self.machine.sessions().count() as u64;
        status.outcome = outcome.map(|outcome| outcome.name().into());
        drop(status);
        if has_changed {
            self.hosted.feed.wake();
        }
    }

    fn every_session(&self) -> (Vec<api::Session>, u64, u64) {
        let mut all = Vec::new();
        for session in self.machine.sessions() {
            let Some(usage) = self.machine.usage(session) else { continue };
            all.push(api::Session {
                name: self.machine.name(session).unwrap_or_default().into(),
                number: session.number(),
                cycles: usage.cycles,
                share: 0.0,
                host_calls: usage.host_calls,
                messages: usage.messages,
                coroutines: usage.coroutines,
                memory_bytes: usage.memory_bytes,
                outcome: usage.outcome.map(|outcome| outcome.name().into()),
            });
        }
        let cycles: u64 = all.iter().map(|session| session.cycles).sum();
        let memory = all.iter().map(|session| session.memory_bytes).sum();
        for session in &mut all {
            session.share = session.cycles as f64 / cycles.max(1) as f64;
        }
        (all, cycles, memory)
    }

    fn sessions(&self, from: u32) -> api::Sessions {
        let (all, ..) = self.every_session();
        let count = all.len() as u64;
        let sessions = all.into_iter().skip(from as usize).take(MOST_SESSIONS).collect();
        api::Sessions { frame: self.machine.frame().0, sessions, count }
    }

    fn report(&self) -> api::Report {
        let (mut sessions, cycles, memory_bytes) = self.every_session();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.cycles));
        sessions.truncate(MOST_SESSIONS);
        self.tell();
        api::Report { machine: self.hosted.status(), cycles, memory_bytes, sessions }
    }
}

/// A cap as the machine takes it.
pub(crate) fn cap_of(cap: &api::Cap) -> wavelock::CapSettings {
    wavelock::CapSettings {
        budget: wavelock::Cycles(cap.cycles),
        period_frames: cap.frames,
        overrun: match cap.overrun {
            api::Overrun::Throttle => wavelock::CapOverrun::Throttle,
            api::Overrun::Demote => wavelock::CapOverrun::Demote,
            api::Overrun::End => wavelock::CapOverrun::End,
        },
    }
}
