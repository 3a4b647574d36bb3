//! Choosing from outside: one step at a time, asking before every pick that has a choice.
//!
//! Contract: what is chosen becomes a deviation of the lane's kernel, numbered by the lane's picks;
//! a machine whose spec lists the same deviations makes the same run. Choosing what the policy
//! would is no deviation. Nothing else of a step is different.
//!
//! Elsewhere: who chooses, and why (the exploration of schedules).

use crate::world::{HostFailure, Phase, Sink, World};
use wavelock_abi::LaneId;
use wavelock_kernel::{Choice, Deviation};

impl World {
    /// [`World::step`], with `choose` asked for the rank of the coroutine to take at each pick that
    /// has more than one candidate.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn step_choosing(
        &mut self,
        sink: &mut dyn Sink,
        choose: &mut dyn FnMut(LaneId, &Choice) -> u32,
    ) -> Result<bool, HostFailure> {
        while self.open_wave(sink)? {
            while let Phase::Wave(turn) = self.phase
                && turn < self.lane_places.len()
            {
                let (group, lane) = self.lane_places[turn];
                let kernel = &mut self.groups[group].lanes[lane].kernel;
                if let Some(choice) = kernel.choice().filter(|choice| choice.candidates.len() > 1) {
                    let rank = choose(kernel.id(), &choice).min(choice.candidates.len() as u32 - 1);
                    if rank != choice.rank {
                        kernel.deviate(Deviation { pick: choice.pick, rank });
                    }
                }
                if self.groups[group].step(lane) {
                    return Ok(true);
                }
                self.phase = Phase::Wave(turn + 1);
            }
            self.close_wave();
        }
        Ok(false)
    }
}
