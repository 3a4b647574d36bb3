//! Files of a server. Every write that matters is made under another name, made durable, and then
//! renamed: a kill at any moment leaves the old file or the new one.
//!
//! ```text
//!   FOLDER/lock                          one server at a time
//!   FOLDER/tokens                        hashes of tokens, 0600
//!   FOLDER/admin.token                   the first token, 0600
//!   FOLDER/audit.jsonl                   who changed what
//!   FOLDER/modules/HASH.wasm             uploaded modules
//!   FOLDER/machines/NAME/manifest.toml   as it was created, with its modules
//!   FOLDER/machines/NAME/pace.json       rate, and whether it runs
//!   FOLDER/machines/NAME/segments/NUMBER.trace
//! ```

use crate::problem::Problem;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a name.
pub(crate) const MOST_NAME: usize = 64;

/// A name that is safe as a file name, in a path, and in a label: machines and tokens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn new(text: &str) -> Result<Self, Problem> {
        let is_good = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && text.len() <= MOST_NAME && text.bytes().all(is_good) {
            return Ok(Self(text.into()));
        }
        let shown: String = text.chars().take(MOST_NAME).filter(|c| !c.is_control()).collect();
        Err(Problem::invalid(format!(
            "`{shown}` is no name: use 1 to {MOST_NAME} of a-z, 0-9, - and _, the first a letter \
             or digit"
        )))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name of a module file in a manifest: plain, so that it cannot leave its folder.
pub(crate) fn check_file_name(name: &str) -> Result<(), Problem> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = !name.is_empty() && name.len() <= MOST_NAME && !name.starts_with('.');
    if fits && name.bytes().all(is_good) {
        return Ok(());
    }
    let shown: String = name.chars().take(MOST_NAME).filter(|c| !c.is_control()).collect();
    Err(Problem::invalid(format!(
        "module `{shown}` is no plain file name: use letters, digits, -, _ and ., at most \
         {MOST_NAME}"
    )))
}

/// Makes a file readable for its owner alone, before anything is written to it.
pub(crate) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Replaces a file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// The folder of a machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineFolder(pub(crate) PathBuf);

impl MachineFolder {
    /// Makes an empty one.
    pub(crate) fn make(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(path.join("segments"))?;
        fs::create_dir_all(path.join("modules"))?;
        Ok(Self(path))
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.0.join("manifest.toml")
    }

    pub(crate) fn modules(&self) -> PathBuf {
        self.0.join("modules")
    }

    pub(crate) fn pace(&self) -> PathBuf {
        self.0.join("pace.json")
    }

    pub(crate) fn segment(&self, number: u64) -> PathBuf {
        self.0.join("segments").join(format!("{number:08}.trace"))
    }

    /// A segment that is not complete enough to be recovered from.
    pub(crate) fn new_segment(&self) -> PathBuf {
        self.0.join("segments").join("next.new")
    }

    /// The segments, ascending, with their sizes.
    pub(crate) fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.0.join("segments"))? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".trace"));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                found.push((number, entry.metadata()?.len()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Makes a segment that was written and synchronised the newest, and removes the oldest.
    pub(crate) fn add_segment(&self, number: u64, keep: u64) -> io::Result<()> {
        fs::rename(self.new_segment(), self.segment(number))?;
        sync_folder(&self.0.join("segments"))?;
        for (old, _) in self.segments()? {
            if old.saturating_add(keep) <= number {
                fs::remove_file(self.segment(old))?;
            }
        }
        Ok(())
    }
}

/// Removes a folder: first its name, then its contents.
pub(crate) fn remove(folder: &Path, trash: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(trash);
    fs::rename(folder, trash)?;
    folder.parent().map_or(Ok(()), sync_folder)?;
    fs::remove_dir_all(trash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_folder_are_refused() {
        let bad = ["", ".", "..", "a/b", "../a", "a\\b", "a b", "A", "-a", "_a", "a\0", "é", "a."];
        for name in bad {
            assert!(Name::new(name).is_err(), "{name:?}");
        }
        assert!(Name::new(&"a".repeat(65)).is_err());
        assert!(Name::new(&"a".repeat(64)).is_ok() && Name::new("0-a_b").is_ok());
        for name in ["", ".", "..", "a/b", "/a", ".a", "a\\b", "a\n", "a:b"] {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
        assert!(check_file_name("Bot-1_a.wasm").is_ok());
    }
}
