//! Canonical bytes of each state of a coroutine: it decodes to the same digest, encodes to the same
//! bytes, and resumes alike.
//!
//! Elsewhere: the same laws over the suite (`spec`) and generated programs (`generated`), which
//! rarely reach these states.

use std::sync::Arc;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_machine::{
    Coroutine, Extern, FunctionAddress, InstanceId, Session, SessionLimits, Stop, coroutine_digest,
    decode, encode, run, session_digest,
};
use wavelock_module::{FunctionType, Limits, Module, ValueType};

fn load(text: &str) -> Arc<Module> {
    Arc::new(
        Module::from_text(text.as_bytes(), &Limits::default())
            .unwrap_or_else(|error| panic!("{error}")),
    )
}

fn function(session: &Session, instance: InstanceId, name: &str) -> FunctionAddress {
    let Some(Extern::Function(function)) = session.export(instance, name) else {
        panic!("no function {name}")
    };
    function
}

/// Encodes and decodes a session and its coroutines, and checks the laws of every state.
fn through(
    session: &mut Session,
    coroutines: &[Coroutine],
    modules: &[Arc<Module>],
) -> (Session, Vec<Coroutine>) {
    let bytes = encode(session, &coroutines.iter().collect::<Vec<_>>());
    let (mut other, twins) = decode(&bytes, modules, &SessionLimits::default())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(encode(&other, &twins.iter().collect::<Vec<_>>()), bytes);
    assert_eq!(session_digest(&mut other), session_digest(session));
    for (one, two) in coroutines.iter().zip(&twins) {
        assert_eq!(coroutine_digest(session, one), coroutine_digest(&other, two));
        assert_eq!(one.used(), two.used());
        assert_eq!(
            one.backtrace(session).collect::<Vec<_>>(),
            two.backtrace(&other).collect::<Vec<_>>()
        );
    }
    (other, twins)
}

const HOSTS: &str = r#"(module
    (import "host" "ask" (func $ask (param i32 i64) (result i64 i32)))
    (type $ask (func (param i32 i64) (result i64 i32)))
    (table funcref (elem $ask))
    (export "ask" (func $ask))
    (func (export "direct") (result i64) (call $ask (i32.const 1) (i64.const 2)) (drop))
    (func (export "indirect") (result i64) (call_indirect (type $ask) (i32.const 1) (i64.const 2) (i32.const 0)) (drop))
    (func (export "tail") (result i64 i32) (return_call $ask (i32.const 1) (i64.const 2))))"#;

#[test]
fn a_blocked_host_call_of_every_kind_round_trips() {
    let module = load(HOSTS);
    let kind =
        FunctionType::new(&[ValueType::I32, ValueType::I64], &[ValueType::I64, ValueType::I32]);
    for (name, arguments, results) in
        [("direct", &[][..], 1), ("indirect", &[], 1), ("tail", &[], 2), ("ask", &[1, 2], 2)]
    {
        let mut session = Session::new(SessionLimits::default());
        let ask = session.add_host_function(40, &kind, Cycles(9)).expect("a cheap function");
        let instance =
            session.instantiate(Arc::clone(&module), &[Extern::Function(ask)]).expect("it links");
        let mut coroutine =
            Coroutine::start(&session, function(&session, instance, name), arguments)
                .expect("it starts");
        let Stop::Host(call) = run(&mut session, &mut coroutine, Cycles(1_000)) else {
            panic!("{name}: no host call")
        };
        assert_eq!((call.number, coroutine.host_arguments()), (40, &[1, 2][..]), "{name}");
        assert_eq!(coroutine.prepay(Cycles(100), Cycles(30)), Cycles(70), "{name}");
        let (mut session, mut coroutines) =
            through(&mut session, &[coroutine], std::slice::from_ref(&module));
        let coroutine = &mut coroutines[0];
        assert!(
            matches!(run(&mut session, coroutine, Cycles(1)), Stop::Host(again) if again == call),
            "{name}"
        );
        assert_eq!(coroutine.host_arguments(), [1, 2], "{name}");
        assert_eq!(
            coroutine.prepay(Cycles(100), Cycles(70)),
            Cycles(0),
            "{name}: what was paid is kept"
        );
        coroutine.resume(&[u64::MAX, u64::MAX]);
        assert_eq!(run(&mut session, coroutine, Cycles(1_000)), Stop::Finished, "{name}");
        assert_eq!(
            coroutine.results(),
            &[u64::MAX, u64::from(u32::MAX)][..results],
            "{name}: an i32 result is narrow"
        );
        let (_, coroutines) = through(&mut session, &coroutines, std::slice::from_ref(&module));
        assert_eq!(coroutines[0].results().len(), results, "{name}");
    }
}

