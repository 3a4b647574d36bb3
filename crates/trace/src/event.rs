//! The event vocabulary and its encoding: a tag byte, then LEB128 numbers in table order, byte
//! strings with their length first.
//!
//! The enum, the encoder, the decoder and the names expand from one table. Only a step is special:
//! its stop code is in the tag, so that a plain yield takes at most twelve bytes (semantics 30).
//! Decoding treats its input as untrusted.

use alloc::vec::Vec;
use core::fmt;

/// Tags from here on are steps; the rest of the byte is the stop code.
pub(crate) const STEP_TAG: u8 = 0x80;

macro_rules! stop_codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// Why a slice stopped.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum StopCode {
            $(#[doc = $text] $name = $code,)*
        }

        impl StopCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stop code of a number.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// A description, in the third person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

stop_codes! {
    Yielded = 0, "yielded";
    Slept = 1, "went to sleep";
    WaitSend = 2, "waits to send";
    WaitReceive = 3, "waits to receive";
    WaitSelect = 4, "waits on several channels";
    WaitJoin = 5, "waits for a coroutine to end";
    WaitInput = 6, "waits for input";
    WaitLane = 7, "waits for another lane";
    Finished = 8, "finished";
    Faulted = 9, "faulted";
    SessionExit = 10, "ended its session";
    EndOfRefill = 11, "used up its refill";
    Release = 12, "was preempted by a released context";
    EndOfFrame = 13, "reached the end of the frame";
    EndOfQuantum = 14, "used up its quantum";
    EndOfWave = 15, "reached the end of the wave";
    WaitReply = 16, "waits for the reply to its call";
    EndOfCap = 17, "used up the cap of its session";
    WaitPark = 18, "waits to be unparked";
    WaitSession = 19, "waits for a session to end";
}

/// Why bytes could not be decoded as events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventError {
    /// No event has this tag.
    UnknownTag {
        /// Byte offset of the event.
        offset: usize,
        /// The tag.
        tag: u8,
    },
    /// The bytes end inside an event.
    Truncated {
        /// Byte offset of the event.
        offset: usize,
    },
    /// A number does not fit 64 bits.
    Overlong {
        /// Byte offset of the event.
        offset: usize,
    },
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTag { offset, tag } => {
                write!(f, "byte {offset}: no event has tag {tag:#04x}")
            }
            Self::Truncated { offset } => {
                write!(f, "byte {offset}: the event is cut off")
            }
            Self::Overlong { offset } => {
                write!(f, "byte {offset}: a number in the event exceeds 64 bits")
            }
        }
    }
}

impl core::error::Error for EventError {}

/// Encodes events onto the end of a byte vector.
#[derive(Debug)]
pub struct EventWriter<'a>(pub &'a mut Vec<u8>);

impl EventWriter<'_> {
    /// A number, seven bits a byte, lowest first.
    #[inline]
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A byte string: length, then bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Decodes events from untrusted bytes.
#[derive(Clone, Debug)]
pub struct EventReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    failed: bool,
}

impl<'a> EventReader<'a> {
    /// A reader over `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, failed: false }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn number_field(&mut self) -> Option<u64> {
        self.number(self.offset).ok()
    }

    pub(crate) fn bytes_field(&mut self) -> Option<&'a [u8]> {
        self.string(self.offset).ok()
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.offset..self.offset + N)?.try_into().ok()?;
        self.offset += N;
        Some(bytes)
    }

    pub(crate) fn rest(&self) -> usize {
        self.bytes.len() - self.offset
    }

    fn byte(&mut self, start: usize) -> Result<u8, EventError> {
        let byte = *self.bytes.get(self.offset).ok_or(EventError::Truncated { offset: start })?;
        self.offset += 1;
        Ok(byte)
    }

    fn number(&mut self, start: usize) -> Result<u64, EventError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(start)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(EventError::Overlong { offset: start });
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(EventError::Overlong { offset: start })
    }

    fn string(&mut self, start: usize) -> Result<&'a [u8], EventError> {
        let length = self.number(start)?;
        let rest = &self.bytes[self.offset..];
        if length > rest.len() as u64 {
            return Err(EventError::Truncated { offset: start });
        }
        let string = &rest[..length as usize];
        self.offset += string.len();
        Ok(string)
    }
}

impl<'a> Iterator for EventReader<'a> {
    type Item = Result<Event<'a>, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.offset >= self.bytes.len() {
            return None;
        }
        let event = self.event();
        self.failed = event.is_err();
        Some(event)
    }
}

