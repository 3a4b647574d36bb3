//! Arguments, first stage: the command line as typed. One declaration yields the parser, the help,
//! the completions, the man page and the table in `docs/cli.md`.
//!
//! Elsewhere: what the arguments mean together with files (the second stage) is in the module of
//! each command.

use crate::control::{CtlArguments, ServeArguments};
use crate::live::Address;
use crate::manifest::{MOST_CYCLES, MOST_LANES, Overrides, Policy, grouped};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Runs WebAssembly guests as coroutines under a deterministic scheduler.
#[derive(Clone, PartialEq, Debug, Parser)]
#[command(name = "wavelock", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Arguments {
    /// When to use colour; `auto` respects NO_COLOR
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 host error, 2 usage error, 3 runs differ, 4 refused, 5 a guest faulted, 6 deadlock, 7 a budget ended a session, 130 Ctrl-C.";

/// When to use colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Command {
    /// Run a machine until it finishes
    Run(RunArguments),
    /// Show a module's functions, imports, costs and safepoints
    Inspect(InspectArguments),
    /// Print a cost report written by `run --report`
    Report(ReportArguments),
    /// Run a trace's machine again and compare every frame; exit 3 at the first difference
    Replay(ReplayArguments),
    /// Run a machine up to a frame boundary and write its state to a file for `resume`
    Snapshot(SnapshotArguments),
    /// Continue from a snapshot or a trace, optionally with other inputs or another policy
    Resume(ResumeArguments),
    /// Compare two traces; exit 3 if they differ by more than --allow permits
    Diff(DiffArguments),
    /// Run random machines sequentially and on 1 to N workers and compare; exit 3 at the first
    /// difference
    Soak(SoakArguments),
    /// Check the certificates in a trace again; exit 3 if one does not hold
    Certify(CertifyArguments),
    /// Explain why a coroutine ran, or did not run, at a step of a trace
    Why(WhyArguments),
    /// Step through a trace or a machine, forwards and backwards
    Debug(DebugArguments),
    /// Run a machine under many schedules; exit 3 if the schedule changes what a session does
    Explore(ExploreArguments),
    /// Run a machine under every policy and compare wait times, fairness and cost
    Lab(LabArguments),
    /// Convert a trace for Perfetto or a flame graph
    Export(ExportArguments),
    /// Host many machines in one process, controlled over HTTP
    Serve(ServeArguments),
    /// Control the machines of a `wavelock serve`
    Ctl(CtlArguments),
    /// Print shell completions
    Completions(CompletionArguments),
    /// Print the man page of wavelock or of one of its commands
    Man(ManArguments),
}

/// A machine on the command line: a file, the flags that override its manifest, and its inputs.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct MachineArguments {
    /// A manifest (.toml), or a module (.wasm, .wat) to run as one session with default settings
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Scheduling policy; overrides the manifest's `policy`. `lab` runs all and refuses it
    #[arg(
        long, value_name = "P",
        value_parser = clap::builder::PossibleValuesParser::new(Policy::NAMES)
    )]
    pub policy: Option<String>,
    /// Number of virtual CPUs, part of the model unlike --workers; overrides the manifest's `lanes`
    #[arg(long, value_name = "L", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub lanes: Option<u64>,
    /// Stop after this many frames; overrides the manifest's `max_frames`
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub frames: Option<u64>,
    /// Length of a frame in cycles, on every lane; overrides the manifest's `frame_cycles`
    #[arg(long, value_name = "C", value_parser = |text: &str| number(text, 1, MOST_CYCLES))]
    pub frame_cycles: Option<u64>,
    /// Length of a quantum in cycles; overrides the manifest's `quantum_cycles`
    #[arg(long, value_name = "C", value_parser = |text: &str| number(text, 1, MOST_CYCLES))]
    pub quantum: Option<u64>,
    /// Seed of every random stream; overrides the manifest's `seed`
    #[arg(long, value_name = "S", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub seed: Option<u64>,
    /// Input events as JSON Lines: {"frame":N,"session":"name"|"*","text"|"hex":"..."}
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// A file (- for standard input) delivered as one input event to the first session at frame 0
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,
}

