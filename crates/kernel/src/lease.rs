//! Leases: one coroutine has a lane to itself (cpu-authority F).
//!
//! ```text
//!               drain         flush         activate
//!   Requested ────────▶ Draining ────▶ Flushing ────▶ Active
//!       │                  │              │             │
//!       ├──── deny ────────┴── deny ──────┴─▶ Denied    │
//!       │                  │              │             │
//!       └──── end ─────────┴──── end ─────┴──── end ────┴▶ Revoking ────▶ Released
//!                                                                 release
//! ```
//!
//! A lane has one place for a lease. `drain` closes the lane to sessions that would move there;
//! the caller moves the others away. `flush` closes it to spawns as well. `activate` checks the
//! evidence, all of it: the first part that is missing denies the lease and changes nothing else.
//! An active lease ends by a call, with its holder, or when the holder loses the context that pays
//! for it.
//!
//! *Noise* is the overhead booked on the lane while the lease is active that its holder did not
//! cause. Bookings count as foreign unless the place that books them finds that they are the
//! holder's: so noise is what the lane's totals say, less what was found.
//!
//! Contract: nothing allocates after [`Lane::reserve_lease`]. A lane without that has no lease, and
//! costs and decides as without this module. Elsewhere: who may ask, which sessions move, and what
//! only the machine knows of the evidence (`system`).

use crate::check::{Violation, equal, holds};
use crate::context::Payer;
use crate::lane::Lane;
use crate::record::NIL;
use crate::types::{Refusal, State, numbered};
use core::fmt;
use wavelock_abi::{
    ContextRef, CoroutineRef, Cycles, Frame, LaneId, LeaseRef, SchedulerOperation, SessionId,
};

const OPERATIONS: usize = SchedulerOperation::ALL.len();

numbered! {
    /// The state of a lane's lease; see the picture in the module's header.
    LeasePhase {
        Free = 0, "free", "the lane was never asked for";
        Requested = 1, "requested", "it waits for the end of the wave";
        Draining = 2, "draining", "the other sessions of the lane move to other lanes";
        Flushing = 3, "flushing", "what was meant for them arrives elsewhere";
        Active = 4, "active", "its holder has the lane to itself";
        Revoking = 5, "revoking", "it has ended; the lane is open again from the end of the wave on";
        Released = 6, "released", "it has ended, and the lane is open";
        Denied = 7, "denied", "evidence was missing";
    }
}

numbered! {
    /// What has to hold for a lease to become active. All of it, or the lease is denied.
    Evidence {
        HousekeepingElsewhere = 0, "housekeeping-elsewhere", "another lane can take the sessions of this one";
        DeferredCleanupDrained = 1, "deferred-cleanup-drained", "nothing of another session is left on the lane";
        TimersMigrated = 2, "timers-migrated", "no other coroutine sleeps on the lane";
        WakeSourcesRouted = 3, "wake-sources-routed", "every open sender to a channel of the holder's session is a wake source of the lease";
        AccountingTarget = 4, "accounting-target", "the holder has the lease's context, which is not lent";
        SingleRunnable = 5, "single-runnable", "no other coroutine of the lane can become ready";
        NoStarvationServer = 6, "no-starvation-server", "the holder runs on its context, not as best effort";
        RevocationBound = 7, "revocation-bound", "the declared bound on revocation can be kept";
    }
}

numbered! {
    /// Why a lease ended.
    LeaseEnd {
        Revoked = 0, "revoked", "a session with authority over it revoked it";
        ByHost = 1, "by-host", "a control input revoked it";
        HolderEnded = 2, "holder-ended", "its holder ended";
        SessionEnded = 3, "session-ended", "the session of its holder, or the one that asked for it, ended";
        TargetLost = 4, "target-lost", "its holder lost the context that paid for it";
        Expired = 5, "expired", "its last frame is over";
        WakeSource = 6, "wake-source", "a channel that is no wake source of it got a sender";
        Noise = 7, "noise", "the lane had overhead that its holder did not cause";
        Replaced = 8, "replaced", "the session of its holder, or the one that asked for it, began anew with another module";
    }
}

