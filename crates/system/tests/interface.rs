//! The guest interface, operation by operation: what each does, each of its codes, what it costs,
//! and what a bad pointer does.
//!
//! `cases!` lists the operations; `every_operation_has_a_case` fails when the table of `abi` has
//! one that is not here. WASI operations that answer one code are walked from the table; those
//! about time are in `contexts.rs`, those about calls in `calls.rs`.

mod kit;

use kit::{Machine, guest, numbers};
use wavelock_abi::{ContextRef, Errno, FaultCode, HostOperation};
use wavelock_kernel::{ContextRefusal, Refusal};
use wavelock_system::{HostFailure, LoadError, RunOutcome, SessionOutcome};

const EINVAL: i64 = Errno::Invalid.code() as i64;
const ESTALE: i64 = Errno::Stale.code() as i64;
const ECLOSED: i64 = Errno::Closed.code() as i64;
const EAGAIN: i64 = Errno::Again.code() as i64;
const EMSGSIZE: i64 = Errno::MessageSize.code() as i64;
const ELIMIT: i64 = Errno::Limit.code() as i64;
const EDENIED: i64 = Errno::Denied.code() as i64;
const EFAULTED: i64 = Errno::Faulted.code() as i64;
const ECANCELED: i64 = Errno::Canceled.code() as i64;

