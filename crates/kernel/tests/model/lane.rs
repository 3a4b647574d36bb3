//! One lane, naively: a vector of coroutines that every question scans.
//!
//! Written from semantics 6 and 20 to 25 and 34 to 36, cpu-authority B and C, and the public
//! documentation of the kernel where those leave the moment of a charge open. A coroutine is where
//! its [`State`] says and nowhere else: there is no queue, no list of sleepers and no count.
//! Operations and ids are the kernel's and `abi`'s; every answer has a type of its own. Elsewhere:
//! what several lanes do together (`machine`), fair sharing (`fair`).

use super::Fault;
use super::fair::{Entry, Luggage, Shares};
use std::collections::BTreeMap;
use wavelock_abi::{CoroutineRef, Cycles, LatencyClass, SCHEDULER_COSTS_V1, SchedulerOperation};
use wavelock_kernel::{
    BlockReason, CapOverrun, CapSettings, HoldReason, Outcome, Policy, PriorityRule, Sharing, Span,
    Spawn, WakeSource,
};

/// Reasons to hold, as a set of bits by the reason's code.
pub(crate) type Holds = u8;

fn bit(reason: HoldReason) -> Holds {
    1 << reason as u8
}

/// What a coroutine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ready,
    Running,
    Sleeping { until: u64 },
    Blocked(BlockReason),
    Held(Holds),
    Finished,
    Faulted,
    Canceled,
}

impl State {
    fn has_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Faulted | Self::Canceled)
    }
}

/// What a coroutine has consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Account {
    pub(crate) runtime: u64,
    pub(crate) wait_total: u64,
    pub(crate) wait_longest: u64,
    pub(crate) switches: u64,
    pub(crate) preemptions: u32,
    pub(crate) blocks: [u32; BlockReason::COUNT],
    pub(crate) sleeps: u32,
    pub(crate) migrations: u32,
    pub(crate) steals: u32,
}

/// Why something was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Stale,
    NotWaiting(State),
    WrongSource(BlockReason, WakeSource),
    InSlice(CoroutineRef),
    NotEnded(State),
    Ended(State),
    NotHeld(HoldReason, Holds),
    NotReady(State),
    SlotTaken(CoroutineRef),
    HandoffOff,
    NoSession,
    /// A refusal of the kernel that the model never gives.
    Unexpected,
}

/// What a slice's end did with the coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Requeued,
    Kept,
    Waiting,
    Held,
    Ended,
}

/// What limits a slice; the order is the order of semantics 25.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Cap,
    FrameEnd,
    Quantum,
    WaveEnd,
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Run { reference: CoroutineRef, bound: u64, limit: Limit, picked: bool, switched: bool },
    Idle,
    Over,
}

/// One frame of the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) frame: u64,
    pub(crate) charged: u64,
    pub(crate) overhead: u64,
    pub(crate) idle: u64,
    pub(crate) overrun_in: u64,
    pub(crate) overrun_out: u64,
}

/// One coroutine. Its slot is its index in the lane's vector.
#[derive(Clone, Debug)]
struct Coroutine {
    generation: u32,
    tag: u64,
    state: State,
    holds: Holds,
    /// When it last joined the tail: the order within a class.
    arrival: u64,
    /// Clock since when it waits to be picked.
    ready_since: u64,
    /// Picks of the lane when it last joined the tail.
    picks_before: u64,
    priority: u8,
    tokens: u8,
    weight: u16,
    class: LatencyClass,
    /// When it came to the lane: the order within a session.
    came: u64,
    /// What fairness remembers of it while the lane's policy is another.
    luggage: Luggage,
    account: Box<Account>,
}

/// The cap of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    settings: CapSettings,
    pub(crate) used: u64,
    pub(crate) spent: bool,
    pub(crate) demoted: u64,
}

/// What happened to a cap: the session, its used cycles, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CapNews {
    Throttled { session: u32, used: u64, until: u64 },
    Demoted { session: u32, used: u64, until: u64 },
    Ended { session: u32, used: u64 },
    Refilled { session: u32, used: u64 },
}

/// For how long a preferred coroutine may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inheritance {
    /// A quantum of its own: nobody on this lane handed over.
    Own,
    /// What the current coroutine will leave.
    Pending,
    /// So much.
    Rest(u64),
}

/// A coroutine on its way to another lane.
#[derive(Clone, Debug)]
pub(crate) struct Traveller {
    coroutine: Coroutine,
    /// Ready: cycles waited so far.
    waited: u64,
}

impl Traveller {
    pub(crate) fn tag(&self) -> u64 {
        self.coroutine.tag
    }
}

/// What a lane is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) frame_cycles: u64,
    pub(crate) handoff: bool,
}

/// A lane.
#[derive(Clone, Debug)]
pub(crate) struct ModelLane {
    settings: Settings,
    fault: Option<Fault>,
    slots: Vec<Option<Coroutine>>,
    /// The last generation each slot had: a reference that comes back is a bug.
    generations: Vec<Option<u32>>,
    /// Preferred coroutines that were picked as such.
    pub(crate) handoffs: u64,
    /// Slots that were given out again.
    pub(crate) reused: u64,
    pub(crate) clock: u64,
    pub(crate) charged: u64,
    pub(crate) overhead: [u64; SchedulerOperation::ALL.len()],
    pub(crate) idle: u64,
    pub(crate) wakes: [u64; WakeSource::COUNT],
    pub(crate) picks: u64,
    pub(crate) steps: u64,
    frame: u64,
    frame_begin: Row,
    span: Span,
    arrivals: u64,
    /// The slot of the current coroutine and the rest of its quantum.
    current: Option<(usize, u64)>,
    /// The tokens the current coroutine had when it was picked.
    picked_tokens: u8,
    in_slice: bool,
    boundary: bool,
    last_ran: Option<CoroutineRef>,
    /// The preferred next pick, and for how long it may run.
    preferred: Option<(CoroutineRef, Inheritance)>,
    holders_in_a_row: u64,
    fair: Option<Shares>,
    caps: BTreeMap<u32, Cap>,
    /// Clock since when the current coroutine's time is not charged to a cap yet.
    cap_mark: u64,
    /// The current coroutine was picked because no other than demoted ones was ready.
    in_background: bool,
    pub(crate) cap_news: Vec<CapNews>,
}

