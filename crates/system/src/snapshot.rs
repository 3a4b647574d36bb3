//! A machine kept in memory, to return to: what a rollback needs.
//!
//! [`World::snapshot`] copies the machine and [`World::roll_back`] returns to it. Unlike the bytes
//! of a state (`state`), a snapshot belongs to the process: it holds what the host has (logs,
//! profiles, inputs to come), its memories share the pages that did not change, and returning
//! copies only the pages that differ. Nothing is loaded, linked or checked again.
//!
//! Contract: after a rollback the world has the canonical bytes, digest and inputs to come that it
//! had when the snapshot was taken. A snapshot is no input: taking one changes nothing of the run.
//! Elsewhere: how memories are shared (`machine`).

use crate::context::Request;
use crate::deadlock::Deadlock;
use crate::functions::Answers;
use crate::group::{Credit, Group, LaneState};
use crate::index::{GroupIndex, LaneIndex};
use crate::lease::LeaseRun;
use crate::live::Given;
use crate::moves::StuckMigrations;
use crate::parcels::Parcel;
use crate::session::SessionState;
use crate::spec::MachineSpec;
use crate::start::Planned;
use crate::state::{StateError, StateHead};
use crate::wave_profile::WaveProfile;
use crate::world::{Phase, World};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, Cycles, Frame, LaneId, SessionId};
use wavelock_kernel::{ContextRefusal, Lane, Outbox};
use wavelock_machine::{KeptSession, MemoryAddress, Session};
use wavelock_trace::{Digest, LaneLog, RunDigest};

/// A machine as it was between two frames, or at its end. Cloning it costs one reference count; it
/// can be dropped on any thread.
#[derive(Clone)]
pub struct Snapshot(Arc<Kept>);

impl Snapshot {
    /// The frame that starts next.
    #[must_use]
    pub fn next_frame(&self) -> Frame {
        self.0.progress.frame
    }

    /// The run digest at that point.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest.value()
    }

    /// Whether it is of this machine, or of one with the same description.
    #[must_use]
    pub fn is_of(&self, world: &World) -> bool {
        Arc::ptr_eq(&self.0.spec, &world.spec) || self.0.spec.identity() == world.spec.identity()
    }
}

const fn is_sendable<T: Send + Sync>() {}
const _: () = is_sendable::<Snapshot>();

/// The fields of a world, without what is empty at a boundary.
struct Kept {
    spec: Arc<MachineSpec>,
    groups: Vec<KeptGroup>,
    progress: StateHead,
    phase: Phase,
    digest: RunDigest,
    lane_positions: Arc<[(GroupIndex, LaneIndex)]>,
    session_groups: Vec<GroupIndex>,
    group_lanes: Vec<LaneId>,
    wired_senders: BTreeMap<ChannelId, Vec<SessionId>>,
    leases: Vec<LeaseRun>,
    inputs: VecDeque<Given>,
    waiting_bytes: u64,
    planned: Option<Planned>,
    replies: BTreeSet<(SessionId, u64)>,
    is_stopping: bool,
    ended_sessions: usize,
    sampled: Vec<SessionId>,
    boundary: Vec<u8>,
    deadlock: Option<Deadlock>,
    before_end: Option<(Digest, Frame)>,
    stuck: Option<StuckMigrations>,
    wave_profile: Option<Box<WaveProfile>>,
    frame_peak: u64,
}

struct KeptGroup {
    /// The group without its lanes and sessions.
    group: Group,
    lanes: Vec<KeptLane>,
    sessions: Vec<KeptState>,
}

/// A lane, without what is empty at a boundary.
struct KeptLane {
    id: u16,
    kernel: Lane,
    /// `None` if it has no event, as after every frame.
    log: Option<LaneLog>,
    credits: Vec<Credit>,
    credit_lines: BTreeMap<ChannelId, u32>,
    mark: Cycles,
    steps: u64,
    requests: Vec<Request>,
    refusal: Option<ContextRefusal>,
}

