//! The guest interface: what each operation of import module `wavelock` does
//! (docs/guest-interface.md), one function each.
//!
//! Every operation is a safepoint and was charged its base cost by the machine. A sized one checks
//! its pointers first, then prepays by size over as many slices as it takes with nothing visible
//! changed, then acts at once (semantics 5). A refusal is a negative code; a pointer outside the
//! guest's memory is a fault of that coroutine alone. WASI is in `wasi`.

use crate::channel::{Channel, Message, WaitingSender};
use crate::group::{Effect, Group, pending};
use crate::index::SessionIndex;
use crate::queue::Front;
use crate::session::{Handle, SessionState};
use crate::step::{Flow, Site, wait_code};
use crate::task::{NONE, Named, Task, Wait};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, FaultCode, Frame, HostOperation,
};
use wavelock_kernel::{BlockReason, Outcome, Refusal};
use wavelock_machine::Coroutine;
use wavelock_module::{FunctionType, ValueType};
use wavelock_trace::{Event, StopCode};

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
}

impl SessionState {
    /// The bytes of a region, or `None` when it leaves the memory.
    pub(crate) fn bytes(&self, region: Region) -> Option<&[u8]> {
        self.machine.memory(self.memory?).read(region.start, region.length)
    }

    /// Writes into the guest's memory; `false` when it does not fit.
    #[must_use]
    pub(crate) fn write(&mut self, start: u32, bytes: &[u8]) -> bool {
        self.memory.is_some_and(|memory| self.machine.memory_mut(memory).write(start, bytes))
    }

    /// Whether a region lies inside the memory.
    pub(crate) fn holds(&self, region: Region) -> bool {
        self.bytes(region).is_some()
    }
}

/// Eight bytes at `pointer`: where a number is written.
const fn word(pointer: u64) -> Region {
    Region { start: pointer as u32, length: 8 }
}

impl Group {
    /// The running coroutine asked for a host operation.
    // Long: one line per operation, which is what makes it readable.
    pub(crate) fn host_operation(&mut self, place: Site<'_>) -> Flow {
        let state = &mut self.sessions[place.session];
        let (operation, arguments) = pending(state.tasks.coroutine_at(place.slot));
        let [first, second, third, _] = arguments;
        match operation {
            HostOperation::Yield => unreachable!("a yield is answered before it comes here"),
            HostOperation::Sleep => {
                self.resume(place, &[]);
                self.sleep(place, first as i64)
            }
            HostOperation::Spawn => self.spawn(place, first, second, None, None),
            HostOperation::SpawnOn => self.spawn(place, first, second, Some(third as i32), None),
            HostOperation::SpawnStack => self.spawn(place, first, second, None, Some(third)),
            HostOperation::Detach => self.detach(place, first as i64),
            HostOperation::Own => {
                let own = state.tasks.reference_at(place.slot).to_guest();
                self.resume(place, &[own as u64])
            }
            HostOperation::Join => self.join(place, first as i64, second),
            HostOperation::Cancel => self.cancel(place, first as i64),
            HostOperation::Exit => {
                state.host_calls += 1;
                state.note_exit(place.slot, first as i64);
                Flow::Exit(first as i64)
            }
            HostOperation::Channel => self.make_channel(place, first as i32),
            HostOperation::Port => self.port(place, Region::new(first, second)),
            HostOperation::Send => {
                self.send(place, first as i32, Message::Number(second as i64), true)
            }
            HostOperation::TrySend => {
                self.send(place, first as i32, Message::Number(second as i64), false)
            }
            HostOperation::SendBytes => {
                self.send_bytes(place, first as i32, Region::new(second, third))
            }
            HostOperation::Recv => self.receive(place, operation, first as i32, word(second), true),
            HostOperation::TryRecv => {
                self.receive(place, operation, first as i32, word(second), false)
            }
            HostOperation::RecvBytes => {
                self.receive(place, operation, first as i32, Region::new(second, third), true)
            }
            HostOperation::Select => self.select(place, first, second as i32),
            HostOperation::Close => self.close(place, first as i32),
            HostOperation::Frame => {
                let frame = self.frame.0;
                self.resume(place, &[frame])
            }
            HostOperation::Lane => {
                let lane = u64::from(self.lanes[place.lane].id);
                self.resume(place, &[lane])
            }
            HostOperation::Cycles => {
                let used = state.tasks.coroutine_at(place.slot).used().0;
                self.resume(place, &[used])
            }
            HostOperation::Remaining => {
                let left = self.frame_end().saturating_sub(self.now(place));
                self.resume(place, &[left.0])
            }
            HostOperation::Random => {
                let number = state.tasks.random(place.slot).next();
                self.resume(place, &[number])
            }
            HostOperation::Input => self.input(place, Region::new(first, second)),
            HostOperation::Output => self.output(place, Region::new(first, second)),
            HostOperation::Log => self.log(place, Region::new(first, second)),
            operation if operation.is_about_calls() => {
                self.call_operation(place, operation, arguments)
            }
            operation if operation.is_about_time() => {
                self.context_operation(place, operation, arguments)
            }
            wasi => self.wasi_operation(place, wasi, arguments),
        }
    }

