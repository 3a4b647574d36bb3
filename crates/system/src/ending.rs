//! Ends, in one fixed order (cpu-authority 9.1), as steps that may each be done twice.
//!
//! A coroutine that is canceled leaves the kernel, where its loans (as lender, as holder) are
//! unwound and its context is unbound; then the queues it waits in; then its kernel record is
//! freed; then the calls it took are answered. After that its end is recorded and its joiners wake.
//! A coroutine that ends by itself waits in no queue and needs only the last of these. When a
//! session's last coroutine has ended, its contexts are revoked and the calls they were lent along
//! end; its leases end; its channels close; its ports close; calls that were not taken are
//! answered; its memory and slots are released, so that every reference is stale.
//!
//! Contract: each step can be repeated after any later or earlier one without a second effect, so
//! an end that is interrupted between two steps and started again ends the same. The tests of this
//! crate interrupt every end at every step (`rules`).

use crate::group::Group;
use crate::index::{ChannelIndex, LaneIndex, SessionIndex, TaskIndex};
use crate::task::{EndStatus, NONE};
use wavelock_machine::Session;

/// A step of the end of a coroutine or of a session.
type Step<T> = fn(&mut Group, LaneIndex, T);

/// The steps of a coroutine's cancellation before its end is recorded.
const CANCEL: [Step<TaskIndex>; 4] = [
    |group, lane, at| {
        // A coroutine that was spawned from another lane in this wave has no kernel record yet. One
        // that is canceled already stays so.
        let reference = group.sessions[at.session].tasks.live_at(at.slot).kernel;
        if reference.slot != NONE {
            let _ = group.lanes[lane].kernel.cancel(reference);
        }
    },
    Group::leave_queues,
    |group, lane, at| {
        let reference = group.sessions[at.session].tasks.live_at(at.slot).kernel;
        if reference.slot != NONE {
            let _ = group.lanes[lane].kernel.reap(reference);
        }
    },
    |group, lane, at| group.drop_replies(lane, at, EndStatus::Canceled),
];

/// The steps of a session's end.
const RELEASE: [Step<SessionIndex>; 6] = [
    |group, lane, session| group.revoke_contexts(lane, group.sessions[session].id),
    Group::end_leases,
    |group, lane, session| {
        for index in 0..group.sessions[session].channels.len() as u32 {
            group.close_channel(lane, ChannelIndex { owner: session, index });
        }
    },
    |group, lane, session| {
        for port in 0..group.sessions[session].ports.len() as u32 {
            group.close_port(lane, session, port);
        }
    },
    Group::drop_calls,
    |group, _, session| {
        let state = &mut group.sessions[session];
        state.tasks.clear();
        state.machine = Session::new(*state.machine.limits());
    },
];

/// The most steps an end has: where a test can interrupt one.
#[cfg(test)]
pub(crate) const MOST_STEPS: usize = RELEASE.len();

impl Group {
    /// Takes a coroutine that is not running out of everything but its session's table.
    pub(crate) fn withdraw(&mut self, lane: LaneIndex, at: TaskIndex) {
        self.in_order(&CANCEL, lane, at);
    }

    /// Releases everything that an ended session held.
    pub(crate) fn release_session(&mut self, lane: LaneIndex, session: SessionIndex) {
        self.in_order(&RELEASE, lane, session);
    }

    /// Does the steps of an end. A planted rule interrupts it after one step and starts again.
    fn in_order<T: Copy>(&mut self, steps: &[Step<T>], lane: LaneIndex, at: T) {
        let cut = self.shared.rules.cut_after().filter(|&done| done < steps.len());
        for step in &steps[..cut.map_or(0, |done| done + 1)] {
            step(self, lane, at);
        }
        for step in steps {
            step(self, lane, at);
        }
    }
}
