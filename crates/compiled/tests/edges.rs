//! What other tests do not reach: limits, a mix of tiers in one call stack, deep recursion on a
//! small host stack, coroutine-local globals, mutated code, another module's code.

#[path = "../../machine/tests/drive/mod.rs"]
#[allow(dead_code)]
mod drive;
#[path = "../../machine/tests/generate/mod.rs"]
#[allow(dead_code)]
mod generate;
#[path = "../../machine/tests/observe/mod.rs"]
#[allow(dead_code)]
mod observe;
#[path = "../../machine/tests/random/mod.rs"]
mod random;
#[allow(dead_code)]
mod tiers;

use generate::program;
use random::Random;
use std::sync::Arc;
use tiers::Lockstep;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_compiled::{CompiledModule, CompiledTier, Options};
use wavelock_machine::{
    Coroutine, Extern, FunctionAddress, InstanceId, Session, SessionLimits, Stop, encode, run,
    run_tiered,
};
use wavelock_module::{Limits, Module};

fn module(text: &str) -> Arc<Module> {
    let bytes = wat::parse_str(text).expect("a text of this file");
    Arc::new(Module::new(&bytes, &Limits::default()).expect("valid"))
}

fn tier_of(module: &Arc<Module>, options: &Options) -> CompiledTier {
    let mut tier = CompiledTier::default();
    tier.add(Arc::new(CompiledModule::new(module, options).expect("executable memory")));
    tier
}

fn export(session: &Session, name: &str) -> FunctionAddress {
    match session.export(InstanceId(0), name) {
        Some(Extern::Function(function)) => function,
        other => panic!("{name} is {other:?}"),
    }
}

/// Calls between a small function and a large one, in both directions, with results of each.
const MIXED: &str = r#"(module
    (func $small (param i32 i32) (result i32)
        (if (result i32) (i32.eqz (local.get 0))
            (then (local.get 1))
            (else (call $large (i32.sub (local.get 0) (i32.const 1)) (local.get 1)))))
    (func $large (param i32 i32) (result i32) (local i32 i32)
        (loop $l
            (local.set 3 (i32.add (local.get 3)
                (i32.mul (local.get 2) (i32.xor (local.get 1) (local.get 0)))))
            (local.set 2 (i32.add (local.get 2) (i32.const 1)))
            (local.set 3 (i32.rotl (local.get 3) (i32.const 3)))
            (local.set 3 (i32.sub (local.get 3) (i32.shr_u (local.get 1) (local.get 2))))
            (local.set 3 (i32.or (local.get 3) (i32.and (local.get 1) (local.get 0))))
            (br_if $l (i32.lt_u (local.get 2) (i32.const 5))))
        (i32.add (local.get 3) (call $small (local.get 0) (local.get 3))))
    (func (export "run") (param i32) (result i32)
        (call $small (local.get 0) (i32.const 77))))"#;

#[test]
fn functions_beyond_a_limit_are_counted_and_interpreted() {
    let module = module(MIXED);
    let words: Vec<u32> =
        module.code().functions().iter().map(|function| function.end - function.entry).collect();
    assert!(words[1] > words[0] && words[1] > words[2], "the second is the largest: {words:?}");
    let cases = [(0, 0), (words[1] - 1, 2), (words[1], 3)];
    let mut shown = Vec::new();
    for (function_words, compiled) in cases {
        let options = Options { function_words, ..Options::default() };
        let counts = CompiledModule::new(&module, &options).expect("executable memory").counts();
        assert_eq!(
            (counts.compiled, counts.too_large, counts.refused),
            (compiled, 3 - compiled, 0)
        );
        for most in [1, 7, u64::MAX] {
            let mut driver = Lockstep::new(3, most, 6, 1 << 20);
            driver.eager.options = options;
            let mut session = Session::new(SessionLimits::default());
            session.instantiate(Arc::clone(&module), &[]).expect("no imports");
            let entry = export(&session, "run");
            let mut coroutine = Coroutine::start(&session, entry, &[40]).expect("starts");
            use drive::Driver;
            let stop = driver.run(&mut session, &mut coroutine, std::slice::from_ref(&module));
            assert_eq!((stop, &driver.difference), (Stop::Finished, &None), "{function_words}");
            shown.push((coroutine.results().to_vec(), coroutine.used()));
        }
    }
    assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "{shown:?}");
    let options = Options { code_bytes: 1024, ..Options::default() };
    let counts = CompiledModule::new(&module, &options).expect("executable memory").counts();
    assert!(counts.too_large > 0, "a limit of 1024 bytes of code holds: {counts:?}");
}

