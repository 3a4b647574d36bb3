//! Random lives of a checker: certificates of a machine whose sessions move and start, most of them
//! then changed somewhere, on the shipped checker and on that of proof/Certificate.v.
//!
//! The model's checker is the one of the theorems, so each verdict, its reason and its numbers are
//! compared. What a checker keeps from one certificate to the next shows in later verdicts: half of
//! the claims name sets by their version only.

use crate::support::Random;
use std::fmt::Write as _;
use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};
use wavelock_certify::{Certificate, Checker, Claim, Facts, LaneFacts, Pick, Refusal, Sets, Span};

/// Certificates in one life.
const CERTIFICATES: u64 = 16;

/// How often each refusal was given, by code; acceptances last.
pub(crate) type Verdicts = [u64; Refusal::KINDS + 1];

/// What a machine states about itself, and what its planner knows.
struct Machine {
    /// By lane: the first lane of its group.
    groups: Vec<u16>,
    /// By session: the same.
    owners: Vec<u16>,
    /// By first lane of a group: the version of its sessions, and that of the sets last accepted.
    versions: Vec<(u64, Option<u64>)>,
    wave: u64,
    span: Span,
}

impl Machine {
    fn new(random: &mut Random) -> Self {
        let lanes = 1 + random.below(6);
        let mut groups: Vec<u16> = Vec::new();
        for lane in 0..lanes as u16 {
            let joins = lane > 0 && random.chance(1, 3);
            groups.push(if joins { groups[random.below(u64::from(lane)) as usize] } else { lane });
        }
        let owners = (0..random.below(9)).map(|_| groups[random.below(lanes) as usize]).collect();
        let span = match random.chance(1, 2) {
            true => Span::Picks(random.below(3) as u32),
            false => Span::Cycles(random.below(100_000)),
        };
        let versions = vec![(1, None); groups.len()];
        Self { groups, owners, versions, wave: random.below(1_000), span }
    }

    fn any_group(&self, random: &mut Random) -> u16 {
        self.groups[random.below(self.groups.len() as u64) as usize]
    }

    fn own_sets(&self, group: u16, random: &mut Random) -> Sets {
        let sessions: Vec<SessionId> = (0..self.owners.len() as u32)
            .filter(|&session| self.owners[session as usize] == group)
            .map(SessionId)
            .collect();
        let channels = sessions
            .iter()
            .filter(|_| random.chance(1, 2))
            .map(|&owner| ChannelId { owner, index: 0 })
            .collect();
        Sets { sessions, channels }
    }

    fn facts(&self, random: &mut Random) -> Vec<LaneFacts> {
        let works: Vec<bool> = self.groups.iter().map(|_| random.chance(2, 3)).collect();
        let of_lane = |&group: &u16| LaneFacts {
            ready_digest: random.next(),
            set_version: self.versions[usize::from(group)].0,
            group: LaneId(group),
            sessions: self.owners.iter().filter(|&&owner| owner == group).count() as u32,
            has_work: works[usize::from(group)],
            leased: None,
        };
        self.groups.iter().map(of_lane).collect()
    }

    /// The certificate of an honest planner.
    fn certificate(&self, lanes: &[LaneFacts], random: &mut Random) -> Certificate {
        let mut claims = Vec::new();
        for group in 0..self.groups.len() as u16 {
            let own: Vec<LaneId> = (0..self.groups.len() as u16)
                .filter(|&lane| self.groups[usize::from(lane)] == group)
                .map(LaneId)
                .collect();
            if own.is_empty() || !(lanes[usize::from(group)].has_work || random.chance(1, 3)) {
                continue;
            }
            let (version, accepted) = self.versions[usize::from(group)];
            let sets = self.own_sets(group, random);
            let picks = match (self.span, sets.sessions.is_empty()) {
                (Span::Picks(most), false) => (0..random.below(1 + u64::from(most)))
                    .map(|slot| Pick {
                        lane: own[random.below(own.len() as u64) as usize],
                        session: sets.sessions[random.below(sets.sessions.len() as u64) as usize],
                        coroutine: CoroutineRef::new(slot as u32, 0),
                    })
                    .collect(),
                _ => Vec::new(),
            };
            let sum =
                |sum: u64, lane: &LaneId| sum.wrapping_add(lanes[usize::from(lane.0)].ready_digest);
            claims.push(Claim {
                ready_digest: own.iter().fold(0, sum),
                set_version: version,
                sets: (accepted != Some(version)).then_some(sets),
                lanes: own,
                picks,
            });
        }
        Certificate { wave: self.wave, span: self.span, claims }
    }

    /// Sessions move or start; a group's version rises with each change.
    fn evolve(&mut self, random: &mut Random) -> bool {
        self.wave += 1;
        let to = self.any_group(random);
        if !self.owners.is_empty() && random.chance(1, 4) {
            let session = random.below(self.owners.len() as u64) as usize;
            let from = std::mem::replace(&mut self.owners[session], to);
            self.versions[usize::from(from)].0 += 1;
            self.versions[usize::from(to)].0 += 1;
        }
        let starts = random.chance(1, 8);
        if starts {
            self.owners.push(to);
            self.versions[usize::from(to)].0 += 1;
        }
        starts
    }

