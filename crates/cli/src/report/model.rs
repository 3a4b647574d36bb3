//! The results of a run as data: the summary that `run --json` prints, and the report that `run
//! --report` writes.
//!
//! The report is a function of the model, like the digest: it contains no telemetry, so two reports
//! of one run are equal byte for byte. Lists are bounded: the rest is summed in an `others` row, so
//! every total still adds up.

use super::contexts::ContextRow;
use super::inversions::InversionRow;
use super::islands::IslandRow;
use super::leases::LeaseRow;
use super::waves::WavesRow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wavelock_trace::StopCode;

/// The first field of a report file.
pub const FORMAT: &str = "wavelock-report";
/// The version of the report file.
pub const VERSION: u32 = 1;
/// Coroutines and functions listed per session, and frames listed per metric, at most.
pub const LISTED: usize = 256;

/// Cycles of a machine. `total` is the sum of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CycleRow {
    /// Charged to coroutines.
    pub charged: u64,
    /// Spent by the scheduler's own operations.
    pub overhead: u64,
    /// Nothing was ready.
    pub idle: u64,
    /// Their sum.
    pub total: u64,
}

/// Coroutines of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CoroutineCounts {
    /// Number spawned.
    pub spawned: u64,
    /// Number that returned or exited.
    pub finished: u64,
    /// Number that ended by a fault.
    pub faulted: u64,
    /// Number that a budget ended.
    #[serde(default)]
    pub killed: u64,
    /// Maximum alive at once.
    pub peak: u64,
}

/// One session in the summary.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its name.
    pub name: String,
    /// How it ended: `finished`, `exited` (with another code than 0), `faulted`, `killed`,
    /// `canceled`, `deadlocked`; or that it did not: `frames`, `stopped`,
    /// `time`, `interrupted`.
    pub outcome: String,
    /// Its exit code.
    pub exit: i32,
    /// Cycles charged to its coroutines.
    pub cycles: u64,
    /// Hash of its observables, in hex.
    pub digest: String,
    /// Input events it did not read, if there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unread_input: Option<UnreadRow>,
    /// The head of its output, in `run --json` and `resume --json`, if it wrote any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<OutputRow>,
    /// The head of its log, as of its output.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log: Option<OutputRow>,
    /// Its first faults.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub faults: Vec<FaultRow>,
    /// The first of its coroutines that a budget ended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub kills: Vec<KillRow>,
    /// Names for which `port` found nothing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missed_ports: Vec<String>,
    /// Its cap, by lane, if it has one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cap: Vec<CapRow>,
}

/// A coroutine that a budget ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KillRow {
    /// The slot of the coroutine; 0 if the whole session was killed, by its cap.
    pub slot: u32,
    /// The generation of the coroutine.
    pub generation: u32,
    /// The budget: `context` or `cap`.
    pub rule: String,
    /// The name of the context, if it is one of the manifest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<String>,
    /// The frame.
    pub frame: u64,
    /// The lane.
    pub lane: u16,
    /// The lane's clock.
    pub clock: u64,
    /// What could be used.
    pub budget_cycles: u64,
    /// What was used beyond it.
    pub overrun_cycles: u64,
    /// The same in words.
    pub reason: String,
}

impl KillRow {
    /// What was killed: a coroutine, or the whole session.
    pub(crate) fn subject(&self, session: &str) -> String {
        if self.rule == "cap" {
            session.to_owned()
        } else {
            format!("{session}/{}.{}", self.slot, self.generation)
        }
    }
}