/// The evidence that is missing, with its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Which.
    pub evidence: Evidence,
    /// The session in the way.
    pub session: Option<u32>,
    /// Its coroutines, timers, channels or cycles in the way.
    pub count: u64,
    /// Until which frame, if that is known; for a bound, the least that can be kept.
    pub until: u64,
}

/// What a lane is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    /// The caller's number of it.
    pub name: u32,
    /// The context that pays for the lane; its holder becomes the lease's.
    pub context: ContextRef,
    /// The session that asks; `None` is the machine or its host.
    pub owner: Option<u32>,
    /// Cycles within which a revocation has to open the lane again.
    pub bound: Cycles,
    /// Frames after which it ends by itself.
    pub expires_frames: Option<u64>,
    /// The clock at which it was asked for.
    pub asked: Cycles,
}

/// Why a lane takes no request. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseRefusal {
    /// The lane has no place for a lease.
    Off {
        /// The lane.
        lane: LaneId,
    },
    /// Lane 0 always does the machine's housekeeping.
    Housekeeping,
    /// The lane has a lease already.
    Busy {
        /// The lane.
        lane: LaneId,
        /// The state of that lease.
        phase: LeasePhase,
    },
    /// The context was revoked, or no coroutine holds it.
    NoTarget {
        /// The context.
        context: ContextRef,
    },
    /// The bound on revocation cannot be kept.
    BoundTooTight {
        /// The bound asked for.
        asked: Cycles,
        /// The least that can be kept.
        least: Cycles,
    },
    /// The lane has used up its generations.
    Retired {
        /// The lane.
        lane: LaneId,
    },
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off { lane } => write!(f, "no lease names lane {}", lane.0),
            Self::Housekeeping => {
                write!(f, "lane 0 does the housekeeping of the machine and is never leased")
            }
            Self::Busy { lane, phase } => write!(
                f,
                "lane {} has a lease already: it is {} ({})",
                lane.0,
                phase.name(),
                phase.meaning()
            ),
            Self::NoTarget { context } => write!(
                f,
                "the context of slot {}, generation {} has no holder to account the lane to",
                context.slot, context.generation
            ),
            Self::BoundTooTight { asked, least } => write!(
                f,
                "a revocation within {asked} cycles cannot be promised; {least} can: a wave + 2 * G",
                asked = asked.0,
                least = least.0
            ),
            Self::Retired { lane } => {
                write!(f, "lane {} was leased as often as it can be", lane.0)
            }
        }
    }
}

impl core::error::Error for LeaseRefusal {}

/// The lease of a lane as plain data. Of a lane that was never asked for, all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseState {
    /// Which of the lane's leases: 0 before the first.
    pub generation: u32,
    /// Its state.
    pub phase: LeasePhase,
    /// The caller's number of it.
    pub name: u32,
    /// The context that pays.
    pub context: ContextRef,
    /// The coroutine.
    pub holder: CoroutineRef,
    /// Its session.
    pub session: u32,
    /// The session that asked for it; `None` is the machine or its host.
    pub owner: Option<u32>,
    /// The declared bound on revocation.
    pub bound: Cycles,
    /// Frames after which it ends by itself.
    pub expires_frames: Option<u64>,
    /// Active: the first frame that it does not last for.
    pub expires: Option<Frame>,
    /// The clock at which it was asked for.
    pub asked: Cycles,
    /// The lane's clock when it became active.
    pub began: Option<Cycles>,
    /// Why it ended.
    pub ended: Option<LeaseEnd>,
    /// The clock at which its end was asked for.
    pub end_asked: Cycles,
    /// The lane's clock when it ended.
    pub end_at: Cycles,
    /// The evidence that was missing.
    pub missing: Option<Missing>,
    /// The lane's operations when it became active.
    pub before: [u64; OPERATIONS],
    /// Of those since, the ones that its holder caused.
    pub caused: [u64; OPERATIONS],
    /// What it was when it ended: operations that its holder did not cause.
    pub noise: [u64; OPERATIONS],
}

impl LeaseState {
    const FREE: Self = Self {
        generation: 0,
        phase: LeasePhase::Free,
        name: 0,
        context: ContextRef::new(0, 0),
        holder: CoroutineRef::new(0, 0),
        session: 0,
        owner: None,
        bound: Cycles::ZERO,
        expires_frames: None,
        expires: None,
        asked: Cycles::ZERO,
        began: None,
        ended: None,
        end_asked: Cycles::ZERO,
        end_at: Cycles::ZERO,
        missing: None,
        before: [0; OPERATIONS],
        caused: [0; OPERATIONS],
        noise: [0; OPERATIONS],
    };

