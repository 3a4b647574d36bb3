//! The kernel's test oracle: a deliberately naive model of the same contract.
//!
//! Written from docs/spec (semantics, and phases A to D of cpu-authority), not from the kernel:
//! coroutines lie in a vector, every question is answered by looking at all of them, no
//! answer is kept up. It shares ids and operations (what can be asked) with the kernel and no type
//! of answer or state. Where the pages leave the moment of a charge open it follows the kernel's
//! public documentation.
//!
//! Reading order: `lane` (one lane), `fair` (the fair policy), `machine` (several lanes). The
//! comparison is in `random_operations.rs`; `benches/kernel.rs` includes this folder as its
//! baseline.

pub(crate) mod fair;
pub(crate) mod lane;
pub(crate) mod machine;

/// A rule to break on purpose, so that a test can show that the comparison notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The newest of a class goes first.
    NewestFirst,
    /// A level of priority per 15 picks waited.
    AgesTooFast,
    /// Nine holder picks in a row.
    LongerStreak,
    /// A switch costs nothing.
    SwitchIsFree,
    /// A pick spends no token.
    TokensAreKept,
    /// A release goes to the tail.
    HoldLosesThePlace,
    /// Of equal bounds the last is the reason.
    LimitsInOtherOrder,
    /// Sleepers of one frame wake in the wrong order.
    SleepersWakeNewestFirst,
    /// Letters are delivered as they were posted.
    LettersInPostingOrder,
    /// A steal probes the next victim first.
    StealStartsElsewhere,
    /// A steal costs its migrations only.
    StealIsFree,
    /// Lag does not survive a wait.
    LagIsForgotten,
    /// The earliest deadline wins, eligible or not.
    EverybodyIsEligible,
    /// A session is charged guest cycles alone.
    OverheadIsFree,
    /// A session that sleeps in debt leaves at once.
    SessionsNapFreely,
    /// The lag of a session does not move with it.
    SessionsMoveWithoutLag,
    /// A session holds the lane until its coroutines leave it.
    SessionsKeepTheLane,
    /// A demoted session competes as before.
    DemotedCompete,
    /// What a demoted session uses is charged to its next period.
    DemotedPay,
    /// A refill forgives what was used beyond the budget.
    CapsForgiveOverruns,
}

impl Fault {
    /// Every rule that can be broken.
    pub(crate) const ALL: [Self; 20] = [
        Self::NewestFirst,
        Self::AgesTooFast,
        Self::LongerStreak,
        Self::SwitchIsFree,
        Self::TokensAreKept,
        Self::HoldLosesThePlace,
        Self::LimitsInOtherOrder,
        Self::SleepersWakeNewestFirst,
        Self::LettersInPostingOrder,
        Self::StealStartsElsewhere,
        Self::StealIsFree,
        Self::LagIsForgotten,
        Self::EverybodyIsEligible,
        Self::OverheadIsFree,
        Self::SessionsNapFreely,
        Self::SessionsMoveWithoutLag,
        Self::SessionsKeepTheLane,
        Self::DemotedCompete,
        Self::DemotedPay,
        Self::CapsForgiveOverruns,
    ];
}
