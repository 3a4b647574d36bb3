//! Runs a machine to its end and writes its streams, trace, report and summary: the common part of
//! `run` and `resume`, which differ in where the machine starts.

use super::costs::Collector;
use super::emit_json;
use super::files::reserve;
use super::interrupt::Interrupt;
use super::lanes;
use super::live::Live;
use super::memory::MemoryGuard;
use super::snapshot::overwrite;
use super::sources::Sources;
use super::streams::Streams;
use super::summary::{self, Unfinished};
use crate::arguments::{LiveArguments, OutputMode, RecordArguments};
use crate::diagnostic::Ink;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::{Template, grouped};
use crate::report::{Report, Telemetry};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use wavelock_abi::Frame;
use wavelock_replay::{RecordedMachine, Recorder, StateSpacing};
use wavelock_system::{RunOutcome, RunSummary, Stage, World};
use wavelock_waves::{Round, Waves};

/// A machine, and what to produce from its run.
pub(super) struct Driven<'a> {
    pub(super) world: World,
    /// The machine was resumed, so its trace starts with a snapshot of its state.
    pub(super) resumed: bool,
    pub(super) workers: Option<u64>,
    /// Pin workers to cores.
    pub(super) pin: bool,
    /// Limit of this process's resident memory, in bytes.
    pub(super) host_memory: Option<u64>,
    pub(super) recording: &'a RecordArguments,
    /// The machine as a trace stores it, if a trace is written.
    pub(super) machine: Option<RecordedMachine>,
    /// Keep and print the measured counters too.
    pub(super) measure: bool,
    /// Where its modules come from.
    pub(super) sources: Sources,
    /// The machine takes inputs while it runs.
    pub(super) live: Option<&'a LiveArguments>,
    /// What a session has that starts while it runs.
    pub(super) template: Template,
    pub(super) report: Option<&'a Path>,
    pub(super) output: &'a OutputMode,
    pub(super) json: bool,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// By itself, or by an input.
    Outcome(RunOutcome),
    /// By Ctrl-C: suspended.
    Interrupted,
    /// By `--for`: suspended.
    Time,
    /// The recorded part of a live run is over.
    Recording,
}

impl Ending {
    /// The word for what had not ended when the run was suspended.
    const fn unfinished(self) -> Unfinished {
        match self {
            Self::Time => Unfinished::Time,
            Self::Recording => Unfinished::Recording,
            Self::Outcome(_) | Self::Interrupted => Unfinished::Interrupted,
        }
    }
}

/// Why rounds ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// The run is over, or the next frame may not start.
    Over,
    /// The reader of its output closed the pipe and nothing else is to be produced.
    Unwanted,
}

