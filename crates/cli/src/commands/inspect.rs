//! `wavelock inspect`: a module's imports, exports, functions, costs and safepoints, without
//! running it.

use super::load::{LoadedModule, load_module};
use super::{emit, emit_json};
use crate::arguments::InspectArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use crate::suggest::did_you_mean;
use crate::table::{Align, Table, plural, share};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;
use wavelock_abi::{HostOperation, HostValue, MAX_GAP, SCHEDULER_COSTS_V1, WAVELOCK_MODULE};
use wavelock_debug::function_name;
use wavelock_module::wcet::{ImportCost, Span, Wcet};
use wavelock_module::{
    BoundError, Bounds, ExportKind, FunctionType, ImportKind, Module, ValueType,
};

/// Everything `inspect` reports; what `--json` prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Inspection {
    file: String,
    /// Bytes of the binary.
    bytes: usize,
    /// Hash of the binary, in hex.
    digest: String,
    name: Option<String>,
    /// The export a session starts at.
    entry: Option<&'static str>,
    runnable: bool,
    gap: Gap,
    safepoints: usize,
    memories: Vec<Size>,
    tables: Vec<Size>,
    globals: usize,
    data_bytes: usize,
    stack_pointer: Option<u32>,
    imports: Vec<ImportRow>,
    exports: Vec<ExportRow>,
    functions: Vec<FunctionRow>,
    /// Basic blocks by cost, cheapest class first.
    blocks: Vec<BlockRow>,
    warnings: Vec<String>,
    load: LoadRow,
}

/// What this load took on this host: telemetry, not a property of the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct LoadRow {
    /// From reading the file to lowered code.
    microseconds: u64,
    /// Peak memory of this process, if the operating system reports it.
    peak_bytes: Option<u64>,
}

/// The longest gap between safepoints, and the bounds that follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Gap {
    /// `G`, in cycles.
    cycles: u64,
    /// The limit for every module.
    most: u64,
    /// The least `frame_cycles`, `quantum_cycles` and `wave_cycles` for this module.
    least_span_cycles: u64,
}

/// Pages of a memory or elements of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Size {
    minimum: u32,
    maximum: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct ImportRow {
    module: String,
    name: String,
    /// What is imported: a function's type, `table`, `memory` or `global`.
    kind: String,
    satisfied: bool,
    /// Base cost of a call in cycles, without the cost per 8 bytes.
    cost: Option<u64>,
    /// What the operation does, or why it is missing.
    note: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct ExportRow {
    name: String,
    kind: String,
    index: u32,
    /// The most cycles that a call can be charged.
    whole: Option<WorstCase>,
    /// The most cycles between two waits of a call.
    step: Option<WorstCase>,
}

/// The worst case of a function: its cycles, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct WorstCase {
    cycles: Option<u64>,
    missing: Option<String>,
}

impl WorstCase {
    fn of(module: &Module, wcet: Option<&Wcet>, function: u32) -> Option<Self> {
        let found = wcet?.function(function)?;
        Some(Self {
            cycles: found.ok().map(|cycles| cycles.0),
            missing: found.err().map(|missing| missing.text(module).to_string()),
        })
    }

    fn print(worst: Option<&Self>) -> String {
        worst.map_or_else(String::new, |worst| worst.cycles.map_or("none".to_owned(), grouped))
    }
}

