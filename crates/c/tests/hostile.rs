//! Hostile callers: null pointers, wrong lengths and texts, handles that were dropped, are of
//! another kind or were made up, objects in use, results of the wrong size. Each is a code with a
//! text, and what it was about goes on.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wavelock_c::exports::*;
use wavelock_c::wavelock_code::{self, *};

const CALLER: &str = r#"(module
  (import "c" "view" (func $view (param i32) (result i32)))
  (import "c" "set" (func $set (param i32)))
  (import "c" "ask" (func $ask (param i64 f32) (result i64)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start") (local $length i32)
    (loop $forever
      (local.set $length (call $input (i32.const 64) (i32.const 64)))
      (if (i32.gt_s (local.get $length) (i32.const 0)) (then
        (drop (call $output (i32.const 64) (local.get $length)))))
      (i32.store (i32.const 0) (call $view (i32.const 9)))
      (call $set (i32.const 3))
      (drop (call $output (i32.const 0) (i32.const 4)))
      (i64.store (i32.const 8) (call $ask (i64.const 5) (f32.const 1.5)))
      (drop (call $output (i32.const 8) (i32.const 8)))
      (call $sleep (i64.const 1))
      (br $forever))))"#;

fn text() -> String {
    let (mut buffer, mut length) = ([0u8; 512], 0);
    // SAFETY: a buffer of its length.
    let code = unsafe { wavelock_error(buffer.as_mut_ptr().cast(), buffer.len(), &raw mut length) };
    assert_eq!(code, WAVELOCK_OK);
    assert_eq!(buffer[length.min(511)], 0, "it ends with a zero byte if it fits");
    String::from_utf8(buffer[..length].to_vec()).expect("UTF-8")
}

fn ok(code: wavelock_code) {
    assert_eq!(code, WAVELOCK_OK, "{}", text());
}

fn refused(code: wavelock_code, expected: wavelock_code) {
    assert_eq!(code, expected, "{}", text());
    assert!(!text().is_empty());
}

/// The state behind the host: the sum of what was set, in a box.
fn user(sum: u64) -> *mut c_void {
    Box::into_raw(Box::new(AtomicU64::new(sum))).cast()
}

fn sum(user: *const c_void) -> &'static AtomicU64 {
    // SAFETY: made by `user` and not freed while a call uses it.
    unsafe { &*user.cast() }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn copy(from: *const c_void) -> *mut c_void {
    ALIVE.fetch_add(1, Ordering::SeqCst);
    user(sum(from).load(Ordering::SeqCst))
}

unsafe extern "C" fn free(old: *mut c_void) {
    ALIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: made by `user`, and freed once.
    drop(unsafe { Box::from_raw(old.cast::<AtomicU64>()) });
}

static MACHINE: AtomicU64 = AtomicU64::new(0);
static LAST_CALL: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn view(
    user: *mut c_void,
    call: wavelock_handle,
    arguments: *const u64,
    results: *mut u64,
) -> bool {
    LAST_CALL.store(call, Ordering::SeqCst);
    let (mut bytes, far, machine) = ([1u8; 4], u32::MAX, MACHINE.load(Ordering::SeqCst));
    let (mut session, mut frame) = (7, 7);
    // SAFETY: as the contract of a host function says.
    unsafe {
        ok(wavelock_call_from(call, &raw mut session, &raw mut frame));
        ok(wavelock_call_read(call, 128, bytes.as_mut_ptr(), 4));
        ok(wavelock_call_write(call, 128, bytes.as_ptr(), 4));
        refused(wavelock_call_read(call, far, bytes.as_mut_ptr(), 4), WAVELOCK_RANGE);
        refused(wavelock_call_write(call, far, bytes.as_ptr(), 4), WAVELOCK_RANGE);
        refused(wavelock_call_read(call, 0, null_mut(), 4), WAVELOCK_NULL);
        refused(wavelock_call_read(call + 1, 0, bytes.as_mut_ptr(), 4), WAVELOCK_STALE);
        // Calls back into the machine that calls it.
        refused(wavelock_advance(machine, null_mut()), WAVELOCK_BUSY);
        refused(wavelock_save(machine, &raw mut LEAKED), WAVELOCK_BUSY);
        // Bits above the number of 32 bits are dropped.
        *results = (0xff << 32) | (*arguments + sum(user).load(Ordering::SeqCst));
    }
    session == 0
}

