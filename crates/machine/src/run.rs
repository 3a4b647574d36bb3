//! The run loop: one function over one set of small handlers.
//!
//! State that changes with every instruction (place in the code, window, cycles left, memory) is in locals; everything else is reached
//! through the session. A stop writes the place and window back and is complete: nothing of a run is left on the host's stack.
//!
//! Charging: a branch carries the cost of both ways it can go and charges it as it goes. At a safepoint (`safepoint`, `enter`, a jump to a
//! loop header, a return) the coroutine stops if nothing is left, before the next block is charged.

use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::{FunctionType, Op, TableEntry, Word};

use crate::bulk::{self, Pause, Purse, Store};
use crate::coroutine::{Call, Coroutine, HostCall, Link, NEAR, State, Stop};
use crate::host::{Answer, Coroutines, Host, Newborn, Stopping, Turn};
use crate::number::{self, double, single};
use crate::raw::{Bytes, Cursor, Window, import};
use crate::session::{FunctionEntry, Import, Instance, Session, Table};

/// Why the loop ended, as one number: how, in the lowest byte, and with what. As an enum its tag would be set up before every instruction,
/// because most instructions can end the loop in the same way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Exit(u64);

/// An [`Exit`], taken apart.
enum Ended {
    /// At a safepoint with nothing left; what comes next costs this.
    OutOfCycles(u64),
    /// In a host call; the coroutine's state says which.
    Host,
    /// Its function returned this many values.
    Finished(u16),
    Fault(FaultCode),
    /// It gave way, and stands behind the call.
    Pass,
    /// It waits, and stands in the call.
    Wait,
    /// Its turn has come, and it is not to run here.
    Elsewhere,
    /// Its turn has come, and there is no answer for the call it stands in, or it has ended.
    Standing,
    /// It stands in a call that asks for a coroutine of a function in this table.
    Start(u32),
}

#[allow(non_snake_case, reason = "they make what the variants of `Ended` are made of")]
impl Exit {
    const HOST: Self = Self(1);
    const PASS: Self = Self(4);
    const WAIT: Self = Self(5);
    const ELSEWHERE: Self = Self(6);
    const STANDING: Self = Self(7);

    #[inline(always)]
    const fn OutOfCycles(next: u64) -> Self {
        Self(next << 8)
    }

    #[inline(always)]
    const fn Finished(results: u16) -> Self {
        Self((results as u64) << 8 | 2)
    }

    #[inline(always)]
    const fn Fault(code: FaultCode) -> Self {
        Self((code as u64) << 8 | 3)
    }

    #[inline(always)]
    const fn Start(table: u32) -> Self {
        Self((table as u64) << 8 | 8)
    }

    #[inline(always)]
    fn ended(self) -> Ended {
        let with = self.0 >> 8;
        match self.0 as u8 {
            0 => Ended::OutOfCycles(with),
            1 => Ended::Host,
            2 => Ended::Finished(with as u16),
            3 => Ended::Fault(FaultCode::from_code(with as u8).expect("a fault was put in")),
            4 => Ended::Pass,
            5 => Ended::Wait,
            6 => Ended::Elsewhere,
            7 => Ended::Standing,
            _ => Ended::Start(with as u32),
        }
    }
}

/// Runs `coroutine` in `session` for at most `cycles` (and less than [`Session::gap`] beyond), and says why it stopped.
///
/// A coroutine that waits in a host call answers that call again; one that has ended, its end.
#[inline]
pub fn run(session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles) -> Stop {
    if coroutine.state != State::Ready {
        return standing(session, coroutine);
    }
    if cycles.0 > LONGEST || !session.coroutine_globals.is_empty() {
        return run_in_full(session, coroutine, cycles, alone);
    }
    let bound = cycles.0 as i32;
    let (exit, left) = alone(session, coroutine, bound);
    coroutine.charge(bound, left);
    exit.stop(session, coroutine)
}

/// [`run`], with a host that may answer calls in place.
pub fn run_with(session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles, host: &mut dyn Host) -> Stop {
    if coroutine.state != State::Ready {
        return standing(session, coroutine);
    }
    run_in_full(session, coroutine, cycles, |session, coroutine, bound| alone_with(session, coroutine, bound, host))
}

/// One coroutine by itself, whose globals are the session's now, for so many cycles; gives what is left of them. Not inlined anywhere, with arguments and
/// results that fit registers, so that a suspension costs what it must: the way in and out is as long as the guest's instructions between two host calls.
#[inline(never)]
fn alone(session: &mut Session, coroutine: &mut Coroutine, bound: i32) -> (Exit, i32) {
    let turn = Turn { slot: 0, cycles: bound as u32 };
    let (exit, left) = execute::<false, false, _, _>(session, coroutine, &mut { turn }, 0, &mut Stopping, NO_NUMBER);
    (exit, left as i32)
}

/// [`alone`], with a host that is offered calls.
#[inline(never)]
fn alone_with(session: &mut Session, coroutine: &mut Coroutine, bound: i32, host: &mut dyn Host) -> (Exit, i32) {
    let turn = Turn { slot: 0, cycles: bound as u32 };
    let (exit, left) = execute::<false, true, _, _>(session, coroutine, &mut { turn }, 0, host, NO_NUMBER);
    (exit, left as i32)
}

/// A run of more cycles than are counted at once (an end of the count in between is no stop), or with globals of the coroutine's own.
#[cold]
#[inline(never)]
fn run_in_full(
    session: &mut Session,
    coroutine: &mut Coroutine,
    mut cycles: Cycles,
    mut alone: impl FnMut(&mut Session, &mut Coroutine, i32) -> (Exit, i32),
) -> Stop {
    loop {
        let bound = cycles.0.min(LONGEST) as i32;
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        let (exit, left) = alone(session, coroutine, bound);
        swap_globals(&mut session.globals, &session.coroutine_globals, coroutine);
        coroutine.charge(bound, left);
        cycles = cycles.saturating_sub(Cycles((i64::from(bound) - i64::from(left)) as u64));
        if cycles == Cycles::ZERO || !matches!(exit.ended(), Ended::OutOfCycles(_)) {
            return exit.stop(session, coroutine);
        }
    }
}

impl Coroutine {
    /// Charges a run that had `bound` cycles and has `left` of them. What is left may be less than nothing, by less than a gap: what was used fits 32 bits.
    #[inline(always)]
    fn charge(&mut self, bound: i32, left: i32) {
        self.used = self.used.wrapping_add(u64::from(bound.wrapping_sub(left) as u32));
    }
}

/// How [`run_turns`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Turned {
    /// Why the last coroutine stopped; `None` if it gave way and nobody followed.
    pub stop: Option<Stop>,
    /// What the last coroutine had used when its turn began.
    pub began: Cycles,
}

/// Runs coroutines of `session` in turns: as [`run_with`], but a call of the host function with the number `gives_way`, which must have no
/// results, is answered here and [`Host::pass`] names the next. Ends with the first other stop, or when there is no next.
///
/// The same as a loop around [`run_with`] and [`Coroutine::resume`], without the way out and in again.
///
/// The first turn may have begun before: it has spent so many cycles, with those it has left at most [`Turn::LONGEST`] and a gap.
///
/// The loop is compiled for each kind of host, so that what a host does between two turns is part of it.
#[inline(never)]
pub fn run_turns<C: Coroutines, H: Host>(
    session: &mut Session,
    coroutines: &mut C,
    (first, spent): (Turn, u32),
    host: &mut H,
    gives_way: u16,
) -> Turned {
    let mut turn = first;
    let (exit, began) = execute::<true, true, _, _>(session, coroutines, &mut turn, spent, host, u32::from(gives_way));
    let stop = match exit.ended() {
        Ended::Pass | Ended::Wait | Ended::Elsewhere => None,
        _ => coroutines.running(turn.slot).map(|coroutine| exit.stop(session, coroutine)),
    };
    keep(coroutines, host, false);
    Turned { stop, began: Cycles(began) }
}

/// In the count of turns until others are read ahead: the one that runs is late.
const IS_LATE: u32 = 1 << 31;

/// The turn of a coroutine that is in no place: it gets the one that is kept for such, and `look` says so. `None` if there is none such.
#[inline(never)]
fn take<'a, C: Coroutines, H: Host + ?Sized>(
    coroutines: &'a mut C,
    slot: u32,
    direct: &mut H,
    look: &mut u32,
) -> Option<&'a mut Coroutine> {
    let late = coroutines.late()?;
    if !direct.take(slot, &mut late.coroutine) {
        return None;
    }
    late.slot = slot;
    *look = (*look).max(1) | IS_LATE;
    Some(&mut late.coroutine)
}

