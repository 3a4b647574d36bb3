//! The end of a wave: lanes see each other's effects, in one order (semantics 15, 23, 27).
//!
//! In order: every lane's clock is aligned to the latest; effects are applied, sending lane by
//! sending lane, each in the order it was made; then each touched wired channel admits waiting
//! senders and divides its free space anew. Costs are booked on the lane an effect is applied on.
//!
//! Most of that concerns only the receiving group: each applies its own inbox ([`Group::settle`]),
//! on any thread. What follows for other groups (credits, positions in queues) is a [`Notice`].
//! What depends on several groups (a wave in which a coroutine is spawned or canceled from another
//! lane, senders that wait at a channel) is done afterwards by one thread, for all groups in one
//! order.

use crate::channel::{Message, WaitingSender};
use crate::group::{Arrived, Arriving, Effect, Group};
use crate::host::event_fields;
use crate::index::{LaneIndex, TaskIndex};
use crate::parcels::Incoming;
use crate::task::{Named, Wait};
use crate::wait::Ticket;
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Errno, LaneId};
use wavelock_kernel::{Exchange, Outbox, WakeSource, exchange};
use wavelock_trace::Event;

/// A change to another group that follows from applying an inbox.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A channel's space was divided, or it closed: the new values of a sending lane's credit.
    Credit { lane: u16, line: u32, free: u32, closed: bool },
    /// A sender was queued at a channel.
    Queued { sender: CoroutineName, ticket: Ticket },
}

impl World {
    /// The first part of a wave's end: clocks are aligned, the wave number is advanced, and effects
    /// that concern only the receiving group are put into its inbox, in canonical order. Returns
    /// their number.
    pub(crate) fn sort_effects(&mut self) -> usize {
        let latest = self.clock();
        self.lanes_mut().for_each(|lane| lane.kernel.align(latest));
        // Shares depend on the wave number, so waits decided from here on count for the next wave.
        self.progress.waves += 1;
        for group in &mut self.groups {
            group.wave = self.progress.waves;
        }
        self.pass_parcels()
    }

    /// The last part of a wave's end, after every group has settled: notices between groups, then
    /// the remaining effects, in canonical order.
    pub(crate) fn finish_exchange(&mut self) {
        for group in 0..self.groups.len() {
            let mut notices = core::mem::take(&mut self.groups[group].notices);
            notices.drain(..).for_each(|notice| self.apply_notice(notice));
            self.groups[group].notices = notices;
        }
        // Waiting senders enter only when every effect is applied: one may withdraw a sender.
        // Admitting one can wake a coroutine of a split session on yet another lane, which is an
        // effect again.
        exchange(&mut Exchanging(self));
        while self.divide() {
            exchange(&mut Exchanging(self));
        }
    }

