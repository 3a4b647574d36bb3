//! A lane as plain data, and back: for snapshots, rewinding and tests. `system` encodes the data.
//!
//! Contract: [`Lane::export`] returns everything that a later decision, cost or reading can depend
//! on, and nothing of the shape of queues, heaps and wheels. [`Lane::rebuild`] returns a lane that
//! behaves as the exported one in every call; exporting it again returns equal data. The data is
//! not trusted: every index is checked, memory is bounded by the caller, and the result has passed
//! [`Lane::check`].

use crate::cap::CapState;
use crate::check::Violation;
use crate::context::{Tier, TierState};
use crate::counters::Tally;
use crate::fair::{FairLane, FairSessionState, FairState};
use crate::heap::{self, ByArrival};
use crate::lane::{Inheritance, Lane, LaneSettings, WaveEnd};
use crate::lease::LeaseState;
use crate::ledger::{LaneTotals, Ledger};
use crate::policy::Policy;
use crate::record::{NIL, Place};
use crate::types::{BlockReason, HoldReasons, Refusal, State, Tag, WakeSource};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{
    CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, SchedulerOperation, Weight,
};

/// One coroutine as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordState {
    /// Its reference.
    pub reference: CoroutineRef,
    /// The caller's name for it.
    pub tag: Tag,
    /// Its state.
    pub state: State,
    /// What holds it, or will when it would be ready.
    pub held: HoldReasons,
    /// Its arrival.
    pub arrival: u64,
    /// The lane's picks when it got that arrival.
    pub picks_at: u64,
    /// Ready or blocked: the lane's clock when that began.
    pub since: u64,
    /// The class it is queued in or was picked from.
    pub class: u8,
    /// Its priority.
    pub priority: Priority,
    /// Its progress tokens.
    pub tokens: u8,
    /// Its weight.
    pub weight: Weight,
    /// Its latency class.
    pub latency: LatencyClass,
    /// What it consumed.
    pub ledger: Ledger,
}

/// The coroutine preferred for the next pick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreferredState {
    /// With a quantum of its own.
    Own(CoroutineRef),
    /// With what the current coroutine will leave.
    Pending(CoroutineRef),
    /// With this many cycles.
    Rest(CoroutineRef, Cycles),
}

/// A lane as plain data. Between slices only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneState {
    /// Its number.
    pub id: LaneId,
    /// What it was made with, with the policy it has now.
    pub settings: LaneSettings,
    /// The clock.
    pub clock: Cycles,
    /// Cycles charged to coroutines.
    pub charged: Cycles,
    /// Cycles in which nothing ran.
    pub idle: Cycles,
    /// How often each operation was booked, in table order.
    pub operations: [u64; SchedulerOperation::ALL.len()],
    /// The current frame.
    pub frame: Frame,
    /// The totals at the start of the frame.
    pub frame_mark: LaneTotals,
    /// Where the wave ends on the clock, and after which step.
    pub wave_end: (Cycles, u64),
    /// The current coroutine's slot.
    pub current: Option<u32>,
    /// What is left of its quantum.
    pub quantum_left: Cycles,
    /// Whether a wave or frame began since the last slice.
    pub boundary: bool,
    /// The coroutine that ran last.
    pub last: Option<CoroutineRef>,
    /// The preferred next pick.
    pub preferred: Option<PreferredState>,
    /// The next arrival.
    pub arrivals: u64,
    /// Slices begun.
    pub steps: u64,
    /// Holder picks in a row.
    pub streak: u32,
    /// Wakes by source.
    pub wakes: [u64; WakeSource::COUNT],
    /// Refused wakes, preemptions, handoffs.
    pub tallies: [u64; 3],
    /// Every coroutine, by slot.
    pub records: Vec<RecordState>,
    /// Free slots with the generation they will have, the next to be used first.
    pub free: Vec<CoroutineRef>,
    /// Slots whose generations are used up, ascending.
    pub retired: Vec<u32>,
    /// Slots of each session, ascending by session, in the order they came to the lane.
    pub sessions: Vec<(u32, Vec<u32>)>,
    /// Reserved capacity: coroutines, sessions.
    pub reserved: (u32, u32),
    /// The fair queue, under `Fair` among coroutines.
    pub fair: Option<FairState>,
    /// Under `Fair` among sessions: the next arrival number, and the sessions by number.
    pub fair_sessions: Option<(u64, Vec<FairSessionState>)>,
    /// The contexts, if the lane keeps any.
    pub contexts: Option<TierState>,
    /// The accounts of capped sessions, ascending by session.
    pub caps: Vec<CapState>,
    /// The lease, if the lane has a place for one.
    pub lease: Option<LeaseState>,
}

