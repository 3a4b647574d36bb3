//! [`FairLane`]: who shares a lane under `fair`. Either its coroutines compete directly (flat), or
//! its sessions compete, and the coroutines of each session compete for the session's part.
//!
//! Both levels are competitions by the same rules (`competition`). An entity of the upper one is a
//! session on this lane, an entity of a lower one a coroutine. What this file adds is how they
//! depend on each other:
//!
//! ```text
//!                 first coroutine ready           pick
//!   Resting, Delayed ---------------> Queued ----------------> Running (holds the lane)
//!        ^                              |  ^                      |   |
//!        +--- last ready one leaves ----+  +-- protection used up, +   |
//!        |                                     a boundary, a yield     |
//!        +------------- last ready one leaves -------------------------+
//! ```
//!
//! Invariant: a session competes (is queued or running) exactly while one of its coroutines is
//! queued or running. It holds the lane across slices of its coroutines while it is protected.
//!
//! Service of both levels is the time of the lane: guest cycles, and the pick, the switch and the
//! wakes of a slice. In the flat form it is guest cycles alone.
//!
//! Contract: O(log n) in the sessions and in the coroutines; a session's first and last coroutine
//! on the lane also shift a table of session numbers. Nothing allocates after
//! [`FairLane::reserve`].

use super::competition::{Competition, EntityTable};
use super::entity::{CHARGE_LIMIT, Carried, FairSettings, Leave, Phase, Placement, Share, Sharing};
use super::queue::FairQueue;
use super::state::{EntityState, FairSessionState, FairState};
use crate::check::{Violation, equal, holds};
use crate::room::Room;
use alloc::collections::TryReserveError;
use alloc::vec;
use alloc::vec::Vec;
use wavelock_abi::Cycles;

/// The fair queue of a lane.
#[derive(Clone, Debug)]
pub(crate) struct FairLane {
    /// Entities of coroutines, by slot.
    coroutines: EntityTable,
    /// What they compete in: one in all, or one per session, by position.
    groups: Vec<Group>,
    /// The sessions, if they share the lane.
    sessions: Option<Sessions>,
}

/// Coroutines that compete with each other.
#[derive(Clone, Debug)]
struct Group {
    competition: Competition,
    /// The session; no meaning while there are no members.
    session: u32,
    /// Coroutines with an entity in it.
    members: u32,
}

/// The upper level.
#[derive(Clone, Debug)]
struct Sessions {
    /// An entity's slot is the position of its group.
    queue: FairQueue,
    /// Session number and position of its group, ascending by number.
    index: Room<(u32, u32)>,
    /// Positions without a session.
    free: Room<u32>,
    /// By coroutine slot: the position of its group.
    home: Room<u32>,
    /// The lane clock up to which time has been charged.
    charged_until: u64,
    /// Cycles that were charged to a coroutine and not yet to its session, which holds the lane.
    /// Only inside an open slice, and less than `left`.
    pending: u64,
    /// What is left of the holder's protection without the pending cycles: the bound of its slice.
    left: u64,
}

/// What `explain` reads of an entity that competes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FairKey {
    /// Whether it received more than its share.
    pub is_ahead: bool,
    /// Its deadline, in units after the virtual time.
    pub deadline: i64,
    /// Its arrival number.
    pub arrival: u64,
    /// Service owed to it.
    pub lag: i64,
}

impl Group {
    fn new(settings: &FairSettings) -> Self {
        Self { competition: Competition::new(settings), session: 0, members: 0 }
    }

    fn has_ready(&self) -> bool {
        !self.competition.ready.is_empty()
    }
}

impl Sessions {
    fn find(&self, session: u32) -> Result<usize, usize> {
        match self.index.last() {
            Some(&(last, _)) if last == session => Ok(self.index.len() - 1),
            _ => self.index.binary_search_by_key(&session, |&(session, _)| session),
        }
    }

    fn position(&self, session: u32) -> Option<u32> {
        Some(self.index[self.find(session).ok()?].1)
    }

    /// Charges what is pending.
    #[inline]
    fn charge_pending(&mut self) {
        if self.pending > 0 {
            self.queue.charge(Cycles(core::mem::take(&mut self.pending)));
            self.left = self.queue.bound().0;
        }
    }

    /// Cycles until the holder loses its protection.
    #[inline]
    const fn bound(&self) -> Cycles {
        Cycles(self.left - self.pending)
    }

