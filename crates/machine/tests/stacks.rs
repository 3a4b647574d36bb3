//! `session_stack_bytes`, the limit on all stacks of a session: a start beyond it is refused with
//! both numbers, a call beyond it faults. The bytes counted survive encoding.

use std::sync::Arc;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_machine::{
    Coroutine, DecodeError, Extern, FunctionAddress, Session, SessionLimits, StartError, Stop,
    decode, encode, run,
};
use wavelock_module::{Limits, Module};

/// `wide` has 31,000 locals, `deep` recurses to a given depth, then loops forever or returns.
fn text() -> String {
    format!(
        r#"(module
        (func (export "wide") (param i32) (local {}) (loop $l (br $l)))
        (func $deep (export "deep") (param i32) (result i32)
            (if (result i32) (local.get 0)
                (then (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))
                (else (i32.const 0))))
        (func (export "twice") (param i32) (result i32)
            (i32.add (call $deep (local.get 0)) (call $deep (local.get 0)))))"#,
        "i64 ".repeat(31_000)
    )
}

/// Bytes of the window of `wide`: its parameter, its link, its locals.
const WIDE: u64 = 8 * 31_002;

fn session(session_stack_bytes: u64) -> (Session, Arc<Module>) {
    let module =
        Arc::new(Module::from_text(text().as_bytes(), &Limits::default()).expect("a valid module"));
    let mut session =
        Session::new(SessionLimits { session_stack_bytes, ..SessionLimits::default() });
    session.instantiate(Arc::clone(&module), &[]).expect("no imports");
    (session, module)
}

fn function(session: &Session, name: &str) -> FunctionAddress {
    let Some(Extern::Function(function)) = session.export(wavelock_machine::InstanceId(0), name)
    else {
        panic!("no {name}")
    };
    function
}

#[test]
fn a_start_beyond_the_limit_is_refused_with_both_numbers() {
    let (session, _) = session(3 * WIDE + 100);
    let wide = function(&session, "wide");
    let mut started: Vec<Coroutine> =
        (0..3).map(|_| Coroutine::start(&session, wide, &[0]).expect("within the limit")).collect();
    assert_eq!(session.stack_bytes_held(), 3 * WIDE);
    let refused = Coroutine::start(&session, wide, &[0]);
    assert_eq!(refused, Err(StartError::SessionStack { found: 4 * WIDE, allowed: 3 * WIDE + 100 }));
    assert_eq!(session.stack_bytes_held(), 3 * WIDE, "what was refused holds nothing");
    // A short stack lies in the coroutine's record and does not count.
    let mut short =
        Coroutine::start(&session, function(&session, "deep"), &[0]).expect("it needs no block");
    assert_eq!(short.stack_bytes(), 0);
    session.retire(&mut short);
    session.retire(&mut started[1]);
    assert_eq!(session.stack_bytes_held(), 2 * WIDE);
    Coroutine::start(&session, wide, &[0]).expect("there is room again");
}

#[test]
fn a_call_beyond_the_limit_faults_and_others_continue() {
    let (mut session, _) = session(WIDE + 10_000);
    let mut wide =
        Coroutine::start(&session, function(&session, "wide"), &[0]).expect("within the limit");
    let mut deep =
        Coroutine::start(&session, function(&session, "deep"), &[1_000]).expect("within the limit");
    let Stop::Fault(fault) = run(&mut session, &mut deep, Cycles(1 << 30)) else {
        panic!("no fault")
    };
    assert_eq!(fault.code, FaultCode::StackExhausted);
    assert!(session.stack_bytes_held() <= WIDE + 10_000, "{}", session.stack_bytes_held());
    assert!(deep.stack_bytes() > 9_900, "it grew as far as it could: {}", deep.stack_bytes());
    assert!(matches!(run(&mut session, &mut wide, Cycles(1_000)), Stop::OutOfCycles { .. }));
    session.retire(&mut deep);
    session.retire(&mut wide);
    assert_eq!(session.stack_bytes_held(), 0);
    let mut again =
        Coroutine::start(&session, function(&session, "deep"), &[300]).expect("within the limit");
    assert_eq!(run(&mut session, &mut again, Cycles(1 << 30)), Stop::Finished);
}

/// A coroutine keeps the stack of its deepest call. Decoding must count it too: otherwise another
/// coroutine faults only before or only after.
#[test]
fn the_capacity_of_a_stack_counts_after_decoding() {
    const LIMIT: u64 = 40_000;
    let outcome = |through_bytes: bool| {
        let (mut session, module) = session(LIMIT);
        let mut first = Coroutine::start(&session, function(&session, "twice"), &[600])
            .expect("within the limit");
        let before = loop {
            let before = first.stack_bytes();
            assert!(matches!(run(&mut session, &mut first, Cycles(50)), Stop::OutOfCycles { .. }));
            // Deep once, and all the way back.
            if before > 16_000 && first.backtrace(&session).count() < 5 {
                break before;
            }
        };
        let mut coroutines = vec![
            first,
            Coroutine::start(&session, function(&session, "deep"), &[600]).expect("it is short"),
        ];
        if through_bytes {
            let bytes = encode(&session, &coroutines.iter().collect::<Vec<_>>());
            let allowed = SessionLimits { session_stack_bytes: LIMIT, ..SessionLimits::default() };
            (session, coroutines) = decode(&bytes, &[module], &allowed).expect("own bytes");
            assert_eq!(encode(&session, &coroutines.iter().collect::<Vec<_>>()), bytes);
        }
        assert_eq!((coroutines[0].stack_bytes(), session.stack_bytes_held()), (before, before));
        let stop = run(&mut session, &mut coroutines[1], Cycles(1 << 30));
        (stop, coroutines[1].used(), coroutines[1].stack_bytes(), session.stack_bytes_held())
    };
    let expected = outcome(false);
    assert!(
        matches!(expected.0, Stop::Fault(fault) if fault.code == FaultCode::StackExhausted),
        "{expected:?}"
    );
    assert_eq!(outcome(true), expected);
}

#[test]
fn decoding_enforces_the_limit() {
    let (session, module) = session(1 << 30);
    let coroutines: Vec<Coroutine> = (0..3)
        .map(|_| {
            Coroutine::start(&session, function(&session, "wide"), &[0]).expect("within the limit")
        })
        .collect();
    let bytes = encode(&session, &coroutines.iter().collect::<Vec<_>>());
    let allowed = SessionLimits { session_stack_bytes: 2 * WIDE, ..SessionLimits::default() };
    let refused = decode(&bytes, &[module], &allowed).err();
    assert!(
        matches!(refused, Some(DecodeError::Exceeds { found, allowed, .. })
            if (found, allowed) == (3 * WIDE, 2 * WIDE)),
        "{refused:?}"
    );
}
