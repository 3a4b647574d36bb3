//! Test kit: a machine that uses most operations, and a disk that can fill up.
#![allow(dead_code, missing_docs, reason = "each test file uses its part")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use wavelock_abi::Frame;
use wavelock_module::{Limits, Module};
use wavelock_replay::{Level, Recorded, RecordedMachine, Recorder};
use wavelock_system::{InputEvent, MachineSpec, Recipient, World};
use wavelock_trace::Digest;

/// A writer that outlives the recorder's thread and can fail after a number of bytes.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    pub(crate) room: Option<usize>,
}

impl Write for Shared {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        if self.room.is_some_and(|room| bytes.len() + buffer.len() > room) {
            return Err(io::Error::other("disk full"));
        }
        bytes.extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Three sessions on two lanes: two producers read input, draw random numbers and send; one
/// collector prints the sum.
pub(crate) fn machine() -> RecordedMachine {
    let producer = wat(r#"(module
            (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
            (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
            (import "wavelock" "random" (func $random (result i64)))
            (import "wavelock" "sleep" (func $sleep (param i64)))
            (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
            (memory 1) (data (i32.const 0) "out")
            (func (export "_start") (local $left i32)
                (local.set $left (i32.const 40))
                (loop $again
                    (drop (call $input (i32.const 64) (i32.const 8)))
                    (drop (call $send (call $port (i32.const 0) (i32.const 3)) (i64.xor (call $random) (i64.load (i32.const 64)))))
                    (call $sleep (i64.const 1))
                    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#);
    let collector = wat(r#"(module
            (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
            (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
            (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
            (memory 1) (data (i32.const 0) "sum")
            (func (export "_start")
                (loop $again
                    (if (i32.eqz (call $recv (call $port (i32.const 0) (i32.const 3)) (i32.const 8)))
                        (then
                            (i64.store (i32.const 16) (i64.add (i64.load (i32.const 16)) (i64.load (i32.const 8))))
                            (drop (call $output (i32.const 16) (i32.const 8)))
                            (br $again))))))"#);
    let modules = vec![producer, collector];
    let mut spec = MachineSpec { lanes: 2, seed: 5, ..MachineSpec::new() };
    for bytes in &modules {
        spec.add_module(Arc::new(Module::new(bytes, &Limits::default()).unwrap()), bytes);
    }
    let collector = spec.add_session("collector", 1);
    for name in ["one", "two"] {
        let session = spec.add_session(name, 0);
        spec.sessions[session.0 as usize].ports.push(("out".into(), 0));
    }
    spec.add_channel("sum", collector, 4);
    let inputs = (3..20)
        .map(|frame| InputEvent {
            frame: Frame(frame),
            recipient: Recipient::All,
            bytes: frame.to_le_bytes()[..4].into(),
        })
        .collect();
    RecordedMachine { spec, modules, inputs }
}

pub(crate) fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("valid text")
}

/// Records a run of `machine` on a disk of limited size.
pub(crate) fn record(
    machine: &RecordedMachine,
    level: Level,
    room: Option<usize>,
) -> (Vec<u8>, Recorded, Digest) {
    record_with(machine, level, room, None)
}

/// The same, with periodic snapshots.
pub(crate) fn record_with(
    machine: &RecordedMachine,
    level: Level,
    room: Option<usize>,
    every: Option<u64>,
) -> (Vec<u8>, Recorded, Digest) {
    let shared = Shared { room, ..Shared::default() };
    let mut world = World::load(machine.spec.clone(), machine.inputs.clone(), true).unwrap().world;
    let mut nothing = ();
    let mut recorder = Recorder::new(shared.clone(), machine, level, &mut nothing).unwrap();
    if let Some(every) = every {
        recorder = recorder.with_snapshots(every);
    }
    world.run(&mut recorder).unwrap();
    let summary = world.summary();
    let recorded = recorder.finish(&summary);
    let bytes = shared.bytes.lock().unwrap().clone();
    (bytes, recorded, summary.digest)
}
