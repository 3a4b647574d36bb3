//! Programs with the code shapes of optimising compilers, which `wasm-smith` does not generate.
//!
//! Few locals that are set, teed and read around blocks and ifs; values kept on the operand stack
//! over joins; compare-and-branch chains; counted loops in every spelling; scaled addresses;
//! constants, copies, loads, additions and stores in a row; imports called with constants and
//! copies, and a test of the result; branch tables with values. Together they should produce every
//! lowered instruction.
//!
//! Contract: [`module`] is a function of its random source, valid, and ends soon unless a loop's
//! counter overshoots its limit. Elsewhere: encoding of single instructions (`write`).

mod statement;
mod value;

use crate::random::Random;
use crate::write::{Code, Signature, Types};
use wasm_encoder::ValType::{self, F32, F64, I32, I64};
use wasm_encoder::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements, EntityType,
    ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    MemorySection, MemoryType, Module, RefType, TableSection, TableType,
};

/// Imported functions: lowering has a special case for two arguments and one result.
const IMPORTS: &[(&str, &str, &[ValType], &[ValType])] = &[
    ("wavelock", "two", &[I32, I32], &[I32]),
    ("wavelock", "long", &[I32, I64], &[I64]),
    ("wavelock", "both", &[I64, I64], &[I32]),
    ("wavelock", "last", &[I32], &[]),
    ("host", "none", &[], &[I32]),
    ("host", "pair", &[F64], &[I32, F64]),
    ("host", "three", &[I32, I32, I32], &[I32]),
];
/// Imported globals, then the module's own; the first is constant.
const GLOBALS: [ValType; 6] = [I32, I32, I64, I32, I64, F64];
const IMPORTED_GLOBALS: u32 = 3;
/// Leaf functions; tables contain only these.
const LEAVES: u32 = 2;
const COUNTERS: [ValType; 5] = [I32, I32, I32, I64, I64];
const MOST_LOOPS: usize = 2;

/// A branch target: the height of the stack below its values, and their kinds.
struct Label {
    height: usize,
    kinds: Vec<ValType>,
    /// A loop's label: only its own end branches there.
    back: bool,
}

struct Maker<'a> {
    random: &'a mut Random,
    types: &'a mut Types,
    /// Functions that may be called: index and signature.
    callable: Vec<(u32, Signature)>,
    results: Vec<ValType>,
    code: Code,
    locals: Vec<ValType>,
    /// Locals that must keep their value: counters and limits of the loops around.
    busy: Vec<u32>,
    /// The first of the locals that are counters.
    counters: u32,
    loops: usize,
    stack: Vec<ValType>,
    labels: Vec<Label>,
    /// Remaining number of statements.
    budget: u32,
}

/// The module of a seed.
pub(crate) fn module(random: &mut Random) -> Vec<u8> {
    let mut types = Types::default();
    let mut imports = ImportSection::new();
    let mut signatures: Vec<Signature> = Vec::new();
    for (module, name, parameters, results) in IMPORTS {
        imports.import(module, name, EntityType::Function(types.index(parameters, results)));
        signatures.push((parameters.to_vec(), results.to_vec()));
    }
    for (number, kind) in GLOBALS.iter().enumerate().take(IMPORTED_GLOBALS as usize) {
        let kind = GlobalType { val_type: *kind, mutable: number != 0, shared: false };
        imports.import("env", &format!("global{number}"), EntityType::Global(kind));
    }
    let count = 2 + random.below(4) as u32;
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for number in 0..count {
        let (parameters, results) = (kinds(random, 4), kinds(random, 3));
        functions.function(types.index(&parameters, &results));
        let leaf = number < LEAVES;
        let known = if leaf { IMPORTS.len() } else { signatures.len() };
        let callable = signatures.iter().cloned().enumerate().take(known);
        let callable = callable.map(|(index, signature)| (index as u32, signature)).collect();
        code.function(&function(random, &mut types, callable, &parameters, &results));
        signatures.push((parameters, results));
    }
    assemble(types, imports, functions, code, count, random)
}

/// Up to `most` kinds, mostly `i32`.
fn kinds(random: &mut Random, most: u64) -> Vec<ValType> {
    (0..random.below(most + 1)).map(|_| kind(random)).collect()
}

fn kind(random: &mut Random) -> ValType {
    match random.below(12) {
        0..=6 => I32,
        7..=9 => I64,
        10 => F64,
        _ => F32,
    }
}

