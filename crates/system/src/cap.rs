//! Caps of sessions as traces and reports see them: the events, and the accounts of all lanes.
//!
//! Contract: an account belongs to one lane, so that nothing of a cap crosses lanes inside a wave.
//! A session that is split has a part of its cap on each of its lanes; one that moves takes its
//! account along. Elsewhere: charging, throttling and refilling (`kernel`).

use crate::context::Request;
use crate::group::{Group, LaneState};
use crate::index::{GroupIndex, LaneIndex};
use crate::load::LoadError;
use crate::spec::MachineSpec;
use crate::world::World;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{Frame, LaneId, SessionId};
use wavelock_kernel::{CapEventKind, CapState, Refusal};
use wavelock_trace::Event;

/// The cap of a session on one of its lanes, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapSummary {
    /// The session.
    pub session: SessionId,
    /// The lane.
    pub lane: LaneId,
    /// The account.
    pub account: CapState,
    /// While it is used up: the frame in which the session can run, or competes, again.
    pub until: Option<Frame>,
}

/// Opens the accounts of capped sessions on their lanes. If sessions can move, every lane gets room
/// for all accounts.
pub(crate) fn set_caps(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_positions: &[(GroupIndex, LaneIndex)],
) -> Result<(), LoadError> {
    for (session, of) in (0u32..).zip(&spec.sessions) {
        for (position, &lane) in of.placement.lanes().iter().enumerate() {
            let Some(part) = of.cap_at(position) else { continue };
            let (group, lane) = lane_positions[usize::from(lane)];
            let kernel = &mut groups[group.get()].lanes[lane].kernel;
            let set = kernel.set_cap(session, part);
            set.map_err(|refusal| LoadError::Machine { refusal })?;
        }
    }
    let lanes = groups.iter_mut().flat_map(|group| &mut group.lanes);
    lanes.into_iter().try_for_each(|lane| lane.reserve_caps(spec))
}

impl LaneState {
    /// Makes room for the accounts of sessions that can move here.
    pub(crate) fn reserve_caps(&mut self, spec: &MachineSpec) -> Result<(), LoadError> {
        self.room_for_caps(spec).map_err(|refusal| LoadError::Machine { refusal })
    }

    /// The same, while the machine runs.
    pub(crate) fn room_for_caps(&mut self, spec: &MachineSpec) -> Result<(), Refusal> {
        let moves = spec.steal || spec.balance || !spec.leases.is_empty();
        if !spec.has_caps() || !moves {
            return Ok(());
        }
        let capped = spec.sessions.iter().filter(|session| session.cap.is_some()).count();
        self.kernel.reserve_caps(capped as u32)
    }

    /// Logs what happened to caps since the last call; requests among it wait for the next step.
    #[inline]
    pub(crate) fn log_cap_events(&mut self) {
        if self.kernel.has_cap_events() {
            self.drain_cap_events();
        }
    }

    #[cold]
    #[inline(never)]
    fn drain_cap_events(&mut self) {
        let (log, requests) = (&mut self.log, &mut self.requests);
        self.kernel.drain_cap_events(|event| {
            let (session, used) = (u64::from(event.session), event.used.0);
            let budget = event.budget.0;
            match event.kind {
                CapEventKind::Throttled { until } => {
                    log.event(&Event::CapThrottle { session, used, budget, until: until.0 });
                }
                CapEventKind::Demoted { until } => {
                    log.event(&Event::CapDemote { session, used, budget, until: until.0 });
                }
                CapEventKind::Ended => requests.push(Request::EndSession {
                    session: SessionId(event.session),
                    budget: event.budget,
                    used: event.used,
                }),
                CapEventKind::Refilled => log.event(&Event::CapRefill { session, used, budget }),
            }
        });
    }
}

impl World {
    /// The cap of a session, on each of its lanes in the order of its placement.
    #[must_use]
    pub fn caps_of(&self, session: SessionId) -> Vec<CapSummary> {
        if self.session_groups.get(session.0 as usize).is_none() {
            return Vec::new();
        }
        let lanes = self.session_ref(session).lanes.iter();
        lanes
            .filter_map(|&lane| {
                let kernel = &self.lane_ref(lane).kernel;
                let account = *kernel.cap(session.0)?;
                let until = kernel.capped_until(session.0);
                Some(CapSummary { session, lane: LaneId(lane), account, until })
            })
            .collect()
    }

    /// Every cap, by session.
    #[must_use]
    pub fn caps(&self) -> Vec<CapSummary> {
        self.session_ids().flat_map(|session| self.caps_of(session)).collect()
    }

    /// The first frame in which a throttled session can run again.
    pub(crate) fn next_cap_refill(&self) -> Option<Frame> {
        self.lanes().filter_map(|lane| lane.kernel.next_cap_refill()).min()
    }
}
