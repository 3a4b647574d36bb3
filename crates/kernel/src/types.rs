//! The kernel's vocabulary: inputs (spawn, outcome, wake source, span) and results
//! (state, bound, refusal). Plain data.

use crate::fair::Share;
pub use crate::refusal::Refusal;
use core::fmt;
use wavelock_abi::{Cycles, Frame, LatencyClass, Priority, Weight};

/// What the kernel keeps for the caller with each coroutine: the session in the upper half, the
/// session's own slot in the lower.
///
/// The kernel reads only the session (sessions move as a whole) and mixes the rest into the
/// ready-set digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of slot `slot` of session `session`.
    #[must_use]
    pub const fn new(session: u32, slot: u32) -> Self {
        Self((session as u64) << 32 | slot as u64)
    }

    /// Its session.
    #[must_use]
    pub const fn session(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its slot in the session.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident = $code:literal, $text:literal, $meaning:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $meaning] $variant = $code,)*
        }

        impl $name {
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// Every one, in table order; the position is the code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The one of a number in a trace or snapshot.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// What it means, for the documentation tables.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

pub(crate) use numbered;

numbered! {
    /// What a blocked coroutine waits for.
    BlockReason {
        ChannelSend = 0, "channel-send", "room in a channel, or credit for it";
        ChannelReceive = 1, "channel-receive", "a message in a channel";
        Select = 2, "select", "a message in one of several channels";
        Join = 3, "join", "the end of a coroutine";
        Input = 4, "input", "the next input event";
        Reply = 5, "reply", "the answer to a call";
        OtherLane = 6, "other-lane", "an answer that another lane gives at the wave's end";
        Park = 7, "park", "an unpark by another coroutine of its session";
        Session = 8, "session", "the end of another session";
    }
}

numbered! {
    /// Who makes a waiting coroutine ready. Each has one rule: which waits it may end, and whether
    /// it mints a progress token.
    WakeSource {
        Channel = 0, "channel", "a communication completed: ends channel waits and calls, mints a token";
        Join = 1, "join", "the coroutine waited for ended: ends join waits, mints a token";
        Input = 2, "input", "an input event came: ends input waits";
        Answer = 3, "answer", "another lane answered: ends waits for other lanes";
        SessionEnd = 4, "session-end", "a session ended: ends any wait, mints nothing";
        Timer = 5, "timer", "the frame of a sleeper began; only the lane itself uses it";
        Release = 6, "release", "the last hold was released; only the lane itself uses it";
        Unpark = 7, "unpark", "a coroutine unparked it: ends parks";
    }
}

impl WakeSource {
    /// Whether it may end a wait for `reason`.
    #[must_use]
    #[inline]
    pub const fn ends(self, reason: BlockReason) -> bool {
        match self {
            Self::Channel => {
                matches!(
                    reason,
                    BlockReason::ChannelSend
                        | BlockReason::ChannelReceive
                        | BlockReason::Select
                        | BlockReason::Reply
                )
            }
            Self::Join => matches!(reason, BlockReason::Join),
            Self::Input => matches!(reason, BlockReason::Input),
            Self::Answer => matches!(reason, BlockReason::OtherLane),
            Self::SessionEnd => true,
            Self::Unpark => matches!(reason, BlockReason::Park),
            Self::Timer | Self::Release => false,
        }
    }

    /// Whether it mints a progress token (semantics 34).
    #[must_use]
    #[inline]
    pub(crate) const fn mints(self) -> bool {
        matches!(self, Self::Channel | Self::Join)
    }
}

numbered! {
    /// Why a coroutine is held: it does not run although it could.
    HoldReason {
        Operator = 0, "operator", "paused from outside";
        Context = 1, "context", "its context is used up or was revoked";
        Cap = 2, "cap", "its session has used up its cap";
    }
}

/// A set of [`HoldReason`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HoldReasons(u8);

impl HoldReasons {
    /// Not held.
    pub const NONE: Self = Self(0);

    /// The set with this code, unless a bit names no reason.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code >> HoldReason::COUNT == 0 { Some(Self(code)) } else { None }
    }

    /// Its number: one bit per reason, by the reason's code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Whether nothing holds.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this reason holds.
    #[must_use]
    pub const fn contains(self, reason: HoldReason) -> bool {
        self.0 & (1 << reason as u8) != 0
    }

    /// The set with this reason.
    #[must_use]
    pub const fn with(self, reason: HoldReason) -> Self {
        Self(self.0 | 1 << reason as u8)
    }

    /// The set without this reason.
    #[must_use]
    pub const fn without(self, reason: HoldReason) -> Self {
        Self(self.0 & !(1 << reason as u8))
    }
}

