//! The guest interface: what each operation of import module `wavelock` does
//! (docs/guest-interface.md), one function each.
//!
//! Contract: every operation is a safepoint and was charged its base cost by the machine. An
//! operation checks everything before its first change; a check that fails is a [`Refused`]. A
//! sized operation then prepays by size, over as many slices as it takes and with nothing visible
//! changed, and acts at once (semantics 5). [`Group::conclude`] alone resumes the coroutine.
//!
//! This is the slow path of all operations; the fast paths are in `batch`. Elsewhere: calls
//! (`call`), contexts (`context`), WASI (`wasi`).

use crate::channel::{Channel, Message, WaitingSender};
use crate::group::{Effect, Group, is_host_function, pending};
use crate::index::{ChannelIndex, TaskIndex};
use crate::queue::Front;
use crate::session::{Handle, SessionState};
use crate::step::{Flow, Site, wait_code};
use crate::task::{NONE, Named, Task, Wait};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, FaultCode, Frame, HostOperation as Op,
};
use wavelock_kernel::{BlockReason, Outcome};
use wavelock_machine::Coroutine;
use wavelock_module::{FunctionType, ValueType};
use wavelock_trace::{Event, StopCode};

/// What an operation did.
pub(crate) enum Done {
    /// The call returns nothing.
    Unit,
    /// The call returns this value.
    Value(u64),
    /// The call is not answered, or was answered by the operation itself.
    Flow(Flow),
}

impl Done {
    /// The call returns a code, sign-extended where its result has 64 bits.
    pub(crate) const fn code(code: i32) -> Self {
        Self::Value(code as i64 as u64)
    }
}

/// Why an operation did nothing.
pub(crate) enum Refused {
    /// The call returns this code.
    Code(i32),
    /// The call returns this code, and the trace has an event (semantics 40).
    Denied(i32),
    /// A pointer leaves the guest's memory: a fault of the coroutine.
    Pointer,
    /// The slice ended before the operation was paid for; the next slice resumes the payment.
    OutOfCycles,
}

impl Refused {
    /// The same refusal, with an event if it is a code.
    pub(crate) fn denied(self) -> Self {
        if let Self::Code(code) = self { Self::Denied(code) } else { self }
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Code(errno.code())
    }
}

pub(crate) type HostResult = Result<Done, Refused>;

/// Bytes of the guest's memory: a start and a length, both as the guest gave them.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Region {
    pub(crate) const fn new(start: u64, length: u64) -> Self {
        Self { start: start as u32, length: length as u32 }
    }

    /// The eight bytes of a number.
    pub(crate) const fn word(start: u64) -> Self {
        Self::new(start, 8)
    }
}

impl SessionState {
    /// The bytes of a region. Also the check that it lies inside the memory.
    pub(crate) fn bytes(&self, region: Region) -> Result<&[u8], Refused> {
        let memory = self.memory.ok_or(Refused::Pointer)?;
        self.machine.memory(memory).read(region.start, region.length).ok_or(Refused::Pointer)
    }

    /// Writes into the guest's memory.
    pub(crate) fn write(&mut self, start: u32, bytes: &[u8]) -> Result<(), Refused> {
        let memory = self.memory.ok_or(Refused::Pointer)?;
        let written = self.machine.memory_mut(memory).write(start, bytes);
        written.then_some(()).ok_or(Refused::Pointer)
    }

    /// Writes into a region that was checked before the operation's first change. Memory never
    /// shrinks, so this succeeds.
    pub(crate) fn write_checked(&mut self, start: u32, bytes: &[u8]) {
        let written = self.write(start, bytes);
        debug_assert!(written.is_ok(), "the region was checked");
    }

    /// The channel of a handle that this session may receive from.
    pub(crate) fn own_channel(&self, handle: i32) -> Result<u32, Errno> {
        match self.handle(handle) {
            None => Err(Errno::Invalid),
            Some(Handle::Port(_)) => Err(Errno::Denied),
            Some(Handle::Own(index)) => Ok(index),
        }
    }
}

/// The `owner` and `index` of an event about a channel.
pub(crate) fn event_fields(id: ChannelId) -> (u64, u64) {
    (u64::from(id.owner.0), u64::from(id.index))
}

