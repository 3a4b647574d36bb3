//! The boundary to another tier: native code that runs a coroutine from one stop point to another.
//!
//! [`run_tiered`] has the contract of [`crate::run()`] and the same stops, charges and canonical
//! bytes. A [`Tier`] runs as far as it can; for an instruction that it leaves to the interpreter,
//! the interpreter runs from there to the next safepoint, and the tier is entered again. Both tiers
//! keep a coroutine's state in its stack, so either can resume what the other stopped.
//!
//! The parts that the interpreter runs are slices of their own: by the slicing law (semantics 4)
//! their lengths change nothing.

use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::Module;

use alloc::sync::Arc;

use crate::coroutine::{Coroutine, Link, State, Stop};
use crate::exit::{Exit, ExitReason, suspended};
use crate::run::{MAX_CYCLES, run_single, swap_globals};
use crate::session::{FunctionEntry, Session, Table};

/// Native code for the functions of some modules.
pub trait Tier {
    /// Runs the coroutine from `state.word` on, a stop point. `None`, and nothing has changed, if
    /// there is no code for it.
    fn run(&mut self, state: NativeState<'_>) -> Option<NativeStop>;
}

/// What native code may read and write while it runs one coroutine.
#[derive(Debug)]
pub struct NativeState<'a> {
    /// The module whose code it is in.
    pub module: &'a Arc<Module>,
    /// The number of the module's instance.
    pub instance: u32,
    /// The program counter: a stop point of the module's code.
    pub word: u32,
    /// The slot of register 0 of the innermost frame.
    pub window: u32,
    /// Cycles left; it stops at a safepoint if this is 0 or less.
    pub left: i32,
    /// The coroutine's stack.
    pub stack: &'a mut [u64],
    /// The instance's memory; empty if it has none.
    pub memory: &'a mut [u8],
    /// One byte per dirty page of `memory`: a store sets those of the pages it touches.
    pub dirty: &'a mut [u8],
    /// The globals that the module defines, from its first on.
    pub globals: &'a mut [u64],
    /// The session's tables.
    pub tables: &'a [Table],
    /// By table of the module: its index in `tables`.
    pub table_indices: &'a [u32],
    /// The session's functions: reference `r` is function `r - 1`.
    pub functions: &'a [FunctionEntry],
    /// By type of the module: the session's number of that type, as in [`FunctionEntry::type_id`].
    pub types: &'a [u32],
}

/// Where native code stopped, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeStop {
    /// The program counter: an instruction of the same module.
    pub word: u32,
    /// The slot of register 0 of the innermost frame.
    pub window: u32,
    /// Cycles left.
    pub left: i32,
    /// Why.
    pub reason: NativeReason,
}

/// Why native code stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NativeReason {
    /// At a safepoint without cycles left; the next charge.
    OutOfCycles(u32),
    /// At an instruction that faults.
    Fault(FaultCode),
    /// The outermost function returned this many values, which are in its window.
    Finished(u16),
    /// A function returned through this link to a caller in another instance; the results are in
    /// its window.
    Return(u64),
    /// The interpreter has to run the instruction at `word`. All registers are in their slots.
    Interpret,
}

/// Cycles that the interpreter runs in a function without native code before the tier is tried
/// again.
const INTERPRETED_CYCLES: i32 = 5_000;

/// [`crate::run()`] with `tier` for the functions that it has code for.
pub fn run_tiered<T: Tier + ?Sized>(
    session: &mut Session,
    coroutine: &mut Coroutine,
    mut cycles: Cycles,
    tier: &mut T,
) -> Stop {
    if coroutine.state != State::Ready {
        return suspended(session, coroutine);
    }
    loop {
        let bound = cycles.0.min(MAX_CYCLES) as i32;
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        let (exit, left) = run_part(session, coroutine, bound, tier);
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        coroutine.charge(bound, left);
        cycles = cycles.saturating_sub(Cycles((i64::from(bound) - i64::from(left)) as u64));
        if cycles == Cycles::ZERO || !matches!(exit.reason(), ExitReason::OutOfCycles(_)) {
            return exit.stop(session, coroutine);
        }
    }
}

/// Runs up to `left` cycles in both tiers; returns the cycles left.
fn run_part<T: Tier + ?Sized>(
    session: &mut Session,
    coroutine: &mut Coroutine,
    mut left: i32,
    tier: &mut T,
) -> (Exit, i32) {
    // What a bulk operation still has to prepay, and where.
    let mut unpaid = None;
    loop {
        let mut part = INTERPRETED_CYCLES;
        if let Some(stop) = enter(session, coroutine, left, tier) {
            left = stop.left;
            match stop.reason {
                NativeReason::OutOfCycles(next) => return (Exit::OutOfCycles(next), left),
                NativeReason::Fault(code) => return (Exit::Fault(code), left),
                NativeReason::Finished(results) => return (Exit::Finished(results), left),
                NativeReason::Return(link) => {
                    let link = Link(link);
                    coroutine.instance = link.tag() - 1;
                    coroutine.window -= u32::from(link.distance());
                    coroutine.word = link.word();
                    continue;
                }
                // To the next safepoint, or until the bulk operation is paid.
                NativeReason::Interpret => {
                    part = match unpaid {
                        Some((word, missing)) if word == coroutine.word => missing,
                        _ => 1,
                    };
                }
            }
        }
        let part = part.min(left);
        let (exit, rest) = run_single(session, coroutine, part);
        left = left.wrapping_sub(part.wrapping_sub(rest));
        let ExitReason::OutOfCycles(next) = exit.reason() else { return (exit, left) };
        if left <= 0 {
            return (exit, left);
        }
        unpaid = Some((coroutine.word, i32::try_from(next).unwrap_or(i32::MAX).max(1)));
    }
}

/// Enters the tier where the coroutine is, and applies where it stopped.
fn enter<T: Tier + ?Sized>(
    session: &mut Session,
    coroutine: &mut Coroutine,
    left: i32,
    tier: &mut T,
) -> Option<NativeStop> {
    let instance = &session.instances[usize::from(coroutine.instance)];
    let (memory, dirty) = match session.memories.get_mut(instance.memory as usize) {
        Some(memory) => (memory.bytes.as_mut_slice(), memory.dirty.as_mut_slice()),
        None => (&mut [][..], &mut [][..]),
    };
    let stop = tier.run(NativeState {
        module: &instance.module,
        instance: u32::from(instance.id),
        word: coroutine.word,
        window: coroutine.window,
        left,
        stack: &mut coroutine.stack,
        memory,
        dirty,
        globals: session.globals.get_mut(instance.first_global as usize..).unwrap_or_default(),
        tables: &session.tables,
        table_indices: &instance.tables,
        functions: &session.functions,
        types: &instance.types,
    })?;
    let words = instance.module.code().words().len();
    assert!((stop.word as usize) < words, "native code stops at an instruction");
    assert!(stop.window as usize <= coroutine.stack.len(), "a window starts inside its stack");
    (coroutine.word, coroutine.window) = (stop.word, stop.window);
    Some(stop)
}
