//! Runs a generated program on `wasmtime` with Cranelift, with NaN canonicalization as on our
//! machine, and compares.
//!
//! Elsewhere: the program and what is compared (`generate`), and this machine's side (`observe`).

use crate::drive::Whole;
use crate::generate::{Ended, Export, Observed, Program, Trap, answer, from_material};
use std::sync::OnceLock;
use wasmtime::{Caller, Config, Engine, Error, Instance, Linker, Module, Ref, Store, Val, ValType};

/// One engine per process: settings and a code cache.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .cranelift_nan_canonicalization(true)
            .max_wasm_stack(1 << 20)
            .wasm_backtrace_max_frames(None);
        Engine::new(&config).expect("these settings are compatible")
    })
}

/// Execution: a program generated from these bytes gives the same result here and on wasmtime.
pub fn differential(material: &[u8]) {
    let Some(program) = from_material(material) else { return };
    let ours =
        crate::observe::observe(&program, &mut Whole).unwrap_or_else(|error| panic!("{error}"));
    let theirs = observe(&program).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ours.len(), theirs.len());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours.observed.ends, theirs.ends, "sequence {number}: ours, then wasmtime's");
        assert_eq!(ours.observed.globals, theirs.globals, "sequence {number}: exported globals");
        assert_eq!(
            ours.observed.tables, theirs.tables,
            "sequence {number}: null elements of exported tables"
        );
        assert!(
            ours.observed.memories == theirs.memories,
            "sequence {number}: exported memories differ"
        );
    }
}

/// The result on `wasmtime` of each call sequence of a program.
fn observe(program: &Program) -> Result<Vec<Observed>, String> {
    let engine = engine();
    let module = Module::new(engine, &program.bytes)
        .map_err(|error| format!("wasmtime refuses the module: {error}"))?;
    let mut linker = Linker::<()>::new(engine);
    define_host(&mut linker)
        .map_err(|error| format!("wasmtime refuses the host functions: {error}"))?;
    program
        .sequences
        .iter()
        .map(|calls| sequence(program, calls, engine, &module, &linker))
        .collect()
}

fn define_host(linker: &mut Linker<()>) -> Result<(), Error> {
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
    calls: &[(Export, Vec<u64>)],
    engine: &Engine,
    module: &Module,
    linker: &Linker<()>,
) -> Result<Observed, String> {
    let mut store = Store::new(engine, ());
    let mut observed = Observed::default();
    let instance = match linker.instantiate(&mut store, module) {
        Ok(instance) => instance,
        Err(error) => {
            observed.ends.push(Ended::Trapped(trap(&error)?));
            return Ok(observed);
        }
    };
    observed.ends.push(Ended::Returned(Vec::new()));
    for (export, arguments) in calls {
        let function = instance.get_func(&mut store, &export.name).ok_or("an export is missing")?;
        let kind = function.ty(&store);
        let inputs: Vec<Val> =
            kind.params().zip(arguments).map(|(kind, word)| value(&kind, *word)).collect();
        let mut outputs: Vec<Val> = kind.results().map(|_| Val::I32(0)).collect();
        let end = match function.call(&mut store, &inputs, &mut outputs) {
            Ok(()) => Ended::Returned(outputs.iter().map(word).collect()),
            Err(error) => Ended::Trapped(trap(&error)?),
        };
        observed.ends.push(end);
    }
    finish(program, &instance, &mut store, &mut observed)?;
    Ok(observed)
}

fn finish(
    program: &Program,
    instance: &Instance,
    store: &mut Store<()>,
    observed: &mut Observed,
) -> Result<(), String> {
    for (name, _) in &program.globals {
        let global = instance.get_global(&mut *store, name).ok_or("a global is missing")?;
        observed.globals.push(word(&global.get(&mut *store)));
    }
    for name in &program.memories {
        let memory = instance.get_memory(&mut *store, name).ok_or("a memory is missing")?;
        observed.memories.push(memory.data(&*store).to_vec());
    }
    for name in &program.tables {
        let table = instance.get_table(&mut *store, name).ok_or("a table is missing")?;
        let size = table.size(&*store);
        let nulls = (0..size)
            .map(|index| table.get(&mut *store, index).is_none_or(|element| is_null(&element)));
        observed.tables.push(nulls.collect());
    }
    Ok(())
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

fn trap(error: &Error) -> Result<Trap, String> {
    use wasmtime::Trap as Code;
    Ok(match error.downcast_ref::<Code>() {
        Some(Code::UnreachableCodeReached) => Trap::Unreachable,
        Some(Code::MemoryOutOfBounds) => Trap::Memory,
        Some(Code::TableOutOfBounds) => Trap::Table,
        Some(Code::IndirectCallToNull) => Trap::Null,
        Some(Code::BadSignature) => Trap::Signature,
        Some(Code::IntegerDivisionByZero) => Trap::Division,
        Some(Code::IntegerOverflow) => Trap::Overflow,
        Some(Code::BadConversionToInteger) => Trap::Conversion,
        Some(Code::StackOverflow) => Trap::Stack,
        _ => return Err(format!("wasmtime failed with another error than a trap: {error:?}")),
    })
}