/// The worst cases of whole calls and of steps, under the bounds of the module's own section.
fn worst_cases(module: &Module) -> Result<[Wcet; 2], BoundError> {
    let bounds = Bounds::of(module)?;
    let wcet = |span| Wcet::new(module, &bounds, span, &ImportCost::of_guest_interface);
    Ok([wcet(Span::Whole)?, wcet(Span::Step)?])
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct FunctionRow {
    index: u32,
    name: String,
    /// Bytes of the body.
    bytes: u32,
    /// Cycles of all its blocks, each counted once.
    cost: u64,
    safepoints: usize,
    /// Registers of its frame.
    registers: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct BlockRow {
    /// Lower bound of the class, in cycles.
    least: u64,
    /// Upper bound of the class, in cycles.
    most: u64,
    blocks: u32,
}

pub(super) fn inspect(arguments: &InspectArguments) -> Result<Exit, Failure> {
    let began = Instant::now();
    let loaded = load_module(&arguments.module)?;
    let microseconds = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let load = LoadRow { microseconds, peak_bytes: super::memory::peak() };
    let inspection = Inspection::of(&arguments.module.display().to_string(), &loaded, load);
    if arguments.json {
        emit_json(&inspection)?;
    } else {
        emit(&inspection.print(arguments.top))?;
    }
    Ok(Exit::Done)
}

fn type_text(kind: &FunctionType) -> String {
    let list = |values: &[ValueType]| {
        values.iter().map(|value| value.name()).collect::<Vec<_>>().join(", ")
    };
    match kind.results() {
        [] => format!("({})", list(kind.parameters())),
        [one] => format!("({}) -> {}", list(kind.parameters()), one.name()),
        several => format!("({}) -> ({})", list(kind.parameters()), list(several)),
    }
}

fn host_type(operation: HostOperation) -> FunctionType {
    let convert = |values: &[HostValue]| -> Vec<ValueType> {
        let convert = |value: &HostValue| match value {
            HostValue::I32 => ValueType::I32,
            HostValue::I64 => ValueType::I64,
        };
        values.iter().map(convert).collect()
    };
    FunctionType::new(&convert(operation.params()), &convert(operation.results()))
}

impl Inspection {
    fn of(file: &str, loaded: &LoadedModule, load: LoadRow) -> Self {
        let module = &*loaded.module;
        let code = module.code();
        let gap = code.gap().0;
        let (entry, entry_warning) = entry(module);
        let imports = imports(module);
        let mut warnings: Vec<String> = entry_warning.into_iter().collect();
        let missing = imports.iter().filter(|import| !import.satisfied).count();
        if missing > 0 {
            warnings.push(format!(
                "{} cannot be resolved: a machine with this module is refused at load",
                plural(missing as u64, "import")
            ));
        }
        warnings.extend(stack_pointer_warning(module));
        let worst = worst_cases(module);
        warnings.extend(worst.as_ref().err().map(ToString::to_string));
        Self {
            file: file.to_owned(),
            bytes: loaded.bytes.len(),
            digest: module.digest().iter().map(|byte| format!("{byte:02x}")).collect(),
            name: module.name().map(str::to_owned),
            entry,
            runnable: entry.is_some() && missing == 0,
            gap: Gap {
                cycles: gap,
                most: MAX_GAP.0,
                least_span_cycles: 2 * (gap + SCHEDULER_COSTS_V1.switch.0),
            },
            safepoints: code.stops().len(),
            memories: module
                .memories()
                .iter()
                .map(|memory| Size { minimum: memory.minimum, maximum: memory.maximum })
                .collect(),
            tables: module
                .tables()
                .iter()
                .map(|table| Size { minimum: table.minimum, maximum: table.maximum })
                .collect(),
            globals: module.globals().len(),
            data_bytes: module.data().iter().map(|segment| segment.bytes.len()).sum(),
            stack_pointer: module.find_global("__stack_pointer"),
            imports,
            exports: exports(module, worst.as_ref().ok()),
            functions: functions(module),
            blocks: blocks(module),
            warnings,
            load,
        }
    }

    fn print(&self, top: u64) -> String {
        let mut text = String::new();
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" `{name}`"));
        let _ = writeln!(
            text,
            "{}: module{name}, {}, {}",
            self.file,
            plural(self.bytes as u64, "byte"),
            self.digest
        );
        let _ = writeln!(text, "entry: {}", self.entry.unwrap_or("none"));
        let _ = writeln!(
            text,
            "longest gap G: {} of at most {} cycles over {}, so frame, quantum and wave need at least {} cycles",
            grouped(self.gap.cycles),
            grouped(self.gap.most),
            plural(self.safepoints as u64, "safepoint"),
            grouped(self.gap.least_span_cycles)
        );
        for memory in &self.memories {
            let _ = writeln!(text, "memory: {}", size_text(memory, "page"));
        }
        for table in &self.tables {
            let _ = writeln!(text, "table: {}", size_text(table, "element"));
        }
        let stack = self
            .stack_pointer
            .map_or_else(|| "not found".to_owned(), |global| format!("global {global}"));
        let _ = writeln!(
            text,
            "{}, stack pointer: {stack}; {} of data",
            plural(self.globals as u64, "global"),
            plural(self.data_bytes as u64, "byte")
        );
        let _ = writeln!(text, "{}", self.load.print());
        section(&mut text, "Imports", &self.import_table());
        section(&mut text, "Exports", &self.export_table());
        for reason in self.missing() {
            let _ = writeln!(text, "  no worst case: {reason}");
        }
        let (functions, hidden) = self.function_table(top);
        section(&mut text, "Functions", &functions);
        if hidden > 0 {
            let _ = writeln!(text, "  and {} (--top 0 lists all)", plural(hidden as u64, "other"));
        }
        section(&mut text, "Basic blocks by cost", &self.block_table());
        let yellow = AnsiColor::Yellow.on_default().bold();
        for warning in &self.warnings {
            let _ = write!(text, "\n{yellow}warning{yellow:#}: {warning}\n");
        }
        text
    }

    fn import_table(&self) -> Table {
        let mut table = Table::new(&[
            ("import", Align::Left),
            ("type", Align::Left),
            ("", Align::Left),
            ("cycles", Align::Right),
            ("meaning", Align::Left),
        ]);
        for import in &self.imports {
            table.row(vec![
                format!("{} {}", import.module, import.name),
                import.kind.clone(),
                if import.satisfied { "ok" } else { "missing" }.to_owned(),
                import.cost.map_or_else(String::new, grouped),
                import.note.clone(),
            ]);
        }
        table
    }

    fn export_table(&self) -> Table {
        let mut table = Table::new(&[
            ("export", Align::Left),
            ("kind", Align::Left),
            ("index", Align::Right),
            ("worst case", Align::Right),
            ("between waits", Align::Right),
        ]);
        for export in &self.exports {
            table.row(vec![
                export.name.clone(),
                export.kind.clone(),
                export.index.to_string(),
                WorstCase::print(export.whole.as_ref()),
                WorstCase::print(export.step.as_ref()),
            ]);
        }
        table
    }

    /// Why exports have no worst case, each reason once.
    fn missing(&self) -> BTreeSet<&str> {
        let worst = self.exports.iter().flat_map(|export| [&export.whole, &export.step]);
        worst.flatten().filter_map(|worst| worst.missing.as_deref()).collect()
    }

    /// The most expensive functions, and how many are not shown.
    fn function_table(&self, top: u64) -> (Table, usize) {
        let mut table = Table::new(&[
            ("index", Align::Right),
            ("function", Align::Left),
            ("bytes", Align::Right),
            ("cycles", Align::Right),
            ("share", Align::Right),
            ("safepoints", Align::Right),
            ("registers", Align::Right),
        ]);
        let total: u64 = self.functions.iter().map(|function| function.cost).sum();
        let top = if top == 0 { usize::MAX } else { usize::try_from(top).unwrap_or(usize::MAX) };
        let mut rows: Vec<&FunctionRow> = self.functions.iter().collect();
        rows.sort_by_key(|function| Reverse(function.cost));
        for function in rows.iter().take(top) {
            table.row(vec![
                function.index.to_string(),
                function.name.clone(),
                grouped(u64::from(function.bytes)),
                grouped(function.cost),
                share(function.cost, total),
                grouped(function.safepoints as u64),
                function.registers.to_string(),
            ]);
        }
        (table, rows.len().saturating_sub(top))
    }

    fn block_table(&self) -> Table {
        let mut table =
            Table::new(&[("cycles", Align::Right), ("blocks", Align::Right), ("", Align::Left)]);
        let largest = self.blocks.iter().map(|row| row.blocks).max().unwrap_or(0).max(1);
        for row in &self.blocks {
            let cycles = if row.least == row.most {
                row.least.to_string()
            } else {
                format!("{}..={}", grouped(row.least), grouped(row.most))
            };
            let bar =
                "#".repeat((u64::from(row.blocks) * 40).div_ceil(u64::from(largest)) as usize);
            table.row(vec![cycles, grouped(u64::from(row.blocks)), bar]);
        }
        table
    }
}

