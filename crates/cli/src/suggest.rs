//! "Did you mean" for paths: the file nearest to one that does not exist. Words are compared by
//! [`nearest`].

use std::path::{Path, PathBuf};
pub(crate) use wavelock_manifest::{did_you_mean, nearest};

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
    use super::missing_path;
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
}
