//! What lowering produces: words, functions, and the side tables that map a place in the words back to WebAssembly.
//!
//! The words themselves are described by `op`; nothing here runs them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::Cycles;

use crate::op::{Form, Op, Word};

/// One lowered function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its type, by index in the module.
    pub type_index: u32,
    /// The word of its `enter` instruction.
    pub entry: u32,
    /// One past its last word.
    pub end: u32,
    /// Number of parameters. They are registers `0..parameters`; register `parameters` holds the frame's link.
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

/// A place where a coroutine can stand between two calls of `run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopPoint {
    /// The word it stands at.
    pub word: u32,
    /// Registers below this are live, except those listed dead.
    pub live: u16,
    /// How many entries of the dead list belong to it.
    pub dead_count: u16,
    /// Where they start.
    pub dead_start: u32,
}

/// Whom a call names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// A function, by index in the module.
    Function(u32),
    /// Whatever a table holds, of this type index.
    Indirect(u32),
}

/// Classes of blocks by cost: class i holds costs of i bits, so class 0 is free and class i is `2^(i-1)..2^i` cycles.
pub const BLOCK_CLASSES: usize = u64::BITS as usize - wavelock_abi::MAX_GAP.0.leading_zeros() as usize + 1;

/// The lowered code of a whole module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    /// All functions' words, one after the other.
    pub(crate) words: Box<[u64]>,
    /// The functions that the module defines, in index order.
    pub(crate) functions: Box<[Function]>,
    /// (word, byte offset in the module), ascending: instructions that can stop or fault.
    pub(crate) offsets: Box<[(u32, u32)]>,
    /// Ascending by word.
    pub(crate) stops: Box<[StopPoint]>,
    /// Dead registers of stop points.
    pub(crate) dead: Box<[u16]>,
    /// The longest gap between safepoints, in cycles.
    pub(crate) gap: Cycles,
    /// Blocks by cost.
    pub(crate) blocks: [u32; BLOCK_CLASSES],
}

impl Code {
    /// The words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The functions that the module defines, without imports, in index order.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The defined function (its place in [`Code::functions`]) whose code holds `word`.
    #[must_use]
    pub fn function_at(&self, word: u32) -> Option<usize> {
        let after = self.functions.partition_point(|function| function.entry <= word);
        let index = after.checked_sub(1)?;
        (word < self.functions[index].end).then_some(index)
    }

    /// The byte offset in the module of the instruction that holds `word`, if it is one that can stop or fault.
    #[must_use]
    pub fn offset_at(&self, word: u32) -> Option<u32> {
        let after = self.offsets.partition_point(|entry| entry.0 <= word);
        after.checked_sub(1).map(|index| self.offsets[index].1)
    }

    /// The stop point at exactly this word.
    #[must_use]
    pub fn stop_at(&self, word: u32) -> Option<&StopPoint> {
        self.stops.binary_search_by_key(&word, |stop| stop.word).ok().map(|index| &self.stops[index])
    }

    /// Every stop point, ascending by word.
    #[must_use]
    pub fn stops(&self) -> &[StopPoint] {
        &self.stops
    }

    /// Registers below `stop.live` that hold nothing at this stop point, ascending.
    #[must_use]
    pub fn dead_at(&self, stop: &StopPoint) -> &[u16] {
        let start = stop.dead_start as usize;
        &self.dead[start..start + usize::from(stop.dead_count)]
    }

    /// The call that returns to exactly this word: its first argument's register, where the callee's window starts, and whom it names.
    #[must_use]
    pub fn call_returning_to(&self, word: u32) -> Option<(u16, Callee)> {
        let start = word.checked_sub(Form::Call.words())?;
        // Only starts of instructions are in this list, so the word there is one.
        self.offsets.binary_search_by_key(&start, |entry| entry.0).ok()?;
        let first = Word(*self.words.get(start as usize)?);
        let second = *self.words.get(start as usize + 1)?;
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
        self.gap
    }

    /// How many basic blocks there are of each class of cost (see [`BLOCK_CLASSES`]).
    #[must_use]
    pub fn blocks(&self) -> &[u32; BLOCK_CLASSES] {
        &self.blocks
    }
}

/// What lowering appends to, function by function.
#[derive(Default)]
pub(crate) struct CodeBuilder {
    pub(crate) words: Vec<u64>,
    pub(crate) functions: Vec<Function>,
    pub(crate) offsets: Vec<(u32, u32)>,
    pub(crate) stops: Vec<StopPoint>,
    pub(crate) dead: Vec<u16>,
    pub(crate) gap: u64,
    pub(crate) blocks: [u32; BLOCK_CLASSES],
    /// (word that holds an entry in its lower half, defined function), patched when all entries are known.
    pub(crate) calls: Vec<(u32, u32)>,
}

