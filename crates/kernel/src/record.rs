//! The coroutine record and the slab that holds records: one hot part (touched by every pick), the
//! links of queues, those of sessions, and one cold part (touched by rarer events).
//!
//! Contract: a record is in exactly one [`Place`]; the place is the truth, queues are only indexes
//! over it. Slots come in chunks that `reserve` allocates, so a large limit costs a small program
//! nothing and no later operation allocates. A freed slot gets the next generation; a slot whose
//! generations are used up is retired.
//!
//! The links of queues are a table of their own, eight bytes a record: a list of a million sleepers
//! in random order can be followed in a cache, and the records it names be read ahead, many at
//! once. Each table is filled only as far as one was needed there, the cold parts piece by piece as
//! far as one was ever changed: memory that nobody needed is never touched, and a record is written
//! once when it is made.
//!
//! Elsewhere: what a hot record has no room for (`carry`), who links records into which list
//! (`ready`, `sleep`), and who writes the ledger part (`lane`, at its single stop).

use crate::carry::PicksAt;
use crate::digest::mix;
use crate::types::{BlockReason, Fetch, HoldReasons, Refusal, Spawn, Tag};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, LatencyClass, Priority, Weight};

/// "No record": the end of an intrusive list.
pub(crate) const NIL: u32 = u32::MAX;

/// The `next` of a free record that is on no list because its generations are used up.
const RETIRED: u32 = u32::MAX - 1;

const CHUNK_SHIFT: u32 = 10;
/// Records per chunk: what is reserved at once.
pub(crate) const CHUNK: usize = 1 << CHUNK_SHIFT;

const COLD_SHIFT: u32 = 13;
/// Cold parts in one piece: so many that an allocator's note in front of each piece, which touches
/// a page, is rare; so few that filling one is short.
const COLD_CHUNK: usize = 1 << COLD_SHIFT;

/// Records that are read ahead at once.
pub(crate) const ABREAST: usize = 14;

/// Where a record is: the one truth about its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Place {
    /// On the free list, or never used, or retired.
    Free,
    /// Ready: in the FIFO list of its class.
    ReadyList,
    /// Ready: in the out-of-order heap of its class.
    ReadyHeap,
    /// Ready: in the fair queue.
    ReadyFair,
    /// Ready: its context is in the deadline tier.
    ReadyTier,
    /// The lane's current coroutine, inside a slice or between two.
    Running,
    /// In a near list of the wheel.
    SleepWheel,
    /// In a list of a level of the wheel beyond.
    SleepFar,
    /// In the heap of sleepers that are due before the wheel's base.
    SleepEarly,
    /// Waiting for a wake.
    Blocked,
    /// Would be ready, but is held.
    Held,
    Finished,
    Faulted,
    Canceled,
}

impl Place {
    #[inline]
    pub(crate) const fn is_ready(self) -> bool {
        matches!(self, Self::ReadyList | Self::ReadyHeap | Self::ReadyFair | Self::ReadyTier)
    }

    pub(crate) const fn is_sleeping(self) -> bool {
        matches!(self, Self::SleepWheel | Self::SleepFar | Self::SleepEarly)
    }

    pub(crate) const fn is_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Faulted | Self::Canceled)
    }
}

