//! A lane can say why, and can be taken apart and put together again: explanations agree with
//! decisions, and a rebuilt lane goes on as the original does.

mod support;

use support::{Random, checked, lane, policies, priority, slice, spawn, spawn_with_priority};
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, Priority};
use wavelock_kernel::{
    Because, BlockReason, DecisionKey, HoldReason, Lane, LaneState, Next, Outcome, Policy,
    PriorityRule, RebuildRefused, Spawn, State, Tag, WakeSource,
};

/// One random operation. Gives what was decided, if it was a decision.
fn step(lane: &mut Lane, random: &mut Random) -> Option<Next> {
    let any = CoroutineRef::new(random.below(40) as u32, random.below(5) as u32);
    match random.below(16) {
        0 => {
            let tag = Tag::new(random.below(5) as u32, random.below(1_000) as u32);
            let _ =
                lane.spawn(Spawn { priority: Priority(random.below(8) as u8), ..Spawn::new(tag) });
        }
        1 => drop(lane.wake(any, WakeSource::Channel)),
        2 => drop(lane.wake(any, WakeSource::SessionEnd)),
        3 => drop(lane.hold(any, HoldReason::Operator)),
        4 => drop(lane.release(any, HoldReason::Operator)),
        5 => drop(lane.set_priority(any, Priority(random.below(8) as u8))),
        6 if random.below(4) == 0 => drop(lane.cancel(any)),
        7 => drop(lane.reap(any)),
        8 => drop(lane.prefer(any)),
        9 => lane.begin_wave(wavelock_kernel::Span::Until(Cycles(
            lane.clock().0 + random.below(30_000),
        ))),
        10 if random.below(8) == 0 => {
            let _ = lane.end_frame();
            lane.begin_frame(Frame(lane.frame().0 + 1 + random.below(2)));
        }
        _ => return Some(lane.dispatch()),
    }
    None
}

fn finish(lane: &mut Lane, running: wavelock_kernel::Running, random: &mut Random) {
    let used = match random.below(3) {
        0 => running.bound().0.min(50_000) + random.below(20),
        _ => random.below(500),
    };
    let outcome = match random.below(9) {
        0 => Outcome::Blocked(BlockReason::Select),
        1 => Outcome::Slept(Frame(lane.frame().0 + random.below(400))),
        2 => Outcome::Finished,
        3 => Outcome::Faulted,
        4..=6 => Outcome::OutOfCycles,
        _ => Outcome::Yielded,
    };
    let used = if outcome == Outcome::OutOfCycles {
        used.max(running.bound().0.min(50_000))
    } else {
        used
    };
    lane.stop(running, Cycles(used), outcome);
}

#[test]
fn explanations_name_the_coroutine_that_runs() {
    for (name, policy) in policies() {
        let mut reached = std::collections::BTreeSet::new();
        for seed in 0..30 {
            let mut lane = lane(policy);
            let mut random = Random(seed);
            for _ in 0..1_500 {
                let explained = lane.explain();
                if let Some(decided) = step(&mut lane, &mut random) {
                    match decided {
                        Next::Run(running) => {
                            let explained = explained
                                .unwrap_or_else(|| panic!("{name} seed {seed}: nothing explained"));
                            assert_eq!(
                                explained.winner.reference,
                                running.reference(),
                                "{name} seed {seed}: {explained:?}"
                            );
                            assert!(
                                explained.runner_up.is_none_or(
                                    |other| other.reference != explained.winner.reference
                                )
                            );
                            reached.insert(format!("{:?}", explained.because));
                            finish(&mut lane, running, &mut random);
                        }
                        Next::Idle => assert_eq!(explained, None, "{name} seed {seed}"),
                        Next::Over => {}
                    }
                }
            }
            checked(&lane);
        }
        assert!(reached.len() >= 3, "{name} reached only {reached:?}");
    }
}

