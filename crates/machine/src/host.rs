//! The host of a batch ([`crate::run_batch`]): handles host calls in place and names the next
//! coroutine to dispatch.
//!
//! Contract: a call handled in place has the effect of a [`crate::Stop::Host`],
//! [`Coroutine::resume`] and another [`crate::run()`] with the remaining cycles. It is charged
//! before it is offered. Calls of two parameters and one result go to [`Host::call`], calls of one
//! parameter and no results to [`Host::call_blocking`]; all others stop the batch.
//!
//! A host that declines leaves everything unchanged, and the batch ends with the ordinary stop.
//!
//! The life of a coroutine in a batch:
//!
//! ```text
//!   spawn ─▶ lazy ── materialise ─▶ running ── yield_now ─▶ ready ── (dispatched) ─▶ running
//!                                      ├────── block ─────▶ blocked ── resume ─────▶ running
//!                                      └────── finish ────▶ slot vacated
//! ```
//!
//! Elsewhere: the switch that calls these methods is in `switch`, the coroutines' slots are in
//! `coroutines`.

use crate::coroutine::Coroutine;
use crate::coroutines::Prefetch;
use crate::session::TableAddress;
use alloc::vec::Vec;
use wavelock_abi::Cycles;
use wavelock_module::FunctionType;

/// Handles host calls and switches of one batch. The defaults decline everything.
pub trait Host {
    /// Handles a call of function `number`, which has two parameters and one result. The caller's
    /// memory has `memory_bytes` bytes. Arguments and outcome fit registers.
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> CallOutcome;

    /// Handles a call of function `number`, which has one parameter and no results, if the caller
    /// blocks in it: then returns `true`, and [`Host::block`] follows.
    fn call_blocking(&mut self, number: u16, argument: u64) -> bool {
        let _ = (number, argument);
        false
    }

    /// The running coroutine yielded after `used` cycles of its slice. Returns the next slice,
    /// [`Dispatch::NONE`] to end the batch.
    fn yield_now(&mut self, used: Cycles) -> Dispatch {
        let _ = used;
        Dispatch::NONE
    }

    /// The running coroutine blocked after `used` cycles of its slice: after
    /// [`CallOutcome::BLOCKED`] or [`Host::call_blocking`]. Returns as [`Host::yield_now`].
    fn block(&mut self, used: Cycles) -> Dispatch {
        let _ = used;
        Dispatch::NONE
    }

    /// The running coroutine's function returned `value` (0 without results) after `used` cycles
    /// of its slice. Returns as [`Host::yield_now`], and its slot is vacated;
    /// [`Dispatch::DECLINED`] ends the batch with [`crate::Stop::Finished`].
    fn finish(&mut self, used: Cycles, value: u64) -> Dispatch {
        let _ = (used, value);
        Dispatch::DECLINED
    }

    /// The dispatched coroutine is blocked in a call. If the result is a number, as in
    /// [`CallOutcome::number`], passes it to `write`, which returns whether the pointer is in
    /// bounds. Returns whether the call is completed; if not, the batch ends.
    fn resume(&mut self, slot: u32, write: &mut dyn FnMut(u64) -> bool) -> bool {
        let _ = (slot, write);
        false
    }

    /// Whether coroutines may be spawned with functions of this type. Must be constant.
    fn can_spawn(&self, kind: &FunctionType) -> bool {
        let _ = kind;
        false
    }

    /// Spawns a coroutine after [`CallOutcome::spawn`]; its function's type passed
    /// [`Host::can_spawn`]. Returns its slot and the result of the call; [`Dispatch::NO_SLOT`] to
    /// decline. The caller fills the slot if it is below `slots`; otherwise the host keeps `lazy`
    /// until [`Host::materialise`].
    fn spawn(&mut self, lazy: LazyCoroutine, slots: u32) -> (u32, u64) {
        let _ = (lazy, slots);
        (Dispatch::NO_SLOT, 0)
    }

    /// The dispatched coroutine has no slot in the table yet: moves it into `scratch`. `false` if
    /// the host does not have it either.
    fn materialise(&mut self, slot: u32, scratch: &mut Coroutine) -> bool {
        let _ = (slot, scratch);
        false
    }

    /// Takes back a live coroutine that ran in the scratch slot, or appends it to `slots` together
    /// with all that precede it; always the latter with `needs_slot`.
    fn stash(
        &mut self,
        slot: u32,
        coroutine: Coroutine,
        slots: &mut Vec<Coroutine>,
        needs_slot: bool,
    ) {
        let _ = (slot, coroutine, slots, needs_slot);
    }

    /// Names the coroutines that will probably be dispatched next, to `prefetch` them: first their
    /// records, nearer to their dispatch the stacks that the records point to. Returns the number
    /// of dispatches until the next call; 0 for never.
    fn prefetch(&mut self, prefetch: &mut dyn FnMut(u32, Prefetch)) -> u32 {
        let _ = prefetch;
        0
    }
}

