//! Into the middle of a slice: the next step is begun and stopped at one of its safepoints, or so
//! many instructions after one, to look at.
//!
//! Contract: after a probe the machine can only be looked at. Its slice is open and will never be
//! closed, so whoever wants to go on comes back from a place before (a timeline does). What is seen
//! is what the step does when it is made: same coroutine, same cycles, same memory.

use crate::group::Group;
use crate::index::LaneIndex;
use crate::profile::Profile;
use crate::world::World;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineName, Cycles};
use wavelock_kernel::Next;
use wavelock_machine::Change;

/// Where a probe stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The lane.
    pub lane: u16,
    /// Who runs.
    pub name: CoroutineName,
    /// Safepoints passed since the slice began; fewer than asked for when the slice has no more.
    pub safepoints: u64,
    /// Instructions run after those; fewer than asked for when the slice has no more.
    pub instructions: u64,
    /// Cycles of the slice so far.
    pub used: Cycles,
}

impl World {
    /// Begins the next step of the open wave and runs it up to its `safepoints`-th safepoint and
    /// then so many instructions. None when no step is left in the wave.
    pub fn probe(&mut self, safepoints: u64, instructions: u64) -> Option<Probe> {
        let lane = self.next_lane()?;
        let (group, place) = self.lane_places[usize::from(lane)];
        self.groups[group].probe(place, safepoints, instructions)
    }

    /// What the last instruction of a probe changed.
    #[must_use]
    pub fn last_change(&self, probe: &Probe) -> Option<&Change> {
        self.state_of(probe.name.session).profile.as_ref()?.last_change()
    }

    /// The instruction that the coroutine of a probe stands at, and the registers of its function.
    #[must_use]
    pub fn at_instruction(&self, probe: &Probe) -> Option<(String, Vec<u64>)> {
        let state = self.state_of(probe.name.session);
        let coroutine = state.tasks.coroutine_ref(probe.name.reference.slot)?;
        Some((
            coroutine.next_instruction(&state.machine)?,
            coroutine.registers(&state.machine).to_vec(),
        ))
    }
}

impl Group {
    fn probe(&mut self, lane: LaneIndex, safepoints: u64, instructions: u64) -> Option<Probe> {
        let Next::Run(running) = self.lanes[lane].kernel.dispatch() else { return None };
        let slice = self.open_slice(lane, running);
        let (session, slot, began) = (slice.session, slice.site().slot, slice.began);
        let state = &mut self.sessions[session];
        state.profile = Some(Box::new(Profile::stopping_after(safepoints, instructions)));
        let name = CoroutineName { session: state.id, reference: state.tasks.reference_at(slot) };
        // How the slice would have ended is not committed, so nobody asks.
        let _ = self.run_slice(slice, false);
        let state = &mut self.sessions[session];
        let used = state
            .tasks
            .coroutine_ref(slot)
            .map_or(Cycles::ZERO, |coroutine| coroutine.used() - began);
        let left = state
            .profile
            .as_ref()
            .map_or((0, 0), |profile| (profile.pieces_left(), profile.instructions_left()));
        Some(Probe {
            lane: self.lanes[lane].id,
            name,
            safepoints: safepoints - left.0,
            instructions: instructions - left.1,
            used,
        })
    }
}
