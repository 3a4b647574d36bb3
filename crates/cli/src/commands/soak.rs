//! `wavelock soak`: compares random machines on 1 to N workers with their sequential runs, for a
//! number of hours or of machines.
//!
//! A difference ends it with exit 3: the machine is shrunk while it still differs and written as a
//! manifest with its module and inputs, for `wavelock run`. Exit 4 means that the soak covered too
//! little: fewer than a third of the machines reached several lanes, several threads, effects
//! across lanes or moved sessions.

use super::{emit, emit_json};
use crate::arguments::SoakArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::{CLASS_NAMES, grouped};
use crate::table::plural;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wavelock_abi::LatencyClass;
use wavelock_kernel::{Activation, Fallback};
use wavelock_soak::{
    Case, LiveFailure, Settings, Size, Tally, as_they_come, on_workers, soak as soak_machines,
    soak_live,
};
use wavelock_system::{Grant, MachineSpec, Placement, Recipient, SessionSpec, Span};

/// Number of machines if neither --hours nor --machines is given.
const MACHINES: u64 = 1_000;

/// Interval of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// What is printed.
#[derive(Serialize)]
struct SoakRow {
    first_seed: u64,
    machines: u64,
    workers: u64,
    several_lanes: u64,
    several_threads: u64,
    crossed: u64,
    moved: u64,
    waves: u64,
    parallel_waves: u64,
    crossings: u64,
    moves: u64,
    /// Equal for every build that runs these machines identically.
    digest_sum: String,
    wall_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_failure: Option<LiveFailureRow>,
}

/// A live machine that differs; it is not shrunk.
#[derive(Serialize)]
struct LiveFailureRow {
    seed: u64,
    difference: String,
}

#[derive(Serialize)]
struct FailureRow {
    seed: u64,
    difference: String,
    shrunk_difference: String,
    tried: u64,
    sessions: u64,
    lanes: u64,
    manifest: String,
}

pub(super) fn soak(arguments: &SoakArguments) -> Result<Exit, Failure> {
    // Fail before the soak, not after hours of it.
    std::fs::read_dir(&arguments.out)
        .map_err(|error| Failure::file("write into", &arguments.out, &error))?;
    let deadline = arguments.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let machines =
        arguments.machines.unwrap_or(if deadline.is_some() { u64::MAX } else { MACHINES });
    let settings = Settings {
        seed: arguments.seed,
        machines,
        workers: usize::try_from(arguments.workers).unwrap_or(1),
    };
    let began = Instant::now();
    let mut progress = Progress::new(machines);
    let mut go_on = |tally: &Tally| {
        progress.show(tally);
        deadline.is_none_or(|deadline| began.elapsed() < deadline)
    };
    let ((tally, failure), live) = if arguments.live {
        let (tally, live) = soak_live(settings, &as_they_come, &mut go_on);
        ((tally, None), live)
    } else {
        (soak_machines(settings, &on_workers, &mut go_on), None)
    };
    progress.finish();
    let mut row = row(arguments, &tally, began.elapsed());
    row.live_failure = live.map(|LiveFailure { seed, difference }| LiveFailureRow {
        seed,
        difference: difference.to_string(),
    });
    if let Some(failure) = failure {
        let manifest = write_case(
            &arguments.out,
            failure.seed,
            &failure.case,
            &failure.difference.to_string(),
        )?;
        let size = Size::of(&failure.case);
        row.failure = Some(FailureRow {
            seed: failure.seed,
            difference: failure.original.to_string(),
            shrunk_difference: failure.difference.to_string(),
            tried: failure.tried,
            sessions: size.sessions as u64,
            lanes: u64::from(size.lanes),
            manifest: manifest.display().to_string(),
        });
    }
    if arguments.json {
        emit_json(&row)?;
    } else {
        emit(&print(&row))?;
    }
    if row.live_failure.is_some() {
        return Ok(Exit::Divergence);
    }
    match (&row.failure, tally.lacks().filter(|_| !arguments.live)) {
        (Some(_), _) => Ok(Exit::Divergence),
        (None, Some((what, count))) => Err(Failure::new(
            Exit::Refused,
            format!(
                "the soak covered too little: only {count} of {} machines had {what}, fewer than a third; run more machines or another --seed",
                tally.machines
            ),
        )),
        (None, None) => Ok(Exit::Done),
    }
}

fn row(arguments: &SoakArguments, tally: &Tally, wall: Duration) -> SoakRow {
    SoakRow {
        first_seed: arguments.seed,
        machines: tally.machines,
        workers: arguments.workers,
        several_lanes: tally.several_lanes,
        several_threads: tally.several_threads,
        crossed: tally.crossed,
        moved: tally.moved,
        waves: tally.waves,
        parallel_waves: tally.parallel_waves,
        crossings: tally.crossings,
        moves: tally.moves,
        digest_sum: format!("{:016x}", tally.digests),
        wall_seconds: wall.as_secs_f64(),
        failure: None,
        live_failure: None,
    }
}

