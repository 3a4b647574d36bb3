//! Probes: the next step is started and stopped inside its slice, at a safepoint or a number of
//! instructions after one, for inspection.
//!
//! Contract: after a probe the machine can only be inspected. Its slice is open and will never be
//! committed; to continue, restore an earlier state (a timeline does). The probe shows what the
//! step does when it is made: same coroutine, same cycles, same memory.

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

/// Where a probe stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The lane.
    pub lane: u16,
    /// The running coroutine.
    pub name: CoroutineName,
    /// Safepoints since the slice started; fewer than requested when the slice has no more.
    pub safepoints: u64,
    /// Instructions after those; fewer than requested when the slice has no more.
    pub instructions: u64,
    /// Cycles of the slice so far.
    pub used: Cycles,
}

impl World {
    /// Starts the next step of the open wave and runs it up to its `safepoints`-th safepoint and
    /// then `instructions` further. `None` when no step is left in the wave.
    pub fn probe(&mut self, safepoints: u64, instructions: u64) -> Option<Probe> {
        let (group, lane) = self.lane_positions[usize::from(self.next_lane()?.0)];
        self.groups[group].probe(lane, safepoints, instructions)
    }

    /// What the last instruction of a probe changed.
    #[must_use]
    pub fn last_change(&self, probe: &Probe) -> Option<&Change> {
        self.session_ref(probe.name.session).profile.as_ref()?.last_change()
    }

    /// The next instruction of the coroutine of a probe, and the registers of its function.
    #[must_use]
    pub fn at_instruction(&self, probe: &Probe) -> Option<(String, Vec<u64>)> {
        let state = self.session_ref(probe.name.session);
        let coroutine = state.tasks.coroutine_ref(probe.name.reference.slot)?;
        let registers = coroutine.registers(&state.machine).to_vec();
        Some((coroutine.next_instruction(&state.machine)?, registers))
    }
}

impl Group {
    fn probe(&mut self, lane: LaneIndex, safepoints: u64, instructions: u64) -> Option<Probe> {
        let Next::Run(running) = self.lanes[lane].kernel.dispatch() else { return None };
        let slice = self.open_slice(lane, running);
        let (session, slot, began) = (slice.session, slice.site().slot, slice.began);
        let state = &mut self.sessions[session];
        state.profile = Some(Box::new(Profile::stopping_after(safepoints, instructions)));
        let name = state.coroutine_name(slot);
        // The end of the slice is not committed.
        let _ = self.run_slice(slice, false);
        let state = &self.sessions[session];
        let coroutine = state.tasks.coroutine_ref(slot);
        let used = coroutine.map_or(Cycles::ZERO, |coroutine| coroutine.used() - began);
        let (pieces_left, instructions_left) =
            state.profile.as_ref().map_or((0, 0), |profile| profile.left());
        Some(Probe {
            lane: self.lanes[lane].id,
            name,
            safepoints: safepoints - pieces_left,
            instructions: instructions - instructions_left,
            used,
        })
    }
}
