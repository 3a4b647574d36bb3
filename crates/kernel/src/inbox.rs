//! Effects that cross lanes: posted to the sending lane's outbox during a wave, delivered at its end in the order (sending lane, lane-local
//! step, sequence), whoever ran the lanes in whatever order (semantics 15).
//!
//! Contract: an outbox belongs to one lane, so posting needs no lock; its capacity is reserved and a full one refuses. Delivery walks the
//! outboxes in lane order; within one, letters are in step order already, so nothing is sorted. An [`Inbox`] is the receiving end: it
//! keeps no letters, it proves that they come in order.
//!
//! Elsewhere: what an effect does. The kernel's own are in `kernel`; `system` uses the same types for messages.

use crate::types::Refusal;
use alloc::vec::Vec;
use wavelock_abi::LaneId;

/// The place of an effect in canonical order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrderKey {
    /// The sending lane.
    pub from: LaneId,
    /// Its step when it sent.
    pub step: u64,
    /// Which of that step's effects.
    pub sequence: u32,
}

/// An effect on its way to another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter<T> {
    /// The lane it goes to.
    pub to: LaneId,
    /// Its place in canonical order.
    pub key: OrderKey,
    /// What it does there.
    pub effect: T,
}

/// What one lane sends to others during a wave.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    from: LaneId,
    letters: Vec<Letter<T>>,
    /// Letters that were reserved; kept beside the vector's own capacity, which may be larger.
    reserved: usize,
}

impl<T> Outbox<T> {
    /// An empty outbox of a lane, without room.
    #[must_use]
    pub const fn new(from: LaneId) -> Self {
        Self { from, letters: Vec::new(), reserved: 0 }
    }

    /// Makes room for at least `letters` in one wave.
    ///
    /// # Errors
    /// The host has no memory for it.
    pub fn reserve(&mut self, letters: u32) -> Result<(), Refusal> {
        let missing = (letters as usize).saturating_sub(self.letters.len());
        self.letters.try_reserve(missing).map_err(|_| Refusal::OutOfMemory { wanted: letters })?;
        self.reserved = self.reserved.max(letters as usize);
        Ok(())
    }

    /// Posts an effect in the lane's step `step`, which never goes back.
    ///
    /// # Errors
    /// The outbox is full, or the letter would stay on its lane.
    ///
    /// # Panics
    /// When the step goes back: our bug.
    pub fn post(&mut self, to: LaneId, step: u64, effect: T) -> Result<OrderKey, Refusal> {
        if to == self.from {
            return Err(Refusal::SameLane { lane: to });
        }
        if self.letters.len() >= self.reserved {
            return Err(Refusal::OutboxFull { capacity: self.reserved as u32 });
        }
        let sequence = match self.letters.last() {
            Some(last) if last.key.step == step => last.key.sequence + 1,
            Some(last) => {
                assert!(last.key.step < step, "a lane's steps go forward");
                0
            }
            None => 0,
        };
        let key = OrderKey { from: self.from, step, sequence };
        self.letters.push(Letter { to, key, effect });
        Ok(key)
    }

    /// Takes every letter out, in order. The room stays.
    pub fn drain(&mut self) -> impl Iterator<Item = Letter<T>> + '_ {
        self.letters.drain(..)
    }

    /// Letters there is room for in one wave.
    #[must_use]
    pub const fn reserved(&self) -> u32 {
        self.reserved as u32
    }

    /// Letters waiting for the wave's end.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.letters.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }
}

/// The receiving end of one lane for one wave's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inbox {
    last: Option<OrderKey>,
}

impl Inbox {
    /// Opens it at a wave's end.
    #[must_use]
    pub const fn open() -> Self {
        Self { last: None }
    }

    /// Accepts a letter and gives what is in it.
    ///
    /// # Panics
    /// When it comes out of canonical order: our bug, and the one that would make two runs differ.
    pub fn accept<T>(&mut self, letter: Letter<T>) -> T {
        assert!(self.last < Some(letter.key), "inbox out of order: {:?} after {:?}", letter.key, self.last);
        self.last = Some(letter.key);
        letter.effect
    }
}
