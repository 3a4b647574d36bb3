//! Caps: at most this many cycles of a lane for all coroutines of a session together, per period of
//! frames (semantics 43 to 48).
//!
//! ```text
//!             stop or pick leaves less than a pick and a switch
//!   open ----------------------------------------------------------> spent
//!     <--------------------------------------------------------------
//!             begin_frame at a multiple of the period, enough left
//! ```
//!
//! What being spent means is the cap's [`CapOverrun`]:
//!
//! - `Throttle`: every coroutine of the session on this lane is held ([`HoldReason::Cap`]), so none
//!   of them is in a queue and the policy never considers one.
//! - `Demote`: its ready coroutines are in the *background* ([`Place::ReadyBackground`]), a FIFO by
//!   arrival that is picked from only when no other coroutine of the lane is ready. Nothing is
//!   charged meanwhile; the time is counted. Contexts are not demoted: a holder that its context
//!   pays for is in the tier as ever.
//! - `End`: they are held, and [`CapEventKind::Ended`] asks the caller to end the session.
//!
//! Contract: an account is charged the lane's time from the pick of a coroutine of its session to
//! the end of the slice: guest cycles, the pick, the switch, and the wakes that the slice caused. A
//! slice is bounded by the rest of the account, so its instructions exceed the budget by less than
//! the longest gap; the overrun is charged to the next period.
//!
//! Cost: spending and refilling an account look at each coroutine of the session on the lane, at
//! most once per period; entering the background is O(1) and leaving it O(log n) amortised. Nothing
//! else looks at more than one account, found by binary search. A lane without accounts takes none
//! of these paths.
//!
//! Elsewhere: how a budget is divided among lanes (`system`).

mod change;

use crate::check::{Violation, equal, holds};
use crate::context::Payer;
use crate::digest::mix;
use crate::fair::Leave;
use crate::heap::{self, ByArrival};
use crate::lane::{Lane, Next};
use crate::queue::Entrance;
use crate::record::{NIL, Place};
use crate::room::Room;
use crate::types::{BoundReason, HoldReason, Refusal, Stopped, numbered};
use wavelock_abi::{Cycles, Frame, SchedulerOperation};

numbered! {
    /// What happens to a session that has used up its cap.
    CapOverrun {
        Throttle = 0, "throttle", "its coroutines wait for the next refill";
        Demote = 1, "demote", "until the next refill its coroutines run only when no other coroutine of the lane is ready";
        End = 2, "end", "it is ended: killed, with the cap's numbers";
    }
}

/// The cap of a session on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapSettings {
    /// Cycles per period.
    pub budget: Cycles,
    /// Frames of a period; the account is refilled at each multiple.
    pub period_frames: u64,
    /// What happens when it is used up.
    pub overrun: CapOverrun,
}

/// Statistics of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CapCounts {
    /// Cycles of the lane that were charged in all.
    pub consumed: Cycles,
    /// Times it was used up.
    pub throttles: u64,
    /// Most cycles used beyond a budget.
    pub longest_overrun: Cycles,
    /// Cycles of the lane that were not charged, because the session was demoted.
    pub demoted: Cycles,
}

/// The account of a session on a lane as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapState {
    /// The session.
    pub session: u32,
    /// Its cap.
    pub settings: CapSettings,
    /// Cycles used in this period, the overrun of earlier ones included.
    pub used: Cycles,
    /// Whether it is used up: the session's coroutines are held or in the background.
    pub is_spent: bool,
    /// Its statistics.
    pub counts: CapCounts,
}

/// An event of a cap, for [`Lane::drain_cap_events`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapEvent {
    /// The lane's clock.
    pub at: Cycles,
    /// The session.
    pub session: u32,
    /// Cycles per period.
    pub budget: Cycles,
    /// Cycles used of this period.
    pub used: Cycles,
    /// What happened.
    pub kind: CapEventKind,
}

