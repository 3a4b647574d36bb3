//! Every key of a manifest, one table per section: name, accepted values, default, meaning.
//!
//! The reader, its suggestions, `docs/manifest.md` and the tests are generated from these tables.
//! No default depends on the host, because defaults affect the trace.

use crate::model::{CLASS_NAMES, Policy, SHARE_NAMES};

/// The values a key accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// An integer in a range, with an optional default.
    Number {
        /// The smallest value.
        least: u64,
        /// The largest value.
        most: u64,
        /// The value when the key is absent.
        default: Option<u64>,
    },
    /// `true` or `false`; `false` when absent.
    Switch,
    /// One of a set of words, with the default.
    Word {
        /// The words.
        choices: &'static [&'static str],
        /// The word when the key is absent.
        default: &'static str,
    },
    /// Another form: its description, and its default in words.
    Other {
        /// Its description.
        form: &'static str,
        /// The default in words; empty if the key is required.
        default: &'static str,
    },
}

/// One key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The values it accepts.
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
    #[must_use]
    pub const fn limit(name: &'static str, doc: &'static str) -> Self {
        Self::optional_number(name, 0, u64::MAX, doc)
    }

    /// The values it accepts, in words.
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

/// Maximum number of lanes of a machine.
pub const MOST_LANES: u64 = wavelock_system::MAX_LANES as u64;
/// The longest frame, quantum or wave.
pub const MOST_CYCLES: u64 = wavelock_system::MOST_CYCLES.0;
/// Maximum length of a session, channel or port name, in bytes.
pub(crate) const MOST_NAME_BYTES: usize = 64;
/// Maximum number of arguments, environment variables or ports of one session.
pub(crate) const MOST_ENTRIES: usize = 4_096;
/// Maximum number of these in all sessions together, counted once per session of a `count`.
pub(crate) const MOST_MACHINE_ENTRIES: u64 = 4_194_304;
/// Maximum number of channels of a machine up to a counted one.
pub(crate) const MOST_CHANNELS: u64 = 1_048_576;

pub(crate) const LANES: Key = Key::number(
    "lanes",
    1,
    MOST_LANES,
    1,
    "number of virtual CPUs; part of the model, so it affects the digest",
);
pub(crate) const POLICY: Key = Key {
    name: "policy",
    takes: Takes::Word { choices: Policy::NAMES, default: "round-robin" },
    doc: "scheduling policy of every lane",
};
pub(crate) const SHARE: Key = Key {
    name: "share",
    takes: Takes::Word { choices: SHARE_NAMES, default: "session" },
    doc: "who shares a lane under `fair`: sessions by weight, whatever they spawn, or each coroutine by the weight of its session",
};
pub(crate) const QUANTUM_CYCLES: Key = Key::number(
    "quantum_cycles",
    1,
    MOST_CYCLES,
    10_000,
    "cycles a coroutine runs before it is preempted",
);
pub(crate) const FRAME_CYCLES: Key = Key::number(
    "frame_cycles",
    1,
    MOST_CYCLES,
    1_000_000,
    "length of a frame in cycles, on every lane",
);
pub(crate) const WAVE_CYCLES: Key = Key::number(
    "wave_cycles",
    1,
    MOST_CYCLES,
    100_000,
    "length of a wave in cycles: each lane runs slices until its clock passes the wave's end",
);
pub(crate) const WAVE_PICKS: Key = Key::optional_number(
    "wave_picks",
    1,
    1_000_000,
    "length of a wave in picks per lane, instead of `wave_cycles`; with 1, effects cross lanes after every pick",
);
pub(crate) const SEED: Key = Key::number("seed", 0, u64::MAX, 0, "seed of every random stream");
pub(crate) const MAX_FRAMES: Key = Key::optional_number(
    "max_frames",
    1,
    u64::MAX,
    "the run stops after this many frames with outcome `frames`; without it there is no limit",
);
pub(crate) const MOST_GAP: Key = Key::optional_number(
    "most_gap_cycles",
    1,
    wavelock_abi::MAX_GAP.0,
    "the longest gap between safepoints that modules of sessions started later may have, counted in `G`; without it, that of the machine's own modules",
);
pub(crate) const HANDOFF: Key = Key::switch(
    "handoff",
    "direct handoff: after a send, the receiver that was blocked on it is the preferred next coroutine of its lane",
);
pub(crate) const STEAL: Key = Key::switch(
    "steal",
    "work stealing: at a wave's end an idle lane takes a whole session from another lane; sessions with `lane` or `lanes` stay",
);
pub(crate) const BALANCE: Key = Key::switch(
    "balance",
    "load balancing: at a frame's end the most loaded lane gives a whole session to the least loaded; sessions with `lane` or `lanes` stay",
);
pub(crate) const LIVE: Key = Key::switch(
    "live",
    "the machine takes inputs while it runs, waits when idle, and ends at a stop input",
);

