//! `wavelock export`: converts a trace for other tools. The output bytes are a function of the
//! trace.

use super::drive::start;
use super::files::{keep_apart, open_trace};
use super::machine::refuse_recorded;
use super::replay::{open, unreadable};
use super::{emit, emit_json};
use crate::arguments::{ExportArguments, ExportFormat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use wavelock_abi::{Frame, SessionId};
use wavelock_debug::function_name;
use wavelock_replay::{Archive, Frames, Level, NO_END, Trace};
use wavelock_system::{MachineSpec, Sink, World};
use wavelock_trace::{Digest, EventError, FrameRecord, read_frames};
use wavelock_view::{Budget, Moments, Names, Perfetto};
use wavelock_waves::Round;

/// What `export --json` prints.
#[derive(Serialize)]
struct ExportObject {
    format: &'static str,
    file: String,
    bytes: u64,
    frames: u64,
    missing: Option<String>,
}

/// What was written.
struct Exported {
    bytes: u64,
    frames: u64,
    missing: Option<String>,
}

pub(super) fn export(arguments: &ExportArguments) -> Result<Exit, Failure> {
    let trace = open(&arguments.trace)?;
    let path = &arguments.output;
    keep_apart(&[("--output", Some(path))], &[&arguments.trace])?;
    let file = File::create(path).map_err(|error| Failure::file("write", path, &error))?;
    let mut out = Counted { out: BufWriter::new(file), bytes: 0, path };
    let (format, exported) = match arguments.format {
        ExportFormat::Perfetto => ("perfetto", perfetto(trace, &arguments.trace, &mut out)?),
        ExportFormat::Folded => ("folded", folded(trace, &arguments.trace, &mut out)?),
    };
    if arguments.json {
        let Exported { bytes, frames, missing } = exported;
        emit_json(&ExportObject {
            format,
            file: path.display().to_string(),
            bytes,
            frames,
            missing,
        })?;
    } else {
        let mut text = format!(
            "{} frames, {} bytes of {format} in `{}`\n",
            grouped(exported.frames),
            grouped(exported.bytes),
            path.display()
        );
        if let Some(missing) = &exported.missing {
            let _ = writeln!(text, "missing: {missing}");
        }
        emit(&text)?;
    }
    Ok(Exit::Done)
}

/// An output file that counts its bytes and names itself in errors.
struct Counted<'a> {
    out: BufWriter<File>,
    bytes: u64,
    path: &'a Path,
}

impl Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| Failure::file("write", self.path, &error))
    }

    fn finish(&mut self) -> Result<u64, Failure> {
        self.out.flush().map_err(|error| Failure::file("write", self.path, &error))?;
        Ok(self.bytes)
    }
}

/// The names of a machine's sessions and contexts.
pub(super) fn names(spec: &MachineSpec) -> Names {
    // The manifest's contexts are created first, in manifest order.
    let mut contexts: BTreeMap<(u16, u64), String> = BTreeMap::new();
    for (context, lane) in spec.contexts.iter().zip(spec.context_lanes()) {
        let lane = lane.0;
        let slot = contexts.range((lane, 0)..=(lane, u64::MAX)).count() as u64;
        contexts.insert((lane, slot), context.name.clone());
    }
    Names {
        sessions: spec.sessions.iter().map(|session| session.name.clone()).collect(),
        lanes: spec.lanes,
        contexts,
        leases: spec.leases.iter().map(|lease| lease.name.clone()).collect(),
    }
}

fn unknown(path: &Path, error: &EventError) -> Failure {
    Failure::new(
        Exit::Host,
        format!("`{}` contains events that cannot be decoded: {error}", path.display()),
    )
}