/// What happened to a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's sentence names its fields")]
pub enum CapEventKind {
    /// It is used up; the session's coroutines wait for frame `until`.
    Throttled { until: Frame },
    /// It is used up; the session's coroutines are in the background until frame `until`.
    Demoted { until: Frame },
    /// It is used up; the caller ends the session, whose coroutines are held.
    Ended,
    /// It was refilled; the session's coroutines compete again.
    Refilled,
}

impl CapState {
    /// Cycles left of the period.
    const fn left(&self) -> u64 {
        self.settings.budget.0.saturating_sub(self.used.0)
    }

    /// Refills that a spent account needs to be open again, with `reserve` cycles for a pick.
    fn refills_needed(&self, reserve: u64) -> u64 {
        (self.used.0.saturating_add(reserve) / self.settings.budget.0.max(1)).max(1)
    }

    /// The frame in which a spent account is open again.
    fn open_at(&self, frame: Frame, reserve: u64) -> Frame {
        let period = self.settings.period_frames;
        let begun = frame.0 / period;
        Frame(begun.saturating_add(self.refills_needed(reserve)).saturating_mul(period))
    }

    /// Whether the session's coroutines are in the background.
    fn is_demoted(&self) -> bool {
        self.is_spent && self.settings.overrun == CapOverrun::Demote
    }

    /// Whether the session's coroutines are held.
    fn holds(&self) -> bool {
        self.is_spent && self.settings.overrun != CapOverrun::Demote
    }

    fn event(&self, clock: u64, kind: CapEventKind) -> CapEvent {
        let (session, budget, used) = (self.session, self.settings.budget, self.used);
        CapEvent { at: Cycles(clock), session, budget, used, kind }
    }
}

/// The accounts of a lane, ascending by session.
#[derive(Clone)]
pub(crate) struct Caps {
    accounts: Room<CapState>,
    /// Accounts that were reserved. Kept beside the vector's own capacity, which may be larger: a
    /// refusal must not depend on an allocator.
    reserved: u32,
    events: Room<CapEvent>,
    /// The lane clock up to which the current coroutine's time has been charged.
    charged_until: u64,
    /// The oldest in the background, or [`NIL`]: the root of a heap by arrival.
    pub(crate) background: u32,
    /// Accounts whose sessions are demoted.
    pub(crate) demoted: u32,
}

impl Caps {
    pub(crate) const fn new() -> Self {
        Self {
            accounts: Room::new(),
            reserved: 0,
            events: Room::new(),
            charged_until: 0,
            background: NIL,
            demoted: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    fn find(&self, session: u32) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&session, |account| account.session)
    }

    fn get(&self, session: u32) -> Option<&CapState> {
        Some(&self.accounts[self.find(session).ok()?])
    }

    /// Between two drains an account can be spent once and refilled once.
    fn reserve(&mut self, accounts: usize) -> Result<(), Refusal> {
        let refused = |_| Refusal::OutOfMemory { wanted: accounts as u32 };
        self.accounts.reserve_total(accounts).map_err(refused)?;
        let events = 2 * accounts + 2;
        self.events.reserve_total(events).map_err(refused)?;
        self.reserved = self.reserved.max(accounts as u32);
        Ok(())
    }

    fn insert(&mut self, account: CapState) {
        match self.find(account.session) {
            Ok(at) => self.accounts[at] = account,
            Err(at) => self.accounts.insert(at, account),
        }
    }

    /// Records an event. Never allocates: one beyond the reserved room is dropped.
    fn note(&mut self, event: CapEvent) {
        if self.events.len() < self.events.capacity() {
            self.events.push(event);
        }
    }
}

