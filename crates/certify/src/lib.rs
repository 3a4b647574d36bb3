//! Certificates: the planner's claim that the groups of a wave share nothing, and the checker that
//! alone can accept it.
//!
//! A [`Certificate`] names, per group, its lanes, its set of sessions and channels (sent when it
//! changed, by version otherwise), the digest of its ready set, and for `wave_picks` the picks.
//! [`Checker::check`] compares that with [`Facts`] that the machine states about itself and gives a
//! [`CheckedWave`], or a [`Refusal`] with a code, the parties and the numbers.
//!
//! This crate knows neither planner nor threads and depends on `abi` alone; it is meant to be read
//! in ten minutes. Checking is linear in the size of the certificate (a logarithm for each
//! channel); nothing is sorted.
//!
//! Law kept here: a [`CheckedWave`] cannot be made any other way, and nothing runs in parallel
//! without one.
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
//! let lane = LaneFacts { ready_digest: 7, set_version: 1 };
//! let facts = Facts { wave: 4, span: Span::Cycles(100_000), lanes: &[lane, lane] };
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

/// Version of the certificate format. Another one is refused by name.
pub const CERTIFICATE_VERSION: u32 = 1;

/// How far the wave goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Each lane runs until its clock passes so many cycles from the wave's start.
    Cycles(u64),
    /// Each lane runs so many picks, which the certificate lists.
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

/// What a group may touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sets {
    /// Its sessions.
    pub sessions: Vec<SessionId>,
    /// The wired channels whose queues it holds. Sends to other groups' channels go through the
    /// inbox and touch nothing.
    pub channels: Vec<ChannelId>,
}

/// The claim about one group of lanes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its lanes.
    pub lanes: Vec<LaneId>,
    /// Which version of the group's sets this is about.
    pub set_version: u64,
    /// The sets, when this version has not been sent before.
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

/// What the machine states about a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneFacts {
    /// The lane's ready-set digest.
    pub ready_digest: u64,
    /// The version of its group's sets.
    pub set_version: u64,
}

/// What the machine states about itself, beside any planner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The wave that is open.
    pub wave: u64,
    /// Its span.
    pub span: Span,
    /// By lane.
    pub lanes: &'a [LaneFacts],
}

/// The contribution of one queued coroutine to a ready-set digest: certify's own copy, from the
/// prose of semantics 17.
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
