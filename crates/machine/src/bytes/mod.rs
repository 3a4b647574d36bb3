//! Canonical bytes: the whole state of a session and its coroutines, written, read back and hashed.
//!
//! Contract. Equal states have equal bytes, whatever slices led to them; `encode(decode(bytes)) ==
//! bytes` for every input that decodes. Bytes are untrusted: each index, count and position is
//! checked against the modules before it is used, allocations are bounded by the input and the
//! limits, and no input panics. Values that the code may never read again (dead registers, unused
//! stack slots) are not written, so they cannot make two equal states differ.
//!
//! A snapshot refers to its modules by digest and does not contain them. Elsewhere: the host's
//! state of a session (channels, timers, what coroutines wait for), which `system` writes.
//!
//! ```
//! use std::sync::Arc;
//! use wavelock_abi::Cycles;
//! use wavelock_machine::{
//!     Coroutine, DecodeError, Extern, Session, SessionLimits, Stop, coroutine_digest, decode,
//!     encode, run,
//! };
//! use wavelock_module::{Limits, Module};
//!
//! let text = r#"(module (func (export "main") (param i32) (result i32)
//!     (loop (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (i32.const 7)))"#;
//! let bytes = wat::parse_str(text).unwrap();
//! let module = Arc::new(Module::new(&bytes, &Limits::default()).unwrap());
//! let mut session = Session::new(SessionLimits::default());
//! let instance = session.instantiate(module.clone(), &[]).unwrap();
//! let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!() };
//! let mut coroutine = Coroutine::start(&session, main, &[1000]).unwrap();
//! assert!(matches!(run(&mut session, &mut coroutine, Cycles(100)), Stop::OutOfCycles { .. }));
//!
//! let snapshot = encode(&session, &[&coroutine]);
//! let (modules, limits) = ([module], SessionLimits::default());
//! let (mut session, mut coroutines) = decode(&snapshot, &modules, &limits).unwrap();
//! assert_eq!(coroutine_digest(&session, &coroutines[0]), coroutine_digest(&session, &coroutine));
//! assert_eq!(run(&mut session, &mut coroutines[0], Cycles(1_000_000)), Stop::Finished);
//! assert_eq!(coroutines[0].results(), &[7]);
//! let cut_off = decode(&snapshot[..9], &modules, &limits);
//! assert!(matches!(cut_off, Err(DecodeError::Truncated { .. })));
//! ```

mod chunks;
mod coroutine;
mod session;
mod wire;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use wavelock_abi::COST_TABLE_VERSION;
use wavelock_module::Module;

use crate::coroutine::Coroutine;
use crate::session::{Session, SessionLimits};
use wire::{Reader, Writer};

pub(crate) use chunks::ChunkHashes;

/// Version of the canonical bytes. Bytes of another version are refused by its number.
pub const SNAPSHOT_VERSION: u32 = 2;

/// The first bytes of every snapshot.
const MAGIC: [u8; 8] = *b"wavelock";

