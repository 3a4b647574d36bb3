//! Migration: moving a session's coroutines from one lane to another, and the bounded steal.
//!
//! Contract: [`Lane::move_session`] checks everything before it changes anything, so a session is
//! never half-moved; old references are stale afterwards. Coroutines leave in the order of their
//! arrivals and keep that order on the new lane, where they arrive last: arrivals are lane-local
//! and cannot be compared across lanes. Block reasons, sleep deadlines, fair lag, tokens, holds and
//! the ledger move along, and so does the account of a capped session; the rest of a quantum and
//! the age of `Aging` do not. Nothing allocates.
//!
//! The steal rule ([`find_steal`]; semantics 14, cpu-authority B.6): a lane without work probes at
//! most `min(lanes - 1, 4)` victims, starting at lane `(thief + round) mod lanes` and going up,
//! itself skipped. A victim has at least two runnable coroutines, ready or current. Of its
//! sessions, ascending from position `round mod sessions`, it looks at no more than 8. A session
//! with a ready coroutine among its first 8 on the lane, other than the session of the victim's
//! current coroutine, is a candidate; the first candidate that may leave is taken if work stays
//! behind: a current coroutine, or another candidate among those 8, whether or not it may leave. At
//! most one session moves per thief and wave. The thief books one steal, and a migration per
//! coroutine; an attempt that finds nothing is free.
//!
//! Elsewhere: which lanes try to steal and when, and what else of a session moves (`system`).

use crate::fair::{Carried, Share};
use crate::heap::{self, ByArrival};
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::queue::Entrance;
use crate::record::{Hot, NIL, Place};
use crate::types::{HoldReason, Refusal, Spawn, Tag};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, SchedulerOperation};

/// Victims one steal probes at most.
const STEAL_VICTIMS: u16 = 4;
/// Sessions it inspects per victim at most.
const STEAL_SESSIONS: usize = 8;
/// Coroutines it inspects per session at most.
const STEAL_COROUTINES: usize = 8;
/// Frames a coroutine waits on a lane it may not leave before that is reported (cpu-authority D.6
/// c).
const STUCK_FRAMES: u64 = 8;

/// Why a coroutine moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveKind {
    /// Placed there: by the balancer, the operator or the manifest.
    Assigned,
    /// Taken by a lane without work.
    Stolen,
}

/// A coroutine between two lanes: removed from one, not yet on the other.
#[must_use = "a coroutine between lanes must arrive on one"]
#[derive(Debug)]
pub(crate) struct Migrant {
    hot: Hot,
    share: Share,
    ledger: Ledger,
    /// Ready: cycles waited so far.
    waited: u64,
    carried: Option<Carried>,
}

/// What forbids a session to leave its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveBan {
    /// The session is split over several lanes.
    Split,
    /// The manifest names its lane.
    Pinned,
    /// The lane is leased.
    Leased,
    /// The session has contexts on the lane.
    Context,
    /// The session is in a call.
    Call,
}

/// A session with work on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunnableSession {
    /// The session.
    pub session: u32,
    /// Its coroutines on the lane, runnable or not.
    pub coroutines: u32,
    /// How often the first of them changed lanes.
    pub migrations: u32,
}

/// A coroutine that waits although another lane is idle, because its session may not move
/// (cpu-authority D.6 c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrationStuck {
    /// The coroutine.
    pub tag: Tag,
    /// Its lane.
    pub lane: LaneId,
    /// Cycles it has waited.
    pub waited: Cycles,
    /// Cycles after which that is reported.
    pub limit: Cycles,
    /// Why it may not move.
    pub ban: MoveBan,
}

/// The lanes a thief probes in a round, in order.
fn steal_victims(thief: LaneId, lanes: u16, round: u64) -> impl Iterator<Item = LaneId> {
    let start = (u64::from(thief.0) + round) % u64::from(lanes.max(1));
    let rotation = (0..u64::from(lanes))
        .map(move |offset| LaneId(((start + offset) % u64::from(lanes)) as u16));
    rotation
        .filter(move |&lane| lane != thief)
        .take(usize::from(STEAL_VICTIMS.min(lanes.saturating_sub(1))))
}

/// The positions of a lane's sessions that are inspected in a round, in order.
fn inspected(sessions: usize, round: u64) -> impl Iterator<Item = usize> {
    let start = (round % sessions.max(1) as u64) as usize;
    (0..sessions.min(STEAL_SESSIONS)).map(move |offset| (start + offset) % sessions)
}

/// The session that a lane without work takes in a round, and the lane that has it; the rule is in
/// the header of this file. `ban` returns what forbids a session to leave.
///
/// # Errors
/// No victim offers a session; with the first coroutine found that should move and may not.
pub fn find_steal<'a>(
    thief: LaneId,
    lanes: u16,
    round: u64,
    lane: impl Fn(LaneId) -> &'a Lane,
    mut ban: impl FnMut(u32) -> Option<MoveBan>,
) -> Result<(LaneId, u32), Option<MigrationStuck>> {
    let mut stuck = None;
    for victim in steal_victims(thief, lanes, round) {
        match lane(victim).offer(round, &mut ban) {
            Ok(session) => return Ok((victim, session)),
            Err(found) => stuck = stuck.or(found),
        }
    }
    Err(stuck)
}

