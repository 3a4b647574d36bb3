//! Input files, each read completely up to a limit, and output files, opened before there is a
//! result to write.

use crate::arguments::MachineArguments;
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

/// The bytes of a file; fails if there are more than `most`.
pub(super) fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
    read_bounded(file, path, most)
}

/// Whether a file is a trace or a snapshot, by its first bytes.
pub(super) fn is_trace(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == MAGIC
}

/// Opens a trace or a snapshot for reading.
pub(super) fn open_trace(path: &Path) -> Result<File, Failure> {
    if path.is_dir() {
        return Err(Failure::new(
            Exit::Host,
            format!("`{}` is a directory, not a trace or a snapshot", path.display()),
        ));
    }
    File::open(path).map_err(|error| Failure::file("read", path, &error))
}

/// Opens the file of a result that is still to be computed, and whether it was created now. An
/// existing file keeps its contents until the result replaces them.
pub(super) fn reserve(path: &Path) -> Result<(File, bool), Failure> {
    let is_new = !path.exists();
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map(|file| (file, is_new)).map_err(|error| Failure::file("write", path, &error))
}

/// Checks that a result could be written to a file, before the long computation that makes it. An
/// existing file keeps its contents.
pub(super) fn writable(path: &Path) -> Result<(), Failure> {
    let (_, is_new) = reserve(path)?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Refuses to overwrite what a command reads, and to write two results to one file. `outputs` have
/// the flags that name them.
pub(super) fn keep_apart(
    outputs: &[(&str, Option<&Path>)],
    inputs: &[&Path],
) -> Result<(), Failure> {
    // Two names of one existing file are equal so. A device can be written twice.
    let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_kept = |path: &Path| !path.exists() || path.is_file();
    let outputs = outputs.iter().filter_map(|&(flag, path)| Some((flag, path?)));
    let outputs: Vec<(&str, &Path)> = outputs.filter(|(_, path)| is_kept(path)).collect();
    for (at, &(flag, path)) in outputs.iter().enumerate() {
        let shown = path.display();
        let message = if inputs.iter().any(|input| same(input) == same(path)) {
            format!("{flag} would overwrite `{shown}`, which this command reads")
        } else if let Some((other, _)) = outputs[..at].iter().find(|one| same(one.1) == same(path))
        {
            format!("{other} and {flag} would both write to `{shown}`")
        } else {
            continue;
        };
        return Err(Failure::new(Exit::Usage, format!("{message}: give another file")));
    }
    Ok(())
}

/// The error for a trace given where a machine or a module is expected.
pub(super) fn not_a_trace(path: &Path, wanted: &str) -> Failure {
    let message = format!(
        "`{}` is a trace or a snapshot, not {wanted}: use `wavelock replay` to run a trace again, `wavelock resume` to continue a snapshot",
        path.display()
    );
    Failure::new(Exit::Refused, message)
}

/// Refuses flags that change a machine for a file that already contains one.
pub(super) fn refuse_flags(arguments: &MachineArguments) -> Result<(), Failure> {
    let Some(&(flag, resume)) = arguments.given().first() else { return Ok(()) };
    let path = arguments.file.display();
    let fork = resume.map_or_else(String::new, |resume| {
        format!(", or fork the run with `wavelock resume {path} {resume}`")
    });
    let message = format!(
        "{flag} cannot be applied to `{path}`, which contains its machine and inputs: give the manifest or module it was made from{fork}"
    );
    Err(Failure::new(Exit::Usage, message))
}

/// The bytes of a stream, named `path` in errors; fails if there are more than `most`.
pub(super) fn read_bounded(stream: impl Read, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    stream
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file("read", path, &error))?;
    if bytes.len() as u64 > most {
        let message =
            format!("`{}` is larger than the limit of {} bytes", path.display(), grouped(most));
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(bytes)
}
