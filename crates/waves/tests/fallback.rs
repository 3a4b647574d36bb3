//! A wrong certificate of every kind is refused; the wave then runs one step at a time with the
//! same trace.

use wavelock_abi::{ChannelId, LaneId, SessionId};
use wavelock_certify::{Certificate, Refusal, Sets, Span};
use wavelock_system::{RunSummary, World};
use wavelock_waves::{Plan, Planner, Round, Waves};

fn load(seed: u64) -> World {
    World::load(wavelock_generate::machine(seed), wavelock_generate::inputs(seed), false)
        .expect("generated machines load")
        .world
}

fn sequential(seed: u64) -> RunSummary {
    let mut world = load(seed);
    world.run(&mut ()).expect("the host can");
    world.summary()
}

/// A planner that corrupts every third certificate.
struct Spoiler {
    planner: Planner,
    code: usize,
    plans: u64,
    spoiled: u64,
}

/// Breaks the rule with this refusal code; `false` if this certificate cannot.
fn spoil(certificate: &mut Certificate, code: usize) -> bool {
    if code == 16 {
        certificate.claims.clear();
        return true;
    }
    let several = certificate.claims.len() > 1;
    let other = certificate.claims[0].clone();
    let last = certificate.claims.len() - 1;
    let claim = &mut certificate.claims[last];
    match code {
        0 => certificate.wave += 1,
        1 => {
            certificate.span =
                if certificate.span == Span::Cycles(1) { Span::Cycles(2) } else { Span::Cycles(1) }
        }
        2 => claim.lanes.clear(),
        3 => claim.lanes.push(LaneId(999)),
        4 if several => claim.lanes.push(other.lanes[0]),
        5 => match &mut claim.sets {
            Some(sets) => sets.sessions.push(SessionId(9_999)),
            None => return false,
        },
        6 => match (&mut claim.sets, &other.sets) {
            (Some(sets), Some(theirs)) if several && !theirs.sessions.is_empty() => {
                sets.sessions.push(theirs.sessions[0])
            }
            _ => return false,
        },
        7 => match &mut claim.sets {
            Some(sets) if !sets.channels.is_empty() => sets.channels.push(sets.channels[0]),
            _ => return false,
        },
        8 => match &mut claim.sets {
            Some(sets) if several => {
                sets.channels.push(ChannelId { owner: SessionId(9_998), index: 0 })
            }
            _ => return false,
        },
        9 => claim.set_version += 1,
        10 => claim.ready_digest ^= 1,
        11 | 13 if claim.picks.is_empty() => return false,
        11 => claim.picks[0].session = SessionId(9_997),
        13 => claim.picks[0].lane = LaneId(997),
        14 => return split(certificate),
        15 => {
            let several = certificate.claims.iter_mut().find(|claim| claim.lanes.len() > 1);
            return several.is_some_and(|claim| claim.lanes.pop().is_some());
        }
        17 => return move_session(certificate),
        18 => return claim.sets.as_mut().is_some_and(|sets| take_session(sets).is_some()),
        12 if claim.picks.is_empty() => return spoil_count(certificate, last),
        12 => {
            let pick = claim.picks[0];
            claim.picks.extend([pick; 8]);
        }
        _ => return false,
    }
    true
}

/// Claims a group of several lanes as two groups, of which one has all the sessions.
fn split(certificate: &mut Certificate) -> bool {
    let Some(claim) = certificate.claims.iter_mut().find(|claim| claim.lanes.len() > 1) else {
        return false;
    };
    let mut other = claim.clone();
    other.lanes = vec![claim.lanes.pop().expect("several lanes")];
    other.sets = Some(Sets::default());
    other.picks.clear();
    certificate.claims.push(other);
    true
}

/// Claims a session of the last group, with its channels, in the first.
fn move_session(certificate: &mut Certificate) -> bool {
    let [first, .., last] = &mut certificate.claims[..] else { return false };
    let (Some(first), Some(last)) = (&mut first.sets, &mut last.sets) else { return false };
    let Some(moved) = take_session(last) else { return false };
    first.sessions.extend(moved.sessions);
    first.channels.extend(moved.channels);
    true
}

/// Takes the last session out of sets, with its channels.
fn take_session(sets: &mut Sets) -> Option<Sets> {
    let session = sets.sessions.pop()?;
    let (moved, kept) =
        sets.channels.drain(..).partition(|channel: &ChannelId| channel.owner == session);
    sets.channels = kept;
    Some(Sets { sessions: vec![session], channels: moved })
}

fn spoil_count(certificate: &mut Certificate, claim: usize) -> bool {
    let claim = &mut certificate.claims[claim];
    let session = claim.sets.as_ref().and_then(|sets| sets.sessions.first().copied());
    let Some(session) = session else { return false };
    let coroutine = wavelock_abi::CoroutineRef::new(0, 0);
    claim.picks.push(wavelock_certify::Pick { lane: claim.lanes[0], session, coroutine });
    true
}

impl Plan for Spoiler {
    fn plan(&mut self, world: &World, certificate: &mut Certificate) {
        self.planner.plan(world, certificate);
        self.plans += 1;
        if self.plans % 3 == 1 && !certificate.claims.is_empty() && spoil(certificate, self.code) {
            self.spoiled += 1;
        }
    }

    fn refused(&mut self) {
        self.planner.refused();
    }
}

/// The refusal of a leased lane with another session. No planner can force it on a sound machine,
/// whose sets and versions are checked first: it is about facts that contradict each other
/// (`a_leased_lane_is_claimed_for_its_session_alone`, in `certify`).
const LEASED_LANE: usize = 19;

#[test]
fn invalid_certificate_falls_back_to_one_step() {
    assert_eq!(Refusal::NAMES[LEASED_LANE], "leased-lane");
    let expected: Vec<RunSummary> = (0..60).map(sequential).collect();
    for code in (0..Refusal::KINDS).filter(|code| *code != LEASED_LANE) {
        let mut refused = 0;
        for (seed, expected) in expected.iter().enumerate() {
            let spoiler = Spoiler { planner: Planner::default(), code, plans: 0, spoiled: 0 };
            let mut waves = Waves::with_planner(load(seed as u64), 2, spoiler).expect("a worker");
            waves.certify_always();
            waves.set_parallel_threshold(0);
            let mut steps = 0;
            loop {
                match waves.round(&mut ()).expect("the host can") {
                    Round::Over => break,
                    Round::Step => steps += 1,
                    Round::Wave => {}
                }
            }
            let telemetry = waves.telemetry();
            assert_eq!(
                &waves.world_mut().summary(),
                expected,
                "seed {seed}, refusal {}",
                Refusal::NAMES[code]
            );
            assert_eq!(
                telemetry.refused, telemetry.refusals[code],
                "seed {seed}: {:?}",
                telemetry.last_refusal
            );
            assert!(telemetry.refused == 0 || steps > 0, "a refused wave runs step by step");
            refused += telemetry.refused;
        }
        assert!(refused > 0, "no machine forced the refusal {}", Refusal::NAMES[code]);
    }
}
