//! First come, first served, with removal from the middle: who waits at a channel, in the order they came.
//!
//! Entries carry a rising ticket. A removed entry stays as a gap until it reaches the front or gaps are the majority, when the
//! queue is packed; the front is never a gap. So every operation is O(log n) amortised and memory is at most twice what waits.
//! A gap can never be mistaken for a waiter: it holds nothing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The place of one waiter in one [`WaitQueue`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ticket(pub(crate) u64);

/// Waiters in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct WaitQueue<T> {
    pub(crate) entries: VecDeque<(Ticket, Option<T>)>,
    pub(crate) live: usize,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> WaitQueue<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: VecDeque::new(), live: 0 }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a waiter at the tail. Tickets must rise.
    pub(crate) fn push(&mut self, ticket: Ticket, waiter: T) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < ticket), "tickets rise");
        self.entries.push_back((ticket, Some(waiter)));
        self.live += 1;
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.entries.front().and_then(|(_, waiter)| waiter.as_ref())
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (_, waiter) = self.entries.pop_front()?;
        self.live -= 1;
        self.trim();
        waiter
    }

    /// Drops gaps at the front, so that whoever comes first can be seen at once.
    fn trim(&mut self) {
        while self.entries.front().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.entries.pop_front();
        }
    }

    /// Takes the waiter with this ticket out, wherever it stands.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let at = self.entries.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let waiter = self.entries[at].1.take()?;
        self.live -= 1;
        self.trim();
        if self.entries.len() > 8 && self.live < self.entries.len() / 2 {
            self.entries.retain(|(_, waiter)| waiter.is_some());
        }
        Some(waiter)
    }

    /// Takes out everyone `leaves` says, first come first; the others keep their tickets.
    pub(crate) fn extract(&mut self, mut leaves: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for (_, waiter) in &mut self.entries {
            if waiter.as_ref().is_some_and(&mut leaves) {
                taken.extend(waiter.take());
            }
        }
        self.live -= taken.len();
        self.entries.retain(|(_, waiter)| waiter.is_some());
        taken
    }

    /// The waiters, first come first, to change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|(_, waiter)| waiter.as_mut())
    }

    /// The last ticket that is still here.
    pub(crate) fn latest(&self) -> Option<Ticket> {
        self.entries.back().map(|(ticket, _)| *ticket)
    }

    /// The waiters with their tickets, first come first.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.entries.iter().filter_map(|(ticket, waiter)| waiter.as_ref().map(|waiter| (*ticket, waiter)))
    }

    /// The waiters, first come first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_gaps_hold_nobody() {
        let mut queue = WaitQueue::new();
        for number in 0..100u64 {
            queue.push(Ticket(number), number);
        }
        for number in (0..100).filter(|number| number % 3 != 0) {
            assert_eq!(queue.remove(Ticket(number)), Some(number));
            assert_eq!(queue.remove(Ticket(number)), None);
        }
        assert_eq!(queue.live, 34);
        assert!(queue.entries.len() <= 2 * queue.live);
        let left: Vec<u64> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(left, (0..100).filter(|number| number % 3 == 0).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.front().is_none());
    }
}
