//! Every function of the C interface, and all unsafe code of the crate.
//!
//! Every function returns a code; [`wavelock_error`] has the text of the last refusal of the
//! calling thread. Texts are UTF-8 and end with a zero byte; bytes come with their length, and may
//! be null if that is 0. Results are written through pointers, on success only. A function that
//! fills a buffer writes as much as fits, and always the whole length.
//!
//! # Safety
//!
//! The same for every function: each pointer is null or points at as many valid values as its type
//! and its length say, which no other thread changes during the call. Nothing keeps a pointer after
//! the call, but for the functions and the `user` pointer of a host, which must stay valid until
//! every machine and snapshot with that host was dropped, and which may be used from any thread.
#![allow(unsafe_code, reason = "the boundary to C: see Safety above")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all functions, above")]

use crate::failure::{Failure, keep, last};
use crate::handles::{self, Draft, Exclusive};
use crate::wavelock_code;
use crate::wavelock_code as Code;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wavelock::{
    Budget, Caller, CapOverrun, CapSettings, Cycles, Engine, Frame, FrameReport, Host, HostKind,
    HostNumber, Level, Machine, MachineBuilder, Module, Observer, OwnLimits, Policy, Remote,
    RunOutcome, Session, SessionBuilder, SessionOutcome, Snapshot, Weight,
};

/// The name of an object: an engine, module, host, description, session, machine or snapshot. 0 is
/// never one. `wavelock_drop` ends it; later uses are refused.
#[allow(non_camel_case_types, reason = "the name that C has")]
pub type wavelock_handle = u64;

/// A function of the host. `call` is valid until it returns. Arguments and results are words: a
/// number of 32 bits is the low half of one. Returning false, it faults the guest's coroutine.
#[allow(non_camel_case_types, reason = "the name that C has")]
pub type wavelock_function = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        call: wavelock_handle,
        arguments: *const u64,
        results: *mut u64,
    ) -> bool,
>;

/// Sees a confirmed frame: its number and the 32 bytes of the run digest.
#[allow(non_camel_case_types, reason = "the name that C has")]
pub type wavelock_observer =
    Option<unsafe extern "C" fn(user: *mut c_void, frame: u64, digest: *const u8)>;

/// A kind of host function.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types, reason = "the name that C has")]
pub enum wavelock_kind {
    /// Of its arguments alone; called in place, on any thread.
    WAVELOCK_PURE = 0,
    /// Sees the host's state and guest memory; called in place, on any thread.
    WAVELOCK_VIEW = 1,
    /// Changes the host's state at the wave's end; the guest goes on at once.
    WAVELOCK_COMMAND = 2,
    /// Never called: the guest waits for `wavelock_answer`.
    WAVELOCK_ASK = 3,
}

/// What a frame did.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(non_camel_case_types, reason = "the name that C has")]
pub struct wavelock_report {
    /// The frame.
    pub frame: u64,
    /// The run digest at its end.
    pub digest: [u8; 32],
    /// Outputs: `wavelock_output` has each.
    pub outputs: usize,
    /// Logs: `wavelock_log` has each.
    pub logs: usize,
    /// Sessions that ended: `wavelock_ended` has each.
    pub ended: usize,
    /// Asks that guests made: `wavelock_ask` has each.
    pub asks: usize,
    /// Refusals: `wavelock_refusal` has the text of each.
    pub refused: usize,
    /// How the run ended with it: 0 finished, 1 frames, 2 deadlocked, 3 faulted, 4 stopped,
    /// 5 killed; -1 if it goes on.
    pub outcome: i32,
    /// The time the host took for it, in nanoseconds.
    pub wall_nanoseconds: u64,
}

/// What a session has used so far.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(non_camel_case_types, reason = "the name that C has")]
pub struct wavelock_usage {
    /// Cycles charged to its coroutines.
    pub cycles: u64,
    /// Host operations it called.
    pub host_calls: u64,
    /// Messages it sent.
    pub messages: u64,
    /// Bytes of its memories.
    pub memory_bytes: u64,
    /// Coroutines alive.
    pub coroutines: u32,
    /// How it ended: 0 finished, 1 faulted, 3 deadlocked, 4 killed, 5 canceled; -1 if it has not.
    pub outcome: i32,
}

/// Runs a call: its refusal is kept for the thread, and no panic leaves it.
fn enter(call: impl FnOnce() -> Result<(), Failure>) -> wavelock_code {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Code::WAVELOCK_OK,
        Ok(Err(failure)) => keep(failure),
        Err(_) => keep(Failure::new(Code::WAVELOCK_BUG, "a bug of this library: please report it")),
    }
}

fn null() -> Failure {
    Failure::new(Code::WAVELOCK_NULL, "a pointer is null")
}

/// Bytes of the caller, for the length of a call. Only for arguments of exported functions.
fn bytes<'a>(start: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null());
    }
    if length > isize::MAX as usize {
        let text = format_args!("{length} bytes: more than a program can have");
        return Err(Failure::new(Code::WAVELOCK_RANGE, text));
    }
    // SAFETY: not null and of a possible length; by the contract of every exported function it
    // points at that many bytes, which nothing changes during the call.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// Values of the caller, for the length of a call. Only for arguments of exported functions.
