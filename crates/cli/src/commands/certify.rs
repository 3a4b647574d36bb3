//! `wavelock certify`: passes every certificate in a trace to the checker of `certify` again.

use super::files::open_trace;
use super::replay::unreadable;
use super::{emit, emit_json};
use crate::arguments::CertifyArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::BufReader;
use wavelock_replay::{Recheck, recheck};

/// What `certify --json` prints.
#[derive(Serialize)]
struct CertifyObject {
    verdict: &'static str,
    certificates: u64,
    accepted: u64,
    refused: u64,
    groups: u64,
    refusals: Vec<RefusalRow>,
    missing: Option<String>,
}

#[derive(Serialize)]
struct RefusalRow {
    number: u64,
    wave: Option<u64>,
    why: String,
}

pub(super) fn certify(arguments: &CertifyArguments) -> Result<Exit, Failure> {
    let path = &arguments.trace;
    let file = open_trace(path)?;
    let found = recheck(BufReader::new(file)).map_err(|error| unreadable(path, &error))?;
    let verdict = match (found.refusals(), found.certificates) {
        (0, 0) => "no certificates",
        (0, _) => "all hold",
        _ => "refused",
    };
    if arguments.json {
        let row = |refused: &wavelock_replay::Refused| RefusalRow {
            number: refused.number,
            wave: refused.wave,
            why: refused.why.to_string(),
        };
        emit_json(&CertifyObject {
            verdict,
            certificates: found.certificates,
            accepted: found.accepted,
            refused: found.refusals(),
            groups: found.groups,
            refusals: found.refused.iter().map(row).collect(),
            missing: found.missing.clone(),
        })?;
    } else {
        emit(&print(verdict, &found))?;
    }
    Ok(if found.refusals() > 0 { Exit::Divergence } else { Exit::Done })
}

fn print(verdict: &str, found: &Recheck) -> String {
    let (accepted, all) = (grouped(found.accepted), grouped(found.certificates));
    let mut text = format!(
        "{verdict}: {accepted} of {all} certificates accepted again, for {} groups\n",
        grouped(found.groups)
    );
    for refused in &found.refused {
        let wave = refused
            .wave
            .map_or_else(|| "unreadable".to_owned(), |wave| format!("wave {}", grouped(wave)));
        let _ = writeln!(text, "certificate {} ({wave}): {}", grouped(refused.number), refused.why);
    }
    let more = found.refusals() - found.refused.len() as u64;
    if more > 0 {
        let _ = writeln!(text, "and {} more", grouped(more));
    }
    if let Some(missing) = &found.missing {
        let _ = writeln!(text, "missing: {missing}");
    }
    text
}
