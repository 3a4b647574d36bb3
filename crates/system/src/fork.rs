//! Forks: a machine that continues from its current state under another policy or frame limit. The
//! rest is another run; what has happened is unchanged.

use crate::load::{LoadError, check_spec};
use crate::spec::MachineSpec;
use crate::world::World;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::SessionId;
use wavelock_kernel::{Policy, Share};

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

    /// Ends the run after this many frames, counted from its start.
    pub fn set_max_frames(&mut self, frames: Option<u64>) {
        self.spec = Arc::new(MachineSpec { max_frames: frames, ..(*self.spec).clone() });
    }
}
