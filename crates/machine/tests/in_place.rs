//! A host call handled in place is equivalent to a stop, a resume and another run, under every
//! slicing.

use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{
    CallOutcome, Coroutine, CoroutineTable, Dispatch, Extern, Host, Session, SessionLimits, Stop,
    coroutine_digest, run, run_batch, session_digest,
};
use wavelock_module::{FunctionType, Limits, Module, ValueType};

const GUEST: &str = r#"(module
    (import "host" "add" (func $add (param i32 i32) (result i32)))
    (import "host" "put" (func $put (param i64 i32) (result i32)))
    (memory 1)
    (func (export "main") (param $n i64) (result i64) (local $sum i32) (local $twist i32)
      (loop $l
        (local.set $sum (call $add (local.get $sum) (i32.wrap_i64 (local.get $n))))
        (local.set $sum (call $add (local.get $twist) (local.get $sum)))
        (local.set $twist (call $add (i32.const 11) (local.get $sum)))
        (local.set $sum (call $add (local.get $sum) (i32.const 5)))
        (local.set $sum (i32.add (local.get $sum) (call $put (local.get $n) (i32.and (local.get $sum) (i32.const 8191)))))
        (local.set $n (i64.sub (local.get $n) (i64.const 1)))
        (br_if $l (i64.ne (local.get $n) (i64.const 0))))
      (i64.extend_i32_s (local.get $sum))))"#;

/// What the two functions do: `add` adds three times its first argument to its second; `put` writes
/// its first argument where its second points.
enum Effect {
    Result(u64),
    Number(u64),
}

fn handle(number: u16, [first, second]: [u64; 2]) -> Effect {
    if number == 1 {
        Effect::Result(
            u64::from((first as u32).wrapping_mul(3).wrapping_add(second as u32)) | 0xdead << 32,
        )
    } else {
        Effect::Number(first)
    }
}

/// Declines every `every`-th call: none, all or some.
struct Mixed {
    every: u32,
    calls: u32,
    handled: u32,
}

impl Host for Mixed {
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> CallOutcome {
        self.calls += 1;
        assert_eq!(memory_bytes, 65_536);
        if self.every == 0 || self.calls.is_multiple_of(self.every) {
            return CallOutcome::DECLINED;
        }
        self.handled += 1;
        // A shorter slice is just another slicing.
        let earlier = if self.calls.is_multiple_of(5) { self.calls % 90 } else { 0 };
        match handle(number, [first, second]) {
            Effect::Result(result) => CallOutcome::result(result).shortening_slice(earlier),
            Effect::Number(number) => CallOutcome::number(number).shortening_slice(earlier),
        }
    }
}

/// [`run`], with a host that is offered calls: a batch of one coroutine.
fn run_in_place(
    session: &mut Session,
    coroutine: &mut Coroutine,
    cycles: Cycles,
    host: &mut impl Host,
) -> Stop {
    let mut table = CoroutineTable::new(vec![coroutine.clone()]);
    let cycles = cycles.0.min(u64::from(Dispatch::MAX_CYCLES)) as u32;
    let end = run_batch(session, &mut table, (Dispatch { slot: 0, cycles }, 0), host, u16::MAX);
    *coroutine = table.into_slots().remove(0);
    end.stop.expect("no other coroutine is dispatched")
}

/// Runs the guest to its end in slices of `bound`: result, cycles, digests, calls handled in place.
fn outcome(bound: u64, every: u32) -> (u64, Cycles, [u8; 64], u32) {
    let module = Arc::new(Module::from_text(GUEST.as_bytes(), &Limits::default()).expect("valid"));
    let mut session = Session::new(SessionLimits::default());
    let add = FunctionType::new(&[ValueType::I32, ValueType::I32], &[ValueType::I32]);
    let put = FunctionType::new(&[ValueType::I64, ValueType::I32], &[ValueType::I32]);
    let add = session.add_host_function(1, &add, Cycles(7)).expect("fits");
    let put = session.add_host_function(2, &put, Cycles(30)).expect("fits");
    let instance = session
        .instantiate(module, &[Extern::Function(add), Extern::Function(put)])
        .expect("links");
    let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!("exported") };
    let memory = session.instance_memory(instance).expect("it has one");
    let mut coroutine = Coroutine::start(&session, main, &[200]).expect("starts");
    let mut host = Mixed { every, calls: 0, handled: 0 };
    loop {
        let stop = if every == 1 {
            run(&mut session, &mut coroutine, Cycles(bound))
        } else {
            run_in_place(&mut session, &mut coroutine, Cycles(bound), &mut host)
        };
        match stop {
            Stop::OutOfCycles { .. } => {}
            Stop::Host(call) => {
                let &[first, second] = coroutine.host_arguments() else { panic!("both have two") };
                match handle(call.number, [first, second]) {
                    Effect::Result(result) => coroutine.resume(&[result]),
                    Effect::Number(number) => {
                        assert!(
                            session.memory_mut(memory).write(second as u32, &number.to_le_bytes())
                        );
                        coroutine.resume(&[0]);
                    }
                }
            }
            Stop::Finished => break,
            Stop::Fault(fault) => panic!("{fault:?}"),
        }
    }
    let mut digest = [0; 64];
    digest[..32].copy_from_slice(&session_digest(&mut session).0);
    digest[32..].copy_from_slice(&coroutine_digest(&session, &coroutine).0);
    (coroutine.results()[0], coroutine.used(), digest, host.handled)
}

