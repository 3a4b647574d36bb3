//! Why a coroutine runs in the next step, or does not.
//!
//! Contract: the question is about the next step from where a timeline stands. Boundaries on the
//! way to that step (a wave's end, a frame's begin) are passed first, so what is said is what the
//! scheduler decides on. The timeline stands where it stood when the answer is given.

use crate::inversion::{Inversion, inversion};
use crate::names::show;
use crate::time::{self, ContextRow};
use crate::words;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::{CoroutineName, CoroutineRef, SessionId};
use wavelock_kernel::{BlockReason, Candidate, State};
use wavelock_replay::{Position, Timeline, TimelineError};
use wavelock_system::{CoroutineLook, Presence, Stage, WaitTarget, Waiting, World};

/// Candidates, and those who could end a wait, that are listed; all are counted.
const LISTED: usize = 16;

/// The answer in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It runs in the next step.
    Runs,
    /// It could run, and another goes first or another lane has its turn.
    NotItsTurn,
    /// It sleeps.
    Sleeps,
    /// It waits for something.
    Waits,
    /// It is held back.
    Held,
    /// It is not there.
    Absent,
    /// The run is over.
    Over,
}

impl Verdict {
    /// The word of the JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::NotItsTurn => "not its turn",
            Self::Sleeps => "sleeps",
            Self::Waits => "waits",
            Self::Held => "held",
            Self::Absent => "absent",
            Self::Over => "over",
        }
    }
}

/// One coroutine of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidateRow {
    /// Its name.
    pub coroutine: String,
    /// What it is compared by.
    pub key: String,
    /// It is the one that runs.
    pub chosen: bool,
}

/// Somebody who could end a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HolderRow {
    /// Its name.
    pub coroutine: String,
    /// Its state.
    pub state: String,
}

/// What a coroutine waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitRow {
    /// Why it waits.
    pub reason: &'static str,
    /// For what.
    pub target: String,
    /// Who could end it; the first few.
    pub holders: Vec<HolderRow>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// Where it was asked.
    pub position: Position,
    /// Who it is about.
    pub coroutine: String,
    /// The answer in a word.
    pub verdict: Verdict,
    /// The answer in a sentence.
    pub answer: String,
    /// Its state in words, if it lives.
    pub state: Option<String>,
    /// Its lane, if it lives.
    pub lane: Option<u16>,
    /// The lane that makes the next step.
    pub next_lane: Option<u16>,
    /// The policy's rule.
    pub rule: String,
    /// Who could be picked on its lane, best first; the first few.
    pub candidates: Vec<CandidateRow>,
    /// How many there are.
    pub candidate_count: u64,
    /// What decides on its lane.
    pub because: Option<&'static str>,
    /// What it waits for.
    pub waits_for: Option<WaitRow>,
    /// From it to somebody who can run, or round in a circle: who waits for whom.
    pub chain: Vec<String>,
    /// The chain ends where it began.
    pub cycle: bool,
    /// Whom it waits for is behind others that it would go before itself.
    pub inversion: Option<Inversion>,
    /// The earliest it could become ready, in words.
    pub next_wake: Option<String>,
    /// The context it holds or has lent.
    pub context: Option<ContextRow>,
    /// What happened to its time in the last steps, oldest first.
    pub lately: Vec<String>,
}

/// Answers for the next step from where `timeline` stands.
///
/// # Errors
/// The trace could not be read or run.
pub fn why<R: Read + Seek>(
    timeline: &mut Timeline<R>,
    name: CoroutineName,
) -> Result<Why, TimelineError> {
    let position = timeline.position();
    settle(timeline.world_mut()).map_err(TimelineError::Host)?;
    let mut answer = explain(timeline.world(), position, name);
    timeline.seek_step(position.step)?;
    answer.lately = time::lately(timeline, name)?;
    Ok(answer)
}

/// Passes boundaries until a step can be made, or the run is over.
pub(crate) fn settle(world: &mut World) -> Result<(), wavelock_system::HostFailure> {
    loop {
        match world.stage() {
            Stage::Over => return Ok(()),
            Stage::Wave if world.next_lane().is_some() => return Ok(()),
            Stage::Wave => world.close_wave(),
            Stage::Boundary | Stage::Frame => {
                world.advance(&mut ())?;
            }
        }
    }
}