    /// Gives the call its results. A call is counted when it is answered: while it pays or waits it
    /// can come up many times.
    #[inline]
    pub(crate) fn resume(&mut self, place: Site<'_>, results: &[u64]) -> Flow {
        let state = &mut self.sessions[place.session];
        state.host_calls += 1;
        state.tasks.coroutine_at(place.slot).resume(results);
        Flow::Continue
    }

    /// Answers with a code: negative for a result of 64 bits too.
    pub(crate) fn code(&mut self, place: Site<'_>, code: i32) -> Flow {
        self.resume(place, &[i64::from(code) as u64])
    }

    /// Refuses with a code.
    pub(crate) fn refuse(&mut self, place: Site<'_>, errno: Errno) -> Flow {
        self.code(place, errno.code())
    }

    /// A wrong pointer: a fault at the call.
    pub(crate) fn bad_pointer(&mut self, place: Site<'_>) -> Flow {
        let state = &mut self.sessions[place.session];
        let fault =
            state.tasks.coroutine_at(place.slot).fail(&state.machine, FaultCode::BadPointer);
        self.faulted(place, fault)
    }

    /// The host could not do its part (memory): the run ends; no guest sees it (semantics 13).
    fn host_failed(&mut self, refusal: Refusal) -> Flow {
        self.failure = Some(refusal);
        Flow::OutOfCycles
    }

    /// The end of the current frame on every lane's clock.
    pub(crate) fn frame_end(&self) -> Cycles {
        Cycles((self.frame.0 + 1).saturating_mul(self.shared.frame_cycles.0))
    }

    /// The lane's clock at this safepoint, inside the slice.
    pub(crate) fn now(&mut self, place: Site<'_>) -> Cycles {
        let used = self.sessions[place.session].tasks.coroutine_at(place.slot).used() - place.began;
        self.lanes[place.lane].kernel.clock() + used
    }

    /// Pays for `bytes` moved by a sized operation. `false`: the slice is used up, and the call
    /// goes on paying in the next.
    #[must_use]
    pub(crate) fn prepay(&mut self, place: Site<'_>, operation: HostOperation, bytes: u64) -> bool {
        let cost = Cycles(bytes.div_ceil(8) * operation.cost_per_8_bytes());
        if cost == Cycles::ZERO && self.sessions[place.session].profile.is_none() {
            return true;
        }
        let left = self.left(place);
        let state = &mut self.sessions[place.session];
        let coroutine = state.tasks.coroutine_at(place.slot);
        let before = coroutine.used();
        let paid = coroutine.prepay(cost, left) == Cycles::ZERO;
        if let Some(profile) = &mut state.profile {
            let function = coroutine.backtrace(&state.machine).next().map(|frame| frame.function);
            profile.prepaid(operation, function, coroutine.used() - before);
        }
        paid
    }

    fn sleep(&mut self, place: Site<'_>, frames: i64) -> Flow {
        if frames <= 0 {
            return Flow::Stop(Outcome::Yielded, StopCode::Yielded);
        }
        self.lanes[place.lane].log.event(&Event::Sleep { frames: frames as u64 });
        Flow::Stop(
            Outcome::Slept(Frame(self.frame.0.saturating_add(frames as u64))),
            StopCode::Slept,
        )
    }

