//! Cycles along paths: a monoid of two numbers, from which the analysis is composed.

/// The most that is charged, above which sums saturate: a worst case this large is none.
pub(super) const MOST: u64 = 1 << 62;

/// The most cycles on any path from a start to a point. `None`: there is no such path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reach {
    /// On paths without a wait.
    pub(super) fresh: Option<u64>,
    /// Since the last wait, on paths with one.
    pub(super) since: Option<u64>,
}

fn sum(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    Some(left?.saturating_add(right?).min(MOST))
}

impl Reach {
    /// No path.
    pub(super) const NONE: Self = Self { fresh: None, since: None };
    /// The start itself.
    pub(super) const START: Self = Self { fresh: Some(0), since: None };

    /// A path of this many cycles.
    pub(super) const fn cycles(cycles: u64) -> Self {
        Self { fresh: Some(cycles), since: None }
    }

    /// A path from the start of `self` to its end, then one of `next`. Associative.
    pub(super) fn then(self, next: Self) -> Self {
        Self {
            fresh: sum(self.fresh, next.fresh),
            since: sum(self.since, next.fresh).max(next.since),
        }
    }

    /// The longer of two.
    pub(super) fn max(self, other: Self) -> Self {
        Self { fresh: self.fresh.max(other.fresh), since: self.since.max(other.since) }
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The longest part of a path that has no wait inside.
    pub(super) fn longest(self) -> u64 {
        self.fresh.max(self.since).unwrap_or(0)
    }
}