    /// Its first coroutine became ready.
    #[inline]
    fn wake(&mut self, position: u32, placement: Placement, is_new: bool) {
        self.charge_pending();
        match (self.queue.phase(position), placement) {
            (Phase::Queued | Phase::Running, _) => {}
            (Phase::Resting, Placement::Initial) if !is_new => {
                self.queue.place(position, Placement::Wake);
            }
            (Phase::Resting, placement) => self.queue.place(position, placement),
            _ => self.queue.place(position, Placement::Wake),
        }
    }
}

impl FairLane {
    /// The queue of a lane without coroutines.
    #[must_use]
    pub(crate) fn new(settings: FairSettings) -> Self {
        let is_flat = settings.sharing() == Sharing::Coroutine;
        let sessions = (!is_flat).then(|| Sessions {
            queue: FairQueue::new(settings),
            index: Room::new(),
            free: Room::new(),
            home: Room::new(),
            charged_until: 0,
            pending: 0,
            left: 0,
        });
        let groups = if is_flat { vec![Group::new(&settings)] } else { Vec::new() };
        Self { coroutines: EntityTable::new(settings), groups, sessions }
    }

    /// Makes room for coroutines in slots `0..slots`, all competing, of `sessions` sessions.
    /// Nothing else allocates. Never shrinks.
    ///
    /// # Errors
    /// The host has not enough memory; the queue is unchanged but for unused room.
    pub(crate) fn reserve(&mut self, slots: u32, sessions: u32) -> Result<(), TryReserveError> {
        let Some(upper) = &mut self.sessions else { return self.coroutines.reserve(slots, 1) };
        let competitions = sessions.max(self.groups.len() as u32);
        self.coroutines.reserve(slots, competitions)?;
        upper.queue.reserve(competitions)?;
        let (room, more) = (competitions as usize, competitions as usize - self.groups.len());
        self.groups.try_reserve(more)?;
        upper.index.reserve_total(room)?;
        upper.free.reserve_total(room)?;
        upper.home.reserve_total(slots as usize)?;
        upper.home.fill_to(slots as usize, 0);
        let settings = &self.coroutines.settings;
        upper.free.extend((self.groups.len() as u32..competitions).rev());
        self.groups.resize_with(room, || Group::new(settings));
        Ok(())
    }

    /// The position of a coroutine's group.
    #[inline]
    fn home(&self, slot: u32) -> usize {
        self.sessions.as_ref().map_or(0, |sessions| sessions.home[slot as usize] as usize)
    }

    /// The position of the group that holds the lane.
    #[inline]
    fn holder(&self) -> Option<usize> {
        match &self.sessions {
            None => Some(0),
            Some(sessions) => sessions.queue.running().map(|position| position as usize),
        }
    }

    /// The coroutine on the lane.
    #[must_use]
    pub(crate) fn running(&self) -> Option<u32> {
        self.groups[self.holder()?].competition.running
    }

    // Joining and leaving.

    /// Creates a resting entity for a coroutine: new ([`Carried::fresh`]) or from another lane. If
    /// it is the first of its session and the sessions share the lane, `share` is the session's.
    pub(crate) fn adopt(&mut self, slot: u32, session: u32, carried: Carried, share: Share) {
        let position = self.claim(session, Carried::fresh(share));
        if let Some(sessions) = &mut self.sessions {
            sessions.home[slot as usize] = position as u32;
        }
        self.groups[position].members += 1;
        self.coroutines.adopt(slot, carried);
    }

    /// The position of a session's group; a new one with this share and lag if it has none.
    fn claim(&mut self, session: u32, carried: Carried) -> usize {
        let Some(sessions) = &mut self.sessions else { return 0 };
        match sessions.find(session) {
            Ok(at) => sessions.index[at].1 as usize,
            Err(at) => {
                let position = sessions.free.pop().expect("fair: room for a session");
                sessions.index.insert(at, (session, position));
                sessions.queue.adopt(position, carried);
                self.groups[position as usize].session = session;
                position as usize
            }
        }
    }

    /// Takes the entity of a session that leaves this lane: what it carries to another. Its
    /// coroutines are removed next; until then nothing else may happen. `None` in the flat form, or
    /// if it has no coroutine here.
    #[must_use]
    pub(crate) fn remove_session(&mut self, session: u32) -> Option<Carried> {
        let sessions = self.sessions.as_mut()?;
        let position = sessions.position(session)?;
        sessions.charge_pending();
        Some(sessions.queue.remove(position))
    }

