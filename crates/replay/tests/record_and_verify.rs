//! What was recorded runs again, on any number of workers; what was changed is found where it was changed; what was cut off is said.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use wavelock_abi::Frame;
use wavelock_module::{Limits, Module};
use wavelock_replay::{Level, OpenError, RecordedMachine, Recorder, Trace, Verified, VerifyError, verify};
use wavelock_system::{InputEvent, MachineSpec, Recipient, World};

/// A writer that outlives the recorder's thread, and can be made to fail after so many bytes.
#[derive(Clone, Default)]
struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Option<usize>,
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

/// Three sessions on two lanes: two producers read input, draw random numbers and send; one collector adds up and prints.
fn machine() -> RecordedMachine {
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
        .map(|frame| InputEvent { frame: Frame(frame), recipient: Recipient::All, bytes: frame.to_le_bytes()[..4].into() })
        .collect();
    RecordedMachine { spec, modules, inputs }
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("valid text")
}

fn record(machine: &RecordedMachine, level: Level, room: Option<usize>) -> (Vec<u8>, wavelock_replay::Recorded, wavelock_trace::Digest) {
    let shared = Shared { room, ..Shared::default() };
    let mut world = World::load(machine.spec.clone(), machine.inputs.clone(), true).unwrap().world;
    let mut nothing = ();
    let mut recorder = Recorder::new(shared.clone(), machine, level, &mut nothing).unwrap();
    world.run(&mut recorder).unwrap();
    let summary = world.summary();
    let recorded = recorder.finish(&summary);
    let bytes = shared.bytes.lock().unwrap().clone();
    (bytes, recorded, summary.digest)
}

fn check(bytes: &[u8], workers: usize) -> Result<Verified, VerifyError> {
    verify(Trace::open(bytes).map_err(VerifyError::Open)?, workers)
}

#[test]
fn a_recorded_run_runs_again_on_any_number_of_workers() {
    let machine = machine();
    let mut sizes = Vec::new();
    for level in Level::ALL {
        let (bytes, recorded, digest) = record(&machine, level, None);
        assert!(recorded.error.is_none());
        assert_eq!(recorded.bytes, bytes.len() as u64);
        sizes.push(bytes.len());
        for workers in 1..=3 {
            let verified = check(&bytes, workers).unwrap();
            assert_eq!(verified.divergence, None);
            assert_eq!(verified.missing, None);
            assert_eq!(verified.summary.digest, digest);
            assert_eq!(verified.ending.map(|ending| ending.digest), Some(digest));
            assert!(verified.frames >= 40);
        }
    }
    assert!(sizes.is_sorted(), "more is kept at each level: {sizes:?}");
}

#[test]
fn a_changed_input_byte_is_found_in_its_frame() {
    let original = machine();
    let (bytes, ..) = record(&original, Level::Full, None);
    let mut trace = Trace::open(bytes.as_slice()).unwrap();
    trace.machine.inputs[9].bytes[0] ^= 1;
    let verified = verify(trace, 2).unwrap();
    let divergence = verified.divergence.expect("another input is another run");
    assert_eq!(divergence.frame, original.inputs[9].frame.0);
    assert!(divergence.recorded.contains("Sample") && divergence.replayed.contains("Sample"), "{divergence}");
}

#[test]
fn a_changed_decision_is_found_in_its_step() {
    let (bytes, ..) = record(&machine(), Level::Schedule, None);
    let mut trace = Trace::open(bytes.as_slice()).unwrap();
    trace.machine.spec.seed ^= 1;
    let divergence = verify(trace, 1).unwrap().divergence.expect("another seed is another run");
    assert_eq!(divergence.frame, 0, "the run's identity is part of the first digest");
    let (bytes, ..) = record(&machine(), Level::Full, None);
    let mut trace = Trace::open(bytes.as_slice()).unwrap();
    trace.machine.spec.policy = cooperative();
    let divergence = verify(trace, 1).unwrap().divergence.expect("another policy is another run");
    assert_eq!(divergence.frame, 0);
}

fn cooperative() -> wavelock_kernel::Policy {
    wavelock_kernel::Policy::Cooperative
}

#[test]
fn every_cut_is_said_and_what_is_there_is_verified() {
    let (bytes, ..) = record(&machine(), Level::Full, None);
    for end in (0..bytes.len()).step_by(37) {
        match check(&bytes[..end], 1) {
            Ok(verified) => {
                assert_eq!(verified.divergence, None);
                assert!(verified.missing.is_some(), "cut at {end}");
            }
            Err(VerifyError::Open(OpenError::NoMachine | OpenError::Trace(_))) => {}
            Err(other) => panic!("cut at {end}: {other}"),
        }
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let (whole, _, digest) = record(&machine(), Level::Full, None);
    let (bytes, recorded, same) = record(&machine(), Level::Full, Some(whole.len() - 1));
    assert_eq!(same, digest);
    assert!(recorded.error.is_some());
    let verified = check(&bytes, 1).unwrap();
    assert!(verified.divergence.is_none() && verified.missing.is_some());
}
