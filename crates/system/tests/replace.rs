//! Sessions that are replaced while the machine runs (semantics 90 and 91).

mod kit;

use kit::{Collected, Machine, guest};
use std::sync::Arc;
use wavelock_abi::{Cycles, Errno, Frame, SessionId};
use wavelock_kernel::ContextRefusal;
use wavelock_module::{Limits, Module};
use wavelock_system::{
    ContextSpec, Control, ControlRefusal, GiveError, Input, LaterModule, LoadError, MachineSpec,
    Recipient, Replacement, SessionOutcome, Sink, World,
};

const MAIN: SessionId = SessionId(0);
const OTHER: SessionId = SessionId(1);

/// Counts, sends a number each frame to "in", and outputs the result of the send.
const SENDER: &str = r#"(data (i32.const 0) "in") (func (export "_start") (local $next i64)
    (loop $more
        (call $out32 (call $send (call $port (i32.const 0) (i32.const 2)) (local.get $next)))
        (local.set $next (i64.add (local.get $next) (i64.const 1)))
        (call $sleep (i64.const 1)) (br $more)))"#;

/// Outputs one number that it receives, makes a channel, and sleeps with all of it.
const FIRST: &str = r#"(data (i32.const 0) "in") (func (export "_start")
    (drop (call $channel (i32.const 3)))
    (drop (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
    (call $out (i64.load (i32.const 8)))
    (call $sleep (i64.const 1000000)))"#;

/// Outputs what it begins with, then every number that it receives, plus 1,000.
const SECOND: &str = r#"(data (i32.const 0) "in") (func (export "_start")
    (if (i32.gt_s (call $input (i32.const 64) (i32.const 8)) (i32.const 0))
        (then (call $out (i64.load8_u (i32.const 64)))))
    (loop $more
        (drop (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
        (call $out (i64.add (i64.load (i32.const 8)) (i64.const 1000))) (br $more)))"#;

/// Outputs the first byte of each input.
const READER: &str = r#"(func (export "_start")
    (loop $more
        (if (i32.gt_s (call $input (i32.const 64) (i32.const 8)) (i32.const 0))
            (then (call $out (i64.load8_u (i32.const 64))) (br $more)))
        (call $sleep (i64.const 1)) (br $more)))"#;

const SHORT: &str = r#"(func (export "_start"))"#;

fn module(body: &str) -> LaterModule {
    let text = guest(body);
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
    LaterModule::new(Arc::new(module), text.as_bytes().into())
}

fn replace(session: SessionId, body: &str, carry: &[u8]) -> Input {
    let module = module(body);
    let carry = carry.into();
    Input::Control(Control::Replace(Box::new(Replacement { session, module, carry })))
}

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
}

impl Seen {
    fn numbers(&self, session: SessionId) -> Vec<i64> {
        let of = self.out.output.iter().filter(|(id, _)| *id == session);
        let bytes: Vec<u8> = of.flat_map(|(_, bytes)| bytes.clone()).collect();
        let number = |chunk: &[u8]| i64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        bytes.chunks(8).map(number).collect()
    }
}

fn run_to(world: &mut World, until: u64, seen: &mut Seen) {
    world.allow(Frame(until));
    world.run_allowed(seen).expect("the host can");
}

fn live(mut machine: Machine) -> World {
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    machine.world(false)
}

/// A receiver of three messages and a sender, on two lanes.
fn pair(receiver: &str) -> World {
    let mut machine = Machine::lanes(2);
    let receiver = machine.session("receiver", receiver);
    let sender = machine.session("sender", SENDER);
    machine.wire("in", receiver, 3, &[sender]);
    live(machine)
}

/// The same machine from its bytes, and as it was loaded but for the modules that came.
fn again(world: &World) -> World {
    let bytes = world.save().expect("a boundary");
    let loaded = world.spec().origin.as_deref().expect("a control input was taken").clone();
    let spec = MachineSpec { library: world.spec().library.clone(), ..loaded };
    let restored = World::restore(spec, Vec::new(), false, &bytes).expect("own bytes");
    assert_eq!(restored.save().expect("a boundary"), bytes);
    restored
}

