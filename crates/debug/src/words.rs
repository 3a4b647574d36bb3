//! Texts for the kernel's reasons, policies and keys, and the state names of breakpoints.
//! Elsewhere: the kernel prints states and refusals itself.

use wavelock_abi::Cycles;
use wavelock_kernel::{
    Because, CapOverrun, CapState, DecisionKey, FairKey, LeasePhase, Ledger, Policy, PriorityRule,
    Sharing, State,
};
use wavelock_system::{CapSummary, KillRecord, KillRule, LeaseSummary, World};

/// What a session has used of its cap on a lane, in words.
pub(crate) fn cap_text(cap: &CapSummary) -> String {
    let CapState { settings, used, counts, .. } = cap.account;
    let mut text = format!(
        "{} of {} cycles used on lane {}, refilled every {}, on overrun {}; {} charged, used up {} \
         times, longest overrun {}",
        used.0,
        settings.budget.0,
        cap.lane.0,
        frames(settings.period_frames),
        settings.overrun.name(),
        counts.consumed.0,
        counts.throttles,
        counts.longest_overrun.0
    );
    if settings.overrun == CapOverrun::Demote {
        text += &format!(", {} used while demoted", counts.demoted.0);
    }
    if let Some(until) = cap.until {
        let state = if settings.overrun == CapOverrun::Demote { "demoted" } else { "throttled" };
        text += &format!("; {state} until frame {}", until.0);
    }
    text
}

fn frames(count: u64) -> String {
    if count == 1 { "frame".to_owned() } else { format!("{count} frames") }
}

/// Why a coroutine whose session has used up its cap does not run.
pub(crate) fn throttled_by_cap(cap: &CapSummary) -> String {
    let CapState { settings, used, .. } = cap.account;
    format!(
        "it is runnable, but its session used {} of the {} cycles of its cap on lane {} (per {})",
        used.0,
        settings.budget.0,
        cap.lane.0,
        frames(settings.period_frames)
    )
}

/// Why a ready coroutine of a demoted session does not run.
pub(crate) fn demoted_by_cap(cap: &CapSummary) -> String {
    let CapState { settings, used, .. } = cap.account;
    format!(
        "its session used {} of the {} cycles of its cap on lane {} (per {}): it runs when no other \
         coroutine of the lane is ready",
        used.0,
        settings.budget.0,
        cap.lane.0,
        frames(settings.period_frames)
    )
}

/// Why a budget ended a coroutine. `context` is the name of its context in the manifest.
#[must_use]
pub fn kill_text(kill: &KillRecord, context: Option<&str>) -> String {
    let budget = match (kill.rule, context) {
        (KillRule::Context, Some(name)) => format!("context `{name}`"),
        (KillRule::Context, None) => "its context".to_owned(),
        (KillRule::Cap, _) => "its cap".to_owned(),
    };
    let used = match (kill.rule, kill.overrun) {
        (KillRule::Cap, Cycles::ZERO) => "no more than a pick and a switch was left".to_owned(),
        _ => format!("it used {}", kill.budget.0.saturating_add(kill.overrun.0)),
    };
    format!(
        "{budget} allows {} cycles and {used}, with overrun = \"end\" (frame {}, lane {}, lane \
         clock {})",
        kill.budget.0, kill.frame.0, kill.lane.0, kill.clock.0
    )
}

/// The name of a state in breakpoints.
pub(crate) const fn state_word(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Running => "running",
        State::Sleeping { .. } => "sleeping",
        State::Blocked { .. } => "blocked",
        State::Throttled { .. } => "throttled",
        State::Finished => "finished",
        State::Faulted => "faulted",
        State::Canceled => "canceled",
    }
}

pub(crate) const STATE_WORDS: &[&str] =
    &["ready", "running", "sleeping", "blocked", "throttled", "ended"];

/// What decided, in words.
pub(crate) const fn because(because: Because) -> &'static str {
    match because {
        Because::Continues => {
            "it continues: its quantum is not used up and no coroutine outranks it"
        }
        Because::Alone => "no other coroutine is ready",
        Because::Key => "its key is better than that of the next candidate",
        Because::Arrival => "keys are equal except for the arrival, and it arrived first",
        Because::Handoff => "direct handoff by a send, and no coroutine outranks it",
        Because::Schedule => "the machine's schedule names it for this pick, overriding the policy",
        Because::Tier => "it runs on a context whose deadline is the earliest of the tier",
        Because::Streak => {
            "8 coroutines with progress tokens ran in a row: the oldest other one runs"
        }
    }
}

