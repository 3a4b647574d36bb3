//! Compares the shipped kernel with the Coq model: random operation sequences run on both, every
//! answer and the state of every touched lane compared as text.
//!
//! `oracle [--sequences N] [--seed S] [--length L] [--oracle PROGRAM] [--panics ignore]`; 2,000
//! sequences of 300 operations from seed 0 by default. A panic of the kernel counts as a difference
//! unless it is ignored, which is for planted faults. PROGRAM is `proof/oracle/oracle`, made by
//! `proof/oracle/build`. Exit 0: no difference; 1: a difference, printed with its seed, the
//! shortest sequence found that shows it, and both lines; 2: usage.
//!
//! Sequences come from the generator of the kernel's own tests, compiled from the same file. In
//! half of the sequences slices end through `Lane::switch` where it applies, so that the fast paths
//! are compared too. The kernel is used through its public interface alone. Beside each sequence
//! run a refill ring, the admission test and a checker of certificates ([`certificates`]); a run of
//! 1,000 sequences or more fails if a refusal was never given.

mod certificates;
#[allow(dead_code, reason = "only the types of its answers are used here")]
#[path = "../../../crates/kernel/tests/model/mod.rs"]
mod model;
#[allow(dead_code, reason = "only the operations are used here")]
#[path = "../../../crates/kernel/tests/operations/mod.rs"]
mod operations;
mod process;
#[path = "../../../crates/kernel/tests/support/mod.rs"]
mod support;

/// The generator of the kernel's tests, over the [`World`] of this file.
#[path = "."]
mod generated {
    pub(crate) use crate::operations::{End, Kind, Op};

    pub(crate) mod driver {
        pub(crate) use crate::World;
    }

    #[allow(dead_code, reason = "sequences here are not filled first")]
    #[allow(clippy::duplicate_mod, reason = "`operations` has it over a world of its own")]
    #[path = "../../../crates/kernel/tests/operations/generate.rs"]
    pub(crate) mod generate;
}

use certificates::Verdicts;
use generated::generate::Generator;
use model::lane::State as Seen;
use operations::{End, Kind, Op, Setup};
use process::Oracle;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
use support::lane_set::{Applied, Effect, LaneSet, Posted, Steal, WaveSpan};
use wavelock_abi::{
    CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, SCHEDULER_COSTS_V1, Weight,
};
use wavelock_kernel::context::{Demand, RefillRing, Terms, admit};
use wavelock_kernel::{
    BlockReason, BoundReason, Departure, FrameRow, HoldReason, Lane, LaneSettings, Ledger, MoveBan,
    Next, Outcome, Refusal, Reservation, Running, Share, Spawn, State, Stopped, Tag, WakeSource,
};

const USAGE: &str = "usage: oracle [--sequences N] [--seed S] [--length L] [--oracle PROGRAM] \
    [--panics ignore]";
/// All lanes and coroutines are compared after this many operations, and at the end.
const EVERYTHING_AFTER: usize = 16;
/// Replays that shrinking may cost.
const REPLAYS: usize = 3_000;

/// A coroutine the sequence has a number for; `lane`, `reference` and `gone` are the generator's.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) lane: usize,
    pub(crate) reference: CoroutineRef,
    before: Option<(usize, CoroutineRef)>,
    pub(crate) gone: bool,
}

/// What the generator reads of a lane.
pub(crate) struct Seeing {
    pub(crate) clock: u64,
    has_work: bool,
    states: Vec<Option<(u32, Seen)>>,
}

impl Seeing {
    pub(crate) fn state(&self, reference: CoroutineRef) -> Result<Seen, ()> {
        match self.states.get(reference.slot as usize) {
            Some(&Some((generation, state))) if generation == reference.generation => Ok(state),
            _ => Err(()),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.has_work
    }
}

pub(crate) struct Sight {
    pub(crate) lanes: Vec<Seeing>,
}

/// The kernel, and what a sequence needs to know: the commands for the oracle, and the lines that
/// the kernel would answer.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) model: Sight,
    pub(crate) names: Vec<Option<Named>>,
    pub(crate) fresh: Vec<u32>,
    pub(crate) quiet: Vec<bool>,
    kernel: LaneSet,
    slices: Vec<Option<Running>>,
    uses_switch: bool,
    commands: String,
    /// What the kernel answered to each command; `None` where it gave no answer to compare.
    answers: Vec<Option<String>>,
}

fn reference(reference: CoroutineRef) -> String {
    format!("{}:{}", reference.slot, reference.generation)
}

fn state(state: State) -> String {
    match state {
        State::Ready => "ready".into(),
        State::Running => "running".into(),
        State::Sleeping { until } => format!("sleeping:{}", until.0),
        State::Blocked { reason } => format!("blocked:{}", reason as u8),
        State::Throttled { held } => format!("held:{}", held.code()),
        State::Finished => "finished".into(),
        State::Faulted => "faulted".into(),
        State::Canceled => "canceled".into(),
    }
}

