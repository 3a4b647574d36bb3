//! Certificates: the planner's claim that the groups of a wave share nothing, and the checker that
//! alone can accept it.
//!
//! In reading order:
//! - [`Certificate`]: per group a [`Claim`] with its lanes, its sets of sessions and channels (only
//!   their version if they have not changed since the last certificate), the digest of its ready
//!   set, and the picks if the wave's span is a number of picks;
//! - [`Facts`]: what the machine itself reports about its lanes, groups and sessions;
//! - [`Checker`]: compares both and returns a [`CheckedWave`], or a [`Refusal`] with a code, the
//!   parties and the numbers.
//!
//! This crate depends on `abi` alone and has no planner and no threads; it can be read in ten
//! minutes. Checking is linear in the size of the certificate (logarithmic per channel) and in the
//! number of lanes.
//!
//! Law: only [`Checker::check`] makes a [`CheckedWave`], and nothing runs in parallel without one.
//! An accepted certificate claims groups as the machine has them, whole and with their sessions,
//! and every group with work. On a leased lane it claims the session that has the lane, and no
//! other.
//!
//! ```
//! use wavelock_abi::{LaneId, SessionId};
//! use wavelock_certify::{Certificate, Checker, Claim, Facts, LaneFacts, Sets, Span};
//! let mut checker = Checker::new(2, 2);
//! let claim = |group: u16| Claim {
//!     lanes: vec![LaneId(group)],
//!     set_version: 1,
//!     sets: Some(Sets { sessions: vec![SessionId(u32::from(group))], channels: vec![] }),
//!     ready_digest: 7,
//!     picks: vec![],
//! };
//! let claims = vec![claim(0), claim(1)];
//! let certificate = Certificate { wave: 4, span: Span::Cycles(100_000), claims };
//! let sessions = [LaneId(0), LaneId(1)];
//! let lanes = sessions.map(|group| LaneFacts {
//!     ready_digest: 7,
//!     set_version: 1,
//!     group,
//!     sessions: 1,
//!     has_work: true,
//!     leased: None,
//! });
//! let facts =
//!     Facts { wave: 4, span: Span::Cycles(100_000), lanes: &lanes, sessions: &sessions };
//! assert_eq!(checker.check(&certificate, &facts).unwrap().groups(), 2);
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
mod check;

pub use bytes::DecodeError;
pub use check::{CheckedWave, Checker, Refusal};

use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};

/// Version of the certificate format and of the facts recorded with a certificate. Other versions
/// are refused.
pub const CERTIFICATE_VERSION: u32 = 3;

/// The length of a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Each lane runs until its clock passes this many cycles from the wave's start.
    Cycles(u64),
    /// Each lane runs this many picks, which the certificate lists.
    Picks(u32),
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycles(cycles) => write!(f, "{cycles} cycles"),
            Self::Picks(picks) => write!(f, "{picks} picks"),
        }
    }
}

/// One pick of a lane, for waves of picks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The lane.
    pub lane: LaneId,
    /// The coroutine's session.
    pub session: SessionId,
    /// Its slot and generation in that session.
    pub coroutine: CoroutineRef,
}

/// The sessions and channels that a group may access.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sets {
    /// Its sessions.
    pub sessions: Vec<SessionId>,
    /// The wired channels whose queues it owns. Sends to other groups' channels go through their
    /// inboxes at the wave's end.
    pub channels: Vec<ChannelId>,
}

/// The claim about one group of lanes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its lanes.
    pub lanes: Vec<LaneId>,
    /// The version of the group's sets.
    pub set_version: u64,
    /// The sets, if this version has not been sent before.
    pub sets: Option<Sets>,
    /// The sum of its lanes' ready-set digests.
    pub ready_digest: u64,
    /// The picks, for waves of picks.
    pub picks: Vec<Pick>,
}

/// The planner's claim about one wave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// The wave it was planned for.
    pub wave: u64,
    /// Its span.
    pub span: Span,
    /// The groups that run.
    pub claims: Vec<Claim>,
}

/// The machine's report about a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneFacts {
    /// The lane's ready-set digest.
    pub ready_digest: u64,
    /// The version of its group's sets.
    pub set_version: u64,
    /// Its group, by its first lane.
    pub group: LaneId,
    /// The number of sessions of its group.
    pub sessions: u32,
    /// Whether its group has something to run.
    pub has_work: bool,
    /// The session that has the lane to itself, if it is leased.
    pub leased: Option<SessionId>,
}

/// The machine's report about itself, independent of the planner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The open wave.
    pub wave: u64,
    /// Its span.
    pub span: Span,
    /// By lane.
    pub lanes: &'a [LaneFacts],
    /// By session: its group, by its first lane. Read only for claims that send sets.
    pub sessions: &'a [LaneId],
}

/// The contribution of one queued coroutine to a ready-set digest. An independent implementation of
/// semantics 17.
///
/// With `t` the tag (session in the upper half, session slot in the lower) and `g` the generation
/// of the kernel's reference: `x = t + g * 0x9E3779B97F4A7C15`, then twice `x = (x xor (x >> 32)) *
/// 0xD6E8FEB86659FD93`, then `x xor (x >> 32)`; all modulo 2^64.
#[must_use]
pub fn mix(tag: u64, generation: u32) -> u64 {
    let step = |x: u64| (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = step(step(tag.wrapping_add(u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    x ^ (x >> 32)
}

/// The digest of a set of queued coroutines, in any order.
pub fn ready_digest(members: impl IntoIterator<Item = (u64, u32)>) -> u64 {
    members.into_iter().fold(0, |sum, (tag, generation)| sum.wrapping_add(mix(tag, generation)))
}
