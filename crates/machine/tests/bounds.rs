//! A deep unwind and a large copy in slices of one cycle overrun by less than `G`; prepaid bulk
//! operations have no effect before they are paid for.

mod drive;
mod random;

use drive::{Driver, Sliced, Snapshots, Whole, slice};
use std::sync::Arc;
use wavelock_abi::{FaultCode, MAX_GAP};
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, session_digest};
use wavelock_module::{Limits, Module};

/// A session of one module, and a coroutine about to call its export `main`.
fn start(text: &str, limits: SessionLimits, arguments: &[u64]) -> (Session, Coroutine) {
    let module = Arc::new(
        Module::from_text(text.as_bytes(), &Limits::default())
            .unwrap_or_else(|error| panic!("{error}")),
    );
    let mut session = Session::new(limits);
    let instance = session.instantiate(module, &[]).unwrap_or_else(|error| panic!("{error}"));
    let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!("no main") };
    let coroutine =
        Coroutine::start(&session, main, arguments).unwrap_or_else(|error| panic!("{error:?}"));
    (session, coroutine)
}

/// Runs in slices of one cycle; `slice` checks each. Returns the stop and the number of slices.
fn one_cycle_at_a_time(session: &mut Session, coroutine: &mut Coroutine) -> (Stop, u64) {
    assert!(session.gap() <= MAX_GAP);
    for slices in 1.. {
        let stop = slice(session, coroutine, 1);
        if !matches!(stop, Stop::OutOfCycles { .. }) {
            return (stop, slices);
        }
    }
    unreachable!("the loop ends by returning")
}

const DEEP: &str = r#"(module (func $down (export "main") (param i32) (result i32)
    (if (result i32) (local.get 0)
        (then (i32.add (i32.const 1) (call $down (i32.sub (local.get 0) (i32.const 1)))))
        (else (i32.const 0)))))"#;

#[test]
fn ten_thousand_frames_unwind_one_cycle_at_a_time() {
    let limits = SessionLimits { stack_bytes: 8 << 20, ..SessionLimits::default() };
    let (mut session, mut coroutine) = start(DEEP, limits, &[10_000]);
    let (stop, slices) = one_cycle_at_a_time(&mut session, &mut coroutine);
    assert_eq!((stop, coroutine.results()), (Stop::Finished, &[10_000][..]));
    assert!(slices > 20_000, "a safepoint at each entry and each return, but only {slices} slices");
    let (mut session, mut whole) = start(DEEP, limits, &[10_000]);
    assert_eq!(Whole.run(&mut session, &mut whole, &[]), Stop::Finished);
    assert_eq!(coroutine.used(), whole.used());
}

#[test]
fn a_deep_stack_round_trips_at_every_safepoint() {
    let (mut session, mut coroutine) = start(DEEP, SessionLimits::default(), &[300]);
    let module = Arc::clone(session.module(wavelock_machine::InstanceId(0)));
    let mut driver = Snapshots::new(usize::MAX);
    assert_eq!(driver.run(&mut session, &mut coroutine, &[module]), Stop::Finished);
    assert_eq!(coroutine.results(), [300]);
    assert!(
        driver.taken > 600 && driver.taken == driver.passed,
        "{} snapshots at {} stops",
        driver.taken,
        driver.passed
    );
}

#[test]
fn a_stack_limit_faults_at_the_same_point_under_any_slicing() {
    let limits = SessionLimits { stack_bytes: 64 << 10, ..SessionLimits::default() };
    let (mut session, mut whole) = start(DEEP, limits, &[1 << 30]);
    let Stop::Fault(fault) = Whole.run(&mut session, &mut whole, &[]) else { panic!("no fault") };
    assert_eq!(fault.code, FaultCode::StackExhausted);
    let (mut session, mut sliced) = start(DEEP, limits, &[1 << 30]);
    assert_eq!(Sliced::new(3, 9).run(&mut session, &mut sliced, &[]), Stop::Fault(fault));
    assert_eq!(sliced.used(), whole.used());
    assert_eq!(sliced.backtrace(&session).count(), whole.backtrace(&session).count());
}

