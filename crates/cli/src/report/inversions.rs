//! Priority inversions in a report: a coroutine waits for another that is queued behind coroutines
//! of lower rank, sampled at the ends of waves, and the effect that priority donation would have.
//!
//! A function of the model: which waves are sampled depends on their number alone. The first 4,096
//! are, then every 64th, which bounds the cost in a long run.

use super::model::Report;
use crate::manifest::grouped;
use crate::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wavelock_debug::{Inversion, can_invert, inversions};
use wavelock_system::{Stage, World};

/// All waves up to this one are sampled.
const EVERY_WAVE: u64 = 4_096;
/// After those, one in this many is.
const SPACING: u64 = 64;
/// Maximum number of rows, one per pair of a waiter and the coroutine it waits for.
const MOST_ROWS: usize = 256;

/// One waiter and the coroutine it waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InversionRow {
    /// The waiter.
    pub waiter: String,
    /// The priority, deadline or other rank by which it would have run before others.
    pub rank: String,
    /// The chain of waits when first sampled, from the waiter to the coroutine that was not
    /// blocked.
    pub chain: Vec<String>,
    /// Number of samples that had it.
    pub waves: u64,
    /// The frame of the first such sample.
    pub first_frame: u64,
    /// Why the last coroutine of the chain was not running.
    pub reason: String,
    /// The first few coroutines queued before it.
    pub behind: Vec<String>,
    /// The effect that donation would have had.
    pub donation: String,
}

/// Collects inversions during a run.
#[derive(Default)]
pub struct Inversions {
    last_wave: Option<u64>,
    rows: BTreeMap<(String, String), InversionRow>,
}

impl Inversions {
    /// Samples a machine at the end of a wave, if that wave is due and was not sampled yet.
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

    /// The rows, most frequent first.
    #[must_use]
    pub fn finish(self) -> Vec<InversionRow> {
        let mut rows: Vec<InversionRow> = self.rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.waves));
        rows
    }
}

/// The table of inversions.
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

/// The effect that donation would have had, one line per row.
pub(super) fn donations(report: &Report, top: usize) -> String {
    report
        .inversions
        .iter()
        .take(top)
        .map(|row| format!("  {}: {}\n", row.waiter, row.donation))
        .collect()
}
