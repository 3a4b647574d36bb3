//! Random certificates through the checker and a naive one that shares no code with it. With any
//! one check of the naive one skipped, the comparison must fail.

use std::collections::BTreeMap;
use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};
use wavelock_certify::{Certificate, Checker, Claim, Facts, LaneFacts, Pick, Sets, Span};

const LANES: u16 = 4;
const SESSIONS: u32 = 5;
const SPAN: Span = Span::Picks(1);
/// The machine's groups: lanes and sessions.
const GROUPS: [(&[u16], &[u32]); 3] = [(&[0, 1], &[0, 1]), (&[2], &[2]), (&[3], &[3, 4])];
/// By session: its group.
const HOMES: [LaneId; SESSIONS as usize] = [LaneId(0), LaneId(0), LaneId(2), LaneId(3), LaneId(3)];

/// The checks of the naive checker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Wave,
    Span,
    Lanes,
    Sessions,
    Channels,
    Owners,
    Versions,
    ReadySet,
    Picks,
    PickCount,
    Groups,
    Work,
    Homes,
}

const CHECKS: [Check; 13] = [
    Check::Wave,
    Check::Span,
    Check::Lanes,
    Check::Sessions,
    Check::Channels,
    Check::Owners,
    Check::Versions,
    Check::ReadySet,
    Check::Picks,
    Check::PickCount,
    Check::Groups,
    Check::Work,
    Check::Homes,
];

/// Stores the accepted sets by group and compares all pairs.
#[derive(Clone, Default)]
struct Naive {
    accepted: BTreeMap<u16, (u64, Sets)>,
}

fn twice<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().any(|(at, item)| items[..at].contains(item))
}

impl Naive {
    fn accepts(
        &mut self,
        certificate: &Certificate,
        facts: &Facts<'_>,
        skip: Option<Check>,
    ) -> bool {
        let mut next = self.accepted.clone();
        for claim in &certificate.claims {
            if let (Some(first), Some(sets)) = (claim.lanes.first(), &claim.sets) {
                next.insert(first.0, (claim.set_version, sets.clone()));
            }
        }
        let fits = CHECKS
            .iter()
            .all(|&check| Some(check) == skip || holds(check, certificate, facts, &next));
        if fits {
            self.accepted = next;
        }
        fits
    }
}

fn holds(
    check: Check,
    certificate: &Certificate,
    facts: &Facts<'_>,
    next: &BTreeMap<u16, (u64, Sets)>,
) -> bool {
    let claims = &certificate.claims;
    let lanes: Vec<LaneId> = claims.iter().flat_map(|claim| claim.lanes.clone()).collect();
    let known = |lane: &LaneId| usize::from(lane.0) < facts.lanes.len();
    let sets_of = |claim: &Claim| claim.lanes.first().and_then(|lane| next.get(&lane.0));
    match check {
        Check::Wave => certificate.wave == facts.wave,
        Check::Span => certificate.span == facts.span,
        Check::Lanes => {
            claims.iter().all(|claim| !claim.lanes.is_empty())
                && lanes.iter().all(known)
                && !twice(&lanes)
        }
        Check::Sessions => {
            let all: Vec<SessionId> =
                next.values().flat_map(|(_, sets)| sets.sessions.clone()).collect();
            all.iter().all(|session| session.0 < SESSIONS) && !twice(&all)
        }
        Check::Channels => {
            !twice(&next.values().flat_map(|(_, sets)| sets.channels.clone()).collect::<Vec<_>>())
        }
        Check::Owners => next.values().all(|(_, sets)| {
            sets.channels.iter().all(|channel| sets.sessions.contains(&channel.owner))
        }),
        Check::Versions => claims.iter().all(|claim| {
            let accepted = sets_of(claim).map(|(version, _)| *version);
            claim.lanes.iter().filter(|lane| known(lane)).all(|lane| {
                let actual = facts.lanes[usize::from(lane.0)].set_version;
                claim.set_version == actual && accepted == Some(actual)
            })
        }),
        Check::ReadySet => claims.iter().all(|claim| {
            let lanes = claim.lanes.iter().filter(|lane| known(lane));
            claim.ready_digest
                == lanes.map(|lane| facts.lanes[usize::from(lane.0)].ready_digest).sum::<u64>()
        }),
        Check::Picks => claims.iter().all(|claim| {
            claim.picks.iter().all(|pick| {
                claim.lanes.contains(&pick.lane)
                    && sets_of(claim).is_some_and(|(_, sets)| sets.sessions.contains(&pick.session))
            })
        }),
        Check::PickCount => claims.iter().all(|claim| claim.picks.len() <= claim.lanes.len()),
        // The lanes of a claim are all the lanes of its first lane's group.
        Check::Groups => claims.iter().all(|claim| {
            let Some(first) = claim.lanes.first() else { return true };
            (0..)
                .map(LaneId)
                .zip(facts.lanes)
                .all(|(lane, fact)| (fact.group == *first) == claim.lanes.contains(&lane))
        }),
        Check::Work => (0..)
            .map(LaneId)
            .zip(facts.lanes)
            .all(|(lane, fact)| !fact.has_work || lanes.contains(&lane)),
        // Sets that are sent are those of the group.
        Check::Homes => claims.iter().all(|claim| {
            let (Some(first), Some(sets)) = (claim.lanes.first(), &claim.sets) else { return true };
            (0..)
                .map(SessionId)
                .zip(facts.sessions)
                .all(|(session, group)| (group == first) == sets.sessions.contains(&session))
        }),
    }
}

