//! Sessions that move between lanes: the bounded, deterministic steal at a wave's end and balance
//! at a frame's end (semantics 14).
//!
//! A lane without work takes one session from a lane with more, by the kernel's rule. At a frame's
//! end, the lane with the most ready coroutines gives a session to the lane with the fewest, or
//! sessions that cannot be divided evenly take turns. All of it reads virtual state alone. A
//! session moves whole, with its coroutines, channels and ports; afterwards the wiring of its
//! channels is recomputed. Split sessions, and those whose lane the manifest names, do not move.

use crate::channel::Wiring;
use crate::group::{Credit, LaneState};
use crate::index::SessionIndex;
use crate::world::World;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, LaneId, SessionId};
use wavelock_kernel::{
    MigrationStuck, MoveBan, MoveKind, Refusal, Reservation, RunnableSession, find_steal,
};
use wavelock_trace::{Event, EventWriter};

/// The reasons of a [`Event::Move`].
const STOLEN: u64 = 0;
const BALANCED: u64 = 1;
pub(crate) const PLACED: u64 = 2;
pub(crate) const DRAINED: u64 = 3;

/// Coroutines of a session that takes turns, at most.
const TURN_COROUTINES: u32 = 8;
/// Cycles between two turns, at least: the migrations of a turn are less than 1.5 % of them.
const TURN_CYCLES: u128 = 65_536;

/// Steals that took nothing, because a coroutine that had waited too long may not move
/// (cpu-authority D.6 c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StuckMigrations {
    /// How many.
    pub steals: u64,
    /// What the one with the longest wait found.
    pub longest: MigrationStuck,
}

impl World {
    /// Every idle lane, in lane order, tries to take one session.
    pub(crate) fn steal(&mut self) {
        for thief in 0..self.spec.lanes {
            let kernel = &self.lane_ref(thief).kernel;
            if kernel.has_work() || !kernel.is_open() || !self.is_alone(thief) {
                continue;
            }
            let kernel = |lane: LaneId| &self.lane_ref(lane.0).kernel;
            let ban = |session| self.move_ban(SessionId(session));
            let wave = self.progress.waves;
            let found = find_steal(LaneId(thief), self.spec.lanes, wave, kernel, ban);
            match found {
                Ok((victim, session)) => {
                    let moved = self.move_session(SessionId(session), victim.0, thief, STOLEN);
                    if let Err(refusal) = moved {
                        self.groups[0].failure = Some(refusal);
                    }
                }
                Err(Some(stuck)) => self.count_stuck(stuck),
                Err(None) => {}
            }
        }
    }

    fn count_stuck(&mut self, found: MigrationStuck) {
        let steals = self.stuck.map_or(0, |stuck| stuck.steals) + 1;
        let earlier = self.stuck.map(|stuck| stuck.longest);
        let longest = earlier.filter(|earlier| earlier.waited >= found.waited).unwrap_or(found);
        self.stuck = Some(StuckMigrations { steals, longest });
    }

    /// At a frame's end: the lane with the most coroutines that could run gives one session to the
    /// lane with the fewest, if that leaves them closer; at most half as often as there are lanes.
    /// Among equal lanes the first; the session by the kernel's rule for a steal, with the frame as
    /// its round. If nothing moves, sessions may take turns.
    pub(crate) fn balance(&mut self) {
        let mut has_moved = false;
        for _ in 0..(self.spec.lanes / 2) {
            let Some((from, to, ahead)) = self.unequal_lanes() else { break };
            let ban = |session| self.move_ban(SessionId(session));
            let kernel = &self.lane_ref(from).kernel;
            let Ok(session) = kernel.offer(self.frame().0, ban) else { break };
            if kernel.session(session).count() as u32 >= ahead {
                break;
            }
            self.move_for_balance(session, from, to);
            has_moved = true;
        }
        if !has_moved && self.is_time_for_a_turn() {
            self.take_turns();
        }
    }

