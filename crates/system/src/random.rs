//! Random numbers that depend only on the machine's seed and a coroutine's position in the spawn
//! tree (semantics 12).

/// The key of a coroutine: the seed of its stream, and the origin of its children's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// The key of a session's first coroutine: H(seed, session name).
    pub(crate) fn root(seed: u64, session: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"wavelock random root");
        hasher.update(&seed.to_le_bytes());
        hasher.update(session.as_bytes());
        let word = hasher.finalize().as_bytes().first_chunk().copied();
        Self(u64::from_le_bytes(word.expect("a hash has 32 bytes")))
    }

    /// The origin of its children's keys.
    #[inline]
    pub(crate) fn children(self) -> Children {
        Children(mix(self.0 ^ 0x5741_5645_4c4f_434b))
    }
}

/// The part of a child's key that is the same for all children of one coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Children(u64);

impl Children {
    /// The key of the `ordinal`-th coroutine that this one spawned: H(parent key, ordinal).
    #[inline]
    pub(crate) fn child(self, ordinal: u32) -> Key {
        Key(mix(self.0 ^ u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// The finaliser of splitmix64: a bijection of 64 bits in which every input bit reaches every
/// output bit.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// xoshiro256**, seeded from a key by splitmix64 as its authors advise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) state: [u64; 4],
}

impl Stream {
    pub(crate) fn new(key: Key) -> Self {
        let mut seed = key.0;
        let state = core::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(seed)
        });
        Self { state }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Fills `out` with words of the stream, little-endian; a last partial word is cut.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_its_published_values() {
        // The reference implementation's first outputs from the state {1, 2, 3, 4}.
        let mut stream = Stream { state: [1, 2, 3, 4] };
        let expected =
            [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360];
        assert_eq!(expected.map(|_| stream.next()), expected);
    }

    #[test]
    fn keys_follow_the_spawn_tree() {
        let root = Key::root(42, "worker.0");
        assert_ne!(root, Key::root(43, "worker.0"));
        assert_ne!(root, Key::root(42, "worker.1"));
        assert_ne!(root.children().child(0), root.children().child(1));
        assert_ne!(
            root.children().child(0).children().child(1),
            root.children().child(1).children().child(0)
        );
        assert_eq!(root.children().child(7), Key::root(42, "worker.0").children().child(7));
    }

    #[test]
    fn filling_takes_little_endian_words() {
        let (mut a, mut b) = (Stream::new(Key(9)), Stream::new(Key(9)));
        let mut bytes = [0; 11];
        a.fill(&mut bytes);
        assert_eq!(bytes[..8], b.next().to_le_bytes());
        assert_eq!(bytes[8..], b.next().to_le_bytes()[..3]);
    }
}