#[test]
fn explanations_show_keys_and_tie_breaks() {
    let mut fixed = lane(priority(PriorityRule::FixedMap));
    spawn_with_priority(&mut fixed, 0, 3);
    assert_eq!(fixed.explain().unwrap().because, Because::Alone);
    spawn_with_priority(&mut fixed, 1, 5);
    let explained = fixed.explain().unwrap();
    assert_eq!((explained.because, explained.candidates), (Because::Key, 2));
    assert_eq!(explained.winner.key, DecisionKey::Class { class: 5, arrival: 1 });
    assert_eq!(explained.runner_up.unwrap().key, DecisionKey::Class { class: 3, arrival: 0 });
    spawn_with_priority(&mut fixed, 2, 5);
    assert_eq!(fixed.explain().unwrap().because, Because::Arrival);

    let mut aging = lane(priority(PriorityRule::Aging));
    let low = spawn_with_priority(&mut aging, 0, 0);
    spawn_with_priority(&mut aging, 1, 1);
    for _ in 0..31 {
        slice(&mut aging, 1, Outcome::Yielded);
    }
    let ran = (0..20).find(|_| {
        aging.explain().unwrap().winner.reference == low || {
            slice(&mut aging, 1, Outcome::Yielded);
            false
        }
    });
    assert!(ran.is_some());
    let key = aging.explain().unwrap().winner.key;
    assert!(
        matches!(key, DecisionKey::Aged { priority: 0, aged, waited_picks, .. }
            if aged == waited_picks / 16 && aged >= 1),
        "{key:?}"
    );
}

#[test]
fn a_rebuilt_lane_is_the_lane() {
    for (name, policy) in policies() {
        let mut reached = [false; 8];
        for seed in 0..20 {
            let mut original = lane(policy);
            let mut random = Random(seed + 100);
            for round in 0..12 {
                for _ in 0..150 {
                    if let Some(Next::Run(running)) = step(&mut original, &mut random) {
                        finish(&mut original, running, &mut random);
                    }
                }
                let state = original.export();
                let mut copy = Lane::rebuild(&state, 100_000).unwrap_or_else(|refused| {
                    panic!("{name} seed {seed} round {round}: {refused:?}")
                });
                assert_eq!(copy.export(), state, "{name} seed {seed} round {round}");
                for record in &state.records {
                    reached[match record.state {
                        State::Ready => 0,
                        State::Running => 1,
                        State::Sleeping { .. } => 2,
                        State::Blocked { .. } => 3,
                        State::Throttled { .. } => 4,
                        State::Finished => 5,
                        State::Faulted => 6,
                        State::Canceled => 7,
                    }] = true;
                }
                // Both go on with the same operations and stay the same.
                let mut other = Random(random.0);
                for _ in 0..150 {
                    let (one, two) =
                        (step(&mut original, &mut random), step(&mut copy, &mut other));
                    assert_eq!(one, two, "{name} seed {seed} round {round}");
                    if let (Some(Next::Run(one)), Some(Next::Run(two))) = (one, two) {
                        finish(&mut original, one, &mut random);
                        finish(&mut copy, two, &mut other);
                    }
                }
                assert_eq!(copy.export(), original.export(), "{name} seed {seed} round {round}");
                checked(&original);
            }
        }
        assert_eq!(reached, [true; 8], "{name}");
    }
}

/// A change that makes a state wrong.
type Damage = fn(&mut LaneState);

