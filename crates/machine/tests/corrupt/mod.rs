//! Corrupted modules and corrupted snapshots: refused or harmless, never a panic, never more memory
//! than limits allow.
//!
//! A module that still loads is run for a while; a snapshot that still decodes encodes to the same
//! bytes, and runs for a while. A failure prints the seed that makes the input again.

use crate::drive::{Driver, Whole};
use crate::generate::program;
use crate::mutate::{exercise, mutate, run_for_a_while, stopped};
use crate::observe;
use crate::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use wavelock_machine::{DecodeError, Session, SessionLimits, Stop, decode, encode};
use wavelock_module::{Limits, Module};

/// Runs `check` and turns a panic into one that names the seed.
fn seeded(what: &str, seed: u64, check: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(check)).is_err() {
        panic!("{what}: seed {seed} panics");
    }
}

#[test]
fn corrupted_modules_never_panic() {
    let (mut loaded, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let Some(program) = program(seed % 40) else { continue };
        let bytes = mutate(&program.bytes, &mut Random::new(seed));
        seeded("corrupted module", seed, || match Module::new(&bytes, &Limits::default()) {
            Ok(module) => {
                loaded += 1;
                exercise(&Arc::new(module));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        });
    }
    println!("{loaded} still load, {refused} are refused");
    assert!(loaded > 100 && refused > 1_000, "{loaded} still load, {refused} are refused");
}

#[test]
fn corrupted_snapshots_never_panic() {
    let (mut decoded, mut refused) = (0, 0);
    for base in 0..120 {
        let Some(program) = program(base) else { continue };
        let Some((module, snapshot)) = stopped(&program, &mut Random::new(base)) else { continue };
        for step in 0..200 {
            let seed = base * 1_000 + step;
            let bytes = mutate(&snapshot, &mut Random::new(seed));
            seeded("corrupted snapshot", seed, || {
                match decode(&bytes, std::slice::from_ref(&module), &observe::LIMITS) {
                    Ok((mut session, mut coroutines)) => {
                        decoded += 1;
                        assert_eq!(
                            encode(&session, &coroutines.iter().collect::<Vec<_>>()),
                            bytes,
                            "another spelling of a state decodes"
                        );
                        for coroutine in &mut coroutines {
                            let _ = coroutine.backtrace(&session).count();
                            run_for_a_while(&mut session, coroutine);
                        }
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(!error.to_string().is_empty());
                    }
                }
            });
        }
    }
    println!("{decoded} still decode, {refused} are refused");
    assert!(decoded > 1_000 && refused > 1_000, "{decoded} still decode, {refused} are refused");
}

/// Every number of a snapshot replaced by a huge one, and every truncation: allocations stay small.
#[test]
fn huge_numbers_and_short_snapshots_are_refused_or_harmless() {
    let mut seed = 0;
    let (module, snapshot) = loop {
        let found = program(seed).and_then(|program| stopped(&program, &mut Random::new(seed)));
        if let Some(found) = found.filter(|(_, snapshot)| snapshot.len() < 6_000) {
            break found;
        }
        seed += 1;
    };
    let modules = std::slice::from_ref(&module);
    for at in 0..snapshot.len() {
        assert!(
            decode(&snapshot[..at], modules, &observe::LIMITS).is_err(),
            "seed {seed}: the first {at} bytes decode"
        );
        for huge in [u32::MAX, i32::MAX as u32, 1 << 24] {
            let mut bytes = snapshot.clone();
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&huge.to_le_bytes()[..end - at]);
            if let Ok((session, coroutines)) = decode(&bytes, modules, &observe::LIMITS) {
                assert_eq!(
                    encode(&session, &coroutines.iter().collect::<Vec<_>>()),
                    bytes,
                    "seed {seed}, byte {at}"
                );
            }
        }
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let module = Arc::new(
        Module::from_text(br#"(module (memory 1) (func (export "main")))"#, &Limits::default())
            .expect("valid"),
    );
    let mut session = Session::new(SessionLimits::default());
    session.instantiate(Arc::clone(&module), &[]).expect("no imports");
    let snapshot = encode(&session, &[]);
    let modules = [module];
    let allowed = SessionLimits::default();
    assert!(decode(&snapshot, &modules, &allowed).is_ok());
    let mut other_version = snapshot.clone();
    other_version[8] = 9;
    let refused = decode(&other_version, &modules, &allowed).expect_err("another version");
    assert_eq!(refused, DecodeError::Version { what: "snapshot", found: 9, known: 2 });
    assert_eq!(refused.to_string(), "snapshot version 9 is not supported, only 2 is");
    assert_eq!(
        decode(b"not a snapshot", &modules, &allowed).err(),
        Some(DecodeError::NotASnapshot)
    );
    assert!(matches!(decode(&snapshot, &[], &allowed), Err(DecodeError::UnknownModule { .. })));
    let small = SessionLimits { memory_pages: 1, ..allowed };
    let refused =
        decode(&snapshot, &modules, &small).expect_err("its limit is larger than what is allowed");
    assert!(
        matches!(
            refused,
            DecodeError::Exceeds { what: "memory_pages", found: 1024, allowed: 1, .. }
        ),
        "{refused}"
    );
    let mut longer = snapshot;
    longer.push(0);
    assert!(matches!(
        decode(&longer, &modules, &allowed),
        Err(DecodeError::Trailing { left: 1, .. })
    ));
}

/// A precondition of the tests above: an uncorrupted snapshot runs to its end.
#[test]
fn an_uncorrupted_snapshot_resumes() {
    let mut ended = 0;
    for seed in 0..40 {
        let Some(found) =
            program(seed).and_then(|program| stopped(&program, &mut Random::new(seed)))
        else {
            continue;
        };
        let (mut session, mut coroutines) =
            decode(&found.1, &[Arc::clone(&found.0)], &observe::LIMITS)
                .unwrap_or_else(|error| panic!("{error}"));
        let stop = Whole.run(&mut session, &mut coroutines[0], &[]);
        ended += u64::from(matches!(stop, Stop::Finished | Stop::Fault(_) | Stop::Host(_)));
    }
    assert!(ended > 20, "only {ended} ran on");
}