macro_rules! events {
    (@type number) => { u64 };
    (@type bytes) => { &'a [u8] };
    (@write $writer:ident number $value:expr) => { $writer.number(*$value) };
    (@write $writer:ident bytes $value:expr) => { $writer.bytes($value) };
    (@read $reader:ident $start:ident number) => { $reader.number($start)? };
    (@read $reader:ident $start:ident bytes) => { $reader.string($start)? };
    ($($name:ident = $tag:literal { $($field:ident: $kind:tt),* }, $doc:literal;)*) => {
        /// An event. Sessions are manifest indices, slots are session slots, lanes are lane
        /// numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "each variant's row in the table describes its fields")]
        pub enum Event<'a> {
            /// One step of a lane: scheduler cycles before it, guest cycles in it, why it stopped.
            Step { session: u64, slot: u64, overhead: u64, used: u64, stop: StopCode },
            $(#[doc = $doc] $name { $($field: events!(@type $kind)),* },)*
        }

        impl Event<'_> {
            /// Names and meanings of all events, in table order, for the documentation.
            pub const TABLE: &'static [(&'static str, u8, &'static str)] = &[
                ("Step", STEP_TAG, "one step of a lane: scheduler cycles before it, guest cycles in it, why it stopped (in the tag)"),
                $((stringify!($name), $tag, $doc),)*
            ];

            /// Names and kinds (`number`, `bytes`) of each event's fields, in the order of
            /// [`Event::TABLE`].
            pub const FIELDS: &'static [&'static [(&'static str, &'static str)]] = &[
                &[
                    ("session", "number"),
                    ("slot", "number"),
                    ("overhead", "number"),
                    ("used", "number"),
                ],
                $(&[$((stringify!($field), stringify!($kind))),*],)*
            ];

            /// The first byte of its encoding.
            #[inline(always)]
            pub(crate) const fn tag(&self) -> u8 {
                match self {
                    Self::Step { stop, .. } => STEP_TAG | *stop as u8,
                    $(Self::$name { .. } => $tag,)*
                }
            }

            /// The event's name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::Step { .. } => "Step",
                    $(Self::$name { .. } => stringify!($name),)*
                }
            }
        }

        impl EventWriter<'_> {
            /// Encodes an event. `LaneLog` has a fast path for frequent ones.
            pub fn event(&mut self, event: &Event<'_>) {
                match event {
                    Event::Step { session, slot, overhead, used, stop } => {
                        self.0.push(STEP_TAG | *stop as u8);
                        self.number(*session);
                        self.number(*slot);
                        self.number(*overhead);
                        self.number(*used);
                    }
                    $(Event::$name { $($field),* } => {
                        self.0.push($tag);
                        $(events!(@write self $kind $field);)*
                    })*
                }
            }
        }

        impl<'a> EventReader<'a> {
            fn event(&mut self) -> Result<Event<'a>, EventError> {
                let start = self.offset;
                let tag = self.byte(start)?;
                if tag & STEP_TAG != 0 {
                    let stop = StopCode::from_code(tag & !STEP_TAG)
                        .ok_or(EventError::UnknownTag { offset: start, tag })?;
                    return Ok(Event::Step {
                        session: self.number(start)?,
                        slot: self.number(start)?,
                        overhead: self.number(start)?,
                        used: self.number(start)?,
                        stop,
                    });
                }
                match tag {
                    $($tag => Ok(Event::$name { $($field: events!(@read self start $kind)),* }),)*
                    _ => Err(EventError::UnknownTag { offset: start, tag }),
                }
            }
        }
    };
}

