//! A coroutine: a call stack and operand stack as plain data, and why it stands where it stands.
//!
//! The stack is one block of 64-bit slots: first the values of the session's coroutine-local
//! globals, then one window per active function, each overlapping the last: a window starts at its
//! caller's arguments. In a window are parameters, one link, locals, operands. The link holds where
//! to go on in the caller and how far down its window starts, so a frame costs eight bytes. Nothing
//! points into the stack, so it can be moved, copied and written out. A short stack is in the
//! coroutine itself: most coroutines never need another block of memory.
//!
//! Running is in `run`; canonical bytes are in `bytes`; this file holds the state and what hosts
//! may ask of it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use wavelock_abi::{Cycles, FaultCode};

use crate::coroutines::Prefetch;
use crate::host::LazyCoroutine;
use crate::session::{FunctionAddress, FunctionEntry, InstanceId, Session, SessionLimits};

/// A frame's link: `[return word:32 | distance down to the caller's window:16 | tag:16]`.
///
/// Tag 0: the caller is of the same instance. [`Link::BOTTOM`]: there is no caller. Otherwise 1 +
/// the caller's instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(pub(crate) u64);

impl Link {
    pub(crate) const BOTTOM: u16 = u16::MAX;

    pub(crate) const fn new(word: u32, distance: u16, tag: u16) -> Self {
        Self(word as u64 | (distance as u64) << 32 | (tag as u64) << 48)
    }

    pub(crate) const fn word(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn distance(self) -> u16 {
        (self.0 >> 32) as u16
    }

    pub(crate) const fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// What a coroutine in a host call knows of the function. Eight bytes and no hole, so that a call
/// moves them as one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) number: u16,
    pub(crate) arguments: u16,
    /// At most 16.
    pub(crate) results: u16,
    /// Bit i: result i is 32 bits wide.
    pub(crate) narrow: u16,
}

/// Why a coroutine stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// At a stop point of its code, able to run.
    Ready,
    /// In a host call, waiting for [`Coroutine::resume`]. `first` is the register of the first
    /// argument, and of the first result.
    Host { first: u16, call: Call },
    /// Done; this many values are at the bottom of its window.
    Finished { results: u16 },
    /// Ended by a fault at `word`.
    Faulted(FaultCode),
}

/// Slots that a coroutine has in itself.
pub(crate) const NEAR: usize = 7;

/// The slots of a coroutine: near, in its own record, while they are few; otherwise in a block of
/// their own.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Stack {
    /// The block; empty while the slots are near.
    pub(crate) far: Box<[u64]>,
    pub(crate) near: [u64; NEAR],
}

impl Stack {
    /// No slot in use.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { far: Box::default(), near: [0; NEAR] }
    }

    /// These slots, in a stack that may have `most`. There is room for no more than that: where it
    /// is less than fits near, none are near.
    pub(crate) fn holding(slots: &[u64], most: usize) -> Self {
        let mut stack = Self::new();
        match stack.near.get_mut(..slots.len()) {
            Some(near) if most >= NEAR => near.copy_from_slice(slots),
            _ => stack.far = slots.into(),
        }
        stack
    }
}

impl Stack {
    /// Some of the slots. As an index of the whole would find them, but near ones are found without
    /// asking where the others are.
    #[inline(always)]
    pub(crate) fn part(&self, first: usize, count: usize) -> &[u64] {
        if self.far.is_empty() {
            &self.near[first..first + count]
        } else {
            &self.far[first..first + count]
        }
    }

    /// Bytes of the block: what counts towards `session_stack_bytes`.
    #[inline]
    pub(crate) fn far_bytes(&self) -> u64 {
        self.far.len() as u64 * 8
    }

    /// [`Self::part`], to write to.
    #[inline(always)]
    pub(crate) fn part_mut(&mut self, first: usize, count: usize) -> &mut [u64] {
        if self.far.is_empty() {
            &mut self.near[first..first + count]
        } else {
            &mut self.far[first..first + count]
        }
    }
}

impl Deref for Stack {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        if self.far.is_empty() { &self.near } else { &self.far }
    }
}

