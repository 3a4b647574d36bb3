//! One arm per WebAssembly instruction that is not control flow.

use wasmparser::{MemArg, Operator};

use super::Lowering;
use super::compare::{Relation as R, Width as W};
use super::stack::{Entry, Operand};
use crate::cost;
use crate::instruction::Instruction;
use crate::load::Refusal;
use crate::op::Op;

/// The lowering of a binary instruction with a constant on the right.
#[derive(Clone, Copy)]
enum Fold {
    /// Nothing special.
    None,
    /// Uses this instruction, with the constant as it is; the operands may be swapped.
    Commutes(Op),
    /// Uses this instruction with the constant negated.
    Negates(Op),
    /// Uses this instruction with the constant taken modulo the width.
    Shifts(Op),
    /// Uses this instruction with the width minus the constant, modulo the width.
    ShiftsBack(Op),
    /// Uses this instruction unless the constant is zero.
    Divides(Op),
}

impl Lowering<'_> {
    /// Lowers one validated instruction.
    pub(super) fn operator(&mut self, operator: &Operator<'_>) -> Result<(), Refusal> {
        use Operator as O;
        if !self.reachable {
            match operator {
                O::Block { .. } | O::Loop { .. } | O::If { .. } => self.skip_block(),
                O::Else => self.otherwise(),
                O::End => self.end(),
                _ => {}
            }
            return Ok(());
        }
        match *operator {
            O::Block { blockty } => self.open_block(blockty),
            O::Loop { blockty } => self.open_loop(blockty),
            O::If { blockty } => {
                self.charge(cost::of(operator));
                self.open_if(blockty);
            }
            O::Else => self.otherwise(),
            O::End => self.end(),
            O::Nop => {}
            O::Br { relative_depth } => self.branch(relative_depth),
            O::BrIf { relative_depth } => self.branch_if(relative_depth),
            O::BrTable { ref targets } => self.branch_table(targets)?,
            O::Return => self.return_(),
            O::Call { function_index } => self.call(function_index, false),
            O::ReturnCall { function_index } => self.call(function_index, true),
            O::CallIndirect { type_index, table_index } => {
                self.call_indirect(type_index, table_index, false)
            }
            O::ReturnCallIndirect { type_index, table_index } => {
                self.call_indirect(type_index, table_index, true)
            }
            _ => {
                self.charge(cost::of(operator));
                self.plain(operator);
            }
        }
        Ok(())
    }

    // Long: one arm per instruction.
    fn plain(&mut self, operator: &Operator<'_>) {
        use Operator as O;
        match *operator {
            O::Unreachable => self.unreachable(),
            O::Drop => {
                self.pop();
            }
            O::Select | O::TypedSelect { .. } | O::TypedSelectMulti { .. } => {
                let condition = self.pop_register();
                let otherwise = self.pop_register();
                let then = self.pop_register();
                self.push_result(
                    Instruction::new(Op::Select, 0, then, otherwise).wide(u64::from(condition)),
                );
            }
            O::LocalGet { local_index } => self.push_local(local_index),
            O::LocalSet { local_index } => self.set_local(local_index),
            O::LocalTee { local_index } => self.tee_local(local_index),
            O::I32Const { value } => self.push_const(u64::from(value as u32)),
            O::I64Const { value } => self.push_const(value as u64),
            O::F32Const { value } => self.push_const(u64::from(value.bits())),
            O::F64Const { value } => self.push_const(value.bits()),
            O::RefNull { .. } => self.push_const(0),
            O::RefIsNull => self.equals_zero(W::W64),
            O::RefFunc { function_index } => self.push_index(Op::RefFunc, function_index),
            O::GlobalGet { global_index } => {
                match global_index.checked_sub(self.module.imported_globals) {
                    Some(defined) => self.push_index(Op::GlobalGet, defined),
                    None => self.push_index(Op::GlobalGetImport, global_index),
                }
            }
            O::GlobalSet { global_index } => {
                let source = self.pop_register();
                self.emit(match global_index.checked_sub(self.module.imported_globals) {
                    Some(defined) => Instruction::with_index(Op::GlobalSet, source, defined),
                    None => Instruction::with_index(Op::GlobalSetImport, source, global_index),
                });
            }
            O::TableGet { table } => {
                let index = self.pop_register();
                self.push_faulting(Instruction::new(Op::TableGet, 0, index, table as u16));
            }
            O::TableSet { table } => {
                let value = self.pop_register();
                let index = self.pop_register();
                self.emit_faulting(Instruction::new(Op::TableSet, index, value, table as u16));
            }
            O::TableSize { table } => self.push_index(Op::TableSize, table),
            O::TableGrow { table } => {
                let stop = self.begin_bulk(2);
                let count = self.pop_register();
                let value = self.pop_register();
                self.push_bulk(
                    stop,
                    Instruction::new(Op::TableGrow, 0, value, count).wide(u64::from(table)),
                );
            }
            O::TableFill { table } => self.bulk(Op::TableFill, u64::from(table)),
            O::TableCopy { dst_table, src_table } => {
                self.bulk(Op::TableCopy, u64::from(dst_table) | u64::from(src_table) << 32);
            }
            O::TableInit { elem_index, table } => {
                self.bulk(Op::TableInit, u64::from(table) | u64::from(elem_index) << 32)
            }
            O::ElemDrop { elem_index } => {
                self.emit(Instruction::with_index(Op::ElementDrop, 0, elem_index));
            }
            O::MemorySize { .. } => self.push_result(Instruction::new(Op::MemorySize, 0, 0, 0)),
            O::MemoryGrow { .. } => {
                let stop = self.begin_bulk(1);
                let pages = self.pop_register();
                self.push_bulk(stop, Instruction::new(Op::MemoryGrow, 0, pages, 0));
            }
            O::MemoryFill { .. } => self.bulk(Op::MemoryFill, 0),
            O::MemoryCopy { .. } => self.bulk(Op::MemoryCopy, 0),
            O::MemoryInit { data_index, .. } => self.bulk(Op::MemoryInit, u64::from(data_index)),
            O::DataDrop { data_index } => {
                self.emit(Instruction::with_index(Op::DataDrop, 0, data_index));
            }
            O::I32Load { memarg } | O::F32Load { memarg } | O::I64Load32U { memarg } => {
                self.load(Op::Load32, Op::Load32Far, memarg)
            }
            O::I64Load { memarg } | O::F64Load { memarg } => {
                self.load(Op::Load64, Op::Load64Far, memarg)
            }
            O::I32Load8S { memarg } => self.load(Op::I32Load8S, Op::I32Load8SFar, memarg),
            O::I32Load8U { memarg } | O::I64Load8U { memarg } => {
                self.load(Op::Load8U, Op::Load8UFar, memarg)
            }
            O::I32Load16S { memarg } => self.load(Op::I32Load16S, Op::I32Load16SFar, memarg),
            O::I32Load16U { memarg } | O::I64Load16U { memarg } => {
                self.load(Op::Load16U, Op::Load16UFar, memarg)
            }
            O::I64Load8S { memarg } => self.load(Op::I64Load8S, Op::I64Load8SFar, memarg),
            O::I64Load16S { memarg } => self.load(Op::I64Load16S, Op::I64Load16SFar, memarg),
            O::I64Load32S { memarg } => self.load(Op::I64Load32S, Op::I64Load32SFar, memarg),
            O::I32Store { memarg } | O::F32Store { memarg } | O::I64Store32 { memarg } => {
                self.store(Op::Store32, Op::Store32Far, memarg)
            }
            O::I64Store { memarg } | O::F64Store { memarg } => {
                self.store(Op::Store64, Op::Store64Far, memarg)
            }
            O::I32Store8 { memarg } | O::I64Store8 { memarg } => {
                self.store(Op::Store8, Op::Store8Far, memarg)
            }
            O::I32Store16 { memarg } | O::I64Store16 { memarg } => {
                self.store(Op::Store16, Op::Store16Far, memarg)
            }
            O::I32Eqz => self.equals_zero(W::W32),
            O::I32Eq => self.compare(W::W32, R::Eq),
            O::I32Ne => self.compare(W::W32, R::Ne),
            O::I32LtS => self.compare(W::W32, R::LtS),
            O::I32LtU => self.compare(W::W32, R::LtU),
            O::I32GtS => self.compare(W::W32, R::GtS),
            O::I32GtU => self.compare(W::W32, R::GtU),
            O::I32LeS => self.compare(W::W32, R::LeS),
            O::I32LeU => self.compare(W::W32, R::LeU),
            O::I32GeS => self.compare(W::W32, R::GeS),
            O::I32GeU => self.compare(W::W32, R::GeU),
            O::I64Eqz => self.equals_zero(W::W64),
            O::I64Eq => self.compare(W::W64, R::Eq),
            O::I64Ne => self.compare(W::W64, R::Ne),
            O::I64LtS => self.compare(W::W64, R::LtS),
            O::I64LtU => self.compare(W::W64, R::LtU),
            O::I64GtS => self.compare(W::W64, R::GtS),
            O::I64GtU => self.compare(W::W64, R::GtU),
            O::I64LeS => self.compare(W::W64, R::LeS),
            O::I64LeU => self.compare(W::W64, R::LeU),
            O::I64GeS => self.compare(W::W64, R::GeS),
            O::I64GeU => self.compare(W::W64, R::GeU),
            O::F32Eq => self.binary(Op::F32Eq),
            O::F32Ne => self.binary(Op::F32Ne),
            O::F32Lt => self.binary(Op::F32Lt),
            O::F32Gt => self.binary_swapped(Op::F32Lt),
            O::F32Le => self.binary(Op::F32Le),
            O::F32Ge => self.binary_swapped(Op::F32Le),
            O::F64Eq => self.binary(Op::F64Eq),
            O::F64Ne => self.binary(Op::F64Ne),
            O::F64Lt => self.binary(Op::F64Lt),
            O::F64Gt => self.binary_swapped(Op::F64Lt),
            O::F64Le => self.binary(Op::F64Le),
            O::F64Ge => self.binary_swapped(Op::F64Le),
            O::I32Add => self.fold(Op::I32Add, Fold::Commutes(Op::I32AddConst), W::W32),
            O::I32Sub => self.fold(Op::I32Sub, Fold::Negates(Op::I32AddConst), W::W32),
            O::I32Mul => self.fold(Op::I32Mul, Fold::Commutes(Op::I32MulConst), W::W32),
            O::I32And => self.fold(Op::I32And, Fold::Commutes(Op::I32AndConst), W::W32),
            O::I32Or => self.fold(Op::I32Or, Fold::Commutes(Op::I32OrConst), W::W32),
            O::I32Xor => self.fold(Op::I32Xor, Fold::Commutes(Op::I32XorConst), W::W32),
            O::I32Shl => self.fold(Op::I32Shl, Fold::Shifts(Op::I32ShlConst), W::W32),
            O::I32ShrS => self.fold(Op::I32ShrS, Fold::Shifts(Op::I32ShrSConst), W::W32),
            O::I32ShrU => self.fold(Op::I32ShrU, Fold::Shifts(Op::I32ShrUConst), W::W32),
            O::I32Rotl => self.fold(Op::I32Rotl, Fold::Shifts(Op::I32RotlConst), W::W32),
            O::I32Rotr => self.fold(Op::I32Rotr, Fold::ShiftsBack(Op::I32RotlConst), W::W32),
            O::I32DivS => self.faulting(Op::I32DivS, Fold::None, W::W32),
            O::I32DivU => self.faulting(Op::I32DivU, Fold::Divides(Op::I32DivUConst), W::W32),
            O::I32RemS => self.faulting(Op::I32RemS, Fold::None, W::W32),
            O::I32RemU => self.faulting(Op::I32RemU, Fold::Divides(Op::I32RemUConst), W::W32),
            O::I64Add => self.fold(Op::I64Add, Fold::Commutes(Op::I64AddConst), W::W64),
            O::I64Sub => self.fold(Op::I64Sub, Fold::Negates(Op::I64AddConst), W::W64),
            O::I64Mul => self.fold(Op::I64Mul, Fold::Commutes(Op::I64MulConst), W::W64),
            O::I64And => self.fold(Op::I64And, Fold::Commutes(Op::I64AndConst), W::W64),
            O::I64Or => self.fold(Op::I64Or, Fold::Commutes(Op::I64OrConst), W::W64),
            O::I64Xor => self.fold(Op::I64Xor, Fold::Commutes(Op::I64XorConst), W::W64),
            O::I64Shl => self.fold(Op::I64Shl, Fold::Shifts(Op::I64ShlConst), W::W64),
            O::I64ShrS => self.fold(Op::I64ShrS, Fold::Shifts(Op::I64ShrSConst), W::W64),
            O::I64ShrU => self.fold(Op::I64ShrU, Fold::Shifts(Op::I64ShrUConst), W::W64),
            O::I64Rotl => self.fold(Op::I64Rotl, Fold::Shifts(Op::I64RotlConst), W::W64),
            O::I64Rotr => self.fold(Op::I64Rotr, Fold::ShiftsBack(Op::I64RotlConst), W::W64),
            O::I64DivS => self.faulting(Op::I64DivS, Fold::None, W::W64),
            O::I64DivU => self.faulting(Op::I64DivU, Fold::Divides(Op::I64DivUConst), W::W64),
            O::I64RemS => self.faulting(Op::I64RemS, Fold::None, W::W64),
            O::I64RemU => self.faulting(Op::I64RemU, Fold::Divides(Op::I64RemUConst), W::W64),
            O::I32Clz => self.unary(Op::I32Clz),
            O::I32Ctz => self.unary(Op::I32Ctz),
            O::I32Popcnt => self.unary(Op::I32Popcnt),
            O::I32Extend8S => self.unary(Op::I32Extend8S),
            O::I32Extend16S => self.unary(Op::I32Extend16S),
            O::I64Clz => self.unary(Op::I64Clz),
            O::I64Ctz => self.unary(Op::I64Ctz),
            O::I64Popcnt => self.unary(Op::I64Popcnt),
            O::I64Extend8S => self.unary(Op::I64Extend8S),
            O::I64Extend16S => self.unary(Op::I64Extend16S),
            // Both extend the lower half by its sign.
            O::I64Extend32S | O::I64ExtendI32S => self.unary(Op::I64Extend32S),
            O::I32WrapI64 => self.unary(Op::I32WrapI64),
            // A 32-bit value is held zero-extended, and a float as its bits: these move nothing.
            O::I64ExtendI32U
            | O::I32ReinterpretF32
            | O::I64ReinterpretF64
            | O::F32ReinterpretI32
            | O::F64ReinterpretI64 => {}
            O::F32Add => self.binary(Op::F32Add),
            O::F32Sub => self.binary(Op::F32Sub),
            O::F32Mul => self.binary(Op::F32Mul),
            O::F32Div => self.binary(Op::F32Div),
            O::F32Min => self.binary(Op::F32Min),
            O::F32Max => self.binary(Op::F32Max),
            O::F32Copysign => self.binary(Op::F32Copysign),
            O::F64Add => self.binary(Op::F64Add),
            O::F64Sub => self.binary(Op::F64Sub),
            O::F64Mul => self.binary(Op::F64Mul),
            O::F64Div => self.binary(Op::F64Div),
            O::F64Min => self.binary(Op::F64Min),
            O::F64Max => self.binary(Op::F64Max),
            O::F64Copysign => self.binary(Op::F64Copysign),
            O::F32Abs => self.unary(Op::F32Abs),
            O::F32Neg => self.unary(Op::F32Neg),
            O::F32Ceil => self.unary(Op::F32Ceil),
            O::F32Floor => self.unary(Op::F32Floor),
            O::F32Trunc => self.unary(Op::F32Trunc),
            O::F32Nearest => self.unary(Op::F32Nearest),
            O::F32Sqrt => self.unary(Op::F32Sqrt),
            O::F64Abs => self.unary(Op::F64Abs),
            O::F64Neg => self.unary(Op::F64Neg),
            O::F64Ceil => self.unary(Op::F64Ceil),
            O::F64Floor => self.unary(Op::F64Floor),
            O::F64Trunc => self.unary(Op::F64Trunc),
            O::F64Nearest => self.unary(Op::F64Nearest),
            O::F64Sqrt => self.unary(Op::F64Sqrt),
            O::I32TruncF32S => self.faulting_unary(Op::I32TruncF32S),
            O::I32TruncF32U => self.faulting_unary(Op::I32TruncF32U),
            O::I32TruncF64S => self.faulting_unary(Op::I32TruncF64S),
            O::I32TruncF64U => self.faulting_unary(Op::I32TruncF64U),
            O::I64TruncF32S => self.faulting_unary(Op::I64TruncF32S),
            O::I64TruncF32U => self.faulting_unary(Op::I64TruncF32U),
            O::I64TruncF64S => self.faulting_unary(Op::I64TruncF64S),
            O::I64TruncF64U => self.faulting_unary(Op::I64TruncF64U),
            O::I32TruncSatF32S => self.unary(Op::I32TruncSatF32S),
            O::I32TruncSatF32U => self.unary(Op::I32TruncSatF32U),
            O::I32TruncSatF64S => self.unary(Op::I32TruncSatF64S),
            O::I32TruncSatF64U => self.unary(Op::I32TruncSatF64U),
            O::I64TruncSatF32S => self.unary(Op::I64TruncSatF32S),
            O::I64TruncSatF32U => self.unary(Op::I64TruncSatF32U),
            O::I64TruncSatF64S => self.unary(Op::I64TruncSatF64S),
            O::I64TruncSatF64U => self.unary(Op::I64TruncSatF64U),
            O::F32ConvertI32S => self.unary(Op::F32ConvertI32S),
            O::F32ConvertI32U => self.unary(Op::F32ConvertI32U),
            O::F32ConvertI64S => self.unary(Op::F32ConvertI64S),
            O::F32ConvertI64U => self.unary(Op::F32ConvertI64U),
            O::F64ConvertI32S => self.unary(Op::F64ConvertI32S),
            O::F64ConvertI32U => self.unary(Op::F64ConvertI32U),
            O::F64ConvertI64S => self.unary(Op::F64ConvertI64S),
            O::F64ConvertI64U => self.unary(Op::F64ConvertI64U),
            O::F32DemoteF64 => self.unary(Op::F32DemoteF64),
            O::F64PromoteF32 => self.unary(Op::F64PromoteF32),
            ref other => unreachable!("the validator admits no {other:?}"),
        }
    }

    fn unary(&mut self, op: Op) {
        let source = self.pop_register();
        self.push_result(Instruction::new(op, 0, source, 0));
    }

    fn faulting_unary(&mut self, op: Op) {
        let source = self.pop_register();
        self.push_faulting(Instruction::new(op, 0, source, 0));
    }

    fn binary(&mut self, op: Op) {
        let right = self.pop_operand();
        let left = self.pop_operand();
        let (left, right) = (self.operand_register(left), self.operand_register(right));
        self.push_result(Instruction::new(op, 0, left, right));
    }

    fn binary_swapped(&mut self, op: Op) {
        let right = self.pop_operand();
        let left = self.pop_operand();
        let (left, right) = (self.operand_register(left), self.operand_register(right));
        self.push_result(Instruction::new(op, 0, right, left));
    }

    /// A binary instruction that may have a form with a constant on the right.
    fn fold(&mut self, op: Op, fold: Fold, width: W) {
        let instruction = self.fold_operands(op, fold, width);
        self.push_result(instruction);
    }

    /// The same for one that can fault. Division by a constant that is not zero cannot.
    fn faulting(&mut self, op: Op, fold: Fold, width: W) {
        let instruction = self.fold_operands(op, fold, width);
        if instruction.op == op {
            self.push_faulting(instruction);
        } else {
            self.push_result(instruction);
        }
    }

    fn fold_operands(&mut self, op: Op, fold: Fold, width: W) -> Instruction {
        let right = self.pop_operand();
        let left = self.pop_operand();
        let (left, right) = match (fold, left, right) {
            (Fold::Commutes(_), Operand::Const(..), Operand::Register(_)) => (right, left),
            _ => (left, right),
        };
        let bits = if width == W::W32 { 32 } else { 64 };
        let folded = match (right, fold) {
            (Operand::Register(_), _) | (_, Fold::None) => None,
            (Operand::Const(value, _), Fold::Commutes(op)) => Some((op, value)),
            (Operand::Const(value, _), Fold::Negates(op)) => Some((op, value.wrapping_neg())),
            (Operand::Const(value, _), Fold::Shifts(op)) => Some((op, value % bits)),
            (Operand::Const(value, _), Fold::ShiftsBack(op)) => {
                Some((op, (bits - value % bits) % bits))
            }
            (Operand::Const(value, _), Fold::Divides(op)) => (value != 0).then_some((op, value)),
        };
        let left = self.operand_register(left);
        if let Some((op, value)) = folded {
            let value = if width == W::W32 { u64::from(value as u32) } else { value };
            return Instruction::new(op, 0, left, 0).wide(value);
        }
        let right = self.operand_register(right);
        Instruction::new(op, 0, left, right)
    }

    /// An instruction with an index whose result becomes the new top.
    fn push_index(&mut self, op: Op, index: u32) {
        self.push_result(Instruction::with_index(op, 0, index));
    }

    fn load(&mut self, near: Op, far: Op, memory: MemArg) {
        let address = self.pop_register();
        self.push_faulting(match u16::try_from(memory.offset) {
            Ok(offset) => Instruction::new(near, 0, address, offset),
            Err(_) => Instruction::new(far, 0, address, 0).wide(memory.offset),
        });
    }

    fn store(&mut self, near: Op, far: Op, memory: MemArg) {
        let offset = u16::try_from(memory.offset);
        if let Some(&Entry::Const(bits)) = self.scratch.stack.last()
            && let Ok(offset) = offset
            && let Some((op, small)) = store_constant(near, bits)
        {
            self.pop();
            let address = self.pop_register();
            self.emit_faulting(Instruction::new(op, small as u16, address, offset));
            return;
        }
        let value = self.pop_register();
        let address = self.pop_register();
        self.emit_faulting(match offset {
            Ok(offset) => Instruction::new(near, value, address, offset),
            Err(_) => Instruction::new(far, value, address, 0).wide(memory.offset),
        });
    }

    /// Before a bulk instruction with `operands` operands: they are put where they stay while it is
    /// paid for, and it becomes a stop point.
    fn begin_bulk(&mut self, operands: usize) -> u32 {
        self.place_constants(operands);
        let held = &self.scratch.stack[self.depth() - operands..];
        debug_assert!(!held.iter().any(|entry| matches!(entry, Entry::Const(_))));
        self.stop_point(self.first_operand + self.depth() as u32)
    }

    fn bulk(&mut self, op: Op, second: u64) {
        let stop = self.begin_bulk(3);
        let c = self.pop_register();
        let b = self.pop_register();
        let a = self.pop_register();
        self.emit_stop(stop, Instruction::new(op, a, b, c).wide(second));
    }

    /// Emits a bulk instruction whose result becomes the new top.
    fn push_bulk(&mut self, stop: u32, mut instruction: Instruction) {
        instruction.a = self.register(self.depth());
        self.emit_stop(stop, instruction);
        self.push_placed();
    }
}

/// The store of a constant in 16 bits that extend by sign to what it writes, if this one fits.
fn store_constant(near: Op, bits: u64) -> Option<(Op, i16)> {
    match near {
        Op::Store8 => Some((Op::Store8Const, i16::from(bits as i8))),
        Op::Store16 => Some((Op::Store16Const, bits as i16)),
        Op::Store32 => Some((Op::Store32Const, i16::try_from(bits as u32 as i32).ok()?)),
        _ => Some((Op::Store64Const, i16::try_from(bits as i64).ok()?)),
    }
}
