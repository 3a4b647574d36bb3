//! A program to compare engines with: a module, the calls to make, and their result.
//!
//! Contract: a [`Program`] is a function of its seed and of the files in the repository. It may
//! import anything (`host` implements it) and need not end: a call that uses up its cycles is
//! [`Ended::Exhausted`]. Elsewhere: the sources of programs (`shapes`, `mutants`, `smith`) and the
//! engines.

use crate::random::Random;
use wavelock_module::{ExportKind, Module, ValueType};

/// Memory limit of a program on every engine, in pages.
pub(crate) const MEMORY_PAGES: u32 = 64;
/// Elements of all tables together.
pub(crate) const TABLE_ELEMENTS: u32 = 4_096;
/// The value of every imported global.
pub(crate) const IMPORTED_GLOBAL: u64 = 0x0123_4567;

/// One call of an exported function.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) export: String,
    pub(crate) arguments: Vec<u64>,
}

/// A module, and the calls to make in one instance of it.
pub(crate) struct Program {
    /// Its source and origin, for messages.
    pub(crate) origin: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) calls: Vec<Call>,
    /// Cycles of one call on our machine, beyond which it is stopped.
    pub(crate) most_cycles: u64,
    /// Whether our machine has to accept it: a mutant may need more than the limits allow.
    pub(crate) must_load: bool,
}

/// What an oracle needs in addition to the program.
pub(crate) struct Plan<'a> {
    /// The name of the memory that host functions read and write.
    pub(crate) memory: Option<&'a str>,
    /// Names of all exports, in the order in which their values are compared.
    pub(crate) exports: Vec<&'a str>,
    /// The fuel of the instantiation and of each call.
    pub(crate) fuel: Vec<u64>,
}

/// The kind of a trap, in terms common to all engines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Trap {
    Unreachable,
    Memory,
    /// A table access out of bounds or to an undefined element: engines differ in which they
    /// report.
    Table,
    Null,
    Signature,
    Division,
    Overflow,
    Conversion,
    /// Call stack exhausted, at which engines may differ.
    Stack,
}

/// How an instantiation or a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// With these values; references are 0 if null and 1 otherwise.
    Returned(Vec<u64>),
    Trapped(Trap),
    /// In a host function that does not return.
    Exited,
    /// It ran out of cycles or fuel.
    Exhausted,
}

impl Ended {
    /// Whether engines may differ from here on, so that nothing after it is compared.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Exhausted | Self::Trapped(Trap::Stack))
    }
}

/// The result of a program: how each call ended, and the state after the last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Observed {
    /// The instantiation, then each call.
    pub(crate) ends: Vec<Ended>,
    /// Exported globals, in export order; references are 0 or 1.
    pub(crate) globals: Vec<u64>,
    /// Exported memories.
    pub(crate) memories: Vec<Vec<u8>>,
    /// For each element of the exported tables, whether it is null.
    pub(crate) tables: Vec<Vec<bool>>,
}

impl Observed {
    /// The first difference from `other`; `None` if they agree where both are defined.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        for (number, (ours, theirs)) in self.ends.iter().zip(&other.ends).enumerate() {
            if ours.is_open() || theirs.is_open() {
                return None;
            }
            if ours != theirs {
                return Some(format!("end {number}: ours {ours:x?}, theirs {theirs:x?}"));
            }
        }
        if self.ends.len() != other.ends.len() {
            return Some(format!("{} ends, theirs {}", self.ends.len(), other.ends.len()));
        }
        if self.globals != other.globals {
            return Some(format!("globals: ours {:x?}, theirs {:x?}", self.globals, other.globals));
        }
        if self.tables != other.tables {
            return Some("null elements of exported tables".to_owned());
        }
        for (ours, theirs) in self.memories.iter().zip(&other.memories) {
            if ours.len() != theirs.len() {
                return Some(format!("memory of {} bytes, theirs {}", ours.len(), theirs.len()));
            }
            if let Some(at) = (0..ours.len()).find(|&at| ours[at] != theirs[at]) {
                return Some(format!(
                    "memory at {at:#x}: ours {:#x}, theirs {:#x}",
                    ours[at], theirs[at]
                ));
            }
        }
        None
    }
}

/// Calls of exported functions with interesting arguments: `first` if there is one of that name,
/// then any.
pub(crate) fn calls(module: &Module, first: &[&str], count: u64, random: &mut Random) -> Vec<Call> {
    // A re-exported import is left out: called from outside, a host function of the other engines
    // has no calling instance, and so no memory to write to.
    let imported = module.imported_functions();
    let functions = module.exports().iter().filter_map(|export| match export.kind {
        ExportKind::Function(function) if function >= imported => {
            Some((export.name.clone(), module.function_type(function)?))
        }
        _ => None,
    });
    let functions: Vec<_> = functions.collect();
    let named = functions.iter().position(|(name, _)| first.contains(&name.as_str()));
    let mut calls = Vec::new();
    for place in 0..count.min(functions.len() as u64 * 2) {
        let choice = random.below(functions.len() as u64) as usize;
        let choice = named.filter(|_| place == 0).unwrap_or(choice);
        let (export, kind) = &functions[choice];
        let arguments = kind.parameters().iter().map(|kind| argument(*kind, random)).collect();
        calls.push(Call { export: export.clone(), arguments });
    }
    calls
}

/// An interesting value of a type; references are null.
fn argument(kind: ValueType, random: &mut Random) -> u64 {
    let word = match random.below(6) {
        0 => 0,
        1..=3 => random.below(20),
        4 => u64::MAX << random.below(64),
        _ => random.next(),
    };
    match kind {
        ValueType::I32 => word & 0xffff_ffff,
        ValueType::I64 => word,
        ValueType::F32 => u64::from((word as i32 as f32 / 3.0).to_bits()),
        ValueType::F64 => (word as i64 as f64 / 3.0).to_bits(),
        ValueType::FuncRef | ValueType::ExternRef => 0,
    }
}
