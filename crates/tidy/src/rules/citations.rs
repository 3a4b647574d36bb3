//! Citations of the specification: every cited rule, section or law exists in `docs/spec`.
//!
//! A citation is the name of a page followed by a number or a label: the first rule of a page, or
//! its sections D.5 and D.6. A page defines the labels at the start of its headings and list items.
//! Citations are searched in the comments of Rust files and in the whole text of documents,
//! manifests, scripts and guests; a citation may be wrapped over two lines.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::tree::{File, Finding, Tree};

/// The directory of the pages.
const FOLDER: &str = "docs/spec/";

/// Names of documents outside this repository, which a reader cannot open.
const OUTSIDE: [&str; 5] = ["DESIGN", "DESIGN.md", "STYLE", "STYLE.md", "interface.md"];

/// Words allowed between the name of a page and the label.
const BETWEEN: [&str; 6] = ["section", "sections", "phase", "phases", "rule", "rules"];

pub(super) fn citations(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut pages: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for file in &tree.files {
        if let Some(name) = page_name(&file.path) {
            pages.push((name, labels(&file.text)));
        }
    }
    for file in tree.files.iter().filter(|file| is_read(&file.path)) {
        let words = words(file);
        for (at, &(line, word)) in words.iter().enumerate() {
            let mut find = |message: String| {
                let path = file.path.clone();
                findings.push(Finding { rule: "citation", path, line, message });
            };
            let name = trimmed(word);
            if OUTSIDE.contains(&name) {
                find(format!("`{name}` is not in this repository: cite a page of {FOLDER}"));
            }
            let name = match name.to_lowercase().as_str() {
                "law" => "laws".to_owned(),
                name => name.to_owned(),
            };
            // A sentence or clause that ends with the name is no citation.
            if word.ends_with(|character: char| !(character.is_alphanumeric() || character == '`'))
            {
                continue;
            }
            let page = pages.iter().find(|(page, _)| *page == name);
            if page.is_none() && !["semantics", "laws", "cpu-authority"].contains(&name.as_str()) {
                continue;
            }
            for label in cited(&words[at + 1..]) {
                match page {
                    None => find(format!("{FOLDER}{name}.md does not exist")),
                    Some((_, labels)) if !labels.contains(label) => {
                        find(format!("{FOLDER}{name}.md has no `{label}`"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// The name of the page at a path, if it is a page of the specification.
fn page_name(path: &str) -> Option<&str> {
    path.strip_prefix(FOLDER)?.strip_suffix(".md").filter(|name| *name != "README")
}

/// Whether a file is searched for citations: any text but generated files and expected outputs.
fn is_read(path: &str) -> bool {
    !path.starts_with("corpus/")
        && ![".txt", ".json", ".jsonl", ".lock"].iter().any(|end| path.ends_with(end))
}

/// The words of a file with their lines, without comment and quote markers. An empty word marks a
/// place where a sentence cannot continue.
fn words(file: &File) -> Vec<(usize, &str)> {
    let mut lines: Vec<(usize, &str)> = Vec::new();
    if file.is_rust() {
        for comment in Source::new(&file.text).comments() {
            lines.extend((comment.line..).zip(comment.text.lines()));
        }
    } else {
        lines.extend((1..).zip(file.text.lines()));
    }
    let mut words = Vec::new();
    let mut last = 0;
    for (number, line) in lines {
        let text = line.trim_start().trim_start_matches(['/', '!', '*', '#', '>', ';']).trim();
        if number > last + 1 || text.is_empty() {
            words.push((number, ""));
        }
        words.extend(text.split_whitespace().map(|word| (number, word)));
        last = number;
    }
    words
}

fn trimmed(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_alphanumeric())
}

/// The labels that follow the name of a page: one, or several with `,`, `and`, `or` or `to`
/// between them.
fn cited<'a>(words: &[(usize, &'a str)]) -> Vec<&'a str> {
    let mut labels = Vec::new();
    let mut words = words.iter().map(|(_, word)| *word).peekable();
    words.next_if(|word| BETWEEN.contains(word));
    while let Some(word) = words.next() {
        let Some((label, rest)) = label(word) else { break };
        labels.push(label);
        if !(rest.is_empty() || rest == ",") {
            break;
        }
        words.next_if(|word| ["and", "or", "to"].contains(word));
    }
    labels
}

/// The label at the start of a word, and the rest of the word: a number, numbers separated by
/// points, the letter of a phase, a section of one (`D.5`) or an invariant (`B-I8`).
fn label(word: &str) -> Option<(&str, &str)> {
    let word = word.trim_start_matches(['[', '`', '*']);
    let end = word
        .find(|character: char| !(character.is_ascii_alphanumeric() || "-.".contains(character)))
        .unwrap_or(word.len());
    let label = word[..end].trim_end_matches(['-', '.']);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = |text: &str| text.split('.').all(digits);
    let is_label = match label.as_bytes().first()? {
        b'0'..=b'9' => numbers(label),
        b'A'..=b'H' => {
            let rest = &label[1..];
            rest.is_empty()
                || rest.strip_prefix('.').is_some_and(numbers)
                || rest.strip_prefix("-I").is_some_and(digits)
        }
        _ => false,
    };
    is_label.then(|| (label, &word[label.len()..]))
}

/// The labels that a page defines: those of its headings and list items.
fn labels(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let heading = line.trim_start_matches('#');
        let mut words = heading.split_whitespace();
        if heading.len() < line.len() {
            let mut previous = "";
            for (at, word) in words.enumerate() {
                if at == 0 || ["Law", "Phase"].contains(&previous) {
                    found.extend(label(word).map(|(label, _)| label));
                }
                previous = word;
            }
        } else if line.starts_with("- ") {
            found.extend(words.nth(1).and_then(label).map(|(label, _)| label));
        } else if let Some((label, ".")) = words.next().and_then(label)
            && line.starts_with(label)
        {
            found.insert(label);
        }
    }
    found
}
