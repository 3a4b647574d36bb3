//! The end of a wave: lanes see each other. One place, one order (semantics 15, 23, 27).
//!
//! In order: every lane's clock is aligned to the latest; effects are applied, sending lane by sending lane, each in the order it
//! was made; then each wired channel that anything happened to lets waiting senders in and divides its free space anew. Costs go
//! to the lane an effect is applied on.

use crate::channel::{Message, WaitingSender};
use crate::group::{Effect, Group};
use crate::session::SessionState;
use crate::task::{Named, Wait};
use crate::world::World;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Cycles, Errno, SessionId};
use wavelock_kernel::WakeSource;
use wavelock_trace::Event;

impl World {
    /// Aligns clocks, opens inboxes, divides credits.
    pub(crate) fn exchange(&mut self) {
        let latest = self.groups.iter().flat_map(|group| &group.lanes).map(|lane| lane.kernel.clock()).max().unwrap_or(Cycles::ZERO);
        for lane in self.groups.iter_mut().flat_map(|group| &mut group.lanes) {
            lane.kernel.align(latest);
        }
        // Credits of the wave that begins are shares in its number, so waits decided here already count for it.
        self.wave += 1;
        for group in &mut self.groups {
            group.wave = self.wave;
        }
        // Waiting senders enter only when every effect is applied: one may withdraw a sender. Letting one in can wake a coroutine of a
        // split session on yet another lane, which is an effect again.
        self.open_inboxes();
        while self.divide() {
            self.open_inboxes();
        }
    }

    /// Applies every effect in canonical order. Applying one can make others, which are applied in the next round.
    fn open_inboxes(&mut self) {
        while self.groups.iter().flat_map(|group| &group.lanes).any(|lane| !lane.outbox.is_empty()) {
            for turn in 0..self.lane_places.len() {
                let sender = self.groups[0].shared.rules.sending_lane(turn, self.lane_places.len());
                let (group, lane) = self.lane_places[sender];
                let outbox = core::mem::take(&mut self.groups[group].lanes[lane].outbox);
                for outgoing in outbox {
                    self.apply(sender as u16, outgoing.lane, outgoing.effect);
                }
            }
        }
    }

    fn apply(&mut self, from: u16, to: u16, effect: Effect) {
        let (group, lane) = self.lane_places[usize::from(to)];
        let group = &mut self.groups[group];
        group.lanes[lane].kernel.accept_effect();
        self.crossings += 1;
        match effect {
            Effect::Message { channel, message } => {
                if let Some(profile) = &mut self.wave_profile {
                    profile.crossed(channel);
                }
                let owner = group.local[channel.owner.0 as usize] as usize;
                if group.sessions[owner].channels[channel.index as usize].closed {
                    return;
                }
                group.lanes[lane].log.event(&Event::Arrival {
                    lane: u64::from(from),
                    owner: u64::from(channel.owner.0),
                    index: u64::from(channel.index),
                });
                group.deliver(lane, owner, channel.index, message);
            }
            Effect::WaitToSend { channel, sender, message } => {
                if let Some(profile) = &mut self.wave_profile {
                    profile.waited(channel);
                }
                self.queue_sender(channel, sender, message);
            }
            Effect::Withdraw { channel, ticket } => drop(group.channel(channel).senders.remove(ticket)),
            Effect::ClosePort { channel } => {
                let owner = group.local[channel.owner.0 as usize] as usize;
                group.sender_left(lane, owner, channel.index);
            }
            Effect::Publish { session, reference } => group.publish_here(lane, session, reference),
            Effect::Wake { session, reference, source } => {
                let index = group.local[session.0 as usize] as usize;
                // It may have been canceled since.
                if let Some(task) = group.sessions[index].tasks.live_named(reference) {
                    group.lanes[lane].wake(session, reference.slot, task.kernel, source);
                }
            }
            Effect::Cancel { session, target, by } => self.cancel_across(to, session, target, by),
            Effect::Exit { session } => {
                let session_index = group.local[session.0 as usize] as usize;
                if group.sessions[session_index].ended.is_none() {
                    group.cancel_lane(lane, session_index);
                }
            }
        }
    }

