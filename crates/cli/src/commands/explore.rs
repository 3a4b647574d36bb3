//! `wavelock explore`: runs one machine under many schedules and prints the shortest one that
//! changes what a session does.

use super::differ::{OutputDifference, Outputs};
use super::drive::start;
use super::files::writable;
use super::machine::{Described, describe};
use super::{emit, emit_json};
use crate::arguments::ExploreArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_lab::{
    Exploration, ExploreError, Limits, Proof, Setting, Verdict, Witness, explore as search,
};
use wavelock_replay::{Level, RecordedMachine, Recorder};
use wavelock_system::World;
use wavelock_trace::{ChunkKind, TraceWriter};
use wavelock_waves::Round;

/// What `explore --json` prints.
#[derive(Serialize)]
struct ExploreObject {
    verdict: &'static str,
    runs: u64,
    choices: u64,
    exhausted_deviations: u32,
    outcome: &'static str,
    sessions: Vec<SessionRow>,
    stages: Vec<StageObject>,
    witness: Option<WitnessRow>,
}

#[derive(Serialize)]
struct SessionRow {
    name: String,
    outcome: &'static str,
    digest: String,
}

#[derive(Serialize)]
struct StageObject {
    stage: &'static str,
    runs: u64,
    cut: u64,
    different: u64,
}

#[derive(Serialize)]
struct WitnessRow {
    proof: &'static str,
    stage: &'static str,
    setting: Option<String>,
    draw: Option<u64>,
    outcome: &'static str,
    deviations: Vec<DeviationRow>,
    differences: Vec<DifferenceRow>,
    trace: Option<String>,
}

#[derive(Serialize)]
struct DeviationRow {
    lane: u16,
    pick: u64,
    rank: u32,
}

#[derive(Serialize)]
struct DifferenceRow {
    session: String,
    usual: String,
    other: String,
    /// Where its output differs, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<OutputRow>,
}

#[derive(Serialize)]
struct OutputRow {
    at: String,
    usual: String,
    other: String,
}

pub(super) fn explore(arguments: &ExploreArguments) -> Result<Exit, Failure> {
    let described = describe(&arguments.machine)?;
    described.refuse_quantum(&arguments.machine)?;
    let outputs = [("--output", arguments.output.as_deref())];
    described.keep_files(&arguments.machine, &outputs)?;
    arguments.output.as_deref().map_or(Ok(()), writable)?;
    let limits = Limits {
        runs: arguments.runs,
        steps: arguments.steps,
        depth: u32::try_from(arguments.depth).unwrap_or(u32::MAX),
        seed: arguments.draws,
    };
    let spec = &described.machine.spec;
    let settings = Setting::around(spec, &|quantum| described.policies(quantum));
    let quantum = Some(spec.policy.quantum())
        .filter(|&quantum| quantum != Cycles::MAX)
        .unwrap_or(Cycles(10_000));
    let bar = bar(arguments.runs);
    let found = search(
        spec,
        &described.machine.inputs,
        &settings,
        Policy::RoundRobin { quantum },
        limits,
        &mut |progress| {
            if let Some(bar) = &bar {
                bar.set_position(progress.runs.min(progress.of));
                bar.set_message(progress.stage.name());
            }
        },
    );
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let found = found.map_err(|error| failure(&described, &error))?;
    let witness = match &found.verdict {
        Verdict::Dependent(witness) => Some(witness.as_ref()),
        _ => None,
    };
    if let (Some(path), Some(witness)) = (&arguments.output, witness) {
        record(path, &RecordedMachine { spec: witness.spec.clone(), ..described.machine.clone() })?;
    }
    let outputs = witness.and_then(|witness| {
        let inputs = &described.machine.inputs;
        Some([Outputs::of(spec, inputs)?, Outputs::of(&witness.spec, inputs)?])
    });
    if arguments.json {
        emit_json(&object(&found, witness, outputs.as_ref(), arguments.output.as_deref()))?;
    } else {
        emit(&print(&found, witness, outputs.as_ref(), arguments.output.as_deref()))?;
    }
    Ok(if witness.is_some() { Exit::Divergence } else { Exit::Done })
}