macro_rules! cases {
    ($($operation:ident $name:ident $body:block)*) => {
        /// The operations with a case in this file.
        const CASES: &[HostOperation] = &[$(HostOperation::$operation),*];
        $(#[test] fn $name() $body)*
    };
}

/// Operations of WASI that answer one code for an open stream and one for any other descriptor:
/// (stream, other).
fn constant_answer(operation: HostOperation) -> Option<(i64, i64)> {
    let name = operation.import();
    match operation {
        HostOperation::FdFdstatSetFlags | HostOperation::FdFilestatGet => None,
        HostOperation::FdPrestatGet | HostOperation::FdPrestatDirName => Some((8, 8)),
        HostOperation::FdAdvise | HostOperation::FdAllocate => Some((70, 8)),
        HostOperation::FdPread | HostOperation::FdPwrite | HostOperation::FdTell => Some((70, 8)),
        HostOperation::FdSync | HostOperation::FdDatasync | HostOperation::FdFilestatSetSize => {
            Some((28, 8))
        }
        HostOperation::FdReaddir => Some((54, 8)),
        _ if name.starts_with("path_") => Some((54, 8)),
        _ if name.starts_with("sock_") => Some((57, 8)),
        other if other as u8 >= 100 => Some((52, 52)),
        _ => None,
    }
}

#[test]
fn every_operation_has_a_case() {
    let without = |listed: &[HostOperation]| -> Vec<HostOperation> {
        let missing = HostOperation::ALL.iter().filter(|operation| {
            !listed.contains(operation)
                && constant_answer(**operation).is_none()
                && !operation.is_about_time()
                && !operation.is_about_calls()
                && !operation.is_about_leases()
        });
        missing.copied().collect()
    };
    assert_eq!(without(CASES), []);
    assert_eq!(without(&CASES[1..]), [CASES[0]], "the check can fail");
}

cases! {
    Spawn spawn_runs_an_entry_of_the_table_and_does_not_switch {
        let body = r#"
        (func $child (param i64) (result i64) (call $out (local.get 0)) (i64.add (local.get 0) (i64.const 1)))
        (func $none (param i64))
        (func $wrong (result i64) (i64.const 0))
        (elem (i32.const 0) $child $none $wrong)
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn (i32.const 0) (i64.const 41)))
          (call $out (local.get $r))
          (call $out32 (call $join (local.get $r) (i32.const 8)))
          (call $out (i64.load (i32.const 8)))
          (i64.store (i32.const 8) (i64.const -1))
          (call $out32 (call $join (call $spawn (i32.const 1) (i64.const 0)) (i32.const 8)))
          (call $out (i64.load (i32.const 8)))
          (call $out (call $spawn (i32.const 2) (i64.const 0)))
          (call $out (call $spawn (i32.const 3) (i64.const 0)))
          (call $out (call $spawn (i32.const 99) (i64.const 0)))
          (call $out (call $spawn (i32.const -1) (i64.const 0))))"#;
        assert_eq!(numbers(body), [1, 41, 0, 42, 0, 0, EINVAL, EINVAL, EINVAL, EINVAL]);
    }

    SpawnOn spawn_on_denies_lanes_that_are_not_the_sessions {
        let body = r#"
        (func $child (param i64) (result i64) (i64.extend_i32_s (call $lane)))
        (elem (i32.const 0) $child)
        (func $try (param $lane i32) (local $r i64)
          (local.set $r (call $spawn_on (i32.const 0) (i64.const 0) (local.get $lane)))
          (if (i64.lt_s (local.get $r) (i64.const 0)) (then (call $out (local.get $r)) (return)))
          (drop (call $join (local.get $r) (i32.const 8)))
          (call $out (i64.load (i32.const 8))))
        (func (export "_start")
          (call $try (i32.const 0)) (call $try (i32.const 1)) (call $try (i32.const 2)) (call $try (i32.const 3)) (call $try (i32.const -1)))"#;
        let mut machine = Machine::lanes(3);
        let session = machine.session("main", body);
        machine.split(session, &[2, 0]);
        let run = machine.run();
        assert_eq!((run.outcome, run.numbers(0)), (RunOutcome::Finished, vec![0, EDENIED, 2, EDENIED, EDENIED]));
        let mut whole = Machine::lanes(2);
        whole.session("main", body);
        assert_eq!(whole.run().numbers(0), [0, EDENIED, EDENIED, EDENIED, EDENIED]);
    }

    SpawnStack spawn_stack_sets_the_childs_stack_pointer_and_spawn_sets_zero {
        let body = r#"
        (global $__stack_pointer (export "__stack_pointer") (mut i32) (i32.const 4096))
        (func $child (param i64) (result i64) (i64.extend_i32_s (global.get $__stack_pointer)))
        (func $uses (param i64) (result i64)
          (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 16)))
          (i64.store (global.get $__stack_pointer) (i64.const 1))
          (i64.const 0))
        (elem (i32.const 0) $child $uses)
        (func $result (param i64) (call $out32 (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
        (func (export "_start")
          (call $result (call $spawn_stack (i32.const 0) (i64.const 0) (i32.const 2048)))
          (call $result (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (global.get $__stack_pointer))
          (call $out32 (call $join (call $spawn_stack (i32.const 1) (i64.const 0) (i32.const 2048)) (i32.const 8)))
          (call $out32 (call $join (call $spawn (i32.const 1) (i64.const 0)) (i32.const 8))))"#;
        assert_eq!(numbers(body), [0, 2048, 0, 0, 4096, 0, EFAULTED], "a first use of a stack at 0 faults");
    }

    Detach detach_frees_the_slot_at_the_end {
        let body = r#"
        (func $child (param i64) (call $yield))
        (elem (i32.const 0) $child)
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (call $detach (local.get $r)))
          (call $yield) (call $yield) (call $yield)
          (call $out32 (call $detach (local.get $r)))
          (call $out32 (call $join (local.get $r) (i32.const -1)))
          (call $out (call $spawn (i32.const 0) (i64.const 0)))
          (call $yield) (call $yield) (call $yield)
          (call $out32 (call $detach (i64.const 0x100000001)))
          (call $out32 (call $detach (i64.const 0x100000001)))
          (call $out32 (call $detach (i64.const -5)))
          (call $out32 (call $detach (i64.const 77))))"#;
        assert_eq!(numbers(body), [0, ESTALE, ESTALE, 0x1_0000_0001, 0, ESTALE, EINVAL, ESTALE]);
    }

    Yield yield_goes_to_the_tail {
        let body = r#"
        (func $child (param i64) (call $out (local.get 0)) (call $yield) (call $out (i64.add (local.get 0) (i64.const 10))))
        (elem (i32.const 0) $child)
        (func (export "_start")
          (drop (call $spawn (i32.const 0) (i64.const 1))) (drop (call $spawn (i32.const 0) (i64.const 2)))
          (call $out (i64.const 0)) (call $yield) (call $out (i64.const 10)))"#;
        assert_eq!(numbers(body), [0, 1, 2, 10, 11, 12]);
    }

    Sleep sleep_counts_frames_and_zero_or_less_is_yield {
        let body = r#"
        (func $child (param i64) (call $out (local.get 0)))
        (elem (i32.const 0) $child)
        (func (export "_start")
          (drop (call $spawn (i32.const 0) (i64.const 100))) (call $sleep (i64.const 0)) (call $out (call $frame))
          (drop (call $spawn (i32.const 0) (i64.const 200))) (call $sleep (i64.const -3)) (call $out (call $frame))
          (call $sleep (i64.const 1)) (call $out (call $frame))
          (call $sleep (i64.const 40)) (call $out (call $frame)))"#;
        assert_eq!(numbers(body), [100, 0, 200, 0, 1, 41]);
    }

    Own own_reference_is_what_spawn_returned {
        let body = r#"
        (func $child (param i64) (result i64) (call $self))
        (elem (i32.const 0) $child)
        (func (export "_start")
          (call $out (call $self))
          (call $out (call $spawn (i32.const 0) (i64.const 0)))
          (drop (call $join (i64.const 1) (i32.const 8))) (call $out (i64.load (i32.const 8))))"#;
        assert_eq!(numbers(body), [0, 1, 1]);
    }

    Join join_takes_the_result_once {
        let body = r#"
        (func $value (param i64) (result i64) (i64.const 7))
        (func $traps (param i64) unreachable)
        (func $waits (param i64) (call $sleep (i64.const 1000000)))
        (elem (i32.const 0) $value $traps $waits)
        (func $join_it (param i64) (i64.store (i32.const 8) (i64.const -1)) (call $out32 (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
          (call $join_it (local.get $r)) (call $join_it (local.get $r))
          (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
          (call $sleep (i64.const 1))
          (call $join_it (local.get $r))
          (call $join_it (call $spawn (i32.const 1) (i64.const 0)))
          (local.set $r (call $spawn (i32.const 2) (i64.const 0)))
          (drop (call $cancel (local.get $r)))
          (call $join_it (local.get $r))
          (call $out32 (call $join (call $self) (i32.const 8)))
          (call $out32 (call $join (i64.const -1) (i32.const 8)))
          (call $out32 (call $join (i64.const 0x100000000) (i32.const 8)))
          (call $out32 (call $join (call $spawn (i32.const 0) (i64.const 0)) (i32.const -1))))"#;
        assert_eq!(numbers(body), [0, 7, ESTALE, -1, 0, 7, EFAULTED, -1, ECANCELED, -1, EINVAL, EINVAL, ESTALE, 0]);
    }

    Cancel cancel_ends_another_and_not_oneself {
        let body = r#"
        (func $loops (param i64) (loop $l (br $l)))
        (func $value (param i64) (result i64) (i64.const 7))
        (elem (i32.const 0) $loops $value)
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
          (call $yield)
          (call $out32 (call $cancel (local.get $r)))
          (call $out32 (call $join (local.get $r) (i32.const -1)))
          (call $out32 (call $cancel (local.get $r)))
          (local.set $r (call $spawn (i32.const 1) (i64.const 0)))
          (call $yield)
          (call $out32 (call $cancel (local.get $r)))
          (call $out32 (call $join (local.get $r) (i32.const -1)))
          (call $out32 (call $cancel (call $self)))
          (call $out32 (call $cancel (i64.const -1))))"#;
        assert_eq!(numbers(body), [0, ECANCELED, ESTALE, 0, 0, EINVAL, EINVAL], "one that has ended well stays so");
    }

    Park park_waits_for_an_unpark_and_returns_zero {
        let body = r#"
        (func $child (param i64) (call $out (i64.const 1)) (drop (call $unpark (i64.const 0))) (call $out (i64.const 2)))
        (elem (i32.const 0) $child)
        (func (export "_start")
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (call $park))
          (call $out (i64.const 3)))"#;
        assert_eq!(numbers(body), [1, 2, 0, 3]);
    }

    Unpark unpark_keeps_one_wake_and_tells_stale_from_ended {
        let body = r#"
        (func $child (param i64) (call $out32 (call $park)) (call $out (local.get 0)))
        (elem (i32.const 0) $child)
        (func (export "_start") (local $r i64)
          (call $out32 (call $unpark (call $self)))
          (call $out32 (call $unpark (call $self)))
          (call $out32 (call $park))
          (local.set $r (call $spawn (i32.const 0) (i64.const 7)))
          (call $out32 (call $unpark (local.get $r)))
          (call $sleep (i64.const 1))
          (call $out32 (call $unpark (local.get $r)))
          (drop (call $join (local.get $r) (i32.const -1)))
          (call $out32 (call $unpark (local.get $r)))
          (call $out32 (call $unpark (i64.const -1)))
          (drop (call $park)))"#;
        let run = Machine::one(body).run();
        assert_eq!(run.numbers(0), [0, 0, 0, 0, 0, 7, 0, ESTALE, EINVAL]);
        assert_eq!(run.outcome, RunOutcome::Deadlock, "of two wakes one was kept");
    }

    SessionWait session_wait_gives_the_exit_code_or_how_the_session_ended {
        let waiter = r#"
        (data (i32.const 0) "abown")
        (func $wait (param $port i32) (param $ptr i32)
          (i64.store (i32.const 64) (i64.const -99))
          (call $out32 (call $session_wait (local.get $port) (local.get $ptr)))
          (call $out (i64.load (i32.const 64))))
        (func (export "_start")
          (call $wait (call $port (i32.const 0) (i32.const 1)) (i32.const 64))
          (call $wait (call $port (i32.const 0) (i32.const 1)) (i32.const -1))
          (call $wait (call $port (i32.const 1) (i32.const 1)) (i32.const 64))
          (call $wait (call $port (i32.const 2) (i32.const 3)) (i32.const 64))
          (call $wait (i32.const 99) (i32.const 64))
          (drop (call $session_wait (i32.const 99) (i32.const -2))))"#;
        let mut machine = Machine::new();
        let waits = machine.session("waits", waiter);
        let exits = machine.session("exits", r#"(func (export "main") (result i32) (call $sleep (i64.const 3)) (i32.const -7))"#);
        let traps = machine.session("traps", r#"(func (export "_start") unreachable)"#);
        machine.wire("a", exits, 1, &[waits]);
        machine.wire("b", traps, 1, &[waits]);
        machine.wire("own", waits, 1, &[exits]);
        let run = machine.run();
        assert_eq!(run.numbers(0), [0, -7, 0, -99, EFAULTED, -99, EINVAL, -99, EINVAL, -99]);
        assert_eq!(run.session(0).faults[0].code, FaultCode::BadPointer);
    }

    SessionName session_name_writes_the_full_name {
        let body = r#"
        (func (export "_start")
          (call $out32 (call $session_name (i32.const 64) (i32.const 5)))
          (call $out32 (i32.load8_u (i32.const 64)))
          (call $out32 (call $session_name (i32.const 64) (i32.const 6)))
          (call $out (i64.load (i32.const 64)))
          (drop (call $session_name (i32.const -4) (i32.const 6))))"#;
        let mut machine = Machine::new();
        machine.session("bot.12", body);
        let run = machine.run();
        let name = i64::from_le_bytes(*b"bot.12\0\0");
        assert_eq!(run.numbers(0), [EMSGSIZE, 0, 6, name]);
        assert_eq!(run.session(0).faults[0].code, FaultCode::BadPointer);
    }

    SessionIndex session_index_is_the_number_after_the_last_dot {
        let body = r#"(func (export "_start") (call $out32 (call $session_index)))"#;
        for (name, index) in [
            ("bot.12", 12), ("bot", 0), ("a.b.3", 3), ("a.3.b", 0), ("bot.", 0), ("bot.-1", 0),
            ("bot.+1", 0), ("bot.2147483647", i64::from(i32::MAX)), ("bot.2147483648", 0), ("7", 0),
        ] {
            let mut machine = Machine::new();
            machine.session(name, body);
            assert_eq!(machine.run().numbers(0), [index], "{name}");
        }
    }

    Exit exit_ends_the_coroutine_with_its_value {
        let body = r#"
        (func $deep (param i64) (call $exit (local.get 0)) (call $out (i64.const -100)))
        (func $child (param i64) (result i64) (call $deep (i64.const 33)) (i64.const 0))
        (elem (i32.const 0) $child)
        (func (export "_start")
          (call $out32 (call $join (call $spawn (i32.const 0) (i64.const 0)) (i32.const 8)))
          (call $out (i64.load (i32.const 8)))
          (call $exit (i64.const 5)) (call $out (i64.const -100)))"#;
        let run = Machine::one(body).run();
        assert_eq!((run.numbers(0), run.session(0).exit), (vec![0, 33], 5), "the first coroutine's value is the session's exit code");
    }

    Channel channel_has_a_capacity_within_limits {
        let body = r#"(func (export "_start")
          (call $out32 (call $channel (i32.const 1))) (call $out32 (call $channel (i32.const 3)))
          (call $out32 (call $channel (i32.const 4))) (call $out32 (call $channel (i32.const 0)))
          (call $out32 (call $channel (i32.const -7)))
          (call $out32 (call $channel (i32.const 2))) (call $out32 (call $channel (i32.const 2))))"#;
        let mut machine = Machine::one(body);
        machine.spec.limits.channel_capacity = 3;
        machine.spec.limits.channels = 3;
        assert_eq!(machine.run().numbers(0), [0, 1, ELIMIT, EINVAL, EINVAL, 2, ELIMIT]);
    }

    Port port_finds_wired_names_for_both_ends {
        let sender = r#"(data (i32.const 0) "jobsnope")
        (func (export "_start")
          (call $out32 (call $port (i32.const 0) (i32.const 4))) (call $out32 (call $port (i32.const 4) (i32.const 4)))
          (call $out32 (call $port (i32.const 0) (i32.const 0)))
          (call $out32 (call $recv (call $port (i32.const 0) (i32.const 4)) (i32.const 64)))
          (call $out32 (call $try_recv (call $port (i32.const 0) (i32.const 4)) (i32.const 64)))
          (i32.store (i32.const 80) (call $port (i32.const 0) (i32.const 4)))
          (call $out32 (call $select (i32.const 80) (i32.const 1)))
          (call $out32 (call $send (call $port (i32.const 0) (i32.const 4)) (i64.const 5))))"#;
        let owner = r#"(data (i32.const 0) "jobs")
        (func (export "_start")
          (call $out32 (call $port (i32.const 0) (i32.const 4)))
          (call $out32 (call $recv (call $port (i32.const 0) (i32.const 4)) (i32.const 64))) (call $out (i64.load (i32.const 64))))"#;
        for lanes in 1..=2 {
            let mut machine = Machine::lanes(lanes);
            let (from, to) = (machine.session("sender", sender), machine.session("owner", owner));
            machine.wire("jobs", to, 2, &[from]);
            let run = machine.run();
            assert_eq!(run.numbers(0), [0, EINVAL, EINVAL, EDENIED, EDENIED, EDENIED, 0]);
            assert_eq!(run.numbers(1), [0, 0, 5]);
        }
    }

    Send send_waits_while_full_and_is_refused_when_closed {
        let body = r#"
        (func $late (param i64) (call $out (i64.const 50)) (drop (call $recv (i32.const 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
        (elem (i32.const 0) $late)
        (func (export "_start")
          (drop (call $channel (i32.const 1)))
          (call $out32 (call $send (i32.const 0) (i64.const -9)))
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (call $send (i32.const 0) (i64.const 2)))
          (call $out32 (call $close (i32.const 0)))
          (call $out32 (call $send (i32.const 0) (i64.const 3)))
          (call $out32 (call $send (i32.const 1) (i64.const 3)))
          (call $out32 (call $send (i32.const -1) (i64.const 3))))"#;
        assert_eq!(numbers(body), [0, 50, -9, 0, 0, ECLOSED, EINVAL, EINVAL]);
    }

    TrySend try_send_does_not_wait {
        let body = r#"(func (export "_start")
          (drop (call $channel (i32.const 1)))
          (call $out32 (call $try_send (i32.const 0) (i64.const 1))) (call $out32 (call $try_send (i32.const 0) (i64.const 2)))
          (drop (call $recv (i32.const 0) (i32.const 8)))
          (call $out32 (call $try_send (i32.const 0) (i64.const 3)))
          (drop (call $close (i32.const 0)))
          (call $out32 (call $try_send (i32.const 0) (i64.const 3))) (call $out32 (call $try_send (i32.const 9) (i64.const 3))))"#;
        assert_eq!(numbers(body), [0, EAGAIN, 0, ECLOSED, EINVAL]);
    }

    Recv recv_waits_drains_and_leaves_bytes_in_place {
        let body = r#"
        (func $sender (param i64) (drop (call $send (i32.const 0) (local.get 0))))
        (elem (i32.const 0) $sender)
        (func (export "_start")
          (drop (call $channel (i32.const 4)))
          (drop (call $spawn (i32.const 0) (i64.const 0x7fffffffffffffff)))
          (call $out32 (call $recv (i32.const 0) (i32.const 8))) (call $out (i64.load (i32.const 8)))
          (drop (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 3)))
          (call $out32 (call $recv (i32.const 0) (i32.const 8)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 100) (i32.const 8)))
          (drop (call $send (i32.const 0) (i64.const 6)))
          (drop (call $close (i32.const 0)))
          (call $out32 (call $recv (i32.const 0) (i32.const 8))) (call $out (i64.load (i32.const 8)))
          (call $out32 (call $recv (i32.const 0) (i32.const 8)))
          (call $out32 (call $recv (i32.const 5) (i32.const 8))))"#;
        assert_eq!(numbers(body), [0, i64::MAX, EMSGSIZE, 3, 0, 6, ECLOSED, EINVAL]);
    }

    TryRecv try_recv_does_not_wait {
        let body = r#"(func (export "_start")
          (drop (call $channel (i32.const 4)))
          (call $out32 (call $try_recv (i32.const 0) (i32.const 8)))
          (drop (call $send (i32.const 0) (i64.const 6)))
          (call $out32 (call $try_recv (i32.const 0) (i32.const 8))) (call $out (i64.load (i32.const 8)))
          (drop (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 0)))
          (call $out32 (call $try_recv (i32.const 0) (i32.const 8)))
          (drop (call $recv_bytes (i32.const 0) (i32.const 0) (i32.const 0)))
          (drop (call $close (i32.const 0)))
          (call $out32 (call $try_recv (i32.const 0) (i32.const 8))) (call $out32 (call $try_recv (i32.const 1) (i32.const 8))))"#;
        assert_eq!(numbers(body), [EAGAIN, 0, 6, EMSGSIZE, ECLOSED, EINVAL]);
    }

    SendBytes send_bytes_copies_at_the_call_and_is_limited {
        let body = r#"(data (i32.const 0) "hello")
        (func (export "_start")
          (drop (call $channel (i32.const 4)))
          (call $out32 (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 5)))
          (i32.store (i32.const 0) (i32.const 0))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 5)))
          (call $out (i64.load (i32.const 64)))
          (call $out32 (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 17)))
          (call $out32 (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 16)))
          (call $out32 (call $send_bytes (i32.const 7) (i32.const 0) (i32.const 1)))
          (drop (call $close (i32.const 0)))
          (call $out32 (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 1))))"#;
        let mut machine = Machine::one(body);
        machine.spec.limits.message_bytes = 16;
        let hello = i64::from_le_bytes(*b"hello\0\0\0");
        assert_eq!(machine.run().numbers(0), [0, 5, hello, ELIMIT, 0, EINVAL, ECLOSED]);
    }

    RecvBytes recv_bytes_answers_length_or_leaves_it {
        let body = r#"
        (func $sender (param i64) (drop (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 9))))
        (elem (i32.const 0) $sender)
        (func (export "_start")
          (drop (call $channel (i32.const 4)))
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 8)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 9)))
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 100)))
          (drop (call $send (i32.const 0) (i64.const 1)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 100)))
          (call $out32 (call $recv (i32.const 0) (i32.const 64)))
          (drop (call $close (i32.const 0)))
          (call $out32 (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 100)))
          (call $out32 (call $recv_bytes (i32.const 1) (i32.const 64) (i32.const 100))))"#;
        assert_eq!(numbers(body), [EMSGSIZE, 9, 9, EMSGSIZE, 0, ECLOSED, EINVAL], "the first waited, and was told when it came");
    }

    Select select_gives_the_lowest_index_waits_and_is_limited {
        let body = r#"
        (func $sender (param i64) (drop (call $send (i32.wrap_i64 (local.get 0)) (i64.const 5))))
        (elem (i32.const 0) $sender)
        (func $take (param i32) (drop (call $recv (local.get 0) (i32.const 8))))
        (func (export "_start")
          (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1)))
          (i32.store (i32.const 100) (i32.const 2)) (i32.store (i32.const 104) (i32.const 0)) (i32.store (i32.const 108) (i32.const 1))
          (drop (call $send (i32.const 0) (i64.const 1))) (drop (call $send (i32.const 1) (i64.const 1)))
          (call $out32 (call $select (i32.const 100) (i32.const 3)))
          (call $take (i32.const 0))
          (call $out32 (call $select (i32.const 100) (i32.const 3)))
          (call $take (i32.const 1))
          (drop (call $spawn (i32.const 0) (i64.const 1)))
          (call $out32 (call $select (i32.const 100) (i32.const 3)))
          (call $take (i32.const 1))
          (drop (call $close (i32.const 2)))
          (call $out32 (call $select (i32.const 100) (i32.const 3)))
          (call $out32 (call $select (i32.const 100) (i32.const 0)))
          (call $out32 (call $select (i32.const 100) (i32.const -1)))
          (call $out32 (call $select (i32.const 100) (i32.const 4)))
          (i32.store (i32.const 104) (i32.const 88))
          (call $out32 (call $select (i32.const 100) (i32.const 3))))"#;
        let mut machine = Machine::one(body);
        machine.spec.limits.select = 3;
        assert_eq!(machine.run().numbers(0), [1, 2, 2, 0, EINVAL, EINVAL, ELIMIT, EINVAL]);
    }

    Close close_is_once_and_wakes_who_waits {
        let body = r#"
        (func $receives (param i64) (result i64) (i64.extend_i32_s (call $recv (i32.const 0) (i32.const 8))))
        (func $sends (param i64) (result i64) (i64.extend_i32_s (call $send (i32.const 1) (i64.const 1))))
        (func $selects (param i64) (result i64) (i64.extend_i32_s (call $select (i32.const 96) (i32.const 1))))
        (elem (i32.const 0) $receives $sends $selects)
        (func $result (param i64) (drop (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
        (func (export "_start") (local $a i64) (local $b i64) (local $c i64)
          (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1)))
          (drop (call $send (i32.const 1) (i64.const 0)))
          (local.set $a (call $spawn (i32.const 0) (i64.const 0)))
          (local.set $b (call $spawn (i32.const 1) (i64.const 0)))
          (local.set $c (call $spawn (i32.const 2) (i64.const 0)))
          (call $yield)
          (call $out32 (call $close (i32.const 0))) (call $out32 (call $close (i32.const 1)))
          (call $result (local.get $a)) (call $result (local.get $b)) (call $result (local.get $c))
          (call $out32 (call $close (i32.const 0))) (call $out32 (call $close (i32.const 3))) (call $out32 (call $close (i32.const -1))))"#;
        assert_eq!(numbers(body), [0, 0, ECLOSED, ECLOSED, 0, ECLOSED, EINVAL, EINVAL]);
    }

    Frame frame_is_the_current_frame {
        assert_eq!(numbers(r#"(func (export "_start") (call $out (call $frame)) (call $sleep (i64.const 3)) (call $out (call $frame)))"#), [0, 3]);
    }

    Lane lane_is_the_sessions_lane {
        let mut machine = Machine::lanes(3);
        for name in ["a", "b", "c"] {
            machine.session(name, r#"(func (export "_start") (call $out32 (call $lane)))"#);
        }
        let run = machine.run();
        assert_eq!((run.numbers(0), run.numbers(1), run.numbers(2)), (vec![0], vec![1], vec![2]));
    }

    Cycles cycles_counts_what_this_coroutine_was_charged {
        let body = r#"
        (func $child (param i64) (result i64) (call $yield) (call $cycles))
        (elem (i32.const 0) $child)
        (func (export "_start") (local $r i64)
          (local.set $r (call $spawn (i32.const 0) (i64.const 0)))
          (call $yield) (call $yield) (call $yield)
          (drop (call $join (local.get $r) (i32.const 8))) (call $out (i64.load (i32.const 8))))"#;
        // Entry and two calls: a yield at 8, and cycles itself at 4.
        let call = i64::from(wavelock_module::cost::CALL);
        assert_eq!(numbers(body), [call + 8 + call + 4]);
    }

    Remaining remaining_falls_by_what_is_used {
        let body = r#"(func (export "_start") (local $a i64)
          (local.set $a (call $remaining)) (call $out (i64.sub (local.get $a) (call $remaining)))
          (call $sleep (i64.const 1))
          (call $out32 (i64.lt_s (call $remaining) (i64.const 1000000))) (call $out32 (i64.gt_s (call $remaining) (i64.const 990000))))"#;
        let call = i64::from(wavelock_module::cost::CALL);
        assert_eq!(numbers(body), [1 + 1 + call + 4, 1, 1]);
    }

    Random random_follows_the_spawn_tree {
        let body = r#"
        (func $child (param i64) (result i64) (call $random))
        (elem (i32.const 0) $child)
        (func $of (param i64) (drop (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
        (func (export "_start")
          (call $of (call $spawn (i32.const 0) (i64.const 0))) (call $of (call $spawn (i32.const 0) (i64.const 0)))
          (call $out (call $random)) (call $out (call $random)))"#;
        let first = numbers(body);
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(first, numbers(body));
        let mut other = Machine::one(body);
        other.spec.seed = 1;
        assert!(other.run().numbers(0).iter().all(|number| !first.contains(number)), "another seed, other numbers");
        let mut beside = Machine::new();
        beside.session("other", body);
        beside.session("main", body);
        let run = beside.run();
        assert_eq!(run.numbers(1), first, "by name, not by place");
        assert!(run.numbers(0).iter().all(|number| !first.contains(number)));
    }

    Input input_gives_the_events_of_this_frame {
        let body = r#"
        (func $take (call $out32 (call $input (i32.const 16) (i32.const 4))) (call $out (i64.load (i32.const 16))))
        (func (export "_start")
          (call $take) (call $take) (call $sleep (i64.const 2))
          (call $out32 (call $input (i32.const 16) (i32.const 3))) (call $take) (call $take)
          (call $sleep (i64.const 2)) (call $take))"#;
        let mut machine = Machine::one(body);
        let main = wavelock_abi::SessionId(0);
        machine.input(0, main, b"ab").input(1, main, b"dropped").input(2, main, b"cdef").input(2, main, b"g");
        machine.input(3, main, b"x").input(3, main, b"y");
        let run = machine.run();
        let (ab, cdef, gdef) = (i64::from_le_bytes(*b"ab\0\0\0\0\0\0"), i64::from_le_bytes(*b"cdef\0\0\0\0"), i64::from_le_bytes(*b"gdef\0\0\0\0"));
        assert_eq!(run.numbers(0), [2, ab, 0, ab, EMSGSIZE, 4, cdef, 1, gdef, 0, gdef]);
        let dropped: Vec<String> = run.boundary().into_iter().filter(|event| event.starts_with("Dropped")).collect();
        assert_eq!(dropped, ["Dropped { session: 0, events: 1 }", "Dropped { session: 0, events: 2 }"]);
    }

    Output output_is_limited_per_frame {
        let body = r#"(func (export "_start")
          (i32.store (i32.const 100) (call $output (i32.const 0) (i32.const 20)))
          (i32.store (i32.const 104) (call $output (i32.const 0) (i32.const 13)))
          (i32.store (i32.const 108) (call $output (i32.const 0) (i32.const 12)))
          (call $sleep (i64.const 1))
          (drop (call $output (i32.const 100) (i32.const 12))))"#;
        let mut machine = Machine::one(body);
        machine.spec.limits.output_bytes = 32;
        let run = machine.run();
        let bytes = run.bytes(0);
        assert_eq!(bytes.len(), 32 + 12);
        let codes: Vec<i32> = bytes[32..].chunks(4).map(|chunk| i32::from_le_bytes(chunk.try_into().expect("four"))).collect();
        assert_eq!(codes, [0, ELIMIT as i32, 0]);
    }

    Log log_is_kept_to_its_limit_and_is_no_observable {
        let body = |text: &str| format!(r#"(data (i32.const 0) "{text}") (func (export "_start")
          (call $log (i32.const 0) (i32.const 6)) (call $log (i32.const 0) (i32.const 6)) (call $log (i32.const 0) (i32.const 6)))"#);
        let mut machine = Machine::one(&body("abcdef"));
        machine.spec.limits.log_bytes = 10;
        let run = machine.run();
        assert_eq!((run.log(0).as_slice(), run.session(0).log_dropped), (b"abcdefabcd".as_slice(), 8));
        let mut other = Machine::one(&body("ABCDEF"));
        other.spec.limits.log_bytes = 10;
        assert_eq!(run.session(0).digest, other.run().session(0).digest);
    }

    ArgsSizesGet args_are_counted {
        let mut machine = Machine::one(r#"(func (export "_start")
          (call $out32 (call $args_sizes_get (i32.const 0) (i32.const 4))) (call $out (i64.load (i32.const 0))))"#);
        machine.spec.sessions[0].args = vec!["prog".into(), "--x".into()];
        assert_eq!(machine.run().numbers(0), [0, 9 << 32 | 2]);
    }

    ArgsGet args_are_written {
        let mut machine = Machine::one(r#"(func (export "_start")
          (drop (call $args_get (i32.const 0) (i32.const 64))) (drop (call $output (i32.const 0) (i32.const 8)))
          (drop (call $output (i32.const 64) (i32.const 9))))"#);
        machine.spec.sessions[0].args = vec!["prog".into(), "--x".into()];
        assert_eq!(machine.run().bytes(0), [&[64, 0, 0, 0, 69, 0, 0, 0], b"prog\0--x\0".as_slice()].concat());
    }

    EnvironSizesGet environment_is_counted {
        let mut machine = Machine::one(r#"(func (export "_start")
          (call $out32 (call $environ_sizes_get (i32.const 0) (i32.const 4))) (call $out (i64.load (i32.const 0))))"#);
        machine.spec.sessions[0].env = vec![("A".into(), "b".into())];
        assert_eq!(machine.run().numbers(0), [0, 4 << 32 | 1]);
    }

    EnvironGet environment_is_written {
        let mut machine = Machine::one(r#"(func (export "_start")
          (drop (call $environ_get (i32.const 0) (i32.const 64))) (drop (call $output (i32.const 64) (i32.const 4))))"#);
        machine.spec.sessions[0].env = vec![("A".into(), "b".into())];
        assert_eq!(machine.run().bytes(0), b"A=b\0");
    }

    FdRead fd_read_streams_waits_and_ends {
        // Reads with two buffers of 3 and 4 bytes until the end, putting out (frame, code, length)
        // and the bytes.
        let body = r#"(func (export "_start")
          (i32.store (i32.const 0) (i32.const 32)) (i32.store (i32.const 4) (i32.const 3))
          (i32.store (i32.const 8) (i32.const 35)) (i32.store (i32.const 12) (i32.const 4))
          (loop $more
            (i64.store (i32.const 32) (i64.const 0))
            (call $out32 (call $fd_read (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 16)))
            (call $out (call $frame)) (call $out32 (i32.load (i32.const 16))) (call $out (i64.load (i32.const 32)))
            (br_if $more (i32.load (i32.const 16))))
          (call $out32 (call $fd_read (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 16)))
          (call $out32 (call $fd_read (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 16)))
          (call $out32 (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1025) (i32.const 16))))"#;
        let word = |text: &[u8; 8]| i64::from_le_bytes(*text);
        let mut machine = Machine::one(body);
        let main = machine.session("other", r#"(func (export "_start"))"#);
        let main = wavelock_abi::SessionId(main.0 - 1);
        machine.input(0, main, b"hello ").input(0, main, b"wor").input(3, main, b"ld!");
        machine.input(9, wavelock_abi::SessionId(1), b"for another");
        let run = machine.run();
        let expected = [
            0, 0, 7, word(b"hello w\0"), 0, 0, 2, word(b"or\0\0\0\0\0\0"), 0, 3, 3, word(b"ld!\0\0\0\0\0"), 0, 3, 0, 0, 0, 8, 28,
        ];
        assert_eq!(run.numbers(0), expected, "it ends after its own last event, whatever others are still given");
    }

    FdWrite fd_write_goes_to_output_and_log {
        let body = r#"(data (i32.const 64) "hello world")
        (func (export "_start")
          (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 5))
          (i32.store (i32.const 8) (i32.const 69)) (i32.store (i32.const 12) (i32.const 6))
          (i32.store8 (i32.const 100) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 16)))
          (i32.store8 (i32.const 101) (i32.load (i32.const 16)))
          (i32.store8 (i32.const 102) (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 16)))
          (i32.store8 (i32.const 103) (i32.load (i32.const 16)))
          (i32.store8 (i32.const 104) (call $fd_write (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
          (i32.store8 (i32.const 105) (call $fd_write (i32.const 3) (i32.const 0) (i32.const 1) (i32.const 16)))
          (i32.store8 (i32.const 106) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 2000) (i32.const 16)))
          (i32.store (i32.const 4) (i32.const 30))
          (i32.store8 (i32.const 107) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
          (drop (call $output (i32.const 100) (i32.const 8))))"#;
        let mut machine = Machine::one(body);
        machine.spec.limits.output_bytes = 30;
        let run = machine.run();
        assert_eq!(run.bytes(0), [b"hello world".as_slice(), &[0, 11, 0, 5, 8, 8, 28, 51]].concat());
        assert_eq!(run.log(0), b"hello");
    }

    FdClose fd_close_is_once {
        let body = r#"(func (export "_start")
          (call $out32 (call $fd_close (i32.const 1))) (call $out32 (call $fd_close (i32.const 1))) (call $out32 (call $fd_close (i32.const 3)))
          (call $out32 (call $fd_close (i32.const -1)))
          (call $out32 (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 16)))
          (call $out32 (call $fd_write (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 16))))"#;
        assert_eq!(numbers(body), [0, 8, 8, 8, 8, 0]);
    }

    FdSeek streams_do_not_seek {
        let body = r#"(func (export "_start")
          (call $out32 (call $fd_seek (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 8)))
          (call $out32 (call $fd_seek (i32.const 7) (i64.const 0) (i32.const 0) (i32.const 8))))"#;
        assert_eq!(numbers(body), [70, 8]);
    }

    FdFdstatGet fdstat_says_no_terminal_and_the_streams_right {
        let body = r#"
        (func $stat (param i32) (i64.store (i32.const 8) (i64.const -1)) (i64.store (i32.const 16) (i64.const -1))
          (i64.store (i32.const 24) (i64.const -1)) (i64.store (i32.const 32) (i64.const -1))
          (call $out32 (call $fd_fdstat_get (local.get 0) (i32.const 8)))
          (call $out (i64.load (i32.const 8))) (call $out (i64.load (i32.const 16))) (call $out (i64.load (i32.const 24)))
          (call $out (i64.load (i32.const 32))))
        (func (export "_start") (call $stat (i32.const 0)) (call $stat (i32.const 1)) (call $stat (i32.const 2))
          (call $out32 (call $fd_fdstat_get (i32.const 4) (i32.const 8))))"#;
        // Type unknown: with 2, a character device, and these rights, `isatty` of wasi-libc says
        // yes.
        assert_eq!(numbers(body), [0, 0, 2, 0, -1, 0, 0, 64, 0, -1, 0, 0, 64, 0, -1, 8]);
    }

    FdFdstatSetFlags a_stream_appends_and_blocks {
        let set = |stream: i32, flags: i32| format!("(call $out32 (call $fd_fdstat_set_flags (i32.const {stream}) (i32.const {flags})))");
        let calls: String = [(0, 0), (1, 1), (1, 4), (2, 5), (3, 0)].map(|(stream, flags)| set(stream, flags)).concat();
        assert_eq!(numbers(&format!(r#"(func (export "_start") {calls})"#)), [0, 0, 58, 58, 8]);
    }

    FdFilestatGet filestat_is_zero_and_touches_64_bytes {
        let body = r#"
        (func (export "_start")
          (i64.store (i32.const 64) (i64.const -1)) (i64.store (i32.const 72) (i64.const -1))
          (i64.store (i32.const 80) (i64.const -1)) (i64.store (i32.const 96) (i64.const -1)) (i64.store (i32.const 136) (i64.const -1))
          (call $out32 (call $fd_filestat_get (i32.const 1) (i32.const 72)))
          (call $out (i64.load (i32.const 64))) (call $out (i64.load (i32.const 72))) (call $out (i64.load (i32.const 88)))
          (call $out (i64.load (i32.const 96))) (call $out (i64.load (i32.const 136)))
          (call $out32 (call $fd_close (i32.const 1))) (call $out32 (call $fd_filestat_get (i32.const 1) (i32.const 72))))"#;
        assert_eq!(numbers(body), [0, -1, 0, 0, 0, -1, 0, 8]);
    }

    ClockTimeGet clock_is_virtual_time {
        let body = r#"(func (export "_start")
          (call $out32 (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 8)))
          (call $sleep (i64.const 2))
          (i64.store (i32.const 24) (i64.load (i32.const 8)))
          (drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 8)))
          (call $out32 (i64.lt_u (i64.load (i32.const 24)) (i64.const 1000)))
          (call $out32 (i64.lt_u (i64.sub (i64.load (i32.const 8)) (i64.const 2000000)) (i64.const 1000)))
          (call $out32 (call $clock_time_get (i32.const 4) (i64.const 0) (i32.const 8))))"#;
        assert_eq!(numbers(body), [0, 1, 1, 28]);
    }

    ClockResGet clock_resolution_is_a_cycle {
        let body = r#"(func (export "_start")
          (call $out32 (call $clock_res_get (i32.const 1) (i32.const 8))) (call $out (i64.load (i32.const 8)))
          (call $out32 (call $clock_res_get (i32.const 9) (i32.const 8))))"#;
        assert_eq!(numbers(body), [0, 1, 28]);
    }

    RandomGet random_get_is_the_same_stream {
        let words = numbers(r#"(func (export "_start") (call $out (call $random)) (call $out (call $random)) (call $out (call $random)))"#);
        let mixed = Machine::one(r#"(func (export "_start")
          (drop (call $random_get (i32.const 0) (i32.const 11))) (i64.store (i32.const 16) (call $random))
          (drop (call $output (i32.const 0) (i32.const 24))))"#).run();
        let bytes = mixed.bytes(0);
        assert_eq!(bytes[..8], words[0].to_le_bytes());
        assert_eq!((&bytes[8..11], &bytes[11..16]), (&words[1].to_le_bytes()[..3], &[0; 5][..]));
        assert_eq!(bytes[16..], words[2].to_le_bytes());
    }

    SchedYield sched_yield_is_yield {
        let body = r#"
        (func $child (param i64) (call $out (local.get 0)))
        (elem (i32.const 0) $child)
        (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 1))) (call $out32 (call $sched_yield)))"#;
        assert_eq!(numbers(body), [1, 0]);
    }

    PollOneoff poll_oneoff_sleeps_whole_frames {
        let body = r#"
        (func $poll (param $kind i32) (param $timeout i64) (param $absolute i32)
          (i64.store (i32.const 0) (i64.const 77)) (i32.store8 (i32.const 8) (local.get $kind))
          (i64.store (i32.const 24) (local.get $timeout)) (i32.store16 (i32.const 40) (local.get $absolute))
          (call $out32 (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
          (call $out (call $frame)))
        (func (export "_start")
          (call $poll (i32.const 0) (i64.const 1) (i32.const 0)) (call $out (i64.load (i32.const 64))) (call $out32 (i32.load (i32.const 128)))
          (call $poll (i32.const 0) (i64.const 1000000) (i32.const 0))
          (call $poll (i32.const 0) (i64.const 1000001) (i32.const 0))
          (call $poll (i32.const 0) (i64.const 0) (i32.const 0))
          (call $poll (i32.const 0) (i64.const 7500000) (i32.const 1))
          (call $poll (i32.const 0) (i64.const 9000000) (i32.const 1))
          (call $poll (i32.const 0) (i64.const 3) (i32.const 1))
          (call $poll (i32.const 1) (i64.const 1) (i32.const 0))
          (call $out32 (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 128)))
          (call $out32 (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 2) (i32.const 128))))"#;
        assert_eq!(numbers(body), [0, 1, 77, 1, 0, 2, 0, 4, 0, 4, 0, 8, 0, 9, 0, 9, 52, 9, 28, 52]);
    }

    ProcExit proc_exit_ends_every_coroutine {
        let body = r#"
        (func $waits (param i64) (drop (call $recv (i32.const 0) (i32.const 8))))
        (func $sleeps (param i64) (call $sleep (i64.const 1000)) (call $out (i64.const -1)))
        (func $loops (param i64) (loop $l (br $l)))
        (func $exits (param i64) (call $proc_exit (i32.const 9)) (call $out (i64.const -1)))
        (elem (i32.const 0) $waits $sleeps $loops $exits)
        (func (export "_start") (local $i i32)
          (drop (call $channel (i32.const 1)))
          (loop $next
            (drop (call $spawn (local.get $i) (i64.const 0)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $i) (i32.const 4))))
          (drop (call $join (i64.const 1) (i32.const 8))) (call $out (i64.const -1)))"#;
        let run = Machine::one(body).run();
        assert_eq!((run.outcome, run.numbers(0).len()), (RunOutcome::Finished, 0));
        let session = run.session(0);
        assert_eq!((session.outcome, session.exit, session.spawned, session.finished), (SessionOutcome::Finished, 9, 5, 1));
        assert_eq!(run.summary.frames, 1);
    }
}

