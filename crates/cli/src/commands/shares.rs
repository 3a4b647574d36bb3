//! `wavelock lab --share SESSION`: which part of several machines a session gets under each policy.
//!
//! A share is a quotient of two entries of the ledger: the cycles charged to the session, and the
//! cycles of all lanes. So the table is exact, and the same on every host.

use super::lab::{measure, quantum};
use super::machine::describe;
use super::{emit, emit_json};
use crate::arguments::{LabArguments, MachineArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::Policy;
use crate::table::{Align, Table};
use serde::Serialize;
use std::path::Path;
use wavelock_debug::parse_session;
use wavelock_kernel::Sharing;
use wavelock_lab::PolicyRow;

/// What `lab --share SESSION --json` prints.
#[derive(Serialize)]
struct SharesObject {
    session: String,
    machines: Vec<MachineObject>,
}

#[derive(Serialize)]
struct MachineObject {
    file: String,
    policies: Vec<ShareObject>,
}

#[derive(Serialize)]
struct ShareObject {
    policy: &'static str,
    outcome: &'static str,
    /// Cycles charged to the session.
    cycles: u64,
    /// Cycles of all lanes: charged, overhead and idle.
    total_cycles: u64,
    /// Their quotient.
    share_per_million: u64,
}

pub(super) fn shares(arguments: &LabArguments, session: &str) -> Result<Exit, Failure> {
    let others = arguments.others.iter();
    let machines = std::iter::once(&arguments.machine.file)
        .chain(others)
        .map(|file| machine(arguments, file, session))
        .collect::<Result<Vec<_>, _>>()?;
    let object = SharesObject { session: session.to_owned(), machines };
    if arguments.json {
        emit_json(&object)?
    } else {
        emit(&print(&object))?
    }
    Ok(Exit::Done)
}

/// Every policy, `fair` in both of its forms.
fn columns() -> Vec<(&'static str, Policy, Sharing)> {
    let plain = Policy::ALL.iter().filter(|&&policy| policy != Policy::Fair);
    plain
        .map(|&policy| (policy.name(), policy, Sharing::Session))
        .chain([
            ("fair by coroutine", Policy::Fair, Sharing::Coroutine),
            ("fair by session", Policy::Fair, Sharing::Session),
        ])
        .collect()
}

/// The row of one machine. A policy that does not allow its quantum is left out.
fn machine(arguments: &LabArguments, file: &Path, session: &str) -> Result<MachineObject, Failure> {
    let described =
        describe(&MachineArguments { file: file.to_owned(), ..arguments.machine.clone() })?;
    let number = parse_session(session, &described.machine.spec)
        .map_err(|error| Failure::new(Exit::Usage, format!("`{}`: {error}", file.display())))?;
    let quantum = quantum(&described);
    let (mut names, mut policies) = (Vec::new(), Vec::new());
    for (name, policy, share) in columns() {
        if let Some(policy) = described.made(policy, share, quantum) {
            names.push(name);
            policies.push((name.to_owned(), policy));
        }
    }
    let rows = measure(&described, &policies)?;
    let share = |(policy, row): (&'static str, &PolicyRow)| {
        let (cycles, total) = (row.sessions[number.0 as usize].cycles, row.total());
        ShareObject {
            policy,
            outcome: row.outcome.name(),
            cycles,
            total_cycles: total,
            share_per_million: (u128::from(cycles) * 1_000_000 / u128::from(total.max(1))) as u64,
        }
    };
    Ok(MachineObject {
        file: file.display().to_string(),
        policies: names.into_iter().zip(&rows).map(share).collect(),
    })
}

fn print(object: &SharesObject) -> String {
    let mut heads = vec![("machine", Align::Left)];
    heads.extend(columns().into_iter().map(|(name, ..)| (name, Align::Right)));
    let mut table = Table::new(&heads);
    for machine in &object.machines {
        let mut cells = vec![machine.file.clone()];
        cells.extend(columns().into_iter().map(|(name, ..)| {
            let found = machine.policies.iter().find(|share| share.policy == name);
            found.map_or_else(String::new, |share| percent(share.share_per_million))
        }));
        table.row(cells);
    }
    format!(
        "{}\nPercent of all cycles of the machine (charged, overhead and idle) that `{}` was charged.\n",
        table.render(),
        object.session
    )
}

/// Percent with one decimal, rounded.
fn percent(per_million: u64) -> String {
    let tenths = (per_million + 500) / 1_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}
