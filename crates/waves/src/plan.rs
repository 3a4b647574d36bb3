//! The planner: a pure function from what groups say about themselves to a certificate. It may be wrong; the checker decides.

use wavelock_abi::LaneId;
use wavelock_certify::{Certificate, Claim, Facts, LaneFacts, Pick, Sets, Span};
use wavelock_system::World;

/// Who makes certificates. A test can put another in its place.
pub trait Plan {
    /// A certificate for the open wave of `world`.
    fn plan(&mut self, world: &World) -> Certificate;
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
    fn plan(&mut self, world: &World) -> Certificate {
        self.sent.resize(usize::from(world.spec().lanes), 0);
        let span = span(world);
        let claims = world
            .groups()
            .iter()
            .filter_map(|group| {
                let lanes: Vec<LaneId> = group.lanes().map(|(lane, _)| lane).collect();
                let ready_digest = group.lanes().fold(0u64, |sum, (_, digest)| sum.wrapping_add(digest));
                let sent = &mut self.sent[usize::from(lanes[0].0)];
                let set_version = group.set_version();
                let changed = *sent != set_version;
                *sent = set_version;
                // A group without work has nothing to run, but if a session left it the checker must learn that it holds less.
                if !changed && !group.has_work() {
                    return None;
                }
                let sets = changed.then(|| Sets { sessions: group.sessions().collect(), channels: group.wired_channels().collect() });
                let picks = match span {
                    Span::Cycles(_) => Vec::new(),
                    Span::Picks(_) => {
                        group.next_picks().map(|(lane, name)| Pick { lane, session: name.session, coroutine: name.reference }).collect()
                    }
                };
                Some(Claim { lanes, set_version, sets, ready_digest, picks })
            })
            .collect();
        Certificate { wave: world.wave(), span, claims }
    }
}

impl Planner {
    /// What was sent is forgotten: a checker that refused a certificate has not kept its sets.
    pub fn forget(&mut self) {
        self.sent.clear();
    }
}

/// What the machine states about itself for the checker.
pub(crate) fn lane_facts(world: &World) -> Vec<LaneFacts> {
    let mut lanes = vec![LaneFacts { ready_digest: 0, set_version: 0 }; usize::from(world.spec().lanes)];
    for group in world.groups() {
        for (lane, ready_digest) in group.lanes() {
            lanes[usize::from(lane.0)] = LaneFacts { ready_digest, set_version: group.set_version() };
        }
    }
    lanes
}

/// The facts of the open wave.
pub(crate) fn facts<'a>(world: &World, lanes: &'a [LaneFacts]) -> Facts<'a> {
    Facts { wave: world.wave(), span: span(world), lanes }
}
