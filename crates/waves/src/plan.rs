//! The planner: a function from the state of the groups to a certificate. It is not trusted: the
//! checker decides.

use wavelock_abi::{CoroutineName, LaneId};
use wavelock_certify::{Certificate, Claim, LaneFacts, Pick, Sets, Span};
use wavelock_system::World;

/// Makes certificates. Tests replace it.
pub trait Plan {
    /// Overwrites `certificate` with one for the open wave of `world`; its allocations are reused.
    fn plan(&mut self, world: &World, certificate: &mut Certificate);

    /// The checker refused the last certificate, or starts anew (a rollback): the sets must be sent
    /// again.
    fn refused(&mut self);
}

/// The default planner: claims every group that has work or whose sets changed.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// By first lane of a group: the version of its sets sent last.
    sent: Vec<u64>,
}

/// The span of a machine's waves, for certificates.
pub(crate) fn span(world: &World) -> Span {
    match world.spec().span {
        wavelock_system::Span::Cycles(cycles) => Span::Cycles(cycles.0),
        wavelock_system::Span::Picks(picks) => Span::Picks(picks),
    }
}

impl Plan for Planner {
    fn plan(&mut self, world: &World, certificate: &mut Certificate) {
        self.sent.resize(usize::from(world.spec().lanes), 0);
        certificate.wave = world.wave();
        certificate.span = span(world);
        let mut used = 0;
        for group in world.groups() {
            let Some((first, _)) = group.lanes().next() else { continue };
            let sent = &mut self.sent[usize::from(first.0)];
            let set_version = group.set_version();
            let changed = *sent != set_version;
            // A group without work is skipped, unless the checker must learn that it owns less
            // because a session left it.
            if !changed && !group.has_work() {
                continue;
            }
            *sent = set_version;
            if used == certificate.claims.len() {
                certificate.claims.push(Claim {
                    lanes: Vec::new(),
                    set_version: 0,
                    sets: None,
                    ready_digest: 0,
                    picks: Vec::new(),
                });
            }
            let claim = &mut certificate.claims[used];
            used += 1;
            claim.lanes.clear();
            claim.lanes.extend(group.lanes().map(|(lane, _)| lane));
            claim.ready_digest =
                group.lanes().fold(0u64, |sum, (_, digest)| sum.wrapping_add(digest));
            claim.set_version = set_version;
            claim.sets = changed.then(|| Sets {
                sessions: group.sessions().collect(),
                channels: group.wired_channels().collect(),
            });
            claim.picks.clear();
            if let Span::Picks(_) = certificate.span {
                let pick = |(lane, name): (LaneId, CoroutineName)| Pick {
                    lane,
                    session: name.session,
                    coroutine: name.reference,
                };
                claim.picks.extend(group.next_picks().map(pick));
            }
        }
        certificate.claims.truncate(used);
    }

    fn refused(&mut self) {
        self.sent.clear();
    }
}

/// Collects the machine's report about its lanes and groups, for the checker.
pub(crate) fn lane_facts(world: &World, lanes: &mut Vec<LaneFacts>) {
    let unknown = LaneFacts {
        ready_digest: 0,
        set_version: 0,
        group: LaneId(0),
        sessions: 0,
        has_work: false,
        leased: None,
    };
    lanes.clear();
    lanes.resize(usize::from(world.spec().lanes), unknown);
    for group in world.groups() {
        let Some((first, _)) = group.lanes().next() else { continue };
        let (set_version, sessions, has_work) =
            (group.set_version(), group.session_count(), group.has_work());
        for (lane, ready_digest) in group.lanes() {
            let leased = world.leased_to(lane);
            lanes[usize::from(lane.0)] =
                LaneFacts { ready_digest, set_version, group: first, sessions, has_work, leased };
        }
    }
}
