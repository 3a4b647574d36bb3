//! The public surface of the crate as text: a change of it is a change of `surface.txt`.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock --test surface` updates it. The list is made from the
//! source: every public item of the modules, and every name that `lib.rs` re-exports.

use std::fmt::Write as _;
use std::path::Path;

/// The starts of lines that are public items.
const ITEMS: [&str; 8] = [
    "pub fn ",
    "pub const fn ",
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub type ",
    "pub const ",
    "pub use ",
];

/// The public items of a source file, each on one line, under the `impl` or `trait` they are in.
fn items(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = source.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let (mut is_inside, mut is_listed) = (false, false);
    while let Some(line) = lines.next() {
        let text = line.trim();
        let is_block = line.starts_with("impl") || line.starts_with("pub trait");
        let is_item = ITEMS.iter().any(|start| text.starts_with(start));
        let is_method = is_inside && is_listed && text.starts_with("fn ");
        let is_part = is_inside && is_listed && is_field_or_variant(line);
        if is_block || is_item || is_method || is_part {
            let mut whole = text.to_owned();
            let ends: &[char] =
                if whole.contains("fn ") { &['{', ';'] } else { &['{', ';', ',', '}'] };
            while !whole.ends_with(ends) {
                let Some(next) = lines.next() else { break };
                let _ = write!(whole, " {}", next.trim());
            }
            while whole.starts_with("pub use") && !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                let _ = write!(whole, " {}", next.trim());
            }
            let indent = if line.starts_with("    ") { "    " } else { "" };
            found.push(format!("{indent}{}", whole.trim_end_matches(['{', ';', ',', ' '])));
        }
        if !line.starts_with([' ', '}', '/', '#']) && !line.is_empty() {
            is_inside = line.ends_with('{');
            is_listed = ["pub enum", "pub struct", "pub trait"].iter().any(|s| line.starts_with(s));
        }
        if line == "}" {
            is_inside = false;
        }
    }
    found.retain(|item| !item.starts_with("impl") || !item.contains("pub(crate)"));
    drop_empty_blocks(found)
}

/// A variant of an enum or a public field, one level deep.
fn is_field_or_variant(line: &str) -> bool {
    let Some(text) = line.strip_prefix("    ") else { return false };
    text.starts_with("pub ") && !text.starts_with("pub(") && !text.contains("fn ")
        || text.starts_with(|first: char| first.is_ascii_uppercase())
}

/// Without blocks of inherent methods that have no public one.
fn drop_empty_blocks(found: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for item in found {
        let is_inherent = |item: &str| item.starts_with("impl") && !item.contains(" for ");
        if !item.starts_with(' ') && kept.last().is_some_and(|last| is_inherent(last)) {
            kept.pop();
        }
        kept.push(item);
    }
    kept
}

fn surface() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the sources")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut text = String::new();
    for file in files {
        let found = items(&std::fs::read_to_string(&file).expect("UTF-8"));
        if !found.is_empty() {
            let name = file.file_stem().expect("a name").to_string_lossy();
            let _ = writeln!(text, "# {name}");
            found.iter().for_each(|item| text.push_str(&format!("{item}\n")));
        }
    }
    text
}

#[test]
fn the_public_surface_is_the_one_on_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surface.txt");
    let found = surface();
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&file, &found).expect("bless");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(expected, found, "a changed surface: run with WAVELOCK_BLESS=1 to accept it");
}

#[test]
fn a_changed_item_changes_the_surface() {
    let source = "/// A.\npub struct A {\n    /// B.\n    pub b: u32,\n    c: u32,\n}\n\nimpl A {\n    \
                  fn private(&self) {}\n}\n\nimpl A {\n    pub fn one(\n        &self,\n    ) -> u32 {\n";
    let list = items(source);
    assert_eq!(
        list,
        ["pub struct A", "    pub b: u32", "impl A", "    pub fn one( &self, ) -> u32"]
    );
    assert_ne!(items(&source.replace("u32 {", "u64 {")), list);
}
