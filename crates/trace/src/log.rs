//! What one lane writes while it runs: its events of this frame, hashed in bulk.
//!
//! Contract: whoever runs the lane owns the log, so nothing here is shared. Bytes go to the hash in blocks of about [`BLOCK`], so
//! that an event costs its encoding and a fraction of a nanosecond a byte. With `keep` the bytes stay until the frame is
//! taken (recording); without it they are dropped as soon as they are hashed.
//!
//! Events are written into a block of fixed size, with room behind it, and the usual event is put there whole, with what it does not need behind its end: one store and
//! one addition. Where the block is full, it is hashed or kept; so nothing else is looked at per event, and that is one comparison with a constant.

use crate::event::{Event, EventWriter, STEP_TAG, StopCode};
use crate::{Digest, digest::EMPTY};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::Cycles;

/// How many bytes are hashed at once: always so many while a wave runs, because the hash is a tree of chunks, and a whole branch of it takes a fifth less than one
/// that begins inside a chunk.
const BLOCK: usize = 64 * 1024;
/// Room behind a block, so that an event that begins in the block fits.
const SLACK: usize = 64;

/// One lane's events of the current frame, and their hash.
#[derive(Clone, Debug)]
pub struct LaneLog {
    /// What was written last: first `end` bytes, neither hashed nor kept yet; then room, whose contents mean nothing.
    block: Box<[u8; BLOCK + SLACK]>,
    /// At most the length of `block`. Half a word, so that a position behind it needs no look for an overflow.
    end: u32,
    /// What was written before, in this frame; only with `keep`.
    kept: Vec<u8>,
    /// How many of the kept bytes are hashed already.
    hashed: usize,
    hasher: blake3::Hasher,
    /// Whether `hasher` has seen anything in this frame.
    begun: bool,
    keep: bool,
    /// Where events of any length are encoded first.
    scratch: Vec<u8>,
}

impl LaneLog {
    /// An empty log; `keep` holds every byte of a frame until it is taken.
    #[must_use]
    pub fn new(keep: bool) -> Self {
        let block = alloc::vec![0; BLOCK + SLACK].into_boxed_slice().try_into().expect("it has this length");
        Self { block, end: 0, kept: Vec::new(), hashed: 0, hasher: blake3::Hasher::new(), begun: false, keep, scratch: Vec::new() }
    }

