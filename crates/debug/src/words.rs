//! Words for the kernel's reasons, policies and keys, and the words that breakpoints use. States
//! and refusals are told by the kernel itself.

use wavelock_kernel::{Because, DecisionKey, Policy, PriorityRule, State};

/// The word that a breakpoint on a state uses.
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
        Because::Continues => "it goes on: its quantum has a rest and nobody outranks it",
        Because::Alone => "nobody else is ready",
        Because::Key => "its key is better than the next one's",
        Because::Arrival => "keys are equal but for the arrival, and it is older",
        Because::Handoff => "a send handed over to it and nobody outranks it",
        Because::Schedule => {
            "the machine's schedule names it for this pick, whatever the policy says"
        }
        Because::Tier => "it runs on a context whose deadline is the earliest of the tier",
        Because::Streak => {
            "holders of progress tokens were served often enough in a row: the oldest other goes"
        }
    }
}

/// The rule of a policy, in words.
pub(crate) fn rule(policy: &Policy) -> String {
    match policy {
        Policy::Cooperative => "cooperative: first come, first served; nobody is preempted".into(),
        Policy::RoundRobin { quantum } => format!("round-robin: first come, first served; a quantum is {} cycles", quantum.0),
        Policy::Priority { rule: PriorityRule::FixedMap, .. } => "priority-fixed: the largest priority first, then the oldest".into(),
        Policy::Priority { rule: PriorityRule::Aging, .. } => {
            "priority-aging: the largest priority first, one more for every 16 picks waited, then the oldest".into()
        }
        Policy::Priority { rule: PriorityRule::TokenWeighted, .. } => "priority-token: most progress tokens first, then the oldest".into(),
        Policy::ProgressAware { .. } => "progress-aware: holders of progress tokens first, after 8 in a row the oldest other".into(),
        Policy::Fair(_) => "fair: the earliest virtual deadline among those that had no more than their share".into(),
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
        DecisionKey::Fair { eligible, deadline, lag, arrival } => {
            format!(
                "{}, deadline in {deadline}, lag {lag}, arrival {arrival}",
                if eligible { "eligible" } else { "not eligible" }
            )
        }
    }
}