    /// The slice ends in a wait.
    pub(crate) fn wait(
        &mut self,
        place: Site<'_>,
        wait: Wait,
        reason: BlockReason,
        on: (u64, u64),
    ) -> Flow {
        self.sessions[place.session].tasks.live_at(place.slot).wait = wait;
        self.lanes[place.lane].log.event(&Event::Wait {
            reason: reason as u64,
            owner: on.0,
            index: on.1,
        });
        Flow::Stop(Outcome::Blocked(reason), wait_code(reason))
    }

    /// The coroutine runs again after a wait: what it waited for is written and answered now, in
    /// its own time.
    pub(crate) fn finish_wait(&mut self, place: Site<'_>) -> Flow {
        let state = &mut self.sessions[place.session];
        if state.tasks.live_at(place.slot).wait.is_none() {
            return Flow::Continue;
        }
        let (task, coroutine) = state.tasks.both_at(place.slot);
        let (operation, [_, pointer, _, _]) = pending(coroutine);
        match core::mem::replace(&mut task.wait, Wait::None) {
            Wait::Code(code) => self.code(place, code),
            Wait::Number(number) => {
                let nowhere = operation == HostOperation::Join && pointer as u32 == u32::MAX;
                if !nowhere && !state.write(pointer as u32, &number.to_le_bytes()) {
                    return self.bad_pointer(place);
                }
                self.code(place, 0)
            }
            Wait::Bytes(bytes) => {
                if !self.prepay(place, operation, bytes.len() as u64) {
                    self.sessions[place.session].tasks.live_at(place.slot).wait =
                        Wait::Bytes(bytes);
                    return Flow::OutOfCycles;
                }
                if !self.sessions[place.session].write(pointer as u32, &bytes) {
                    return self.bad_pointer(place);
                }
                self.code(place, bytes.len() as i32)
            }
            Wait::Taken(taken) => {
                let (number, handle) = *taken;
                if !state.write(pointer as u32, &number.to_le_bytes()) {
                    return self.bad_pointer(place);
                }
                self.code(place, handle)
            }
            // Input came, or the wait is to be looked at again: the call is still pending and runs
            // anew.
            _ => Flow::Continue,
        }
    }

    fn spawn(
        &mut self,
        place: Site<'_>,
        entry: u64,
        argument: u64,
        lane: Option<i32>,
        top: Option<u64>,
    ) -> Flow {
        let limits = self.shared.limits;
        let own_lane = self.lanes[place.lane].id;
        let state = &mut self.sessions[place.session];
        let target = match lane {
            None => own_lane,
            Some(lane) => match state.lanes.iter().find(|&&other| i32::from(other) == lane) {
                Some(&lane) => lane,
                None => return self.refuse(place, Errno::Denied),
            },
        };
        let Some(function) =
            state.table.and_then(|table| state.machine.table_function(table, entry as u32))
        else {
            return self.refuse(place, Errno::Invalid);
        };
        if !is_entry(state.machine.function_type(function)) {
            return self.refuse(place, Errno::Invalid);
        }
        if state.exiting {
            return self.refuse(place, Errno::Denied);
        }
        if state.tasks.occupied() >= limits.coroutines {
            return self.refuse(place, Errno::Limit);
        }
        let Ok(mut coroutine) = Coroutine::start(&state.machine, function, &[argument]) else {
            return self.refuse(place, Errno::Limit);
        };
        // A child without a stack of its own starts at 0, so that a first use faults instead of
        // overlapping its parent (semantics 9).
        if let Some(at) = state.stack_pointer {
            coroutine.set_global(&state.machine, at, top.unwrap_or(0));
        }
        let slot = state.tasks.next_reference().slot;
        let mut kernel = CoroutineRef::new(NONE, 0);
        if target == own_lane {
            match self.lanes[place.lane].publish(state.spawn(slot)) {
                Ok(reference) => kernel = reference,
                Err(refusal) => return self.host_failed(refusal),
            }
        }
        let key = state.tasks.child_key(place.slot);
        let task = Task { kernel, key, wait: Wait::None };
        let reference = state.tasks.insert(task, target, coroutine);
        let session = state.id;
        self.live += 1;
        self.wave_peak = self.wave_peak.max(self.live);
        let lane_state = &mut self.lanes[place.lane];
        lane_state.log.event(&Event::Spawn {
            session: u64::from(session.0),
            slot: u64::from(slot),
            generation: u64::from(reference.generation),
            lane: u64::from(target),
        });
        if target != own_lane {
            lane_state.post(target, Effect::Publish { session, reference });
        }
        self.resume(place, &[reference.to_guest() as u64])
    }