/// The hash of a state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Why bytes are not a state. Each names the byte where it was noticed, what was found and what was
/// allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// They do not start with the magic bytes.
    NotASnapshot,
    /// They are of another version.
    Version {
        /// Which version: of the bytes or of the cost table.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The supported version.
        known: u32,
    },
    /// They end too early.
    Truncated {
        /// Where more was needed.
        at: usize,
        /// Bytes needed there.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// Something follows the state.
    Trailing {
        /// Where the state ended.
        at: usize,
        /// Bytes left.
        left: u64,
    },
    /// A number is larger than allowed there.
    Exceeds {
        /// Where.
        at: usize,
        /// What it counts or names.
        what: &'static str,
        /// The number.
        found: u64,
        /// The most allowed.
        allowed: u64,
    },
    /// A number is not the one that the rest determines.
    Differs {
        /// Where.
        at: usize,
        /// What it counts or names.
        what: &'static str,
        /// The number.
        found: u64,
        /// The only one possible.
        expected: u64,
    },
    /// What is described cannot exist with these modules.
    Inconsistent {
        /// Where.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A module that was not passed to [`decode`].
    UnknownModule {
        /// Where.
        at: usize,
        /// Its digest.
        digest: Digest,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASnapshot => {
                write!(out, "not a snapshot: it does not start with \"wavelock\"")
            }
            Self::Version { what, found, known } => {
                write!(out, "{what} version {found} is not supported, only {known} is")
            }
            Self::Truncated { at, needed, left } => {
                write!(out, "the snapshot ends at byte {at}: {needed} bytes needed, {left} left")
            }
            Self::Trailing { at, left } => {
                write!(out, "{left} bytes follow the snapshot's end at byte {at}")
            }
            Self::Exceeds { at, what, found, allowed } => {
                write!(out, "byte {at}: {what} is {found}, at most {allowed} is allowed")
            }
            Self::Differs { at, what, found, expected } => {
                write!(out, "byte {at}: {what} is {found}, it can only be {expected}")
            }
            Self::Inconsistent { at, what } => {
                write!(out, "byte {at}: impossible with these modules: {what}")
            }
            Self::UnknownModule { at, digest } => {
                write!(
                    out,
                    "byte {at}: needs a module with digest {digest}, which was not provided"
                )
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// The canonical bytes of a session and some of its coroutines, in this order.
#[must_use]
pub fn encode(session: &Session, coroutines: &[&Coroutine]) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(&MAGIC);
    out.u32(SNAPSHOT_VERSION);
    out.u32(COST_TABLE_VERSION);
    session::write(session, &mut out);
    out.count(coroutines.len());
    for coroutine in coroutines {
        coroutine::write(session, coroutine, &mut out);
    }
    out.out
}

/// Reads what [`encode`] wrote. `modules` are found by digest; the session's own limits must be
/// within `allowed`.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(
    bytes: &[u8],
    modules: &[Arc<Module>],
    allowed: &SessionLimits,
) -> Result<(Session, Vec<Coroutine>), DecodeError> {
    let mut input = Reader::new(bytes);
    if bytes.len() >= MAGIC.len() && bytes[..MAGIC.len()] != MAGIC {
        return Err(DecodeError::NotASnapshot);
    }
    input.bytes(MAGIC.len())?;
    for (what, known) in [("snapshot", SNAPSHOT_VERSION), ("cost table", COST_TABLE_VERSION)] {
        let found = input.u32()?;
        if found != known {
            return Err(DecodeError::Version { what, found, known });
        }
    }
    let session = session::read(&mut input, modules, allowed)?;
    let count = input.count("coroutines", coroutine::LEAST_BYTES)?;
    let mut coroutines = Vec::new();
    for _ in 0..count {
        coroutines.push(coroutine::read(&mut input, &session)?);
    }
    input.finish()?;
    Ok((session, coroutines))
}

/// What running has changed since linking, without the bytes of memories: canonical bytes for
/// [`decode_changes`]. The bytes of a memory are read with [`Memory::bytes`](crate::Memory::bytes)
/// and put back with [`Memory::write`](crate::Memory::write), page by page.
#[must_use]
pub fn encode_changes(session: &Session, coroutines: &[&Coroutine]) -> Vec<u8> {
    let mut out = Writer::default();
    session::write_changes(session, &mut out);
    out.count(coroutines.len());
    coroutines.iter().for_each(|coroutine| coroutine::write(session, coroutine, &mut out));
    out.out
}

/// Reads what [`encode_changes`] wrote into a session linked in the same way; memories have their
/// size and are zero.
///
/// # Errors
/// See [`DecodeError`]. The session is left half decoded: drop it.
pub fn decode_changes(session: &mut Session, bytes: &[u8]) -> Result<Vec<Coroutine>, DecodeError> {
    let mut input = Reader::new(bytes);
    session.retire_all();
    session::read_changes(&mut input, session)?;
    let count = input.count("coroutines", coroutine::LEAST_BYTES)?;
    let mut coroutines = Vec::new();
    for _ in 0..count {
        coroutines.push(coroutine::read(&mut input, session)?);
    }
    input.finish()?;
    Ok(coroutines)
}

/// The digest of a session without its coroutines. Reads only memory that was written since the
/// last call.
///
/// It is a function of the state alone: a session that was decoded has the digest of the one that
/// was encoded.
#[must_use]
pub fn session_digest(session: &mut Session) -> Digest {
    session::digest(session)
}

/// The digest of one coroutine: of its canonical bytes.
#[must_use]
pub fn coroutine_digest(session: &Session, coroutine: &Coroutine) -> Digest {
    let mut out = Writer::default();
    coroutine::write(session, coroutine, &mut out);
    Digest(*blake3::hash(&out.out).as_bytes())
}
