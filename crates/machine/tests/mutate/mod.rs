//! Corrupted inputs: how they are made, and how those that are still accepted are run.

use crate::generate::Program;
use crate::observe;
use crate::random::Random;
use std::sync::Arc;
use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, Session, Stop, encode, run};
use wavelock_module::{Limits, Module};

/// Changes a few bytes, or truncates, duplicates or drops a range.
pub(crate) fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let length = (1 + random.below(8) as usize).min(bytes.len() - at);
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            3 => bytes[at..at + length].fill(0xff),
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + length)),
            6 => {
                let stretch = bytes[at..at + length].to_vec();
                bytes.splice(at..at, stretch);
            }
            _ => {
                let from = random.below(bytes.len() as u64) as usize;
                let length = length.min(bytes.len() - from);
                bytes.copy_within(from..from + length, at);
            }
        }
    }
    bytes
}

/// Instantiates a module with the known imports, and runs each exported function for a while.
pub(crate) fn exercise(module: &Arc<Module>) {
    let Ok((mut session, Ok(instance))) = observe::instantiate(module) else { return };
    for export in module.exports() {
        if let Some(Extern::Function(function)) = session.export(instance, &export.name) {
            let arguments = vec![7; session.function_type(function).parameters().len()];
            if let Ok(mut coroutine) = Coroutine::start(&session, function, &arguments) {
                run_for_a_while(&mut session, &mut coroutine);
            }
        }
    }
}

/// Runs a coroutine, completing its host calls, until it ends or has used a bounded number of
/// cycles.
pub(crate) fn run_for_a_while(session: &mut Session, coroutine: &mut Coroutine) {
    for _ in 0..50 {
        match run(session, coroutine, Cycles(500)) {
            Stop::OutOfCycles { .. } => {}
            // Tampered bytes may name a host function by another number, so its results are asked
            // for.
            Stop::Host(_) => coroutine.resume(&vec![3; coroutine.host_results()]),
            Stop::Finished | Stop::Fault(_) => break,
        }
    }
}

/// A program stopped somewhere: its module and its snapshot.
pub(crate) fn stopped(program: &Program, random: &mut Random) -> Option<(Arc<Module>, Vec<u8>)> {
    let module = Arc::new(Module::new(&program.bytes, &Limits::default()).ok()?);
    let (mut session, instance) = observe::instantiate(&module).ok()?;
    let instance = instance.ok()?;
    let (export, arguments) = &program.sequences[0][0];
    let Some(Extern::Function(function)) = session.export(instance, &export.name) else {
        return None;
    };
    let mut coroutines = Vec::new();
    for _ in 0..1 + random.below(3) {
        let mut coroutine = Coroutine::start(&session, function, arguments).ok()?;
        for _ in 0..random.below(60) {
            match run(&mut session, &mut coroutine, Cycles(1)) {
                Stop::Host(call) if random.below(2) == 0 => {
                    coroutine.resume(&vec![1; [0, 1, 2][usize::from(call.number)]])
                }
                Stop::OutOfCycles { .. } => {}
                _ => break,
            }
        }
        coroutines.push(coroutine);
    }
    Some((module, encode(&session, &coroutines.iter().collect::<Vec<_>>())))
}
