//! The state law: a machine that was saved at a boundary and restored goes on as if it had never
//! stopped; bytes that are no state are refused, or load to something that runs without a panic. A
//! failure prints the seed.

mod kit;

use kit::random::wild_machine as wild;
use kit::{Choices, Collected, Machine};
use wavelock_system::{STATE_VERSION, StateError, StateHead, World};

/// How many machines are tried.
const SEEDS: u64 = 80;

fn restore(machine: &Machine, bytes: &[u8]) -> Result<World, StateError> {
    World::restore(machine.spec.clone(), machine.inputs.clone(), false, bytes)
}

#[test]
fn a_restored_machine_continues_as_if_it_had_never_stopped() {
    let mut boundaries = 0;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let machine = wild(seed);
        let (saver, summary) = machine.run_saving();
        let mut choices = Choices(seed);
        for (at, (bytes, outputs, logs, frames)) in saver.saved.iter().enumerate() {
            if at > 3 && !choices.one_in(4) {
                continue;
            }
            boundaries += 1;
            let mut world = restore(&machine, bytes)
                .unwrap_or_else(|error| panic!("seed {seed}, boundary {at}: {error}"));
            assert!(
                world.save().unwrap() == *bytes,
                "seed {seed}, boundary {at}: saved again, it has other bytes"
            );
            let head = StateHead::of(&world.outline().unwrap()).unwrap();
            assert_eq!((head.frame, head.digest), (world.next_frame_number(), world.digest()));
            let mut out = Collected::default();
            if choices.one_in(2) {
                world.run(&mut out).expect("the host can go on");
            } else {
                while world.step(&mut out).expect("the host can go on") {}
            }
            assert_eq!(world.summary(), summary, "seed {seed}, boundary {at}");
            assert_eq!(out.output, saver.out.output[*outputs..], "seed {seed}, boundary {at}");
            assert_eq!(out.log, saver.out.log[*logs..], "seed {seed}, boundary {at}");
            assert_eq!(out.digests, saver.out.digests[*frames..], "seed {seed}, boundary {at}");
        }
    }
    assert!(boundaries > 300, "{boundaries} boundaries were tried");
}

#[test]
fn a_channel_of_no_place_or_of_more_than_allowed_is_refused() {
    let machine = Machine::one(
        r#"(func (export "_start") (drop (call $channel (i32.const 7777))) (call $sleep (i64.const 3)))"#,
    );
    let (saver, _) = machine.run_saving();
    let (bytes, ..) = saver.saved.last().expect("a state while it sleeps");
    let at = bytes
        .windows(4)
        .position(|four| four == 7777u32.to_le_bytes())
        .expect("the channel's capacity");
    let most = machine.spec.limits.channel_capacity;
    for (capacity, is_allowed) in
        [(7777, true), (1, true), (most, true), (0, false), (most + 1, false), (u32::MAX, false)]
    {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&capacity.to_le_bytes());
        match restore(&machine, &changed) {
            Ok(_) => assert!(is_allowed, "{capacity}"),
            Err(error) => assert!(
                !is_allowed && error.to_string().contains("the capacity of a channel"),
                "{capacity}: {error}"
            ),
        }
    }
}

#[test]
fn the_beginning_is_a_state_too_and_a_wave_is_none() {
    let machine = wild(3);
    let mut world = machine.world(false);
    let bytes = world.save().unwrap();
    let mut again = restore(&machine, &bytes).unwrap();
    assert_eq!(again.save().unwrap(), bytes);
    assert!(world.open_wave(&mut ()).unwrap());
    assert_eq!(world.save().err(), Some(StateError::NotABoundary));
    world.run(&mut ()).unwrap();
    again.run(&mut ()).unwrap();
    assert_eq!(world.summary(), again.summary());
    assert_eq!(
        world.save().err(),
        Some(StateError::NotABoundary),
        "a run that is over has no state to go on from"
    );
}

#[test]
fn another_machine_or_version_is_refused_by_name() {
    let machine = (0..).map(wild).find(|machine| !machine.run_saving().0.saved.is_empty()).unwrap();
    let (saver, _) = machine.run_saving();
    let mut bytes = saver.saved[0].0.clone();
    let mut other = machine.spec.clone();
    other.seed ^= 1;
    assert_eq!(
        World::restore(other, machine.inputs.clone(), false, &bytes).err(),
        Some(StateError::OtherMachine)
    );
    assert!(matches!(
        World::restore(machine.spec.clone(), Vec::new(), false, &bytes),
        Ok(_) | Err(StateError::Malformed { .. })
    ));
    bytes[4] = 9;
    assert_eq!(restore(&machine, &bytes).err(), Some(StateError::Version { found: 9 }));
    assert_eq!(STATE_VERSION, 2);
}

/// A forged machine may run for ever; a few frames show whether it panics.
fn try_run(mut world: World) {
    for _ in 0..400 {
        if !world.step(&mut ()).unwrap_or(false) {
            break;
        }
    }
    let _ = world.summary();
}

#[test]
fn every_truncation_is_refused() {
    let (machine, bytes) = sample(11);
    for end in (0..bytes.len().min(6_000)).chain((6_000..bytes.len()).step_by(97)) {
        match restore(&machine, &bytes[..end]) {
            Ok(world) => {
                // Cut between two pages, it is a state with fewer of them.
                assert!(world.save().unwrap() == bytes[..end]);
                try_run(world);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn changed_bytes_are_refused_or_run_without_a_panic() {
    let mut refused = 0;
    let mut loaded = 0;
    for seed in 0..16 {
        let (machine, bytes) = sample(seed);
        let outline = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let mut choices = Choices(seed ^ 0xf11b);
        for trial in 0..200 {
            let mut changed = bytes.clone();
            for _ in 0..1 + choices.below(2) {
                let at = 36 + choices.below(outline as u64 - 32) as usize;
                changed[at.min(bytes.len() - 1)] = if choices.one_in(2) {
                    choices.next() as u8
                } else {
                    [0, 1, 2, 0x7f, 0xff][choices.below(5) as usize]
                };
            }
            println!("seed {seed}, trial {trial}");
            match restore(&machine, &changed) {
                Ok(world) => {
                    loaded += 1;
                    try_run(world);
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {loaded} loaded");
    assert!(refused > 1_000 && loaded > 100);
}

/// A state from the middle of a random run.
fn sample(seed: u64) -> (Machine, Vec<u8>) {
    (seed..)
        .find_map(|seed| {
            let machine = wild(seed);
            let (mut saver, _) = machine.run_saving();
            let middle = saver.saved.len() / 2;
            (!saver.saved.is_empty()).then(|| (machine, saver.saved.swap_remove(middle).0))
        })
        .unwrap()
}
