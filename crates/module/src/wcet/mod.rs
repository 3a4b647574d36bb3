//! Worst-case execution time: the most cycles that a call of a function can be charged, from its
//! lowered code, declared bounds of loops and the costs of imports.
//!
//! ```text
//!   calls    graph of calls, strongly connected parts, callees first   (an iterative search)
//!   flow     one function: one pass over its words, loops collapsed when they end
//!   reach    cycles along a path, with or without a wait inside
//! ```
//!
//! Two questions. *Whole*: the cycles of a call from entry to return. *Step*: the most cycles
//! between two waits, for a function that serves for ever; a loop in which every round waits needs
//! no bound then.
//!
//! Contract: no run is charged more than the result if its loops and sized operations keep to
//! their bounds and the module is alone in its session. What has no bound is refused by name
//! ([`WcetMissing`]). A pass takes time near linear in the words of code and uses no host stack in
//! proportion. Limits: every branch is taken to be possible; the longest callee of a type is
//! assumed for an indirect call; a length is known if it is a constant just before its operation.

mod calls;
mod flow;
mod reach;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use wavelock_abi::{Cycles, HostOperation};

use crate::bounds::{BoundError, BoundKind, Bounds, Resolved};
use crate::code::length;
use crate::op::{Op, Word};
use crate::types::ElementItem;
use crate::{ConstStep, Export, ExportKind, Import, ImportKind, Module};

use calls::{Calls, Node};
use reach::{MOST, Reach};

/// What a call of an import is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportCost {
    /// Cycles of the call.
    pub cycles: Cycles,
    /// What it is charged by size.
    pub size: Option<SizeCost>,
    /// Whether it ends a step: the caller waits there for its next one.
    pub waits: bool,
    /// Whether the coroutine may end there.
    pub may_end: bool,
}

/// The part of an import's cost that depends on an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeCost {
    /// Cycles for each started group of eight bytes.
    pub per_8_bytes: u64,
    /// Which argument is the size; `None` if none bounds it.
    pub argument: Option<u8>,
    /// Bytes of each unit of the argument.
    pub unit: u64,
}

impl SizeCost {
    fn of(self, count: u64) -> u64 {
        let groups = count.saturating_mul(self.unit).div_ceil(8);
        groups.saturating_mul(self.per_8_bytes)
    }
}

impl ImportCost {
    /// The cost of an operation of the guest interface. A step ends where a coroutine waits for its
    /// next message or period: `recv`, `recv_bytes`, `sleep` and `context_yield`.
    #[must_use]
    pub const fn of(operation: HostOperation) -> Self {
        use HostOperation as O;
        let argument = match operation {
            O::SendBytes | O::RecvBytes => Some(2),
            O::Port | O::Select | O::Input | O::Output | O::Log => Some(1),
            O::SessionName | O::RandomGet => Some(1),
            _ => None,
        };
        let unit = if matches!(operation, O::Select) { 4 } else { 1 };
        let per_8_bytes = operation.cost_per_8_bytes();
        let size =
            if per_8_bytes == 0 { None } else { Some(SizeCost { per_8_bytes, argument, unit }) };
        let waits = matches!(operation, O::Recv | O::RecvBytes | O::Sleep | O::ContextYield);
        // Without arguments nothing can be wrong, and only an exit code ends a coroutine.
        let may_end = !operation.params().is_empty();
        Self { cycles: operation.cost(), size, waits, may_end }
    }

    /// The cost of an import of the guest interface.
    #[must_use]
    pub fn of_guest_interface(import: &Import) -> Option<Self> {
        HostOperation::find(&import.module, &import.name).map(Self::of)
    }
}

/// Which paths are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// A call from its entry to its return.
    Whole,
    /// From entry or a wait to the next wait or the return.
    Step,
}

