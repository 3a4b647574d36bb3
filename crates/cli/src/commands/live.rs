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
use super::interrupt::Interrupt;
use super::memory::MemoryGuard;
use super::streams::Streams;
use crate::arguments::{FrameRate, LiveArguments, OutputMode};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::live::{
    Clients, Dropped, Form, Inbox, Lines, Message, Outlet, Request, Served, SourceId, Verb,
    WhenFull, shown,
};
use crate::manifest::grouped;
use crate::report::{DroppedRow, LiveRow};
use crate::suggest::nearest;
use std::io;
use std::time::{Duration, Instant};
use wavelock::Pacer;
use wavelock_abi::{Frame, SessionId};
use wavelock_system::{Control, Input, MachineSpec, Recipient, Stage, World};
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

/// How long the end of a paced run waits for a reader of its output.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Standard input as a source of requests.
const STANDARD_INPUT: SourceId = SourceId(0);

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
    /// The machine was told to stop, because nothing could happen any more.
    is_stopping: bool,
    taken: u64,
    refused: u64,
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
        streams: &mut Streams<'_>,
        output: &OutputMode,
    ) -> Result<Self, Failure> {
        let rate = match (arguments.fps, arguments.speed) {
            (Some(FrameRate::Max), _) => None,
            (Some(FrameRate::Hz(rate)), _) => Some(rate),
            (None, Some(speed)) => Some(speed * 1e9 / spec.frame_cycles.0 as f64),
            (None, None) => Some(DEFAULT_RATE),
        };
        let form = match &arguments.to {
            None => Form::Json,
            Some(name) => {
                find(spec, name)
                    .map_err(|error| Failure::new(Exit::Refused, format!("--to: {error}")))?;
                Form::Text(name.clone())
            }
        };
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
            is_stopping: false,
            taken: 0,
            refused: 0,
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
                Message::Request(line, request) => (line, self.ask(world, request).err()),
            };
            let Some(reason) = refused else { continue };
            if source == STANDARD_INPUT {
                self.refused += 1;
                if self.refused <= SHOWN_REFUSALS {
                    streams.note(&format!("standard input, line {line}: {}", shown(&reason)));
                }
            } else if let Some(clients) = &streams.clients {
                clients.refuse(source, line, &reason);
            }
        }
    }

    /// Gives the machine one request as an input of its next frame.
    fn ask(&mut self, world: &mut World, request: Request) -> Result<(), String> {
        let input = match request {
            Request::Input { to, bytes } => {
                Input::Bytes { to: find(world.spec(), &to)?, bytes: bytes.into() }
            }
            Request::Close { to } => Input::End { to: find(world.spec(), &to)? },
            Request::Control { verb, to } => match find(world.spec(), &to)? {
                Recipient::Session(session) => Input::Control(match verb {
                    Verb::Hold => Control::Hold { session },
                    Verb::Release => Control::Release { session },
                    Verb::End => Control::End { session },
                }),
                Recipient::All => {
                    return Err("this line is for one session: name it in place of `*`".to_owned());
                }
            },
            Request::Stop => Input::Stop,
        };
        world.give(input).map_err(|refusal| refusal.to_string())?;
        self.taken += 1;
        Ok(())
    }

    /// Whether nothing can happen any more: every session has ended, or the machine is idle and no
    /// input can come.
    fn is_done(&self, world: &mut World) -> bool {
        if self.is_stopping || world.next_frame_number() == Frame::ZERO {
            return false;
        }
        let is_deaf = !self.is_open && !self.is_listening && self.inbox.is_empty();
        world.ended_sessions() == world.spec().sessions.len()
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
            taken: self.taken,
            refused: self.refused + refused,
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

/// The sessions of a name.
fn find(spec: &MachineSpec, name: &str) -> Result<Recipient, String> {
    if name == "*" {
        return Ok(Recipient::All);
    }
    let names = || spec.sessions.iter().map(|session| session.name.as_str());
    match names().position(|session| session == name) {
        Some(number) => Ok(Recipient::Session(SessionId(number as u32))),
        None => {
            let near = nearest(name, names());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            Err(format!("there is no session `{}`{near}", shown(name)))
        }
    }
}
