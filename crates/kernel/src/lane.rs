//! A lane: a virtual CPU with its own records, queues, clock and ledger. Self-contained, so that a
//! worker can own it for a wave.
//!
//! ```text
//!          spawn              dispatch             stop(Finished | Faulted)          reap
//!   (none) -----> Ready ----------------------> Running ---------------------> ended -----> (none)
//!                  ^  ^  <----------------------  |  |                           ^
//!                  |  |  stop(Yielded, quantum),  |  | stop(Slept)      cancel   |
//!          release |  |  preempted at a boundary  |  +--------> Sleeping ------->+
//!             hold |  |                           | stop(Blocked)  | begin_frame |
//!                  v  +---------------------------|----------------+             |
//!              Throttled                          +-> Blocked ------------------>+
//!                                                       | wake
//!                                                       +--> Ready
//! ```
//!
//! `cancel` ends a coroutine in any state but an open slice; `hold` also takes the current one
//! between slices.
//!
//! Contract: every coroutine is in exactly one place ([`Lane::check`]). [`Lane::dispatch`] returns
//! a [`Running`] token and [`Lane::stop`] consumes it and charges the runtime; clock = charged +
//! overhead + idle at every instant. No step of the scheduler (spawn, dispatch, stop, wake, sleep,
//! hold, move) allocates after [`Lane::reserve`]; operator calls such as `set_policy` and `export`
//! do. Calls that break the protocol (a token of another lane, a stop without a slice) are our bugs
//! and panic.
//!
//! Elsewhere: what comes from outside a slice (`wake`), the ready queue (`queue`), frames, waves
//! and idle time (`time`), moving between lanes (`migrate`), the fast path from one slice to the
//! next (`switch`), the invariants (`check`).

use crate::cap::Caps;
use crate::context::Tier;
use crate::counters::Tally;
use crate::deviate::Deviation;
use crate::fair::{FairLane, Leave};
use crate::ledger::LaneTotals;
use crate::policy::Policy;
use crate::queue::Entrance;
use crate::ready::Ready;
use crate::record::{NIL, Place, Slab};
use crate::session::Sessions;
use crate::sleep::Sleepers;
use crate::types::{BlockReason, BoundReason, Outcome, Refusal, Spawn, State, Stopped, Tag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{
    CoroutineRef, Cycles, Frame, LaneId, LatencyClass, SchedulerCosts, SchedulerOperation,
};

/// What a lane is made with. Part of the model: none of it comes from the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneSettings {
    /// How ready coroutines are ordered.
    pub policy: Policy,
    /// Length of a frame on the lane's clock.
    pub frame_cycles: Cycles,
    /// What scheduler operations cost.
    pub costs: SchedulerCosts,
    /// Whether direct handoff is on (semantics 35; off by default).
    pub handoff: bool,
}

/// Capacity to make before coroutines are published; see [`Lane::reserve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reservation {
    /// Additional coroutines.
    pub coroutines: u32,
    /// Additional sessions.
    pub sessions: u32,
}

/// What a lane does next.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// Run this coroutine, then give the token to [`Lane::stop`].
    Run(Running),
    /// Nothing is ready, and the wave is not over.
    Idle,
    /// The lane's clock reached the end of the wave or frame, or its picks are used. A current
    /// coroutine stays current.
    Over,
}

/// A slice that has begun: made by [`Lane::dispatch`], consumed by [`Lane::stop`]. It cannot be
/// copied, so no slice is charged twice.
#[must_use = "a slice that began must be stopped"]
#[derive(PartialEq, Eq, Debug)]
pub struct Running {
    pub(crate) reference: CoroutineRef,
    pub(crate) tag: Tag,
    pub(crate) bound: Cycles,
    pub(crate) reason: BoundReason,
    pub(crate) picked: bool,
    pub(crate) switched: bool,
}

impl Running {
    /// The coroutine.
    #[must_use]
    pub const fn reference(&self) -> CoroutineRef {
        self.reference
    }

    /// The caller's name for it.
    #[must_use]
    pub const fn tag(&self) -> Tag {
        self.tag
    }

    /// Cycles it may run; at least one. It stops at the first safepoint at or past this.
    #[must_use]
    pub const fn bound(&self) -> Cycles {
        self.bound
    }