/// `[machine]`.
pub const MACHINE: &[Key] = &[
    LANES,
    POLICY,
    SHARE,
    QUANTUM_CYCLES,
    FRAME_CYCLES,
    WAVE_CYCLES,
    WAVE_PICKS,
    SEED,
    MAX_FRAMES,
    HANDOFF,
    STEAL,
    BALANCE,
    LIVE,
    MOST_GAP,
];

macro_rules! limits {
    ($($name:ident: $least:literal..=$most:literal, $default:literal, $doc:literal;)*) => {
        /// `[limits]`: a finite limit on every resource a guest can use. Reaching one returns an
        /// error code to that guest or faults its coroutine.
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
            /// Each limit with its key, for reading and printing them.
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
    sessions: 1..=65_536, 65_536, "number of sessions of the machine";
    coroutines: 1..=16_777_216, 1_000_000, "coroutines of a session, from their spawn until they have ended and were joined or detached";
    stack_bytes: 1_024..=1_073_741_824, 1_048_576, "bytes of call and operand stack of one coroutine";
    session_stack_bytes: 1_024..=70_368_744_177_664, 1_073_741_824, "bytes of stack of all coroutines of a session together; the first 56 bytes of each are not counted";
    memory_pages: 0..=65_536, 1_024, "linear memory of a session, in pages of 64 KiB";
    table_elements: 0..=16_777_216, 1_000_000, "elements of each table of a session";
    channels: 0..=1_048_576, 65_536, "channels a session can create, in addition to those of the manifest";
    channel_capacity: 1..=16_777_216, 65_536, "largest capacity of a channel, in messages";
    message_bytes: 0..=16_777_216, 65_536, "bytes of one message";
    select: 1..=65_536, 1_024, "channels in one `select`";
    output_bytes: 0..=1_073_741_824, 1_048_576, "bytes of output of a session in one frame";
    log_bytes: 0..=1_073_741_824, 1_048_576, "bytes of log of a session in one frame; more is dropped";
    machine_memory: 1_048_576..=70_368_744_177_664, 8_589_934_592, "bytes of host memory that the machine may reserve for its guests; a machine that needs more is refused at load";
}

pub(crate) const NAME: Key = Key::other(
    "name",
    "letters, digits, `_`, `-`, `.`",
    "",
    "unique; seeds the session's random streams",
);
pub(crate) const MODULE: Key = Key::other(
    "module",
    "path of a `.wasm` or `.wat`",
    "",
    "the module it runs; the path is relative to the manifest",
);
pub(crate) const COUNT: Key = Key::optional_number(
    "count",
    1,
    65_536,
    "makes this many sessions, named `name.0`, `name.1`, ...; `{index}` in args, env and ports is replaced by the number",
);
pub(crate) const LANE: Key = Key::optional_number(
    "lane",
    0,
    MOST_LANES - 1,
    "its lane; without it, session i runs on lane i mod `lanes`",
);
pub(crate) const SESSION_LANES: Key = Key::other(
    "lanes",
    "list of lanes",
    "none",
    "lanes its coroutines may run on, instead of `lane`; the first is its home lane, with its channels and its first coroutine",
);
pub(crate) const PRIORITY: Key = Key::number(
    "priority",
    0,
    255,
    0,
    "priority of its coroutines under the priority policies; larger runs first",
);
pub(crate) const WEIGHT: Key = Key::number(
    "weight",
    1,
    65_535,
    1_024,
    "share of CPU time under `fair`, relative to other sessions of the lane (with `share = \"coroutine\"` that of each of its coroutines, relative to others)",
);
pub(crate) const CLASS: Key = Key {
    name: "class",
    takes: Takes::Word { choices: CLASS_NAMES, default: "normal" },
    doc: "latency class under `fair`: affects how soon a coroutine runs, never its share",
};
pub(crate) const ARGS: Key = Key::other(
    "args",
    "list of strings",
    "the session's name",
    "arguments that WASI `args_get` returns",
);
pub(crate) const ENV: Key = Key::other(
    "env",
    "table of strings",
    "empty",
    "environment variables that WASI `environ_get` returns, in name order",
);
pub(crate) const PORTS: Key = Key::other(
    "ports",
    "table: port name to channel name",
    "empty",
    "channels it can send to, or receive from as their owner, by the name that `port` finds; `{index}` in a port's name makes a port to each channel of a `count`",
);
pub(crate) const COROUTINE_GLOBALS: Key = Key::other(
    "coroutine_globals",
    "list of global names or indices",
    "empty; a warning if the module spawns and its stack pointer is not found",
    "globals of which each coroutine has its own copy, in addition to `__stack_pointer`; a name that does not exist is refused at load",
);

pub(crate) const CAP_CYCLES: Key = Key::optional_number(
    "budget_cycles",
    1,
    MOST_CYCLES,
    "its cap: cycles of a lane for all its coroutines together, per period; divided evenly among its `lanes`",
);
pub(crate) const CAP_PERIOD: Key = Key::number(
    "period_frames",
    1,
    wavelock_system::MOST_PERIOD_FRAMES,
    1,
    "frames after which the cap is refilled",
);
pub(crate) const CAP_OVERRUN: Key = Key {
    name: "overrun",
    takes: Takes::Word { choices: &["throttle", "demote", "end"], default: "throttle" },
    doc: "what happens when it has used up its cap: until the next refill its coroutines do not run (`throttle`), or only when no other coroutine of the lane is ready (`demote`); or the session is ended, as killed (`end`)",
};

pub(crate) const SESSION_PROFILE: Key = Key::other(
    "profile",
    "profile name",
    "none",
    "a `[[profile]]` with the limits and the cap that this table leaves out",
);
pub(crate) const OWN_COROUTINES: Key = Key::optional_number(
    "coroutines",
    1,
    16_777_216,
    "its limit on coroutines; without it, that of `[limits]`",
);
pub(crate) const OWN_STACK: Key = Key::optional_number(
    "stack_bytes",
    1_024,
    1_073_741_824,
    "its limit on bytes of stack of one coroutine; without it, that of `[limits]`",
);
pub(crate) const OWN_STACKS: Key = Key::optional_number(
    "session_stack_bytes",
    1_024,
    70_368_744_177_664,
    "its limit on bytes of stack of all its coroutines; without it, that of `[limits]`",
);
pub(crate) const OWN_MEMORY: Key = Key::optional_number(
    "memory_pages",
    0,
    65_536,
    "its limit on linear memory, in pages of 64 KiB; without it, that of `[limits]`",
);
pub(crate) const OWN_CHANNELS: Key = Key::optional_number(
    "channels",
    0,
    1_048_576,
    "its limit on channels it creates; without it, that of `[limits]`",
);
pub(crate) const OWN_OUTPUT: Key = Key::optional_number(
    "output_bytes",
    0,
    1_073_741_824,
    "its limit on bytes of output in one frame; without it, that of `[limits]`",
);

/// What a session can take from a profile.
pub(crate) const OF_PROFILES: &[Key] = &[
    CAP_CYCLES,
    CAP_PERIOD,
    CAP_OVERRUN,
    OWN_COROUTINES,
    OWN_STACK,
    OWN_STACKS,
    OWN_MEMORY,
    OWN_CHANNELS,
    OWN_OUTPUT,
];

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
    CAP_CYCLES,
    CAP_PERIOD,
    CAP_OVERRUN,
    SESSION_PROFILE,
    OWN_COROUTINES,
    OWN_STACK,
    OWN_STACKS,
    OWN_MEMORY,
    OWN_CHANNELS,
    OWN_OUTPUT,
];

