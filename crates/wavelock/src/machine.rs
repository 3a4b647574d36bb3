//! A machine in the embedder's hands: inputs in, frames forward, states back.

use crate::ask::{Ask, AskId};
use crate::builder::MachineBuilder;
use crate::engine::{Engine, Module};
use crate::error::Error;
use crate::frames::{Collected, Ended, Frames};
use crate::host::{Behind, Host, Values, panicked};
use crate::journal::Kept;
use crate::recording::{Recorded, Recording};
use crate::remote::Remote;
use crate::report::{FrameReport, Observer, Usage};
use std::any::Any;
use std::fmt;
use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wavelock_abi::{Frame, SessionId};
use wavelock_replay::{Archive, Level, RecordedMachine, write_snapshot};
use wavelock_system::{HostImports, HostKind, Input, Recipient, RunOutcome, Stage, World};
use wavelock_trace::Digest;
use wavelock_waves::{Round, Waves};

/// A session of a machine. Never used again for another session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Session(SessionId);

impl Session {
    pub(crate) const fn new(id: SessionId) -> Self {
        Self(id)
    }

    pub(crate) const fn id(self) -> SessionId {
        self.0
    }

    /// Its number: sessions are numbered in the order in which they were added.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0.0
    }

    /// The session with this number. One that does not exist is refused where it is used.
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        Self(SessionId(number))
    }
}

/// A state between two frames, to return to. It shares with others what did not change; cloning it
/// costs a reference count, and it can be dropped on any thread.
///
/// ```
/// use wavelock::{Engine, Machine, SessionBuilder};
///
/// let engine = Engine::new(1)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// let session = SessionBuilder::new("guest", &guest);
/// let mut machine = Machine::builder(&engine).session(session).rollback(8).build()?;
/// let before = machine.save()?;
/// let digest = machine.advance()?.digest();
/// machine.load(&before)?;
/// assert_eq!((machine.frame(), machine.advance()?.digest()), (before.frame(), digest));
/// # Ok::<(), wavelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    machine: wavelock_system::Snapshot,
    /// The state of the host.
    host: Option<Arc<dyn Any + Send + Sync>>,
}

impl Snapshot {
    /// The frame that starts next.
    #[must_use]
    pub fn frame(&self) -> Frame {
        self.machine.next_frame()
    }

    /// The run digest at that point.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.machine.digest()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("frame", &self.frame().0).finish_non_exhaustive()
    }
}

/// A frame that was started and has not ended.
struct Running {
    frame: Frame,
    collected: Collected,
    refused: Vec<Error>,
    /// By session: the asks it had made when the frame began; empty if none can be made.
    asked: Vec<u64>,
    wall: Duration,
}

/// A machine: sessions, their state, and the frame loop.
///
/// Inputs ([`Machine::input`] and the like) belong to the next frame: they are recorded, and in the
/// digest. Everything else here is about the host and in no digest: how many threads run it,
/// when it advances, snapshots, observers. So the same inputs at the same frames give the same
/// digests on every host.
///
/// Nothing panics on wrong arguments; an operation that is refused has changed nothing.
pub struct Machine {
    pub(crate) waves: Waves,
    modules: Vec<Module>,
    pub(crate) frames: Frames,
    pub(crate) kept: Kept,
    running: Option<Running>,
    /// The last frame, which reports borrow.
    pub(crate) last: Arc<Ended>,
    remote: Remote,
    pub(crate) rollback: u64,
    events: bool,
    warnings: Vec<String>,
    host: Option<Arc<dyn Behind>>,
    imports: Arc<HostImports>,
    /// By session: whether its end was reported.
    ended: Vec<bool>,
}

/// Making a machine.
impl Machine {
    /// Describes a machine in code.
    #[must_use]
    pub fn builder(engine: &Engine) -> MachineBuilder {
        MachineBuilder::new(engine)
    }

