//! The fair queue against a naive model: random operations, every answer compared.
//!
//! The model is written from the rules (docs/fair.md), scans a vector for everything and keeps
//! absolute virtual times in 128 bits: it has no tree, no sums kept up, no origin and no wrapping.
//! It shares only the parameter types with the queue.

#[path = "model/random.rs"]
mod random;

use random::Random;
use wavelock_abi::{Cycles, LatencyClass, MAX_GAP, Weight};
use wavelock_kernel::fair::{
    Carried, EntityPhase, FairQueue, FairSettings, Leave, Placement, REMOVALS_PER_PICK, Share,
    VirtualTimes,
};

impl Random {
    fn share(&mut self) -> Share {
        let weight = match self.below(4) {
            0 => 1024,
            1 => 1 + self.below(8) as u16,
            2 => 60_000 + self.below(5_536) as u16,
            _ => 1 + self.below(65_535) as u16,
        };
        let class = LatencyClass::ALL[self.below(5) as usize];
        Share { weight: Weight::new(weight).expect("not zero"), class }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    Nowhere,
    Rest { lag: i128, left: Option<i128> },
    Queue,
    Delay,
    Lane,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    at: At,
    share: Share,
    remainder: i128,
    v: i128,
    deadline: i128,
    arrival: u64,
}

struct Model {
    settings: FairSettings,
    members: Vec<Member>,
    protected: i128,
    arrivals: u64,
    /// Virtual time while no entity competes.
    still: i128,
}

const UNITS: i128 = 1 << 20;

impl Model {
    fn new(settings: FairSettings, slots: usize) -> Self {
        let absent = Member {
            at: At::Nowhere,
            share: Share::default(),
            remainder: 0,
            v: 0,
            deadline: 0,
            arrival: 0,
        };
        Self { settings, members: vec![absent; slots], protected: 0, arrivals: 0, still: 0 }
    }

    fn weight(&self, slot: usize) -> i128 {
        i128::from(self.members[slot].share.weight.get())
    }