/// Time, and what costs time.
impl ModelLane {
    pub(crate) fn new(settings: Settings, fault: Option<Fault>) -> Self {
        Self {
            settings,
            fault,
            slots: Vec::new(),
            generations: Vec::new(),
            handoffs: 0,
            reused: 0,
            clock: 0,
            charged: 0,
            overhead: [0; SchedulerOperation::ALL.len()],
            idle: 0,
            wakes: [0; WakeSource::COUNT],
            picks: 0,
            steps: 0,
            frame: 0,
            frame_begin: Row {
                frame: 0,
                charged: 0,
                overhead: 0,
                idle: 0,
                overrun_in: 0,
                overrun_out: 0,
            },
            span: Span::Picks(0),
            arrivals: 0,
            current: None,
            picked_tokens: 0,
            in_slice: false,
            boundary: false,
            last_ran: None,
            preferred: None,
            holders_in_a_row: 0,
            fair: Self::fair_for(settings.policy, fault),
            caps: BTreeMap::new(),
            cap_mark: 0,
            in_background: false,
            cap_news: Vec::new(),
        }
    }

    fn fair_for(policy: Policy, fault: Option<Fault>) -> Option<Shares> {
        match policy {
            Policy::Fair(settings) => {
                let of_sessions = settings.sharing() == Sharing::Session;
                Some(Shares::new(settings.base_slice(), settings.least_slice(), of_sessions, fault))
            }
            _ => None,
        }
    }

    fn quantum(&self) -> u64 {
        match self.settings.policy {
            Policy::Cooperative => u64::MAX,
            Policy::Fair(settings) => settings.base_slice().0,
            Policy::RoundRobin { quantum }
            | Policy::Priority { quantum, .. }
            | Policy::ProgressAware { quantum } => quantum.0,
        }
    }

    pub(crate) fn book(&mut self, operation: SchedulerOperation) {
        let cost = SCHEDULER_COSTS_V1.of(operation).0;
        self.overhead[operation as usize] += cost;
        self.clock += cost;
    }

    pub(crate) fn overhead_total(&self) -> u64 {
        self.overhead.iter().sum()
    }

    fn pass_idle_until(&mut self, clock: u64) {
        let missing = clock.saturating_sub(self.clock);
        self.idle += missing;
        self.clock += missing;
    }

    pub(crate) fn align(&mut self, clock: u64) {
        self.pass_idle_until(clock);
    }

    pub(crate) fn begin_wave(&mut self, span: Span) {
        self.span = span;
        self.boundary = true;
    }

    pub(crate) fn frame_end(&self) -> u64 {
        (self.frame + 1) * self.settings.frame_cycles
    }

    pub(crate) fn row(&self) -> Row {
        Row {
            frame: self.frame,
            charged: self.charged - self.frame_begin.charged,
            overhead: self.overhead_total() - self.frame_begin.overhead,
            idle: self.idle - self.frame_begin.idle,
            overrun_in: self.frame_begin.overrun_in,
            overrun_out: self.clock.saturating_sub(self.frame_end()),
        }
    }

    pub(crate) fn end_frame(&mut self) -> Row {
        self.pass_idle_until(self.frame_end());
        self.row()
    }

    /// Frame begin: the sleepers that are due wake, by frame and then by arrival.
    pub(crate) fn begin_frame(&mut self, frame: u64) -> u32 {
        let start = frame * self.settings.frame_cycles;
        self.pass_idle_until(start);
        let from = std::mem::replace(&mut self.frame, frame);
        self.frame_begin = Row {
            frame,
            charged: self.charged,
            overhead: self.overhead_total(),
            idle: self.idle,
            overrun_in: self.clock - start,
            overrun_out: 0,
        };
        self.boundary = true;
        let mut woken = 0;
        while let Some(slot) = self.next_sleeper(frame) {
            self.book(SchedulerOperation::Timer);
            self.wakes[WakeSource::Timer as usize] += 1;
            self.join_tail(slot, Entry::Woken);
            woken += 1;
        }
        self.refill_caps(from, frame);
        woken
    }

    fn next_sleeper(&self, frame: u64) -> Option<usize> {
        let due = self.live().filter_map(|(slot, one)| match one.state {
            State::Sleeping { until } if until <= frame => Some((until, one.arrival, slot)),
            _ => None,
        });
        if self.fault == Some(Fault::SleepersWakeNewestFirst) {
            return due
                .max_by_key(|&(until, arrival, _)| (u64::MAX - until, arrival))
                .map(|(.., slot)| slot);
        }
        due.min().map(|(.., slot)| slot)
    }

    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.live()
            .filter_map(
                |(_, one)| {
                    if let State::Sleeping { until } = one.state { Some(until) } else { None }
                },
            )
            .min()
    }

    pub(crate) fn frame(&self) -> u64 {
        self.frame
    }

    fn is_over(&self) -> bool {
        let wave_over = match self.span {
            Span::Picks(left) => left == 0,
            Span::Until(end) => self.clock >= end.0,
        };
        wave_over || self.clock >= self.frame_end()
    }
}

/// Finding coroutines: always by looking at all of them.
impl ModelLane {
    fn live(&self) -> impl Iterator<Item = (usize, &Coroutine)> {
        self.slots.iter().enumerate().filter_map(|(slot, one)| one.as_ref().map(|one| (slot, one)))
    }

    fn at(&self, slot: usize) -> &Coroutine {
        self.slots[slot].as_ref().expect("a live slot")
    }

    fn at_mut(&mut self, slot: usize) -> &mut Coroutine {
        self.slots[slot].as_mut().expect("a live slot")
    }

    fn find(&self, reference: CoroutineRef) -> Result<usize, Refused> {
        let slot = reference.slot as usize;
        let one = self.slots.get(slot).and_then(Option::as_ref).ok_or(Refused::Stale)?;
        if one.generation == reference.generation { Ok(slot) } else { Err(Refused::Stale) }
    }

