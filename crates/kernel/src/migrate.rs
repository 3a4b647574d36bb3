//! Moving coroutines between lanes: one, or all of a session; and the bounded steal.
//!
//! Contract: a moving coroutine is in exactly one place, the [`Traveller`] value; it has left its lane completely (its old reference is stale)
//! and is not yet on another. Everything is checked before anything leaves, so nothing is ever half-moved. A session's coroutines leave
//! in the order of their arrivals and keep that order on the new lane, where they arrive last: arrivals are lane-local and cannot be compared
//! across lanes. Waits, debts, tokens, holds and the ledger travel along; the rest of a quantum and the age of `Aging`, which goes with the
//! arrival, do not. No step allocates.
//!
//! The steal rule (semantics 14, cpu-authority B.6): a lane without work probes at most `min(lanes - 1, 4)` victims, starting at lane
//! `(thief + round) mod lanes` and going up, itself skipped. A victim has at least two runnable coroutines, ready or current. Of its
//! sessions, ascending from position `round mod sessions`, it looks at no more than 8. A session with a ready coroutine among its first
//! 8 on the lane, other than the session of the victim's current coroutine, is a candidate; the first candidate that may leave is taken if
//! work stays behind: a current coroutine, or another candidate among those 8, whether or not it may leave. At most one session moves
//! per thief and wave.

use crate::carry::{PicksAt, split_switches};
use crate::fair::Carried;
use crate::heap::{self, ByArrival};
use crate::lane::Lane;
use crate::queue::Entrance;
use crate::record::{Cold, Hot, NIL, Place};
use crate::types::{HoldReason, Refusal, Spawn, Tag};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, SchedulerOperation};

/// Victims one steal probes at most.
pub const STEAL_VICTIMS: u16 = 4;
/// Sessions it inspects per victim at most.
pub const STEAL_SESSIONS: usize = 8;
/// Coroutines it inspects per session at most.
pub const STEAL_COROUTINES: usize = 8;
/// Rounds of the settings a coroutine waits on a lane it may not leave before that is reported (cpu-authority D.6 c).
pub const STUCK_ROUNDS: u64 = 8;

/// Why a coroutine moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveKind {
    /// Placed there: by the balancer, the operator or the manifest.
    Assigned,
    /// Taken by a lane without work.
    Stolen,
}

/// A coroutine between two lanes: the explicit migration state.
#[must_use = "a coroutine between lanes must arrive on one"]
#[derive(Debug)]
pub struct Traveller {
    hot: Hot,
    cold: Cold,
    /// Ready: cycles waited so far.
    waited: u64,
    carried: Option<Carried>,
}

impl Traveller {
    /// The caller's name for it.
    #[must_use]
    pub const fn tag(&self) -> Tag {
        self.hot.tag
    }
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

/// A coroutine that waits although another lane is idle, because its session may not move (cpu-authority D.6 c).
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

/// What a victim offers a thief.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// This session can be taken.
    Session(u32),
    /// Nothing; and the first coroutine found that should move and may not.
    Nothing(Option<MigrationStuck>),
}

/// The lanes a thief probes in a round, in order.
pub fn steal_victims(thief: LaneId, lanes: u16, round: u64) -> impl Iterator<Item = LaneId> {
    let start = (u64::from(thief.0) + round) % u64::from(lanes.max(1));
    let rotation = (0..u64::from(lanes)).map(move |offset| LaneId(((start + offset) % u64::from(lanes)) as u16));
    rotation.filter(move |&lane| lane != thief).take(usize::from(STEAL_VICTIMS.min(lanes.saturating_sub(1))))
}

impl Lane {
    /// Whether so many coroutines of a session can arrive without a reservation.
    ///
    /// # Errors
    /// No room, with the numbers.
    pub fn room_for(&self, session: u32, coroutines: u32) -> Result<(), Refusal> {
        let room = self.capacity() - self.live();
        if room < coroutines {
            return Err(Refusal::NoRoom { need: coroutines, room });
        }
        self.sessions.admit(session)
    }

    /// Takes a coroutine off this lane. Its reference is stale from now on.
    ///
    /// # Errors
    /// Stale, or in the middle of a slice.
    pub fn depart(&mut self, reference: CoroutineRef) -> Result<Traveller, Refusal> {
        let slot = self.slab.live_slot(reference)?;
        if self.in_slice && slot == self.current {
            return Err(Refusal::InSlice { reference });
        }
        self.may_move(slot)?;
        self.withdraw(slot);
        Ok(self.pack(slot))
    }

