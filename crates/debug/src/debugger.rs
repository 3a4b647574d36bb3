//! The debugger: a command in, text out.
//!
//! A position is a number of steps and, inside the next slice, a number of safepoints and of
//! instructions after them. Inside a slice the machine is a probe that ran part of the slice: the
//! next move starts from the step again (`inside`).

use crate::breakpoint::{Breakpoint, Watch};
use crate::command::{Command, HELP, Unit};
use crate::names::{function_name, parse_coroutine, parse_session, show};
use crate::symbols::Lines;
use crate::time;
use crate::walk::{CONTINUE, Progress};
use crate::why::{Here, is_between_steps, run_boundaries, why};
use crate::words;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::{CoroutineName, Cycles, LaneId, SessionId};
use wavelock_replay::{Position, Timeline, TimelineError};
use wavelock_system::{CoroutineLook, Probe, World};

/// Maximum printed rows of a list; the rest are counted.
pub(crate) const SHOWN: usize = 64;

/// Steps of the first interval that a backward search scans.
const INTERVAL: u64 = 256;

/// Maximum bytes of one `memory` command.
const MOST_BYTES: u64 = 4096;

/// The source of an event: a lane, or the machine.
fn lane_name(lane: Option<u16>) -> String {
    lane.map_or_else(|| "machine".to_owned(), |lane| format!("lane {lane}"))
}

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Text that ends with a newline.
    Text(String),
    /// An error message.
    Refused(String),
    /// `quit` was entered.
    Quit,
}

/// A machine under the debugger.
pub struct Debugger<R> {
    pub(crate) timeline: Timeline<R>,
    breakpoints: Vec<Breakpoint>,
    /// The position inside the next slice, if the machine is a probe.
    pub(crate) inside: Option<Probe>,
    /// The position that the probe started from; the timeline's own is wrong while there is a
    /// probe.
    pub(crate) from: Position,
    /// See [`Debugger::probe_cycles`].
    pub(crate) looked: Cycles,
    last: Option<String>,
    progress: Option<Progress>,
    /// The step before or in which a function breakpoint stopped last; the next search forwards
    /// does not stop at this step's functions again.
    stopped_in: Option<u64>,
}

impl<R: Read + Seek> Debugger<R> {
    /// A debugger at the current position of the timeline.
    pub fn new(timeline: Timeline<R>) -> Self {
        let from = timeline.position();
        Self {
            timeline,
            breakpoints: Vec::new(),
            inside: None,
            from,
            looked: Cycles::ZERO,
            last: None,
            progress: None,
            stopped_in: None,
        }
    }

    /// Sets a callback for long forward moves, called after each step, wave or frame. It returns
    /// whether to continue; without it every move runs to its end.
    pub fn on_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// Whether the progress callback wants to continue.
    pub(crate) fn should_continue(&mut self) -> bool {
        let here = self.timeline.position();
        self.progress.as_mut().is_none_or(|progress| progress(here))
    }

    /// The machine in its current state.
    #[must_use]
    pub const fn world(&self) -> &World {
        self.timeline.world()
    }

    /// Guest cycles run by probes, in addition to the steps themselves: the cost of moves inside
    /// slices.
    #[must_use]
    pub const fn probe_cycles(&self) -> Cycles {
        self.looked
    }

    /// The position inside the next slice.
    pub(crate) const fn probe(&self) -> Option<Probe> {
        self.inside
    }

    pub(crate) const fn timeline(&self) -> &Timeline<R> {
        &self.timeline
    }

    /// Executes a line. An empty line repeats the last one.
    ///
    /// # Errors
    /// The trace could not be read or run further.
    pub fn line(&mut self, line: &str) -> Result<Reply, TimelineError> {
        let line = line.trim();
        if line.starts_with('#') {
            return Ok(Reply::Text(String::new()));
        }
        let line = match (line.is_empty(), &self.last) {
            (false, _) => line.to_owned(),
            (true, Some(last)) => last.clone(),
            (true, None) => return Ok(Reply::Text(String::new())),
        };
        match Command::parse(&line) {
            Err(message) => Ok(Reply::Refused(message)),
            Ok(command) => {
                self.last = Some(line);
                self.command(&command)
            }
        }
    }

