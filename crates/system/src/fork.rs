//! Forks: a machine that continues from its current state under another policy or frame limit. The
//! rest is another run; what has happened is unchanged.

use crate::load::{LoadError, check_spec};
use crate::spec::MachineSpec;
use crate::world::World;
use alloc::sync::Arc;
use wavelock_kernel::Policy;

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

    /// Ends the run after this many frames, counted from its start.
    pub fn set_max_frames(&mut self, frames: Option<u64>) {
        self.spec = Arc::new(MachineSpec { max_frames: frames, ..(*self.spec).clone() });
    }
}