    fn competing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len())
            .filter(|&slot| matches!(self.members[slot].at, At::Queue | At::Delay | At::Lane))
    }

    fn running(&self) -> Option<usize> {
        self.competing().find(|&slot| self.members[slot].at == At::Lane)
    }

    fn total(&self) -> i128 {
        self.competing().map(|slot| self.weight(slot)).sum()
    }

    fn now(&self) -> i128 {
        let total = self.total();
        if total == 0 {
            return self.still;
        }
        self.competing()
            .map(|slot| self.weight(slot) * self.members[slot].v)
            .sum::<i128>()
            .div_euclid(total)
    }

    fn eligible(&self, slot: usize) -> bool {
        self.members[slot].v <= self.now()
    }

    fn slice(&self, class: LatencyClass) -> i128 {
        let base = i128::from(self.settings.base_slice().0);
        let request = match class {
            LatencyClass::Urgent => base / 8,
            LatencyClass::Interactive => base / 4,
            LatencyClass::Normal => base,
            LatencyClass::Batch => base * 4,
            LatencyClass::Idle => base * 16,
        };
        request.max(i128::from(self.settings.least_slice().0))
    }

    fn slices(&self) -> impl Iterator<Item = i128> + '_ {
        self.competing().map(|slot| self.slice(self.members[slot].share.class))
    }

    fn request(&self, slot: usize) -> i128 {
        self.slice(self.members[slot].share.class) * UNITS / self.weight(slot)
    }

    fn number(&mut self, slot: usize) {
        self.members[slot].arrival = self.arrivals;
        self.arrivals += 1;
    }

    /// Applies a change of membership and keeps the time if no entity is left.
    fn leaving(&mut self, slot: usize, change: impl FnOnce(&mut Member)) {
        self.still = self.members[slot].v;
        change(&mut self.members[slot]);
    }

    fn kept_lag(&self, slot: usize) -> i128 {
        let largest = self.slices().max().expect("it competes");
        let limit = (largest + i128::from(MAX_GAP.0)) * UNITS / self.weight(slot);
        (self.now() - self.members[slot].v).clamp(-limit, limit)
    }

    fn adopt(&mut self, slot: usize, carried: Carried) {
        let at =
            At::Rest { lag: i128::from(carried.lag), left: carried.request_left.map(i128::from) };
        self.members[slot] = Member {
            at,
            share: carried.share,
            remainder: i128::from(carried.remainder),
            v: 0,
            deadline: 0,
            arrival: 0,
        };
    }

    fn remove(&mut self, slot: usize) -> Carried {
        self.leave(slot, Leave::Move);
        let member = self.members[slot];
        self.members[slot].at = At::Nowhere;
        let At::Rest { lag, left } = member.at else { panic!("resting after a move") };
        Carried {
            share: member.share,
            lag: lag as i64,
            request_left: left.map(|left| left as i64),
            remainder: member.remainder as u16,
        }
    }

    fn place(&mut self, slot: usize, placement: Placement) {
        let (mut lag, mut left) = match self.members[slot].at {
            At::Rest { lag, left } => (lag, left),
            At::Delay => {
                if self.now() <= self.members[slot].v {
                    self.number(slot);
                    self.members[slot].at = At::Queue;
                    return;
                }
                self.leaving(slot, |member| member.at = At::Nowhere);
                (0, None)
            }
            other => panic!("placed while {other:?}"),
        };
        let (now, total, weight) = (self.now(), self.total(), self.weight(slot));
        if placement == Placement::Initial || total == 0 {
            lag = 0;
        }
        if placement != Placement::Migrate {
            left = None;
        }
        let request = self.request(slot);
        let request =
            if placement == Placement::Initial { request / 2 } else { left.unwrap_or(request) };
        let v = if total == 0 { now } else { now - (lag * (total + weight)).div_euclid(total) };
        self.number(slot);
        let member = &mut self.members[slot];
        (member.v, member.deadline, member.at) = (v, v + request, At::Queue);
    }

    fn leave(&mut self, slot: usize, leave: Leave) {
        let member = self.members[slot];
        let owes = matches!(member.at, At::Queue | At::Lane) && !self.eligible(slot);
        match member.at {
            At::Nowhere => panic!("an absent entity leaves"),
            At::Rest { .. } => {}
            At::Delay if leave == Leave::Sleep => return,
            At::Delay => {
                let lag = self.kept_lag(slot).min(0);
                self.leaving(slot, |member| member.at = At::Rest { lag, left: None });
            }
            At::Queue | At::Lane if leave == Leave::Sleep && owes => {
                self.number(slot);
                self.members[slot].at = At::Delay;
            }
            At::Queue | At::Lane => {
                let lag = self.kept_lag(slot);
                let left = (leave == Leave::Move).then_some(member.deadline - member.v);
                self.leaving(slot, |member| member.at = At::Rest { lag, left });
            }
        }
        if leave == Leave::Exit {
            self.members[slot].at = At::Nowhere;
        }
    }

    fn first(&self, at: At, wanted: impl Fn(&Member) -> bool) -> Option<usize> {
        let candidates = self
            .competing()
            .filter(|&slot| self.members[slot].at == at && wanted(&self.members[slot]));
        candidates
            .min_by_key(|&slot| (self.members[slot].deadline, self.members[slot].arrival, slot))
    }

    fn pick(&mut self) -> Option<usize> {
        for _ in 0..REMOVALS_PER_PICK {
            let now = self.now();
            let sleeper = self.first(At::Delay, |member| member.v <= now);
            let ready = self.first(At::Queue, |member| member.v <= now);
            let Some(sleeper) = sleeper else { break };
            let order = |slot: usize| (self.members[slot].deadline, self.members[slot].arrival);
            if ready.is_some_and(|ready| order(ready) < order(sleeper)) {
                break;
            }
            self.leaving(sleeper, |member| member.at = At::Rest { lag: 0, left: None });
        }
        let now = self.now();
        let picked = self.first(At::Queue, |member| member.v <= now).or_else(|| {
            let least = self
                .competing()
                .filter(|&slot| self.members[slot].at == At::Queue)
                .map(|slot| self.members[slot].v)
                .min()?;
            self.first(At::Queue, |member| member.v == least)
        })?;
        self.members[picked].at = At::Lane;
        self.protect(picked);
        Some(picked)
    }

    fn protect(&mut self, slot: usize) {
        let least = self
            .slices()
            .min()
            .expect("it competes")
            .min(self.slice(self.members[slot].share.class));
        let member = self.members[slot];
        self.protected = member.deadline.min(member.v + least * UNITS / self.weight(slot));
    }

    fn bound(&self) -> Cycles {
        let Some(slot) = self.running() else { return Cycles::ZERO };
        let left = self.protected - self.members[slot].v;
        if left <= 0 {
            return Cycles::ZERO;
        }
        let service = left * self.weight(slot) - self.members[slot].remainder;
        Cycles(((service + UNITS - 1) / UNITS) as u64)
    }

    fn hand_to(&mut self, slot: usize, rest: Cycles) -> bool {
        if self.members[slot].at != At::Queue || !self.eligible(slot) || rest.0 == 0 {
            return false;
        }
        self.members[slot].at = At::Lane;
        self.protect(slot);
        let rest = i128::from(rest.0).min(self.slice(self.members[slot].share.class)) * UNITS
            / self.weight(slot);
        self.protected = self.protected.min(self.members[slot].v + rest.max(1));
        true
    }

    fn charge(&mut self, cycles: Cycles) {
        let slot = self.running().expect("it runs");
        let (weight, request) = (self.weight(slot), self.request(slot));
        let member = &mut self.members[slot];
        let service = i128::from(cycles.0) * UNITS + member.remainder;
        member.v += service / weight;
        member.remainder = service % weight;
        if member.v >= member.deadline {
            member.deadline = member.v + request;
        }
    }

    fn requeue(&mut self) {
        let slot = self.running().expect("it runs");
        self.number(slot);
        self.members[slot].at = At::Queue;
    }

    fn yield_running(&mut self) {
        let slot = self.running().expect("it runs");
        if self.eligible(slot) {
            let request = self.request(slot);
            let member = &mut self.members[slot];
            member.v = member.deadline;
            member.deadline += request;
        }
        self.requeue();
    }

    fn preferred(&self) -> usize {
        let slot = self.running().expect("it runs");
        let now = self.now();
        let stays = self.eligible(slot);
        if stays && self.members[slot].v < self.protected {
            return slot;
        }
        let Some(best) = self.first(At::Queue, |member| member.v <= now) else { return slot };
        let order = |slot: usize| (self.members[slot].deadline, self.members[slot].arrival);
        if stays && order(slot) < order(best) { slot } else { best }
    }

    fn prefers_another(&self) -> bool {
        let Some(slot) = self.running() else { return false };
        let best = self.preferred();
        let idle = |slot: usize| self.members[slot].share.class == LatencyClass::Idle;
        best != slot && (!idle(best) || idle(slot))
    }

    fn set_share(&mut self, slot: usize, share: Share) {
        let old = self.members[slot];
        let old_weight = self.weight(slot);
        let new_weight = i128::from(share.weight.get());
        let rescale = |units: i128| (units * old_weight).div_euclid(new_weight);
        let now = self.now();
        self.members[slot].share = share;
        self.members[slot].remainder = old.remainder * new_weight / old_weight;
        let same = share.class == old.share.class;
        if let At::Rest { lag, left } = old.at {
            let left = left.filter(|_| same).map(|left| rescale(left).max(1));
            self.members[slot].at = At::Rest { lag: rescale(lag), left };
            return;
        }
        let left = if same { rescale(old.deadline - old.v).max(1) } else { self.request(slot) };
        let v = now - rescale(now - old.v);
        self.members[slot].v = v;
        self.members[slot].deadline = v + left;
        if old.at == At::Lane {
            let protection = rescale(self.protected - old.v);
            self.protect(slot);
            self.protected = self.protected.min(v + protection);
        } else {
            self.number(slot);
        }
    }

    fn lag(&self, slot: usize) -> Option<i64> {
        match self.members[slot].at {
            At::Nowhere => None,
            At::Rest { lag, .. } => Some(lag as i64),
            _ => Some((self.now() - self.members[slot].v) as i64),
        }
    }
}

