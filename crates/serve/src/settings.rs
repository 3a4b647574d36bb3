//! What a server is started with. Every limit has a name and a default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// When an input or a change is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sync {
    /// When the disk has it (`fdatasync`): it survives the loss of power.
    #[default]
    Disk,
    /// When the operating system has it: it survives the end of the process, however it ends.
    System,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder with its machines, tokens and audit log.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names it is reached by, beside its address: what a `Host` header may say.
    pub hosts: Vec<String>,
    /// PEM files with a certificate chain and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// When changes are acknowledged.
    pub sync: Sync,
    /// Threads that a wave of a machine may use.
    pub workers: usize,
    /// Limits.
    pub limits: Limits,
}

impl Settings {
    /// A server on a free port of this host, with default limits.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            hosts: Vec::new(),
            certificate: None,
            sync: Sync::default(),
            workers: 1,
            limits: Limits::default(),
        }
    }
}

/// What clients and machines can cost.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Machines.
    pub machines: usize,
    /// Sessions of a machine, those included that are started later.
    pub sessions: u64,
    /// Guest memory that the sessions of a machine may grow to together, in bytes.
    pub machine_memory: u64,
    /// Cycles of a frame on all lanes together: bounds how long a machine does not listen.
    pub frame_cycles: u64,
    /// Frames per second.
    pub hz: f64,
    /// Memory of the process in bytes; beyond it no machine runs and none is created.
    pub process_memory: u64,
    /// Bytes of an uploaded module.
    pub module: u64,
    /// Bytes of all uploaded modules.
    pub modules: u64,
    /// Bytes of the body of any other request.
    pub body: u64,
    /// Bytes of all bodies at once.
    pub bodies: u64,
    /// Connections.
    pub connections: usize,
    /// Clients that watch.
    pub watchers: usize,
    /// Requests of one token per second; twice as many at once.
    pub requests: u32,
    /// Requests without a token of one address per second; twice as many at once.
    pub failures: u32,
    /// Time for the head of a request, and between two requests.
    pub head_time: Duration,
    /// Time for a request with its body.
    pub request_time: Duration,
    /// Time for one message to a client that watches.
    pub send_time: Duration,
    /// Bytes of recent frames that are kept for those who watch, by machine.
    pub feed: usize,
    /// Frames that run before a machine's trace goes on in a new segment.
    pub segment_frames: u64,
    /// Time that frames of a segment take before the next: bounds recovering, and questions about
    /// the past.
    pub segment_time: Duration,
    /// Bytes of a segment before the next, without the state it begins with.
    pub segment_bytes: u64,
    /// Segments of a machine that are kept.
    pub segments: u64,
    /// Bytes of the audit log before it begins anew; one older file is kept.
    pub audit: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            machines: 256,
            sessions: 4_096,
            machine_memory: 4_096 * MIB,
            frame_cycles: 1_000_000_000,
            hz: 1_000.0,
            process_memory: 8_192 * MIB,
            module: 16 * MIB,
            modules: 256 * MIB,
            body: MIB,
            bodies: 64 * MIB,
            connections: 1_024,
            watchers: 512,
            requests: 500,
            failures: 20,
            head_time: Duration::from_secs(5),
            request_time: Duration::from_secs(20),
            send_time: Duration::from_secs(10),
            feed: 1 << 20,
            segment_frames: 5_000,
            segment_time: Duration::from_secs(20),
            segment_bytes: 4 * MIB,
            segments: 8,
            audit: 16 * MIB,
        }
    }
}
