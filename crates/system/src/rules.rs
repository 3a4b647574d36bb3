//! Rules that a test can break: the order of inboxes (semantics 15), the lapse of credits
//! (semantics 27), that each group settles its own effects, that wakes are kept (semantics 60),
//! that snapshots keep holds (semantics 86), that a replaced session gets what was carried
//! (semantics 91), that senders to a leased lane are its wake sources (semantics 123), that inputs
//! arrive in their frame (semantics 80) and replies are part of a snapshot (semantics 106), and
//! that ends run without interruption.
//!
//! The unit tests of this crate replace this module by `tests/planted/rules.rs`, with the same
//! names.

use crate::live::{Given, Input};
use alloc::collections::VecDeque;
use wavelock_abi::{Frame, LaneId};

/// The rules, unbroken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules;

impl Rules {
    /// The sending lane at `position` of the canonical order: ascending.
    #[inline]
    pub(crate) const fn sender(self, position: u16, _lanes: u16) -> LaneId {
        LaneId(position)
    }

    /// The step after which an end is interrupted and started again: none.
    #[inline]
    pub(crate) const fn cut_after(self) -> Option<usize> {
        None
    }

    /// The space that a lane has a share in after a division: the space divided now. What it had
    /// before has lapsed.
    #[inline]
    pub(crate) const fn divided(self, _before: u32, now: u32) -> u32 {
        now
    }

    /// Whether an unpark of a coroutine that is not parked is kept for its next park.
    #[inline]
    pub(crate) const fn keeps_wakes(self) -> bool {
        true
    }

    /// Whether a snapshot has the holds of an operator.
    #[inline]
    pub(crate) const fn keeps_holds(self) -> bool {
        true
    }

    /// The frame of an input that is given for `frame`.
    #[inline]
    pub(crate) const fn input_frame(self, frame: Frame, _input: &Input) -> Frame {
        frame
    }

    /// What a replaced session begins with.
    #[inline]
    pub(crate) const fn carried(self, carry: &[u8]) -> &[u8] {
        carry
    }

    /// The inputs to come after a return to a snapshot that holds these.
    pub(crate) fn kept_inputs(self, inputs: &VecDeque<Given>) -> VecDeque<Given> {
        inputs.clone()
    }

    /// Whether an active lease has every sender to its lane among its wake sources.
    #[inline]
    pub(crate) const fn routes_wakes(self) -> bool {
        true
    }

    /// Whether each group settles the effects that concern only itself, before the rest is applied
    /// in one order.
    #[inline]
    pub(crate) const fn settles_alone(self) -> bool {
        true
    }
}
