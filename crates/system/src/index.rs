//! Typed positions inside a group.
//!
//! A lane and a session have a number in the machine (`LaneId`, [`SessionId`]), which never
//! changes, and a position in the lists of the group that holds them, which changes when a session
//! moves. The types here are the positions, so that one cannot be taken for the other, or for that
//! of another list.

use crate::group::LaneState;
use crate::session::SessionState;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use wavelock_abi::SessionId;

/// The position of a lane in [`Group::lanes`](crate::group::Group).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LaneIndex(u32);

/// The position of a session in [`Group::sessions`](crate::group::Group).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionIndex(u32);

macro_rules! position {
    ($index:ident in $list:ty) => {
        impl $index {
            pub(crate) const fn new(at: usize) -> Self {
                Self(at as u32)
            }

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
    };
}

position!(LaneIndex in LaneState);
position!(SessionIndex in SessionState);

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

    /// The session's position, if it is in this group.
    pub(crate) fn get(&self, session: SessionId) -> Option<SessionIndex> {
        self.0.get(session.0 as usize).copied().flatten()
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
