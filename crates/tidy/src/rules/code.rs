//! Rules about any Rust file: its header, the length of its functions and lines, ignored tests,
//! marks of unfinished work, unsafe code.

use crate::source::Source;
use crate::token::{Kind, Token};
use crate::tree::{File, Finding, Tree};

/// A longer function needs a comment that says why.
const FUNCTION_LINES: usize = 100;

/// Maximum length of a function in the engine's crates, whatever the reason.
const ENGINE_FUNCTION_LINES: usize = 300;

/// The directories of the engine's crates.
const ENGINE: [&str; 2] = ["machine", "module"];

/// The start of the comment above a long function.
const REASON: &str = "// Long: ";

/// The files that may contain unsafe code, one per crate that needs it; the root of such a crate
/// denies it everywhere else.
const UNSAFE_HOMES: [&str; 5] = [
    "crates/c/src/exports.rs",
    "crates/cli/src/allocator.rs",
    "crates/compiled/src/native.rs",
    "crates/machine/src/raw.rs",
    "crates/waves/src/handover.rs",
];

/// Maximum width of a line.
const COLUMNS: usize = 100;

/// Maximum number of fields of the kernel's `Lane`: its caches belong in a struct of their own.
const LANE_FIELDS: usize = 30;

/// Directories of guests with prebuilt modules. These contain the line numbers of their sources, so
/// wrapping a line would make a rebuilt module differ from the committed one.
const PREBUILT: [&str; 2] = ["guests/", "examples/"];

/// Marks of unfinished work in comments and other text.
const MARKS: [&str; 3] = ["TODO", "FIXME", "XXX"];

fn rust_files(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.is_rust())
}

pub(super) fn headers(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in rust_files(tree) {
        let source = Source::new(&file.text);
        let says_something = |token: &Token<'_>| {
            token.kind == Kind::InnerDoc && token.text.trim_start_matches("//!").trim().len() >= 10
        };
        if !source.tokens.first().is_some_and(says_something) || !file.text.starts_with("//!") {
            let message = "does not start with a `//!` header that describes it".to_owned();
            findings.push(Finding { rule: "header", path: file.path.clone(), line: 1, message });
        }
    }
}

pub(super) fn long_functions(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in rust_files(tree) {
        let source = Source::new(&file.text);
        for function in source.functions() {
            let lines = function.last_line - function.line + 1;
            if lines > ENGINE_FUNCTION_LINES
                && file.crate_folder().is_some_and(|folder| ENGINE.contains(&folder))
            {
                let message = format!(
                    "`{}` has {lines} lines; in {} no function has more than {ENGINE_FUNCTION_LINES}",
                    function.name,
                    ENGINE.join(" and ")
                );
                findings.push(Finding {
                    rule: "long-function",
                    path: file.path.clone(),
                    line: function.line,
                    message,
                });
            } else if lines > FUNCTION_LINES && !has_reason(&file.text, function.line) {
                let message = format!(
                    "`{}` has {lines} lines; a function over {FUNCTION_LINES} lines needs a comment above it: `{REASON}...`",
                    function.name
                );
                findings.push(Finding {
                    rule: "long-function",
                    path: file.path.clone(),
                    line: function.line,
                    message,
                });
            }
        }
    }
}

/// Whether the comments and attributes directly above a line contain a reason of at least a few
/// words.
fn has_reason(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let above = lines[..line - 1]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("//") || line.starts_with('#') || line.ends_with(']'));
    above
        .into_iter()
        .any(|line| line.strip_prefix(REASON).is_some_and(|reason| reason.trim().len() >= 10))
}

pub(super) fn columns(tree: &Tree, findings: &mut Vec<Finding>) {
    let is_prebuilt = |file: &&File| PREBUILT.iter().any(|folder| file.path.starts_with(folder));
    for file in rust_files(tree).filter(|file| !is_prebuilt(file)) {
        let long: Vec<(usize, &str)> = (1..)
            .zip(file.text.lines())
            .filter(|(_, text)| text.chars().count() > COLUMNS && !is_table_in_comment(text))
            .collect();
        if long.is_empty() {
            continue;
        }
        let source = Source::new(&file.text);
        let by_hand = source.lines_by_hand();
        for (line, text) in long {
            let width = text.chars().count() - literal_characters(&source, line);
            let is_row = by_hand.iter().any(|lines| lines.contains(&line));
            if width > COLUMNS && !is_row {
                let message = format!("{width} columns: a line has at most {COLUMNS}");
                findings.push(Finding { rule: "columns", path: file.path.clone(), line, message });
            }
        }
    }
}