    /// Of sessions that cannot be divided evenly (three on two lanes), the one that has moved least
    /// often goes from the busiest lane to the idlest, so that all have the emptier lane in turn.
    /// It has as many coroutines as the lanes differ by, at most [`TURN_COROUTINES`], and the
    /// weight of every session inspected on both lanes: unequal weights may be in balance as
    /// they are.
    fn take_turns(&mut self) {
        let Some((from, to, ahead)) = self.unequal_lanes() else { return };
        let round = self.frame().0;
        let runnable = |lane: u16| self.lane_ref(lane).kernel.runnable_sessions(round);
        let weight = |found: &RunnableSession| self.session_ref(SessionId(found.session)).weight;
        let Some(first) = runnable(to).next() else { return };
        if ahead > TURN_COROUTINES
            || runnable(from).chain(runnable(to)).any(|other| weight(&other) != weight(&first))
        {
            return;
        }
        let turn = runnable(from)
            .filter(|found| found.coroutines == ahead)
            .filter(|found| self.move_ban(SessionId(found.session)).is_none())
            .min_by_key(|found| (found.migrations, found.session));
        if let Some(turn) = turn {
            self.move_for_balance(turn.session, from, to);
        }
    }

    /// Whether a multiple of [`TURN_CYCLES`] passes in the frame that ends.
    fn is_time_for_a_turn(&self) -> bool {
        let cycles = u128::from(self.spec.frame_cycles.0);
        let turns_until = |frame: u64| u128::from(frame) * cycles / TURN_CYCLES;
        turns_until(self.frame().0) < turns_until(self.frame().0.saturating_add(1))
    }

    /// Of the lanes that are alone in their groups and not leased, the one with the most runnable
    /// coroutines and the one with the fewest, with their difference, if there is one.
    fn unequal_lanes(&self) -> Option<(u16, u16, u32)> {
        let load = |lane: u16| {
            let population = self.lane_ref(lane).kernel.population();
            population.ready + population.running
        };
        let is_free = |lane| self.is_alone(lane) && self.lane_ref(lane).kernel.is_open();
        let alone = || (0..self.spec.lanes).filter(|&lane| is_free(lane));
        let from = alone().max_by_key(|&lane| (load(lane), core::cmp::Reverse(lane)))?;
        let to = alone().min_by_key(|&lane| (load(lane), lane))?;
        let ahead = load(from) - load(to);
        (ahead > 0).then_some((from, to, ahead))
    }

    fn move_for_balance(&mut self, session: u32, from: u16, to: u16) {
        if let Err(refusal) = self.move_session(SessionId(session), from, to, BALANCED) {
            self.groups[0].failure = Some(refusal);
        }
    }

    /// Whether a lane is the only one of its group.
    pub(crate) fn is_alone(&self, lane: u16) -> bool {
        self.groups[self.lane_positions[usize::from(lane)].0].lanes.len() == 1
    }

    /// What forbids a session to leave its lane.
    fn move_ban(&self, session: SessionId) -> Option<MoveBan> {
        let lane = self.session_ref(session).home();
        if self.lane_ref(lane).kernel.is_open() {
            self.stays(session)
        } else {
            Some(MoveBan::Leased)
        }
    }

    /// The same, but for a lease of its lane.
    pub(crate) fn stays(&self, session: SessionId) -> Option<MoveBan> {
        let spec = &self.spec.sessions[session.0 as usize];
        if self.spec.owns_time(session) {
            Some(MoveBan::Context)
        } else if self.session_ref(session).is_in_call() {
            Some(MoveBan::Call)
        } else if spec.placement.lanes().len() > 1 {
            Some(MoveBan::Split)
        } else {
            spec.pinned.then_some(MoveBan::Pinned)
        }
    }

