//! Rules of a wave's end that a test can break or leave: the order of inboxes (semantics 15), the
//! lapse of credits (semantics 27), and that groups settle what concerns only them each on its own;
//! and ends, which a test can cut off.
//!
//! The unit tests of this crate replace this module by `tests/planted/rules.rs`, under the same
//! names.

use wavelock_abi::LaneId;

/// The rules as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules;

impl Rules {
    /// The sending lane at `position` of the canonical order: ascending.
    #[inline]
    pub(crate) const fn sender(self, position: u16, _lanes: u16) -> LaneId {
        LaneId(position)
    }

    /// Where an end is cut off and begun anew: nowhere.
    #[inline]
    pub(crate) const fn cut_after(self) -> Option<usize> {
        None
    }

    /// The space a lane has a share in after a division: what was divided now. What it held before
    /// has lapsed.
    #[inline]
    pub(crate) const fn divided(self, _before: u32, now: u32) -> u32 {
        now
    }

    /// Whether groups settle each on its own what concerns only them, before the rest is done in
    /// one order.
    #[inline]
    pub(crate) const fn settles_alone(self) -> bool {
        true
    }
}
