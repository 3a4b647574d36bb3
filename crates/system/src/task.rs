//! A session's coroutines: its own slots and generations, which are the names that guests and
//! traces use (semantics 1, 10).
//!
//! ```text
//!          publish           end           join, detach, session end
//!   Free ───────────▶ Live ───────▶ Ended ───────────────────────────▶ Free (next generation)
//!                      │      end, detached or session ending           ▲
//!                      └────────────────────────────────────────────────┘
//! ```
//!
//! Contract: one fact, one field. The scheduler's state of a coroutine (ready, sleeping, blocked)
//! is in the kernel; what it waits *for* is its pending host call together with [`Wait`].
//!
//! Stacks are in a table of their own, filled up to the last slot that needed one. A coroutine that
//! is spawned beyond that end is materialised lazily: until its first slice its entry holds what it
//! starts with ([`Wait::NotStarted`]), and one that ends in its first slice never enters the table.
//! The few that have run and are not in the table are in [`TaskTable::late`]. So a live coroutine's
//! stack has one of three locations, which [`TaskTable::coroutine_at`] and
//! [`TaskTable::coroutine_ref`] hide.

use crate::random::{Key, Stream};
use crate::wait::Ticket;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles, Errno};
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
    /// Another coroutine canceled it, or its session ended.
    Canceled = 2,
    /// A budget's overrun policy ended it.
    Killed = 3,
}

/// The state of a coroutine's wait. What it waits for is its pending host call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It does not wait.
    None,
    /// It does not wait and has not run: what it starts with. It has no stack yet.
    NotStarted { instance: u16, word: u32, argument: u64 },
    /// In a channel's queue of senders, or of receivers of bytes or calls.
    Queued(Ticket),
    /// In a channel's queue of receivers, for a number.
    Taking(Ticket),
    /// In the queues of several channels: (channel, ticket) each.
    #[allow(
        clippy::box_collection,
        reason = "one word, so that every coroutine's wait stays small"
    )]
    Selecting(Box<Vec<(u32, Ticket)>>),
    /// In the list of joiners of its target.
    Joining { next: u32, previous: u32 },
    /// In the queue of readers of input.
    Input(Ticket),
    /// For another lane's answer at the wave's end.
    Lane,
    /// For a lease, until it is active or denied.
    Lease,
    /// For an unpark.
    Parked,
    /// For the embedder's reply to the ask of this number.
    Asking(u64),
    /// In the queue of those that wait for a session.
    Session(Ticket),
    /// For the answer to a call that has arrived: the number of the call in its session.
    Reply(u64),
    /// Over, with a code.
    Code(i32),
    /// Over, with a number to write to the pointer of the call.
    Number(i64),
    /// Over, with a byte message.
    Bytes(Box<Box<[u8]>>),
    /// Over, with a call: its number, and the handle of its reply.
    Taken(Box<(i64, i32)>),
}

/// At most this many stacks are outside the table. Usually there is one: that of the coroutine
/// which the wave's end interrupted in its first slice.
const MAX_LATE: usize = 16;

impl Wait {
    /// Of a coroutine that has not run.
    #[inline(always)]
    pub(crate) const fn not_started(
        LazyCoroutine { word, instance, argument }: LazyCoroutine,
    ) -> Self {
        Self::NotStarted { instance, word, argument }
    }

    /// What a coroutine that has not run starts with.
    #[inline(always)]
    pub(crate) const fn lazy(&self) -> Option<LazyCoroutine> {
        match *self {
            Self::NotStarted { instance, word, argument } => {
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

    /// The wait is over with the code of a refusal.
    pub(crate) const fn refused(errno: Errno) -> Self {
        Self::Code(errno.code())
    }

    /// Whether it waits for nothing, and has no answer to take.
    #[inline(always)]
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None | Self::NotStarted { .. })
    }
}

/// A live coroutine, without its stack: that is in a table of its own, so that it can run while
/// other coroutines are changed.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Its reference in its lane's kernel.
    pub(crate) kernel: CoroutineRef,
    pub(crate) key: Key,
    pub(crate) wait: Wait,
}

/// Children and joiners, which most coroutines do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Family {
    /// Coroutines it has spawned.
    pub(crate) spawned: u32,
    /// First of its list of joiners, last come first.
    pub(crate) joiners: u32,
}