/// Where a handle that can be sent to leads. The channel is open.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) id: ChannelId,
    /// The port, for a channel of another session.
    pub(crate) port: Option<u32>,
    pub(crate) target: Target,
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A channel of this lane, or of the session itself: a send acts at once.
    Here(ChannelIndex),
    /// A channel of lane `home`: a send spends a credit and arrives at the wave's end.
    Away { home: u16, credit: u32 },
}

/// Names of ports that were not found and are kept.
const MISSED_KEPT: usize = 4;

/// Dispatch and answers.
impl Group {
    /// Performs the host operation that the running coroutine stopped for.
    pub(crate) fn host_operation(&mut self, site: Site<'_>) -> Flow {
        let coroutine = self.sessions[site.session].tasks.coroutine_at(site.slot);
        let (operation, arguments) = pending(coroutine);
        let result = self.perform(site, operation, arguments);
        self.conclude(site, operation, result)
    }

    // Long: one arm per operation.
    fn perform(&mut self, site: Site<'_>, operation: Op, arguments: [u64; 4]) -> HostResult {
        let [first, second, third, _] = arguments;
        let handle = first as i32;
        let state = &mut self.sessions[site.session];
        let value = match operation {
            Op::Yield => unreachable!("the step engine answers yields"),
            Op::Sleep => {
                self.resume(site, &[]);
                return Ok(self.sleep(site, u64::try_from(first as i64).unwrap_or(0)));
            }
            Op::Spawn => return self.spawn(site, [first, second], None, 0),
            Op::SpawnOn => return self.spawn(site, [first, second], Some(third as i32), 0),
            Op::SpawnStack => return self.spawn(site, [first, second], None, third),
            Op::Detach => return self.detach(site, first as i64),
            Op::Join => return self.join(site, first as i64, second),
            Op::Cancel => return self.cancel(site, first as i64),
            Op::Exit => {
                state.host_calls += 1;
                state.note_exit(site.slot, first as i64);
                return Ok(Done::Flow(Flow::Exit(first as i64)));
            }
            Op::Channel => return self.make_channel(site, first as i32),
            Op::Port => return self.port(site, Region::new(first, second)),
            Op::Send => return self.send(site, handle, Message::Number(second as i64), true),
            Op::TrySend => return self.send(site, handle, Message::Number(second as i64), false),
            Op::SendBytes => return self.send_bytes(site, handle, Region::new(second, third)),
            Op::Recv | Op::TryRecv => return self.receive(site, handle, Region::word(second)),
            Op::RecvBytes => return self.receive(site, handle, Region::new(second, third)),
            Op::Select => return self.select(site, first, second as i32),
            Op::Close => return self.close(site, handle),
            Op::Input => return self.input(site, Region::new(first, second)),
            Op::Output => return self.output(site, Region::new(first, second)),
            Op::Log => {
                let bytes = self.paid_bytes(site, Region::new(first, second))?;
                self.append_log(site, &bytes);
                return Ok(Done::Unit);
            }
            Op::Park => return self.park(site),
            Op::Unpark => return self.unpark(site, first as i64),
            Op::SessionWait => return self.session_wait(site, handle, second),
            Op::SessionName => return self.session_name(site, Region::new(first, second)),
            Op::SessionIndex => state.index() as u64,
            Op::Own => state.tasks.reference_at(site.slot).to_guest() as u64,
            Op::Frame => self.frame.0,
            Op::Lane => u64::from(self.lanes[site.lane].id),
            Op::Cycles => state.tasks.coroutine_at(site.slot).used().0,
            Op::Remaining => self.frame_end().saturating_sub(self.now(site)).0,
            Op::Random => state.tasks.random(site.slot).next(),
            op if op.is_about_calls() => return self.call_operation(site, op, arguments),
            op if op.is_about_leases() => return self.lease_operation(site, op, arguments),
            op if op.is_about_time() => return self.context_operation(site, op, arguments),
            wasi => return self.wasi_operation(site, wasi, arguments),
        };
        Ok(Done::Value(value))
    }

