//! Laws over generated programs (`wasm-smith`): another engine shows the same, any slices show the same, and so do canonical bytes on the way.
//!
//! A failure prints the seed of the program; `program(seed)` makes it again.

mod drive;
mod generate;
mod observe;
mod oracle;
mod random;

use drive::{Sliced, Snapshots, Whole};
use generate::{Ended, Nans, Trap, program};
use observe::observe;
use std::collections::BTreeSet;

/// Programs compared with `wasmi`.
const PROGRAMS: u64 = 1_000;

#[test]
fn wasmi_shows_the_same_for_a_thousand_programs() {
    let (mut compared, mut calls, mut traps) = (0, 0, BTreeSet::new());
    for seed in 0..PROGRAMS {
        let Some(program) = program(seed, Nans::ByProgram) else { continue };
        let ours = observe(&program, &mut Whole).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let theirs = oracle::observe(&program).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours.observed.ends, theirs.ends, "seed {seed}, sequence {number}: ours, then wasmi's");
            assert!(ours.observed == *theirs, "seed {seed}, sequence {number}: the state after the calls differs");
            calls += ours.observed.ends.len();
            traps.extend(ours.observed.ends.iter().filter_map(|end| match end {
                Ended::Trapped(trap) => Some(format!("{trap:?}")),
                Ended::Returned(_) => None,
            }));
        }
        assert_eq!(ours.len(), theirs.len(), "seed {seed}");
        compared += 1;
    }
    println!("{compared} programs, {calls} instantiations and calls, traps seen: {traps:?}");
    assert!(compared >= PROGRAMS * 99 / 100, "the generator gave only {compared} programs");
    assert!(traps.len() >= 7, "only these traps were reached: {traps:?}");
    assert!(!traps.contains(&format!("{:?}", Trap::Stack)), "a program met a stack limit, where engines may differ");
}

#[test]
fn slicing_law_holds_over_generated_programs() {
    for seed in 0..300 {
        let Some(program) = program(seed, Nans::ByOracle) else { continue };
        let whole = observe(&program, &mut Whole).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (pattern, most) in [(seed, 1), (seed, u64::MAX), (seed + 1, 7)] {
            let sliced = observe(&program, &mut Sliced::new(pattern, most)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(whole == sliced, "seed {seed}: slices of at most {most} (pattern {pattern}) show something else");
        }
    }
}

#[test]
fn snapshot_law_holds_over_generated_programs() {
    let (mut taken, mut passed) = (0, 0);
    for seed in 0..60 {
        let Some(program) = program(seed, Nans::ByOracle) else { continue };
        let whole = observe(&program, &mut Whole).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut driver = Snapshots::new(2 << 20);
        let restored = observe(&program, &mut driver).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(whole == restored, "seed {seed}: going through canonical bytes shows something else");
        taken += driver.taken;
        passed += driver.passed;
    }
    println!("{taken} snapshots at {passed} safepoints");
    assert!(taken > 5_000, "only {taken} snapshots were taken");
}
