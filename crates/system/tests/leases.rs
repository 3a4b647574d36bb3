//! Leases of lanes as guests, hosts and neighbours meet them: activation, each denial with its
//! numbers, each end in each state, and that a machine with leases is one run however it is driven
//! and wherever it is saved.

mod kit;

use kit::{Collected, Machine, Run, Saver};
use std::collections::BTreeSet;
use wavelock_abi::{Cycles, Errno, Frame, HostOperation, SessionId};
use wavelock_kernel::{Evidence, LeaseEnd, LeasePhase, LeaseState, Missing, OverrunPolicy};
use wavelock_module::Module;
use wavelock_system::{
    ContextSpec, Control, GiveError, Grant, GrantSpec, Input, LaterModule, LeaseError, LeaseSpec,
    LeaseSummary, LoadError, NewSession, Replacement, RunOutcome, World,
};

const EINVAL: i64 = Errno::Invalid.code() as i64;
const ESTALE: i64 = Errno::Stale.code() as i64;
const EAGAIN: i64 = Errno::Again.code() as i64;
const EDENIED: i64 = Errno::Denied.code() as i64;
const EREVOKED: i64 = Errno::Revoked.code() as i64;

const FRAME: u64 = 200_000;
const WAVE: u64 = 20_000;

/// Works in every frame, for ever.
const POLLER: &str = r#"(func (export "_start") (local $i i32)
    (loop $more
      (local.set $i (i32.const 2000))
      (loop $work (br_if $work (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (call $sleep (i64.const 1)) (br $more)))"#;

/// Never stops.
const HOG: &str = r#"(func (export "_start") (loop $more (br $more)))"#;

/// Sleeps until the end of the machine.
const SLEEPER: &str = r#"(func (export "_start") (call $sleep (i64.const 40)))"#;

/// Names at 512 for `lease_request`, and the calls around it.
const OPERATOR: &str = r#"(data (i32.const 512) "isolationquietnone")
    (func $isolation (result i32) (call $capability (i32.const 512) (i32.const 9)))
    (func $lease (result i32) (call $lease_request (call $isolation) (i32.const 521) (i32.const 5)))
    (func $state (param $lease i32) (result i32) (call $lease_state (local.get $lease) (i32.const 1024)))
    (func $word (param $at i32) (call $out (i64.load (i32.add (i32.const 1024) (i32.mul (local.get $at) (i32.const 8))))))"#;

/// A machine of three lanes: `poller` on lane 1, with a context that a lease `quiet` is for.
fn machine(poller: &str) -> Machine {
    let mut machine = Machine::lanes(3);
    machine.times(FRAME, WAVE, 5_000);
    machine.spec.max_frames = Some(6);
    let poller = machine.session("poller", &format!("{OPERATOR} {poller}"));
    machine.on(poller, 1);
    machine.spec.contexts.push(ContextSpec::new("time", poller, Cycles(120_000), Cycles(FRAME)));
    machine.spec.leases.push(LeaseSpec::new("quiet", poller, 0));
    machine
}

fn neighbour(machine: &mut Machine, name: &str, body: &str, lane: u16) -> SessionId {
    let session = machine.session(name, body);
    machine.on(session, lane);
    session
}

fn operator(machine: &mut Machine, body: &str) -> SessionId {
    let session = neighbour(machine, "operator", &format!("{OPERATOR} {body}"), 2);
    machine.spec.grants.push(GrantSpec { session, grant: Grant::Isolation });
    session
}

/// The machine after its run, and the run.
fn ran(machine: &Machine) -> (World, Run) {
    let mut world = machine.world(false);
    world.run(&mut ()).expect("the host can");
    (world, machine.run())
}

fn quiet(world: &World) -> LeaseSummary {
    world.leases().remove(0)
}

fn state(world: &World) -> LeaseState {
    quiet(world).state.expect("it was asked for")
}

/// The states that the lease of lane 1 went through.
fn phases(run: &Run) -> Vec<LeasePhase> {
    let events = run.events(1);
    let leases = events.iter().filter_map(|event| event.strip_prefix("Lease { lease: 0, state: "));
    leases.filter_map(|rest| LeasePhase::from_code(rest[..1].parse().ok()?)).collect()
}

#[test]
fn a_lease_drains_its_lane_and_keeps_it_quiet() {
    let mut machine = machine(POLLER);
    for number in 0..3 {
        neighbour(&mut machine, &format!("hog.{number}"), HOG, 1);
    }
    neighbour(&mut machine, "sleeper", SLEEPER, 1);
    let (world, run) = ran(&machine);
    assert_eq!(run.outcome, RunOutcome::Frames);
    use LeasePhase::{Active, Draining, Flushing, Requested};
    assert_eq!(phases(&run), [Requested, Draining, Flushing, Active]);
    let lease = quiet(&world);
    let active = lease.state.expect("asked for");
    assert_eq!((active.phase, lease.noise), (Active, 0));
    // From then on only the holder has steps there; its neighbours are elsewhere, and ran.
    let events = run.events(1);
    let from = events.iter().position(|event| event.contains("state: 4")).expect("active");
    let mut steps = events[from..].iter().filter(|event| event.starts_with("Step"));
    assert!(steps.all(|step| step.contains("session: 0,")));
    let moved = run.boundary().iter().filter(|event| event.contains("reason: 3")).count();
    assert_eq!(moved, 4, "four sessions were drained");
    for hog in 1..4 {
        assert!(run.session(hog).cycles.0 > 100_000, "{:?}", run.session(hog).cycles);
    }
    // Active at the second wave's end after the first.
    assert!(active.began.is_some_and(|began| began.0 < 3 * WAVE), "{active:?}");
}

/// The same machine without its lease.
fn without_lease(machine: &Machine) -> Machine {
    let mut without = machine.clone();
    without.spec.leases.clear();
    without
}

#[test]
fn a_lane_of_one_has_the_same_totals_with_and_without_a_lease() {
    let machine = machine(POLLER);
    let (world, leased) = ran(&machine);
    assert_eq!(state(&world).phase, LeasePhase::Active);
    let (_, plain) = ran(&without_lease(&machine));
    assert_eq!(leased.summary.cycles, plain.summary.cycles);
    assert_ne!(leased.summary.digest, plain.summary.digest, "the lease is in the description");
}

/// A machine with everything: drained neighbours, a wake source fed from two lanes, an operator
/// that revokes and asks again, and stealing.
fn busy() -> Machine {
    let poller = r#"(data (i32.const 600) "work") (func (export "_start")
        (loop $more
          (drop (call $recv (call $port (i32.const 600) (i32.const 4)) (i32.const 8)))
          (br $more)))"#;
    let feeder = r#"(data (i32.const 600) "work") (func (export "_start") (local $i i64)
        (loop $more
          (drop (call $send (call $port (i32.const 600) (i32.const 4)) (local.get $i)))
          (local.set $i (i64.add (local.get $i) (i64.const 1)))
          (if (i64.eqz (i64.rem_u (local.get $i) (i64.const 7))) (then (call $sleep (i64.const 1))))
          (br_if $more (i64.lt_u (local.get $i) (i64.const 60)))))"#;
    let mut machine = machine(poller);
    let feeders =
        [0, 2].map(|lane| neighbour(&mut machine, &format!("feeder.{lane}"), feeder, lane));
    let work = machine.wire("work", SessionId(0), 4, &feeders);
    machine.spec.leases[0].wakes = vec![work];
    machine.spec.leases[0].at_start = false;
    neighbour(&mut machine, "hog", HOG, 1);
    neighbour(&mut machine, "sleeper", SLEEPER, 1);
    operator(
        &mut machine,
        r#"(func (export "_start") (local $lease i32)
          (call $sleep (i64.const 1))
          (loop $again
            (local.set $lease (call $lease))
            (call $out32 (call $state (local.get $lease)))
            (call $sleep (i64.const 3))
            (call $out32 (call $lease_revoke (local.get $lease)))
            (call $out32 (call $state (local.get $lease))) (call $word (i32.const 7))
            (br $again)))"#,
    );
    machine.spec.steal = true;
    machine.spec.max_frames = Some(14);
    machine
}