fn explain(world: &World, position: Position, name: CoroutineName) -> Why {
    let spec = world.spec();
    let mut why = Why {
        position,
        coroutine: show(name, spec),
        verdict: Verdict::Absent,
        answer: String::new(),
        state: None,
        lane: None,
        next_lane: world.next_lane(),
        rule: words::rule(&spec.policy),
        candidates: Vec::new(),
        candidate_count: 0,
        because: None,
        waits_for: None,
        chain: Vec::new(),
        cycle: false,
        inversion: None,
        next_wake: None,
        context: time::context_of(world, name),
        lately: Vec::new(),
    };
    let Some(look) = world.look(name) else {
        why.answer = absent(world, name);
        return why;
    };
    why.lane = Some(look.lane);
    why.state = look.state.map(|state| state.to_string());
    let lane = world.look_at_lane(look.lane);
    let winner = lane.as_ref().and_then(|lane| lane.next);
    why.because = winner.map(|next| words::because(next.because));
    if let Some(lane) = &lane {
        why.candidate_count = lane.candidates.len() as u64;
        let chosen = winner.map(|next| next.winner.reference);
        let row = |candidate: &Candidate| CandidateRow {
            coroutine: tagged(world, candidate),
            key: words::key(candidate.key),
            chosen: Some(candidate.reference) == chosen,
        };
        why.candidates = lane.candidates.iter().take(LISTED).map(row).collect();
        // Who is asked about is shown, however far back it stands.
        let own = |candidate: &&Candidate| tagged(world, candidate) == why.coroutine;
        let shown: Vec<CandidateRow> =
            lane.candidates.iter().skip(LISTED).filter(own).map(row).collect();
        why.candidates.extend(shown);
    }
    let runs_next = winner.is_some_and(|next| tagged(world, &next.winner) == why.coroutine);
    (why.verdict, why.answer) = verdict(
        world,
        &look,
        why.next_lane,
        runs_next,
        winner.map(|next| tagged(world, &next.winner)),
    );
    if let Some(sentence) = why
        .context
        .as_ref()
        .filter(|context| context.lent_to.is_none())
        .and_then(ContextRow::sentence)
    {
        why.answer = if why.verdict == Verdict::Held {
            sentence
        } else {
            format!("{}; {sentence}", why.answer)
        };
    }
    if why.verdict == Verdict::Waits {
        why.waits_for = look.waiting.as_ref().map(|waiting| wait_row(world, waiting));
        let names;
        (names, why.cycle) = chain(world, name);
        why.chain = names.into_iter().map(|name| show(name, world.spec())).collect();
        why.inversion = inversion(world, name);
    }
    why.next_wake = next_wake(world, &look, &why);
    if world.stage() == Stage::Over {
        why.verdict = Verdict::Over;
        why.answer = format!("the run is over; it was {}", why.state.clone().unwrap_or_default());
    }
    why
}

fn verdict(
    world: &World,
    look: &CoroutineLook,
    next_lane: Option<u16>,
    runs_next: bool,
    winner: Option<String>,
) -> (Verdict, String) {
    let winner = winner.unwrap_or_else(|| "nobody".into());
    match look.state {
        Some(State::Ready | State::Running) if next_lane != Some(look.lane) => {
            let turn =
                next_lane.map_or_else(|| "no lane".to_owned(), |lane| format!("lane {lane}"));
            let then = if runs_next {
                "it is what its lane runs next".to_owned()
            } else {
                format!("its lane runs {winner} next")
            };
            (
                Verdict::NotItsTurn,
                format!("the next step is made by {turn}; it is on lane {}, and {then}", look.lane),
            )
        }
        Some(State::Ready | State::Running) if runs_next => {
            (Verdict::Runs, format!("it runs in the next step, on lane {}", look.lane))
        }
        Some(State::Ready | State::Running) => {
            (Verdict::NotItsTurn, format!("it is ready, and {winner} goes first"))
        }
        Some(State::Sleeping { until }) => (
            Verdict::Sleeps,
            format!("it asked to sleep until frame {}; this is frame {}", until.0, world.frame().0),
        ),
        Some(State::Blocked { reason }) => {
            (Verdict::Waits, format!("it waits for {}", reason.meaning()))
        }
        Some(State::Throttled { .. }) => (Verdict::Held, "it could run, but is held back".into()),
        Some(State::Finished | State::Faulted | State::Canceled) => {
            (Verdict::Absent, "it has ended".into())
        }
        None => (
            Verdict::NotItsTurn,
            format!("it was spawned on lane {} and begins there when this wave ends", look.lane),
        ),
    }
}