    pub(crate) fn start(
        engine: &Engine,
        mut world: World,
        modules: Vec<Module>,
        rollback: u64,
        events: bool,
        warnings: Vec<String>,
        host: Option<Arc<dyn Behind>>,
    ) -> Self {
        let next = world.next_frame_number();
        world.allow(next);
        let ended = vec![false; world.spec().sessions.len()];
        let last = Arc::new(Ended {
            frame: world.frame(),
            digest: world.digest(),
            outcome: world.outcome(),
            ended: Vec::new(),
            asks: Vec::new(),
            refused: Vec::new(),
            wall: Duration::ZERO,
            collected: Collected::default(),
        });
        let imports = Arc::new(world.spec().host.clone());
        let waves = Waves::on(world, engine.shared_threads());
        let mut frames = Frames::default();
        frames.confirm(next);
        let (running, remote) = (None, Remote::default());
        Self {
            waves,
            modules,
            frames,
            kept: Kept::default(),
            running,
            last,
            remote,
            rollback,
            events,
            warnings,
            host,
            imports,
            ended,
        }
    }

    /// The machine that [`Machine::export`], `wavelock snapshot` or a recording with snapshots
    /// wrote, in the last state that the file holds.
    ///
    /// # Errors
    /// The file is none, is damaged, or holds no state.
    pub fn import(engine: &Engine, file: impl Read + Seek) -> Result<Self, Error> {
        let mut archive = Archive::open(file)?;
        let newest = archive.last_snapshot(|_| true)?;
        let mut modules = Vec::new();
        for bytes in &archive.machine.modules {
            modules.push(engine.module(bytes)?);
        }
        let world = match newest {
            Some(number) => archive.restore(number, false)?,
            None => {
                let RecordedMachine { spec, inputs, .. } = archive.machine.clone();
                World::load(spec, inputs, false)?.world
            }
        };
        Ok(Self::start(engine, world, modules, 0, false, Vec::new(), None))
    }

    /// [`Machine::import`] of a machine with host functions, whose code and state are not in the
    /// file.
    ///
    /// # Errors
    /// As [`Machine::import`]; [`Error::OtherHost`] if the machine has other functions.
    pub fn import_with<S: Clone + Send + Sync + 'static>(
        engine: &Engine,
        file: impl Read + Seek,
        host: Host<S>,
    ) -> Result<Self, Error> {
        let mut machine = Self::import(engine, file)?;
        let (imports, behind) = host.shared();
        let world = machine.waves.world_mut();
        if world.spec().host != imports {
            return Err(Error::OtherHost {
                found: format!("{} {}", imports.name, imports.version),
                expected: format!("{} {}", world.spec().host.name, world.spec().host.version),
            });
        }
        world.set_host(behind.clone().code());
        machine.host = Some(behind);
        Ok(machine)
    }

    /// What is likely wrong with the machine and stops nothing.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Inputs of the next frame: recorded, and in the digest. Each returns the frame it is for.
impl Machine {
    /// Gives a session these bytes.
    ///
    /// # Errors
    /// [`Error::Input`] with the limit and the numbers.
    pub fn input(&mut self, to: Session, bytes: &[u8]) -> Result<Frame, Error> {
        self.give(Input::Bytes { to: Recipient::Session(to.0), bytes: bytes.into() })
    }

    /// Gives every session these bytes.
    ///
    /// # Errors
    /// [`Error::Input`] with the limit and the numbers.
    pub fn input_all(&mut self, bytes: &[u8]) -> Result<Frame, Error> {
        self.give(Input::Bytes { to: Recipient::All, bytes: bytes.into() })
    }

    /// Gives a session these bytes in a later frame.
    ///
    /// # Errors
    /// [`Error::Input`] with the limit and the numbers, among them a frame that has started.
    pub fn input_at(&mut self, frame: Frame, to: Session, bytes: &[u8]) -> Result<(), Error> {
        let input = Input::Bytes { to: Recipient::Session(to.0), bytes: bytes.into() };
        self.give_at(frame, input)
    }

    /// Ends the input of a session: what it has not read is the last.
    ///
    /// # Errors
    /// [`Error::Input`].
    pub fn close_input(&mut self, to: Session) -> Result<Frame, Error> {
        self.give(Input::End { to: Recipient::Session(to.0) })
    }

    /// Ends the machine with its next frame.
    ///
    /// # Errors
    /// [`Error::Input`].
    pub fn stop(&mut self) -> Result<Frame, Error> {
        self.give(Input::Stop)
    }

    /// Sessions, with those that wait to start.
    pub(crate) fn sessions_planned(&self) -> u32 {
        self.waves.world().sessions_planned()
    }