#[test]
fn messages_of_wake_sources_are_no_noise_and_each_revocation_is_in_time() {
    let (world, run) = ran(&busy());
    let lease = quiet(&world);
    assert!(lease.counts.activations >= 3, "{lease:?}");
    assert_eq!((lease.counts.denials, lease.counts.noise, lease.noise), (0, 0, 0));
    assert_eq!(lease.counts.ends[LeaseEnd::Revoked as usize], lease.counts.activations - 1);
    assert!(lease.counts.longest_latency > Cycles::ZERO && lease.counts.late == 0);
    assert!(lease.counts.longest_latency <= lease.bound, "{lease:?}");
    let numbers = run.numbers(5);
    assert_eq!(numbers[..8], [4, 0, 6, 0, 4, 0, 6, 0], "{numbers:?}");
    let arrivals = run.events(1).iter().filter(|event| event.starts_with("Arrival")).count();
    assert!(arrivals > 20, "{arrivals}");
}

#[test]
fn a_machine_with_leases_is_one_run_however_it_is_driven_and_saved() {
    let seen = same_run(&busy());
    assert!(seen.contains(&LeasePhase::Active), "{seen:?}");
    // With one wave a frame a lease is in another state at each boundary.
    let mut slow = busy();
    slow.times(FRAME, FRAME, 5_000);
    let seen = same_run(&slow);
    for phase in [LeasePhase::Requested, LeasePhase::Flushing, LeasePhase::Active] {
        assert!(seen.contains(&phase), "{seen:?}");
    }
}

