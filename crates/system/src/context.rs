//! Contexts as guests and traces see them: the host operations, the events, and the requests of a
//! lane's kernel.
//!
//! Contract: an operation looks its handle up in the session's table first; a refusal is a code for
//! the guest and an event in the trace, with the operation and the code. All of it acts on the
//! caller's own lane. Elsewhere: the rules of contexts (`kernel`), the tables (`authority`).

use crate::authority::{
    CONTROL_NAME, Capability, ContextSpec, Grant, ISOLATION_NAME, MOST_CONTEXTS, POLICY_NAME,
};
use crate::channel::Message;
use crate::group::{Group, LaneState};
use crate::host::{Done, HostResult, Refused, Region};
use crate::index::{ChannelIndex, GroupIndex, LaneIndex, TaskIndex};
use crate::load::LoadError;
use crate::moves::PLACED;
use crate::session::Handle;
use crate::spec::{MachineSpec, Span};
use crate::step::{Flow, Site};
use crate::task::Named;
use crate::world::World;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ContextRef, CoroutineRef, Cycles, Errno, HostOperation as Op, LaneId, LatencyClass, Priority,
    SessionId, Weight,
};
use wavelock_kernel::{
    Activation, ContextEventKind, ContextParameters, ContextRefusal, ContextView, Lane, Outcome,
    OverrunPolicy, Share, Tag,
};
use wavelock_trace::{Event, StopCode};

/// Bytes of the parameters of a context in a guest's memory: budget, period, deadline, refills,
/// overrun policy, activation; each an i64.
const PARAMETER_BYTES: u32 = 48;

/// A request of a lane's kernel, to be served before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// End a coroutine whose context was used up, by this much too far.
    Kill { holder: Tag, context: ContextRef, overrun: Cycles },
    /// End a session that used up its cap.
    EndSession { session: SessionId, budget: Cycles, used: Cycles },
    /// Notify a timeout channel, as [`Group::set_timeout`] packed it.
    Notify(u64),
}

/// One context of a run, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextSummary {
    /// Its name in the manifest, if it is from there.
    pub name: Option<String>,
    /// Its lane.
    pub lane: LaneId,
    /// The session that owns it.
    pub owner: SessionId,
    /// Who holds it now: session and slot.
    pub holder: Option<(SessionId, u32)>,
    /// All that can be read of it.
    pub view: ContextView,
}

impl LaneState {
    /// Logs what happened to contexts since the last call; requests among it are kept for the next
    /// step.
    #[inline]
    pub(crate) fn log_context_events(&mut self) {
        if self.kernel.has_context_events() {
            self.drain_context_events();
        }
        if self.kernel.lease_ended_itself() {
            self.log_lease();
        }
    }

    // Long: one arm per event.
    #[cold]
    #[inline(never)]
    fn drain_context_events(&mut self) {
        let (log, requests) = (&mut self.log, &mut self.requests);
        let kernel = &mut self.kernel;
        kernel.drain_context_events(|event| {
            let context = u64::from(event.context.slot);
            let (session, slot) = event
                .holder
                .map_or((u64::MAX, 0), |tag| (u64::from(tag.session()), u64::from(tag.slot())));
            let written = match event.kind {
                ContextEventKind::Throttled { until, overrun } => {
                    Event::Throttle { context, session, slot, until: until.0, overrun: overrun.0 }
                }
                ContextEventKind::Demoted { until, overrun } => {
                    Event::Demote { context, session, slot, until: until.0, overrun: overrun.0 }
                }
                ContextEventKind::Overran { deadline, overrun } => Event::Overrun {
                    context,
                    session,
                    slot,
                    deadline: deadline.0,
                    overrun: overrun.0,
                },
                ContextEventKind::Replenished { amount, deadline } => Event::Replenish {
                    context,
                    session,
                    slot,
                    amount: amount.0,
                    deadline: deadline.0,
                },
                ContextEventKind::Missed { deadline } => {
                    Event::Miss { context, session, slot, deadline: deadline.0 }
                }
                ContextEventKind::Notify { channel } => {
                    requests.push(Request::Notify(channel));
                    Event::Notify { context }
                }
                ContextEventKind::End { overrun } => {
                    let context = event.context;
                    requests.extend(event.holder.map(|holder| Request::Kill {
                        holder,
                        context,
                        overrun,
                    }));
                    return;
                }
                ContextEventKind::Donated { depth } => {
                    Event::Donate { context, session, slot, depth: u64::from(depth) }
                }
                ContextEventKind::Returned { depth } => {
                    Event::Return { context, session, slot, depth: u64::from(depth) }
                }
                ContextEventKind::Revoked { loans } => {
                    Event::Revoke { context, session, slot, loans: u64::from(loans) }
                }
            };
            log.event(&written);
        });
    }
}

