//! A soak finds and shrinks a planted fault, a driver that closes waves too early, and finds none
//! in the real driver.

use wavelock_soak::{Case, Parallel, Settings, Size, on_workers, sequential, soak, try_case};
use wavelock_system::World;

/// The planted fault: with two or more workers, every fourth wave is closed before its last group
/// has run.
fn late_group(case: &Case, workers: usize) -> Parallel {
    let mut run = on_workers(case, workers);
    if workers == 1 {
        return run;
    }
    let mut world =
        World::load(case.spec.clone(), case.inputs.clone(), false).expect("loads").world;
    let mut waves = 0;
    while world.open_wave(&mut ()).expect("the host can") {
        waves += 1;
        let groups = world.groups_mut();
        let run = if waves % 4 == 0 { groups.len() - 1 } else { groups.len() };
        groups[..run].iter_mut().for_each(|group| group.run_wave());
        world.close_wave();
    }
    run.observed.summary = world.summary();
    run
}

const SETTINGS: Settings = Settings { seed: 0, machines: 50, workers: 3 };

#[test]
fn a_planted_divergence_is_found_and_shrunk() {
    let (tally, failure) = soak(SETTINGS, &late_group, &mut |_| true);
    let failure = failure.expect("a wave closed too early is a difference");
    assert!(tally.machines < SETTINGS.machines);
    let original = Size::of(&wavelock_soak::case(failure.seed));
    let size = Size::of(&failure.case);
    println!(
        "seed {}: {original:?} -> {size:?} in {} tries; {}",
        failure.seed, failure.tried, failure.difference
    );
    assert!(size < original && size.lanes == 2, "two lanes are enough to lose one: {size:?}");
    assert!(size.sessions <= 2 && size.channels <= 1 && size.inputs == 0, "{size:?}");
    let again = try_case(&failure.case, &sequential(&failure.case), SETTINGS.workers, &late_group);
    assert_eq!(again.expect_err("the small machine differs too"), failure.difference);
    let real = try_case(&failure.case, &sequential(&failure.case), SETTINGS.workers, &on_workers);
    assert!(real.is_ok(), "and not without the planted fault: {real:?}");
}

#[test]
fn a_panic_on_a_worker_is_a_failure_with_its_seed() {
    let dies = |case: &Case, workers: usize| {
        assert!(case.spec.lanes < 2 || workers < 2, "planted panic");
        on_workers(case, workers)
    };
    let (_, failure) = soak(SETTINGS, &dies, &mut |_| true);
    let failure = failure.expect("a panic is found");
    assert_eq!((failure.difference.at.as_str(), failure.difference.workers), ("panic", 2));
    assert!(failure.difference.found.contains("planted panic"));
    assert_eq!(Size::of(&failure.case).sessions, 1);
}

#[test]
fn generated_machines_cover_lanes_threads_and_moves() {
    let (tally, failure) =
        soak(Settings { seed: 1_000_000, machines: 200, workers: 2 }, &on_workers, &mut |_| true);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(tally.lacks(), None, "{tally:?}");
    let poor = wavelock_soak::Tally { moved: tally.machines / 3 - 1, ..tally };
    assert_eq!(
        poor.lacks(),
        Some(("sessions that moved", tally.machines / 3 - 1)),
        "too few would be noticed"
    );
}

#[test]
fn a_live_machine_whose_inputs_come_late_or_are_forgotten_is_found() {
    use wavelock_soak::{as_they_come, soak_live};
    use wavelock_system::{Control, Input};
    let settings = Settings { seed: 0, machines: 24, workers: 2 };
    let (tally, failure) = soak_live(settings, &as_they_come, &mut |_| true);
    assert_eq!((tally.machines, failure), (24, None));
    let late = |case: &wavelock_generate::LiveCase, workers: usize| {
        let mut planted = case.clone();
        let is_control = |(_, input): &(_, Input)| matches!(input, Input::Control(_));
        let last = planted.inputs.len() - 1;
        if let Some(at) = planted.inputs[..last].iter().rposition(is_control) {
            planted.inputs[at].0.0 += 1;
            planted.inputs.sort_by_key(|(frame, _)| *frame);
        }
        as_they_come(&planted, workers)
    };
    let forgotten = |case: &wavelock_generate::LiveCase, workers: usize| {
        let mut planted = case.clone();
        let is_hold = |(_, input): &(_, Input)| {
            matches!(input, Input::Control(Control::Hold { .. } | Control::Release { .. }))
        };
        planted.inputs.retain(|given| !is_hold(given));
        as_they_come(&planted, workers)
    };
    let not_carried = |case: &wavelock_generate::LiveCase, workers: usize| {
        let mut planted = case.clone();
        for (_, input) in &mut planted.inputs {
            if let Input::Control(Control::Replace(replacement)) = input {
                replacement.carry = [].into();
            }
        }
        as_they_come(&planted, workers)
    };
    for planted in [&late as wavelock_soak::LiveDriver<'_>, &forgotten, &not_carried] {
        let (tally, failure) = soak_live(settings, planted, &mut |_| true);
        assert!(failure.is_some() && tally.machines < 4, "{tally:?}");
    }
}
