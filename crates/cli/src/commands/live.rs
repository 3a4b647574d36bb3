//! `wavelock run --live`: when frames are due, and what it is given at their boundaries.
//!
//! ```text
//!   wait until a frame is due ─▶ take requests ─▶ World::give ─▶ World::allow ─▶ rounds ─▶ output
//!        └── Ctrl-C, --for: suspended at the boundary      stop, nothing left to do: a stop input
//! ```
//!
//! Contract: the machine sees inputs and their frames; pace, clients and standard input are the
//! host's. Elsewhere: sockets, lines and queues are in `live`.

use super::drive::{Ending, Flow, rounds};
use super::files::{MOST_TEXT_BYTES, read_file};
use super::interrupt::Interrupt;
use super::memory::MemoryGuard;
use super::streams::Streams;
use crate::arguments::{FrameRate, LiveArguments, OutputMode};
use crate::diagnostic::Source;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::live::{
    Change, Clients, Dropped, Form, Inbox, Lines, Message, Modules, Outlet, Request,
    STANDARD_INPUT, Served, Shelf, Verb, WATCH, Watch, WhenFull, shown,
};
use crate::manifest::{self, Overrides, Template, grouped, name_refusal};
use crate::report::{DroppedRow, LiveRow};
use crate::suggest::nearest;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wavelock::Pacer;
use wavelock_abi::{Frame, SessionId};
use wavelock_system::{
    Control, Input, LaterModule, MachineSpec, Recipient, Replacement, SessionSpec, Stage, World,
};
use wavelock_waves::Waves;

/// Frames per second without `--fps` and `--speed`.
const DEFAULT_RATE: f64 = 60.0;

/// Frames that were missed and are caught up with.
const MOST_LATE: u32 = 4;

/// The longest wait without a look at Ctrl-C and the clock.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Bytes of output that wait for standard output, and for standard error.
const MOST_WAITING_BYTES: usize = 16 << 20;

/// Refused lines of standard input that are printed; all are counted.
const SHOWN_REFUSALS: u64 = 16;

/// Notes about the watched folder that are printed in a minute; all that are skipped are counted.
const SHOWN_OF_WATCH: u32 = 100;

/// How long the end of a paced run waits for a reader of its output.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of all modules of sessions that lines and the folder started or replaced.
const MOST_MODULE_BYTES: u64 = 256 << 20;

/// Sessions up to which an unknown name is compared with all names.
const MOST_COMPARED: usize = 1_000;

/// What a live run listens to, and its pace.
pub(super) struct Live {
    inbox: Inbox,
    /// `None`: as fast as possible.
    pacer: Option<Pacer>,
    rate: f64,
    /// Frames that are due.
    owed: u32,
    /// When `--for` ends the run.
    until: Option<Instant>,
    time: Option<Duration>,
    /// Standard input may have another line.
    is_open: bool,
    /// Clients may come.
    is_listening: bool,
    /// The folder may have another module.
    is_watching: bool,
    /// Lines or the folder can start sessions.
    can_start: bool,
    sessions: Sessions,
    notes: Notes,
    /// The machine was told to stop, because nothing could happen any more.
    is_stopping: bool,
    counts: Counts,
}

/// The sessions of the machine, with those that wait to start.
struct Sessions {
    by_name: BTreeMap<String, SessionId>,
    /// What a session has that is started.
    template: Template,
    /// The first that was started while the machine ran.
    first_later: u32,
}

/// What was done.
#[derive(Clone, Copy, Default)]
struct Counts {
    taken: u64,
    refused: u64,
    skipped: u64,
    started: u64,
    replaced: u64,
    ended: u64,
}

/// Why a wait for the next frame ended.
enum Due {
    /// The next frame may run up to this one.
    Frame(Frame),
    Interrupted,
    Time,
}