impl Lane {
    /// Whether `coroutines` of a session can arrive without a reservation.
    fn room_for(&self, session: u32, coroutines: u32) -> Result<(), Refusal> {
        let room = self.capacity() - self.live();
        if room < coroutines {
            return Err(Refusal::NoRoom { need: coroutines, room });
        }
        self.sessions.admit(session)
    }

    /// Contexts belong to one lane: a coroutine that holds, lends or waits for one stays.
    fn may_move(&self, slot: u32) -> Result<(), Refusal> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let is_tied = tier.held_by(slot) != NIL
            || tier.lent_by(slot) != NIL
            || self.slab.hot(slot).held.contains(HoldReason::Context);
        if is_tied {
            Err(Refusal::HoldsContext { reference: self.slab.reference(slot) })
        } else {
            Ok(())
        }
    }

    /// Copies out a record that is in no queue any more, and frees its slot.
    pub(crate) fn pack(&mut self, slot: u32) -> Migrant {
        let (mut hot, cold) = (*self.slab.hot(slot), self.slab.cold(slot));
        let share = Share { weight: cold.weight, class: cold.latency };
        let ledger = self.slab.ledger(slot);
        let carried = match &mut self.fair {
            Some(fair) if !hot.place.is_ended() => Some(fair.remove(slot)),
            _ => None,
        };
        let waited = if hot.place.is_ready() { self.clock.wrapping_sub(hot.since) } else { 0 };
        if hot.place == Place::Running {
            hot.place = Place::ReadyList;
        }
        self.free(slot);
        Migrant { hot, share, ledger, waited, carried }
    }

    /// Adds a coroutine from another lane, at the cost of one migration: a ready one at the tail,
    /// others as they were. Returns its reference here. Its room was checked before.
    pub(crate) fn unpack(&mut self, migrant: Migrant, kind: MoveKind) -> CoroutineRef {
        let Migrant { hot, share, mut ledger, waited, carried } = migrant;
        let (tag, priority) = (hot.tag, hot.priority);
        let spawn =
            Spawn { weight: share.weight, latency: share.class, priority, ..Spawn::new(tag) };
        let reference = self
            .slab
            .allocate(&spawn)
            .expect("room was checked before the coroutine left its lane");
        let slot = reference.slot;
        self.book(SchedulerOperation::Migrate);
        ledger.migrations = ledger.migrations.saturating_add(1);
        ledger.steals = ledger.steals.saturating_add(u32::from(kind == MoveKind::Stolen));
        // Age is counted in picks of the lane, so it starts again.
        let picks_at = self.picks();
        let here = self.slab.hot_mut(slot);
        *here = hot;
        (here.generation, here.picks_at) = (reference.generation, picks_at);
        self.slab.set_ledger(slot, &ledger);
        self.sessions.add(&mut self.slab, slot);
        if !hot.place.is_ended() {
            self.adopt(slot, carried, Share::default());
        }
        match hot.place {
            Place::ReadyList | Place::ReadyHeap | Place::ReadyFair | Place::ReadyBackground => {
                let _ = self.arrive(slot, Entrance::Return);
                let clock = self.clock;
                self.slab.hot_mut(slot).since = clock.wrapping_sub(waited);
            }
            Place::SleepNear | Place::SleepFar | Place::SleepEarly => {
                self.sleep_until(slot, Frame(hot.since))
            }
            Place::Blocked => self.counts.blocked += 1,
            Place::Throttled => self.counts.throttled += 1,
            Place::Finished | Place::Faulted | Place::Canceled => self.counts.ended += 1,
            Place::Running | Place::ReadyTier | Place::Free => {
                unreachable!("a migrant is neither running, in the tier nor free")
            }
        }
        if !hot.place.is_ready() && !hot.place.is_sleeping() {
            let arrival = self.arrivals;
            self.arrivals += 1;
            self.slab.hot_mut(slot).arrival = arrival;
        }
        reference
    }

    /// Moves every coroutine of a session from this lane to another, which books a steal if it is
    /// one, and a migration per coroutine; `each` gets every tag with its new reference, in order
    /// of arrival. Returns how many moved.
    ///
    /// # Errors
    /// The session has no coroutine here; one of them is in a slice, or holds or lends a context;
    /// or the other lane has no room or is leased. Then nothing has moved.
    pub fn move_session(
        &mut self,
        session: u32,
        to: &mut Self,
        kind: MoveKind,
        mut each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<u32, Refusal> {
        let list =
            *self.sessions.get(session).ok_or(Refusal::NoSession { session, lane: self.id })?;
        if self.in_slice && self.slab.hot(self.current).tag.session() == session {
            return Err(Refusal::InSlice { reference: self.slab.reference(self.current) });
        }
        to.admits_session()?;
        to.room_for(session, list.count)?;
        self.room_for_cap(session, to)?;
        self.session(session).try_for_each(|(member, _)| self.may_move(member.slot))?;
        if kind == MoveKind::Stolen {
            to.book(SchedulerOperation::Steal);
        }
        self.move_cap(session, to);
        let carried = self.fair.as_mut().and_then(|fair| fair.remove_session(session));
        if let (Some(carried), Some(fair)) = (carried, &mut to.fair) {
            fair.adopt_session(session, carried);
        }
        // The records leave their queues, so their links are free to order them by arrival.
        let mut heap = NIL;
        let mut at = list.head;
        while at != NIL {
            let next = self.slab.session_links(at).next;
            self.withdraw(at);
            heap = heap::push::<ByArrival>(&mut self.slab, heap, at);
            at = next;
        }
        while heap != NIL {
            let slot = heap;
            heap = heap::pop::<ByArrival>(&mut self.slab, heap);
            let migrant = self.pack(slot);
            each(migrant.hot.tag, to.unpack(migrant, kind));
        }
        Ok(list.count)
    }

    /// Moves what a session without coroutines still has here: the account of its cap.
    ///
    /// # Errors
    /// The other lane has no room for it.
    pub fn move_account(&mut self, session: u32, to: &mut Self) -> Result<(), Refusal> {
        self.room_for_cap(session, to)?;
        self.move_cap(session, to);
        Ok(())
    }

    /// The session that this lane offers in a round; the rule is in the header of this file. `ban`
    /// returns what forbids a session to leave.
    ///
    /// # Errors
    /// None; with the first coroutine found that should move and may not.
    pub fn offer(
        &self,
        round: u64,
        mut ban: impl FnMut(u32) -> Option<MoveBan>,
    ) -> Result<u32, Option<MigrationStuck>> {
        let sessions = self.sessions.table();
        let current = (self.current != NIL).then(|| self.slab.hot(self.current).tag.session());
        if self.ready_count() + u32::from(current.is_some()) < 2 {
            return Err(None);
        }
        // Work that would stay: the current coroutine, or a second session with a ready one.
        let mut stays = current.is_some();
        let (mut candidate, mut stuck) = (None, None);
        for index in inspected(sessions.len(), round) {
            let session = sessions[index].session;
            if Some(session) == current {
                continue;
            }
            let Some((slot, tag)) = self.first_ready_of(session) else { continue };
            match ban(session) {
                None if candidate.is_none() => candidate = Some(session),
                None => stays = true,
                Some(ban) => {
                    stays = true;
                    stuck = stuck.or_else(|| self.stuck(slot, tag, ban));
                }
            }
            if let Some(session) = candidate
                && stays
            {
                return Ok(session);
            }
        }
        Err(stuck)
    }

    /// The sessions with a runnable coroutine among the first few of this lane in a round, which
    /// are those that a steal would inspect.
    pub fn runnable_sessions(&self, round: u64) -> impl Iterator<Item = RunnableSession> {
        let sessions = self.sessions.table();
        let current = (self.current != NIL).then(|| self.slab.hot(self.current).tag.session());
        inspected(sessions.len(), round).map(|index| sessions[index]).filter_map(move |list| {
            let is_current = Some(list.session) == current;
            (is_current || self.first_ready_of(list.session).is_some()).then(|| RunnableSession {
                session: list.session,
                coroutines: list.count,
                migrations: self.slab.ledger(list.head).migrations,
            })
        })
    }

    /// A ready coroutine among the first few of a session on this lane.
    fn first_ready_of(&self, session: u32) -> Option<(u32, Tag)> {
        let mut members = self.session(session).take(STEAL_COROUTINES);
        members
            .find(|(member, _)| self.slab.hot(member.slot).place.is_ready())
            .map(|(member, tag)| (member.slot, tag))
    }

    /// The report about a coroutine that waits too long on a lane its session may not leave.
    fn stuck(&self, slot: u32, tag: Tag, ban: MoveBan) -> Option<MigrationStuck> {
        let waited = Cycles(self.clock.wrapping_sub(self.slab.hot(slot).since));
        let limit = Cycles(self.settings.frame_cycles.0.saturating_mul(STUCK_FRAMES));
        (waited > limit).then_some(MigrationStuck { tag, lane: self.id, waited, limit, ban })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn victims_are_probed_in_rotation_and_bounded() {
        let probed = |thief, lanes, round| {
            steal_victims(LaneId(thief), lanes, round).map(|lane| lane.0).collect::<Vec<_>>()
        };
        assert_eq!(probed(0, 1, 5), [0u16; 0]);
        assert_eq!(probed(0, 3, 0), [1, 2]);
        assert_eq!(probed(1, 4, 2), [3, 0, 2]);
        assert_eq!(probed(2, 16, 13), [15, 0, 1, 3]);
        for (thief, round) in (0..16).flat_map(|thief| (0..40).map(move |round| (thief, round))) {
            let victims = probed(thief, 16, round);
            assert!(victims.len() == 4 && !victims.contains(&thief));
        }
    }
}