    /// Gives the reply to an ask of a guest: its coroutine continues in that frame.
    ///
    /// # Errors
    /// [`Error::ReplyTypes`]; [`Error::Input`] if the ask has a reply, if its coroutine has ended
    /// or asks something else since a rollback, or if the run has ended.
    pub fn answer<R: Values>(&mut self, ask: AskId, values: R) -> Result<Frame, Error> {
        self.give(ask.reply(values)?)
    }

    /// [`Machine::answer`] with the values as words, for a program that learns the types at run
    /// time.
    ///
    /// # Errors
    /// As [`Machine::answer`]; another number of values than the function returns is
    /// [`Error::Input`].
    pub fn answer_words(&mut self, ask: AskId, words: &[u64]) -> Result<Frame, Error> {
        self.give(ask.reply_words(words))
    }

    /// The asks that wait, by session and number; also those of a run that has ended, which no
    /// reply can reach. A rollback returns to those of the snapshot.
    pub fn asks(&self) -> impl Iterator<Item = Ask> {
        Ask::of(self.waves.world(), &self.imports)
    }

    pub(crate) fn give(&mut self, input: Input) -> Result<Frame, Error> {
        let frame = self.waves.world().open_frame()?;
        self.give_at(frame, input)?;
        Ok(frame)
    }

    fn give_at(&mut self, frame: Frame, input: Input) -> Result<(), Error> {
        self.kept.check()?;
        let kept = self.kept.is_on().then(|| input.clone());
        self.waves.world_mut().give_at(frame, input)?;
        kept.map_or(Ok(()), |input| self.kept.input(frame, input))
    }

    /// The machine from other threads.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }
}

