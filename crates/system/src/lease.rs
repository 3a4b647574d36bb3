//! Leases of lanes: who may ask, what has to move, when a lease is active, and what ends it
//! (cpu-authority F, semantics 120 to 127).
//!
//! ```text
//!   in a wave:       lease_request, lease_revoke of another lane ──▶ asks of the lane
//!   at a wave's end: ends ──▶ released ──▶ each lease one step further ──▶ new requests
//!   at a frame's start: leases that expire, and control inputs
//! ```
//!
//! Contract: a step that other lanes could see happens at a wave's end or a frame's start, by one
//! thread, in the order of the description. Inside a wave a lease can only end, and only on its own
//! lane. A lease that is on its way closes its lane step by step; before anything moves it is
//! certain that everything can, so a lease that is denied for what cannot move has moved nothing.
//! An active lease with noise is ended: that is our bug, and no longer quiet. Elsewhere: the steps
//! and the evidence of the lane itself (`kernel`).

use crate::authority::Capability;
use crate::context::errno_of;
use crate::errors::errors;
use crate::group::{Effect, Group, LaneState};
use crate::host::{Done, HostResult, Refused, Region};
use crate::index::{GroupIndex, LaneIndex, SessionIndex};
use crate::load::LoadError;
use crate::moves::DRAINED;
use crate::spec::MachineSpec;
use crate::step::Site;
use crate::task::{Named, Wait};
use crate::world::World;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, ContextRef, CoroutineName, Cycles, Errno, Frame, HostOperation as Op, LaneId,
    LeaseRef, SchedulerOperation, SessionId,
};
use wavelock_kernel::{
    BlockReason, ContextRefusal, Evidence, LeaseEnd, LeasePhase, LeaseRefusal, LeaseRequest,
    LeaseState, Missing, MoveBan, WakeSource,
};
use wavelock_trace::Event;

/// Frames for which a lease waits for sessions that cannot move yet, because they are in a call.
const DRAIN_FRAMES: u64 = 8;

/// Bytes of a lease's state in a guest's memory.
const STATE_BYTES: u32 = 64;

/// A lease that sessions and hosts may ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseSpec {
    /// Its name, unique in the machine.
    pub name: String,
    /// The session of its holder.
    pub session: SessionId,
    /// The context that pays, an index into [`MachineSpec::contexts`]: its lane is leased, to the
    /// coroutine that holds it.
    pub context: usize,
    /// The lane that this is meant to be; loading refuses another.
    pub lane: Option<u16>,
    /// Frames after which it ends by itself.
    pub expires_frames: Option<u64>,
    /// Cycles within which a revocation opens the lane again; without it the least that can be
    /// kept.
    pub revocation: Option<Cycles>,
    /// Channels of the session, indices into [`MachineSpec::channels`], whose messages may arrive
    /// on the lane while it is leased.
    pub wakes: Vec<usize>,
    /// It is asked for when the machine starts.
    pub at_start: bool,
}

impl LeaseSpec {
    /// A lease with the manifest's defaults: asked for at the start, without an end, no wake
    /// source.
    #[must_use]
    pub fn new(name: &str, session: SessionId, context: usize) -> Self {
        Self {
            name: name.into(),
            session,
            context,
            lane: None,
            expires_frames: None,
            revocation: None,
            wakes: Vec::new(),
            at_start: true,
        }
    }
}

impl MachineSpec {
    /// The position of a lease of the description.
    #[must_use]
    pub fn lease_named(&self, name: &str) -> Option<usize> {
        self.leases.iter().position(|lease| lease.name == name)
    }
}

errors! {
    /// Why a lease of the description cannot be.
    LeaseError {
        /// Two leases have one name.
        SameName => "another lease has this name",
        /// The context is not one of the session.
        Context {
            /// The context.
            context: String,
        } => "context `{context}` is of another session: a lease needs a context of its own session",
        /// It names another lane than that of its context.
        Lane {
            /// The lane it names.
            named: u16,
            /// That of its context.
            found: u16,
        } => "it is for lane {named}, and its context is on lane {found}",
        /// Lane 0 does the housekeeping.
        Housekeeping => "its context is on lane 0, which does the housekeeping of the machine and is never \
                         leased: put the session on another lane",
        /// The lane shares sessions with others.
        Shared {
            /// The lane.
            lane: u16,
            /// Lanes of its group.
            group: Vec<u16>,
        } => "lane {lane} shares a split session with others, lanes {group:?}: it cannot be leased alone",
        /// The bound on revocation cannot be kept.
        BoundTooTight {
            /// The bound.
            asked: Cycles,
            /// The least: a wave and 2 * G.
            least: Cycles,
        } => "revocation_cycles = {}: at least {} can be kept, wave_cycles + 2 * G" (asked.0, least.0),
        /// A wake source is a channel of another session.
        Wakes {
            /// The channel.
            channel: String,
        } => "channel `{channel}` is not received from by its session, so it wakes nothing of it",
        /// It would last for no frame.
        NoFrames => "expires_frames = 0: a lease lasts at least 1 frame",
        /// Two leases of one lane are asked for at the start.
        Twice {
            /// The lane.
            lane: u16,
            /// The other lease.
            other: String,
        } => "lease `{other}` is asked for at the start as well, and both are for lane {lane}",
    }
}

