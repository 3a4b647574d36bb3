//! A work queue from the coordinator to one worker, from which other threads may steal: the only
//! unsafe code of this crate.
//!
//! The state of a [`Queue`] is one word: `epoch | parked | count | next`.
//!
//! ```text
//!   offer (coordinator)      writes items 0..count, then swaps in a new epoch with `next` 0;
//!                            returns whether the worker was parked
//!   claim (any thread)       increments `next`: that item belongs to the claimer
//!   complete (claimer)       writes the item back to its cell, then increments `done`
//!   collect (coordinator)    takes all items once `done` is `count`
//!   prepare_park (worker)    sets `parked` if nothing is left to claim; the next offer clears it
//! ```
//!
//! A cell is accessed by the coordinator after it collected all, then by its one claimer, then by
//! the coordinator again. The offer's release pairs with the claim's acquire, the release of `done`
//! with the collect's acquire, so accesses never overlap. A thread that loaded an earlier epoch
//! cannot claim: its compare-exchange fails.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// `next` is the lowest 16 bits, `count` the 16 above.
const COUNT_AT: u32 = 16;
const FIELD: u64 = 0xffff;
const PARKED: u64 = 1 << 32;
/// The epoch is the rest. An ABA failure needs all 2^31 epochs between one thread's load and its
/// compare-exchange.
const EPOCH: u64 = 1 << 33;

/// A value on a cache line of its own, against false sharing.
#[repr(align(64))]
struct CacheLine<T>(T);

/// Items for one worker, shared by all threads.
pub(crate) struct Queue<T> {
    state: CacheLine<AtomicU64>,
    done: CacheLine<AtomicU32>,
    items: Box<[UnsafeCell<Option<T>>]>,
}

// SAFETY: by the protocol above, one thread at a time accesses a cell; the items themselves move
// between threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Queue<T> {}

/// The state of the worker at an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// It is awake and will see the items.
    Awake,
    /// It is parked: the caller must unpark it.
    Parked,
}

const fn next_of(state: u64) -> usize {
    (state & FIELD) as usize
}

const fn count_of(state: u64) -> usize {
    (state >> COUNT_AT & FIELD) as usize
}

impl<T> Queue<T> {
    /// A queue for up to `capacity` items, at most 65,535.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity as u64 <= FIELD, "a queue counts in sixteen bits");
        let items = (0..capacity).map(|_| UnsafeCell::new(None)).collect();
        Self { state: CacheLine(AtomicU64::new(0)), done: CacheLine(AtomicU32::new(0)), items }
    }

    /// Coordinator, after it collected all: offers items, up to the capacity.
    pub(crate) fn offer(&self, items: impl ExactSizeIterator<Item = T>) -> Offered {
        let count = items.len();
        assert!(count <= self.items.len(), "more items than the queue's capacity");
        for (cell, item) in self.items.iter().zip(items) {
            // SAFETY: all earlier items were claimed, completed and collected, so no other thread
            // accesses any cell.
            cell.with_mut(|cell| unsafe { *cell = Some(item) });
        }
        self.done.0.store(0, Ordering::Relaxed);
        let epoch = (self.state.0.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        let before = self.state.0.swap(epoch | (count as u64) << COUNT_AT, Ordering::AcqRel);
        if before & PARKED == 0 { Offered::Awake } else { Offered::Parked }
    }

    /// Any thread: an unclaimed item, and its index for [`Queue::complete`].
    pub(crate) fn claim(&self) -> Option<(usize, T)> {
        let mut state = self.state.0.load(Ordering::Acquire);
        loop {
            let index = next_of(state);
            if index >= count_of(state) {
                return None;
            }
            match self.state.0.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                // SAFETY: only one thread increments `next` past this index in this epoch, and the
                // acquire saw the coordinator's write.
                Ok(_) => {
                    return self.items[index]
                        .with_mut(|cell| unsafe { (*cell).take() })
                        .map(|item| (index, item));
                }
                Err(found) => state = found,
            }
        }
    }

    /// Claimer: returns an item.
    pub(crate) fn complete(&self, index: usize, item: T) {
        // SAFETY: the cell belongs to the claimer until `done` is incremented below.
        self.items[index].with_mut(|cell| unsafe { *cell = Some(item) });
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// Coordinator: takes all items back if all are completed.
    pub(crate) fn collect(&self, take: impl FnMut(T)) -> bool {
        // Only the coordinator changes the count.
        let count = count_of(self.state.0.load(Ordering::Relaxed));
        if self.done.0.load(Ordering::Acquire) as usize != count {
            return false;
        }
        // SAFETY: every item is completed, and the acquire above saw what each claimer wrote.
        self.items[..count]
            .iter()
            .filter_map(|cell| cell.with_mut(|cell| unsafe { (*cell).take() }))
            .for_each(take);
        true
    }

    /// Worker: sets `parked` unless an item can be claimed. `true` if it may park; after waking it
    /// must try to claim again.
    pub(crate) fn prepare_park(&self) -> bool {
        let state = self.state.0.load(Ordering::Relaxed);
        if next_of(state) < count_of(state) {
            return false;
        }
        state & PARKED != 0
            || self
                .state
                .0
                .compare_exchange(state, state | PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}