#[test]
fn pipes_have_no_position_directory_or_socket() {
    for &operation in HostOperation::ALL {
        let Some((stream, other)) = constant_answer(operation) else { continue };
        let descriptor_at = if operation == HostOperation::PathSymlink { 2 } else { 0 };
        let call = |descriptor: i32| {
            let arguments = operation.params().iter().enumerate().map(|(at, value)| match value {
                wavelock_abi::HostValue::I32 if at == descriptor_at => {
                    format!("(i32.const {descriptor})")
                }
                wavelock_abi::HostValue::I32 => "(i32.const -1)".into(),
                wavelock_abi::HostValue::I64 => "(i64.const -1)".into(),
            });
            format!(
                "(call $out32 (call ${} {}))",
                operation.import(),
                arguments.collect::<String>()
            )
        };
        let closed = "(drop (call $fd_close (i32.const 2)))";
        let body = format!(
            r#"(func (export "_start") {} {} {} {closed} {})"#,
            call(1),
            call(3),
            call(-1),
            call(2)
        );
        assert_eq!(numbers(&body), [stream, other, other, other], "{}", operation.import());
    }
}

/// Cycles between two readings around one call of an operation, with its arguments as constants and
/// its results dropped.
fn charged(
    setup: &str,
    operation: HostOperation,
    arguments: &str,
    machine: impl Fn(&mut Machine),
) -> i64 {
    let drops = "(drop)".repeat(operation.results().len());
    let body = format!(
        r#"(func $child (param i64)) (elem (i32.const 0) $child)
        (func (export "_start") (local $t i64) {setup}
          (local.set $t (call $cycles)) {arguments} (call ${}) {drops} (local.set $t (i64.sub (call $cycles) (local.get $t)))
          (call $out (local.get $t)))"#,
        operation.import()
    );
    let body = body.replace(
        "(call $out (i64.sub (call $cycles) (local.get $t)))",
        "(local.set $t (i64.sub (call $cycles) (local.get $t))) (call $out (local.get $t))",
    );
    let mut made = Machine::one(&body);
    machine(&mut made);
    let run = made.run();
    let last = run
        .bytes(0)
        .last_chunk()
        .copied()
        .unwrap_or_else(|| panic!("{operation:?}: {:?}", run.summary.sessions));
    i64::from_le_bytes(last)
}