    fn apply_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Credit { lane, line, free, closed } => {
                let rules = self.groups[0].shared.rules;
                let line = &mut self.lane(lane).credits[line as usize];
                line.free = rules.divided(line.free, free);
                line.closed = closed;
            }
            Notice::Queued { sender, ticket } => {
                let tasks = &mut self.session(sender.session).tasks;
                tasks.live_at(sender.reference.slot).wait = Wait::Queued(ticket);
            }
        }
    }

    /// The sending lane at `position` of the canonical order.
    pub(crate) fn sender(&self, position: u16) -> LaneId {
        self.groups[0].shared.rules.sender(position, self.spec.lanes)
    }

    pub(crate) fn count_crossing(&mut self, effect: &Effect) {
        self.progress.crossings += 1;
        match (&mut self.wave_profile, effect) {
            (Some(profile), Effect::Message { channel, .. }) => {
                profile.traffic(*channel).crossed += 1
            }
            (Some(profile), Effect::WaitToSend { channel, .. }) => {
                profile.traffic(*channel).waited += 1
            }
            _ => {}
        }
    }

    /// Admits waiting senders and divides the free space, for every touched channel that its group
    /// could not settle alone. `false` if there was none.
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
            let group = self.session_groups[id.owner.0 as usize];
            self.groups[group].divide(id);
            while let Some(notice) = self.groups[group].notices.pop() {
                self.apply_notice(notice);
            }
        }
        any
    }

    /// Waiting senders enter while there is room, first come first; a closed channel refuses them
    /// all.
    fn admit_across(&mut self, id: ChannelId) {
        let home = self.session(id.owner).home();
        let (group, lane) = self.lane_positions[usize::from(home)];
        loop {
            let channel = self.groups[group].channel(id);
            let closed = channel.closed;
            if !closed && channel.room() == 0 {
                return;
            }
            let Some(WaitingSender { name, mut message, .. }) = channel.senders.pop() else {
                return;
            };
            if closed {
                self.answer_across(name, Wait::refused(Errno::Closed), WakeSource::Channel);
                continue;
            }
            let (owner, index) = event_fields(id);
            let (session, slot) = (u64::from(name.session.0), u64::from(name.reference.slot));
            let event = Event::Entered { session, slot, owner, index };
            self.groups[group].lanes[lane].log.event(&event);
            let sender = self.session(name.session);
            let from = sender.tasks.lane_at(name.reference.slot);
            let is_call = sender.entered(id, name.reference.slot, &mut message);
            let group = &mut self.groups[group];
            let arriving = Arriving { sender: name, lane: from, how: Arrived::Entered };
            group.arriving = (from != home).then_some(arriving);
            group.deliver(lane, group.local.channel(id), message);
            group.arriving = None;
            if !is_call {
                self.answer_across(name, Wait::Code(0), WakeSource::Channel);
            }
        }
    }

    /// Ends the wait of a coroutine of any lane.
    pub(crate) fn answer_across(&mut self, name: CoroutineName, answer: Wait, source: WakeSource) {
        let lane = self.session(name.session).tasks.lane_at(name.reference.slot);
        let (group, lane) = self.lane_positions[usize::from(lane)];
        let group = &mut self.groups[group];
        group.answer(lane, group.task(name), answer, source);
    }
}

/// The machine as the kernel's [`exchange`] sees it.
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
        world.count_crossing(&effect);
        let (group, lane) = world.lane_positions[usize::from(to.0)];
        // A coroutine can end in the wave in which it started to wait.
        if let Effect::WaitToSend { sender, .. } = &effect
            && world.session(sender.session).tasks.named(sender.reference) != Named::Live
        {
            return world.groups[group].book_effect(lane, &effect);
        }
        world.groups[group].accept(from.0, lane, effect);
        while let Some(notice) = world.groups[group].notices.pop() {
            world.apply_notice(notice);
        }
    }

    fn sender(&self, position: u16) -> LaneId {
        self.0.sender(position)
    }
}

