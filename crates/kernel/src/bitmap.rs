//! A bitmap of 256 bits with the two searches the scheduler needs. Used by the ready classes and by
//! each level of the sleepers' wheel.

/// A set of numbers below 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bitmap256([u64; 4]);

impl Bitmap256 {
    #[inline]
    pub(crate) fn set(&mut self, index: u8) {
        self.0[usize::from(index >> 6)] |= 1 << (index & 63);
    }

    #[inline]
    pub(crate) fn clear(&mut self, index: u8) {
        self.0[usize::from(index >> 6)] &= !(1 << (index & 63));
    }

    #[inline]
    pub(crate) fn contains(&self, index: u8) -> bool {
        self.0[usize::from(index >> 6)] & (1 << (index & 63)) != 0
    }

    /// The largest member.
    #[inline]
    pub(crate) fn highest(&self) -> Option<u8> {
        for word in (0..4u8).rev() {
            let bits = self.0[usize::from(word)];
            if bits != 0 {
                return Some(word * 64 + (63 - bits.leading_zeros() as u8));
            }
        }
        None
    }

    /// The smallest member at or above `from`.
    #[inline]
    pub(crate) fn at_or_above(&self, from: u8) -> Option<u8> {
        let first = from >> 6;
        let mut bits = self.0[usize::from(first)] & (u64::MAX << (from & 63));
        let mut word = first;
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as u8);
            }
            if word == 3 {
                return None;
            }
            word += 1;
            bits = self.0[usize::from(word)];
        }
    }

    /// The members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        let mut from = Some(0u8);
        core::iter::from_fn(move || {
            let found = self.at_or_above(from?)?;
            from = found.checked_add(1);
            Some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap256;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn searches_agree_with_a_scan() {
        let mut map = Bitmap256::default();
        assert_eq!((map.highest(), map.at_or_above(0)), (None, None));
        for index in [0u8, 1, 63, 64, 130, 191, 192, 255] {
            map.set(index);
        }
        assert_eq!(map.iter().collect::<Vec<_>>(), [0, 1, 63, 64, 130, 191, 192, 255]);
        assert_eq!(map.at_or_above(131), Some(191));
        assert_eq!(map.highest(), Some(255));
        map.clear(255);
        assert_eq!(map.highest(), Some(192));
        assert_eq!(map.at_or_above(193), None);
        assert!(map.contains(64) && !map.contains(65));
    }
}
