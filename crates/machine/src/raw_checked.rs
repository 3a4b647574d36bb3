//! `raw.rs` without unsafe code, under the feature `checked`: the same names, every access checked.

use crate::session::Held;
use core::any::Any;

use wavelock_module::{Op, Word};

use crate::coroutine::Stack;
use crate::memory::{DIRTY_SHIFT, Memory};
use crate::session::{Import, Instance, SessionLimits};

/// Prefetches nothing: that needs unsafe code.
pub fn prefetch(value: &dyn Any) {
    let _ = value;
}

/// The fields of an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    words: &'a [u64],
    at: usize,
}

impl Fields<'_> {
    fn word(self) -> Word {
        Word(self.words[self.at])
    }

    fn second(self) -> u64 {
        self.words[self.at + 1]
    }

    #[inline(always)]
    pub(crate) fn op(self) -> Op {
        self.word().op().expect("lowering writes the number of an instruction")
    }

    #[inline(always)]
    pub(crate) fn a(self) -> u16 {
        self.word().a()
    }

    #[inline(always)]
    pub(crate) fn b(self) -> u16 {
        self.word().b()
    }

    #[inline(always)]
    pub(crate) fn c(self) -> u16 {
        self.word().c()
    }

    #[inline(always)]
    pub(crate) fn bc(self) -> u32 {
        self.word().bc()
    }

    /// The distance in words from the instruction to the target of a jump or branch.
    #[inline(always)]
    pub(crate) fn distance(self) -> i32 {
        self.second() as i32
    }

    /// The charge of a jump or a taken branch.
    #[inline(always)]
    pub(crate) fn taken(self) -> u32 {
        (self.second() >> 32) as u32
    }

    /// The charge of a branch not taken.
    #[inline(always)]
    pub(crate) fn fallen(self) -> u32 {
        self.words[self.at + 2] as u32
    }

    /// The loop header that a backward branch arrives at, or 0.
    #[inline(always)]
    pub(crate) fn stop(self) -> u32 {
        (self.words[self.at + 2] >> 32) as u32
    }

    /// The lower half of the word that follows.
    #[inline(always)]
    pub(crate) fn low(self) -> u32 {
        self.second() as u32
    }

    /// The upper half of the word that follows.
    #[inline(always)]
    pub(crate) fn high(self) -> u32 {
        (self.second() >> 32) as u32
    }

    /// The lowest 16 bits of the word that follows: a register.
    #[inline(always)]
    pub(crate) fn d(self) -> u16 {
        self.second() as u16
    }

    /// The next 16 bits of the word that follows: another register.
    #[inline(always)]
    pub(crate) fn e(self) -> u16 {
        (self.second() >> 16) as u16
    }
}

/// A position in a module's code.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Position `at` of `words`.
    pub(crate) fn new(words: &'a [u64], at: usize) -> Self {
        assert!(at < words.len(), "a position in the code");
        Self { words, at }
    }

    /// The code it was made from.
    #[inline(always)]
    pub(crate) fn words(&self) -> &'a [u64] {
        self.words
    }

    /// The fields of the instruction here.
    #[inline(always)]
    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields { words: self.words, at: self.at }
    }

    /// The word `offset` words after the cursor.
    #[inline(always)]
    pub(crate) fn get(&self, offset: usize) -> u64 {
        self.words[self.at + offset]
    }

    /// Advances by `words`.
    #[inline(always)]
    pub(crate) fn step(&mut self, words: usize) {
        self.at += words;
    }

    /// Moves to an absolute word.
    #[inline(always)]
    pub(crate) fn jump(&mut self, at: usize) {
        self.at = at;
    }

    /// Moves by a signed number of words.
    #[inline(always)]
    pub(crate) fn jump_by(&mut self, distance: i32) {
        self.at =
            self.at.checked_add_signed(distance as isize).expect("a distance inside the code");
    }

    /// The current word.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        self.at
    }
}

/// What the code of an instance calls as its `number`th import.
#[inline(always)]
pub(crate) fn import(instance: &Instance, number: u64) -> &Import {
    &instance.imports[number as usize]
}

/// The registers of the running function: the top of the stack.
pub(crate) struct Window<'a> {
    stack: &'a mut Stack,
    /// The slot of register 0.
    position: &'a mut u32,
}

impl<'a> Window<'a> {
    /// A window whose register 0 is slot `position`.
    pub(crate) fn new(stack: &'a mut Stack, position: &'a mut u32) -> Self {
        assert!(*position as usize <= stack.len(), "a window starts inside its stack");
        Self { stack, position }
    }

    /// Grows the stack to `registers` from register 0 on; `false` if a limit is met.
    pub(crate) fn grow(&mut self, registers: usize, limits: &SessionLimits, held: &Held) -> bool {
        crate::coroutine::grow(self.stack, self.position() + registers, limits, held)
    }

    /// The slot of register 0.
    #[inline(always)]
    fn position(&self) -> usize {
        *self.position as usize
    }

    /// Slots from register 0 to the end of the stack.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.stack.len() - self.position()
    }

    #[inline(always)]
    pub(crate) fn get(&self, register: usize) -> u64 {
        self.stack[self.position() + register]
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, register: usize, value: u64) {
        let at = self.position() + register;
        self.stack[at] = value;
    }

    /// Moves to the callee's window.
    #[inline(always)]
    pub(crate) fn advance(&mut self, distance: usize) {
        *self.position += distance as u32;
    }

    /// Moves back to the caller's window.
    #[inline(always)]
    pub(crate) fn retreat(&mut self, distance: usize) {
        *self.position -= distance as u32;
    }

    /// Clears `count` registers.
    #[inline(always)]
    pub(crate) fn clear(&mut self, register: usize, count: usize) {
        let start = self.position() + register;
        self.stack[start..start + count].fill(0);
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
pub(crate) struct Bytes<'a>(Option<&'a mut Memory>);

impl<'a> Bytes<'a> {
    pub(crate) fn new(memory: Option<&'a mut Memory>) -> Self {
        Self(memory)
    }

    /// Its size in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.0.as_ref().map_or(0, |memory| memory.bytes.len() as u64)
    }

    /// `N` bytes at `at`, unless any is out of bounds.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.0.as_ref()?.bytes.get(at as usize..)?.first_chunk::<N>().copied()
    }

    /// Writes `N` bytes at `at` and marks their pages, or returns `false` if any is out of bounds.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, at: u64, bytes: [u8; N]) -> bool {
        let Some(memory) = self.0.as_mut() else { return false };
        let Some(target) =
            memory.bytes.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<N>())
        else {
            return false;
        };
        *target = bytes;
        memory.dirty[at as usize >> DIRTY_SHIFT] = 1;
        memory.dirty[(at as usize + N - 1) >> DIRTY_SHIFT] = 1;
        true
    }
}