/// The part of a record that a pick, a charge and a requeue touch: one line of a cache. Some
/// numbers are short here, and `carry` has the rest of them. In this order, so that what a wake
/// looks at is one word ([`Hot::stands`]).
///
/// That it begins at a line is the allocator's doing (the binary's does it for large tables) and
/// not asked for here: a table of 64-byte alignment is one that the system's allocator copies
/// whenever it grows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Hot {
    pub(crate) tag: Tag,
    /// Lane-local sequence number of its last enqueue or sleep; the tie-break of every order.
    pub(crate) arrival: u64,
    /// Ready: lane clock when it became so (wrapping: a wait that began on another lane may be
    /// longer than this lane's clock). Sleeping: the frame it wakes in. Blocked: lane clock when it
    /// stopped.
    pub(crate) since: u64,
    pub(crate) wait_total: u64,
    pub(crate) wait_longest: u64,
    /// What is not carried ([`Slab::runtime`]).
    pub(crate) runtime: u32,
    /// Those that are not carried ([`Slab::switches`]).
    pub(crate) switches: u32,
    /// The lane's pick count when it got its arrival, for `Aging` ([`Slab::picks_at`]).
    pub(crate) picks_at: PicksAt,
    pub(crate) generation: u32,
    pub(crate) place: Place,
    /// Why it is blocked, or was the last time.
    pub(crate) reason: BlockReason,
    pub(crate) held: HoldReasons,
    /// The ready class it is queued in, or was picked from.
    pub(crate) class: u8,
    pub(crate) priority: Priority,
    /// Progress tokens.
    pub(crate) tokens: u8,
    /// How often it was blocked for `reason` and the cold part does not know it yet
    /// ([`Slab::count_wait`]).
    pub(crate) waits: u8,
    /// Those that are not carried ([`Slab::sleeps`]).
    pub(crate) sleeps: u8,
}

const _: () = assert!(size_of::<Hot>() == 64, "the hot record is one line");

/// Where a record stands in the queue it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// List: the neighbour before. Heap: the sibling before, or the parent of a first child.
    pub(crate) prev: u32,
    /// List: the neighbour after. Heap: the next sibling. Free: the next free slot.
    pub(crate) next: u32,
}

/// Links that no pick touches: neighbours in the list of its session's records on this lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kin {
    pub(crate) session_prev: u32,
    pub(crate) session_next: u32,
}

/// The part of a record that only blocking, moving, attribute changes and preemption touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cold {
    pub(crate) blocks: [u32; BlockReason::COUNT],
    pub(crate) preemptions: u32,
    pub(crate) migrations: u32,
    pub(crate) steals: u32,
    /// Carried from the hot part, which has the others.
    pub(crate) sleeps: u32,
    /// The same, in units of what is carried at once.
    pub(crate) switches: u32,
    /// The same: the upper half.
    pub(crate) runtime: u32,
    pub(crate) weight: Weight,
    pub(crate) latency: LatencyClass,
}

const _: () = assert!(size_of::<Cold>() <= 56, "the cold record has a budget of 56 bytes");

impl Hot {
    pub(crate) const EMPTY: Self = Self {
        tag: Tag(0),
        arrival: 0,
        since: 0,
        wait_total: 0,
        wait_longest: 0,
        runtime: 0,
        switches: 0,
        picks_at: PicksAt::of(0),
        generation: 0,
        place: Place::Free,
        reason: BlockReason::ChannelReceive,
        held: HoldReasons::NONE,
        class: 0,
        priority: Priority(0),
        tokens: 0,
        waits: 0,
        sleeps: 0,
    };

    /// Where it is, why it was blocked, what holds it and its class, as one number.
    #[inline(always)]
    pub(crate) const fn stands(&self) -> u32 {
        u32::from_le_bytes([self.place as u8, self.reason as u8, self.held.code(), self.class])
    }

    /// Whether one more wait for the same reason is counted here. Not the first, which comes with
    /// the record's worth in the digest ([`Slab::count_wait`]).
    #[inline(always)]
    pub(crate) const fn counts_near(&self) -> bool {
        self.waits.wrapping_sub(1) < u8::MAX - 1
    }

    /// The record is free, and its next use is another generation; whether this one was the last.
    #[inline(always)]
    pub(crate) fn retire(&mut self) -> bool {
        let is_last = self.generation == CoroutineRef::LAST_GENERATION;
        self.place = Place::Free;
        self.generation += u32::from(!is_last);
        is_last
    }
}

impl Links {
    pub(crate) const NONE: Self = Self { prev: NIL, next: NIL };
}

impl Kin {
    const NONE: Self = Self { session_prev: NIL, session_next: NIL };
}

