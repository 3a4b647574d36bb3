//! Mutants of real programs: compiled modules changed by `wasm-mutate` or in single instructions.
//!
//! Seeds are every module in `corpus`, `guests`, `examples` and the text kernels in
//! `benches/kernels`: the directories are walked, so that new programs are included. Elsewhere:
//! running them (`main`).

use crate::random::Random;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wasm_mutate::WasmMutate;
use wasmparser::{Operator, Parser, Payload, Validator, WasmFeatures};

/// Folders whose modules are mutated.
const FOLDERS: [&str; 4] = ["corpus", "guests", "examples", "benches/kernels"];
/// Larger modules are left out: the oracle's compiler would take a second per module.
const MOST_BYTES: usize = 60_000;
/// Fuel of one mutation.
const MUTATION_FUEL: u64 = 300;

/// Opcodes of the same type, which may replace each other.
const ALIKE: [RangeInclusive<u8>; 13] = [
    0x46..=0x4f,
    0x51..=0x5a,
    0x5b..=0x60,
    0x61..=0x66,
    0x67..=0x69,
    0x6a..=0x78,
    0x79..=0x7b,
    0x7c..=0x8a,
    0x8b..=0x91,
    0x92..=0x98,
    0x99..=0x9f,
    0xa0..=0xa6,
    0x2c..=0x2f,
];

/// A module to start from.
pub(crate) struct Seed {
    /// Its path in the repository.
    pub(crate) name: String,
    bytes: Vec<u8>,
}

/// Every module to start from, by path.
pub(crate) fn seeds() -> &'static [Seed] {
    static SEEDS: OnceLock<Vec<Seed>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        FOLDERS.iter().for_each(|folder| walk(&root.join(folder), &mut files));
        files.sort();
        let modules = files.iter().filter_map(|file| {
            let bytes = wat::parse_file(file).ok()?;
            let name = file.strip_prefix(&root).ok()?.display().to_string();
            (bytes.len() <= MOST_BYTES && is_valid(&bytes)).then_some(Seed { name, bytes })
        });
        modules.collect()
    })
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|end| end == "wasm" || end == "wat") {
            files.push(path);
        }
    }
}

/// Whether it uses only WebAssembly features that our machine accepts.
fn is_valid(bytes: &[u8]) -> bool {
    let features = WasmFeatures::WASM2.difference(WasmFeatures::SIMD)
        | WasmFeatures::TAIL_CALL
        | WasmFeatures::EXTENDED_CONST;
    Validator::new_with_features(features).validate_all(bytes).is_ok()
}

/// A mutant, and the name of the module it was made from.
pub(crate) fn mutant(random: &mut Random) -> (String, Vec<u8>) {
    let seed = &seeds()[random.below(seeds().len() as u64) as usize];
    let mut bytes = seed.bytes.clone();
    for _ in 0..1 + random.below(3) {
        let changed =
            if random.below(2) == 0 { transformed(&bytes, random) } else { edited(&bytes, random) };
        if let Some(changed) =
            changed.filter(|changed| changed.len() <= 2 * MOST_BYTES && is_valid(changed))
        {
            bytes = changed;
        }
    }
    (seed.name.clone(), bytes)
}

/// One mutation of `wasm-mutate`; mostly one that preserves semantics, since those rewrite most
/// code.
fn transformed(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (seed, keep) = (random.next(), random.below(4) != 0);
    let mut mutate = WasmMutate::default();
    mutate.seed(seed).fuel(MUTATION_FUEL).preserve_semantics(keep);
    // `wasm-mutate` may panic on unsupported modules.
    let mutated = AssertUnwindSafe(|| mutate.run(bytes).ok()?.next()?.ok());
    catch_unwind(mutated).ok().flatten()
}

/// Single instructions of one function, each replaced by another of the same length.
fn edited(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let bodies = Parser::new(0).parse_all(bytes).filter_map(|payload| match payload {
        Ok(Payload::CodeSectionEntry(body)) => Some(body),
        _ => None,
    });
    let bodies: Vec<_> = bodies.collect();
    let body = &bodies[random.below(bodies.len().max(1) as u64) as usize..].first()?;
    let mut reader = body.get_operators_reader().ok()?;
    let mut places = Vec::new();
    while !reader.eof() {
        let at = reader.original_position() as usize;
        let operator = reader.read().ok()?;
        if is_editable(&operator, bytes[at]) {
            places.push(at);
        }
    }
    let mut changed = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let place = *places.get(random.below(places.len().max(1) as u64) as usize)?;
        let before = (changed[place], changed[place + 1]);
        edit(&mut changed[place..place + 2], random);
        if !is_valid(&changed) {
            (changed[place], changed[place + 1]) = before;
        }
    }
    Some(changed)
}

fn is_editable(operator: &Operator<'_>, byte: u8) -> bool {
    match operator {
        Operator::I32Const { value } => (-64..64).contains(value),
        Operator::I64Const { value } => (-64..64).contains(value),
        Operator::LocalGet { local_index: index }
        | Operator::LocalSet { local_index: index }
        | Operator::LocalTee { local_index: index }
        | Operator::BrIf { relative_depth: index } => *index < 128,
        _ => ALIKE.iter().any(|group| group.contains(&byte)),
    }
}

fn edit(words: &mut [u8], random: &mut Random) {
    if let Some(group) = ALIKE.iter().find(|group| group.contains(&words[0])) {
        let count = u64::from(group.end() - group.start()) + 1;
        words[0] = group.start() + random.below(count) as u8;
    } else if words[0] == 0x41 || words[0] == 0x42 {
        words[1] = random.below(128) as u8;
    } else if words[0] == 0x0d {
        words[1] = random.below(4) as u8;
    } else {
        words[1] = random.below(8) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_contain_programs() {
        assert!(seeds().len() >= 50, "only {} programs to start from", seeds().len());
    }

    #[test]
    fn mutants_are_valid_and_mostly_differ_from_their_seeds() {
        let mut changed = 0;
        for seed in 0..40 {
            let (name, bytes) = mutant(&mut Random::new(seed));
            assert!(is_valid(&bytes), "{name}");
            changed += u64::from(seeds().iter().all(|seed| seed.bytes != bytes));
        }
        assert!(changed > 30, "only {changed} of 40 differ");
    }
}