impl Family {
    const NONE: Self = Self { spawned: 0, joiners: NONE };
}

#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most entries are live; boxing them would cost a cache miss a step"
)]
pub(crate) enum State {
    Free { next: u32 },
    Live(Task),
    Ended { status: EndStatus, value: i64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    pub(crate) detached: bool,
    /// A wake is kept for its next park, while it lives.
    pub(crate) unparked: bool,
    /// The lane it runs on, while it lives.
    pub(crate) lane: u16,
    pub(crate) state: State,
}

const _: () = assert!(
    size_of::<Entry>() <= 40,
    "docs/performance/system.md budgets 40 bytes for each of a million entries"
);

/// All coroutines of a session, live and ended. Vectors are by slot.
#[derive(Clone, Debug)]
pub(crate) struct TaskTable {
    pub(crate) entries: Vec<Entry>,
    /// Of live coroutines, up to the last slot that needed one; beyond the end [`Family::NONE`].
    pub(crate) families: Vec<Family>,
    /// Stacks of live coroutines, up to the last slot that needed one; otherwise vacant.
    pub(crate) coroutines: Vec<Coroutine>,
    /// Stacks of coroutines beyond the end of `coroutines` that have run, with their slots;
    /// unordered.
    pub(crate) late: Vec<(u32, Coroutine)>,
    /// By slot: the random streams of live coroutines that have drawn a number.
    pub(crate) streams: BTreeMap<u32, Stream>,
    /// Entries that are not free: what the coroutine limit counts.
    pub(crate) occupied: u32,
    /// Head of the list of free entries.
    pub(crate) free: u32,
    pub(crate) live: u32,
    pub(crate) peak: u32,
    pub(crate) published: u64,
    pub(crate) finished: u64,
    pub(crate) faulted: u64,
    /// Coroutines that faulted and were not joined.
    pub(crate) unjoined_faults: u64,
    /// Coroutines that were killed and were not joined.
    pub(crate) unjoined_kills: u64,
}

/// What a guest's reference names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Stale,
    Live,
    Ended { status: EndStatus, value: i64 },
}

