//! The data of one entity, the parameter types of the queue's interface, and the arithmetic of
//! virtual time. Ordering and search are in `tree`, the rules in `queue`.
//!
//! Virtual time is kept in units of 1/1024 virtual cycle: an entity of weight `w` that runs `c`
//! cycles advances by `c * 2^20 / w` units ([`SERVICE_UNITS`]). The quotient is added to its
//! virtual runtime and the remainder is kept, so that charges of any size lose no service to
//! rounding. Times wrap and are compared by difference; the spread of one queue stays far below
//! 2^63 (argued in docs/fair.md, verified by `check`).

use super::tree::{Entry, Key};
use crate::types::numbered;
use wavelock_abi::{Cycles, LatencyClass, MAX_GAP, Weight};

/// Units of virtual time that one cycle adds to an entity of weight 1: 1024 (the neutral weight)
/// times 1024 units per virtual cycle.
pub(super) const SERVICE_UNITS: u64 = 1 << 20;

/// The most cycles that one charge counts; sixteen times the largest slice.
pub(super) const CHARGE_LIMIT: Cycles = Cycles(1 << 36);

/// A point in a queue's virtual time. Wraps: compare by [`VirtualTime::since`] only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct VirtualTime(pub(super) i64);

impl VirtualTime {
    /// Units from `other` to here; negative when here is earlier.
    #[inline]
    pub(super) const fn since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0)
    }

    /// The point `units` later.
    #[inline]
    pub(super) const fn plus(self, units: i64) -> Self {
        Self(self.0.wrapping_add(units))
    }

    /// Whether here is strictly earlier than `other`.
    #[inline]
    pub(super) const fn before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// The earlier of two points.
    #[inline]
    pub(super) fn earlier(self, other: Self) -> Self {
        core::hint::select_unpredictable(other.before(self), other, self)
    }
}

/// Weight and latency class: how much of the best-effort time, and how soon. A class changes
/// latency, never the share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Share of the lane, 1024 is neutral.
    pub weight: Weight,
    /// Size of a request relative to the base slice.
    pub class: LatencyClass,
}

numbered! {
    /// Who shares a lane under `fair`.
    Sharing {
        Coroutine = 0, "coroutine", "every coroutine by its own weight: a session gets more by spawning more";
        Session = 1, "session", "sessions by their weight, whatever they spawn; coroutines share their session's part";
    }
}

/// Configuration of a fair queue. Fixed for the life of the queue: slices are part of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairSettings {
    base_slice: Cycles,
    least_slice: Cycles,
    round: Cycles,
    sharing: Sharing,
}

/// Why settings were refused: which value, what was found and what is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingsRefused {
    /// The name of the setting.
    pub setting: &'static str,
    /// The value given.
    pub found: Cycles,
    /// The least allowed.
    pub least: Cycles,
    /// The most allowed.
    pub most: Cycles,
}

impl FairSettings {
    /// The largest base slice and the largest least slice, so that a request of class Idle is at
    /// most 2^32.
    pub const SLICE_LIMIT: Cycles = Cycles(1 << 28);

    /// Settings: the request of class Normal, the least effective slice (`C_min`: under overload a
    /// round lengthens, a slice never shrinks below this), and the target length of a round.
    ///
    /// # Errors
    /// A slice outside 1..=[`Self::SLICE_LIMIT`], or a round shorter than the base slice.
    pub fn new(
        base_slice: Cycles,
        least_slice: Cycles,
        round: Cycles,
    ) -> Result<Self, SettingsRefused> {
        for (setting, found, least, most) in [
            ("base_slice", base_slice, Cycles(1), Self::SLICE_LIMIT),
            ("least_slice", least_slice, Cycles(1), Self::SLICE_LIMIT),
            ("round", round, base_slice, Cycles::MAX),
        ] {
            if !(least..=most).contains(&found) {
                return Err(SettingsRefused { setting, found, least, most });
            }
        }
        Ok(Self { base_slice, least_slice, round, sharing: Sharing::Coroutine })
    }

