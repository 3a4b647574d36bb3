//! The interpreter: one dispatch loop over the handlers of the instruction table.
//!
//! The state that changes with every instruction (program counter, window, cycles left, memory) is
//! in [`Interpreter`]; everything else is in the session. A stop writes the program counter back to
//! the coroutine and leaves nothing on the host's stack. A [`Switch`] decides what runs next.

use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::{Form, Op, TableEntry, Word};

use crate::bulk::{self, Budget, Pause, Store};
use crate::coroutine::{Call, Coroutine, Link, State, Stop};
use crate::exit::{Exit, ExitReason, suspended};
use crate::handlers::{
    Interpreter, METERED, Mod32, Mod64, Slot, cold, memory_of, result_of, write_number,
};
use crate::host::{Dispatch, Host, NoHost};
use crate::number::{self, double, single};
use crate::raw::{Bytes, Cursor, Window, import};
use crate::session::{FunctionEntry, Import, Session};
use crate::switch::{Single, SliceEnd, Spawnable, Switch};

/// Cycles left are counted in 32 bits, so a longer run is split into parts of this many.
pub(crate) const MAX_CYCLES: u64 = Dispatch::MAX_CYCLES as u64;

/// Runs `coroutine` in `session` for at most `cycles` (and less than [`Session::gap`] beyond), and
/// returns why it stopped.
///
/// A coroutine that blocks in a host call returns that call again; one that has ended, its end.
#[inline]
pub fn run(session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles) -> Stop {
    if coroutine.state != State::Ready {
        return suspended(session, coroutine);
    }
    if cycles.0 > MAX_CYCLES || !session.coroutine_globals.is_empty() {
        return run_slow(session, coroutine, cycles);
    }
    let bound = cycles.0 as i32;
    let (exit, left) = run_single(session, coroutine, bound);
    coroutine.charge(bound, left);
    exit.stop(session, coroutine)
}

/// Runs one coroutine whose globals are in the session; returns the cycles left. Never inlined,
/// with arguments and results that fit registers: entering and leaving takes as long as the guest's
/// instructions between two host calls.
#[inline(never)]
pub(crate) fn run_single(
    session: &mut Session,
    coroutine: &mut Coroutine,
    bound: i32,
) -> (Exit, i32) {
    let dispatch = Dispatch { slot: 0, cycles: bound as u32 };
    let (exit, left) = execute(session, &mut Single(coroutine), &mut NoHost, dispatch, 0);
    (exit, left as i32)
}

/// Slow path of [`run`]: more cycles than 32 bits count, or coroutine-local globals.
#[cold]
#[inline(never)]
fn run_slow(session: &mut Session, coroutine: &mut Coroutine, mut cycles: Cycles) -> Stop {
    loop {
        let bound = cycles.0.min(MAX_CYCLES) as i32;
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        let (exit, left) = run_single(session, coroutine, bound);
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        coroutine.charge(bound, left);
        cycles = cycles.saturating_sub(Cycles((i64::from(bound) - i64::from(left)) as u64));
        if cycles == Cycles::ZERO || !matches!(exit.reason(), ExitReason::OutOfCycles(_)) {
            return exit.stop(session, coroutine);
        }
    }
}

impl Coroutine {
    /// Charges a run that had `bound` cycles and has `left` of them. `left` may be below zero by
    /// less than a gap: what was used fits 32 bits.
    #[inline(always)]
    pub(crate) fn charge(&mut self, bound: i32, left: i32) {
        self.used = self.used.wrapping_add(u64::from(bound.wrapping_sub(left) as u32));
    }
}

/// Swaps the session's cells of coroutine-local globals with the coroutine's own values. Not
/// inlined, so that sessions without any pay nothing for it.
#[inline(never)]
pub(crate) fn swap_globals(
    globals: &mut [u64],
    coroutine_globals: &[u32],
    coroutine: &mut Coroutine,
) {
    for (own, &global) in coroutine.stack.iter_mut().zip(coroutine_globals) {
        core::mem::swap(own, &mut globals[global as usize]);
    }
}

/// One arm per row of the instruction table.
macro_rules! dispatch {
    ([$vm:ident $session:ident] $(
        $name:ident, $form:ident, $cost:ident, $text:literal, $handler:ident($($semantics:tt)*);
    )*) => {
        match $vm.word.op() {
            $(Op::$name => $handler!(
                $vm $session { Form::$form.words() as usize } $($semantics)*
            ),)*
        }
    };
}