/// What the sequence of [`charged`] costs, but for the operation's own base and size.
fn around(operation: HostOperation) -> i64 {
    let call = i64::from(wavelock_module::cost::CALL);
    let (arguments, results) = (operation.params().len() as i64, operation.results().len() as i64);
    // local.set, the constants, the call with its arguments, the drops, and the second reading.
    1 + arguments + call + arguments + results + call + 4
}

#[test]
fn every_operation_costs_its_base() {
    let constants = |operation: HostOperation| -> String {
        operation
            .params()
            .iter()
            .map(|value| {
                if *value == wavelock_abi::HostValue::I32 {
                    "(i32.const 0)"
                } else {
                    "(i64.const 0)"
                }
            })
            .collect()
    };
    let ends = [HostOperation::Exit, HostOperation::ProcExit];
    for &operation in HostOperation::ALL.iter().filter(|operation| !ends.contains(operation)) {
        let (setup, arguments) = match operation {
            // A join of one that ended, and a receive of what is there, so that nothing waits for
            // long; cost is the same when it does.
            HostOperation::Join => (
                "(drop (call $spawn (i32.const 0) (i64.const 0)))",
                "(i64.const 1) (i32.const 0)".into(),
            ),
            HostOperation::Recv => (
                "(drop (call $channel (i32.const 1))) (drop (call $send (i32.const 0) (i64.const 1)))",
                constants(operation),
            ),
            HostOperation::Cancel => {
                ("(drop (call $spawn (i32.const 0) (i64.const 0)))", "(i64.const 1)".into())
            }
            HostOperation::Sleep => ("", "(i64.const 2)".into()),
            HostOperation::Park => ("(drop (call $unpark (i64.const 0)))", String::new()),
            HostOperation::PollOneoff => (
                "(i64.store (i32.const 24) (i64.const 1000000))",
                "(i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)".into(),
            ),
            _ => ("", constants(operation)),
        };
        assert_eq!(
            charged(setup, operation, &arguments, |_| ()) - around(operation),
            operation.cost().0 as i64,
            "{operation:?}"
        );
    }
}

