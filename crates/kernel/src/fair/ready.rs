//! The queued entities of a competition: lists of those that arrived in order, and a tree of the
//! others.
//!
//! Entities that yield or use up requests of one size mostly arrive behind others of their kind:
//! with a later key, and with a virtual runtime that is not before theirs. A list is ascending in
//! both, so that its first entity is its first eligible one, or none in it is eligible. What
//! belongs behind no list goes to the tree. What holds an entity is not observable.
//!
//! Contract: O(1) in a list, O(log n) in the tree; nothing allocates.

use super::competition::EntityTable;
use super::entity::{Entity, Phase, VirtualTime};
use super::tree::{Entry, Tree};
use crate::check::{Violation, equal, holds};
use crate::record::NIL;

/// The average of a competition: what decides who is eligible.
#[derive(Clone, Copy)]
pub(super) struct Average {
    pub(super) origin: VirtualTime,
    pub(super) weighted_sum: i128,
    pub(super) weight: i64,
}

impl Average {
    /// `V`, rounded down.
    #[inline]
    pub(super) fn virtual_time(self) -> VirtualTime {
        if self.weight == 0 {
            self.origin
        } else {
            self.origin.plus(super::entity::divide_floor(self.weighted_sum, self.weight))
        }
    }

    /// `v <= V` without a division.
    #[inline]
    pub(super) fn is_eligible(self, v: VirtualTime) -> bool {
        self.weighted_sum >= i128::from(v.since(self.origin)) * i128::from(self.weight)
    }
}

/// Lists. Two, because entities that still use their requests and those that have renewed them
/// alternate.
const LISTS: usize = 2;

/// Entities in order of arrival, which is also that of their keys and of their virtual runtimes.
#[derive(Clone, Copy, Debug)]
struct List {
    /// The first; what it has as its `previous` has no meaning.
    head: u32,
    tail: u32,
    len: u32,
}

/// Queued entities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    lists: [List; LISTS],
    pub(super) tree: Tree,
}

impl List {
    /// The first entity, if there is one.
    #[inline(always)]
    fn first(&self, table: &EntityTable) -> Option<Entry> {
        (self.head != NIL).then(|| table.entities[self.head as usize].entry(self.head))
    }

    /// Appends an entity, if it belongs behind the last.
    #[inline(always)]
    fn append(&mut self, table: &mut EntityTable, slot: u32) -> bool {
        let previous = self.tail;
        if previous != NIL {
            let entity = &table.entities[slot as usize];
            let last = &table.entities[previous as usize];
            if entity.v.before(last.v) || !last.key().before(entity.key()) {
                return false;
            }
            table.entities[previous as usize].next = slot;
        } else {
            self.head = slot;
        }
        self.tail = slot;
        self.len += 1;
        let entity = &mut table.entities[slot as usize];
        (entity.previous, entity.next) = (previous, NIL);
        true
    }

    /// Removes the first entity, which there is.
    #[inline(always)]
    fn take_first(&mut self, entities: &mut [Entity]) -> u32 {
        let head = self.head;
        let next = entities[head as usize].next;
        self.len -= 1;
        self.head = next;
        if next == NIL {
            self.tail = NIL;
        }
        head
    }

    #[inline(always)]
    fn remove(&mut self, table: &mut EntityTable, slot: u32) {
        let Entity { previous, next, .. } = table.entities[slot as usize];
        if slot == self.head {
            let _ = self.take_first(&mut table.entities);
            return;
        }
        self.len -= 1;
        table.entities[previous as usize].next = next;
        match next {
            NIL => self.tail = previous,
            next => table.entities[next as usize].previous = previous,
        }
    }

    /// Verifies the list, which is number `number`; returns how many it holds.
    fn check(&self, table: &EntityTable, number: usize) -> Result<u32, Violation> {
        let (mut at, mut previous, mut count) = (self.head, NIL, 0);
        while at != NIL {
            let entity = &table.entities[at as usize];
            let is_listed = usize::from(entity.list) == number && entity.phase == Phase::Queued;
            let is_linked = entity.previous == previous || at == self.head;
            holds("a listed entity is queued", at, is_listed && is_linked)?;
            if previous != NIL {
                let before = &table.entities[previous as usize];
                let ascends = before.key().before(entity.key()) && !entity.v.before(before.v);
                holds("the list ascends in key and virtual runtime", at, ascends)?;
            }
            count += 1;
            holds("the list ends", at, count <= self.len)?;
            (previous, at) = (at, entity.next);
        }
        equal("the list's tail", 0, self.tail, previous)?;
        equal("the list's count", 0, self.len, count)?;
        Ok(count)
    }
}

