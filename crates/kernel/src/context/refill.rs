//! The refill ring: the replenishment state of one context's budget, with the rules of sporadic
//! servers as in seL4 MCS.
//!
//! Contract: the amounts always sum to the budget; entries are ordered and do not overlap; there
//! are between one and `capacity` of them. What is used is replenished one period after it became
//! usable. A full ring delays budget and never loses it. Plain data in a fixed array: nothing here
//! allocates.
//!
//! Elsewhere: when a context is charged or activated, and what depletion does (`enforce`).

use wavelock_abi::Cycles;

/// The most entries of a ring.
const MOST_REFILLS: usize = 8;
/// Capacities of a ring: at least one entry for what is left and one for what was used.
pub(crate) const CAPACITIES: core::ops::RangeInclusive<u8> = 2..=MOST_REFILLS as u8;

/// A part of a budget, and the time from which it is usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refill {
    /// Cycles.
    pub amount: Cycles,
    /// Usable from this lane clock on.
    pub at: Cycles,
}

impl Refill {
    const fn end(self) -> Cycles {
        self.at.saturating_add(self.amount)
    }

    const fn delayed(self, by: Cycles) -> Self {
        Self { amount: self.amount, at: self.at.saturating_add(by) }
    }
}

/// The result of a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charged {
    /// The head was used up: another refill is the head now.
    pub exhausted: bool,
    /// Cycles beyond the head, taken from later refills.
    pub overrun: Cycles,
}

/// The refills of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefillRing {
    entries: [Refill; MOST_REFILLS],
    count: u8,
    capacity: u8,
    budget: Cycles,
    period: Cycles,
    /// A head below this, which could not be enforced, is merged into the next entry.
    least: Cycles,
}

impl RefillRing {
    /// A ring of `capacity` entries with the full budget, usable from `now` on.
    ///
    /// # Panics
    /// When the capacity is out of range, or the budget is below `least`.
    #[must_use]
    pub fn new(budget: Cycles, period: Cycles, capacity: u8, least: Cycles, now: Cycles) -> Self {
        assert!(CAPACITIES.contains(&capacity) && budget >= least && budget > Cycles::ZERO);
        let mut entries = [Refill::default(); MOST_REFILLS];
        entries[0] = Refill { amount: budget, at: now };
        Self { entries, count: 1, capacity, budget, period, least }
    }

    /// A ring from plain data; `None` if no ring has these refills.
    pub(crate) fn from_refills(
        refills: &[Refill],
        period: Cycles,
        capacity: u8,
        least: Cycles,
    ) -> Option<Self> {
        let count =
            u8::try_from(refills.len()).ok().filter(|count| (1..=capacity).contains(count))?;
        let mut entries = [Refill::default(); MOST_REFILLS];
        entries.get_mut(..refills.len())?.copy_from_slice(refills);
        let budget = refills.iter().try_fold(0u64, |sum, one| sum.checked_add(one.amount.0))?;
        let ring = Self { entries, count, capacity, budget: Cycles(budget), period, least };
        (CAPACITIES.contains(&capacity) && ring.is_sound()).then_some(ring)
    }

    /// The refills, the head first.
    #[must_use]
    pub fn refills(&self) -> &[Refill] {
        &self.entries[..usize::from(self.count)]
    }

    /// The refill in use, or usable next.
    #[must_use]
    pub const fn head(&self) -> Refill {
        self.entries[0]
    }

    /// The sum of the amounts.
    pub(crate) const fn budget(&self) -> Cycles {
        self.budget
    }

    /// Whether the head is usable.
    #[must_use]
    pub fn is_ready(&self, now: Cycles) -> bool {
        self.head().at <= now
    }

    /// The activation step: a ready head gets the time `now`, and entries that it then overlaps are
    /// merged into it. Without this a context could save up its budget and use twice as much in one
    /// period.
    pub fn activate(&mut self, now: Cycles) {
        if self.is_ready(now) {
            self.entries[0].at = now;
            self.merge_reached();
        }
    }

    /// Merges into the head the entries that its end reaches.
    fn merge_reached(&mut self) {
        while self.count > 1 && self.entries[0].end() >= self.entries[1].at {
            let head = self.pop();
            self.entries[0] = Refill { amount: head.amount + self.entries[0].amount, at: head.at };
        }
    }

    /// Charges `used` to the refills and schedules its replenishment a period later.
    pub fn charge(&mut self, used: Cycles) -> Charged {
        let mut left = used;
        let mut charged =
            Charged { exhausted: false, overrun: used.saturating_sub(self.head().amount) };
        while left >= self.head().amount {
            charged.exhausted = true;
            left -= self.head().amount;
            let replenished = self.head().delayed(self.period);
            if self.count == 1 {
                self.entries[0] = replenished;
            } else {
                self.pop();
                self.append(replenished);
            }
        }
        if left > Cycles::ZERO {
            let Refill { amount, at } = self.head();
            self.entries[0] = Refill { amount: amount - left, at }.delayed(left);
            self.append(Refill { amount: left, at }.delayed(self.period));
        }
        while self.head().amount < self.least && self.count > 1 {
            let head = self.pop();
            let Refill { amount, at } = self.head();
            // Earlier by the merged amount, so that it does not end later.
            self.entries[0] =
                Refill { amount: amount + head.amount, at: at.saturating_sub(head.amount) };
            charged.exhausted = true;
        }
        self.merge_reached();
        charged
    }

