//! Exploration: runs one machine under many schedules and checks whether its observable behaviour
//! depends on the schedule.
//!
//! ```text
//!   the unchanged machine ──▶ other settings ──▶ one deviation, two, ... (up to the limits)
//!        ┌─────────────────────────────────────────────┘
//!        ├──▶ random picks ──▶ random priorities with change points
//!        ▼
//!   the first list with a different result ──▶ shrunk ──▶ witness
//! ```
//!
//! A schedule is a list of deviations from the policy's picks. The exhaustive search tries lists in
//! order of length, so the first one it finds is a shortest; what random search finds is shrunk
//! until no deviation can be left out. Each run is compared with that of the unchanged machine.

use crate::draws::Draws;
use crate::observe::Observed;
use crate::shrink::shrink;
use std::collections::VecDeque;
use std::fmt;
use wavelock_abi::{Cycles, LaneId};
use wavelock_kernel::{Choice, Deviation, Policy};
use wavelock_system::{HostFailure, InputEvent, LoadError, MachineSpec, Placement, Span, World};

/// A list of deviations, by lane and pick.
pub type Schedule = Vec<(u16, Deviation)>;

/// The limits of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of runs.
    pub runs: u64,
    /// Maximum steps of one run; a longer one is stopped and its result ignored.
    pub steps: u64,
    /// Maximum number of deviations in the exhaustive search.
    pub depth: u32,
    /// The seed of all random schedules.
    pub seed: u64,
}

/// A variant of the explored machine with other settings.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What is different, in words.
    pub name: String,
    /// The machine.
    pub spec: MachineSpec,
}

/// The stages of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Other policies, quanta, lanes and wave lengths.
    Settings,
    /// Every list of deviations, shortest first.
    Exhaustive,
    /// Random picks.
    Random,
    /// Random priorities per coroutine, lowered at a few random picks (PCT).
    Priorities,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [Self::Settings, Self::Exhaustive, Self::Random, Self::Priorities];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Exhaustive => "exhaustive",
            Self::Random => "random",
            Self::Priorities => "priorities",
        }
    }
}

/// The result of one stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageRow {
    /// The stage.
    pub stage: Stage,
    /// Number of runs.
    pub runs: u64,
    /// Of those, runs that were stopped early.
    pub cut: u64,
    /// Of those, runs with a different result.
    pub different: u64,
}

/// What is known about the length of the witness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Every shorter schedule was run.
    Shortest,
    /// None of its deviations can be left out.
    Minimal,
    /// The run limit was reached before shrinking was complete.
    Unshrunk,
    /// It is a change of settings, not a list of deviations.
    Settings,
}

/// A session whose behaviour depends on the schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its name.
    pub session: String,
    /// Its outcome and digest in the unchanged machine.
    pub usual: String,
    /// The same under the witness.
    pub other: String,
}

/// A machine whose run has a different result.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The machine; it can be run and recorded like any other.
    pub spec: MachineSpec,
    /// How its settings differ; empty if they are those of the explored machine.
    pub setting: String,
    /// The stage that found it.
    pub stage: Stage,
    /// The seed of the random schedule that found it, if it was one.
    pub seed: Option<u64>,
    /// What is known about its length.
    pub proof: Proof,
    /// Its result.
    pub observed: Observed,
    /// The sessions that differ.
    pub differences: Vec<Difference>,
}

/// The verdict of an exploration.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Every schedule that deviates from the policy was run, and all have the same result.
    Independent,
    /// All schedules that were tried have the same result.
    NoDifferenceFound,
    /// One has a different result.
    Dependent(Box<Witness>),
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The result of the unchanged machine.
    pub usual: Observed,
    /// Total number of runs, including shrinking.
    pub runs: u64,
    /// Picks with more than one candidate in the unchanged machine.
    pub choices: u64,
    /// All schedules with at most this many deviations were run.
    pub exhausted: u32,
    /// Each stage that was reached.
    pub stages: Vec<StageRow>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The progress of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Runs so far.
    pub runs: u64,
    /// Maximum number of runs.
    pub of: u64,
}

