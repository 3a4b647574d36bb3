//! Wait queues: first come, first served, with removal from the middle.
//!
//! Entries carry a rising ticket. The first waiter is stored inline: usually it is the only one,
//! and then nothing is allocated. A removed entry stays as a gap until it reaches the front;
//! `remove` compacts a queue of more than 8 entries when gaps are the majority. Push, pop and
//! remove are amortised O(log n), `extract` is O(n). A gap holds no waiter, so it is never mistaken
//! for one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Deref;

/// The position of one waiter in one [`WaitQueue`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ticket(pub(crate) u64);

/// Waiters and gaps, by ticket.
type Entries<T> = VecDeque<(Ticket, Option<T>)>;

/// Waiters in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct WaitQueue<T> {
    /// The first waiter; `None` if the queue is empty.
    first: Option<T>,
    /// Its ticket.
    ticket: Ticket,
    /// The number of waiters, the first included.
    live: u32,
    /// Later waiters; empty, of gaps too, if there is no first.
    #[allow(clippy::box_collection, reason = "one word, so that a channel is two cache lines")]
    others: Option<Box<Entries<T>>>,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> WaitQueue<T> {
    const EMPTY: Self = Self { first: None, ticket: Ticket(0), live: 0, others: None };

    pub(crate) const fn new() -> Self {
        Self::EMPTY
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.live as usize
    }

    /// Adds a waiter at the tail. Tickets must rise.
    #[inline]
    pub(crate) fn push(&mut self, ticket: Ticket, waiter: T) {
        debug_assert!(self.latest().is_none_or(|last| last < ticket), "tickets rise");
        self.live += 1;
        if self.live == 1 {
            (self.first, self.ticket) = (Some(waiter), ticket);
        } else {
            self.push_other(ticket, waiter);
        }
    }

    #[inline(never)]
    fn push_other(&mut self, ticket: Ticket, waiter: T) {
        self.others.get_or_insert_default().push_back((ticket, Some(waiter)));
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let waiter = self.first.take()?;
        self.live -= 1;
        if self.others.is_some() {
            self.advance();
        }
        Some(waiter)
    }

    /// Moves the first of the others, if any, to the front.
    #[inline(never)]
    fn advance(&mut self) {
        let Some(others) = &mut self.others else { return };
        while let Some((ticket, waiter)) = others.pop_front() {
            if waiter.is_some() {
                (self.first, self.ticket) = (waiter, ticket);
                return;
            }
        }
    }

    /// Takes out the waiter with this ticket.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        if self.ticket == ticket && self.first.is_some() {
            return self.pop();
        }
        let others = self.others.as_mut()?;
        let at = others.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let waiter = others[at].1.take()?;
        self.live -= 1;
        if others.len() > 8 && (self.live as usize) < others.len() / 2 {
            others.retain(|(_, waiter)| waiter.is_some());
        }
        Some(waiter)
    }

    /// Takes out the waiters that `leaves` selects, first come first; the others keep their
    /// tickets.
    pub(crate) fn extract(&mut self, mut leaves: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut());
        for waiter in core::iter::once(&mut self.first).chain(others.map(|(_, waiter)| waiter)) {
            if waiter.as_ref().is_some_and(&mut leaves) {
                taken.extend(waiter.take());
            }
        }
        self.live -= taken.len() as u32;
        if let Some(others) = &mut self.others {
            others.retain(|(_, waiter)| waiter.is_some());
        }
        if self.first.is_none() {
            self.advance();
        }
        taken
    }

    /// The waiters, first come first, to change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut());
        self.first.iter_mut().chain(others.filter_map(|(_, waiter)| waiter.as_mut()))
    }

    /// The last ticket that is still here.
    pub(crate) fn latest(&self) -> Option<Ticket> {
        match self.others.as_ref().and_then(|others| others.back()) {
            Some(&(ticket, _)) => Some(ticket),
            None => self.first.as_ref().map(|_| self.ticket),
        }
    }

    /// The waiters, first come first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tickets().map(|(_, waiter)| waiter)
    }

    /// The waiters with their tickets, first come first.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let others = self
            .others
            .iter()
            .flat_map(|others| others.iter())
            .filter_map(|(ticket, waiter)| waiter.as_ref().map(|waiter| (*ticket, waiter)));
        self.first.iter().map(|waiter| (self.ticket, waiter)).chain(others)
    }
}

