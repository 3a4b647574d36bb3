//! The engine: threads and loaded modules that many machines share.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wavelock_module::{Limits, Module as Lowered};
use wavelock_trace::Digest;

/// What many machines share: the number of threads of each, and modules that were loaded. Cheap to
/// clone; usable from any thread.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    threads: NonZeroUsize,
    /// Loaded modules that are still in use, by the digest of their bytes.
    modules: Mutex<BTreeMap<[u8; 32], Weak<Loaded>>>,
}

/// A loaded module.
struct Loaded {
    lowered: Arc<Lowered>,
    /// The binary form, also of a module given as text.
    bytes: Vec<u8>,
}

/// A WebAssembly module: validated, lowered, and shared by the sessions that run it. Cheap to
/// clone.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

impl Engine {
    /// An engine whose machines run their waves on up to this many threads each, the caller's
    /// included. With 1 no thread is started. The number of threads is in no digest.
    ///
    /// # Errors
    /// [`Error::NoThreads`].
    pub fn new(threads: usize) -> Result<Self, Error> {
        let threads = NonZeroUsize::new(threads).ok_or(Error::NoThreads)?;
        Ok(Self(Arc::new(Shared { threads, modules: Mutex::default() })))
    }

    /// Loads a module from its binary or its text form. Bytes that are loaded already are not
    /// loaded again while anything uses them. Safe to call on any thread while machines run.
    ///
    /// # Errors
    /// [`Error::Module`].
    pub fn module(&self, wasm_or_wat: &[u8]) -> Result<Module, Error> {
        let bytes = wat::Parser::new()
            .parse_bytes(None, wasm_or_wat)
            .map_err(|error| Error::Module(format!("this is not a module: {error}")))?;
        let key = Digest::of(&bytes).0;
        if let Some(loaded) = self.loaded().get(&key).and_then(Weak::upgrade) {
            return Ok(Module(loaded));
        }
        let lowered = Lowered::new(&bytes, &Limits::default())
            .map_err(|error| Error::Module(format!("the module cannot be loaded: {error}")))?;
        let module = Arc::new(Loaded { lowered: Arc::new(lowered), bytes: bytes.into_owned() });
        let mut modules = self.loaded();
        modules.retain(|_, loaded| loaded.strong_count() > 0);
        modules.insert(key, Arc::downgrade(&module));
        Ok(Module(module))
    }

    /// Threads of each machine.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads.get()
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, BTreeMap<[u8; 32], Weak<Loaded>>> {
        // A map of weak references is valid whatever thread died.
        self.0.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    pub(crate) fn lowered(&self) -> Arc<Lowered> {
        self.0.lowered.clone()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The longest gap between two of its safepoints, in cycles: budgets and frames are checked
    /// against it.
    #[must_use]
    pub fn gap(&self) -> wavelock_abi::Cycles {
        self.0.lowered.code().gap()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("bytes", &self.0.bytes.len()).finish_non_exhaustive()
    }
}