    /// A session arrives with what it carried; its coroutines are adopted next. One that is here
    /// already keeps its entity.
    pub(crate) fn adopt_session(&mut self, session: u32, carried: Carried) {
        let _ = self.claim(session, carried);
    }

    /// Removes a coroutine's entity in any phase; returns what it carries to another lane.
    #[must_use]
    pub(crate) fn remove(&mut self, slot: u32) -> Carried {
        let position = self.home(slot);
        let group = &mut self.groups[position];
        let carried = group.competition.remove(&mut self.coroutines, slot);
        group.members -= 1;
        self.settle(position, Leave::Move);
        carried
    }

    /// A resting coroutine joins the competition, and its session, if it rests too.
    pub(crate) fn place(&mut self, slot: u32, placement: Placement) {
        let position = self.home(slot);
        let group = &mut self.groups[position];
        group.competition.place(&mut self.coroutines, slot, placement);
        if let Some(sessions) = &mut self.sessions {
            sessions.wake(position as u32, placement, group.members == 1);
        }
    }

    /// A coroutine leaves the competition, and with the last ready one its session.
    pub(crate) fn leave(&mut self, slot: u32, leave: Leave) {
        let position = self.home(slot);
        let group = &mut self.groups[position];
        group.competition.leave(&mut self.coroutines, slot, leave);
        group.members -= u32::from(leave == Leave::Exit);
        self.settle(position, leave);
    }

    /// Adapts the state of a session to its coroutines after one of them left.
    #[inline]
    fn settle(&mut self, position: usize, leave: Leave) {
        let Some(sessions) = &mut self.sessions else { return };
        let (group, at) = (&mut self.groups[position], position as u32);
        sessions.charge_pending();
        let phase = sessions.queue.phase(at);
        if group.members == 0 {
            if phase != Phase::Absent {
                sessions.queue.leave(at, Leave::Exit);
            }
            group.competition.reset();
            let entry = sessions.find(group.session).expect("fair: a session has an entry");
            sessions.index.remove(entry);
            sessions.free.push(at);
        } else if group.competition.running.is_some() {
        } else if group.has_ready() {
            if phase == Phase::Running && sessions.bound() == Cycles::ZERO {
                sessions.queue.requeue();
            }
        } else if matches!(phase, Phase::Queued | Phase::Running) {
            // The end of a coroutine is to its session like a sleep: others can wake.
            let leave = if leave == Leave::Exit { Leave::Sleep } else { leave };
            sessions.queue.leave(at, leave);
        }
    }

    // One step.

    /// Time from now on belongs to the next slice.
    #[inline]
    pub(crate) fn mark(&mut self, clock: u64) {
        if let Some(sessions) = &mut self.sessions {
            sessions.charged_until = clock;
        }
    }

    /// Charges the coroutine on the lane and its session: the lane's time since the mark up to
    /// `clock`; in the flat form the coroutine for `used` cycles.
    #[inline]
    pub(crate) fn charge(&mut self, used: Cycles, clock: u64) {
        let mut cycles = used;
        let mut position = 0;
        if let Some(sessions) = &mut self.sessions {
            cycles = Cycles(clock.saturating_sub(sessions.charged_until));
            sessions.charged_until = clock;
            sessions.pending += cycles.0;
            sessions.charge_pending();
            position = sessions.queue.running().expect("fair: it runs") as usize;
        }
        self.groups[position].competition.charge(&mut self.coroutines, cycles);
    }

    /// [`Self::charge`] for a slice that another follows at once. While the session is protected,
    /// it is charged with the next change of the upper level instead of now, which is the same:
    /// until then no decision depends on it, and remainders are kept.
    #[inline(always)]
    pub(crate) fn charge_later(&mut self, used: Cycles, clock: u64) {
        let Some(sessions) = &mut self.sessions else { return self.charge(used, clock) };
        let cycles = clock.saturating_sub(sessions.charged_until);
        if cycles >= sessions.bound().0 {
            return self.charge(used, clock);
        }
        sessions.charged_until = clock;
        sessions.pending += cycles;
        let position = sessions.queue.running().expect("fair: it runs") as usize;
        self.groups[position].competition.charge(&mut self.coroutines, Cycles(cycles));
    }

