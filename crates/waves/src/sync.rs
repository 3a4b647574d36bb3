//! The primitives of `handover`, in one module that the model checker's test replaces.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A cell with the interface of the model checker's.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
