//! Host calls that are answered in place: the coroutine goes on in the loop instead of stopping and
//! being run again.
//!
//! Contract: an answer in place is what a stop, [`crate::Coroutine::resume`] and another
//! [`crate::run`] with the cycles that are left would have been; the call is charged before it is
//! asked for, as ever. Calls of two parameters and one result are offered, and those of one
//! parameter and none; everything else stops.
//!
//! [`crate::run_turns`] also passes from a coroutine that gives way to the next without leaving the
//! loop.

use crate::coroutine::Coroutine;
use crate::session::TableAddress;
use alloc::vec::Vec;
use wavelock_abi::Cycles;
use wavelock_module::FunctionType;

/// Answers some host calls in place.
pub trait Host {
    /// The call of function `number` with these arguments; the caller's memory has `memory_bytes`.
    /// Arguments and answer fit registers.
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> Answer;

    /// The coroutine that runs has used so many cycles since its turn began and gave way; it stands
    /// behind its call. Whose turn is it now? [`Turn::NOBODY`] if it is not to run here.
    fn pass(&mut self, used: Cycles) -> Turn {
        let _ = used;
        Turn::NOBODY
    }

    /// The call of function `number`, which has one parameter and no result: whether it is done and
    /// the coroutine's turn over. Otherwise nothing has changed, and it stops.
    fn last(&mut self, number: u16, argument: u64) -> bool {
        let _ = (number, argument);
        false
    }

    /// [`Host::pass`] after [`Answer::WAIT`] and [`Host::last`].
    fn leave(&mut self, used: Cycles) -> Turn {
        let _ = used;
        Turn::NOBODY
    }

    /// The coroutine that runs has used so many cycles since its turn began and its function
    /// returned, with this value or 0. Whose turn is it now? [`Turn::GOES_ON`] if its end is not
    /// dealt with here; otherwise its place is vacant from now on.
    fn finish(&mut self, used: Cycles, value: u64) -> Turn {
        let _ = (used, value);
        Turn::GOES_ON
    }

    /// Names those whose turns will probably come, so that they are fetched ahead, many at once;
    /// and again when their turns come soon, for what is found only by looking at them. Gives after
    /// how many turns to ask again; 0 for not at all, because they are few.
    fn ahead(&mut self, each: &mut dyn FnMut(u32, Ahead)) -> u32 {
        let _ = each;
        0
    }

    /// Whether coroutines of functions of this type may begin here. The same answer each time.
    fn begins(&self, kind: &FunctionType) -> bool {
        let _ = kind;
        false
    }

    /// A place for the new coroutine that the one which runs asked for ([`Answer::start`]), whose
    /// function has a type that [`Host::begins`] agreed to: its number, and what the call answers.
    /// The place of [`Turn::NOBODY`] if it is not begun here; then nothing has changed. Among the
    /// first `places` it is put there; otherwise what it begins with is the host's to keep, until
    /// its turn comes.
    fn begin(&mut self, newborn: Newborn, places: u32) -> (u32, u64) {
        let _ = (newborn, places);
        (Turn::NOBODY.slot, 0)
    }

    /// It is the turn of a coroutine that is in no place: puts it `into` what is here for its turn,
    /// and has it no more. `false` if there is none.
    fn take(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        let _ = (slot, into);
        false
    }

    /// The turn of a coroutine from [`Host::take`] is over, and it has not ended; or it has to be
    /// in its place now (`is_needed`). It is kept, or put in its place, and so are those before it.
    fn keep(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        coroutines: &mut dyn Coroutines,
        is_needed: bool,
    ) {
        let _ = (slot, coroutine, coroutines, is_needed);
    }

    /// A coroutine whose turn it is waits in a call: if its answer is a number, as in
    /// [`Answer::number`], `put` writes that, and says whether it fits. Whether that is done;
    /// otherwise nothing has changed, and [`Host::answer`] is asked.
    fn number(&mut self, slot: u32, put: &mut dyn FnMut(u64) -> bool) -> bool {
        let _ = (slot, put);
        false
    }

    /// A coroutine whose turn it is waits in a call with this second argument, if the call has one.
    /// Its answer, or [`Answer::STOP`] if the call is to be looked at again; [`Answer::WAIT`] if it
    /// is not to run here.
    fn answer(&mut self, slot: u32, second: u64, memory_bytes: u64) -> Answer {
        let _ = (slot, second, memory_bytes);
        Answer::STOP
    }
}

/// What a coroutine begins with: the function whose code begins at a word of an instance, and its
/// argument. All it needs is near.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newborn {
    /// Where the code begins.
    pub word: u32,
    /// Whose code.
    pub instance: u16,
    /// Its argument.
    pub argument: u64,
}

/// How far ahead of its turn something is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// Far enough for memory to answer: its record.
    Far,
    /// After that: what its record names.
    Near,
}

