//! Linking: makes a session from its module. Links imports to the guest interface, instantiates the
//! module, and finds its entries and coroutine-local globals.

use super::{LoadError, MissingImport, Warning};
use crate::call::Calls;
use crate::functions::{FIRST_FUNCTION, HostImports};
use crate::input::InputQueue;
use crate::kill::Kills;
use crate::observe::Chain;
use crate::session::SessionState;
use crate::spec::{MachineSpec, SessionSpec};
use crate::task::TaskTable;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, HostOperation, HostValue, SessionId};
use wavelock_machine::{Extern, FunctionAddress, InstanceId, Session, SessionLimits};
use wavelock_module::{ExportKind, FunctionType, ImportKind, Module, ValueType};

/// The operations that spawn a coroutine.
const SPAWNS: [HostOperation; 3] =
    [HostOperation::Spawn, HostOperation::SpawnOn, HostOperation::SpawnStack];

/// The session `id` of a machine, without coroutines, channels and input.
// Long: one list of fields.
pub(crate) fn make_session(
    spec: &MachineSpec,
    session: &SessionSpec,
    id: SessionId,
    warnings: &mut Vec<Warning>,
) -> Result<SessionState, LoadError> {
    let module = &spec.modules[session.module];
    let name = || session.name.clone();
    let limits = session.limits.over(&spec.limits);
    let mut machine = Session::new(SessionLimits {
        stack_bytes: limits.stack_bytes,
        memory_pages: limits.memory_pages,
        table_elements: limits.table_elements,
        session_stack_bytes: limits.session_stack_bytes,
        ..SessionLimits::default()
    });
    let imports = link(&mut machine, module, &session.name, &spec.host)?;
    let instance = machine
        .instantiate(module.clone(), &imports)
        .map_err(|error| LoadError::Link { session: name(), error })?;
    let startup = entries(&machine, instance, module)
        .map_err(|found| LoadError::NoEntry { session: name(), found })?;
    let stack_pointer = coroutine_globals(&mut machine, instance, module, session)?;
    if imports_any(module, &SPAWNS) && stack_pointer.is_none() && has_shadow_stack(module) {
        warnings.push(Warning::NoStackPointer { session: name() });
    }
    let first_table =
        (!module.tables().is_empty()).then(|| machine.resolve(instance, ExportKind::Table(0)));
    Ok(SessionState {
        id,
        name: name(),
        memory: machine.instance_memory(instance),
        table: first_table.and_then(|table| match table {
            Extern::Table(table) => Some(table),
            _ => None,
        }),
        machine,
        stack_pointer,
        startup,
        lanes: session.placement.lanes().into(),
        priority: session.priority,
        weight: session.weight,
        sharing: spec.policy.sharing(),
        class: session.class,
        limits,
        tasks: TaskTable::new(),
        channels: Vec::new(),
        made_channels: 0,
        ports: Vec::new(),
        handles: Vec::new(),
        port_names: Vec::new(),
        args: session.args.clone(),
        env: session.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        input: InputQueue::default(),
        output: Vec::new(),
        log: Vec::new(),
        log_dropped: 0,
        output_chain: Chain::new(),
        closed_streams: 0,
        cycles: 0,
        host_calls: 0,
        profile: None,
        messages: 0,
        exit: 0,
        exiting: false,
        ended: None,
        ended_by_host: false,
        is_replaced: false,
        first_faulted: false,
        faults: Vec::new(),
        fault_stacks: Vec::new(),
        missed_ports: Vec::new(),
        kills: Kills::default(),
        capabilities: None,
        calls: takes_part_in_calls(module).then(|| Box::new(Calls::new())),
        watches: imports_any(module, &[HostOperation::SessionWait]).then(Box::default),
        asks: spec.has_asks().then(Box::default),
    })
}

/// The value types of a host operation.
fn host_type(operation: HostOperation) -> FunctionType {
    let convert = |values: &[HostValue]| -> Vec<ValueType> {
        values
            .iter()
            .map(|value| match value {
                HostValue::I32 => ValueType::I32,
                HostValue::I64 => ValueType::I64,
            })
            .collect()
    };
    FunctionType::new(&convert(operation.params()), &convert(operation.results()))
}

/// Whether an import is one of the guest interface, with the type it has there.
fn provided_import(module: &Module, import: usize) -> Option<HostOperation> {
    let wanted = module.imports().get(import)?;
    let ImportKind::Function(kind) = wanted.kind else { return None };
    let operation = HostOperation::find(&wanted.module, &wanted.name)?;
    (module.types().get(kind as usize)? == &host_type(operation)).then_some(operation)
}

/// The number, type and cost of an import that is a function of the embedder, with the type it has
/// there.
fn embedders_import(
    module: &Module,
    import: usize,
    host: &HostImports,
) -> Option<(u16, FunctionType, Cycles)> {
    let wanted = module.imports().get(import)?;
    let ImportKind::Function(kind) = wanted.kind else { return None };
    let (position, function) = host.find(&wanted.module, &wanted.name)?;
    let own = function.function_type();
    let fits = module.types().get(kind as usize)? == &own;
    fits.then_some((FIRST_FUNCTION + position as u16, own, function.cost))
}

