//! What a hot record counts in fewer bytes than the number may need, and where the rest of it is: a
//! hot record is one line of a cache.
//!
//! | number | in the hot record | the rest |
//! |---|---|---|
//! | switches | 32 bits | carried to the cold part, 2^31 at a time, by [`Slab::settle`] |
//! | sleeps | 8 bits | carried to the cold part, 256 at a time, when a sleep overflows them |
//! | runtime | 32 bits | carried to the cold part when a charge overflows them; the short ways leave that to [`Lane::stop`] |
//! | picks at the arrival | 31 bits ([`PicksAt`]) | one of 2^29 picks ago or more is in a table apart, by [`Slab::settle`], and the hot record says so |
//!
//! Contract: nothing here can be seen from outside: every number that the slab gives is exact, as
//! if the record held it. A lane makes one switch of a record for each pick at the most and settles
//! its records at least once in 2^30 picks ([`Lane::settle_if_due`], and the short ways give way at
//! [`Lane::short_until`]), so a count of switches cannot overflow and 31 bits of a pick count say
//! which one it was. The cold parts and the table have their room from `reserve`: nothing
//! allocates.

use crate::lane::Lane;
use crate::record::{Hot, Place, Slab};
use wavelock_abi::Cycles;

/// Picks, and slices, after which a lane settles its records.
pub(crate) const SETTLE_AFTER: u64 = 1 << 29;

/// Switches that are carried at once.
const SWITCHES_CARRIED: u32 = 1 << 31;

/// A lane's pick count when a record got its arrival, as far as 31 bits say it; or that it is
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PicksAt(u32);

impl PicksAt {
    const APART: Self = Self(1 << 31);

    /// Of a pick count that is the lane's own now, or was less than [`SETTLE_AFTER`] picks ago.
    #[inline(always)]
    pub(crate) const fn of(picks: u64) -> Self {
        Self(picks as u32 & (Self::APART.0 - 1))
    }

    /// How many picks ago it was, if it is here.
    #[inline(always)]
    const fn ago(self, picks: u64) -> Option<u64> {
        match self {
            Self::APART => None,
            Self(near) => Some(Self::of(picks.wrapping_sub(near as u64)).0 as u64),
        }
    }
}

impl Hot {
    /// Its runtime after a slice of `used` cycles, if that needs no carry ([`Slab::charge`]).
    #[inline(always)]
    pub(crate) fn runtime_after(&self, used: Cycles) -> Option<u32> {
        self.runtime.checked_add(u32::try_from(used.0).ok()?)
    }

    /// Counts a sleep; whether that has to be carried ([`Slab::carry_sleeps`]).
    #[inline(always)]
    #[must_use]
    pub(crate) const fn count_sleep(&mut self) -> bool {
        self.sleeps = self.sleeps.wrapping_add(1);
        self.sleeps == 0
    }
}

impl Slab {
    /// Adds what a slice used to a record's runtime.
    #[inline(always)]
    pub(crate) fn charge(&mut self, slot: u32, used: Cycles) -> &mut Hot {
        match self.hot(slot).runtime_after(used) {
            Some(runtime) => self.hot_mut(slot).runtime = runtime,
            None => self.charge_far(slot, used),
        }
        self.hot_mut(slot)
    }

    #[cold]
    #[inline(never)]
    fn charge_far(&mut self, slot: u32, used: Cycles) {
        let (near, far) = split_runtime(self.runtime(slot) + used);
        self.hot_mut(slot).runtime = near;
        self.cold_mut(slot).runtime = far;
    }

    /// The runtime of a record.
    pub(crate) fn runtime(&self, slot: u32) -> Cycles {
        Cycles(u64::from(self.cold(slot).runtime) << u32::BITS | u64::from(self.hot(slot).runtime))
    }

    /// The lane's pick count when a record got its arrival. The lane's count is `picks` now.
    #[inline]
    pub(crate) fn picks_at(&self, slot: u32, picks: u64) -> u64 {
        match self.hot(slot).picks_at.ago(picks) {
            Some(ago) => picks - ago,
            None => self.picks_apart.get(slot as usize).copied().unwrap_or(0),
        }
    }

