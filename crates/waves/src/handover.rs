//! Work handed by the coordinator to one worker, which other threads may take off its hands: the
//! only unsafe code of this crate.
//!
//! One word of a [`Queue`] says how far it is: `epoch | parked | count | next`.
//!
//! ```text
//!   offer (coordinator)      writes items 0..count, then swaps in a new epoch with `next` 0; if
//!                            the worker was parked, wakes it
//!   claim (any thread)       moves `next` up by one: that item is the claimer's alone
//!   give_back (claimer)      puts the item back in its place, then counts it as done
//!   collect (coordinator)    once as many are done as were offered, takes them back
//!   announce_sleep (worker)  sets `parked` if nothing is left to claim; the next offer clears it
//! ```
//!
//! An item is written by the coordinator while the queue is collected, then touched by its one
//! claimer, then by the coordinator again. The offer's release is seen by the claim's acquire, the
//! done count's release by the collect's acquire, so accesses never overlap. A thread that looked
//! at an earlier epoch cannot claim by it: the word has changed.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// `next` is the lowest 16 bits, `count` the 16 above.
const COUNT_AT: u32 = 16;
const FIELD: u64 = 0xffff;
const PARKED: u64 = 1 << 32;
/// The epoch is what is left. It would have to go round while one thread is between two
/// instructions for that thread to be misled.
const EPOCH: u64 = 1 << 33;

/// Something on a cache line of its own, so that threads that look at it do not slow those who
/// write beside it.
#[repr(align(64))]
struct Line<T>(T);

/// Items for one worker, shared by all threads.
pub(crate) struct Queue<T> {
    state: Line<AtomicU64>,
    done: Line<AtomicU32>,
    items: Box<[UnsafeCell<Option<T>>]>,
}

// SAFETY: the protocol above gives each cell to one thread at a time, so a shared reference never
// yields two accesses at once; the items themselves move between threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Queue<T> {}

/// What an offer found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// The worker is awake and will see it.
    Seen,
    /// The worker sleeps: whoever offered must unpark it, once.
    MustWake,
}

const fn next_of(state: u64) -> usize {
    (state & FIELD) as usize
}

const fn count_of(state: u64) -> usize {
    (state >> COUNT_AT & FIELD) as usize
}

impl<T> Queue<T> {
    /// A queue with room for so many items, at most 65,535.
    pub(crate) fn new(room: usize) -> Self {
        assert!(room as u64 <= FIELD, "a queue counts in sixteen bits");
        let items = (0..room).map(|_| UnsafeCell::new(None)).collect();
        Self { state: Line(AtomicU64::new(0)), done: Line(AtomicU32::new(0)), items }
    }

    /// Coordinator, when all is collected: gives the worker something to do. No more than there is
    /// room for.
    pub(crate) fn offer(&self, items: impl ExactSizeIterator<Item = T>) -> Offered {
        let count = items.len();
        assert!(count <= self.items.len(), "a queue has room for every group");
        for (cell, item) in self.items.iter().zip(items) {
            // SAFETY: everything offered before was claimed, done and collected, so nobody else has
            // a claim to any cell.
            cell.with_mut(|cell| unsafe { *cell = Some(item) });
        }
        self.done.0.store(0, Ordering::Relaxed);
        let epoch = (self.state.0.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        let before = self.state.0.swap(epoch | (count as u64) << COUNT_AT, Ordering::AcqRel);
        if before & PARKED == 0 { Offered::Seen } else { Offered::MustWake }
    }

    /// Any thread: an item that nobody has begun, and its place for [`Queue::give_back`].
    pub(crate) fn claim(&self) -> Option<(usize, T)> {
        let mut state = self.state.0.load(Ordering::Acquire);
        loop {
            let place = next_of(state);
            if place >= count_of(state) {
                return None;
            }
            match self.state.0.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                // SAFETY: only one thread moves `next` past this place in this epoch, and the
                // acquire saw the coordinator's write.
                Ok(_) => {
                    return self.items[place]
                        .with_mut(|cell| unsafe { (*cell).take() })
                        .map(|item| (place, item));
                }
                Err(found) => state = found,
            }
        }
    }

    /// Whoever claimed it: gives an item back.
    pub(crate) fn give_back(&self, place: usize, item: T) {
        // SAFETY: the cell is the claimer's until it is counted below.
        self.items[place].with_mut(|cell| unsafe { *cell = Some(item) });
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// Coordinator: takes back all that was offered, if all of it is done.
    pub(crate) fn collect(&self, take: impl FnMut(T)) -> bool {
        // Only the coordinator changes the count.
        let count = count_of(self.state.0.load(Ordering::Relaxed));
        if self.done.0.load(Ordering::Acquire) as usize != count {
            return false;
        }
        // SAFETY: every claimer has given back; the acquire above saw what each wrote.
        self.items[..count]
            .iter()
            .filter_map(|cell| cell.with_mut(|cell| unsafe { (*cell).take() }))
            .for_each(take);
        true
    }

    /// Worker: announces that it will sleep unless something was offered. `true` if it may park
    /// now; on every wake-up it must look again.
    pub(crate) fn announce_sleep(&self) -> bool {
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
