//! Rules about every tracked text file: absolute paths, registries, links between documents, named
//! tests, the code map.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::tree::{File, Finding, Tree};

/// The first components of absolute paths that only exist on one machine.
const MACHINE_ROOTS: [&str; 5] = ["work", "tmp", "root", "home", "Users"];

/// The registries that a lock file may refer to.
const PUBLIC_REGISTRIES: [&str; 4] = [
    concat!("github.com/rust-lang/", "crates.io-index"),
    concat!("index.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("pypi", ".org"),
];

pub(super) fn machine_paths(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(found) = machine_path(line) {
                let message = format!(
                    "`{found}` is an absolute path of one machine: use a relative path, or find the tool by name"
                );
                findings.push(Finding {
                    rule: "machine-path",
                    path: file.path.clone(),
                    line: index + 1,
                    message,
                });
            }
        }
    }
}

/// The first such path in a line.
fn machine_path(line: &str) -> Option<String> {
    let is_path = |character: char| character.is_alphanumeric() || "_-.~/}".contains(character);
    for (at, _) in line.match_indices('/') {
        let begins = !line[..at].chars().next_back().is_some_and(is_path);
        let first: String = line[at + 1..]
            .chars()
            .take_while(|character| character.is_alphanumeric() || "_-.".contains(*character))
            .collect();
        if begins && MACHINE_ROOTS.contains(&first.as_str()) {
            return Some(format!("/{first}"));
        }
    }
    None
}

pub(super) fn registries(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        let is_lock = file.parts().next_back().is_some_and(|name| {
            name.ends_with(".lock") || name.ends_with("-lock.json") || name.ends_with("-lock.yaml")
        });
        for (index, line) in file.text.lines().enumerate() {
            for address in addresses(line) {
                let message = if is_lock
                    && !PUBLIC_REGISTRIES.iter().any(|registry| address.starts_with(registry))
                {
                    format!("`{address}` in a lock file is not a public registry")
                } else if is_private(address) {
                    format!("`{address}` is an address of one machine or network")
                } else {
                    continue;
                };
                findings.push(Finding {
                    rule: "registry",
                    path: file.path.clone(),
                    line: index + 1,
                    message,
                });
            }
        }
    }
}

/// What follows the scheme of every web address in a line.
fn addresses(line: &str) -> impl Iterator<Item = &str> {
    let ends = |character: char| character.is_whitespace() || "\"'`<>)]}".contains(character);
    line.match_indices("://")
        .filter(|(at, _)| line[..*at].ends_with("http") || line[..*at].ends_with("https"))
        .map(move |(at, scheme)| {
            let rest = &line[at + scheme.len()..];
            &rest[..rest.find(ends).unwrap_or(rest.len())]
        })
}

/// Whether an address contains credentials, or its host is a number or a name without a domain.
/// `localhost` is allowed.
fn is_private(address: &str) -> bool {
    let authority = address.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("").split(':').next().unwrap_or("");
    let is_own = matches!(host, "localhost" | "127.0.0.1" | "") || host.contains(['$', '{', '*']);
    let is_number = host.chars().all(|character| character.is_ascii_digit() || character == '.');
    authority.contains('@') || (!is_own && (is_number || !host.contains('.')))
}

pub(super) fn links(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in targets(&file.text) {
            let path = target.split('#').next().unwrap_or("");
            if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let resolved = resolve(&file.path, path);
            let exists = resolved.as_ref().is_some_and(|resolved| leads_somewhere(tree, resolved));
            if !exists {
                findings.push(Finding {
                    rule: "link",
                    path: file.path.clone(),
                    line,
                    message: format!("`{target}` does not exist"),
                });
            }
        }
    }
}

/// The targets of the links of a document, outside code.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, opening) in line.match_indices("](") {
            let rest = &line[at + opening.len()..];
            let is_in_code_span = line[..at].matches('`').count() % 2 == 1;
            if let Some(end) = rest.find(')').filter(|_| !is_in_code_span) {
                found.push((index + 1, rest[..end].split(' ').next().unwrap_or("")));
            }
        }
    }
    found
}

