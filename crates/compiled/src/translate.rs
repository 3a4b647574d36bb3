//! Translates one lowered function to Cranelift's intermediate representation.
//!
//! The signature of every function is `(context, window, left, entry) -> exit` in the `tail`
//! calling convention: calls and returns between guest functions are tail calls, so that guest
//! frames are in the coroutine's slots only and native code uses a bounded part of the host's
//! stack. `entry` selects the stop point to start at, 0 for the function's own entry. A stop writes
//! the registers that are needed to their slots and returns to the host.
//!
//! Charges, stops and faults come in the order of the interpreter's handlers
//! (`machine/src/handlers.rs`).

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{
    self, AbiParam, AliasRegionData, BlockArg, BlockCall, InstBuilder, JumpTableData, MemFlagsData,
    Signature, Type, Value,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use wavelock_abi::FaultCode;
use wavelock_module::{Form, Function, Op, Word};

use crate::analyse::{Analysis, Flow, Set, Site, add_writes, flow};
use crate::context::{Context, ExitKind, RESUME_BYTES, field};
use crate::{Planted, Refusal};

/// The signature of every function.
pub(crate) fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::Tail);
    signature.params.extend([I64, I64, I32, I64].map(AbiParam::new));
    signature.returns.push(AbiParam::new(I64));
    signature
}

/// Stores and loads of registers at exits and entries that one function may have.
const MAX_TRANSFERS: usize = 100_000;

/// Translates a function whose code is in `words`.
pub(crate) fn translate(
    words: &[u64],
    function: &Function,
    analysis: &Analysis<'_>,
    target: TargetFrontendConfig,
    scratch: &mut FunctionBuilderContext,
    planted: Option<Planted>,
) -> Result<ir::Function, Refusal> {
    let mut result = ir::Function::with_name_signature(ir::UserFuncName::default(), signature());
    let mut builder = FunctionBuilder::new(&mut result, scratch);
    let mut region = |user_id, description: &'static str| {
        let data = AliasRegionData { user_id, description: description.into() };
        Some(builder.func.dfg.alias_regions.insert(data))
    };
    let trusted = MemFlagsData::trusted();
    let slots = trusted.with_alias_region(region(0, "slots"));
    let bytes = MemFlagsData::new().with_notrap().with_alias_region(region(1, "memory"));
    let marks = MemFlagsData::new().with_notrap().with_alias_region(region(2, "marks"));
    let globals = trusted.with_alias_region(region(3, "globals"));
    let constant = trusted.with_readonly().with_can_move();
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let parameters = builder.block_params(entry).to_vec();
    let registers = (0..function.registers).map(|_| builder.declare_var(I64)).collect();
    let left = builder.declare_var(I32);
    builder.def_var(left, parameters[2]);
    let exit = builder.create_block();
    builder.set_cold_block(exit);
    let blocks = analysis.blocks.iter().map(|_| builder.create_block()).collect();
    let signature = builder.import_signature(signature());
    let mut translator = Translator {
        builder,
        words,
        function,
        analysis,
        registers,
        left,
        context: parameters[0],
        window: parameters[1],
        exit,
        blocks,
        signature,
        written: Set::default(),
        slots,
        bytes,
        marks,
        globals,
        constant,
        transfers: 0,
        planted,
    };
    translator.entries(parameters[3]);
    for index in 0..analysis.blocks.len() {
        translator.block(index);
        if translator.transfers > MAX_TRANSFERS {
            return Err(Refusal::TooLarge);
        }
    }
    translator.finish(target);
    Ok(result)
}

struct Translator<'a> {
    builder: FunctionBuilder<'a>,
    words: &'a [u64],
    function: &'a Function,
    analysis: &'a Analysis<'a>,
    registers: Vec<Variable>,
    /// Cycles left.
    left: Variable,
    context: Value,
    /// The address of register 0.
    window: Value,
    /// Stops with its parameters: window, word, cycles left, what is returned.
    exit: ir::Block,
    /// By block of the analysis.
    blocks: Vec<ir::Block>,
    signature: ir::SigRef,
    /// Registers that may differ from their slots here.
    written: Set,
    slots: MemFlagsData,
    bytes: MemFlagsData,
    marks: MemFlagsData,
    globals: MemFlagsData,
    /// Fields of the context, which do not change while native code runs.
    constant: MemFlagsData,
    transfers: usize,
    planted: Option<Planted>,
}

