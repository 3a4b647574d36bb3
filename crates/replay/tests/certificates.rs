//! The certificates of a trace are checked again by `certify` alone; a tampered one is reported.

mod kit;

use kit::{Shared, machine};
use wavelock_certify::{Certificate, DecodeError, Refusal};
use wavelock_replay::{Level, OpenError, Recheck, Recorder, Trace, Unsound, recheck, verify};
use wavelock_system::World;
use wavelock_trace::{ChunkKind, TraceReader, TraceWriter};
use wavelock_waves::{Round, Waves};

/// A recording with certificates, on `workers` workers.
fn recorded(workers: usize) -> Vec<u8> {
    let machine = machine();
    let out = Shared::default();
    let mut nowhere = ();
    let mut recorder =
        Recorder::new(out.clone(), &machine, Level::Full, &mut nowhere).expect("memory");
    let world =
        World::load(machine.spec.clone(), machine.inputs.clone(), true).expect("it loads").world;
    let mut waves = Waves::new(world, workers).expect("a worker");
    waves.certify_always();
    while waves.round(&mut recorder).expect("the host can") != Round::Over {
        if let Some(certificate) = waves.certificate() {
            recorder.certificate(certificate, &waves.facts());
        }
    }
    let run = waves.world_mut().summary();
    assert!(recorder.finish(&run).error.is_none());
    out.bytes.lock().expect("no thread panicked").clone()
}

/// The trace with changed certificates and valid checksums.
fn tampered(bytes: &[u8], change: impl Fn(usize, &mut Certificate)) -> Vec<u8> {
    rewritten(bytes, |payload| change_all(payload, &change))
}

/// The trace with its certificates chunks rewritten and valid checksums.
fn rewritten(bytes: &[u8], change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut reader = TraceReader::new(bytes).expect("own trace");
    let mut out = Vec::new();
    let mut writer = TraceWriter::new(&mut out).expect("memory");
    while let Some((kind, payload)) = reader.next_chunk().expect("own trace") {
        let payload = if kind == ChunkKind::Certificates { change(&payload) } else { payload };
        writer.append(kind, &payload).expect("memory");
    }
    out
}

/// Entries of a chunk: the certificate's length and bytes, then the number of lanes and four
/// numbers each, then the number of changed sessions and one number each.
fn change_all(payload: &[u8], change: &impl Fn(usize, &mut Certificate)) -> Vec<u8> {
    let number = |at: usize| {
        u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes")) as usize
    };
    let (mut out, mut at, mut index) = (Vec::new(), 0, 0);
    while at < payload.len() {
        let length = number(at);
        let mut certificate =
            Certificate::decode(&payload[at + 8..at + 8 + length]).expect("own bytes");
        change(index, &mut certificate);
        let bytes = certificate.encode();
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&bytes);
        let lanes = at + 8 + length;
        let sessions = lanes + 8 + 32 * number(lanes);
        let end = sessions + 8 + 8 * number(sessions);
        out.extend_from_slice(&payload[lanes..end]);
        at = end;
        index += 1;
    }
    out
}

/// The same entries as an earlier format had them: format 1 with two numbers per lane and no
/// sessions, format 2 with three numbers per lane.
fn as_of(format: u32, payload: &[u8]) -> Vec<u8> {
    let number = |at: usize| {
        u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes")) as usize
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < payload.len() {
        let lanes = at + 8 + number(at);
        out.extend_from_slice(&payload[at..at + 8]);
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&payload[at + 12..lanes + 8]);
        let sessions = lanes + 8 + 32 * number(lanes);
        let kept = 8 * (format as usize + 1);
        let facts = payload[lanes + 8..sessions].chunks(32);
        facts.for_each(|lane| out.extend_from_slice(&lane[..kept]));
        at = sessions + 8 + 8 * number(sessions);
        if format > 1 {
            out.extend_from_slice(&payload[sessions..at]);
        }
    }
    out
}

