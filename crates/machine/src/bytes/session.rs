//! Canonical bytes of a session: written as it is, read back with every index checked.
//!
//! What a module determines is not written but computed again from the module (types, entries,
//! segments), so it cannot disagree. Coroutines are in `coroutine`.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use wavelock_abi::Cycles;
use wavelock_module::{FunctionType, GlobalType, MemoryType, Module, TableType, ValueType};

use super::chunks::CHUNK_BYTES;
use super::wire::{Reader, Writer};
use super::{DecodeError, Digest};
use crate::memory::{Memory, PAGE_BYTES};
use crate::session::{Dropped, FunctionEntry, Instance, Session, SessionLimits, Table, narrowed};

/// Tag of a function that the host registered.
const HOST_FUNCTION: u8 = 0;
/// Tag of a function that an instance defines.
const DEFINED_FUNCTION: u8 = 1;
/// The memory of an instance that has none.
const NO_MEMORY: u32 = u32::MAX;

pub(crate) fn write(session: &Session, out: &mut Writer) {
    write_structure(session, out);
    out.count(session.memories.len());
    for memory in &session.memories {
        write_limits(memory.kind.minimum, memory.kind.maximum, out);
        write_memory(memory, out);
    }
    write_tables(session, out);
    write_globals(session, out);
    write_dropped(session, out);
}

/// What does not change after linking: limits, modules, types, functions and the instances'
/// addresses.
fn write_structure(session: &Session, out: &mut Writer) {
    let limits = &session.limits;
    for limit in [limits.stack_bytes, limits.memory_pages, limits.table_elements, limits.instances]
    {
        out.u32(limit);
    }
    out.count(session.types.len());
    for kind in &session.types {
        out.u16(kind.parameters().len() as u16);
        out.u16(kind.results().len() as u16);
        for value in kind.parameters().iter().chain(kind.results()) {
            out.u8(*value as u8);
        }
    }
    out.count(session.instances.len());
    for instance in &session.instances {
        out.bytes(&instance.module.digest());
    }
    out.count(session.functions.len());
    for function in &session.functions {
        if function.instance == FunctionEntry::HOST {
            let host = &session.hosts[function.entry as usize];
            out.u8(HOST_FUNCTION);
            out.u16(host.call.number);
            out.u32(function.type_id);
            out.u32(host.cost);
        } else {
            out.u8(DEFINED_FUNCTION);
            out.u32(function.instance);
            out.u32(function.index);
        }
    }
    for instance in &session.instances {
        for addresses in [&instance.functions, &instance.tables, &instance.globals] {
            out.count(addresses.len());
            addresses.iter().for_each(|address| out.u32(*address));
        }
        out.u32(instance.memory);
    }
}

fn write_limits(minimum: u32, maximum: Option<u32>, out: &mut Writer) {
    out.u32(minimum);
    out.u8(u8::from(maximum.is_some()));
    out.u32(maximum.unwrap_or(0));
}

/// The size, then each chunk that is not all zeros, with its number, ascending.
fn write_memory(memory: &Memory, out: &mut Writer) {
    out.u32(memory.pages());
    let chunks = || {
        memory
            .bytes
            .chunks_exact(CHUNK_BYTES)
            .enumerate()
            .filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0))
    };
    out.count(chunks().count());
    for (number, chunk) in chunks() {
        out.u32(number as u32);
        out.bytes(chunk);
    }
}

fn write_tables(session: &Session, out: &mut Writer) {
    out.count(session.tables.len());
    for table in &session.tables {
        out.u8(table.kind.element as u8);
        write_limits(table.kind.minimum, table.kind.maximum, out);
        out.count(table.elements.len());
        table.elements.iter().for_each(|element| out.u64(*element));
    }
}

fn write_globals(session: &Session, out: &mut Writer) {
    out.count(session.globals.len());
    for (kind, value) in session.global_types.iter().zip(&session.globals) {
        out.u8(kind.value as u8);
        out.u8(u8::from(kind.mutable));
        out.u64(*value);
    }
    out.count(session.coroutine_globals.len());
    session.coroutine_globals.iter().for_each(|global| out.u32(*global));
}

fn write_dropped(session: &Session, out: &mut Writer) {
    for dropped in &session.dropped {
        for flag in dropped.elements.iter().chain(&dropped.data) {
            out.u8(u8::from(*flag));
        }
    }
}

