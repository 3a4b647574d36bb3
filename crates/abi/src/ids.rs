//! Ids. Every reference that can outlive what it refers to has a generation: a stale one is
//! refused, never resolved to a newer object.

/// A coroutine: a slot in the table that stores it, and the generation of that slot.
///
/// The kernel and each session keep their own slots; the two spaces are never mixed (semantics 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoroutineRef {
    /// Index of the slot.
    pub slot: u32,
    /// Generation of the slot. At most [`CoroutineRef::LAST_GENERATION`]; a slot that reached it is
    /// retired, not wrapped.
    pub generation: u32,
}

impl CoroutineRef {
    /// The last generation a slot may have, so that a guest sees a reference as a non-negative
    /// `i64`.
    pub const LAST_GENERATION: u32 = i32::MAX as u32;

    /// A reference to `generation` of `slot`.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// The `i64` that a guest gets: generation in the upper half, slot in the lower; never
    /// negative.
    #[must_use]
    pub const fn to_guest(self) -> i64 {
        (((self.generation & Self::LAST_GENERATION) as i64) << 32) | self.slot as i64
    }

    /// Decodes a guest's `i64`; `None` if it is negative.
    #[must_use]
    pub const fn from_guest(value: i64) -> Option<Self> {
        if value < 0 {
            return None;
        }
        Some(Self { slot: value as u32, generation: (value >> 32) as u32 })
    }
}

/// A session: its index in the manifest. Sessions are never renumbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionId(pub u32);

/// A lane: a virtual CPU. The lane count is part of the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LaneId(pub u16);

/// A channel of the machine. Guests have per-session handles instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId {
    /// The session that owns the queue.
    pub owner: SessionId,
    /// Its index among the owner's channels, in order of creation.
    pub index: u32,
}

/// How guests and traces name a coroutine (semantics 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoroutineName {
    /// Its session.
    pub session: SessionId,
    /// Its slot and generation in that session.
    pub reference: CoroutineRef,
}

/// A scheduling context in the table of its lane. Guests have capability handles instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContextRef {
    /// Index of the slot in its lane's table.
    pub slot: u32,
    /// Generation of the slot. A slot that reached [`CoroutineRef::LAST_GENERATION`] is retired,
    /// not wrapped.
    pub generation: u32,
}

impl ContextRef {
    /// A reference to `generation` of `slot`.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }
}

/// A lease of a lane: each lane has one place for it. Guests have capability handles instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseRef {
    /// The lane.
    pub lane: LaneId,
    /// Which of its leases: each request that is accepted gets the next number.
    pub generation: u32,
}