    /// A sender without credit takes its place at the channel, unless it was canceled in the same wave or the channel is closed.
    fn queue_sender(&mut self, channel: ChannelId, sender: CoroutineName, message: Message) {
        let waits = self.session(sender.session).tasks.named(sender.reference) == Named::Live;
        if !waits {
            return;
        }
        let group = self.session_group(channel.owner);
        let entry = group.channel(channel);
        let ticket = entry.ticket();
        entry.senders.push(ticket, WaitingSender { name: sender, local: false, message });
        let owner = group.local[channel.owner.0 as usize] as usize;
        group.touch(owner, channel.index);
        self.session(sender.session).tasks.live_at(sender.reference.slot).wait = Wait::Queued(ticket);
    }

    fn cancel_across(&mut self, to: u16, session: SessionId, target: CoroutineRef, by: CoroutineRef) {
        let (group, lane) = self.lane_places[usize::from(to)];
        let group = &mut self.groups[group];
        let index = group.local[session.0 as usize] as usize;
        let state = &mut group.sessions[index];
        // Finished in the same wave is finished; canceling it is answered all the same.
        if state.ended.is_none() && state.tasks.named(target) == Named::Live {
            group.cancel_task(lane, index, target.slot);
        }
        let state = &mut group.sessions[index];
        if state.ended.is_none() && state.tasks.named(by) == Named::Live {
            self.answer_across(CoroutineName { session, reference: by }, 0, WakeSource::Answer);
        }
    }

    /// Lets waiting senders in and divides what is free, for every channel that something happened to. `false` if there was none.
    fn divide(&mut self) -> bool {
        let mut touched: Vec<ChannelId> = Vec::new();
        for group in &mut self.groups {
            touched.append(&mut group.touched);
        }
        touched.sort_unstable();
        let rules = self.groups[0].shared.rules;
        let any = !touched.is_empty();
        for id in touched {
            self.session_group(id.owner).channel(id).touched = false;
            self.admit_across(id);
            let entry = self.session_group(id.owner).channel(id);
            let (free, closed) = (entry.room(), entry.closed);
            let Some(wiring) = &mut entry.wiring else { continue };
            wiring.free = free;
            let lines: Vec<(u16, u32)> =
                wiring.lanes.iter().copied().zip(wiring.credits.iter().copied()).filter(|&(lane, _)| lane != wiring.home).collect();
            for (lane, credit) in lines {
                let (group, lane) = self.lane_places[usize::from(lane)];
                let line = &mut self.groups[group].lanes[lane].credits[credit as usize];
                line.free = rules.divided(line.free, free);
                line.closed = closed;
            }
        }
        any
    }

    /// Waiting senders enter while there is room, first come first; a closed channel refuses them all.
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
            let Some(sender) = entry.senders.pop() else { return };
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
            let group = self.session_group(id.owner);
            let owner = group.local[id.owner.0 as usize] as usize;
            group.deliver(lane, owner, id.index, sender.message);
            self.answer_across(sender.name, 0, WakeSource::Channel);
        }
    }

    /// Ends a wait on whatever lane the coroutine is.
    fn answer_across(&mut self, name: CoroutineName, code: i32, source: WakeSource) {
        let lane = self.session(name.session).tasks.live_at(name.reference.slot).lane;
        let (group, lane) = self.lane_places[usize::from(lane)];
        let group = &mut self.groups[group];
        let session = group.local[name.session.0 as usize] as usize;
        group.answer(lane, session, name.reference.slot, Wait::Code(code), source);
    }

    pub(crate) fn session_group(&mut self, session: SessionId) -> &mut Group {
        &mut self.groups[self.session_places[session.0 as usize]]
    }

    pub(crate) fn session(&mut self, session: SessionId) -> &mut SessionState {
        let group = self.session_group(session);
        let index = group.local[session.0 as usize] as usize;
        &mut group.sessions[index]
    }
}

impl Group {
    /// A coroutine that was spawned on another lane begins here, unless its session is over.
    fn publish_here(&mut self, lane: usize, session: SessionId, reference: CoroutineRef) {
        let index = self.local[session.0 as usize] as usize;
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