impl Live {
    /// Starts listening. `streams` sends the output to its clients.
    pub(super) fn start(
        arguments: &LiveArguments,
        spec: &MachineSpec,
        template: Template,
        streams: &mut Streams<'_>,
        output: &OutputMode,
    ) -> Result<Self, Failure> {
        let rate = match (arguments.fps, arguments.speed) {
            (Some(FrameRate::Max), _) => None,
            (Some(FrameRate::Hz(rate)), _) => Some(rate),
            (None, Some(speed)) => Some(speed * 1e9 / spec.frame_cycles.0 as f64),
            (None, None) => Some(DEFAULT_RATE),
        };
        let template = match &arguments.template {
            Some(path) => read_template(path)?,
            None => template,
        };
        let sessions = Sessions::new(spec, template);
        if let Some(name) = &arguments.to {
            let found = sessions.find(name);
            found.map_err(|error| Failure::new(Exit::Refused, format!("--to: {error}")))?;
        }
        let shelf: Arc<Mutex<Shelf>> = Arc::default();
        let folder = |path: &PathBuf| -> Result<Arc<Modules>, Failure> {
            path.read_dir().map_err(|error| Failure::file("read", path, &error))?;
            Ok(Arc::new(Modules::new(path, shelf.clone())))
        };
        let modules = arguments.modules.as_ref().map(folder).transpose()?;
        let watch = arguments.watch.as_ref().map(folder).transpose()?;
        let form = Form { to: arguments.to.clone(), modules };
        let inbox = Inbox::default();
        let host = |error: io::Error| {
            Failure::new(Exit::Host, format!("a live run cannot start its threads: {error}"))
        };
        let tells = *output == OutputMode::Json;
        let mut clients = Clients::new(inbox.clone(), form.clone(), tells);
        let mut places = Vec::new();
        for address in &arguments.listen {
            let listening = clients.listen(address).map_err(|error| {
                Failure::new(Exit::Host, format!("cannot listen on {address}: {error}"))
            })?;
            places.push(format!("listening on {listening}"));
        }
        let is_listening = clients.is_listening();
        let outlets = [
            Outlet::start(io::stdout(), MOST_WAITING_BYTES, tells).map_err(host)?,
            Outlet::start(io::stderr(), MOST_WAITING_BYTES, false).map_err(host)?,
        ];
        let when_full = if rate.is_some() { WhenFull::Drop } else { WhenFull::Wait };
        streams.go_live(clients, outlets, when_full);
        read_standard_input(inbox.clone(), form).map_err(host)?;
        let is_watching = watch.is_some();
        if let Some(modules) = watch {
            places.push(format!("watching {}", modules.folder().display()));
            Watch::new(modules).start(inbox.clone()).map_err(host)?;
        }
        let pace = rate.map_or_else(
            || "as fast as possible".to_owned(),
            |rate| format!("{} frames a second", round(rate)),
        );
        let places = places.iter().map(|place| format!("; {place}")).collect::<String>();
        streams.note(&format!("live, {pace}{places}; Ctrl-C ends the run"));
        Ok(Self {
            inbox,
            pacer: rate.map(Pacer::hz),
            rate: rate.unwrap_or_default(),
            owed: 0,
            until: None,
            time: arguments.time,
            is_open: true,
            is_listening,
            is_watching,
            can_start: arguments.starts_sessions(),
            sessions,
            notes: Notes::default(),
            is_stopping: false,
            counts: Counts::default(),
        })
    }

    /// Runs frames as they are due. `None` if nobody wants the output any more.
    pub(super) fn drive(
        &mut self,
        waves: &mut Waves,
        streams: &mut Streams<'_>,
        memory: &mut MemoryGuard,
    ) -> Result<Option<Ending>, Failure> {
        // A time beyond what the host can count is none.
        self.until = self.time.and_then(|time| Instant::now().checked_add(time));
        loop {
            let world = waves.world_mut();
            let until = match self.next(world, &streams.interrupt) {
                Due::Frame(until) => until,
                Due::Interrupted => {
                    world.suspend();
                    return Ok(Some(Ending::Interrupted));
                }
                Due::Time => {
                    world.suspend();
                    return Ok(Some(Ending::Time));
                }
            };
            self.give(world, streams);
            self.stop_if_done(world);
            world.allow(until);
            if rounds(waves, streams, memory)? == Flow::Unwanted {
                return Ok(None);
            }
            let world = waves.world();
            match world.outcome() {
                Some(outcome) => return Ok(Some(Ending::Outcome(outcome))),
                // Ctrl-C, at the end of this frame.
                None if world.stage() == Stage::Over => return Ok(Some(Ending::Interrupted)),
                None => {}
            }
        }
    }