/// Why a function has no worst case. Functions are indices of the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WcetMissing {
    /// A loop without a bound.
    Loop {
        /// The function.
        function: u32,
        /// Which of its loops that repeat, from 0.
        ordinal: u32,
        /// Byte offset of the loop in the module.
        offset: u32,
    },
    /// A sized operation whose size has no bound.
    Size {
        /// The function.
        function: u32,
        /// Which of its sized operations, from 0.
        ordinal: u32,
        /// Byte offset of the operation in the module.
        offset: u32,
        /// Whether the maximum of a memory or table would bound it.
        declarable: bool,
    },
    /// A function that can call itself.
    Recursion {
        /// The function.
        function: u32,
        /// Another function of the cycle, if there is one.
        through: Option<u32>,
        /// Whether an indirect call is part of the cycle.
        indirect: bool,
    },
    /// A call of an import whose cost is not known.
    Import {
        /// The import, by function index.
        function: u32,
    },
    /// An indirect call through a table that others can change.
    Table {
        /// The function with the call.
        function: u32,
    },
    /// More cycles than can be counted.
    Overflow {
        /// The function.
        function: u32,
    },
    /// Control flow that lowering does not produce.
    Flow {
        /// The function.
        function: u32,
    },
}

/// A refusal in the words of the module's author.
pub struct WcetText<'a>(&'a Module, WcetMissing);

impl fmt::Display for WcetText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |function| name(self.0, function);
        let version = crate::bounds::BOUNDS_VERSION;
        match self.1 {
            WcetMissing::Loop { function, ordinal, offset } => write!(
                out,
                "loop {ordinal} of `{}` (byte {offset:#x}) has no bound: add `{version} loop \
                 {ordinal} MOST {}`",
                name(function),
                name(function)
            ),
            WcetMissing::Size { function, ordinal, offset, declarable } => {
                let name = name(function);
                write!(
                    out,
                    "sized operation {ordinal} of `{name}` (byte {offset:#x}) has no bound: "
                )?;
                if declarable {
                    write!(out, "declare a maximum of the memory or table, or ")?;
                }
                write!(out, "add `{version} size {ordinal} MOST {name}`")
            }
            WcetMissing::Recursion { function, through, indirect } => {
                write!(out, "`{}` can call itself", name(function))?;
                match (through, indirect) {
                    (Some(other), false) => write!(out, " through `{}`", name(other)),
                    (Some(other), true) => {
                        write!(out, " through `{}` and an indirect call", name(other))
                    }
                    (None, true) => write!(out, " through an indirect call"),
                    (None, false) => Ok(()),
                }
            }
            WcetMissing::Import { function } => {
                write!(out, "the cost of the import `{}` is not known", name(function))
            }
            WcetMissing::Table { function } => write!(
                out,
                "`{}` calls through an imported table: its callees are not known",
                name(function)
            ),
            WcetMissing::Overflow { function } => {
                write!(out, "the worst case of `{}` exceeds 2^62 cycles", name(function))
            }
            WcetMissing::Flow { function } => {
                write!(out, "the control flow of `{}` is not reducible", name(function))
            }
        }
    }
}

impl WcetMissing {
    /// What is missing, with the names of `module`.
    #[must_use]
    pub const fn text(self, module: &Module) -> WcetText<'_> {
        WcetText(module, self)
    }
}

/// What a function is called in bounds and refusals: its name in the name section, the first export
/// of it, or `#INDEX`.
pub(crate) fn name(module: &Module, function: u32) -> String {
    if let Some(name) = module.function_name(function) {
        return name.to_string();
    }
    let is_it = |export: &&Export| export.kind == ExportKind::Function(function);
    let export = module.exports().iter().find(is_it);
    export.map_or_else(|| format!("#{function}"), |export| export.name.clone())
}

/// The worst cases of all functions of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wcet {
    /// By function that the module defines.
    functions: Vec<Result<u64, WcetMissing>>,
    imported: u32,
}