/// Settings and readings.
impl Lane {
    /// Makes room for this many accounts in all, so that sessions with a cap can move here.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn reserve_caps(&mut self, accounts: u32) -> Result<(), Refusal> {
        self.caps.reserve(accounts as usize)
    }

    /// Caps a session on this lane, from the current period on. Allocates: for loading, not for a
    /// step of the scheduler.
    ///
    /// # Errors
    /// A budget that covers no pick, a period of no frames, an account that is spent, or no memory.
    pub fn set_cap(&mut self, session: u32, settings: CapSettings) -> Result<(), Refusal> {
        let (budget, least) = (settings.budget, Cycles(self.cache.switch_cost + 1));
        let is_spent = self.caps.get(session).is_some_and(|account| account.is_spent);
        if budget < least || settings.period_frames == 0 || is_spent {
            let period_frames = settings.period_frames;
            return Err(Refusal::Cap { budget, least, period_frames });
        }
        self.caps.reserve(self.caps.accounts.len() + 1)?;
        let (used, counts) = (Cycles::ZERO, CapCounts::default());
        self.caps.insert(CapState { session, settings, used, is_spent: false, counts });
        self.refresh();
        Ok(())
    }

    /// Whether a session on this lane has a cap.
    #[inline]
    #[must_use]
    pub fn has_caps(&self) -> bool {
        !self.caps.is_empty()
    }

    /// Whether a session is ended when it uses up its cap on this lane.
    #[inline]
    #[must_use]
    pub fn ends_by_cap(&self, session: u32) -> bool {
        !self.caps.is_empty()
            && self.caps.get(session).is_some_and(|of| of.settings.overrun == CapOverrun::End)
    }

    /// The accounts, ascending by session.
    #[must_use]
    pub fn caps(&self) -> &[CapState] {
        &self.caps.accounts
    }

    /// The account of a session.
    #[must_use]
    pub fn cap(&self, session: u32) -> Option<&CapState> {
        self.caps.get(session)
    }

    /// The frame in which a session whose cap is used up is refilled; `None` if that ends it.
    #[must_use]
    pub fn capped_until(&self, session: u32) -> Option<Frame> {
        let is_refilled = |of: &&CapState| of.is_spent && of.settings.overrun != CapOverrun::End;
        let account = self.caps.get(session).filter(is_refilled)?;
        Some(account.open_at(self.frame, self.cache.switch_cost))
    }

    /// The first frame in which a held coroutine can run because a cap is refilled.
    #[must_use]
    pub fn next_cap_refill(&self) -> Option<Frame> {
        if self.counts.throttled == 0 {
            return None;
        }
        let is_throttled =
            |of: &&CapState| of.is_spent && of.settings.overrun == CapOverrun::Throttle;
        let spent = self.caps.accounts.iter().filter(is_throttled);
        spent.map(|account| account.open_at(self.frame, self.cache.switch_cost)).min()
    }

    /// Whether [`Lane::drain_cap_events`] has anything to give.
    #[inline]
    #[must_use]
    pub fn has_cap_events(&self) -> bool {
        !self.caps.events.is_empty()
    }

    /// What happened to caps since the last call, in order.
    pub fn drain_cap_events(&mut self, each: impl FnMut(CapEvent)) {
        self.caps.events.drain(..).for_each(each);
    }
}

/// Charging.
impl Lane {
    /// [`Lane::dispatch`] on a lane with caps and without contexts.
    #[cold]
    #[inline(never)]
    pub(crate) fn dispatch_capped(&mut self) -> Next {
        self.mark_cap();
        let next = self.dispatch_by_policy();
        if next == Next::Over {
            let _ = self.charge_cap(self.clock);
        }
        next
    }

    /// Time from now on belongs to the next pick.
    pub(crate) fn mark_cap(&mut self) {
        self.caps.charged_until = self.clock;
    }

    /// What the cap of the current coroutine's session leaves to its open slice, if it has one and
    /// is not demoted.
    #[must_use]
    pub fn cap_left(&self) -> Option<Cycles> {
        if self.current == NIL {
            return None;
        }
        let account = self.caps.get(self.slab.hot(self.current).tag.session())?;
        if account.is_demoted() {
            return None;
        }
        let elapsed = self.clock.saturating_sub(self.caps.charged_until);
        Some(Cycles(account.left().saturating_sub(elapsed)))
    }

