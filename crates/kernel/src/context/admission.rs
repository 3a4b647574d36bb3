//! Admission: the processor-demand test for EDF on one lane, with the terms that a cooperative
//! runtime adds.
//!
//! For every deadline `t`, the demand by then must be at most `cap` of `t`. Per context with a
//! deadline by then, the demand is its budget times the activations that fit, `(t - D) / P + 1`,
//! plus one overrun (a slice stops less than `G` late; later refills pay for it, so it counts
//! once). Every context, whatever its deadline, adds the cost of its releases by then, `t / P + 1`
//! of them, because a release is booked before anything runs. Per lane the demand is `B = G +
//! switch` once, for the coroutine that runs when a context is released, and at each wave's end the
//! wait for other lanes, less than `G`. The test is per lane, because the global form admits sets
//! that miss (Dhall's effect).
//!
//! Contract: integers only; exact, except that utilisation is rounded up. Points are visited from
//! the last that can matter downwards (quick processor-demand analysis), at most [`MOST_POINTS`];
//! a set that needs more is refused.
//!
//! Elsewhere: the terms of a lane (`tier`), the refusal (`operations`).

use wavelock_abi::Cycles;

/// The most points that one test visits.
const MOST_POINTS: u32 = 4_096;

/// The whole lane, in thousandths.
const WHOLE: u32 = 1_000;

/// Fixed-point one of utilisations.
const ONE: u128 = 1 << 32;

/// The demand of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Cycles per period.
    pub budget: Cycles,
    /// The period.
    pub period: Cycles,
    /// Cycles from a release to its deadline; at most the period.
    pub deadline: Cycles,
}

/// What a lane adds to the demand of its contexts, and what it supplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Once: the coroutine that runs when a context is released continues to its next safepoint.
    pub blocking: Cycles,
    /// Once per context: its last slice stops late.
    pub overrun: Cycles,
    /// Per release, of every context: scheduler operations.
    pub release: Cycles,
    /// An interval, and the cycles lost to waiting for other lanes at its start and at each end.
    pub boundary: Option<(Cycles, Cycles)>,
    /// Parts in a thousand of the lane that contexts may take.
    pub cap: u32,
}

impl Terms {
    /// The textbook's terms: no blocking, no overrun, no costs, the whole lane.
    pub const IDEAL: Self = Self {
        blocking: Cycles::ZERO,
        overrun: Cycles::ZERO,
        release: Cycles::ZERO,
        boundary: None,
        cap: WHOLE,
    };

    /// The demand by `t` after a critical instant, at which everything is released at once.
    #[must_use]
    pub fn demand(&self, contexts: &(impl Iterator<Item = Demand> + Clone), t: Cycles) -> u128 {
        // What is lost at the start and again after each interval.
        let repeated =
            |every: Cycles, cost: Cycles| u128::from(t.0 / every.0.max(1) + 1) * u128::from(cost.0);
        let boundaries = self.boundary.map_or(0, |(every, cost)| repeated(every, cost));
        contexts.clone().fold(u128::from(self.blocking.0) + boundaries, |sum, context| {
            let releases = repeated(context.period, self.release);
            if context.deadline > t {
                return sum + releases;
            }
            let activations = u128::from((t - context.deadline).0 / context.period.0.max(1)) + 1;
            sum + releases + activations * u128::from(context.budget.0) + u128::from(self.overrun.0)
        })
    }
}

/// Why a set is not schedulable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortfall {
    /// The deadline at which demand exceeds supply; zero if utilisation alone is too high.
    pub at: Cycles,
    /// Demand by then.
    pub demand: Cycles,
    /// Supply by then, within the cap.
    pub supply: Cycles,
    /// Utilisation of the whole set in parts in a million of the lane, rounded up.
    pub utilisation: u32,
    /// The most it may be.
    pub cap: u32,
}

