//! Session observables: what a session sent, what it output and how it ended, hashed without times
//! (semantics 31).
//!
//! Only what leaves the session counts: messages to channels of other sessions, and output.
//! Messages between its own coroutines do not.

use alloc::string::String;
use alloc::vec::Vec;
use wavelock_trace::Digest;

use crate::channel::Message;

/// A running hash of a byte sequence: a chain over blocks, so that its state is small plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    pub(crate) state: [u8; 32],
    pub(crate) pending: Vec<u8>,
}

impl Chain {
    /// Bytes hashed at once.
    pub(crate) const BLOCK: usize = 1024;

    pub(crate) const fn new() -> Self {
        Self { state: [0; 32], pending: Vec::new() }
    }

    /// Adds bytes. The blocks do not depend on how the bytes are divided among calls.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(Self::BLOCK - self.pending.len());
            self.pending.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.pending.len() == Self::BLOCK {
                self.state = self.value();
                self.pending.clear();
            }
        }
    }

    /// Adds one message: its kind, its length, its bytes.
    pub(crate) fn add_message(&mut self, message: &Message) {
        match message {
            Message::Number(number) => self.add_word(0, *number as u64),
            Message::Bytes(bytes) => {
                self.add_word(1, bytes.len() as u64);
                self.add(bytes);
            }
            Message::Call(call) => self.add_call(call.number),
        }
    }

    /// Adds a number that was sent with a call, or as the answer to one.
    pub(crate) fn add_call(&mut self, number: i64) {
        self.add_word(2, number as u64);
    }

    fn add_word(&mut self, kind: u8, word: u64) {
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&word.to_le_bytes());
        self.add(&bytes);
    }

    fn is_empty(&self) -> bool {
        self.state == [0; 32] && self.pending.is_empty()
    }

    pub(crate) fn value(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.state);
        hasher.update(&self.pending);
        *hasher.finalize().as_bytes()
    }
}

/// The session digest: per channel (in name order) what was sent, then the output, then what it
/// answered if it did, then the end.
pub(crate) fn session_digest(
    sent: &mut [(&String, &Chain)],
    output: &Chain,
    answered: Option<&Chain>,
    end: &[u8],
) -> Digest {
    sent.sort_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, chain) in sent.iter() {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&chain.value());
    }
    hasher.update(&output.value());
    if let Some(answered) = answered.filter(|answered| !answered.is_empty()) {
        hasher.update(&answered.value());
    }
    hasher.update(end);
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_into_calls_does_not_matter() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        let mut whole = Chain::new();
        whole.add(&bytes);
        for cut in [1, 3, 1023, 1024, 1025] {
            let mut parts = Chain::new();
            bytes.chunks(cut).for_each(|part| parts.add(part));
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn kinds_and_borders_of_messages_matter() {
        let hash = |messages: &[Message]| {
            let mut chain = Chain::new();
            messages.iter().for_each(|message| chain.add_message(message));
            chain.value()
        };
        let bytes = |bytes: &[u8]| Message::Bytes(bytes.into());
        assert_ne!(hash(&[Message::Number(1)]), hash(&[bytes(&1u64.to_le_bytes())]));
        assert_ne!(hash(&[bytes(b"ab"), bytes(b"c")]), hash(&[bytes(b"a"), bytes(b"bc")]));
    }

    #[test]
    fn channels_are_combined_in_name_order() {
        let (a, b) = (String::from("a"), String::from("b"));
        let (mut x, mut y) = (Chain::new(), Chain::new());
        x.add(b"1");
        y.add(b"2");
        let one = session_digest(&mut [(&a, &x), (&b, &y)], &Chain::new(), None, b"");
        assert_eq!(one, session_digest(&mut [(&b, &y), (&a, &x)], &Chain::new(), None, b""));
        assert_ne!(one, session_digest(&mut [(&a, &y), (&b, &x)], &Chain::new(), None, b""));
    }
}
