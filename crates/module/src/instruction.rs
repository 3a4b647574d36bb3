//! The intermediate representation: lowering produces it, the peephole pass rewrites it, `encode`
//! turns it into words.
//!
//! A function is a list of [`Instruction`]s with numbered labels and blocks. Costs, targets and
//! word positions are resolved when the list is encoded.

use alloc::vec::Vec;

use crate::op::Op;

/// No stop point, no byte offset, no position.
pub(crate) const NONE: u32 = u32::MAX;

/// A position in a function's list that branches go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(pub(crate) u32);

/// A basic block of the WebAssembly code: the unit of charging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block(pub(crate) u32);

/// The successors of an instruction, and the blocks it charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// To the next instruction; it charges nothing.
    Next,
    /// To the next instruction, the first of this block: `enter`, `charge`, `safepoint`.
    Charge(Block),
    /// To a label.
    Jump { to: Label, charge: Block },
    /// To a label if the condition holds, otherwise to the next instruction.
    Branch(Branch),
    /// To one of `count` entries of the function's list of table entries.
    Table { first: u32, count: u32 },
}

/// A conditional branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Branch {
    pub(crate) to: Label,
    pub(crate) taken: Block,
    /// Charged on top of `taken`: the body of a loop that the branch enters past its header.
    pub(crate) body: Option<Block>,
    /// Charged when the branch is not taken.
    pub(crate) fallen: Option<Block>,
    /// The loop header, a safepoint, at which a backward branch stops without cycles left.
    pub(crate) header: Option<Label>,
}

/// An entry of a branch table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) to: Label,
    /// Charged on the edge; `None` for a target in the same block.
    pub(crate) charge: Option<Block>,
    /// The label is a loop's.
    pub(crate) is_loop: bool,
}

/// One lowered instruction. Its form defines the meaning of `a`, `b`, `c` and `wide`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    /// The second word of forms that have one: a constant, an offset, an index, a third register.
    pub(crate) wide: u64,
    pub(crate) flow: Flow,
    /// Byte offset in the module if the instruction can stop or fault, otherwise [`NONE`].
    pub(crate) offset: u32,
    /// Its stop point in the function's list, or [`NONE`].
    pub(crate) stop: u32,
}

impl Instruction {
    pub(crate) const fn new(op: Op, a: u16, b: u16, c: u16) -> Self {
        Self { op, a, b, c, wide: 0, flow: Flow::Next, offset: NONE, stop: NONE }
    }

    /// With a 32-bit value in `b` and `c`.
    pub(crate) const fn with_index(op: Op, a: u16, index: u32) -> Self {
        Self::new(op, a, index as u16, (index >> 16) as u16)
    }

    pub(crate) const fn wide(mut self, wide: u64) -> Self {
        self.wide = wide;
        self
    }

    pub(crate) const fn flow(mut self, flow: Flow) -> Self {
        self.flow = flow;
        self
    }

    /// Fields b and c as one number.
    pub(crate) const fn bc(&self) -> u32 {
        self.b as u32 | (self.c as u32) << 16
    }
}

/// A stop point of a function that is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// Registers below this are live, except the dead ones.
    pub(crate) live: u16,
    /// Its dead registers in the code's list.
    pub(crate) dead_start: u32,
    pub(crate) dead_count: u16,
}

/// The cost of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockCost {
    /// Cycles of its own instructions.
    pub(crate) cycles: u32,
    /// The block it is an alias of; itself if it is none.
    pub(crate) alias: u32,
    /// The block that control falls into, charged on entering this one; or [`NONE`].
    pub(crate) carries: u32,
}

/// A function as a list of instructions.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) instructions: Vec<Instruction>,
    /// By label: the index of its instruction, or [`NONE`] until it is bound.
    pub(crate) labels: Vec<u32>,
    /// By label: whether it is a target.
    pub(crate) is_used: Vec<bool>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) stops: Vec<Stop>,
    pub(crate) blocks: Vec<BlockCost>,
    /// The first operand register. An instruction that reads one pops the operand, so it is the
    /// last reader; except for copies of values that a branch carries. Those are after the
    /// conditional branch that is not taken, or before a jump: never between the operand's writer
    /// and another reader.
    pub(crate) first_operand: u16,
}

impl Body {
    pub(crate) fn clear(&mut self) {
        self.instructions.clear();
        self.labels.clear();
        self.is_used.clear();
        self.entries.clear();
        self.stops.clear();
        self.blocks.clear();
    }

    pub(crate) fn new_label(&mut self) -> Label {
        self.labels.push(NONE);
        self.is_used.push(false);
        Label(self.labels.len() as u32 - 1)
    }

    /// Binds a label to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = self.instructions.len() as u32;
    }

    /// Binds a label to the last instruction.
    pub(crate) fn bind_last(&mut self, label: Label) {
        self.labels[label.0 as usize] = self.instructions.len() as u32 - 1;
    }

    /// The label, marked as used.
    pub(crate) fn target(&mut self, label: Label) -> Label {
        self.is_used[label.0 as usize] = true;
        label
    }

    pub(crate) fn new_block(&mut self) -> Block {
        let block = self.blocks.len() as u32;
        self.blocks.push(BlockCost { cycles: 0, alias: block, carries: NONE });
        Block(block)
    }

    /// The index of the block that `block` is an alias of.
    pub(crate) fn named(&self, block: Block) -> usize {
        let mut at = block.0;
        while self.blocks[at as usize].alias != at {
            at = self.blocks[at as usize].alias;
        }
        at as usize
    }
}
