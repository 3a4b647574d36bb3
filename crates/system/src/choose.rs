//! Steps whose picks are chosen from outside, by an explorer of schedules.
//!
//! Contract: a choice becomes a deviation of the lane's kernel, numbered by the lane's picks; a
//! machine whose spec lists the same deviations makes the same run. Choosing what the policy would
//! is no deviation. Nothing else of a step is different. Elsewhere: the explorer (`lab`).

use crate::group::LaneState;
use crate::world::{HostFailure, Sink, World};
use wavelock_abi::LaneId;
use wavelock_kernel::{Choice, Deviation};

impl World {
    /// [`World::step`], with `choose` returning the rank of the coroutine to take at each pick that
    /// has more than one candidate.
    ///
    /// # Errors
    /// The host could not continue.
    pub fn step_choosing(
        &mut self,
        sink: &mut dyn Sink,
        choose: &mut dyn FnMut(LaneId, &Choice) -> u32,
    ) -> Result<bool, HostFailure> {
        let mut deviate = |lane: &mut LaneState| {
            let kernel = &mut lane.kernel;
            if let Some(choice) = kernel.choice().filter(|choice| choice.candidates.len() > 1) {
                let rank = choose(kernel.id(), &choice).min(choice.candidates.len() as u32 - 1);
                if rank != choice.rank {
                    kernel.deviate(Deviation { pick: choice.pick, rank });
                }
            }
        };
        while self.open_wave(sink)? {
            if self.step_after(&mut deviate) {
                return Ok(true);
            }
            self.close_wave();
        }
        Ok(false)
    }
}
