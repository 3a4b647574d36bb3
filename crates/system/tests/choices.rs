//! A schedule is part of the machine: what was chosen from outside, written into the spec as
//! deviations, is the same run again. Random machines that use everything; a failure prints the
//! seed.

mod kit;

use kit::random::{Temper, machine};
use kit::{Choices, Machine};
use wavelock_abi::Cycles;
use wavelock_kernel::{Deviation, Policy};
use wavelock_system::{LoadError, MachineSpec, Placement, RunSummary, World};
use wavelock_trace::Digest;

/// A random machine under a policy that takes deviations.
fn wild(seed: u64) -> Machine {
    let mut machine = machine(seed, Temper::Wild);
    let mut choices = Choices(seed ^ 0xc401ce);
    machine.spec.lanes = 1 + choices.below(3) as u16;
    for session in &mut machine.spec.sessions {
        session.placement = Placement::Lane(choices.below(u64::from(machine.spec.lanes)) as u16);
    }
    let policies: Vec<Policy> = kit::policies(Cycles(3_000))
        .into_iter()
        .filter(|policy| !matches!(policy, Policy::Fair(_)))
        .collect();
    machine.spec.policy = *choices.pick(&policies);
    machine.spec.handoff = choices.one_in(3);
    machine.spec.max_frames = Some(30);
    machine
}

/// Everything but the run digest, which begins with the spec.
fn shown(world: &mut World) -> RunSummary {
    RunSummary { digest: Digest([0; 32]), ..world.summary() }
}

#[test]
fn a_run_with_choices_equals_the_run_of_the_description_that_lists_them() {
    let (mut deviated, mut different) = (0, 0);
    for seed in 0..60 {
        let machine = wild(seed);
        let mut choices = Choices(seed);
        let mut schedule: Vec<(u16, Deviation)> = Vec::new();
        let mut world = machine.world(false);
        let mut choose = |lane: wavelock_abi::LaneId, choice: &wavelock_kernel::Choice| {
            let rank = choices.below(choice.candidates.len() as u64) as u32;
            if rank != choice.rank {
                schedule.push((lane.0, Deviation { pick: choice.pick, rank }));
            }
            rank
        };
        while world.step_choosing(&mut (), &mut choose).expect("the host can") {}
        let chosen = shown(&mut world);
        schedule.sort_unstable();
        deviated += schedule.len();
        let mut other = machine.clone();
        other.spec.deviations = schedule;
        let mut again = other.world(true);
        again.run(&mut ()).expect("the host can");
        assert_eq!(shown(&mut again), chosen, "seed {seed}");
        let mut usual = machine.world(false);
        usual.run(&mut ()).expect("the host can");
        different += u64::from(shown(&mut usual) != chosen);
    }
    assert!(
        deviated > 1_000 && different > 20,
        "{deviated} deviations, {different} runs were different"
    );
}

#[test]
fn choosing_what_the_policy_would_is_the_usual_run() {
    for seed in 0..60 {
        let machine = wild(seed);
        let mut world = machine.world(false);
        while world.step_choosing(&mut (), &mut |_, choice| choice.rank).expect("the host can") {}
        let mut usual = machine.world(false);
        usual.run(&mut ()).expect("the host can");
        assert_eq!(world.summary(), usual.summary(), "seed {seed}");
    }
}

#[test]
fn deviations_that_cannot_be_are_refused() {
    let machine = wild(0);
    let lanes = machine.spec.lanes;
    let load = |deviations: Vec<(u16, Deviation)>, policy: Policy| {
        let spec = MachineSpec { deviations, policy, ..machine.spec.clone() };
        World::load(spec, Vec::new(), false).map(|_| ())
    };
    let at = |pick| Deviation { pick, rank: 0 };
    let plain = Policy::Cooperative;
    assert!(load(vec![(0, at(1)), (0, at(2))], plain).is_ok());
    let fair = kit::policies(Cycles(3_000)).pop().expect("fair is the last");
    for (deviations, policy) in [
        (vec![(0, at(1))], fair),
        (vec![(lanes, at(1))], plain),
        (vec![(0, at(2)), (0, at(2))], plain),
    ] {
        assert!(matches!(load(deviations, policy), Err(LoadError::Deviation { .. })));
    }
}