fn values<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() {
        return Err(null());
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::new(Code::WAVELOCK_RANGE, format_args!("{count} values")));
    }
    // SAFETY: as for `bytes`, and aligned; used for numbers, which have every bit pattern.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// A text of the caller, for the length of a call. Only for arguments of exported functions.
fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: not null; by the contract of every exported function it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::new(Code::WAVELOCK_TEXT, error))
}

/// Where a result goes. Checked before anything else happens.
struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// Only for arguments of exported functions.
    fn new(to: *mut T) -> Result<Self, Failure> {
        NonNull::new(to).filter(|to| to.is_aligned()).map(Self).ok_or_else(null)
    }

    fn set(self, value: T) {
        // SAFETY: neither null nor unaligned; by the contract of every exported function it points
        // at room for one value, which nothing else uses during the call.
        unsafe { self.0.write(value) }
    }
}

/// A result that may be left out: null is allowed.
fn optional<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if !to.is_null() {
        Out::new(to)?.set(value);
    }
    Ok(())
}

/// Fills a buffer with what fits of some bytes, and sets their whole length.
fn fill(from: &[u8], buffer: *mut u8, capacity: usize, length: *mut usize) -> Result<(), Failure> {
    let fits = from.len().min(capacity);
    if fits > 0 && buffer.is_null() {
        return Err(null());
    }
    if fits > 0 {
        // SAFETY: neither is null, `fits` is at most the capacity that the caller promises and the
        // length of `from`, and a buffer of the caller overlaps no memory of this library.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), buffer, fits) }
    }
    optional(length, from.len())
}

/// Errors.
///
/// The text of the last refusal on this thread, without a zero byte at its end unless it fits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_error(
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> wavelock_code {
    enter(|| {
        let mut text = last().into_bytes();
        let whole = text.len();
        text.push(0);
        fill(&text, buffer.cast(), capacity, std::ptr::null_mut())?;
        optional(length, whole)
    })
}

/// Ends a handle. What it names lives on while something else needs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_drop(handle: wavelock_handle) -> wavelock_code {
    enter(|| handles::remove(handle))
}

/// Makes an engine: threads and loaded modules for any number of machines.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_engine_new(
    threads: usize,
    engine: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(engine)?;
        out.set(handles::insert(Engine::new(threads)?)?);
        Ok(())
    })
}

/// Loads a module from its binary or its text form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_module_new(
    engine: wavelock_handle,
    wasm_or_wat: *const u8,
    length: usize,
    module: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let (out, source) = (Out::new(module)?, bytes(wasm_or_wat, length)?);
        let engine = handles::get::<Engine>(engine)?;
        out.set(handles::insert(engine.module(source)?)?);
        Ok(())
    })
}

/// Describes a session that runs a module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_new(
    name: *const c_char,
    module: wavelock_handle,
    session: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let (out, name) = (Out::new(session)?, text(name)?);
        let session = SessionBuilder::new(name, &*handles::get::<Module>(module)?);
        out.set(handles::insert(Draft::new(Some(session)))?);
        Ok(())
    })
}

fn with_session(
    session: wavelock_handle,
    change: impl FnOnce(SessionBuilder) -> SessionBuilder,
) -> Result<(), Failure> {
    handles::change(session, change)
}

/// The lane that a session stays on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_lane(
    session: wavelock_handle,
    lane: u16,
) -> wavelock_code {
    enter(|| with_session(session, |session| session.lane(lane)))
}

/// One more argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_arg(
    session: wavelock_handle,
    arg: *const c_char,
) -> wavelock_code {
    enter(|| {
        let arg = text(arg)?;
        with_session(session, |session| session.arg(arg))
    })
}

/// One more environment variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_env(
    session: wavelock_handle,
    name: *const c_char,
    value: *const c_char,
) -> wavelock_code {
    enter(|| {
        let (name, value) = (text(name)?, text(value)?);
        with_session(session, |session| session.env(name, value))
    })
}

/// A port to a channel of another session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_port(
    session: wavelock_handle,
    name: *const c_char,
    channel: *const c_char,
) -> wavelock_code {
    enter(|| {
        let (name, channel) = (text(name)?, text(channel)?);
        with_session(session, |session| session.port(name, channel))
    })
}

/// A channel that the session owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_channel(
    session: wavelock_handle,
    name: *const c_char,
    capacity: u32,
) -> wavelock_code {
    enter(|| {
        let name = text(name)?;
        with_session(session, |session| session.channel(name, capacity))
    })
}

fn weight_of(weight: u16) -> Result<Weight, Failure> {
    let text = format_args!("a weight of {weight}: it is 1 to 4096");
    Weight::new(weight).ok_or_else(|| Failure::new(Code::WAVELOCK_RANGE, text))
}

/// The weight of a session, 1 to 4096.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_weight(
    session: wavelock_handle,
    weight: u16,
) -> wavelock_code {
    enter(|| {
        let weight = weight_of(weight)?;
        with_session(session, |session| session.weight(weight))
    })
}

