//! EEVDF by scanning: the fair rules of cpu-authority D.5 and D.6 over a plain vector, in 128-bit
//! integers.
//!
//! No tree, no sum kept up, no origin, no wrapping: virtual time is recomputed from every
//! competitor whenever it is asked for. The unit of virtual time is 1/1024 cycle at the neutral
//! weight, as the kernel's fair queue documents it; the quotient of a charge moves virtual time and
//! the remainder is kept. [`Shares`] is what a lane has: one such competition,
//! or one of sessions and one more in each session. Elsewhere: which operation of a lane is which
//! event here (`lane`).

use super::Fault;
use std::collections::BTreeMap;
use wavelock_abi::{Cycles, LatencyClass, MAX_GAP};

/// Units of virtual time one cycle adds at weight 1.
const UNITS: i128 = 1 << 20;

/// Sleepers that one pick takes out at most.
const REMOVALS: usize = 8;

/// Where a competitor is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    /// There is none in this slot.
    Nowhere,
    /// Not competing: lag kept, and what is left of a request it was moved away from.
    Rest { lag: i128, left: Option<i128> },
    /// Waiting for the lane.
    Queue,
    /// Asleep in debt.
    Delayed,
    /// On the lane.
    Lane,
}

#[derive(Clone, Copy, Debug)]
struct Competitor {
    at: At,
    weight: i128,
    class: LatencyClass,
    remainder: i128,
    v: i128,
    deadline: i128,
    arrival: u64,
}

const ABSENT: Competitor = Competitor {
    at: At::Nowhere,
    weight: 1,
    class: LatencyClass::Normal,
    remainder: 0,
    v: 0,
    deadline: 0,
    arrival: 0,
};

/// What a competitor takes to another lane, or over a switch of policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Luggage {
    weight: i128,
    class: LatencyClass,
    remainder: i128,
    lag: i128,
    left: Option<i128>,
}

impl Luggage {
    /// Nothing received and nothing owed.
    pub(crate) fn new(weight: u16, class: LatencyClass) -> Self {
        Self { weight: i128::from(weight), class, remainder: 0, lag: 0, left: None }
    }

    /// With another weight and class: what is owed times the weight stays, and a new class begins a
    /// new request.
    pub(crate) fn changed(self, weight: u16, class: LatencyClass) -> Self {
        let mut alone = Fair::new(Cycles(1), Cycles(1), None);
        alone.adopt(0, self);
        alone.set_share(0, weight, class);
        alone.leave(0)
    }
}

/// How a competitor enters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Entry {
    /// For the first time: without lag, half a request.
    New,
    /// After a wait.
    Woken,
    /// After a move or a hold: the request continues.
    Moved,
}

/// Competitors, by slot.
#[derive(Clone, Debug)]
pub(crate) struct Fair {
    base: Cycles,
    least: Cycles,
    fault: Option<Fault>,
    all: Vec<Competitor>,
    /// Virtual time up to which the one on the lane is protected.
    protected: i128,
    arrivals: u64,
}

impl Fair {
    pub(crate) fn new(base: Cycles, least: Cycles, fault: Option<Fault>) -> Self {
        Self { base, least, fault, all: Vec::new(), protected: 0, arrivals: 0 }
    }

    fn competing(&self) -> impl Iterator<Item = &Competitor> {
        self.all.iter().filter(|one| matches!(one.at, At::Queue | At::Delayed | At::Lane))
    }

    fn on_lane(&self) -> Option<usize> {
        self.all.iter().position(|one| one.at == At::Lane)
    }

    /// The average virtual runtime, weighted, rounded down. Any number if no entity competes.
    fn now(&self) -> i128 {
        let (mut sum, mut weight) = (0, 0);
        for one in self.competing() {
            sum += one.weight * one.v;
            weight += one.weight;
        }
        if weight == 0 { 0 } else { sum.div_euclid(weight) }
    }

    fn slice(&self, class: LatencyClass) -> i128 {
        i128::from(class.request(self.base).0.max(self.least.0))
    }

    fn request(&self, slot: usize) -> i128 {
        self.slice(self.all[slot].class) * UNITS / self.all[slot].weight
    }

    fn members(&self) -> usize {
        self.all.iter().filter(|one| one.at != At::Nowhere).count()
    }

    fn least_slice(&self) -> i128 {
        self.competing().map(|one| self.slice(one.class)).min().unwrap_or(i128::from(self.base.0))
    }

