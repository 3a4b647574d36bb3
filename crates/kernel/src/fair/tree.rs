//! An ordered tree of queue entries: by (deadline, arrival), each subtree with its least virtual runtime.
//!
//! A B+-tree over a node arena that is reserved ahead: leaves hold up to 16 entries, inner nodes up to 16 children in key order with a
//! separator and the least virtual runtime of each. Every operation walks one path, so it is O(log n) in the worst case; splitting,
//! merging and evening out touch two nodes per level. Nodes other than the root hold at least [`LEAST`], which bounds what
//! [`Arena::reserve`] must hold.
//!
//! Searches count answers over several places instead of stopping where the data says: a wrong branch prediction costs more than the
//! places passed over. For the same reason the entries of a leaf never move; their order is a word of sixteen 4-bit places.
//!
//! The tree knows keys and virtual runtimes only; weights, sums and what is eligible are `queue`'s (the bound comes in as a time).

use super::entity::VirtualTime;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Entries of a leaf, children of an inner node.
const FANOUT: usize = 16;
/// The fewest a node other than the root holds.
const LEAST: usize = 6;
/// Levels above the leaves: 6^13 leaves of 6 entries are more than 2^32 slots.
const LEVELS: usize = 13;
/// The order word of a node whose places are in order.
const IN_PLACE: u64 = 0xfedc_ba98_7654_3210;
/// Ends the list of free nodes.
const NONE: u32 = u32::MAX;

// Two neighbours merge when they fit into one node; else each gets at least half of more than a full one.
const _: () = assert!(2 * LEAST <= FANOUT);

/// What orders entries: deadline, then arrival. Arrivals are unique, so a third key (the slot) never decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub(super) deadline: VirtualTime,
    pub(super) arrival: u64,
}

impl Key {
    /// Whether this key comes strictly first.
    #[inline]
    pub(super) const fn before(self, other: Self) -> bool {
        // One subtraction over both words: the sign of the distance between deadlines, with the arrival as the borrow.
        (self.wide().wrapping_sub(other.wide()) as i128) < 0
    }

    #[inline]
    const fn wide(self) -> u128 {
        (self.deadline.0 as u64 as u128) << 64 | self.arrival as u128
    }
}

/// One competing entity as the tree sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) v: VirtualTime,
    pub(super) slot: u32,
}

#[derive(Clone, Debug)]
struct Leaf {
    key: [Key; FANOUT],
    v: [VirtualTime; FANOUT],
    slot: [u32; FANOUT],
    /// Sixteen 4-bit indices: first those of the entries in key order, then the unused ones.
    order: u64,
    /// Entries held; the next free leaf while free.
    len: u32,
}

impl Leaf {
    const EMPTY: Self = Self {
        key: [Key { deadline: VirtualTime(0), arrival: 0 }; FANOUT],
        v: [VirtualTime(0); FANOUT],
        slot: [0; FANOUT],
        order: IN_PLACE,
        len: 0,
    };

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The index of the entry at a position.
    #[inline]
    fn index(&self, position: usize) -> usize {
        at(self.order, position)
    }

    fn entry(&self, position: usize) -> Entry {
        let index = self.index(position);
        Entry { key: self.key[index], v: self.v[index], slot: self.slot[index] }
    }

    /// How many entries come before `key`.
    #[inline]
    fn rank(&self, key: Key) -> usize {
        count_sorted(filled(self.order, self.len()), self.len(), |index| self.key[index].before(key))
    }

    #[inline]
    fn insert(&mut self, rank: usize, entry: Entry) {
        let len = self.len();
        let index = self.index(len);
        self.key[index] = entry.key;
        self.v[index] = entry.v;
        self.slot[index] = entry.slot;
        self.order = put(cut(self.order, len), rank, index);
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, position: usize) {
        self.len -= 1;
        self.order = put(cut(self.order, position), self.len(), self.index(position));
    }

    /// Writes the entry at a position that is in use or the next.
    fn set(&mut self, position: usize, entry: Entry) {
        let index = self.index(position);
        self.key[index] = entry.key;
        self.v[index] = entry.v;
        self.slot[index] = entry.slot;
    }

    /// Appends the first `count` entries of the next leaf and takes them out there.
    fn take_first(&mut self, next: &mut Self, count: usize) {
        let len = self.len();
        (0..count).for_each(|position| self.set(len + position, next.entry(position)));
        self.len += count as u32;
        // What leaves the front becomes unused at the back.
        next.order = next.order.rotate_right(4 * count as u32);
        next.len -= count as u32;
    }

