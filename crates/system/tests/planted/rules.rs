//! The rules of `rules.rs`, which tests can break here, and the tests that must detect it: each
//! compares what sessions observe, and fails when its rule is broken.

use crate::live::Given;
use crate::{
    AskId, HostImport, HostImports, HostKind, HostNumber, Input, MachineSpec, Placement, Span,
    World,
};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, Frame, LaneId, SessionId};
use wavelock_module::{Limits, Module};

/// The rules, or one of them broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Rules {
    #[default]
    Kept,
    /// Inboxes are opened from the last lane to the first.
    UnsortedInbox,
    /// A lane keeps the larger of its old and its new share.
    CreditKept,
    /// No group settles its own effects: every effect is applied in one order, then every channel
    /// is divided. Equal by definition.
    OneOrder,
    /// An unpark of a coroutine that is not parked is lost.
    LostWake,
    /// A snapshot forgets which coroutines an operator holds.
    LostHold,
    /// A lease becomes active although a sender to its lane is no wake source of it.
    UnroutedWake,
    /// A reply to an ask is taken a frame late.
    LateReply,
    /// Every input event is taken a frame late.
    LateInput,
    /// A replaced session begins with nothing.
    LostCarry,
    /// A return to a snapshot loses the replies that wait in it.
    LostReply,
    /// Every end is interrupted after this step, and started again.
    Cut(usize),
}

impl Rules {
    pub(crate) fn sender(self, position: u16, lanes: u16) -> LaneId {
        LaneId(if self == Self::UnsortedInbox { lanes - 1 - position } else { position })
    }

    pub(crate) fn divided(self, before: u32, now: u32) -> u32 {
        if self == Self::CreditKept { before.max(now) } else { now }
    }

    pub(crate) fn cut_after(self) -> Option<usize> {
        if let Self::Cut(done) = self { Some(done) } else { None }
    }

    pub(crate) fn keeps_wakes(self) -> bool {
        self != Self::LostWake
    }

    pub(crate) fn routes_wakes(self) -> bool {
        self != Self::UnroutedWake
    }

    pub(crate) fn keeps_holds(self) -> bool {
        self != Self::LostHold
    }

    pub(crate) fn input_frame(self, frame: Frame, input: &Input) -> Frame {
        let is_late = match input {
            Input::Reply { .. } => self == Self::LateReply,
            Input::Bytes { .. } => self == Self::LateInput,
            _ => false,
        };
        Frame(frame.0 + u64::from(is_late))
    }

    pub(crate) fn carried(self, carry: &[u8]) -> &[u8] {
        if self == Self::LostCarry { &[] } else { carry }
    }

    pub(crate) fn kept_inputs(self, inputs: &VecDeque<Given>) -> VecDeque<Given> {
        let is_kept =
            |given: &&Given| self != Self::LostReply || !matches!(given.input, Input::Reply { .. });
        inputs.iter().filter(is_kept).cloned().collect()
    }

    pub(crate) fn settles_alone(self) -> bool {
        self != Self::OneOrder
    }
}

const IMPORTS: &str = r#"
    (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
    (import "wavelock" "try_send" (func $try_send (param i32 i64) (result i32)))
    (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
    (import "wavelock" "sleep" (func $sleep (param i64)))
    (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
    (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
    (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
    (import "wavelock" "spawn_on" (func $spawn_on (param i32 i64 i32) (result i64)))
    (import "wavelock" "cancel" (func $cancel (param i64) (result i32)))
    (import "wavelock" "yield" (func $yield))
    (memory 1) (data (i32.const 0) "in")"#;

/// Sleeps two frames, then receives until the channel closes, and outputs the first byte of each
/// number.
const OWNER: &str = r#"(func (export "_start")
    (call $sleep (i64.const 2))
    (loop $next
      (if (i32.eqz (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
        (then (drop (call $output (i32.const 8) (i32.const 1))) (br $next)))))"#;

/// Tries to send its number `often` times in each of three frames.
fn sender(number: u32, often: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32) (local $frame i32)
        (loop $frames
          (local.set $i (i32.const 0))
          (loop $next
            (drop (call $try_send (call $port (i32.const 0) (i32.const 2)) (i64.const {number})))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $i) (i32.const {often}))))
          (call $sleep (i64.const 1))
          (local.set $frame (i32.add (local.get $frame) (i32.const 1)))
          (br_if $frames (i32.lt_u (local.get $frame) (i32.const 2)))))"#
    )
}