    /// Cycles from the moment its end was asked for until it ended.
    #[must_use]
    pub const fn latency(&self) -> Cycles {
        self.end_at.saturating_sub(self.end_asked)
    }

    /// Cycles it was active, once it has ended.
    #[must_use]
    pub fn quiet(&self) -> Cycles {
        self.began.map_or(Cycles::ZERO, |began| self.end_at.saturating_sub(began))
    }

    /// Whether it is on its way, or active.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(
            self.phase,
            LeasePhase::Requested
                | LeasePhase::Draining
                | LeasePhase::Flushing
                | LeasePhase::Active
        )
    }

    /// Whether it still changes without another input.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        self.is_live() && !matches!(self.phase, LeasePhase::Active)
            || matches!(self.phase, LeasePhase::Revoking)
    }
}

/// The place of a lane for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    pub(crate) state: LeaseState,
    /// It ended by itself, and the caller has not been told.
    pub(crate) is_unreported: bool,
}

/// The owner's interface.
impl Lane {
    /// Makes the place for a lease, on a lane with contexts. Called again it changes nothing.
    pub fn reserve_lease(&mut self) {
        let free = || Lease { state: LeaseState::FREE, is_unreported: false };
        if let Some(tier) = &mut self.tier {
            tier.lease.get_or_insert_with(free);
        }
    }

    #[inline]
    fn lease_place(&mut self) -> Option<&mut Lease> {
        self.tier.as_mut()?.lease.as_mut()
    }

    /// The lane's lease, if it has a place for one.
    #[inline]
    #[must_use]
    pub fn lease(&self) -> Option<&LeaseState> {
        self.tier.as_ref()?.lease.as_ref().map(|lease| &lease.state)
    }

    #[inline]
    fn lease_phase(&self) -> LeasePhase {
        self.lease().map_or(LeasePhase::Free, |lease| lease.phase)
    }

