//! Comparisons.
//!
//! Every comparison is one of a few: equality, less, less-or-equal between registers; equality,
//! less, greater with a constant. The others are these with operands swapped or the constant moved
//! by one. So each has a negation in the set, except at the ends of a range. The peephole pass uses
//! the same table to negate comparisons and to make them part of a branch.

use super::Lowering;
use super::stack::Operand;
use crate::instruction::Instruction;
use crate::op::Op;

/// The relation of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
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
pub(crate) enum Width {
    W32,
    W64,
}

use Relation as R;
use Width as W;

impl Relation {
    /// The relation with its operands swapped.
    pub(crate) fn swapped(self) -> Self {
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

    pub(crate) fn negated(self) -> Self {
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

    /// The same relation among those that exist between registers, and whether operands must be
    /// swapped.
    pub(crate) fn between_registers(self) -> (Self, bool) {
        match self {
            R::GtS | R::GtU | R::GeS | R::GeU => (self.swapped(), true),
            other => (other, false),
        }
    }

    /// The same question among those that exist with a constant; none at the end of the range.
    pub(crate) fn with_constant(self, width: Width, constant: u64) -> Option<(Self, u64)> {
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

/// The instructions for one relation and width.
pub(crate) struct Row {
    pub(crate) width: Width,
    pub(crate) relation: Relation,
    /// Between registers.
    pub(crate) registers: Option<Op>,
    /// With a constant.
    pub(crate) constant: Option<Op>,
    /// A branch on registers.
    pub(crate) branch: Option<Op>,
    /// A branch on a register and a small constant.
    pub(crate) branch_constant: Option<Op>,
}

macro_rules! rows {
    ($(
        $width:ident $relation:ident $registers:tt $constant:tt $branch:tt $branch_constant:tt;
    )*) => {
        &[$(Row {
            width: W::$width,
            relation: R::$relation,
            registers: rows!(@ $registers),
            constant: rows!(@ $constant),
            branch: rows!(@ $branch),
            branch_constant: rows!(@ $branch_constant),
        },)*]
    };
    (@ -) => { None };
    (@ $op:ident) => { Some(Op::$op) };
}

/// Every comparison; the others are these with operands swapped or the constant moved by
/// one.
pub(crate) const ROWS: &[Row] = rows! {
    W32 Eq I32Eq I32EqConst BranchI32Eq BranchI32EqConst;
    W32 Ne I32Ne I32NeConst BranchI32Ne BranchI32NeConst;
    W32 LtS I32LtS I32LtSConst BranchI32LtS BranchI32LtSConst;
    W32 LtU I32LtU I32LtUConst BranchI32LtU BranchI32LtUConst;
    W32 LeS I32LeS - BranchI32LeS -;
    W32 LeU I32LeU - BranchI32LeU -;
    W32 GtS - I32GtSConst - BranchI32GtSConst;
    W32 GtU - I32GtUConst - BranchI32GtUConst;
    W64 Eq I64Eq I64EqConst BranchI64Eq BranchI64EqConst;
    W64 Ne I64Ne I64NeConst BranchI64Ne BranchI64NeConst;
    W64 LtS I64LtS I64LtSConst BranchI64LtS BranchI64LtSConst;
    W64 LtU I64LtU I64LtUConst BranchI64LtU BranchI64LtUConst;
    W64 LeS I64LeS - BranchI64LeS -;
    W64 LeU I64LeU - BranchI64LeU -;
    W64 GtS - I64GtSConst - BranchI64GtSConst;
    W64 GtU - I64GtUConst - BranchI64GtUConst;
};

/// The row of a relation; `between_registers` or `with_constant` bring every relation into the set.
pub(crate) fn row(width: Width, relation: Relation) -> &'static Row {
    let row = ROWS.iter().find(|row| row.width == width && row.relation == relation);
    row.expect("relations are brought into the set first")
}

/// The row of a comparison, and whether it is the one with a constant; `None` for other
/// instructions.
pub(crate) fn row_of(op: Op) -> Option<(&'static Row, bool)> {
    let row = ROWS.iter().find(|row| row.registers == Some(op) || row.constant == Some(op))?;
    Some((row, row.constant == Some(op)))
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
            let op = row(width, relation)
                .constant
                .expect("`with_constant` returns relations that exist with a constant");
            self.push_result(Instruction::new(op, 0, left, 0).wide(bits));
            return;
        }
        let (left, right) = (self.operand_register(left), self.operand_register(right));
        let (relation, swap) = relation.between_registers();
        let op = row(width, relation)
            .registers
            .expect("`between_registers` returns relations that exist between registers");
        let (left, right) = if swap { (right, left) } else { (left, right) };
        self.push_result(Instruction::new(op, 0, left, right));
    }

    /// A comparison with zero.
    pub(super) fn equals_zero(&mut self, width: Width) {
        let source = self.pop_register();
        let op = if width == W::W32 { Op::I32EqConst } else { Op::I64EqConst };
        self.push_result(Instruction::new(op, 0, source, 0));
    }
}