/// How often each operation did something.
#[derive(Default, Debug)]
struct Reached {
    picks: u64,
    empty_picks: u64,
    delays: u64,
    woken_in_debt: u64,
    clipped: u64,
    preemptions: u64,
    handoffs: u64,
    moves: u64,
    changes: u64,
    rebuilds: u64,
}

struct Pair {
    queue: FairQueue,
    model: Model,
    numbers: Random,
    reached: Reached,
    slots: u64,
}

impl Pair {
    fn new(seed: u64, slots: u32, base: u64) -> Self {
        let settings = FairSettings::new(Cycles(base), Cycles(base / 6 + 1), Cycles(base * 10))
            .expect("good settings");
        let mut queue = FairQueue::new(settings);
        queue.reserve(slots).expect("memory");
        let model = Model::new(settings, slots as usize);
        Self {
            queue,
            model,
            numbers: Random(seed),
            reached: Reached::default(),
            slots: u64::from(slots),
        }
    }

    fn slot(&mut self) -> usize {
        self.numbers.below(self.slots) as usize
    }

    /// Cycles to charge: the bound and a bit, a part of it, or one.
    fn cycles(&mut self) -> Cycles {
        let bound = self.queue.bound().0;
        match self.numbers.below(4) {
            0 => Cycles(bound + self.numbers.below(100)),
            1 => Cycles(1),
            2 => Cycles(bound),
            _ => Cycles(self.numbers.below(bound + 1)),
        }
    }

