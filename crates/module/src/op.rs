//! The lowered instruction set: one table from which the enum, the printer and the documentation expand.
//!
//! An instruction is one or more 64-bit words. The first is `[op:16 | a:16 | b:16 | c:16]`, low bits first; its [`Form`] says what
//! the fields mean and how many words follow. `r` below is a register: a 64-bit slot of the running function's window.

macro_rules! forms {
    ($($name:ident, $words:literal, $text:literal;)*) => {
        /// How an instruction's words are laid out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Form {
            $(#[doc = $text] $name,)*
        }

        impl Form {
            /// Every form.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What the fields mean.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Words of an instruction of this form, without the entries of a branch table.
            #[must_use]
            pub const fn words(self) -> u32 {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

forms! {
    Plain, 1, "No operands";
    Cost, 1, "b and c: cycles to charge";
    Enter, 2, "a: cycles, b: registers of the window, c: locals to clear; then `[first local:16 | parameters:16 | function:32]`";
    Jump, 2, "then `[distance:32 | cycles of the target's block:32]`";
    BranchOne, 3, "a: condition r; then two branch words";
    BranchTwo, 3, "a, b: r; then two branch words";
    BranchConst, 3, "a: r, c: signed constant; then two branch words";
    BranchTable, 1, "a: index r, b and c: number of entries before the default; then an entry for each, and the default: `[distance:32 | cycles:16 | flags:16]`";
    Return, 1, "a: link r";
    ReturnOne, 1, "a: link r, b: result r";
    ReturnMany, 1, "a: link r, b: first result r, c: number of results";
    Call, 2, "a: first argument r, b: number of arguments, c: own link r; then `[entry word:32 | function:32]`";
    CallImport, 2, "a: first argument r, b: number of arguments, c: how many words ahead it goes on if the answer is 0; then `[imported function:32 | cycles of that way:32]`";
    ReturnCallImport, 2, "a: first argument r, b: number of arguments, c: own link r; then the imported function";
    CallIndirect, 2, "a: first argument r, b: number of arguments, c: index r; then `[type:32 | table:16 | own link r:16]`";
    Target, 1, "a: destination r";
    Unary, 1, "a: destination r, b: source r";
    Binary, 1, "a: destination r, b and c: source r";
    BinaryConst, 2, "a: destination r, b: source r; then a 64-bit constant";
    Const32, 1, "a: destination r, b and c: a zero-extended 32-bit constant";
    Const64, 2, "a: destination r; then a 64-bit constant";
    ConstCopy, 2, "a: r, b and c: a zero-extended 32-bit constant for it; then `[destination r:16 | source r:16]` of a copy";
    ConstLoad, 2, "a: destination r, b and c: address; then a 64-bit offset";
    Ternary, 2, "a: destination r, b and c: source r; then a third source r";
    TernaryConst, 2, "a: destination r, b and c: source r; then a 64-bit constant";
    MulAddConst, 2, "a: destination r, b: source r; then `[factor:32 | addend:32]`";
    CopyTwo, 2, "a and b: destination and source r of the first copy, c: destination r of the second; then its source r";
    Range, 1, "a: first destination r, b: first source r, c: how many, ascending";
    Load, 1, "a: destination r, b: address r, c: offset";
    LoadFar, 2, "a: destination r, b: address r; then a 64-bit offset";
    Store, 1, "a: value r, b: address r, c: offset";
    StoreFar, 2, "a: value r, b: address r; then a 64-bit offset";
    LoadPlus, 2, "a: destination r, b: base r; then `[constant:32 | offset:32]`, the constant added modulo 2^32";
    StoreConst, 1, "a: signed constant, b: address r, c: offset";
    LoopTwo, 3, "a: counter r, b: r (0 where the test needs none), c: signed step; then two branch words";
    LoopConst, 3, "a: counter r, b: signed constant, c: signed step; then two branch words";
    Index, 1, "a: r, b and c: an index (global, function, segment or table)";
    Table, 1, "a, b: r, c: table";
    Three, 1, "a, b, c: r";
    ThreeIndex, 2, "a, b, c: r; then `[index:32 | second index:32]`";
}

macro_rules! ops {
    ($($name:ident, $form:ident, $stops:literal, $text:literal;)*) => {
        /// A lowered instruction.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op {
            $(#[doc = $text] $name,)*
        }

        impl Op {
            /// Every instruction, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The instruction of a number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
            }

            /// What the printer writes.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How its words are laid out.
            #[must_use]
            pub const fn form(self) -> Form {
                match self { $(Self::$name => Form::$form,)* }
            }

            /// Whether a coroutine can stop here without a fault.
            #[must_use]
            pub const fn may_stop(self) -> bool {
                match self { $(Self::$name => $stops,)* }
            }
        }
    };
}

ops! {
    Unreachable, Plain, false, "unreachable";
    Charge, Cost, false, "charge";
    Safepoint, Cost, true, "safepoint";
    Enter, Enter, true, "enter";
    Jump, Jump, false, "jump";
    JumpLoop, Jump, true, "jump.loop";
    BranchTable, BranchTable, true, "branch.table";
    Return, Return, true, "return";
    ReturnOne, ReturnOne, true, "return.one";
    ReturnMany, ReturnMany, true, "return.many";
    Call, Call, true, "call";
    CallImport, CallImport, true, "call.import";
    CallIndirect, CallIndirect, true, "call.indirect";
    ReturnCall, Call, true, "return.call";
    ReturnCallImport, ReturnCallImport, true, "return.call.import";
    ReturnCallIndirect, CallIndirect, true, "return.call.indirect";
    BranchIf, BranchOne, true, "branch.if";
    BranchIfNot, BranchOne, true, "branch.if.not";
    BranchI32Eq, BranchTwo, true, "branch.i32.eq";
    BranchI32Ne, BranchTwo, true, "branch.i32.ne";
    BranchI32LtS, BranchTwo, true, "branch.i32.lt_s";
    BranchI32LtU, BranchTwo, true, "branch.i32.lt_u";
    BranchI32LeS, BranchTwo, true, "branch.i32.le_s";
    BranchI32LeU, BranchTwo, true, "branch.i32.le_u";
    BranchI64Eq, BranchTwo, true, "branch.i64.eq";
    BranchI64Ne, BranchTwo, true, "branch.i64.ne";
    BranchI64LtS, BranchTwo, true, "branch.i64.lt_s";
    BranchI64LtU, BranchTwo, true, "branch.i64.lt_u";
    BranchI64LeS, BranchTwo, true, "branch.i64.le_s";
    BranchI64LeU, BranchTwo, true, "branch.i64.le_u";
    BranchI32EqConst, BranchConst, true, "branch.i32.eq.const";
    BranchI32NeConst, BranchConst, true, "branch.i32.ne.const";
    BranchI32LtSConst, BranchConst, true, "branch.i32.lt_s.const";
    BranchI32LtUConst, BranchConst, true, "branch.i32.lt_u.const";
    BranchI32GtSConst, BranchConst, true, "branch.i32.gt_s.const";
    BranchI32GtUConst, BranchConst, true, "branch.i32.gt_u.const";
    BranchI64EqConst, BranchConst, true, "branch.i64.eq.const";
    BranchI64NeConst, BranchConst, true, "branch.i64.ne.const";
    BranchI64LtSConst, BranchConst, true, "branch.i64.lt_s.const";
    BranchI64LtUConst, BranchConst, true, "branch.i64.lt_u.const";
    BranchI64GtSConst, BranchConst, true, "branch.i64.gt_s.const";
    BranchI64GtUConst, BranchConst, true, "branch.i64.gt_u.const";
    LoopI32NeZero, LoopTwo, true, "loop.i32.ne_zero";
    LoopI32Ne, LoopTwo, true, "loop.i32.ne";
    LoopI32LtS, LoopTwo, true, "loop.i32.lt_s";
    LoopI32LtU, LoopTwo, true, "loop.i32.lt_u";
    LoopI32LeS, LoopTwo, true, "loop.i32.le_s";
    LoopI32LeU, LoopTwo, true, "loop.i32.le_u";
    LoopI32GtS, LoopTwo, true, "loop.i32.gt_s";
    LoopI32GtU, LoopTwo, true, "loop.i32.gt_u";
    LoopI32GeS, LoopTwo, true, "loop.i32.ge_s";
    LoopI32GeU, LoopTwo, true, "loop.i32.ge_u";
    LoopI32NeConst, LoopConst, true, "loop.i32.ne.const";
    LoopI32LtSConst, LoopConst, true, "loop.i32.lt_s.const";
    LoopI32LtUConst, LoopConst, true, "loop.i32.lt_u.const";
    LoopI32GtSConst, LoopConst, true, "loop.i32.gt_s.const";
    LoopI32GtUConst, LoopConst, true, "loop.i32.gt_u.const";
    Copy, Unary, false, "copy";
    CopyTwo, CopyTwo, false, "copy.two";
    CopyRange, Range, false, "copy.range";
    Const32, Const32, false, "const.32";
    Const64, Const64, false, "const.64";
    ConstCopy, ConstCopy, false, "const.copy";
    ConstLoad32, ConstLoad, false, "const.load.32";
    ConstLoad64, ConstLoad, false, "const.load.64";
    Select, Ternary, false, "select";
    GlobalGet, Index, false, "global.get";
    GlobalSet, Index, false, "global.set";
    GlobalGetImport, Index, false, "global.get.import";
    GlobalSetImport, Index, false, "global.set.import";
    RefFunc, Index, false, "ref.func";
    TableGet, Table, false, "table.get";
    TableSet, Table, false, "table.set";
    TableSize, Index, false, "table.size";
    TableGrow, ThreeIndex, true, "table.grow";
    TableFill, ThreeIndex, true, "table.fill";
    TableCopy, ThreeIndex, true, "table.copy";
    TableInit, ThreeIndex, true, "table.init";
    ElementDrop, Index, false, "elem.drop";
    MemorySize, Target, false, "memory.size";
    MemoryGrow, Unary, true, "memory.grow";
    MemoryFill, Three, true, "memory.fill";
    MemoryCopy, Three, true, "memory.copy";
    MemoryInit, ThreeIndex, true, "memory.init";
    DataDrop, Index, false, "data.drop";
    Load32, Load, false, "load.32";
    Load64, Load, false, "load.64";
    I32Load8S, Load, false, "i32.load8_s";
    Load8U, Load, false, "load8_u";
    I32Load16S, Load, false, "i32.load16_s";
    Load16U, Load, false, "load16_u";
    I64Load8S, Load, false, "i64.load8_s";
    I64Load16S, Load, false, "i64.load16_s";
    I64Load32S, Load, false, "i64.load32_s";
    Store8, Store, false, "store8";
    Store16, Store, false, "store16";
    Store32, Store, false, "store.32";
    Store64, Store, false, "store.64";
    Load32Far, LoadFar, false, "load.32.far";
    Load64Far, LoadFar, false, "load.64.far";
    I32Load8SFar, LoadFar, false, "i32.load8_s.far";
    Load8UFar, LoadFar, false, "load8_u.far";
    I32Load16SFar, LoadFar, false, "i32.load16_s.far";
    Load16UFar, LoadFar, false, "load16_u.far";
    I64Load8SFar, LoadFar, false, "i64.load8_s.far";
    I64Load16SFar, LoadFar, false, "i64.load16_s.far";
    I64Load32SFar, LoadFar, false, "i64.load32_s.far";
    Store8Far, StoreFar, false, "store8.far";
    Store16Far, StoreFar, false, "store16.far";
    Store32Far, StoreFar, false, "store.32.far";
    Store64Far, StoreFar, false, "store.64.far";
    Load32Plus, LoadPlus, false, "load.32.plus";
    Load64Plus, LoadPlus, false, "load.64.plus";
    Load8UPlus, LoadPlus, false, "load8_u.plus";
    Load16UPlus, LoadPlus, false, "load16_u.plus";
    Store8Const, StoreConst, false, "store8.const";
    Store16Const, StoreConst, false, "store16.const";
    Store32Const, StoreConst, false, "store.32.const";
    Store64Const, StoreConst, false, "store.64.const";
    I32Eq, Binary, false, "i32.eq";
    I32Ne, Binary, false, "i32.ne";
    I32LtS, Binary, false, "i32.lt_s";
    I32LtU, Binary, false, "i32.lt_u";
    I32LeS, Binary, false, "i32.le_s";
    I32LeU, Binary, false, "i32.le_u";
    I64Eq, Binary, false, "i64.eq";
    I64Ne, Binary, false, "i64.ne";
    I64LtS, Binary, false, "i64.lt_s";
    I64LtU, Binary, false, "i64.lt_u";
    I64LeS, Binary, false, "i64.le_s";
    I64LeU, Binary, false, "i64.le_u";
    I32EqConst, BinaryConst, false, "i32.eq.const";
    I32NeConst, BinaryConst, false, "i32.ne.const";
    I32LtSConst, BinaryConst, false, "i32.lt_s.const";
    I32LtUConst, BinaryConst, false, "i32.lt_u.const";
    I32GtSConst, BinaryConst, false, "i32.gt_s.const";
    I32GtUConst, BinaryConst, false, "i32.gt_u.const";
    I64EqConst, BinaryConst, false, "i64.eq.const";
    I64NeConst, BinaryConst, false, "i64.ne.const";
    I64LtSConst, BinaryConst, false, "i64.lt_s.const";
    I64LtUConst, BinaryConst, false, "i64.lt_u.const";
    I64GtSConst, BinaryConst, false, "i64.gt_s.const";
    I64GtUConst, BinaryConst, false, "i64.gt_u.const";
    F32Eq, Binary, false, "f32.eq";
    F32Ne, Binary, false, "f32.ne";
    F32Lt, Binary, false, "f32.lt";
    F32Le, Binary, false, "f32.le";
    F64Eq, Binary, false, "f64.eq";
    F64Ne, Binary, false, "f64.ne";
    F64Lt, Binary, false, "f64.lt";
    F64Le, Binary, false, "f64.le";
    I32Add, Binary, false, "i32.add";
    I32Sub, Binary, false, "i32.sub";
    I32Mul, Binary, false, "i32.mul";
    I32And, Binary, false, "i32.and";
    I32Or, Binary, false, "i32.or";
    I32Xor, Binary, false, "i32.xor";
    I32Shl, Binary, false, "i32.shl";
    I32ShrS, Binary, false, "i32.shr_s";
    I32ShrU, Binary, false, "i32.shr_u";
    I32Rotl, Binary, false, "i32.rotl";
    I32Rotr, Binary, false, "i32.rotr";
    I32DivS, Binary, false, "i32.div_s";
    I32DivU, Binary, false, "i32.div_u";
    I32RemS, Binary, false, "i32.rem_s";
    I32RemU, Binary, false, "i32.rem_u";
    I64Add, Binary, false, "i64.add";
    I64Sub, Binary, false, "i64.sub";
    I64Mul, Binary, false, "i64.mul";
    I64And, Binary, false, "i64.and";
    I64Or, Binary, false, "i64.or";
    I64Xor, Binary, false, "i64.xor";
    I64Shl, Binary, false, "i64.shl";
    I64ShrS, Binary, false, "i64.shr_s";
    I64ShrU, Binary, false, "i64.shr_u";
    I64Rotl, Binary, false, "i64.rotl";
    I64Rotr, Binary, false, "i64.rotr";
    I64DivS, Binary, false, "i64.div_s";
    I64DivU, Binary, false, "i64.div_u";
    I64RemS, Binary, false, "i64.rem_s";
    I64RemU, Binary, false, "i64.rem_u";
    I32AddConst, BinaryConst, false, "i32.add.const";
    I32MulConst, BinaryConst, false, "i32.mul.const";
    I32AndConst, BinaryConst, false, "i32.and.const";
    I32OrConst, BinaryConst, false, "i32.or.const";
    I32XorConst, BinaryConst, false, "i32.xor.const";
    I32ShlConst, BinaryConst, false, "i32.shl.const";
    I32ShrSConst, BinaryConst, false, "i32.shr_s.const";
    I32ShrUConst, BinaryConst, false, "i32.shr_u.const";
    I32RotlConst, BinaryConst, false, "i32.rotl.const";
    I32DivUConst, BinaryConst, false, "i32.div_u.const";
    I32RemUConst, BinaryConst, false, "i32.rem_u.const";
    I64AddConst, BinaryConst, false, "i64.add.const";
    I64MulConst, BinaryConst, false, "i64.mul.const";
    I64AndConst, BinaryConst, false, "i64.and.const";
    I64OrConst, BinaryConst, false, "i64.or.const";
    I64XorConst, BinaryConst, false, "i64.xor.const";
    I64ShlConst, BinaryConst, false, "i64.shl.const";
    I64ShrSConst, BinaryConst, false, "i64.shr_s.const";
    I64ShrUConst, BinaryConst, false, "i64.shr_u.const";
    I64RotlConst, BinaryConst, false, "i64.rotl.const";
    I64DivUConst, BinaryConst, false, "i64.div_u.const";
    I64RemUConst, BinaryConst, false, "i64.rem_u.const";
    I32MulAddConst, MulAddConst, false, "i32.mul_add.const";
    I32AddAdd, Ternary, false, "i32.add_add";
    I32XorRotl, TernaryConst, false, "i32.xor_rotl";
    I32XorShrU, TernaryConst, false, "i32.xor_shr_u";
    F32MulAdd, Ternary, false, "f32.mul_add";
    F64MulAdd, Ternary, false, "f64.mul_add";
    I32Clz, Unary, false, "i32.clz";
    I32Ctz, Unary, false, "i32.ctz";
    I32Popcnt, Unary, false, "i32.popcnt";
    I32Extend8S, Unary, false, "i32.extend8_s";
    I32Extend16S, Unary, false, "i32.extend16_s";
    I64Clz, Unary, false, "i64.clz";
    I64Ctz, Unary, false, "i64.ctz";
    I64Popcnt, Unary, false, "i64.popcnt";
    I64Extend8S, Unary, false, "i64.extend8_s";
    I64Extend16S, Unary, false, "i64.extend16_s";
    I64Extend32S, Unary, false, "i64.extend32_s";
    I32WrapI64, Unary, false, "i32.wrap_i64";
    F32Add, Binary, false, "f32.add";
    F32Sub, Binary, false, "f32.sub";
    F32Mul, Binary, false, "f32.mul";
    F32Div, Binary, false, "f32.div";
    F32Min, Binary, false, "f32.min";
    F32Max, Binary, false, "f32.max";
    F32Copysign, Binary, false, "f32.copysign";
    F64Add, Binary, false, "f64.add";
    F64Sub, Binary, false, "f64.sub";
    F64Mul, Binary, false, "f64.mul";
    F64Div, Binary, false, "f64.div";
    F64Min, Binary, false, "f64.min";
    F64Max, Binary, false, "f64.max";
    F64Copysign, Binary, false, "f64.copysign";
    F32Abs, Unary, false, "f32.abs";
    F32Neg, Unary, false, "f32.neg";
    F32Ceil, Unary, false, "f32.ceil";
    F32Floor, Unary, false, "f32.floor";
    F32Trunc, Unary, false, "f32.trunc";
    F32Nearest, Unary, false, "f32.nearest";
    F32Sqrt, Unary, false, "f32.sqrt";
    F64Abs, Unary, false, "f64.abs";
    F64Neg, Unary, false, "f64.neg";
    F64Ceil, Unary, false, "f64.ceil";
    F64Floor, Unary, false, "f64.floor";
    F64Trunc, Unary, false, "f64.trunc";
    F64Nearest, Unary, false, "f64.nearest";
    F64Sqrt, Unary, false, "f64.sqrt";
    I32TruncF32S, Unary, false, "i32.trunc_f32_s";
    I32TruncF32U, Unary, false, "i32.trunc_f32_u";
    I32TruncF64S, Unary, false, "i32.trunc_f64_s";
    I32TruncF64U, Unary, false, "i32.trunc_f64_u";
    I64TruncF32S, Unary, false, "i64.trunc_f32_s";
    I64TruncF32U, Unary, false, "i64.trunc_f32_u";
    I64TruncF64S, Unary, false, "i64.trunc_f64_s";
    I64TruncF64U, Unary, false, "i64.trunc_f64_u";
    I32TruncSatF32S, Unary, false, "i32.trunc_sat_f32_s";
    I32TruncSatF32U, Unary, false, "i32.trunc_sat_f32_u";
    I32TruncSatF64S, Unary, false, "i32.trunc_sat_f64_s";
    I32TruncSatF64U, Unary, false, "i32.trunc_sat_f64_u";
    I64TruncSatF32S, Unary, false, "i64.trunc_sat_f32_s";
    I64TruncSatF32U, Unary, false, "i64.trunc_sat_f32_u";
    I64TruncSatF64S, Unary, false, "i64.trunc_sat_f64_s";
    I64TruncSatF64U, Unary, false, "i64.trunc_sat_f64_u";
    F32ConvertI32S, Unary, false, "f32.convert_i32_s";
    F32ConvertI32U, Unary, false, "f32.convert_i32_u";
    F32ConvertI64S, Unary, false, "f32.convert_i64_s";
    F32ConvertI64U, Unary, false, "f32.convert_i64_u";
    F64ConvertI32S, Unary, false, "f64.convert_i32_s";
    F64ConvertI32U, Unary, false, "f64.convert_i32_u";
    F64ConvertI64S, Unary, false, "f64.convert_i64_s";
    F64ConvertI64U, Unary, false, "f64.convert_i64_u";
    F32DemoteF64, Unary, false, "f32.demote_f64";
    F64PromoteF32, Unary, false, "f64.promote_f32";
}

impl Op {
    /// Whether it can end the coroutine with a fault, beside those that can stop.
    #[must_use]
    pub const fn may_fault(self) -> bool {
        match self.form() {
            Form::Load
            | Form::LoadFar
            | Form::LoadPlus
            | Form::ConstLoad
            | Form::Store
            | Form::StoreFar
            | Form::StoreConst
            | Form::Table => true,
            _ => matches!(
                self,
                Self::Unreachable
                    | Self::I32DivS
                    | Self::I32DivU
                    | Self::I32RemS
                    | Self::I32RemU
                    | Self::I64DivS
                    | Self::I64DivU
                    | Self::I64RemS
                    | Self::I64RemU
                    | Self::I32TruncF32S
                    | Self::I32TruncF32U
                    | Self::I32TruncF64S
                    | Self::I32TruncF64U
                    | Self::I64TruncF32S
                    | Self::I64TruncF32U
                    | Self::I64TruncF64S
                    | Self::I64TruncF64U
            ),
        }
    }

    /// Whether this branch on a register and a constant goes to its target if the register holds 0; `None` if it is no such branch.
    pub(crate) const fn goes_for_zero(self, constant: i16) -> Option<bool> {
        Some(match self {
            Self::BranchIf => false,
            Self::BranchIfNot => true,
            Self::BranchI32EqConst | Self::BranchI64EqConst => constant == 0,
            Self::BranchI32NeConst | Self::BranchI64NeConst | Self::BranchI32LtUConst | Self::BranchI64LtUConst => constant != 0,
            Self::BranchI32LtSConst | Self::BranchI64LtSConst => 0 < constant,
            Self::BranchI32GtSConst | Self::BranchI64GtSConst => 0 > constant,
            Self::BranchI32GtUConst | Self::BranchI64GtUConst => false,
            _ => return None,
        })
    }
}

/// The first word of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// Packs an instruction and its fields.
    #[must_use]
    pub const fn new(op: Op, a: u16, b: u16, c: u16) -> Self {
        Self(op as u64 | (a as u64) << 16 | (b as u64) << 32 | (c as u64) << 48)
    }

    /// Packs an instruction, field a, and a 32-bit value in b and c.
    #[must_use]
    pub const fn wide(op: Op, a: u16, bc: u32) -> Self {
        Self(op as u64 | (a as u64) << 16 | (bc as u64) << 32)
    }

    /// The same fields in another instruction.
    #[must_use]
    pub const fn with_op(self, op: Op) -> Self {
        Self(self.0 & !0xffff | op as u64)
    }

    /// The instruction's number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// The instruction, if the number is one.
    #[must_use]
    pub const fn op(self) -> Option<Op> {
        Op::from_number(self.number())
    }

    /// Field a.
    #[must_use]
    #[inline(always)]
    pub const fn a(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Field b.
    #[must_use]
    #[inline(always)]
    pub const fn b(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Field c.
    #[must_use]
    #[inline(always)]
    pub const fn c(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Fields b and c as one number.
    #[must_use]
    #[inline(always)]
    pub const fn bc(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// An entry of a branch table: `[distance:32 | cycles:16 | flags:16]`.
///
/// A distance is how many words ahead of the instruction the target is, as a signed number: whoever runs it need not know where the code begins.
/// The two words that follow other conditional branches are `[distance:32 | cycles if taken:32]` and `[cycles if not taken:32 | stop:32]`:
/// `stop` is the loop header (a `safepoint`) that a branch backwards arrives at, where it stops if nothing is left; 0 for a branch forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry(pub u64);

impl TableEntry {
    /// Flag: the target is a loop's first word; its header, a safepoint, is the word before.
    pub const LOOP: u16 = 1;

    /// How many words ahead of the instruction the target is.
    #[must_use]
    #[inline(always)]
    pub const fn distance(self) -> i32 {
        self.0 as i32
    }

    /// Cycles of the target's block.
    #[must_use]
    #[inline(always)]
    pub const fn cycles(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether the target is a loop's first word.
    #[must_use]
    #[inline(always)]
    pub const fn is_loop(self) -> bool {
        (self.0 >> 48) as u16 & Self::LOOP != 0
    }
}
