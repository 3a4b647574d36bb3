//! Exploration: a program that only communicates is independent of the schedule, a race is found,
//! and its witness is a machine that reproduces it.

use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_kernel::{Policy, PriorityRule};
use wavelock_lab::{Exploration, Limits, Observed, Proof, Setting, Stage, Verdict, explore};
use wavelock_module::Module;
use wavelock_replay::{Level, RecordedMachine, Recorder, Trace, verify};
use wavelock_system::{MachineSpec, World};

const IMPORTS: &str = r#"
  (import "wavelock" "yield" (func $yield))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "in")"#;

/// Sends three numbers, with a yield after each.
const SENDER: &str = r#"(func (export "_start") (local $i i32)
  (loop $l
    (drop (call $send (call $port (i32.const 0) (i32.const 2)) (i64.const 7)))
    (call $yield)
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3)))))"#;

/// Receives three numbers and outputs each.
const RECEIVER: &str = r#"(func (export "_start") (local $i i32)
  (loop $l
    (drop (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
    (drop (call $output (i32.const 8) (i32.const 8)))
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3)))))"#;

/// Polls a channel once after some turns and outputs the result: a race.
fn peeker(turns: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32)
  (loop $l (call $yield) (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {turns}))))
  (i32.store (i32.const 16) (call $try_recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
  (drop (call $output (i32.const 16) (i32.const 4))))"#
    )
}

/// Yields `turns` times and then sends.
fn late_sender(turns: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32)
  (loop $l (call $yield) (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {turns}))))
  (drop (call $send (call $port (i32.const 0) (i32.const 2)) (i64.const 7))))"#
    )
}

fn machine(owner: &str, sender: &str) -> RecordedMachine {
    let mut spec = MachineSpec::new();
    let mut modules = Vec::new();
    let mut add = |spec: &mut MachineSpec, name: &str, body: &str| {
        let text = format!("(module {IMPORTS}\n{body})");
        let module = Arc::new(
            Module::from_text(text.as_bytes(), &wavelock_module::Limits::default()).expect("valid"),
        );
        let index = spec.add_module(module, text.as_bytes());
        modules.push(text.into_bytes());
        spec.add_session(name, index)
    };
    let owner = add(&mut spec, "owner", owner);
    let sender = add(&mut spec, "sender", sender);
    let channel = spec.add_channel("in", owner, 4);
    spec.sessions[sender.0 as usize].ports.push(("in".into(), channel));
    RecordedMachine { spec, modules, inputs: Vec::new() }
}

fn policies(quantum: Cycles) -> Vec<(String, Policy)> {
    vec![
        ("cooperative".into(), Policy::Cooperative),
        ("round-robin".into(), Policy::RoundRobin { quantum }),
        ("priority-aging".into(), Policy::Priority { rule: PriorityRule::Aging, quantum }),
    ]
}

fn run(machine: &RecordedMachine, with_settings: bool, runs: u64, depth: u32) -> Exploration {
    let settings =
        if with_settings { Setting::around(&machine.spec, &policies) } else { Vec::new() };
    let limits = Limits { runs, steps: 10_000, depth, seed: 1 };
    explore(&machine.spec, &[], &settings, Policy::Cooperative, limits, &mut |_| {})
        .expect("it can be explored")
}

fn observe(spec: MachineSpec) -> Observed {
    let mut world = World::load(spec, Vec::new(), false).expect("it loads").world;
    world.run(&mut ()).expect("the host can");
    Observed::of(&mut world).expect("it ends")
}

#[test]
fn a_program_that_only_communicates_is_found_independent() {
    let found = run(&machine(RECEIVER, SENDER), true, 20_000, 64);
    assert!(matches!(found.verdict, Verdict::Independent), "{:?}", found.verdict);
    assert!(found.choices > 0, "there was something to choose");
    assert!(
        found
            .stages
            .iter()
            .any(|row| row.stage == Stage::Exhaustive && row.runs > 10 && row.different == 0)
    );
    assert!(found.stages.iter().any(|row| row.stage == Stage::Settings && row.runs > 4));
}