struct Output(Vec<u8>);

impl crate::Sink for Output {
    fn output(&mut self, _: SessionId, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

/// What the owner receives when lanes 1 and 2 try to send `often` times to a channel of `capacity`.
fn received(rules: Rules, often: u32, capacity: u32) -> Vec<u8> {
    run(rules, &[String::from(OWNER), sender(1, often), sender(2, often)], capacity).0
}

/// The output and digest of a machine with one session per lane. The first owns a channel of
/// `capacity` to which all may send; a fourth has one more lane.
fn run(rules: Rules, bodies: &[String], capacity: u32) -> (Vec<u8>, wavelock_trace::Digest) {
    let mut spec =
        MachineSpec { lanes: 5, span: Span::Cycles(Cycles(20_000)), ..MachineSpec::new() };
    for (number, body) in bodies.iter().enumerate() {
        let text = format!("(module {IMPORTS} {body})");
        let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
        let module = spec.add_module(Arc::new(module), text.as_bytes());
        spec.add_session(&format!("session.{number}"), module);
    }
    if let Some(split) = spec.sessions.get_mut(3) {
        split.placement = Placement::Split([3, 4].into());
    }
    let channel = spec.add_channel("in", SessionId(0), capacity);
    spec.sessions.iter_mut().for_each(|session| session.ports.push((String::from("in"), channel)));
    let mut world = World::load(spec, Vec::new(), false).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    let mut output = Output(Vec::new());
    world.run(&mut output).expect("the host can");
    (output.0, world.digest())
}

/// One message of each lane and frame: they arrive in the order of their lanes.
fn check_inbox_order(rules: Rules) -> Result<(), Vec<u8>> {
    let found = received(rules, 1, 64);
    if found == [1, 2, 1, 2] { Ok(()) } else { Err(found) }
}

/// No coroutine receives for two frames: no more than the channel's capacity is ever sent.
fn check_credits(rules: Rules) -> Result<(), Vec<u8>> {
    let found = received(rules, 20, 6);
    if found.len() == 6 { Ok(()) } else { Err(found) }
}

#[test]
fn an_unsorted_inbox_is_noticed() {
    assert_eq!(check_inbox_order(Rules::Kept), Ok(()));
    assert_eq!(check_inbox_order(Rules::UnsortedInbox), Err([2, 1, 2, 1].into()));
}

#[test]
fn a_credit_that_does_not_lapse_is_noticed() {
    assert_eq!(check_credits(Rules::Kept), Ok(()));
    let found = check_credits(Rules::CreditKept).expect_err("the channel is overfull");
    assert!(found.len() > 6, "{found:?}");
}

/// A coroutine unparks another that has not parked yet, on its own lane or on another; `None` if
/// the other's park returns.
fn check_kept_wake(rules: Rules, other_lane: u32) -> Option<usize> {
    let text = format!(
        r#"(module
        (import "wavelock" "spawn_on" (func $spawn_on (param i32 i64 i32) (result i64)))
        (import "wavelock" "unpark" (func $unpark (param i64) (result i32)))
        (import "wavelock" "park" (func $park (result i32)))
        (import "wavelock" "sleep" (func $sleep (param i64)))
        (table funcref (elem $late))
        (func $late (param i64) (call $sleep (i64.const 2)) (drop (call $park)))
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn_on (i32.const 0) (i64.const 0) (i32.const {other_lane})))
          (call $sleep (i64.const 1))
          (drop (call $unpark (local.get $r)))))"#
    );
    let mut spec = MachineSpec { lanes: 2, ..MachineSpec::new() };
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    spec.add_session("main", module);
    spec.sessions[0].placement = Placement::Split([0, 1].into());
    let mut world = World::load(spec, Vec::new(), false).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    world.run(&mut ()).expect("the host can");
    world.deadlock().map(|deadlock| deadlock.waiting.len())
}

#[test]
fn a_lost_wake_is_noticed() {
    for other_lane in [0, 1] {
        assert_eq!(check_kept_wake(Rules::Kept, other_lane), None);
        assert_eq!(check_kept_wake(Rules::LostWake, other_lane), Some(1));
    }
}

