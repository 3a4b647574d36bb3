//! The end of a wave: lanes see each other. One place, one order (semantics 15, 23, 27).
//!
//! In order: every lane's clock is aligned to the latest; effects are applied, sending lane by
//! sending lane, each in the order it was made; then each wired channel that anything happened to
//! lets waiting senders in and divides its free space anew. Costs go to the lane an effect is
//! applied on.
//!
//! Most of that concerns only the group that receives: each applies its own inbox
//! ([`Group::settle`]), on whatever thread. What one group must tell another about it (credits,
//! places in queues) are notices, and what depends on several groups (a wave in which a coroutine
//! of another lane is ended or begun, senders that wait at a channel) is done after, for all groups
//! in one order.

use crate::channel::{Message, WaitingSender};
use crate::group::{Effect, Group};
use crate::index::LaneIndex;
use crate::parcels::Incoming;
use crate::session::SessionState;
use crate::task::{Named, Wait};
use crate::wait::Ticket;
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Errno, LaneId, SessionId};
use wavelock_kernel::{Exchange, Outbox, WakeSource, exchange};
use wavelock_trace::Event;

/// What a group settled at the wave's end and other groups must learn.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A channel's space was divided: a lane that sends to it has a share in this much, or it is
    /// closed.
    Credit { lane: u16, line: u32, free: u32, closed: bool },
    /// A sender took its place at a channel.
    Queued { sender: CoroutineName, ticket: Ticket },
}

impl World {
    /// The first part of a wave's end: clocks are aligned, the next wave has its number, and
    /// effects that concern only the group they go to are in its inbox, in canonical order. How
    /// many those are.
    pub(crate) fn sort_effects(&mut self) -> usize {
        let latest = self.clock();
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            lane.kernel.align(latest);
        }
        // Credits of the wave that begins are shares in its number, so waits decided here already
        // count for it.
        self.wave += 1;
        for group in &mut self.groups {
            group.wave = self.wave;
        }
        self.pass_parcels()
    }

    /// The last part of a wave's end, after every group has settled: what groups must learn of each
    /// other, then whatever is left, in canonical order.
    pub(crate) fn finish_exchange(&mut self) {
        for group in 0..self.groups.len() {
            let mut notices = core::mem::take(&mut self.groups[group].notices);
            notices.drain(..).for_each(|notice| self.note(&notice));
            self.groups[group].notices = notices;
        }
        // Waiting senders enter only when every effect is applied: one may withdraw a sender.
        // Letting one in can wake a coroutine of a split session on yet another lane, which is an
        // effect again.
        exchange(&mut Exchanging(self));
        while self.divide() {
            exchange(&mut Exchanging(self));
        }
    }

    fn note(&mut self, notice: &Notice) {
        match *notice {
            Notice::Credit { lane, line, free, closed } => {
                let rules = self.groups[0].shared.rules;
                let (group, lane) = self.lane_places[usize::from(lane)];
                let line = &mut self.groups[group].lanes[lane].credits[line as usize];
                line.free = rules.divided(line.free, free);
                line.closed = closed;
            }
            Notice::Queued { sender, ticket } => {
                self.session(sender.session).tasks.live_at(sender.reference.slot).wait =
                    Wait::Queued(ticket);
            }
        }
    }

    /// The sending lane at `position` of the canonical order.
    pub(crate) fn sender(&self, position: u16) -> LaneId {
        self.groups[0].shared.rules.sender(position, self.spec.lanes)
    }

    pub(crate) fn note_crossing(&mut self, effect: &Effect) {
        self.crossings += 1;
        match (&mut self.wave_profile, effect) {
            (Some(profile), Effect::Message { channel, .. }) => profile.crossed(*channel),
            (Some(profile), Effect::WaitToSend { channel, .. }) => profile.waited(*channel),
            _ => {}
        }
    }

    /// Whether a coroutine has not ended, which it can in the wave in which it began to wait.
    fn lives(&mut self, name: CoroutineName) -> bool {
        self.session(name.session).tasks.named(name.reference) == Named::Live
    }

    /// Lets waiting senders in and divides what is free, for every channel that something happened
    /// to and that no group could settle alone. `false` if there was none.
    fn divide(&mut self) -> bool {
        let mut touched: Vec<ChannelId> = Vec::new();
        for group in &mut self.groups {
            touched.append(&mut group.touched);
        }
        touched.sort_unstable();
        let any = !touched.is_empty();
        for id in touched {
            self.session_group(id.owner).channel(id).touched = false;
            self.admit_across(id);
            let group = self.session_places[id.owner.0 as usize];
            self.groups[group].divide(id);
            while let Some(notice) = self.groups[group].notices.pop() {
                self.note(&notice);
            }
        }
        any
    }

    /// Waiting senders enter while there is room, first come first; a closed channel refuses them
    /// all.
    fn admit_across(&mut self, id: ChannelId) {
        loop {
            let home = self.session(id.owner).home();
            let (group, lane) = self.lane_places[usize::from(home)];
            let group = &mut self.groups[group];
            let entry = group.channel(id);
            if !entry.closed && entry.room() == 0 {
                return;
            }
            let closed = entry.closed;
            let Some(mut sender) = entry.senders.pop() else { return };
            if closed {
                self.answer_across(sender.name, Errno::Closed.code(), WakeSource::Channel);
                continue;
            }
            let (session, slot) = (sender.name.session.0, sender.name.reference.slot);
            group.lanes[lane].log.event(&Event::Entered {
                session: u64::from(session),
                slot: u64::from(slot),
                owner: u64::from(id.owner.0),
                index: u64::from(id.index),
            });
            self.session(sender.name.session).note_entered(id, &sender.message);
            let is_call = self.session(sender.name.session).entered_call(slot, &mut sender.message);
            let group = self.session_group(id.owner);
            let owner = group.local[id.owner];
            group.deliver(lane, owner, id.index, sender.message);
            if is_call {
                continue;
            }
            self.answer_across(sender.name, 0, WakeSource::Channel);
        }
    }

    /// Ends a wait on whatever lane the coroutine is.
    fn answer_across(&mut self, name: CoroutineName, code: i32, source: WakeSource) {
        let lane = self.session(name.session).tasks.lane_at(name.reference.slot);
        let (group, lane) = self.lane_places[usize::from(lane)];
        let group = &mut self.groups[group];
        let session = group.local[name.session];
        group.answer(lane, session, name.reference.slot, Wait::Code(code), source);
    }

    pub(crate) fn session_group(&mut self, session: SessionId) -> &mut Group {
        &mut self.groups[self.session_places[session.0 as usize]]
    }

    pub(crate) fn session(&mut self, session: SessionId) -> &mut SessionState {
        let group = self.session_group(session);
        let index = group.local[session];
        &mut group.sessions[index]
    }
}