const COPY: &str = r#"(module (memory (export "memory") 1024)
    (func (export "main") (param $to i32) (param $from i32) (param $count i32)
        (i32.store (local.get $from) (i32.const 0x12345678))
        (memory.copy (local.get $to) (local.get $from) (local.get $count))))"#;

#[test]
fn sixty_four_mebibytes_copy_one_cycle_at_a_time() {
    let limits = SessionLimits::default();
    let size = 64 << 20;
    // All but the last page moves up by one page: 64 MiB of memory, paid in more than eight million
    // slices.
    let arguments = [65_536, 0, size - 65_536];
    let (mut session, mut coroutine) = start(COPY, limits, &arguments);
    let first = slice(&mut session, &mut coroutine, 1);
    assert!(matches!(first, Stop::OutOfCycles { .. }));
    let before = session_digest(&mut session);
    let mut slices = 1;
    let mut changed_at = None;
    let stop = loop {
        let stop = slice(&mut session, &mut coroutine, 1);
        slices += 1;
        if slices % 1_000_000 == 0 && changed_at.is_none() && session_digest(&mut session) != before
        {
            changed_at = Some(slices);
        }
        if !matches!(stop, Stop::OutOfCycles { .. }) {
            break stop;
        }
    };
    assert_eq!(stop, Stop::Finished);
    assert!(slices > (size - 65_536) / 8, "the copy was paid in only {slices} slices");
    assert_eq!(changed_at, None, "memory changed before the copy was paid for");
    let memory = session.memory(wavelock_machine::MemoryAddress(0)).bytes();
    assert_eq!(
        (&memory[..4], &memory[65_536..65_540]),
        (&[0x78, 0x56, 0x34, 0x12][..], &[0x78, 0x56, 0x34, 0x12][..])
    );
    let (mut session, mut whole) = start(COPY, limits, &arguments);
    assert_eq!(Whole.run(&mut session, &mut whole, &[]), Stop::Finished);
    assert_eq!(coroutine.used(), whole.used());
}

#[test]
fn a_copy_out_of_bounds_faults_before_it_is_paid_for() {
    let (mut session, mut coroutine) =
        start(COPY, SessionLimits::default(), &[65_536, 0, 64 << 20]);
    let (stop, slices) = one_cycle_at_a_time(&mut session, &mut coroutine);
    assert!(
        matches!(stop, Stop::Fault(fault) if fault.code == FaultCode::MemoryOutOfBounds),
        "{stop:?}"
    );
    assert!(slices < 10, "it paid for {slices} slices first");
}

/// A function whose only block is far longer than the maximum gap: lowering must split it.
#[test]
fn a_long_block_is_split_by_safepoints() {
    let body = "(local.set 0 (i32.mul (local.get 0) (i32.const 3)))".repeat(5_000);
    let text =
        format!("(module (func (export \"main\") (param i32) (result i32) {body} (local.get 0)))");
    let (mut session, mut coroutine) = start(&text, SessionLimits::default(), &[1]);
    let (stop, slices) = one_cycle_at_a_time(&mut session, &mut coroutine);
    assert_eq!(stop, Stop::Finished);
    assert!(
        slices >= coroutine.used().0 / MAX_GAP.0,
        "{slices} slices for {} cycles",
        coroutine.used().0
    );
    let expected = (0..5_000).fold(1_u32, |value, _| value.wrapping_mul(3));
    assert_eq!(coroutine.results(), [u64::from(expected)]);
}

/// `G` is reached, so the check of every slice fails with a smaller one.
#[test]
fn a_smaller_gap_than_the_real_one_is_noticed() {
    let body = "(local.set 0 (i32.mul (local.get 0) (i32.const 3)))".repeat(5_000);
    let text =
        format!("(module (func (export \"main\") (param i32) (result i32) {body} (local.get 0)))");
    let (mut session, mut coroutine) = start(&text, SessionLimits::default(), &[1]);
    let mut worst = 0;
    while coroutine.results().is_empty() {
        let before = coroutine.used().0;
        let _ = slice(&mut session, &mut coroutine, 1);
        worst = worst.max(coroutine.used().0 - before);
    }
    assert_eq!(worst, session.gap().0, "the most that a slice of one cycle is charged");
}
