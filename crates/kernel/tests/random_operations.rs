//! Random operation sequences on the kernel, every answer compared with a naive model written from the pages (`model/`).
//!
//! A million operations per run in all: after each operation on populations up to 64, and after every thousand at 100,000, the kernel's own
//! `check` runs and every coroutine is compared. Seeds are fixed and printed; a failing sequence is shrunk and printed as Rust that can be
//! pasted into [`REGRESSIONS`]. Each run counts what it reached and fails when something it is there for was never reached; for each rule the
//! model can break on purpose a test shows that the comparison notices.

mod model;
mod operations;

use model::Fault;
use operations::driver::World;
use operations::generate::Generator;
use operations::shrink::{replay, report, shrink};
use operations::{Event, Kind, Op, Reached, Setup};

/// Sequences that failed once: they must never fail again.
const REGRESSIONS: &[(Setup, &[Op])] = &[];

/// Runs one sequence, which begins by filling the machine; gives what it reached, or the sequence that failed.
fn run(setup: Setup, seed: u64, fill: usize, length: usize, fault: Option<Fault>) -> Result<Reached, Vec<Op>> {
    let mut world = World::new(setup, fault);
    let mut generator = Generator::new(seed, 12);
    let mut operations = Vec::with_capacity(fill + length);
    for number in 0..fill + length {
        let operation = if number < fill { generator.fill(&mut world) } else { generator.next(&mut world) };
        operations.push(operation);
        if let Err(difference) = world.apply(operation) {
            println!("{difference}");
            return Err(operations);
        }
    }
    world.finish();
    Ok(world.reached)
}

/// The setup that a seed stands for.
fn setup(kind: Kind, seed: u64) -> Setup {
    let mut random = model::random::Random::new(seed ^ 0x5e7);
    Setup {
        lanes: random.pick(&[1, 2, 3, 4]),
        kind,
        quantum: random.pick(&[1, 300, 1_000, 3_000]),
        frame_cycles: random.pick(&[4_000, 20_000, 200_000]),
        handoff: random.chance(3, 4),
        outbox: random.pick(&[2, 16]),
        population: random.pick(&[4, 16, 64, 64]),
        switches: random.chance(1, 4),
        check_every: 1,
    }
}

/// Sequences of one policy: 60 seeds of 2,000 operations.
fn small(kind: Kind, unreachable: &[Event]) {
    let mut reached = Reached::new();
    for number in 0..60 {
        let seed = number * 7 + kind as u64;
        println!("{kind:?}, seed {seed}");
        let setup = setup(kind, seed);
        match run(setup, seed, 0, 2_000, None) {
            Ok(more) => reached.add(&more),
            Err(operations) => panic!("{}", report(setup, seed, &operations, None)),
        }
    }
    reached.require_all_but(unreachable);
}

#[test]
fn cooperative() {
    small(Kind::Cooperative, &[]);
}

#[test]
fn round_robin() {
    small(Kind::RoundRobin, &[]);
}

#[test]
fn priority_fixed() {
    small(Kind::Fixed, &[]);
}

#[test]
fn priority_aging() {
    small(Kind::Aging, &[]);
}

#[test]
fn priority_tokens() {
    small(Kind::Tokens, &[]);
}

#[test]
fn progress_aware() {
    small(Kind::Progress, &[]);
}

#[test]
fn fair() {
    small(Kind::Fair, &[]);
}

/// A population of 100,000: filled by operations, then worked on.
fn large(kind: Kind, lanes: u16, length: usize) {
    let setup = Setup {
        lanes,
        kind,
        quantum: 3_000,
        frame_cycles: 50_000_000,
        handoff: true,
        outbox: 64,
        population: 100_000,
        switches: false,
        check_every: 1_000,
    };
    let seed = 100_000 + kind as u64;
    println!("{kind:?}, seed {seed}");
    if let Err(operations) = run(setup, seed, 100_000, length, None) {
        panic!("seed {seed}: operation {} of the sequence: {:?}", operations.len(), operations.last());
    }
}

#[test]
fn a_hundred_thousand_by_age() {
    large(Kind::Aging, 4, 4_000);
}

#[test]
fn a_hundred_thousand_by_share() {
    large(Kind::Fair, 32, 4_000);
}

#[test]
fn every_broken_rule_is_noticed() {
    for fault in Fault::ALL {
        let kind = match fault {
            Fault::AgesTooFast => Kind::Aging,
            Fault::LongerStreak => Kind::Progress,
            Fault::TokensAreKept => Kind::Tokens,
            Fault::LagIsForgotten | Fault::EverybodyIsEligible => Kind::Fair,
            _ => Kind::RoundRobin,
        };
        let noticed = (0..40).find(|&seed| run(setup(kind, seed), seed, 0, 2_000, Some(fault)).is_err());
        println!("{fault:?} is noticed by seed {noticed:?}");
        let seed = noticed.unwrap_or_else(|| panic!("nothing notices {fault:?}"));
        assert!(run(setup(kind, seed), seed, 0, 2_000, None).is_ok(), "the sequence fails without {fault:?} too");
    }
}

#[test]
fn a_failing_sequence_shrinks_to_what_matters() {
    let setup = Setup { lanes: 1, population: 16, switches: false, ..setup(Kind::RoundRobin, 1) };
    let operations = run(setup, 1, 0, 2_000, Some(Fault::NewestFirst)).expect_err("the broken rule is noticed");
    let (kept, difference) = shrink(setup, &operations, Some(Fault::NewestFirst));
    // Two coroutines, a wave to run them in, and the pick of the wrong one.
    assert!(kept.len() <= 4, "{difference}: {kept:?}");
    assert!(replay(setup, &kept, None).is_none(), "without the broken rule the sequence is fine: {kept:?}");
}

#[test]
fn kept_regressions() {
    for (setup, operations) in REGRESSIONS {
        if let Some((at, difference)) = replay(*setup, operations, None) {
            panic!("operation {at}, {:?}: {difference}", operations[at]);
        }
    }
}