impl Wcet {
    /// Analyses `module`. `imports` is the cost of each imported function, if it is known.
    ///
    /// # Errors
    /// A bound that names a function, loop or operation that does not exist.
    pub fn new(
        module: &Module,
        bounds: &Bounds,
        span: Span,
        imports: &dyn Fn(&Import) -> Option<ImportCost>,
    ) -> Result<Self, BoundError> {
        let bounds = Resolved::new(bounds, module)?;
        let has = |op| for_each(module, |_, _, found| found == op);
        let analysis = Analysis {
            module,
            bounds,
            imports: import_costs(module, span, imports),
            memory_grows: has(Op::MemoryGrow),
            tables_grow: has(Op::TableGrow),
        };
        let calls = Calls::new(module);
        let mut summaries = Summaries::new(module, &calls);
        let mut scratch = flow::Scratch::default();
        for part in calls.parts() {
            // A recursive part first; a part of one node without an edge to itself is not.
            let recursion = calls.recursion(part);
            for &node in part {
                let summary = match (recursion, calls.node(node)) {
                    (Some(missing), _) => Err(missing),
                    (None, Node::Function(defined)) => {
                        analysis.function(defined, &calls, &summaries, &mut scratch)?
                    }
                    (None, Node::Type(_)) => analysis.candidates(node, &calls, &summaries),
                };
                summaries.set(node, summary);
            }
        }
        let worst = |summary: &Result<Summary, WcetMissing>| summary.map(Summary::worst);
        let functions = summaries.functions().iter().map(worst).collect();
        Ok(Self { functions, imported: module.imported_functions() })
    }

    /// The worst case of a function by its index in the module; `None` if it is imported or does
    /// not exist.
    #[must_use]
    pub fn function(&self, index: u32) -> Option<Result<Cycles, WcetMissing>> {
        let defined = index.checked_sub(self.imported)?;
        self.functions.get(defined as usize).map(|found| found.map(Cycles))
    }
}

/// Paths through a function, from its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Summary {
    /// To its return.
    end: Reach,
    /// To a point where the coroutine may end, or wait.
    peak: Reach,
}

impl Summary {
    fn worst(self) -> u64 {
        self.peak.max(self.end).longest()
    }

    fn max(self, other: Self) -> Self {
        Self { end: self.end.max(other.end), peak: self.peak.max(other.peak) }
    }

    /// A call of an import that is charged `cycles`, then `size`.
    fn of_import(cost: ImportCost, size: u64) -> Self {
        let all = cost.cycles.0.saturating_add(size).min(MOST);
        if cost.waits {
            // Charged by size after the wait.
            let size = Some(size.min(MOST));
            return Self {
                end: Reach { fresh: None, since: size },
                peak: Reach { fresh: Some(cost.cycles.0), since: size },
            };
        }
        let end = Reach::cycles(all);
        Self { end, peak: if cost.may_end { end } else { Reach::NONE } }
    }
}

/// What is known of each node of the graph of calls.
struct Summaries {
    functions: Vec<Result<Summary, WcetMissing>>,
    types: Vec<Result<Summary, WcetMissing>>,
}

impl Summaries {
    fn new(module: &Module, calls: &Calls) -> Self {
        let unknown = Err(WcetMissing::Flow { function: 0 });
        Self {
            functions: alloc::vec![unknown; module.code().functions().len()],
            types: alloc::vec![unknown; calls.types()],
        }
    }

    fn set(&mut self, node: u32, summary: Result<Summary, WcetMissing>) {
        match self.functions.len().checked_sub(node as usize + 1) {
            Some(_) => self.functions[node as usize] = summary,
            None => self.types[node as usize - self.functions.len()] = summary,
        }
    }

    fn functions(&self) -> &[Result<Summary, WcetMissing>] {
        &self.functions
    }
}

struct Analysis<'a> {
    module: &'a Module,
    bounds: Resolved,
    /// By imported function.
    imports: Vec<Option<ImportCost>>,
    /// Whether any code grows the memory.
    memory_grows: bool,
    /// Whether any code grows a table.
    tables_grow: bool,
}

/// By imported function.
fn import_costs(
    module: &Module,
    span: Span,
    cost: &dyn Fn(&Import) -> Option<ImportCost>,
) -> Vec<Option<ImportCost>> {
    let functions =
        module.imports().iter().filter(|import| matches!(import.kind, ImportKind::Function(_)));
    let cost = |import| {
        let cost: ImportCost = cost(import)?;
        Some(ImportCost { waits: cost.waits && span == Span::Step, ..cost })
    };
    functions.map(cost).collect()
}