/// The states of its lease at the boundaries.
fn same_run(machine: &Machine) -> BTreeSet<LeasePhase> {
    let (saver, whole) = machine.run_saving();
    // Step by step.
    let mut world = machine.world(false);
    while world.step(&mut ()).expect("the host can") {}
    assert_eq!(world.summary(), whole);
    // Groups from last to first.
    let mut world = machine.world(false);
    while world.open_wave(&mut ()).expect("the host can") {
        world.groups_mut().iter_mut().rev().for_each(|group| group.run_wave());
        world.close_wave();
    }
    assert_eq!(world.summary(), whole);
    // From its bytes, and from a snapshot in memory, at every boundary.
    let mut seen = BTreeSet::new();
    for (bytes, ..) in &saver.saved {
        let mut world = World::restore(machine.spec.clone(), Vec::new(), false, bytes)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(world.save().expect("a boundary"), *bytes);
        seen.extend(quiet(&world).state.map(|state| state.phase));
        let snapshot = world.snapshot().expect("a boundary");
        let mut later = Saver::default();
        world.run(&mut later).expect("the host can");
        assert_eq!(world.summary(), whole);
        world.roll_back(&snapshot);
        world.run(&mut ()).expect("the host can");
        assert_eq!(world.summary(), whole);
    }
    seen
}

fn denied(machine: &Machine) -> Missing {
    let (world, run) = ran(machine);
    let lease = state(&world);
    assert_eq!((lease.phase, quiet(&world).counts.denials), (LeasePhase::Denied, 1), "{lease:?}");
    assert_eq!(phases(&run).last(), Some(&LeasePhase::Denied));
    lease.missing.expect("denied for a reason")
}

