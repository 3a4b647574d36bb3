//! The requests.

use crate::api::*;
use crate::connection::{Connection, Error, Server};
use crate::watch::Watch;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::Path;

/// A client of one server, with one token. Blocking.
pub struct Client {
    connection: Connection,
}

/// A part of a path: everything but letters, digits, `-`, `_`, `.` and `~` is escaped.
fn part(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

fn machine(name: &str, rest: &str) -> String {
    format!("/v1/machines/{}{rest}", part(name))
}

fn session(name: &str, of: &str, rest: &str) -> String {
    machine(name, &format!("/sessions/{}{rest}", part(of)))
}

macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $name:ident($($arg:ident: $type:ty),*) -> $answer:ty =
            $method:literal $path:expr $(, $body:expr)?;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// See [`Error`].
        pub fn $name(&mut self, $($arg: $type),*) -> Result<$answer, Error> {
            requests!(@send self $method $path $(, $body)?)
        }
    )*};
    (@send $self:ident $method:literal $path:expr) => {
        $self.send($method, &$path, None::<&()>)
    };
    (@send $self:ident $method:literal $path:expr, $body:expr) => {
        $self.send($method, &$path, Some(&$body))
    };
}

impl Client {
    /// A client of the server at `http://{host}:{port}`.
    ///
    /// # Errors
    /// The address or the token is none.
    pub fn new(url: &str, token: &str) -> Result<Self, Error> {
        Ok(Self { connection: Connection::new(Server::new(url, None)?, token)? })
    }

    /// A client of the server at `https://{host}:{port}`, which has a certificate that the
    /// certificates in this PEM file vouch for.
    ///
    /// # Errors
    /// The address, the token or the file is none.
    pub fn with_ca(url: &str, token: &str, ca: &Path) -> Result<Self, Error> {
        Ok(Self { connection: Connection::new(Server::new(url, Some(ca))?, token)? })
    }

    requests! {
        /// Machines that the token may see.
        machines() -> Machines = "GET" "/v1/machines";
        /// Creates a machine from a manifest and uploaded modules.
        create(what: &CreateMachine) -> Machine = "POST" "/v1/machines", what;
        /// A machine.
        machine(name: &str) -> Machine = "GET" machine(name, "");
        /// Deletes a machine with everything it recorded.
        delete(name: &str) -> serde_json::Value = "DELETE" machine(name, "");
        /// Runs a machine's frames at its rate.
        start(name: &str, pace: &Pace) -> Machine = "POST" machine(name, "/start"), pace;
        /// Stops running frames.
        pause(name: &str) -> Machine = "POST" machine(name, "/pause");
        /// Runs frames of a machine that is paused.
        step(name: &str, frames: u64) -> Position = "POST" machine(name, "/step"), Step { frames };
        /// Ends the run of a machine with its next frame.
        end(name: &str) -> Taken = "POST" machine(name, "/end");
        /// Keeps the state of a machine: its trace goes on in a new segment.
        snapshot(name: &str) -> Position = "POST" machine(name, "/snapshot");
        /// Makes a machine from another.
        fork(name: &str, fork: &Fork) -> Machine = "POST" machine(name, "/fork"), fork;
        /// The first 1,000 sessions of a machine from this number on.
        sessions(name: &str, from: u32) -> Sessions = "GET" machine(name, &format!("/sessions?from={from}"));
        /// Starts a session.
        start_session(name: &str, new: &StartSession) -> Started = "POST" machine(name, "/sessions"), new;
        /// Ends a session.
        end_session(name: &str, of: &str) -> Taken = "POST" session(name, of, "/end");
        /// Holds a session.
        hold(name: &str, of: &str) -> Taken = "POST" session(name, of, "/hold");
        /// Releases a session.
        release(name: &str, of: &str) -> Taken = "POST" session(name, of, "/release");
        /// Replaces the module of a session.
        replace(name: &str, of: &str, by: &Replace) -> Taken = "POST" session(name, of, "/replace"), by;
        /// Gives a session another weight.
        set_weight(name: &str, of: &str, weight: u16) -> Taken = "PUT" session(name, of, "/weight"), Weight { weight };
        /// Gives a session a cap.
        set_cap(name: &str, of: &str, cap: &Cap) -> Taken = "PUT" session(name, of, "/cap"), cap;
        /// Takes a session's cap away.
        remove_cap(name: &str, of: &str) -> Taken = "DELETE" session(name, of, "/cap");
        /// Gives a context another budget.
        set_context(name: &str, of: &str, context: &str, cycles: u64) -> Taken =
            "PUT" session(name, of, &format!("/contexts/{}", part(context))), ContextBudget { cycles };
        /// Ends the input of a session.
        close(name: &str, of: &str) -> Taken = "POST" session(name, of, "/close");
        /// Recent frames from this one on in which something happened.
        frames(name: &str, from: u64) -> Frames = "GET" machine(name, &format!("/frames?from={from}"));
        /// The trace of a machine.
        segments(name: &str) -> Segments = "GET" machine(name, "/segments");
        /// Why a coroutine ran, or did not, at a step.
        why(name: &str, coroutine: &str, step: u64) -> Why =
            "GET" machine(name, &format!("/why?coroutine={}&step={step}", part(coroutine)));
        /// Events of frames, from the trace.
        events(name: &str, frame: u64, frames: u64) -> Events =
            "GET" machine(name, &format!("/events?frame={frame}&frames={frames}"));
        /// What a machine did and cost so far.
        report(name: &str) -> Report = "GET" machine(name, "/report");
        /// Uploaded modules.
        modules() -> Modules = "GET" "/v1/modules";
        /// Removes an uploaded module. Machines that use it keep it.
        delete_module(hash: &str) -> serde_json::Value = "DELETE" format!("/v1/modules/{}", part(hash));
        /// Tokens.
        tokens() -> Tokens = "GET" "/v1/tokens";
        /// Makes a token; the answer alone has it.
        create_token(what: &CreateToken) -> Token = "POST" "/v1/tokens", what;
        /// Takes a token back.
        delete_token(name: &str) -> serde_json::Value = "DELETE" format!("/v1/tokens/{}", part(name));
    }

