//! Canonical bytes of a coroutine: its frames, outermost first, each with its live registers.
//!
//! A frame's position refers to the WebAssembly code (function, byte offset, occurrence), so that
//! another lowering of the same module can resume it.
//!
//! The capacity of a stack on the heap is written too: stacks never shrink and share a session
//! limit, so what a coroutine once needed decides what others may allocate.
//!
//! Links between frames are not written: the call that a frame returns to determines where the
//! callee's window starts. Reading checks that every frame is at a stop point, that a caller is
//! after a call, and that the callee's results are those of that call.

use alloc::vec::Vec;

use wavelock_abi::FaultCode;
use wavelock_module::{
    Callee, Code, Function, FunctionType, Module, Op, Position, StopPoint, ValueType, Word,
};

use super::DecodeError;
use super::session::read_value;
use super::wire::{Reader, Writer};
use crate::coroutine::{Call, Coroutine, Frame, INLINE_SLOTS, Link, Stack, State};
use crate::session::{Session, SessionLimits};

const READY: u8 = 0;
const HOST: u8 = 1;
const HOST_DIRECT: u8 = 2;
const FINISHED: u8 = 3;
const FAULTED: u8 = 4;

/// The fewest bytes of a coroutine: used, paid, slots, state and a count.
pub(crate) const LEAST_BYTES: usize = 8 + 8 + 4 + 1 + 2;

/// Cycles beyond this are refused, so that adding to them never overflows.
const MOST_CYCLES: u64 = 1 << 62;

pub(crate) fn write(session: &Session, coroutine: &Coroutine, out: &mut Writer) {
    out.u64(coroutine.used);
    out.u64(coroutine.paid);
    out.u32(coroutine.stack.heap.len() as u32);
    let globals = session.coroutine_globals.len();
    coroutine.stack[..globals].iter().for_each(|value| out.u64(*value));
    match coroutine.state {
        State::Ready => {
            out.u8(READY);
            write_frames(session, coroutine, out);
        }
        State::Host { first, call: Call { number, arguments, results, narrow } } => {
            let direct = coroutine.word == Coroutine::NO_WORD;
            out.u8(if direct { HOST_DIRECT } else { HOST });
            out.u16(number);
            out.u16(arguments);
            out.u8(results as u8);
            out.u16(narrow);
            if direct {
                let start = coroutine.window as usize + usize::from(first);
                coroutine.stack[start..start + usize::from(arguments)]
                    .iter()
                    .for_each(|value| out.u64(*value));
            } else {
                write_frames(session, coroutine, out);
            }
        }
        State::Finished { results } => {
            out.u8(FINISHED);
            out.u16(results);
            coroutine.results().iter().for_each(|value| out.u64(*value));
        }
        State::Faulted(code) => {
            out.u8(FAULTED);
            out.u8(code as u8);
            let frames: Vec<Frame> = coroutine.frames(session).collect();
            out.count(frames.len());
            frames.iter().rev().for_each(|frame| write_position(session, frame, out));
        }
    }
}

fn write_frames(session: &Session, coroutine: &Coroutine, out: &mut Writer) {
    let frames: Vec<Frame> = coroutine.frames(session).collect();
    out.count(frames.len());
    for frame in frames.iter().rev() {
        write_position(session, frame, out);
        let module = &session.instances[usize::from(frame.instance)].module;
        let point = FramePoint::at(module, frame.word).expect("a coroutine stops at stop points");
        point.live_registers(module, frame.callee, |register| {
            out.u64(coroutine.stack[frame.window as usize + usize::from(register)])
        });
    }
}

/// Bytes of a frame's position.
const POSITION_BYTES: usize = 2 + 4 + 4 + 2;

fn write_position(session: &Session, frame: &Frame, out: &mut Writer) {
    let code = session.instances[usize::from(frame.instance)].module.code();
    let position =
        code.position(frame.word).expect("instructions that stop or fault have positions");
    out.u16(frame.instance);
    out.u32(position.function);
    out.u32(position.offset);
    out.u16(position.occurrence);
}

/// Reads a position; its word, if it exists in `code`.
fn read_word(input: &mut Reader<'_>, code: &Code) -> Result<Option<u32>, DecodeError> {
    let position =
        Position { function: input.u32()?, offset: input.u32()?, occurrence: input.u16()? };
    Ok(code.word_at(position))
}

