//! Why a coroutine runs in the next step, or does not.
//!
//! Contract: explains the next step at the timeline's position. Boundaries before that step (a
//! wave's end, a frame's start) are run first, so the answer uses the state on which the scheduler
//! decides. The timeline's position is unchanged afterwards.

use crate::inversion::{Inversion, inversion};
use crate::names::show;
use crate::time::{self, ContextRow};
use crate::words;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::{CoroutineName, CoroutineRef, LaneId, SessionId};
use wavelock_kernel::{BlockReason, Candidate, CapOverrun, Ledger, State};
use wavelock_replay::{Position, Timeline, TimelineError};
use wavelock_system::{
    CapSummary, CoroutineLook, KillRule, LeaseSummary, Presence, Stage, WaitTarget, Waiting, World,
};

/// Maximum number of listed candidates and holders; the rest are counted.
const LISTED: usize = 16;

/// The answer as a keyword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It runs in the next step.
    Runs,
    /// It is ready, but another coroutine or another lane runs next.
    NotItsTurn,
    /// It is asleep.
    Sleeps,
    /// It is blocked.
    Waits,
    /// It is throttled.
    Throttled,
    /// It does not exist.
    Absent,
    /// The run has ended.
    Over,
}

impl Verdict {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::NotItsTurn => "not its turn",
            Self::Sleeps => "sleeps",
            Self::Waits => "waits",
            Self::Throttled => "throttled",
            Self::Absent => "absent",
            Self::Over => "over",
        }
    }
}

/// One candidate of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidateRow {
    /// Its name.
    pub coroutine: String,
    /// The key it is ordered by.
    pub key: String,
    /// Whether it is the one that runs.
    pub chosen: bool,
}

/// A coroutine that could end a wait.
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
    /// What it waits for.
    pub target: String,
    /// The first few coroutines that could end it.
    pub holders: Vec<HolderRow>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The position that was explained.
    pub position: Position,
    /// The coroutine.
    pub coroutine: String,
    /// The answer as a keyword.
    pub verdict: Verdict,
    /// The answer in a sentence.
    pub answer: String,
    /// Its state in words, if it lives.
    pub state: Option<String>,
    /// What it has consumed so far, if it lives.
    pub ledger: Option<Ledger>,
    /// Its lane, if it lives.
    pub lane: Option<LaneId>,
    /// The lane that makes the next step.
    pub next_lane: Option<LaneId>,
    /// The policy's rule.
    pub rule: String,
    /// The first few candidates of its lane, best first.
    pub candidates: Vec<CandidateRow>,
    /// The number of candidates.
    pub candidate_count: u64,
    /// Why the first candidate wins.
    pub because: Option<&'static str>,
    /// What it waits for.
    pub waits_for: Option<WaitRow>,
    /// The chain of waits, to a coroutine that can run or around a cycle.
    pub chain: Vec<String>,
    /// Whether the chain is a cycle.
    pub cycle: bool,
    /// The priority inversion it suffers, if any.
    pub inversion: Option<Inversion>,
    /// The earliest it could become ready, in words.
    pub next_wake: Option<String>,
    /// The context it holds or has lent.
    pub context: Option<ContextRow>,
    /// The leases of its lane and of its session, each in a sentence.
    pub leases: Vec<String>,
    /// Recent events of its context, oldest first.
    pub lately: Vec<String>,
}

/// Explains the next step at the position of `timeline`.
///
/// # Errors
/// The trace could not be read or run.
pub fn why<R: Read + Seek>(
    timeline: &mut Timeline<R>,
    name: CoroutineName,
) -> Result<Why, TimelineError> {
    let here = Here::of(timeline);
    run_boundaries(timeline.world_mut()).map_err(TimelineError::Host)?;
    let frame = if timeline.is_over() { here.position } else { timeline.position() }.frame;
    let position = Position { frame, ..here.position };
    let mut answer = explain(timeline.world(), position, name);
    here.return_to(timeline)?;
    answer.lately = time::lately(timeline, name)?;
    here.return_to(timeline)?;
    Ok(answer)
}

/// What there is to say of the leases that concern a coroutine: those of its session, and those of
/// the lane that it is on.
fn leases(world: &World, name: CoroutineName) -> Vec<String> {
    let lane = world.look(name).map(|look| look.lane);
    let concerns = |lease: &&LeaseSummary| {
        lease.session == name.session
            || Some(lease.lane) == lane
            || lease.state.and_then(|state| state.missing?.session) == Some(name.session.0)
    };
    world.leases().iter().filter(concerns).map(|lease| words::lease(world, lease)).collect()
}

/// A position to return to.
pub(crate) struct Here {
    position: Position,
    /// Before the first wave of its frame, where only a move to a frame leads.
    at_boundary: bool,
}

impl Here {
    pub(crate) fn of<R: Read + Seek>(timeline: &Timeline<R>) -> Self {
        let at_boundary = timeline.world().stage() == Stage::Boundary;
        Self { position: timeline.position(), at_boundary }
    }