fn perfetto(
    mut trace: Trace<BufReader<File>>,
    path: &Path,
    out: &mut Counted<'_>,
) -> Result<Exported, Failure> {
    let spec = &trace.machine.spec;
    let mut writer = Perfetto::new(names(spec));
    let mut moments = Moments::new(spec.lanes, spec.frame_cycles.0);
    moments.begin(spec.sessions.len() as u64);
    if spec.grants_time() {
        return perfetto_with_budgets(trace, path, writer, moments, out);
    }
    if trace.level != Level::Full {
        // Below level full the trace has no events: run its machine again to get them.
        return perfetto_of_run(path, writer, moments, out);
    }
    let mut frames = 0;
    let missing = each_frame(&mut trace, path, &mut |frame| {
        moments
            .frame(frame.frame, frame.boundary, &frame.lanes, &mut |moment| writer.moment(&moment))
            .map_err(|error| unknown(path, &error))?;
        frames += 1;
        out.write(&writer.take())
    })?;
    out.write(&writer.finish())?;
    Ok(Exported { bytes: out.finish()?, frames, missing })
}

/// The same from a new run of the trace's machine.
fn perfetto_of_run(
    path: &Path,
    writer: Perfetto,
    moments: Moments,
    out: &mut Counted<'_>,
) -> Result<Exported, Failure> {
    let mut sink = Writer { writer, moments, frames: 0, error: None, reached: None };
    let mut waves = start(load(path)?, 1)?;
    while waves.round(&mut sink).map_err(|error| Failure::new(Exit::Host, error.to_string()))?
        != Round::Over
    {
        out.write(&sink.writer.take())?;
        if let Some(error) = &sink.error {
            return Err(unknown(path, error));
        }
    }
    out.write(&sink.writer.finish())?;
    Ok(Exported { bytes: out.finish()?, frames: sink.frames, missing: None })
}

/// The same with the budgets of contexts after each step, which no event contains: runs the
/// recorded part again.
fn perfetto_with_budgets<R: std::io::Read>(
    mut trace: Trace<R>,
    path: &Path,
    writer: Perfetto,
    moments: Moments,
    out: &mut Counted<'_>,
) -> Result<Exported, Failure> {
    let mut world = load(path)?;
    let (last, missing) = recorded_end(&mut trace, path)?;
    let mut sink = Writer { writer, moments, frames: 0, error: None, reached: None };
    let mut lanes: std::collections::BTreeSet<u16> = std::collections::BTreeSet::new();
    while last.is_some_and(|(end, _)| sink.reached.is_none_or(|(frame, _)| frame < end))
        && world.step(&mut sink).map_err(|error| Failure::new(Exit::Host, error.to_string()))?
    {
        let contexts = world.contexts();
        lanes.extend(contexts.iter().map(|context| context.lane.0));
        for &lane in &lanes {
            let here = contexts.iter().filter(|context| context.lane.0 == lane);
            let budget = |context: &wavelock_system::ContextSummary| Budget {
                slot: context.view.context.slot,
                refills: context
                    .view
                    .ring
                    .refills()
                    .iter()
                    .map(|refill| (refill.amount.0, refill.at.0))
                    .collect(),
            };
            let clock = world.lane_clock(wavelock_abi::LaneId(lane)).map_or(0, |clock| clock.0);
            sink.writer.budgets(lane, clock, &here.map(budget).collect::<Vec<_>>());
        }
        out.write(&sink.writer.take())?;
    }
    if let Some(error) = &sink.error {
        return Err(unknown(path, error));
    }
    same_run(sink.reached, last, path)?;
    out.write(&sink.writer.finish())?;
    Ok(Exported { bytes: out.finish()?, frames: sink.frames, missing })
}