    /// What the bound comes from.
    #[must_use]
    pub const fn bound_reason(&self) -> BoundReason {
        self.reason
    }

    /// Whether it was picked from the queue; otherwise it continues with the rest of its quantum.
    #[must_use]
    pub const fn picked(&self) -> bool {
        self.picked
    }

    /// Whether a switch was booked: the coroutine that ran last, if any, is not this one.
    #[must_use]
    pub const fn switched(&self) -> bool {
        self.switched
    }
}

/// How many coroutines are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Population {
    /// Queued.
    pub ready: u32,
    /// Current: none or one.
    pub running: u32,
    /// Sleeping.
    pub sleeping: u32,
    /// Blocked.
    pub blocked: u32,
    /// Throttled.
    pub throttled: u32,
    /// Ended and not reaped.
    pub ended: u32,
}

/// The quantum of a preferred coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inheritance {
    /// Its own: no coroutine of this lane handed over to it.
    Own,
    /// What the current coroutine will leave of its quantum.
    Pending,
    /// What the coroutine that handed over left of its quantum.
    Rest(Cycles),
}

/// When the wave is over: at this clock, or after this step. Both are 0 before the first wave; then
/// one is set by the wave's span, and the other is [`u64::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaveEnd {
    pub(crate) clock: u64,
    pub(crate) step: u64,
}

/// Counts of coroutines that are in no queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) blocked: u32,
    pub(crate) throttled: u32,
    pub(crate) ended: u32,
}

/// Values derived from the rest of the lane, for paths that are taken at every step. Written by
/// [`Lane::refresh`] alone, which every change of their sources calls; `check` compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cache {
    /// The quantum that the policy gives a pick.
    pub(crate) quantum: u64,
    /// Picks are by arrival alone: a FIFO policy without deviations.
    pub(crate) is_fifo: bool,
    /// [`Lane::switch`] applies until this clock: `end`, or 0 unless picks are FIFO, the lane has
    /// no contexts or caps and is not measured, and the wave is bounded by its clock alone.
    pub(crate) fast_end: u64,
    /// The same under `Fair`: [`Lane::switch`] applies until this clock.
    pub(crate) fair_end: u64,
    /// Cost of a pick of the coroutine that ran last.
    pub(crate) pick_cost: u64,
    /// Cost of a pick of another coroutine.
    pub(crate) switch_cost: u64,
    pub(crate) frame_end: u64,
    /// The end of the wave or of the frame, whichever is nearer.
    pub(crate) end: u64,
    pub(crate) end_reason: BoundReason,
}

/// A virtual CPU; see the module's header.
#[derive(Clone)]
pub struct Lane {
    pub(crate) id: LaneId,
    pub(crate) settings: LaneSettings,
    pub(crate) slab: Slab,
    pub(crate) ready: Ready,
    /// The ready queue under `Fair`; `None` under every other policy.
    pub(crate) fair: Option<Box<FairLane>>,
    /// The contexts, if the lane keeps any.
    pub(crate) tier: Option<Box<Tier>>,
    /// The caps of sessions on this lane.
    pub(crate) caps: Caps,
    pub(crate) sleepers: Sleepers,
    pub(crate) sessions: Sessions,

    /// The lane's clock, in cycles: charged cycles, operations at their costs, and idle cycles.
    pub(crate) clock: u64,
    pub(crate) charged: u64,
    pub(crate) idle: u64,
    /// How often each scheduler operation was booked, in table order.
    pub(crate) operations: [u64; SchedulerOperation::ALL.len()],
    /// Slices begun.
    pub(crate) steps: u64,
    pub(crate) frame: Frame,
    /// Totals at the start of the frame, for its row.
    pub(crate) frame_mark: LaneTotals,
    pub(crate) wave_end: WaveEnd,
    pub(crate) cache: Cache,

    /// The current coroutine's slot, or [`NIL`].
    pub(crate) current: u32,
    pub(crate) quantum_left: u64,
    pub(crate) in_slice: bool,
    /// What the bound of a slice comes from that [`Lane::switch`] began under `Fair`.
    pub(crate) fair_reason: BoundReason,
    /// A wave or frame began since the last slice: the current coroutine has to pass the preemption
    /// test.
    pub(crate) boundary: bool,
    /// The coroutine that ran last, while none is current; another one costs a switch.
    /// [`Lane::ran_last`] returns it at any time.
    pub(crate) last: Option<CoroutineRef>,
    /// The preferred next pick, and its quantum.
    pub(crate) preferred: Option<(CoroutineRef, Inheritance)>,

