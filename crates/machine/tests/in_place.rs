//! A host call that is answered in place is what a stop, an answer and another run would have been,
//! under every slicing.

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

/// What the two functions do: `add` adds its first argument thrice, to tell them apart; `put`
/// writes eight bytes where its second argument points.
enum Done {
    Result(u64),
    Number(u64),
}

fn answer(number: u16, [first, second]: [u64; 2]) -> Done {
    if number == 1 {
        Done::Result(
            u64::from((first as u32).wrapping_mul(3).wrapping_add(second as u32)) | 0xdead << 32,
        )
    } else {
        Done::Number(first)
    }
}

/// CallOutcomes in place unless a counter says to stop: never, always or sometimes.
struct Mixed {
    every: u32,
    asked: u32,
    done: u32,
}

impl Host for Mixed {
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> CallOutcome {
        self.asked += 1;
        assert_eq!(memory_bytes, 65_536);
        if self.every == 0 || self.asked.is_multiple_of(self.every) {
            return CallOutcome::DECLINED;
        }
        self.done += 1;
        // A shorter slice is just another slicing.
        let earlier = if self.asked.is_multiple_of(5) { self.asked % 90 } else { 0 };
        match answer(number, [first, second]) {
            Done::Result(result) => CallOutcome::result(result).shortening_slice(earlier),
            Done::Number(number) => CallOutcome::number(number).shortening_slice(earlier),
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

/// Runs it to its end in slices of `bound`; everything that can be seen of it afterwards.
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
    let mut host = Mixed { every, asked: 0, done: 0 };
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
                match answer(call.number, [first, second]) {
                    Done::Result(result) => coroutine.resume(&[result]),
                    Done::Number(number) => {
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
    (coroutine.results()[0], coroutine.used(), digest, host.done)
}

#[test]
fn answers_in_place_are_answers() {
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

/// A guest that asks about the answers of its calls, which a host answers in turn with 0 and with
/// these.
const ANSWERS: [u64; 6] = [0, 0, 1, 0, u32::MAX as u64, 7];

fn asking(question: &str, constant: i64) -> String {
    let test = match question {
        "is" => "(call $f (local.get $n) (i32.const 64))".to_owned(),
        "eqz" => "(i32.eqz (call $f (local.get $n) (i32.const 64)))".to_owned(),
        _ => format!(
            "(i32.{question} (call $f (local.get $n) (i32.const 64)) (i32.const {constant}))"
        ),
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

/// CallOutcomes every call in place, or none.
struct InTurn {
    is_in_place: bool,
    asked: usize,
}

impl Host for InTurn {
    fn call(&mut self, _number: u16, first: u64, _second: u64, _memory_bytes: u64) -> CallOutcome {
        if !self.is_in_place {
            return CallOutcome::DECLINED;
        }
        self.asked += 1;
        match ANSWERS[self.asked % ANSWERS.len()] {
            0 if self.asked.is_multiple_of(2) => CallOutcome::number(first),
            result => CallOutcome::result(result),
        }
    }
}

/// Runs the guest in slices of `bound`: what is seen of it at the end of each slice, and its
/// result.
fn slices(module: &Arc<Module>, bound: u64, is_in_place: bool) -> (Vec<([u8; 32], Cycles)>, u64) {
    let mut session = Session::new(SessionLimits::default());
    let kind = FunctionType::new(&[ValueType::I64, ValueType::I32], &[ValueType::I32]);
    let function = session.add_host_function(1, &kind, Cycles(7)).expect("fits");
    let instance =
        session.instantiate(module.clone(), &[Extern::Function(function)]).expect("links");
    let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!("exported") };
    let memory = session.instance_memory(instance).expect("it has one");
    let mut coroutine = Coroutine::start(&session, main, &[9]).expect("starts");
    let mut host = InTurn { is_in_place, asked: 0 };
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
                host.asked += 1;
                let result = ANSWERS[host.asked % ANSWERS.len()];
                if result == 0 && host.asked.is_multiple_of(2) {
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

/// An answer of 0 goes over a branch that asks about it to where the branch would have gone, at the
/// same cost; so every slice ends where it would have ended.
#[test]
fn answers_of_zero_go_where_the_branch_behind_them_goes() {
    let questions =
        ["is", "eqz", "eq", "ne", "lt_s", "lt_u", "gt_s", "gt_u", "le_s", "le_u", "ge_s", "ge_u"];
    let mut results = Vec::new();
    for (question, constant) in questions.iter().flat_map(|question| {
        [-40_000, -2, -1, 0, 1, 2, 40_000].map(|constant| (question, constant))
    }) {
        let module = Module::from_text(asking(question, constant).as_bytes(), &Limits::default())
            .expect("valid");
        let module = Arc::new(module);
        for bound in (1..60).chain([100, 1 << 20]) {
            let (stopped, in_place) = (slices(&module, bound, false), slices(&module, bound, true));
            assert_eq!(stopped, in_place, "{question} {constant}, slices of {bound}");
            results.push(stopped.1);
        }
    }
    results.sort_unstable();
    results.dedup();
    assert!(results.len() > 8, "the questions are told apart: {results:?}");
}