/// Checks the leases of a description whose sessions are placed.
pub(crate) fn check_leases(spec: &MachineSpec, groups: &[Box<Group>]) -> Result<(), LoadError> {
    for (at, lease) in spec.leases.iter().enumerate() {
        check_lease(spec, groups, at)
            .map_err(|error| LoadError::Lease { lease: lease.name.clone(), error })?;
    }
    Ok(())
}

fn check_lease(spec: &MachineSpec, groups: &[Box<Group>], at: usize) -> Result<(), LeaseError> {
    let lease = &spec.leases[at];
    let home = |lease: &LeaseSpec| spec.sessions[lease.session.0 as usize].placement.home();
    let (lane, context) = (home(lease), &spec.contexts[lease.context]);
    if spec.leases[..at].iter().any(|other| other.name == lease.name) {
        return Err(LeaseError::SameName);
    }
    if context.session != lease.session {
        return Err(LeaseError::Context { context: context.name.clone() });
    }
    if let Some(named) = lease.lane.filter(|&named| named != lane) {
        return Err(LeaseError::Lane { named, found: lane });
    }
    if lane == 0 {
        return Err(LeaseError::Housekeeping);
    }
    let group = groups.iter().find(|group| group.lanes.iter().any(|state| state.id == lane));
    let group: Vec<u16> =
        group.map_or_else(Vec::new, |group| group.lanes.iter().map(|state| state.id).collect());
    if group.len() > 1 {
        return Err(LeaseError::Shared { lane, group });
    }
    let least = least_revocation(spec);
    if let Some(asked) = lease.revocation.filter(|&asked| asked < least) {
        return Err(LeaseError::BoundTooTight { asked, least });
    }
    if lease.expires_frames == Some(0) {
        return Err(LeaseError::NoFrames);
    }
    let foreign = |&&wake: &&usize| spec.channels[wake].owner != lease.session;
    if let Some(&wake) = lease.wakes.iter().find(foreign) {
        return Err(LeaseError::Wakes { channel: spec.channels[wake].name.clone() });
    }
    let twice = |other: &&LeaseSpec| other.at_start && lease.at_start && home(other) == lane;
    match spec.leases[..at].iter().find(twice) {
        Some(other) => Err(LeaseError::Twice { lane, other: other.name.clone() }),
        None => Ok(()),
    }
}

/// Makes the places for leases, on the lanes that may be leased.
pub(crate) fn reserve(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_positions: &[(GroupIndex, LaneIndex)],
) {
    for lease in &spec.leases {
        let home = spec.sessions[lease.session.0 as usize].placement.home();
        let (group, lane) = lane_positions[usize::from(home)];
        groups[group.get()].lanes[lane].kernel.reserve_lease();
    }
}

/// The least bound on revocation of any lane.
fn least_revocation(spec: &MachineSpec) -> Cycles {
    let settings = spec.context_settings();
    settings.map_or(Cycles::ZERO, |settings| {
        Cycles(settings.wave.unwrap_or_default().0 + 2 * settings.gap.0)
    })
}

/// What groups need to know of a lease of the description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SharedLease {
    pub(crate) name: String,
    pub(crate) session: SessionId,
    pub(crate) wakes: Vec<ChannelId>,
}

impl MachineSpec {
    /// See [`SharedLease`].
    pub(crate) fn shared_leases(&self) -> Arc<[SharedLease]> {
        let leases = self.leases.iter().map(|lease| SharedLease {
            name: lease.name.clone(),
            session: lease.session,
            wakes: lease.wakes.iter().map(|&channel| self.channel_id(channel)).collect(),
        });
        leases.collect()
    }
}

/// What a coroutine asks of a lease that is not of its own lane, or that is not active yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeaseAsk {
    pub(crate) what: LeaseWish,
    /// Who waits for the answer.
    pub(crate) by: Option<CoroutineName>,
    /// The clock of its lane.
    pub(crate) at: Cycles,
}

/// See [`LeaseAsk`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseWish {
    /// The lease at this position of the description.
    Request(usize),
    /// The end of a lease.
    End(LeaseRef, LeaseEnd),
}

