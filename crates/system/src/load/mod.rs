//! Loading: from a spec to a world. Checks the description, instantiates sessions, wires channels
//! and publishes first coroutines.
//!
//! ```text
//!   check ──▶ place ──▶ wire::make_groups ──▶ link::make_session, publish_first ──▶ contexts
//!     ──▶ wire::wire
//! ```
//!
//! Contract: everything is checked before anything runs; an error names the session, what was found
//! and what is allowed (`error`). Warnings do not stop a machine.

mod check;
mod error;
mod link;
mod place;
mod warn;
mod wire;

pub(crate) use check::{caps as check_caps, check_references, check_spec, memory as check_memory};
pub use error::{LoadError, MissingImport, Warning};
pub(crate) use link::{can_park_or_watch, make_session, reads_stream_only as reads_stream};

use crate::group::Group;
use crate::index::{LaneIndex, SessionIndex};
use crate::input::{Coming, InputEvent, InputQueue, Recipient};
use crate::lease::LeaseRun;
use crate::live::Given;
use crate::random::Key;
use crate::session::SessionState;
use crate::spec::MachineSpec;
use crate::state::StateHead;
use crate::task::{Task, Wait};
use crate::world::{Phase, World};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{CoroutineRef, Cycles, Frame, LaneId, SessionId};
use wavelock_machine::Coroutine;
use wavelock_trace::RunDigest;

/// Most lanes a machine may have.
pub const MAX_LANES: u16 = 1024;

/// The longest frame, wave, quantum or period: clocks count thousands of them on every lane.
pub const MOST_CYCLES: Cycles = Cycles(1_000_000_000_000);

/// The longest period of a cap.
pub const MOST_PERIOD_FRAMES: u64 = 1_000_000;

/// A world ready to run, with warnings.
pub struct Loaded {
    /// The world.
    pub world: World,
    /// Warnings: of one kind in session order.
    pub warnings: Vec<Warning>,
}

impl World {
    /// Makes the machine of `spec`, with its inputs in frame order. `keep_events` keeps each
    /// frame's events for a recorder.
    ///
    /// # Errors
    /// See [`LoadError`]; nothing has run.
    pub fn load(
        spec: MachineSpec,
        inputs: Vec<InputEvent>,
        keep_events: bool,
    ) -> Result<Loaded, LoadError> {
        let spec = match &spec.origin {
            Some(origin) => (**origin).clone(),
            None => spec,
        };
        Self::load_as_is(spec, inputs, keep_events)
    }