impl Group {
    /// Serves the requests of the kernel after the last step of a lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_requests(&mut self, lane: LaneIndex) {
        let mut requests = core::mem::take(&mut self.lanes[lane].requests);
        for request in requests.drain(..) {
            match request {
                Request::Kill { holder, context, overrun } => {
                    let session = self.local[SessionId(holder.session())];
                    let at = TaskIndex { session, slot: holder.slot() };
                    self.kill_by_context(lane, at, context, overrun);
                }
                Request::EndSession { session, budget, used } => {
                    self.kill_by_cap(lane, self.local[session], budget, used);
                }
                Request::Notify(channel) => self.notify(lane, channel),
            }
        }
        // The list keeps its room; what the ends requested is for the next step.
        let added = core::mem::replace(&mut self.lanes[lane].requests, requests);
        self.lanes[lane].requests.extend(added);
    }

    /// Sends to a timeout channel, if it has room; otherwise only the context's cell is written.
    fn notify(&mut self, lane: LaneIndex, target: u64) {
        let (owner, index, handle) =
            (SessionId((target >> 48) as u32), (target >> 32) as u16, target as u32);
        let at = ChannelIndex { owner: self.local[owner], index: u32::from(index) };
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let state = &self.sessions[at.owner];
        let Some(channel) = state.channels.get(usize::from(index)) else { return };
        if state.ended.is_none()
            && !channel.closed
            && channel.local_room(wave, lanes) > 0
            && channel.senders.is_empty()
        {
            self.deliver(lane, at, Message::Number(i64::from(handle)));
        }
    }

    /// The context of a handle, on the caller's lane.
    fn context_of(&self, site: Site<'_>, handle: i32) -> Result<ContextRef, Errno> {
        match self.capability(site, handle)? {
            Capability::Context(context) => Ok(context),
            _ => Err(Errno::Invalid),
        }
    }

    /// What a handle names. Authority over a lane is used on that lane.
    pub(crate) fn capability(&self, site: Site<'_>, handle: i32) -> Result<Capability, Errno> {
        let state = &self.sessions[site.session];
        let table = state.capabilities.as_ref().ok_or(Errno::Denied)?;
        let found = table.get(handle).ok_or(Errno::Stale)?;
        let at_home = self.lanes[site.lane].id == state.home();
        if at_home || found == Capability::Policy { Ok(found) } else { Err(Errno::Denied) }
    }

    /// A live coroutine of the caller's session on the caller's lane, by the reference that the
    /// guest has, and its reference in that lane's kernel.
    fn target(
        &mut self,
        site: Site<'_>,
        reference: i64,
    ) -> Result<(CoroutineRef, CoroutineRef), Errno> {
        let target = CoroutineRef::from_guest(reference).ok_or(Errno::Invalid)?;
        let own_lane = self.lanes[site.lane].id;
        let tasks = &mut self.sessions[site.session].tasks;
        if tasks.named(target) != Named::Live {
            return Err(Errno::Stale);
        }
        if tasks.lane_at(target.slot) != own_lane {
            return Err(Errno::Denied);
        }
        Ok((target, tasks.live_at(target.slot).kernel))
    }

    /// The operations on contexts and shares.
    pub(crate) fn context_operation(
        &mut self,
        site: Site<'_>,
        operation: Op,
        [first, second, third, _]: [u64; 4],
    ) -> HostResult {
        let handle = first as i32;
        self.lanes[site.lane].refusal = None;
        let result = match operation {
            Op::Capability => {
                let state = &self.sessions[site.session];
                let name = state.bytes(Region::new(first, second))?;
                let found = state.capabilities.as_ref().and_then(|table| table.named(name));
                return found.map(Done::code).ok_or(Refused::Denied(Errno::Denied.code()));
            }
            Op::ContextNotice => return self.notice(site, handle, second as u32),
            Op::ContextYield => return self.yield_context(site),
            Op::ContextCreate | Op::ContextConfigure => {
                let region = Region { start: second as u32, length: PARAMETER_BYTES };
                self.sessions[site.session].bytes(region)?;
                self.with_parameters(site, operation, handle, region)
            }
            Op::ContextBind => self.bind(site, handle, second as i64),
            Op::ContextUnbind => self
                .on_context(site, handle, |lane, context| lane.unbind_context(context))
                .map(|()| 0),
            Op::ContextRevoke => self.revoke(site, handle),
            Op::ContextConsumed => self
                .on_context(site, handle, |lane, context| lane.take_consumed(context))
                .map(|consumed| consumed.0 as i64),
            Op::ContextTimeout => self.set_timeout(site, handle, second as i32),
            Op::Priority => self.set_priority(site, (handle, second as i64, third as i32)),
            _ => self.set_share(site, operation, (handle, second as i64, third as i32)),
        };
        self.lanes[site.lane].log_context_events();
        let value = result.map_err(|errno| Refused::from(errno).denied())?;
        Ok(Done::Value(value as u64))
    }

    /// Applies a kernel operation to the context of a handle.
    fn on_context<T>(
        &mut self,
        site: Site<'_>,
        handle: i32,
        act: impl FnOnce(&mut Lane, ContextRef) -> Result<T, ContextRefusal>,
    ) -> Result<T, Errno> {
        let context = self.context_of(site, handle)?;
        self.lanes[site.lane].attempt(|kernel| act(kernel, context))
    }

    /// Makes or changes a context with the parameters in the guest's memory.
    fn with_parameters(
        &mut self,
        site: Site<'_>,
        operation: Op,
        handle: i32,
        region: Region,
    ) -> Result<i64, Errno> {
        let capability = self.capability(site, handle)?;
        let state = &self.sessions[site.session];
        let bytes = state.bytes(region).map_err(|_| Errno::Invalid)?;
        let word = |at: usize| {
            i64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap_or_default())
        };
        let number = |at: usize| u64::try_from(word(at)).map_err(|_| Errno::Invalid);
        let byte = |at: usize| u8::try_from(word(at)).map_err(|_| Errno::Invalid);
        let parameters = ContextParameters {
            overrun: OverrunPolicy::from_code(byte(4)?).ok_or(Errno::Invalid)?,
            activation: match word(5) {
                0 => Activation::Sporadic,
                1 => Activation::ConstantBandwidth,
                _ => return Err(Errno::Invalid),
            },
            deadline: Cycles(number(2)?),
            refills: byte(3)?,
            owner: state.id.0,
            ..ContextParameters::new(Cycles(number(0)?), Cycles(number(1)?))
        };
        let lane = &mut self.lanes[site.lane];
        match (operation, capability) {
            (Op::ContextCreate, Capability::Control) => {
                let context = lane.attempt(|kernel| kernel.create_context(parameters))?;
                let table =
                    self.sessions[site.session].capabilities.as_mut().ok_or(Errno::Denied)?;
                let Some(handle) = table.add(Capability::Context(context)) else {
                    let _ = lane.kernel.revoke_context(context, |_| ());
                    return Err(Errno::Limit);
                };
                lane.log_made(context, &parameters);
                Ok(i64::from(handle))
            }
            (Op::ContextConfigure, Capability::Context(context)) => {
                let view = lane.attempt(|kernel| kernel.context(context))?;
                let timeout = view.parameters.timeout;
                let parameters = ContextParameters { timeout, ..parameters };
                lane.attempt(|kernel| kernel.configure_context(context, parameters))?;
                Ok(0)
            }
            _ => Err(Errno::Invalid),
        }
    }

    fn bind(&mut self, site: Site<'_>, handle: i32, reference: i64) -> Result<i64, Errno> {
        let context = self.context_of(site, handle)?;
        let (target, kernel) = self.target(site, reference)?;
        let session = self.sessions[site.session].id;
        let lane = &mut self.lanes[site.lane];
        lane.attempt(|lane| lane.bind_context(context, kernel))?;
        lane.log_bound(context, Tag::new(session.0, target.slot));
        Ok(0)
    }

    fn revoke(&mut self, site: Site<'_>, handle: i32) -> Result<i64, Errno> {
        let mut lenders = Vec::new();
        let revoked = self.on_context(site, handle, |lane, context| {
            lane.revoke_context(context, |lender| lenders.push(lender))
        });
        let _ = revoked?;
        self.lanes[site.lane].log_context_events();
        self.loans_revoked(site.lane, lenders);
        if let Some(table) = &mut self.sessions[site.session].capabilities {
            table.remove(handle);
        }
        Ok(0)
    }

    /// Reads a context's cell: count, first, last, overrun at `pointer`; returns the count.
    fn notice(&mut self, site: Site<'_>, handle: i32, pointer: u32) -> HostResult {
        self.sessions[site.session].bytes(Region { start: pointer, length: 32 })?;
        let cell = self
            .on_context(site, handle, |lane, context| lane.take_notification(context))
            .map_err(|errno| Refused::from(errno).denied())?;
        let words = [cell.count, cell.first.0, cell.last.0, cell.overrun.0];
        let mut bytes = [0; 32];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        self.sessions[site.session].write_checked(pointer, &bytes);
        Ok(Done::code(cell.count.min(i32::MAX as u64) as i32))
    }

    /// Sets the channel of the session that is notified when the context is used up; -1 is none.
    fn set_timeout(&mut self, site: Site<'_>, handle: i32, channel: i32) -> Result<i64, Errno> {
        let context = self.context_of(site, handle)?;
        let state = &self.sessions[site.session];
        let timeout = match (channel, state.handle(channel)) {
            (-1, _) => None,
            (_, Some(Handle::Own(index)))
                if index <= u32::from(u16::MAX) && state.id.0 <= u32::from(u16::MAX) =>
            {
                Some(
                    u64::from(state.id.0) << 48 | u64::from(index) << 32 | u64::from(handle as u32),
                )
            }
            _ => return Err(Errno::Invalid),
        };
        self.lanes[site.lane].attempt(|kernel| kernel.set_context_timeout(context, timeout))?;
        Ok(0)
    }

    /// Gives up the rest of the refill: the slice ends, and the next starts with the next refill.
    fn yield_context(&mut self, site: Site<'_>) -> HostResult {
        if !self.lanes[site.lane].kernel.yield_context() {
            return Err(Refused::from(Errno::Invalid).denied());
        }
        self.resume(site, &[0]);
        Ok(Done::Flow(Flow::Stop(Outcome::Yielded, StopCode::Yielded)))
    }

    /// Changes a coroutine's weight or latency class, through the policy capability.
    fn set_share(
        &mut self,
        site: Site<'_>,
        operation: Op,
        arguments: (i32, i64, i32),
    ) -> Result<i64, Errno> {
        let (handle, reference, value) = arguments;
        if self.capability(site, handle)? != Capability::Policy {
            return Err(Errno::Invalid);
        }
        let (_, target) = self.target(site, reference)?;
        let kernel = &mut self.lanes[site.lane].kernel;
        let share = kernel.share(target).map_err(|_| Errno::Stale)?;
        let share = match operation {
            Op::Weight => {
                let weight =
                    u16::try_from(value).ok().and_then(Weight::new).ok_or(Errno::Invalid)?;
                Share { weight, ..share }
            }
            _ => {
                let class = usize::try_from(value)
                    .ok()
                    .and_then(|at| LatencyClass::ALL.get(at).copied())
                    .ok_or(Errno::Invalid)?;
                Share { class, ..share }
            }
        };
        kernel.set_share(target, share).map_err(|_| Errno::Stale)?;
        Ok(0)
    }

    /// Changes a coroutine's priority, through the policy capability.
    fn set_priority(
        &mut self,
        site: Site<'_>,
        (handle, reference, value): (i32, i64, i32),
    ) -> Result<i64, Errno> {
        if self.capability(site, handle)? != Capability::Policy {
            return Err(Errno::Invalid);
        }
        let (target, kernel) = self.target(site, reference)?;
        let session = u64::from(self.sessions[site.session].id.0);
        let lane = &mut self.lanes[site.lane];
        let Ok(priority) = u8::try_from(value) else {
            lane.log.event(&Event::OutOfRange {
                session,
                slot: u64::from(site.slot),
                operation: Op::Priority as u64,
                found: i64::from(value) as u64,
                most: u64::from(u8::MAX),
            });
            return Err(Errno::Invalid);
        };
        lane.kernel.set_priority(kernel, Priority(priority)).map_err(|_| Errno::Stale)?;
        let slot = u64::from(target.slot);
        lane.log.event(&Event::Priority { session, slot, priority: u64::from(priority) });
        Ok(0)
    }

    /// A session ends: every context that it owns is revoked, on all its lanes.
    pub(crate) fn revoke_contexts(&mut self, from: LaneIndex, session: SessionId) {
        for lane in LaneIndex::all(&self.lanes) {
            if !self.lanes[lane].kernel.has_contexts() {
                continue;
            }
            let mut lenders = Vec::new();
            self.lanes[lane].kernel.revoke_contexts_of(session.0, |lender| lenders.push(lender));
            self.lanes[lane].log_context_events();
            self.loans_revoked(from, lenders);
        }
    }

    /// A session begins anew: of the contexts that it owns, those on lane `home` that are `kept`
    /// stay, with their refills, and notify nobody; every other one is revoked.
    pub(crate) fn revoke_other_contexts(
        &mut self,
        home: LaneIndex,
        session: SessionId,
        kept: &[ContextRef],
    ) {
        for lane in LaneIndex::all(&self.lanes) {
            let kernel = &mut self.lanes[lane].kernel;
            let owned = kernel.contexts().filter(|view| view.parameters.owner == session.0);
            let owned: Vec<ContextRef> = owned.map(|view| view.context).collect();
            let mut lenders = Vec::new();
            for context in owned {
                if lane == home && kept.contains(&context) {
                    let silent = kernel.set_context_timeout(context, None);
                    debug_assert!(silent.is_ok(), "it is live");
                    // What the old module was not told is of no use to the new one.
                    let _ = kernel.take_notification(context);
                } else {
                    let _ = kernel.revoke_context(context, |lender| lenders.push(lender));
                }
            }
            self.lanes[lane].log_context_events();
            self.loans_revoked(lane, lenders);
        }
    }

    /// The capabilities of a session as at load, with these contexts, which are bound to its first
    /// coroutine.
    pub(crate) fn grant_again(
        &mut self,
        spec: &MachineSpec,
        lane: LaneIndex,
        session: SessionId,
        contexts: &[ContextRef],
    ) {
        for grant in spec.grants.iter().filter(|grant| grant.session == session) {
            let (capability, name) = granted(grant.grant);
            self.name_capability(session, capability, name);
        }
        let first = self.sessions[self.local[session]].tasks.live_at(0).kernel;
        let of_session = spec.contexts.iter().filter(|context| context.session == session);
        for (of_spec, &context) in of_session.zip(contexts) {
            let bound = self.lanes[lane].kernel.bind_context(context, first);
            debug_assert!(bound.is_ok(), "its holder ended, and the first one has none: {bound:?}");
            self.lanes[lane].log_bound(context, Tag::new(session.0, 0));
            self.name_capability(session, Capability::Context(context), &of_spec.name);
        }
        self.lanes[lane].log_context_events();
    }
}