/// Running.
impl Machine {
    /// Runs one frame. A frame in which nothing happens takes constant time.
    ///
    /// # Errors
    /// [`Error::Over`] when the run has ended; [`Error::Interrupted`]; [`Error::Host`] when the
    /// host could not continue; [`Error::Io`] if the frame has run and its journal could not be
    /// written, and [`Error::JournalFailed`] after that.
    pub fn advance(&mut self) -> Result<FrameReport<'_>, Error> {
        while !self.run(None)? {}
        Ok(self.last.report())
    }

    /// Runs one frame, or part of it: `None` when the time was up between two of its waves. The
    /// next call continues the same frame. How a frame is divided is in no digest.
    ///
    /// # Errors
    /// As [`Machine::advance`].
    pub fn advance_until(&mut self, deadline: Instant) -> Result<Option<FrameReport<'_>>, Error> {
        Ok(if self.run(Some(deadline))? { Some(self.last.report()) } else { None })
    }

    /// The report of the last frame that ended, which [`Machine::advance`] returned; before the
    /// first one, of a frame 0 without anything.
    #[must_use]
    pub fn report(&self) -> FrameReport<'_> {
        self.last.report()
    }

    /// Whether the frame has ended.
    fn run(&mut self, deadline: Option<Instant>) -> Result<bool, Error> {
        let began = Instant::now();
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.begin()?,
        };
        let result = self.rounds(&mut running.collected, deadline, running.frame);
        running.wall += began.elapsed();
        match result {
            Ok(true) => {
                self.end(running);
                self.kept.frame(&self.last)?;
                Ok(true)
            }
            Ok(false) => {
                self.running = Some(running);
                Ok(false)
            }
            Err(error) => {
                self.running = Some(running);
                Err(error)
            }
        }
    }

    fn begin(&mut self) -> Result<Running, Error> {
        if self.outcome().is_some() {
            return Err(Error::Over);
        }
        self.kept.check()?;
        let inputs = self.remote.take();
        let refused: Vec<Error> =
            inputs.into_iter().filter_map(|input| self.give(input).err()).collect();
        let world = self.waves.world_mut();
        let frame = world.next_frame_number();
        world.allow(Frame(frame.0 + 1));
        let collected = self.frames.collector(self.events);
        let can_ask = self.imports.functions.iter().any(|import| import.kind == HostKind::Ask);
        let sessions = if can_ask { self.ended.len() as u32 } else { 0 };
        let asked = (0..sessions).map(|session| world.asks_made(SessionId(session))).collect();
        Ok(Running { frame, collected, refused, asked, wall: Duration::ZERO })
    }

    fn rounds(
        &mut self,
        collected: &mut Collected,
        deadline: Option<Instant>,
        frame: Frame,
    ) -> Result<bool, Error> {
        loop {
            if self.remote.take_interrupt() {
                return Err(Error::Interrupted { frame });
            }
            if self.waves.round(collected)? == Round::Over {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    fn end(&mut self, running: Running) {
        let Running { frame, mut collected, mut refused, asked, wall } = running;
        refused.append(&mut collected.refused);
        refused.extend(panicked(self.host.as_ref()));
        let world = self.waves.world();
        let before = |ask: &Ask| asked.get(ask.session().number() as usize).copied();
        let asks = Ask::of(world, &self.imports);
        let asks: Vec<Ask> =
            asks.filter(|ask| before(ask).is_some_and(|made| ask.id().number() >= made)).collect();
        let mut ended = Vec::new();
        self.ended.resize(world.spec().sessions.len(), false);
        for session in &collected.replaced {
            self.ended[session.0 as usize] = false;
        }
        if self.ended.iter().filter(|reported| **reported).count() < world.ended_sessions() {
            for (number, reported) in (0u32..).zip(&mut self.ended) {
                let session = SessionId(number);
                let outcome = world.usage(session).and_then(|usage| usage.outcome);
                if let Some(outcome) = outcome.filter(|_| !*reported) {
                    *reported = true;
                    ended.push((Session(session), outcome));
                }
            }
        }
        let (digest, outcome) = (world.digest(), world.outcome());
        let next = world.next_frame_number();
        self.last =
            Arc::new(Ended { frame, digest, outcome, ended, asks, refused, wall, collected });
        self.frames.push(self.last.clone());
        let is_over = outcome.is_some();
        let confirmed = match is_over {
            true => Frame(frame.0.saturating_add(1).saturating_sub(self.rollback)),
            false => Frame(next.0.saturating_sub(self.rollback)),
        };
        self.frames.confirm(confirmed);
    }

    /// The frame that the next [`Machine::advance`] runs, or continues.
    #[must_use]
    pub fn frame(&self) -> Frame {
        self.running
            .as_ref()
            .map_or(self.waves.world().next_frame_number(), |running| running.frame)
    }

    /// The run digest as of the last frame that ended.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.waves.world().digest()
    }

    /// How the run ended, once it has.
    #[must_use]
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.waves.world().outcome()
    }

    /// The session of a name.
    #[must_use]
    pub fn session(&self, name: &str) -> Option<Session> {
        let sessions = &self.waves.world().spec().sessions;
        let at = sessions.iter().position(|session| session.name == name)?;
        Some(Session(SessionId(at as u32)))
    }

    /// The name of a session.
    #[must_use]
    pub fn name(&self, session: Session) -> Option<&str> {
        let session = self.waves.world().spec().sessions.get(session.0.0 as usize)?;
        Some(&session.name)
    }

    /// Every session, in order.
    pub fn sessions(&self) -> impl Iterator<Item = Session> + use<> {
        (0..self.waves.world().spec().sessions.len() as u32).map(Session::of_number)
    }

    /// What a session has used so far, in constant time; `None` if it does not exist.
    #[must_use]
    pub fn usage(&self, session: Session) -> Option<Usage> {
        self.waves.world().usage(session.0).map(Usage::from)
    }
}

/// States: in no digest.
impl Machine {
    /// The state between two frames, to [`load`](Machine::load) again. Costs what changed since the
    /// last one.
    ///
    /// # Errors
    /// [`Error::InFrame`] in the middle of a frame.
    pub fn save(&mut self) -> Result<Snapshot, Error> {
        self.check_boundary()?;
        let machine = self.waves.world_mut().snapshot()?;
        Ok(Snapshot { machine, host: self.host.as_ref().map(|host| host.keep()) })
    }