#[test]
fn a_replaced_receiver_begins_with_what_was_carried_and_loses_no_message() {
    let (mut world, mut seen) = (pair(FIRST), Seen::default());
    run_to(&mut world, 10, &mut seen);
    assert_eq!(seen.numbers(MAIN), [0]);
    let sent = seen.numbers(OTHER).len();
    assert!(sent < 8, "the sender waits for room after {sent} messages");
    let before = world.snapshot().expect("a boundary");
    let used = world.usage(MAIN).expect("a session");
    assert_eq!(world.give(replace(MAIN, SECOND, &[77])), Ok(Frame(10)));
    run_to(&mut world, 12, &mut seen);
    assert_eq!(seen.numbers(MAIN)[..4], [0, 77, 1001, 1002]);
    let then = world.usage(MAIN).expect("a session");
    assert!(then.cycles > used.cycles && then.outcome.is_none(), "its costs go on");
    let mut from_bytes = again(&world);
    run_to(&mut world, 20, &mut seen);
    let received = seen.numbers(MAIN).split_off(2);
    let all: Vec<i64> = (1001..).take(received.len()).collect();
    assert!(received.len() > 8 && received == all, "{received:?}");
    assert!(seen.numbers(OTHER).iter().all(|code| *code == 0), "every send succeeds");
    run_to(&mut from_bytes, 20, &mut Seen::default());
    assert_eq!(from_bytes.digest(), world.digest());
    // A rollback undoes it, and it can be given again.
    let digest = world.digest();
    world.roll_back(&before);
    assert!(world.spec().library.is_empty() && world.digest() == before.digest());
    let (mut without, mut with) = (Seen::default(), Seen::default());
    run_to(&mut world, 20, &mut without);
    assert_eq!(without.numbers(MAIN), []);
    world.roll_back(&before);
    world.give(replace(MAIN, SECOND, &[77])).expect("an input");
    run_to(&mut world, 20, &mut with);
    assert_eq!((world.digest(), with.numbers(MAIN)[0]), (digest, 77));
}

#[test]
fn a_session_that_has_ended_begins_again_and_its_channels_are_open() {
    let (mut world, mut seen) = (pair(SHORT), Seen::default());
    run_to(&mut world, 3, &mut seen);
    let closed = i64::from(Errno::Closed.code());
    assert_eq!(seen.numbers(OTHER)[2], closed);
    assert_eq!((world.ended_sessions(), seen.numbers(OTHER).len()), (1, 3));
    world.give(replace(MAIN, SECOND, &[])).expect("an input");
    run_to(&mut world, 6, &mut seen);
    assert_eq!(world.ended_sessions(), 0);
    assert_eq!(seen.numbers(MAIN)[..2], [1003, 1004]);
    assert_eq!(seen.numbers(OTHER)[3..], [0, 0, 0]);
    let mut restored = again(&world);
    // The sender begins again too: its port is open, and the channel knows of it.
    for world in [&mut world, &mut restored] {
        world.give(Input::Control(Control::End { session: OTHER })).expect("an input");
        world.give(replace(OTHER, &format!("{SENDER} (func)"), &[])).expect("an input");
        run_to(world, 12, &mut seen);
        assert_eq!(world.usage(MAIN).expect("a session").outcome, None);
    }
    assert_eq!(world.digest(), restored.digest());
    world.give(Input::Control(Control::End { session: OTHER })).expect("an input");
    run_to(&mut world, 14, &mut seen);
    // The last sender has left, and with it the channel: it stays closed.
    world.give(replace(OTHER, SENDER, &[])).expect("an input");
    let mut late = Seen::default();
    run_to(&mut world, 16, &mut late);
    assert_eq!(late.numbers(OTHER), [closed, closed]);
    assert_eq!(again(&world).save(), world.save());
}

#[test]
fn carried_bytes_wait_until_they_are_taken_and_come_first() {
    let mut machine = Machine::one(SHORT);
    machine.spec.sessions[0].name = "reader".into();
    let (mut world, mut seen) = (live(machine), Seen::default());
    run_to(&mut world, 2, &mut seen);
    let input = |byte: u8| Input::Bytes { to: Recipient::Session(MAIN), bytes: [byte].into() };
    world.give(replace(MAIN, READER, &[1, 2, 3])).expect("an input");
    world.give(Input::Control(Control::Hold { session: MAIN })).expect("an input");
    world.give(input(4)).expect("an input");
    run_to(&mut world, 9, &mut seen);
    let mut world = again(&world);
    world.give(Input::Control(Control::Release { session: MAIN })).expect("an input");
    run_to(&mut world, 11, &mut seen);
    // Input that the session has read is dropped at its frame's end again.
    world.give(Input::Control(Control::Hold { session: MAIN })).expect("an input");
    world.give(input(5)).expect("an input");
    run_to(&mut world, 12, &mut seen);
    world.give(Input::Control(Control::Release { session: MAIN })).expect("an input");
    world.give(input(6)).expect("an input");
    run_to(&mut world, 14, &mut seen);
    assert_eq!(seen.numbers(MAIN), [1, 4, 6]);
}

/// Two sessions with a context each, on one lane.
fn contexts() -> World {
    let mut machine = Machine::new();
    let busy = r#"(func (export "_start") (loop $more (call $sleep (i64.const 1)) (br $more)))"#;
    let (main, other) = (machine.session("main", busy), machine.session("other", busy));
    for (session, name) in [(main, "audio"), (other, "video")] {
        let context = ContextSpec::new(name, session, Cycles(200_000), Cycles(1_000_000));
        machine.spec.contexts.push(context);
    }
    machine.spec.most_gap = Some(Cycles(1_000));
    live(machine)
}

