//! The leases of a run: their state, how they became so, and the noise that they had not. A
//! function of the model, like the rest of a report.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One lease of the description.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Its name.
    pub name: String,
    /// The session of its holder.
    pub session: String,
    /// The context that pays.
    pub context: String,
    /// Its lane.
    pub lane: u16,
    /// Its state at the end: `active`, `released`, `denied` and others; `free` if it was never
    /// asked for.
    pub state: String,
    /// Why it was denied or ended, if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Requests that its lane took.
    pub requests: u64,
    /// Times it became active.
    pub activations: u64,
    /// Times it was denied.
    pub denials: u64,
    /// Ends, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub ends: BTreeMap<String, u64>,
    /// Cycles for which it was active.
    pub quiet_cycles: u64,
    /// Scheduler operations of others on the lane meanwhile.
    pub noise: u64,
    /// The bound on its revocation.
    pub bound_cycles: u64,
    /// The longest that an end took.
    pub longest_revocation_cycles: u64,
    /// Ends that took longer than the bound.
    pub late: u64,
}

impl LeaseRow {
    /// One line about it.
    pub(crate) fn text(&self) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        format!(
            "{} of {} is {}{reason}; quiet for {} cycles of lane {}, noise {}",
            self.name,
            self.session,
            self.state,
            grouped(self.quiet_cycles),
            self.lane,
            grouped(self.noise)
        )
    }
}

/// The table of leases.
pub(super) fn leases(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("lease", Align::Left),
        ("session", Align::Left),
        ("lane", Align::Right),
        ("state", Align::Left),
        ("asked", Align::Right),
        ("active", Align::Right),
        ("denied", Align::Right),
        ("quiet", Align::Right),
        ("noise", Align::Right),
        ("bound", Align::Right),
        ("longest end", Align::Right),
        ("late", Align::Right),
        ("reason", Align::Left),
    ]);
    for row in report.summary.leases.iter().take(top) {
        table.row(vec![
            row.name.clone(),
            row.session.clone(),
            row.lane.to_string(),
            row.state.clone(),
            grouped(row.requests),
            grouped(row.activations),
            grouped(row.denials),
            grouped(row.quiet_cycles),
            grouped(row.noise),
            grouped(row.bound_cycles),
            grouped(row.longest_revocation_cycles),
            grouped(row.late),
            row.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}