/// Finds each import among the host operations and the functions of the embedder; all that are
/// missing are named at once.
fn link(
    machine: &mut Session,
    module: &Module,
    session: &str,
    host: &HostImports,
) -> Result<Vec<Extern>, LoadError> {
    let mut imports = Vec::with_capacity(module.imports().len());
    let mut missing = Vec::new();
    for (at, import) in module.imports().iter().enumerate() {
        let own = provided_import(module, at)
            .map(|operation| (operation as u16, host_type(operation), operation.cost()));
        match own.or_else(|| embedders_import(module, at, host)) {
            Some((number, kind, cost)) => {
                let function = machine
                    .add_host_function(number, &kind, cost)
                    .map_err(|error| LoadError::Session { session: session.into(), error })?;
                imports.push(Extern::Function(function));
            }
            None => {
                let wanted = match import.kind {
                    ImportKind::Function(kind) => module
                        .types()
                        .get(kind as usize)
                        .map_or_else(String::new, |kind| format!("{kind}")),
                    ImportKind::Table(_) => "a table: guests bring their own".into(),
                    ImportKind::Memory(_) => "a memory: guests bring their own".into(),
                    ImportKind::Global(_) => "a global: guests bring their own".into(),
                };
                let known = HostOperation::find(&import.module, &import.name).map(host_type);
                let known = known.or_else(|| {
                    let (_, function) = host.find(&import.module, &import.name)?;
                    Some(function.function_type())
                });
                let hint =
                    known.map_or_else(String::new, |kind| format!(" (it exists with type {kind})"));
                missing.push(MissingImport {
                    module: import.module.clone(),
                    name: import.name.clone(),
                    wanted: wanted + &hint,
                });
            }
        }
    }
    if missing.is_empty() {
        Ok(imports)
    } else {
        Err(LoadError::MissingImports { session: session.into(), missing })
    }
}

/// What the first coroutine calls, last first: the start function, `_initialize`, then `_start` or
/// `main` (semantics 8).
fn entries(
    machine: &Session,
    instance: InstanceId,
    module: &Module,
) -> Result<Vec<FunctionAddress>, Option<String>> {
    let function = |name: &str| match machine.export(instance, name) {
        Some(Extern::Function(function)) => Some(function),
        _ => None,
    };
    let Some((name, main)) =
        ["_start", "main"].iter().find_map(|name| function(name).map(|main| (*name, main)))
    else {
        let other = ["_start", "main"].iter().find(|name| module.export(name).is_some());
        return Err(other.map(|name| format!("export `{name}` is not a function")));
    };
    let kind = machine.function_type(main);
    if !kind.parameters().is_empty()
        || !(kind.results().is_empty() || kind.results() == [ValueType::I32])
    {
        return Err(Some(format!("export `{name}` has type {kind}")));
    }
    let mut calls = alloc::vec![main];
    if let Some(initialize) = function("_initialize")
        && machine.function_type(initialize).parameters().is_empty()
        && machine.function_type(initialize).results().is_empty()
    {
        calls.push(initialize);
    }
    calls.extend(machine.start_function(instance));
    Ok(calls)
}

/// Registers the coroutine-local globals with the machine; returns the stack pointer's index among
/// them.
fn coroutine_globals(
    machine: &mut Session,
    instance: InstanceId,
    module: &Module,
    session: &SessionSpec,
) -> Result<Option<usize>, LoadError> {
    let mut names: Vec<&str> = alloc::vec!["__stack_pointer"];
    names.extend(
        session
            .coroutine_globals
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "__stack_pointer"),
    );
    let mut stack_pointer = None;
    for name in names {
        // A module without a name section has its globals by number only.
        let numbered =
            || name.parse().ok().filter(|&global: &u32| (global as usize) < module.globals().len());
        let Some(index) = module.find_global(name).or_else(numbered) else {
            if name == "__stack_pointer"
                && !session.coroutine_globals.iter().any(|named| named == name)
            {
                continue;
            }
            return Err(LoadError::NoGlobal { session: session.name.clone(), global: name.into() });
        };
        // Without an explicit name, the first coroutine-local global that can hold a pointer counts
        // as the stack pointer.
        let pointer = module
            .globals()
            .get(index as usize)
            .is_some_and(|global| global.value == ValueType::I32);
        if pointer && (name == "__stack_pointer" || stack_pointer.is_none()) {
            stack_pointer = Some(machine.coroutine_globals().len());
        }
        match machine.resolve(instance, ExportKind::Global(index)) {
            Extern::Global(global) => machine.add_coroutine_global(global),
            _ => unreachable!("a global resolves to a global"),
        }
    }
    Ok(stack_pointer)
}

/// Whether a module reads its input as a stream and no other way: then nothing of it is dropped
/// before the first read.
pub(crate) fn reads_stream_only(module: &Module) -> bool {
    imports_any(module, &[HostOperation::FdRead]) && !imports_any(module, &[HostOperation::Input])
}

/// Whether a session of the module can call or be called; others have no table of replies.
fn takes_part_in_calls(module: &Module) -> bool {
    use HostOperation::{Accept, Call, Reply, Serve};
    imports_any(module, &[Call, Accept, Reply, Serve])
}

/// Whether coroutines of the module can park, be unparked or wait for a session.
pub(crate) fn can_park_or_watch(module: &Module) -> bool {
    use HostOperation::{Park, SessionWait, Unpark};
    imports_any(module, &[Park, Unpark, SessionWait])
}

pub(super) fn imports_any(module: &Module, operations: &[HostOperation]) -> bool {
    module.imports().iter().any(|import| {
        let found = HostOperation::find(&import.module, &import.name);
        found.is_some_and(|operation| operations.contains(&operation))
    })
}

/// Whether code of this module could keep a shadow stack at all: it has a mutable global of 32
/// bits.
fn has_shadow_stack(module: &Module) -> bool {
    module.globals().iter().any(|global| global.mutable && global.value == ValueType::I32)
}