/// The cap of a session on one of its lanes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CapRow {
    /// The lane.
    pub lane: u16,
    /// Cycles per period on this lane.
    pub budget_cycles: u64,
    /// Frames of a period.
    pub period_frames: u64,
    /// What happens when it is used up.
    pub overrun: String,
    /// Cycles used in the last period, the overrun of earlier ones included.
    pub used_cycles: u64,
    /// Cycles charged to it in the whole run: guest cycles, picks, switches and wakes.
    pub charged_cycles: u64,
    /// Times it was used up, whatever that did.
    pub throttled: u64,
    /// Most cycles used beyond the budget.
    pub longest_overrun_cycles: u64,
    /// While it is used up and throttles: the frame in which the session can run again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_until_frame: Option<u64>,
    /// While it is used up and demotes: the frame in which the session competes again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub demoted_until_frame: Option<u64>,
    /// Cycles that were used while the session was demoted; they are not charged.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub demoted_cycles: u64,
}

impl CapRow {
    /// The row in words, without the session.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "used up its cap {} on lane {}: {} cycles per {}, {} charged, longest overrun {}",
            crate::table::plural(self.throttled, "time"),
            self.lane,
            crate::manifest::grouped(self.budget_cycles),
            crate::table::plural(self.period_frames, "frame"),
            crate::manifest::grouped(self.charged_cycles),
            crate::manifest::grouped(self.longest_overrun_cycles)
        );
        if let Some(frame) = self.throttled_until_frame {
            text += &format!("; throttled until frame {}", crate::manifest::grouped(frame));
        }
        if self.overrun == "demote" {
            let cycles = crate::manifest::grouped(self.demoted_cycles);
            text += &format!("; {cycles} more when no other coroutine was ready");
        }
        if let Some(frame) = self.demoted_until_frame {
            text += &format!("; demoted until frame {}", crate::manifest::grouped(frame));
        }
        text
    }

    /// What happened to the session.
    pub(crate) fn word(&self) -> &'static str {
        if self.overrun == "demote" { "demoted" } else { "throttled" }
    }

    /// Whether the session used it up and lives on.
    pub(crate) fn is_noted(&self) -> bool {
        self.throttled > 0 && self.overrun != "end"
    }
}

/// The head of what a session wrote.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OutputRow {
    /// Bytes it wrote.
    pub bytes: u64,
    /// Bytes that are not here, because of the limits on this object.
    pub cut: u64,
    /// The head, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// The head in hex, if it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hex: Option<String>,
}

/// Input events that a session did not read (rule 32 of `docs/spec/semantics.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnreadRow {
    /// Dropped, because `input` did not take them in their frame.
    pub dropped: u64,
    /// Left when the session or the run ended.
    pub left: u64,
}

/// One fault: the coroutine, the reason and the position.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FaultRow {
    /// The coroutine's slot.
    pub slot: u32,
    /// Which use of the slot.
    pub generation: u32,
    /// The reason.
    pub reason: String,
    /// The function it was in.
    pub function: String,
    /// Byte offset in the module.
    pub offset: u32,
    /// The line of its source, if the module has lines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// The callers, the innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub callers: Vec<CallerRow>,
    /// Callers that are not listed.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub more_callers: u64,
}

/// A function that was active when a coroutine faulted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallerRow {
    /// The function.
    pub function: String,
    /// Byte offset in the module, behind the call.
    pub offset: u32,
    /// The line of the call, if the module has lines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
}

/// One coroutine that waits forever.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WaitRow {
    /// Its session, slot and generation.
    pub coroutine: String,
    /// Why.
    pub reason: String,
    /// What it waits for.
    pub target: String,
}

/// A deadlock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DeadlockRow {
    /// Number of waiting coroutines.
    pub waiting: u64,
    /// The smallest set that waits only for itself.
    pub closed_set: Vec<WaitRow>,
    /// A cycle in it, if there is one: each waits for the next, the last for the first.
    pub cycle: Vec<WaitRow>,
}

