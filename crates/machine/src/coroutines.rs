//! The coroutines of a batch, by slot.
//!
//! Slots are allocated on demand. The host holds coroutines without a slot
//! ([`Host::materialise`](crate::Host::materialise)); such a coroutine runs in the scratch slot,
//! and if it does not finish there, it returns to the host or gets its own slot.

use crate::coroutine::Coroutine;
use crate::host::Dispatch;
use alloc::vec::Vec;

/// What to prefetch of a coroutine: first its record, then what the record points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Its record.
    Record,
    /// Its stack, if it is outside the record.
    Stack,
}

/// The coroutines of one session that a batch can dispatch.
#[derive(Debug)]
pub struct CoroutineTable {
    pub(crate) slots: Vec<Coroutine>,
    pub(crate) scratch: Scratch,
}

/// The slot of a running coroutine that has none in the table.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The coroutine's slot number; [`Dispatch::NO_SLOT`] while the scratch slot is free.
    pub(crate) slot: u32,
    pub(crate) coroutine: Coroutine,
}

impl CoroutineTable {
    /// A table of these coroutines, each in the slot of its position.
    #[inline]
    #[must_use]
    pub fn new(slots: Vec<Coroutine>) -> Self {
        Self { slots, scratch: Scratch { slot: Dispatch::NO_SLOT, coroutine: Coroutine::vacant() } }
    }

    /// The coroutines, each in the slot of its position.
    #[inline]
    #[must_use]
    pub fn into_slots(self) -> Vec<Coroutine> {
        self.slots
    }

    /// Prefetches a part of the coroutine in this slot, if the slot exists.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32, part: Prefetch) {
        if let Some(coroutine) = self.slots.get(slot as usize) {
            coroutine.prefetch(part);
        }
    }

    /// The coroutine of this slot finished: vacates the slot, or the scratch slot.
    #[inline]
    pub(crate) fn vacate(&mut self, slot: u32) {
        match self.slots.get_mut(slot as usize) {
            Some(coroutine) => coroutine.vacate(),
            None => self.scratch.slot = Dispatch::NO_SLOT,
        }
    }

    /// The running coroutine, in its slot or the scratch slot.
    #[inline]
    pub(crate) fn running(&mut self, slot: u32) -> Option<&mut Coroutine> {
        if (slot as usize) < self.slots.len() {
            return self.slots.get_mut(slot as usize);
        }
        Some(&mut self.scratch).filter(|used| used.slot == slot).map(|used| &mut used.coroutine)
    }
}

/// Pushes to a table that may have a million entries. Below 2 MiB it doubles, as a `Vec` does; from
/// there on it grows by a 16th and at least 256 KiB, so that little is allocated in advance. An
/// allocator that grows large blocks without a copy makes each step cheap; with one that copies,
/// growth is still amortised.
#[inline(always)]
pub fn push_with_small_growth<T>(table: &mut Vec<T>, entry: T) {
    const LARGE_BYTES: usize = 2 << 20;
    const STEP_BYTES: usize = 256 << 10;
    if table.len() == table.capacity() {
        core::hint::cold_path();
        if table.len() * size_of::<T>() >= LARGE_BYTES {
            table.reserve_exact((table.len() / 16).max(STEP_BYTES / size_of::<T>()));
        }
    }
    table.push(entry);
}
