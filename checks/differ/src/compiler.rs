//! The first oracle: `wasmtime` with Cranelift, with NaN canonicalization as on our machine.
//!
//! Elsewhere: the other oracle (`interpreter`), our machine's side (`ours`), what is compared
//! (`program`).

use crate::host::Asked;
use crate::program::{
    Ended, IMPORTED_GLOBAL, MEMORY_PAGES, Observed, Plan, Program, TABLE_ELEMENTS, Trap,
};
use std::fmt;
use std::sync::OnceLock;
use wasmtime::{
    Caller, Config, Engine, Error, Extern, ExternType, Func, Global, Instance, Memory, Module,
    OptLevel, Ref, Store, StoreLimits, StoreLimitsBuilder, Table, Val, ValType,
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

impl std::error::Error for Exit {}

/// One engine per process, with small memory reservations, because every program gets an instance.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .cranelift_nan_canonicalization(true)
            .cranelift_opt_level(OptLevel::None)
            .consume_fuel(true);
        config.max_wasm_stack(1 << 20).wasm_backtrace_max_frames(None).memory_init_cow(false);
        config
            .memory_reservation(8 << 20)
            .memory_reservation_for_growth(0)
            .generate_address_map(false);
        Engine::new(&config).expect("these settings are compatible")
    })
}

/// The result on `wasmtime`, and the fuel that each call used.
pub(crate) fn observe(program: &Program, plan: &Plan<'_>) -> Result<(Observed, Vec<u64>), String> {
    let engine = engine();
    let module = Module::new(engine, &program.bytes)
        .map_err(|error| format!("wasmtime refuses it: {error}"))?;
    let limits = StoreLimitsBuilder::new().memory_size(MEMORY_PAGES as usize * 65_536);
    let limits = limits.table_elements(TABLE_ELEMENTS as usize).build();
    let mut store =
        Store::new(engine, State { limits, calls: 0, memory: plan.memory.map(str::to_owned) });
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
        let function = instance.get_func(&mut store, &call.export).ok_or("an export is missing")?;
        let kind = function.ty(&store);
        let inputs: Vec<Val> =
            kind.params().zip(&call.arguments).map(|(kind, word)| value(&kind, *word)).collect();
        let mut outputs: Vec<Val> = kind.results().map(|_| Val::I32(0)).collect();
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
    finish(plan, &instance, &mut store, &mut observed);
    Ok((observed, used))
}

fn set_fuel(store: &mut Store<State>, fuel: u64) -> Result<(), String> {
    store.set_fuel(fuel).map_err(|error| error.to_string())
}

fn imports(module: &Module, store: &mut Store<State>) -> Result<Vec<Extern>, String> {
    let mut imports = Vec::new();
    for import in module.imports() {
        let failed = |error: Error| format!("wasmtime does not link it: {error}");
        imports.push(match import.ty() {
            ExternType::Func(kind) => {
                let (module, name) = (import.module().to_owned(), import.name().to_owned());
                let kinds: Vec<ValType> = kind.results().collect();
                Extern::Func(Func::new(&mut *store, kind, move |caller, inputs, outputs| {
                    answer(caller, (&module, &name), inputs, &kinds, outputs)
                }))
            }
            ExternType::Global(kind) => {
                let first = value(kind.content(), IMPORTED_GLOBAL);
                Extern::Global(Global::new(&mut *store, kind, first).map_err(failed)?)
            }
            ExternType::Memory(kind) => {
                Extern::Memory(Memory::new(&mut *store, kind).map_err(failed)?)
            }
            ExternType::Table(kind) => {
                let null = Ref::null(kind.element().heap_type());
                Extern::Table(Table::new(&mut *store, kind, null).map_err(failed)?)
            }
            other => return Err(format!("an import of another kind: {other:?}")),
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
        return Err(Error::new(Exit));
    }
    for ((output, kind), word) in outputs.iter_mut().zip(kinds).zip(&reply.results) {
        *output = value(kind, *word);
    }
    Ok(())
}

fn finish(plan: &Plan<'_>, instance: &Instance, store: &mut Store<State>, observed: &mut Observed) {
    for export in &plan.exports {
        match instance.get_export(&mut *store, export) {
            Some(Extern::Global(global)) => observed.globals.push(word(&global.get(&mut *store))),
            Some(Extern::Memory(memory)) => observed.memories.push(memory.data(&*store).to_vec()),
            Some(Extern::Table(table)) => {
                let size = table.size(&*store);
                let element =
                    |index| table.get(&mut *store, index).is_none_or(|element| is_null(&element));
                observed.tables.push((0..size).map(element).collect());
            }
            _ => {}
        }
    }
}

fn is_null(element: &Ref) -> bool {
    matches!(element, Ref::Func(None) | Ref::Extern(None) | Ref::Any(None))
}

fn value(kind: &ValType, word: u64) -> Val {
    match kind {
        ValType::I32 => Val::I32(word as i32),
        ValType::I64 => Val::I64(word.cast_signed()),
        ValType::F32 => Val::F32(word as u32),
        ValType::F64 => Val::F64(word),
        other if other.matches(&ValType::EXTERNREF) => Val::ExternRef(None),
        _ => Val::FuncRef(None),
    }
}

fn word(value: &Val) -> u64 {
    match value {
        Val::I32(value) => u64::from(value.cast_unsigned()),
        Val::I64(value) => value.cast_unsigned(),
        Val::F32(bits) => u64::from(*bits),
        Val::F64(bits) => *bits,
        Val::FuncRef(None) | Val::ExternRef(None) => 0,
        _ => 1,
    }
}

fn ended(error: &Error) -> Result<Ended, String> {
    use wasmtime::Trap as Code;
    if error.is::<Exit>() {
        return Ok(Ended::Exited);
    }
    Ok(Ended::Trapped(match error.downcast_ref::<Code>() {
        Some(Code::UnreachableCodeReached) => Trap::Unreachable,
        Some(Code::MemoryOutOfBounds) => Trap::Memory,
        Some(Code::TableOutOfBounds) => Trap::Table,
        Some(Code::IndirectCallToNull) => Trap::Null,
        Some(Code::BadSignature) => Trap::Signature,
        Some(Code::IntegerDivisionByZero) => Trap::Division,
        Some(Code::IntegerOverflow) => Trap::Overflow,
        Some(Code::BadConversionToInteger) => Trap::Conversion,
        Some(Code::StackOverflow) => Trap::Stack,
        Some(Code::OutOfFuel) => return Ok(Ended::Exhausted),
        _ => return Err(format!("wasmtime failed in a way that is no trap: {error:?}")),
    }))
}
