//! `wavelock run`: makes the machine, runs it, says how it ended.

use super::costs::Collector;
use super::emit_json;
use super::machine::{Made, make};
use super::memory::MemoryGuard;
use super::streams::Streams;
use super::summary;
use crate::arguments::{RecordArguments, RunArguments};
use crate::diagnostic::Ink;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::{Report, Telemetry};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use wavelock_replay::{RecordedMachine, Recorder};
use wavelock_system::{RunOutcome, RunSummary};
use wavelock_waves::{Round, Waves};

pub(super) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let Made { mut world, read, warnings, recorded } = make(arguments)?;
    if !warnings.is_empty() {
        let _ = write!(anstream::stderr(), "{}", read.diagnostics(warnings).render(Ink::Styled));
    }
    // A file that cannot be written is better known before the run than after it.
    let report_file = arguments.report.as_deref().map(create).transpose()?;
    let trace_file = arguments.recording.record.as_deref().map(create).transpose()?;
    let collector = report_file.is_some().then(|| Collector::new(&read.manifest));
    if collector.is_some() {
        world.profile();
    }
    let lanes = u64::from(read.manifest.machine.lanes);
    let workers = arguments.workers.unwrap_or_else(|| cores().min(lanes));
    // What the recorder would pass on, the streams have already.
    let mut nowhere = ();
    let mut streams = Streams::new(arguments.json, read.manifest.machine.max_frames.map(|frames| frames.0), collector);
    let began = Instant::now();
    let mut waves = Waves::new(world, usize::try_from(workers).unwrap_or(1));
    if arguments.pin && workers > 1 && !waves.pin() {
        eprintln!("warning: --pin: this host has no core for each of {workers} workers; they are not bound");
    }
    if let (Some(file), Some(machine)) = (trace_file, &recorded) {
        streams.recorder = Some(record(file, machine, &arguments.recording, &mut nowhere)?);
    }
    let result = drive(&mut waves, &mut streams, MemoryGuard::new(arguments.host_memory.map(|mebibytes| mebibytes << 20)));
    streams.finish();
    let outcome = result?;
    let telemetry = telemetry(&waves, began);
    let world = waves.world_mut();
    let run = world.summary();
    let (collector, recorder) = (streams.collector.take(), streams.recorder.take());
    // The run is over and has its summary, whatever became of the files beside it.
    let mut failures: Vec<Failure> = Vec::new();
    failures.extend(finish_recording(recorder, arguments.recording.record.as_deref(), &run));
    if let (Some(file), Some(collector)) = (report_file, collector) {
        let report = collector
            .finish(&read.manifest, world, &run)
            .map_err(|damage| Failure::new(Exit::Host, format!("the events of this run cannot be read: {damage}")));
        failures.extend(report.and_then(|report| write_report(file, &report)).err());
    }
    if arguments.json {
        emit_json(&summary::object(world, &run, Some(telemetry)))?;
    } else {
        let _ = write!(anstream::stderr(), "{}", summary::print(world, &run, &telemetry));
    }
    for failure in &failures {
        let _ = write!(anstream::stderr(), "{}", failure.render(Ink::Styled));
    }
    Ok(exit_of(outcome, !failures.is_empty()))
}

/// The exit code of a run, with what became of the files beside it.
pub(super) const fn exit_of(outcome: RunOutcome, failed: bool) -> Exit {
    match outcome {
        RunOutcome::Finished | RunOutcome::Frames if failed => Exit::Host,
        RunOutcome::Finished | RunOutcome::Frames => Exit::Done,
        RunOutcome::Deadlock => Exit::Deadlock,
        RunOutcome::Faulted => Exit::Faulted,
    }
}

/// Begins a trace of `machine` on a file.
pub(super) fn record<'a>(
    (path, file): (&Path, File),
    machine: &RecordedMachine,
    arguments: &RecordArguments,
    inner: &'a mut (),
) -> Result<Recorder<'a>, Failure> {
    let recorder = Recorder::new(std::io::BufWriter::new(file), machine, arguments.level.into(), inner);
    let recorder = recorder.map_err(|error| Failure::file("write", path, &error))?;
    Ok(match arguments.snapshot_every {
        Some(every) => recorder.with_snapshots(every),
        None => recorder,
    })
}

/// Ends a trace. A disk that was slow is said, one that failed is a failure.
pub(super) fn finish_recording(recorder: Option<Recorder<'_>>, path: Option<&Path>, run: &RunSummary) -> Option<Failure> {
    let (recorder, path) = (recorder?, path?);
    let recorded = recorder.finish(run);
    if recorded.waits > 0 {
        let _ = writeln!(anstream::stderr(), "note: the run waited {} times for the disk of `{}`", recorded.waits, path.display());
    }
    let error = recorded.error?;
    Some(Failure::new(Exit::Host, format!("the trace `{}` ends early: {error}", path.display())))
}

pub(super) fn create(path: &Path) -> Result<(&Path, File), Failure> {
    File::create(path).map(|file| (path, file)).map_err(|error| Failure::file("write", path, &error))
}

fn write_report((path, file): (&Path, File), report: &Report) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut out, report)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::file("write", path, &error))
}

pub(super) fn telemetry(waves: &Waves, began: Instant) -> Telemetry {
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
        unparks: counts.unparks,
        wall_seconds: began.elapsed().as_secs_f64(),
    }
}

pub(super) fn drive(waves: &mut Waves, streams: &mut Streams<'_>, mut memory: MemoryGuard) -> Result<RunOutcome, Failure> {
    // A recording keeps the certificate of every wave, on one worker too.
    if streams.recorder.is_some() {
        waves.certify_always();
    }
    loop {
        let round = waves.round(streams).map_err(|failure| Failure::new(Exit::Host, failure.to_string()))?;
        streams.certificate(waves);
        let world = waves.world();
        if let Some(collector) = &mut streams.collector {
            collector.look(world);
        }
        streams
            .after_round(world.frame().0, world.steps())
            .map_err(|error| Failure::new(Exit::Host, format!("the guests' output cannot be written: {error}")))?;
        memory.look()?;
        if round == Round::Over {
            return Ok(waves.world().outcome().unwrap_or(RunOutcome::Finished));
        }
    }
}

/// Cores of this host; only the default of `--workers` depends on it.
pub(super) fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}