    /// Ends a host operation: its result is given to the coroutine, or why it has none.
    fn conclude(&mut self, site: Site<'_>, operation: Op, result: HostResult) -> Flow {
        match result {
            Ok(Done::Unit) => self.resume(site, &[]),
            Ok(Done::Value(value)) => self.resume(site, &[value]),
            Ok(Done::Flow(flow)) => flow,
            Err(Refused::Code(code)) => self.resume(site, &[i64::from(code) as u64]),
            Err(Refused::Denied(code)) => {
                let session = u64::from(self.sessions[site.session].id.0);
                let (slot, operation) = (u64::from(site.slot), operation as u64);
                let number = u64::from(code.unsigned_abs());
                let event = Event::Deny { session, slot, operation, code: number };
                self.lanes[site.lane].log.event(&event);
                self.resume(site, &[i64::from(code) as u64])
            }
            Err(Refused::Pointer) => {
                let state = &mut self.sessions[site.session];
                let coroutine = state.tasks.coroutine_at(site.slot);
                let fault = coroutine.fail(&state.machine, FaultCode::BadPointer);
                self.faulted(site, fault)
            }
            Err(Refused::OutOfCycles) => Flow::OutOfCycles,
        }
    }

    /// Gives the call its results. A call is counted here: one that pays or blocks is performed
    /// more than once.
    #[inline]
    pub(crate) fn resume(&mut self, site: Site<'_>, results: &[u64]) -> Flow {
        let state = &mut self.sessions[site.session];
        state.host_calls += 1;
        state.tasks.coroutine_at(site.slot).resume(results);
        Flow::Continue
    }

    /// The coroutine blocks: its slice ends.
    pub(crate) fn wait(
        &mut self,
        site: Site<'_>,
        wait: Wait,
        reason: BlockReason,
        (owner, index): (u64, u64),
    ) -> HostResult {
        self.sessions[site.session].tasks.live_at(site.slot).wait = wait;
        let event = Event::Wait { reason: reason as u64, owner, index };
        self.lanes[site.lane].log.event(&event);
        Ok(Done::Flow(Flow::Stop(Outcome::Blocked(reason), wait_code(reason))))
    }

    /// The slice ends for this many frames; 0 is a yield.
    pub(crate) fn sleep(&mut self, site: Site<'_>, frames: u64) -> Done {
        if frames == 0 {
            return Done::Flow(Flow::Stop(Outcome::Yielded, StopCode::Yielded));
        }
        self.lanes[site.lane].log.event(&Event::Sleep { frames });
        let until = Frame(self.frame.0.saturating_add(frames));
        Done::Flow(Flow::Stop(Outcome::Slept(until), StopCode::Slept))
    }

    /// The coroutine runs again after a wait: its call gets the answer now, in the coroutine's own
    /// time.
    pub(crate) fn finish_wait(&mut self, site: Site<'_>) -> Flow {
        let tasks = &mut self.sessions[site.session].tasks;
        if tasks.live_at(site.slot).wait.is_none() {
            return Flow::Continue;
        }
        let (task, coroutine) = tasks.both_at(site.slot);
        if is_host_function(coroutine) {
            return self.finish_ask(site);
        }
        let (operation, [_, pointer, _, _]) = pending(coroutine);
        let wait = core::mem::replace(&mut task.wait, Wait::None);
        let result = self.answer_of(site, operation, pointer as u32, wait);
        self.conclude(site, operation, result)
    }

    fn answer_of(&mut self, site: Site<'_>, operation: Op, pointer: u32, wait: Wait) -> HostResult {
        let state = &mut self.sessions[site.session];
        match wait {
            Wait::Code(code) => Ok(Done::code(code)),
            Wait::Number(number) => {
                let may_discard = matches!(operation, Op::Join | Op::SessionWait);
                if !may_discard || pointer != u32::MAX {
                    state.write(pointer, &number.to_le_bytes())?;
                }
                Ok(Done::code(0))
            }
            Wait::Bytes(bytes) => {
                if let Err(refused) = self.prepay(site, bytes.len() as u64) {
                    let task = self.sessions[site.session].tasks.live_at(site.slot);
                    task.wait = Wait::Bytes(bytes);
                    return Err(refused);
                }
                self.sessions[site.session].write(pointer, &bytes)?;
                Ok(Done::code(bytes.len() as i32))
            }
            Wait::Taken(taken) => {
                let (number, handle) = *taken;
                state.write(pointer, &number.to_le_bytes())?;
                Ok(Done::code(handle))
            }
            // Input has arrived: the call is still pending and is performed again.
            _ => Ok(Done::Flow(Flow::Continue)),
        }
    }