impl LaneState {
    /// Tries a context operation of the kernel. A refusal is a code for the guest, and kept for a
    /// debugger.
    fn attempt<T>(
        &mut self,
        act: impl FnOnce(&mut Lane) -> Result<T, ContextRefusal>,
    ) -> Result<T, Errno> {
        act(&mut self.kernel).map_err(|refusal| {
            self.refusal = Some(refusal);
            errno_of(refusal)
        })
    }

    /// A context was made on this lane.
    pub(crate) fn log_made(&mut self, context: ContextRef, parameters: &ContextParameters) {
        self.log.event(&Event::Context {
            context: u64::from(context.slot),
            owner: u64::from(parameters.owner),
            budget: parameters.budget.0,
            period: parameters.period.0,
            deadline: parameters.deadline.0,
        });
    }

    fn log_bound(&mut self, context: ContextRef, tag: Tag) {
        self.log.event(&Event::Bind {
            context: u64::from(context.slot),
            session: u64::from(tag.session()),
            slot: u64::from(tag.slot()),
        });
    }
}

/// The error code of a refusal.
pub(crate) const fn errno_of(refusal: ContextRefusal) -> Errno {
    match refusal {
        ContextRefusal::Stale { .. } | ContextRefusal::Coroutine(_) => Errno::Stale,
        ContextRefusal::Denied(_) | ContextRefusal::NotReserved { .. } => Errno::Limit,
        ContextRefusal::NothingReady { .. } => Errno::Again,
        ContextRefusal::Off => Errno::Denied,
        _ => Errno::Invalid,
    }
}

