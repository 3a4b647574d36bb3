//! Accounting of contexts for reports: which coroutine ran on which context, and what was charged.
//! Off by default.
//!
//! Contract: a context's rows sum exactly to what was charged to it since the books were opened;
//! revoking a context closes its book and keeps it. No decision reads the books and they are not
//! part of a lane's state. They allocate, so a lane under the no-allocation contract keeps none;
//! both lists are bounded, and what does not fit is counted.

use super::ContextView;
use crate::lane::Lane;
use crate::types::Tag;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, Cycles};

/// The most books of revoked contexts.
const MOST_CLOSED: usize = 4_096;
/// The most coroutines with a row of their own on one context.
const MOST_NAMED: usize = 256;

/// Lane time that one coroutine used on a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// The coroutine; `None` for the sum of those beyond the bound.
    pub by: Option<Tag>,
    /// Lane time charged to the context while it ran.
    pub cycles: Cycles,
}

/// What was charged to one context, by coroutine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextBook {
    /// The context: as it is, or as it was when it was revoked.
    pub view: ContextView,
    /// Whether it is revoked.
    pub is_revoked: bool,
    /// Slices that ran beyond their refill.
    pub overruns: u64,
    /// A row per coroutine, in order of their first run.
    pub executed: Vec<Executed>,
}

/// The rows of a live context.
#[derive(Clone, Default)]
struct Open {
    overruns: u64,
    executed: Vec<Executed>,
}

impl Open {
    fn close(self, view: ContextView, is_revoked: bool) -> ContextBook {
        ContextBook { view, is_revoked, overruns: self.overruns, executed: self.executed }
    }
}

/// The books of a lane.
#[derive(Clone, Default)]
pub(crate) struct Books {
    open: BTreeMap<u32, Open>,
    closed: Vec<ContextBook>,
    dropped: u64,
}

impl Books {
    pub(crate) fn charge(&mut self, context: u32, by: Tag, cycles: Cycles, overrun: Cycles) {
        let open = self.open.entry(context).or_default();
        open.overruns += u64::from(overrun > Cycles::ZERO);
        let known = open.executed.iter().position(|row| row.by == Some(by));
        let by = Some(by).filter(|_| open.executed.len() < MOST_NAMED);
        match known.or_else(|| open.executed.iter().position(|row| row.by == by)) {
            Some(at) => open.executed[at].cycles = open.executed[at].cycles.saturating_add(cycles),
            None => open.executed.push(Executed { by, cycles }),
        }
    }

    pub(crate) fn revoke(&mut self, view: ContextView) {
        let open = self.open.remove(&view.context.slot).unwrap_or_default();
        if self.closed.len() < MOST_CLOSED {
            self.closed.push(open.close(view, true));
        } else {
            self.dropped += 1;
        }
    }
}

impl Lane {
    /// Turns the accounting of contexts on, if the lane has any.
    pub fn keep_context_books(&mut self) {
        if let Some(tier) = &mut self.tier {
            tier.books = Some(Box::default());
        }
    }

    /// The books: revoked contexts in order of revocation, then the live ones by slot; and how many
    /// revoked ones did not fit. Empty if accounting is off.
    #[must_use]
    pub fn context_books(&self) -> (Vec<ContextBook>, u64) {
        let Some(books) = self.tier.as_ref().and_then(|tier| tier.books.as_ref()) else {
            return (Vec::new(), 0);
        };
        let mut all = books.closed.clone();
        all.extend(self.contexts().map(|view| {
            let open = books.open.get(&view.context.slot).cloned();
            open.unwrap_or_default().close(view, false)
        }));
        (all, books.dropped)
    }

    pub(crate) fn close_book(&mut self, context: ContextRef) {
        if self.tier.as_ref().is_some_and(|tier| tier.books.is_some())
            && let Ok(view) = self.context(context)
            && let Some(books) = &mut self.tier_mut().books
        {
            books.revoke(view);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coroutines_beyond_the_bound_are_summed() {
        let mut books = Books::default();
        for slot in 0..1_000 {
            books.charge(3, Tag::new(0, slot), Cycles(1), Cycles(u64::from(slot % 2)));
            books.charge(3, Tag::new(0, slot), Cycles(2), Cycles::ZERO);
        }
        let open = &books.open[&3];
        assert_eq!(open.executed.len(), MOST_NAMED + 1);
        assert_eq!(open.executed.iter().map(|row| row.cycles.0).sum::<u64>(), 3_000);
        assert_eq!(
            open.executed
                .iter()
                .filter(|row| row.by.is_none())
                .map(|row| row.cycles.0)
                .sum::<u64>(),
            3 * (1_000 - MOST_NAMED as u64)
        );
        assert_eq!(open.overruns, 500);
    }
}