/// What happened to a lease of the description so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeaseCounts {
    /// Requests that its lane took.
    pub requests: u64,
    /// Times it became active.
    pub activations: u64,
    /// Times it was denied.
    pub denials: u64,
    /// Ends, by [`LeaseEnd`] in table order.
    pub ends: [u64; LeaseEnd::COUNT],
    /// Ends that took longer than the declared bound.
    pub late: u64,
    /// The longest that an end took.
    pub longest_latency: Cycles,
    /// Cycles for which it was active, the current ones not counted.
    pub quiet: Cycles,
    /// Scheduler operations of others while it was active.
    pub noise: u64,
}

/// A lease of the description while the machine runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeaseRun {
    /// The coroutine that asked and waits.
    pub(crate) waiter: Option<CoroutineName>,
    /// Its last state, if its lane has another lease since.
    pub(crate) last: Option<LeaseState>,
    pub(crate) counts: LeaseCounts,
}

/// A lease of a run, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseSummary {
    /// Its name.
    pub name: String,
    /// Its lane.
    pub lane: LaneId,
    /// The session of its holder.
    pub session: SessionId,
    /// The context that pays.
    pub context: String,
    /// The bound on its revocation.
    pub bound: Cycles,
    /// Its state now, or its last one; `None` if it was never asked for.
    pub state: Option<LeaseState>,
    /// Noise of the current state so far.
    pub noise: u64,
    /// What happened so far.
    pub counts: LeaseCounts,
}

/// The numbers of [`Event::Lease`] for the state that a lease has now: reason, session in the way,
/// and two more.
fn event_numbers(lease: &LeaseState) -> (u64, u64, u64, u64) {
    let session = |session: Option<u32>| session.map_or(u64::MAX, u64::from);
    match (lease.phase, lease.missing, lease.ended) {
        (LeasePhase::Denied, Some(missing), _) => {
            (missing.evidence as u64, session(missing.session), missing.count, missing.until)
        }
        (LeasePhase::Revoking, _, Some(ended)) => {
            (ended as u64, u64::MAX, lease.end_asked.0, lease.end_at.0)
        }
        (LeasePhase::Released, _, Some(ended)) => {
            (ended as u64, u64::MAX, lease.latency().0, lease.bound.0)
        }
        (LeasePhase::Active, ..) => {
            let expires = lease.expires.map_or(u64::MAX, |frame| frame.0);
            (0, u64::MAX, lease.began.unwrap_or_default().0, expires)
        }
        _ => (0, session(lease.owner), lease.asked.0, 0),
    }
}

impl LaneState {
    /// Records the state that the lane's lease has now.
    pub(crate) fn log_lease(&mut self) {
        let Some(lease) = self.kernel.lease() else { return };
        let (reason, session, first, second) = event_numbers(lease);
        let (state, lease) = (lease.phase as u64, u64::from(lease.name));
        self.log.event(&Event::Lease { lease, state, reason, session, first, second });
    }

    /// Ends the lane's lease, if it has one.
    pub(crate) fn end_lease(&mut self, reason: LeaseEnd, asked: Cycles, now: Cycles) -> bool {
        let is_ended = self.kernel.end_lease(reason, asked, now);
        if is_ended {
            self.log_lease();
        }
        is_ended
    }
}

/// What guests may do.
impl Group {
    pub(crate) fn lease_operation(
        &mut self,
        site: Site<'_>,
        operation: Op,
        [first, second, third, _]: [u64; 4],
    ) -> HostResult {
        let handle = first as i32;
        let result = match operation {
            Op::LeaseRequest => self.request_lease(site, handle, Region::new(second, third)),
            Op::LeaseRevoke => self.revoke_lease(site, handle),
            _ => self.lease_state(site, handle, second as u32),
        };
        result.map_err(Refused::denied)
    }

    fn request_lease(&mut self, site: Site<'_>, handle: i32, name: Region) -> HostResult {
        let name = self.sessions[site.session].bytes(name)?;
        let mut leases = self.shared.leases.iter();
        let found = leases.position(|lease| lease.name.as_bytes() == name);
        if self.capability(site, handle)? != Capability::Isolation {
            return Err(Errno::Invalid.into());
        }
        let lease = found.ok_or(Errno::Invalid)?;
        let holder = self.shared.leases[lease].session;
        self.ask_of_lease(site, LeaseWish::Request(lease));
        let on = (u64::from(holder.0), lease as u64);
        self.wait(site, Wait::Lease, BlockReason::OtherLane, on)
    }