fn absent(world: &World, name: CoroutineName) -> String {
    match world.presence(name) {
        None => "there is no such session".into(),
        Some(Presence::SessionOver(outcome)) => format!("its session is over: {}", outcome.name()),
        Some(Presence::Ended) => "it has ended, and its result waits to be joined".into(),
        Some(Presence::Gone(None)) => "it has not been spawned: its slot was never used".into(),
        Some(Presence::Gone(Some(found))) if found > name.reference.generation => {
            format!(
                "it has ended: slot {} is in its {}. use now",
                name.reference.slot,
                u64::from(found) + 1
            )
        }
        Some(Presence::Gone(Some(_)) | Presence::Live) => "it has not been spawned".into(),
    }
}

/// The coroutine that a candidate of a lane is.
pub(crate) fn tagged(world: &World, candidate: &Candidate) -> String {
    let (session, slot) = (SessionId(candidate.tag.session()), candidate.tag.slot());
    let generation = world.generation(session, slot).unwrap_or(0);
    show(CoroutineName { session, reference: CoroutineRef::new(slot, generation) }, world.spec())
}

fn wait_row(world: &World, waiting: &Waiting) -> WaitRow {
    let holder = |name: CoroutineName| HolderRow {
        coroutine: show(name, world.spec()),
        state: world.look(name).map_or_else(
            || "gone".into(),
            |look| look.state.map_or_else(|| "begins".into(), |state| state.to_string()),
        ),
    };
    WaitRow {
        reason: waiting.reason.name(),
        target: target(world, waiting),
        holders: holders(world, waiting).into_iter().take(LISTED).map(holder).collect(),
    }
}

fn target(world: &World, waiting: &Waiting) -> String {
    let channel = |id: &wavelock_abi::ChannelId| {
        let owner = world
            .spec()
            .sessions
            .get(id.owner.0 as usize)
            .map_or("?", |session| session.name.as_str());
        match world.look_at_channel(*id) {
            Some(look) => format!(
                "channel {owner}/{} ({} of {} messages)",
                id.index, look.queued, look.capacity
            ),
            None => format!("channel {owner}/{}", id.index),
        }
    };
    match &waiting.target {
        WaitTarget::Channel(id) => channel(id),
        WaitTarget::Channels(ids) => ids.iter().map(channel).collect::<Vec<_>>().join(", "),
        WaitTarget::Coroutine(name) => show(*name, world.spec()),
        WaitTarget::Input => "input".into(),
    }
}

/// Who could end a wait: for room the owner's coroutines, for a message those of every session that
/// may send.
pub(crate) fn holders(world: &World, waiting: &Waiting) -> Vec<CoroutineName> {
    let of = |session: SessionId| {
        world
            .coroutines(session)
            .into_iter()
            .map(move |reference| CoroutineName { session, reference })
    };
    let sources = |id: &wavelock_abi::ChannelId| {
        world.look_at_channel(*id).map(|look| look.sources).unwrap_or_default()
    };
    let mut sessions: Vec<SessionId> = match &waiting.target {
        WaitTarget::Coroutine(name) => return vec![*name],
        WaitTarget::Input => return Vec::new(),
        WaitTarget::Channel(id)
            if matches!(waiting.reason, BlockReason::ChannelSend | BlockReason::Reply) =>
        {
            vec![id.owner]
        }
        WaitTarget::Channel(id) => sources(id),
        WaitTarget::Channels(ids) => ids.iter().flat_map(sources).collect(),
    };
    sessions.sort_unstable();
    sessions.dedup();
    sessions.into_iter().flat_map(of).filter(|&name| name != waiting.coroutine).collect()
}