/// What depends on the host. Never part of a digest or a report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Telemetry {
    /// Native threads.
    pub workers: u64,
    /// Waves that were run.
    pub waves: u64,
    /// Waves whose certificate was accepted.
    pub certified: u64,
    /// Waves whose certificate was refused; they ran one step at a time.
    pub refused: u64,
    /// Number of refusals by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub refusals: BTreeMap<String, u64>,
    /// The last refusal in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_refusal: Option<String>,
    /// Waves that ran on one thread and so needed no certificate.
    pub unclaimed: u64,
    /// Waves that ran on several threads.
    pub parallel: u64,
    /// Waves whose inboxes were also committed on several threads.
    #[serde(default)]
    pub settled: u64,
    /// Waves that ran on one thread: one group had work, or there is one worker.
    pub one_group: u64,
    /// Waves that ran on one thread because there was too little work for several.
    pub short: u64,
    /// Maximum number of groups with work in a planned wave.
    pub widest: u64,
    /// Waves in which the first thread finished and waited for another.
    pub waited: u64,
    /// Groups run or committed by another thread than their own, because theirs was late.
    #[serde(default)]
    pub taken_over: u64,
    /// Sleeping workers that were woken.
    pub unparks: u64,
    /// What came from outside of a live run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub live: Option<LiveRow>,
    /// Wall-clock time.
    pub wall_seconds: f64,
}

/// What came from outside of a live run, and what did not reach it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveRow {
    /// Requests that became inputs.
    pub taken: u64,
    /// Lines that were refused.
    pub refused: u64,
    /// Sessions that lines or the watched folder started.
    #[serde(default)]
    pub started: u64,
    /// Sessions that got another module.
    #[serde(default)]
    pub replaced: u64,
    /// Sessions that they ended.
    #[serde(default)]
    pub ended: u64,
    /// Versions of files of the watched folder that could not become a session.
    #[serde(default)]
    pub skipped: u64,
    /// Clients that connected.
    pub clients: u64,
    /// Clients that were refused, because too many were connected.
    pub turned_away: u64,
    /// Clients that were disconnected for what they sent.
    pub disconnected: u64,
    /// Output that readers did not get, because they were too slow.
    pub dropped: DroppedRow,
    /// Frames per second; 0 is as fast as possible.
    pub rate: f64,
    /// Frames that were due and not run, because the host was too slow.
    pub late: u64,
}

/// Output that was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DroppedRow {
    /// Frames, counted for each reader.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The object that `run --json` prints.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// `finished`, `frames`, `deadlocked`, `faulted`, `stopped`, `killed`, `time`,
    /// `recorded` or `interrupted`.
    pub outcome: String,
    /// Hash of the whole trace, in hex.
    pub digest: String,
    /// Frames that passed.
    pub frames: u64,
    /// Number of steps.
    pub steps: u64,
    /// Where the cycles went.
    pub cycles: CycleRow,
    /// Coroutines.
    pub coroutines: CoroutineCounts,
    /// Sessions, in manifest order.
    pub sessions: Vec<SessionSummary>,
    /// Lanes, in order.
    #[serde(default)]
    pub lanes: Vec<LaneRow>,
    /// Counted sessions together: the instances of one `[[session]]` with `count`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub services: Vec<ServiceRow>,
    /// Leases of the description; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub leases: Vec<LeaseRow>,
    /// Steals that took nothing because of a coroutine that may not move, if there were any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stuck_migrations: Option<StuckRow>,
    /// Bytes of the trace, in `--json` of a run that recorded one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_bytes: Option<u64>,
    /// The deadlock that ended the run, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadlock: Option<DeadlockRow>,
    /// What depends on the host; absent in a report.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub telemetry: Option<Telemetry>,
}

/// One lane.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LaneRow {
    /// Cycles charged to coroutines.
    pub charged: u64,
    /// Cycles of the scheduler.
    pub overhead: u64,
    /// Cycles with nothing to run.
    pub idle: u64,
    /// Its counters by name; the measured ones only of a run with `--measure`.
    pub counters: BTreeMap<String, u64>,
    /// Its wakes by source.
    pub wakes: BTreeMap<String, u64>,
}

