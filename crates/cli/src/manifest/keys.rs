//! Every key a manifest may have, in one table each: name, what it takes, default, meaning.
//!
//! The reader, its "did you mean", the documentation page and the tests expand from these tables.
//! Defaults are part of the trace law: none comes from the host.

use super::model::{CLASS_NAMES, Policy};

/// What a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A whole number in a range, with its default if it has one.
    Number {
        /// The least value.
        least: u64,
        /// The largest value.
        most: u64,
        /// The value when the key is absent.
        default: Option<u64>,
    },
    /// `true` or `false`; `false` when absent.
    Switch,
    /// One of some words, with the default.
    Word {
        /// The words.
        choices: &'static [&'static str],
        /// The word when the key is absent.
        default: &'static str,
    },
    /// Something else: how it is described, and its default in words.
    Other {
        /// What it takes.
        form: &'static str,
        /// What holds when the key is absent; empty when the key is required.
        default: &'static str,
    },
}

/// One key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What it means.
    pub doc: &'static str,
}

impl Key {
    const fn number(
        name: &'static str,
        least: u64,
        most: u64,
        default: u64,
        doc: &'static str,
    ) -> Self {
        Self { name, takes: Takes::Number { least, most, default: Some(default) }, doc }
    }

    const fn optional_number(name: &'static str, least: u64, most: u64, doc: &'static str) -> Self {
        Self { name, takes: Takes::Number { least, most, default: None }, doc }
    }

    const fn switch(name: &'static str, doc: &'static str) -> Self {
        Self { name, takes: Takes::Switch, doc }
    }

    const fn other(
        name: &'static str,
        form: &'static str,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, takes: Takes::Other { form, default }, doc }
    }

    /// A limit of a cost profile.
    pub(crate) const fn limit(name: &'static str, doc: &'static str) -> Self {
        Self::optional_number(name, 0, u64::MAX, doc)
    }

    /// What it takes, in words.
    #[must_use]
    pub fn form(&self) -> String {
        match self.takes {
            Takes::Number { least, most, .. } => format!("{} to {}", grouped(least), grouped(most)),
            Takes::Switch => "`true` or `false`".to_owned(),
            Takes::Word { choices, .. } => choices
                .iter()
                .map(|choice| format!("`\"{choice}\"`"))
                .collect::<Vec<_>>()
                .join(", "),
            Takes::Other { form, .. } => form.to_owned(),
        }
    }

    /// Its default, in words.
    #[must_use]
    pub fn default_text(&self) -> String {
        match self.takes {
            Takes::Number { default: Some(value), .. } => grouped(value),
            Takes::Number { default: None, .. } => "none".to_owned(),
            Takes::Switch => "`false`".to_owned(),
            Takes::Word { default, .. } => format!("`\"{default}\"`"),
            Takes::Other { default: "", .. } => "required".to_owned(),
            Takes::Other { default, .. } => default.to_owned(),
        }
    }
}

/// A number with `_` between groups of three digits, as manifests write it.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// The most lanes a machine has.
pub const MOST_LANES: u64 = wavelock_system::MAX_LANES as u64;
/// The longest frame, quantum or wave.
pub const MOST_CYCLES: u64 = wavelock_system::MOST_CYCLES.0;
/// The longest name of a session, channel or port, in bytes.
pub(super) const MOST_NAME_BYTES: usize = 64;
/// The most arguments, environment variables or ports of one session.
pub(super) const MOST_ENTRIES: usize = 4_096;
/// The most of them in all sessions together, each counted session with its own.
pub(super) const MOST_MACHINE_ENTRIES: u64 = 4_194_304;

pub(super) const LANES: Key =
    Key::number("lanes", 1, MOST_LANES, 1, "virtual CPUs; part of the model, so of the digest");
pub(super) const POLICY: Key = Key {
    name: "policy",
    takes: Takes::Word { choices: Policy::NAMES, default: "round-robin" },
    doc: "which coroutine of a lane runs next",
};
pub(super) const QUANTUM_CYCLES: Key = Key::number(
    "quantum_cycles",
    1,
    MOST_CYCLES,
    10_000,
    "how long a coroutine runs before another of its lane does",
);
pub(super) const FRAME_CYCLES: Key =
    Key::number("frame_cycles", 1, MOST_CYCLES, 1_000_000, "length of a frame, on every lane");
