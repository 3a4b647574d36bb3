//! The ready-set digest (semantics 17): an order-independent sum over the runnable coroutines of a
//! lane (queued or current), kept up whenever one becomes runnable or ceases to be.
//!
//! `certify` has its own copy of this function, written from this prose. Let `t` be the 64-bit tag,
//! `g` the 32-bit generation of the kernel reference widened to 64 bits. All arithmetic wraps at 64
//! bits.
//!
//! 1. `x = t + g * 0x9E3779B97F4A7C15`
//! 2. `x = x XOR (x >> 32)`, then `x = x * 0xD6E8FEB86659FD93`
//! 3. `x = x XOR (x >> 32)`, then `x = x * 0xD6E8FEB86659FD93`
//! 4. `x = x XOR (x >> 32)`
//!
//! The digest of a set is the wrapping sum of `x` over its members; of the empty set, 0. The
//! current coroutine belongs to it: a wave may run it, and so a pick and a requeue leave the sum as
//! it is.

use crate::types::Tag;

/// The contribution of one runnable coroutine.
#[inline]
pub(crate) const fn mix(tag: Tag, generation: u32) -> u64 {
    const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;
    let mut x = tag.0.wrapping_add((generation as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 32)).wrapping_mul(MULTIPLIER);
    x = (x ^ (x >> 32)).wrapping_mul(MULTIPLIER);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::{Tag, mix};

    /// Values computed by another program from the prose, so that both copies can be compared with
    /// a third.
    #[test]
    fn known_values() {
        assert_eq!(mix(Tag(0), 0), 0);
        assert_eq!(mix(Tag(1), 0), 0x4179_b061_e0c0_e0d0);
        assert_eq!(mix(Tag(0), 1), 0x4e17_cf67_001b_3979);
        assert_eq!(mix(Tag::new(7, 5), 3), 0x6a82_815c_b1a0_870e);
    }
}
