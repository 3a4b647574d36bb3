//! Superinstructions with a constant: the value and fault of a load from a constant address, and
//! the arguments of a call that are constants and locals.

use std::sync::Arc;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
use wavelock_module::{Limits, Module};

/// Runs `main` of a module: its stop, results, disassembly and bytes.
fn outcome(text: &str, arguments: &[u64]) -> (Stop, Vec<u64>, String, Vec<u8>) {
    let bytes = wat::parse_str(text).expect("a module");
    let module = Arc::new(Module::new(&bytes, &Limits::default()).expect("it loads"));
    let code: String =
        (0..module.code().functions().len()).map(|function| module.disassemble(function)).collect();
    let mut session = Session::new(SessionLimits::default());
    let instance = session.instantiate(module, &[]).expect("no imports");
    let Some(Extern::Function(main)) = session.export(instance, "main") else {
        panic!("it is exported")
    };
    let mut coroutine = Coroutine::start(&session, main, arguments).expect("it starts");
    let stop = run(&mut session, &mut coroutine, Cycles(1_000_000));
    (stop, coroutine.results().to_vec(), code, bytes)
}

#[test]
fn a_load_from_a_constant_address_loads_or_faults_at_its_offset() {
    let (mut loads, mut faults) = (0, 0);
    for (kind, opcode, size) in [("i32", 0x28, 4u64), ("i64", 0x29, 8)] {
        for (address, offset) in [
            (0, 0u64),
            (8, 3),
            (65_536 - size, 0),
            (65_536 - size, 1),
            (65_536, 0),
            (1, 65_535),
            (u64::from(u32::MAX), 0),
            (u64::from(u32::MAX), 9),
        ] {
            let text = format!(
                r#"(module (memory 1) (data (i32.const 0) "\01\02\03\04\05\06\07\08\09\0a\0b\0c\0d\0e\0f\10\11\12\13\14")
                    (func (export "main") (result {kind}) (local $x {kind}) (local.set $x ({kind}.load offset={offset} (i32.const {address}))) (local.get $x)))"#
            );
            let (stop, results, code, bytes) = outcome(&text, &[]);
            assert!(code.contains("const.load."), "{code}");
            let first = address + offset;
            if first + size <= 65_536 {
                let byte = |at: u64| if at < 20 { at + 1 } else { 0 };
                let expected =
                    (0..size).rev().fold(0, |value, more| value << 8 | byte(first + more));
                assert_eq!((stop, results), (Stop::Finished, vec![expected]), "{text}");
                loads += 1;
            } else {
                let Stop::Fault(fault) = stop else { panic!("{stop:?} of {text}") };
                assert_eq!(
                    (fault.code, bytes[fault.offset as usize]),
                    (FaultCode::MemoryOutOfBounds, opcode),
                    "{text}"
                );
                faults += 1;
            }
        }
    }
    assert_eq!((loads, faults), (6, 10));
}

#[test]
fn constants_and_locals_reach_a_call_in_every_order() {
    // Digits below 4 are locals, the others constants.
    for choice in 0..6u64.pow(4) {
        let digits = [choice % 6, choice / 6 % 6, choice / 36 % 6, choice / 216];
        let arguments: String = digits
            .map(|digit| {
                if digit < 4 {
                    format!("(local.get {digit})")
                } else {
                    format!("(i32.const {})", digit * 1_000)
                }
            })
            .concat();
        let text = format!(
            r#"(module (func $f (param i32 i32 i32 i32) (result i32 i32 i32 i32) (local.get 0) (local.get 1) (local.get 2) (local.get 3))
                (func (export "main") (param i32 i32 i32 i32) (result i32 i32 i32 i32) (call $f {arguments})))"#
        );
        let (stop, results, ..) = outcome(&text, &[7, 8, 9, 10]);
        let expected = digits.map(|digit| if digit < 4 { 7 + digit } else { digit * 1_000 });
        assert_eq!(
            (stop, results.as_slice()),
            (Stop::Finished, expected.as_slice()),
            "{arguments}"
        );
    }
}
