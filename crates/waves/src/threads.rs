//! Threads that many drivers share: a pool of their own, or threads of the embedder.
//!
//! Contract: one driver uses the threads at a time, for one wave. Another one that comes meanwhile
//! runs its wave on its own thread, which changes no trace; so no driver ever waits for another.
//! Threads are started with the first wave that is worth them. Threads of the embedder may come
//! late or never: the driver's own thread runs every group that nobody has claimed.

use crate::pool::{Pool, Spawn};
use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Threads for the waves of any number of drivers. Cheap to clone.
#[derive(Clone)]
pub struct Threads(Arc<Shared>);

struct Shared {
    width: NonZero<usize>,
    /// How a helper is started on a thread of the embedder; `None` if the threads are our own.
    spawn: Option<Spawn>,
    /// `None` before the first wave that needs it, and after a thread of it died.
    pool: Mutex<Option<Pool>>,
}

/// A pool that one driver uses for a wave.
pub(crate) struct Claimed<'a>(MutexGuard<'a, Option<Pool>>);

impl Claimed<'_> {
    pub(crate) fn pool(&mut self) -> Option<&mut Pool> {
        self.0.as_mut()
    }
}

impl Threads {
    /// Up to `width` threads, each driver's own included: the others are started when a wave first
    /// needs them, and end when the last clone is dropped.
    #[must_use]
    pub fn new(width: NonZero<usize>) -> Self {
        Self(Arc::new(Shared { width, spawn: None, pool: Mutex::default() }))
    }

    /// Up to `width` threads, each driver's own included, of which the others are the embedder's.
    /// `spawn` is called up to `width - 1` times for a wave; it runs each job once, on any thread
    /// and at any time, or drops it. A job returns when nothing is left to run.
    #[must_use]
    pub fn lent(
        width: NonZero<usize>,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { width, spawn: Some(Arc::new(spawn)), pool: Mutex::default() }))
    }

    /// The most threads that run one wave.
    #[must_use]
    pub fn width(&self) -> usize {
        self.0.width.get()
    }

    /// The pool, for a wave of this many groups; `None` if another driver uses it, or the host
    /// cannot start threads.
    pub(crate) fn claim(&self, groups: usize) -> Option<Claimed<'_>> {
        let mut pool = match self.0.pool.try_lock() {
            Ok(pool) => pool,
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(dead)) => {
                // A driver died in the middle of a wave, with groups in the queues.
                let mut pool = dead.into_inner();
                *pool = None;
                self.0.pool.clear_poison();
                pool
            }
        };
        if pool.as_ref().is_none_or(|pool| pool.capacity() < groups) {
            *pool = None;
            let (width, capacity) = (self.width(), groups.next_power_of_two().max(16));
            *pool = match &self.0.spawn {
                Some(spawn) => Some(Pool::lent(width, capacity, spawn.clone())),
                None => Pool::new(width, capacity, &[]).ok(),
            };
        }
        pool.is_some().then_some(Claimed(pool))
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("width", &self.width()).finish_non_exhaustive()
    }
}