impl Analysis<'_> {
    /// The longest of the functions that an indirect call of a type can reach.
    fn candidates(
        &self,
        node: u32,
        calls: &Calls,
        summaries: &Summaries,
    ) -> Result<Summary, WcetMissing> {
        let mut longest = Summary { end: Reach::NONE, peak: Reach::NONE };
        for &callee in calls.candidates(node) {
            let summary = match callee.checked_sub(self.module.imported_functions()) {
                Some(defined) => summaries.functions[defined as usize]?,
                None => self.import(callee, None)?,
            };
            longest = longest.max(summary);
        }
        Ok(longest)
    }

    /// A call of an imported function whose size argument is at most `size`.
    fn import(&self, function: u32, size: Option<u64>) -> Result<Summary, WcetMissing> {
        let missing = WcetMissing::Import { function };
        let cost = self.imports[function as usize].ok_or(missing)?;
        let size = match (cost.size, size) {
            (None, _) => 0,
            (Some(by), Some(size)) => by.of(size),
            (Some(by), None) => {
                let memory = by.argument.and_then(|_| self.memory_bytes());
                by.of(memory.ok_or(missing)? / by.unit)
            }
        };
        Ok(Summary::of_import(cost, size))
    }

    /// The most bytes that the memory can have, if it is known.
    fn memory_bytes(&self) -> Option<u64> {
        let memory = self.module.memories().first()?;
        let grows = self.memory_grows || self.module.imported_memories() > 0;
        let pages = if grows { memory.maximum } else { Some(memory.minimum) };
        pages.map(|pages| u64::from(pages) << 16)
    }

    /// The most elements that a table can have, if it is known.
    fn table_elements(&self, index: u32) -> Option<u64> {
        let table = self.module.tables().get(index as usize)?;
        let grows = self.tables_grow || index < self.module.imported_tables();
        let elements = if grows { table.maximum } else { Some(table.minimum) };
        elements.map(u64::from)
    }

    /// The bound of a loop.
    fn loop_bound(&self, function: u32, ordinal: u32, offset: u32) -> Result<u64, WcetMissing> {
        let missing = WcetMissing::Loop { function, ordinal, offset };
        self.bounds.get(function, BoundKind::Loop, ordinal).ok_or(missing)
    }
}

/// Calls `act` with each instruction of the module: its function, counted from the first that is
/// not imported, its first word, and what it is. Stops at the first that `act` returns `true` for,
/// and returns whether there was one.
fn for_each(module: &Module, mut act: impl FnMut(u32, u32, Op) -> bool) -> bool {
    let words = module.code().words();
    for (defined, function) in (0..).zip(module.code().functions()) {
        let mut at = function.entry;
        while at < function.end {
            let word = Word(words[at as usize]);
            if word.op().is_some_and(|op| act(defined, at, op)) {
                return true;
            }
            at += length(word).unwrap_or(1);
        }
    }
    false
}

/// Every function of which a reference exists: what a table can hold.
fn referenced(module: &Module) -> Vec<u32> {
    let mut functions = Vec::new();
    for segment in module.elements() {
        let items = segment.items.iter().filter_map(|item| match item {
            ElementItem::Function(function) => Some(*function),
            ElementItem::Global(_) | ElementItem::Null => None,
        });
        functions.extend(items);
    }
    for global in module.defined_globals() {
        let steps = global.value.steps.iter().filter_map(|step| match step {
            ConstStep::Function(function) => Some(*function),
            _ => None,
        });
        functions.extend(steps);
    }
    for_each(module, |_, at, op| {
        if op == Op::RefFunc {
            functions.push(Word(module.code().words()[at as usize]).bc());
        }
        false
    });
    functions.sort_unstable();
    functions.dedup();
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The laws that collapsing loops and calls relies on.
    #[test]
    fn reach_is_a_monoid_that_distributes_over_the_longer_of_two() {
        let numbers = [None, Some(0), Some(3), Some(7), Some(MOST)];
        let mut all = Vec::new();
        for fresh in numbers {
            all.extend(numbers.map(|since| Reach { fresh, since }));
        }
        for &a in &all {
            assert_eq!(Reach::START.then(a), a);
            assert_eq!(a.then(Reach::START), a);
            for &b in &all {
                for &c in &all {
                    assert_eq!(a.then(b).then(c), a.then(b.then(c)));
                    assert_eq!(a.then(b.max(c)), a.then(b).max(a.then(c)));
                    assert_eq!(a.max(b).then(c), a.then(c).max(b.then(c)));
                }
            }
        }
    }
}