    fn reference(&self, slot: usize) -> CoroutineRef {
        CoroutineRef::new(slot as u32, self.at(slot).generation)
    }

    fn ready(&self) -> impl Iterator<Item = (usize, &Coroutine)> {
        self.live().filter(|(_, one)| one.state == State::Ready)
    }

    fn oldest(&self, mut wanted: impl FnMut(&Coroutine) -> bool) -> Option<usize> {
        let candidates = self.competing().filter(|(_, one)| wanted(one));
        if self.fault == Some(Fault::NewestFirst) {
            return candidates.max_by_key(|(_, one)| one.arrival).map(|(slot, _)| slot);
        }
        candidates.min_by_key(|(_, one)| one.arrival).map(|(slot, _)| slot)
    }

    /// What a policy ranks by before arrival; larger first. Policies without ranks give everybody
    /// the same.
    fn rank(&self, one: &Coroutine) -> u64 {
        let aged = (self.picks - one.picks_before)
            / if self.fault == Some(Fault::AgesTooFast) { 15 } else { 16 };
        match self.settings.policy {
            Policy::Priority { rule: PriorityRule::FixedMap, .. } => u64::from(one.priority),
            Policy::Priority { rule: PriorityRule::Aging, .. } => u64::from(one.priority) + aged,
            Policy::Priority { rule: PriorityRule::TokenWeighted, .. } => u64::from(one.tokens),
            _ => 0,
        }
    }

    fn choice(&self) -> Option<usize> {
        let streak = if self.fault == Some(Fault::LongerStreak) { 9 } else { 8 };
        match self.settings.policy {
            Policy::ProgressAware { .. } => {
                let (holder, other) =
                    (self.oldest(|one| one.tokens > 0), self.oldest(|one| one.tokens == 0));
                if self.holders_in_a_row >= streak { other.or(holder) } else { holder.or(other) }
            }
            _ => {
                let best = self.competing().map(|(_, one)| self.rank(one)).max()?;
                self.oldest(|one| self.rank(one) == best)
            }
        }
    }

    /// Ready slots in the order a queue without further arrivals would serve them, for the policies
    /// with one order for all.
    pub(crate) fn ready_by_arrival(&self) -> Vec<CoroutineRef> {
        let mut ready: Vec<(u64, usize)> =
            self.ready().map(|(slot, one)| (one.arrival, slot)).collect();
        ready.sort_unstable();
        ready.into_iter().map(|(_, slot)| self.reference(slot)).collect()
    }
}

/// The life of a coroutine.
impl ModelLane {
    /// Publishes a coroutine under the reference the kernel chose, which must be fresh: a slot that
    /// is free, a generation it never had.
    pub(crate) fn spawn(&mut self, reference: CoroutineRef, spawn: Spawn) {
        let account = Box::default();
        let (weight, class) = (spawn.weight.get(), spawn.latency);
        let one = Coroutine {
            generation: reference.generation,
            tag: spawn.tag.0,
            state: State::Ready,
            holds: 0,
            arrival: 0,
            ready_since: 0,
            picks_before: 0,
            priority: spawn.priority.0,
            tokens: 0,
            weight,
            class,
            came: self.arrivals,
            luggage: Luggage::new(weight, class),
            account,
        };
        let share = spawn.session;
        let slot = self.settle(reference, one, Luggage::new(share.weight.get(), share.class));
        if self.caps.get(&spawn.tag.session()).is_some_and(Cap::holds) {
            self.at_mut(slot).holds |= bit(HoldReason::Cap);
        }
        self.join_tail(slot, Entry::New);
    }

    /// A reference to give to [`Self::spawn`] where there is no kernel to choose one: the first
    /// free slot.
    pub(crate) fn unused(&self) -> CoroutineRef {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let generation = self.generations.get(slot).copied().flatten().map_or(0, |last| last + 1);
        CoroutineRef::new(slot as u32, generation)
    }