/// Why plain data is not a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RebuildRefused {
    /// More slots than the caller allows.
    TooLarge {
        /// Slots the data has.
        slots: u32,
        /// Slots allowed.
        most: u32,
    },
    /// A slot is missing, duplicate, or out of range; or a list names one that is not live.
    Slot {
        /// The slot.
        slot: u32,
    },
    /// A number that no lane can have: a generation beyond the last, an arrival or pick count from
    /// the future, a frame that overflows.
    Number {
        /// What it is.
        what: &'static str,
    },
    /// The fair queue is missing, not wanted, or not one.
    Fair,
    /// The contexts are not contexts of this lane.
    Contexts,
    /// The accounts of capped sessions are not accounts of this lane.
    Caps,
    /// The lease is none of this lane.
    Lease,
    /// The host has no memory.
    Memory(Refusal),
    /// An invariant does not hold.
    Invariant(Violation),
}

impl fmt::Display for RebuildRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLarge { slots, most } => write!(f, "{slots} slots, {most} are allowed"),
            Self::Slot { slot } => write!(
                f,
                "slot {slot} is missing, duplicate or out of range, or in a list that it does not belong to"
            ),
            Self::Number { what } => write!(f, "a number that no lane can have: {what}"),
            Self::Fair => write!(f, "the fair queue is missing, not wanted, or not one"),
            Self::Contexts => write!(f, "contexts that are none of this lane"),
            Self::Caps => write!(f, "caps that no lane has"),
            Self::Lease => write!(f, "a lease that no lane has"),
            Self::Memory(_) => write!(f, "the host has no memory for it"),
            Self::Invariant(Violation { rule, slot, found, expected }) => {
                write!(f, "{rule} (slot {slot}): {found} where {expected} should be")
            }
        }
    }
}

impl Lane {
    /// The lane as plain data.
    ///
    /// # Panics
    /// When a slice is open.
    #[must_use]
    pub fn export(&self) -> LaneState {
        assert!(!self.in_slice, "a lane is exported between slices");
        let sessions = self.sessions.table().iter();
        LaneState {
            id: self.id,
            settings: self.settings,
            clock: Cycles(self.clock),
            charged: Cycles(self.charged),
            idle: Cycles(self.idle),
            operations: self.operations,
            frame: self.frame,
            frame_mark: self.frame_mark,
            wave_end: (Cycles(self.wave_end.clock), self.wave_end.step),
            current: (self.current != NIL).then_some(self.current),
            quantum_left: Cycles(self.quantum_left),
            boundary: self.boundary,
            last: self.ran_last(),
            preferred: self.preferred.map(|(target, inherits)| match inherits {
                Inheritance::Own => PreferredState::Own(target),
                Inheritance::Pending => PreferredState::Pending(target),
                Inheritance::Rest(rest) => PreferredState::Rest(target, rest),
            }),
            arrivals: self.arrivals,
            steps: self.steps,
            streak: self.ready.streak,
            wakes: self.tally.wakes,
            tallies: [self.tally.refused_wakes, self.tally.preemptions, self.tally.handoffs],
            records: self.slab.slots().map(|slot| self.export_record(slot)).collect(),
            free: self.slab.free_list().collect(),
            retired: self.slab.retired_slots().collect(),
            sessions: sessions
                .map(|list| {
                    (
                        list.session,
                        self.session(list.session).map(|(member, _)| member.slot).collect(),
                    )
                })
                .collect(),
            reserved: (self.slab.slots_reserved(), self.sessions.reserved()),
            fair: self.fair.as_ref().and_then(|fair| fair.export()),
            fair_sessions: self.fair.as_ref().and_then(|fair| fair.export_sessions()),
            contexts: self.tier.as_ref().map(|tier| tier.export()),
            caps: self.caps().to_vec(),
            lease: self.lease().copied(),
        }
    }

