//! Every refusal can happen, names its parties, and leaves the checker unchanged; every certificate
//! round-trips through its bytes.

use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};
use wavelock_certify::{
    Certificate, Checker, Claim, DecodeError, Facts, LaneFacts, Pick, Refusal, Sets, Span, mix,
    ready_digest,
};

const SPAN: Span = Span::Picks(1);
/// The machine's groups: {0, 1} with sessions 0 and 1, {2} with session 2, and {3} with session 3
/// and nothing to run.
const LANES: [LaneFacts; 4] =
    [lane(10, 0, 2, true), lane(20, 0, 2, true), lane(30, 2, 1, true), lane(40, 3, 1, false)];
const SESSIONS: [LaneId; 4] = [LaneId(0), LaneId(0), LaneId(2), LaneId(3)];

const fn lane(ready_digest: u64, group: u16, sessions: u32, has_work: bool) -> LaneFacts {
    let (set_version, group) = (1, LaneId(group));
    LaneFacts { ready_digest, set_version, group, sessions, has_work, leased: None }
}

fn facts() -> Facts<'static> {
    Facts { wave: 9, span: SPAN, lanes: &LANES, sessions: &SESSIONS }
}

fn channel(owner: u32, index: u32) -> ChannelId {
    ChannelId { owner: SessionId(owner), index }
}

/// Groups {0, 1} with sessions 0 and 1, and {2} with session 2.
fn valid() -> Certificate {
    let pick = |lane, session| Pick {
        lane: LaneId(lane),
        session: SessionId(session),
        coroutine: CoroutineRef::new(0, 0),
    };
    Certificate {
        wave: 9,
        span: SPAN,
        claims: vec![
            Claim {
                lanes: vec![LaneId(0), LaneId(1)],
                set_version: 1,
                sets: Some(Sets {
                    sessions: vec![SessionId(0), SessionId(1)],
                    channels: vec![channel(1, 0)],
                }),
                ready_digest: 30,
                picks: vec![pick(0, 0), pick(1, 1)],
            },
            Claim {
                lanes: vec![LaneId(2)],
                set_version: 1,
                sets: Some(Sets { sessions: vec![SessionId(2)], channels: vec![channel(2, 0)] }),
                ready_digest: 30,
                picks: vec![pick(2, 2)],
            },
        ],
    }
}

fn refusal(change: impl FnOnce(&mut Certificate)) -> Refusal {
    let mut certificate = valid();
    change(&mut certificate);
    let mut checker = Checker::new(4, 4);
    let refusal = checker.check(&certificate, &facts()).expect_err("the change breaks a rule");
    // A refused certificate leaves nothing behind: the valid one is accepted afterwards, and twice.
    assert_eq!(
        checker.check(&valid(), &facts()).map(|wave| (wave.wave(), wave.groups())),
        Ok((9, 2))
    );
    let refused_again = checker.check(&certificate, &facts());
    assert!(refused_again.is_err());
    let mut later = valid();
    later.claims.iter_mut().for_each(|claim| claim.sets = None);
    assert!(checker.check(&later, &facts()).is_ok(), "accepted sets are remembered");
    refusal
}

#[test]
fn each_rule_can_refuse() {
    let sets = |certificate: &mut Certificate, claim: usize, change: fn(&mut Sets)| {
        change(certificate.claims[claim].sets.as_mut().unwrap())
    };
    let refusals = [
        refusal(|certificate| certificate.wave = 8),
        refusal(|certificate| certificate.span = Span::Picks(2)),
        refusal(|certificate| certificate.claims[1].lanes.clear()),
        refusal(|certificate| certificate.claims[1].lanes.push(LaneId(4))),
        refusal(|certificate| certificate.claims[1].lanes.push(LaneId(1))),
        refusal(|certificate| sets(certificate, 1, |sets| sets.sessions.push(SessionId(4)))),
        refusal(|certificate| sets(certificate, 1, |sets| sets.sessions.push(SessionId(1)))),
        refusal(|certificate| sets(certificate, 1, |sets| sets.channels.push(channel(1, 0)))),
        refusal(|certificate| sets(certificate, 1, |sets| sets.channels.push(channel(3, 0)))),
        refusal(|certificate| certificate.claims[1].set_version = 2),
        refusal(|certificate| certificate.claims[1].ready_digest += 1),
        refusal(|certificate| certificate.claims[1].picks[0].session = SessionId(0)),
        refusal(|certificate| {
            let pick = certificate.claims[1].picks[0];
            certificate.claims[1].picks.push(pick);
        }),
        refusal(|certificate| certificate.claims[1].picks[0].lane = LaneId(0)),
        refusal(|certificate| certificate.claims[1].lanes.push(LaneId(3))),
        refusal(|certificate| certificate.claims[0].lanes.truncate(1)),
        refusal(|certificate| drop(certificate.claims.pop())),
        refusal(|certificate| sets(certificate, 1, |sets| sets.sessions.push(SessionId(3)))),
        refusal(|certificate| sets(certificate, 0, |sets| sets.sessions.retain(|one| one.0 > 0))),
        leased(SessionId(0)).expect_err("lane 2 has session 2"),
    ];
    for (code, refusal) in refusals.iter().enumerate() {
        assert_eq!(refusal.code(), code, "{refusal}");
    }
    assert_eq!(refusals.len(), Refusal::KINDS);
    assert!(
        (1..Refusal::KINDS).all(|code| !Refusal::NAMES[..code].contains(&Refusal::NAMES[code])),
        "a name is one reason"
    );
    assert_eq!(
        refusals[6],
        Refusal::SessionShared { session: SessionId(1), first: LaneId(0), second: LaneId(2) }
    );
    assert_eq!(
        refusals[4],
        Refusal::LaneShared { lane: LaneId(1), first: LaneId(0), second: LaneId(2) }
    );
    assert_eq!(refusals[11], Refusal::PickSession { group: LaneId(2), session: SessionId(0) });
    assert_eq!(refusals[13], Refusal::PickLane { group: LaneId(2), lane: LaneId(0) });
    assert_eq!(
        refusals[14],
        Refusal::OtherGroup { lane: LaneId(3), claimed: LaneId(2), actual: LaneId(3) }
    );
    assert_eq!(refusals[15], Refusal::SplitGroup { group: LaneId(0), lane: LaneId(1) });
    assert_eq!(refusals[16], Refusal::Unclaimed { group: LaneId(2), lane: LaneId(2) });
    assert_eq!(
        refusals[17],
        Refusal::OtherSession {
            session: SessionId(3),
            claimed: LaneId(2),
            actual: Some(LaneId(3))
        }
    );
    assert_eq!(refusals[18], Refusal::SessionCount { group: LaneId(0), found: 1, actual: 2 });
    let (lane, holder, session) = (LaneId(2), SessionId(0), SessionId(2));
    assert_eq!(refusals[19], Refusal::LeasedLane { lane, holder, session });
}