    /// Prepends the last `count` entries of the previous leaf and takes them out there.
    fn take_last(&mut self, previous: &mut Self, count: usize) {
        let kept = previous.len() - count;
        self.order = self.order.rotate_left(4 * count as u32);
        (0..count).for_each(|position| self.set(position, previous.entry(kept + position)));
        self.len += count as u32;
        previous.len = kept as u32;
    }

    /// The position of the first entry whose virtual runtime is not after `limit`.
    #[inline]
    fn first(&self, limit: VirtualTime) -> Option<usize> {
        first_until(filled(self.order, self.len()), &self.v, limit)
    }

    /// The least virtual runtime. A leaf asked for it is not empty.
    #[inline]
    fn least_v(&self) -> VirtualTime {
        least(filled(self.order, self.len()), &self.v)
    }
}

/// An order word without the index at `position`.
const fn cut(order: u64, position: usize) -> u64 {
    let below = (1 << (4 * position)) - 1;
    order & below | (order >> 4) & !below
}

/// An order word with `index` put in at `position`; the last index falls out (after a [`cut`] there is none).
const fn put(order: u64, position: usize, index: usize) -> u64 {
    let below = (1 << (4 * position)) - 1;
    order & below | (index as u64) << (4 * position) | (order & !below) << 4
}

/// Sixteen 4-bit indices as in [`Leaf::order`], with the last used one repeated to the end: a search may then look anywhere. Not for
/// an empty node.
#[inline]
const fn filled(order: u64, len: usize) -> u64 {
    let used = u64::MAX >> (64 - 4 * len);
    let last = order >> (4 * (len - 1)) & 15;
    order & used | (last * 0x1111_1111_1111_1111) & !used
}

/// The index at a position.
#[inline]
const fn at(order: u64, position: usize) -> usize {
    (order >> (4 * position)) as usize % FANOUT
}

/// How many of `len` places answer true, when all that do come first. Asks each fourth place, then three more.
#[inline]
fn count_sorted(filled: u64, len: usize, answer: impl Fn(usize) -> bool) -> usize {
    let test = |position: usize| usize::from(answer(at(filled, position % FANOUT)));
    let base = 4 * (test(3) + test(7) + test(11) + test(15));
    let count = base + test(base) + test(base + 1) + test(base + 2);
    count.min(len)
}

/// The first place whose time is not after `limit`.
#[inline]
fn first_until(filled: u64, times: &[VirtualTime; FANOUT], limit: VirtualTime) -> Option<usize> {
    let test = |position: usize| u32::from(!limit.before(times[at(filled, position)]));
    let quad = |base: usize| test(base) | test(base + 1) << 1 | test(base + 2) << 2 | test(base + 3) << 3;
    // Usually the first; then the search can run ahead of this comparison.
    if test(0) == 1 {
        return Some(0);
    }
    for base in [0, 4, 8, 12] {
        let set = quad(base);
        if set != 0 {
            return Some(base + set.trailing_zeros() as usize);
        }
    }
    None
}

/// The earliest time of all places.
#[inline]
fn least(filled: u64, times: &[VirtualTime; FANOUT]) -> VirtualTime {
    let time = |position: usize| times[at(filled, position)];
    let quad = |base: usize| time(base).earlier(time(base + 1)).earlier(time(base + 2).earlier(time(base + 3)));
    quad(0).earlier(quad(4)).earlier(quad(8).earlier(quad(12)))
}

#[derive(Clone, Debug)]
struct Inner {
    /// No key of child `i` comes before `separator[i]`, and every key of child `i - 1` does. The first is this node's separator in its parent,
    /// of use only when the node's children move to another; in the leftmost nodes it means nothing.
    separator: [Key; FANOUT],
    /// The least virtual runtime in each child.
    least_v: [VirtualTime; FANOUT],
    child: [u32; FANOUT],
    /// The places in order, the last repeated to the end.
    filled: u64,
    /// Children held; the next free inner node while free.
    len: u32,
}

/// A child with what its parent knows about it.
#[derive(Clone, Copy, Default)]
struct Branch {
    separator: Key,
    least_v: VirtualTime,
    child: u32,
}

