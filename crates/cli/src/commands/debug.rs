//! `wavelock why` and `wavelock debug`: files, terminals and JSON around `wavelock-debug`, which
//! produces the text.

use super::explore::record_machine_only;
use super::files::{is_trace, open_trace, refuse_flags};
use super::machine::{describe, refuse_recorded};
use super::replay::unreadable;
use super::{emit, emit_json};
use crate::arguments::{DebugArguments, WhyArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use serde::Serialize;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, IsTerminal, Read, Seek, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wavelock_debug::{CandidateRow, ContextRow, Debugger, Progress, Reply, Why, parse_coroutine};
use wavelock_kernel::Ledger;
use wavelock_replay::{Timeline, TimelineError};

/// What `why --json` prints.
#[derive(Serialize)]
struct WhyObject<'a> {
    verdict: &'static str,
    answer: &'a str,
    coroutine: &'a str,
    frame: u64,
    step: u64,
    state: Option<&'a str>,
    ledger: Option<LedgerObject>,
    lane: Option<u16>,
    next_lane: Option<u16>,
    rule: &'a str,
    because: Option<&'static str>,
    candidate_count: u64,
    candidates: Vec<CandidateObject<'a>>,
    waits_for: Option<WaitObject<'a>>,
    chain: &'a [String],
    cycle: bool,
    inversion: Option<InversionObject<'a>>,
    next_wake: Option<&'a str>,
    context: Option<ContextObject<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    leases: &'a [String],
    lately: &'a [String],
}

/// The ledger of a coroutine.
#[derive(Serialize)]
struct LedgerObject {
    cycles: u64,
    wait_cycles: u64,
    longest_wait_cycles: u64,
    switches: u64,
    preemptions: u32,
    waits: u64,
    sleeps: u32,
    moves: u32,
    steals: u32,
}

#[derive(Serialize)]
struct InversionObject<'a> {
    rank: &'a str,
    chain: &'a [String],
    reason: &'a str,
    ahead_count: u64,
    ahead: Vec<CandidateObject<'a>>,
    donation: &'a str,
}

#[derive(Serialize)]
struct ContextObject<'a> {
    name: &'a str,
    lent_to: Option<&'a str>,
    phase: &'static str,
    clock: u64,
    budget_cycles: u64,
    period_cycles: u64,
    deadline_cycles: u64,
    overrun_policy: &'static str,
    usable_cycles: u64,
    coming: Vec<RefillObject>,
    due: Option<u64>,
    late_cycles: Option<u64>,
    charged_cycles: u64,
    refills: u64,
    throttled: u64,
    demoted: u64,
    missed: u64,
    longest_overrun_cycles: u64,
}

#[derive(Serialize)]
struct RefillObject {
    cycles: u64,
    at: u64,
}

#[derive(Serialize)]
struct CandidateObject<'a> {
    coroutine: &'a str,
    key: &'a str,
    chosen: bool,
}

#[derive(Serialize)]
struct WaitObject<'a> {
    reason: &'static str,
    target: &'a str,
    holders: Vec<HolderObject<'a>>,
}

#[derive(Serialize)]
struct HolderObject<'a> {
    coroutine: &'a str,
    state: &'a str,
}

fn failure(path: &Path, error: &TimelineError) -> Failure {
    match error {
        TimelineError::Open(error) => unreadable(path, error),
        TimelineError::Load(error) => refuse_recorded(path, error),
        error => Failure::new(Exit::Host, format!("`{}`: {error}", path.display())),
    }
}

