//! Which records of a lane belong to which session: an intrusive list per session, and a sorted
//! table of the lists.
//!
//! Contract: sessions move between lanes as a whole, so a lane must reach all records of one
//! without scanning. The list is in the order in which the records came to the lane. Spawn, end and
//! migration touch it; picks and wakes never do.

use crate::record::{NIL, SessionLinks, Slab};
use crate::room::Room;
use crate::types::Refusal;

/// One session's records on this lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionList {
    pub(crate) session: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) count: u32,
}

/// The sessions of a lane, ascending by number. A session without records has no entry.
#[derive(Clone, Default)]
pub(crate) struct Sessions {
    table: Room<SessionList>,
    /// Entries that were reserved. Kept beside the vector's own capacity, which may be larger: a
    /// refusal must not depend on an allocator.
    reserved: usize,
}

impl Sessions {
    pub(crate) const fn new() -> Self {
        Self { table: Room::new(), reserved: 0 }
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

    /// The position of a session's entry, or where it would be inserted. The last one is tried
    /// first: most lanes have one session.
    #[inline(always)]
    fn find(&self, session: u32) -> Result<usize, usize> {
        match self.table.last() {
            Some(last) if last.session == session => Ok(self.table.len() - 1),
            _ => self.table.binary_search_by_key(&session, |entry| entry.session),
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

    /// The list of a session; a new one if it has none.
    #[cold]
    #[inline(never)]
    fn list(&mut self, session: u32) -> &mut SessionList {
        let index = self.find(session).unwrap_or_else(|index| {
            self.table.insert(index, SessionList { session, head: NIL, tail: NIL, count: 0 });
            index
        });
        &mut self.table[index]
    }

    /// Appends a record to its session's list; [`Self::admit`] accepted it.
    #[inline(always)]
    pub(crate) fn add(&mut self, slab: &mut Slab, slot: u32) {
        let session = slab.hot(slot).tag.session();
        let end = self.table.len();
        let list = match self.table.last() {
            Some(last) if last.session == session => &mut self.table[end - 1],
            _ => self.list(session),
        };
        let prev = core::mem::replace(&mut list.tail, slot);
        list.count += 1;
        *slab.session_links_mut(slot) = SessionLinks { prev, next: NIL };
        match prev {
            NIL => list.head = slot,
            prev => slab.session_links_mut(prev).next = slot,
        }
    }

    /// Removes a record from its session's list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let session = slab.hot(slot).tag.session();
        let index = self.find(session).expect("a live record is in its session's list");
        let list = &mut self.table[index];
        let SessionLinks { prev, next } = slab.session_links(slot);
        match prev {
            NIL => list.head = next,
            prev => slab.session_links_mut(prev).next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => slab.session_links_mut(next).prev = prev,
        }
        list.count -= 1;
        if list.count == 0 {
            self.remove_list(index);
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_list(&mut self, index: usize) {
        self.table.remove(index);
    }
}
