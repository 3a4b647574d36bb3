//! An indexed binary heap of context slots: any slot can be removed in O(log n), in the worst case.
//!
//! Contract: keys are (time, sequence, slot) and unique; after [`IndexHeap::reserve`] nothing
//! allocates. The kernel's other heap (`crate::heap`) is intrusive in coroutine records and only
//! amortised; a deadline tier needs the bound.

use crate::types::Refusal;
use alloc::vec::Vec;

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;

/// What orders a heap: a time, then a sequence number, then the slot.
pub(crate) type Key = (u64, u64, u32);

#[derive(Default)]
pub(crate) struct IndexHeap {
    entries: Vec<Key>,
    /// By slot: its index in `entries`.
    positions: Vec<u32>,
}

impl IndexHeap {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), positions: Vec::new() }
    }

    /// Room for slots `0..slots`.
    pub(crate) fn reserve(&mut self, slots: usize) -> Result<(), Refusal> {
        let refused = Refusal::OutOfMemory { wanted: slots as u32 };
        self.entries
            .try_reserve_exact(slots.saturating_sub(self.entries.len()))
            .map_err(|_| refused)?;
        self.positions
            .try_reserve_exact(slots.saturating_sub(self.positions.len()))
            .map_err(|_| refused)?;
        self.positions.resize(slots.max(self.positions.len()), NOWHERE);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Key> {
        self.entries.first().copied()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.positions[slot as usize] != NOWHERE
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
        let at = self.positions[slot as usize];
        if at == NOWHERE {
            return false;
        }
        let at = at as usize;
        self.positions[slot as usize] = NOWHERE;
        let last = self.entries.pop().expect("it has this slot");
        if at < self.entries.len() {
            self.entries[at] = last;
            self.positions[last.2 as usize] = at as u32;
            self.sink(at);
            self.rise(at);
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
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.entries.len() {
                break;
            }
            let child = if right < self.entries.len() && self.entries[right] < self.entries[left] {
                right
            } else {
                left
            };
            if key <= self.entries[child] {
                break;
            }
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
        let mut heap = IndexHeap::new();
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