    fn export_record(&self, slot: u32) -> RecordState {
        let (hot, cold) = (self.slab.hot(slot), self.slab.cold(slot));
        let keeps_since = hot.place.is_ready() || hot.place == Place::Blocked;
        RecordState {
            reference: self.slab.reference(slot),
            tag: hot.tag,
            state: self.state_of(slot),
            held: hot.held,
            arrival: hot.arrival,
            picks_at: hot.picks_at,
            since: if keeps_since { hot.since } else { 0 },
            class: hot.class,
            priority: hot.priority,
            tokens: hot.tokens,
            weight: cold.weight,
            latency: cold.latency,
            ledger: self.slab.ledger(slot),
        }
    }

    /// A lane from plain data with at most `most_slots` slots.
    ///
    /// # Errors
    /// The data is not a lane, or there is no memory.
    pub fn rebuild(state: &LaneState, most_slots: u32) -> Result<Self, RebuildRefused> {
        check_numbers(state)?;
        let slots = check_slots(state, most_slots)?;
        let mut lane = Self::new(state.id, state.settings);
        lane.slab.restore(state.reserved.0, slots).map_err(RebuildRefused::Memory)?;
        lane.sessions.reserve(state.reserved.1).map_err(RebuildRefused::Memory)?;
        lane.restore_fields(state);
        for record in &state.records {
            lane.restore_record(record);
        }
        for (slot, generation) in
            state.retired.iter().map(|&slot| (slot, CoroutineRef::LAST_GENERATION))
        {
            lane.slab.restore_retired(slot, generation);
        }
        for free in state.free.iter().rev() {
            lane.slab.restore_free(*free);
        }
        if let Some(current) = state.current
            && state.last != Some(lane.slab.reference(current))
        {
            return Err(RebuildRefused::Number {
                what: "the coroutine that ran last, which is not the current one",
            });
        }
        lane.restore_sessions(state)?;
        lane.restore_fair(state)?;
        lane.restore_tier(state)?;
        if !lane.restore_caps(&state.caps) {
            return Err(RebuildRefused::Caps);
        }
        if !lane.restore_lease(state.lease) {
            return Err(RebuildRefused::Lease);
        }
        lane.restore_queues(state);
        lane.check().map_err(RebuildRefused::Invariant)?;
        Ok(lane)
    }

    fn restore_fields(&mut self, state: &LaneState) {
        self.clock = state.clock.0;
        self.charged = state.charged.0;
        self.idle = state.idle.0;
        self.operations = state.operations;
        self.frame = state.frame;
        self.frame_mark = state.frame_mark;
        self.wave_end = WaveEnd { clock: state.wave_end.0.0, step: state.wave_end.1 };
        self.current = state.current.unwrap_or(NIL);
        self.quantum_left = state.quantum_left.0;
        self.boundary = state.boundary;
        self.last = state.last;
        self.preferred = state.preferred.map(|preferred| match preferred {
            PreferredState::Own(target) => (target, Inheritance::Own),
            PreferredState::Pending(target) => (target, Inheritance::Pending),
            PreferredState::Rest(target, rest) => (target, Inheritance::Rest(rest)),
        });
        self.arrivals = state.arrivals;
        self.steps = state.steps;
        self.ready.streak = state.streak;
        let [refused_wakes, preemptions, handoffs] = state.tallies;
        let wakes = state.wakes;
        self.tally = Tally { wakes, refused_wakes, preemptions, handoffs, ..Tally::default() };
        self.refresh();
    }