/// A stop point, and the function it is in.
struct FramePoint<'a> {
    function: &'a Function,
    stop: &'a StopPoint,
}

impl<'a> FramePoint<'a> {
    fn at(module: &'a Module, word: u32) -> Option<Self> {
        let code = module.code();
        Some(Self {
            stop: code.stop_at(word)?,
            function: &code.functions()[code.function_at(word)?],
        })
    }

    /// Calls `visit` with each live register, ascending, without the link. In a caller, only
    /// registers below the callee's window are live.
    fn live_registers(&self, module: &Module, callee: Option<u16>, mut visit: impl FnMut(u16)) {
        let end = callee.map_or(self.stop.live, |start| start.min(self.stop.live));
        let mut dead = module.code().dead_at(self.stop).iter().copied().peekable();
        for register in 0..end {
            if dead.next_if_eq(&register).is_none() && register != self.function.parameters {
                visit(register);
            }
        }
    }
}

/// Reads one coroutine of `session`.
pub(crate) fn read(input: &mut Reader<'_>, session: &Session) -> Result<Coroutine, DecodeError> {
    let at = input.at();
    let (used, paid) = (input.u64()?, input.u64()?);
    input.check(at, "cycles used", used, MOST_CYCLES)?;
    input.check(at, "cycles paid", paid, MOST_CYCLES)?;
    let at_slots = input.at();
    let slots = input.u32()?;
    let mut stack = Vec::new();
    for global in &session.coroutine_globals {
        stack.push(read_value(input, session.global_types[*global as usize].value, session)?);
    }
    let window = stack.len() as u32;
    let mut coroutine = Coroutine {
        stack: Stack::holding(&stack, most_slots(session)),
        used,
        paid,
        window,
        word: Coroutine::NO_WORD,
        instance: 0,
        state: State::Finished { results: 0 },
    };
    let at = input.at();
    match input.u8()? {
        READY => read_frames(input, session, &mut coroutine, true)?,
        HOST => read_host(input, session, &mut coroutine)?,
        HOST_DIRECT => read_direct_host(input, session, &mut coroutine)?,
        FINISHED => read_finished(input, session, &mut coroutine)?,
        FAULTED => read_faulted(input, session, &mut coroutine)?,
        other => {
            return Err(DecodeError::Exceeds {
                at,
                what: "state of a coroutine",
                found: u64::from(other),
                allowed: u64::from(FAULTED),
            });
        }
    }
    if paid != 0 && !can_prepay(session, &coroutine) {
        return Err(DecodeError::Inconsistent { at, what: "cycles paid towards nothing" });
    }
    restore_capacity(at_slots, session, &mut coroutine, slots as usize)?;
    Ok(coroutine)
}

/// Grows the stack to its recorded capacity, and counts it towards the session's limit.
fn restore_capacity(
    at: usize,
    session: &Session,
    coroutine: &mut Coroutine,
    slots: usize,
) -> Result<(), DecodeError> {
    let exceeds =
        |what, found: u64, allowed: u64| DecodeError::Exceeds { at, what, found, allowed };
    if slots > most_slots(session) {
        return Err(exceeds("bytes of a stack", slots as u64 * 8, stack_bytes(session)));
    }
    let held = session.stack_bytes_held.get() + slots as u64 * 8;
    if held > session.limits.session_stack_bytes {
        return Err(exceeds(
            "bytes of the stacks of a session",
            held,
            session.limits.session_stack_bytes,
        ));
    }
    let needed = coroutine.stack.heap.len();
    let is_short = if needed == 0 { slots != 0 && slots < INLINE_SLOTS } else { slots < needed };
    if is_short {
        return Err(DecodeError::Inconsistent { at, what: "a stack shorter than its frames" });
    }
    if slots > needed {
        let mut heap = Vec::with_capacity(slots);
        heap.extend_from_slice(&coroutine.stack);
        heap.resize(slots, 0);
        coroutine.stack.heap = heap.into_boxed_slice();
    }
    session.stack_bytes_held.set(held);
    Ok(())
}

/// Whether a coroutine is at something that is prepaid.
fn can_prepay(session: &Session, coroutine: &Coroutine) -> bool {
    match coroutine.state {
        State::Host { .. } => true,
        State::Ready => matches!(
            op_at(session, coroutine.instance, coroutine.word),
            Some(
                Op::MemoryCopy
                    | Op::MemoryFill
                    | Op::MemoryInit
                    | Op::MemoryGrow
                    | Op::TableCopy
                    | Op::TableFill
                    | Op::TableInit
                    | Op::TableGrow
            )
        ),
        State::Finished { .. } | State::Faulted(_) => true,
    }
}

