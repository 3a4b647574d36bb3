//! The sleepers of a lane: an aligned hierarchical wheel over frames, 2,048 near lists and 7 levels of 256, with a bitmap per 256 lists.
//!
//! Contract: sleepers leave in the order (frame, arrival). Insert and remove are O(1); each sleeper is moved at most seven times down
//! the levels before it wakes, so a million sleepers cost what they wake; the frame of the next sleeper is found through the bitmaps.
//!
//! A sleeper that shares all but its lowest eleven bits with the wheel's base is in the near list of those bits. Otherwise its level is that of
//! the highest bit in which it differs, eight bits a level, and its list that level's digit. Moving the base into a block first cascades that block's list
//! downwards in order; inserts into the lower lists happen only after that, so every list is in ascending arrival. Near lists are many because a
//! cascade touches a record that is in no cache: short sleeps mostly need none. To name the next sleeper's frame exactly the base may run
//! ahead of the lane's frame; a sleeper due before the base waits in a small heap beside the wheel.

use crate::bitmap::Bitmap256;
use crate::check::{Violation, equal, holds};
use crate::heap::{self, ByFrame};
use crate::record::{List, NIL, Place, Slab};
use alloc::boxed::Box;
use alloc::vec;
use wavelock_abi::Frame;

/// Bits of a frame that the near lists tell apart.
const NEAR_BITS: u32 = 11;
/// Rows of 256 lists that are near.
const NEAR_ROWS: usize = 1 << (NEAR_BITS - 8);
/// Levels beyond, of eight bits and one row each.
const LEVELS: usize = 7;
const ROWS: usize = NEAR_ROWS + LEVELS;
const _: () = assert!(NEAR_BITS + 8 * LEVELS as u32 >= u64::BITS);

pub(crate) struct Sleepers {
    base: u64,
    lists: Box<[[List; 256]; ROWS]>,
    occupied: [Bitmap256; ROWS],
    early: u32,
    count: u32,
}

/// The row and digit of the list for `frame`, seen from `base`.
#[inline]
fn place(base: u64, frame: u64) -> (usize, u8) {
    let differs = base ^ frame;
    if differs >> NEAR_BITS == 0 {
        return ((frame >> 8) as usize & (NEAR_ROWS - 1), frame as u8);
    }
    let level = (63 - differs.leading_zeros() - NEAR_BITS) / 8;
    (NEAR_ROWS + level as usize, (frame >> shift(level as usize)) as u8)
}

