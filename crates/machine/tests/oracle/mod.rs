//! Runs a generated program on `wasmi`, as an independent oracle.
//!
//! Elsewhere: the program and its outcome (`generate`), this machine (`observe`).

use crate::generate::{Ended, Observed, Program, Trap, answer};
use wasmi::errors::{ErrorKind, InstantiationError};
use wasmi::{
    Caller, Config, Engine, Error, Instance, Linker, Module, Nullable, Store, TrapCode, Val,
    ValType,
};

/// The outcome of each sequence of a program on `wasmi`.
pub(crate) fn observe(program: &Program) -> Result<Vec<Observed>, String> {
    let mut config = Config::default();
    config.set_max_recursion_depth(100_000).set_max_stack_height(64 << 20);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, &program.bytes)
        .map_err(|error| format!("wasmi refuses the module: {error}"))?;
    let mut linker = Linker::<()>::new(&engine);
    define_host(&mut linker)
        .map_err(|error| format!("wasmi refuses the host functions: {error}"))?;
    program
        .sequences
        .iter()
        .map(|calls| sequence(program, calls, &engine, &module, &linker))
        .collect()
}

fn define_host(linker: &mut Linker<()>) -> Result<(), wasmi::errors::LinkerError> {
    linker.func_wrap("host", "nothing", |_: Caller<'_, ()>| {})?;
    linker.func_wrap("host", "mix", |_: Caller<'_, ()>, first: i32, second: i64| {
        answer(1, &[u64::from(first.cast_unsigned()), second.cast_unsigned()])[0].cast_signed()
    })?;
    linker.func_wrap("host", "pair", |_: Caller<'_, ()>, value: f64| {
        let words = answer(2, &[value.to_bits()]);
        (words[0] as i32, f64::from_bits(words[1]))
    })?;
    Ok(())
}

fn sequence(
    program: &Program,
    calls: &[(crate::generate::Export, Vec<u64>)],
    engine: &Engine,
    module: &Module,
    linker: &Linker<()>,
) -> Result<Observed, String> {
    let mut store = Store::new(engine, ());
    let mut observed = Observed::default();
    let instance = match linker.instantiate_and_start(&mut store, module) {
        Ok(instance) => instance,
        Err(error) => {
            observed.ends.push(Ended::Trapped(trap(&error)?));
            return Ok(observed);
        }
    };
    observed.ends.push(Ended::Returned(Vec::new()));
    for (export, arguments) in calls {
        let function = instance.get_func(&store, &export.name).ok_or("an export is missing")?;
        let kind = function.ty(&store);
        let inputs: Vec<Val> =
            kind.params().iter().zip(arguments).map(|(kind, word)| value(*kind, *word)).collect();
        let mut outputs: Vec<Val> =
            kind.results().iter().map(|kind| Val::default_for_ty(*kind)).collect();
        let end = match function.call(&mut store, &inputs, &mut outputs) {
            Ok(()) => Ended::Returned(outputs.iter().map(word).collect()),
            Err(error) => Ended::Trapped(trap(&error)?),
        };
        observed.ends.push(end);
    }
    finish(program, &instance, &store, &mut observed)?;
    Ok(observed)
}

fn finish(
    program: &Program,
    instance: &Instance,
    store: &Store<()>,
    observed: &mut Observed,
) -> Result<(), String> {
    for (name, _) in &program.globals {
        let global = instance.get_global(store, name).ok_or("a global is missing")?;
        observed.globals.push(word(&global.get(store)));
    }
    for name in &program.memories {
        let memory = instance.get_memory(store, name).ok_or("a memory is missing")?;
        observed.memories.push(memory.data(store).to_vec());
    }
    for name in &program.tables {
        let table = instance.get_table(store, name).ok_or("a table is missing")?;
        let nulls = (0..table.size(store))
            .map(|index| table.get(store, index).is_none_or(|element| element.is_null()));
        observed.tables.push(nulls.collect());
    }
    Ok(())
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

fn trap(error: &Error) -> Result<Trap, String> {
    if let ErrorKind::Instantiation(InstantiationError::ElementSegmentDoesNotFit { .. }) =
        error.kind()
    {
        return Ok(Trap::Table);
    }
    let code = error.as_trap_code();
    Ok(match code {
        Some(TrapCode::UnreachableCodeReached) => Trap::Unreachable,
        Some(TrapCode::MemoryOutOfBounds) => Trap::Memory,
        Some(TrapCode::TableOutOfBounds) => Trap::Table,
        Some(TrapCode::IndirectCallToNull) => Trap::Null,
        Some(TrapCode::BadSignature) => Trap::Signature,
        Some(TrapCode::IntegerDivisionByZero) => Trap::Division,
        Some(TrapCode::IntegerOverflow) => Trap::Overflow,
        Some(TrapCode::BadConversionToInteger) => Trap::Conversion,
        Some(TrapCode::StackOverflow) => Trap::Stack,
        _ => return Err(format!("wasmi failed in a way that is no trap: {error} ({error:?})")),
    })
}
