//! The checker. Its state is the owner of each session and channel as last accepted, and a mark per
//! lane.

use crate::{Certificate, Claim, Facts, Sets, Span};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, LaneId, SessionId};

/// The owner of a session that no group owns.
const NO_OWNER: u32 = u32::MAX;

/// Why a certificate is refused. A group is identified by its first lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is for another wave.
    Wave {
        /// The wave it names.
        claimed: u64,
        /// The open wave.
        open: u64,
    },
    /// It has another span than the machine.
    Span {
        /// The span it names.
        claimed: Span,
        /// The machine's.
        actual: Span,
    },
    /// A group has no lane.
    NoLane {
        /// Its index in the certificate.
        claim: u32,
    },
    /// A lane does not exist.
    UnknownLane {
        /// The lane.
        lane: LaneId,
        /// Number of lanes.
        lanes: u32,
    },
    /// Two groups claim a lane, or one claims it twice.
    LaneShared {
        /// The lane.
        lane: LaneId,
        /// The group that claimed it first.
        first: LaneId,
        /// The group that claimed it again.
        second: LaneId,
    },
    /// A session does not exist.
    UnknownSession {
        /// The session.
        session: SessionId,
        /// Number of sessions.
        sessions: u32,
    },
    /// Two groups claim a session, or one claims it twice.
    SessionShared {
        /// The session.
        session: SessionId,
        /// The group that owns it.
        first: LaneId,
        /// The group that claims it.
        second: LaneId,
    },
    /// Two groups claim a channel, or one claims it twice.
    ChannelShared {
        /// The channel.
        channel: ChannelId,
        /// The group that owns it.
        first: LaneId,
        /// The group that claims it.
        second: LaneId,
    },
    /// A group claims a channel whose owner is not among its sessions.
    ForeignChannel {
        /// The channel.
        channel: ChannelId,
        /// The group.
        group: LaneId,
    },
    /// The version of a group's sets is not the one that was accepted, or not the machine's.
    SetVersion {
        /// The group.
        group: LaneId,
        /// The version it names.
        claimed: u64,
        /// The machine's version.
        actual: u64,
        /// The version whose sets were accepted, if any.
        accepted: Option<u64>,
    },
    /// The ready set differs from the planner's.
    ReadySet {
        /// The group.
        group: LaneId,
        /// The digest it names.
        claimed: u64,
        /// The digest of the group's lanes.
        actual: u64,
    },
    /// A pick is on a lane of another group.
    PickLane {
        /// The group.
        group: LaneId,
        /// The lane.
        lane: LaneId,
    },
    /// A lane is claimed in a group that is not the machine's.
    OtherGroup {
        /// The lane.
        lane: LaneId,
        /// The group that claims it.
        claimed: LaneId,
        /// The machine's group of the lane.
        actual: LaneId,
    },
    /// A group is claimed without one of its lanes.
    SplitGroup {
        /// The group.
        group: LaneId,
        /// The lane that is missing.
        lane: LaneId,
    },
    /// A group with work is not claimed.
    Unclaimed {
        /// The group.
        group: LaneId,
        /// A lane of it.
        lane: LaneId,
    },
    /// A group claims a session that the machine has in another group, or in none.
    OtherSession {
        /// The session.
        session: SessionId,
        /// The group that claims it.
        claimed: LaneId,
        /// The machine's group of the session, if it states one.
        actual: Option<LaneId>,
    },
    /// A group claims fewer sessions than it has.
    SessionCount {
        /// The group.
        group: LaneId,
        /// Sessions claimed.
        found: u32,
        /// Sessions of the group.
        actual: u32,
    },
    /// A group claims a session for a leased lane that another has to itself.
    LeasedLane {
        /// The lane.
        lane: LaneId,
        /// The session that has it.
        holder: SessionId,
        /// The session that is claimed.
        session: SessionId,
    },
    /// A pick is of a session of another group.
    PickSession {
        /// The group.
        group: LaneId,
        /// The session.
        session: SessionId,
    },
    /// A wave of cycles lists picks, or a wave of picks lists too many.
    PickCount {
        /// The group.
        group: LaneId,
        /// Picks listed.
        found: u32,
        /// Picks allowed.
        allowed: u32,
    },
}

