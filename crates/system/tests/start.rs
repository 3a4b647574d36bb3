//! Sessions that start while the machine runs (semantics 88 and 89).

mod kit;

use kit::{Collected, Machine, guest};
use std::sync::Arc;
use wavelock_abi::{Cycles, Frame, SessionId};
use wavelock_module::{Limits, Module};
use wavelock_system::{
    Control, GiveError, Input, LaterModule, LoadError, NewSession, Recipient, SessionOutcome, World,
};

fn module(body: &str) -> LaterModule {
    let text = guest(body);
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
    LaterModule::new(Arc::new(module), text.as_bytes().into())
}

/// Receives numbers and outputs them with the frame, until no sender is left.
const RECEIVER: &str = r#"(data (i32.const 0) "in") (func (export "_start")
    (loop $more
        (if (i32.eqz (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8))) (then
            (call $out (i64.load (i32.const 8))) (call $out (call $frame)) (br $more)))))"#;

/// Sends its input's first byte each frame in which there is one, four times.
const SENDER: &str = r#"(data (i32.const 0) "in") (func (export "_start") (local $left i32)
    (local.set $left (i32.const 4))
    (loop $more
        (if (i32.gt_s (call $input (i32.const 64) (i32.const 8)) (i32.const 0)) (then
            (drop (call $send (call $port (i32.const 0) (i32.const 2)) (i64.load8_u (i32.const 64))))
            (local.set $left (i32.sub (local.get $left) (i32.const 1)))))
        (call $sleep (i64.const 1))
        (br_if $more (local.get $left))))"#;

/// A receiver with a sender, on four lanes.
fn machine() -> Machine {
    let mut machine = Machine::lanes(4);
    let receiver = machine.session("receiver", RECEIVER);
    let sender = machine.session("sender", SENDER);
    machine.wire("in", receiver, 3, &[sender]);
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    machine
}

fn later(name: &str) -> NewSession {
    // Another module than that of the sender at load.
    let mut new = NewSession::new(name, module(&format!("{SENDER} (func)")));
    new.ports.push(("in".into(), "in".into()));
    new
}

fn start(new: NewSession) -> Input {
    Input::Control(Control::Start(Box::new(new)))
}

fn bytes(session: u32, byte: u8) -> Input {
    Input::Bytes { to: Recipient::Session(SessionId(session)), bytes: [byte].into() }
}

fn run_to(world: &mut World, until: u64, seen: &mut Collected) {
    world.allow(Frame(until));
    world.run_allowed(seen).expect("the host can");
}

fn numbers(seen: &Collected) -> Vec<i64> {
    let all: Vec<u8> = seen.output.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    all.chunks(8).map(|chunk| i64::from_le_bytes(chunk.try_into().expect("eight"))).collect()
}

#[test]
fn a_session_that_starts_sends_to_a_channel_of_another() {
    let (mut world, mut seen) = (machine().world(true), Collected::default());
    run_to(&mut world, 3, &mut seen);
    assert_eq!(world.give(start(later("third"))), Ok(Frame(3)));
    assert_eq!((world.spec().sessions.len(), world.sessions_planned()), (2, 3));
    world.give(bytes(2, 7)).expect("it is there in that frame");
    let before = world.give_at(Frame(2), bytes(2, 1));
    assert_eq!(before, Err(GiveError::Past { frame: 2, next: 3 }));
    run_to(&mut world, 4, &mut seen);
    // Its state is loaded with the description that it is in.
    let saved = world.save().expect("a boundary");
    let (amended, loaded) = (world.spec().clone(), machine().spec);
    let mut world = World::restore(amended.clone(), Vec::new(), true, &saved).expect("own bytes");
    assert_eq!(world.save().expect("a boundary"), saved);
    let without = World::restore(loaded.clone(), Vec::new(), true, &saved);
    assert!(without.is_err(), "its module is in no description");
    let mut spec = loaded;
    spec.library.clone_from(&amended.library);
    assert!(World::restore(spec, Vec::new(), true, &saved).is_ok(), "and in this library");
    world.give(bytes(2, 8)).expect("a session");
    world.give(bytes(1, 9)).expect("a session");
    run_to(&mut world, 20, &mut seen);
    assert_eq!(numbers(&seen), [7, 3, 9, 4, 8, 4]);
    // It counts among the senders: the channel closes when both have ended.
    for (session, byte) in [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)] {
        world.give(bytes(session, byte)).expect("a session");
        let next = world.next_frame_number().0 + 2;
        run_to(&mut world, next, &mut seen);
        let ended = world.usage(SessionId(0)).expect("the receiver").outcome;
        let is_last = (session, byte) == (2, 5);
        assert_eq!(ended, is_last.then_some(SessionOutcome::Finished), "{session} {byte}");
    }
}