    fn queue(&mut self, slot: usize, at: At) {
        self.all[slot].at = at;
        self.all[slot].arrival = self.arrivals;
        self.arrivals += 1;
    }

    pub(crate) fn adopt(&mut self, slot: usize, luggage: Luggage) {
        if self.all.len() <= slot {
            self.all.resize(slot + 1, ABSENT);
        }
        assert_eq!(self.all[slot].at, At::Nowhere, "two competitors in one slot");
        let Luggage { weight, class, remainder, lag, left } = luggage;
        self.all[slot] = Competitor {
            at: At::Rest { lag, left },
            weight,
            class,
            remainder,
            v: 0,
            deadline: 0,
            arrival: 0,
        };
    }

    /// Takes a competitor away for good, with what it carries.
    pub(crate) fn leave(&mut self, slot: usize) -> Luggage {
        self.set_aside(slot);
        let one = self.all[slot];
        let At::Rest { lag, left } = one.at else { panic!("it was set aside") };
        self.all[slot].at = At::Nowhere;
        Luggage { weight: one.weight, class: one.class, remainder: one.remainder, lag, left }
    }

    pub(crate) fn enter(&mut self, slot: usize, entry: Entry) {
        let now = self.now();
        let (mut lag, mut left) = match self.all[slot].at {
            At::Rest { lag, left } => (lag, left),
            // Still in debt: it continues as if it had not slept. Else what it gained asleep is
            // clipped.
            At::Delayed if now <= self.all[slot].v => return self.queue(slot, At::Queue),
            At::Delayed => (0, None),
            at => panic!("entered while {at:?}"),
        };
        self.all[slot].at = At::Nowhere;
        let (now, others): (i128, i128) =
            (self.now(), self.competing().map(|one| one.weight).sum());
        if entry == Entry::New || self.fault == Some(Fault::LagIsForgotten) {
            lag = 0;
        }
        if entry != Entry::Moved {
            left = None;
        }
        let weight = self.all[slot].weight;
        let v = if others == 0 { now } else { now - (lag * (others + weight)).div_euclid(others) };
        let request = if entry == Entry::New {
            self.request(slot) / 2
        } else {
            left.unwrap_or(self.request(slot))
        };
        (self.all[slot].v, self.all[slot].deadline) = (v, v + request);
        self.queue(slot, At::Queue);
    }

    fn kept_lag(&self, slot: usize) -> i128 {
        let largest = self.competing().map(|one| self.slice(one.class)).max().expect("it competes");
        let limit = (largest + i128::from(MAX_GAP.0)) * UNITS / self.all[slot].weight;
        (self.now() - self.all[slot].v).clamp(-limit, limit)
    }

    /// Out of the competition without having chosen to: its lag and the rest of its request are
    /// kept. Nothing, if it rests.
    pub(crate) fn set_aside(&mut self, slot: usize) {
        let one = self.all[slot];
        self.all[slot].at = match one.at {
            At::Nowhere => panic!("an absent entity leaves"),
            At::Rest { lag, left } => At::Rest { lag, left },
            At::Delayed => At::Rest { lag: self.kept_lag(slot).min(0), left: None },
            At::Queue | At::Lane => {
                At::Rest { lag: self.kept_lag(slot), left: Some(one.deadline - one.v) }
            }
        };
    }

    /// Out of the competition to wait: only one that owes nothing may leave at once.
    pub(crate) fn rest(&mut self, slot: usize) {
        match self.all[slot].at {
            At::Queue | At::Lane if self.all[slot].v > self.now() => self.queue(slot, At::Delayed),
            At::Queue | At::Lane => {
                self.all[slot].at = At::Rest { lag: self.kept_lag(slot), left: None }
            }
            at => panic!("{at:?} began to wait"),
        }
    }

    fn first(&self, at: At, wanted: impl Fn(&Competitor) -> bool) -> Option<usize> {
        let candidates = self.all.iter().enumerate().filter(|(_, one)| one.at == at && wanted(one));
        candidates
            .min_by_key(|(slot, one)| (one.deadline, one.arrival, *slot))
            .map(|(slot, _)| slot)
    }

    fn before(&self, one: usize, other: usize) -> bool {
        (self.all[one].deadline, self.all[one].arrival)
            < (self.all[other].deadline, self.all[other].arrival)
    }

