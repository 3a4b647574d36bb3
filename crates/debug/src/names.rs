//! Names of coroutines (`session/slot.generation`) and functions, parsed and printed.

use crate::symbols::demangled;
use std::fmt;
use wavelock_abi::{CoroutineName, CoroutineRef, SessionId};
use wavelock_module::{ExportKind, Module};
use wavelock_system::{MachineSpec, World};

/// Maximum number of sessions listed in an error.
const LISTED: usize = 12;

/// Why a string does not name a coroutine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameError {
    /// No session has this name or number.
    Session {
        /// The name as typed.
        found: String,
        /// The first few sessions of the machine.
        known: Vec<String>,
        /// The number of further sessions.
        more: usize,
    },
    /// The part after the session is not `slot` or `slot.generation`.
    Slot {
        /// The name as typed.
        found: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { found, known, more } => {
                write!(f, "there is no session `{found}`; sessions: {}", known.join(", "))?;
                if *more > 0 {
                    write!(
                        f,
                        " and {more} more; the numbers 0 to {} are accepted too",
                        known.len() + more - 1
                    )
                } else {
                    Ok(())
                }
            }
            Self::Slot { found } => {
                write!(
                    f,
                    "`{found}` is not a coroutine: write session/slot or session/slot.generation, as in `main/0`"
                )
            }
        }
    }
}

impl std::error::Error for NameError {}

/// A session by its name, or by its number in the manifest.
///
/// # Errors
/// [`NameError::Session`].
pub fn parse_session(text: &str, spec: &MachineSpec) -> Result<SessionId, NameError> {
    let by_name = spec.sessions.iter().position(|session| session.name == text);
    let by_number = || text.parse::<usize>().ok().filter(|&number| number < spec.sessions.len());
    by_name.or_else(by_number).map(|number| SessionId(number as u32)).ok_or_else(|| {
        NameError::Session {
            found: text.into(),
            known: spec.sessions.iter().take(LISTED).map(|session| session.name.clone()).collect(),
            more: spec.sessions.len().saturating_sub(LISTED),
        }
    })
}

/// Parses a coroutine: `session` alone means its first one; without a generation it is the current
/// one of the slot.
///
/// # Errors
/// See [`NameError`].
pub fn parse_coroutine(text: &str, world: &World) -> Result<CoroutineName, NameError> {
    let (session, rest) = match text.rsplit_once('/') {
        Some((session, rest)) => (parse_session(session, world.spec())?, rest),
        None => (parse_session(text, world.spec())?, "0"),
    };
    let bad = || NameError::Slot { found: text.into() };
    let (slot, generation) = match rest.split_once('.') {
        Some((slot, generation)) => (slot, Some(generation.parse().map_err(|_| bad())?)),
        None => (rest, None),
    };
    let slot: u32 = slot.parse().map_err(|_| bad())?;
    let generation = generation.or_else(|| world.generation(session, slot)).unwrap_or(0);
    if slot == u32::MAX || generation > CoroutineRef::LAST_GENERATION {
        return Err(bad());
    }
    Ok(CoroutineName { session, reference: CoroutineRef::new(slot, generation) })
}

/// A coroutine as it is printed.
#[must_use]
pub fn show(name: CoroutineName, spec: &MachineSpec) -> String {
    let session =
        spec.sessions.get(name.session.0 as usize).map_or("?", |session| session.name.as_str());
    format!("{session}/{}.{}", name.reference.slot, name.reference.generation)
}

/// A function's name: from the name section, else from an export, else its number.
#[must_use]
pub fn function_name(module: &Module, index: u32) -> String {
    if let Some(name) = module.function_name(index) {
        return demangled(name);
    }
    let exported =
        module.exports().iter().find(|export| export.kind == ExportKind::Function(index));
    exported.map_or_else(|| format!("func[{index}]"), |export| demangled(&export.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_session_is_refused_with_the_known_ones() {
        let mut spec = MachineSpec::new();
        let bytes = b"\0asm\x01\0\0\0";
        let module =
            Module::new(bytes, &wavelock_module::Limits::default()).expect("an empty module");
        let module = spec.add_module(std::sync::Arc::new(module), bytes);
        spec.add_session("one", module);
        spec.add_session("two", module);
        let said = |spec: &MachineSpec| {
            parse_session("tow", spec).expect_err("no such session").to_string()
        };
        assert_eq!(said(&spec), "there is no session `tow`; sessions: one, two");
        for number in 2..15 {
            spec.add_session(&number.to_string(), module);
        }
        assert_eq!(
            said(&spec),
            "there is no session `tow`; sessions: one, two, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more; the numbers 0 to 14 are accepted too"
        );
    }
}