    /// The end of the current frame on every lane's clock.
    pub(crate) fn frame_end(&self) -> Cycles {
        Cycles((self.frame.0 + 1).saturating_mul(self.shared.frame_cycles.0))
    }

    /// The lane's clock at this safepoint, inside the slice.
    pub(crate) fn now(&mut self, site: Site<'_>) -> Cycles {
        self.lanes[site.lane].kernel.clock() + self.used(site)
    }

    /// Pays for `bytes` moved by the pending operation.
    pub(crate) fn prepay(&mut self, site: Site<'_>, bytes: u64) -> Result<(), Refused> {
        let coroutine = self.sessions[site.session].tasks.coroutine_at(site.slot);
        let (operation, _) = pending(coroutine);
        let cost = Cycles(bytes.div_ceil(8) * operation.cost_per_8_bytes());
        if cost == Cycles::ZERO && self.sessions[site.session].profile.is_none() {
            return Ok(());
        }
        let left = self.left(site);
        let state = &mut self.sessions[site.session];
        let coroutine = state.tasks.coroutine_at(site.slot);
        let before = coroutine.used();
        let unpaid = coroutine.prepay(cost, left);
        if let Some(profile) = &mut state.profile {
            let function = coroutine.backtrace(&state.machine).next().map(|frame| frame.function);
            profile.prepaid(operation, function, coroutine.used() - before);
        }
        if unpaid == Cycles::ZERO { Ok(()) } else { Err(Refused::OutOfCycles) }
    }

    /// The bytes of a region, checked and paid for.
    fn paid_bytes(&mut self, site: Site<'_>, region: Region) -> Result<Vec<u8>, Refused> {
        self.sessions[site.session].bytes(region)?;
        self.prepay(site, u64::from(region.length))?;
        Ok(self.sessions[site.session].bytes(region)?.into())
    }
}

/// Coroutines.
impl Group {
    /// `spawn`, `spawn_on` with `lane`, `spawn_stack` with the top of a shadow stack. Without one
    /// that is 0, so that a first use faults instead of overwriting the parent's (semantics 9).
    fn spawn(
        &mut self,
        site: Site<'_>,
        [entry, argument]: [u64; 2],
        lane: Option<i32>,
        stack_top: u64,
    ) -> HostResult {
        let own_lane = self.lanes[site.lane].id;
        let state = &mut self.sessions[site.session];
        let target = lane.map_or(Ok(own_lane), |lane| {
            let mut lanes = state.lanes.iter().copied();
            lanes.find(|&other| i32::from(other) == lane).ok_or(Errno::Denied)
        })?;
        let function = state
            .table
            .and_then(|table| state.machine.table_function(table, entry as u32))
            .filter(|&function| is_entry(state.machine.function_type(function)))
            .ok_or(Errno::Invalid)?;
        if state.exiting || target == own_lane && !self.lanes[site.lane].kernel.takes_spawns() {
            return Err(Errno::Denied.into());
        }
        if state.tasks.occupied() >= state.limits.coroutines {
            return Err(Errno::Limit.into());
        }
        let mut coroutine = Coroutine::start(&state.machine, function, &[argument])
            .map_err(|_| Refused::from(Errno::Limit))?;
        if let Some(at) = state.stack_pointer {
            coroutine.set_global(&state.machine, at, stack_top);
        }
        let slot = state.tasks.next_reference().slot;
        let mut kernel = CoroutineRef::new(NONE, 0);
        if target == own_lane {
            match self.lanes[site.lane].publish(state.spawn(slot)) {
                Ok(reference) => kernel = reference,
                Err(refusal) => {
                    // The host is out of memory: the run ends, and no guest sees it.
                    self.failure = Some(refusal);
                    return Err(Refused::OutOfCycles);
                }
            }
        }
        let key = state.tasks.child_key(site.slot);
        let reference =
            state.tasks.insert(Task { kernel, key, wait: Wait::None }, target, coroutine);
        let session = state.id;
        self.live += 1;
        self.wave_peak = self.wave_peak.max(self.live);
        let lane = &mut self.lanes[site.lane];
        lane.log.event(&Event::Spawn {
            session: u64::from(session.0),
            slot: u64::from(slot),
            generation: u64::from(reference.generation),
            lane: u64::from(target),
        });
        if target != own_lane {
            lane.post(target, Effect::Publish { name: CoroutineName { session, reference } });
        }
        Ok(Done::Value(reference.to_guest() as u64))
    }

