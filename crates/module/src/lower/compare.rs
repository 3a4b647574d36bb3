//! Comparisons, and their fusion with the branch that consumes them.
//!
//! Every comparison is one of a few: equality, less, less-or-equal between registers; equality, less, greater with a constant. The
//! others are these with operands swapped or the constant moved by one. So each has a negation in the set, except at the ends of a range.

use super::Lowering;
use super::stack::{Entry, Operand};
use crate::op::{Op, Word};

/// A branch condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// A register against zero.
    One(Op, u16),
    /// Two registers.
    Two(Op, u16, u16),
    /// A register and a small constant.
    Const(Op, u16, i16),
}

impl Condition {
    /// The branch instruction for it.
    pub(super) fn op(self) -> Op {
        match self {
            Self::One(op, _) | Self::Two(op, ..) | Self::Const(op, ..) => op,
        }
    }

    /// The opposite condition, if there is one instruction for it.
    pub(super) fn negated(self) -> Option<Self> {
        match self {
            Self::One(Op::BranchIf, register) => Some(Self::One(Op::BranchIfNot, register)),
            Self::One(_, register) => Some(Self::One(Op::BranchIf, register)),
            Self::Two(op, left, right) => {
                let (width, relation) = branch_relation(op, |row| row.3)?;
                let (relation, swap) = relation.negated().between_registers();
                let op = row(width, relation).3?;
                Some(if swap { Self::Two(op, right, left) } else { Self::Two(op, left, right) })
            }
            Self::Const(op, left, constant) => {
                let (width, relation) = branch_relation(op, |row| row.4)?;
                let bits = i64::from(constant) as u64;
                let bits = if width == W::W32 { u64::from(bits as u32) } else { bits };
                let (relation, bits) = relation.negated().with_constant(width, bits)?;
                let signed = if width == W::W32 { i64::from(bits as u32 as i32) } else { bits as i64 };
                Some(Self::Const(row(width, relation).4?, left, i16::try_from(signed).ok()?))
            }
        }
    }
}

/// Width and relation of a fused branch.
fn branch_relation(op: Op, column: impl Fn(&Row) -> Option<Op>) -> Option<(Width, Relation)> {
    let find = |width, rows: &[Row]| rows.iter().find(|row| column(row) == Some(op)).map(|row| (width, row.0));
    find(W::W32, ROWS32).or_else(|| find(W::W64, ROWS64))
}

/// What a comparison asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    Eq,
    Ne,
    LtS,
    LtU,
    GtS,
    GtU,
    LeS,
    LeU,
    GeS,
    GeU,
}

/// The width of an integer comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    W32,
    W64,
}

use Relation as R;
use Width as W;

impl Relation {
    /// The relation with its operands swapped.
    fn swapped(self) -> Self {
        match self {
            R::Eq => R::Eq,
            R::Ne => R::Ne,
            R::LtS => R::GtS,
            R::LtU => R::GtU,
            R::GtS => R::LtS,
            R::GtU => R::LtU,
            R::LeS => R::GeS,
            R::LeU => R::GeU,
            R::GeS => R::LeS,
            R::GeU => R::LeU,
        }
    }

    fn negated(self) -> Self {
        match self {
            R::Eq => R::Ne,
            R::Ne => R::Eq,
            R::LtS => R::GeS,
            R::LtU => R::GeU,
            R::GtS => R::LeS,
            R::GtU => R::LeU,
            R::LeS => R::GtS,
            R::LeU => R::GtU,
            R::GeS => R::LtS,
            R::GeU => R::LtU,
        }
    }

    /// The same relation among those that exist between registers, and whether operands must be swapped.
    fn between_registers(self) -> (Self, bool) {
        match self {
            R::GtS | R::GtU | R::GeS | R::GeU => (self.swapped(), true),
            other => (other, false),
        }
    }

