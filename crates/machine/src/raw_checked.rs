//! The twin of `raw.rs` under the feature `checked`: the same names, every access with the ordinary checks, no unsafe code.

use wavelock_module::{Op, Word};

use crate::memory::{DIRTY_SHIFT, Memory};

/// The instruction of a word of lowered code.
#[inline(always)]
pub(crate) fn op(word: Word) -> Op {
    word.op().expect("lowering writes the number of an instruction")
}

/// The words of a module's code.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [u64]) -> Self {
        Self(words)
    }

    /// The word at `at`.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u64 {
        self.0[at]
    }
}

/// The registers of the running function: the stack from some slot on.
pub(crate) struct Window<'a> {
    stack: &'a mut [u64],
    position: usize,
}

impl<'a> Window<'a> {
    /// A window whose register 0 is slot `at`.
    pub(crate) fn new(stack: &'a mut [u64], at: usize) -> Self {
        assert!(at <= stack.len(), "a window starts inside its stack");
        Self { stack, position: at }
    }

    /// Where register 0 is in the stack.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// How many slots there are from register 0 to the end of the stack.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.stack.len() - self.position
    }

    #[inline(always)]
    pub(crate) fn get(&self, register: usize) -> u64 {
        self.stack[self.position + register]
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, register: usize, value: u64) {
        self.stack[self.position + register] = value;
    }

    /// Moves to the callee's window.
    #[inline(always)]
    pub(crate) fn advance(&mut self, distance: usize) {
        self.position += distance;
    }

    /// Moves back to the caller's window.
    #[inline(always)]
    pub(crate) fn retreat(&mut self, distance: usize) {
        self.position -= distance;
    }

    /// Clears `count` registers.
    #[inline(always)]
    pub(crate) fn clear(&mut self, register: usize, count: usize) {
        let start = self.position + register;
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

    /// `N` bytes at `at`, unless any is outside.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.0.as_ref()?.bytes.get(at as usize..)?.first_chunk::<N>().copied()
    }

    /// Writes `N` bytes at `at` and marks their pages, or answers `false` if any is outside.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, at: u64, bytes: [u8; N]) -> bool {
        let Some(memory) = self.0.as_mut() else { return false };
        let Some(target) = memory.bytes.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<N>()) else { return false };
        *target = bytes;
        memory.dirty[at as usize >> DIRTY_SHIFT] = 1;
        memory.dirty[(at as usize + N - 1) >> DIRTY_SHIFT] = 1;
        true
    }
}