    /// Writes one record. Queues come later: a ready or sleeping record is `Throttled` until then.
    fn restore_record(&mut self, record: &RecordState) {
        let (place, reason, since) = match record.state {
            State::Ready | State::Throttled { .. } => {
                (Place::Throttled, BlockReason::ChannelReceive, record.since)
            }
            State::Sleeping { until } => (Place::Throttled, BlockReason::ChannelReceive, until.0),
            State::Running => (Place::Running, BlockReason::ChannelReceive, 0),
            State::Blocked { reason } => (Place::Blocked, reason, record.since),
            State::Finished => (Place::Finished, BlockReason::ChannelReceive, 0),
            State::Faulted => (Place::Faulted, BlockReason::ChannelReceive, 0),
            State::Canceled => (Place::Canceled, BlockReason::ChannelReceive, 0),
        };
        let slot = record.reference.slot;
        let hot = self.slab.hot_mut(slot);
        (hot.tag, hot.generation) = (record.tag, record.reference.generation);
        (hot.arrival, hot.picks_at, hot.since) = (record.arrival, record.picks_at, since);
        (hot.place, hot.reason, hot.held) = (place, reason, record.held);
        (hot.class, hot.priority, hot.tokens) = (record.class, record.priority, record.tokens);
        self.slab.set_share(slot, record.weight, record.latency);
        self.slab.set_ledger(slot, &record.ledger);
        match record.state {
            State::Blocked { .. } => self.counts.blocked += 1,
            State::Throttled { .. } => self.counts.throttled += 1,
            State::Finished | State::Faulted | State::Canceled => self.counts.ended += 1,
            State::Ready | State::Running | State::Sleeping { .. } => {}
        }
    }

    fn restore_sessions(&mut self, state: &LaneState) -> Result<(), RebuildRefused> {
        let mut listed = vec![false; self.slab.used() as usize];
        for &(session, ref members) in &state.sessions {
            for &slot in members {
                let live = self
                    .slab
                    .live_slot_at(slot)
                    .filter(|hot| hot.tag.session() == session)
                    .is_some();
                if !live
                    || core::mem::replace(&mut listed[slot as usize], true)
                    || self.sessions.admit(session).is_err()
                {
                    return Err(RebuildRefused::Slot { slot });
                }
                self.sessions.add(&mut self.slab, slot);
            }
        }
        Ok(())
    }

    fn restore_fair(&mut self, state: &LaneState) -> Result<(), RebuildRefused> {
        let rebuilt = match (&state.settings.policy, &state.fair, &state.fair_sessions) {
            (Policy::Fair(settings), Some(fair), None)
                if fair.settings == *settings && fair.slots == state.reserved.0 =>
            {
                FairLane::rebuild(fair)
            }
            (Policy::Fair(settings), None, Some((arrivals, sessions))) => {
                FairLane::rebuild_sessions(*settings, state.reserved, *arrivals, sessions)
            }
            (Policy::Fair(_), ..) | (_, Some(_), _) | (.., Some(_)) => None,
            _ => return Ok(()),
        };
        self.fair = Some(Box::new(rebuilt.ok_or(RebuildRefused::Fair)?));
        Ok(())
    }

    fn restore_tier(&mut self, state: &LaneState) -> Result<(), RebuildRefused> {
        if let Some(contexts) = &state.contexts {
            let (costs, frame_cycles) = (self.settings.costs, self.settings.frame_cycles.0);
            let tier = Tier::rebuild(contexts, costs, frame_cycles, self.slab.slots_reserved())
                .ok_or(RebuildRefused::Contexts)?;
            let is_live = |slot: u32| self.slab.live_slot_at(slot).is_some();
            if !tier.parties().all(is_live) {
                return Err(RebuildRefused::Contexts);
            }
            self.tier = Some(Box::new(tier));
        }
        self.refresh();
        Ok(())
    }

    /// Whether a ready coroutine is in the tier.
    fn is_in_tier(&self, slot: u32) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.claims(slot))
    }

    /// Queues the ready and the sleeping, in order of arrival, and adds up the digest.
    fn restore_queues(&mut self, state: &LaneState) {
        let mut waiting: Vec<(u64, u32, State)> = state
            .records
            .iter()
            .filter(|record| matches!(record.state, State::Ready | State::Sleeping { .. }))
            .map(|record| (record.arrival, record.reference.slot, record.state))
            .collect();
        waiting.sort_unstable_by_key(|&(arrival, ..)| arrival);
        for (_, slot, state) in waiting {
            match state {
                State::Sleeping { .. } => self.sleepers.insert(&mut self.slab, slot),
                _ if self.is_in_tier(slot) => self.slab.hot_mut(slot).place = Place::ReadyTier,
                _ if self.is_demoted(slot) => {
                    self.slab.hot_mut(slot).place = Place::ReadyBackground;
                    self.caps.background =
                        heap::push::<ByArrival>(&mut self.slab, self.caps.background, slot);
                }
                _ if self.fair.is_some() => self.slab.hot_mut(slot).place = Place::ReadyFair,
                _ => self.ready.insert(&mut self.slab, slot),
            }
        }
        for record in state
            .records
            .iter()
            .filter(|record| matches!(record.state, State::Ready | State::Running))
        {
            self.digest = self
                .digest
                .wrapping_add(crate::digest::mix(record.tag, record.reference.generation));
        }
    }
}

