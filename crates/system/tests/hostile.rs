//! Hostile guests, each with its bound, and what their neighbours see of them: nothing (semantics
//! 36).
//!
//! Every attack runs beside a victim, on the victim's lane and on another. The victim's observables
//! must be those of a run without the attacker: its input depends on nobody's arrival order, and it
//! is given frames enough to finish.

mod kit;

use kit::{Machine, Run};
use wavelock_abi::{Cycles, FaultCode, SessionId};
use wavelock_system::{RunOutcome, SessionOutcome};

/// Works, talks to itself, sleeps, draws random numbers, is given input and outputs what came of
/// it.
const VICTIM: &str = r#"
(func $pong (param i64) (result i64) (local $sum i64)
  (loop $l (if (i32.eqz (call $recv (i32.const 0) (i32.const 8))) (then
    (local.set $sum (i64.add (local.get $sum) (i64.load (i32.const 8)))) (drop (call $send (i32.const 1) (local.get $sum))) (br $l))))
  (local.get $sum))
(elem (i32.const 0) $pong)
(func (export "_start") (local $i i64) (local $child i64) (local $k i32)
  (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1)))
  (local.set $child (call $spawn (i32.const 0) (i64.const 0)))
  (loop $l
    (drop (call $send (i32.const 0) (i64.xor (local.get $i) (call $random)))) (drop (call $recv (i32.const 1) (i32.const 16)))
    (local.set $k (i32.const 200)) (loop $spin (br_if $spin (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
    (if (i64.eqz (i64.rem_s (local.get $i) (i64.const 3))) (then (call $out (i64.load (i32.const 16))) (call $sleep (i64.const 1))))
    (br_if $l (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 15))))
  (drop (call $close (i32.const 0)))
  (call $out32 (call $join (local.get $child) (i32.const 24))) (call $out (i64.load (i32.const 24)))
  (call $out32 (call $memory_size)) (call $out (i64.extend_i32_s (memory.grow (i32.const 1)))))
(func $memory_size (result i32) (memory.size))"#;

fn machine(attacker: Option<&str>, lanes: u16, tweak: impl Fn(&mut Machine)) -> Machine {
    let mut machine = Machine::lanes(lanes);
    machine.session("victim", VICTIM);
    if let Some(attacker) = attacker {
        machine.session("attacker", attacker);
    }
    machine.times(60_000, 15_000, 4_000);
    machine.spec.max_frames = Some(70);
    machine.spec.limits.coroutines = 2_000;
    machine.spec.limits.channel_capacity = 1_000;
    machine.spec.limits.channels = 100;
    machine.spec.limits.output_bytes = 10_000;
    machine.spec.limits.log_bytes = 5_000;
    machine.spec.limits.memory_pages = 8;
    machine.spec.limits.stack_bytes = 65_536;
    tweak(&mut machine);
    machine
}

/// Runs the attack on the victim's lane and on another, checks that the victim saw nothing, and
/// gives both runs.
fn attack(attacker: &str) -> [Run; 2] {
    attack_with(attacker, |_| ())
}

fn attack_with(attacker: &str, tweak: impl Fn(&mut Machine)) -> [Run; 2] {
    let alone = machine(None, 1, &tweak).run_lean();
    assert_eq!(alone.outcome, RunOutcome::Finished);
    [1, 2].map(|lanes| {
        let run = machine(Some(attacker), lanes, &tweak).run();
        let victim = run.session(0);
        assert_eq!(
            (victim.outcome, victim.digest),
            (SessionOutcome::Finished, alone.session(0).digest),
            "{lanes} lanes"
        );
        assert_eq!(
            (victim.cycles, victim.spawned, victim.host_calls),
            (alone.session(0).cycles, 2, alone.session(0).host_calls)
        );
        run
    })
}

fn repeat(body: &str) -> String {
    format!(r#"(func (export "_start") (local $i i32) (loop $forever {body} (br $forever)))"#)
}

#[test]
fn the_comparison_can_fail() {
    let alone = machine(None, 1, |_| ()).run_lean();
    let other = machine(None, 1, |machine| machine.spec.seed = 9).run_lean();
    assert_ne!(alone.session(0).digest, other.session(0).digest);
}

#[test]
fn an_endless_loop_is_cut_at_its_quantum() {
    for run in attack(&repeat("")) {
        assert_eq!(
            (run.outcome, run.session(1).outcome),
            (RunOutcome::Frames, SessionOutcome::Running)
        );
        // A ready victim waits for one quantum of the only other coroutine and the overhead of a
        // switch: so it finishes early.
        let gap = machine(Some(&repeat("")), 1, |_| ()).spec.modules[1].code().gap();
        for frame in &run.sink.frames {
            for event in
                frame.lanes.iter().flat_map(|bytes| wavelock_trace::EventReader::new(bytes))
            {
                if let wavelock_trace::Event::Step { used, .. } = event.expect("own encoding") {
                    assert!(
                        Cycles(used) < Cycles(4_000) + gap,
                        "no slice is longer than a quantum and a gap"
                    );
                }
            }
        }
    }
}

#[test]
fn a_spawn_bomb_meets_the_limit_of_its_own_session() {
    let body = r#"(func $sleeps (param i64) (call $sleep (i64.const 1000000)))
    (elem (i32.const 0) $sleeps)
    (func (export "_start") (loop $l (br_if $l (i64.ge_s (call $spawn (i32.const 0) (i64.const 0)) (i64.const 0))))
      (call $out (call $spawn (i32.const 0) (i64.const 0))) (call $proc_exit (i32.const 0)))"#;
    for run in attack(body) {
        assert_eq!((run.numbers(1), run.session(1).peak), (vec![-6], 2_000));
        assert_eq!(run.outcome, RunOutcome::Finished);
    }
}

#[test]
fn spawning_that_never_stops_stays_within_the_limit() {
    let body = r#"(func $again (param i64) (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $spawn (i32.const 0) (i64.const 0))))
    (elem (i32.const 0) $again)
    (func (export "_start") (call $again (i64.const 0)))"#;
    for run in attack(body) {
        assert!(run.session(1).peak <= 2_000 && run.session(1).spawned >= 2_000);
    }
}

#[test]
fn deep_recursion_faults_its_coroutine() {
    let body = r#"(func $deep (param i64) (result i64) (i64.add (call $deep (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
    (elem (i32.const 0) $deep)
    (func (export "_start") (call $out32 (call $join (call $spawn (i32.const 0) (i64.const 0)) (i32.const -1))) (drop (call $deep (i64.const 0))))"#;
    for run in attack(body) {
        assert_eq!(run.numbers(1), [-8]);
        assert!(run.session(1).faults.iter().all(|fault| fault.code == FaultCode::StackExhausted));
        assert_eq!((run.session(1).faulted, run.outcome), (2, RunOutcome::Faulted));
    }
}

#[test]
fn a_memory_bomb_gets_minus_one() {
    let text = kit::guest(
        r#"(func (export "_start") (loop $l (br_if $l (i32.ge_s (memory.grow (i32.const 1)) (i32.const 0))))
        (call $out32 (memory.size)) (call $out32 (memory.grow (i32.const 65535))) (call $out32 (table.grow 0 (ref.null func) (i32.const 2000000000))))"#,
    )
    .replace("(memory (export \"memory\") 1 4)", "(memory (export \"memory\") 1)");
    let alone = machine(None, 1, |_| ()).run_lean();
    for lanes in [1, 2] {
        let mut machine = machine(None, lanes, |_| ());
        machine.session_of("attacker", &text);
        let run = machine.run();
        assert_eq!(run.numbers(1), [8, -1, -1], "limits.memory_pages, and no more");
        assert_eq!(run.session(0).digest, alone.session(0).digest);
    }
}

#[test]
fn machine_memory_is_refused_at_load() {
    let refused =
        machine(Some(VICTIM), 1, |machine| machine.spec.limits.machine_memory = 131_071).refusal();
    assert!(
        refused.to_string().contains("131072") && refused.to_string().contains("131071"),
        "{refused}"
    );
    assert_eq!(
        machine(None, 1, |machine| machine.spec.limits.machine_memory = 65_536).run_lean().outcome,
        RunOutcome::Finished
    );
}

/// What sessions need is summed before any is made: a module of few bytes, many times.
#[test]
fn many_sessions_of_a_large_module_are_refused_before_they_are_made() {
    let machine = |text: &str, sessions: u32| {
        let mut machine = Machine::new();
        let first = machine.session_of("a", text);
        let module = machine.spec.sessions[first.0 as usize].module;
        (1..sessions).for_each(|at| _ = machine.spec.add_session(&format!("a{at}"), module));
        machine.refusal().to_string()
    };
    let pages = machine(r#"(module (memory 1000) (func (export "_start")))"#, 60_000);
    assert!(
        pages.contains("3932160000000 bytes") && pages.contains("allows 8589934592"),
        "{pages}"
    );
    let tables = machine(r#"(module (table 1000000 funcref) (func (export "_start")))"#, 60_000);
    assert!(tables.contains("tables, globals and functions take 480004320000 bytes"), "{tables}");
}

#[test]
fn a_message_flood_fills_its_own_channel_only() {
    let body = r#"(func (export "_start") (local $n i64)
      (drop (call $channel (i32.const 1000)))
      (loop $l (if (i32.eqz (call $try_send (i32.const 0) (i64.const 1))) (then (local.set $n (i64.add (local.get $n) (i64.const 1))) (br $l))))
      (call $out (local.get $n)) (call $out32 (call $channel (i32.const 1001)))
      (loop $c (br_if $c (i32.ge_s (call $channel (i32.const 1)) (i32.const 0))))
      (loop $f (drop (call $try_send (i32.const 0) (i64.const 1))) (br $f)))"#;
    for run in attack(body) {
        assert_eq!(run.numbers(1), [1000, -6]);
    }
}

#[test]
fn a_flood_into_a_wired_channel_waits_or_is_refused() {
    // The collector takes one message a frame; the attacker sends as fast as it can from its own
    // lane or from the collector's.
    let flood = r#"(data (i32.const 0) "in") (func (export "_start") (local $n i64) (loop $l
      (if (i32.eqz (call $try_send (call $port (i32.const 0) (i32.const 2)) (i64.const 1))) (then (local.set $n (i64.add (local.get $n) (i64.const 1)))))
      (if (i64.ge_s (call $frame) (i64.const 40)) (then (call $out (local.get $n)) (return))) (br $l)))"#;
    let collector = r#"(func (export "_start") (local $n i64) (loop $l
      (drop (call $try_recv (i32.const 0) (i32.const 8))) (call $sleep (i64.const 1))
      (br_if $l (i64.lt_s (local.tee $n (i64.add (local.get $n) (i64.const 1))) (i64.const 45)))))"#;
    for lane in [0, 1] {
        let mut machine = machine(Some(flood), 2, |_| ());
        let collector = machine.session("collector", collector);
        machine.wire("in", collector, 16, &[SessionId(1)]);
        machine.on(SessionId(1), lane).on(collector, 0);
        let run = machine.run();
        let sent = run.numbers(1)[0];
        assert!(
            (40..=16 + 45).contains(&sent),
            "as much as was taken, and what the channel holds: {sent}"
        );
        assert_eq!(run.session(0).outcome, SessionOutcome::Finished);
    }
}