/// Entries.
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
            unjoined_kills: 0,
        }
    }

    pub(crate) const fn occupied(&self) -> u32 {
        self.occupied
    }

    pub(crate) const fn live(&self) -> u32 {
        self.live
    }

    /// The reference that the next coroutine will get.
    pub(crate) fn next_reference(&self) -> CoroutineRef {
        match self.entries.get(self.free as usize) {
            Some(entry) => CoroutineRef::new(self.free, entry.generation),
            None => CoroutineRef::new(self.entries.len() as u32, 0),
        }
    }

    /// Stores a new coroutine. The caller has checked the limit.
    pub(crate) fn insert(&mut self, task: Task, lane: u16, coroutine: Coroutine) -> CoroutineRef {
        let reference = self.next_reference();
        self.publish_at(reference, task, lane);
        self.with_coroutines(|tasks, coroutines| tasks.put(reference.slot, coroutine, coroutines));
        reference
    }

    /// Stores a new coroutine without its stack, under [`Self::next_reference`].
    #[inline(always)]
    pub(crate) fn publish_at(&mut self, reference: CoroutineRef, task: Task, lane: u16) {
        match self.entries.get_mut(reference.slot as usize) {
            Some(entry) => {
                let State::Free { next } = entry.state else {
                    unreachable!("the free list holds free entries")
                };
                self.free = next;
                (entry.detached, entry.unparked, entry.lane) = (false, false, lane);
                if let Some(family) = self.families.get_mut(reference.slot as usize) {
                    *family = Family::NONE;
                }
                entry.state = State::Live(task);
            }
            None => push_with_small_growth(
                &mut self.entries,
                Entry {
                    generation: 0,
                    detached: false,
                    unparked: false,
                    lane,
                    state: State::Live(task),
                },
            ),
        }
        self.occupied += 1;
        self.live += 1;
        if self.live > self.peak {
            self.peak = self.live;
        }
        self.published += 1;
    }

    /// A coroutine that is known to live: the kernel dispatched it, or a queue of the session holds
    /// it.
    #[inline]
    pub(crate) fn live_at(&mut self, slot: u32) -> &mut Task {
        match &mut self.entries[slot as usize].state {
            State::Live(task) => task,
            _ => unreachable!("only live coroutines run or wait"),
        }
    }

    /// A coroutine, if it is live.
    #[inline(always)]
    pub(crate) fn live_get(&mut self, slot: u32) -> Option<&mut Task> {
        self.live_on(slot).map(|(_, task)| task)
    }

    /// A coroutine and the lane it runs on, if it is live.
    #[inline(always)]
    pub(crate) fn live_on(&mut self, slot: u32) -> Option<(u16, &mut Task)> {
        match self.entries.get_mut(slot as usize) {
            Some(Entry { lane, state: State::Live(task), .. }) => Some((*lane, task)),
            _ => None,
        }
    }

    /// A coroutine, if it is live.
    pub(crate) fn live_ref(&self, slot: u32) -> Option<&Task> {
        match &self.entries.get(slot as usize)?.state {
            State::Live(task) => Some(task),
            _ => None,
        }
    }

    /// The live coroutine that a reference names.
    pub(crate) fn live_named(&mut self, reference: CoroutineRef) -> Option<&mut Task> {
        let is_current = self.generation_of(reference.slot) == Some(reference.generation);
        self.live_get(reference.slot).filter(|_| is_current)
    }

    /// All live coroutines, in slot order.
    pub(crate) fn iter_live(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| match &entry.state {
            State::Live(task) => Some((slot, task)),
            _ => None,
        })
    }

    #[inline]
    pub(crate) fn is_live(&self, slot: u32) -> bool {
        self.live_ref(slot).is_some()
    }

    /// The lane that a live coroutine runs on.
    #[inline]
    pub(crate) fn lane_at(&self, slot: u32) -> u16 {
        self.entries[slot as usize].lane
    }

    pub(crate) fn reference_at(&self, slot: u32) -> CoroutineRef {
        CoroutineRef::new(slot, self.entries[slot as usize].generation)
    }

    /// The current generation of a slot, if it was ever used.
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

    /// Keeps a wake for the next park of a live coroutine.
    pub(crate) fn keep_wake(&mut self, slot: u32) {
        self.entries[slot as usize].unparked = true;
    }

    /// Whether a wake was kept for a live coroutine, which is used up now.
    pub(crate) fn take_wake(&mut self, slot: u32) -> bool {
        core::mem::replace(&mut self.entries[slot as usize].unparked, false)
    }

    /// A live coroutine moved to another lane, and has another reference in its kernel.
    pub(crate) fn moved(&mut self, slot: u32, lane: u16, kernel: CoroutineRef) {
        self.entries[slot as usize].lane = lane;
        self.live_at(slot).kernel = kernel;
    }

    /// The random stream of a live coroutine.
    pub(crate) fn random(&mut self, slot: u32) -> &mut Stream {
        let key = self.live_at(slot).key;
        self.streams.entry(slot).or_insert_with(|| Stream::new(key))
    }
}

/// Children and joiners.
impl TaskTable {
    /// The family of a coroutine that lives, or has just ended.
    #[inline(always)]
    pub(crate) fn family(&self, slot: u32) -> Family {
        self.families.get(slot as usize).copied().unwrap_or(Family::NONE)
    }

    /// The family of a live coroutine, to be changed.
    #[inline(always)]
    pub(crate) fn family_mut(&mut self, slot: u32) -> &mut Family {
        let at = slot as usize;
        if at >= self.families.len() {
            core::hint::cold_path();
            self.families.resize(at + 1, Family::NONE);
        }
        &mut self.families[at]
    }

    /// The key of the next child of a live coroutine, which it spawns now.
    #[inline(always)]
    pub(crate) fn child_key(&mut self, slot: u32) -> Key {
        let children = self.live_at(slot).key.children();
        let family = self.family_mut(slot);
        family.spawned += 1;
        children.child(family.spawned - 1)
    }

