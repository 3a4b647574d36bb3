//! A vector whose copies have its capacity.
//!
//! A lane allocates nothing after [`Lane::reserve`](crate::Lane::reserve). A copy of a lane (a
//! snapshot, a rollback) keeps that promise: `Vec::clone` would drop the reserved room.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// See the header.
#[derive(Debug)]
pub(crate) struct Room<T>(Vec<T>);

impl<T> Room<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Its length; the vector's own is not callable in a constant function.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes room for this many elements in total.
    pub(crate) fn reserve_total(&mut self, total: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve(total.saturating_sub(self.0.len()))
    }
}

impl<T: Clone> Room<T> {
    /// Appends copies of `value` up to this length; never shortens.
    pub(crate) fn fill_to(&mut self, length: usize, value: T) {
        self.0.resize(length.max(self.0.len()), value);
    }
}

impl<T> Default for Room<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Clone for Room<T> {
    fn clone(&self) -> Self {
        let mut copy = Vec::with_capacity(self.0.capacity());
        copy.extend_from_slice(&self.0);
        Self(copy)
    }
}

impl<T> Deref for Room<T> {
    type Target = Vec<T>;

    #[inline(always)]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Room<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<'a, T> IntoIterator for &'a Room<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Room<T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_room_of_its_original() {
        let mut list = Room::new();
        list.reserve_total(100).expect("memory");
        list.push(7u8);
        let copy = list.clone();
        assert_eq!((copy.as_slice(), copy.capacity()), (&[7][..], list.capacity()));
    }
}