/// What running changes, without the bytes of memories: their sizes, tables, globals, dropped
/// segments.
pub(crate) fn write_changes(session: &Session, out: &mut Writer) {
    out.count(session.memories.len());
    session.memories.iter().for_each(|memory| out.u32(memory.pages()));
    write_tables(session, out);
    write_globals(session, out);
    write_dropped(session, out);
}

/// Reads what [`write_changes`] wrote into a session linked in the same way. On an error the
/// session is left half decoded.
pub(crate) fn read_changes(
    input: &mut Reader<'_>,
    session: &mut Session,
) -> Result<(), DecodeError> {
    let at = input.at();
    let count = input.count("memories", 4)?;
    if count != session.memories.len() {
        return Err(DecodeError::Differs {
            at,
            what: "memories",
            found: count as u64,
            expected: session.memories.len() as u64,
        });
    }
    let mut left = u64::from(session.limits.memory_pages);
    for memory in &mut session.memories {
        let pages = read_pages(input, memory.kind, &mut left)?;
        let kind = memory.kind;
        *memory = Memory::new(MemoryType { minimum: pages, maximum: kind.maximum });
        memory.kind = kind;
    }
    let types = core::mem::take(&mut session.global_types);
    let local = core::mem::take(&mut session.coroutine_globals);
    session.tables.clear();
    session.globals.clear();
    let at = input.at();
    read_tables(input, session)?;
    read_globals(input, session)?;
    if session.global_types != types || session.coroutine_globals != local {
        return Err(DecodeError::Inconsistent { at, what: "globals of another session" });
    }
    for dropped in &mut session.dropped {
        for flag in dropped.elements.iter_mut().chain(&mut dropped.data) {
            *flag = input.flag("dropped segment")?;
        }
    }
    check_instances(input, session)
}

/// The digest of a session: of its canonical bytes, with each memory's bytes replaced by its size
/// and the root of its chunk hashes.
pub(crate) fn digest(session: &mut Session) -> Digest {
    let mut out = Writer::default();
    write_structure(session, &mut out);
    out.count(session.memories.len());
    for memory in &mut session.memories {
        write_limits(memory.kind.minimum, memory.kind.maximum, &mut out);
        out.u32(memory.pages());
        out.bytes(&memory.hashes.root(&memory.bytes, &mut memory.dirty));
    }
    write_tables(session, &mut out);
    write_globals(session, &mut out);
    write_dropped(session, &mut out);
    Digest(*blake3::hash(&out.out).as_bytes())
}

/// Reads a session. `modules` are looked up by digest; `allowed` bounds its limits.
pub(crate) fn read(
    input: &mut Reader<'_>,
    modules: &[Arc<Module>],
    allowed: &SessionLimits,
) -> Result<Session, DecodeError> {
    let mut session = Session::new(read_session_limits(input, allowed)?);
    read_types(input, &mut session)?;
    let used = read_modules(input, modules, &session)?;
    read_functions(input, &used, &mut session)?;
    for (number, (module, types)) in used.iter().enumerate() {
        let instance = read_instance(input, module, types, number as u32, &session)?;
        session.instances.push(instance);
    }
    read_memories(input, &mut session)?;
    read_tables(input, &mut session)?;
    read_globals(input, &mut session)?;
    for (module, _) in &used {
        let mut dropped = Dropped::none(module);
        for flag in dropped.elements.iter_mut().chain(&mut dropped.data) {
            *flag = input.flag("dropped segment")?;
        }
        session.dropped.push(dropped);
    }
    check_instances(input, &session)?;
    Ok(session)
}

fn read_session_limits(
    input: &mut Reader<'_>,
    allowed: &SessionLimits,
) -> Result<SessionLimits, DecodeError> {
    Ok(SessionLimits {
        stack_bytes: input.u32_at_most("stack_bytes", u64::from(allowed.stack_bytes))?,
        memory_pages: input.u32_at_most("memory_pages", u64::from(allowed.memory_pages))?,
        table_elements: input.u32_at_most("table_elements", u64::from(allowed.table_elements))?,
        instances: input.u32_at_most(
            "instances",
            u64::from(allowed.instances.min(SessionLimits::MOST_INSTANCES)),
        )?,
        session_stack_bytes: allowed.session_stack_bytes,
    })
}

