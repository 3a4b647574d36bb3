//! The compared engines behind one interface: run a kernel at a size and return the result.
//!
//! A kernel is loaded, compiled and instantiated once, and the instance is used for all its runs.
//! Fuel is refilled before each run. Lua runs in its own process and reads its own CPU clock.
//! Elsewhere: the clock of the others (`main`).

use crate::clock::Nanoseconds;
use crate::kernels::{self, Kernel};
use std::process::Command;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
use wavelock_module::{Limits, Module};

/// A kernel prepared on an engine: from size to result, and the time if the engine measured it in
/// another process.
pub type Prepared = Box<dyn FnMut(i32) -> Result<(i32, Option<Nanoseconds>), String>>;

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// `wavelock-machine`: metering is always on.
    Ours,
    /// wasmi with fuel: the reference for the comparison.
    WasmiFuel,
    /// wasmi without fuel.
    Wasmi,
    /// `wavelock-compiled`, the same machine with native code.
    #[cfg(feature = "jit")]
    Compiled,
    /// wasmtime with fuel.
    #[cfg(feature = "jit")]
    WasmtimeFuel,
    /// PUC Lua 5.4: the same algorithms in `kernels.lua`.
    Lua,
}

impl Engine {
    /// Every engine, in the table's order.
    pub const ALL: &[Engine] = &[
        Engine::Ours,
        Engine::WasmiFuel,
        Engine::Wasmi,
        #[cfg(feature = "jit")]
        Engine::Compiled,
        #[cfg(feature = "jit")]
        Engine::WasmtimeFuel,
        Engine::Lua,
    ];

    /// Its name on the command line and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Ours => "ours",
            Engine::WasmiFuel => "wasmi-fuel",
            Engine::Wasmi => "wasmi",
            #[cfg(feature = "jit")]
            Engine::Compiled => "compiled",
            #[cfg(feature = "jit")]
            Engine::WasmtimeFuel => "wasmtime-fuel",
            Engine::Lua => "lua",
        }
    }

    /// Prepares a kernel; `None` if this engine is not installed or does not support it.
    pub fn prepare(self, kernel: &Kernel) -> Result<Option<Prepared>, String> {
        match self {
            Engine::Ours => ours(kernel).map(Some),
            Engine::WasmiFuel => wasmi(kernel, true).map(Some),
            Engine::Wasmi => wasmi(kernel, false).map(Some),
            #[cfg(feature = "jit")]
            Engine::Compiled => compiled(kernel).map(Some),
            #[cfg(feature = "jit")]
            Engine::WasmtimeFuel => wasmtime(kernel).map(Some),
            Engine::Lua => Ok(lua(kernel)),
        }
    }
}

fn ours(kernel: &Kernel) -> Result<Prepared, String> {
    let module =
        Module::new(&kernel.bytes, &Limits::default()).map_err(|error| error.to_string())?;
    on_our_machine(&Arc::new(module), run)
}

#[cfg(feature = "jit")]
fn compiled(kernel: &Kernel) -> Result<Prepared, String> {
    use wavelock_compiled::{CompiledModule, CompiledTier, Options};
    let module =
        Module::new(&kernel.bytes, &Limits::default()).map_err(|error| error.to_string())?;
    let module = Arc::new(module);
    let (code, time) = crate::clock::time(|| CompiledModule::new(&module, &Options::default()));
    let code = code.map_err(|error| error.to_string())?;
    eprintln!(
        "{}: {} bytes of WebAssembly, {} of machine code in {:.2} ms, {:?}",
        kernel.name,
        kernel.bytes.len(),
        code.code_bytes(),
        time.0 as f64 / 1e6,
        code.counts()
    );
    let mut tier = CompiledTier::default();
    tier.add(Arc::new(code));
    on_our_machine(&module, move |session, coroutine, cycles| {
        wavelock_machine::run_tiered(session, coroutine, cycles, &mut tier)
    })
}

