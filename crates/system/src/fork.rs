//! Suspends and forks: a run that is suspended at a boundary, and a machine that continues from its
//! current state under another policy or frame limit. The rest of a fork is another run; what has
//! happened is unchanged.

use crate::load::{LoadError, check_spec};
use crate::world::{Phase, World};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::SessionId;
use wavelock_kernel::{Policy, Share};
use wavelock_trace::RunDigest;

impl World {
    /// Continues under another policy. Between waves only; ready coroutines keep their order of
    /// arrival.
    ///
    /// # Errors
    /// The machine could not have been loaded with this policy. Nothing has changed then.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), LoadError> {
        let spec = self.spec.with(|spec| spec.policy = policy);
        check_spec(&spec)?;
        for lane in self.lanes_mut() {
            lane.kernel.set_policy(policy).map_err(|refusal| LoadError::Machine { refusal })?;
        }
        let changes = self.spec.policy.sharing() != policy.sharing();
        self.spec = Arc::new(spec);
        self.session_ids().for_each(|session| self.share_again(session, changes));
        Ok(())
    }

    /// Gives a session its share on its lanes. If something else `changes` to share them, its
    /// coroutines begin with the weights they would be spawned with.
    fn share_again(&mut self, session: SessionId, changes: bool) {
        let sharing = self.spec.policy.sharing();
        let state = self.session(session);
        state.sharing = sharing;
        let (spawn, lanes) = (state.spawn(0), state.lanes.clone());
        let own = Share { weight: spawn.weight, class: spawn.latency };
        for &lane in lanes.iter() {
            let kernel = &mut self.lane(lane).kernel;
            if changes {
                let members: Vec<_> = kernel.session(session.0).collect();
                for (reference, _) in members {
                    // An ended one has no share.
                    let _ = kernel.set_share(reference, own);
                }
            }
            // Without a coroutine there, it gets its share with the first.
            let _ = kernel.set_session_share(session.0, spawn.session);
        }
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
        self.spec = Arc::new(self.spec.with(|spec| spec.max_frames = frames));
    }
}