fn read_value_type(input: &mut Reader<'_>) -> Result<ValueType, DecodeError> {
    let at = input.at();
    let number = input.u8()?;
    input.check(at, "value type", u64::from(number), ValueType::ALL.len() as u64 - 1)?;
    Ok(ValueType::ALL[usize::from(number)])
}

/// The module of an instance, and the session's id of each of its types.
type Used = (Arc<Module>, Box<[u32]>);

/// Types, which must be distinct: equal types have one id, and an indirect call compares ids.
fn read_types(input: &mut Reader<'_>, session: &mut Session) -> Result<(), DecodeError> {
    let count = input.count("types", 4)?;
    for id in 0..count {
        let at = input.at();
        let (parameters, results) = (usize::from(input.u16()?), usize::from(input.u16()?));
        let mut values = Vec::new();
        for _ in 0..parameters + results {
            values.push(read_value_type(input)?);
        }
        let kind = FunctionType::new(&values[..parameters], &values[parameters..]);
        if session.type_ids.insert(kind.clone(), id as u32).is_some() {
            return Err(DecodeError::Inconsistent { at, what: "two equal function types" });
        }
        session.types.push(kind);
    }
    Ok(())
}

/// The module of each instance.
fn read_modules(
    input: &mut Reader<'_>,
    modules: &[Arc<Module>],
    session: &Session,
) -> Result<Vec<Used>, DecodeError> {
    let at = input.at();
    let count = input.count("instances", 32)?;
    input.check(at, "instances", count as u64, u64::from(session.limits.instances))?;
    let by_digest: BTreeMap<[u8; 32], &Arc<Module>> =
        modules.iter().map(|module| (module.digest(), module)).collect();
    let mut used = Vec::new();
    for _ in 0..count {
        let at = input.at();
        let mut wanted = [0; 32];
        wanted.copy_from_slice(input.bytes(32)?);
        let module = *by_digest
            .get(&wanted)
            .ok_or(DecodeError::UnknownModule { at, digest: Digest(wanted) })?;
        let types: Option<Box<[u32]>> =
            module.types().iter().map(|kind| session.type_ids.get(kind).copied()).collect();
        used.push((
            Arc::clone(module),
            types.ok_or(DecodeError::Inconsistent { at, what: "types of an instance" })?,
        ));
    }
    Ok(used)
}

fn read_functions(
    input: &mut Reader<'_>,
    used: &[Used],
    session: &mut Session,
) -> Result<(), DecodeError> {
    for _ in 0..input.count("functions", 9)? {
        let at = input.at();
        match input.u8()? {
            HOST_FUNCTION => {
                let number = input.u16()?;
                let type_id = input.u32_at_most(
                    "type of a host function",
                    (session.types.len() as u64).saturating_sub(1),
                )?;
                let cost = Cycles(u64::from(input.u32()?));
                let Some(kind) = session.types.get(type_id as usize).cloned() else {
                    return Err(DecodeError::Inconsistent { at, what: "type of a host function" });
                };
                let added = session.add_host_function(number, &kind, cost);
                added.map_err(|_| DecodeError::Inconsistent { at, what: "host function" })?;
            }
            DEFINED_FUNCTION => {
                let (instance, index) = (input.u32()?, input.u32()?);
                let entry = defined_function(used, instance, index);
                session.functions.push(
                    entry
                        .ok_or(DecodeError::Inconsistent { at, what: "function of an instance" })?,
                );
            }
            other => {
                return Err(DecodeError::Exceeds {
                    at,
                    what: "kind of a function",
                    found: u64::from(other),
                    allowed: 1,
                });
            }
        }
    }
    Ok(())
}

fn defined_function(used: &[Used], instance: u32, index: u32) -> Option<FunctionEntry> {
    let (module, types) = used.get(instance as usize)?;
    let defined =
        module.code().functions().get(index.checked_sub(module.imported_functions())? as usize)?;
    let type_id = *types.get(defined.type_index as usize)?;
    Some(FunctionEntry { type_id, instance, entry: defined.entry, index })
}

fn read_addresses(
    input: &mut Reader<'_>,
    what: &'static str,
    expected: usize,
) -> Result<Box<[u32]>, DecodeError> {
    let at = input.at();
    let count = input.count(what, 4)?;
    if count != expected {
        return Err(DecodeError::Differs {
            at,
            what,
            found: count as u64,
            expected: expected as u64,
        });
    }
    (0..count).map(|_| input.u32()).collect()
}

