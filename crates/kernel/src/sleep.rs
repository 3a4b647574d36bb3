//! The sleepers of a lane: a hierarchical wheel over frames, 2,048 near lists and 7 levels of 256
//! beyond, with a bitmap per 256 lists.
//!
//! Contract: sleepers leave in the order (frame, arrival). Insert and remove are O(1); each sleeper
//! is moved at most seven times down the levels before it wakes, so a million sleepers cost what
//! they wake; the frame of the next sleeper is found through the bitmaps.
//!
//! A sleeper that is due less than 2,048 frames after the wheel's base is in the near list of the
//! lowest eleven bits of its frame: the near lists go with the base, so short sleeps are never
//! moved. Otherwise its level is that of the highest bit in which its frame differs from the base,
//! eight bits a level, and its list that level's digit. When the base enters a block of 2,048
//! frames, the list that holds the block cascades downwards. Who is in it went to sleep before
//! everybody who is in a near list of the block already, since the base never goes back: so it is
//! put before them, and every list is in ascending arrival. To name the next sleeper's frame
//! exactly the base may run ahead of the lane's frame; a sleeper due before the base waits in a
//! small heap beside the wheel.
//!
//! Beside the links of a near list its slots are noted, so that the records can be fetched ahead
//! without following links through memory that is in no cache: the latest in the list itself, the
//! others in blocks. Notes are hints: who was taken out may still be noted, who came by a cascade
//! is not, and where the room for notes ends some are forgotten.

use crate::bitmap::Bitmap256;
use crate::check::{Violation, equal, holds};
use crate::heap::{self, ByFrame};
use crate::record::{List, NIL, Place, Slab};
use crate::types::{Refusal, Tag};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use wavelock_abi::Frame;

/// Bits of a frame that the near lists tell apart.
const NEAR_BITS: u32 = 11;
const NEAR: usize = 1 << NEAR_BITS;
/// Rows of 256 lists that are near.
const NEAR_ROWS: usize = NEAR / 256;
/// Levels beyond, of eight bits and one row each.
const LEVELS: usize = 7;
const _: () = assert!(NEAR_BITS + 8 * LEVELS as u32 >= u64::BITS);

/// How many slots are noted together.
const NOTES: usize = 11;

/// Slots that came to a near list one after the other.
#[derive(Clone, Copy)]
struct Block {
    slots: [u32; NOTES],
    /// The block that follows, of the list or of the free ones.
    next: u32,
}

/// A near list, and its notes: one line of a cache, which is all that a sleep needs of the wheel.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct NearList {
    list: List,
    /// The first and the last block.
    first: u32,
    last: u32,
    /// Those who came behind the blocks.
    latest: [u32; NOTES],
    count: u32,
}

const _: () = assert!(size_of::<NearList>() == 64, "a near list is one line");

impl NearList {
    const EMPTY: Self =
        Self { list: List::EMPTY, first: NIL, last: NIL, latest: [NIL; NOTES], count: 0 };
}

pub(crate) struct Sleepers {
    base: u64,
    near: Box<[NearList; NEAR]>,
    near_occupied: [Bitmap256; NEAR_ROWS],
    far: Box<[[List; 256]; LEVELS]>,
    far_occupied: [Bitmap256; LEVELS],
    early: u32,
    count: u32,
    /// As many as were reserved, at most.
    blocks: Vec<Block>,
    free_block: u32,
}

/// Who woke when the frame began, so many as a cache holds, in the order in which they will run if
/// nothing comes in between: for fetching ahead.
pub(crate) struct Woken {
    slots: Vec<(u32, Tag)>,
    /// Those before were fetched.
    at: usize,
}

impl Woken {
    const MOST: usize = 4_096;
    /// So many run before the first are fetched.
    const FIRST: usize = 3;
    /// How many are fetched at once: all together, they would wait for each other.
    pub(crate) const STEP: usize = 4;
    /// How long before they run.
    const LEAD: usize = 16;

    pub(crate) fn new() -> Self {
        Self { slots: Vec::with_capacity(Self::MOST), at: 0 }
    }

    /// Another frame begins. The first to wake are not fetched: they run first.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.at = Self::FIRST;
    }

    #[inline(always)]
    pub(crate) fn note(&mut self, slot: u32, tag: Tag) {
        if self.slots.len() < Self::MOST {
            self.slots.push((slot, tag));
        }
    }

    /// Those who run soon, and were fetched before; and the next to fetch, who run a while after
    /// them.
    pub(crate) fn next(&mut self) -> [&[(u32, Tag)]; 2] {
        let at = self.at;
        self.at += if at == Self::FIRST { Self::LEAD } else { Self::STEP };
        let soon = at.saturating_sub(Self::LEAD);
        let [soon, until, from, to] =
            [soon, soon + Self::STEP, at, self.at].map(|at| at.min(self.slots.len()));
        [&self.slots[soon..until], &self.slots[from..to]]
    }
}