fn cap_of(cycles: u64, frames: u64, overrun: u8) -> Result<CapSettings, Failure> {
    let text = format_args!("{overrun} is no overrun policy: 0 throttle, 1 demote, 2 end");
    let unknown = || Failure::new(Code::WAVELOCK_RANGE, text);
    let overrun = CapOverrun::from_code(overrun).ok_or_else(unknown)?;
    Ok(CapSettings { budget: Cycles(cycles), period_frames: frames, overrun })
}

/// The most cycles of a session in `frames` frames. `overrun`: 0 throttle, 1 demote, 2 end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_cap(
    session: wavelock_handle,
    cycles: u64,
    frames: u64,
    overrun: u8,
) -> wavelock_code {
    enter(|| {
        let cap = cap_of(cycles, frames, overrun)?;
        with_session(session, |session| session.cap_settings(cap))
    })
}

/// Cycles that a session is guaranteed in every `period` cycles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_budget(
    session: wavelock_handle,
    cycles: u64,
    period: u64,
) -> wavelock_code {
    let budget = Budget { cycles: Cycles(cycles), period: Cycles(period) };
    enter(|| with_session(session, |session| session.budget(budget)))
}

/// Limits of a session in place of the machine's: pages of memory, coroutines. 0 keeps one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_limits(
    session: wavelock_handle,
    memory_pages: u32,
    coroutines: u32,
) -> wavelock_code {
    let given = |limit: u32| (limit > 0).then_some(limit);
    let limits = OwnLimits {
        memory_pages: given(memory_pages),
        coroutines: given(coroutines),
        ..OwnLimits::default()
    };
    enter(|| with_session(session, |session| session.limits(limits)))
}

/// The state behind a host: a pointer of the C program.
struct User {
    owned: Arc<Owned>,
    copy: wavelock_copy,
    free: wavelock_free,
}

struct Owned {
    pointer: *mut c_void,
    free: wavelock_free,
}

/// Copies the state behind a host, for a snapshot.
#[allow(non_camel_case_types, reason = "the name that C has")]
pub type wavelock_copy = Option<unsafe extern "C" fn(user: *const c_void) -> *mut c_void>;

/// Frees the state behind a host, or a copy of it.
#[allow(non_camel_case_types, reason = "the name that C has")]
pub type wavelock_free = Option<unsafe extern "C" fn(user: *mut c_void)>;

// SAFETY: the contract of this file: the pointer of a host may be used from any thread.
unsafe impl Send for Owned {}
// SAFETY: the same. Two threads use it at once in pure functions and views only.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the pointer is the host's own or one that `copy` returned, and this is its
            // only owner.
            unsafe { free(self.pointer) }
        }
    }
}

impl User {
    fn new(pointer: *mut c_void, copy: wavelock_copy, free: wavelock_free) -> Self {
        Self { owned: Arc::new(Owned { pointer, free }), copy, free }
    }
}

/// A copy for a snapshot; without a function that copies, the same state again.
impl Clone for User {
    fn clone(&self) -> Self {
        let Self { owned, copy, free } = self;
        match copy {
            // SAFETY: the pointer is alive, because `owned` is; the function is the host's own.
            Some(copies) => Self::new(unsafe { copies(owned.pointer) }, *copy, *free),
            None => Self { owned: owned.clone(), copy: None, free: *free },
        }
    }
}

/// Makes a host: functions that guests import. `user` is the state behind them. With `copy`, a
/// snapshot of a machine has a copy of it and a load returns to that; without, the state is the
/// program's alone. `free`, if given, frees it and each copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_host_new(
    name: *const c_char,
    version: u32,
    user: *mut c_void,
    copy: wavelock_copy,
    free: wavelock_free,
    host: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let (out, name) = (Out::new(host)?, text(name)?);
        let host = Host::new(name, version, User::new(user, copy, free));
        out.set(handles::insert(Draft::new(Some(host)))?);
        Ok(())
    })
}

/// The types of a signature, as a text of the letters `i` (i32), `I` (i64), `f` (f32), `F` (f64).
fn types(signature: &str) -> Result<Vec<HostNumber>, Failure> {
    let number = |letter| match letter {
        'i' => Ok(HostNumber::I32),
        'I' => Ok(HostNumber::I64),
        'f' => Ok(HostNumber::F32),
        'F' => Ok(HostNumber::F64),
        other => {
            let text = format_args!("`{other}` is no type: i, I, f, F are i32, i64, f32, f64");
            Err(Failure::new(Code::WAVELOCK_RANGE, text))
        }
    };
    let types: Vec<HostNumber> = signature.chars().map(number).collect::<Result<_, _>>()?;
    if types.len() > 8 {
        let text = format_args!("{} values: at most 8 are allowed", types.len());
        return Err(Failure::new(Code::WAVELOCK_RANGE, text));
    }
    Ok(types)
}

