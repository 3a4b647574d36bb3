//! Random operation sequences on the kernel, every answer compared with a naive model written from
//! the pages (`model/`).
//!
//! A million operations per run in all: after each operation on populations up to 64, and after
//! every thousand at 100,000, the kernel's own `check` runs and every coroutine is compared. Seeds
//! are fixed and printed; a failing sequence is shrunk and printed as Rust that can be pasted into
//! [`REGRESSIONS`]. Each run counts what it reached and fails when something it is there for was
//! never reached; for each rule the model can break on purpose a test shows that the comparison
//! notices.

mod model;
mod operations;
mod support;

use model::Fault;
use operations::driver::World;
use operations::generate::Generator;
use operations::shrink::{replay, report, shrink};
use operations::{End, Event, Kind, Op, Reached, Setup};

/// Sequences that failed once: they must never fail again. As [`report`] prints them.
#[rustfmt::skip]
const REGRESSIONS: &[(Setup, &[Op])] = &[
    // A change of weight rounds the fair queue's bound up by a cycle: the rest of the quantum holds.
    (
        Setup { lanes: 4, kind: Kind::Fair, quantum: 300, frame_cycles: 4000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::NextFrame { skip: 0, picks: false, span: 1971 },
            Op::Spawn { name: 3, lane: 2, session: 9, priority: 1, weight: 64061, class: 4 },
            Op::Dispatch { lane: 2 },
            Op::Stop { lane: 2, used: 1935, end: End::Spent },
            Op::SetShare { name: 3, old: false, weight: 4, class: 3 },
            Op::NextFrame { skip: 0, picks: false, span: 2013 },
            Op::Dispatch { lane: 2 },
            Op::Stop { lane: 2, used: 465, end: End::Spent },
        ],
    ),
    // A coroutine that ends with its session while it is ready has waited.
    (
        Setup { lanes: 1, kind: Kind::Fair, quantum: 1000, frame_cycles: 4000, handoff: true, population: 64, switches: true, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 3, lane: 0, session: 7, priority: 3, weight: 64148, class: 3 },
            Op::NextFrame { skip: 3, picks: false, span: 1763 },
            Op::EndSession { lane: 0, session: 7 },
        ],
    ),
    // A wait longer than the other lane's clock travels whole.
    (
        Setup { lanes: 4, kind: Kind::Cooperative, quantum: 300, frame_cycles: 200000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 71, lane: 1, session: 2, priority: 179, weight: 60501, class: 2 },
            Op::Wave { picks: false, span: 91100 },
            Op::Dispatch { lane: 1 },
            Op::Spawn { name: 73, lane: 1, session: 4, priority: 4, weight: 1024, class: 0 },
            Op::Stop { lane: 1, used: 21856, end: End::Spent },
            Op::Steal { lane: 2, banned: 5 },
            Op::Dispatch { lane: 2 },
        ],
    ),
    // A handoff from another lane while this lane has a current coroutine inherits its rest.
    (
        Setup { lanes: 2, kind: Kind::Fixed, quantum: 3000, frame_cycles: 20000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::Wave { picks: false, span: 9837 },
            Op::Spawn { name: 30, lane: 0, session: 5, priority: 116, weight: 1024, class: 2 },
            Op::Spawn { name: 31, lane: 0, session: 1, priority: 1, weight: 8, class: 3 },
            Op::DispatchNext,
            Op::Stop { lane: 0, used: 240, end: End::Block(0) },
            Op::Dispatch { lane: 0 },
            Op::PostHandoff { from: 1, name: 30, old: false, source: 0 },
            Op::Stop { lane: 0, used: 1875, end: End::Spent },
            Op::Wave { picks: false, span: 3775 },
            Op::Dispatch { lane: 0 },
        ],
    ),
    // A handoff from another lane, and a current coroutine that uses its quantum up.
    (
        Setup { lanes: 2, kind: Kind::RoundRobin, quantum: 3000, frame_cycles: 20000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::Wave { picks: false, span: 461 },
            Op::Spawn { name: 50, lane: 0, session: 1, priority: 79, weight: 1024, class: 0 },
            Op::Dispatch { lane: 0 },
            Op::Stop { lane: 0, used: 946, end: End::Block(6) },
            Op::NextFrame { skip: 2, picks: false, span: 2649 },
            Op::Spawn { name: 60, lane: 0, session: 2, priority: 88, weight: 1024, class: 3 },
            Op::PostHandoff { from: 1, name: 50, old: false, source: 4 },
            Op::Spawn { name: 72, lane: 0, session: 6, priority: 134, weight: 64029, class: 2 },
            Op::Dispatch { lane: 0 },
            Op::Stop { lane: 0, used: 770, end: End::Spent },
            Op::Wave { picks: false, span: 4859 },
            Op::DispatchNext,
            Op::Stop { lane: 0, used: 2230, end: End::Spent },
            Op::Dispatch { lane: 0 },
        ],
    ),
    // A sender that is held inside its slice leaves the rest of its quantum to the one it
    // preferred.
    (
        Setup { lanes: 2, kind: Kind::RoundRobin, quantum: 3000, frame_cycles: 20000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 11, lane: 0, session: 3, priority: 119, weight: 7, class: 3 },
            Op::Spawn { name: 17, lane: 0, session: 1, priority: 238, weight: 7, class: 2 },
            Op::NextFrame { skip: 0, picks: false, span: 6865 },
            Op::Dispatch { lane: 0 },
            Op::Prefer { name: 17, old: false },
            Op::Hold { name: 11, old: false, reason: 0 },
            Op::Stop { lane: 0, used: 1979, end: End::Spent },
            Op::Dispatch { lane: 0 },
        ],
    ),
    // A preference ends when its target leaves the lane.
    (
        Setup { lanes: 4, kind: Kind::Cooperative, quantum: 300, frame_cycles: 200000, handoff: true, population: 64, switches: false, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 72, lane: 0, session: 0, priority: 71, weight: 1, class: 1 },
            Op::Spawn { name: 82, lane: 0, session: 11, priority: 40, weight: 4, class: 3 },
            Op::Prefer { name: 72, old: false },
            Op::Steal { lane: 1, banned: 7 },
            Op::Prefer { name: 82, old: false },
        ],
    ),
    // A preference ends with a switch of policy.
    (
        Setup { lanes: 3, kind: Kind::Progress, quantum: 1, frame_cycles: 20000, handoff: true, population: 4, switches: true, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 22, lane: 1, session: 11, priority: 199, weight: 62341, class: 4 },
            Op::Prefer { name: 22, old: false },
            Op::NextFrame { skip: 0, picks: true, span: 4 },
            Op::SetPolicy { lane: 1, kind: Kind::RoundRobin, quantum: 1288 },
            Op::Dispatch { lane: 1 },
        ],
    ),
    // A steal leaves work behind.
    (
        Setup { lanes: 3, kind: Kind::Tokens, quantum: 1000, frame_cycles: 20000, handoff: true, population: 16, switches: false, check_every: 1, capped: false },
        &[
            Op::NextFrame { skip: 3, picks: false, span: 4734 },
            Op::Spawn { name: 15, lane: 2, session: 1, priority: 1, weight: 1024, class: 2 },
            Op::Spawn { name: 20, lane: 2, session: 6, priority: 249, weight: 8, class: 3 },
            Op::Dispatch { lane: 2 },
            Op::Stop { lane: 2, used: 257, end: End::Block(6) },
            Op::Spawn { name: 23, lane: 2, session: 6, priority: 157, weight: 63909, class: 0 },
            Op::Steal { lane: 1, banned: 7 },
        ],
    ),
    // A yield gives up the rest of a fair request, held or not.
    (
        Setup { lanes: 4, kind: Kind::RoundRobin, quantum: 1000, frame_cycles: 200000, handoff: true, population: 16, switches: true, check_every: 1, capped: false },
        &[
            Op::SetPolicy { lane: 3, kind: Kind::Fair, quantum: 697 },
            Op::NextFrame { skip: 0, picks: false, span: 96836 },
            Op::Spawn { name: 63, lane: 3, session: 1, priority: 2, weight: 2048, class: 1 },
            Op::DispatchNext,
            Op::Hold { name: 63, old: false, reason: 1 },
            Op::Stop { lane: 3, used: 85, end: End::Sleep(0) },
            Op::Release { name: 63, old: false, reason: 1 },
            Op::Dispatch { lane: 3 },
        ],
    ),
    // One that wakes into a hold keeps its debt and pays it off no further.
    (
        Setup { lanes: 4, kind: Kind::Fair, quantum: 1000, frame_cycles: 200000, handoff: false, population: 64, switches: true, check_every: 1, capped: false },
        &[
            Op::Wave { picks: false, span: 23430 },
            Op::Spawn { name: 21, lane: 1, session: 3, priority: 171, weight: 256, class: 3 },
            Op::Dispatch { lane: 1 },
            Op::Spawn { name: 30, lane: 1, session: 3, priority: 3, weight: 65130, class: 3 },
            Op::Hold { name: 21, old: false, reason: 0 },
            Op::Stop { lane: 1, used: 21, end: End::Block(4) },
            Op::Wake { name: 21, old: false, source: 2 },
            Op::Release { name: 21, old: false, reason: 0 },
            Op::Cancel { name: 30, old: false },
            Op::Dispatch { lane: 1 },
        ],
    ),
    // A sleeper that moved can be exported and rebuilt.
    (
        Setup { lanes: 3, kind: Kind::RoundRobin, quantum: 1, frame_cycles: 200000, handoff: true, population: 4, switches: true, check_every: 1, capped: false },
        &[
            Op::Spawn { name: 28, lane: 0, session: 7, priority: 3, weight: 60390, class: 2 },
            Op::Wave { picks: true, span: 4 },
            Op::DispatchNext,
            Op::Stop { lane: 0, used: 123, end: End::Block(2) },
            Op::Spawn { name: 39, lane: 0, session: 2, priority: 0, weight: 63218, class: 2 },
            Op::DispatchNext,
            Op::Stop { lane: 0, used: 87, end: End::Sleep(63365) },
            Op::Migrate { session: 2, from: 0, to: 2 },
            Op::Rebuild { lane: 2 },
        ],
    ),
];

