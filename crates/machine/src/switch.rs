//! Switching between coroutines: dispatch of the next one, spawning, resuming from a blocked call,
//! and prefetching those that will run soon.
//!
//! [`Switch`] is all that the interpreter knows of it. The interpreter runs one coroutine until it
//! stops; a `Switch` decides whether another is run in the same loop. [`Alone`] never does: one
//! coroutine, then back to the caller. [`Turns`] dispatches coroutines as a [`Host`] names them,
//! and is the same as a loop around [`crate::run_with`] and [`Coroutine::resume`] without leaving
//! and entering the interpreter at each yield.
//!
//! The host is an argument of every method instead of a field, because the interpreter calls it
//! while the running coroutine is borrowed from the `Switch`.

use core::marker::PhantomData;

use wavelock_abi::Cycles;
use wavelock_module::{Form, FunctionType};

use crate::coroutine::{Call, Coroutine, NEAR, State, Stop};
use crate::exit::{Ended, Exit};
use crate::host::{Answer, Coroutines, Host, Newborn, Turn};
use crate::run::execute;
use crate::session::{FunctionEntry, Instance, Session, SessionLimits, Table};

/// Decides what runs when a coroutine stops.
pub(crate) trait Switch {
    /// What answers host calls.
    type Host: Host + ?Sized;
    /// Whether host calls are offered to the host, to be answered in place.
    const OFFERS: bool;
    /// Whether another coroutine may be dispatched. Otherwise only [`Switch::dispatch`] is called,
    /// once, and the caller accounts for the cycles.
    const SWITCHES: bool;

    /// Number of the host function that yields; must have no results.
    fn yields(&self) -> u32;

    /// The running coroutine leaves after using this much: the turn that follows. `None` if that is
    /// left to the caller.
    fn next(&mut self, host: &mut Self::Host, leaving: Leaving, used: Cycles) -> Option<Turn>;

    /// The coroutine of a turn.
    ///
    /// # Errors
    /// [`Exit::DEFERRED`] if it is not to run in this loop.
    fn dispatch(&mut self, host: &mut Self::Host, turn: Turn) -> Result<&mut Coroutine, Exit>;

    /// Spawns the coroutine that the running one asks for in the call it blocks in, answers the
    /// call, and returns the running one. `None` if that is left to the caller; nothing has changed
    /// then.
    fn spawn(
        &mut self,
        host: &mut Self::Host,
        slot: u32,
        table: u32,
        code: &Spawnable<'_>,
    ) -> Option<&mut Coroutine>;

    /// Answers the call that a dispatched coroutine blocks in.
    fn resume(
        host: &mut Self::Host,
        slot: u32,
        coroutine: &mut Coroutine,
        memory_bytes: u64,
    ) -> Resumed;
}

/// How the running coroutine leaves.
pub(crate) enum Leaving {
    /// It yielded and stays ready.
    Yielded,
    /// It blocks in a call.
    Blocked,
    /// Its function returned, with this value or 0.
    Finished(u64),
}

/// What became of the call that a dispatched coroutine blocks in. Two words, so that it is returned
/// in registers.
#[derive(Clone, Copy)]
pub(crate) struct Resumed {
    /// Where in the memory to write `number`; or [`Resumed::READY`] or [`Resumed::REFUSED`].
    pub(crate) at: u64,
    pub(crate) number: u64,
}

impl Resumed {
    /// The coroutine is ready, and nothing is to be written.
    pub(crate) const READY: u64 = u64::MAX;
    /// The coroutine cannot run; the number is the [`Exit`].
    pub(crate) const REFUSED: u64 = u64::MAX - 1;

    const fn refused(exit: Exit) -> Self {
        Self { at: Self::REFUSED, number: exit.0 }
    }
}

/// The parts of a session that say which functions a coroutine can be spawned with.
pub(crate) struct Spawnable<'a> {
    pub(crate) types: &'a [FunctionType],
    pub(crate) functions: &'a [FunctionEntry],
    pub(crate) instances: &'a [Instance],
    pub(crate) tables: &'a [Table],
    pub(crate) limits: &'a SessionLimits,
    pub(crate) has_own_globals: bool,
}