    /// The next arrival.
    pub(crate) arrivals: u64,
    /// The ready-set digest.
    pub(crate) digest: u64,
    pub(crate) counts: Counts,
    pub(crate) tally: Tally,
    /// Picks that are not the policy's, ascending; nearly always none.
    pub(crate) deviations: Vec<Deviation>,
}

impl Lane {
    /// An empty lane at clock 0, in frame 0, with a wave that has not begun: [`Lane::dispatch`]
    /// returns [`Next::Over`] until [`Lane::begin_wave`].
    #[must_use]
    pub fn new(id: LaneId, settings: LaneSettings) -> Self {
        let cache = Cache {
            quantum: 0,
            is_fifo: false,
            fast_end: 0,
            fair_end: 0,
            pick_cost: 0,
            switch_cost: 0,
            frame_end: 0,
            end: 0,
            end_reason: BoundReason::WaveEnd,
        };
        let mut lane = Self {
            id,
            settings,
            slab: Slab::new(),
            ready: Ready::new(),
            fair: match settings.policy {
                Policy::Fair(settings) => Some(Box::new(FairLane::new(settings))),
                _ => None,
            },
            tier: None,
            caps: Caps::new(),
            sleepers: Sleepers::new(),
            sessions: Sessions::new(),
            clock: 0,
            charged: 0,
            idle: 0,
            operations: [0; SchedulerOperation::ALL.len()],
            steps: 0,
            frame: Frame::ZERO,
            frame_mark: LaneTotals::default(),
            wave_end: WaveEnd { clock: 0, step: 0 },
            cache,
            current: NIL,
            quantum_left: 0,
            in_slice: false,
            fair_reason: BoundReason::Quantum,
            boundary: false,
            last: None,
            preferred: None,
            arrivals: 0,
            digest: 0,
            counts: Counts::default(),
            tally: Tally::default(),
            deviations: Vec::new(),
        };
        lane.refresh();
        lane
    }

    /// Derives the cache again. Called after each change of the policy, the deviations, the
    /// contexts, the caps, measured mode, the frame or the wave.
    pub(crate) fn refresh(&mut self) {
        self.cache = self.derive_cache();
    }

    pub(crate) fn derive_cache(&self) -> Cache {
        let LaneSettings { policy, frame_cycles, costs, .. } = self.settings;
        let is_fifo = policy.is_fifo() && self.deviations.is_empty();
        let is_fair = matches!(policy, Policy::Fair(_));
        let is_fast = (is_fifo || is_fair)
            && self.tier.is_none()
            && self.caps.is_empty()
            && !self.tally.is_measured
            && self.wave_end.step == u64::MAX
            && !cfg!(feature = "plain");
        let pick_cost = costs.of(SchedulerOperation::Pick).0;
        let frame_end = (self.frame.0 + 1) * frame_cycles.0;
        // The frame's end when both are equal (semantics 25).
        let ends_frame = frame_end <= self.wave_end.clock;
        let end = frame_end.min(self.wave_end.clock);
        Cache {
            quantum: policy.quantum().0,
            is_fifo,
            fast_end: if is_fast && is_fifo { end } else { 0 },
            fair_end: if is_fast && is_fair { end } else { 0 },
            pick_cost,
            switch_cost: pick_cost + costs.of(SchedulerOperation::Switch).0,
            frame_end,
            end,
            end_reason: if ends_frame { BoundReason::FrameEnd } else { BoundReason::WaveEnd },
        }
    }

    /// Makes room for more coroutines and sessions than there are now.
    ///
    /// # Errors
    /// The host has no memory, or the lane would exceed its limit on coroutines. Room made before
    /// the refusal stays.
    #[inline]
    pub fn reserve(&mut self, more: Reservation) -> Result<(), Refusal> {
        if self.slab.has_room(more.coroutines) && self.sessions.has_room(more.sessions) {
            return Ok(());
        }
        self.slab.reserve(more.coroutines)?;
        self.sessions.reserve(more.sessions)?;
        self.reserve_fair()?;
        if let Some(tier) = &mut self.tier {
            tier.reserve_coroutines(self.slab.slots_reserved())?;
        }
        Ok(())
    }