    /// Whether bytes are kept for a recorder.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.keep
    }

    /// The bytes of this frame, if the log keeps them.
    #[must_use]
    pub fn bytes(&mut self) -> &[u8] {
        self.gather();
        &self.kept
    }

    /// The bytes of a frame that is finished, if the log keeps them.
    #[must_use]
    pub fn finished(&self) -> &[u8] {
        &self.kept
    }

    /// Puts what was written last to what is kept.
    fn gather(&mut self) {
        if self.keep {
            self.kept.extend_from_slice(&self.block[..self.end as usize]);
            self.end = 0;
        }
    }

    /// A wave begins at this lane clock.
    pub fn wave(&mut self, clock: Cycles) {
        self.event(&Event::Wave { clock: clock.0 });
    }

    /// Where the next byte goes, and the `SIZE` bytes from there on, unless the block is full.
    #[inline(always)]
    fn room<const SIZE: usize>(&mut self) -> Option<(u32, &mut [u8; SIZE])> {
        const { assert!(SIZE <= SLACK) };
        let end = self.end as usize;
        if end > BLOCK {
            return None;
        }
        Some((self.end, self.block.get_mut(end..end + SIZE)?.try_into().ok()?))
    }

    /// One step, if it is short: at most eight bytes, as nearly all are. `false` if it is not or there is no room, and nothing is written.
    #[inline(always)]
    #[must_use]
    pub fn short_step(&mut self, session: u32, slot: u32, overhead: Cycles, used: Cycles, stop: StopCode) -> bool {
        let Some((word, length)) = step_word(u64::from(session), u64::from(slot), overhead.0, used.0, stop) else { return false };
        let Some((end, room)) = self.room::<8>() else { return false };
        room.copy_from_slice(&word.to_le_bytes());
        self.end = end + length as u32;
        true
    }

    /// One step. At most twelve bytes for a plain yield.
    #[inline]
    pub fn step(&mut self, session: u32, slot: u32, overhead: Cycles, used: Cycles, stop: StopCode) {
        if !self.short_step(session, slot, overhead, used, stop) {
            self.long_step(session, slot, overhead, used, stop);
        }
    }

    /// The step in which a coroutine finishes, and its end with this value.
    #[inline(always)]
    pub fn finish(&mut self, session: u32, slot: u32, overhead: Cycles, used: Cycles, value: u64) {
        let (session, slot) = (u64::from(session), u64::from(slot));
        // The slot is put together once for both.
        if session | overhead.0 | used.0 | value < 0x80
            && let Some((low, bits)) = spread(slot)
            && let Some((at, room)) = self.room::<16>()
        {
            let head = session << 8 | low << 16;
            let step = u64::from(STEP_TAG | StopCode::Finished as u8) | head | (overhead.0 | used.0 << 8) << (16 + bits);
            let end = u64::from(Event::End { session, slot, status: 0, value }.tag()) | head | (value << 8) << (16 + bits);
            let length = (bits >> 3) as usize + 4;
            room[..8].copy_from_slice(&step.to_le_bytes());
            room[length..length + 8].copy_from_slice(&end.to_le_bytes());
            self.end = at + 2 * length as u32;
            return;
        }
        self.long_finish(session, slot, overhead.0, used.0, value);
    }

    #[cold]
    #[inline(never)]
    fn long_finish(&mut self, session: u64, slot: u64, overhead: u64, used: u64, value: u64) {
        self.event(&Event::Step { session, slot, overhead, used, stop: StopCode::Finished });
        self.event(&Event::End { session, slot, status: 0, value });
    }

    /// One event, where it is known and most often small.
    #[inline(always)]
    pub fn usual(&mut self, event: &Event<'_>) {
        match word(event) {
            Some((word, length)) => self.put(word.to_le_bytes(), length),
            None => {
                let event = *event;
                self.unusual(&event);
            }
        }
    }

    /// One event that is in a word already, and not none: `false` if there is no room for it; then nothing is written.
    #[inline(always)]
    #[must_use]
    pub fn packed(&mut self, event: Packed) -> bool {
        debug_assert!(event != Packed::NONE);
        let Some((end, room)) = self.room::<8>() else { return false };
        room.copy_from_slice(&event.0.to_le_bytes());
        self.end = end + event.length() as u32;
        true
    }

    /// Two events that are put together already, with one look for room: `false` as above.
    #[inline(always)]
    #[must_use]
    pub fn packed_two(&mut self, events: PackedTwo) -> bool {
        debug_assert!(events != PackedTwo::NONE);
        let Some((end, room)) = self.room::<16>() else { return false };
        let PackedTwo([first, second]) = events;
        room[..8].copy_from_slice(&first.to_le_bytes());
        room[8..].copy_from_slice(&second.to_le_bytes());
        self.end = end + events.length() as u32;
        true
    }

    /// The last two events, which [`LaneLog::packed_two`] has just written, did not happen.
    #[cold]
    pub fn take_back(&mut self, events: PackedTwo) {
        self.end -= events.length() as u32;
    }

    #[cold]
    #[inline(never)]
    fn unusual(&mut self, event: &Event<'_>) {
        self.event(event);
    }

    /// Two events, one after the other, where they are known and most often small: one look for room.
    #[inline(always)]
    pub fn two(&mut self, first: &Event<'_>, second: &Event<'_>) {
        // One question after the other, so that each is a branch and none an answer that is kept.
        if let Some((one, length)) = word(first)
            && let Some((other, more)) = word(second)
            && let Some((at, room)) = self.room::<16>()
        {
            room[..8].copy_from_slice(&one.to_le_bytes());
            room[length..length + 8].copy_from_slice(&other.to_le_bytes());
            self.end = at + (length + more) as u32;
            return;
        }
        // Copies, so that the events themselves are never in memory on the way above.
        let (first, second) = (*first, *second);
        self.one_by_one(&first, &second);
    }

    #[cold]
    #[inline(never)]
    fn one_by_one(&mut self, first: &Event<'_>, second: &Event<'_>) {
        self.event(first);
        self.event(second);
    }

    /// Puts the first `length` of these bytes at the end. The rest may be written too, and means nothing.
    #[inline(always)]
    fn put<const SIZE: usize>(&mut self, bytes: [u8; SIZE], length: usize) {
        match self.room::<SIZE>() {
            Some((end, room)) => {
                *room = bytes;
                self.end = end + length as u32;
            }
            None => self.put_word_slowly(bytes, length),
        }
    }

    /// [`Self::put_slowly`] by value, so that bytes for which there is room never leave their register.
    #[cold]
    #[inline(never)]
    fn put_word_slowly<const SIZE: usize>(&mut self, bytes: [u8; SIZE], length: usize) {
        self.put_slowly(&bytes[..length]);
    }

    /// Puts bytes at the end where there is no room for them: what is there is hashed or kept first.
    #[cold]
    #[inline(never)]
    fn put_slowly(&mut self, bytes: &[u8]) {
        if self.keep {
            self.gather();
            self.kept.extend_from_slice(bytes);
            return self.settle(BLOCK);
        }
        self.settle(BLOCK);
        let mut rest = bytes;
        while self.end as usize + rest.len() >= BLOCK {
            let (now, later) = rest.split_at(BLOCK - self.end as usize);
            self.block[self.end as usize..BLOCK].copy_from_slice(now);
            (self.end, rest) = (BLOCK as u32, later);
            self.settle(BLOCK);
        }
        self.block[self.end as usize..][..rest.len()].copy_from_slice(rest);
        self.end += rest.len() as u32;
    }

    /// A step of any size: five fields of at most 1, 5, 5, 10 and 10 bytes. Cold, so that the usual step does not keep registers free for the call.
    #[cold]
    #[inline(never)]
    fn long_step(&mut self, session: u32, slot: u32, overhead: Cycles, used: Cycles, stop: StopCode) {
        let mut bytes = [0u8; 32];
        bytes[0] = STEP_TAG | stop as u8;
        let mut length = put(&mut bytes, 1, u64::from(session));
        length = put(&mut bytes, length, u64::from(slot));
        length = put(&mut bytes, length, overhead.0);
        length = put(&mut bytes, length, used.0);
        self.put(bytes, length);
    }

    /// Any event of this lane. Inlined, so that where the event is known only its own way is left.
    #[inline(always)]
    pub fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::Send { owner, index } | Event::Receive { owner, index } => self.short(event.tag(), [owner, index]),
            Event::Wake { session, slot, source } => self.slotted(event.tag(), session, slot, [source]),
            Event::Wait { reason, owner, index } => self.short(event.tag(), [reason, owner, index]),
            Event::Spawn { session, slot, generation, lane } => self.slotted(event.tag(), session, slot, [generation, lane]),
            Event::End { session, slot, status, value } => self.slotted(event.tag(), session, slot, [status, value]),
            // Two bytes for the frames are usual too.
            Event::Sleep { frames } if (0x80..0x4000).contains(&frames) => {
                let word = u32::from(event.tag()) | (frames as u32 & 0x7f | 0x80) << 8 | (frames as u32 >> 7) << 16;
                self.put(word.to_le_bytes(), 3);
            }
            Event::Sleep { frames } => self.short(event.tag(), [frames]),
            Event::Wave { clock } => self.short(event.tag(), [clock]),
            _ => self.long(event),
        }
    }

    /// An event of at most four numbers; most often every number is one byte.
    #[inline]
    fn short<const N: usize>(&mut self, tag: u8, numbers: [u64; N]) {
        const { assert!(N <= 4) };
        if numbers.iter().fold(0, |all, number| all | number) < 0x80 {
            let all = numbers.iter().rev().fold(0, |all, number| all << 8 | number) << 8 | u64::from(tag);
            self.put(all.to_le_bytes(), 1 + N);
        } else {
            let mut bytes = [0u8; 48];
            bytes[0] = tag;
            let length = numbers.iter().fold(1, |at, &number| put(&mut bytes, at, number));
            self.put(bytes, length);
        }
    }

    /// An event of a coroutine and of at most two numbers more; most often all but the slot are one byte.
    #[inline(always)]
    fn slotted<const N: usize>(&mut self, tag: u8, session: u64, slot: u64, numbers: [u64; N]) {
        const { assert!(N <= 2) };
        if numbers.iter().fold(session, |all, number| all | number) < 0x80 {
            let tail = numbers.iter().rev().fold(0, |all, number| all << 8 | number);
            if let Some((word, length)) = around(u64::from(tag) | session << 8, 2, slot, tail, N) {
                return self.put(word.to_le_bytes(), length);
            }
        }
        self.long_slotted(tag, session, slot, numbers);
    }

    #[inline(never)]
    fn long_slotted<const N: usize>(&mut self, tag: u8, session: u64, slot: u64, numbers: [u64; N]) {
        let mut bytes = [0u8; 48];
        bytes[0] = tag;
        let at = put(&mut bytes, 1, session);
        let at = put(&mut bytes, at, slot);
        let length = numbers.iter().fold(at, |at, &number| put(&mut bytes, at, number));
        self.put(bytes, length);
    }

    #[inline(never)]
    fn long(&mut self, event: &Event<'_>) {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        EventWriter(&mut scratch).event(event);
        let end = self.end as usize;
        match self.block.get_mut(end..end + scratch.len()) {
            Some(room) => {
                room.copy_from_slice(&scratch);
                self.end += scratch.len() as u32;
            }
            None => self.put_slowly(&scratch),
        }
        self.scratch = scratch;
    }

    /// Hashes what has gathered, in whole parts of so many bytes; all of it if `part` is 0. Whoever runs the lane does it at a wave's end, so that little is left for
    /// the frame's end, when one thread finishes all lanes.
    pub fn settle(&mut self, part: usize) {
        self.gather();
        let end = self.end as usize;
        let gathered = if self.keep { &self.kept[self.hashed..] } else { &self.block[..end] };
        let whole = gathered.len() - gathered.len().checked_rem(part).unwrap_or(0);
        if whole == 0 {
            return;
        }
        self.hasher.update(&gathered[..whole]);
        self.begun = true;
        if self.keep {
            self.hashed += whole;
        } else {
            self.block.copy_within(whole..end, 0);
            self.end -= whole as u32;
        }
    }

    /// Ends the frame: the hash of its events. Bytes that are kept stay until [`LaneLog::begin_frame`].
    #[must_use]
    pub fn finish_frame(&mut self) -> Digest {
        self.settle(0);
        if !self.begun {
            return EMPTY;
        }
        let digest = Digest(*self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.begun = false;
        digest
    }

    /// Begins the next frame with nothing in it.
    pub fn begin_frame(&mut self) {
        self.end = 0;
        self.hashed = 0;
        self.kept.clear();
    }
}