    /// The same settings for a lane that is shared so; [`Self::new`] returns the flat form.
    #[must_use]
    pub const fn shared_by(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// Who shares the lane.
    #[must_use]
    pub const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The request of class Normal.
    #[must_use]
    pub const fn base_slice(&self) -> Cycles {
        self.base_slice
    }

    /// The least effective slice, `C_min`.
    #[must_use]
    pub const fn least_slice(&self) -> Cycles {
        self.least_slice
    }

    /// The target length of a round.
    #[must_use]
    pub const fn round(&self) -> Cycles {
        self.round
    }

    /// The effective slice of a class: its request, but never below the least slice (D.6 c).
    #[must_use]
    pub fn slice(&self, class: LatencyClass) -> Cycles {
        class.request(self.base_slice).max(self.least_slice)
    }
}

/// How an entity joins the competition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// For the first time: no lag, and half a slice as its first request.
    Initial,
    /// After a sleep: with the lag it left with, and a new request. Cancels a delayed dequeue.
    Wake,
    /// After a migration or a hold: with the lag it left with and the remainder of its request.
    Migrate,
}

/// How an entity leaves the competition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// It blocks or sleeps. With negative lag its dequeue is delayed: it keeps competing, but is
    /// not picked, until the others have caught up.
    Sleep,
    /// It is held or migrates: lag and the remainder of its request are kept.
    Move,
    /// It ended: nothing is kept.
    Exit,
}

/// What an entity carries to another lane. Never a raw virtual runtime: each lane's virtual time
/// is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Its parameters.
    pub share: Share,
    /// Service owed to it (negative: owed by it), in units of virtual time: 1024 are one cycle at
    /// the neutral weight.
    pub lag: i64,
    /// The remainder of its request in the same units, if it moved in the middle of one.
    pub request_left: Option<i64>,
    /// Service below one unit, not yet in the lag: in 1/weight units.
    pub remainder: u16,
}

impl Carried {
    /// An entity that has not run on any lane.
    #[must_use]
    pub const fn fresh(share: Share) -> Self {
        Self { share, lag: 0, request_left: None, remainder: 0 }
    }
}

/// The state of an entity; see the picture in `fair`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    /// The slot has no entity.
    Absent,
    /// Not competing: `v` holds the lag, `deadline` the remainder of the request, or 0 if it was
    /// not in the middle of one.
    Resting,
    /// In the ready tree.
    Queued,
    /// Asleep with negative lag, in the delayed tree, until the others have caught up.
    Delayed,
    /// On the lane; in no tree.
    Running,
}

