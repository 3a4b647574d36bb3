//! The rules of `rules.rs` with a way to break them, and the tests that must notice: each looks at what sessions can see, and fails when
//! the rule it is about is broken.

use crate::{MachineSpec, Span, World};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, SessionId};
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
    /// Nothing is settled by groups on their own: every effect is applied in one order, then every channel divided. The same by definition.
    OneOrder,
}

impl Rules {
    pub(crate) fn sending_lane(self, turn: usize, lanes: usize) -> usize {
        if self == Self::UnsortedInbox { lanes - 1 - turn } else { turn }
    }

    pub(crate) fn divided(self, before: u32, now: u32) -> u32 {
        if self == Self::CreditKept { before.max(now) } else { now }
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
    (import "wavelock" "cancel" (func $cancel (param i64) (result i32)))
    (memory 1) (data (i32.const 0) "in")"#;

/// Sleeps two frames, then receives until the channel closes, and outputs the first byte of each number.
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

/// What the owner receives when lanes 1 and 2 try to send so often to a channel of so many places.
fn received(rules: Rules, often: u32, capacity: u32) -> Vec<u8> {
    run(rules, [String::from(OWNER), sender(1, often), sender(2, often)], capacity).0
}

/// What leaves a machine of three sessions on three lanes, and its digest. The first owns a channel of so many places to which all may send.
fn run(rules: Rules, bodies: [String; 3], capacity: u32) -> (Vec<u8>, wavelock_trace::Digest) {
    let mut spec = MachineSpec { lanes: 3, span: Span::Cycles(Cycles(20_000)), ..MachineSpec::new() };
    for (number, body) in bodies.iter().enumerate() {
        let text = format!("(module {IMPORTS} {body})");
        let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
        let module = spec.add_module(Arc::new(module), text.as_bytes());
        spec.add_session(&format!("session.{number}"), module);
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

/// Nobody receives for two frames: no more than the channel's places are ever sent.
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

/// Senders that wait for room, one of them ended while it does, messages with credit, ports that close: groups that settle each on its own have
/// the run of all effects in one order.
#[test]
fn settling_group_by_group_is_one_order() {
    let body = |number: u32, often: u32, canceled: bool| {
        let cancel = if canceled { "(drop (call $cancel (local.get $helper)))" } else { "" };
        format!(
            r#"(table funcref (elem $work))
            (func $work (param $n i64) (result i64) (local $i i32)
              (loop $next
                (drop (call $send (call $port (i32.const 0) (i32.const 2)) (local.get $n)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $i) (i32.const {often}))))
              (local.get $n))
            (func (export "_start") (local $helper i64)
              (local.set $helper (call $spawn (i32.const 0) (i64.const {number})))
              (call $sleep (i64.const 1)) {cancel}
              (drop (call $work (i64.const {number}))))"#
        )
    };
    for (often, capacity) in [(1, 64), (3, 1), (7, 2), (20, 6), (40, 64)] {
        let machine = |rules| run(rules, [String::from(OWNER), body(1, often, false), body(2, often, true)], capacity);
        let (output, digest) = machine(Rules::Kept);
        assert!(output.len() >= 3 * often as usize, "{often} times {capacity}: {output:?}");
        assert_eq!((output, digest), machine(Rules::OneOrder), "{often} times {capacity}");
    }
}
