//! The types of the interface, as JSON has them. Server and client use the same, so that they
//! cannot differ; `docs/openapi.json` describes them for other languages.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A type of the interface, as its description is made of.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Its name.
    pub name: &'static str,
    /// Its attributes, with its documentation.
    pub attributes: &'static [&'static str],
    /// Its fields.
    pub fields: &'static [Field],
}

/// A field of a type.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type, in Rust's words.
    pub of: &'static str,
    /// Its attributes, with its documentation.
    pub attributes: &'static [&'static str],
}

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        )*

        /// Every type of the interface that has fields.
        pub const TYPES: &[Type] = &[$(Type {
            name: stringify!($name),
            attributes: &[$(stringify!($doc)),*],
            fields: &[$(Field {
                name: stringify!($field),
                of: stringify!($type),
                attributes: &[$(stringify!($field_doc)),*],
            }),*],
        }),*];
    };
}

/// What a token may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    #[default]
    Viewer,
    /// Also change sessions, inputs and pace, and upload modules.
    Operator,
    /// Also create, fork and delete machines.
    Admin,
}

/// What a hosted machine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being made from its files.
    #[default]
    Recovering,
    /// Frames run at its rate.
    Running,
    /// Frames run when they are stepped.
    Paused,
    /// Its run is over.
    Ended,
    /// It cannot go on; `problem` says why.
    Failed,
}

/// What happens when a cap is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// The session waits for the next period.
    #[default]
    Throttle,
    /// It runs behind all others.
    Demote,
    /// It is ended.
    End,
}

/// How soon a session gets its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the classes are defined in docs/fair.md")]
pub enum Class {
    Urgent,
    Interactive,
    Normal,
    Batch,
    Idle,
}