/// An event of at most seven bytes in a word, with its length in the highest byte: for events that are written again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed(u64);

impl Packed {
    /// No event.
    pub const NONE: Self = Self(0);

    /// A message is sent to a channel; none if that is longer than a word.
    #[must_use]
    pub fn send(owner: u32, index: u32) -> Self {
        match word(&Event::Send { owner: owner.into(), index: index.into() }) {
            Some((word, length)) => Self(word | (length as u64) << 56),
            None => Self::NONE,
        }
    }

    /// A message is received from the channel that [`Packed::send`] was of, which is not none.
    #[inline(always)]
    #[must_use]
    pub const fn receive(self) -> Self {
        const OTHER: u64 = (Event::Send { owner: 0, index: 0 }.tag() ^ Event::Receive { owner: 0, index: 0 }.tag()) as u64;
        debug_assert!(self.0 != 0);
        Self(self.0 ^ OTHER)
    }

    /// Somebody waits for this reason at the channel that [`Packed::send`] was of: one number more than a send, before the same two.
    #[must_use]
    pub const fn wait(self, reason: u8) -> Self {
        const WAIT: u64 = Event::Wait { reason: 0, owner: 0, index: 0 }.tag() as u64;
        const LENGTH: u64 = 0xff << 56;
        if self.0 == 0 || reason >= 0x80 || self.length() > 6 {
            return Self::NONE;
        }
        Self(WAIT | (reason as u64) << 8 | (self.0 & !LENGTH & !0xff) << 8 | ((self.0 & LENGTH) + (1 << 56)))
    }

