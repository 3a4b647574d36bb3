//! Lowering: one pass over a validated function body, from stack code to a list of register
//! instructions.
//!
//! `local.get` and constants emit nothing: they stay symbolic on a stack of [`stack::Entry`]s until
//! an instruction reads them. Costs are summed per basic block of the WebAssembly code; branches
//! refer to the blocks they charge. Nothing is changed after it was emitted. Elsewhere: fusing
//! neighbouring instructions (`peephole`).
//!
//! - `stack`: the operand stack at lowering time, registers, copies
//! - `block`: basic blocks, costs, safepoints, gaps, stop points
//! - `control`: blocks, branches, calls, returns
//! - `operator`: everything else, one arm per instruction
//! - `compare`: comparisons

mod block;
pub(crate) mod compare;
mod control;
mod operator;
mod stack;

use alloc::vec::Vec;

use wasmparser::{
    FuncValidator, FuncValidatorAllocations, FunctionBody, OperatorsReader, WasmModuleResources,
};

use crate::code::Function;
use crate::encode::Encoder;
use crate::error::LoadError;
use crate::instruction::{Block, Body, Flow, Instruction};
use crate::limits::Limits;
use crate::load::{FEATURES, Refusal, check};
use crate::op::Op;
use crate::{Module, ValueType, cost};

use control::Control;
use stack::Entry;

/// Buffers reused across functions.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) body: Body,
    stack: Vec<Entry>,
    unplaced: Vec<u32>,
    heads: Vec<u32>,
    controls: Vec<Control>,
}

/// The state of lowering one function.
struct Lowering<'a> {
    module: &'a Module,
    code: &'a mut Encoder,
    scratch: &'a mut Scratch,
    /// Byte offset of the current instruction.
    offset: u32,
    /// Number of parameters; also the link's register.
    parameters: u16,
    results: u16,
    /// The register of the operand at depth 0.
    first_operand: u32,
    /// Registers used so far; above the limit the function is refused.
    registers: u32,
    /// Operands below this depth are not in locals.
    without_locals: usize,
    /// The current basic block.
    block: Block,
    /// Nothing in the current block so far can stop or fault.
    is_quiet: bool,
    /// Maximum of cycles on any path from a safepoint to here.
    gap: u32,
    /// Number of instructions when the last label was bound.
    label: usize,
    /// The last loop: the index of its first instruction, and of its control.
    last_loop: (usize, usize),
    reachable: bool,
    /// Blocks opened in unreachable code.
    skipped: u32,
}

/// Validates, lowers and encodes one function body.
pub(crate) fn function<T: WasmModuleResources>(
    module: &Module,
    limits: &Limits,
    code: &mut Encoder,
    scratch: &mut Scratch,
    mut validator: FuncValidator<T>,
    body: &FunctionBody<'_>,
) -> Result<FuncValidatorAllocations, Refusal> {
    let offset = body.range().start as usize;
    let mut reader = body.get_binary_reader();
    validator.read_locals(&mut reader)?;
    check("locals", u64::from(validator.len_locals()), limits.locals, offset)?;
    reader.set_features(FEATURES);

    let type_index =
        module.function_types[module.imported_functions as usize + code.functions.len()];
    let mut lowering =
        Lowering::new(module, code, scratch, type_index, validator.len_locals(), offset as u32);
    let mut operators = OperatorsReader::new(reader);
    while !operators.eof() {
        let (operator, at) = operators.read_with_offset()?;
        validator.op(at, &operator)?;
        lowering.offset = at as u32;
        lowering.operator(&operator)?;
        lowering.check_limits(limits)?;
    }
    operators.finish()?;
    lowering.finish(type_index, offset as u32, (body.range().end - body.range().start) as u32);
    Ok(validator.into_allocations())
}

impl<'a> Lowering<'a> {
    fn new(
        module: &'a Module,
        code: &'a mut Encoder,
        scratch: &'a mut Scratch,
        type_index: u32,
        locals: u32,
        offset: u32,
    ) -> Self {
        let kind = &module.types[type_index as usize];
        let (parameters, results) = (kind.parameters().len() as u16, kind.results().len() as u16);
        let first_operand = locals + 1;
        scratch.body.clear();
        scratch.body.first_operand = first_operand as u16;
        scratch.stack.clear();
        scratch.unplaced.clear();
        scratch.heads.clear();
        scratch.heads.resize(locals as usize, 0);
        scratch.controls.clear();
        let mut lowering = Self {
            module,
            code,
            scratch,
            offset,
            parameters,
            results,
            first_operand,
            registers: first_operand.max(u32::from(results)),
            without_locals: 0,
            block: Block(0),
            is_quiet: true,
            gap: 0,
            label: 0,
            last_loop: (0, 0),
            reachable: true,
            skipped: 0,
        };
        lowering.enter(locals - u32::from(parameters));
        lowering
    }

    /// Emits the function's first instruction, opens its block and its outermost label.
    fn enter(&mut self, cleared: u32) {
        self.block = self.scratch.body.new_block();
        let stop = self.stop_point_at_entry();
        let enter = Instruction::new(Op::Enter, 0, 0, cleared as u16);
        self.emit_stop(stop, enter.flow(Flow::Charge(self.block)));
        self.is_quiet = true;
        self.charge(cost::entry(cleared));
        self.open_function();
    }

    fn check_limits(&self, limits: &Limits) -> Result<(), LoadError> {
        let offset = self.offset as usize;
        check(
            "registers",
            u64::from(self.registers),
            limits.registers.min(u32::from(u16::MAX)),
            offset,
        )?;
        check("control_depth", self.scratch.controls.len() as u64, limits.control_depth, offset)?;
        let body = &self.scratch.body;
        let words = self.code.words.len()
            + self.code.dead.len() / 4
            + body.instructions.len()
            + body.entries.len();
        check("lowered_words", words as u64, limits.lowered_words.min(1 << 28), offset)
    }

    /// Encodes the function and records it.
    fn finish(self, type_index: u32, offset: u32, size: u32) {
        debug_assert!(
            self.scratch.controls.is_empty(),
            "the validator checked that every block ends"
        );
        let function = Function {
            type_index,
            entry: 0,
            end: 0,
            parameters: self.parameters,
            results: self.results,
            registers: self.registers as u16,
            first_operand: self.first_operand as u16,
            offset,
            size,
            cost: 0,
        };
        let number = self.module.imported_functions + self.code.functions.len() as u32;
        self.code.function(number, function, &mut self.scratch.body);
    }

    /// Appends an instruction.
    fn emit(&mut self, instruction: Instruction) {
        self.scratch.body.instructions.push(instruction);
    }

    /// Appends an instruction that can fault.
    fn emit_faulting(&mut self, mut instruction: Instruction) {
        instruction.offset = self.offset;
        self.is_quiet = false;
        self.emit(instruction);
    }

    /// Appends an instruction with a stop point.
    fn emit_stop(&mut self, stop: u32, mut instruction: Instruction) {
        instruction.stop = stop;
        self.emit_faulting(instruction);
    }
}

/// Number of values a type carries.
fn count(values: &[ValueType]) -> u32 {
    values.len() as u32
}