    /// Charges the coroutine on the lane, requeues it after a yield, and dispatches the next:
    /// returns it and the bound of its slice. The same as [`Self::charge_later`],
    /// [`Self::yield_running`], [`Self::pick`] and [`Self::mark`]. `None`, and nothing changed, if
    /// the session has used up its protection while another of its coroutines is ready.
    #[inline(always)]
    pub(crate) fn yield_to_next(&mut self, used: Cycles, clock: u64) -> Option<(u32, Cycles)> {
        let Some(sessions) = &mut self.sessions else {
            return Some(self.groups[0].competition.yield_on(&mut self.coroutines, used));
        };
        let pending = sessions.pending + (clock - sessions.charged_until);
        let holder = sessions.queue.running()?;
        let competition = &mut self.groups[holder as usize].competition;
        if competition.ready.is_empty() {
            return self.yield_session(holder, Cycles(pending), clock);
        }
        let left = sessions.left;
        if pending >= left {
            return None;
        }
        let cycles = Cycles(pending - sessions.pending);
        let (next, bound) = competition.yield_to_next(&mut self.coroutines, cycles)?;
        (sessions.charged_until, sessions.pending) = (clock, pending);
        Some((next, bound.min(Cycles(left - pending))))
    }

    /// [`Self::yield_to_next`] of the only ready coroutine of its session: both give up the rest of
    /// their requests.
    #[inline(never)]
    fn yield_session(&mut self, holder: u32, pending: Cycles, clock: u64) -> Option<(u32, Cycles)> {
        let sessions = self.sessions.as_mut()?;
        let cycles = Cycles(pending.0 - sessions.pending).min(CHARGE_LIMIT);
        let pending = pending.min(CHARGE_LIMIT);
        let competition = &mut self.groups[holder as usize].competition;
        (sessions.charged_until, sessions.pending) = (clock, 0);
        let FairQueue { table, competition: queue } = &mut sessions.queue;
        if queue.is_alone() && competition.is_alone() {
            let left = queue.yield_to_itself(table, pending);
            let bound = competition.yield_to_itself(&mut self.coroutines, cycles);
            sessions.left = left.0;
            return Some((competition.running?, bound.min(left)));
        }
        competition.charge(&mut self.coroutines, cycles);
        competition.yield_running(&mut self.coroutines);
        let (next, left) = queue.yield_on(table, pending);
        sessions.left = left.0;
        let competition = &mut self.groups[next as usize].competition;
        let next = competition.pick(&mut self.coroutines)?;
        Some((next, competition.bound(&self.coroutines).min(left)))
    }

    /// Dispatches a coroutine: of the session that holds the lane, or of the picked one. `None` if
    /// none is queued.
    #[inline(always)]
    pub(crate) fn pick(&mut self) -> Option<u32> {
        let position = match &mut self.sessions {
            None => 0,
            Some(sessions) => match sessions.queue.running() {
                Some(position) => position,
                None => {
                    let position = sessions.queue.pick()?;
                    sessions.left = sessions.queue.bound().0;
                    position
                }
            },
        };
        self.groups[position as usize].competition.pick(&mut self.coroutines)
    }

    /// Direct handoff: dispatches a coroutine for at most `rest` if it is queued and eligible, and
    /// its session holds the lane, or is queued and eligible too. Returns whether it did; otherwise
    /// nothing changes.
    pub(crate) fn hand_to(&mut self, slot: u32, rest: Cycles) -> bool {
        let position = self.home(slot);
        let holder = self.holder();
        let competition = &mut self.groups[position].competition;
        let Some(sessions) = &mut self.sessions else {
            return competition.hand_to(&mut self.coroutines, slot, rest);
        };
        if holder == Some(position) {
            return competition.hand_to(&mut self.coroutines, slot, rest);
        }
        let at = position as u32;
        sessions.charge_pending();
        let may = sessions.queue.phase(at) == Phase::Queued
            && sessions.queue.eligible(at) == Some(true)
            && competition.hand_to(&mut self.coroutines, slot, rest);
        if may {
            if holder.is_some() {
                sessions.queue.requeue();
            }
            let is_handed = sessions.queue.hand_to(at, rest);
            debug_assert!(is_handed, "fair: a requeue does not move the average");
            sessions.left = sessions.queue.bound().0;
        }
        may
    }

