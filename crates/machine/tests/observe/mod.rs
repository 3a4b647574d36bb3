//! Runs a generated program on this machine, with any driver.
//!
//! Elsewhere: the program and its outcome (`generate`), the drivers (`drive`).

use crate::drive::Driver;
use crate::generate::{Ended, Export, Observed, Program, Trap, answer};
use std::sync::Arc;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_machine::{
    Coroutine, Digest, Extern, FunctionAddress, InstanceId, LinkError, Session, SessionLimits,
    Stop, session_digest,
};
use wavelock_module::{FunctionType, Limits, Module, ValueType};

/// Limits that every generated program fits.
pub(crate) const LIMITS: SessionLimits = SessionLimits {
    stack_bytes: 16 << 20,
    memory_pages: 16,
    table_elements: 1024,
    instances: 1,
    session_stack_bytes: 1 << 30,
};

/// The outcome and cost of one sequence: the same for every driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// The part that an oracle has too.
    pub(crate) observed: Observed,
    /// Cycles of each call.
    pub(crate) cycles: Vec<Cycles>,
    /// The session's digest after the last.
    pub(crate) digest: Digest,
}

/// Runs each sequence of a program in a session of its own.
pub(crate) fn observe(program: &Program, driver: &mut dyn Driver) -> Result<Vec<Shown>, String> {
    let module = Module::new(&program.bytes, &Limits::default())
        .map_err(|error| format!("the machine refuses the module: {error}"))?;
    let module = Arc::new(module);
    program.sequences.iter().map(|calls| sequence(program, calls, &module, driver)).collect()
}

/// A session with the host functions that programs may import, and an instance of the module if it
/// could be made.
pub(crate) fn instantiate(
    module: &Arc<Module>,
) -> Result<(Session, Result<InstanceId, FaultCode>), String> {
    use ValueType::{F64, I32, I64};
    let mut session = Session::new(LIMITS);
    let kinds = [
        FunctionType::new(&[], &[]),
        FunctionType::new(&[I32, I64], &[I64]),
        FunctionType::new(&[F64], &[I32, F64]),
    ];
    let mut hosts = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        hosts.push(
            session
                .add_host_function(number as u16, kind, Cycles(10))
                .map_err(|error| error.to_string())?,
        );
    }
    let mut imports = Vec::new();
    for import in module.imports() {
        let number = ["nothing", "mix", "pair"]
            .iter()
            .position(|name| *name == import.name)
            .ok_or("an unknown import")?;
        imports.push(Extern::Function(hosts[number]));
    }
    match session.instantiate(Arc::clone(module), &imports) {
        Ok(instance) => Ok((session, Ok(instance))),
        Err(LinkError::Segment { code, .. }) => Ok((session, Err(code))),
        Err(error) => Err(format!("the machine does not link the module: {error}")),
    }
}

fn sequence(
    program: &Program,
    calls: &[(Export, Vec<u64>)],
    module: &Arc<Module>,
    driver: &mut dyn Driver,
) -> Result<Shown, String> {
    let (mut session, instance) = instantiate(module)?;
    let mut shown = Shown {
        observed: Observed::default(),
        cycles: Vec::new(),
        digest: session_digest(&mut session),
    };
    let instance = match instance {
        Ok(instance) => instance,
        Err(code) => {
            shown.observed.ends.push(Ended::Trapped(trap(code)?));
            return Ok(shown);
        }
    };
    let start = match session.start_function(instance) {
        Some(start) => call(&mut session, start, &[], module, driver, &mut shown.cycles)?,
        None => Ended::Returned(Vec::new()),
    };
    let started = matches!(start, Ended::Returned(_));
    shown.observed.ends.push(start);
    if started {
        for (export, arguments) in calls {
            let Some(Extern::Function(function)) = session.export(instance, &export.name) else {
                return Err(format!("export {} is missing", export.name));
            };
            shown.observed.ends.push(call(
                &mut session,
                function,
                arguments,
                module,
                driver,
                &mut shown.cycles,
            )?);
        }
        finish(program, &session, instance, &mut shown.observed)?;
    }
    shown.digest = session_digest(&mut session);
    Ok(shown)
}

fn call(
    session: &mut Session,
    function: FunctionAddress,
    arguments: &[u64],
    module: &Arc<Module>,
    driver: &mut dyn Driver,
    cycles: &mut Vec<Cycles>,
) -> Result<Ended, String> {
    let kinds = session.function_type(function).results().to_vec();
    let mut coroutine = Coroutine::start(session, function, arguments)
        .map_err(|error| format!("not started: {error:?}"))?;
    let end = loop {
        match driver.run(session, &mut coroutine, std::slice::from_ref(module)) {
            Stop::OutOfCycles { .. } => return Err("the program did not end".to_string()),
            Stop::Host(host) => {
                let results = answer(usize::from(host.number), coroutine.host_arguments());
                coroutine.resume(&results);
            }
            Stop::Fault(fault) => break Ended::Trapped(trap(fault.code)?),
            Stop::Finished => {
                let words = kinds.iter().zip(coroutine.results());
                break Ended::Returned(words.map(|(kind, word)| show(*kind, *word)).collect());
            }
        }
    };
    cycles.push(coroutine.used());
    Ok(end)
}

fn show(kind: ValueType, word: u64) -> u64 {
    if kind.is_reference() { u64::from(word != 0) } else { word }
}

fn finish(
    program: &Program,
    session: &Session,
    instance: InstanceId,
    observed: &mut Observed,
) -> Result<(), String> {
    for (name, _) in &program.globals {
        let Some(Extern::Global(global)) = session.export(instance, name) else {
            return Err(format!("global {name} is missing"));
        };
        observed.globals.push(show(session.global_type(global).value, session.global(global)));
    }
    for name in &program.memories {
        let Some(Extern::Memory(memory)) = session.export(instance, name) else {
            return Err(format!("memory {name} is missing"));
        };
        observed.memories.push(session.memory(memory).bytes().to_vec());
    }
    for name in &program.tables {
        let Some(Extern::Table(table)) = session.export(instance, name) else {
            return Err(format!("table {name} is missing"));
        };
        observed
            .tables
            .push(session.table(table).elements().iter().map(|element| *element == 0).collect());
    }
    Ok(())
}

fn trap(code: FaultCode) -> Result<Trap, String> {
    Ok(match code {
        FaultCode::Unreachable => Trap::Unreachable,
        FaultCode::MemoryOutOfBounds => Trap::Memory,
        FaultCode::TableOutOfBounds | FaultCode::UndefinedElement => Trap::Table,
        FaultCode::UninitializedElement => Trap::Null,
        FaultCode::IndirectCallTypeMismatch => Trap::Signature,
        FaultCode::IntegerDivideByZero => Trap::Division,
        FaultCode::IntegerOverflow => Trap::Overflow,
        FaultCode::InvalidConversion => Trap::Conversion,
        FaultCode::StackExhausted => Trap::Stack,
        other => return Err(format!("a fault that no program should reach: {}", other.text())),
    })
}