/// The path of a relative link in `from`, or `None` if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Whether a path is a tracked file or a directory with one. Binary files are not in the tree, so
/// for them only their directory is checked.
fn leads_somewhere(tree: &Tree, path: &str) -> bool {
    let folder = format!("{path}/");
    path.is_empty()
        || tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
}

/// The index page of each directory of pages.
const INDEXES: [(&str, &str); 3] = [
    ("docs", "docs/README.md"),
    ("docs/performance", "docs/performance.md"),
    ("docs/spec", "docs/spec/README.md"),
];

pub(super) fn docs_index(tree: &Tree, findings: &mut Vec<Finding>) {
    for (folder, index) in INDEXES {
        let text = tree.file(index).map_or("", |file| file.text.as_str());
        let linked: BTreeSet<String> =
            targets(text).into_iter().filter_map(|(_, target)| resolve(index, target)).collect();
        let pages = tree.files.iter().filter(|file| {
            file.path.ends_with(".md")
                && file.path.rsplit_once('/').is_some_and(|(parent, _)| parent == folder)
        });
        for page in pages.filter(|page| page.path != index && !linked.contains(&page.path)) {
            let message = format!("is not linked from {index}: add it there");
            findings.push(Finding {
                rule: "docs-index",
                path: page.path.clone(),
                line: 0,
                message,
            });
        }
    }
}

/// The documents that name tests in code spans.
const NAMING_TESTS: [&str; 3] = ["CAVEATS.md", "docs/proofs.md", "docs/spec/laws.md"];

pub(super) fn named_tests(tree: &Tree, findings: &mut Vec<Finding>) {
    let rust = tree.files.iter().filter(|file| file.is_rust());
    let mut functions: BTreeSet<&str> = rust
        .flat_map(|file| Source::new(&file.text).functions())
        .map(|function| function.name)
        .collect();
    let proofs = tree.files.iter().filter(|file| file.path.ends_with(".v"));
    functions.extend(proofs.flat_map(|file| file.text.lines()).filter_map(theorem));
    for document in NAMING_TESTS.iter().filter_map(|path| tree.file(path)) {
        for (index, line) in document.text.lines().enumerate() {
            for name in line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|name| is_test_name(name) && !functions.contains(name))
            {
                let message = format!("there is no test or theorem `{name}`");
                findings.push(Finding {
                    rule: "named-test",
                    path: document.path.clone(),
                    line: index + 1,
                    message,
                });
            }
        }
    }
}

/// The name that a line of a Coq file states or defines.
fn theorem(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let keyword = words.next()?;
    let states = ["Theorem", "Lemma", "Corollary", "Example", "Definition", "Fixpoint"];
    let name = states.contains(&keyword).then(|| words.next()).flatten()?;
    Some(name.trim_end_matches(':'))
}

/// Four or more words in snake case: only tests and theorems have such names.
fn is_test_name(name: &str) -> bool {
    name.matches('_').count() >= 3
        && name.chars().all(|character| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_'
        })
}

pub(super) fn code_map(tree: &Tree, findings: &mut Vec<Finding>) {
    const DOCUMENT: &str = "ARCHITECTURE.md";
    let folders = tree.crate_folders();
    if folders.is_empty() {
        return;
    }
    let lines = tree.file(DOCUMENT).map_or("", |file: &File| file.text.as_str()).lines();
    let mapped: Vec<&str> =
        lines.filter_map(|line| line.strip_prefix("- `crates/")?.split('`').next()).collect();
    if mapped != folders {
        let message = format!("the code map lists {mapped:?}, but `ls crates` lists {folders:?}");
        findings.push(Finding { rule: "code-map", path: DOCUMENT.to_owned(), line: 0, message });
    }
}