#[test]
fn calls_handled_in_place_equal_stops() {
    let (result, used, digest, _) = outcome(u64::MAX, 1);
    for bound in [1, 2, 5, 8, 9, 31, 38, 100, 4_096, 1 << 29, u64::MAX] {
        for every in [0, 1, 2, 3, 1_000_000] {
            let found = outcome(bound, every);
            assert_eq!(
                (found.0, found.1, found.2),
                (result, used, digest),
                "slices of {bound}, every {every}"
            );
            assert!(
                every <= 1 || found.3 > 100,
                "slices of {bound}, every {every}: {} in place",
                found.3
            );
        }
    }
}

/// The results of the host function, in turn.
const RESULTS: [u64; 6] = [0, 0, 1, 0, u32::MAX as u64, 7];

/// A guest that branches on the results of its calls.
fn testing(test: &str, constant: i64) -> String {
    let test = match test {
        "is" => "(call $f (local.get $n) (i32.const 64))".to_owned(),
        "eqz" => "(i32.eqz (call $f (local.get $n) (i32.const 64)))".to_owned(),
        _ => format!("(i32.{test} (call $f (local.get $n) (i32.const 64)) (i32.const {constant}))"),
    };
    // The branch goes forwards over something, nowhere, and backwards to a loop header.
    format!(
        r#"(module (import "host" "f" (func $f (param i64 i32) (result i32))) (memory 1)
            (func (export "main") (param $n i64) (result i64) (local $sum i64)
              (loop $l
                (if {test} (then (local.set $sum (i64.add (local.get $sum) (i64.mul (local.get $n) (i64.const 3))))))
                (block (br_if 0 {test}))
                (local.set $n (i64.sub (local.get $n) (i64.const 1)))
                (br_if $l (i32.or (i32.wrap_i64 (local.get $n)) (i32.const 0))))
              (local.set $n (i64.const 9))
              (loop $m
                (local.set $n (i64.sub (local.get $n) (i64.const 1)))
                (if (i64.eqz (local.get $n)) (then (return (local.get $sum))))
                (br_if $m {test})
                (local.set $sum (i64.add (local.get $sum) (i64.const 1)))
                (br $m))
              (i64.const 0)))"#
    )
}

/// Handles every call in place, or none.
struct AllOrNone {
    is_in_place: bool,
    calls: usize,
}

impl Host for AllOrNone {
    fn call(&mut self, _number: u16, first: u64, _second: u64, _memory_bytes: u64) -> CallOutcome {
        if !self.is_in_place {
            return CallOutcome::DECLINED;
        }
        self.calls += 1;
        match RESULTS[self.calls % RESULTS.len()] {
            0 if self.calls.is_multiple_of(2) => CallOutcome::number(first),
            result => CallOutcome::result(result),
        }
    }
}

/// Runs the guest in slices of `bound`: digest and cycles at the end of each slice, and the result.
fn slices(module: &Arc<Module>, bound: u64, is_in_place: bool) -> (Vec<([u8; 32], Cycles)>, u64) {
    let mut session = Session::new(SessionLimits::default());
    let kind = FunctionType::new(&[ValueType::I64, ValueType::I32], &[ValueType::I32]);
    let function = session.add_host_function(1, &kind, Cycles(7)).expect("fits");
    let instance =
        session.instantiate(module.clone(), &[Extern::Function(function)]).expect("links");
    let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!("exported") };
    let memory = session.instance_memory(instance).expect("it has one");
    let mut coroutine = Coroutine::start(&session, main, &[9]).expect("starts");
    let mut host = AllOrNone { is_in_place, calls: 0 };
    let (mut seen, mut left) = (Vec::new(), bound);
    loop {
        let before = coroutine.used();
        match run_in_place(&mut session, &mut coroutine, Cycles(left), &mut host) {
            Stop::OutOfCycles { .. } => {
                seen.push((coroutine_digest(&session, &coroutine).0, coroutine.used()));
                left = bound;
            }
            Stop::Host(_) => {
                let first = coroutine.host_arguments()[0];
                host.calls += 1;
                let result = RESULTS[host.calls % RESULTS.len()];
                if result == 0 && host.calls.is_multiple_of(2) {
                    assert!(session.memory_mut(memory).write(64, &first.to_le_bytes()));
                }
                coroutine.resume(&[result]);
                left = left.saturating_sub((coroutine.used() - before).0);
            }
            Stop::Finished => break,
            Stop::Fault(fault) => panic!("{fault:?}"),
        }
    }
    seen.push((session_digest(&mut session).0, coroutine.used()));
    (seen, coroutine.results()[0])
}

/// The zero path skips a branch on the result: same target, same cost, same ends of slices.
#[test]
fn the_zero_path_continues_where_the_skipped_branch_would() {
    let tests =
        ["is", "eqz", "eq", "ne", "lt_s", "lt_u", "gt_s", "gt_u", "le_s", "le_u", "ge_s", "ge_u"];
    let mut results = Vec::new();
    for (test, constant) in tests
        .iter()
        .flat_map(|test| [-40_000, -2, -1, 0, 1, 2, 40_000].map(|constant| (test, constant)))
    {
        let module = Module::from_text(testing(test, constant).as_bytes(), &Limits::default())
            .expect("valid");
        let module = Arc::new(module);
        for bound in (1..60).chain([100, 1 << 20]) {
            let (stopped, in_place) = (slices(&module, bound, false), slices(&module, bound, true));
            assert_eq!(stopped, in_place, "{test} {constant}, slices of {bound}");
            results.push(stopped.1);
        }
    }
    results.sort_unstable();
    results.dedup();
    assert!(results.len() > 8, "the tests differ: {results:?}");
}