    // Long: a flat table of commands, one arm each.
    /// Executes a command.
    ///
    /// # Errors
    /// The trace could not be read or run further.
    pub fn command(&mut self, command: &Command) -> Result<Reply, TimelineError> {
        let refuse = |message: String| Ok(Reply::Refused(message));
        let text = match command {
            Command::Quit => return Ok(Reply::Quit),
            Command::Help => HELP.to_owned(),
            Command::Forward(unit, count) => {
                let end = self.forward(*unit, *count)?;
                self.arrival() + &end.sentence(*unit, *count, "the run has ended")
            }
            Command::Back(unit, count) => {
                let end = self.back(*unit, *count)?;
                self.arrival() + &end.sentence(*unit, *count, "this is the start of the run")
            }
            Command::GotoStep(step) => {
                self.leave_probe()?;
                let end = self.goto_step(*step)?;
                self.arrival() + &end.sentence(Unit::Step, *step, "the run has ended")
            }
            Command::GotoFrame(frame) => {
                self.leave_probe()?;
                let reached = self.timeline.seek_frame(*frame)?;
                let missed = reached.frame < *frame;
                self.arrival()
                    + &if missed {
                        format!("there is no frame {frame}: the run has ended\n")
                    } else {
                        String::new()
                    }
            }
            Command::Break(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                match Breakpoint::parse(&words, self.world()) {
                    Err(message) => return refuse(message),
                    Ok(breakpoint) => {
                        self.breakpoints.push(breakpoint);
                        format!("breakpoint {}\n", self.breakpoints.len() - 1)
                    }
                }
            }
            Command::Breaks => {
                let row = |(at, breakpoint): (usize, &Breakpoint)| {
                    format!("{at}  {}\n", breakpoint.text(self.world()))
                };
                self.breakpoints.iter().enumerate().map(row).collect()
            }
            Command::Delete(at) if *at < self.breakpoints.len() => {
                self.breakpoints.remove(*at);
                String::new()
            }
            Command::Delete(at) => {
                return refuse(format!("there is no breakpoint {at}; `breaks` lists them"));
            }
            Command::Continue => self.run_to_breakpoint(true)?,
            Command::Reverse => self.run_to_breakpoint(false)?,
            Command::Coroutines(session) => match self.sessions(session.as_deref()) {
                Ok(sessions) => self.before_next_step(|here| here.coroutines(&sessions))?,
                Err(message) => return refuse(message),
            },
            Command::Stack(name) => match self.coroutine(name) {
                Ok(look) => self.stack(&look),
                Err(message) => return refuse(message),
            },
            Command::Channels(session) => match self.sessions(session.as_deref()) {
                Ok(sessions) => self.before_next_step(|here| here.channels(&sessions))?,
                Err(message) => return refuse(message),
            },
            Command::Memory(session, address, length) => {
                match self.memory(session, *address, *length) {
                    Ok(text) => text,
                    Err(message) => return refuse(message),
                }
            }
            Command::Why(name) => match parse_coroutine(name, self.world()) {
                Err(error) => return refuse(error.to_string()),
                Ok(name) => {
                    self.leave_probe()?;
                    why(&mut self.timeline, name)?.text()
                }
            },
            Command::Contexts => self.before_next_step(Self::contexts)?,
            Command::Caps => self.before_next_step(Self::caps)?,
            Command::Leases => self.before_next_step(Self::leases)?,
            Command::Events => self.events(),
            Command::Lanes => self.before_next_step(Self::lanes)?,
            Command::Where => self.place(),
            Command::Screen => self.screen(),
        };
        Ok(Reply::Text(text))
    }

    /// What `show` prints of the state in which the next step begins, which is also what `why`
    /// explains: at the end of a wave or frame, that after the boundaries.
    fn before_next_step(
        &mut self,
        show: impl FnOnce(&Self) -> String,
    ) -> Result<String, TimelineError> {
        if self.inside.is_some() || is_between_steps(self.world()) || self.timeline.is_over() {
            return Ok(show(self));
        }
        let here = Here::of(&self.timeline);
        run_boundaries(self.timeline.world_mut()).map_err(TimelineError::Host)?;
        let text = show(self);
        here.return_to(&mut self.timeline)?;
        Ok(text)
    }

    /// Goes back to the step that the probe started from.
    pub(crate) fn leave_probe(&mut self) -> Result<(), TimelineError> {
        if self.inside.take().is_some() {
            self.timeline.seek_step(self.from.step)?;
        }
        Ok(())
    }