impl MachineArguments {
    /// The flags that override values of the manifest.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        Overrides {
            policy: self.policy.as_deref().and_then(Policy::find),
            lanes: self.lanes.map(|lanes| lanes as u16),
            frames: self.frames,
            frame_cycles: self.frame_cycles,
            quantum_cycles: self.quantum,
            seed: self.seed,
        }
    }

    /// The flags that were given, each with the flags of `resume` that do the same to a trace or a
    /// snapshot; `None` where nothing can change it any more.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, Option<&'static str>)> {
        let flags = [
            ("--policy", self.policy.is_some(), Some("--policy P")),
            ("--lanes", self.lanes.is_some(), None),
            ("--frames", self.frames.is_some(), Some("--frames N")),
            ("--frame-cycles", self.frame_cycles.is_some(), None),
            ("--quantum", self.quantum.is_some(), Some("--policy P --quantum C")),
            ("--seed", self.seed.is_some(), None),
            ("--input", self.input.is_some(), Some("--input FILE")),
            ("--stdin", self.stdin.is_some(), Some("--input FILE")),
        ];
        flags.into_iter().filter(|flag| flag.1).map(|(flag, _, resume)| (flag, resume)).collect()
    }
}

/// What to record of a run.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct RecordArguments {
    /// Write a trace of the whole run to this file
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// What the trace contains: inputs (enough to replay), schedule (also which coroutine ran
    /// when), full (also every event)
    #[arg(
        long, value_name = "LEVEL", value_enum, default_value_t = RecordLevel::Full,
        requires = "record"
    )]
    pub level: RecordLevel,
    /// Store a snapshot in the trace every FRAMES frames, for seeking and for `resume`
    #[arg(
        long, value_name = "FRAMES", requires = "record",
        value_parser = |text: &str| number(text, 1, u64::MAX)
    )]
    pub snapshot_every: Option<u64>,
    /// Store a digest of the machine's state every FRAMES frames, so that `replay` finds the frame
    /// in which memory first differs; 0 stores none [default: chosen to cost little; none at level
    /// inputs]
    #[arg(
        long, value_name = "FRAMES", requires = "record",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub states_every: Option<u64>,
    /// Write the machine's state at the end of a run that --frames or Ctrl-C ended to this file,
    /// for `wavelock resume`
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: Option<PathBuf>,
}

/// How `run` and `resume` write the guests' output and log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutputMode {
    /// Unchanged: output to standard output, log to standard error.
    Plain,
    /// The same, in whole lines after the name of their session.
    Prefix,
    /// Both to standard output, as JSON Lines.
    Json,
    /// Each session's into its own files in this directory.
    Files(PathBuf),
}

fn output_mode(text: &str) -> Result<OutputMode, String> {
    match (text, text.strip_prefix("files=")) {
        ("plain", _) => Ok(OutputMode::Plain),
        ("prefix", _) => Ok(OutputMode::Prefix),
        ("json", _) => Ok(OutputMode::Json),
        (_, Some(folder)) if !folder.is_empty() => Ok(OutputMode::Files(folder.into())),
        _ => Err("allowed: plain, prefix, json, files=DIR".to_owned()),
    }
}

/// What a trace contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RecordLevel {
    /// Modules, machine description, inputs and a digest per frame.
    Inputs,
    /// Also which coroutine ran when.
    Schedule,
    /// Also every event.
    Full,
}

impl From<RecordLevel> for wavelock_replay::Level {
    fn from(level: RecordLevel) -> Self {
        match level {
            RecordLevel::Inputs => Self::Inputs,
            RecordLevel::Schedule => Self::Schedule,
            RecordLevel::Full => Self::Full,
        }
    }
}