    /// The earliest deadline among the eligible; sleepers that come first on the way have paid
    /// their debt and leave.
    pub(crate) fn pick(&mut self) -> Option<usize> {
        for _ in 0..REMOVALS {
            let now = self.now();
            let Some(sleeper) = self.first(At::Delayed, |one| one.v <= now) else { break };
            let ready = self.first(At::Queue, |one| one.v <= now);
            if ready.is_some_and(|ready| self.before(ready, sleeper)) {
                break;
            }
            self.all[sleeper].at = At::Rest { lag: 0, left: None };
        }
        let now = self.now();
        let any = self.fault == Some(Fault::EverybodyIsEligible);
        let picked = self.first(At::Queue, |one| one.v <= now || any).or_else(|| {
            let least = self.all.iter().filter(|one| one.at == At::Queue).map(|one| one.v).min()?;
            self.first(At::Queue, |one| one.v == least)
        })?;
        self.all[picked].at = At::Lane;
        self.protect(picked);
        Some(picked)
    }

    fn protect(&mut self, slot: usize) {
        let one = self.all[slot];
        self.protected = one.deadline.min(one.v + self.least_slice() * UNITS / one.weight);
    }

    /// Handoff: it gets the lane for at most `rest`, if it is eligible.
    pub(crate) fn hand_to(&mut self, slot: usize, rest: Cycles) -> bool {
        let one = self.all[slot];
        if one.at != At::Queue || one.v > self.now() || rest == Cycles::ZERO {
            return false;
        }
        self.all[slot].at = At::Lane;
        self.protect(slot);
        let rest = i128::from(rest.0).min(self.slice(one.class)) * UNITS / one.weight;
        self.protected = self.protected.min(one.v + rest.max(1));
        true
    }

    /// Cycles until the one on the lane loses its protection.
    pub(crate) fn bound(&self) -> Cycles {
        let one = self.all[self.on_lane().expect("one is on the lane")];
        let service = (self.protected - one.v) * one.weight - one.remainder;
        if self.protected <= one.v {
            Cycles::ZERO
        } else {
            Cycles(((service + UNITS - 1) / UNITS) as u64)
        }
    }

    pub(crate) fn charge(&mut self, cycles: Cycles) {
        let slot = self.on_lane().expect("one is on the lane");
        let request = self.request(slot);
        let one = &mut self.all[slot];
        let service = i128::from(cycles.0) * UNITS + one.remainder;
        one.v += service / one.weight;
        one.remainder = service % one.weight;
        if one.v >= one.deadline {
            one.deadline = one.v + request;
        }
    }

    /// The slice ended: back into the queue.
    pub(crate) fn requeue(&mut self) {
        let slot = self.on_lane().expect("one is on the lane");
        self.queue(slot, At::Queue);
    }

    /// A yield: an eligible one gives up the rest of its request.
    pub(crate) fn yield_running(&mut self) {
        let slot = self.on_lane().expect("one is on the lane");
        if self.all[slot].v <= self.now() {
            let request = self.request(slot);
            self.all[slot].v = self.all[slot].deadline;
            self.all[slot].deadline += request;
        }
        self.requeue();
    }

    /// Whom a pick would choose if the one on the lane took part.
    fn preferred(&self, slot: usize, protection: bool) -> usize {
        let now = self.now();
        let stays = self.all[slot].v <= now;
        if stays && protection && self.all[slot].v < self.protected {
            return slot;
        }
        let Some(best) = self.first(At::Queue, |one| one.v <= now) else { return slot };
        if stays && self.before(slot, best) { slot } else { best }
    }

    /// Whether the one on the lane loses it at a boundary. An idle one takes it from idle ones
    /// only.
    pub(crate) fn prefers_another(&self) -> bool {
        let slot = self.on_lane().expect("one is on the lane");
        let best = self.preferred(slot, true);
        let idle = |slot: usize| self.all[slot].class == LatencyClass::Idle;
        best != slot && (!idle(best) || idle(slot))
    }

    pub(crate) fn set_share(&mut self, slot: usize, weight: u16, class: LatencyClass) {
        let old = self.all[slot];
        let weight = i128::from(weight);
        let rescale = |units: i128| (units * old.weight).div_euclid(weight);
        let now = self.now();
        let same = class == old.class;
        (self.all[slot].weight, self.all[slot].class) = (weight, class);
        self.all[slot].remainder = old.remainder * weight / old.weight;
        if let At::Rest { lag, left } = old.at {
            let left = left.filter(|_| same).map(|left| rescale(left).max(1));
            self.all[slot].at = At::Rest { lag: rescale(lag), left };
            return;
        }
        let left = if same { rescale(old.deadline - old.v).max(1) } else { self.request(slot) };
        let v = now - rescale(now - old.v);
        (self.all[slot].v, self.all[slot].deadline) = (v, v + left);
        if old.at == At::Lane {
            let protection = rescale(self.protected - old.v);
            self.protect(slot);
            self.protected = self.protected.min(v + protection);
        } else {
            self.queue(slot, old.at);
        }
    }