impl LoadRow {
    fn print(&self) -> String {
        let milliseconds = self.microseconds as f64 / 1e3;
        match self.peak_bytes {
            Some(bytes) => format!(
                "loaded in {milliseconds:.1} ms, peak memory {:.1} MiB",
                bytes as f64 / f64::from(1 << 20)
            ),
            None => format!("loaded in {milliseconds:.1} ms"),
        }
    }
}

fn section(text: &mut String, title: &str, table: &Table) {
    if !table.is_empty() {
        let style = Style::new().bold().underline();
        let _ = write!(text, "\n{style}{title}{style:#}\n{}", table.render());
    }
}

fn size_text(size: &Size, unit: &str) -> String {
    let most = size.maximum.map_or_else(
        || "limited by the manifest".to_owned(),
        |most| format!("at most {}", grouped(u64::from(most))),
    );
    format!("{}, {most}", plural(u64::from(size.minimum), unit))
}

/// The entry point of a session, or why there is none.
fn entry(module: &Module) -> (Option<&'static str>, Option<String>) {
    for name in ["_start", "main"] {
        let Some(export) = module.export(name) else { continue };
        let kind = match export {
            ExportKind::Function(function) => module.function_type(function),
            _ => None,
        };
        return match kind {
            Some(kind)
                if kind.parameters().is_empty()
                    && matches!(kind.results(), [] | [ValueType::I32]) =>
            {
                (Some(name), None)
            }
            Some(kind) => (
                None,
                Some(format!(
                    "the export `{name}` has type {}; an entry point has type () -> () or () -> i32",
                    type_text(kind)
                )),
            ),
            None => (None, Some(format!("the export `{name}` is not a function"))),
        };
    }
    (
        None,
        Some("the module exports neither `_start` nor `main`, so no session can run it".to_owned()),
    )
}

