//! An indexed binary heap of context slots: any slot can be removed in O(log n), in the worst case.
//!
//! Contract: keys are (time, sequence, slot) and unique; after [`IndexHeap::reserve`] nothing
//! allocates. The kernel's other heap (`crate::heap`) is intrusive in coroutine records and only
//! amortised; the deadline tier needs the worst-case bound.

use crate::record::NIL;
use crate::room::Room;
use crate::types::Refusal;
use alloc::vec::Vec;

/// The sort key: a time, then a sequence number, then the slot.
pub(crate) type Key = (u64, u64, u32);

/// Reserves capacity for `len` elements in total; a refusal reports `wanted`.
pub(super) fn reserve_total<T>(table: &mut Vec<T>, len: usize, wanted: u32) -> Result<(), Refusal> {
    let more = len.saturating_sub(table.len());
    table.try_reserve_exact(more).map_err(|_| Refusal::OutOfMemory { wanted })
}

#[derive(Clone, Default)]
pub(crate) struct IndexHeap {
    entries: Room<Key>,
    /// By slot: its index in `entries`, or [`NIL`].
    positions: Room<u32>,
}

impl IndexHeap {
    /// Room for slots `0..slots`.
    pub(crate) fn reserve(&mut self, slots: u32) -> Result<(), Refusal> {
        let len = slots as usize;
        reserve_total(&mut self.entries, len, slots)?;
        reserve_total(&mut self.positions, len, slots)?;
        self.positions.fill_to(len, NIL);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Key> {
        self.entries.first().copied()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.positions[slot as usize] != NIL
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Key> + '_ {
        self.entries.iter().copied()
    }

    /// Adds a slot that is not in the heap.
    pub(crate) fn push(&mut self, key: Key) {
        debug_assert!(!self.contains(key.2), "a slot is in a heap once");
        self.entries.push(key);
        self.rise(self.entries.len() - 1);
    }

    /// Removes a slot; `false` if it is not in the heap.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let at = core::mem::replace(&mut self.positions[slot as usize], NIL);
        if at == NIL {
            return false;
        }
        let last = self.entries.pop().expect("it has this slot");
        if (at as usize) < self.entries.len() {
            self.set(at as usize, last);
            self.sink(at as usize);
            self.rise(at as usize);
        }
        true
    }

    fn rise(&mut self, mut at: usize) {
        let key = self.entries[at];
        while at > 0 && key < self.entries[(at - 1) / 2] {
            self.set(at, self.entries[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        self.set(at, key);
    }

    fn sink(&mut self, mut at: usize) {
        let key = self.entries[at];
        let child = |heap: &Self, at: usize| {
            let children = 2 * at + 1..heap.entries.len().min(2 * at + 3);
            children.min_by_key(|&child| heap.entries[child])
        };
        while let Some(child) = child(self, at).filter(|&child| self.entries[child] < key) {
            self.set(at, self.entries[child]);
            at = child;
        }
        self.set(at, key);
    }

    fn set(&mut self, at: usize, key: Key) {
        self.entries[at] = key;
        self.positions[key.2 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_sorted_list() {
        let mut heap = IndexHeap::default();
        heap.reserve(64).expect("memory");
        let mut list: Vec<Key> = Vec::new();
        let mut state = 7u64;
        for round in 0..20_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let slot = (state >> 33) as u32 % 64;
            match list.iter().position(|key| key.2 == slot) {
                Some(at) => {
                    list.remove(at);
                    assert!(heap.remove(slot));
                }
                None => {
                    let key = ((state >> 40) % 16, round, slot);
                    list.push(key);
                    heap.push(key);
                }
            }
            list.sort_unstable();
            assert_eq!((heap.first(), heap.len()), (list.first().copied(), list.len()));
        }
    }
}