fn seen(state: State) -> Seen {
    match state {
        State::Ready => Seen::Ready,
        State::Running => Seen::Running,
        State::Sleeping { until } => Seen::Sleeping { until: until.0 },
        State::Blocked { reason } => Seen::Blocked(reason),
        State::Throttled { held } => Seen::Held(held.code()),
        State::Finished => Seen::Finished,
        State::Faulted => Seen::Faulted,
        State::Canceled => Seen::Canceled,
    }
}

fn refusal(refusal: Refusal) -> String {
    match refusal {
        Refusal::Stale { .. } => "stale".into(),
        Refusal::NotWaiting { state: found } => format!("not-waiting {}", state(found)),
        Refusal::WrongSource { reason, source } => {
            format!("wrong-source {} {}", reason as u8, source as u8)
        }
        Refusal::InSlice { reference: by } => format!("in-slice {}", reference(by)),
        Refusal::NotEnded { state: found } => format!("not-ended {}", state(found)),
        Refusal::Ended { state: found } => format!("ended {}", state(found)),
        Refusal::NotHeld { reason, held } => format!("not-held {} {}", reason as u8, held.code()),
        Refusal::NotReady { state: found } => format!("not-ready {}", state(found)),
        Refusal::SlotTaken { by } => format!("slot-taken {}", reference(by)),
        Refusal::HandoffOff => "handoff-off".into(),
        Refusal::NoSession { .. } => "no-session".into(),
        other => format!("unexpected {other:?}"),
    }
}

fn done(result: Result<(), Refusal>) -> String {
    result.map_or_else(refusal, |()| "ok".into())
}

fn join<T: ToString>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

fn ledger(ledger: Ledger) -> String {
    format!(
        "{} {} {} {} {} {} {} {} {}",
        ledger.runtime.0,
        ledger.wait_total.0,
        ledger.wait_longest.0,
        ledger.switches,
        ledger.preemptions,
        join(ledger.blocks, " "),
        ledger.sleeps,
        ledger.migrations,
        ledger.steals
    )
}

fn running(running: &Running, picked: bool, switched: bool) -> String {
    let why = match running.bound_reason() {
        BoundReason::FrameEnd => "frame",
        BoundReason::Quantum => "quantum",
        BoundReason::WaveEnd => "wave",
        BoundReason::Refill | BoundReason::Release => "context",
        BoundReason::Cap => "cap",
    };
    format!(
        "run {} {} {why} {} {}",
        reference(running.reference()),
        running.bound().0,
        u8::from(picked),
        u8::from(switched)
    )
}

fn row(row: FrameRow) -> String {
    format!(
        "{} {} {} {} {} {}",
        row.frame.0, row.charged.0, row.overhead.0, row.idle.0, row.overrun_in.0, row.overrun_out.0
    )
}

fn delivery(posted: &Posted, applied: &Applied) -> String {
    let what = match *applied {
        Applied::Woken(result) => format!("woken {}", done(result)),
        Applied::Published(Ok(by)) => format!("published {} ok", reference(by)),
        Applied::Published(Err(refused)) => format!("published {}", refusal(refused)),
        Applied::HandedOff { woken, preferred } => {
            format!("handed {} {}", done(woken), u8::from(preferred))
        }
    };
    format!("{} {} {} {} {what}", posted.from.0, posted.step, posted.sequence, posted.to.0)
}

fn summary(lane: &mut Lane, slice: Option<&Running>) -> String {
    let left = slice.map_or("-".into(), |running| lane.left(running, Cycles(0)).0.to_string());
    let totals = lane.totals();
    let population = lane.population();
    let counts = [
        population.ready,
        population.running,
        population.sleeping,
        population.blocked,
        population.throttled,
        population.ended,
    ];
    format!(
        "{} {} {} | {} | {} {} {} {} | {} | {} | {} | {} | {} | {} | {} | {left}",
        lane.clock().0,
        totals.charged.0,
        totals.idle.0,
        join(totals.overhead.map(|cycles| cycles.0), " "),
        lane.picks(),
        lane.step(),
        lane.frame().0,
        lane.frame_end().0,
        join(lane.wakes(), " "),
        lane.current().map_or("-".into(), reference),
        join(counts, " "),
        lane.ready_digest(),
        row(lane.row()),
        lane.next_wake().map_or("-".into(), |frame| frame.0.to_string()),
        u8::from(lane.has_work()),
    )
}

fn coroutine(lane: &Lane, by: CoroutineRef) -> String {
    let all = || -> Result<String, Refusal> {
        Ok(format!(
            "{} | {} | {} | {}",
            state(lane.state(by)?),
            lane.tokens(by)?,
            lane.tag(by)?.0,
            ledger(lane.ledger(by)?)
        ))
    };
    all().unwrap_or_else(refusal)
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Cooperative => 0,
        Kind::RoundRobin => 1,
        Kind::Fixed => 2,
        Kind::Aging => 3,
        Kind::Tokens => 4,
        Kind::Progress => 5,
        Kind::Fair => 6,
        Kind::Sessions => 7,
    }
}

