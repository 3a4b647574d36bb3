//! Deviations: picks at which a lane does not take the policy's choice, by the machine's own
//! description.
//!
//! Contract: a list of deviations is part of the model, like the policy it deviates from: the same
//! list produces the same run. A deviation names a pick of the lane by its number and the coroutine
//! by its rank among the ready, oldest first; so a list is meaningful only for the machine it was
//! found on. A lane without deviations pays nothing. `Fair` has none: its queue has no such rank.
//!
//! Elsewhere: where lists come from (`lab`) and where they are kept (the machine's spec, in
//! `system`).

use crate::lane::Lane;
use crate::record::NIL;
use crate::types::Tag;
use alloc::vec::Vec;

/// One pick that is not the policy's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deviation {
    /// Which pick of the lane, counted from 0.
    pub pick: u64,
    /// Which of the ready, counted from 0 in the order of their arrival; past the last it is the
    /// last.
    pub rank: u32,
}

/// The choice that a lane's next pick has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The number of the pick.
    pub pick: u64,
    /// The ready coroutines, oldest arrival first.
    pub candidates: Vec<Tag>,
    /// The rank among them of the one that would be picked now.
    pub rank: u32,
}

impl Lane {
    /// Sets where this lane deviates from its policy: ascending picks, each once.
    ///
    /// # Panics
    /// When the picks do not ascend.
    pub fn set_deviations(&mut self, deviations: Vec<Deviation>) {
        assert!(deviations.is_sorted_by(|one, next| one.pick < next.pick), "deviations ascend");
        self.deviations = deviations;
        self.refresh();
    }

    /// Deviates at one more pick, which no deviation names yet and which is not made yet.
    ///
    /// # Panics
    /// When there is a deviation at or after that pick.
    pub fn deviate(&mut self, deviation: Deviation) {
        assert!(
            self.deviations.last().is_none_or(|last| last.pick < deviation.pick),
            "deviations ascend"
        );
        self.deviations.push(deviation);
        self.refresh();
    }

    /// What the next [`Lane::dispatch`] has to choose from; `None` when it would not pick: the wave
    /// is over, the current coroutine continues, none is ready, or the policy is `Fair`.
    #[must_use]
    pub fn choice(&self) -> Option<Choice> {
        if self.fair.is_some()
            || self.is_over()
            || self.current != NIL && !(self.boundary && self.is_current_outranked())
        {
            return None;
        }
        let waiting = self.by_arrival();
        let chosen = self.peek()?;
        let candidates: Vec<Tag> = waiting.iter().map(|&slot| self.slab.hot(slot).tag).collect();
        let rank = candidates.iter().position(|&tag| tag == chosen)? as u32;
        Some(Choice { pick: self.picks(), candidates, rank })
    }

    /// The coroutine that a deviation names for the next pick.
    #[cold]
    pub(crate) fn deviated(&self) -> Option<u32> {
        let at =
            self.deviations.binary_search_by_key(&self.picks(), |deviation| deviation.pick).ok()?;
        let waiting = self.by_arrival();
        waiting.get(self.deviations[at].rank as usize).or(waiting.last()).copied()
    }

    /// The coroutines that the next pick could take, oldest arrival first; a current coroutine that
    /// returns to the queue counts with its arrival.
    fn by_arrival(&self) -> Vec<u32> {
        let contends = |slot: &u32| self.slab.hot(*slot).place.is_ready() || *slot == self.current;
        let mut slots: Vec<u32> = self.slab.slots().filter(contends).collect();
        if slots.iter().any(|&slot| !self.is_in_background(slot)) {
            slots.retain(|&slot| !self.is_in_background(slot));
        }
        slots.sort_unstable_by_key(|&slot| self.slab.hot(slot).arrival);
        slots
    }
}