/// A turn: who runs, and for how many cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The coroutine, by its place in [`Coroutines`].
    pub slot: u32,
    /// Cycles it may use; at most [`Turn::LONGEST`].
    pub cycles: u32,
}

impl Turn {
    /// No turn: nobody has this place. One word and no tag, because one comes with every yield.
    pub const NOBODY: Self = Self { slot: u32::MAX, cycles: 0 };

    /// No turn either: the one that there was is not over.
    pub const GOES_ON: Self = Self { slot: u32::MAX, cycles: 1 };

    /// The most cycles of a turn: they are counted in 32 bits.
    pub const LONGEST: u32 = 1 << 30;
}

/// The coroutines of one session that may take turns.
pub trait Coroutines {
    /// All of them, each in its place. There is none in the place of [`Turn::NOBODY`].
    fn places(&mut self) -> &mut [Coroutine];

    /// Asks for the coroutine in this place to be in a cache when it runs. Changes nothing.
    fn fetch(&self, slot: u32, ahead: Ahead) {
        let _ = (slot, ahead);
    }

    /// A coroutine begins in this place, which is vacant or the next of all.
    fn begin(&mut self, slot: u32, coroutine: Coroutine) {
        let _ = (slot, coroutine);
    }

    /// The coroutine in this place, or the one that runs for it, has ended, and all of it can go.
    fn vacate(&mut self, slot: u32) {
        let _ = slot;
    }

    /// Where one runs that is in no place; `None` where all are.
    fn late(&mut self) -> Option<&mut Late> {
        None
    }

    /// The coroutine of this place, wherever it is while it runs.
    #[inline]
    fn running(&mut self, slot: u32) -> Option<&mut Coroutine> {
        if (slot as usize) < self.places().len() {
            return self.places().get_mut(slot as usize);
        }
        self.late().filter(|late| late.slot == slot).map(|late| &mut late.coroutine)
    }
}

/// A coroutine that has a turn and no place: one that ends in its first turn never needs one.
#[derive(Debug)]
pub struct Late {
    /// Its place when it has one; that of [`Turn::NOBODY`] if there is none.
    pub(crate) slot: u32,
    pub(crate) coroutine: Coroutine,
}

/// Coroutines by their places in a list, as far as one was needed; those beyond its end are the
/// host's to keep ([`Host::take`]).
#[derive(Debug)]
pub struct Nursery {
    places: Vec<Coroutine>,
    late: Late,
}

impl Nursery {
    /// These, and none that is late.
    #[inline]
    #[must_use]
    pub fn new(places: Vec<Coroutine>) -> Self {
        Self { places, late: Late { slot: Turn::NOBODY.slot, coroutine: Coroutine::vacant() } }
    }

    /// All that are in their places.
    #[inline]
    #[must_use]
    pub fn into_places(self) -> Vec<Coroutine> {
        self.places
    }
}

impl Coroutines for Nursery {
    #[inline]
    fn places(&mut self) -> &mut [Coroutine] {
        &mut self.places
    }

    #[inline]
    fn fetch(&self, slot: u32, ahead: Ahead) {
        self.places.fetch(slot, ahead);
    }

    #[inline]
    fn begin(&mut self, slot: u32, coroutine: Coroutine) {
        self.places.begin(slot, coroutine);
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        match self.places.get_mut(slot as usize) {
            Some(coroutine) => coroutine.vacate(),
            None => self.late.slot = Turn::NOBODY.slot,
        }
    }

    #[inline]
    fn late(&mut self) -> Option<&mut Late> {
        Some(&mut self.late)
    }
}

/// One coroutine by itself, in the first place.
impl Coroutines for Coroutine {
    #[inline]
    fn places(&mut self) -> &mut [Coroutine] {
        core::slice::from_mut(self)
    }
}

/// Adds to a table that may have a million entries. A short one doubles when it is full. One of 2
/// MiB or more grows by a 16th, at least 256 KiB: an allocator that grows such a block without a
/// copy can have the pages of the whole step ready, and does not prepare what nobody needs. With
/// one that copies, growth is still a constant for each entry.
#[inline(always)]
pub fn push_in_steps<T>(table: &mut Vec<T>, entry: T) {
    const LONG: usize = 2 << 20;
    const STEP: usize = 256 << 10;
    if table.len() == table.capacity() {
        core::hint::cold_path();
        if table.len() * size_of::<T>() >= LONG {
            table.reserve_exact((table.len() / 16).max(STEP / size_of::<T>()));
        }
    }
    table.push(entry);
}

/// Coroutines by their places in a list.
impl Coroutines for Vec<Coroutine> {
    #[inline]
    fn places(&mut self) -> &mut [Coroutine] {
        self
    }

    #[inline]
    fn fetch(&self, slot: u32, ahead: Ahead) {
        if let Some(coroutine) = self.get(slot as usize) {
            coroutine.fetch(ahead);
        }
    }

