//! What a run shows of itself to the outside, without times: the thing that must not depend on the
//! schedule.

use wavelock_system::{RunOutcome, SessionOutcome, World};
use wavelock_trace::Digest;

/// What one session showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionObserved {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: SessionOutcome,
    /// The digest of what it sent, output and ended with.
    pub digest: Digest,
}

/// What a whole run showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// How it ended; none when it was cut off.
    pub outcome: RunOutcome,
    /// Every session, in manifest order.
    pub sessions: Vec<SessionObserved>,
}

impl Observed {
    /// What an ended world showed. `None` while it goes on, and when the frame limit ended it:
    /// where that falls is the schedule's doing, so there is nothing to compare.
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
        // A faulted machine may have been ended by its frames all the same.
        if sessions.iter().any(|session| session.outcome == SessionOutcome::Running) {
            return None;
        }
        Some(Self { outcome, sessions })
    }
}
