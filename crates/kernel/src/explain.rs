//! Explains the next pick of a lane: the decision is made again, with its candidates, keys and
//! tie-break. Nothing is recorded for this while the lane runs.
//!
//! Contract: [`Lane::explain`] changes nothing and names exactly the coroutine that
//! [`Lane::dispatch`] would run now. O(n) and allocating: for people and for tests.

use crate::fair::FairKey;
use crate::lane::Lane;
use crate::policy::{Policy, PriorityRule, aged};
use crate::record::{Hot, NIL};
use crate::types::Tag;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles};

/// What a coroutine was compared by. The larger class, the smaller deadline, the smaller arrival
/// goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecisionKey {
    /// FIFO.
    Arrival {
        /// Arrival on the lane.
        arrival: u64,
    },
    /// Class, then arrival: priority, tokens, or holder (1) before other (0).
    Class {
        /// The class.
        class: u8,
        /// Arrival on the lane.
        arrival: u64,
    },
    /// Priority raised by waiting, then arrival.
    Aged {
        /// The priority as set.
        priority: u8,
        /// Picks it has waited.
        waited_picks: u64,
        /// What it counts with.
        aged: u64,
        /// Arrival on the lane.
        arrival: u64,
    },
    /// Absolute deadline of a context's refill, then sequence.
    Deadline {
        /// The deadline on the lane's clock.
        deadline: u64,
        /// Its order among equal deadlines.
        sequence: u64,
    },
    /// Virtual deadline among the eligible, then arrival in the fair queue.
    Fair {
        /// Whether it received no more than its share.
        eligible: bool,
        /// Units of virtual time to its deadline.
        deadline: i64,
        /// Service owed to it, in the same units.
        lag: i64,
        /// Arrival in the fair queue.
        arrival: u64,
    },
    /// Its session is demoted by its cap: after all others, then by arrival.
    Background {
        /// Arrival on the lane.
        arrival: u64,
    },
    /// By the keys of its session, then its own among the session's coroutines.
    FairSession {
        /// The session on the lane.
        session: FairKey,
        /// The coroutine in its session.
        own: FairKey,
    },
}

/// One coroutine of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The coroutine.
    pub reference: CoroutineRef,
    /// The caller's name for it.
    pub tag: Tag,
    /// What it was compared by.
    pub key: DecisionKey,
}

/// What decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// It is current, its quantum is not used up, and at a boundary no other outranks it.
    Continues,
    /// No other coroutine is ready.
    Alone,
    /// Its key is better.
    Key,
    /// Keys are equal but for the arrival, and it is older.
    Arrival,
    /// It was preferred by a handoff and no other outranks it.
    Handoff,
    /// The machine's schedule names it for this pick, whatever the policy's choice is.
    Schedule,
    /// It runs on a context: its deadline is the earliest of the tier, which has precedence over
    /// the policy.
    Tier,
    /// `ProgressAware` served enough holders in a row: the oldest other is picked.
    Streak,
}

/// A decision, explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Coroutines that could have been chosen, the current one included.
    pub candidates: u32,
    /// The coroutine that runs.
    pub winner: Candidate,
    /// The coroutine that would have run otherwise.
    pub runner_up: Option<Candidate>,
    /// Why the winner and not the runner-up.
    pub because: Because,
}

impl Lane {
    /// Explains what [`Lane::dispatch`] would run now; `None` when nothing can run. Whether the
    /// wave is over is not considered.
    #[must_use]
    pub fn explain(&self) -> Option<Explanation> {
        if let Some(explanation) = self.explain_tier() {
            return Some(explanation);
        }
        if self.current != NIL && !(self.boundary && !self.in_slice && self.is_current_outranked())
        {
            let others = self.best_two().into_iter().flatten();
            let runner_up = others.into_iter().find(|&slot| slot != self.current);
            return Some(self.explanation(self.current, runner_up, Because::Continues));
        }
        let [first, second] = self.best_two();
        let first = first?;
        let instead_of = |slot| if slot == first { second } else { Some(first) };
        if let Some(slot) = self.scheduled() {
            return Some(self.explanation(slot, instead_of(slot), Because::Schedule));
        }
        if let Some(slot) = self.handed(first) {
            return Some(self.explanation(slot, instead_of(slot), Because::Handoff));
        }
        let because = match second {
            None => Because::Alone,
            Some(second) => self.compare(first, second),
        };
        Some(self.explanation(first, second, because))
    }

    fn explanation(&self, winner: u32, runner_up: Option<u32>, because: Because) -> Explanation {
        Explanation {
            candidates: self.ready_count() + u32::from(self.current != NIL),
            winner: self.candidate(winner),
            runner_up: runner_up.map(|slot| self.candidate(slot)),
            because,
        }
    }