#[test]
fn operations_that_end_a_coroutine_are_charged_too() {
    let call = u64::from(wavelock_module::cost::CALL);
    for (operation, argument) in
        [(HostOperation::Exit, "(i64.const 1)"), (HostOperation::ProcExit, "(i32.const 1)")]
    {
        let run = Machine::one(&format!(
            r#"(func (export "_start") (call ${} {argument}))"#,
            operation.import()
        ))
        .run();
        assert_eq!(run.session(0).cycles.0, 1 + call + 1 + operation.cost().0, "{operation:?}");
    }
}

/// What is done to a machine before it runs.
type Setup<'a> = &'a dyn Fn(&mut Machine);

// Long: one row per sized operation.
#[test]
fn sized_operations_cost_per_eight_bytes() {
    let channel = "(drop (call $channel (i32.const 2)))";
    let iovec = |bytes: u32| {
        format!(
            "(i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const {bytes}))"
        )
    };
    let mut seen = Vec::new();
    for bytes in [0u32, 1, 8, 9, 1000, 40_000] {
        let region = format!("(i32.const 64) (i32.const {bytes})");
        let queued = format!("{channel} (drop (call $send_bytes (i32.const 0) {region}))");
        let args = |machine: &mut Machine| {
            machine.spec.sessions[0].args = vec!["x".repeat(bytes.saturating_sub(1) as usize)]
        };
        let env = |machine: &mut Machine| {
            machine.spec.sessions[0].env =
                vec![("".into(), "x".repeat(bytes.saturating_sub(2) as usize))]
        };
        let named =
            |machine: &mut Machine| machine.spec.sessions[0].name = "x".repeat(bytes as usize);
        let given = |machine: &mut Machine| {
            machine.input(0, wavelock_abi::SessionId(0), &vec![1; bytes as usize]);
        };
        let none = |_: &mut Machine| ();
        let cases: Vec<(HostOperation, String, String, u64, Setup<'_>)> = vec![
            (HostOperation::Port, "".into(), region.clone(), bytes.into(), &none),
            (
                HostOperation::SendBytes,
                channel.into(),
                format!("(i32.const 0) {region}"),
                bytes.into(),
                &none,
            ),
            (
                HostOperation::RecvBytes,
                queued,
                "(i32.const 0) (i32.const 64) (i32.const 50000)".into(),
                bytes.into(),
                &none,
            ),
            (HostOperation::Output, "".into(), region.clone(), bytes.into(), &none),
            (HostOperation::Log, "".into(), region.clone(), bytes.into(), &none),
            (HostOperation::RandomGet, "".into(), region.clone(), bytes.into(), &none),
            (
                HostOperation::Input,
                "".into(),
                "(i32.const 64) (i32.const 50000)".into(),
                bytes.into(),
                &given,
            ),
            (
                HostOperation::SessionName,
                "".into(),
                "(i32.const 64) (i32.const 50000)".into(),
                bytes.into(),
                &named,
            ),
            (
                HostOperation::FdWrite,
                iovec(bytes),
                "(i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)".into(),
                bytes.into(),
                &none,
            ),
            (
                HostOperation::FdRead,
                iovec(50_000),
                "(i32.const 0) (i32.const 0) (i32.const 1) (i32.const 32)".into(),
                bytes.into(),
                &given,
            ),
            (
                HostOperation::ArgsGet,
                "".into(),
                "(i32.const 0) (i32.const 64)".into(),
                bytes.max(1).into(),
                &args,
            ),
            (
                HostOperation::EnvironGet,
                "".into(),
                "(i32.const 0) (i32.const 64)".into(),
                bytes.max(2).into(),
                &env,
            ),
        ];
        for (operation, setup, arguments, moved, machine) in cases {
            let expected = operation.cost().0 + moved.div_ceil(8) * operation.cost_per_8_bytes();
            assert_eq!(
                charged(&setup, operation, &arguments, machine) - around(operation),
                expected as i64,
                "{operation:?} of {bytes}"
            );
            seen.push(operation);
        }
    }
    for count in [1u64, 2, 5, 700] {
        let setup = format!("{channel} (drop (call $send (i32.const 0) (i64.const 1)))");
        let expected = HostOperation::Select.cost().0
            + (count * 4).div_ceil(8) * HostOperation::Select.cost_per_8_bytes();
        let arguments = format!("(i32.const 64) (i32.const {count})");
        assert_eq!(
            charged(&setup, HostOperation::Select, &arguments, |_| ())
                - around(HostOperation::Select),
            expected as i64
        );
    }
    seen.push(HostOperation::Select);
    let sized = HostOperation::ALL.iter().filter(|operation| operation.cost_per_8_bytes() > 0);
    assert_eq!(
        sized.filter(|operation| !seen.contains(operation)).collect::<Vec<_>>(),
        Vec::<&HostOperation>::new()
    );
}

