//! Instantiation: check the imports' types, add the module's parts to the session, copy its active
//! segments.
//!
//! All checks come first. After them only a segment that is out of bounds can fail; earlier
//! segments stay copied then, as in the specification. The caller runs the start function.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use wavelock_abi::FaultCode;
use wavelock_module::{ConstExpression, ConstStep, ElementItem, ImportKind, Module, SegmentMode};

use crate::memory::Memory;
use crate::session::{
    Dropped, Extern, FunctionEntry, Instance, InstanceId, Session, SessionError, SessionLimits,
    Table, check, narrowed,
};

/// Why a module could not be instantiated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkError {
    /// Not as many externs as the module has imports.
    ImportCount {
        /// Externs passed.
        found: u32,
        /// Imports of the module.
        expected: u32,
    },
    /// An import was linked to an extern of another kind or type.
    ImportType {
        /// Index of the import.
        import: u32,
        /// First level of its name.
        module: String,
        /// Second level of its name.
        name: String,
    },
    /// A limit of the session would be exceeded.
    Session(SessionError),
    /// An active segment is out of bounds. Segments before it were copied.
    Segment {
        /// Index among the element or data segments.
        segment: u32,
        /// `TableOutOfBounds` for an element segment, `MemoryOutOfBounds` for a data segment.
        code: FaultCode,
    },
}

impl From<SessionError> for LinkError {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { limit, found, allowed } => {
                write!(out, "session limit `{limit}` exceeded: found {found}, allowed {allowed}")
            }
            Self::HostCost { found, allowed } => {
                write!(out, "a host function costs {}, at most {} is allowed", found.0, allowed.0)
            }
            Self::HostResults { found } => {
                write!(out, "a host function has {found} results, at most 16 are allowed")
            }
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImportCount { found, expected } => {
                write!(out, "found {found} imports, the module expects {expected}")
            }
            Self::ImportType { import, module, name } => {
                write!(out, "incompatible import type: import {import} `{module}` `{name}`")
            }
            Self::Session(error) => error.fmt(out),
            Self::Segment { segment, code } => write!(out, "segment {segment}: {}", code.text()),
        }
    }
}

impl core::error::Error for SessionError {}
impl core::error::Error for LinkError {}