/// Senders that wait for room, one of them canceled meanwhile, in the same wave or later, messages
/// with credit, ports that close; with or without a session that keeps spawning coroutines on
/// another lane. Groups that settle their own effects get the run of all effects in one order.
#[test]
fn settling_group_by_group_is_one_order() {
    let body = |number: u32, often: u32, cancel: &str| {
        format!(
            r#"(table funcref (elem $work))
            (func $work (param $n i64) (result i64) (local $i i32)
              (loop $next
                (drop (call $send (call $port (i32.const 0) (i32.const 2)) (i64.add (local.get $n) (i64.extend_i32_u (local.get $i)))))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $i) (i32.const {often}))))
              (local.get $n))
            (func (export "_start") (local $helper i64)
              (local.set $helper (call $spawn (i32.const 0) (i64.const {number})))
              {cancel} (drop (call $work (i64.const {number}))))"#
        )
    };
    let spreading = String::from(
        r#"(table funcref (elem $work)) (func $work (param $n i64) (result i64) (local.get $n))
        (func (export "_start") (local $i i32)
          (loop $next
            (drop (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 4)))
            (call $yield)
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $i) (i32.const 500)))))"#,
    );
    let cancel = "(drop (call $cancel (local.get $helper)))";
    for (often, capacity) in [(1, 64), (3, 1), (7, 2), (20, 6), (40, 64)] {
        for ending in
            [format!("(call $sleep (i64.const 1)) {cancel}"), format!("(call $yield) {cancel}")]
        {
            let three = [
                String::from(OWNER),
                body(1, often, "(call $sleep (i64.const 1))"),
                body(101, often, &ending),
            ];
            let four = [&three[..], core::slice::from_ref(&spreading)].concat();
            for bodies in [&three[..], &four] {
                let (output, digest) = run(Rules::Kept, bodies, capacity);
                assert!(output.len() >= 3 * often as usize, "{often} times {capacity}: {output:?}");
                assert_eq!(
                    (output, digest),
                    run(Rules::OneOrder, bodies, capacity),
                    "{often} times {capacity}, {} sessions",
                    bodies.len()
                );
            }
        }
    }
}

