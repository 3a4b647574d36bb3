//! The only unsafe code: unchecked access to registers, code words, imports and memory bytes.
//!
//! Each type is a slice without bounds checks, and holds the borrow of the slice it was made from.
//! Debug builds assert every access; the feature `checked` swaps this file for `raw_checked.rs`,
//! which has the same names and checks every access.
//!
//! Why accesses are in bounds. All code comes from `wavelock_module::verify`; V1 to V10 below are
//! its rules.
//!
//! - *The cursor is at the first word of an instruction.* It starts at a function's entry (V2), or
//!   where a coroutine was suspended: at a stop point (V9) or after a call (V5). It moves to the
//!   next instruction (V1), to a target (V3), to a callee's entry (V5) or to a link's return word.
//!   Links are written by calls alone (V4) and hold the word after the call, a safepoint (V5). A
//!   coroutine decoded from bytes gets its word and its links from stop points of its module.
//! - *Registers are inside the stack.* Every register is below the function's window size (V4), and
//!   `enter` (V2) grows the stack to that size before any is used, or faults. A return restores the
//!   caller's window, which is lower.
#![allow(unsafe_code)]

use crate::session::Held;
use core::any::Any;
use core::marker::PhantomData;

use wavelock_module::Op;

use crate::coroutine::Stack;
use crate::memory::{DIRTY_SHIFT, Memory};
use crate::session::{Import, Instance, SessionLimits};

/// Prefetches a value into the cache: the cache lines of its first and last byte, and one between
/// if it is long. A hint without effect on the program.
#[inline]
pub fn prefetch(value: &dyn Any) {
    let (first, size) = ((&raw const *value).cast::<u8>(), size_of_val(value));
    prefetch_line(first, size);
    if size > 8 {
        prefetch_line(first.wrapping_add(size - 1), 1);
    }
    if size > 96 {
        prefetch_line(first.wrapping_add(64), 1);
    }
}

/// Prefetches the cache line of one byte; `left` bytes of the value start there.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn prefetch_line(at: *const u8, _left: usize) {
    // SAFETY: a prefetch has no architectural effect, whatever the address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast()) }
}

/// Prefetches the cache line of one byte with a load; several loads overlap.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn prefetch_line(at: *const u8, left: usize) {
    if left > 0 {
        // SAFETY: a byte of a value that is borrowed, which may be padding.
        core::hint::black_box(unsafe { at.cast::<core::mem::MaybeUninit<u8>>().read() });
    }
}

/// The fields of an instruction. Each is a load of its own: cheaper than shifting and masking the
/// whole word.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    at: *const u64,
    borrow: PhantomData<&'a [u64]>,
}

impl Fields<'_> {
    /// Bits `16 * index..` of the instruction's word `word`.
    #[inline(always)]
    fn narrow(self, word: usize, index: usize) -> u16 {
        let index = if cfg!(target_endian = "little") { index } else { 3 - index };
        // SAFETY: the cursor is at an instruction, whose words are inside the code (V1); a word has
        // four such parts.
        unsafe { *self.at.add(word).cast::<u16>().add(index) }
    }

    /// Bits `32 * index..` of the instruction's word `word`.
    #[inline(always)]
    fn wide(self, word: usize, index: usize) -> u32 {
        let index = if cfg!(target_endian = "little") { index } else { 1 - index };
        // SAFETY: as in `narrow`; a word has two such parts.
        unsafe { *self.at.add(word).cast::<u32>().add(index) }
    }

    #[inline(always)]
    pub(crate) fn op(self) -> Op {
        let number = self.narrow(0, 0);
        debug_assert!(Op::from_number(number).is_some());
        // SAFETY: an instruction's first word has the number of an `Op` (V1); `Op` is `repr(u16)`.
        unsafe { core::mem::transmute::<u16, Op>(number) }
    }

    #[inline(always)]
    pub(crate) fn a(self) -> u16 {
        self.narrow(0, 1)
    }

    #[inline(always)]
    pub(crate) fn b(self) -> u16 {
        self.narrow(0, 2)
    }

    #[inline(always)]
    pub(crate) fn c(self) -> u16 {
        self.narrow(0, 3)
    }

    #[inline(always)]
    pub(crate) fn bc(self) -> u32 {
        self.wide(0, 1)
    }

    /// The distance in words from the instruction to the target of a jump or branch.
    #[inline(always)]
    pub(crate) fn distance(self) -> i32 {
        self.wide(1, 0) as i32
    }

    /// The charge of a jump or a taken branch.
    #[inline(always)]
    pub(crate) fn taken(self) -> u32 {
        self.wide(1, 1)
    }

    /// The charge of a branch not taken.
    #[inline(always)]
    pub(crate) fn fallen(self) -> u32 {
        self.wide(2, 0)
    }

    /// The loop header that a backward branch arrives at, or 0.
    #[inline(always)]
    pub(crate) fn stop(self) -> u32 {
        self.wide(2, 1)
    }

    /// The lower half of the word that follows.
    #[inline(always)]
    pub(crate) fn low(self) -> u32 {
        self.wide(1, 0)
    }

    /// The upper half of the word that follows.
    #[inline(always)]
    pub(crate) fn high(self) -> u32 {
        self.wide(1, 1)
    }

    /// The lowest 16 bits of the word that follows: a register.
    #[inline(always)]
    pub(crate) fn d(self) -> u16 {
        self.narrow(1, 0)
    }

    /// The next 16 bits of the word that follows: another register.
    #[inline(always)]
    pub(crate) fn e(self) -> u16 {
        self.narrow(1, 1)
    }
}

