//! The compiled tier: verified lowered code as machine code, with the same stops, charges, faults
//! and canonical bytes as the interpreter.
//!
//! [`CompiledModule::new`] compiles a module function by function; [`CompiledTier`] is a
//! [`wavelock_machine::Tier`] that runs what was compiled. A function that is beyond a limit, or
//! that Cranelift refuses, is left to the interpreter and counted ([`CompiledModule::counts`]).
//!
//! In reading order: which registers have to be in their slots (`analyse`), a function in
//! Cranelift's representation (`translate`), executable memory and the call into it (`native`, the
//! only unsafe code).
//!
//! Law: nothing that a trace, a digest or a snapshot shows depends on which tier ran; a coroutine
//! stopped in one tier resumes in the other. The registers of a coroutine that has faulted are no
//! part of its state: a debugger may see older values there.
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_abi::Cycles;
//! use wavelock_compiled::{CompiledModule, CompiledTier, Options};
//! use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run_tiered};
//! use wavelock_module::{Limits, Module};
//!
//! let text = r#"(module (func (export "twice") (param i32) (result i32)
//!     (i32.add (local.get 0) (local.get 0))))"#;
//! let bytes = wat::parse_str(text).unwrap();
//! let module = Arc::new(Module::new(&bytes, &Limits::default()).unwrap());
//! let mut tier = CompiledTier::default();
//! tier.add(Arc::new(CompiledModule::new(&module, &Options::default()).unwrap()));
//! let mut session = Session::new(SessionLimits::default());
//! let instance = session.instantiate(module, &[]).unwrap();
//! let Some(Extern::Function(twice)) = session.export(instance, "twice") else { panic!() };
//! let mut coroutine = Coroutine::start(&session, twice, &[21]).unwrap();
//! assert_eq!(run_tiered(&mut session, &mut coroutine, Cycles(100), &mut tier), Stop::Finished);
//! assert_eq!(coroutine.results(), &[42]);
//! ```
#![deny(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]

mod analyse;
mod context;
mod native;
mod translate;

use std::fmt;
use std::sync::Arc;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, MemFlagsData, Signature};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use wavelock_machine::{NativeState, NativeStop, Tier};
use wavelock_module::{Function, Module};

use crate::analyse::{Analysis, TooLarge};
use crate::context::{Context, ExitKind, TableView, field};
use crate::native::{ALIGNMENT, CodeMemory, Entry};

/// Limits of compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Words of lowered code of one function; a larger one is left to the interpreter.
    pub function_words: u32,
    /// Bytes of machine code of one module; the functions beyond are left to the interpreter.
    pub code_bytes: usize,
    /// Bytes of the host's stack that one function may use; a thread that runs native code needs
    /// that much beside its own use.
    pub frame_bytes: u32,
    /// Optimise: about three times the compile time.
    pub optimise: bool,
    /// A planted miscompilation, for tests of the tests.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            function_words: 50_000,
            code_bytes: 64 << 20,
            frame_bytes: 64 << 10,
            optimise: true,
            planted: None,
        }
    }
}

/// A miscompilation that tests have to find.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A stop does not store the first register that it has to.
    LiveSet,
    /// A forward branch charges each edge with the other's cost.
    Charge,
    /// Some operands are swapped.
    Operands,
    /// The last byte of a memory is out of bounds.
    Bounds,
    /// A store does not mark its page.
    Mark,
    /// A loop that stops at its header stores what its body needs, not what the header shows.
    Header,
    /// A loop that stops does not store the counter that it has just stepped.
    Counter,
}

/// Why nothing could be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompileError {
    /// This processor has no code generator here.
    Host(String),
    /// The system gives no executable memory.
    Memory(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(reason) => write!(f, "no code generator for this processor: {reason}"),
            Self::Memory(reason) => write!(f, "no executable memory: {reason}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Why one function is left to the interpreter.
pub(crate) enum Refusal {
    TooLarge,
    Generator,
}

/// What became of a module's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Functions compiled.
    pub compiled: u32,
    /// Functions left to the interpreter because they are beyond a limit.
    pub too_large: u32,
    /// Functions left to the interpreter because the code generator refused them.
    pub refused: u32,
}

/// The machine code of a module.
pub struct CompiledModule {
    module: Arc<Module>,
    code: CodeMemory,
    /// By function that the module defines: whether it was compiled.
    is_compiled: Box<[bool]>,
    counts: Counts,
}

impl fmt::Debug for CompiledModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledModule")
            .field("counts", &self.counts)
            .field("code_bytes", &self.code_bytes())
            .finish()
    }
}