/// What each reason means, in table order.
impl fmt::Display for HoldReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let mut comma = "";
        for reason in HoldReason::ALL.iter().filter(|&&reason| self.contains(reason)) {
            write!(f, "{comma}{}", reason.meaning())?;
            comma = ", ";
        }
        Ok(())
    }
}

/// The state of a coroutine, with exactly the facts true in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Queued, waiting to be picked.
    Ready,
    /// The lane's current coroutine: in a slice, or between two slices of its quantum.
    Running,
    /// Not runnable until a frame.
    Sleeping {
        /// That frame.
        until: Frame,
    },
    /// Waiting for a wake.
    Blocked {
        /// What it waits for.
        reason: BlockReason,
    },
    /// It would be ready, but is held.
    Throttled {
        /// By what.
        held: HoldReasons,
    },
    /// Ended by itself.
    Finished,
    /// Ended by a fault.
    Faulted,
    /// Ended by another.
    Canceled,
}

/// What it does, as the end of a sentence that begins with the coroutine and "is".
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Running => f.write_str("running"),
            Self::Sleeping { until } => write!(f, "sleeping until frame {}", until.0),
            Self::Blocked { reason } => write!(f, "blocked: waits for {}", reason.meaning()),
            Self::Throttled { held } => write!(f, "throttled: {held}"),
            Self::Finished => f.write_str("finished"),
            Self::Faulted => f.write_str("faulted"),
            Self::Canceled => f.write_str("canceled"),
        }
    }
}

/// How a slice ended; given to `Lane::stop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It yielded: to the tail of its queue.
    Yielded,
    /// It sleeps until this frame; a frame that has begun is a yield.
    Slept(Frame),
    /// It waits.
    Blocked(BlockReason),
    /// It reached its bound at a safepoint and is still runnable.
    OutOfCycles,
    /// It ended.
    Finished,
    /// It ended by a fault.
    Faulted,
}

/// What `Lane::stop` did with the coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// Back in the ready queue, at the tail of its class.
    Requeued,
    /// Its quantum is not used up: it stays the lane's current coroutine and continues in the next
    /// slice.
    Kept,
    /// Sleeping or blocked.
    Waiting,
    /// It could run, but is held.
    Throttled,
    /// Ended; its record stays until `reap`.
    Ended,
}

/// Why a slice may not be longer: the least of these, the first in this order when equal (semantics
/// 25).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundReason {
    /// The cap of its session is used up.
    Cap,
    /// The refill of its context is used up, or the part of the fair server.
    Refill,
    /// A context is released that may go before it.
    Release,
    /// The frame ends.
    FrameEnd,
    /// The quantum ends.
    Quantum,
    /// The wave ends.
    WaveEnd,
}

/// How long a wave lasts on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// This many slices.
    Picks(u32),
    /// Until the lane's clock reaches this value.
    Until(Cycles),
}

/// A coroutine to publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spawn {
    /// The caller's name for it.
    pub tag: Tag,
    /// Priority, larger first.
    pub priority: Priority,
    /// Share under `Fair`.
    pub weight: Weight,
    /// Latency class under `Fair`.
    pub latency: LatencyClass,
    /// The share of its session, if sessions share the lane and this is its first coroutine there.
    pub session: Share,
}

impl Spawn {
    /// A coroutine with neutral attributes.
    #[must_use]
    pub const fn new(tag: Tag) -> Self {
        let session = Share { weight: Weight::NEUTRAL, class: LatencyClass::Normal };
        let (weight, latency) = (session.weight, session.class);
        Self { tag, priority: Priority(0), weight, latency, session }
    }
}

/// Requests a value into the cache. Changes nothing; set by [`crate::Lane::set_prefetch`].
pub type Prefetch = fn(&dyn core::any::Any);