impl Inner {
    const EMPTY: Self = Self {
        separator: [Key { deadline: VirtualTime(0), arrival: 0 }; FANOUT],
        least_v: [VirtualTime(0); FANOUT],
        child: [0; FANOUT],
        filled: 0,
        len: 0,
    };

    fn len(&self) -> usize {
        self.len as usize
    }

    fn set_len(&mut self, len: usize) {
        self.len = len as u32;
        self.filled = filled(IN_PLACE, len);
    }

    fn branch(&self, at: usize) -> Branch {
        Branch { separator: self.separator[at], least_v: self.least_v[at], child: self.child[at] }
    }

    fn set(&mut self, at: usize, branch: Branch) {
        self.separator[at] = branch.separator;
        self.least_v[at] = branch.least_v;
        self.child[at] = branch.child;
    }

    fn insert(&mut self, at: usize, branch: Branch) {
        let len = self.len();
        self.separator.copy_within(at..len, at + 1);
        self.least_v.copy_within(at..len, at + 1);
        self.child.copy_within(at..len, at + 1);
        self.set(at, branch);
        self.set_len(len + 1);
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        self.separator.copy_within(at + 1..len, at);
        self.least_v.copy_within(at + 1..len, at);
        self.child.copy_within(at + 1..len, at);
        self.set_len(len - 1);
    }

    /// The child whose keys' range holds `key`.
    #[inline]
    fn position(&self, key: Key) -> usize {
        let test = |position: usize| usize::from(!key.before(self.separator[at(self.filled, position)]));
        let base = 4 * (test(4) + test(8) + test(12));
        (base + test(base + 1) + test(base + 2) + test(base + 3)).min(self.len() - 1)
    }

    /// The first child with a virtual runtime that is not after `limit`.
    #[inline]
    fn first(&self, limit: VirtualTime) -> Option<usize> {
        first_until(self.filled, &self.least_v, limit)
    }

    #[inline]
    fn least_v(&self) -> VirtualTime {
        least(self.filled, &self.least_v)
    }
}

/// The nodes of a queue's trees. Grows in [`Arena::reserve`] only.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    free_leaf: u32,
    free_inner: u32,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self { leaves: Vec::new(), inners: Vec::new(), free_leaf: NONE, free_inner: NONE }
    }

    /// Room for `entries` entries spread over `trees` trees in any shape the operations can reach.
    pub(super) fn reserve(&mut self, entries: usize, trees: usize) -> Result<(), TryReserveError> {
        // Each tree has at most entries/LEAST leaves (the root may hold fewer), plus one while a split is under way; each level above
        // has at most a LEAST-th of the one below, so all of them together at most leaves/(LEAST-1), plus a thin root per tree.
        let leaves = entries / LEAST + 2 * trees;
        let inners = leaves / (LEAST - 1) + (LEVELS + 1) * trees;
        self.leaves.try_reserve(leaves.saturating_sub(self.leaves.len()))?;
        self.inners.try_reserve(inners.saturating_sub(self.inners.len()))
    }

    /// Whether the nodes that are not in use are exactly the free ones.
    pub(super) fn accounts_for(&self, leaves: usize, inners: usize) -> bool {
        let free_leaves = core::iter::successors(Some(self.free_leaf), |&at| self.leaves.get(at as usize).map(|leaf| leaf.len));
        let free_inners = core::iter::successors(Some(self.free_inner), |&at| self.inners.get(at as usize).map(|inner| inner.len));
        leaves + free_leaves.take_while(|&at| at != NONE).count() == self.leaves.len()
            && inners + free_inners.take_while(|&at| at != NONE).count() == self.inners.len()
    }

    fn new_leaf(&mut self) -> u32 {
        if self.free_leaf == NONE {
            debug_assert!(self.leaves.len() < self.leaves.capacity(), "a leaf beyond the reservation");
            self.leaves.push(Leaf::EMPTY);
            return (self.leaves.len() - 1) as u32;
        }
        let at = self.free_leaf;
        let leaf = &mut self.leaves[at as usize];
        self.free_leaf = leaf.len;
        leaf.len = 0;
        at
    }

    fn new_inner(&mut self) -> u32 {
        if self.free_inner == NONE {
            debug_assert!(self.inners.len() < self.inners.capacity(), "an inner node beyond the reservation");
            self.inners.push(Inner::EMPTY);
            return (self.inners.len() - 1) as u32;
        }
        let at = self.free_inner;
        let inner = &mut self.inners[at as usize];
        self.free_inner = inner.len;
        inner.len = 0;
        at
    }

    /// Two different leaves at once.
    fn two_leaves(&mut self, left: u32, right: u32) -> (&mut Leaf, &mut Leaf) {
        let [left, right] = self.leaves.get_disjoint_mut([left as usize, right as usize]).expect("fair: a leaf has one parent");
        (left, right)
    }

    fn drop_leaf(&mut self, at: u32) {
        self.leaves[at as usize].len = self.free_leaf;
        self.free_leaf = at;
    }

    fn drop_inner(&mut self, at: u32) {
        self.inners[at as usize].len = self.free_inner;
        self.free_inner = at;
    }
}