/// The largest clock and the largest numbers of a ledger: sums of a few of them do not overflow.
const MOST: u64 = 1 << 62;

/// Refuses numbers that no lane can have.
fn check_numbers(state: &LaneState) -> Result<(), RebuildRefused> {
    let number =
        |what, holds: bool| if holds { Ok(()) } else { Err(RebuildRefused::Number { what }) };
    let frames = state
        .frame
        .0
        .checked_add(2)
        .and_then(|frames| frames.checked_mul(state.settings.frame_cycles.0));
    number("the frame's end", frames.is_some() && state.settings.frame_cycles.0 > 0)?;
    let start = state.frame.0 * state.settings.frame_cycles.0;
    let operations = SchedulerOperation::ALL.iter().try_fold(0u64, |sum, &operation| {
        let cycles = state.operations[operation as usize]
            .checked_mul(state.settings.costs.of(operation).0)?;
        sum.checked_add(cycles)
    });
    let total =
        operations.and_then(|sum| sum.checked_add(state.charged.0)?.checked_add(state.idle.0));
    number("the totals", total == Some(state.clock.0))?;
    number("the clock", state.clock.0 <= MOST)?;
    let mark = &state.frame_mark;
    let parts =
        mark.overhead.iter().try_fold(mark.charged.0.checked_add(mark.idle.0), |sum, cycles| {
            Some(sum?.checked_add(cycles.0))
        });
    let marked = parts.flatten().is_some_and(|total| total >= start && total <= state.clock.0);
    number("the frame's mark", marked && mark.charged <= state.charged && mark.idle <= state.idle)?;
    let picks = state.operations[SchedulerOperation::Pick as usize];
    number("picks at an arrival", state.records.iter().all(|record| record.picks_at <= picks))?;
    let is_counted = |ledger: &Ledger| {
        let most = ledger.runtime.max(ledger.wait_total).max(ledger.wait_longest).0;
        most.max(ledger.switches) < MOST
    };
    number("a ledger", state.records.iter().all(|record| is_counted(&record.ledger)))?;
    number(
        "generations",
        state
            .records
            .iter()
            .all(|record| record.reference.generation <= CoroutineRef::LAST_GENERATION),
    )?;
    number(
        "free generations",
        state.free.iter().all(|free| free.generation <= CoroutineRef::LAST_GENERATION),
    )
}

/// Checks that each slot is named once, without a gap; returns how many there are.
fn check_slots(state: &LaneState, most: u32) -> Result<u32, RebuildRefused> {
    let slots = state.reserved.0.max(state.reserved.1);
    if slots > most {
        return Err(RebuildRefused::TooLarge { slots, most });
    }
    let used = state.records.len() + state.free.len() + state.retired.len();
    if used > state.reserved.0 as usize {
        return Err(RebuildRefused::TooLarge { slots: used as u32, most: state.reserved.0 });
    }
    let mut seen = vec![false; used];
    let records = state.records.iter().map(|record| record.reference.slot);
    for slot in
        records.chain(state.free.iter().map(|free| free.slot)).chain(state.retired.iter().copied())
    {
        match seen.get_mut(slot as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(RebuildRefused::Slot { slot }),
        }
    }
    let current = state
        .current
        .into_iter()
        .find(|&slot| !state.records.iter().any(|record| record.reference.slot == slot));
    current.map_or(Ok(used as u32), |slot| Err(RebuildRefused::Slot { slot }))
}
