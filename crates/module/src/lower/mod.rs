//! Lowering: one pass over a validated function body, from stack code to register code.
//!
//! Operands are bound lazily: `local.get` and constants emit nothing, they are remembered on a stack of [`stack::Entry`]s and
//! used in place, and a result that goes straight into a local is written there at once. Costs are summed per basic block of the
//! WebAssembly code and carried by the branches themselves, so that taking a branch also pays for where it goes.
//!
//! - `stack`: the operand stack at lowering time, registers, copies
//! - `block`: basic blocks, costs, safepoints, gaps, stop points
//! - `control`: blocks, branches, calls, returns
//! - `compare`: comparisons and their fusion with branches
//! - `fuse`: instructions that do the work of two
//! - `operator`: everything else, one arm per instruction

mod block;
mod compare;
mod control;
mod fuse;
mod operator;
mod stack;

use alloc::vec::Vec;

use wasmparser::{FuncValidator, FuncValidatorAllocations, FunctionBody, OperatorsReader, WasmModuleResources};

use crate::code::{CodeBuilder, Function};
use crate::cost;
use crate::error::LoadError;
use crate::limits::Limits;
use crate::load::{FEATURES, Refusal, check};
use crate::op::{Op, Word};
use crate::{Module, ValueType};

use block::Site;
use control::Control;
use stack::Entry;

/// Buffers that lowering reuses from function to function.
#[derive(Default)]
pub(crate) struct Scratch {
    stack: Vec<Entry>,
    unplaced: Vec<u32>,
    heads: Vec<u32>,
    controls: Vec<Control>,
    costs: Vec<u32>,
    aliases: Vec<u32>,
    /// The block that each block also pays for.
    carries: Vec<u32>,
    path: Vec<u32>,
    sites: Vec<Site>,
    jumps: Vec<u32>,
}

/// The state of lowering one function.
struct Lowering<'a> {
    module: &'a Module,
    code: &'a mut CodeBuilder,
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
    /// Operands below this depth are not bound to locals.
    settled: usize,
    /// The last instruction, if it made an operand: its first word and the operand's depth. Until the operand is used, the instruction's
    /// field `a` may be changed or the instruction taken back: nothing jumps to just after it.
    producer: Option<(u32, usize)>,
    /// The last two instructions, the later first, as far back as nothing jumps to just after them.
    history: [Option<u32>; 2],
    /// The current basic block, and its first word.
    block: u32,
    block_start: u32,
    /// Most cycles on any path from a safepoint to here.
    gap: u32,
    /// Where the last label was put.
    label: u32,
    reachable: bool,
    /// Blocks opened in unreachable code.
    skipped: u32,
}