    /// The shorter of a bound and what the cap leaves; the cap if they are equal.
    #[cold]
    pub(crate) fn bound_by_cap(&self, bound: (Cycles, BoundReason)) -> (Cycles, BoundReason) {
        match self.cap_left() {
            Some(left) if left <= bound.0 => (left, BoundReason::Cap),
            _ => bound,
        }
    }

    /// Charges the lane's time up to `clock` to the cap of the current coroutine's session. If less
    /// than a pick and a switch is left, the account is spent. Returns whether that demoted the
    /// session.
    #[cold]
    pub(crate) fn charge_cap(&mut self, clock: u64) -> bool {
        if self.current == NIL {
            return false;
        }
        let session = self.slab.hot(self.current).tag.session();
        let Ok(at) = self.caps.find(session) else { return false };
        let elapsed = Cycles(clock.saturating_sub(self.caps.charged_until));
        self.caps.charged_until = clock;
        let (reserve, frame) = (self.cache.switch_cost, self.frame);
        let account = &mut self.caps.accounts[at];
        if account.is_demoted() {
            account.counts.demoted = account.counts.demoted.saturating_add(elapsed);
            return false;
        }
        account.used = account.used.saturating_add(elapsed);
        account.counts.consumed = account.counts.consumed.saturating_add(elapsed);
        if account.is_spent || account.left() > reserve {
            return false;
        }
        account.is_spent = true;
        let CapCounts { throttles, longest_overrun, .. } = &mut account.counts;
        *throttles += 1;
        *longest_overrun =
            account.used.saturating_sub(account.settings.budget).max(*longest_overrun);
        let (overrun, until) = (account.settings.overrun, account.open_at(frame, reserve));
        let event = account.event(
            clock,
            match overrun {
                CapOverrun::Throttle => CapEventKind::Throttled { until },
                CapOverrun::Demote => CapEventKind::Demoted { until },
                CapOverrun::End => CapEventKind::Ended,
            },
        );
        self.caps.note(event);
        match overrun {
            CapOverrun::Throttle | CapOverrun::End => self.hold_session(session),
            CapOverrun::Demote => self.demote_session(session),
        }
        overrun == CapOverrun::Demote
    }

    /// Calls `each` with every coroutine of a session on this lane. It may change their queues, not
    /// the session's list.
    fn each_of_session(&mut self, session: u32, mut each: impl FnMut(&mut Self, u32)) {
        let mut at = self.sessions.get(session).map_or(NIL, |list| list.head);
        while at != NIL {
            each(self, at);
            at = self.slab.session_links(at).next;
        }
    }

    /// Holds every coroutine of a session on this lane.
    fn hold_session(&mut self, session: u32) {
        self.each_of_session(session, |lane, at| {
            if !lane.slab.hot(at).place.is_ended() {
                lane.hold_slot(at, HoldReason::Cap);
            }
        });
    }

    /// Releases every coroutine of a session that its cap held: each is queued at its old arrival,
    /// which costs nothing beside the refill.
    fn release_session(&mut self, session: u32) {
        self.each_of_session(session, |lane, at| {
            let hot = lane.slab.hot_mut(at);
            if hot.held.contains(HoldReason::Cap) {
                hot.held = hot.held.without(HoldReason::Cap);
                if hot.held.is_empty() && hot.place == Place::Throttled {
                    lane.counts.throttled -= 1;
                    let _ = lane.enqueue(at, Entrance::Return);
                }
            }
        });
    }

    /// Moves the coroutines of a session that the policy has queued to the background, and the
    /// current one between slices. One in a slice follows when the slice stops.
    fn demote_session(&mut self, session: u32) {
        self.caps.demoted += 1;
        self.each_of_session(session, |lane, at| {
            if lane.is_queued_by_policy(at) {
                lane.end_wait(at);
                lane.dequeue(at);
                let _ = lane.enqueue_in_background(at, Entrance::Return);
            } else if at == lane.current && !lane.in_slice && lane.is_current_best_effort() {
                lane.vacate();
                let _ = lane.enqueue_in_background(at, Entrance::Slice);
            }
        });
    }