/// Whether these contexts are schedulable together on one lane.
///
/// # Errors
/// They are not, with the first point found at which demand exceeds supply.
pub fn admit(
    terms: &Terms,
    contexts: impl Iterator<Item = Demand> + Clone,
) -> Result<(), Shortfall> {
    let cap = ONE * u128::from(terms.cap) / u128::from(WHOLE);
    let (every, cost) = terms.boundary.unwrap_or((Cycles(1), Cycles::ZERO));
    let mut utilisation = part(cost.0, every.0);
    let (mut density, mut offset, mut nearest) = (utilisation, 0u128, u64::MAX);
    let mut fixed = u128::from(terms.blocking.0) + u128::from(cost.0);
    for context in contexts.clone() {
        let (budget, releases) = (context.budget.0, part(terms.release.0, context.period.0));
        utilisation += part(budget, context.period.0) + releases;
        density += part(budget, context.deadline.0) + releases;
        fixed += u128::from(terms.overrun.0) + u128::from(terms.release.0);
        offset += (u128::from(budget) * u128::from((context.period - context.deadline).0))
            .div_ceil(u128::from(context.period.0.max(1)));
        nearest = nearest.min(context.deadline.0);
    }
    let short = |at: Cycles, demand: u128| Shortfall {
        at,
        demand: narrow(demand),
        supply: narrow(u128::from(at.0) * u128::from(terms.cap) / u128::from(WHOLE)),
        utilisation: (utilisation * 1_000_000).div_ceil(ONE) as u32,
        cap: terms.cap * 1_000,
    };
    // Fast path: density with every fixed term at the nearest deadline is sufficient.
    if nearest == u64::MAX || density + (fixed * ONE).div_ceil(u128::from(nearest.max(1))) <= cap {
        return Ok(());
    }
    if utilisation > cap || (utilisation == cap && fixed + offset > 0) {
        return Err(short(Cycles::ZERO, 0));
    }
    if fixed + offset == 0 {
        return Ok(());
    }
    let mut before = narrow((fixed + offset) * ONE / (cap - utilisation) + 1);
    for _ in 0..MOST_POINTS {
        let Some(at) = last_deadline(&contexts, before) else { return Ok(()) };
        let demand = terms.demand(&contexts, at);
        if demand * u128::from(WHOLE) > u128::from(at.0) * u128::from(terms.cap) {
            return Err(short(at, demand));
        }
        // Deadlines from `demand / cap` up to `at` have at most this demand, and enough supply.
        before = narrow((demand * u128::from(WHOLE)).div_ceil(u128::from(terms.cap.max(1))))
            .saturating_sub(Cycles(1));
    }
    Err(short(Cycles::ZERO, 0))
}

/// The largest budget from `least` to `wanted.budget` that would be admitted beside the others.
pub(super) fn largest_budget(
    terms: &Terms,
    others: impl Iterator<Item = Demand> + Clone,
    wanted: Demand,
    least: Cycles,
) -> Option<Cycles> {
    let fits = |budget: u64| {
        let wanted = Demand { budget: Cycles(budget), ..wanted };
        admit(terms, others.clone().chain([wanted])).is_ok()
    };
    let (mut low, mut high) = (least.0, wanted.budget.0);
    if low > high || !fits(low) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    Some(Cycles(low))
}

/// A ratio in parts of [`ONE`], rounded up.
fn part(of: u64, whole: u64) -> u128 {
    (u128::from(of) * ONE).div_ceil(u128::from(whole.max(1)))
}

fn narrow(value: u128) -> Cycles {
    Cycles(u64::try_from(value).unwrap_or(u64::MAX))
}

