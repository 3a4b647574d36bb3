//! Groups of lanes, and the channels, ports and credits between sessions.

use crate::channel::{Channel, Wiring};
use crate::functions::Host;
use crate::group::{Group, LaneState, Shared};
use crate::index::{GroupIndex, LaneIndex};
use crate::observe::Chain;
use crate::session::{Handle, Port, SessionState};
use crate::spec::MachineSpec;
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
    let mut group_of = alloc::vec![None; usize::from(spec.lanes)];
    let lane_positions: Arc<[(GroupIndex, LaneIndex)]> = (0..spec.lanes)
        .map(|lane| {
            let group = *group_of[usize::from(find(&mut leader, lane))].get_or_insert_with(|| {
                sizes.push(0);
                GroupIndex::new(sizes.len() - 1)
            });
            let size = &mut sizes[group.get()];
            *size += 1;
            (group, LaneIndex::new(*size - 1))
        })
        .collect();
    let shared = Arc::new(Shared {
        limits: spec.limits,
        frame_cycles: spec.frame_cycles,
        lanes: spec.lanes,
        handoff: spec.handoff,
        lane_positions: lane_positions.clone(),
        rules: Default::default(),
        host: Host { imports: Arc::new(spec.host.clone()), code: None },
        leases: spec.shared_leases(),
    });
    let mut groups: Vec<Box<Group>> =
        sizes.iter().map(|_| Box::new(Group::new(shared.clone(), spec.sessions.len()))).collect();
    for (lane, &(group, _)) in (0..spec.lanes).zip(&*lane_positions) {
        let mut kernel = Lane::new(LaneId(lane), spec.lane_settings());
        kernel.set_deviations(spec.deviations_of(lane));
        groups[group].lanes.push(LaneState::new(lane, kernel, keep_events));
    }
    groups
}

/// Makes the wired channels, and the ports and credits that lead to them. Returns the sessions with
/// a port to each channel.
pub(super) fn wire(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_positions: &[(GroupIndex, LaneIndex)],
    session_groups: &[GroupIndex],
) -> BTreeMap<ChannelId, Vec<SessionId>> {
    let mut wired_senders = BTreeMap::new();
    let mut senders: Vec<Vec<SessionId>> = alloc::vec![Vec::new(); spec.channels.len()];
    let mut owned: Vec<Vec<usize>> = alloc::vec![Vec::new(); spec.sessions.len()];
    for (sender, session) in (0u32..).map(SessionId).zip(&spec.sessions) {
        for &(_, channel) in &session.ports {
            let is_known = senders[channel].last() == Some(&sender);
            if spec.channels[channel].owner != sender && !is_known {
                senders[channel].push(sender);
            }
        }
    }
    let mut ids = Vec::with_capacity(spec.channels.len());
    for (at, (channel, senders)) in spec.channels.iter().zip(senders).enumerate() {
        owned[channel.owner.0 as usize].push(at);
        let placement = |session: SessionId| &spec.sessions[session.0 as usize].placement;
        let mut lanes: Vec<u16> =
            senders.iter().flat_map(|&sender| placement(sender).lanes()).copied().collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes: Arc<[u16]> = lanes.into();
        let (home, free) = (placement(channel.owner).home(), channel.capacity);
        let (owner, _) = state_and_lanes(groups, session_groups, channel.owner);
        let id = ChannelId { owner: channel.owner, index: owner.channels.len() as u32 };
        let credits = lanes.iter().map(|&number| {
            let (group, lane) = lane_positions[usize::from(number)];
            groups[group.get()].lanes[lane].credit_for(id, lanes.clone(), free, false)
        });
        let credits = credits.collect();
        let open_senders = senders.len() as u32;
        let wiring = (open_senders > 0)
            .then(|| Box::new(Wiring { lanes, credits, home, free, open_senders }));
        let (owner, _) = state_and_lanes(groups, session_groups, channel.owner);
        owner.channels.push(Channel::new(id.owner, id.index as usize, channel.capacity, wiring));
        owner.handles.push(Handle::Own(id.index));
        ids.push((id, home));
        wired_senders.insert(id, senders);
    }
    for (own, session) in (0u32..).map(SessionId).zip(&spec.sessions) {
        let (state, lanes) = state_and_lanes(groups, session_groups, own);
        let mut known = BTreeMap::new();
        // The owner finds its channels under their own names too.
        let own_names = owned[own.0 as usize].iter().map(|&at| (&spec.channels[at].name, at));
        let ports = session.ports.iter().map(|(name, channel)| (name, *channel));
        for (name, channel) in ports.chain(own_names) {
            let (id, home) = ids[channel];
            let handle = if id.owner == own {
                id.index as i32
            } else {
                add_port(state, &mut known, id, home, &spec.channels[channel].name, lanes)
            };
            state.port_names.push((name.clone(), handle));
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
    session_groups: &[GroupIndex],
    session: SessionId,
) -> (&'a mut SessionState, &'a [LaneState]) {
    let group = &mut *groups[session_groups[session.0 as usize].get()];
    (&mut group.sessions[group.local[session]], &group.lanes)
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
        let credit = |own: &u16| {
            let lane = lanes.iter().find(|lane| lane.id == *own).expect("a lane of the group");
            lane.credit_lines[&channel]
        };
        let credits = state.lanes.iter().map(credit).collect();
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