static mut LEAKED: u64 = 0;

unsafe extern "C" fn set(
    user: *mut c_void,
    _: wavelock_handle,
    arguments: *const u64,
    _: *mut u64,
) -> bool {
    // SAFETY: one argument.
    sum(user).fetch_add(unsafe { *arguments }, Ordering::SeqCst);
    true
}

static CONFIRMED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn confirmed(_: *mut c_void, frame: u64, digest: *const u8) {
    // SAFETY: 32 bytes.
    let digest = unsafe { std::slice::from_raw_parts(digest, 32) };
    assert!(digest.iter().any(|byte| *byte != 0));
    CONFIRMED.store(frame + 1, Ordering::SeqCst);
}

fn c(text: &'static [u8]) -> *const c_char {
    assert_eq!(text.last(), Some(&0));
    text.as_ptr().cast()
}

/// A machine with one session, its engine and its module.
fn machine() -> (u64, u64, u64) {
    let [mut engine, mut module, mut host, mut session, mut of, mut machine] = [0u64; 6];
    ALIVE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: texts end with zero bytes, and results have room.
    unsafe {
        ok(wavelock_engine_new(1, &raw mut engine));
        ok(wavelock_module_new(engine, CALLER.as_ptr(), CALLER.len(), &raw mut module));
        ok(wavelock_host_new(c(b"c\0"), 1, user(0), Some(copy), Some(free), &raw mut host));
        let (view_text, name) = (c(b"view\0"), c(b"c\0"));
        ok(wavelock_host_function(host, 1, name, view_text, 20, c(b"i\0"), c(b"i\0"), Some(view)));
        ok(wavelock_host_function(host, 2, name, c(b"set\0"), 20, c(b"i\0"), c(b"\0"), Some(set)));
        ok(wavelock_host_function(host, 3, name, c(b"ask\0"), 20, c(b"If\0"), c(b"I\0"), None));
        ok(wavelock_session_new(c(b"main\0"), module, &raw mut session));
        ok(wavelock_session_cap(session, 100_000, 1, 0));
        ok(wavelock_description_new(engine, &raw mut of));
        ok(wavelock_description_rollback(of, 8));
        ok(wavelock_description_host(of, host));
        ok(wavelock_description_session(of, session));
        ok(wavelock_machine_new(of, &raw mut machine));
        // Drafts are used up.
        for used in [host, session, of] {
            refused(wavelock_drop(used), WAVELOCK_STALE);
        }
    }
    (machine, engine, module)
}

fn advance(machine: u64) -> wavelock_report {
    let mut report = wavelock_report::default();
    // SAFETY: room for a report.
    ok(unsafe { wavelock_advance(machine, &raw mut report) });
    report
}

fn output(machine: u64, number: usize) -> Vec<u8> {
    let (mut bytes, mut length) = ([0; 64], 0);
    // SAFETY: a buffer of its length.
    let code = unsafe {
        wavelock_output(machine, number, null_mut(), bytes.as_mut_ptr(), 64, &raw mut length)
    };
    ok(code);
    bytes[..length].to_vec()
}