/// Sleepers of one frame, taken out of the wheel, and the notes of them.
pub(crate) struct Due {
    near: NearList,
    /// The next note, in the first block that is left or among the latest.
    at: usize,
}

impl Due {
    pub(crate) const fn list(&self) -> List {
        self.near.list
    }
}

/// The level beyond the near lists, and the digit there, of a frame in another block than the base.
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

/// The lowest bit of a level beyond the near lists.
const fn shift(level: usize) -> u32 {
    NEAR_BITS + 8 * level as u32
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        let near: Box<[NearList]> = vec![NearList::EMPTY; NEAR].into_boxed_slice();
        let far: Box<[[List; 256]]> = vec![[List::EMPTY; 256]; LEVELS].into_boxed_slice();
        Self {
            base: 0,
            near: near.try_into().unwrap_or_else(|_| unreachable!("all lists were made")),
            near_occupied: [Bitmap256::default(); NEAR_ROWS],
            far: far.try_into().unwrap_or_else(|_| unreachable!("all rows were made")),
            far_occupied: [Bitmap256::default(); LEVELS],
            early: NIL,
            count: 0,
            blocks: Vec::new(),
            free_block: NIL,
        }
    }

    /// Makes room to note so many sleepers.
    pub(crate) fn reserve(&mut self, slots: u32) -> Result<(), Refusal> {
        let wanted = slots as usize / NOTES;
        let more = wanted.saturating_sub(self.blocks.len());
        let refused = |_| Refusal::OutOfMemory { wanted: slots };
        if self.blocks.is_empty() && more > self.blocks.capacity() {
            // Nothing is noted: a new table, because a larger one would be a copy of all the room
            // there was, and touch it.
            let mut blocks = Vec::new();
            blocks.try_reserve_exact(more.max(2 * self.blocks.capacity())).map_err(refused)?;
            self.blocks = blocks;
        }
        self.blocks.try_reserve(more).map_err(refused)
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether a sleeper that is due in a frame is near.
    #[inline(always)]
    pub(crate) const fn is_near(&self, frame: u64) -> bool {
        frame.wrapping_sub(self.base) < NEAR as u64
    }

    /// [`Self::insert`] of one that is near, whose place is set.
    #[inline(always)]
    pub(crate) fn insert_near(&mut self, slab: &mut Slab, slot: u32, frame: u64) {
        self.count += 1;
        let index = near(frame);
        let list = &mut self.near[index].list;
        if list.tail == NIL {
            self.near_occupied[index / 256].set(index as u8);
        }
        list.push_back(slab, slot);
        self.note(index, slot);
    }

    /// Puts a record to sleep until the frame in its `since`. Its arrival is newer than that of
    /// every other sleeper.
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        let frame = slab.hot(slot).since;
        if self.is_near(frame) {
            slab.hot_mut(slot).place = Place::SleepWheel;
            return self.insert_near(slab, slot, frame);
        }
        self.count += 1;
        if frame < self.base {
            self.early = heap::push::<ByFrame>(slab, self.early, slot);
            slab.hot_mut(slot).place = Place::SleepEarly;
        } else {
            let (level, digit) = far(self.base, frame);
            self.far[level][usize::from(digit)].push_back(slab, slot);
            self.far_occupied[level].set(digit);
            slab.hot_mut(slot).place = Place::SleepFar;
        }
    }

    /// Notes a slot as the last of a near list.
    #[inline(always)]
    fn note(&mut self, index: usize, slot: u32) {
        let near = &mut self.near[index];
        if near.count as usize == NOTES {
            core::hint::cold_path();
            return self.note_apart(index, slot);
        }
        near.latest[near.count as usize] = slot;
        near.count += 1;
    }

    /// Puts the latest notes into a block, if there is room, and notes a slot.
    #[inline(never)]
    fn note_apart(&mut self, index: usize, slot: u32) {
        let near = &mut self.near[index];
        let (block, free) = (Block { slots: near.latest, next: NIL }, self.free_block);
        (near.latest[0], near.count) = (slot, 1);
        let fresh = if free != NIL {
            self.free_block = core::mem::replace(&mut self.blocks[free as usize], block).next;
            free
        } else if self.blocks.len() < self.blocks.capacity() {
            self.blocks.push(block);
            self.blocks.len() as u32 - 1
        } else {
            return;
        };
        match core::mem::replace(&mut near.last, fresh) {
            NIL => near.first = fresh,
            last => self.blocks[last as usize].next = fresh,
        }
    }

    /// Takes a sleeper out. Its place is the caller's to set.
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        self.count -= 1;
        let (frame, place) = (slab.hot(slot).since, slab.hot(slot).place);
        match place {
            Place::SleepEarly => self.early = heap::remove::<ByFrame>(slab, self.early, slot),
            Place::SleepFar => {
                let (level, digit) = far(self.base, frame);
                let list = &mut self.far[level][usize::from(digit)];
                list.unlink(slab, slot);
                if list.head == NIL {
                    self.far_occupied[level].clear(digit);
                }
            }
            _ => {
                let index = near(frame);
                self.near[index].list.unlink(slab, slot);
                if self.near[index].list.head == NIL {
                    let due = self.take(index);
                    self.left(&due, 0);
                }
            }
        }
    }

    /// Empties a near list.
    fn take(&mut self, index: usize) -> Due {
        self.near_occupied[index / 256].clear(index as u8);
        Due { near: core::mem::replace(&mut self.near[index], NearList::EMPTY), at: 0 }
    }

    /// Frees a block of notes; gives the one that followed it.
    fn forget(&mut self, block: u32) -> u32 {
        let next = core::mem::replace(&mut self.blocks[block as usize].next, self.free_block);
        self.free_block = block;
        next
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
            // The block is empty from the base on. What else is near is in the next one.
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

    /// The first near list at or above a place that holds anybody.
    fn near_at_or_above(&self, from: usize) -> Option<usize> {
        let first = from / 256;
        (first..NEAR_ROWS).find_map(|row| {
            let found =
                self.near_occupied[row].at_or_above(if row == first { from as u8 } else { 0 })?;
            Some(row * 256 + usize::from(found))
        })
    }

    /// Moves the list that holds the block which the base has just entered to the levels below,
    /// before everybody there, the last first.
    fn cascade(&mut self, slab: &mut Slab, level: usize, digit: u8) {
        let List { head, tail } =
            core::mem::replace(&mut self.far[level][usize::from(digit)], List::EMPTY);
        self.far_occupied[level].clear(digit);
        let mut at = tail;
        loop {
            let (before, hot) = (slab.links(at).prev, slab.hot_mut(at));
            let frame = hot.since;
            if frame - self.base < NEAR as u64 {
                hot.place = Place::SleepWheel;
                let index = near(frame);
                self.near[index].list.push_front(slab, at);
                self.near_occupied[index / 256].set(index as u8);
            } else {
                let (level, digit) = far(self.base, frame);
                self.far[level][usize::from(digit)].push_front(slab, at);
                self.far_occupied[level].set(digit);
            }
            if at == head {
                return;
            }
            at = before;
        }
    }

    /// Takes out all sleepers of the first frame that has any, if it is due at or before `frame`
    /// and they are in the wheel. Their places are the caller's to set, each after its `next` was
    /// read.
    pub(crate) fn take_due(&mut self, slab: &mut Slab, frame: Frame) -> Due {
        let none = Due { near: NearList::EMPTY, at: 0 };
        if self.early != NIL {
            return none;
        }
        match self.next_in_wheel(slab) {
            Some(due) if due <= frame.0 => {
                self.base = due;
                self.take(near(due))
            }
            _ => none,
        }
    }

    /// Fetches a record of [`Self::take_due`] ahead, the one that is noted next, with its links.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, slab: &Slab, due: &mut Due) {
        let Due { near, at } = due;
        let (notes, count) = match self.blocks.get(near.first as usize) {
            Some(block) => (&block.slots, NOTES),
            None => (&near.latest, near.count as usize),
        };
        if *at < count {
            slab.fetch(notes[*at]);
            *at += 1;
        } else if near.first != NIL {
            (near.first, *at) = (self.forget(near.first), 0);
            if let Some(block) = self.blocks.get(near.first as usize) {
                slab.fetch(block.slots[0]);
                *at = 1;
                if let Some(next) = self.blocks.get(block.next as usize) {
                    (slab.fetch)(next);
                }
            }
        }
    }

    /// Counts sleepers of [`Self::take_due`] as gone; what is noted of them is forgotten.
    pub(crate) fn left(&mut self, due: &Due, count: u32) {
        let mut block = due.near.first;
        while block != NIL {
            block = self.forget(block);
        }
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
        self.base = due;
        let slot = self.near[near(due)].list.head;
        self.remove(slab, slot);
        Some(slot)
    }

    /// Every sleeper in every list and the heap, for `check`: (slot, place it should have).
    pub(crate) fn visit(&self, slab: &Slab, mut each: impl FnMut(u32, Place)) {
        for (occupied, lists) in self.near_occupied.iter().zip(self.near.chunks_exact(256)) {
            for digit in occupied.iter() {
                lists[usize::from(digit)]
                    .list
                    .iter(slab)
                    .for_each(|slot| each(slot, Place::SleepWheel));
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
        for (index, NearList { list, .. }) in self.near.iter().enumerate() {
            let occupied = self.near_occupied[index / 256].contains(index as u8);
            equal("the wheel's bitmap", 0, u64::from(occupied), u64::from(list.head != NIL))?;
            ascends(list, &|frame| frame - self.base < NEAR as u64 && near(frame) == index)?;
        }
        for (level, lists) in self.far.iter().enumerate() {
            for (digit, list) in (0..=255u8).zip(lists) {
                equal(
                    "the wheel's bitmap",
                    0,
                    u64::from(self.far_occupied[level].contains(digit)),
                    u64::from(list.head != NIL),
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
        equal(
            "an early sleeper is due before the base",
            late.unwrap_or(0),
            u64::from(late.is_some()),
            0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Spawn, Tag};
    use alloc::vec::Vec;

    /// Everybody who sleeps until one frame is noted, in order, as long as there is room for notes;
    /// and the room is used again.
    #[test]
    fn sleepers_of_a_frame_are_noted_in_order() {
        let mut slab = Slab::new();
        slab.reserve(1_000).expect("memory");
        let mut sleepers = Sleepers::new();
        sleepers.reserve(100).expect("memory");
        let slots: Vec<u32> = (0..1_000)
            .map(|_| slab.allocate(&Spawn::new(Tag::new(0, 0))).expect("room").slot)
            .collect();
        for frame in 1..50 {
            let count = [1, 10, 11, 12, 22, 23, 90][frame as usize % 7];
            for &slot in &slots[..count] {
                slab.hot_mut(slot).since = frame;
                sleepers.insert(&mut slab, slot);
            }
            let mut due = sleepers.take_due(&mut slab, Frame(frame));
            let mut noted = Vec::new();
            for _ in 0..2 * count {
                let before = (due.near.first, due.at);
                sleepers.fetch(&slab, &mut due);
                if (due.near.first, due.at) != before && due.at > 0 {
                    let notes = sleepers
                        .blocks
                        .get(due.near.first as usize)
                        .map_or(due.near.latest, |block| block.slots);
                    noted.push(notes[due.at - 1]);
                }
            }
            assert_eq!(noted, slots[..count], "{count} sleepers");
            sleepers.left(&due, count as u32);
            assert!(sleepers.blocks.len() <= 100 / NOTES && sleepers.count() == 0);
        }
    }

    /// Sleepers over the whole range of frames, with the base run ahead by `next` and sleepers put
    /// before it, against a sorted vector.
    #[test]
    fn sleepers_leave_by_frame_then_arrival() {
        let mut slab = Slab::new();
        slab.reserve(5_000).expect("memory");
        let mut sleepers = Sleepers::new();
        sleepers.reserve(500).expect("memory");
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
                let span = [3, 3_000, 700_000, 1 << 40][random() as usize % 4];
                let hot = slab.hot_mut(reference.slot);
                (hot.since, hot.arrival) = (now + 1 + random() * 7 % span, arrival);
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
            // By the list or one by one, in any mixture.
            loop {
                let mut due = Due { near: NearList::EMPTY, at: 0 };
                if random() % 2 == 0 {
                    due = sleepers.take_due(&mut slab, Frame(now));
                    (0..random() % 30).for_each(|_| sleepers.fetch(&slab, &mut due));
                }
                let whole = due.list().head;
                lists += u32::from(whole != NIL);
                let mut at = whole;
                if whole == NIL {
                    let Some(slot) = sleepers.pop_due(&mut slab, Frame(now)) else { break };
                    at = slot;
                }
                while at != NIL {
                    let (slot, first) = (at, expected.remove(0));
                    at = if whole == NIL { NIL } else { slab.links(slot).next };
                    sleepers.fetch(&slab, &mut due);
                    sleepers.left(
                        &core::mem::replace(&mut due, Due { near: NearList::EMPTY, at: 0 }),
                        u32::from(whole != NIL),
                    );
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
