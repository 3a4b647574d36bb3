//! A server: its lock, its machines, its thread.

use crate::actor::Common;
use crate::http::{App, BLOCKING, acceptor, serve};
use crate::metrics::resident_bytes;
use crate::registry::Registry;
use crate::settings::Settings;
use crate::tokens::Tokens;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use wavelock::Engine;

/// How often the memory of the process is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long requests that are being served may take when the server ends.
const LAST: Duration = Duration::from_secs(2);

/// A server that runs. Dropping it ends it: what its machines have is durable then.
pub struct Server {
    address: SocketAddr,
    token: Option<String>,
    ends: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    app: Arc<App>,
    _lock: File,
}

/// One server at a time has a folder.
fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join("lock");
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(io::Error::other(format!(
            "`{}` is in use by another `wavelock serve`",
            folder.display()
        ))),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

impl Server {
    /// Starts a server: its folder is made if it does not exist, its machines go on where they
    /// were.
    ///
    /// # Errors
    /// The folder is in use or cannot be written, the address cannot be listened to, or the
    /// certificate is none.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let folder = &settings.folder;
        make_folder(folder)?;
        let lock = lock(folder)?;
        let acceptor = match &settings.certificate {
            Some((certificate, key)) => Some(acceptor(certificate, key)?),
            None => None,
        };
        if acceptor.is_none() && !settings.listen.ip().is_loopback() {
            return Err(io::Error::other(format!(
                "{} is not on this host: a token would cross the network as it is; give a \
                 certificate",
                settings.listen
            )));
        }
        let (tokens, token) = Tokens::open(folder)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING)
            .build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(settings.listen))?;
        let address = listener.local_addr()?;
        let engine = Engine::new(settings.workers).map_err(io::Error::other)?;
        let common = Common {
            engine,
            limits: settings.limits.clone(),
            sync: settings.sync,
            has_no_memory: AtomicBool::new(false),
        };
        let registry = Registry::open(folder, common)?;
        let (ends, ended) = watch::channel(false);
        let app = Arc::new(App::new(settings, address, registry, tokens, ended.clone())?);
        let own = app.clone();
        let thread = std::thread::Builder::new().name("wavelock-http".into()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(look(own.clone()));
                serve(listener, acceptor, own).await;
            });
            runtime.shutdown_timeout(LAST);
        })?;
        Ok(Self { address, token, ends, thread: Some(thread), app, _lock: lock })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token for everything, if this start made it: only then is it known.
    #[must_use]
    pub fn first_token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Ends the server from another thread, or from a signal.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let ends = self.ends.clone();
        move || {
            let _ = ends.send(true);
        }
    }

    /// Waits until it is ended.
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; the machines end as they should.
            let _ = thread.join();
        }
        self.app.registry.close();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.ends.send(true);
        self.join();
    }
}

/// Holds machines back while the process uses too much memory.
async fn look(app: Arc<App>) {
    let most = app.limits.process_memory;
    loop {
        let is_too_much = resident_bytes().is_some_and(|bytes| bytes > most);
        app.registry.common.has_no_memory.store(is_too_much, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
}