/// The machine as [`exchange`] sees it.
struct Exchanging<'a>(&'a mut World);

impl Exchange for Exchanging<'_> {
    type Effect = Effect;

    fn lanes(&self) -> u16 {
        self.0.spec.lanes
    }

    fn outbox(&mut self, lane: LaneId) -> &mut Outbox<Effect> {
        &mut self.0.lane(lane.0).outbox
    }

    fn apply(&mut self, from: LaneId, to: LaneId, effect: Effect) {
        let world = &mut *self.0;
        world.note_crossing(&effect);
        let (group, lane) = world.lane_places[usize::from(to.0)];
        if let Effect::WaitToSend { sender, .. } = &effect
            && !world.lives(*sender)
        {
            return world.groups[group].lanes[lane].kernel.accept_effect();
        }
        world.groups[group].accept(from.0, lane, effect);
        while let Some(notice) = world.groups[group].notices.pop() {
            world.note(&notice);
        }
    }

    fn sender(&self, position: u16) -> LaneId {
        self.0.sender(position)
    }
}

impl Group {
    /// The part of a wave's end that concerns no other group: the inbox is applied, and channels at
    /// which no sender waits have their space divided. Groups may do this one after the other or at
    /// the same time.
    pub fn settle(&mut self) {
        if !self.shared.rules.settles_alone() {
            return;
        }
        let mut inbox = core::mem::take(&mut self.inbox);
        for mut parcel in inbox.drain(..) {
            for Incoming { from, lane, is_void, effect, .. } in parcel.drain(..) {
                if is_void {
                    self.lanes[usize::from(lane)].kernel.accept_effect();
                } else {
                    self.accept(from, LaneIndex::new(usize::from(lane)), effect);
                }
            }
            self.spare.push(parcel);
        }
        self.inbox = inbox;
        let mut touched = core::mem::take(&mut self.touched);
        touched.retain(|&id| {
            let channel = self.channel(id);
            let waited_for = !channel.senders.is_empty();
            channel.touched = waited_for;
            if !waited_for {
                self.divide(id);
            }
            waited_for
        });
        self.touched = touched;
    }

    /// Whether [`Group::settle`] has anything to do.
    #[must_use]
    pub const fn has_to_settle(&self) -> bool {
        !(self.inbox.is_empty() && self.touched.is_empty())
    }