#[test]
fn each_missing_evidence_denies_with_its_numbers() {
    let missing = |evidence, session: u32, count, until| Missing {
        evidence,
        session: Some(session),
        count,
        until,
    };
    // A pinned session that sleeps, and one that works.
    let mut pinned = machine(POLLER);
    let sleeper = neighbour(&mut pinned, "sleeper", SLEEPER, 1);
    pinned.spec.sessions[sleeper.0 as usize].pinned = true;
    let moved = neighbour(&mut pinned, "hog", HOG, 1);
    assert_eq!(denied(&pinned), missing(Evidence::TimersMigrated, sleeper.0, 1, 40));
    let (world, run) = ran(&pinned);
    assert!(!run.boundary().iter().any(|event| event.starts_with("Move")), "nothing has moved");
    assert!(world.usage(moved).expect("a session").cycles > 0);
    let mut pinned = machine(POLLER);
    let hog = neighbour(&mut pinned, "hog", HOG, 1);
    pinned.spec.sessions[hog.0 as usize].pinned = true;
    assert_eq!(denied(&pinned), missing(Evidence::SingleRunnable, hog.0, 1, 0));
    // A second coroutine of the holder's own session.
    let two = r#"(elem (i32.const 0) $other) (func $other (param i64) (loop $more (br $more)))
        (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (loop $more (br $more)))"#;
    assert_eq!(denied(&machine(two)), missing(Evidence::SingleRunnable, 0, 1, 0));
    // A sender that is no wake source.
    let mut unrouted = machine(POLLER);
    let sender = neighbour(&mut unrouted, "sender", SLEEPER, 2);
    unrouted.wire("one", SessionId(0), 4, &[]);
    unrouted.wire("two", SessionId(0), 4, &[sender]);
    assert_eq!(denied(&unrouted), missing(Evidence::WakeSourcesRouted, sender.0, 1, 1));
    // Nowhere to go: lanes 0 and 2 have a split session.
    let mut crowded = machine(POLLER);
    let split = crowded.session("split", SLEEPER);
    crowded.split(split, &[0, 2]);
    assert_eq!(denied(&crowded).evidence, Evidence::HousekeepingElsewhere);
    let hog = neighbour(&mut crowded, "hog", HOG, 1);
    assert_eq!(denied(&crowded), missing(Evidence::HousekeepingElsewhere, hog.0, 0, 0));
    // The holder is demoted.
    let mut demoted = machine(HOG);
    demoted.spec.contexts[0].overrun = OverrunPolicy::Demote;
    demoted.spec.contexts[0].budget = Cycles(10_000);
    let found = denied(&demoted);
    assert_eq!((found.evidence, found.until / FRAME), (Evidence::NoStarvationServer, 1));
    // The holder gives its context away before the lease is active.
    let lost = r#"(data (i32.const 700) "time") (func (export "_start")
        (drop (call $context_revoke (call $capability (i32.const 700) (i32.const 4)))) (loop $more (br $more)))"#;
    assert_eq!(denied(&machine(lost)), missing(Evidence::AccountingTarget, 0, 0, 0));
}

#[test]
fn a_session_in_a_call_is_waited_for_but_not_for_ever() {
    let server = |reply: &str| {
        format!(
            r#"(data (i32.const 700) "calls") (func (export "_start") (local $call i32)
            (local.set $call (call $accept (call $port (i32.const 700) (i32.const 5)) (i32.const 8)))
            {reply} (loop $more (call $sleep (i64.const 1)) (br $more)))"#
        )
    };
    let client = r#"(data (i32.const 700) "calls") (func (export "_start")
        (drop (call $call (call $port (i32.const 700) (i32.const 5)) (i32.const 8) (i64.const 1)))
        (loop $more (br $more)))"#;
    let calling = |reply: &str| {
        let mut machine = machine(POLLER);
        let server = neighbour(&mut machine, "server", &server(reply), 2);
        let client = neighbour(&mut machine, "client", client, 1);
        machine.wire("calls", server, 4, &[client]);
        machine.spec.max_frames = Some(14);
        machine
    };
    let found = denied(&calling(""));
    assert_eq!(
        (found.evidence, found.session, found.count),
        (Evidence::DeferredCleanupDrained, Some(2), 1)
    );
    let late = "(call $sleep (i64.const 3)) (drop (call $reply (local.get $call) (i64.const 2)))";
    let (world, run) = ran(&calling(late));
    let lease = state(&world);
    assert_eq!((lease.phase, lease.began.map(|at| at.0 / FRAME)), (LeasePhase::Active, Some(3)));
    assert!(run.events(1).iter().any(|event| event.contains("state: 2")), "it was draining");
}