impl Translator<'_> {
    /// The dispatch to the stop points.
    fn entries(&mut self, entry: Value) {
        let analysis = self.analysis;
        let stops: Vec<usize> =
            (1..analysis.blocks.len()).filter(|&index| analysis.blocks[index].is_stop).collect();
        if stops.is_empty() {
            self.builder.ins().jump(self.blocks[0], &[]);
            return;
        }
        let dispatch = self.builder.create_block();
        self.builder.ins().brif(entry, dispatch, &[], self.blocks[0], &[]);
        self.builder.switch_to_block(dispatch);
        self.builder.seal_block(dispatch);
        let resumes: Vec<ir::Block> = stops.iter().map(|_| self.builder.create_block()).collect();
        let call = |builder: &mut FunctionBuilder<'_>, block| {
            BlockCall::new(block, [], &mut builder.func.dfg.value_lists)
        };
        let default = call(&mut self.builder, self.blocks[0]);
        let mut table = vec![default];
        for &block in &resumes {
            table.push(call(&mut self.builder, block));
        }
        let table = self.builder.create_jump_table(JumpTableData::new(default, &table));
        let entry = self.builder.ins().ireduce(I32, entry);
        self.builder.ins().br_table(entry, table);
        for (&stop, &resume) in stops.iter().zip(&resumes) {
            self.builder.switch_to_block(resume);
            self.builder.seal_block(resume);
            for register in analysis.blocks[stop].needed.iter() {
                self.load_register(register);
            }
            self.builder.ins().jump(self.blocks[stop], &[]);
        }
    }

    fn load_register(&mut self, register: u16) {
        let offset = i32::from(register) * 8;
        let value = self.builder.ins().load(I64, self.slots, self.window, offset);
        self.builder.def_var(self.registers[usize::from(register)], value);
        self.transfers += 1;
    }

    fn block(&mut self, index: usize) {
        let analysis = self.analysis;
        let block = &analysis.blocks[index];
        if !block.is_reached {
            return;
        }
        self.builder.switch_to_block(self.blocks[index]);
        self.written = block.written.clone();
        for site in &analysis.sites[block.first..block.end] {
            self.instruction(site);
            add_writes(site, &mut self.written);
        }
        let last = &analysis.sites[block.end - 1];
        if flow(last.op) == Flow::Next {
            self.jump(last.next);
        }
    }

    fn finish(mut self, target: TargetFrontendConfig) {
        self.builder.switch_to_block(self.exit);
        let [window, word, left, code] =
            [I64, I32, I32, I64].map(|kind| self.builder.append_block_param(self.exit, kind));
        let flags = MemFlagsData::trusted();
        self.builder.ins().store(flags, window, self.context, field!(window));
        self.builder.ins().store(flags, word, self.context, field!(word));
        self.builder.ins().store(flags, left, self.context, field!(left));
        self.builder.ins().return_(&[code]);
        self.builder.seal_all_blocks();
        self.builder.finalize(target);
    }

    // Values.

    fn constant(&mut self, kind: Type, value: u64) -> Value {
        let value = match kind {
            I8 => value & 0xff,
            I16 => value & 0xffff,
            I32 => value & 0xffff_ffff,
            _ => value,
        };
        self.builder.ins().iconst(kind, value as i64)
    }

    fn get(&mut self, register: u16) -> Value {
        self.builder.use_var(self.registers[usize::from(register)])
    }

    fn get_32(&mut self, register: u16) -> Value {
        let value = self.get(register);
        self.builder.ins().ireduce(I32, value)
    }

    fn set(&mut self, register: u16, value: Value) {
        self.builder.def_var(self.registers[usize::from(register)], value);
    }

    /// Sets a register to an integer, zero-extended.
    fn set_narrow(&mut self, register: u16, value: Value) {
        let value = self.builder.ins().uextend(I64, value);
        self.set(register, value);
    }

    /// The float of type `kind` in a register's value.
    fn float(&mut self, kind: Type, value: Value) -> Value {
        if kind == F32 {
            let bits = self.builder.ins().ireduce(I32, value);
            self.builder.ins().bitcast(F32, MemFlagsData::new(), bits)
        } else {
            self.builder.ins().bitcast(F64, MemFlagsData::new(), value)
        }
    }

    fn get_float(&mut self, kind: Type, register: u16) -> Value {
        let value = self.get(register);
        self.float(kind, value)
    }

    /// Sets a register to a float's bits.
    fn set_float(&mut self, register: u16, value: Value) {
        if self.builder.func.dfg.value_type(value) == F32 {
            let bits = self.builder.ins().bitcast(I32, MemFlagsData::new(), value);
            self.set_narrow(register, bits);
        } else {
            let bits = self.builder.ins().bitcast(I64, MemFlagsData::new(), value);
            self.set(register, bits);
        }
    }

    /// Sets a register to the result of arithmetic: the canonical NaN if it is one.
    fn set_result(&mut self, register: u16, value: Value) {
        let nan = if self.builder.func.dfg.value_type(value) == F32 {
            self.builder.ins().f32const(f32::from_bits(0x7fc0_0000))
        } else {
            self.builder.ins().f64const(f64::from_bits(0x7ff8_0000_0000_0000))
        };
        let is_nan = self.builder.ins().fcmp(FloatCC::Unordered, value, value);
        let value = self.builder.ins().select(is_nan, nan, value);
        self.set_float(register, value);
    }

    fn context_field(&mut self, offset: i32) -> Value {
        self.builder.ins().load(I64, self.constant, self.context, offset)
    }

    // Control.

    fn jump(&mut self, word: u32) {
        let block = self.blocks[self.analysis.block_at(word)];
        self.builder.ins().jump(block, &[]);
    }

    fn charge(&mut self, cycles: u32) {
        if cycles != 0 {
            let left = self.builder.use_var(self.left);
            let cycles = self.constant(I32, u64::from(cycles));
            let left = self.builder.ins().isub(left, cycles);
            self.builder.def_var(self.left, left);
        }
    }

    /// Starts a block that is entered only from the branches emitted so far.
    fn start(&mut self, block: ir::Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    /// Splits the flow on a condition: returns the cold block, and continues in the other.
    fn unless(&mut self, condition: Value) -> (ir::Block, ir::Block) {
        let (cold, usual) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(cold);
        self.builder.ins().brif(condition, cold, &[], usual, &[]);
        (cold, usual)
    }

    fn leave(&mut self, window: Value, word: u32, kind: ExitKind, value: u64) {
        let word = self.constant(I32, u64::from(word));
        let code = self.constant(I64, kind as u64 | value << 8);
        let left = self.builder.use_var(self.left);
        let arguments = [window, word, left, code].map(BlockArg::Value);
        self.builder.ins().jump(self.exit, &arguments);
    }

    /// Writes the registers that the block at `word` needs to their slots.
    fn store_needed(&mut self, word: u32) {
        let analysis = self.analysis;
        let needed = &analysis.blocks[analysis.block_at(word)].needed;
        let written = std::mem::take(&mut self.written);
        let skip = usize::from(self.planted == Some(Planted::LiveSet));
        for register in needed.both(&written).skip(skip) {
            let value = self.get(register);
            let offset = i32::from(register) * 8;
            self.builder.ins().store(self.slots, value, self.window, offset);
            self.transfers += 1;
        }
        self.written = written;
    }

    /// At the safepoint at `word`: stops if no cycles are left.
    fn stop_without_cycles(&mut self, word: u32, next: u32) {
        let left = self.builder.use_var(self.left);
        let zero = self.constant(I32, 0);
        let is_out = self.builder.ins().icmp(IntCC::SignedLessThanOrEqual, left, zero);
        let (cold, usual) = self.unless(is_out);
        self.start(cold);
        self.store_needed(word);
        self.leave(self.window, word, ExitKind::OutOfCycles, u64::from(next));
        self.start(usual);
    }

    fn fault_if(&mut self, condition: Value, at: u32, code: FaultCode) {
        let (cold, usual) = self.unless(condition);
        self.start(cold);
        self.leave(self.window, at, ExitKind::Fault, code as u64);
        self.start(usual);
    }

    /// Leaves the instruction at `at`, the first of its block, to the interpreter.
    fn interpret(&mut self, at: u32) {
        self.store_needed(at);
        self.leave(self.window, at, ExitKind::Interpret, 0);
    }

    /// Continues at a word of the module in the function it belongs to, at `window`.
    fn go(&mut self, window: Value, word: Value) {
        let table = self.context_field(field!(resume));
        let size = self.constant(I64, RESUME_BYTES as u64);
        let offset = self.builder.ins().imul(word, size);
        let at = self.builder.ins().iadd(table, offset);
        let flags = MemFlagsData::trusted().with_readonly();
        let code = self.builder.ins().load(I64, flags, at, 0);
        let entry = self.builder.ins().load(I64, flags, at, 8);
        let left = self.builder.use_var(self.left);
        let arguments = [self.context, window, left, entry];
        self.builder.ins().return_call_indirect(self.signature, code, &arguments);
    }

    /// Stores a frame's link and continues at the callee's entry in the window it shares.
    fn call(&mut self, site: &Site<'_>, entry: Value) {
        let link = u64::from(site.next) | u64::from(site.a()) << 32;
        let link = self.constant(I64, link);
        let at = (i32::from(site.a()) + i32::from(site.b())) * 8;
        self.builder.ins().store(self.slots, link, self.window, at);
        let distance = self.constant(I64, u64::from(site.a()) * 8);
        let window = self.builder.ins().iadd(self.window, distance);
        self.go(window, entry);
    }

    /// A branch if `taken` is not zero.
    fn branch(&mut self, site: &Site<'_>, taken: Value) {
        let (yes, no) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(taken, yes, &[], no, &[]);
        self.start(yes);
        if let Some(header) = site.header() {
            let next = Word(self.words[header as usize]).bc();
            self.stop_without_cycles(header, next);
        }
        let (mut if_taken, mut if_not) = (site.high(), site.fallen());
        if self.planted == Some(Planted::Charge) && site.header().is_none() {
            (if_taken, if_not) = (if_not, if_taken);
        }
        self.charge(if_taken);
        self.jump(site.target());
        self.start(no);
        self.charge(if_not);
        self.jump(site.next);
    }

    fn branch_table(&mut self, site: &Site<'_>) {
        let index = self.get_32(site.a());
        let mut edges: Vec<(u64, ir::Block)> = Vec::new();
        let mut calls = Vec::new();
        for entry in site.entries() {
            let block = match edges.iter().find(|edge| edge.0 == entry.0) {
                Some(edge) => edge.1,
                None => {
                    let block = self.builder.create_block();
                    edges.push((entry.0, block));
                    block
                }
            };
            calls.push(BlockCall::new(block, [], &mut self.builder.func.dfg.value_lists));
        }
        let Some(default) = calls.pop() else { return };
        let table = self.builder.create_jump_table(JumpTableData::new(default, &calls));
        self.builder.ins().br_table(index, table);
        for (word, block) in edges {
            let entry = wavelock_module::TableEntry(word);
            let target = site.entry_target(entry);
            self.start(block);
            if entry.is_loop() {
                self.stop_without_cycles(target - 1, u32::from(entry.cycles()));
            }
            self.charge(u32::from(entry.cycles()));
            self.jump(target);
        }
    }

    fn enter(&mut self, site: &Site<'_>) {
        let cycles = u32::from(site.a());
        self.stop_without_cycles(site.at, cycles);
        let end = self.context_field(field!(stack_end));
        let room = self.builder.ins().isub(end, self.window);
        let size = self.constant(I64, u64::from(site.b()) * 8);
        let is_short = self.builder.ins().icmp(IntCC::UnsignedLessThan, room, size);
        let (cold, usual) = self.unless(is_short);
        self.start(cold);
        self.leave(self.window, site.at, ExitKind::Interpret, 0);
        self.start(usual);
        self.charge(cycles);
        for register in 0..=self.function.parameters {
            self.load_register(register);
        }
        let zero = self.constant(I64, 0);
        for register in site.second() as u16..site.second() as u16 + site.c() {
            self.set(register, zero);
        }
    }

    /// Returns through the link in `link`; the results are in their slots.
    fn return_through(&mut self, site: &Site<'_>, link: Value, results: u16) {
        let tag = self.shift_right(link, 48);
        let (cold, usual) = self.unless(tag);
        self.start(cold);
        let bottom = self.constant(I64, 0xffff);
        let is_bottom = self.builder.ins().icmp(IntCC::Equal, tag, bottom);
        let (finished, other) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(is_bottom, finished, &[], other, &[]);
        self.start(finished);
        self.leave(self.window, site.at, ExitKind::Finished, u64::from(results));
        self.start(other);
        self.builder.ins().store(MemFlagsData::trusted(), link, self.context, field!(link));
        self.leave(self.window, site.at, ExitKind::Return, 0);
        self.start(usual);
        // The tag is zero.
        let distance = self.shift_right(link, 32);
        let eight = self.constant(I64, 8);
        let distance = self.builder.ins().imul(distance, eight);
        let window = self.builder.ins().isub(self.window, distance);
        let word = self.builder.ins().ireduce(I32, link);
        let word = self.builder.ins().uextend(I64, word);
        self.go(window, word);
    }

    fn shift_right(&mut self, value: Value, bits: u64) -> Value {
        let bits = self.constant(I64, bits);
        self.builder.ins().ushr(value, bits)
    }

    fn call_indirect(&mut self, site: &Site<'_>) {
        let trusted = MemFlagsData::trusted();
        let table = i32::from((site.second() >> 32) as u16) * 16;
        let tables = self.context_field(field!(tables));
        let elements = self.builder.ins().load(I64, self.constant, tables, table);
        let length = self.builder.ins().load(I64, self.constant, tables, table + 8);
        let index = self.get_32(site.c());
        let index = self.builder.ins().uextend(I64, index);
        let beyond = IntCC::UnsignedGreaterThanOrEqual;
        let is_outside = self.builder.ins().icmp(beyond, index, length);
        self.fault_if(is_outside, site.at, FaultCode::UndefinedElement);
        let three = self.constant(I64, 3);
        let offset = self.builder.ins().ishl(index, three);
        let at = self.builder.ins().iadd(elements, offset);
        let reference = self.builder.ins().load(I64, trusted, at, 0);
        let zero = self.constant(I64, 0);
        let is_null = self.builder.ins().icmp(IntCC::Equal, reference, zero);
        self.fault_if(is_null, site.at, FaultCode::UninitializedElement);
        let one = self.constant(I64, 1);
        let function = self.builder.ins().isub(reference, one);
        let count = self.context_field(field!(function_count));
        let is_unknown = self.builder.ins().icmp(beyond, function, count);
        self.fault_if(is_unknown, site.at, FaultCode::UndefinedElement);
        let four = self.constant(I64, 4);
        let offset = self.builder.ins().ishl(function, four);
        let functions = self.context_field(field!(functions));
        let at = self.builder.ins().iadd(functions, offset);
        let kind = self.builder.ins().load(I32, trusted, at, 0);
        let types = self.context_field(field!(types));
        let offset = self.constant(I64, u64::from(site.low()) * 4);
        let expected = self.builder.ins().iadd(types, offset);
        let expected = self.builder.ins().load(I32, self.constant, expected, 0);
        let differs = self.builder.ins().icmp(IntCC::NotEqual, kind, expected);
        self.fault_if(differs, site.at, FaultCode::IndirectCallTypeMismatch);
        self.store_needed(site.at);
        let instance = self.builder.ins().load(I32, trusted, at, 4);
        let own = self.builder.ins().load(I32, self.constant, self.context, field!(instance));
        let is_other = self.builder.ins().icmp(IntCC::NotEqual, instance, own);
        let (cold, usual) = self.unless(is_other);
        self.start(cold);
        self.leave(self.window, site.at, ExitKind::Interpret, 0);
        self.start(usual);
        let entry = self.builder.ins().load(I32, trusted, at, 8);
        let entry = self.builder.ins().uextend(I64, entry);
        self.call(site, entry);
    }

    // Memory.

    /// The effective address of a load or store.
    fn address(&mut self, site: &Site<'_>) -> Value {
        let (base, offset) = match site.op.form() {
            Form::ConstLoad => return self.constant(I64, u64::from(site.bc()) + site.second()),
            Form::LoadFar | Form::StoreFar => (self.get_32(site.b()), site.second()),
            Form::LoadPlus => {
                let base = self.get_32(site.b());
                let plus = self.constant(I32, u64::from(site.low()));
                (self.builder.ins().iadd(base, plus), u64::from(site.high()))
            }
            _ => (self.get_32(site.b()), u64::from(site.c())),
        };
        let base = self.builder.ins().uextend(I64, base);
        let offset = self.constant(I64, offset);
        self.builder.ins().iadd(base, offset)
    }

    /// The host's address of `size` bytes at `address`, or a fault.
    fn checked(&mut self, site: &Site<'_>, address: Value, size: u64) -> Value {
        let length = self.context_field(field!(length));
        let more = u64::from(self.planted == Some(Planted::Bounds));
        let size = self.constant(I64, size + more);
        let end = self.builder.ins().iadd(address, size);
        let is_outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, length);
        self.fault_if(is_outside, site.at, FaultCode::MemoryOutOfBounds);
        let memory = self.context_field(field!(memory));
        self.builder.ins().iadd(memory, address)
    }

    /// Loads a value of type `kind`, extended to `to` (signed or not), then zero-extended.
    fn load(&mut self, site: &Site<'_>, kind: Type, is_signed: bool, to: Type) {
        let address = self.address(site);
        let at = self.checked(site, address, u64::from(kind.bytes()));
        let mut value = self.builder.ins().load(kind, self.bytes, at, 0);
        if kind != to {
            value = if is_signed {
                self.builder.ins().sextend(to, value)
            } else {
                self.builder.ins().uextend(to, value)
            };
        }
        if to != I64 {
            value = self.builder.ins().uextend(I64, value);
        }
        self.set(site.a(), value);
    }

    fn store(&mut self, site: &Site<'_>, kind: Type) {
        let value = if site.op.form() == Form::StoreConst {
            self.constant(kind, i64::from(site.a() as i16) as u64)
        } else {
            let value = self.get(site.a());
            if kind == I64 { value } else { self.builder.ins().ireduce(kind, value) }
        };
        let address = self.address(site);
        let size = u64::from(kind.bytes());
        let at = self.checked(site, address, size);
        self.builder.ins().store(self.bytes, value, at, 0);
        if self.planted == Some(Planted::Mark) {
            return;
        }
        let marks = self.context_field(field!(dirty));
        let one = self.constant(I8, 1);
        let page = self.shift_right(address, 12);
        let mark = self.builder.ins().iadd(marks, page);
        self.builder.ins().store(self.marks, one, mark, 0);
        if size > 1 {
            let last = self.constant(I64, size - 1);
            let last = self.builder.ins().iadd(address, last);
            let page = self.shift_right(last, 12);
            let mark = self.builder.ins().iadd(marks, page);
            self.builder.ins().store(self.marks, one, mark, 0);
        }
    }

    // One instruction.

    // Long: one arm per kind of instruction.
    fn instruction(&mut self, site: &Site<'_>) {
        match flow(site.op) {
            Flow::Interpret => return self.interpret(site.at),
            Flow::Branch => {
                let taken = self.condition(site);
                // The counter of a loop is written before the branch stops.
                if self.planted != Some(Planted::Counter) {
                    add_writes(site, &mut self.written);
                }
                return self.branch(site, taken);
            }
            _ => {}
        }
        let (a, b, c) = (site.a(), site.b(), site.c());
        match site.op {
            Op::Unreachable => {
                self.leave(self.window, site.at, ExitKind::Fault, FaultCode::Unreachable as u64);
            }
            Op::Charge => self.charge(site.bc()),
            Op::Safepoint => {
                self.stop_without_cycles(site.at, site.bc());
                self.charge(site.bc());
            }
            Op::Enter => self.enter(site),
            Op::Jump => {
                self.charge(site.high());
                self.jump(site.target());
            }
            Op::JumpLoop => {
                let header = site.target() - 1;
                let next = Word(self.words[header as usize]).bc();
                self.stop_without_cycles(header, next);
                self.charge(site.high());
                self.jump(site.target());
            }
            Op::BranchTable => self.branch_table(site),
            Op::Return => {
                let link = self.get(a);
                self.return_through(site, link, 0);
            }
            Op::ReturnOne => {
                let (link, value) = (self.get(a), self.get(b));
                self.builder.ins().store(self.slots, value, self.window, 0);
                self.return_through(site, link, 1);
            }
            Op::ReturnMany => {
                let link = self.get(a);
                let values: Vec<Value> = (b..b + c).map(|register| self.get(register)).collect();
                for (index, value) in values.into_iter().enumerate() {
                    self.builder.ins().store(self.slots, value, self.window, index as i32 * 8);
                }
                self.return_through(site, link, c);
            }
            Op::Call => {
                self.store_needed(site.at);
                let entry = self.constant(I64, u64::from(site.low()));
                self.call(site, entry);
            }
            Op::ReturnCall => {
                let link = self.get(c);
                let mut values: Vec<Value> =
                    (a..a + b).map(|register| self.get(register)).collect();
                values.push(link);
                for (index, value) in values.into_iter().enumerate() {
                    self.builder.ins().store(self.slots, value, self.window, index as i32 * 8);
                }
                let entry = self.constant(I64, u64::from(site.low()));
                self.go(self.window, entry);
            }
            Op::CallIndirect => self.call_indirect(site),
            Op::Copy => {
                let value = self.get(b);
                self.set(a, value);
            }
            Op::CopyTwo => {
                let value = self.get(b);
                self.set(a, value);
                let value = self.get(site.second() as u16);
                self.set(c, value);
            }
            Op::CopyRange => {
                for index in 0..c {
                    let value = self.get(b + index);
                    self.set(a + index, value);
                }
            }
            Op::Const32 => {
                let value = self.constant(I64, u64::from(site.bc()));
                self.set(a, value);
            }
            Op::Const64 => {
                let value = self.constant(I64, site.second());
                self.set(a, value);
            }
            Op::ConstCopy => {
                let value = self.constant(I64, u64::from(site.bc()));
                self.set(a, value);
                let value = self.get((site.second() >> 16) as u16);
                self.set(site.second() as u16, value);
            }
            Op::Select => {
                let condition = self.get(site.second() as u16);
                let (yes, no) = (self.get(b), self.get(c));
                let value = self.builder.ins().select(condition, yes, no);
                self.set(a, value);
            }
            Op::GlobalGet => {
                let globals = self.context_field(field!(globals));
                let offset = self.constant(I64, u64::from(site.bc()) * 8);
                let at = self.builder.ins().iadd(globals, offset);
                let value = self.builder.ins().load(I64, self.globals, at, 0);
                self.set(a, value);
            }
            Op::GlobalSet => {
                let value = self.get(a);
                let globals = self.context_field(field!(globals));
                let offset = self.constant(I64, u64::from(site.bc()) * 8);
                let at = self.builder.ins().iadd(globals, offset);
                self.builder.ins().store(self.globals, value, at, 0);
            }
            Op::MemorySize => {
                let length = self.context_field(field!(length));
                let pages = self.shift_right(length, 16);
                self.set(a, pages);
            }
            Op::Load32 | Op::Load32Far | Op::Load32Plus | Op::ConstLoad32 => {
                self.load(site, I32, false, I64);
            }
            Op::Load64 | Op::Load64Far | Op::Load64Plus | Op::ConstLoad64 => {
                self.load(site, I64, false, I64);
            }
            Op::Load8U | Op::Load8UFar | Op::Load8UPlus => self.load(site, I8, false, I64),
            Op::Load16U | Op::Load16UFar | Op::Load16UPlus => self.load(site, I16, false, I64),
            Op::I32Load8S | Op::I32Load8SFar => self.load(site, I8, true, I32),
            Op::I32Load16S | Op::I32Load16SFar => self.load(site, I16, true, I32),
            Op::I64Load8S | Op::I64Load8SFar => self.load(site, I8, true, I64),
            Op::I64Load16S | Op::I64Load16SFar => self.load(site, I16, true, I64),
            Op::I64Load32S | Op::I64Load32SFar => self.load(site, I32, true, I64),
            Op::Store8 | Op::Store8Far | Op::Store8Const => self.store(site, I8),
            Op::Store16 | Op::Store16Far | Op::Store16Const => self.store(site, I16),
            Op::Store32 | Op::Store32Far | Op::Store32Const => self.store(site, I32),
            Op::Store64 | Op::Store64Far | Op::Store64Const => self.store(site, I64),
            _ => match site.op.form() {
                Form::Unary => self.unary(site),
                Form::Binary | Form::BinaryConst => self.binary(site),
                _ => self.fused(site),
            },
        }
    }

    /// The condition of a branch; steps the counter of a loop first.
    fn condition(&mut self, site: &Site<'_>) -> Value {
        let (a, b, c) = (site.a(), site.b(), site.c());
        let (kind, code) = comparison(site.op);
        let read = |this: &mut Self, register| {
            if kind == I32 { this.get_32(register) } else { this.get(register) }
        };
        let mut left = read(self, a);
        let signed = |field: u16| i64::from(field as i16) as u64;
        if matches!(site.op.form(), Form::LoopTwo | Form::LoopConst) {
            let step = self.constant(kind, signed(c));
            left = self.builder.ins().iadd(left, step);
            if kind == I32 {
                self.set_narrow(a, left);
            } else {
                self.set(a, left);
            }
        }
        let is_zero_test = matches!(
            site.op,
            Op::BranchIf | Op::BranchIfNot | Op::LoopI32NeZero | Op::LoopI64NeZero
        );
        let right = match site.op.form() {
            _ if is_zero_test => self.constant(kind, 0),
            Form::BranchConst => self.constant(kind, signed(c)),
            Form::LoopConst => self.constant(kind, signed(b)),
            _ => read(self, b),
        };
        self.builder.ins().icmp(code, left, right)
    }

    fn unary(&mut self, site: &Site<'_>) {
        use Op::*;
        let (to, from) = (site.a(), site.b());
        match site.op {
            I32Clz | I32Ctz | I32Popcnt => {
                let value = self.get_32(from);
                let value = match site.op {
                    I32Clz => self.builder.ins().clz(value),
                    I32Ctz => self.builder.ins().ctz(value),
                    _ => self.builder.ins().popcnt(value),
                };
                self.set_narrow(to, value);
            }
            I64Clz | I64Ctz | I64Popcnt => {
                let value = self.get(from);
                let value = match site.op {
                    I64Clz => self.builder.ins().clz(value),
                    I64Ctz => self.builder.ins().ctz(value),
                    _ => self.builder.ins().popcnt(value),
                };
                self.set(to, value);
            }
            I32Extend8S | I32Extend16S => {
                let kind = if site.op == I32Extend8S { I8 } else { I16 };
                let value = self.get(from);
                let value = self.builder.ins().ireduce(kind, value);
                let value = self.builder.ins().sextend(I32, value);
                self.set_narrow(to, value);
            }
            I64Extend8S | I64Extend16S | I64Extend32S => {
                let kind = match site.op {
                    I64Extend8S => I8,
                    I64Extend16S => I16,
                    _ => I32,
                };
                let value = self.get(from);
                let value = self.builder.ins().ireduce(kind, value);
                let value = self.builder.ins().sextend(I64, value);
                self.set(to, value);
            }
            I32WrapI64 => {
                let value = self.get_32(from);
                self.set_narrow(to, value);
            }
            F32Abs | F32Neg | F64Abs | F64Neg => {
                let value = self.get(from);
                let sign = if matches!(site.op, F32Abs | F32Neg) { 1 << 31 } else { 1 << 63 };
                let value = if matches!(site.op, F32Abs | F64Abs) {
                    let mask = if sign == 1 << 31 { 0x7fff_ffff } else { !sign };
                    let mask = self.constant(I64, mask);
                    self.builder.ins().band(value, mask)
                } else {
                    let mask = self.constant(I64, sign);
                    self.builder.ins().bxor(value, mask)
                };
                let value = if sign == 1 << 31 {
                    let low = self.builder.ins().ireduce(I32, value);
                    self.builder.ins().uextend(I64, low)
                } else {
                    value
                };
                self.set(to, value);
            }
            F32Ceil | F32Floor | F32Trunc | F32Nearest | F32Sqrt => {
                let value = self.get_float(F32, from);
                let value = match site.op {
                    F32Ceil => self.builder.ins().ceil(value),
                    F32Floor => self.builder.ins().floor(value),
                    F32Trunc => self.builder.ins().trunc(value),
                    F32Nearest => self.builder.ins().nearest(value),
                    _ => self.builder.ins().sqrt(value),
                };
                self.set_result(to, value);
            }
            F64Ceil | F64Floor | F64Trunc | F64Nearest | F64Sqrt => {
                let value = self.get_float(F64, from);
                let value = match site.op {
                    F64Ceil => self.builder.ins().ceil(value),
                    F64Floor => self.builder.ins().floor(value),
                    F64Trunc => self.builder.ins().trunc(value),
                    F64Nearest => self.builder.ins().nearest(value),
                    _ => self.builder.ins().sqrt(value),
                };
                self.set_result(to, value);
            }
            F32DemoteF64 => {
                let value = self.get_float(F64, from);
                let value = self.builder.ins().fdemote(F32, value);
                self.set_result(to, value);
            }
            F64PromoteF32 => {
                let value = self.get_float(F32, from);
                let value = self.builder.ins().fpromote(F64, value);
                self.set_result(to, value);
            }
            F32ConvertI32S | F32ConvertI32U | F64ConvertI32S | F64ConvertI32U | F32ConvertI64S
            | F32ConvertI64U | F64ConvertI64S | F64ConvertI64U => self.convert(site),
            _ => self.truncate(site),
        }
    }

    fn convert(&mut self, site: &Site<'_>) {
        use Op::*;
        let is_narrow =
            matches!(site.op, F32ConvertI32S | F32ConvertI32U | F64ConvertI32S | F64ConvertI32U);
        let value = if is_narrow { self.get_32(site.b()) } else { self.get(site.b()) };
        let value = match site.op {
            F32ConvertI32S | F32ConvertI64S => self.builder.ins().fcvt_from_sint(F32, value),
            F32ConvertI32U | F32ConvertI64U => self.builder.ins().fcvt_from_uint(F32, value),
            F64ConvertI32S | F64ConvertI64S => self.builder.ins().fcvt_from_sint(F64, value),
            _ => self.builder.ins().fcvt_from_uint(F64, value),
        };
        self.set_float(site.a(), value);
    }

    /// Floats to integers: with a fault, or saturating.
    fn truncate(&mut self, site: &Site<'_>) {
        let Some(conversion) = conversion(site.op) else {
            unreachable!("no translation of {:?}", site.op)
        };
        let Conversion { from, to, is_signed, limits } = conversion;
        let value = self.get_float(from, site.b());
        if let Some((low, includes_low, high)) = limits {
            let is_nan = self.builder.ins().fcmp(FloatCC::Unordered, value, value);
            self.fault_if(is_nan, site.at, FaultCode::InvalidConversion);
            let bound = |this: &mut Self, bound: f64| {
                if from == F32 {
                    this.builder.ins().f32const(bound as f32)
                } else {
                    this.builder.ins().f64const(bound)
                }
            };
            let low = bound(self, low);
            let code = if includes_low { FloatCC::LessThan } else { FloatCC::LessThanOrEqual };
            let is_below = self.builder.ins().fcmp(code, value, low);
            self.fault_if(is_below, site.at, FaultCode::IntegerOverflow);
            let high = bound(self, high);
            let is_above = self.builder.ins().fcmp(FloatCC::GreaterThanOrEqual, value, high);
            self.fault_if(is_above, site.at, FaultCode::IntegerOverflow);
        }
        let value = if is_signed {
            self.builder.ins().fcvt_to_sint_sat(to, value)
        } else {
            self.builder.ins().fcvt_to_uint_sat(to, value)
        };
        if to == I32 {
            self.set_narrow(site.a(), value);
        } else {
            self.set(site.a(), value);
        }
    }

    fn binary(&mut self, site: &Site<'_>) {
        use Op::*;
        let to = site.a();
        let mut x = self.get(site.b());
        let mut y = if site.op.form() == Form::BinaryConst {
            self.constant(I64, site.second())
        } else {
            self.get(site.c())
        };
        if self.planted == Some(Planted::Operands) && matches!(site.op, I32Sub | I64Sub | I32ShrU) {
            (x, y) = (y, x);
        }
        // Bits are the same in both widths.
        let wide = match site.op {
            I32And | I64And | I32AndConst | I64AndConst => Some(self.builder.ins().band(x, y)),
            I32Or | I64Or | I32OrConst | I64OrConst => Some(self.builder.ins().bor(x, y)),
            I32Xor | I64Xor | I32XorConst | I64XorConst => Some(self.builder.ins().bxor(x, y)),
            _ => None,
        };
        if let Some(value) = wide {
            return self.set(to, value);
        }
        if let Some((kind, is_float, result)) = float_binary(site.op) {
            return match is_float {
                true => self.float_arithmetic(to, kind, result, x, y),
                false => self.copysign(to, kind, x, y),
            };
        }
        if let Some((kind, code)) = float_comparison(site.op) {
            let (x, y) = (self.float(kind, x), self.float(kind, y));
            let value = self.builder.ins().fcmp(code, x, y);
            return self.set_narrow(to, value);
        }
        let is_narrow = is_narrow(site.op);
        if is_narrow {
            x = self.builder.ins().ireduce(I32, x);
            y = self.builder.ins().ireduce(I32, y);
        }
        if is_comparison(site.op) {
            let (_, code) = comparison(site.op);
            let value = self.builder.ins().icmp(code, x, y);
            return self.set_narrow(to, value);
        }
        let value = match site.op {
            I32Add | I64Add | I32AddConst | I64AddConst => self.builder.ins().iadd(x, y),
            I32Sub | I64Sub => self.builder.ins().isub(x, y),
            I32Mul | I64Mul | I32MulConst | I64MulConst => self.builder.ins().imul(x, y),
            I32Shl | I64Shl | I32ShlConst | I64ShlConst => self.builder.ins().ishl(x, y),
            I32ShrS | I64ShrS | I32ShrSConst | I64ShrSConst => self.builder.ins().sshr(x, y),
            I32ShrU | I64ShrU | I32ShrUConst | I64ShrUConst => self.builder.ins().ushr(x, y),
            I32Rotl | I64Rotl | I32RotlConst | I64RotlConst => self.builder.ins().rotl(x, y),
            I32Rotr | I64Rotr => self.builder.ins().rotr(x, y),
            _ => self.divide(site, x, y),
        };
        if is_narrow {
            self.set_narrow(to, value);
        } else {
            self.set(to, value);
        }
    }

    fn divide(&mut self, site: &Site<'_>, x: Value, y: Value) -> Value {
        use Op::*;
        let kind = self.builder.func.dfg.value_type(x);
        match site.op {
            // A zero in the constant forms divides by one.
            I32DivUConst | I64DivUConst | I32RemUConst | I64RemUConst => {
                let second = site.second();
                let divisor = if kind == I32 { second & 0xffff_ffff } else { second };
                let y = self.constant(kind, divisor.max(1));
                return if matches!(site.op, I32DivUConst | I64DivUConst) {
                    self.builder.ins().udiv(x, y)
                } else {
                    self.builder.ins().urem(x, y)
                };
            }
            I32DivS | I32DivU | I32RemS | I32RemU | I64DivS | I64DivU | I64RemS | I64RemU => {}
            other => unreachable!("no translation of {other:?}"),
        }
        let zero = self.constant(kind, 0);
        let is_zero = self.builder.ins().icmp(IntCC::Equal, y, zero);
        self.fault_if(is_zero, site.at, FaultCode::IntegerDivideByZero);
        if matches!(site.op, I32DivS | I64DivS) {
            let least = self.constant(kind, 1 << (kind.bits() - 1));
            let minus_one = self.constant(kind, u64::MAX);
            let is_least = self.builder.ins().icmp(IntCC::Equal, x, least);
            let is_minus_one = self.builder.ins().icmp(IntCC::Equal, y, minus_one);
            let overflows = self.builder.ins().band(is_least, is_minus_one);
            self.fault_if(overflows, site.at, FaultCode::IntegerOverflow);
        }
        match site.op {
            I32DivS | I64DivS => self.builder.ins().sdiv(x, y),
            I32DivU | I64DivU => self.builder.ins().udiv(x, y),
            I32RemS | I64RemS => self.builder.ins().srem(x, y),
            _ => self.builder.ins().urem(x, y),
        }
    }

    fn float_arithmetic(&mut self, to: u16, kind: Type, op: char, x: Value, y: Value) {
        let (x, y) = (self.float(kind, x), self.float(kind, y));
        let value = match op {
            '+' => self.builder.ins().fadd(x, y),
            '-' => self.builder.ins().fsub(x, y),
            '*' => self.builder.ins().fmul(x, y),
            '/' => self.builder.ins().fdiv(x, y),
            '<' => self.builder.ins().fmin(x, y),
            _ => self.builder.ins().fmax(x, y),
        };
        self.set_result(to, value);
    }

    fn copysign(&mut self, to: u16, kind: Type, x: Value, y: Value) {
        let sign: u64 = if kind == F32 { 1 << 31 } else { 1 << 63 };
        let rest = if kind == F32 { 0x7fff_ffff } else { !sign };
        let (rest, sign) = (self.constant(I64, rest), self.constant(I64, sign));
        let x = self.builder.ins().band(x, rest);
        let y = self.builder.ins().band(y, sign);
        let value = self.builder.ins().bor(x, y);
        self.set(to, value);
    }

    /// Instructions with three operands.
    fn fused(&mut self, site: &Site<'_>) {
        let (to, b, c) = (site.a(), site.b(), site.c());
        match site.op {
            Op::I32MulAddConst => {
                let x = self.get_32(b);
                let factor = self.constant(I32, u64::from(site.low()));
                let addend = self.constant(I32, u64::from(site.high()));
                let value = self.builder.ins().imul(x, factor);
                let value = self.builder.ins().iadd(value, addend);
                self.set_narrow(to, value);
            }
            Op::I32AddAdd => {
                let (x, y) = (self.get_32(b), self.get_32(c));
                let z = self.get_32(site.second() as u16);
                let value = self.builder.ins().iadd(x, y);
                let value = self.builder.ins().iadd(value, z);
                self.set_narrow(to, value);
            }
            Op::I32XorRotl | Op::I32XorShrU => {
                let (x, y) = (self.get_32(b), self.get_32(c));
                let bits = self.constant(I32, u64::from(site.low()));
                let y = if site.op == Op::I32XorRotl {
                    self.builder.ins().rotl(y, bits)
                } else {
                    self.builder.ins().ushr(y, bits)
                };
                let value = self.builder.ins().bxor(x, y);
                self.set_narrow(to, value);
            }
            Op::F32MulAdd | Op::F64MulAdd => {
                let kind = if site.op == Op::F32MulAdd { F32 } else { F64 };
                let (x, y) = (self.get_float(kind, b), self.get_float(kind, c));
                let z = self.get_float(kind, site.second() as u16);
                let product = self.builder.ins().fmul(x, y);
                let value = self.builder.ins().fadd(z, product);
                self.set_result(to, value);
            }
            other => unreachable!("no translation of {other:?}"),
        }
    }
}