/// Why a machine cannot be explored.
#[derive(Debug)]
pub enum ExploreError {
    /// It does not load.
    Load(LoadError),
    /// The host failed.
    Host(HostFailure),
    /// It does not end within the limits, so there is nothing to compare.
    Endless {
        /// The limit of steps.
        steps: u64,
        /// Frames it reached.
        frames: u64,
    },
}

impl fmt::Display for ExploreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Endless { steps, frames } => write!(
                f,
                "the machine did not end within {steps} steps in {frames} frames, so there is nothing to compare: allow more steps or \
                 frames, or explore a machine that ends"
            ),
        }
    }
}

impl std::error::Error for ExploreError {}

/// One run: its result, its deviations, and its choices in order.
struct Ran {
    observed: Option<Observed>,
    schedule: Schedule,
    choices: Vec<(u16, u64, u32, u32)>,
    frames: u64,
}

/// A callback that picks the next coroutine.
type Chooser<'a> = dyn FnMut(LaneId, &Choice) -> u32 + 'a;

/// A machine and the bookkeeping of its runs.
pub(crate) struct Explorer<'a> {
    spec: MachineSpec,
    inputs: Vec<InputEvent>,
    limits: Limits,
    runs: u64,
    stage: Stage,
    rows: Vec<StageRow>,
    progress: &'a mut dyn FnMut(Progress),
}

/// Explores a machine. `settings` are variants that must have the same result, such as other
/// policies. `plain` is the policy to deviate from if the machine's is `fair`, which does not
/// support deviations.
///
/// # Errors
/// See [`ExploreError`]. A setting that does not load is skipped.
pub fn explore(
    spec: &MachineSpec,
    inputs: &[InputEvent],
    settings: &[Setting],
    plain: Policy,
    limits: Limits,
    progress: &mut dyn FnMut(Progress),
) -> Result<Exploration, ExploreError> {
    let mut base = spec.clone();
    if matches!(base.policy, Policy::Fair(_)) {
        base.policy = plain;
    }
    let mut explorer = Explorer {
        spec: base,
        inputs: inputs.to_vec(),
        limits,
        runs: 0,
        stage: Stage::Settings,
        rows: Vec::new(),
        progress,
    };
    let first = explorer.run_listed(spec, &[])?;
    let Some(usual) = first.observed else {
        return Err(ExploreError::Endless { steps: limits.steps, frames: first.frames });
    };
    let mut found = explorer.try_settings(&usual, settings)?;
    let listed = explorer.try_schedules(&usual)?;
    let (choices, exhausted, complete) = (listed.choices, listed.exhausted, listed.complete);
    found = listed.witness.or(found);
    let verdict = match found {
        Some(witness) => Verdict::Dependent(Box::new(witness)),
        None if complete => Verdict::Independent,
        None => Verdict::NoDifferenceFound,
    };
    Ok(Exploration {
        usual,
        runs: explorer.runs,
        choices,
        exhausted,
        stages: explorer.rows,
        verdict,
    })
}

/// The result of the search among deviations.
struct Listed {
    choices: u64,
    exhausted: u32,
    complete: bool,
    witness: Option<Witness>,
}

