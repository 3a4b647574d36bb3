//! `wavelock lab`: compares one workload under every policy.

use super::files::writable;
use super::machine::{Described, describe};
use super::{emit, emit_json, shares};
use crate::arguments::LabArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use indicatif::ProgressBar;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_lab::{CompareError, PolicyRow, compare, picture};

/// What `lab --json` prints.
#[derive(Serialize)]
struct LabObject {
    policies: Vec<PolicyObject>,
}

#[derive(Serialize)]
struct PolicyObject {
    policy: String,
    outcome: &'static str,
    digest: String,
    frames: u64,
    steps: u64,
    switches: u64,
    cycles: CyclesObject,
    /// Cycles from ready to running.
    waits: WaitsObject,
    /// Jain's index over coroutines, per mille.
    fairness_per_mille: u64,
    stops: StopsObject,
}

#[derive(Serialize)]
struct CyclesObject {
    charged: u64,
    overhead: u64,
    idle: u64,
}

#[derive(Serialize)]
struct WaitsObject {
    count: u64,
    mean: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    longest: u64,
}

#[derive(Serialize)]
struct StopsObject {
    yielded: u64,
    preempted: u64,
    blocked: u64,
    slept: u64,
}

pub(super) fn lab(arguments: &LabArguments) -> Result<Exit, Failure> {
    if arguments.machine.policy.is_some() {
        let message = "--policy cannot be applied: `lab` runs the machine under every policy. Leave it out, or use `wavelock run --policy P`";
        return Err(Failure::new(Exit::Usage, message));
    }
    if let Some(session) = &arguments.share {
        return shares::shares(arguments, session);
    }
    let described = describe(&arguments.machine)?;
    let outputs = [("--output", arguments.output.as_deref())];
    described.keep_files(&arguments.machine, &outputs)?;
    arguments.output.as_deref().map_or(Ok(()), writable)?;
    let rows = measure(&described, &described.policies(quantum(&described)))?;
    if let Some(path) = &arguments.output {
        let title = format!("{}: policies side by side", arguments.machine.file.display());
        std::fs::write(path, picture(&title, &rows))
            .map_err(|error| Failure::file("write", path, &error))?;
    }
    if arguments.json {
        emit_json(&LabObject { policies: rows.iter().map(object).collect() })?;
    } else {
        emit(&print(&rows))?;
    }
    Ok(Exit::Done)
}

/// The quantum of the machine, also if its own policy does not use it.
pub(super) fn quantum(described: &Described) -> Cycles {
    described.read.manifest.machine.quantum_cycles
}

/// Runs a machine under each policy, with a progress bar on a terminal.
pub(super) fn measure(
    described: &Described,
    policies: &[(String, Policy)],
) -> Result<Vec<PolicyRow>, Failure> {
    let spec = &described.machine.spec;
    if spec.max_frames.is_none() {
        let _ = writeln!(
            anstream::stderr(),
            "warning: this machine has no limit of frames, so `lab` cannot end it under a policy that does not: --frames N ends each run"
        );
    }
    let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(policies.len() as u64));
    let rows = compare(spec, &described.machine.inputs, policies, &mut |done| {
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    rows.map_err(|error| match error {
        CompareError::Load(_, error) => described.refuse(&error),
        error => Failure::new(Exit::Host, error.to_string()),
    })
}

fn object(row: &PolicyRow) -> PolicyObject {
    PolicyObject {
        policy: row.policy.clone(),
        outcome: row.outcome.name(),
        digest: row.digest.to_string(),
        frames: row.frames,
        steps: row.steps,
        switches: row.switches,
        cycles: CyclesObject { charged: row.charged, overhead: row.overhead, idle: row.idle },
        waits: WaitsObject {
            count: row.waits.count(),
            mean: row.waits.mean(),
            p50: row.waits.percentile(500),
            p90: row.waits.percentile(900),
            p99: row.waits.percentile(990),
            longest: row.waits.longest(),
        },
        fairness_per_mille: row.fairness,
        stops: StopsObject {
            yielded: row.stops.yielded,
            preempted: row.stops.preempted,
            blocked: row.stops.blocked,
            slept: row.stops.slept,
        },
    }
}

fn print(rows: &[PolicyRow]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("policy", Align::Left),
        ("p50", right),
        ("p90", right),
        ("p99", right),
        ("longest", right),
        ("fairness", right),
        ("scheduler", right),
        ("switches", right),
        ("preempted", right),
        ("blocked", right),
        ("frames", right),
        ("outcome", Align::Left),
    ]);
    for row in rows {
        let scheduler = (row.overhead * 1_000).checked_div(row.overhead + row.charged).unwrap_or(0);
        table.row(vec![
            row.policy.clone(),
            grouped(row.waits.percentile(500)),
            grouped(row.waits.percentile(900)),
            grouped(row.waits.percentile(990)),
            grouped(row.waits.longest()),
            format!("{}.{:03}", row.fairness / 1_000, row.fairness % 1_000),
            format!("{}.{} %", scheduler / 10, scheduler % 10),
            grouped(row.switches),
            grouped(row.stops.preempted),
            grouped(row.stops.blocked),
            grouped(row.frames),
            row.outcome.name().to_owned(),
        ]);
    }
    let mut text = table.render();
    text.push_str(
        "\np50 to longest: cycles from ready to running. fairness: 1 if every coroutine ran for the same fraction of the time it was runnable.\n",
    );
    text
}
