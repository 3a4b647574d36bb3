//! Messages, sleeps, spawns and ends that are dealt with inside the machine's loop are the run that the rules in full give.
//!
//! With costs kept a slice goes from safepoint to safepoint and every host operation takes the long way, so the two runs of one machine
//! do the same operations by different code: digest, cycles, counts and outcome must agree.

mod kit;

use kit::{Choices, Machine};
use std::fmt::Write;
use wavelock_system::RunOutcome;

/// What a child is given: it returns it, every third after a yield.
const CHILD: &str = "(local.get $n)";

/// One session of a few coroutines that send and receive over the session's own channels, with wrong handles, byte messages, selects, closes and
/// now and then a pointer outside the memory; that sleep, and spawn others that end at once or soon, joined or not, with short stacks and long ones; that
/// now and then ask for what is no function to begin with, or for more coroutines than there may be.
// Long: the guest's text.
fn machine(seed: u64) -> Machine {
    let mut choices = Choices(seed);
    let (channels, workers) = (1 + choices.below(3), 2 + choices.below(3));
    let mut body = String::new();
    let mut start = String::new();
    for channel in 0..channels {
        let capacity = [1, 2, 8, 64][choices.below(4) as usize];
        let _ = writeln!(start, "(i32.store (i32.const {}) (call $channel (i32.const {capacity})))", channel * 4);
    }
    for worker in 0..workers {
        let mut script = String::new();
        for _ in 0..8 {
            let handle = match choices.below(40) {
                0 => "(i32.const -1)".to_owned(),
                1 => "(i32.const 99)".to_owned(),
                _ => format!("(i32.load (i32.const {}))", choices.below(channels) * 4),
            };
            let place = 1024 + worker * 64;
            let pointer = if choices.one_in(100) { 65_529 } else { place };
            let _ = match choices.below(21) {
                0..=4 => writeln!(script, "(call $out32 (call $send {handle} (local.get $n)))"),
                5 => writeln!(script, "(call $out32 (call $try_send {handle} (local.get $n)))"),
                6..=9 => writeln!(script, "(call $out32 (call $recv {handle} (i32.const {pointer})))"),
                10..=11 => writeln!(script, "(call $out32 (call $try_recv {handle} (i32.const {pointer})))"),
                12 => writeln!(script, "(call $out32 (call $send_bytes {handle} (i32.const {place}) (i32.const 5)))"),
                13 => writeln!(script, "(call $out32 (call $recv_bytes {handle} (i32.const {place}) (i32.const 16)))"),
                14 if choices.one_in(4) => writeln!(script, "(call $out32 (call $select (i32.const 0) (i32.const {channels})))"),
                15 if choices.one_in(20) => writeln!(script, "(call $out32 (call $close {handle}))"),
                16 => writeln!(script, "(call $sleep (i64.const {}))", choices.below(3)),
                17 => writeln!(script, "(call $out32 (call $join (call $spawn (i32.const {workers}) {CHILD}) (i32.const {place})))"),
                18 => writeln!(script, "(drop (call $detach (call $spawn (i32.const {workers}) {CHILD})))"),
                19 => {
                    // A wide one, the host's function, one of another type, an empty element, or none.
                    let entry = workers + 1 + choices.below(5);
                    writeln!(script, "(call $out32 (call $join (call $spawn (i32.const {entry}) {CHILD}) (i32.const {place})))")
                }
                _ => writeln!(script, "(call $yield)"),
            };
            if choices.one_in(3) {
                let _ = writeln!(script, "(call $out (i64.load (i32.const {place})))");
            }
        }
        let _ = writeln!(
            body,
            "(func $w{worker} (param i64) (local $n i64)
               (loop $l {script} (local.set $n (i64.add (local.get $n) (i64.const 1))) (br_if $l (i64.lt_s (local.get $n) (i64.const 12)))))
             (elem (i32.const {worker}) $w{worker})"
        );
        let _ = writeln!(start, "(drop (call $spawn (i32.const {worker}) (i64.const 0)))");
    }
    let _ = writeln!(
        body,
        "(func $child (param i64) (result i64)
           (if (i64.eqz (i64.rem_u (local.get 0) (i64.const 3))) (then (call $yield)))
           (local.get 0))
         (func $wide (param i64) (result i64) (local i64 i64 i64 i64 i64 i64 i64 i64)
           (local.set 8 (local.get 0))
           (call $yield)
           (local.get 8))
         (elem (i32.const {workers}) $child $wide $sleep $wrong)
         (func $wrong (param i32))"
    );
    let mut machine = Machine::one(&format!("{body} (func (export \"_start\") {start})"));
    machine.spec.max_frames = Some(200);
    machine.spec.handoff = choices.one_in(2);
    if choices.one_in(8) {
        machine.spec.limits.coroutines = workers as u32 + 2;
    }
    match choices.below(3) {
        0 => machine.times(60_000, 20_000, 9_000),
        1 => machine.times(20_000, 9_000, 9_000),
        _ => machine.times(1_000_000, 1_000_000, 1_000_000),
    };
    machine
}

#[test]
fn messages_in_place_are_the_same_run() {
    let (mut outcomes, mut messages, mut calls) = ([0; 4], 0, 0);
    for seed in 0..300 {
        println!("seed {seed}");
        let machine = machine(seed);
        let (long, lean) = (machine.run(), machine.run_lean());
        assert_eq!(long.summary, lean.summary, "seed {seed}");
        assert_eq!(long.numbers(0), lean.numbers(0), "seed {seed}");
        outcomes[lean.outcome as usize] += 1;
        messages += lean.session(0).messages;
        calls += lean.session(0).host_calls;
    }
    println!("{outcomes:?}, {messages} messages in {calls} calls");
    assert!(outcomes[RunOutcome::Finished as usize] > 10 && outcomes[RunOutcome::Deadlock as usize] > 20, "{outcomes:?}");
    assert!(outcomes[RunOutcome::Faulted as usize] > 5 && messages > 5_000, "{outcomes:?}, {messages} messages");
}