impl Cold {
    pub(crate) const EMPTY: Self = Self {
        blocks: [0; BlockReason::COUNT],
        preemptions: 0,
        migrations: 0,
        steals: 0,
        sleeps: 0,
        switches: 0,
        runtime: 0,
        weight: Weight::NEUTRAL,
        latency: LatencyClass::Normal,
    };
}

/// Makes room for `more` in a table whose owner fills it at once. A short table doubles. One of 2
/// MiB or more grows by a 16th, at least 256 KiB: an allocator that grows such a block without a
/// copy can have the pages of the whole step ready, and does not prepare what nobody needs. With
/// one that copies, growth is still a constant for each record.
fn make_room<T>(table: &mut Vec<T>, more: usize) -> Result<(), TryReserveError> {
    const LONG: usize = 2 << 20;
    const STEP: usize = 256 << 10;
    let is_long = table.len() * size_of::<T>() >= LONG;
    if is_long && table.capacity() - table.len() < more {
        return table.try_reserve_exact(more.max(table.len() / 16).max(STEP / size_of::<T>()));
    }
    table.try_reserve(more)
}

/// All records of one lane.
pub(crate) struct Slab {
    /// By slot, as many as have been used at least once, with room for all that are reserved. One
    /// table, so that a look is a comparison and a shift: each yield takes two.
    hot: Vec<Hot>,
    /// By slot, the same.
    links: Vec<Links>,
    /// By slot, the same.
    kin: Vec<Kin>,
    /// By slot, as far as one was in a heap and had a child: its first child there.
    children: Vec<u32>,
    /// Pieces with room for all their records, filled as far as one was changed; the others are
    /// [`Cold::EMPTY`].
    cold: Vec<Vec<Cold>>,
    /// By slot, as far as one has waited: what the record is worth in the ready-set digest, right
    /// for every one that is blocked or has [`Hot::waits`]. A message takes one off and adds
    /// another, and would have to work out both.
    mixes: Vec<u64>,
    /// By slot, as far as one got its arrival long ago: the lane's pick count then, if the hot part
    /// says so ([`Self::picks_at`]).
    pub(crate) picks_apart: Vec<u64>,
    /// Slots there is room for, whole chunks.
    reserved: u32,
    free_head: u32,
    free_count: u32,
    retired: u32,
    /// No part of the lane's state.
    pub(crate) fetch: Fetch,
}