impl DerefMut for Stack {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        if self.far.is_empty() { &mut self.near } else { &mut self.far }
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Stack {}

/// A coroutine of one session. Which session is the owner's to know; every call must be given the
/// same one.
///
/// In this order, so that all that a turn needs but the near slots lies together: most often one
/// line of a cache, where it was two.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Coroutine {
    /// Cycles charged so far.
    pub(crate) used: u64,
    /// Paid towards the bulk instruction or sized host call it stands at.
    pub(crate) paid: u64,
    /// Where the current window starts.
    pub(crate) window: u32,
    /// The word it stands at: a stop point, the faulting instruction, or [`Coroutine::NO_WORD`].
    pub(crate) word: u32,
    /// The instance whose code it runs.
    pub(crate) instance: u16,
    pub(crate) state: State,
    /// Coroutine-local globals, then windows. Its length is what there is room for.
    pub(crate) stack: Stack,
}

/// A million coroutines are a million records: docs/performance/system.md counts on this size.
const _: () = assert!(size_of::<Coroutine>() <= 112, "a coroutine has a budget of 112 bytes");

/// A host call, waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCall {
    /// The number the function was registered with.
    pub number: u16,
}

/// A fault: what and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happened.
    pub code: FaultCode,
    /// Whose code.
    pub instance: InstanceId,
    /// The function's index in its module.
    pub function: u32,
    /// Byte offset of the instruction in its module.
    pub offset: u32,
}

/// Why [`crate::run`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Stop {
    /// It stands at a safepoint with nothing left to spend. Any further cycle lets it go on.
    OutOfCycles {
        /// What it will be charged next: its next block, or the rest of what it is paying for.
        next: Cycles,
    },
    /// It called a host function: see [`Coroutine::host_arguments`], answer with
    /// [`Coroutine::resume`].
    Host(HostCall),
    /// Its function returned: see [`Coroutine::results`].
    Finished,
    /// It faulted.
    Fault(Fault),
}

/// Why a coroutine could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// Not as many arguments as the function has parameters.
    Arguments {
        /// How many were given.
        found: u32,
        /// How many it has.
        expected: u32,
    },
    /// The first window alone exceeds `stack_bytes`.
    Stack {
        /// Bytes needed.
        found: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// With its stack, those of the session's coroutines exceed `session_stack_bytes`.
    SessionStack {
        /// Bytes they would have.
        found: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The coroutine has not finished.
    NotFinished,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments { found, expected } => {
                write!(f, "it is given {found} arguments, its function has {expected} parameters")
            }
            Self::Stack { found, allowed } => {
                write!(f, "its function needs {found} bytes of stack, stack_bytes allows {allowed}")
            }
            Self::SessionStack { found, allowed } => {
                write!(
                    f,
                    "the stacks of the session would take {found} bytes, session_stack_bytes allows {allowed}"
                )
            }
            Self::NotFinished => write!(f, "it has not finished"),
        }
    }
}

impl core::error::Error for StartError {}

/// A place in a guest's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Whose code.
    pub instance: InstanceId,
    /// The function's index in its module.
    pub function: u32,
    /// Byte offset in its module.
    pub offset: u32,
}

impl Coroutine {
    /// The word of a coroutine that has no window: a host function started directly, or finished.
    pub(crate) const NO_WORD: u32 = u32::MAX;

    /// A place without a coroutine: finished, with nothing on its stack and no memory of its own.
    #[must_use]
    pub fn vacant() -> Self {
        Self {
            used: 0,
            paid: 0,
            window: 0,
            word: Self::NO_WORD,
            instance: 0,
            state: State::Finished { results: 0 },
            stack: Stack::new(),
        }
    }

