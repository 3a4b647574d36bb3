//! Descriptions and states of machines that somebody tampered with: a trace brings its machine
//! along and a snapshot its state, so every number of one can be anything. It is refused with
//! words, or it is a machine that runs; never a panic, and never memory in the size of a forged
//! number.
//!
//! Bytes changed at random are in `state.rs`; here whole numbers are put at the ends of their
//! ranges, wherever they stand.

mod kit;

use kit::random::wild_machine;
use kit::{Choices, Machine};
use wavelock_abi::{Cycles, SessionId};
use wavelock_system::{ContextSpec, Grant, GrantSpec, LoadError, MachineSpec, Span, World};

/// Numbers at which something ends.
const ENDS: [u64; 12] = [
    0,
    1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// A machine with everything that a description can say.
fn machine(seed: u64) -> Machine {
    let mut machine = wild_machine(seed);
    if let Span::Cycles(_) = machine.spec.span {
        let session = SessionId(0);
        machine.spec.contexts.push(ContextSpec::new(
            "time",
            session,
            Cycles(9_000),
            Cycles(300_000),
        ));
        machine.spec.grants.push(GrantSpec { session, grant: Grant::Control });
    }
    machine
}

/// Runs a machine for a while, if it is one.
fn try_run<E: std::fmt::Display>(world: Result<World, E>) -> bool {
    let mut world = match world {
        Ok(world) => world,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    for _ in 0..60 {
        if !world.step(&mut ()).unwrap_or(false) {
            break;
        }
    }
    let _ = world.summary();
    let _ = world.save();
    true
}

fn load(machine: &Machine, spec: MachineSpec) -> Result<World, LoadError> {
    World::load(spec, machine.inputs.clone(), true).map(|loaded| loaded.world)
}

#[test]
fn a_description_with_any_number_changed_is_refused_or_runs() {
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..8 {
        let machine = machine(seed);
        let spec = &machine.spec;
        let modules: Vec<_> =
            spec.modules.iter().cloned().zip(spec.module_hashes.iter().copied()).collect();
        let bytes = spec.identity();
        assert!(
            MachineSpec::from_identity(&bytes, modules.clone())
                .is_ok_and(|again| again.identity() == bytes)
        );
        let mut choices = Choices(seed ^ 0xe2d5);
        for at in 0..bytes.len() - 7 {
            let mut changed = bytes.clone();
            let end = ENDS[choices.below(ENDS.len() as u64) as usize];
            changed[at..at + 8].copy_from_slice(&end.to_le_bytes());
            println!("seed {seed}, byte {at}: {end}");
            match MachineSpec::from_identity(&changed, modules.clone()) {
                Ok(spec) if try_run(load(&machine, spec.clone())) => ran += 1,
                Ok(_) => refused += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
            }
        }
    }
    println!("{refused} refused, {ran} ran");
    assert!(refused > 1_000 && ran > 200, "{refused} refused, {ran} ran");
}

#[test]
fn inputs_of_any_frame_run_if_they_ascend() {
    for seed in 0..20 {
        let mut machine = machine(seed);
        for frame in [7, 3, u64::MAX, 0, 1 << 40, 2] {
            machine.input(frame, SessionId(0), b"from nowhere");
        }
        assert!(!try_run(load(&machine, machine.spec.clone())), "seed {seed}: out of order");
        machine.inputs.sort_by_key(|event| event.frame);
        assert!(try_run(load(&machine, machine.spec.clone())), "seed {seed}");
    }
}

#[test]
fn a_state_with_any_number_changed_is_refused_or_runs() {
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..10 {
        let machine = machine(seed);
        let (saver, _) = machine.run_saving();
        let Some((bytes, ..)) = saver.saved.get(saver.saved.len() / 2) else { continue };
        let outline = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let mut choices = Choices(seed ^ 0x57a7e);
        // The length, the version and the machine's hash come first: wrong ones are refused at
        // once.
        for _ in 0..400 {
            let mut changed = bytes.clone();
            let at = 36 + choices.below(outline as u64 - 32 - 8) as usize;
            let end = ENDS[choices.below(ENDS.len() as u64) as usize].to_le_bytes();
            let width = [1, 2, 4, 8][choices.below(4) as usize];
            changed[at..at + width].copy_from_slice(&end[8 - width..]);
            println!("seed {seed}, byte {at}: the upper {width} bytes of {end:?}");
            match try_run(World::restore(
                machine.spec.clone(),
                machine.inputs.clone(),
                true,
                &changed,
            )) {
                true => ran += 1,
                false => refused += 1,
            }
        }
    }
    println!("{refused} refused, {ran} ran");
    assert!(refused > 1_000 && ran > 200, "{refused} refused, {ran} ran");
}

/// Late clocks of all lanes, with the idle cycles that explain them: their sum may not overflow.
#[test]
fn clocks_too_late_to_be_added_up_are_refused() {
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..20 {
        let mut machine = machine(seed);
        machine.spec.lanes += 5;
        let (saver, _) = machine.run_saving();
        let Some((bytes, ..)) = saver.saved.get(saver.saved.len() / 2) else { continue };
        let restore = |bytes: &[u8]| {
            World::restore(machine.spec.clone(), machine.inputs.clone(), true, bytes)
        };
        let lanes = restore(bytes).expect("its own state").lane_summaries();
        for late in [1 << 50, 1 << 60, 1 << 61, (1 << 62) - (1 << 40), u64::MAX - (1 << 40)] {
            let mut changed = bytes.clone();
            for lane in &lanes {
                let clock = lane.charged.0 + lane.overhead.0 + lane.idle.0;
                let numbers = |late: u64| {
                    [clock + late, lane.charged.0, lane.idle.0 + late].map(u64::to_le_bytes)
                };
                let found = numbers(0).concat();
                let at = changed.windows(24).position(|bytes| bytes == found).expect("a clock");
                changed[at..at + 24].copy_from_slice(&numbers(late).concat());
            }
            println!("seed {seed}, {} lanes, {late} cycles later", lanes.len());
            match try_run(restore(&changed)) {
                true => {
                    assert!(late.checked_mul(lanes.len() as u64).is_some());
                    ran += 1;
                }
                false => refused += 1,
            }
        }
    }
    println!("{refused} refused, {ran} ran");
    assert!(refused > 20 && ran > 20, "{refused} refused, {ran} ran");
}