impl CodeBuilder {
    /// What is known only when all targets and costs are: makes the targets of jumps and branches distances from the instruction, so that whoever runs it need not know
    /// where the code begins; and says how calls of imports go on, and what comes just before them.
    fn relate(&mut self) {
        let (mut before, mut at) = (0, 0);
        while let Some(&word) = self.words.get(at) {
            let op = Word(word).op().expect("an instruction begins where the one before it ends");
            let mut next = at + op.form().words() as usize;
            let targets = match op.form() {
                Form::Jump | Form::BranchOne | Form::BranchTwo | Form::BranchConst | Form::LoopTwo | Form::LoopConst | Form::LoopLong => 1,
                Form::BranchTable => {
                    let entries = Word(word).bc() as usize + 1;
                    next += entries;
                    entries
                }
                Form::CallImport => {
                    let (distance, cycles) = self.after_zero(at);
                    self.words[at] |= u64::from(distance) << 48;
                    self.words[at + 1] |= u64::from(cycles) << 32;
                    self.call_with(before, at - before, distance);
                    0
                }
                Form::Binary | Form::BinaryConst => {
                    self.load_and_add(before, at);
                    0
                }
                _ => 0,
            };
            for word in &mut self.words[at + 1..at + 1 + targets] {
                *word = *word & !0xffff_ffff | u64::from((*word as u32).wrapping_sub(at as u32));
            }
            (before, at) = (at, next);
        }
    }

    /// Makes the load at `before` do the addition at `at` too, which is of what it has loaded. Both stay where they are.
    fn load_and_add(&mut self, before: usize, at: usize) {
        let (load, add) = (Word(self.words[before]), Word(self.words[at]));
        let op = match (load.op(), add.op()) {
            (Some(Op::Load32), Some(Op::I32AddConst)) if load.a() == add.b() => Op::Load32AddConst,
            (Some(Op::Load64), Some(Op::I64AddConst)) if load.a() == add.b() => Op::Load64AddConst,
            // A constant load's own instruction is its second word.
            (Some(Op::ConstLoad32), Some(Op::I32Add)) if Word(self.words[before + 1]).a() == add.c() => Op::ConstLoad32Add,
            (Some(Op::ConstLoad64), Some(Op::I64Add)) if Word(self.words[before + 1]).a() == add.c() => Op::ConstLoad64Add,
            _ => return,
        };
        self.words[before] = load.with_op(op).0;
    }

    /// Makes what is at `at`, so many words before a call of an import, do that call too if it places its two arguments, or the first of them: they are at hand then.
    /// Both stay where they are, since a coroutine can stand at the call, which goes on at `distance` if the answer is 0.
    fn call_with(&mut self, at: usize, words: usize, distance: u16) {
        let (word, call) = (Word(self.words[at]), Word(self.words[at + words]));
        let Some(distance) = distance.checked_add(words as u16) else { return };
        if call.b() != 2 {
            return;
        }
        // Arguments are placed from the last to the first.
        let (first, over) = (call.a(), u64::from(distance));
        let places = |target: u16| word.a() == first + 1 && target == first;
        match word.op() {
            Some(Op::Copy) if word.a() == first => self.words[at] = word.with_op(Op::CopyCall).0 | over << 48,
            Some(Op::CopyTwo) if places(word.c()) => {
                self.words[at] = word.with_op(Op::CopyTwoCall).0;
                self.words[at + 1] |= over << 16;
            }
            Some(Op::ConstCopy) if places(Word(self.words[at + 1]).a()) => {
                self.words[at] = word.with_op(Op::ConstCopyCall).0;
                self.words[at + 1] |= over << 48;
            }
            _ => {}
        }
    }

    /// Where the call of an import at `at` goes on if it is answered with 0, in words from there, and what that charges: behind the safepoint that follows, or also behind
    /// a branch that follows that and asks about the answer, as guests do that look for errors. Targets are still places.
    fn after_zero(&self, at: usize) -> (u16, u32) {
        let (first, behind) = (Word(self.words[at]).a(), at + Form::CallImport.words() as usize);
        let safepoint = Word(self.words[behind]);
        debug_assert_eq!(safepoint.op(), Some(Op::Safepoint));
        let plain = (Form::CallImport.words() as u16 + 1, safepoint.bc());
        let Some(&[branch, taken, fallen]) = self.words.get(behind + 1..behind + 4) else { return plain };
        let branch = Word(branch);
        let goes = match branch.op() {
            Some(op) if branch.a() == first => op.goes_for_zero(branch.c() as i16),
            _ => None,
        };
        let (to, cycles) = match goes {
            Some(true) => (taken as u32 as usize, (taken >> 32) as u32),
            Some(false) => (behind + 4, fallen as u32),
            None => return plain,
        };
        // Forwards only: behind a loop header it might have to stop.
        match (to.checked_sub(at).map(u16::try_from), safepoint.bc().checked_add(cycles)) {
            (Some(Ok(distance)), Some(cycles)) => (distance, cycles),
            _ => plain,
        }
    }

    /// Patches direct calls and seals the code.
    pub(crate) fn finish(mut self) -> Code {
        for &(word, function) in &self.calls {
            self.words[word as usize] |= u64::from(self.functions[function as usize].entry);
        }
        self.relate();
        Code {
            words: self.words.into_boxed_slice(),
            functions: self.functions.into_boxed_slice(),
            offsets: self.offsets.into_boxed_slice(),
            stops: self.stops.into_boxed_slice(),
            dead: self.dead.into_boxed_slice(),
            gap: Cycles(self.gap),
            blocks: self.blocks,
        }
    }
}