    fn detach(&mut self, site: Site<'_>, reference: i64) -> HostResult {
        let reference = CoroutineRef::from_guest(reference).ok_or(Errno::Invalid)?;
        let tasks = &mut self.sessions[site.session].tasks;
        if tasks.named(reference) == Named::Stale {
            return Err(Errno::Stale.into());
        }
        tasks.detach(reference);
        Ok(Done::code(0))
    }

    /// The coroutine that `join` or `cancel` names, which is not the caller itself.
    fn other(&self, site: Site<'_>, reference: i64) -> Result<(CoroutineRef, Named), Errno> {
        let tasks = &self.sessions[site.session].tasks;
        let target = CoroutineRef::from_guest(reference).ok_or(Errno::Invalid)?;
        if target == tasks.reference_at(site.slot) {
            return Err(Errno::Invalid);
        }
        match tasks.named(target) {
            Named::Stale => Err(Errno::Stale),
            named => Ok((target, named)),
        }
    }

    fn join(&mut self, site: Site<'_>, reference: i64, pointer: u64) -> HostResult {
        let wants_value = pointer as u32 != u32::MAX;
        if wants_value {
            self.sessions[site.session].bytes(Region::word(pointer))?;
        }
        let (target, named) = self.other(site, reference)?;
        let state = &mut self.sessions[site.session];
        if let Named::Ended { status, value } = named {
            state.tasks.joined(target.slot);
            let code = SessionState::join_code(status);
            if code == 0 && wants_value {
                state.write_checked(pointer as u32, &value.to_le_bytes());
            }
            return Ok(Done::code(code));
        }
        let joiners = &mut state.tasks.family_mut(target.slot).joiners;
        let next = core::mem::replace(joiners, site.slot);
        if next != NONE
            && let Wait::Joining { previous, .. } = &mut state.tasks.live_at(next).wait
        {
            *previous = site.slot;
        }
        let on = (u64::from(state.id.0), u64::from(target.slot));
        self.wait(site, Wait::Joining { next, previous: NONE }, BlockReason::Join, on)
    }

    fn cancel(&mut self, site: Site<'_>, reference: i64) -> HostResult {
        let (target, named) = self.other(site, reference)?;
        if named != Named::Live {
            return Ok(Done::code(0));
        }
        let state = &self.sessions[site.session];
        let (session, by) = (state.id, state.tasks.reference_at(site.slot));
        let lane = state.tasks.lane_at(target.slot);
        if lane == self.lanes[site.lane].id {
            self.cancel_task(site.lane, TaskIndex { session: site.session, slot: target.slot });
            return Ok(Done::code(0));
        }
        let target = CoroutineName { session, reference: target };
        self.lanes[site.lane].post(lane, Effect::Cancel { target, by });
        let on = (u64::from(session.0), u64::from(target.reference.slot));
        self.wait(site, Wait::Lane, BlockReason::OtherLane, on)
    }
}