    /// Cycles the coroutine on the lane may run before the next decision; zero when one is due.
    #[inline(always)]
    #[must_use]
    pub(crate) fn bound(&self) -> Cycles {
        let Some(holder) = self.holder() else { return Cycles::ZERO };
        let bound = self.groups[holder].competition.bound(&self.coroutines);
        self.sessions.as_ref().map_or(bound, |sessions| sessions.bound().min(bound))
    }

    /// Requeues the coroutine on the lane: its slice ended. Its session keeps the lane only if it
    /// is protected and a pick would not prefer another.
    pub(crate) fn requeue(&mut self) {
        let holder = self.holder().expect("fair: a session holds the lane");
        self.groups[holder].competition.requeue(&mut self.coroutines);
        let Some(sessions) = &mut self.sessions else { return };
        sessions.charge_pending();
        if sessions.bound() == Cycles::ZERO || sessions.queue.prefers_another() {
            sessions.queue.requeue();
        }
    }

    /// Requeues the coroutine on the lane after a yield. Its session yields too if no other of its
    /// coroutines is ready; otherwise it keeps the lane while it is protected.
    #[inline(always)]
    pub(crate) fn yield_running(&mut self) {
        let holder = self.holder().expect("fair: a session holds the lane");
        let group = &mut self.groups[holder];
        group.competition.yield_running(&mut self.coroutines);
        let Some(sessions) = &mut self.sessions else { return };
        if group.competition.ready.len() == 1 {
            sessions.charge_pending();
            sessions.queue.yield_running();
        } else if sessions.bound() == Cycles::ZERO {
            sessions.queue.requeue();
        }
    }

    /// Whether a pick now would preempt the coroutine on the lane, on either level; the test at a
    /// wave's or frame's end (semantics 25).
    #[must_use]
    pub(crate) fn prefers_another(&self) -> bool {
        let Some(holder) = self.holder() else { return false };
        self.sessions.as_ref().is_some_and(|sessions| sessions.queue.prefers_another())
            || self.groups[holder].competition.prefers_another(&self.coroutines)
    }

    // Parameters.

    /// Changes weight and class of a coroutine: among all of the lane, or within its session.
    pub(crate) fn set_share(&mut self, slot: u32, share: Share) {
        let position = self.home(slot);
        self.groups[position].competition.set_share(&mut self.coroutines, slot, share);
    }

    /// Changes weight and class of a session. Returns whether it has a share here: the sessions
    /// share the lane and it has a coroutine.
    pub(crate) fn set_session_share(&mut self, session: u32, share: Share) -> bool {
        let Some(sessions) = &mut self.sessions else { return false };
        let Some(position) = sessions.position(session) else { return false };
        sessions.charge_pending();
        sessions.queue.set_share(position, share);
        sessions.left = sessions.queue.bound().0;
        true
    }

    /// Moves origins, which keeps numbers small and changes no decision.
    pub(crate) fn rebase(&mut self) {
        match &mut self.sessions {
            Some(sessions) => {
                sessions.charge_pending();
                sessions.queue.rebase();
            }
            None => self.groups[0].competition.rebase(),
        }
    }

    // Reading.

    /// Weight and class of a coroutine.
    #[must_use]
    pub(crate) fn share(&self, slot: u32) -> Option<Share> {
        self.coroutines.share(slot)
    }

    /// The session that a coroutine's group belongs to; `None` in the flat form.
    #[must_use]
    pub(crate) fn session_of(&self, slot: u32) -> Option<u32> {
        let sessions = self.sessions.as_ref()?;
        Some(self.groups[*sessions.home.get(slot as usize)? as usize].session)
    }

