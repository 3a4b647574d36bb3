//! The observable result of a run, without times: what must not depend on the schedule.

use wavelock_system::{RunOutcome, SessionOutcome, World};
use wavelock_trace::Digest;

/// The observable result of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionObserved {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: SessionOutcome,
    /// The digest of its messages, output and exit code.
    pub digest: Digest,
}

/// The observable result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// How it ended.
    pub outcome: RunOutcome,
    /// Every session, in manifest order.
    pub sessions: Vec<SessionObserved>,
}

impl Observed {
    /// The result of a world that has ended. `None` while it runs, and if the frame limit ended it:
    /// where that limit falls depends on the schedule, so there is nothing to compare.
    #[must_use]
    pub fn of(world: &mut World) -> Option<Self> {
        let outcome = world.outcome().filter(|&outcome| outcome != RunOutcome::Frames)?;
        let sessions = world.summary().sessions.into_iter();
        let sessions: Vec<SessionObserved> = sessions
            .map(|session| SessionObserved {
                name: session.name,
                outcome: session.outcome,
                digest: session.digest,
            })
            .collect();
        // A faulted machine may also have been ended by the frame limit.
        if sessions.iter().any(|session| session.outcome == SessionOutcome::Running) {
            return None;
        }
        Some(Self { outcome, sessions })
    }
}