    /// The candidates of a decision now, the current coroutine included, with their keys; best
    /// first. Under `Fair` the eligible come first, by deadline.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let contends = |slot: &u32| self.slab.hot(*slot).place.is_ready() || *slot == self.current;
        let (mut tier, mut slots): (Vec<u32>, Vec<u32>) =
            self.slab.slots().filter(contends).partition(|&slot| self.tier_key(slot).is_some());
        // Holders go before the policy's choice, by deadline.
        tier.sort_by_key(|&slot| self.tier_key(slot));
        let rank = |slot: u32| match self.key(slot) {
            DecisionKey::Fair { eligible, deadline, arrival, .. } => {
                let own = FairKey { is_ahead: !eligible, deadline, arrival, lag: 0 };
                (None, own)
            }
            DecisionKey::FairSession { session, own } => (Some(session), own),
            _ => {
                let arrival = self.slab.hot(slot).arrival;
                (None, FairKey { is_ahead: false, deadline: 0, arrival, lag: 0 })
            }
        };
        slots.sort_by(|&one, &other| {
            let by_rule = match (
                self.fair.is_some() && !self.is_in_background(one) && !self.is_in_background(other),
                self.goes_before(one, other),
                self.goes_before(other, one),
            ) {
                (false, true, _) => core::cmp::Ordering::Less,
                (false, _, true) => core::cmp::Ordering::Greater,
                _ => core::cmp::Ordering::Equal,
            };
            by_rule.then_with(|| rank(one).cmp(&rank(other)))
        });
        tier.into_iter().chain(slots).map(|slot| self.candidate(slot)).collect()
    }

    /// The coroutine that [`Lane::dispatch`] would run now, without why. Constant time, except
    /// under `Fair`, where it makes the pick on a copy.
    #[must_use]
    pub fn peek(&self) -> Option<Tag> {
        if self.tier.is_some() {
            return self.explain().map(|explanation| explanation.winner.tag);
        }
        let current_stays = self.current != NIL
            && !(self.boundary && !self.in_slice && self.is_current_outranked());
        if current_stays {
            return Some(self.slab.hot(self.current).tag);
        }
        if self.fair.is_some() || self.current != NIL {
            return self.explain().map(|explanation| explanation.winner.tag);
        }
        let best = self.settings.policy.select(&self.slab, &self.ready, self.picks(), self.streak);
        let best = if best == NIL { self.caps.background } else { best };
        if best == NIL {
            return None;
        }
        if let Some(slot) = self.scheduled() {
            return Some(self.slab.hot(slot).tag);
        }
        Some(self.slab.hot(self.handed(best).unwrap_or(best)).tag)
    }

    /// The coroutine that a deviation of this lane names for the next pick.
    fn scheduled(&self) -> Option<u32> {
        if self.deviations.is_empty() || self.fair.is_some() { None } else { self.deviated() }
    }

    /// The policy's choice among the ready and the current, as if it were back in the queue, and
    /// its choice without that one.
    fn best_two(&self) -> [Option<u32>; 2] {
        if let Some(fair) = &self.fair {
            // On a copy: a pick also removes sleepers that have paid their debt. Without memory for
            // one, nothing is explained.
            let Some(mut trial) = fair.trial() else {
                return [None; 2];
            };
            if trial.running().is_some() {
                trial.requeue();
            }
            let mut pick = || {
                let slot = trial.pick()?;
                trial.leave(slot, crate::fair::Leave::Exit);
                Some(slot)
            };
            let picked = [pick(), pick()].into_iter().flatten();
            let mut all = picked.chain(self.background());
            return [all.next(), all.next()];
        }
        let contends = |slot: u32| self.is_queued_by_policy(slot) || slot == self.current;
        let best = |without: u32| {
            let queued = self.slab.slots().filter(|&slot| contends(slot)).chain(self.background());
            let others = queued.filter(|&slot| slot != without);
            others.reduce(|best, slot| if self.goes_before(slot, best) { slot } else { best })
        };
        let first = best(NIL);
        [first, first.and_then(best)]
    }

    /// The coroutines in the background, the current one included, oldest first.
    fn background(&self) -> impl Iterator<Item = u32> {
        let mut slots: Vec<u32> =
            self.slab.slots().filter(|&slot| self.is_in_background(slot)).collect();
        slots.sort_unstable_by_key(|&slot| self.slab.hot(slot).arrival);
        slots.into_iter()
    }

    /// Whether one ready coroutine goes before another under a class policy: written as the rule
    /// states it, independent of the queue.
    fn goes_before(&self, one: u32, other: u32) -> bool {
        let (a, b) = (self.slab.hot(one), self.slab.hot(other));
        match (self.is_in_background(one), self.is_in_background(other)) {
            (false, false) => {}
            (true, true) => return a.arrival < b.arrival,
            (_, is_other) => return is_other,
        }
        let rank = |slot, hot: &Hot| match self.settings.policy {
            Policy::Cooperative | Policy::RoundRobin { .. } | Policy::Fair(_) => 0,
            Policy::Priority { rule: PriorityRule::Aging, .. } => {
                aged(&self.slab, slot, self.picks())
            }
            Policy::Priority { .. } => u64::from(hot.class),
            Policy::ProgressAware { .. } => {
                let holder = hot.class == 1;
                let others_turn = self.streak >= crate::policy::PROGRESS_STREAK;
                u64::from(holder != others_turn)
            }
        };
        (rank(one, a), core::cmp::Reverse(a.arrival))
            > (rank(other, b), core::cmp::Reverse(b.arrival))
    }

    /// The decision if contexts take part in it: the earliest deadline of the tier, the current
    /// holder's included.
    fn explain_tier(&self) -> Option<Explanation> {
        let tier = self.tier.as_ref()?;
        let mut keys: Vec<_> = tier.queued_keys().collect();
        let current = tier.current_context();
        keys.extend(current.map(|context| {
            (tier.context(context).deadline, tier.context(context).sequence, context)
        }));
        keys.sort_unstable();
        let &(deadline, sequence, first) = keys.first()?;
        if tier.server.state.active.is_some_and(|server| server < (Cycles(deadline), sequence)) {
            return None;
        }
        let because = if current == Some(first) { Because::Continues } else { Because::Tier };
        let runner_up = keys.get(1).map(|&(_, _, context)| tier.context(context).holder);
        Some(self.explanation(tier.context(first).holder, runner_up, because))
    }

    /// The preferred coroutine, if the next pick takes it instead of the policy's choice.
    fn handed(&self, choice: u32) -> Option<u32> {
        let slot = self.slab.live_slot(self.preferred?.0).ok()?;
        let is_taken = match &self.fair {
            Some(fair) => self.is_queued_by_policy(slot) && fair.eligible(slot) == Some(true),
            None => self.may_pass(slot, choice),
        };
        is_taken.then_some(slot)
    }

    fn compare(&self, first: u32, second: u32) -> Because {
        let same = match (self.key(first), self.key(second)) {
            (DecisionKey::Arrival { .. }, DecisionKey::Background { .. }) => false,
            (DecisionKey::Arrival { .. } | DecisionKey::Background { .. }, _) => true,
            (DecisionKey::Class { class: a, .. }, DecisionKey::Class { class: b, .. }) => {
                if matches!(self.settings.policy, Policy::ProgressAware { .. }) && a < b {
                    return Because::Streak;
                }
                a == b
            }
            (DecisionKey::Aged { aged: a, .. }, DecisionKey::Aged { aged: b, .. }) => a == b,
            (
                DecisionKey::Fair { deadline: a, eligible: x, .. },
                DecisionKey::Fair { deadline: b, eligible: y, .. },
            ) => a == b && x == y,
            (
                DecisionKey::FairSession { session: a, own: x },
                DecisionKey::FairSession { session: b, own: y },
            ) => {
                let key = |key: FairKey| (key.is_ahead, key.deadline);
                let same_session = a == b;
                if same_session { key(x) == key(y) } else { key(a) == key(b) }
            }
            _ => false,
        };
        if same { Because::Arrival } else { Because::Key }
    }

    fn candidate(&self, slot: u32) -> Candidate {
        Candidate {
            reference: self.slab.reference(slot),
            tag: self.slab.hot(slot).tag,
            key: self.key(slot),
        }
    }

    /// Deadline and sequence of a coroutine that the tier has.
    fn tier_key(&self, slot: u32) -> Option<(u64, u64)> {
        let tier = self.tier.as_ref()?;
        let context = match tier.current_context() {
            Some(context) if slot == self.current => context,
            _ if self.slab.hot(slot).place == crate::record::Place::ReadyTier => tier.held_by(slot),
            _ => return None,
        };
        Some((tier.context(context).deadline, tier.context(context).sequence))
    }

    fn key(&self, slot: u32) -> DecisionKey {
        if let Some((deadline, sequence)) = self.tier_key(slot) {
            return DecisionKey::Deadline { deadline, sequence };
        }
        let hot = self.slab.hot(slot);
        let arrival = hot.arrival;
        if self.is_in_background(slot) {
            return DecisionKey::Background { arrival };
        }
        match (self.settings.policy, &self.fair) {
            (_, Some(fair)) => match fair.keys(slot) {
                Some((Some(session), own)) => DecisionKey::FairSession { session, own },
                Some((None, FairKey { is_ahead, deadline, arrival, lag })) => {
                    DecisionKey::Fair { eligible: !is_ahead, deadline, lag, arrival }
                }
                None => {
                    let lag = fair.lag(slot).unwrap_or(0);
                    DecisionKey::Fair { eligible: false, deadline: 0, lag, arrival: 0 }
                }
            },
            (Policy::Priority { rule: PriorityRule::Aging, .. }, _) => {
                let waited_picks = self.picks() - self.slab.hot(slot).picks_at;
                DecisionKey::Aged {
                    priority: hot.priority.0,
                    waited_picks,
                    aged: aged(&self.slab, slot, self.picks()),
                    arrival,
                }
            }
            (Policy::Priority { .. } | Policy::ProgressAware { .. }, _) => {
                DecisionKey::Class { class: hot.class, arrival }
            }
            _ => DecisionKey::Arrival { arrival },
        }
    }
}