fn on_our_machine(
    module: &Arc<Module>,
    mut run: impl FnMut(&mut Session, &mut Coroutine, Cycles) -> Stop + 'static,
) -> Result<Prepared, String> {
    let mut session = Session::new(SessionLimits::default());
    let instance =
        session.instantiate(Arc::clone(module), &[]).map_err(|error| format!("{error:?}"))?;
    let Some(Extern::Function(function)) = session.export(instance, "run") else {
        return Err("no export `run`".into());
    };
    Ok(Box::new(move |n| {
        let mut coroutine = Coroutine::start(&session, function, &[u64::from(n as u32)])
            .map_err(|error| format!("{error:?}"))?;
        let stop = run(&mut session, &mut coroutine, Cycles(u64::MAX));
        match (stop, coroutine.results()) {
            (Stop::Finished, &[result]) => Ok((result as i32, None)),
            _ => Err(format!("stopped by {stop:?}")),
        }
    }))
}

fn wasmi(kernel: &Kernel, fuel: bool) -> Result<Prepared, String> {
    let mut config = wasmi::Config::default();
    config.consume_fuel(fuel).compilation_mode(wasmi::CompilationMode::Eager);
    let engine = wasmi::Engine::new(&config);
    let module = wasmi::Module::new(&engine, &kernel.bytes).map_err(|error| error.to_string())?;
    let mut store = wasmi::Store::new(&engine, ());
    if fuel {
        store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
    }
    let instance = wasmi::Linker::new(&engine)
        .instantiate_and_start(&mut store, &module)
        .map_err(|error| error.to_string())?;
    let function =
        instance.get_typed_func::<i32, i32>(&store, "run").map_err(|error| error.to_string())?;
    Ok(Box::new(move |n| {
        if fuel {
            store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
        }
        Ok((function.call(&mut store, n).map_err(|error| error.to_string())?, None))
    }))
}

#[cfg(feature = "jit")]
fn wasmtime(kernel: &Kernel) -> Result<Prepared, String> {
    let mut config = wasmtime::Config::new();
    config.consume_fuel(true);
    let engine = wasmtime::Engine::new(&config).map_err(|error| error.to_string())?;
    let module =
        wasmtime::Module::new(&engine, &kernel.bytes).map_err(|error| error.to_string())?;
    let mut store = wasmtime::Store::new(&engine, ());
    store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
    let instance =
        wasmtime::Instance::new(&mut store, &module, &[]).map_err(|error| error.to_string())?;
    let function = instance
        .get_typed_func::<i32, i32>(&mut store, "run")
        .map_err(|error| error.to_string())?;
    Ok(Box::new(move |n| {
        store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
        Ok((function.call(&mut store, n).map_err(|error| error.to_string())?, None))
    }))
}

/// `kernels.lua` reads its arguments from `arg`, prints the result, and is followed by the CPU time
/// it took, in nanoseconds.
const LUA: &str = "local name, n, file = ... ; arg = { name, n }
local start = os.clock() ; dofile(file) ; print(math.floor((os.clock() - start) * 1e9))";

fn lua(kernel: &Kernel) -> Option<Prepared> {
    let file = kernels::folder().join("kernels.lua");
    let name = kernel.name.clone();
    let run = move |n: i32| -> Result<(i32, Option<Nanoseconds>), String> {
        let script = format!("load([==[{LUA}]==])('{name}', '{n}', [==[{}]==])", file.display());
        let output = Command::new("lua5.4")
            .args(["-e", &script])
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.lines().map(str::parse::<i64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(result)), Some(Ok(time))) => {
                Ok((result as i32, Some(Nanoseconds(time as u64))))
            }
            _ => Err(format!("lua5.4: {}", String::from_utf8_lossy(&output.stderr))),
        }
    };
    // A missing engine or kernel is allowed (no `lua5.4`, or no Lua version of the kernel); a wrong
    // result is detected by the caller.
    run(kernel.check.0).is_ok().then_some(Box::new(run))
}
