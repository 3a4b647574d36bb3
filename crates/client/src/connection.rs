//! One connection: HTTP/1.1 requests with a length, answers with a length, over TCP or TLS.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest line of an answer's head, and the most lines.
const MOST_LINE: u64 = 16 * 1024;
const MOST_LINES: usize = 100;

/// The most bytes of an answer.
const MOST_BODY: u64 = 1 << 30;

/// How long a client waits for a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refuses it.
    Refused {
        /// The status of HTTP.
        status: u16,
        /// A word for programs.
        code: String,
        /// The rule and the numbers.
        message: String,
    },
    /// The server could not be reached, or the connection broke.
    Io(io::Error),
    /// The address, the token or the certificate is none.
    Setup(String),
    /// The answer is not what this client understands.
    Answer(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { message, .. } | Self::Setup(message) => f.write_str(message),
            Self::Io(error) => write!(f, "the server cannot be reached: {error}"),
            Self::Answer(what) => write!(f, "the server's answer is not understood: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A byte stream to a server.
pub(crate) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// Where a server is and how to reach it.
#[derive(Clone)]
pub(crate) struct Server {
    /// Host and port, as the `Host` header has them.
    pub(crate) authority: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Server {
    pub(crate) fn new(url: &str, ca: Option<&Path>) -> Result<Self, Error> {
        let bad = || {
            Error::Setup(format!("`{url}` is no address: use http or https, ://, host, : and port"))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        let authority = rest.trim_end_matches('/').to_owned();
        let (host, port) = authority.rsplit_once(':').ok_or_else(bad)?;
        if port.parse::<u16>().is_err() || host.is_empty() || !is_plain(&authority) {
            return Err(bad());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match scheme {
            "http" => None,
            "https" => {
                let ca = ca.ok_or_else(|| {
                    Error::Setup("https needs the certificate to trust (--ca FILE)".into())
                })?;
                Some((tls(ca)?, ServerName::try_from(host).map_err(|_| bad())?))
            }
            _ => return Err(bad()),
        };
        Ok(Self { authority, tls })
    }

    pub(crate) fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let stream = TcpStream::connect(&*self.authority)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some((config, name)) = &self.tls else { return Ok(Box::new(stream)) };
        let session = ClientConnection::new(config.clone(), name.clone())
            .map_err(|error| Error::Setup(format!("TLS: {error}")))?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@?#\"<>".contains(&byte))
}

fn tls(ca: &Path) -> Result<Arc<ClientConfig>, Error> {
    let bad = |error: String| Error::Setup(format!("`{}`: {error}", ca.display()));
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(ca).map_err(|error| bad(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    closes: bool,
}

/// A connection that is kept open between requests.
pub(crate) struct Connection {
    pub(crate) server: Server,
    token: String,
    open: Option<BufReader<Box<dyn Stream>>>,
}

impl Connection {
    pub(crate) fn new(server: Server, token: &str) -> Result<Self, Error> {
        let token = token.trim().to_owned();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Setup("the token is empty or has other characters".into()));
        }
        Ok(Self { server, token, open: None })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Sends a request and reads its answer. A connection that the server closed meanwhile is
    /// opened again; a request that may have been received is sent again only if that is harmless.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Result<Answer, Error> {
        let was_open = self.open.is_some();
        match self.try_ask(method, path, kind, body) {
            Err(Error::Io(error)) if was_open && (method == "GET" || is_stale(&error)) => {
                self.open = None;
                self.try_ask(method, path, kind, body)
            }
            answer => answer,
        }
    }

    fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Result<Answer, Error> {
        let mut stream = match self.open.take() {
            Some(open) => open,
            None => BufReader::new(self.server.connect()?),
        };
        let (authority, token, length) = (&self.server.authority, &self.token, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\n\
             content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        let out = stream.get_mut();
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        out.write_all(&request)?;
        out.flush()?;
        let answer = read_answer(&mut stream)?;
        if !answer.closes {
            self.open = Some(stream);
        }
        Ok(answer)
    }
}

/// Whether the server had closed the connection before it can have read the request.
fn is_stale(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe)
}

fn line(stream: &mut impl BufRead) -> Result<String, Error> {
    let mut line = Vec::new();
    stream.take(MOST_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let text = String::from_utf8(line).map_err(|_| Error::Answer("its head".into()))?;
    Ok(text.trim_end().to_owned())
}

fn read_answer(stream: &mut impl BufRead) -> Result<Answer, Error> {
    let first = line(stream)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| Error::Answer("its first line".into()))?;
    let (mut length, mut closes) = (0, false);
    for _ in 0..MOST_LINES {
        let header = line(stream)?;
        if header.is_empty() {
            let mut body = Vec::new();
            if length > MOST_BODY || stream.take(length).read_to_end(&mut body)? as u64 != length {
                return Err(Error::Answer(format!("a body of {length} bytes")));
            }
            return Ok(Answer { status, body, closes });
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let bad = |_| Error::Answer("its length".into());
                length = value.trim().parse().map_err(bad)?;
            }
            "transfer-encoding" => return Err(Error::Answer("a body without a length".into())),
            "connection" => closes = value.trim().eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    Err(Error::Answer(format!("more than {MOST_LINES} headers")))
}