#[test]
fn a_huge_select_is_limited_and_pays_for_its_length() {
    // Coroutines select on one channel a thousand times each, are canceled, and do it again.
    let body = r#"(func $selects (param i64) (drop (call $select (i32.const 0) (i32.const 1024))))
    (elem (i32.const 0) $selects)
    (func (export "_start") (local $i i32) (local $r i64)
      (drop (call $channel (i32.const 1)))
      (call $out32 (call $select (i32.const 0) (i32.const 1025))) (call $out32 (call $select (i32.const 0) (i32.const 0x7fffffff)))
      (loop $l
        (local.set $r (call $spawn (i32.const 0) (i64.const 0))) (call $yield)
        (drop (call $cancel (local.get $r))) (drop (call $join (local.get $r) (i32.const -1)))
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 50))))
      (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $spawn (i32.const 0) (i64.const 0))) (call $yield)
      (call $out32 (call $try_send (i32.const 0) (i64.const 1))) (call $out32 (call $close (i32.const 0))))"#;
    for run in attack(body) {
        assert_eq!(
            (run.numbers(1), run.session(1).outcome),
            (vec![-6, -6, 0, 0], SessionOutcome::Finished)
        );
    }
}

#[test]
fn an_output_flood_is_limited_per_frame() {
    for run in attack(&repeat("(drop (call $output (i32.const 0) (i32.const 3000)))")) {
        let longest = run
            .sink
            .output
            .iter()
            .filter(|(session, _)| session.0 == 1)
            .map(|(_, bytes)| bytes.len())
            .max();
        assert_eq!(longest, Some(9_000), "three of 3,000 fit in 10,000");
        assert_eq!(
            run.sink.output.iter().filter(|(session, _)| session.0 == 1).count(),
            70,
            "in every frame anew"
        );
    }
}