impl Slab {
    pub(crate) fn new() -> Self {
        let (hot, links, kin, children) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (cold, mixes, picks_apart) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            hot,
            links,
            kin,
            children,
            cold,
            mixes,
            picks_apart,
            reserved: 0,
            free_head: NIL,
            free_count: 0,
            retired: 0,
            fetch: |_| (),
        }
    }

    /// Records in use, ended ones included.
    pub(crate) const fn live(&self) -> u32 {
        self.used() - self.free_count - self.retired
    }

    /// Records that can be in use without another reservation.
    pub(crate) const fn capacity(&self) -> u32 {
        self.reserved - self.retired
    }

    /// Slots there is room for, retired ones included.
    pub(crate) const fn slots_reserved(&self) -> u32 {
        self.reserved
    }

    /// Slots used at least once: `0..used`.
    pub(crate) const fn used(&self) -> u32 {
        self.hot.len() as u32
    }

    pub(crate) const fn free_head(&self) -> u32 {
        self.free_head
    }

    pub(crate) const fn retired(&self) -> u32 {
        self.retired
    }

    /// Makes room for `additional` records more than are live now. On refusal nothing has changed.
    #[inline]
    pub(crate) fn reserve(&mut self, additional: u32) -> Result<(), Refusal> {
        // The limit that `reserve_chunks` holds is above every capacity there is, so what fits is
        // within it.
        if self.has_room(additional) { Ok(()) } else { self.reserve_chunks(additional) }
    }

    /// Whether there is room for `additional` records more than are live now.
    #[inline]
    pub(crate) fn has_room(&self, additional: u32) -> bool {
        u64::from(self.live()) + u64::from(additional) <= u64::from(self.capacity())
    }

    #[cold]
    fn reserve_chunks(&mut self, additional: u32) -> Result<(), Refusal> {
        let wanted = u64::from(self.live()) + u64::from(additional);
        let limit = u64::from(u32::MAX - CHUNK as u32);
        if wanted + u64::from(self.retired) > limit {
            return Err(Refusal::TooManyCoroutines { wanted, limit });
        }
        let missing = wanted.saturating_sub(u64::from(self.capacity()));
        let chunks = missing.div_ceil(CHUNK as u64) as usize;
        let refused = Refusal::OutOfMemory { wanted: additional };
        let slots = self.reserved as usize + (chunks << CHUNK_SHIFT);
        let missing = slots - self.hot.len();
        make_room(&mut self.hot, missing).map_err(|_| refused)?;
        make_room(&mut self.links, missing).map_err(|_| refused)?;
        make_room(&mut self.kin, missing).map_err(|_| refused)?;
        self.children.try_reserve(slots - self.children.len()).map_err(|_| refused)?;
        self.mixes.try_reserve(slots - self.mixes.len()).map_err(|_| refused)?;
        self.picks_apart.try_reserve(slots - self.picks_apart.len()).map_err(|_| refused)?;
        self.reserve_cold(slots).map_err(|_| refused)?;
        self.reserved = slots as u32;
        Ok(())
    }

    /// Makes room for the cold parts of so many slots. The first piece grows by doubling, so that
    /// few records need little; any other is made whole.
    fn reserve_cold(&mut self, slots: usize) -> Result<(), TryReserveError> {
        let pieces = slots.div_ceil(COLD_CHUNK);
        self.cold.try_reserve(pieces.saturating_sub(self.cold.len()))?;
        for at in self.cold.len().saturating_sub(1)..pieces {
            if at == self.cold.len() {
                self.cold.push(Vec::new());
            }
            let piece = &mut self.cold[at];
            let wanted = if pieces > 1 { COLD_CHUNK } else { slots.next_power_of_two() };
            piece.try_reserve_exact(wanted - piece.len())?;
        }
        Ok(())
    }

    /// Takes a slot for a new record. It is in no list yet, and in [`Place::Held`] until the caller
    /// places it.
    pub(crate) fn allocate(&mut self, spawn: &Spawn) -> Result<CoroutineRef, Refusal> {
        let slot = if self.free_head != NIL {
            let slot = self.free_head;
            self.free_head = self.links[slot as usize].next;
            self.free_count -= 1;
            slot
        } else if self.used() < self.reserved {
            self.hot.push(Hot::EMPTY);
            self.links.push(Links::NONE);
            self.kin.push(Kin::NONE);
            self.used() - 1
        } else {
            return Err(Refusal::NotReserved { live: self.live(), capacity: self.capacity() });
        };
        let hot = self.hot_mut(slot);
        let generation = hot.generation;
        *hot = Hot {
            tag: spawn.tag,
            priority: spawn.priority,
            generation,
            place: Place::Held,
            ..Hot::EMPTY
        };
        let is_usual = spawn.weight == Weight::NEUTRAL && spawn.latency == LatencyClass::Normal;
        if !is_usual || self.is_cold_filled(slot) {
            *self.cold_mut(slot) =
                Cold { weight: spawn.weight, latency: spawn.latency, ..Cold::EMPTY };
        }
        Ok(CoroutineRef::new(slot, generation))
    }

    /// The slot of the next record, if its cold part is nobody's to clear, and the generation it
    /// will have. `None` if it is not so, or there is no room.
    #[inline(always)]
    pub(crate) fn next_plain(&self) -> Option<CoroutineRef> {
        let free = self.free_head;
        if free == NIL {
            let slot = self.used();
            // A slot never used has no cold part.
            return if slot < self.reserved { Some(CoroutineRef::new(slot, 0)) } else { None };
        }
        if self.is_cold_filled(free) { None } else { Some(self.reference(free)) }
    }

    /// Takes the slot that [`Self::next_plain`] gave, for this record: [`Self::allocate`] in the
    /// usual case, with one write for each part.
    #[inline(always)]
    pub(crate) fn put_plain(&mut self, slot: u32, hot: Hot, links: Links, kin: Kin) {
        if slot == self.used() {
            // Within what is reserved, so nothing is allocated.
            self.hot.push(hot);
            self.links.push(links);
            self.kin.push(kin);
            return;
        }
        let at = slot as usize;
        self.free_head = self.links[at].next;
        self.free_count -= 1;
        (self.hot[at], self.links[at], self.kin[at]) = (hot, links, kin);
    }

    /// Gives a slot back; every reference to it is stale from now on.
    pub(crate) fn free(&mut self, slot: u32) {
        let is_last = self.hot_mut(slot).retire();
        self.give_back(slot, is_last);
    }

    /// Puts a slot on the free list, unless its generations are used up.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, slot: u32, is_last: bool) {
        if is_last {
            core::hint::cold_path();
            self.links[slot as usize].next = RETIRED;
            self.retired += 1;
            return;
        }
        self.links[slot as usize].next = self.free_head;
        self.free_head = slot;
        self.free_count += 1;
    }

    #[inline]
    pub(crate) fn hot(&self, slot: u32) -> &Hot {
        &self.hot[slot as usize]
    }

    #[inline]
    pub(crate) fn hot_mut(&mut self, slot: u32) -> &mut Hot {
        &mut self.hot[slot as usize]
    }

    #[inline(always)]
    pub(crate) fn links(&self, slot: u32) -> Links {
        self.links[slot as usize]
    }

    #[inline(always)]
    pub(crate) fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.links[slot as usize]
    }

    #[inline]
    pub(crate) fn kin(&self, slot: u32) -> &Kin {
        &self.kin[slot as usize]
    }

    #[inline]
    pub(crate) fn kin_mut(&mut self, slot: u32) -> &mut Kin {
        &mut self.kin[slot as usize]
    }

    /// Heap: the first child of a record, or [`NIL`].
    #[inline]
    pub(crate) fn child(&self, slot: u32) -> u32 {
        self.children.get(slot as usize).copied().unwrap_or(NIL)
    }

    /// Heap: a record has another first child. Within what is reserved, so nothing is allocated.
    #[inline]
    pub(crate) fn set_child(&mut self, slot: u32, child: u32) {
        match self.children.get_mut(slot as usize) {
            Some(first) => *first = child,
            None if child == NIL => {}
            None => {
                self.children.resize(slot as usize, NIL);
                self.children.push(child);
            }
        }
    }

    #[inline]
    pub(crate) fn cold(&self, slot: u32) -> &Cold {
        self.cold[(slot >> COLD_SHIFT) as usize]
            .get(slot as usize & (COLD_CHUNK - 1))
            .unwrap_or(&Cold::EMPTY)
    }

    #[inline]
    pub(crate) fn cold_mut(&mut self, slot: u32) -> &mut Cold {
        let (piece, at) =
            (&mut self.cold[(slot >> COLD_SHIFT) as usize], slot as usize & (COLD_CHUNK - 1));
        if at >= piece.len() {
            // There is room: the piece has room for all that are reserved.
            piece.resize(at + 1, Cold::EMPTY);
        }
        &mut piece[at]
    }

    /// Counts that a record is blocked for this reason, as it is from now on: in the hot part as
    /// long as the reason stays the same and a byte holds it, so that the cold part is seldom
    /// touched, and for a record that waits once never.
    pub(crate) fn count_wait(&mut self, slot: u32, reason: BlockReason) {
        let hot = &mut self.hot[slot as usize];
        if hot.reason == reason && hot.counts_near() {
            hot.waits += 1;
            return;
        }
        let (before, waits) = (hot.reason, hot.waits);
        (hot.reason, hot.waits) = (reason, 1);
        if waits > 0 {
            let blocks = &mut self.cold_mut(slot).blocks[before as usize];
            *blocks = blocks.saturating_add(waits.into());
        }
        self.keep_mix(slot);
    }

    /// How often a record was blocked, by reason.
    pub(crate) fn blocks(&self, slot: u32) -> [u32; BlockReason::COUNT] {
        let (hot, mut blocks) = (self.hot(slot), self.cold(slot).blocks);
        let near = &mut blocks[hot.reason as usize];
        *near = near.saturating_add(hot.waits.into());
        blocks
    }

    /// Keeps what a record is worth in the ready-set digest. Within what is reserved, so nothing is
    /// allocated.
    fn keep_mix(&mut self, slot: u32) {
        let (at, hot) = (slot as usize, &self.hot[slot as usize]);
        let mix = mix(hot.tag, hot.generation);
        if at >= self.mixes.len() {
            self.mixes.resize(at + 1, 0);
        }
        self.mixes[at] = mix;
    }

    /// What is kept of a record's worth in the ready-set digest.
    pub(crate) fn kept_mix(&self, slot: u32) -> Option<u64> {
        self.mixes.get(slot as usize).copied()
    }

    #[cfg(test)]
    pub(crate) fn spoil_mix(&mut self, slot: u32) {
        self.mixes[slot as usize] ^= 1;
    }

    /// Whether a piece of cold parts is filled as far as this one.
    #[inline]
    fn is_cold_filled(&self, slot: u32) -> bool {
        self.cold[(slot >> COLD_SHIFT) as usize].len() > slot as usize & (COLD_CHUNK - 1)
    }

    /// All records and their links at once: whoever changes several takes them apart here, and
    /// looks for neither again.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut [Hot], &mut [Links]) {
        (&mut self.hot, &mut self.links)
    }

    /// All links of sessions at once.
    #[inline(always)]
    pub(crate) fn kin_parts(&mut self) -> &mut [Kin] {
        &mut self.kin
    }

    /// [`Self::parts`], and what is kept of the records' worth in the ready-set digest.
    #[inline(always)]
    pub(crate) fn waiting_parts(&mut self) -> (&mut [Hot], &mut [Links], &[u64]) {
        (&mut self.hot, &mut self.links, &self.mixes)
    }

    /// The slots of a list from `slot` on, as many as are read ahead at once; and the one behind
    /// them.
    #[inline]
    pub(crate) fn follow(&self, mut slot: u32, slots: &mut [u32; ABREAST]) -> (usize, u32) {
        let mut count = 0;
        while count < ABREAST && slot != NIL {
            slots[count] = slot;
            slot = self.links(slot).next;
            count += 1;
        }
        (count, slot)
    }

    /// Fetches a record and its links ahead of use: those of a long list in random order are in no
    /// cache.
    #[inline(always)]
    pub(crate) fn fetch(&self, slot: u32) {
        (self.fetch)(self.hot(slot));
        (self.fetch)(&self.links[slot as usize]);
    }

    /// The record a reference names, or the refusal that it is stale.
    #[inline]
    pub(crate) fn live_slot(&self, reference: CoroutineRef) -> Result<u32, Refusal> {
        if reference.slot < self.used() {
            let hot = self.hot(reference.slot);
            if hot.generation == reference.generation && hot.place != Place::Free {
                return Ok(reference.slot);
            }
            return Err(Refusal::Stale { reference, found_generation: hot.generation });
        }
        Err(Refusal::Stale { reference, found_generation: 0 })
    }

    /// The reference of a slot in use.
    #[inline]
    pub(crate) fn reference(&self, slot: u32) -> CoroutineRef {
        CoroutineRef::new(slot, self.hot(slot).generation)
    }

    /// The record of a slot in use.
    pub(crate) fn live_slot_at(&self, slot: u32) -> Option<&Hot> {
        if slot < self.used() {
            Some(self.hot(slot)).filter(|hot| hot.place != Place::Free)
        } else {
            None
        }
    }

    /// The free slots, the next to be used first, with the generation they will have.
    pub(crate) fn free_list(&self) -> impl Iterator<Item = CoroutineRef> + '_ {
        let mut at = self.free_head;
        core::iter::from_fn(move || {
            let slot = at;
            if slot == NIL {
                return None;
            }
            at = self.links(slot).next;
            Some(self.reference(slot))
        })
    }

    /// The retired slots, ascending: free at the last generation, and on no list.
    pub(crate) fn retired_slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.used())
            .filter(|&slot| self.hot(slot).place == Place::Free && self.links(slot).next == RETIRED)
    }

    /// For a rebuild: room for `reserved` slots of which the first `used` are to be restored one by
    /// one.
    pub(crate) fn restore(&mut self, reserved: u32, used: u32) -> Result<(), Refusal> {
        self.reserve(reserved)?;
        let used = used as usize;
        self.hot.resize(used, Hot::EMPTY);
        self.links.resize(used, Links::NONE);
        self.kin.resize(used, Kin::NONE);
        Ok(())
    }

    /// For a rebuild: a slot in use.
    pub(crate) fn restore_record(&mut self, slot: u32, hot: Hot, cold: Cold) {
        *self.hot_mut(slot) = hot;
        if cold != Cold::EMPTY {
            *self.cold_mut(slot) = cold;
        }
        if hot.place == Place::Blocked {
            self.keep_mix(slot);
        }
    }

    /// For a rebuild: a slot to put first on the free list.
    pub(crate) fn restore_free(&mut self, reference: CoroutineRef) {
        let next = self.free_head;
        *self.hot_mut(reference.slot) = Hot { generation: reference.generation, ..Hot::EMPTY };
        self.links_mut(reference.slot).next = next;
        self.free_head = reference.slot;
        self.free_count += 1;
    }

    /// For a rebuild: a retired slot.
    pub(crate) fn restore_retired(&mut self, slot: u32, generation: u32) {
        *self.hot_mut(slot) = Hot { generation, ..Hot::EMPTY };
        self.links_mut(slot).next = RETIRED;
        self.retired += 1;
    }

    /// Every slot in use, ascending.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.used()).filter(|&slot| self.hot(slot).place != Place::Free)
    }
}