    /// A coroutine is woken by this source; none if that is longer than a word.
    #[must_use]
    pub fn wake(session: u32, slot: u32, source: u8) -> Self {
        match word(&Event::Wake { session: session.into(), slot: slot.into(), source: source.into() }) {
            Some((word, length)) => Self(word | (length as u64) << 56),
            None => Self::NONE,
        }
    }

    /// This event and another behind it; none if one of them is.
    #[must_use]
    pub const fn then(self, other: Self) -> PackedTwo {
        const EVENT: u64 = u64::MAX >> 8;
        if self.0 == 0 || other.0 == 0 {
            return PackedTwo::NONE;
        }
        let length = self.length() + other.length();
        let both = (self.0 & EVENT) as u128 | ((other.0 & EVENT) as u128) << (8 * self.length()) | (length as u128) << 120;
        PackedTwo([both as u64, (both >> 64) as u64])
    }

    #[inline(always)]
    const fn length(self) -> usize {
        (self.0 >> 56) as usize
    }
}

/// Two events of at most fourteen bytes, one behind the other, with the length of both in the highest byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedTwo([u64; 2]);

impl PackedTwo {
    /// No events.
    pub const NONE: Self = Self([0; 2]);

    #[inline(always)]
    const fn length(self) -> usize {
        (self.0[1] >> 56) as usize
    }
}