pub(super) const WAVE_CYCLES: Key = Key::number(
    "wave_cycles",
    1,
    MOST_CYCLES,
    100_000,
    "span of a wave: each lane runs slices until its clock passes it",
);
pub(super) const WAVE_PICKS: Key = Key::optional_number(
    "wave_picks",
    1,
    1_000_000,
    "span of a wave in picks per lane instead of cycles; 1 is the strict form",
);
pub(super) const SEED: Key = Key::number("seed", 0, u64::MAX, 0, "root of every random stream");
pub(super) const MAX_FRAMES: Key = Key::optional_number(
    "max_frames",
    1,
    u64::MAX,
    "frames after which the run ends with outcome `frames`; none is no bound",
);
pub(super) const HANDOFF: Key = Key::switch(
    "handoff",
    "a send to a waiting receiver prefers it as the next coroutine of the lane",
);
pub(super) const STEAL: Key = Key::switch(
    "steal",
    "a lane without work takes over a whole session of another at a wave's end, unless its `lane` is named",
);
pub(super) const BALANCE: Key = Key::switch(
    "balance",
    "the lane with most to run gives a whole session to the one with least at a frame's end, unless its `lane` is named",
);

/// `[machine]`.
pub const MACHINE: &[Key] = &[
    LANES,
    POLICY,
    QUANTUM_CYCLES,
    FRAME_CYCLES,
    WAVE_CYCLES,
    WAVE_PICKS,
    SEED,
    MAX_FRAMES,
    HANDOFF,
    STEAL,
    BALANCE,
];

macro_rules! limits {
    ($($name:ident: $least:literal..=$most:literal, $default:literal, $doc:literal;)*) => {
        /// `[limits]`: a bound on everything a guest can use up, each finite. Meeting one is an
        /// answer to, or a fault of, that guest.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Limits {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Each limit with its key, to read or show them.
            pub(crate) fn fields(&mut self) -> Vec<(&'static Key, &mut u64)> {
                LIMITS.iter().zip([$(&mut self.$name),*]).collect()
            }
        }

        /// `[limits]`.
        pub const LIMITS: &[Key] =
            &[$(Key::number(stringify!($name), $least, $most, $default, $doc)),*];
    };
}

limits! {
    sessions: 1..=65_536, 65_536, "sessions of the machine";
    coroutines: 1..=16_777_216, 1_000_000, "coroutines of a session that have not been joined, detached or ended with it";
    stack_bytes: 1_024..=1_073_741_824, 1_048_576, "call and operand stack of a coroutine";
    session_stack_bytes: 1_024..=70_368_744_177_664, 1_073_741_824, "stacks of all coroutines of a session; the first 56 bytes of each are free";
    memory_pages: 0..=65_536, 1_024, "linear memory of a session, in pages of 64 KiB";
    table_elements: 0..=16_777_216, 1_000_000, "elements of each table of a session";
    channels: 0..=1_048_576, 65_536, "channels a session can make, those of the manifest not counted";
    channel_capacity: 1..=16_777_216, 65_536, "messages a channel can be made to hold";
    message_bytes: 0..=16_777_216, 65_536, "bytes of one message";
    select: 1..=65_536, 1_024, "channels one `select` can wait on";
    output_bytes: 0..=1_073_741_824, 1_048_576, "output of a session in one frame";
    log_bytes: 0..=1_073_741_824, 1_048_576, "log of a session in one frame";
    machine_memory: 1_048_576..=70_368_744_177_664, 8_589_934_592, "host memory in bytes that may be reserved for the guests; refused at load beyond it";
}

pub(super) const NAME: Key = Key::other(
    "name",
    "letters, digits, `_`, `-`, `.`",
    "",
    "unique; seeds the session's random streams",
);
pub(super) const MODULE: Key = Key::other(
    "module",
    "path of a `.wasm` or `.wat`",
    "",
    "what it runs; the path is relative to the manifest",
);
pub(super) const COUNT: Key = Key::optional_number(
    "count",
    1,
    65_536,
    "that many sessions, named `name.0`, `name.1`, ...; `{index}` in args, env and ports is the number",
);
pub(super) const LANE: Key = Key::optional_number(
    "lane",
    0,
    MOST_LANES - 1,
    "its lane; without it, session i is on lane i mod lanes",
);
pub(super) const SESSION_LANES: Key = Key::other(
    "lanes",
    "list of lanes",
    "none",
    "lanes it may be split over, instead of `lane`; the first is its home: it holds its channels and its first coroutine",
);
pub(super) const PRIORITY: Key =
    Key::number("priority", 0, 255, 0, "larger first, under the priority policies");
pub(super) const WEIGHT: Key =
    Key::number("weight", 1, 65_535, 1_024, "share of time under `fair`");
pub(super) const CLASS: Key = Key {
    name: "class",
    takes: Takes::Word { choices: CLASS_NAMES, default: "normal" },
    doc: "latency class under `fair`: how soon, never how much",
};
pub(super) const ARGS: Key =
    Key::other("args", "list of texts", "the session's name", "what WASI `args_get` answers");
pub(super) const ENV: Key =
    Key::other("env", "table of texts", "empty", "what WASI `environ_get` answers, in name order");
pub(super) const PORTS: Key = Key::other(
    "ports",
    "table: port name to channel name",
    "empty",
    "channels it can send to (or receive from, as their owner)",
);
pub(super) const COROUTINE_GLOBALS: Key = Key::other(
    "coroutine_globals",
    "list of global names or indices",
    "empty, with a warning where a stack pointer is missed",
    "globals each coroutine has for itself, beside `__stack_pointer`; naming one that does not exist is refused at load",
);