/// The last deadline of any context that is not after `limit`.
fn last_deadline(
    contexts: &(impl Iterator<Item = Demand> + Clone),
    limit: Cycles,
) -> Option<Cycles> {
    let within = contexts.clone().filter(|context| context.deadline <= limit);
    let last = |one: Demand| Cycles(limit.0 - (limit - one.deadline).0 % one.period.0.max(1));
    within.map(last).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn demand(budget: u64, deadline: u64, period: u64) -> Demand {
        Demand { budget: Cycles(budget), deadline: Cycles(deadline), period: Cycles(period) }
    }

    #[test]
    fn vector_10_density_is_only_sufficient() {
        let set = [demand(50, 50, 100), demand(10, 100, 100)];
        assert_eq!(
            admit(&Terms::IDEAL, set.iter().copied()),
            Ok(()),
            "density 1.1, and EDF meets every deadline"
        );
        let refused = admit(&Terms { cap: 950, ..Terms::IDEAL }, set.iter().copied())
            .expect_err("50 of the first 50 cycles");
        assert_eq!(
            (refused.at, refused.demand, refused.supply),
            (Cycles(50), Cycles(50), Cycles(47))
        );
        assert_eq!(
            (refused.utilisation, refused.cap),
            (600_001, 950_000),
            "rounded up in each part"
        );
    }

    #[test]
    fn vector_11_a_dhall_set_is_placed_by_lane_or_refused() {
        // Two lanes: one heavy task and two light ones with shorter deadlines. Global EDF by
        // utilisation (1.02 of 2) would admit the set and miss.
        let (heavy, light) = (demand(100, 100, 100), demand(1, 99, 99));
        assert_eq!(admit(&Terms::IDEAL, [heavy].into_iter()), Ok(()), "alone on a lane it fits");
        assert!(
            admit(&Terms::IDEAL, [heavy, light].into_iter()).is_err(),
            "beside a light one it does not, whatever other lanes have free"
        );
        assert_eq!(
            admit(&Terms::IDEAL, [light, light].into_iter()),
            Ok(()),
            "the light ones share the other lane"
        );
    }

    #[test]
    fn every_fixed_term_counts() {
        let set = || [demand(400, 500, 1_000)].into_iter();
        let terms = Terms { cap: 1_000, ..Terms::IDEAL };
        assert!(admit(&Terms { blocking: Cycles(100), ..terms }, set()).is_ok());
        assert!(admit(&Terms { blocking: Cycles(101), ..terms }, set()).is_err());
        assert!(admit(&Terms { overrun: Cycles(101), ..terms }, set()).is_err());
        assert!(admit(&Terms { release: Cycles(101), ..terms }, set()).is_err());
        let beside = || set().chain([demand(1, 900, 1_000)]);
        assert!(admit(&Terms { release: Cycles(50), ..terms }, beside()).is_ok());
        assert!(
            admit(&Terms { release: Cycles(51), ..terms }, beside()).is_err(),
            "both releases are booked before the first deadline"
        );
        assert!(
            admit(&Terms { boundary: Some((Cycles(250), Cycles(34))), ..terms }, set()).is_err(),
            "three boundaries in 500 cycles"
        );
        assert!(
            admit(&Terms { boundary: Some((Cycles(250), Cycles(33))), ..terms }, set()).is_ok()
        );
    }

    #[test]
    fn what_would_fit_fits_and_one_more_does_not() {
        let terms = Terms { blocking: Cycles(20), overrun: Cycles(5), cap: 950, ..Terms::IDEAL };
        let others = [demand(100, 300, 400), demand(50, 200, 500)];
        let wanted = demand(900, 600, 1_000);
        let fits = largest_budget(&terms, others.iter().copied(), wanted, Cycles(10))
            .expect("something fits");
        let with =
            |budget| admit(&terms, others.iter().copied().chain([Demand { budget, ..wanted }]));
        assert!(with(fits).is_ok() && with(fits + Cycles(1)).is_err());
        assert_eq!(
            largest_budget(&terms, others.iter().copied(), demand(900, 600, 1_000), Cycles(899)),
            None
        );
    }

    /// The test written as the rule says it: every deadline up to a limit far beyond the busy
    /// period.
    fn admit_naively(terms: &Terms, set: &[Demand], limit: u64) -> bool {
        let mut points: Vec<u64> = Vec::new();
        for context in set {
            points.extend(
                (0..)
                    .map(|k| context.deadline.0 + k * context.period.0)
                    .take_while(|&t| t <= limit),
            );
        }
        points.into_iter().all(|t| {
            terms.demand(&set.iter().copied(), Cycles(t)) * 1_000
                <= u128::from(t) * u128::from(terms.cap)
        })
    }

    #[test]
    fn it_agrees_with_trying_every_deadline() {
        let mut state = 11u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (mut admitted, mut refused) = (0, 0);
        for round in 0..4_000 {
            let terms = Terms {
                blocking: Cycles(below(10)),
                overrun: Cycles(below(4)),
                release: Cycles(below(3)),
                boundary: (below(2) == 0).then(|| (Cycles(50 + below(50)), Cycles(below(3)))),
                cap: 900 + below(101) as u32,
            };
            let set: Vec<Demand> = (0..1 + below(5))
                .map(|_| {
                    let period = 20 + below(60);
                    let deadline = 10 + below(period - 10);
                    demand(1 + below(deadline / 3), deadline, period)
                })
                .collect();
            let utilisation: u128 =
                set.iter().map(|one| part(one.budget.0 + terms.release.0, one.period.0)).sum();
            match admit(&terms, set.iter().copied()) {
                Ok(()) => {
                    admitted += 1;
                    assert!(
                        admit_naively(&terms, &set, 20_000),
                        "round {round}: {set:?} {terms:?}"
                    );
                }
                Err(short) if short.at > Cycles::ZERO => {
                    refused += 1;
                    assert!(
                        !admit_naively(&terms, &set, 20_000),
                        "round {round}: {set:?} {terms:?}"
                    );
                }
                Err(_) => assert!(
                    utilisation * 10 > ONE * 8,
                    "round {round}: refused by utilisation: {set:?}"
                ),
            }
        }
        assert!(admitted > 500 && refused > 500, "both happen: {admitted}, {refused}");
    }
}