#[test]
fn a_log_flood_is_limited_per_frame_and_counted() {
    for run in attack(&repeat("(call $log (i32.const 0) (i32.const 3000))")) {
        assert!(run.sink.log.iter().all(|(session, bytes)| session.0 == 1 && bytes.len() == 5_000));
        assert!(run.session(1).log_dropped > 100_000);
    }
}

#[test]
fn empty_outputs_and_logs_leave_nothing_behind() {
    for run in attack(&repeat(
        "(drop (call $output (i32.const 0) (i32.const 0))) (call $log (i32.const 0) (i32.const 0))",
    )) {
        assert!(run.sink.log.is_empty() && run.bytes(1).is_empty());
    }
}

#[test]
fn a_cancel_storm_costs_its_session_alone() {
    let body = r#"(func $sleeps (param i64) (call $sleep (i64.const 1000000)))
    (func $waits (param i64) (drop (call $recv (i32.const 0) (i32.const 64))))
    (func $reads (param i64) (i32.store (i32.const 4) (i32.const 8)) (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16))))
    (elem (i32.const 0) $sleeps $waits $reads)
    (func (export "_start") (local $i i64)
      (drop (call $channel (i32.const 1)))
      (loop $storm
        (local.set $i (i64.const 0))
        (loop $l (drop (call $spawn (i32.wrap_i64 (i64.rem_u (local.get $i) (i64.const 3))) (i64.const 0)))
          (br_if $l (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 300))))
        (call $yield)
        (local.set $i (i64.const 0))
        ;; Whatever generation they have: every reference that could be meant.
        (loop $c (drop (call $cancel (i64.add (i64.shl (call $frame) (i64.const 32)) (local.get $i)))) (drop (call $cancel (local.get $i)))
          (drop (call $detach (local.get $i)))
          (br_if $c (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 301))))
        (br $storm)))"#;
    let input = |machine: &mut Machine| {
        if machine.spec.sessions.len() > 1 {
            machine.input(69, SessionId(1), b"never read");
        }
    };
    for run in attack_with(body, input) {
        assert!(run.session(1).spawned > 1_000 && run.session(1).peak <= 2_000);
    }
}

