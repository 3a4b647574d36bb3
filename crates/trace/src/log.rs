//! The event log of one lane: the events of the current frame, encoded and hashed in blocks.
//!
//! Contract: a log belongs to the thread that runs its lane. Its bytes are those of [`EventWriter`]
//! for the same events in order; its hash is that of the bytes, wherever a block ends and whenever
//! it is hashed. A log that keeps bytes (for recording) holds them until the next frame; otherwise
//! they are dropped once they are hashed.
//!
//! Three writers over one encoder: [`LaneLog::event`] takes any event, [`LaneLog::step`] is the
//! event of a step, [`LaneLog::packed`] takes an event that was encoded before. Events go into a
//! block of fixed size with slack behind it, so a writer compares the end with one constant and
//! stores.
//!
//! Elsewhere: the vocabulary (`event`), the digest over lanes and frames (`digest`).

use crate::event::{Event, EventWriter, StopCode};
use crate::{Digest, digest::EMPTY};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use wavelock_abi::Cycles;

/// Bytes per hash update. BLAKE3 is a tree over chunks: hashing a whole subtree takes a fifth less
/// time than the same bytes starting inside a chunk.
const BLOCK: usize = 64 * 1024;
/// Slack after a block, so that an event of numbers that starts inside the block fits: a tag and
/// five numbers of at most ten bytes.
const SLACK: usize = 64;

/// One lane's events of the current frame, and their hash.
#[derive(Clone, Debug)]
pub struct LaneLog {
    /// The first `end` bytes are neither hashed nor moved to `kept` yet; the rest is garbage.
    block: Box<[u8; BLOCK + SLACK]>,
    /// At most the length of `block`.
    end: u32,
    /// The earlier bytes of this frame; only with `keep`.
    kept: Vec<u8>,
    /// How many of the kept bytes are hashed.
    hashed: usize,
    hasher: blake3::Hasher,
    /// Whether any bytes of this frame were hashed.
    is_hashing: bool,
    keep: bool,
    /// Buffer of the slow path.
    scratch: Vec<u8>,
}

impl LaneLog {
    /// An empty log; with `keep`, it holds all bytes of a frame until the next.
    #[must_use]
    pub fn new(keep: bool) -> Self {
        let block = alloc::vec![0; BLOCK + SLACK]
            .into_boxed_slice()
            .try_into()
            .expect("the length is that of the array");
        Self {
            block,
            end: 0,
            kept: Vec::new(),
            hashed: 0,
            hasher: blake3::Hasher::new(),
            is_hashing: false,
            keep,
            scratch: Vec::new(),
        }
    }

    /// The bytes of this frame, if the log keeps them.
    #[must_use]
    pub fn bytes(&mut self) -> &[u8] {
        self.keep_block();
        &self.kept
    }

    /// The bytes of this frame after [`LaneLog::finish_frame`], if the log keeps them.
    #[must_use]
    pub fn finished(&self) -> &[u8] {
        &self.kept
    }

