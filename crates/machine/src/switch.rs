//! Switches between coroutines: dispatching the next one, spawning, prefetching.
//!
//! [`Switch`] is the interpreter's only view of it: the interpreter runs one coroutine until it
//! stops, and a `Switch` decides whether another runs in the same loop. With [`Single`] none does.
//! With [`Batch`] the loop dispatches coroutines as a [`Host`] names them, which is equivalent to a
//! loop around [`crate::run()`] and [`Coroutine::resume`], without leaving and entering the
//! interpreter at each yield.
//!
//! The host is an argument of every method instead of a field, because the interpreter calls it
//! while the running coroutine is borrowed from the `Switch`.

use core::marker::PhantomData;

use wavelock_abi::Cycles;
use wavelock_module::{Form, FunctionType};

use crate::coroutine::{Call, Coroutine, INLINE_SLOTS, State, Stop};
use crate::coroutines::CoroutineTable;
use crate::exit::{Exit, ExitReason};
use crate::host::{Dispatch, Host, LazyCoroutine, NoHost};
use crate::run::execute;
use crate::session::{FunctionEntry, Instance, Session, SessionLimits, Table};

/// Decides what runs when a coroutine stops.
pub(crate) trait Switch {
    /// Handles host calls in place.
    type Host: Host;
    /// Whether another coroutine may be dispatched and calls are offered to the host. Otherwise
    /// only [`Switch::dispatch`] is called, once, and the caller accounts for the cycles.
    const SWITCHES: bool;

    /// Number of the host function that yields; must have no results.
    fn yield_function(&self) -> u32;

    /// Ends the running slice, which used `used` cycles; returns the next. `None` if the end is
    /// left to the caller.
    fn next(&mut self, host: &mut Self::Host, end: SliceEnd, used: Cycles) -> Option<Dispatch>;

    /// The dispatched coroutine.
    ///
    /// # Errors
    /// [`Exit::DEFERRED`] if it cannot run in this loop.
    fn dispatch(
        &mut self,
        host: &mut Self::Host,
        dispatch: Dispatch,
    ) -> Result<&mut Coroutine, Exit>;

    /// Spawns the coroutine that the running one requests in the call it blocks in, resumes that
    /// call, and returns the running one. `None` if that is left to the caller; nothing has changed
    /// then.
    fn spawn(
        &mut self,
        host: &mut Self::Host,
        slot: u32,
        table: u32,
        code: &Spawnable<'_>,
    ) -> Option<&mut Coroutine>;
}

/// How a slice ends.
pub(crate) enum SliceEnd {
    /// The coroutine yielded and stays ready.
    Yielded,
    /// It blocks in a call.
    Blocked,
    /// Its function returned this value, or 0 without results.
    Finished(u64),
}

/// The parts of a session that determine which functions a coroutine can be spawned with.
pub(crate) struct Spawnable<'a> {
    pub(crate) types: &'a [FunctionType],
    pub(crate) functions: &'a [FunctionEntry],
    pub(crate) instances: &'a [Instance],
    pub(crate) tables: &'a [Table],
    pub(crate) limits: &'a SessionLimits,
    pub(crate) has_own_globals: bool,
}

impl Spawnable<'_> {
    /// The function of a reference, if its window fits a coroutine's inline slots and the host
    /// spawns its type. None in a session with coroutine-local globals, which would have to be
    /// copied.
    #[inline(never)]
    fn function<H: Host>(&self, reference: u64, host: &H) -> Option<Entry> {
        let function = self.functions.get(usize::try_from(reference.checked_sub(1)?).ok()?)?;
        // A host function has no instance.
        let module = &self.instances.get(function.instance as usize)?.module;
        let index = (function.index - module.imported_functions()) as usize;
        let registers = module.code().functions()[index].registers;
        let kind = &self.types[function.type_id as usize];
        let &[parameter] = kind.parameters() else { return None };
        let most = if self.has_own_globals { 0 } else { self.limits.stack_bytes as usize / 8 };
        let is_simple =
            usize::from(registers) <= INLINE_SLOTS && most >= INLINE_SLOTS && host.can_spawn(kind);
        is_simple.then_some(Entry {
            reference,
            word: function.entry,
            instance: function.instance as u16,
            is_narrow: parameter.is_narrow(),
        })
    }
}

/// A function that coroutines are spawned with. The last one is cached: the next is usually the
/// same.
struct Entry {
    /// The reference to it, as in a table; 0 is null.
    reference: u64,
    word: u32,
    instance: u16,
    is_narrow: bool,
}

/// One coroutine, which is ready and whose globals are in the session.
pub(crate) struct Single<'a>(pub(crate) &'a mut Coroutine);