/// Adds a function to a host. `kind` is a `wavelock_kind`; guests import it as `module` `name`;
/// each letter of `params` and `results` is a type (i i32, I i64, f f32, F f64). `function` may be
/// null for an ask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_host_function(
    host: wavelock_handle,
    kind: u32,
    module: *const c_char,
    name: *const c_char,
    cost: u64,
    params: *const c_char,
    results: *const c_char,
    function: wavelock_function,
) -> wavelock_code {
    enter(|| {
        let (module, name) = (text(module)?, text(name)?);
        let (params, results) = (types(text(params)?)?, types(text(results)?)?);
        let kinds = [HostKind::Pure, HostKind::View, HostKind::Command, HostKind::Ask];
        let unknown = || Failure::new(Code::WAVELOCK_RANGE, format_args!("kind {kind}"));
        let kind = *kinds.get(kind as usize).ok_or_else(unknown)?;
        if function.is_none() && kind != HostKind::Ask {
            return Err(null());
        }
        if kind == HostKind::Command && !results.is_empty() {
            let text = "a command returns nothing";
            return Err(Failure::new(Code::WAVELOCK_RANGE, text));
        }
        let types = (&params[..], &results[..]);
        let code = move |user: &User, caller: &mut Caller<'_, '_>, from: &[u64], to: &mut [u64]| {
            let Some(function) = function else { return false };
            let call = Call::begin(caller);
            // SAFETY: the function and its pointer are valid by the contract of this file, the
            // slices have as many words as the signature says, and `call` ends after it.
            unsafe { function(user.owned.pointer, call.0, from.as_ptr(), to.as_mut_ptr()) }
        };
        handles::change(host, |host: Host<User>| {
            host.function(kind, (module, name), Cycles(cost), types, code)
        })
    })
}

/// The calls of host functions that run on a thread, the innermost last.
struct Running {
    call: u64,
    caller: *mut c_void,
}

thread_local! {
    static CALLS: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// A call of a host function, until it is dropped.
struct Call(u64);

impl Call {
    fn begin(caller: &mut Caller<'_, '_>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let call = NEXT.fetch_add(1, Ordering::Relaxed);
        let caller = std::ptr::from_mut(caller).cast();
        CALLS.with(|calls| calls.borrow_mut().push(Running { call, caller }));
        Self(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.with(|calls| calls.borrow_mut().pop());
    }
}

/// Uses the caller of a call that runs on this thread.
fn with_caller<R>(
    call: u64,
    act: impl FnOnce(&mut Caller<'_, '_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let caller = CALLS.with(|calls| {
        let calls = calls.borrow();
        calls.iter().find(|running| running.call == call).map(|running| running.caller)
    });
    let ended = || Failure::new(Code::WAVELOCK_STALE, format_args!("call {call} has returned"));
    let caller: *mut Caller<'_, '_> = caller.ok_or_else(ended)?.cast();
    // SAFETY: `Call::begin` got it as a unique reference that outlives the entry in `CALLS`; it is
    // not used while the host's function runs, and `act` calls nothing of the C program, so this is
    // the only one.
    act(unsafe { &mut *caller })
}

/// The session and the frame of a call of a host function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_call_from(
    call: wavelock_handle,
    session: *mut u32,
    frame: *mut u64,
) -> wavelock_code {
    enter(|| {
        let (of, at) = with_caller(call, |caller| Ok((caller.session(), caller.frame())))?;
        optional(session, of.number())?;
        optional(frame, at.0)
    })
}

fn outside(address: u32, length: usize) -> Failure {
    let text = format_args!("{length} bytes from {address} on are not in the guest's memory");
    Failure::new(Code::WAVELOCK_RANGE, text)
}

/// Reads guest memory, in a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_call_read(
    call: wavelock_handle,
    address: u32,
    buffer: *mut u8,
    length: u32,
) -> wavelock_code {
    enter(|| {
        with_caller(call, |caller| {
            let read = caller.read(address, length);
            let read = read.ok_or_else(|| outside(address, length as usize))?;
            fill(read, buffer, length as usize, std::ptr::null_mut())
        })
    })
}

/// Writes guest memory, in a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_call_write(
    call: wavelock_handle,
    address: u32,
    from: *const u8,
    length: u32,
) -> wavelock_code {
    enter(|| {
        let from = bytes(from, length as usize)?;
        with_caller(call, |caller| {
            let is_written = caller.write(address, from);
            if is_written { Ok(()) } else { Err(outside(address, from.len())) }
        })
    })
}

/// Begins the description of a machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_new(
    engine: wavelock_handle,
    description: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(description)?;
        let description = Machine::builder(&*handles::get::<Engine>(engine)?);
        out.set(handles::insert(Draft::new(Some(description)))?);
        Ok(())
    })
}

fn with_description(
    description: wavelock_handle,
    change: impl FnOnce(MachineBuilder) -> MachineBuilder,
) -> Result<(), Failure> {
    handles::change(description, change)
}

