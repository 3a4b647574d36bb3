//! Live machines: inputs that are given while the machine runs (semantics 80 to 83).

mod kit;

use kit::{Machine, Run};
use wavelock_abi::{Frame, SessionId};
use wavelock_system::{
    GiveError, Input, InputEvent, LoadError, MOST_INPUT_BYTES, MOST_UNREAD_BYTES, Recipient,
    RunOutcome, Sink, Stage, World,
};

const MAIN: SessionId = SessionId(0);

/// Outputs what it reads, then the frame it read that in, until the end of its input; then 99.
const READER: &str = r#"(func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 100))
    (loop $more
        (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (drop (call $output (i32.const 64) (i32.load (i32.const 8))))
        (call $out (call $frame))
        (br_if $more (i32.load (i32.const 8))))
    (call $out (i64.const 99)))"#;

fn live(body: &str) -> World {
    let mut machine = Machine::one(body);
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    World::load(machine.spec, Vec::new(), true).expect("a machine").world
}

fn bytes(text: &str) -> Input {
    Input::Bytes { to: Recipient::Session(MAIN), bytes: text.as_bytes().into() }
}

/// Frames that ran, and what was output.
#[derive(Default)]
struct Seen {
    frames: Vec<u64>,
    inputs: Vec<(u64, usize)>,
    output: Vec<u8>,
}

