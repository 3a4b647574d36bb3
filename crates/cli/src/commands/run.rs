//! `wavelock run`: makes the machine, runs it, says how it ended.

use super::costs::Collector;
use super::emit_json;
use super::machine::{Made, make};
use super::streams::Streams;
use super::summary;
use crate::arguments::RunArguments;
use crate::diagnostic::Ink;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Telemetry;
use std::io::Write;
use std::time::Instant;
use wavelock_system::RunOutcome;
use wavelock_waves::{Round, Waves};

pub(super) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let wants_report = arguments.report.is_some();
    let Made { mut world, read, warnings } = make(arguments, wants_report)?;
    if !warnings.is_empty() {
        let _ = write!(anstream::stderr(), "{}", read.diagnostics(warnings).render(Ink::Styled));
    }
    // A report that cannot be written is better known before the run than after it.
    let report_file = match &arguments.report {
        Some(path) => Some((path, std::fs::File::create(path).map_err(|error| Failure::file("write", path, &error))?)),
        None => None,
    };
    if wants_report {
        world.profile();
    }
    let lanes = u64::from(read.manifest.machine.lanes);
    let workers = arguments.workers.unwrap_or_else(|| cores().min(lanes));
    let collector = wants_report.then(|| Collector::new(&read.manifest));
    let mut streams = Streams::new(arguments.json, read.manifest.machine.max_frames.map(|frames| frames.0), collector);
    let began = Instant::now();
    let mut waves = Waves::new(world, usize::try_from(workers).unwrap_or(1));
    let result = drive(&mut waves, &mut streams);
    streams.finish();
    let outcome = result?;
    let telemetry = waves.telemetry();
    let telemetry = Telemetry {
        workers: telemetry.workers,
        waves: telemetry.waves,
        certified: telemetry.certified,
        refused: telemetry.refused,
        wall_seconds: began.elapsed().as_secs_f64(),
    };
    let world = waves.world_mut();
    let run = world.summary();
    if let (Some((path, file)), Some(collector)) = (report_file, streams.collector.take()) {
        let report = collector
            .finish(&read.manifest, world, &run)
            .map_err(|damage| Failure::new(Exit::Host, format!("the events of this run cannot be read: {damage}")))?;
        let mut file = std::io::BufWriter::new(file);
        serde_json::to_writer(&mut file, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(file))
            .and_then(|()| file.flush())
            .map_err(|error| Failure::file("write", path, &error))?;
    }
    if arguments.json {
        emit_json(&summary::object(world, &run, Some(telemetry)))?;
    } else {
        let _ = write!(anstream::stderr(), "{}", summary::print(world, &run, &telemetry));
    }
    Ok(match outcome {
        RunOutcome::Finished | RunOutcome::Frames => Exit::Done,
        RunOutcome::Deadlock => Exit::Deadlock,
        RunOutcome::Faulted => Exit::Faulted,
    })
}

fn drive(waves: &mut Waves, streams: &mut Streams) -> Result<RunOutcome, Failure> {
    loop {
        let round = waves.round(streams).map_err(|failure| Failure::new(Exit::Host, failure.to_string()))?;
        let world = waves.world();
        streams
            .after_round(world.frame().0, world.steps())
            .map_err(|error| Failure::new(Exit::Host, format!("the guests' output cannot be written: {error}")))?;
        if round == Round::Over {
            return Ok(waves.world().outcome().unwrap_or(RunOutcome::Finished));
        }
    }
}

/// Cores of this host; only the default of `--workers` depends on it.
fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}