#[test]
fn the_operations_of_leases_are_these_and_each_refusal_is_a_code_and_an_event() {
    let about: Vec<&str> = HostOperation::ALL
        .iter()
        .filter(|operation| operation.is_about_leases())
        .map(|operation| operation.import())
        .collect();
    assert_eq!(about, ["lease_request", "lease_revoke", "lease_state"]);
    let mut machine = machine(POLLER);
    machine.spec.leases[0].at_start = false;
    let body = r#"(func (export "_start") (local $lease i32) (local $second i32)
        (call $out32 (call $lease_request (i32.const 77) (i32.const 521) (i32.const 5)))
        (call $out32 (call $lease_request (call $isolation) (i32.const 526) (i32.const 4)))
        (call $out32 (call $lease_revoke (call $isolation)))
        (call $out32 (call $lease_state (i32.const 9) (i32.const 1024)))
        (local.set $lease (call $lease))
        (call $out32 (i32.ge_s (local.get $lease) (i32.const 0)))
        (call $out32 (call $lease))
        (call $out32 (call $state (local.get $lease))) (call $word (i32.const 0)) (call $word (i32.const 2)) (call $word (i32.const 7))
        (call $out32 (call $lease_revoke (local.get $lease)))
        (call $out32 (call $lease_revoke (local.get $lease)))
        (call $out32 (call $state (local.get $lease))) (call $word (i32.const 1))
        (local.set $second (call $lease))
        (call $out32 (i32.ne (local.get $second) (local.get $lease)))
        (call $out32 (call $state (local.get $lease)))
        (call $out32 (call $lease_revoke (local.get $lease)))
        (call $out32 (call $state (local.get $second))))"#;
    let operator = operator(&mut machine, body);
    let stranger = neighbour(
        &mut machine,
        "stranger",
        &format!(
            r#"{OPERATOR} (func (export "_start") (call $out32 (call $isolation)) (call $out32 (call $lease)))"#
        ),
        0,
    );
    machine.spec.max_frames = Some(12);
    let (world, run) = ran(&machine);
    let wanted =
        [ESTALE, EINVAL, EINVAL, ESTALE, 1, EAGAIN, 4, 4, -1, 0, 0, 0, 6, 0, 1, ESTALE, ESTALE, 4];
    assert_eq!(run.numbers(operator.0), wanted);
    let denies = run.events(2).iter().filter(|event| event.starts_with("Deny")).count();
    assert_eq!(denies, 7);
    assert_eq!(run.numbers(stranger.0), [EDENIED, EDENIED]);
    // The operator ended, and its second lease with it.
    assert_eq!(state(&world).ended, Some(LeaseEnd::SessionEnded));
}

#[test]
fn a_holder_asks_for_and_ends_its_own_lease_and_cannot_spawn_under_it() {
    let body = r#"(elem (i32.const 0) $other) (func $other (param i64))
      (func (export "_start") (local $lease i32)
        (local.set $lease (call $lease))
        (call $out32 (i32.ge_s (local.get $lease) (i32.const 0)))
        (call $out (call $spawn (i32.const 0) (i64.const 0)))
        (call $out32 (call $state (local.get $lease)))
        (call $out32 (call $lease_revoke (local.get $lease)))
        (call $out32 (call $state (local.get $lease))) (call $word (i32.const 6))
        (call $out (i64.gt_s (call $spawn (i32.const 0) (i64.const 0)) (i64.const 0)))
        (call $yield)
        (call $sleep (i64.const 1))
        (call $out32 (call $state (local.get $lease))))"#
        .replace("(call $out (i64.gt_s", "(call $out32 (i64.gt_s");
    let mut machine = machine(&body);
    machine.spec.leases[0].at_start = false;
    machine.spec.grants.push(GrantSpec { session: SessionId(0), grant: Grant::Isolation });
    neighbour(&mut machine, "hog", HOG, 1);
    let (world, run) = ran(&machine);
    // On its own lane it ends at once.
    assert_eq!(run.numbers(0), [1, EDENIED, 4, 0, 5, 0, 1, 6]);
    assert_eq!(state(&world).latency(), Cycles::ZERO);
    let mut second = machine.clone();
    second.spec.leases[0].at_start = true;
    assert_eq!(ran(&second).1.numbers(0)[0], 0, "the lease of the start is busy");
}

/// A live machine with one wave a frame, so that a lease is in another state in each.
fn live(extra: impl FnOnce(&mut Machine)) -> World {
    let mut machine = machine(POLLER);
    machine.times(FRAME, FRAME, 5_000);
    machine.spec.leases[0].at_start = false;
    extra(&mut machine);
    // Something always runs, so that a wave lasts its whole frame.
    neighbour(&mut machine, "worker", HOG, 2);
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    machine.world(true)
}

fn run_to(world: &mut World, until: u64) {
    world.allow(Frame(until));
    world.run_allowed(&mut Collected::default()).expect("the host can");
}

fn ask() -> Control {
    Control::Lease { session: SessionId(0), name: "quiet".into() }
}