impl Spawnable<'_> {
    /// The function of a reference, if a coroutine of it fits its record and the host spawns its
    /// type. None in a session with coroutine-local globals: they would have to be copied.
    #[inline(never)]
    fn function<H: Host + ?Sized>(&self, reference: u64, host: &H) -> Option<Entry> {
        let function = self.functions.get(usize::try_from(reference.checked_sub(1)?).ok()?)?;
        // A host function has no instance.
        let module = &self.instances.get(function.instance as usize)?.module;
        let index = (function.index - module.imported_functions()) as usize;
        let registers = module.code().functions()[index].registers;
        let kind = &self.types[function.type_id as usize];
        let &[parameter] = kind.parameters() else { return None };
        let most = if self.has_own_globals { 0 } else { self.limits.stack_bytes as usize / 8 };
        let is_simple = usize::from(registers) <= NEAR && most >= NEAR && host.begins(kind);
        is_simple.then_some(Entry {
            reference,
            word: function.entry,
            instance: function.instance as u16,
            is_narrow: parameter.is_narrow(),
        })
    }
}

/// A function that coroutines are spawned with. The last one is kept: the next is usually the same.
struct Entry {
    /// The reference to it, as in a table; 0 is null.
    reference: u64,
    word: u32,
    instance: u16,
    is_narrow: bool,
}

/// One coroutine by itself, which is ready and whose globals are in place.
pub(crate) struct Alone<'a, H: ?Sized, const OFFERS: bool> {
    coroutine: &'a mut Coroutine,
    host: PhantomData<fn(&mut H)>,
}

impl<'a, H: ?Sized, const OFFERS: bool> Alone<'a, H, OFFERS> {
    #[inline(always)]
    pub(crate) fn new(coroutine: &'a mut Coroutine) -> Self {
        Self { coroutine, host: PhantomData }
    }
}

impl<H: Host + ?Sized, const OFFERS: bool> Switch for Alone<'_, H, OFFERS> {
    type Host = H;
    const OFFERS: bool = OFFERS;
    const SWITCHES: bool = false;

    #[inline(always)]
    fn yields(&self) -> u32 {
        u32::MAX
    }

    #[inline(always)]
    fn next(&mut self, _host: &mut H, _leaving: Leaving, _used: Cycles) -> Option<Turn> {
        None
    }

    #[inline(always)]
    fn dispatch(&mut self, _host: &mut H, _turn: Turn) -> Result<&mut Coroutine, Exit> {
        Ok(self.coroutine)
    }

    #[inline(always)]
    fn spawn(
        &mut self,
        _host: &mut H,
        _slot: u32,
        _table: u32,
        _code: &Spawnable<'_>,
    ) -> Option<&mut Coroutine> {
        None
    }

    #[inline(always)]
    fn resume(
        _host: &mut H,
        _slot: u32,
        _coroutine: &mut Coroutine,
        _memory_bytes: u64,
    ) -> Resumed {
        Resumed::refused(Exit::SUSPENDED)
    }
}

/// Coroutines that a host dispatches one after the other.
struct Turns<'a, C, H> {
    coroutines: &'a mut C,
    /// Whose turn it is.
    turn: Turn,
    /// Dispatches until the next prefetch, or 0 for never; [`Turns::IS_LATE`] on top.
    prefetch_in: u32,
    entry: Entry,
    yields: u32,
    host: PhantomData<fn(&mut H)>,
}

impl<C: Coroutines, H: Host> Turns<'_, C, H> {
    /// In `prefetch_in`: the running coroutine is late, so its slot may not exist yet.
    const IS_LATE: u32 = 1 << 31;

    /// The first prefetch comes after two dispatches: many sessions dispatch only one at a time.
    const FIRST_PREFETCH: u32 = 3;
}