impl CompiledModule {
    /// Compiles the functions of a module.
    ///
    /// # Errors
    /// See [`CompileError`]. A function that cannot be compiled is no error.
    pub fn new(module: &Arc<Module>, options: &Options) -> Result<Self, CompileError> {
        let isa = target(options).map_err(CompileError::Host)?;
        let mut compiler = Compiler {
            isa,
            options: *options,
            context: cranelift_codegen::Context::new(),
            scratch: FunctionBuilderContext::new(),
            bytes: Vec::new(),
        };
        let host = |_| CompileError::Host("the trampoline does not compile".into());
        let trampoline = compiler.trampoline();
        compiler.emit(trampoline).map_err(host)?;
        let stub = compiler.stub();
        let stub = compiler.emit(stub).map_err(host)?;
        let code = module.code();
        let mut entries: Vec<Option<Entry>> = vec![None; code.words().len()];
        let mut counts = Counts::default();
        let mut is_compiled = Vec::with_capacity(code.functions().len());
        for function in code.functions() {
            let compiled = compiler.function(module, function, &mut entries);
            is_compiled.push(compiled.is_ok());
            match compiled {
                Ok(()) => counts.compiled += 1,
                Err(Refusal::TooLarge) => counts.too_large += 1,
                Err(Refusal::Generator) => counts.refused += 1,
            }
        }
        let code = CodeMemory::new(&compiler.bytes, stub, &entries)
            .map_err(|error| CompileError::Memory(error.to_string()))?;
        let is_compiled = is_compiled.into_boxed_slice();
        Ok(Self { module: Arc::clone(module), code, is_compiled, counts })
    }

    /// The module it was compiled from.
    #[must_use]
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// What became of its functions.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of machine code.
    #[must_use]
    pub fn code_bytes(&self) -> usize {
        self.code.bytes()
    }

    fn run(&self, state: NativeState<'_>, tables: &mut Vec<TableView>) -> Option<NativeStop> {
        let code = self.module.code();
        let index = code.function_at(state.word)?;
        // An instruction that is no stop point has no entry.
        if !self.is_compiled[index] || code.stop_at(state.word).is_none() {
            return None;
        }
        let function = &code.functions()[index];
        let registers = if state.word == function.entry {
            // `enter` compares the window with the stack; parameters and link are in it already.
            function.parameters + 1
        } else {
            function.registers
        };
        self.code.run(state, registers, &self.module, tables)
    }
}