impl Switch for Single<'_> {
    type Host = NoHost;
    const SWITCHES: bool = false;

    #[inline(always)]
    fn yield_function(&self) -> u32 {
        u32::MAX
    }

    #[inline(always)]
    fn next(&mut self, _host: &mut NoHost, _end: SliceEnd, _used: Cycles) -> Option<Dispatch> {
        None
    }

    #[inline(always)]
    fn dispatch(
        &mut self,
        _host: &mut NoHost,
        _dispatch: Dispatch,
    ) -> Result<&mut Coroutine, Exit> {
        Ok(self.0)
    }

    #[inline(always)]
    fn spawn(
        &mut self,
        _host: &mut NoHost,
        _slot: u32,
        _table: u32,
        _code: &Spawnable<'_>,
    ) -> Option<&mut Coroutine> {
        None
    }
}

/// Coroutines that a host dispatches one after the other.
struct Batch<'a, H> {
    coroutines: &'a mut CoroutineTable,
    /// The running slice.
    running: Dispatch,
    /// Dispatches until the next prefetch, or 0 for never; [`Batch::IN_SCRATCH`] on top.
    prefetch_in: u32,
    entry: Entry,
    yield_function: u32,
    host: PhantomData<fn(&mut H)>,
}

impl<H: Host> Batch<'_, H> {
    /// In `prefetch_in`: the running coroutine is in the scratch slot.
    const IN_SCRATCH: u32 = 1 << 31;

    /// The first prefetch comes after two dispatches: many batches have only one.
    const FIRST_PREFETCH: u32 = 3;
}

impl<H: Host> Switch for Batch<'_, H> {
    type Host = H;
    const SWITCHES: bool = true;

    #[inline(always)]
    fn yield_function(&self) -> u32 {
        self.yield_function
    }

    #[inline(always)]
    fn next(&mut self, host: &mut H, end: SliceEnd, used: Cycles) -> Option<Dispatch> {
        match end {
            SliceEnd::Yielded => Some(host.yield_now(used)),
            SliceEnd::Blocked => Some(host.block(used)),
            SliceEnd::Finished(value) => {
                let next = host.finish(used, value);
                if next == Dispatch::DECLINED {
                    return None;
                }
                self.coroutines.vacate(self.running.slot);
                self.prefetch_in &= !Self::IN_SCRATCH;
                Some(next)
            }
        }
    }

    #[inline(always)]
    fn dispatch(&mut self, host: &mut H, dispatch: Dispatch) -> Result<&mut Coroutine, Exit> {
        if self.prefetch_in != 0 {
            self.prefetch_in -= 1;
            if self.prefetch_in as i32 <= 0 {
                self.prefetch_in =
                    stash_or_prefetch(self.coroutines, host, self.prefetch_in, Self::IN_SCRATCH);
            }
        }
        self.running = dispatch;
        // A comparison and an index: for an `Option` the compiler would also test the pointer for
        // null.
        let slot = dispatch.slot as usize;
        if slot < self.coroutines.slots.len() {
            return Ok(&mut self.coroutines.slots[slot]);
        }
        core::hint::cold_path();
        let Some(coroutine) = materialise(self.coroutines, dispatch.slot, host) else {
            return Err(Exit::DEFERRED);
        };
        self.prefetch_in = self.prefetch_in.max(1) | Self::IN_SCRATCH;
        Ok(coroutine)
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
        if self.prefetch_in >= Self::IN_SCRATCH {
            core::hint::cold_path();
            stash(self.coroutines, host, true);
            self.prefetch_in &= !Self::IN_SCRATCH;
        }
        let coroutine = self.coroutines.slots.get_mut(slot as usize)?;
        let State::Host { first, call: Call { arguments: 2, results: 1, narrow, .. } } =
            coroutine.state
        else {
            return None;
        };
        let at = coroutine.window as usize + usize::from(first);
        let &[element, mut argument] = coroutine.stack.slots(at, 2) else { return None };
        let reference = *table.elements.get(element as u32 as usize)?;
        if reference != self.entry.reference || reference == 0 {
            core::hint::cold_path();
            self.entry = code.function(reference, host)?;
        }
        if self.entry.is_narrow {
            argument = u64::from(argument as u32);
        }
        let lazy = LazyCoroutine { word: self.entry.word, instance: self.entry.instance, argument };
        let slots = self.coroutines.slots.len();
        let (new_slot, result) = host.spawn(lazy, slots as u32);
        if new_slot == Dispatch::NO_SLOT {
            return None;
        }
        if (new_slot as usize) < slots {
            fill_slot(self.coroutines, new_slot, lazy);
        }
        let coroutine = self.coroutines.slots.get_mut(slot as usize)?;
        coroutine.resume_with(at, narrow != 0, result);
        Some(coroutine)
    }
}