    /// The same question among those that exist with a constant; none at the end of the range.
    fn with_constant(self, width: Width, constant: u64) -> Option<(Self, u64)> {
        let (least_signed, most_signed, most) = match width {
            W::W32 => (u64::from(i32::MIN as u32), i32::MAX as u64, u64::from(u32::MAX)),
            W::W64 => (i64::MIN as u64, i64::MAX as u64, u64::MAX),
        };
        match self {
            R::LeS => (constant != most_signed).then(|| (R::LtS, constant.wrapping_add(1) & most)),
            R::GeS => (constant != least_signed).then(|| (R::GtS, constant.wrapping_sub(1) & most)),
            R::LeU => (constant != most).then(|| (R::LtU, constant + 1)),
            R::GeU => (constant != 0).then(|| (R::GtU, constant - 1)),
            other => Some((other, constant)),
        }
    }
}

/// Rows of (relation, register op, constant op, branch op, branch-constant op) for one width.
type Row = (Relation, Option<Op>, Option<Op>, Option<Op>, Option<Op>);

const ROWS32: &[Row] = &[
    (R::Eq, Some(Op::I32Eq), Some(Op::I32EqConst), Some(Op::BranchI32Eq), Some(Op::BranchI32EqConst)),
    (R::Ne, Some(Op::I32Ne), Some(Op::I32NeConst), Some(Op::BranchI32Ne), Some(Op::BranchI32NeConst)),
    (R::LtS, Some(Op::I32LtS), Some(Op::I32LtSConst), Some(Op::BranchI32LtS), Some(Op::BranchI32LtSConst)),
    (R::LtU, Some(Op::I32LtU), Some(Op::I32LtUConst), Some(Op::BranchI32LtU), Some(Op::BranchI32LtUConst)),
    (R::LeS, Some(Op::I32LeS), None, Some(Op::BranchI32LeS), None),
    (R::LeU, Some(Op::I32LeU), None, Some(Op::BranchI32LeU), None),
    (R::GtS, None, Some(Op::I32GtSConst), None, Some(Op::BranchI32GtSConst)),
    (R::GtU, None, Some(Op::I32GtUConst), None, Some(Op::BranchI32GtUConst)),
];

const ROWS64: &[Row] = &[
    (R::Eq, Some(Op::I64Eq), Some(Op::I64EqConst), Some(Op::BranchI64Eq), Some(Op::BranchI64EqConst)),
    (R::Ne, Some(Op::I64Ne), Some(Op::I64NeConst), Some(Op::BranchI64Ne), Some(Op::BranchI64NeConst)),
    (R::LtS, Some(Op::I64LtS), Some(Op::I64LtSConst), Some(Op::BranchI64LtS), Some(Op::BranchI64LtSConst)),
    (R::LtU, Some(Op::I64LtU), Some(Op::I64LtUConst), Some(Op::BranchI64LtU), Some(Op::BranchI64LtUConst)),
    (R::LeS, Some(Op::I64LeS), None, Some(Op::BranchI64LeS), None),
    (R::LeU, Some(Op::I64LeU), None, Some(Op::BranchI64LeU), None),
    (R::GtS, None, Some(Op::I64GtSConst), None, Some(Op::BranchI64GtSConst)),
    (R::GtU, None, Some(Op::I64GtUConst), None, Some(Op::BranchI64GtUConst)),
];

fn row(width: Width, relation: Relation) -> &'static Row {
    let rows = if width == W::W32 { ROWS32 } else { ROWS64 };
    rows.iter().find(|row| row.0 == relation).expect("relations are brought into the set first")
}

/// A comparison that was emitted: its relation and operands, read back from its words.
struct Emitted {
    width: Width,
    relation: Relation,
    left: u16,
    right: Right,
}

#[derive(Clone, Copy)]
enum Right {
    Register(u16),
    Constant(u64),
}

