//! What was recorded runs again, on any number of workers; what was changed is found where it was changed; what was cut off is said.

mod kit;

use kit::{machine, record};
use wavelock_replay::{Level, OpenError, Trace, Verified, VerifyError, verify};

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