/// Validates and lowers one function body, appending to `code`.
pub(crate) fn function<T: WasmModuleResources>(
    module: &Module,
    limits: &Limits,
    code: &mut CodeBuilder,
    scratch: &mut Scratch,
    mut validator: FuncValidator<T>,
    body: &FunctionBody<'_>,
) -> Result<FuncValidatorAllocations, Refusal> {
    let offset = body.range().start as usize;
    let mut reader = body.get_binary_reader();
    validator.read_locals(&mut reader)?;
    check("locals", u64::from(validator.len_locals()), limits.locals, offset)?;
    reader.set_features(FEATURES);

    let type_index = module.function_types[module.imported_functions as usize + code.functions.len()];
    let mut lowering = Lowering::begin(module, code, scratch, type_index, validator.len_locals(), offset as u32);
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
    fn begin(module: &'a Module, code: &'a mut CodeBuilder, scratch: &'a mut Scratch, type_index: u32, locals: u32, offset: u32) -> Self {
        let kind = &module.types[type_index as usize];
        let (parameters, results) = (kind.parameters().len() as u16, kind.results().len() as u16);
        scratch.stack.clear();
        scratch.unplaced.clear();
        scratch.heads.clear();
        scratch.heads.resize(locals as usize, 0);
        scratch.controls.clear();
        scratch.costs.clear();
        scratch.aliases.clear();
        scratch.carries.clear();
        scratch.sites.clear();
        scratch.jumps.clear();
        let first_operand = locals + 1;
        let mut lowering = Self {
            module,
            code,
            scratch,
            offset,
            parameters,
            results,
            first_operand,
            registers: first_operand.max(u32::from(results)),
            settled: 0,
            producer: None,
            history: [None; 2],
            block: 0,
            block_start: 0,
            gap: 0,
            label: 0,
            reachable: true,
            skipped: 0,
        };
        lowering.enter(locals - u32::from(parameters));
        lowering
    }

    /// Emits the function's first instruction, opens its block and its outermost label.
    fn enter(&mut self, cleared: u32) {
        let defined = self.code.functions.len() as u32;
        let function = self.module.imported_functions + defined;
        self.block = self.new_block();
        self.stop_point(u32::from(self.parameters) + 1, true);
        let word = self.emit(Word::new(Op::Enter, 0, 0, cleared as u16));
        self.code.words.push(u64::from(self.parameters + 1) | u64::from(self.parameters) << 16 | u64::from(function) << 32);
        self.site(word, 16, self.block);
        self.block_start = self.code.words.len() as u32;
        self.charge(cost::entry(cleared));
        self.open_function();
    }

    fn check_limits(&self, limits: &Limits) -> Result<(), LoadError> {
        let offset = self.offset as usize;
        check("registers", u64::from(self.registers), limits.registers.min(u32::from(u16::MAX)), offset)?;
        check("control_depth", self.scratch.controls.len() as u64, limits.control_depth, offset)?;
        let words = self.code.words.len() + self.code.dead.len() / 4;
        check("lowered_words", words as u64, limits.lowered_words.min(1 << 30), offset)
    }

    /// Patches costs and the window's size, and records the function.
    fn finish(mut self, type_index: u32, offset: u32, size: u32) {
        debug_assert!(self.scratch.controls.is_empty(), "the validator checked that every block ends");
        let cost = self.count_blocks();
        self.patch_costs();
        self.thread_jumps();
        let entry = self.code.functions.last().map_or(0, |function| function.end);
        self.code.words[entry as usize] |= u64::from(self.registers as u16) << 32;
        self.code.functions.push(Function {
            type_index,
            entry,
            end: self.code.words.len() as u32,
            parameters: self.parameters,
            results: self.results,
            registers: self.registers as u16,
            first_operand: self.first_operand as u16,
            offset,
            size,
            cost,
        });
    }

    /// Appends an instruction's first word; answers where.
    fn emit(&mut self, word: Word) -> u32 {
        let at = self.code.words.len() as u32;
        self.code.words.push(word.0);
        self.producer = None;
        self.history = [Some(at), self.history[0]];
        at
    }

    /// Appends an instruction of two words; answers where the first is.
    fn emit_two(&mut self, word: Word, second: u64) -> u32 {
        let at = self.emit(word);
        self.code.words.push(second);
        at
    }

    /// Takes back the last instruction.
    fn retract(&mut self, word: u32) {
        debug_assert!(self.history[0] == Some(word), "only the last instruction can be taken back");
        self.code.words.truncate(word as usize);
        self.producer = None;
        self.history = [self.history[1], None];
    }

    /// Something may jump to here: what came before stays as it is.
    fn fence(&mut self) {
        self.producer = None;
        self.history = [None; 2];
    }

    /// Remembers which WebAssembly instruction the next word comes from.
    fn mark_offset(&mut self) {
        let word = self.code.words.len() as u32;
        if self.code.offsets.last().is_none_or(|last| last.0 != word) {
            self.code.offsets.push((word, self.offset));
        }
    }
}

/// Number of values a type carries.
fn count(values: &[ValueType]) -> u32 {
    values.len() as u32
}
