//! Which thread runs which group: by what groups cost when they last ran. It changes speed and
//! nothing else.

use std::cmp::Reverse;
use wavelock_system::Group;

/// Waves between two looks at the assignment: a group that stays with its thread stays in that
/// core's cache.
const WAVES_PER_ASSIGNMENT: u32 = 16;

/// Expected costs are cut here, so that sums of groups that never ran do not overflow.
const MOST: u64 = 1 << 40;

/// The assignment, kept from wave to wave with the space to make it.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    places: Vec<usize>,
    costs: Vec<u64>,
    loads: Vec<u64>,
    order: Vec<usize>,
    working: u64,
    age: u32,
}

impl Assignment {
    /// By group: its thread.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Groups with work, as of the last look.
    pub(crate) const fn working(&self) -> u64 {
        self.working
    }

    /// Looks at the groups of an open wave. Gives the cycles that all threads but the busiest can
    /// expect.
    #[allow(clippy::vec_box, reason = "the slice is of the world's boxes")]
    pub(crate) fn look(&mut self, groups: &[Box<Group>], width: usize) -> u64 {
        self.costs.clear();
        self.costs.extend(
            groups
                .iter()
                .map(|group| if group.has_work() { group.last_cost().0.clamp(1, MOST) } else { 0 }),
        );
        self.weigh(width)
    }

    fn weigh(&mut self, width: usize) -> u64 {
        self.working = self.costs.iter().filter(|&&cost| cost > 0).count() as u64;
        self.loads.clear();
        self.loads.resize(width, 0);
        self.age += 1;
        if self.places.len() != self.costs.len() || self.age >= WAVES_PER_ASSIGNMENT {
            self.age = 0;
            self.assign();
        } else {
            self.costs
                .iter()
                .zip(&self.places)
                .for_each(|(cost, &thread)| self.loads[thread] += cost);
        }
        let total: u64 = self.loads.iter().sum();
        total - self.loads.iter().copied().max().unwrap_or(0)
    }

    /// Heaviest first, each to the least loaded thread; among equals the first.
    fn assign(&mut self) {
        let costs = &self.costs;
        self.order.clear();
        self.order.extend(0..costs.len());
        self.order.sort_by_key(|&group| Reverse(costs[group]));
        self.places.resize(costs.len(), 0);
        for &group in &self.order {
            let least = (0..self.loads.len()).min_by_key(|&thread| self.loads[thread]).unwrap_or(0);
            self.places[group] = least;
            self.loads[least] += costs[group];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(assignment: &mut Assignment, costs: &[u64], width: usize) -> u64 {
        assignment.costs = costs.into();
        assignment.weigh(width)
    }

    #[test]
    fn the_heaviest_goes_alone_and_the_rest_is_beside_it() {
        let mut assignment = Assignment::default();
        assert_eq!(weigh(&mut assignment, &[10, 100, 20, 30], 2), 60);
        assert_eq!((assignment.places(), assignment.working()), (&[1, 0, 1, 1][..], 4));
        assert_eq!(
            weigh(&mut assignment, &[0, 100, 0, 0], 2),
            0,
            "nothing beside the heaviest is nothing for a thread"
        );
        assert_eq!(assignment.working(), 1);
    }

    #[test]
    fn groups_stay_where_they_are_for_some_waves() {
        let mut assignment = Assignment::default();
        weigh(&mut assignment, &[1, 100, 1, 1], 2);
        let first = assignment.places().to_vec();
        for _ in 1..WAVES_PER_ASSIGNMENT {
            weigh(&mut assignment, &[100, 1, 1, 1], 2);
            assert_eq!(assignment.places(), first);
        }
        weigh(&mut assignment, &[100, 1, 1, 1], 2);
        assert_ne!(assignment.places(), first, "then the costs are looked at again");
    }
}