    /// Appends at the tail.
    fn append(&mut self, new: Refill) {
        let last = usize::from(self.count) - 1;
        let tail = self.entries[last];
        if tail.end() >= new.at {
            self.entries[last].amount = tail.amount + new.amount;
        } else if self.count < self.capacity {
            self.entries[last + 1] = new;
            self.count += 1;
        } else {
            // Full: the tail is delayed until the new entry.
            self.entries[last] =
                Refill { amount: tail.amount + new.amount, at: new.at.saturating_sub(tail.amount) };
        }
    }

    fn pop(&mut self) -> Refill {
        let head = self.entries[0];
        self.entries.copy_within(1..usize::from(self.count), 0);
        self.count -= 1;
        head
    }

    /// What was used and is not replenished at `now`.
    pub(crate) fn outstanding(&self, now: Cycles) -> Cycles {
        let pending = self.refills().iter().filter(|refill| refill.at > now);
        pending.fold(Cycles::ZERO, |sum, refill| sum + refill.amount)
    }

    /// Changes budget and period of a ring in use: the head stays (trimmed to the new budget), the
    /// difference is replenished a new period later.
    pub(crate) fn reconfigure(
        &mut self,
        budget: Cycles,
        period: Cycles,
        capacity: u8,
        now: Cycles,
    ) {
        let Refill { amount, at } = self.head();
        let head = Refill { amount: amount.min(budget), at: at.max(now) };
        self.entries[0] = head;
        (self.count, self.capacity, self.budget, self.period) = (1, capacity, budget, period);
        if head.amount < budget {
            self.append(Refill { amount: budget - head.amount, at: head.at }.delayed(period));
        }
    }

    /// Whether the amounts sum to the budget and the entries are ordered, apart and not empty.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let refills = self.refills();
        let sum = |sum: Cycles, refill: &Refill| sum.saturating_add(refill.amount);
        let ordered = refills.windows(2).all(|pair| pair[0].end() <= pair[1].at);
        refills.iter().fold(Cycles::ZERO, sum) == self.budget
            && ordered
            && refills.iter().all(|refill| refill.amount > Cycles::ZERO)
            && self.count <= self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ring(budget: u64, period: u64, capacity: u8) -> RefillRing {
        RefillRing::new(Cycles(budget), Cycles(period), capacity, Cycles(1), Cycles(0))
    }

    fn shown(ring: &RefillRing) -> Vec<(u64, u64)> {
        assert!(ring.is_sound(), "{ring:?}");
        ring.refills().iter().map(|refill| (refill.amount.0, refill.at.0)).collect()
    }

    #[test]
    fn vector_6_partial_use_and_a_late_wake() {
        let mut ring = ring(5, 10, 4);
        ring.charge(Cycles(3));
        assert_eq!(shown(&ring), [(2, 3), (3, 10)]);
        ring.activate(Cycles(6));
        assert_eq!(shown(&ring), [(2, 6), (3, 10)]);
        ring.charge(Cycles(2));
        assert_eq!(shown(&ring), [(3, 10), (2, 16)]);
        assert!(!ring.is_ready(Cycles(8)) && ring.is_ready(Cycles(10)));
    }

    #[test]
    fn vector_7_a_full_ring_delays_its_tail() {
        let mut ring = ring(6, 12, 2);
        ring.charge(Cycles(1));
        assert_eq!(shown(&ring), [(5, 1), (1, 12)]);
        ring.activate(Cycles(3));
        ring.charge(Cycles(1));
        assert_eq!(shown(&ring), [(4, 4), (2, 14)]);
    }

    #[test]
    fn an_overrun_is_taken_from_later_refills() {
        let mut ring = ring(5, 10, 4);
        let charged = ring.charge(Cycles(7));
        assert_eq!(charged, Charged { exhausted: true, overrun: Cycles(2) });
        assert_eq!(
            shown(&ring),
            [(3, 12), (2, 20)],
            "the whole budget at 10, of which 2 were used ahead"
        );
    }

    #[test]
    fn a_head_too_small_to_enforce_joins_the_next() {
        let mut ring = RefillRing::new(Cycles(100), Cycles(1_000), 4, Cycles(10), Cycles(0));
        let charged = ring.charge(Cycles(95));
        assert!(charged.exhausted);
        assert_eq!(shown(&ring), [(100, 995)]);
    }

    #[test]
    fn a_new_configuration_keeps_the_head() {
        let mut ring = ring(50, 100, 4);
        ring.charge(Cycles(20));
        ring.reconfigure(Cycles(60), Cycles(200), 4, Cycles(30));
        assert_eq!(shown(&ring), [(30, 30), (30, 230)]);
        ring.reconfigure(Cycles(10), Cycles(200), 4, Cycles(40));
        assert_eq!(shown(&ring), [(10, 40)]);
        assert_eq!(ring.outstanding(Cycles(39)), Cycles(10));
    }
}