fn refused(bytes: &[u8]) -> Recheck {
    let found = recheck(bytes).expect("it can be read");
    assert!(found.refusals() > 0, "{found:?}");
    found
}

#[test]
fn certificates_are_recorded_with_any_number_of_workers_and_hold() {
    for workers in [1, 2] {
        let bytes = recorded(workers);
        let found = recheck(&bytes[..]).expect("own trace");
        assert!(
            found.certificates > 20 && found.refusals() == 0 && found.groups > found.certificates,
            "{found:?}"
        );
        assert_eq!(found.missing, None);
        // They are outside the run's digest.
        let verified = verify(Trace::open(&bytes[..]).expect("own trace"), 1).expect("it runs");
        assert!(verified.divergence.is_none());
    }
}

#[test]
fn a_tampered_certificate_is_refused_and_named() {
    let bytes = recorded(1);
    let whole = recheck(&bytes[..]).expect("own trace").certificates;
    let digest = refused(&tampered(&bytes, |index, certificate| {
        if index == 3 {
            certificate.claims[0].ready_digest ^= 1;
        }
    }));
    assert_eq!((digest.refusals(), digest.refused[0].number, digest.certificates), (1, 3, whole));
    assert!(digest.refused[0].why.to_string().contains("ready"), "{}", digest.refused[0].why);
    let lane = refused(&tampered(&bytes, |index, certificate| {
        if index == 5 {
            let claim = certificate.claims[0].clone();
            certificate.claims.push(claim);
        }
    }));
    assert!(
        matches!(&lane.refused[0].why, Unsound::Refused(_)) && lane.refused[0].number == 5,
        "{lane:?}"
    );
    let empty = refused(&tampered(&bytes, |index, certificate| {
        if index == 4 {
            certificate.claims.clear();
        }
    }));
    assert!(
        matches!(&empty.refused[0].why, Unsound::Refused(Refusal::Unclaimed { .. }))
            && empty.refused[0].number == 4,
        "{empty:?}"
    );
    let lost = refused(&tampered(&bytes, |index, certificate| {
        if index == 0 {
            let sets = certificate.claims[0].sets.as_mut().expect("the first sends its sets");
            let session = sets.sessions.pop().expect("a session");
            sets.channels.retain(|channel| channel.owner != session);
        }
    }));
    assert!(
        matches!(&lost.refused[0].why, Unsound::Refused(Refusal::SessionCount { .. }))
            && lost.refused[0].number == 0,
        "{lost:?}"
    );
    let order = refused(&tampered(&bytes, |index, certificate| {
        if index == 2 {
            certificate.wave = 0;
        }
    }));
    assert!(matches!(order.refused[0].why, Unsound::Order { .. }));
}

/// Facts of format 1 had no groups, those of format 2 no leases: a certificate with them is refused
/// by its version, and the rest of the chunk is read.
#[test]
fn a_certificate_of_a_format_before_is_refused_by_its_version() {
    for format in [1, 2] {
        let bytes = rewritten(&recorded(1), |payload| as_of(format, payload));
        let found = recheck(&bytes[..]).expect("it can be read");
        assert!(found.certificates > 1 && found.accepted == 0, "{found:?}");
        let version = Unsound::Malformed(DecodeError::Version { found: format });
        assert!(found.refused.iter().all(|refused| refused.why == version), "{found:?}");
    }
}

#[test]
fn damage_and_truncation_are_reported() {
    let bytes = recorded(1);
    for cut in [bytes.len() - 3, bytes.len() / 2] {
        let found = recheck(&bytes[..cut]).expect("a shorter trace");
        assert!(found.missing.is_some(), "cut at {cut}");
    }
    let mut changed = bytes.clone();
    let last = changed.len() - 40;
    changed[last] ^= 1;
    assert!(matches!(recheck(&changed[..]), Err(OpenError::Trace(_))));
}