impl Group {
    /// The part of a wave's end that concerns no other group: applies the inbox, and divides the
    /// space of channels at which no sender waits. Groups may do this one after the other or at the
    /// same time.
    pub fn settle(&mut self) {
        if !self.shared.rules.settles_alone() {
            return;
        }
        let mut inbox = core::mem::take(&mut self.inbox);
        for mut parcel in inbox.drain(..) {
            for Incoming { from, lane, is_void, effect, .. } in parcel.drain(..) {
                if is_void {
                    self.book_effect(lane, &effect);
                } else {
                    self.accept(from, lane, effect);
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

    /// Applies one effect. The sender of [`Effect::WaitToSend`] is alive.
    fn accept(&mut self, from: u16, lane: LaneIndex, effect: Effect) {
        self.book_effect(lane, &effect);
        match effect {
            Effect::Message { channel, sender, message } => {
                let at = self.local.channel(channel);
                if !self.sessions[at].closed {
                    let (owner, index) = event_fields(channel);
                    let event = Event::Arrival { lane: u64::from(from), owner, index };
                    self.lanes[lane].log.event(&event);
                    self.arriving = Some(Arriving { sender, lane: from, how: Arrived::Sent });
                    self.deliver(lane, at, message);
                    self.arriving = None;
                } else if let Message::Call(call) = message {
                    self.answer_call(lane, call.caller, Wait::refused(Errno::Closed));
                }
            }
            Effect::WaitToSend { channel, sender, message } => {
                let at = self.local.channel(channel);
                let ticket = self.sessions[at].ticket();
                let waiting = WaitingSender { name: sender, local: false, message };
                self.sessions[at].push_sender(ticket, waiting);
                self.touch(at);
                self.notices.push(Notice::Queued { sender, ticket });
            }
            Effect::Withdraw { channel, ticket } => {
                drop(self.channel(channel).senders.remove(ticket))
            }
            Effect::ClosePort { channel } => self.sender_left(lane, self.local.channel(channel)),
            Effect::Publish { name } => self.publish_here(lane, name),
            Effect::Wake { name, source } => {
                let TaskIndex { session, slot } = self.task(name);
                // It may have been canceled since.
                if let Some(task) = self.sessions[session].tasks.live_named(name.reference) {
                    self.lanes[lane].wake(name.session, slot, task.kernel, source);
                }
            }
            Effect::Unpark { target } => {
                let at = self.task(target);
                // It may have ended since.
                if self.sessions[at.session].tasks.live_named(target.reference).is_some() {
                    self.unpark_here(lane, at);
                }
            }
            Effect::Answer { caller, answer } => drop(self.answer_waiting(lane, caller, answer)),
            Effect::Cancel { target, by } => self.cancel_across(lane, target, by),
            Effect::Exit { session } => {
                let session = self.local[session];
                if self.sessions[session].ended.is_none() {
                    self.cancel_lane(lane, session);
                }
            }
        }
    }

    fn cancel_across(&mut self, lane: LaneIndex, target: CoroutineName, by: CoroutineRef) {
        let at = self.task(target);
        let is_live = |group: &Self, reference| {
            let state = &group.sessions[at.session];
            state.ended.is_none() && state.tasks.named(reference) == Named::Live
        };
        // Finished in the same wave is finished; the cancel succeeds all the same.
        if is_live(self, target.reference) {
            self.cancel_task(lane, at);
        }
        if is_live(self, by) {
            // All lanes of a split session are in one group.
            let home = self.sessions[at.session].tasks.lane_at(by.slot);
            let home = self.lanes.iter().position(|lane| lane.id == home);
            let by = TaskIndex { slot: by.slot, ..at };
            let home = home.map_or(lane, LaneIndex::new);
            self.answer(home, by, Wait::Code(0), WakeSource::Answer);
        }
    }

    /// Divides the free space of a channel among the lanes that send to it.
    fn divide(&mut self, id: ChannelId) {
        let channel = &mut self.sessions[self.local.channel(id)];
        let (free, closed) = (channel.room(), channel.closed);
        let Some(wiring) = &mut channel.wiring else { return };
        wiring.free = free;
        for (&lane, &line) in wiring.lanes.iter().zip(&wiring.credits) {
            if lane != wiring.home {
                self.notices.push(Notice::Credit { lane, line, free, closed });
            }
        }
    }

    /// Publishes a coroutine that was spawned from another lane, unless its session is over.
    fn publish_here(&mut self, lane: LaneIndex, name: CoroutineName) {
        let at = self.task(name);
        let state = &mut self.sessions[at.session];
        let (spawn, exiting) = (state.spawn(at.slot), state.exiting);
        let Some(task) = state.tasks.live_named(name.reference) else { return };
        if exiting {
            return self.cancel_or_kill(lane, at);
        }
        match self.lanes[lane].publish(spawn) {
            Ok(kernel) => task.kernel = kernel,
            Err(refusal) => self.failure = Some(refusal),
        }
    }
}
