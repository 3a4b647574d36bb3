//! Budgets as counters: the usable budget of a context, falling while its holder runs and rising
//! with each refill.
//!
//! The events of a trace tell when a refill was used up and when one made a throttled holder ready.
//! The budget in between is the state of the refill ring, which the caller samples after each step.
//! The ring also contains the times at which refills become usable, so the counter is exact at
//! every sample and at every refill.

use std::collections::BTreeMap;

/// A sample of one context: its slot on the lane and its refills.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Its slot on the lane.
    pub slot: u32,
    /// Amount, and the lane clock from which it can be used.
    pub refills: Vec<(u64, u64)>,
}

impl Budget {
    /// The usable budget at a lane clock.
    fn usable(&self, at: u64) -> u64 {
        self.refills
            .iter()
            .filter(|(_, from)| *from <= at)
            .fold(0, |sum, (amount, _)| sum.saturating_add(*amount))
    }
}

/// A value of a context's counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub(crate) slot: u32,
    pub(crate) at: u64,
    pub(crate) cycles: u64,
}

/// The last written value, by lane and slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    last: BTreeMap<(u16, u32), (u64, u64, Budget)>,
}

impl Budgets {
    /// The values since the last sample of this lane, in order by context.
    pub(crate) fn sample(&mut self, lane: u16, clock: u64, contexts: &[Budget]) -> Vec<Value> {
        let mut values = Vec::new();
        for context in contexts {
            let slot = context.slot;
            let known = self.last.get(&(lane, slot));
            let (since, mut shown) =
                known.map_or((clock, None), |(since, shown, _)| (*since, Some(*shown)));
            let mut show = |at: u64, cycles: u64| {
                if shown != Some(cycles) {
                    shown = Some(cycles);
                    values.push(Value { slot, at, cycles });
                }
            };
            if let Some((_, _, before)) = known {
                let mut due: Vec<u64> = before
                    .refills
                    .iter()
                    .map(|(_, from)| *from)
                    .filter(|from| (since + 1..=clock).contains(from))
                    .collect();
                due.sort_unstable();
                due.iter().for_each(|&at| show(at, before.usable(at)));
            }
            show(clock, context.usable(clock));
            self.last.insert((lane, slot), (clock, context.usable(clock), context.clone()));
        }
        // A context that was removed has no budget.
        let gone: Vec<u32> =
            self.last.range((lane, 0)..=(lane, u32::MAX)).map(|(&(_, slot), _)| slot).collect();
        for slot in
            gone.into_iter().filter(|slot| contexts.iter().all(|context| context.slot != *slot))
        {
            if self.last.remove(&(lane, slot)).is_some_and(|(_, shown, _)| shown > 0) {
                values.push(Value { slot, at: clock, cycles: 0 });
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_falls_and_rises_at_its_refill_times() {
        let mut budgets = Budgets::default();
        let mut sample = |clock: u64, contexts: &[Budget]| -> Vec<(u64, u64)> {
            budgets
                .sample(0, clock, contexts)
                .iter()
                .map(|value| (value.at, value.cycles))
                .collect()
        };
        let ring = |refills: &[(u64, u64)]| [Budget { slot: 3, refills: refills.to_vec() }];
        assert_eq!(sample(0, &ring(&[(5_000, 0)])), [(0, 5_000)]);
        assert_eq!(sample(10, &ring(&[(5_000, 0)])), []);
        assert_eq!(sample(3_000, &ring(&[(2_000, 3_000), (3_000, 10_000)])), [(3_000, 2_000)]);
        assert_eq!(sample(5_000, &ring(&[(3_000, 10_000), (2_000, 13_000)])), [(5_000, 0)]);
        assert_eq!(
            sample(20_000, &ring(&[(3_000, 10_000), (2_000, 13_000)])),
            [(10_000, 3_000), (13_000, 5_000)]
        );
        assert_eq!(sample(21_000, &[]), [(21_000, 0)]);
        assert_eq!(sample(22_000, &[]), []);
    }
}
