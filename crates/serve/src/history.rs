//! Questions about the past, answered from trace segments: the recorded run is run again, on the
//! asking thread, without touching the machine.

use crate::problem::Problem;
use crate::store::{MachineFolder, private};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use wavelock_client::api;
use wavelock_replay::{RecordedMachine, Timeline, TimelineError, write_snapshot};
use wavelock_system::MachineSpec;
use wavelock_view::describe;

/// The most frames of one question about events, and the most events of an answer.
pub(crate) const MOST_FRAMES: u64 = 1_000;
const MOST_EVENTS: usize = 2_000;

type Past = Timeline<BufReader<File>>;

fn unreadable(error: &TimelineError) -> Problem {
    Problem::internal(format!("the trace: {error}"))
}

fn disk(error: &io::Error) -> Problem {
    Problem::disk(error)
}

/// The last segment that begins at or before what is asked for.
fn find(
    folder: &MachineFolder,
    what: &str,
    begins: impl Fn(&Past) -> bool,
) -> Result<Past, Problem> {
    let segments = folder.segments().map_err(|error| disk(&error))?;
    for (number, _) in segments.iter().rev() {
        let file = match File::open(folder.segment(*number)) {
            // Removed meanwhile, because newer ones were added.
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            file => file.map_err(|error| disk(&error))?,
        };
        let past = Timeline::open(BufReader::new(file)).map_err(|error| unreadable(&error))?;
        if begins(&past) {
            return Ok(past);
        }
    }
    Err(Problem::not_found(format!("{what} is before the segments that are kept")))
}

fn at_frame(folder: &MachineFolder, frame: u64) -> Result<Past, Problem> {
    let mut past = find(folder, &format!("frame {frame}"), |past| past.position().frame <= frame)?;
    if past.archive().end().0 < frame {
        return Err(Problem::not_found(format!(
            "frame {frame} has not come: the next is {}",
            past.archive().end().0
        )));
    }
    past.seek_frame(frame).map_err(|error| unreadable(&error))?;
    Ok(past)
}

/// Writes the state before a frame. If nothing ran in it, the state is the same before the next
/// one that ran.
pub(crate) fn state_at(folder: &MachineFolder, frame: u64, to: &Path) -> Result<(), Problem> {
    let mut past = at_frame(folder, frame)?;
    if past.world().outcome().is_some() {
        return Err(Problem::conflict(format!("the run ended before frame {frame}")));
    }
    let machine = RecordedMachine {
        spec: past.world().spec().clone(),
        modules: past.archive().machine.modules.clone(),
        inputs: Vec::new(),
    };
    let mut write = || -> io::Result<()> {
        let mut out = BufWriter::new(private(to)?);
        write_snapshot(&mut out, &machine, past.world_mut())?;
        out.flush()?;
        out.get_ref().sync_all()
    };
    write().map_err(|error| disk(&error))
}

/// Why a coroutine runs in a step, or does not.
pub(crate) fn why(folder: &MachineFolder, coroutine: &str, step: u64) -> Result<api::Why, Problem> {
    let mut past = find(folder, &format!("step {step}"), |past| past.first_step() <= step)?;
    let reached = past.seek_step(step).map_err(|error| unreadable(&error))?;
    if reached.step < step {
        let made = reached.step;
        return Err(Problem::not_found(format!("there are {made} steps, so there is no {step}")));
    }
    let name = wavelock_debug::parse_coroutine(coroutine, past.world())
        .map_err(|error| Problem::invalid(error.to_string()))?;
    let why = wavelock_debug::why(&mut past, name).map_err(|error| unreadable(&error))?;
    Ok(api::Why {
        verdict: why.verdict.name().into(),
        answer: why.answer.clone(),
        coroutine: why.coroutine.clone(),
        frame: why.position.frame,
        step: why.position.step,
        state: why.state.clone(),
        lane: why.lane.map(|lane| lane.0),
        rule: why.rule.clone(),
        chain: why.chain.clone(),
        text: why.text(),
    })
}

/// The events of a span of frames.
pub(crate) fn events(
    folder: &MachineFolder,
    frame: u64,
    frames: u64,
) -> Result<api::Events, Problem> {
    let mut past = at_frame(folder, frame)?;
    let end = frame.saturating_add(frames);
    let mut events = Vec::new();
    while past.position().frame < end && events.len() < MOST_EVENTS {
        let goes_on = past.step_forward().map_err(|error| unreadable(&error))?;
        let (place, spec) = (past.position(), past.world().spec());
        for happened in past.happened() {
            for event in happened.events() {
                let event = event.map_err(|error| Problem::internal(error.to_string()))?;
                let session = |number: u64| session_name(spec, number);
                let context = |number: u64| context_name(spec, number);
                events.push(api::Event {
                    step: place.step,
                    frame: place.frame,
                    lane: happened.lane,
                    text: describe(&event, &session, &context),
                });
            }
        }
        if !goes_on {
            break;
        }
    }
    let more = past.position().frame < end && !past.is_over();
    Ok(api::Events { events, more })
}

fn session_name(spec: &MachineSpec, number: u64) -> String {
    let session = usize::try_from(number).ok().and_then(|number| spec.sessions.get(number));
    session.map_or_else(|| format!("session {number}"), |session| session.name.clone())
}

fn context_name(spec: &MachineSpec, number: u64) -> String {
    let context = usize::try_from(number).ok().and_then(|number| spec.contexts.get(number));
    context.map_or_else(|| format!("context {number}"), |context| context.name.clone())
}