    /// Whether [`Self::charge_later`] left something to charge.
    #[must_use]
    pub(crate) fn has_pending(&self) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.pending > 0)
    }

    /// Whether a coroutine is queued, the one on the lane not counted.
    #[inline]
    #[must_use]
    pub(crate) fn has_queued(&self) -> bool {
        let of_holder = self.holder().is_some_and(|holder| self.groups[holder].has_ready());
        of_holder || self.sessions.as_ref().is_some_and(|sessions| sessions.queue.has_queued())
    }

    /// Whether a coroutine could be handed the lane; `None` if it does not compete.
    #[must_use]
    pub(crate) fn eligible(&self, slot: u32) -> Option<bool> {
        let position = self.home(slot);
        let own = self.groups[position].competition.eligible(&self.coroutines, slot)?;
        let Some(sessions) = &self.sessions else { return Some(own) };
        let at = position as u32;
        let holds = sessions.queue.running() == Some(at);
        Some(own && (holds || sessions.queue.eligible(at) == Some(true)))
    }

    /// What decides about a coroutine: the key of its session, if they share the lane, and its own.
    /// `None` if it does not compete.
    #[must_use]
    pub(crate) fn keys(&self, slot: u32) -> Option<(Option<FairKey>, FairKey)> {
        let position = self.home(slot);
        let own = self.groups[position].competition.key(&self.coroutines, slot)?;
        let Some(sessions) = &self.sessions else { return Some((None, own)) };
        let queue = &sessions.queue;
        Some((queue.competition.key(&queue.table, position as u32), own))
    }

    /// Service owed to a coroutine: by the others of the lane, or by those of its session.
    #[must_use]
    pub(crate) fn lag(&self, slot: u32) -> Option<i64> {
        self.groups[self.home(slot)].competition.lag(&self.coroutines, slot)
    }

    /// Service owed to a session by the others.
    #[must_use]
    pub(crate) fn session_lag(&self, session: u32) -> Option<i64> {
        let sessions = self.sessions.as_ref()?;
        sessions.queue.lag(sessions.position(session)?)
    }

    /// Calls `visit` with each queued slot, in no particular order, until it returns
    /// false.
    pub(crate) fn visit_queued(&self, mut visit: impl FnMut(u32) -> bool) {
        for group in &self.groups {
            group.competition.visit_queued(&self.coroutines, &mut visit);
        }
    }

    // Plain data.

    /// The flat form as plain data; `None` if sessions share the lane. Allocates.
    #[must_use]
    pub(crate) fn export(&self) -> Option<FairState> {
        if self.sessions.is_some() {
            return None;
        }
        let (table, competition) = (&self.coroutines, &self.groups[0].competition);
        let entities = (0..table.slots()).filter_map(|slot| competition.export(table, slot));
        Some(FairState {
            settings: table.settings,
            slots: table.slots(),
            arrivals: competition.arrivals,
            entities: entities.collect(),
        })
    }

    /// The sessions as plain data, ascending by number, and their next arrival number; `None` in
    /// the flat form. Allocates.
    #[must_use]
    pub(crate) fn export_sessions(&self) -> Option<(u64, Vec<FairSessionState>)> {
        let sessions = self.sessions.as_ref()?;
        let (queue, table) = (&sessions.queue, &self.coroutines);
        let members = self.members();
        let export = |&(session, position): &(u32, u32)| {
            let entity = queue.competition.export(&queue.table, position)?;
            let competition = &self.groups[position as usize].competition;
            let slots = members[position as usize].iter();
            Some(FairSessionState {
                entity: EntityState { slot: session, ..entity },
                arrivals: competition.arrivals,
                coroutines: slots.filter_map(|&slot| competition.export(table, slot)).collect(),
            })
        };
        Some((queue.competition.arrivals, sessions.index.iter().filter_map(export).collect()))
    }

    /// By position: the slots of the coroutines in that group, ascending.
    fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.groups.len()];
        for slot in 0..self.coroutines.slots() {
            if self.coroutines.phase(slot) != Phase::Absent {
                members[self.home(slot)].push(slot);
            }
        }
        members
    }

    /// A flat queue from plain data, which decides exactly like the exported one. `None` if no
    /// queue has this state, or the host has not enough memory.
    #[must_use]
    pub(crate) fn rebuild(state: &FairState) -> Option<Self> {
        let mut lane = Self::new(state.settings);
        if lane.sessions.is_some() {
            return None;
        }
        lane.reserve(state.slots, 0).ok()?;
        let group = &mut lane.groups[0];
        group.competition.restore_all(&mut lane.coroutines, state.arrivals, &state.entities)?;
        group.members = state.entities.len() as u32;
        Some(lane)
    }

    /// A queue of sessions from plain data, with room for slots and sessions. `None` if no queue
    /// has this state, or the host has not enough memory.
    #[must_use]
    pub(crate) fn rebuild_sessions(
        settings: FairSettings,
        reserved: (u32, u32),
        arrivals: u64,
        state: &[FairSessionState],
    ) -> Option<Self> {
        let mut lane = Self::new(settings);
        lane.reserve(reserved.0, reserved.1).ok()?;
        let upper = lane.sessions.as_mut()?;
        if state.len() > lane.groups.len() {
            return None;
        }
        let mut entities = Vec::new();
        entities.try_reserve_exact(state.len()).ok()?;
        for (position, one) in (0u32..).zip(state) {
            let session = one.entity.slot;
            if upper.index.last().is_some_and(|&(last, _)| last >= session)
                || one.coroutines.is_empty()
            {
                return None;
            }
            upper.index.push((session, position));
            entities.push(EntityState { slot: position, ..one.entity });
            let group = &mut lane.groups[position as usize];
            let table = &mut lane.coroutines;
            group.competition.restore_all(table, one.arrivals, &one.coroutines)?;
            (group.session, group.members) = (session, one.coroutines.len() as u32);
            for coroutine in &one.coroutines {
                upper.home[coroutine.slot as usize] = position;
            }
        }
        upper.free.retain(|&position| position >= state.len() as u32);
        let FairQueue { table, competition } = &mut upper.queue;
        competition.restore_all(table, arrivals, &entities)?;
        upper.left = upper.queue.bound().0;
        Some(lane)
    }

    /// A copy that decides alike, to try a decision on. Allocates; `None` without memory.
    #[must_use]
    pub(crate) fn trial(&self) -> Option<Self> {
        match self.export() {
            Some(state) => Self::rebuild(&state),
            None => {
                let (arrivals, sessions) = self.export_sessions()?;
                let room = (self.coroutines.slots(), self.groups.len() as u32);
                Self::rebuild_sessions(self.coroutines.settings, room, arrivals, &sessions)
            }
        }
    }

    /// Verifies every invariant by recomputation: O(n), for tests and the simulator.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let mut nodes = 0;
        for (group, members) in self.groups.iter().zip(self.members()) {
            let count = members.len() as u64;
            equal("a group counts its coroutines", group.session, group.members, count)?;
            nodes += group.competition.check(&self.coroutines, members)?;
        }
        self.coroutines.check_nodes(nodes)?;
        let Some(sessions) = &self.sessions else { return Ok(()) };
        sessions.queue.check()?;
        let is_within = sessions.pending == 0 || sessions.pending < sessions.left;
        holds("pending time is within the protection", 0, is_within)?;
        if sessions.queue.running().is_some() {
            let bound = sessions.queue.bound().0;
            equal("the rest of the protection", 0, sessions.left, bound)?;
        }
        let ascends = sessions.index.windows(2).all(|pair| pair[0].0 < pair[1].0);
        holds("fair sessions ascend", 0, ascends)?;
        let known = sessions.index.len() + sessions.free.len();
        equal("a position has a session or is free", 0, known as u64, self.groups.len() as u64)?;
        for &position in &sessions.free {
            let group = &self.groups[position as usize];
            let is_free = group.members == 0 && sessions.queue.phase(position) == Phase::Absent;
            holds("a free position has no session", position, is_free)?;
        }
        for &(session, position) in &sessions.index {
            let group = &self.groups[position as usize];
            let phase = sessions.queue.phase(position);
            equal("a session knows its group", session, group.session, session)?;
            holds("a session on the lane has a coroutine", session, group.members > 0)?;
            let is_ready = group.has_ready() || group.competition.running.is_some();
            let competes = matches!(phase, Phase::Queued | Phase::Running);
            holds(
                "a session competes exactly while one of its coroutines does",
                session,
                competes == is_ready && phase != Phase::Absent,
            )?;
            holds(
                "a coroutine runs only in the session that holds the lane",
                session,
                group.competition.running.is_none() || phase == Phase::Running,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::EntityPhase;
    use wavelock_abi::LatencyClass;

    /// Forty sessions with up to nine coroutines, in every phase; one session holds the lane.
    fn lane() -> FairLane {
        let settings = FairSettings::new(Cycles(10_000), Cycles(500), Cycles(1_000_000))
            .expect("good settings")
            .shared_by(Sharing::Session);
        let mut lane = FairLane::new(settings);
        lane.reserve(400, 50).expect("memory");
        for slot in 0..360 {
            let session = slot % 40;
            if slot / 40 <= session % 9 {
                let class = LatencyClass::ALL[slot as usize % 5];
                let share = Share { class, ..Share::default() };
                lane.adopt(slot, session, Carried::fresh(share), share);
                lane.place(slot, Placement::Initial);
            }
        }
        let mut clock = 0;
        for step in 0..2_000 {
            let Some(slot) = lane.pick() else { break };
            lane.mark(clock);
            clock += lane.bound().0 + 100;
            lane.charge(lane.bound(), clock);
            if step % 11 == 0 { lane.leave(slot, Leave::Sleep) } else { lane.requeue() }
        }
        let _ = lane.pick();
        assert_eq!(lane.check(), Ok(()));
        lane
    }

    /// Damage done to a lane from inside.
    type Damage = fn(&mut FairLane);

    #[test]
    fn check_finds_planted_faults() {
        let damages: [(&str, Damage); 11] = [
            ("a group counts", |lane| lane.groups[3].members += 1),
            ("fair sessions ascend", |lane| upper(lane).index.swap(0, 1)),
            ("a position has", |lane| {
                let _ = upper(lane).free.pop();
            }),
            ("a free position", |lane| {
                let used = upper(lane).index[0].1;
                *upper(lane).free.last_mut().expect("positions are free") = used;
            }),
            ("a session knows", |lane| lane.groups[4].session += 1),
            ("every queued and every delayed", |lane| {
                let slot = lane.running().expect("one runs");
                let (home, other) = (lane.home(slot), (lane.home(slot) + 1) % 40);
                let (one, two) = (home.min(other), home.max(other));
                let [one, two] = lane.groups.get_disjoint_mut([one, two]).expect("two groups");
                core::mem::swap(&mut one.competition.ready, &mut two.competition.ready);
            }),
            ("a session competes", |lane| {
                let holder = upper(lane).queue.running().expect("a session holds the lane");
                upper(lane).queue.leave(holder, Leave::Move);
            }),
            ("a coroutine runs only", |lane| upper(lane).queue.requeue()),
            ("pending time", |lane| upper(lane).pending = upper(lane).left + 1),
            ("the rest of the protection", |lane| upper(lane).left += 1),
            ("the weighted sum", |lane| upper(lane).queue.competition.weighted_sum += 1),
        ];
        for (rule, damage) in damages {
            let mut lane = lane();
            damage(&mut lane);
            let found = lane.check().expect_err(rule);
            assert!(found.rule.starts_with(rule), "{rule}: {found:?}");
        }
    }

    fn upper(lane: &mut FairLane) -> &mut Sessions {
        lane.sessions.as_mut().expect("sessions share the lane")
    }

    #[test]
    fn a_state_that_no_lane_has_is_refused() {
        let lane = lane();
        let (arrivals, good) = lane.export_sessions().expect("sessions share it");
        let settings = lane.coroutines.settings;
        let refused = |room: (u32, u32), change: &dyn Fn(&mut Vec<FairSessionState>)| {
            let mut state = good.clone();
            change(&mut state);
            let rebuilt = FairLane::rebuild_sessions(settings, room, arrivals, &state);
            // What a rebuild does not refuse, the check does.
            rebuilt.is_none_or(|lane| lane.check().is_err())
        };
        let room = (400, 50);
        assert!(!refused(room, &|_| ()));
        let again = FairLane::rebuild_sessions(settings, room, arrivals, &good).expect("own data");
        assert_eq!(again.export_sessions(), Some((arrivals, good.clone())));
        assert!(refused((10, 50), &|_| ()), "too few slots");
        assert!(refused((400, 10), &|_| ()), "too little room for sessions");
        assert!(refused(room, &|state| state.swap(0, 1)));
        assert!(refused(room, &|state| state[1].entity.slot = state[0].entity.slot));
        assert!(refused(room, &|state| state[2].coroutines.clear()));
        assert!(refused(room, &|state| {
            let is_queued = |one: &EntityState| matches!(one.phase, EntityPhase::Queued(_));
            let found = state.iter_mut().find(|one| one.coroutines.iter().any(is_queued));
            found.expect("a coroutine is queued").arrivals = 0;
        }));
        assert!(refused(room, &|state| {
            let taken = state[8].coroutines[0];
            state[2].coroutines.insert(0, taken);
        }));
        assert!(refused(room, &|state| {
            let resting = EntityPhase::Resting { lag: 0, request_left: None };
            state.iter_mut().for_each(|one| one.entity.phase = resting);
        }));
        let flat = FairSettings::shared_by(settings, Sharing::Coroutine);
        assert!(FairLane::rebuild_sessions(flat, room, arrivals, &good).is_none());
    }
}
