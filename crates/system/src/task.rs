//! A session's coroutines: its own slots and generations, which are the names guests and traces use
//! (semantics 1, 10).
//!
//! ```text
//!          publish           end           join, detach, session end
//!   Free ───────────▶ Live ───────▶ Ended ───────────────────────────▶ Free (next generation)
//!                      │      end, detached or session ending           ▲
//!                      └────────────────────────────────────────────────┘
//! ```
//!
//! The scheduler's view of a coroutine (ready, sleeping, blocked) is the kernel's; what it waits
//! *for* is its pending host call together with [`Wait`]. One fact, one place.
//!
//! Stacks are a table of their own, filled from its beginning as far as one was needed. A coroutine
//! that begins beyond that end has no stack until it runs: its entry says what it begins with
//! ([`Wait::Unborn`]), and one that ends in its first slice never has a place in the table. Few
//! that have run and are not in their places are [`TaskTable::late`]. So a live coroutine's stack
//! is in one of three places, and [`TaskTable::coroutine_at`] and [`TaskTable::coroutine_ref`] find
//! it in each; nobody else has to know.

use crate::random::{Key, Stream};
use crate::wait::Ticket;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles};
use wavelock_machine::{Coroutine, LazyCoroutine, Session, push_with_small_growth};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// How a coroutine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum EndStatus {
    /// Its function returned, or it called `exit`.
    Finished = 0,
    /// A fault ended it.
    Faulted = 1,
    /// Another coroutine canceled it, or its session ended around it.
    Canceled = 2,
}

/// Where a coroutine's wait stands. What it waits for is its pending host call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It does not wait.
    None,
    /// It does not wait and has not run: what it begins with. Its place in the table of stacks is
    /// not there.
    Unborn { instance: u16, word: u32, argument: u64 },
    /// It stands in a channel's queue of senders, or of receivers for bytes.
    Queued(Ticket),
    /// It stands in a channel's queue of receivers, for a number.
    Taking(Ticket),
    /// It stands in the queues of several channels: (channel, ticket) each.
    #[allow(
        clippy::box_collection,
        reason = "one word, so that every coroutine's wait stays small"
    )]
    Selecting(Box<Vec<(u32, Ticket)>>),
    /// It is in the list of those who join its target.
    Joining { next: u32, previous: u32 },
    /// It stands in the queue of those who wait for input.
    Input(Ticket),
    /// It waits for what another lane says at the wave's end.
    Lane,
    /// Its call has gone, and it waits for the answer to it: the number of the call in its session.
    Reply(u64),
    /// The wait is over with a code.
    Code(i32),
    /// The wait is over with a number to write where the call says.
    Number(i64),
    /// The wait is over with a byte message.
    Bytes(Box<Box<[u8]>>),
    /// The wait is over with a call: its number, and the handle of its reply.
    Taken(Box<(i64, i32)>),
}

/// How many have run and are in no place: one is cut short at each wave's end, and goes on and ends
/// in the next.
const LATE: usize = 16;

impl Wait {
    /// Of one that has not run.
    #[inline(always)]
    pub(crate) const fn unborn(LazyCoroutine { word, instance, argument }: LazyCoroutine) -> Self {
        Self::Unborn { instance, word, argument }
    }

    /// What one that has not run begins with.
    #[inline(always)]
    pub(crate) const fn lazy(&self) -> Option<LazyCoroutine> {
        match *self {
            Self::Unborn { instance, word, argument } => {
                Some(LazyCoroutine { word, instance, argument })
            }
            _ => None,
        }
    }

    /// Replaces a wait that owns no memory, without code to drop it.
    #[inline(always)]
    pub(crate) fn replace_plain(&mut self, wait: Self) {
        let before = core::mem::replace(self, wait);
        debug_assert!(
            !matches!(before, Self::Selecting(_) | Self::Bytes(_) | Self::Taken(_)),
            "it owns memory"
        );
        core::mem::forget(before);
    }

    /// Whether it waits for nothing, and has not got anything that it waited for.
    #[inline(always)]
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None | Self::Unborn { .. })
    }
}

/// A live coroutine, but for its stack: that is the machine's, and in a table of its own, so that
/// it can run while others are changed.
#[derive(Debug)]
pub(crate) struct Task {
    /// Its place in its lane's kernel.
    pub(crate) kernel: CoroutineRef,
    pub(crate) key: Key,
    pub(crate) wait: Wait,
}

/// What most coroutines have none of: children, and others who wait for their end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Family {
    /// How many coroutines it has spawned.
    pub(crate) spawned: u32,
    /// First of those who wait for its end, last come first.
    pub(crate) joiners: u32,
}