#[test]
fn a_replaced_session_keeps_its_context_and_one_that_ended_asks_for_it_again() {
    let (mut world, mut seen) = (contexts(), Seen::default());
    run_to(&mut world, 3, &mut seen);
    let holders = |world: &World| -> Vec<_> {
        let contexts = world.contexts();
        contexts.iter().map(|of| (of.name.clone(), of.holder)).collect()
    };
    let (before, context) = (holders(&world), world.contexts()[0].view.context);
    world.give(replace(MAIN, READER, &[9])).expect("an input");
    run_to(&mut world, 5, &mut seen);
    assert_eq!((holders(&world), seen.numbers(MAIN)), (before.clone(), vec![9]));
    assert_eq!(world.contexts()[0].view.context, context, "the same one");
    // It ends, and gives its context up.
    world.give(Input::Control(Control::End { session: MAIN })).expect("an input");
    run_to(&mut world, 6, &mut seen);
    assert_eq!(holders(&world).len(), 1);
    let kept = world.snapshot().expect("a boundary");
    world.give(replace(MAIN, READER, &[8])).expect("an input");
    run_to(&mut world, 8, &mut seen);
    assert_eq!(holders(&world), before);
    assert_eq!(again(&world).save(), world.save());
    // If another has taken the time meanwhile, the frame refuses it with the numbers.
    world.roll_back(&kept);
    let budget = Cycles(900_000);
    let grow = Control::Context { session: OTHER, name: "video".into(), budget };
    world.give(Input::Control(grow)).expect("an input");
    world.give(replace(MAIN, READER, &[8])).expect("an input");
    let digest = world.digest();
    run_to(&mut world, 8, &mut seen);
    let [refused @ ControlRefusal::Replace { session: 0, refusal, .. }] = &seen.refused[..] else {
        panic!("{:?}", seen.refused);
    };
    assert!(matches!(refusal, ContextRefusal::Denied(_)), "{refusal}");
    assert!(refused.to_string().contains("a budget of 200000 cycles"), "{refused}");
    let outcome = world.usage(MAIN).expect("a session").outcome;
    assert_eq!((outcome, world.ended_sessions()), (Some(SessionOutcome::Canceled), 1));
    assert!(world.digest() != digest);
}

#[test]
fn what_cannot_take_a_sessions_place_is_refused_with_the_reason() {
    let mut world = pair(FIRST);
    let refused = |world: &mut World, input| world.give(input).expect_err("refused");
    let unknown = GiveError::Session { found: 7, count: 2 };
    assert_eq!(refused(&mut world, replace(SessionId(7), SECOND, &[])), unknown);
    let load = |error: GiveError| match error {
        GiveError::Setting { error } => *error,
        error => panic!("{error}"),
    };
    let error = load(refused(&mut world, replace(MAIN, "", &[])));
    assert!(matches!(error, LoadError::NoEntry { .. }), "{error}");
    let long = "(i64.div_u ".repeat(60) + "(i64.const 1)" + &" (i64.const 3))".repeat(60);
    let long = format!(r#"(func (export "_start") (drop {long}))"#);
    let error = refused(&mut world, replace(MAIN, &long, &[]));
    assert!(matches!(error, GiveError::Gap { .. }), "{error}");
    let carry = vec![0; (16 << 20) + 1];
    let error = refused(&mut world, replace(MAIN, SECOND, &carry));
    assert!(matches!(error, GiveError::TooLarge { .. }), "{error}");
    assert_eq!(world.give_at(Frame(5), replace(MAIN, SECOND, &[])), Ok(()));
    let order = GiveError::Order { frame: 4, last: 5 };
    assert_eq!(world.give_at(Frame(4), replace(MAIN, SECOND, &[])), Err(order));
}

#[test]
fn replacing_over_and_over_does_not_grow_the_description() {
    let (mut world, mut seen) = (pair(FIRST), Seen::default());
    for round in 0..40u8 {
        let body = format!("{SECOND} (data (i32.const 128) \"{round}\")");
        world.give(replace(MAIN, &body, &[round])).expect("an input");
        let next = world.next_frame_number().0 + 1;
        run_to(&mut world, next, &mut seen);
    }
    let spec = world.spec();
    assert_eq!((spec.modules.len(), spec.library.len()), (3, 1), "two were loaded");
    let carried = seen.numbers(MAIN).into_iter().filter(|number| *number < 1000);
    assert_eq!(carried.collect::<Vec<i64>>(), (0..40).collect::<Vec<i64>>());
    assert_eq!(again(&world).save(), world.save());
}