/// `wavelock snapshot`.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(mut_arg("file", |file| file.help(TRACE_OR_MACHINE)))]
pub struct SnapshotArguments {
    /// The machine; or a trace, which contains its machine and inputs.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Stop before frame N; if idle time skips N, before the next frame that runs
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub at_frame: u64,
    /// The file to write
    #[arg(long, short = 'o', value_name = "SNAPSHOT")]
    pub output: PathBuf,
    /// Native threads; affects speed, never the snapshot
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = |text: &str| number(text, 1, MOST_LANES)
    )]
    pub workers: u64,
    /// Print one JSON object on standard output; guest output then goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// `wavelock resume`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ResumeArguments {
    /// A snapshot written by `wavelock snapshot`, or a trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Continue from the boundary before this frame [default: the end of a run that --frames or
    /// Ctrl-C ended; else the last snapshot in the file]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub at_frame: Option<u64>,
    /// Native threads; affects speed, never the trace [default: the smaller of cores and lanes]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub workers: Option<u64>,
    /// Fork the run: replace the remaining inputs by these events (JSON Lines, as for `run`)
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Fork the run: continue under this policy
    #[arg(
        long, value_name = "P",
        value_parser = clap::builder::PossibleValuesParser::new(Policy::NAMES)
    )]
    pub policy: Option<String>,
    /// Length of a quantum in cycles under --policy [default: unchanged]
    #[arg(
        long, value_name = "C", requires = "policy",
        value_parser = |text: &str| number(text, 1, MOST_CYCLES)
    )]
    pub quantum: Option<u64>,
    /// Fork the run: stop after this many frames, counted from the start of the original run
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub frames: Option<u64>,
    /// Going on live.
    #[command(flatten)]
    pub live: LiveArguments,
    /// The trace of the continued run.
    #[command(flatten)]
    pub recording: RecordArguments,
    /// Count what costs a look at every pick too, and print the counters of every lane; the same
    /// run, a little slower
    #[arg(long)]
    pub measure: bool,
    /// Write a cost report of the continued run to this file, for `wavelock report`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// How to write what the guests write: plain (unchanged), prefix (lines after the session's
    /// name), json (JSON Lines with frame, session and stream), files=DIR (NAME.out and NAME.log in
    /// DIR)
    #[arg(long, value_name = "MODE", default_value = "plain", value_parser = output_mode)]
    pub output: OutputMode,
    /// Print one JSON object on standard output; guest output then goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// `wavelock run`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct RunArguments {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Native threads; affects speed, never the trace [default: the smaller of cores and lanes]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub workers: Option<u64>,
    /// Pin each worker to its own core; use it only on an otherwise idle host
    #[arg(long)]
    pub pin: bool,
    /// Stop the run when this process uses more than this many MiB [default: 90% of the host's
    /// available memory]
    #[arg(long, value_name = "MIB", value_parser = |text: &str| number(text, 1, MOST_MEBIBYTES))]
    pub host_memory: Option<u64>,
    /// A live run.
    #[command(flatten)]
    pub live: LiveArguments,
    /// The trace.
    #[command(flatten)]
    pub recording: RecordArguments,
    /// Count what costs a look at every pick too, and print the counters of every lane; the same
    /// run, a little slower
    #[arg(long)]
    pub measure: bool,
    /// Write a cost report to this file, for `wavelock report`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// How to write what the guests write: plain (unchanged), prefix (lines after the session's
    /// name), json (JSON Lines with frame, session and stream), files=DIR (NAME.out and NAME.log in
    /// DIR)
    #[arg(long, value_name = "MODE", default_value = "plain", value_parser = output_mode)]
    pub output: OutputMode,
    /// Print one JSON object on standard output; guest output then goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// A machine that takes inputs while it runs.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct LiveArguments {
    /// Run a machine that takes inputs while it runs: lines of standard input and of clients, each
    /// like a line of --input without `frame`
    #[arg(long)]
    pub live: bool,
    /// Frames per second; `max` is as fast as possible [default: 60]
    #[arg(long, value_name = "RATE", requires = "live", value_parser = frame_rate)]
    pub fps: Option<FrameRate>,
    /// Seconds of the guests' clocks per second, instead of --fps; a cycle is one nanosecond
    #[arg(
        long, value_name = "X", requires = "live", conflicts_with = "fps",
        value_parser = |text: &str| ratio(text, MOST_SPEED)
    )]
    pub speed: Option<f64>,
    /// Take lines from clients of unix:PATH or 127.0.0.1:PORT and send them the output; may be
    /// repeated
    #[arg(long, value_name = "ADDRESS", requires = "live")]
    pub listen: Vec<Address>,
    /// Make sessions of the modules in this folder: a file that is put there starts one, a changed
    /// one replaces it, a removed one ends it
    #[arg(long, value_name = "DIR", requires = "live")]
    pub watch: Option<PathBuf>,
    /// Let lines start and replace sessions, with the modules in this folder
    #[arg(long, value_name = "DIR", requires = "live")]
    pub modules: Option<PathBuf>,
    /// Start sessions with the [template] of this manifest, in place of the machine's
    #[arg(long, value_name = "MANIFEST", requires = "live")]
    pub template: Option<PathBuf>,
    /// Each line is text for this session, not JSON
    #[arg(long, value_name = "SESSION", requires = "live")]
    pub to: Option<String>,
    /// End the run after this long: 500ms, 2s, 5m, 1h
    #[arg(long = "for", value_name = "DURATION", requires = "live", value_parser = duration)]
    pub time: Option<Duration>,
}

impl LiveArguments {
    /// Whether sessions can start while the machine runs.
    pub(crate) const fn starts_sessions(&self) -> bool {
        self.watch.is_some() || self.modules.is_some()
    }
}

