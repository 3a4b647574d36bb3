//! The sleepers of a lane: a hierarchical timer wheel over frames, 2,048 near lists and 7 levels of
//! 256 lists above them, with a bitmap per 256 lists.
//!
//! Contract: sleepers leave in the order (frame, arrival). Insert and remove are O(1)
//! (amortised O(log n) for those due before the base); each sleeper
//! moves at most seven times down the levels before it wakes; the frame of the next sleeper is
//! found through the bitmaps. Nothing allocates.
//!
//! A sleeper inserted less than 2,048 frames ahead of the wheel's base goes to the near list of the
//! lowest eleven bits of its frame, so short sleeps never move. Otherwise its level is that of the
//! highest bit in which its frame differs from the base, eight bits a level, and its list that
//! level's digit. When the base enters a block of 2,048 frames, the list that holds the block
//! cascades downwards, in front of the near lists: its sleepers are older than those that are in
//! the near lists of that block already, because the base never moves back. So every list is in
//! ascending arrival. To find the next sleeper's frame the base may run ahead of the lane's frame;
//! a sleeper due before the base is in a small heap beside the wheel.

use crate::bitmap::Bitmap256;
use crate::check::{Violation, equal, holds};
use crate::heap::{self, ByFrame};
use crate::record::{List, NIL, Place, Slab};
use alloc::boxed::Box;
use wavelock_abi::Frame;

/// Bits of a frame that select the near list.
const NEAR_BITS: u32 = 11;
const NEAR: usize = 1 << NEAR_BITS;
/// Levels above the near lists, of eight bits each.
const LEVELS: usize = 7;
const _: () = assert!(NEAR_BITS + 8 * LEVELS as u32 >= u64::BITS);

#[derive(Clone)]
pub(crate) struct Sleepers {
    base: u64,
    near: Box<[List; NEAR]>,
    near_occupied: [Bitmap256; NEAR / 256],
    far: Box<[[List; 256]; LEVELS]>,
    far_occupied: [Bitmap256; LEVELS],
    early: u32,
    count: u32,
}

/// The level above the near lists, and the digit there, of a frame in another block than the base.
#[inline]
fn far(base: u64, frame: u64) -> (usize, u8) {
    let level = ((63 - (base ^ frame).leading_zeros() - NEAR_BITS) / 8) as usize;
    (level, (frame >> shift(level)) as u8)
}

/// The near list of a frame.
#[inline]
const fn near(frame: u64) -> usize {
    frame as usize & (NEAR - 1)
}

