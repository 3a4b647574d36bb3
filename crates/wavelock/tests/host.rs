//! Host functions: exact on any number of threads, rolled back with the machine, refused by name.

use std::io::Write;
use std::sync::{Arc, Mutex};
use wavelock::{
    Cycles, Digest, Engine, Error, Host, Level, Machine, MachineBuilder, SessionBuilder,
    SessionOutcome, State,
};

/// Every frame a guest reads a cell, asks for a pure product, writes what it read into the next
/// cell by a command, and outputs the value.
const GUEST: &[u8] = br#"(module
  (import "world" "get" (func $get (param i32) (result i64)))
  (import "world" "set" (func $set (param i32 i64)))
  (import "math" "mix" (func $mix (param i64 i32) (result i64)))
  (import "wavelock" "lane" (func $lane (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start") (local $value i64) (local $turns i32)
    (loop $forever
      (local.set $value (call $get (i32.rem_u (local.get $turns) (i32.const 8))))
      (local.set $value (call $mix (local.get $value) (call $lane)))
      (call $set (i32.rem_u (i32.add (local.get $turns) (i32.const 1)) (i32.const 8))
        (local.get $value))
      (local.set $turns (i32.add (local.get $turns) (i32.const 1)))
      (i64.store (i32.const 0) (local.get $value))
      (drop (call $output (i32.const 0) (i32.const 8)))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

#[derive(Clone, Default)]
struct Cells {
    cells: [i64; 8],
    /// The sessions that set a cell, in order.
    order: Arc<Vec<u32>>,
}

fn host(version: u32, factor: i64) -> Host<Cells> {
    Host::new("cells", version, Cells::default())
        .pure(("math", "mix"), Cycles(20), move |(value, lane): (i64, i32)| {
            value.wrapping_mul(factor).wrapping_add(i64::from(lane) + 1)
        })
        .view(("world", "get"), Cycles(40), |cells: &Cells, _, at: u32| {
            cells.cells.get(at as usize).copied().unwrap_or(-1)
        })
        .command(("world", "set"), Cycles(60), |cells, caller, (at, value): (u32, i64)| {
            Arc::make_mut(&mut cells.order).push(caller.session().number());
            if let Some(cell) = cells.cells.get_mut(at as usize) {
                *cell = cell.wrapping_mul(7).wrapping_add(value);
            }
        })
}

fn builder(engine: &Engine, host: Host<Cells>) -> MachineBuilder {
    let guest = engine.module(GUEST).expect("a module");
    let sessions = (0..4).map(|at| SessionBuilder::new(&format!("s{at}"), &guest).lane(3 - at));
    sessions.fold(Machine::builder(engine).lanes(4).host(host), MachineBuilder::session)
}

fn machine(threads: usize, rollback: u64) -> (Machine, State<Cells>) {
    let host = host(1, 31);
    let state = host.state();
    let engine = Engine::new(threads).expect("threads");
    (builder(&engine, host).rollback(rollback).build().expect("a machine"), state)
}

fn run(machine: &mut Machine, frames: u64) -> Vec<Digest> {
    (0..frames).map(|_| machine.advance().expect("a frame").digest()).collect()
}

#[test]
fn host_calls_are_exact_on_any_number_of_threads() {
    let (mut first, state) = machine(1, 0);
    let expected = run(&mut first, 20);
    let expected_cells = state.with(|cells| cells.cells);
    assert_ne!(expected_cells, [0; 8]);
    state.with(|cells| assert_eq!(cells.order[..8], [3, 2, 1, 0, 3, 2, 1, 0], "lane by lane"));
    for threads in 2..=4 {
        let (mut machine, state) = machine(threads, 0);
        assert_eq!(run(&mut machine, 20), expected, "{threads} threads");
        assert_eq!(state.with(|cells| cells.cells), expected_cells);
    }
}

#[test]
fn the_hosts_state_goes_back_with_the_machine() {
    let (mut straight, expected_state) = machine(1, 0);
    let expected = run(&mut straight, 20);
    let (mut machine, state) = machine(2, 100);
    let start = machine.save().expect("a boundary");
    run(&mut machine, 7);
    let seventh = machine.save().expect("a boundary");
    state.with_mut(|cells| cells.cells = [99; 8]);
    run(&mut machine, 5);
    machine.load(&seventh).expect("an open frame");
    assert_eq!(run(&mut machine, 13), expected[7..]);
    machine.load(&start).expect("an open frame");
    assert_eq!(run(&mut machine, 20), expected);
    let [found, wanted] = [&state, &expected_state].map(|state| state.with(|cells| cells.cells));
    assert_eq!(found, wanted);
}

/// Another answer of a view, or another version, is another digest.
#[test]
fn another_host_is_another_run() {
    let engine = Engine::new(1).expect("a thread");
    let digests = |host: Host<Cells>, changes: bool| {
        let state = host.state();
        let mut machine = builder(&engine, host).build().expect("a machine");
        let first = machine.digest();
        let mut frames = run(&mut machine, 3);
        if changes {
            state.with_mut(|cells| cells.cells[3] += 1);
        }
        frames.extend(run(&mut machine, 1));
        (first, frames)
    };
    let (identity, frames) = digests(host(1, 31), false);
    assert_eq!(digests(host(1, 31), false), (identity, frames.clone()));
    assert_ne!(digests(host(2, 31), false).0, identity, "the version is part of the identity");
    let (same, changed) = digests(host(1, 31), true);
    assert_eq!((same, &changed[..3]), (identity, &frames[..3]));
    assert_ne!(changed[3], frames[3], "what a view answers is in the digest");
}

#[test]
fn a_panic_faults_the_coroutine_and_not_the_process() {
    let engine = Engine::new(2).expect("threads");
    let guest = engine
        .module(
            br#"(module
              (import "host" "fall" (func $fall (param i32) (result i32)))
              (import "host" "drop" (func $drop))
              (import "wavelock" "sleep" (func $sleep (param i64)))
              (memory 1)
              (func (export "_start")
                (call $drop)
                (call $sleep (i64.const 1))
                (drop (call $fall (i32.const 7)))))"#,
        )
        .expect("a module");
    let host = Host::new("falls", 1, 0u32)
        .view(("host", "fall"), Cycles(10), |_, _, number: u32| -> u32 {
            assert!(number > 7, "on purpose");
            number
        })
        .command(("host", "drop"), Cycles(10), |state: &mut u32, _, (): ()| {
            *state += 1;
            assert!(*state > 1, "on purpose");
        });
    let state = host.state();
    let sessions = ["first", "second"].map(|name| SessionBuilder::new(name, &guest));
    let [first, second] = sessions;
    let mut machine =
        Machine::builder(&engine).host(host).session(first).session(second).build().expect("it");
    let report = machine.advance().expect("a frame");
    let refused: Vec<String> = report.refused().iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["1 commands of guests panicked in the host"]);
    assert_eq!(state.with(|state| *state), 2, "the second command ran");
    let report = machine.advance().expect("a frame");
    let ended: Vec<SessionOutcome> = report.ended().iter().map(|(_, how)| *how).collect();
    assert_eq!(ended, [SessionOutcome::Faulted; 2]);
    assert!(machine.advance().is_ok(), "the machine goes on");
}

#[test]
fn views_read_and_write_guest_memory_within_bounds() {
    let engine = Engine::new(1).expect("a thread");
    let guest = engine
        .module(
            br#"(module
              (import "host" "upper" (func $upper (param i32 i32) (result i32)))
              (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
              (memory 1)
              (data (i32.const 16) "quiet")
              (func (export "_start")
                (drop (call $upper (i32.const 16) (i32.const 5)))
                (i32.store (i32.const 24) (call $upper (i32.const 65534) (i32.const 5)))
                (drop (call $output (i32.const 16) (i32.const 12)))))"#,
        )
        .expect("a module");
    let host = Host::new("text", 1, ()).view(
        ("host", "upper"),
        Cycles(50),
        |(): &(), caller, (address, length): (u32, u32)| -> bool {
            let Some(text) = caller.read(address, length) else { return false };
            let text = text.to_ascii_uppercase();
            caller.write(address, &text)
        },
    );
    let session = SessionBuilder::new("text", &guest);
    let mut machine = Machine::builder(&engine).host(host).session(session).build().expect("it");
    let report = machine.advance().expect("a frame");
    assert_eq!(report.outputs()[0].1, b"QUIET\0\0\0\0\0\0\0");
}

#[test]
fn imports_and_hosts_that_do_not_fit_are_refused_by_name() {
    let engine = Engine::new(1).expect("a thread");
    let refused = |import: &str, host: Host<()>| -> String {
        let text = format!("(module (import {import}) (memory 1) (func (export \"_start\")))");
        let guest = engine.module(text.as_bytes()).expect("a module");
        let session = SessionBuilder::new("guest", &guest);
        let built = Machine::builder(&engine).host(host).session(session).build();
        built.expect_err("it is refused").to_string()
    };
    let host = || {
        Host::new("blocks", 1, ()).pure(("world", "get_block"), Cycles(9), |at: (i32, i32)| at.0)
    };
    let said = refused("\"world\" \"get_blok\" (func (param i32 i32) (result i32))", host());
    assert!(said.contains("did you mean `get_block` of the host?"), "{said}");
    let said = refused("\"word\" \"get_block\" (func (param i32 i32) (result i32))", host());
    assert!(said.contains("did you mean `world` `get_block` of the host?"), "{said}");
    let said = refused("\"world\" \"get_block\" (func (param i32) (result i32))", host());
    assert!(said.contains("it exists with type"), "{said}");
    let fits = "\"world\" \"get_block\" (func (param i32 i32) (result i32))";
    let twice = host().pure(("world", "get_block"), Cycles(9), |_: i32| 0);
    assert!(refused(fits, twice).contains("two functions"));
    let own = host().pure(("wavelock", "yield"), Cycles(9), |(): ()| ());
    assert!(refused(fits, own).contains("the guest interface"));
    let dear = host().pure(("world", "dear"), Cycles(u64::MAX), |(): ()| ());
    assert!(refused(fits, dear).contains("longest gap"));
}

/// A writer that others read.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A live machine with host functions, inputs and rollbacks is verified from its trace alone.
#[test]
fn a_recording_replays_without_the_host() {
    for level in [Level::Inputs, Level::Full] {
        let file = Bytes::default();
        let engine = Engine::new(2).expect("threads");
        let mut machine =
            builder(&engine, host(1, 31)).events(true).rollback(4).build().expect("a machine");
        machine.record(file.clone(), level).expect("a recording");
        run(&mut machine, 3);
        let state = machine.save().expect("a boundary");
        run(&mut machine, 3);
        machine.load(&state).expect("an open frame");
        machine.input_all(b"unread").expect("an input");
        run(&mut machine, 9);
        machine.stop().expect("an input");
        run(&mut machine, 1);
        machine.finish_recording().expect("no disk error");
        let bytes = file.0.lock().expect("no panic").clone();
        for workers in [1, 3] {
            let trace = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
            let verified = wavelock_replay::verify(trace, workers).expect("it can be run");
            assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
            assert_eq!(verified.summary.digest, machine.digest());
        }
    }
}

#[test]
fn an_exported_machine_needs_its_own_host() {
    let (mut first, _) = machine(1, 0);
    let expected = run(&mut first, 10);
    let (mut second, state) = machine(1, 0);
    run(&mut second, 6);
    let mut file = Vec::new();
    second.export(&mut file).expect("a boundary");
    let engine = Engine::new(2).expect("threads");
    let import = |host| Machine::import_with(&engine, std::io::Cursor::new(file.clone()), host);
    assert!(matches!(import(host(2, 31)), Err(Error::OtherHost { .. })));
    let third = host(1, 31);
    let cells = state.with(Cells::clone);
    third.state().with_mut(|state| *state = cells);
    let mut third = import(third).expect("its own host");
    assert_eq!(run(&mut third, 4), expected[6..]);
}