/// Channels.
impl Group {
    fn make_channel(&mut self, site: Site<'_>, capacity: i32) -> HostResult {
        let state = &mut self.sessions[site.session];
        let limits = state.limits;
        let capacity = u32::try_from(capacity).ok().filter(|&capacity| capacity >= 1);
        let capacity = capacity.ok_or(Errno::Invalid)?;
        if capacity > limits.channel_capacity || state.made_channels >= limits.channels {
            return Err(Errno::Limit.into());
        }
        let index = state.channels.len() as u32;
        state.channels.push(Channel::new(state.id, state.channels.len(), capacity, None));
        state.made_channels += 1;
        state.handles.push(Handle::Own(index));
        let handle = state.handles.len() as i32 - 1;
        let event = Event::Channel { index: u64::from(index), capacity: u64::from(capacity) };
        self.lanes[site.lane].log.event(&event);
        Ok(Done::code(handle))
    }

    fn port(&mut self, site: Site<'_>, name: Region) -> HostResult {
        let name = self.paid_bytes(site, name)?;
        let names = &self.sessions[site.session].port_names;
        let found = names.binary_search_by(|(known, _)| known.as_bytes().cmp(&name));
        if let Ok(at) = found {
            return Ok(Done::code(names[at].1));
        }
        let missed = &mut self.sessions[site.session].missed_ports;
        if missed.len() < MISSED_KEPT {
            let name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
            if !missed.contains(&name) {
                missed.push(name);
            }
        }
        Err(Errno::Invalid.into())
    }

    fn send_bytes(&mut self, site: Site<'_>, handle: i32, region: Region) -> HostResult {
        self.sessions[site.session].bytes(region)?;
        if region.length > self.shared.limits.message_bytes {
            return Err(Errno::Limit.into());
        }
        let bytes = self.paid_bytes(site, region)?;
        self.send(site, handle, Message::Bytes(bytes.into()), true)
    }

    fn send(&mut self, site: Site<'_>, handle: i32, message: Message, blocks: bool) -> HostResult {
        let route = self.route(site, handle)?;
        let has_room = self.has_room(site, route.target);
        if !has_room && !blocks {
            return Err(Errno::Again.into());
        }
        self.send_on(site, route, message, has_room)
    }

    /// Where a send through a handle goes.
    pub(crate) fn route(&self, site: Site<'_>, handle: i32) -> Result<Route, Errno> {
        let (state, lane) = (&self.sessions[site.session], &self.lanes[site.lane]);
        let (id, port) = match state.handle(handle).ok_or(Errno::Invalid)? {
            Handle::Own(index) => (ChannelId { owner: state.id, index }, None),
            Handle::Port(port) => (state.ports[port as usize].channel, Some(port)),
        };
        let wire = port.map(|port| &state.ports[port as usize]);
        if wire.is_some_and(|wire| wire.closed) {
            return Err(Errno::Closed);
        }
        let (target, is_closed) = match wire.filter(|wire| wire.home != lane.id) {
            None => {
                let at = self.local.channel(id);
                (Target::Here(at), self.sessions[at].closed)
            }
            Some(wire) => {
                let at = state.lanes.iter().position(|&own| own == lane.id).unwrap_or(0);
                let (home, credit) = (wire.home, wire.credits[at]);
                (Target::Away { home, credit }, lane.credits[credit as usize].closed)
            }
        };
        if is_closed {
            return Err(Errno::Closed);
        }
        Ok(Route { id, port, target })
    }

