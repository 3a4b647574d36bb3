//! Names that the deterministic crates must not use. Only test code is exempt.

use crate::source::Source;
use crate::token::Kind;
use crate::tree::{File, Finding, Tree};

/// The crates whose behaviour is a function of program, manifest and inputs.
const DETERMINISTIC: [&str; 6] = ["abi", "kernel", "certify", "module", "machine", "system"];

/// The crates with neither floats nor strings.
const PLAIN: [&str; 3] = ["abi", "kernel", "certify"];

/// Words that access the host, by what they access. A lower-case word counts as part of a path, as
/// a macro or in a `use`, but not as the name of a field or variable.
const AMBIENT: &[(&str, &[&str])] = &[
    ("a clock", &["Instant", "SystemTime", "UNIX_EPOCH", "Duration"]),
    ("the environment", &["env", "option_env"]),
    (
        "threads",
        &["thread", "thread_local", "Mutex", "RwLock", "Condvar", "mpsc", "rayon", "tokio"],
    ),
    (
        "unordered iteration",
        &[
            "HashMap",
            "HashSet",
            "hash_map",
            "hash_set",
            "hashbrown",
            "ahash",
            "FxHashMap",
            "FxHashSet",
        ],
    ),
    (
        "a random source",
        &[
            "RandomState",
            "DefaultHasher",
            "rand",
            "rand_core",
            "fastrand",
            "getrandom",
            "OsRng",
            "thread_rng",
        ],
    ),
];

/// Words that make or store a string.
const STRINGS: [&str; 3] = ["String", "to_string", "format"];

pub(super) fn ambient(tree: &Tree, findings: &mut Vec<Finding>) {
    each_token(tree, &DETERMINISTIC, |file, source, index| {
        let token = &source.tokens[index];
        let brings = AMBIENT
            .iter()
            .find(|(_, words)| token.kind == Kind::Identifier && words.contains(&token.text));
        let is_module = token.text.starts_with(|first: char| first.is_ascii_lowercase());
        if let Some((what, _)) = brings
            && (!is_module || source.is_path_part(index))
        {
            let message = format!(
                "`{}` brings in {what}; it enters as a recorded input or not at all",
                token.text
            );
            findings.push(Finding {
                rule: "ambient",
                path: file.path.clone(),
                line: token.line,
                message,
            });
        }
    });
}

pub(super) fn floats(tree: &Tree, findings: &mut Vec<Finding>) {
    each_token(tree, &PLAIN, |file, source, index| {
        let token = &source.tokens[index];
        let is_type =
            token.kind == Kind::Identifier && matches!(token.text, "f16" | "f32" | "f64" | "f128");
        if is_type || token.kind == Kind::Float {
            let message = format!("`{}` is a float; no decision may rest on one", token.text);
            findings.push(Finding {
                rule: "float",
                path: file.path.clone(),
                line: token.line,
                message,
            });
        }
    });
}

pub(super) fn strings(tree: &Tree, findings: &mut Vec<Finding>) {
    each_token(tree, &PLAIN, |file, source, index| {
        let token = &source.tokens[index];
        if token.kind == Kind::Identifier && STRINGS.contains(&token.text) {
            let message = format!(
                "`{}` makes a string; names are interned on the way in and resolved on the way out",
                token.text
            );
            findings.push(Finding {
                rule: "string",
                path: file.path.clone(),
                line: token.line,
                message,
            });
        }
    });
}

/// Visits every token of the non-test code of these crates.
fn each_token(tree: &Tree, folders: &[&str], mut visit: impl FnMut(&File, &Source<'_>, usize)) {
    for folder in folders {
        let tests = test_files(tree, folder);
        let shipped = |file: &&File| {
            file.is_rust()
                && file.crate_folder() == Some(folder)
                && !file.is_in_test_folder()
                && !tests.contains(&file.path)
        };
        for file in tree.files.iter().filter(shipped) {
            let source = Source::new(&file.text);
            for (index, _) in source.code() {
                visit(file, &source, index);
            }
        }
    }
}

/// The files of a crate that are modules declared for tests only, and their modules in turn.
fn test_files(tree: &Tree, folder: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for file in
        tree.files.iter().filter(|file| file.is_rust() && file.crate_folder() == Some(folder))
    {
        for module in Source::new(&file.text).test_modules() {
            found.extend(module_files(tree, &file.path, module));
        }
    }
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        let text = tree.file(&path).map_or("", |file| file.text.as_str());
        for module in Source::new(text).file_modules() {
            found.extend(module_files(tree, &path, module));
        }
        next += 1;
    }
    found
}

/// The possible files of module `module` declared in `path`, as rustc resolves them.
fn module_files(tree: &Tree, path: &str, module: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let base = if matches!(stem, "lib" | "main" | "mod") {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let candidates = [format!("{base}/{module}.rs"), format!("{base}/{module}/mod.rs")];
    candidates.into_iter().filter(|candidate| tree.file(candidate).is_some()).collect()
}