pub(super) fn lane_fields(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in rust_files(tree).filter(|file| file.path.starts_with("crates/kernel/src/")) {
        let source = Source::new(&file.text);
        for (line, fields) in source.fields_of("Lane") {
            if fields > LANE_FIELDS {
                let message = format!("`Lane` has {fields} fields: at most {LANE_FIELDS}");
                let path = file.path.clone();
                findings.push(Finding { rule: "lane-fields", path, line, message });
            }
        }
    }
}

/// A row of a table in a comment cannot be wrapped.
fn is_table_in_comment(line: &str) -> bool {
    line.trim_start()
        .strip_prefix("//")
        .is_some_and(|comment| comment.trim_start_matches(['/', '!']).trim_start().starts_with('|'))
}

/// The number of characters of a line that belong to string literals.
fn literal_characters(source: &Source<'_>, line: usize) -> usize {
    source
        .tokens
        .iter()
        .filter(|token| {
            token.kind == Kind::Literal && (token.line..=token.last_line).contains(&line)
        })
        .filter_map(|token| token.text.lines().nth(line - token.line))
        .map(|part| part.chars().count())
        .sum()
}

pub(super) fn ignored_tests(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in rust_files(tree) {
        let source = Source::new(&file.text);
        let mut find = |line: usize, message: &str| {
            findings.push(Finding {
                rule: "ignored-test",
                path: file.path.clone(),
                line,
                message: message.to_owned(),
            });
        };
        for attribute in source.attributes() {
            let inside = source.inside(attribute);
            let first = inside.first().map_or("", |token| token.text);
            let conditional = first == "cfg_attr" && inside.iter().any(|token| token.is("ignore"));
            if first == "ignore" || conditional {
                find(
                    source.tokens[attribute.start].line,
                    "an ignored test checks nothing: run it or remove it",
                );
            }
        }
        for comment in source.comments().filter(|comment| comment.kind != Kind::Comment) {
            let fence = comment.text.trim_start_matches(['/', '!', '*']).trim().strip_prefix("```");
            if fence.is_some_and(|words| words.split([',', ' ']).any(|word| word == "ignore")) {
                find(comment.line, "an ignored example checks nothing: run it or mark it as text");
            }
        }
    }
}

pub(super) fn unfinished(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        let mut find = |line: usize, mark: &str| {
            let message = format!(
                "`{mark}` marks unfinished work: finish it, or write down plainly what is not done"
            );
            findings.push(Finding { rule: "unfinished", path: file.path.clone(), line, message });
        };
        if !file.is_rust() {
            for (index, line) in file.text.lines().enumerate() {
                marks_in(line).for_each(|mark| find(index + 1, mark));
            }
            continue;
        }
        let source = Source::new(&file.text);
        for (index, token) in source.tokens.iter().enumerate() {
            if token.kind.is_comment() {
                marks_in(token.text).for_each(|mark| find(token.line, mark));
            }
            if (token.is("todo") || token.is("unimplemented"))
                && source.after(index).is_some_and(|next| next.is("!"))
            {
                find(token.line, token.text);
            }
        }
    }
}

/// The marks that occur as separate words in a text.
fn marks_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| MARKS.contains(word))
}

pub(super) fn unsafe_code(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in
        rust_files(tree).filter(|file| file.crate_folder().is_some() && !file.is_in_test_folder())
    {
        let source = Source::new(&file.text);
        let mut find = |line: usize, message: String| {
            findings.push(Finding { rule: "unsafe", path: file.path.clone(), line, message })
        };
        if is_crate_root(&file.path) {
            let has_home =
                UNSAFE_HOMES.iter().any(|home| home.split('/').nth(1) == file.crate_folder());
            let levels: &[&str] = if has_home { &["forbid", "deny"] } else { &["forbid"] };
            let named = |level: &&str| {
                source
                    .attributes()
                    .iter()
                    .any(|attribute| attribute.inner && spells(&source, *attribute, level))
            };
            if !levels.iter().any(named) {
                find(
                    1,
                    format!("the crate root needs `#![{}(unsafe_code)]`", levels.join("` or `#![")),
                );
            }
        }
        if !UNSAFE_HOMES.contains(&file.path.as_str()) {
            for (_, token) in source.code().filter(|(_, token)| token.is("unsafe")) {
                find(
                    token.line,
                    format!("unsafe code lives in {} alone", UNSAFE_HOMES.join(" and ")),
                );
            }
        }
    }
}

fn spells(source: &Source<'_>, attribute: crate::source::Attribute, level: &str) -> bool {
    let inside = source.inside(attribute);
    inside.first().is_some_and(|first| first.is(level))
        && inside.iter().any(|token| token.is("unsafe_code"))
}

/// Whether a path is the root of a library or binary of a crate.
fn is_crate_root(path: &str) -> bool {
    let inside: Vec<&str> = path.split('/').skip(2).collect();
    matches!(inside.as_slice(), ["src", "lib.rs" | "main.rs"] | ["src", "bin", _])
}