/// Everything that a manifest describes; its modules are read from `folder`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_manifest(
    description: wavelock_handle,
    toml: *const c_char,
    folder: *const c_char,
) -> wavelock_code {
    enter(|| {
        let (toml, folder) = (text(toml)?, text(folder)?);
        handles::try_change(description, |of: MachineBuilder| {
            Ok(of.manifest(toml, Path::new(folder))?)
        })
    })
}

/// The number of lanes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_lanes(
    description: wavelock_handle,
    lanes: u16,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.lanes(lanes)))
}

/// Cycles of a frame, of a wave, and of a slice of a coroutine; 0 keeps one as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_cycles(
    description: wavelock_handle,
    frame: u64,
    wave: u64,
    quantum: u64,
) -> wavelock_code {
    type Set = fn(MachineBuilder, Cycles) -> MachineBuilder;
    let all: [(u64, Set); 3] = [
        (frame, MachineBuilder::frame_cycles),
        (wave, MachineBuilder::wave_cycles),
        (quantum, MachineBuilder::quantum),
    ];
    enter(|| {
        with_description(description, |of| {
            let given = all.into_iter().filter(|(cycles, _)| *cycles > 0);
            given.fold(of, |of, (cycles, set)| set(of, Cycles(cycles)))
        })
    })
}

/// The scheduling policy, by its name in manifests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_policy(
    description: wavelock_handle,
    name: *const c_char,
) -> wavelock_code {
    enter(|| {
        let name = text(name)?;
        let policy = Policy::find(name).ok_or_else(|| Failure::no("policy", name))?;
        with_description(description, |of| of.policy(policy))
    })
}

/// The seed of every random stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_seed(
    description: wavelock_handle,
    seed: u64,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.seed(seed)))
}

/// The machine ends after this many frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_frames(
    description: wavelock_handle,
    frames: u64,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.frames(frames)))
}

/// Whether the machine takes inputs while it runs: the default, but for manifests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_live(
    description: wavelock_handle,
    live: bool,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.live(live)))
}

/// Frames that can be undone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_rollback(
    description: wavelock_handle,
    frames: u64,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.rollback(frames)))
}

/// Whether the machine keeps events, for recordings above level 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_events(
    description: wavelock_handle,
    events: bool,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.events(events)))
}

/// The longest gap between safepoints of modules that come later, in cycles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_most_gap(
    description: wavelock_handle,
    cycles: u64,
) -> wavelock_code {
    enter(|| with_description(description, |of| of.most_gap(Cycles(cycles))))
}

/// The functions that guests import. Uses the host up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_host(
    description: wavelock_handle,
    host: wavelock_handle,
) -> wavelock_code {
    enter(|| {
        handles::try_change(description, |of: MachineBuilder| {
            Ok(of.host(handles::take::<Host<User>>(host)?))
        })
    })
}

/// Adds a session. Uses its description up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_session(
    description: wavelock_handle,
    session: wavelock_handle,
) -> wavelock_code {
    enter(|| {
        handles::try_change(description, |of: MachineBuilder| {
            Ok(of.session(handles::take::<SessionBuilder>(session)?))
        })
    })
}

/// Adds a channel that a session owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_description_channel(
    description: wavelock_handle,
    name: *const c_char,
    owner: *const c_char,
    capacity: u32,
) -> wavelock_code {
    enter(|| {
        let (name, owner) = (text(name)?, text(owner)?);
        with_description(description, |of| of.channel(name, owner, capacity))
    })
}

/// A machine, and what other threads may use of it.
struct Live {
    machine: Exclusive<Machine>,
    remote: Remote,
}

fn keep_machine(machine: Machine, out: Out<u64>) -> Result<(), Failure> {
    let remote = machine.remote();
    out.set(handles::insert(Live { machine: Exclusive::new(machine), remote })?);
    Ok(())
}

/// Makes the machine. Uses the description up, also when it is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_machine_new(
    description: wavelock_handle,
    machine: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(machine)?;
        keep_machine(handles::take::<MachineBuilder>(description)?.build()?, out)
    })
}

/// Reads a machine that `wavelock_export` wrote. `host` is 0 if it has none; it is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_import(
    engine: wavelock_handle,
    path: *const c_char,
    host: wavelock_handle,
    machine: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let (out, path) = (Out::new(machine)?, text(path)?);
        let engine = handles::get::<Engine>(engine)?;
        let file = BufReader::new(File::open(path)?);
        keep_machine(
            match host {
                0 => Machine::import(&engine, file)?,
                host => Machine::import_with(&engine, file, handles::take::<Host<User>>(host)?)?,
            },
            out,
        )
    })
}

/// Uses a machine.
fn with_machine<R>(
    machine: wavelock_handle,
    act: impl FnOnce(&mut Machine) -> Result<R, Failure>,
) -> Result<R, Failure> {
    act(&mut *handles::get::<Live>(machine)?.machine.lock()?)
}

/// Gives an input, and writes the frame it is for.
fn give(
    machine: wavelock_handle,
    frame: *mut u64,
    act: impl FnOnce(&mut Machine) -> Result<Frame, wavelock::Error>,
) -> wavelock_code {
    enter(|| {
        let given = with_machine(machine, |machine| Ok(act(machine)?))?;
        optional(frame, given.0)
    })
}