    fn run_to_breakpoint(&mut self, forwards: bool) -> Result<String, TimelineError> {
        if self.breakpoints.is_empty() && !forwards {
            return Ok("no breakpoint is set; use `break` to set one\n".into());
        }
        self.leave_probe()?;
        if self.breakpoints.iter().any(|breakpoint| breakpoint.function().is_some()) {
            self.timeline.profile();
        }
        let hit = if forwards { self.search_forward()? } else { self.search_back()? };
        let mut text = match hit.is_empty() {
            false => hit
                .iter()
                .map(|&at| {
                    format!(
                        "breakpoint {at}: {}\n",
                        self.breakpoints[at].text(self.timeline.world())
                    )
                })
                .collect(),
            true if !forwards => "no breakpoint was hit: this is the start of the run\n".to_owned(),
            true if self.timeline.is_over() => {
                "no breakpoint was hit: the run has ended\n".to_owned()
            }
            true => format!("no breakpoint was hit so far; {CONTINUE}\n"),
        };
        text.push_str(&self.arrival());
        Ok(text)
    }

    /// Runs forwards to the next step that hits breakpoints and returns these; none at the run's
    /// end, or if the progress callback stopped the search.
    fn search_forward(&mut self) -> Result<Vec<usize>, TimelineError> {
        let mut watch = Watch::default();
        let mut hit = watch.hits(&self.breakpoints, &self.timeline);
        let mut is_passed = self.stopped_in == Some(self.timeline.position().step);
        let (breakpoints, progress) = (&self.breakpoints, &mut self.progress);
        self.timeline.forward_until(|timeline| {
            hit = watch.hits(breakpoints, timeline);
            if std::mem::take(&mut is_passed) {
                hit.retain(|&at| breakpoints[at].function().is_none());
            }
            !(hit.is_empty()
                && progress.as_mut().is_none_or(|progress| progress(timeline.position())))
        })?;
        let functions = hit.iter().filter_map(|&at| self.breakpoints[at].function());
        if let Some(function) = functions.map(str::to_owned).next() {
            self.before(&function)?;
            self.stopped_in = Some(self.from.step);
        }
        Ok(hit)
    }

    /// Goes back to the previous step that hit breakpoints and returns these. Scans intervals
    /// forwards, the last one first, each twice as long as the one after it.
    fn search_back(&mut self) -> Result<Vec<usize>, TimelineError> {
        let first = self.timeline.first_step();
        // At the run's end the last step is also behind the current position.
        let mut end = self.timeline.position().step + u64::from(self.timeline.is_over());
        let mut length = INTERVAL;
        while end > first + 1 {
            let begin = first.max(end.saturating_sub(length + 1));
            self.timeline.seek_step(begin)?;
            let mut watch = Watch::default();
            let mut last = (begin, watch.hits(&self.breakpoints, &self.timeline));
            while self.timeline.position().step + 1 < end && self.timeline.step_forward()? {
                let hits = watch.hits(&self.breakpoints, &self.timeline);
                if !hits.is_empty() {
                    last = (self.timeline.position().step, hits);
                }
            }
            if !last.1.is_empty() {
                self.timeline.seek_step(last.0)?;
                return Ok(last.1);
            }
            end = begin + 1;
            length = length.saturating_mul(2);
        }
        self.timeline.seek_step(first)?;
        Ok(Vec::new())
    }

    fn sessions(&self, text: Option<&str>) -> Result<Vec<SessionId>, String> {
        match text {
            Some(text) => parse_session(text, self.world().spec())
                .map(|session| vec![session])
                .map_err(|error| error.to_string()),
            None => Ok((0..self.world().spec().sessions.len() as u32).map(SessionId).collect()),
        }
    }

    fn coroutine(&self, text: &str) -> Result<CoroutineLook, String> {
        let name = parse_coroutine(text, self.world()).map_err(|error| error.to_string())?;
        self.world().look(name).ok_or_else(|| {
            format!(
                "{} does not exist at this step; `why` explains what happened to it",
                show(name, self.world().spec())
            )
        })
    }

    /// The position, and the last step.
    fn arrival(&self) -> String {
        let mut text = self.place();
        if self.inside.is_none()
            && let Some(step) = self.last_step()
        {
            let _ = writeln!(text, "  {step}");
        }
        text
    }

