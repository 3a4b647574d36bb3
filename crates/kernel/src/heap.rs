//! An intrusive pairing heap over records, for entries that return to a queue out of arrival order.
//!
//! Contract: no allocation, no recursion; push is O(1), pop and remove are O(log n) amortised.
//! Links: `child` is the first child, `next` the next sibling, `prev` the sibling before, or the
//! parent of a first child. A root has neither `prev` nor `next`.
//!
//! Why it exists: a FIFO list keeps arrival order for free as long as entries come in that order. A
//! release after a hold, a preempted current and a change of priority bring an *older* arrival
//! back; inserting it into the list would need a scan.

use crate::record::{Hot, Links, NIL, Slab};

/// The order of a heap.
pub(crate) trait Order {
    /// The smallest key is the root. Keys are unique: arrivals are.
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

/// Adds a record; returns the new root.
pub(crate) fn push<O: Order>(slab: &mut Slab, root: u32, slot: u32) -> u32 {
    *slab.links_mut(slot) = Links::NONE;
    slab.set_child(slot, NIL);
    if root == NIL { slot } else { meld::<O>(slab, root, slot) }
}

/// Removes the root; returns the new root.
pub(crate) fn pop<O: Order>(slab: &mut Slab, root: u32) -> u32 {
    let first = slab.child(root);
    merge_siblings::<O>(slab, first)
}

/// Removes any record; returns the new root.
pub(crate) fn remove<O: Order>(slab: &mut Slab, root: u32, slot: u32) -> u32 {
    if slot == root {
        return pop::<O>(slab, root);
    }
    let (Links { prev, next }, first) = (slab.links(slot), slab.child(slot));
    if slab.child(prev) == slot {
        slab.set_child(prev, next);
    } else {
        slab.links_mut(prev).next = next;
    }
    if next != NIL {
        slab.links_mut(next).prev = prev;
    }
    let orphans = merge_siblings::<O>(slab, first);
    if orphans == NIL { root } else { meld::<O>(slab, root, orphans) }
}

/// Joins two roots.
fn meld<O: Order>(slab: &mut Slab, a: u32, b: u32) -> u32 {
    let (winner, loser) = if O::key(slab.hot(b)) < O::key(slab.hot(a)) { (b, a) } else { (a, b) };
    let first = slab.child(winner);
    if first != NIL {
        slab.links_mut(first).prev = loser;
    }
    *slab.links_mut(loser) = Links { prev: winner, next: first };
    slab.set_child(winner, loser);
    *slab.links_mut(winner) = Links::NONE;
    winner
}

/// Joins a row of siblings into one root: pairs from the left, then the pairs from the right.
fn merge_siblings<O: Order>(slab: &mut Slab, first: u32) -> u32 {
    let mut pairs = NIL;
    let mut at = first;
    while at != NIL {
        let a = at;
        let b = slab.links(a).next;
        let root = if b == NIL {
            at = NIL;
            a
        } else {
            at = slab.links(b).next;
            meld::<O>(slab, a, b)
        };
        slab.links_mut(root).next = pairs;
        pairs = root;
    }
    let mut root = NIL;
    while pairs != NIL {
        let rest = slab.links(pairs).next;
        *slab.links_mut(pairs) = Links::NONE;
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
        let mut next = slab.child(at);
        while next == NIL && at != root {
            next = slab.links(at).next;
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
        let prev = slab.links(at).prev;
        if slab.child(prev) == at {
            return prev;
        }
        at = prev;
    }
}
