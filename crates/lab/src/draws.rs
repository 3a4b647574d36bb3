//! Random numbers from a seed: splitmix64, the same on every host.

/// A stream of random numbers.
pub(crate) struct Draws(u64);

impl Draws {
    /// The stream for a seed and a stream number.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut draws = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        draws.next();
        draws
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A random number below a limit of at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