/// `[[session]]`.
pub const SESSION: &[Key] = &[
    NAME,
    MODULE,
    COUNT,
    LANE,
    SESSION_LANES,
    PRIORITY,
    WEIGHT,
    CLASS,
    ARGS,
    ENV,
    PORTS,
    COROUTINE_GLOBALS,
];

pub(super) const CHANNEL_NAME: Key =
    Key::other("name", "letters, digits, `_`, `-`, `.`", "", "unique; what `ports` refer to");
pub(super) const OWNER: Key = Key::other(
    "owner",
    "session name",
    "",
    "the only session that receives from it; of a counted session one by its full name, such as `worker.0`",
);
pub(super) const CAPACITY: Key = Key::number(
    "capacity",
    1,
    16_777_216,
    64,
    "messages it holds; at most the limit `channel_capacity`",
);

/// `[[channel]]`.
pub const CHANNEL: &[Key] = &[CHANNEL_NAME, OWNER, CAPACITY];

pub(super) const CONTEXT_NAME: Key = Key::other(
    "name",
    "letters, digits, `_`, `-`, `.`",
    "",
    "what `capability` finds it by and reports call it; unique in its session",
);
pub(super) const CONTEXT_SESSION: Key = Key::other(
    "session",
    "session name",
    "",
    "whose first coroutine holds it; it is on that session's home lane",
);
pub(super) const PROFILE: Key = Key::other(
    "profile",
    "profile name",
    "none",
    "a `[[profile]]` that says what this table does not",
);
pub(super) const BUDGET_CYCLES: Key = Key::optional_number(
    "budget_cycles",
    1,
    MOST_CYCLES,
    "cycles of the lane per period; required, here or in the profile",
);
pub(super) const PERIOD_CYCLES: Key = Key::optional_number(
    "period_cycles",
    1,
    MOST_CYCLES,
    "the period; required, here or in the profile",
);
pub(super) const DEADLINE_CYCLES: Key = Key::optional_number(
    "deadline_cycles",
    1,
    MOST_CYCLES,
    "cycles from a release to its deadline; without it the period",
);
pub(super) const REFILLS: Key =
    Key::optional_number("refills", 2, 8, "parts of the budget it can keep apart; without it 4");
pub(super) const OVERRUN: Key = Key {
    name: "overrun",
    takes: Takes::Word {
        choices: &["throttle", "notify-and-throttle", "demote", "notify-only", "end"],
        default: "throttle",
    },
    doc: "what happens to the holder when a refill is used up",
};
pub(super) const ACTIVATION: Key = Key {
    name: "activation",
    takes: Takes::Word { choices: &["sporadic", "constant-bandwidth"], default: "sporadic" },
    doc: "whether a refill counts from when its holder could run, or from when it does",
};

/// `[[context]]`.
pub(super) const CONTEXT: &[Key] = &[
    CONTEXT_NAME,
    CONTEXT_SESSION,
    PROFILE,
    BUDGET_CYCLES,
    PERIOD_CYCLES,
    DEADLINE_CYCLES,
    REFILLS,
    OVERRUN,
    ACTIVATION,
];

pub(super) const PROFILE_NAME: Key =
    Key::other("name", "letters, digits, `_`, `-`, `.`", "", "unique; what `profile` refers to");

/// `[[profile]]`.
pub(super) const PROFILES: &[Key] =
    &[PROFILE_NAME, BUDGET_CYCLES, PERIOD_CYCLES, DEADLINE_CYCLES, REFILLS, OVERRUN, ACTIVATION];

pub(super) const GRANT_SESSION: Key = Key::other("session", "session name", "", "to whom");
pub(super) const GRANT_OF: Key = Key::other(
    "of",
    "`\"control\"`, `\"policy\"`",
    "",
    "`control`: it may make contexts on its home lane; `policy`: it may change weights and classes of its coroutines",
);

/// `[[grant]]`.
pub(super) const GRANT: &[Key] = &[GRANT_SESSION, GRANT_OF];

/// The tables of a manifest: header as written, keys, meaning.
pub const TABLES: &[(&str, &[Key], &str)] = &[
    ("[machine]", MACHINE, "the model that every session shares"),
    ("[limits]", LIMITS, "a bound on everything a guest can use up"),
    ("[[session]]", SESSION, "one session, or `count` of them"),
    ("[[channel]]", CHANNEL, "one channel between sessions"),
    (
        "[[context]]",
        CONTEXT,
        "time for one session: a budget per period, by a deadline; refused at load if the lane cannot promise it",
    ),
    ("[[profile]]", PROFILES, "a template for contexts; gives nobody anything by itself"),
    ("[[grant]]", GRANT, "authority over time for one session"),
];