#[test]
fn what_is_charged_does_not_depend_on_slicing() {
    let body = r#"
    (func $sender (param i64) (drop (call $send_bytes (i32.const 0) (i32.const 64) (i32.const 30000))))
    (elem (i32.const 0) $sender)
    (func (export "_start")
      (drop (call $channel (i32.const 1))) (drop (call $spawn (i32.const 0) (i64.const 0)))
      (drop (call $output (i32.const 64) (i32.const 20000)))
      (drop (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 40000)))
      (call $out (call $cycles)))"#;
    let cycles = |quantum: u64| {
        let mut machine = Machine::one(body);
        machine.times(20_000, 9_000, quantum);
        let run = machine.run();
        (
            run.bytes(0)[20_000..].to_vec(),
            run.session(0).cycles,
            run.session(0).host_calls,
            run.summary.steps,
        )
    };
    let (long, short) = (cycles(1_000_000), cycles(2_000));
    assert_eq!((&long.0, long.1, long.2), (&short.0, short.1, short.2));
    assert!(short.3 > long.3 + 2, "the short quantum did cut the calls into more slices");
}

/// Calls with a pointer that leaves the memory of one page, whole or by one byte.
// Long: a table of calls, one row each.
fn bad_pointers() -> Vec<(HostOperation, String)> {
    let mut calls = Vec::new();
    let mut add = |operation: HostOperation, arguments: &str| {
        calls.push((operation, format!("(drop (call ${} {arguments}))", operation.import())))
    };
    for bad in ["65529", "-2", "2147483647"] {
        add(HostOperation::Join, &format!("(i64.const 0) (i32.const {bad})"));
        add(HostOperation::SessionWait, &format!("(i32.const 0) (i32.const {bad})"));
        add(HostOperation::Recv, &format!("(i32.const 0) (i32.const {bad})"));
        add(HostOperation::TryRecv, &format!("(i32.const 0) (i32.const {bad})"));
        for operation in [HostOperation::SendBytes, HostOperation::RecvBytes] {
            add(operation, &format!("(i32.const 0) (i32.const {bad}) (i32.const 8)"));
            add(operation, "(i32.const 0) (i32.const 8) (i32.const -1)");
            add(operation, "(i32.const 0) (i32.const -1) (i32.const -1)");
        }
        for operation in [
            HostOperation::Port,
            HostOperation::Input,
            HostOperation::SessionName,
            HostOperation::Output,
            HostOperation::RandomGet,
        ] {
            add(operation, &format!("(i32.const {bad}) (i32.const 8)"));
            add(operation, "(i32.const 1) (i32.const 65536)");
            add(operation, "(i32.const -1) (i32.const -1)");
        }
        add(HostOperation::Select, &format!("(i32.const {bad}) (i32.const 2)"));
        add(HostOperation::LeaseRequest, &format!("(i32.const 0) (i32.const {bad}) (i32.const 8)"));
        add(HostOperation::LeaseState, &format!("(i32.const 0) (i32.const {bad})"));
        add(HostOperation::Call, &format!("(i32.const 0) (i32.const {bad}) (i64.const 1)"));
        add(HostOperation::Accept, &format!("(i32.const 0) (i32.const {bad})"));
        add(
            HostOperation::Serve,
            &format!("(i32.const 0) (i32.const {bad}) (i32.const -1) (i64.const 0)"),
        );
        for operation in [HostOperation::ArgsSizesGet, HostOperation::EnvironSizesGet] {
            add(operation, &format!("(i32.const {bad}) (i32.const 0)").replace("65529", "65533"));
            add(operation, &format!("(i32.const 0) (i32.const {bad})").replace("65529", "65533"));
        }
        for operation in [HostOperation::ArgsGet, HostOperation::EnvironGet] {
            add(operation, &format!("(i32.const {bad}) (i32.const 0)").replace("65529", "65533"));
            add(operation, &format!("(i32.const 0) (i32.const {bad})").replace("65529", "65534"));
        }
        // Buffers at 200: one good, one bad.
        for (operation, stream) in
            [(HostOperation::FdRead, 0), (HostOperation::FdWrite, 1), (HostOperation::FdWrite, 2)]
        {
            add(
                operation,
                &format!("(i32.const {stream}) (i32.const {bad}) (i32.const 1) (i32.const 0)"),
            );
            add(
                operation,
                &format!("(i32.const {stream}) (i32.const 200) (i32.const 2) (i32.const 0)"),
            );
            add(
                operation,
                &format!("(i32.const {stream}) (i32.const 200) (i32.const 1) (i32.const {bad})")
                    .replace("65529", "65533"),
            );
            add(
                operation,
                &format!("(i32.const {stream}) (i32.const -8) (i32.const 2) (i32.const 0)"),
            );
        }
        add(HostOperation::FdFdstatGet, &format!("(i32.const 1) (i32.const {bad})"));
        add(HostOperation::FdFilestatGet, &format!("(i32.const 1) (i32.const {bad})"));
        add(HostOperation::ClockTimeGet, &format!("(i32.const 1) (i64.const 0) (i32.const {bad})"));
        add(HostOperation::ClockResGet, &format!("(i32.const 1) (i32.const {bad})"));
        add(
            HostOperation::PollOneoff,
            &format!("(i32.const {bad}) (i32.const 0) (i32.const 1) (i32.const 0)"),
        );
        add(
            HostOperation::PollOneoff,
            &format!("(i32.const 0) (i32.const {bad}) (i32.const 1) (i32.const 0)"),
        );
        add(
            HostOperation::PollOneoff,
            &format!("(i32.const 0) (i32.const 0) (i32.const 1) (i32.const {bad})")
                .replace("65529", "65533"),
        );
    }
    for region in ["(i32.const 65529) (i32.const 8)", "(i32.const -1) (i32.const -1)"] {
        calls.push((HostOperation::Log, format!("(call $log {region})")));
        calls.push((HostOperation::Capability, format!("(drop (call $capability {region}))")));
    }
    for (operation, name, past) in [
        (HostOperation::ContextCreate, "context_create", 65_536 - 47),
        (HostOperation::ContextConfigure, "context_configure", 65_536 - 47),
        (HostOperation::ContextNotice, "context_notice", 65_536 - 31),
    ] {
        calls.push((operation, format!("(drop (call ${name} (i32.const 0) (i32.const {past})))")));
    }
    calls
}