impl Refusal {
    /// Number of codes.
    pub const KINDS: usize = 20;

    /// Its code, for counting refusals by reason. Codes are stable: a new reason gets the next
    /// one.
    #[must_use]
    pub const fn code(&self) -> usize {
        match self {
            Self::Wave { .. } => 0,
            Self::Span { .. } => 1,
            Self::NoLane { .. } => 2,
            Self::UnknownLane { .. } => 3,
            Self::LaneShared { .. } => 4,
            Self::UnknownSession { .. } => 5,
            Self::SessionShared { .. } => 6,
            Self::ChannelShared { .. } => 7,
            Self::ForeignChannel { .. } => 8,
            Self::SetVersion { .. } => 9,
            Self::ReadySet { .. } => 10,
            Self::PickSession { .. } => 11,
            Self::PickCount { .. } => 12,
            Self::PickLane { .. } => 13,
            Self::OtherGroup { .. } => 14,
            Self::SplitGroup { .. } => 15,
            Self::Unclaimed { .. } => 16,
            Self::OtherSession { .. } => 17,
            Self::SessionCount { .. } => 18,
            Self::LeasedLane { .. } => 19,
        }
    }

    /// The names of the codes.
    pub const NAMES: [&'static str; Self::KINDS] = [
        "wave",
        "span",
        "no-lane",
        "unknown-lane",
        "lane-shared",
        "unknown-session",
        "session-shared",
        "channel-shared",
        "foreign-channel",
        "set-version",
        "ready-set",
        "pick-session",
        "pick-count",
        "pick-lane",
        "other-group",
        "split-group",
        "unclaimed",
        "other-session",
        "session-count",
        "leased-lane",
    ];
}

impl fmt::Display for Refusal {
    // Long: one sentence per refusal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wave { claimed, open } => {
                write!(f, "the certificate is for wave {claimed}, wave {open} is open")
            }
            Self::Span { claimed, actual } => write!(
                f,
                "the certificate is for a wave of {claimed}, the machine has waves of {actual}"
            ),
            Self::NoLane { claim } => {
                write!(f, "group {claim} of the certificate has no lane")
            }
            Self::UnknownLane { lane, lanes } => {
                write!(f, "lane {} is claimed, there are {lanes} lanes", lane.0)
            }
            Self::LaneShared { lane, first, second } => {
                write!(
                    f,
                    "lane {} is claimed by the group of lane {} and by that of lane {}",
                    lane.0, first.0, second.0
                )
            }
            Self::UnknownSession { session, sessions } => {
                write!(f, "session {} is claimed, there are {sessions} sessions", session.0)
            }
            Self::SessionShared { session, first, second } => {
                write!(
                    f,
                    "session {} is owned by the group of lane {} and claimed by that of lane {}",
                    session.0, first.0, second.0
                )
            }
            Self::ChannelShared { channel, first, second } => write!(
                f,
                "channel {} of session {} is owned by the group of lane {} and claimed by that of lane {}",
                channel.index, channel.owner.0, first.0, second.0
            ),
            Self::ForeignChannel { channel, group } => write!(
                f,
                "the group of lane {} claims channel {} of session {}, which it does not own",
                group.0, channel.index, channel.owner.0
            ),
            Self::SetVersion { group, claimed, actual, accepted } => {
                write!(
                    f,
                    "the group of lane {} claims sets of version {claimed}; the machine has version {actual}, ",
                    group.0
                )?;
                match accepted {
                    Some(accepted) => write!(f, "version {accepted} was accepted"),
                    None => write!(f, "none was accepted"),
                }
            }
            Self::ReadySet { group, claimed, actual } => {
                write!(
                    f,
                    "the group of lane {} claims ready set {claimed:#018x}, the machine has {actual:#018x}",
                    group.0
                )
            }
            Self::OtherGroup { lane, claimed, actual } => write!(
                f,
                "lane {} is claimed by the group of lane {}, the machine has it in that of lane {}",
                lane.0, claimed.0, actual.0
            ),
            Self::SplitGroup { group, lane } => {
                write!(f, "the group of lane {} is claimed without its lane {}", group.0, lane.0)
            }
            Self::Unclaimed { group, lane } => write!(
                f,
                "the group of lane {} has work and is not claimed; lane {} is in it",
                group.0, lane.0
            ),
            Self::OtherSession { session, claimed, actual } => {
                write!(
                    f,
                    "session {} is claimed by the group of lane {}, the machine has it in ",
                    session.0, claimed.0
                )?;
                match actual {
                    Some(actual) => write!(f, "that of lane {}", actual.0),
                    None => f.write_str("no group"),
                }
            }
            Self::SessionCount { group, found, actual } => write!(
                f,
                "the group of lane {} claims {found} sessions, the machine has {actual} in it",
                group.0
            ),
            Self::LeasedLane { lane, holder, session } => write!(
                f,
                "session {} is claimed for lane {}, which session {} has to itself by a lease",
                session.0, lane.0, holder.0
            ),
            Self::PickLane { group, lane } => write!(
                f,
                "the group of lane {} lists a pick on lane {}, which it does not own",
                group.0, lane.0
            ),
            Self::PickSession { group, session } => {
                write!(
                    f,
                    "the group of lane {} lists a pick of session {}, which it does not own",
                    group.0, session.0
                )
            }
            Self::PickCount { group, found, allowed } => {
                write!(
                    f,
                    "the group of lane {} lists {found} picks, {allowed} are allowed",
                    group.0
                )
            }
        }
    }
}