impl<C: Coroutines, H: Host> Switch for Turns<'_, C, H> {
    type Host = H;
    const OFFERS: bool = true;
    const SWITCHES: bool = true;

    #[inline(always)]
    fn yields(&self) -> u32 {
        self.yields
    }

    #[inline(always)]
    fn next(&mut self, host: &mut H, leaving: Leaving, used: Cycles) -> Option<Turn> {
        match leaving {
            Leaving::Yielded => Some(host.pass(used)),
            Leaving::Blocked => Some(host.leave(used)),
            Leaving::Finished(value) => {
                let next = host.finish(used, value);
                if next == Turn::GOES_ON {
                    return None;
                }
                self.coroutines.vacate(self.turn.slot);
                self.prefetch_in &= !Self::IS_LATE;
                Some(next)
            }
        }
    }

    #[inline(always)]
    fn dispatch(&mut self, host: &mut H, turn: Turn) -> Result<&mut Coroutine, Exit> {
        if self.prefetch_in != 0 {
            self.prefetch_in -= 1;
            if self.prefetch_in as i32 <= 0 {
                self.prefetch_in = prefetch(self.coroutines, host, self.prefetch_in, Self::IS_LATE);
            }
        }
        self.turn = turn;
        // A comparison and an index: for an `Option` the compiler would also test the pointer for
        // null.
        let slot = turn.slot as usize;
        if slot < self.coroutines.places().len() {
            return Ok(&mut self.coroutines.places()[slot]);
        }
        core::hint::cold_path();
        let Some(late) = take(self.coroutines, turn.slot, host) else { return Err(Exit::DEFERRED) };
        self.prefetch_in = self.prefetch_in.max(1) | Self::IS_LATE;
        Ok(late)
    }

    #[inline(always)]
    fn spawn(
        &mut self,
        host: &mut H,
        slot: u32,
        table: u32,
        code: &Spawnable<'_>,
    ) -> Option<&mut Coroutine> {
        let table = code.tables.get(table as usize)?;
        if self.prefetch_in >= Self::IS_LATE {
            core::hint::cold_path();
            keep(self.coroutines, host, true);
            self.prefetch_in &= !Self::IS_LATE;
        }
        let coroutine = self.coroutines.places().get_mut(slot as usize)?;
        let State::Host { first, call: Call { arguments: 2, results: 1, narrow, .. } } =
            coroutine.state
        else {
            return None;
        };
        let at = coroutine.window as usize + usize::from(first);
        let &[element, mut argument] = coroutine.stack.part(at, 2) else { return None };
        let reference = *table.elements.get(element as u32 as usize)?;
        if reference != self.entry.reference || reference == 0 {
            core::hint::cold_path();
            self.entry = code.function(reference, host)?;
        }
        if self.entry.is_narrow {
            argument = u64::from(argument as u32);
        }
        let newborn = Newborn { word: self.entry.word, instance: self.entry.instance, argument };
        let slots = self.coroutines.places().len();
        let (new_slot, result) = host.begin(newborn, slots as u32);
        if new_slot == Turn::NOBODY.slot {
            return None;
        }
        if (new_slot as usize) < slots {
            materialise(self.coroutines, new_slot, newborn);
        }
        let coroutine = self.coroutines.places().get_mut(slot as usize)?;
        coroutine.resume_with(at, narrow != 0, result);
        Some(coroutine)
    }

    /// Slow path, whatever the answer is. What the answer writes to memory is left to the caller,
    /// who has the memory at hand.
    #[inline(never)]
    fn resume(host: &mut H, slot: u32, coroutine: &mut Coroutine, memory_bytes: u64) -> Resumed {
        let State::Host { first, call } = coroutine.state else {
            return Resumed::refused(Exit::SUSPENDED);
        };
        let at = coroutine.window as usize + usize::from(first);
        let second = coroutine.stack.get(at + 1).copied().unwrap_or(0);
        let answer = host.answer(slot, second, memory_bytes);
        if !answer.is_done() {
            return Resumed::refused(if answer == Answer::STOP {
                Exit::SUSPENDED
            } else {
                Exit::DEFERRED
            });
        }
        let (result, resumed) = match answer.written() {
            Some(number) => (0, Resumed { at: u64::from(second as u32), number }),
            None => (answer.value(), Resumed { at: Resumed::READY, number: 0 }),
        };
        if call.results == 1 && coroutine.word != Coroutine::NO_WORD {
            coroutine.resume_with(at, call.narrow != 0, result);
        } else {
            coroutine.resume(&[result]);
        }
        resumed
    }
}

