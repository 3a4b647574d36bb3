//! Hostile embedders: host functions that panic, block and call back, storms of starts and ends,
//! uploads of garbage. Each gets a typed error or a bounded cost, and the machine goes on.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wavelock::{
    Cycles, Engine, Error, GiveError, Host, HostKind, HostNumber, Limits, Machine, Remote, Session,
    SessionBuilder, SessionOutcome, State,
};

/// Calls a function of the host once per frame and outputs what it returns.
const CALLER: &[u8] = br#"(module
  (import "bad" "call" (func $call (param i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start")
    (loop $forever
      (i32.store (i32.const 0) (call $call (i32.const 7)))
      (drop (call $output (i32.const 0) (i32.const 4)))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

/// Outputs its input.
const ECHO: &[u8] = include_bytes!("../examples/guests/echo.wat");

type State32 = Host<u32>;

fn machine(engine: &Engine, host: State32) -> (Machine, Session, Session) {
    let [caller, echo] = [CALLER, ECHO].map(|text| engine.module(text).expect("a module"));
    let machine = Machine::builder(engine)
        .lanes(2)
        .limits(Limits { sessions: 600, ..Limits::default() })
        .host(host)
        .session(SessionBuilder::new("caller", &caller))
        .session(SessionBuilder::new("echo", &echo))
        .build()
        .expect("a machine");
    let [caller, echo] = ["caller", "echo"].map(|name| machine.session(name).expect("a session"));
    (machine, caller, echo)
}

/// The machine goes on: another session echoes, and the caller has faulted.
fn goes_on(machine: &mut Machine, caller: Session, echo: Session) {
    machine.advance().expect("a frame");
    machine.input(echo, b"on").expect("an input");
    let report = machine.advance().expect("a frame");
    assert_eq!(report.outputs(), [(echo, b"on".to_vec())]);
    let outcome = machine.usage(caller).and_then(|usage| usage.outcome);
    assert_eq!(outcome, Some(SessionOutcome::Faulted));
}

#[test]
fn a_function_that_panics_or_reaches_for_its_own_state_faults_its_coroutine() {
    let engine = Engine::new(2).expect("threads");
    let host = Host::new("bad", 1, 0).view(("bad", "call"), Cycles(10), |_, _, number: i32| {
        assert!(number != 7, "planted panic");
        number
    });
    let (mut bad, caller, echo) = machine(&engine, host);
    goes_on(&mut bad, caller, echo);
    // A lock on the state that the call itself holds would never come.
    let own: Arc<Mutex<Option<State<u32>>>> = Arc::default();
    for writes in [false, true] {
        let inside = own.clone();
        let host = Host::new("bad", 1, 0).view(("bad", "call"), Cycles(10), move |_, _, _: i32| {
            let own = inside.lock().expect("free").clone().expect("it was set");
            if writes { own.with_mut(|state| *state + 1) } else { own.with(|state| *state) }
        });
        *own.lock().expect("free") = Some(host.state());
        let (mut bad, caller, echo) = machine(&engine, host);
        goes_on(&mut bad, caller, echo);
        own.lock().expect("free").as_ref().expect("it was set").with_mut(|state| *state = 5);
    }
}

#[test]
fn a_function_may_tell_its_own_machine_something_for_the_next_frame() {
    let engine = Engine::new(1).expect("a thread");
    let remote: Arc<Mutex<Option<(Remote, Session)>>> = Arc::default();
    let inside = remote.clone();
    let host =
        Host::new("bad", 1, 0).view(("bad", "call"), Cycles(10), move |_, _, number: i32| {
            if let Some((remote, echo)) = &*inside.lock().expect("free") {
                remote.input(*echo, b"from a call").expect("room");
                remote.interrupt();
            }
            number
        });
    let (mut machine, caller, echo) = machine(&engine, host);
    *remote.lock().expect("free") = Some((machine.remote(), echo));
    for round in 0..3 {
        while let Err(error) = machine.advance() {
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        }
        let outputs = machine.report().outputs().to_vec();
        assert_eq!(outputs[0], (caller, 7i32.to_le_bytes().to_vec()));
        assert_eq!(outputs.len(), 1 + usize::from(round > 0), "{outputs:?}");
    }
}

#[test]
fn a_function_that_blocks_holds_up_its_own_machine_only() {
    let engine = Engine::new(2).expect("threads");
    let (let_go, wait) = channel::<()>();
    let (called, calls): (Sender<()>, _) = channel();
    let wait = Mutex::new(wait);
    let host =
        Host::new("bad", 1, 0).view(("bad", "call"), Cycles(10), move |_, _, number: i32| {
            let _ = called.send(());
            let _ = wait.lock().expect("free").recv();
            number
        });
    let (mut blocked, caller, _) = machine(&engine, host);
    let fine = Host::new("bad", 1, 0).pure(("bad", "call"), Cycles(10), |number: i32| number + 1);
    let (mut other, ..) = machine(&engine, fine);
    let thread = std::thread::spawn(move || {
        blocked.advance().expect("a frame");
        blocked
    });
    calls.recv_timeout(Duration::from_secs(60)).expect("it is called");
    for _ in 0..20 {
        assert_eq!(other.advance().expect("a frame").outputs().len(), 1);
    }
    drop(let_go);
    let mut blocked = thread.join().expect("it goes on");
    blocked.advance().expect("a frame");
    assert_eq!(blocked.usage(caller).and_then(|usage| usage.outcome), None);
}

#[test]
fn functions_with_types_of_run_time_are_checked_like_others() {
    let engine = Engine::new(1).expect("a thread");
    let typed = |results: &[HostNumber]| {
        Host::new("bad", 1, 0u32).function(
            HostKind::Pure,
            ("bad", "call"),
            Cycles(10),
            (&[HostNumber::I32], results),
            |_, _, arguments, results| {
                // Bits above the number are no part of it.
                results[0] = arguments[0] | 0xff << 32;
                arguments[0] == 7
            },
        )
    };
    let (mut fits, caller, _) = machine(&engine, typed(&[HostNumber::I32]));
    let report = fits.advance().expect("a frame");
    assert_eq!(report.outputs(), [(caller, 7i32.to_le_bytes().to_vec())]);
    let module = engine.module(CALLER).expect("a module");
    let builder = Machine::builder(&engine).host(typed(&[HostNumber::I64]));
    let refused = builder.session(SessionBuilder::new("caller", &module)).build();
    assert!(refused.expect_err("another type").to_string().contains("it exists with type"));
    let fails = Host::new("bad", 1, 0u32).function(
        HostKind::View,
        ("bad", "call"),
        Cycles(10),
        (&[HostNumber::I32], &[HostNumber::I32]),
        |_, _, _, _| false,
    );
    let (mut fails, caller, echo) = machine(&engine, fails);
    goes_on(&mut fails, caller, echo);
}

#[test]
fn storms_of_starts_replacements_and_ends_are_bounded_and_the_machine_goes_on() {
    let engine = Engine::new(2).expect("threads");
    let fine = Host::new("bad", 1, 0).pure(("bad", "call"), Cycles(10), |number: i32| number + 1);
    let (mut machine, caller, echo) = machine(&engine, fine);
    let module = engine.module(ECHO).expect("a module");
    let (mut started, mut full) = (0, 0);
    for frame in 0..8 {
        for number in 0..200 {
            let session = SessionBuilder::new(&format!("s{frame}.{number}"), &module);
            match machine.start_session(session) {
                Ok(session) => {
                    started += 1;
                    machine.replace_session(session, &module, b"carried").expect("a module");
                    machine.end_session(session).expect("it is there");
                    machine.hold(session).expect("it has not ended yet");
                }
                // The limit on sessions, or on what waits.
                Err(Error::Input(GiveError::Setting { .. } | GiveError::Full { .. })) => full += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // The same session over and over, within one frame.
        for _ in 0..20 {
            machine.replace_session(echo, &module, &[frame]).expect("a module");
        }
        let report = machine.advance().expect("a frame");
        let written: Vec<_> = report.outputs().iter().filter(|(of, _)| *of == echo).collect();
        assert_eq!(written, [&(echo, vec![frame; 20])], "what was carried and not read stays");
    }
    assert!(started > 500 && full > 100, "{started} started, {full} refused");
    assert_eq!(machine.usage(caller).and_then(|usage| usage.outcome), None);
}

#[test]
fn garbage_is_refused_as_a_module_and_as_a_file() {
    let engine = Engine::new(1).expect("a thread");
    let fine = Host::new("bad", 1, 0).pure(("bad", "call"), Cycles(10), |number: i32| number + 1);
    let (mut machine, caller, echo) = machine(&engine, fine);
    let whole = engine.module(ECHO).expect("a module");
    let mut exported = Vec::new();
    machine.export(&mut exported).expect("a boundary");
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for round in 0..400 {
        let mut garbage: Vec<u8> = (0..next() % 600).map(|_| next() as u8).collect();
        if round % 2 == 0 {
            garbage.splice(0..0, *b"\0asm\x01\0\0\0");
        }
        assert!(matches!(engine.module(&garbage), Err(Error::Module(_))) || garbage.len() < 9);
        let mut broken = exported.clone();
        let at = next() % broken.len();
        broken[at] ^= 1 << (next() % 8);
        // Checksums find a changed byte; whatever they miss is a machine or an error.
        let _ = Machine::import(&engine, std::io::Cursor::new(broken));
    }
    assert!(Machine::import(&engine, std::io::Cursor::new(exported)).is_ok());
    let entryless = engine.module(b"(module)").expect("a module");
    let refused = machine.replace_session(echo, &entryless, b"");
    assert!(matches!(refused, Err(Error::Input(GiveError::Setting { .. }))));
    machine.replace_session(caller, &whole, b"fine").expect("a module");
    let report = machine.advance().expect("a frame");
    assert_eq!(report.outputs(), [(caller, b"fine".to_vec())]);
}
