//! Assignment of groups to threads, by the groups' cost in their last wave. It changes speed and
//! nothing else.

use std::cmp::Reverse;
use wavelock_system::Group;

/// Waves between two assignments: a group that stays on its thread stays in that core's cache.
const WAVES_PER_ASSIGNMENT: u32 = 16;

/// Expected costs are capped here, so that sums over groups that never ran do not overflow.
const MAX_COST: u64 = 1 << 40;

/// The assignment, and buffers to compute it.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    threads: Vec<usize>,
    costs: Vec<u64>,
    loads: Vec<u64>,
    order: Vec<usize>,
    working: u64,
    age: u32,
}

impl Assignment {
    /// By group: its thread.
    pub(crate) fn threads(&self) -> &[usize] {
        &self.threads
    }

    /// Groups with work, as of the last [`Assignment::update`].
    pub(crate) const fn working(&self) -> u64 {
        self.working
    }

    /// Updates the assignment for an open wave. Returns the expected cycles of all threads but the
    /// busiest.
    #[allow(clippy::vec_box, reason = "the slice is of the world's boxes")]
    pub(crate) fn update(&mut self, groups: &[Box<Group>], width: usize) -> u64 {
        self.costs.clear();
        self.costs.extend(groups.iter().map(|group| {
            if group.has_work() { group.last_cost().0.clamp(1, MAX_COST) } else { 0 }
        }));
        self.balance(width)
    }

    fn balance(&mut self, width: usize) -> u64 {
        self.working = self.costs.iter().filter(|&&cost| cost > 0).count() as u64;
        self.loads.clear();
        self.loads.resize(width, 0);
        self.age += 1;
        if self.threads.len() != self.costs.len() || self.age >= WAVES_PER_ASSIGNMENT {
            self.age = 0;
            self.assign();
        } else {
            self.costs
                .iter()
                .zip(&self.threads)
                .for_each(|(cost, &thread)| self.loads[thread] += cost);
        }
        let total: u64 = self.loads.iter().sum();
        total - self.loads.iter().copied().max().unwrap_or(0)
    }

    /// Greedy: heaviest group first, each to the least loaded thread, the first of equals.
    fn assign(&mut self) {
        let costs = &self.costs;
        self.order.clear();
        self.order.extend(0..costs.len());
        self.order.sort_by_key(|&group| Reverse(costs[group]));
        self.threads.resize(costs.len(), 0);
        for &group in &self.order {
            let least = (0..self.loads.len()).min_by_key(|&thread| self.loads[thread]).unwrap_or(0);
            self.threads[group] = least;
            self.loads[least] += costs[group];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(assignment: &mut Assignment, costs: &[u64], width: usize) -> u64 {
        assignment.costs = costs.into();
        assignment.balance(width)
    }

    #[test]
    fn the_heaviest_group_has_a_thread_of_its_own() {
        let mut assignment = Assignment::default();
        assert_eq!(balance(&mut assignment, &[10, 100, 20, 30], 2), 60);
        assert_eq!((assignment.threads(), assignment.working()), (&[1, 0, 1, 1][..], 4));
        assert_eq!(
            balance(&mut assignment, &[0, 100, 0, 0], 2),
            0,
            "one group leaves nothing for a second thread"
        );
        assert_eq!(assignment.working(), 1);
    }

    #[test]
    fn groups_stay_on_their_threads_for_some_waves() {
        let mut assignment = Assignment::default();
        balance(&mut assignment, &[1, 100, 1, 1], 2);
        let first = assignment.threads().to_vec();
        for _ in 1..WAVES_PER_ASSIGNMENT {
            balance(&mut assignment, &[100, 1, 1, 1], 2);
            assert_eq!(assignment.threads(), first);
        }
        balance(&mut assignment, &[100, 1, 1, 1], 2);
        assert_ne!(assignment.threads(), first, "then costs are considered again");
    }
}
