//! Host functions: what guests import beside the guest interface and WASI, as Rust closures.
//!
//! Contract: their names, types, kinds and costs are part of the machine's identity; the closures
//! are not. A closure that panics faults the coroutine that called it, not the process.

use crate::error::Error;
use crate::machine::Session;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use wavelock_abi::{Cycles, Frame, SessionId};
use wavelock_system::{
    GuestMemory, HostCode, HostCommand, HostFailed, HostImport, HostImports, HostKind, HostNumber,
};

/// A number that crosses between guest and host. Implemented for `i32`, `u32`, `i64`, `u64`, `f32`,
/// `f64` and `bool`.
pub trait Number: Copy + 'static {
    /// Its WebAssembly type.
    const TYPE: HostNumber;

    /// The number of a word as guests hold it.
    fn from_word(word: u64) -> Self;

    /// The word of a number.
    fn to_word(self) -> u64;
}

macro_rules! numbers {
    ($($number:ty: $kind:ident, $from:expr, $to:expr;)*) => {$(
        impl Number for $number {
            const TYPE: HostNumber = HostNumber::$kind;

            fn from_word(word: u64) -> Self {
                let from: fn(u64) -> Self = $from;
                from(word)
            }

            fn to_word(self) -> u64 {
                let to: fn(Self) -> u64 = $to;
                to(self)
            }
        }

        impl Values for $number {
            const TYPES: &'static [HostNumber] = &[HostNumber::$kind];

            fn from_words(words: &[u64]) -> Self {
                <$number>::from_word(words.first().copied().unwrap_or(0))
            }

            fn to_words(self, words: &mut [u64]) {
                words.iter_mut().take(1).for_each(|word| *word = self.to_word());
            }
        }
    )*};
}

/// The parameters or results of a host function: a [`Number`], or a tuple of up to eight.
pub trait Values: 'static {
    /// Their WebAssembly types.
    const TYPES: &'static [HostNumber];

    /// The values of these words.
    fn from_words(words: &[u64]) -> Self;

    /// Stores the words of the values.
    fn to_words(self, words: &mut [u64]);
}

numbers! {
    i32: I32, |word| word as u32 as i32, |number| u64::from(number as u32);
    u32: I32, |word| word as u32, |number| u64::from(number);
    i64: I64, |word| word as i64, |number| number as u64;
    u64: I64, |word| word, |number| number;
    f32: F32, |word| f32::from_bits(word as u32), |number| u64::from(number.to_bits());
    f64: F64, f64::from_bits, f64::to_bits;
    bool: I32, |word| word as u32 != 0, u64::from;
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Number),*> Values for ($($name,)*) {
            const TYPES: &'static [HostNumber] = &[$($name::TYPE),*];

            #[allow(non_snake_case, reason = "a value is named after its type")]
            fn from_words(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                $(let $name = $name::from_word(words.next().unwrap_or(0));)*
                ($($name,)*)
            }

            #[allow(non_snake_case, reason = "a value is named after its type")]
            fn to_words(self, words: &mut [u64]) {
                let ($($name,)*) = self;
                let mut words = words.iter_mut();
                $(if let Some(word) = words.next() {
                    *word = $name.to_word();
                })*
            }
        }
    )*};
}

impl Values for () {
    const TYPES: &'static [HostNumber] = &[];

    fn from_words(_: &[u64]) -> Self {}

    fn to_words(self, _: &mut [u64]) {}
}

tuples! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
}

/// The session that calls a host function, and for a view its memory.
pub struct Caller<'a, 'm> {
    session: SessionId,
    frame: Frame,
    memory: Option<&'a mut GuestMemory<'m>>,
}

impl Caller<'_, '_> {
    /// The calling session.
    #[must_use]
    pub const fn session(&self) -> Session {
        Session::new(self.session)
    }

    /// The frame of the call.
    #[must_use]
    pub const fn frame(&self) -> Frame {
        self.frame
    }

