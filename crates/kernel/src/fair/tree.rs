//! An ordered tree of queue entries: by (deadline, arrival), each subtree with its least virtual runtime.
//!
//! A B+-tree over a node arena that is reserved ahead: leaves hold up to 16 entries in no particular order (a leaf is scanned, never
//! shifted), inner nodes hold up to 16 children in key order with a separator and the least virtual runtime of each. Every
//! operation walks one path, so it is O(log n) in the worst case; splitting, merging and evening out touch two nodes per level. Nodes
//! other than the root hold at least [`LEAST`], which bounds what [`Arena::reserve`] must hold.
//!
//! The tree knows keys and virtual runtimes only; weights, sums and eligibility are `queue`'s (eligibility comes in as a test that,
//! once false for a time, is false for every later one).

use super::entity::VirtualTime;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Entries of a leaf, children of an inner node.
const FANOUT: usize = 16;
/// The fewest a node other than the root holds.
const LEAST: usize = 6;
/// Two neighbours are merged when they hold at most this many together; the result can take and give several before it changes shape.
const MERGE: usize = 2 * LEAST + 1;
/// Levels above the leaves: 6^13 leaves of 6 entries are more than 2^32 slots.
const LEVELS: usize = 13;
/// Ends the list of free nodes.
const NONE: u32 = u32::MAX;

const _: () = assert!(LEAST <= (FANOUT + 1) / 2 && MERGE <= FANOUT && MERGE + 1 >= 2 * LEAST);

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
        let distance = self.deadline.since(other.deadline);
        distance < 0 || (distance == 0 && self.arrival < other.arrival)
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
    /// Entries held; the next free leaf while free.
    len: u32,
}

impl Leaf {
    const EMPTY: Self =
        Self { key: [Key { deadline: VirtualTime(0), arrival: 0 }; FANOUT], v: [VirtualTime(0); FANOUT], slot: [0; FANOUT], len: 0 };

    fn len(&self) -> usize {
        self.len as usize
    }

    fn entry(&self, at: usize) -> Entry {
        Entry { key: self.key[at], v: self.v[at], slot: self.slot[at] }
    }

    fn push(&mut self, entry: Entry) {
        let at = self.len();
        self.key[at] = entry.key;
        self.v[at] = entry.v;
        self.slot[at] = entry.slot;
        self.len += 1;
    }

    fn take(&mut self, at: usize) -> Entry {
        let taken = self.entry(at);
        let last = self.len() - 1;
        self.key[at] = self.key[last];
        self.v[at] = self.v[last];
        self.slot[at] = self.slot[last];
        self.len -= 1;
        taken
    }

    /// The least virtual runtime. A leaf asked for it is not empty.
    fn least_v(&self) -> VirtualTime {
        let mut least = self.v[0];
        for &v in &self.v[1..self.len().max(1)] {
            least = least.earlier(v);
        }
        least
    }
}

