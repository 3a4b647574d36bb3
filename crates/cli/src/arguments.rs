//! Arguments, first stage: exactly what the command line says, declared once for parsing, help,
//! completions, the man page and the documentation table.
//!
//! Deliberately elsewhere: what the arguments mean together with files (the second stage) is in the
//! command that takes them.

use crate::manifest::{MOST_CYCLES, MOST_LANES, Overrides, Policy, grouped};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs WebAssembly guests as cooperative coroutines with one defined interleaving.
#[derive(Clone, PartialEq, Debug, Parser)]
#[command(name = "wavelock", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Arguments {
    /// When to use colour; NO_COLOR is respected
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 the host could not do it, 2 usage, 3 divergence, 4 refused, 5 a guest faulted, 6 deadlock.";

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
    /// Run a machine to its end
    Run(RunArguments),
    /// Show what a module is made of, imports, costs and safepoints
    Inspect(InspectArguments),
    /// Show the costs that `run --report` wrote
    Report(ReportArguments),
    /// Run the machine of a trace again and compare every frame; exit 3 at the first difference
    Replay(ReplayArguments),
    /// Stop a machine between two frames and write it to a file that can be resumed anywhere
    Snapshot(SnapshotArguments),
    /// Run a snapshot on, as it would have gone on or with other inputs or policy
    Resume(ResumeArguments),
    /// Compare two traces; exit 3 when they differ in more than --allow
    Diff(DiffArguments),
    /// Run random machines on every number of workers against their sequential runs; exit 3 at the
    /// first difference
    Soak(SoakArguments),
    /// Check the certificates of a trace again; exit 3 when one does not hold
    Certify(CertifyArguments),
    /// Say why a coroutine ran at a step of a trace, or why it did not
    Why(WhyArguments),
    /// Go through a trace, or a machine, forwards and backwards
    Debug(DebugArguments),
    /// Run a machine under many schedules; exit 3 when its sessions show which
    Explore(ExploreArguments),
    /// Run a machine under every policy and compare waits, fairness and cost
    Lab(LabArguments),
    /// Write a trace in another tool's format
    Export(ExportArguments),
    /// Print shell completions
    Completions(CompletionArguments),
    /// Print the man page of wavelock or of one of its commands
    Man(ManArguments),
}

/// A machine on the command line: a file, and what replaces or completes it.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct MachineArguments {
    /// A manifest (.toml), or a module (.wasm, .wat) as a machine with one session and defaults
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which coroutine of a lane runs next, instead of the manifest's `policy`
    #[arg(
        long, value_name = "P",
        value_parser = clap::builder::PossibleValuesParser::new(Policy::NAMES)
    )]
    pub policy: Option<String>,
    /// Virtual CPUs, instead of the manifest's `lanes`; part of the model
    #[arg(long, value_name = "L", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub lanes: Option<u64>,
    /// End after this many frames, instead of the manifest's `max_frames`
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub frames: Option<u64>,
    /// Cycles of a frame on every lane, instead of the manifest's `frame_cycles`
    #[arg(long, value_name = "C", value_parser = |text: &str| number(text, 1, MOST_CYCLES))]
    pub frame_cycles: Option<u64>,
    /// Cycles of a quantum, instead of the manifest's `quantum_cycles`
    #[arg(long, value_name = "C", value_parser = |text: &str| number(text, 1, MOST_CYCLES))]
    pub quantum: Option<u64>,
    /// Root of every random stream, instead of the manifest's `seed`
    #[arg(long, value_name = "S", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub seed: Option<u64>,
    /// Input events, JSON Lines: {"frame":N,"session":"name"|"*","text"|"hex":"..."}
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// A plain file (- for standard input) that goes whole to the first session at frame 0
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,
}

impl MachineArguments {
    /// The flags that replace values of the manifest.
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
}