    /// Bytes of the guest's memory; `None` if any is outside it.
    #[must_use]
    pub fn read(&self, address: u32, length: u32) -> Option<&[u8]> {
        self.memory.as_ref()?.read(address, length)
    }

    /// Writes into the guest's memory; `false`, and nothing written, if any byte is outside it.
    #[must_use]
    pub fn write(&mut self, address: u32, bytes: &[u8]) -> bool {
        self.memory.as_mut().is_some_and(|memory| memory.write(address, bytes))
    }
}

/// The state behind a host's functions, as the embedder holds it. Cheap to clone.
///
/// Change it between frames. What guests see of it is in the digest; a change by the embedder is
/// not an input, so a program that wants the same run makes the same changes at the same frames.
///
/// A function of the host gets the state as an argument. One that reaches for it through a handle
/// instead, while it runs, panics, and so faults its coroutine: it would wait for itself.
pub struct State<S>(Arc<RwLock<S>>);

thread_local! {
    /// The host whose function runs on this thread, by the address of its state.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Marks a host as running on this thread, until it is dropped.
struct RunningMark(usize);

impl RunningMark {
    fn new<S>(state: &State<S>) -> Self {
        Self(RUNNING.replace(state.address()))
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

impl<S> Clone for State<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for State<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl<S> State<S> {
    /// Reads the state.
    ///
    /// # Panics
    /// A function of this host calls it.
    pub fn with<R>(&self, read: impl FnOnce(&S) -> R) -> R {
        self.check_outside();
        self.read(read)
    }

    /// Changes the state.
    ///
    /// # Panics
    /// A function of this host calls it.
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        self.check_outside();
        self.change(change)
    }

    fn read<R>(&self, read: impl FnOnce(&S) -> R) -> R {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn check_outside(&self) {
        assert!(
            RUNNING.get() != self.address(),
            "a function of a host uses the handle of its own state, which it has as an argument"
        );
    }
}

type InPlace<S> = Box<dyn Fn(&S, &mut Caller<'_, '_>, &[u64], &mut [u64]) -> bool + Send + Sync>;
type AtWavesEnd<S> = Box<dyn Fn(&mut S, &mut Caller<'_, '_>, &[u64]) -> bool + Send + Sync>;

enum Code<S> {
    InPlace(InPlace<S>),
    AtWavesEnd(AtWavesEnd<S>),
    /// The embedder answers.
    Reply,
}

/// What guests import beside the guest interface and WASI: functions of four kinds, over a state
/// of the embedder.
///
/// | kind | sees | takes effect |
/// |---|---|---|
/// | [`pure`](Host::pure) | its arguments | in place |
/// | [`view`](Host::view) | arguments, guest memory, the state as of the wave's begin | in place |
/// | [`command`](Host::command) | arguments | changes the state at the wave's end, in canonical order |
/// | [`ask`](Host::ask) | nothing: the embedder answers | the coroutine waits for the reply, an input of a later frame |
///
/// ```
/// use wavelock::{Cycles, Host};
/// let host = Host::new("blocks", 1, [0i32; 16])
///     .pure(("math", "half"), Cycles(20), |number: i32| number / 2)
///     .view(("world", "get"), Cycles(40), |blocks: &[i32; 16], _, at: u32| {
///         blocks.get(at as usize).copied().unwrap_or(-1)
///     })
///     .command(("world", "set"), Cycles(60), |blocks, _, (at, kind): (u32, i32)| {
///         if let Some(block) = blocks.get_mut(at as usize) {
///             *block = kind;
///         }
///     });
/// let blocks = host.state();
/// assert_eq!(blocks.with(|blocks| blocks[3]), 0);
/// ```
pub struct Host<S> {
    imports: HostImports,
    code: Vec<Code<S>>,
    state: State<S>,
}

impl<S: Clone + Send + Sync + 'static> Host<S> {
    /// A host without functions. Name and version are part of the identity of machines with it.
    #[must_use]
    pub fn new(name: &str, version: u32, state: S) -> Self {
        let imports = HostImports { name: name.into(), version, functions: Vec::new() };
        Self { imports, code: Vec::new(), state: State(Arc::new(RwLock::new(state))) }
    }

    /// The state, for the embedder.
    #[must_use]
    pub fn state(&self) -> State<S> {
        self.state.clone()
    }

    /// A function of its arguments alone, called in place on any thread. `import` is the module and
    /// the name under which guests import it; a call is charged `cost`.
    #[must_use]
    pub fn pure<A: Values, R: Values>(
        self,
        import: (&str, &str),
        cost: Cycles,
        function: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Self {
        let code = move |_: &S, _: &mut Caller<'_, '_>, arguments: &[u64], results: &mut [u64]| {
            function(A::from_words(arguments)).to_words(results);
            true
        };
        self.add(HostKind::Pure, import, cost, A::TYPES, R::TYPES, Code::InPlace(Box::new(code)))
    }

    /// A function that sees guest memory and the state as it was when the wave began, called in
    /// place on any thread. What it returns and writes is in the digest.
    #[must_use]
    pub fn view<A: Values, R: Values>(
        self,
        import: (&str, &str),
        cost: Cycles,
        function: impl Fn(&S, &mut Caller<'_, '_>, A) -> R + Send + Sync + 'static,
    ) -> Self {
        let code = move |state: &S,
                         caller: &mut Caller<'_, '_>,
                         arguments: &[u64],
                         results: &mut [u64]| {
            function(state, caller, A::from_words(arguments)).to_words(results);
            true
        };
        self.add(HostKind::View, import, cost, A::TYPES, R::TYPES, Code::InPlace(Box::new(code)))
    }

    /// A change of the state at the wave's end, lane by lane and in the order of the calls. The
    /// guest continues at once. A panic is caught; what the closure had changed by then stays.
    #[must_use]
    pub fn command<A: Values>(
        self,
        import: (&str, &str),
        cost: Cycles,
        function: impl Fn(&mut S, &Caller<'_, '_>, A) + Send + Sync + 'static,
    ) -> Self {
        let code = move |state: &mut S, caller: &mut Caller<'_, '_>, arguments: &[u64]| {
            function(state, caller, A::from_words(arguments));
            true
        };
        self.add(HostKind::Command, import, cost, A::TYPES, &[], Code::AtWavesEnd(Box::new(code)))
    }

    /// A function that the embedder answers later: the calling coroutine waits, and the machine
    /// continues. The asks of a frame are in [`FrameReport::asks`](crate::FrameReport::asks), all
    /// that wait in [`Machine::asks`](crate::Machine::asks). The reply is an input of a later
    /// frame, given with [`Machine::answer`](crate::Machine::answer) or
    /// [`Remote::answer`](crate::Remote::answer). Live machines only.
    ///
    /// ```
    /// use wavelock::{Cycles, Host};
    /// let host = Host::new("net", 1, ()).ask::<u32, i64>(("net", "score_of"), Cycles(100));
    /// # let _ = host;
    /// ```
    #[must_use]
    pub fn ask<A: Values, R: Values>(self, import: (&str, &str), cost: Cycles) -> Self {
        self.add(HostKind::Ask, import, cost, A::TYPES, R::TYPES, Code::Reply)
    }

    /// A function whose types are known at run time only, for bindings to other languages: numbers
    /// cross as words, a number of 32 bits in the low half of one. `code` returns whether it could
    /// answer; if not, the call ends as one of a closure that panics. An [`HostKind::Ask`] has no
    /// code: it is never called.
    #[must_use]
    pub fn function(
        self,
        kind: HostKind,
        import: (&str, &str),
        cost: Cycles,
        (params, results): (&[HostNumber], &[HostNumber]),
        code: impl Fn(&S, &mut Caller<'_, '_>, &[u64], &mut [u64]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let masks: Vec<u64> = results.iter().map(|number| mask(*number)).collect();
        let code = match kind {
            HostKind::Ask => Code::Reply,
            HostKind::Command => Code::AtWavesEnd(Box::new(move |state, caller, arguments| {
                code(state, caller, arguments, &mut [])
            })),
            HostKind::Pure | HostKind::View => {
                Code::InPlace(Box::new(move |state, caller, arguments, results| {
                    let answered = code(state, caller, arguments, results);
                    results.iter_mut().zip(&masks).for_each(|(word, mask)| *word &= mask);
                    answered
                }))
            }
        };
        self.add(kind, import, cost, params, results, code)
    }

    fn add(
        mut self,
        kind: HostKind,
        (module, name): (&str, &str),
        cost: Cycles,
        params: &[HostNumber],
        results: &[HostNumber],
        code: Code<S>,
    ) -> Self {
        let (module, name) = (module.into(), name.into());
        let (params, results) = (params.into(), results.into());
        self.imports.functions.push(HostImport { module, name, kind, params, results, cost });
        self.code.push(code);
        self
    }

    pub(crate) fn shared(self) -> (HostImports, Arc<dyn Behind>) {
        let Self { imports, code, state } = self;
        (imports, Arc::new(Functions { code, state, panics: AtomicU64::new(0) }))
    }
}

impl<S> fmt::Debug for Host<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("imports", &self.imports).finish_non_exhaustive()
    }
}

/// The bits of a word that a number has.
pub(crate) const fn mask(number: HostNumber) -> u64 {
    match number {
        HostNumber::I32 | HostNumber::F32 => u32::MAX as u64,
        HostNumber::I64 | HostNumber::F64 => u64::MAX,
    }
}

/// A host without its type.
pub(crate) trait Behind: Send + Sync {
    fn code(self: Arc<Self>) -> Arc<dyn HostCode>;
    /// A copy of the state.
    fn keep(&self) -> Arc<dyn Any + Send + Sync>;
    /// Returns to a copy of this host's state.
    fn restore(&self, kept: &(dyn Any + Send + Sync));
    /// Commands that panicked since the last call.
    fn take_panics(&self) -> u64;
}

struct Functions<S> {
    code: Vec<Code<S>>,
    state: State<S>,
    panics: AtomicU64,
}

impl<S: Clone + Send + Sync + 'static> Behind for Functions<S> {
    fn code(self: Arc<Self>) -> Arc<dyn HostCode> {
        self
    }

    fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self.state.read(S::clone))
    }

    fn restore(&self, kept: &(dyn Any + Send + Sync)) {
        if let Some(kept) = kept.downcast_ref::<S>() {
            self.state.change(|state| state.clone_from(kept));
        }
    }

    fn take_panics(&self) -> u64 {
        self.panics.swap(0, Ordering::Relaxed)
    }
}

