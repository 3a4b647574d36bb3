//! How often each scheduler operation was booked.
//!
//! Nearly every step begins with a pick and a switch. So of these two only the difference from the
//! lane's steps is kept, and a step of the short ways, which is both, is counted by the step alone.
//! Contract: [`Booked::count`] and [`Booked::all`] give the numbers themselves.

use wavelock_abi::SchedulerOperation;

const OPERATIONS: usize = SchedulerOperation::ALL.len();

/// Counts of operations, in table order; of picks and switches how many more than steps (wrapping:
/// there may be fewer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Booked([u64; OPERATIONS]);

impl Booked {
    /// Nothing was booked, and no step made.
    pub(crate) const NONE: Self = Self([0; OPERATIONS]);

    /// These counts, after so many steps.
    pub(crate) fn of(mut counts: [u64; OPERATIONS], steps: u64) -> Self {
        for operation in [SchedulerOperation::Pick, SchedulerOperation::Switch] {
            counts[operation as usize] = counts[operation as usize].wrapping_sub(steps);
        }
        Self(counts)
    }

    /// How often an operation was booked, after so many steps.
    #[inline(always)]
    pub(crate) const fn count(&self, operation: SchedulerOperation, steps: u64) -> u64 {
        let count = self.0[operation as usize];
        match operation {
            SchedulerOperation::Pick | SchedulerOperation::Switch => count.wrapping_add(steps),
            _ => count,
        }
    }

    /// All counts, after so many steps.
    pub(crate) fn all(&self, steps: u64) -> [u64; OPERATIONS] {
        let mut counts = [0; OPERATIONS];
        for (&operation, count) in SchedulerOperation::ALL.iter().zip(&mut counts) {
            *count = self.count(operation, steps);
        }
        counts
    }

    /// Books an operation.
    #[inline(always)]
    pub(crate) const fn book(&mut self, operation: SchedulerOperation) {
        self.book_some(operation, 1);
    }

    /// Books an operation so many times.
    #[inline(always)]
    pub(crate) const fn book_some(&mut self, operation: SchedulerOperation, times: u64) {
        self.0[operation as usize] = self.0[operation as usize].wrapping_add(times);
    }

    /// There is one more step, and this operation was no part of it, or was booked for it already.
    #[inline(always)]
    pub(crate) const fn step_without(&mut self, operation: SchedulerOperation) {
        self.0[operation as usize] = self.0[operation as usize].wrapping_sub(1);
    }
}
