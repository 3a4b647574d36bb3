//! Every host operation with any numbers: what a guest passes is anybody's, so each argument is
//! tried at the ends of its range, on a machine with something of everything (channels, coroutines,
//! contexts, input). The guest gets a code or faults; the host never panics (books that do not
//! balance at a frame's end would).

mod kit;

use kit::{Choices, Machine};
use std::fmt::Write as _;
use wavelock_abi::{Cycles, HostOperation, HostValue, SessionId};
use wavelock_kernel::OverrunPolicy;
use wavelock_system::{ContextSpec, Grant, GrantSpec};

/// Arguments of 32 and of 64 bits, as they are written.
const ENDS: [i64; 14] = [
    0,
    1,
    2,
    8,
    255,
    65_528,
    65_536,
    -1,
    -2,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
    0x7fff_ffff_0000_0001,
];

/// A call of an operation with drawn arguments.
fn call(operation: HostOperation, choices: &mut Choices) -> String {
    let mut text = String::new();
    for value in operation.params() {
        let drawn = ENDS[choices.below(ENDS.len() as u64) as usize];
        let _ = match value {
            HostValue::I32 => write!(text, " (i32.const {})", drawn as i32),
            HostValue::I64 => write!(text, " (i64.const {drawn})"),
        };
    }
    let call = format!("(call ${}{text})", operation.import());
    if operation.results().is_empty() { call } else { format!("(drop {call})") }
}

/// A first coroutine that makes a channel with something in it and starts eight others; each calls
/// three operations, the drawn one among them.
fn machine(operation: HostOperation, seed: u64) -> Machine {
    let mut choices = Choices(seed);
    let mut body = String::new();
    for child in 0..8 {
        let others: Vec<HostOperation> =
            (0..2).map(|_| *choices.pick(HostOperation::ALL)).collect();
        let calls: Vec<String> = [others[0], operation, others[1]]
            .into_iter()
            .map(|operation| call(operation, &mut choices))
            .collect();
        let _ = write!(body, "(func $child{child} (param i64) {})", calls.join(" "));
    }
    let names: Vec<String> = (0..8).map(|child| format!("$child{child}")).collect();
    let _ = write!(body, "(elem (i32.const 0) {})", names.join(" "));
    let spawns: String = (0..8)
        .map(|child| format!("(drop (call $spawn (i32.const {child}) (i64.const 0)))"))
        .collect();
    let _ = write!(
        body,
        r#"(func (export "_start") (drop (call $channel (i32.const 2))) (drop (call $send (i32.const 0) (i64.const 1))) {spawns}
          (call $sleep (i64.const 2)) (drop (call $close (i32.const 0))) (call $sleep (i64.const 1)))"#
    );
    let mut machine = Machine::one(&body);
    let session = SessionId(0);
    machine.input(1, session, b"input");
    machine.spec.max_frames = Some(6);
    let context = ContextSpec::new("own", session, Cycles(20_000), Cycles(500_000));
    machine.spec.contexts.push(ContextSpec { overrun: OverrunPolicy::Demote, ..context });
    machine
        .spec
        .grants
        .extend([Grant::Control, Grant::Policy].map(|grant| GrantSpec { session, grant }));
    machine
}

#[test]
fn every_operation_takes_any_numbers() {
    let mut faulted = 0;
    for (at, &operation) in HostOperation::ALL.iter().enumerate() {
        for trial in 0..12 {
            let seed = at as u64 * 1_000 + trial;
            println!("{operation:?}, seed {seed}");
            let run = machine(operation, seed).run();
            faulted += run.session(0).faults.len();
        }
    }
    assert!(faulted > 100, "pointers out of range fault: {faulted}");
}