    // Long: one arm per operation of the queue.
    fn step(&mut self) {
        let slot = self.slot();
        let at = self.model.members[slot].at;
        let running = self.model.running();
        match self.numbers.below(20) {
            0..=5 if running.is_none() => {
                let picked = self.queue.pick();
                let expected = self.model.pick().map(|slot| slot as u32);
                assert_eq!(picked, expected, "pick");
                assert_eq!(self.queue.bound(), self.model.bound(), "bound of a pick");
                self.reached.picks += 1;
                self.reached.empty_picks += u64::from(picked.is_none());
            }
            0..=5 => {
                let cycles = self.cycles();
                self.queue.charge(cycles);
                self.model.charge(cycles);
                match self.numbers.below(8) {
                    0 => {}
                    1 => {
                        self.queue.yield_running();
                        self.model.yield_running();
                    }
                    2..=4 => self.leave(running.expect("it runs"), Leave::Sleep),
                    _ => {
                        self.queue.requeue();
                        self.model.requeue();
                    }
                }
            }
            6..=10 => match at {
                At::Nowhere => {
                    let share = self.numbers.share();
                    self.queue.adopt(slot as u32, Carried::fresh(share));
                    self.model.adopt(slot, Carried::fresh(share));
                    self.place(slot, Placement::Initial);
                }
                At::Rest { .. } => {
                    let placement = if self.numbers.below(3) == 0 {
                        Placement::Migrate
                    } else {
                        Placement::Wake
                    };
                    self.place(slot, placement);
                }
                At::Delay => {
                    let debt = self.model.now() <= self.model.members[slot].v;
                    self.reached.woken_in_debt += u64::from(debt);
                    self.reached.clipped += u64::from(!debt);
                    self.place(slot, Placement::Wake);
                }
                At::Queue | At::Lane => {}
            },
            11 if at != At::Nowhere => {
                let leave =
                    [Leave::Sleep, Leave::Move, Leave::Exit][self.numbers.below(3) as usize];
                self.leave(slot, leave);
            }
            12 | 13 if at != At::Nowhere => {
                let mut share = self.numbers.share();
                if self.numbers.below(2) == 0 {
                    share.class = self.model.members[slot].share.class;
                }
                self.queue.set_share(slot as u32, share);
                self.model.set_share(slot, share);
                self.reached.changes += 1;
            }
            14 if at != At::Nowhere => self.migrate(slot),
            15 if running.is_none() && at == At::Queue => {
                let rest = Cycles(self.numbers.below(3_000));
                let handed = self.queue.hand_to(slot as u32, rest);
                assert_eq!(handed, self.model.hand_to(slot, rest), "handoff");
                assert_eq!(self.queue.bound(), self.model.bound(), "bound of a handoff");
                self.reached.handoffs += u64::from(handed);
            }
            16 => self.queue.rebase(),
            17 if self.numbers.below(20) == 0 => {
                let state = self.queue.export();
                self.queue = FairQueue::rebuild(&state).expect("an exported state");
                assert_eq!(self.queue.export(), state, "export after rebuild");
                self.reached.rebuilds += 1;
            }
            _ => {}
        }
    }

