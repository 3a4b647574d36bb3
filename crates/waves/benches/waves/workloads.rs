//! The machines that are measured: compute, short slices, actors with messages across lanes, and
//! one group that nothing can be split from.

use std::sync::Arc;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, Placement};

/// A machine to measure.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) spec: MachineSpec,
    /// The goal for two workers on two cores.
    pub(crate) reach: &'static str,
}

/// Makes a machine for a number of lanes.
pub(crate) type Make = Box<dyn Fn(u16) -> MachineSpec>;

/// The four machines; with `part` n, an n-th of the work.
pub(crate) fn all(lanes: u16, part: u32) -> Vec<Workload> {
    vec![
        Workload {
            name: "64 sessions compute",
            spec: compute(lanes, 64, 1_500_000 / part),
            reach: "1.85",
        },
        Workload {
            name: "10,000 sessions, short slices",
            spec: short(lanes, 10_000, 200 / part),
            reach: "1.6",
        },
        Workload {
            name: "actors, 10 % of messages across lanes",
            spec: actors(lanes, 256, 4_000 / part),
            reach: "1.5",
        },
        Workload {
            name: "one session split over all lanes",
            spec: conflicting(lanes, 64, 1_000_000 / part),
            reach: "0.95",
        },
    ]
}

/// The machines of the model, for any number of lanes.
pub(crate) fn scaled(part: u32) -> Vec<(&'static str, Make)> {
    vec![
        ("512 sessions compute", Box::new(move |lanes| compute(lanes, 512, 100_000 / part))),
        ("10,000 sessions, short slices", Box::new(move |lanes| short(lanes, 10_000, 40 / part))),
        ("1,024 actors", Box::new(move |lanes| actors(lanes, 1_024, 400 / part))),
    ]
}

fn machine(lanes: u16, text: &str) -> (MachineSpec, usize) {
    let mut spec = MachineSpec { lanes, ..MachineSpec::new() };
    spec.limits.stack_bytes = 4_096;
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    (spec, module)
}

fn sessions(lanes: u16, count: u32, text: &str) -> MachineSpec {
    let (mut spec, module) = machine(lanes, text);
    for number in 0..count {
        spec.add_session(&format!("s.{number}"), module);
    }
    spec
}

/// A loop of integer arithmetic.
fn compute(lanes: u16, count: u32, turns: u32) -> MachineSpec {
    let text = format!(
        r#"(module (func (export "_start") (local $i i32) (local $x i32)
            (loop $l
              (local.set $x (i32.xor (i32.mul (local.get $x) (i32.const 1664525)) (local.get $i)))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {turns}))))))"#
    );
    sessions(lanes, count, &text)
}

/// Little work between yields.
fn short(lanes: u16, count: u32, turns: u32) -> MachineSpec {
    let text = format!(
        r#"(module (import "wavelock" "yield" (func $yield))
          (func (export "_start") (local $i i32)
            (loop $l
              (call $yield)
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {turns}))))))"#
    );
    sessions(lanes, count, &text)
}

/// Actors that work a little, send nine times of ten to one on their own lane and once to one on
/// the next, and take what has arrived.
fn actors(lanes: u16, count: u32, turns: u32) -> MachineSpec {
    let text = format!(
        r#"(module
          (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
          (import "wavelock" "try_send" (func $try_send (param i32 i64) (result i32)))
          (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
          (import "wavelock" "yield" (func $yield))
          (memory 1) (data (i32.const 0) "infarnear")
          (func (export "_start") (local $turn i32) (local $i i32) (local $in i32) (local $far i32) (local $near i32)
            (local.set $in (call $port (i32.const 0) (i32.const 2)))
            (local.set $far (call $port (i32.const 2) (i32.const 3)))
            (local.set $near (call $port (i32.const 5) (i32.const 4)))
            (loop $turns
              (local.set $i (i32.const 0))
              (loop $work
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $work (i32.lt_u (local.get $i) (i32.const 20))))
              (drop (call $try_send
                (select (local.get $far) (local.get $near) (i32.eqz (i32.rem_u (local.get $turn) (i32.const 10))))
                (i64.extend_i32_u (local.get $turn))))
              (loop $take (br_if $take (i32.eqz (call $try_recv (local.get $in) (i32.const 16)))))
              (call $yield)
              (local.set $turn (i32.add (local.get $turn) (i32.const 1)))
              (br_if $turns (i32.lt_u (local.get $turn) (i32.const {turns}))))))"#
    );
    let mut spec = sessions(lanes, count, &text);
    let channels: Vec<usize> = (0..count)
        .map(|number| {
            spec.add_channel(&format!("in.{number}"), wavelock_abi::SessionId(number), 64)
        })
        .collect();
    for number in 0..count {
        let to = |step: u32| channels[((number + step) % count) as usize];
        let ports = [("in", to(0)), ("far", to(1)), ("near", to(u32::from(lanes)))];
        spec.sessions[number as usize].ports =
            ports.map(|(name, channel)| (name.to_owned(), channel)).into();
    }
    spec
}

/// One session whose coroutines are on all lanes, which makes them one group.
fn conflicting(lanes: u16, count: u32, turns: u32) -> MachineSpec {
    let text = format!(
        r#"(module
          (import "wavelock" "spawn_on" (func $spawn_on (param i32 i64 i32) (result i64)))
          (table funcref (elem $work))
          (func $work (param $n i64) (result i64) (local $i i32)
            (loop $l
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {turns}))))
            (local.get $n))
          (func (export "_start") (local $i i32)
            (loop $l
              (drop (call $spawn_on (i32.const 0) (i64.const 0) (i32.rem_u (local.get $i) (i32.const {lanes}))))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {count}))))))"#
    );
    let mut spec = sessions(lanes, 1, &text);
    if lanes > 1 {
        spec.sessions[0].placement = Placement::Split((0..lanes).collect());
    }
    spec
}