    /// Waits until a frame is due.
    fn next(&mut self, world: &mut World, interrupt: &Interrupt) -> Due {
        loop {
            let now = Instant::now();
            if interrupt.is_set() {
                return Due::Interrupted;
            }
            if self.until.is_some_and(|until| until <= now) {
                return Due::Time;
            }
            let after = |frame: Frame| Due::Frame(Frame(frame.0.saturating_add(1)));
            let look = self.until.map_or(LOOK_EVERY, |until| LOOK_EVERY.min(until - now));
            let Some(pacer) = &mut self.pacer else {
                match world.due() {
                    Some(frame) => return after(frame),
                    None if !self.inbox.is_empty() || self.is_done(world) => {
                        return after(world.next_frame_number());
                    }
                    None => self.inbox.wait(look),
                }
                continue;
            };
            if self.owed == 0 {
                self.owed = pacer.due(now, MOST_LATE);
            }
            if self.owed > 0 {
                self.owed -= 1;
                return after(world.next_frame_number());
            }
            let next = pacer.next().map_or(look, |next| next.saturating_duration_since(now));
            std::thread::sleep(next.min(look));
        }
    }

    /// Gives the machine what was asked for since the last boundary.
    fn give(&mut self, world: &mut World, streams: &Streams<'_>) {
        for (source, message) in self.inbox.take() {
            let (line, refused) = match message {
                Message::Ended => {
                    self.is_open = false;
                    // Standard input is the input of all sessions if nothing else can be.
                    if !self.is_listening {
                        let _ = world.give(Input::End { to: Recipient::All });
                    }
                    continue;
                }
                Message::Refused(line, reason) => (line, Some(reason)),
                Message::Request(_, Request::Watched(change)) => {
                    let name = change.name.clone();
                    match self.watched(world, change) {
                        Ok(done) => {
                            done.into_iter().for_each(|done| self.notes.tell(&done, streams));
                            continue;
                        }
                        Err(reason) => (0, Some(format!("`{name}`: {reason}"))),
                    }
                }
                Message::Request(line, request) => {
                    let taken = self.ask(world, request);
                    self.counts.taken += u64::from(taken.is_ok());
                    (line, taken.err())
                }
            };
            let Some(reason) = refused else { continue };
            match source {
                STANDARD_INPUT => {
                    self.counts.refused += 1;
                    if self.counts.refused <= SHOWN_REFUSALS {
                        streams.note(&format!("standard input, line {line}: {}", shown(&reason)));
                    }
                }
                WATCH => {
                    self.counts.skipped += 1;
                    self.notes.tell(&shown(&reason), streams);
                }
                client => {
                    if let Some(clients) = &streams.clients {
                        clients.refuse(client, line, &reason);
                    }
                }
            }
        }
    }

    /// Gives the machine one request as an input of its next frame.
    fn ask(&mut self, world: &mut World, request: Request) -> Result<(), String> {
        let input = match request {
            Request::Input { to, bytes } => {
                Input::Bytes { to: self.sessions.find(&to)?, bytes: bytes.into() }
            }
            Request::Close { to } => Input::End { to: self.sessions.find(&to)? },
            Request::Control { verb, to } => {
                let session = self.sessions.one(&to)?;
                let control = match verb {
                    Verb::Hold => Control::Hold { session },
                    Verb::Release => Control::Release { session },
                    Verb::End => Control::End { session },
                    Verb::Weight(weight) => Control::Weight { session, weight },
                    Verb::Cap(cap) => Control::Cap { session, cap },
                };
                let is_end = matches!(control, Control::End { .. });
                give(world, Input::Control(control)).map_err(|error| format!("`{to}`: {error}"))?;
                self.counts.ended += u64::from(is_end);
                return Ok(());
            }
            Request::Budget { context, of, budget } => {
                let session = self.sessions.with_context(world.spec(), &context, of.as_deref())?;
                Input::Control(Control::Context { session, name: context.into(), budget })
            }
            Request::Start { name, module, args } => {
                return self.start_session(world, &name, module, args).map(drop);
            }
            Request::Replace { to, module, carry } => {
                let session = self.sessions.one(&to)?;
                return self.replace(world, session, module, carry).map(drop);
            }
            Request::Watched(_) => return Ok(()),
            Request::Stop => Input::Stop,
        };
        give(world, input).map(drop)
    }

    /// Starts a session with the template.
    fn start_session(
        &mut self,
        world: &mut World,
        name: &str,
        module: LaterModule,
        args: Option<Vec<String>>,
    ) -> Result<Frame, String> {
        if let Some(reason) = name_refusal(name) {
            return Err(reason);
        }
        if self.sessions.by_name.contains_key(name) {
            return Err(format!(
                "there is a session `{name}` already: replace it, or use another name"
            ));
        }
        let mut new = self.sessions.template.session(name, module);
        new.args = args.unwrap_or(new.args);
        has_room(world, &new.module)?;
        let number = SessionId(world.sessions_planned());
        let frame = give(world, Input::Control(Control::Start(Box::new(new))))?;
        self.sessions.by_name.insert(name.to_owned(), number);
        self.counts.started += 1;
        Ok(frame)
    }