    fn place(&mut self, slot: usize, placement: Placement) {
        self.queue.place(slot as u32, placement);
        self.model.place(slot, placement);
        self.compare_lane();
        self.reached.preemptions += u64::from(self.queue.prefers_another());
    }

    fn leave(&mut self, slot: usize, leave: Leave) {
        self.queue.leave(slot as u32, leave);
        self.model.leave(slot, leave);
        self.reached.delays += u64::from(self.model.members[slot].at == At::Delay);
    }

    /// To another slot of the same queue, which is the hardest case: the virtual time it left is
    /// the one it returns to.
    fn migrate(&mut self, slot: usize) {
        let was_queued = matches!(self.model.members[slot].at, At::Queue | At::Lane);
        let carried = self.queue.remove(slot as u32);
        assert_eq!(carried, self.model.remove(slot), "what a move carries");
        let target = (0..self.model.members.len())
            .rev()
            .find(|&slot| self.model.members[slot].at == At::Nowhere)
            .expect("a free slot");
        self.queue.adopt(target as u32, carried);
        self.model.adopt(target, carried);
        if was_queued {
            self.place(target, Placement::Migrate);
        }
        self.reached.moves += 1;
    }

    fn compare(&self, slot: usize) {
        let at = slot as u32;
        assert_eq!(self.queue.lag(at), self.model.lag(slot), "lag of {slot}");
        let competes = matches!(self.model.members[slot].at, At::Queue | At::Delay | At::Lane);
        assert_eq!(
            self.queue.eligible(at),
            competes.then(|| self.model.eligible(slot)),
            "eligibility of {slot}"
        );
        assert_eq!(
            self.queue.arrival(at),
            competes.then(|| self.model.members[slot].arrival),
            "arrival of {slot}"
        );
        let deadline = (self.model.members[slot].deadline - self.model.now()) as i64;
        assert_eq!(self.queue.deadline(at), competes.then_some(deadline), "deadline of {slot}");
    }

    fn compare_lane(&self) {
        assert_eq!(self.queue.running(), self.model.running().map(|slot| slot as u32));
        assert_eq!(self.queue.bound(), self.model.bound(), "bound");
        assert_eq!(
            self.queue.prefers_another(),
            self.model.prefers_another(),
            "the test at a wave's end"
        );
    }
}

/// Prints the seed when a comparison fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("fair_model: failed with seed {:#x}", self.0);
        }
    }
}