types! {
    /// A machine.
    Machine {
        /// Its name.
        name: String,
        /// What it does.
        state: State,
        /// The next frame.
        frame: u64,
        /// The run digest.
        digest: String,
        /// Frames per second while it runs.
        hz: f64,
        /// Frames that were due and were not run, because the host was busy.
        late: u64,
        /// Sessions.
        sessions: u64,
        /// Clients that watch it.
        watchers: u64,
        /// The number of the trace segment that is being written.
        segment: u64,
        /// How its run ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<String>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    }
    /// Machines that a token may see.
    Machines {
        /// By name.
        machines: Vec<Machine>,
    }
    /// A machine to create.
    CreateMachine {
        /// Its name: 1 to 64 of `a-z`, `0-9`, `-` and `_`, the first a letter or digit.
        name: String,
        /// Its manifest, TOML.
        manifest: String,
        /// By file name in the manifest: the hash of an uploaded module.
        modules: BTreeMap<String, String>,
        /// Frames per second; 60 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hz: Option<f64>,
        /// Whether it runs at once.
        #[serde(default)]
        start: bool,
    }
    /// The pace of a machine.
    Pace {
        /// Frames per second; unchanged without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hz: Option<f64>,
    }
    /// Frames to run of a machine that is paused.
    Step {
        /// How many.
        frames: u64,
    }
    /// A machine to make from another.
    Fork {
        /// Its name.
        name: String,
        /// The frame at whose start it begins; without it, the next. Earlier ones are made from
        /// the trace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frame: Option<u64>,
        /// Frames per second; those of the other without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hz: Option<f64>,
        /// Whether it runs at once.
        #[serde(default)]
        start: bool,
    }
    /// A change that is durable, and takes effect in this frame.
    Taken {
        /// The frame.
        frame: u64,
    }
    /// A session that will start.
    Started {
        /// The frame.
        frame: u64,
        /// Its number.
        session: u32,
    }
    /// A position between two frames.
    Position {
        /// The next frame.
        frame: u64,
        /// The run digest.
        digest: String,
        /// The trace segment that is being written.
        segment: u64,
    }
    /// A module that was uploaded.
    Module {
        /// Its hash, which names it.
        hash: String,
        /// Its size.
        bytes: u64,
        /// Its longest gap between safepoints; 0 in a list.
        gap_cycles: u64,
    }
    /// Uploaded modules.
    Modules {
        /// By hash.
        modules: Vec<Module>,
        /// Bytes of all.
        bytes: u64,
        /// Bytes that are allowed.
        most_bytes: u64,
    }
    /// A session.
    Session {
        /// Its name.
        name: String,
        /// Its number.
        number: u32,
        /// Cycles that its coroutines used.
        cycles: u64,
        /// Its part of the cycles of all sessions.
        share: f64,
        /// Host operations it called.
        host_calls: u64,
        /// Messages it sent.
        messages: u64,
        /// Its coroutines.
        coroutines: u32,
        /// Bytes of its memories.
        memory_bytes: u64,
        /// How it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<String>,
    }
    /// Sessions of a machine, as of one frame.
    Sessions {
        /// The next frame.
        frame: u64,
        /// By number; at most 1,000 from `from` on.
        sessions: Vec<Session>,
        /// All of them.
        count: u64,
    }
    /// A session to start.
    StartSession {
        /// Its name; never used before in the machine.
        name: String,
        /// The hash of an uploaded module.
        module: String,
        /// Its lane.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<u16>,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Its environment.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Ports, each with the channel it leads to.
        #[serde(default)]
        ports: BTreeMap<String, String>,
        /// Its channels with their capacities.
        #[serde(default)]
        channels: BTreeMap<String, u32>,
        /// Its priority.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u8>,
        /// Its weight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<u16>,
        /// Its latency class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
        /// Its cap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<Cap>,
        /// Its limits.
        #[serde(default)]
        limits: SessionLimits,
    }
    /// A module that takes the place of a session's.
    Replace {
        /// The hash of an uploaded module.
        module: String,
        /// What it begins with, as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// What it begins with, as hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    }
    /// Limits of a session in place of the machine's.
    SessionLimits {
        /// Coroutines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        coroutines: Option<u32>,
        /// Pages of 64 KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory_pages: Option<u32>,
        /// Bytes of a coroutine's stack.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack_bytes: Option<u32>,
        /// Bytes of all its stacks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_stack_bytes: Option<u64>,
        /// Channels it can make.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channels: Option<u32>,
        /// Bytes of output in a frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_bytes: Option<u32>,
    }
    /// A weight.
    Weight {
        /// 1 to 65,535; 1,024 is neutral.
        weight: u16,
    }
    /// A cap.
    Cap {
        /// Cycles in a period.
        cycles: u64,
        /// Frames of a period.
        frames: u64,
        /// What happens beyond them.
        #[serde(default)]
        overrun: Overrun,
    }
    /// The budget of a context.
    ContextBudget {
        /// Cycles in its period.
        cycles: u64,
    }
    /// Bytes, as text or as hexadecimal digits: one of both.
    Bytes {
        /// Text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    }
    /// What a session wrote in a frame.
    Output {
        /// Its name.
        session: String,
        /// The bytes, if they are UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The bytes, if they are not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    }
    /// A session that ended.
    SessionEnd {
        /// Its name.
        session: String,
        /// How.
        outcome: String,
    }
    /// A frame that something happened in.
    Frame {
        /// Its number.
        frame: u64,
        /// The run digest after it.
        digest: String,
        /// What sessions wrote.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outputs: Vec<Output>,
        /// What they logged.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        logs: Vec<Output>,
        /// Sessions that ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<SessionEnd>,
        /// Changes that could not take effect in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<String>,
        /// How the run ended, in its last frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<String>,
    }
    /// Recent frames.
    Frames {
        /// In order.
        frames: Vec<Frame>,
        /// Frames from `from` on that are not kept any more.
        dropped: u64,
        /// What to ask from next.
        next: u64,
    }
    /// A trace segment.
    Segment {
        /// Its number.
        number: u64,
        /// Its size.
        bytes: u64,
        /// Whether it is still being written.
        open: bool,
    }
    /// The trace of a machine, in segments.
    Segments {
        /// By number.
        segments: Vec<Segment>,
    }
    /// Why a coroutine ran, or did not, at a step.
    Why {
        /// The answer in one word.
        verdict: String,
        /// The answer in a sentence.
        answer: String,
        /// The coroutine.
        coroutine: String,
        /// The frame.
        frame: u64,
        /// The step.
        step: u64,
        /// Its state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// Its lane.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<u16>,
        /// The rule that decided.
        rule: String,
        /// Who waits for whom, from it on.
        chain: Vec<String>,
        /// Everything, as `wavelock why` prints it.
        text: String,
    }
    /// An event of a frame.
    Event {
        /// The step after which it happened.
        step: u64,
        /// The frame.
        frame: u64,
        /// Its lane; none at a frame's boundary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<u16>,
        /// What happened, in words.
        text: String,
    }
    /// Events of a span of frames, from the trace.
    Events {
        /// In order.
        events: Vec<Event>,
        /// Whether there are more in the span.
        more: bool,
    }
    /// What a machine did and cost so far.
    Report {
        /// The machine.
        machine: Machine,
        /// Cycles that all sessions used.
        cycles: u64,
        /// Guest memory of all sessions.
        memory_bytes: u64,
        /// Its sessions, those that used most first; at most 1,000.
        sessions: Vec<Session>,
    }
    /// A token.
    Token {
        /// Its name.
        name: String,
        /// What it may do.
        role: Role,
        /// The machines it is for; `*` is all.
        machines: Vec<String>,
        /// The token itself: only in the answer that makes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    }
    /// A token to make.
    CreateToken {
        /// Its name.
        name: String,
        /// What it may do.
        role: Role,
        /// The machines it is for; `*` is all.
        machines: Vec<String>,
    }
    /// Tokens.
    Tokens {
        /// By name.
        tokens: Vec<Token>,
    }
    /// A refusal.
    Refusal {
        /// Why.
        error: Problem,
    }
    /// Why something was refused.
    Problem {
        /// A word for programs.
        code: String,
        /// The rule and the numbers.
        message: String,
    }
    /// What a client that watches sends: an input.
    WatchInput {
        /// Comes back with the answer.
        id: u64,
        /// The session; every session without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// Text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    }
    /// The answer to it.
    WatchAnswer {
        /// The number of the input.
        id: u64,
        /// The frame that takes it, once it is durable.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken: Option<u64>,
        /// Why it was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Problem>,
    }
    /// Frames that a client that watches was too slow for.
    Dropped {
        /// How many.
        dropped: u64,
    }
}

/// A message to a client that watches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Watched {
    /// The machine's state: the first message, and when it changes.
    Machine(Box<Machine>),
    /// An answer to an input.
    Answer(WatchAnswer),
    /// Frames are missing here.
    Dropped(Dropped),
    /// A frame.
    Frame(Box<Frame>),
}

impl Bytes {
    /// Bytes, as text if they are UTF-8.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { text: Some(text.into()), hex: None },
            Err(_) => Self { text: None, hex: Some(to_hex(bytes)) },
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// Neither or both are given, or the digits are none.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        match (&self.text, &self.hex) {
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(hex)) => from_hex(hex),
            _ => Err("give `text` or `hex`, one of both".into()),
        }
    }
}

/// Hexadecimal digits of bytes.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |number: u8| char::from(b"0123456789abcdef"[usize::from(number)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of hexadecimal digits.
///
/// # Errors
/// An odd number of them, or a character that is none.
pub fn from_hex(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        Some(digits) => Err(format!("`hex` has {} digits: give two for each byte", digits.len())),
        None => Err("`hex` has a character that is not a hexadecimal digit".into()),
    }
}