impl Explorer<'_> {
    /// Whether the run limit allows another run.
    const fn may_run(&self) -> bool {
        self.runs < self.limits.runs
    }

    /// Runs made so far, and the number of runs after which shrinking must stop.
    pub(crate) const fn shrinking(&self) -> (u64, u64) {
        (self.runs, self.limits.runs)
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.rows.push(StageRow { stage, runs: 0, cut: 0, different: 0 });
    }

    /// Counts a run of this stage; returns whether its result is different.
    fn note(&mut self, observed: Option<&Observed>, usual: &Observed) -> bool {
        let different = observed.is_some_and(|observed| observed != usual);
        if let Some(row) = self.rows.last_mut() {
            row.runs += 1;
            row.cut += u64::from(observed.is_none());
            row.different += u64::from(different);
        }
        different
    }

    fn run(&mut self, spec: MachineSpec, choose: &mut Chooser<'_>) -> Result<Ran, ExploreError> {
        self.runs += 1;
        (self.progress)(Progress { stage: self.stage, runs: self.runs, of: self.limits.runs });
        let mut schedule = Schedule::new();
        let mut choices = Vec::new();
        let mut ask = |lane: LaneId, choice: &Choice| {
            let rank = choose(lane, choice).min(choice.candidates.len() as u32 - 1);
            choices.push((lane.0, choice.pick, choice.candidates.len() as u32, choice.rank));
            if rank != choice.rank {
                schedule.push((lane.0, Deviation { pick: choice.pick, rank }));
            }
            rank
        };
        let mut world =
            World::load(spec, self.inputs.clone(), false).map_err(ExploreError::Load)?.world;
        let mut left = self.limits.steps;
        while left > 0 && world.step_choosing(&mut (), &mut ask).map_err(ExploreError::Host)? {
            left -= 1;
        }
        schedule.sort_unstable();
        Ok(Ran {
            observed: Observed::of(&mut world),
            schedule,
            choices,
            frames: world.frame().0 + 1,
        })
    }

    /// Runs a machine with a list of deviations in its description.
    fn run_listed(
        &mut self,
        spec: &MachineSpec,
        schedule: &[(u16, Deviation)],
    ) -> Result<Ran, ExploreError> {
        let spec = MachineSpec { deviations: schedule.to_vec(), ..spec.clone() };
        let mut ran = self.run(spec, &mut |_, choice| choice.rank)?;
        ran.schedule = schedule.to_vec();
        Ok(ran)
    }

    /// The result of the machine under a list of deviations, for shrinking.
    pub(crate) fn observe(
        &mut self,
        schedule: &[(u16, Deviation)],
    ) -> Result<Option<Observed>, ExploreError> {
        let spec = self.spec.clone();
        Ok(self.run_listed(&spec, schedule)?.observed)
    }

    fn try_settings(
        &mut self,
        usual: &Observed,
        settings: &[Setting],
    ) -> Result<Option<Witness>, ExploreError> {
        self.enter(Stage::Settings);
        let mut found = None;
        for setting in settings {
            if !self.may_run() {
                break;
            }
            let ran = match self.run_listed(&setting.spec, &[]) {
                Err(ExploreError::Load(_)) => continue,
                other => other?,
            };
            if self.note(ran.observed.as_ref(), usual) && found.is_none() {
                found = ran.observed.map(|observed| Witness {
                    spec: setting.spec.clone(),
                    setting: setting.name.clone(),
                    stage: Stage::Settings,
                    seed: None,
                    proof: Proof::Settings,
                    differences: differences(usual, &observed),
                    observed,
                });
            }
        }
        Ok(found)
    }

    /// Tries lists of deviations by length, then random ones; shrinks the first with a different
    /// result.
    fn try_schedules(&mut self, usual: &Observed) -> Result<Listed, ExploreError> {
        self.enter(Stage::Exhaustive);
        let spec = self.spec.clone();
        let first = self.run_listed(&spec, &[])?;
        let choices = first.choices.len() as u64;
        // Under `fair` the policy to deviate from is another one, whose result may already differ.
        if self.note(first.observed.as_ref(), usual) {
            let witness = first.observed.map(|observed| {
                self.witness(usual, Schedule::new(), observed, None, Proof::Shortest)
            });
            return Ok(Listed { choices, exhausted: 0, complete: false, witness });
        }
        // Half of the remaining runs are for the exhaustive search, the others for random
        // schedules.
        let last = self.runs + (self.limits.runs - self.runs.min(self.limits.runs)) / 2;
        let (exhausted, complete, found) = self.by_length(usual, first, last)?;
        let mut witness = None;
        if let Some((schedule, observed)) = found {
            witness = Some(self.witness(usual, schedule, observed, None, Proof::Shortest));
        } else if !complete && choices > 0 {
            witness = self.by_draw(usual, choices)?;
        }
        Ok(Listed { choices, exhausted, complete, witness })
    }

    /// Runs every list of one deviation, then of two, and so on, until `last` runs are made, the
    /// depth is reached or there are no more lists.
    #[allow(
        clippy::type_complexity,
        reason = "three results of one search, destructured by the caller"
    )]
    fn by_length(
        &mut self,
        usual: &Observed,
        first: Ran,
        last: u64,
    ) -> Result<(u32, bool, Option<(Schedule, Observed)>), ExploreError> {
        // A list, and the index of the first choice at which it may deviate again.
        let mut open: VecDeque<(Schedule, usize)> = VecDeque::new();
        let mut exhausted = 0;
        let room = last.saturating_sub(self.runs);
        // The length from which some lists were left out.
        let mut partial: Option<u32> =
            (!push_longer(&mut open, &first, &Schedule::new(), 0, self.limits.depth, room))
                .then_some(1);
        let spec = self.spec.clone();
        while let Some((schedule, from)) = open.pop_front() {
            if self.runs >= last {
                return Ok((exhausted, false, None));
            }
            let ran = self.run_listed(&spec, &schedule)?;
            if self.note(ran.observed.as_ref(), usual)
                && let Some(observed) = ran.observed
            {
                return Ok((exhausted, false, Some((schedule, observed))));
            }
            let room = last.saturating_sub(self.runs + open.len() as u64);
            let length = schedule.len() as u32;
            if !push_longer(&mut open, &ran, &schedule, from, self.limits.depth, room) {
                partial = Some(partial.map_or(length + 1, |known| known.min(length + 1)));
            }
            if open.front().is_none_or(|(next, _)| next.len() as u32 > length)
                && partial.is_none_or(|from| from > length)
            {
                exhausted = length;
            }
        }
        Ok((exhausted, partial.is_none(), None))
    }

    /// Random picks, then random priorities, each for half of the remaining runs.
    fn by_draw(&mut self, usual: &Observed, choices: u64) -> Result<Option<Witness>, ExploreError> {
        let left = self.limits.runs.saturating_sub(self.runs);
        for (stage, count) in [(Stage::Random, left / 2), (Stage::Priorities, left - left / 2)] {
            self.enter(stage);
            for number in 0..count {
                if !self.may_run() {
                    break;
                }
                let seed = self.limits.seed.wrapping_add(number);
                let spec = self.spec.clone();
                let ran = match stage {
                    Stage::Random => {
                        let mut draws = Draws::new(seed, 1);
                        self.run(spec, &mut |_, choice| {
                            draws.below(choice.candidates.len() as u64) as u32
                        })?
                    }
                    _ => self.run(spec, &mut priorities(seed, choices))?,
                };
                if self.note(ran.observed.as_ref(), usual)
                    && let Some(observed) = ran.observed
                {
                    let (schedule, observed, proof) = shrink(self, usual, ran.schedule, observed)?;
                    return Ok(Some(self.witness(usual, schedule, observed, Some(seed), proof)));
                }
            }
        }
        Ok(None)
    }

    fn witness(
        &self,
        usual: &Observed,
        schedule: Schedule,
        observed: Observed,
        seed: Option<u64>,
        proof: Proof,
    ) -> Witness {
        Witness {
            spec: MachineSpec { deviations: schedule, ..self.spec.clone() },
            setting: String::new(),
            stage: self.stage,
            seed,
            proof,
            differences: differences(usual, &observed),
            observed,
        }
    }
}

