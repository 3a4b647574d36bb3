//! The same case on wasmi and on wasmtime, each with the small WASI of `wasi`.

use crate::program_case::{Case, Shown};
use crate::wasi::{Answer, Wasi};
use std::fmt;

/// Ends a program from inside a call.
#[derive(Debug)]
struct Ended(i32);

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "exit {}", self.0)
    }
}

impl std::error::Error for Ended {}
impl wasmi::errors::HostError for Ended {}

/// A pointer outside the memory, or no memory at all.
const BAD_POINTER: &str = "a pointer leaves the memory";

/// Runs a case on wasmi.
pub fn wasmi(case: &Case, bytes: &[u8], stdin: &[u8]) -> Result<Shown, String> {
    let text = |error: wasmi::Error| error.to_string();
    let engine = wasmi::Engine::default();
    let module = wasmi::Module::new(&engine, bytes).map_err(text)?;
    let mut store = wasmi::Store::new(&engine, Wasi::new(&case.args, &case.env, stdin));
    let mut linker = wasmi::Linker::new(&engine);
    for import in module.imports() {
        let wasmi::ExternType::Func(kind) = import.ty() else {
            return Err(format!("imports {}", import.name()));
        };
        let name = import.name().to_owned();
        let function =
            wasmi::Func::new(&mut store, kind.clone(), move |mut caller, parameters, results| {
                let arguments: Vec<u64> = parameters
                    .iter()
                    .map(|value| {
                        value.i64().map_or_else(
                            || value.i32().unwrap_or(0) as u32 as u64,
                            |value| value as u64,
                        )
                    })
                    .collect();
                let memory = caller
                    .get_export("memory")
                    .and_then(wasmi::Extern::into_memory)
                    .ok_or_else(|| wasmi::Error::new(BAD_POINTER))?;
                let (memory, wasi) = memory.data_and_store_mut(&mut caller);
                match (wasi.call(&name, memory, &arguments), results) {
                    (Answer::Code(code), [result]) => *result = wasmi::Val::I32(code),
                    (Answer::Code(_), _) => {}
                    (Answer::Exit(code), _) => return Err(wasmi::Error::host(Ended(code))),
                    (Answer::BadPointer, _) => return Err(wasmi::Error::new(BAD_POINTER)),
                }
                Ok(())
            });
        linker
            .define(import.module(), import.name(), function)
            .map_err(|error| error.to_string())?;
    }
    let instance = linker.instantiate_and_start(&mut store, &module).map_err(text)?;
    let start = instance.get_typed_func::<(), ()>(&store, "_start").map_err(text)?;
    let exit = match start.call(&mut store, ()) {
        Ok(()) => 0,
        Err(error) => error.downcast_ref::<Ended>().ok_or_else(|| error.to_string())?.0,
    };
    Ok(Shown { stdout: std::mem::take(&mut store.data_mut().stdout), exit })
}

/// The engine that every case on wasmtime uses: compiled code for this host, in as little time as
/// possible.
pub fn compiler() -> wasmtime::Engine {
    let mut config = wasmtime::Config::new();
    config.cranelift_opt_level(wasmtime::OptLevel::None).max_wasm_stack(3 << 19);
    wasmtime::Engine::new(&config).expect("the compiler is there")
}

/// Runs a case on wasmtime.
pub fn wasmtime(
    engine: &wasmtime::Engine,
    case: &Case,
    bytes: &[u8],
    stdin: &[u8],
) -> Result<Shown, String> {
    let text = |error: wasmtime::Error| format!("{error:?}");
    let module = wasmtime::Module::new(engine, bytes).map_err(text)?;
    let mut store = wasmtime::Store::new(engine, Wasi::new(&case.args, &case.env, stdin));
    let mut linker = wasmtime::Linker::new(engine);
    for import in module.imports() {
        let wasmtime::ExternType::Func(kind) = import.ty() else {
            return Err(format!("imports {}", import.name()));
        };
        let name = import.name().to_owned();
        let function = wasmtime::Func::new(
            &mut store,
            kind,
            move |mut caller: wasmtime::Caller<'_, Wasi>, parameters, results| {
                let arguments: Vec<u64> = parameters
                    .iter()
                    .map(|value| {
                        value.i64().map_or_else(
                            || value.i32().unwrap_or(0) as u32 as u64,
                            |value| value as u64,
                        )
                    })
                    .collect();
                let memory = caller.get_export("memory").and_then(wasmtime::Extern::into_memory);
                let memory = memory.ok_or_else(|| wasmtime::Error::msg(BAD_POINTER))?;
                let (memory, wasi) = memory.data_and_store_mut(&mut caller);
                match (wasi.call(&name, memory, &arguments), results) {
                    (Answer::Code(code), [result]) => *result = wasmtime::Val::I32(code),
                    (Answer::Code(_), _) => {}
                    (Answer::Exit(code), _) => return Err(wasmtime::Error::new(Ended(code))),
                    (Answer::BadPointer, _) => return Err(wasmtime::Error::msg(BAD_POINTER)),
                }
                Ok(())
            },
        );
        linker.define(&store, import.module(), import.name(), function).map_err(text)?;
    }
    let instance = linker.instantiate(&mut store, &module).map_err(text)?;
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start").map_err(text)?;
    let exit = match start.call(&mut store, ()) {
        Ok(()) => 0,
        Err(error) => error
            .downcast_ref::<Ended>()
            .map(|ended| ended.0)
            .ok_or_else(|| format!("{error:?}"))?,
    };
    Ok(Shown { stdout: std::mem::take(&mut store.data_mut().stdout), exit })
}