/// Runs one sequence, which begins by filling the machine; gives what it reached, or the sequence
/// that failed.
fn run(
    setup: Setup,
    seed: u64,
    fill: usize,
    length: usize,
    fault: Option<Fault>,
) -> Result<Reached, Vec<Op>> {
    let mut world = World::new(setup, fault);
    let mut generator = Generator::new(seed, 12);
    let mut operations = Vec::with_capacity(fill + length);
    for number in 0..fill + length {
        let operation =
            if number < fill { generator.fill(&mut world) } else { generator.next(&mut world) };
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
    let mut random = support::Random::new(seed ^ 0x5e7);
    Setup {
        lanes: random.pick(&[1, 2, 3, 4]),
        kind,
        quantum: random.pick(&[1, 300, 1_000, 3_000]),
        frame_cycles: random.pick(&[4_000, 20_000, 200_000]),
        handoff: random.chance(3, 4),
        population: random.pick(&[4, 16, 64, 64]),
        switches: random.chance(1, 4),
        check_every: 1,
        capped: false,
    }
}

/// The same on one lane with caps.
fn capped(kind: Kind, seed: u64) -> Setup {
    Setup { lanes: 1, capped: true, ..setup(kind, seed) }
}

/// What only a machine with caps reaches.
const OF_CAPS: [Event; 4] = [Event::Throttled, Event::Demoted, Event::EndedByCap, Event::Refilled];

/// What only a machine with several lanes reaches.
const OF_LANES: [Event; 4] = [Event::Steal, Event::Migration, Event::Effect, Event::RemoteHandoff];

/// Sequences of one policy: 60 seeds of 2,000 operations.
fn small(kind: Kind, setup: fn(Kind, u64) -> Setup, unreachable: &[Event]) {
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
    small(Kind::Cooperative, setup, &OF_CAPS);
}

#[test]
fn round_robin() {
    small(Kind::RoundRobin, setup, &OF_CAPS);
}

#[test]
fn priority_fixed() {
    small(Kind::Fixed, setup, &OF_CAPS);
}

#[test]
fn priority_aging() {
    small(Kind::Aging, setup, &OF_CAPS);
}

#[test]
fn priority_tokens() {
    small(Kind::Tokens, setup, &OF_CAPS);
}

#[test]
fn progress_aware() {
    small(Kind::Progress, setup, &OF_CAPS);
}

#[test]
fn fair() {
    small(Kind::Fair, setup, &OF_CAPS);
}

#[test]
fn fair_among_sessions() {
    small(Kind::Sessions, setup, &OF_CAPS);
}

#[test]
fn caps_under_fifo_policies() {
    small(Kind::Cooperative, capped, &OF_LANES);
    small(Kind::RoundRobin, capped, &OF_LANES);
}

#[test]
fn caps_under_priorities() {
    small(Kind::Fixed, capped, &OF_LANES);
    small(Kind::Aging, capped, &OF_LANES);
    small(Kind::Tokens, capped, &OF_LANES);
    small(Kind::Progress, capped, &OF_LANES);
}

#[test]
fn caps_under_fair_policies() {
    small(Kind::Fair, capped, &OF_LANES);
    small(Kind::Sessions, capped, &OF_LANES);
}

/// A population of 100,000: filled by operations, then worked on.
fn large(kind: Kind, lanes: u16, length: usize) {
    let setup = Setup {
        lanes,
        kind,
        quantum: 3_000,
        frame_cycles: 50_000_000,
        handoff: true,

        population: 100_000,
        switches: false,
        check_every: 1_000,
        capped: false,
    };
    let seed = 100_000 + kind as u64;
    println!("{kind:?}, seed {seed}");
    if let Err(operations) = run(setup, seed, 100_000, length, None) {
        panic!(
            "seed {seed}: operation {} of the sequence: {:?}",
            operations.len(),
            operations.last()
        );
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
fn a_hundred_thousand_by_share_of_their_sessions() {
    large(Kind::Sessions, 32, 4_000);
}

#[test]
fn every_broken_rule_is_noticed() {
    for fault in Fault::ALL {
        let kind = match fault {
            Fault::AgesTooFast => Kind::Aging,
            Fault::LongerStreak => Kind::Progress,
            Fault::TokensAreKept => Kind::Tokens,
            Fault::LagIsForgotten | Fault::EverybodyIsEligible => Kind::Fair,
            Fault::OverheadIsFree
            | Fault::SessionsNapFreely
            | Fault::SessionsMoveWithoutLag
            | Fault::SessionsKeepTheLane => Kind::Sessions,
            _ => Kind::RoundRobin,
        };
        let setup = match fault {
            Fault::DemotedCompete | Fault::DemotedPay | Fault::CapsForgiveOverruns => capped,
            _ => setup,
        };
        let noticed =
            (0..40).find(|&seed| run(setup(kind, seed), seed, 0, 2_000, Some(fault)).is_err());
        println!("{fault:?} is noticed by seed {noticed:?}");
        let seed = noticed.unwrap_or_else(|| panic!("nothing notices {fault:?}"));
        assert!(
            run(setup(kind, seed), seed, 0, 2_000, None).is_ok(),
            "the sequence fails without {fault:?} too"
        );
    }
}

#[test]
fn a_failing_sequence_shrinks_to_what_matters() {
    let setup = Setup { lanes: 1, population: 16, switches: false, ..setup(Kind::RoundRobin, 1) };
    let operations =
        run(setup, 1, 0, 2_000, Some(Fault::NewestFirst)).expect_err("the broken rule is noticed");
    let (kept, difference) = shrink(setup, &operations, Some(Fault::NewestFirst));
    // Two coroutines, a wave to run them in, and the pick of the wrong one.
    assert!(kept.len() <= 4, "{difference}: {kept:?}");
    assert!(
        replay(setup, &kept, None).is_none(),
        "without the broken rule the sequence is fine: {kept:?}"
    );
}

#[test]
fn kept_regressions() {
    for (setup, operations) in REGRESSIONS {
        if let Some((at, difference)) = replay(*setup, operations, None) {
            panic!("operation {at}, {:?}: {difference}", operations[at]);
        }
    }
}