/// An intrusive FIFO list over records, linked by `prev` and `next`. The `prev` of its head means
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    #[inline]
    pub(crate) fn push_back(&mut self, slab: &mut Slab, slot: u32) {
        let tail = self.tail;
        *slab.links_mut(slot) = Links { prev: tail, next: NIL };
        if tail == NIL {
            self.head = slot;
        } else {
            slab.links_mut(tail).next = slot;
        }
        self.tail = slot;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, slab: &mut Slab, slot: u32) {
        let head = self.head;
        *slab.links_mut(slot) = Links { prev: NIL, next: head };
        if head == NIL {
            self.tail = slot;
        } else {
            slab.links_mut(head).prev = slot;
        }
        self.head = slot;
    }

    #[inline]
    pub(crate) fn unlink(&mut self, slab: &mut Slab, slot: u32) {
        let Links { prev, next } = slab.links(slot);
        let is_head = self.head == slot;
        if is_head {
            self.head = next;
        } else {
            slab.links_mut(prev).next = next;
        }
        if next == NIL {
            self.tail = if is_head { NIL } else { prev };
        } else {
            slab.links_mut(next).prev = prev;
        }
    }

    /// Its slots, first to last.
    pub(crate) fn iter<'a>(&self, slab: &'a Slab) -> impl Iterator<Item = u32> + use<'a> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let slot = at;
            if slot == NIL {
                return None;
            }
            at = slab.links(slot).next;
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_used_up_its_generations_is_retired() {
        let mut slab = Slab::new();
        slab.reserve(1).expect("memory");
        let capacity = slab.capacity();
        let spawn = Spawn::new(Tag::new(0, 0));
        let first = slab.allocate(&spawn).expect("room");
        slab.hot_mut(first.slot).generation = CoroutineRef::LAST_GENERATION;
        slab.free(first.slot);
        assert_eq!((slab.live(), slab.capacity(), slab.retired()), (0, capacity - 1, 1));
        assert_eq!(
            slab.allocate(&spawn).expect("room").slot,
            first.slot + 1,
            "it is not used again"
        );
        assert_eq!(slab.retired_slots().collect::<Vec<_>>(), [first.slot]);
        assert!(
            slab.live_slot(CoroutineRef::new(first.slot, CoroutineRef::LAST_GENERATION)).is_err()
        );
        let sizes = [size_of::<Hot>(), size_of::<Links>(), size_of::<Kin>(), size_of::<Cold>()];
        assert_eq!(sizes, [64, 8, 8, 56], "docs/scheduler.md names these sizes");
    }

    #[test]
    fn a_reservation_that_cannot_be_numbered_changes_nothing() {
        let mut slab = Slab::new();
        assert!(matches!(slab.reserve(u32::MAX), Err(Refusal::TooManyCoroutines { .. })));
        assert_eq!(slab.capacity(), 0);
    }

    #[test]
    fn tables_are_filled_as_far_as_they_are_needed_and_never_beyond_what_is_reserved() {
        let mut slab = Slab::new();
        slab.reserve(1).expect("memory");
        assert_eq!(
            (slab.capacity(), slab.cold.len(), slab.cold[0].capacity()),
            (CHUNK as u32, 1, CHUNK),
            "few records need little"
        );
        slab.reserve(20_000).expect("memory");
        let rooms = |slab: &Slab| {
            [
                slab.hot.capacity(),
                slab.links.capacity(),
                slab.kin.capacity(),
                slab.children.capacity(),
                slab.mixes.capacity(),
            ]
        };
        let before = rooms(&slab);
        assert!(before.into_iter().all(|room| room >= 20_480) && slab.capacity() == 20_480);
        assert_eq!(
            slab.cold.iter().map(|piece| (piece.len(), piece.capacity())).collect::<Vec<_>>(),
            [(0, COLD_CHUNK); 3]
        );
        let spawn = Spawn::new(Tag::new(0, 0));
        for slot in 0..20_480 {
            let reference = CoroutineRef::new(slot, 0);
            assert_eq!(slab.next_plain(), Some(reference));
            // Both ways of taking a slot fill the tables alike.
            if slot % 2 == 0 {
                slab.put_plain(
                    slot,
                    Hot { place: Place::Held, ..Hot::EMPTY },
                    Links::NONE,
                    Kin::NONE,
                );
            } else {
                assert_eq!(slab.allocate(&spawn), Ok(reference));
            }
            assert_eq!([slab.hot.len(), slab.links.len(), slab.kin.len()], [slot as usize + 1; 3]);
        }
        assert_eq!(slab.next_plain(), None);
        assert!(matches!(
            slab.allocate(&spawn),
            Err(Refusal::NotReserved { live: 20_480, capacity: 20_480 })
        ));

        slab.set_child(7, NIL);
        assert_eq!((slab.children.len(), slab.child(7)), (0, NIL), "no child is none");
        slab.set_child(7, 3);
        slab.set_child(20_479, 4);
        assert_eq!([7, 8, 20_479].map(|slot| slab.child(slot)), [3, NIL, 4]);
        slab.set_child(7, NIL);
        assert_eq!(slab.child(7), NIL);

        slab.cold_mut(9_000).steals = 1;
        assert_eq!(slab.cold.iter().map(Vec::len).collect::<Vec<_>>(), [0, 9_001 - COLD_CHUNK, 0]);
        assert_eq!((slab.cold(9_000).steals, *slab.cold(20_479)), (1, Cold::EMPTY));
        // A freed slot whose cold part was changed is not a plain one; one whose part is not there
        // is.
        for (slot, is_plain) in [(9_000, false), (20_000, true)] {
            slab.free(slot);
            assert_eq!(slab.next_plain(), is_plain.then_some(CoroutineRef::new(slot, 1)));
        }
        slab.put_plain(
            20_000,
            Hot { generation: 1, place: Place::Held, ..Hot::EMPTY },
            Links::NONE,
            Kin::NONE,
        );
        assert_eq!((slab.live(), slab.free_head()), (20_479, 9_000));
        assert_eq!(rooms(&slab), before, "nothing was allocated");
    }
}
