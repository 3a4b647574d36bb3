//! Generated programs: native code equals the interpreter, whole and in random slices and tiers;
//! planted miscompilations are found.

#[path = "../../machine/tests/drive/mod.rs"]
#[allow(dead_code)]
mod drive;
#[path = "../../machine/tests/generate/mod.rs"]
#[allow(dead_code)]
mod generate;
#[path = "../../machine/tests/observe/mod.rs"]
#[allow(dead_code)]
mod observe;
#[path = "../../machine/tests/random/mod.rs"]
mod random;
mod tiers;

use drive::Whole;
use generate::program;
use observe::observe;
use tiers::{Lockstep, Native};
use wavelock_compiled::Planted;

/// Programs compared.
const PROGRAMS: u64 = 1_000;

#[test]
fn native_code_equals_the_interpreter() {
    let (mut compared, mut left_out) = (0, 0);
    for seed in 0..PROGRAMS {
        let Some(program) = program(seed) else { continue };
        let whole = observe(&program, &mut Whole).expect("a program of the generator");
        let mut native = Native::default();
        let other = observe(&program, &mut native).expect("a program of the generator");
        assert!(whole == other, "seed {seed}: native code shows something else");
        compared += 1;
        left_out += native.0.left_out;
    }
    assert!(compared >= PROGRAMS * 99 / 100, "only {compared} programs");
    assert_eq!(left_out, 0);
}

#[test]
fn slices_in_random_tiers_change_nothing() {
    let (mut slices, mut compared) = (0, 0);
    for seed in 0..PROGRAMS {
        let Some(program) = program(seed) else { continue };
        let (most, native) = [(1, 8), (7, 4), (u64::MAX, 6)][seed as usize % 3];
        let mut driver = Lockstep::new(seed, most, native, 1 << 20);
        let _ = observe(&program, &mut driver);
        assert_eq!(driver.difference, None, "seed {seed}, slices of at most {most}");
        slices += driver.slices;
        compared += driver.compared;
    }
    println!("{slices} slices, {compared} states compared");
    assert!(slices > 100_000 && compared > 10_000, "{slices} slices, {compared} states");
}

#[test]
fn planted_miscompilations_are_found() {
    for fault in
        [Planted::LiveSet, Planted::Charge, Planted::Operands, Planted::Mark, Planted::Header]
    {
        let found = (0..PROGRAMS).find(|&seed| {
            let Some(program) = program(seed) else { return false };
            let mut driver = Lockstep::new(seed, 7, 4, 1 << 20).with_planted(fault);
            let _ = observe(&program, &mut driver);
            driver.difference.is_some()
        });
        println!("{fault:?}: found by seed {found:?}");
        assert!(found.is_some(), "{fault:?} is not found by {PROGRAMS} programs");
    }
}
