//! Bytes to [`Module`]: decodes section by section, validates with `wasmparser`, checks limits and
//! lowers each function on the way. Elsewhere: lowering itself (`lower`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use wasmparser::{
    DataKind, ElementItems, ElementKind, ExternalKind, FuncValidatorAllocations, FunctionBody,
    HeapType, Imports, KnownCustom, Name, Operator, Parser, Payload, RefType, TableInit, TypeRef,
    ValType, ValidPayload, Validator, WasmFeatures,
};

use crate::bounds::BOUNDS_SECTION;
use crate::encode::{Draft, Encoder};
use crate::error::LoadError;
use crate::limits::Limits;
use crate::lower;
use crate::peephole::Peepholes;
use crate::types::{
    ConstExpression, ConstStep, DataSegment, ElementItem, ElementSegment, Export, ExportKind,
    FunctionType, Global, GlobalType, Import, ImportKind, MemoryType, SegmentMode, TableType,
    ValueType,
};
use crate::{Module, Names, verify};

/// WebAssembly 2.0 without SIMD, plus tail calls and extended constant expressions.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST);

/// Converts a validator's error. A module that is valid with every proposal enabled is unsupported,
/// not invalid.
fn refuse(bytes: &[u8], error: &wasmparser::Error) -> LoadError {
    let offset = usize::try_from(error.offset()).unwrap_or(usize::MAX);
    let message = error.message().to_owned();
    // Built without SIMD, `wasmparser` does not know the instructions at all. With it, as another
    // crate of the same build may ask for, it names the proposal: the text must be the same.
    if message.contains("SIMD opcode") {
        let feature = unsupported(PROPOSALS[0].1);
        return LoadError::Unsupported { feature, offset };
    }
    let is_valid_with =
        |features| Validator::new_with_features(features).validate_all(bytes).is_ok();
    let missing = error.missing_wasm_feature();
    if missing.is_none() && !is_valid_with(WasmFeatures::all()) {
        return LoadError::Invalid { message, offset };
    }
    let named = PROPOSALS.iter().find(|(proposal, _)| match missing {
        Some(missing) => missing.intersects(*proposal),
        None => is_valid_with(FEATURES.union(*proposal)),
    });
    let feature = match named {
        Some((_, name)) => unsupported(name),
        None => format!("a proposal that is not supported yet ({message})"),
    };
    LoadError::Unsupported { feature, offset }
}

fn unsupported(name: &str) -> String {
    format!("{name}, which is not supported yet")
}