/// The lowest bit of a level beyond the near lists.
const fn shift(level: usize) -> u32 {
    NEAR_BITS + 8 * level as u32
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        let lists: Box<[[List; 256]]> = vec![[List::EMPTY; 256]; ROWS].into_boxed_slice();
        Self {
            base: 0,
            lists: lists.try_into().unwrap_or_else(|_| unreachable!("all rows were made")),
            occupied: [Bitmap256::default(); ROWS],
            early: NIL,
            count: 0,
        }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Puts a record to sleep until the frame in its `since`. Its arrival is newer than that of every other sleeper.
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        self.count += 1;
        let frame = slab.hot(slot).since;
        if frame < self.base {
            self.early = heap::push::<ByFrame>(slab, self.early, slot);
            slab.hot_mut(slot).place = Place::SleepEarly;
        } else {
            self.link(slab, slot, frame);
            slab.hot_mut(slot).place = Place::SleepWheel;
        }
    }

    fn link(&mut self, slab: &mut Slab, slot: u32, frame: u64) {
        let (row, digit) = place(self.base, frame);
        self.lists[row][usize::from(digit)].push_back(slab, slot);
        self.occupied[row].set(digit);
    }

    /// Takes a sleeper out. Its place is the caller's to set.
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        self.count -= 1;
        let frame = slab.hot(slot).since;
        if slab.hot(slot).place == Place::SleepEarly {
            self.early = heap::remove::<ByFrame>(slab, self.early, slot);
            return;
        }
        let (row, digit) = place(self.base, frame);
        let list = &mut self.lists[row][usize::from(digit)];
        list.unlink(slab, slot);
        if list.head == NIL {
            self.occupied[row].clear(digit);
        }
    }

    /// The frame of the next sleeper.
    pub(crate) fn next(&mut self, slab: &mut Slab) -> Option<Frame> {
        if self.early != NIL {
            return Some(Frame(slab.hot(self.early).since));
        }
        self.next_in_wheel(slab).map(Frame)
    }

    fn next_in_wheel(&mut self, slab: &mut Slab) -> Option<u64> {
        loop {
            let (first, _) = place(self.base, self.base);
            for row in first..NEAR_ROWS {
                let from = if row == first { self.base as u8 } else { 0 };
                if let Some(found) = self.occupied[row].at_or_above(from) {
                    return Some(self.base >> NEAR_BITS << NEAR_BITS | (row as u64) << 8 | u64::from(found));
                }
            }
            let level = (0..LEVELS).find(|&level| self.occupied[NEAR_ROWS + level] != Bitmap256::default())?;
            let found = self.occupied[NEAR_ROWS + level].at_or_above(0)?;
            let below = (1u64 << shift(level)) - 1;
            self.base = (self.base & !(0xff << shift(level) | below)) | u64::from(found) << shift(level);
            self.cascade(slab, NEAR_ROWS + level, found);
        }
    }

    /// Moves the list of the block that the base has just entered to the levels below, in order.
    fn cascade(&mut self, slab: &mut Slab, row: usize, digit: u8) {
        let list = &mut self.lists[row][usize::from(digit)];
        let mut at = list.head;
        *list = List::EMPTY;
        self.occupied[row].clear(digit);
        while at != NIL {
            let (next, frame) = (slab.hot(at).next, slab.hot(at).since);
            self.link(slab, at, frame);
            at = next;
        }
    }

    /// Takes out all sleepers of the first frame that has any, if it is due at or before `frame` and they are in the wheel. Their places are the
    /// caller's to set, each after its `next` was read.
    pub(crate) fn take_due(&mut self, slab: &mut Slab, frame: Frame) -> List {
        if self.early != NIL {
            return List::EMPTY;
        }
        match self.next_in_wheel(slab) {
            Some(due) if due <= frame.0 => {
                let (row, digit) = place(self.base, due);
                self.occupied[row].clear(digit);
                core::mem::replace(&mut self.lists[row][usize::from(digit)], List::EMPTY)
            }
            _ => List::EMPTY,
        }
    }

    /// Counts sleepers of [`Self::take_due`] as gone.
    pub(crate) fn left(&mut self, count: u32) {
        self.count -= count;
    }

    /// Takes out the first sleeper due at or before `frame`. Its place is the caller's to set.
    pub(crate) fn pop_due(&mut self, slab: &mut Slab, frame: Frame) -> Option<u32> {
        if self.early != NIL {
            let slot = self.early;
            if slab.hot(slot).since > frame.0 {
                return None;
            }
            self.early = heap::pop::<ByFrame>(slab, slot);
            self.count -= 1;
            return Some(slot);
        }
        let due = self.next_in_wheel(slab)?;
        if due > frame.0 {
            return None;
        }
        let (row, digit) = place(self.base, due);
        let slot = self.lists[row][usize::from(digit)].head;
        self.remove(slab, slot);
        Some(slot)
    }

    /// Every sleeper in every list and the heap, for `check`: (slot, place it should have).
    pub(crate) fn visit(&self, slab: &Slab, mut each: impl FnMut(u32, Place)) {
        for (occupied, lists) in self.occupied.iter().zip(self.lists.iter()) {
            for digit in occupied.iter() {
                lists[usize::from(digit)].iter(slab).for_each(|slot| each(slot, Place::SleepWheel));
            }
        }
        heap::visit(slab, self.early, |slot| each(slot, Place::SleepEarly));
    }

    /// Verifies that every list holds only frames that belong in it, in ascending arrival, and that the bitmaps agree.
    pub(crate) fn check(&self, slab: &Slab) -> Result<(), Violation> {
        for (at_row, (occupied, lists)) in self.occupied.iter().zip(self.lists.iter()).enumerate() {
            for at_digit in 0..=255u8 {
                let list = &lists[usize::from(at_digit)];
                equal("the wheel's bitmap", 0, u64::from(occupied.contains(at_digit)), u64::from(list.head != NIL))?;
                let mut before = None;
                for slot in list.iter(slab) {
                    let (frame, arrival) = (slab.hot(slot).since, slab.hot(slot).arrival);
                    holds("a wheel sleeper is due after the base", slot, frame >= self.base)?;
                    let (row, digit) = place(self.base, frame);
                    equal("a sleeper's row", slot, at_row as u64, row as u64)?;
                    equal("a sleeper's list", slot, u64::from(at_digit), u64::from(digit))?;
                    holds("a wheel list is in ascending arrival", slot, before < Some(arrival))?;
                    before = Some(arrival);
                }
            }
        }
        let mut late = None;
        heap::visit(slab, self.early, |slot| {
            if slab.hot(slot).since >= self.base {
                late = Some(slot);
            }
        });
        equal("an early sleeper is due before the base", late.unwrap_or(0), u64::from(late.is_some()), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Spawn, Tag};
    use alloc::vec::Vec;

    /// Sleepers over the whole range of frames, with the base run ahead by `next` and sleepers put before it, against a sorted vector.
    #[test]
    fn sleepers_leave_by_frame_then_arrival() {
        let mut slab = Slab::new();
        slab.reserve(5_000).expect("memory");
        let mut sleepers = Sleepers::new();
        let mut expected: Vec<(u64, u64, u32)> = Vec::new();
        let (mut arrival, mut now, mut state) = (0u64, 0u64, 1u64);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let (mut early, mut woken, mut lists) = (0, 0, 0);
        for _ in 0..400 {
            for _ in 0..random() % 20 {
                let Ok(reference) = slab.allocate(&Spawn::new(Tag::new(0, 0))) else { break };
                let span = [3, 3_000, 700_000, 1 << 40][random() as usize % 4];
                let hot = slab.hot_mut(reference.slot);
                (hot.since, hot.arrival) = (now + 1 + random() * 7 % span, arrival);
                expected.push((hot.since, arrival, reference.slot));
                arrival += 1;
                sleepers.insert(&mut slab, reference.slot);
                early += u32::from(slab.hot(reference.slot).place == Place::SleepEarly);
            }
            expected.sort_unstable();
            assert_eq!(sleepers.next(&mut slab).map(|frame| frame.0), expected.first().map(|first| first.0));
            sleepers.check(&slab).expect("in order");
            if random() % 4 == 0 && !expected.is_empty() {
                let (_, _, slot) = expected.remove(random() as usize % expected.len());
                sleepers.remove(&mut slab, slot);
                slab.free(slot);
            }
            now += if random() % 5 == 0 { random() % 100_000 } else { random() % 3 };
            // By the list or one by one, in any mixture.
            loop {
                let whole = if random() % 2 == 0 { sleepers.take_due(&mut slab, Frame(now)).head } else { NIL };
                lists += u32::from(whole != NIL);
                let mut at = whole;
                if whole == NIL {
                    let Some(slot) = sleepers.pop_due(&mut slab, Frame(now)) else { break };
                    at = slot;
                }
                while at != NIL {
                    let (slot, first) = (at, expected.remove(0));
                    at = if whole == NIL { NIL } else { slab.hot(slot).next };
                    sleepers.left(u32::from(whole != NIL));
                    assert_eq!((slab.hot(slot).since, slab.hot(slot).arrival, slot), first);
                    slab.free(slot);
                    woken += 1;
                }
            }
            assert!(expected.first().is_none_or(|first| first.0 > now));
            assert_eq!(sleepers.count() as usize, expected.len());
        }
        assert!(early > 10 && woken > 500 && lists > 20, "{early} early, {woken} woken, {lists} by the list");
    }
}