    /// Whether a send enters without waiting. On the way to another lane this spends the credit,
    /// and the caller sends.
    pub(crate) fn has_room(&mut self, site: Site<'_>, target: Target) -> bool {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        match target {
            Target::Here(at) => {
                let channel = &self.sessions[at];
                channel.senders.is_empty() && channel.local_room(wave, lanes) > 0
            }
            Target::Away { credit, .. } => {
                let lane = &mut self.lanes[site.lane];
                lane.credits[credit as usize].take(lane.id, wave, lanes)
            }
        }
    }

    /// Slow path of every send and call: the message enters the channel, or waits at it with its
    /// sender. A caller waits in either case.
    pub(crate) fn send_on(
        &mut self,
        site: Site<'_>,
        Route { id, port, target }: Route,
        message: Message,
        has_room: bool,
    ) -> HostResult {
        let (owner, index) = event_fields(id);
        let state = &mut self.sessions[site.session];
        let sender = state.coroutine_name(site.slot);
        state.messages += 1;
        if has_room && let Some(port) = port {
            state.ports[port as usize].sent.add_message(&message);
        }
        let call = match &message {
            Message::Call(call) => Some(call.caller.call),
            _ => None,
        };
        let (event, reason) = if call.is_some() {
            state.made_call(has_room);
            (Event::Call { owner, index }, BlockReason::Reply)
        } else {
            (Event::Send { owner, index }, BlockReason::ChannelSend)
        };
        self.lanes[site.lane].log.event(&event);
        let ticket = match target {
            Target::Here(at) if !has_room => Some(self.sessions[at].ticket()),
            _ => None,
        };
        let wait = match ticket {
            None if has_room => call.map(Wait::Reply),
            None => Some(Wait::Lane),
            Some(ticket) => Some(Wait::Queued(ticket)),
        };
        let done = match wait {
            None => Ok(Done::code(0)),
            Some(wait) => self.wait(site, wait, reason, (owner, index)),
        };
        match (target, ticket) {
            (Target::Here(at), None) => {
                self.deliver(site.lane, at, message);
                self.sessions[at].refresh();
            }
            (Target::Here(at), Some(ticket)) => {
                let sender = WaitingSender { name: sender, local: true, message };
                self.sessions[at].push_sender(ticket, sender);
                // Room that is promised to other lanes lapses at the wave's end.
                self.touch(at);
            }
            (Target::Away { home, .. }, _) => {
                let effect = match has_room {
                    true => Effect::Message { channel: id, sender, message },
                    false => Effect::WaitToSend { channel: id, sender, message },
                };
                self.lanes[site.lane].post(home, effect);
            }
        }
        done
    }

    /// `recv`, `try_recv` and `recv_bytes`, into a region of the guest's memory.
    fn receive(&mut self, site: Site<'_>, handle: i32, region: Region) -> HostResult {
        let state = &mut self.sessions[site.session];
        let (operation, _) = pending(state.tasks.coroutine_at(site.slot));
        state.bytes(region)?;
        let wants_bytes = operation == Op::RecvBytes;
        let id = ChannelId { owner: state.id, index: state.own_channel(handle)? };
        let at = ChannelIndex { owner: site.session, index: id.index };
        let channel = &mut self.sessions[at];
        let length = match channel.queue.front() {
            None if channel.closed => return Err(Errno::Closed.into()),
            None if operation == Op::TryRecv => return Err(Errno::Again.into()),
            None => {
                let ticket = channel.ticket();
                channel.receivers.push(ticket, site.slot);
                let wait = if wants_bytes { Wait::Queued(ticket) } else { Wait::Taking(ticket) };
                return self.wait(site, wait, BlockReason::ChannelReceive, event_fields(id));
            }
            Some(Front::Number(_)) if !wants_bytes => 0,
            Some(Front::Bytes(bytes)) if wants_bytes && bytes.len() <= region.length as usize => {
                bytes.len() as u64
            }
            Some(_) => return Err(Errno::MessageSize.into()),
        };
        self.prepay(site, length)?;
        let state = &mut self.sessions[site.session];
        match state.channels[id.index as usize].queue.pop_front() {
            Some(Message::Number(number)) => {
                state.write_checked(region.start, &number.to_le_bytes());
            }
            Some(Message::Bytes(bytes)) => state.write_checked(region.start, &bytes),
            Some(Message::Call(_)) | None => unreachable!("the front was checked"),
        }
        self.touch(at);
        let (owner, index) = event_fields(id);
        self.lanes[site.lane].log.event(&Event::Receive { owner, index });
        self.admit_senders(site.lane, at);
        self.sessions[at].refresh();
        Ok(Done::code(length as i32))
    }

    fn select(&mut self, site: Site<'_>, pointer: u64, count: i32) -> HostResult {
        let count = u32::try_from(count).ok().filter(|&count| count >= 1).ok_or(Errno::Invalid)?;
        if count > self.shared.limits.select {
            return Err(Errno::Limit.into());
        }
        let length = count.checked_mul(4).ok_or(Refused::Pointer)?;
        let region = Region { start: pointer as u32, length };
        let handles = self.paid_bytes(site, region)?;
        let state = &mut self.sessions[site.session];
        let channels = handles
            .chunks_exact(4)
            .map(|bytes| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .map(|handle| state.own_channel(handle))
            .collect::<Result<Vec<u32>, Errno>>()?;
        let ready = channels.iter().position(|&at| state.channels[at as usize].receivable());
        if let Some(at) = ready {
            return Ok(Done::code(at as i32));
        }
        let on = (u64::from(state.id.0), u64::from(channels[0]));
        let tickets = channels.into_iter().map(|index| {
            let channel = &mut state.channels[index as usize];
            let ticket = channel.ticket();
            channel.push_selector(ticket, site.slot);
            (index, ticket)
        });
        let wait = Wait::Selecting(Box::new(tickets.collect()));
        self.wait(site, wait, BlockReason::Select, on)
    }

    fn close(&mut self, site: Site<'_>, handle: i32) -> HostResult {
        let state = &self.sessions[site.session];
        match state.handle(handle).ok_or(Errno::Invalid)? {
            Handle::Own(index) if !state.channels[index as usize].closed => {
                self.close_channel(site.lane, ChannelIndex { owner: site.session, index });
            }
            Handle::Port(port) if !state.ports[port as usize].closed => {
                self.close_port(site.lane, site.session, port);
            }
            _ => return Err(Errno::Closed.into()),
        }
        Ok(Done::code(0))
    }
}