/// Adds every list that is one deviation longer than that of a run. `false` if some were left out
/// because of the depth or the queue's limit.
fn push_longer(
    open: &mut VecDeque<(Schedule, usize)>,
    ran: &Ran,
    schedule: &Schedule,
    from: usize,
    depth: u32,
    mut room: u64,
) -> bool {
    let more = ran.choices.len() > from;
    if schedule.len() as u32 >= depth {
        return !more;
    }
    for (at, &(lane, pick, width, usual)) in ran.choices.iter().enumerate().skip(from) {
        for rank in (0..width).filter(|&rank| rank != usual) {
            if room == 0 {
                return false;
            }
            room -= 1;
            let mut longer = schedule.clone();
            longer.push((lane, Deviation { pick, rank }));
            longer.sort_unstable();
            open.push_back((longer, at + 1));
        }
    }
    true
}

/// Maximum number of picks at which a priority is lowered.
const CHANGE_POINTS: u64 = 3;

/// Picks the candidate of highest priority. Priorities are random per coroutine; at a few random
/// choices the last one picked is lowered below all others.
fn priorities(seed: u64, choices: u64) -> impl FnMut(LaneId, &Choice) -> u32 {
    let mut draws = Draws::new(seed, 2);
    let changes: Vec<u64> = (0..CHANGE_POINTS).map(|_| draws.below(choices)).collect();
    let mut dropped = std::collections::BTreeMap::new();
    let mut number = 0;
    move |_, choice| {
        let key =
            |tag: &wavelock_kernel::Tag| (u64::from(tag.session()) << 32) | u64::from(tag.slot());
        let priority = |tag: &wavelock_kernel::Tag,
                        dropped: &std::collections::BTreeMap<u64, u64>| {
            match dropped.get(&key(tag)) {
                // The one lowered last has the lowest priority.
                Some(at) => CHANGE_POINTS.saturating_sub(*at),
                None => CHANGE_POINTS + 1 + Draws::new(seed ^ key(tag), 3).below(1 << 62),
            }
        };
        if changes.contains(&number)
            && let Some(top) = choice.candidates.iter().max_by_key(|tag| priority(tag, &dropped))
        {
            let at = dropped.len() as u64;
            dropped.insert(key(top), at);
        }
        number += 1;
        let ranked = choice
            .candidates
            .iter()
            .enumerate()
            .max_by_key(|(rank, tag)| (priority(tag, &dropped), std::cmp::Reverse(*rank)));
        ranked.map_or(choice.rank, |(rank, _)| rank as u32)
    }
}