/// A [`WaitQueue`] that is rarely used: one word until the first waiter. Reads as an empty queue
/// before.
#[derive(Clone, Debug)]
pub(crate) struct SeldomQueue<T>(Option<Box<WaitQueue<T>>>);

impl<T> Deref for SeldomQueue<T> {
    type Target = WaitQueue<T>;

    fn deref(&self) -> &WaitQueue<T> {
        self.0.as_deref().unwrap_or(&WaitQueue::EMPTY)
    }
}

impl<T> SeldomQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.is_empty())
    }

    pub(crate) fn push(&mut self, ticket: Ticket, waiter: T) {
        self.0.get_or_insert_default().push(ticket, waiter);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.as_mut()?.pop()
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.0.as_mut()?.remove(ticket)
    }

    pub(crate) fn extract(&mut self, leaves: impl FnMut(&T) -> bool) -> Vec<T> {
        self.0.as_mut().map_or_else(Vec::new, |queue| queue.extract(leaves))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|queue| queue.iter_mut())
    }
}

impl<T> From<WaitQueue<T>> for SeldomQueue<T> {
    fn from(queue: WaitQueue<T>) -> Self {
        Self((!queue.is_empty()).then(|| Box::new(queue)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_gaps_are_empty() {
        let mut queue = WaitQueue::new();
        for number in 0..100u64 {
            queue.push(Ticket(number), number);
        }
        for number in (0..100).filter(|number| number % 3 != 0) {
            assert_eq!(queue.remove(Ticket(number)), Some(number));
            assert_eq!(queue.remove(Ticket(number)), None);
        }
        assert_eq!(queue.live, 34);
        assert!(
            queue.others.as_ref().is_some_and(|others| others.len() <= 2 * queue.live as usize)
        );
        let left: Vec<u64> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(left, (0..100).filter(|number| number % 3 == 0).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.front().is_none());
    }

    /// Against a plain list, with everything that can be done to a queue.
    #[test]
    fn it_is_a_list_with_tickets() {
        let (mut queue, mut list, mut random) = (WaitQueue::new(), Vec::<u64>::new(), 1u64);
        for ticket in 0..20_000u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let choice = random >> 33;
            match choice % 8 {
                0..3 => {
                    queue.push(Ticket(ticket), ticket);
                    list.push(ticket);
                }
                3 | 4 => assert_eq!(queue.pop(), (!list.is_empty()).then(|| list.remove(0))),
                5 | 6 if !list.is_empty() => {
                    let ticket = list.remove(choice as usize / 8 % list.len());
                    assert_eq!(
                        (queue.remove(Ticket(ticket)), queue.remove(Ticket(ticket))),
                        (Some(ticket), None)
                    );
                }
                7 if choice % 64 == 7 => {
                    let taken = queue.extract(|waiter| waiter % 3 == 0);
                    assert_eq!(
                        taken,
                        list.extract_if(.., |waiter| *waiter % 3 == 0).collect::<Vec<_>>()
                    );
                }
                _ => {}
            }
            assert_eq!((queue.front(), queue.is_empty()), (list.first(), list.is_empty()));
            assert!(
                queue
                    .tickets()
                    .map(|(ticket, &waiter)| (ticket.0, waiter))
                    .eq(list.iter().map(|&waiter| (waiter, waiter)))
            );
            assert!(queue.iter_mut().map(|waiter| *waiter).eq(list.iter().copied()));
            assert!(
                queue.latest() >= list.last().map(|&last| Ticket(last))
                    && (!list.is_empty()
                        || queue.others.as_ref().is_none_or(|others| others.is_empty()))
            );
        }
    }
}