impl World {
    fn new(setup: Setup, uses_switch: bool) -> Self {
        let settings = LaneSettings {
            policy: setup.kind.policy(setup.quantum),
            frame_cycles: Cycles(setup.frame_cycles),
            costs: SCHEDULER_COSTS_V1,
            handoff: setup.handoff,
        };
        let mut kernel = LaneSet::new(setup.lanes, settings);
        let more = Reservation { coroutines: setup.population + 64, sessions: 64 };
        for lane in 0..setup.lanes {
            kernel[LaneId(lane)].reserve(more).expect("memory");
        }
        let lanes = usize::from(setup.lanes);
        let mut world = Self {
            setup,
            model: Sight { lanes: Vec::new() },
            names: Vec::new(),
            fresh: Vec::new(),
            quiet: vec![false; lanes],
            kernel,
            slices: (0..lanes).map(|_| None).collect(),
            uses_switch,
            commands: String::new(),
            answers: Vec::new(),
        };
        world.said(
            format_args!(
                "N {} {} {} {} {}",
                setup.lanes,
                kind_code(setup.kind),
                setup.quantum,
                setup.frame_cycles,
                u8::from(setup.handoff)
            ),
            "new".into(),
        );
        world.look();
        world
    }

    fn said(&mut self, command: std::fmt::Arguments<'_>, answer: String) {
        writeln!(self.commands, "{command}").expect("a string grows");
        self.answers.push(Some(answer));
    }

    fn lane(&mut self, lane: usize) -> &mut Lane {
        &mut self.kernel[LaneId(lane as u16)]
    }

    pub(crate) fn is_open(&self, lane: usize) -> bool {
        self.slices[lane].is_some()
    }

    pub(crate) fn bound(&self, lane: usize) -> u64 {
        self.slices[lane].as_ref().map_or(0, |running| running.bound().0)
    }

    fn all_closed(&self) -> bool {
        self.slices.iter().all(Option::is_none)
    }

    fn named(&self, name: u32, old: bool) -> Option<(usize, CoroutineRef)> {
        let named = self.names.get(name as usize)?.as_ref()?;
        if old { named.before } else { Some((named.lane, named.reference)) }
    }

    fn give_name(&mut self, name: u32, lane: usize, reference: CoroutineRef) {
        if self.names.len() <= name as usize {
            self.names.resize(name as usize + 1, None);
        }
        self.fresh.push(name);
        self.names[name as usize] = Some(Named { lane, reference, before: None, gone: false });
    }

    fn gone(&mut self, tag: Tag) {
        self.names[tag.slot() as usize].as_mut().expect("it has a name").gone = true;
    }

    /// Copies what the generator reads.
    fn look(&mut self) {
        let lanes = usize::from(self.setup.lanes);
        self.model.lanes.clear();
        for lane in 0..lanes {
            let kernel = &self.kernel[LaneId(lane as u16)];
            let (clock, has_work) = (kernel.clock().0, kernel.has_work());
            self.model.lanes.push(Seeing { clock, has_work, states: Vec::new() });
        }
        for named in self.names.iter().flatten().filter(|named| !named.gone) {
            let Ok(state) = self.kernel[LaneId(named.lane as u16)].state(named.reference) else {
                continue;
            };
            let states = &mut self.model.lanes[named.lane].states;
            let slot = named.reference.slot as usize;
            if states.len() <= slot {
                states.resize(slot + 1, None);
            }
            states[slot] = Some((named.reference.generation, seen(state)));
        }
    }

    fn show_lane(&mut self, lane: usize) {
        let answer = summary(&mut self.kernel[LaneId(lane as u16)], self.slices[lane].as_ref());
        self.said(format_args!("L {lane}"), answer);
    }

    fn show_coroutine(&mut self, lane: usize, by: CoroutineRef) {
        let answer = coroutine(self.lane(lane), by);
        self.said(format_args!("Q {lane} {} {}", by.slot, by.generation), answer);
    }

    fn show_everything(&mut self) {
        let stalled = u8::from(self.kernel.is_stalled()).to_string();
        self.said(format_args!("X"), stalled);
        for lane in 0..self.slices.len() {
            self.show_lane(lane);
        }
        let live: Vec<(usize, CoroutineRef)> = self
            .names
            .iter()
            .flatten()
            .filter(|named| !named.gone)
            .map(|named| (named.lane, named.reference))
            .collect();
        live.into_iter().for_each(|(lane, by)| self.show_coroutine(lane, by));
    }

    /// An operation on one coroutine whose answer is done or refused.
    fn on_coroutine(
        &mut self,
        letter: char,
        (lane, by): (usize, CoroutineRef),
        arguments: &[u64],
        does: impl FnOnce(&mut Lane) -> Result<(), Refusal>,
    ) -> bool {
        let result = does(self.lane(lane));
        let arguments: String = arguments.iter().map(|argument| format!(" {argument}")).collect();
        let answer = done(result);
        self.said(format_args!("{letter} {lane} {} {}{arguments}", by.slot, by.generation), answer);
        self.show_lane(lane);
        self.show_coroutine(lane, by);
        result.is_ok()
    }

    fn apply(&mut self, op: Op, everything: bool) {
        self.perform(op);
        if everything {
            self.show_everything();
        }
        self.look();
    }