impl Family {
    const NONE: Self = Self { spawned: 0, joiners: NONE };
}

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most entries are live; boxing them would cost a cache miss a step"
)]
pub(crate) enum State {
    Free { next: u32 },
    Live(Task),
    Ended { status: EndStatus, value: i64 },
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    pub(crate) detached: bool,
    /// The lane it runs on, while it lives.
    pub(crate) lane: u16,
    pub(crate) state: State,
}

/// A million coroutines are a million entries: docs/performance/system.md counts on this size.
const _: () = assert!(size_of::<Entry>() <= 40, "an entry has a budget of 40 bytes");

/// All coroutines of a session, live and ended.
#[derive(Debug)]
pub(crate) struct TaskTable {
    /// By slot.
    pub(crate) entries: Vec<Entry>,
    /// By slot, as far as one was needed: the families of those who live; whoever is beyond the end
    /// has none.
    pub(crate) families: Vec<Family>,
    /// By slot, as far as one was needed: the stacks of those who live; the others' places are
    /// vacant.
    pub(crate) coroutines: Vec<Coroutine>,
    /// Those beyond the end of `coroutines` who have run, with their slots; in no order.
    pub(crate) late: Vec<(u32, Coroutine)>,
    /// By slot: the random numbers of those who live and have asked for one.
    pub(crate) streams: BTreeMap<u32, Stream>,
    /// Entries that are not free: what the coroutine limit counts.
    pub(crate) occupied: u32,
    pub(crate) free: u32,
    pub(crate) live: u32,
    pub(crate) peak: u32,
    pub(crate) published: u64,
    pub(crate) finished: u64,
    pub(crate) faulted: u64,
    /// Ended by a fault that nobody has joined.
    pub(crate) unjoined_faults: u64,
}

/// What a reference of a guest names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Stale,
    Live,
    Ended { status: EndStatus, value: i64 },
}