    /// A coroutine that will call `function` with `arguments` when it is first run.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        session: &Session,
        function: FunctionAddress,
        arguments: &[u64],
    ) -> Result<Self, StartError> {
        let mut coroutine = Self::vacant();
        coroutine.call(session, function, arguments, true)?;
        Ok(coroutine)
    }

    /// Creates the record of a lazily spawned coroutine.
    #[inline(always)]
    #[must_use]
    pub fn materialise(LazyCoroutine { word, instance, argument }: LazyCoroutine) -> Self {
        // Every slot spelled out: shorter code than a call of `memset`.
        let near = [argument, Link::new(0, 0, Link::BOTTOM).0, 0, 0, 0, 0, 0];
        Self {
            used: 0,
            paid: 0,
            window: 0,
            word,
            instance,
            state: State::Ready,
            stack: Stack { far: Box::default(), near },
        }
    }

    /// Makes the place vacant again, and gives its memory back.
    #[inline]
    pub fn vacate(&mut self) {
        (self.used, self.paid) = (0, 0);
        (self.window, self.word, self.instance) = (0, Self::NO_WORD, 0);
        self.state = State::Finished { results: 0 };
        if !self.stack.far.is_empty() {
            self.stack.far = Box::default();
        }
    }

    /// Lets a finished coroutine call another function when it is next run. What it has used, and
    /// its coroutine-local globals, stay.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn call_next(
        &mut self,
        session: &Session,
        function: FunctionAddress,
        arguments: &[u64],
    ) -> Result<(), StartError> {
        if !matches!(self.state, State::Finished { .. }) {
            return Err(StartError::NotFinished);
        }
        self.call(session, function, arguments, false)
    }

    /// [`Self::call_next`] of one that has finished, or of a vacant one (`fresh`): that gets its
    /// coroutine-local globals too.
    fn call(
        &mut self,
        session: &Session,
        function: FunctionAddress,
        arguments: &[u64],
        fresh: bool,
    ) -> Result<(), StartError> {
        let kind = session.function_type(function);
        if kind.parameters().len() != arguments.len() {
            return Err(StartError::Arguments {
                found: arguments.len() as u32,
                expected: kind.parameters().len() as u32,
            });
        }
        let base = session.coroutine_globals.len();
        let entry = session.functions[function.0 as usize];
        let slots = if entry.instance == FunctionEntry::HOST {
            arguments.len().max(kind.results().len())
        } else {
            let module = &session.instances[entry.instance as usize].module;
            let defined = (entry.index - module.imported_functions()) as usize;
            usize::from(module.code().functions()[defined].registers)
        };
        let needed = ((base + slots) * 8) as u64;
        if needed > u64::from(session.limits.stack_bytes) {
            return Err(StartError::Stack {
                found: needed,
                allowed: u64::from(session.limits.stack_bytes),
            });
        }
        let most = session.limits.stack_bytes as usize / 8;
        let session_stack = |more: u64| StartError::SessionStack {
            found: session.stack_bytes_held.get() + more,
            allowed: session.limits.session_stack_bytes,
        };
        if fresh {
            // A vacant place has all its slots near.
            if base + slots > NEAR || most < NEAR {
                let held = session.stack_bytes_held.get() + needed;
                if held > session.limits.session_stack_bytes {
                    return Err(session_stack(needed));
                }
                session.stack_bytes_held.set(held);
                self.stack.far = alloc::vec![0; base + slots].into_boxed_slice();
            }
            for (slot, &global) in self.stack.iter_mut().zip(&session.coroutine_globals) {
                *slot = session.globals[global as usize];
            }
        } else if self.stack.len() < base + slots || (most < NEAR && self.stack.far.is_empty()) {
            // What needed no slot was near, where there are more than the limit allows.
            if !grow(&mut self.stack, base + slots, &session.limits, &session.stack_bytes_held) {
                return Err(session_stack(needed - self.stack.far_bytes()));
            }
        }
        for ((slot, &argument), &kind) in
            self.stack[base..].iter_mut().zip(arguments).zip(kind.parameters())
        {
            *slot = crate::session::narrowed(kind, argument);
        }
        self.window = base as u32;
        if entry.instance == FunctionEntry::HOST {
            self.word = Self::NO_WORD;
            let host = &session.hosts[entry.entry as usize];
            self.used += u64::from(host.cost);
            self.state = host.called(0);
        } else {
            self.stack[base + arguments.len()] = Link::new(0, 0, Link::BOTTOM).0;
            self.word = entry.entry;
            self.instance = entry.instance as u16;
            self.state = State::Ready;
        }
        Ok(())
    }

    /// Bytes of its stack outside its own record: what counts towards `session_stack_bytes`.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.stack.far_bytes()
    }

    /// Cycles charged so far, in all.
    #[must_use]
    #[inline]
    pub fn used(&self) -> Cycles {
        Cycles(self.used)
    }

    /// The host call it waits in.
    #[must_use]
    #[inline]
    pub fn host_call(&self) -> Option<HostCall> {
        match self.state {
            State::Host { call, .. } => Some(HostCall { number: call.number }),
            _ => None,
        }
    }

    /// The number of the function it called, if it waits in a host call.
    #[inline(always)]
    pub(crate) fn called(&self) -> u16 {
        self.host_call().map_or(u16::MAX, |call| call.number)
    }

    /// The arguments of the host call it waits in; none if it does not.
    #[must_use]
    #[inline]
    pub fn host_arguments(&self) -> &[u64] {
        match self.state {
            State::Host { first, call } => {
                let start = self.window as usize + usize::from(first);
                self.stack.part(start, usize::from(call.arguments))
            }
            _ => &[],
        }
    }

    /// How many results the host call it waits in has; none if it does not.
    #[must_use]
    pub fn host_results(&self) -> usize {
        match self.state {
            State::Host { call, .. } => usize::from(call.results),
            _ => 0,
        }
    }

    /// Answers the host call it waits in. 32-bit results use the lower half.
    ///
    /// # Panics
    /// If it does not wait in a host call, or the function has another number of results: both are
    /// mistakes of the host.
    #[inline]
    pub fn resume(&mut self, results: &[u64]) {
        let State::Host { first, call: Call { results: expected, narrow, .. } } = self.state else {
            panic!("resume: no host call is waiting")
        };
        if results.len() != usize::from(expected) {
            wrong_results(results.len(), usize::from(expected));
        }
        let start = self.window as usize + usize::from(first);
        for (place, (slot, &value)) in
            self.stack.part_mut(start, results.len()).iter_mut().zip(results).enumerate()
        {
            *slot = if narrow & (1 << place) != 0 { u64::from(value as u32) } else { value };
        }
        self.paid = 0;
        if self.word == Self::NO_WORD {
            self.state = State::Finished { results: expected };
        } else {
            self.word += wavelock_module::Form::CallImport.words();
            self.state = State::Ready;
        }
    }

    /// Ends the coroutine with a fault from inside a host call (a bad pointer, a bad entry), and
    /// answers it.
    pub fn fail(&mut self, session: &Session, code: FaultCode) -> Fault {
        self.state = State::Faulted(code);
        self.fault_at(session, code)
    }

    /// Pays towards a sized host call it waits in: `cost` is the whole price, at most `cycles` are
    /// charged now. Answers how much is still missing; nothing of the call may take effect before
    /// that is zero.
    #[must_use]
    pub fn prepay(&mut self, cost: Cycles, cycles: Cycles) -> Cycles {
        let missing = cost.0.saturating_sub(self.paid);
        let pays = missing.min(cycles.0);
        self.paid += pays;
        self.used += pays;
        Cycles(missing - pays)
    }

    /// What was paid towards what it stands at.
    #[must_use]
    pub fn paid(&self) -> Cycles {
        Cycles(self.paid)
    }

    /// The values its function returned; none unless it finished.
    #[must_use]
    pub fn results(&self) -> &[u64] {
        match self.state {
            State::Finished { results } => {
                &self.stack[self.window as usize..self.window as usize + usize::from(results)]
            }
            _ => &[],
        }
    }

    /// Whether it finished and has not been given another function to call.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished { .. })
    }

    /// The fault that ended it.
    #[must_use]
    pub fn fault(&self, session: &Session) -> Option<Fault> {
        match self.state {
            State::Faulted(code) => Some(self.fault_at(session, code)),
            _ => None,
        }
    }

    pub(crate) fn fault_at(&self, session: &Session, code: FaultCode) -> Fault {
        let place = self.location(session, self.instance, self.word);
        Fault { code, instance: place.instance, function: place.function, offset: place.offset }
    }

    /// Where a word of an instance's code is in its module.
    fn location(&self, session: &Session, instance: u16, word: u32) -> Location {
        let id = InstanceId(u32::from(instance));
        let Some(instance) = session.instances.get(usize::from(instance)) else {
            return Location { instance: id, function: 0, offset: 0 };
        };
        let code = instance.module.code();
        let defined = code.function_at(word).unwrap_or(0);
        let function = instance.module.imported_functions() + defined as u32;
        Location { instance: id, function, offset: code.offset_at(word).unwrap_or(0) }
    }

    /// The values of the session's coroutine-local globals, in the session's order.
    #[must_use]
    pub fn globals<'a>(&'a self, session: &Session) -> &'a [u64] {
        &self.stack[..session.coroutine_globals.len()]
    }

    /// Sets a coroutine-local global; `place` counts in the session's order.
    pub fn set_global(&mut self, session: &Session, place: usize, value: u64) {
        let global = session.coroutine_globals[place];
        self.stack[place] =
            crate::session::narrowed(session.global_types[global as usize].value, value);
    }

    /// The places of its active functions, innermost first.
    pub fn backtrace<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = Location> + 'a {
        self.frames(session).map(|frame| self.location(session, frame.instance, frame.word))
    }

    /// Its active frames, innermost first; none once it finished.
    pub(crate) fn frames<'a>(&'a self, session: &'a Session) -> Frames<'a> {
        let ended = matches!(self.state, State::Finished { .. }) || self.word == Self::NO_WORD;
        let next = (!ended).then_some(Frame {
            window: self.window,
            word: self.word,
            instance: self.instance,
            callee: None,
        });
        Frames { coroutine: self, session, next }
    }

    /// Prefetches its record, or its current window if the stack is outside the record.
    #[inline]
    pub(crate) fn prefetch(&self, part: Prefetch) {
        match part {
            Prefetch::Record => crate::raw::prefetch(self),
            Prefetch::Stack => {
                if let Some(slot) = self.stack.far.get(self.window as usize) {
                    crate::raw::prefetch(slot);
                }
            }
        }
    }
}

