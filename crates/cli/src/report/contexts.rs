//! The contexts of a run in a report: what each reserved, what was charged to it, and which
//! coroutines ran on it. A function of the model, like the rest of a report.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table, share};
use serde::{Deserialize, Serialize};

/// One coroutine that ran on a context.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExecutedRow {
    /// Its session and slot; `others` for those beyond the limit.
    pub coroutine: String,
    /// Lane time charged to the context while it ran.
    pub cycles: u64,
}

/// One context.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ContextRow {
    /// Its name in the manifest, else `context SLOT.GENERATION`.
    pub name: String,
    /// The session that owns it.
    pub owner: String,
    /// Its lane.
    pub lane: u16,
    /// Cycles per period.
    pub budget_cycles: u64,
    /// The period.
    pub period_cycles: u64,
    /// Cycles from a release to its deadline.
    pub deadline_cycles: u64,
    /// What happens when a refill is used up.
    pub overrun_policy: String,
    /// Whether it was revoked before the run ended; its session's end revokes it too.
    pub revoked: bool,
    /// Lane time charged to it: the sum of `executed_by`.
    pub charged_cycles: u64,
    /// Refills that made a throttled holder ready.
    pub refills: u64,
    /// Times its holder was throttled.
    pub throttled: u64,
    /// Times its holder was demoted to best effort.
    pub demoted: u64,
    /// Times a slice overran its refill; the excess was charged to later refills.
    pub overruns: u64,
    /// The longest overrun.
    pub longest_overrun_cycles: u64,
    /// Deadlines that were missed.
    pub missed: u64,
    /// Times it was lent along a call.
    pub lent: u64,
    /// The coroutines that ran on it, most cycles first.
    pub executed_by: Vec<ExecutedRow>,
}

/// The table of contexts.
pub(super) fn contexts(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("context", Align::Left),
        ("session", Align::Left),
        ("lane", Align::Right),
        ("budget", Align::Right),
        ("period", Align::Right),
        ("deadline", Align::Right),
        ("charged", Align::Right),
        ("refills", Align::Right),
        ("throttled", Align::Right),
        ("demoted", Align::Right),
        ("overruns", Align::Right),
        ("longest", Align::Right),
        ("missed", Align::Right),
        ("lent", Align::Right),
    ]);
    for row in report.contexts.iter().take(top) {
        table.row(vec![
            row.name.clone(),
            row.owner.clone(),
            row.lane.to_string(),
            grouped(row.budget_cycles),
            grouped(row.period_cycles),
            grouped(row.deadline_cycles),
            grouped(row.charged_cycles),
            grouped(row.refills),
            grouped(row.throttled),
            grouped(row.demoted),
            grouped(row.overruns),
            grouped(row.longest_overrun_cycles),
            grouped(row.missed),
            grouped(row.lent),
        ]);
    }
    table
}

/// The table of the coroutines that ran on each context.
pub(super) fn executed(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("charged to", Align::Left),
        ("executed by", Align::Left),
        ("cycles", Align::Right),
        ("share", Align::Right),
    ]);
    let rows = report
        .contexts
        .iter()
        .flat_map(|context| context.executed_by.iter().map(move |row| (context, row)));
    for (context, row) in rows.take(top) {
        table.row(vec![
            context.name.clone(),
            row.coroutine.clone(),
            grouped(row.cycles),
            share(row.cycles, context.charged_cycles),
        ]);
    }
    table
}