/// The one that is late, if there is one, is in its place now or kept until its next turn.
#[inline(never)]
fn keep<C: Coroutines, H: Host + ?Sized>(coroutines: &mut C, direct: &mut H, is_needed: bool) {
    let Some(late) = coroutines.late() else { return };
    let slot = core::mem::replace(&mut late.slot, Turn::NOBODY.slot);
    if slot != Turn::NOBODY.slot {
        let coroutine = core::mem::replace(&mut late.coroutine, Coroutine::vacant());
        direct.keep(slot, coroutine, coroutines, is_needed);
    }
}

/// The number of no host function.
const NO_NUMBER: u32 = u32::MAX;

/// What a coroutine that cannot run answers.
#[cold]
#[inline(never)]
fn standing(session: &Session, coroutine: &Coroutine) -> Stop {
    match coroutine.state {
        State::Ready => Stop::OutOfCycles { next: Cycles::ZERO },
        State::Host { call, .. } => Stop::Host(HostCall { number: call.number }),
        State::Finished { .. } => Stop::Finished,
        State::Faulted(code) => Stop::Fault(coroutine.fault_at(session, code)),
    }
}

/// What became of the answer of a coroutine that waits in a call. Two words, so that it comes in registers.
#[derive(Clone, Copy)]
struct Taken {
    /// Where in the memory to write `number`, in the lower half; otherwise [`Taken::NOTHING`] or [`Taken::REFUSED`].
    at: u64,
    number: u64,
}

impl Taken {
    /// The coroutine goes on, and nothing is to be written.
    const NOTHING: u64 = u64::MAX;
    /// The coroutine does not go on; the number is the [`Exit`].
    const REFUSED: u64 = u64::MAX - 1;

    const fn refused(exit: Exit) -> Self {
        Self { at: Self::REFUSED, number: exit.0 }
    }
}

/// Gives a coroutine that waits in a call the host's answer, whatever it is. What the answer writes is the caller's to write, who has the memory at hand.
#[inline(never)]
fn take_any_answer<H: Host + ?Sized>(coroutine: &mut Coroutine, slot: u32, direct: &mut H, memory_bytes: u64) -> Taken {
    let State::Host { first, call } = coroutine.state else { return Taken::refused(Exit::STANDING) };
    let at = coroutine.window as usize + usize::from(first);
    let second = coroutine.stack.get(at + 1).copied().unwrap_or(0);
    let answer = direct.answer(slot, second, memory_bytes);
    if !answer.is_done() {
        return Taken::refused(if answer == Answer::STOP { Exit::STANDING } else { Exit::ELSEWHERE });
    }
    let (result, taken) = match answer.written() {
        Some(number) => (0, Taken { at: u64::from(second as u32), number }),
        None => (answer.value(), Taken { at: Taken::NOTHING, number: 0 }),
    };
    if call.results == 1 && coroutine.word != Coroutine::NO_WORD {
        // `resume`, with what is known already.
        coroutine.stack[at] = if call.narrow != 0 { u64::from(result as u32) } else { result };
        coroutine.paid = 0;
        coroutine.word += wavelock_module::Form::CallImport.words();
        coroutine.state = State::Ready;
        return taken;
    }
    coroutine.resume(&[result]);
    taken
}

/// Writes the eight bytes of [`Answer::number`].
#[inline(always)]
fn put_number(memory: &mut Bytes<'_>, at: u64, number: u64) {
    let stored = memory.store(u64::from(at as u32), number.to_le_bytes());
    assert!(stored, "a host that answers in place has looked at the memory's size");
}

/// The turn of one that was late is over, or it is time to fetch those who will probably run next; `look` is after how many turns to do that again, 0 for not at all.
#[inline(never)]
fn look_around<C: Coroutines, H: Host + ?Sized>(coroutines: &mut C, direct: &mut H, look: &mut u32) {
    if *look >= IS_LATE {
        keep(coroutines, direct, false);
        *look &= !IS_LATE;
    }
    if *look == 0 {
        *look = direct.ahead(&mut |slot, ahead| coroutines.fetch(slot, ahead));
    }
}

/// What a session says of the functions that a coroutine can begin with.
struct Births<'a> {
    types: &'a [FunctionType],
    functions: &'a [FunctionEntry],
    instances: &'a [Instance],
    /// How many slots a stack may have; none in a session with coroutine-local globals, whose values a coroutine would have to be given.
    most: usize,
}

/// A function that coroutines begin with here, kept because most often the next begins with the same.
struct Birth {
    /// The reference to it, as tables hold them; 0 is to none.
    reference: u64,
    word: u32,
    instance: u16,
    is_narrow: bool,
}

impl Births<'_> {
    /// The function that a reference names, if a coroutine that begins with it has all it needs near and the host begins such.
    #[inline(never)]
    fn simple<H: Host + ?Sized>(&self, reference: u64, direct: &H) -> Option<Birth> {
        let function = self.functions.get(usize::try_from(reference.checked_sub(1)?).ok()?)?;
        // A host function is of no instance.
        let module = &self.instances.get(function.instance as usize)?.module;
        let registers = module.code().functions()[(function.index - module.imported_functions()) as usize].registers;
        let kind = &self.types[function.type_id as usize];
        let &[parameter] = kind.parameters() else { return None };
        let is_simple = usize::from(registers) <= NEAR && self.most >= NEAR && direct.begins(kind);
        is_simple.then_some(Birth { reference, word: function.entry, instance: function.instance as u16, is_narrow: parameter.is_narrow() })
    }
}

/// A coroutine begins in a place that is there. A call, because most begin where there is none yet.
#[inline(never)]
fn begin_at<C: Coroutines>(coroutines: &mut C, place: u32, newborn: Newborn) {
    coroutines.begin(place, Coroutine::born(newborn));
}

/// Begins the coroutine that the one in `slot` asks for in the call it stands in, and answers the call; gives the one that asked. `None` if it is not begun
/// here, and nothing has changed then but for `birth`, which is what comes of asking `find`.
#[inline(always)]
fn begin<'a, C: Coroutines, H: Host + ?Sized>(
    coroutines: &'a mut C,
    slot: u32,
    table: &Table,
    birth: &mut Birth,
    find: impl FnOnce(u64, &H) -> Option<Birth>,
    direct: &mut H,
) -> Option<&'a mut Coroutine> {
    let coroutine = coroutines.places().get_mut(slot as usize)?;
    let State::Host { first, call: Call { arguments: 2, results: 1, narrow, .. } } = coroutine.state else { return None };
    let at = coroutine.window as usize + usize::from(first);
    let &[element, mut argument] = coroutine.stack.part(at, 2) else { return None };
    let reference = *table.elements.get(element as u32 as usize)?;
    if reference != birth.reference || reference == 0 {
        core::hint::cold_path();
        *birth = find(reference, direct)?;
    }
    if birth.is_narrow {
        argument = u64::from(argument as u32);
    }
    let newborn = Newborn { word: birth.word, instance: birth.instance, argument };
    let places = coroutines.places().len();
    let (place, result) = direct.begin(newborn, places as u32);
    if place == Turn::NOBODY.slot {
        return None;
    }
    if (place as usize) < places {
        begin_at(coroutines, place, newborn);
    }
    // `resume`, with what is known already.
    let coroutine = coroutines.places().get_mut(slot as usize)?;
    coroutine.stack.part_mut(at, 1)[0] = if narrow != 0 { u64::from(result as u32) } else { result };
    coroutine.paid = 0;
    coroutine.word += wavelock_module::Form::CallImport.words();
    coroutine.state = State::Ready;
    Some(coroutine)
}

impl Exit {
    /// The stop of a coroutine whose run ended so, which its state says too from now on.
    #[inline(always)]
    fn stop(self, session: &Session, coroutine: &mut Coroutine) -> Stop {
        // Nearly all are host calls.
        if self == Self::HOST { Stop::Host(HostCall { number: coroutine.called() }) } else { self.other_stop(session, coroutine) }
    }

    #[inline(never)]
    fn other_stop(self, session: &Session, coroutine: &mut Coroutine) -> Stop {
        match self.ended() {
            Ended::OutOfCycles(next) => return Stop::OutOfCycles { next: Cycles(next) },
            Ended::Finished(results) => {
                coroutine.state = State::Finished { results };
                coroutine.word = Coroutine::NO_WORD;
            }
            Ended::Fault(code) => coroutine.state = State::Faulted(code),
            Ended::Host | Ended::Pass | Ended::Wait | Ended::Elsewhere | Ended::Standing | Ended::Start(_) => {}
        }
        standing(session, coroutine)
    }
}