#[test]
fn what_cannot_start_is_refused_with_the_reason() {
    let mut machine = machine();
    machine.spec.limits.sessions = 4;
    let mut world = machine.world(false);
    let refused = |world: &mut World, new: NewSession| world.give(start(new)).expect_err("refused");
    let load = |error: GiveError| match error {
        GiveError::Setting { error } => *error,
        error => panic!("{error}"),
    };
    let same = LoadError::SameName { name: "sender".into(), first: 1, second: 2 };
    assert_eq!(load(refused(&mut world, later("sender"))), same);
    let mut new = later("third");
    new.ports.push(("out".into(), "nowhere".into()));
    let unknown = GiveError::NoChannel { port: "out".into(), name: "nowhere".into() };
    assert_eq!(refused(&mut world, new), unknown);
    let mut new = later("third");
    new.channels.push(("in".into(), 4));
    assert_eq!(refused(&mut world, new), GiveError::SameChannel { name: "in".into() });
    let mut new = later("third");
    new.lane = Some(9);
    assert!(matches!(load(refused(&mut world, new)), LoadError::NoLane { lane: 9, .. }));
    let mut new = later("third");
    new.module = module("");
    assert!(matches!(load(refused(&mut world, new)), LoadError::NoEntry { .. }));
    let long = "(i64.div_u ".repeat(60) + "(i64.const 1)" + &" (i64.const 3))".repeat(60);
    let mut new = later("third");
    new.module = module(&format!(r#"(func (export "_start") (drop {long}))"#));
    let (found, most) = (new.module.module().code().gap(), world.spec().modules[0].code().gap());
    assert!(found > most, "{found:?} {most:?}");
    assert_eq!(refused(&mut world, new.clone()), GiveError::Gap { found, most });
    machine.spec.most_gap = Some(Cycles(4_096));
    assert_eq!(machine.world(false).give(start(new)), Ok(Frame(0)), "with room for it");
    // They start in the order in which they are given, and count before they start.
    assert_eq!(world.give_at(Frame(5), start(later("third"))), Ok(()));
    let order = GiveError::Order { frame: 4, last: 5 };
    assert_eq!(world.give_at(Frame(4), start(later("fourth"))), Err(order));
    let early = GiveError::Session { found: 2, count: 2 };
    assert_eq!(world.give_at(Frame(4), bytes(2, 0)), Err(early));
    assert_eq!(world.give_at(Frame(5), bytes(2, 0)), Ok(()));
    let same = LoadError::SameName { name: "third".into(), first: 2, second: 3 };
    assert_eq!(load(world.give_at(Frame(5), start(later("third"))).expect_err("taken")), same);
    assert_eq!(world.give_at(Frame(5), start(later("fourth"))), Ok(()));
    let most = LoadError::Sessions { found: 5, allowed: 4 };
    assert_eq!(load(world.give_at(Frame(6), start(later("fifth"))).expect_err("full")), most);
    run_to(&mut world, 8, &mut Collected::default());
    assert_eq!(world.spec().sessions.len(), 4);
}
