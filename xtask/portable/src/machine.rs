//! Cases of `module` and `machine`: compute kernels and compiled programs, run in short slices in
//! one coroutine.
//!
//! Compared are the lowered code, the charges at every stop, the results and the final memory; the
//! results are also checked against the index. The beginning of a program is a small case, its
//! whole run a full one.

use std::sync::Arc;

use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop, run};
use wavelock_module::{ImportKind, Limits, Module};

use crate::files::{self, Table};
use crate::{Report, Size, Trail};

/// The length of a small case.
const BEGINNING: Cycles = Cycles(2_000_000);

/// The cycles of a slice: a prime, so that slices end at varying positions.
const SLICE: Cycles = Cycles(9_973);

pub(crate) fn cases(report: &mut Report) {
    for kernel in files::tables(&files::toml("benches/kernels/index.toml"), "kernel") {
        let argument = kernel["check_n"].number() as u32;
        program(
            report,
            "benches/kernels",
            kernel,
            "run",
            &[u64::from(argument)],
            kernel["check"].number(),
        );
    }
    for entry in files::tables(&files::toml("corpus/index.toml"), "run") {
        program(report, "corpus", entry, entry["export"].text(), &[], entry["expected"].number());
    }
}

fn program(
    report: &mut Report,
    folder: &str,
    entry: &Table,
    export: &str,
    arguments: &[u64],
    expected: i64,
) {
    let path = format!("{folder}/{}", entry["file"].text());
    for (size, part, most) in
        [(Size::Small, "beginning", BEGINNING), (Size::Full, "whole", Cycles::MAX)]
    {
        report.case(size, &format!("machine/{path}/{part}"), |trail| {
            let module = load(&path);
            trail.number(module.code().gap().0);
            module.code().words().iter().for_each(|word| trail.number(*word));
            let result = whole_run(module, export, arguments, most, trail)
                .unwrap_or_else(|stop| panic!("{path}: {stop:?}"));
            assert!(
                result.is_none_or(|result| result as u32 == expected as u32),
                "{path} gave {result:?} and not {expected}"
            );
        });
    }
}

/// A module of the repository.
pub(crate) fn load(path: &str) -> Arc<Module> {
    let bytes = files::bytes(path);
    let module = if path.ends_with(".wat") {
        Module::from_text(bytes, &Limits::default())
    } else {
        Module::new(bytes, &Limits::default())
    };
    Arc::new(module.unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Runs an export to its end or for `most` cycles. Returns its first result, or `None` if it did
/// not end; an unexpected stop is an error.
fn whole_run(
    module: Arc<Module>,
    export: &str,
    arguments: &[u64],
    most: Cycles,
    trail: &mut Trail,
) -> Result<Option<u64>, Stop> {
    let mut session = Session::new(SessionLimits::default());
    let mut imports = Vec::new();
    for import in module.imports() {
        let ImportKind::Function(kind) = import.kind else {
            panic!("{} imports more than functions", import.name)
        };
        // Imports are declared but never called, so any number will do.
        let address = session
            .add_host_function(0, &module.types()[kind as usize], Cycles(1))
            .expect("a host function can be added");
        imports.push(Extern::Function(address));
    }
    let instance = session.instantiate(module, &imports).expect("the program links");
    let Some(Extern::Function(function)) = session.export(instance, export) else {
        panic!("no function {export}")
    };
    let (first, first_arguments) =
        session.start_function(instance).map_or((function, arguments), |start| (start, &[][..]));
    let mut coroutine =
        Coroutine::start(&session, first, first_arguments).expect("the arguments fit");
    let mut is_starting = first != function;
    let result = loop {
        let stop = run(&mut session, &mut coroutine, SLICE);
        trail.number(coroutine.used().0);
        match stop {
            Stop::OutOfCycles { next } if coroutine.used() < most => trail.number(next.0),
            Stop::OutOfCycles { .. } => break None,
            Stop::Finished if is_starting => {
                coroutine.call_next(&session, function, arguments).expect("the arguments fit");
                is_starting = false;
            }
            Stop::Finished => break coroutine.results().first().copied(),
            Stop::Host(_) | Stop::Fault(_) => return Err(stop),
        }
    };
    trail.number(result.unwrap_or(u64::MAX));
    if let Some(memory) = session.instance_memory(instance) {
        trail.bytes(session.memory(memory).bytes());
    }
    Ok(result)
}