    fn settle(&mut self, reference: CoroutineRef, one: Coroutine, of_session: Luggage) -> usize {
        let slot = reference.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
            self.generations.resize(slot + 1, None);
        }
        assert!(self.slots[slot].is_none(), "a slot in use was given out again: {reference:?}");
        assert!(
            self.generations[slot] < Some(reference.generation),
            "a generation was given out again: {reference:?}"
        );
        self.reused += u64::from(self.generations[slot].is_some());
        self.generations[slot] = Some(reference.generation);
        let (luggage, session) = (one.luggage, (one.tag >> 32) as u32);
        self.slots[slot] = Some(one);
        if let Some(fair) = &mut self.fair {
            fair.adopt(slot, session, luggage, of_session);
        }
        slot
    }

    /// To the tail; or among the held, with that place.
    fn join_tail(&mut self, slot: usize, entry: Entry) {
        let (arrivals, picks) = (self.arrivals, self.picks);
        self.arrivals += 1;
        let one = self.at_mut(slot);
        (one.arrival, one.picks_before) = (arrivals, picks);
        self.join_place(slot, entry);
    }

    /// Back to the place its arrival gives it; or among the held.
    fn join_place(&mut self, slot: usize, entry: Entry) {
        let clock = self.clock;
        let one = self.at_mut(slot);
        if one.holds != 0 {
            // One that slept in debt keeps it, and stops paying it off.
            self.set_aside(slot);
            return;
        }
        one.state = State::Ready;
        one.ready_since = clock;
        let is_demoted = self.is_demoted(self.at(slot));
        if let Some(fair) = &mut self.fair {
            if is_demoted {
                fair.set_aside(slot);
            } else {
                fair.enter(slot, entry);
            }
        }
    }

    fn book_wait(&mut self, slot: usize) {
        let clock = self.clock;
        let one = self.at_mut(slot);
        let waited = clock.wrapping_sub(one.ready_since);
        one.account.wait_total += waited;
        one.account.wait_longest = one.account.wait_longest.max(waited);
    }

    pub(crate) fn dispatch(&mut self) -> Decision {
        assert!(!self.in_slice, "the driver opened a second slice");
        self.cap_mark = self.clock;
        if self.is_over() {
            return Decision::Over;
        }
        if self.boundary && self.current.is_some() && self.prefers_another() {
            self.displace();
        }
        self.boundary = false;
        let (mut picked, mut switched) = (false, false);
        if self.current.is_none() {
            let Some((slot, quantum)) = self.pick() else { return Decision::Idle };
            picked = true;
            switched = self.make_current(slot, quantum);
            if self.is_over() {
                let clock = self.clock;
                if let Some(fair) = &mut self.fair
                    && !self.in_background
                {
                    fair.charge(Cycles(0), clock);
                }
                if self.charge_cap(clock) {
                    self.set_current_back();
                }
                return Decision::Over;
            }
        } else if let Some(fair) = &mut self.fair {
            fair.mark(self.clock);
        }
        let (slot, quantum) = self.current.expect("there is one now");
        if let Span::Picks(left) = &mut self.span {
            *left -= 1;
        }
        self.in_slice = true;
        self.steps += 1;
        let (bound, limit) = self.limit(quantum);
        Decision::Run { reference: self.reference(slot), bound, limit, picked, switched }
    }

    /// The least of what limits a slice that begins now.
    fn limit(&self, quantum: u64) -> (u64, Limit) {
        let wave = if let Span::Until(end) = self.span {
            end.0.saturating_sub(self.clock)
        } else {
            u64::MAX
        };
        let frame = self.frame_end().saturating_sub(self.clock);
        let mut limits = [
            (self.cap_left(), Limit::Cap),
            (frame, Limit::FrameEnd),
            (quantum, Limit::Quantum),
            (wave, Limit::WaveEnd),
        ];
        if self.fault == Some(Fault::LimitsInOtherOrder) {
            limits.reverse();
        }
        // `min_by_key` gives the first of equals, which is the rule.
        limits.into_iter().min_by_key(|(cycles, _)| *cycles).expect("four")
    }

    /// Cycles left of the open slice when it has used `used`: what was booked meanwhile has moved
    /// the clock.
    pub(crate) fn left(&self, used: u64) -> u64 {
        let (_, quantum) = self.current.expect("a slice has a coroutine");
        self.limit(quantum).0.saturating_sub(used)
    }

    /// The preemption test at a boundary: by rank alone, never by age.
    fn prefers_another(&self) -> bool {
        let Some((slot, _)) = self.current else { return false };
        if self.in_background {
            return self.competing().next().is_some();
        }
        if let Some(fair) = &self.fair {
            return fair.prefers_another();
        }
        // The pick spent a token; what counts is what the coroutine was picked with.
        let tokens = matches!(
            self.settings.policy,
            Policy::Priority { rule: PriorityRule::TokenWeighted, .. }
        );
        let rank = if tokens { u64::from(self.picked_tokens) } else { self.rank(self.at(slot)) };
        self.choice().is_some_and(|other| self.rank(self.at(other)) > rank)
    }

    /// The current coroutine goes back to its place.
    fn displace(&mut self) {
        let Some(slot) = self.leave_lane() else { return };
        let clock = self.clock;
        let one = self.at_mut(slot);
        one.account.preemptions += 1;
        (one.state, one.ready_since) = (State::Ready, clock);
        if let Some(fair) = &mut self.fair
            && !self.in_background
        {
            fair.requeue();
        }
    }

    /// Who is next and for how long.
    fn pick(&mut self) -> Option<(usize, u64)> {
        let preferred = self.preferred.take();
        let clock = self.clock;
        if let Some(fair) = &mut self.fair {
            fair.mark(clock);
        }
        if let Some((reference, inherits)) = preferred
            && let Ok(slot) = self.find(reference)
            && self.at(slot).state == State::Ready
            && !self.is_demoted(self.at(slot))
        {
            let own = self.quantum();
            let rest = if let Inheritance::Rest(rest) = inherits { rest } else { own };
            if let Some(fair) = &mut self.fair {
                if fair.hand_to(slot, Cycles(rest)) {
                    self.handoffs += 1;
                    return Some((slot, fair.bound().0));
                }
            } else if self
                .choice()
                .is_some_and(|other| self.rank(self.at(other)) <= self.rank(self.at(slot)))
            {
                self.handoffs += 1;
                return Some((slot, rest));
            }
        }
        let choice = match &mut self.fair {
            Some(fair) => fair.pick().map(|slot| (slot, fair.bound().0)),
            None => self.choice().map(|slot| (slot, self.quantum())),
        };
        choice.or_else(|| {
            let oldest = self.ready().min_by_key(|(_, one)| one.arrival)?;
            Some((oldest.0, self.quantum()))
        })
    }

    fn make_current(&mut self, slot: usize, quantum: u64) -> bool {
        self.book_wait(slot);
        self.picks += 1;
        self.book(SchedulerOperation::Pick);
        let reference = self.reference(slot);
        let switched = self.last_ran != Some(reference);
        if switched && self.fault != Some(Fault::SwitchIsFree) {
            self.book(SchedulerOperation::Switch);
        }
        self.last_ran = Some(reference);
        self.current = Some((slot, quantum));
        self.in_background = self.is_demoted(self.at(slot));
        let keeps_token = self.fault == Some(Fault::TokensAreKept);
        let one = self.at_mut(slot);
        one.state = State::Running;
        one.account.switches += u64::from(switched);
        let tokens = one.tokens;
        if !keeps_token {
            one.tokens = one.tokens.saturating_sub(1);
        }
        self.picked_tokens = tokens;
        if !self.in_background {
            self.holders_in_a_row = if tokens > 0 { self.holders_in_a_row + 1 } else { 0 };
        }
        switched
    }

    pub(crate) fn stop(&mut self, used: u64, outcome: Outcome) -> Left {
        assert!(self.in_slice, "the driver stopped a slice that is not open");
        let (slot, quantum) = self.current.expect("a slice has a coroutine");
        let is_demoted_now = self.charge_cap(self.clock + used);
        self.in_slice = false;
        self.clock += used;
        self.charged += used;
        self.at_mut(slot).account.runtime += used;
        let mut rest = quantum.saturating_sub(used);
        if let Some(fair) = &mut self.fair
            && !self.in_background
        {
            fair.charge(Cycles(used), self.clock);
            // A change of weight may round the fair queue's bound up: it grants no cycle more.
            rest = rest.min(fair.bound().0);
        }
        self.current = Some((slot, rest));
        let frame = self.frame;
        match outcome {
            Outcome::OutOfCycles if rest > 0 && !is_demoted_now => self.keep(slot),
            Outcome::OutOfCycles => {
                self.at_mut(slot).account.preemptions += 1;
                self.requeue(slot, false)
            }
            Outcome::Yielded => self.requeue(slot, true),
            Outcome::Slept(until) if until.0 <= frame => self.requeue(slot, true),
            Outcome::Slept(until) => {
                self.at_mut(slot).account.sleeps += 1;
                self.wait(slot, State::Sleeping { until: until.0 })
            }
            Outcome::Blocked(reason) => {
                self.at_mut(slot).account.blocks[reason as usize] += 1;
                self.wait(slot, State::Blocked(reason))
            }
            Outcome::Finished => self.end(slot, State::Finished),
            Outcome::Faulted => self.end(slot, State::Faulted),
        }
    }

    /// The current coroutine leaves the lane: what it leaves of its quantum goes to the one it
    /// preferred. Nothing left is no handoff.
    fn leave_lane(&mut self) -> Option<usize> {
        let (slot, rest) = self.current.take()?;
        if let Some((_, inherits @ Inheritance::Pending)) = &mut self.preferred {
            *inherits = Inheritance::Rest(rest);
            if rest == 0 {
                self.preferred = None;
            }
        }
        Some(slot)
    }

    fn keep(&mut self, slot: usize) -> Left {
        if self.at(slot).holds == 0 {
            return Left::Kept;
        }
        self.leave_lane();
        self.set_aside(slot);
        Left::Held
    }

    /// Among the held, with its place kept.
    fn set_aside(&mut self, slot: usize) {
        if let Some(fair) = &mut self.fair {
            fair.set_aside(slot);
        }
        let one = self.at_mut(slot);
        one.state = State::Held(one.holds);
    }

    fn requeue(&mut self, slot: usize, yielded: bool) -> Left {
        self.leave_lane();
        let is_aside = self.at(slot).holds != 0 || self.is_demoted(self.at(slot));
        if let Some(fair) = &mut self.fair
            && !self.in_background
        {
            if yielded {
                fair.yield_running()
            } else {
                fair.requeue()
            }
            if is_aside {
                fair.set_aside(slot);
            }
        }
        let (arrivals, picks, clock) = (self.arrivals, self.picks, self.clock);
        self.arrivals += 1;
        let one = self.at_mut(slot);
        (one.arrival, one.picks_before, one.ready_since) = (arrivals, picks, clock);
        one.state = if one.holds != 0 { State::Held(one.holds) } else { State::Ready };
        if one.holds != 0 { Left::Held } else { Left::Requeued }
    }

    fn wait(&mut self, slot: usize, state: State) -> Left {
        self.leave_lane();
        if let Some(fair) = &mut self.fair
            && !self.in_background
        {
            fair.rest(slot);
        }
        // Sleepers wake by arrival, so falling asleep is one; beginning to wait is none.
        if let State::Sleeping { .. } = state {
            self.at_mut(slot).arrival = self.arrivals;
            self.arrivals += 1;
        }
        self.at_mut(slot).state = state;
        Left::Waiting
    }

    fn end(&mut self, slot: usize, state: State) -> Left {
        if self.current.is_some_and(|(current, _)| current == slot) {
            self.leave_lane();
        }
        if let Some(fair) = &mut self.fair {
            self.slots[slot].as_mut().expect("a live slot").luggage = fair.leave(slot, true);
        }
        self.at_mut(slot).state = state;
        Left::Ended
    }
}

