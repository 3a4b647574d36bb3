//! Operations that are handled in a batch give the same run as the slow path.
//!
//! Profiling disables batches, so each machine runs once with and once without: digest, cycles,
//! counts and outcome must be equal.

mod kit;

use kit::{Choices, Machine, policies};
use std::fmt::Write;
use wavelock_abi::Cycles;
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{RunOutcome, World};

/// What a child is given: it returns it, every third after a yield.
const CHILD: &str = "(local.get $n)";

/// What becomes of a call's answer: it is put out, or asked about first, as guests do that look for
/// errors.
fn asked(choices: &mut Choices, call: &str) -> String {
    const QUESTIONS: [&str; 12] =
        ["eq", "ne", "lt_s", "lt_u", "gt_s", "gt_u", "le_s", "le_u", "ge_s", "ge_u", "or", "and"];
    if choices.one_in(2) {
        return format!("(call $out32 {call})");
    }
    let (question, constant) = (choices.pick(&QUESTIONS), choices.below(4) as i64 - 2);
    format!(
        "(if (i32.{question} {call} (i32.const {constant})) (then (call $out (i64.const 1))) (else (call $out (i64.const 2))))"
    )
}

/// A session of a few coroutines that send and receive over the session's own channels, with wrong
/// handles, byte messages, selects, closes and now and then a pointer outside the memory; that
/// sleep, and spawn others that end at once or soon, joined or not, with short stacks and long
/// ones; that now and then ask for what is no function to begin with, for more coroutines than
/// there may be, for random numbers, or that another be canceled; that count in a global of their
/// own, if there is one.
// Long: the guest's text.
fn guest(choices: &mut Choices) -> (String, u64) {
    let (channels, workers) = (1 + choices.below(3), 2 + choices.below(3));
    let mut body = String::new();
    let mut start = String::new();
    let has_global = choices.one_in(4);
    if has_global {
        body.push_str("(global $__stack_pointer (mut i32) (i32.const 0))");
    }
    for channel in 0..channels {
        let capacity = [1, 2, 8, 64][choices.below(4) as usize];
        let _ = writeln!(
            start,
            "(i32.store (i32.const {}) (call $channel (i32.const {capacity})))",
            channel * 4
        );
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
            let _ = match choices.below(26) {
                0..=4 => writeln!(script, "{}", asked(choices, &format!("(call $send {handle} (local.get $n))"))),
                5 => writeln!(script, "(call $out32 (call $try_send {handle} (local.get $n)))"),
                6..=9 => writeln!(script, "{}", asked(choices, &format!("(call $recv {handle} (i32.const {pointer}))"))),
                10..=11 => writeln!(script, "(call $out32 (call $try_recv {handle} (i32.const {pointer})))"),
                12 => writeln!(script, "(call $out32 (call $send_bytes {handle} (i32.const {place}) (i32.const 5)))"),
                13 => writeln!(script, "(call $out32 (call $recv_bytes {handle} (i32.const {place}) (i32.const 16)))"),
                14 if choices.one_in(4) => writeln!(script, "(call $out32 (call $select (i32.const 0) (i32.const {channels})))"),
                15 if choices.one_in(20) => writeln!(script, "(call $out32 (call $close {handle}))"),
                16 => writeln!(script, "(call $sleep (i64.const {}))", choices.below(3)),
                17 => writeln!(script, "(call $out32 (call $join (call $spawn (i32.const {workers}) {CHILD}) (i32.const {place})))"),
                18 => writeln!(script, "(drop (call $detach (call $spawn (i32.const {workers}) {CHILD})))"),
                19 => {
                    // A wide one, the host's function, one of another type, an empty element, or
                    // none.
                    let entry = workers + 1 + choices.below(5);
                    writeln!(script, "(call $out32 (call $join (call $spawn (i32.const {entry}) {CHILD}) (i32.const {place})))")
                }
                20 if choices.one_in(4) => {
                    let other = 256 + 8 * choices.below(workers);
                    writeln!(script, "(call $out32 (call $cancel (i64.load (i32.const {other}))))")
                }
                21 if choices.one_in(4) => {
                    let other = 256 + 8 * choices.below(workers);
                    writeln!(script, "(call $out32 (call $join (i64.load (i32.const {other})) (i32.const {place})))")
                }
                22 => writeln!(script, "(call $out (call $random))"),
                23 => {
                    let lane = choices.below(3);
                    writeln!(script, "(call $out (call $spawn_on (i32.const {workers}) {CHILD} (i32.const {lane})))")
                }
                24 if has_global => writeln!(
                    script,
                    "(global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const 1)))
                     (call $out32 (global.get $__stack_pointer))"
                ),
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
        let _ = writeln!(
            start,
            "(i64.store (i32.const {}) (call $spawn (i32.const {worker}) (i64.const 0)))",
            256 + 8 * worker
        );
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
    (format!("{body} (func (export \"_start\") {start})"), workers)
}

/// One or two sessions of [`guest`]s, on a lane or on two.
fn machine(seed: u64) -> Machine {
    let mut choices = Choices(seed);
    let mut machine = Machine::lanes(1 + choices.below(2) as u16);
    let mut workers = 0;
    for number in 0..1 + choices.below(2) {
        let (body, count) = guest(&mut choices);
        let session = machine.session(&format!("session.{number}"), &body);
        workers = workers.max(count);
        match choices.below(3) {
            0 if machine.spec.lanes > 1 => machine.split(session, &[0, 1]),
            _ => machine.on(session, 0),
        };
    }
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
    if choices.one_in(3) {
        machine.spec.policy = *choices.pick(&policies(Cycles(9_000)));
    }
    if choices.one_in(3) {
        for session in &mut machine.spec.sessions {
            session.cap = Some(CapSettings {
                budget: Cycles(4_000 + choices.below(12_000)),
                period_frames: 1 + choices.below(2),
                overrun: CapOverrun::ALL[choices.below(3) as usize],
            });
        }
    }
    machine
}

/// The rest of a run from a state of its middle.
fn rest(machine: &Machine, choices: &mut Choices) -> Option<wavelock_system::RunSummary> {
    let (saver, _) = machine.run_saving();
    let (bytes, ..) = saver.saved.get(choices.below(saver.saved.len().max(1) as u64) as usize)?;
    let mut world = World::restore(machine.spec.clone(), machine.inputs.clone(), false, bytes)
        .expect("its own state");
    world.run(&mut ()).expect("the host can go on");
    Some(world.summary())
}

#[test]
fn messages_in_place_are_the_same_run() {
    let (mut messages, mut calls, mut restored) = (0, 0, 0);
    let mut outcomes = [0; RunOutcome::ALL.len()];
    let (mut throttled, mut demoted) = (0, 0);
    for seed in 0..400 {
        println!("seed {seed}");
        let machine = machine(seed);
        let (long, lean) = (machine.run(), machine.run_lean());
        assert_eq!(long.summary, lean.summary, "seed {seed}");
        for session in 0..machine.spec.sessions.len() as u32 {
            assert_eq!(long.numbers(session), lean.numbers(session), "seed {seed}");
            messages += lean.session(session).messages;
            calls += lean.session(session).host_calls;
        }
        let throttles =
            |lane| long.events(lane).iter().filter(|e| e.contains("CapThrottle")).count();
        let demotes = |lane| long.events(lane).iter().filter(|e| e.contains("CapDemote")).count();
        demoted += (0..usize::from(machine.spec.lanes)).map(demotes).sum::<usize>();
        throttled += (0..usize::from(machine.spec.lanes)).map(throttles).sum::<usize>();
        outcomes[lean.outcome as usize] += 1;
        if let Some(rest) = rest(&machine, &mut Choices(seed)) {
            assert_eq!(rest, lean.summary, "seed {seed}: from a state of its middle");
            restored += 1;
        }
    }
    println!(
        "{outcomes:?}, {messages} messages in {calls} calls, {restored} restored, {throttled} throttled, {demoted} demoted"
    );
    assert!(
        outcomes[RunOutcome::Finished as usize] > 10
            && outcomes[RunOutcome::Deadlock as usize] > 20,
        "{outcomes:?}"
    );
    assert!(
        outcomes[RunOutcome::Faulted as usize] > 5
            && messages > 5_000
            && restored > 100
            && throttled > 40
            && demoted > 15
            && outcomes[RunOutcome::Killed as usize] > 10,
        "{outcomes:?}, {messages}, {restored}, {throttled}, {demoted}"
    );
}
