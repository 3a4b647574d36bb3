//! Coroutine records and the slab that holds them.
//!
//! A record has four parts in tables of their own, by slot: the hot part (one cache line, touched
//! by every dispatch), the links of the queue it is in, the links of its session's list, and the
//! cold part (touched by rarer events).
//!
//! Contract: a record is in exactly one [`Place`], which is the single source of truth; queues are
//! indexes over it. `reserve` allocates, no later operation does. A freed slot gets the next
//! generation; a slot whose generations are used up is retired. Cold parts are filled, piece by
//! piece, up to the last one that was changed: a million coroutines that only yield or receive need
//! none, which saves 61 MiB.
//!
//! Counters that are short in the hot part spill into the cold part when they overflow: runtime,
//! switches, sleeps, the longest wait, and the number of waits. The methods of [`Slab`] return and
//! update the whole numbers; fast paths ask the hot part whether a number fits, and otherwise leave
//! the work to those. The hot part is 64 bytes because of this: where a record covers two cache
//! lines, as in an unaligned table, a yield in random order among a million coroutines takes 1.2
//! times as long.
//!
//! Elsewhere: who links records into which list (`ready`, `sleep`, `session`).

use crate::ledger::Ledger;
use crate::room::Room;
use crate::types::{BlockReason, HoldReasons, Prefetch, Refusal, Spawn, Tag};
use alloc::collections::TryReserveError;
use wavelock_abi::{CoroutineRef, Cycles, LatencyClass, Priority, Weight};

/// No slot: the end of a list, an empty heap, no current coroutine.
pub(crate) const NIL: u32 = u32::MAX;

/// The `next` of a free record that is on no list because its generations are used up.
const RETIRED: u32 = u32::MAX - 1;

/// Slots are reserved in multiples of this.
const CHUNK: u64 = 1024;

/// Cold parts in one piece: no single step fills more of them.
const COLD_PIECE: usize = 8192;

/// Records that are prefetched at once.
pub(crate) const PREFETCH: usize = 14;

/// The state of a record, and the structure that holds it.
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
    /// Ready: its session is demoted by its cap, and it runs when nothing else does.
    ReadyBackground,
    /// The lane's current coroutine, inside a slice or between two.
    Running,
    /// In a near list of the timer wheel.
    SleepNear,
    /// In a list of an upper level of the timer wheel.
    SleepFar,
    /// In the heap of sleepers that are due before the wheel's base.
    SleepEarly,
    /// Waiting for a wake.
    Blocked,
    /// It would be ready, but is held.
    Throttled,
    Finished,
    Faulted,
    Canceled,
}

impl Place {
    #[inline]
    pub(crate) const fn is_ready(self) -> bool {
        matches!(
            self,
            Self::ReadyList
                | Self::ReadyHeap
                | Self::ReadyFair
                | Self::ReadyTier
                | Self::ReadyBackground
        )
    }

    pub(crate) const fn is_sleeping(self) -> bool {
        matches!(self, Self::SleepNear | Self::SleepFar | Self::SleepEarly)
    }

    pub(crate) const fn is_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Faulted | Self::Canceled)
    }
}

/// The part of a record that a dispatch, a charge, a requeue and a wake touch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Hot {
    pub(crate) tag: Tag,
    /// Lane-local sequence number of its last enqueue or sleep; the tie-break of every order.
    pub(crate) arrival: u64,
    /// The lane's pick count when it got its arrival, for `Aging`.
    pub(crate) picks_at: u64,
    /// Ready or blocked: lane clock when that began (wrapping: a wait that began on another lane
    /// may be longer than this lane's clock). Sleeping: the frame it wakes in.
    pub(crate) since: u64,
    pub(crate) wait_total: u64,
    /// The longest wait; [`u32::MAX`] if it is that or more and in the cold part.
    wait_longest: u32,
    /// The lower half of the runtime.
    runtime: u32,
    /// The lower half of the switch count.
    switches: u32,
    pub(crate) generation: u32,
    pub(crate) place: Place,
    /// The reason it is blocked, or was the last time.
    pub(crate) reason: BlockReason,
    pub(crate) held: HoldReasons,
    /// The class it is queued in, or was picked from.
    pub(crate) class: u8,
    pub(crate) priority: Priority,
    /// Progress tokens.
    pub(crate) tokens: u8,
    /// Waits for `reason` that the cold part does not count yet.
    waits: u8,
    /// Sleeps that the cold part does not count yet.
    sleeps: u8,
}