    /// Moves the coroutines of a session from the background to the policy's queue, each at its old
    /// arrival, and the current one between slices.
    fn promote_session(&mut self, session: u32) {
        self.each_of_session(session, |lane, at| {
            let place = lane.slab.hot(at).place;
            let is_current = place == Place::Running && lane.is_current_best_effort();
            if place == Place::ReadyBackground || is_current {
                if place == Place::ReadyBackground {
                    lane.end_wait(at);
                }
                lane.withdraw(at);
                let _ = lane.enqueue(at, Entrance::Return);
            }
        });
    }

    /// Whether the session of a coroutine is demoted.
    pub(crate) fn is_demoted(&self, slot: u32) -> bool {
        self.caps.get(self.slab.hot(slot).tag.session()).is_some_and(CapState::is_demoted)
    }

    /// Whether the current coroutine is not on a context.
    fn is_current_best_effort(&self) -> bool {
        self.tier.as_ref().is_none_or(|tier| tier.payer == Payer::BestEffort)
    }

    /// Whether the current coroutine was picked from the background.
    pub(crate) fn is_current_in_background(&self) -> bool {
        self.current != NIL && self.is_demoted(self.current) && self.is_current_best_effort()
    }

    /// Whether a coroutine that is ready or current is in the background.
    pub(crate) fn is_in_background(&self, slot: u32) -> bool {
        match self.slab.hot(slot).place {
            Place::ReadyBackground => true,
            Place::Running => self.is_current_in_background(),
            _ => false,
        }
    }

    /// Queues a runnable coroutine in the background, at the arrival it carries.
    pub(crate) fn enqueue_in_background(&mut self, slot: u32, entrance: Entrance) -> Stopped {
        if let Some(fair) = &mut self.fair {
            if fair.running() == Some(slot) {
                // A yield gives up the rest of a request all the same.
                entrance.enter(fair, slot);
            }
            fair.leave(slot, Leave::Move);
        }
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        (hot.since, hot.place) = (clock, Place::ReadyBackground);
        if entrance.begins() {
            self.digest = self.digest.wrapping_add(mix(hot.tag, hot.generation));
        }
        self.caps.background = heap::push::<ByArrival>(&mut self.slab, self.caps.background, slot);
        Stopped::Requeued
    }

    /// Removes a coroutine from the background. The caller sets its place.
    pub(crate) fn leave_background(&mut self, slot: u32) {
        let root = self.caps.background;
        self.caps.background = heap::remove::<ByArrival>(&mut self.slab, root, slot);
    }

    /// Whether the policy has a ready coroutine queued.
    pub(crate) fn is_policys_queue_occupied(&self) -> bool {
        match &self.fair {
            Some(fair) => fair.has_queued(),
            None => self.ready.occupied().highest().is_some(),
        }
    }

    /// A coroutine that comes to a lane on which its session's cap is used up is held from the
    /// start.
    #[cold]
    pub(crate) fn hold_newcomer(&mut self, slot: u32) {
        let hot = self.slab.hot(slot);
        if self.caps.get(hot.tag.session()).is_some_and(CapState::holds) {
            let hot = self.slab.hot_mut(slot);
            hot.held = hot.held.with(HoldReason::Cap);
        }
    }

    /// Refills the accounts whose period ends between frame `from` and the current one, ascending
    /// by session: each is paid one budget per period. One that is open again costs a refill.
    #[cold]
    pub(crate) fn refill_caps(&mut self, from: Frame) {
        for at in 0..self.caps.accounts.len() {
            let account = &mut self.caps.accounts[at];
            let CapSettings { budget, period_frames, .. } = account.settings;
            let refills = self.frame.0 / period_frames - from.0 / period_frames;
            if refills == 0 {
                continue;
            }
            account.used = account.used.saturating_sub(Cycles(budget.0.saturating_mul(refills)));
            if account.is_spent && account.left() > self.cache.switch_cost {
                self.reopen(at);
            }
        }
    }

