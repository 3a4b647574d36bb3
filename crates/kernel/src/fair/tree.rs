//! The ordered set behind the fair queue: a B+-tree of entries by (virtual deadline, arrival),
//! augmented with the minimum virtual runtime of each subtree. As in Linux's EEVDF, the
//! augmentation finds the earliest deadline among the eligible on one path from the root.
//!
//! Leaves and inner nodes have one type: up to 16 entries in key order. An entry of a leaf is an
//! entity; an entry of an inner node is a child, with a lower bound of its keys and the minimum
//! virtual runtime below it. Nodes other than the root hold at least [`MIN_ENTRIES`].
//!
//! Contract: every operation walks one path and touches two nodes per level, so it is O(log n) in
//! the worst case. Nodes come from an [`Arena`] that is reserved for any shape the operations can
//! reach; nothing else allocates. Only the order of a tree is observable, never its shape.
//!
//! Elsewhere: eligibility (`queue` passes it in as a limit on virtual runtimes), weights and sums.
//!
//! Why not a binary tree: an intrusive AVL tree over the entities is 80 lines shorter, and took 1.8
//! times the instructions per step of 20 entities and 2.7 times per step of 1,000.

use super::entity::VirtualTime;
use crate::check::{Violation, equal, holds};
use crate::record::NIL;
use crate::room::Room;
use alloc::collections::TryReserveError;

/// Entries of a node.
const FANOUT: usize = 16;
/// Minimum fill of a node other than the root.
const MIN_ENTRIES: usize = 6;
/// Levels above the leaves: 6^13 leaves of 6 entries are more than 2^32 slots.
const LEVELS: usize = 13;

// Two neighbours merge when they fit into one node; else each gets at least half of more than a
// full one.
const _: () = assert!(2 * MIN_ENTRIES <= FANOUT);

/// The sort key: deadline, then arrival, which is unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub(super) deadline: VirtualTime,
    pub(super) arrival: u64,
}

impl Key {
    /// Whether this key comes strictly first.
    #[inline]
    pub(super) const fn before(self, other: Self) -> bool {
        // One subtraction over both words: the sign of the deadlines' difference, with the borrow
        // of the arrivals'.
        (self.wide().wrapping_sub(other.wide()) as i128) < 0
    }

    #[inline]
    const fn wide(self) -> u128 {
        (self.deadline.0 as u64 as u128) << 64 | self.arrival as u128
    }
}

/// One entry of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    /// The entity's key; of a child, a lower bound of the keys below it.
    pub(super) key: Key,
    /// The entity's virtual runtime; of a child, the minimum below it.
    pub(super) v: VirtualTime,
    /// The entity's slot; the child's index in the arena.
    pub(super) slot: u32,
}

#[derive(Clone, Debug)]
struct Node {
    entries: [Entry; FANOUT],
    /// Entries held; of a free node, the next free one.
    len: u32,
}

impl Node {
    fn entries(&self) -> &[Entry] {
        &self.entries[..self.len as usize]
    }

    /// The number of entries whose key is not after `key`.
    #[inline]
    fn rank(&self, key: Key) -> usize {
        let entries = self.entries();
        // Renewed requests are mostly appended.
        match entries.last() {
            Some(last) if key.before(last.key) => {
                entries.partition_point(|entry| !key.before(entry.key))
            }
            _ => entries.len(),
        }
    }

    /// The position of the first entry whose virtual runtime is not after `limit`.
    #[inline]
    fn first_until(&self, limit: VirtualTime) -> Option<usize> {
        self.entries().iter().position(|entry| !limit.before(entry.v))
    }

    /// The minimum virtual runtime of a node that is not empty.
    fn min_v(&self) -> VirtualTime {
        self.entries().iter().fold(self.entries[0].v, |min, entry| min.earlier(entry.v))
    }