    /// Whether one coroutine has the lane to itself.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.lease_phase() == LeasePhase::Active
    }

    /// Whether sessions may move here: there is no lease that closes the lane.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(
            self.lease_phase(),
            LeasePhase::Draining | LeasePhase::Flushing | LeasePhase::Active | LeasePhase::Revoking
        )
    }

    /// Whether coroutines may be spawned here.
    #[inline]
    #[must_use]
    pub fn takes_spawns(&self) -> bool {
        !matches!(self.lease_phase(), LeasePhase::Flushing | LeasePhase::Active)
    }

    /// The least bound on revocation that can be kept: the rest of a wave of which another lane
    /// asks for the end, and an overrun of each of the two lanes.
    #[must_use]
    pub fn least_revocation(&self) -> Cycles {
        let settings = self.tier.as_ref().map(|tier| tier.settings);
        settings.map_or(Cycles::ZERO, |settings| {
            Cycles(settings.wave.unwrap_or_default().0 + 2 * settings.gap.0)
        })
    }

    /// Takes a request. The lease is that of the coroutine that holds the context now.
    ///
    /// # Errors
    /// See [`LeaseRefusal`]; nothing has changed then.
    pub fn request_lease(&mut self, request: LeaseRequest) -> Result<LeaseRef, LeaseRefusal> {
        let LeaseRequest { name, context, owner, bound, expires_frames, asked } = request;
        let (lane, least) = (self.id, self.least_revocation());
        let Some(lease) = self.lease() else { return Err(LeaseRefusal::Off { lane }) };
        let LeaseState { generation, phase, .. } = *lease;
        if lane == LaneId(0) {
            return Err(LeaseRefusal::Housekeeping);
        }
        if lease.is_live() || phase == LeasePhase::Revoking {
            return Err(LeaseRefusal::Busy { lane, phase });
        }
        if generation >= CoroutineRef::LAST_GENERATION {
            return Err(LeaseRefusal::Retired { lane });
        }
        if bound < least {
            return Err(LeaseRefusal::BoundTooTight { asked: bound, least });
        }
        let holder = self.context(context).ok().and_then(|view| view.holder);
        let holder = holder.ok_or(LeaseRefusal::NoTarget { context })?;
        let session = self.slab.hot(holder.slot).tag.session();
        let generation = generation + 1;
        self.set_lease(LeaseState {
            generation,
            phase: LeasePhase::Requested,
            name,
            context,
            holder,
            session,
            owner,
            bound,
            expires_frames,
            asked,
            ..LeaseState::FREE
        });
        Ok(LeaseRef { lane, generation })
    }

    /// Closes the lane to sessions that would move there.
    ///
    /// # Panics
    /// When no lease is requested.
    pub fn drain_lease(&mut self) {
        self.step_lease(LeasePhase::Requested, LeasePhase::Draining);
    }

    /// Closes the lane to spawns as well: the caller has moved every other session away.
    ///
    /// # Panics
    /// When the lane is not drained.
    pub fn flush_lease(&mut self) {
        self.step_lease(LeasePhase::Draining, LeasePhase::Flushing);
    }

    fn step_lease(&mut self, from: LeasePhase, to: LeasePhase) {
        assert_eq!(self.lease_phase(), from, "the steps of a lease have one order");
        if let Some(lease) = self.lease_place() {
            lease.state.phase = to;
        }
    }

    /// Activates a flushed lease if all evidence holds. `outside` is the first evidence that the
    /// caller, who knows the rest of the machine, found missing.
    ///
    /// # Errors
    /// The first evidence that is missing, in table order; the lease is denied.
    ///
    /// # Panics
    /// When the lane is not flushed, or a slice is open.
    pub fn activate_lease(&mut self, outside: Option<Missing>) -> Result<(), Missing> {
        assert!(!self.in_slice, "leases become active between slices");
        let missing = Evidence::ALL.iter().find_map(|&evidence| {
            outside.filter(|missing| missing.evidence == evidence).or_else(|| self.lacks(evidence))
        });
        if let Some(missing) = missing {
            self.deny_lease(missing);
            return Err(missing);
        }
        self.step_lease(LeasePhase::Flushing, LeasePhase::Active);
        let (now, frame, before) = (Cycles(self.clock), self.frame, self.operations);
        if let Some(tier) = &mut self.tier {
            tier.server.state.active = None;
        }
        if let Some(Lease { state, .. }) = self.lease_place() {
            (state.began, state.before) = (Some(now), before);
            state.expires =
                state.expires_frames.map(|frames| Frame(frame.0.saturating_add(frames)));
        }
        Ok(())
    }

    /// Denies a lease that is not active.
    pub fn deny_lease(&mut self, missing: Missing) {
        if let Some(Lease { state, .. }) = self.lease_place()
            && state.is_live()
        {
            (state.phase, state.missing) = (LeasePhase::Denied, Some(missing));
        }
    }

    /// Ends a lease, in whatever state before: its end was asked for at clock `asked`, and it is
    /// over at clock `now`. `false` if there is none to end: ending twice is ending once.
    pub fn end_lease(&mut self, reason: LeaseEnd, asked: Cycles, now: Cycles) -> bool {
        let noise = self.noise();
        match self.lease_place() {
            Some(Lease { state, .. }) if state.is_live() => {
                (state.phase, state.ended) = (LeasePhase::Revoking, Some(reason));
                (state.end_asked, state.end_at) = (asked, now.max(asked));
                state.noise = noise;
                true
            }
            _ => false,
        }
    }

    /// Opens the lane again, at the end of the wave in which its lease ended. `false` if none is to
    /// be released.
    pub fn release_lease(&mut self) -> bool {
        let is_over = self.lease_phase() == LeasePhase::Revoking;
        if is_over {
            self.step_lease(LeasePhase::Revoking, LeasePhase::Released);
        }
        is_over
    }

    /// Whether the lease ended by itself since the last call: its holder ended, or lost the context
    /// that pays.
    #[inline]
    pub fn lease_ended_itself(&mut self) -> bool {
        self.lease_place().is_some_and(|lease| core::mem::take(&mut lease.is_unreported))
    }

    /// Operations booked since an active lease began that its holder did not cause. Zero, unless
    /// there is a bug.
    #[must_use]
    pub fn noise(&self) -> [u64; OPERATIONS] {
        let Some(lease) = self.lease().filter(|lease| lease.phase == LeasePhase::Active) else {
            return [0; OPERATIONS];
        };
        core::array::from_fn(|at| self.operations[at] - lease.before[at] - lease.caused[at])
    }

    /// Books the delivery of one cross-lane effect that is the holder's own: a message to one of
    /// its wake sources, or what the holder itself asked for.
    pub fn accept_effect_of_holder(&mut self) {
        self.accept_effect();
        self.cause(SchedulerOperation::Inbox);
    }
}