    /// Gives a session another module.
    fn replace(
        &mut self,
        world: &mut World,
        session: SessionId,
        module: LaterModule,
        carry: Vec<u8>,
    ) -> Result<Frame, String> {
        has_room(world, &module)?;
        let replacement = Replacement { session, module, carry: carry.into() };
        let frame = give(world, Input::Control(Control::Replace(Box::new(replacement))))?;
        self.counts.replaced += 1;
        Ok(frame)
    }

    /// Follows a change of the watched folder.
    fn watched(
        &mut self,
        world: &mut World,
        Change { name, module }: Change,
    ) -> Result<Option<String>, String> {
        let known = self.sessions.by_name.get(&name).copied();
        if known.is_some_and(|session| session.0 < self.sessions.first_later) {
            return match module {
                Some(_) => Err("a session of the machine's own has this name".to_owned()),
                None => Ok(None),
            };
        }
        let has_ended = |session| world.usage(session).is_some_and(|usage| usage.outcome.is_some());
        let (frame, what) = match (known, module) {
            (None, None) => return Ok(None),
            (None, Some(module)) => (self.start_session(world, &name, module, None)?, "starts"),
            (Some(session), Some(module)) => {
                if !has_ended(session) && runs(world.spec(), session, &module) {
                    return Ok(None);
                }
                (self.replace(world, session, module, Vec::new())?, "is replaced")
            }
            (Some(session), None) => {
                if has_ended(session) {
                    return Ok(None);
                }
                let frame = give(world, Input::Control(Control::End { session }))?;
                self.counts.ended += 1;
                (frame, "ends")
            }
        };
        Ok(Some(format!("`{name}` {what} in frame {}", grouped(frame.0))))
    }

    /// Whether nothing can happen any more: every session has ended, or the machine is idle and no
    /// input can come.
    fn is_done(&self, world: &mut World) -> bool {
        if self.is_stopping || world.next_frame_number() == Frame::ZERO {
            return false;
        }
        let is_deaf =
            !self.is_open && !self.is_listening && !self.is_watching && self.inbox.is_empty();
        let may_start = self.can_start && !is_deaf;
        world.ended_sessions() == world.spec().sessions.len() && !may_start
            || is_deaf && world.next_input().is_none() && world.due().is_none()
    }

    fn stop_if_done(&mut self, world: &mut World) {
        if self.is_done(world) {
            self.is_stopping = world.give(Input::Stop).is_ok();
        }
    }

    /// Ends the connections and the queues; what was done, for the summary.
    pub(super) fn finish(self, streams: &mut Streams<'_>) -> LiveRow {
        self.inbox.close();
        let Served { clients, turned_away, disconnected, refused, dropped } =
            streams.clients.take().map(Clients::finish).unwrap_or_default();
        let wait = self.pacer.is_some().then(|| Instant::now() + LAST_WORDS);
        let Dropped { frames, bytes } = streams.end_outlets(wait).and(dropped);
        LiveRow {
            taken: self.counts.taken,
            refused: self.counts.refused + refused,
            started: self.counts.started,
            replaced: self.counts.replaced,
            ended: self.counts.ended,
            skipped: self.counts.skipped,
            clients,
            turned_away,
            disconnected,
            dropped: DroppedRow { frames, bytes },
            rate: self.rate,
            late: self.pacer.map_or(0, |pacer| pacer.forgiven()),
        }
    }
}

/// The rate of a live run in words: whole, or with two digits.
fn round(rate: f64) -> String {
    match rate.fract() == 0.0 {
        true => grouped(rate as u64),
        false => format!("{rate:.2}"),
    }
}

/// Reads standard input on a thread of its own.
fn read_standard_input(inbox: Inbox, form: Form) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("wavelock-input".into());
    thread.spawn(move || {
        let mut lines = Lines::new(io::stdin());
        while let Ok(Some(line)) = lines.next() {
            let message = match form.read(line) {
                Ok(None) => continue,
                Ok(Some(request)) => Message::Request(lines.number, request),
                Err(reason) => Message::Refused(lines.number, reason),
            };
            if !inbox.push(STANDARD_INPUT, message) {
                return;
            }
        }
        inbox.push(STANDARD_INPUT, Message::Ended);
    })?;
    Ok(())
}