fn failure(described: &Described, error: &ExploreError) -> Failure {
    match error {
        ExploreError::Load(error) => described.refuse(error),
        ExploreError::Host(error) => Failure::new(Exit::Host, error.to_string()),
        ExploreError::Endless { .. } => {
            Failure::new(Exit::Refused, format!("{error} (--steps, --frames)"))
        }
    }
}

/// A progress bar, on a terminal only.
fn bar(runs: u64) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(runs);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar
    })
}

/// A trace that contains a machine but no run: enough for the debugger.
pub(super) fn record_machine_only(machine: &RecordedMachine) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut trace = TraceWriter::new(&mut bytes)?;
    let mut first = vec![Level::Inputs as u8];
    first.extend_from_slice(&machine.encode());
    trace.append(ChunkKind::Machine, &first)?;
    Ok(bytes)
}

/// Runs a machine and writes its trace.
pub(super) fn record(path: &Path, machine: &RecordedMachine) -> Result<(), Failure> {
    let file = std::fs::File::create(path).map_err(|error| Failure::file("write", path, &error))?;
    let mut nowhere = ();
    let mut recorder =
        Recorder::new(std::io::BufWriter::new(file), machine, Level::Full, &mut nowhere)
            .map_err(|error| Failure::file("write", path, &error))?;
    let loaded = World::load(machine.spec.clone(), machine.inputs.clone(), true)
        .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    let mut waves = start(loaded.world, 1)?;
    waves.certify_always();
    while waves.round(&mut recorder).map_err(|error| Failure::new(Exit::Host, error.to_string()))?
        != Round::Over
    {
        if let Some(certificate) = waves.certificate() {
            recorder.certificate(certificate, &waves.facts());
        }
    }
    match recorder.finish(&waves.world_mut().summary()).error {
        Some(error) => Err(Failure::new(
            Exit::Host,
            format!("the trace `{}` ends early: {error}", path.display()),
        )),
        None => Ok(()),
    }
}

const fn verdict(found: &Exploration) -> &'static str {
    match found.verdict {
        Verdict::Independent => "independent",
        Verdict::NoDifferenceFound => "no difference found",
        Verdict::Dependent(_) => "dependent",
    }
}

const fn proof(proof: Proof) -> &'static str {
    match proof {
        Proof::Shortest => "shortest",
        Proof::Minimal => "minimal",
        Proof::Unshrunk => "unshrunk",
        Proof::Settings => "settings",
    }
}

/// The number of the session of a difference, and where its output differs.
fn output_of(
    witness: &Witness,
    outputs: Option<&[Outputs; 2]>,
    session: &str,
) -> Option<OutputDifference> {
    let [usual, other] = outputs?;
    let sessions = &witness.observed.sessions;
    let number = sessions.iter().position(|row| row.name == session)?;
    usual.difference(other, number as u64)
}

fn object(
    found: &Exploration,
    witness: Option<&Witness>,
    outputs: Option<&[Outputs; 2]>,
    trace: Option<&Path>,
) -> ExploreObject {
    ExploreObject {
        verdict: verdict(found),
        runs: found.runs,
        choices: found.choices,
        exhausted_deviations: found.exhausted,
        outcome: found.usual.outcome.name(),
        sessions: found
            .usual
            .sessions
            .iter()
            .map(|session| SessionRow {
                name: session.name.clone(),
                outcome: session.outcome.name(),
                digest: session.digest.to_string(),
            })
            .collect(),
        stages: found
            .stages
            .iter()
            .map(|row| StageObject {
                stage: row.stage.name(),
                runs: row.runs,
                cut: row.cut,
                different: row.different,
            })
            .collect(),
        witness: witness.map(|witness| WitnessRow {
            proof: proof(witness.proof),
            stage: witness.stage.name(),
            setting: (!witness.setting.is_empty()).then(|| witness.setting.clone()),
            draw: witness.seed,
            outcome: witness.observed.outcome.name(),
            deviations: witness
                .spec
                .deviations
                .iter()
                .map(|(lane, deviation)| DeviationRow {
                    lane: *lane,
                    pick: deviation.pick,
                    rank: deviation.rank,
                })
                .collect(),
            differences: witness
                .differences
                .iter()
                .map(|difference| DifferenceRow {
                    session: difference.session.clone(),
                    usual: difference.usual.clone(),
                    other: difference.other.clone(),
                    output: output_of(witness, outputs, &difference.session).map(|found| {
                        OutputRow { at: found.place(), usual: found.one, other: found.two }
                    }),
                })
                .collect(),
            trace: trace.map(|path| path.display().to_string()),
        }),
    }
}