    // Long: one arm per operation.
    fn perform(&mut self, op: Op) {
        match op {
            Op::Spawn { name, lane, session, priority, weight, class } => {
                let tag = Tag::new(session, name);
                let spawn = Spawn {
                    priority: Priority(priority),
                    weight: Weight::new(weight).expect("not zero"),
                    latency: LatencyClass::ALL[usize::from(class)],
                    ..Spawn::new(tag)
                };
                let lane = usize::from(lane);
                let by = self.lane(lane).spawn(spawn).expect("room was reserved");
                let CoroutineRef { slot, generation } = by;
                let tag = tag.0;
                self.said(
                    format_args!("S {lane} {slot} {generation} {tag} {priority} {weight} {class}"),
                    "ok".into(),
                );
                self.show_lane(lane);
                self.show_coroutine(lane, by);
                self.give_name(name, lane, by);
                self.quiet[lane] = false;
            }
            Op::Dispatch { lane } => self.dispatch(usize::from(lane)),
            Op::DispatchNext => self.dispatch_next(),
            Op::Stop { lane, used, end } => self.stop(usize::from(lane), used, end),
            Op::Wake { name, old, source } => {
                let Some(at) = self.named(name, old) else { return };
                let from = WakeSource::ALL[usize::from(source)];
                if self.on_coroutine('W', at, &[u64::from(source)], |lane| lane.wake(at.1, from)) {
                    self.quiet[at.0] = false;
                }
            }
            Op::Hold { name, old, reason } => {
                let Some(at) = self.named(name, old) else { return };
                let why = HoldReason::ALL[usize::from(reason)];
                self.on_coroutine('H', at, &[u64::from(reason)], |lane| lane.hold(at.1, why));
            }
            Op::Release { name, old, reason } => {
                let Some(at) = self.named(name, old) else { return };
                let why = HoldReason::ALL[usize::from(reason)];
                self.on_coroutine('R', at, &[u64::from(reason)], |lane| lane.release(at.1, why));
                self.quiet[at.0] = false;
            }
            Op::Cancel { name, old } => {
                let Some(at) = self.named(name, old) else { return };
                self.on_coroutine('C', at, &[], |lane| lane.cancel(at.1));
            }
            Op::Reap { name, old } => {
                let Some((lane, by)) = self.named(name, old) else { return };
                let result = self.lane(lane).reap(by);
                if result.is_ok() {
                    self.names[name as usize].as_mut().expect("it has a name").gone = true;
                }
                self.said(
                    format_args!("P {lane} {} {}", by.slot, by.generation),
                    result.map_or_else(refusal, ledger),
                );
                self.show_lane(lane);
                self.show_coroutine(lane, by);
            }
            Op::EndSession { lane, session } => {
                let mut ended = Vec::new();
                let lane = usize::from(lane);
                let result =
                    self.lane(lane).end_session(session, |tag, ledger| ended.push((tag, ledger)));
                ended.iter().for_each(|&(tag, _)| self.gone(tag));
                let shown = ended.iter().map(|&(tag, of)| format!("[{} {}]", tag.0, ledger(of)));
                let answer = result.map_or_else(refusal, |_| join(shown, " "));
                self.said(format_args!("E {lane} {session}"), answer);
                self.show_lane(lane);
            }
            Op::Prefer { name, old } => {
                let Some(at) = self.named(name, old) else { return };
                self.on_coroutine('F', at, &[], |lane| lane.prefer(at.1));
            }
            Op::SetPriority { name, old, priority } => {
                let Some(at) = self.named(name, old) else { return };
                self.on_coroutine('I', at, &[u64::from(priority)], |lane| {
                    lane.set_priority(at.1, Priority(priority))
                });
            }
            Op::SetShare { name, old, weight, class } => {
                let Some(at) = self.named(name, old) else { return };
                let arguments = [u64::from(weight), u64::from(class)];
                let class = LatencyClass::ALL[usize::from(class)];
                let share = Share { weight: Weight::new(weight).expect("not zero"), class };
                self.on_coroutine('A', at, &arguments, |lane| lane.set_share(at.1, share));
            }
            Op::SetSessionShare { lane, session, weight, class } => {
                let lane = usize::from(lane);
                let share = Share {
                    weight: Weight::new(weight).expect("not zero"),
                    class: LatencyClass::ALL[usize::from(class)],
                };
                let answer = done(self.lane(lane).set_session_share(session, share));
                self.said(format_args!("U {lane} {session} {weight} {class}"), answer);
                self.show_lane(lane);
            }
            Op::SetPolicy { lane, kind, quantum } => {
                let lane = usize::from(lane);
                if self.is_open(lane) {
                    return;
                }
                let answer = done(self.lane(lane).set_policy(kind.policy(quantum)));
                self.said(format_args!("O {lane} {} {quantum}", kind_code(kind)), answer);
                self.show_lane(lane);
            }
            Op::PostWake { from, name, old, source } => {
                let Some((to, target)) = self.named(name, old) else { return };
                let effect = Effect::Wake { target, source: WakeSource::ALL[usize::from(source)] };
                let CoroutineRef { slot, generation } = target;
                self.post(from, to, effect, 'w', format_args!("{slot} {generation} {source}"));
            }
            Op::PostHandoff { from, name, old, source } => {
                let Some((to, target)) = self.named(name, old) else { return };
                let effect =
                    Effect::Handoff { target, source: WakeSource::ALL[usize::from(source)] };
                let CoroutineRef { slot, generation } = target;
                self.post(from, to, effect, 'h', format_args!("{slot} {generation} {source}"));
            }
            Op::PostSpawn { from, to, name, session, priority } => {
                let tag = Tag::new(session, name);
                let spawn = Spawn { priority: Priority(priority), ..Spawn::new(tag) };
                let effect = Effect::Publish(spawn);
                self.post(from, usize::from(to), effect, 's', format_args!("{} {priority}", tag.0));
            }
            Op::Migrate { session, from, to } => {
                self.migrate(session, usize::from(from), usize::from(to))
            }
            Op::Steal { lane, banned } => self.steal(usize::from(lane), banned),
            Op::Rebuild { lane } => {
                let id = LaneId(lane);
                if !self.is_open(usize::from(lane)) {
                    let exported = self.kernel[id].export();
                    self.kernel[id] = Lane::rebuild(&exported, u32::MAX).expect("an export");
                    self.show_lane(usize::from(lane));
                }
            }
            Op::Measure { lane, on } => self.lane(usize::from(lane)).set_measured(on),
            Op::Wave { picks, span } => {
                if self.all_closed() {
                    self.end_wave();
                    self.begin_wave(picks, span);
                }
            }
            Op::NextFrame { skip, picks, span } => self.next_frame(1 + skip, picks, span),
            Op::Jump { picks, span } => self.jump(picks, span),
        }
    }