fn op_at(session: &Session, instance: u16, word: u32) -> Option<Op> {
    Word(*session.instances.get(usize::from(instance))?.module.code().words().get(word as usize)?)
        .op()
}

/// A decoded frame: its program counter, and where its window starts.
struct DecodedFrame {
    instance: u16,
    word: u32,
    window: usize,
}

/// Reads frames, outermost first, and builds the stack; with their registers if the coroutine is
/// `alive`.
fn read_frames(
    input: &mut Reader<'_>,
    session: &Session,
    coroutine: &mut Coroutine,
    alive: bool,
) -> Result<(), DecodeError> {
    let at = input.at();
    let count = input.count("frames", POSITION_BYTES)?;
    let mut stack = coroutine.stack[..coroutine.window as usize].to_vec();
    let mut caller: Option<DecodedFrame> = None;
    for number in 0..count {
        let at = input.at();
        let instance = input.u16()?;
        let innermost = number + 1 == count;
        let wrong = |what| DecodeError::Inconsistent { at, what };
        let module = &session
            .instances
            .get(usize::from(instance))
            .ok_or(wrong("instance of a frame"))?
            .module;
        let code = module.code();
        let word = read_word(input, code)?.ok_or(wrong("position of a frame"))?;
        let function =
            &code.functions()[code.function_at(word).ok_or(wrong("position of a frame"))?];
        let window = match &caller {
            None => stack.len(),
            Some(caller) => {
                caller.window
                    + usize::from(
                        check_call(session, caller, module, function)
                            .ok_or(wrong("callee of a frame"))?,
                    )
            }
        };
        let entered = word != function.entry;
        let size = if entered {
            usize::from(function.registers)
        } else {
            usize::from(function.parameters) + 1
        };
        let needed = (window + size).max(stack.len());
        input.check(at, "bytes of a stack", needed as u64 * 8, stack_bytes(session))?;
        stack.resize(needed, 0);
        stack[window + usize::from(function.parameters)] =
            link(caller.as_ref(), instance, window).0;
        if alive || !innermost {
            let callee = if innermost {
                None
            } else {
                Some(
                    code.call_returning_to(word)
                        .ok_or(wrong("a caller that is not after a call"))?
                        .0,
                )
            };
            let point =
                FramePoint::at(module, word).ok_or(wrong("a frame that is not at a stop point"))?;
            if alive {
                let mut registers = Vec::new();
                point.live_registers(module, callee, |register| registers.push(register));
                for register in registers {
                    stack[window + usize::from(register)] = input.u64()?;
                }
            }
        }
        caller = Some(DecodedFrame { instance, word, window });
    }
    let top = caller.ok_or(DecodeError::Inconsistent { at, what: "a coroutine without frames" })?;
    coroutine.stack = Stack::holding(&stack, most_slots(session));
    coroutine.window = top.window as u32;
    coroutine.word = top.word;
    coroutine.instance = top.instance;
    coroutine.state = State::Ready;
    Ok(())
}

/// The limit on a stack. A frame that has not been entered yet has only its parameters and link, so
/// it may be below a limit that its window will exceed.
fn stack_bytes(session: &Session) -> u64 {
    u64::from(session.limits.stack_bytes)
}

/// [`stack_bytes`] in slots.
fn most_slots(session: &Session) -> usize {
    session.limits.stack_bytes as usize / 8
}

/// The link of a frame whose window starts at `window`.
fn link(caller: Option<&DecodedFrame>, instance: u16, window: usize) -> Link {
    match caller {
        None => Link::new(0, 0, Link::BOTTOM),
        Some(caller) => {
            let tag = if caller.instance == instance { 0 } else { caller.instance + 1 };
            Link::new(caller.word, (window - caller.window) as u16, tag)
        }
    }
}

/// The caller's register at which the callee's window starts, if the call that the caller is after
/// can have led to `callee`. After tail calls, `callee` may be another function than the one
/// called, with the same results.
fn check_call(
    session: &Session,
    caller: &DecodedFrame,
    module: &Module,
    callee: &Function,
) -> Option<u16> {
    let caller_module = &session.instances[usize::from(caller.instance)].module;
    let (first, named) = caller_module.code().call_returning_to(caller.word)?;
    let expected: &FunctionType = match named {
        Callee::Function(function) => caller_module.function_type(function)?,
        Callee::Indirect(kind) => caller_module.types().get(kind as usize)?,
    };
    let actual = module.types().get(callee.type_index as usize)?;
    (expected.results() == actual.results()).then_some(first)
}