    /// The same, with what control inputs have changed: to restore a state.
    pub(crate) fn load_as_is(
        spec: MachineSpec,
        inputs: Vec<InputEvent>,
        keep_events: bool,
    ) -> Result<Loaded, LoadError> {
        check_spec(&spec)?;
        check::inputs(&inputs, spec.sessions.len())?;
        check::memory(&spec)?;
        let of_masks = place::place(&spec)?;
        let placed = of_masks.as_ref().unwrap_or(&spec);
        let mut warnings = Vec::new();
        let mut groups = wire::make_groups(placed, keep_events);
        crate::lease::check_leases(placed, &groups)?;
        let lane_positions = groups[0].shared.lane_positions.clone();
        let mut session_groups = Vec::with_capacity(spec.sessions.len());
        let coming = events_coming(&inputs, placed.sessions.len());
        for (at, session) in placed.sessions.iter().enumerate() {
            let id = SessionId(at as u32);
            let (group, lane) = lane_positions[usize::from(session.placement.home())];
            let mut state = link::make_session(placed, session, id, &mut warnings)?;
            let is_stream = link::reads_stream_only(&placed.modules[session.module]);
            let events = if spec.live { Coming::Open } else { Coming::Known(coming[at]) };
            state.input = InputQueue::new(events, is_stream);
            let group_state = &mut groups[group];
            group_state.local.insert(id, SessionIndex::new(group_state.sessions.len()));
            group_state.sessions.push(state);
            publish_first(placed, group_state, lane, id)?;
            session_groups.push(group);
        }
        warn::passive_servers(placed, &mut warnings);
        let group_lanes =
            session_groups.iter().map(|&group| LaneId(groups[group].lanes[0].id)).collect();
        crate::cap::set_caps(placed, &mut groups, &lane_positions)?;
        crate::context::grant(placed, &mut groups, &lane_positions)?;
        // Control inputs may take from an island what it was admitted with.
        if spec.origin.is_none() {
            crate::island::admit_all(placed)?;
        }
        crate::lease::reserve(placed, &mut groups, &lane_positions);
        let wired_senders = wire::wire(placed, &mut groups, &lane_positions, &session_groups);
        let spec_leases = alloc::vec![LeaseRun::default(); spec.leases.len()];
        let digest = RunDigest::new(&spec.identity());
        let until = if spec.live { Frame::ZERO } else { Frame(u64::MAX) };
        let peak = groups.iter().map(|group| group.live).sum();
        let world = Self {
            spec: Arc::new(spec),
            groups,
            progress: StateHead::start(digest.value(), peak),
            phase: Phase::Boundary,
            before_end: None,
            stuck: None,
            digest,
            lane_positions,
            session_groups,
            group_lanes,
            leases: spec_leases,
            wired_senders,
            replies: BTreeSet::new(),
            waiting_bytes: inputs.iter().map(|event| event.bytes.len() as u64).sum(),
            inputs: inputs.into_iter().map(Given::from).collect(),
            until,
            is_stopping: false,
            ended_sessions: 0,
            sampled: Vec::new(),
            boundary: Vec::new(),
            deadlock: None,
            wave_profile: None,
            planned: None,
            host_code: None,
            frame_peak: 0,
        };
        Ok(Loaded { world, warnings })
    }
}

/// The number of input events for each session.
fn events_coming(inputs: &[InputEvent], sessions: usize) -> Vec<u64> {
    let all = inputs.iter().filter(|event| event.recipient == Recipient::All).count() as u64;
    let mut coming = alloc::vec![all; sessions];
    for event in inputs {
        if let Recipient::Session(session) = event.recipient {
            coming[session.0 as usize] += 1;
        }
    }
    coming
}

/// Whether the entries of a session that is then dropped can be called.
pub(crate) fn check_entries(state: SessionState) -> Result<(), LoadError> {
    for &entry in &state.startup {
        let started = Coroutine::start(&state.machine, entry, &[]);
        let refused = |error| LoadError::Start { session: state.name.clone(), error };
        state.machine.retire(&mut started.map_err(refused)?);
    }
    Ok(())
}

/// The first coroutine: ready on the session's home lane, with the first of the session's entries
/// to call.
pub(crate) fn publish_first(
    spec: &MachineSpec,
    group: &mut Group,
    lane: LaneIndex,
    id: SessionId,
) -> Result<(), LoadError> {
    let index = group.local[id];
    let state = &mut group.sessions[index];
    let start = |entry| {
        Coroutine::start(&state.machine, entry, &[])
            .map_err(|error| LoadError::Start { session: state.name.clone(), error })
    };
    // Later entries are called when the first has returned; whether they can be is checked now.
    for &entry in &state.startup {
        state.machine.retire(&mut start(entry)?);
    }
    let coroutine = start(*state.startup.last().expect("a session has an entry"))?;
    state.startup.pop();
    let kernel = group.lanes[lane]
        .publish(state.spawn(0))
        .map_err(|refusal| LoadError::Kernel { session: state.name.clone(), refusal })?;
    let key = Key::root(spec.seed, &state.name);
    let lane = group.lanes[lane].id;
    let task = Task { kernel, key, wait: Wait::None };
    let reference = state.tasks.insert(task, lane, coroutine);
    debug_assert_eq!(reference, CoroutineRef::new(0, 0));
    group.live += 1;
    Ok(())
}