    /// Publishes a coroutine: ready, at the tail of its class.
    ///
    /// # Errors
    /// No room was reserved for it or its session, or the lane is leased.
    #[inline]
    pub fn spawn(&mut self, spawn: Spawn) -> Result<CoroutineRef, Refusal> {
        self.admits_spawn()?;
        self.sessions.admit(spawn.tag.session())?;
        let reference = self.slab.allocate(&spawn)?;
        self.sessions.add(&mut self.slab, reference.slot);
        self.adopt(reference.slot, None, spawn.session);
        if !self.caps.is_empty() {
            self.hold_newcomer(reference.slot);
        }
        let _ = self.arrive(reference.slot, Entrance::New);
        Ok(reference)
    }

    /// Decides what runs now.
    ///
    /// A current coroutine continues with the rest of its quantum, without pick or switch cost,
    /// unless a boundary was passed and the policy prefers another; then it returns to the queue at
    /// its arrival. Otherwise the policy picks: the pick (and the switch, if another coroutine ran
    /// last) is booked as overhead. If that overhead alone reaches the end of the wave or frame,
    /// the result is [`Next::Over`] and the picked coroutine, now current, runs first in the next
    /// wave.
    ///
    /// # Panics
    /// When the last slice was not stopped.
    #[inline(always)]
    pub fn dispatch(&mut self) -> Next {
        assert!(!self.in_slice, "dispatch() inside a slice");
        if self.tier.is_some() {
            return self.dispatch_in_tier();
        }
        if !self.caps.is_empty() {
            return self.dispatch_capped();
        }
        self.dispatch_by_policy()
    }

    /// [`Lane::dispatch`] without contexts.
    #[inline(always)]
    pub(crate) fn dispatch_by_policy(&mut self) -> Next {
        if self.is_over() {
            return Next::Over;
        }
        if self.boundary {
            self.pass_boundary();
        }
        let (mut picked, mut switched) = (false, false);
        let (reference, tag);
        if self.current == NIL {
            if self.tally.is_measured {
                self.measure_pick();
            }
            let slot = self.choose();
            if slot == NIL {
                return Next::Idle;
            }
            (reference, tag, switched) = self.take(slot);
            picked = true;
            if self.clock >= self.cache.end {
                self.charge_fair(Cycles::ZERO);
                return Next::Over;
            }
        } else {
            self.mark_fair();
            let hot = self.slab.hot(self.current);
            (reference, tag) = (CoroutineRef::new(self.current, hot.generation), hot.tag);
        }
        let (bound, reason) = self.bound();
        self.in_slice = true;
        self.steps += 1;
        Next::Run(Running { reference, tag, bound, reason, picked, switched })
    }

