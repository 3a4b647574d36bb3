//! The lanes of a run: their part of the ledger, and their counters.

use crate::manifest::grouped;
use crate::report::LaneRow;
use crate::table::{Align, Table};
use wavelock_kernel::{Counter, WakeSource};
use wavelock_system::{LaneSummary, World};

/// A row per lane.
pub(super) fn rows(world: &World) -> Vec<LaneRow> {
    world.lane_summaries().iter().map(row).collect()
}

fn row(lane: &LaneSummary) -> LaneRow {
    let counters = Counter::ALL
        .iter()
        .filter_map(|&counter| Some((counter.name().to_owned(), lane.counters.get(counter)?)));
    let sources = WakeSource::ALL.iter().zip(lane.wakes);
    LaneRow {
        charged: lane.charged.0,
        overhead: lane.overhead.0,
        idle: lane.idle.0,
        counters: counters.collect(),
        wakes: sources.map(|(source, count)| (source.name().to_owned(), count)).collect(),
    }
}

/// The rows as a table with a column per lane, and the full frames of each lane if they are known.
/// Counters that are zero on every lane are left out.
#[must_use]
pub(crate) fn table(rows: &[LaneRow], full_frames: &[u64]) -> Table {
    let shown = rows.len().min(HEADS.len());
    let mut columns = vec![("per lane", Align::Left)];
    columns.extend(HEADS[..shown].iter().map(|&head| (head, Align::Right)));
    if rows.len() > shown {
        columns.push(("other lanes", Align::Right));
    }
    let mut table = Table::new(&columns);
    let mut line = |name: String, of: &dyn Fn(usize, &LaneRow) -> Option<u64>| {
        let values: Vec<Option<u64>> =
            rows.iter().enumerate().map(|(at, row)| of(at, row)).collect();
        if values.iter().all(|value| value.unwrap_or(0) == 0) {
            return;
        }
        let mut cells = vec![name];
        cells.extend(values[..shown].iter().map(|value| value.map_or_else(String::new, grouped)));
        if rows.len() > shown {
            cells.push(grouped(values[shown..].iter().flatten().sum()));
        }
        table.row(cells);
    };
    line("charged cycles".to_owned(), &|_, row| Some(row.charged));
    line("overhead cycles".to_owned(), &|_, row| Some(row.overhead));
    line("idle cycles".to_owned(), &|_, row| Some(row.idle));
    line("full frames".to_owned(), &|lane, _| full_frames.get(lane).copied());
    for counter in Counter::ALL {
        line(counter.name().to_owned(), &|_, row| row.counters.get(counter.name()).copied());
    }
    for source in WakeSource::ALL {
        let name = format!("wakes by {}", source.name());
        line(name, &|_, row| row.wakes.get(source.name()).copied());
    }
    table
}

/// Lanes with a column of their own.
const HEADS: [&str; 8] =
    ["lane 0", "lane 1", "lane 2", "lane 3", "lane 4", "lane 5", "lane 6", "lane 7"];