#[test]
fn an_exit_storm_reuses_its_slots() {
    let body = r#"(func $exits (param i64) (call $exit (local.get 0)))
    (elem (i32.const 0) $exits)
    (func (export "_start") (loop $l (drop (call $detach (call $spawn (i32.const 0) (i64.const 0)))) (call $yield) (br $l)))"#;
    for run in attack(body) {
        assert!(run.session(1).spawned > 3_000, "{}", run.session(1).spawned);
        assert!(run.session(1).peak <= 3);
    }
}

/// 1,500 coroutines wait in the same way; then one call lets them all go.
fn crowd(waits: &str, ends: &str) -> String {
    format!(
        r#"(func $waits (param i64) {waits} (i64.store (i32.const 400) (i64.add (i64.load (i32.const 400)) (i64.const 1))))
        (func $target (param i64) (call $sleep (i64.const 20)))
        (elem (i32.const 0) $waits $target)
        (func (export "_start") (local $i i32)
          (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1))) (drop (call $send (i32.const 1) (i64.const 0)))
          (drop (call $spawn (i32.const 1) (i64.const 0)))
          (loop $l (drop (call $spawn (i32.const 0) (i64.const 0)))
            (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1500))))
          (call $sleep (i64.const 15))
          {ends}
          (call $sleep (i64.const 20)) (call $out (i64.load (i32.const 400))))"#
    )
}

#[test]
fn closing_with_many_waiters_wakes_them_all_once() {
    for waits in [
        "(drop (call $recv (i32.const 0) (i32.const 64)))",
        "(drop (call $select (i32.const 0) (i32.const 1)))",
    ] {
        for run in attack(&crowd(waits, "(drop (call $close (i32.const 0)))")) {
            assert_eq!(
                (run.numbers(1), run.outcome),
                (vec![1500], RunOutcome::Finished),
                "{waits}"
            );
        }
    }
    for run in attack(&crowd(
        "(drop (call $send (i32.const 1) (i64.const 1)))",
        "(drop (call $close (i32.const 1)))",
    )) {
        assert_eq!(run.numbers(1), [1500]);
    }
}

