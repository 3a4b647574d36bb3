//! The server's side of HTTP: connections, TLS, and their limits. One thread runs all of it; what
//! takes longer than a moment runs on a few others.
//!
//! Contract: nothing here can stop a machine: a machine's thread never waits for this one.

mod answer;
mod body;
mod handlers;
mod openapi;
mod patient;
mod routes;
mod watch;

pub use openapi::openapi;

use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::rates::Rates;
use crate::registry::Registry;
use crate::settings::{Limits, Settings};
use crate::tokens::Tokens;
use axum::Router;
use axum::extract::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use patient::Patient;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch as signal};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// Bytes of a request's head.
const MOST_HEAD: usize = 32 * 1024;

/// Questions about the past, and modules that are validated, at once.
const JOBS: usize = 2;

/// Machines that are made or deleted at once.
const MAKERS: usize = 4;

/// Threads for both.
pub(crate) const BLOCKING: usize = JOBS + MAKERS;

/// Time after which a client that takes nothing is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// What all requests share.
pub(crate) struct App {
    pub(crate) limits: Limits,
    pub(crate) registry: Registry,
    pub(crate) tokens: Tokens,
    pub(crate) audit: Audit,
    pub(crate) metrics: Metrics,
    pub(crate) rates: Rates<String>,
    pub(crate) failures: Rates<IpAddr>,
    /// KiB of bodies.
    pub(crate) bodies: Semaphore,
    pub(crate) jobs: Arc<Semaphore>,
    /// Machines that are made and deleted.
    pub(crate) makers: Arc<Semaphore>,
    pub(crate) watchers: Arc<Semaphore>,
    /// What a `Host` header may say.
    pub(crate) hosts: Vec<String>,
    pub(crate) is_tls: bool,
    /// Becomes true when the server ends.
    pub(crate) ends: signal::Receiver<bool>,
}

impl App {
    pub(crate) fn new(
        settings: &Settings,
        address: SocketAddr,
        registry: Registry,
        tokens: Tokens,
        ends: signal::Receiver<bool>,
    ) -> io::Result<Self> {
        let limits = settings.limits.clone();
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}")));
        }
        for host in &settings.hosts {
            let host = host.to_ascii_lowercase();
            hosts.push(format!("{host}:{port}"));
            hosts.push(host);
        }
        Ok(Self {
            audit: Audit::open(&settings.folder, limits.audit)?,
            rates: Rates::new(limits.requests),
            failures: Rates::new(limits.failures),
            bodies: Semaphore::new((limits.bodies / 1024) as usize),
            jobs: Arc::new(Semaphore::new(JOBS)),
            makers: Arc::new(Semaphore::new(MAKERS)),
            watchers: Arc::new(Semaphore::new(limits.watchers)),
            metrics: Metrics::default(),
            hosts,
            is_tls: settings.certificate.is_some(),
            limits,
            registry,
            tokens,
            ends,
        })
    }
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// What TLS needs, from PEM files.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let bad =
        |path: &Path, error: String| io::Error::other(format!("`{}`: {error}", path.display()));
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad(certificate, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until the server ends.
pub(crate) async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, app: Arc<App>) {
    let router = routes::router(app.clone());
    let room = Arc::new(Semaphore::new(app.limits.connections));
    let mut ends = app.ends.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ends.wait_for(|ends| *ends) => return,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors: connections that end make room.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            app.metrics.refused_connections.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let (app, router, acceptor) = (app.clone(), router.clone(), acceptor.clone());
        tokio::spawn(async move {
            let _permit = permit;
            app.metrics.connections.fetch_add(1, Ordering::Relaxed);
            let _ = stream.set_nodelay(true);
            connection(stream, peer, acceptor, router, &app).await;
            app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    app: &App,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Peer(peer));
        let mut router = router.clone();
        async move { router.call(Request::map(request, axum::body::Body::new)).await }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(app.limits.head_time)
        .max_buf_size(MOST_HEAD)
        .half_close(false);
    let mut ends = app.ends.clone();
    let ended = async move {
        let _ = ends.wait_for(|ends| *ends).await;
    };
    // A connection that fails is the client's affair.
    match acceptor {
        None => {
            let io = TokioIo::new(Patient::new(stream, STALL));
            let served = http.serve_connection(io, service).with_upgrades();
            tokio::select! { _ = served => {}, () = ended => {} }
        }
        Some(acceptor) => {
            let accepted = tokio::time::timeout(app.limits.head_time, acceptor.accept(stream));
            let Ok(Ok(stream)) = accepted.await else { return };
            let io = TokioIo::new(Patient::new(stream, STALL));
            let served = http.serve_connection(io, service).with_upgrades();
            tokio::select! { _ = served => {}, () = ended => {} }
        }
    }
}