impl core::error::Error for Refusal {}

/// Proof that a wave's groups are the machine's own, all of those with work among them, and share
/// nothing. Only [`Checker::check`] makes one.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a pool needs the checked wave to run it"]
pub struct CheckedWave {
    wave: u64,
    groups: u32,
}

impl CheckedWave {
    /// Its number.
    #[must_use]
    pub const fn wave(&self) -> u64 {
        self.wave
    }

    /// The number of groups that may run in parallel.
    #[must_use]
    pub const fn groups(&self) -> u32 {
        self.groups
    }
}

/// The independent checker of one machine.
#[derive(Clone, Debug)]
pub struct Checker {
    /// By lane: the last check that marked it, and the claiming group.
    lanes: Vec<(u64, LaneId)>,
    /// By session: the first lane of the group that owns it.
    sessions: Vec<u32>,
    /// By channel: the same.
    channels: BTreeMap<ChannelId, u32>,
    /// By first lane of a group: the accepted version and its sets.
    accepted: Vec<Option<(u64, Sets)>>,
    checks: u64,
}

impl Checker {
    /// A checker for a machine with this many lanes and sessions.
    #[must_use]
    pub fn new(lanes: u16, sessions: u32) -> Self {
        Self {
            lanes: alloc::vec![(0, LaneId(0)); usize::from(lanes)],
            sessions: alloc::vec![NO_OWNER; sessions as usize],
            channels: BTreeMap::new(),
            accepted: alloc::vec![None; usize::from(lanes)],
            checks: 0,
        }
    }

    /// Sessions have started: the machine now has this many.
    pub fn admit(&mut self, sessions: u32) {
        if self.sessions.len() < sessions as usize {
            self.sessions.resize(sessions as usize, NO_OWNER);
        }
    }

