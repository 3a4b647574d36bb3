//! WebAssembly modules, validated and lowered once.
//!
//! The pipeline, in reading order: `load` decodes and validates with `wasmparser`; `lower` turns
//! each function into register [`Op`]s; `peephole` fuses neighbours into superinstructions;
//! `encode` resolves costs ([`cost`]) and targets into words; `verify` proves what the interpreter
//! relies on. The result is a [`Module`] with its [`Code`], or a [`LoadError`] with a byte offset.
//! On demand, [`wcet`] computes the worst case of its functions.
//!
//! Supported: WebAssembly 2.0 without SIMD, plus tail calls and extended constant expressions.
//!
//! Laws: a `Module` exists only if every stage succeeded, so `machine` runs it without checking
//! again; cost is a function of the WebAssembly instructions alone (semantics 3); no path between
//! two safepoints costs more than [`wavelock_abi::MAX_GAP`].
//!
//! ```
//! use wavelock_module::{Limits, Module};
//! let text = "(module (func (export \"one\") (result i32) i32.const 1))";
//! let bytes = wat::parse_str(text).unwrap();
//! let module = Module::new(&bytes, &Limits::default()).unwrap();
//! assert_eq!(module.exports()[0].name, "one");
//! assert!(module.code().gap() <= wavelock_abi::MAX_GAP);
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
mod limits;
mod types;

mod load;

mod instructions;
mod op;

pub mod cost;
mod instruction;
mod lower;

mod peephole;

mod encode;

mod code;
mod verify;

mod bounds;
pub mod wcet;

mod breakpoint;
mod print;

use alloc::string::String;
use alloc::vec::Vec;

pub use bounds::{
    BOUNDS_SECTION, BOUNDS_VERSION, BoundError, BoundKind, BoundProblem, Bounds, MOST_BOUNDS_BYTES,
};
pub use code::{BLOCK_CLASSES, Callee, Code, Function, Position, StopPoint};
pub use error::LoadError;
pub use limits::Limits;
pub use op::{Cost, Form, Op, TableEntry, Word};
pub use peephole::Peepholes;
pub use types::{
    ConstExpression, ConstStep, DataSegment, ElementItem, ElementSegment, Export, ExportKind,
    FunctionType, Global, GlobalType, Import, ImportKind, MemoryType, SegmentMode, TableType,
    ValueType,
};

/// Names from the module's name section: for diagnostics, and to find `__stack_pointer`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// The module's own name.
    pub(crate) module: Option<String>,
    /// By function index, ascending.
    pub(crate) functions: Vec<(u32, String)>,
    /// By global index, ascending.
    pub(crate) globals: Vec<(u32, String)>,
    /// Indices into `globals`, ordered by name, then by index.
    pub(crate) globals_by_name: Vec<u32>,
}

impl Names {
    /// Sorts the names and removes duplicates; the first name of an index counts.
    fn order(&mut self) {
        for names in [&mut self.functions, &mut self.globals] {
            names.sort_by_key(|naming| naming.0);
            names.dedup_by_key(|naming| naming.0);
        }
        self.globals_by_name = (0..self.globals.len() as u32).collect();
        self.globals_by_name.sort_by_key(|&at| &self.globals[at as usize].1);
    }

    /// The first global of this name.
    fn global(&self, name: &str) -> Option<u32> {
        let at = |&index: &u32| &self.globals[index as usize];
        let first = self.globals_by_name.partition_point(|index| at(index).1.as_str() < name);
        self.globals_by_name
            .get(first)
            .map(at)
            .filter(|naming| naming.1 == name)
            .map(|naming| naming.0)
    }
}

/// A module, validated and lowered. Its indices follow WebAssembly: imports first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Module {
    /// Hash of the binary; identifies a module in a snapshot or a trace.
    digest: [u8; 32],
    types: Vec<FunctionType>,
    imports: Vec<Import>,
    exports: Vec<Export>,
    /// Indices into `exports`, ordered by name. Names of exports are distinct.
    exports_by_name: Vec<u32>,
    /// Type index of every function.
    function_types: Vec<u32>,
    tables: Vec<TableType>,
    memories: Vec<MemoryType>,
    globals: Vec<GlobalType>,
    imported_functions: u32,
    imported_tables: u32,
    imported_memories: u32,
    imported_globals: u32,
    defined_globals: Vec<Global>,
    elements: Vec<ElementSegment>,
    data: Vec<DataSegment>,
    start: Option<u32>,
    names: Names,
    /// The custom section of bounds, not read yet.
    bounds: Vec<u8>,
    code: Code,
}