/// Exchanges the session's cells of coroutine-local globals with the coroutine's own values. A call, so that sessions without any pay nothing for it.
#[inline(never)]
fn swap_globals(globals: &mut [u64], coroutine_globals: &[u32], coroutine: &mut Coroutine) {
    for (own, &global) in coroutine.stack.iter_mut().zip(coroutine_globals) {
        core::mem::swap(own, &mut globals[global as usize]);
    }
}

/// Cycles left are counted in 32 bits, so a long run is counted in parts of at most so many.
const LONGEST: u64 = Turn::LONGEST as u64;

/// Whether cycles are counted. Always, but for the one build that measures what counting costs
/// (`RUSTFLAGS="--cfg wavelock_unmetered"`, see `benches/quick.rs`).
#[allow(unexpected_cfgs)]
const METERED: bool = !cfg!(wavelock_unmetered);

/// Marks a path as unlikely.
#[cold]
#[inline(never)]
fn cold() {}

/// What was left before a charge, behind a veil, so that the compiler does not keep the old value at hand everywhere instead. No call: one would cost
/// the registers of every instruction that can come here.
#[inline(always)]
fn undo(left: i32, cycles: i32) -> i32 {
    core::hint::black_box(left) + cycles
}

/// The memory an instance uses.
fn memory_of<'a>(memories: &'a mut [crate::memory::Memory], instance: &Instance) -> Bytes<'a> {
    Bytes::new(memories.get_mut(instance.memory as usize))
}

