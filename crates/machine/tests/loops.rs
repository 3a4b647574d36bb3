//! The superinstructions that step and test a loop counter equal the two instructions they replace:
//! every condition, both widths, at the ends of the range.

use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
use wavelock_module::{Limits, Module};

/// Maximum number of iterations.
const MOST: u64 = 50;

/// A loop that steps its counter until the condition fails, or [`MOST`] rounds are over; gives the
/// counter, and how many rounds there were. The counter is on the left of the condition, or on the
/// right.
fn source(kind: &str, condition: &str, step: i64, is_left: bool) -> String {
    let (counter, limit) = ("(local.get $counter)", "(local.get $limit)");
    let operands =
        if is_left { format!("{counter} {limit}") } else { format!("{limit} {counter}") };
    format!(
        r#"(module (func (export "main") (param $counter {kind}) (param $limit {kind}) (result {kind} i64) (local $rounds i64)
            (block $enough
                (loop $again
                    (br_if $enough (i64.eq (local.get $rounds) (i64.const {MOST})))
                    (local.set $rounds (i64.add (local.get $rounds) (i64.const 1)))
                    (local.set $counter ({kind}.add (local.get $counter) ({kind}.const {step})))
                    (br_if $again ({kind}.{condition} {operands}))))
            (local.get $counter) (local.get $rounds)))"#
    )
}

fn holds(condition: &str, left: u64, right: u64, is_narrow: bool) -> bool {
    let signed = |bits: u64| if is_narrow { i64::from(bits as u32 as i32) } else { bits as i64 };
    match condition {
        "ne" => left != right,
        "lt_s" => signed(left) < signed(right),
        "lt_u" => left < right,
        "le_s" => signed(left) <= signed(right),
        "le_u" => left <= right,
        other => panic!("{other}"),
    }
}

#[test]
fn fused_loop_counters_equal_separate_instructions() {
    let ends = [
        0,
        1,
        5,
        7,
        u64::MAX,
        u64::MAX - 6,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::from(u32::MAX),
        1 << 31,
        1 << 32,
    ];
    let (mut fused, mut most) = (0, 0);
    for (kind, is_narrow) in [("i32", true), ("i64", false)] {
        let mask = if is_narrow { u64::from(u32::MAX) } else { u64::MAX };
        for (condition, step, is_left) in ["ne", "lt_s", "lt_u", "le_s", "le_u"]
            .into_iter()
            .flat_map(|condition| [1, -1, 3, -32_768, 32_767, 40_000].map(|step| (condition, step)))
            .flat_map(|(condition, step)| [true, false].map(|is_left| (condition, step, is_left)))
        {
            let text = source(kind, condition, step, is_left);
            let module = Arc::new(
                Module::new(&wat::parse_str(&text).expect("a module"), &Limits::default())
                    .expect("it loads"),
            );
            fused += u32::from(module.disassemble(0).contains("loop."));
            let mut session = Session::new(SessionLimits::default());
            let instance = session.instantiate(module, &[]).expect("no imports");
            let Some(Extern::Function(main)) = session.export(instance, "main") else {
                panic!("it is exported")
            };
            for (start, limit) in
                ends.iter().flat_map(|&start| ends.map(|limit| (start & mask, limit & mask)))
            {
                let (mut counter, mut rounds) = (start, 0);
                while rounds < MOST {
                    rounds += 1;
                    counter = counter.wrapping_add(step as u64) & mask;
                    let (left, right) = if is_left { (counter, limit) } else { (limit, counter) };
                    if !holds(condition, left, right, is_narrow) {
                        break;
                    }
                }
                let mut coroutine =
                    Coroutine::start(&session, main, &[start, limit]).expect("it starts");
                assert_eq!(run(&mut session, &mut coroutine, Cycles(1_000_000)), Stop::Finished);
                assert_eq!(
                    coroutine.results(),
                    [counter, rounds],
                    "{kind}.{condition} from {start:#x} by {step} to {limit:#x}, on the left: {is_left}"
                );
                most = most.max(rounds);
            }
        }
    }
    assert!(fused >= 60 && most == MOST, "{fused} loops have one instruction for both");
}
