//! An intrusive pairing heap over records: the place of entries that come back out of arrival order.
//!
//! Contract: no allocation, no recursion; push is O(1), pop and remove are O(log n) amortised. Links: `child` is the first child, `next`
//! the next sibling, `prev` the sibling before, or the parent of a first child. A root has neither `prev` nor `next`.
//!
//! Why it exists: a FIFO list keeps arrival order for free as long as entries come in that order. A release after a hold, a preempted
//! current and a change of priority bring an *older* arrival back; finding its place in the list would be a scan.

use crate::record::{Hot, NIL, Slab};

/// The order of a heap.
pub(crate) trait Order {
    /// Smaller comes first. Keys are unique: arrivals are.
    fn key(hot: &Hot) -> (u64, u64);
}

/// By arrival.
pub(crate) struct ByArrival;

impl Order for ByArrival {
    #[inline]
    fn key(hot: &Hot) -> (u64, u64) {
        (0, hot.arrival)
    }
}

/// By the frame to wake in, then arrival.
pub(crate) struct ByFrame;

impl Order for ByFrame {
    #[inline]
    fn key(hot: &Hot) -> (u64, u64) {
        (hot.since, hot.arrival)
    }
}

/// Adds a record; gives the new root.
pub(crate) fn push<O: Order>(slab: &mut Slab, root: u32, slot: u32) -> u32 {
    let hot = slab.hot_mut(slot);
    (hot.prev, hot.next, hot.child) = (NIL, NIL, NIL);
    if root == NIL { slot } else { meld::<O>(slab, root, slot) }
}

/// Takes the root out; gives the new root.
pub(crate) fn pop<O: Order>(slab: &mut Slab, root: u32) -> u32 {
    let first = slab.hot(root).child;
    merge_siblings::<O>(slab, first)
}

/// Takes any record out; gives the new root.
pub(crate) fn remove<O: Order>(slab: &mut Slab, root: u32, slot: u32) -> u32 {
    if slot == root {
        return pop::<O>(slab, root);
    }
    let (prev, next, first) = (slab.hot(slot).prev, slab.hot(slot).next, slab.hot(slot).child);
    if slab.hot(prev).child == slot {
        slab.hot_mut(prev).child = next;
    } else {
        slab.hot_mut(prev).next = next;
    }
    if next != NIL {
        slab.hot_mut(next).prev = prev;
    }
    let orphans = merge_siblings::<O>(slab, first);
    if orphans == NIL { root } else { meld::<O>(slab, root, orphans) }
}

/// Joins two roots.
fn meld<O: Order>(slab: &mut Slab, a: u32, b: u32) -> u32 {
    let (winner, loser) = if O::key(slab.hot(b)) < O::key(slab.hot(a)) { (b, a) } else { (a, b) };
    let first = slab.hot(winner).child;
    if first != NIL {
        slab.hot_mut(first).prev = loser;
    }
    let hot = slab.hot_mut(loser);
    hot.next = first;
    hot.prev = winner;
    let hot = slab.hot_mut(winner);
    hot.child = loser;
    (hot.prev, hot.next) = (NIL, NIL);
    winner
}

/// Joins a row of siblings into one root: pairs from the left, then the pairs from the right.
fn merge_siblings<O: Order>(slab: &mut Slab, first: u32) -> u32 {
    let mut pairs = NIL;
    let mut at = first;
    while at != NIL {
        let a = at;
        let b = slab.hot(a).next;
        let root = if b == NIL {
            at = NIL;
            a
        } else {
            at = slab.hot(b).next;
            meld::<O>(slab, a, b)
        };
        slab.hot_mut(root).next = pairs;
        pairs = root;
    }
    let mut root = NIL;
    while pairs != NIL {
        let rest = slab.hot(pairs).next;
        let hot = slab.hot_mut(pairs);
        (hot.prev, hot.next) = (NIL, NIL);
        root = if root == NIL { pairs } else { meld::<O>(slab, root, pairs) };
        pairs = rest;
    }
    root
}

/// Every record of a heap, in no particular order, without allocation: depth first along the links.
pub(crate) fn visit(slab: &Slab, root: u32, mut each: impl FnMut(u32)) {
    let mut at = root;
    while at != NIL {
        each(at);
        let mut next = slab.hot(at).child;
        while next == NIL && at != root {
            next = slab.hot(at).next;
            if next == NIL {
                at = parent(slab, at);
            }
        }
        at = next;
        if at == NIL {
            return;
        }
    }
}

/// The parent of a record that has one: go back along the siblings.
fn parent(slab: &Slab, slot: u32) -> u32 {
    let mut at = slot;
    loop {
        let prev = slab.hot(at).prev;
        if slab.hot(prev).child == at {
            return prev;
        }
        at = prev;
    }
}