/// Steals that took nothing, although a coroutine had waited too long: its session may not move.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StuckRow {
    /// How many.
    pub steals: u64,
    /// The coroutine that had waited longest, as `session/slot`.
    pub coroutine: String,
    /// Its lane.
    pub lane: u16,
    /// How long it had waited.
    pub waited_cycles: u64,
    /// What is too long.
    pub limit_cycles: u64,
    /// Why its session may not move.
    pub reason: String,
    /// What to change.
    pub fix: String,
}

impl StuckRow {
    /// One line, with the fix.
    pub(crate) fn text(&self) -> String {
        use crate::manifest::grouped;
        format!(
            "{} waited {} cycles on lane {} while another lane was idle, {} are the limit; {} took \
             nothing, because its session may not move: {}. To let it move, {}",
            self.coroutine,
            grouped(self.waited_cycles),
            self.lane,
            grouped(self.limit_cycles),
            crate::table::plural(self.steals, "steal"),
            self.reason,
            self.fix
        )
    }
}

/// The instances of a counted session together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServiceRow {
    /// The name in the manifest.
    pub name: String,
    /// How many instances it has.
    pub sessions: u64,
    /// Cycles charged to them.
    pub cycles: u64,
    /// Coroutines they had.
    pub spawned: u64,
    /// Messages they sent.
    pub messages: u64,
}

/// The model the run had.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ModelRow {
    /// Virtual CPUs.
    pub lanes: u64,
    /// The policy's name.
    pub policy: String,
    /// Cycles of a frame.
    pub frame_cycles: u64,
    /// Root of the random streams.
    pub seed: u64,
    /// Version of the cost table.
    pub cost_table: u32,
}

/// An operation of the scheduler or the host: its count and its cost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OperationRow {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Cycles of all of them.
    pub cycles: u64,
}

/// The sum of the rows that are not listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Others {
    /// How many.
    pub count: u64,
    /// Their cycles.
    pub cycles: u64,
}

macro_rules! stops {
    ($($field:ident $text:literal $doc:literal: $($code:ident)|*;)*) => {
        /// How slices ended, counted. The sum is the number of slices.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct Stops {
            $(#[doc = $doc] pub $field: u64,)*
        }

        impl Stops {
            /// Name, meaning and stop codes of each count, in table order.
            pub const TABLE: &'static [(&'static str, &'static str, &'static [StopCode])] =
                &[$(($text, $doc, &[$(StopCode::$code),*])),*];

            /// Counts one slice.
            pub(crate) const fn count(&mut self, stop: StopCode) {
                match stop { $($(StopCode::$code)|* => self.$field += 1,)* }
            }

            /// The number of slices.
            #[must_use]
            pub const fn total(&self) -> u64 {
                0 $(+ self.$field)*
            }
        }
    };
}

stops! {
    yielded "yielded" "gave up the lane by a yield": Yielded;
    preempted "preempted" "lost the lane at a safepoint": EndOfQuantum | EndOfRefill | EndOfCap | Release;
    blocked "blocked" "began to wait": WaitSend | WaitReceive | WaitSelect | WaitJoin | WaitInput | WaitLane | WaitReply | WaitPark | WaitSession;
    slept "slept" "went to sleep": Slept;
    cut "cut" "ended with the wave or the frame": EndOfFrame | EndOfWave;
    ended "ended" "ended the coroutine": Finished | Faulted | SessionExit;
}

/// One coroutine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CoroutineRow {
    /// Its slot in the session.
    pub slot: u32,
    /// Which use of the slot.
    pub generation: u32,
    /// Cycles charged to it.
    pub cycles: u64,
    /// Slices it ran.
    pub slices: u64,
    /// How they ended.
    #[serde(default)]
    pub stops: Stops,
}

/// One function.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FunctionRow {
    /// Its index in the module, imports first.
    pub index: u32,
    /// Its name, from the name section or an export, else `func[INDEX]`.
    pub name: String,
    /// Cycles charged in it, callees not included.
    pub cycles: u64,
}