/// A coroutine that has not run yet: its function and argument, without a record or a stack.
///
/// Spawning one writes no memory but the host's own entry, and one that finishes in its first slice
/// never has a slot: a million short-lived coroutines cost no table of a million records. Only
/// functions of one parameter whose window fits [`Coroutine`]'s inline slots are spawned like this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LazyCoroutine {
    /// The first word of its function's code.
    pub word: u32,
    /// The instance of the function.
    pub instance: u16,
    /// The function's argument.
    pub argument: u64,
}

/// A slice to run: which coroutine, and for how many cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The coroutine's slot in the [`crate::CoroutineTable`].
    pub slot: u32,
    /// Cycles it may use; at most [`Dispatch::MAX_CYCLES`].
    pub cycles: u32,
}

impl Dispatch {
    /// The slot of no coroutine.
    pub const NO_SLOT: u32 = u32::MAX;

    /// No next slice in this batch. A sentinel, so that each yield returns one word.
    pub const NONE: Self = Self { slot: Self::NO_SLOT, cycles: 0 };

    /// The host declined: the running slice is still open.
    pub const DECLINED: Self = Self { slot: Self::NO_SLOT, cycles: 1 };

    /// The longest slice: its cycles are counted in 32 bits.
    pub const MAX_CYCLES: u32 = 1 << 30;
}

/// The outcome of [`Host::call`]. Two words in registers, unlike an enum with these payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallOutcome {
    /// The lower half is the tag, the upper half the cycles by which the slice is shortened.
    tag: u64,
    value: u64,
}

impl CallOutcome {
    /// Completed with result 0.
    pub const DONE: Self = Self { tag: 0, value: 0 };
    /// Declined: the coroutine stops with [`crate::Stop::Host`]; the host has changed nothing.
    pub const DECLINED: Self = Self { tag: 2, value: 0 };
    /// The coroutine blocks in the call, and its slice is over.
    pub const BLOCKED: Self = Self { tag: 3, value: 0 };

    /// Completed with result 0 and a number to write.
    const NUMBER: u64 = 1;
    const SPAWN: u64 = 4;
    /// Completed with a result other than 0.
    const RESULT: u64 = 5;

    /// Spawn a coroutine: the call's first argument is an element of this table, the second the
    /// argument of that function. [`Host::spawn`] follows if the coroutine can be spawned lazily;
    /// otherwise this is [`CallOutcome::DECLINED`].
    #[inline(always)]
    #[must_use]
    pub const fn spawn(table: TableAddress) -> Self {
        Self { tag: Self::SPAWN, value: table.0 as u64 }
    }

    /// The table of [`CallOutcome::spawn`].
    #[inline(always)]
    pub(crate) const fn spawn_table(self) -> Option<u32> {
        if self.tag == Self::SPAWN { Some(self.value as u32) } else { None }
    }

    /// Completed with this result.
    #[inline(always)]
    #[must_use]
    pub const fn result(result: u64) -> Self {
        if result == 0 { Self::DONE } else { Self { tag: Self::RESULT, value: result } }
    }

    /// Completed with result 0, and `number` is written to the caller's memory at the call's second
    /// argument, little-endian. The host has checked that its eight bytes are in bounds.
    #[inline(always)]
    #[must_use]
    pub const fn number(number: u64) -> Self {
        Self { tag: Self::NUMBER, value: number }
    }

    /// The same outcome, and the slice ends `cycles` earlier: the call moved the lane's clock.
    #[inline(always)]
    #[must_use]
    pub const fn shortening_slice(self, cycles: u32) -> Self {
        Self { tag: self.tag | (cycles as u64) << 32, value: self.value }
    }

    /// Whether it is [`CallOutcome::DONE`], without a shortened slice.
    #[inline(always)]
    pub(crate) const fn is_just_done(self) -> bool {
        self.tag == 0
    }

    /// The number of [`CallOutcome::number`], without a shortened slice.
    #[inline(always)]
    pub(crate) const fn just_number(self) -> Option<u64> {
        if self.tag == Self::NUMBER { Some(self.value) } else { None }
    }

    /// Whether it is [`CallOutcome::BLOCKED`].
    #[inline(always)]
    pub(crate) const fn is_blocked(self) -> bool {
        self.tag == Self::BLOCKED.tag
    }

    /// Whether the call is completed.
    #[inline(always)]
    pub(crate) const fn is_completed(self) -> bool {
        matches!(self.tag as u32 as u64, 0 | Self::NUMBER | Self::RESULT)
    }

    /// The number to write.
    #[inline(always)]
    pub(crate) const fn number_to_write(self) -> Option<u64> {
        if self.tag as u32 == Self::NUMBER as u32 { Some(self.value) } else { None }
    }

    /// The result of a completed call without a number.
    #[inline(always)]
    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// The cycles by which the slice is shortened.
    #[inline(always)]
    pub(crate) const fn shortens_by(self) -> u32 {
        (self.tag >> 32) as u32
    }
}

/// The host of [`crate::run()`], which is offered no call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _number: u16, _first: u64, _second: u64, _memory_bytes: u64) -> CallOutcome {
        CallOutcome::DECLINED
    }
}