impl Driven<'_> {
    /// Runs the machine and returns its exit code.
    // Long: one step after another, each with a file or a table.
    pub(super) fn complete(self) -> Result<Exit, Failure> {
        let Self {
            mut world,
            resumed,
            workers,
            pin,
            host_memory,
            recording,
            machine,
            measure,
            sources,
            live,
            template,
            report,
            output,
            json,
        } = self;
        if live.is_none() {
            may_end(&world, resumed)?;
            // The recorded rest of a live run ends where the recording ends.
            if !world.spec().live || world.spec().max_frames.is_some() {
                world.allow(Frame(u64::MAX));
            }
        }
        // Create the file first: an unwritable path should fail before the run, not after it.
        let report_file = report.map(create).transpose()?;
        let trace_file = recording.record.as_deref().map(create).transpose()?;
        if measure {
            world.measure();
        }
        let collector = report_file.is_some().then(|| Collector::new(&world));
        if collector.is_some() {
            world.profile();
        }
        let workers = workers.unwrap_or_else(|| cores().min(u64::from(world.spec().lanes)));
        // The streams already receive what the recorder would forward.
        let mut nowhere = ();
        let mut streams = Streams::new(json, world.spec(), output, collector, live.is_some())?;
        streams.interrupt = Interrupt::install();
        let mut live = live
            .map(|live| Live::start(live, world.spec(), template, &mut streams, output))
            .transpose()?;
        let kept = recording.snapshot.as_deref().map(reserve).transpose()?;
        if let (Some(file), Some(machine)) = (trace_file, &machine) {
            let mut recorder = record(file, machine, recording, &mut nowhere)?;
            if resumed {
                recorder
                    .begin_from(&mut world)
                    .map_err(|error| Failure::new(Exit::Host, error.to_string()))?;
            }
            streams.recorder = Some(recorder);
        }
        let began = Instant::now();
        let mut waves = start(world, workers)?;
        if pin && workers > 1 && !waves.pin() {
            eprintln!(
                "warning: --pin: this host has fewer than {workers} cores; the workers are not pinned"
            );
        }
        let mut memory = MemoryGuard::new(host_memory);
        // A full trace contains the certificate of every wave, so waves are certified on one worker
        // too.
        if streams.recorder.as_ref().is_some_and(Recorder::keeps_certificates) {
            waves.certify_always();
        }
        let result = match &mut live {
            Some(live) => live.drive(&mut waves, &mut streams, &mut memory),
            None => drive(&mut waves, &mut streams, &mut memory),
        };
        let finished = streams.finish();
        let live = live.map(|live| live.finish(&mut streams));
        let Some(ending) = result? else { return Ok(Exit::Done) };
        finished?;
        let mut telemetry = telemetry(&waves, began);
        telemetry.live = live;
        let world = waves.world_mut();
        let run = world.summary();
        let (collector, mut recorder) = (streams.collector.take(), streams.recorder.take());
        let facts = [
            ("workers", telemetry.workers),
            ("waves", telemetry.waves),
            ("certified", telemetry.certified),
            ("refused", telemetry.refused),
            ("widest", telemetry.widest),
        ];
        recorder.iter_mut().for_each(|recorder| recorder.telemetry(&facts));
        // The run is complete and its summary is printed even if writing one of its files failed.
        let mut failures: Vec<Failure> = Vec::new();
        failures.extend(finish_recording(recorder, recording.record.as_deref(), &run));
        if let (Some(file), Some(collector)) = (report_file, collector) {
            let report = collector.finish(world, &run, ending.unfinished()).map_err(|damage| {
                Failure::new(Exit::Host, format!("the events of this run cannot be read: {damage}"))
            });
            failures.extend(report.and_then(|report| write_report(file, &report)).err());
        }
        if json {
            let mut object =
                summary::object(world, &run, &sources, ending.unfinished(), Some(telemetry));
            let trace = recording.record.as_deref().and_then(|path| std::fs::metadata(path).ok());
            object.trace_bytes = trace.map(|file| file.len());
            streams.guests.add_heads(&mut object.sessions);
            emit_json(&object)?;
        } else {
            let _ = write!(anstream::stderr(), "{}", {
                let mut text =
                    summary::print(world, &run, &sources, ending.unfinished(), &telemetry);
                if measure {
                    text += &lanes::table(&lanes::rows(world), &[]).render();
                }
                text
            });
        }
        for failure in &failures {
            let _ = write!(anstream::stderr(), "{}", failure.render(Ink::Styled));
        }
        if let (Some((file, is_new)), Some(path), Some(machine)) =
            (kept, recording.snapshot.as_deref(), machine)
        {
            let written = keep(world, machine, path, file, is_new);
            if let Err(failure) = written {
                let _ = write!(anstream::stderr(), "{}", failure.render(Ink::Styled));
                failures.push(failure);
            }
        }
        Ok(exit_of(ending, !failures.is_empty()))
    }
}

/// Refuses a live machine that would wait for inputs that nobody can give.
fn may_end(world: &World, resumed: bool) -> Result<(), Failure> {
    let has_inputs = resumed && world.next_input().is_some();
    if !world.spec().live || world.spec().max_frames.is_some() || has_inputs {
        return Ok(());
    }
    let message = "a live machine without a last frame would wait for input forever: run it with \
                   --live, give it one with --frames N, or drive it from a program (docs/live.md)";
    Err(Failure::new(Exit::Refused, message))
}

/// The exit code of a run; `failed` if one of its files could not be written.
const fn exit_of(ending: Ending, failed: bool) -> Exit {
    let exit = match ending {
        Ending::Outcome(RunOutcome::Deadlock) => return Exit::Deadlock,
        Ending::Outcome(RunOutcome::Faulted) => return Exit::Faulted,
        Ending::Outcome(RunOutcome::Killed) => return Exit::Killed,
        Ending::Outcome(RunOutcome::Finished | RunOutcome::Frames | RunOutcome::Stopped)
        | Ending::Time
        | Ending::Recording => Exit::Done,
        Ending::Interrupted => Exit::Interrupted,
    };
    if failed { Exit::Host } else { exit }
}

/// Starts recording a trace of `machine` to a file.
fn record<'a>(
    (path, file): (&Path, File),
    machine: &RecordedMachine,
    arguments: &RecordArguments,
    inner: &'a mut (),
) -> Result<Recorder<'a>, Failure> {
    let recorder =
        Recorder::new(std::io::BufWriter::new(file), machine, arguments.level.into(), inner);
    let recorder = recorder.map_err(|error| Failure::file("write", path, &error))?;
    let recorder = match arguments.snapshot_every {
        Some(every) => recorder.with_snapshots(every),
        None => recorder,
    };
    Ok(match arguments.states_every {
        Some(0) => recorder.with_states(StateSpacing::Never),
        Some(every) => recorder.with_states(StateSpacing::Every(every)),
        None => recorder,
    })
}