#[test]
fn damaged_states_are_refused_and_never_panic() {
    let mut original = lane(support::ROUND_ROBIN);
    for slot in 0..6 {
        spawn(&mut original, slot % 2, slot);
    }
    slice(&mut original, 10, Outcome::Blocked(BlockReason::Join));
    slice(&mut original, 10, Outcome::Slept(Frame(3)));
    slice(&mut original, 10, Outcome::Finished);
    original.reap(CoroutineRef::new(2, 0)).unwrap();
    slice(&mut original, 10, Outcome::OutOfCycles);
    let state = original.export();
    assert!(Lane::rebuild(&state, 10_000).is_ok());
    assert!(matches!(Lane::rebuild(&state, 10), Err(RebuildRefused::TooLarge { .. })));
    let damages: [(&str, Damage); 18] = [
        ("slot twice", |state| state.records[1].reference.slot = state.records[0].reference.slot),
        ("slot out of range", |state| state.records[0].reference.slot = u32::MAX),
        ("free twice", |state| state.free.push(state.free[0])),
        ("gap", |state| state.free.clear()),
        ("retired and live", |state| state.retired.push(0)),
        ("current that is not running", |state| state.current = Some(0)),
        ("no current", |state| state.current = None),
        ("current nowhere", |state| state.current = Some(77)),
        ("clock", |state| state.clock.0 += 1),
        ("clock near its end", |state| {
            let idle = u64::MAX - 1_000 - state.clock.0;
            (state.clock.0, state.idle.0) = (u64::MAX - 1_000, state.idle.0 + idle);
        }),
        ("charged too much", |state| state.charged.0 = u64::MAX),
        ("frame", |state| state.frame.0 = u64::MAX),
        ("arrival twice", |state| state.records[4].arrival = state.records[3].arrival),
        ("arrival not given", |state| state.arrivals = 0),
        ("class", |state| state.records[4].class = 9),
        ("session without member", |state| state.sessions[0].1.push(99)),
        ("session list missing", |state| drop(state.sessions.pop())),
        ("sleeper in the past", |state| {
            let sleeper = state
                .records
                .iter_mut()
                .find(|record| matches!(record.state, State::Sleeping { .. }))
                .unwrap();
            sleeper.state = State::Sleeping { until: Frame(0) };
        }),
    ];
    for (what, damage) in damages {
        let mut damaged = state.clone();
        damage(&mut damaged);
        assert!(Lane::rebuild(&damaged, 10_000).is_err(), "{what}");
    }
}

#[test]
fn random_damage_never_panics() {
    let mut original = lane(Policy::ProgressAware { quantum: support::QUANTUM });
    let mut random = Random(9);
    for _ in 0..400 {
        if let Some(Next::Run(running)) = step(&mut original, &mut random) {
            finish(&mut original, running, &mut random);
        }
    }
    let state = original.export();
    let mut accepted = 0;
    for _ in 0..3_000 {
        let mut damaged = state.clone();
        for _ in 0..1 + random.below(3) {
            let value = if random.below(2) == 0 { random.next() } else { random.below(50) };
            let index = random.below(damaged.records.len() as u64) as usize;
            let record = &mut damaged.records[index];
            match random.below(16) {
                0 => record.reference.slot = value as u32,
                1 => record.reference.generation = value as u32,
                2 => record.arrival = value,
                3 => record.picks_at = value,
                4 => record.since = value,
                5 => record.class = value as u8,
                6 => record.tokens = value as u8,
                7 => {
                    record.state = [
                        State::Ready,
                        State::Running,
                        State::Finished,
                        State::Sleeping { until: Frame(value) },
                    ][value as usize % 4]
                }
                8 => damaged.current = Some(value as u32),
                9 => damaged.clock.0 = value,
                10 => damaged.frame.0 = value,
                11 => damaged.arrivals = value,
                12 => damaged.operations[value as usize % 8] = value,
                13 => damaged.reserved.0 = (value % 20_000) as u32,
                14 => damaged.sessions.reverse(),
                _ => damaged.frame_mark.idle.0 = value,
            }
        }
        if let Ok(mut lane) = Lane::rebuild(&damaged, 20_000) {
            accepted += 1;
            checked(&lane);
            if let Next::Run(running) = lane.dispatch() {
                lane.stop(running, Cycles(1), Outcome::Yielded);
            }
        }
    }
    assert!(accepted > 0, "harmless damage is accepted");
    assert_eq!(original.id(), LaneId(0));
}
