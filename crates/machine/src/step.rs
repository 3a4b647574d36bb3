//! One instruction at a time, for a debugger. The run loop knows nothing of it.
//!
//! Every instruction of a private copy of the code is planted with a stop, and the one to be run is
//! dug up. Whatever comes after it stops at once, at the word where it begins. An instruction that
//! could come back to itself (a loop of one instruction, a return into its own function) is first
//! tried with no cycles, so that it stops at the safepoint it arrives at, which is where a run that
//! is out of cycles stops too.
//!
//! Law kept here: steps to the end of a slice leave session and coroutine as one run of that slice
//! does. Between two safepoints a coroutine can be looked at and stepped on; it cannot be written
//! out as bytes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::{Module, Op};

use crate::coroutine::{Coroutine, Location, State, Stop};
use crate::run::run;
use crate::session::Session;

/// Bytes of changed memory that are shown.
const SHOWN_BYTES: usize = 64;

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Stepped {
    /// One instruction was run, and the slice goes on.
    Moved,
    /// One instruction was run, and it ended the slice.
    Stopped(Stop),
    /// The slice was over already: nothing was run.
    Over(Stop),
}

/// What one instruction changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// The instruction.
    pub text: String,
    /// Where it is.
    pub location: Option<Location>,
    /// Registers of its function's window: number, before, after.
    pub registers: Vec<(u16, u64, u64)>,
    /// The stretch of memory 0 that changed: address, before, after; the first 64 bytes.
    pub memory: Option<(u64, Vec<u8>, Vec<u8>)>,
}

/// Private copies of a session's code. Made at the first step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stepper {
    /// By instance.
    copies: Vec<Arc<Module>>,
}

impl Stepper {
    /// Runs one instruction of a slice that has `cycles` left.
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
            self.copies.push(Arc::new(instance.module.planted()));
        }
        let (at, own) = (coroutine.word, usize::from(coroutine.instance));
        let op = session.instances[own].module.code().op_at(at);
        self.exchange(session);
        if let Some(copy) = Arc::get_mut(&mut session.instances[own].module) {
            copy.dig_up(at, &self.copies[own]);
        }
        let before =
            (coroutine.word, coroutine.instance, coroutine.window, coroutine.used, coroutine.paid);
        let may_stop = op.is_some_and(Op::may_stop);
        let mut stop = run(session, coroutine, if may_stop { Cycles::ZERO } else { cycles });
        let after =
            (coroutine.word, coroutine.instance, coroutine.window, coroutine.used, coroutine.paid);
        let stood = before == after && matches!(stop, Stop::OutOfCycles { .. });
        if stood && cycles > Cycles::ZERO {
            stop = run(session, coroutine, cycles);
        }
        if let Some(copy) = Arc::get_mut(&mut session.instances[own].module) {
            copy.plant(at, &self.copies[own]);
        }
        self.exchange(session);
        match stop {
            Stop::Fault(fault)
                if fault.code == FaultCode::Unreachable
                    && (op != Some(Op::Unreachable) || coroutine.word != at) =>
            {
                coroutine.state = State::Ready;
                Stepped::Moved
            }
            Stop::OutOfCycles { .. } if stood && cycles == Cycles::ZERO => Stepped::Over(stop),
            // It arrived at a safepoint; whether the slice goes on from there is asked by the next
            // step.
            Stop::OutOfCycles { .. } if !stood => Stepped::Moved,
            stop => Stepped::Stopped(stop),
        }
    }

    /// [`Stepper::step`], and what it changed. Copies memory 0 to compare, so it is for the one
    /// step that somebody looks at.
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

    /// Exchanges the session's code and the copies.
    fn exchange(&mut self, session: &mut Session) {
        for (instance, copy) in session.instances.iter_mut().zip(&mut self.copies) {
            core::mem::swap(&mut instance.module, copy);
        }
    }
}

/// The stretch from the first to the last byte that differs.
fn difference(before: &[u8], after: &[u8]) -> Option<(u64, Vec<u8>, Vec<u8>)> {
    let differs = |at: &usize| before[*at] != after[*at];
    let shared = before.len().min(after.len());
    let first = (0..shared).find(differs)?;
    let last = (0..shared).rev().find(differs)?.min(first + SHOWN_BYTES - 1);
    Some((first as u64, before[first..=last].to_vec(), after[first..=last].to_vec()))
}

impl Coroutine {
    /// The registers of its innermost function; none once it finished.
    #[must_use]
    pub fn registers(&self, session: &Session) -> &[u64] {
        let Some(instance) = session.instances.get(usize::from(self.instance)) else { return &[] };
        let code = instance.module.code();
        let Some(function) = code.function_at(self.word) else { return &[] };
        let (start, count) =
            (self.window as usize, usize::from(code.functions()[function].registers));
        self.stack.get(start..(start + count).min(self.stack.len())).unwrap_or_default()
    }

    /// The instruction it stands at, as text.
    #[must_use]
    pub fn next_instruction(&self, session: &Session) -> Option<String> {
        if self.word == Self::NO_WORD || self.state != State::Ready {
            return None;
        }
        Some(session.instances.get(usize::from(self.instance))?.module.instruction_text(self.word))
    }
}
