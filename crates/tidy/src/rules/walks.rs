//! The rule about the walks and the table of fast paths in ARCHITECTURE.md: what they name exists.
//!
//! A code span that ends in `.rs` is a file, as in `kernel/switch.rs`; any other one in a column of
//! [`COLUMNS`] is a function, `name` or `Type::name`. It is defined in the file that its cell names
//! after it, or in any crate if its cell names none.

use crate::source::Source;
use crate::tree::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// The heading and the most rows that a table below it has.
const SECTIONS: [(&str, usize); 2] =
    [("## A yield, a message, a frame", 10), ("## Fast paths", 12)];

/// The columns that name functions.
const COLUMNS: [&str; 3] = ["function", "where", "slow path"];

pub(super) fn walks(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(document) = tree.file(DOCUMENT) else { return };
    let mut report = |line: usize, message: String| {
        findings.push(Finding { rule: "walk", path: DOCUMENT.to_owned(), line, message });
    };
    let (mut section, mut columns, mut rows): (Option<usize>, Vec<&str>, usize) =
        (None, Vec::new(), 0);
    for (index, text) in document.text.lines().enumerate() {
        if text.starts_with("## ") {
            section = SECTIONS.iter().find(|(heading, _)| text == *heading).map(|row| row.1);
        }
        let Some(most) = section else { continue };
        let Some(row) = text.strip_prefix('|') else {
            (columns, rows) = (Vec::new(), 0);
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if columns.is_empty() {
            columns = cells;
            continue;
        }
        if cells.iter().all(|cell| cell.chars().all(|character| "-:".contains(character))) {
            continue;
        }
        rows += 1;
        if rows == most + 1 {
            report(index + 1, format!("this is row {rows} of a table of at most {most}"));
        }
        for (column, cell) in columns.iter().zip(cells) {
            let mut functions = Vec::new();
            for span in cell.split('`').skip(1).step_by(2) {
                if !span.ends_with(".rs") {
                    functions.push(span);
                    continue;
                }
                let path = in_crates(span);
                if path.iter().all(|path| tree.file(path).is_none()) {
                    report(index + 1, format!("there is no file `{span}`: neither {path:?}"));
                } else if COLUMNS.contains(column) {
                    for name in functions.drain(..) {
                        if !path.iter().any(|path| defines(tree, path, name)) {
                            report(index + 1, format!("`{span}` does not define `{name}`"));
                        }
                    }
                }
            }
            if COLUMNS.contains(column) {
                for name in functions.into_iter().filter(|name| !defines(tree, "crates/", name)) {
                    report(index + 1, format!("no crate defines a function `{name}`"));
                }
            }
        }
    }
}

/// The paths that a short one can mean: `kernel/switch.rs` is below `src`, and
/// `kernel/tests/switch.rs` is as it says.
fn in_crates(short: &str) -> [String; 2] {
    let below = short.replacen('/', "/src/", 1);
    [format!("crates/{below}"), format!("crates/{short}")]
}

/// Whether a function of this name (`Type::name`, or `name`) is defined in a file whose path begins
/// so, tests aside.
fn defines(tree: &Tree, path: &str, name: &str) -> bool {
    let (owner, name) = match name.rsplit_once("::") {
        Some((owner, name)) => (owner.rsplit("::").next(), name),
        None => (None, name),
    };
    let files = tree
        .files
        .iter()
        .filter(|file| file.is_rust() && !file.is_in_test_folder() && file.path.starts_with(path));
    files.filter(|file| file.text.contains(name)).any(|file| {
        let source = Source::new(&file.text);
        source.functions().iter().any(|function| {
            let owners = source.owners(function.index);
            function.name == name && owner.is_none_or(|owner| owners.contains(&owner))
        })
    })
}
