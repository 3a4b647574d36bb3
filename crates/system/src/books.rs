//! Accounts of contexts: the cycles charged to each, and the coroutines that spent them. Kept after
//! [`World::profile`].
//!
//! Contract: a function of the model, like every report; the account of a context outlives its
//! revocation. Elsewhere: the current contexts ([`World::contexts`]), the accounting (`kernel`).

use crate::context::ContextSummary;
use crate::look::Presence;
use crate::world::World;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineName, CoroutineRef, Cycles, LaneId, SessionId};
use wavelock_kernel::{ContextView, Lane, Tag};

/// What was charged to one context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextAccount {
    /// Its name in the manifest, if it is from there.
    pub name: Option<String>,
    /// Its lane.
    pub lane: LaneId,
    /// The session that owns it.
    pub owner: SessionId,
    /// The context now, or when it was revoked.
    pub view: ContextView,
    /// It is revoked.
    pub is_revoked: bool,
    /// Slices that used more than the refill had.
    pub overruns: u64,
    /// The coroutines that ran on it (session and slot; `None` sums up those beyond the limit) and
    /// the lane time that they cost.
    pub executed_by: Vec<(Option<(SessionId, u32)>, Cycles)>,
}

impl World {
    /// Why the kernel refused the last context operation on a lane; `None` if it did not.
    #[must_use]
    pub fn last_refusal(&self, lane: LaneId) -> Option<String> {
        self.lane_positions.get(usize::from(lane.0))?;
        Some(self.lane_ref(lane.0).refusal.as_ref()?.to_string())
    }

    /// The context that a coroutine holds.
    #[must_use]
    pub fn context_of(&self, name: CoroutineName) -> Option<ContextSummary> {
        self.context_by(name, Lane::context_of)
    }

    /// The context that a coroutine has lent along a call.
    #[must_use]
    pub fn context_lent_by(&self, name: CoroutineName) -> Option<ContextSummary> {
        self.context_by(name, Lane::context_lent_by)
    }

    /// The context that `find` returns for a live coroutine.
    fn context_by(
        &self,
        name: CoroutineName,
        find: fn(&Lane, CoroutineRef) -> Option<ContextRef>,
    ) -> Option<ContextSummary> {
        if self.presence(name)? != Presence::Live {
            return None;
        }
        let group = &*self.groups[self.session_groups[name.session.0 as usize]];
        let (tasks, slot) = (&self.session_ref(name.session).tasks, name.reference.slot);
        let lane = self.lane_ref(tasks.lane_at(slot));
        let context = find(&lane.kernel, tasks.live_ref(slot)?.kernel)?;
        Some(self.summarize(group, lane, lane.kernel.context(context).ok()?))
    }

    /// The accounts of all contexts since [`World::profile`], lane by lane; and the number of those
    /// that exceeded the limit and were not kept.
    #[must_use]
    pub fn context_accounts(&self) -> (Vec<ContextAccount>, u64) {
        let (mut accounts, mut dropped) = (Vec::new(), 0);
        for lane in 0..self.spec.lanes {
            let (books, lost) = self.lane_ref(lane).kernel.context_books();
            dropped += lost;
            accounts.extend(books.into_iter().map(|book| {
                let by = |tag: Tag| (SessionId(tag.session()), tag.slot());
                ContextAccount {
                    name: self.manifest_context(LaneId(lane), book.view.context).map(String::from),
                    lane: LaneId(lane),
                    owner: SessionId(book.view.parameters.owner),
                    view: book.view,
                    is_revoked: book.is_revoked,
                    overruns: book.overruns,
                    executed_by: book
                        .executed
                        .iter()
                        .map(|row| (row.by.map(by), row.cycles))
                        .collect(),
                }
            }));
        }
        (accounts, dropped)
    }

    /// A lane's clock.
    #[must_use]
    pub fn lane_clock(&self, lane: LaneId) -> Option<Cycles> {
        self.lane_positions.get(usize::from(lane.0))?;
        Some(self.lane_ref(lane.0).kernel.clock())
    }

    /// The manifest's name of a context. Those of the manifest are the first on their lane, in its
    /// order.
    #[must_use]
    pub fn manifest_context(&self, lane: LaneId, context: ContextRef) -> Option<&str> {
        if context.generation != 0 {
            return None;
        }
        let home = |session: SessionId| self.session_ref(session).home();
        let mut here =
            self.spec().contexts.iter().filter(|context| home(context.session) == lane.0);
        here.nth(context.slot as usize).map(|context| context.name.as_str())
    }
}