/// The type and condition of an integer comparison: alone, in a branch or in a loop.
fn comparison(op: Op) -> (Type, IntCC) {
    use IntCC::*;
    use Op::*;
    match op {
        BranchIf => (I64, NotEqual),
        BranchIfNot => (I64, Equal),
        BranchI32Eq | BranchI32EqConst | I32Eq | I32EqConst => (I32, Equal),
        BranchI32Ne | BranchI32NeConst | I32Ne | I32NeConst | LoopI32NeZero | LoopI32Ne
        | LoopI32NeConst => (I32, NotEqual),
        BranchI32LtS | BranchI32LtSConst | I32LtS | I32LtSConst | LoopI32LtS | LoopI32LtSConst => {
            (I32, SignedLessThan)
        }
        BranchI32LtU | BranchI32LtUConst | I32LtU | I32LtUConst | LoopI32LtU | LoopI32LtUConst => {
            (I32, UnsignedLessThan)
        }
        BranchI32LeS | I32LeS | LoopI32LeS => (I32, SignedLessThanOrEqual),
        BranchI32LeU | I32LeU | LoopI32LeU => (I32, UnsignedLessThanOrEqual),
        BranchI32GtSConst | I32GtSConst | LoopI32GtS | LoopI32GtSConst => (I32, SignedGreaterThan),
        BranchI32GtUConst | I32GtUConst | LoopI32GtU | LoopI32GtUConst => {
            (I32, UnsignedGreaterThan)
        }
        LoopI32GeS => (I32, SignedGreaterThanOrEqual),
        LoopI32GeU => (I32, UnsignedGreaterThanOrEqual),
        BranchI64Eq | BranchI64EqConst | I64Eq | I64EqConst => (I64, Equal),
        BranchI64Ne | BranchI64NeConst | I64Ne | I64NeConst | LoopI64NeZero | LoopI64Ne => {
            (I64, NotEqual)
        }
        BranchI64LtS | BranchI64LtSConst | I64LtS | I64LtSConst | LoopI64LtS => {
            (I64, SignedLessThan)
        }
        BranchI64LtU | BranchI64LtUConst | I64LtU | I64LtUConst | LoopI64LtU => {
            (I64, UnsignedLessThan)
        }
        BranchI64LeS | I64LeS => (I64, SignedLessThanOrEqual),
        BranchI64LeU | I64LeU => (I64, UnsignedLessThanOrEqual),
        BranchI64GtSConst | I64GtSConst => (I64, SignedGreaterThan),
        BranchI64GtUConst | I64GtUConst => (I64, UnsignedGreaterThan),
        other => unreachable!("{other:?} is no comparison"),
    }
}