const STACK_POINTER: &str = r#"(module
    (global $sp (export "sp") (mut i32) (i32.const 100))
    (func (export "main") (param i32) (result i32)
        (global.set $sp (i32.sub (global.get $sp) (local.get 0)))
        (loop $again (br_if $again (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
        (global.get $sp)))"#;

#[test]
fn coroutine_globals_round_trip_with_their_coroutine() {
    let module = load(STACK_POINTER);
    let mut session = Session::new(SessionLimits::default());
    let instance = session.instantiate(Arc::clone(&module), &[]).expect("no imports");
    let Some(Extern::Global(global)) = session.export(instance, "sp") else { panic!("no global") };
    session.add_coroutine_global(global);
    let main = function(&session, instance, "main");
    let mut coroutines: Vec<Coroutine> = [7, 9]
        .map(|argument| Coroutine::start(&session, main, &[argument]).expect("it starts"))
        .into();
    for coroutine in &mut coroutines {
        assert!(matches!(run(&mut session, coroutine, Cycles(12)), Stop::OutOfCycles { .. }));
    }
    let (mut session, mut coroutines) = through(&mut session, &coroutines, &[module]);
    for (coroutine, expected) in coroutines.iter_mut().zip([93, 91]) {
        assert_eq!(run(&mut session, coroutine, Cycles(10_000)), Stop::Finished);
        assert_eq!(coroutine.results(), [expected]);
    }
    assert_eq!(session.global(global), 100, "the session's value is what coroutines start with");
}

const INNER: &str = r#"(module
    (memory (export "memory") 1)
    (data $passive "abcdef")
    (func (export "drop") (data.drop $passive))
    (func (export "fault") (param i32) (result i32) (i32.load (local.get 0)))
    (func (export "init") (memory.init $passive (i32.const 0) (i32.const 0) (i32.const 6))))"#;

const OUTER: &str = r#"(module
    (import "inner" "fault" (func $fault (param i32) (result i32)))
    (memory 1)
    (func (export "main") (param i32) (result i32)
        (i32.store (i32.const 8) (i32.const 77))
        (i32.add (call $fault (local.get 0)) (i32.load (i32.const 8))))
    (func $late (export "late") (param i32) (result i32) (return_call $fault (local.get 0))))"#;

#[test]
fn linked_instances_faults_and_dropped_segments_round_trip() {
    let (inner, outer) = (load(INNER), load(OUTER));
    let modules = [Arc::clone(&outer), Arc::clone(&inner)];
    for (name, argument, expected) in [
        ("main", 0, Ok(77)),
        ("late", 0, Ok(0)),
        ("main", 1 << 20, Err(2)),
        ("late", 1 << 20, Err(1)),
    ] {
        let mut session = Session::new(SessionLimits::default());
        let first = session.instantiate(Arc::clone(&inner), &[]).expect("no imports");
        let fault = function(&session, first, "fault");
        let second =
            session.instantiate(Arc::clone(&outer), &[Extern::Function(fault)]).expect("it links");
        let mut coroutine =
            Coroutine::start(&session, function(&session, second, name), &[argument])
                .expect("it starts");
        let stop = loop {
            let stop = run(&mut session, &mut coroutine, Cycles(1));
            let (other, mut twins) = through(&mut session, &[coroutine], &modules);
            session = other;
            coroutine = twins.pop().expect("one coroutine");
            if !matches!(stop, Stop::OutOfCycles { .. }) {
                break stop;
            }
        };
        match expected {
            Ok(value) => {
                assert_eq!((stop, coroutine.results()), (Stop::Finished, &[value][..]), "{name}")
            }
            Err(frames) => {
                let again = run(&mut session, &mut coroutine, Cycles(1));
                let Stop::Fault(fault) = again else { panic!("{name}: no fault") };
                assert_eq!(
                    (stop, fault.code, fault.instance),
                    (Stop::Fault(fault), FaultCode::MemoryOutOfBounds, first),
                    "{name}"
                );
                assert_eq!(
                    coroutine.backtrace(&session).count(),
                    frames,
                    "{name}: a tail call leaves no frame"
                );
            }
        }
        let mut dropper =
            Coroutine::start(&session, function(&session, first, "drop"), &[]).expect("it starts");
        assert_eq!(run(&mut session, &mut dropper, Cycles(1_000)), Stop::Finished);
        let (mut session, _) = through(&mut session, &[dropper], &modules);
        let mut init =
            Coroutine::start(&session, function(&session, first, "init"), &[]).expect("it starts");
        assert!(
            matches!(run(&mut session, &mut init, Cycles(1_000)), Stop::Fault(_)),
            "a dropped segment stays dropped"
        );
    }
}