    /// Sleepers in debt.
    fn delayed(&self) -> usize {
        self.all.iter().filter(|one| one.at == At::Delayed).count()
    }
}

/// The competitors of a lane: its coroutines, by slot, or its sessions, by number, and in each of
/// them its coroutines.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    new: Fair,
    upper: Option<Fair>,
    lower: BTreeMap<u32, Fair>,
    /// By slot: the session; 0 for all in the flat form.
    home: BTreeMap<usize, u32>,
    /// The lane's clock when the open slice was picked or went on.
    mark: u64,
}

impl Shares {
    pub(crate) fn new(
        base: Cycles,
        least: Cycles,
        of_sessions: bool,
        fault: Option<Fault>,
    ) -> Self {
        let new = Fair::new(base, least, fault);
        let upper = of_sessions.then(|| new.clone());
        Self { new, upper, lower: BTreeMap::new(), home: BTreeMap::new(), mark: 0 }
    }

    fn is_broken(&self, fault: Fault) -> bool {
        self.new.fault == Some(fault)
    }

    /// The session that has the lane.
    fn holder(&self) -> Option<u32> {
        match &self.upper {
            Some(upper) => upper.on_lane().map(|session| session as u32),
            None => Some(0),
        }
    }

    fn of(&mut self, slot: usize) -> &mut Fair {
        self.lower.get_mut(&self.home[&slot]).expect("its session is here")
    }

    fn running(&mut self) -> &mut Fair {
        let holder = self.holder().expect("a session has the lane");
        self.lower.get_mut(&holder).expect("it is here")
    }

    pub(crate) fn adopt(&mut self, slot: usize, session: u32, luggage: Luggage, share: Luggage) {
        let session = if self.upper.is_some() { session } else { 0 };
        if self.upper.is_some() && !self.lower.contains_key(&session) {
            self.receive(session, share);
        }
        self.home.insert(slot, session);
        let new = &self.new;
        self.lower.entry(session).or_insert_with(|| new.clone()).adopt(slot, luggage);
    }

    /// A session comes from another lane; one that is here keeps what it has.
    pub(crate) fn receive(&mut self, session: u32, luggage: Luggage) {
        let Some(upper) = &mut self.upper else { return };
        if !self.lower.contains_key(&session) {
            upper.adopt(session as usize, luggage);
            self.lower.insert(session, self.new.clone());
        }
    }

    /// A session goes to another lane; its coroutines follow one by one.
    pub(crate) fn depart(&mut self, session: u32) -> Option<Luggage> {
        if !self.lower.contains_key(&session) {
            return None;
        }
        let luggage = self.upper.as_mut()?.leave(session as usize);
        let is_kept = !self.is_broken(Fault::SessionsMoveWithoutLag);
        let lag = if is_kept { luggage.lag } else { 0 };
        Some(Luggage { lag, ..luggage })
    }

    pub(crate) fn enter(&mut self, slot: usize, entry: Entry) {
        self.of(slot).enter(slot, entry);
        let session = self.home[&slot];
        let is_alone = self.lower[&session].members() == 1;
        let Some(upper) = &mut self.upper else { return };
        let entry = match upper.all[session as usize].at {
            At::Queue | At::Lane => return,
            At::Delayed => Entry::Woken,
            _ if entry == Entry::New && !is_alone => Entry::Woken,
            _ => entry,
        };
        upper.enter(session as usize, entry);
    }