/// Input, output and log.
impl Group {
    fn input(&mut self, site: Site<'_>, region: Region) -> HostResult {
        let state = &self.sessions[site.session];
        state.bytes(region)?;
        let Some(event) = state.input.next_event() else { return Ok(Done::code(0)) };
        let event: Box<[u8]> = event.into();
        if event.len() > region.length as usize {
            return Err(Errno::MessageSize.into());
        }
        let length = event.len() as u64;
        self.prepay(site, length)?;
        let state = &mut self.sessions[site.session];
        state.input.take_event();
        state.write_checked(region.start, &event);
        let session = u64::from(state.id.0);
        self.lanes[site.lane].log.event(&Event::Input { session, length });
        Ok(Done::code(length as i32))
    }

    fn output(&mut self, site: Site<'_>, region: Region) -> HostResult {
        let state = &self.sessions[site.session];
        state.bytes(region)?;
        if region.length as usize > state.limits.output_bytes as usize - state.output.len() {
            return Err(Errno::Limit.into());
        }
        let bytes = self.paid_bytes(site, region)?;
        self.append_output(site, &bytes);
        Ok(Done::code(0))
    }

    /// Bytes leave at FRAME_SYNC.
    pub(crate) fn append_output(&mut self, site: Site<'_>, bytes: &[u8]) {
        self.flush_at_sync(site, bytes);
        let state = &mut self.sessions[site.session];
        state.output.extend_from_slice(bytes);
        state.output_chain.add(bytes);
        let session = u64::from(state.id.0);
        self.lanes[site.lane].log.event(&Event::Output { session, bytes });
    }

    /// Diagnostics leave at FRAME_SYNC; what exceeds the limit of a frame is counted and dropped.
    pub(crate) fn append_log(&mut self, site: Site<'_>, bytes: &[u8]) {
        let limit = self.shared.limits.log_bytes as usize;
        let room = limit.saturating_sub(self.sessions[site.session].log.len());
        let (kept, dropped) = bytes.split_at(bytes.len().min(room));
        self.flush_at_sync(site, kept);
        let state = &mut self.sessions[site.session];
        state.log.extend_from_slice(kept);
        state.log_dropped += dropped.len() as u64;
    }

    /// Lists the session as one with output, before its first bytes of the frame.
    fn flush_at_sync(&mut self, site: Site<'_>, bytes: &[u8]) {
        let state = &self.sessions[site.session];
        if !bytes.is_empty() && state.output.is_empty() && state.log.is_empty() {
            self.unflushed.push(state.id);
        }
    }
}

/// A function that a coroutine can start at: `(i64) -> i64` or `(i64) -> ()`.
pub(crate) fn is_entry(kind: &FunctionType) -> bool {
    kind.parameters() == [ValueType::I64]
        && (kind.results().is_empty() || kind.results() == [ValueType::I64])
}