    /// Contexts are of one lane: who holds, lends or waits for one stays.
    fn may_move(&self, slot: u32) -> Result<(), Refusal> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let is_tied = tier.held_by(slot) != NIL || tier.lent_by(slot) != NIL || self.slab.hot(slot).held.contains(HoldReason::Throttled);
        if is_tied { Err(Refusal::HoldsContext { reference: self.slab.reference(slot) }) } else { Ok(()) }
    }

    /// Packs a record that is in no structure any more and frees its slot.
    fn pack(&mut self, slot: u32) -> Traveller {
        let (mut hot, mut cold) = (*self.slab.hot(slot), Cold { blocks: self.slab.blocks(slot), ..*self.slab.cold(slot) });
        hot.waits = 0;
        // Whoever goes to and fro may never be where records are settled.
        (hot.switches, cold.switches) = split_switches(self.slab.switches(slot));
        let carried = match &mut self.fair {
            Some(fair) if !hot.place.is_ended() => Some(fair.release(slot)),
            _ => None,
        };
        let waited = if hot.place.is_ready() { self.clock.wrapping_sub(hot.since) } else { 0 };
        if hot.place == Place::Running {
            hot.place = Place::ReadyList;
        }
        self.free(slot);
        Traveller { hot, cold, waited, carried }
    }

    /// Receives a coroutine from another lane, at the cost of one migration: ready ones at the tail, sleepers and the blocked as they
    /// were. Gives its reference here.
    ///
    /// # Panics
    /// When no room was reserved: ask [`Lane::room_for`] before anything departs.
    pub fn receive(&mut self, traveller: Traveller, kind: MoveKind) -> CoroutineRef {
        let Traveller { hot, cold, waited, carried } = traveller;
        let spawn = Spawn { tag: hot.tag, priority: hot.priority, weight: cold.weight, latency: cold.latency };
        let reference = self.slab.allocate(&spawn).expect("room was checked before the coroutine left its lane");
        let slot = reference.slot;
        self.book(SchedulerOperation::Migrate);
        let stolen = u32::from(kind == MoveKind::Stolen);
        let (migrations, steals) = (cold.migrations.saturating_add(1), cold.steals.saturating_add(stolen));
        // Age is counted in picks of the lane, so it begins anew, whatever the coroutine is doing.
        let arrived = Hot { generation: reference.generation, picks_at: PicksAt::of(self.picks()), ..hot };
        self.slab.restore_record(slot, arrived, Cold { migrations, steals, ..cold });
        self.sessions.add(&mut self.slab, slot);
        if !hot.place.is_ended() {
            self.adopt(slot, carried);
        }
        match hot.place {
            Place::ReadyList | Place::ReadyHeap | Place::ReadyFair => {
                let _ = self.arrive(slot, Entrance::Return);
                let clock = self.clock;
                self.slab.hot_mut(slot).since = clock.wrapping_sub(waited);
            }
            Place::SleepWheel | Place::SleepFar | Place::SleepEarly => self.sleep_until(slot, Frame(hot.since)),
            Place::Blocked => self.blocked += 1,
            Place::Held => self.held += 1,
            Place::Finished | Place::Faulted | Place::Canceled => self.ended += 1,
            Place::Running | Place::ReadyTier | Place::Free => unreachable!("a traveller is neither running, in the tier nor free"),
        }
        if !hot.place.is_ready() && !hot.place.is_sleeping() {
            let arrival = self.arrivals;
            self.arrivals += 1;
            self.slab.hot_mut(slot).arrival = arrival;
        }
        reference
    }

    /// Moves every coroutine of a session from this lane to another; `each` gets every tag with its new reference, in order of arrival.
    /// Gives how many moved.
    ///
    /// # Errors
    /// The session is not here, one of its coroutines is in the middle of a slice, or the other lane has no room. Then nothing moved.
    pub fn move_session(
        &mut self,
        session: u32,
        to: &mut Self,
        kind: MoveKind,
        mut each: impl FnMut(Tag, CoroutineRef),
    ) -> Result<u32, Refusal> {
        let list = *self.sessions.get(session).ok_or(Refusal::NoSession { session, lane: self.id })?;
        if self.in_slice && self.slab.hot(self.current).tag.session() == session {
            return Err(Refusal::InSlice { reference: self.slab.reference(self.current) });
        }
        to.room_for(session, list.count)?;
        self.session(session).try_for_each(|(member, _)| self.may_move(member.slot))?;
        // The records leave their queues, so their links are free to order them by arrival.
        let mut heap = NIL;
        let mut at = list.head;
        while at != NIL {
            let next = self.slab.kin(at).session_next;
            self.withdraw(at);
            heap = heap::push::<ByArrival>(&mut self.slab, heap, at);
            at = next;
        }
        while heap != NIL {
            let slot = heap;
            heap = heap::pop::<ByArrival>(&mut self.slab, heap);
            let traveller = self.pack(slot);
            let tag = traveller.tag();
            each(tag, to.receive(traveller, kind));
        }
        Ok(list.count)
    }

    /// What this lane offers a thief in a round; `ban` says which sessions may not leave. The rule is in the header of `migrate.rs`.
    #[must_use]
    pub fn offer(&self, round: u64, mut ban: impl FnMut(u32) -> Option<MoveBan>) -> Offer {
        let sessions = self.sessions.table();
        let current = (self.current != NIL).then(|| self.slab.hot(self.current).tag.session());
        if self.ready_count() + u32::from(current.is_some()) < 2 {
            return Offer::Nothing(None);
        }
        let start = (round % sessions.len() as u64) as usize;
        // Work that would stay: the current coroutine, or a second session with somebody ready.
        let mut stays = current.is_some();
        let (mut candidate, mut stuck) = (None, None);
        for index in (0..sessions.len().min(STEAL_SESSIONS)).map(|offset| (start + offset) % sessions.len()) {
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
                return Offer::Session(session);
            }
        }
        Offer::Nothing(stuck)
    }

    /// A ready coroutine among the first few of a session on this lane.
    fn first_ready_of(&self, session: u32) -> Option<(u32, Tag)> {
        let mut members = self.session(session).take(STEAL_COROUTINES);
        members.find(|(member, _)| self.slab.hot(member.slot).place.is_ready()).map(|(member, tag)| (member.slot, tag))
    }

    /// The report about a coroutine that waits too long on a lane its session may not leave.
    fn stuck(&self, slot: u32, tag: Tag, ban: MoveBan) -> Option<MigrationStuck> {
        let waited = Cycles(self.clock.wrapping_sub(self.slab.hot(slot).since));
        let limit = self.stuck_limit();
        (waited > limit).then_some(MigrationStuck { tag, lane: self.id, waited, limit, ban })
    }

    /// Cycles a coroutine may wait beside an idle lane before that is reported.
    fn stuck_limit(&self) -> Cycles {
        Cycles(self.settings.frame_cycles.0.saturating_mul(STUCK_ROUNDS))
    }
}
