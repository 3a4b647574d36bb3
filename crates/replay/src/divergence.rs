//! The first difference between two runs: its position, and what each run did there.
//!
//! Events are kept as events. Elsewhere: `wavelock-view` and the command line print them with the
//! names of the machine.

use std::fmt;
use wavelock_trace::{Event, EventReader, EventWriter};

/// A page of a session's memory, and the byte of it if that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryPosition {
    /// The session.
    pub session: u64,
    /// The page, of 4 KiB.
    pub page: u64,
    /// The address of the first byte that differs, if a snapshot contains the recorded page.
    pub address: Option<u64>,
}

/// What a run did at the position of a divergence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Occurrence {
    /// An event, as bytes of the trace's encoding.
    Event(Vec<u8>),
    /// Something else, in words.
    Words(String),
}

impl Occurrence {
    pub(crate) fn event_of(event: &Event<'_>) -> Self {
        let mut bytes = Vec::new();
        EventWriter(&mut bytes).event(event);
        Self::Event(bytes)
    }

    /// The event, if it is one.
    #[must_use]
    pub fn event(&self) -> Option<Event<'_>> {
        match self {
            Self::Event(bytes) => EventReader::new(bytes).next()?.ok(),
            Self::Words(_) => None,
        }
    }
}

impl From<&str> for Occurrence {
    fn from(words: &str) -> Self {
        Self::Words(words.into())
    }
}

impl From<String> for Occurrence {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

/// An event is printed by its fields, with numbers instead of names.
impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.event()) {
            (_, Some(event)) => write!(f, "{event:?}"),
            (Self::Words(words), None) => f.write_str(words),
            (Self::Event(_), None) => f.write_str("no event"),
        }
    }
}

/// The first position at which a run differs from the recorded one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The frame.
    pub frame: u64,
    /// The lane whose events differ; `None` at a boundary, or if the trace contains no events.
    pub lane: Option<u16>,
    /// Steps of this lane before it, in this frame.
    pub step_in_lane: u64,
    /// Steps of the whole run before it, in canonical order: the timeline position just before it.
    pub step: Option<u64>,
    /// The coroutine whose step it is: session and slot.
    pub coroutine: Option<(u64, u64)>,
    /// The page of memory that differs.
    pub memory: Option<MemoryPosition>,
    /// What was recorded there.
    pub recorded: Occurrence,
    /// What happened instead.
    pub replayed: Occurrence,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place(&|session| format!("session {session}"));
        write!(f, "{place}: recorded {}, replayed {}", self.recorded, self.replayed)
    }
}

impl Divergence {
    /// A divergence in a frame that is not an event.
    pub(crate) fn plain(frame: u64, recorded: &str, replayed: &str) -> Self {
        let (recorded, replayed) = (recorded.into(), replayed.into());
        Self {
            frame,
            lane: None,
            step_in_lane: 0,
            step: None,
            coroutine: None,
            memory: None,
            recorded,
            replayed,
        }
    }

    /// Its position in words, with sessions named by `session_name`.
    #[must_use]
    pub fn place(&self, session_name: &dyn Fn(u64) -> String) -> String {
        let mut text = format!("frame {}", self.frame);
        if let Some(lane) = self.lane {
            text += &format!(", lane {lane}, step {} of the lane in this frame", self.step_in_lane);
        }
        if let Some(step) = self.step {
            text += &format!(", step {step} of the run");
        }
        if let Some(MemoryPosition { session, page, address }) = self.memory {
            text += &format!(", memory of {}, page {page}", session_name(session));
            if let Some(address) = address {
                text += &format!(", address {address}");
            }
        }
        if let Some((session, slot)) = self.coroutine {
            text += &format!(", in the step of {}/{slot}", session_name(session));
        }
        text
    }
}
