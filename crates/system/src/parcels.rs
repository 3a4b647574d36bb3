//! Parcels: the effects of a wave, sorted by the group they go to.
//!
//! A group that has run sorts its lanes' effects into parcels, one for each receiving group
//! ([`Group::post`], on the thread that ran it). The thread that closes the wave passes whole
//! parcels on, in canonical order of the sending lanes, without reading an effect. In a wave in
//! which a coroutine is spawned or canceled from another lane, all effects have one order
//! (`boundary`): then parcels are put back into the outboxes.

use crate::group::{Effect, Group};
use crate::index::{GroupIndex, LaneIndex};
use crate::task::Named;
use crate::world::World;
use alloc::vec::Vec;

/// An effect in a parcel.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The lane that sent it.
    pub(crate) from: u16,
    /// The lane that it goes to, in the receiving group.
    pub(crate) lane: LaneIndex,
    /// Its number among its lane's effects of this wave.
    number: u32,
    /// Its sender ended in the same wave: the effect is charged and does nothing.
    pub(crate) is_void: bool,
    pub(crate) effect: Effect,
}

/// The effects of a lane on one other group in this wave, in order.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    group: GroupIndex,
    effects: Vec<Incoming>,
}

impl Parcel {
    /// Whether nothing is in it; a parcel is kept for its allocation.
    pub(crate) const fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}

impl Effect {
    /// Whether applying it can end or spawn a coroutine, on which effects to other groups may
    /// depend: a sender that is canceled does not queue.
    const fn ends_or_spawns(&self) -> bool {
        matches!(self, Self::Cancel { .. } | Self::Exit { .. } | Self::Publish { .. })
    }
}

impl Group {
    /// Sorts the effects of its lanes into parcels, unless all effects need one order.
    pub(crate) fn post(&mut self) {
        if !self.is_sortable() {
            return;
        }
        for lane in LaneIndex::all(&self.lanes) {
            if self.lanes[lane].outbox.is_empty() {
                continue;
            }
            let mut outbox = core::mem::take(&mut self.lanes[lane].outbox);
            for (number, (to, effect)) in (0u32..).zip(outbox.drain()) {
                let (group, to) = self.shared.lane_positions[usize::from(to.0)];
                let is_void = self.is_void(&effect);
                let state = &mut self.lanes[lane];
                let incoming = Incoming { from: state.id, lane: to, number, is_void, effect };
                match state.parcels.binary_search_by_key(&group, |parcel| parcel.group) {
                    Ok(at) => state.parcels[at].effects.push(incoming),
                    Err(at) => {
                        state.parcels.insert(at, Parcel { group, effects: [incoming].into() })
                    }
                }
            }
            self.lanes[lane].outbox = outbox;
        }
    }

    /// Whether the effects of its lanes need no order across receiving groups.
    fn is_sortable(&self) -> bool {
        let mut outboxes = self.lanes.iter().map(|lane| &lane.outbox);
        self.shared.rules.settles_alone()
            && !outboxes.any(|outbox| outbox.iter().any(|(_, effect)| effect.ends_or_spawns()))
    }

    /// Whether an effect is the wait of a coroutine of this group that has ended since.
    fn is_void(&self, effect: &Effect) -> bool {
        let Effect::WaitToSend { sender, .. } = effect else { return false };
        let session = self.local[sender.session];
        self.sessions[session].tasks.named(sender.reference) != Named::Live
    }
}

impl World {
    /// Moves every parcel into the inbox of its receiving group, sending lane by sending lane.
    /// Returns the number of effects: 0 if those of this wave need one order.
    pub(crate) fn pass_parcels(&mut self) -> usize {
        // A group that ran a whole wave has sorted them; one that was stepped has not.
        self.groups.iter_mut().for_each(|group| group.post());
        if !self.groups.iter().all(|group| group.is_sortable()) {
            self.open_parcels();
            return 0;
        }
        let before = self.progress.crossings;
        for position in 0..self.spec.lanes {
            let (group, lane) = self.lane_positions[usize::from(self.sender(position).0)];
            let mut parcels = core::mem::take(&mut self.groups[group].lanes[lane].parcels);
            for parcel in parcels.iter_mut().filter(|parcel| !parcel.effects.is_empty()) {
                match self.wave_profile {
                    None => self.progress.crossings += parcel.effects.len() as u64,
                    Some(_) => {
                        parcel.effects.iter().for_each(|one| self.count_crossing(&one.effect))
                    }
                }
                let receiver = &mut self.groups[parcel.group];
                let room = receiver.spare.pop().unwrap_or_default();
                receiver.inbox.push(core::mem::replace(&mut parcel.effects, room));
            }
            self.groups[group].lanes[lane].parcels = parcels;
        }
        (self.progress.crossings - before) as usize
    }

    /// Puts effects back into their lanes' outboxes, in the order they were made.
    fn open_parcels(&mut self) {
        for &(group, lane) in self.lane_positions.clone().iter() {
            let mut parcels = core::mem::take(&mut self.groups[group].lanes[lane].parcels);
            let mut effects: Vec<(GroupIndex, Incoming)> = Vec::new();
            parcels.iter_mut().for_each(|parcel| {
                effects.extend(parcel.effects.drain(..).map(|incoming| (parcel.group, incoming)))
            });
            effects.sort_unstable_by_key(|(_, incoming)| incoming.number);
            for (receiver, incoming) in effects {
                let to = self.groups[receiver].lanes[incoming.lane].id;
                self.groups[group].lanes[lane].post(to, incoming.effect);
            }
            self.groups[group].lanes[lane].parcels = parcels;
        }
    }
}