impl Ready {
    pub(super) const fn new() -> Self {
        Self { lists: [List { head: NIL, tail: NIL, len: 0 }; LISTS], tree: Tree::new() }
    }

    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.lists[0].len + self.lists[1].len + self.tree.len()
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        let [one, other] = &self.lists;
        one.head == NIL && other.head == NIL && self.tree.is_empty()
    }

    /// Adds an entity that arrived after all others to a list, if it belongs behind all of it.
    #[inline(always)]
    pub(super) fn append(
        &mut self,
        entities: &mut [Entity],
        slot: u32,
        (v, deadline): (VirtualTime, VirtualTime),
    ) -> bool {
        for (list, number) in self.lists.iter_mut().zip(0u8..) {
            let previous = list.tail;
            match entities.get_mut(previous as usize) {
                Some(last) if v.before(last.v) || deadline.before(last.deadline) => continue,
                Some(last) => last.next = slot,
                None => list.head = slot,
            }
            list.tail = slot;
            list.len += 1;
            let entity = &mut entities[slot as usize];
            (entity.previous, entity.next, entity.list) = (previous, NIL, number);
            return true;
        }
        false
    }

    #[inline(never)]
    pub(super) fn insert_unlisted(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &mut table.entities[slot as usize];
        entity.list = Entity::UNLISTED;
        let entry = entity.entry(slot);
        self.tree.insert(&mut table.arena, entry);
    }

    /// Adds a queued entity.
    #[inline(always)]
    pub(super) fn insert(&mut self, table: &mut EntityTable, slot: u32) {
        for (list, number) in self.lists.iter_mut().zip(0u8..) {
            if list.append(table, slot) {
                table.entities[slot as usize].list = number;
                return;
            }
        }
        self.insert_unlisted(table, slot);
    }

    /// Removes a queued entity.
    #[inline(always)]
    pub(super) fn remove(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        match self.lists.get_mut(usize::from(entity.list)) {
            Some(list) => list.remove(table, slot),
            None => self.tree.remove(&mut table.arena, entity.key()),
        }
    }

    /// The first of the lists by key of which `is_eligible` holds.
    #[inline(always)]
    fn first_listed(
        &self,
        table: &EntityTable,
        is_eligible: impl Fn(VirtualTime) -> bool,
    ) -> Option<Entry> {
        let [one, other] = &self.lists;
        let one = one.first(table).filter(|entry| is_eligible(entry.v));
        let other = other.first(table).filter(|entry| is_eligible(entry.v));
        earlier(one, other)
    }

    /// The first entry by key whose virtual runtime is not after `limit`.
    pub(super) fn first(&self, table: &EntityTable, limit: VirtualTime) -> Option<Entry> {
        let listed = self.first_listed(table, |v| !limit.before(v));
        earlier(listed, self.tree.first(&table.arena, limit))
    }

    /// The list of which the first entity is the first by key among the eligible. `None` if there
    /// is none, or the tree may have it.
    #[inline(always)]
    pub(super) fn first_list(&self, entities: &[Entity], average: Average) -> Option<usize> {
        if !self.tree.is_empty() {
            return None;
        }
        let [one, other] = &self.lists;
        let first = entities.get(one.head as usize);
        let Some(other) = entities.get(other.head as usize) else {
            return first.filter(|first| average.is_eligible(first.v)).map(|_| 0);
        };
        let is_eligible = average.is_eligible(other.v);
        match first.filter(|first| average.is_eligible(first.v)) {
            Some(first) => Some(usize::from(is_eligible && other.key().before(first.key()))),
            None => is_eligible.then_some(1),
        }
    }

    /// Removes the first entity of a list; returns its slot.
    #[inline(always)]
    pub(super) fn take_listed(&mut self, entities: &mut [Entity], number: usize) -> u32 {
        self.lists[number].take_first(entities)
    }

    /// Removes what [`Self::first`] finds; returns its slot.
    #[inline(never)]
    pub(super) fn take_first(
        &mut self,
        table: &mut EntityTable,
        limit: VirtualTime,
    ) -> Option<u32> {
        let Some(listed) = self.first_listed(table, |v| !limit.before(v)) else {
            return self.tree.take_first(&mut table.arena, limit);
        };
        let other = self.tree.first(&table.arena, limit);
        if other.is_some_and(|other| other.key.before(listed.key)) {
            return self.tree.take_first(&mut table.arena, limit);
        }
        self.remove(table, listed.slot);
        Some(listed.slot)
    }

    /// The minimum virtual runtime of all.
    pub(super) fn min_v(&self, table: &EntityTable) -> Option<VirtualTime> {
        let listed = self.lists.iter().filter_map(|list| list.first(table)).map(|entry| entry.v);
        listed.chain(self.tree.min_v(&table.arena)).reduce(VirtualTime::earlier)
    }

    /// Calls `visit` with each entity's slot, in no particular order, until it returns false.
    pub(super) fn visit(&self, table: &EntityTable, visit: &mut impl FnMut(u32) -> bool) {
        for list in &self.lists {
            let mut at = list.head;
            while at != NIL {
                if !visit(at) {
                    return;
                }
                at = table.entities[at as usize].next;
            }
        }
        self.tree.visit(&table.arena, &mut |entry| visit(entry.slot));
    }

    /// Verifies the lists and the tree, which hold `count` entities together; returns the number of
    /// the tree's nodes.
    pub(super) fn check(&self, table: &EntityTable, count: u32) -> Result<usize, Violation> {
        let mut in_tree = count;
        for (number, list) in self.lists.iter().enumerate() {
            in_tree = in_tree.wrapping_sub(list.check(table, number)?);
        }
        super::state::check_tree(table, &self.tree, Phase::Queued, in_tree)
    }
}

/// The earlier entry by key.
#[inline(always)]
fn earlier(one: Option<Entry>, other: Option<Entry>) -> Option<Entry> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.key.before(one.key) { other } else { one }),
        (one, other) => one.or(other),
    }
}