/// Makes the manifest's contexts on their lanes and gives every session its table.
pub(crate) fn grant(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_positions: &[(GroupIndex, LaneIndex)],
) -> Result<(), LoadError> {
    if let Some(settings) = spec.context_settings() {
        if let Span::Picks(picks) = spec.span {
            return Err(LoadError::ContextsNeedCycles { picks });
        }
        for lane in groups.iter_mut().flat_map(|group| &mut group.lanes) {
            lane.requests.reserve(MOST_CONTEXTS as usize);
            let reserved = lane.kernel.reserve_contexts(settings, MOST_CONTEXTS);
            reserved.map_err(|refusal| LoadError::Machine { refusal })?;
        }
    }
    let home = |session: SessionId| {
        lane_positions[usize::from(spec.sessions[session.0 as usize].placement.home())]
    };
    for grant in &spec.grants {
        let (capability, name) = granted(grant.grant);
        groups[home(grant.session).0.get()].name_capability(grant.session, capability, name);
    }
    for context in &spec.contexts {
        let (group, lane) = home(context.session);
        make(context, &mut groups[group.get()], lane)
            .map_err(|refusal| LoadError::Context { context: context.name.clone(), refusal })?;
    }
    Ok(())
}

/// A grant as a capability, and its name.
const fn granted(grant: Grant) -> (Capability, &'static str) {
    match grant {
        Grant::Control => (Capability::Control, CONTROL_NAME),
        Grant::Policy => (Capability::Policy, POLICY_NAME),
        Grant::Isolation => (Capability::Isolation, ISOLATION_NAME),
    }
}