    fn revoke_lease(&mut self, site: Site<'_>, handle: i32) -> HostResult {
        let Capability::Lease(lease) = self.capability(site, handle)? else {
            return Err(Errno::Invalid.into());
        };
        if lease.lane.0 != self.lanes[site.lane].id {
            self.ask_of_lease(site, LeaseWish::End(lease, LeaseEnd::Revoked));
            let on = (u64::from(self.sessions[site.session].id.0), u64::from(site.slot));
            return self.wait(site, Wait::Lane, BlockReason::OtherLane, on);
        }
        let now = self.now(site);
        let state = &mut self.lanes[site.lane];
        if state.kernel.lease().is_some_and(|found| found.generation == lease.generation) {
            state.end_lease(LeaseEnd::Revoked, now, now);
        }
        Ok(Done::code(0))
    }

    fn ask_of_lease(&mut self, site: Site<'_>, what: LeaseWish) {
        let (by, at) = (self.sessions[site.session].coroutine_name(site.slot), self.now(site));
        self.lanes[site.lane].lease_asks.push(LeaseAsk { what, by: Some(by), at });
    }

    fn lease_state(&mut self, site: Site<'_>, handle: i32, pointer: u32) -> HostResult {
        self.sessions[site.session].bytes(Region { start: pointer, length: STATE_BYTES })?;
        let Capability::Lease(lease) = self.capability(site, handle)? else {
            return Err(Errno::Invalid.into());
        };
        let own = &self.lanes[site.lane];
        let found = if own.id == lease.lane.0 {
            own.kernel.lease()
        } else {
            self.lease_views.iter().find(|(lane, _)| *lane == lease.lane.0).map(|(_, state)| state)
        };
        let found = found.filter(|found| found.generation == lease.generation);
        let found = *found.ok_or(Errno::Stale)?;
        let session = found.missing.and_then(|missing| missing.session).map_or(-1, i64::from);
        let reason = match (found.missing, found.ended) {
            (Some(missing), _) => missing.evidence as u64,
            (None, ended) => ended.map_or(0, |ended| ended as u64),
        };
        let words = [
            found.phase as u64,
            reason,
            session as u64,
            found.missing.map_or(0, |missing| missing.count),
            found.began.map_or(u64::MAX, |began| began.0),
            found.end_at.0,
            found.latency().0,
            found.noise.iter().sum(),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.sessions[site.session].write_checked(pointer, &bytes);
        Ok(Done::code(found.phase as i32))
    }

    /// A session ends: so do the leases of its coroutines, and those it asked for. Those of other
    /// lanes at the wave's end.
    pub(crate) fn end_leases(&mut self, lane: LaneIndex, session: SessionIndex) {
        self.end_leases_because(lane, session, LeaseEnd::SessionEnded);
    }

    /// The same, for another reason.
    pub(crate) fn end_leases_because(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        reason: LeaseEnd,
    ) {
        let id = self.sessions[session].id;
        let concerns = |lease: &LeaseState| {
            lease.is_live() && (lease.session == id.0 || lease.owner == Some(id.0))
        };
        for state in &mut self.lanes {
            let now = state.kernel.clock();
            if state.kernel.lease().is_some_and(concerns) {
                state.end_lease(reason, now, now);
            }
        }
        let at = self.lanes[lane].kernel.clock();
        for &(other, state) in self.lease_views.iter().filter(|(_, state)| concerns(state)) {
            if self.lanes.iter().all(|own| own.id != other) {
                let lease = LeaseRef { lane: LaneId(other), generation: state.generation };
                let what = LeaseWish::End(lease, reason);
                self.lanes[lane].lease_asks.push(LeaseAsk { what, by: None, at });
            }
        }
    }

    /// Whether an effect of another lane on a leased one is the holder's own: what the holder asked
    /// for, or what comes through a wake source of the lease.
    pub(crate) fn is_of_holder(&self, lane: LaneIndex, effect: &Effect) -> bool {
        let channel = match effect {
            Effect::Message { channel, .. }
            | Effect::WaitToSend { channel, .. }
            | Effect::Withdraw { channel, .. }
            | Effect::ClosePort { channel } => *channel,
            _ => return true,
        };
        let Some(lease) = self.lanes[lane].kernel.lease() else { return false };
        let lease = self.shared.leases.get(lease.name as usize);
        lease.is_some_and(|lease| lease.wakes.contains(&channel))
    }

    /// Books the delivery of an effect.
    pub(crate) fn book_effect(&mut self, lane: LaneIndex, effect: &Effect) {
        if self.lanes[lane].kernel.is_quiet() && self.is_of_holder(lane, effect) {
            self.lanes[lane].kernel.accept_effect_of_holder();
        } else {
            self.lanes[lane].kernel.accept_effect();
        }
    }
}

/// Asking.
impl World {
    fn lease_lane(&self, lease: usize) -> u16 {
        self.session_ref(self.spec.leases[lease].session).home()
    }

    /// The first lease of the description that is for this lane.
    pub(crate) fn lease_for(&self, lane: u16) -> Option<&LeaseSpec> {
        let found = (0..self.spec.leases.len()).find(|&lease| self.lease_lane(lease) == lane)?;
        Some(&self.spec.leases[found])
    }