fn differences(usual: &Observed, other: &Observed) -> Vec<Difference> {
    let show = |session: &crate::observe::SessionObserved| {
        format!("{}, {}", session.outcome.name(), session.digest)
    };
    usual
        .sessions
        .iter()
        .zip(&other.sessions)
        .filter(|(one, two)| one != two)
        .map(|(one, two)| Difference {
            session: one.name.clone(),
            usual: show(one),
            other: show(two),
        })
        .collect()
}

impl Setting {
    /// Variants of `spec` with one change: each of `policies` with its own quantum and with the
    /// shortest one, fewer and more lanes (unless the manifest pins a session), waves of one pick.
    #[must_use]
    pub fn around(
        spec: &MachineSpec,
        policies: &dyn Fn(Cycles) -> Vec<(String, Policy)>,
    ) -> Vec<Self> {
        let least = least_quantum(spec);
        let own = Some(spec.policy.quantum())
            .filter(|&quantum| quantum != Cycles::MAX)
            .unwrap_or(Cycles(10_000));
        let mut made = Vec::new();
        for quantum in [own.max(least), least] {
            for (name, policy) in policies(quantum) {
                made.push(Self {
                    name: format!("policy {name}, quantum {} cycles", quantum.0),
                    spec: MachineSpec { policy, ..spec.clone() },
                });
            }
        }
        if spec
            .sessions
            .iter()
            .all(|session| !session.pinned && matches!(session.placement, Placement::Lane(_)))
        {
            for lanes in [1, 2, 4].into_iter().filter(|&lanes| lanes != spec.lanes) {
                let mut other = MachineSpec { lanes, ..spec.clone() };
                for (at, session) in other.sessions.iter_mut().enumerate() {
                    session.placement = Placement::Lane((at % usize::from(lanes)) as u16);
                }
                made.push(Self { name: format!("{lanes} lanes"), spec: other });
            }
        }
        if spec.span != Span::Picks(1) {
            made.push(Self {
                name: "waves of one pick".into(),
                spec: MachineSpec { span: Span::Picks(1), ..spec.clone() },
            });
        }
        made
    }
}

/// The shortest quantum the machine's modules allow (semantics 21).
#[must_use]
pub(crate) fn least_quantum(spec: &MachineSpec) -> Cycles {
    let gap = spec.modules.iter().map(|module| module.code().gap().0).max().unwrap_or(0);
    Cycles(2 * (gap + wavelock_abi::SCHEDULER_COSTS_V1.switch.0))
}