/// Visits every recorded frame. Returns why the trace is incomplete, if it is.
fn each_frame<R: std::io::Read>(
    trace: &mut Trace<R>,
    path: &Path,
    visit: &mut dyn FnMut(&FrameRecord<'_>) -> Result<(), Failure>,
) -> Result<Option<String>, Failure> {
    loop {
        match trace.next_frames().map_err(|error| unreadable(path, &error))? {
            Frames::Some(payload) => read_frames(&payload)
                .map_err(|error| unreadable(path, &wavelock_replay::OpenError::Frames(error)))?
                .iter()
                .try_for_each(&mut *visit)?,
            Frames::End(_) => return Ok(None),
            Frames::Missing(reason) => {
                return Ok(Some(reason.map_or_else(|| NO_END.into(), |error| error.to_string())));
            }
        }
    }
}

/// The last recorded frame with its digest, and why the trace is incomplete, if it is.
type RecordedEnd = (Option<(u64, Digest)>, Option<String>);

fn recorded_end<R: std::io::Read>(
    trace: &mut Trace<R>,
    path: &Path,
) -> Result<RecordedEnd, Failure> {
    let mut last = None;
    let missing = each_frame(trace, path, &mut |frame| {
        last = Some((frame.frame, frame.digest));
        Ok(())
    })?;
    Ok((last, missing))
}

/// Refuses an export if the new run did not end like the recorded one.
fn same_run(
    reached: Option<(u64, Digest)>,
    last: Option<(u64, Digest)>,
    path: &Path,
) -> Result<(), Failure> {
    if reached == last {
        return Ok(());
    }
    let message = format!(
        "running the machine of `{}` again gives a different run: `wavelock replay` shows where",
        path.display()
    );
    Err(Failure::new(Exit::Divergence, message))
}

/// The machine of a trace where its recording starts, with the inputs that it was given.
fn load(path: &Path) -> Result<World, Failure> {
    let unreadable = |error| unreadable(path, &error);
    let mut archive = Archive::open(open_trace(path)?).map_err(unreadable)?;
    if archive.origin().is_some() {
        return archive.restore(0, true).map_err(unreadable);
    }
    let machine = &archive.machine;
    let loaded = World::load(machine.spec.clone(), machine.inputs.clone(), true);
    let mut world = loaded.map_err(|error| refuse_recorded(path, &error))?.world;
    archive.feed(&mut world).map_err(unreadable)?;
    Ok(world)
}

struct Writer {
    writer: Perfetto,
    moments: Moments,
    frames: u64,
    error: Option<EventError>,
    /// The last frame that ended, and its digest.
    reached: Option<(u64, Digest)>,
}

impl Sink for Writer {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        let lanes: Vec<&[u8]> = lanes.collect();
        let Self { writer, moments, .. } = self;
        let read = moments.frame(frame.0, boundary, &lanes, &mut |moment| writer.moment(&moment));
        self.frames += 1;
        self.reached = Some((frame.0, digest));
        if let Err(error) = read {
            self.error.get_or_insert(error);
        }
    }
}

/// Cycles by call stack: runs the machine of the trace again from safepoint to safepoint, as `run
/// --report` does.
fn folded<R: std::io::Read>(
    mut trace: Trace<R>,
    path: &Path,
    out: &mut Counted<'_>,
) -> Result<Exported, Failure> {
    let mut world = load(path)?;
    world.profile_stacks();
    // A truncated trace gives the last complete frame.
    let (last, missing) = recorded_end(&mut trace, path)?;
    let mut reached = Reached(None, 0);
    while last.is_some_and(|(end, _)| reached.0.is_none_or(|(frame, _)| frame < end))
        && world.step(&mut reached).map_err(|error| Failure::new(Exit::Host, error.to_string()))?
    {
    }
    same_run(reached.0, last, path)?;
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (index, session) in world.spec().sessions.iter().enumerate() {
        let module = &world.spec().modules[session.module];
        let Some(profile) = world.session_profile(SessionId(index as u32)) else { continue };
        for (stack, cycles) in profile.stacks() {
            let frames = stack.iter().map(|&function| plain(&function_name(module, function)));
            let line: Vec<String> = std::iter::once(plain(&session.name)).chain(frames).collect();
            *lines.entry(line.join(";")).or_default() += cycles.0;
        }
    }
    for (line, cycles) in &lines {
        out.write(format!("{line} {cycles}\n").as_bytes())?;
    }
    Ok(Exported { bytes: out.finish()?, frames: reached.1, missing })
}

/// A name without the separators of folded lines.
fn plain(name: &str) -> String {
    name.replace([';', ' ', '\n'], "_")
}

/// The last frame that ended, its digest, and the number of frames that ended.
struct Reached(Option<(u64, Digest)>, u64);

impl Sink for Reached {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        _: &[u8],
        _: &mut dyn Iterator<Item = &[u8]>,
    ) {
        self.0 = Some((frame.0, digest));
        self.1 += 1;
    }
}