    /// Gives a session bytes, or every session. The answer comes when they are durable.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn input(&mut self, name: &str, of: Option<&str>, bytes: &Bytes) -> Result<Taken, Error> {
        let path = match of {
            Some(of) => session(name, of, "/input"),
            None => machine(name, "/input"),
        };
        self.send("POST", &path, Some(bytes))
    }

    /// Uploads a module, WebAssembly or its text.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn upload(&mut self, module: &[u8]) -> Result<Module, Error> {
        let body = self.raw("POST", "/v1/modules", "application/wasm", module)?;
        parse(&body)
    }

    /// The bytes of a trace segment.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn segment(&mut self, name: &str, number: u64) -> Result<Vec<u8>, Error> {
        self.raw("GET", &machine(name, &format!("/segments/{number}")), "application/json", &[])
    }

    /// Metrics in the text format of Prometheus.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn metrics(&mut self) -> Result<String, Error> {
        let body = self.raw("GET", "/metrics", "application/json", &[])?;
        String::from_utf8(body).map_err(|_| Error::Answer("metrics that are not text".into()))
    }

    /// Frames of a machine as they happen, from `from` on or from now on.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn watch(&self, name: &str, from: Option<u64>) -> Result<Watch, Error> {
        let query = from.map_or_else(String::new, |from| format!("?from={from}"));
        let path = machine(name, &format!("/watch{query}"));
        Watch::open(&self.connection.server, self.connection.token(), &path)
    }

    fn send<A: DeserializeOwned>(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<A, Error> {
        let body = match body {
            Some(body) => serde_json::to_vec(body)
                .map_err(|error| Error::Setup(format!("the request: {error}")))?,
            None => Vec::new(),
        };
        let answer = self.raw(method, path, "application/json", &body)?;
        parse(&answer)
    }

    fn raw(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
        let answer = self.connection.ask(method, path, kind, body)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let Problem { code, message } = match serde_json::from_slice(&answer.body) {
            Ok(Refusal { error }) => error,
            Err(_) => Problem {
                code: "http".into(),
                message: format!("the server answered with status {}", answer.status),
            },
        };
        Err(Error::Refused { status: answer.status, code, message })
    }
}

fn parse<A: DeserializeOwned>(body: &[u8]) -> Result<A, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Answer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_escaped() {
        assert_eq!(session("a", "x/../y z", "/end"), "/v1/machines/a/sessions/x%2F..%2Fy%20z/end");
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for rest in ["localhost", "localhost:99999", "local host:1", ":1", "", "u@localhost:1"] {
            let url = format!("http://{rest}");
            assert!(matches!(Client::new(&url, "t"), Err(Error::Setup(_))), "{url}");
        }
        assert!(Client::new("127.0.0.1:1", "t").is_err());
        assert!(Client::new("ftp://localhost:1", "t").is_err());
        assert!(Client::new("https://localhost:1", "t").is_err(), "without a certificate");
        assert!(Client::new("http://localhost:1", " \n").is_err());
        assert!(Client::new("http://localhost:1/", "token\n").is_ok());
    }
}
