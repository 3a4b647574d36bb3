//! The second oracle: `wasmi`, an interpreter.
//!
//! Elsewhere: the first oracle (`compiler`), our machine's side (`ours`), what is compared
//! (`program`).

use crate::host::Asked;
use crate::program::{
    Ended, IMPORTED_GLOBAL, MEMORY_PAGES, Observed, Plan, Program, TABLE_ELEMENTS, Trap,
};
use std::fmt;
use std::sync::OnceLock;
use wasmi::errors::{ErrorKind, HostError, InstantiationError};
use wasmi::{
    Caller, Config, Engine, Error, Extern, ExternType, Func, Global, Instance, Memory, Module,
    Nullable, Ref, Store, StoreLimits, StoreLimitsBuilder, Table, TrapCode, Val, ValType,
};

/// The state of an instance's host functions.
struct State {
    limits: StoreLimits,
    calls: u64,
    /// The name of the memory that host functions read and write.
    memory: Option<String>,
}

/// How a host function that does not return ends a call.
#[derive(Debug)]
struct Exit;

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("exit")
    }
}

impl HostError for Exit {}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::default();
        config.set_max_recursion_depth(20_000).set_max_stack_height(16 << 20).consume_fuel(true);
        Engine::new(&config)
    })
}

/// The result on `wasmi`, and the fuel that each call used.
pub(crate) fn observe(program: &Program, plan: &Plan<'_>) -> Result<(Observed, Vec<u64>), String> {
    let module = Module::new(engine(), &program.bytes)
        .map_err(|error| format!("wasmi refuses it: {error}"))?;
    let limits = StoreLimitsBuilder::new().memory_size(MEMORY_PAGES as usize * 65_536);
    let limits = limits.table_elements(TABLE_ELEMENTS as usize).build();
    let mut store =
        Store::new(engine(), State { limits, calls: 0, memory: plan.memory.map(str::to_owned) });
    store.limiter(|state| &mut state.limits);
    let imports = imports(&module, &mut store)?;
    let (mut observed, mut used) = (Observed::default(), Vec::new());
    set_fuel(&mut store, plan.fuel[0])?;
    let made = Instance::new(&mut store, &module, &imports);
    used.push(plan.fuel[0] - store.get_fuel().unwrap_or(0));
    let instance = match made {
        Ok(instance) => instance,
        Err(error) => {
            observed.ends.push(ended(&error)?);
            return Ok((observed, used));
        }
    };
    observed.ends.push(Ended::Returned(Vec::new()));
    for (call, fuel) in program.calls.iter().zip(&plan.fuel[1..]) {
        let function = instance.get_func(&store, &call.export).ok_or("an export is missing")?;
        let kind = function.ty(&store);
        let inputs = kind.params().iter().zip(&call.arguments);
        let inputs: Vec<Val> = inputs.map(|(kind, word)| value(*kind, *word)).collect();
        let mut outputs: Vec<Val> =
            kind.results().iter().map(|kind| Val::default_for_ty(*kind)).collect();
        set_fuel(&mut store, *fuel)?;
        let end = match function.call(&mut store, &inputs, &mut outputs) {
            Ok(()) => Ended::Returned(outputs.iter().map(word).collect()),
            Err(error) => ended(&error)?,
        };
        used.push(fuel - store.get_fuel().unwrap_or(0));
        let open = end.is_open();
        observed.ends.push(end);
        if open {
            return Ok((observed, used));
        }
    }
    finish(plan, &instance, &store, &mut observed);
    Ok((observed, used))
}

fn set_fuel(store: &mut Store<State>, fuel: u64) -> Result<(), String> {
    store.set_fuel(fuel).map_err(|error| error.to_string())
}

fn imports(module: &Module, store: &mut Store<State>) -> Result<Vec<Extern>, String> {
    let mut imports = Vec::new();
    for import in module.imports() {
        let failed = |error: Error| format!("wasmi does not link it: {error}");
        imports.push(match import.ty() {
            ExternType::Func(kind) => {
                let (module, name) = (import.module().to_owned(), import.name().to_owned());
                let kinds = kind.results().to_vec();
                Extern::Func(Func::new(
                    &mut *store,
                    kind.clone(),
                    move |caller, inputs, outputs| {
                        answer(caller, (&module, &name), inputs, &kinds, outputs)
                    },
                ))
            }
            ExternType::Global(kind) => {
                let first = value(kind.content(), IMPORTED_GLOBAL);
                Extern::Global(Global::new(&mut *store, first, kind.mutability()))
            }
            ExternType::Memory(kind) => {
                Extern::Memory(Memory::new(&mut *store, *kind).map_err(failed)?)
            }
            ExternType::Table(kind) => {
                let null = Ref::default_for_ty(kind.element());
                Extern::Table(Table::new(&mut *store, *kind, null).map_err(failed)?)
            }
        });
    }
    Ok(imports)
}

