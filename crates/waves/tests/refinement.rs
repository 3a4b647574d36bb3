//! A cooperative run on one lane has the session observables of the run on many lanes and workers,
//! for programs whose result does not depend on the schedule.
//!
//! Programs of `generate` observe the schedule wherever they can. The programs here do not: those
//! of the system's tests, and pipelines of one sender and one receiver each.

#[path = "../../system/tests/kit/mod.rs"]
mod kit;

use kit::random::{Temper, machine};
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_kernel::Policy;
use wavelock_module::{Limits, Module};
use wavelock_system::{InputEvent, MachineSpec, Placement, RunSummary, World};
use wavelock_waves::{Telemetry, Waves};

fn run(spec: MachineSpec, inputs: &[InputEvent], workers: usize) -> (RunSummary, Telemetry) {
    let world = World::load(spec, inputs.to_vec(), false).expect("valid").world;
    let mut waves = Waves::new(world, workers).expect("a worker");
    waves.set_parallel_threshold(0);
    waves.run(&mut ()).expect("the host can");
    (waves.world_mut().summary(), waves.telemetry())
}

/// Runs a machine on one cooperative lane, and on four lanes on three workers. What came out is the
/// same, though the traces differ; says how many messages there were, and how many waves ran on
/// threads.
fn compare(what: &str, spec: &MachineSpec, inputs: &[InputEvent]) -> (u64, u64) {
    let mut one = MachineSpec { lanes: 1, policy: Policy::Cooperative, ..spec.clone() };
    one.sessions.iter_mut().for_each(|session| session.placement = Placement::Lane(0));
    let mut many = MachineSpec {
        lanes: 4,
        policy: Policy::RoundRobin { quantum: Cycles(10_000) },
        ..spec.clone()
    };
    many.sessions
        .iter_mut()
        .zip((0..4).cycle())
        .for_each(|(session, lane)| session.placement = Placement::Lane(lane));
    let (one, _) = run(one, inputs, 1);
    let (many, telemetry) = run(many, inputs, 3);
    assert_ne!(one.digest, many.digest, "{what}: the traces differ");
    for (first, second) in one.sessions.iter().zip(&many.sessions) {
        assert_eq!(
            (&first.name, first.digest, first.outcome),
            (&second.name, second.digest, second.outcome),
            "{what}"
        );
    }
    (many.sessions.iter().map(|session| session.messages).sum(), telemetry.parallel)
}

#[test]
fn cooperative_refines_concurrent() {
    let (mut messages, mut parallel) = (0, 0);
    for seed in 0..60 {
        let machine = machine(seed, Temper::Tame);
        let (sent, waves) = compare(&format!("seed {seed}"), &machine.spec, &machine.inputs);
        messages += sent;
        parallel += waves;
    }
    assert!(messages > 500 && parallel > 100, "{messages} messages, {parallel} waves on threads");
    for pairs in 1..6 {
        compare(&format!("{pairs} pairs"), &pipelines(pairs), &[]);
    }
}

fn pipelines(pairs: u32) -> MachineSpec {
    let text = br#"(module
        (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
        (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
        (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
        (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
        (memory 1) (data (i32.const 0) "outin")
        (func (export "_start") (local $n i64) (local $in i32) (local $out i32)
            (local.set $out (call $port (i32.const 0) (i32.const 3)))
            (local.set $in (call $port (i32.const 3) (i32.const 2)))
            (if (i32.lt_s (local.get $in) (i32.const 0))
                (then (loop $send
                    (drop (call $send (local.get $out) (local.get $n)))
                    (local.set $n (i64.add (local.get $n) (i64.const 1)))
                    (br_if $send (i64.lt_s (local.get $n) (i64.const 100)))))
                (else (loop $receive
                    (if (i32.eqz (call $recv (local.get $in) (i32.const 8)))
                        (then (drop (call $output (i32.const 8) (i32.const 8))) (br $receive))))))))"#;
    let mut spec = MachineSpec::new();
    let module = Module::from_text(text, &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), text);
    for pair in 0..pairs {
        let sender = spec.add_session(&format!("sender.{pair}"), module);
        let receiver = spec.add_session(&format!("receiver.{pair}"), module);
        let channel = spec.add_channel(&format!("pipe.{pair}"), receiver, 3);
        spec.sessions[sender.0 as usize].ports.push(("out".into(), channel));
        spec.sessions[receiver.0 as usize].ports.push(("in".into(), channel));
    }
    spec
}