#[test]
fn a_machine_with_host_functions_asks_and_rollback_in_c() {
    let (machine, engine, module) = machine();
    MACHINE.store(machine, Ordering::SeqCst);
    let mut before = 0;
    // SAFETY: results have room, buffers have their lengths.
    unsafe {
        ok(wavelock_observe(machine, Some(confirmed), null_mut()));
        ok(wavelock_save(machine, &raw mut before));
        let first = advance(machine);
        assert_eq!((first.outputs, first.asks, first.outcome), (1, 1, -1));
        assert_eq!(output(machine, 0), 9u32.to_le_bytes());
        let (mut session, mut ask, mut name, mut arguments) = (9, 9, [0u8; 8], [0u64; 8]);
        let (at, words) = (name.as_mut_ptr(), arguments.as_mut_ptr());
        ok(wavelock_ask(machine, 0, &raw mut session, &raw mut ask, at, 8, words));
        assert_eq!((session, ask, &name[..4]), (0, 0, &b"ask\0"[..]));
        assert_eq!(arguments[..2], [5, u64::from(1.5f32.to_bits())]);
        refused(wavelock_answer(machine, 0, 7, [4].as_ptr(), 1, null_mut()), WAVELOCK_UNKNOWN);
        refused(wavelock_answer(machine, 0, 0, [4, 4].as_ptr(), 2, null_mut()), WAVELOCK_INPUT);
        refused(wavelock_answer(machine, 0, 0, null(), 1, null_mut()), WAVELOCK_NULL);
        ok(wavelock_answer(machine, 0, 0, [77].as_ptr(), 1, null_mut()));
        let second = advance(machine);
        assert_eq!(output(machine, 0), 77u64.to_le_bytes());
        // The command's effect is seen.
        let third = advance(machine);
        assert_eq!(output(machine, 0), 12u32.to_le_bytes());
        // Back, and the same again: the state behind the host too.
        ok(wavelock_load(machine, before));
        assert_eq!(advance(machine).digest, first.digest);
        ok(wavelock_answer(machine, 0, 0, [77].as_ptr(), 1, null_mut()));
        assert_eq!(advance(machine).digest, second.digest);
        assert_eq!(advance(machine).digest, third.digest);
        assert_eq!(CONFIRMED.load(Ordering::SeqCst), 0);
        ok(wavelock_confirm(machine, 2));
        assert_eq!(CONFIRMED.load(Ordering::SeqCst), 2);
        refused(wavelock_load(machine, before), WAVELOCK_SNAPSHOT);
        ok(wavelock_answer(machine, 0, 1, [1].as_ptr(), 1, null_mut()));
        advance(machine);
        ok(wavelock_post(machine, 0, b"hi".as_ptr(), 2));
        advance(machine);
        assert_eq!(output(machine, 0)[..2], *b"hi");
        let mut usage = wavelock_usage::default();
        ok(wavelock_session_usage(machine, 0, &raw mut usage));
        assert!(usage.cycles > 100 && usage.coroutines == 1 && usage.outcome == -1);
        // Control inputs, and their refusals.
        ok(wavelock_set_weight(machine, 0, 9, null_mut()));
        ok(wavelock_set_cap(machine, 0, 0, 0, 0, null_mut()));
        refused(wavelock_set_context_budget(machine, 0, c(b"no\0"), 1, null_mut()), WAVELOCK_INPUT);
        ok(wavelock_end_session(machine, 0, null_mut()));
        ok(wavelock_hold(machine, 0, null_mut()));
        let report = advance(machine);
        assert_eq!((report.ended, report.refused), (1, 1));
        let mut outcome = 9;
        ok(wavelock_ended(machine, 0, &raw mut session, &raw mut outcome));
        assert_eq!((session, outcome), (0, 5));
        let mut length = 0;
        ok(wavelock_refusal(machine, 0, null_mut(), 0, &raw mut length));
        assert!(length > 30);
        let mut frame = 0;
        ok(wavelock_replace_session(machine, 0, module, b"xy".as_ptr(), 2, &raw mut frame));
        advance(machine);
        assert_eq!(output(machine, 0)[..2], *b"xy");
        let mut done = false;
        while !done {
            ok(wavelock_advance_for(machine, 0, &raw mut done, null_mut()));
        }
        for handle in [before, machine, module, engine] {
            ok(wavelock_drop(handle));
            refused(wavelock_drop(handle), WAVELOCK_STALE);
        }
    }
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "every copy of the state was freed");
    let call = LAST_CALL.load(Ordering::SeqCst);
    // SAFETY: null is allowed.
    refused(unsafe { wavelock_call_from(call, null_mut(), null_mut()) }, WAVELOCK_STALE);
}

