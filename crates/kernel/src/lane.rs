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
//! Contract: every coroutine is in exactly one place ([`Lane::check`]). [`Lane::dispatch`] gives a
//! [`Running`] token, [`Lane::stop`] takes it back and is the single writer of runtime; clock =
//! charged + overhead + idle at every instant. No operation after [`Lane::reserve`] allocates.
//! Calls that break the protocol (a token of another lane, a stop without a slice) are our bugs and
//! panic.
//!
//! Elsewhere: what comes from outside a slice (`wake`), the ready queue (`queue`), frames, waves
//! and idle time (`time`), moving between lanes (`migrate`), a plain yield and the pick after it in
//! one (`pass`), the invariants (`check`).

use crate::booked::Booked;
use crate::carry::{PicksAt, SETTLE_AFTER};
use crate::context::Tier;
use crate::counters::Tally;
use crate::deviate::Deviation;
use crate::fair::{Departure, FairQueue};
use crate::ledger::{LaneTotals, Ledger};
use crate::policy::Policy;
use crate::queue::Entrance;
use crate::ready::Ready;
use crate::record::{NIL, Place, Slab};
use crate::session::Sessions;
use crate::sleep::{Sleepers, Woken};
use crate::types::{
    BlockReason, BoundReason, Outcome, Refusal, Spawn, State, Stopped, Tag, WakeSource,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, SchedulerCosts, SchedulerOperation};

/// No coroutine: a reference that no slot can have.
pub(crate) const NOBODY: CoroutineRef = CoroutineRef::new(NIL, u32::MAX);

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
    /// Coroutines more than the lane has.
    pub coroutines: u32,
    /// Sessions more than the lane has.
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
    /// coroutine keeps its place.
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

    /// Whether it was picked from the queue now; otherwise it goes on with the rest of its quantum.
    #[must_use]
    pub const fn picked(&self) -> bool {
        self.picked
    }

    /// Whether the lane ran another coroutine before.
    #[must_use]
    pub const fn switched(&self) -> bool {
        self.switched
    }
}

/// A slice that [`Lane::pass`] or [`Lane::leave`] began. It has no token yet; [`Lane::token`] makes
/// one where it is needed.
#[must_use = "a slice that began must be stopped"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Began {
    /// The caller's name for the coroutine.
    pub tag: Tag,
    /// Cycles it may run; at least one.
    pub bound: Cycles,
    /// What the pick and the switch cost.
    pub overhead: Cycles,
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
    /// Held.
    pub throttled: u32,
    /// Ended and not reaped.
    pub ended: u32,
}

/// For how long a preferred coroutine may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inheritance {
    /// A quantum of its own: nobody on this lane handed over.
    Own,
    /// What the current coroutine will leave.
    Pending,
    /// So many cycles: what the current coroutine left.
    Rest(Cycles),
}

/// A virtual CPU; see the module's header.
pub struct Lane {
    pub(crate) id: LaneId,
    pub(crate) settings: LaneSettings,
    pub(crate) slab: Slab,
    pub(crate) ready: Ready,
    /// The ready queue under `Fair`; `None` under every other policy.
    pub(crate) fair: Option<Box<FairQueue>>,
    /// The contexts, if the lane keeps any.
    pub(crate) tier: Option<Box<Tier>>,
    /// Neither a fair queue nor contexts: kept beside them because every stop asks.
    pub(crate) is_plain: bool,
    /// Picks go by arrival and nobody watches them: one flag for `is_fifo`, `is_plain`, not
    /// `is_measured` and nobody `preferred`, because every yield asks. [`Lane::renew_simple`] keeps
    /// it.
    pub(crate) is_simple: bool,
    /// The same, and a wake prefers nobody: every message to one that waits asks.
    pub(crate) wakes_simply: bool,
    pub(crate) sleepers: Sleepers,
    /// Read ahead by; no part of the lane's state.
    pub(crate) woken: Woken,
    pub(crate) sessions: Sessions,