/// Operations whose answer never touches the pointer that they may have, beside those with a
/// constant answer.
const NO_POINTER: [HostOperation; 2] = [HostOperation::FdSeek, HostOperation::FdFdstatSetFlags];

// Long: a guest and its machine, then what must hold of them.
#[test]
fn a_bad_pointer_is_a_fault_of_that_coroutine_alone() {
    let neighbour =
        r#"(func (export "_start") (call $sleep (i64.const 1)) (call $out (i64.const 9)))"#;
    let machine = |call: &str| {
        let body = format!(
            r#"(func $child (param i64) {call}) (elem (i32.const 0) $child)
            (func (export "_start")
              (drop (call $channel (i32.const 1))) (drop (call $send (i32.const 0) (i64.const 1)))
              (i32.store (i32.const 204) (i32.const 8)) (i32.store (i32.const 208) (i32.const 65530)) (i32.store (i32.const 212) (i32.const 7))
              (call $out32 (call $join (call $spawn (i32.const 0) (i64.const 0)) (i32.const -1)))
              (call $out (i64.const 7)))"#
        );
        let mut machine = Machine::one(&body);
        machine.session("neighbour", neighbour);
        machine.spec.sessions[0].args = vec!["ab".into()];
        machine.spec.sessions[0].env = vec![("".into(), "a".into())];
        machine
    };
    let well = machine("").run();
    assert_eq!(well.numbers(0), [0, 7]);
    let mut seen = Vec::new();
    for (operation, call) in bad_pointers() {
        let run = machine(&call).run();
        assert_eq!(run.numbers(0), [EFAULTED, 7], "{call}");
        assert_eq!(run.outcome, RunOutcome::Finished, "a fault that is joined is handled: {call}");
        let faults = &run.session(0).faults;
        assert_eq!(
            (faults.len(), faults[0].code, faults[0].coroutine.slot),
            (1, FaultCode::BadPointer, 1),
            "{call}"
        );
        assert!(faults[0].offset > 0, "a fault says where: {call}");
        assert_eq!(run.session(1).digest, well.session(1).digest, "{call}");
        seen.push(operation);
    }
    // Operations whose answer never touches a pointer, and those without one, aside: each operation
    // is here.
    let exempt = |operation: &HostOperation| {
        constant_answer(*operation).is_some() || NO_POINTER.contains(operation)
    };
    let pointerless = [
        "spawn",
        "spawn_on",
        "spawn_stack",
        "detach",
        "yield",
        "sleep",
        "self",
        "cancel",
        "park",
        "unpark",
        "session_index",
        "exit",
        "channel",
        "send",
        "try_send",
        "close",
        "frame",
        "lane",
        "cycles",
        "remaining",
        "random",
        "context_bind",
        "context_unbind",
        "context_revoke",
        "context_consumed",
        "context_timeout",
        "context_yield",
        "weight",
        "latency_class",
        "priority",
        "lease_revoke",
        "reply",
        "fd_close",
        "sched_yield",
        "proc_exit",
    ];
    let missing: Vec<_> = HostOperation::ALL
        .iter()
        .filter(|operation| {
            !seen.contains(operation)
                && !pointerless.contains(&operation.import())
                && !exempt(operation)
        })
        .collect();
    assert_eq!(missing, Vec::<&HostOperation>::new());
}

