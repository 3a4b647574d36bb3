//! Third-party dependencies: declared once, in the root manifest, each with its reason.

use crate::tree::{Finding, Tree};

/// An entry of a dependency table: its line, its value, and its comment.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    value: &'a str,
    has_reason: bool,
}

pub(super) fn reasons(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.parts().next_back() == Some("Cargo.toml")) {
        let mut find = |line: usize, message: String| {
            findings.push(Finding { rule: "reason", path: file.path.clone(), line, message })
        };
        let is_root = file.text.contains("[workspace]");
        for entry in entries(&file.text) {
            let is_local = ["path =", "path=", "workspace = true", "workspace=true"]
                .iter()
                .any(|key| entry.value.contains(key));
            if !is_local && !entry.has_reason {
                find(
                    entry.line,
                    format!(
                        "`{}` is a third-party dependency without a reason: add a comment above or beside it",
                        entry.name
                    ),
                );
            }
            // A package of another workspace cannot inherit from the root manifest.
            let is_elsewhere = file.text.lines().any(|line| line.starts_with("workspace = \"../"));
            let is_member =
                !is_elsewhere && (file.crate_folder().is_some() || file.path.starts_with("xtask/"));
            if !is_local && !is_root && is_member {
                find(
                    entry.line,
                    format!(
                        "`{}` is declared here; declare it in the root manifest and use `workspace = true`",
                        entry.name
                    ),
                );
            }
        }
    }
}

/// The entries of every dependency table of a manifest.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_comment = |index: usize| {
        index.checked_sub(1).is_some_and(|above| is_reason(lines[above].strip_prefix('#')))
    };
    let mut found: Vec<Entry<'_>> = Vec::new();
    let (mut in_table, mut in_entry) = (false, false);
    for (index, line) in lines.iter().copied().enumerate() {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or("");
            let parts: Vec<&str> = header.split('.').collect();
            let depends = |from_the_end: usize| {
                parts
                    .iter()
                    .nth_back(from_the_end)
                    .is_some_and(|part| part.ends_with("dependencies"))
            };
            (in_table, in_entry) = (depends(0), depends(1));
            if in_entry {
                found.push(Entry {
                    line: index + 1,
                    name: parts[parts.len() - 1],
                    value: "",
                    has_reason: is_comment(index),
                });
            }
        } else if in_entry && let Some(entry) = found.last_mut() {
            // In the long form, one such line makes the entry local.
            if line.starts_with("path") || line.starts_with("workspace") {
                entry.value = line;
            }
        } else if in_table
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once('=')
        {
            let name = name.trim();
            // `name.workspace = true` keeps its key on the left.
            let value = if name.ends_with(".workspace") { "workspace = true" } else { value };
            let beside = value.rsplit_once('#').map(|(_, comment)| comment);
            found.push(Entry {
                line: index + 1,
                name,
                value,
                has_reason: is_comment(index) || is_reason(beside),
            });
        }
    }
    found
}

/// A comment of at least a few words.
fn is_reason(comment: Option<&str>) -> bool {
    comment.is_some_and(|comment| comment.split_whitespace().count() >= 3)
}
