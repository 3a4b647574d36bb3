//! Priority inversions in a report: who waited for somebody behind others, as seen at the ends of
//! waves, and what donation would change.
//!
//! A function of the model: which waves are looked at depends on their number alone. All of the
//! first ones are, then every 64th, so that a long run is not looked at all the time.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wavelock_debug::{Inversion, can_invert, inversions};
use wavelock_system::{Stage, World};

/// Waves that are all looked at.
const EVERY_WAVE: u64 = 4_096;
/// After those, one of so many is.
const SPACING: u64 = 64;
/// Pairs of a waiter and whom it waits for that are told apart.
const MOST_ROWS: usize = 256;

/// One waiter and whom it waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InversionRow {
    /// Who waited.
    pub waiter: String,
    /// What it would have gone before others by.
    pub rank: String,
    /// Who waited for whom when it was first seen, from the waiter to the one that did not wait.
    pub chain: Vec<String>,
    /// Ends of waves at which it was seen.
    pub waves: u64,
    /// The frame in which it was first seen.
    pub first_frame: u64,
    /// Why the last of the chain did not run then.
    pub reason: String,
    /// Who went before it then; the first few.
    pub behind: Vec<String>,
    /// What donation would have changed.
    pub donation: String,
}

/// Collects inversions while a run goes on.
#[derive(Default)]
pub struct Inversions {
    last_wave: Option<u64>,
    rows: BTreeMap<(String, String), InversionRow>,
}

impl Inversions {
    /// Looks at a machine, if it stands at the end of a wave that is to be looked at and was not
    /// yet.
    pub fn look(&mut self, world: &World) {
        let wave = world.wave();
        let wanted = wave < EVERY_WAVE || wave.is_multiple_of(SPACING);
        if world.stage() == Stage::Wave
            || self.last_wave == Some(wave)
            || !wanted
            || !can_invert(world)
        {
            return;
        }
        self.last_wave = Some(wave);
        for found in inversions(world) {
            self.add(world.frame().0, found);
        }
    }

    fn add(&mut self, frame: u64, found: Inversion) {
        let key = (found.waiter.clone(), found.chain.last().cloned().unwrap_or_default());
        if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
            return;
        }
        let row = self.rows.entry(key).or_insert_with(|| InversionRow {
            waiter: found.waiter,
            rank: found.rank,
            chain: found.chain,
            waves: 0,
            first_frame: frame,
            reason: found.reason,
            behind: found.ahead.into_iter().map(|row| row.coroutine).collect(),
            donation: found.donation,
        });
        row.waves += 1;
    }

    /// The rows, those seen most often first.
    #[must_use]
    pub fn finish(self) -> Vec<InversionRow> {
        let mut rows: Vec<InversionRow> = self.rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.waves));
        rows
    }
}

/// Who waited for whom, behind whom.
pub(super) fn table(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("by", Align::Left),
        ("waves", Align::Right),
        ("first frame", Align::Right),
        ("behind", Align::Left),
    ]);
    for row in report.inversions.iter().take(top) {
        table.row(vec![
            row.chain.join(" -> "),
            row.rank.clone(),
            grouped(row.waves),
            grouped(row.first_frame),
            row.behind.join(", "),
        ]);
    }
    table
}

/// What donation would have changed, a line each.
pub(super) fn donations(report: &Report, top: usize) -> String {
    report
        .inversions
        .iter()
        .take(top)
        .map(|row| format!("  {}: {}\n", row.waiter, row.donation))
        .collect()
}
