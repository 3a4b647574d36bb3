//! Cost table v1: cycles of WebAssembly instructions. Versioned with
//! [`wavelock_abi::COST_TABLE_VERSION`].
//!
//! Cost is defined on WebAssembly instructions, never on lowered code (semantics 3): lowering may
//! drop an instruction, not its cost. Structural instructions (`block`, `loop`, `end`, `else`,
//! `nop`) are free; every iteration of a loop contains a branch and every call a `call`, so each
//! costs at least a cycle. Instructions that move many values or bytes cost in proportion.

use wasmparser::Operator;

macro_rules! costs {
    ($($name:ident = $cycles:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: u32 = $cycles;)*
        /// Name, cycles and meaning of each entry, for the documentation tables.
        pub const TABLE: &[(&str, u32, &str)] = &[$((stringify!($name), $cycles, $doc),)*];
    };
}

costs! {
    SIMPLE = 1, "constants, local and stack operations, integer arithmetic, comparisons, conversions between integers, `ref.*`, sizes";
    MEMORY = 2, "a load or store, `table.get`, `table.set`";
    GLOBAL = 2, "`global.get`, `global.set`";
    MULTIPLY = 2, "`mul` of integers";
    FLOAT = 3, "float arithmetic, comparisons with rounding, min, max, conversions to and from floats";
    DIVIDE = 10, "`div`, `rem` and `sqrt`";
    BRANCH = 2, "`br`, `br_if`, `if`, `return`, `unreachable`; plus one per value carried";
    BRANCH_TABLE = 4, "`br_table`; plus one per value carried";
    CALL = 8, "`call` and `return_call`; plus one per argument";
    CALL_INDIRECT = 12, "`call_indirect` and `return_call_indirect`; plus one per argument";
    LOCALS_PER_CYCLE = 16, "locals cleared per cycle on entering a function";
    BULK = 8, "`memory.copy/fill/init/grow`, `table.copy/fill/init/grow`, `elem.drop`, `data.drop`, before their size";
    BYTES_PER_CYCLE = 8, "bytes moved or set per further cycle by `memory.copy/fill/init`, started groups count";
    PAGE = 1_024, "a page added by `memory.grow`";
    ELEMENT = 1, "an element moved, set or added by `table.copy/fill/init/grow`";
}

/// Cycles of moving or setting `bytes` bytes of memory, on top of [`BULK`].
#[must_use]
pub const fn bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_CYCLE as u64)
}

/// Cycles of adding `pages` pages, on top of [`BULK`].
#[must_use]
pub const fn pages(pages: u64) -> u64 {
    pages * PAGE as u64
}

/// Cycles of moving, setting or adding `elements` table elements, on top of [`BULK`].
#[must_use]
pub const fn elements(elements: u64) -> u64 {
    elements * ELEMENT as u64
}

/// Cycles of entering a function with this many locals, without its parameters.
#[must_use]
pub(crate) const fn entry(locals: u32) -> u32 {
    locals / LOCALS_PER_CYCLE
}

/// Cycles of an instruction, without the cost per value that it carries.
// Long: the cost table itself, an arm per group of instructions.
#[must_use]
pub(crate) fn of(operator: &Operator<'_>) -> u32 {
    use Operator as O;
    match operator {
        O::Block { .. } | O::Loop { .. } | O::End | O::Else | O::Nop => 0,
        O::Br { .. } | O::BrIf { .. } | O::If { .. } | O::Return | O::Unreachable => BRANCH,
        O::BrTable { .. } => BRANCH_TABLE,
        O::Call { .. } | O::ReturnCall { .. } => CALL,
        O::CallIndirect { .. } | O::ReturnCallIndirect { .. } => CALL_INDIRECT,
        O::GlobalGet { .. } | O::GlobalSet { .. } => GLOBAL,
        O::I32Load { .. }
        | O::I64Load { .. }
        | O::F32Load { .. }
        | O::F64Load { .. }
        | O::I32Load8S { .. }
        | O::I32Load8U { .. }
        | O::I32Load16S { .. }
        | O::I32Load16U { .. }
        | O::I64Load8S { .. }
        | O::I64Load8U { .. }
        | O::I64Load16S { .. }
        | O::I64Load16U { .. }
        | O::I64Load32S { .. }
        | O::I64Load32U { .. }
        | O::I32Store { .. }
        | O::I64Store { .. }
        | O::F32Store { .. }
        | O::F64Store { .. }
        | O::I32Store8 { .. }
        | O::I32Store16 { .. }
        | O::I64Store8 { .. }
        | O::I64Store16 { .. }
        | O::I64Store32 { .. }
        | O::TableGet { .. }
        | O::TableSet { .. } => MEMORY,
        O::I32Mul | O::I64Mul => MULTIPLY,
        O::I32DivS
        | O::I32DivU
        | O::I32RemS
        | O::I32RemU
        | O::I64DivS
        | O::I64DivU
        | O::I64RemS
        | O::I64RemU
        | O::F32Div
        | O::F64Div
        | O::F32Sqrt
        | O::F64Sqrt => DIVIDE,
        O::MemoryGrow { .. }
        | O::MemoryCopy { .. }
        | O::MemoryFill { .. }
        | O::MemoryInit { .. }
        | O::DataDrop { .. }
        | O::TableGrow { .. }
        | O::TableCopy { .. }
        | O::TableFill { .. }
        | O::TableInit { .. }
        | O::ElemDrop { .. } => BULK,
        O::F32Add
        | O::F32Sub
        | O::F32Mul
        | O::F32Min
        | O::F32Max
        | O::F32Ceil
        | O::F32Floor
        | O::F32Trunc
        | O::F32Nearest
        | O::F64Add
        | O::F64Sub
        | O::F64Mul
        | O::F64Min
        | O::F64Max
        | O::F64Ceil
        | O::F64Floor
        | O::F64Trunc
        | O::F64Nearest
        | O::F32Eq
        | O::F32Ne
        | O::F32Lt
        | O::F32Gt
        | O::F32Le
        | O::F32Ge
        | O::F64Eq
        | O::F64Ne
        | O::F64Lt
        | O::F64Gt
        | O::F64Le
        | O::F64Ge
        | O::I32TruncF32S
        | O::I32TruncF32U
        | O::I32TruncF64S
        | O::I32TruncF64U
        | O::I64TruncF32S
        | O::I64TruncF32U
        | O::I64TruncF64S
        | O::I64TruncF64U
        | O::I32TruncSatF32S
        | O::I32TruncSatF32U
        | O::I32TruncSatF64S
        | O::I32TruncSatF64U
        | O::I64TruncSatF32S
        | O::I64TruncSatF32U
        | O::I64TruncSatF64S
        | O::I64TruncSatF64U
        | O::F32ConvertI32S
        | O::F32ConvertI32U
        | O::F32ConvertI64S
        | O::F32ConvertI64U
        | O::F64ConvertI32S
        | O::F64ConvertI32U
        | O::F64ConvertI64S
        | O::F64ConvertI64U
        | O::F32DemoteF64
        | O::F64PromoteF32 => FLOAT,
        _ => SIMPLE,
    }
}