    pub(crate) fn place(&self) -> String {
        let here = if self.inside.is_some() { self.from } else { self.timeline.position() };
        let mut text = here.to_string();
        if let Some(probe) = self.inside {
            let who = show(probe.name, self.world().spec());
            let instructions = if probe.instructions > 0 {
                format!(" and {} instructions", probe.instructions)
            } else {
                String::new()
            };
            let _ = write!(
                text,
                ", {} safepoints{instructions} ({} cycles) into the slice of {who}",
                probe.safepoints, probe.used.0
            );
            if let Some(look) = self.world().look(probe.name) {
                let _ = write!(text, ", in {}", self.innermost(&look));
            }
        }
        if self.timeline.is_over() {
            text.push_str(", the run has ended");
        }
        text.push('\n');
        text.push_str(&self.instruction());
        text
    }

    fn session_name(&self, number: u64) -> String {
        self.world()
            .spec()
            .sessions
            .get(number as usize)
            .map_or_else(|| format!("session {number}"), |session| session.name.clone())
    }

    fn describe(&self, lane: Option<u16>, event: &wavelock_trace::Event<'_>) -> String {
        time::describe(self.world(), lane.unwrap_or(0), event)
    }

    fn last_step(&self) -> Option<String> {
        let last = self.timeline.happened().last()?;
        let event = last.events().flatten().last()?;
        Some(format!("{}: {}", lane_name(last.lane), self.describe(last.lane, &event)))
    }

    pub(crate) fn events(&self) -> String {
        let mut text = String::new();
        for part in self.timeline.happened() {
            let lane = lane_name(part.lane);
            for event in part.events().flatten() {
                let _ = writeln!(text, "{lane}: {}", self.describe(part.lane, &event));
            }
        }
        text
    }

    pub(crate) fn innermost(&self, look: &CoroutineLook) -> String {
        look.stack.first().map_or_else(
            || "(no function)".into(),
            |place| self.function(look.name.session, place.function),
        )
    }

    pub(crate) fn function(&self, session: SessionId, function: u32) -> String {
        let spec = self.world().spec();
        function_name(&spec.modules[spec.sessions[session.0 as usize].module], function)
    }

    pub(crate) fn coroutines(&self, sessions: &[SessionId]) -> String {
        let mut text = String::new();
        let names: Vec<CoroutineName> = sessions
            .iter()
            .flat_map(|&session| {
                self.world()
                    .coroutines(session)
                    .into_iter()
                    .map(move |reference| CoroutineName { session, reference })
            })
            .collect();
        for look in names.iter().take(SHOWN).filter_map(|&name| self.world().look(name)) {
            let state = look.state.map_or_else(
                || "spawned, starts at the wave's end".into(),
                |state| state.to_string(),
            );
            let name = show(look.name, self.world().spec());
            let context = time::context_of(self.world(), look.name)
                .map_or_else(String::new, |context| format!("; {}", context.short()));
            let _ = writeln!(
                text,
                "{name:<18} lane {:<3} {:>10} cycles  {:<20} {state}{context}",
                look.lane.0,
                look.used.0,
                self.innermost(&look)
            );
        }
        if names.len() > SHOWN {
            let _ = writeln!(text, "and {} more", names.len() - SHOWN);
        }
        if names.is_empty() {
            text.push_str("no coroutines\n");
        }
        text
    }

    fn stack(&self, look: &CoroutineLook) -> String {
        let mut text = format!(
            "{}: {}\n",
            show(look.name, self.world().spec()),
            look.state.map_or_else(String::new, |state| state.to_string())
        );
        let module = self.world().spec().sessions[look.name.session.0 as usize].module;
        let bytes = self.timeline.archive().machine.modules.get(module);
        let lines = bytes.and_then(|bytes| Lines::read(bytes));
        for (depth, place) in look.stack.iter().enumerate().take(SHOWN) {
            // A caller is behind its call.
            let offset = place.offset.saturating_sub(u32::from(depth > 0));
            let line = lines.as_ref().and_then(|lines| lines.line(offset));
            let line = line.map_or_else(String::new, |line| format!(", {line}"));
            let _ = writeln!(
                text,
                "  #{depth} {} at byte {:#x}{line}",
                self.function(look.name.session, place.function),
                place.offset
            );
        }
        if look.stack.len() > SHOWN {
            let _ = writeln!(text, "  and {} more", look.stack.len() - SHOWN);
        }
        text
    }