    /// The state of a lease, if it is the one that its lane has.
    fn lease_of(&self, lease: usize) -> Option<&LeaseState> {
        let state = self.lane_ref(self.lease_lane(lease)).kernel.lease()?;
        (state.generation > 0 && state.name as usize == lease).then_some(state)
    }

    /// At the start of the first frame: the leases that are asked for then.
    pub(crate) fn request_first_leases(&mut self) {
        for lease in 0..self.spec.leases.len() {
            if self.spec.leases[lease].at_start {
                // Loading has checked what could refuse it.
                let _ = self.request(lease, None, Cycles::ZERO);
            }
        }
    }

    /// Asks for a lease.
    pub(crate) fn request(
        &mut self,
        lease: usize,
        by: Option<CoroutineName>,
        asked: Cycles,
    ) -> Result<LeaseRef, LeaseRefusal> {
        let spec = self.spec.clone();
        let LeaseSpec { session, context, revocation, expires_frames, .. } = spec.leases[lease];
        let name = spec.contexts[context].name.as_bytes();
        let table = self.session_ref(session).capabilities.as_deref();
        let found = table.and_then(|table| table.get(table.named(name)?));
        let Some(Capability::Context(context)) = found else {
            let context = ContextRef::new(0, 0);
            return Err(LeaseRefusal::NoTarget { context });
        };
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        let before = lane.kernel.lease().copied();
        let accepted = lane.kernel.request_lease(LeaseRequest {
            name: lease as u32,
            context,
            owner: by.map(|by| by.session.0),
            bound: revocation.unwrap_or(lane.kernel.least_revocation()),
            expires_frames,
            asked,
        })?;
        lane.log_lease();
        if let Some(before) = before.filter(|before| before.generation > 0) {
            self.leases[before.name as usize].last = Some(before);
        }
        let run = &mut self.leases[lease];
        (run.waiter, run.last) = (by, None);
        run.counts.requests += 1;
        Ok(accepted)
    }

    /// Ends a lease of the description, if it is one. Returns whether it was.
    pub(crate) fn end_lease(&mut self, lease: usize, reason: LeaseEnd, asked: Cycles) -> bool {
        if self.lease_of(lease).is_none() {
            return false;
        }
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        let now = lane.kernel.clock();
        lane.end_lease(reason, asked, now)
    }
}

/// Steps at a wave's end and a frame's start.
impl World {
    /// At a wave's end: ends and releases leases, advances each by a step, and takes requests.
    /// `false` if nothing changed.
    pub(crate) fn advance_leases(&mut self) -> bool {
        if self.spec.leases.is_empty() {
            return false;
        }
        let mut asks: Vec<LeaseAsk> = Vec::new();
        for lane in 0..self.spec.lanes {
            asks.append(&mut self.lane(lane).lease_asks);
        }
        let mut changed = self.settle_leases(&asks);
        for lease in 0..self.spec.leases.len() {
            changed |= self.advance_lease(lease);
        }
        for ask in asks {
            if let LeaseWish::Request(lease) = ask.what {
                changed = true;
                let refused = match self.request(lease, ask.by, ask.at) {
                    Ok(_) => continue,
                    Err(LeaseRefusal::Busy { .. }) => Errno::Again,
                    Err(LeaseRefusal::NoTarget { .. }) => errno_of(ContextRefusal::Off),
                    Err(_) => Errno::Limit,
                };
                self.answer_lease(ask.by, Err(refused));
            }
        }
        if changed {
            self.publish_leases();
        }
        changed
    }

    /// Takes the ends that were asked for from other lanes, and opens the lanes of all leases that
    /// have ended.
    fn settle_leases(&mut self, asks: &[LeaseAsk]) -> bool {
        for ask in asks {
            let LeaseWish::End(lease, reason) = ask.what else { continue };
            let lane = self.lane(lease.lane.0);
            let now = lane.kernel.clock();
            if lane.kernel.lease().is_some_and(|found| found.generation == lease.generation) {
                lane.end_lease(reason, ask.at, now);
            }
            if let Some(by) = ask.by
                && self.waits(by, &Wait::Lane)
            {
                self.answer_across(by, Wait::Code(0), WakeSource::Answer);
            }
        }
        let mut changed = false;
        for lease in 0..self.spec.leases.len() {
            changed |= self.release(lease);
        }
        changed
    }

    /// The same in the middle of a frame's start, for what ended there.
    pub(crate) fn settle_ended_leases(&mut self) {
        if self.spec.leases.is_empty() {
            return;
        }
        let mut asks: Vec<LeaseAsk> = Vec::new();
        for lane in 0..self.spec.lanes {
            asks.append(&mut self.lane(lane).lease_asks);
        }
        if self.settle_leases(&asks) {
            self.publish_leases();
        }
    }

