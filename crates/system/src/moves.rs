//! Sessions that move between lanes: the bounded, deterministic steal at a wave's end and balance
//! at a frame's end (semantics 14).
//!
//! A lane without work takes one session from a lane with more, by the kernel's rule; at a frame's
//! end, the lane with most that is ready gives a session to the one with least. Both look at
//! virtual state alone. A session moves whole, with its coroutines, channels and ports; afterwards
//! the wiring says what is true on the new lanes. Split sessions, and those whose lane the manifest
//! names, stay.

use crate::group::{Credit, LaneState};
use crate::index::SessionIndex;
use crate::world::World;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};
use wavelock_kernel::{Lane, MoveBan, MoveKind, Refusal, Reservation, Tag, find_steal};
use wavelock_trace::Event;

/// The reasons of a [`Event::Move`].
const STOLEN: u64 = 0;
const BALANCED: u64 = 1;

impl World {
    /// Every idle lane, in lane order, tries to take one session.
    pub(crate) fn steal(&mut self) {
        for thief in 0..self.spec.lanes {
            if self.lane(thief).kernel.has_work()
                || self.groups[self.lane_places[usize::from(thief)].0].lanes.len() > 1
            {
                continue;
            }
            let kernel = |lane: LaneId| &self.lane_ref(lane.0).kernel;
            let ban = |session| self.move_ban(SessionId(session));
            let found = find_steal(LaneId(thief), self.spec.lanes, self.wave, kernel, ban);
            if let Ok((victim, session)) = found
                && let Err(refusal) = self.move_session(SessionId(session), victim.0, thief, STOLEN)
            {
                self.groups[0].failure = Some(refusal);
            }
        }
    }

    /// At a frame's end: the lane with most coroutines that could run gives one session to the lane
    /// with least, if that leaves them closer; at most as often as half the lanes. Among equal
    /// lanes the first; the session by the kernel's rule for a steal, in the round of the frame.
    pub(crate) fn balance(&mut self) {
        for _ in 0..(self.spec.lanes / 2) {
            let load = |lane: u16| {
                let population = self.lane_ref(lane).kernel.population();
                population.ready + population.running
            };
            let alone =
                |lane: &u16| self.groups[self.lane_places[usize::from(*lane)].0].lanes.len() == 1;
            let busiest = (0..self.spec.lanes)
                .filter(alone)
                .max_by_key(|&lane| (load(lane), core::cmp::Reverse(lane)));
            let idlest = (0..self.spec.lanes).filter(alone).min_by_key(|&lane| (load(lane), lane));
            let (Some(from), Some(to)) = (busiest, idlest) else { return };
            let ahead = load(from) - load(to);
            let ban = |session| self.move_ban(SessionId(session));
            let Ok(session) = self.lane_ref(from).kernel.offer(self.frame.0, ban) else { return };
            if self.lane_ref(from).kernel.session(session).count() as u32 >= ahead {
                return;
            }
            if let Err(refusal) = self.move_session(SessionId(session), from, to, BALANCED) {
                self.groups[0].failure = Some(refusal);
                return;
            }
        }
    }

    /// What forbids a session to leave its lane.
    fn move_ban(&self, session: SessionId) -> Option<MoveBan> {
        let spec = &self.spec.sessions[session.0 as usize];
        if self.spec.owns_time(session) {
            Some(MoveBan::Context)
        } else if self.state_of(session).is_in_call() {
            Some(MoveBan::Call)
        } else if spec.placement.lanes().len() > 1 {
            Some(MoveBan::Split)
        } else {
            spec.pinned.then_some(MoveBan::Pinned)
        }
    }

    fn lane_ref(&self, lane: u16) -> &LaneState {
        let (group, lane) = self.lane_places[usize::from(lane)];
        &self.groups[group].lanes[lane]
    }

    pub(crate) fn lane(&mut self, lane: u16) -> &mut LaneState {
        let (group, lane) = self.lane_places[usize::from(lane)];
        &mut self.groups[group].lanes[lane]
    }

    fn move_session(
        &mut self,
        session: SessionId,
        from: u16,
        to: u16,
        reason: u64,
    ) -> Result<(), Refusal> {
        let coroutines = self.lane_ref(from).kernel.session(session.0).count() as u32;
        self.lane(to).kernel.reserve(Reservation { coroutines, sessions: 1 })?;
        let mut arrived: Vec<(Tag, CoroutineRef)> = Vec::with_capacity(coroutines as usize);
        let (giver, taker) = self.two_lanes(from, to);
        let kind = if reason == STOLEN { MoveKind::Stolen } else { MoveKind::Assigned };
        giver.move_session(session.0, taker, kind, |tag, reference| {
            arrived.push((tag, reference))
        })?;
        let state = self.session(session);
        for (tag, reference) in arrived {
            state.tasks.moved(tag.slot(), to, reference);
        }
        state.lanes = alloc::vec![to];
        self.moves += 1;
        self.carry(session, from, to);
        self.rewire(session);
        wavelock_trace::EventWriter(&mut self.boundary).event(&Event::Move {
            session: u64::from(session.0),
            from: u64::from(from),
            to: u64::from(to),
            reason,
        });
        Ok(())
    }

