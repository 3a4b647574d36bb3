//! The planner: a pure function from what groups say about themselves to a certificate. It may be
//! wrong; the checker decides.

use wavelock_abi::{CoroutineName, LaneId};
use wavelock_certify::{Certificate, Claim, Facts, LaneFacts, Pick, Sets, Span};
use wavelock_system::World;

/// Who makes certificates. A test can put another in its place.
pub trait Plan {
    /// Makes `certificate` one for the open wave of `world`. What was in it is of an earlier wave:
    /// space to be used again.
    fn plan(&mut self, world: &World, certificate: &mut Certificate);

    /// The checker refused the last certificate, and so has not kept the sets in it.
    fn refused(&mut self);
}

/// The ordinary planner: every group with work or with other sets than it last sent.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// By first lane of a group: the version of its sets that was sent last.
    sent: Vec<u64>,
}

/// The span of a machine as certificates say it.
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
            // A group without work has nothing to run, but if a session left it the checker must
            // learn that it holds less.
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

/// What the machine states about itself for the checker.
pub(crate) fn state_facts(world: &World, lanes: &mut Vec<LaneFacts>) {
    lanes.clear();
    lanes.resize(usize::from(world.spec().lanes), LaneFacts { ready_digest: 0, set_version: 0 });
    for group in world.groups() {
        for (lane, ready_digest) in group.lanes() {
            lanes[usize::from(lane.0)] =
                LaneFacts { ready_digest, set_version: group.set_version() };
        }
    }
}

/// The facts of the open wave.
pub(crate) fn facts<'a>(world: &World, lanes: &'a [LaneFacts]) -> Facts<'a> {
    Facts { wave: world.wave(), span: span(world), lanes }
}