struct KeptState {
    /// The session without its machine.
    state: SessionState,
    machine: KeptSession,
}

/// What a rollback takes from the world that it replaces.
struct Donors {
    logs: BTreeMap<u16, LaneLog>,
    machines: BTreeMap<SessionId, Session>,
    keep_events: bool,
}

impl KeptState {
    fn of(state: &mut SessionState) -> Self {
        let machine = state.machine.keep();
        let blank = Session::new(*state.machine.limits());
        let live = core::mem::replace(&mut state.machine, blank);
        let copy = state.clone();
        state.machine = live;
        Self { state: copy, machine }
    }

    fn restore(&self, donors: &mut Donors) -> SessionState {
        let mut state = self.state.clone();
        if let Some(machine) = donors.machines.remove(&state.id) {
            state.machine = machine;
        }
        state.machine.restore(&self.machine);
        state
    }
}

impl KeptLane {
    fn of(lane: &LaneState) -> Self {
        let LaneState {
            id,
            kernel,
            log,
            outbox,
            parcels,
            credits,
            credit_lines,
            mark,
            steps,
            requests,
            lease_asks,
            commands,
            answers: _,
            refusal,
        } = lane;
        let is_empty = outbox.is_empty()
            && commands.is_empty()
            && lease_asks.is_empty()
            && parcels.iter().all(Parcel::is_empty);
        debug_assert!(is_empty, "no effect crosses a boundary");
        Self {
            id: *id,
            kernel: kernel.clone(),
            log: (!log.is_fresh()).then(|| log.clone()),
            credits: credits.clone(),
            credit_lines: credit_lines.clone(),
            mark: *mark,
            steps: *steps,
            requests: requests.clone(),
            refusal: *refusal,
        }
    }

    fn restore(&self, donors: &mut Donors) -> LaneState {
        let log = match (&self.log, donors.logs.remove(&self.id)) {
            (Some(log), _) => log.clone(),
            (None, Some(mut log)) => {
                log.restart();
                log
            }
            (None, None) => LaneLog::new(donors.keep_events),
        };
        LaneState {
            id: self.id,
            kernel: self.kernel.clone(),
            log,
            outbox: Outbox::new(),
            parcels: Vec::new(),
            credits: self.credits.clone(),
            credit_lines: self.credit_lines.clone(),
            mark: self.mark,
            steps: self.steps,
            requests: self.requests.clone(),
            commands: Vec::new(),
            lease_asks: Vec::new(),
            answers: Answers::default(),
            refusal: self.refusal,
        }
    }
}

impl KeptGroup {
    fn of(group: &mut Group) -> Self {
        let lanes = core::mem::take(&mut group.lanes);
        let mut sessions = core::mem::take(&mut group.sessions);
        let kept = Self {
            group: group.clone(),
            lanes: lanes.iter().map(KeptLane::of).collect(),
            sessions: sessions.iter_mut().map(KeptState::of).collect(),
        };
        (group.lanes, group.sessions) = (lanes, sessions);
        kept
    }

    fn restore(&self, donors: &mut Donors) -> Box<Group> {
        let mut group = Box::new(self.group.clone());
        group.lanes = self.lanes.iter().map(|lane| lane.restore(donors)).collect();
        group.sessions = self.sessions.iter().map(|state| state.restore(donors)).collect();
        if !group.shared.rules.keeps_holds() {
            group.release_holds();
        }
        group
    }
}

impl Donors {
    /// Takes the parts out of a world's groups.
    fn of(groups: Vec<Box<Group>>) -> Self {
        let mut donors =
            Self { logs: BTreeMap::new(), machines: BTreeMap::new(), keep_events: false };
        for group in groups {
            let Group { lanes, sessions, .. } = *group;
            for lane in lanes {
                donors.keep_events = lane.log.keeps();
                donors.logs.insert(lane.id, lane.log);
            }
            donors.machines.extend(sessions.into_iter().map(|state| (state.id, state.machine)));
        }
        donors
    }
}

