//! Waits for a wake and for a session: `park` and `unpark`, and `session_wait` (semantics 60, 61).
//!
//! ```text
//!             unpark, not parked                    park
//!   no wake ─────────────────────▶ wake kept ───────────────▶ no wake (returns at once)
//!      │ park                          ▲ unpark: still one
//!      ▼
//!   parked ──── unpark ────▶ ready (no wake kept)
//! ```
//!
//! Contract: no wake is lost. An unpark ends a park or is kept until the next one, on the own lane
//! at once and on another when the wave ends, decided there. Waits for sessions are answered at a
//! wave's end, in one order, whatever lanes the two sessions are on; so they do not hold a session
//! on its lane. A session keeps the queue of its own coroutines that wait; nothing is stored with
//! the session they wait for.
//!
//! Elsewhere: how a cancellation leaves the queues (`Group::leave_queues`), the other waits
//! (`host`, `call`).

use crate::group::{Effect, Group};
use crate::host::{Done, HostResult, Region};
use crate::index::{LaneIndex, TaskIndex};
use crate::session::{Handle, SessionOutcome, SessionState};
use crate::step::Site;
use crate::task::{Named, Wait};
use crate::wait::{Ticket, WaitQueue};
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Errno, SessionId};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_trace::Event;

/// The coroutines of a session that wait for other sessions to end, if its module imports
/// `session_wait`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    /// By the session waited for, ascending; a queue is never empty. At most one for each port.
    pub(crate) queues: Vec<(SessionId, WaitQueue<u32>)>,
    pub(crate) next_ticket: u64,
}

impl Watches {
    fn push(&mut self, target: SessionId, slot: u32) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let at = self.queues.binary_search_by_key(&target, |(session, _)| *session);
        let at = at.unwrap_or_else(|at| {
            self.queues.insert(at, (target, WaitQueue::new()));
            at
        });
        self.queues[at].1.push(ticket, slot);
        ticket
    }

    /// Takes a waiter out of the queue for `target`.
    pub(crate) fn remove(&mut self, target: SessionId, ticket: Ticket) {
        if let Ok(at) = self.queues.binary_search_by_key(&target, |(session, _)| *session) {
            self.queues[at].1.remove(ticket);
            if self.queues[at].1.is_empty() {
                self.queues.remove(at);
            }
        }
    }
}

impl SessionOutcome {
    /// What `session_wait` returns for a session that ended this way.
    pub(crate) const fn wait_code(self) -> i32 {
        match self {
            Self::Finished => 0,
            Self::Faulted => Errno::Faulted.code(),
            _ => Errno::Canceled.code(),
        }
    }
}

/// Park and unpark.
impl Group {
    pub(crate) fn park(&mut self, site: Site<'_>) -> HostResult {
        let state = &mut self.sessions[site.session];
        if state.tasks.take_wake(site.slot) {
            return Ok(Done::code(0));
        }
        let on = (u64::from(state.id.0), u64::from(site.slot));
        self.wait(site, Wait::Parked, BlockReason::Park, on)
    }

    pub(crate) fn unpark(&mut self, site: Site<'_>, reference: i64) -> HostResult {
        let reference = CoroutineRef::from_guest(reference).ok_or(Errno::Invalid)?;
        let state = &self.sessions[site.session];
        match state.tasks.named(reference) {
            Named::Stale => return Err(Errno::Stale.into()),
            Named::Ended { .. } => return Ok(Done::code(0)),
            Named::Live => {}
        }
        let (session, slot) = (state.id, reference.slot);
        let home = state.tasks.lane_at(slot);
        let lane = &mut self.lanes[site.lane];
        lane.log.event(&Event::Unpark { session: u64::from(session.0), slot: u64::from(slot) });
        if lane.id == home {
            self.unpark_here(site.lane, TaskIndex { session: site.session, slot });
        } else {
            lane.post(home, Effect::Unpark { target: CoroutineName { session, reference } });
        }
        Ok(Done::code(0))
    }

    /// Wakes a live coroutine of this lane if it is parked, or keeps the wake.
    pub(crate) fn unpark_here(&mut self, lane: LaneIndex, at: TaskIndex) {
        let tasks = &mut self.sessions[at.session].tasks;
        if let Wait::Parked = tasks.live_at(at.slot).wait {
            self.answer(lane, at, Wait::Code(0), WakeSource::Unpark);
        } else if self.shared.rules.keeps_wakes() {
            tasks.keep_wake(at.slot);
        }
    }
}

