//! Effects on their way from the lane that made them to the group they go to.
//!
//! A group that has run sorts its lanes' effects into parcels, one for each group they go to
//! ([`Group::post`], on whatever thread it ran). Whoever closes the wave then passes whole parcels
//! on, in canonical order of the sending lanes, and never looks at an effect. A wave in which a
//! coroutine of another lane is begun or ended has one order for all effects (`boundary`): then
//! parcels are put back as they were.

use crate::group::{Effect, Group};
use crate::task::Named;
use crate::world::World;
use alloc::vec::Vec;

/// An effect in a parcel.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The lane that sent it.
    pub(crate) from: u16,
    /// Where in the receiving group the lane is that it goes to.
    pub(crate) lane: u16,
    /// Which of its lane's effects in this wave it is.
    number: u32,
    /// Its sender waits no more: it ended in the same wave. The effect costs what it costs, and
    /// does nothing.
    pub(crate) is_void: bool,
    pub(crate) effect: Effect,
}

/// What a lane did to one other group in this wave, in the order it did it.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    group: usize,
    effects: Vec<Incoming>,
}

impl Effect {
    /// Whether applying it can end a coroutine or begin one, on which effects to other groups may
    /// depend: a sender that is canceled does not queue.
    const fn ends_or_begins(&self) -> bool {
        matches!(self, Self::Cancel { .. } | Self::Exit { .. } | Self::Publish { .. })
    }
}

impl Group {
    /// Makes parcels of what its lanes did to other lanes in this wave, unless one order for all of
    /// it is needed.
    pub(crate) fn post(&mut self) {
        if !self.is_sortable() {
            return;
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].outbox.is_empty() {
                continue;
            }
            let mut outbox = core::mem::take(&mut self.lanes[lane].outbox);
            for (number, (to, effect)) in (0u32..).zip(outbox.drain()) {
                let (group, place) = self.shared.lane_places[usize::from(to.0)];
                let is_void = self.is_void(&effect);
                let state = &mut self.lanes[lane];
                let incoming =
                    Incoming { from: state.id, lane: place.get() as u16, number, is_void, effect };
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

    /// Whether its effects need no order but that of each receiving group.
    fn is_sortable(&self) -> bool {
        let mut outboxes = self.lanes.iter().map(|lane| &lane.outbox);
        self.shared.rules.settles_alone()
            && !outboxes.any(|outbox| outbox.iter().any(|(_, effect)| effect.ends_or_begins()))
    }

    /// Whether an effect of one of its own coroutines is a wait of one that has ended, which it can
    /// in the wave in which it began to wait.
    fn is_void(&self, effect: &Effect) -> bool {
        let Effect::WaitToSend { sender, .. } = effect else { return false };
        let session = self.local[sender.session];
        self.sessions[session].tasks.named(sender.reference) != Named::Live
    }
}

impl World {
    /// Passes every parcel on to the group it goes to, sending lane by sending lane. How many
    /// effects those are: none if this wave's effects need one order.
    pub(crate) fn pass_parcels(&mut self) -> usize {
        // Those that ran a whole wave have; those that were stepped have not.
        self.groups.iter_mut().for_each(|group| group.post());
        if !self.groups.iter().all(|group| group.is_sortable()) {
            self.open_parcels();
            return 0;
        }
        let before = self.crossings;
        for position in 0..self.spec.lanes {
            let (group, lane) = self.lane_places[usize::from(self.sender(position).0)];
            let mut parcels = core::mem::take(&mut self.groups[group].lanes[lane].parcels);
            for parcel in parcels.iter_mut().filter(|parcel| !parcel.effects.is_empty()) {
                self.note_crossings(&parcel.effects);
                let receiver = &mut self.groups[parcel.group];
                let room = receiver.spare.pop().unwrap_or_default();
                receiver.inbox.push(core::mem::replace(&mut parcel.effects, room));
            }
            self.groups[group].lanes[lane].parcels = parcels;
        }
        (self.crossings - before) as usize
    }

    /// Puts effects back into their lanes' outboxes, in the order they were made.
    fn open_parcels(&mut self) {
        for sender in 0..self.lane_places.len() {
            let (group, lane) = self.lane_places[sender];
            let mut parcels = core::mem::take(&mut self.groups[group].lanes[lane].parcels);
            let mut effects: Vec<(usize, Incoming)> = Vec::new();
            parcels.iter_mut().for_each(|parcel| {
                effects.extend(parcel.effects.drain(..).map(|incoming| (parcel.group, incoming)))
            });
            effects.sort_unstable_by_key(|(_, incoming)| incoming.number);
            for (receiver, incoming) in effects {
                let to = self.groups[receiver].lanes[usize::from(incoming.lane)].id;
                self.groups[group].lanes[lane].post(to, incoming.effect);
            }
            self.groups[group].lanes[lane].parcels = parcels;
        }
    }

    fn note_crossings(&mut self, effects: &[Incoming]) {
        if self.wave_profile.is_some() {
            return effects.iter().for_each(|incoming| self.note_crossing(&incoming.effect));
        }
        self.crossings += effects.len() as u64;
    }
}
