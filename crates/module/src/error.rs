//! Why a module was refused at load: invalid, unsupported, or beyond a limit.

use alloc::string::String;
use core::fmt;

/// Why a module was refused at load, with the byte offset and what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The bytes are not a valid WebAssembly module under any proposal.
    Invalid {
        /// What is wrong, in the validator's words.
        message: String,
        /// Byte offset in the module.
        offset: usize,
    },
    /// The bytes are valid WebAssembly, but use a proposal that is not supported.
    Unsupported {
        /// What was used, in the validator's words.
        feature: String,
        /// Byte offset in the module.
        offset: usize,
    },
    /// The module is larger than a limit allows.
    Limit {
        /// The field of [`crate::Limits`].
        limit: &'static str,
        /// What the module has, or where counting stopped.
        found: u64,
        /// What is allowed.
        allowed: u64,
        /// Byte offset in the module.
        offset: usize,
    },
    /// A bug in Wavelock: the verifier refused lowered code. It is never run.
    Internal {
        /// The verifier's rule, by number.
        rule: &'static str,
        /// Byte offset in the module of the instruction, or of its function.
        offset: usize,
    },
    /// The text could not be turned into a module.
    Text {
        /// The parser's message, with line and column.
        message: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { message, offset } => {
                write!(out, "invalid module at byte {offset:#x}: {message}")
            }
            Self::Unsupported { feature, offset } => {
                write!(out, "it uses {feature}, at byte {offset:#x}")
            }
            Self::Limit { limit, found, allowed, offset } => {
                write!(
                    out,
                    "module limit `{limit}` exceeded at byte {offset:#x}: found {found}, allowed {allowed}"
                )
            }
            Self::Internal { rule, offset } => {
                write!(
                    out,
                    "internal: lowering produced invalid code at byte {offset:#x} ({rule}); please report this module"
                )
            }
            Self::Text { message } => write!(out, "invalid text format: {message}"),
        }
    }
}

impl core::error::Error for LoadError {}
