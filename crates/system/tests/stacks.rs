//! The stacks of a session have one limit together: met by a spawn it is the error of a limit, met
//! by a call a fault, at the same step however the machine is driven, from wherever it is restored,
//! on one lane or split over several.

mod kit;

use kit::{Collected, Machine};
use wavelock_abi::FaultCode;
use wavelock_system::{MachineSpec, RunOutcome, RunSummary, World};

/// What a session may have in the tests.
const LIMIT: u64 = 4_000_000;

/// Coroutines of 31,000 locals each, until one is refused; and again when all have ended. Then a
/// call that is too deep for what is left, in a coroutine of its own; and the same call when there
/// is room.
fn guest(spawn: &str) -> String {
    format!(
        r#"(func $wide (param i64) (local {}) (call $sleep (i64.const 20)))
        (func $deep (param i64) (result i64)
          (if (result i64) (i64.eqz (local.get 0)) (then (i64.const 0))
            (else (i64.add (i64.const 1) (call $deep (i64.sub (local.get 0) (i64.const 1)))))))
        (elem (i32.const 0) $wide $deep)
        (func $fill (result i64) (local $n i64) (local $code i64)
          (loop $l
            (local.set $code {spawn})
            (if (i64.ge_s (local.get $code) (i64.const 0))
              (then (drop (call $detach (local.get $code))) (local.set $n (i64.add (local.get $n) (i64.const 1))) (br $l))))
          (call $out (local.get $code))
          (local.get $n))
        (func $dive (call $out32 (call $join (call $spawn (i32.const 1) (i64.const 20000)) (i32.const -1))))
        (func (export "_start")
          (call $out (call $fill))
          (call $dive)
          (call $sleep (i64.const 60))
          (call $dive)
          (call $out (call $fill)))"#,
        "i64 ".repeat(31_000)
    )
}

fn machine(spawn: &str, lanes: u16) -> Machine {
    let mut machine = Machine::lanes(lanes);
    let session = machine.session("main", &guest(spawn));
    if lanes > 1 {
        machine.split(session, &(0..lanes).collect::<Vec<_>>());
    }
    machine.times(50_000, 50_000, 25_000).spec.limits.session_stack_bytes = LIMIT;
    machine
}

/// Runs it in every way there is; all must agree.
fn run(machine: &Machine) -> (Vec<i64>, RunSummary) {
    let run = machine.run();
    assert_eq!(machine.run_lean().summary.digest, run.summary.digest);
    let (mut world, mut out) = (machine.world(false), Collected::default());
    while world.step(&mut out).expect("the host can go on") {}
    assert_eq!(world.summary().digest, run.summary.digest, "one step at a time");
    let (saver, summary) = machine.run_saving();
    assert_eq!(summary.digest, run.summary.digest, "with states saved");
    assert!(saver.saved.len() > 5, "{} states", saver.saved.len());
    for (at, (bytes, ..)) in saver.saved.iter().enumerate() {
        let mut world = World::restore(machine.spec.clone(), Vec::new(), false, bytes)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        world.run(&mut ()).expect("the host can go on");
        assert_eq!(world.summary().digest, run.summary.digest, "restored at boundary {at}");
    }
    (run.numbers(0), run.summary)
}

#[test]
fn a_spawn_beyond_the_limit_is_refused_and_a_call_faults() {
    for (lanes, spawn) in [
        (1, "(call $spawn (i32.const 0) (i64.const 0))"),
        (
            3,
            "(call $spawn_on (i32.const 0) (i64.const 0) (i32.rem_u (i32.wrap_i64 (local.get $n)) (i32.const 3)))",
        ),
    ] {
        let (numbers, summary) = run(&machine(spawn, lanes));
        // 16 windows of 248 kB are within 4,000,000 bytes, with less than 160,000 left for `deep`,
        // which needs 480,000.
        assert_eq!(numbers, [-6, 16, -8, 0, -6, 16], "{lanes} lanes");
        assert_eq!(summary.outcome, Some(RunOutcome::Finished), "a fault that was joined");
        let faults = &summary.sessions[0].faults;
        assert_eq!(
            faults.iter().map(|fault| fault.code).collect::<Vec<_>>(),
            [FaultCode::StackExhausted]
        );
    }
}

/// A stack is held until its coroutine ends, and no longer.
#[test]
fn stacks_are_given_back() {
    let body = format!(
        r#"(func $wide (param i64) (local {}) (call $yield))
        (elem (i32.const 0) $wide)
        (func (export "_start") (local $n i32)
          (loop $l
            (if (i32.ne (call $join (call $spawn (i32.const 0) (i64.const 0)) (i32.const -1)) (i32.const 0)) (then unreachable))
            (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 500)))))"#,
        "i64 ".repeat(31_000)
    );
    let mut machine = Machine::one(&body);
    machine.spec.limits.session_stack_bytes = 300_000;
    let run = machine.run_lean();
    assert_eq!((run.outcome, run.session(0).spawned), (RunOutcome::Finished, 501));
}

/// A machine with the default limit is described as it always was; another limit is part of what
/// the machine is.
#[test]
fn another_limit_is_another_machine() {
    let plain = machine("(i64.const -1)", 1);
    let mut usual = plain.clone();
    usual.spec.limits.session_stack_bytes = MachineSpec::new().limits.session_stack_bytes;
    let (plain, usual) = (plain.spec, usual.spec);
    assert_eq!(plain.identity().len(), usual.identity().len() + 16);
    assert_eq!(plain.identity()[..usual.identity().len()], usual.identity());
    for spec in [&plain, &usual] {
        let modules =
            spec.modules.iter().cloned().zip(spec.module_hashes.iter().copied()).collect();
        let again = MachineSpec::from_identity(&spec.identity(), modules).expect("own bytes");
        assert_eq!(again.limits, spec.limits);
    }
}
