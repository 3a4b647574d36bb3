//! Which records of a lane belong to which session: an intrusive list per session, and a sorted
//! table of the lists.
//!
//! Contract: sessions move between lanes as a whole, so a lane must reach all records of one
//! without scanning. The list is in the order in which the records came to the lane. Spawn, end and
//! migration touch it; picks and wakes never do.

use crate::record::{Kin, NIL, Slab};
use crate::types::Refusal;
use alloc::vec::Vec;

/// One session's records on this lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionList {
    pub(crate) session: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) count: u32,
}

impl SessionList {
    /// Appends a record, but for its own links, which it gives: so the record need not be there
    /// yet.
    #[inline(always)]
    #[must_use]
    pub(crate) fn append(&mut self, kin: &mut [Kin], slot: u32) -> Kin {
        let tail = core::mem::replace(&mut self.tail, slot);
        self.count += 1;
        // Nobody has the links of `NIL`.
        match kin.get_mut(tail as usize) {
            Some(before) => before.session_next = slot,
            None => self.head = slot,
        }
        Kin { session_prev: tail, session_next: NIL }
    }

    /// Takes a record out; the list may be empty then.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, kin: &mut [Kin], slot: u32) {
        let Kin { session_prev: prev, session_next: next } = kin[slot as usize];
        self.count -= 1;
        match kin.get_mut(prev as usize) {
            Some(before) => before.session_next = next,
            None => self.head = next,
        }
        match kin.get_mut(next as usize) {
            Some(after) => after.session_prev = prev,
            None => self.tail = prev,
        }
    }
}

/// The sessions of a lane, ascending by number. A session without records has no entry.
#[derive(Default)]
pub(crate) struct Sessions {
    table: Vec<SessionList>,
    /// Entries that were reserved. Kept beside the vector's own capacity, which may be larger: a
    /// refusal must not depend on an allocator.
    reserved: usize,
}

impl Sessions {
    pub(crate) const fn new() -> Self {
        Self { table: Vec::new(), reserved: 0 }
    }

    /// Makes room for `additional` sessions more than there are.
    pub(crate) fn reserve(&mut self, additional: u32) -> Result<(), Refusal> {
        self.table
            .try_reserve(additional as usize)
            .map_err(|_| Refusal::OutOfMemory { wanted: additional })?;
        self.reserved = self.reserved.max(self.table.len() + additional as usize);
        Ok(())
    }

    /// Whether there is room for `additional` sessions more than there are.
    #[inline]
    pub(crate) fn has_room(&self, additional: u32) -> bool {
        self.table.len() + additional as usize <= self.reserved
    }

    pub(crate) const fn reserved(&self) -> u32 {
        self.reserved as u32
    }

    pub(crate) fn table(&self) -> &[SessionList] {
        &self.table
    }

    pub(crate) fn get(&self, session: u32) -> Option<&SessionList> {
        self.table.get(self.find(session).ok()?)
    }

    /// Where a session's entry is, or would be. Most often it is the last.
    #[inline(always)]
    pub(crate) fn find(&self, session: u32) -> Result<usize, usize> {
        match self.table.last() {
            Some(last) if last.session == session => Ok(self.table.len() - 1),
            _ => self.find_other(session),
        }
    }

    #[inline(never)]
    fn find_other(&self, session: u32) -> Result<usize, usize> {
        match self.table.last() {
            None => Err(0),
            Some(last) if last.session < session => Err(self.table.len()),
            Some(_) => self.table.binary_search_by_key(&session, |entry| entry.session),
        }
    }

    /// Whether a record of this session can be added without a reservation.
    pub(crate) fn admit(&self, session: u32) -> Result<(), Refusal> {
        if self.table.len() < self.reserved || self.find(session).is_ok() {
            return Ok(());
        }
        Err(Refusal::SessionsNotReserved {
            sessions: self.table.len() as u32,
            capacity: self.reserved as u32,
        })
    }

    /// Appends a record to its session's list; [`Self::admit`] said yes.
    pub(crate) fn add(&mut self, slab: &mut Slab, slot: u32) {
        let session = slab.hot(slot).tag.session();
        let index = match self.find(session) {
            Ok(index) => index,
            Err(index) => {
                self.table.insert(index, SessionList { session, head: NIL, tail: NIL, count: 0 });
                index
            }
        };
        *slab.kin_mut(slot) = self.table[index].append(slab.kin_parts(), slot);
    }

    /// The list of a session that has one here.
    #[inline(always)]
    pub(crate) fn list_mut(&mut self, session: u32) -> Option<&mut SessionList> {
        // In this form the last one is found with one look.
        if self.table.last().is_some_and(|last| last.session == session) {
            self.table.last_mut()
        } else {
            self.other_mut(session)
        }
    }

    #[inline(never)]
    fn other_mut(&mut self, session: u32) -> Option<&mut SessionList> {
        let at = self.find_other(session).ok()?;
        self.table.get_mut(at)
    }

    /// Takes a record out of its session's list.
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        self.remove_of(slab.hot(slot).tag.session(), slab, slot);
    }

    /// [`Self::remove`], for who knows the session.
    pub(crate) fn remove_of(&mut self, session: u32, slab: &mut Slab, slot: u32) {
        let index = self.find(session).expect("a live record is in its session's list");
        self.table[index].unlink(slab.kin_parts(), slot);
        if self.table[index].count == 0 {
            self.table.remove(index);
        }
    }
}