/// Caps.
impl ModelLane {
    pub(crate) fn set_cap(&mut self, session: u32, settings: CapSettings) {
        self.caps.insert(session, Cap { settings, used: 0, spent: false, demoted: 0 });
    }

    pub(crate) fn cap(&self, session: u32) -> Option<&Cap> {
        self.caps.get(&session)
    }

    fn is_demoted(&self, one: &Coroutine) -> bool {
        self.fault != Some(Fault::DemotedCompete)
            && self.caps.get(&((one.tag >> 32) as u32)).is_some_and(Cap::demotes)
    }

    /// The ready that the policy orders.
    fn competing(&self) -> impl Iterator<Item = (usize, &Coroutine)> {
        self.ready().filter(|(_, one)| !self.is_demoted(one))
    }

    fn cap_left(&self) -> u64 {
        let Some((slot, _)) = self.current else { return u64::MAX };
        match self.caps.get(&((self.at(slot).tag >> 32) as u32)) {
            Some(cap) if !cap.demotes() => {
                let used = cap.used + self.clock.saturating_sub(self.cap_mark);
                cap.settings.budget.0.saturating_sub(used)
            }
            _ => u64::MAX,
        }
    }

    /// Charges the current coroutine's session up to `until`. Whether that demoted it.
    fn charge_cap(&mut self, until: u64) -> bool {
        let Some((slot, _)) = self.current else { return false };
        let session = (self.at(slot).tag >> 32) as u32;
        let (mark, frame) = (self.cap_mark, self.frame);
        let pays = self.fault == Some(Fault::DemotedPay);
        let Some(cap) = self.caps.get_mut(&session) else { return false };
        self.cap_mark = until;
        if cap.demotes() {
            cap.demoted += until.saturating_sub(mark);
            if pays {
                cap.used += until.saturating_sub(mark);
            }
            return false;
        }
        cap.used += until.saturating_sub(mark);
        if cap.spent || cap.is_open() {
            return false;
        }
        cap.spent = true;
        let (used, until, cap) = (cap.used, cap.open_at(frame), *cap);
        self.cap_news.push(match cap.settings.overrun {
            CapOverrun::Throttle => CapNews::Throttled { session, used, until },
            CapOverrun::Demote => CapNews::Demoted { session, used, until },
            CapOverrun::End => CapNews::Ended { session, used },
        });
        for member in self.session_slots(session) {
            let state = self.at(member).state;
            if state.has_ended() {
                continue;
            }
            if cap.holds() {
                let reference = self.reference(member);
                self.hold(reference, HoldReason::Cap).expect("a live coroutine");
            } else if state == State::Ready && self.is_demoted(self.at(member)) {
                self.book_wait(member);
                self.at_mut(member).ready_since = self.clock;
                if let Some(fair) = &mut self.fair {
                    fair.set_aside(member);
                }
            }
        }
        cap.demotes()
    }

