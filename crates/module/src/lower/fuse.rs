//! Instructions that do the work of two: a multiply and an add, an address computed just before it is used, a counter stepped just before
//! it is tested.
//!
//! The first of the two was emitted already; it is taken back and the fused one emitted in its place. That is done only if its
//! result is the operand at hand and nothing else has been emitted since, so no one can tell but by speed.

use super::Lowering;
use super::compare::{Condition, Width};
use super::stack::{Entry, Operand};
use crate::op::{Form, Op, Word};

/// How an address was computed.
enum Address {
    /// `base + (index << shift)`.
    Scaled { base: u16, index: u16, shift: u32 },
    /// `base + constant`.
    Plus { base: u16, constant: u32 },
}

impl Lowering<'_> {
    /// The instruction that made the operand `below` entries under the top, if it was the last one: its place and words.
    fn maker(&self, below: usize) -> Option<(u32, Word, u64)> {
        let (word, depth) = self.producer?;
        let at = self.depth().checked_sub(below + 1)?;
        if depth != at || self.scratch.stack[at] != Entry::Placed {
            return None;
        }
        let second = self.code.words.get(word as usize + 1).copied().unwrap_or(0);
        Some((word, Word(self.code.words[word as usize]), second))
    }

    /// A binary instruction of the two operands on top, one of which may have been made by a multiply or a shift just before.
    pub(super) fn fuse_binary(&mut self, op: Op) -> bool {
        for below in [0, 1] {
            let Some((word, made, second)) = self.maker(below) else { continue };
            let other = self.scratch.stack[self.depth() - 2 + below];
            let (b, c) = (made.b(), made.c());
            match (op, made.op()) {
                (Op::I32Add, Some(Op::I32MulConst)) => {
                    let other = self.take_back(word, below);
                    match other {
                        Operand::Const(bits, _) => self.push_result_two(Op::I32MulAddConst, b, 0, second | bits << 32),
                        Operand::Register(register) => self.push_result_two(Op::I32MulConstAdd, b, register, second),
                    }
                }
                (Op::I32Add, Some(Op::I32ShlConst)) if !matches!(other, Entry::Const(_)) => {
                    let other = self.take_back(word, below);
                    let other = self.operand_register(other);
                    self.push_result_two(Op::I32AddShl, other, b, second);
                }
                (Op::I32Add, Some(Op::I32Add)) if !matches!(other, Entry::Const(_)) => {
                    let other = self.take_back(word, below);
                    let other = self.operand_register(other);
                    self.push_result_two(Op::I32AddAdd, b, c, u64::from(other));
                }
                (Op::I32Xor, Some(made @ (Op::I32RotlConst | Op::I32ShrUConst | Op::I32ShlConst))) if !matches!(other, Entry::Const(_)) => {
                    let op = match made {
                        Op::I32RotlConst => Op::I32XorRotl,
                        Op::I32ShrUConst => Op::I32XorShrU,
                        _ => Op::I32XorShl,
                    };
                    let other = self.take_back(word, below);
                    let other = self.operand_register(other);
                    self.push_result_two(op, other, b, second);
                }
                (Op::F32Add, Some(Op::F32Mul)) | (Op::F64Add, Some(Op::F64Mul)) => {
                    let other = self.take_back(word, below);
                    let other = self.register_beyond(other);
                    let op = if op == Op::F32Add { Op::F32MulAdd } else { Op::F64MulAdd };
                    self.push_result_two(op, b, c, u64::from(other));
                }
                _ => continue,
            }
            return true;
        }
        false
    }

    /// Takes back the instruction that made one of the two operands on top, pops both and answers the other.
    fn take_back(&mut self, word: u32, below: usize) -> Operand {
        self.retract(word);
        let right = self.pop_operand();
        let left = self.pop_operand();
        if below == 0 { left } else { right }
    }

    /// An operand in a register. A constant goes beyond the two registers that operands of what was taken back may be in.
    fn register_beyond(&mut self, operand: Operand) -> u16 {
        match operand {
            Operand::Register(register) => register,
            Operand::Const(bits, _) => {
                let free = self.register(self.depth() + 3);
                self.emit_const(free, bits);
                free
            }
        }
    }

    fn address(made: Word, second: u64) -> Option<Address> {
        match made.op()? {
            Op::I32Add => Some(Address::Scaled { base: made.b(), index: made.c(), shift: 0 }),
            Op::I32AddShl => Some(Address::Scaled { base: made.b(), index: made.c(), shift: second as u32 }),
            Op::I32AddConst => Some(Address::Plus { base: made.b(), constant: second as u32 }),
            _ => None,
        }
    }

    /// A load whose address was computed just before.
    pub(super) fn fuse_load(&mut self, near: Op, offset: u32) -> bool {
        let (scaled, plus) = match near {
            Op::Load32 => (Op::Load32Scaled, Op::Load32Plus),
            Op::Load64 => (Op::Load64Scaled, Op::Load64Plus),
            Op::Load8U => (Op::Load8UScaled, Op::Load8UPlus),
            Op::Load16U => (Op::Load16UScaled, Op::Load16UPlus),
            _ => return false,
        };
        let Some((word, made, second)) = self.maker(0) else { return false };
        let Some(address) = Self::address(made, second) else { return false };
        self.retract(word);
        self.pop();
        self.mark_offset();
        let offset = u64::from(offset) << 32;
        match address {
            Address::Scaled { base, index, shift } => self.push_result_two(scaled, base, index, u64::from(shift) | offset),
            Address::Plus { base, constant } => self.push_result_two(plus, base, 0, u64::from(constant) | offset),
        }
        true
    }

    /// A store of a small constant, or one whose address was computed just before.
    pub(super) fn fuse_store(&mut self, near: Op, offset: u32) -> bool {
        let (scaled, plus, constant) = match near {
            Op::Store8 => (Op::Store8Scaled, Op::Store8Plus, Op::Store8Const),
            Op::Store16 => (Op::Store16Scaled, Op::Store16Plus, Op::Store16Const),
            Op::Store32 => (Op::Store32Scaled, Op::Store32Plus, Op::Store32Const),
            _ => (Op::Store64Scaled, Op::Store64Plus, Op::Store64Const),
        };
        if let Some((word, made, second)) = self.maker(1)
            && let Some(address) = Self::address(made, second)
        {
            self.retract(word);
            let value = self.pop_operand();
            self.pop();
            let value = self.register_beyond(value);
            self.mark_offset();
            let offset = u64::from(offset) << 32;
            match address {
                Address::Scaled { base, index, shift } => {
                    self.emit_two(Word::new(scaled, value, base, index), u64::from(shift) | offset);
                }
                Address::Plus { base, constant } => {
                    self.emit_two(Word::new(plus, value, base, 0), u64::from(constant) | offset);
                }
            }
            return true;
        }
        if let Some(&Entry::Const(bits)) = self.scratch.stack.last()
            && let Ok(offset) = u16::try_from(offset)
            && let Some(small) = small(near, bits)
        {
            self.pop();
            let address = self.pop_register();
            self.mark_offset();
            self.emit(Word::new(constant, small as u16, address, offset));
            return true;
        }
        false
    }

    /// A branch back to a loop header; if it tests a counter stepped just before, one instruction does both.
    pub(super) fn emit_loop_branch(&mut self, condition: Condition, header: u32) -> u32 {
        let step = self.history[0].and_then(|word| self.step(word));
        if let Some((word, width, counter, step)) = step
            && let Some(fused) = fused_loop(condition, width, counter, step)
        {
            self.retract(word);
            let branch = self.emit_branch_words(fused, header);
            let unused = fused.op().map_or(0, |op| op.form().words() - Form::BranchOne.words());
            self.code.words.resize(self.code.words.len() + unused as usize, 0);
            return branch;
        }
        self.emit_branch(condition, header)
    }

    /// The instruction at `word` as a counter's step: `counter = counter + step`, the step small.
    fn step(&self, word: u32) -> Option<(u32, Width, u16, u16)> {
        let made = Word(self.code.words[word as usize]);
        let constant = || self.code.words[word as usize + 1];
        let (width, step) = match made.op()? {
            Op::I32AddConst => (Width::W32, i64::from(constant() as u32 as i32)),
            Op::I64AddConst => (Width::W64, constant() as i64),
            _ => return None,
        };
        let step = i16::try_from(step).ok()?;
        (made.a() == made.b()).then_some((word, width, made.a(), step as u16))
    }
}