/// Every way to end a lease, in every state that a boundary can see, before and after the machine
/// went through its bytes and through a rollback: the lane is open again within the bound.
#[test]
fn a_lease_can_end_in_every_state_and_for_every_reason() {
    type Way = (LeaseEnd, fn(&mut World));
    let ways: [Way; 5] = [
        (LeaseEnd::Replaced, |world| {
            let text = r#"(module (func (export "_start") (loop $more (br $more))))"#;
            let module = Module::from_text(text.as_bytes(), &Default::default()).expect("valid");
            let module = LaterModule::new(module.into(), text.as_bytes().into());
            let (session, carry) = (SessionId(0), Box::default());
            let replace = Control::Replace(Box::new(Replacement { session, module, carry }));
            world.give(Input::Control(replace)).expect("an input");
        }),
        (LeaseEnd::ByHost, |world| {
            let (session, name) = (SessionId(0), "quiet".into());
            world.give(Input::Control(Control::EndLease { session, name })).expect("an input");
        }),
        (LeaseEnd::SessionEnded, |world| {
            let end = Control::End { session: SessionId(0) };
            world.give(Input::Control(end)).expect("an input");
        }),
        (LeaseEnd::WakeSource, |world| {
            let text = r#"(module (func (export "_start")))"#;
            let module = Module::from_text(text.as_bytes(), &Default::default()).expect("valid");
            let module = LaterModule::new(module.into(), text.as_bytes().into());
            let mut sender = NewSession::new("sender", module);
            sender.ports = vec![("out".into(), "side".into())];
            world.give(Input::Control(Control::Start(Box::new(sender)))).expect("an input");
        }),
        (LeaseEnd::Expired, |_| ()),
    ];
    let mut seen = Vec::new();
    for (end, way) in ways {
        for frames in 0..4 {
            let mut world = live(|machine| {
                machine.wire("side", SessionId(0), 4, &[]);
                machine.spec.leases[0].expires_frames = (end == LeaseEnd::Expired).then_some(2);
                neighbour(machine, "hog", HOG, 1);
            });
            run_to(&mut world, 2);
            world.give(Input::Control(ask())).expect("an input");
            if frames == 0 {
                // In the same frame: it is requested, and ends before a wave.
                way(&mut world);
            }
            run_to(&mut world, 3);
            let before = state(&world).phase;
            let snapshot = world.snapshot().expect("a boundary");
            for again in [false, true] {
                if again {
                    world.roll_back(&snapshot);
                }
                if frames > 0 {
                    run_to(&mut world, 3 + frames - 1);
                    seen.push(state(&world).phase);
                    way(&mut world);
                }
                let until = 3 + frames + if end == LeaseEnd::Expired { 8 } else { 1 };
                run_to(&mut world, until);
                let lease = quiet(&world);
                let found = lease.state.expect("asked for");
                if end == LeaseEnd::WakeSource && frames <= 2 {
                    // Before it is active the new sender is evidence that is missing, or it has
                    // ended by the time that is looked at.
                    assert!(found.phase != LeasePhase::Draining, "{found:?}");
                    continue;
                }
                assert_eq!(
                    (found.phase, found.ended),
                    (LeasePhase::Released, Some(end)),
                    "{before:?}"
                );
                assert!(found.latency() <= lease.bound, "{end:?} {found:?}");
                assert_eq!(lease.counts.noise, 0);
                assert_eq!(lease.counts.ends[end as usize], 1);
            }
        }
    }
    for phase in [LeasePhase::Flushing, LeasePhase::Active] {
        assert!(seen.contains(&phase), "{seen:?}");
    }
}

