//! `wavelock replay` and `wavelock diff`: compares a trace with a new run of its machine, or with
//! another trace.

use super::differ::Outputs;
use super::export::names;
use super::files::open_trace;
use super::machine::refuse_recorded;
use super::{emit, emit_json, summary};
use crate::arguments::{DiffArguments, Envelope, ReplayArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::UnreadRow;
use crate::table::plural;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use wavelock_replay::{
    Divergence, ENGINE, Ending, Frames, Level, NO_END, Occurrence, OpenError, Trace, VerifyError,
    compare_traces, verify,
};
use wavelock_system::{RunOutcome, SessionOutcome};
use wavelock_trace::{ChunkError, TraceError, read_frames};
use wavelock_view::{Names, first_different_byte};
use wavelock_waves::{EnvelopeDiff, FailureClass, OrderClass, RunView, SessionView};

/// The verdict for a truncated trace, in `--json`.
const TRUNCATED: &str = "equal as far as it goes";
#[derive(Serialize)]
struct ReplayObject {
    verdict: &'static str,
    level: &'static str,
    frames: u64,
    digest: String,
    workers: u64,
    divergence: Option<DivergenceRow>,
    missing: Option<String>,
    /// By session that did not read all of its input.
    unread_input: BTreeMap<String, UnreadRow>,
    /// The trace's record of how it was made.
    telemetry: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct DivergenceRow {
    frame: u64,
    lane: Option<u16>,
    step_in_lane: u64,
    step: Option<u64>,
    session: Option<String>,
    slot: Option<u64>,
    page: Option<u64>,
    address: Option<u64>,
    recorded: String,
    replayed: String,
}

pub(super) fn open(path: &Path) -> Result<Trace<BufReader<File>>, Failure> {
    let file = open_trace(path)?;
    Trace::open(BufReader::new(file)).map_err(|error| unreadable(path, &error))
}

/// A trace of another version, or a file that is no trace, is refused; a damaged one is a host
/// error. For a file that is no trace the message names the commands that write one.
pub(super) fn unreadable(path: &Path, error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Machine(_)
        | OpenError::Snapshot(_)
        | OpenError::States(_)
        | OpenError::Level { .. } => Exit::Refused,
        OpenError::Trace(_)
        | OpenError::Frames(_)
        | OpenError::NoMachine
        | OpenError::Input(_)
        | OpenError::Trailing { .. } => Exit::Host,
    };
    let hint = match error {
        OpenError::Trace(TraceError::Chunk(ChunkError::NotATrace)) => {
            "; `wavelock run --record FILE` writes a trace, `wavelock snapshot` a snapshot"
        }
        _ => "",
    };
    Failure::new(exit, format!("`{}`: {error}{hint}", path.display()))
}

pub(super) fn replay(arguments: &ReplayArguments) -> Result<Exit, Failure> {
    let trace = open(&arguments.trace)?;
    let level = trace.level.name();
    let resumed = trace.origin.is_some();
    let mut names = names(&trace.machine.spec);
    let verified = verify(trace, usize::try_from(arguments.workers).unwrap_or(1)).map_err(
        |error| match error {
            VerifyError::Open(error) => unreadable(&arguments.trace, &error),
            VerifyError::Load(error) => refuse_recorded(&arguments.trace, &error),
            VerifyError::Host(error) => Failure::new(Exit::Host, error.to_string()),
            VerifyError::Start(error) => Failure::new(Exit::Usage, error.to_string()),
        },
    )?;
    // Sessions that were started later have names too.
    let later = verified.summary.sessions.iter().skip(names.sessions.len());
    names.sessions.extend(later.map(|session| session.name.clone()));
    if resumed
        && verified.frames == 0
        && verified.missing.is_some()
        && verified.divergence.is_none()
    {
        let message = format!(
            "`{}` is a snapshot without frames to compare: use `wavelock resume` to continue it",
            arguments.trace.display()
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    let sessions = verified.summary.sessions.iter().map(|session| session.name.clone());
    let unread: BTreeMap<String, UnreadRow> = sessions
        .zip(&verified.unread)
        .filter(|_| verified.divergence.is_none() && verified.missing.is_none())
        .filter_map(|(session, &unread)| Some((session, summary::unread_row(unread)?)))
        .collect();
    let diverged = verified.divergence.is_some();
    let verdict = match (&verified.divergence, &verified.missing) {
        (Some(_), _) => "divergence",
        (None, Some(_)) => TRUNCATED,
        (None, None) => "equal",
    };
    if arguments.json {
        emit_json(&ReplayObject {
            verdict,
            level,
            frames: verified.frames,
            digest: verified.summary.digest.to_string(),
            workers: arguments.workers,
            divergence: verified.divergence.as_ref().map(|found| row(found, &names)),
            missing: verified.missing.clone(),
            unread_input: unread,
            telemetry: verified.telemetry.clone(),
        })?;
    } else {
        let frames = plural(verified.frames, "frame");
        let mut text = format!(
            "{}: {frames} of a trace at level {level}, digest {}\n",
            if verdict == TRUNCATED { "equal up to where it is truncated" } else { verdict },
            verified.summary.digest
        );
        if let Some(missing) = &verified.missing {
            text.push_str(&format!("missing: {missing}\n"));
        }
        summary::print_unread(
            &mut text,
            unread.iter().map(|(session, &row)| (session.as_str(), row)),
        );
        if let Some(found) = &verified.divergence {
            let [recorded, replayed] = in_words(found, [&names, &names]);
            let place = found.place(&|session| names.session(session));
            text.push_str(&format!(
                "first difference: {place}\n  recorded: {recorded}\n  replayed: {replayed}\n"
            ));
            if let Some(engine) =
                verified.telemetry.get("engine").filter(|engine| *engine != ENGINE)
            {
                text.push_str(&format!("note: recorded by {engine}, replayed by {ENGINE}\n"));
            }
        }
        emit(&text)?;
    }
    Ok(if diverged { Exit::Divergence } else { Exit::Done })
}

/// What the two runs did at their first difference, each with the names of its own machine.
fn in_words(found: &Divergence, names: [&Names; 2]) -> [String; 2] {
    let lane = found.lane.unwrap_or(0);
    let tell = |had: &Occurrence, names: &Names| match had.event() {
        Some(event) => names.describe(lane, &event),
        None => had.to_string(),
    };
    let [one, two] = [(&found.recorded, names[0]), (&found.replayed, names[1])]
        .map(|(had, names)| tell(had, names));
    match (found.recorded.event(), found.replayed.event()) {
        (Some(first), Some(second)) if one == two => match first_different_byte(&first, &second) {
            Some((at, [first, second])) => [
                format!("{one}, from byte {at} on {first}"),
                format!("{two}, from byte {at} on {second}"),
            ],
            // Their descriptions are equal but the events are not: print the fields.
            None => [found.recorded.to_string(), found.replayed.to_string()],
        },
        _ => [one, two],
    }
}

fn row(found: &Divergence, names: &Names) -> DivergenceRow {
    let [recorded, replayed] = in_words(found, [names, names]);
    let session =
        found.coroutine.map(|(session, _)| session).or(found.memory.map(|place| place.session));
    DivergenceRow {
        frame: found.frame,
        lane: found.lane,
        step_in_lane: found.step_in_lane,
        step: found.step,
        session: session.map(|session| names.session(session)),
        slot: found.coroutine.map(|(_, slot)| slot),
        page: found.memory.map(|place| place.page),
        address: found.memory.and_then(|place| place.address),
        recorded,
        replayed,
    }
}

/// What `diff --json` prints.
#[derive(Serialize)]
struct DiffObject {
    version: u32,
    order: String,
    effects: String,
    failures: String,
    width_bound: u64,
    first: Option<DifferenceRow>,
    /// The first frame in which the traces have different events.
    apart: Option<ApartRow>,
    /// Where the outputs of sessions differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<OutputRow>,
}

#[derive(Serialize)]
struct OutputRow {
    session: String,
    at: String,
    first: String,
    second: String,
}

#[derive(Serialize)]
struct ApartRow {
    frame: u64,
    lane: Option<u16>,
    step: Option<u64>,
    first: String,
    second: String,
}

#[derive(Serialize)]
struct DifferenceRow {
    at: String,
    first: String,
    second: String,
}

/// The part of a trace's run that `diff` compares; a truncated trace cannot be compared.
fn view(path: &Path) -> Result<RunView, Failure> {
    let mut trace = open(path)?;
    loop {
        match trace.next_frames().map_err(|error| unreadable(path, &error))? {
            Frames::Some(_) => {}
            Frames::End(ending) => {
                // Traces of earlier builds do not contain it.
                let widest = trace
                    .telemetry
                    .get("widest")
                    .and_then(|groups| groups.parse().ok())
                    .unwrap_or(1);
                return Ok(view_of(&ending, widest));
            }
            Frames::Missing(reason) => {
                let reason = reason.map_or_else(|| NO_END.into(), |error| error.to_string());
                return Err(Failure::new(
                    Exit::Refused,
                    format!("`{}` cannot be compared: {reason}", path.display()),
                ));
            }
        }
    }
}

fn view_of(ending: &Ending, widest: u64) -> RunView {
    let (outcomes, ends) = (RunOutcome::ALL, SessionOutcome::ALL);
    let sessions = ending.sessions.iter().map(|(name, outcome, exit, digest)| SessionView {
        name: name.clone(),
        digest: *digest,
        outcome: ends
            .iter()
            .find(|end| **end as u64 == *outcome)
            .map_or("unknown", |end| end.name())
            .to_owned(),
        exit: *exit,
    });
    let outcome = outcomes.iter().copied().find(|outcome| *outcome as u64 == ending.outcome);
    RunView {
        digest: ending.digest,
        outcome,
        sessions: sessions.collect(),
        widest_wave: widest.max(1),
    }
}

/// Where two traces have different events, as text and as a row.
fn apart(arguments: &DiffArguments) -> Result<Option<(String, ApartRow)>, Failure> {
    let (first, second) = (open(&arguments.first)?, open(&arguments.second)?);
    let names = [&first, &second].map(|trace| names(&trace.machine.spec));
    let Some(found) =
        compare_traces(first, second).map_err(|error| unreadable(&arguments.first, &error))?
    else {
        return Ok(None);
    };
    let [first, second] = in_words(&found, [&names[0], &names[1]]);
    let place = found.place(&|session| names[0].session(session));
    Ok(Some((
        place,
        ApartRow { frame: found.frame, lane: found.lane, step: found.step, first, second },
    )))
}

/// Where the outputs of the sessions of two traces of level full differ.
fn outputs_apart(arguments: &DiffArguments) -> Result<Vec<OutputRow>, Failure> {
    let (first, second) = (outputs(&arguments.first)?, outputs(&arguments.second)?);
    let (Some((names, first)), Some((_, second))) = (first, second) else {
        return Ok(Vec::new());
    };
    let row = |(number, name): (usize, String)| {
        let found = first.difference(&second, number as u64)?;
        let at = found.place();
        Some(OutputRow { session: name, at, first: found.one, second: found.two })
    };
    Ok(names.into_iter().enumerate().filter_map(row).take(MOST_OUTPUTS).collect())
}

/// Sessions whose output is compared in words.
const MOST_OUTPUTS: usize = 16;

/// The names of a trace's sessions and what they wrote; `None` if the trace has no such events.
fn outputs(path: &Path) -> Result<Option<(Vec<String>, Outputs)>, Failure> {
    let mut trace = open(path)?;
    if trace.level != Level::Full {
        return Ok(None);
    }
    let names = trace.machine.spec.sessions.iter().map(|session| session.name.clone()).collect();
    let mut outputs = Outputs::default();
    while let Frames::Some(payload) =
        trace.next_frames().map_err(|error| unreadable(path, &error))?
    {
        for frame in read_frames(&payload).unwrap_or_default() {
            frame.lanes.iter().for_each(|lane| outputs.add_events(lane));
        }
    }
    Ok(Some((names, outputs)))
}

/// How two runs compare, in words.
const fn order_text(order: OrderClass) -> &'static str {
    match order {
        OrderClass::Exact => "the same trace",
        OrderClass::SessionNormalizedPermutation => {
            "every session did the same, in another interleaving"
        }
        OrderClass::EnvelopeBounded => {
            "sessions differ in what they sent, output or how they ended"
        }
    }
}

/// How the ends of two runs compare, in words.
const fn ends_text(failures: FailureClass) -> &'static str {
    match failures {
        FailureClass::Exact => "all ended alike",
        FailureClass::Sessions => "the runs ended alike, but not every session",
        FailureClass::Different => "the runs ended differently",
    }
}

pub(super) fn diff(arguments: &DiffArguments) -> Result<Exit, Failure> {
    let found = EnvelopeDiff::between(&view(&arguments.first)?, &view(&arguments.second)?);
    let apart = match found.order {
        OrderClass::Exact => None,
        _ => apart(arguments)?,
    };
    let outputs = match found.order {
        OrderClass::EnvelopeBounded => outputs_apart(arguments)?,
        _ => Vec::new(),
    };
    if arguments.json {
        emit_json(&DiffObject {
            version: found.version,
            order: format!("{:?}", found.order),
            effects: format!("{:?}", found.effects),
            failures: format!("{:?}", found.failures),
            width_bound: found.width_bound,
            first: found.first.as_ref().map(|first| DifferenceRow {
                at: first.at.clone(),
                first: first.first.clone(),
                second: first.second.clone(),
            }),
            apart: apart.map(|(_, apart)| apart),
            outputs,
        })?;
    } else {
        let width = plural(found.width_bound, "group");
        let mut text = format!(
            "{}; {}; at most {width} at once\n",
            order_text(found.order),
            ends_text(found.failures)
        );
        if let Some(first) = &found.first {
            text.push_str(&format!(
                "first difference: {}: {} in A, {} in B\n",
                first.at, first.first, first.second
            ));
        }
        for row in &outputs {
            text.push_str(&format!(
                "session `{}`, {}:\n  A: {}\n  B: {}\n",
                row.session, row.at, row.first, row.second
            ));
        }
        if let Some((place, ApartRow { first, second, .. })) = apart {
            text.push_str(&format!(
                "first different event: {place}\n  A: {first}\n  B: {second}\n"
            ));
        }
        emit(&text)?;
    }
    let allowed = match arguments.allow {
        Envelope::Exact => OrderClass::Exact,
        Envelope::Sessions => OrderClass::SessionNormalizedPermutation,
    };
    Ok(if found.order <= allowed { Exit::Done } else { Exit::Divergence })
}