    /// Whether it has no event of this frame.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.end == 0 && self.hashed == 0 && !self.is_hashing && self.kept.is_empty()
    }

    /// Whether it holds all bytes of a frame.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.keep
    }

    /// Drops the events of this frame, as if it began again.
    pub fn restart(&mut self) {
        self.begin_frame();
        self.hasher.reset();
        self.is_hashing = false;
    }

    /// Logs the start of a wave at this lane clock.
    pub fn wave(&mut self, clock: Cycles) {
        self.event(&Event::Wave { clock: clock.0 });
    }

    /// Logs a step. At most twelve bytes for a plain yield.
    #[inline(always)]
    pub fn step(
        &mut self,
        session: u32,
        slot: u32,
        overhead: Cycles,
        used: Cycles,
        stop: StopCode,
    ) {
        self.event(&Event::Step {
            session: u64::from(session),
            slot: u64::from(slot),
            overhead: overhead.0,
            used: used.0,
            stop,
        });
    }

    /// Logs any event. Inlined, so that a caller with a constant kind gets the code for that kind
    /// only.
    ///
    /// Fast path: a packed event is one store of eight bytes, whatever its length; the next event
    /// overwrites the excess.
    #[inline(always)]
    pub fn event(&mut self, event: &Event<'_>) {
        if let Some(packed) = Packed::of(event) {
            return self.packed(packed);
        }
        // A copy, so that the event itself stays in registers on the fast path.
        let event = *event;
        self.append(&event);
    }

    /// An event that was packed before: for one that is written often and never changes.
    #[inline(always)]
    pub fn packed(&mut self, Packed(word): Packed) {
        let end = self.end as usize;
        if end <= BLOCK
            && let Some(room) = self.block.get_mut(end..end + 8)
        {
            // The length in the highest byte is beyond the event, so the next one overwrites it.
            room.copy_from_slice(&word.get().to_le_bytes());
            self.end += (word.get() >> 56) as u32;
        } else {
            self.append_packed(Packed(word));
        }
    }

    #[cold]
    #[inline(never)]
    fn append_packed(&mut self, Packed(word): Packed) {
        let bytes = word.get().to_le_bytes();
        self.append_bytes(&bytes[..usize::from(bytes[7])]);
    }

    /// Slow path of [`LaneLog::event`]: a longer event, or no room.
    #[cold]
    #[inline(never)]
    fn append(&mut self, event: &Event<'_>) {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        EventWriter(&mut scratch).event(event);
        self.append_bytes(&scratch);
        self.scratch = scratch;
    }

    /// Appends bytes, and hashes or keeps each full block.
    fn append_bytes(&mut self, mut bytes: &[u8]) {
        loop {
            if self.end as usize > BLOCK {
                self.hash(BLOCK);
            }
            let end = self.end as usize;
            // One byte more than a block: a full block is hashed at the top of the loop.
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK + 1 - end));
            self.block[end..end + now.len()].copy_from_slice(now);
            self.end += now.len() as u32;
            bytes = later;
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Moves the block's bytes to `kept`, if the log keeps bytes.
    fn keep_block(&mut self) {
        if self.keep {
            self.kept.extend_from_slice(&self.block[..self.end as usize]);
            self.end = 0;
        }
    }

    /// Hashes pending bytes in whole parts of `part` bytes; all of them if `part` is 0. Workers
    /// call it at the end of a wave, so that little is left for the end of the frame, when one
    /// thread finishes all lanes.
    pub fn hash(&mut self, part: usize) {
        self.keep_block();
        let end = self.end as usize;
        let bytes = if self.keep { &self.kept[self.hashed..] } else { &self.block[..end] };
        let whole = bytes.len() - bytes.len().checked_rem(part).unwrap_or(0);
        if whole == 0 {
            return;
        }
        self.hasher.update(&bytes[..whole]);
        self.is_hashing = true;
        if self.keep {
            self.hashed += whole;
        } else {
            self.block.copy_within(whole..end, 0);
            self.end -= whole as u32;
        }
    }

    /// Ends the frame and returns the hash of its events. Kept bytes stay until
    /// [`LaneLog::begin_frame`].
    #[must_use]
    pub fn finish_frame(&mut self) -> Digest {
        self.hash(0);
        if !self.is_hashing {
            return EMPTY;
        }
        let digest = Digest(*self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.is_hashing = false;
        digest
    }

    /// Starts the next frame, without events.
    pub fn begin_frame(&mut self) {
        self.end = 0;
        self.hashed = 0;
        self.kept.clear();
    }
}

/// An encoded event of at most seven bytes, and its length in the highest byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed(NonZeroU64);