#[test]
fn a_session_without_memory_faults_on_any_pointer() {
    let mut machine = Machine::new();
    machine.session_of(
        "main",
        r#"(module (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
        (func (export "_start") (drop (call $output (i32.const 0) (i32.const 0)))))"#,
    );
    let run = machine.run();
    assert_eq!(
        (run.outcome, run.session(0).faults[0].code),
        (RunOutcome::Faulted, FaultCode::BadPointer)
    );
}

#[test]
fn unknown_imports_are_refused_with_the_whole_list() {
    let text = r#"(module (import "wavelock" "yield" (func)) (import "wavelock" "yeild" (func)) (import "env" "puts" (func (param i32) (result i32)))
        (import "wavelock" "sleep" (func (param i32))) (import "env" "memory" (memory 1)) (func (export "_start")))"#;
    let mut machine = Machine::new();
    machine.session_of("main", text);
    let LoadError::MissingImports { session, missing } = machine.refusal() else {
        panic!("another refusal")
    };
    assert_eq!((session.as_str(), missing.len()), ("main", 4));
    for (found, wanted) in missing.iter().zip(["yeild", "puts", "it exists with type", "a memory"])
    {
        assert!(found.to_string().contains(wanted), "{found} names {wanted}");
    }
}

#[test]
fn an_entry_is_a_function_without_parameters() {
    for (text, says) in [
        (r#"(module (func (export "other")))"#, "neither"),
        (r#"(module (func (export "_start") (param i32)))"#, "has type"),
        (r#"(module (func (export "main") (result i64) (i64.const 0)))"#, "has type"),
        (r#"(module (memory (export "main") 1))"#, "is not a function"),
    ] {
        let mut machine = Machine::new();
        machine.session_of("main", text);
        assert!(machine.refusal().to_string().contains(says), "{text}");
    }
    let mut machine = Machine::new();
    machine.session_of("main", r#"(module (func (export "main") (result i32) (i32.const -3)))"#);
    let run = machine.run();
    assert_eq!((run.outcome, run.session(0).exit), (RunOutcome::Finished, -3));
}

#[test]
fn a_module_that_only_streams_keeps_early_input() {
    // It sleeps over the frame of its input, and reads later: a stream keeps what came.
    let text = r#"(module (import "wavelock" "sleep" (func $sleep (param i64)))
        (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
        (import "wavelock" "output" (func $output (param i32 i32) (result i32))) (memory 1)
        (func (export "_start") (call $sleep (i64.const 3)) (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 8))
          (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))) (drop (call $output (i32.const 16) (i32.load (i32.const 8))))))"#;
    let mut machine = Machine::new();
    let main = machine.session_of("main", text);
    machine.input(0, main, b"stdin");
    assert_eq!(machine.run().bytes(0), b"stdin");
}

#[test]
fn a_shadow_stack_that_cannot_be_found_is_warned_about() {
    let text = guest(r#"(global (mut i32) (i32.const 0)) (func (export "_start"))"#);
    let mut machine = Machine::new();
    machine.session_of("main", &text);
    assert!(machine.warnings()[0].to_string().contains("coroutine_globals"));
    let named =
        guest(r#"(global $__stack_pointer (mut i32) (i32.const 0)) (func (export "_start"))"#);
    let mut machine = Machine::new();
    machine.session_of("main", &named);
    assert_eq!(machine.warnings(), []);
}

/// What the scheduler refuses reaches people through three errors; each tells it in words, with the
/// numbers, and says who was refused.
#[test]
fn a_refusal_of_the_scheduler_is_a_sentence() {
    let memory = Refusal::OutOfMemory { wanted: 41 };
    let host = HostFailure::Kernel(memory).to_string();
    assert_eq!(
        host,
        "the host could not hold another coroutine: the host has no memory for 41 entries more"
    );
    let kernel = LoadError::Kernel {
        session: "a".into(),
        refusal: Refusal::NotReserved { live: 42, capacity: 42 },
    }
    .to_string();
    assert_eq!(
        kernel,
        "session `a`: the scheduler refused its first coroutine: the lane has 42 coroutines and room for 42"
    );
    let context = |refusal| LoadError::Context { context: "c".into(), refusal }.to_string();
    assert_eq!(context(ContextRefusal::Off), "context `c`: the lane keeps no contexts");
    assert_eq!(
        context(ContextRefusal::Coroutine(memory)),
        "context `c`: the host has no memory for 41 entries more"
    );
    let bound = ContextRefusal::TargetBound { to: ContextRef { slot: 43, generation: 44 } };
    assert_eq!(context(bound), "context `c`: the session's first coroutine has a context already");
}
