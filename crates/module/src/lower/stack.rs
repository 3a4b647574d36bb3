//! The operand stack at lowering time: where each operand is, and the copies to its own register.
//!
//! Operand `depth` has a register of its own, `first_operand + depth`. An entry may instead refer
//! to a local or a constant; it is copied to its register only when the local is about to change,
//! at merge points, or for a call.

use super::Lowering;
use crate::instruction::Instruction;
use crate::op::Op;

/// Where an operand is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// In its own register.
    Placed,
    /// A constant that is in no register.
    Const(u64),
    /// In a local. `below` is 1 + the depth of the next lower entry of the same local, or 0.
    Local { local: u32, below: u32 },
}

/// A popped operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    Register(u16),
    /// These bits, and the register that is free to hold them.
    Const(u64, u16),
}

impl Lowering<'_> {
    pub(super) fn depth(&self) -> usize {
        self.scratch.stack.len()
    }

    /// The register of a local: the link sits between parameters and the other locals.
    pub(super) fn local(&self, local: u32) -> u16 {
        (if local < u32::from(self.parameters) { local } else { local + 1 }) as u16
    }

    /// The register of the operand at `depth`. Counts it as used.
    pub(super) fn register(&mut self, depth: usize) -> u16 {
        let register = self.first_operand + depth as u32;
        self.registers = self.registers.max(register + 1);
        register as u16
    }

    pub(super) fn push_placed(&mut self) {
        let depth = self.depth();
        self.register(depth);
        self.scratch.stack.push(Entry::Placed);
    }

    pub(super) fn push_const(&mut self, bits: u64) {
        self.scratch.unplaced.push(self.depth() as u32);
        self.scratch.stack.push(Entry::Const(bits));
    }

    pub(super) fn push_local(&mut self, local: u32) {
        let depth = self.depth() as u32;
        let below = core::mem::replace(&mut self.scratch.heads[local as usize], depth + 1);
        self.scratch.unplaced.push(depth);
        self.scratch.stack.push(Entry::Local { local, below });
    }

    /// Emits an instruction whose result, in register `a`, becomes the new top.
    pub(super) fn push_result(&mut self, mut instruction: Instruction) {
        instruction.a = self.register(self.depth());
        self.emit(instruction);
        self.push_placed();
    }

    /// The same for an instruction that can fault.
    pub(super) fn push_faulting(&mut self, mut instruction: Instruction) {
        instruction.a = self.register(self.depth());
        self.emit_faulting(instruction);
        self.push_placed();
    }

    /// Takes the top entry.
    pub(super) fn pop(&mut self) -> Entry {
        let entry = self.scratch.stack.pop().expect("the validator checked the operand stack");
        if let Entry::Local { local, below } = entry {
            self.scratch.heads[local as usize] = below;
        }
        while self
            .scratch
            .unplaced
            .last()
            .is_some_and(|&depth| depth as usize >= self.scratch.stack.len())
        {
            self.scratch.unplaced.pop();
        }
        self.without_locals = self.without_locals.min(self.scratch.stack.len());
        entry
    }

    pub(super) fn pop_operand(&mut self) -> Operand {
        let entry = self.pop();
        let own = self.register(self.depth());
        match entry {
            Entry::Placed => Operand::Register(own),
            Entry::Local { local, .. } => Operand::Register(self.local(local)),
            Entry::Const(bits) => Operand::Const(bits, own),
        }
    }

    /// Takes the top operand in a register, loading a constant if it is one.
    pub(super) fn pop_register(&mut self) -> u16 {
        let operand = self.pop_operand();
        self.operand_register(operand)
    }

    pub(super) fn operand_register(&mut self, operand: Operand) -> u16 {
        match operand {
            Operand::Register(register) => register,
            Operand::Const(bits, free) => {
                self.emit_const(free, bits);
                free
            }
        }
    }

    pub(super) fn emit_const(&mut self, target: u16, bits: u64) {
        self.emit(match u32::try_from(bits) {
            Ok(narrow) => Instruction::with_index(Op::Const32, target, narrow),
            Err(_) => Instruction::new(Op::Const64, target, 0, 0).wide(bits),
        });
    }

    pub(super) fn emit_copy(&mut self, target: u16, source: u16) {
        if target != source {
            self.emit(Instruction::new(Op::Copy, target, source, 0));
        }
    }

    /// Drops entries down to `depth`.
    pub(super) fn truncate(&mut self, depth: usize) {
        while self.depth() > depth {
            self.pop();
        }
    }

    /// Puts the entry at `depth` into its own register. Entries must be placed from the top down: a
    /// local's entry is then the head of its list.
    fn place(&mut self, depth: usize) {
        let target = self.register(depth);
        match self.scratch.stack[depth] {
            Entry::Placed => return,
            Entry::Const(bits) => self.emit_const(target, bits),
            Entry::Local { local, below } => {
                self.scratch.heads[local as usize] = below;
                let source = self.local(local);
                self.emit_copy(target, source);
            }
        }
        self.scratch.stack[depth] = Entry::Placed;
    }

    /// Puts the top `count` entries into their own registers.
    pub(super) fn place_top(&mut self, count: usize) {
        let bottom = self.depth() - count;
        for depth in (bottom..self.depth()).rev() {
            self.place(depth);
        }
    }

    /// Puts every entry into its own register.
    pub(super) fn place_all(&mut self) {
        while let Some(depth) = self.scratch.unplaced.pop() {
            self.place(depth as usize);
        }
    }

    /// Gives constants among the top `count` entries their registers.
    pub(super) fn place_constants(&mut self, count: usize) {
        let bottom = self.depth() - count;
        for depth in bottom..self.depth() {
            if let Entry::Const(_) = self.scratch.stack[depth] {
                self.place(depth);
            }
        }
    }

    /// Copies all operands in locals to their registers, before a block that may change the locals.
    pub(super) fn spill_locals(&mut self) {
        for depth in (self.without_locals..self.depth()).rev() {
            if let Entry::Local { .. } = self.scratch.stack[depth] {
                self.place(depth);
            }
        }
        self.without_locals = self.depth();
    }

    /// Copies all operands in `local` to their registers, before the local changes.
    fn preserve(&mut self, local: u32) {
        let source = self.local(local);
        let mut next = core::mem::take(&mut self.scratch.heads[local as usize]);
        while next != 0 {
            let depth = next as usize - 1;
            let Entry::Local { below, .. } = self.scratch.stack[depth] else {
                unreachable!("a local's list holds its entries")
            };
            let target = self.register(depth);
            self.emit_copy(target, source);
            self.scratch.stack[depth] = Entry::Placed;
            next = below;
        }
    }

    /// `local.set`: pops into the local.
    pub(super) fn set_local(&mut self, local: u32) {
        let entry = self.pop();
        let target = self.local(local);
        if let Entry::Local { local: same, .. } = entry
            && same == local
        {
            return;
        }
        let own = self.register(self.depth());
        self.preserve(local);
        match entry {
            Entry::Placed => self.emit_copy(target, own),
            Entry::Const(bits) => self.emit_const(target, bits),
            Entry::Local { local: other, .. } => {
                let source = self.local(other);
                self.emit_copy(target, source);
            }
        }
    }

    /// `local.tee`: the same, and the local (or the constant) stays on top.
    pub(super) fn tee_local(&mut self, local: u32) {
        let top = self.scratch.stack.last().copied();
        self.set_local(local);
        match top {
            Some(Entry::Const(bits)) => self.push_const(bits),
            _ => self.push_local(local),
        }
    }

    /// Copies the top `count` entries, unchanged on the stack, to consecutive registers from that
    /// of depth `bottom` on.
    pub(super) fn copy_top(&mut self, count: usize, bottom: usize) {
        let from = self.depth() - count;
        if from == bottom && self.is_placed(count) {
            return;
        }
        let mut at = 0;
        while at < count {
            let target = self.register(bottom + at);
            let run = (at..count)
                .take_while(|&next| self.scratch.stack[from + next] == Entry::Placed)
                .count();
            if run > 1 && from != bottom {
                let source = self.register(from + at);
                self.emit(Instruction::new(Op::CopyRange, target, source, run as u16));
                at += run;
                continue;
            }
            let source = self.register(from + at);
            match self.scratch.stack[from + at] {
                Entry::Placed => self.emit_copy(target, source),
                Entry::Const(bits) => self.emit_const(target, bits),
                Entry::Local { local, .. } => {
                    let source = self.local(local);
                    self.emit_copy(target, source);
                }
            }
            at += 1;
        }
    }

    /// How many of the top `count` entries are not in their own registers.
    pub(super) fn count_unplaced(&self, count: usize) -> usize {
        self.scratch.stack[self.depth() - count..]
            .iter()
            .filter(|entry| **entry != Entry::Placed)
            .count()
    }

    /// Whether the top `count` entries are all in their own registers.
    pub(super) fn is_placed(&self, count: usize) -> bool {
        self.count_unplaced(count) == 0
    }

    /// The register of the top operand, which stays; a constant is put into its own.
    pub(super) fn peek_register(&mut self) -> u16 {
        let depth = self.depth() - 1;
        let own = self.register(depth);
        match self.scratch.stack[depth] {
            Entry::Placed => own,
            Entry::Local { local, .. } => self.local(local),
            Entry::Const(bits) => {
                self.emit_const(own, bits);
                own
            }
        }
    }
}