/// Follows who waits for whom until somebody is not waiting, or one comes again.
pub(crate) fn chain(world: &World, from: CoroutineName) -> (Vec<CoroutineName>, bool) {
    let mut seen = vec![from];
    let mut at = from;
    while let Some(waiting) = world.look(at).and_then(|look| look.waiting) {
        let all = holders(world, &waiting);
        let waits =
            |name: &CoroutineName| world.look(*name).is_some_and(|look| look.waiting.is_some());
        // Somebody who does not wait can end it; otherwise the chain goes on, through another
        // session first.
        let next = all
            .iter()
            .find(|name| !waits(name))
            .or_else(|| all.iter().find(|name| name.session != at.session))
            .or(all.first());
        let Some(&next) = next else { break };
        let again = seen.contains(&next);
        seen.push(next);
        if again {
            return (seen, true);
        }
        at = next;
    }
    (seen, false)
}

fn next_wake(world: &World, look: &CoroutineLook, why: &Why) -> Option<String> {
    let now = world.frame().0;
    match look.state? {
        State::Sleeping { until } => Some(format!(
            "at the begin of frame {}, {} frames from now",
            until.0,
            until.0.saturating_sub(now)
        )),
        State::Blocked { reason: BlockReason::Input } => Some(world.next_input().map_or_else(
            || "never: no input is left".into(),
            |frame| format!("when input comes, the next in frame {}", frame.0),
        )),
        State::Throttled { .. } => {
            let (amount, at) = why
                .context
                .as_ref()
                .filter(|context| context.phase == "throttled")?
                .next_refill()?;
            Some(format!("at lane clock {at}, when {amount} cycles come back"))
        }
        State::Blocked { reason: BlockReason::OtherLane } => Some("at the end of this wave".into()),
        State::Blocked { .. } if why.cycle => Some(
            "never by those who wait for each other; only by somebody from outside the circle"
                .into(),
        ),
        State::Blocked { .. } => {
            Some(why.chain.last().filter(|last| **last != why.coroutine).map_or_else(
                || "never: nobody is left who could".into(),
                |last| format!("when {last} lets it"),
            ))
        }
        _ => None,
    }
}

impl Why {
    /// The answer for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} at {}: {}\n", self.coroutine, self.position, self.answer);
        if let Some(state) = &self.state {
            let _ = writeln!(text, "  state      {state}");
        }
        if let Some(wait) = &self.waits_for {
            let _ = writeln!(text, "  waits for  {}", wait.target);
            for holder in &wait.holders {
                let _ = writeln!(text, "  could end  {} ({})", holder.coroutine, holder.state);
            }
        }
        if let Some(context) = &self.context {
            text.push_str(&context.lines());
        }
        for line in &self.lately {
            let _ = writeln!(text, "  lately     {line}");
        }
        if self.chain.len() > 1 {
            let arrow = self.chain.join(" -> ");
            let _ =
                writeln!(text, "  {}  {arrow}", if self.cycle { "circle   " } else { "chain    " });
        }
        if let Some(inversion) = &self.inversion {
            text.push_str(&inversion.lines());
        }
        if let Some(wake) = &self.next_wake {
            let _ = writeln!(text, "  next wake  {wake}");
        }
        if let Some(lane) = self.lane {
            let _ = writeln!(text, "  rule       {}", self.rule);
            let _ = writeln!(text, "  lane {lane}: {} could be picked", self.candidate_count);
            for row in &self.candidates {
                let _ = writeln!(
                    text,
                    "    {} {}  ({})",
                    if row.chosen { ">" } else { " " },
                    row.coroutine,
                    row.key
                );
            }
            if let Some(because) = self.because {
                let _ = writeln!(text, "  because    {because}");
            }
        }
        text
    }
}
