//! Verified code: words, functions, and the tables that map a word back to WebAssembly.
//!
//! Contract: a [`Code`] needs a [`Proof`], which only `verify` can make. Elsewhere: the encoding of
//! words (`op`), their execution (`machine`).

use wavelock_abi::Cycles;

use crate::encode::Draft;
use crate::op::{Form, Op, Word};
use crate::verify::Proof;

/// One lowered function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its type, by index in the module.
    pub type_index: u32,
    /// The word of its `enter` instruction.
    pub entry: u32,
    /// One past its last word.
    pub end: u32,
    /// Number of parameters. They are registers `0..parameters`; register `parameters` holds the
    /// frame's link.
    pub parameters: u16,
    /// Number of results.
    pub results: u16,
    /// Registers of its window: parameters, link, locals, operands.
    pub registers: u16,
    /// The first register that holds an operand; below are parameters, link and locals.
    pub first_operand: u16,
    /// Byte offset of its body in the module.
    pub offset: u32,
    /// Bytes of its body in the module.
    pub size: u32,
    /// Cycles of all its blocks, each counted once: a measure of its size in the unit of cost.
    pub cost: u64,
}

/// A word at which a coroutine can be suspended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopPoint {
    /// The word.
    pub word: u32,
    /// Registers below this are live, except those listed dead.
    pub live: u16,
    /// Number of its entries in the list of dead registers.
    pub dead_count: u16,
    /// Index of the first.
    pub dead_start: u32,
}

/// An instruction that can stop or fault, in terms of the WebAssembly code: snapshots use it, so
/// that another lowering of the same module can resume them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The function's index in the module.
    pub function: u32,
    /// Byte offset of the WebAssembly instruction in the module.
    pub offset: u32,
    /// Index among the instructions that it was lowered to, of those that can stop or fault.
    pub occurrence: u16,
}

/// The callee of a call instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// A function, by index in the module.
    Function(u32),
    /// An element of a table, of this type index.
    Indirect(u32),
}

/// Classes of blocks by cost: class i holds costs of i bits, so class 0 is free and class i is
/// `2^(i-1)..2^i` cycles.
pub const BLOCK_CLASSES: usize =
    u64::BITS as usize - wavelock_abi::MAX_GAP.0.leading_zeros() as usize + 1;

/// The lowered code of a whole module, verified.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    draft: Draft,
}

impl Code {
    pub(crate) fn new(draft: Draft, _: Proof) -> Self {
        Self { draft }
    }

    /// A copy as a draft, to change and verify again.
    pub(crate) fn to_draft(&self) -> Draft {
        self.draft.clone()
    }