/// The constant as 16 bits that extend by sign to what the store writes.
fn small(near: Op, bits: u64) -> Option<i16> {
    match near {
        Op::Store8 => Some(i16::from(bits as i8)),
        Op::Store16 => Some(bits as i16),
        Op::Store32 => i16::try_from(bits as u32 as i32).ok(),
        _ => i16::try_from(bits as i64).ok(),
    }
}

/// The first word of a branch that steps `counter` and tests it, if there is one.
fn fused_loop(condition: Condition, width: Width, counter: u16, step: u16) -> Option<Word> {
    if width == Width::W64 {
        return fused_long_loop(condition, counter, step);
    }
    match condition {
        Condition::One(Op::BranchIf, register) if register == counter => Some(Word::new(Op::LoopI32NeZero, counter, 0, step)),
        Condition::One(..) => None,
        Condition::Two(op, left, right) if left == counter && right != counter => {
            let op = match op {
                Op::BranchI32Ne => Op::LoopI32Ne,
                Op::BranchI32LtS => Op::LoopI32LtS,
                Op::BranchI32LtU => Op::LoopI32LtU,
                Op::BranchI32LeS => Op::LoopI32LeS,
                Op::BranchI32LeU => Op::LoopI32LeU,
                _ => return None,
            };
            Some(Word::new(op, counter, right, step))
        }
        Condition::Two(op, left, right) if right == counter && left != counter => {
            let op = match op {
                Op::BranchI32Ne => Op::LoopI32Ne,
                Op::BranchI32LtS => Op::LoopI32GtS,
                Op::BranchI32LtU => Op::LoopI32GtU,
                Op::BranchI32LeS => Op::LoopI32GeS,
                Op::BranchI32LeU => Op::LoopI32GeU,
                _ => return None,
            };
            Some(Word::new(op, counter, left, step))
        }
        Condition::Const(op, left, constant) if left == counter => {
            let op = match op {
                Op::BranchI32NeConst => Op::LoopI32NeConst,
                Op::BranchI32LtSConst => Op::LoopI32LtSConst,
                Op::BranchI32LtUConst => Op::LoopI32LtUConst,
                Op::BranchI32GtSConst => Op::LoopI32GtSConst,
                Op::BranchI32GtUConst => Op::LoopI32GtUConst,
                _ => return None,
            };
            Some(Word::new(op, counter, constant as u16, step))
        }
        _ => None,
    }
}

/// [`fused_loop`] of a 64-bit counter.
fn fused_long_loop(condition: Condition, counter: u16, step: u16) -> Option<Word> {
    match condition {
        Condition::One(Op::BranchIf, register) if register == counter => Some(Word::new(Op::LoopI64NeZero, counter, 0, step)),
        Condition::Two(Op::BranchI64Ne, left, right) if (left == counter) != (right == counter) => {
            Some(Word::new(Op::LoopI64Ne, counter, if left == counter { right } else { left }, step))
        }
        Condition::Two(Op::BranchI64LtS, left, right) if left == counter && right != counter => {
            Some(Word::new(Op::LoopI64LtS, counter, right, step))
        }
        Condition::Two(Op::BranchI64LtU, left, right) if left == counter && right != counter => {
            Some(Word::new(Op::LoopI64LtU, counter, right, step))
        }
        _ => None,
    }
}