/// The rule of a policy, in words.
pub(crate) fn rule(policy: &Policy) -> String {
    match policy {
        Policy::Cooperative => "cooperative: FIFO without preemption".into(),
        Policy::RoundRobin { quantum } => format!("round-robin: FIFO with a quantum of {} cycles", quantum.0),
        Policy::Priority { rule: PriorityRule::FixedMap, .. } => "priority-fixed: the largest priority first, then the oldest".into(),
        Policy::Priority { rule: PriorityRule::Aging, .. } => {
            "priority-aging: the largest priority first, one more for every 16 picks waited, then the oldest".into()
        }
        Policy::Priority { rule: PriorityRule::TokenWeighted, .. } => "priority-token: most progress tokens first, then the oldest".into(),
        Policy::ProgressAware { .. } => "progress-aware: coroutines with progress tokens first; after 8 in a row the oldest other".into(),
        Policy::Fair(settings) if settings.sharing() == Sharing::Session => {
            "fair (EEVDF) among sessions: the earliest virtual deadline among the eligible sessions, then among its coroutines".into()
        }
        Policy::Fair(_) => "fair (EEVDF): the earliest virtual deadline among the eligible coroutines".into(),
    }
}

/// A key in words.
pub(crate) fn key(key: DecisionKey) -> String {
    match key {
        DecisionKey::Arrival { arrival } => format!("arrival {arrival}"),
        DecisionKey::Class { class, arrival } => format!("class {class}, arrival {arrival}"),
        DecisionKey::Aged { priority, waited_picks, aged, arrival } => {
            format!(
                "priority {priority}, {aged} after {waited_picks} picks waited, arrival {arrival}"
            )
        }
        DecisionKey::Deadline { deadline, sequence } => {
            format!("context deadline {deadline}, sequence {sequence}")
        }
        DecisionKey::Background { arrival } => format!("demoted by its cap, arrival {arrival}"),
        DecisionKey::Fair { eligible, deadline, lag, arrival } => {
            fair_key(FairKey { is_ahead: !eligible, deadline, arrival, lag })
        }
        DecisionKey::FairSession { session, own } => {
            format!("session {}; in it {}", fair_key(session), fair_key(own))
        }
    }
}

fn fair_key(FairKey { is_ahead, deadline, arrival, lag }: FairKey) -> String {
    format!(
        "{}, deadline in {deadline}, lag {lag}, arrival {arrival}",
        if is_ahead { "not eligible" } else { "eligible" }
    )
}

/// What a coroutine has consumed.
pub(crate) fn ledger(ledger: &Ledger) -> String {
    let blocks: u64 = ledger.blocks.iter().map(|&count| u64::from(count)).sum();
    format!(
        "{} cycles, ready and not running for {} (longest {}); {} switches, {} preemptions, {blocks} waits, {} sleeps, {} moves ({} by steals)",
        ledger.runtime.0,
        ledger.wait_total.0,
        ledger.wait_longest.0,
        ledger.switches,
        ledger.preemptions,
        ledger.sleeps,
        ledger.migrations,
        ledger.steals,
    )
}

/// A lease in a sentence: its state, since when, and why it was denied or ended.
pub(crate) fn lease(world: &World, lease: &LeaseSummary) -> String {
    let named = |session: u32| {
        let session = world.spec().sessions.get(session as usize);
        session.map_or_else(|| "?".to_owned(), |session| session.name.clone())
    };
    let (name, lane) = (&lease.name, lease.lane.0);
    let Some(state) = lease.state else {
        return format!("{name} of lane {lane} was not asked for");
    };
    match (state.phase, state.missing, state.ended) {
        (LeasePhase::Denied, Some(missing), _) => {
            let session = missing.session.map(named);
            let evidence = missing.evidence as u64;
            let why = wavelock_view::missing_evidence(
                evidence,
                session.as_deref(),
                missing.count,
                missing.until,
            );
            format!("{name} of lane {lane} denied: {why}")
        }
        (LeasePhase::Revoking | LeasePhase::Released, _, Some(end)) => format!(
            "{name} of lane {lane} has ended: {} (after {} of at most {} cycles)",
            end.meaning(),
            state.latency().0,
            state.bound.0
        ),
        (LeasePhase::Active, ..) => {
            let until = state
                .expires
                .map_or_else(String::new, |frame| format!(", until frame {} starts", frame.0));
            format!(
                "{name}: lane {lane} runs {} alone since cycle {}{until}; noise {}",
                named(state.session),
                state.began.unwrap_or_default().0,
                lease.noise
            )
        }
        (phase, ..) => format!("{name} of lane {lane} is {}: {}", phase.name(), phase.meaning()),
    }
}