fn answer(
    mut caller: Caller<'_, State>,
    (module, name): (&str, &str),
    inputs: &[Val],
    kinds: &[ValType],
    outputs: &mut [Val],
) -> Result<(), Error> {
    let arguments: Vec<u64> = inputs.iter().map(word).collect();
    let memory =
        caller.data().memory.clone().and_then(|name| caller.get_export(&name)?.into_memory());
    let before = caller.data().calls;
    caller.data_mut().calls += 1;
    let bytes = memory.map_or(&[][..], |memory| memory.data(&caller));
    let asked =
        Asked { module, name, arguments: &arguments, results: kinds.len(), before, memory: bytes };
    let reply = asked.reply();
    if let Some(memory) = memory {
        for (at, bytes) in &reply.writes {
            let _ = memory.write(&mut caller, *at as usize, bytes);
        }
    }
    if reply.exits {
        return Err(Error::host(Exit));
    }
    for ((output, kind), word) in outputs.iter_mut().zip(kinds).zip(&reply.results) {
        *output = value(*kind, *word);
    }
    Ok(())
}

fn finish(plan: &Plan<'_>, instance: &Instance, store: &Store<State>, observed: &mut Observed) {
    for export in &plan.exports {
        match instance.get_export(store, export) {
            Some(Extern::Global(global)) => observed.globals.push(word(&global.get(store))),
            Some(Extern::Memory(memory)) => observed.memories.push(memory.data(store).to_vec()),
            Some(Extern::Table(table)) => {
                let element =
                    |index| table.get(store, index).is_none_or(|element| element.is_null());
                observed.tables.push((0..table.size(store)).map(element).collect());
            }
            _ => {}
        }
    }
}

fn value(kind: ValType, word: u64) -> Val {
    match kind {
        ValType::I32 => Val::I32(word as i32),
        ValType::I64 => Val::I64(word.cast_signed()),
        ValType::F32 => Val::F32(f32::from_bits(word as u32).into()),
        ValType::F64 => Val::F64(f64::from_bits(word).into()),
        other => Val::default_for_ty(other),
    }
}

fn word(value: &Val) -> u64 {
    match value {
        Val::I32(value) => u64::from(value.cast_unsigned()),
        Val::I64(value) => value.cast_unsigned(),
        Val::F32(value) => u64::from(value.to_bits()),
        Val::F64(value) => value.to_bits(),
        Val::FuncRef(Nullable::Null) | Val::ExternRef(Nullable::Null) => 0,
        _ => 1,
    }
}

fn ended(error: &Error) -> Result<Ended, String> {
    if error.downcast_ref::<Exit>().is_some() {
        return Ok(Ended::Exited);
    }
    if let ErrorKind::Instantiation(InstantiationError::ElementSegmentDoesNotFit { .. }) =
        error.kind()
    {
        return Ok(Ended::Trapped(Trap::Table));
    }
    Ok(Ended::Trapped(match error.as_trap_code() {
        Some(TrapCode::UnreachableCodeReached) => Trap::Unreachable,
        Some(TrapCode::MemoryOutOfBounds) => Trap::Memory,
        Some(TrapCode::TableOutOfBounds) => Trap::Table,
        Some(TrapCode::IndirectCallToNull) => Trap::Null,
        Some(TrapCode::BadSignature) => Trap::Signature,
        Some(TrapCode::IntegerDivisionByZero) => Trap::Division,
        Some(TrapCode::IntegerOverflow) => Trap::Overflow,
        Some(TrapCode::BadConversionToInteger) => Trap::Conversion,
        Some(TrapCode::StackOverflow) => Trap::Stack,
        Some(TrapCode::OutOfFuel) => return Ok(Ended::Exhausted),
        _ => return Err(format!("wasmi failed in a way that is no trap: {error} ({error:?})")),
    }))
}