    pub(crate) fn channels(&self, sessions: &[SessionId]) -> String {
        let mut text = String::new();
        let all: Vec<_> =
            sessions.iter().flat_map(|&session| self.world().channels(session)).collect();
        for look in all.iter().take(SHOWN) {
            let list = |names: &[CoroutineName]| {
                names
                    .iter()
                    .take(8)
                    .map(|&name| show(name, self.world().spec()))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let owner = self.session_name(u64::from(look.id.owner.0));
            let _ = write!(text, "{owner}/{:<4} {}/{}", look.id.index, look.queued, look.capacity);
            if look.closed {
                text.push_str(" closed");
            }
            if !look.receivers.is_empty() {
                let _ = write!(text, "  receive: {}", list(&look.receivers));
            }
            if !look.senders.is_empty() {
                let _ = write!(text, "  send: {}", list(&look.senders));
            }
            text.push('\n');
        }
        if all.len() > SHOWN {
            let _ = writeln!(text, "and {} more", all.len() - SHOWN);
        }
        if all.is_empty() {
            text.push_str("no channels\n");
        }
        text
    }

    /// Every context and its holder.
    pub(crate) fn contexts(&self) -> String {
        let all = self.world().contexts();
        let mut text = String::new();
        for summary in all.iter().take(SHOWN) {
            let holder = summary.holder.map_or_else(
                || "no coroutine".to_owned(),
                |(id, slot)| format!("{}/{slot}", self.session_name(u64::from(id.0))),
            );
            let row = time::row(self.world(), summary, None);
            let _ = writeln!(
                text,
                "lane {:<3} {}; held by {holder}; every {}, {} charged",
                summary.lane.0,
                row.short(),
                row.period_cycles,
                row.charged_cycles
            );
        }
        if all.len() > SHOWN {
            let _ = writeln!(text, "and {} more", all.len() - SHOWN);
        }
        if all.is_empty() {
            text.push_str("no contexts\n");
        }
        text
    }

    /// Every cap and its account.
    fn leases(&self) -> String {
        let all = self.world().leases();
        let lines = all.iter().map(|lease| words::lease(self.world(), lease) + "\n");
        if all.is_empty() { "no leases\n".to_owned() } else { lines.collect() }
    }

    fn caps(&self) -> String {
        let all = self.world().caps();
        let mut text = String::new();
        for cap in all.iter().take(SHOWN) {
            let session = self.session_name(u64::from(cap.session.0));
            let _ = writeln!(text, "{session}: {}", words::cap_text(cap));
        }
        if all.len() > SHOWN {
            let _ = writeln!(text, "and {} more", all.len() - SHOWN);
        }
        if all.is_empty() {
            text.push_str("no caps\n");
        }
        text
    }

    fn memory(&self, session: &str, address: u64, length: u64) -> Result<String, String> {
        let session =
            parse_session(session, self.world().spec()).map_err(|error| error.to_string())?;
        if length > MOST_BYTES {
            return Err(format!("`memory` prints at most {MOST_BYTES} bytes, not {length}"));
        }
        let Some(bytes) = self.world().memory(session, address, length) else {
            return Err(format!(
                "{length} bytes at {address:#x} exceed the memory of this session"
            ));
        };
        let mut text = String::new();
        for (row, line) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let plain: String = line
                .iter()
                .map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' })
                .collect();
            let _ =
                writeln!(text, "{:08x}  {:<47}  {plain}", address + 16 * row as u64, hex.join(" "));
        }
        Ok(text)
    }

    pub(crate) fn lanes(&self) -> String {
        let mut text = String::new();
        for look in (0..self.world().spec().lanes)
            .filter_map(|lane| self.world().look_at_lane(LaneId(lane)))
        {
            let people = look.population;
            let _ = write!(
                text,
                "lane {:<3} clock {:<12} ready {} running {} sleeping {} blocked {}",
                look.lane.0,
                look.clock.0,
                people.ready,
                people.running,
                people.sleeping,
                people.blocked
            );
            if let Some(next) = look.next {
                let (session, slot) = (next.winner.tag.session(), next.winner.tag.slot());
                let _ = write!(
                    text,
                    "  next {}/{slot}: {}",
                    self.session_name(u64::from(session)),
                    words::because(next.because)
                );
            }
            text.push('\n');
        }
        text
    }
}