/// A server that works for any caller, and clients that own time: one is answered, one is
/// canceled in its call by a sibling, one exits in it, one revokes its context in it; then the
/// server ends with a call unanswered and others in its queue.
// Long: five guests, each a few lines.
fn machine_of_ends() -> MachineSpec {
    let imports = r#"
    (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
    (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
    (import "wavelock" "self" (func $self (result i64)))
    (import "wavelock" "cancel" (func $cancel (param i64) (result i32)))
    (import "wavelock" "sleep" (func $sleep (param i64)))
    (import "wavelock" "call" (func $call (param i32 i32 i64) (result i32)))
    (import "wavelock" "accept" (func $accept (param i32 i32) (result i32)))
    (import "wavelock" "reply" (func $reply (param i32 i64) (result i32)))
    (import "wavelock" "capability" (func $capability (param i32 i32) (result i32)))
    (import "wavelock" "context_revoke" (func $context_revoke (param i32) (result i32)))
    (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (memory (export "memory") 1) (data (i32.const 0) "inclock") (table funcref (elem $other))
    (func $say (param i32) (i32.store (i32.const 64) (local.get 0)) (drop (call $output (i32.const 64) (i32.const 4))))
    (func $ask (call $say (call $call (call $port (i32.const 0) (i32.const 2)) (i32.const 32) (i64.const 5))))"#;
    let server = r#"(func $other (param i64) (result i64) (i64.const 0))
      (func (export "_start") (local $taken i32) (local $left i32) (local $work i32)
      (local.set $left (i32.const 5))
      (loop $next
        (local.set $taken (call $accept (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
        (local.set $work (i32.const 30000))
        (loop $more (br_if $more (local.tee $work (i32.sub (local.get $work) (i32.const 1)))))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (if (local.get $left) (then (call $say (call $reply (local.get $taken) (i64.const 6))) (br $next)))))"#;
    let client = |frames: u32, other: &str| {
        format!(
            r#"(func $other (param i64) (result i64) (call $sleep (i64.const {frames})) {other} (i64.const 0))
            (func (export "_start") (drop (call $spawn (i32.const 0) (call $self))) (call $ask) (call $ask) (call $ask))"#
        )
    };
    let bodies = [
        server.into(),
        client(
            1,
            "(call $say (call $context_revoke (call $capability (i32.const 2) (i32.const 5))))",
        ),
        client(9, "(call $say (call $cancel (local.get 0)))"),
        client(7, "(call $proc_exit (i32.const 3))"),
        client(1, ""),
    ];
    let mut spec = MachineSpec {
        span: Span::Cycles(Cycles(50_000)),
        frame_cycles: Cycles(150_000),
        ..MachineSpec::new()
    };
    for (number, body) in bodies.iter().enumerate() {
        let text = format!("(module {imports} {body})");
        let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
        let module = spec.add_module(Arc::new(module), text.as_bytes());
        spec.add_session(&format!("session.{number}"), module);
    }
    let channel = spec.add_channel("in", SessionId(0), 1);
    spec.sessions.iter_mut().for_each(|session| session.ports.push((String::from("in"), channel)));
    for session in 1..bodies.len() as u32 {
        spec.contexts.push(crate::ContextSpec::new(
            "clock",
            SessionId(session),
            Cycles(20_000),
            Cycles(150_000),
        ));
    }
    spec
}

#[test]
fn a_teardown_interrupted_between_any_two_steps_and_restarted_ends_the_same() {
    let run = |rules: Rules| {
        let mut world = World::load(machine_of_ends(), Vec::new(), false).expect("loads").world;
        world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
        let mut output = Output(Vec::new());
        let outcome = world.run(&mut output).expect("the host can");
        for lane in world.groups.iter().flat_map(|group| &group.lanes) {
            lane.kernel.check().unwrap_or_else(|violation| panic!("{rules:?}: {violation:?}"));
        }
        (outcome, output.0, world.summary(), world.contexts())
    };
    let whole = run(Rules::Kept);
    let codes: Vec<i32> = whole
        .1
        .chunks(4)
        .map(|code| i32::from_le_bytes([code[0], code[1], code[2], code[3]]))
        .collect();
    for errno in [
        wavelock_abi::Errno::Revoked,
        wavelock_abi::Errno::Canceled,
        wavelock_abi::Errno::Stale,
        wavelock_abi::Errno::Closed,
    ] {
        assert!(codes.contains(&errno.code()), "{errno:?} among {codes:?}");
    }
    for done in 0..crate::ending::MOST_STEPS {
        assert_eq!(run(Rules::Cut(done)), whole, "interrupted after step {done}");
    }
}

/// A holder on lane 1 whose channel is fed from lane 0, by a sender that is a wake source of the
/// lease or not.
fn leased(rules: Rules, is_routed: bool) -> World {
    let text = format!("(module {IMPORTS} {OWNER})");
    let feeder = format!("(module {IMPORTS} {})", sender(1, 3));
    let mut spec = MachineSpec { lanes: 2, max_frames: Some(8), ..MachineSpec::new() };
    for (name, text) in [("holder", &text), ("feeder", &feeder)] {
        let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
        let module = spec.add_module(Arc::new(module), text.as_bytes());
        spec.add_session(name, module);
    }
    spec.sessions[0].placement = Placement::Lane(1);
    spec.sessions[1].placement = Placement::Lane(0);
    let channel = spec.add_channel("in", SessionId(0), 64);
    spec.sessions.iter_mut().for_each(|session| session.ports.push((String::from("in"), channel)));
    let (budget, period) = (Cycles(100_000), Cycles(1_000_000));
    spec.contexts.push(crate::ContextSpec::new("time", SessionId(0), budget, period));
    let mut lease = crate::LeaseSpec::new("quiet", SessionId(0), 0);
    lease.wakes = if is_routed { alloc::vec![channel] } else { Vec::new() };
    spec.leases.push(lease);
    let mut world = World::load(spec, Vec::new(), true).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    world
}

#[test]
fn noise_on_a_leased_lane_is_noticed_and_ends_the_lease() {
    use wavelock_kernel::{Evidence, LeaseEnd, LeasePhase};
    let ended = |rules: Rules, is_routed: bool| {
        let mut world = leased(rules, is_routed);
        world.run(&mut ()).expect("the host can");
        let lease = world.leases().remove(0);
        let state = lease.state.expect("it was asked for");
        (state.phase, state.ended, state.missing.map(|missing| missing.evidence), lease.counts)
    };
    let (phase, reason, _, counts) = ended(Rules::Kept, true);
    assert_eq!((phase, reason), (LeasePhase::Released, Some(LeaseEnd::HolderEnded)));
    assert_eq!((counts.noise, counts.activations), (0, 1));
    let (phase, _, missing, _) = ended(Rules::Kept, false);
    assert_eq!((phase, missing), (LeasePhase::Denied, Some(Evidence::WakeSourcesRouted)));
    // The rule is broken: the first message that arrives is noise.
    let (phase, reason, _, counts) = ended(Rules::UnroutedWake, false);
    assert_eq!((phase, reason), (LeasePhase::Released, Some(LeaseEnd::Noise)));
    assert!(counts.noise > 0 && counts.activations == 1, "{counts:?}");
}

/// Every end of a holder's session, interrupted after each of its steps and started again, ends its
/// lease once and the same.
#[test]
fn a_lease_whose_end_is_interrupted_and_started_again_ends_the_same() {
    let run = |rules: Rules| {
        let mut world = leased(rules, true);
        world.run(&mut ()).expect("the host can");
        for lane in world.groups.iter().flat_map(|group| &group.lanes) {
            lane.kernel.check().unwrap_or_else(|violation| panic!("{rules:?}: {violation:?}"));
        }
        (world.summary(), world.leases())
    };
    let whole = run(Rules::Kept);
    assert_eq!(whole.1[0].counts.ends.iter().sum::<u64>(), 1);
    for done in 0..crate::ending::MOST_STEPS {
        assert_eq!(run(Rules::Cut(done)), whole, "interrupted after step {done}");
    }
}

/// The digest of a live machine whose session is held from frame 3 on, and is rolled back to frame
/// 5 after it ran to frame 9.
fn held_over_a_rollback(rules: Rules, rolls_back: bool) -> wavelock_trace::Digest {
    let text = format!(
        r#"(module {IMPORTS} (func (export "_start")
            (loop $more (drop (call $output (i32.const 0) (i32.const 2)))
                (call $sleep (i64.const 1)) (br $more))))"#
    );
    let mut spec = MachineSpec { live: true, ..MachineSpec::new() };
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    spec.add_session("main", module);
    let mut world = World::load(spec, Vec::new(), false).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    let session = SessionId(0);
    let hold = crate::Input::Control(crate::Control::Hold { session });
    world.give_at(Frame(3), hold).expect("in range");
    let run_to = |world: &mut World, frame| {
        world.allow(Frame(frame));
        world.run_allowed(&mut ()).expect("the host can");
    };
    run_to(&mut world, 5);
    let snapshot = world.snapshot().expect("a boundary");
    run_to(&mut world, 9);
    if rolls_back {
        world.roll_back(&snapshot);
        run_to(&mut world, 9);
    }
    world.digest()
}

#[test]
fn a_snapshot_that_loses_a_hold_is_noticed() {
    let straight = held_over_a_rollback(Rules::Kept, false);
    assert_eq!(held_over_a_rollback(Rules::Kept, true), straight);
    assert_ne!(held_over_a_rollback(Rules::LostHold, true), straight);
}

/// What a guest outputs that writes the first byte of each input and the frame in which it came:
/// one input is given while it runs, another is carried to the module that replaces its own.
fn check_inputs(rules: Rules) -> Result<(), Vec<u8>> {
    let text = r#"(module
      (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
      (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
      (import "wavelock" "frame" (func $frame (result i64)))
      (import "wavelock" "sleep" (func $sleep (param i64)))
      (memory 1)
      (func (export "_start")
        (loop $more
          (if (i32.gt_s (call $input (i32.const 0) (i32.const 8)) (i32.const 0)) (then
            (i64.store (i32.const 1) (call $frame))
            (drop (call $output (i32.const 0) (i32.const 2)))))
          (call $sleep (i64.const 1)) (br $more))))"#;
    let mut spec = MachineSpec { live: true, ..MachineSpec::new() };
    let load = |text: &str| {
        Arc::new(Module::from_text(text.as_bytes(), &Limits::default()).expect("valid"))
    };
    let module = spec.add_module(load(text), text.as_bytes());
    spec.add_session("main", module);
    let mut world = World::load(spec, Vec::new(), false).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    let session = SessionId(0);
    let bytes = Input::Bytes { to: crate::Recipient::Session(session), bytes: [7].into() };
    world.give_at(Frame(3), bytes).expect("in range");
    let other = text.replace("(memory 1)", "(memory 2)");
    let module = crate::LaterModule::new(load(&other), other.as_bytes().into());
    let carry = [8].into();
    let replacement = crate::Replacement { session, module, carry };
    let replace = Input::Control(crate::Control::Replace(alloc::boxed::Box::new(replacement)));
    world.give_at(Frame(6), replace).expect("in range");
    let mut output = Output(Vec::new());
    world.allow(Frame(9));
    world.run_allowed(&mut output).expect("the host can");
    if output.0 == [7, 3, 8, 6] { Ok(()) } else { Err(output.0) }
}

#[test]
fn an_input_that_is_late_or_was_not_carried_is_noticed() {
    assert_eq!(check_inputs(Rules::Kept), Ok(()));
    assert_eq!(check_inputs(Rules::LateInput), Err([7, 4, 8, 6].into()));
    assert_eq!(check_inputs(Rules::LostCarry), Err([7, 3].into()));
}

/// A machine whose guest asks, and writes the reply and the frame in which it came.
fn asking(rules: Rules) -> World {
    let text = br#"(module
      (import "net" "score" (func $score (param i64) (result i64)))
      (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
      (import "wavelock" "frame" (func $frame (result i64)))
      (memory 1)
      (func (export "_start")
        (i64.store (i32.const 0) (call $score (i64.const 5)))
        (i64.store (i32.const 1) (call $frame))
        (drop (call $output (i32.const 0) (i32.const 2)))))"#;
    let mut spec = MachineSpec { live: true, ..MachineSpec::new() };
    let module = Module::from_text(text, &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), text);
    spec.add_session("asks", module);
    let score = HostImport {
        module: String::from("net"),
        name: String::from("score"),
        kind: HostKind::Ask,
        params: [HostNumber::I64].into(),
        results: [HostNumber::I64].into(),
        cost: Cycles(10),
    };
    spec.host = HostImports { name: String::from("net"), version: 1, functions: [score].into() };
    let mut world = World::load(spec, Vec::new(), false).expect("loads").world;
    world.groups.iter_mut().for_each(|group| Arc::make_mut(&mut group.shared).rules = rules);
    world
}

/// What the guest writes: the reply is given for frame 3, before a snapshot that the run returns to
/// from frame 2.
fn check_reply(rules: Rules) -> Result<(), Vec<u8>> {
    let mut world = asking(rules);
    let mut output = Output(Vec::new());
    let mut run = |world: &mut World, until: u64| {
        world.allow(Frame(until));
        world.run_allowed(&mut output).expect("the host can");
    };
    run(&mut world, 1);
    let ask = world.asks().next().expect("it asks").id;
    world.give_at(Frame(3), Input::Reply { ask, results: [7].into() }).expect("it waits");
    let kept = world.snapshot().expect("a boundary");
    run(&mut world, 2);
    world.roll_back(&kept);
    run(&mut world, 9);
    if output.0 == [7, 3] { Ok(()) } else { Err(output.0) }
}

#[test]
fn a_reply_that_is_late_or_lost_by_a_snapshot_is_detected() {
    assert_eq!(check_reply(Rules::Kept), Ok(()));
    assert_eq!(check_reply(Rules::LateReply), Err([7, 4].into()));
    assert_eq!(check_reply(Rules::LostReply), Err(Vec::new()));
}

/// Replies of a recording to an ask that was never made, with another question, and with another
/// number of results: events, and nothing else.
#[test]
fn replies_to_nothing_are_events_that_change_nothing_else() {
    let run = |wrong: fn(AskId) -> Input| {
        let mut world = asking(Rules::Kept);
        world.allow(Frame(1));
        world.run_allowed(&mut ()).expect("the host can");
        let ask = world.asks().next().expect("it asks").id;
        let right = Input::Reply { ask, results: [7].into() };
        world.give_recorded([(Frame(2), wrong(ask)), (Frame(3), right)]).expect("a recording");
        let mut output = Output(Vec::new());
        world.allow(Frame(5));
        world.run_allowed(&mut output).expect("the host can");
        (output.0, world.digest())
    };
    let never = run(|ask| Input::Reply { ask: AskId { number: 9, ..ask }, results: [1].into() });
    let other = run(|ask| Input::Reply { ask: AskId { question: 9, ..ask }, results: [1].into() });
    let many = run(|ask| Input::Reply { ask, results: [1, 2].into() });
    assert_eq!((&never.0[..], &other.0[..]), (&[7, 3][..], &[7, 3][..]));
    assert_eq!(many, other, "one event");
    assert_ne!(many.1, never.1, "the event names the ask");
}
