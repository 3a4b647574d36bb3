//! Typed positions inside a group.
//!
//! A lane and a session have a number in the machine (`LaneId`, [`SessionId`]), which never
//! changes, and a position in the lists of the group that holds them, which changes when a session
//! moves. The types here are the positions: none can be mistaken for a number, or for a position in
//! another list.

use crate::channel::Channel;
use crate::group::{Group, LaneState};
use crate::session::SessionState;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use wavelock_abi::{ChannelId, SessionId};

/// The position of a group in [`World::groups`](crate::world::World).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupIndex(u32);

/// The position of a lane in [`Group::lanes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LaneIndex(u32);

/// The position of a session in [`Group::sessions`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionIndex(u32);

/// A coroutine of a group: its session, and its slot in that session's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskIndex {
    pub(crate) session: SessionIndex,
    pub(crate) slot: u32,
}

/// A channel of a group: its owner, and its number among the owner's channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelIndex {
    pub(crate) owner: SessionIndex,
    pub(crate) index: u32,
}

macro_rules! position {
    ($($index:ident in $list:ty;)*) => {$(
        impl $index {
            pub(crate) const fn new(at: usize) -> Self {
                Self(at as u32)
            }

            #[allow(dead_code, reason = "not every list is indexed by number somewhere")]
            pub(crate) const fn get(self) -> usize {
                self.0 as usize
            }
        }

        impl Index<$index> for Vec<$list> {
            type Output = $list;

            #[inline(always)]
            fn index(&self, $index(at): $index) -> &$list {
                &self[at as usize]
            }
        }

        impl IndexMut<$index> for Vec<$list> {
            #[inline(always)]
            fn index_mut(&mut self, $index(at): $index) -> &mut $list {
                &mut self[at as usize]
            }
        }
    )*};
}

position! {
    GroupIndex in Box<Group>;
    LaneIndex in LaneState;
    SessionIndex in SessionState;
}

/// A channel of the sessions of a group.
impl Index<ChannelIndex> for Vec<SessionState> {
    type Output = Channel;

    fn index(&self, at: ChannelIndex) -> &Channel {
        &self[at.owner].channels[at.index as usize]
    }
}

impl IndexMut<ChannelIndex> for Vec<SessionState> {
    fn index_mut(&mut self, at: ChannelIndex) -> &mut Channel {
        &mut self[at.owner].channels[at.index as usize]
    }
}

impl LaneIndex {
    /// The positions of a list of lanes, ascending.
    pub(crate) fn all(lanes: &[LaneState]) -> impl Iterator<Item = Self> + use<> {
        (0..lanes.len()).map(Self::new)
    }
}

/// The sessions of a group by their numbers in the machine.
#[derive(Clone, Debug)]
pub(crate) struct LocalSessions(Vec<Option<SessionIndex>>);

impl LocalSessions {
    /// For a machine with this many sessions, none of them here.
    pub(crate) fn new(sessions: usize) -> Self {
        Self(alloc::vec![None; sessions])
    }

    /// One more session in the machine, not here.
    pub(crate) fn add(&mut self) {
        self.0.push(None);
    }

    /// The session's position, if it is in this group.
    pub(crate) fn get(&self, session: SessionId) -> Option<SessionIndex> {
        self.0.get(session.0 as usize).copied().flatten()
    }

    /// The position of a channel whose owner is in this group.
    pub(crate) fn channel(&self, id: ChannelId) -> ChannelIndex {
        ChannelIndex { owner: self[id.owner], index: id.index }
    }

    pub(crate) fn insert(&mut self, session: SessionId, at: SessionIndex) {
        self.0[session.0 as usize] = Some(at);
    }

    pub(crate) fn remove(&mut self, session: SessionId) -> Option<SessionIndex> {
        self.0[session.0 as usize].take()
    }
}

/// The position of a session that is known to be in this group.
impl Index<SessionId> for LocalSessions {
    type Output = SessionIndex;

    #[inline]
    fn index(&self, session: SessionId) -> &SessionIndex {
        self.0[session.0 as usize].as_ref().expect("the session is in this group")
    }
}