#[test]
fn a_planted_race_is_found_and_its_shortest_schedule_reproduces_it() {
    // With equal turns the owner runs first: one deviation is enough, and the exhaustive search
    // finds it.
    let machine = machine(&peeker(2), &late_sender(2));
    let found = run(&machine, false, 2_000, 8);
    let Verdict::Dependent(witness) = &found.verdict else {
        panic!("the race was not found: {found:?}")
    };
    assert_eq!((witness.stage, witness.proof), (Stage::Exhaustive, Proof::Shortest));
    assert_eq!(witness.spec.deviations.len(), 1, "{:?}", witness.spec.deviations);
    assert!(witness.differences.iter().any(|difference| difference.session == "owner"));
    assert_eq!(observe(witness.spec.clone()), witness.observed);
    assert_ne!(
        observe(MachineSpec { deviations: Vec::new(), ..witness.spec.clone() }),
        witness.observed,
        "the deviation does it"
    );
}

#[test]
fn the_witness_is_a_trace_like_any_other() {
    let machine = machine(&peeker(2), &late_sender(2));
    let found = run(&machine, false, 2_000, 8);
    let Verdict::Dependent(witness) = found.verdict else { panic!("the race was not found") };
    let recorded = RecordedMachine { spec: witness.spec, ..machine };
    let bytes = record(&recorded);
    let trace = Trace::open(&bytes[..]).expect("own trace");
    assert_eq!(trace.machine.spec.deviations, recorded.spec.deviations);
    let verified = verify(trace, 1).expect("it can be verified");
    assert!(verified.divergence.is_none() && verified.missing.is_none());
    let digests: Vec<_> = verified.summary.sessions.iter().map(|session| session.digest).collect();
    assert_eq!(
        digests,
        witness.observed.sessions.iter().map(|session| session.digest).collect::<Vec<_>>()
    );
}

#[test]
fn random_search_finds_a_distant_race_and_shrinks_it() {
    // Five turns apart: no list of two deviations changes the result, so the exhaustive search
    // gives up and random search finds it.
    let machine = machine(&peeker(4), &late_sender(9));
    let found = run(&machine, false, 3_000, 2);
    let Verdict::Dependent(witness) = &found.verdict else {
        panic!("the race was not found: {:?}", found.stages)
    };
    assert!(matches!(witness.stage, Stage::Random | Stage::Priorities), "{:?}", witness.stage);
    assert_eq!(witness.proof, Proof::Minimal);
    assert!(witness.seed.is_some());
    let list = &witness.spec.deviations;
    assert!(list.len() > 2, "{list:?}");
    let usual = observe(MachineSpec { deviations: Vec::new(), ..witness.spec.clone() });
    assert_ne!(observe(witness.spec.clone()), usual);
    for at in 0..list.len() {
        let mut shorter = list.clone();
        shorter.remove(at);
        assert_eq!(
            observe(MachineSpec { deviations: shorter, ..witness.spec.clone() }),
            usual,
            "deviation {at} can be left out"
        );
    }
}

#[test]
fn other_settings_alone_reveal_a_race() {
    let machine = machine(&peeker(2), &late_sender(2));
    let found = run(&machine, true, 40, 0);
    let Verdict::Dependent(witness) = &found.verdict else {
        panic!("the race was not found: {:?}", found.stages)
    };
    assert!(found.stages[0].different > 0 || witness.stage != Stage::Settings);
}

/// A writer whose bytes outlive the recorder.
#[derive(Clone, Default)]
struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no thread panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn record(machine: &RecordedMachine) -> Vec<u8> {
    let out = Shared::default();
    // A trace stores binary modules, so the text modules of this test are assembled first.
    let mut machine = machine.clone();
    machine.modules = machine
        .modules
        .iter()
        .map(|text| wat::parse_bytes(text).expect("valid").into_owned())
        .collect();
    machine.spec.module_hashes.clear();
    let modules = std::mem::take(&mut machine.spec.modules);
    for (module, bytes) in modules.into_iter().zip(&machine.modules) {
        machine.spec.add_module(module, bytes);
    }
    let mut nowhere = ();
    let mut world = World::load(machine.spec.clone(), Vec::new(), true).expect("it loads").world;
    let mut recorder =
        Recorder::new(out.clone(), &machine, Level::Full, &mut nowhere).expect("memory");
    world.run(&mut recorder).expect("the host can");
    let recorded = recorder.finish(&world.summary());
    assert!(recorded.error.is_none());
    out.0.lock().expect("no thread panicked").clone()
}