/// The number of a session, by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_find(
    machine: wavelock_handle,
    name: *const c_char,
    session: *mut u32,
) -> wavelock_code {
    enter(|| {
        let (out, name) = (Out::new(session)?, text(name)?);
        let found = with_machine(machine, |machine| Ok(machine.session(name)))?;
        out.set(found.ok_or_else(|| Failure::no("session", name))?.number());
        Ok(())
    })
}

/// Gives a session bytes in the next frame. `frame` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_input(
    machine: wavelock_handle,
    session: u32,
    from: *const u8,
    length: usize,
    frame: *mut u64,
) -> wavelock_code {
    let from = match bytes(from, length) {
        Ok(from) => from,
        Err(failure) => return keep(failure),
    };
    give(machine, frame, |machine| machine.input(Session::of_number(session), from))
}

/// Gives a session bytes in a later frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_input_at(
    machine: wavelock_handle,
    frame: u64,
    session: u32,
    from: *const u8,
    length: usize,
) -> wavelock_code {
    enter(|| {
        let (from, session) = (bytes(from, length)?, Session::of_number(session));
        with_machine(machine, |machine| Ok(machine.input_at(Frame(frame), session, from)?))
    })
}

/// Gives a session bytes at the next boundary, from any thread, also while the machine runs. A
/// refusal is in the report of that frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_post(
    machine: wavelock_handle,
    session: u32,
    from: *const u8,
    length: usize,
) -> wavelock_code {
    enter(|| {
        let from = bytes(from, length)?;
        Ok(handles::get::<Live>(machine)?.remote.input(Session::of_number(session), from)?)
    })
}

/// Stops the frame that is running between two waves, from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_interrupt(machine: wavelock_handle) -> wavelock_code {
    enter(|| {
        handles::get::<Live>(machine)?.remote.interrupt();
        Ok(())
    })
}

/// Ends the input of a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_close_input(
    machine: wavelock_handle,
    session: u32,
    frame: *mut u64,
) -> wavelock_code {
    give(machine, frame, |machine| machine.close_input(Session::of_number(session)))
}

/// Ends the machine with its next frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_stop(machine: wavelock_handle, frame: *mut u64) -> wavelock_code {
    give(machine, frame, Machine::stop)
}

/// Starts a session, and writes its number. Uses its description up, also when it is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_start_session(
    machine: wavelock_handle,
    session: wavelock_handle,
    number: *mut u32,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(number)?;
        let started = with_machine(machine, |machine| {
            Ok(machine.start_session(handles::take::<SessionBuilder>(session)?)?)
        })?;
        out.set(started.number());
        Ok(())
    })
}

/// Gives a session another module, with which it begins anew; its first input are the carried
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_replace_session(
    machine: wavelock_handle,
    session: u32,
    module: wavelock_handle,
    carry: *const u8,
    length: usize,
    frame: *mut u64,
) -> wavelock_code {
    enter(|| {
        let (carry, session) = (bytes(carry, length)?, Session::of_number(session));
        let module = handles::get::<Module>(module)?;
        let given =
            with_machine(machine, |machine| Ok(machine.replace_session(session, &module, carry)?))?;
        optional(frame, given.0)
    })
}

/// Ends a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_end_session(
    machine: wavelock_handle,
    session: u32,
    frame: *mut u64,
) -> wavelock_code {
    give(machine, frame, |machine| machine.end_session(Session::of_number(session)))
}

/// Holds a session: none of its coroutines runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_hold(
    machine: wavelock_handle,
    session: u32,
    frame: *mut u64,
) -> wavelock_code {
    give(machine, frame, |machine| machine.hold(Session::of_number(session)))
}

/// Takes back a hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_release(
    machine: wavelock_handle,
    session: u32,
    frame: *mut u64,
) -> wavelock_code {
    give(machine, frame, |machine| machine.release(Session::of_number(session)))
}

/// Gives a session another weight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_set_weight(
    machine: wavelock_handle,
    session: u32,
    weight: u16,
    frame: *mut u64,
) -> wavelock_code {
    let weight = match weight_of(weight) {
        Ok(weight) => weight,
        Err(failure) => return keep(failure),
    };
    give(machine, frame, |machine| machine.set_weight(Session::of_number(session), weight))
}

/// Gives a session another cap; 0 cycles take it away. `overrun`: 0 throttle, 1 demote, 2 end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_set_cap(
    machine: wavelock_handle,
    session: u32,
    cycles: u64,
    frames: u64,
    overrun: u8,
    frame: *mut u64,
) -> wavelock_code {
    let cap = match cap_of(cycles, frames, overrun) {
        Ok(cap) => (cycles > 0).then_some(cap),
        Err(failure) => return keep(failure),
    };
    give(machine, frame, |machine| machine.set_cap(Session::of_number(session), cap))
}

