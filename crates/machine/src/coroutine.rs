//! A coroutine: a call stack and operand stack as plain data, and its state.
//!
//! The stack is one array of 64-bit slots: first the values of the session's coroutine-local
//! globals, then one window per active function. A window starts at its caller's arguments and
//! holds parameters, a link, locals, operands. The link is the return address and the distance to
//! the caller's window, so a frame costs eight bytes. Nothing points into the stack, so it can be
//! moved, copied and serialized. A short stack is inline in the coroutine: most coroutines never
//! allocate.
//!
//! Elsewhere: running it (`run`), canonical bytes (`bytes`).

use crate::session::Held;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

use wavelock_abi::{Cycles, FaultCode};

use crate::coroutines::Prefetch;
use crate::host::LazyCoroutine;
use crate::session::{FunctionAddress, FunctionEntry, InstanceId, Session, SessionLimits};

/// A frame's link: `[return word:32 | distance down to the caller's window:16 | tag:16]`.
///
/// Tag 0: the caller is in the same instance. [`Link::BOTTOM`]: no caller. Otherwise 1 + the
/// caller's instance.
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

/// The host function that a coroutine called. Eight bytes without padding, so that a call copies
/// them as one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) number: u16,
    pub(crate) arguments: u16,
    /// At most 16.
    pub(crate) results: u16,
    /// Bit i: result i is 32 bits wide.
    pub(crate) narrow: u16,
}

/// The state of a coroutine that is not running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// At a stop point of its code; can run.
    Ready,
    /// Blocked in a host call until [`Coroutine::resume`]. `first` is the register of the first
    /// argument and of the first result.
    Host { first: u16, call: Call },
    /// Its function returned this many values, from the start of its window on.
    Finished { results: u16 },
    /// Ended by a fault at `word`.
    Faulted(FaultCode),
}

/// Stack slots inside a coroutine's record.
pub(crate) const INLINE_SLOTS: usize = 7;

/// The stack slots of a coroutine: inline in its record while they are few, otherwise on the heap.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Stack {
    /// Empty while the slots are inline.
    pub(crate) heap: Box<[u64]>,
    pub(crate) inline: [u64; INLINE_SLOTS],
}

impl Stack {
    /// No slot in use.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { heap: Box::default(), inline: [0; INLINE_SLOTS] }
    }

    /// A stack of these slots under a limit of `most`. A limit below [`INLINE_SLOTS`] rules out
    /// inline slots: there would be room for more than it allows.
    pub(crate) fn holding(slots: &[u64], most: usize) -> Self {
        let mut stack = Self::new();
        match stack.inline.get_mut(..slots.len()) {
            Some(inline) if most >= INLINE_SLOTS => inline.copy_from_slice(slots),
            _ => stack.heap = slots.into(),
        }
        stack
    }

    /// `self[first..first + count]`, without selecting pointer and length of the whole stack first.
    #[inline(always)]
    pub(crate) fn slots(&self, first: usize, count: usize) -> &[u64] {
        if self.heap.is_empty() {
            &self.inline[first..first + count]
        } else {
            &self.heap[first..first + count]
        }
    }

    /// Bytes on the heap, which count towards `session_stack_bytes`.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.heap.len() as u64 * 8
    }

    /// [`Self::slots`], mutable.
    #[inline(always)]
    pub(crate) fn slots_mut(&mut self, first: usize, count: usize) -> &mut [u64] {
        if self.heap.is_empty() {
            &mut self.inline[first..first + count]
        } else {
            &mut self.heap[first..first + count]
        }
    }
}

impl Deref for Stack {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        if self.heap.is_empty() { &self.inline } else { &self.heap }
    }
}

impl DerefMut for Stack {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        if self.heap.is_empty() { &mut self.inline } else { &mut self.heap }
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Stack {}

/// A coroutine of one session. Every call must be given that session; it is not recorded here.
///
/// The order of the fields puts all that a dispatch needs, but for the inline slots, on one cache
/// line in most cases.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Coroutine {
    /// Cycles charged so far.
    pub(crate) used: u64,
    /// Paid towards the bulk instruction or sized host call it is at.
    pub(crate) paid: u64,
    /// Where the current window starts.
    pub(crate) window: u32,
    /// Its program counter: a stop point, the faulting instruction, or [`Coroutine::NO_WORD`].
    pub(crate) word: u32,
    /// The instance whose code it runs.
    pub(crate) instance: u16,
    pub(crate) state: State,
    /// Coroutine-local globals, then windows. Its length is its capacity.
    pub(crate) stack: Stack,
}

/// A million coroutines are a million records: docs/performance/system.md counts on this size.
const _: () = assert!(size_of::<Coroutine>() <= 112, "a coroutine has a budget of 112 bytes");