    /// Takes a joiner out of the list of those that wait for the end of `target`.
    pub(crate) fn unlink_joiner(&mut self, target: u32, next: u32, previous: u32) {
        if next != NONE
            && let Wait::Joining { previous: back, .. } = &mut self.live_at(next).wait
        {
            *back = previous;
        }
        if previous == NONE {
            self.family_mut(target).joiners = next;
        } else if let Wait::Joining { next: forward, .. } = &mut self.live_at(previous).wait {
            *forward = next;
        }
    }
}

/// Stacks.
impl TaskTable {
    /// The stack of a live coroutine.
    #[inline]
    pub(crate) fn coroutine_at(&mut self, slot: u32) -> &mut Coroutine {
        self.both_at(slot).1
    }

    /// The cycles that a live coroutine has used. One that has not run gets no stack for it.
    #[inline]
    pub(crate) fn used_at(&mut self, slot: u32) -> Cycles {
        let has_run =
            (slot as usize) < self.coroutines.len() || self.live_at(slot).wait.lazy().is_none();
        if has_run { self.coroutine_at(slot).used() } else { Cycles::ZERO }
    }

    /// A live coroutine and its stack.
    #[inline]
    pub(crate) fn both_at(&mut self, slot: u32) -> (&mut Task, &mut Coroutine) {
        let is_late = slot as usize >= self.coroutines.len();
        let late = if is_late { self.late_at(slot) } else { None };
        let State::Live(task) = &mut self.entries[slot as usize].state else {
            unreachable!("only live coroutines run or wait")
        };
        match late {
            None => (task, &mut self.coroutines[slot as usize]),
            Some(at) => (task, &mut self.late[at].1),
        }
    }

    /// The stack of a coroutine, if it is live.
    pub(crate) fn coroutine_ref(&self, slot: u32) -> Option<Cow<'_, Coroutine>> {
        if let Some(lazy) = self.live_ref(slot)?.wait.lazy() {
            return Some(Cow::Owned(Coroutine::materialise(lazy)));
        }
        let late = || self.late.iter().find(|late| late.0 == slot).map(|(_, coroutine)| coroutine);
        self.coroutines.get(slot as usize).or_else(late).map(Cow::Borrowed)
    }

    /// The index in `late` of a coroutine beyond the table of stacks. One that has not run enters
    /// the table now: `None`.
    #[cold]
    #[inline(never)]
    fn late_at(&mut self, slot: u32) -> Option<usize> {
        let at = self.late.iter().position(|late| late.0 == slot);
        if at.is_none() {
            self.with_coroutines(|tasks, coroutines| {
                let mut coroutine = Coroutine::vacant();
                tasks.take(slot, &mut coroutine);
                tasks.put(slot, coroutine, coroutines);
            });
        }
        at
    }

    /// Lends the stacks to `change`, as a batch lends them to the machine.
    #[inline]
    fn with_coroutines(&mut self, change: impl FnOnce(&mut Self, &mut Vec<Coroutine>)) {
        let mut coroutines = core::mem::take(&mut self.coroutines);
        change(self, &mut coroutines);
        self.coroutines = coroutines;
    }

    /// Moves out a coroutine that is not in the table of stacks; `false` if it does not exist.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        let Some(task) = self.live_get(slot) else { return false };
        if let Some(lazy) = task.wait.lazy() {
            task.wait.replace_plain(Wait::None);
            *into = Coroutine::materialise(lazy);
            return true;
        }
        self.take_late(slot, into)
    }

    #[cold]
    #[inline(never)]
    fn take_late(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        let at = self.late.iter().position(|late| late.0 == slot);
        at.map(|at| *into = self.late.swap_remove(at).1).is_some()
    }

    /// Stores a coroutine that has run and is not in the table of stacks: there if it is the next,
    /// or if too many are outside it.
    pub(crate) fn keep(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        coroutines: &mut Vec<Coroutine>,
    ) {
        if slot as usize == coroutines.len() || self.late.len() == MAX_LATE {
            self.put(slot, coroutine, coroutines);
        } else {
            self.late.push((slot, coroutine));
        }
    }

    /// Puts a coroutine into the table of stacks, and before it all of lower slots.
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

    /// Frees the stack of a coroutine that has ended; it no longer counts in its session.
    pub(crate) fn vacate(&mut self, slot: u32, machine: &Session) {
        if let Some(coroutine) = self.coroutines.get_mut(slot as usize) {
            machine.retire(coroutine);
        } else if let Some(at) = self.late.iter().position(|late| late.0 == slot) {
            machine.retire(&mut self.late.swap_remove(at).1);
        }
    }
}