    /// Opens the lane of a lease that has ended, and counts the end.
    fn release(&mut self, lease: usize) -> bool {
        let Some(&state) = self.lease_of(lease) else { return false };
        let (Some(ended), LeasePhase::Revoking) = (state.ended, state.phase) else { return false };
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        if lane.kernel.lease_ended_itself() {
            lane.log_lease();
        }
        lane.kernel.release_lease();
        lane.log_lease();
        let counts = &mut self.leases[lease].counts;
        counts.ends[ended as usize] += 1;
        counts.late += u64::from(state.latency() > state.bound);
        counts.longest_latency = counts.longest_latency.max(state.latency());
        counts.quiet = counts.quiet.saturating_add(state.quiet());
        counts.noise += state.noise.iter().sum::<u64>();
        let waiter = self.leases[lease].waiter.take();
        self.answer_lease(waiter, Err(Errno::Revoked));
        true
    }

    /// One step of a lease. `false` if it stays as it is.
    fn advance_lease(&mut self, lease: usize) -> bool {
        let Some(&state) = self.lease_of(lease) else { return false };
        let number = self.lease_lane(lease);
        let has_ended = |session: Option<u32>| {
            session.is_some_and(|id| self.session_ref(SessionId(id)).ended.is_some())
        };
        if state.is_live() && has_ended(state.owner) {
            let now = self.lane_ref(number).kernel.clock();
            self.end_lease(lease, LeaseEnd::SessionEnded, now);
            return self.release(lease);
        }
        match state.phase {
            LeasePhase::Requested => match self.cannot_leave(number, state.session) {
                Some(missing) => self.deny(lease, missing),
                None => {
                    let lane = self.lane(number);
                    lane.kernel.drain_lease();
                    lane.log_lease();
                    self.drain(lease, &state);
                    true
                }
            },
            LeasePhase::Draining => self.drain(lease, &state),
            LeasePhase::Flushing => self.activate(lease, &state),
            LeasePhase::Active => self.check_noise(lease),
            _ => false,
        }
    }

    /// Moves every session that can to another lane. When none is left the lease is flushed.
    fn drain(&mut self, lease: usize, state: &LeaseState) -> bool {
        let number = self.lease_lane(lease);
        let clock = self.lane_ref(number).kernel.clock();
        let mut left = None;
        for session in self.others_on(number, state.session) {
            let Some(to) = self.housekeeping(number) else {
                let missing = lacking(Evidence::HousekeepingElsewhere, Some(session));
                return self.deny(lease, missing);
            };
            let is_over = self.session_ref(session).ended.is_some();
            if !is_over && self.stays(session).is_some() {
                left = left.or(Some(session));
            } else if let Err(refusal) = self.move_session(session, number, to, DRAINED) {
                self.groups[0].failure = Some(refusal);
            }
        }
        let waits_until = state.asked.0 + DRAIN_FRAMES * self.spec.frame_cycles.0;
        match left {
            None => {
                let lane = self.lane(number);
                lane.kernel.flush_lease();
                lane.log_lease();
                true
            }
            // A call may end; any other ban came up since the drain began.
            Some(session)
                if self.stays(session) == Some(MoveBan::Call) && clock.0 < waits_until =>
            {
                false
            }
            Some(session) => {
                let count = self.lane_ref(number).kernel.session(session.0).count() as u64;
                let until = waits_until / self.spec.frame_cycles.0;
                let missing = lacking(Evidence::DeferredCleanupDrained, Some(session));
                self.deny(lease, Missing { count, until, ..missing })
            }
        }
    }

    /// The sessions of a lane, ascending, without that of a lease's holder.
    fn others_on(&self, lane: u16, holder: u32) -> Vec<SessionId> {
        let (group, _) = self.lane_positions[usize::from(lane)];
        let mut others: Vec<SessionId> = self.groups[group].sessions().collect();
        others.retain(|session| session.0 != holder);
        others.sort_unstable();
        others
    }

    /// The first session of a lane that can never leave it, as missing evidence; or that there is
    /// no lane to leave to.
    fn cannot_leave(&self, lane: u16, holder: u32) -> Option<Missing> {
        let others = self.others_on(lane, holder);
        if let Some(&first) = others.first()
            && self.housekeeping(lane).is_none()
        {
            return Some(lacking(Evidence::HousekeepingElsewhere, Some(first)));
        }
        let is_bound = |session: &&SessionId| {
            // One that has ended can begin anew in a live machine.
            let is_over = self.session_ref(**session).ended.is_some() && !self.spec.live;
            !is_over && !matches!(self.stays(**session), None | Some(MoveBan::Call))
        };
        let session = *others.iter().find(is_bound)?;
        let (sleeping, others, until) = self.lane_ref(lane).kernel.sleepers_of(session);
        let (evidence, count) = match sleeping {
            0 => (Evidence::SingleRunnable, others),
            _ => (Evidence::TimersMigrated, sleeping),
        };
        Some(Missing { evidence, session: Some(session.0), count, until })
    }

