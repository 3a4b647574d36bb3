//! Shrinking: removes deviations from a list until none can be left out.
//!
//! Tries to remove halves first, then quarters, down to single deviations; a removal is kept if the
//! result still differs. Removing one changes all later picks, so every try is a run.

use crate::explore::{ExploreError, Explorer, Proof, Schedule};
use crate::observe::Observed;

/// The shrunk list and its result. May take as many runs again as the exploration.
pub(crate) fn shrink(
    explorer: &mut Explorer<'_>,
    usual: &Observed,
    mut schedule: Schedule,
    mut observed: Observed,
) -> Result<(Schedule, Observed, Proof), ExploreError> {
    let (before, most) = explorer.shrinking();
    let mut piece = schedule.len().div_ceil(2).max(1);
    loop {
        let mut left_out = false;
        let mut at = 0;
        while at < schedule.len() {
            if explorer.shrinking().0 - before >= most {
                return Ok((schedule, observed, Proof::Unshrunk));
            }
            let end = (at + piece).min(schedule.len());
            let shorter: Schedule =
                schedule[..at].iter().chain(&schedule[end..]).copied().collect();
            match explorer.observe(&shorter)?.filter(|seen| seen != usual) {
                Some(seen) => {
                    (schedule, observed) = (shorter, seen);
                    left_out = true;
                }
                None => at = end,
            }
        }
        if piece == 1 && !left_out {
            return Ok((schedule, observed, Proof::Minimal));
        }
        if !left_out || piece > 1 {
            piece = piece.div_ceil(2).max(1);
        }
    }
}