    /// One of its coroutines left the competition: what becomes of the session.
    fn follow(&mut self, session: u32, is_wait: bool) {
        let group = &self.lower[&session];
        let naps = self.is_broken(Fault::SessionsNapFreely);
        let keeps = self.is_broken(Fault::SessionsKeepTheLane);
        let Some(upper) = &mut self.upper else { return };
        let (at, slot) = (upper.all[session as usize].at, session as usize);
        if group.members() == 0 {
            if at != At::Nowhere {
                let _ = upper.leave(slot);
            }
            self.lower.remove(&session);
            return;
        }
        let competes = matches!(at, At::Queue | At::Lane);
        if group.all.iter().any(|one| matches!(one.at, At::Queue | At::Lane)) {
            if at == At::Lane
                && group.on_lane().is_none()
                && upper.bound() == Cycles::ZERO
                && !keeps
            {
                upper.requeue();
            }
        } else if competes && is_wait && !naps {
            upper.rest(slot);
        } else if competes {
            upper.set_aside(slot);
        }
    }

    /// Out for good: ended, or on its way to another lane.
    pub(crate) fn leave(&mut self, slot: usize, has_ended: bool) -> Luggage {
        let luggage = self.of(slot).leave(slot);
        self.follow(self.home[&slot], has_ended);
        luggage
    }

    pub(crate) fn set_aside(&mut self, slot: usize) {
        self.of(slot).set_aside(slot);
        self.follow(self.home[&slot], false);
    }

    pub(crate) fn rest(&mut self, slot: usize) {
        self.of(slot).rest(slot);
        self.follow(self.home[&slot], true);
    }

    pub(crate) fn mark(&mut self, clock: u64) {
        self.mark = clock;
    }

    pub(crate) fn pick(&mut self) -> Option<usize> {
        if self.holder().is_none() {
            self.upper.as_mut()?.pick()?;
        }
        let holder = self.holder()?;
        self.lower.get_mut(&holder)?.pick()
    }

    pub(crate) fn hand_to(&mut self, slot: usize, rest: Cycles) -> bool {
        let (session, holder) = (self.home[&slot], self.holder());
        if holder == Some(session) {
            return self.of(slot).hand_to(slot, rest);
        }
        let upper = self.upper.as_ref().expect("another session has the lane");
        let one = &upper.all[session as usize];
        if one.at != At::Queue || one.v > upper.now() || !self.of(slot).hand_to(slot, rest) {
            return false;
        }
        let upper = self.upper.as_mut().expect("it is there");
        if holder.is_some() {
            upper.requeue();
        }
        assert!(upper.hand_to(session as usize, rest), "it was eligible");
        true
    }

    pub(crate) fn bound(&self) -> Cycles {
        let holder = self.holder().expect("a session has the lane");
        let bound = self.lower[&holder].bound();
        self.upper.as_ref().map_or(bound, |upper| upper.bound().min(bound))
    }

    /// A slice of `used` cycles ended at this clock.
    pub(crate) fn charge(&mut self, used: Cycles, clock: u64) {
        let is_free = self.is_broken(Fault::OverheadIsFree);
        let mut cycles = used;
        if let Some(upper) = &mut self.upper {
            if !is_free {
                cycles = Cycles(clock - self.mark);
            }
            upper.charge(cycles);
        }
        self.mark = clock;
        self.running().charge(cycles);
    }

    pub(crate) fn requeue(&mut self) {
        self.running().requeue();
        if let Some(upper) = &mut self.upper
            && (upper.bound() == Cycles::ZERO || upper.prefers_another())
        {
            upper.requeue();
        }
    }

    pub(crate) fn yield_running(&mut self) {
        let group = self.running();
        group.yield_running();
        let queued = group.all.iter().filter(|one| one.at == At::Queue).count();
        let Some(upper) = &mut self.upper else { return };
        if queued == 1 {
            upper.yield_running();
        } else if upper.bound() == Cycles::ZERO {
            upper.requeue();
        }
    }

    pub(crate) fn prefers_another(&self) -> bool {
        let holder = self.holder().expect("a session has the lane");
        self.upper.as_ref().is_some_and(Fair::prefers_another)
            || self.lower[&holder].prefers_another()
    }

    pub(crate) fn set_share(&mut self, slot: usize, weight: u16, class: LatencyClass) {
        self.of(slot).set_share(slot, weight, class);
    }

    /// Whether the session has a share here.
    pub(crate) fn set_session_share(
        &mut self,
        session: u32,
        weight: u16,
        class: LatencyClass,
    ) -> bool {
        match &mut self.upper {
            Some(upper) if self.lower.contains_key(&session) => {
                upper.set_share(session as usize, weight, class);
                true
            }
            _ => false,
        }
    }

    /// Sleepers in debt, on either level.
    pub(crate) fn delayed(&self) -> usize {
        self.lower.values().chain(&self.upper).map(Fair::delayed).sum()
    }
}
