//! Groups of lanes, and the channels, ports and credits that lead from session to session.

use crate::channel::{Channel, Wiring};
use crate::group::{Group, LaneState, Shared};
use crate::index::LaneIndex;
use crate::observe::Chain;
use crate::session::{Handle, Port, SessionState};
use crate::spec::MachineSpec;
use crate::task::NONE;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, LaneId, SessionId};
use wavelock_kernel::Lane;

/// Lanes that share a session form one group (semantics 14); every other lane is a group of its
/// own.
pub(super) fn make_groups(spec: &MachineSpec, keep_events: bool) -> Vec<Box<Group>> {
    let mut leader: Vec<u16> = (0..spec.lanes).collect();
    fn find(leader: &mut [u16], lane: u16) -> u16 {
        let next = leader[usize::from(lane)];
        if next == lane {
            return lane;
        }
        let top = find(leader, next);
        leader[usize::from(lane)] = top;
        top
    }
    for session in &spec.sessions {
        for &lane in session.placement.lanes() {
            // Looked up for every lane: joining the last one may have given the home lane another
            // leader.
            let (home, other) =
                (find(&mut leader, session.placement.home()), find(&mut leader, lane));
            let (low, high) = (home.min(other), home.max(other));
            leader[usize::from(high)] = low;
        }
    }
    let mut sizes: Vec<usize> = Vec::new();
    let mut group_of = alloc::vec![usize::MAX; usize::from(spec.lanes)];
    let lane_places: Arc<[(usize, LaneIndex)]> = (0..spec.lanes)
        .map(|lane| {
            let top = usize::from(find(&mut leader, lane));
            if group_of[top] == usize::MAX {
                group_of[top] = sizes.len();
                sizes.push(0);
            }
            let size = &mut sizes[group_of[top]];
            *size += 1;
            (group_of[top], LaneIndex::new(*size - 1))
        })
        .collect();
    let (limits, frame_cycles, lanes, handoff) =
        (spec.limits, spec.frame_cycles, spec.lanes, spec.handoff);
    let shared = Arc::new(Shared {
        limits,
        frame_cycles,
        lanes,
        handoff,
        lane_places: lane_places.clone(),
        rules: Default::default(),
    });
    let mut groups: Vec<Box<Group>> =
        sizes.iter().map(|_| Box::new(Group::new(shared.clone(), spec.sessions.len()))).collect();
    for (lane, &(group, _)) in (0..spec.lanes).zip(&*lane_places) {
        let mut kernel = Lane::new(LaneId(lane), spec.lane_settings());
        kernel.set_deviations(spec.deviations_of(lane));
        let state = LaneState::new(lane, kernel, keep_events);
        groups[group].lanes.push(state);
    }
    groups
}

/// Makes the wired channels and the ports and credits that lead to them.
pub(super) fn wire(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_places: &[(usize, LaneIndex)],
    session_places: &[usize],
) -> BTreeMap<ChannelId, Vec<SessionId>> {
    let mut wired_senders = BTreeMap::new();
    let mut senders: Vec<Vec<usize>> = alloc::vec![Vec::new(); spec.channels.len()];
    let mut owned: Vec<Vec<usize>> = alloc::vec![Vec::new(); spec.sessions.len()];
    for (at, session) in spec.sessions.iter().enumerate() {
        for &(_, channel) in &session.ports {
            if spec.channels[channel].owner.0 as usize != at && senders[channel].last() != Some(&at)
            {
                senders[channel].push(at);
            }
        }
    }
    let mut ids = Vec::with_capacity(spec.channels.len());
    for (at, channel) in spec.channels.iter().enumerate() {
        owned[channel.owner.0 as usize].push(at);
        let mut lanes: Vec<u16> = senders[at]
            .iter()
            .flat_map(|&sender| spec.sessions[sender].placement.lanes().iter().copied())
            .collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes: Arc<[u16]> = lanes.into();
        let home = spec.sessions[channel.owner.0 as usize].placement.home();
        let (owner, _) = state_and_lanes(groups, session_places, channel.owner);
        let id = ChannelId { owner: channel.owner, index: owner.channels.len() as u32 };
        let mut credits = Vec::with_capacity(lanes.len());
        for &number in lanes.iter() {
            let (group, lane) = lane_places[usize::from(number)];
            let line =
                groups[group].lanes[lane].credit_for(id, lanes.clone(), channel.capacity, false);
            credits.push(line);
        }
        let open_senders = senders[at].len() as u32;
        let wiring = (open_senders > 0).then(|| {
            Box::new(Wiring { lanes, credits, home, free: channel.capacity, open_senders })
        });
        let (owner, _) = state_and_lanes(groups, session_places, channel.owner);
        let new = Channel::new(channel.owner, owner.channels.len(), channel.capacity, wiring);
        owner.channels.push(new);
        owner.handles.push(Handle::Own(id.index));
        ids.push((id, home));
        wired_senders
            .insert(id, senders[at].iter().map(|&sender| SessionId(sender as u32)).collect());
    }
    for (at, session) in spec.sessions.iter().enumerate() {
        let (state, lanes) = state_and_lanes(groups, session_places, SessionId(at as u32));
        let mut known = BTreeMap::new();
        // The owner finds its channels under their own names too.
        let own_names =
            owned[at].iter().map(|&channel| (spec.channels[channel].name.clone(), channel));
        for (name, channel) in session.ports.iter().cloned().chain(own_names) {
            let (id, home) = ids[channel];
            let handle = if id.owner.0 as usize == at {
                id.index as i32
            } else {
                add_port(state, &mut known, id, home, &spec.channels[channel].name, lanes)
            };
            state.port_names.push((name, handle));
        }
        // Of two ports with one name the first counts: the sort is stable.
        state.port_names.sort_by(|one, other| one.0.cmp(&other.0));
        state.port_names.dedup_by(|later, first| later.0 == first.0);
    }
    wired_senders
}

/// A session and the lanes of its group.
fn state_and_lanes<'a>(
    groups: &'a mut [Box<Group>],
    session_places: &[usize],
    session: SessionId,
) -> (&'a mut SessionState, &'a [LaneState]) {
    let group = &mut *groups[session_places[session.0 as usize]];
    let index = group.local[session];
    (&mut group.sessions[index], &group.lanes)
}

/// A port of a session to another's channel; two names for one channel share it, by `known`.
fn add_port(
    state: &mut SessionState,
    known: &mut BTreeMap<ChannelId, i32>,
    channel: ChannelId,
    home: u16,
    name: &str,
    lanes: &[LaneState],
) -> i32 {
    *known.entry(channel).or_insert_with(|| {
        let find = |own: &u16| lanes.iter().find(|lane| lane.id == *own);
        let line = |own: &u16| find(own).and_then(|lane| lane.credit_lines.get(&channel)).copied();
        let credits = state.lanes.iter().map(|own| line(own).unwrap_or(NONE)).collect();
        state.ports.push(Port {
            channel,
            name: name.into(),
            home,
            credits,
            closed: false,
            sent: Chain::new(),
        });
        state.handles.push(Handle::Port(state.ports.len() as u32 - 1));
        state.handles.len() as i32 - 1
    })
}