pub(super) fn why(arguments: &WhyArguments) -> Result<Exit, Failure> {
    let path = &arguments.trace;
    let file = open_trace(path)?;
    let mut timeline =
        Timeline::open(BufReader::new(file)).map_err(|error| failure(path, &error))?;
    let reached = timeline.seek_step(arguments.at).map_err(|error| failure(path, &error))?;
    if reached.step < arguments.at {
        let message = format!(
            "the run in `{}` has {} steps, so there is no step {}",
            path.display(),
            reached.step,
            arguments.at
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if reached.step > arguments.at {
        let (path, first) = (path.display(), reached.step);
        let message = format!(
            "the trace `{path}` starts at step {first}, so it does not contain step {}",
            arguments.at
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let name = parse_coroutine(&arguments.coroutine, timeline.world())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let why = wavelock_debug::why(&mut timeline, name).map_err(|error| failure(path, &error))?;
    if arguments.json {
        emit_json(&object(&why))?;
    } else {
        emit(&why.text())?;
    }
    Ok(Exit::Done)
}

fn object(why: &Why) -> WhyObject<'_> {
    WhyObject {
        verdict: why.verdict.name(),
        answer: &why.answer,
        coroutine: &why.coroutine,
        frame: why.position.frame,
        step: why.position.step,
        state: why.state.as_deref(),
        ledger: why.ledger.as_ref().map(ledger_object),
        lane: why.lane.map(|lane| lane.0),
        next_lane: why.next_lane.map(|lane| lane.0),
        rule: &why.rule,
        because: why.because,
        candidate_count: why.candidate_count,
        candidates: candidates(&why.candidates),
        waits_for: why.waits_for.as_ref().map(|wait| WaitObject {
            reason: wait.reason,
            target: &wait.target,
            holders: wait
                .holders
                .iter()
                .map(|holder| HolderObject { coroutine: &holder.coroutine, state: &holder.state })
                .collect(),
        }),
        chain: &why.chain,
        cycle: why.cycle,
        inversion: why.inversion.as_ref().map(|inversion| InversionObject {
            rank: &inversion.rank,
            chain: &inversion.chain,
            reason: &inversion.reason,
            ahead_count: inversion.ahead_count,
            ahead: candidates(&inversion.ahead),
            donation: &inversion.donation,
        }),
        next_wake: why.next_wake.as_deref(),
        context: why.context.as_ref().map(context_object),
        leases: &why.leases,
        lately: &why.lately,
    }
}

fn ledger_object(ledger: &Ledger) -> LedgerObject {
    LedgerObject {
        cycles: ledger.runtime.0,
        wait_cycles: ledger.wait_total.0,
        longest_wait_cycles: ledger.wait_longest.0,
        switches: ledger.switches,
        preemptions: ledger.preemptions,
        waits: ledger.blocks.iter().map(|&count| u64::from(count)).sum(),
        sleeps: ledger.sleeps,
        moves: ledger.migrations,
        steals: ledger.steals,
    }
}

fn candidates(rows: &[CandidateRow]) -> Vec<CandidateObject<'_>> {
    rows.iter()
        .map(|row| CandidateObject { coroutine: &row.coroutine, key: &row.key, chosen: row.chosen })
        .collect()
}

fn context_object(context: &ContextRow) -> ContextObject<'_> {
    ContextObject {
        name: &context.name,
        lent_to: context.lent_to.as_deref(),
        phase: context.phase,
        clock: context.clock,
        budget_cycles: context.budget_cycles,
        period_cycles: context.period_cycles,
        deadline_cycles: context.deadline_cycles,
        overrun_policy: context.overrun_policy,
        usable_cycles: context.usable_cycles,
        coming: context.coming.iter().map(|&(cycles, at)| RefillObject { cycles, at }).collect(),
        due: context.due,
        late_cycles: context.late_cycles,
        charged_cycles: context.charged_cycles,
        refills: context.refills,
        throttled: context.throttled,
        demoted: context.demoted,
        missed: context.missed,
        longest_overrun_cycles: context.longest_overrun_cycles,
    }
}

/// What `debug --json` prints.
#[derive(Serialize)]
struct DebugObject {
    answers: Vec<AnswerRow>,
}

#[derive(Serialize)]
struct AnswerRow {
    command: String,
    answer: Option<String>,
    refused: Option<String>,
}

pub(super) fn debug(arguments: &DebugArguments) -> Result<Exit, Failure> {
    let path = arguments.machine.file.as_path();
    if is_trace(path) {
        refuse_flags(&arguments.machine)?;
        let file = open_trace(path)?;
        let timeline =
            Timeline::open(BufReader::new(file)).map_err(|error| failure(path, &error))?;
        return converse(arguments, Debugger::new(timeline));
    }
    let described = describe(&arguments.machine)?;
    described.refuse_quantum(&arguments.machine)?;
    let trace = record_machine_only(&described.machine)
        .map_err(|error| Failure::new(Exit::Host, error.to_string()))?;
    let timeline = Timeline::open(Cursor::new(trace)).map_err(|error| match &error {
        TimelineError::Load(refused) => described.refuse(refused),
        _ => failure(path, &error),
    })?;
    converse(arguments, Debugger::new(timeline))
}

/// Time after which an interactive command is interrupted, and the interval of its progress line.
const LONGEST: Duration = Duration::from_secs(10);
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Prints progress of a long-running command on a terminal and interrupts it after [`LONGEST`]: a
/// run may never end.
fn progress(began: Rc<Cell<Instant>>) -> Progress {
    let told = Cell::new(began.get());
    Box::new(move |here| {
        let (now, waited) = (Instant::now(), began.get().elapsed());
        if waited > TOLD_EVERY && now.duration_since(told.get()) > TOLD_EVERY {
            told.set(now);
            let _ = write!(anstream::stderr(), "\r\x1b[K{here} ...");
        }
        waited < LONGEST
    })
}

/// Reads commands and prints their output: from a script, or from standard input, with a prompt if
/// it is a terminal.
fn converse<R: Read + Seek>(
    arguments: &DebugArguments,
    mut debugger: Debugger<R>,
) -> Result<Exit, Failure> {
    let stdin = std::io::stdin();
    let person =
        arguments.script.is_none() && stdin.is_terminal() && std::io::stdout().is_terminal();
    let input: Box<dyn BufRead> = match &arguments.script {
        Some(path) => Box::new(BufReader::new(
            File::open(path).map_err(|error| Failure::file("read", path, &error))?,
        )),
        None => Box::new(stdin.lock()),
    };
    let mut answers = Vec::new();
    let mut refused = false;
    let began = Rc::new(Cell::new(Instant::now()));
    if person {
        debugger.on_progress(progress(began.clone()));
        // Clear the screen and redraw the overview above every reply.
        emit(&format!(
            "\x1b[2J\x1b[H{}\n`help` lists the commands\n(wavelock) ",
            debugger.screen()
        ))?;
    }
    for line in input.lines() {
        let line = line.map_err(|error| {
            Failure::new(Exit::Host, format!("cannot read the commands: {error}"))
        })?;
        began.set(Instant::now());
        let reply =
            debugger.line(&line).map_err(|error| failure(&arguments.machine.file, &error))?;
        if !person && !arguments.json && !line.trim().is_empty() && reply != Reply::Quit {
            emit(&format!("> {}\n", line.trim()))?;
        }
        match reply {
            Reply::Quit => break,
            Reply::Text(text) if arguments.json => {
                answers.push(AnswerRow { command: line, answer: Some(text), refused: None })
            }
            Reply::Refused(why) if arguments.json => {
                refused = true;
                answers.push(AnswerRow { command: line, answer: None, refused: Some(why) });
            }
            Reply::Text(text) if person => {
                emit(&format!("\x1b[2J\x1b[H{}\n{text}(wavelock) ", debugger.screen()))?
            }
            Reply::Refused(why) if person => emit(&format!("{why}\n(wavelock) "))?,
            Reply::Text(text) => emit(&text)?,
            Reply::Refused(why) => {
                refused = true;
                let _ = writeln!(anstream::stderr(), "{why}");
            }
        }
    }
    if arguments.json {
        emit_json(&DebugObject { answers })?;
    }
    // A script with a malformed line is a usage error.
    Ok(if refused { Exit::Usage } else { Exit::Done })
}
