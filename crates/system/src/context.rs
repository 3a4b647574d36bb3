//! Contexts as guests and traces see them: the host operations, the events, and what a lane's
//! kernel asks the system to do.
//!
//! Contract: an operation looks its handle up in the session's table first; a refusal is a code for
//! the guest and an event in the trace, with the operation and the code. All of it acts on the
//! caller's own lane. Elsewhere: the rules of contexts (`kernel`), who may (`authority`).

use crate::authority::{Capability, MOST_CONTEXTS};
use crate::channel::Message;
use crate::group::{Group, LaneState};
use crate::host::Region;
use crate::index::LaneIndex;
use crate::load::LoadError;
use crate::session::Handle;
use crate::spec::MachineSpec;
use crate::step::{Flow, Site};
use crate::task::Named;
use crate::world::World;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ContextRef, CoroutineRef, Cycles, Errno, HostOperation, LaneId, LatencyClass, SessionId, Weight,
};
use wavelock_kernel::{
    Activation, ContextEventKind, ContextParameters, ContextRefusal, ContextView, Outcome,
    OverrunPolicy, Share, Tag,
};
use wavelock_trace::{Event, StopCode};

/// Bytes of the parameters of a context in a guest's memory: budget, period, deadline, refills,
/// overrun policy, activation; each an i64.
const PARAMETER_BYTES: u32 = 48;

/// What a lane's kernel asks the system to do after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// End a coroutine whose context says so.
    End(Tag),
    /// Tell a timeout channel: owner session, channel, handle.
    Tell(u32, u64),
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

const fn errno(refusal: &ContextRefusal) -> Errno {
    match refusal {
        ContextRefusal::Stale { .. } | ContextRefusal::Coroutine(_) => Errno::Stale,
        ContextRefusal::Denied(_) | ContextRefusal::NotReserved { .. } => Errno::Limit,
        ContextRefusal::NothingReady { .. } => Errno::Again,
        ContextRefusal::Off => Errno::Denied,
        _ => Errno::Invalid,
    }
}

impl LaneState {
    /// Writes what happened to contexts into the log; what the system has to do about it is kept
    /// for the next step.
    #[cold]
    #[inline(never)]
    pub(crate) fn log_contexts(&mut self) {
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
                    requests.push(Request::Tell(event.context.slot, channel));
                    Event::Notify { context }
                }
                ContextEventKind::End => {
                    requests.extend(event.holder.map(Request::End));
                    return;
                }
                ContextEventKind::Donated { depth } => {
                    Event::Donate { context, session, slot, depth: u64::from(depth) }
                }
                ContextEventKind::Returned { depth } => {
                    Event::Return { context, session, slot, depth: u64::from(depth) }
                }
                ContextEventKind::Revoked { loans } => {
                    Event::Revoke { context, loans: u64::from(loans) }
                }
            };
            log.event(&written);
        });
    }
}