    /// Changes something in a certificate or in what is stated.
    // Long: one case per thing to change.
    fn disturb(&self, honest: &mut Certificate, lanes: &mut [LaneFacts], random: &mut Random) {
        let count = honest.claims.len() as u64;
        let lane = LaneId(random.below(self.groups.len() as u64 + 1) as u16);
        let session = SessionId(random.below(self.owners.len() as u64 + 2) as u32);
        let channel = ChannelId { owner: session, index: random.below(2) as u32 };
        let sets = self.own_sets(self.any_group(random), random);
        let kind = random.below(20);
        match kind {
            0 => honest.wave += random.below(2),
            1 => honest.span = Span::Picks(random.below(3) as u32),
            2 => {
                let at = random.below(lanes.len() as u64) as usize;
                lanes[at].group = LaneId(self.any_group(random));
            }
            3 => {
                let at = random.below(lanes.len() as u64) as usize;
                lanes[at].sessions += 1;
            }
            _ => {}
        }
        if kind < 4 || count == 0 {
            return;
        }
        let at = random.below(count) as usize;
        if kind == 4 {
            honest.claims.remove(at);
            return;
        }
        let claim = &mut honest.claims[at];
        match kind {
            5 => claim.lanes.clear(),
            6 => claim.lanes.push(lane),
            7 => drop(claim.lanes.pop()),
            8 => claim.lanes.reverse(),
            9 => {
                claim.set_version = claim.set_version.wrapping_add(random.below(3)).wrapping_sub(1)
            }
            10 => claim.sets = None,
            11 => claim.sets = Some(sets),
            12 => claim.ready_digest ^= random.below(2),
            13 => claim.picks.push(Pick { lane, session, coroutine: CoroutineRef::new(0, 0) }),
            14 => claim.lanes = vec![lane],
            _ => {
                let sets = claim.sets.get_or_insert(sets);
                match kind {
                    15 | 16 => sets.sessions.push(session),
                    17 => drop(sets.sessions.pop()),
                    18 => sets.channels.push(channel),
                    _ => sets.channels.extend(sets.channels.first().copied()),
                }
            }
        }
    }
}

fn list(text: &mut String, items: &[u64]) {
    write!(text, " {}", items.len()).expect("a string grows");
    items.iter().for_each(|item| write!(text, " {item}").expect("a string grows"));
}

fn span(span: Span) -> [u64; 2] {
    match span {
        Span::Cycles(cycles) => [0, cycles],
        Span::Picks(picks) => [1, u64::from(picks)],
    }
}

/// A check as the numbers that the oracle reads.
fn numbers(certificate: &Certificate, facts: &Facts<'_>) -> String {
    let mut text = String::new();
    let put = |text: &mut String, items: &[u64]| {
        items.iter().for_each(|item| write!(text, " {item}").expect("a string grows"));
    };
    let lanes = |lanes: &[LaneId]| lanes.iter().map(|lane| u64::from(lane.0)).collect::<Vec<_>>();
    put(&mut text, &[certificate.wave]);
    put(&mut text, &span(certificate.span));
    put(&mut text, &[certificate.claims.len() as u64]);
    for claim in &certificate.claims {
        list(&mut text, &lanes(&claim.lanes));
        put(&mut text, &[claim.set_version, u64::from(claim.sets.is_some())]);
        if let Some(sets) = &claim.sets {
            let sessions: Vec<u64> =
                sets.sessions.iter().map(|session| u64::from(session.0)).collect();
            list(&mut text, &sessions);
            put(&mut text, &[sets.channels.len() as u64]);
            for channel in &sets.channels {
                put(&mut text, &[u64::from(channel.owner.0), u64::from(channel.index)]);
            }
        }
        put(&mut text, &[claim.ready_digest, claim.picks.len() as u64]);
        for pick in &claim.picks {
            let CoroutineRef { slot, generation } = pick.coroutine;
            let pick = [u32::from(pick.lane.0), pick.session.0, slot, generation];
            put(&mut text, &pick.map(u64::from));
        }
    }
    put(&mut text, &[facts.wave]);
    put(&mut text, &span(facts.span));
    put(&mut text, &[facts.lanes.len() as u64]);
    for lane in facts.lanes {
        let group = u64::from(lane.group.0);
        let counts = [u64::from(lane.sessions), u64::from(lane.has_work)];
        put(&mut text, &[lane.ready_digest, lane.set_version, group, counts[0], counts[1]]);
    }
    list(&mut text, &lanes(facts.sessions));
    text
}

