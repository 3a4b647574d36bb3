//! Primitives of canonical bytes: little-endian numbers of fixed width, and counts that are checked
//! against the remaining input.
//!
//! A value has one encoding, so equal states have equal bytes. The reader never allocates and never
//! reads past its input; a count is accepted only if that many items can still follow, so what a
//! decoder allocates is bounded by its input.

use super::DecodeError;
use alloc::vec::Vec;

/// Appends canonical bytes.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) out: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A count that [`Reader::count`] reads. Nothing that is counted here reaches 2^32.
    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("limits keep every count below 2^32"));
    }
}

/// Reads canonical bytes that may be hostile.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// Where the next byte is.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let left = self.input.len() - self.at;
        if count > left {
            return Err(DecodeError::Truncated {
                at: self.at,
                needed: count as u64,
                left: left as u64,
            });
        }
        let bytes = &self.input[self.at..self.at + count];
        self.at += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number that must not exceed `allowed`.
    pub(crate) fn u32_at_most(
        &mut self,
        what: &'static str,
        allowed: u64,
    ) -> Result<u32, DecodeError> {
        let at = self.at;
        let found = self.u32()?;
        self.check(at, what, u64::from(found), allowed)?;
        Ok(found)
    }

    /// A boolean: 0 or 1.
    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        let at = self.at;
        let found = self.u8()?;
        self.check(at, what, u64::from(found), 1)?;
        Ok(found == 1)
    }

    /// How many items follow, each of at least `item_bytes` bytes: never more than the input can
    /// hold.
    pub(crate) fn count(
        &mut self,
        what: &'static str,
        item_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let at = self.at;
        let found = self.u32()?;
        let most = (self.input.len() - self.at) / item_bytes.max(1);
        self.check(at, what, u64::from(found), most as u64)?;
        Ok(found as usize)
    }

    /// Refuses `found` above `allowed`; `at` is where it was read.
    pub(crate) fn check(
        &self,
        at: usize,
        what: &'static str,
        found: u64,
        allowed: u64,
    ) -> Result<(), DecodeError> {
        if found > allowed {
            Err(DecodeError::Exceeds { at, what, found, allowed })
        } else {
            Ok(())
        }
    }

    /// Nothing may follow.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        let left = self.input.len() - self.at;
        if left == 0 {
            Ok(())
        } else {
            Err(DecodeError::Trailing { at: self.at, left: left as u64 })
        }
    }
}