    /// The lane's clock, in cycles: what was charged, the operations at their costs, and idle.
    pub(crate) clock: u64,
    pub(crate) charged: u64,
    pub(crate) idle: u64,
    /// Slices begun. Not beside another count of the short ways: a compiler would add to both at
    /// once, at the price of more than two.
    pub(crate) steps: u64,
    pub(crate) operations: Booked,
    pub(crate) frame: Frame,
    pub(crate) frame_end: u64,
    /// Clock and totals at the begin of the frame, for its row.
    pub(crate) frame_mark: LaneTotals,
    /// The ready-set digest. Not beside another count, as `steps`.
    pub(crate) digest: u64,
    pub(crate) wave_end: u64,
    /// The step after which the wave is over.
    pub(crate) last_step: u64,
    /// The step, and the pick, at which the records are settled (`carry`); no part of the lane's
    /// state.
    pub(crate) settle_step: u64,
    pub(crate) settle_picks: u64,
    /// The nearer of `last_step` and `settle_step`: from there on the short ways are closed.
    pub(crate) short_until: u64,
    /// What is known of turns: while the clock is before one of these, the open slice began in a
    /// short way and at the cost of a turn, and so does the next, if somebody is ready: picks go by
    /// arrival, all came in order, and no settling is due. Before `whole_until` the quantum of both
    /// is whole, and before `rest_until` it is more than what is left to the end. No part of the
    /// lane's state: a short way learns it ([`Lane::learn_turn`]), and whatever changes one of
    /// these things forgets it ([`Lane::forget_turn`]).
    pub(crate) whole_until: u64,
    pub(crate) rest_until: u64,
    /// The nearer of the wave's and the frame's end, and which it is.
    pub(crate) end: u64,
    pub(crate) end_reason: BoundReason,

    /// The current coroutine's slot, or [`NIL`].
    pub(crate) current: u32,
    pub(crate) quantum_left: u64,
    /// What the policy gives a pick, and whether it has one class only; kept beside the policy
    /// because every pick asks.
    pub(crate) quantum: u64,
    pub(crate) is_fifo: bool,
    /// What a pick of another coroutine than the one before costs.
    pub(crate) turn_cost: u64,
    pub(crate) in_slice: bool,
    /// A wave or frame began since the last slice: the current coroutine has to pass the preemption
    /// test.
    pub(crate) boundary: bool,
    /// The coroutine that ran last, while none is current; another one costs a switch.
    /// [`Lane::ran_last`] has it always.
    pub(crate) last: CoroutineRef,
    /// The preferred next pick, and for how long it may run.
    pub(crate) preferred: Option<(CoroutineRef, Inheritance)>,

    pub(crate) arrivals: u64,
    /// Holder picks in a row, for `ProgressAware`.
    pub(crate) streak: u32,
    pub(crate) blocked: u32,
    pub(crate) held: u32,
    pub(crate) ended: u32,
    pub(crate) wakes: [u64; WakeSource::COUNT],
    pub(crate) tally: Tally,
    pub(crate) is_measured: bool,
    /// Picks that are not the policy's, ascending; nearly always none.
    pub(crate) deviations: Vec<Deviation>,
}

impl Lane {
    /// An empty lane at clock 0, in frame 0, with a wave that has not begun: [`Lane::dispatch`]
    /// answers [`Next::Over`] until [`Lane::begin_wave`].
    #[must_use]
    pub fn new(id: LaneId, settings: LaneSettings) -> Self {
        Self {
            id,
            settings,
            slab: Slab::new(),
            ready: Ready::new(),
            fair: match settings.policy {
                Policy::Fair(settings) => Some(Box::new(FairQueue::new(settings))),
                _ => None,
            },
            tier: None,
            is_plain: !matches!(settings.policy, Policy::Fair(_)),
            is_simple: settings.policy.is_fifo(),
            wakes_simply: settings.policy.is_fifo() && !settings.handoff,
            sleepers: Sleepers::new(),
            woken: Woken::new(),
            sessions: Sessions::new(),
            clock: 0,
            charged: 0,
            idle: 0,
            operations: Booked::NONE,
            frame: Frame::ZERO,
            frame_end: settings.frame_cycles.0,
            frame_mark: LaneTotals::default(),
            wave_end: 0,
            last_step: 0,
            settle_step: SETTLE_AFTER,
            settle_picks: SETTLE_AFTER,
            short_until: 0,
            whole_until: 0,
            rest_until: 0,
            end: 0,
            end_reason: BoundReason::WaveEnd,
            current: NIL,
            quantum_left: 0,
            quantum: settings.policy.quantum().0,
            is_fifo: settings.policy.is_fifo(),
            turn_cost: settings.costs.of(SchedulerOperation::Pick).0
                + settings.costs.of(SchedulerOperation::Switch).0,
            in_slice: false,
            boundary: false,
            last: NOBODY,
            preferred: None,
            arrivals: 0,
            steps: 0,
            streak: 0,
            digest: 0,
            blocked: 0,
            held: 0,
            ended: 0,
            wakes: [0; WakeSource::COUNT],
            tally: Tally::default(),
            is_measured: false,
            deviations: Vec::new(),
        }
    }