fn function(
    random: &mut Random,
    types: &mut Types,
    callable: Vec<(u32, Signature)>,
    parameters: &[ValType],
    results: &[ValType],
) -> Function {
    let extra: Vec<ValType> = (0..1 + random.below(4)).map(|_| kind(random)).collect();
    let counters = (parameters.len() + extra.len()) as u32;
    let declared: Vec<ValType> = extra.iter().chain(&COUNTERS).copied().collect();
    let locals = parameters.iter().chain(&declared).copied().collect();
    let budget = 6 + random.below(40) as u32;
    let mut maker = Maker {
        random,
        types,
        callable,
        results: results.to_vec(),
        code: Code::default(),
        locals,
        busy: Vec::new(),
        counters,
        loops: 0,
        stack: Vec::new(),
        labels: vec![Label { height: 0, kinds: results.to_vec(), back: false }],
        budget,
    };
    maker.body(results, 4);
    if !maker.tail_call() {
        maker.code.byte(0x0b);
    }
    let mut function = Function::new_with_locals_types(declared);
    function.raw(maker.code.bytes);
    function
}

impl Maker<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    fn floor(&self) -> usize {
        self.labels.last().map_or(0, |label| label.height)
    }

    /// Statements, and then exactly `wanted` on the stack of this block.
    fn body(&mut self, wanted: &[ValType], depth: u32) {
        let count = 1 + self.below(if depth > 2 { 14 } else { 5 });
        for _ in 0..count {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            self.statement(depth);
        }
        self.arrange(wanted);
    }

    /// Leaves exactly `wanted` above the floor of this block.
    fn arrange(&mut self, wanted: &[ValType]) {
        let floor = self.floor();
        while self.stack.len() > floor + wanted.len() || !wanted.starts_with(&self.stack[floor..]) {
            self.sink();
        }
        for kind in &wanted[self.stack.len() - floor..] {
            self.value(*kind, 2);
        }
    }

    /// Takes one value off the stack: into a local, a store, a comparison or nowhere.
    fn sink(&mut self) {
        let Some(kind) = self.stack.last().copied() else { return };
        if self.stack.len() >= self.floor() + 2
            && self.stack[self.stack.len() - 2] == kind
            && self.one_in(2)
        {
            self.binary(kind);
            return;
        }
        match self.settable(kind) {
            Some(local) if !self.one_in(4) => self.code.local(0x21, local),
            _ => self.code.byte(0x1a),
        }
        self.stack.pop();
    }

    fn settable(&mut self, kind: ValType) -> Option<u32> {
        let locals = (0..self.counters).filter(|local| self.locals[*local as usize] == kind);
        let locals: Vec<u32> = locals.filter(|local| !self.busy.contains(local)).collect();
        (!locals.is_empty()).then(|| locals[self.below(locals.len() as u64) as usize])
    }

    fn readable(&mut self, kind: ValType) -> Option<u32> {
        let locals =
            (0..self.locals.len() as u32).filter(|local| self.locals[*local as usize] == kind);
        let locals: Vec<u32> = locals.collect();
        (!locals.is_empty()).then(|| locals[self.below(locals.len() as u64) as usize])
    }
}

fn assemble(
    types: Types,
    imports: ImportSection,
    functions: FunctionSection,
    code: CodeSection,
    count: u32,
    random: &mut Random,
) -> Vec<u8> {
    let first = IMPORTS.len() as u32;
    let mut tables = TableSection::new();
    let table = TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: 8,
        maximum: Some(64),
        shared: false,
    };
    tables.table(table);
    let mut memories = MemorySection::new();
    let memory = MemoryType {
        minimum: 2,
        maximum: Some(4),
        memory64: false,
        shared: false,
        page_size_log2: None,
    };
    memories.memory(memory);
    let mut globals = GlobalSection::new();
    for kind in &GLOBALS[IMPORTED_GLOBALS as usize..] {
        let first = match kind {
            I32 => ConstExpr::i32_const(random.below(100) as i32),
            I64 => ConstExpr::i64_const(random.next() as i64),
            _ => ConstExpr::f64_const(1.5f64.into()),
        };
        globals.global(GlobalType { val_type: *kind, mutable: true, shared: false }, &first);
    }
    let mut exports = ExportSection::new();
    for number in 0..count {
        exports.export(&format!("f{number}"), ExportKind::Func, first + number);
    }
    for number in 0..GLOBALS.len() as u32 {
        exports.export(&format!("g{number}"), ExportKind::Global, number);
    }
    exports.export("memory", ExportKind::Memory, 0).export("table", ExportKind::Table, 0);
    let leaves: Vec<u32> = (first..first + LEAVES).collect();
    let mut elements = ElementSection::new();
    elements.active(None, &ConstExpr::i32_const(0), Elements::Functions(leaves.as_slice().into()));
    elements.passive(Elements::Functions(leaves.as_slice().into()));
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(0), random.bytes(256)).passive(random.bytes(64));
    let mut module = Module::new();
    module.section(&types.section()).section(&imports).section(&functions).section(&tables);
    module.section(&memories).section(&globals).section(&exports).section(&elements);
    module.section(&DataCountSection { count: 2 }).section(&code).section(&data);
    module.finish()
}
