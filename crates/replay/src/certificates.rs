//! Certificates in a trace: each accepted one with the facts it was checked against, and the check
//! repeated.
//!
//! Contract: certificates are telemetry, outside every digest; a trace without any is valid. The
//! repeated check uses `certify` alone, in the order of the run, because a certificate may refer to
//! sets of an earlier one. The bytes are untrusted.

use crate::machine::{MachineError, Reader, put_bytes, put_number};
use crate::trace::{NO_END, OpenError, first_chunk, nothing_after};
use std::fmt;
use std::io::Read;
use wavelock_abi::{LaneId, SessionId};
use wavelock_certify::{Certificate, Checker, DecodeError, Facts, LaneFacts, Refusal, Span};
use wavelock_trace::{ChunkError, ChunkKind, TraceError, TraceReader};

/// Maximum number of listed refusals; the rest are counted.
const NAMED: usize = 16;

/// The certificate format whose facts had no groups. Its certificates are refused by their version.
const WITHOUT_GROUPS: u32 = 1;

/// The last certificate format whose facts had no leases. Its certificates are refused likewise.
const WITHOUT_LEASES: u32 = 2;

/// The bit of a lane's group number that says whether the group has work.
const HAS_WORK: u64 = 1 << 16;

/// Writes certificates with the facts they were checked against.
#[derive(Default)]
pub(crate) struct CertificateWriter {
    /// What is written so far.
    pub(crate) bytes: Vec<u8>,
    /// By session: the group that was written last.
    sessions: Vec<LaneId>,
}

impl CertificateWriter {
    /// Appends one certificate and its facts: the lanes, and the sessions whose group is another
    /// than the last one written.
    pub(crate) fn put(&mut self, certificate: &Certificate, facts: &Facts<'_>) {
        let out = &mut self.bytes;
        put_bytes(out, &certificate.encode());
        put_number(out, facts.lanes.len() as u64);
        for lane in facts.lanes {
            put_number(out, lane.ready_digest);
            put_number(out, lane.set_version);
            let work = if lane.has_work { HAS_WORK } else { 0 };
            put_number(out, u64::from(lane.group.0) | work | u64::from(lane.sessions) << 32);
            put_number(out, lane.leased.map_or(0, |session| u64::from(session.0) + 1));
        }
        let last = &self.sessions;
        let changed = || {
            let groups = facts.sessions.iter().enumerate();
            groups.filter(|&(session, group)| last.get(session) != Some(group))
        };
        put_number(out, changed().count() as u64);
        for (session, group) in changed() {
            put_number(out, (session as u64) << 16 | u64::from(group.0));
        }
        self.sessions.clear();
        self.sessions.extend_from_slice(facts.sessions);
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
    let mut known = Known { last: None, sessions: Vec::new() };
    let most = match machine.spec.live {
        // Sessions may have started later.
        true => machine.spec.limits.sessions as usize,
        false => machine.spec.sessions.len(),
    };
    let mut found = Recheck::default();
    loop {
        match reader.next_chunk() {
            Ok(Some((ChunkKind::Certificates, payload))) => {
                check_chunk(&payload, span, most, &mut checker, &mut known, &mut found)
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

/// What earlier certificates of a trace leave.
struct Known {
    /// The last wave.
    last: Option<u64>,
    /// By session: its group.
    sessions: Vec<LaneId>,
}

impl Known {
    /// Reads the lanes' facts, and applies the changes of the sessions' groups.
    fn read(
        &mut self,
        input: &mut Reader<'_>,
        most_sessions: usize,
        has_leases: bool,
    ) -> Result<Vec<LaneFacts>, MachineError> {
        let count = input.count()?;
        let lanes =
            (0..count).map(|_| lane_facts(input, has_leases)).collect::<Result<Vec<_>, _>>()?;
        for _ in 0..input.count()? {
            let error = input.malformed();
            let packed = input.number()?;
            let session = usize::try_from(packed >> 16).unwrap_or(usize::MAX);
            if session >= most_sessions || session > self.sessions.len() {
                return Err(error);
            }
            let group = LaneId(packed as u16);
            match self.sessions.get_mut(session) {
                Some(known) => *known = group,
                None => self.sessions.push(group),
            }
        }
        Ok(lanes)
    }
}

fn lane_facts(input: &mut Reader<'_>, has_leases: bool) -> Result<LaneFacts, MachineError> {
    let (ready_digest, set_version) = (input.number()?, input.number()?);
    let error = input.malformed();
    let packed = input.number()?;
    if packed & 0xffff_ffff >= 2 * HAS_WORK {
        return Err(error);
    }
    let leased = if has_leases { input.number()? } else { 0 };
    let leased = match leased.checked_sub(1).map(u32::try_from) {
        None => None,
        Some(session) => Some(SessionId(session.map_err(|_| error)?)),
    };
    Ok(LaneFacts {
        ready_digest,
        set_version,
        group: LaneId(packed as u16),
        sessions: (packed >> 32) as u32,
        has_work: packed & HAS_WORK != 0,
        leased,
    })
}

fn check_chunk(
    payload: &[u8],
    span: Span,
    most_sessions: usize,
    checker: &mut Checker,
    known: &mut Known,
    found: &mut Recheck,
) -> Result<(), MachineError> {
    let mut input = Reader { bytes: payload, offset: 0 };
    while input.offset < payload.len() {
        let bytes = input.bytes()?;
        let number = found.certificates;
        found.certificates += 1;
        let decoded = Certificate::decode(bytes);
        let lanes = if decoded == Err(DecodeError::Version { found: WITHOUT_GROUPS }) {
            for _ in 0..input.count()? {
                input.number()?;
                input.number()?;
            }
            Vec::new()
        } else {
            let has_leases = decoded != Err(DecodeError::Version { found: WITHOUT_LEASES });
            known.read(&mut input, most_sessions, has_leases)?
        };
        let (wave, verdict) = match decoded {
            Err(error) => (None, Err(Unsound::Malformed(error))),
            Ok(certificate) => {
                let wave = certificate.wave;
                let facts = Facts { wave, span, lanes: &lanes, sessions: &known.sessions };
                let verdict = match known.last {
                    Some(after) if wave <= after => Err(Unsound::Order { after }),
                    _ => {
                        checker.admit(known.sessions.len() as u32);
                        checker.check(&certificate, &facts).map_err(Unsound::Refused)
                    }
                };
                known.last = Some(wave.max(known.last.unwrap_or(0)));
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