    /// Of an inner node: widens the child below which `entry` will be inserted; returns that child
    /// and its position.
    #[inline]
    fn widen(&mut self, entry: Entry) -> (usize, usize) {
        let at = self.rank(entry.key).saturating_sub(1);
        let child = &mut self.entries[at];
        child.v = child.v.earlier(entry.v);
        if entry.key.before(child.key) {
            child.key = entry.key;
        }
        (child.slot as usize, at)
    }

    /// Inserts into a node that is not full.
    #[inline]
    fn insert(&mut self, entry: Entry) {
        let at = self.rank(entry.key);
        if at < self.len as usize {
            self.entries.copy_within(at..self.len as usize, at + 1);
        }
        self.entries[at] = entry;
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        self.len -= 1;
        if at < self.len as usize {
            self.entries.copy_within(at + 1..=self.len as usize, at);
        }
    }

    fn set(&mut self, entries: &[Entry]) {
        self.entries[..entries.len()].copy_from_slice(entries);
        self.len = entries.len() as u32;
    }
}

/// The nodes of a queue's trees.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    nodes: Room<Node>,
    free: u32,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self { nodes: Room::new(), free: NIL }
    }

    /// Room for `entries` entries spread over `trees` trees in any shape the operations can reach.
    pub(super) fn reserve(&mut self, entries: usize, trees: usize) -> Result<(), TryReserveError> {
        // With m = MIN_ENTRIES a tree has at most entries/m leaves, a thin root and one leaf more
        // during a split; each level above has at most 1/m of the nodes below it, together
        // leaves/(m - 1), and again a thin node per level and tree.
        let leaves = entries / MIN_ENTRIES + 2 * trees;
        let nodes = leaves + leaves / (MIN_ENTRIES - 1) + (LEVELS + 1) * trees;
        self.nodes.reserve_total(nodes)
    }

    /// Nodes that are in a tree.
    pub(super) fn in_use(&self) -> usize {
        let free = core::iter::successors(Some(self.free), |&at| {
            self.nodes.get(at as usize).map(|node| node.len)
        });
        self.nodes.len() - free.take_while(|&at| at != NIL).count()
    }

    fn allocate(&mut self) -> u32 {
        if self.free == NIL {
            debug_assert!(self.nodes.len() < self.nodes.capacity(), "a node beyond the reserve");
            self.nodes.push(Node { entries: [Entry::default(); FANOUT], len: 0 });
            return (self.nodes.len() - 1) as u32;
        }
        let at = self.free;
        self.free = core::mem::take(&mut self.nodes[at as usize].len);
        at
    }

    fn release(&mut self, at: u32) {
        self.nodes[at as usize].len = self.free;
        self.free = at;
    }

    /// The entry of a node in its parent.
    fn child(&self, node: u32) -> Entry {
        let entries = &self.nodes[node as usize];
        Entry { key: entries.entries[0].key, v: entries.min_v(), slot: node }
    }

    /// Inserts below `node`, which is `height` levels above the leaves. Returns the new right
    /// neighbour if `node` was full and is split.
    #[inline(never)]
    fn insert(&mut self, node: u32, height: usize, mut entry: Entry) -> Option<Entry> {
        if height > 0 {
            let (child, at) = self.nodes[node as usize].widen(entry);
            entry = self.insert(child as u32, height - 1, entry)?;
            self.nodes[node as usize].entries[at] = self.child(child as u32);
        }
        if self.nodes[node as usize].entries().len() < FANOUT {
            self.nodes[node as usize].insert(entry);
            return None;
        }
        let right = self.allocate();
        let [left_node, right_node] = self.pair(node, right);
        // Most inserts append; then the left node keeps more entries, because few will follow.
        let appends = left_node.entries[FANOUT - 1].key.before(entry.key);
        let kept = if appends { FANOUT + 1 - MIN_ENTRIES } else { FANOUT / 2 };
        right_node.set(&left_node.entries[kept..]);
        left_node.len = kept as u32;
        let goes_left = entry.key.before(right_node.entries[0].key);
        if goes_left {
            left_node.insert(entry)
        } else {
            right_node.insert(entry)
        }
        Some(self.child(right))
    }

    /// Refills child `at` of `parent`, which holds fewer than [`MIN_ENTRIES`]: merges it with a
    /// neighbour if both fit into one node, else splits the entries evenly.
    #[inline(never)]
    fn rebalance(&mut self, parent: usize, at: usize) {
        let at = at.min(self.nodes[parent].entries().len() - 2);
        let [left, right] = [at, at + 1].map(|at| self.nodes[parent].entries[at].slot);
        let [left_node, right_node] = self.pair(left, right);
        let mut all = [Entry::default(); 2 * FANOUT];
        let (first, total) = (left_node.entries().len(), left_node.len + right_node.len);
        all[..first].copy_from_slice(left_node.entries());
        all[first..total as usize].copy_from_slice(right_node.entries());
        let all = &all[..total as usize];
        let is_merged = all.len() <= FANOUT;
        let (low, high) = all.split_at(if is_merged { all.len() } else { all.len() / 2 });
        left_node.set(low);
        right_node.set(high);
        let (left_entry, right_entry) = (self.child(left), self.child(right));
        let parent = &mut self.nodes[parent];
        parent.entries[at] = left_entry;
        parent.entries[at + 1] = right_entry;
        if is_merged {
            parent.remove(at + 1);
            self.release(right);
        }
    }

    fn pair(&mut self, left: u32, right: u32) -> [&mut Node; 2] {
        let pair = self.nodes.get_disjoint_mut([left as usize, right as usize]);
        pair.expect("fair: a node has one parent")
    }
}