impl Sink for Seen {
    fn output(&mut self, _: SessionId, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn inputs(&mut self, frame: Frame, inputs: &[Input]) {
        self.inputs.push((frame.0, inputs.len()));
    }

    fn frame(
        &mut self,
        frame: Frame,
        _: wavelock_trace::Digest,
        _: &[u8],
        _: &mut dyn Iterator<Item = &[u8]>,
    ) {
        self.frames.push(frame.0);
    }
}

fn run_to(world: &mut World, until: u64, seen: &mut Seen) {
    world.allow(Frame(until));
    world.run_allowed(seen).expect("the host can");
}

#[test]
fn an_idle_machine_waits_and_its_idle_frames_are_not_run() {
    let (mut world, mut seen) = (live(READER), Seen::default());
    assert_eq!(world.stage(), Stage::Waiting, "nothing runs before the driver allows it");
    run_to(&mut world, 1_000_000, &mut seen);
    assert_eq!((world.stage(), &seen.frames[..]), (Stage::Waiting, &[0][..]));
    assert_eq!(world.give(bytes("ab")), Ok(Frame(1_000_000)));
    run_to(&mut world, 1_000_005, &mut seen);
    assert_eq!(world.give(Input::End { to: Recipient::All }), Ok(Frame(1_000_005)));
    assert_eq!(world.give(Input::Stop), Ok(Frame(1_000_005)));
    run_to(&mut world, 2_000_000, &mut seen);
    assert_eq!((world.stage(), world.outcome()), (Stage::Over, Some(RunOutcome::Finished)));
    assert_eq!(seen.frames, [0, 1_000_000, 1_000_005]);
    assert_eq!(seen.inputs, [(1_000_000, 1), (1_000_005, 2)]);
    let number = u64::to_le_bytes;
    let expected = [&b"ab"[..], &number(1_000_000), &number(1_000_005), &number(99)].concat();
    assert_eq!(seen.output, expected);
    assert_eq!(world.give(bytes("x")), Err(GiveError::Over));
}

#[test]
fn a_machine_whose_sessions_have_all_ended_lives_until_it_is_stopped() {
    let (mut world, mut seen) = (live(r#"(func (export "_start"))"#), Seen::default());
    run_to(&mut world, 50, &mut seen);
    assert_eq!((world.stage(), &seen.frames[..]), (Stage::Waiting, &[0][..]));
    world.give(Input::Stop).expect("it lives");
    run_to(&mut world, 51, &mut seen);
    assert_eq!((world.outcome(), &seen.frames[..]), (Some(RunOutcome::Finished), &[0, 50][..]));
}

#[test]
fn a_machine_that_is_stopped_early_has_that_outcome() {
    let (mut world, mut seen) = (live(READER), Seen::default());
    world.give(Input::Stop).expect("it lives");
    run_to(&mut world, 10, &mut seen);
    assert_eq!((world.outcome(), &seen.frames[..]), (Some(RunOutcome::Stopped), &[0][..]));
}

#[test]
fn a_frame_limit_ends_an_idle_live_machine_too() {
    let mut machine = Machine::one(READER);
    (machine.spec.live, machine.spec.max_frames) = (true, Some(30));
    let mut world = World::load(machine.spec, Vec::new(), false).expect("a machine").world;
    let mut seen = Seen::default();
    run_to(&mut world, 29, &mut seen);
    assert_eq!((world.stage(), &seen.frames[..]), (Stage::Waiting, &[0][..]));
    assert_eq!(
        world.give_at(Frame(30), bytes("")),
        Err(GiveError::BeyondEnd { frame: 30, last: 29 })
    );
    run_to(&mut world, 30, &mut seen);
    assert_eq!((world.outcome(), &seen.frames[..]), (Some(RunOutcome::Frames), &[0, 29][..]));
}

#[test]
fn a_machine_that_is_not_live_stops_between_frames_too() {
    let machine = Machine::one(
        r#"(func (export "_start") (call $sleep (i64.const 5)) (call $out (i64.const 1)))"#,
    );
    let straight: Run = machine.run();
    let mut world = World::load(machine.spec, Vec::new(), true).expect("a machine").world;
    let mut seen = Seen::default();
    assert_eq!(world.give(bytes("x")), Err(GiveError::NotLive));
    for until in 0..9 {
        run_to(&mut world, until, &mut seen);
        assert_eq!(world.stage().is_boundary(), until <= 5, "{until}");
    }
    assert_eq!((world.digest(), &seen.frames[..]), (straight.summary.digest, &[0, 5][..]));
}

#[test]
fn input_after_the_end_and_beyond_what_may_be_kept_is_dropped_and_counted() {
    let mut world = live(
        r#"(func (export "_start") (call $sleep (i64.const 9))
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 8))
        (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (call $out32 (i32.load (i32.const 8))))"#,
    );
    let mut seen = Seen::default();
    let large = vec![7; MOST_UNREAD_BYTES as usize].into_boxed_slice();
    let all = |bytes: Box<[u8]>| Input::Bytes { to: Recipient::All, bytes };
    world.give(all(large)).expect("allowed");
    world.give(all([1].into())).expect("allowed");
    world.give(Input::End { to: Recipient::All }).expect("allowed");
    world.give(all([].into())).expect("allowed");
    run_to(&mut world, 1, &mut seen);
    // The guest does not import `input` without `fd_read`: what it has not read is dropped at the
    // end of the frame.
    assert_eq!(world.unread_input()[0].dropped, 3);
    assert_eq!(seen.inputs, [(0, 4)]);
}

#[test]
fn what_cannot_be_given_is_refused_with_the_numbers() {
    let mut world = live(READER);
    let to = Recipient::Session(SessionId(7));
    let refused = Err(GiveError::Session { found: 7, count: 1 });
    assert_eq!(world.give(Input::End { to }), refused);
    let input = Input::Bytes { to, bytes: [].into() };
    assert_eq!(world.give_at(Frame(4), input).err(), refused.err());
    let bytes = vec![0; MOST_INPUT_BYTES as usize + 1].into_boxed_slice();
    assert_eq!(
        world.give(Input::Bytes { to: Recipient::All, bytes }),
        Err(GiveError::TooLarge { found: MOST_INPUT_BYTES + 1 })
    );
    for _ in 0..2 {
        let bytes = vec![0; MOST_INPUT_BYTES as usize].into_boxed_slice();
        assert!(world.give_at(Frame(90), Input::Bytes { to: Recipient::All, bytes }).is_ok());
    }
    let full = GiveError::Full { inputs: 2, bytes: 2 * MOST_INPUT_BYTES };
    let one = Input::Bytes { to: Recipient::All, bytes: [0].into() };
    assert_eq!(world.give(one), Err(full.clone()));
    assert_eq!(world.give(Input::End { to: Recipient::All }), Ok(Frame(0)), "it has no bytes");
    run_to(&mut world, 20, &mut Seen::default());
    assert_eq!(world.give_at(Frame(19), Input::Stop), Err(GiveError::Past { frame: 19, next: 20 }));
    for refusal in [full, GiveError::Over, GiveError::NotLive] {
        assert!(refusal.to_string().len() > 30, "{refusal}");
    }
}

#[test]
fn names_and_the_order_of_inputs_are_checked_at_load() {
    let mut machine = Machine::one(READER);
    machine.session("main", READER);
    let refused = World::load(machine.spec.clone(), Vec::new(), false).err();
    let same = LoadError::SameName { name: "main".into(), first: 0, second: 1 };
    assert_eq!(refused.as_ref(), Some(&same));
    machine.spec.sessions[1].name = "other".into();
    let event =
        |frame| InputEvent { frame: Frame(frame), recipient: Recipient::All, bytes: [].into() };
    let refused = World::load(machine.spec, vec![event(3), event(5), event(4)], false).err();
    assert_eq!(refused, Some(LoadError::InputOrder { at: 2, frame: 4, before: 5 }));
}

#[test]
fn being_live_is_part_of_the_identity_and_nothing_else_changes() {
    let mut machine = Machine::one(READER);
    let closed = machine.spec.identity();
    machine.spec.live = true;
    assert_eq!(machine.spec.identity()[..closed.len()], closed);
    assert_eq!(machine.spec.identity().len(), closed.len() + 8);
}
