//! `wavelock serve`: the server's settings from arguments, its address and first token, Ctrl-C.

use super::interrupt::Interrupt;
use crate::control::{ServeArguments, SyncMode};
use crate::exit::Exit;
use crate::failure::Failure;
use std::io::Write;
use std::time::Duration;
use wavelock_serve::{Server, Settings, Sync};

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn serve(arguments: &ServeArguments) -> Result<Exit, Failure> {
    let mut settings = Settings::new(&arguments.folder);
    settings.listen = arguments.listen;
    settings.hosts.clone_from(&arguments.host);
    settings.certificate = arguments.certificate.clone().zip(arguments.key.clone());
    settings.sync = match arguments.sync {
        SyncMode::Disk => Sync::Disk,
        SyncMode::System => Sync::System,
    };
    settings.workers = usize::try_from(arguments.workers).unwrap_or(1);
    settings.limits.process_memory = arguments.memory << 20;
    let interrupt = Interrupt::install();
    let server = Server::start(&settings)
        .map_err(|error| Failure::new(Exit::Host, format!("the server does not start: {error}")))?;
    let scheme = if settings.certificate.is_some() { "https" } else { "http" };
    let (mut out, address) = (anstream::stderr(), server.address());
    let _ = writeln!(out, "note: serving at {scheme}://{address}; Ctrl-C ends the server");
    if let Some(token) = server.first_token() {
        let file = arguments.folder.join("admin.token");
        let _ = writeln!(out, "note: the admin token, shown once: {token}");
        let _ = writeln!(out, "note: it is in `{}`, which only you can read", file.display());
    }
    while !interrupt.is_set() {
        std::thread::sleep(LOOK);
    }
    drop(server);
    Ok(Exit::Interrupted)
}