/// A host call that a coroutine blocks in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCall {
    /// The number the function was registered with.
    pub number: u16,
}

/// A fault: what and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind of fault.
    pub code: FaultCode,
    /// The instance.
    pub instance: InstanceId,
    /// The function's index in its module.
    pub function: u32,
    /// Byte offset of the instruction in its module.
    pub offset: u32,
}

/// Why [`crate::run()`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Stop {
    /// At a safepoint without cycles left. One further cycle lets it resume.
    OutOfCycles {
        /// The next charge: its next block, or the rest of what it is prepaying.
        next: Cycles,
    },
    /// It called a host function: read [`Coroutine::host_arguments`], then call
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
        /// Arguments passed.
        found: u32,
        /// Parameters of the function.
        expected: u32,
    },
    /// The first window alone exceeds `stack_bytes`.
    Stack {
        /// Bytes needed.
        found: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The stacks of the session's coroutines would exceed `session_stack_bytes`.
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
                write!(f, "found {found} arguments, expected {expected}")
            }
            Self::Stack { found, allowed } => {
                write!(
                    f,
                    "the function needs {found} bytes of stack, `stack_bytes` allows {allowed}"
                )
            }
            Self::SessionStack { found, allowed } => {
                write!(
                    f,
                    "the session's stacks would take {found} bytes, `session_stack_bytes` allows {allowed}"
                )
            }
            Self::NotFinished => write!(f, "the coroutine has not finished"),
        }
    }
}

impl core::error::Error for StartError {}

/// A position in a guest's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The instance.
    pub instance: InstanceId,
    /// The function's index in its module.
    pub function: u32,
    /// Byte offset in its module.
    pub offset: u32,
}

impl Coroutine {
    /// The word of a coroutine without a window: finished, or started with a host function.
    pub(crate) const NO_WORD: u32 = u32::MAX;