#[test]
fn a_crowd_of_joiners_is_woken_by_one_end() {
    for end in ["(drop (call $cancel (i64.const 1)))", ""] {
        for run in attack(&crowd("(drop (call $join (i64.const 1) (i32.const -1)))", end)) {
            assert_eq!((run.numbers(1), run.outcome), (vec![1500], RunOutcome::Finished));
        }
    }
}

#[test]
fn proc_exit_with_a_crowd_ends_at_once() {
    for run in attack(&crowd(
        "(drop (call $recv (i32.const 0) (i32.const 64)))",
        "(call $proc_exit (i32.const 1))",
    )) {
        assert_eq!(
            (run.session(1).exit, run.outcome, run.numbers(1)),
            (1, RunOutcome::Finished, vec![])
        );
    }
}

#[test]
fn sleeping_for_ever_ends_with_the_frames() {
    let body = r#"(func (export "_start") (call $sleep (i64.const 0x7fffffffffffffff)) (call $out (i64.const 1)))"#;
    for run in attack(body) {
        assert_eq!((run.outcome, run.summary.frames), (RunOutcome::Frames, 70));
    }
    for (lanes, frames) in [(1, None), (2, None), (7, None), (2, Some(u64::MAX)), (1000, None)] {
        let mut machine = machine(Some(body), lanes, |_| ());
        machine.spec.max_frames = frames;
        let run = machine.run_lean();
        assert_eq!(
            (run.outcome, run.session(0).outcome),
            (RunOutcome::Frames, SessionOutcome::Finished),
            "{lanes} lanes"
        );
        let cycles = run.summary.cycles.total();
        assert_eq!(
            cycles,
            run.summary.frames * 60_000 * u64::from(lanes),
            "the clocks of all lanes can still be added up"
        );
    }
}

#[test]
fn bulk_calls_are_prepaid_and_do_not_hold_the_lane() {
    // Each call is worth several quanta: a victim on the same lane is served between the slices of
    // one call.
    let text = r#"(drop (call $random_get (i32.const 0) (i32.const 60000)))"#;
    for run in attack(&repeat(text)) {
        let calls = run.session(1).host_calls;
        let steps = run
            .events(run.sink.frames[0].lanes.len() - 1)
            .iter()
            .filter(|event| event.starts_with("Step { session: 1"))
            .count() as u64;
        assert!(steps > 3 * calls, "{steps} steps for {calls} calls");
    }
}

#[test]
fn reading_into_huge_buffers_costs_what_is_read() {
    // 1,024 buffers of the whole memory, and three bytes to read.
    let body = r#"(func (export "_start") (local $i i32)
      (loop $l (i32.store (i32.mul (local.get $i) (i32.const 8)) (i32.const 0)) (i32.store offset=4 (i32.mul (local.get $i) (i32.const 8)) (i32.const 65536))
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1024))))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1024) (i32.const 60000))) (call $out32 (i32.load (i32.const 60000)))
      (call $out32 (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1024) (i32.const 60000))) (call $out32 (i32.load (i32.const 60000))))"#;
    let input = |machine: &mut Machine| {
        if machine.spec.sessions.len() > 1 {
            machine.input(0, SessionId(1), b"abc");
        }
    };
    for run in attack_with(body, input) {
        assert_eq!(run.numbers(1)[0], 3);
        assert!(run.session(1).cycles < Cycles(100_000));
    }
}

#[test]
fn every_policy_keeps_another_lane_unaffected() {
    let alone = machine(None, 1, |_| ()).run_lean();
    for policy in kit::policies(Cycles(4_000)) {
        let mut machine = machine(Some(&repeat("")), 2, |_| ());
        machine.spec.policy = policy;
        machine.spec.sessions[1].priority = wavelock_abi::Priority(255);
        let run = machine.run_lean();
        assert_eq!(run.session(0).digest, alone.session(0).digest, "{policy:?}");
        assert_eq!(run.session(0).outcome, SessionOutcome::Finished, "{policy:?}");
    }
}
