//! Control inputs as guests and drivers meet them (semantics 84 to 87).

mod kit;

use kit::{Collected, Machine};
use wavelock_abi::{Cycles, Frame, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings, ContextRefusal, FairSettings, Policy, Sharing};
use wavelock_system::{
    ContextSpec, Control, ControlRefusal, GiveError, Input, LoadError, RunOutcome, SessionOutcome,
    Sink, World,
};
use wavelock_trace::{Digest, Event};

const MAIN: SessionId = SessionId(0);
const OTHER: SessionId = SessionId(1);

/// Outputs the number of every frame.
const CLOCK: &str = r#"(func (export "_start")
    (loop $more (call $out (call $frame)) (call $sleep (i64.const 1)) (br $more)))"#;

/// Works for ever.
const BUSY: &str = r#"(func (export "_start") (loop $more (br $more)))"#;

/// What left the machine, and what was refused in its frame.
#[derive(Default)]
struct Seen {
    out: Collected,
    refused: Vec<ControlRefusal>,
}

impl Sink for Seen {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.out.output(session, bytes);
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn refused(&mut self, _: Frame, _: &Control, refusal: &ControlRefusal) {
        self.refused.push(*refusal);
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        self.out.frame(frame, digest, boundary, lanes);
    }
}

impl Seen {
    fn numbers(&self, session: SessionId) -> Vec<i64> {
        let of = self.out.output.iter().filter(|(id, _)| *id == session);
        let bytes: Vec<u8> = of.flat_map(|(_, bytes)| bytes.clone()).collect();
        let number = |chunk: &[u8]| i64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        bytes.chunks(8).map(number).collect()
    }

    fn events(&self, wanted: &str) -> Vec<String> {
        let frames = self.out.frames.iter();
        let names = frames.flat_map(|frame| frame.boundary().iter().map(text).collect::<Vec<_>>());
        names.filter(|event| event.starts_with(wanted)).collect()
    }
}

fn text(event: &Event<'_>) -> String {
    format!("{event:?}")
}

fn live(mut machine: Machine) -> World {
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    machine.world(true)
}

fn run_to(world: &mut World, until: u64, seen: &mut Seen) {
    world.allow(Frame(until));
    world.run_allowed(seen).expect("the host can");
}

fn give(world: &mut World, control: Control) {
    world.give(Input::Control(control)).expect("an input");
}

fn used(world: &World, session: SessionId) -> u64 {
    world.usage(session).expect("a session").cycles
}

/// The same machine from its bytes.
fn again(world: &World) -> World {
    let bytes = world.save().expect("a boundary");
    let loaded = world.spec().origin.as_ref().expect("control inputs were taken");
    let restored = World::restore((**loaded).clone(), Vec::new(), true, &bytes);
    let restored = restored.expect("own bytes");
    assert_eq!(restored.save().expect("a boundary"), bytes);
    restored
}

#[test]
fn a_held_session_does_not_run_and_takes_what_comes() {
    let (mut world, mut seen) = (live(Machine::one(CLOCK)), Seen::default());
    run_to(&mut world, 3, &mut seen);
    give(&mut world, Control::Hold { session: MAIN });
    run_to(&mut world, 5, &mut seen);
    give(&mut world, Control::Weight { session: MAIN, weight: Weight::new(9).expect("a weight") });
    run_to(&mut world, 7, &mut seen);
    assert_eq!(seen.numbers(MAIN), [0, 1, 2]);
    let mut world = again(&world);
    run_to(&mut world, 9, &mut seen);
    give(&mut world, Control::Release { session: MAIN });
    run_to(&mut world, 11, &mut seen);
    assert_eq!(seen.numbers(MAIN), [0, 1, 2, 9, 10]);
    assert_eq!(seen.events("Control").len(), 3);
}