/// Semantics 9: warns if a module spawns coroutines but its stack pointer cannot be identified.
fn stack_pointer_warning(module: &Module) -> Option<String> {
    let spawns = module.imports().iter().any(|import| {
        import.module == WAVELOCK_MODULE
            && HostOperation::find(WAVELOCK_MODULE, &import.name).is_some()
            && import.name.starts_with("spawn")
    });
    let candidates: Vec<String> = module
        .globals()
        .iter()
        .enumerate()
        .filter(|(_, global)| global.mutable && global.value == ValueType::I32)
        .map(|(index, _)| index.to_string())
        .collect();
    if !spawns || module.find_global("__stack_pointer").is_some() || candidates.is_empty() {
        return None;
    }
    Some(format!(
        "the module spawns coroutines, but its `__stack_pointer` was not found: code from C or Rust would share one shadow stack.\n  \
         Keep the name section, export the global, or name it in the manifest: coroutine_globals = [{}]",
        candidates[0]
    ))
}

fn imports(module: &Module) -> Vec<ImportRow> {
    let row = |import: &wavelock_module::Import| {
        let operation = HostOperation::find(&import.module, &import.name);
        let (kind, satisfied, note) = match &import.kind {
            ImportKind::Function(index) => {
                let kind = module.types().get(*index as usize).cloned().unwrap_or_default();
                match operation {
                    Some(operation) if host_type(operation) == kind => {
                        (type_text(&kind), true, operation.meaning().to_owned())
                    }
                    Some(operation) => (
                        type_text(&kind),
                        false,
                        format!("this operation has type {}", type_text(&host_type(operation))),
                    ),
                    None => {
                        let meant = did_you_mean(&import.module, &import.name);
                        (type_text(&kind), false, format!("no such operation{meant}"))
                    }
                }
            }
            ImportKind::Table(_) => {
                ("table".to_owned(), false, "tables cannot be imported".to_owned())
            }
            ImportKind::Memory(_) => {
                ("memory".to_owned(), false, "memories cannot be imported".to_owned())
            }
            ImportKind::Global(_) => {
                ("global".to_owned(), false, "globals cannot be imported".to_owned())
            }
        };
        let cost = operation.filter(|_| satisfied).map(|operation| operation.cost().0);
        ImportRow {
            module: import.module.clone(),
            name: import.name.clone(),
            kind,
            satisfied,
            cost,
            note,
        }
    };
    module.imports().iter().map(row).collect()
}

fn exports(module: &Module, wcet: Option<&[Wcet; 2]>) -> Vec<ExportRow> {
    let worst = |kind, span: usize| match kind {
        ExportKind::Function(index) => WorstCase::of(module, wcet.map(|spans| &spans[span]), index),
        _ => None,
    };
    let row = |export: &wavelock_module::Export| {
        let (kind, index) = match export.kind {
            ExportKind::Function(index) => {
                (module.function_type(index).map_or_else(String::new, type_text), index)
            }
            ExportKind::Table(index) => ("table".to_owned(), index),
            ExportKind::Memory(index) => ("memory".to_owned(), index),
            ExportKind::Global(index) => ("global".to_owned(), index),
        };
        let (whole, step) = (worst(export.kind, 0), worst(export.kind, 1));
        ExportRow { name: export.name.clone(), kind, index, whole, step }
    };
    module.exports().iter().map(row).collect()
}

fn functions(module: &Module) -> Vec<FunctionRow> {
    let code = module.code();
    let stops = code.stops();
    let row = |(defined, function): (usize, &wavelock_module::Function)| {
        let index = module.imported_functions() + defined as u32;
        let first = stops.partition_point(|stop| stop.word < function.entry);
        let after = stops.partition_point(|stop| stop.word < function.end);
        FunctionRow {
            index,
            name: function_name(module, index),
            bytes: function.size,
            cost: function.cost,
            safepoints: after - first,
            registers: function.registers,
        }
    };
    code.functions().iter().enumerate().map(row).collect()
}

fn blocks(module: &Module) -> Vec<BlockRow> {
    let counts = module.code().blocks();
    let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let row = |(class, blocks): (usize, &u32)| {
        let least = if class == 0 { 0 } else { 1 << (class - 1) };
        BlockRow { least, most: (1_u64 << class) - 1, blocks: *blocks }
    };
    counts[..used].iter().enumerate().map(row).filter(|row| row.most > 0).collect()
}
