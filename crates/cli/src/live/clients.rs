//! Clients over sockets: each has a thread that reads its lines and one that writes to it.
//!
//! A client is in the table from its acceptance until it is gone in both directions. One that only
//! stopped sending still gets output, until its place is needed.

use super::MOST_CLIENTS;
use super::address::Address;
use super::inbox::{FIRST_CLIENT, Inbox, Message, SourceId};
use super::lines::{Line, Lines};
use super::outlet::{Dropped, Outlet, WhenFull};
use super::request::{Form, shown};
use crate::manifest::grouped;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait for a client.
const MOST_WAITING_BYTES: usize = 1 << 20;

/// Lines of a client that may be refused; then it is disconnected.
const MOST_REFUSED: u64 = 100;

/// How long the end of a run waits for clients to read the rest.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Pause after an accept that failed: the process may be out of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The stack of a thread that reads lines.
const READER_STACK: usize = 256 << 10;

/// What the clients of a run did, for the summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Served {
    /// Clients that were accepted.
    pub(crate) clients: u64,
    /// Clients that were refused, because too many were connected.
    pub(crate) turned_away: u64,
    /// Clients that were disconnected for what they sent.
    pub(crate) disconnected: u64,
    /// Lines of clients that were refused.
    pub(crate) refused: u64,
    /// Output that clients did not get.
    pub(crate) dropped: Dropped,
}

/// The clients of a run.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    listening: Vec<Listening>,
}

struct Listening {
    address: Address,
    /// The socket's file, removed at the end.
    #[cfg(unix)]
    path: Option<PathBuf>,
}

struct Shared {
    inbox: Inbox,
    form: Form,
    /// Output is JSON Lines, so a notice may stand between two of them.
    tells: bool,
    table: Mutex<Table>,
    is_closing: AtomicBool,
}

#[derive(Default)]
struct Table {
    clients: BTreeMap<SourceId, Client>,
    /// The next client's.
    next: SourceId,
    served: Served,
}

struct Client {
    outlet: Outlet,
    stream: Stream,
    /// It sends no more lines.
    has_ended: bool,
    /// It is to be disconnected.
    is_leaving: Arc<AtomicBool>,
    refused: u64,
}

/// A line to a client that something was refused.
#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

impl Refusal<'_> {
    fn chunk(&self) -> Arc<[u8]> {
        let text = serde_json::to_string(self).expect("plain strings and numbers have a JSON form");
        (text + "\n").into_bytes().into()
    }
}

impl Clients {
    /// Clients whose lines go to `inbox`.
    pub(crate) fn new(inbox: Inbox, form: Form, tells: bool) -> Self {
        let table = Table { next: FIRST_CLIENT, ..Table::default() };
        let shared =
            Shared { inbox, form, tells, table: Mutex::new(table), is_closing: false.into() };
        Self { shared: Arc::new(shared), listening: Vec::new() }
    }

    /// Listens on an address, and returns it with its actual port.
    pub(crate) fn listen(&mut self, address: &Address) -> io::Result<Address> {
        let listener = Listener::bind(address)?;
        let address = listener.address(address)?;
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("wavelock-listen".into());
        thread.spawn(move || shared.accept(&listener))?;
        self.listening.push(Listening {
            #[cfg(unix)]
            path: match &address {
                Address::Unix(path) => Some(path.clone()),
                Address::Tcp(_) => None,
            },
            address: address.clone(),
        });
        Ok(address)
    }

    /// Whether anyone can connect.
    pub(crate) fn is_listening(&self) -> bool {
        !self.listening.is_empty()
    }

    /// Sends what a frame wrote to every client, without waiting for any.
    pub(crate) fn send(&self, output: &[u8]) {
        if output.is_empty() {
            return;
        }
        let chunk: Arc<[u8]> = output.into();
        let mut table = self.shared.table();
        table.forget_gone();
        table.clients.values().for_each(|client| client.outlet.push(&chunk, WhenFull::Drop));
    }

    /// Tells a client that its line was refused, and disconnects it if that happened too often.
    pub(crate) fn refuse(&self, source: SourceId, line: u64, reason: &str) {
        self.shared.refuse(source, Some(line), reason);
    }

