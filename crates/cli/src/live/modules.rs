//! Modules of a folder, for sessions that start while the machine runs.
//!
//! Contract: one module is loaded at a time, for all clients, and never on the thread of the
//! run. Only plain files of the folder itself are read, and no error quotes what is in them.

use super::request::shown;
use crate::commands::{decode_module, sentence};
use crate::manifest::grouped;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use wavelock_system::{LaterModule, MOST_INPUT_BYTES};

/// Modules that are kept loaded, to start many sessions of one.
const MOST_KEPT: usize = 8;

/// The modules of a folder.
pub(crate) struct Modules {
    folder: PathBuf,
    shelf: Arc<Mutex<Shelf>>,
}

/// What has been loaded, from any folder.
#[derive(Default)]
pub(crate) struct Shelf {
    /// The last modules that were loaded, each as its file was then.
    kept: Vec<(PathBuf, Stamp, LaterModule)>,
}

/// What tells a file from an older one under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    length: u64,
    changed: Option<SystemTime>,
}

impl Stamp {
    /// Of a plain file: opening another one could wait, or read what is elsewhere.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = path.symlink_metadata()?;
        match file.is_file() {
            true => Ok(Self { length: file.len(), changed: file.modified().ok() }),
            false => Err(io::Error::other("it is no plain file")),
        }
    }
}

impl Modules {
    pub(crate) fn new(folder: &Path, shelf: Arc<Mutex<Shelf>>) -> Self {
        Self { folder: folder.into(), shelf }
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The module of a file of the folder; the error does not name the file.
    pub(crate) fn load(&self, name: &str) -> Result<LaterModule, String> {
        let mut parts = Path::new(name).components();
        let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !is_plain || name.ends_with(['/', '.']) {
            return Err("this is no name of a file in the folder of modules".to_owned());
        }
        let path = self.folder.join(name);
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&path).map_err(|error| error.to_string())?;
        let is_same =
            |(kept, of, _): &&(PathBuf, Stamp, LaterModule)| *kept == path && *of == stamp;
        if let Some((.., module)) = shelf.kept.iter().find(is_same) {
            return Ok(module.clone());
        }
        let module = read(&path, stamp)?;
        shelf.keep(path, stamp, &module);
        Ok(module)
    }
}

/// Reads and loads a file.
fn read(path: &Path, stamp: Stamp) -> Result<LaterModule, String> {
    let too_large = |found: u64| {
        let (found, most) = (grouped(found), grouped(MOST_INPUT_BYTES));
        format!("it has {found} bytes: at most {most} are allowed")
    };
    if stamp.length > MOST_INPUT_BYTES {
        return Err(too_large(stamp.length));
    }
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(stamp.length + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    let is_same = Stamp::of(path).is_ok_and(|now| now == stamp);
    if !is_same || bytes.len() as u64 != stamp.length {
        return Err("it changed while it was read".to_owned());
    }
    let loaded = decode_module(path, &bytes).map_err(|failure| {
        // Only the first line: the others quote the file, which may be no module at all.
        let words = sentence(&failure);
        let words = words.lines().next().unwrap_or_default();
        let quoted = format!("`{}` ", path.display());
        shown(words.strip_prefix(&quoted).unwrap_or(words))
    })?;
    match loaded.bytes.len() as u64 {
        found if found > MOST_INPUT_BYTES => Err(too_large(found)),
        _ => Ok(LaterModule::new(loaded.module, loaded.bytes.into())),
    }
}

impl Shelf {
    fn keep(&mut self, path: PathBuf, stamp: Stamp, module: &LaterModule) {
        self.kept.retain(|(kept, ..)| *kept != path);
        if self.kept.len() >= MOST_KEPT {
            self.kept.remove(0);
        }
        self.kept.push((path, stamp, module.clone()));
    }
}