/// The inner nodes from the root to a leaf, and the child taken at each.
struct Path {
    node: [u32; LEVELS],
    child: [u8; LEVELS],
}

impl Path {
    const NEW: Self = Self { node: [0; LEVELS], child: [0; LEVELS] };
}

/// An ordered tree in an [`Arena`].
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// A leaf when `height` is 0, else an inner node; no node at all before the first insert.
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    len: u32,
    /// No entry comes after this key.
    greatest: Key,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { root: NONE, height: 0, len: 0, greatest: Key { deadline: VirtualTime(0), arrival: 0 } }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry whose key is not in the tree.
    pub(super) fn insert(&mut self, arena: &mut Arena, entry: Entry) {
        if self.root == NONE {
            self.root = arena.new_leaf();
        }
        // Renewed requests mostly go to the end; knowing that, the way down needs no comparison.
        let appends = self.len == 0 || self.greatest.before(entry.key);
        if appends {
            self.greatest = entry.key;
        }
        self.len += 1;
        let mut path = Path::NEW;
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &mut arena.inners[node as usize];
            let at = if appends { inner.len() - 1 } else { inner.position(entry.key) };
            inner.least_v[at] = inner.least_v[at].earlier(entry.v);
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let leaf = &mut arena.leaves[node as usize];
        let rank = if appends { leaf.len() } else { leaf.rank(entry.key) };
        if leaf.len() < FANOUT {
            leaf.insert(rank, entry);
            return;
        }
        let (mut kept_v, mut added) = split_leaf(arena, node, rank, entry);
        for level in (0..self.height).rev() {
            let parent = path.node[level];
            let at = usize::from(path.child[level]);
            let inner = &mut arena.inners[parent as usize];
            inner.least_v[at] = kept_v;
            if inner.len() < FANOUT {
                inner.insert(at + 1, added);
                return;
            }
            (kept_v, added) = split_inner(arena, parent, at + 1, added);
        }
        let root = arena.new_inner();
        let inner = &mut arena.inners[root as usize];
        inner.set(0, Branch { separator: Key::default(), least_v: kept_v, child: self.root });
        inner.set(1, added);
        inner.set_len(2);
        self.root = root;
        self.height += 1;
    }

    /// The first entry by key whose virtual runtime is not after `limit`.
    pub(super) fn first(&self, arena: &Arena, limit: VirtualTime) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &arena.inners[node as usize];
            node = inner.child[inner.first(limit)?];
        }
        let leaf = &arena.leaves[node as usize];
        Some(leaf.entry(leaf.first(limit)?))
    }

    /// Takes out the first entry by key whose virtual runtime is not after `limit`; its slot.
    pub(super) fn take_first(&mut self, arena: &mut Arena, limit: VirtualTime) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut path = Path::NEW;
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &arena.inners[node as usize];
            let at = inner.first(limit)?;
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let position = arena.leaves[node as usize].first(limit)?;
        Some(self.remove(arena, &path, node, position))
    }

    /// Takes out the entry with this key, if it is in the tree; its slot.
    pub(super) fn take(&mut self, arena: &mut Arena, key: Key) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut path = Path::NEW;
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &arena.inners[node as usize];
            let at = inner.position(key);
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let leaf = &arena.leaves[node as usize];
        let position = leaf.rank(key);
        if position < leaf.len() && leaf.entry(position).key == key { Some(self.remove(arena, &path, node, position)) } else { None }
    }

    /// The least virtual runtime of all entries.
    pub(super) fn least_v(&self, arena: &Arena) -> Option<VirtualTime> {
        match (self.len, self.height) {
            (0, _) => None,
            (_, 0) => Some(arena.leaves[self.root as usize].least_v()),
            _ => Some(arena.inners[self.root as usize].least_v()),
        }
    }

    /// Takes the entry at `position` of the leaf at the end of `path` out; its slot.
    fn remove(&mut self, arena: &mut Arena, path: &Path, leaf: u32, position: usize) -> u32 {
        self.len -= 1;
        let mut node = leaf;
        let leaf = &mut arena.leaves[leaf as usize];
        let Entry { v, slot, .. } = leaf.entry(position);
        leaf.remove(position);
        let mut short = leaf.len() < LEAST;
        for level in (0..self.height).rev() {
            let at = usize::from(path.child[level]);
            let parent = path.node[level];
            if short {
                even_out(arena, parent, at, level + 1 == self.height);
            } else if arena.inners[parent as usize].least_v[at] != v {
                // Another entry was the least here, so it still is, here and above.
                return slot;
            } else {
                let bottom = level + 1 == self.height;
                let least_v = if bottom { arena.leaves[node as usize].least_v() } else { arena.inners[node as usize].least_v() };
                arena.inners[parent as usize].least_v[at] = least_v;
            }
            node = parent;
            short = arena.inners[node as usize].len() < LEAST;
        }
        while self.height > 0 && arena.inners[self.root as usize].len == 1 {
            let child = arena.inners[self.root as usize].child[0];
            arena.drop_inner(self.root);
            self.root = child;
            self.height -= 1;
        }
        slot
    }

    /// Calls `visit` with each entry in key order until it answers false.
    pub(super) fn visit(&self, arena: &Arena, visit: &mut impl FnMut(Entry) -> bool) {
        if self.len > 0 {
            self.visit_node(arena, self.root, 0, visit);
        }
    }

    fn visit_node(&self, arena: &Arena, node: u32, level: usize, visit: &mut impl FnMut(Entry) -> bool) -> bool {
        if level < self.height {
            let inner = &arena.inners[node as usize];
            return inner.child[..inner.len()].iter().all(|&child| self.visit_node(arena, child, level + 1, visit));
        }
        let leaf = &arena.leaves[node as usize];
        (0..leaf.len()).all(|position| visit(leaf.entry(position)))
    }

    /// Verifies order, augmentation, fill and count; the number of nodes used is added to `leaves` and `inners`.
    pub(super) fn check(&self, arena: &Arena, leaves: &mut usize, inners: &mut usize) -> Result<(), &'static str> {
        if self.root == NONE {
            return if self.len == 0 { Ok(()) } else { Err("entries without a root") };
        }
        let mut count = 0;
        self.check_node(arena, self.root, 0, (None, None), &mut count, (leaves, inners))?;
        let mut beyond = false;
        self.visit(arena, &mut |entry| {
            beyond |= self.greatest.before(entry.key);
            !beyond
        });
        if beyond {
            return Err("an entry comes after the greatest key");
        }
        if count == self.len { Ok(()) } else { Err("the count of entries is wrong") }
    }

    fn check_node(
        &self,
        arena: &Arena,
        node: u32,
        level: usize,
        range: (Option<Key>, Option<Key>),
        count: &mut u32,
        used: (&mut usize, &mut usize),
    ) -> Result<Option<VirtualTime>, &'static str> {
        let (leaves, inners) = used;
        let inside = |key: Key| range.0.is_none_or(|least| !key.before(least)) && range.1.is_none_or(|next| key.before(next));
        if level == self.height {
            *leaves += 1;
            let leaf = &arena.leaves[node as usize];
            *count += leaf.len;
            if leaf.len() > FANOUT || (self.height > 0 && leaf.len() < LEAST) {
                return Err("a leaf is too full or too empty");
            }
            if !(0..leaf.len()).all(|position| inside(leaf.entry(position).key)) {
                return Err("an entry is outside its leaf's range");
            }
            if !(1..leaf.len()).all(|position| leaf.entry(position - 1).key.before(leaf.entry(position).key)) {
                return Err("a leaf is out of order");
            }
            if (0..FANOUT).fold(0u32, |seen, position| seen | 1 << leaf.index(position)) != (1 << FANOUT) - 1 {
                return Err("an order word lost an index");
            }
            return Ok((leaf.len > 0).then(|| leaf.least_v()));
        }
        *inners += 1;
        let inner = &arena.inners[node as usize];
        if inner.len() > FANOUT || inner.len() < if level == 0 { 2 } else { LEAST } {
            return Err("an inner node is too full or too empty");
        }
        for at in 0..inner.len() {
            let least = if at == 0 { range.0 } else { Some(inner.separator[at]) };
            let next = if at + 1 < inner.len() { Some(inner.separator[at + 1]) } else { range.1 };
            if at > 0 && !inside(inner.separator[at]) {
                return Err("a separator is outside its node's range");
            }
            let least_v = self.check_node(arena, inner.child[at], level + 1, (least, next), count, (leaves, inners))?;
            if least_v != Some(inner.least_v[at]) {
                return Err("a least virtual runtime is wrong");
            }
        }
        Ok(Some(inner.least_v()))
    }
}