#[test]
fn a_digest_follows_every_kind_of_write() {
    let module = load(
        r#"(module (memory 2) (table 4 funcref) (global (mut i64) (i64.const 0)) (func $f) (elem declare func $f)
            (data $d "xyz") (elem $e funcref (ref.func $f))
            (func (export "store") (i32.store8 (i32.const 70000) (i32.const 1)))
            (func (export "straddle") (i64.store (i32.const 4092) (i64.const -1)))
            (func (export "fill") (memory.fill (i32.const 9000) (i32.const 5) (i32.const 100)))
            (func (export "copy") (memory.copy (i32.const 40000) (i32.const 9000) (i32.const 10)))
            (func (export "init") (memory.init $d (i32.const 20000) (i32.const 0) (i32.const 3)))
            (func (export "grow") (drop (memory.grow (i32.const 1))))
            (func (export "table") (table.set (i32.const 2) (ref.func $f)))
            (func (export "table.init") (table.init $e (i32.const 3) (i32.const 0) (i32.const 1)))
            (func (export "table.grow") (drop (table.grow (ref.null func) (i32.const 1))))
            (func (export "global") (global.set 0 (i64.const 3)))
            (func (export "data.drop") (data.drop $d))
            (func (export "elem.drop") (elem.drop $e)))"#,
    );
    let mut session = Session::new(SessionLimits::default());
    let instance = session.instantiate(Arc::clone(&module), &[]).expect("no imports");
    let mut seen = vec![session_digest(&mut session)];
    for export in module.exports() {
        let mut coroutine =
            Coroutine::start(&session, function(&session, instance, &export.name), &[])
                .expect("it starts");
        assert_eq!(
            run(&mut session, &mut coroutine, Cycles(1 << 20)),
            Stop::Finished,
            "{}",
            export.name
        );
        let digest = session_digest(&mut session);
        assert!(!seen.contains(&digest), "{} changed nothing in the digest", export.name);
        assert_eq!(
            session_digest(&mut session),
            digest,
            "{}: asking again changes nothing",
            export.name
        );
        seen.push(digest);
        through(&mut session, &[coroutine], std::slice::from_ref(&module));
    }
    let memory = session.instance_memory(instance).expect("it has a memory");
    assert!(session.memory_mut(memory).write(100, b"host"));
    assert!(
        !seen.contains(&session_digest(&mut session)),
        "a write of the host is not in the digest"
    );
}

/// A stack limit below the inline slots holds, also after a call that needs no slot: a host
/// function without arguments.
#[test]
fn a_limit_of_few_slots_holds_after_a_call_that_needs_none_and_through_bytes() {
    let module = load(
        r#"(module (import "host" "nothing" (func $nothing)) (export "nothing" (func $nothing))
        (func $down (export "down") (call $down)))"#,
    );
    for slots in 2..=10 {
        let limits = SessionLimits { stack_bytes: slots * 8, ..SessionLimits::default() };
        let depth = |called_before: bool, snapshots: bool| {
            let mut session = Session::new(limits);
            let nothing = session
                .add_host_function(40, &FunctionType::new(&[], &[]), Cycles(9))
                .expect("a cheap function");
            let instance = session
                .instantiate(Arc::clone(&module), &[Extern::Function(nothing)])
                .expect("it links");
            let [nothing, down] =
                ["nothing", "down"].map(|name| function(&session, instance, name));
            let mut coroutine =
                Coroutine::start(&session, if called_before { nothing } else { down }, &[])
                    .expect("it starts");
            if called_before {
                assert!(matches!(run(&mut session, &mut coroutine, Cycles(1)), Stop::Host(_)));
                coroutine.resume(&[]);
                coroutine.call_next(&session, down, &[]).expect("it continues");
            }
            let before = coroutine.used();
            loop {
                match run(&mut session, &mut coroutine, Cycles(1)) {
                    Stop::OutOfCycles { .. } if snapshots => {
                        let (other, mut twins) =
                            through(&mut session, &[coroutine], std::slice::from_ref(&module));
                        (session, coroutine) = (other, twins.remove(0));
                    }
                    Stop::OutOfCycles { .. } => {}
                    Stop::Fault(fault) => {
                        break (
                            fault.code,
                            coroutine.used() - before,
                            coroutine.backtrace(&session).count(),
                        );
                    }
                    stop => panic!("{stop:?}"),
                }
            }
        };
        let expected = depth(false, false);
        assert_eq!(expected.0, FaultCode::StackExhausted);
        for (called_before, snapshots) in [(false, true), (true, false), (true, true)] {
            assert_eq!(
                depth(called_before, snapshots),
                expected,
                "{slots} slots, called before: {called_before}, through bytes: {snapshots}"
            );
        }
    }
}
