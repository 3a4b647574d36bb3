//! The primitives the hand-over stands on, behind one name: the model checker's test swaps this
//! module for its own.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A cell whose pointer is lent to a closure, as the model checker's is.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