/// A position in a leaf, and the inner nodes and positions on the way to it.
struct Path {
    node: [u32; LEVELS],
    child: [u8; LEVELS],
    leaf: usize,
    at: usize,
}

/// An ordered tree in an [`Arena`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    root: u32,
    /// Levels above the leaves.
    height: usize,
    len: u32,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { root: NIL, height: 0, len: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The path that takes position `choose(node)` in each node; `None` if one has none.
    #[inline(always)]
    fn path(&self, arena: &Arena, choose: impl Fn(&Node) -> Option<usize>) -> Option<Path> {
        let (mut node, mut child) = ([0; LEVELS], [0; LEVELS]);
        let mut row = arena.nodes.get(self.root as usize)?;
        let mut leaf = self.root;
        for level in 0..self.height {
            let at = choose(row)?;
            (node[level], child[level]) = (leaf, at as u8);
            leaf = row.entries[at].slot;
            row = &arena.nodes[leaf as usize];
        }
        Some(Path { node, child, leaf: leaf as usize, at: choose(row)? })
    }

    /// Adds an entry whose key is not in the tree.
    #[inline(always)]
    pub(super) fn insert(&mut self, arena: &mut Arena, entry: Entry) {
        if self.root == NIL {
            self.root = arena.allocate();
        }
        self.len += 1;
        let mut node = self.root as usize;
        for _ in 0..self.height {
            node = arena.nodes[node].widen(entry).0;
        }
        if arena.nodes[node].entries().len() < FANOUT {
            return arena.nodes[node].insert(entry);
        }
        self.insert_full(arena, entry);
    }

    #[inline(never)]
    fn insert_full(&mut self, arena: &mut Arena, entry: Entry) {
        if let Some(right) = arena.insert(self.root, self.height, entry) {
            let left = arena.child(self.root);
            self.root = arena.allocate();
            self.height += 1;
            arena.nodes[self.root as usize].set(&[left, right]);
        }
    }

    /// The first entry by key whose virtual runtime is not after `limit`.
    pub(super) fn first(&self, arena: &Arena, limit: VirtualTime) -> Option<Entry> {
        let path = self.path(arena, |node| node.first_until(limit))?;
        Some(arena.nodes[path.leaf].entries[path.at])
    }

    /// Removes what [`Tree::first`] finds; returns its slot.
    pub(super) fn take_first(&mut self, arena: &mut Arena, limit: VirtualTime) -> Option<u32> {
        let path = self.path(arena, |node| node.first_until(limit))?;
        Some(self.remove_at(arena, &path))
    }

    /// Removes the entry with this key.
    pub(super) fn remove(&mut self, arena: &mut Arena, key: Key) {
        let path = self.path(arena, |node| node.rank(key).checked_sub(1));
        let path = path.expect("fair: an entity is in its tree");
        let found = &arena.nodes[path.leaf].entries[path.at];
        assert!(found.key == key, "fair: an entity is in its tree");
        self.remove_at(arena, &path);
    }

    /// Removes the entry at the end of a path; returns its slot.
    #[inline]
    fn remove_at(&mut self, arena: &mut Arena, path: &Path) -> u32 {
        self.len -= 1;
        let Entry { v, slot, .. } = arena.nodes[path.leaf].entries[path.at];
        arena.nodes[path.leaf].remove(path.at);
        let mut child = path.leaf;
        for level in (0..self.height).rev() {
            let (node, at) = (path.node[level] as usize, usize::from(path.child[level]));
            let row = &arena.nodes[core::mem::replace(&mut child, node)];
            if row.entries().len() < MIN_ENTRIES {
                arena.rebalance(node, at);
            } else if arena.nodes[node].entries[at].v == v {
                arena.nodes[node].entries[at].v = row.min_v();
            } else {
                // Another entry is the minimum here, and therefore above.
                return slot;
            }
        }
        if self.height > 0 && arena.nodes[self.root as usize].len == 1 {
            let child = arena.nodes[self.root as usize].entries[0].slot;
            arena.release(self.root);
            self.root = child;
            self.height -= 1;
        }
        slot
    }

    /// The minimum virtual runtime of all entries.
    pub(super) fn min_v(&self, arena: &Arena) -> Option<VirtualTime> {
        (self.len > 0).then(|| arena.nodes[self.root as usize].min_v())
    }

    /// Calls `visit` with each entry in key order until it returns false.
    pub(super) fn visit(&self, arena: &Arena, visit: &mut impl FnMut(Entry) -> bool) {
        if self.len > 0 {
            visit_below(arena, self.root, self.height, visit);
        }
    }

    /// Verifies order, augmentation, fill and count; returns the number of nodes.
    pub(super) fn check(&self, arena: &Arena) -> Result<usize, Violation> {
        let (mut nodes, mut entries) = (0, 0);
        if self.root != NIL {
            let min_entries = if self.height > 0 { 2 } else { 0 };
            (nodes, entries) = check_below(arena, self.root, self.height, min_entries, [None; 2])?;
        }
        equal("fair tree: the count of entries", 0, self.len, entries)?;
        Ok(nodes)
    }
}

