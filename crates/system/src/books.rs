//! The books of a run: what was charged to which context, and by whose running. Kept when
//! [`World::profile`] asked for it.
//!
//! Contract: a function of the model, like all that a report has; a context that is revoked keeps
//! its book. Elsewhere: the contexts there are now ([`World::contexts`]), how books are kept
//! (`kernel`).

use crate::context::ContextSummary;
use crate::group::{Group, LaneState};
use crate::look::Presence;
use crate::world::World;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineName, CoroutineRef, Cycles, LaneId, SessionId};
use wavelock_kernel::ContextView;

/// What was charged to one context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextAccount {
    /// Its name in the manifest, if it is from there.
    pub name: Option<String>,
    /// Its lane.
    pub lane: LaneId,
    /// The session that owns it.
    pub owner: SessionId,
    /// The context as it is, or as it was when it was revoked.
    pub view: ContextView,
    /// It is revoked.
    pub is_revoked: bool,
    /// Times a slice went beyond what its refill had.
    pub overruns: u64,
    /// Who ran on it (session and slot; none for those that were too many to tell apart) and the
    /// lane time that this cost.
    pub executed_by: Vec<(Option<(SessionId, u32)>, Cycles)>,
}

impl World {
    /// What the last operation about time on a lane was refused for, with its numbers; none if the
    /// last one was not refused by the kernel.
    #[must_use]
    pub fn last_refusal(&self, lane: LaneId) -> Option<String> {
        let &(group, place) = self.lane_places.get(usize::from(lane.0))?;
        let refusal = self.groups[group].lanes[place].refusal.as_ref()?;
        Some(refusal.to_string())
    }

    /// The context that a coroutine holds.
    #[must_use]
    pub fn context_of(&self, name: CoroutineName) -> Option<ContextSummary> {
        let (group, lane, kernel) = self.place_of(name)?;
        let context = lane.kernel.context_of(kernel)?;
        Some(self.summarize(group, lane, lane.kernel.context(context).ok()?))
    }

    /// The context that a coroutine has lent along a call.
    #[must_use]
    pub fn context_lent_by(&self, name: CoroutineName) -> Option<ContextSummary> {
        let (group, lane, kernel) = self.place_of(name)?;
        let context = lane.kernel.context_lent_by(kernel)?;
        Some(self.summarize(group, lane, lane.kernel.context(context).ok()?))
    }

    /// The lane of a live coroutine and its reference there.
    fn place_of(&self, name: CoroutineName) -> Option<(&Group, &LaneState, CoroutineRef)> {
        if self.presence(name)? != Presence::Live {
            return None;
        }
        let group = &*self.groups[self.session_places[name.session.0 as usize]];
        let (tasks, slot) = (&self.state_of(name.session).tasks, name.reference.slot);
        let kernel = tasks.live_ref(slot)?.kernel;
        let lane = group.lanes.iter().find(|lane| lane.id == tasks.lane_at(slot))?;
        Some((group, lane, kernel))
    }

    /// The accounts of all contexts that there are or were since [`World::profile`], lane by lane;
    /// and how many were too many to keep.
    #[must_use]
    pub fn context_accounts(&self) -> (Vec<ContextAccount>, u64) {
        let (mut accounts, mut dropped) = (Vec::new(), 0);
        for &(group, place) in self.lane_places.iter() {
            let lane = &self.groups[group].lanes[place];
            let (books, lost) = lane.kernel.context_books();
            dropped += lost;
            accounts.extend(books.into_iter().map(|book| {
                ContextAccount {
                    name: self
                        .manifest_context(LaneId(lane.id), book.view.context)
                        .map(String::from),
                    lane: LaneId(lane.id),
                    owner: SessionId(book.view.parameters.owner),
                    view: book.view,
                    is_revoked: book.is_revoked,
                    overruns: book.overruns,
                    executed_by: book
                        .executed
                        .iter()
                        .map(|row| {
                            (row.by.map(|tag| (SessionId(tag.session()), tag.slot())), row.cycles)
                        })
                        .collect(),
                }
            }));
        }
        (accounts, dropped)
    }

    /// A lane's clock.
    #[must_use]
    pub fn lane_clock(&self, lane: LaneId) -> Option<Cycles> {
        let &(group, place) = self.lane_places.get(usize::from(lane.0))?;
        Some(self.groups[group].lanes[place].kernel.clock())
    }

    /// The manifest's name of a context. Those of the manifest are the first on their lane, in its
    /// order.
    #[must_use]
    pub fn manifest_context(&self, lane: LaneId, context: ContextRef) -> Option<&str> {
        if context.generation != 0 {
            return None;
        }
        let home = |session: SessionId| self.spec().sessions[session.0 as usize].placement.home();
        let mut here =
            self.spec().contexts.iter().filter(|context| home(context.session) == lane.0);
        here.nth(context.slot as usize).map(|context| context.name.as_str())
    }
}