/// Splits a full leaf that must take one more entry. Returns the least virtual runtime of what stays, and the new right part.
fn split_leaf(arena: &mut Arena, node: u32, rank: usize, entry: Entry) -> (VirtualTime, Branch) {
    let right = arena.new_leaf();
    let (leaf, next) = arena.two_leaves(node, right);
    // Requests are renewed at the far end; there the part that stays keeps more, because it will get no more.
    let moved = if rank == FANOUT { LEAST - 1 } else { FANOUT / 2 };
    next.take_last(leaf, moved);
    match rank.checked_sub(leaf.len()) {
        Some(rank) if rank > 0 => next.insert(rank, entry),
        _ => leaf.insert(rank, entry),
    }
    (leaf.least_v(), Branch { separator: next.entry(0).key, least_v: next.least_v(), child: right })
}

/// Splits a full inner node that must take one more branch at `at`. Answers like [`split_leaf`].
fn split_inner(arena: &mut Arena, node: u32, at: usize, added: Branch) -> (VirtualTime, Branch) {
    let right = arena.new_inner();
    let mut all = [Branch::default(); FANOUT + 1];
    let inner = &arena.inners[node as usize];
    for (to, slot) in all.iter_mut().enumerate() {
        *slot = match to {
            _ if to < at => inner.branch(to),
            _ if to == at => added,
            _ => inner.branch(to - 1),
        };
    }
    deal_branches(arena, node, right, &all)
}

