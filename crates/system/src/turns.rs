//! Turns: coroutines of one session that yield to or wait for each other, run without leaving the machine in between.
//!
//! Contract: the same steps, in the same order and with the same log, as [`Group::step`] one by one; `step_equals_run` and every digest
//! hold it to that. Slices that end in a yield or in a wait for a message are done here; any other stop, and a pick of another session or of a
//! coroutine with an answer that `direct` does not give, goes back to the group.

use crate::direct::Direct;
use crate::group::{Group, direct, wait_code};
use wavelock_abi::{Cycles, HostOperation};
use wavelock_kernel::{Next, Outcome, Running};
use wavelock_machine::{Answer, Host, Turn, Turned};
use wavelock_trace::StopCode;

/// A lane whose slices run in one session, one after the other.
struct Turns<'a> {
    /// Answers in place, and the lane.
    direct: Direct<'a>,
    /// The slice that runs, while one does; then what the lane does next.
    next: Next,
    /// The lane's overhead before the slice.
    overhead: Cycles,
    /// How many slices ended in a wait.
    waits: u64,
}

impl Host for Turns<'_> {
    #[inline]
    fn call(&mut self, number: u16, arguments: [u64; 2], memory_bytes: u64) -> Answer {
        self.direct.call(number, arguments, memory_bytes)
    }

    fn pass(&mut self, used: Cycles) -> Turn {
        let Next::Run(running) = &mut self.next else { unreachable!("a slice was running") };
        let (tag, lane) = (running.tag(), &mut *self.direct.lane);
        lane.log.step(tag.session(), tag.slot(), self.overhead, used, StopCode::Yielded);
        let mark = lane.kernel.clock() + used;
        if !lane.kernel.pass(running, used) {
            return self.pass_otherwise(used, Outcome::Yielded);
        }
        self.overhead = lane.kernel.clock() - mark;
        self.direct.turn(running)
    }

    fn leave(&mut self, used: Cycles) -> Turn {
        let (Next::Run(running), Some(reason)) = (&mut self.next, self.direct.waits.take()) else { unreachable!("a slice ends in a wait") };
        self.waits += 1;
        let (tag, lane) = (running.tag(), &mut *self.direct.lane);
        lane.log.step(tag.session(), tag.slot(), self.overhead, used, wait_code(reason));
        let mark = lane.kernel.clock() + used;
        let outcome = Outcome::Blocked(reason);
        if !lane.kernel.leave(running, used, outcome) {
            return self.pass_otherwise(used, outcome);
        }
        self.overhead = lane.kernel.clock() - mark;
        self.direct.turn(running)
    }

    fn answer(&mut self, slot: u32, arguments: [u64; 2], memory_bytes: u64) -> Option<Answer> {
        self.direct.answer(slot, arguments, memory_bytes)
    }
}

impl Direct<'_> {
    /// The turn of a slice, if it is one of this session.
    #[inline(always)]
    fn turn(&mut self, running: &Running) -> Turn {
        let tag = running.tag();
        self.slot = tag.slot();
        if tag.session() == self.session.0 { Turn { slot: self.slot, cycles: running.bound() } } else { Turn::NOBODY }
    }
}

impl Turns<'_> {
    /// The kernel's part of the end of a slice that is not the usual one.
    #[cold]
    #[inline(never)]
    fn pass_otherwise(&mut self, used: Cycles, outcome: Outcome) -> Turn {
        let kernel = &mut self.direct.lane.kernel;
        if let Next::Run(running) = core::mem::replace(&mut self.next, Next::Idle) {
            let _ = kernel.stop(running, used, outcome);
        }
        let mark = kernel.clock();
        self.next = kernel.dispatch();
        self.overhead = kernel.clock() - mark;
        match &self.next {
            Next::Run(running) => self.direct.turn(running),
            _ => Turn::NOBODY,
        }
    }
}

impl Group {
    /// Runs a lane to its wave's end: steps until there is none.
    pub(crate) fn run_lane(&mut self, lane: usize) {
        // Contexts decide and record between slices: such a lane goes step by step.
        if self.lanes[lane].kernel.has_contexts() {
            while self.step(lane) {}
            return;
        }
        let mut next = self.lanes[lane].dispatch();
        while let Next::Run(running) = next {
            next = self.turns(lane, running);
        }
    }

    /// Runs a slice, and those that follow it in the same session by plain yields. Answers what the lane does next.
    fn turns(&mut self, lane: usize, running: Running) -> Next {
        let (session, slot) = (self.local[running.tag().session() as usize] as usize, running.tag().slot());
        let state = &mut self.sessions[session];
        if state.profile.is_some() {
            self.slice_of(lane, running);
            return self.lanes[lane].dispatch();
        }
        let lane_state = &mut self.lanes[lane];
        let (overhead, step_before, charged_before) = (lane_state.overhead(), lane_state.kernel.step(), lane_state.kernel.charged());
        let first = Turn { slot, cycles: running.bound() };
        let mut turns = Turns { direct: direct!(state, lane_state, slot), next: Next::Run(running), overhead, waits: 0 };
        let Turned { stop, began } =
            wavelock_machine::run_turns(&mut state.machine, &mut state.tasks.coroutines, first, &mut turns, HostOperation::Yield as u16);

        // All that was charged, and all slices but the one that may be open, were turns of this session; a wait counts as a call when it is answered.
        let (next, overhead, waits) = (turns.next, turns.overhead, turns.waits);
        let steps = lane_state.kernel.step() - step_before + u64::from(!matches!(next, Next::Run(_)));
        state.host_calls += steps - waits;
        state.cycles += (lane_state.kernel.charged() - charged_before).0;
        lane_state.steps += steps;
        lane_state.mark = lane_state.kernel.clock() - overhead;
        match (next, stop) {
            (Next::Run(running), Some(stop)) => {
                self.stopped((lane, session), began, overhead, running, stop, None);
                self.lanes[lane].dispatch()
            }
            // It waits for an answer that is not given in place.
            (Next::Run(running), None) if self.local[running.tag().session() as usize] as usize == session => {
                self.slice_of(lane, running);
                self.lanes[lane].dispatch()
            }
            (next, _) => next,
        }
    }
}
