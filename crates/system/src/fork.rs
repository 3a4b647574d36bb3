//! Suspends and forks: a run that is suspended at a boundary, and a machine that continues from its
//! current state under another policy or frame limit. The rest of a fork is another run; what has
//! happened is unchanged.

use crate::load::{LoadError, check_spec};
use crate::spec::MachineSpec;
use crate::world::{Phase, World};
use alloc::sync::Arc;
use wavelock_kernel::Policy;
use wavelock_trace::RunDigest;

impl World {
    /// Continues under another policy. Between waves only; ready coroutines keep their order of
    /// arrival.
    ///
    /// # Errors
    /// The machine could not have been loaded with this policy. Nothing has changed then.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), LoadError> {
        let spec = MachineSpec { policy, ..(*self.spec).clone() };
        check_spec(&spec)?;
        for lane in self.lanes_mut() {
            lane.kernel.set_policy(policy).map_err(|refusal| LoadError::Machine { refusal })?;
        }
        self.spec = Arc::new(spec);
        Ok(())
    }

    /// Suspends the run at this boundary, without an outcome: it can be saved, and continues from
    /// what was saved as if it had not been suspended. `false` if it is not at a boundary.
    pub fn suspend(&mut self) -> bool {
        let is_boundary = self.phase == Phase::Boundary;
        if is_boundary {
            self.phase = Phase::Suspended;
        }
        is_boundary
    }

    /// Takes back the end of a run that its frame limit ended, and lifts the limit: the run is
    /// suspended at the boundary after its last frame, where it can be saved. `false` if something
    /// else ended it.
    ///
    /// What continues from there is a fork, as after [`World::set_max_frames`]: sessions that
    /// `balance` would have moved at that boundary move one frame later.
    pub fn reopen(&mut self) -> bool {
        let Some((digest, next)) = self.before_end.take() else { return false };
        self.progress.frame = next;
        self.digest = RunDigest::resume(digest);
        self.phase = Phase::Suspended;
        self.set_max_frames(None);
        true
    }

    /// Continues a run that was suspended.
    pub fn proceed(&mut self) {
        if self.phase == Phase::Suspended {
            self.phase = Phase::Boundary;
        }
    }

    /// Ends the run after this many frames, counted from its start.
    pub fn set_max_frames(&mut self, frames: Option<u64>) {
        self.spec = Arc::new(MachineSpec { max_frames: frames, ..(*self.spec).clone() });
    }
}