const _: () = assert!(size_of::<Hot>() == 64, "the hot record is one cache line");

/// Neighbours in the queue that holds a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// List: the previous record. Heap: the previous sibling, or the parent of a first child.
    pub(crate) prev: u32,
    /// List: the next record. Heap: the next sibling. Free: the next free slot.
    pub(crate) next: u32,
}

/// Neighbours in the list of a session's records on the lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLinks {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

/// The part of a record that blocking for another reason, moving, attribute changes, preemption
/// and overflows of the hot part touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cold {
    wait_longest: u64,
    blocks: [u32; BlockReason::COUNT],
    pub(crate) preemptions: u32,
    pub(crate) migrations: u32,
    pub(crate) steals: u32,
    sleeps: u32,
    /// The upper half of the switch count.
    switches: u32,
    /// The upper half of the runtime.
    runtime: u32,
    pub(crate) weight: Weight,
    pub(crate) latency: LatencyClass,
}

impl Hot {
    pub(crate) const EMPTY: Self = Self {
        tag: Tag(0),
        arrival: 0,
        picks_at: 0,
        since: 0,
        wait_total: 0,
        wait_longest: 0,
        runtime: 0,
        switches: 0,
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

    /// Its runtime after a slice of `used` cycles, if the hot part holds it.
    #[inline(always)]
    pub(crate) fn runtime_after(&self, used: Cycles) -> Option<u32> {
        self.runtime.checked_add(u32::try_from(used.0).ok()?)
    }

    /// Sets what [`Self::runtime_after`] returned.
    #[inline(always)]
    pub(crate) const fn set_runtime(&mut self, runtime: u32) {
        self.runtime = runtime;
    }

    /// Fast path of [`Slab::begin_slice`]: `None`, and nothing changed, if a counter overflows the
    /// hot part.
    #[inline(always)]
    pub(crate) fn begin_slice(&mut self, clock: u64, is_switch: bool) -> Option<()> {
        let wait = clock.wrapping_sub(self.since);
        let switches = self.switches.checked_add(u32::from(is_switch))?;
        if wait > u64::from(self.wait_longest) {
            if wait >= u64::from(u32::MAX) {
                return None;
            }
            self.wait_longest = wait as u32;
        }
        self.switches = switches;
        // Wrapping: only a forged state has waits that overflow.
        self.wait_total = self.wait_total.wrapping_add(wait);
        if self.tokens != 0 {
            self.tokens -= 1;
        }
        self.place = Place::Running;
        Some(())
    }

    /// Whether the hot part can count one more wait for this reason.
    #[inline(always)]
    pub(crate) fn counts_wait(&self, reason: BlockReason) -> bool {
        self.reason == reason && self.waits < u8::MAX
    }

    /// Counts a wait that [`Self::counts_wait`] accepts.
    #[inline(always)]
    pub(crate) fn count_wait(&mut self, reason: BlockReason) {
        debug_assert!(self.counts_wait(reason));
        self.waits += 1;
    }
}

impl Links {
    pub(crate) const NONE: Self = Self { prev: NIL, next: NIL };
}

impl Cold {
    const EMPTY: Self = Self {
        wait_longest: 0,
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

/// All records of one lane.
#[derive(Clone)]
pub(crate) struct Slab {
    hot: Room<Hot>,
    links: Room<Links>,
    session_links: Room<SessionLinks>,
    /// First children in heaps, up to the last slot that had one.
    children: Room<u32>,
    /// Pieces, each filled up to the last one that was changed; the others are [`Cold::EMPTY`].
    cold: Room<Room<Cold>>,
    /// Slots there is room for.
    reserved: u32,
    free_head: u32,
    free_count: u32,
    retired: u32,
    /// Not part of the lane's state.
    pub(crate) prefetch: Prefetch,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self {
            hot: Room::new(),
            links: Room::new(),
            session_links: Room::new(),
            children: Room::new(),
            cold: Room::new(),
            reserved: 0,
            free_head: NIL,
            free_count: 0,
            retired: 0,
            prefetch: |_| (),
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

    pub(crate) const fn retired(&self) -> u32 {
        self.retired
    }

    /// Whether there is room for `additional` records more than are live now.
    #[inline]
    pub(crate) fn has_room(&self, additional: u32) -> bool {
        u64::from(self.live()) + u64::from(additional) <= u64::from(self.capacity())
    }

    /// Makes room for `additional` records more than are live now. On refusal the capacity is
    /// unchanged.
    pub(crate) fn reserve(&mut self, additional: u32) -> Result<(), Refusal> {
        if self.has_room(additional) {
            return Ok(());
        }
        let wanted = u64::from(self.live()) + u64::from(additional);
        let limit = u64::from(u32::MAX) - CHUNK;
        if wanted + u64::from(self.retired) > limit {
            return Err(Refusal::TooManyCoroutines { wanted, limit });
        }
        let missing = wanted - u64::from(self.capacity());
        let slots = self.reserved as usize + missing.next_multiple_of(CHUNK) as usize;
        let refused = |_| Refusal::OutOfMemory { wanted: additional };
        self.hot.reserve_total(slots).map_err(refused)?;
        self.links.reserve_total(slots).map_err(refused)?;
        self.session_links.reserve_total(slots).map_err(refused)?;
        self.children.reserve_total(slots).map_err(refused)?;
        self.reserve_cold(slots).map_err(refused)?;
        self.reserved = slots as u32;
        Ok(())
    }

    /// Makes room for the cold parts of this many slots. A single piece is as large as needed.
    fn reserve_cold(&mut self, slots: usize) -> Result<(), TryReserveError> {
        let (before, pieces) = (self.cold.len(), slots.div_ceil(COLD_PIECE));
        self.cold.try_reserve(pieces.saturating_sub(before))?;
        self.cold.resize_with(pieces.max(before), Room::new);
        for piece in self.cold.iter_mut().skip(before.saturating_sub(1)) {
            let room = if pieces > 1 { COLD_PIECE } else { slots };
            let more = room.saturating_sub(piece.len());
            piece.try_reserve_exact(more)?;
        }
        Ok(())
    }

    /// Takes a slot for a new record. It is in no list yet, and in [`Place::Throttled`] until the
    /// caller places it.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, spawn: &Spawn) -> Result<CoroutineRef, Refusal> {
        let mut hot =
            Hot { tag: spawn.tag, priority: spawn.priority, place: Place::Throttled, ..Hot::EMPTY };
        let slot = if self.free_head != NIL {
            let slot = self.free_head;
            self.free_head = self.links(slot).next;
            self.free_count -= 1;
            hot.generation = self.hot(slot).generation;
            self.hot[slot as usize] = hot;
            slot
        } else if self.used() < self.reserved {
            self.hot.push(hot);
            self.links.push(Links::NONE);
            self.session_links.push(SessionLinks { prev: NIL, next: NIL });
            self.used() - 1
        } else {
            return Err(Refusal::NotReserved { live: self.live(), capacity: self.capacity() });
        };
        let is_neutral = spawn.weight == Weight::NEUTRAL && spawn.latency == LatencyClass::Normal;
        if !is_neutral || self.cold_piece(slot).is_some() {
            let cold = Cold { weight: spawn.weight, latency: spawn.latency, ..Cold::EMPTY };
            *self.cold_mut(slot) = cold;
        }
        Ok(CoroutineRef::new(slot, hot.generation))
    }

    /// Frees a slot, unless its generations are used up; every reference to it is stale from now
    /// on.
    pub(crate) fn free(&mut self, slot: u32) {
        let hot = self.hot_mut(slot);
        hot.place = Place::Free;
        if hot.generation == CoroutineRef::LAST_GENERATION {
            self.links_mut(slot).next = RETIRED;
            self.retired += 1;
            return;
        }
        hot.generation += 1;
        self.links_mut(slot).next = self.free_head;
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
    pub(crate) fn session_links(&self, slot: u32) -> SessionLinks {
        self.session_links[slot as usize]
    }

    #[inline]
    pub(crate) fn session_links_mut(&mut self, slot: u32) -> &mut SessionLinks {
        &mut self.session_links[slot as usize]
    }

    /// Heap: the first child of a record, or [`NIL`].
    #[inline]
    pub(crate) fn child(&self, slot: u32) -> u32 {
        self.children.get(slot as usize).copied().unwrap_or(NIL)
    }

    /// Heap: sets the first child of a record. Within what is reserved, so nothing is allocated.
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
        self.cold_piece(slot).unwrap_or(&Cold::EMPTY)
    }

    /// The cold part of a record, if its piece is filled that far.
    #[inline]
    fn cold_piece(&self, slot: u32) -> Option<&Cold> {
        self.cold[slot as usize / COLD_PIECE].get(slot as usize % COLD_PIECE)
    }

    /// Within what is reserved, so nothing is allocated.
    #[inline]
    pub(crate) fn cold_mut(&mut self, slot: u32) -> &mut Cold {
        let (piece, at) = (&mut self.cold[slot as usize / COLD_PIECE], slot as usize % COLD_PIECE);
        if at >= piece.len() {
            piece.resize(at + 1, Cold::EMPTY);
        }
        &mut piece[at]
    }

    /// Sets weight and latency class.
    pub(crate) fn set_share(&mut self, slot: u32, weight: Weight, latency: LatencyClass) {
        if (self.cold(slot).weight, self.cold(slot).latency) != (weight, latency) {
            let cold = self.cold_mut(slot);
            (cold.weight, cold.latency) = (weight, latency);
        }
    }

    /// All hot parts and links, for a fast path that changes several records.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut [Hot], &mut [Links]) {
        (&mut self.hot, &mut self.links)
    }

    /// Starts a slice at `clock`: books the wait and the switch, and takes a progress token.
    #[inline]
    pub(crate) fn begin_slice(&mut self, slot: u32, clock: u64, is_switch: bool) {
        if self.hot_mut(slot).begin_slice(clock, is_switch).is_some() {
            return;
        }
        self.book_wait(slot, clock);
        let (switches, carry) = self.hot(slot).switches.overflowing_add(u32::from(is_switch));
        if carry {
            self.cold_mut(slot).switches += 1;
        }
        let hot = self.hot_mut(slot);
        hot.switches = switches;
        hot.tokens = hot.tokens.saturating_sub(1);
        hot.place = Place::Running;
    }

    /// Books the time since a ready record was queued as its wait.
    pub(crate) fn book_wait(&mut self, slot: u32, clock: u64) {
        let hot = self.hot_mut(slot);
        let wait = clock.wrapping_sub(hot.since);
        hot.wait_total = hot.wait_total.wrapping_add(wait);
        let longest = self.wait_longest(slot).max(wait);
        self.set_wait_longest(slot, longest);
    }

    fn wait_longest(&self, slot: u32) -> u64 {
        match self.hot(slot).wait_longest {
            u32::MAX => self.cold(slot).wait_longest,
            longest => longest.into(),
        }
    }

    fn set_wait_longest(&mut self, slot: u32, longest: u64) {
        let short = u32::try_from(longest).unwrap_or(u32::MAX);
        self.hot_mut(slot).wait_longest = short;
        if short == u32::MAX {
            self.cold_mut(slot).wait_longest = longest;
        }
    }

    /// Adds what a slice used to a record's runtime.
    #[inline(always)]
    pub(crate) fn charge(&mut self, slot: u32, used: Cycles) {
        match self.hot(slot).runtime_after(used) {
            Some(runtime) => self.hot_mut(slot).runtime = runtime,
            None => self.set_runtime(slot, self.runtime(slot) + used),
        }
    }

    fn runtime(&self, slot: u32) -> Cycles {
        Cycles(join(self.cold(slot).runtime, self.hot(slot).runtime))
    }

    #[cold]
    fn set_runtime(&mut self, slot: u32, runtime: Cycles) {
        let (high, low) = split(runtime.0);
        self.hot_mut(slot).runtime = low;
        if high != self.cold(slot).runtime {
            self.cold_mut(slot).runtime = high;
        }
    }

    /// Counts a sleep.
    #[inline]
    pub(crate) fn count_sleep(&mut self, slot: u32) {
        let (sleeps, carry) = self.hot(slot).sleeps.overflowing_add(1);
        self.hot_mut(slot).sleeps = sleeps;
        if carry {
            let cold = self.cold_mut(slot);
            cold.sleeps = cold.sleeps.saturating_add(1 << u8::BITS);
        }
    }

    /// Counts a wait that begins: in the hot part while the reason stays the same and a byte holds
    /// it.
    #[inline]
    pub(crate) fn count_wait(&mut self, slot: u32, reason: BlockReason) {
        let hot = &mut self.hot[slot as usize];
        if hot.counts_wait(reason) {
            return hot.count_wait(reason);
        }
        let (before, waits) = (hot.reason, hot.waits);
        (hot.reason, hot.waits) = (reason, 1);
        if waits > 0 {
            let blocks = &mut self.cold_mut(slot).blocks[before as usize];
            *blocks = blocks.saturating_add(waits.into());
        }
    }

    /// What a record has consumed.
    pub(crate) fn ledger(&self, slot: u32) -> Ledger {
        let (hot, cold) = (self.hot(slot), self.cold(slot));
        let mut blocks = cold.blocks;
        let last = &mut blocks[hot.reason as usize];
        *last = last.saturating_add(hot.waits.into());
        Ledger {
            runtime: self.runtime(slot),
            wait_total: Cycles(hot.wait_total),
            wait_longest: Cycles(self.wait_longest(slot)),
            switches: join(cold.switches, hot.switches),
            preemptions: cold.preemptions,
            blocks,
            sleeps: cold.sleeps.saturating_add(hot.sleeps.into()),
            migrations: cold.migrations,
            steals: cold.steals,
        }
    }

    /// Sets what a record has consumed.
    pub(crate) fn set_ledger(&mut self, slot: u32, ledger: &Ledger) {
        let ((runtime_high, runtime), (switches_high, switches)) =
            (split(ledger.runtime.0), split(ledger.switches));
        let sleeps = ledger.sleeps as u8;
        let hot = self.hot_mut(slot);
        (hot.runtime, hot.switches, hot.waits, hot.sleeps) = (runtime, switches, 0, sleeps);
        hot.wait_total = ledger.wait_total.0;
        let cold = Cold {
            wait_longest: 0,
            blocks: ledger.blocks,
            preemptions: ledger.preemptions,
            migrations: ledger.migrations,
            steals: ledger.steals,
            sleeps: ledger.sleeps - u32::from(sleeps),
            switches: switches_high,
            runtime: runtime_high,
            ..*self.cold(slot)
        };
        if cold != *self.cold(slot) {
            *self.cold_mut(slot) = cold;
        }
        self.set_wait_longest(slot, ledger.wait_longest.0);
    }

    /// Copies up to `slots.len()` slots of a list, from `slot` on; returns how many, and the slot
    /// after them.
    #[inline]
    pub(crate) fn follow(&self, mut slot: u32, slots: &mut [u32]) -> (usize, u32) {
        let mut count = 0;
        while count < slots.len() && slot != NIL {
            slots[count] = slot;
            slot = self.links(slot).next;
            count += 1;
        }
        (count, slot)
    }

    /// Prefetches a record and its links.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        (self.prefetch)(self.hot(slot));
        (self.prefetch)(&self.links[slot as usize]);
    }