impl<S: Clone + Send + Sync + 'static> HostCode for Functions<S> {
    fn call(
        &self,
        function: usize,
        session: SessionId,
        frame: Frame,
        memory: &mut GuestMemory<'_>,
        arguments: &[u64],
        results: &mut [u64],
    ) -> Result<(), HostFailed> {
        let Some(Code::InPlace(code)) = self.code.get(function) else { return Err(HostFailed) };
        let mut caller = Caller { session, frame, memory: Some(memory) };
        let _mark = RunningMark::new(&self.state);
        let called = AssertUnwindSafe(|| {
            self.state.read(|state| code(state, &mut caller, arguments, results))
        });
        if catch_unwind(called).unwrap_or(false) { Ok(()) } else { Err(HostFailed) }
    }

    fn command(&self, command: &HostCommand) {
        let Some(Code::AtWavesEnd(code)) = self.code.get(command.function) else { return };
        let mut caller = Caller { session: command.session, frame: command.frame, memory: None };
        let _mark = RunningMark::new(&self.state);
        let called = AssertUnwindSafe(|| {
            self.state.change(|state| code(state, &mut caller, &command.arguments))
        });
        if !catch_unwind(called).unwrap_or(false) {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Commands that panicked in a frame, as errors of its report.
pub(crate) fn panicked(behind: Option<&Arc<dyn Behind>>) -> Option<Error> {
    match behind?.take_panics() {
        0 => None,
        commands => Some(Error::CommandsPanicked { commands }),
    }
}