/// Deals branches in key order evenly to two inner nodes. Answers like [`split_leaf`].
fn deal_branches(arena: &mut Arena, left: u32, right: u32, branches: &[Branch]) -> (VirtualTime, Branch) {
    let (low, high) = branches.split_at(branches.len() / 2);
    for (node, part) in [(left, low), (right, high)] {
        let inner = &mut arena.inners[node as usize];
        inner.set_len(part.len());
        part.iter().enumerate().for_each(|(at, &branch)| inner.set(at, branch));
    }
    let least_v = arena.inners[right as usize].least_v();
    (arena.inners[left as usize].least_v(), Branch { separator: high[0].separator, least_v, child: right })
}

/// Brings child `at` of `parent`, which holds fewer than [`LEAST`], back to enough: merged with a neighbour if both fit into one node,
/// else the two share evenly.
fn even_out(arena: &mut Arena, parent: u32, at: usize, leaves: bool) {
    let node = &arena.inners[parent as usize];
    let left_at = if at + 1 < node.len() { at } else { at - 1 };
    let (left, right) = (node.child[left_at], node.child[left_at + 1]);
    let merged = if leaves { even_out_leaves(arena, left, right) } else { even_out_inners(arena, left, right) };
    let node = &mut arena.inners[parent as usize];
    match merged {
        (least_v, Some(branch)) => {
            node.least_v[left_at] = least_v;
            node.set(left_at + 1, branch);
        }
        (least_v, None) => {
            node.least_v[left_at] = least_v;
            node.remove(left_at + 1);
        }
    }
}

fn even_out_leaves(arena: &mut Arena, left: u32, right: u32) -> (VirtualTime, Option<Branch>) {
    let (leaf, next) = arena.two_leaves(left, right);
    let (len, next_len) = (leaf.len(), next.len());
    if len + next_len <= FANOUT {
        leaf.take_first(next, next_len);
        let least_v = leaf.least_v();
        arena.drop_leaf(right);
        return (least_v, None);
    }
    if len < next_len {
        leaf.take_first(next, (next_len - len) / 2);
    } else {
        next.take_last(leaf, (len - next_len) / 2);
    }
    (leaf.least_v(), Some(Branch { separator: next.entry(0).key, least_v: next.least_v(), child: right }))
}