/// Reads the host function that the coroutine blocks in, which must be registered.
fn read_call(input: &mut Reader<'_>, session: &Session) -> Result<Call, DecodeError> {
    let at = input.at();
    let call = Call {
        number: input.u16()?,
        arguments: input.u16()?,
        results: u16::from(input.u8()?),
        narrow: input.u16()?,
    };
    if !session.hosts.iter().any(|host| host.call == call) {
        return Err(DecodeError::Inconsistent {
            at,
            what: "a call of a host function that is not registered",
        });
    }
    Ok(call)
}

fn read_host(
    input: &mut Reader<'_>,
    session: &Session,
    coroutine: &mut Coroutine,
) -> Result<(), DecodeError> {
    let at = input.at();
    let wrong = |what| DecodeError::Inconsistent { at, what };
    let call = read_call(input, session)?;
    read_frames(input, session, coroutine, true)?;
    let module = &session.instances[usize::from(coroutine.instance)].module;
    let word = Word(module.code().words()[coroutine.word as usize]);
    let second = module.code().words().get(coroutine.word as usize + 1).copied().unwrap_or(0);
    let kind = match word.op() {
        Some(Op::CallImport | Op::ReturnCallImport) => module.function_type(second as u32),
        Some(Op::CallIndirect | Op::ReturnCallIndirect) => {
            module.types().get(second as u32 as usize)
        }
        _ => None,
    };
    let kind = kind.ok_or(wrong("a host call that is not at a call instruction"))?;
    let mask = narrow_mask(kind.results());
    if (kind.parameters().len(), kind.results().len(), mask)
        != (usize::from(call.arguments), usize::from(call.results), u32::from(call.narrow))
    {
        return Err(wrong("a host call of another type than its call"));
    }
    coroutine.state = State::Host { first: word.a(), call };
    Ok(())
}

/// Which results are 32 bits wide, as a mask; none fits beyond 16.
fn narrow_mask(results: &[ValueType]) -> u32 {
    results
        .iter()
        .take(16)
        .enumerate()
        .fold(0, |mask, (index, value)| mask | u32::from(value.is_narrow()) << index)
}

fn read_direct_host(
    input: &mut Reader<'_>,
    session: &Session,
    coroutine: &mut Coroutine,
) -> Result<(), DecodeError> {
    let call = read_call(input, session)?;
    coroutine.state = State::Host { first: 0, call };
    let mut stack = coroutine.stack[..coroutine.window as usize].to_vec();
    for _ in 0..call.arguments {
        stack.push(input.u64()?);
    }
    let slots = usize::from(call.arguments).max(usize::from(call.results));
    stack.resize(coroutine.window as usize + slots, 0);
    input.check(input.at(), "bytes of a stack", stack.len() as u64 * 8, stack_bytes(session))?;
    coroutine.stack = Stack::holding(&stack, most_slots(session));
    Ok(())
}

fn read_finished(
    input: &mut Reader<'_>,
    session: &Session,
    coroutine: &mut Coroutine,
) -> Result<(), DecodeError> {
    let at = input.at();
    let results = input.u16()?;
    let mut stack = coroutine.stack[..coroutine.window as usize].to_vec();
    for _ in 0..results {
        stack.push(input.u64()?);
    }
    input.check(at, "bytes of a stack", stack.len() as u64 * 8, stack_bytes(session))?;
    coroutine.stack = Stack::holding(&stack, most_slots(session));
    coroutine.state = State::Finished { results };
    Ok(())
}

fn read_faulted(
    input: &mut Reader<'_>,
    session: &Session,
    coroutine: &mut Coroutine,
) -> Result<(), DecodeError> {
    let at = input.at();
    let code = FaultCode::from_code(input.u8()?)
        .ok_or(DecodeError::Inconsistent { at, what: "an unknown fault" })?;
    read_frames(input, session, coroutine, false)?;
    coroutine.state = State::Faulted(code);
    Ok(())
}

/// A link's tag names an instance in 16 bits.
const _: () = assert!(SessionLimits::MOST_INSTANCES < Link::BOTTOM as u32);