fn visit_below(
    arena: &Arena,
    node: u32,
    height: usize,
    visit: &mut impl FnMut(Entry) -> bool,
) -> bool {
    let mut entries = arena.nodes[node as usize].entries().iter();
    match height {
        0 => entries.all(|&entry| visit(entry)),
        _ => entries.all(|child| visit_below(arena, child.slot, height - 1, visit)),
    }
}

/// Verifies a node with at least `min_entries` entries whose keys are within `range` (the first
/// key, the first key after), and its subtree; returns the number of nodes and of entities in it.
fn check_below(
    arena: &Arena,
    node: u32,
    height: usize,
    min_entries: usize,
    range: [Option<Key>; 2],
) -> Result<(usize, u32), Violation> {
    holds("fair tree: a child is a node", node, (node as usize) < arena.nodes.len())?;
    let (at_node, node) = (node, &arena.nodes[node as usize]);
    let is_filled = (min_entries..=FANOUT).contains(&(node.len as usize));
    holds("fair tree: the fill of a node", at_node, is_filled)?;
    let (mut nodes, mut count) = (1, if height == 0 { node.len } else { 0 });
    for (at, entry) in node.entries().iter().enumerate() {
        let next = node.entries().get(at + 1).map(|next| next.key).or(range[1]);
        let is_ordered = (at > 0 || range[0].is_none_or(|first| !entry.key.before(first)))
            && next.is_none_or(|next| entry.key.before(next));
        holds("fair tree: the order of keys", at_node, is_ordered)?;
        if height > 0 {
            let range = [Some(entry.key), next];
            let below = check_below(arena, entry.slot, height - 1, MIN_ENTRIES, range)?;
            (nodes, count) = (nodes + below.0, count + below.1);
            let min_v = arena.nodes[entry.slot as usize].min_v();
            holds("fair tree: a minimum virtual runtime", at_node, min_v == entry.v)?;
        }
    }
    Ok((nodes, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    impl Tree {
        /// Breaks one invariant of a tree with at least one inner node.
        pub(crate) fn damage(&mut self, arena: &mut Arena, fault: u32) {
            let root = &mut arena.nodes[self.root as usize];
            match fault {
                0 => root.entries[1].v.0 += 1,
                1 => root.entries[1].key.deadline = root.entries[1].key.deadline.plus(1 << 50),
                2 => root.len = 1,
                3 => self.len += 1,
                _ => {
                    let mut node = self.root;
                    (0..self.height)
                        .for_each(|_| node = arena.nodes[node as usize].entries[0].slot);
                    arena.nodes[node as usize].entries.swap(0, 1);
                }
            }
        }
    }

    /// Against a sorted vector: every removal, every first, in trees that grow, shrink and drift
    /// like a queue's.
    #[test]
    fn agrees_with_a_sorted_vector() {
        let (mut arena, mut tree) = (Arena::new(), Tree::new());
        arena.reserve(2_000, 1).expect("memory");
        let mut sorted: Vec<Entry> = Vec::new();
        let mut state = 99u64;
        let mut random = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut highest = 0;
        // Around the wrap of virtual time.
        let start = VirtualTime(i64::MAX - 40_000);
        for step in 0..60_000u64 {
            let grows = (step / 4_000) % 3 != 2;
            let now = start.plus(step as i64);
            if sorted.len() < 2_000 && (sorted.is_empty() || random(10) < if grows { 6 } else { 3 })
            {
                let key = Key { deadline: now.plus(random(5_000) as i64), arrival: step };
                let entry =
                    Entry { key, v: now.plus(random(4_000) as i64 - 2_000), slot: step as u32 };
                tree.insert(&mut arena, entry);
                let at = sorted.partition_point(|one| one.key.before(key));
                sorted.insert(at, entry);
            } else if random(2) == 0 {
                let entry = sorted.remove(random(sorted.len() as u64) as usize);
                tree.remove(&mut arena, entry.key);
            } else {
                let limit = now.plus(random(2_000) as i64 - 1_500);
                let expected = sorted.iter().position(|entry| !limit.before(entry.v));
                assert_eq!(tree.first(&arena, limit), expected.map(|at| sorted[at]));
                assert_eq!(
                    tree.take_first(&mut arena, limit),
                    expected.map(|at| sorted.remove(at).slot)
                );
            }
            highest = highest.max(tree.height);
            if step % 97 == 0 {
                assert_eq!(tree.check(&arena), Ok(arena.in_use()));
                let mut seen = Vec::new();
                tree.visit(&arena, &mut |entry| {
                    seen.push(entry);
                    true
                });
                assert_eq!(seen, sorted);
                assert_eq!(tree.min_v(&arena).is_none(), sorted.is_empty());
            }
        }
        assert!(highest >= 2, "height {highest}");
    }
}
