//! Asks: calls of guests that wait for a reply of the embedder.

use crate::error::Error;
use crate::host::{Values, mask};
use crate::machine::Session;
use std::fmt;
use std::sync::Arc;
use wavelock_system::{self as system, HostImport, HostImports, HostNumber, Input, OpenAsk, World};

/// The name of an ask: what a reply is sent to. It stays valid over rollbacks, as long as the
/// machine asks the same under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId {
    id: system::AskId,
    /// The types of the reply, four bits each.
    results: u32,
}

impl AskId {
    /// The session that asks.
    #[must_use]
    pub const fn session(self) -> Session {
        Session::new(self.id.session)
    }

    /// How many asks the session made before it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.id.number
    }

    /// The input of a reply with these values.
    pub(crate) fn reply<R: Values>(self, values: R) -> Result<Input, Error> {
        if packed(R::TYPES) != self.results {
            return Err(Error::ReplyTypes {
                session: self.session(),
                number: self.number(),
                found: R::TYPES.into(),
                expected: unpacked(self.results),
            });
        }
        let mut words = vec![0; R::TYPES.len()];
        values.to_words(&mut words);
        Ok(Input::Reply { ask: self.id, results: words.into() })
    }

    /// The same, with the values as words.
    pub(crate) fn reply_words(self, words: &[u64]) -> Input {
        let types = unpacked(self.results);
        let masked = words.iter().zip(0..).map(|(word, at)| {
            let number = types.get(at).copied().unwrap_or(HostNumber::I64);
            word & mask(number)
        });
        Input::Reply { ask: self.id, results: masked.collect() }
    }
}

const TYPES: [HostNumber; 4] = [HostNumber::I32, HostNumber::I64, HostNumber::F32, HostNumber::F64];

/// At most eight types, as one number.
fn packed(types: &[HostNumber]) -> u32 {
    types.iter().fold(0, |sum, number| sum << 4 | (*number as u32 + 1))
}

fn unpacked(types: u32) -> Vec<HostNumber> {
    let digits = (0..8).rev().filter_map(|at| (types >> (4 * at) & 15).checked_sub(1));
    digits.filter_map(|code| TYPES.get(code as usize).copied()).collect()
}

/// A call of a guest that waits for a reply: see [`Host::ask`](crate::Host::ask). Cheap to clone;
/// can be sent to the thread that answers it.
#[derive(Clone)]
pub struct Ask {
    open: OpenAsk,
    imports: Arc<HostImports>,
}

impl Ask {
    /// The open asks of a machine, by session and number.
    pub(crate) fn of<'m>(
        world: &'m World,
        imports: &'m Arc<HostImports>,
    ) -> impl Iterator<Item = Self> + 'm {
        world.asks().map(|open| Self { open, imports: imports.clone() })
    }

    fn import(&self) -> Option<&HostImport> {
        self.imports.functions.get(self.open.function)
    }

    /// Its name, to answer it with [`Machine::answer`](crate::Machine::answer) or
    /// [`Remote::answer`](crate::Remote::answer).
    #[must_use]
    pub fn id(&self) -> AskId {
        let results = self.import().map_or(0, |import| packed(&import.results));
        AskId { id: self.open.id, results }
    }

    /// The session that asks.
    #[must_use]
    pub fn session(&self) -> Session {
        self.id().session()
    }

    /// The import that it calls: module and name.
    #[must_use]
    pub fn function(&self) -> (&str, &str) {
        self.import().map_or(("", ""), |import| (&import.module, &import.name))
    }

    /// Its arguments; `None` if the function has other types.
    #[must_use]
    pub fn arguments<A: Values>(&self) -> Option<A> {
        let import = self.import().filter(|import| import.params == A::TYPES)?;
        Some(A::from_words(&self.open.arguments[..import.params.len()]))
    }

    /// Its arguments as words, for a program that learns the types at run time: a number of 32 bits
    /// is the low half of its word.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        let count = self.import().map_or(0, |import| import.params.len());
        self.open.arguments.get(..count).unwrap_or_default()
    }

    /// Whether a reply was given and waits for its frame.
    #[must_use]
    pub const fn has_reply(&self) -> bool {
        self.open.has_reply
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, name) = self.function();
        f.debug_struct("Ask")
            .field("session", &self.session().number())
            .field("number", &self.open.id.number)
            .field("function", &format_args!("{module} {name}"))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_round_trip() {
        for types in [&[][..], &TYPES, &[HostNumber::F64; 8]] {
            assert_eq!(unpacked(packed(types)), types);
        }
    }
}
