//! Files on the way in, each read whole, each with a bound; and those of results, asked for before
//! there is one.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::manifest::grouped;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use wavelock_trace::MAGIC;

/// The largest manifest or profile file, in bytes.
pub(super) const MOST_TEXT_BYTES: u64 = 16 << 20;
/// The largest module, input or report file, in bytes.
pub(super) const MOST_DATA_BYTES: u64 = 1 << 30;

/// The bytes of a file, at most `most` of them.
pub(super) fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
    read_bounded(file, path, most)
}

/// Whether a file is a trace or a snapshot, by how it begins.
pub(super) fn is_trace(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == MAGIC
}

/// A trace or a snapshot, to be read.
pub(super) fn open_trace(path: &Path) -> Result<File, Failure> {
    if path.is_dir() {
        return Err(Failure::new(
            Exit::Host,
            format!("`{}` is a folder, not a trace or a snapshot", path.display()),
        ));
    }
    File::open(path).map_err(|error| Failure::file("read", path, &error))
}

/// The file of a result that is still to be made, and whether it is new: what is there already
/// stays until there is something to put in its place.
pub(super) fn reserve(path: &Path) -> Result<(File, bool), Failure> {
    let is_new = !path.exists();
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map(|file| (file, is_new)).map_err(|error| Failure::file("write", path, &error))
}

/// Whether a result could be written to a file. Asked before a long way, so that it is not gone for
/// nothing; what is there stays.
pub(super) fn writable(path: &Path) -> Result<(), Failure> {
    let (_, is_new) = reserve(path)?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The refusal of a trace where a machine or module is wanted.
pub(super) fn not_a_trace(path: &Path, wanted: &str) -> Failure {
    let message = format!(
        "`{}` is a trace or a snapshot, not {wanted}: `wavelock replay` runs a trace again, `wavelock resume` runs a snapshot on",
        path.display()
    );
    Failure::new(Exit::Refused, message)
}

/// The bytes of a stream that `path` names, at most `most` of them.
pub(super) fn read_bounded(stream: impl Read, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    stream
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file("read", path, &error))?;
    if bytes.len() as u64 > most {
        let message = format!(
            "`{}` is larger than {} bytes, the most that is read",
            path.display(),
            grouped(most)
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(bytes)
}