/// `[template]`.
pub(crate) const TEMPLATE: &[Key] = &[
    LANE,
    PRIORITY,
    WEIGHT,
    CLASS,
    ARGS,
    ENV,
    PORTS,
    COROUTINE_GLOBALS,
    CAP_CYCLES,
    CAP_PERIOD,
    CAP_OVERRUN,
    SESSION_PROFILE,
    OWN_COROUTINES,
    OWN_STACK,
    OWN_STACKS,
    OWN_MEMORY,
    OWN_CHANNELS,
    OWN_OUTPUT,
];

pub(crate) const CHANNEL_NAME: Key =
    Key::other("name", "letters, digits, `_`, `-`, `.`", "", "unique; what `ports` refer to");
pub(crate) const CHANNEL_COUNT: Key = Key::optional_number(
    "count",
    1,
    65_536,
    "makes this many channels; `{index}` in their name, which must have it, and in `owner` is replaced by the number",
);
pub(crate) const OWNER: Key = Key::other(
    "owner",
    "session name",
    "",
    "the only session that receives from it; for a counted session the full name, such as `worker.0`",
);
pub(crate) const CAPACITY: Key = Key::number(
    "capacity",
    1,
    16_777_216,
    64,
    "capacity in messages; at most the limit `channel_capacity`",
);

