//! The input of the rules: the tracked files of a repository and its packages, from git and `cargo
//! metadata`, or from values in tests.
//!
//! Only this file reads from disk; the rules are pure functions of a [`Tree`]. Files that are not
//! UTF-8 (prebuilt guests) are left out.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A tracked text file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Its path from the root of the repository, with `/` between parts.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// The parts of its path.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.path.split('/')
    }

    /// The directory under `crates/` that it belongs to.
    #[must_use]
    pub fn crate_folder(&self) -> Option<&str> {
        let (folder, _) = self.path.strip_prefix("crates/")?.split_once('/')?;
        Some(folder)
    }

    /// Whether it is a Rust file.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is in a directory that cargo compiles only for tests, benchmarks and examples.
    #[must_use]
    pub fn is_in_test_folder(&self) -> bool {
        self.parts().any(|part| matches!(part, "tests" | "benches" | "examples"))
    }
}

/// When a dependency is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependencyKind {
    /// By the library or binary.
    Normal,
    /// By tests, benchmarks and examples.
    Development,
    /// By a build script.
    Build,
}

/// One dependency of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The name of the package.
    pub name: String,
    /// When it is used.
    pub kind: DependencyKind,
    /// Whether it comes from outside the workspace.
    pub third_party: bool,
}

/// A package of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// Its published name.
    pub name: String,
    /// The name of the directory of its manifest.
    pub folder: String,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// The file, or the package for rules about packages.
    pub path: String,
    /// The line, from 1; 0 if the finding is about the whole file.
    pub line: usize,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.message)
    }
}

/// Why a tree could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeError(String);

impl fmt::Display for TreeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for TreeError {}

/// The input of the rules.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The tracked text files, in path order.
    pub files: Vec<File>,
    /// The packages of the workspace.
    pub packages: Vec<Package>,
}

impl Tree {
    /// A tree of these files and no packages.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        files.sort_by(|left, right| left.path.cmp(&right.path));
        Self { files, packages: Vec::new() }
    }

    /// The same tree with the packages of `cargo metadata`'s output.
    ///
    /// # Errors
    /// The text is not the output of `cargo metadata`.
    pub fn with_metadata(mut self, metadata: &str) -> Result<Self, TreeError> {
        self.packages = packages(metadata).ok_or_else(|| {
            TreeError("the output of `cargo metadata` has no list of packages".to_owned())
        })?;
        Ok(self)
    }

    /// The tree of a repository: the files that git tracks or would track (every file below `root`
    /// if there is no git), and its packages.
    ///
    /// # Errors
    /// The files or the packages cannot be read.
    pub fn read(root: &Path) -> Result<Self, TreeError> {
        let mut tree = Self::default();
        for path in paths(root)? {
            // A file deleted in the working copy is still listed by git until the deletion is
            // committed.
            if let Ok(bytes) = fs::read(root.join(&path))
                && let Ok(text) = String::from_utf8(bytes)
            {
                tree.files.push(File { path, text });
            }
        }
        tree.files.sort_by(|left, right| left.path.cmp(&right.path));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let metadata = output(
            Command::new(cargo)
                .args(["metadata", "--no-deps", "--format-version", "1"])
                .current_dir(root),
        )?;
        tree.with_metadata(&metadata)
    }

    /// The file at a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The directories under `crates/` that contain a manifest, in `ls` order.
    #[must_use]
    pub fn crate_folders(&self) -> Vec<&str> {
        self.files
            .iter()
            .filter(|file| file.path.split('/').count() == 3 && file.path.ends_with("/Cargo.toml"))
            .filter_map(File::crate_folder)
            .collect()
    }
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String, TreeError> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| TreeError(format!("{shown}: {error}")))?;
    if !output.status.success() {
        return Err(TreeError(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr))));
    }
    String::from_utf8(output.stdout).map_err(|error| TreeError(format!("{shown}: {error}")))
}

/// The paths of the files that git tracks or would track, or of all files if there is no git.
fn paths(root: &Path) -> Result<Vec<String>, TreeError> {
    if root.join(".git").exists() {
        let listed = output(
            Command::new("git")
                .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
                .current_dir(root),
        );
        if let Ok(listed) = listed {
            let mut paths: Vec<String> =
                listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
            paths.sort();
            paths.dedup();
            return Ok(paths);
        }
    }
    let mut found = Vec::new();
    walk(root, "", &mut found)
        .map_err(|error| TreeError(format!("{}: {error}", root.display())))?;
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if !matches!(name.as_str(), ".git" | "target" | "node_modules") {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The packages in the output of `cargo metadata`.
fn packages(metadata: &str) -> Option<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata).ok()?;
    metadata.get("packages")?.as_array()?.iter().map(package).collect()
}

fn package(value: &Value) -> Option<Package> {
    let manifest = value.get("manifest_path")?.as_str()?.replace('\\', "/");
    let folder = manifest.rsplit('/').nth(1)?.to_owned();
    let dependencies =
        value.get("dependencies")?.as_array()?.iter().map(dependency).collect::<Option<_>>()?;
    Some(Package { name: value.get("name")?.as_str()?.to_owned(), folder, dependencies })
}

fn dependency(value: &Value) -> Option<Dependency> {
    let kind = match value.get("kind").and_then(Value::as_str) {
        None => DependencyKind::Normal,
        Some("dev") => DependencyKind::Development,
        Some(_) => DependencyKind::Build,
    };
    Some(Dependency {
        name: value.get("name")?.as_str()?.to_owned(),
        kind,
        third_party: value.get("source").is_some_and(|source| !source.is_null()),
    })
}