#[test]
fn small_populations_agree_with_the_model_after_every_operation() {
    let mut total = Reached::default();
    for run in 0..24 {
        let seed = Seed(0x5eed_0000 + run);
        let slots = [1, 2, 3, 5, 8, 16, 32, 64][run as usize % 8];
        let base = [10, 700, 10_000, 1 << 28][run as usize / 6 % 4];
        let mut pair = Pair::new(seed.0, slots, base);
        for _ in 0..8_000 {
            pair.step();
            pair.compare_lane();
            (0..slots as usize).for_each(|slot| pair.compare(slot));
            assert_eq!(pair.queue.check(), Ok(()));
        }
        let r = &pair.reached;
        for (sum, one) in [
            (&mut total.picks, r.picks),
            (&mut total.empty_picks, r.empty_picks),
            (&mut total.delays, r.delays),
            (&mut total.woken_in_debt, r.woken_in_debt),
            (&mut total.clipped, r.clipped),
            (&mut total.preemptions, r.preemptions),
            (&mut total.handoffs, r.handoffs),
            (&mut total.moves, r.moves),
            (&mut total.changes, r.changes),
            (&mut total.rebuilds, r.rebuilds),
        ] {
            *sum += one;
        }
    }
    let Reached {
        picks,
        empty_picks,
        delays,
        woken_in_debt,
        clipped,
        preemptions,
        handoffs,
        moves,
        changes,
        rebuilds,
    } = total;
    for count in [
        picks,
        empty_picks,
        delays,
        woken_in_debt,
        clipped,
        preemptions,
        handoffs,
        moves,
        changes,
        rebuilds,
    ] {
        assert!(count > 20, "a case was hardly reached: {total:?}");
    }
}

#[test]
fn a_large_population_agrees_with_the_model() {
    let seed = Seed(0xb16);
    let mut pair = Pair::new(seed.0, 1_500, 10_000);
    for slot in 0..1_400 {
        let share = pair.numbers.share();
        pair.queue.adopt(slot, Carried::fresh(share));
        pair.queue.place(slot, Placement::Initial);
        pair.model.adopt(slot as usize, Carried::fresh(share));
        pair.model.place(slot as usize, Placement::Initial);
    }
    for operation in 0..10_000 {
        pair.step();
        if operation % 16 == 0 {
            pair.compare_lane();
            let slot = pair.slot();
            pair.compare(slot);
        }
        if operation % 500 == 0 {
            assert_eq!(pair.queue.check(), Ok(()));
        }
    }
    assert_eq!(pair.queue.check(), Ok(()));
    assert!(pair.reached.delays > 100 && pair.reached.moves > 100, "{:?}", pair.reached);
}

#[test]
fn a_state_no_queue_can_have_is_refused() {
    let mut pair = Pair::new(7, 8, 1_000);
    (0..2_000).for_each(|_| pair.step());
    let good = pair.queue.export();
    let with = |change: &dyn Fn(&mut wavelock_kernel::fair::FairState)| {
        let mut state = good.clone();
        change(&mut state);
        FairQueue::rebuild(&state).is_none()
    };
    assert!(!with(&|_| {}));
    assert!(with(&|state| state.slots = 0));
    assert!(with(&|state| state.arrivals = 0));
    assert!(with(&|state| state.entities.push(state.entities[0])));
    assert!(with(&|state| state.entities[0].remainder = u16::MAX));
    let queued =
        |time: i64, deadline: i64| EntityPhase::Queued(VirtualTimes { time, deadline, arrival: 0 });
    assert!(with(&|state| state.entities[0].phase = queued(0, 0)));
    assert!(with(&|state| state.entities[0].phase = queued(i64::MIN, 5)));
    assert!(with(&|state| {
        let running = EntityPhase::Running(VirtualTimes { time: 0, deadline: 5, arrival: 0 }, 1);
        state.entities.iter_mut().for_each(|entity| entity.phase = running);
    }));
}