/// splitmix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }
}

/// Groups {0, 1} with sessions 0 and 1, {2} with session 2, {3} with sessions 3 and 4, each with
/// the channel of its first session. Groups without work may be left out; then up to two fields are
/// corrupted.
fn certificate(
    draws: &mut Draws,
    versions: &mut [u64],
    resend: bool,
) -> (Certificate, Vec<LaneFacts>) {
    let works = GROUPS.map(|_| resend || draws.below(3) > 0);
    let mut facts = Vec::new();
    for (&(lanes, sessions), has_work) in GROUPS.iter().zip(works) {
        let group = LaneId(lanes[0]);
        facts.extend(lanes.iter().map(|&lane| LaneFacts {
            ready_digest: 100 + draws.below(50),
            set_version: versions[usize::from(lane)],
            group,
            sessions: sessions.len() as u32,
            has_work,
            leased: None,
        }));
    }
    let mut claims: Vec<Claim> = Vec::new();
    for ((lanes, sessions), has_work) in GROUPS.into_iter().zip(works) {
        if !has_work && draws.below(4) > 0 {
            continue;
        }
        let sessions: Vec<SessionId> = sessions.iter().copied().map(SessionId).collect();
        let channels = vec![ChannelId { owner: sessions[0], index: 0 }];
        let lanes: Vec<LaneId> = lanes.iter().copied().map(LaneId).collect();
        let pick =
            Pick { lane: lanes[0], session: sessions[0], coroutine: CoroutineRef::new(0, 0) };
        let digests = lanes.iter().map(|lane| facts[usize::from(lane.0)].ready_digest);
        let ready_digest = digests.sum();
        let sets = (resend || draws.below(3) == 0).then_some(Sets { sessions, channels });
        let set_version = facts[usize::from(lanes[0].0)].set_version;
        claims.push(Claim {
            set_version,
            sets,
            ready_digest,
            picks: vec![pick; lanes.len()],
            lanes,
        });
    }
    (Certificate { wave: 1, span: SPAN, claims }, facts)
}

fn corrupt(draws: &mut Draws, certificate: &mut Certificate, facts: &[LaneFacts]) {
    if certificate.claims.is_empty() {
        return;
    }
    let at = draws.below(certificate.claims.len() as u64) as usize;
    let session = SessionId(draws.below(u64::from(SESSIONS) + 1) as u32);
    let lane = LaneId(draws.below(u64::from(LANES) + 1) as u16);
    let claim = &mut certificate.claims[at];
    match draws.below(16) {
        0 => certificate.wave += 1,
        1 => certificate.span = Span::Cycles(9),
        2 => claim.lanes.push(lane),
        3 => claim.lanes.clear(),
        4 => claim.set_version += 1,
        5 => claim.ready_digest += 1,
        6 => claim.picks.iter_mut().for_each(|pick| pick.session = session),
        7 => claim.picks.iter_mut().for_each(|pick| pick.lane = lane),
        8 => claim.picks = claim.picks.repeat(2),
        12 => drop(certificate.claims.remove(at)),
        13 => drop(claim.lanes.pop()),
        14 => shrink(claim, facts),
        kind => {
            if let Some(sets) = &mut claim.sets {
                match kind {
                    9 => sets.sessions.push(session),
                    10 => sets.channels.push(ChannelId { owner: session, index: 0 }),
                    15 => drop(sets.sessions.pop()),
                    _ => sets.channels = sets.channels.repeat(2),
                }
            }
        }
    }
}

/// Leaves out the last lane of a claim, consistently.
fn shrink(claim: &mut Claim, facts: &[LaneFacts]) {
    if let [_, .., last] = claim.lanes[..] {
        claim.lanes.pop();
        claim.picks.truncate(claim.lanes.len());
        let digest = facts.get(usize::from(last.0)).map_or(0, |fact| fact.ready_digest);
        claim.ready_digest = claim.ready_digest.wrapping_sub(digest);
    }
}

/// Checks random certificates with both. `Err` with the number of the first on which they differ.
fn compare(skip: Option<Check>) -> Result<u32, u32> {
    let mut accepted = 0;
    for seed in 0..4_000u32 {
        let mut draws = Draws(u64::from(seed));
        let (mut checker, mut naive) = (Checker::new(LANES, SESSIONS), Naive::default());
        let mut versions = vec![1; usize::from(LANES)];
        for round in 0..4 {
            let (mut certificate, lanes) = certificate(&mut draws, &mut versions, round == 0);
            (0..draws.below(3)).for_each(|_| corrupt(&mut draws, &mut certificate, &lanes));
            let facts = Facts { wave: 1, span: SPAN, lanes: &lanes, sessions: &HOMES };
            let found = checker.check(&certificate, &facts).is_ok();
            if found != naive.accepts(&certificate, &facts, skip) {
                return Err(seed);
            }
            accepted += u32::from(found);
        }
    }
    Ok(accepted)
}

#[test]
fn the_checker_agrees_with_a_naive_one() {
    let accepted = compare(None).unwrap_or_else(|seed| panic!("they disagree at seed {seed}"));
    assert!(accepted > 1_000, "{accepted} accepted: too few to say anything");
}

#[test]
fn a_skipped_footprint_check_is_noticed() {
    for check in CHECKS {
        assert!(compare(Some(check)).is_err(), "without {check:?} nothing differs");
    }
}