/// Ends.
impl TaskTable {
    /// A live coroutine ended. Its result is kept until it is joined, unless it is detached. The
    /// caller frees its stack.
    pub(crate) fn end(&mut self, slot: u32, status: EndStatus, value: i64) {
        let entry = &mut self.entries[slot as usize];
        assert!(matches!(entry.state, State::Live(_)), "only live coroutines end");
        entry.state = State::Ended { status, value };
        entry.unparked = false;
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
            EndStatus::Killed => self.unjoined_kills += 1,
        }
        if entry.detached {
            self.release(slot);
        }
    }

    /// Fast path of [`Self::end`] for a function that returned. `false`, with nothing changed, if
    /// the end concerns others: it has joiners, or is the session's first or last coroutine.
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
        if let State::Ended { status, .. } = self.entries[slot as usize].state {
            self.handled(status);
        }
        self.release(slot);
    }

    /// A coroutine ended and its joiners have the result. If it was detached, its slot is free
    /// already.
    pub(crate) fn joined_at_end(&mut self, reference: CoroutineRef, status: EndStatus) {
        match self.named(reference) {
            Named::Stale => self.handled(status),
            _ => self.joined(reference.slot),
        }
    }

    /// A join has read how a coroutine ended.
    const fn handled(&mut self, status: EndStatus) {
        match status {
            EndStatus::Faulted => self.unjoined_faults -= 1,
            EndStatus::Killed => self.unjoined_kills -= 1,
            EndStatus::Finished | EndStatus::Canceled => {}
        }
    }

    /// Whether the session's first coroutine was canceled and not joined.
    pub(crate) fn is_first_canceled(&self) -> bool {
        self.entries.first().is_some_and(|entry| {
            entry.generation == 0
                && matches!(entry.state, State::Ended { status: EndStatus::Canceled, .. })
        })
    }

    /// Entries of coroutines that were killed and not joined.
    pub(crate) fn kills_not_joined(&self) -> u64 {
        let killed =
            |entry: &&Entry| matches!(entry.state, State::Ended { status: EndStatus::Killed, .. });
        self.entries.iter().filter(killed).count() as u64
    }

    /// No join will read its result.
    pub(crate) fn detach(&mut self, reference: CoroutineRef) {
        let entry = &mut self.entries[reference.slot as usize];
        entry.detached = true;
        if let State::Ended { .. } = entry.state {
            self.release(reference.slot);
        }
    }

    /// Frees an ended slot. A slot whose generations are used up is never used again.
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

    /// The session is over: releases every slot and its memory. The totals stay.
    pub(crate) fn begin_anew(&mut self) {
        self.clear();
        (self.unjoined_faults, self.unjoined_kills) = (0, 0);
    }

    pub(crate) fn clear(&mut self) {
        let Self { peak, published, finished, faulted, unjoined_faults, unjoined_kills, .. } =
            *self;
        *self = Self {
            peak,
            published,
            finished,
            faulted,
            unjoined_faults,
            unjoined_kills,
            ..Self::new()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(tasks: &mut TaskTable) -> CoroutineRef {
        let reference = tasks.next_reference();
        let kernel = CoroutineRef::new(reference.slot, 0);
        tasks.publish_at(reference, Task { kernel, key: Key(7), wait: Wait::None }, 0);
        reference
    }

    #[test]
    fn a_reused_slot_starts_without_a_family() {
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
            "filled up to the last slot that needed one"
        );
        assert!(!tasks.finish(1, 5), "a joiner waits for it");
        assert!(tasks.finish(2, 5), "no joiner waits for it");

        tasks.end(1, EndStatus::Finished, 5);
        assert_eq!(
            tasks.family(1),
            Family { spawned: 2, joiners: 2 },
            "kept until the joiners are answered"
        );
        tasks.joined_at_end(references[1], EndStatus::Finished);
        assert_eq!(publish(&mut tasks), CoroutineRef::new(1, 1));
        assert_eq!(tasks.family(1), Family::NONE);
        assert_eq!(tasks.child_key(1), Key(7).children().child(0));
    }
}
