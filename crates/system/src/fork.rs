//! Forks: a machine that goes on from where it stands under another policy or another end. What
//! comes is another run; what was is the same.

use crate::load::{LoadError, check_spec};
use crate::spec::MachineSpec;
use crate::world::World;
use alloc::sync::Arc;
use wavelock_kernel::Policy;

impl World {
    /// Goes on under another policy. Between waves only; coroutines keep their places in order of
    /// arrival.
    ///
    /// # Errors
    /// The policy is not one this machine could have been loaded with. Nothing has changed then.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), LoadError> {
        let spec = MachineSpec { policy, ..(*self.spec).clone() };
        check_spec(&spec)?;
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            lane.kernel.set_policy(policy).map_err(|refusal| LoadError::Machine { refusal })?;
        }
        self.spec = Arc::new(spec);
        Ok(())
    }

    /// Ends after this many frames, counted from the run's beginning.
    pub fn set_max_frames(&mut self, frames: Option<u64>) {
        self.spec = Arc::new(MachineSpec { max_frames: frames, ..(*self.spec).clone() });
    }
}
