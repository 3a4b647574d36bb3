//! A corpus of deterministic workloads for the core crates, each reduced to one digest, to compare
//! targets.
//!
//! [`report`] runs it and returns one line `name digest` per case. A case writes to its `Trail`
//! what is compared: decisions, results, charges and state, never addresses, sizes of types or
//! times. Each crate's cases are in the file of its name; `CORPORA` lists them. Elsewhere: `cargo
//! xtask portability` compares the reports.
#![deny(unsafe_code)]

mod abi;
mod files;
mod kernel;
mod machine;
mod system;
mod trace;

use std::fmt::Write;

/// The size of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Size {
    /// Runs in a minute on an emulated processor.
    Small,
    /// For native and WebAssembly runs only.
    Full,
}

/// The corpora, lowest crate first.
const CORPORA: &[fn(&mut Report)] =
    &[abi::cases, kernel::cases, trace::cases, machine::cases, system::cases];

/// The hash of the values that a case writes, the same on every target.
pub(crate) struct Trail(blake3::Hasher);

impl Trail {
    /// Adds a number.
    pub(crate) fn number(&mut self, value: u64) {
        self.0.update(&value.to_le_bytes());
    }

    /// Adds numbers, one after the other.
    pub(crate) fn numbers(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.number(*value));
    }

    /// Adds bytes, with their length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }
}

/// The report of the cases run so far.
pub(crate) struct Report {
    size: Size,
    text: String,
    cases: usize,
}

impl Report {
    /// Runs a case, unless it is too large for this report.
    pub(crate) fn case(&mut self, size: Size, name: &str, run: impl FnOnce(&mut Trail)) {
        if size > self.size {
            return;
        }
        let mut trail = Trail(blake3::Hasher::new());
        run(&mut trail);
        let digest = trail.0.finalize().to_hex();
        writeln!(self.text, "{name} {}", &digest[..32]).expect("a string takes every line");
        self.cases += 1;
    }
}

/// Runs the corpus and returns one line per case, then their number.
#[must_use]
pub fn report(size: Size) -> String {
    let mut report = Report { size, text: String::new(), cases: 0 };
    for cases in CORPORA {
        cases(&mut report);
    }
    format!("{}cases {}\n", report.text, report.cases)
}

/// A deterministic stream of pseudorandom numbers (splitmix64).
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The function that Node calls.
#[cfg(target_arch = "wasm32")]
mod export {
    use super::{Size, report};

    /// The full report: its address in the upper half of the result, its length in the lower.
    #[allow(unsafe_code, reason = "an exported name is an unsafe attribute; nothing else here is")]
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn report_full() -> u64 {
        let text: &'static str = Box::leak(report(Size::Full).into_boxed_str());
        ((text.as_ptr() as usize as u64) << 32) | text.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_are_equal_and_names_are_unique() {
        let first = report(Size::Small);
        assert_eq!(first, report(Size::Small), "two runs differ");
        let mut names: Vec<&str> =
            first.lines().filter_map(|line| Some(line.split_once(' ')?.0)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name occurs twice");
        for part in [
            "abi/",
            "kernel/",
            "trace/",
            "machine/",
            "system/examples/",
            "system/corpus/",
            "system/random/",
        ] {
            assert!(names.iter().any(|name| name.starts_with(part)), "no case of {part}");
        }
    }

    #[test]
    fn a_changed_value_changes_the_digest() {
        let digest = |value: u64| {
            let mut report = Report { size: Size::Full, text: String::new(), cases: 0 };
            report.case(Size::Small, "planted", |trail| trail.number(value));
            report.text
        };
        assert_ne!(digest(1), digest(2));
        assert_eq!(digest(1), digest(1));
    }
}