    /// Returns to a state, whatever happened since: also from the middle of a frame, and from the
    /// run's end. Inputs that were given and not taken are those of the snapshot.
    ///
    /// # Errors
    /// [`Error::OtherMachine`]; [`Error::Confirmed`] if frames after it were confirmed;
    /// [`Error::JournalRollback`] if the machine has a journal.
    pub fn load(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        if self.kept.is_on() {
            return Err(Error::JournalRollback);
        }
        if !snapshot.machine.is_of(self.waves.world()) {
            return Err(Error::OtherMachine);
        }
        let (frame, confirmed) = (snapshot.frame(), self.frames.confirmed);
        if frame < confirmed {
            return Err(Error::Confirmed { frame, confirmed });
        }
        self.running = None;
        self.waves.roll_back(&snapshot.machine);
        if let (Some(host), Some(kept)) = (&self.host, &snapshot.host) {
            host.restore(&**kept);
        }
        self.frames.undo(frame);
        let world = self.waves.world_mut();
        world.allow(frame);
        self.ended.resize(world.spec().sessions.len(), false);
        for (number, reported) in (0u32..).zip(&mut self.ended) {
            *reported = world.usage(SessionId(number)).is_some_and(|usage| usage.outcome.is_some());
        }
        Ok(())
    }

    /// Frames before this one will not be undone: recorder and observers get them, and snapshots of
    /// earlier frames are refused. Frames that have not run cannot be confirmed yet.
    pub fn confirm(&mut self, frame: Frame) {
        let next = self.waves.world().next_frame_number();
        self.frames.confirm(frame.min(next));
    }

    /// Writes the machine with its modules and its state to a file that [`Machine::import`],
    /// `wavelock resume` and `wavelock inspect` read. Inputs that wait for their frames are not in
    /// it.
    ///
    /// # Errors
    /// [`Error::InFrame`], [`Error::Over`], [`Error::Io`].
    pub fn export(&mut self, out: impl Write) -> Result<(), Error> {
        self.check_boundary()?;
        if self.outcome().is_some() {
            return Err(Error::Over);
        }
        let machine = self.description();
        write_snapshot(out, &machine, self.waves.world_mut())?;
        Ok(())
    }

    pub(crate) fn check_boundary(&self) -> Result<(), Error> {
        match &self.running {
            Some(running) if matches!(self.waves.world().stage(), Stage::Frame | Stage::Wave) => {
                Err(Error::InFrame { frame: running.frame })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn description(&self) -> RecordedMachine {
        RecordedMachine {
            spec: self.waves.world().spec().clone(),
            modules: self.modules.iter().map(|module| module.bytes().into()).collect(),
            inputs: Vec::new(),
        }
    }
}

/// Watching: in no digest.
impl Machine {
    /// Records confirmed frames from here on. The trace is what `wavelock replay`, `debug` and
    /// `diff` read; it replays without this program.
    ///
    /// # Errors
    /// [`Error::Recording`], [`Error::InFrame`], [`Error::NoEvents`], [`Error::Io`].
    pub fn record(&mut self, out: impl Write + Send + 'static, level: Level) -> Result<(), Error> {
        if self.frames.recording.is_some() {
            return Err(Error::Recording);
        }
        self.check_boundary()?;
        if self.outcome().is_some() {
            return Err(Error::Over);
        }
        if level > Level::Inputs && !self.events {
            return Err(Error::NoEvents);
        }
        let world = self.waves.world();
        let next = world.next_frame_number();
        let from = if next > Frame::ZERO { Some(world.save()?) } else { None };
        let recording = Recording::start(out, self.description(), level, from)?;
        // Frames before this one are in no trace, so none of them may be undone.
        self.frames.confirm(next);
        self.frames.record(recording, level > Level::Inputs);
        Ok(())
    }

    /// Confirms all frames and writes the end of the trace.
    ///
    /// # Errors
    /// [`Error::Io`]: the trace is valid up to its last complete chunk. `Ok(None)` if nothing was
    /// recorded.
    pub fn finish_recording(&mut self) -> Result<Option<Recorded>, Error> {
        self.check_boundary()?;
        self.frames.confirm(Frame(self.last.frame.0.saturating_add(1)));
        let Some(recording) = self.frames.recording.take() else { return Ok(None) };
        recording.finish(self.waves.world_mut().summary()).map(Some)
    }

    /// Shows every confirmed frame to an observer.
    pub fn observe(&mut self, observer: impl Observer + 'static) {
        self.frames.observe(Box::new(observer));
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("frame", &self.frame().0)
            .field("digest", &self.digest().to_string())
            .finish_non_exhaustive()
    }
}
