//! The envelope: how two runs may differ, and their first difference.
//!
//! Order classes, from strict to loose: `Exact` (the same trace), `SessionNormalizedPermutation`
//! (every session has the same observables, in another interleaving), `EnvelopeBounded` (sessions
//! differ). A wave run declares `Exact`.

use wavelock_system::{RunOutcome, RunSummary};
use wavelock_trace::Digest;

/// Version of this comparison.
pub const ENVELOPE_VERSION: u32 = 1;

/// How the order of two runs compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OrderClass {
    /// The same trace, byte for byte.
    Exact,
    /// The same observables of every session, in another interleaving.
    SessionNormalizedPermutation,
    /// Sessions differ in what they sent, output or how they ended.
    EnvelopeBounded,
}

/// How the effects of two runs compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EffectClass {
    /// Every session's observables are the same.
    Exact,
    /// Some session's differ.
    Different,
}

/// How the ends of two runs compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailureClass {
    /// The same outcome, of the run and of every session.
    Exact,
    /// The same outcome of the run; some sessions ended differently.
    Sessions,
    /// Another outcome of the run.
    Different,
}

/// The compared part of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionView {
    /// Its name.
    pub name: String,
    /// The digest of its observables.
    pub digest: Digest,
    /// How it ended, as its JSON word.
    pub outcome: String,
    /// Its exit code.
    pub exit: i32,
}

/// The compared part of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunView {
    /// The run digest.
    pub digest: Digest,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// Its sessions.
    pub sessions: Vec<SessionView>,
    /// The maximum number of groups that ran in parallel; 1 for a sequential run.
    pub widest_wave: u64,
}

impl RunView {
    /// The view of a finished run.
    #[must_use]
    pub fn of(summary: &RunSummary, widest_wave: u64) -> Self {
        let sessions = summary.sessions.iter().map(|session| SessionView {
            name: session.name.clone(),
            digest: session.digest,
            outcome: session.outcome.name().into(),
            exit: session.exit,
        });
        Self {
            digest: summary.digest,
            outcome: summary.outcome,
            sessions: sessions.collect(),
            widest_wave,
        }
    }
}

/// The first difference, with both values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Where: `outcome`, `sessions`, `session NAME` or `trace`.
    pub at: String,
    /// The value in the first run.
    pub first: String,
    /// The value in the second.
    pub second: String,
}

/// The declared difference between two runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvelopeDiff {
    /// [`ENVELOPE_VERSION`].
    pub version: u32,
    /// Order.
    pub order: OrderClass,
    /// Effects.
    pub effects: EffectClass,
    /// Failures.
    pub failures: FailureClass,
    /// The wider of the two runs' widest waves.
    pub width_bound: u64,
    /// The first difference; none if the runs are the same.
    pub first: Option<Difference>,
}

impl EnvelopeDiff {
    /// Compares two runs.
    #[must_use]
    pub fn between(first: &RunView, second: &RunView) -> Self {
        let difference = |at: String, one: String, two: String| {
            (one != two).then_some(Difference { at, first: one, second: two })
        };
        let word = |outcome: Option<RunOutcome>| {
            outcome.map_or("interrupted", RunOutcome::name).to_owned()
        };
        let outcome = difference("outcome".into(), word(first.outcome), word(second.outcome));
        let names = |view: &RunView| {
            view.sessions.iter().map(|session| session.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let sessions = difference("sessions".into(), names(first), names(second));
        let same_names = sessions.is_none();
        let pairs = || first.sessions.iter().zip(&second.sessions);
        let end = |session: &SessionView| format!("{} with exit {}", session.outcome, session.exit);
        let ends = pairs().find_map(|(one, two)| {
            difference(format!("end of session {}", one.name), end(one), end(two))
        });
        let observables = pairs().find_map(|(one, two)| {
            difference(
                format!("observables of session {}", one.name),
                one.digest.to_string(),
                two.digest.to_string(),
            )
        });
        let trace = difference("trace".into(), first.digest.to_string(), second.digest.to_string());

        let effects = if same_names && observables.is_none() {
            EffectClass::Exact
        } else {
            EffectClass::Different
        };
        let failures = match (&outcome, &ends) {
            (Some(_), _) => FailureClass::Different,
            (None, Some(_)) => FailureClass::Sessions,
            (None, None) => FailureClass::Exact,
        };
        let order = match (&trace, effects) {
            (None, _) => OrderClass::Exact,
            (Some(_), EffectClass::Exact) => OrderClass::SessionNormalizedPermutation,
            (Some(_), EffectClass::Different) => OrderClass::EnvelopeBounded,
        };
        let width_bound = first.widest_wave.max(second.widest_wave);
        let first = sessions.or(outcome).or(ends).or(observables).or(trace);
        Self { version: ENVELOPE_VERSION, order, effects, failures, width_bound, first }
    }
}