#[test]
fn a_session_that_the_host_ends_is_canceled_on_all_its_lanes() {
    let mut machine = Machine::lanes(3);
    // The receiver learns that its only sender has ended; the split session has a coroutine on each
    // of its lanes, and one of them is joined.
    let receiver = machine.session(
        "receiver",
        r#"(data (i32.const 0) "in") (func (export "_start")
        (call $out32 (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
        (call $out (call $frame)))"#,
    );
    let sender = machine.session(
        "sender",
        r#"(elem (i32.const 0) $work) (func $work (param i64) (result i64)
            (loop $more (call $sleep (i64.const 1)) (br $more)) (i64.const 0))
        (func (export "_start") (local $child i64)
            (local.set $child (call $spawn_on (i32.const 0) (i64.const 1) (i32.const 2)))
            (drop (call $join (local.get $child) (i32.const 8))))"#,
    );
    machine.split(sender, &[1, 2]);
    machine.wire("in", receiver, 4, &[sender]);
    let (mut world, mut seen) = (live(machine), Seen::default());
    run_to(&mut world, 4, &mut seen);
    give(&mut world, Control::End { session: sender });
    run_to(&mut world, 6, &mut seen);
    let summary = world.summary();
    assert_eq!(summary.sessions[1].outcome, SessionOutcome::Canceled);
    assert_eq!(summary.sessions[0].outcome, SessionOutcome::Finished);
    let [code, frame] = seen.numbers(receiver)[..] else { panic!("two numbers") };
    assert_eq!((code, frame), (i64::from(wavelock_abi::Errno::Closed.code()), 4));
    assert!(world.memories().all(|(session, ..)| session != sender), "its memory is released");
    let late = Input::Control(Control::Hold { session: sender });
    assert_eq!(world.give(late), Err(GiveError::Ended { session: 1 }));
    world.give(Input::Stop).expect("an input");
    run_to(&mut world, 8, &mut seen);
    assert_eq!(world.outcome(), Some(RunOutcome::Finished));
}

#[test]
fn a_weight_divides_the_lane_anew() {
    for sharing in [Sharing::Session, Sharing::Coroutine] {
        let mut machine = Machine::new();
        machine.session("main", BUSY);
        machine.session("other", BUSY);
        let fair = FairSettings::new(Cycles(2_000), Cycles(1_000), Cycles(20_000));
        machine.spec.policy = Policy::Fair(fair.expect("in range").shared_by(sharing));
        let (mut world, mut seen) = (live(machine), Seen::default());
        run_to(&mut world, 4, &mut seen);
        let before = [used(&world, MAIN), used(&world, OTHER)];
        let weight = Weight::new(3 * Weight::NEUTRAL.get()).expect("a weight");
        give(&mut world, Control::Weight { session: OTHER, weight });
        run_to(&mut world, 8, &mut seen);
        let mut world = again(&world);
        run_to(&mut world, 12, &mut seen);
        let after = [used(&world, MAIN), used(&world, OTHER)];
        assert!(before[0].abs_diff(before[1]) < 5_000, "{before:?}");
        let [main, other] = [0, 1].map(|at| after[at] - before[at]);
        assert!((3 * main).abs_diff(other) < other / 50, "{sharing:?}: {main} {other}");
    }
}

#[test]
fn a_cap_is_set_changed_and_taken_away() {
    let mut machine = Machine::lanes(2);
    let main = machine.session("main", BUSY);
    machine.split(main, &[0, 1]);
    machine.times(100_000, 20_000, 5_000);
    let (mut world, mut seen) = (live(machine), Seen::default());
    let frames = |world: &mut World, until: u64, seen: &mut Seen| {
        let before = used(world, MAIN);
        run_to(world, until, seen);
        (used(world, MAIN) - before) / 10
    };
    let cap = |budget| CapSettings {
        budget: Cycles(budget),
        period_frames: 1,
        overrun: CapOverrun::Throttle,
    };
    assert!(frames(&mut world, 10, &mut seen) > 90_000);
    // It has two lanes: half of the cap is on the lane that its coroutine runs on.
    give(&mut world, Control::Cap { session: MAIN, cap: Some(cap(60_000)) });
    assert!((25_000..32_000).contains(&frames(&mut world, 20, &mut seen)));
    let mut world = again(&world);
    give(&mut world, Control::Cap { session: MAIN, cap: Some(cap(20_000)) });
    assert!((8_000..12_000).contains(&frames(&mut world, 30, &mut seen)));
    assert_eq!(world.caps_of(MAIN).len(), 2);
    give(&mut world, Control::Cap { session: MAIN, cap: None });
    assert!(frames(&mut world, 40, &mut seen) > 90_000);
    assert!(world.caps_of(MAIN).is_empty() && again(&world).caps_of(MAIN).is_empty());
}