/// Proposals that are refused by name. The ones that another contains come first.
const PROPOSALS: &[(WasmFeatures, &str)] = &[
    (WasmFeatures::SIMD, "SIMD"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD"),
    (WasmFeatures::THREADS, "threads (shared memory and atomics)"),
    (WasmFeatures::EXCEPTIONS, "exceptions"),
    (WasmFeatures::LEGACY_EXCEPTIONS, "exceptions (in their old form)"),
    (WasmFeatures::MEMORY64, "64-bit memories (memory64)"),
    (WasmFeatures::MULTI_MEMORY, "multiple memories"),
    (WasmFeatures::FUNCTION_REFERENCES, "typed function references"),
    (WasmFeatures::GC, "garbage collection (GC)"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic"),
    (WasmFeatures::STACK_SWITCHING, "stack switching"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes"),
    (WasmFeatures::COMPACT_IMPORTS, "compact imports"),
];

/// Loads, lowers and verifies a module.
pub(crate) fn load(
    bytes: &[u8],
    limits: &Limits,
    peepholes: Peepholes,
) -> Result<Module, LoadError> {
    check("module_bytes", bytes.len() as u64, limits.module_bytes, 0)?;
    let (module, code) = (Module::default(), Encoder::new(peepholes));
    let mut loader =
        Loader { limits, module, elements: 0, code, scratch: lower::Scratch::default() };
    match loader.sections(bytes) {
        Ok(()) => {
            let mut module = loader.module;
            module.order_names();
            module.digest = *blake3::hash(bytes).as_bytes();
            verified(loader.code.finish(module.imported_functions), module)
        }
        Err(Refusal::Parse(error)) => Err(refuse(bytes, &error)),
        Err(Refusal::Load(error)) => Err(error),
    }
}

/// The module with this code, if the verifier accepts it.
pub(crate) fn verified(draft: Draft, mut module: Module) -> Result<Module, LoadError> {
    match verify::verify(draft, &module) {
        Ok(code) => {
            module.code = code;
            Ok(module)
        }
        Err(invalid) => {
            Err(LoadError::Internal { rule: invalid.rule, offset: invalid.offset as usize })
        }
    }
}

/// Refuses what is above a limit.
pub(crate) fn check(
    limit: &'static str,
    found: u64,
    allowed: u32,
    offset: usize,
) -> Result<(), LoadError> {
    if found > u64::from(allowed) {
        Err(LoadError::Limit { limit, found, allowed: u64::from(allowed), offset })
    } else {
        Ok(())
    }
}

/// Why loading stopped: the validator's error is classified once, at the top.
pub(crate) enum Refusal {
    Parse(wasmparser::Error),
    Load(LoadError),
}

impl From<wasmparser::Error> for Refusal {
    fn from(error: wasmparser::Error) -> Self {
        Self::Parse(error)
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

struct Loader<'a> {
    limits: &'a Limits,
    module: Module,
    /// Items of the element segments so far.
    elements: u64,
    code: Encoder,
    scratch: lower::Scratch,
}

impl Loader<'_> {
    // Long: one arm per section of the format, in its order.
    fn sections(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let mut validator = Validator::new_with_features(FEATURES);
        let mut parser = Parser::new(0);
        parser.set_features(FEATURES);
        let mut allocations = FuncValidatorAllocations::default();
        /// Refuses a section with more items than a limit allows.
        macro_rules! limit {
            ($reader:ident, $limit:ident) => {
                check(
                    stringify!($limit),
                    u64::from($reader.count()),
                    self.limits.$limit,
                    $reader.range().start as usize,
                )?
            };
        }
        for payload in parser.parse_all(bytes) {
            let payload = payload?;
            if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
                allocations = self.function(function.into_validator(allocations), &body)?;
                continue;
            }
            match payload {
                Payload::TypeSection(reader) => {
                    limit!(reader, types);
                    for function_type in reader.into_iter_err_on_gc_types() {
                        let function_type = function_type?;
                        let parameters: Vec<_> =
                            function_type.params().iter().map(|&value| value_type(value)).collect();
                        let results: Vec<_> = function_type
                            .results()
                            .iter()
                            .map(|&value| value_type(value))
                            .collect();
                        self.module.types.push(FunctionType::new(&parameters, &results));
                    }
                }
                Payload::ImportSection(reader) => {
                    limit!(reader, imports);
                    for group in reader {
                        if let Imports::Single(_, import) = group? {
                            self.import(&import);
                        }
                    }
                }
                Payload::FunctionSection(reader) => {
                    limit!(reader, functions);
                    for type_index in reader {
                        self.module.function_types.push(type_index?);
                    }
                }
                Payload::TableSection(reader) => {
                    limit!(reader, tables);
                    for table in reader {
                        let table = table?;
                        debug_assert!(
                            matches!(table.init, TableInit::RefNull),
                            "initialisers need function references, not enabled"
                        );
                        self.module.tables.push(table_type(&table.ty));
                    }
                }
                Payload::MemorySection(reader) => {
                    for memory in reader {
                        self.module.memories.push(memory_type(&memory?));
                    }
                }
                Payload::GlobalSection(reader) => {
                    limit!(reader, globals);
                    for global in reader {
                        let global = global?;
                        let kind = global_type(&global.ty);
                        self.module.globals.push(kind);
                        self.module
                            .defined_globals
                            .push(Global { kind, value: expression(&global.init_expr)? });
                    }
                }
                Payload::ExportSection(reader) => {
                    limit!(reader, exports);
                    for export in reader {
                        let export = export?;
                        let kind = match export.kind {
                            ExternalKind::Func | ExternalKind::FuncExact => {
                                ExportKind::Function(export.index)
                            }
                            ExternalKind::Table => ExportKind::Table(export.index),
                            ExternalKind::Memory => ExportKind::Memory(export.index),
                            ExternalKind::Global => ExportKind::Global(export.index),
                            ExternalKind::Tag => continue,
                        };
                        self.module.exports.push(Export { name: export.name.to_string(), kind });
                    }
                }
                Payload::StartSection { func, .. } => self.module.start = Some(func),
                Payload::ElementSection(reader) => {
                    limit!(reader, segments);
                    for segment in reader {
                        self.element_segment(segment?)?;
                    }
                }
                Payload::DataSection(reader) => {
                    limit!(reader, segments);
                    for segment in reader {
                        let segment = segment?;
                        let mode = match segment.kind {
                            DataKind::Passive => SegmentMode::Passive,
                            DataKind::Active { memory_index, offset_expr } => SegmentMode::Active {
                                target: memory_index,
                                offset: expression(&offset_expr)?,
                            },
                        };
                        self.module.data.push(DataSegment { mode, bytes: segment.data.to_vec() });
                    }
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(names) = section.as_known() {
                        read_names(&mut self.module.names, names);
                    } else if section.name() == BOUNDS_SECTION {
                        self.module.bounds.extend_from_slice(section.data());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn import(&mut self, import: &wasmparser::Import<'_>) {
        let kind = match import.ty {
            TypeRef::Func(type_index) | TypeRef::FuncExact(type_index) => {
                self.module.imported_functions += 1;
                self.module.function_types.push(type_index);
                ImportKind::Function(type_index)
            }
            TypeRef::Table(table) => {
                let table = table_type(&table);
                self.module.imported_tables += 1;
                self.module.tables.push(table);
                ImportKind::Table(table)
            }
            TypeRef::Memory(memory) => {
                let memory = memory_type(&memory);
                self.module.imported_memories += 1;
                self.module.memories.push(memory);
                ImportKind::Memory(memory)
            }
            TypeRef::Global(global) => {
                let global = global_type(&global);
                self.module.imported_globals += 1;
                self.module.globals.push(global);
                ImportKind::Global(global)
            }
            TypeRef::Tag(_) => return,
        };
        self.module.imports.push(Import {
            module: import.module.to_owned(),
            name: import.name.to_owned(),
            kind,
        });
    }

    fn element_segment(&mut self, segment: wasmparser::Element<'_>) -> Result<(), Refusal> {
        let mode = match segment.kind {
            ElementKind::Passive => SegmentMode::Passive,
            ElementKind::Declared => SegmentMode::Declared,
            ElementKind::Active { table_index, offset_expr } => SegmentMode::Active {
                target: table_index.unwrap_or(0),
                offset: expression(&offset_expr)?,
            },
        };
        let count = match &segment.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        };
        self.elements += u64::from(count);
        check("elements", self.elements, self.limits.elements, segment.range.start as usize)?;
        // Nothing is reserved: the count is not trusted.
        let mut items = Vec::new();
        let element = match segment.items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    items.push(ElementItem::Function(function?));
                }
                ValueType::FuncRef
            }
            ElementItems::Expressions(element, expressions) => {
                for item in expressions {
                    items.push(element_item(&item?)?);
                }
                reference_type(element)
            }
        };
        let items = items.into_boxed_slice();
        self.module.elements.push(ElementSegment { mode, element, items });
        Ok(())
    }

    fn function<T: wasmparser::WasmModuleResources>(
        &mut self,
        validator: wasmparser::FuncValidator<T>,
        body: &FunctionBody<'_>,
    ) -> Result<FuncValidatorAllocations, Refusal> {
        let range = body.range();
        check(
            "function_bytes",
            range.end - range.start,
            self.limits.function_bytes,
            range.start as usize,
        )?;
        let allocations = lower::function(
            &self.module,
            self.limits,
            &mut self.code,
            &mut self.scratch,
            validator,
            body,
        )?;
        check(
            "lowered_words",
            self.code.words.len() as u64,
            self.limits.lowered_words,
            range.start as usize,
        )?;
        Ok(allocations)
    }
}

/// Converts a validated value type. The validator refuses all others: their proposals are not
/// enabled.
pub(crate) fn value_type(value: ValType) -> ValueType {
    match value {
        ValType::I32 => ValueType::I32,
        ValType::I64 => ValueType::I64,
        ValType::F32 => ValueType::F32,
        ValType::F64 => ValueType::F64,
        ValType::Ref(reference) => reference_type(reference),
        ValType::V128 => unreachable!("the validator refuses SIMD"),
    }
}

fn reference_type(reference: RefType) -> ValueType {
    if reference.heap_type() == HeapType::EXTERN {
        ValueType::ExternRef
    } else {
        ValueType::FuncRef
    }
}

fn table_type(table: &wasmparser::TableType) -> TableType {
    TableType {
        element: reference_type(table.element_type),
        minimum: u32::try_from(table.initial).unwrap_or(u32::MAX),
        maximum: table.maximum.map(|maximum| u32::try_from(maximum).unwrap_or(u32::MAX)),
    }
}

fn memory_type(memory: &wasmparser::MemoryType) -> MemoryType {
    MemoryType {
        minimum: u32::try_from(memory.initial).unwrap_or(u32::MAX),
        maximum: memory.maximum.map(|maximum| u32::try_from(maximum).unwrap_or(u32::MAX)),
    }
}

fn global_type(global: &wasmparser::GlobalType) -> GlobalType {
    GlobalType { value: value_type(global.content_type), mutable: global.mutable }
}

/// Reads a validated constant expression.
fn expression(source: &wasmparser::ConstExpr<'_>) -> Result<ConstExpression, Refusal> {
    let mut steps = Vec::new();
    for operator in source.get_operators_reader() {
        steps.push(match operator? {
            Operator::I32Const { value } => ConstStep::Value(u64::from(value as u32)),
            Operator::I64Const { value } => ConstStep::Value(value as u64),
            Operator::F32Const { value } => ConstStep::Value(u64::from(value.bits())),
            Operator::F64Const { value } => ConstStep::Value(value.bits()),
            Operator::GlobalGet { global_index } => ConstStep::Global(global_index),
            Operator::RefFunc { function_index } => ConstStep::Function(function_index),
            Operator::RefNull { .. } => ConstStep::Null,
            Operator::I32Add => ConstStep::I32Add,
            Operator::I32Sub => ConstStep::I32Sub,
            Operator::I32Mul => ConstStep::I32Mul,
            Operator::I64Add => ConstStep::I64Add,
            Operator::I64Sub => ConstStep::I64Sub,
            Operator::I64Mul => ConstStep::I64Mul,
            Operator::End => break,
            other => unreachable!("the validator admits no {other:?} in a constant expression"),
        });
    }
    Ok(ConstExpression { steps: steps.into_boxed_slice() })
}

/// Reads a validated constant expression of reference type.
fn element_item(source: &wasmparser::ConstExpr<'_>) -> Result<ElementItem, Refusal> {
    Ok(match source.get_operators_reader().read()? {
        Operator::RefFunc { function_index } => ElementItem::Function(function_index),
        Operator::GlobalGet { global_index } => ElementItem::Global(global_index),
        Operator::RefNull { .. } => ElementItem::Null,
        other => unreachable!("the validator admits no {other:?} in an element segment"),
    })
}

/// Appends the names of a name section; it is advisory, so a malformed one is ignored from its
/// first error on. A module can have several: they are sorted once, at the end.
fn read_names(names: &mut Names, reader: wasmparser::NameSectionReader<'_>) {
    for subsection in reader {
        match subsection {
            Ok(Name::Module { name, .. }) => names.module = Some(String::from(name)),
            Ok(Name::Function(map)) => read_name_map(&mut names.functions, map),
            Ok(Name::Global(map)) => read_name_map(&mut names.globals, map),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn read_name_map(into: &mut Vec<(u32, String)>, map: wasmparser::NameMap<'_>) {
    for naming in map {
        let Ok(naming) = naming else { return };
        into.push((naming.index, String::from(naming.name)));
    }
}