    fn detach(&mut self, place: Site<'_>, reference: i64) -> Flow {
        let Some(reference) = CoroutineRef::from_guest(reference) else {
            return self.refuse(place, Errno::Invalid);
        };
        let tasks = &mut self.sessions[place.session].tasks;
        if tasks.named(reference) == Named::Stale {
            return self.refuse(place, Errno::Stale);
        }
        tasks.detach(reference);
        self.code(place, 0)
    }

    fn join(&mut self, place: Site<'_>, reference: i64, pointer: u64) -> Flow {
        let state = &mut self.sessions[place.session];
        let nowhere = pointer as u32 == u32::MAX;
        if !nowhere && !state.holds(word(pointer)) {
            return self.bad_pointer(place);
        }
        let target = match CoroutineRef::from_guest(reference) {
            Some(target) if target != state.tasks.reference_at(place.slot) => target,
            _ => return self.refuse(place, Errno::Invalid),
        };
        match state.tasks.named(target) {
            Named::Stale => self.refuse(place, Errno::Stale),
            Named::Ended { status, value } => {
                state.tasks.joined(target.slot);
                let code = SessionState::join_code(status);
                if code == 0 && !nowhere {
                    // The region was checked above and memory never shrinks.
                    let _ = state.write(pointer as u32, &value.to_le_bytes());
                }
                self.code(place, code)
            }
            Named::Live => {
                let next = core::mem::replace(
                    &mut state.tasks.family_mut(target.slot).joiners,
                    place.slot,
                );
                if next != NONE
                    && let Wait::Joining { previous, .. } = &mut state.tasks.live_at(next).wait
                {
                    *previous = place.slot;
                }
                let on = (u64::from(state.id.0), u64::from(target.slot));
                self.wait(place, Wait::Joining { next, previous: NONE }, BlockReason::Join, on)
            }
        }
    }

    fn cancel(&mut self, place: Site<'_>, reference: i64) -> Flow {
        let own_lane = self.lanes[place.lane].id;
        let state = &mut self.sessions[place.session];
        let own = state.tasks.reference_at(place.slot);
        let target = match CoroutineRef::from_guest(reference) {
            Some(target) if target != own => target,
            _ => return self.refuse(place, Errno::Invalid),
        };
        match state.tasks.named(target) {
            Named::Stale => self.refuse(place, Errno::Stale),
            Named::Ended { .. } => self.code(place, 0),
            Named::Live => {
                let session = state.id;
                let lane = state.tasks.lane_at(target.slot);
                if lane == own_lane {
                    self.cancel_task(place.lane, place.session, target.slot);
                    return self.code(place, 0);
                }
                let effect = Effect::Cancel { session, target, by: own };
                self.lanes[place.lane].post(lane, effect);
                self.wait(
                    place,
                    Wait::Lane,
                    BlockReason::OtherLane,
                    (u64::from(session.0), u64::from(target.slot)),
                )
            }
        }
    }

    fn make_channel(&mut self, place: Site<'_>, capacity: i32) -> Flow {
        let limits = self.shared.limits;
        let state = &mut self.sessions[place.session];
        let capacity = match u32::try_from(capacity) {
            Ok(capacity) if capacity >= 1 => capacity,
            _ => return self.refuse(place, Errno::Invalid),
        };
        if capacity > limits.channel_capacity || state.made_channels >= limits.channels {
            return self.refuse(place, Errno::Limit);
        }
        let index = state.channels.len() as u32;
        state.channels.push(Channel::new(state.id, state.channels.len(), capacity, None));
        state.made_channels += 1;
        state.handles.push(Handle::Own(index));
        let handle = state.handles.len() as i32 - 1;
        self.lanes[place.lane]
            .log
            .event(&Event::Channel { index: u64::from(index), capacity: u64::from(capacity) });
        self.code(place, handle)
    }