impl World {
    /// A copy of the machine to return to with [`World::roll_back`]. It shares with earlier ones
    /// the memory that did not change in between; the first one copies all of it.
    ///
    /// # Errors
    /// [`StateError::NotABoundary`] in the middle of a frame.
    pub fn snapshot(&mut self) -> Result<Snapshot, StateError> {
        if matches!(self.phase, Phase::Frame | Phase::Wave(_)) {
            return Err(StateError::NotABoundary);
        }
        let groups = self.groups.iter_mut().map(|group| KeptGroup::of(group)).collect();
        Ok(Snapshot(Arc::new(Kept {
            groups,
            spec: self.spec.clone(),
            progress: self.progress.clone(),
            phase: self.phase,
            digest: self.digest.clone(),
            lane_positions: self.lane_positions.clone(),
            session_groups: self.session_groups.clone(),
            group_lanes: self.group_lanes.clone(),
            wired_senders: self.wired_senders.clone(),
            leases: self.leases.clone(),
            inputs: self.inputs.clone(),
            waiting_bytes: self.waiting_bytes,
            planned: self.planned.clone(),
            replies: self.replies.clone(),
            is_stopping: self.is_stopping,
            ended_sessions: self.ended_sessions,
            sampled: self.sampled.clone(),
            boundary: self.boundary.clone(),
            deadlock: self.deadlock.clone(),
            before_end: self.before_end,
            stuck: self.stuck,
            wave_profile: self.wave_profile.clone(),
            frame_peak: self.frame_peak,
        })))
    }

    /// Checks the invariant that snapshots rely on: the first page of a session's memory that was
    /// written without a mark. Reads all memory; for tests.
    #[must_use]
    pub fn unmarked_page(&self) -> Option<(SessionId, MemoryAddress, usize)> {
        let mut sessions = self.groups.iter().flat_map(|group| &group.sessions);
        sessions.find_map(|state| {
            let (memory, page) = state.machine.unmarked_page()?;
            Some((state.id, memory, page))
        })
    }

    /// Returns to a snapshot of this machine, whatever happened since, also after the run's end.
    /// Copies what differs. Inputs that were given and wait are those of the snapshot; up to which
    /// frame the machine may run ([`World::allow`]) does not change. A snapshot of another machine
    /// makes the world that machine.
    pub fn roll_back(&mut self, snapshot: &Snapshot) {
        let kept = &*snapshot.0;
        let rules = self.groups[0].shared.rules;
        let mut donors = Donors::of(core::mem::take(&mut self.groups));
        *self = Self {
            groups: kept.groups.iter().map(|group| group.restore(&mut donors)).collect(),
            spec: kept.spec.clone(),
            progress: kept.progress.clone(),
            phase: kept.phase,
            digest: kept.digest.clone(),
            lane_positions: kept.lane_positions.clone(),
            session_groups: kept.session_groups.clone(),
            group_lanes: kept.group_lanes.clone(),
            wired_senders: kept.wired_senders.clone(),
            leases: kept.leases.clone(),
            inputs: rules.kept_inputs(&kept.inputs),
            waiting_bytes: kept.waiting_bytes,
            planned: kept.planned.clone(),
            replies: kept.replies.clone(),
            until: self.until,
            host_code: self.host_code.take(),
            is_stopping: kept.is_stopping,
            ended_sessions: kept.ended_sessions,
            sampled: kept.sampled.clone(),
            boundary: kept.boundary.clone(),
            deadlock: kept.deadlock.clone(),
            before_end: kept.before_end,
            stuck: kept.stuck,
            wave_profile: kept.wave_profile.clone(),
            frame_peak: kept.frame_peak,
        };
    }
}