fn read_instance(
    input: &mut Reader<'_>,
    module: &Arc<Module>,
    types: &[u32],
    number: u32,
    session: &Session,
) -> Result<Instance, DecodeError> {
    let at = input.at();
    let wrong = |what| DecodeError::Inconsistent { at, what };
    let functions =
        read_addresses(input, "functions of an instance", module.function_count() as usize)?;
    let tables = read_addresses(input, "tables of an instance", module.tables().len())?;
    let globals = read_addresses(input, "globals of an instance", module.globals().len())?;
    let memory = input.u32()?;
    for (index, address) in functions.iter().enumerate() {
        let entry =
            session.functions.get(*address as usize).ok_or(wrong("address of a function"))?;
        let index = index as u32;
        let imported = index < module.imported_functions();
        let type_id = module.function_type_index(index).and_then(|kind| types.get(kind as usize));
        if type_id != Some(&entry.type_id)
            || (!imported && (entry.instance, entry.index) != (number, index))
        {
            return Err(wrong("function of an instance"));
        }
    }
    let first_global = globals.get(module.imported_globals() as usize).copied().unwrap_or(0);
    for (place, address) in globals.iter().skip(module.imported_globals() as usize).enumerate() {
        if u64::from(*address) != u64::from(first_global) + place as u64 {
            return Err(wrong("globals that an instance defines"));
        }
    }
    let imports = session.imports(&functions[..module.imported_functions() as usize]);
    Ok(Instance {
        id: number as u16,
        functions,
        imports,
        tables,
        memory,
        globals,
        first_global,
        types: types.into(),
        module: Arc::clone(module),
    })
}

fn read_limits(input: &mut Reader<'_>) -> Result<(u32, Option<u32>), DecodeError> {
    let minimum = input.u32()?;
    let at = input.at();
    let bounded = input.flag("whether there is a maximum")?;
    let maximum = input.u32()?;
    if !bounded && maximum != 0 {
        return Err(DecodeError::Inconsistent { at, what: "a maximum that is not declared" });
    }
    Ok((minimum, bounded.then_some(maximum)))
}

/// Reads the size of a memory, which must be within its type and the `left` pages of the session.
fn read_pages(
    input: &mut Reader<'_>,
    kind: MemoryType,
    left: &mut u64,
) -> Result<u32, DecodeError> {
    let at = input.at();
    let pages = input.u32()?;
    let allowed = (*left).min(u64::from(kind.maximum.unwrap_or(u32::MAX)));
    input.check(at, "pages of the memories", u64::from(pages), allowed)?;
    let minimum = u64::from(kind.minimum);
    input.check(at, "pages of a memory below its minimum", minimum, u64::from(pages))?;
    *left -= u64::from(pages);
    Ok(pages)
}

fn read_memories(input: &mut Reader<'_>, session: &mut Session) -> Result<(), DecodeError> {
    let mut left = u64::from(session.limits.memory_pages);
    for _ in 0..input.count("memories", 17)? {
        let (minimum, maximum) = read_limits(input)?;
        let kind = MemoryType { minimum, maximum };
        let pages = read_pages(input, kind, &mut left)?;
        let mut memory = Memory::new(MemoryType { minimum: pages, maximum });
        memory.kind.minimum = minimum;
        let mut next = 0;
        for _ in 0..input.count("chunks of a memory", 4 + CHUNK_BYTES)? {
            let at = input.at();
            let number = input.u32()?;
            let most = u64::from(pages) * (PAGE_BYTES / CHUNK_BYTES) as u64;
            input.check(at, "number of a chunk", u64::from(number) + 1, most)?;
            let chunk = input.bytes(CHUNK_BYTES)?;
            if u64::from(number) < next || chunk.iter().all(|byte| *byte == 0) {
                return Err(DecodeError::Inconsistent {
                    at,
                    what: "a chunk that is out of order or all zeros",
                });
            }
            next = u64::from(number) + 1;
            let start = number as usize * CHUNK_BYTES;
            memory.bytes[start..start + CHUNK_BYTES].copy_from_slice(chunk);
            memory.mark(start, start + CHUNK_BYTES);
        }
        session.memories.push(memory);
    }
    Ok(())
}