/// One entity. `v` and `deadline` mean what [`Phase`] says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entity {
    /// Virtual runtime while competing.
    pub(super) v: VirtualTime,
    /// Virtual deadline while competing.
    pub(super) deadline: VirtualTime,
    /// Arrival sequence while competing.
    pub(super) arrival: u64,
    /// Units of one request at this weight and class.
    pub(super) request: i64,
    /// Service below one unit, in 1/weight units.
    pub(super) remainder: u16,
    pub(super) weight: Weight,
    pub(super) class: LatencyClass,
    pub(super) phase: Phase,
    /// Queued: the list it is in, or [`Entity::UNLISTED`], and its neighbours there.
    pub(super) list: u8,
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl Entity {
    /// In no list.
    pub(super) const UNLISTED: u8 = u8::MAX;

    /// A slot without an entity.
    pub(super) const ABSENT: Self = Self {
        v: VirtualTime(0),
        deadline: VirtualTime(0),
        arrival: 0,
        request: 1,
        remainder: 0,
        weight: Weight::NEUTRAL,
        class: LatencyClass::Normal,
        phase: Phase::Absent,
        list: Self::UNLISTED,
        previous: 0,
        next: 0,
    };

    /// Adds `cycles`, which are at most [`CHARGE_LIMIT`], to its service; returns by how many whole
    /// units that moves its virtual runtime.
    #[inline(always)]
    pub(super) fn serve(&mut self, cycles: Cycles) -> i64 {
        const { assert!(SERVICE_UNITS.is_multiple_of(Weight::NEUTRAL.get() as u64)) };
        if self.weight == Weight::NEUTRAL {
            // The same without a division: nothing is added to the remainder.
            return (cycles.0 * (SERVICE_UNITS / u64::from(Weight::NEUTRAL.get()))) as i64;
        }
        let weight = u64::from(self.weight.get());
        let service = cycles.0 * SERVICE_UNITS + u64::from(self.remainder);
        self.remainder = (service % weight) as u16;
        (service / weight) as i64
    }

    /// Cycles until its virtual runtime is `end`; zero if it is.
    #[inline(always)]
    pub(super) fn bound(&self, end: VirtualTime) -> Cycles {
        let left = end.since(self.v);
        if left <= 0 {
            return Cycles::ZERO;
        }
        let service = left as u64 * u64::from(self.weight.get()) - u64::from(self.remainder);
        Cycles(service.div_ceil(SERVICE_UNITS))
    }

    /// Its weight as a factor.
    #[inline]
    pub(super) const fn factor(&self) -> i64 {
        self.weight.get() as i64
    }

    /// Its term of the weighted sum.
    #[inline]
    pub(super) const fn moment(&self, origin: VirtualTime) -> i128 {
        self.v.since(origin) as i128 * self.factor() as i128
    }

    /// Its sort key in a tree.
    #[inline]
    pub(super) const fn key(&self) -> Key {
        Key { deadline: self.deadline, arrival: self.arrival }
    }

    /// Its entry in a tree.
    #[inline]
    pub(super) const fn entry(&self, slot: u32) -> Entry {
        Entry { key: self.key(), v: self.v, slot }
    }

    pub(super) const fn share(&self) -> Share {
        Share { weight: self.weight, class: self.class }
    }

    /// The remainder of a resting entity's request.
    pub(super) fn request_left(&self) -> Option<i64> {
        (self.deadline.0 > 0).then_some(self.deadline.0)
    }
}

/// `cycles` in units of virtual time at `weight`, rounded down.
pub(super) const fn units(cycles: Cycles, weight: Weight) -> i64 {
    (cycles.0 * SERVICE_UNITS / weight.get() as u64) as i64
}

/// The most lag an entity keeps when it leaves: one slice of the largest class competing, and one
/// safepoint gap.
pub(super) const fn lag_limit(largest_slice: Cycles, weight: Weight) -> i64 {
    units(Cycles(largest_slice.0 + MAX_GAP.0), weight)
}

/// `dividend / divisor` rounded toward minus infinity. Fast path: one 64-bit division.
#[inline]
pub(super) const fn divide_floor(dividend: i128, divisor: i64) -> i64 {
    debug_assert!(divisor > 0);
    if dividend as i64 as i128 == dividend {
        (dividend as i64).div_euclid(divisor)
    } else {
        dividend.div_euclid(divisor as i128) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_stays_small() {
        assert!(size_of::<Entity>() <= 48, "{}", size_of::<Entity>());
    }

    #[test]
    fn division_rounds_toward_minus_infinity() {
        for dividend in
            [-7i128, -6, -1, 0, 1, 6, 7, i128::from(i64::MAX) * 3 + 1, i128::from(i64::MIN) * 3 - 1]
        {
            for divisor in [1i64, 2, 3, 7, 65_535] {
                if dividend.abs() / i128::from(divisor) > i128::from(i64::MAX) {
                    continue;
                }
                let quotient = i128::from(divide_floor(dividend, divisor));
                assert!(quotient * i128::from(divisor) <= dividend, "{dividend}/{divisor}");
                assert!((quotient + 1) * i128::from(divisor) > dividend, "{dividend}/{divisor}");
            }
        }
    }
}
