//! Mutated lowered code, any bit of any word: the verifier refuses it, or it runs without an access
//! outside its window. Debug builds assert every unchecked access; the feature `checked` checks it.

#[allow(dead_code)]
mod drive;
#[allow(dead_code)]
mod generate;
#[allow(dead_code)]
mod mutate;
#[allow(dead_code)]
mod observe;
mod random;

use generate::program;
use mutate::exercise;
use random::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use wavelock_module::{Limits, LoadError, Module};

/// Programs that are mutated: generated ones and the kernels.
fn programs() -> Vec<(String, Arc<Module>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for seed in 0..60 {
        found.extend(program(seed).map(|program| (format!("program {seed}"), program.bytes)));
    }
    for kernel in ["fib", "sieve", "sort", "sha256", "indirect", "vm"] {
        let path = format!("{}/../../benches/kernels/{kernel}.wat", env!("CARGO_MANIFEST_DIR"));
        found.push((kernel.to_string(), wat::parse_file(path).expect("a kernel")));
    }
    let load = |(name, bytes): (String, Vec<u8>)| {
        (name, Arc::new(Module::new(&bytes, &Limits::default()).expect("valid")))
    };
    found.into_iter().map(load).filter(|(_, module)| !module.code().words().is_empty()).collect()
}

#[test]
fn mutated_code_is_refused_or_stays_in_its_window() {
    let (mut ran, mut refused) = (0u32, BTreeMap::<&str, u32>::new());
    for (name, module) in programs() {
        let length = module.code().words().len() as u64;
        for seed in 0..2_000 {
            let mut random = Random::new(seed);
            let (at, bit) = (random.below(length) as usize, random.below(64));
            let change = match random.below(4) {
                0 => random.next(),
                1 => 0xffff << (bit / 16 * 16),
                _ => 1 << bit,
            };
            match module.with_words(|words| words[at] ^= change) {
                Ok(mutant) => {
                    ran += 1;
                    let mutant = Arc::new(mutant);
                    let outcome = catch_unwind(AssertUnwindSafe(|| exercise(&mutant)));
                    assert!(
                        outcome.is_ok(),
                        "{name}: seed {seed}, word {at} changed by {change:#x}: a check failed"
                    );
                }
                Err(LoadError::Internal { rule, .. }) => {
                    *refused.entry(&rule[..3]).or_default() += 1
                }
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }
    println!("{ran} mutants ran, refused by rule: {refused:?}");
    assert!(ran > 20_000, "only {ran} mutants ran");
    for rule in ["V1:", "V2:", "V3:", "V4:", "V5:", "V6:", "V7:", "V8:", "V9:", "V10"] {
        let count = refused.get(rule).copied().unwrap_or(0);
        assert!(count > 0, "no mutant was refused by {rule} {refused:?}");
    }
}

/// The same words are accepted again, and a refusal names the rule and a byte of the module.
#[test]
fn a_refusal_names_the_rule() {
    let text = br#"(module (func (export "run") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1))))"#;
    let module = Module::from_text(text, &Limits::default()).expect("valid");
    assert!(module.with_words(|_| {}).is_ok());
    // The destination of the addition, behind the two words of `enter`: far outside the window,
    // then the link.
    let error = module
        .with_words(|words| words[2] |= 0xfff0 << 16)
        .expect_err("a register outside the window");
    let text = error.to_string();
    assert!(text.starts_with("internal: lowering produced invalid code at byte 0x"), "{text}");
    assert!(text.contains("V4: a register outside the window"), "{text}");
    let error = module
        .with_words(|words| words[2] = words[2] & !(0xffff << 16) | 1 << 16)
        .expect_err("the link");
    assert!(error.to_string().contains("V4: a link is overwritten"), "{error}");
}
