//! The cost of a coroutine: to suspend at a host call and resume, and in memory.
//!
//! All engines run the same guest: it calls a host function with a number and adds up the results,
//! forever.

use crate::clock::{self, Nanoseconds};
use std::fs;
use std::sync::Arc;
use wasmi::{TypedResumableCall, Val};
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
use wavelock_module::{FunctionType, Limits, Module, ValueType};

const GUEST: &str = r#"(module
  (import "host" "yield" (func $yield (param i32) (result i32)))
  (func (export "run") (param $n i32) (result i32)
    (loop $again
      (local.set $n (i32.add (local.get $n) (call $yield (local.get $n))))
      (br $again))
    (unreachable)))"#;

/// Cycles of each run of a coroutine: enough to reach its next host call.
const SLICE: Cycles = Cycles(10_000);

/// Runs every coroutine once; returns the CPU time of one suspend and resume.
pub type Round = Box<dyn FnMut(u64) -> Result<f64, String>>;

/// Suspended coroutines of ours, and their session.
struct Ours {
    session: Session,
    coroutines: Vec<Coroutine>,
}

impl Ours {
    /// Starts `count` coroutines and runs each to its first host call.
    fn new(count: usize) -> Result<Self, String> {
        let bytes = wat::parse_str(GUEST).map_err(|error| error.to_string())?;
        let module = Module::new(&bytes, &Limits::default()).map_err(|error| error.to_string())?;
        let mut session = Session::new(SessionLimits::default());
        let kind = FunctionType::new(&[ValueType::I32], &[ValueType::I32]);
        let host =
            session.add_host_function(1, &kind, Cycles(1)).map_err(|error| format!("{error:?}"))?;
        let instance = session
            .instantiate(Arc::new(module), &[Extern::Function(host)])
            .map_err(|error| format!("{error:?}"))?;
        let Some(Extern::Function(function)) = session.export(instance, "run") else {
            return Err("no export `run`".into());
        };
        let mut coroutines = Vec::with_capacity(count);
        for number in 0..count {
            let mut coroutine = Coroutine::start(&session, function, &[number as u64])
                .map_err(|error| format!("{error:?}"))?;
            let Stop::Host(_) = run(&mut session, &mut coroutine, SLICE) else {
                return Err("no host call".into());
            };
            coroutines.push(coroutine);
        }
        Ok(Self { session, coroutines })
    }
}

/// Our machine, `count` coroutines in turn.
pub fn ours(count: usize) -> Result<Round, String> {
    let Ours { mut session, mut coroutines } = Ours::new(count)?;
    Ok(Box::new(move |rounds| {
        let (answer, Nanoseconds(time)) = clock::time(|| {
            for _ in 0..rounds {
                for coroutine in &mut coroutines {
                    let answer = coroutine.host_arguments()[0] & 7;
                    coroutine.resume(&[answer]);
                    let Stop::Host(_) = run(&mut session, coroutine, SLICE) else {
                        return Err("no host call".to_string());
                    };
                }
            }
            Ok(())
        });
        answer?;
        Ok(time as f64 / (rounds * count as u64) as f64)
    }))
}

/// The error that a host function of wasmi returns to suspend a resumable call.
#[derive(Debug)]
struct Suspend(i32);

impl std::fmt::Display for Suspend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "suspended at {}", self.0)
    }
}

impl wasmi::errors::HostError for Suspend {}

/// wasmi with fuel, `count` resumable calls in turn.
pub fn wasmi(count: usize) -> Result<Round, String> {
    let bytes = wat::parse_str(GUEST).map_err(|error| error.to_string())?;
    let mut config = wasmi::Config::default();
    config.consume_fuel(true).compilation_mode(wasmi::CompilationMode::Eager);
    let engine = wasmi::Engine::new(&config);
    let module = wasmi::Module::new(&engine, &bytes).map_err(|error| error.to_string())?;
    let mut store = wasmi::Store::new(&engine, ());
    store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
    let mut linker = wasmi::Linker::new(&engine);
    let suspend = |n: i32| -> Result<i32, wasmi::Error> { Err(wasmi::Error::host(Suspend(n))) };
    linker.func_wrap("host", "yield", suspend).map_err(|error| error.to_string())?;
    let instance =
        linker.instantiate_and_start(&mut store, &module).map_err(|error| error.to_string())?;
    let function =
        instance.get_typed_func::<i32, i32>(&store, "run").map_err(|error| error.to_string())?;
    let mut calls = Vec::with_capacity(count);
    for number in 0..count {
        let call = function
            .call_resumable(&mut store, number as i32)
            .map_err(|error| error.to_string())?;
        let TypedResumableCall::HostTrap(call) = call else { return Err("no host call".into()) };
        calls.push(Some(call));
    }
    Ok(Box::new(move |rounds| {
        store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
        let (answer, Nanoseconds(time)) = clock::time(|| {
            for _ in 0..rounds {
                for place in &mut calls {
                    let call = place.take().ok_or("a call was lost")?;
                    let answer =
                        call.host_error().downcast_ref::<Suspend>().ok_or("no host call")?.0 & 7;
                    let call = call
                        .resume(&mut store, &[Val::I32(answer)])
                        .map_err(|error| error.to_string())?;
                    let TypedResumableCall::HostTrap(call) = call else {
                        return Err("no host call".to_string());
                    };
                    *place = Some(call);
                }
            }
            Ok(())
        });
        answer?;
        Ok(time as f64 / (rounds * count as u64) as f64)
    }))
}

/// Resident bytes per coroutine, of `count` coroutines suspended in a host call.
pub fn idle_bytes(count: usize) -> Result<f64, String> {
    drop(Ours::new(1)?);
    let before = resident_bytes()?;
    let coroutines = Ours::new(count)?;
    let after = resident_bytes()?;
    Ok(after.saturating_sub(before) as f64 / coroutines.coroutines.len() as f64)
}

fn resident_bytes() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kibibytes: u64 =
        line.trim().trim_end_matches(" kB").parse().map_err(|error| format!("VmRSS: {error}"))?;
    Ok(kibibytes * 1024)
}