/// Writes the state of a run that could go on; a run that is over has none.
fn keep(
    world: &mut World,
    mut machine: RecordedMachine,
    path: &Path,
    file: File,
    is_new: bool,
) -> Result<(), Failure> {
    let shown = path.display();
    if world.outcome().is_some() && !world.reopen() {
        if is_new {
            let _ = std::fs::remove_file(path);
        }
        let _ = writeln!(
            anstream::stderr(),
            "note: the run is over and cannot go on, so no snapshot was written to `{shown}`"
        );
        return Ok(());
    }
    machine.spec = world.spec().clone();
    let (head, _) =
        overwrite(file, &machine, world).map_err(|error| Failure::file("write", path, &error))?;
    let _ = writeln!(
        anstream::stderr(),
        "snapshot before frame {}: `wavelock resume {shown}` continues from there",
        grouped(head.frame.0)
    );
    Ok(())
}

/// Finishes a trace. Warns if the run had to wait for a slow disk; a failed write is a failure.
fn finish_recording(
    recorder: Option<Recorder<'_>>,
    path: Option<&Path>,
    run: &RunSummary,
) -> Option<Failure> {
    let (recorder, path) = (recorder?, path?);
    let recorded = recorder.finish(run);
    if recorded.waits > 0 {
        let (times, seconds) = (recorded.waits, recorded.waited.as_secs_f64());
        let _ = writeln!(
            anstream::stderr(),
            "note: the run waited {times} times for writes to `{}`, {seconds:.1} s in total",
            path.display()
        );
    }
    let error = recorded.error?;
    Some(Failure::new(Exit::Host, format!("the trace `{}` ends early: {error}", path.display())))
}

pub(super) fn create(path: &Path) -> Result<(&Path, File), Failure> {
    File::create(path)
        .map(|file| (path, file))
        .map_err(|error| Failure::file("write", path, &error))
}

fn write_report((path, file): (&Path, File), report: &Report) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut out, report)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::file("write", path, &error))
}

fn telemetry(waves: &Waves, began: Instant) -> Telemetry {
    let counts = waves.telemetry();
    Telemetry {
        workers: counts.workers,
        waves: counts.waves,
        certified: counts.certified,
        refused: counts.refused,
        refusals: counts.refusals_by_name().map(|(name, count)| (name.to_owned(), count)).collect(),
        last_refusal: counts.last_refusal,
        unclaimed: counts.unclaimed,
        parallel: counts.parallel,
        settled: counts.settled,
        one_group: counts.one_group,
        short: counts.short,
        widest: counts.widest,
        waited: counts.waited,
        taken_over: counts.taken_over,
        unparks: counts.unparks,
        live: None,
        wall_seconds: began.elapsed().as_secs_f64(),
    }
}

/// Runs a machine that has all its inputs until the run ends or Ctrl-C stops it. `None` if nobody
/// wants the output any more.
fn drive(
    waves: &mut Waves,
    streams: &mut Streams<'_>,
    memory: &mut MemoryGuard,
) -> Result<Option<Ending>, Failure> {
    Ok(match rounds(waves, streams, memory)? {
        Flow::Over => Some(match waves.world().outcome() {
            Some(outcome) => Ending::Outcome(outcome),
            None if streams.interrupt.is_set() => Ending::Interrupted,
            None => Ending::Recording,
        }),
        Flow::Unwanted => None,
    })
}

/// Runs rounds until the run ends, the next frame may not start, or Ctrl-C stops it.
pub(super) fn rounds(
    waves: &mut Waves,
    streams: &mut Streams<'_>,
    memory: &mut MemoryGuard,
) -> Result<Flow, Failure> {
    loop {
        let round = waves
            .round(streams)
            .map_err(|failure| Failure::new(Exit::Host, failure.to_string()))?;
        streams.certificate(waves);
        let world = waves.world();
        if let Some(collector) = &mut streams.collector {
            collector.look(world);
        }
        streams.after_round(world.frame().0, world.steps())?;
        memory.look()?;
        if world.stage() == Stage::Over {
            return Ok(Flow::Over);
        }
        if streams.is_unwanted() {
            return Ok(Flow::Unwanted);
        }
        if round == Round::Over {
            return Ok(Flow::Over);
        }
        streams.say_interrupted();
    }
}

/// A driver with this many workers.
pub(super) fn start(world: World, workers: u64) -> Result<Waves, Failure> {
    Waves::new(world, usize::try_from(workers).unwrap_or(1))
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

/// The number of cores of this host; only the default of `--workers` depends on it.
fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}