/// Parts of other operations.
impl Lane {
    fn set_lease(&mut self, state: LeaseState) {
        if let Some(lease) = self.lease_place() {
            *lease = Lease { state, is_unreported: false };
        }
    }

    /// The evidence, if it is missing, as far as the lane knows.
    fn lacks(&self, evidence: Evidence) -> Option<Missing> {
        let lease = self.lease()?;
        let missing = |session, count, until| Some(Missing { evidence, session, count, until });
        match evidence {
            Evidence::HousekeepingElsewhere
            | Evidence::DeferredCleanupDrained
            | Evidence::WakeSourcesRouted => None,
            Evidence::TimersMigrated => {
                self.others().find_map(|(session, sleeping, _, until)| match sleeping {
                    0 => None,
                    _ => missing(Some(session), sleeping, until),
                })
            }
            Evidence::SingleRunnable => {
                self.others().find_map(|(session, _, others, _)| match others {
                    0 => None,
                    _ => missing(Some(session), others, 0),
                })
            }
            Evidence::AccountingTarget => {
                let view = self.context(lease.context).ok();
                let is_bound =
                    view.is_some_and(|view| view.holder == Some(lease.holder) && view.loans == 0);
                if is_bound { None } else { missing(Some(lease.session), 0, 0) }
            }
            Evidence::NoStarvationServer => {
                let tier = self.tier.as_ref()?;
                let is_best_effort = self.ready_count() > tier.queued()
                    || self.current != NIL && tier.payer == Payer::BestEffort;
                let until = tier.next_release();
                if is_best_effort { missing(Some(lease.session), 1, until) } else { None }
            }
            Evidence::RevocationBound => {
                let least = self.least_revocation();
                if lease.bound >= least { None } else { missing(None, lease.bound.0, least.0) }
            }
        }
    }

