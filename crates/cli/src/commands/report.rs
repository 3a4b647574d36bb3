//! `wavelock report`: prints a cost report and checks it against profiles.

use super::files::{MOST_DATA_BYTES, MOST_TEXT_BYTES, read_file};
use super::{emit, emit_json};
use crate::arguments::ReportArguments;
use crate::diagnostic::Source;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::{Profile, Report, Verdict, print_report, read_profiles, read_report};
use serde::Serialize;
use std::path::Path;

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'r> {
    report: &'r Report,
    profiles: &'r [Verdict],
}

pub(super) fn report(arguments: &ReportArguments) -> Result<Exit, Failure> {
    let report = read_report(&arguments.file, &read_file(&arguments.file, MOST_DATA_BYTES)?)?;
    let mut verdicts: Vec<Verdict> = Vec::new();
    for profile in &arguments.profile {
        verdicts.extend(profiles(profile)?.iter().map(|profile| profile.judge(&report)));
    }
    if arguments.json {
        emit_json(&Output { report: &report, profiles: &verdicts })?;
    } else {
        emit(&print_report(&report, &verdicts, arguments.top))?;
    }
    Ok(if verdicts.iter().all(|verdict| verdict.fits) { Exit::Done } else { Exit::Refused })
}

/// The profiles of `FILE` or `FILE#NAME`.
fn profiles(argument: &str) -> Result<Vec<Profile>, Failure> {
    let (file, name) = match argument.rsplit_once('#') {
        Some((file, name)) if !Path::new(argument).exists() => (file, Some(name)),
        _ => (argument, None),
    };
    let source = Source::decode(file, read_file(Path::new(file), MOST_TEXT_BYTES)?)
        .map_err(Failure::refused)?;
    read_profiles(source, name).map_err(Failure::refused)
}