#[test]
fn wrong_pointers_texts_numbers_and_handles_are_codes() {
    let mut engine = 0;
    let mut other = 0;
    let wrong = c(b"\xff\xfe\0");
    // SAFETY: null pointers and wrong numbers are what is tested; texts end with zero bytes.
    unsafe {
        refused(wavelock_engine_new(1, null_mut()), WAVELOCK_NULL);
        refused(wavelock_engine_new(0, &raw mut engine), WAVELOCK_RANGE);
        ok(wavelock_engine_new(1, &raw mut engine));
        refused(wavelock_module_new(engine, null(), 5, &raw mut other), WAVELOCK_NULL);
        refused(
            wavelock_module_new(engine, b"x".as_ptr(), usize::MAX, &raw mut other),
            WAVELOCK_RANGE,
        );
        refused(wavelock_module_new(engine, b"x".as_ptr(), 1, &raw mut other), WAVELOCK_MODULE);
        refused(wavelock_module_new(engine, null(), 0, &raw mut other), WAVELOCK_MODULE);
        for handle in [0, 1 << 32, u64::MAX, engine + (1 << 33)] {
            refused(wavelock_module_new(handle, null(), 0, &raw mut other), WAVELOCK_STALE);
            refused(wavelock_advance(handle, null_mut()), WAVELOCK_STALE);
            refused(wavelock_drop(handle), WAVELOCK_STALE);
        }
        refused(wavelock_advance(engine, null_mut()), WAVELOCK_KIND);
        refused(wavelock_session_lane(engine, 1), WAVELOCK_KIND);
        refused(wavelock_session_new(null(), engine, &raw mut other), WAVELOCK_NULL);
        refused(wavelock_session_new(wrong, engine, &raw mut other), WAVELOCK_TEXT);
        refused(wavelock_session_new(c(b"a\0"), engine, &raw mut other), WAVELOCK_KIND);
        let (mut host, mut of, mut machine) = (0, 0, 0);
        ok(wavelock_host_new(c(b"h\0"), 1, null_mut(), None, None, &raw mut host));
        let name = c(b"f\0");
        let long = c(b"iiiiiiiii\0");
        for (params, results, kind, expected) in [
            (c(b"x\0"), c(b"\0"), 0, WAVELOCK_RANGE),
            (long, c(b"\0"), 0, WAVELOCK_RANGE),
            (c(b"\0"), c(b"\0"), 4, WAVELOCK_RANGE),
            (c(b"\0"), c(b"i\0"), 2, WAVELOCK_RANGE),
            (null(), c(b"\0"), 0, WAVELOCK_NULL),
            (wrong, c(b"\0"), 0, WAVELOCK_TEXT),
        ] {
            let added =
                wavelock_host_function(host, kind, name, name, 1, params, results, Some(set));
            refused(added, expected);
        }
        let none = wavelock_host_function(host, 1, name, name, 1, c(b"\0"), c(b"\0"), None);
        refused(none, WAVELOCK_NULL);
        ok(wavelock_description_new(engine, &raw mut of));
        refused(wavelock_description_policy(of, c(b"fairest\0")), WAVELOCK_UNKNOWN);
        let manifest = wavelock_description_manifest(of, c(b"[machine]\nlanes = 0\0"), c(b".\0"));
        refused(manifest, WAVELOCK_MANIFEST);
        refused(wavelock_description_session(of, host), WAVELOCK_KIND);
        ok(wavelock_description_lanes(of, 0));
        refused(wavelock_machine_new(of, &raw mut machine), WAVELOCK_LOAD);
        refused(wavelock_machine_new(of, &raw mut machine), WAVELOCK_STALE);
        assert_eq!(machine, 0, "a refusal writes no result");
        ok(wavelock_drop(host));
        let nowhere = c(b"/nowhere/at/all\0");
        refused(wavelock_import(engine, nowhere, 0, &raw mut machine), WAVELOCK_IO);
        // What was refused before is no part of a machine that is made now.
        let (guest, mut module) = (r#"(module (func (export "_start")))"#, 0);
        ok(wavelock_module_new(engine, guest.as_ptr(), guest.len(), &raw mut module));
        ok(wavelock_session_new(c(b"short\0"), module, &raw mut other));
        ok(wavelock_description_new(engine, &raw mut of));
        ok(wavelock_description_session(of, other));
        ok(wavelock_machine_new(of, &raw mut machine));
        refused(wavelock_input(machine, 9, b"x".as_ptr(), 1, null_mut()), WAVELOCK_INPUT);
        refused(
            wavelock_output(machine, 0, null_mut(), null_mut(), 0, null_mut()),
            WAVELOCK_UNKNOWN,
        );
        refused(wavelock_session_usage(machine, 3, &raw mut USAGE), WAVELOCK_UNKNOWN);
        refused(wavelock_set_weight(machine, 0, 0, null_mut()), WAVELOCK_RANGE);
        refused(wavelock_set_cap(machine, 0, 1, 1, 9, null_mut()), WAVELOCK_RANGE);
        refused(wavelock_record(machine, nowhere, 0), WAVELOCK_IO);
        refused(wavelock_record(machine, nowhere, 9), WAVELOCK_UNKNOWN);
        refused(wavelock_export(machine, nowhere), WAVELOCK_IO);
        refused(wavelock_observe(machine, None, null_mut()), WAVELOCK_NULL);
        refused(wavelock_advance_for(machine, 1, null_mut(), null_mut()), WAVELOCK_NULL);
        ok(wavelock_advance_for(machine, u64::MAX, &raw mut DONE, null_mut()));
        ok(wavelock_stop(machine, null_mut()));
        advance(machine);
        refused(wavelock_advance(machine, null_mut()), WAVELOCK_OVER);
        for handle in [machine, module, engine] {
            ok(wavelock_drop(handle));
        }
    }
}

static mut USAGE: wavelock_usage = wavelock_usage {
    cycles: 0,
    host_calls: 0,
    messages: 0,
    memory_bytes: 0,
    coroutines: 0,
    outcome: 0,
};
static mut DONE: bool = false;

#[test]
fn a_machine_in_use_is_busy_for_other_threads_and_can_be_interrupted() {
    let mut engine = 0;
    let (mut of, mut machine, mut module, mut session) = (0, 0, 0, 0);
    let busy = r#"(module (func (export "_start") (loop $more (br $more))))"#;
    // SAFETY: texts end with zero bytes, and results have room.
    unsafe {
        ok(wavelock_engine_new(1, &raw mut engine));
        ok(wavelock_module_new(engine, busy.as_ptr(), busy.len(), &raw mut module));
        ok(wavelock_session_new(c(b"busy\0"), module, &raw mut session));
        ok(wavelock_description_new(engine, &raw mut of));
        ok(wavelock_description_cycles(of, 1_000_000_000_000, 1_000_000, 0));
        ok(wavelock_description_session(of, session));
        ok(wavelock_machine_new(of, &raw mut machine));
        let runs = std::thread::spawn(move || wavelock_advance(machine, null_mut()));
        let mut frame = 0;
        while wavelock_frame(machine, &raw mut frame) != WAVELOCK_BUSY {
            std::thread::yield_now();
        }
        ok(wavelock_interrupt(machine));
        assert_eq!(runs.join().expect("it returns"), WAVELOCK_INTERRUPTED);
        let mut snapshot = 0;
        refused(wavelock_save(machine, &raw mut snapshot), WAVELOCK_IN_FRAME);
        for handle in [machine, module, engine] {
            ok(wavelock_drop(handle));
        }
    }
}