/// One active frame of a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// Where its window starts.
    pub(crate) window: u32,
    /// Where it stands: a stop point; in a caller, the point where the call returns.
    pub(crate) word: u32,
    pub(crate) instance: u16,
    /// Where the window of the function it called starts, as a register of this frame; `None` for
    /// the innermost.
    pub(crate) callee: Option<u16>,
}

/// Walks frames from the innermost outwards. Needs a coroutine that is well formed.
pub(crate) struct Frames<'a> {
    coroutine: &'a Coroutine,
    session: &'a Session,
    next: Option<Frame>,
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let frame = self.next.take()?;
        let code = self.session.instances.get(usize::from(frame.instance))?.module.code();
        let function = &code.functions()[code.function_at(frame.word)?];
        let link = Link(
            *self.coroutine.stack.get(frame.window as usize + usize::from(function.parameters))?,
        );
        if link.tag() != Link::BOTTOM {
            let instance = if link.tag() == 0 { frame.instance } else { link.tag() - 1 };
            let window = frame.window.checked_sub(u32::from(link.distance()))?;
            self.next =
                Some(Frame { window, word: link.word(), instance, callee: Some(link.distance()) });
        }
        Some(frame)
    }
}

/// A host's mistake. By itself, so that it costs nothing where it is not made.
#[cold]
#[inline(never)]
fn wrong_results(found: usize, expected: usize) -> ! {
    panic!("resume: {found} results for a function with {expected}")
}

/// Makes the stack at least `needed` slots long, unless that exceeds the coroutine's limit or, with
/// what the stacks of the session hold already, the session's. How long it becomes depends on both
/// alone: it is state.
#[cold]
#[inline(never)]
pub(crate) fn grow(
    stack: &mut Stack,
    needed: usize,
    limits: &SessionLimits,
    held: &Cell<u64>,
) -> bool {
    let others = held.get().saturating_sub(stack.far_bytes());
    let left = limits.session_stack_bytes.saturating_sub(others) / 8;
    let most = (limits.stack_bytes as usize / 8).min(usize::try_from(left).unwrap_or(usize::MAX));
    if needed > most {
        return false;
    }
    let length = (stack.len() * 2).clamp(needed, most);
    held.set(others + length as u64 * 8);
    let mut slots = Vec::from(core::mem::take(&mut stack.far));
    slots.reserve_exact(length - slots.len());
    if slots.is_empty() {
        slots.extend_from_slice(&stack.near);
    }
    slots.resize(length, 0);
    stack.far = slots.into_boxed_slice();
    true
}