    /// Accepts or refuses a certificate. A refused one leaves the accepted sets unchanged.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn check(
        &mut self,
        certificate: &Certificate,
        facts: &Facts<'_>,
    ) -> Result<CheckedWave, Refusal> {
        if certificate.wave != facts.wave {
            return Err(Refusal::Wave { claimed: certificate.wave, open: facts.wave });
        }
        if certificate.span != facts.span {
            return Err(Refusal::Span { claimed: certificate.span, actual: facts.span });
        }
        self.checks += 1;
        for (at, claim) in (0u32..).zip(&certificate.claims) {
            let group = *claim.lanes.first().ok_or(Refusal::NoLane { claim: at })?;
            self.mark_lanes(group, claim)?;
        }
        self.check_groups(facts)?;
        let changed: Vec<LaneId> = certificate
            .claims
            .iter()
            .filter(|claim| claim.sets.is_some())
            .filter_map(|claim| claim.lanes.first().copied())
            .collect();
        let before: Vec<_> = changed.iter().map(|&group| (group, self.release(group))).collect();
        let result = self.check_claims(certificate, facts);
        if result.is_err() {
            changed.iter().for_each(|&group| drop(self.release(group)));
            for (group, sets) in before {
                // The sets accepted before were disjoint, so restoring them cannot fail.
                let restored =
                    sets.map_or(Ok(()), |(version, sets)| self.acquire(group, version, &sets));
                debug_assert!(restored.is_ok());
            }
        }
        result.map(|()| CheckedWave { wave: facts.wave, groups: certificate.claims.len() as u32 })
    }

    fn check_claims(
        &mut self,
        certificate: &Certificate,
        facts: &Facts<'_>,
    ) -> Result<(), Refusal> {
        for claim in &certificate.claims {
            let group = claim.lanes[0];
            if let Some(sets) = &claim.sets {
                self.acquire(group, claim.set_version, sets)?;
                check_sessions(group, sets, facts)?;
            }
            self.check_versions(group, claim, facts)?;
            self.check_leases(group, claim, facts)?;
            let actual = claim.lanes.iter().fold(0u64, |sum, lane| {
                sum.wrapping_add(facts.lanes[usize::from(lane.0)].ready_digest)
            });
            if claim.ready_digest != actual {
                return Err(Refusal::ReadySet { group, claimed: claim.ready_digest, actual });
            }
            self.check_picks(group, claim, certificate.span)?;
        }
        Ok(())
    }

    /// Checks that lanes exist and are disjoint.
    fn mark_lanes(&mut self, group: LaneId, claim: &Claim) -> Result<(), Refusal> {
        let count = self.lanes.len() as u32;
        for &lane in &claim.lanes {
            let Some(mark) = self.lanes.get_mut(usize::from(lane.0)) else {
                return Err(Refusal::UnknownLane { lane, lanes: count });
            };
            if mark.0 == self.checks {
                return Err(Refusal::LaneShared { lane, first: mark.1, second: group });
            }
            *mark = (self.checks, group);
        }
        Ok(())
    }

    /// Checks that the claimed groups are the machine's, whole, and include every group with work.
    fn check_groups(&self, facts: &Facts<'_>) -> Result<(), Refusal> {
        let is_claimed = |&&(check, _): &&(u64, LaneId)| check == self.checks;
        for (lane, (mark, fact)) in (0..).map(LaneId).zip(self.lanes.iter().zip(facts.lanes)) {
            let group = fact.group;
            if mark.0 == self.checks {
                if mark.1 != group {
                    return Err(Refusal::OtherGroup { lane, claimed: mark.1, actual: group });
                }
            } else if self.lanes.get(usize::from(group.0)).filter(is_claimed).is_some() {
                return Err(Refusal::SplitGroup { group, lane });
            } else if fact.has_work {
                return Err(Refusal::Unclaimed { group, lane });
            }
        }
        Ok(())
    }

    /// Releases what a group owns.
    fn release(&mut self, group: LaneId) -> Option<(u64, Sets)> {
        let owned = self.accepted[usize::from(group.0)].take();
        if let Some((_, sets)) = &owned {
            sets.sessions.iter().for_each(|session| self.sessions[session.0 as usize] = NO_OWNER);
            for channel in &sets.channels {
                self.channels.remove(channel);
            }
        }
        owned
    }

    /// Makes a group the owner of sessions and channels without owners. On refusal, those acquired
    /// so far are recorded, to be released.
    fn acquire(&mut self, group: LaneId, version: u64, sets: &Sets) -> Result<(), Refusal> {
        let mut acquired = Sets::default();
        let result = self.acquire_into(group, sets, &mut acquired);
        self.accepted[usize::from(group.0)] = Some((version, acquired));
        result
    }

    fn acquire_into(
        &mut self,
        group: LaneId,
        sets: &Sets,
        acquired: &mut Sets,
    ) -> Result<(), Refusal> {
        let count = self.sessions.len() as u32;
        for &session in &sets.sessions {
            let Some(owner) = self.sessions.get_mut(session.0 as usize) else {
                return Err(Refusal::UnknownSession { session, sessions: count });
            };
            if *owner != NO_OWNER {
                return Err(Refusal::SessionShared {
                    session,
                    first: LaneId(*owner as u16),
                    second: group,
                });
            }
            *owner = u32::from(group.0);
            acquired.sessions.push(session);
        }
        for &channel in &sets.channels {
            if let Some(&owner) = self.channels.get(&channel) {
                return Err(Refusal::ChannelShared {
                    channel,
                    first: LaneId(owner as u16),
                    second: group,
                });
            }
            if self.sessions.get(channel.owner.0 as usize) != Some(&u32::from(group.0)) {
                return Err(Refusal::ForeignChannel { channel, group });
            }
            self.channels.insert(channel, u32::from(group.0));
            acquired.channels.push(channel);
        }
        Ok(())
    }

    /// Checks that the sets are those of every lane of the group and have been accepted.
    fn check_versions(
        &self,
        group: LaneId,
        claim: &Claim,
        facts: &Facts<'_>,
    ) -> Result<(), Refusal> {
        let accepted = self.accepted[usize::from(group.0)].as_ref().map(|(version, _)| *version);
        for lane in &claim.lanes {
            let Some(lane_facts) = facts.lanes.get(usize::from(lane.0)) else {
                return Err(Refusal::UnknownLane { lane: *lane, lanes: facts.lanes.len() as u32 });
            };
            let actual = lane_facts.set_version;
            if claim.set_version != actual || accepted != Some(actual) {
                return Err(Refusal::SetVersion {
                    group,
                    claimed: claim.set_version,
                    actual,
                    accepted,
                });
            }
        }
        Ok(())
    }

    /// Checks that a leased lane has the session of its lease and no other. The sets may have been
    /// accepted before the lease began, so they are looked at again.
    fn check_leases(&self, group: LaneId, claim: &Claim, facts: &Facts<'_>) -> Result<(), Refusal> {
        let accepted = self.accepted[usize::from(group.0)].as_ref();
        for &lane in &claim.lanes {
            let Some(holder) = facts.lanes.get(usize::from(lane.0)).and_then(|lane| lane.leased)
            else {
                continue;
            };
            let mut sessions = accepted.iter().flat_map(|(_, sets)| &sets.sessions);
            if let Some(&session) = sessions.find(|&&session| session != holder) {
                return Err(Refusal::LeasedLane { lane, holder, session });
            }
        }
        Ok(())
    }

    /// Checks that picks are listed in waves of picks only, on the group's lanes and of its
    /// sessions, and no more than the span allows.
    fn check_picks(&self, group: LaneId, claim: &Claim, span: Span) -> Result<(), Refusal> {
        let allowed = match span {
            Span::Cycles(_) => 0,
            Span::Picks(picks) => picks.saturating_mul(claim.lanes.len() as u32),
        };
        if claim.picks.len() as u32 > allowed {
            return Err(Refusal::PickCount { group, found: claim.picks.len() as u32, allowed });
        }
        for pick in &claim.picks {
            let mark = self.lanes.get(usize::from(pick.lane.0));
            if mark != Some(&(self.checks, group)) {
                return Err(Refusal::PickLane { group, lane: pick.lane });
            }
            if self.sessions.get(pick.session.0 as usize) != Some(&u32::from(group.0)) {
                return Err(Refusal::PickSession { group, session: pick.session });
            }
        }
        Ok(())
    }
}

/// Checks that the sessions of a group, no two of them equal, are the machine's.
fn check_sessions(group: LaneId, sets: &Sets, facts: &Facts<'_>) -> Result<(), Refusal> {
    for &session in &sets.sessions {
        let actual = facts.sessions.get(session.0 as usize).copied();
        if actual != Some(group) {
            return Err(Refusal::OtherSession { session, claimed: group, actual });
        }
    }
    let found = sets.sessions.len() as u32;
    match facts.lanes.get(usize::from(group.0)) {
        Some(fact) if fact.sessions != found => {
            Err(Refusal::SessionCount { group, found, actual: fact.sessions })
        }
        _ => Ok(()),
    }
}