    /// The lane that takes what a leased one has to give: alone in its group, open, with the fewest
    /// coroutines, and of those the first.
    pub(crate) fn housekeeping(&self, from: u16) -> Option<u16> {
        let lanes = (0..self.spec.lanes).filter(|&lane| lane != from && self.is_alone(lane));
        let open = lanes.filter(|&lane| self.lane_ref(lane).kernel.is_open());
        open.min_by_key(|&lane| (self.lane_ref(lane).kernel.live(), lane))
    }

    /// The evidence that only the machine knows, if it is missing.
    fn lacks(&self, lease: usize, state: &LeaseState) -> Option<Missing> {
        let lane = self.lease_lane(lease);
        if self.housekeeping(lane).is_none() {
            return Some(lacking(Evidence::HousekeepingElsewhere, None));
        }
        let own = self.lane_ref(lane);
        let pending = own.outbox.iter().count() + own.requests.len();
        let left = self.others_on(lane, state.session).first().copied();
        if pending > 0 || left.is_some() {
            let missing = lacking(Evidence::DeferredCleanupDrained, left);
            return Some(Missing { count: pending as u64, ..missing });
        }
        if !self.groups[0].shared.rules.routes_wakes() {
            return None;
        }
        let session = self.session_ref(SessionId(state.session));
        let wakes = &self.groups[0].shared.leases[lease].wakes;
        for (index, channel) in (0u32..).zip(&session.channels) {
            let id = ChannelId { owner: session.id, index };
            let declared = wakes.contains(&id);
            let senders = channel.wiring.as_ref().map_or(0, |wiring| wiring.open_senders);
            let waiting = channel.senders.iter().filter(|sender| !sender.local).count() as u64;
            if !declared && u64::from(senders) + waiting > 0 {
                let sender = self.senders_of(id).into_iter().find(|of| *of != session.id);
                let missing = lacking(Evidence::WakeSourcesRouted, sender);
                let count = u64::from(senders) + waiting;
                return Some(Missing { count, until: u64::from(index), ..missing });
            }
        }
        None
    }

    fn activate(&mut self, lease: usize, state: &LeaseState) -> bool {
        let outside = self.lacks(lease, state);
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        let generation = state.generation;
        if let Err(missing) = lane.kernel.activate_lease(outside) {
            return self.deny(lease, missing);
        }
        lane.log_lease();
        let run = &mut self.leases[lease];
        run.counts.activations += 1;
        let waiter = run.waiter.take();
        let lease_ref = LeaseRef { lane: LaneId(number), generation };
        self.answer_lease(waiter, Ok(lease_ref));
        true
    }

    /// Denies a lease, or records that its lane denied it.
    fn deny(&mut self, lease: usize, missing: Missing) -> bool {
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        lane.kernel.deny_lease(missing);
        lane.log_lease();
        let run = &mut self.leases[lease];
        run.counts.denials += 1;
        let waiter = run.waiter.take();
        self.answer_lease(waiter, Err(Errno::Denied));
        true
    }

    /// An active lease whose lane was not quiet ends.
    fn check_noise(&mut self, lease: usize) -> bool {
        let number = self.lease_lane(lease);
        let lane = self.lane(number);
        let noise = lane.kernel.noise();
        if noise.iter().all(|&count| count == 0) {
            return false;
        }
        for (&operation, count) in SchedulerOperation::ALL.iter().zip(noise) {
            if count > 0 {
                let (lease, operation) = (lease as u64, operation as u64);
                lane.log.event(&Event::Noise { lease, operation, count });
            }
        }
        let now = lane.kernel.clock();
        self.end_lease(lease, LeaseEnd::Noise, now);
        self.release(lease)
    }

    /// Whether a coroutine is alive and waits like this.
    fn waits(&self, name: CoroutineName, wait: &Wait) -> bool {
        let state = self.session_ref(name.session);
        state.ended.is_none()
            && state.tasks.named(name.reference) == Named::Live
            && state.tasks.live_ref(name.reference.slot).is_some_and(|task| task.wait == *wait)
    }