    /// Makes room for more coroutines and sessions than there are now.
    ///
    /// # Errors
    /// The host has no memory, or the lane cannot number so many. Room made before the refusal
    /// stays.
    #[inline]
    pub fn reserve(&mut self, more: Reservation) -> Result<(), Refusal> {
        // A spawn asks each time, and nearly always there is room.
        let has_room = self.is_plain
            && self.slab.has_room(more.coroutines)
            && self.sessions.has_room(more.sessions);
        if has_room { Ok(()) } else { self.reserve_more(more) }
    }

    #[inline(never)]
    fn reserve_more(&mut self, more: Reservation) -> Result<(), Refusal> {
        self.slab.reserve(more.coroutines)?;
        self.sleepers.reserve(self.slab.slots_reserved())?;
        self.reserve_fair()?;
        if let Some(tier) = &mut self.tier {
            tier.reserve_coroutines(self.slab.slots_reserved())?;
        }
        self.sessions.reserve(more.sessions)
    }

    /// Publishes a coroutine: ready, at the tail of its class.
    ///
    /// # Errors
    /// No room was reserved for it or its session.
    #[inline]
    pub fn spawn(&mut self, spawn: Spawn) -> Result<CoroutineRef, Refusal> {
        self.sessions.admit(spawn.tag.session())?;
        let reference = self.slab.allocate(&spawn)?;
        self.sessions.add(&mut self.slab, reference.slot);
        self.adopt(reference.slot, None);
        let _ = self.arrive(reference.slot, Entrance::New);
        Ok(reference)
    }