impl Session {
    /// Adds an instance of `module`, with its imports in declaration order. The start function is
    /// not run.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn instantiate(
        &mut self,
        module: Arc<Module>,
        imports: &[Extern],
    ) -> Result<InstanceId, LinkError> {
        self.check_imports(&module, imports)?;
        self.check_limits(&module)?;
        self.linked = None;
        let id = InstanceId(self.instances.len() as u32);
        let instance = self.allocate(module, imports, id);
        self.dropped.push(Dropped::none(&instance.module));
        self.instances.push(instance);
        self.copy_segments(id)?;
        Ok(id)
    }

    /// Whether each import is linked to an extern of its type.
    fn check_imports(&self, module: &Module, imports: &[Extern]) -> Result<(), LinkError> {
        if imports.len() != module.imports().len() {
            return Err(LinkError::ImportCount {
                found: imports.len() as u32,
                expected: module.imports().len() as u32,
            });
        }
        for (index, (wanted, given)) in module.imports().iter().zip(imports).enumerate() {
            let fits = match (&wanted.kind, *given) {
                (ImportKind::Function(kind), Extern::Function(function)) => {
                    self.function_type(function) == &module.types()[*kind as usize]
                }
                (ImportKind::Table(kind), Extern::Table(table)) => {
                    let table = self.table(table);
                    table.kind.element == kind.element
                        && table.elements.len() as u64 >= u64::from(kind.minimum)
                        && maximum_fits(table.kind.maximum, kind.maximum)
                }
                (ImportKind::Memory(kind), Extern::Memory(memory)) => {
                    let memory = self.memory(memory);
                    memory.pages() >= kind.minimum
                        && maximum_fits(memory.kind.maximum, kind.maximum)
                }
                (ImportKind::Global(kind), Extern::Global(global)) => {
                    self.global_type(global) == *kind
                }
                _ => false,
            };
            if !fits {
                return Err(LinkError::ImportType {
                    import: index as u32,
                    module: wanted.module.clone(),
                    name: wanted.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn check_limits(&self, module: &Module) -> Result<(), SessionError> {
        check(
            "instances",
            self.instances.len() as u64 + 1,
            self.limits.instances.min(SessionLimits::MOST_INSTANCES),
        )?;
        let memories = &module.memories()[module.imported_memories() as usize..];
        let pages: u64 = memories.iter().map(|memory| u64::from(memory.minimum)).sum();
        check("memory_pages", self.memory_pages() + pages, self.limits.memory_pages)?;
        let tables = &module.tables()[module.imported_tables() as usize..];
        let elements: u64 = tables.iter().map(|table| u64::from(table.minimum)).sum();
        check("table_elements", self.table_elements() + elements, self.limits.table_elements)
    }

    /// Adds the module's parts to the session. Cannot fail.
    fn allocate(&mut self, module: Arc<Module>, imports: &[Extern], id: InstanceId) -> Instance {
        let types = module.types().iter().map(|kind| self.intern(kind)).collect::<Vec<_>>();
        let (mut functions, mut tables, mut globals, mut memory) =
            (Vec::new(), Vec::new(), Vec::new(), u32::MAX);
        for import in imports {
            match *import {
                Extern::Function(function) => functions.push(function.0),
                Extern::Table(table) => tables.push(table.0),
                Extern::Memory(address) => memory = address.0,
                Extern::Global(global) => globals.push(global.0),
            }
        }
        let imported = self.imports(&functions);
        for (defined, function) in module.code().functions().iter().enumerate() {
            functions.push(self.functions.len() as u32);
            self.functions.push(FunctionEntry {
                type_id: types[function.type_index as usize],
                instance: id.0,
                entry: function.entry,
                index: module.imported_functions() + defined as u32,
            });
        }
        for &kind in &module.tables()[module.imported_tables() as usize..] {
            tables.push(self.tables.len() as u32);
            self.tables.push(Table {
                elements: alloc::vec![0; kind.minimum as usize],
                kept: None,
                kind,
            });
        }
        for &kind in &module.memories()[module.imported_memories() as usize..] {
            memory = self.memories.len() as u32;
            self.memories.push(Memory::new(kind));
        }
        let first_global = self.globals.len() as u32;
        for global in module.defined_globals() {
            let value = evaluate(&global.value, &self.globals, &globals, &functions);
            globals.push(self.globals.len() as u32);
            self.globals.push(narrowed(global.kind.value, value));
            self.global_types.push(global.kind);
        }
        Instance {
            id: id.0 as u16,
            module,
            functions: functions.into_boxed_slice(),
            imports: imported,
            tables: tables.into_boxed_slice(),
            memory,
            globals: globals.into_boxed_slice(),
            first_global,
            types: types.into_boxed_slice(),
        }
    }

    /// Copies active segments and drops them; declared ones are dropped too.
    fn copy_segments(&mut self, id: InstanceId) -> Result<(), LinkError> {
        let module = self.module(id).clone();
        let index = id.0 as usize;
        for (segment, elements) in module.elements().iter().enumerate() {
            if let SegmentMode::Active { target, offset } = &elements.mode {
                let Self { instances, tables, globals, .. } = &mut *self;
                let instance = &instances[index];
                let offset = evaluate(offset, globals, &instance.globals, &instance.functions)
                    as u32 as usize;
                let table = &mut tables[instance.tables[*target as usize] as usize];
                let slots = table
                    .elements
                    .get_mut(offset..)
                    .and_then(|slots| slots.get_mut(..elements.items.len()));
                let Some(slots) = slots else {
                    return Err(LinkError::Segment {
                        segment: segment as u32,
                        code: FaultCode::TableOutOfBounds,
                    });
                };
                for (slot, &item) in slots.iter_mut().zip(&elements.items) {
                    *slot = reference(item, globals, &instance.globals, &instance.functions);
                }
            }
            if elements.mode != SegmentMode::Passive {
                self.dropped[index].elements[segment] = true;
            }
        }
        for (segment, data) in module.data().iter().enumerate() {
            if let SegmentMode::Active { offset, .. } = &data.mode {
                let instance = &self.instances[index];
                let offset =
                    evaluate(offset, &self.globals, &instance.globals, &instance.functions) as u32;
                let memory = instance.memory as usize;
                if !self.memories[memory].write(offset, &data.bytes) {
                    return Err(LinkError::Segment {
                        segment: segment as u32,
                        code: FaultCode::MemoryOutOfBounds,
                    });
                }
                self.dropped[index].data[segment] = true;
            }
        }
        Ok(())
    }
}

/// An import with a maximum requires a maximum that is not larger.
fn maximum_fits(given: Option<u32>, wanted: Option<u32>) -> bool {
    match (given, wanted) {
        (_, None) => true,
        (Some(given), Some(wanted)) => given <= wanted,
        (None, Some(_)) => false,
    }
}

/// The value of an element segment's item, with the lists of [`evaluate`].
pub(crate) fn reference(
    item: ElementItem,
    values: &[u64],
    globals: &[u32],
    functions: &[u32],
) -> u64 {
    match item {
        ElementItem::Function(function) => u64::from(functions[function as usize]) + 1,
        ElementItem::Global(global) => values[globals[global as usize] as usize],
        ElementItem::Null => 0,
    }
}

/// The value of a validated constant expression. `values` are the session's globals; `globals` and
/// `functions` are the instance's addresses.
pub(crate) fn evaluate(
    expression: &ConstExpression,
    values: &[u64],
    globals: &[u32],
    functions: &[u32],
) -> u64 {
    // Fast path: most are one value.
    if let [ConstStep::Value(value)] = *expression.steps {
        return value;
    }
    let mut stack = Vec::with_capacity(2);
    for step in &expression.steps {
        let value = match *step {
            ConstStep::Value(value) => value,
            ConstStep::Global(global) => values[globals[global as usize] as usize],
            ConstStep::Function(function) => u64::from(functions[function as usize]) + 1,
            ConstStep::Null => 0,
            operation => {
                let right: u64 = stack.pop().expect("a validated constant expression");
                let left: u64 = stack.pop().expect("a validated constant expression");
                match operation {
                    ConstStep::I32Add => u64::from((left as u32).wrapping_add(right as u32)),
                    ConstStep::I32Sub => u64::from((left as u32).wrapping_sub(right as u32)),
                    ConstStep::I32Mul => u64::from((left as u32).wrapping_mul(right as u32)),
                    ConstStep::I64Add => left.wrapping_add(right),
                    ConstStep::I64Sub => left.wrapping_sub(right),
                    _ => left.wrapping_mul(right),
                }
            }
        };
        stack.push(value);
    }
    stack.pop().expect("a validated constant expression")
}
