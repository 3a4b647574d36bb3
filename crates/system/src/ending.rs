//! Ends, in one fixed order (cpu-authority 9.1), as steps that may each be done twice.
//!
//! A coroutine that is canceled: out of the lane, where loans are unwound (as lender, as holder)
//! and its context is unbound; out of the queues it waits in; its record in the lane goes; calls it
//! took are answered. Then its end is recorded and those who join it wake. One that ends by itself
//! needs none but the last of these: it stands in no queue. A session, once its last coroutine has
//! ended and that is recorded: its contexts are revoked and the calls they were lent along end; its
//! channels close; its ports close; calls that nobody took are answered; its memory and slots go,
//! so that every reference is stale.
//!
//! Contract: each step can be done again after any later or earlier one without a second effect, so
//! an end that is cut off between two steps and begun anew ends the same. The tests of this crate
//! cut every end at every place (`rules`).

use crate::group::Group;
use crate::index::{LaneIndex, SessionIndex};
use crate::task::{EndStatus, NONE};
use wavelock_machine::Session;

/// A step of an end: of the coroutine of a slot, or of a session (the slot means nothing).
type Step = fn(&mut Group, At);

/// What ends: lane, session, and slot of a coroutine.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) lane: LaneIndex,
    pub(crate) session: SessionIndex,
    pub(crate) slot: u32,
}

/// The steps of a coroutine's cancellation before its end is recorded.
const CANCEL: [Step; 4] = [
    |group, at| {
        // One that was spawned from another lane in this wave is not in the kernel yet; one that is
        // canceled already is left so.
        let reference = group.sessions[at.session].tasks.live_at(at.slot).kernel;
        if reference.slot != NONE {
            let _ = group.lanes[at.lane].kernel.cancel(reference);
        }
    },
    |group, at| group.leave_queues(at.lane, at.session, at.slot),
    |group, at| {
        let reference = group.sessions[at.session].tasks.live_at(at.slot).kernel;
        if reference.slot != NONE {
            let _ = group.lanes[at.lane].kernel.reap(reference);
        }
    },
    |group, at| group.drop_replies(at.lane, at.session, at.slot, EndStatus::Canceled),
];

/// The steps of a session's end.
const LOGOUT: [Step; 5] = [
    |group, at| group.revoke_contexts(at.lane, group.sessions[at.session].id),
    |group, at| {
        for channel in 0..group.sessions[at.session].channels.len() as u32 {
            group.close_channel(at.lane, at.session, channel);
        }
    },
    |group, at| {
        for port in 0..group.sessions[at.session].ports.len() as u32 {
            group.close_port(at.lane, at.session, port);
        }
    },
    |group, at| group.drop_calls(at.lane, at.session),
    |group, at| {
        let state = &mut group.sessions[at.session];
        state.tasks.clear();
        state.machine = Session::new(*state.machine.limits());
    },
];

/// The most steps an end has: where a test can cut one.
#[cfg(test)]
pub(crate) const MOST_STEPS: usize = LOGOUT.len();

impl Group {
    /// Takes a coroutine that does not run now out of everything but its session's table.
    pub(crate) fn withdraw(&mut self, at: At) {
        self.in_order(&CANCEL, at);
    }

    /// Gives back all that an ended session had.
    pub(crate) fn log_out(&mut self, at: At) {
        self.in_order(&LOGOUT, at);
    }

    /// Does the steps of an end. A planted rule cuts it off after one and begins anew.
    fn in_order(&mut self, steps: &[Step], at: At) {
        let cut = self.shared.rules.cut_after().filter(|&done| done < steps.len());
        for step in &steps[..cut.map_or(0, |done| done + 1)] {
            step(self, at);
        }
        for step in steps {
            step(self, at);
        }
    }
}