    /// The slot of a live reference, or the refusal that it is stale.
    #[inline]
    pub(crate) fn live_slot(&self, reference: CoroutineRef) -> Result<u32, Refusal> {
        match self.hot.get(reference.slot as usize) {
            Some(hot) if hot.generation == reference.generation && hot.place != Place::Free => {
                Ok(reference.slot)
            }
            found => Err(Refusal::Stale {
                reference,
                found_generation: found.map_or(0, |hot| hot.generation),
            }),
        }
    }

    /// The reference of a slot in use.
    #[inline]
    pub(crate) fn reference(&self, slot: u32) -> CoroutineRef {
        CoroutineRef::new(slot, self.hot(slot).generation)
    }

    /// The record of a slot in use.
    pub(crate) fn live_slot_at(&self, slot: u32) -> Option<&Hot> {
        self.hot.get(slot as usize).filter(|hot| hot.place != Place::Free)
    }

    /// The free slots, the next to be used first, with the generation they will have.
    pub(crate) fn free_list(&self) -> impl Iterator<Item = CoroutineRef> + '_ {
        let list = List { head: self.free_head, tail: NIL };
        list.iter(self).map(|slot| self.reference(slot))
    }

    /// The retired slots, ascending: free at the last generation, and on no list.
    pub(crate) fn retired_slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.used())
            .filter(|&slot| self.hot(slot).place == Place::Free && self.links(slot).next == RETIRED)
    }

    /// For a rebuild: room for `reserved` slots, of which the first `used` are then restored one by
    /// one.
    pub(crate) fn restore(&mut self, reserved: u32, used: u32) -> Result<(), Refusal> {
        self.reserve(reserved)?;
        let used = used as usize;
        self.hot.resize(used, Hot::EMPTY);
        self.links.resize(used, Links::NONE);
        self.session_links.resize(used, SessionLinks { prev: NIL, next: NIL });
        Ok(())
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

/// The upper and the lower half of a number.
const fn split(number: u64) -> (u32, u32) {
    ((number >> u32::BITS) as u32, number as u32)
}

/// The number with these halves.
const fn join(high: u32, low: u32) -> u64 {
    (high as u64) << u32::BITS | low as u64
}

/// An intrusive FIFO list over records, linked by `prev` and `next`. The `prev` of its head and the
/// tail of an empty list are never read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    #[inline(always)]
    pub(crate) fn push_back(&mut self, links: &mut [Links], slot: u32) {
        links[slot as usize] = Links { prev: self.tail, next: NIL };
        if self.head == NIL {
            self.head = slot;
        } else {
            links[self.tail as usize].next = slot;
        }
        self.tail = slot;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, links: &mut [Links], slot: u32) {
        links[slot as usize] = Links { prev: NIL, next: self.head };
        if self.head == NIL {
            self.tail = slot;
        } else {
            links[self.head as usize].prev = slot;
        }
        self.head = slot;
    }

    #[inline]
    pub(crate) fn unlink(&mut self, links: &mut [Links], slot: u32) {
        let Links { prev, next } = links[slot as usize];
        let is_head = self.head == slot;
        if is_head {
            self.head = next;
        } else {
            links[prev as usize].next = next;
        }
        if next == NIL {
            self.tail = if is_head { NIL } else { prev };
        } else {
            links[next as usize].prev = prev;
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
    use alloc::vec::Vec;

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
        let sizes =
            [size_of::<Hot>(), size_of::<Links>(), size_of::<SessionLinks>(), size_of::<Cold>()];
        assert_eq!(sizes, [64, 8, 8, 72], "docs/scheduler.md names these sizes");
    }

    #[test]
    fn a_reservation_that_cannot_be_numbered_changes_nothing() {
        let mut slab = Slab::new();
        assert!(matches!(slab.reserve(u32::MAX), Err(Refusal::TooManyCoroutines { .. })));
        assert_eq!(slab.capacity(), 0);
    }

    #[test]
    fn tables_are_filled_only_up_to_what_was_changed_and_never_reallocated() {
        let mut slab = Slab::new();
        slab.reserve(20_000).expect("memory");
        let room = |slab: &Slab| {
            [
                slab.hot.capacity(),
                slab.links.capacity(),
                slab.session_links.capacity(),
                slab.children.capacity(),
                slab.cold.iter().map(|piece| piece.capacity()).sum(),
            ]
        };
        let before = room(&slab);
        assert!(before.into_iter().all(|room| room >= 20_480) && slab.capacity() == 20_480);
        let spawn = Spawn::new(Tag::new(0, 0));
        for slot in 0..20_480 {
            assert_eq!(slab.allocate(&spawn), Ok(CoroutineRef::new(slot, 0)));
        }
        assert!(matches!(
            slab.allocate(&spawn),
            Err(Refusal::NotReserved { live: 20_480, capacity: 20_480 })
        ));
        slab.count_wait(20_479, BlockReason::ChannelReceive);
        assert!(
            slab.cold.iter().all(|piece| piece.is_empty()) && slab.children.is_empty(),
            "not needed"
        );

        slab.set_child(7, NIL);
        assert_eq!((slab.children.len(), slab.child(7)), (0, NIL));
        slab.set_child(7, 3);
        slab.set_child(20_479, 4);
        assert_eq!([7, 8, 20_479].map(|slot| slab.child(slot)), [3, NIL, 4]);
        slab.set_child(7, NIL);
        assert_eq!(slab.child(7), NIL);

        slab.cold_mut(9_000).steals = 1;
        let filled: Vec<usize> = slab.cold.iter().map(Room::len).collect();
        assert_eq!(
            (filled, *slab.cold(20_479)),
            (alloc::vec![0, 9_001 - COLD_PIECE, 0], Cold::EMPTY)
        );
        slab.free(9_000);
        assert_eq!(slab.allocate(&spawn), Ok(CoroutineRef::new(9_000, 1)));
        assert_eq!(slab.ledger(9_000), Ledger::default(), "a reused slot starts at zero");
        assert_eq!(room(&slab), before, "nothing was reallocated");
    }

    /// A state from a file may say that a wait began after the lane's clock, again and again.
    #[test]
    fn forged_waits_wrap_and_do_not_panic() {
        let mut slab = Slab::new();
        slab.reserve(1).expect("memory");
        let slot = slab.allocate(&Spawn::new(Tag::new(0, 0))).expect("room").slot;
        for _ in 0..3 {
            slab.hot_mut(slot).since = 1_000;
            slab.begin_slice(slot, 5, true);
            slab.book_wait(slot, 6);
        }
        assert_eq!(slab.ledger(slot).wait_longest, Cycles(6u64.wrapping_sub(1_000)));
    }

    /// Counters that start just below the capacity of the hot part, against sums of the test's own.
    #[test]
    fn counters_are_exact_over_the_overflow_of_the_hot_part() {
        let mut slab = Slab::new();
        slab.reserve(1).expect("memory");
        let slot = slab.allocate(&Spawn::new(Tag::new(0, 0))).expect("room").slot;
        let short = u64::from(u32::MAX);
        for (runtime, switches, longest, sleeps, blocks) in [
            (0, 0, 0, 0, 0),
            (short - 900, short - 3, short - 5, 250, 254),
            ((7 << 32) - 1, (1 << 33) - 1, short - 1, u32::MAX - 3, u32::MAX - 3),
            ((1 << 40) + 5, 1 << 40, (1 << 40) + 9, 70_000, 70_000),
        ] {
            let mut expected = Ledger {
                runtime: Cycles(runtime),
                switches,
                wait_longest: Cycles(longest),
                wait_total: Cycles(longest),
                sleeps,
                blocks: [blocks; BlockReason::COUNT],
                ..Ledger::default()
            };
            slab.set_ledger(slot, &expected);
            assert_eq!(slab.ledger(slot), expected);
            for step in 0..600u64 {
                let (used, wait) = (Cycles(step * 7_001), (longest + step / 100).saturating_sub(3));
                slab.charge(slot, used);
                expected.runtime += used;
                slab.hot_mut(slot).since = 100;
                let wait = if step % 3 == 0 { wait } else { 1 };
                let is_switch = step % 4 != 0;
                slab.begin_slice(slot, 100u64.wrapping_add(wait), is_switch);
                expected.switches += u64::from(is_switch);
                expected.wait_total += Cycles(wait);
                expected.wait_longest = expected.wait_longest.max(Cycles(wait));
                slab.count_sleep(slot);
                expected.sleeps = expected.sleeps.saturating_add(1);
                let reason =
                    if step < 300 { BlockReason::ChannelReceive } else { BlockReason::Select };
                slab.count_wait(slot, reason);
                let count = &mut expected.blocks[reason as usize];
                *count = count.saturating_add(1);
                assert_eq!(slab.ledger(slot), expected, "step {step}");
            }
        }
    }
}