    pub(crate) fn move_session(
        &mut self,
        session: SessionId,
        from: u16,
        to: u16,
        reason: u64,
    ) -> Result<(), Refusal> {
        let coroutines = self.lane_ref(from).kernel.session(session.0).count() as u32;
        self.lane(to).kernel.reserve(Reservation { coroutines, sessions: 1 })?;
        let kind = if reason == STOLEN { MoveKind::Stolen } else { MoveKind::Assigned };
        let [(giver, giving), (taker, taking)] =
            [from, to].map(|lane| self.lane_positions[usize::from(lane)]);
        let groups = self.groups.get_disjoint_mut([giver.get(), taker.get()]);
        let [giver, taker] = groups.expect("sessions move between groups");
        let index = giver.local.get(session).expect("the session is in its group");
        let state = &mut giver.sessions[index.get()];
        let (giver, taker) = (&mut giver.lanes[giving], &mut taker.lanes[taking]);
        if coroutines == 0 {
            giver.kernel.move_account(session.0, &mut taker.kernel)?;
        } else {
            giver.kernel.move_session(session.0, &mut taker.kernel, kind, |tag, reference| {
                state.tasks.moved(tag.slot(), to, reference)
            })?;
        }
        state.lanes.fill(to);
        self.progress.moves += 1;
        self.carry(session, from, to);
        self.rewire(session);
        self.log_move(session, from, to, reason);
        Ok(())
    }

    pub(crate) fn log_move(&mut self, session: SessionId, from: u16, to: u16, reason: u64) {
        EventWriter(&mut self.boundary).event(&Event::Move {
            session: u64::from(session.0),
            from: u64::from(from),
            to: u64::from(to),
            reason,
        });
    }

    /// Moves a session's state from its old group to its new one.
    pub(crate) fn carry(&mut self, session: SessionId, from: u16, to: u16) {
        let [old, new] = [from, to].map(|lane| self.lane_positions[usize::from(lane)].0);
        let group = &mut self.groups[old];
        let index = group.local.remove(session).expect("the session is in its group");
        let state = group.sessions.swap_remove(index.get());
        if let Some(moved) = group.sessions.get(index.get()) {
            group.local.insert(moved.id, index);
        }
        let live = u64::from(state.tasks.live());
        group.live -= live;
        group.set_version += 1;
        group.unflushed.retain(|other| *other != session);
        let group = &mut self.groups[new];
        group.local.insert(session, SessionIndex::new(group.sessions.len()));
        group.live += live;
        group.set_version += 1;
        if !state.output.is_empty() || !state.log.is_empty() {
            group.unflushed.push(session);
        }
        group.sessions.push(state);
        self.group_lanes[session.0 as usize] = LaneId(group.lanes[0].id);
        self.session_groups[session.0 as usize] = new;
    }

    /// Recomputes the wiring of a moved session's channels and ports.
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

    /// Recomputes the lanes and credits of a wired channel from where its senders are.
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
        let Some((free, open_senders)) =
            entry.wiring.as_ref().map(|wiring| (wiring.free, wiring.open_senders))
        else {
            return;
        };
        let credits: Vec<u32> = lanes
            .iter()
            .map(|&lane| self.lane(lane).credit_for(channel, lanes.clone(), free, closed))
            .collect();
        let credit_of = |lane: &u16| {
            credits[lanes.binary_search(lane).expect("the lanes of all senders are listed")]
        };
        for &sender in &senders {
            let state = self.session(sender);
            let lines: Vec<u32> = state.lanes.iter().map(&credit_of).collect();
            for port in state.ports.iter_mut().filter(|port| port.channel == channel) {
                (port.home, port.credits) = (home, lines.clone());
            }
        }
        if let Some(wiring) = &mut self.session_group(channel.owner).channel(channel).wiring {
            **wiring = Wiring { lanes, credits, home, free, open_senders };
        }
    }

    /// A sender that waits at a channel is local if it is on the channel's lane.
    fn rewire_senders(&mut self, channel: ChannelId) {
        let home = self.session(channel.owner).home();
        let entry = self.session_group(channel.owner).channel(channel);
        if entry.wiring.is_none() {
            return;
        }
        let names: Vec<_> = entry.senders.iter().map(|sender| sender.name).collect();
        let is_local = names
            .into_iter()
            .map(|name| self.session(name.session).tasks.lane_at(name.reference.slot) == home);
        let is_local: Vec<bool> = is_local.collect();
        let entry = self.session_group(channel.owner).channel(channel);
        for (sender, local) in entry.senders.iter_mut().zip(is_local) {
            sender.local = local;
        }
    }
}

impl LaneState {
    /// The index of this lane's credit for a channel: the one it has, updated, or a new one.
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