    /// Sets the lane's pick count when a record got its arrival. The lane's count is `picks` now.
    pub(crate) fn set_picks_at(&mut self, slot: u32, picks_at: u64, picks: u64) {
        if picks - picks_at < SETTLE_AFTER {
            self.hot_mut(slot).picks_at = PicksAt::of(picks_at);
        } else {
            let at = slot as usize;
            if at >= self.picks_apart.len() {
                // There is room: it was reserved with the record.
                self.picks_apart.resize(at + 1, 0);
            }
            self.picks_apart[at] = picks_at;
            self.hot_mut(slot).picks_at = PicksAt::APART;
        }
    }

    /// The switches to a record.
    pub(crate) fn switches(&self, slot: u32) -> u64 {
        u64::from(self.cold(slot).switches) * u64::from(SWITCHES_CARRIED)
            + u64::from(self.hot(slot).switches)
    }

    /// The sleeps of a record.
    pub(crate) fn sleeps(&self, slot: u32) -> u32 {
        self.cold(slot).sleeps.saturating_add(self.hot(slot).sleeps.into())
    }

    /// The sleeps of a record have overflowed what it counts itself.
    #[cold]
    #[inline(never)]
    pub(crate) fn carry_sleeps(&mut self, slot: u32) {
        let sleeps = &mut self.cold_mut(slot).sleeps;
        *sleeps = sleeps.saturating_add(1 << u8::BITS);
    }

    /// Carries what the hot records will soon have no room for. The lane's pick count is `picks`.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&mut self, picks: u64) {
        for slot in 0..self.used() {
            let hot = self.hot_mut(slot);
            if hot.place == Place::Free {
                continue;
            }
            let ago = hot.picks_at.ago(picks);
            if let Some(switches) = hot.switches.checked_sub(SWITCHES_CARRIED) {
                hot.switches = switches;
                self.cold_mut(slot).switches += 1;
            }
            if let Some(ago) = ago {
                self.set_picks_at(slot, picks - ago, picks);
            }
        }
    }
}

/// The most switches a record can have: so many that no lane gets there, and none overflows its
/// carry.
pub(crate) const SWITCHES_MOST: u64 = 1 << 62;

/// A count of switches as a record holds it: in the hot part, and in the cold.
pub(crate) const fn split_switches(switches: u64) -> (u32, u32) {
    ((switches % SWITCHES_CARRIED as u64) as u32, (switches / SWITCHES_CARRIED as u64) as u32)
}

/// A runtime as a record holds it: in the hot part, and in the cold.
pub(crate) const fn split_runtime(runtime: Cycles) -> (u32, u32) {
    (runtime.0 as u32, (runtime.0 >> u32::BITS) as u32)
}

/// A count of sleeps as a record holds it: in the hot part, and in the cold.
pub(crate) const fn split_sleeps(sleeps: u32) -> (u8, u32) {
    let near = sleeps as u8;
    (near, sleeps - near as u32)
}

impl Lane {
    /// Settles the records if enough was picked or run since the last time.
    pub(crate) fn settle_if_due(&mut self) {
        if self.steps >= self.settle_step || self.picks() >= self.settle_picks {
            self.slab.settle(self.picks());
            self.plan_settling();
        }
    }

    /// The records are settled, or nothing in them has to be.
    pub(crate) fn plan_settling(&mut self) {
        self.settle_step = self.steps.saturating_add(SETTLE_AFTER);
        self.settle_picks = self.picks().saturating_add(SETTLE_AFTER);
        self.set_short_until();
    }