fn print(
    found: &Exploration,
    witness: Option<&Witness>,
    outputs: Option<&[Outputs; 2]>,
    trace: Option<&Path>,
) -> String {
    let mut text = match found.verdict {
        Verdict::Independent => format!(
            "independent of the schedule: all {} schedules and {} other settings give the same result\n",
            grouped(found.runs.saturating_sub(found.stages.first().map_or(0, |row| row.runs + 1))),
            found.stages.first().map_or(0, |row| row.runs)
        ),
        Verdict::NoDifferenceFound => {
            format!("no difference found in {} runs\n", grouped(found.runs))
        }
        Verdict::Dependent(_) => {
            format!("dependent on the schedule: found in {} runs\n", grouped(found.runs))
        }
    };
    let _ = writeln!(
        text,
        "{} picks had more than one candidate; every schedule with at most {} deviations was run\n",
        grouped(found.choices),
        grouped(u64::from(found.exhausted))
    );
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("runs", Align::Right),
        ("different", Align::Right),
        ("stopped early", Align::Right),
    ]);
    for row in &found.stages {
        table.row(vec![
            row.stage.name().to_owned(),
            grouped(row.runs),
            grouped(row.different),
            grouped(row.cut),
        ]);
    }
    text.push_str(&table.render());
    let Some(witness) = witness else { return text };
    text.push('\n');
    let found_by = witness.seed.map_or_else(String::new, |seed| format!(", draw {seed}"));
    let _ = match witness.proof {
        Proof::Settings => writeln!(text, "reproduced by another setting: {}", witness.setting),
        Proof::Shortest => {
            writeln!(text, "reproduced by {} (no shorter schedule does):", deviations(witness))
        }
        Proof::Minimal => writeln!(
            text,
            "reproduced by {} (none can be left out; {}{found_by}):",
            deviations(witness),
            witness.stage.name()
        ),
        Proof::Unshrunk => writeln!(
            text,
            "reproduced by {} (not shrunk further: --runs is used up; {}{found_by}):",
            deviations(witness),
            witness.stage.name()
        ),
    };
    for (lane, deviation) in &witness.spec.deviations {
        let rank = u64::from(deviation.rank) + 1;
        let _ = writeln!(
            text,
            "  lane {lane}, pick {}: dispatch ready coroutine number {rank}, oldest first",
            grouped(deviation.pick)
        );
    }
    for difference in &witness.differences {
        let _ = writeln!(
            text,
            "session `{}`\n  normally  {}\n  with this {}",
            difference.session, difference.usual, difference.other
        );
        if let Some(found) = output_of(witness, outputs, &difference.session) {
            let _ = writeln!(
                text,
                "  {}\n    normally  {}\n    with this {}",
                found.place(),
                found.one,
                found.two
            );
        }
    }
    match trace {
        Some(path) => {
            let _ = writeln!(
                text,
                "trace written to `{}`: `wavelock replay` runs it again, `wavelock debug` steps through it",
                path.display()
            );
        }
        None => text.push_str("use --output FILE to write it as a trace\n"),
    }
    text
}

fn deviations(witness: &Witness) -> String {
    match witness.spec.deviations.len() {
        1 => "one deviation from the policy".to_owned(),
        count => format!("{} deviations from the policy", grouped(count as u64)),
    }
}