    /// Two different lanes of two different groups.
    fn two_lanes(&mut self, first: u16, second: u16) -> (&mut Lane, &mut Lane) {
        let ((a, at_a), (b, at_b)) =
            (self.lane_places[usize::from(first)], self.lane_places[usize::from(second)]);
        let [one, two] =
            self.groups.get_disjoint_mut([a, b]).expect("sessions move between groups");
        (&mut one.lanes[at_a].kernel, &mut two.lanes[at_b].kernel)
    }

    /// Moves a session's state from its old group to its new one.
    pub(crate) fn carry(&mut self, session: SessionId, from: u16, to: u16) {
        let (old, new) =
            (self.lane_places[usize::from(from)].0, self.lane_places[usize::from(to)].0);
        let group = &mut self.groups[old];
        let index = group.local.remove(session).expect("the session is in its group");
        let state = group.sessions.swap_remove(index.get());
        if let Some(moved) = group.sessions.get(index.get()) {
            let moved = moved.id;
            group.local.insert(moved, index);
        }
        let live = u64::from(state.tasks.live());
        let voiced = !state.output.is_empty() || !state.log.is_empty();
        group.live -= live;
        group.set_version += 1;
        group.voiced.retain(|other| *other != session);
        let group = &mut self.groups[new];
        group.local.insert(session, SessionIndex::new(group.sessions.len()));
        group.sessions.push(state);
        group.live += live;
        group.set_version += 1;
        if voiced {
            group.voiced.push(session);
        }
        self.session_places[session.0 as usize] = new;
    }

    /// Makes the wiring of a moved session's channels and ports true again.
    fn rewire(&mut self, session: SessionId) {
        let state = self.session(session);
        let owned = (0u32..).zip(&state.channels).filter(|(_, channel)| channel.wiring.is_some());
        let mut channels: Vec<ChannelId> =
            owned.map(|(index, _)| ChannelId { owner: session, index }).collect();
        channels.extend(state.ports.iter().map(|port| port.channel));
        for channel in channels {
            self.rewire_channel(channel);
            self.rewire_senders(channel);
        }
    }

    pub(crate) fn rewire_channel(&mut self, channel: ChannelId) {
        let home = self.session(channel.owner).home();
        let senders = self.wired_senders.get(&channel).cloned().unwrap_or_default();
        let mut lanes: Vec<u16> =
            senders.iter().flat_map(|&sender| self.session(sender).lanes.clone()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes: Arc<[u16]> = lanes.into();
        let entry = self.session_group(channel.owner).channel(channel);
        let closed = entry.closed;
        let Some(free) = entry.wiring.as_ref().map(|wiring| wiring.free) else { return };
        let credits: Vec<u32> = lanes
            .iter()
            .map(|&lane| self.lane(lane).credit_for(channel, lanes.clone(), free, closed))
            .collect();
        for &sender in &senders {
            let lines: Vec<u32> = {
                let own = self.session(sender).lanes.clone();
                own.iter()
                    .map(|lane| {
                        lanes.binary_search(lane).map_or(crate::task::NONE, |at| credits[at])
                    })
                    .collect()
            };
            for port in self.session(sender).ports.iter_mut().filter(|port| port.channel == channel)
            {
                (port.home, port.credits) = (home, lines.clone());
            }
        }
        if let Some(wiring) = &mut self.session_group(channel.owner).channel(channel).wiring {
            **wiring = crate::channel::Wiring {
                lanes,
                credits,
                home,
                free,
                open_senders: wiring.open_senders,
            };
        }
    }

    /// Who waits to send to a channel is local where its lane is the channel's.
    fn rewire_senders(&mut self, channel: ChannelId) {
        if self.session_group(channel.owner).channel(channel).wiring.is_none() {
            return;
        }
        let home = self.session(channel.owner).home();
        let sender_lanes: Vec<u16> = {
            let names: Vec<_> = self
                .session_group(channel.owner)
                .channel(channel)
                .senders
                .iter()
                .map(|sender| sender.name)
                .collect();
            names
                .into_iter()
                .map(|name| self.session(name.session).tasks.lane_at(name.reference.slot))
                .collect()
        };
        let entry = self.session_group(channel.owner).channel(channel);
        for (sender, lane) in entry.senders.iter_mut().zip(sender_lanes) {
            sender.local = lane == home;
        }
    }
}

impl LaneState {
    /// Where this lane keeps its credit for a channel: the line it has, brought up to date, or a
    /// new one.
    pub(crate) fn credit_for(
        &mut self,
        channel: ChannelId,
        lanes: Arc<[u16]>,
        free: u32,
        closed: bool,
    ) -> u32 {
        let next = self.credits.len() as u32;
        let line = *self.credit_lines.entry(channel).or_insert(next);
        if line == next {
            self.credits.push(Credit::new(lanes.clone(), free));
        }
        let credit = &mut self.credits[line as usize];
        (credit.lanes, credit.free, credit.closed) = (lanes, free, closed);
        line
    }
}
