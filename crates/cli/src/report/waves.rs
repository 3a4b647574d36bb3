//! The waves of a run in a report: their widths, the groups of lanes on their critical path, what
//! splitting those would gain, and the channels that crossed lanes. A function of the model, like
//! the rest of a report; how threads executed them is telemetry.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table, share};
use serde::{Deserialize, Serialize};

/// The names of the buckets of `widths`.
pub const WIDTH_NAMES: [&str; 8] =
    ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65 and more"];

/// A group of lanes over all waves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupRow {
    /// Its lanes: several when a session is split over them.
    pub lanes: Vec<u16>,
    /// Its cycles.
    pub cycles: u64,
    /// Waves in which it was the heaviest.
    pub heaviest: u64,
    /// In those, its cycles beyond the second heaviest group: the upper bound of what moving work
    /// away from it can gain.
    pub ahead: u64,
    /// In those, its cycles on all but its heaviest lane: what would be gained if no session joined
    /// its lanes.
    pub joined: u64,
    /// The sessions on it at the end with their cycles, most expensive first, at most three.
    pub sessions: Vec<(String, u64)>,
}

/// A channel that crossed lanes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChannelRow {
    /// Its name.
    pub name: String,
    /// Messages that came from another lane.
    pub crossed: u64,
    /// Senders on other lanes that had no credit and waited.
    pub waited: u64,
}

/// The waves of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WavesRow {
    /// Waves with any work.
    pub count: u64,
    /// By number of groups with work: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64, more.
    pub widths: Vec<u64>,
    /// Cycles of all groups.
    pub work: u64,
    /// Sum of the heaviest group's cycles over all waves: the critical path for any number of
    /// threads.
    pub critical: u64,
    /// The groups, the most often heaviest first.
    pub groups: Vec<GroupRow>,
    /// The channels that crossed lanes, the busiest first.
    pub channels: Vec<ChannelRow>,
}

impl WavesRow {
    /// The upper bound of the speedup on any number of threads, in hundredths.
    #[must_use]
    pub fn bound_percent(&self) -> u64 {
        self.work.saturating_mul(100).checked_div(self.critical).unwrap_or(100)
    }
}

/// One line about the waves; none if the report has no waves.
pub(super) fn head(report: &Report) -> String {
    let waves = &report.waves;
    if waves.count == 0 {
        return String::new();
    }
    let bound = waves.bound_percent();
    let widths: Vec<String> = WIDTH_NAMES
        .iter()
        .zip(&waves.widths)
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{} of {name}", grouped(*count)))
        .collect();
    format!(
        "waves: {} (by groups with work: {}); speedup on any number of workers: at most {}.{:02}\n",
        grouped(waves.count),
        widths.join(", "),
        bound / 100,
        bound % 100
    )
}

/// The table of groups on the critical path.
pub(super) fn groups(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("lanes", Align::Left),
        ("cycles", Align::Right),
        ("share", Align::Right),
        ("heaviest", Align::Right),
        ("ahead", Align::Right),
        ("joined", Align::Right),
        ("gain", Align::Right),
        ("sessions", Align::Left),
    ]);
    let waves = &report.waves;
    // A single group is always the critical path.
    for group in
        waves.groups.iter().filter(|group| group.heaviest > 0 && waves.groups.len() > 1).take(top)
    {
        let lanes: Vec<String> = group.lanes.iter().map(u16::to_string).collect();
        let sessions: Vec<&str> = group.sessions.iter().map(|(name, _)| name.as_str()).collect();
        table.row(vec![
            lanes.join(" "),
            grouped(group.cycles),
            share(group.cycles, waves.work),
            grouped(group.heaviest),
            grouped(group.ahead),
            grouped(group.joined),
            share(group.ahead, waves.critical),
            sessions.join(", "),
        ]);
    }
    table
}

/// The table of channels that crossed lanes.
pub(super) fn channels(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("channel", Align::Left),
        ("crossed", Align::Right),
        ("waited", Align::Right),
    ]);
    for channel in report.waves.channels.iter().take(top) {
        table.row(vec![channel.name.clone(), grouped(channel.crossed), grouped(channel.waited)]);
    }
    table
}