    #[inline]
    fn begin(&mut self, slot: u32, coroutine: Coroutine) {
        match self.get_mut(slot as usize) {
            Some(place) => *place = coroutine,
            None => push_in_steps(self, coroutine),
        }
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        self[slot as usize].vacate();
    }
}

/// An [`Answer`] without a value. One word, so that whoever gives it can leave that to another in
/// its last place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bare(u64);

impl Bare {
    /// [`Answer::DONE`].
    pub const DONE: Self = Self(Answer::DONE.how);
    /// [`Answer::STOP`].
    pub const STOP: Self = Self(Answer::STOP.how);
    /// [`Answer::WAIT`].
    pub const WAIT: Self = Self(Answer::WAIT.how);

    /// [`Answer::sooner`].
    #[inline(always)]
    #[must_use]
    pub const fn sooner(self, cycles: u32) -> Self {
        Self(self.0 | (cycles as u64) << 32)
    }
}

/// What a [`Host`] does with a call. Two words that fit registers, as an enum would not: one comes
/// with every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// How, and in the upper half how many cycles sooner the slice ends: what was done moved the
    /// lane's clock.
    how: u64,
    value: u64,
}

impl Answer {
    /// It is done, with result 0.
    pub const DONE: Self = Self { how: 0, value: 0 };
    const NUMBER: u64 = 1;
    /// Nothing: the coroutine stops with [`crate::Stop::Host`], and nothing has changed.
    pub const STOP: Self = Self { how: 2, value: 0 };
    /// Not yet: the coroutine stands in its call, and its turn is over. As a [`Host::answer`]: it
    /// is not to run here.
    pub const WAIT: Self = Self { how: 3, value: 0 };

    const START: u64 = 4;
    /// Done, with a result other than 0.
    const RESULT: u64 = 5;

    /// An answer without a value.
    #[inline(always)]
    #[must_use]
    pub const fn bare(Bare(how): Bare) -> Self {
        Self { how, value: 0 }
    }

    /// It asks for a coroutine: of the function that is the element of this table with the first
    /// argument's number, called with the second. Among turns, if that is simple, [`Host::begin`]
    /// is asked for a place; otherwise this is [`Answer::STOP`].
    #[inline(always)]
    #[must_use]
    pub const fn start(table: TableAddress) -> Self {
        Self { how: Self::START, value: table.0 as u64 }
    }

    /// The table of [`Answer::start`].
    #[inline(always)]
    pub(crate) const fn table(self) -> Option<u32> {
        if self.how == Self::START { Some(self.value as u32) } else { None }
    }

    /// It is done, with this result.
    #[inline(always)]
    #[must_use]
    pub const fn result(result: u64) -> Self {
        if result == 0 { Self::DONE } else { Self { how: Self::RESULT, value: result } }
    }

    /// It is done, with result 0, and eight bytes, in little-endian order, are written to the
    /// caller's memory where the call's second argument points: the host has made sure that they
    /// fit.
    #[inline(always)]
    #[must_use]
    pub const fn number(number: u64) -> Self {
        Self { how: Self::NUMBER, value: number }
    }

    /// The same, and the slice ends so many cycles sooner.
    #[inline(always)]
    #[must_use]
    pub const fn sooner(self, cycles: u32) -> Self {
        Self { how: self.how | (cycles as u64) << 32, value: self.value }
    }

    /// Whether it is done with result 0, and the slice does not end sooner.
    #[inline(always)]
    pub(crate) const fn is_plainly_done(self) -> bool {
        self.how == 0
    }

    /// Whether it is [`Answer::WAIT`].
    #[inline(always)]
    pub(crate) const fn waits(self) -> bool {
        self.how == Self::WAIT.how
    }

    /// The number to write, if the slice does not end sooner.
    #[inline(always)]
    pub(crate) const fn plain_number(self) -> Option<u64> {
        if self.how == Self::NUMBER { Some(self.value) } else { None }
    }

    /// Whether it is done: a result or a number.
    #[inline(always)]
    pub(crate) const fn is_done(self) -> bool {
        matches!(self.how as u32 as u64, 0 | Self::NUMBER | Self::RESULT)
    }

    /// The number to write.
    #[inline(always)]
    pub(crate) const fn written(self) -> Option<u64> {
        if self.how as u32 == Self::NUMBER as u32 { Some(self.value) } else { None }
    }

    /// The result of one that is done and writes nothing.
    #[inline(always)]
    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// By how much sooner the slice ends.
    #[inline(always)]
    pub(crate) const fn cycles(self) -> u32 {
        (self.how >> 32) as u32
    }
}

/// A host that answers nothing in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping;

impl Host for Stopping {
    fn call(&mut self, _number: u16, _first: u64, _second: u64, _memory_bytes: u64) -> Answer {
        Answer::STOP
    }
}
