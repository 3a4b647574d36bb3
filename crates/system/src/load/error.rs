//! Errors and warnings of loading.
//!
//! Each message has what was found and what is allowed, in terms of the manifest's keys, and the
//! fix.

use super::{MAX_LANES, MOST_CYCLES, MOST_PERIOD_FRAMES};
use crate::errors::errors;
use crate::island::IslandRefusal;
use crate::lease::LeaseError;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{Cycles, SCHEDULER_COSTS_V1};
use wavelock_kernel::{ContextRefusal, Refusal};
use wavelock_machine::{LinkError, SessionError, StartError};

errors! {
    /// Why a machine could not be made.
    LoadError {
        /// The machine has no lane, or more than it may.
        Lanes {
            /// Lanes of the spec.
            found: u16,
        } => "lanes = {found}: a machine has 1 to {MAX_LANES} lanes",
        /// The machine has no session.
        NoSession => "the machine has no session: add a [[session]] with a name and a module",
        /// More sessions than the limit.
        Sessions {
            /// Sessions of the spec.
            found: u64,
            /// The limit.
            allowed: u32,
        } => "{found} sessions: limits.sessions allows {allowed}",
        /// The initial memories of the sessions exceed the machine's.
        MachineMemory {
            /// Bytes all sessions need at load.
            found: u64,
            /// The limit.
            allowed: u64,
        } => "the sessions' memories take {found} bytes at load: limits.machine_memory allows {allowed}",
        /// Tables, globals and functions of the sessions exceed the machine's memory.
        MachineTables {
            /// Bytes all sessions need at load.
            found: u64,
            /// The limit.
            allowed: u64,
        } => "the sessions' tables, globals and functions take {found} bytes at load: limits.machine_memory allows {allowed}",
        /// A length of time is shorter than can be enforced (semantics 21).
        TooShort {
            /// Which: `frame_cycles`, `wave_cycles` or `quantum_cycles`.
            key: &'static str,
            /// What was found.
            found: Cycles,
            /// The least: 2 * (G + switch cost).
            least: Cycles,
            /// The longest gap of the modules.
            gap: Cycles,
        } => "{key} = {}: at least {} can be enforced, 2 * (G + switch) with G = {} of the modules and switch = {}"
            (found.0, least.0, gap.0, SCHEDULER_COSTS_V1.switch.0),
        /// A wave of no picks.
        NoPicks => "wave_picks = 0: a wave of no picks would never end; use at least 1",
        /// A frame, wave or quantum is longer than clocks can count.
        TooLong {
            /// The manifest's key.
            key: &'static str,
            /// Its value.
            found: Cycles,
        } => "{key} = {}: at most {} can be counted" (found.0, MOST_CYCLES.0),
        /// A session names a lane that does not exist.
        NoLane {
            /// The session.
            session: String,
            /// The lane.
            lane: u16,
            /// The number of lanes.
            lanes: u16,
        } => "session `{session}` is on lane {lane}: there are lanes 0 to {}" (lanes.saturating_sub(1)),
        /// A session has no lane, or one of them twice.
        Placement {
            /// The session.
            session: String,
            /// Its lanes as given.
            lanes: Vec<u16>,
        } => "session `{session}` has lanes {lanes:?}: name at least one, and each once",
        /// An index names something that the description does not have.
        Reference {
            /// Who names it, with its own name.
            by: String,
            /// What it should be: a module, channel or session.
            what: &'static str,
            /// The index.
            found: u64,
            /// How many exist.
            count: u64,
        } => "{by} names {what} {found}: there are {count}, counted from 0",
        /// Two sessions have one name.
        SameName {
            /// The name.
            name: String,
            /// The first of them.
            first: u64,
            /// The other.
            second: u64,
        } => "sessions {first} and {second} are both named `{name}`: give each a name of its own",
        /// A lease that cannot be.
        Lease {
            /// The lease.
            lease: String,
            /// Why not.
            error: LeaseError,
        } => "lease `{lease}` cannot be: {error}",
        /// A session is started on a lane that may be leased.
        LeasedLane {
            /// The session.
            session: String,
            /// The lane.
            lane: u16,
            /// The lease.
            lease: String,
        } => "session `{session}` is for lane {lane}, which lease `{lease}` keeps for its holder: \
              give it another lane, or none",
        /// Input events are not in the order of their frames.
        InputOrder {
            /// The first that comes too late.
            at: u64,
            /// Its frame.
            frame: u64,
            /// The frame of the one before it.
            before: u64,
        } => "input {at} is for frame {frame} and follows one for frame {before}: sort inputs by frame",
        /// Too many functions of the embedder.
        HostFunctions {
            /// How many there are.
            found: u64,
            /// How many may be.
            allowed: u64,
        } => "the host has {found} functions: at most {allowed} are allowed",
        /// A function of the embedder that cannot be.
        HostFunction {
            /// Its module and name.
            name: String,
            /// Why not.
            why: &'static str,
        } => "the host cannot have the function `{name}`: {why}",
        /// Imports that the guest interface does not provide.
        MissingImports {
            /// The session.
            session: String,
            /// Each of them.
            missing: Vec<MissingImport>,
        } => "session `{session}` imports what does not exist:{}" (Lines(missing)),
        /// The module exports neither `_start` nor `main` of type `() -> ()` or `() -> i32`.
        NoEntry {
            /// The session.
            session: String,
            /// What was found under those names.
            found: Option<String>,
        } => "session `{session}`: {}; an entry is a function () -> () or () -> i32"
            (found.as_deref().unwrap_or("the module exports neither `_start` nor `main`")),
        /// A global named as coroutine-local does not exist.
        NoGlobal {
            /// The session.
            session: String,
            /// The name.
            global: String,
        } => "session `{session}`: coroutine_globals names `{global}`, which is neither exported nor in the name section",
        /// A channel's capacity is not allowed.
        Capacity {
            /// The channel.
            channel: String,
            /// Its capacity.
            found: u32,
            /// The limit.
            allowed: u32,
        } => "channel `{channel}` has capacity {found}: 1 to limits.channel_capacity = {allowed} are allowed",
        /// The cap of a session, or its part on one lane, is less than can be enforced.
        CapTooSmall {
            /// The session.
            session: String,
            /// Its budget.
            found: Cycles,
            /// Its lanes, among which the budget is divided.
            lanes: u16,
            /// The least per lane: 2 * (G + switch cost).
            least: Cycles,
            /// The longest gap of the modules.
            gap: Cycles,
        } => "session `{session}` has budget_cycles = {} for {lanes} lane(s): at least {} per lane can be enforced, \
              2 * (G + switch) with G = {} of the modules and switch = {}"
            (found.0, least.0, gap.0, SCHEDULER_COSTS_V1.switch.0),
        /// The period of a cap is empty or too long.
        CapPeriod {
            /// The session.
            session: String,
            /// Frames of the period.
            found: u64,
        } => "session `{session}` has period_frames = {found}: a period has 1 to {MOST_PERIOD_FRAMES} frames",
        /// A deviation from the policy is not possible.
        Deviation {
            /// The lane it is about.
            lane: u16,
            /// The pick.
            pick: u64,
            /// What is wrong with it.
            why: &'static str,
        } => "the deviation at pick {pick} of lane {lane}: {why}",
        /// A session could not be linked.
        Link {
            /// The session.
            session: String,
            /// Why.
            error: LinkError,
        } => "session `{session}`: {error}",
        /// A host function could not be added.
        Session {
            /// The session.
            session: String,
            /// Why.
            error: SessionError,
        } => "session `{session}`: {error}",
        /// The first coroutine could not be started.
        Start {
            /// The session.
            session: String,
            /// Why.
            error: StartError,
        } => "session `{session}`: the first coroutine cannot start: {error}",
        /// A machine with contexts counts its waves in picks.
        ContextsNeedCycles {
            /// `wave_picks`.
            picks: u32,
        } => "wave_picks = {picks}: contexts need waves of cycles, because budgets and deadlines are cycles; use wave_cycles",
        /// A context of the manifest was refused.
        Context {
            /// The context.
            context: String,
            /// Why, with the numbers.
            refusal: ContextRefusal,
        } => "context `{context}`: {}" (Refused(refusal)),
        /// No lane of a context's mask can promise it.
        NoLaneOfMask {
            /// The context.
            context: String,
            /// Why, by lane, with the numbers.
            refusals: Vec<(u16, ContextRefusal)>,
        } => "context `{context}`: none of its lanes can promise it{}" (ByLane(refusals)),
        /// A context's session is on a lane outside its mask and does not move.
        OutsideMask {
            /// The context.
            context: String,
            /// The lane of its session.
            lane: u16,
            /// The mask.
            lanes: Vec<u16>,
        } => "context `{context}` may be on lanes {lanes:?}, and its session stays on lane {lane}: leave out the session's `lane` or \
              `lanes`, add lane {lane} to those of the context, or give all contexts of the session the same lanes",
        /// An island of the manifest was refused.
        Island {
            /// The island.
            island: String,
            /// Why, with the numbers.
            refusal: IslandRefusal,
        } => "island `{island}` is not admitted ({}): {refusal}" (refusal.stage().name()),
        /// A lane of a context's mask does not exist, or is listed twice.
        Mask {
            /// The context.
            context: String,
            /// The mask.
            found: Vec<u16>,
            /// The machine's lanes.
            lanes: u16,
        } => "context `{context}`: lanes {found:?}, each once and below {lanes} are allowed",
        /// The scheduler refused the machine's settings.
        Machine {
            /// Why.
            refusal: Refusal,
        } => "the scheduler refused the machine: {refusal}",
        /// The scheduler refused a first coroutine.
        Kernel {
            /// The session.
            session: String,
            /// Why.
            refusal: Refusal,
        } => "session `{session}`: the scheduler refused its first coroutine: {refusal}",
    }
}