    fn port(&mut self, place: Site<'_>, region: Region) -> Flow {
        if !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        if !self.prepay(place, HostOperation::Port, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let state = &self.sessions[place.session];
        let name = state.bytes(region).unwrap_or_default();
        let found = state.port_names.binary_search_by(|(known, _)| known.as_bytes().cmp(name));
        match found {
            Ok(at) => {
                let handle = state.port_names[at].1;
                self.code(place, handle)
            }
            Err(_) => self.refuse(place, Errno::Invalid),
        }
    }

    fn send_bytes(&mut self, place: Site<'_>, handle: i32, region: Region) -> Flow {
        let limit = self.shared.limits.message_bytes;
        if !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        if region.length > limit {
            return self.refuse(place, Errno::Limit);
        }
        if !self.prepay(place, HostOperation::SendBytes, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let bytes = self.sessions[place.session].bytes(region).unwrap_or_default().into();
        self.send(place, handle, Message::Bytes(bytes), true)
    }

    fn send(&mut self, place: Site<'_>, handle: i32, message: Message, waits: bool) -> Flow {
        let state = &mut self.sessions[place.session];
        match state.handle(handle) {
            None => self.refuse(place, Errno::Invalid),
            Some(Handle::Own(index)) => {
                let channel = ChannelId { owner: state.id, index };
                self.send_here(place, channel, place.session, message, None, waits)
            }
            Some(Handle::Port(port)) => {
                let (channel, home, closed) = {
                    let port = &state.ports[port as usize];
                    (port.channel, port.home, port.closed)
                };
                if closed {
                    return self.refuse(place, Errno::Closed);
                }
                if self.lanes[place.lane].id == home {
                    let owner = self.local[channel.owner];
                    return self.send_here(place, channel, owner, message, Some(port), waits);
                }
                self.send_away(place, channel, home, message, port, waits)
            }
        }
    }

    /// A send to a channel of this lane: acts at once.
    fn send_here(
        &mut self,
        place: Site<'_>,
        id: ChannelId,
        owner: SessionIndex,
        message: Message,
        port: Option<u32>,
        waits: bool,
    ) -> Flow {
        let (wave, lanes) = (self.wave, self.shared.lanes);
        let channel = &mut self.sessions[owner].channels[id.index as usize];
        if channel.closed {
            return self.refuse(place, Errno::Closed);
        }
        let room = channel.senders.is_empty() && channel.local_room(wave, lanes) > 0;
        if !room && !waits {
            return self.refuse(place, Errno::Again);
        }
        let (owner_id, index) = (u64::from(id.owner.0), u64::from(id.index));
        self.lanes[place.lane].log.event(&Event::Send { owner: owner_id, index });
        self.sessions[place.session].messages += 1;
        if room {
            if let Some(port) = port {
                self.sessions[place.session].note_sent(port, &message);
            }
            self.deliver(place.lane, owner, id.index, message);
            self.sessions[owner].channels[id.index as usize].refresh();
            return self.code(place, 0);
        }
        let state = &self.sessions[place.session];
        let name =
            CoroutineName { session: state.id, reference: state.tasks.reference_at(place.slot) };
        let channel = &mut self.sessions[owner].channels[id.index as usize];
        let ticket = channel.ticket();
        channel.push_sender(ticket, WaitingSender { name, local: true, message });
        // There may be room that is promised to other lanes in this wave: at its end that promise
        // lapses and this sender enters.
        self.touch(owner, id.index);
        self.wait(place, Wait::Queued(ticket), BlockReason::ChannelSend, (owner_id, index))
    }

    /// A send to a channel of another lane: with credit it arrives at the wave's end, without it
    /// waits there.
    fn send_away(
        &mut self,
        place: Site<'_>,
        channel: ChannelId,
        home: u16,
        message: Message,
        port: u32,
        waits: bool,
    ) -> Flow {
        let state = &self.sessions[place.session];
        let own_lane = self.lanes[place.lane].id;
        let at = state.lanes.iter().position(|&lane| lane == own_lane).unwrap_or(0);
        let credit = state.ports[port as usize].credits[at];
        let sender =
            CoroutineName { session: state.id, reference: state.tasks.reference_at(place.slot) };
        if self.lanes[place.lane].credits[credit as usize].closed {
            return self.refuse(place, Errno::Closed);
        }
        let granted = self.take_credit(place.lane, credit);
        if !granted && !waits {
            return self.refuse(place, Errno::Again);
        }
        self.sessions[place.session].messages += 1;
        if granted {
            self.sessions[place.session].note_sent(port, &message);
        }
        let lane = &mut self.lanes[place.lane];
        lane.log.event(&Event::Send {
            owner: u64::from(channel.owner.0),
            index: u64::from(channel.index),
        });
        if granted {
            lane.post(home, Effect::Message { channel, message });
            return self.code(place, 0);
        }
        lane.post(home, Effect::WaitToSend { channel, sender, message });
        let on = (u64::from(channel.owner.0), u64::from(channel.index));
        self.wait(place, Wait::Lane, BlockReason::ChannelSend, on)
    }

    /// A receive, of a number into a word or of bytes into a buffer.
    fn receive(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        handle: i32,
        region: Region,
        waits: bool,
    ) -> Flow {
        let state = &mut self.sessions[place.session];
        let bytes_wanted = operation == HostOperation::RecvBytes;
        if !state.holds(region) {
            return self.bad_pointer(place);
        }
        let index = match state.handle(handle) {
            None => return self.refuse(place, Errno::Invalid),
            Some(Handle::Port(_)) => return self.refuse(place, Errno::Denied),
            Some(Handle::Own(index)) => index,
        };
        let own = u64::from(state.id.0);
        let channel = &mut state.channels[index as usize];
        let length = match channel.queue.front() {
            None if channel.closed => return self.refuse(place, Errno::Closed),
            None if !waits => return self.refuse(place, Errno::Again),
            None => {
                let ticket = channel.ticket();
                channel.receivers.push(ticket, place.slot);
                let wait = if bytes_wanted { Wait::Queued(ticket) } else { Wait::Taking(ticket) };
                return self.wait(
                    place,
                    wait,
                    BlockReason::ChannelReceive,
                    (own, u64::from(index)),
                );
            }
            Some(Front::Number(_)) if !bytes_wanted => 0,
            Some(Front::Bytes(bytes))
                if bytes_wanted && bytes.len() as u64 <= u64::from(region.length) =>
            {
                bytes.len() as u64
            }
            Some(_) => return self.refuse(place, Errno::MessageSize),
        };
        if !self.prepay(place, operation, length) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        let message = state.channels[index as usize].queue.pop_front();
        // The region was checked before and memory never shrinks, so the writes succeed.
        let answer = match message {
            Some(Message::Number(number)) => {
                let _ = state.write(region.start, &number.to_le_bytes());
                0
            }
            Some(Message::Bytes(bytes)) => {
                let _ = state.write(region.start, &bytes);
                bytes.len() as i32
            }
            Some(Message::Call(_)) | None => 0,
        };
        self.touch(place.session, index);
        self.lanes[place.lane].log.event(&Event::Receive { owner: own, index: u64::from(index) });
        self.admit_senders(place.lane, place.session, index);
        self.sessions[place.session].channels[index as usize].refresh();
        self.code(place, answer)
    }

    fn select(&mut self, place: Site<'_>, pointer: u64, count: i32) -> Flow {
        let limit = self.shared.limits.select;
        let count = match u32::try_from(count) {
            Ok(count) if count >= 1 => count,
            _ => return self.refuse(place, Errno::Invalid),
        };
        if count > limit {
            return self.refuse(place, Errno::Limit);
        }
        let length = u64::from(count) * 4;
        let region = Region::new(pointer, length);
        if length > u64::from(u32::MAX) || !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        if !self.prepay(place, HostOperation::Select, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        let mut channels = Vec::with_capacity(count as usize);
        for at in 0..count as usize {
            let bytes = state.bytes(region).unwrap_or_default();
            let handle = i32::from_le_bytes([
                bytes[at * 4],
                bytes[at * 4 + 1],
                bytes[at * 4 + 2],
                bytes[at * 4 + 3],
            ]);
            match state.handle(handle) {
                None => return self.refuse(place, Errno::Invalid),
                Some(Handle::Port(_)) => return self.refuse(place, Errno::Denied),
                Some(Handle::Own(index)) => channels.push(index),
            }
        }
        if let Some(at) =
            channels.iter().position(|&index| state.channels[index as usize].receivable())
        {
            return self.code(place, at as i32);
        }
        let first = u64::from(channels[0]);
        let places = channels
            .into_iter()
            .map(|index| {
                let channel = &mut state.channels[index as usize];
                let ticket = channel.ticket();
                channel.push_selector(ticket, place.slot);
                (index, ticket)
            })
            .collect();
        let own = u64::from(state.id.0);
        self.wait(place, Wait::Selecting(Box::new(places)), BlockReason::Select, (own, first))
    }

    fn close(&mut self, place: Site<'_>, handle: i32) -> Flow {
        match self.sessions[place.session].handle(handle) {
            None => return self.refuse(place, Errno::Invalid),
            Some(Handle::Own(index))
                if self.sessions[place.session].channels[index as usize].closed =>
            {
                return self.refuse(place, Errno::Closed);
            }
            Some(Handle::Own(index)) => self.close_channel(place.lane, place.session, index),
            Some(Handle::Port(port))
                if self.sessions[place.session].ports[port as usize].closed =>
            {
                return self.refuse(place, Errno::Closed);
            }
            Some(Handle::Port(port)) => self.close_port(place.lane, place.session, port),
        }
        self.code(place, 0)
    }

    fn input(&mut self, place: Site<'_>, region: Region) -> Flow {
        let state = &mut self.sessions[place.session];
        if !state.holds(region) {
            return self.bad_pointer(place);
        }
        let length = match state.input.next_event() {
            None => return self.code(place, 0),
            Some(event) if event.len() as u64 > u64::from(region.length) => {
                return self.refuse(place, Errno::MessageSize);
            }
            Some(event) => event.len() as u64,
        };
        if !self.prepay(place, HostOperation::Input, length) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        let event: Vec<u8> = state.input.next_event().unwrap_or_default().into();
        state.input.take_event();
        let _ = state.write(region.start, &event);
        let session = u64::from(state.id.0);
        self.lanes[place.lane].log.event(&Event::Input { session, length });
        self.code(place, length as i32)
    }

    fn output(&mut self, place: Site<'_>, region: Region) -> Flow {
        if !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        let room =
            self.shared.limits.output_bytes as usize - self.sessions[place.session].output.len();
        if region.length as usize > room {
            return self.refuse(place, Errno::Limit);
        }
        if !self.prepay(place, HostOperation::Output, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let bytes: Vec<u8> = self.sessions[place.session].bytes(region).unwrap_or_default().into();
        self.emit(place, &bytes);
        self.code(place, 0)
    }

    /// Bytes leave at FRAME_SYNC.
    pub(crate) fn emit(&mut self, place: Site<'_>, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.voice(place);
        }
        let state = &mut self.sessions[place.session];
        state.output.extend_from_slice(bytes);
        state.output_chain.add(bytes);
        self.lanes[place.lane].log.event(&Event::Output { session: u64::from(state.id.0), bytes });
    }

    fn log(&mut self, place: Site<'_>, region: Region) -> Flow {
        if !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        if !self.prepay(place, HostOperation::Log, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let bytes: Vec<u8> = self.sessions[place.session].bytes(region).unwrap_or_default().into();
        self.note(place, &bytes);
        self.resume(place, &[])
    }

    /// Puts the session on the list of those with something to say at FRAME_SYNC, once.
    fn voice(&mut self, place: Site<'_>) {
        let state = &self.sessions[place.session];
        if state.output.is_empty() && state.log.is_empty() {
            self.voiced.push(state.id);
        }
    }

    /// Diagnostics of this frame; what does not fit the limit is counted and dropped.
    pub(crate) fn note(&mut self, place: Site<'_>, bytes: &[u8]) {
        let limit = self.shared.limits.log_bytes as usize;
        let take = bytes.len().min(limit.saturating_sub(self.sessions[place.session].log.len()));
        if take > 0 {
            self.voice(place);
        }
        let state = &mut self.sessions[place.session];
        state.log.extend_from_slice(&bytes[..take]);
        state.log_dropped += (bytes.len() - take) as u64;
    }
}

/// A function a coroutine can begin at: `(i64) -> i64` or `(i64) -> ()`.
pub(crate) fn is_entry(kind: &FunctionType) -> bool {
    kind.parameters() == [ValueType::I64]
        && (kind.results().is_empty() || kind.results() == [ValueType::I64])
}