/// A position in a module's code.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    at: *const u64,
    first: *const u64,
    length: usize,
    borrow: PhantomData<&'a [u64]>,
}

impl<'a> Cursor<'a> {
    /// Position `at` of `words`.
    pub(crate) fn new(words: &'a [u64], at: usize) -> Self {
        assert!(at < words.len(), "a position in the code");
        let first = words.as_ptr();
        // SAFETY: `at` is below the length.
        Self { at: unsafe { first.add(at) }, first, length: words.len(), borrow: PhantomData }
    }

    /// The code it was made from.
    #[inline(always)]
    pub(crate) fn words(&self) -> &'a [u64] {
        // SAFETY: `new` took both from a slice of this lifetime.
        unsafe { core::slice::from_raw_parts(self.first, self.length) }
    }

    /// The fields of the instruction here.
    #[inline(always)]
    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields { at: self.at, borrow: PhantomData }
    }

    /// The word `offset` words after the cursor.
    #[inline(always)]
    pub(crate) fn get(&self, offset: usize) -> u64 {
        debug_assert!(self.position() + offset < self.length);
        // SAFETY: `offset` is below the length of the instruction here, whose words are inside the
        // code (V1).
        unsafe { *self.at.add(offset) }
    }

    /// Advances by `words`.
    #[inline(always)]
    pub(crate) fn step(&mut self, words: usize) {
        debug_assert!(self.position() + words < self.length);
        // SAFETY: the instruction here falls through, so another follows it in the same function
        // (V1).
        self.at = unsafe { self.at.add(words) };
    }

    /// Moves to an absolute word.
    #[inline(always)]
    pub(crate) fn jump(&mut self, at: usize) {
        debug_assert!(at < self.length);
        // SAFETY: a loop header (V8), an entry (V5) or a link's word (header of this file).
        self.at = unsafe { self.first.add(at) };
    }

    /// Moves by a signed number of words.
    #[inline(always)]
    pub(crate) fn jump_by(&mut self, distance: i32) {
        debug_assert!(
            self.position()
                .checked_add_signed(distance as isize)
                .is_some_and(|at| at < self.length)
        );
        // SAFETY: a distance is that of a target (V3) or of the loop header just before it (V8).
        self.at = unsafe { self.at.offset(distance as isize) };
    }

    /// The current word.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        // SAFETY: both point into the one slice this was made from.
        unsafe { self.at.offset_from_unsigned(self.first) }
    }
}

/// An imported function of an instance.
#[inline(always)]
pub(crate) fn import(instance: &Instance, number: u64) -> &Import {
    debug_assert!(number < instance.imports.len() as u64);
    // SAFETY: an instance has one entry per imported function of its module, never changed after
    // linking; the index in a call is below their number (V5).
    unsafe { instance.imports.get_unchecked(number as usize) }
}

/// The registers of the running function: the top of the stack.
///
/// Only `first` is in a machine register. The end of the stack is read from the stack, at calls.
/// Calls update the position in the coroutine, so that a stop has nothing to write back.
pub(crate) struct Window<'a> {
    /// Register 0.
    first: *mut u64,
    stack: &'a mut Stack,
    /// The slot of register 0.
    position: &'a mut u32,
}

impl<'a> Window<'a> {
    /// A window whose register 0 is slot `position`.
    pub(crate) fn new(stack: &'a mut Stack, position: &'a mut u32) -> Self {
        let at = *position as usize;
        // One branch for both cases, instead of selecting pointer and length of the slots first.
        let first = if stack.heap.is_empty() {
            assert!(at <= stack.inline.len(), "a window starts inside its stack");
            // SAFETY: `at` is at most the length, so the pointer stays inside the slots or one past
            // their end.
            unsafe { stack.inline.as_mut_ptr().add(at) }
        } else {
            assert!(at <= stack.heap.len(), "a window starts inside its stack");
            // SAFETY: as above.
            unsafe { stack.heap.as_mut_ptr().add(at) }
        };
        Self { first, stack, position }
    }

    /// Grows the stack to `registers` from register 0 on; `false` if a limit is met. Only the
    /// stack's part is a call, so that the address of a window is never taken and it stays in
    /// registers.
    #[inline(always)]
    pub(crate) fn grow(&mut self, registers: usize, limits: &SessionLimits, held: &Held) -> bool {
        let grown = crate::coroutine::grow(self.stack, self.position() + registers, limits, held);
        self.first = Window::new(self.stack, self.position).first;
        grown
    }