/// The code generator for this processor.
fn target(options: &Options) -> Result<OwnedTargetIsa, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("only x86-64 has been tested".into());
    }
    let mut flags = settings::builder();
    let values = [
        ("opt_level", if options.optimise { "speed" } else { "none" }),
        ("enable_verifier", "true"),
        ("enable_probestack", "false"),
        ("preserve_frame_pointers", "true"),
        ("unwind_info", "false"),
    ];
    for (name, value) in values {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

struct Compiler {
    isa: OwnedTargetIsa,
    options: Options,
    context: cranelift_codegen::Context,
    scratch: FunctionBuilderContext,
    bytes: Vec<u8>,
}

impl Compiler {
    /// Compiles a function, and sets the entries of its stop points.
    fn function(
        &mut self,
        module: &Module,
        function: &Function,
        entries: &mut [Option<Entry>],
    ) -> Result<(), Refusal> {
        let code = module.code();
        let limit = self.options.function_words as usize;
        let analysis = Analysis::new(code, function, limit, self.options.planted)
            .map_err(|TooLarge| Refusal::TooLarge)?;
        let translated = translate::translate(
            code.words(),
            function,
            &analysis,
            self.isa.frontend_config(),
            &mut self.scratch,
            self.options.planted,
        );
        if translated.is_err() {
            // What it holds of an unfinished function.
            self.scratch = FunctionBuilderContext::new();
        }
        let offset = self.emit(translated?)?;
        let stops = analysis.blocks.iter().filter(|block| block.is_stop);
        for (number, block) in stops.enumerate() {
            let word = analysis.sites[block.first].at as usize;
            entries[word] = Some(Entry { offset, number: number as u64 });
        }
        Ok(())
    }

    /// Appends the machine code of a function; returns its offset.
    fn emit(&mut self, function: ir::Function) -> Result<usize, Refusal> {
        self.context.clear();
        self.context.func = function;
        let compiled = self.context.compile(&*self.isa, &mut ControlPlane::default());
        let compiled = compiled.map_err(|_| Refusal::Generator)?;
        let buffer = &compiled.buffer;
        // Without relocations there is nothing outside that it refers to, such as a library.
        if !buffer.relocs().is_empty() || buffer.alignment as usize > ALIGNMENT {
            return Err(Refusal::Generator);
        }
        let frame = buffer.frame_layout().map_or(u32::MAX, |layout| layout.frame_to_fp_offset);
        let offset = self.bytes.len().next_multiple_of(ALIGNMENT);
        if frame > self.options.frame_bytes
            || offset + buffer.data().len() > self.options.code_bytes
        {
            return Err(Refusal::TooLarge);
        }
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(buffer.data());
        Ok(offset)
    }

    /// From the host's calling convention to that of native code.
    fn trampoline(&mut self) -> ir::Function {
        let mut outer = Signature::new(self.isa.default_call_conv());
        outer.params.extend([I64, I64, I32, I64, I64].map(AbiParam::new));
        outer.returns.push(AbiParam::new(I64));
        let mut function = ir::Function::with_name_signature(ir::UserFuncName::default(), outer);
        let mut builder = FunctionBuilder::new(&mut function, &mut self.scratch);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let parameters = builder.block_params(block).to_vec();
        let inner = builder.import_signature(translate::signature());
        let call = builder.ins().call_indirect(inner, parameters[4], &parameters[..4]);
        let result = builder.inst_results(call)[0];
        builder.ins().return_(&[result]);
        builder.finalize(self.isa.frontend_config());
        function
    }

    /// What is entered in place of a function without native code: leaves to the interpreter at the
    /// word that its entry's number is.
    fn stub(&mut self) -> ir::Function {
        let signature = translate::signature();
        let mut function =
            ir::Function::with_name_signature(ir::UserFuncName::default(), signature);
        let mut builder = FunctionBuilder::new(&mut function, &mut self.scratch);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let parameters = builder.block_params(block).to_vec();
        let (context, flags) = (parameters[0], MemFlagsData::trusted());
        let word = builder.ins().ireduce(I32, parameters[3]);
        builder.ins().store(flags, parameters[1], context, field!(window));
        builder.ins().store(flags, word, context, field!(word));
        builder.ins().store(flags, parameters[2], context, field!(left));
        let code = builder.ins().iconst(I64, i64::from(ExitKind::Interpret as u8));
        builder.ins().return_(&[code]);
        builder.finalize(self.isa.frontend_config());
        function
    }
}

/// Runs the functions of compiled modules natively. Each thread has a tier of its own; they share
/// the compiled modules.
#[derive(Default)]
pub struct CompiledTier {
    modules: Vec<Arc<CompiledModule>>,
    /// The module that ran last.
    last: usize,
    tables: Vec<TableView>,
}

impl fmt::Debug for CompiledTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledTier").field("modules", &self.modules).finish()
    }
}

impl CompiledTier {
    /// Runs this module natively from now on.
    pub fn add(&mut self, module: Arc<CompiledModule>) {
        self.modules.push(module);
    }

    /// Whether it has code for a module.
    #[must_use]
    pub fn has(&self, module: &Arc<Module>) -> bool {
        self.modules.iter().any(|found| Arc::ptr_eq(&found.module, module))
    }
}

impl Tier for CompiledTier {
    fn run(&mut self, state: NativeState<'_>) -> Option<NativeStop> {
        let is_own = |found: &Arc<CompiledModule>| Arc::ptr_eq(&found.module, state.module);
        if !self.modules.get(self.last).is_some_and(is_own) {
            self.last = self.modules.iter().position(is_own)?;
        }
        self.modules[self.last].run(state, &mut self.tables)
    }
}