/// `[[channel]]`.
pub const CHANNEL: &[Key] = &[CHANNEL_NAME, CHANNEL_COUNT, OWNER, CAPACITY];

pub(crate) const CONTEXT_NAME: Key = Key::other(
    "name",
    "letters, digits, `_`, `-`, `.`",
    "",
    "its name for `capability` and in reports; unique in its session",
);
pub(crate) const CONTEXT_SESSION: Key = Key::other(
    "session",
    "session name",
    "",
    "the session whose first coroutine holds it; it is on that session's home lane",
);
pub(crate) const PROFILE: Key = Key::other(
    "profile",
    "profile name",
    "none",
    "a `[[profile]]` with the values that this table leaves out",
);
pub(crate) const BUDGET_CYCLES: Key = Key::optional_number(
    "budget_cycles",
    1,
    MOST_CYCLES,
    "cycles of lane time per period; required here or in the profile",
);
pub(crate) const PERIOD_CYCLES: Key = Key::optional_number(
    "period_cycles",
    1,
    MOST_CYCLES,
    "length of the period in cycles; required here or in the profile",
);
pub(crate) const DEADLINE_CYCLES: Key = Key::optional_number(
    "deadline_cycles",
    1,
    MOST_CYCLES,
    "cycles from a release to its deadline; without it, the period",
);
pub(crate) const REFILLS: Key = Key::optional_number(
    "refills",
    2,
    8,
    "maximum number of separate refills of the budget; without it, 4",
);
pub(crate) const OVERRUN: Key = Key {
    name: "overrun",
    takes: Takes::Word {
        choices: &["throttle", "notify-and-throttle", "demote", "notify-only", "end"],
        default: "throttle",
    },
    doc: "what happens to the holder when it uses up a refill",
};
pub(crate) const ACTIVATION: Key = Key {
    name: "activation",
    takes: Takes::Word { choices: &["sporadic", "constant-bandwidth"], default: "sporadic" },
    doc: "whether a refill's period starts when its holder becomes ready (`sporadic`) or when it runs (`constant-bandwidth`)",
};