    fn began(&mut self, lane: usize, next: Next) -> String {
        self.quiet[lane] = !matches!(next, Next::Run(_));
        match next {
            Next::Run(slice) => {
                let answer = running(&slice, slice.picked(), slice.switched());
                self.slices[lane] = Some(slice);
                answer
            }
            Next::Idle => "idle".into(),
            Next::Over => "over".into(),
        }
    }

    fn dispatch(&mut self, lane: usize) {
        if self.is_open(lane) {
            return;
        }
        let next = self.lane(lane).dispatch();
        let answer = self.began(lane, next);
        self.said(format_args!("D {lane}"), answer);
        self.show_lane(lane);
    }

    fn dispatch_next(&mut self) {
        if !self.all_closed() {
            return;
        }
        let answer = match self.kernel.dispatch() {
            Some((lane, slice)) => {
                let lane = usize::from(lane.0);
                format!("{lane} {}", self.began(lane, Next::Run(slice)))
            }
            None => {
                self.quiet.fill(true);
                "-".into()
            }
        };
        self.said(format_args!("d"), answer);
        (0..self.slices.len()).for_each(|lane| self.show_lane(lane));
    }

    fn stop(&mut self, lane: usize, used: u64, end: End) {
        let Some(slice) = self.slices[lane].take() else { return };
        let by = slice.reference();
        let frame = self.lane(lane).frame().0;
        let (outcome, code, argument) = match end {
            End::Yield => (Outcome::Yielded, 0, 0),
            End::Sleep(frames) => (Outcome::Slept(Frame(frame + frames)), 1, frame + frames),
            End::Block(reason) => {
                let why = BlockReason::ALL[usize::from(reason)];
                (Outcome::Blocked(why), 2, u64::from(reason))
            }
            End::Spent => (Outcome::OutOfCycles, 3, 0),
            End::Finish => (Outcome::Finished, 4, 0),
            End::Fault => (Outcome::Faulted, 5, 0),
        };
        let departure = match outcome {
            Outcome::Yielded => Some((Departure::Yield, "requeued")),
            Outcome::Slept(until) if until.0 > frame => Some((Departure::Sleep(until), "waiting")),
            Outcome::Blocked(reason) => Some((Departure::Block(reason), "waiting")),
            Outcome::Finished => Some((Departure::Finish, "ended")),
            _ => None,
        };
        if let Some((departure, answer)) = departure.filter(|_| self.uses_switch)
            && let Some(began) = self.lane(lane).switch(Cycles(used), departure)
        {
            let tag = slice.tag();
            self.said(format_args!("T {lane} {used} {code} {argument}"), answer.into());
            if departure == Departure::Finish {
                // The fast path frees the record and returns no ledger.
                self.said(format_args!("P {lane} {} {}", by.slot, by.generation), String::new());
                *self.answers.last_mut().expect("just pushed") = None;
                self.gone(tag);
            }
            // A token of a fast path does not hold what its pick cost.
            let token = self.lane(lane).token(began.bound);
            let answer = running(&token, true, began.overhead > SCHEDULER_COSTS_V1.pick);
            let _ = self.began(lane, Next::Run(token));
            self.said(format_args!("D {lane}"), answer);
        } else {
            let answer = match self.lane(lane).stop(slice, Cycles(used), outcome) {
                Stopped::Requeued => "requeued",
                Stopped::Kept => "kept",
                Stopped::Waiting => "waiting",
                Stopped::Throttled => "held",
                Stopped::Ended => "ended",
            };
            self.said(format_args!("T {lane} {used} {code} {argument}"), answer.into());
        }
        self.show_lane(lane);
        self.show_coroutine(lane, by);
    }

