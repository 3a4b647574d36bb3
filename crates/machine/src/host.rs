//! Host calls that are answered in place: the coroutine goes on in the loop instead of stopping and being run again.
//!
//! Contract: an answer in place is what a stop, [`crate::Coroutine::resume`] and another [`crate::run`] with the cycles that are left would have been; the
//! call is charged before it is asked for, as ever. Calls of two parameters and one result are offered, and those of one parameter and none;
//! everything else stops.
//!
//! [`crate::run_turns`] also passes from a coroutine that gives way to the next without leaving the loop.

use crate::coroutine::Coroutine;
use alloc::vec::Vec;
use wavelock_abi::Cycles;

/// Answers some host calls in place.
pub trait Host {
    /// The call of function `number` with these arguments; the caller's memory has `memory_bytes`.
    fn call(&mut self, number: u16, arguments: (u64, u64), memory_bytes: u64) -> Answer;

    /// The coroutine that runs has used so many cycles since its turn began and gave way; it stands behind its call. Whose turn is it now?
    /// [`Turn::NOBODY`] if it is not to run here.
    fn pass(&mut self, used: Cycles) -> Turn {
        let _ = used;
        Turn::NOBODY
    }

    /// [`Host::pass`] after [`Answer::Wait`] and [`Answer::Over`].
    fn leave(&mut self, used: Cycles) -> Turn {
        let _ = used;
        Turn::NOBODY
    }

    /// The coroutine that runs has used so many cycles since its turn began and its function returned, with this value or 0. Whose turn is it now?
    /// `None` if its end is not dealt with here; otherwise its place is vacant from now on.
    fn finish(&mut self, used: Cycles, value: u64) -> Option<Turn> {
        let _ = (used, value);
        None
    }

    /// A coroutine whose turn it is waits in a call with these arguments. Its answer, or [`Answer::Stop`] if the call is to be looked at again;
    /// `None` if it is not to run here.
    fn answer(&mut self, slot: u32, arguments: (u64, u64), memory_bytes: u64) -> Option<Answer> {
        let _ = (slot, arguments, memory_bytes);
        Some(Answer::Stop)
    }
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

    /// The most cycles of a turn: they are counted in 32 bits.
    pub const LONGEST: u32 = 1 << 30;
}

/// The coroutines of one session that may take turns.
pub trait Coroutines {
    /// The coroutine in this place, unless it must not simply go on. There is none in the place of [`Turn::NOBODY`].
    fn coroutine(&mut self, slot: u32) -> Option<&mut Coroutine>;

    /// The coroutine in this place has ended, and all of it can go.
    fn vacate(&mut self, slot: u32) {
        let _ = slot;
    }
}

/// One coroutine by itself, in every place.
impl Coroutines for Coroutine {
    #[inline]
    fn coroutine(&mut self, slot: u32) -> Option<&mut Coroutine> {
        (slot != Turn::NOBODY.slot).then_some(self)
    }
}

/// Coroutines by their places in a list.
impl Coroutines for Vec<Coroutine> {
    #[inline]
    fn coroutine(&mut self, slot: u32) -> Option<&mut Coroutine> {
        self.get_mut(slot as usize)
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        self[slot as usize] = Coroutine::vacant();
    }
}

/// What a [`Host`] does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing: the coroutine stops with [`crate::Stop::Host`], and nothing has changed.
    Stop,
    /// It is done, with this result.
    Result(u64),
    /// It is done, with this result, and the slice ends so many cycles sooner: what was done moved the lane's clock.
    Sooner {
        /// The result.
        result: u64,
        /// Cycles.
        cycles: u32,
    },
    /// It is done, with result 0, and eight bytes are written to the caller's memory.
    Number {
        /// Where; the host has made sure that they fit.
        at: u32,
        /// So many cycles sooner the slice ends.
        cycles: u32,
        /// What, in little-endian order.
        number: u64,
    },
    /// Not yet: the coroutine stands in its call, and its turn is over.
    Wait,
    /// It is done, without a result, and the coroutine's turn is over.
    Over,
}

/// A host that answers nothing in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping;

impl Host for Stopping {
    fn call(&mut self, _number: u16, _arguments: (u64, u64), _memory_bytes: u64) -> Answer {
        Answer::Stop
    }
}
