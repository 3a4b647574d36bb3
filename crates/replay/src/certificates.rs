//! Certificates in a trace: each accepted one with the lane facts it was checked against, and the
//! check repeated.
//!
//! Contract: certificates are telemetry, outside every digest; a trace without any is valid. The
//! repeated check uses `certify` alone, in the order of the run, because a certificate may refer to
//! sets of an earlier one. The bytes are untrusted.

use crate::machine::{MachineError, Reader, put_bytes, put_number};
use crate::trace::{NO_END, OpenError, first_chunk, nothing_after};
use std::fmt;
use std::io::Read;
use wavelock_certify::{Certificate, Checker, DecodeError, Facts, LaneFacts, Refusal, Span};
use wavelock_trace::{ChunkError, ChunkKind, TraceError, TraceReader};

/// Maximum number of listed refusals; the rest are counted.
const NAMED: usize = 16;

/// Appends one certificate and the facts it was checked against.
pub(crate) fn put_certificate(out: &mut Vec<u8>, certificate: &Certificate, lanes: &[LaneFacts]) {
    put_bytes(out, &certificate.encode());
    put_number(out, lanes.len() as u64);
    for lane in lanes {
        put_number(out, lane.ready_digest);
        put_number(out, lane.set_version);
    }
}

/// Why a recorded certificate does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsound {
    /// The checker refuses it.
    Refused(Refusal),
    /// Its bytes are not a certificate.
    Malformed(DecodeError),
    /// It follows one for the same or a later wave.
    Order {
        /// The wave of the previous certificate.
        after: u64,
    },
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Order { after } => write!(f, "it comes after the certificate of wave {after}"),
        }
    }
}

/// A certificate that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its index among the trace's certificates, from 0.
    pub number: u64,
    /// The wave it claims, if it could be read.
    pub wave: Option<u64>,
    /// The reason.
    pub why: Unsound,
}

/// The result of checking a trace's certificates again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recheck {
    /// Certificates in the trace.
    pub certificates: u64,
    /// The number that hold.
    pub accepted: u64,
    /// Total number of groups that they allowed to run.
    pub groups: u64,
    /// The first few that do not hold.
    pub refused: Vec<Refused>,
    /// Why the trace is incomplete, if it is.
    pub missing: Option<String>,
}

impl Recheck {
    /// The number that do not hold.
    #[must_use]
    pub const fn refusals(&self) -> u64 {
        self.certificates - self.accepted
    }
}

/// Checks every certificate of a trace again.
///
/// # Errors
/// The trace cannot be read, or a chunk of certificates is not a list of them.
pub fn recheck(input: impl Read) -> Result<Recheck, OpenError> {
    let mut reader = TraceReader::new(input)?;
    let (_, machine) = first_chunk(&mut reader)?;
    let span = match machine.spec.span {
        wavelock_system::Span::Cycles(cycles) => Span::Cycles(cycles.0),
        wavelock_system::Span::Picks(picks) => Span::Picks(picks),
    };
    let mut checker = Checker::new(machine.spec.lanes, machine.spec.sessions.len() as u32);
    let mut found = Recheck::default();
    let mut last = None;
    loop {
        match reader.next_chunk() {
            Ok(Some((ChunkKind::Certificates, payload))) => {
                check_chunk(&payload, span, &mut checker, &mut last, &mut found)
                    .map_err(OpenError::Machine)?;
            }
            Ok(Some((ChunkKind::End, _))) => return nothing_after(&mut reader).map(|()| found),
            Ok(Some(_)) => {}
            Ok(None) => {
                found.missing = Some(NO_END.into());
                return Ok(found);
            }
            Err(error @ TraceError::Chunk(ChunkError::Unfinished { .. })) => {
                found.missing = Some(error.to_string());
                return Ok(found);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn check_chunk(
    payload: &[u8],
    span: Span,
    checker: &mut Checker,
    last: &mut Option<u64>,
    found: &mut Recheck,
) -> Result<(), MachineError> {
    let mut input = Reader { bytes: payload, offset: 0 };
    while input.offset < payload.len() {
        let bytes = input.bytes()?;
        let count = input.count()?;
        let lanes = (0..count)
            .map(|_| Ok(LaneFacts { ready_digest: input.number()?, set_version: input.number()? }))
            .collect::<Result<Vec<_>, MachineError>>()?;
        let number = found.certificates;
        found.certificates += 1;
        let (wave, verdict) = match Certificate::decode(bytes) {
            Err(error) => (None, Err(Unsound::Malformed(error))),
            Ok(certificate) => {
                let wave = certificate.wave;
                let verdict = match *last {
                    Some(after) if wave <= after => Err(Unsound::Order { after }),
                    _ => checker
                        .check(&certificate, &Facts { wave, span, lanes: &lanes })
                        .map_err(Unsound::Refused),
                };
                *last = Some(wave.max(last.unwrap_or(0)));
                (Some(wave), verdict)
            }
        };
        match verdict {
            Ok(wave) => {
                found.accepted += 1;
                found.groups += wave.groups() as u64;
            }
            Err(why) if found.refused.len() < NAMED => {
                found.refused.push(Refused { number, wave, why })
            }
            Err(_) => {}
        }
    }
    Ok(())
}