    /// The slot of register 0.
    #[inline(always)]
    fn position(&self) -> usize {
        // SAFETY: `first` was made from this stack's own pointer and moved only within it.
        debug_assert_eq!(
            unsafe { self.first.cast_const().offset_from_unsigned(self.slots().cast::<u64>()) },
            *self.position as usize
        );
        *self.position as usize
    }

    /// The stack's slots as a raw pointer, which does not invalidate `first`.
    #[inline(always)]
    fn slots(&self) -> *const [u64] {
        let heap = &raw const *self.stack.heap;
        if heap.len() == 0 { &raw const self.stack.inline } else { heap }
    }

    /// Slots from register 0 to the end of the stack.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.slots().len() - self.position()
    }

    #[inline(always)]
    pub(crate) fn get(&self, register: usize) -> u64 {
        debug_assert!(register < self.room());
        // SAFETY: the register is below the window's size (V4) and the stack has that many slots
        // from `first` on.
        unsafe { *self.first.add(register) }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, register: usize, value: u64) {
        debug_assert!(register < self.room());
        // SAFETY: as in `get`; the borrow is exclusive.
        unsafe { *self.first.add(register) = value }
    }

    /// Moves to the callee's window.
    #[inline(always)]
    pub(crate) fn advance(&mut self, distance: usize) {
        debug_assert!(distance <= self.room());
        // SAFETY: the distance is the register of the first argument, inside the caller's window
        // (V5).
        self.first = unsafe { self.first.add(distance) };
        *self.position += distance as u32;
    }

    /// Moves back to the caller's window.
    #[inline(always)]
    pub(crate) fn retreat(&mut self, distance: usize) {
        debug_assert!(distance <= self.position());
        // SAFETY: a link holds the distance that `advance` moved by; only calls write links (V4),
        // and those of decoded coroutines are derived from the calls they return to.
        self.first = unsafe { self.first.sub(distance) };
        *self.position -= distance as u32;
    }

    /// Clears `count` registers.
    #[inline(always)]
    pub(crate) fn clear(&mut self, register: usize, count: usize) {
        debug_assert!(register + count <= self.room());
        for offset in 0..count {
            // SAFETY: as in `set`. Volatile, so that a few stores do not become a call of `memset`.
            unsafe { self.first.add(register + offset).write_volatile(0) }
        }
    }

    /// Copies `count` registers from `source` on to `target` on, in ascending order.
    #[inline(always)]
    pub(crate) fn copy(&mut self, target: usize, source: usize, count: usize) {
        for offset in 0..count {
            self.set(target + offset, self.get(source + offset));
        }
    }
}

/// The bytes of the running instance's memory.
pub(crate) struct Bytes<'a> {
    first: *mut u8,
    length: u64,
    dirty: *mut u8,
    borrow: PhantomData<&'a mut Memory>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(memory: Option<&'a mut Memory>) -> Self {
        match memory {
            Some(memory) => {
                assert!(
                    memory.dirty.len() == memory.bytes.len() >> DIRTY_SHIFT,
                    "one mark per dirty page"
                );
                let length = memory.bytes.len() as u64;
                Self {
                    first: memory.bytes.as_mut_ptr(),
                    length,
                    dirty: memory.dirty.as_mut_ptr(),
                    borrow: PhantomData,
                }
            }
            None => Self {
                first: core::ptr::null_mut(),
                length: 0,
                dirty: core::ptr::null_mut(),
                borrow: PhantomData,
            },
        }
    }

    /// Its size in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// `N` bytes at `at`, unless any is out of bounds. `at` is a 32-bit address plus a 32-bit
    /// offset, so it cannot wrap.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        debug_assert!(at < 1 << 33);
        if at + N as u64 > self.length {
            return None;
        }
        // SAFETY: `at + N` is at most the length, checked above; an array of bytes has no
        // alignment.
        Some(unsafe { *self.first.add(at as usize).cast::<[u8; N]>() })
    }

    /// Writes `N` bytes at `at` and marks their pages, or returns `false` if any is out of bounds.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, at: u64, bytes: [u8; N]) -> bool {
        debug_assert!(at < 1 << 33);
        if at + N as u64 > self.length {
            return false;
        }
        // SAFETY: `at + N` is at most the length, checked above; an array of bytes has no
        // alignment. The page of a byte that is inside has a mark: `new` asserted one per page, and
        // a memory's length is a whole number of pages.
        unsafe {
            *self.first.add(at as usize).cast::<[u8; N]>() = bytes;
            *self.dirty.add(at as usize >> DIRTY_SHIFT) = 1;
            if N > 1 {
                *self.dirty.add((at as usize + N - 1) >> DIRTY_SHIFT) = 1;
            }
        }
        true
    }
}