/// The costs of one session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionCosts {
    /// Its name.
    pub name: String,
    /// Cycles charged to its coroutines.
    pub cycles: u64,
    /// Slices its coroutines ran.
    pub slices: u64,
    /// How they ended: the sum over its coroutines.
    #[serde(default)]
    pub stops: Stops,
    /// Coroutines it spawned, its first included.
    pub spawned: u64,
    /// Maximum alive at once.
    pub peak: u64,
    /// Messages it sent.
    pub messages: u64,
    /// Host operations it called, most expensive first.
    pub host: Vec<OperationRow>,
    /// Its coroutines, most expensive first.
    pub coroutines: Vec<CoroutineRow>,
    /// Coroutines that are not listed.
    pub other_coroutines: Others,
    /// Its functions, most expensive first. Empty if the run did not attribute cycles to functions.
    pub functions: Vec<FunctionRow>,
    /// Functions that are not listed.
    pub other_functions: Others,
}

macro_rules! metrics {
    ($($name:ident $text:literal $doc:literal;)*) => {
        /// A quantity measured per frame that a profile can limit.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Metric {
            $(#[doc = $doc] $name,)*
        }

        impl Metric {
            /// Every metric, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in reports and profiles.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it measures.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }
        }

        /// The keys of a profile: one limit per metric, each optional.
        pub(crate) const PROFILE_KEYS: &[crate::manifest::Key] =
            &[$(crate::manifest::Key::limit($text, $doc)),*];
    };
}

metrics! {
    Cycles "cycles" "cycles used in a frame by all lanes, charged and overhead";
    LaneCycles "lane_cycles" "cycles used in a frame by the busiest lane, charged and overhead";
    CoroutineCycles "coroutine_cycles" "cycles charged in a frame to one coroutine";
    HostCalls "host_calls" "host operations called in a frame";
    Coroutines "coroutines" "coroutines alive at once in a frame";
    Messages "messages" "messages sent in a frame";
}

/// One frame in the list of a metric's worst.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorstFrame {
    /// The frame.
    pub frame: u64,
    /// The value in it.
    pub value: u64,
    /// The coroutine it is about, for `coroutine_cycles`: session name, slot and generation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub coroutine: Option<CoroutineId>,
}

/// A coroutine by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CoroutineId {
    /// Its session.
    pub session: String,
    /// Its slot in the session.
    pub slot: u32,
    /// Which use of the slot.
    pub generation: u32,
}

/// One metric over all frames.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MetricRow {
    /// The metric's name.
    pub name: String,
    /// Sum over all frames.
    pub total: u64,
    /// Frames by size of the value: entry i counts values of i bits (entry 0: zero).
    pub histogram: Vec<u64>,
    /// The frames with the largest values, largest first, earlier first among equals.
    pub worst: Vec<WorstFrame>,
}

/// The costs of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The summary, without telemetry.
    pub summary: Summary,
    /// The model.
    pub model: ModelRow,
    /// Operations of the scheduler, in table order.
    pub scheduler: Vec<OperationRow>,
    /// Costs by session, in manifest order.
    pub sessions: Vec<SessionCosts>,
    /// Frames that were run (not skipped).
    pub busy_frames: u64,
    /// By lane: the frames in which it was never idle, so that it had as much work as it can do.
    #[serde(default)]
    pub full_frames: Vec<u64>,
    /// Each metric over those frames, in table order.
    pub metrics: Vec<MetricRow>,
    /// The waves; empty in reports of earlier builds.
    #[serde(default)]
    pub waves: WavesRow,
    /// The contexts, lane by lane, revoked ones first; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub contexts: Vec<ContextRow>,
    /// The islands; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub islands: Vec<IslandRow>,
    /// Priority inversions; absent if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub inversions: Vec<InversionRow>,
    /// Number of revoked contexts that are not listed.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub contexts_not_kept: u64,
}

/// Omits zero fields.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
