//! The engine: threads and loaded modules that many machines share.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wavelock_module::{Limits, Module as Lowered};
use wavelock_system::LaterModule;
use wavelock_trace::Digest;
use wavelock_waves::Threads;

/// What many machines share: threads, and modules that were loaded. Cheap to clone; usable from any
/// thread.
///
/// A machine runs on the thread that advances it. A wave with enough work for several lanes is
/// spread over the engine's threads too, unless another machine uses them at that moment: then it
/// runs on the caller's thread alone. So no machine waits for another, and a program may advance
/// any number of them at once. Threads are in no digest.
///
/// ```
/// use wavelock::{Cycles, Engine, Error};
///
/// let engine = Engine::new(2)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// assert!(guest.gap() < Cycles(1_000) && engine.threads() == 2);
/// assert!(matches!(engine.module(b"no module"), Err(Error::Module(_))));
/// # Ok::<(), wavelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    threads: Threads,
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

/// The most threads of an engine.
const MOST_THREADS: usize = 1_024;

fn width(threads: usize) -> Result<NonZeroUsize, Error> {
    let width = NonZeroUsize::new(threads).filter(|width| width.get() <= MOST_THREADS);
    width.ok_or(Error::Threads { found: threads, most: MOST_THREADS })
}

impl Engine {
    /// An engine that runs a wave on up to this many threads, the caller's included. The others are
    /// started when a wave first needs them and end with the engine and its machines; with 1 no
    /// thread is ever started.
    ///
    /// # Errors
    /// [`Error::Threads`]: not 1 to 1,024.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Ok(Self::with(Threads::new(width(threads)?)))
    }

    /// An engine that runs a wave on up to this many threads, the caller's included, of which the
    /// others are the program's own: `spawn` is called up to `threads - 1` times for a wave that is
    /// worth it, and runs each job once, on any thread and at any time, or drops it. A job returns
    /// as soon as nothing is left to run. Whatever has not begun when the caller is done with its
    /// part, the caller runs itself.
    ///
    /// ```
    /// use wavelock::Engine;
    /// // Or the `spawn` of a thread pool.
    /// let engine = Engine::on(4, |job| drop(std::thread::spawn(job)))?;
    /// # Ok::<(), wavelock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Threads`]: not 1 to 1,024.
    pub fn on(
        threads: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Ok(Self::with(Threads::lent(width(threads)?, spawn)))
    }

    fn with(threads: Threads) -> Self {
        Self(Arc::new(Shared { threads, modules: Mutex::default() }))
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

    /// The most threads that run one wave.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads.width()
    }

    pub(crate) fn shared_threads(&self) -> &Threads {
        &self.0.threads
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

    /// The module, to be brought by a control input.
    pub(crate) fn later(&self) -> LaterModule {
        LaterModule::new(self.lowered(), self.bytes().into())
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