    /// Answers the coroutine that asked for a lease, if it still waits. One whose session has no
    /// room for a handle gets that as its answer, and the lease ends.
    fn answer_lease(&mut self, waiter: Option<CoroutineName>, answer: Result<LeaseRef, Errno>) {
        let Some(name) = waiter.filter(|&name| self.waits(name, &Wait::Lease)) else { return };
        let answer = answer.and_then(|lease| {
            let table = self.session(name.session).capabilities.as_mut().ok_or(Errno::Denied)?;
            table.forget_lease(lease.lane);
            table.add(Capability::Lease(lease)).ok_or_else(|| {
                let lane = self.lane(lease.lane.0);
                let now = lane.kernel.clock();
                lane.end_lease(LeaseEnd::Revoked, now, now);
                Errno::Limit
            })
        });
        let code = answer.unwrap_or_else(|errno| {
            let lane = self.session(name.session).tasks.lane_at(name.reference.slot);
            self.lane(lane).log.event(&Event::Deny {
                session: u64::from(name.session.0),
                slot: u64::from(name.reference.slot),
                operation: Op::LeaseRequest as u64,
                code: u64::from(errno.code().unsigned_abs()),
            });
            errno.code()
        });
        self.answer_across(name, Wait::Code(code), WakeSource::Answer);
    }

    /// At a frame's start: the leases whose last frame is over end.
    pub(crate) fn expire_leases(&mut self) {
        let frame = self.frame();
        let start = Cycles(frame.0 * self.spec.frame_cycles.0);
        for lease in 0..self.spec.leases.len() {
            let expires = self.lease_of(lease).filter(|state| state.is_live());
            if expires.and_then(|state| state.expires).is_some_and(|at| at <= frame) {
                self.end_lease(lease, LeaseEnd::Expired, start);
            }
        }
        self.settle_ended_leases();
    }

    /// A channel got a sender: an active lease of its owner ends, unless it is a wake source of it.
    pub(crate) fn lease_is_rewired(&mut self, channel: ChannelId) {
        let leases = self.groups[0].shared.leases.clone();
        for (lease, shared) in leases.iter().enumerate() {
            if shared.session == channel.owner && !shared.wakes.contains(&channel) {
                let now = self.lane_ref(self.lease_lane(lease)).kernel.clock();
                let is_active =
                    self.lease_of(lease).is_some_and(|state| state.phase == LeasePhase::Active);
                if is_active {
                    self.end_lease(lease, LeaseEnd::WakeSource, now);
                }
            }
        }
        self.settle_ended_leases();
    }

    /// The frame in which the next lease ends by itself, or the next frame if one is on its way.
    pub(crate) fn next_lease_event(&self) -> Option<Frame> {
        let leases = (0..self.spec.leases.len()).filter_map(|lease| self.lease_of(lease));
        let frames = leases.filter_map(|state| match state.phase {
            LeasePhase::Active => state.expires,
            _ if state.is_pending() => Some(Frame(self.frame().0 + 1)),
            _ => None,
        });
        frames.min()
    }

    /// Whether a lease is on its way: something can still happen.
    pub(crate) fn has_pending_lease(&self) -> bool {
        let mut leases = (0..self.spec.leases.len()).filter_map(|lease| self.lease_of(lease));
        leases.any(LeaseState::is_pending)
    }

    /// Gives every group the state of all leases, as far as other lanes may see it.
    pub(crate) fn publish_leases(&mut self) {
        let lanes = self.lanes().filter_map(|lane| Some((lane.id, *lane.kernel.lease()?)));
        let mut views: Vec<(u16, LeaseState)> = lanes.collect();
        views.sort_unstable_by_key(|(lane, _)| *lane);
        for group in &mut self.groups {
            group.lease_views.clone_from(&views);
        }
    }

    /// Every lease of the description.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseSummary> {
        let all = self.spec.leases.iter().zip(&self.leases).enumerate();
        all.map(|(at, (spec, run))| {
            let lane = self.lease_lane(at);
            let kernel = &self.lane_ref(lane).kernel;
            let current = self.lease_of(at);
            LeaseSummary {
                name: spec.name.clone(),
                lane: LaneId(lane),
                session: spec.session,
                context: self.spec.contexts[spec.context].name.clone(),
                bound: spec.revocation.unwrap_or(kernel.least_revocation()),
                state: current.copied().or(run.last),
                noise: current.map_or(0, |_| kernel.noise().iter().sum()),
                counts: run.counts,
            }
        })
        .collect()
    }

    /// The session that has a lane to itself, for the checker of certificates.
    #[must_use]
    pub fn leased_to(&self, lane: LaneId) -> Option<SessionId> {
        let kernel = &self.lane_ref(lane.0).kernel;
        let lease = kernel.lease().filter(|_| kernel.is_quiet());
        lease.map(|lease| SessionId(lease.session))
    }
}

const fn lacking(evidence: Evidence, session: Option<SessionId>) -> Missing {
    let session = match session {
        Some(SessionId(session)) => Some(session),
        None => None,
    };
    Missing { evidence, session, count: 0, until: 0 }
}