#[test]
fn a_lease_ends_with_its_holder_and_with_its_context() {
    let exits = r#"(func (export "_start") (call $sleep (i64.const 2)))"#;
    let (world, run) = ran(&machine(exits));
    let lease = state(&world);
    assert_eq!((lease.phase, lease.ended), (LeasePhase::Released, Some(LeaseEnd::HolderEnded)));
    assert_eq!(lease.latency(), Cycles::ZERO);
    use LeasePhase::{Active, Draining, Flushing, Released, Requested, Revoking};
    assert_eq!(phases(&run), [Requested, Draining, Flushing, Active, Revoking, Released]);
    let quits =
        r#"(func (export "_start") (call $sleep (i64.const 2)) (call $proc_exit (i32.const 3)))"#;
    assert_eq!(state(&ran(&machine(quits)).0).ended, Some(LeaseEnd::HolderEnded));
    let faults = r#"(func (export "_start") (call $sleep (i64.const 2)) unreachable)"#;
    assert_eq!(state(&ran(&machine(faults)).0).ended, Some(LeaseEnd::HolderEnded));
    let loses = r#"(data (i32.const 700) "time") (func (export "_start") (call $sleep (i64.const 2))
        (drop (call $context_revoke (call $capability (i32.const 700) (i32.const 4)))) (loop $more (br $more)))"#;
    let mut machine = machine(loses);
    neighbour(&mut machine, "hog", HOG, 1);
    machine.spec.steal = true;
    let (world, run) = ran(&machine);
    assert_eq!(state(&world).ended, Some(LeaseEnd::TargetLost));
    assert!(run.session(0).cycles.0 > 200_000, "it goes on as best effort");
}

#[test]
fn the_host_is_refused_with_a_reason() {
    let mut world = live(|_| ());
    let unknown = Control::Lease { session: SessionId(0), name: "loud".into() };
    let refused = world.give(Input::Control(unknown)).expect_err("no such lease");
    assert_eq!(refused, GiveError::NoLease { session: 0, name: "loud".into() });
    world.give(Input::Control(ask())).expect("an input");
    world.give(Input::Control(ask())).expect("an input");
    let mut seen = Collected::default();
    world.allow(Frame(2));
    world.run_allowed(&mut seen).expect("the host can");
    let boundary: Vec<String> =
        seen.frames[0].boundary().iter().map(|event| format!("{event:?}")).collect();
    let refused =
        |event: &&String| event.starts_with("ControlRefused { session: 0, what: 10, code: 4");
    assert_eq!(boundary.iter().filter(refused).count(), 1, "{boundary:?}");
    // A session that names the lane is refused; one that would come there starts elsewhere.
    run_to(&mut world, 4);
    assert_eq!(state(&world).phase, LeasePhase::Active);
    let text = r#"(module (func (export "_start") (loop $more (br $more))))"#;
    let module = Module::from_text(text.as_bytes(), &Default::default()).expect("valid");
    let module = LaterModule::new(module.into(), text.as_bytes().into());
    let mut there = NewSession::new("there", module.clone());
    there.lane = Some(1);
    let refused = world.give(Input::Control(Control::Start(Box::new(there)))).expect_err("leased");
    let (session, lane, lease) = ("there".into(), 1, "quiet".into());
    let error = Box::new(LoadError::LeasedLane { session, lane, lease });
    assert_eq!(refused, GiveError::Setting { error });
    // Sessions 2 to 4 would start on lanes 2, 0 and 1.
    for name in ["two", "three", "four"] {
        let new = NewSession::new(name, module.clone());
        world.give(Input::Control(Control::Start(Box::new(new)))).expect("a session");
    }
    run_to(&mut world, 6);
    let lane = |session: u32| {
        let reference = wavelock_abi::CoroutineRef::new(0, 0);
        let name = wavelock_abi::CoroutineName { session: SessionId(session), reference };
        world.look(name).map(|look| look.lane)
    };
    assert_eq!(
        [2, 3, 4].map(lane),
        [Some(2), Some(0), Some(0)].map(|lane| lane.map(wavelock_abi::LaneId)),
        "lane 1 is leased"
    );
    assert_eq!(quiet(&world).noise, 0);
    let bytes = world.save().expect("a boundary");
    let again = World::restore(world.spec().clone(), Vec::new(), true, &bytes).expect("own bytes");
    assert_eq!(again.save().expect("a boundary"), bytes);
}