    /// Opens an account that was spent. If its session is on this lane, that is an event and costs
    /// a refill, and the coroutines that were held or demoted are the policy's again.
    fn reopen(&mut self, at: usize) {
        let account = &mut self.caps.accounts[at];
        let (session, was_demoted) = (account.session, account.is_demoted());
        account.is_spent = false;
        self.caps.demoted -= u32::from(was_demoted);
        if self.sessions.get(session).is_none() {
            return;
        }
        self.book(SchedulerOperation::Refill);
        self.caused_by_session(session, SchedulerOperation::Refill);
        let event = self.caps.accounts[at].event(self.clock, CapEventKind::Refilled);
        self.caps.note(event);
        if was_demoted {
            self.promote_session(session);
        } else {
            self.release_session(session);
        }
    }

    /// Gives the account of a session that moves to its new lane, which has room for it.
    pub(crate) fn move_cap(&mut self, session: u32, to: &mut Self) {
        if let Ok(at) = self.caps.find(session) {
            let account = self.caps.accounts.remove(at);
            self.caps.demoted -= u32::from(account.is_demoted());
            to.caps.demoted += u32::from(account.is_demoted());
            to.caps.insert(account);
            self.refresh();
            to.refresh();
        }
    }

    /// Whether the account of a session, if it has one, can move to a lane without a reservation.
    pub(crate) fn room_for_cap(&self, session: u32, to: &Self) -> Result<(), Refusal> {
        let room = to.caps.reserved;
        if self.caps.get(session).is_none() || to.caps.accounts.len() < room as usize {
            return Ok(());
        }
        Err(Refusal::NoRoomForCap { session, room })
    }

    /// The accounts of a lane that is rebuilt; `false` if no lane has them.
    pub(crate) fn restore_caps(&mut self, accounts: &[CapState]) -> bool {
        let is_sound = |account: &CapState| {
            let CapState { settings, used, is_spent, counts, .. } = account;
            let is_open = account.left() > self.cache.switch_cost;
            settings.budget.0 > self.cache.switch_cost
                && settings.budget.0 < 1 << 62
                && settings.period_frames > 0
                && used.0 < 1 << 62
                && counts.consumed.0.max(counts.demoted.0) < 1 << 62
                && is_open != *is_spent
        };
        let ascends = accounts.windows(2).all(|pair| pair[0].session < pair[1].session);
        if !ascends || !accounts.iter().all(is_sound) || self.caps.reserve(accounts.len()).is_err()
        {
            return false;
        }
        self.caps.accounts.extend_from_slice(accounts);
        self.caps.demoted = accounts.iter().filter(|account| account.is_demoted()).count() as u32;
        self.refresh();
        true
    }

    /// The coroutines of a session are held by its cap exactly while it is spent, or those that the
    /// policy would queue are in the background.
    pub(crate) fn check_caps(&self) -> Result<(), Violation> {
        let demoted = self.caps.accounts.iter().filter(|account| account.is_demoted()).count();
        equal("the count of demoted sessions", 0, self.caps.demoted, demoted as u64)?;
        for slot in self.slab.slots() {
            let place = self.slab.hot(slot).place;
            holds(
                "the background has the coroutines of demoted sessions, and the policy none",
                slot,
                match place {
                    Place::ReadyBackground => self.is_demoted(slot),
                    _ => !self.is_queued_by_policy(slot) || !self.is_demoted(slot),
                },
            )?;
        }
        let mut before = None;
        for account in &self.caps.accounts {
            holds("caps ascend", account.session, before < Some(account.session))?;
            before = Some(account.session);
            let is_open = account.left() > self.cache.switch_cost;
            holds(
                "a cap is spent when it leaves no pick",
                account.session,
                is_open != account.is_spent,
            )?;
            for (member, _) in self.session(account.session) {
                let hot = self.slab.hot(member.slot);
                holds(
                    "a cap that is spent holds its session",
                    member.slot,
                    hot.place.is_ended() || hot.held.contains(HoldReason::Cap) == account.holds(),
                )?;
            }
        }
        Ok(())
    }
}