/// Notes about the watched folder. A client that fills it could cause any number.
#[derive(Default)]
struct Notes {
    /// When the minute began, and the notes in it.
    minute: Option<(Instant, u32)>,
    /// Notes that were not printed since the last one.
    hidden: u64,
}

impl Notes {
    fn tell(&mut self, note: &str, streams: &Streams<'_>) {
        let now = Instant::now();
        let is_over = |began: &Instant| now.duration_since(*began) >= Duration::from_secs(60);
        let (began, told) = self.minute.filter(|(began, _)| !is_over(began)).unwrap_or((now, 0));
        if told >= SHOWN_OF_WATCH {
            self.hidden += 1;
            return;
        }
        self.minute = Some((began, told + 1));
        match std::mem::take(&mut self.hidden) {
            0 => streams.note(&format!("--watch: {note}")),
            hidden => {
                let hidden = grouped(hidden);
                streams.note(&format!("--watch: {hidden} notes are not shown; {note}"));
            }
        }
    }
}

/// Gives an input for the next frame.
fn give(world: &mut World, input: Input) -> Result<Frame, String> {
    world.give(input).map_err(|refusal| refusal.to_string())
}

/// Whether a session has this module, as one of a resumed run may.
fn runs(spec: &MachineSpec, session: SessionId, module: &LaterModule) -> bool {
    let has = spec.sessions.get(session.0 as usize).map(|session| session.module);
    has.and_then(|has| spec.module_hashes.get(has)).is_some_and(|hash| hash == module.hash())
}

/// Refuses a module beyond what the machine may keep of modules that came while it ran.
fn has_room(world: &World, module: &LaterModule) -> Result<(), String> {
    let library = &world.spec().library;
    let kept: u64 = library.iter().map(|kept| kept.bytes().len() as u64).sum();
    let more = module.bytes().len() as u64;
    if library.contains(module) || kept + more <= MOST_MODULE_BYTES {
        return Ok(());
    }
    Err(format!(
        "the module has {} bytes, and those of other sessions that were started have {}: at most \
         {} are allowed",
        grouped(more),
        grouped(kept),
        grouped(MOST_MODULE_BYTES)
    ))
}

/// The `[template]` of a manifest.
fn read_template(path: &Path) -> Result<Template, Failure> {
    let source = Source::decode(path.display().to_string(), read_file(path, MOST_TEXT_BYTES)?)
        .map_err(Failure::refused)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = manifest::read(source, folder, &Overrides::default());
    read.map(|read| read.manifest.template).map_err(Failure::refused)
}

impl Sessions {
    fn new(spec: &MachineSpec, template: Template) -> Self {
        let named =
            |(session, number): (&SessionSpec, u32)| (session.name.clone(), SessionId(number));
        Self {
            by_name: spec.sessions.iter().zip(0..).map(named).collect(),
            template,
            first_later: spec.origin.as_deref().unwrap_or(spec).sessions.len() as u32,
        }
    }

    /// The sessions of a name.
    fn find(&self, name: &str) -> Result<Recipient, String> {
        if name == "*" {
            return Ok(Recipient::All);
        }
        if let Some(session) = self.by_name.get(name) {
            return Ok(Recipient::Session(*session));
        }
        let names = self.by_name.keys().map(String::as_str);
        let near = nearest(name, names.take(MOST_COMPARED));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Err(format!("there is no session `{}`{near}", shown(name)))
    }

    /// The one session of a name.
    fn one(&self, name: &str) -> Result<SessionId, String> {
        match self.find(name)? {
            Recipient::Session(session) => Ok(session),
            Recipient::All => {
                Err("this line is for one session: name it in place of `*`".to_owned())
            }
        }
    }

    /// The session with a context of this name.
    fn with_context(
        &self,
        spec: &MachineSpec,
        context: &str,
        of: Option<&str>,
    ) -> Result<SessionId, String> {
        let of = of.map(|name| self.one(name)).transpose()?;
        let mut found = spec.contexts.iter().filter(|known| known.name == context);
        match (of, found.next(), found.next()) {
            (Some(session), ..) => Ok(session),
            (None, Some(only), None) => Ok(only.session),
            (None, None, _) => {
                let near = nearest(context, spec.contexts.iter().map(|known| known.name.as_str()));
                let near =
                    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                Err(format!("there is no context `{}`{near}", shown(context)))
            }
            (None, Some(_), Some(_)) => {
                Err(format!("several sessions have a context `{context}`: name one with `of`"))
            }
        }
    }
}