    /// The current coroutine, whose pick used up its session's cap, goes back to its place.
    fn set_current_back(&mut self) {
        let Some((slot, _)) = self.current else { return };
        let was_fair = !self.in_background;
        self.leave_lane();
        let clock = self.clock;
        let one = self.at_mut(slot);
        (one.state, one.ready_since) = (State::Ready, clock);
        if let Some(fair) = &mut self.fair
            && was_fair
        {
            fair.requeue();
            fair.set_aside(slot);
        }
    }

    fn refill_caps(&mut self, from: u64, to: u64) {
        for session in self.caps.keys().copied().collect::<Vec<u32>>() {
            let forgives = self.fault == Some(Fault::CapsForgiveOverruns);
            let cap = self.caps.get_mut(&session).expect("a cap");
            let refills = to / cap.settings.period_frames - from / cap.settings.period_frames;
            cap.used = cap.used.saturating_sub(refills * cap.settings.budget.0);
            if forgives && refills > 0 {
                cap.used = 0;
            }
            if refills == 0 || !cap.spent || !cap.is_open() {
                continue;
            }
            let (was_demoted, used) = (cap.demotes(), cap.used);
            cap.spent = false;
            let members = self.session_slots(session);
            if members.is_empty() {
                continue;
            }
            self.book(SchedulerOperation::Refill);
            self.cap_news.push(CapNews::Refilled { session, used });
            for member in members {
                let state = self.at(member).state;
                if !was_demoted {
                    let one = self.at_mut(member);
                    one.holds &= !bit(HoldReason::Cap);
                    let holds = one.holds;
                    if let State::Held(_) = state {
                        one.state = State::Held(holds);
                        if holds == 0 {
                            self.join_place(member, Entry::Moved);
                        }
                    }
                } else if state == State::Running {
                    self.leave_lane();
                    self.join_place(member, Entry::Moved);
                } else if state == State::Ready {
                    self.book_wait(member);
                    self.join_place(member, Entry::Moved);
                }
            }
        }
    }
}

impl Cap {
    /// What a pick of another coroutine costs.
    const RESERVE: u64 = SCHEDULER_COSTS_V1.pick.0 + SCHEDULER_COSTS_V1.switch.0;

    fn is_open(&self) -> bool {
        self.used + Self::RESERVE < self.settings.budget.0
    }

    fn holds(&self) -> bool {
        self.spent && self.settings.overrun != CapOverrun::Demote
    }

    fn demotes(&self) -> bool {
        self.spent && self.settings.overrun == CapOverrun::Demote
    }

    /// The first frame whose refill opens it.
    fn open_at(&self, frame: u64) -> u64 {
        let mut cap = *self;
        let mut at = frame / self.settings.period_frames;
        while !cap.is_open() {
            at += 1;
            cap.used = cap.used.saturating_sub(self.settings.budget.0);
        }
        at * self.settings.period_frames
    }
}