impl Coroutine {
    /// [`Coroutine::resume`] with one result for the slot `at`, when the call is known to have one
    /// and to be an instruction.
    #[inline(always)]
    fn resume_with(&mut self, at: usize, is_narrow: bool, result: u64) {
        self.stack.part_mut(at, 1)[0] = if is_narrow { u64::from(result as u32) } else { result };
        self.paid = 0;
        self.word += Form::CallImport.words();
        self.state = State::Ready;
    }
}

/// Creates a spawned coroutine in a slot that exists. Not inlined: most are spawned into a new
/// slot, and created when they are first dispatched.
#[inline(never)]
fn materialise<C: Coroutines>(coroutines: &mut C, slot: u32, newborn: Newborn) {
    coroutines.begin(slot, Coroutine::born(newborn));
}

/// Creates a coroutine that has no slot yet for its first dispatch. `None` if there is no such.
#[inline(never)]
fn take<'a, C: Coroutines, H: Host>(
    coroutines: &'a mut C,
    slot: u32,
    host: &mut H,
) -> Option<&'a mut Coroutine> {
    let late = coroutines.late()?;
    if !host.take(slot, &mut late.coroutine) {
        return None;
    }
    late.slot = slot;
    Some(&mut late.coroutine)
}

/// Moves the late coroutine, if there is one, to its slot or back to the host.
#[inline(never)]
fn keep<C: Coroutines, H: Host>(coroutines: &mut C, host: &mut H, is_needed: bool) {
    let Some(late) = coroutines.late() else { return };
    let slot = core::mem::replace(&mut late.slot, Turn::NOBODY.slot);
    if slot != Turn::NOBODY.slot {
        let coroutine = core::mem::replace(&mut late.coroutine, Coroutine::vacant());
        host.keep(slot, coroutine, coroutines, is_needed);
    }
}

/// The turn of a late coroutine is over, or it is time to prefetch those that will probably run
/// next. Returns when to do that again.
#[inline(never)]
fn prefetch<C: Coroutines, H: Host>(
    coroutines: &mut C,
    host: &mut H,
    mut prefetch_in: u32,
    is_late: u32,
) -> u32 {
    if prefetch_in >= is_late {
        keep(coroutines, host, false);
        prefetch_in &= !is_late;
    }
    if prefetch_in == 0 {
        prefetch_in = host.ahead(&mut |slot, ahead| coroutines.fetch(slot, ahead));
    }
    prefetch_in
}

/// How [`run_turns`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Turned {
    /// Why the last coroutine stopped; `None` if it yielded or blocked and no other was dispatched.
    pub stop: Option<Stop>,
    /// What the last coroutine had used when its turn began.
    pub began: Cycles,
}

/// Runs coroutines of `session` in turns, as [`Host`] dispatches them.
///
/// As [`crate::run_with`], but a call of host function `yields`, which must have no results, is
/// answered here, and [`Host::pass`] returns the next turn. Ends with the first other stop, or when
/// there is no next. The first turn may have begun before: it has used `spent` cycles, which
/// together with those it has left are at most [`Turn::LONGEST`] and a gap.
///
/// Compiled for each type of host, so that what a host does between two turns is inlined.
#[inline(never)]
pub fn run_turns<C: Coroutines, H: Host>(
    session: &mut Session,
    coroutines: &mut C,
    (first, spent): (Turn, u32),
    host: &mut H,
    yields: u16,
) -> Turned {
    let mut turns = Turns {
        coroutines,
        turn: first,
        prefetch_in: Turns::<C, H>::FIRST_PREFETCH,
        entry: Entry { reference: 0, word: 0, instance: 0, is_narrow: false },
        yields: u32::from(yields),
        host: PhantomData,
    };
    let (exit, began) = execute(session, &mut turns, host, first, spent);
    let (coroutines, slot) = (turns.coroutines, turns.turn.slot);
    let stop = match exit.ended() {
        Ended::Yielded | Ended::Blocked | Ended::Deferred => None,
        _ => coroutines.running(slot).map(|coroutine| exit.stop(session, coroutine)),
    };
    keep(coroutines, host, false);
    Turned { stop, began: Cycles(began) }
}