impl Lowering<'_> {
    /// An integer comparison of the two operands on top.
    pub(super) fn compare(&mut self, width: Width, relation: Relation) {
        let right = self.pop_operand();
        let left = self.pop_operand();
        let (left, relation, right) = match (left, right) {
            (Operand::Const(..), Operand::Register(_)) => (right, relation.swapped(), left),
            _ => (left, relation, right),
        };
        if let Operand::Const(bits, _) = right
            && let Some((relation, bits)) = relation.with_constant(width, bits)
        {
            let left = self.operand_register(left);
            let op = row(width, relation).2.expect("with_constant answers what exists with a constant");
            self.push_result_two(op, left, 0, bits);
            return;
        }
        let (left, right) = (self.operand_register(left), self.operand_register(right));
        let (relation, swap) = relation.between_registers();
        let op = row(width, relation).1.expect("between_registers answers what exists between registers");
        let (left, right) = if swap { (right, left) } else { (left, right) };
        self.push_result(op, left, right);
    }

    /// A comparison with zero; of a comparison, its negation.
    pub(super) fn equals_zero(&mut self, width: Width) {
        if self.scratch.stack.last() == Some(&Entry::Placed)
            && let Some((word, depth)) = self.producer
            && depth + 1 == self.depth()
            && let Some(emitted) = self.emitted(word)
            && let Some((op, left, right)) = self.encode(&emitted, emitted.relation.negated())
        {
            let target = Word(self.code.words[word as usize]).a();
            match right {
                Right::Register(right) => self.code.words[word as usize] = Word::new(op, target, left, right).0,
                Right::Constant(bits) => {
                    self.code.words[word as usize] = Word::new(op, target, left, 0).0;
                    self.code.words[word as usize + 1] = bits;
                }
            }
            return;
        }
        let source = self.pop_register();
        let op = if width == W::W32 { Op::I32EqConst } else { Op::I64EqConst };
        self.push_result_two(op, source, 0, 0);
    }

    /// Reads back a comparison from its words, if the instruction there is one.
    fn emitted(&self, at: u32) -> Option<Emitted> {
        let word = Word(self.code.words[at as usize]);
        let op = word.op()?;
        for (width, rows) in [(W::W32, ROWS32), (W::W64, ROWS64)] {
            for row in rows {
                if row.1 == Some(op) {
                    return Some(Emitted { width, relation: row.0, left: word.b(), right: Right::Register(word.c()) });
                }
                if row.2 == Some(op) {
                    let bits = self.code.words[at as usize + 1];
                    return Some(Emitted { width, relation: row.0, left: word.b(), right: Right::Constant(bits) });
                }
            }
        }
        None
    }

    /// The instruction for another relation of the same operands, if there is one of the same length.
    fn encode(&self, emitted: &Emitted, relation: Relation) -> Option<(Op, u16, Right)> {
        match emitted.right {
            Right::Register(right) => {
                let (relation, swap) = relation.between_registers();
                let op = row(emitted.width, relation).1?;
                Some(if swap { (op, right, Right::Register(emitted.left)) } else { (op, emitted.left, Right::Register(right)) })
            }
            Right::Constant(bits) => {
                let (relation, bits) = relation.with_constant(emitted.width, bits)?;
                Some((row(emitted.width, relation).2?, emitted.left, Right::Constant(bits)))
            }
        }
    }

    /// Takes the condition on top for a branch, negated if asked. A comparison just emitted is taken back and becomes part of the branch.
    pub(super) fn pop_condition(&mut self, negate: bool) -> Condition {
        if self.scratch.stack.last() == Some(&Entry::Placed)
            && let Some((word, depth)) = self.producer
            && depth + 1 == self.depth()
            && let Some(condition) = self.fused(word, negate)
        {
            self.pop();
            self.retract(word);
            return condition;
        }
        let register = self.pop_register();
        Condition::One(if negate { Op::BranchIfNot } else { Op::BranchIf }, register)
    }

    fn fused(&self, word: u32, negate: bool) -> Option<Condition> {
        let emitted = self.emitted(word)?;
        let relation = if negate { emitted.relation.negated() } else { emitted.relation };
        match emitted.right {
            Right::Register(right) => {
                let (relation, swap) = relation.between_registers();
                let op = row(emitted.width, relation).3?;
                Some(if swap { Condition::Two(op, right, emitted.left) } else { Condition::Two(op, emitted.left, right) })
            }
            Right::Constant(bits) => {
                let (relation, bits) = relation.with_constant(emitted.width, bits)?;
                if bits == 0 && relation == R::Eq {
                    return Some(Condition::One(Op::BranchIfNot, emitted.left));
                }
                if bits == 0 && relation == R::Ne {
                    return Some(Condition::One(Op::BranchIf, emitted.left));
                }
                let signed = if emitted.width == W::W32 { i64::from(bits as u32 as i32) } else { bits as i64 };
                let constant = i16::try_from(signed).ok()?;
                Some(Condition::Const(row(emitted.width, relation).4?, emitted.left, constant))
            }
        }
    }
}
