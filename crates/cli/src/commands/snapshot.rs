//! `wavelock snapshot` and `wavelock resume`: write a machine between two frames to one file, and
//! continue from it.
//!
//! The file is a trace that ends with a snapshot. It contains modules, manifest and inputs, so
//! another host needs nothing else. A trace with snapshots can be resumed in the same way, at any
//! frame.

use super::drive::{Driven, start};
use super::emit_json;
use super::files::{is_trace, keep_apart, open_trace, refuse_flags, reserve};
use super::machine::{describe, inputs_from, policy_named, refuse_recorded};
use super::sources::{Source, Sources};
use super::streams::Streams;
use crate::arguments::{OutputMode, RecordArguments, ResumeArguments, SnapshotArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::{Template, grouped};
use crate::table::plural;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use wavelock_abi::{Frame, SessionId};
use wavelock_replay::{Archive, OpenError, RecordedMachine, write_snapshot};
use wavelock_system::{Sink, Stage, StateHead, World};
use wavelock_waves::Round;

/// What `snapshot --json` prints.
#[derive(Serialize)]
struct SnapshotObject {
    frame: u64,
    steps: u64,
    digest: String,
    bytes: u64,
}

pub(super) fn snapshot(arguments: &SnapshotArguments) -> Result<Exit, Failure> {
    let path = &arguments.machine.file;
    let outputs = [("--output", Some(arguments.output.as_path()))];
    let source = if is_trace(path) {
        keep_apart(&outputs, &[path])?;
        refuse_flags(&arguments.machine)?;
        let mut archive = open(path)?;
        let number = newest(&mut archive, path, Some(arguments.at_frame))?;
        let world = restore_at(&mut archive, path, number, Some(arguments.at_frame))?;
        (world, archive.machine)
    } else {
        let described = describe(&arguments.machine)?;
        described.refuse_quantum(&arguments.machine)?;
        described.keep_files(&arguments.machine, &outputs)?;
        let loaded =
            World::load(described.machine.spec.clone(), described.machine.inputs.clone(), false);
        (loaded.map_err(|error| described.refuse(&error))?.world, described.machine)
    };
    let (mut world, machine) = source;
    let out = &arguments.output;
    let (file, is_new) = reserve(out)?;
    let streams = Streams::new(arguments.json, world.spec(), &OutputMode::Plain, None, false)?;
    let mut stop =
        Stop { streams, at: arguments.at_frame, machine: &machine, file: Some(file), kept: None };
    stop.boundary(&mut world);
    if stop.kept.is_none() {
        run_to(world, arguments, &mut stop).inspect_err(|_| {
            if is_new {
                let _ = std::fs::remove_file(out);
            }
        })?;
    }
    let Some(kept) = stop.kept else { return Ok(Exit::Host) };
    let (head, bytes) = kept.map_err(|error| Failure::file("write", out, &error))?;
    if arguments.json {
        emit_json(&SnapshotObject {
            frame: head.frame.0,
            steps: head.steps,
            digest: head.digest.to_string(),
            bytes,
        })?;
    } else {
        let (frame, steps, bytes, digest) =
            (grouped(head.frame.0), plural(head.steps, "step"), plural(bytes, "byte"), head.digest);
        let _ = writeln!(
            anstream::stderr(),
            "snapshot before frame {frame}, after {steps}: {bytes}, digest {digest}"
        );
    }
    Ok(Exit::Done)
}

/// Replaces the contents of the file by a snapshot.
pub(super) fn overwrite(
    file: File,
    machine: &RecordedMachine,
    world: &mut World,
) -> io::Result<(StateHead, u64)> {
    // A device or a pipe has no length to set.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    write_snapshot(BufWriter::new(file), machine, world)
}

/// Runs until the snapshot is written. The guests' output up to there is written as in `run`.
fn run_to(world: World, arguments: &SnapshotArguments, stop: &mut Stop<'_>) -> Result<(), Failure> {
    let mut waves = start(world, arguments.workers)?;
    while stop.kept.is_none() {
        let round =
            waves.round(stop).map_err(|failure| Failure::new(Exit::Host, failure.to_string()))?;
        let world = waves.world();
        stop.streams.after_round(world.frame().0, world.steps())?;
        if round == Round::Over {
            // The boundary after the last frame, if the frame limit ended the run.
            let world = waves.world_mut();
            if world.reopen() {
                world.proceed();
                stop.boundary(world);
            }
            if stop.kept.is_some() {
                break;
            }
            stop.streams.finish()?;
            let last = waves.world().frame().0;
            let wanted = arguments.at_frame;
            return Err(Failure::new(
                Exit::Refused,
                format!(
                    "the run ended in frame {last}: there is no boundary before frame {wanted}"
                ),
            ));
        }
    }
    stop.streams.finish()
}

/// A sink that writes the state before a frame to a file.
struct Stop<'a> {
    streams: Streams<'a>,
    at: u64,
    machine: &'a RecordedMachine,
    file: Option<File>,
    kept: Option<io::Result<(StateHead, u64)>>,
}

