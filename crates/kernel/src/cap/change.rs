//! Caps that change while the machine runs: the host sets another one, or takes it away.
//!
//! Contract: the session gets a full account of the new settings, from the current period on. What
//! it had used, and any overrun, is forgiven; statistics continue. If the old account was spent,
//! the coroutines that it held or demoted are the policy's again.

use super::{CapCounts, CapSettings, CapState};
use crate::lane::Lane;
use crate::types::Refusal;
use wavelock_abi::Cycles;

impl Lane {
    /// Gives a session on this lane another cap, or none. Allocates: for the start of a frame, not
    /// for a step of the scheduler.
    ///
    /// # Errors
    /// A budget that covers no pick, a period of no frames, or no memory.
    pub fn change_cap(
        &mut self,
        session: u32,
        settings: Option<CapSettings>,
    ) -> Result<(), Refusal> {
        let least = Cycles(self.cache.switch_cost + 1);
        if let Some(CapSettings { budget, period_frames, .. }) = settings {
            if budget < least || period_frames == 0 {
                return Err(Refusal::Cap { budget, least, period_frames });
            }
            self.caps.reserve(self.caps.accounts.len() + 1)?;
        }
        let found = self.caps.find(session).ok();
        if let Some(at) = found.filter(|at| self.caps.accounts[*at].is_spent) {
            self.reopen(at);
        }
        match settings {
            Some(settings) => {
                let counts =
                    found.map_or_else(CapCounts::default, |at| self.caps.accounts[at].counts);
                let (used, is_spent) = (Cycles::ZERO, false);
                self.caps.insert(CapState { session, settings, used, is_spent, counts });
            }
            None => {
                if let Some(at) = found {
                    self.caps.accounts.remove(at);
                }
            }
        }
        self.refresh();
        Ok(())
    }
}