#[derive(Clone, Debug)]
struct Inner {
    /// No key of child `i` comes before `separator[i]`, and every key of child `i - 1` does. The first is never consulted.
    separator: [Key; FANOUT],
    /// The least virtual runtime in each child.
    least_v: [VirtualTime; FANOUT],
    child: [u32; FANOUT],
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
        len: 0,
    };

    fn len(&self) -> usize {
        self.len as usize
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
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        self.separator.copy_within(at + 1..len, at);
        self.least_v.copy_within(at + 1..len, at);
        self.child.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// The child whose keys' range holds `key`.
    #[inline]
    fn position(&self, key: Key) -> usize {
        self.separator[1..self.len().max(1)].iter().filter(|separator| !key.before(**separator)).count()
    }

    fn least_v(&self) -> VirtualTime {
        let mut least = self.least_v[0];
        for &v in &self.least_v[1..self.len().max(1)] {
            least = least.earlier(v);
        }
        least
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
#[derive(Clone, Copy)]
struct Path {
    node: [u32; LEVELS],
    child: [u8; LEVELS],
}

/// Where an entry was found; valid until the tree changes.
#[derive(Clone, Copy)]
pub(super) struct Found {
    path: Path,
    leaf: u32,
    at: usize,
    pub(super) entry: Entry,
}

/// An ordered tree in an [`Arena`].
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// A leaf when `height` is 0, else an inner node; no node at all before the first insert.
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    len: u32,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { root: NONE, height: 0, len: 0 }
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
        self.len += 1;
        let mut path = Path { node: [0; LEVELS], child: [0; LEVELS] };
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &mut arena.inners[node as usize];
            let at = inner.position(entry.key);
            inner.least_v[at] = inner.least_v[at].earlier(entry.v);
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let leaf = &mut arena.leaves[node as usize];
        if leaf.len() < FANOUT {
            leaf.push(entry);
            return;
        }
        let (kept_v, mut added) = split_leaf(arena, node, entry);
        let mut kept_v = kept_v;
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
        inner.len = 2;
        self.root = root;
        self.height += 1;
    }

    /// The first entry by key whose virtual runtime passes `eligible`.
    #[inline]
    pub(super) fn first(&self, arena: &Arena, eligible: impl Fn(VirtualTime) -> bool) -> Option<Found> {
        if self.len == 0 {
            return None;
        }
        let mut path = Path { node: [0; LEVELS], child: [0; LEVELS] };
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &arena.inners[node as usize];
            let at = inner.least_v[..inner.len()].iter().position(|&v| eligible(v))?;
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let leaf = &arena.leaves[node as usize];
        let mut best: Option<(usize, Key)> = None;
        for at in 0..leaf.len() {
            let key = leaf.key[at];
            if best.is_none_or(|(_, first)| key.before(first)) && eligible(leaf.v[at]) {
                best = Some((at, key));
            }
        }
        let (at, _) = best?;
        Some(Found { path, leaf: node, at, entry: leaf.entry(at) })
    }

    /// Finds the entry with this key, which is in the tree.
    pub(super) fn find(&self, arena: &Arena, key: Key) -> Option<Found> {
        if self.len == 0 {
            return None;
        }
        let mut path = Path { node: [0; LEVELS], child: [0; LEVELS] };
        let mut node = self.root;
        for level in 0..self.height {
            let inner = &arena.inners[node as usize];
            let at = inner.position(key);
            path.node[level] = node;
            path.child[level] = at as u8;
            node = inner.child[at];
        }
        let leaf = &arena.leaves[node as usize];
        let at = leaf.key[..leaf.len()].iter().position(|&other| other == key)?;
        Some(Found { path, leaf: node, at, entry: leaf.entry(at) })
    }

    /// The least virtual runtime of all entries.
    pub(super) fn least_v(&self, arena: &Arena) -> Option<VirtualTime> {
        match (self.len, self.height) {
            (0, _) => None,
            (_, 0) => Some(arena.leaves[self.root as usize].least_v()),
            _ => Some(arena.inners[self.root as usize].least_v()),
        }
    }

    /// Takes a found entry out.
    pub(super) fn remove(&mut self, arena: &mut Arena, found: &Found) {
        self.len -= 1;
        let leaf = &mut arena.leaves[found.leaf as usize];
        leaf.take(found.at);
        let (mut short, mut least_v) = (leaf.len() < LEAST, leaf.least_v());
        for level in (0..self.height).rev() {
            let at = usize::from(found.path.child[level]);
            let node = found.path.node[level];
            if short {
                even_out(arena, node, at, level + 1 == self.height);
            } else {
                let slot = &mut arena.inners[node as usize].least_v[at];
                if *slot == least_v {
                    return;
                }
                *slot = least_v;
            }
            let inner = &arena.inners[node as usize];
            (short, least_v) = (inner.len() < LEAST, inner.least_v());
        }
        while self.height > 0 && arena.inners[self.root as usize].len == 1 {
            let child = arena.inners[self.root as usize].child[0];
            arena.drop_inner(self.root);
            self.root = child;
            self.height -= 1;
        }
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
        let mut entries = [Entry::default(); FANOUT];
        let entries = &mut entries[..leaf.len()];
        entries.iter_mut().enumerate().for_each(|(at, entry)| *entry = leaf.entry(at));
        sort(entries);
        entries.iter().all(|&entry| visit(entry))
    }

    /// Verifies order, augmentation, fill and count; the number of nodes used is added to `leaves` and `inners`.
    pub(super) fn check(&self, arena: &Arena, leaves: &mut usize, inners: &mut usize) -> Result<(), &'static str> {
        if self.root == NONE {
            return if self.len == 0 { Ok(()) } else { Err("entries without a root") };
        }
        let mut count = 0;
        self.check_node(arena, self.root, 0, (None, None), &mut count, (leaves, inners))?;
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
            if !leaf.key[..leaf.len()].iter().all(|&key| inside(key)) {
                return Err("an entry is outside its leaf's range");
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

/// Sorts by key. Entries come nearly in order, and there are few.
fn sort(entries: &mut [Entry]) {
    for next in 1..entries.len() {
        let entry = entries[next];
        let mut at = next;
        while at > 0 && entry.key.before(entries[at - 1].key) {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = entry;
    }
}

/// Splits a full leaf that must take one more entry. Returns the least virtual runtime of what stays, and the new right half.
fn split_leaf(arena: &mut Arena, node: u32, entry: Entry) -> (VirtualTime, Branch) {
    let right = arena.new_leaf();
    let mut all = [Entry::default(); FANOUT + 1];
    let leaf = &arena.leaves[node as usize];
    all[..FANOUT].iter_mut().enumerate().for_each(|(at, slot)| *slot = leaf.entry(at));
    all[FANOUT] = entry;
    sort(&mut all);
    deal(arena, node, right, &all)
}

/// Deals sorted entries evenly to two leaves. Returns the least virtual runtime of the left one, and the right one as a branch.
fn deal(arena: &mut Arena, left: u32, right: u32, entries: &[Entry]) -> (VirtualTime, Branch) {
    let (low, high) = entries.split_at(entries.len() / 2);
    for (node, part) in [(left, low), (right, high)] {
        let leaf = &mut arena.leaves[node as usize];
        leaf.len = 0;
        part.iter().for_each(|&entry| leaf.push(entry));
    }
    let least_v = arena.leaves[right as usize].least_v();
    (arena.leaves[left as usize].least_v(), Branch { separator: high[0].key, least_v, child: right })
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

/// Deals branches in key order evenly to two inner nodes. Answers like [`deal`].
fn deal_branches(arena: &mut Arena, left: u32, right: u32, branches: &[Branch]) -> (VirtualTime, Branch) {
    let (low, high) = branches.split_at(branches.len() / 2);
    for (node, part) in [(left, low), (right, high)] {
        let inner = &mut arena.inners[node as usize];
        inner.len = part.len() as u32;
        part.iter().enumerate().for_each(|(at, &branch)| inner.set(at, branch));
    }
    let least_v = arena.inners[right as usize].least_v();
    (arena.inners[left as usize].least_v(), Branch { separator: high[0].separator, least_v, child: right })
}

/// Brings child `at` of `parent`, which holds fewer than [`LEAST`], back to enough: merged with a neighbour if both fit well into
/// one node, else the two share evenly.
fn even_out(arena: &mut Arena, parent: u32, at: usize, leaves: bool) {
    let node = &arena.inners[parent as usize];
    let left_at = if at + 1 < node.len() { at } else { at - 1 };
    let (left, right) = (node.child[left_at], node.branch(left_at + 1));
    let merged = if leaves { even_out_leaves(arena, left, right.child) } else { even_out_inners(arena, left, right) };
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
    let mut all = [Entry::default(); 2 * FANOUT];
    let mut len = 0;
    for node in [left, right] {
        let leaf = &arena.leaves[node as usize];
        (0..leaf.len()).for_each(|at| all[len + at] = leaf.entry(at));
        len += leaf.len();
    }
    if len > MERGE {
        sort(&mut all[..len]);
        let (least_v, branch) = deal(arena, left, right, &all[..len]);
        return (least_v, Some(branch));
    }
    arena.drop_leaf(right);
    let leaf = &mut arena.leaves[left as usize];
    leaf.len = 0;
    all[..len].iter().for_each(|&entry| leaf.push(entry));
    (leaf.least_v(), None)
}

fn even_out_inners(arena: &mut Arena, left: u32, right: Branch) -> (VirtualTime, Option<Branch>) {
    let mut all = [Branch::default(); 2 * FANOUT];
    let mut len = 0;
    for node in [left, right.child] {
        let inner = &arena.inners[node as usize];
        (0..inner.len()).for_each(|at| all[len + at] = inner.branch(at));
        if node == right.child {
            // The first separator of a node is its parent's business: now it becomes an ordinary one.
            all[len].separator = right.separator;
        }
        len += inner.len();
    }
    if len > MERGE {
        let (least_v, branch) = deal_branches(arena, left, right.child, &all[..len]);
        return (least_v, Some(branch));
    }
    arena.drop_inner(right.child);
    let inner = &mut arena.inners[left as usize];
    inner.len = len as u32;
    all[..len].iter().enumerate().for_each(|(at, &branch)| inner.set(at, branch));
    (inner.least_v(), None)
}
