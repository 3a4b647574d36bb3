//! From a failing sequence to a small one: operations are dropped greedily, in ever smaller runs,
//! as long as the sequence still fails.

use super::driver::World;
use super::{Op, Setup};
use crate::model::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Replays of a sequence that shrinking may cost.
const REPLAYS: usize = 20_000;

/// What goes wrong when a sequence is replayed, and at which operation. A panic is something that
/// goes wrong.
pub(crate) fn replay(
    setup: Setup,
    operations: &[Op],
    fault: Option<Fault>,
) -> Option<(usize, String)> {
    let mut at = 0;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(setup, fault);
        for (index, &operation) in operations.iter().enumerate() {
            at = index;
            world.apply(operation)?;
        }
        Ok::<(), String>(())
    }));
    match run {
        Ok(Ok(())) => None,
        Ok(Err(difference)) => Some((at, difference)),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Some((at, format!("panic: {}", text.unwrap_or_default())))
        }
    }
}

/// What a difference is about: shrinking stays with it, or it would wander off to another bug.
fn kind(difference: &str) -> &str {
    difference.split(':').next().unwrap_or_default()
}

/// A small sequence that fails too, with what goes wrong in it.
pub(crate) fn shrink(setup: Setup, operations: &[Op], fault: Option<Fault>) -> (Vec<Op>, String) {
    let setup = Setup { check_every: 1, ..setup };
    let Some((at, mut difference)) = replay(setup, operations, fault) else {
        return (operations.to_vec(), "the sequence does not fail when it is replayed".to_string());
    };
    let mut kept = operations[..=at].to_vec();
    let mut replays = 0;
    let mut run = kept.len().div_ceil(2);
    let mut before = kept.len();
    while run > 0 && replays < REPLAYS {
        let mut start = 0;
        while start < kept.len() && replays < REPLAYS {
            let end = (start + run).min(kept.len());
            let shorter: Vec<Op> = kept[..start].iter().chain(&kept[end..]).copied().collect();
            replays += 1;
            match replay(setup, &shorter, fault) {
                Some((at, found)) if kind(&found) == kind(&difference) => {
                    kept = shorter[..=at].to_vec();
                    difference = found;
                }
                // Small runs slide by one, so that a slice can be dropped with its end.
                _ => start += if run <= 4 { 1 } else { run },
            }
        }
        run = if run <= 4 { run - 1 } else { run / 2 };
        if run == 0 && kept.len() < before {
            (run, before) = (4.min(kept.len()), kept.len());
        }
    }
    (kept, difference)
}

/// The failure as Rust that can be pasted among the kept regressions.
pub(crate) fn report(setup: Setup, seed: u64, operations: &[Op], fault: Option<Fault>) -> String {
    let (kept, difference) = shrink(setup, operations, fault);
    let lines: Vec<String> = kept
        .iter()
        .map(|operation| format!("            Op::{operation:?},").replace("end: ", "end: End::"))
        .collect();
    let setup =
        format!("{:?}", Setup { check_every: 1, ..setup }).replace("kind: ", "kind: Kind::");
    let lines = lines.join("\n").replace("kind: ", "kind: Kind::");
    format!(
        "seed {seed}, {} operations shrunk to {}: {difference}\n    (\n        {setup},\n        &[\n{lines}\n        ],\n    ),",
        operations.len(),
        kept.len()
    )
}