/// A refusal's numbers, in the order of its fields.
fn fields(refusal: Refusal) -> Vec<u64> {
    use Refusal as R;
    let lane = |lane: LaneId| u64::from(lane.0);
    let session = |session: SessionId| u64::from(session.0);
    let channel = |channel: ChannelId| [session(channel.owner), u64::from(channel.index)];
    let optional = |number: Option<u64>| [1, 0][usize::from(number.is_none())];
    let with = |some: &[u64], last: Option<u64>| {
        some.iter().copied().chain([optional(last)]).chain(last).collect()
    };
    match refusal {
        R::Wave { claimed, open } => vec![claimed, open],
        R::Span { claimed, actual } => [span(claimed), span(actual)].concat(),
        R::NoLane { claim } => vec![u64::from(claim)],
        R::UnknownLane { lane: at, lanes } => vec![lane(at), u64::from(lanes)],
        R::LaneShared { lane: at, first, second } => vec![lane(at), lane(first), lane(second)],
        R::UnknownSession { session: at, sessions } => vec![session(at), u64::from(sessions)],
        R::SessionShared { session: at, first, second } => {
            vec![session(at), lane(first), lane(second)]
        }
        R::ChannelShared { channel: at, first, second } => {
            [channel(at), [lane(first), lane(second)]].concat()
        }
        R::ForeignChannel { channel: at, group } => {
            channel(at).into_iter().chain([lane(group)]).collect()
        }
        R::SetVersion { group, claimed, actual, accepted } => {
            with(&[lane(group), claimed, actual], accepted)
        }
        R::ReadySet { group, claimed, actual } => vec![lane(group), claimed, actual],
        R::LeasedLane { lane: at, holder, session: other } => {
            vec![lane(at), session(holder), session(other)]
        }
        R::PickLane { group, lane: at } => vec![lane(group), lane(at)],
        R::OtherGroup { lane: at, claimed, actual } => vec![lane(at), lane(claimed), lane(actual)],
        R::SplitGroup { group, lane: at } | R::Unclaimed { group, lane: at } => {
            vec![lane(group), lane(at)]
        }
        R::OtherSession { session: at, claimed, actual } => {
            with(&[session(at), lane(claimed)], actual.map(lane))
        }
        R::SessionCount { group, found, actual } => {
            vec![lane(group), u64::from(found), u64::from(actual)]
        }
        R::PickSession { group, session: at } => vec![lane(group), session(at)],
        R::PickCount { group, found, allowed } => {
            vec![lane(group), u64::from(found), u64::from(allowed)]
        }
    }
}

/// One life; `said` gets each command with the shipped checker's answer.
pub(crate) fn life(
    seed: u64,
    verdicts: &mut Verdicts,
    mut said: impl FnMut(std::fmt::Arguments<'_>, String),
) {
    let mut random = Random::new(seed ^ 0xce47);
    let mut machine = Machine::new(&mut random);
    let (lanes, sessions) = (machine.groups.len(), machine.owners.len());
    let mut checker = Checker::new(lanes as u16, sessions as u32);
    said(format_args!("checker {lanes} {sessions}"), "new".into());
    for _ in 0..CERTIFICATES {
        if machine.evolve(&mut random) {
            checker.admit(machine.owners.len() as u32);
            said(format_args!("admit {}", machine.owners.len()), "admitted".into());
        }
        let mut lanes = machine.facts(&mut random);
        let mut certificate = machine.certificate(&lanes, &mut random);
        if random.chance(2, 3) {
            machine.disturb(&mut certificate, &mut lanes, &mut random);
        }
        let owners: Vec<LaneId> = machine.owners.iter().copied().map(LaneId).collect();
        let facts =
            Facts { wave: machine.wave, span: machine.span, lanes: &lanes, sessions: &owners };
        let verdict = checker.check(&certificate, &facts);
        let answer = match &verdict {
            Ok(wave) => format!("accepted {}", wave.groups()),
            Err(refusal) => {
                let numbers: Vec<String> =
                    fields(*refusal).iter().map(ToString::to_string).collect();
                format!("refused {} {}", refusal.code(), numbers.join(" "))
            }
        };
        verdicts[verdict.as_ref().map_or_else(Refusal::code, |_| Refusal::KINDS)] += 1;
        if verdict.is_ok() {
            for claim in certificate.claims.iter().filter(|claim| claim.sets.is_some()) {
                machine.versions[usize::from(claim.lanes[0].0)].1 = Some(claim.set_version);
            }
        }
        said(format_args!("check{}", numbers(&certificate, &facts)), answer);
    }
}

/// Prints how often each verdict was given; whether each was that the model has, which knows no
/// leases.
pub(crate) fn report(verdicts: &Verdicts) -> bool {
    let [refused @ .., accepted] = verdicts;
    let named: Vec<String> = Refusal::NAMES
        .iter()
        .zip(refused)
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    println!("certificates: {accepted} accepted; refused {}", named.join(", "));
    let leased = Refusal::NAMES.iter().position(|name| *name == "leased-lane");
    verdicts.iter().enumerate().all(|(at, &count)| count > 0 || Some(at) == leased)
}