fn print(row: &SoakRow) -> String {
    let mut text = format!(
        "{} from seed {}, each on 1 to {} workers, in {:.1} s\n",
        plural(row.machines, "machine"),
        row.first_seed,
        row.workers,
        row.wall_seconds
    );
    let _ = writeln!(
        text,
        "machines with certified waves of several lanes: {}, waves on several threads: {}, effects across lanes: {}, moves: {}",
        grouped(row.several_lanes),
        grouped(row.several_threads),
        grouped(row.crossed),
        grouped(row.moved)
    );
    let _ = writeln!(
        text,
        "in total: {} waves, {} waves on several threads, {} effects across lanes, {} moves",
        grouped(row.waves),
        grouped(row.parallel_waves),
        grouped(row.crossings),
        grouped(row.moves)
    );
    let _ = writeln!(
        text,
        "sum of digests: {} (equal for every build that runs these machines identically)",
        row.digest_sum
    );
    if let Some(LiveFailureRow { seed, difference }) = &row.live_failure {
        let _ = writeln!(text, "live machine of seed {seed} differs {difference}");
        return text;
    }
    match &row.failure {
        None => text.push_str("no difference\n"),
        Some(failure) => {
            let _ = writeln!(text, "seed {} differs {}", failure.seed, failure.difference);
            let _ = writeln!(
                text,
                "shrunk to {} and {} in {}; it differs {}",
                plural(failure.sessions, "session"),
                plural(failure.lanes, "lane"),
                plural(failure.tried, "try").replace("trys", "tries"),
                failure.shrunk_difference
            );
            let _ = writeln!(text, "wrote `{}` with its module and inputs", failure.manifest);
        }
    }
    text
}

/// The progress line on a terminal; none in a pipe.
struct Progress {
    bar: Option<ProgressBar>,
    next: Instant,
}