#[test]
fn the_budget_of_a_context_changes_where_admission_allows_it() {
    let mut machine = Machine::new();
    machine.session("main", BUSY);
    machine.session("other", BUSY);
    machine.times(1_000_000, 100_000, 10_000);
    for (name, session) in [("audio", MAIN), ("video", OTHER)] {
        let context = ContextSpec::new(name, session, Cycles(200_000), Cycles(1_000_000));
        machine.spec.contexts.push(context);
    }
    let (mut world, mut seen) = (live(machine), Seen::default());
    let budget = |budget, name: &str| Control::Context {
        session: MAIN,
        name: name.into(),
        budget: Cycles(budget),
    };
    let no_context = GiveError::NoContext { session: 0, name: "video".into() };
    assert_eq!(world.give(Input::Control(budget(1, "video"))), Err(no_context));
    run_to(&mut world, 2, &mut seen);
    give(&mut world, budget(300_000, "audio"));
    run_to(&mut world, 4, &mut seen);
    let admitted = |world: &World| world.contexts()[0].view.parameters.budget.0;
    assert_eq!((admitted(&world), seen.refused.len()), (300_000, 0));
    give(&mut world, budget(900_000, "audio"));
    run_to(&mut world, 5, &mut seen);
    let [ControlRefusal::Context { session: 0, refusal: ContextRefusal::Denied(denied) }] =
        seen.refused[..]
    else {
        panic!("{:?}", seen.refused)
    };
    let fits = denied.fits.expect("a smaller one fits");
    let [event] = &seen.events("ControlRefused")[..] else { panic!("one refusal") };
    assert!(event.ends_with(&format!("found: 900000, allowed: {} }}", fits.0)), "{event}");
    assert_eq!(admitted(&world), 300_000, "nothing has changed");
    give(&mut world, budget(fits.0, "audio"));
    run_to(&mut world, 6, &mut seen);
    assert_eq!((admitted(&world), seen.refused.len()), (fits.0, 1));
}

#[test]
fn what_cannot_be_set_is_refused_with_the_numbers() {
    let (mut world, mut seen) = (live(Machine::one(CLOCK)), Seen::default());
    let session = SessionId(5);
    assert_eq!(
        world.give(Input::Control(Control::End { session })),
        Err(GiveError::Session { found: 5, count: 1 })
    );
    let cap = |budget, period_frames| {
        let overrun = CapOverrun::Throttle;
        let cap = CapSettings { budget: Cycles(budget), period_frames, overrun };
        Input::Control(Control::Cap { session: MAIN, cap: Some(cap) })
    };
    let found = world.give(cap(3, 1)).expect_err("too small");
    let GiveError::Setting { error } = &found else { panic!("{found}") };
    assert!(matches!(**error, LoadError::CapTooSmall { found: Cycles(3), .. }), "{error}");
    let found = world.give(cap(100_000, 0)).expect_err("no period");
    let GiveError::Setting { error } = &found else { panic!("{found}") };
    assert!(matches!(**error, LoadError::CapPeriod { found: 0, .. }), "{error}");
    // A session that ends before the frame: the refusal is an event of that frame.
    let at = |frame, control| (Frame(frame), Input::Control(control));
    let weight = Weight::new(7).expect("a weight");
    let given = [
        at(2, Control::End { session: MAIN }),
        at(2, Control::Weight { session: MAIN, weight }),
        at(4, Control::End { session: MAIN }),
    ];
    world.give_recorded(given).expect("in range");
    run_to(&mut world, 6, &mut seen);
    assert_eq!(seen.refused, [ControlRefusal::Ended { session: 0 }; 2]);
    assert_eq!((seen.numbers(MAIN), seen.events("ControlRefused").len()), (vec![0, 1], 2));
    let closed = Machine::one(CLOCK).world(false);
    assert_eq!(
        { closed }.give(Input::Control(Control::Hold { session: MAIN })),
        Err(GiveError::NotLive)
    );
}

#[test]
fn a_state_without_what_was_changed_is_refused() {
    let (mut world, mut seen) = (live(Machine::one(CLOCK)), Seen::default());
    let spec = world.spec().clone();
    give(&mut world, Control::Weight { session: MAIN, weight: Weight::new(7).expect("a weight") });
    run_to(&mut world, 2, &mut seen);
    assert_eq!(world.spec().identity(), spec.identity(), "it is the same machine");
    let bytes = world.save().expect("a boundary");
    let restored = World::restore(spec.clone(), Vec::new(), false, &bytes).expect("own bytes");
    assert_eq!(restored.spec().sessions[0].weight.get(), 7);
    let mut fresh = World::load(restored.spec().clone(), Vec::new(), false).expect("loads").world;
    assert_eq!(fresh.spec().sessions[0].weight, Weight::NEUTRAL, "a new run begins as loaded");
    run_to(&mut fresh, 2, &mut seen);
    for at in 0..bytes.len() {
        let mut forged = bytes.clone();
        forged[at] ^= 1;
        // Refused, or a state of another run: never a panic.
        let _ = World::restore(spec.clone(), Vec::new(), false, &forged);
    }
}