    /// Ends all connections, after a short time for those that still read, and returns what was
    /// done.
    pub(crate) fn finish(mut self) -> Served {
        self.shared.is_closing.store(true, Ordering::Release);
        for listening in self.listening.drain(..) {
            // The thread that accepts finds that the run is over.
            drop(Stream::connect(&listening.address));
            #[cfg(unix)]
            if let Some(path) = listening.path {
                let _ = std::fs::remove_file(path);
            }
        }
        let clients = std::mem::take(&mut self.shared.table().clients);
        clients.values().for_each(|client| client.outlet.close());
        let until = Instant::now() + LAST_WORDS;
        let mut dropped = Dropped::default();
        for mut client in clients.into_values() {
            dropped = dropped.and(client.outlet.finish(Some(until)));
            client.stream.shutdown(Shutdown::Both);
        }
        let served = self.shared.table().served;
        Served { dropped: served.dropped.and(dropped), ..served }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            let accepted = listener.accept();
            if self.is_closing.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok(stream) => self.admit(stream),
                Err(_) => std::thread::sleep(ACCEPT_AGAIN),
            }
        }
    }

    /// Takes a client in, or tells it that there is no room.
    fn admit(self: &Arc<Self>, mut stream: Stream) {
        let mut table = self.table();
        table.make_room();
        if table.clients.len() >= MOST_CLIENTS {
            table.served.turned_away += 1;
            drop(table);
            let most = grouped(MOST_CLIENTS as u64);
            let error = format!("{most} clients are connected: no more are allowed");
            // If even this does not fit into the socket, it is not told.
            let _ = stream.set_nonblocking();
            let _ = stream.write(&Refusal { error: &error, line: None }.chunk());
            return stream.shutdown(Shutdown::Both);
        }
        let source = table.next;
        let started = || -> io::Result<Client> {
            let (reader, writer) = (stream.try_clone()?, stream.try_clone()?);
            let outlet = Outlet::start(writer, MOST_WAITING_BYTES, self.tells)?;
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("wavelock-client".into());
            thread.stack_size(READER_STACK).spawn(move || shared.read(source, reader))?;
            let is_leaving = Arc::default();
            Ok(Client { outlet, stream, has_ended: false, is_leaving, refused: 0 })
        };
        // A host without threads or descriptors to spare is a run with fewer clients.
        match started() {
            Ok(client) => {
                table.next = SourceId(source.0 + 1);
                table.served.clients += 1;
                table.clients.insert(source, client);
            }
            Err(_) => table.served.turned_away += 1,
        }
    }

    /// Reads a client's lines until it sends no more, or is to be disconnected.
    fn read(&self, source: SourceId, mut stream: Stream) {
        // Its client is in the table when `admit` has released it.
        let Some(is_leaving) = self.table().clients.get(&source).map(Client::leaving) else {
            return;
        };
        let mut lines = Lines::new(&mut stream);
        while !is_leaving.load(Ordering::Acquire)
            && let Ok(Some(line)) = lines.next()
        {
            if lines.number == 1 && is_http(&line) {
                self.refuse(
                    source,
                    Some(1),
                    "this is no HTTP server: send one JSON object per line",
                );
                self.disconnect(source);
            }
            if is_leaving.load(Ordering::Acquire) {
                break;
            }
            let message = match self.form.read(line) {
                Ok(None) => continue,
                Ok(Some(request)) => Message::Request(lines.number, request),
                Err(reason) => {
                    self.refuse(source, Some(lines.number), &reason);
                    continue;
                }
            };
            if !self.inbox.push(source, message) {
                break;
            }
        }
        if is_leaving.load(Ordering::Acquire) {
            return self.end(source, stream);
        }
        let mut table = self.table();
        if let Some(client) = table.clients.get_mut(&source) {
            client.has_ended = true;
        }
        table.forget_gone();
    }

    fn refuse(&self, source: SourceId, line: Option<u64>, reason: &str) {
        let mut table = self.table();
        table.served.refused += 1;
        let Some(client) = table.clients.get_mut(&source) else { return };
        client.refused += 1;
        client.tell(reason, line);
        if client.refused == MOST_REFUSED {
            let most = grouped(MOST_REFUSED);
            client.tell(&format!("{most} lines were refused: no more are allowed"), None);
            drop(table);
            self.disconnect(source);
        }
    }

    /// Has the thread that reads a client's lines end the connection, at the latest when it has
    /// read another one. Does not wait, and does not shut the socket down for reading: what still
    /// comes would then reset the connection, and the client would not learn why.
    fn disconnect(&self, source: SourceId) {
        let mut table = self.table();
        let Some(client) = table.clients.get_mut(&source) else { return };
        if !client.is_leaving.swap(true, Ordering::AcqRel) {
            table.served.disconnected += 1;
        }
    }

    /// Ends a connection: what waits is written if the client reads it within a short time. What it
    /// still sends is read, because closing a socket with unread bytes would take back what was
    /// written.
    fn end(&self, source: SourceId, mut stream: Stream) {
        let Some(mut client) = self.table().clients.remove(&source) else { return };
        let until = Instant::now() + LAST_WORDS;
        let dropped = client.outlet.finish(Some(until));
        stream.shutdown(Shutdown::Write);
        let mut thrown_away = [0; 4096];
        while Instant::now() < until
            && stream.set_read_timeout(LAST_WORDS).is_ok()
            && matches!(stream.read(&mut thrown_away), Ok(1..))
        {}
        stream.shutdown(Shutdown::Both);
        let mut table = self.table();
        table.served.dropped = table.served.dropped.and(dropped);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table leaves it valid, whatever thread died.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Removes clients that neither send nor can be written to.
    fn forget_gone(&mut self) {
        let gone = |client: &Client| client.has_ended && client.outlet.gone().is_some();
        let gone: Vec<SourceId> = self
            .clients
            .iter()
            .filter(|(_, client)| gone(client))
            .map(|(&source, _)| source)
            .collect();
        gone.into_iter().for_each(|source| self.remove(source));
    }

    /// When every place is taken: the client that stopped sending first gives its place up.
    fn make_room(&mut self) {
        self.forget_gone();
        if self.clients.len() >= MOST_CLIENTS {
            let idle = self.clients.iter().find(|(_, client)| client.has_ended);
            if let Some(source) = idle.map(|(&source, _)| source) {
                self.remove(source);
            }
        }
    }

    fn remove(&mut self, source: SourceId) {
        let Some(mut client) = self.clients.remove(&source) else { return };
        client.stream.shutdown(Shutdown::Both);
        let dropped = client.outlet.finish(Some(Instant::now()));
        self.served.dropped = self.served.dropped.and(dropped);
    }
}