    fn post(
        &mut self,
        from: u16,
        to: usize,
        effect: Effect,
        letter: char,
        arguments: std::fmt::Arguments<'_>,
    ) {
        if usize::from(from) != to {
            let (step, sequence) = self.kernel.post(LaneId(from), LaneId(to as u16), effect);
            let answer = format!("{step}:{sequence}");
            self.said(format_args!("{letter} {from} {to} {arguments}"), answer);
        }
    }

    fn moved(&mut self, to: usize, moved: &[(Tag, CoroutineRef)]) -> String {
        for &(tag, by) in moved {
            let named = self.names[tag.slot() as usize].as_mut().expect("what moves has a name");
            named.before = Some((named.lane, named.reference));
            (named.lane, named.reference) = (to, by);
        }
        let fresh = moved.iter().map(|(_, by)| format!(" {} {}", by.slot, by.generation));
        fresh.collect()
    }

    fn migrate(&mut self, session: u32, from: usize, to: usize) {
        if from == to {
            return;
        }
        let mut moved = Vec::new();
        let each = |tag: Tag, by: CoroutineRef| moved.push((tag, by));
        let result = self.kernel.migrate(session, LaneId(from as u16), LaneId(to as u16), each);
        let fresh = self.moved(to, &moved);
        if result.is_ok() {
            self.quiet[to] = false;
        }
        let answer = result.map_or_else(refusal, |_| join(moved.iter().map(|(tag, _)| tag.0), " "));
        self.said(format_args!("M {session} {from} {to}{fresh}"), answer);
        [from, to].into_iter().for_each(|lane| self.show_lane(lane));
        moved.iter().for_each(|&(_, by)| self.show_coroutine(to, by));
    }

    fn steal(&mut self, thief: usize, banned: u32) {
        let mut moved = Vec::new();
        let ban = |session: u32| (session == banned).then_some(MoveBan::Pinned);
        let result = self.kernel.steal(LaneId(thief as u16), ban, |tag, by| moved.push((tag, by)));
        let fresh = self.moved(thief, &moved);
        self.quiet[thief] = false;
        let answer = match result {
            Ok(Steal::Won { session, victim, .. }) => {
                format!(
                    "won {session} {} {}",
                    victim.0,
                    join(moved.iter().map(|(tag, _)| tag.0), " ")
                )
            }
            Ok(Steal::Busy) => "busy".into(),
            Ok(Steal::Nothing(_)) => "nothing".into(),
            Err(refused) => refusal(refused),
        };
        self.said(format_args!("K {thief} {banned}{fresh}"), answer);
        if !moved.is_empty() {
            (0..self.slices.len()).for_each(|lane| self.show_lane(lane));
            moved.iter().for_each(|&(_, by)| self.show_coroutine(thief, by));
        }
    }

    fn end_wave(&mut self) {
        let mut delivered = Vec::new();
        self.kernel.end_wave(|posted, applied| delivered.push((posted, applied)));
        let mut fresh = String::new();
        for (posted, applied) in &delivered {
            if let (Effect::Publish(spawn), Applied::Published(Ok(by))) = (posted.effect, applied) {
                write!(fresh, " {} {}", by.slot, by.generation).expect("a string grows");
                self.give_name(spawn.tag.slot(), usize::from(posted.to.0), *by);
            }
        }
        let answer =
            join(delivered.iter().map(|(posted, applied)| delivery(posted, applied)), ", ");
        self.said(format_args!("V{fresh}"), answer);
    }

    fn begin_wave(&mut self, picks: bool, span: u64) {
        let length =
            if picks { WaveSpan::Picks(span as u32) } else { WaveSpan::Cycles(Cycles(span)) };
        self.kernel.begin_wave(length);
        self.quiet.fill(false);
        self.said(format_args!("v {} {span}", u8::from(picks)), "ok".into());
        (0..self.slices.len()).for_each(|lane| self.show_lane(lane));
    }

    fn next_frame(&mut self, ahead: u64, picks: bool, span: u64) {
        if !self.all_closed() {
            return;
        }
        self.end_wave();
        let mut rows = Vec::new();
        self.kernel.end_frame(|ended| rows.push(row(ended)));
        self.said(format_args!("f"), rows.join(", "));
        let latest = self.kernel.iter().map(|lane| lane.clock().0).max().unwrap_or(0);
        let first = self.lane(0).frame().0;
        let frame = (first + ahead).max(latest / self.setup.frame_cycles);
        let woken = self.kernel.begin_frame(Frame(frame));
        self.said(format_args!("b {frame}"), woken.to_string());
        self.begin_wave(picks, span);
    }

    fn jump(&mut self, picks: bool, span: u64) {
        if !self.all_closed() {
            return;
        }
        let next = self.kernel.next_wake();
        self.said(format_args!("j"), next.map_or("-".into(), |frame| frame.0.to_string()));
        if let Some(frame) = next {
            let ahead = frame.0.saturating_sub(self.lane(0).frame().0).max(1);
            self.next_frame(ahead, picks, span);
        }
    }
}