/// The kernel's parameters of a context of the manifest.
pub(crate) fn parameters_of(context: &ContextSpec) -> ContextParameters {
    ContextParameters {
        deadline: context.deadline,
        refills: context.refills,
        overrun: context.overrun,
        activation: context.activation,
        fallback: context.fallback,
        owner: context.session.0,
        ..ContextParameters::new(context.budget, context.period)
    }
}

/// Makes a context of the manifest and binds it to the first coroutine of its session.
fn make(context: &ContextSpec, group: &mut Group, lane: LaneIndex) -> Result<(), ContextRefusal> {
    let first = group.sessions[group.local[context.session]].tasks.live_at(0).kernel;
    let kernel = &mut group.lanes[lane].kernel;
    let made = kernel.create_context(parameters_of(context))?;
    kernel.bind_context(made, first)?;
    group.name_capability(context.session, Capability::Context(made), &context.name);
    Ok(())
}

impl Group {
    fn name_capability(&mut self, session: SessionId, capability: Capability, name: &str) {
        let index = self.local[session];
        let table = self.sessions[index].capabilities.get_or_insert_default();
        if let Some(handle) = table.add(capability) {
            table.names.push((name.into(), handle));
        }
    }
}

impl World {
    /// At the start of the first frame: the sessions that were placed by the mask of a context, and
    /// the contexts of the manifest, lane by lane.
    pub(crate) fn announce_contexts(&mut self) {
        for session in self.session_ids() {
            let from = self.spec.sessions[session.0 as usize].placement.home();
            let to = self.session_ref(session).home();
            if from != to {
                self.log_move(session, from, to, PLACED);
            }
        }
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            let views: Vec<ContextView> = lane.kernel.contexts().collect();
            for view in views {
                lane.log_made(view.context, &view.parameters);
                if let Some(tag) = view.holder.and_then(|holder| lane.kernel.tag(holder).ok()) {
                    lane.log_bound(view.context, tag);
                }
            }
        }
    }

    pub(crate) fn summarize(
        &self,
        group: &Group,
        lane: &LaneState,
        view: ContextView,
    ) -> ContextSummary {
        let owner = SessionId(view.parameters.owner);
        let state = &group.sessions[group.local[owner]];
        let table = state.capabilities.as_ref();
        let handle = table.and_then(|table| table.handle_of(view.context));
        let name =
            table.and_then(|table| table.names.iter().find(|(_, named)| Some(*named) == handle));
        let holder = view.holder.and_then(|holder| lane.kernel.tag(holder).ok());
        ContextSummary {
            name: name.map(|(name, _)| name.clone()),
            lane: LaneId(lane.id),
            owner,
            holder: holder.map(|tag| (SessionId(tag.session()), tag.slot())),
            view,
        }
    }

    /// Every context, lane by lane.
    #[must_use]
    pub fn contexts(&self) -> Vec<ContextSummary> {
        let lanes = self.lane_positions.iter().map(|&(group, lane)| {
            let group = &*self.groups[group];
            (group, &group.lanes[lane])
        });
        lanes
            .flat_map(|(group, lane)| {
                lane.kernel.contexts().map(|view| self.summarize(group, lane, view))
            })
            .collect()
    }
}