    /// The short ways are open until the wave's last step, or until the records are settled.
    pub(crate) fn set_short_until(&mut self) {
        self.short_until = self.last_step.min(self.settle_step);
        self.forget_turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{LaneSettings, Next, Reservation};
    use crate::migrate::MoveKind;
    use crate::policy::{AGING_PICKS, Policy, PriorityRule};
    use crate::types::{BlockReason, Outcome, Span, Spawn, Tag, WakeSource};
    use alloc::vec::Vec;
    use wavelock_abi::{Frame, LaneId, SCHEDULER_COSTS_V1, SchedulerOperation};

    const AGING: Policy = Policy::Priority { rule: PriorityRule::Aging, quantum: Cycles(1_000) };

    fn lane(id: u16, policy: Policy, coroutines: u32) -> Lane {
        let settings = LaneSettings {
            policy,
            frame_cycles: Cycles(1_000_000),
            costs: SCHEDULER_COSTS_V1,
            handoff: false,
        };
        let mut lane = Lane::new(LaneId(id), settings);
        lane.reserve(Reservation { coroutines: 8, sessions: 1 }).expect("memory");
        for index in 0..coroutines {
            let _ = lane.spawn(Spawn::new(Tag::new(0, index))).expect("room");
        }
        lane.begin_wave(Span::Until(Cycles(u64::MAX)));
        lane
    }

    fn random(state: &mut u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    /// So many picks, that nobody sees.
    fn pick_on(lane: &mut Lane, picks: u64) {
        lane.operations.book_some(SchedulerOperation::Pick, picks);
        lane.clock += picks * lane.settings.costs.of(SchedulerOperation::Pick).0;
    }

    /// Lives that begin a little before each border, in the short ways and the long one, against
    /// counts of the test's own.
    #[test]
    fn short_counts_are_exact_over_their_borders() {
        let mut state = lane(0, Policy::RoundRobin { quantum: Cycles(100_000) }, 3).export();
        let borders = [
            (u64::from(u32::MAX) - 900, (1 << 31) - 20, 250),
            ((7 << 32) - 1, (1 << 32) - 2, u32::MAX - 10),
            ((1 << 33) - 40_000, 5, 65_530),
        ];
        for (record, (runtime, switches, sleeps)) in state.records.iter_mut().zip(borders) {
            (record.ledger.runtime, record.ledger.switches, record.ledger.sleeps) =
                (Cycles(runtime), switches, sleeps);
        }
        let mut lane = Lane::rebuild(&state, 2_000).expect("a lane");
        assert_eq!(lane.export(), state);
        let carried: Vec<_> = (0..3).map(|slot| *lane.slab.cold(slot)).collect();

        let (mut expected, mut seed, mut short) = (borders, 5, 0);
        let mut token = None;
        for _ in 0..4_000 {
            if random(&mut seed).is_multiple_of(16) {
                lane.settle_step = lane.steps;
                lane.set_short_until();
            }
            if !lane.in_slice {
                match lane.dispatch() {
                    Next::Run(running) => {
                        expected[running.reference.slot as usize].1 += u64::from(running.switched);
                        token = Some(running);
                    }
                    _ => {
                        let _ = lane.end_frame();
                        lane.begin_frame(Frame(lane.frame.0 + 1));
                        continue;
                    }
                }
            }
            let (slot, used, sleeps) = (
                lane.current,
                Cycles(1 + random(&mut seed) % 900),
                random(&mut seed).is_multiple_of(3),
            );
            let account = &mut expected[slot as usize];
            account.0 += used.0;
            account.2 = account.2.saturating_add(u32::from(sleeps));
            let outcome =
                if sleeps { Outcome::Slept(Frame(lane.frame.0 + 1)) } else { Outcome::Yielded };
            let bound = lane.left_in_slice();
            let began = match sleeps {
                true => lane.leave(used, outcome).is_some(),
                false => {
                    lane.pass(used, |_, _| ()).is_some() || lane.pass_at_length(used).is_some()
                }
            };
            if began {
                (short, token) = (short + 1, None);
                expected[lane.current as usize].1 += 1;
            } else {
                let running = token.take().unwrap_or_else(|| lane.token(bound));
                let _ = lane.stop(running, used, outcome);
            }
        }
        if let Some(running) =
            token.take().or_else(|| lane.in_slice.then(|| lane.token(lane.left_in_slice())))
        {
            let _ = lane.stop(running, Cycles(0), Outcome::Yielded);
        }
        assert!(short > 1_000, "the short ways were taken: {short}");
        for (slot, expected) in (0..3).zip(expected) {
            let ledger = lane.ledger_of(slot);
            assert_eq!((ledger.runtime.0, ledger.switches, ledger.sleeps), expected, "slot {slot}");
            let (before, after) = (carried[slot as usize], lane.slab.cold(slot));
            assert!(
                after.runtime > before.runtime && after.sleeps > before.sleeps,
                "slot {slot}: {before:?} {after:?}"
            );
            assert!(
                slot == 2 || after.switches > before.switches,
                "slot {slot}: {before:?} {after:?}"
            );
        }
        let again = Lane::rebuild(&lane.export(), 2_000).expect("a lane");
        assert_eq!(again.export(), lane.export());
        lane.check().expect("a lane");
    }

    /// Each short way goes where it can and gives way where the records are to be settled.
    #[test]
    fn every_short_way_gives_way_where_records_are_settled() {
        type Way = fn(&mut Lane) -> bool;
        let used = Cycles(5);
        let reason = BlockReason::ChannelReceive;
        let ways: [(&str, u32, Way); 6] = [
            ("pass", 3, |lane| lane.pass(Cycles(5), |_, _| ()).is_some()),
            ("pass at length", 3, |lane| lane.pass_at_length(Cycles(5)).is_some()),
            ("pass to itself", 1, |lane| lane.pass_to_itself(Cycles(5)).is_some()),
            ("leave", 3, |lane| lane.leave(Cycles(5), Outcome::Slept(Frame(9))).is_some()),
            ("leave waiting", 3, |lane| {
                lane.leave_waiting(Cycles(5), BlockReason::ChannelReceive, |_, _| ()).is_some()
            }),
            ("leave finished", 3, |lane| lane.leave_finished(Cycles(5), |_, _| ()).is_some()),
        ];
        for (name, coroutines, way) in ways {
            for is_due in [false, true] {
                let mut lane = lane(0, Policy::RoundRobin { quantum: Cycles(100_000) }, coroutines);
                // Each has waited once, for the reason that `leave_waiting` is about.
                for _ in 0..coroutines {
                    let Next::Run(running) = lane.dispatch() else { panic!("somebody is ready") };
                    let reference = running.reference();
                    let _ = lane.stop(running, used, Outcome::Blocked(reason));
                    lane.wake(reference, WakeSource::Channel).expect("it waits");
                }
                let Next::Run(_) = lane.dispatch() else { panic!("somebody is ready") };
                // So that it is known what turns are like.
                assert_eq!(lane.pass_at_length(used).is_some(), coroutines > 1);
                if is_due {
                    lane.settle_step = lane.steps;
                    lane.set_short_until();
                }
                let before = (lane.steps, lane.picks(), lane.clock);
                assert_eq!(way(&mut lane), !is_due, "{name}");
                assert_eq!(
                    (lane.steps, lane.picks(), lane.clock) == before,
                    is_due,
                    "{name}: nothing has changed where it gives way"
                );
            }
        }
    }

    /// What is known of turns is forgotten before the records are settled, although only the clock
    /// is asked.
    #[test]
    fn known_turns_end_where_records_are_settled() {
        for (due, quantum) in [(1, 1_000), (2, 1_000), (9, 1_000), (9, 1 << 40)] {
            let mut lane = lane(0, Policy::RoundRobin { quantum: Cycles(quantum) }, 3);
            let Next::Run(_) = lane.dispatch() else { panic!("somebody is ready") };
            lane.settle_step = lane.steps + due;
            lane.set_short_until();
            assert!(lane.pass_at_length(Cycles(0)).is_some());
            let known =
                (1..20).take_while(|_| lane.pass(Cycles(0), |_, _| ()).is_some()).count() as u64;
            assert_eq!((known, lane.steps), (due - 1, lane.settle_step), "{due}, {quantum}");
            lane.check().expect("a lane");
        }
    }

    /// A slot that is used again begins at nothing, whatever was carried for the one before.
    #[test]
    fn a_slot_that_is_used_again_has_no_carry() {
        let mut state = lane(0, Policy::Cooperative, 1).export();
        (state.records[0].ledger.runtime, state.records[0].ledger.switches) =
            (Cycles(1 << 40), 1 << 40);
        let mut lane = Lane::rebuild(&state, 2_000).expect("a lane");
        let first = state.records[0].reference;
        lane.cancel(first).expect("it waits");
        assert_eq!(lane.reap(first).expect("it has ended").switches, 1 << 40);
        let spawn = Spawn::new(Tag::new(0, 1));
        let second = lane.spawn_in_order(&spawn).or_else(|| lane.spawn(spawn).ok()).expect("room");
        assert_eq!(
            (second.slot, lane.ledger_of(second.slot)),
            (first.slot, crate::ledger::Ledger::default())
        );
    }

    /// The pick count at an arrival, over 2^34 picks with arrivals in between, and what `Aging`
    /// makes of it after a change to it.
    #[test]
    fn picks_at_an_arrival_are_exact_however_long_ago() {
        let mut lane = lane(0, Policy::RoundRobin { quantum: Cycles(1_000) }, 6);
        let (mut expected, mut seed) = ([0u64; 6], 3);
        for round in 0..64 {
            pick_on(&mut lane, SETTLE_AFTER - random(&mut seed) % 1_000 - 1);
            // The first never runs again.
            for _ in 0..random(&mut seed) % 3 {
                let slot = 1 + (random(&mut seed) % 5) as u32;
                lane.dequeue(slot);
                expected[slot as usize] = lane.picks();
                let _ = lane.arrive(slot, crate::queue::Entrance::Wake);
            }
            lane.begin_wave(Span::Until(Cycles(u64::MAX)));
            let found: Vec<u64> =
                (0..6).map(|slot| lane.slab.picks_at(slot, lane.picks())).collect();
            assert_eq!(found, expected, "round {round}");
        }
        assert!(lane.picks() > 1 << 34);
        let state = lane.export();
        assert!(
            state
                .records
                .iter()
                .zip(expected)
                .all(|(record, expected)| record.picks_at == expected)
        );
        let mut again = Lane::rebuild(&state, 2_000).expect("a lane");
        assert_eq!(again.export(), state);
        for lane in [&mut lane, &mut again] {
            lane.set_policy(AGING).expect("memory");
            assert_eq!(
                crate::policy::aged(&lane.slab, 0, lane.picks()),
                lane.picks() / AGING_PICKS
            );
            lane.begin_frame(Frame(lane.clock / lane.settings.frame_cycles.0 + 1));
            let Next::Run(running) = lane.dispatch() else { panic!("six are ready") };
            assert_eq!(running.reference.slot, 0, "the oldest");
            let _ = lane.stop(running, Cycles(1), Outcome::Yielded);
            assert_eq!(lane.slab.picks_at(0, lane.picks()), lane.picks(), "it has a new arrival");
        }
        assert_eq!(again.export(), lane.export());
    }

    /// A move keeps the whole ledger, and age begins anew: on lanes with `Aging` and without.
    #[test]
    fn a_move_keeps_what_was_carried() {
        for policies in [[Policy::Cooperative, AGING], [AGING, Policy::Cooperative]] {
            let mut state = lane(0, policies[0], 2).export();
            let ledger = &mut state.records[1].ledger;
            (ledger.runtime, ledger.switches, ledger.sleeps) =
                (Cycles((3 << 32) + 5), (1 << 33) + 9, 70_000);
            let mut from = Lane::rebuild(&state, 2_000).expect("a lane");
            // More than a lane settles at once, as one has that was always elsewhere when records
            // were settled.
            from.slab.hot_mut(1).switches = u32::MAX;
            let mut expected = from.ledger_of(1);
            assert_eq!(expected.switches, (1 << 33) + u64::from(u32::MAX));
            let mut to = lane(1, policies[1], 0);
            for lane in [&mut from, &mut to] {
                pick_on(lane, (5 << 32) + u64::from(lane.id.0));
            }
            from.withdraw(1);
            let here = to.unpack(from.pack(1), MoveKind::Assigned);
            expected.migrations = 1;
            assert_eq!(to.ledger_of(here.slot), expected);
            assert!(to.slab.hot(here.slot).switches < SWITCHES_CARRIED);
            assert_eq!(to.export().records[0].picks_at, (5 << 32) + 1);
            assert_eq!(Lane::rebuild(&to.export(), 2_000).expect("a lane").export(), to.export());
        }
    }

    #[test]
    fn more_switches_than_there_can_be_are_refused() {
        let mut state = lane(0, Policy::Cooperative, 1).export();
        state.records[0].ledger.switches = SWITCHES_MOST - 1;
        assert_eq!(Lane::rebuild(&state, 2_000).expect("a lane").export(), state);
        state.records[0].ledger.switches = SWITCHES_MOST;
        assert!(Lane::rebuild(&state, 2_000).is_err());
    }
}
