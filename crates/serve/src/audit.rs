//! The audit log: one line of JSON for each request that changes something or is refused for lack
//! of a right. Bodies and tokens are never in it.

use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// One entry.
#[derive(Serialize)]
pub(crate) struct Entry<'a> {
    /// Milliseconds since 1970.
    pub(crate) time: u128,
    pub(crate) token: Option<&'a str>,
    pub(crate) peer: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<&'a str>,
    /// Refusals before this one that were not logged, because there were too many in its second.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) unlogged: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Refusals that are logged in one second.
const MOST_REFUSALS: u32 = 20;

struct Open {
    file: File,
    bytes: u64,
    second: u64,
    refusals: u32,
    unlogged: u64,
}

/// The log.
pub(crate) struct Audit {
    path: PathBuf,
    most_bytes: u64,
    open: Mutex<Open>,
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Audit {
    pub(crate) fn open(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        let path = folder.join("audit.jsonl");
        let file = open(&path)?;
        let bytes = file.metadata()?.len();
        let open = Mutex::new(Open { file, bytes, second: 0, refusals: 0, unlogged: 0 });
        Ok(Self { path, most_bytes, open })
    }

    /// Writes a line. A log that cannot be written stops nothing: what it would say is told on
    /// standard error by the caller, once.
    pub(crate) fn log(&self, mut entry: Entry<'_>) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        entry.time = now.as_millis();
        let mut log = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if entry.code.is_some() {
            if log.second != now.as_secs() {
                (log.second, log.refusals) = (now.as_secs(), 0);
            }
            log.refusals += 1;
            if log.refusals > MOST_REFUSALS {
                log.unlogged += 1;
                return Ok(());
            }
            entry.unlogged = std::mem::take(&mut log.unlogged);
        }
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        if log.bytes + line.len() as u64 > self.most_bytes {
            std::fs::rename(&self.path, self.path.with_extension("old.jsonl"))?;
            (log.file, log.bytes) = (open(&self.path)?, 0);
        }
        log.bytes += line.len() as u64;
        log.file.write_all(&line)
    }
}