fn read_tables(input: &mut Reader<'_>, session: &mut Session) -> Result<(), DecodeError> {
    let mut left = u64::from(session.limits.table_elements);
    for _ in 0..input.count("tables", 14)? {
        let at = input.at();
        let element = read_value_type(input)?;
        if !element.is_reference() {
            return Err(DecodeError::Inconsistent {
                at,
                what: "a table that does not hold references",
            });
        }
        let (minimum, maximum) = read_limits(input)?;
        let at = input.at();
        let count = input.count("elements of a table", 8)?;
        input.check(
            at,
            "elements of the tables",
            count as u64,
            left.min(u64::from(maximum.unwrap_or(u32::MAX))),
        )?;
        input.check(
            at,
            "elements of a table below its minimum",
            u64::from(minimum),
            count as u64,
        )?;
        left -= count as u64;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(read_value(input, element, session)?);
        }
        session.tables.push(Table {
            elements,
            kept: None,
            kind: TableType { element, minimum, maximum },
        });
    }
    Ok(())
}

/// A value as it must be held: narrow types in the lower half, a function reference null or of a
/// function of this session.
pub(crate) fn read_value(
    input: &mut Reader<'_>,
    kind: ValueType,
    session: &Session,
) -> Result<u64, DecodeError> {
    let at = input.at();
    let value = input.u64()?;
    if kind == ValueType::FuncRef {
        input.check(at, "function reference", value, session.functions.len() as u64)?;
    }
    if narrowed(kind, value) != value {
        return Err(DecodeError::Exceeds {
            at,
            what: "32-bit value",
            found: value,
            allowed: u64::from(u32::MAX),
        });
    }
    Ok(value)
}

fn read_globals(input: &mut Reader<'_>, session: &mut Session) -> Result<(), DecodeError> {
    for _ in 0..input.count("globals", 10)? {
        let value_type = read_value_type(input)?;
        let mutable = input.flag("whether a global is mutable")?;
        let value = read_value(input, value_type, session)?;
        session.globals.push(value);
        session.global_types.push(GlobalType { value: value_type, mutable });
    }
    let mut next = 0;
    for _ in 0..input.count("coroutine globals", 4)? {
        let at = input.at();
        let global = input.u32()?;
        input.check(at, "coroutine global", u64::from(global) + 1, session.globals.len() as u64)?;
        if u64::from(global) < next {
            return Err(DecodeError::Inconsistent { at, what: "coroutine globals out of order" });
        }
        next = u64::from(global) + 1;
        session.coroutine_globals.push(global);
    }
    Ok(())
}

/// What an instance names must exist and be of the type that its module declares.
fn check_instances(input: &Reader<'_>, session: &Session) -> Result<(), DecodeError> {
    let at = input.at();
    let wrong = |what| DecodeError::Inconsistent { at, what };
    for instance in &session.instances {
        let module = &instance.module;
        for (kind, address) in module.tables().iter().zip(&instance.tables) {
            let table = session.tables.get(*address as usize).ok_or(wrong("address of a table"))?;
            if !matches(
                table.kind.element == kind.element,
                table.elements.len() as u64,
                table.kind.maximum,
                kind.minimum,
                kind.maximum,
            ) {
                return Err(wrong("table of an instance"));
            }
        }
        for (kind, address) in module.globals().iter().zip(&instance.globals) {
            if session.global_types.get(*address as usize) != Some(kind) {
                return Err(wrong("global of an instance"));
            }
        }
        match (module.memories().first(), instance.memory) {
            (None, NO_MEMORY) => {}
            (Some(kind), address) => {
                let memory =
                    session.memories.get(address as usize).ok_or(wrong("address of a memory"))?;
                if !matches(
                    true,
                    u64::from(memory.pages()),
                    memory.kind.maximum,
                    kind.minimum,
                    kind.maximum,
                ) {
                    return Err(wrong("memory of an instance"));
                }
            }
            (None, _) => return Err(wrong("memory of an instance that has none")),
        }
    }
    Ok(())
}

/// The rule of linking: of the same kind, at least as large as required, and bounded at least as
/// tightly.
fn matches(
    same_kind: bool,
    size: u64,
    maximum: Option<u32>,
    wanted: u32,
    wanted_maximum: Option<u32>,
) -> bool {
    let bounded =
        wanted_maximum.is_none_or(|wanted| maximum.is_some_and(|maximum| maximum <= wanted));
    same_kind && size >= u64::from(wanted) && bounded
}