    /// Decides what runs now.
    ///
    /// A current coroutine goes on with the rest of its quantum, without pick or switch cost,
    /// unless a boundary was passed and the policy prefers another; then it goes back to its place
    /// in the queue. Otherwise the policy picks: the pick (and the switch, if another coroutine ran
    /// last) is booked as overhead. If that overhead alone reaches the end of the wave or frame,
    /// the answer is [`Next::Over`] and the picked coroutine, now current, runs first in the next
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
        if self.clock >= self.end || self.steps >= self.short_until {
            if self.is_over() {
                return Next::Over;
            }
            self.settle_if_due();
        }
        if self.boundary {
            self.pass_boundary();
        }
        let (mut picked, mut switched) = (false, false);
        let (reference, tag);
        if self.current == NIL {
            if self.is_measured {
                self.measure_pick();
            }
            let slot = self.choose();
            if slot == NIL {
                return Next::Idle;
            }
            (reference, tag, switched) = self.take_up(slot);
            picked = true;
            if self.clock >= self.end {
                return Next::Over;
            }
        } else {
            let hot = self.slab.hot(self.current);
            (reference, tag) = (CoroutineRef::new(self.current, hot.generation), hot.tag);
        }
        let (bound, reason) = self.bound();
        self.in_slice = true;
        self.forget_turn();
        self.step_apart();
        Next::Run(Running { reference, tag, bound, reason, picked, switched })
    }

    /// Whether the wave or frame is over for this lane.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.clock >= self.end || self.steps >= self.last_step
    }

    /// The least of what limits a slice of the current coroutine now, and which it is (semantics
    /// 25).
    #[inline]
    pub(crate) fn bound(&self) -> (Cycles, BoundReason) {
        if self.tier.is_some() {
            return self.bound_in_tier();
        }
        let (left, quantum) = (self.end.saturating_sub(self.clock), self.quantum_left);
        if quantum < left || quantum == left && self.end_reason == BoundReason::WaveEnd {
            (Cycles(quantum), BoundReason::Quantum)
        } else {
            (Cycles(left), self.end_reason)
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
            Some((_, Inheritance::Rest(rest))) => rest.0,
            _ => 0,
        };
        Cycles(self.quantum.max(self.quantum_left).max(rest)).min(self.settings.frame_cycles)
    }

    /// [`Lane::left`] of the open slice, as if it had used nothing: for who has no token at hand.
    #[inline]
    #[must_use]
    pub fn left_in_slice(&self) -> Cycles {
        debug_assert!(self.in_slice);
        self.bound().0
    }

    /// A wave or frame began: the current coroutine goes back to its place when the policy prefers
    /// a waiting one.
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

    /// Makes a ready coroutine the current one; gives its names and whether that switched.
    #[inline(always)]
    pub(crate) fn take_up(&mut self, slot: u32) -> (CoroutineRef, Tag, bool) {
        let hot = self.slab.hot_mut(slot);
        let (reference, tag) = (CoroutineRef::new(slot, hot.generation), hot.tag);
        debug_assert_eq!(self.current, NIL, "who was current has left");
        let switched = self.last != reference;
        let wait = self.clock.wrapping_sub(hot.since);
        hot.wait_total += wait;
        hot.wait_longest = hot.wait_longest.max(wait);
        hot.switches += u32::from(switched);
        hot.tokens = hot.tokens.saturating_sub(1);
        let (place, class) = (hot.place, hot.class);
        hot.place = Place::Running;
        if place == Place::ReadyList && self.ready.is_head(class, slot) {
            let next = self.slab.links(slot).next;
            self.ready.remove_first(slot, class, next);
        } else {
            self.take_up_other(slot, place);
        }
        if !self.is_fifo {
            self.count_streak(class);
        }
        self.current = slot;
        self.book(SchedulerOperation::Pick);
        if switched {
            self.book(SchedulerOperation::Switch);
        }
        (reference, tag, switched)
    }

    /// The queue's part of a pick that was not the head of a list: of a heap, out of the middle by
    /// a handoff, or by the fair queue.
    #[cold]
    fn take_up_other(&mut self, slot: u32, place: Place) {
        if matches!(place, Place::ReadyList | Place::ReadyHeap) {
            self.slab.hot_mut(slot).place = place;
            self.ready.remove(&mut self.slab, slot);
            self.slab.hot_mut(slot).place = Place::Running;
        }
    }

    /// Counts holder picks in a row.
    #[inline]
    fn count_streak(&mut self, class: u8) {
        if matches!(self.settings.policy, Policy::ProgressAware { .. }) {
            self.streak = if class == 1 { self.streak.saturating_add(1) } else { 0 };
        }
    }

    /// Ends a slice: charges what it used and puts the coroutine where the outcome says. The only
    /// writer of runtime.
    ///
    /// A quantum that is used up sends the coroutine to the tail of its class, whatever bound was
    /// recorded; with a rest it stays current.
    ///
    /// # Panics
    /// When the token is not of this lane's open slice.
    #[inline(always)]
    pub fn stop(&mut self, running: Running, used: Cycles, outcome: Outcome) -> Stopped {
        let slot = running.reference.slot;
        assert!(
            self.in_slice && slot == self.current,
            "stop() of a slice that is not open on this lane"
        );
        self.in_slice = false;
        self.clock += used.0;
        self.charged += used.0;
        let (arrival, picks) = (self.arrivals, self.picks());
        let hot = self.slab.charge(slot, used);
        if outcome == Outcome::Yielded
            && self.is_plain
            && self.preferred.is_none()
            && hot.held.is_empty()
        {
            // A plain yield, `arrive` written out: every nanosecond here is paid at every step.
            self.arrivals = arrival + 1;
            (self.last, self.current) = (running.reference, NIL);
            hot.arrival = arrival;
            hot.picks_at = PicksAt::of(picks);
            hot.since = self.clock;
            if !self.is_fifo {
                hot.class = self.settings.policy.class(hot);
            }
            let tail = self.ready.append(hot, slot);
            Ready::join(&mut self.slab, tail, slot);
            return Stopped::Requeued;
        }
        self.stop_otherwise(slot, used, outcome)
    }

    /// Everything but a plain yield.
    #[inline(never)]
    fn stop_otherwise(&mut self, slot: u32, used: Cycles, outcome: Outcome) -> Stopped {
        if self.tier.is_some()
            && let Some(stopped) = self.stop_in_tier(slot, outcome)
        {
            return stopped;
        }
        self.quantum_left = self.quantum_left.saturating_sub(used.0);
        if let Some(fair) = &mut self.fair {
            fair.charge(used);
            self.quantum_left = self.quantum_left.min(fair.bound().0);
        }
        if outcome == Outcome::OutOfCycles && self.quantum_left > 0 {
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

    /// The current coroutine stays current, unless it was held during its slice: then it leaves
    /// with its place kept.
    pub(crate) fn keep(&mut self, slot: u32) -> Stopped {
        if self.slab.hot(slot).held.is_empty() {
            return Stopped::Kept;
        }
        self.vacate();
        self.leave_runnable(slot);
        self.hold_back(slot);
        Stopped::Held
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
                self.renew_simple();
            }
        }
    }

    /// The coroutine that ran last, or [`NOBODY`].
    pub(crate) fn ran_last(&self) -> CoroutineRef {
        if self.current == NIL { self.last } else { self.slab.reference(self.current) }
    }

    pub(crate) fn sleep(&mut self, slot: u32, frame: Frame) -> Stopped {
        self.leave_for_a_wait(slot);
        self.leave_runnable(slot);
        if self.slab.hot_mut(slot).count_sleep() {
            self.slab.carry_sleeps(slot);
        }
        self.sleep_until(slot, frame);
        Stopped::Waiting
    }

    /// Puts a coroutine among the sleepers with the next arrival.
    pub(crate) fn sleep_until(&mut self, slot: u32, frame: Frame) {
        let hot = self.slab.hot_mut(slot);
        hot.arrival = self.arrivals;
        hot.since = frame.0;
        self.arrivals += 1;
        self.sleepers.insert(&mut self.slab, slot);
    }

    /// Under `Fair` a coroutine that waits and owes service stays in the competition until the
    /// others caught up.
    #[inline]
    fn leave_for_a_wait(&mut self, slot: u32) {
        if let Some(fair) = &mut self.fair {
            fair.depart(slot, Departure::Sleep);
        }
    }

    pub(crate) fn block(&mut self, slot: u32, reason: BlockReason) -> Stopped {
        self.leave_for_a_wait(slot);
        self.leave_runnable(slot);
        let clock = self.clock;
        let hot = self.slab.hot_mut(slot);
        hot.place = Place::Blocked;
        hot.since = clock;
        self.blocked += 1;
        self.slab.count_wait(slot, reason);
        Stopped::Waiting
    }

    pub(crate) fn end(&mut self, slot: u32, how: Place) -> Stopped {
        if self.tier.is_some() {
            self.leave_contexts(slot);
        }
        self.retire_entity(slot);
        self.slab.hot_mut(slot).place = how;
        self.ended += 1;
        Stopped::Ended
    }

    pub(crate) fn count_preemption(&mut self, slot: u32) {
        self.tally.preemptions += 1;
        let cold = self.slab.cold_mut(slot);
        cold.preemptions = cold.preemptions.saturating_add(1);
    }

    /// There is one more step, whose pick and switch are booked by themselves, if they are.
    pub(crate) fn step_apart(&mut self) {
        self.steps += 1;
        self.operations.step_without(SchedulerOperation::Pick);
        self.operations.step_without(SchedulerOperation::Switch);
    }

    /// Books one scheduler operation on the overhead row; the clock advances by its cost.
    #[inline]
    pub(crate) fn book(&mut self, operation: SchedulerOperation) {
        let cost = self.settings.costs.of(operation);
        self.operations.book(operation);
        self.clock += cost.0;
    }

    pub(crate) fn state_of(&self, slot: u32) -> State {
        let hot = self.slab.hot(slot);
        match hot.place {
            Place::ReadyList | Place::ReadyHeap | Place::ReadyFair | Place::ReadyTier => {
                State::Ready
            }
            Place::Running => State::Running,
            Place::SleepWheel | Place::SleepFar | Place::SleepEarly => {
                State::Sleeping { until: Frame(hot.since) }
            }
            Place::Blocked => State::Blocked { reason: hot.reason },
            Place::Held => State::Throttled { held: hot.held },
            Place::Finished => State::Finished,
            Place::Faulted => State::Faulted,
            Place::Canceled => State::Canceled,
            Place::Free => unreachable!("a free record has no state"),
        }
    }

    pub(crate) fn ledger_of(&self, slot: u32) -> Ledger {
        let (hot, cold) = (self.slab.hot(slot), self.slab.cold(slot));
        Ledger {
            runtime: self.slab.runtime(slot),
            wait_total: Cycles(hot.wait_total),
            wait_longest: Cycles(hot.wait_longest),
            switches: self.slab.switches(slot),
            preemptions: cold.preemptions,
            blocks: self.slab.blocks(slot),
            sleeps: self.slab.sleeps(slot),
            migrations: cold.migrations,
            steals: cold.steals,
        }
    }
}