impl Coroutine {
    /// [`Coroutine::resume`] with one result for stack slot `at`, when the call is known to have
    /// one result and to be an instruction.
    #[inline(always)]
    fn resume_with(&mut self, at: usize, is_narrow: bool, result: u64) {
        self.stack.slots_mut(at, 1)[0] = if is_narrow { u64::from(result as u32) } else { result };
        self.paid = 0;
        self.word += Form::CallImport.words();
        self.state = State::Ready;
    }
}

/// Materialises a spawned coroutine in a vacant slot. Not inlined: most are spawned beyond the end
/// of the table, and materialised when they are first dispatched.
#[inline(never)]
fn fill_slot(coroutines: &mut CoroutineTable, slot: u32, lazy: LazyCoroutine) {
    coroutines.slots[slot as usize] = Coroutine::materialise(lazy);
}

/// Moves the dispatched coroutine, which has no slot, from the host to the scratch slot. `None` if
/// the host does not have it.
#[inline(never)]
fn materialise<'a, H: Host>(
    coroutines: &'a mut CoroutineTable,
    slot: u32,
    host: &mut H,
) -> Option<&'a mut Coroutine> {
    let scratch = &mut coroutines.scratch;
    if !host.materialise(slot, &mut scratch.coroutine) {
        return None;
    }
    scratch.slot = slot;
    Some(&mut scratch.coroutine)
}

/// Moves the coroutine in the scratch slot, if there is one, back to the host or to its own slot.
#[inline(never)]
fn stash<H: Host>(coroutines: &mut CoroutineTable, host: &mut H, needs_slot: bool) {
    let CoroutineTable { slots, scratch } = coroutines;
    let slot = core::mem::replace(&mut scratch.slot, Dispatch::NO_SLOT);
    if slot != Dispatch::NO_SLOT {
        let coroutine = core::mem::replace(&mut scratch.coroutine, Coroutine::vacant());
        host.stash(slot, coroutine, slots, needs_slot);
    }
}

/// The slow path of a dispatch: empties the scratch slot after a slice in it, and prefetches when
/// it is time. Returns the new `prefetch_in`.
#[inline(never)]
fn stash_or_prefetch<H: Host>(
    coroutines: &mut CoroutineTable,
    host: &mut H,
    mut prefetch_in: u32,
    in_scratch: u32,
) -> u32 {
    if prefetch_in >= in_scratch {
        stash(coroutines, host, false);
        prefetch_in &= !in_scratch;
    }
    if prefetch_in == 0 {
        prefetch_in = host.prefetch(&mut |slot, part| coroutines.prefetch(slot, part));
    }
    prefetch_in
}

/// How [`run_batch`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct BatchEnd {
    /// Why the last coroutine stopped; `None` if it yielded or blocked and the next slice is not
    /// for this batch.
    pub stop: Option<Stop>,
    /// What the last coroutine had used when its slice began.
    pub used_before: Cycles,
}

/// Runs the slice `first`, and after it the slices that `host` dispatches, until a coroutine stops
/// for a reason that the host does not handle, or the host dispatches none.
///
/// `yield_function` is the number of the host function that yields; it must have no results. The
/// first slice may be under way: it has used `spent` cycles, which together with those it has left
/// are at most [`Dispatch::MAX_CYCLES`] and a gap.
///
/// Generic, so that what the host does between two slices is inlined.
#[inline(never)]
pub fn run_batch<H: Host>(
    session: &mut Session,
    coroutines: &mut CoroutineTable,
    (first, spent): (Dispatch, u32),
    host: &mut H,
    yield_function: u16,
) -> BatchEnd {
    let mut batch = Batch {
        coroutines,
        running: first,
        prefetch_in: Batch::<H>::FIRST_PREFETCH,
        entry: Entry { reference: 0, word: 0, instance: 0, is_narrow: false },
        yield_function: u32::from(yield_function),
        host: PhantomData,
    };
    let (exit, used_before) = execute(session, &mut batch, host, first, spent);
    let (coroutines, slot) = (batch.coroutines, batch.running.slot);
    let stop = match exit.reason() {
        ExitReason::Yielded | ExitReason::Blocked | ExitReason::Deferred => None,
        _ => coroutines.running(slot).map(|coroutine| exit.stop(session, coroutine)),
    };
    stash(coroutines, host, false);
    BatchEnd { stop, used_before: Cycles(used_before) }
}