impl Packed {
    /// Fast path of [`EventWriter::event`], for events of frequent kinds that fit seven bytes: all
    /// numbers but one take one byte each, and that one (a slot, a channel, a number of frames) at
    /// most three.
    #[inline(always)]
    #[must_use]
    pub fn of(event: &Event<'_>) -> Option<Self> {
        if cfg!(feature = "plain") {
            return None;
        }
        let tag = event.tag();
        match *event {
            Event::Step { session, slot, overhead, used, .. } => {
                Self::new(tag, [session], slot, [overhead, used])
            }
            Event::Send { owner, index } | Event::Receive { owner, index } => {
                Self::new(tag, [owner], index, [])
            }
            Event::Wake { session, slot, source } => Self::new(tag, [session], slot, [source]),
            Event::Wait { reason, owner, index } => Self::new(tag, [reason, owner], index, []),
            Event::Spawn { session, slot, generation, lane } => {
                Self::new(tag, [session], slot, [generation, lane])
            }
            Event::End { session, slot, status, value } => {
                Self::new(tag, [session], slot, [status, value])
            }
            Event::Sleep { frames } => Self::new(tag, [], frames, []),
            _ => None,
        }
    }

    /// Packs a tag, one-byte numbers, a number of up to three bytes, and one-byte numbers; `None`
    /// if one is longer.
    #[inline(always)]
    fn new<const HEAD: usize, const TAIL: usize>(
        tag: u8,
        head: [u64; HEAD],
        wide: u64,
        tail: [u64; TAIL],
    ) -> Option<Self> {
        const { assert!(HEAD + TAIL <= 3) };
        let (mut all, mut before, mut after) = (0, 0, 0);
        for (at, number) in head.into_iter().enumerate() {
            all |= number;
            before |= number << (8 * at);
        }
        for (at, number) in tail.into_iter().enumerate() {
            all |= number;
            after |= number << (8 * at);
        }
        if all >= 0x80 {
            return None;
        }
        let start = 8 + 8 * HEAD as u32;
        let word = |encoded: u64, bits: u32| {
            let length = u64::from((start + bits) / 8) + TAIL as u64;
            let word = u64::from(tag) | before << 8 | encoded << start | after << (start + bits);
            NonZeroU64::new(word | length << 56).map(Self)
        };
        match wide {
            0..0x80 => word(wide, 8),
            0x80..0x4000 => word(0x80 | wide & 0x7f | wide >> 7 << 8, 16),
            0x4000..0x20_0000 => {
                word(0x8080 | wide & 0x7f | (wide >> 7 & 0x7f) << 8 | wide >> 14 << 16, 24)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 14] = [
        0,
        1,
        127,
        128,
        129,
        300,
        16_383,
        16_384,
        77_777,
        (1 << 21) - 1,
        1 << 21,
        (1 << 21) + 1,
        u32::MAX as u64,
        u64::MAX,
    ];

    /// Events of every kind that can be packed, and of two that cannot, with `value` in each field.
    fn events(value: u64) -> Vec<Event<'static>> {
        let step = |session, slot, overhead, used, stop| Event::Step {
            session,
            slot,
            overhead,
            used,
            stop,
        };
        let mut events = alloc::vec![
            Event::Send { owner: value, index: 3 },
            Event::Send { owner: 127, index: value },
            Event::Receive { owner: value, index: 127 },
            Event::Receive { owner: 3, index: value },
            Event::Wake { session: value, slot: 5, source: 1 },
            Event::Wake { session: 127, slot: value, source: 127 },
            Event::Wake { session: 1, slot: 2, source: value },
            Event::Wait { reason: value, owner: 1, index: 9 },
            Event::Wait { reason: 1, owner: value, index: 9 },
            Event::Wait { reason: 127, owner: 127, index: value },
            Event::Spawn { session: value, slot: 1, generation: 2, lane: 3 },
            Event::Spawn { session: 127, slot: value, generation: 127, lane: 127 },
            Event::Spawn { session: 1, slot: 2, generation: value, lane: 3 },
            Event::Spawn { session: 1, slot: 2, generation: 3, lane: value },
            Event::End { session: value, slot: 1, status: 2, value: 3 },
            Event::End { session: 127, slot: value, status: 127, value: 127 },
            Event::End { session: 1, slot: 2, status: value, value: 3 },
            Event::End { session: 1, slot: 2, status: 3, value },
            Event::Sleep { frames: value },
            Event::Wave { clock: value },
            Event::Close { owner: value, index: 1 },
        ];
        for &stop in StopCode::ALL {
            events.extend([
                step(value, 1, 2, 3, stop),
                step(127, value, 127, 127, stop),
                step(1, 2, value, 3, stop),
                step(1, 2, 3, value, stop),
                step(value, value, value, value, stop),
            ]);
        }
        events
    }

    #[test]
    fn packed_events_equal_the_encoder() {
        let mut packed_events = 0;
        for event in NUMBERS.into_iter().flat_map(events) {
            let (mut log, mut bytes) = (LaneLog::new(true), Vec::new());
            log.event(&event);
            EventWriter(&mut bytes).event(&event);
            assert_eq!(log.bytes(), bytes, "{event:?}");
            if let Event::Step { session, slot, overhead, used, stop } = event
                && let (Ok(session), Ok(slot)) = (session.try_into(), slot.try_into())
            {
                let mut log = LaneLog::new(true);
                log.step(session, slot, Cycles(overhead), Cycles(used), stop);
                assert_eq!(log.bytes(), bytes, "{event:?}");
            }
            packed_events += u32::from(Packed::of(&event).is_some());
        }
        assert!(packed_events > 400 || cfg!(feature = "plain"), "{packed_events}");
    }

    fn hash_of(keep: bool, steps: u32) -> Digest {
        let mut log = LaneLog::new(keep);
        for slot in 0..steps {
            log.step(1, slot, Cycles(36), Cycles(100), StopCode::Yielded);
        }
        log.finish_frame()
    }

    #[test]
    fn keeping_bytes_does_not_change_the_hash() {
        for steps in [0, 1, 1_000, 50_000] {
            assert_eq!(hash_of(true, steps), hash_of(false, steps));
        }
        assert_ne!(hash_of(true, 1), hash_of(true, 2));
    }

    #[test]
    fn hashing_early_does_not_change_the_hash() {
        for keep in [false, true] {
            let mut log = LaneLog::new(keep);
            for slot in 0..1_000 {
                log.step(1, slot, Cycles(36), Cycles(100), StopCode::Yielded);
                log.hash(if slot % 2 == 0 { 0 } else { 700 });
            }
            assert_eq!(log.finish_frame(), hash_of(keep, 1_000));
        }
    }

    fn write(log: &mut LaneLog, bytes: &mut Vec<u8>, event: Event<'_>) {
        log.event(&event);
        EventWriter(bytes).event(&event);
    }

    /// Events of every length, so that a block and its slack end inside each of them.
    #[test]
    fn block_boundaries_do_not_change_bytes_or_hash() {
        let long = alloc::vec![7u8; 3 * BLOCK];
        let output = |session, length| Event::Output { session, bytes: &long[..length] };
        for keep in [false, true] {
            for shift in 0..160 {
                let (mut log, mut bytes) = (LaneLog::new(keep), Vec::new());
                write(&mut log, &mut bytes, output(0, BLOCK - 2 * SLACK + shift));
                for value in 0..200u64 {
                    let wake = Event::Wake { session: value, slot: value << 7, source: 1 };
                    let send = Event::Send { owner: 1, index: value };
                    write(&mut log, &mut bytes, wake);
                    write(&mut log, &mut bytes, Event::Sleep { frames: value });
                    write(&mut log, &mut bytes, send);
                    write(&mut log, &mut bytes, send);
                    write(&mut log, &mut bytes, output(1, value as usize % 5));
                }
                write(&mut log, &mut bytes, output(0, long.len()));
                write(&mut log, &mut bytes, Event::Sleep { frames: 1 });
                if keep {
                    assert_eq!(log.bytes(), bytes);
                }
                assert_eq!(log.finish_frame(), Digest::of(&bytes), "shift {shift}");
            }
        }
    }

    #[test]
    fn frames_do_not_leak_into_each_other() {
        let mut log = LaneLog::new(false);
        log.step(1, 1, Cycles(0), Cycles(1), StopCode::Yielded);
        let first = log.finish_frame();
        log.begin_frame();
        assert_eq!(log.finish_frame(), EMPTY);
        log.begin_frame();
        log.step(1, 1, Cycles(0), Cycles(1), StopCode::Yielded);
        assert_eq!(log.finish_frame(), first);
    }
}
