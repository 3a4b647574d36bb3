//! "Did you mean": the known word, host operation or file nearest to one that does not exist.

use std::path::{Path, PathBuf};
use wavelock_abi::{HostOperation, WASI_MODULE, WAVELOCK_MODULE};

/// The known word nearest to `written`, if it is near enough: at most a third of its letters differ
/// (a transposition counts once) but not all of them, or it differs only in case or in `-` for `_`.
pub(crate) fn nearest<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let fold = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let folded = fold(written);
    let mut best: Option<(usize, &str)> = None;
    for word in known {
        let other = fold(word);
        if other == folded {
            return Some(word);
        }
        let length = other.chars().count();
        // Skip words much longer than any known one: the edit distance is quadratic.
        if folded.len() > 4 * (length + 4) {
            continue;
        }
        let distance = strsim::osa_distance(&folded, &other);
        let contained = folded.len() >= 4
            && (other.starts_with(&folded) || folded.starts_with(&other) && other.len() >= 4);
        let close = distance <= length.div_ceil(3) && distance < length.max(folded.chars().count());
        if (close || contained) && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, word));
        }
    }
    best.map(|(_, word)| word)
}

/// The host operation probably meant by an import that does not exist: the nearest name in the same
/// module, or else the same name in another module.
pub(crate) fn nearest_import(module: &str, name: &str) -> Option<HostOperation> {
    let of = |module: &'static str| {
        HostOperation::ALL.iter().filter(move |operation| operation.module() == module)
    };
    let own = [WAVELOCK_MODULE, WASI_MODULE].into_iter().find(|known| *known == module);
    let near = own.and_then(|own| {
        nearest(name, of(own).map(|operation| operation.import()))
            .and_then(|near| HostOperation::find(own, near))
    });
    near.or_else(|| {
        HostOperation::ALL
            .iter()
            .copied()
            .find(|operation| operation.import() == name && operation.module() != module)
    })
}

/// A suggestion from [`nearest_import`] to append to an error; empty if there is none.
pub(crate) fn did_you_mean(module: &str, name: &str) -> String {
    match nearest_import(module, name) {
        Some(meant) if meant.module() == module => format!("; did you mean `{}`?", meant.import()),
        Some(meant) => format!("; did you mean `{}` `{}`?", meant.module(), meant.import()),
        None => String::new(),
    }
}

/// Maximum number of directory entries compared with a name.
const MOST_ENTRIES: usize = 10_000;

/// A suggestion to append to the error for a missing path: which directory of it does not exist,
/// and a similar path that does. Empty if there is none.
pub(crate) fn missing_path(path: &Path) -> String {
    // The shortest missing prefix of the path: its parent exists.
    let missing = path
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && part.symlink_metadata().is_err())
        .last();
    let Some(missing) = missing else { return String::new() };
    let folder = if missing == path {
        String::new()
    } else {
        format!("; there is no directory `{}`", missing.display())
    };
    match near_path(path, missing) {
        Some(near) => format!("{folder}; did you mean `{}`?", near.display()),
        None => folder,
    }
}

/// The path with its missing component replaced by the nearest sibling that exists. An inner
/// component must be a directory and the last one a file; the extension must be near by itself, so
/// that a manifest is not suggested for a module.
fn near_path(path: &Path, missing: &Path) -> Option<PathBuf> {
    let beside = missing.parent()?;
    let folder = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
    let wants_folder = missing != path;
    let entries = folder.read_dir().ok()?.take(MOST_ENTRIES).filter_map(Result::ok);
    let extension =
        |path: &Path| path.extension().and_then(|extension| extension.to_str().map(str::to_owned));
    let alike = |entry: &Path| match (extension(missing), extension(entry)) {
        (Some(written), Some(other)) => nearest(&written, [other.as_str()]).is_some(),
        _ => true,
    };
    let fitting = entries
        .map(|entry| entry.path())
        .filter(|entry| entry.is_dir() == wants_folder && alike(entry));
    let mut names: Vec<String> =
        fitting.filter_map(|entry| entry.file_name()?.to_str().map(str::to_owned)).collect();
    // The order of directory entries is unspecified.
    names.sort_unstable();
    let near =
        beside.join(nearest(missing.file_name()?.to_str()?, names.iter().map(String::as_str))?);
    let whole = near.join(path.strip_prefix(missing).ok()?);
    Some(if wants_folder && whole.exists() { whole } else { near })
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, missing_path, nearest};
    use std::path::Path;

    #[test]
    fn missing_paths_get_suggestions() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let said = |path: &str| {
            missing_path(&source.join(path)).replace(&format!("{}/", source.display()), "")
        };
        assert_eq!(said("suggets.rs"), "; did you mean `suggest.rs`?");
        assert_eq!(
            said("command/run.rs"),
            "; there is no directory `command`; did you mean `commands/run.rs`?"
        );
        assert_eq!(
            said("command/of_my_own.rs"),
            "; there is no directory `command`; did you mean `commands`?"
        );
        assert_eq!(said("elsewhere/deeper/run.rs"), "; there is no directory `elsewhere`");
        assert_eq!(said("nothing_like_it"), "");
        assert_eq!(said("suggest.toml"), "", "another kind of file");
        assert_eq!(said("suggest.r"), "; did you mean `suggest.rs`?");
        assert_eq!(said("suggest"), "; did you mean `suggest.rs`?");
        assert_eq!(said("suggest.rs"), "", "it exists");
        assert_eq!(said("comands"), "", "a directory cannot be read");
        assert_eq!(missing_path(Path::new("")), "");
        assert_eq!(
            missing_path(Path::new("Cargo.tom")),
            "; did you mean `Cargo.toml`?",
            "tests run in the directory of the crate"
        );
    }

    #[test]
    fn imports_are_suggested_from_their_module_or_by_name_from_others() {
        assert_eq!(did_you_mean("wavelock", "yeild"), "; did you mean `yield`?");
        assert_eq!(did_you_mean("wavelock", "tryrecv"), "; did you mean `try_recv`?");
        assert_eq!(did_you_mean("wavelock", "open_file"), "");
        assert_eq!(
            did_you_mean("wavelock", "fd_write"),
            "; did you mean `wasi_snapshot_preview1` `fd_write`?"
        );
        assert_eq!(
            did_you_mean("wasi_unstable", "fd_write"),
            "; did you mean `wasi_snapshot_preview1` `fd_write`?"
        );
        assert_eq!(did_you_mean("env", "spawn"), "; did you mean `wavelock` `spawn`?");
        assert_eq!(did_you_mean("env", "abort"), "");
    }

    #[test]
    fn nearest_finds_typos_and_ignores_unrelated_words() {
        let known = ["lanes", "policy", "quantum_cycles", "frame_cycles", "seed"];
        assert_eq!(nearest("lane", known), Some("lanes"));
        assert_eq!(nearest("frame-cycles", known), Some("frame_cycles"));
        assert_eq!(nearest("FRAME_CYCLES", known), Some("frame_cycles"));
        assert_eq!(nearest("quantum", known), Some("quantum_cycles"));
        assert_eq!(nearest("sede", known), Some("seed"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("b", ["a", "c"]), None, "nothing of it is left");
    }
}