    pub(crate) fn return_to<R: Read + Seek>(
        &self,
        timeline: &mut Timeline<R>,
    ) -> Result<(), TimelineError> {
        if self.at_boundary {
            timeline.seek_frame(self.position.frame)?;
        } else {
            timeline.seek_step(self.position.step)?;
        }
        Ok(())
    }
}

/// Whether a step can be made without running a boundary first.
pub(crate) fn is_between_steps(world: &World) -> bool {
    world.stage() == Stage::Wave && world.next_lane().is_some()
}

/// Runs boundaries until a step can be made or the run ends.
pub(crate) fn run_boundaries(world: &mut World) -> Result<(), wavelock_system::HostFailure> {
    loop {
        match world.stage() {
            Stage::Over | Stage::Waiting => return Ok(()),
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
        ledger: None,
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
        leases: leases(world, name),
        lately: Vec::new(),
    };
    let Some(look) = world.look(name) else {
        why.answer = absent(world, name);
        return why;
    };
    why.lane = Some(look.lane);
    why.ledger = look.ledger;
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
        // List the coroutine in question even if it is far back in the queue.
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
        why.answer = if why.verdict == Verdict::Throttled {
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
        why.answer = format!("the run has ended; it was {}", why.state.clone().unwrap_or_default());
    }
    why
}

fn verdict(
    world: &World,
    look: &CoroutineLook,
    next_lane: Option<LaneId>,
    runs_next: bool,
    winner: Option<String>,
) -> (Verdict, String) {
    let winner = winner.unwrap_or_else(|| "no coroutine".into());
    match look.state {
        Some(State::Ready | State::Running) if next_lane != Some(look.lane) => {
            let turn =
                next_lane.map_or_else(|| "no lane".to_owned(), |lane| format!("lane {}", lane.0));
            let then = if runs_next {
                "it is the next coroutine of its lane".to_owned()
            } else {
                format!("its lane runs {winner} next")
            };
            (
                Verdict::NotItsTurn,
                format!("the next step is on {turn}; it is on lane {}, and {then}", look.lane.0),
            )
        }
        Some(State::Ready | State::Running) if runs_next => {
            (Verdict::Runs, format!("it runs in the next step, on lane {}", look.lane.0))
        }
        Some(State::Ready | State::Running) => {
            let demoted = spent_cap(world, look)
                .filter(|cap| cap.account.settings.overrun == CapOverrun::Demote)
                .map(|cap| format!("; {}", words::demoted_by_cap(&cap)));
            let demoted = demoted.unwrap_or_default();
            (Verdict::NotItsTurn, format!("it is ready, but {winner} runs first{demoted}"))
        }
        Some(State::Sleeping { until }) => (
            Verdict::Sleeps,
            format!("it sleeps until frame {}; this is frame {}", until.0, world.frame().0),
        ),
        Some(State::Blocked { reason }) => {
            (Verdict::Waits, format!("it waits for {}", reason.meaning()))
        }
        Some(State::Throttled { .. }) => {
            let by_cap = spent_cap(world, look).map(|cap| words::throttled_by_cap(&cap));
            (Verdict::Throttled, by_cap.unwrap_or_else(|| "it is runnable, but throttled".into()))
        }
        Some(State::Finished | State::Faulted | State::Canceled) => {
            (Verdict::Absent, "it has ended".into())
        }
        None => (
            Verdict::NotItsTurn,
            format!("it was spawned on lane {} and starts there when this wave ends", look.lane.0),
        ),
    }
}

fn absent(world: &World, name: CoroutineName) -> String {
    if let Some((kill, context)) = world.kill_of(name) {
        let what =
            if kill.rule == KillRule::Cap { "its session was killed" } else { "it was killed" };
        return format!("{what}: {}", words::kill_text(&kill, context.as_deref()));
    }
    match world.presence(name) {
        None => "there is no such session".into(),
        Some(Presence::SessionOver(outcome)) => {
            format!("its session has ended: {}", outcome.name())
        }
        Some(Presence::Ended) => "it has ended; its result has not been joined yet".into(),
        Some(Presence::Gone(None)) => "it has not been spawned: its slot was never used".into(),
        Some(Presence::Gone(Some(found))) if found > name.reference.generation => {
            format!("it has ended: slot {} now has generation {found}", name.reference.slot)
        }
        Some(Presence::Gone(Some(_)) | Presence::Live) => "it has not been spawned".into(),
    }
}

/// The name of a lane's candidate.
pub(crate) fn tagged(world: &World, candidate: &Candidate) -> String {
    let (session, slot) = (SessionId(candidate.tag.session()), candidate.tag.slot());
    let generation = world.generation(session, slot).unwrap_or(0);
    show(CoroutineName { session, reference: CoroutineRef::new(slot, generation) }, world.spec())
}

fn wait_row(world: &World, waiting: &Waiting) -> WaitRow {
    let holder = |name: CoroutineName| HolderRow {
        coroutine: show(name, world.spec()),
        state: world.look(name).map_or_else(
            || "ended".into(),
            |look| look.state.map_or_else(|| "spawned".into(), |state| state.to_string()),
        ),
    };
    WaitRow {
        reason: waiting.reason.name(),
        target: target(world, waiting),
        holders: holders(world, waiting).into_iter().take(LISTED).map(holder).collect(),
    }
}

fn target(world: &World, waiting: &Waiting) -> String {
    let named = |id: SessionId| {
        let session = world.spec().sessions.get(id.0 as usize);
        session.map_or("?", |session| session.name.as_str())
    };
    let channel = |id: &wavelock_abi::ChannelId| {
        let owner = named(id.owner);
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
        WaitTarget::Reply(function) => match world.spec().host.functions.get(*function) {
            Some(import) => format!("the reply to `{}` `{}`", import.module, import.name),
            None => "a reply".into(),
        },
        WaitTarget::Unpark(_) => "an unpark".into(),
        WaitTarget::Session(id) => format!("the end of session {}", named(*id)),
        WaitTarget::Lease(lease) => match world.leases().get(*lease) {
            Some(lease) => format!("lease {} of lane {}", lease.name, lease.lane.0),
            None => "a lease".into(),
        },
    }
}

/// The coroutines that could end a wait: for space in a channel those of its owner, for a message
/// those of every session that may send.
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
        WaitTarget::Input | WaitTarget::Reply(_) | WaitTarget::Lease(_) => return Vec::new(),
        WaitTarget::Unpark(session) | WaitTarget::Session(session) => vec![*session],
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

/// Follows the waits from a coroutine to one that is not blocked, or around a cycle.
pub(crate) fn chain(world: &World, from: CoroutineName) -> (Vec<CoroutineName>, bool) {
    let mut seen = vec![from];
    let mut at = from;
    while let Some(waiting) = world.look(at).and_then(|look| look.waiting) {
        let all = holders(world, &waiting);
        let waits =
            |name: &CoroutineName| world.look(*name).is_some_and(|look| look.waiting.is_some());
        // Prefer a coroutine that is not blocked; otherwise continue the chain, through another
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

/// The cap of its session on its lane, if that is used up.
fn spent_cap(world: &World, look: &CoroutineLook) -> Option<CapSummary> {
    let mut caps = world.caps_of(look.name.session).into_iter();
    caps.find(|cap| cap.account.is_spent && cap.lane == look.lane)
}

fn next_wake(world: &World, look: &CoroutineLook, why: &Why) -> Option<String> {
    let now = world.frame().0;
    match look.state? {
        State::Sleeping { until } => Some(format!(
            "at the start of frame {}, in {} frames",
            until.0,
            until.0.saturating_sub(now)
        )),
        State::Blocked { reason: BlockReason::Input } => Some(world.next_input().map_or_else(
            || "never: there is no more input".into(),
            |frame| format!("when input arrives, next in frame {}", frame.0),
        )),
        State::Throttled { .. }
            if let Some(until) = spent_cap(world, look).and_then(|cap| cap.until) =>
        {
            let frames = until.0.saturating_sub(now);
            Some(format!("at the start of frame {}, in {frames} frames", until.0))
        }
        State::Throttled { .. } => {
            let (amount, at) = why
                .context
                .as_ref()
                .filter(|context| context.phase == "throttled")?
                .next_refill()?;
            Some(format!("at lane clock {at}, with a refill of {amount} cycles"))
        }
        State::Blocked { reason: BlockReason::OtherLane } => Some("at the end of this wave".into()),
        State::Blocked { .. } if why.cycle => {
            Some("never by the coroutines of the cycle; only by one outside it".into())
        }
        State::Blocked { .. } => {
            Some(why.chain.last().filter(|last| **last != why.coroutine).map_or_else(
                || "never: no coroutine is left that could wake it".into(),
                |last| format!("when {last} wakes it"),
            ))
        }
        _ => None,
    }
}

impl Why {
    /// The answer as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} at {}: {}\n", self.coroutine, self.position, self.answer);
        if let Some(state) = &self.state {
            let _ = writeln!(text, "  state      {state}");
        }
        if let Some(ledger) = &self.ledger {
            let _ = writeln!(text, "  so far     {}", words::ledger(ledger));
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
        for line in &self.leases {
            let _ = writeln!(text, "  lease      {line}");
        }
        for line in &self.lately {
            let _ = writeln!(text, "  lately     {line}");
        }
        if self.chain.len() > 1 {
            let arrow = self.chain.join(" -> ");
            let _ =
                writeln!(text, "  {}  {arrow}", if self.cycle { "cycle    " } else { "chain    " });
        }
        if let Some(inversion) = &self.inversion {
            text.push_str(&inversion.lines());
        }
        if let Some(wake) = &self.next_wake {
            let _ = writeln!(text, "  next wake  {wake}");
        }
        if let Some(lane) = self.lane {
            let _ = writeln!(text, "  rule       {}", self.rule);
            let _ = writeln!(text, "  lane {}: {} candidates", lane.0, self.candidate_count);
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
