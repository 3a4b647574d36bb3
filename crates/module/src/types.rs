//! The declarations of a module: types, imports, exports, globals, segments. Elsewhere: code
//! (`code`, `op`).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A value type. Every value is held in 64 bits: an `i32` or `f32` zero-extended, a reference as an
/// opaque number (0 is null).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ValueType {
    /// A 32-bit integer.
    I32 = 0,
    /// A 64-bit integer.
    I64 = 1,
    /// A 32-bit float, as its bits.
    F32 = 2,
    /// A 64-bit float, as its bits.
    F64 = 3,
    /// A function reference: 0 is null, otherwise 1 + the session's function address.
    FuncRef = 4,
    /// A host reference: 0 is null, otherwise what the host chose.
    ExternRef = 5,
}

impl ValueType {
    /// Every type, in order of its number.
    pub const ALL: [Self; 6] =
        [Self::I32, Self::I64, Self::F32, Self::F64, Self::FuncRef, Self::ExternRef];

    /// Whether values of this type use the lower 32 bits only.
    #[must_use]
    pub const fn is_narrow(self) -> bool {
        matches!(self, Self::I32 | Self::F32)
    }

    /// Whether this is a reference type.
    #[must_use]
    pub const fn is_reference(self) -> bool {
        matches!(self, Self::FuncRef | Self::ExternRef)
    }

    /// The name of the text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::FuncRef => "funcref",
            Self::ExternRef => "externref",
        }
    }
}

/// The type of a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FunctionType {
    /// Parameter types, then result types.
    values: Box<[ValueType]>,
    /// How many of `values` are parameters.
    parameters: u16,
}

impl FunctionType {
    /// A type from its parts. Panics above 65,535 parameters; a module has at most 1,000.
    #[must_use]
    pub fn new(parameters: &[ValueType], results: &[ValueType]) -> Self {
        let count =
            u16::try_from(parameters.len()).expect("a function type has at most 65,535 parameters");
        let mut values = Vec::with_capacity(parameters.len() + results.len());
        values.extend_from_slice(parameters);
        values.extend_from_slice(results);
        Self { values: values.into_boxed_slice(), parameters: count }
    }

    /// Parameter types.
    #[must_use]
    pub fn parameters(&self) -> &[ValueType] {
        &self.values[..usize::from(self.parameters)]
    }

    /// Result types.
    #[must_use]
    pub fn results(&self) -> &[ValueType] {
        &self.values[usize::from(self.parameters)..]
    }
}

/// `(i32, i64) -> (i64)`.
impl fmt::Display for FunctionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, types: &[ValueType]| {
            write!(f, "(")?;
            for (at, kind) in types.iter().enumerate() {
                write!(f, "{}{}", if at == 0 { "" } else { ", " }, kind.name())?;
            }
            write!(f, ")")
        };
        list(f, self.parameters())?;
        write!(f, " -> ")?;
        list(f, self.results())
    }
}

/// The type of a table: reference type and size in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableType {
    /// What it holds.
    pub element: ValueType,
    /// Size at instantiation.
    pub minimum: u32,
    /// Maximum size, if declared.
    pub maximum: Option<u32>,
}

/// The type of a memory, in pages of 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryType {
    /// Size at instantiation.
    pub minimum: u32,
    /// Maximum size, if declared.
    pub maximum: Option<u32>,
}

/// The type of a global.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobalType {
    /// What it holds.
    pub value: ValueType,
    /// Whether `global.set` may change it.
    pub mutable: bool,
}

/// The type of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImportKind {
    /// A function of this type index.
    Function(u32),
    /// A table.
    Table(TableType),
    /// A memory.
    Memory(MemoryType),
    /// A global.
    Global(GlobalType),
}

/// One import, in declaration order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// First level of the name.
    pub module: String,
    /// Second level of the name.
    pub name: String,
    /// Its type.
    pub kind: ImportKind,
}

/// What an export names, by index in the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportKind {
    /// A function index.
    Function(u32),
    /// A table index.
    Table(u32),
    /// A memory index.
    Memory(u32),
    /// A global index.
    Global(u32),
}

/// One export, in declaration order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// What it names.
    pub kind: ExportKind,
}

/// One step of a constant expression; the expression's value is what is left on its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstStep {
    /// Push these bits.
    Value(u64),
    /// Push the value of a global, by index in the module.
    Global(u32),
    /// Push a reference to a function, by index in the module.
    Function(u32),
    /// Push the null reference.
    Null,
    /// `i32.add` of the two on top.
    I32Add,
    /// `i32.sub`.
    I32Sub,
    /// `i32.mul`.
    I32Mul,
    /// `i64.add`.
    I64Add,
    /// `i64.sub`.
    I64Sub,
    /// `i64.mul`.
    I64Mul,
}

/// A constant expression: validated, so evaluating it cannot fail.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConstExpression {
    /// The steps, in order.
    pub steps: Box<[ConstStep]>,
}

/// A global that the module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Global {
    /// Its type.
    pub kind: GlobalType,
    /// Its initial value.
    pub value: ConstExpression,
}

/// When a segment is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentMode {
    /// Copied at instantiation to this table or memory index at this offset.
    Active {
        /// Table or memory index.
        target: u32,
        /// The offset in it.
        offset: ConstExpression,
    },
    /// Copied by `table.init` or `memory.init`.
    Passive,
    /// Only makes its functions referable.
    Declared,
}

/// One item of an element segment: the constant expressions of reference type, in eight bytes
/// without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementItem {
    /// A reference to a function, by index in the module.
    Function(u32),
    /// The value of a global, by index in the module.
    Global(u32),
    /// The null reference.
    Null,
}

const _: () = assert!(
    size_of::<ElementItem>() == 8,
    "an item can be one byte of the module, so it must stay small"
);

/// An element segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElementSegment {
    /// When it is used.
    pub mode: SegmentMode,
    /// What it holds.
    pub element: ValueType,
    /// Its elements.
    pub items: Box<[ElementItem]>,
}

/// A data segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataSegment {
    /// When it is used.
    pub mode: SegmentMode,
    /// Its bytes.
    pub bytes: Vec<u8>,
}