#[test]
fn deep_recursion_uses_no_host_stack() {
    let text = r#"(module (func $f (export "run") (param i64) (result i64)
        (if (result i64) (i64.eqz (local.get 0)) (then (i64.const 0))
            (else (i64.add (i64.const 1) (call $f (i64.sub (local.get 0) (i64.const 1))))))))"#;
    let module = module(text);
    let body = move || {
        let mut tier = tier_of(&module, &Options::default());
        let limits = SessionLimits { stack_bytes: 64 << 20, ..SessionLimits::default() };
        let mut session = Session::new(limits);
        session.instantiate(Arc::clone(&module), &[]).expect("no imports");
        let entry = export(&session, "run");
        let mut results = Vec::new();
        for depth in [1_000_000, 100_000_000] {
            let mut coroutine = Coroutine::start(&session, entry, &[depth]).expect("starts");
            let mut twin = Coroutine::start(&session, entry, &[depth]).expect("starts");
            let stop = run_tiered(&mut session, &mut coroutine, Cycles(1 << 40), &mut tier);
            session.retire(&mut twin);
            let mut twin = Coroutine::start(&session, entry, &[depth]).expect("starts");
            let expected = run(&mut session, &mut twin, Cycles(1 << 40));
            assert_eq!((stop, coroutine.used()), (expected, twin.used()), "depth {depth}");
            results.push((stop, coroutine.results().to_vec()));
            session.retire(&mut coroutine);
            session.retire(&mut twin);
        }
        results
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body).expect("a thread");
    let results = thread.join().expect("256 KiB of host stack are enough");
    assert_eq!(results[0], (Stop::Finished, vec![1_000_000]));
    let Stop::Fault(fault) = results[1].0 else { panic!("{:?}", results[1]) };
    assert_eq!(fault.code, FaultCode::StackExhausted);
}

#[test]
fn coroutine_local_globals_stay_apart() {
    let text = r#"(module (global $g (export "g") (mut i32) (i32.const 5))
        (func (export "run") (param i32) (result i32) (local i32)
            (loop $l
                (global.set $g (i32.add (global.get $g) (local.get 0)))
                (local.set 1 (i32.add (local.get 1) (i32.const 1)))
                (br_if $l (i32.lt_u (local.get 1) (i32.const 100))))
            (global.get $g)))"#;
    let module = module(text);
    let mut shown = Vec::new();
    for native in [false, true] {
        let mut tier = tier_of(&module, &Options::default());
        let mut session = Session::new(SessionLimits::default());
        let instance = session.instantiate(Arc::clone(&module), &[]).expect("no imports");
        let Some(Extern::Global(global)) = session.export(instance, "g") else { panic!() };
        session.add_coroutine_global(global);
        let entry = export(&session, "run");
        let mut coroutines: Vec<Coroutine> = (1..=3)
            .map(|step| Coroutine::start(&session, entry, &[step]).expect("starts"))
            .collect();
        let mut states = Vec::new();
        for turn in 0..400 {
            let coroutine = &mut coroutines[turn % 3];
            let cycles = Cycles(17 + turn as u64 % 5);
            let stop = if native {
                run_tiered(&mut session, coroutine, cycles, &mut tier)
            } else {
                run(&mut session, coroutine, cycles)
            };
            states.push((stop, encode(&session, &coroutines.iter().collect::<Vec<_>>())));
        }
        assert_eq!(coroutines[2].results(), [305]);
        shown.push(states);
    }
    assert!(shown[0] == shown[1], "the tiers differ");
}

/// Code with changed words that the verifier accepts: native code of it stays in its bounds.
#[test]
fn mutated_code_that_the_verifier_accepts_is_harmless() {
    let mut ran = 0;
    for seed in 0..40 {
        let Some(program) = program(seed) else { continue };
        let module = Module::new(&program.bytes, &Limits::default()).expect("valid");
        let length = module.code().words().len() as u64;
        for change in 0..150 {
            let mut random = Random::new(seed * 1_000 + change);
            let (at, bit) = (random.below(length) as usize, random.below(64));
            let Ok(mutant) = module.with_words(|words| words[at] ^= 1 << bit) else { continue };
            let mutant = Arc::new(mutant);
            let mut tier = tier_of(&mutant, &Options::default());
            let Ok((mut session, Ok(instance))) = observe::instantiate(&mutant) else { continue };
            for export in mutant.exports() {
                let Some(Extern::Function(function)) = session.export(instance, &export.name)
                else {
                    continue;
                };
                let arguments = vec![7; session.function_type(function).parameters().len()];
                let Ok(mut coroutine) = Coroutine::start(&session, function, &arguments) else {
                    continue;
                };
                for _ in 0..50 {
                    match run_tiered(&mut session, &mut coroutine, Cycles(500), &mut tier) {
                        Stop::OutOfCycles { .. } => {}
                        Stop::Host(_) => coroutine.resume(&vec![3; coroutine.host_results()]),
                        Stop::Finished | Stop::Fault(_) => break,
                    }
                }
            }
            ran += 1;
        }
    }
    assert!(ran > 500, "only {ran} mutants were accepted");
}

#[test]
fn code_of_an_equal_module_is_not_used_for_another() {
    let (one, two) = (module(MIXED), module(MIXED));
    let mut tier = tier_of(&one, &Options::default());
    assert!(tier.has(&one) && !tier.has(&two));
    let mut session = Session::new(SessionLimits::default());
    session.instantiate(two, &[]).expect("no imports");
    let entry = export(&session, "run");
    let mut coroutine = Coroutine::start(&session, entry, &[4]).expect("starts");
    assert_eq!(
        run_tiered(&mut session, &mut coroutine, Cycles(1 << 20), &mut tier),
        Stop::Finished
    );
}