impl Group {
    /// Does what the kernel asked for after the last step of a lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_requests(&mut self, lane: LaneIndex) {
        for request in core::mem::take(&mut self.lanes[lane].requests) {
            match request {
                Request::End(tag) => {
                    let session = self.local[SessionId(tag.session())];
                    if self.sessions[session].ended.is_none()
                        && self.sessions[session].tasks.is_live(tag.slot())
                    {
                        self.cancel_task(lane, session, tag.slot());
                    }
                }
                Request::Tell(_, channel) => self.tell(lane, channel),
            }
        }
    }

    /// Tells a timeout channel, if it has room: what is not delivered is in the context's cell.
    fn tell(&mut self, lane: LaneIndex, target: u64) {
        let (owner, index, handle) =
            (SessionId((target >> 48) as u32), (target >> 32) as u16, target as u32);
        let session = self.local[owner];
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let state = &mut self.sessions[session];
        let Some(channel) = state.channels.get_mut(usize::from(index)) else { return };
        if state.ended.is_none()
            && !channel.closed
            && channel.local_room(wave, lanes) > 0
            && channel.senders.is_empty()
        {
            self.deliver(lane, session, u32::from(index), Message::Number(i64::from(handle)));
        }
    }

    /// A refusal: a code for the guest, an event for everybody.
    pub(crate) fn deny(&mut self, place: Site<'_>, operation: HostOperation, errno: Errno) -> Flow {
        let session = self.sessions[place.session].id;
        self.lanes[place.lane].log.event(&Event::Deny {
            session: u64::from(session.0),
            slot: u64::from(place.slot),
            operation: operation as u64,
            code: u64::from(errno.code().unsigned_abs()),
        });
        self.refuse(place, errno)
    }

    /// The context of a handle, on the caller's lane.
    fn context_of(&self, place: Site<'_>, handle: i32) -> Result<ContextRef, Errno> {
        match self.capability(place, handle)? {
            Capability::Context(context) => Ok(context),
            _ => Err(Errno::Invalid),
        }
    }

    /// What a handle stands for. Authority over a lane is used on that lane.
    fn capability(&self, place: Site<'_>, handle: i32) -> Result<Capability, Errno> {
        let state = &self.sessions[place.session];
        let table = state.capabilities.as_ref().ok_or(Errno::Denied)?;
        let found = table.get(handle).ok_or(Errno::Stale)?;
        let at_home = self.lanes[place.lane].id == state.home();
        if at_home || found == Capability::Policy { Ok(found) } else { Err(Errno::Denied) }
    }

    /// A live coroutine of the caller's session on the caller's lane, by the reference that the
    /// guest has, and its reference in that lane's kernel.
    fn target(
        &mut self,
        place: Site<'_>,
        reference: i64,
    ) -> Result<(CoroutineRef, CoroutineRef), Errno> {
        let target = CoroutineRef::from_guest(reference).ok_or(Errno::Invalid)?;
        let own_lane = self.lanes[place.lane].id;
        let tasks = &mut self.sessions[place.session].tasks;
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
        place: Site<'_>,
        operation: HostOperation,
        arguments: [u64; 4],
    ) -> Flow {
        let [first, second, third, _] = arguments;
        let handle = first as i32;
        self.lanes[place.lane].refusal = None;
        let answer = match operation {
            HostOperation::Capability => {
                return self.find_capability(place, Region::new(first, second));
            }
            HostOperation::ContextCreate | HostOperation::ContextConfigure => {
                let region = Region { start: second as u32, length: PARAMETER_BYTES };
                if !self.sessions[place.session].holds(region) {
                    return self.bad_pointer(place);
                }
                self.with_parameters(place, operation, handle, region)
            }
            HostOperation::ContextBind => self.bind(place, handle, second as i64),
            HostOperation::ContextUnbind => self.on_context(place, handle, |lane, context| {
                lane.unbind_context(context).map(|()| 0)
            }),
            HostOperation::ContextRevoke => self.revoke(place, handle),
            HostOperation::ContextConsumed => self.on_context(place, handle, |lane, context| {
                lane.take_consumed(context).map(|consumed| consumed.0 as i64)
            }),
            HostOperation::ContextNotice => return self.notice(place, handle, second as u32),
            HostOperation::ContextTimeout => self.set_timeout(place, handle, second as i32),
            HostOperation::ContextYield => return self.yield_context(place),
            _ => self.set_share(place, operation, (handle, second as i64, third as i32)),
        };
        self.settle_contexts(place.lane);
        match answer {
            Ok(value) => self.resume(place, &[value as u64]),
            Err(errno) => self.deny(place, operation, errno),
        }
    }

    fn find_capability(&mut self, place: Site<'_>, name: Region) -> Flow {
        let state = &self.sessions[place.session];
        let Some(name) = state.bytes(name) else { return self.bad_pointer(place) };
        match state.capabilities.as_ref().and_then(|table| table.named(name)) {
            Some(handle) => self.code(place, handle),
            None => self.deny(place, HostOperation::Capability, Errno::Denied),
        }
    }

    fn on_context(
        &mut self,
        place: Site<'_>,
        handle: i32,
        act: impl FnOnce(&mut wavelock_kernel::Lane, ContextRef) -> Result<i64, ContextRefusal>,
    ) -> Result<i64, Errno> {
        let context = self.context_of(place, handle)?;
        let done = act(&mut self.lanes[place.lane].kernel, context);
        done.map_err(|refusal| self.lanes[place.lane].refused(refusal))
    }

    /// Makes or changes a context with the parameters in the guest's memory.
    fn with_parameters(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        handle: i32,
        region: Region,
    ) -> Result<i64, Errno> {
        let capability = self.capability(place, handle)?;
        let state = &self.sessions[place.session];
        let bytes = state.bytes(region).ok_or(Errno::Invalid)?;
        let word = |at: usize| {
            i64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap_or_default())
        };
        let number = |at: usize| u64::try_from(word(at)).map_err(|_| Errno::Invalid);
        let overrun =
            u8::try_from(word(4)).ok().and_then(OverrunPolicy::from_code).ok_or(Errno::Invalid)?;
        let activation = match word(5) {
            0 => Activation::Sporadic,
            1 => Activation::ConstantBandwidth,
            _ => return Err(Errno::Invalid),
        };
        let parameters = ContextParameters {
            deadline: Cycles(number(2)?),
            refills: u8::try_from(word(3)).map_err(|_| Errno::Invalid)?,
            overrun,
            activation,
            owner: state.id.0,
            ..ContextParameters::new(Cycles(number(0)?), Cycles(number(1)?))
        };
        let lane = &mut self.lanes[place.lane];
        match (operation, capability) {
            (HostOperation::ContextCreate, Capability::Control) => {
                let context = lane
                    .kernel
                    .create_context(parameters)
                    .map_err(|refusal| lane.refused(refusal))?;
                let table =
                    self.sessions[place.session].capabilities.as_mut().ok_or(Errno::Denied)?;
                let Some(handle) = table.add(Capability::Context(context)) else {
                    let _ = self.lanes[place.lane].kernel.revoke_context(context, |_| ());
                    return Err(Errno::Limit);
                };
                self.lanes[place.lane].note_made(context, &parameters);
                Ok(i64::from(handle))
            }
            (HostOperation::ContextConfigure, Capability::Context(context)) => {
                let timeout = lane
                    .kernel
                    .context(context)
                    .map_err(|refusal| lane.refused(refusal))?
                    .parameters
                    .timeout;
                let changed = lane
                    .kernel
                    .configure_context(context, ContextParameters { timeout, ..parameters });
                changed.map_err(|refusal| lane.refused(refusal))?;
                Ok(0)
            }
            _ => Err(Errno::Invalid),
        }
    }

    fn bind(&mut self, place: Site<'_>, handle: i32, reference: i64) -> Result<i64, Errno> {
        let context = self.context_of(place, handle)?;
        let (target, kernel) = self.target(place, reference)?;
        let session = self.sessions[place.session].id;
        let lane = &mut self.lanes[place.lane];
        lane.kernel.bind_context(context, kernel).map_err(|refusal| lane.refused(refusal))?;
        lane.log.event(&Event::Bind {
            context: u64::from(context.slot),
            session: u64::from(session.0),
            slot: u64::from(target.slot),
        });
        Ok(0)
    }

    fn revoke(&mut self, place: Site<'_>, handle: i32) -> Result<i64, Errno> {
        let context = self.context_of(place, handle)?;
        let mut lenders = Vec::new();
        let lane = &mut self.lanes[place.lane];
        let _ = lane
            .kernel
            .revoke_context(context, |lender| lenders.push(lender))
            .map_err(|refusal| lane.refused(refusal))?;
        self.settle_contexts(place.lane);
        self.loans_revoked(place.lane, lenders);
        if let Some(table) = &mut self.sessions[place.session].capabilities {
            table.remove(handle);
        }
        Ok(0)
    }

    /// Reads a context's cell: count, first, last, overrun at `pointer`; answers the count.
    fn notice(&mut self, place: Site<'_>, handle: i32, pointer: u32) -> Flow {
        if !self.sessions[place.session].holds(Region { start: pointer, length: 32 }) {
            return self.bad_pointer(place);
        }
        let taken = self.context_of(place, handle).and_then(|context| {
            let lane = &mut self.lanes[place.lane];
            lane.kernel.take_notification(context).map_err(|refusal| lane.refused(refusal))
        });
        let cell = match taken {
            Ok(cell) => cell,
            Err(errno) => return self.deny(place, HostOperation::ContextNotice, errno),
        };
        let mut bytes = [0; 32];
        for (chunk, word) in
            bytes.chunks_exact_mut(8).zip([cell.count, cell.first.0, cell.last.0, cell.overrun.0])
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        // The region was checked above and memory never shrinks.
        let _ = self.sessions[place.session].write(pointer, &bytes);
        self.code(place, cell.count.min(i32::MAX as u64) as i32)
    }

    /// Names the channel of the session that is told when the context is used up; -1 is none.
    fn set_timeout(&mut self, place: Site<'_>, handle: i32, channel: i32) -> Result<i64, Errno> {
        let context = self.context_of(place, handle)?;
        let state = &self.sessions[place.session];
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
        let lane = &mut self.lanes[place.lane];
        lane.kernel
            .set_context_timeout(context, timeout)
            .map_err(|refusal| lane.refused(refusal))?;
        Ok(0)
    }

    /// Gives up the rest of the refill: the slice ends, and the next begins with the next refill.
    fn yield_context(&mut self, place: Site<'_>) -> Flow {
        if !self.lanes[place.lane].kernel.yield_context() {
            return self.deny(place, HostOperation::ContextYield, Errno::Invalid);
        }
        let _ = self.code(place, 0);
        Flow::Stop(Outcome::Yielded, StopCode::Yielded)
    }

    /// Changes a coroutine's weight or latency class, through the policy capability.
    fn set_share(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        arguments: (i32, i64, i32),
    ) -> Result<i64, Errno> {
        let (handle, reference, value) = arguments;
        if self.capability(place, handle)? != Capability::Policy {
            return Err(Errno::Invalid);
        }
        let (_, target) = self.target(place, reference)?;
        let kernel = &mut self.lanes[place.lane].kernel;
        let share = kernel.share(target).map_err(|_| Errno::Stale)?;
        let share = match operation {
            HostOperation::Weight => {
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

    /// A session ends: every context that it owns is revoked, on all its lanes.
    pub(crate) fn revoke_contexts(&mut self, from: LaneIndex, session: SessionId) {
        for lane in LaneIndex::all(&self.lanes) {
            if !self.lanes[lane].kernel.has_contexts() {
                continue;
            }
            let mut lenders = Vec::new();
            self.lanes[lane].kernel.revoke_contexts_of(session.0, |lender| lenders.push(lender));
            self.settle_contexts(lane);
            self.loans_revoked(from, lenders);
        }
    }
}

impl LaneState {
    /// The kernel refused an operation about time: a code for the guest, and the numbers for
    /// whoever asks why.
    pub(crate) fn refused(&mut self, refusal: ContextRefusal) -> Errno {
        self.refusal = Some(refusal);
        errno(&refusal)
    }

    /// A context was made here.
    pub(crate) fn note_made(&mut self, context: ContextRef, parameters: &ContextParameters) {
        self.log.event(&Event::Context {
            context: u64::from(context.slot),
            owner: u64::from(parameters.owner),
            budget: parameters.budget.0,
            period: parameters.period.0,
            deadline: parameters.deadline.0,
        });
    }
}

/// Makes the manifest's contexts on their lanes and gives every session its table.
pub(crate) fn grant(
    spec: &MachineSpec,
    groups: &mut [alloc::boxed::Box<Group>],
    places: &[(usize, LaneIndex)],
) -> Result<(), LoadError> {
    if !spec.grants_time() {
        return Ok(());
    }
    if let Some(settings) = spec.context_settings() {
        if let crate::spec::Span::Picks(picks) = spec.span {
            return Err(LoadError::ContextsNeedCycles { picks });
        }
        for &(group, lane) in places {
            let kernel = &mut groups[group].lanes[lane].kernel;
            kernel
                .reserve_contexts(settings, MOST_CONTEXTS)
                .map_err(|refusal| LoadError::Machine { refusal })?;
        }
    }
    let owners = spec
        .contexts
        .iter()
        .map(|context| context.session)
        .chain(spec.grants.iter().map(|grant| grant.session));
    for session in owners {
        let (group, _) = places[usize::from(spec.sessions[session.0 as usize].placement.home())];
        let group = &mut groups[group];
        let index = group.local[session];
        group.sessions[index].capabilities = Some(alloc::boxed::Box::default());
    }
    for grant in &spec.grants {
        let (capability, name) = match grant.grant {
            crate::authority::Grant::Control => {
                (Capability::Control, crate::authority::CONTROL_NAME)
            }
            crate::authority::Grant::Policy => (Capability::Policy, crate::authority::POLICY_NAME),
        };
        let (group, _) =
            places[usize::from(spec.sessions[grant.session.0 as usize].placement.home())];
        groups[group].name_capability(grant.session, capability, name);
    }
    for context in &spec.contexts {
        let (group, lane) =
            places[usize::from(spec.sessions[context.session.0 as usize].placement.home())];
        make(context, &mut groups[group], lane)?;
    }
    Ok(())
}

fn make(
    context: &crate::authority::ContextSpec,
    group: &mut Group,
    lane: LaneIndex,
) -> Result<(), LoadError> {
    let refused =
        |refusal: ContextRefusal| LoadError::Context { context: context.name.clone(), refusal };
    let parameters = ContextParameters {
        deadline: context.deadline,
        refills: context.refills,
        overrun: context.overrun,
        activation: context.activation,
        owner: context.session.0,
        ..ContextParameters::new(context.budget, context.period)
    };
    let index = group.local[context.session];
    let first = group.sessions[index].tasks.live_at(0).kernel;
    let state = &mut group.lanes[lane];
    let made = state.kernel.create_context(parameters).map_err(refused)?;
    state.kernel.bind_context(made, first).map_err(refused)?;
    group.name_capability(context.session, Capability::Context(made), &context.name);
    Ok(())
}

impl Group {
    fn name_capability(&mut self, session: SessionId, capability: Capability, name: &str) {
        let index = self.local[session];
        if let Some(table) = &mut self.sessions[index].capabilities
            && let Some(handle) = table.add(capability)
        {
            table.names.push((name.into(), handle));
        }
    }
}

impl World {
    /// The first frame begins: the contexts that the manifest made are told, lane by lane.
    pub(crate) fn announce_contexts(&mut self) {
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            let views: Vec<ContextView> = lane.kernel.contexts().collect();
            for view in views {
                lane.note_made(view.context, &view.parameters);
                if let Some(tag) = view.holder.and_then(|holder| lane.kernel.tag(holder).ok()) {
                    let context = u64::from(view.context.slot);
                    lane.log.event(&Event::Bind {
                        context,
                        session: u64::from(tag.session()),
                        slot: u64::from(tag.slot()),
                    });
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

    /// Every context there is, lane by lane.
    #[must_use]
    pub fn contexts(&self) -> Vec<ContextSummary> {
        let mut found = Vec::new();
        for &(group, lane) in self.lane_places.iter() {
            let group = &self.groups[group];
            let lane = &group.lanes[lane];
            found.extend(lane.kernel.contexts().map(|view| self.summarize(group, lane, view)));
        }
        found
    }
}