impl TaskTable {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            families: Vec::new(),
            coroutines: Vec::new(),
            late: Vec::new(),
            streams: BTreeMap::new(),
            free: NONE,
            occupied: 0,
            live: 0,
            peak: 0,
            published: 0,
            finished: 0,
            faulted: 0,
            unjoined_faults: 0,
        }
    }

    pub(crate) const fn occupied(&self) -> u32 {
        self.occupied
    }

    pub(crate) const fn live(&self) -> u32 {
        self.live
    }

    /// The reference that the next [`TaskTable::insert`] will give out.
    pub(crate) fn next_reference(&self) -> CoroutineRef {
        match self.entries.get(self.free as usize) {
            Some(entry) => CoroutineRef::new(self.free, entry.generation),
            None => CoroutineRef::new(self.entries.len() as u32, 0),
        }
    }

    /// Stores a new coroutine. The caller has checked the limit.
    pub(crate) fn insert(&mut self, task: Task, lane: u16, coroutine: Coroutine) -> CoroutineRef {
        let reference = self.publish(task, lane);
        self.with_coroutines(|tasks, coroutines| tasks.put(reference.slot, coroutine, coroutines));
        reference
    }

    /// Stores a new coroutine but for its stack, which belongs in the same place of the table of
    /// stacks.
    #[inline]
    pub(crate) fn publish(&mut self, task: Task, lane: u16) -> CoroutineRef {
        let reference = self.next_reference();
        self.publish_at(reference, task, lane);
        reference
    }

    /// [`Self::publish`], for who has asked for the next reference.
    #[inline(always)]
    pub(crate) fn publish_at(&mut self, reference: CoroutineRef, task: Task, lane: u16) {
        match self.entries.get_mut(reference.slot as usize) {
            Some(entry) => {
                let State::Free { next } = entry.state else {
                    unreachable!("the free list holds free entries")
                };
                self.free = next;
                (entry.detached, entry.lane) = (false, lane);
                if let Some(family) = self.families.get_mut(reference.slot as usize) {
                    *family = Family::NONE;
                }
                entry.state = State::Live(task);
            }
            None => push_with_small_growth(
                &mut self.entries,
                Entry { generation: 0, detached: false, lane, state: State::Live(task) },
            ),
        }
        self.occupied += 1;
        self.live += 1;
        if self.live > self.peak {
            self.peak = self.live;
        }
        self.published += 1;
    }

    /// A live coroutine by slot: for those who know it lives (the kernel dispatched it, a queue of
    /// the session names it).
    #[inline]
    pub(crate) fn live_at(&mut self, slot: u32) -> &mut Task {
        match &mut self.entries[slot as usize].state {
            State::Live(task) => task,
            _ => unreachable!("only live coroutines run or wait"),
        }
    }

    /// A coroutine by slot, if it is live.
    #[inline(always)]
    pub(crate) fn live_get(&mut self, slot: u32) -> Option<&mut Task> {
        self.live_on(slot).map(|(_, task)| task)
    }

    /// A coroutine by slot and the lane it runs on, if it is live.
    #[inline(always)]
    pub(crate) fn live_on(&mut self, slot: u32) -> Option<(u16, &mut Task)> {
        match self.entries.get_mut(slot as usize) {
            Some(Entry { lane, state: State::Live(task), .. }) => Some((*lane, task)),
            _ => None,
        }
    }

    /// The lane that a live coroutine runs on.
    #[inline]
    pub(crate) fn lane_at(&self, slot: u32) -> u16 {
        self.entries[slot as usize].lane
    }

    /// The family of a coroutine that lives, or that has just ended.
    #[inline(always)]
    pub(crate) fn family(&self, slot: u32) -> Family {
        self.families.get(slot as usize).copied().unwrap_or(Family::NONE)
    }

    /// The family of a live coroutine, to be changed.
    #[inline(always)]
    pub(crate) fn family_mut(&mut self, slot: u32) -> &mut Family {
        let at = slot as usize;
        if at < self.families.len() { &mut self.families[at] } else { self.first_family(at) }
    }

    #[cold]
    #[inline(never)]
    fn first_family(&mut self, at: usize) -> &mut Family {
        self.families.resize(at + 1, Family::NONE);
        &mut self.families[at]
    }

    /// A live coroutine spawns another: the key of that one.
    #[inline(always)]
    pub(crate) fn child_key(&mut self, slot: u32) -> Key {
        let children = self.live_at(slot).key.children();
        let family = self.family_mut(slot);
        family.spawned += 1;
        children.child(family.spawned - 1)
    }

    /// A live coroutine is on another lane now, with another place there.
    pub(crate) fn moved(&mut self, slot: u32, lane: u16, kernel: CoroutineRef) {
        self.entries[slot as usize].lane = lane;
        self.live_at(slot).kernel = kernel;
    }

    /// The random numbers of a live coroutine.
    pub(crate) fn random(&mut self, slot: u32) -> &mut Stream {
        let key = self.live_at(slot).key;
        self.streams.entry(slot).or_insert_with(|| Stream::new(key))
    }

    /// A live coroutine by slot, if it is one.
    pub(crate) fn live_ref(&self, slot: u32) -> Option<&Task> {
        match &self.entries.get(slot as usize)?.state {
            State::Live(task) => Some(task),
            _ => None,
        }
    }

    /// The stack of a live coroutine by slot.
    #[inline]
    pub(crate) fn coroutine_at(&mut self, slot: u32) -> &mut Coroutine {
        let late = if (slot as usize) < self.coroutines.len() { None } else { self.late_at(slot) };
        match late {
            None => &mut self.coroutines[slot as usize],
            Some(at) => &mut self.late[at].1,
        }
    }

    /// The cycles that a live coroutine has used. One that has not run gets no stack for it.
    #[inline]
    pub(crate) fn used_at(&mut self, slot: u32) -> Cycles {
        let has_run =
            (slot as usize) < self.coroutines.len() || self.live_at(slot).wait.lazy().is_none();
        if has_run { self.coroutine_at(slot).used() } else { Cycles::ZERO }
    }

    /// The stack of a coroutine by slot, if it lives.
    pub(crate) fn coroutine_ref(&self, slot: u32) -> Option<Cow<'_, Coroutine>> {
        let task = self.live_ref(slot)?;
        if let Some(lazy) = task.wait.lazy() {
            return Some(Cow::Owned(Coroutine::materialise(lazy)));
        }
        let late = || self.late.iter().find(|late| late.0 == slot).map(|(_, coroutine)| coroutine);
        self.coroutines.get(slot as usize).or_else(late).map(Cow::Borrowed)
    }

    /// A live coroutine by slot, and its stack.
    #[inline]
    pub(crate) fn both_at(&mut self, slot: u32) -> (&mut Task, &mut Coroutine) {
        let late = if (slot as usize) < self.coroutines.len() { None } else { self.late_at(slot) };
        let State::Live(task) = &mut self.entries[slot as usize].state else {
            unreachable!("only live coroutines run or wait")
        };
        match late {
            None => (task, &mut self.coroutines[slot as usize]),
            Some(at) => (task, &mut self.late[at].1),
        }
    }

    /// Where among the late ones a coroutine is whose place is not there; `None` if it has its
    /// place now.
    #[cold]
    #[inline(never)]
    fn late_at(&mut self, slot: u32) -> Option<usize> {
        let at = self.late.iter().position(|late| late.0 == slot);
        if at.is_none() {
            self.settle(slot);
        }
        at
    }

    /// Puts a live coroutine in its place, if it is not there.
    #[inline]
    pub(crate) fn settle(&mut self, slot: u32) {
        if slot as usize >= self.coroutines.len() {
            self.with_coroutines(|tasks, coroutines| {
                let mut coroutine = Coroutine::vacant();
                tasks.take(slot, &mut coroutine);
                tasks.put(slot, coroutine, coroutines);
            });
        }
    }

    /// The stacks are elsewhere while `change` has them, as while coroutines run.
    #[inline]
    fn with_coroutines(&mut self, change: impl FnOnce(&mut Self, &mut Vec<Coroutine>)) {
        let mut coroutines = core::mem::take(&mut self.coroutines);
        change(self, &mut coroutines);
        self.coroutines = coroutines;
    }

    /// Takes a coroutine that is in no place; `false` if there is none in this slot, or it is in
    /// its place.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        let Some(task) = self.live_get(slot) else { return false };
        if let Some(lazy) = task.wait.lazy() {
            task.wait = Wait::None;
            *into = Coroutine::materialise(lazy);
            return true;
        }
        self.take_late(slot, into)
    }

    /// [`Self::take`] of one that has run.
    #[cold]
    #[inline(never)]
    fn take_late(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        let at = self.late.iter().position(|late| late.0 == slot);
        at.map(|at| *into = self.late.swap_remove(at).1).is_some()
    }

    /// Keeps a coroutine whose place is not there: it gets it if it is the next, or if there are
    /// too many such.
    pub(crate) fn keep(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        coroutines: &mut Vec<Coroutine>,
    ) {
        if slot as usize == coroutines.len() || self.late.len() == LATE {
            self.put(slot, coroutine, coroutines);
        } else {
            self.late.push((slot, coroutine));
        }
    }

    /// Puts a coroutine in its place, and before it everybody who comes before it.
    pub(crate) fn put(&mut self, slot: u32, coroutine: Coroutine, coroutines: &mut Vec<Coroutine>) {
        for before in coroutines.len() as u32..slot {
            let mut other = Coroutine::vacant();
            self.take(before, &mut other);
            push_with_small_growth(coroutines, other);
        }
        match coroutines.get_mut(slot as usize) {
            Some(vacant) => *vacant = coroutine,
            None => push_with_small_growth(coroutines, coroutine),
        }
    }

    /// The stack of one that has ended goes, and no longer counts in its session.
    pub(crate) fn vacate(&mut self, slot: u32, machine: &Session) {
        if let Some(coroutine) = self.coroutines.get_mut(slot as usize) {
            machine.retire(coroutine);
        } else if let Some(at) = self.late.iter().position(|late| late.0 == slot) {
            machine.retire(&mut self.late.swap_remove(at).1);
        }
    }

    /// Whether a slot holds a live coroutine.
    #[inline]
    pub(crate) fn is_live(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| matches!(entry.state, State::Live(_)))
    }

    pub(crate) fn reference_at(&self, slot: u32) -> CoroutineRef {
        CoroutineRef::new(slot, self.entries[slot as usize].generation)
    }

    /// The generation a slot has now, if it was ever used.
    pub(crate) fn generation_of(&self, slot: u32) -> Option<u32> {
        self.entries.get(slot as usize).map(|entry| entry.generation)
    }

    /// What a reference names now.
    pub(crate) fn named(&self, reference: CoroutineRef) -> Named {
        match self.entries.get(reference.slot as usize) {
            Some(entry) if entry.generation == reference.generation => match entry.state {
                State::Free { .. } => Named::Stale,
                State::Live(_) => Named::Live,
                State::Ended { status, value } => Named::Ended { status, value },
            },
            _ => Named::Stale,
        }
    }

    /// The live coroutine a reference names.
    pub(crate) fn live_named(&mut self, reference: CoroutineRef) -> Option<&mut Task> {
        match self.entries.get_mut(reference.slot as usize) {
            Some(Entry { generation, state: State::Live(task), .. })
                if *generation == reference.generation =>
            {
                Some(task)
            }
            _ => None,
        }
    }

    /// All live coroutines, in slot order.
    pub(crate) fn iter_live(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| match &entry.state {
            State::Live(task) => Some((slot as u32, task)),
            _ => None,
        })
    }

    /// A live coroutine ended. Its result stays until it is joined, unless nobody may join it. Its
    /// stack is the caller's to vacate.
    #[inline(always)]
    pub(crate) fn end(&mut self, slot: u32, status: EndStatus, value: i64) {
        let entry = &mut self.entries[slot as usize];
        assert!(matches!(entry.state, State::Live(_)), "only live coroutines end");
        entry.state = State::Ended { status, value };
        self.live -= 1;
        if !self.streams.is_empty() {
            self.streams.remove(&slot);
        }
        match status {
            EndStatus::Finished => self.finished += 1,
            EndStatus::Faulted => {
                self.faulted += 1;
                self.unjoined_faults += 1;
            }
            EndStatus::Canceled => {}
        }
        if entry.detached {
            self.release(slot);
        }
    }

    /// A live coroutine returned a value: [`Self::end`], unless its end concerns others: joiners
    /// wait for it, or it is the session's first or last. `false` then, and nothing has changed.
    #[inline(always)]
    pub(crate) fn finish(&mut self, slot: u32, value: i64) -> bool {
        let is_first = self.reference_at(slot) == CoroutineRef::new(0, 0);
        if is_first || self.live == 1 || self.family(slot).joiners != NONE {
            return false;
        }
        self.end(slot, EndStatus::Finished, value);
        true
    }

    /// A join has read the result: the slot is free for another generation.
    pub(crate) fn joined(&mut self, slot: u32) {
        if let State::Ended { status: EndStatus::Faulted, .. } = self.entries[slot as usize].state {
            self.unjoined_faults -= 1;
        }
        self.release(slot);
    }

    /// A coroutine ended with joiners waiting, who have its result now. If it was detached, its
    /// slot is free already.
    pub(crate) fn joined_at_end(&mut self, reference: CoroutineRef, status: EndStatus) {
        match self.named(reference) {
            Named::Stale if status == EndStatus::Faulted => self.unjoined_faults -= 1,
            Named::Stale => {}
            _ => self.joined(reference.slot),
        }
    }

    /// Nobody will join it.
    pub(crate) fn detach(&mut self, reference: CoroutineRef) {
        let entry = &mut self.entries[reference.slot as usize];
        entry.detached = true;
        if let State::Ended { .. } = entry.state {
            self.release(reference.slot);
        }
    }

    /// Frees an ended slot. A slot whose generations are used up is retired: it never comes back.
    fn release(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        self.occupied -= 1;
        if entry.generation == CoroutineRef::LAST_GENERATION {
            entry.state = State::Free { next: NONE };
            return;
        }
        entry.generation += 1;
        entry.state = State::Free { next: self.free };
        self.free = slot;
    }

    /// The session is over: every slot goes, and the memory with it.
    pub(crate) fn clear(&mut self) {
        self.entries = Vec::new();
        self.families = Vec::new();
        self.coroutines = Vec::new();
        self.late = Vec::new();
        self.streams.clear();
        self.free = NONE;
        self.occupied = 0;
        self.live = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(tasks: &mut TaskTable) -> CoroutineRef {
        let kernel = CoroutineRef::new(tasks.next_reference().slot, 0);
        tasks.publish(Task { kernel, key: Key(7), wait: Wait::None }, 0)
    }

    #[test]
    fn a_slot_that_is_used_again_has_no_family_of_before() {
        let mut tasks = TaskTable::new();
        let references: Vec<_> = (0..4).map(|_| publish(&mut tasks)).collect();
        assert_eq!(
            [0, 1].map(|ordinal| tasks.child_key(1) == Key(7).children().child(ordinal)),
            [true; 2]
        );
        tasks.family_mut(1).joiners = 2;
        assert_eq!(
            (tasks.families.len(), tasks.family(3)),
            (2, Family::NONE),
            "filled as far as one was needed"
        );
        assert!(!tasks.finish(1, 5), "somebody waits for it");
        assert!(tasks.finish(2, 5), "nobody waits for it");

        tasks.end(1, EndStatus::Finished, 5);
        assert_eq!(
            tasks.family(1),
            Family { spawned: 2, joiners: 2 },
            "whoever answers them still finds them"
        );
        tasks.joined_at_end(references[1], EndStatus::Finished);
        assert_eq!(publish(&mut tasks), CoroutineRef::new(1, 1));
        assert_eq!(tasks.family(1), Family::NONE);
        assert_eq!(tasks.child_key(1), Key(7).children().child(0));
    }
}