fn even_out_inners(arena: &mut Arena, left: u32, right: u32) -> (VirtualTime, Option<Branch>) {
    let mut all = [Branch::default(); 2 * FANOUT];
    let mut len = 0;
    for node in [left, right] {
        let inner = &arena.inners[node as usize];
        (0..inner.len()).for_each(|at| all[len + at] = inner.branch(at));
        len += inner.len();
    }
    if len > FANOUT {
        let (least_v, branch) = deal_branches(arena, left, right, &all[..len]);
        return (least_v, Some(branch));
    }
    arena.drop_inner(right);
    let inner = &mut arena.inners[left as usize];
    inner.set_len(len);
    all[..len].iter().enumerate().for_each(|(at, &branch)| inner.set(at, branch));
    (inner.least_v(), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    impl Tree {
        /// Breaks one invariant of a tree with at least one inner node.
        pub(crate) fn damage(&mut self, arena: &mut Arena, fault: u32) {
            let root = &mut arena.inners[self.root as usize];
            match fault {
                0 => root.least_v[1].0 += 1,
                1 => root.separator[1] = Key { deadline: root.separator[1].deadline.plus(1 << 50), arrival: 0 },
                2 => self.len += 1,
                3 => self.greatest.deadline = self.greatest.deadline.plus(-(1 << 50)),
                _ => {
                    let mut node = self.root;
                    (0..self.height).for_each(|_| node = arena.inners[node as usize].child[0]);
                    let order = &mut arena.leaves[node as usize].order;
                    *order = (*order & !0xff) | (*order & 0xf) << 4 | (*order >> 4) & 0xf;
                }
            }
        }
    }

    /// Against a sorted vector: every removal, every first, in trees that grow, shrink and drift like a queue's.
    #[test]
    fn agrees_with_a_sorted_vector() {
        let (mut arena, mut tree) = (Arena::new(), Tree::new());
        arena.reserve(2_000, 1).expect("memory");
        let mut sorted: Vec<Entry> = Vec::new();
        let mut state = 99u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let order =
            |one: &Entry, other: &Entry| if one.key.before(other.key) { core::cmp::Ordering::Less } else { core::cmp::Ordering::Greater };
        let mut highest = 0;
        // Around the wrap of virtual time.
        let start = VirtualTime(i64::MAX - 40_000);
        for step in 0..60_000u64 {
            let grows = (step / 4_000) % 3 != 2;
            let now = start.plus(step as i64);
            if sorted.len() < 2_000 && (sorted.is_empty() || random(10) < if grows { 6 } else { 3 }) {
                let key = Key { deadline: now.plus(random(5_000) as i64), arrival: step };
                let entry = Entry { key, v: now.plus(random(4_000) as i64 - 2_000), slot: step as u32 };
                tree.insert(&mut arena, entry);
                let at = sorted.binary_search_by(|other| order(other, &entry)).unwrap_or_else(|at| at);
                sorted.insert(at, entry);
            } else if random(2) == 0 {
                let entry = sorted.remove(random(sorted.len() as u64) as usize);
                assert_eq!(tree.take(&mut arena, entry.key), Some(entry.slot));
                assert_eq!(tree.take(&mut arena, entry.key), None);
            } else {
                let limit = now.plus(random(2_000) as i64 - 1_500);
                let expected = sorted.iter().position(|entry| !limit.before(entry.v));
                assert_eq!(tree.first(&arena, limit), expected.map(|at| sorted[at]));
                assert_eq!(tree.take_first(&mut arena, limit), expected.map(|at| sorted.remove(at).slot));
            }
            highest = highest.max(tree.height);
            if step % 97 == 0 {
                let (mut leaves, mut inners) = (0, 0);
                assert_eq!(tree.check(&arena, &mut leaves, &mut inners), Ok(()));
                assert!(arena.accounts_for(leaves, inners));
                let mut seen = Vec::new();
                tree.visit(&arena, &mut |entry| {
                    seen.push(entry);
                    true
                });
                assert_eq!(seen, sorted);
                assert_eq!(tree.least_v(&arena).is_none(), sorted.is_empty());
            }
        }
        assert!(highest >= 2, "height {highest}");
    }

    #[test]
    fn nodes_stay_small() {
        assert!(size_of::<Leaf>() <= 464 && size_of::<Inner>() <= 464, "{} {}", size_of::<Leaf>(), size_of::<Inner>());
    }
}