/// The lowest bit of a level above the near lists.
const fn shift(level: usize) -> u32 {
    NEAR_BITS + 8 * level as u32
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self {
            base: 0,
            near: Box::new([List::EMPTY; NEAR]),
            near_occupied: [Bitmap256::default(); NEAR / 256],
            far: Box::new([[List::EMPTY; 256]; LEVELS]),
            far_occupied: [Bitmap256::default(); LEVELS],
            early: NIL,
            count: 0,
        }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Puts a record to sleep until the frame in its `since`. Its arrival is newer than that of
    /// every other sleeper.
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        self.count += 1;
        let (records, links) = slab.parts();
        let hot = &mut records[slot as usize];
        let frame = hot.since;
        if frame.wrapping_sub(self.base) < NEAR as u64 {
            hot.place = Place::SleepNear;
            let index = near(frame);
            self.near[index].push_back(links, slot);
            self.near_occupied[index / 256].set(index as u8);
        } else if frame > self.base {
            hot.place = Place::SleepFar;
            let (level, digit) = far(self.base, frame);
            self.far[level][usize::from(digit)].push_back(links, slot);
            self.far_occupied[level].set(digit);
        } else {
            hot.place = Place::SleepEarly;
            self.early = heap::push::<ByFrame>(slab, self.early, slot);
        }
    }

    /// Removes a sleeper. The caller sets its place.
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        self.count -= 1;
        let (frame, place) = (slab.hot(slot).since, slab.hot(slot).place);
        match place {
            Place::SleepEarly => self.early = heap::remove::<ByFrame>(slab, self.early, slot),
            Place::SleepFar => {
                let (level, digit) = far(self.base, frame);
                let list = &mut self.far[level][usize::from(digit)];
                list.unlink(slab.parts().1, slot);
                if list.head == NIL {
                    self.far_occupied[level].clear(digit);
                }
            }
            _ => {
                let index = near(frame);
                self.near[index].unlink(slab.parts().1, slot);
                if self.near[index].head == NIL {
                    self.near_occupied[index / 256].clear(index as u8);
                }
            }
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
            let block = self.base >> NEAR_BITS << NEAR_BITS;
            if let Some(found) = self.near_at_or_above(near(self.base)) {
                return Some(block | found as u64);
            }
            // The block is empty from the base on. Other near sleepers are in the next block.
            let entered = match self.near_at_or_above(0) {
                Some(_) => block + NEAR as u64,
                None => {
                    let level = (0..LEVELS)
                        .find(|&level| self.far_occupied[level] != Bitmap256::default())?;
                    let found = self.far_occupied[level].at_or_above(0)?;
                    let below = (1u64 << shift(level)) - 1;
                    (self.base & !(0xff << shift(level) | below)) | u64::from(found) << shift(level)
                }
            };
            let (level, digit) = far(self.base, entered);
            self.base = entered;
            if self.far_occupied[level].contains(digit) {
                self.cascade(slab, level, digit);
            }
        }
    }

    /// The first near list at or above `from` that is not empty.
    fn near_at_or_above(&self, from: usize) -> Option<usize> {
        let first = from / 256;
        (first..NEAR / 256).find_map(|row| {
            let found =
                self.near_occupied[row].at_or_above(if row == first { from as u8 } else { 0 })?;
            Some(row * 256 + usize::from(found))
        })
    }

    /// Moves the list that holds the block which the base has just entered to the levels below, in
    /// front of the lists there, last sleeper first.
    fn cascade(&mut self, slab: &mut Slab, level: usize, digit: u8) {
        let List { head, tail } =
            core::mem::replace(&mut self.far[level][usize::from(digit)], List::EMPTY);
        self.far_occupied[level].clear(digit);
        let mut at = tail;
        loop {
            let (records, links) = slab.parts();
            let (prev, hot) = (links[at as usize].prev, &mut records[at as usize]);
            let frame = hot.since;
            if frame - self.base < NEAR as u64 {
                hot.place = Place::SleepNear;
                let index = near(frame);
                self.near[index].push_front(links, at);
                self.near_occupied[index / 256].set(index as u8);
            } else {
                let (level, digit) = far(self.base, frame);
                self.far[level][usize::from(digit)].push_front(links, at);
                self.far_occupied[level].set(digit);
            }
            if at == head {
                return;
            }
            at = prev;
        }
    }

    /// Removes all sleepers of the first frame in the wheel, if it is due at or before `frame`, as
    /// a list. The caller sets their places and calls [`Self::forget`].
    pub(crate) fn take_due(&mut self, slab: &mut Slab, frame: Frame) -> List {
        let due = if self.early == NIL { self.next_in_wheel(slab) } else { None };
        match due {
            Some(due) if due <= frame.0 => {
                self.base = due;
                let index = near(due);
                self.near_occupied[index / 256].clear(index as u8);
                core::mem::replace(&mut self.near[index], List::EMPTY)
            }
            _ => List::EMPTY,
        }
    }

    /// Uncounts sleepers that [`Self::take_due`] removed.
    pub(crate) const fn forget(&mut self, count: u32) {
        self.count -= count;
    }

    /// Removes the first sleeper that is due before the wheel's base, if it is due at or before
    /// `frame`. The caller sets its place.
    pub(crate) fn pop_early(&mut self, slab: &mut Slab, frame: Frame) -> Option<u32> {
        let slot = self.early;
        if slot == NIL || slab.hot(slot).since > frame.0 {
            return None;
        }
        self.early = heap::pop::<ByFrame>(slab, slot);
        self.count -= 1;
        Some(slot)
    }

    /// Every sleeper in every list and the heap, for `check`: (slot, place it should have).
    pub(crate) fn visit(&self, slab: &Slab, mut each: impl FnMut(u32, Place)) {
        for (occupied, lists) in self.near_occupied.iter().zip(self.near.chunks_exact(256)) {
            for digit in occupied.iter() {
                lists[usize::from(digit)].iter(slab).for_each(|slot| each(slot, Place::SleepNear));
            }
        }
        for (occupied, lists) in self.far_occupied.iter().zip(self.far.iter()) {
            for digit in occupied.iter() {
                lists[usize::from(digit)].iter(slab).for_each(|slot| each(slot, Place::SleepFar));
            }
        }
        heap::visit(slab, self.early, |slot| each(slot, Place::SleepEarly));
    }

    /// Verifies that every list holds only frames that belong in it, in ascending arrival, and that
    /// the bitmaps agree.
    pub(crate) fn check(&self, slab: &Slab) -> Result<(), Violation> {
        let ascends = |list: &List, is_its: &dyn Fn(u64) -> bool| {
            let mut before = None;
            list.iter(slab).try_for_each(|slot| {
                let (frame, arrival) = (slab.hot(slot).since, slab.hot(slot).arrival);
                holds("a wheel sleeper is due at or after the base", slot, frame >= self.base)?;
                holds("a sleeper's list", slot, is_its(frame))?;
                holds("a wheel list is in ascending arrival", slot, before < Some(arrival))?;
                before = Some(arrival);
                Ok(())
            })
        };
        for (index, list) in self.near.iter().enumerate() {
            let occupied = self.near_occupied[index / 256].contains(index as u8);
            equal("the wheel's bitmap", 0, occupied, list.head != NIL)?;
            ascends(list, &|frame| frame - self.base < NEAR as u64 && near(frame) == index)?;
        }
        for (level, lists) in self.far.iter().enumerate() {
            for (digit, list) in (0..=255u8).zip(lists) {
                equal(
                    "the wheel's bitmap",
                    0,
                    self.far_occupied[level].contains(digit),
                    list.head != NIL,
                )?;
                ascends(list, &|frame| {
                    frame >> NEAR_BITS != self.base >> NEAR_BITS
                        && far(self.base, frame) == (level, digit)
                })?;
            }
        }
        let mut late = None;
        heap::visit(slab, self.early, |slot| {
            if slab.hot(slot).since >= self.base {
                late = Some(slot);
            }
        });
        equal("an early sleeper is due before the base", late.unwrap_or(0), late.is_some(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Spawn, Tag};
    use alloc::vec::Vec;

    /// Sleepers on every level of the wheel, with the base run ahead by `next` and sleepers put
    /// before it, against a sorted vector.
    #[test]
    fn sleepers_leave_by_frame_then_arrival() {
        let mut slab = Slab::new();
        slab.reserve(5_000).expect("memory");
        let mut sleepers = Sleepers::new();
        let mut expected: Vec<(u64, u64, u32)> = Vec::new();
        let (mut arrival, mut now, mut state) = (0u64, 0u64, 1u64);
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let (mut early, mut woken, mut lists) = (0, 0, 0);
        for _ in 0..400 {
            for _ in 0..random() % 20 {
                let Ok(reference) = slab.allocate(&Spawn::new(Tag::new(0, 0))) else { break };
                let span = [3, 3_000, 700_000, 1 << 40, 1 << 62][random() as usize % 5];
                let hot = slab.hot_mut(reference.slot);
                (hot.since, hot.arrival) = (now + 1 + (random() << 31 | random()) % span, arrival);
                expected.push((hot.since, arrival, reference.slot));
                arrival += 1;
                sleepers.insert(&mut slab, reference.slot);
                early += u32::from(slab.hot(reference.slot).place == Place::SleepEarly);
            }
            expected.sort_unstable();
            assert_eq!(
                sleepers.next(&mut slab).map(|frame| frame.0),
                expected.first().map(|first| first.0)
            );
            sleepers.check(&slab).expect("in order");
            if random() % 4 == 0 && !expected.is_empty() {
                let (_, _, slot) = expected.remove(random() as usize % expected.len());
                sleepers.remove(&mut slab, slot);
                slab.free(slot);
            }
            now += if random() % 5 == 0 { random() % 100_000 } else { random() % 3 };
            loop {
                let mut at = sleepers.pop_early(&mut slab, Frame(now)).unwrap_or(NIL);
                let is_list = at == NIL;
                if is_list {
                    at = sleepers.take_due(&mut slab, Frame(now)).head;
                    lists += u32::from(at != NIL);
                }
                if at == NIL {
                    break;
                }
                while at != NIL {
                    let (slot, first) = (at, expected.remove(0));
                    at = if is_list { slab.links(slot).next } else { NIL };
                    sleepers.forget(u32::from(is_list));
                    assert_eq!((slab.hot(slot).since, slab.hot(slot).arrival, slot), first);
                    slab.free(slot);
                    woken += 1;
                }
            }
            assert!(expected.first().is_none_or(|first| first.0 > now));
            assert_eq!(sleepers.count() as usize, expected.len());
        }
        assert!(
            early > 10 && woken > 500 && lists > 20,
            "{early} early, {woken} woken, {lists} by the list"
        );
    }
}