/// Waits for the end of a session.
impl Group {
    pub(crate) fn session_wait(&mut self, site: Site<'_>, handle: i32, pointer: u64) -> HostResult {
        let state = &mut self.sessions[site.session];
        if pointer as u32 != u32::MAX {
            state.bytes(Region::word(pointer))?;
        }
        let Some(Handle::Port(port)) = state.handle(handle) else {
            return Err(Errno::Invalid.into());
        };
        let channel = state.ports[port as usize].channel;
        let watches = state.watches.as_mut().expect("the module imports the operation");
        let ticket = watches.push(channel.owner, site.slot);
        self.watching.push(state.id);
        let on = (u64::from(channel.owner.0), u64::from(channel.index));
        self.wait(site, Wait::Session(ticket), BlockReason::Session, on)
    }

    /// The name of the session, into the guest's memory.
    pub(crate) fn session_name(&mut self, site: Site<'_>, region: Region) -> HostResult {
        let state = &self.sessions[site.session];
        state.bytes(region)?;
        let length = state.name.len();
        if length > region.length as usize {
            return Err(Errno::MessageSize.into());
        }
        self.prepay(site, length as u64)?;
        let state = &mut self.sessions[site.session];
        let name = state.name.clone();
        state.write_checked(region.start, name.as_bytes());
        Ok(Done::code(length as i32))
    }
}

impl SessionState {
    /// The number after the last dot of its name; 0 if there is none, or it is no i32.
    pub(crate) fn index(&self) -> i32 {
        let (_, digits) = self.name.rsplit_once('.').unwrap_or_default();
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        if is_number { digits.parse().unwrap_or(0) } else { 0 }
    }

    /// Takes out the coroutines that wait for `target`, first come first.
    fn take_watchers(&mut self, target: SessionId) -> Option<WaitQueue<u32>> {
        let queues = &mut self.watches.as_mut()?.queues;
        let at = queues.binary_search_by_key(&target, |(session, _)| *session).ok()?;
        Some(queues.remove(at).1)
    }
}

impl World {
    /// At a wave's end: answers the waits for sessions that have ended, in the order (waiting
    /// session, session waited for, arrival).
    pub(crate) fn answer_session_waits(&mut self) {
        let mut watchers: Vec<SessionId> = Vec::new();
        let mut ended: Vec<SessionId> = Vec::new();
        for group in &mut self.groups {
            watchers.append(&mut group.watching);
            ended.extend(&group.ended);
        }
        for owner in ended {
            let channels = |index| ChannelId { owner, index };
            let wired = self.wired_senders.range(channels(0)..=channels(u32::MAX));
            watchers.extend(wired.flat_map(|(_, senders)| senders));
        }
        watchers.sort_unstable();
        watchers.dedup();
        for watcher in watchers {
            let Some(watches) = &self.session(watcher).watches else { continue };
            let targets: Vec<SessionId> = watches.queues.iter().map(|(id, _)| *id).collect();
            for target in targets {
                self.answer_watchers(watcher, target);
            }
        }
    }

    /// Answers the coroutines of `watcher` that wait for `target`, if that has ended.
    fn answer_watchers(&mut self, watcher: SessionId, target: SessionId) {
        let state = self.session_ref(target);
        let Some(outcome) = state.ended else { return };
        let exit = i64::from(state.exit);
        let Some(mut waiters) = self.session(watcher).take_watchers(target) else { return };
        while let Some(slot) = waiters.pop() {
            let answer = match outcome.wait_code() {
                0 => Wait::Number(exit),
                code => Wait::Code(code),
            };
            let name = self.session_ref(watcher).coroutine_name(slot);
            self.answer_across(name, answer, WakeSource::SessionEnd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_sorted_and_never_empty() {
        let mut watches = Watches::default();
        let tickets = [5, 1, 5, 3].map(|session| watches.push(SessionId(session), session));
        let sessions = |watches: &Watches| -> Vec<u32> {
            watches.queues.iter().map(|(session, _)| session.0).collect()
        };
        assert_eq!(sessions(&watches), [1, 3, 5]);
        watches.remove(SessionId(1), tickets[1]);
        watches.remove(SessionId(5), tickets[0]);
        watches.remove(SessionId(9), tickets[0]);
        assert_eq!(sessions(&watches), [3, 5]);
        watches.remove(SessionId(5), tickets[2]);
        assert_eq!(sessions(&watches), [3]);
    }
}