/// Gives a context of the description another budget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_set_context_budget(
    machine: wavelock_handle,
    session: u32,
    context: *const c_char,
    cycles: u64,
    frame: *mut u64,
) -> wavelock_code {
    let context = match text(context) {
        Ok(context) => context,
        Err(failure) => return keep(failure),
    };
    let session = Session::of_number(session);
    give(machine, frame, |machine| machine.set_context_budget(session, context, Cycles(cycles)))
}

const fn outcome_number(outcome: Option<RunOutcome>) -> i32 {
    match outcome {
        Some(outcome) => outcome as i32,
        None => -1,
    }
}

fn report_of(report: &FrameReport<'_>) -> wavelock_report {
    wavelock_report {
        frame: report.frame().0,
        digest: report.digest().0,
        outputs: report.outputs().len(),
        logs: report.logs().len(),
        ended: report.ended().len(),
        asks: report.asks().len(),
        refused: report.refused().len(),
        outcome: outcome_number(report.outcome()),
        wall_nanoseconds: u64::try_from(report.wall().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Runs one frame. `report` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_advance(
    machine: wavelock_handle,
    report: *mut wavelock_report,
) -> wavelock_code {
    enter(|| {
        let found = with_machine(machine, |machine| Ok(report_of(&machine.advance()?)))?;
        optional(report, found)
    })
}

/// Runs one frame or part of it, for about `nanoseconds`. `done` holds whether it has ended;
/// if not, the next call continues the same frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_advance_for(
    machine: wavelock_handle,
    nanoseconds: u64,
    done: *mut bool,
    report: *mut wavelock_report,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(done)?;
        let now = Instant::now();
        let far = Duration::from_secs(1 << 32);
        let deadline = now.checked_add(Duration::from_nanos(nanoseconds)).unwrap_or(now + far);
        let found = with_machine(machine, |machine| {
            Ok(machine.advance_until(deadline)?.map(|report| report_of(&report)))
        })?;
        if let Some(found) = found {
            optional(report, found)?;
        }
        out.set(found.is_some());
        Ok(())
    })
}

/// The frame that the next call runs, or continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_frame(
    machine: wavelock_handle,
    frame: *mut u64,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(frame)?;
        out.set(with_machine(machine, |machine| Ok(machine.frame().0))?);
        Ok(())
    })
}

/// An entry of the last report, by its number.
fn entry<T, R>(
    machine: wavelock_handle,
    what: &str,
    number: usize,
    list: impl FnOnce(&FrameReport<'_>) -> Vec<T>,
    act: impl FnOnce(T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let all = with_machine(machine, |machine| Ok(list(&machine.report())))?;
    act(all.into_iter().nth(number).ok_or_else(|| Failure::no(what, number))?)
}

/// What sessions wrote in a frame.
type Written = for<'a> fn(&'a FrameReport<'_>) -> &'a [(Session, Vec<u8>)];

/// Writes one of the outputs or logs of the last report.
fn written(
    machine: wavelock_handle,
    list: Written,
    (what, number): (&str, usize),
    session: *mut u32,
    (buffer, capacity, length): (*mut u8, usize, *mut usize),
) -> wavelock_code {
    enter(|| {
        let found =
            with_machine(machine, |machine| Ok(list(&machine.report()).get(number).cloned()))?;
        let (of, found) = found.ok_or_else(|| Failure::no(what, number))?;
        fill(&found, buffer, capacity, length)?;
        optional(session, of.number())
    })
}

/// An output of the last frame: its session, and as many of its bytes as fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_output(
    machine: wavelock_handle,
    number: usize,
    session: *mut u32,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> wavelock_code {
    let to = (buffer, capacity, length);
    written(machine, |report| report.outputs(), ("output", number), session, to)
}

/// What a guest logged in the last frame: its session, and as many of its bytes as fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_log(
    machine: wavelock_handle,
    number: usize,
    session: *mut u32,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> wavelock_code {
    let to = (buffer, capacity, length);
    written(machine, |report| report.logs(), ("log", number), session, to)
}

/// A session that ended in the last frame, and how (the numbers of `wavelock_usage`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_ended(
    machine: wavelock_handle,
    number: usize,
    session: *mut u32,
    outcome: *mut i32,
) -> wavelock_code {
    enter(|| {
        let list = |report: &FrameReport<'_>| report.ended().to_vec();
        entry(machine, "ended session", number, list, |(of, how): (Session, SessionOutcome)| {
            optional(session, of.number())?;
            optional(outcome, how as i32)
        })
    })
}

/// The text of a refusal of the last frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_refusal(
    machine: wavelock_handle,
    number: usize,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> wavelock_code {
    enter(|| {
        let list =
            |report: &FrameReport<'_>| report.refused().iter().map(ToString::to_string).collect();
        entry(machine, "refusal", number, list, |text: String| {
            fill(text.as_bytes(), buffer, capacity, length)
        })
    })
}

/// An ask of the last frame: its session and number, as much as fits of the name of its function,
/// and its arguments as words, for which there must be room for 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_ask(
    machine: wavelock_handle,
    number: usize,
    session: *mut u32,
    ask: *mut u64,
    name: *mut u8,
    capacity: usize,
    arguments: *mut u64,
) -> wavelock_code {
    enter(|| {
        let list = |report: &FrameReport<'_>| report.asks().to_vec();
        entry(machine, "ask", number, list, |found: wavelock::Ask| {
            let mut function = found.function().1.as_bytes().to_vec();
            function.push(0);
            fill(&function, name, capacity, std::ptr::null_mut())?;
            for (at, word) in found.words().iter().enumerate() {
                if !arguments.is_null() {
                    // A function has at most 8 arguments.
                    optional(arguments.wrapping_add(at), *word)?;
                }
            }
            optional(session, found.session().number())?;
            optional(ask, found.id().number())
        })
    })
}