    /// By session, ascending: its coroutines on this lane, the lease's holder not counted, that
    /// sleep; those that do not and have not ended; and the last frame until which one sleeps.
    fn others(&self) -> impl Iterator<Item = (u32, u64, u64, u64)> + '_ {
        let holder = self.lease().map_or(NIL, |lease| lease.holder.slot);
        self.sessions.table().iter().map(move |list| {
            let (mut sleeping, mut others, mut until) = (0, 0, 0);
            for (member, _) in self.session(list.session) {
                match self.state_of(member.slot) {
                    _ if member.slot == holder => {}
                    State::Sleeping { until: frame } => {
                        sleeping += 1;
                        until = frame.0.max(until);
                    }
                    State::Finished | State::Faulted | State::Canceled => {}
                    _ => others += 1,
                }
            }
            (list.session, sleeping, others, until)
        })
    }

    /// Coroutines of a session on this lane: how many sleep, how many else have not ended, and the
    /// last frame until which one sleeps.
    #[must_use]
    pub fn sleepers_of(&self, session: SessionId) -> (u64, u64, u64) {
        let mut all = self.others();
        let found = all.find(|(of, ..)| *of == session.0);
        found.map_or((0, 0, 0), |(_, sleeping, others, until)| (sleeping, others, until))
    }

    /// The holder caused an operation that was just booked.
    #[inline]
    fn cause(&mut self, operation: SchedulerOperation) {
        if let Some(Lease { state, .. }) = self.lease_place()
            && state.phase == LeasePhase::Active
        {
            state.caused[operation as usize] += 1;
        }
    }

    /// An operation was booked for this coroutine.
    #[inline]
    pub(crate) fn caused_by(&mut self, slot: u32, operation: SchedulerOperation) {
        if self.lease().is_some_and(|lease| lease.holder.slot == slot) {
            self.cause(operation);
        }
    }

    /// The same, for this context.
    #[inline]
    pub(crate) fn caused_by_context(&mut self, context: u32, operation: SchedulerOperation) {
        if self.lease().is_some_and(|lease| lease.context.slot == context) {
            self.cause(operation);
        }
    }

    /// The same, for the cap of this session.
    #[inline]
    pub(crate) fn caused_by_session(&mut self, session: u32, operation: SchedulerOperation) {
        if self.lease().is_some_and(|lease| lease.session == session) {
            self.cause(operation);
        }
    }

    /// The holder ends, or loses the context that pays.
    #[cold]
    fn end_lease_itself(&mut self, reason: LeaseEnd) {
        let now = Cycles(self.clock);
        if self.end_lease(reason, now, now)
            && let Some(lease) = self.lease_place()
        {
            lease.is_unreported = true;
        }
    }

    /// A coroutine ends.
    #[inline]
    pub(crate) fn lease_loses(&mut self, slot: u32) {
        if self.lease().is_some_and(|lease| lease.is_live() && lease.holder.slot == slot) {
            self.end_lease_itself(LeaseEnd::HolderEnded);
        }
    }

    /// A context is taken from its holder. Before a lease is active that is for the evidence to
    /// find: a context that is lent may be back by then.
    #[inline]
    pub(crate) fn lease_loses_target(&mut self, context: u32) {
        if self.is_quiet() && self.lease().is_some_and(|lease| lease.context.slot == context) {
            self.end_lease_itself(LeaseEnd::TargetLost);
        }
    }

    /// The lease of a lane that is rebuilt. `false` if no lane can have it.
    pub(crate) fn restore_lease(&mut self, state: Option<LeaseState>) -> bool {
        let Some(state) = state else { return true };
        self.reserve_lease();
        self.set_lease(state);
        let is_counted = |at: usize| {
            let rest = self.operations[at].checked_sub(state.before[at]);
            rest.is_some_and(|rest| state.caused[at] <= rest)
        };
        let is_active = state.phase == LeasePhase::Active;
        let is_closed = matches!(state.phase, LeasePhase::Revoking | LeasePhase::Released);
        (!is_active || (0..OPERATIONS).all(is_counted) && state.began.is_some())
            && (!is_closed || state.ended.is_some())
            && (state.phase == LeasePhase::Denied) == state.missing.is_some()
            && (state.phase == LeasePhase::Free) == (state.generation == 0)
            && state.generation <= CoroutineRef::LAST_GENERATION
            && (state.phase == LeasePhase::Free || self.id != LaneId(0))
    }

    /// The invariants of leases (cpu-authority F-I1 to F-I4, F-I7).
    pub(crate) fn check_lease(&self) -> Result<(), Violation> {
        let Some(lease) = self.lease() else { return Ok(()) };
        if !lease.is_live() {
            return Ok(());
        }
        let slot = lease.holder.slot;
        holds("lane 0 is not leased", slot, self.id != LaneId(0))?;
        let holder = self.slab.live_slot(lease.holder).ok();
        let is_alive = holder.is_some_and(|slot| !self.slab.hot(slot).place.is_ended());
        holds("the holder of a lease lives", slot, is_alive)?;
        if lease.phase != LeasePhase::Active {
            return Ok(());
        }
        let bound = self.context(lease.context).ok().and_then(|view| view.holder);
        holds("a lease has a context as its accounting target", slot, bound == Some(lease.holder))?;
        for (session, sleeping, others, _) in self.others() {
            equal("a leased lane has its holder alone", session, sleeping + others, 0u64)?;
        }
        let server = self.tier.as_ref().is_some_and(|tier| tier.server.state.active.is_some());
        holds("the fair server of a leased lane is off", slot, !server)?;
        let noise = self.noise().iter().sum::<u64>();
        equal("a leased lane has no overhead but its holder's", slot, noise, 0u64)
    }
}

/// Why a coroutine or session cannot come to this lane now.
impl Lane {
    pub(crate) fn admits_spawn(&self) -> Result<(), Refusal> {
        if self.takes_spawns() { Ok(()) } else { Err(Refusal::Leased { lane: self.id }) }
    }

    pub(crate) fn admits_session(&self) -> Result<(), Refusal> {
        if self.is_open() { Ok(()) } else { Err(Refusal::Leased { lane: self.id }) }
    }
}