pub(crate) const CONTEXT_LANES: Key = Key::other(
    "lanes",
    "list of lanes",
    "the session's home lane",
    "lanes it may be on: its session is placed on the first of them, lowest number first, that can guarantee it; not for a session with `lane` or `lanes`, unless its home is one of them",
);
pub(crate) const FALLBACK: Key = Key {
    name: "fallback",
    takes: Takes::Word { choices: &["best-effort", "held"], default: "best-effort" },
    doc: "what its holder does when it is revoked: it runs as best effort, or does not run until it is bound to another context",
};

/// `[[context]]`.
pub(crate) const CONTEXT: &[Key] = &[
    CONTEXT_NAME,
    CONTEXT_SESSION,
    CONTEXT_LANES,
    FALLBACK,
    PROFILE,
    BUDGET_CYCLES,
    PERIOD_CYCLES,
    DEADLINE_CYCLES,
    REFILLS,
    OVERRUN,
    ACTIVATION,
];

const PROFILE_BUDGET: Key = Key::optional_number(
    "budget_cycles",
    1,
    MOST_CYCLES,
    "cycles of lane time per period, of a context or of a session's cap",
);
const PROFILE_OVERRUN: Key = Key {
    name: "overrun",
    takes: Takes::Word {
        choices: &["throttle", "notify-and-throttle", "demote", "notify-only", "end"],
        default: "throttle",
    },
    doc: "what happens when the budget is used up; a cap takes `throttle`, `demote` and `end` only",
};
const PROFILE_FRAMES: Key = Key::optional_number(
    "period_frames",
    1,
    wavelock_system::MOST_PERIOD_FRAMES,
    "frames after which the cap of a session is refilled",
);
pub(crate) const PROFILE_NAME: Key =
    Key::other("name", "letters, digits, `_`, `-`, `.`", "", "unique; what `profile` refers to");

/// `[[profile]]`.
pub(crate) const PROFILES: &[Key] = &[
    PROFILE_NAME,
    PROFILE_BUDGET,
    PERIOD_CYCLES,
    DEADLINE_CYCLES,
    REFILLS,
    PROFILE_OVERRUN,
    ACTIVATION,
    PROFILE_FRAMES,
    OWN_COROUTINES,
    OWN_STACK,
    OWN_STACKS,
    OWN_MEMORY,
    OWN_CHANNELS,
    OWN_OUTPUT,
];

pub(crate) const GRANT_SESSION: Key =
    Key::other("session", "session name", "", "the session that receives it");
pub(crate) const GRANT_OF: Key = Key::other(
    "of",
    "`\"control\"`, `\"policy\"`, `\"isolation\"`",
    "",
    "`control`: it may create contexts on its home lane; `policy`: it may change weights, classes and priorities of its coroutines; `isolation`: it may ask for the machine's leases and end them",
);

/// `[[grant]]`.
pub(crate) const GRANT: &[Key] = &[GRANT_SESSION, GRANT_OF];

pub(crate) const ISLAND_NAME: Key =
    Key::other("name", "letters, digits, `_`, `-`, `.`", "", "unique; for reports");
pub(crate) const ISLAND_MEMBERS: Key = Key::other(
    "members",
    "list of `SESSION/CONTEXT`",
    "",
    "the contexts of its members, each of another session, all with the island's period",
);
pub(crate) const ISLAND_PATH: Key = Key::other(
    "path",
    "list of channel names",
    "none",
    "the channels between its members; only members may be wired to them",
);
pub(crate) const ISLAND_PAGES: Key = Key::optional_number(
    "memory_pages",
    0,
    1 << 32,
    "pages that the memories of all members may have together at their maximum",
);
pub(crate) const ISLAND_PERIOD: Key =
    Key::optional_number("period_cycles", 1, MOST_CYCLES, "its period; required");