/// A usual event in a word, with its length: numbers of one byte, but for the slot or channel, which has up to three.
#[inline(always)]
fn word(event: &Event<'_>) -> Option<(u64, usize)> {
    let tag = u64::from(event.tag());
    match *event {
        Event::Send { owner, index } | Event::Receive { owner, index } if owner < 0x80 => around(tag | owner << 8, 2, index, 0, 0),
        Event::Wake { session, slot, source } if session | source < 0x80 => around(tag | session << 8, 2, slot, source, 1),
        Event::Wait { reason, owner, index } if reason | owner < 0x80 => around(tag | reason << 8 | owner << 16, 3, index, 0, 0),
        Event::Step { session, slot, overhead, used, stop } => step_word(session, slot, overhead, used, stop),
        _ => None,
    }
}

/// [`word`] of a step.
#[inline(always)]
fn step_word(session: u64, slot: u64, overhead: u64, used: u64, stop: StopCode) -> Option<(u64, usize)> {
    if session | overhead | used >= 0x80 {
        return None;
    }
    around(u64::from(STEP_TAG | stop as u8) | session << 8, 2, slot, overhead | used << 8, 2)
}

/// Puts a number of at most three bytes between what goes before and behind it, in so many bytes: in all at most eight, put together in a register. Gives the
/// word and its length. Adding a part to itself moves it up by a bit.
#[inline(always)]
fn around(head: u64, before: usize, number: u64, tail: u64, behind: usize) -> Option<(u64, usize)> {
    let at = 8 * before;
    let low = number << at;
    let part = |place: usize| low & 0x7f << (at + 7 * place);
    if number < 0x80 {
        Some((head | low | tail << (at + 8), before + 1 + behind))
    } else if number < 1 << 14 {
        Some((head | 0x80 << at | (low + part(1)) | tail << (at + 16), before + 2 + behind))
    } else if number < 1 << 21 {
        Some((head | 0x8080 << at | part(0) | part(1) << 1 | part(2) << 2 | tail << (at + 24), before + 3 + behind))
    } else {
        None
    }
}

/// A number of at most three bytes as the event writer writes it, and how many bits that is.
#[inline(always)]
fn spread(number: u64) -> Option<(u64, u32)> {
    if number < 0x80 {
        Some((number, 8))
    } else if number < 1 << 14 {
        Some((number & 0x7f | 0x80 | (number >> 7) << 8, 16))
    } else if number < 1 << 21 {
        Some((number & 0x7f | 0x8080 | (number >> 7 & 0x7f) << 8 | (number >> 14) << 16, 24))
    } else {
        None
    }
}

