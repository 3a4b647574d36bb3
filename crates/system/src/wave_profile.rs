//! The width of waves, their heaviest groups, and the channels that crossed lanes: why a run does
//! or does not spread over threads.
//!
//! Kept after [`World::profile`]. A function of the model alone: the same on any number of workers.
//! The shortest that a wave can take on any number of threads is its heaviest group; summed over
//! waves that is `critical`, and `work / critical` bounds the speed-up. How workers spent their
//! time is telemetry of `waves`.

use crate::world::World;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, Cycles, LaneId};

/// Buckets of the histogram of widths: waves of 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64 and more groups
/// with work.
pub const WIDTH_BUCKETS: usize = 8;

/// One group over all waves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupLoad {
    /// Its lanes.
    pub lanes: Vec<LaneId>,
    /// Its work.
    pub work: Cycles,
    /// Waves in which it was the heaviest, the first among equals.
    pub heaviest: u64,
    /// In those waves, how far it was ahead of the second heaviest: what taking work from it could
    /// gain at most.
    pub ahead: Cycles,
    /// In those waves, its work beside that of its heaviest lane: what its lanes would gain as
    /// groups of their own, if no session joined them.
    pub joined: Cycles,
}

/// A wired channel and what crossed lanes for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelTraffic {
    /// Messages that came from another lane.
    pub crossed: u64,
    /// Senders on other lanes that had no credit and waited.
    pub waited: u64,
}

/// The waves of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WaveProfile {
    /// Waves with any work.
    pub waves: u64,
    /// By number of groups with work.
    pub widths: [u64; WIDTH_BUCKETS],
    /// Work of all groups.
    pub work: Cycles,
    /// Work of the heaviest group of each wave.
    pub critical: Cycles,
    /// The groups, by first lane.
    pub groups: Vec<GroupLoad>,
    /// The channels that anything crossed lanes for.
    pub channels: BTreeMap<ChannelId, ChannelTraffic>,
    /// Work of each lane at the start of the wave, group by group.
    before: Vec<Vec<Cycles>>,
}

impl WaveProfile {
    /// A wave is over: the work of each lane so far, group by group.
    fn wave(&mut self, after: &[Vec<Cycles>]) {
        let mut costs: Vec<(Cycles, Cycles)> = Vec::with_capacity(after.len());
        for ((lanes, before), group) in after.iter().zip(&self.before).zip(&mut self.groups) {
            let lane_costs = || lanes.iter().zip(before).map(|(&after, &before)| after - before);
            let cost = lane_costs().fold(Cycles::ZERO, |sum, cost| sum + cost);
            group.work += cost;
            costs.push((cost, lane_costs().max().unwrap_or(Cycles::ZERO)));
        }
        let width = costs.iter().filter(|(cost, _)| *cost > Cycles::ZERO).count();
        if width == 0 {
            return;
        }
        self.waves += 1;
        self.widths
            [(width.next_power_of_two().trailing_zeros() as usize).min(WIDTH_BUCKETS - 1)] += 1;
        let (mut first, mut second) = (0, Cycles::ZERO);
        for (at, &(cost, _)) in costs.iter().enumerate().skip(1) {
            if cost > costs[first].0 {
                (first, second) = (at, costs[first].0);
            } else {
                second = second.max(cost);
            }
        }
        let (cost, heaviest_lane) = costs[first];
        self.work = costs.iter().fold(self.work, |sum, (cost, _)| sum + *cost);
        self.critical += cost;
        let group = &mut self.groups[first];
        group.heaviest += 1;
        group.ahead += cost - second;
        group.joined += cost - heaviest_lane;
    }

    /// The traffic of a channel, to be counted up.
    pub(crate) fn traffic(&mut self, channel: ChannelId) -> &mut ChannelTraffic {
        self.channels.entry(channel).or_default()
    }
}

impl World {
    /// The waves so far, if they are kept.
    #[must_use]
    pub fn wave_profile(&self) -> Option<&WaveProfile> {
        self.wave_profile.as_deref()
    }

    pub(crate) fn begin_wave_profile(&mut self) {
        let groups = self.groups.iter().map(|group| GroupLoad {
            lanes: group.lanes().map(|(lane, _)| lane).collect(),
            ..GroupLoad::default()
        });
        let profile = WaveProfile { groups: groups.collect(), ..WaveProfile::default() };
        self.wave_profile = Some(alloc::boxed::Box::new(profile));
        self.mark_wave();
    }

    /// A wave starts. What lanes were charged between waves, for wakes and effects, does not count.
    pub(crate) fn mark_wave(&mut self) {
        let before = self.wave_profile.is_some().then(|| self.work_by_lane());
        if let (Some(profile), Some(before)) = (&mut self.wave_profile, before) {
            profile.before = before;
        }
    }

    /// The groups have run their wave; no effect has been applied yet.
    pub(crate) fn profile_wave(&mut self) {
        let after = self.wave_profile.is_some().then(|| self.work_by_lane());
        if let (Some(profile), Some(after)) = (&mut self.wave_profile, after) {
            profile.wave(&after);
        }
    }

    fn work_by_lane(&self) -> Vec<Vec<Cycles>> {
        self.groups
            .iter()
            .map(|group| group.lanes.iter().map(crate::group::LaneState::worked).collect())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_group_and_what_it_is_ahead_are_summed() {
        let group = |lanes: &[u16]| GroupLoad {
            lanes: lanes.iter().map(|&lane| LaneId(lane)).collect(),
            ..GroupLoad::default()
        };
        let zero = Cycles::ZERO;
        let mut profile = WaveProfile {
            groups: alloc::vec![group(&[0]), group(&[1, 2]), group(&[3])],
            before: alloc::vec![alloc::vec![zero], alloc::vec![zero, zero], alloc::vec![zero]],
            ..WaveProfile::default()
        };
        let now = |a: u64, b: u64, c: u64, d: u64| {
            alloc::vec![
                alloc::vec![Cycles(a)],
                alloc::vec![Cycles(b), Cycles(c)],
                alloc::vec![Cycles(d)]
            ]
        };
        for work in [now(10, 20, 30, 0), now(10, 20, 30, 0), now(110, 20, 30, 60)] {
            profile.wave(&work);
            profile.before = work;
        }
        assert_eq!(
            (profile.waves, profile.work, profile.critical),
            (2, Cycles(220), Cycles(150)),
            "a wave without work is none"
        );
        assert_eq!(profile.widths[..3], [0, 2, 0]);
        let load = |at: usize| {
            (
                profile.groups[at].work.0,
                profile.groups[at].heaviest,
                profile.groups[at].ahead.0,
                profile.groups[at].joined.0,
            )
        };
        assert_eq!([load(0), load(1), load(2)], [(110, 1, 40, 0), (50, 1, 40, 20), (60, 0, 0, 0)]);
    }
}