impl Client {
    fn leaving(&self) -> Arc<AtomicBool> {
        self.is_leaving.clone()
    }

    /// Sends a refusal.
    fn tell(&self, reason: &str, line: Option<u64>) {
        let refusal = Refusal { error: &shown(reason), line }.chunk();
        self.outlet.push(&refusal, WhenFull::Drop);
    }
}

/// Whether a first line is that of an HTTP request: a page in a browser can send one to a port of
/// this host, and its body could have lines that are requests of ours.
fn is_http(line: &Line) -> bool {
    matches!(line, Line::Whole(bytes) if bytes.ends_with(b" HTTP/1.1") || bytes.ends_with(b" HTTP/1.0"))
}

/// A socket that listens.
enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => bind_unix(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::other("this host has no Unix sockets")),
        }
    }

    /// The address, with its actual port.
    fn address(&self, asked: &Address) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(_) => Ok(asked.clone()),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

/// Binds a Unix socket that only this user can connect to. A file that a killed run left is
/// replaced; one that somebody listens on is not.
#[cfg(unix)]
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let is_left = || {
        let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        let nobody = io::ErrorKind::ConnectionRefused;
        is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == nobody)
    };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left() => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Does the same to either kind of connection.
macro_rules! either {
    ($stream:expr, $name:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($name) => $does,
            #[cfg(unix)]
            Stream::Unix($name) => $does,
        }
    };
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpStream::connect(address).map(Self::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::other("this host has no Unix sockets")),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            #[cfg(unix)]
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// A connection that is closed already stays so.
    fn shutdown(&self, how: Shutdown) {
        let _ = either!(self, stream => stream.shutdown(how));
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        either!(self, stream => stream.set_nonblocking(true))
    }

    fn set_read_timeout(&self, most: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(Some(most)))
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(bytes))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => stream.flush())
    }
}