    /// Applies one effect. The sender of a message that waits is alive.
    fn accept(&mut self, from: u16, lane: LaneIndex, effect: Effect) {
        self.lanes[lane].kernel.accept_effect();
        match effect {
            Effect::Message { channel, message } => {
                let owner = self.local[channel.owner];
                if self.sessions[owner].channels[channel.index as usize].closed {
                    if let Message::Call(call) = message {
                        let _ =
                            self.answer_call(lane, call.caller, Wait::Code(Errno::Closed.code()));
                    }
                    return;
                }
                self.lanes[lane].log.event(&Event::Arrival {
                    lane: u64::from(from),
                    owner: u64::from(channel.owner.0),
                    index: u64::from(channel.index),
                });
                self.deliver(lane, owner, channel.index, message);
            }
            Effect::WaitToSend { channel, sender, message } => {
                self.queue_sender(channel, sender, message)
            }
            Effect::Withdraw { channel, ticket } => {
                drop(self.channel(channel).senders.remove(ticket))
            }
            Effect::ClosePort { channel } => {
                let owner = self.local[channel.owner];
                self.sender_left(lane, owner, channel.index);
            }
            Effect::Publish { session, reference } => self.publish_here(lane, session, reference),
            Effect::Wake { session, reference, source } => {
                let index = self.local[session];
                // It may have been canceled since.
                if let Some(task) = self.sessions[index].tasks.live_named(reference) {
                    self.lanes[lane].wake(session, reference.slot, task.kernel, source);
                }
            }
            Effect::Answer { caller, answer } => drop(self.answer_waiting(lane, caller, answer)),
            Effect::Cancel { session, target, by } => self.cancel_across(lane, session, target, by),
            Effect::Exit { session } => {
                let session_index = self.local[session];
                if self.sessions[session_index].ended.is_none() {
                    self.cancel_lane(lane, session_index);
                }
            }
        }
    }

    /// A sender without credit takes its place at the channel.
    fn queue_sender(&mut self, channel: ChannelId, sender: CoroutineName, message: Message) {
        let entry = self.channel(channel);
        let ticket = entry.ticket();
        entry.push_sender(ticket, WaitingSender { name: sender, local: false, message });
        let owner = self.local[channel.owner];
        self.touch(owner, channel.index);
        self.notices.push(Notice::Queued { sender, ticket });
    }

    fn cancel_across(
        &mut self,
        lane: LaneIndex,
        session: SessionId,
        target: CoroutineRef,
        by: CoroutineRef,
    ) {
        let index = self.local[session];
        let state = &mut self.sessions[index];
        // Finished in the same wave is finished; canceling it is answered all the same.
        if state.ended.is_none() && state.tasks.named(target) == Named::Live {
            self.cancel_task(lane, index, target.slot);
        }
        let state = &mut self.sessions[index];
        if state.ended.is_none() && state.tasks.named(by) == Named::Live {
            // A split session is in one group with all its lanes.
            let home = self
                .lanes
                .iter()
                .position(|lane| lane.id == state.tasks.lane_at(by.slot))
                .map_or(lane, LaneIndex::new);
            self.answer(home, index, by.slot, Wait::Code(0), WakeSource::Answer);
        }
    }

    /// Divides the free space of a channel among the lanes that send to it.
    fn divide(&mut self, id: ChannelId) {
        let owner = self.local[id.owner];
        let entry = &mut self.sessions[owner].channels[id.index as usize];
        let (free, closed) = (entry.room(), entry.closed);
        let Some(wiring) = &mut entry.wiring else { return };
        wiring.free = free;
        let lines =
            wiring.lanes.iter().zip(&wiring.credits).filter(|&(&lane, _)| lane != wiring.home);
        self.notices.extend(lines.map(|(&lane, &line)| Notice::Credit {
            lane,
            line,
            free,
            closed,
        }));
    }

    /// A coroutine that was spawned on another lane begins here, unless its session is over.
    fn publish_here(&mut self, lane: LaneIndex, session: SessionId, reference: CoroutineRef) {
        let index = self.local[session];
        let state = &mut self.sessions[index];
        let (spawn, exiting) = (state.spawn(reference.slot), state.exiting);
        let Some(task) = state.tasks.live_named(reference) else { return };
        if exiting {
            return self.cancel_task(lane, index, reference.slot);
        }
        match self.lanes[lane].publish(spawn) {
            Ok(kernel) => task.kernel = kernel,
            Err(refusal) => self.failure = Some(refusal),
        }
    }
}