/// A random life of a refill ring, as in the kernel's `context_windows` test: runs with overruns
/// below the gap, waits, late activations.
fn ring_life(world: &mut World, seed: u64) {
    let mut random = support::Random::new(seed ^ 0x41f);
    let gap = 1 + random.below(4);
    let least = 2 * (gap + 1);
    let period = 40 + random.below(100);
    let budget = least + random.below(period / 2 - least);
    let capacity = 2 + random.below(7);
    let mut ring =
        RefillRing::new(Cycles(budget), Cycles(period), capacity as u8, Cycles(least), Cycles(0));
    let shown = |ring: &RefillRing| {
        join(ring.refills().iter().map(|part| format!("{}:{}", part.amount.0, part.at.0)), " ")
    };
    world.said(format_args!("G {budget} {period} {capacity} {least}"), shown(&ring));
    let mut now = 0;
    for _ in 0..30 {
        now += random.below(period / 2);
        if random.chance(9, 10) {
            ring.activate(Cycles(now));
            world.said(format_args!("a {now}"), shown(&ring));
        }
        if ring.is_ready(Cycles(now)) {
            let head = ring.head().amount.0;
            let used = (1 + random.below(head + head / 2)).min(head + random.below(gap));
            now += used;
            ring.charge(Cycles(used));
            world.said(format_args!("c {used}"), shown(&ring));
        }
    }
}

/// The admission test on random sets, with the terms of a random lane.
fn admissions(world: &mut World, seed: u64) {
    let mut random = support::Random::new(seed ^ 0xad31);
    for _ in 0..8 {
        let gap = random.below(60);
        let wave = random.chance(1, 2).then(|| (400 + random.below(4_000), gap));
        let release = random.below(30);
        let cap = 800 + random.below(201);
        let terms = Terms {
            blocking: Cycles(gap + 24),
            overrun: Cycles(gap),
            release: Cycles(release),
            boundary: wave.map(|(every, cost)| (Cycles(every), Cycles(cost))),
            cap: cap as u32,
        };
        let count = random.below(7);
        let contexts: Vec<Demand> = (0..count)
            .map(|_| {
                let period = 300 + random.below(20_000);
                let deadline = period - random.below(period / 2);
                let budget = 1 + random.below(deadline / count);
                let [budget, period, deadline] = [budget, period, deadline].map(Cycles);
                Demand { budget, period, deadline }
            })
            .collect();
        let (every, cost) = wave.unwrap_or((0, 0));
        let numbers: String = contexts
            .iter()
            .map(|one| format!(" {} {} {}", one.budget.0, one.period.0, one.deadline.0))
            .collect();
        let is_admitted = u8::from(admit(&terms, contexts.iter().copied()).is_ok());
        world.said(
            format_args!("B {} {gap} {release} {every} {cost} {cap}{numbers}", terms.blocking.0),
            is_admitted.to_string(),
        );
    }
}

/// The first line at which the two differ.
struct Difference {
    command: String,
    kernel: String,
    oracle: String,
    /// The kernel panicked; until then the two agreed.
    is_panic: bool,
}

/// A sequence, and the difference that it shows.
type Failure = (Vec<Op>, Difference);

fn compare(world: &World, oracle: &mut Oracle) -> Result<Option<Difference>, String> {
    let answers = oracle.answers(&world.commands)?;
    for ((command, kernel), answer) in world.commands.lines().zip(&world.answers).zip(&answers) {
        if kernel.as_ref().is_some_and(|kernel| kernel != answer) {
            return Ok(Some(Difference {
                command: command.into(),
                kernel: kernel.clone().unwrap_or_default(),
                oracle: answer.clone(),
                is_panic: false,
            }));
        }
    }
    Ok(None)
}

/// The setup of a seed: as in the kernel's tests.
fn setup(seed: u64) -> Setup {
    let mut random = support::Random::new(seed ^ 0x5e7);
    Setup {
        lanes: random.pick(&[1, 2, 3, 4]),
        kind: Kind::ALL[seed as usize % Kind::ALL.len()],
        quantum: random.pick(&[1, 300, 1_000, 3_000]),
        frame_cycles: random.pick(&[4_000, 20_000, 200_000]),
        handoff: random.chance(3, 4),
        population: random.pick(&[4, 16, 64, 64]),
        switches: random.chance(1, 4),
        check_every: 1,
        capped: false,
    }
}

/// A panic of the kernel on a sequence is a difference too.
fn panicked(error: Box<dyn std::any::Any + Send>) -> Difference {
    let text = error.downcast_ref::<String>().cloned();
    let text = text.or_else(|| error.downcast_ref::<&str>().map(|text| text.to_string()));
    Difference {
        command: "the last operation".into(),
        kernel: format!("panics: {}", text.unwrap_or_default()),
        oracle: String::new(),
        is_panic: true,
    }
}

fn uses_switch(seed: u64) -> bool {
    (seed / Kind::ALL.len() as u64) % 2 == 1
}

