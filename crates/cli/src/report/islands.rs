//! The islands of a run in a report: what each was admitted with, or what it lost.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use serde::{Deserialize, Serialize};

/// A member of an island.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its session.
    pub session: String,
    /// Its context.
    pub context: String,
    /// Its lane.
    pub lane: u16,
    /// The longest step of its code.
    pub step_cycles: u64,
    /// Steps per period.
    pub steps: u64,
    /// The most it can take of its context per period.
    pub need_cycles: u64,
    /// Its context's budget.
    pub budget_cycles: u64,
}

/// One island.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IslandRow {
    /// Its name.
    pub name: String,
    /// Its period.
    pub period_cycles: u64,
    /// Its deadline, end to end.
    pub deadline_cycles: u64,
    /// The most its longest path takes.
    pub path_cycles: u64,
    /// Pages that its members can have.
    pub memory_pages: u64,
    /// Its members.
    pub members: Vec<MemberRow>,
    /// What it lost since it was admitted; then there are no other values.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub degraded: Option<String>,
}

/// The table of islands, a row per member.
pub(super) fn islands(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("island", Align::Left),
        ("member", Align::Left),
        ("lane", Align::Right),
        ("step", Align::Right),
        ("steps", Align::Right),
        ("need", Align::Right),
        ("budget", Align::Right),
        ("path", Align::Right),
        ("deadline", Align::Right),
    ]);
    let members = report
        .islands
        .iter()
        .flat_map(|island| island.members.iter().map(move |member| (island, member)));
    for (island, member) in members.take(top) {
        table.row(vec![
            island.name.clone(),
            format!("{}/{}", member.session, member.context),
            member.lane.to_string(),
            grouped(member.step_cycles),
            grouped(member.steps),
            grouped(member.need_cycles),
            grouped(member.budget_cycles),
            grouped(island.path_cycles),
            grouped(island.deadline_cycles),
        ]);
    }
    table
}

/// A line for each island that has lost a guarantee.
pub(super) fn degraded(report: &Report) -> String {
    let line = |island: &IslandRow| {
        let lost = island.degraded.as_ref()?;
        Some(format!("island `{}` has lost its guarantee: {lost}\n", island.name))
    };
    report.islands.iter().filter_map(line).collect()
}