impl Sink for Stop<'_> {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.streams.output(session, bytes);
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.streams.log(session, bytes);
    }

    fn boundary(&mut self, world: &mut World) {
        if world.stage().is_boundary() && world.next_frame_number() >= Frame(self.at) {
            let spec = world.spec();
            let lifted = (spec.max_frames != self.machine.spec.max_frames)
                .then(|| RecordedMachine { spec: spec.clone(), ..self.machine.clone() });
            let machine = lifted.as_ref().unwrap_or(self.machine);
            self.kept =
                self.file.take().map(|file| overwrite(file, machine, world)).or(self.kept.take());
        }
    }
}

fn open(path: &Path) -> Result<Archive<File>, Failure> {
    let file = open_trace(path)?;
    Archive::open(file).map_err(|error| super::replay::unreadable(path, &error))
}

/// The last snapshot at or before a frame; without a frame, the last one.
fn newest(
    archive: &mut Archive<File>,
    path: &Path,
    frame: Option<u64>,
) -> Result<Option<usize>, Failure> {
    let before =
        |place: wavelock_replay::SnapshotPosition| frame.is_none_or(|frame| place.frame <= frame);
    let found =
        archive.last_snapshot(before).map_err(|error| super::replay::unreadable(path, &error))?;
    if let (None, Some(frame), Some(origin)) = (found, frame, archive.origin()) {
        let message = format!(
            "`{}` starts before frame {}, so it does not contain frame {frame}",
            path.display(),
            origin.frame
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    if found.is_none() && frame.is_none() {
        let way = "record with --snapshot-every, or use --at-frame N to run it up to frame N";
        let message = match archive.is_complete() {
            true => format!("`{}` contains no snapshot: {way}", path.display()),
            false => format!(
                "`{}` is truncated and contains no complete snapshot: {way}",
                path.display()
            ),
        };
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(found)
}

/// The machine of a trace, restored from a snapshot or loaded at its start, then run to the
/// boundary before `frame`.
fn restore_at(
    archive: &mut Archive<File>,
    path: &Path,
    number: Option<usize>,
    frame: Option<u64>,
) -> Result<World, Failure> {
    let unreadable = |error: OpenError| super::replay::unreadable(path, &error);
    let (spec, inputs) = (archive.machine.spec.clone(), archive.machine.inputs.clone());
    let mut world = match number {
        None => {
            let loaded = World::load(spec, inputs, true);
            let mut world = loaded.map_err(|error| refuse_recorded(path, &error))?.world;
            archive.feed(&mut world).map_err(unreadable)?;
            world
        }
        Some(number) => archive.restore(number, true).map_err(unreadable)?,
    };
    // The recorded part runs again without output.
    let wanted = Frame(frame.unwrap_or(0));
    while !(world.stage().is_boundary() && world.next_frame_number() >= wanted) {
        match world
            .advance(&mut ())
            .map_err(|failure| Failure::new(Exit::Host, failure.to_string()))?
        {
            Stage::Wave => {
                world.groups_mut().iter_mut().for_each(|group| group.run_wave());
                world.close_wave();
            }
            Stage::Over if world.reopen() => world.proceed(),
            Stage::Waiting if world.next_frame_number() >= wanted => {}
            Stage::Over | Stage::Waiting => {
                let last = world.frame().0;
                return Err(Failure::new(
                    Exit::Refused,
                    format!(
                        "the run ended in frame {last}: there is no boundary before frame {}",
                        wanted.0
                    ),
                ));
            }
            Stage::Boundary | Stage::Frame => {}
        }
    }
    Ok(world)
}

/// Continues a machine from a snapshot, unchanged or as a fork.
pub(super) fn resume(arguments: &ResumeArguments) -> Result<Exit, Failure> {
    let path = &arguments.file;
    // A snapshot may take the place of the one that the run began from.
    let RecordArguments { record, snapshot, .. } = &arguments.recording;
    let outputs = [
        ("--record", record.as_deref()),
        ("--report", arguments.report.as_deref()),
        ("--snapshot", snapshot.as_deref()),
    ];
    keep_apart(&outputs[..2], &[path])?;
    let input: Vec<&Path> = arguments.input.iter().map(|path| path.as_path()).collect();
    keep_apart(&outputs, &input)?;
    let mut archive = open(path)?;
    let end = archive.ending().filter(|ending| ending.can_continue()).map(|ending| ending.frames);
    let at_frame = arguments.at_frame.or(end);
    let number = newest(&mut archive, path, at_frame)?;
    let delivered = restore_at(&mut archive, path, number, at_frame)?;
    let head = StateHead::of(&delivered.outline().unwrap_or_default())
        .map_err(|error| Failure::new(Exit::Host, error.to_string()))?;
    let mut machine = archive.machine;
    let mut world = delivered;
    if arguments.live.live && !world.spec().live {
        let message = format!(
            "the machine in `{}` is not live: run it with `wavelock run --live` from the start",
            path.display()
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    if let Some(input) = &arguments.input {
        world = with_inputs(&world, &mut machine, input, &head)?;
    }
    if let Some(name) = &arguments.policy {
        let policy = policy_named(name, arguments.quantum, &machine.spec)?;
        world.set_policy(policy).map_err(|error| refuse_recorded(path, &error))?;
    }
    if let Some(frames) = arguments.frames {
        if frames <= head.frame.0 {
            let (path, next, least) =
                (path.display(), grouped(head.frame.0), grouped(head.frame.0 + 1));
            let message = format!(
                "--frames {frames} counts from the start of the original run, and `{path}` continues before frame {next}: use at least {least}"
            );
            return Err(Failure::new(Exit::Refused, message));
        }
        world.set_max_frames(Some(frames));
    }
    machine.spec = world.spec().clone();
    let binary = |bytes: &Vec<u8>| Source::Binary(bytes.clone());
    let sources = Sources(machine.modules.iter().map(binary).collect());
    let driven = Driven {
        world,
        sources,
        measure: arguments.measure,
        resumed: true,
        live: arguments.live.live.then_some(&arguments.live),
        template: Template::default(),
        workers: arguments.workers,
        pin: false,
        host_memory: None,
        recording: &arguments.recording,
        machine: (arguments.recording.record.is_some() || arguments.recording.snapshot.is_some())
            .then_some(machine),
        report: arguments.report.as_deref(),
        output: &arguments.output,
        json: arguments.json,
    };
    driven.complete()
}

/// Forks with other inputs: the events of the file, none of them before the next frame.
fn with_inputs(
    world: &World,
    machine: &mut RecordedMachine,
    path: &Path,
    head: &StateHead,
) -> Result<World, Failure> {
    let names: Vec<&str> =
        machine.spec.sessions.iter().map(|session| session.name.as_str()).collect();
    let events = inputs_from(path, &names)?;
    if let Some(early) = events.iter().find(|event| event.frame < head.frame) {
        let message = format!(
            "`{}` has an event for frame {}, but the snapshot is before frame {}",
            path.display(),
            early.frame.0,
            head.frame.0
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    machine.inputs.truncate(usize::try_from(head.inputs).unwrap_or(usize::MAX));
    machine.inputs.extend(events);
    let state = world.save().map_err(|error| Failure::new(Exit::Host, error.to_string()))?;
    let world = World::restore(world.spec().clone(), machine.inputs.clone(), true, &state);
    world.map_err(|error| Failure::new(Exit::Host, error.to_string()))
}