/// How often frames are due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FrameRate {
    /// This often per second.
    Hz(f64),
    /// As soon as the last one has ended.
    Max,
}

/// `wavelock certify`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CertifyArguments {
    /// A trace written by `wavelock run --record TRACE`; it may be truncated
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock why`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct WhyArguments {
    /// A trace written by `wavelock run --record TRACE`; it may be truncated
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The coroutine, as session/slot or session/slot.generation; a session's name alone means its
    /// first coroutine
    #[arg(long, value_name = "C")]
    pub coroutine: String,
    /// The step to explain, counted from 0
    #[arg(long, value_name = "STEP", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub at: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock debug`.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(mut_arg("file", |file| file.help(TRACE_OR_MACHINE)))]
pub struct DebugArguments {
    /// The machine; or a trace, which contains its machine and inputs.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Read commands from this file, one per line, instead of prompting; without it, standard input
    /// is read if it is not a terminal
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Print one JSON object with every command and its output
    #[arg(long)]
    pub json: bool,
}

/// `wavelock explore`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ExploreArguments {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Maximum number of runs; shrinking a failure may take as many again
    #[arg(
        long, value_name = "N", default_value = "1000",
        value_parser = |text: &str| number(text, 1, 1 << 40)
    )]
    pub runs: u64,
    /// Maximum steps of one run; a longer run is stopped and its result ignored
    #[arg(
        long, value_name = "N", default_value = "1000000",
        value_parser = |text: &str| number(text, 1, u64::MAX)
    )]
    pub steps: u64,
    /// Maximum number of deviations from the policy in the exhaustive search
    #[arg(
        long, value_name = "N", default_value = "16",
        value_parser = |text: &str| number(text, 0, u64::from(u32::MAX))
    )]
    pub depth: u64,
    /// Seed of the random schedules
    #[arg(
        long, value_name = "S", default_value = "0",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub draws: u64,
    /// Write a trace of the shortest schedule that makes a difference to this file
    #[arg(long, short = 'o', value_name = "TRACE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock lab`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct LabArguments {
    /// The machine; its own policy is among those compared.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// With --share: more machines, a row for each
    #[arg(value_name = "FILE", requires = "share")]
    pub others: Vec<PathBuf>,
    /// Print only which part of the machine's cycles SESSION gets under each policy
    #[arg(long, value_name = "SESSION", conflicts_with = "output")]
    pub share: Option<String>,
    /// Write a chart of the comparison to this file (.svg)
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock export`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ExportArguments {
    /// A trace written by `wavelock run --record TRACE`; it may be truncated
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Output format: a Perfetto trace (open it at ui.perfetto.dev), or folded stacks for a flame
    /// graph
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: ExportFormat,
    /// The file to write
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The formats a trace can be converted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    /// Lanes and coroutines as tracks; one cycle is shown as one nanosecond.
    Perfetto,
    /// Call stacks of guest functions with the cycles spent in each, one per line.
    Folded,
}

/// `wavelock inspect`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct InspectArguments {
    /// The module (.wasm, .wat)
    #[arg(value_name = "MODULE")]
    pub module: PathBuf,
    /// Number of functions to list, most expensive first; 0 lists all
    #[arg(
        long, value_name = "N", default_value = "20",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub top: u64,
    /// Print one JSON object with everything
    #[arg(long)]
    pub json: bool,
}

/// `wavelock report`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ReportArguments {
    /// A report written by `wavelock run --report FILE`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Check the run against the cost profiles in this file, or against one of them with FILE#NAME;
    /// exit 4 if the run exceeds one
    #[arg(long, value_name = "PROFILE")]
    pub profile: Vec<String>,
    /// Number of rows to show of each table; 0 shows all
    #[arg(
        long, value_name = "N", default_value = "10",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub top: u64,
    /// Print one JSON object with everything
    #[arg(long)]
    pub json: bool,
}

/// `wavelock replay`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ReplayArguments {
    /// A trace written by `wavelock run --record TRACE`; it may be truncated
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Native threads; affects speed, never the trace
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = |text: &str| number(text, 1, MOST_LANES)
    )]
    pub workers: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock diff`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct DiffArguments {
    /// The first trace
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The second trace
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// The difference to tolerate: exact (none), sessions (another interleaving, if every session
    /// does the same)
    #[arg(long, value_name = "CLASS", value_enum, default_value_t = Envelope::Exact)]
    pub allow: Envelope,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How different two runs may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Envelope {
    /// None: the same trace, byte for byte.
    Exact,
    /// Another interleaving, if every session sends, outputs and ends the same.
    Sessions,
}

/// `wavelock soak`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct SoakArguments {
    /// Stop after this many hours; fractions are allowed
    #[arg(long, value_name = "H", value_parser = hours)]
    pub hours: Option<f64>,
    /// Stop after this many machines [default: 1_000, or no bound with --hours]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub machines: Option<u64>,
    /// Seed of the first machine; each further machine uses the next seed
    #[arg(
        long, value_name = "S", default_value = "0",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub seed: u64,
    /// Run each machine on 1 to this many native threads
    #[arg(
        long, value_name = "N", default_value = "4",
        value_parser = |text: &str| number(text, 1, 64)
    )]
    pub workers: u64,
    /// Run live machines, which get inputs and control inputs as they run and are rolled back
    #[arg(long)]
    pub live: bool,
    /// Directory for the files that reproduce a difference
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock completions`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CompletionArguments {
    /// The shell to print completions for
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// `wavelock man`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ManArguments {
    /// The command to print the man page of [default: wavelock itself]
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// A duration in hours, at most a year.
fn hours(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hours) if hours > 0.0 && hours <= 8_760.0 => Ok(hours),
        _ => Err("not a number of hours; allowed: more than 0, at most 8_760".to_owned()),
    }
}

/// The highest rate of frames per second.
const MOST_RATE: f64 = 1_000_000.0;

/// The highest speed.
const MOST_SPEED: f64 = 1_000.0;

/// A number above 0, at most `most`.
fn ratio(text: &str, most: f64) -> Result<f64, String> {
    match text.replace('_', "").parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio <= most => Ok(ratio),
        _ => Err(format!("allowed: more than 0, at most {}", grouped(most as u64))),
    }
}

fn frame_rate(text: &str) -> Result<FrameRate, String> {
    match text {
        "max" => Ok(FrameRate::Max),
        _ => ratio(text, MOST_RATE)
            .map(FrameRate::Hz)
            .map_err(|allowed| format!("{allowed}, or `max`")),
    }
}

/// The longest duration: a year.
const MOST_SECONDS: f64 = 31_536_000.0;

/// A duration: a number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let parsed = UNITS.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.replace('_', "").parse().ok()?;
        Some(number * seconds)
    });
    match parsed {
        Some(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Some(_) => Err("allowed: more than 0, at most 8_760h".to_owned()),
        None => Err("allowed: a number and its unit, ms, s, m or h, as in 90s".to_owned()),
    }
}

/// Help of the file argument of commands that also accept traces.
const TRACE_OR_MACHINE: &str = "A trace, a manifest (.toml), or a module (.wasm, .wat) to run as one session with default settings";

/// The largest number of mebibytes that fits a `u64` in bytes.
const MOST_MEBIBYTES: u64 = u64::MAX >> 20;

/// An integer in a range, in decimal or after `0x`, with `_` between digits as in manifests.
pub(crate) fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let allowed = format!("allowed: {} to {}", grouped(least), grouped(most));
    match value {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Ok(_) => Err(allowed),
        Err(_) => Err(format!("not an integer; {allowed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn rates_and_durations_have_units_and_limits() {
        assert_eq!(frame_rate("max"), Ok(FrameRate::Max));
        assert_eq!(frame_rate("0.5"), Ok(FrameRate::Hz(0.5)));
        for text in ["0", "-1", "NaN", "inf", "1_000_001", "fast", ""] {
            assert!(frame_rate(text).expect_err(text).contains("`max`"), "{text}");
        }
        assert_eq!(duration("1_500ms"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("8760h"), Ok(Duration::from_secs(31_536_000)));
        for text in ["2", "s", "", "two s", "0s", "-1s", "NaNs", "infs", "8761h"] {
            assert!(duration(text).expect_err(text).contains("allowed"), "{text}");
        }
    }

    #[test]
    fn numbers_are_parsed_as_in_manifests() {
        assert_eq!(number("1_000", 1, 2_000), Ok(1_000));
        assert_eq!(number("0x10", 1, 2_000), Ok(16));
        assert_eq!(number("0", 1, 2_000), Err("allowed: 1 to 2_000".to_owned()));
        assert_eq!(number("-1", 0, 9), Err("not an integer; allowed: 0 to 9".to_owned()));
        assert!(number("18446744073709551616", 0, u64::MAX).is_err());
    }
}
