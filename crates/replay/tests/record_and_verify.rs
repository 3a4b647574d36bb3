//! A recording replays on any number of workers; a change is located; truncation is reported.

mod kit;

use kit::{Shared, machine, record, record_with};
use std::io::Write;
use std::time::Duration;
use wavelock_replay::{Level, NO_END, OpenError, Recorder, Trace, Verified, VerifyError, verify};
use wavelock_system::World;
use wavelock_trace::Event;

fn check(bytes: &[u8], workers: usize) -> Result<Verified, VerifyError> {
    verify(Trace::open(bytes).map_err(VerifyError::Open)?, workers)
}

#[test]
fn a_recorded_run_replays_on_any_number_of_workers() {
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
    assert!(
        [&divergence.recorded, &divergence.replayed]
            .iter()
            .all(|had| matches!(had.event(), Some(Event::Sample { .. }))),
        "{divergence}"
    );
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
fn truncation_is_reported_and_the_rest_is_verified() {
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

/// A slow disk, especially for the first write.
struct Slow {
    shared: Shared,
    first: bool,
}

impl Write for Slow {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        // The file's header and the machine are written before the run starts.
        if self.shared.bytes.lock().unwrap().len() > 1_000 {
            std::thread::sleep(if std::mem::take(&mut self.first) {
                Duration::from_millis(400)
            } else {
                Duration::from_micros(200)
            });
        }
        self.shared.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_disk_stalls_the_run_and_loses_nothing() {
    let machine = machine();
    let (whole, fast, digest) = record_with(&machine, Level::Full, None, Some(1));
    let shared = Shared::default();
    let mut world = World::load(machine.spec.clone(), machine.inputs.clone(), true).unwrap().world;
    let mut nothing = ();
    let slow = Slow { shared: shared.clone(), first: true };
    let mut recorder =
        Recorder::new(slow, &machine, Level::Full, &mut nothing).unwrap().with_snapshots(1);
    world.run(&mut recorder).unwrap();
    let recorded = recorder.finish(&world.summary());
    assert!(
        recorded.waits > 0 && recorded.waited >= Duration::from_millis(100),
        "the buffer is bounded: {recorded:?}"
    );
    assert!(recorded.chunks > 100 && recorded.chunks == fast.chunks, "{recorded:?}");
    assert_eq!(world.digest(), digest, "waiting is not part of a run");
    assert!(*shared.bytes.lock().unwrap() == whole, "the trace is the same, byte for byte");
}

#[test]
fn a_disk_that_fills_up_anywhere_leaves_whole_chunks_and_the_run_continues() {
    let machine = machine();
    let (whole, _, digest) = record_with(&machine, Level::Full, None, Some(7));
    let after_machine = whole.len() - whole.len() * 9 / 10;
    for room in (after_machine.max(1_500)..whole.len()).step_by(whole.len() / 23) {
        let (bytes, recorded, same) = record_with(&machine, Level::Full, Some(room), Some(7));
        assert_eq!(same, digest, "room for {room}");
        assert!(recorded.error.is_some(), "room for {room}");
        assert!(
            whole.starts_with(&bytes) && recorded.bytes == bytes.len() as u64,
            "room for {room}"
        );
        let verified = check(&bytes, 1).unwrap();
        assert!(verified.divergence.is_none(), "room for {room}");
        assert_eq!(
            verified.missing.as_deref(),
            Some(NO_END),
            "it ends at a chunk: room for {room}"
        );
    }
}

#[test]
fn bytes_after_the_end_are_no_part_of_a_trace() {
    let (bytes, ..) = record(&machine(), Level::Full, None);
    for more in [&[0_u8][..], &bytes[..40], &bytes] {
        let longer = [&bytes, more].concat();
        match check(&longer, 1) {
            Err(VerifyError::Open(OpenError::Trailing { offset })) => {
                assert_eq!(offset, bytes.len() as u64)
            }
            other => panic!("{other:?}"),
        }
    }
}