/// What is not operations on lanes: a refill ring, admission, a checker of certificates.
fn beside(world: &mut World, seed: u64, verdicts: &mut Verdicts) {
    ring_life(world, seed);
    admissions(world, seed);
    certificates::life(seed, verdicts, |command, answer| world.said(command, answer));
}

/// The difference in what was said, or else the panic that ended the run.
fn judge(
    world: &World,
    run: std::thread::Result<()>,
    oracle: &mut Oracle,
) -> Result<Option<Difference>, String> {
    Ok(compare(world, oracle)?.or(run.err().map(panicked)))
}

/// Makes the sequence of a seed and compares it; gives its commands, and the operations with the
/// difference if there is one.
fn sequence(
    seed: u64,
    length: usize,
    verdicts: &mut Verdicts,
    oracle: &mut Oracle,
) -> Result<(usize, Option<Failure>), String> {
    let mut ops = Vec::with_capacity(length);
    let mut world = World::new(setup(seed), uses_switch(seed));
    let mut generator = Generator::new(seed, 12);
    let run = catch_unwind(AssertUnwindSafe(|| {
        for number in 1..=length {
            let op = generator.next(&mut world);
            ops.push(op);
            world.apply(op, number % EVERYTHING_AFTER == 0 || number == length);
        }
        beside(&mut world, seed, verdicts);
    }));
    let found = judge(&world, run, oracle)?;
    Ok((world.answers.len(), found.map(|difference| (ops, difference))))
}

/// The difference that a given sequence shows; everything is compared after each operation.
fn replay(seed: u64, ops: &[Op], oracle: &mut Oracle) -> Result<Option<Difference>, String> {
    let mut world = World::new(setup(seed), uses_switch(seed));
    let run = catch_unwind(AssertUnwindSafe(|| {
        ops.iter().for_each(|&op| world.apply(op, true));
        beside(&mut world, seed, &mut Verdicts::default());
    }));
    judge(&world, run, oracle)
}

/// Drops operations, in ever smaller runs, as long as a difference remains.
fn shrink(
    seed: u64,
    mut kept: Vec<Op>,
    mut difference: Difference,
    oracle: &mut Oracle,
) -> Result<(Vec<Op>, Difference), String> {
    let (mut run, mut replays) = (kept.len().div_ceil(2), 0);
    while run > 0 && replays < REPLAYS {
        let (before, mut start) = (kept.len(), 0);
        while start < kept.len() && replays < REPLAYS {
            let end = (start + run).min(kept.len());
            let shorter: Vec<Op> = kept[..start].iter().chain(&kept[end..]).copied().collect();
            replays += 1;
            match replay(seed, &shorter, oracle)? {
                Some(found) if found.is_panic == difference.is_panic => {
                    (kept, difference) = (shorter, found);
                }
                _ => start = end,
            }
        }
        if run > 1 || kept.len() == before {
            run /= 2;
        }
    }
    Ok((kept, difference))
}

struct Options {
    sequences: u64,
    seed: u64,
    length: usize,
    oracle: String,
    /// Whether a panic of the kernel ends the run.
    panics: bool,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proof/oracle/oracle");
    let mut options =
        Options { sequences: 2_000, seed: 0, length: 300, oracle: program.into(), panics: true };
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--sequences" => options.sequences = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--length" => options.length = value.parse().ok()?,
            "--oracle" => options.oracle = value,
            "--panics" => options.panics = value != "ignore",
            _ => return None,
        }
    }
    Some(options)
}

fn report(seed: u64, ops: &[Op], difference: &Difference) {
    println!("seed {seed}: the kernel and the oracle differ");
    println!("{:?}; fast paths: {}", setup(seed), uses_switch(seed));
    ops.iter().for_each(|op| println!("    Op::{op:?},"));
    println!("at     {}", difference.command);
    println!("kernel {}", difference.kernel);
    println!("oracle {}", difference.oracle);
}

/// This number of sequences has every refusal of a certificate.
const COMPLETE_FROM: u64 = 1_000;

fn compare_all(options: &Options) -> Result<bool, String> {
    let mut oracle = Oracle::start(&options.oracle)?;
    let (begun, shows) = (Instant::now(), std::io::stderr().is_terminal());
    let (mut lines, mut verdicts) = (0, Verdicts::default());
    for number in 0..options.sequences {
        let seed = options.seed + number;
        let (compared, found) = sequence(seed, options.length, &mut verdicts, &mut oracle)?;
        lines += compared;
        if let Some((ops, difference)) =
            found.filter(|(_, found)| !found.is_panic || options.panics)
        {
            std::panic::set_hook(Box::new(|_| ()));
            let (ops, difference) = shrink(seed, ops, difference, &mut oracle)?;
            report(seed, &ops, &difference);
            return Ok(false);
        }
        if shows && number % 50 == 0 {
            eprint!("\r{number} of {} sequences", options.sequences);
        }
    }
    if shows {
        eprintln!();
    }
    println!(
        "{} sequences of {} operations from seed {}: {lines} lines compared, no difference, {} s",
        options.sequences,
        options.length,
        options.seed,
        begun.elapsed().as_secs()
    );
    Ok(certificates::report(&verdicts) || options.sequences < COMPLETE_FROM)
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match compare_all(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