#[test]
fn a_description_with_an_impossible_lease_is_refused_by_name() {
    let error = |change: &dyn Fn(&mut Machine)| {
        let mut machine = machine(POLLER);
        change(&mut machine);
        match machine.refusal() {
            LoadError::Lease { lease, error } if lease == "quiet" => error,
            other => panic!("{other}"),
        }
    };
    let lane_0 = error(&|machine| {
        machine.on(SessionId(0), 0);
    });
    assert_eq!(lane_0, LeaseError::Housekeeping);
    let named = error(&|machine| machine.spec.leases[0].lane = Some(2));
    assert_eq!(named, LeaseError::Lane { named: 2, found: 1 });
    let tight = error(&|machine| machine.spec.leases[0].revocation = Some(Cycles(WAVE)));
    let LeaseError::BoundTooTight { asked, least } = tight else { panic!("{tight}") };
    assert!(asked == Cycles(WAVE) && least > asked && least < Cycles(WAVE + 10_000), "{least:?}");
    let never = error(&|machine| machine.spec.leases[0].expires_frames = Some(0));
    assert_eq!(never, LeaseError::NoFrames);
    let twice = error(&|machine| machine.spec.leases.push(machine.spec.leases[0].clone()));
    assert_eq!(twice, LeaseError::SameName);
    let shared = error(&|machine| {
        let split = machine.session("split", SLEEPER);
        machine.split(split, &[1, 2]);
    });
    assert_eq!(shared, LeaseError::Shared { lane: 1, group: vec![1, 2] });
    let foreign = error(&|machine| {
        let other = neighbour(machine, "other", SLEEPER, 2);
        let channel = machine.wire("foreign", other, 4, &[SessionId(0)]);
        machine.spec.leases[0].wakes = vec![channel];
    });
    assert_eq!(foreign, LeaseError::Wakes { channel: "foreign".into() });
    let context = error(&|machine| {
        let other = neighbour(machine, "other", SLEEPER, 2);
        machine.spec.leases[0].session = other;
    });
    assert_eq!(context, LeaseError::Context { context: "time".into() });
    let mut both = machine(POLLER);
    both.spec.leases.push(LeaseSpec::new("other", SessionId(0), 0));
    let refused = both.refusal();
    let twice = LeaseError::Twice { lane: 1, other: "quiet".into() };
    assert_eq!(refused, LoadError::Lease { lease: "other".into(), error: twice });
    let mut unknown = machine(POLLER);
    unknown.spec.leases[0].context = 7;
    assert!(matches!(unknown.refusal(), LoadError::Reference { what: "context", found: 7, .. }));
}

#[test]
fn a_description_keeps_its_leases_and_a_machine_without_keeps_its_bytes() {
    let machine = busy();
    let bytes = machine.spec.identity();
    let modules = machine.spec.modules.iter().cloned().zip(machine.spec.module_hashes.clone());
    let again =
        wavelock_system::MachineSpec::from_identity(&bytes, modules.collect()).expect("own");
    assert_eq!((again.identity(), &again.leases), (bytes.clone(), &machine.spec.leases));
    let plain = without_lease(&machine).spec.identity();
    assert_eq!(bytes[..plain.len()], plain);
}

#[test]
fn a_request_ends_with_the_one_that_asked_and_with_a_revocation_before_it_is_active() {
    // The operator's second coroutine revokes nothing it has no handle of; the host ends the lease
    // while the operator waits.
    let mut world = live(|machine| {
        operator(
            machine,
            r#"(func (export "_start") (call $sleep (i64.const 2)) (call $out32 (call $lease)))"#,
        );
    });
    let mut seen = Collected::default();
    world.allow(Frame(4));
    world.run_allowed(&mut seen).expect("the host can");
    assert_eq!(state(&world).phase, LeasePhase::Flushing, "asked for in frame 2");
    let end = Control::EndLease { session: SessionId(0), name: "quiet".into() };
    world.give(Input::Control(end)).expect("an input");
    world.allow(Frame(6));
    world.run_allowed(&mut seen).expect("the host can");
    let bytes: Vec<u8> = seen.output.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(bytes, EREVOKED.to_le_bytes());
    assert_eq!(state(&world).ended, Some(LeaseEnd::ByHost));
    // The session that asked is ended by the host while it waits.
    let mut world = live(|machine| {
        operator(
            machine,
            r#"(func (export "_start") (call $sleep (i64.const 2)) (call $out32 (call $lease)))"#,
        );
    });
    run_to(&mut world, 4);
    world.give(Input::Control(Control::End { session: SessionId(1) })).expect("an input");
    run_to(&mut world, 6);
    assert_eq!(state(&world).ended, Some(LeaseEnd::SessionEnded));
}