    /// An empty slot: a finished coroutine without results and without memory on the heap.
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
        let inline = [argument, Link::new(0, 0, Link::BOTTOM).0, 0, 0, 0, 0, 0];
        Self {
            used: 0,
            paid: 0,
            window: 0,
            word,
            instance,
            state: State::Ready,
            stack: Stack { heap: Box::default(), inline },
        }
    }

    /// Makes it [`Coroutine::vacant`] and frees its stack.
    #[inline]
    pub fn vacate(&mut self) {
        (self.used, self.paid) = (0, 0);
        (self.window, self.word, self.instance) = (0, Self::NO_WORD, 0);
        self.state = State::Finished { results: 0 };
        if !self.stack.heap.is_empty() {
            self.stack.heap = Box::default();
        }
    }

    /// Lets a finished coroutine call another function when it is next run. Its cycles used and its
    /// coroutine-local globals stay.
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

    /// [`Self::call_next`] of a finished coroutine, or of a vacant one (`fresh`), which also gets
    /// its coroutine-local globals.
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
            // A vacant coroutine has inline slots only.
            if base + slots > INLINE_SLOTS || most < INLINE_SLOTS {
                let held = session.stack_bytes_held.get() + needed;
                if held > session.limits.session_stack_bytes {
                    return Err(session_stack(needed));
                }
                session.stack_bytes_held.set(held);
                self.stack.heap = alloc::vec![0; base + slots].into_boxed_slice();
            }
            for (slot, &global) in self.stack.iter_mut().zip(&session.coroutine_globals) {
                *slot = session.globals[global as usize];
            }
        } else if self.stack.len() < base + slots
            || (most < INLINE_SLOTS && self.stack.heap.is_empty())
        {
            // A function without slots left it inline, with more slots than the limit allows.
            if !grow(&mut self.stack, base + slots, &session.limits, &session.stack_bytes_held) {
                return Err(session_stack(needed - self.stack.heap_bytes()));
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

    /// Bytes of its stack on the heap, which count towards `session_stack_bytes`.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.stack.heap_bytes()
    }

    /// Total cycles charged so far.
    #[must_use]
    #[inline]
    pub fn used(&self) -> Cycles {
        Cycles(self.used)
    }

    /// The host call it blocks in.
    #[must_use]
    #[inline]
    pub fn host_call(&self) -> Option<HostCall> {
        match self.state {
            State::Host { call, .. } => Some(HostCall { number: call.number }),
            _ => None,
        }
    }

    /// The number of the host function it blocks in; `u16::MAX` if it does not.
    #[inline(always)]
    pub(crate) fn called(&self) -> u16 {
        self.host_call().map_or(u16::MAX, |call| call.number)
    }

    /// The arguments of the host call it blocks in; none if it does not.
    #[must_use]
    #[inline]
    pub fn host_arguments(&self) -> &[u64] {
        match self.state {
            State::Host { first, call } => {
                let start = self.window as usize + usize::from(first);
                self.stack.slots(start, usize::from(call.arguments))
            }
            _ => &[],
        }
    }

    /// The number of results of the host call it blocks in; 0 if it does not.
    #[must_use]
    pub fn host_results(&self) -> usize {
        match self.state {
            State::Host { call, .. } => usize::from(call.results),
            _ => 0,
        }
    }

    /// Completes the host call it blocks in. 32-bit results use the lower half.
    ///
    /// # Panics
    /// If it does not block in a host call, or the function has another number of results: both are
    /// bugs of the host.
    #[inline]
    pub fn resume(&mut self, results: &[u64]) {
        let State::Host { first, call: Call { results: expected, narrow, .. } } = self.state else {
            panic!("resume: the coroutine is not blocked in a host call")
        };
        if results.len() != usize::from(expected) {
            wrong_results(results.len(), usize::from(expected));
        }
        let start = self.window as usize + usize::from(first);
        for (index, (slot, &value)) in
            self.stack.slots_mut(start, results.len()).iter_mut().zip(results).enumerate()
        {
            *slot = if narrow & (1 << index) != 0 { u64::from(value as u32) } else { value };
        }
        self.paid = 0;
        if self.word == Self::NO_WORD {
            self.state = State::Finished { results: expected };
        } else {
            self.word += wavelock_module::Form::CallImport.words();
            self.state = State::Ready;
        }
    }

    /// Ends the coroutine with a fault raised by a host call (a bad pointer, a bad entry), and
    /// returns that.
    pub fn fail(&mut self, session: &Session, code: FaultCode) -> Fault {
        self.state = State::Faulted(code);
        self.fault_at(session, code)
    }

    /// Prepays the sized host call it blocks in: `cost` is the full price, at most `cycles` are
    /// charged now. Returns the amount still missing; the call may not take effect before it is
    /// zero.
    #[must_use]
    pub fn prepay(&mut self, cost: Cycles, cycles: Cycles) -> Cycles {
        let missing = cost.0.saturating_sub(self.paid);
        let pays = missing.min(cycles.0);
        self.paid += pays;
        self.used += pays;
        Cycles(missing - pays)
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

    pub(crate) fn fault_at(&self, session: &Session, code: FaultCode) -> Fault {
        let Location { instance, function, offset } =
            self.location(session, self.instance, self.word);
        Fault { code, instance, function, offset }
    }

    /// The location of a word of an instance's code.
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

    /// Sets a coroutine-local global, by index in the session's order.
    pub fn set_global(&mut self, session: &Session, index: usize, value: u64) {
        let global = session.coroutine_globals[index];
        self.stack[index] =
            crate::session::narrowed(session.global_types[global as usize].value, value);
    }

    /// A coroutine-local global, by index in the session's order; `None` once it finished.
    #[must_use]
    pub fn global(&self, session: &Session, index: usize) -> Option<u64> {
        let ended = matches!(self.state, State::Finished { .. }) || self.word == Self::NO_WORD;
        (!ended && index < session.coroutine_globals.len()).then(|| self.stack[index])
    }

    /// The locations of its active frames, innermost first.
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
                if let Some(slot) = self.stack.heap.get(self.window as usize) {
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
    /// Its program counter: a stop point; in a caller, the return address.
    pub(crate) word: u32,
    pub(crate) instance: u16,
    /// The register of this frame at which the callee's window starts; `None` for the innermost.
    pub(crate) callee: Option<u16>,
}

/// Walks frames from the innermost outwards.
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

/// Out of line, so that the check costs no code in [`Coroutine::resume`].
#[cold]
#[inline(never)]
fn wrong_results(found: usize, expected: usize) -> ! {
    panic!("resume: {found} results for a function with {expected}")
}

/// Grows the stack to at least `needed` slots; `false` if that exceeds the coroutine's limit or,
/// together with the session's other stacks, the session's. The new length is part of the state, so
/// it depends on these arguments alone.
#[cold]
#[inline(never)]
pub(crate) fn grow(stack: &mut Stack, needed: usize, limits: &SessionLimits, held: &Held) -> bool {
    let others = held.get().saturating_sub(stack.heap_bytes());
    let left = limits.session_stack_bytes.saturating_sub(others) / 8;
    let most = (limits.stack_bytes as usize / 8).min(usize::try_from(left).unwrap_or(usize::MAX));
    if needed > most {
        return false;
    }
    let length = (stack.len() * 2).clamp(needed, most);
    held.set(others + length as u64 * 8);
    let mut slots = Vec::from(core::mem::take(&mut stack.heap));
    slots.reserve_exact(length - slots.len());
    if slots.is_empty() {
        slots.extend_from_slice(&stack.inline);
    }
    slots.resize(length, 0);
    stack.heap = slots.into_boxed_slice();
    true
}