/// Writes a number as the event writer does, at `at`; gives where the next goes. One and two bytes, nearly all there are, without a loop.
#[inline]
fn put<const SIZE: usize>(bytes: &mut [u8; SIZE], at: usize, value: u64) -> usize {
    if value < 0x80 {
        bytes[at] = value as u8;
        return at + 1;
    }
    if value < 0x4000 {
        bytes[at] = value as u8 | 0x80;
        bytes[at + 1] = (value >> 7) as u8;
        return at + 2;
    }
    let (mut at, mut value) = (at, value);
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        at += 1;
        value >>= 7;
    }
    bytes[at] = value as u8;
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(keep: bool, steps: u32) -> Digest {
        let mut log = LaneLog::new(keep);
        for slot in 0..steps {
            log.step(1, slot, Cycles(36), Cycles(100), StopCode::Yielded);
        }
        log.finish_frame()
    }

    /// What is put together beforehand is what the events by themselves are; where there is no word for it, none is made; what is taken back was never written.
    #[test]
    fn packed_events_are_the_events() {
        const NUMBERS: [u32; 11] = [0, 1, 127, 128, 129, 16_383, 16_384, 77_777, (1 << 21) - 1, 1 << 21, u32::MAX];
        let mut both = 0;
        for (owner, index) in NUMBERS.iter().flat_map(|&owner| NUMBERS.map(|index| (owner, index))) {
            let send = Packed::send(owner, index);
            assert_eq!(send == Packed::NONE, owner >= 128 || index >= 1 << 21);
            assert_eq!(send.wait(1) == Packed::NONE, send == Packed::NONE);
            for slot in NUMBERS {
                let (own, index, slot64) = (u64::from(owner), u64::from(index), u64::from(slot));
                let wake = Packed::wake(owner, slot, 3);
                assert_eq!(wake == Packed::NONE, owner >= 128 || slot >= 1 << 21);
                let mut log = LaneLog::new(true);
                // Room, so that there is a choice.
                log.event(&Event::Wave { clock: 1 });
                let mut bytes = log.bytes().to_vec();
                let wait = Event::Wait { reason: 1, owner: own, index };
                let received = if send == Packed::NONE { send } else { send.receive() };
                let events =
                    [(send, Event::Send { owner: own, index }), (received, Event::Receive { owner: own, index }), (send.wait(1), wait)];
                for (packed, event) in events.into_iter().filter(|(packed, _)| *packed != Packed::NONE) {
                    assert!(log.packed(packed));
                    EventWriter(&mut bytes).event(&event);
                }
                for is_kept in [false, true, false] {
                    let handed = send.then(wake);
                    assert_eq!(handed == PackedTwo::NONE, send == Packed::NONE || wake == Packed::NONE);
                    if handed == PackedTwo::NONE {
                        continue;
                    }
                    assert!(log.packed_two(handed));
                    if is_kept {
                        EventWriter(&mut bytes).event(&Event::Send { owner: own, index });
                        EventWriter(&mut bytes).event(&Event::Wake { session: own, slot: slot64, source: 3 });
                        both += 1;
                    } else {
                        log.take_back(handed);
                    }
                }
                assert_eq!(log.bytes(), bytes, "channel {owner}/{index}, slot {slot}");
            }
        }
        assert_eq!(both, 3 * 9 * 9, "every channel and slot that a word holds");
        let mut log = LaneLog::new(true);
        let send = Packed::send(1, 1);
        while log.packed_two(send.then(send)) {}
        let end = log.end as usize;
        assert!(end > BLOCK && !log.packed(send) && log.end as usize == end && log.bytes().len() == end, "without room nothing is written");
    }

    #[test]
    fn the_short_way_writes_what_the_event_writer_writes() {
        let mut steps = alloc::vec![(0, 0, 0, 0), (127, 128, 129, 16_384), (u32::MAX, u32::MAX, u64::MAX, u64::MAX)];
        for slot in [0, 1, 127, 128, 129, 16_383, 16_384, 16_385, 77_777, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, u32::MAX] {
            steps.extend([(0, slot, 0, 0), (127, slot, 127, 127), (128, slot, 1, 2), (3, slot, 128, 4), (5, slot, 6, 128)]);
        }
        for (session, slot, overhead, used) in steps {
            for &stop in StopCode::ALL {
                let mut log = LaneLog::new(true);
                log.step(session, slot, Cycles(overhead), Cycles(used), stop);
                let mut bytes = Vec::new();
                EventWriter(&mut bytes).event(&Event::Step { session: session.into(), slot: slot.into(), overhead, used, stop });
                assert_eq!(log.bytes(), bytes);
            }
        }
    }

    #[test]
    fn short_events_are_what_the_event_writer_writes() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let events = [
                Event::Send { owner: value, index: 3 },
                Event::Receive { owner: 3, index: value },
                Event::Wake { session: value, slot: 5, source: 1 },
                Event::Wait { reason: 1, owner: value, index: value },
                Event::Spawn { session: 1, slot: value, generation: 2, lane: value },
                Event::End { session: value, slot: value, status: value, value },
                Event::Sleep { frames: value },
                Event::Wave { clock: value },
                Event::Close { owner: value, index: 1 },
            ];
            for event in events {
                let mut log = LaneLog::new(true);
                log.event(&event);
                let mut bytes = Vec::new();
                EventWriter(&mut bytes).event(&event);
                assert_eq!(log.bytes(), bytes, "{event:?}");
            }
        }
    }

    #[test]
    fn usual_events_by_one_and_by_two_are_what_the_event_writer_writes() {
        let values = [0, 1, 127, 128, 300, 16_383, 16_384, 77_777, (1 << 21) - 1, 1 << 21, u64::MAX];
        let mut events = Vec::new();
        for value in values {
            events.extend([
                Event::Send { owner: value, index: 3 },
                Event::Send { owner: 127, index: value },
                Event::Receive { owner: 3, index: value },
                Event::Wake { session: value, slot: 5, source: 1 },
                Event::Wake { session: 127, slot: value, source: 127 },
                Event::Wake { session: 1, slot: 2, source: value },
                Event::Wait { reason: 1, owner: value, index: 9 },
                Event::Wait { reason: 127, owner: 127, index: value },
                Event::Step { session: 127, slot: value, overhead: 127, used: 127, stop: StopCode::WaitReply },
                Event::Step { session: 1, slot: 3, overhead: value, used: 2, stop: StopCode::WaitReceive },
                Event::Close { owner: value, index: 1 },
            ]);
        }
        for first in &events {
            let (mut log, mut bytes) = (LaneLog::new(true), Vec::new());
            log.usual(first);
            EventWriter(&mut bytes).event(first);
            assert_eq!(log.bytes(), bytes, "{first:?}");
            for second in &events {
                log.two(first, second);
                EventWriter(&mut bytes).event(first);
                EventWriter(&mut bytes).event(second);
            }
            assert_eq!(log.bytes(), bytes, "{first:?}");
        }
    }

    #[test]
    fn a_finish_is_a_step_and_an_end() {
        let small = [0, 1, 127, 128, 16_383, u64::MAX];
        for slot in [0, 1, 127, 128, 129, 16_383, 16_384, 16_385, 77_777, (1 << 21) - 1, 1 << 21, u32::MAX] {
            for (place, &value) in
                small.iter().enumerate().flat_map(|(at, value)| [(at, value), (at + 1, value), (at + 2, value), (at + 3, value)])
            {
                let numbers: [u64; 4] = core::array::from_fn(|at| if (at + place) % 4 == 0 { value } else { 5 });
                let [session, overhead, used, value] = numbers;
                let (mut log, mut bytes) = (LaneLog::new(true), Vec::new());
                // Twice: there is no room for the first.
                for _ in 0..2 {
                    log.finish(session as u32, slot, Cycles(overhead), Cycles(used), value);
                    let (session, slot) = (u64::from(session as u32), u64::from(slot));
                    EventWriter(&mut bytes).event(&Event::Step { session, slot, overhead, used, stop: StopCode::Finished });
                    EventWriter(&mut bytes).event(&Event::End { session, slot, status: 0, value });
                }
                assert_eq!(log.bytes(), bytes, "slot {slot}, {numbers:?}");
            }
        }
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
                log.settle(if slot % 2 == 0 { 0 } else { 700 });
            }
            assert_eq!(log.finish_frame(), hash_of(keep, 1_000));
        }
    }

    fn write(log: &mut LaneLog, bytes: &mut Vec<u8>, event: Event<'_>) {
        log.event(&event);
        EventWriter(bytes).event(&event);
    }

    /// Events of every length, one after the other, so that blocks and rooms end inside each of them.
    #[test]
    fn bytes_are_the_same_wherever_a_block_or_the_room_ends() {
        let long = alloc::vec![7u8; 3 * BLOCK];
        for keep in [false, true] {
            for shift in 0..40 {
                let (mut log, mut bytes) = (LaneLog::new(keep), Vec::new());
                write(&mut log, &mut bytes, Event::Output { session: 0, bytes: &long[..BLOCK - 2 * SLACK + shift] });
                for value in 0..200u64 {
                    write(&mut log, &mut bytes, Event::Wake { session: value, slot: value << 7, source: 1 });
                    write(&mut log, &mut bytes, Event::Sleep { frames: value });
                    let (send, wake) = (Event::Send { owner: 1, index: value }, Event::Wake { session: 1, slot: value << 9, source: 1 });
                    log.two(&send, &wake);
                    log.usual(&send);
                    EventWriter(&mut bytes).event(&send);
                    EventWriter(&mut bytes).event(&wake);
                    EventWriter(&mut bytes).event(&send);
                    write(&mut log, &mut bytes, Event::Output { session: 1, bytes: &long[..value as usize % 5] });
                }
                write(&mut log, &mut bytes, Event::Output { session: 0, bytes: &long });
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