/// Whether an instruction of a binary form compares integers.
fn is_comparison(op: Op) -> bool {
    (Op::I32Eq as u16..=Op::I64GtUConst as u16).contains(&(op as u16))
}

/// Whether an instruction of a binary form is one of 32-bit integers.
fn is_narrow(op: Op) -> bool {
    op.text().starts_with("i32.")
}

/// The type of a float operation of two operands, whether it is arithmetic, and which.
fn float_binary(op: Op) -> Option<(Type, bool, char)> {
    Some(match op {
        Op::F32Add => (F32, true, '+'),
        Op::F32Sub => (F32, true, '-'),
        Op::F32Mul => (F32, true, '*'),
        Op::F32Div => (F32, true, '/'),
        Op::F32Min => (F32, true, '<'),
        Op::F32Max => (F32, true, '>'),
        Op::F32Copysign => (F32, false, ' '),
        Op::F64Add => (F64, true, '+'),
        Op::F64Sub => (F64, true, '-'),
        Op::F64Mul => (F64, true, '*'),
        Op::F64Div => (F64, true, '/'),
        Op::F64Min => (F64, true, '<'),
        Op::F64Max => (F64, true, '>'),
        Op::F64Copysign => (F64, false, ' '),
        _ => return None,
    })
}

fn float_comparison(op: Op) -> Option<(Type, FloatCC)> {
    Some(match op {
        Op::F32Eq => (F32, FloatCC::Equal),
        Op::F32Ne => (F32, FloatCC::NotEqual),
        Op::F32Lt => (F32, FloatCC::LessThan),
        Op::F32Le => (F32, FloatCC::LessThanOrEqual),
        Op::F64Eq => (F64, FloatCC::Equal),
        Op::F64Ne => (F64, FloatCC::NotEqual),
        Op::F64Lt => (F64, FloatCC::LessThan),
        Op::F64Le => (F64, FloatCC::LessThanOrEqual),
        _ => return None,
    })
}

