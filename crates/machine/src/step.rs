//! Single-stepping for a debugger, without support from the dispatch loop.
//!
//! A private copy of the code has a breakpoint on every instruction; a step removes the one at the
//! program counter, runs, and sets it again. The next instruction stops before it executes. An
//! instruction that can reach itself again (a loop of one instruction, a return into its own
//! function) is first run without cycles, so that it stops at the safepoint it arrives at, as a run
//! that is out of cycles does.
//!
//! Law kept here: single steps to the end of a slice leave session and coroutine in the same state
//! as one run of that slice. Between two safepoints a coroutine can be inspected and stepped; it
//! has no canonical bytes there.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::{Module, Op};

use crate::coroutine::{Coroutine, Location, State, Stop};
use crate::run::run;
use crate::session::Session;

/// Bytes of changed memory that [`Change`] holds at most.
const MAX_CHANGED_BYTES: usize = 64;

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Stepped {
    /// Executed one instruction; the slice continues.
    Moved,
    /// Executed one instruction, which ended the slice.
    Stopped(Stop),
    /// The slice had ended before; executed nothing.
    Over(Stop),
}

/// What one instruction changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// The instruction, disassembled.
    pub text: String,
    /// Its location.
    pub location: Option<Location>,
    /// Registers of its function's window: number, before, after.
    pub registers: Vec<(u16, u64, u64)>,
    /// The range of memory 0 that changed, up to 64 bytes: address, before, after.
    pub memory: Option<(u64, Vec<u8>, Vec<u8>)>,
}

/// Copies of a session's code with breakpoints. Made at the first step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stepper {
    /// By instance.
    copies: Vec<Arc<Module>>,
}

impl Stepper {
    /// Executes one instruction of a slice that has `cycles` left.
    pub fn step(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        cycles: Cycles,
    ) -> Stepped {
        if coroutine.state != State::Ready || coroutine.word == Coroutine::NO_WORD {
            return Stepped::Over(run(session, coroutine, cycles));
        }
        for instance in session.instances.iter().skip(self.copies.len()) {
            self.copies.push(Arc::new(instance.module.with_breakpoints()));
        }
        let (at, own) = (coroutine.word, usize::from(coroutine.instance));
        let op = session.instances[own].module.code().op_at(at);
        self.swap_modules(session);
        if let Some(copy) = Arc::get_mut(&mut session.instances[own].module) {
            copy.remove_breakpoint(at, &self.copies[own]);
        }
        let before =
            (coroutine.word, coroutine.instance, coroutine.window, coroutine.used, coroutine.paid);
        let may_stop = op.is_some_and(Op::may_stop);
        let mut stop = run(session, coroutine, if may_stop { Cycles::ZERO } else { cycles });
        let after =
            (coroutine.word, coroutine.instance, coroutine.window, coroutine.used, coroutine.paid);
        let is_same = before == after && matches!(stop, Stop::OutOfCycles { .. });
        if is_same && cycles > Cycles::ZERO {
            stop = run(session, coroutine, cycles);
        }
        if let Some(copy) = Arc::get_mut(&mut session.instances[own].module) {
            copy.set_breakpoint(at, &self.copies[own]);
        }
        self.swap_modules(session);
        match stop {
            Stop::Fault(fault)
                if fault.code == FaultCode::Unreachable
                    && (op != Some(Op::Unreachable) || coroutine.word != at) =>
            {
                coroutine.state = State::Ready;
                Stepped::Moved
            }
            Stop::OutOfCycles { .. } if is_same && cycles == Cycles::ZERO => Stepped::Over(stop),
            // It arrived at a safepoint; the next step decides whether the slice continues.
            Stop::OutOfCycles { .. } if !is_same => Stepped::Moved,
            stop => Stepped::Stopped(stop),
        }
    }

    /// [`Stepper::step`] with what it changed. Copies memory 0 to compare, so it is for interactive
    /// steps.
    pub fn watched(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        cycles: Cycles,
    ) -> (Stepped, Change) {
        let window = coroutine.window as usize;
        let text = session
            .instances
            .get(usize::from(coroutine.instance))
            .map(|instance| instance.module.instruction_text(coroutine.word));
        let location = coroutine.backtrace(session).next();
        let registers: Vec<u64> = coroutine.registers(session).to_vec();
        let memory: Vec<u8> =
            session.memories.first().map(|memory| memory.bytes().to_vec()).unwrap_or_default();
        let stepped = self.step(session, coroutine, cycles);
        let now = coroutine.stack.get(window..).unwrap_or_default();
        let changed =
            registers.iter().zip(now).enumerate().filter(|(_, (before, after))| before != after);
        let registers =
            changed.map(|(number, (&before, &after))| (number as u16, before, after)).collect();
        let bytes = session.memories.first().map(|memory| memory.bytes()).unwrap_or_default();
        let memory = difference(&memory, bytes);
        (stepped, Change { text: text.unwrap_or_default(), location, registers, memory })
    }

    /// Swaps the session's modules with the copies.
    fn swap_modules(&mut self, session: &mut Session) {
        for (instance, copy) in session.instances.iter_mut().zip(&mut self.copies) {
            core::mem::swap(&mut instance.module, copy);
        }
    }
}

/// The range from the first to the last byte that differs.
fn difference(before: &[u8], after: &[u8]) -> Option<(u64, Vec<u8>, Vec<u8>)> {
    let differs = |at: &usize| before[*at] != after[*at];
    let shared = before.len().min(after.len());
    let first = (0..shared).find(differs)?;
    let last = (0..shared).rev().find(differs)?.min(first + MAX_CHANGED_BYTES - 1);
    Some((first as u64, before[first..=last].to_vec(), after[first..=last].to_vec()))
}

impl Coroutine {
    /// The registers of its innermost frame; none once it finished.
    #[must_use]
    pub fn registers(&self, session: &Session) -> &[u64] {
        let Some(instance) = session.instances.get(usize::from(self.instance)) else { return &[] };
        let code = instance.module.code();
        let Some(function) = code.function_at(self.word) else { return &[] };
        let (start, count) =
            (self.window as usize, usize::from(code.functions()[function].registers));
        self.stack.get(start..(start + count).min(self.stack.len())).unwrap_or_default()
    }

    /// The next instruction, disassembled.
    #[must_use]
    pub fn next_instruction(&self, session: &Session) -> Option<String> {
        if self.word == Self::NO_WORD || self.state != State::Ready {
            return None;
        }
        Some(session.instances.get(usize::from(self.instance))?.module.instruction_text(self.word))
    }
}
