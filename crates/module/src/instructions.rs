//! The table of lowered instructions: the single definition of what each one is and does.
//!
//! One row per instruction: name, [`Form`](crate::Form) (operand layout and length),
//! [`Cost`](crate::Cost) (how it charges, and therefore whether a coroutine can stop at it), text,
//! semantics. `op.rs` expands the first four columns into [`Op`](crate::Op); `wavelock-machine`
//! expands the last into the arms of its dispatch loop. To remove an instruction, delete its row.
//!
//! Semantics are a handler and its arguments: `binary(u32: |a, b| a & b)` reads two registers as
//! `u32` and writes the zero-extended result. The handlers are macros of `wavelock-machine`
//! (`handlers.rs`), where the paths in a row resolve; this crate only stores the tokens.

/// Invokes `$callback!` with the context tokens in brackets, followed by all rows of the table.
///
/// A row is `Name, Form, Cost, "text", handler(semantics);`. Names in a row resolve where the
/// callback expands them, not in this crate.
#[macro_export]
macro_rules! instructions {
    ($callback:ident $($context:tt)*) => { $callback! { [$($context)*]
    // Control: traps, charges, jumps, calls and returns.
    Unreachable, Plain, None, "unreachable", fault(FaultCode::Unreachable);
    Charge, Cost, Block, "charge", charge();
    Safepoint, Cost, Safepoint, "safepoint", safepoint();
    Enter, Enter, Safepoint, "enter", enter();
    Jump, Jump, Block, "jump", jump();
    JumpLoop, Jump, Safepoint, "jump.loop", jump_loop();
    BranchTable, BranchTable, Branch, "branch.table", branch_table();
    Return, Return, Safepoint, "return", return_none();
    ReturnOne, ReturnOne, Safepoint, "return.one", return_one();
    ReturnMany, ReturnMany, Safepoint, "return.many", return_many();
    Call, Call, Safepoint, "call", call();
    CallImport, CallImport, Safepoint, "call.import", call_import();
    CallIndirect, CallIndirect, Safepoint, "call.indirect", call_indirect();
    ReturnCall, Call, Safepoint, "return.call", return_call();
    ReturnCallImport, ReturnCallImport, Safepoint, "return.call.import", return_call_import();
    ReturnCallIndirect, CallIndirect, Safepoint, "return.call.indirect", return_call_indirect();
    // Branches on one register, on two, on one and a constant.
    BranchIf, BranchOne, Branch, "branch.if", branch_one(|a| a != 0);
    BranchIfNot, BranchOne, Branch, "branch.if.not", branch_one(|a| a == 0);
    BranchI32Eq, BranchTwo, Branch, "branch.i32.eq", branch_two(u32: |a, b| a == b);
    BranchI32Ne, BranchTwo, Branch, "branch.i32.ne", branch_two(u32: |a, b| a != b);
    BranchI32LtS, BranchTwo, Branch, "branch.i32.lt_s", branch_two(i32: |a, b| a < b);
    BranchI32LtU, BranchTwo, Branch, "branch.i32.lt_u", branch_two(u32: |a, b| a < b);
    BranchI32LeS, BranchTwo, Branch, "branch.i32.le_s", branch_two(i32: |a, b| a <= b);
    BranchI32LeU, BranchTwo, Branch, "branch.i32.le_u", branch_two(u32: |a, b| a <= b);
    BranchI64Eq, BranchTwo, Branch, "branch.i64.eq", branch_two(u64: |a, b| a == b);
    BranchI64Ne, BranchTwo, Branch, "branch.i64.ne", branch_two(u64: |a, b| a != b);
    BranchI64LtS, BranchTwo, Branch, "branch.i64.lt_s", branch_two(i64: |a, b| a < b);
    BranchI64LtU, BranchTwo, Branch, "branch.i64.lt_u", branch_two(u64: |a, b| a < b);
    BranchI64LeS, BranchTwo, Branch, "branch.i64.le_s", branch_two(i64: |a, b| a <= b);
    BranchI64LeU, BranchTwo, Branch, "branch.i64.le_u", branch_two(u64: |a, b| a <= b);
    BranchI32EqConst, BranchConst, Branch, "branch.i32.eq.const", branch_imm(u32: |a, b| a == b);
    BranchI32NeConst, BranchConst, Branch, "branch.i32.ne.const", branch_imm(u32: |a, b| a != b);
    BranchI32LtSConst, BranchConst, Branch, "branch.i32.lt_s.const", branch_imm(i32: |a, b| a < b);
    BranchI32LtUConst, BranchConst, Branch, "branch.i32.lt_u.const", branch_imm(u32: |a, b| a < b);
    BranchI32GtSConst, BranchConst, Branch, "branch.i32.gt_s.const", branch_imm(i32: |a, b| a > b);
    BranchI32GtUConst, BranchConst, Branch, "branch.i32.gt_u.const", branch_imm(u32: |a, b| a > b);
    BranchI64EqConst, BranchConst, Branch, "branch.i64.eq.const", branch_imm(u64: |a, b| a == b);
    BranchI64NeConst, BranchConst, Branch, "branch.i64.ne.const", branch_imm(u64: |a, b| a != b);
    BranchI64LtSConst, BranchConst, Branch, "branch.i64.lt_s.const", branch_imm(i64: |a, b| a < b);
    BranchI64LtUConst, BranchConst, Branch, "branch.i64.lt_u.const", branch_imm(u64: |a, b| a < b);
    BranchI64GtSConst, BranchConst, Branch, "branch.i64.gt_s.const", branch_imm(i64: |a, b| a > b);
    BranchI64GtUConst, BranchConst, Branch, "branch.i64.gt_u.const", branch_imm(u64: |a, b| a > b);
    // The end of a counted loop: step the counter, compare, branch.
    LoopI32NeZero, LoopTwo, Branch, "loop.i32.ne_zero", loop_two(u32: |a, _b| a != 0);
    LoopI32Ne, LoopTwo, Branch, "loop.i32.ne", loop_two(u32: |a, b| a != b);
    LoopI32LtS, LoopTwo, Branch, "loop.i32.lt_s", loop_two(i32: |a, b| a < b);
    LoopI32LtU, LoopTwo, Branch, "loop.i32.lt_u", loop_two(u32: |a, b| a < b);
    LoopI32LeS, LoopTwo, Branch, "loop.i32.le_s", loop_two(i32: |a, b| a <= b);
    LoopI32LeU, LoopTwo, Branch, "loop.i32.le_u", loop_two(u32: |a, b| a <= b);
    LoopI32GtS, LoopTwo, Branch, "loop.i32.gt_s", loop_two(i32: |a, b| a > b);
    LoopI32GtU, LoopTwo, Branch, "loop.i32.gt_u", loop_two(u32: |a, b| a > b);
    LoopI32GeS, LoopTwo, Branch, "loop.i32.ge_s", loop_two(i32: |a, b| a >= b);
    LoopI32GeU, LoopTwo, Branch, "loop.i32.ge_u", loop_two(u32: |a, b| a >= b);
    LoopI64NeZero, LoopTwo, Branch, "loop.i64.ne_zero", loop_two(u64: |a, _b| a != 0);
    LoopI64Ne, LoopTwo, Branch, "loop.i64.ne", loop_two(u64: |a, b| a != b);
    LoopI64LtS, LoopTwo, Branch, "loop.i64.lt_s", loop_two(i64: |a, b| a < b);
    LoopI64LtU, LoopTwo, Branch, "loop.i64.lt_u", loop_two(u64: |a, b| a < b);
    LoopI32NeConst, LoopConst, Branch, "loop.i32.ne.const", loop_const(u32: |a, b| a != b);
    LoopI32LtSConst, LoopConst, Branch, "loop.i32.lt_s.const", loop_const(i32: |a, b| a < b);
    LoopI32LtUConst, LoopConst, Branch, "loop.i32.lt_u.const", loop_const(u32: |a, b| a < b);
    LoopI32GtSConst, LoopConst, Branch, "loop.i32.gt_s.const", loop_const(i32: |a, b| a > b);
    LoopI32GtUConst, LoopConst, Branch, "loop.i32.gt_u.const", loop_const(u32: |a, b| a > b);
    // Copies and constants.
    Copy, Unary, None, "copy", unary(u64: |a| a);
    CopyTwo, CopyTwo, None, "copy.two", copy_two();
    CopyRange, Range, None, "copy.range", copy_range();
    Const32, Const32, None, "const.32", const_32();
    Const64, Const64, None, "const.64", const_64();
    ConstCopy, ConstCopy, None, "const.copy", const_copy();
    ConstLoad32, ConstLoad, None, "const.load.32", load(fixed, u32 as u64);
    ConstLoad64, ConstLoad, None, "const.load.64", load(fixed, u64 as u64);
    Select, Ternary, None, "select", ternary(u64: |a, b, c| if c != 0 { a } else { b });
    // Globals, references, tables and memories as a whole.
    GlobalGet, Index, None, "global.get", global_get();
    GlobalSet, Index, None, "global.set", global_set();
    GlobalGetImport, Index, None, "global.get.import", global_get_import();
    GlobalSetImport, Index, None, "global.set.import", global_set_import();
    RefFunc, Index, None, "ref.func", ref_func();
    TableGet, Table, None, "table.get", table_get();
    TableSet, Table, None, "table.set", table_set();
    TableSize, Index, None, "table.size", table_size();
    TableGrow, ThreeIndex, Prepaid, "table.grow", table_grow();
    TableFill, ThreeIndex, Prepaid, "table.fill", table_fill();
    TableCopy, ThreeIndex, Prepaid, "table.copy", bulk(TableCopy);
    TableInit, ThreeIndex, Prepaid, "table.init", bulk(TableInit);
    ElementDrop, Index, None, "elem.drop", drop_segment(elements);
    MemorySize, Target, None, "memory.size", memory_size();
    MemoryGrow, Unary, Prepaid, "memory.grow", memory_grow();
    MemoryFill, Three, Prepaid, "memory.fill", bulk(MemoryFill);
    MemoryCopy, Three, Prepaid, "memory.copy", bulk(MemoryCopy);
    MemoryInit, ThreeIndex, Prepaid, "memory.init", bulk(MemoryInit);
    DataDrop, Index, None, "data.drop", drop_segment(data);
    // Loads and stores: near and far offsets, scaled index, base plus constant, constants.
    Load32, Load, None, "load.32", load(near, u32 as u64);
    Load64, Load, None, "load.64", load(near, u64 as u64);
    I32Load8S, Load, None, "i32.load8_s", load(near, i8 as i32);
    Load8U, Load, None, "load8_u", load(near, u8 as u64);
    I32Load16S, Load, None, "i32.load16_s", load(near, i16 as i32);
    Load16U, Load, None, "load16_u", load(near, u16 as u64);
    I64Load8S, Load, None, "i64.load8_s", load(near, i8 as i64);
    I64Load16S, Load, None, "i64.load16_s", load(near, i16 as i64);
    I64Load32S, Load, None, "i64.load32_s", load(near, i32 as i64);
    Store8, Store, None, "store8", store(near, u8);
    Store16, Store, None, "store16", store(near, u16);
    Store32, Store, None, "store.32", store(near, u32);
    Store64, Store, None, "store.64", store(near, u64);
    Load32Far, LoadFar, None, "load.32.far", load(far, u32 as u64);
    Load64Far, LoadFar, None, "load.64.far", load(far, u64 as u64);
    I32Load8SFar, LoadFar, None, "i32.load8_s.far", load(far, i8 as i32);
    Load8UFar, LoadFar, None, "load8_u.far", load(far, u8 as u64);
    I32Load16SFar, LoadFar, None, "i32.load16_s.far", load(far, i16 as i32);
    Load16UFar, LoadFar, None, "load16_u.far", load(far, u16 as u64);
    I64Load8SFar, LoadFar, None, "i64.load8_s.far", load(far, i8 as i64);
    I64Load16SFar, LoadFar, None, "i64.load16_s.far", load(far, i16 as i64);
    I64Load32SFar, LoadFar, None, "i64.load32_s.far", load(far, i32 as i64);
    Store8Far, StoreFar, None, "store8.far", store(far, u8);
    Store16Far, StoreFar, None, "store16.far", store(far, u16);
    Store32Far, StoreFar, None, "store.32.far", store(far, u32);
    Store64Far, StoreFar, None, "store.64.far", store(far, u64);
    Load32Plus, LoadPlus, None, "load.32.plus", load(plus, u32 as u64);
    Load64Plus, LoadPlus, None, "load.64.plus", load(plus, u64 as u64);
    Load8UPlus, LoadPlus, None, "load8_u.plus", load(plus, u8 as u64);
    Load16UPlus, LoadPlus, None, "load16_u.plus", load(plus, u16 as u64);
    Store8Const, StoreConst, None, "store8.const", store_const(u8);
    Store16Const, StoreConst, None, "store16.const", store_const(u16);
    Store32Const, StoreConst, None, "store.32.const", store_const(u32);
    Store64Const, StoreConst, None, "store.64.const", store_const(u64);
    // Comparisons.
    I32Eq, Binary, None, "i32.eq", binary(u32: |a, b| a == b);
    I32Ne, Binary, None, "i32.ne", binary(u32: |a, b| a != b);
    I32LtS, Binary, None, "i32.lt_s", binary(i32: |a, b| a < b);
    I32LtU, Binary, None, "i32.lt_u", binary(u32: |a, b| a < b);
    I32LeS, Binary, None, "i32.le_s", binary(i32: |a, b| a <= b);
    I32LeU, Binary, None, "i32.le_u", binary(u32: |a, b| a <= b);
    I64Eq, Binary, None, "i64.eq", binary(u64: |a, b| a == b);
    I64Ne, Binary, None, "i64.ne", binary(u64: |a, b| a != b);
    I64LtS, Binary, None, "i64.lt_s", binary(i64: |a, b| a < b);
    I64LtU, Binary, None, "i64.lt_u", binary(u64: |a, b| a < b);
    I64LeS, Binary, None, "i64.le_s", binary(i64: |a, b| a <= b);
    I64LeU, Binary, None, "i64.le_u", binary(u64: |a, b| a <= b);
    I32EqConst, BinaryConst, None, "i32.eq.const", constant(u32: |a, b| a == b);
    I32NeConst, BinaryConst, None, "i32.ne.const", constant(u32: |a, b| a != b);
    I32LtSConst, BinaryConst, None, "i32.lt_s.const", constant(i32: |a, b| a < b);
    I32LtUConst, BinaryConst, None, "i32.lt_u.const", constant(u32: |a, b| a < b);
    I32GtSConst, BinaryConst, None, "i32.gt_s.const", constant(i32: |a, b| a > b);
    I32GtUConst, BinaryConst, None, "i32.gt_u.const", constant(u32: |a, b| a > b);
    I64EqConst, BinaryConst, None, "i64.eq.const", constant(u64: |a, b| a == b);
    I64NeConst, BinaryConst, None, "i64.ne.const", constant(u64: |a, b| a != b);
    I64LtSConst, BinaryConst, None, "i64.lt_s.const", constant(i64: |a, b| a < b);
    I64LtUConst, BinaryConst, None, "i64.lt_u.const", constant(u64: |a, b| a < b);
    I64GtSConst, BinaryConst, None, "i64.gt_s.const", constant(i64: |a, b| a > b);
    I64GtUConst, BinaryConst, None, "i64.gt_u.const", constant(u64: |a, b| a > b);
    F32Eq, Binary, None, "f32.eq", binary(u64: |a, b| single::eq(a, b));
    F32Ne, Binary, None, "f32.ne", binary(u64: |a, b| !single::eq(a, b));
    F32Lt, Binary, None, "f32.lt", binary(u64: |a, b| single::lt(a, b));
    F32Le, Binary, None, "f32.le", binary(u64: |a, b| single::le(a, b));
    F64Eq, Binary, None, "f64.eq", binary(u64: |a, b| double::eq(a, b));
    F64Ne, Binary, None, "f64.ne", binary(u64: |a, b| !double::eq(a, b));
    F64Lt, Binary, None, "f64.lt", binary(u64: |a, b| double::lt(a, b));
    F64Le, Binary, None, "f64.le", binary(u64: |a, b| double::le(a, b));
    // Integer arithmetic.
    I32Add, Binary, None, "i32.add", binary(Mod32: |a, b| a + b);
    I32Sub, Binary, None, "i32.sub", binary(Mod32: |a, b| a - b);
    I32Mul, Binary, None, "i32.mul", binary(Mod32: |a, b| a * b);
    I32And, Binary, None, "i32.and", binary(u64: |a, b| a & b);
    I32Or, Binary, None, "i32.or", binary(u64: |a, b| a | b);
    I32Xor, Binary, None, "i32.xor", binary(u64: |a, b| a ^ b);
    I32Shl, Binary, None, "i32.shl", binary(u32: |a, b| a << (b & 31));
    I32ShrS, Binary, None, "i32.shr_s", binary(i32: |a, b| a >> (b & 31));
    I32ShrU, Binary, None, "i32.shr_u", binary(u32: |a, b| a >> (b & 31));
    I32Rotl, Binary, None, "i32.rotl", binary(u32: |a, b| a.rotate_left(b));
    I32Rotr, Binary, None, "i32.rotr", binary(u32: |a, b| a.rotate_right(b));
    I32DivS, Binary, None, "i32.div_s", try_binary(i32: |a, b| number::div_i32(a, b));
    I32DivU, Binary, None, "i32.div_u", try_binary(u32: |a, b| number::div_u32(a, b));
    I32RemS, Binary, None, "i32.rem_s", try_binary(i32: |a, b| number::rem_i32(a, b));
    I32RemU, Binary, None, "i32.rem_u", try_binary(u32: |a, b| number::rem_u32(a, b));
    I64Add, Binary, None, "i64.add", binary(Mod64: |a, b| a + b);
    I64Sub, Binary, None, "i64.sub", binary(Mod64: |a, b| a - b);
    I64Mul, Binary, None, "i64.mul", binary(Mod64: |a, b| a * b);
    I64And, Binary, None, "i64.and", binary(u64: |a, b| a & b);
    I64Or, Binary, None, "i64.or", binary(u64: |a, b| a | b);
    I64Xor, Binary, None, "i64.xor", binary(u64: |a, b| a ^ b);
    I64Shl, Binary, None, "i64.shl", binary(u64: |a, b| a << (b & 63));
    I64ShrS, Binary, None, "i64.shr_s", binary(i64: |a, b| a >> (b & 63));
    I64ShrU, Binary, None, "i64.shr_u", binary(u64: |a, b| a >> (b & 63));
    I64Rotl, Binary, None, "i64.rotl", binary(u64: |a, b| a.rotate_left(b as _));
    I64Rotr, Binary, None, "i64.rotr", binary(u64: |a, b| a.rotate_right(b as _));
    I64DivS, Binary, None, "i64.div_s", try_binary(i64: |a, b| number::div_i64(a, b));
    I64DivU, Binary, None, "i64.div_u", try_binary(u64: |a, b| number::div_u64(a, b));
    I64RemS, Binary, None, "i64.rem_s", try_binary(i64: |a, b| number::rem_i64(a, b));
    I64RemU, Binary, None, "i64.rem_u", try_binary(u64: |a, b| number::rem_u64(a, b));
    I32AddConst, BinaryConst, None, "i32.add.const", constant(Mod32: |a, b| a + b);
    I32MulConst, BinaryConst, None, "i32.mul.const", constant(Mod32: |a, b| a * b);
    I32AndConst, BinaryConst, None, "i32.and.const", constant(u64: |a, b| a & b);
    I32OrConst, BinaryConst, None, "i32.or.const", constant(u64: |a, b| a | b);
    I32XorConst, BinaryConst, None, "i32.xor.const", constant(u64: |a, b| a ^ b);
    I32ShlConst, BinaryConst, None, "i32.shl.const", constant(u32: |a, b| a << (b & 31));
    I32ShrSConst, BinaryConst, None, "i32.shr_s.const", constant(i32: |a, b| a >> (b & 31));
    I32ShrUConst, BinaryConst, None, "i32.shr_u.const", constant(u32: |a, b| a >> (b & 31));
    I32RotlConst, BinaryConst, None, "i32.rotl.const", constant(u32: |a, b| a.rotate_left(b));
    I32DivUConst, BinaryConst, None, "i32.div_u.const", constant(u32: |a, b| a / b.max(1));
    I32RemUConst, BinaryConst, None, "i32.rem_u.const", constant(u32: |a, b| a % b.max(1));
    I64AddConst, BinaryConst, None, "i64.add.const", constant(Mod64: |a, b| a + b);
    I64MulConst, BinaryConst, None, "i64.mul.const", constant(Mod64: |a, b| a * b);
    I64AndConst, BinaryConst, None, "i64.and.const", constant(u64: |a, b| a & b);
    I64OrConst, BinaryConst, None, "i64.or.const", constant(u64: |a, b| a | b);
    I64XorConst, BinaryConst, None, "i64.xor.const", constant(u64: |a, b| a ^ b);
    I64ShlConst, BinaryConst, None, "i64.shl.const", constant(u64: |a, b| a << (b & 63));
    I64ShrSConst, BinaryConst, None, "i64.shr_s.const", constant(i64: |a, b| a >> (b & 63));
    I64ShrUConst, BinaryConst, None, "i64.shr_u.const", constant(u64: |a, b| a >> (b & 63));
    I64RotlConst, BinaryConst, None, "i64.rotl.const", constant(u64: |a, b| a.rotate_left(b as _));
    I64DivUConst, BinaryConst, None, "i64.div_u.const", constant(u64: |a, b| a / b.max(1));
    I64RemUConst, BinaryConst, None, "i64.rem_u.const", constant(u64: |a, b| a % b.max(1));
    // Fused arithmetic.
    I32MulAddConst, MulAddConst, None, "i32.mul_add.const", mul_add_const();
    I32AddAdd, Ternary, None, "i32.add_add", ternary(Mod32: |a, b, c| a + b + c);
    I32XorRotl, TernaryConst, None, "i32.xor_rotl", fused(u32: |a, b, n| a ^ b.rotate_left(n));
    I32XorShrU, TernaryConst, None, "i32.xor_shr_u", fused(u32: |a, b, n| a ^ (b >> (n & 31)));
    F32MulAdd, Ternary, None, "f32.mul_add", ternary(u64: |a, b, c| single::add_product(c, a, b));
    F64MulAdd, Ternary, None, "f64.mul_add", ternary(u64: |a, b, c| double::add_product(c, a, b));
    // Integer unary operators.
    I32Clz, Unary, None, "i32.clz", unary(u32: |a| a.leading_zeros());
    I32Ctz, Unary, None, "i32.ctz", unary(u32: |a| a.trailing_zeros());
    I32Popcnt, Unary, None, "i32.popcnt", unary(u32: |a| a.count_ones());
    I32Extend8S, Unary, None, "i32.extend8_s", unary(i8: |a| i32::from(a));
    I32Extend16S, Unary, None, "i32.extend16_s", unary(i16: |a| i32::from(a));
    I64Clz, Unary, None, "i64.clz", unary(u64: |a| a.leading_zeros());
    I64Ctz, Unary, None, "i64.ctz", unary(u64: |a| a.trailing_zeros());
    I64Popcnt, Unary, None, "i64.popcnt", unary(u64: |a| a.count_ones());
    I64Extend8S, Unary, None, "i64.extend8_s", unary(i8: |a| i64::from(a));
    I64Extend16S, Unary, None, "i64.extend16_s", unary(i16: |a| i64::from(a));
    I64Extend32S, Unary, None, "i64.extend32_s", unary(i32: |a| i64::from(a));
    I32WrapI64, Unary, None, "i32.wrap_i64", unary(u32: |a| a);
    // Floats.
    F32Add, Binary, None, "f32.add", binary(u64: |a, b| single::add(a, b));
    F32Sub, Binary, None, "f32.sub", binary(u64: |a, b| single::sub(a, b));
    F32Mul, Binary, None, "f32.mul", binary(u64: |a, b| single::mul(a, b));
    F32Div, Binary, None, "f32.div", binary(u64: |a, b| single::div(a, b));
    F32Min, Binary, None, "f32.min", binary(u64: |a, b| single::min(a, b));
    F32Max, Binary, None, "f32.max", binary(u64: |a, b| single::max(a, b));
    F32Copysign, Binary, None, "f32.copysign", binary(u64: |a, b| single::copysign(a, b));
    F64Add, Binary, None, "f64.add", binary(u64: |a, b| double::add(a, b));
    F64Sub, Binary, None, "f64.sub", binary(u64: |a, b| double::sub(a, b));
    F64Mul, Binary, None, "f64.mul", binary(u64: |a, b| double::mul(a, b));
    F64Div, Binary, None, "f64.div", binary(u64: |a, b| double::div(a, b));
    F64Min, Binary, None, "f64.min", binary(u64: |a, b| double::min(a, b));
    F64Max, Binary, None, "f64.max", binary(u64: |a, b| double::max(a, b));
    F64Copysign, Binary, None, "f64.copysign", binary(u64: |a, b| double::copysign(a, b));
    F32Abs, Unary, None, "f32.abs", unary(u64: |a| single::abs(a));
    F32Neg, Unary, None, "f32.neg", unary(u64: |a| single::neg(a));
    F32Ceil, Unary, None, "f32.ceil", unary(u64: |a| single::ceil(a));
    F32Floor, Unary, None, "f32.floor", unary(u64: |a| single::floor(a));
    F32Trunc, Unary, None, "f32.trunc", unary(u64: |a| single::trunc(a));
    F32Nearest, Unary, None, "f32.nearest", unary(u64: |a| single::nearest(a));
    F32Sqrt, Unary, None, "f32.sqrt", unary(u64: |a| single::sqrt(a));
    F64Abs, Unary, None, "f64.abs", unary(u64: |a| double::abs(a));
    F64Neg, Unary, None, "f64.neg", unary(u64: |a| double::neg(a));
    F64Ceil, Unary, None, "f64.ceil", unary(u64: |a| double::ceil(a));
    F64Floor, Unary, None, "f64.floor", unary(u64: |a| double::floor(a));
    F64Trunc, Unary, None, "f64.trunc", unary(u64: |a| double::trunc(a));
    F64Nearest, Unary, None, "f64.nearest", unary(u64: |a| double::nearest(a));
    F64Sqrt, Unary, None, "f64.sqrt", unary(u64: |a| double::sqrt(a));
    // Conversions.
    I32TruncF32S, Unary, None, "i32.trunc_f32_s", try_unary(u64: |a| number::i32_from_f32(a));
    I32TruncF32U, Unary, None, "i32.trunc_f32_u", try_unary(u64: |a| number::u32_from_f32(a));
    I32TruncF64S, Unary, None, "i32.trunc_f64_s", try_unary(u64: |a| number::i32_from_f64(a));
    I32TruncF64U, Unary, None, "i32.trunc_f64_u", try_unary(u64: |a| number::u32_from_f64(a));
    I64TruncF32S, Unary, None, "i64.trunc_f32_s", try_unary(u64: |a| number::i64_from_f32(a));
    I64TruncF32U, Unary, None, "i64.trunc_f32_u", try_unary(u64: |a| number::u64_from_f32(a));
    I64TruncF64S, Unary, None, "i64.trunc_f64_s", try_unary(u64: |a| number::i64_from_f64(a));
    I64TruncF64U, Unary, None, "i64.trunc_f64_u", try_unary(u64: |a| number::u64_from_f64(a));
    I32TruncSatF32S, Unary, None, "i32.trunc_sat_f32_s", unary(f32: |a| a as i32);
    I32TruncSatF32U, Unary, None, "i32.trunc_sat_f32_u", unary(f32: |a| a as u32);
    I32TruncSatF64S, Unary, None, "i32.trunc_sat_f64_s", unary(f64: |a| a as i32);
    I32TruncSatF64U, Unary, None, "i32.trunc_sat_f64_u", unary(f64: |a| a as u32);
    I64TruncSatF32S, Unary, None, "i64.trunc_sat_f32_s", unary(f32: |a| a as i64);
    I64TruncSatF32U, Unary, None, "i64.trunc_sat_f32_u", unary(f32: |a| a as u64);
    I64TruncSatF64S, Unary, None, "i64.trunc_sat_f64_s", unary(f64: |a| a as i64);
    I64TruncSatF64U, Unary, None, "i64.trunc_sat_f64_u", unary(f64: |a| a as u64);
    F32ConvertI32S, Unary, None, "f32.convert_i32_s", unary(i32: |a| a as f32);
    F32ConvertI32U, Unary, None, "f32.convert_i32_u", unary(u32: |a| a as f32);
    F32ConvertI64S, Unary, None, "f32.convert_i64_s", unary(i64: |a| a as f32);
    F32ConvertI64U, Unary, None, "f32.convert_i64_u", unary(u64: |a| a as f32);
    F64ConvertI32S, Unary, None, "f64.convert_i32_s", unary(i32: |a| a as f64);
    F64ConvertI32U, Unary, None, "f64.convert_i32_u", unary(u32: |a| a as f64);
    F64ConvertI64S, Unary, None, "f64.convert_i64_s", unary(i64: |a| a as f64);
    F64ConvertI64U, Unary, None, "f64.convert_i64_u", unary(u64: |a| a as f64);
    F32DemoteF64, Unary, None, "f32.demote_f64", unary(u64: |a| number::demote(a));
    F64PromoteF32, Unary, None, "f64.promote_f32", unary(u64: |a| number::promote(a));
    } };
}