    /// Whether the wave or frame is over for this lane.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.clock >= self.cache.end || self.steps >= self.wave_end.step
    }

    /// The least of what limits a slice of the current coroutine now, and which it is (semantics
    /// 25).
    #[inline(always)]
    pub(crate) fn bound(&self) -> (Cycles, BoundReason) {
        let bound = if self.tier.is_some() { self.bound_in_tier() } else { self.bound_by_policy() };
        if self.caps.is_empty() { bound } else { self.bound_by_cap(bound) }
    }

    #[inline(always)]
    fn bound_by_policy(&self) -> (Cycles, BoundReason) {
        let Cache { end, end_reason, .. } = self.cache;
        let (left, quantum) = (end.saturating_sub(self.clock), self.quantum_left);
        if quantum < left || quantum == left && end_reason == BoundReason::WaveEnd {
            (Cycles(quantum), BoundReason::Quantum)
        } else {
            (Cycles(left), end_reason)
        }
    }

    /// Cycles left of a slice that has used `used` so far. Overhead booked since the slice began
    /// (wakes it caused) has moved the clock, so this can be less than the token's bound minus
    /// `used`.
    #[inline]
    #[must_use]
    pub fn left(&self, running: &Running, used: Cycles) -> Cycles {
        debug_assert!(self.in_slice && running.reference.slot == self.current);
        self.bound().0.saturating_sub(used)
    }

    /// No slice that runs now or begins in this wave is longer, whatever quantum the current
    /// coroutine has left or hands on.
    #[must_use]
    pub fn longest_slice(&self) -> Cycles {
        let rest = match self.preferred {
            Some((_, Inheritance::Rest(rest))) => rest,
            _ => Cycles::ZERO,
        };
        let quantum = match self.settings.policy {
            Policy::Fair(settings) => settings.slice(LatencyClass::Idle),
            policy => policy.quantum(),
        };
        quantum.max(Cycles(self.quantum_left)).max(rest).min(self.settings.frame_cycles)
    }

    /// The cycles that the open slice may use in all. Overhead booked in it makes them fewer.
    #[inline(always)]
    #[must_use]
    pub fn slice_bound(&self) -> Cycles {
        debug_assert!(self.in_slice);
        self.bound().0
    }

    /// A wave or frame began: the current coroutine returns to the queue if a ready one outranks
    /// it.
    #[cold]
    pub(crate) fn pass_boundary(&mut self) {
        self.boundary = false;
        if self.current != NIL && self.is_current_outranked() {
            let slot = self.current;
            self.vacate();
            self.count_preemption(slot);
            let _ = self.enqueue(slot, Entrance::Slice);
        }
    }

    /// Makes a ready coroutine the current one; returns its names and whether that switched.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u32) -> (CoroutineRef, Tag, bool) {
        debug_assert_eq!(self.current, NIL, "the current coroutine has left");
        let reference = self.slab.reference(slot);
        let switched = self.last != Some(reference);
        let hot = self.slab.hot(slot);
        let (tag, class) = (hot.tag, hot.class);
        // The fair queue and the tier removed their pick themselves.
        let place = hot.place;
        if matches!(place, Place::ReadyList | Place::ReadyHeap) {
            self.ready.remove(&mut self.slab, slot);
        } else if place == Place::ReadyBackground {
            self.leave_background(slot);
        }
        self.slab.begin_slice(slot, self.clock, switched);
        if matches!(self.settings.policy, Policy::ProgressAware { .. })
            && place != Place::ReadyBackground
        {
            self.ready.streak = if class == 1 { self.ready.streak.saturating_add(1) } else { 0 };
        }
        self.current = slot;
        self.book(SchedulerOperation::Pick);
        if switched {
            self.book(SchedulerOperation::Switch);
        }
        (reference, tag, switched)
    }

    /// Ends a slice: charges what it used and moves the coroutine as the outcome says.
    ///
    /// A quantum that is used up sends the coroutine to the tail of its class, whatever bound was
    /// recorded; with a rest it stays current.
    ///
    /// # Panics
    /// When the token is not of this lane's open slice.
    pub fn stop(&mut self, running: Running, used: Cycles, outcome: Outcome) -> Stopped {
        let slot = running.reference.slot;
        assert!(
            self.in_slice && slot == self.current,
            "stop() of a slice that is not open on this lane"
        );
        let is_demoted_now = !self.caps.is_empty() && self.charge_cap(self.clock + used.0);
        self.in_slice = false;
        self.clock += used.0;
        self.charged += used.0;
        self.slab.charge(slot, used);
        if self.tier.is_some()
            && let Some(stopped) = self.stop_in_tier(slot, outcome)
        {
            return stopped;
        }
        self.quantum_left = self.quantum_left.saturating_sub(used.0);
        if let Some(fair) = &mut self.fair
            && (self.caps.demoted == 0 || fair.running() == Some(slot))
        {
            fair.charge(used, self.clock);
            self.quantum_left = self.quantum_left.min(fair.bound().0);
        }
        if outcome == Outcome::OutOfCycles && self.quantum_left > 0 && !is_demoted_now {
            return self.keep(slot);
        }
        self.vacate();
        match outcome {
            Outcome::Slept(frame) if frame > self.frame => self.sleep(slot, frame),
            Outcome::Yielded | Outcome::Slept(_) => self.arrive(slot, Entrance::Yield),
            Outcome::OutOfCycles => {
                self.count_preemption(slot);
                self.arrive(slot, Entrance::Slice)
            }
            Outcome::Blocked(reason) => self.block(slot, reason),
            Outcome::Finished => {
                self.leave_runnable(slot);
                self.end(slot, Place::Finished)
            }
            Outcome::Faulted => {
                self.leave_runnable(slot);
                self.end(slot, Place::Faulted)
            }
        }
    }

    /// The current coroutine stays current, unless it was held during its slice: then it leaves and
    /// keeps its arrival.
    pub(crate) fn keep(&mut self, slot: u32) -> Stopped {
        if self.slab.hot(slot).held.is_empty() {
            return Stopped::Kept;
        }
        self.vacate();
        self.leave_runnable(slot);
        self.hold_back(slot);
        Stopped::Throttled
    }

    /// The current coroutine leaves the lane: the one it preferred inherits what is left of its
    /// quantum, if anything is.
    pub(crate) fn vacate(&mut self) {
        (self.last, self.current) = (self.ran_last(), NIL);
        if self.tier.is_some() {
            self.vacate_context();
        }
        if let Some((_, inherits @ Inheritance::Pending)) = &mut self.preferred {
            *inherits = Inheritance::Rest(Cycles(self.quantum_left));
            if self.quantum_left == 0 {
                self.preferred = None;
            }
        }
    }

    /// The coroutine that ran last.
    pub(crate) fn ran_last(&self) -> Option<CoroutineRef> {
        if self.current == NIL { self.last } else { Some(self.slab.reference(self.current)) }
    }

    pub(crate) fn sleep(&mut self, slot: u32, frame: Frame) -> Stopped {
        self.leave_for_a_wait(slot);
        self.leave_runnable(slot);
        self.slab.count_sleep(slot);
        self.sleep_until(slot, frame);
        Stopped::Waiting
    }

    /// Adds a coroutine to the sleepers, with the next arrival.
    pub(crate) fn sleep_until(&mut self, slot: u32, frame: Frame) {
        let hot = self.slab.hot_mut(slot);
        hot.arrival = self.arrivals;
        hot.since = frame.0;
        self.arrivals += 1;
        self.sleepers.insert(&mut self.slab, slot);
    }

    /// Under `Fair` a coroutine that waits and owes service keeps competing until the others have
    /// caught up.
    #[inline]
    fn leave_for_a_wait(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.leave(slot, Leave::Sleep);
        }
    }

    pub(crate) fn block(&mut self, slot: u32, reason: BlockReason) -> Stopped {
        self.leave_for_a_wait(slot);
        self.leave_runnable(slot);
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        hot.place = Place::Blocked;
        hot.since = clock;
        self.counts.blocked += 1;
        self.slab.count_wait(slot, reason);
        Stopped::Waiting
    }

    pub(crate) fn end(&mut self, slot: u32, how: Place) -> Stopped {
        if self.tier.is_some() {
            self.lease_loses(slot);
            self.leave_contexts(slot);
        }
        self.retire_entity(slot);
        self.slab.hot_mut(slot).place = how;
        self.counts.ended += 1;
        Stopped::Ended
    }

    pub(crate) fn count_preemption(&mut self, slot: u32) {
        self.tally.preemptions += 1;
        let cold = self.slab.cold_mut(slot);
        cold.preemptions = cold.preemptions.saturating_add(1);
    }

    /// Books one scheduler operation on the overhead row; the clock advances by its cost.
    #[inline]
    pub(crate) fn book(&mut self, operation: SchedulerOperation) {
        self.operations[operation as usize] += 1;
        self.clock += self.settings.costs.of(operation).0;
    }

    pub(crate) fn state_of(&self, slot: u32) -> State {
        let hot = self.slab.hot(slot);
        match hot.place {
            Place::ReadyList
            | Place::ReadyHeap
            | Place::ReadyFair
            | Place::ReadyTier
            | Place::ReadyBackground => State::Ready,
            Place::Running => State::Running,
            Place::SleepNear | Place::SleepFar | Place::SleepEarly => {
                State::Sleeping { until: Frame(hot.since) }
            }
            Place::Blocked => State::Blocked { reason: hot.reason },
            Place::Throttled => State::Throttled { held: hot.held },
            Place::Finished => State::Finished,
            Place::Faulted => State::Faulted,
            Place::Canceled => State::Canceled,
            Place::Free => unreachable!("a free record has no state"),
        }
    }
}