/// What to keep of a run.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct RecordArguments {
    /// Write a trace of the whole run to this file
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// How much of the run the trace keeps: inputs (enough to run again), schedule (and who ran
    /// when), full (and every event)
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = RecordLevel::Full)]
    pub level: RecordLevel,
    /// Keep a snapshot of the machine in the trace every so many frames, to seek and to resume from
    #[arg(
        long, value_name = "FRAMES", requires = "record",
        value_parser = |text: &str| number(text, 1, u64::MAX)
    )]
    pub snapshot_every: Option<u64>,
    /// Keep a digest of the machine's state every so many frames, so that memory that differs is
    /// found in its frame; 0 keeps none [default: as often as it costs little; at level inputs,
    /// none]
    #[arg(
        long, value_name = "FRAMES", requires = "record",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub states_every: Option<u64>,
}

/// How much of a run a trace keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RecordLevel {
    /// Modules, spec, inputs and a digest per frame.
    Inputs,
    /// And which coroutine ran when.
    Schedule,
    /// And every event.
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
    /// The machine; or a trace, which brings its machine and inputs with it.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Stop before this frame begins, or the next one that is not jumped over
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub at_frame: u64,
    /// The file to write
    #[arg(long, short = 'o', value_name = "SNAPSHOT")]
    pub output: PathBuf,
    /// Native threads; changes speed, never the snapshot
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
    /// What `wavelock snapshot` wrote, or a trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Go on from the boundary before this frame [default: the last snapshot in the file]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 0, u64::MAX))]
    pub at_frame: Option<u64>,
    /// Native threads; changes speed, never the trace [default: the smaller of cores and lanes]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub workers: Option<u64>,
    /// A fork: the inputs from here on are these, JSON Lines as for `run`
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// A fork: go on under this policy
    #[arg(
        long, value_name = "P",
        value_parser = clap::builder::PossibleValuesParser::new(Policy::NAMES)
    )]
    pub policy: Option<String>,
    /// Cycles of a quantum under --policy [default: as it was]
    #[arg(
        long, value_name = "C", requires = "policy",
        value_parser = |text: &str| number(text, 1, MOST_CYCLES)
    )]
    pub quantum: Option<u64>,
    /// A fork: end after this many frames, counted from the run's beginning
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub frames: Option<u64>,
    /// The trace of what comes.
    #[command(flatten)]
    pub recording: RecordArguments,
    /// Write the costs from here on to this file, to be read by `wavelock report`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
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
    /// Native threads; changes speed, never the trace [default: the smaller of cores and lanes]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, MOST_LANES))]
    pub workers: Option<u64>,
    /// Bind each worker to a core of its own; for a machine on which nothing else runs
    #[arg(long)]
    pub pin: bool,
    /// End the run when this process holds more memory than this [default: nine tenths of what the
    /// host has free]
    #[arg(long, value_name = "MIB", value_parser = |text: &str| number(text, 1, MOST_MEBIBYTES))]
    pub host_memory: Option<u64>,
    /// The trace.
    #[command(flatten)]
    pub recording: RecordArguments,
    /// Write the costs to this file, to be read by `wavelock report`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print one JSON object on standard output; guest output then goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// `wavelock certify`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CertifyArguments {
    /// What `wavelock run --record TRACE` wrote, whole or cut off
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock why`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct WhyArguments {
    /// What `wavelock run --record TRACE` wrote, whole or cut off
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The coroutine: session/slot or session/slot.generation; a session's name alone is its first
    /// coroutine
    #[arg(long, value_name = "C")]
    pub coroutine: String,
    /// The step that is asked about: so many steps are made before it
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
    /// A trace, or a machine: a manifest (.toml) or a module (.wasm, .wat)
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Commands to run instead of asking for them, one a line; standard input is read when it is
    /// not a terminal
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Print one JSON object with every command and its answer
    #[arg(long)]
    pub json: bool,
}

/// `wavelock explore`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ExploreArguments {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Most runs; shrinking what was found may take as many again
    #[arg(
        long, value_name = "N", default_value = "1000",
        value_parser = |text: &str| number(text, 1, 1 << 40)
    )]
    pub runs: u64,
    /// Most steps of one run; a longer one is cut off and says nothing
    #[arg(
        long, value_name = "N", default_value = "1000000",
        value_parser = |text: &str| number(text, 1, u64::MAX)
    )]
    pub steps: u64,
    /// Most deviations from the policy in the search of all schedules by length
    #[arg(
        long, value_name = "N", default_value = "16",
        value_parser = |text: &str| number(text, 0, u64::from(u32::MAX))
    )]
    pub depth: u64,
    /// Where the draws of random schedules come from
    #[arg(
        long, value_name = "S", default_value = "0",
        value_parser = |text: &str| number(text, 0, u64::MAX)
    )]
    pub draws: u64,
    /// Write the shortest schedule that shows a difference to this file, as a trace
    #[arg(long, short = 'o', value_name = "TRACE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock lab`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct LabArguments {
    /// The machine; its own policy is one of those compared.
    #[command(flatten)]
    pub machine: MachineArguments,
    /// Draw the comparison to this file (.svg)
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock export`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ExportArguments {
    /// What `wavelock run --record TRACE` wrote, whole or cut off
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// What to write: a Perfetto trace (ui.perfetto.dev), or folded stacks for a flame graph
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: ExportFormat,
    /// The file to write
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What a trace can be written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    /// Lanes and coroutines as tracks, a cycle as a nanosecond.
    Perfetto,
    /// Guest functions with the cycles spent in them, a stack a line.
    Folded,
}

/// `wavelock inspect`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct InspectArguments {
    /// The module (.wasm, .wat)
    #[arg(value_name = "MODULE")]
    pub module: PathBuf,
    /// How many functions to list, the most costly first; 0 lists all
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
    /// What `wavelock run --report FILE` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Test against the cost profiles of this file, or one of them with FILE#NAME; exit 4 if one
    /// does not fit
    #[arg(long, value_name = "PROFILE")]
    pub profile: Vec<String>,
    /// How many rows of each table to show; 0 shows all
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
    /// What `wavelock run --record TRACE` wrote, whole or cut off
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Native threads; changes speed, never the trace
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
    /// A trace
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// Another
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// The difference that is no divergence
    #[arg(long, value_name = "CLASS", value_enum, default_value_t = Envelope::Exact)]
    pub allow: Envelope,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How different two runs may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Envelope {
    /// Not at all: the same trace, byte for byte.
    Exact,
    /// In their interleaving: every session sent, output and ended the same.
    Sessions,
}

/// `wavelock soak`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct SoakArguments {
    /// Stop after this many hours; parts of one are fine
    #[arg(long, value_name = "H", value_parser = hours)]
    pub hours: Option<f64>,
    /// Stop after this many machines [default: 1_000, or no bound with --hours]
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1, u64::MAX))]
    pub machines: Option<u64>,
    /// Seed of the first machine; each next one has the next
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
    /// Folder for the files of a machine that differs
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `wavelock completions`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// `wavelock man`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ManArguments {
    /// A command of wavelock
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// A time in hours, at most a year.
fn hours(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hours) if hours > 0.0 && hours <= 8_760.0 => Ok(hours),
        _ => Err("not a number of hours; allowed: above 0, at most 8_760".to_owned()),
    }
}

/// A whole number in a range, in decimal or after `0x`, with `_` between digits as in manifests.
/// The file of a command that takes traces too.
const TRACE_OR_MACHINE: &str = "A trace, a manifest (.toml), or a module (.wasm, .wat) as a machine with one session and defaults";

/// The most mebibytes whose bytes can be counted.
const MOST_MEBIBYTES: u64 = u64::MAX >> 20;

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let allowed = format!("allowed: {} to {}", grouped(least), grouped(most));
    match value {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Ok(_) => Err(allowed),
        Err(_) => Err(format!("not a whole number; {allowed}")),
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
    fn numbers_are_read_as_in_manifests() {
        assert_eq!(number("1_000", 1, 2_000), Ok(1_000));
        assert_eq!(number("0x10", 1, 2_000), Ok(16));
        assert_eq!(number("0", 1, 2_000), Err("allowed: 1 to 2_000".to_owned()));
        assert_eq!(number("-1", 0, 9), Err("not a whole number; allowed: 0 to 9".to_owned()));
        assert!(number("18446744073709551616", 0, u64::MAX).is_err());
    }
}