errors! {
    /// A likely mistake in a machine that can be loaded, with its fix.
    Warning {
        /// It spawns, but the compiler's stack pointer was not found, so coroutines would share one
        /// shadow stack.
        NoStackPointer {
            /// The session.
            session: String,
        } => "session `{session}` spawns coroutines, but its `__stack_pointer` was not found: code from C or Rust would share one \
              shadow stack. Keep the name section, export the global, or name it in coroutine_globals",
        /// A passive server whose clients are on other lanes.
        PassiveServer {
            /// The server.
            session: String,
            /// Its lane.
            lane: u16,
            /// Its clients on other lanes, in words.
            clients: String,
        } => "session `{session}` serves calls on time that they lend, and a call from another lane lends none: it is refused with \
              EDENIED. Its callers on other lanes: {clients}. Give them `lane = {lane}`, or `{session}` a `[[context]]` of its own",
    }
}

/// An import that the guest interface does not provide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingImport {
    /// The module it is imported from.
    pub module: String,
    /// Its name.
    pub name: String,
    /// As what it is imported, and as what it exists if it does.
    pub wanted: String,
}

impl fmt::Display for MissingImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` `{}` {}", self.module, self.name, self.wanted)
    }
}

/// Missing imports, one per line.
struct Lines<'a>(&'a [MissingImport]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|import| write!(f, "\n  {import}"))
    }
}

/// Refusals of a context, one line per lane.
struct ByLane<'a>(&'a [(u16, ContextRefusal)]);

impl fmt::Display for ByLane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut refusals = self.0.iter();
        refusals.try_for_each(|(lane, refusal)| write!(f, "\n  lane {lane}: {}", Refused(refusal)))
    }
}

/// A refusal of the kernel in the manifest's terms.
struct Refused<'a>(&'a ContextRefusal);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ContextRefusal::TargetBound { .. } => {
                f.write_str("the session's first coroutine has a context already")
            }
            refusal => refusal.fmt(f),
        }
    }
}