/// Runs the slice `first`, and those that `switch` dispatches after it.
///
/// With [`Switch::SWITCHES`], returns how the last slice ended and what its coroutine had used when
/// it began; `spent` of the first slice's cycles were used before. Without, returns how the one
/// coroutine stopped and its cycles left (as an `i32`), which the caller charges; its globals are
/// in the session already.
// Long: from dispatch to switch, on locals that must stay in machine registers.
#[inline(always)]
pub(crate) fn execute<S: Switch>(
    session: &mut Session,
    switch: &mut S,
    host: &mut S::Host,
    first: Dispatch,
    spent: u32,
) -> (Exit, u64) {
    // Opaque, so that the compiler loads a part of the session where it is used: knowing that
    // nothing else changes it, it would load all twenty on entry for the two that most runs need.
    let session = core::hint::black_box(session);
    let yield_function = switch.yield_function();
    let mut dispatch = first;
    let mut coroutine = match switch.dispatch(host, dispatch) {
        Ok(coroutine) => coroutine,
        Err(exit) => return (exit, 0),
    };
    // As if the slice began now with all its cycles: then what it used is one difference.
    let (mut cycles, mut left) = (dispatch.cycles + spent, dispatch.cycles as i32);
    coroutine.used -= u64::from(spent);
    let has_own_globals = S::SWITCHES && !session.coroutine_globals.is_empty();
    let mut instance = &session.instances[usize::from(coroutine.instance)];
    let mut memory = memory_of(&mut session.memories, instance);
    let mut words = instance.module.code().words();

    /// Ends the slice: writes back what it used and the coroutine's globals. Returns what it used,
    /// which fits 32 bits: it exceeds its bound by less than a gap.
    macro_rules! suspend {
        () => {{
            if has_own_globals {
                core::hint::cold_path();
                swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
            }
            let used = u64::from(cycles.wrapping_sub(left as u32));
            coroutine.used = coroutine.used.wrapping_add(used);
            used
        }};
    }
    /// The coroutine cannot run yet, or has ended: leaves the loop.
    macro_rules! leave_suspended {
        () => {{
            let used_before = coroutine.used;
            suspend!();
            return (Exit::SUSPENDED, used_before);
        }};
    }

    // One iteration per slice.
    loop {
        if has_own_globals {
            core::hint::cold_path();
            swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        }
        if S::SWITCHES && coroutine.word as usize >= words.len() {
            core::hint::cold_path();
            // At no instruction: it has ended, or was started with a host function.
            leave_suspended!();
        }
        // Field by field, so that the window can borrow the stack while the rest is used.
        let Coroutine { stack, used, paid, window, word, instance: instance_id, state } =
            &mut *coroutine;
        let mut code = Cursor::new(words, *word as usize);
        let mut window = Window::new(stack, window);
        if S::SWITCHES && *state != State::Ready {
            core::hint::cold_path();
            // Complete the call that it blocks in, with the effect and the charges of `offer!`.
            let call = code.fields();
            if let State::Host { first, call: Call { arguments: 2, .. } } = *state
                && matches!(call.op(), Op::CallImport)
                && left > 0
                && host.resume(dispatch.slot, &mut |number| {
                    memory.store(
                        u64::from(window.get(usize::from(first) + 1) as u32),
                        number.to_le_bytes(),
                    )
                })
            {
                window.set(usize::from(first), 0);
                (*paid, *state) = (0, State::Ready);
                if METERED {
                    left -= call.high() as i32;
                }
                code.jump_by(i32::from(call.c()));
            } else {
                leave_suspended!();
            }
        }
        let mut vm = Interpreter {
            code,
            word: code.fields(),
            window,
            memory,
            left,
            cycles,
            instance,
            instance_id,
            used,
            paid,
            state,
            host: &mut *host,
            yield_function,
        };
        let exit = loop {
            vm.word = vm.code.fields();
            wavelock_module::instructions!(dispatch vm session);
        };
        let position = vm.code.position();
        (left, cycles, instance, words, memory) =
            (vm.left, vm.cycles, vm.instance, vm.code.words(), vm.memory);
        coroutine.word = position as u32;

        if !S::SWITCHES {
            return (exit, left as u64);
        }
        // The most frequent exits are tested first.
        let next = if exit == Exit::YIELDED {
            let used = suspend!();
            switch.next(host, SliceEnd::Yielded, Cycles(used))
        } else if exit == Exit::BLOCKED {
            let used = suspend!();
            switch.next(host, SliceEnd::Blocked, Cycles(used))
        } else {
            let used = suspend!();
            let used_before = coroutine.used - used;
            let next = match exit.reason() {
                ExitReason::Finished(results) => {
                    let value =
                        if results > 0 { coroutine.stack[coroutine.window as usize] } else { 0 };
                    let freed = coroutine.stack.heap_bytes();
                    let next = switch.next(host, SliceEnd::Finished(value), Cycles(used));
                    if next.is_some() {
                        // Its slot is vacant: as `Session::retire`, with the size read before.
                        let held = session.stack_bytes_held.get_mut();
                        *held = held.saturating_sub(freed);
                    }
                    next
                }
                ExitReason::Spawn(table) => {
                    let code = Spawnable {
                        types: &session.types,
                        functions: &session.functions,
                        instances: &session.instances,
                        tables: &session.tables,
                        limits: &session.limits,
                        has_own_globals,
                    };
                    let Some(spawner) = switch.spawn(host, dispatch.slot, table, &code) else {
                        return (Exit::SUSPENDED, used_before);
                    };
                    // The slice continues with the cycles left, and is not charged yet.
                    coroutine = spawner;
                    coroutine.used = used_before;
                    continue;
                }
                _ => None,
            };
            if next.is_none() {
                return (exit, used_before);
            }
            next
        };
        let Some(next) = next else { return (exit, 0) };
        dispatch = next;
        (cycles, left) = (dispatch.cycles, dispatch.cycles as i32);
        coroutine = match switch.dispatch(host, dispatch) {
            Ok(coroutine) => coroutine,
            Err(exit) => return (exit, 0),
        };
        if coroutine.instance != instance.id {
            core::hint::cold_path();
            instance = &session.instances[usize::from(coroutine.instance)];
            memory = memory_of(&mut session.memories, instance);
            words = instance.module.code().words();
        }
    }
}