pub(crate) const ISLAND_DEADLINE: Key = Key::optional_number(
    "deadline_cycles",
    1,
    MOST_CYCLES,
    "cycles from the release of the first member of a path to the end of the last; without it, the period",
);
pub(crate) const ISLAND_BOUNDS: Key = Key::other(
    "bounds",
    "list of lines",
    "none",
    "bounds of loops and sizes of its members' code, beside those of their modules",
);

/// `[[island]]`.
pub(crate) const ISLAND: &[Key] = &[
    ISLAND_NAME,
    ISLAND_MEMBERS,
    ISLAND_PATH,
    ISLAND_PAGES,
    ISLAND_PERIOD,
    ISLAND_DEADLINE,
    ISLAND_BOUNDS,
];

pub(crate) const LEASE_NAME: Key = Key::other(
    "name",
    "letters, digits, `_`, `-`, `.`",
    "",
    "its name for `lease_request`, control inputs and reports; unique",
);
pub(crate) const LEASE_SESSION: Key =
    Key::other("session", "session name", "", "the session of the coroutine that gets the lane");
pub(crate) const LEASE_CONTEXT: Key = Key::other(
    "context",
    "context name",
    "",
    "a context of that session, which pays: its lane is leased, to the coroutine that holds it",
);
pub(crate) const LEASE_LANE: Key = Key::optional_number(
    "lane",
    1,
    1_023,
    "the lane that this is meant to be; another one is refused at load. Lane 0 is never leased",
);
pub(crate) const LEASE_WAKES: Key = Key::other(
    "wakes",
    "list of channel names",
    "none",
    "channels of the session whose messages may arrive while the lane is leased; every other one must have no open sender",
);
pub(crate) const LEASE_EXPIRES: Key = Key::optional_number(
    "expires_frames",
    1,
    1_000_000_000_000,
    "frames after its activation at whose start it ends; without it, it does not end by itself",
);
pub(crate) const LEASE_REVOCATION: Key = Key::optional_number(
    "revocation_cycles",
    1,
    MOST_CYCLES,
    "cycles within which a revocation opens the lane again; without it the least that can be kept, `wave_cycles` + 2 * G",
);
pub(crate) const LEASE_REQUESTED: Key = Key {
    name: "requested",
    takes: Takes::Word { choices: &["at-start", "later"], default: "at-start" },
    doc: "when it is asked for: at the machine's start, or later by a session with the isolation grant or by the host",
};

/// `[[lease]]`.
pub(crate) const LEASE: &[Key] = &[
    LEASE_NAME,
    LEASE_SESSION,
    LEASE_CONTEXT,
    LEASE_LANE,
    LEASE_WAKES,
    LEASE_EXPIRES,
    LEASE_REVOCATION,
    LEASE_REQUESTED,
];

/// The tables of a manifest: header as written, keys, meaning.
pub const TABLES: &[(&str, &[Key], &str)] = &[
    ("[machine]", MACHINE, "the machine that all sessions share"),
    ("[limits]", LIMITS, "a limit on every resource a guest can use"),
    ("[[session]]", SESSION, "one session, or `count` of them"),
    ("[[channel]]", CHANNEL, "one channel between sessions"),
    (
        "[template]",
        TEMPLATE,
        "what a session has that a live run starts, from a folder or by a line; part of no identity, because each start is recorded",
    ),
    (
        "[[context]]",
        CONTEXT,
        "reserved CPU time for one session: a budget per period, by a deadline; refused at load if the lane cannot guarantee it",
    ),
    ("[[profile]]", PROFILES, "a template for contexts and sessions; reserves nothing by itself"),
    ("[[grant]]", GRANT, "authority over CPU time for one session"),
    (
        "[[lease]]",
        LEASE,
        "a lane for one coroutine alone, while it has the lease; its context has to be there",
    ),
    (
        "[[island]]",
        ISLAND,
        "contexts and the channels between them, admitted as a whole; refused at load with the arithmetic",
    ),
];
