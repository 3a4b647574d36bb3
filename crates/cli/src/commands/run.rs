//! `wavelock run`: builds the machine, runs it, reports how it ended.

use super::drive::Driven;
use super::machine::{Made, make};
use crate::arguments::RunArguments;
use crate::diagnostic::{Ink, Render};
use crate::exit::Exit;
use crate::failure::Failure;
use std::io::Write;

pub(super) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let Made { world, read, warnings, recorded, sources } = make(arguments)?;
    if !warnings.is_empty() {
        let _ = write!(anstream::stderr(), "{}", read.diagnostics(warnings).render(Ink::Styled));
    }
    let driven = Driven {
        world,
        resumed: false,
        workers: arguments.workers,
        pin: arguments.pin,
        host_memory: arguments.host_memory.map(|mebibytes| mebibytes << 20),
        recording: &arguments.recording,
        machine: recorded,
        sources,
        live: arguments.live.live.then_some(&arguments.live),
        template: read.manifest.template,
        measure: arguments.measure,
        report: arguments.report.as_deref(),
        output: &arguments.output,
        json: arguments.json,
    };
    driven.complete()
}