impl Module {
    /// Decodes, validates and lowers a binary module.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn new(bytes: &[u8], limits: &Limits) -> Result<Self, LoadError> {
        load::load(bytes, limits, Peepholes::ALL)
    }

    /// [`Module::new`] with only some rows of the peephole pass. States at stops are the same for
    /// all rows; only speed differs.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn with_peepholes(
        bytes: &[u8],
        limits: &Limits,
        peepholes: Peepholes,
    ) -> Result<Self, LoadError> {
        load::load(bytes, limits, peepholes)
    }

    /// This module with changed words, if the verifier accepts them: for tests of the verifier.
    ///
    /// # Errors
    /// [`LoadError::Internal`] with the broken rule.
    pub fn with_words(&self, change: impl FnOnce(&mut [u64])) -> Result<Self, LoadError> {
        let mut draft = self.code.to_draft();
        change(&mut draft.words);
        load::verified(draft, self.clone())
    }

    /// [`Module::new`] for the text format; binary input is accepted too.
    ///
    /// # Errors
    /// See [`LoadError`].
    #[cfg(feature = "text")]
    pub fn from_text(text: &[u8], limits: &Limits) -> Result<Self, LoadError> {
        let bytes = wat::parse_bytes(text)
            .map_err(|error| LoadError::Text { message: alloc::format!("{error}") })?;
        Self::new(&bytes, limits)
    }

    /// The blake3 hash of the binary: modules with equal digests are the same module.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Function types, by type index.
    #[must_use]
    pub fn types(&self) -> &[FunctionType] {
        &self.types
    }

    /// Imports, in declaration order.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Exports, in declaration order.
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// The export of this name.
    #[must_use]
    pub fn export(&self, name: &str) -> Option<ExportKind> {
        let by_name = |&at: &u32| self.exports[at as usize].name.as_str().cmp(name);
        let found = self.exports_by_name.binary_search_by(by_name).ok()?;
        Some(self.exports[self.exports_by_name[found] as usize].kind)
    }

    /// Number of functions, imports included.
    #[must_use]
    pub fn function_count(&self) -> u32 {
        self.function_types.len() as u32
    }

    /// The type index of a function.
    #[must_use]
    pub fn function_type_index(&self, function: u32) -> Option<u32> {
        self.function_types.get(function as usize).copied()
    }

    /// The type of a function.
    #[must_use]
    pub fn function_type(&self, function: u32) -> Option<&FunctionType> {
        self.types.get(self.function_type_index(function)? as usize)
    }

    /// Tables, imports first.
    #[must_use]
    pub fn tables(&self) -> &[TableType] {
        &self.tables
    }

    /// Memories, imports first; at most one.
    #[must_use]
    pub fn memories(&self) -> &[MemoryType] {
        &self.memories
    }

    /// Types of globals, imports first.
    #[must_use]
    pub fn globals(&self) -> &[GlobalType] {
        &self.globals
    }

    /// Number of imported functions.
    #[must_use]
    pub fn imported_functions(&self) -> u32 {
        self.imported_functions
    }

    /// Number of imported tables.
    #[must_use]
    pub fn imported_tables(&self) -> u32 {
        self.imported_tables
    }

    /// Number of imported memories.
    #[must_use]
    pub fn imported_memories(&self) -> u32 {
        self.imported_memories
    }

    /// Number of imported globals.
    #[must_use]
    pub fn imported_globals(&self) -> u32 {
        self.imported_globals
    }

    /// Globals that the module defines, with their initial values.
    #[must_use]
    pub fn defined_globals(&self) -> &[Global] {
        &self.defined_globals
    }

    /// Element segments.
    #[must_use]
    pub fn elements(&self) -> &[ElementSegment] {
        &self.elements
    }

    /// Data segments.
    #[must_use]
    pub fn data(&self) -> &[DataSegment] {
        &self.data
    }

    /// The start function.
    #[must_use]
    pub fn start(&self) -> Option<u32> {
        self.start
    }

    /// The module's name in the name section.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.names.module.as_deref()
    }

    /// A function's name from the name section.
    #[must_use]
    pub fn function_name(&self, function: u32) -> Option<&str> {
        find_name(&self.names.functions, function)
    }

    /// The global of this name: by the name section, else by export.
    #[must_use]
    pub fn find_global(&self, name: &str) -> Option<u32> {
        let named =
            self.names.global(name).filter(|&global| (global as usize) < self.globals.len());
        named.or_else(|| match self.export(name) {
            Some(ExportKind::Global(global)) => Some(global),
            _ => None,
        })
    }

    /// Builds the lookup tables of names, after loading.
    fn order_names(&mut self) {
        self.names.order();
        self.exports_by_name = (0..self.exports.len() as u32).collect();
        self.exports_by_name.sort_unstable_by_key(|&at| &self.exports[at as usize].name);
    }

    /// The lowered code.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }
}

fn find_name(names: &[(u32, String)], index: u32) -> Option<&str> {
    names.binary_search_by_key(&index, |naming| naming.0).ok().map(|at| names[at].1.as_str())
}
