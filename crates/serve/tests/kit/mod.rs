//! A server in a folder of its own, its clients, and raw requests for those that no client sends.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wavelock_client::{Client, api};
use wavelock_serve::{Server, Settings, Sync};

/// Writes every input event back.
pub(crate) const ECHO: &str = include_str!("../../../wavelock/examples/guests/echo.wat");

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Two echoes that share a lane, and a context.
pub(crate) const MANIFEST: &str = "[machine]\nlive = true\nlanes = 2\npolicy = \"fair\"\nframe_cycles = 100_000\n\
    wave_cycles = 20_000\nmost_gap_cycles = 4_096\n\
    [[session]]\nname = \"red\"\nmodule = \"echo.wat\"\n[[session]]\nname = \"blue\"\nmodule = \"echo.wat\"\n";

pub(crate) struct Kit {
    pub(crate) folder: PathBuf,
    pub(crate) token: String,
    pub(crate) server: Option<Server>,
    settings: Settings,
}

impl Kit {
    pub(crate) fn new(name: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let mut settings = Settings::new(&folder);
        settings.sync = Sync::System;
        change(&mut settings);
        let server = Server::start(&settings).expect("a server");
        let token = server.first_token().expect("a new folder has a token").to_owned();
        Self { folder, token, server: Some(server), settings }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("it runs").address()
    }

    pub(crate) fn client_of(&self, token: &str) -> Client {
        Client::new(&format!("http://{}", self.address()), token).expect("an address")
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.token)
    }

    /// Ends the server and starts another in the same folder.
    pub(crate) fn restart(&mut self) {
        self.server = None;
        self.server = Some(Server::start(&self.settings).expect("a server"));
    }

    /// A token of a role for a machine.
    pub(crate) fn token(&self, name: &str, role: api::Role, machine: &str) -> String {
        let (name, machines) = (name.to_owned(), vec![machine.to_owned()]);
        let made = self.client().create_token(&api::CreateToken { name, role, machines });
        made.expect("a token").token.expect("it is shown once")
    }

    /// Creates a paused machine of two echoes.
    pub(crate) fn machine(&self, name: &str) -> api::Machine {
        let mut client = self.client();
        let hash = client.upload(ECHO.as_bytes()).expect("a module").hash;
        let new = api::CreateMachine {
            name: name.into(),
            manifest: MANIFEST.into(),
            modules: BTreeMap::from([("echo.wat".to_owned(), hash)]),
            hz: Some(100.0),
            start: false,
        };
        client.create(&new).expect("a machine");
        self.settled(name)
    }

    /// The machine once it is not recovering any more.
    pub(crate) fn settled(&self, name: &str) -> api::Machine {
        let began = Instant::now();
        loop {
            let machine = self.client().machine(name).expect("a machine");
            if machine.state != api::State::Recovering {
                return machine;
            }
            assert!(began.elapsed() < PATIENCE, "it does not recover");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A request as bytes, and the status and body of its answer.
    pub(crate) fn raw(&self, request: &str) -> (u16, String) {
        self.raw_bytes(request.as_bytes())
    }

    pub(crate) fn raw_bytes(&self, request: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned());
        (status, body)
    }

    /// The head of a request with the admin token, which the server closes after.
    pub(crate) fn head(&self, line: &str, more: &str) -> String {
        let (address, token) = (self.address(), &self.token);
        format!(
            "{line} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n{more}\r\n"
        )
    }
}

/// The status and the code of a refusal.
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, wavelock_client::Error>,
) -> (u16, String) {
    match answer {
        Err(wavelock_client::Error::Refused { status, code, .. }) => (status, code),
        other => panic!("not refused: {other:?}"),
    }
}