// Long: one arm per lowered instruction; the arms are small.
//
// With `OFFERS` the host is offered calls to answer. With `TURNS` coroutines take turns, as `direct` says; answers how the last, which `turn` names then, ended and what it had used when its turn began. Without, one runs, which is ready and whose globals are in place, for
// at most `LONGEST` cycles, and is charged by the caller; answers how it ended and what was left (as an `i32`).
#[inline(always)]
fn execute<const TURNS: bool, const OFFERS: bool, C: Coroutines, H: Host + ?Sized>(
    session: &mut Session,
    coroutines: &mut C,
    turn: &mut Turn,
    spent: u32,
    direct: &mut H,
    gives_way: u32,
) -> (Exit, u64) {
    // Behind a veil, so that the compiler looks a part of the session up where it is used: knowing that nothing else changes it, it would fetch all of
    // them on the way in, twenty for the two that most runs need.
    let session = core::hint::black_box(session);
    let Session {
        types, functions, hosts, memories, tables, globals, instances, dropped, limits, coroutine_globals, stack_bytes_held, ..
    } = session;
    // Turns until others are to be read ahead, or 0; not after the first, since many sessions have but one turn at a time. In memory, because calls change it: a yield only looks at it.
    let mut look = 2u32;
    let mut coroutine = if (turn.slot as usize) < coroutines.places().len() {
        &mut coroutines.places()[turn.slot as usize]
    } else if TURNS && let Some(coroutine) = take(coroutines, turn.slot, direct, &mut look) {
        coroutine
    } else {
        return (Exit::ELSEWHERE, 0);
    };
    let mut cycles = turn.cycles + spent;
    let mut left = turn.cycles as i32;
    let has_own_globals = TURNS && !coroutine_globals.is_empty();
    let mut instance = &instances[usize::from(coroutine.instance)];
    let mut memory = memory_of(memories, instance);
    let mut words = instance.module.code().words();
    // As if the turn began now with what it had: what it has used is one difference then.
    coroutine.used -= u64::from(spent);

    let mut birth = Birth { reference: 0, word: 0, instance: 0, is_narrow: false };

    /// Gives the coroutine that waits in a call whatever answer there is, and begins its turn again; or ends.
    macro_rules! answer {
        () => {{
            if has_own_globals {
                swap_globals(globals, coroutine_globals, coroutine);
            }
            let taken = take_any_answer(coroutine, turn.slot, direct, memory.length());
            if taken.at == Taken::REFUSED {
                let began = coroutine.used;
                coroutine.used += u64::from(cycles.wrapping_sub(left as u32));
                return (Exit(taken.number), began);
            }
            if taken.at != Taken::NOTHING {
                put_number(&mut memory, taken.at, taken.number);
            }
            continue;
        }};
    }

    // Once; or once for each turn.
    loop {
        if has_own_globals {
            core::hint::cold_path();
            swap_globals(globals, coroutine_globals, coroutine);
        }
        if TURNS && coroutine.word as usize >= words.len() {
            core::hint::cold_path();
            // It stands in no code: behind its end, or in a call that is all of it.
            answer!();
        }
        // Field by field, so that the window can borrow the stack while the rest is used.
        let Coroutine { stack, used, paid, window: place_window, word: place_word, instance: place_instance, state } = &mut *coroutine;
        let mut code = Cursor::new(words, *place_word as usize);
        let mut window = Window::new(stack, place_window);
        if TURNS && *state != State::Ready {
            core::hint::cold_path();
            // It waits in a call. The usual answer, a number that is there, is given as if the call had been answered in place.
            let call = code.fields();
            if let State::Host { first, call: Call { arguments: 2, .. } } = *state
                && matches!(call.op(), Op::CallImport)
                && left > 0
                && direct.number(turn.slot, &mut |number| {
                    memory.store(u64::from(window.get(usize::from(first) + 1) as u32), number.to_le_bytes())
                })
            {
                window.set(usize::from(first), 0);
                *paid = 0;
                *state = State::Ready;
                if METERED {
                    left -= call.high() as i32;
                }
                code.go(i32::from(call.c()));
            } else {
                answer!();
            }
        }
        /// Charges a block that is entered at no safepoint.
        macro_rules! charge {
            ($cycles:expr) => {
                if METERED {
                    left -= $cycles as i32;
                }
            };
        }
        /// Charges a block that is entered at a safepoint, unless nothing is left: then `$stop` says where to stand, and the loop ends.
        /// The charge comes first, so that one subtraction also tests: what was left before is what is left now plus the charge.
        macro_rules! arrive {
            ($cycles:expr, $stop:expr) => {
                if METERED {
                    let cycles = $cycles as i32;
                    let low = left <= cycles;
                    left -= cycles;
                    if low {
                        let before = undo(left, cycles);
                        if before <= 0 {
                            left = before;
                            break $stop;
                        }
                    }
                }
            };
        }
        /// Charges the block that a branch goes to: at a safepoint if it goes back to a loop header.
        macro_rules! go {
            ($word:expr) => {{
                if METERED {
                    let cycles = $word.taken() as i32;
                    let low = left <= cycles;
                    left -= cycles;
                    if low {
                        let before = undo(left, cycles);
                        if before <= 0 && $word.stop() != 0 {
                            left = before;
                            code.jump($word.stop() as usize);
                            break Exit::OutOfCycles(u64::from(code.fields().bc()));
                        }
                    }
                }
                code.go($word.distance());
            }};
        }
        /// A register named by a field.
        macro_rules! get {
            ($word:expr, $field:ident) => {
                window.get(usize::from($word.$field()))
            };
        }
        macro_rules! set {
            ($word:expr, $value:expr) => {{
                let value: u64 = $value;
                window.set(usize::from($word.a()), value);
            }};
        }

        /// The turn ends so many cycles sooner. What is taken off what is left would count as used in the end.
        macro_rules! sooner {
            ($cycles:expr) => {{
                left -= $cycles as i32;
                if TURNS {
                    cycles = cycles.wrapping_sub($cycles);
                } else {
                    *used = used.wrapping_sub(u64::from($cycles));
                }
            }};
        }
        /// The turn is over: the coroutine stands where the loop does. Gives what it has used, which is less than a gap more than it may, so 32 bits hold it.
        macro_rules! put_back {
            () => {{
                *place_word = code.position() as u32;
                if has_own_globals {
                    core::hint::cold_path();
                    swap_globals(globals, coroutine_globals, coroutine);
                }
                let used = u64::from(cycles.wrapping_sub(left as u32));
                coroutine.used = coroutine.used.wrapping_add(used);
                used
            }};
        }

        let exit = loop {
            let word = code.fields();

            /// Runs a store-wide operation that may pause; the memory may move.
            macro_rules! bulk {
                (|$store:ident, $purse:ident| $run:expr, |$value:ident| $then:expr) => {{
                    let $store = Store {
                        instance,
                        memories: memories.as_mut_slice(),
                        tables: tables.as_mut_slice(),
                        globals: globals.as_slice(),
                        dropped: &dropped[usize::from(instance.id)],
                        limits: *limits,
                    };
                    // A copy: taking the address of `left` itself would keep it out of a register everywhere.
                    let mut $purse = Purse { left: i64::from(left), paid: *paid };
                    let result = $run;
                    (left, *paid) = ($purse.left as i32, $purse.paid);
                    memory = memory_of(memories, instance);
                    match result {
                        Ok($value) => $then,
                        Err(Pause::Unpaid(next)) => break Exit::OutOfCycles(next),
                        Err(Pause::Fault(code)) => break Exit::Fault(code),
                    }
                }};
            }
            /// A bulk instruction with three operands and no result.
            macro_rules! three {
                ($op:expr, $second:expr, $words:literal) => {{
                    let operands = [word.a(), word.b(), word.c()].map(|register| window.get(usize::from(register)) as u32);
                    let second = $second;
                    bulk!(|store, purse| bulk::run($op, operands, second, store, &mut purse), |_done| {
                        code.step($words);
                    });
                }};
            }
            macro_rules! unary {
                (|$a:ident| $value:expr) => {{
                    let $a = get!(word, b);
                    set!(word, $value);
                    code.step(1);
                }};
            }
            macro_rules! binary {
                (|$a:ident, $b:ident| $value:expr) => {{
                    let ($a, $b) = (get!(word, b), get!(word, c));
                    set!(word, $value);
                    code.step(1);
                }};
            }
            macro_rules! constant {
                (|$a:ident, $b:ident| $value:expr) => {{
                    let ($a, $b) = (get!(word, b), code.get(1));
                    set!(word, $value);
                    code.step(2);
                }};
            }
            macro_rules! faulting {
                (|$a:ident, $b:ident| $value:expr) => {{
                    let ($a, $b) = (get!(word, b), get!(word, c));
                    match $value {
                        Ok(value) => set!(word, value),
                        Err(code) => break Exit::Fault(code),
                    }
                    code.step(1);
                }};
            }
            macro_rules! convert {
                ($value:expr) => {{
                    match $value {
                        Ok(value) => set!(word, value as u64),
                        Err(code) => break Exit::Fault(code),
                    }
                    code.step(1);
                }};
            }
            macro_rules! branch {
                ($taken:expr) => {
                    if $taken {
                        go!(word);
                    } else {
                        charge!(word.fallen());
                        code.step(3);
                    }
                };
            }
            macro_rules! branch_two {
                (|$a:ident, $b:ident| $taken:expr) => {{
                    let ($a, $b) = (get!(word, a), get!(word, b));
                    branch!($taken)
                }};
            }
            macro_rules! branch_constant {
                (|$a:ident, $b:ident| $taken:expr) => {{
                    let ($a, $b) = (get!(word, a), word.c() as i16);
                    branch!($taken)
                }};
            }
            /// Steps a counter, tests it, and goes back to a loop header or on.
            macro_rules! looped {
                (|$a:ident, $b:ident| $taken:expr, $other:expr) => {{
                    let counter = (get!(word, a) as u32).wrapping_add(i32::from(word.c() as i16) as u32);
                    set!(word, u64::from(counter));
                    let ($a, $b) = (counter, $other);
                    branch!($taken);
                }};
            }
            macro_rules! loop_two {
                (|$a:ident, $b:ident| $taken:expr) => {
                    looped!(|$a, $b| $taken, get!(word, b) as u32)
                };
            }
            macro_rules! loop_constant {
                (|$a:ident, $b:ident| $taken:expr) => {
                    looped!(|$a, $b| $taken, i32::from(word.b() as i16))
                };
            }
            /// An address: base and constant, modulo 2^32; then the offset.
            macro_rules! plus {
                () => {{ u64::from((get!(word, b) as u32).wrapping_add(word.low())) + u64::from(word.high()) }};
            }
            macro_rules! load_at {
                ($address:expr, $size:literal, |$bytes:ident| $value:expr) => {{
                    let Some($bytes) = memory.load::<$size>($address) else { break Exit::Fault(FaultCode::MemoryOutOfBounds) };
                    set!(word, $value);
                    code.step(2);
                }};
            }
            macro_rules! store_at {
                ($address:expr, $bytes:expr, $words:literal) => {{
                    if !memory.store($address, $bytes) {
                        break Exit::Fault(FaultCode::MemoryOutOfBounds);
                    }
                    code.step($words);
                }};
            }
            macro_rules! store_constant {
                ($as:ty) => {
                    store_at!(u64::from(get!(word, b) as u32) + u64::from(word.c()), (i64::from(word.a() as i16) as $as).to_le_bytes(), 1)
                };
            }
            macro_rules! load {
                ($offset:expr, $size:literal, |$bytes:ident| $value:expr, $words:literal) => {{
                    let address = u64::from(get!(word, b) as u32) + $offset;
                    let Some($bytes) = memory.load::<$size>(address) else { break Exit::Fault(FaultCode::MemoryOutOfBounds) };
                    set!(word, $value);
                    code.step($words);
                }};
            }
            /// A load from an address that is part of the code.
            macro_rules! constant_load {
                ($size:literal, |$bytes:ident| $value:expr) => {
                    load_at!(u64::from(word.bc()) + code.get(1), $size, |$bytes| $value)
                };
            }
            macro_rules! near {
                ($size:literal, |$bytes:ident| $value:expr) => {
                    load!(u64::from(word.c()), $size, |$bytes| $value, 1)
                };
            }
            macro_rules! far {
                ($size:literal, |$bytes:ident| $value:expr) => {
                    load!(code.get(1), $size, |$bytes| $value, 2)
                };
            }
            macro_rules! store {
                ($offset:expr, $as:ty, $words:literal) => {{
                    let address = u64::from(get!(word, b) as u32) + $offset;
                    if !memory.store(address, (get!(word, a) as $as).to_le_bytes()) {
                        break Exit::Fault(FaultCode::MemoryOutOfBounds);
                    }
                    code.step($words);
                }};
            }
            /// Enters the function whose `enter` is at `at`, in the window already moved to.
            macro_rules! enter {
                () => {{
                    let enter = Word(code.get(0));
                    arrive!(enter.a(), Exit::OutOfCycles(u64::from(enter.a())));
                    let registers = usize::from(enter.b());
                    if window.room() < registers {
                        if !window.grow(registers, limits, stack_bytes_held) {
                            break Exit::Fault(FaultCode::StackExhausted);
                        }
                    }
                    let locals = usize::from(enter.c());
                    if locals != 0 {
                        window.clear(usize::from(code.get(1) as u16), locals);
                    }
                    code.step(2);
                }};
            }
            /// Goes to another instance's code.
            macro_rules! switch {
                ($to:expr, $at:expr) => {{
                    *place_instance = $to;
                    instance = &instances[usize::from($to)];
                    words = instance.module.code().words();
                    code = Cursor::new(words, $at);
                    memory = memory_of(memories, instance);
                }};
            }
            /// Returns to the caller, or finishes. The results are in place.
            macro_rules! leave {
                ($link:ident, $results:expr) => {{
                    if $link.tag() != 0 {
                        cold();
                        if $link.tag() == Link::BOTTOM {
                            break Exit::Finished($results);
                        }
                        switch!($link.tag() - 1, 0);
                    }
                    window.retreat(usize::from($link.distance()));
                    code.jump($link.word() as usize);
                    let cycles = code.fields().bc();
                    arrive!(cycles, Exit::OutOfCycles(u64::from(cycles)));
                    code.step(1);
                }};
            }
            /// Replaces this frame by a call of what is at `first..first + count`.
            macro_rules! replace {
                ($first:expr, $count:expr, $link:expr) => {{
                    window.copy(0, $first, $count);
                    window.set($count, $link);
                }};
            }
            /// Calls a host function that is not offered to be answered with a result.
            macro_rules! call_host {
                ($host:expr) => {{
                    let host = $host;
                    arrive!(host.cost, Exit::OutOfCycles(u64::from(host.cost)));
                    if TURNS && u32::from(host.call.number) == gives_way {
                        debug_assert!(host.call.results == 0);
                        code.step(2);
                        break Exit::PASS;
                    }
                    if OFFERS && host.is_last && direct.last(host.call.number, window.get(usize::from(word.a()))) {
                        code.step(2);
                        break Exit::WAIT;
                    }
                    *state = host.called(word.a());
                    break Exit::HOST;
                }};
            }
            /// Calls a function found at run time.
            macro_rules! call_entry {
                ($entry:expr, $tail_link:expr) => {{
                    let entry: FunctionEntry = $entry;
                    if entry.instance == FunctionEntry::HOST {
                        call_host!(&hosts[entry.entry as usize]);
                    }
                    call_guest!(entry, $tail_link);
                }};
            }
            /// Calls a guest's function.
            macro_rules! call_guest {
                ($entry:expr, $tail_link:expr) => {{
                    let entry: FunctionEntry = $entry;
                    let (first, count) = (usize::from(word.a()), usize::from(word.b()));
                    let other = entry.instance != u32::from(instance.id);
                    match $tail_link {
                        None => {
                            let tag = if other { instance.id + 1 } else { 0 };
                            window.set(first + count, Link::new(code.position() as u32 + 2, first as u16, tag).0);
                            window.advance(first);
                        }
                        Some(register) => {
                            let register: u16 = register;
                            let mut link = Link(window.get(usize::from(register)));
                            if other && link.tag() == 0 {
                                link = Link::new(link.word(), link.distance(), instance.id + 1);
                            }
                            replace!(first, count, link.0);
                        }
                    }
                    if other {
                        switch!(entry.instance as u16, 0);
                    }
                    code.jump(entry.entry as usize);
                    enter!();
                }};
            }
            macro_rules! indirect {
                ($second:ident) => {{
                    let table = instance.tables[usize::from(($second >> 32) as u16)];
                    let index = get!(word, c) as u32;
                    let Some(&reference) = tables[table as usize].elements.get(index as usize) else {
                        break Exit::Fault(FaultCode::UndefinedElement);
                    };
                    if reference == 0 {
                        break Exit::Fault(FaultCode::UninitializedElement);
                    }
                    let Some(&entry) = functions.get(reference as usize - 1) else { break Exit::Fault(FaultCode::UndefinedElement) };
                    if entry.type_id != instance.types[$second as u32 as usize] {
                        break Exit::Fault(FaultCode::IndirectCallTypeMismatch);
                    }
                    entry
                }};
            }

            /// Offers the call to the host, with its first two arguments.
            macro_rules! offer {
                ($host:expr) => {{
                    let host = $host;
                    let first = usize::from(word.a());
                    arrive!(host.cost, Exit::OutOfCycles(u64::from(host.cost)));
                    let answer = direct.call(host.call.number, window.get(first), window.get(first + 1), memory.length());
                    if !answer.is_plainly_done() {
                        if let Some(number) = answer.plain_number() {
                            put_number(&mut memory, window.get(first + 1), number);
                        } else if answer.waits() {
                            *state = host.called(word.a());
                            break Exit::WAIT;
                        } else if !answer.is_done() {
                            *state = host.called(word.a());
                            break match answer.table() {
                                Some(table) if TURNS => Exit::Start(table),
                                _ => Exit::HOST,
                            };
                        } else {
                            sooner!(answer.cycles());
                            let result = match answer.written() {
                                Some(number) => {
                                    put_number(&mut memory, window.get(first + 1), number);
                                    0
                                }
                                None => answer.value(),
                            };
                            window.set(first, if host.call.narrow != 0 { u64::from(result as u32) } else { result });
                            // To the safepoint that follows.
                            code.step(2);
                            continue;
                        }
                    }
                    window.set(first, 0);
                    // Over the safepoint that follows, here as after a return, and over a branch behind it that asks about the answer.
                    arrive!(word.high(), {
                        code.step(2);
                        debug_assert!(matches!(code.fields().op(), Op::Safepoint));
                        Exit::OutOfCycles(u64::from(code.fields().bc()))
                    });
                    code.go(i32::from(word.c()));
                }};
            }
            match word.op() {
                Op::Unreachable => break Exit::Fault(FaultCode::Unreachable),
                Op::Charge => {
                    charge!(word.bc());
                    code.step(1);
                }
                Op::Safepoint => {
                    arrive!(word.bc(), Exit::OutOfCycles(u64::from(word.bc())));
                    code.step(1);
                }
                Op::Enter => enter!(),
                Op::Jump => {
                    charge!(word.taken());
                    code.go(word.distance());
                }
                Op::JumpLoop => {
                    arrive!(word.taken(), {
                        // The loop header is the word before the target.
                        code.go(word.distance() - 1);
                        Exit::OutOfCycles(u64::from(code.fields().bc()))
                    });
                    code.go(word.distance());
                }
                Op::BranchTable => {
                    let index = (get!(word, a) as u32).min(word.bc());
                    let entry = TableEntry(code.get(1 + index as usize));
                    if METERED {
                        let cycles = i32::from(entry.cycles());
                        let low = left <= cycles;
                        left -= cycles;
                        if low {
                            let before = undo(left, cycles);
                            if before <= 0 && entry.is_loop() {
                                left = before;
                                code.go(entry.distance() - 1);
                                break Exit::OutOfCycles(u64::from(entry.cycles()));
                            }
                        }
                    }
                    code.go(entry.distance());
                }
                Op::Return => {
                    let link = Link(get!(word, a));
                    leave!(link, 0);
                }
                Op::ReturnOne => {
                    let link = Link(get!(word, a));
                    let value = get!(word, b);
                    window.set(0, value);
                    leave!(link, 1);
                }
                Op::ReturnMany => {
                    let link = Link(get!(word, a));
                    window.copy(0, usize::from(word.b()), usize::from(word.c()));
                    leave!(link, word.c());
                }
                Op::Call => {
                    let (first, count) = (usize::from(word.a()), usize::from(word.b()));
                    window.set(first + count, Link::new(code.position() as u32 + 2, word.a(), 0).0);
                    code.jump(word.low() as usize);
                    window.advance(first);
                    enter!();
                }
                Op::ReturnCall => {
                    let link = get!(word, c);
                    replace!(usize::from(word.a()), usize::from(word.b()), link);
                    code.jump(word.low() as usize);
                    enter!();
                }
                Op::CallImport => {
                    let host = match import(instance, u64::from(word.low())) {
                        Import::Direct(host) if OFFERS => host,
                        Import::Host(host) | Import::Direct(host) => call_host!(host),
                        &Import::Guest(entry) => {
                            core::hint::cold_path();
                            call_guest!(entry, None);
                            continue;
                        }
                    };
                    offer!(host);
                }
                Op::ReturnCallImport => {
                    let function = instance.functions[code.get(1) as usize];
                    call_entry!(functions[function as usize], Some(word.c()));
                }
                Op::CallIndirect => {
                    let second = code.get(1);
                    call_entry!(indirect!(second), None);
                }
                Op::ReturnCallIndirect => {
                    let second = code.get(1);
                    call_entry!(indirect!(second), Some((second >> 48) as u16));
                }
                Op::BranchIf => {
                    let condition = get!(word, a);
                    branch!(condition != 0);
                }
                Op::BranchIfNot => {
                    let condition = get!(word, a);
                    branch!(condition == 0);
                }
                Op::BranchI32Eq => branch_two!(|a, b| a as u32 == b as u32),
                Op::BranchI32Ne => branch_two!(|a, b| a as u32 != b as u32),
                Op::BranchI32LtS => branch_two!(|a, b| (a as i32) < b as i32),
                Op::BranchI32LtU => branch_two!(|a, b| (a as u32) < b as u32),
                Op::BranchI32LeS => branch_two!(|a, b| a as i32 <= b as i32),
                Op::BranchI32LeU => branch_two!(|a, b| a as u32 <= b as u32),
                Op::BranchI64Eq => branch_two!(|a, b| a == b),
                Op::BranchI64Ne => branch_two!(|a, b| a != b),
                Op::BranchI64LtS => branch_two!(|a, b| (a as i64) < b as i64),
                Op::BranchI64LtU => branch_two!(|a, b| a < b),
                Op::BranchI64LeS => branch_two!(|a, b| a as i64 <= b as i64),
                Op::BranchI64LeU => branch_two!(|a, b| a <= b),
                Op::BranchI32EqConst => branch_constant!(|a, b| a as i32 == i32::from(b)),
                Op::BranchI32NeConst => branch_constant!(|a, b| a as i32 != i32::from(b)),
                Op::BranchI32LtSConst => branch_constant!(|a, b| (a as i32) < i32::from(b)),
                Op::BranchI32LtUConst => branch_constant!(|a, b| (a as u32) < i32::from(b) as u32),
                Op::BranchI32GtSConst => branch_constant!(|a, b| a as i32 > i32::from(b)),
                Op::BranchI32GtUConst => branch_constant!(|a, b| a as u32 > i32::from(b) as u32),
                Op::BranchI64EqConst => branch_constant!(|a, b| a as i64 == i64::from(b)),
                Op::BranchI64NeConst => branch_constant!(|a, b| a as i64 != i64::from(b)),
                Op::BranchI64LtSConst => branch_constant!(|a, b| (a as i64) < i64::from(b)),
                Op::BranchI64LtUConst => branch_constant!(|a, b| a < i64::from(b) as u64),
                Op::BranchI64GtSConst => branch_constant!(|a, b| a as i64 > i64::from(b)),
                Op::BranchI64GtUConst => branch_constant!(|a, b| a > i64::from(b) as u64),
                Op::Copy => unary!(|a| a),
                Op::LoopI32NeZero => looped!(|a, _b| a != 0, ()),
                Op::LoopI32Ne => loop_two!(|a, b| a != b),
                Op::LoopI32LtS => loop_two!(|a, b| (a as i32) < b as i32),
                Op::LoopI32LtU => loop_two!(|a, b| a < b),
                Op::LoopI32LeS => loop_two!(|a, b| a as i32 <= b as i32),
                Op::LoopI32LeU => loop_two!(|a, b| a <= b),
                Op::LoopI32GtS => loop_two!(|a, b| a as i32 > b as i32),
                Op::LoopI32GtU => loop_two!(|a, b| a > b),
                Op::LoopI32GeS => loop_two!(|a, b| a as i32 >= b as i32),
                Op::LoopI32GeU => loop_two!(|a, b| a >= b),
                Op::LoopI32NeConst => loop_constant!(|a, b| a != b as u32),
                Op::LoopI32LtSConst => loop_constant!(|a, b| (a as i32) < b),
                Op::LoopI32LtUConst => loop_constant!(|a, b| a < b as u32),
                Op::LoopI32GtSConst => loop_constant!(|a, b| a as i32 > b),
                Op::LoopI32GtUConst => loop_constant!(|a, b| a > b as u32),
                Op::CopyTwo => {
                    set!(word, get!(word, b));
                    let value = get!(word, d);
                    window.set(usize::from(word.c()), value);
                    code.step(2);
                }
                Op::CopyRange => {
                    window.copy(usize::from(word.a()), usize::from(word.b()), usize::from(word.c()));
                    code.step(1);
                }
                Op::Const32 => {
                    set!(word, u64::from(word.bc()));
                    code.step(1);
                }
                Op::ConstCopy => {
                    set!(word, u64::from(word.bc()));
                    let value = get!(word, e);
                    window.set(usize::from(word.d()), value);
                    code.step(2);
                }
                Op::ConstLoad32 => constant_load!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
                Op::ConstLoad64 => constant_load!(8, |bytes| u64::from_le_bytes(bytes)),
                Op::Const64 => {
                    set!(word, code.get(1));
                    code.step(2);
                }
                Op::Select => {
                    let condition = get!(word, d);
                    let (then, otherwise) = (get!(word, b), get!(word, c));
                    set!(word, if condition != 0 { then } else { otherwise });
                    code.step(2);
                }
                Op::GlobalGet => {
                    set!(word, globals[(instance.first_global + word.bc()) as usize]);
                    code.step(1);
                }
                Op::GlobalSet => {
                    globals[(instance.first_global + word.bc()) as usize] = get!(word, a);
                    code.step(1);
                }
                Op::GlobalGetImport => {
                    set!(word, globals[instance.globals[word.bc() as usize] as usize]);
                    code.step(1);
                }
                Op::GlobalSetImport => {
                    globals[instance.globals[word.bc() as usize] as usize] = get!(word, a);
                    code.step(1);
                }
                Op::RefFunc => {
                    set!(word, u64::from(instance.functions[word.bc() as usize]) + 1);
                    code.step(1);
                }
                Op::TableGet => {
                    let table = &tables[instance.tables[usize::from(word.c())] as usize];
                    let Some(&value) = table.elements.get(get!(word, b) as u32 as usize) else {
                        break Exit::Fault(FaultCode::TableOutOfBounds);
                    };
                    set!(word, value);
                    code.step(1);
                }
                Op::TableSet => {
                    let table = &mut tables[instance.tables[usize::from(word.c())] as usize];
                    let Some(element) = table.elements.get_mut(get!(word, a) as u32 as usize) else {
                        break Exit::Fault(FaultCode::TableOutOfBounds);
                    };
                    *element = get!(word, b);
                    code.step(1);
                }
                Op::TableSize => {
                    let table = &tables[instance.tables[word.bc() as usize] as usize];
                    set!(word, table.elements.len() as u64);
                    code.step(1);
                }
                Op::TableGrow => {
                    let (value, count) = (get!(word, b), get!(word, c) as u32);
                    let table = code.get(1) as usize;
                    bulk!(|store, purse| { { store }.table_grow(table, value, count, &mut purse) }, |old| {
                        set!(word, u64::from(old));
                        code.step(2);
                    });
                }
                Op::TableFill => {
                    let [to, value, count] = [word.a(), word.b(), word.c()].map(|register| window.get(usize::from(register)));
                    let table = code.get(1) as usize;
                    bulk!(|store, purse| { { store }.table_fill(table, to as u32, value, count as u32, &mut purse) }, |_done| {
                        code.step(2);
                    });
                }
                Op::MemorySize => {
                    let pages = memories_pages(&memory);
                    set!(word, pages);
                    code.step(1);
                }
                Op::MemoryGrow => {
                    let pages = get!(word, b) as u32;
                    bulk!(|store, purse| { { store }.memory_grow(pages, &mut purse) }, |old| {
                        set!(word, u64::from(old));
                        code.step(1);
                    });
                }
                // One arm each: a shared arm would need the number kept, at every dispatch.
                Op::MemoryFill => three!(Op::MemoryFill, 0, 1),
                Op::MemoryCopy => three!(Op::MemoryCopy, 0, 1),
                Op::MemoryInit => three!(Op::MemoryInit, code.get(1), 2),
                Op::TableInit => three!(Op::TableInit, code.get(1), 2),
                Op::TableCopy => three!(Op::TableCopy, code.get(1), 2),
                Op::ElementDrop => {
                    dropped[usize::from(instance.id)].elements[word.bc() as usize] = true;
                    code.step(1);
                }
                Op::DataDrop => {
                    dropped[usize::from(instance.id)].data[word.bc() as usize] = true;
                    code.step(1);
                }
                Op::Load32 => near!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
                Op::Load64 => near!(8, |bytes| u64::from_le_bytes(bytes)),
                Op::I32Load8S => near!(1, |bytes| u64::from(i32::from(bytes[0] as i8) as u32)),
                Op::Load8U => near!(1, |bytes| u64::from(bytes[0])),
                Op::I32Load16S => near!(2, |bytes| u64::from(i32::from(i16::from_le_bytes(bytes)) as u32)),
                Op::Load16U => near!(2, |bytes| u64::from(u16::from_le_bytes(bytes))),
                Op::I64Load8S => near!(1, |bytes| i64::from(bytes[0] as i8) as u64),
                Op::I64Load16S => near!(2, |bytes| i64::from(i16::from_le_bytes(bytes)) as u64),
                Op::I64Load32S => near!(4, |bytes| i64::from(i32::from_le_bytes(bytes)) as u64),
                Op::Store8 => store!(u64::from(word.c()), u8, 1),
                Op::Store16 => store!(u64::from(word.c()), u16, 1),
                Op::Store32 => store!(u64::from(word.c()), u32, 1),
                Op::Store64 => store!(u64::from(word.c()), u64, 1),
                Op::Load32Far => far!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
                Op::Load64Far => far!(8, |bytes| u64::from_le_bytes(bytes)),
                Op::I32Load8SFar => far!(1, |bytes| u64::from(i32::from(bytes[0] as i8) as u32)),
                Op::Load8UFar => far!(1, |bytes| u64::from(bytes[0])),
                Op::I32Load16SFar => far!(2, |bytes| u64::from(i32::from(i16::from_le_bytes(bytes)) as u32)),
                Op::Load16UFar => far!(2, |bytes| u64::from(u16::from_le_bytes(bytes))),
                Op::I64Load8SFar => far!(1, |bytes| i64::from(bytes[0] as i8) as u64),
                Op::I64Load16SFar => far!(2, |bytes| i64::from(i16::from_le_bytes(bytes)) as u64),
                Op::I64Load32SFar => far!(4, |bytes| i64::from(i32::from_le_bytes(bytes)) as u64),
                Op::Store8Far => store!(code.get(1), u8, 2),
                Op::Store16Far => store!(code.get(1), u16, 2),
                Op::Store32Far => store!(code.get(1), u32, 2),
                Op::Store64Far => store!(code.get(1), u64, 2),
                Op::Load32Plus => load_at!(plus!(), 4, |bytes| u64::from(u32::from_le_bytes(bytes))),
                Op::Load64Plus => load_at!(plus!(), 8, |bytes| u64::from_le_bytes(bytes)),
                Op::Load8UPlus => load_at!(plus!(), 1, |bytes| u64::from(bytes[0])),
                Op::Load16UPlus => load_at!(plus!(), 2, |bytes| u64::from(u16::from_le_bytes(bytes))),
                Op::Store8Const => store_constant!(u8),
                Op::Store16Const => store_constant!(u16),
                Op::Store32Const => store_constant!(u32),
                Op::Store64Const => store_constant!(u64),
                Op::I32Eq => binary!(|a, b| u64::from(a as u32 == b as u32)),
                Op::I32Ne => binary!(|a, b| u64::from(a as u32 != b as u32)),
                Op::I32LtS => binary!(|a, b| u64::from((a as i32) < b as i32)),
                Op::I32LtU => binary!(|a, b| u64::from((a as u32) < b as u32)),
                Op::I32LeS => binary!(|a, b| u64::from(a as i32 <= b as i32)),
                Op::I32LeU => binary!(|a, b| u64::from(a as u32 <= b as u32)),
                Op::I64Eq => binary!(|a, b| u64::from(a == b)),
                Op::I64Ne => binary!(|a, b| u64::from(a != b)),
                Op::I64LtS => binary!(|a, b| u64::from((a as i64) < b as i64)),
                Op::I64LtU => binary!(|a, b| u64::from(a < b)),
                Op::I64LeS => binary!(|a, b| u64::from(a as i64 <= b as i64)),
                Op::I64LeU => binary!(|a, b| u64::from(a <= b)),
                Op::I32EqConst => constant!(|a, b| u64::from(a as u32 == b as u32)),
                Op::I32NeConst => constant!(|a, b| u64::from(a as u32 != b as u32)),
                Op::I32LtSConst => constant!(|a, b| u64::from((a as i32) < b as i32)),
                Op::I32LtUConst => constant!(|a, b| u64::from((a as u32) < b as u32)),
                Op::I32GtSConst => constant!(|a, b| u64::from(a as i32 > b as i32)),
                Op::I32GtUConst => constant!(|a, b| u64::from(a as u32 > b as u32)),
                Op::I64EqConst => constant!(|a, b| u64::from(a == b)),
                Op::I64NeConst => constant!(|a, b| u64::from(a != b)),
                Op::I64LtSConst => constant!(|a, b| u64::from((a as i64) < b as i64)),
                Op::I64LtUConst => constant!(|a, b| u64::from(a < b)),
                Op::I64GtSConst => constant!(|a, b| u64::from(a as i64 > b as i64)),
                Op::I64GtUConst => constant!(|a, b| u64::from(a > b)),
                Op::F32Eq => binary!(|a, b| u64::from(single::eq(a, b))),
                Op::F32Ne => binary!(|a, b| u64::from(!single::eq(a, b))),
                Op::F32Lt => binary!(|a, b| u64::from(single::lt(a, b))),
                Op::F32Le => binary!(|a, b| u64::from(single::le(a, b))),
                Op::F64Eq => binary!(|a, b| u64::from(double::eq(a, b))),
                Op::F64Ne => binary!(|a, b| u64::from(!double::eq(a, b))),
                Op::F64Lt => binary!(|a, b| u64::from(double::lt(a, b))),
                Op::F64Le => binary!(|a, b| u64::from(double::le(a, b))),
                Op::I32Add => binary!(|a, b| u64::from((a as u32).wrapping_add(b as u32))),
                Op::I32Sub => binary!(|a, b| u64::from((a as u32).wrapping_sub(b as u32))),
                Op::I32Mul => binary!(|a, b| u64::from((a as u32).wrapping_mul(b as u32))),
                Op::I32And => binary!(|a, b| a & b),
                Op::I32Or => binary!(|a, b| a | b),
                Op::I32Xor => binary!(|a, b| a ^ b),
                Op::I32Shl => binary!(|a, b| u64::from((a as u32).wrapping_shl(b as u32))),
                Op::I32ShrS => binary!(|a, b| u64::from((a as i32).wrapping_shr(b as u32) as u32)),
                Op::I32ShrU => binary!(|a, b| u64::from((a as u32).wrapping_shr(b as u32))),
                Op::I32Rotl => binary!(|a, b| u64::from((a as u32).rotate_left(b as u32 & 31))),
                Op::I32Rotr => binary!(|a, b| u64::from((a as u32).rotate_right(b as u32 & 31))),
                Op::I32DivS => faulting!(|a, b| number::div_i32(a as i32, b as i32).map(|value| u64::from(value as u32))),
                Op::I32DivU => faulting!(|a, b| number::div_u32(a as u32, b as u32).map(u64::from)),
                Op::I32RemS => faulting!(|a, b| number::rem_i32(a as i32, b as i32).map(|value| u64::from(value as u32))),
                Op::I32RemU => faulting!(|a, b| number::rem_u32(a as u32, b as u32).map(u64::from)),
                Op::I64Add => binary!(|a, b| a.wrapping_add(b)),
                Op::I64Sub => binary!(|a, b| a.wrapping_sub(b)),
                Op::I64Mul => binary!(|a, b| a.wrapping_mul(b)),
                Op::I64And => binary!(|a, b| a & b),
                Op::I64Or => binary!(|a, b| a | b),
                Op::I64Xor => binary!(|a, b| a ^ b),
                Op::I64Shl => binary!(|a, b| a.wrapping_shl(b as u32)),
                Op::I64ShrS => binary!(|a, b| (a as i64).wrapping_shr(b as u32) as u64),
                Op::I64ShrU => binary!(|a, b| a.wrapping_shr(b as u32)),
                Op::I64Rotl => binary!(|a, b| a.rotate_left(b as u32 & 63)),
                Op::I64Rotr => binary!(|a, b| a.rotate_right(b as u32 & 63)),
                Op::I64DivS => faulting!(|a, b| number::div_i64(a as i64, b as i64).map(|value| value as u64)),
                Op::I64DivU => faulting!(|a, b| number::div_u64(a, b)),
                Op::I64RemS => faulting!(|a, b| number::rem_i64(a as i64, b as i64).map(|value| value as u64)),
                Op::I64RemU => faulting!(|a, b| number::rem_u64(a, b)),
                Op::I32AddConst => constant!(|a, b| u64::from((a as u32).wrapping_add(b as u32))),
                Op::I32MulConst => constant!(|a, b| u64::from((a as u32).wrapping_mul(b as u32))),
                Op::I32AndConst => constant!(|a, b| a & b),
                Op::I32OrConst => constant!(|a, b| a | b),
                Op::I32XorConst => constant!(|a, b| a ^ b),
                Op::I32ShlConst => constant!(|a, b| u64::from((a as u32).wrapping_shl(b as u32))),
                Op::I32ShrSConst => constant!(|a, b| u64::from((a as i32).wrapping_shr(b as u32) as u32)),
                Op::I32ShrUConst => constant!(|a, b| u64::from((a as u32).wrapping_shr(b as u32))),
                Op::I32RotlConst => constant!(|a, b| u64::from((a as u32).rotate_left(b as u32 & 31))),
                Op::I32DivUConst => constant!(|a, b| u64::from((a as u32).checked_div(b as u32).unwrap_or(0))),
                Op::I32RemUConst => constant!(|a, b| u64::from((a as u32).checked_rem(b as u32).unwrap_or(0))),
                Op::I64AddConst => constant!(|a, b| a.wrapping_add(b)),
                Op::I64MulConst => constant!(|a, b| a.wrapping_mul(b)),
                Op::I64AndConst => constant!(|a, b| a & b),
                Op::I64OrConst => constant!(|a, b| a | b),
                Op::I64XorConst => constant!(|a, b| a ^ b),
                Op::I64ShlConst => constant!(|a, b| a.wrapping_shl(b as u32)),
                Op::I64ShrSConst => constant!(|a, b| (a as i64).wrapping_shr(b as u32) as u64),
                Op::I64ShrUConst => constant!(|a, b| a.wrapping_shr(b as u32)),
                Op::I64RotlConst => constant!(|a, b| a.rotate_left(b as u32 & 63)),
                Op::I64DivUConst => constant!(|a, b| a.checked_div(b).unwrap_or(0)),
                Op::I64RemUConst => constant!(|a, b| a.checked_rem(b).unwrap_or(0)),
                Op::I32MulAddConst => constant!(|a, b| u64::from((a as u32).wrapping_mul(b as u32).wrapping_add((b >> 32) as u32))),
                Op::F32MulAdd => {
                    let other = get!(word, d);
                    set!(word, single::add(other, single::mul(get!(word, b), get!(word, c))));
                    code.step(2);
                }
                Op::F64MulAdd => {
                    let other = get!(word, d);
                    set!(word, double::add(other, double::mul(get!(word, b), get!(word, c))));
                    code.step(2);
                }
                Op::I32AddAdd => {
                    let sum = (get!(word, b) as u32).wrapping_add(get!(word, c) as u32);
                    set!(word, u64::from(sum.wrapping_add(get!(word, d) as u32)));
                    code.step(2);
                }
                Op::I32XorRotl => {
                    let rotated = (get!(word, c) as u32).rotate_left(word.low() & 31);
                    set!(word, u64::from(rotated ^ get!(word, b) as u32));
                    code.step(2);
                }
                Op::I32XorShrU => {
                    let shifted = (get!(word, c) as u32).wrapping_shr(word.low());
                    set!(word, u64::from(shifted ^ get!(word, b) as u32));
                    code.step(2);
                }
                Op::I32Clz => unary!(|a| u64::from((a as u32).leading_zeros())),
                Op::I32Ctz => unary!(|a| u64::from((a as u32).trailing_zeros())),
                Op::I32Popcnt => unary!(|a| u64::from((a as u32).count_ones())),
                Op::I32Extend8S => unary!(|a| u64::from(i32::from(a as i8) as u32)),
                Op::I32Extend16S => unary!(|a| u64::from(i32::from(a as i16) as u32)),
                Op::I64Clz => unary!(|a| u64::from(a.leading_zeros())),
                Op::I64Ctz => unary!(|a| u64::from(a.trailing_zeros())),
                Op::I64Popcnt => unary!(|a| u64::from(a.count_ones())),
                Op::I64Extend8S => unary!(|a| i64::from(a as i8) as u64),
                Op::I64Extend16S => unary!(|a| i64::from(a as i16) as u64),
                Op::I64Extend32S => unary!(|a| i64::from(a as i32) as u64),
                Op::I32WrapI64 => unary!(|a| u64::from(a as u32)),
                Op::F32Add => binary!(|a, b| single::add(a, b)),
                Op::F32Sub => binary!(|a, b| single::sub(a, b)),
                Op::F32Mul => binary!(|a, b| single::mul(a, b)),
                Op::F32Div => binary!(|a, b| single::div(a, b)),
                Op::F32Min => binary!(|a, b| single::min(a, b)),
                Op::F32Max => binary!(|a, b| single::max(a, b)),
                Op::F32Copysign => binary!(|a, b| single::copysign(a, b)),
                Op::F64Add => binary!(|a, b| double::add(a, b)),
                Op::F64Sub => binary!(|a, b| double::sub(a, b)),
                Op::F64Mul => binary!(|a, b| double::mul(a, b)),
                Op::F64Div => binary!(|a, b| double::div(a, b)),
                Op::F64Min => binary!(|a, b| double::min(a, b)),
                Op::F64Max => binary!(|a, b| double::max(a, b)),
                Op::F64Copysign => binary!(|a, b| double::copysign(a, b)),
                Op::F32Abs => unary!(|a| single::abs(a)),
                Op::F32Neg => unary!(|a| single::neg(a)),
                Op::F32Ceil => unary!(|a| single::ceil(a)),
                Op::F32Floor => unary!(|a| single::floor(a)),
                Op::F32Trunc => unary!(|a| single::trunc(a)),
                Op::F32Nearest => unary!(|a| single::nearest(a)),
                Op::F32Sqrt => unary!(|a| single::sqrt(a)),
                Op::F64Abs => unary!(|a| double::abs(a)),
                Op::F64Neg => unary!(|a| double::neg(a)),
                Op::F64Ceil => unary!(|a| double::ceil(a)),
                Op::F64Floor => unary!(|a| double::floor(a)),
                Op::F64Trunc => unary!(|a| double::trunc(a)),
                Op::F64Nearest => unary!(|a| double::nearest(a)),
                Op::F64Sqrt => unary!(|a| double::sqrt(a)),
                Op::I32TruncF32S => convert!(number::i32_from_f32(get!(word, b)).map(|value| value as u32)),
                Op::I32TruncF32U => convert!(number::u32_from_f32(get!(word, b))),
                Op::I32TruncF64S => convert!(number::i32_from_f64(get!(word, b)).map(|value| value as u32)),
                Op::I32TruncF64U => convert!(number::u32_from_f64(get!(word, b))),
                Op::I64TruncF32S => convert!(number::i64_from_f32(get!(word, b))),
                Op::I64TruncF32U => convert!(number::u64_from_f32(get!(word, b))),
                Op::I64TruncF64S => convert!(number::i64_from_f64(get!(word, b))),
                Op::I64TruncF64U => convert!(number::u64_from_f64(get!(word, b))),
                Op::I32TruncSatF32S => unary!(|a| u64::from(f32::from_bits(a as u32) as i32 as u32)),
                Op::I32TruncSatF32U => unary!(|a| u64::from(f32::from_bits(a as u32) as u32)),
                Op::I32TruncSatF64S => unary!(|a| u64::from(f64::from_bits(a) as i32 as u32)),
                Op::I32TruncSatF64U => unary!(|a| u64::from(f64::from_bits(a) as u32)),
                Op::I64TruncSatF32S => unary!(|a| f32::from_bits(a as u32) as i64 as u64),
                Op::I64TruncSatF32U => unary!(|a| f32::from_bits(a as u32) as u64),
                Op::I64TruncSatF64S => unary!(|a| f64::from_bits(a) as i64 as u64),
                Op::I64TruncSatF64U => unary!(|a| f64::from_bits(a) as u64),
                Op::F32ConvertI32S => unary!(|a| u64::from((a as i32 as f32).to_bits())),
                Op::F32ConvertI32U => unary!(|a| u64::from((a as u32 as f32).to_bits())),
                Op::F32ConvertI64S => unary!(|a| u64::from((a as i64 as f32).to_bits())),
                Op::F32ConvertI64U => unary!(|a| u64::from((a as f32).to_bits())),
                Op::F64ConvertI32S => unary!(|a| f64::from(a as i32).to_bits()),
                Op::F64ConvertI32U => unary!(|a| f64::from(a as u32).to_bits()),
                Op::F64ConvertI64S => unary!(|a| (a as i64 as f64).to_bits()),
                Op::F64ConvertI64U => unary!(|a| (a as f64).to_bits()),
                Op::F32DemoteF64 => unary!(|a| number::demote(a)),
                Op::F64PromoteF32 => unary!(|a| number::promote(a)),
            }
        };

        if !TURNS {
            *place_word = code.position() as u32;
            return (exit, left as u64);
        }
        // Asked before anything else is done, so that the commonest ends come straight here.
        let next = if exit == Exit::PASS {
            let used = put_back!();
            direct.pass(Cycles(used))
        } else if exit == Exit::WAIT {
            let used = put_back!();
            direct.leave(Cycles(used))
        } else {
            let used = put_back!();
            let began = coroutine.used - used;
            match exit.ended() {
                Ended::Finished(results) => {
                    let value = if results > 0 { coroutine.stack[coroutine.window as usize] } else { 0 };
                    let next = direct.finish(Cycles(used), value);
                    if next == Turn::GOES_ON {
                        return (exit, began);
                    }
                    // Its place is vacant now: `Session::retire`, with what is known already.
                    let held = stack_bytes_held.get_mut();
                    *held = held.saturating_sub(coroutine.stack.far_bytes());
                    coroutines.vacate(turn.slot);
                    look &= !IS_LATE;
                    next
                }
                Ended::Start(table) => {
                    let find = |reference, direct: &H| {
                        let most = if coroutine_globals.is_empty() { limits.stack_bytes as usize / 8 } else { 0 };
                        Births { types, functions, instances, most }.simple(reference, direct)
                    };
                    let Some(table) = tables.get(table as usize) else { return (Exit::STANDING, began) };
                    if look >= IS_LATE {
                        core::hint::cold_path();
                        keep(coroutines, direct, true);
                        look &= !IS_LATE;
                    }
                    coroutine = match begin(coroutines, turn.slot, table, &mut birth, find, direct) {
                        Some(coroutine) => coroutine,
                        None => return (Exit::STANDING, began),
                    };
                    // The turn goes on with what it has left, and has not been charged yet.
                    coroutine.used = began;
                    continue;
                }
                _ => return (exit, began),
            }
        };
        if look != 0 {
            look -= 1;
            if look as i32 <= 0 {
                look_around(coroutines, direct, &mut look);
            }
        }
        *turn = next;
        (cycles, left) = (next.cycles, next.cycles as i32);
        // A comparison and an index: of an `Option` the compiler would also ask whether it is the one that is null.
        let (place, places) = (next.slot as usize, coroutines.places());
        if place < places.len() {
            coroutine = &mut places[place];
        } else {
            core::hint::cold_path();
            let Some(late) = take(coroutines, next.slot, direct, &mut look) else { return (Exit::ELSEWHERE, 0) };
            coroutine = late;
        }
        if coroutine.instance != instance.id {
            core::hint::cold_path();
            instance = &instances[usize::from(coroutine.instance)];
            memory = memory_of(memories, instance);
            words = instance.module.code().words();
        }
    }
}

/// Pages of the running memory.
fn memories_pages(memory: &Bytes<'_>) -> u64 {
    memory.length() / crate::memory::PAGE_BYTES as u64
}