/// What comes from outside a slice.
impl ModelLane {
    pub(crate) fn wake(
        &mut self,
        reference: CoroutineRef,
        source: WakeSource,
    ) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        let State::Blocked(reason) = self.at(slot).state else {
            return Err(Refused::NotWaiting(self.at(slot).state));
        };
        let ends = match source {
            WakeSource::Channel => !matches!(
                reason,
                BlockReason::Join
                    | BlockReason::Input
                    | BlockReason::OtherLane
                    | BlockReason::Park
                    | BlockReason::Session
            ),
            WakeSource::Join => reason == BlockReason::Join,
            WakeSource::Input => reason == BlockReason::Input,
            WakeSource::Answer => reason == BlockReason::OtherLane,
            WakeSource::Unpark => reason == BlockReason::Park,
            WakeSource::SessionEnd => true,
            WakeSource::Timer | WakeSource::Release => false,
        };
        if !ends {
            return Err(Refused::WrongSource(reason, source));
        }
        self.book(SchedulerOperation::Wake);
        self.wakes[source as usize] += 1;
        if matches!(source, WakeSource::Channel | WakeSource::Join) {
            let one = self.at_mut(slot);
            one.tokens = one.tokens.saturating_add(1);
        }
        self.join_tail(slot, Entry::Woken);
        Ok(())
    }

    fn is_in_slice(&self, slot: usize) -> bool {
        self.in_slice && self.current.is_some_and(|(current, _)| current == slot)
    }

    pub(crate) fn hold(
        &mut self,
        reference: CoroutineRef,
        reason: HoldReason,
    ) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        let state = self.at(slot).state;
        if state.has_ended() {
            return Err(Refused::Ended(state));
        }
        self.at_mut(slot).holds |= bit(reason);
        match state {
            State::Ready => {
                self.book_wait(slot);
                self.set_aside(slot);
            }
            State::Running if !self.in_slice => {
                self.leave_lane();
                self.set_aside(slot);
            }
            State::Held(_) => self.at_mut(slot).state = State::Held(self.at(slot).holds),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn release(
        &mut self,
        reference: CoroutineRef,
        reason: HoldReason,
    ) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        let holds = self.at(slot).holds;
        if holds & bit(reason) == 0 {
            return Err(Refused::NotHeld(reason, holds));
        }
        let holds = holds & !bit(reason);
        self.at_mut(slot).holds = holds;
        let State::Held(_) = self.at(slot).state else { return Ok(()) };
        self.at_mut(slot).state = State::Held(holds);
        if holds == 0 {
            self.book(SchedulerOperation::Wake);
            self.wakes[WakeSource::Release as usize] += 1;
            if self.fault == Some(Fault::HoldLosesThePlace) {
                self.join_tail(slot, Entry::Moved);
            } else {
                self.join_place(slot, Entry::Moved);
            }
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, reference: CoroutineRef) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        let state = self.at(slot).state;
        if state.has_ended() {
            return Err(Refused::Ended(state));
        }
        if self.is_in_slice(slot) {
            return Err(Refused::InSlice(reference));
        }
        if state == State::Ready {
            self.book_wait(slot);
        }
        self.end(slot, State::Canceled);
        Ok(())
    }

    pub(crate) fn reap(&mut self, reference: CoroutineRef) -> Result<Account, Refused> {
        let slot = self.find(reference)?;
        let state = self.at(slot).state;
        if !state.has_ended() {
            return Err(Refused::NotEnded(state));
        }
        Ok(*self.forget(slot).account)
    }

    fn forget(&mut self, slot: usize) -> Coroutine {
        if self.preferred.is_some_and(|(reference, _)| reference.slot as usize == slot) {
            self.preferred = None;
        }
        self.slots[slot].take().expect("a live slot")
    }

    /// The slots of a session in the order they came to the lane.
    fn session_slots(&self, session: u32) -> Vec<usize> {
        let mut slots: Vec<(u64, usize)> = self
            .live()
            .filter(|(_, one)| (one.tag >> 32) as u32 == session)
            .map(|(slot, one)| (one.came, slot))
            .collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, slot)| slot).collect()
    }

    pub(crate) fn end_session(&mut self, session: u32) -> Result<Vec<(u64, Account)>, Refused> {
        let slots = self.session_slots(session);
        if let Some(&slot) = slots.iter().find(|&&slot| self.is_in_slice(slot)) {
            return Err(Refused::InSlice(self.reference(slot)));
        }
        let mut ended = Vec::new();
        for slot in slots {
            if self.at(slot).state == State::Ready {
                self.book_wait(slot);
            }
            if !self.at(slot).state.has_ended() {
                self.end(slot, State::Canceled);
            }
            let one = self.forget(slot);
            ended.push((one.tag, *one.account));
        }
        Ok(ended)
    }

    pub(crate) fn prefer(&mut self, reference: CoroutineRef) -> Result<(), Refused> {
        let inherits = if self.current.is_some() { Inheritance::Pending } else { Inheritance::Own };
        self.prefer_for(reference, inherits)
    }

    fn prefer_for(
        &mut self,
        reference: CoroutineRef,
        inherits: Inheritance,
    ) -> Result<(), Refused> {
        if !self.settings.handoff {
            return Err(Refused::HandoffOff);
        }
        let slot = self.find(reference)?;
        if self.at(slot).state != State::Ready {
            return Err(Refused::NotReady(self.at(slot).state));
        }
        if let Some((taken, _)) = self.preferred {
            return Err(Refused::SlotTaken(taken));
        }
        self.preferred = Some((reference, inherits));
        Ok(())
    }

    pub(crate) fn set_priority(
        &mut self,
        reference: CoroutineRef,
        priority: u8,
    ) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        if self.at(slot).state.has_ended() {
            return Err(Refused::Ended(self.at(slot).state));
        }
        self.at_mut(slot).priority = priority;
        Ok(())
    }

    pub(crate) fn set_share(
        &mut self,
        reference: CoroutineRef,
        weight: u16,
        class: LatencyClass,
    ) -> Result<(), Refused> {
        let slot = self.find(reference)?;
        if self.at(slot).state.has_ended() {
            return Err(Refused::Ended(self.at(slot).state));
        }
        let one = self.at_mut(slot);
        (one.weight, one.class) = (weight, class);
        one.luggage = one.luggage.changed(weight, class);
        if let Some(fair) = &mut self.fair {
            fair.set_share(slot, weight, class);
        }
        Ok(())
    }

    /// Another policy from now on: arrivals stay, the current coroutine goes back to its place, lag
    /// is forgotten.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        if let Some(slot) = self.leave_lane() {
            let clock = self.clock;
            let one = self.at_mut(slot);
            (one.state, one.ready_since) = (State::Ready, clock);
        }
        self.preferred = None;
        self.holders_in_a_row = 0;
        self.settings.policy = policy;
        self.fair = Self::fair_for(policy, self.fault);
        for one in self.slots.iter_mut().flatten() {
            one.luggage = Luggage::new(one.weight, one.class);
        }
        let Some(mut fair) = self.fair.take() else { return };
        for (slot, one) in
            self.slots.iter().enumerate().filter_map(|(slot, one)| Some((slot, one.as_ref()?)))
        {
            if !one.state.has_ended() {
                let neutral = Luggage::new(1024, LatencyClass::Normal);
                fair.adopt(slot, (one.tag >> 32) as u32, one.luggage, neutral);
            }
        }
        for reference in self.ready_by_arrival() {
            let slot = reference.slot as usize;
            if !self.is_demoted(self.at(slot)) {
                fair.enter(slot, Entry::New);
            }
        }
        self.fair = Some(fair);
    }
}

/// Moving.
impl ModelLane {
    pub(crate) fn depart(&mut self, reference: CoroutineRef) -> Result<Traveller, Refused> {
        let slot = self.find(reference)?;
        if self.is_in_slice(slot) {
            return Err(Refused::InSlice(reference));
        }
        if self.at(slot).state == State::Running {
            self.leave_lane();
            let clock = self.clock;
            let one = self.at_mut(slot);
            (one.state, one.ready_since) = (State::Ready, clock);
        }
        if let Some(fair) = &mut self.fair
            && !self.slots[slot].as_ref().is_some_and(|one| one.state.has_ended())
        {
            self.slots[slot].as_mut().expect("a live slot").luggage = fair.leave(slot, false);
        }
        let clock = self.clock;
        let coroutine = self.forget(slot);
        Ok(Traveller { waited: clock.wrapping_sub(coroutine.ready_since), coroutine })
    }