/// Lane 2 is leased to a session after its group's sets were accepted.
fn leased(holder: SessionId) -> Result<u32, Refusal> {
    let mut checker = Checker::new(4, 4);
    assert!(checker.check(&valid(), &facts()).is_ok(), "nothing is leased");
    let mut later = valid();
    later.claims.iter_mut().for_each(|claim| claim.sets = None);
    let mut lanes = LANES;
    lanes[2].leased = Some(holder);
    checker.check(&later, &Facts { lanes: &lanes, ..facts() }).map(|wave| wave.groups())
}

#[test]
fn a_leased_lane_is_claimed_for_its_session_alone() {
    assert_eq!(leased(SessionId(2)), Ok(2));
    let refused = leased(SessionId(0)).expect_err("another session has the lane");
    assert_eq!(
        refused.to_string(),
        "session 2 is claimed for lane 2, which session 0 has to itself by a lease"
    );
}

/// Neither a certificate without claims nor one that splits a group, each half with sessions of its
/// own, stands for a wave of the machine.
#[test]
fn an_empty_or_splitting_certificate_is_refused() {
    let mut checker = Checker::new(4, 4);
    let empty = Certificate { claims: Vec::new(), ..valid() };
    let refused = checker.check(&empty, &facts()).expect_err("groups have work");
    assert_eq!(refused, Refusal::Unclaimed { group: LaneId(0), lane: LaneId(0) });
    assert_eq!(
        refused.to_string(),
        "the group of lane 0 has work and is not claimed; lane 0 is in it"
    );
    let mut split = valid();
    let mut other = split.claims[0].clone();
    (split.claims[0].lanes, other.lanes) = (vec![LaneId(0)], vec![LaneId(1)]);
    (split.claims[0].ready_digest, other.ready_digest) = (10, 20);
    let one = |session| Sets { sessions: vec![SessionId(session)], channels: Vec::new() };
    (split.claims[0].sets, other.sets) = (Some(one(0)), Some(one(1)));
    split.claims[0].picks.truncate(1);
    other.picks.remove(0);
    split.claims.push(other);
    assert_eq!(
        checker.check(&split, &facts()),
        Err(Refusal::OtherGroup { lane: LaneId(1), claimed: LaneId(1), actual: LaneId(0) })
    );
    let idle = Facts { lanes: &[lane(0, 0, 0, false); 4], ..facts() };
    assert!(checker.check(&empty, &idle).is_ok(), "nothing has to be claimed");
}

#[test]
fn sets_must_have_been_sent_once() {
    let mut silent = valid();
    silent.claims.iter_mut().for_each(|claim| claim.sets = None);
    let refused = Checker::new(4, 4).check(&silent, &facts());
    assert_eq!(
        refused,
        Err(Refusal::SetVersion { group: LaneId(0), claimed: 1, actual: 1, accepted: None })
    );
}

#[test]
fn certificates_round_trip() {
    let bytes = valid().encode();
    assert_eq!(Certificate::decode(&bytes), Ok(valid()));
    for end in 0..bytes.len() {
        assert!(Certificate::decode(&bytes[..end]).is_err());
    }
    let mut other = bytes.clone();
    other[0] = 1;
    assert_eq!(Certificate::decode(&other), Err(DecodeError::Version { found: 1 }));
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Certificate::decode(&longer), Err(DecodeError::Trailing { offset: bytes.len() }));
    for at in 4..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        // Whatever a changed byte makes of it: an error or another certificate, never a panic or a
        // large allocation.
        assert_ne!(Certificate::decode(&changed), Ok(valid()));
    }
}

#[test]
fn the_mixing_function_gives_the_published_values() {
    assert_eq!(mix(0, 0), 0);
    assert_eq!(mix(1, 0), 0x4179_b061_e0c0_e0d0);
    assert_eq!(mix(0, 1), 0x4e17_cf67_001b_3979);
    assert_eq!(mix(7 << 32 | 5, 3), 0x6a82_815c_b1a0_870e);
    assert_eq!(ready_digest([(1, 0), (0, 1)]), ready_digest([(0, 1), (1, 0)]));
}