impl Progress {
    fn new(machines: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bounded = machines != u64::MAX;
            let bar = ProgressBar::new(if bounded { machines } else { 0 });
            let template = if bounded {
                "{bar:30} machine {pos}/{len} {msg}"
            } else {
                "{spinner} machine {pos} {msg}"
            };
            bar.set_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar
        });
        Self { bar, next: Instant::now() }
    }

    fn show(&mut self, tally: &Tally) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        if now >= self.next {
            self.next = now + PROGRESS_EVERY;
            bar.set_position(tally.machines);
            bar.set_message(format!(
                "{} waves, {} on several threads",
                grouped(tally.waves),
                grouped(tally.parallel_waves)
            ));
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes a machine as files for `wavelock run` and returns the path of the manifest.
fn write_case(folder: &Path, seed: u64, case: &Case, difference: &str) -> Result<PathBuf, Failure> {
    let name = format!("soak-{seed}");
    let write = |extension: &str, text: &str| {
        let path = folder.join(format!("{name}.{extension}"));
        std::fs::write(&path, text)
            .map_err(|error| Failure::file("write", &path, &error))
            .map(|()| path)
    };
    let head = format!(
        "# Shrunk from seed {seed} of `wavelock soak`. Its runs differ {difference}.\n\
         # Run this with --workers 1, 2, ... and compare the digests, which should be equal:\n\
# wavelock run {name}.toml --input {name}.jsonl --workers 1\n"
    );
    write("wat", &case.source())?;
    write("jsonl", &inputs(case))?;
    write("toml", &(head + &manifest(&case.spec, &format!("{name}.wat"))))
}

fn inputs(case: &Case) -> String {
    let mut text = String::new();
    for event in &case.inputs {
        let session = match event.recipient {
            Recipient::All => "*",
            Recipient::Session(session) => &case.spec.sessions[session.0 as usize].name,
        };
        let hex: String = event.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(
            text,
            "{{\"frame\":{},\"session\":\"{session}\",\"hex\":\"{hex}\"}}",
            event.frame.0
        );
    }
    text
}

/// A generated machine as a manifest.
fn manifest(spec: &MachineSpec, module: &str) -> String {
    let mut text =
        format!("[machine]\nlanes = {}\npolicy = \"{}\"\n", spec.lanes, spec.policy.kind().name());
    if matches!(spec.policy, wavelock_kernel::Policy::Fair(_)) {
        let _ = writeln!(text, "share = \"{}\"", spec.policy.sharing().name());
    }
    if spec.policy != wavelock_kernel::Policy::Cooperative {
        let _ = writeln!(text, "quantum_cycles = {}", spec.policy.quantum().0);
    }
    let _ = writeln!(text, "frame_cycles = {}", spec.frame_cycles.0);
    let _ = match spec.span {
        Span::Cycles(cycles) => writeln!(text, "wave_cycles = {}", cycles.0),
        Span::Picks(picks) => writeln!(text, "wave_picks = {picks}"),
    };
    let _ = writeln!(
        text,
        "seed = {}\nhandoff = {}\nsteal = {}\nbalance = {}",
        spec.seed, spec.handoff, spec.steal, spec.balance
    );
    if let Some(frames) = spec.max_frames {
        let _ = writeln!(text, "max_frames = {frames}");
    }
    let limits = &spec.limits;
    let _ = write!(
        text,
        "\n[limits]\ncoroutines = {}\nmemory_pages = {}\nstack_bytes = {}\n",
        limits.coroutines, limits.memory_pages, limits.stack_bytes
    );
    spec.sessions.iter().for_each(|session| text.push_str(&session_table(spec, session, module)));
    for channel in &spec.channels {
        let owner = &spec.sessions[channel.owner.0 as usize].name;
        let _ = write!(
            text,
            "\n[[channel]]\nname = \"{}\"\nowner = \"{owner}\"\ncapacity = {}\n",
            channel.name, channel.capacity
        );
    }
    let name = |session: wavelock_abi::SessionId| &spec.sessions[session.0 as usize].name;
    for context in &spec.contexts {
        let activation = if context.activation == Activation::Sporadic {
            "sporadic"
        } else {
            "constant-bandwidth"
        };
        let _ = write!(
            text,
            "\n[[context]]\nname = \"{}\"\nsession = \"{}\"\nbudget_cycles = {}\nperiod_cycles = {}\ndeadline_cycles = {}\nrefills = {}\n\
             overrun = \"{}\"\nactivation = \"{activation}\"\n",
            context.name,
            name(context.session),
            context.budget.0,
            context.period.0,
            context.deadline.0,
            context.refills,
            context.overrun.name()
        );
        if !context.lanes.is_empty() {
            let _ = writeln!(text, "lanes = {:?}", context.lanes);
        }
        if context.fallback == Fallback::Held {
            text.push_str("fallback = \"held\"\n");
        }
    }
    for grant in &spec.grants {
        let what = if grant.grant == Grant::Control { "control" } else { "policy" };
        let _ =
            write!(text, "\n[[grant]]\nsession = \"{}\"\nof = \"{what}\"\n", name(grant.session));
    }
    text
}

fn session_table(spec: &MachineSpec, session: &SessionSpec, module: &str) -> String {
    let mut text =
        format!("\n[[session]]\nname = \"{}\"\nmodule = \"{module}\"\nargs = []\n", session.name);
    match &session.placement {
        Placement::Split(lanes) => {
            let _ = writeln!(text, "lanes = {lanes:?}");
        }
        Placement::Lane(lane) if session.pinned => {
            let _ = writeln!(text, "lane = {lane}");
        }
        Placement::Lane(_) => {}
    }
    if let Some(cap) = session.cap {
        let _ = writeln!(
            text,
            "budget_cycles = {}\nperiod_frames = {}\noverrun = \"{}\"",
            cap.budget.0,
            cap.period_frames,
            cap.overrun.name()
        );
    }
    let own = &session.limits;
    for (key, limit) in [
        ("coroutines", own.coroutines.map(u64::from)),
        ("stack_bytes", own.stack_bytes.map(u64::from)),
        ("session_stack_bytes", own.session_stack_bytes),
        ("memory_pages", own.memory_pages.map(u64::from)),
        ("channels", own.channels.map(u64::from)),
        ("output_bytes", own.output_bytes.map(u64::from)),
    ] {
        if let Some(limit) = limit {
            let _ = writeln!(text, "{key} = {limit}");
        }
    }
    let class = LatencyClass::ALL
        .iter()
        .position(|class| *class == session.class)
        .map_or("normal", |index| CLASS_NAMES[index]);
    let _ = writeln!(
        text,
        "priority = {}\nweight = {}\nclass = \"{class}\"",
        session.priority.0,
        session.weight.get()
    );
    if !session.ports.is_empty() {
        let ports: Vec<String> = session
            .ports
            .iter()
            .map(|(port, channel)| format!("\"{port}\" = \"{}\"", spec.channels[*channel].name))
            .collect();
        let _ = writeln!(text, "ports = {{ {} }}", ports.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generated machine written as files loads to the same run.
    #[test]
    fn a_machine_written_to_files_loads_to_the_same_run() {
        let folder = std::env::temp_dir().join(format!("wavelock-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for seed in 0..40 {
            let case = wavelock_soak::case(seed);
            let path = write_case(&folder, seed, &case, "nowhere").unwrap();
            let input = path.with_extension("jsonl");
            let arguments = <crate::Arguments as clap::Parser>::parse_from([
                "wavelock".as_ref(),
                "run".as_ref(),
                path.as_os_str(),
                "--input".as_ref(),
                input.as_os_str(),
            ]);
            let crate::arguments::Command::Run(arguments) = arguments.command else {
                unreachable!()
            };
            let mut made = crate::commands::machine::make(&arguments)
                .unwrap_or_else(|failure| panic!("seed {seed}: {failure:?}"));
            made.world.run(&mut ()).unwrap();
            // The run digest starts with a hash of the module's bytes, which here are those of the
            // assembled text, so only the summaries are compared.
            let expected = wavelock_soak::sequential(&case).summary;
            let found =
                wavelock_system::RunSummary { digest: expected.digest, ..made.world.summary() };
            assert_eq!(found, expected, "seed {seed}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
