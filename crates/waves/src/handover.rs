//! One value back and forth between the coordinator and one worker: the only unsafe code of this crate.
//!
//! ```text
//!            offer (coordinator)          take (worker)            give_back (worker)         reclaim (coordinator)
//!   EMPTY ───────────────────────▶ FULL ───────────────▶ TAKEN ────────────────────▶ DONE ───────────────────────▶ EMPTY
//!     │  ▲                           ▲
//!     │  └── wakes by itself         │ offer unparks, once per parked worker
//!     └────────▶ PARKED ─────────────┘
//!        sleep (worker)
//! ```
//!
//! The cell is written by the coordinator in EMPTY and PARKED and read in DONE, and touched by the worker in FULL and TAKEN. Each change of
//! hands is a store-release of the state that the other side load-acquires, so accesses never overlap.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const FULL: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;

/// A slot shared by the coordinator and one worker.
pub(crate) struct Handover<T> {
    state: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the state machine above gives the cell to one side at a time (every transition names the side that may make it), so a
// shared reference never yields two accesses at once; the value itself moves between threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Handover<T> {}

/// What an offer found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// The worker is spinning and will see it.
    Seen,
    /// The worker sleeps: whoever offered must unpark it, once.
    MustWake,
}

impl<T> Handover<T> {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(None) }
    }

    /// Coordinator, when the slot is empty: gives the worker something to do.
    pub(crate) fn offer(&self, value: T) -> Offered {
        // SAFETY: in EMPTY and PARKED only the coordinator touches the cell, and it is the only caller of `offer`.
        self.value.with_mut(|cell| unsafe { *cell = Some(value) });
        match self.state.swap(FULL, Ordering::AcqRel) {
            PARKED => Offered::MustWake,
            before => {
                debug_assert_eq!(before, EMPTY, "an offer needs an empty slot");
                Offered::Seen
            }
        }
    }

    /// Worker: takes what was offered, if anything was.
    pub(crate) fn take(&self) -> Option<T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: in FULL only the worker touches the cell; the acquire above saw the coordinator's write.
        let value = self.value.with_mut(|cell| unsafe { (*cell).take() });
        self.state.store(TAKEN, Ordering::Relaxed);
        value
    }

    /// Worker: gives back what it took.
    pub(crate) fn give_back(&self, value: T) {
        // SAFETY: in TAKEN only the worker touches the cell.
        self.value.with_mut(|cell| unsafe { *cell = Some(value) });
        self.state.store(DONE, Ordering::Release);
    }

    /// Coordinator: takes back what the worker is done with, if it is.
    pub(crate) fn reclaim(&self) -> Option<T> {
        if self.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        // SAFETY: in DONE only the coordinator touches the cell; the acquire above saw the worker's write.
        let value = self.value.with_mut(|cell| unsafe { (*cell).take() });
        self.state.store(EMPTY, Ordering::Release);
        value
    }

    /// Worker: announces that it will sleep unless something was offered. `true` if it may park now; on every wake-up it must look again.
    pub(crate) fn announce_sleep(&self) -> bool {
        match self.state.compare_exchange(EMPTY, PARKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == PARKED,
        }
    }
}