    /// The words.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.draft.words
    }

    /// Makes the instruction at `word` trap. Its fields stay.
    pub(crate) fn set_breakpoint(&mut self, word: u32) {
        let found = &mut self.draft.words[word as usize];
        *found = *found & !0xffff | Op::Unreachable as u64;
    }

    /// Copies the first word of an instruction from `original`.
    pub(crate) fn restore(&mut self, word: u32, original: &Self) {
        self.draft.words[word as usize] = original.draft.words[word as usize];
    }

    /// The functions that the module defines, without imports, in index order.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.draft.functions
    }

    /// The function that contains `word`, as an index into [`Code::functions`].
    #[must_use]
    pub fn function_at(&self, word: u32) -> Option<usize> {
        let functions = &self.draft.functions;
        let index = functions.partition_point(|function| function.entry <= word).checked_sub(1)?;
        (word < functions[index].end).then_some(index)
    }

    /// The byte offset in the module of the instruction that contains `word`, if it can stop or
    /// fault.
    #[must_use]
    pub fn offset_at(&self, word: u32) -> Option<u32> {
        let marks = &self.draft.marks;
        let after = marks.partition_point(|mark| mark.0 <= word);
        after.checked_sub(1).map(|index| marks[index].1)
    }

    /// The position of the instruction at exactly this word, if it can stop or fault. Function
    /// numbers count from the first that is not imported.
    #[must_use]
    pub fn position(&self, word: u32) -> Option<Position> {
        let marks = &self.draft.marks;
        let index = marks.binary_search_by_key(&word, |mark| mark.0).ok()?;
        let function = self.function_at(word)?;
        let (entry, offset) = (self.draft.functions[function].entry, marks[index].1);
        let before =
            marks[..index].iter().rev().take_while(|mark| mark.1 == offset && mark.0 >= entry);
        let occurrence = u16::try_from(before.count()).ok()?;
        Some(Position { function: function as u32, offset, occurrence })
    }

    /// The word at a position, if it exists.
    #[must_use]
    pub fn word_at(&self, position: Position) -> Option<u32> {
        let function = self.draft.functions.get(position.function as usize)?;
        let marks = &self.draft.marks;
        let first = marks.partition_point(|mark| mark.0 < function.entry);
        let end = marks.partition_point(|mark| mark.0 < function.end);
        let marks = &marks[first..end];
        // Ascending (V10).
        let first = marks.partition_point(|mark| mark.1 < position.offset);
        let &(word, offset) = marks.get(first + usize::from(position.occurrence))?;
        (offset == position.offset).then_some(word)
    }

    /// The stop point at exactly this word.
    #[must_use]
    pub fn stop_at(&self, word: u32) -> Option<&StopPoint> {
        let stops = &self.draft.stops;
        stops.binary_search_by_key(&word, |stop| stop.word).ok().map(|index| &stops[index])
    }

    /// Every stop point, ascending by word.
    #[must_use]
    pub fn stops(&self) -> &[StopPoint] {
        &self.draft.stops
    }

    /// Registers below `stop.live` that are dead at this stop point, ascending.
    #[must_use]
    pub fn dead_at(&self, stop: &StopPoint) -> &[u16] {
        let start = stop.dead_start as usize;
        &self.draft.dead[start..start + usize::from(stop.dead_count)]
    }

    /// The call that returns to this word: the register of its first argument, where the callee's
    /// window starts, and its callee.
    #[must_use]
    pub fn call_returning_to(&self, word: u32) -> Option<(u16, Callee)> {
        let start = word.checked_sub(Form::Call.words())?;
        // Marks are at starts of instructions only.
        self.draft.marks.binary_search_by_key(&start, |mark| mark.0).ok()?;
        let first = Word(*self.draft.words.get(start as usize)?);
        let second = *self.draft.words.get(start as usize + 1)?;
        let callee = match first.op()? {
            Op::Call => Callee::Function((second >> 32) as u32),
            Op::CallImport => Callee::Function(second as u32),
            Op::CallIndirect => Callee::Indirect(second as u32),
            _ => return None,
        };
        Some((first.a(), callee))
    }

    /// `G`: the most cycles that can be charged between two safepoints of this module.
    #[must_use]
    pub fn gap(&self) -> Cycles {
        self.draft.gap
    }

    /// Number of basic blocks of each class of cost (see [`BLOCK_CLASSES`]).
    #[must_use]
    pub fn blocks(&self) -> &[u32; BLOCK_CLASSES] {
        &self.draft.blocks
    }

    /// The first words of all instructions, ascending.
    pub fn instructions(&self) -> impl Iterator<Item = u32> + '_ {
        self.instructions_from(0)
    }

    /// [`Code::instructions`] from one of them on.
    pub(crate) fn instructions_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let words = &self.draft.words;
        let mut at = first;
        core::iter::from_fn(move || {
            let here = at;
            at += length(Word(*words.get(at as usize)?))?;
            Some(here)
        })
    }

    /// The instruction that starts at a word.
    #[must_use]
    pub fn op_at(&self, word: u32) -> Option<Op> {
        Word(*self.draft.words.get(word as usize)?).op()
    }
}

/// Length in words of the instruction that starts with `word`.
pub(crate) fn length(word: Word) -> Option<u32> {
    let op = word.op()?;
    let entries = if op == Op::BranchTable { word.bc().checked_add(1)? } else { 0 };
    op.form().words().checked_add(entries)
}

/// Resuming advances by the same number of words after every kind of call.
const _: () = assert!(
    Form::Call.words() == Form::CallImport.words()
        && Form::Call.words() == Form::CallIndirect.words()
        && Form::Call.words() == Form::ReturnCallImport.words()
);