events! {
    Wave = 1 { clock: number }, "a wave starts on this lane, at this lane clock";
    Spawn = 2 { session: number, slot: number, generation: number, lane: number }, "a coroutine was spawned on a lane";
    Wake = 3 { session: number, slot: number, source: number }, "a blocked coroutine became ready, and what woke it";
    Sleep = 4 { frames: number }, "the running coroutine sleeps this many frames";
    Wait = 5 { reason: number, owner: number, index: number }, "the running coroutine blocks, and on what";
    Send = 6 { owner: number, index: number }, "the running coroutine sent to a channel (owner session, channel number)";
    Receive = 7 { owner: number, index: number }, "the running coroutine received from a channel";
    Close = 8 { owner: number, index: number }, "a channel, or this session's port of it, was closed";
    Channel = 9 { index: number, capacity: number }, "the running coroutine's session made a channel";
    End = 10 { session: number, slot: number, status: number, value: number }, "a coroutine ended: how, and its value's bits";
    Fault = 11 { session: number, slot: number, code: number, function: number, offset: number }, "a coroutine faulted, and where";
    Cancel = 12 { session: number, slot: number }, "a coroutine was canceled by another of its session";
    Output = 13 { session: number, bytes: bytes }, "bytes a session wrote; they leave at FRAME_SYNC";
    Input = 14 { session: number, length: number }, "the running coroutine read input bytes";
    SessionEnd = 15 { session: number, outcome: number, exit: number }, "a session ended: how, and its exit code's bits";
    Timers = 16 { woken: number }, "this many sleepers of this lane woke at the frame's start";
    Context = 17 { context: number, owner: number, budget: number, period: number, deadline: number }, "a context was created on this lane: its slot there, the session that owns it, its parameters";
    Bind = 18 { context: number, session: number, slot: number }, "a coroutine was bound to a context";
    Throttle = 19 { context: number, session: number, slot: number, until: number, overrun: number }, "a holder used up its refill and waits for the next, until this lane clock; and by how much it ran over";
    Demote = 20 { context: number, session: number, slot: number, until: number, overrun: number }, "a holder used up its refill and is best effort until this lane clock";
    Overrun = 21 { context: number, session: number, slot: number, deadline: number, overrun: number }, "a holder used up its refill and continues with the deadline of the next";
    Replenish = 22 { context: number, session: number, slot: number, amount: number, deadline: number }, "a throttled holder has a refill again";
    Miss = 23 { context: number, session: number, slot: number, deadline: number }, "a deadline passed before the holder had its refill or was done";
    Notify = 24 { context: number }, "a context's cell was written, and its timeout channel notified";
    Donate = 25 { context: number, session: number, slot: number, depth: number }, "a context was lent along a call to this coroutine";
    Return = 26 { context: number, session: number, slot: number, depth: number }, "a loan came back to this coroutine";
    Revoke = 27 { context: number, session: number, slot: number, loans: number }, "a context was revoked: from this holder (session 2^64 - 1 if it had none), and this many loans with it";
    Deny = 28 { session: number, slot: number, operation: number, code: number }, "an operation on time was refused: which, and with which code (without its sign)";
    Call = 29 { owner: number, index: number }, "the running coroutine called through a channel (owner session, channel number) and waits for the reply";
    Accept = 30 { session: number, slot: number, caller: number, caller_slot: number }, "a coroutine accepted a call: of which session and coroutine";
    Answer = 31 { session: number, slot: number, code: number }, "a call was replied to: its caller, and with which code (without its sign; 0 is a reply)";
    FrameStart = 32 { frame: number }, "a frame starts";
    Sample = 33 { session: number, bytes: bytes }, "an input event was delivered to a session";
    Jump = 34 { from: number, to: number }, "nothing was runnable: time jumped over whole frames";
    Arrival = 35 { lane: number, owner: number, index: number }, "a message from another lane entered a channel at a wave's end";
    Entered = 36 { session: number, slot: number, owner: number, index: number }, "a waiting sender's message entered a channel at a wave's end";
    Move = 37 { session: number, from: number, to: number, reason: number }, "a session moved between lanes (0 steal, 1 balance, 2 placed at load by the mask of its context)";
    Deadlock = 38 { waiting: number }, "every live coroutine is blocked, and nothing can wake one";
    FrameSync = 39 { frame: number }, "the frame ended: output is released";
    Outcome = 40 { outcome: number }, "the machine ended";
    Dropped = 41 { session: number, events: number }, "input events unread at the frame's end were dropped";
    Lease = 42 { lease: number, state: number, reason: number, session: number, first: number, second: number }, "a lease of this lane is in another state: its position in the description, the state, why, the session in the way, and the numbers (rule 16)";
    CapThrottle = 43 { session: number, used: number, budget: number, until: number }, "a session used up its cap on this lane: cycles used, the cap, and the frame in which its coroutines can run again";
    CapRefill = 44 { session: number, used: number, budget: number }, "a throttled or demoted session competes again on this lane: what it owes from its overrun, and the cap";
    Noise = 45 { lease: number, operation: number, count: number }, "a leased lane had overhead that the holder of the lease did not cause: operations of this kind; the lease ends";
    CapDemote = 47 { session: number, used: number, budget: number, until: number }, "a session used up its cap on this lane: cycles used, the cap, and the frame until which its coroutines run only when no other is ready";
    Unpark = 48 { session: number, slot: number }, "the running coroutine unparked another of its session; on another lane from the wave's end on";
    Priority = 49 { session: number, slot: number, priority: number }, "a coroutine's priority was changed through the policy capability";
    OutOfRange = 50 { session: number, slot: number, operation: number, found: number, most: number }, "an operation on time got a number that it does not accept: which operation, the number's bits, and the largest it accepts; the refusal follows";
    Handoff = 51 { session: number, slot: number, from: number, to_session: number, to_slot: number, to: number, step: number, reason: number }, "a receiver is preferred for a message from another lane: the sender and its lane, the receiver and its lane, that lane's steps so far, and how the message came (0 sent, 1 its sender waited for room)";
    Kill = 56 { session: number, slot: number, rule: number, budget: number, overrun: number }, "a budget's overrun policy ended a coroutine (rule 0: its context was used up) or its session (rule 1: its cap; the slot is 0): the budget, and what was used beyond it";
    InputEnd = 64 { session: number }, "the input of a session ended: what it has not read is the last";
    Stop = 65 { running: number }, "the machine was told to end with this frame: its sessions that had not ended";
    Control = 66 { session: number, what: number, first: number, second: number, third: number }, "a control input took effect on a session: which, and its numbers (rule 16)";
    ControlRefused = 67 { session: number, what: number, code: number, found: number, allowed: number }, "a control input could not take effect in its frame: which, why, and the numbers (rule 16)";
    Start = 68 { session: number, lane: number, module: bytes, name: bytes }, "a session was started by a control input: its number, its home lane, the hash of its module, its name";
    Replace = 69 { session: number, module: bytes, carried: number }, "the module of a session was replaced by a control input: the hash of the new one, and how many bytes it begins with";
    View = 80 { function: number, answer: number }, "a view of the embedder answered: its position among the host functions, and a sum over its results and what it wrote";
    Ask = 81 { session: number, number: number, function: number }, "the running coroutine asks the embedder, and waits for the reply: the number of the ask in its session, and the function's position among the host functions";
    Reply = 82 { session: number, number: number, bytes: bytes }, "a reply to an ask was delivered: the words of its results";
    LostReply = 83 { session: number, number: number }, "a reply changed nothing: its ask had ended, or was another";
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn samples() -> Vec<Event<'static>> {
        let mut events = vec![
            Event::Wave { clock: u64::MAX },
            Event::Output { session: 3, bytes: b"hello" },
            Event::End { session: 1, slot: 2, status: 0, value: (-1i64) as u64 },
            Event::Jump { from: 0, to: 1 << 40 },
        ];
        events.extend(StopCode::ALL.iter().map(|&stop| Event::Step {
            session: 9,
            slot: 1_000_000,
            overhead: 36,
            used: 9_999,
            stop,
        }));
        events
    }

    #[test]
    fn events_round_trip() {
        let mut bytes = Vec::new();
        for event in samples() {
            EventWriter(&mut bytes).event(&event);
        }
        let read: Vec<_> =
            EventReader::new(&bytes).map(|event| event.expect("own encoding")).collect();
        assert_eq!(read, samples());
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_list() {
        let mut bytes = Vec::new();
        for event in samples() {
            EventWriter(&mut bytes).event(&event);
        }
        for end in 0..bytes.len() {
            let read: Vec<_> = EventReader::new(&bytes[..end]).collect();
            let good = read.iter().take_while(|event| event.is_ok()).count();
            assert!(good < samples().len() && read.len() <= good + 1);
        }
    }

    #[test]
    fn unknown_tags_and_overlong_numbers_are_refused() {
        assert_eq!(
            EventReader::new(&[0x7f]).next(),
            Some(Err(EventError::UnknownTag { offset: 0, tag: 0x7f }))
        );
        assert_eq!(
            EventReader::new(&[0xff]).next(),
            Some(Err(EventError::UnknownTag { offset: 0, tag: 0xff }))
        );
        let overlong = [1u8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(
            EventReader::new(&overlong).next(),
            Some(Err(EventError::Overlong { offset: 0 }))
        );
    }

    #[test]
    fn a_plain_yield_takes_at_most_twelve_bytes() {
        let mut bytes = Vec::new();
        let step = Event::Step {
            session: 127,
            slot: 999_999,
            overhead: 36,
            used: 2_000_000,
            stop: StopCode::Yielded,
        };
        EventWriter(&mut bytes).event(&step);
        assert!(bytes.len() <= 12, "{} bytes", bytes.len());
    }

    #[test]
    fn tags_are_unique() {
        for (i, (name, tag, _)) in Event::TABLE.iter().enumerate() {
            assert!(
                Event::TABLE[..i].iter().all(|(_, other, _)| other != tag),
                "{name} reuses tag {tag}"
            );
        }
    }
}