    pub(crate) fn receive(&mut self, reference: CoroutineRef, traveller: Traveller, stolen: bool) {
        self.book(SchedulerOperation::Migrate);
        let Traveller { mut coroutine, waited } = traveller;
        coroutine.generation = reference.generation;
        coroutine.account.migrations += 1;
        coroutine.account.steals += u32::from(stolen);
        if self.fair.is_none() {
            coroutine.luggage = Luggage::new(coroutine.weight, coroutine.class);
        }
        coroutine.arrival = self.arrivals;
        coroutine.came = self.arrivals;
        self.arrivals += 1;
        // Age is counted in picks of the lane, so it begins anew.
        coroutine.picks_before = self.picks;
        coroutine.ready_since = self.clock.wrapping_sub(waited);
        let (state, ended) = (coroutine.state, coroutine.state.has_ended());
        let slot = reference.slot as usize;
        let neutral = Luggage::new(1024, LatencyClass::Normal);
        if ended && let Some(fair) = self.fair.take() {
            self.settle(reference, coroutine, neutral);
            self.fair = Some(fair);
        } else {
            self.settle(reference, coroutine, neutral);
        }
        if state == State::Ready
            && let Some(fair) = &mut self.fair
        {
            fair.enter(slot, Entry::Moved);
        }
    }

    /// The session's coroutines in order of their arrivals.
    pub(crate) fn movers(&self, session: u32) -> Result<Vec<CoroutineRef>, Refused> {
        let mut slots = self.session_slots(session);
        if slots.is_empty() {
            return Err(Refused::NoSession);
        }
        if let Some(&slot) = slots.iter().find(|&&slot| self.is_in_slice(slot)) {
            return Err(Refused::InSlice(self.reference(slot)));
        }
        slots.sort_by_key(|&slot| self.at(slot).arrival);
        Ok(slots.into_iter().map(|slot| self.reference(slot)).collect())
    }

    pub(crate) fn has_work(&self) -> bool {
        self.current.is_some() || self.ready().next().is_some()
    }

    /// The session a thief may take in a round: of at most eight sessions the first that has a
    /// ready coroutine among its first eight, is not the current coroutine's and may leave; and
    /// only if work stays.
    pub(crate) fn offer(&self, round: u64, banned: impl Fn(u32) -> bool) -> Option<u32> {
        let runnable = self.ready().count() + usize::from(self.current.is_some());
        if runnable < 2 {
            return None;
        }
        let mut sessions: Vec<u32> = self.live().map(|(_, one)| (one.tag >> 32) as u32).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let first = (round % sessions.len() as u64) as usize;
        let own = self.current.map(|(slot, _)| (self.at(slot).tag >> 32) as u32);
        let mut candidates: Vec<u32> = (0..sessions.len().min(8))
            .map(|step| sessions[(first + step) % sessions.len()])
            .collect();
        candidates.retain(|&session| {
            let ready = self
                .session_slots(session)
                .into_iter()
                .take(8)
                .any(|slot| self.at(slot).state == State::Ready);
            Some(session) != own && ready
        });
        let stays = self.current.is_some() || candidates.len() > 1;
        candidates.into_iter().find(|&session| stays && !banned(session))
    }
}

/// What can be asked.
impl ModelLane {
    pub(crate) fn state(&self, reference: CoroutineRef) -> Result<State, Refused> {
        self.find(reference).map(|slot| self.at(slot).state)
    }

    pub(crate) fn account(&self, reference: CoroutineRef) -> Result<Account, Refused> {
        self.find(reference).map(|slot| *self.at(slot).account)
    }

    pub(crate) fn tokens(&self, reference: CoroutineRef) -> Result<u8, Refused> {
        self.find(reference).map(|slot| self.at(slot).tokens)
    }

    pub(crate) fn tag(&self, reference: CoroutineRef) -> Result<u64, Refused> {
        self.find(reference).map(|slot| self.at(slot).tag)
    }

    pub(crate) fn current(&self) -> Option<CoroutineRef> {
        self.current.map(|(slot, _)| self.reference(slot))
    }

    pub(crate) fn fair(&self) -> Option<&Shares> {
        self.fair.as_ref()
    }

    /// What a session takes along, before its coroutines depart.
    pub(crate) fn depart_session(&mut self, session: u32) -> Option<Luggage> {
        self.fair.as_mut().and_then(|fair| fair.depart(session))
    }

    /// A session comes with this.
    pub(crate) fn receive_session(&mut self, session: u32, luggage: Option<Luggage>) {
        if let (Some(fair), Some(luggage)) = (&mut self.fair, luggage) {
            fair.receive(session, luggage);
        }
    }

    pub(crate) fn set_session_share(
        &mut self,
        session: u32,
        weight: u16,
        class: LatencyClass,
    ) -> Result<(), Refused> {
        let is_set =
            self.fair.as_mut().is_some_and(|fair| fair.set_session_share(session, weight, class));
        if is_set { Ok(()) } else { Err(Refused::NoSession) }
    }

    pub(crate) fn references(&self) -> Vec<CoroutineRef> {
        self.live().map(|(slot, _)| self.reference(slot)).collect()
    }

    /// Ready, running, sleeping, blocked, held, ended.
    pub(crate) fn population(&self) -> [u32; 6] {
        let mut counts = [0; 6];
        for (_, one) in self.live() {
            counts[match one.state {
                State::Ready => 0,
                State::Running => 1,
                State::Sleeping { .. } => 2,
                State::Blocked(_) => 3,
                State::Held(_) => 4,
                State::Finished | State::Faulted | State::Canceled => 5,
            }] += 1;
        }
        counts
    }

    /// The ready-set digest, by the prose of the kernel's documentation: the current coroutine
    /// belongs to the set.
    pub(crate) fn ready_digest(&self) -> u64 {
        const MIX: u64 = 0xd6e8_feb8_6659_fd93;
        let runnable =
            self.live().filter(|(_, one)| matches!(one.state, State::Ready | State::Running));
        runnable.fold(0, |sum: u64, (_, one)| {
            let mut x =
                one.tag.wrapping_add(u64::from(one.generation).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for _ in 0..2 {
                x = (x ^ (x >> 32)).wrapping_mul(MIX);
            }
            sum.wrapping_add(x ^ (x >> 32))
        })
    }
}