/// The reply to an ask, by its session and number: as many words as the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_answer(
    machine: wavelock_handle,
    session: u32,
    ask: u64,
    words: *const u64,
    count: usize,
    frame: *mut u64,
) -> wavelock_code {
    enter(|| {
        let words = values(words, count)?;
        let given = with_machine(machine, |machine| {
            let is_it = |found: &wavelock::Ask| {
                (found.session().number(), found.id().number()) == (session, ask)
            };
            let found = machine.asks().find(is_it).ok_or_else(|| {
                Failure::no("open ask", format_args!("{ask} of session {session}"))
            })?;
            Ok(machine.answer_words(found.id(), words)?)
        })?;
        optional(frame, given.0)
    })
}

/// What a session has used so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_session_usage(
    machine: wavelock_handle,
    session: u32,
    usage: *mut wavelock_usage,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(usage)?;
        let of = Session::of_number(session);
        let found = with_machine(machine, |machine| Ok(machine.usage(of)))?;
        let found = found.ok_or_else(|| Failure::no("session", session))?;
        out.set(wavelock_usage {
            cycles: found.cycles,
            host_calls: found.host_calls,
            messages: found.messages,
            memory_bytes: found.memory_bytes,
            coroutines: found.coroutines,
            outcome: found.outcome.map_or(-1, |outcome| outcome as i32),
        });
        Ok(())
    })
}

/// Keeps the state between two frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_save(
    machine: wavelock_handle,
    snapshot: *mut wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let out = Out::new(snapshot)?;
        out.set(handles::insert(with_machine(machine, |machine| Ok(machine.save()?))?)?);
        Ok(())
    })
}

/// Returns to a state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_load(
    machine: wavelock_handle,
    snapshot: wavelock_handle,
) -> wavelock_code {
    enter(|| {
        let snapshot = handles::get::<Snapshot>(snapshot)?;
        with_machine(machine, |machine| Ok(machine.load(&snapshot)?))
    })
}

/// Frames before this one will not be undone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_confirm(machine: wavelock_handle, frame: u64) -> wavelock_code {
    enter(|| {
        with_machine(machine, |machine| {
            machine.confirm(Frame(frame));
            Ok(())
        })
    })
}

/// Writes the machine with its modules and state to a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_export(
    machine: wavelock_handle,
    path: *const c_char,
) -> wavelock_code {
    enter(|| {
        let path = text(path)?;
        with_machine(machine, |machine| {
            let mut file = BufWriter::new(File::create(path)?);
            machine.export(&mut file)?;
            Ok(file.flush()?)
        })
    })
}

/// Records confirmed frames into a file. `level`: 0 inputs, 1 schedule, 2 every event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_record(
    machine: wavelock_handle,
    path: *const c_char,
    level: u8,
) -> wavelock_code {
    enter(|| {
        let path = text(path)?;
        let no_level = || Failure::no("level", level);
        let level = *Level::ALL.get(usize::from(level)).ok_or_else(no_level)?;
        with_machine(machine, |machine| {
            Ok(machine.record(BufWriter::new(File::create(path)?), level)?)
        })
    })
}

/// Confirms all frames and ends the recording, and writes its bytes; 0 if nothing was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_finish_recording(
    machine: wavelock_handle,
    written: *mut u64,
) -> wavelock_code {
    enter(|| {
        let recorded = with_machine(machine, |machine| Ok(machine.finish_recording()?))?;
        optional(written, recorded.map_or(0, |recorded| recorded.bytes))
    })
}

/// An observer of the C program.
struct Watcher {
    user: Owned,
    observe: wavelock_observer,
}

impl Observer for Watcher {
    fn frame(&mut self, report: &FrameReport<'_>) {
        if let Some(observe) = self.observe {
            let digest = report.digest().0;
            // SAFETY: function and pointer are valid by the contract of this file; the digest has
            // 32 bytes and lives during the call.
            unsafe { observe(self.user.pointer, report.frame().0, digest.as_ptr()) }
        }
    }
}

/// Shows every confirmed frame to a function, on the thread that advances the machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wavelock_observe(
    machine: wavelock_handle,
    observe: wavelock_observer,
    user: *mut c_void,
) -> wavelock_code {
    enter(|| {
        if observe.is_none() {
            return Err(null());
        }
        let user = Owned { pointer: user, free: None };
        with_machine(machine, |machine| {
            machine.observe(Watcher { user, observe });
            Ok(())
        })
    })
}