/// A conversion of a float to an integer.
struct Conversion {
    from: Type,
    to: Type,
    is_signed: bool,
    /// Without saturation: the lower limit, whether it is inside, and the upper one, which is not.
    limits: Option<(f64, bool, f64)>,
}

fn conversion(op: Op) -> Option<Conversion> {
    use Op::*;
    const I32_END: f64 = 2_147_483_648.0;
    const U32_END: f64 = 4_294_967_296.0;
    const I64_END: f64 = 9_223_372_036_854_775_808.0;
    const U64_END: f64 = 18_446_744_073_709_551_616.0;
    let unsigned = |end| Some((-1.0, false, end));
    let (from, to, is_signed, limits) = match op {
        I32TruncF32S => (F32, I32, true, Some((-I32_END, true, I32_END))),
        I32TruncF32U => (F32, I32, false, unsigned(U32_END)),
        I32TruncF64S => (F64, I32, true, Some((-I32_END - 1.0, false, I32_END))),
        I32TruncF64U => (F64, I32, false, unsigned(U32_END)),
        I64TruncF32S => (F32, I64, true, Some((-I64_END, true, I64_END))),
        I64TruncF32U => (F32, I64, false, unsigned(U64_END)),
        I64TruncF64S => (F64, I64, true, Some((-I64_END, true, I64_END))),
        I64TruncF64U => (F64, I64, false, unsigned(U64_END)),
        I32TruncSatF32S => (F32, I32, true, None),
        I32TruncSatF32U => (F32, I32, false, None),
        I32TruncSatF64S => (F64, I32, true, None),
        I32TruncSatF64U => (F64, I32, false, None),
        I64TruncSatF32S => (F32, I64, true, None),
        I64TruncSatF32U => (F32, I64, false, None),
        I64TruncSatF64S => (F64, I64, true, None),
        I64TruncSatF64U => (F64, I64, false, None),
        _ => return None,
    };
    Some(Conversion { from, to, is_signed, limits })
}
