//! The queued entities of a competition: a list of those that arrived in order, and a tree of the
//! others.
//!
//! Entities that yield or use up requests of one size arrive behind all others: with the latest key
//! and with a virtual runtime that is not before any other's. They are a list that is ascending in
//! both, so that its first entity is the first eligible one, or none of them is eligible. Whatever
//! arrives out of order goes to the tree. Which of the two holds an entity is not observable.
//!
//! Contract: O(1) in the list, O(log n) in the tree; nothing allocates.

use super::competition::EntityTable;
use super::entity::{Phase, VirtualTime};
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

/// Queued entities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    head: u32,
    tail: u32,
    listed: u32,
    pub(super) tree: Tree,
}

impl Ready {
    pub(super) const fn new() -> Self {
        Self { head: NIL, tail: NIL, listed: 0, tree: Tree::new() }
    }

    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.listed + self.tree.len()
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a queued entity.
    #[inline]
    pub(super) fn insert(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &table.entities[slot as usize];
        if self.tail != NIL {
            let last = &table.entities[self.tail as usize];
            if entity.v.before(last.v) || !last.key().before(entity.key()) {
                return self.tree.insert(&mut table.arena, entity.entry(slot));
            }
        }
        let previous = core::mem::replace(&mut self.tail, slot);
        self.listed += 1;
        let entity = &mut table.entities[slot as usize];
        (entity.previous, entity.next, entity.is_listed) = (previous, NIL, true);
        match previous {
            NIL => self.head = slot,
            previous => table.entities[previous as usize].next = slot,
        }
    }

    /// Removes a queued entity.
    #[inline]
    pub(super) fn remove(&mut self, table: &mut EntityTable, slot: u32) {
        let entity = &mut table.entities[slot as usize];
        if !core::mem::take(&mut entity.is_listed) {
            let key = entity.key();
            return self.tree.remove(&mut table.arena, key);
        }
        let (previous, next) = (entity.previous, entity.next);
        self.listed -= 1;
        match previous {
            NIL => self.head = next,
            previous => table.entities[previous as usize].next = next,
        }
        match next {
            NIL => self.tail = previous,
            next => table.entities[next as usize].previous = previous,
        }
    }

    /// The first of the list.
    #[inline]
    fn listed_first(&self, table: &EntityTable) -> Option<Entry> {
        (self.head != NIL).then(|| table.entities[self.head as usize].entry(self.head))
    }

    /// The first entry by key whose virtual runtime is not after `limit`.
    pub(super) fn first(&self, table: &EntityTable, limit: VirtualTime) -> Option<Entry> {
        let listed = self.listed_first(table).filter(|entry| !limit.before(entry.v));
        let other = self.tree.first(&table.arena, limit);
        match (listed, other) {
            (Some(listed), Some(other)) if other.key.before(listed.key) => Some(other),
            (None, other) => other,
            (listed, _) => listed,
        }
    }

    /// Removes the first entity by key among the eligible; returns its slot.
    #[inline]
    pub(super) fn take_eligible(
        &mut self,
        table: &mut EntityTable,
        average: Average,
    ) -> Option<u32> {
        if self.tree.is_empty() {
            let first = self.listed_first(table)?;
            if !average.is_eligible(first.v) {
                return None;
            }
            self.remove(table, first.slot);
            return Some(first.slot);
        }
        self.take_first(table, average.virtual_time())
    }

    /// Removes what [`Self::first`] finds; returns its slot.
    pub(super) fn take_first(
        &mut self,
        table: &mut EntityTable,
        limit: VirtualTime,
    ) -> Option<u32> {
        let listed = self.listed_first(table).filter(|entry| !limit.before(entry.v));
        let Some(listed) = listed else {
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
        let listed = self.listed_first(table).map(|entry| entry.v);
        let other = self.tree.min_v(&table.arena);
        match (listed, other) {
            (Some(listed), Some(other)) => Some(listed.earlier(other)),
            (listed, other) => listed.or(other),
        }
    }

    /// Calls `visit` with each entity's slot, in no particular order, until it returns false.
    pub(super) fn visit(&self, table: &EntityTable, visit: &mut impl FnMut(u32) -> bool) {
        let mut at = self.head;
        while at != NIL {
            if !visit(at) {
                return;
            }
            at = table.entities[at as usize].next;
        }
        self.tree.visit(&table.arena, &mut |entry| visit(entry.slot));
    }

    /// Verifies the list and the tree, which hold `count` entities together; returns the number of
    /// the tree's nodes.
    pub(super) fn check(&self, table: &EntityTable, count: u32) -> Result<usize, Violation> {
        let (mut at, mut previous, mut listed) = (self.head, NIL, 0);
        while at != NIL {
            let entity = &table.entities[at as usize];
            let is_listed = entity.is_listed && entity.phase == Phase::Queued;
            holds("a listed entity is queued", at, is_listed && entity.previous == previous)?;
            if previous != NIL {
                let before = &table.entities[previous as usize];
                let ascends = before.key().before(entity.key()) && !entity.v.before(before.v);
                holds("the list ascends in key and virtual runtime", at, ascends)?;
            }
            listed += 1;
            holds("the list ends", at, listed <= self.listed)?;
            (previous, at) = (at, entity.next);
        }
        equal("the list's tail", 0, self.tail, previous)?;
        equal("the count of listed entities", 0, self.listed, listed)?;
        let in_tree = count.wrapping_sub(listed);
        super::state::check_tree(table, &self.tree, Phase::Queued, in_tree)
    }
}
