//! The house rules applied to this repository. Elsewhere: `planted.rs` shows that each rule can
//! fail.

use std::path::Path;

use wavelock_tidy::source::Source;
use wavelock_tidy::{Tree, check};

fn repository() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two directories below the root");
    Tree::read(root).expect("the repository can be read")
}

#[test]
fn the_house_is_tidy() {
    let findings = check(&repository());
    for finding in &findings {
        eprintln!("{finding}");
    }
    assert!(findings.is_empty(), "{} rules broken, listed above", findings.len());
}

/// A tidy tree means nothing if the walk found no files.
#[test]
fn the_walk_finds_the_tree() {
    let tree = repository();
    for path in [
        "Cargo.toml",
        "crates/abi/src/lib.rs",
        "crates/tidy/src/lib.rs",
        "crates/tidy/tests/house.rs",
    ] {
        assert!(tree.file(path).is_some(), "{path} was not read");
    }
    assert!(tree.packages.iter().any(|package| package.folder == "abi"));
    let tidy = tree
        .packages
        .iter()
        .find(|package| package.folder == "tidy")
        .expect("this package is in the workspace");
    assert!(
        tidy.dependencies.iter().any(|dependency| dependency.third_party),
        "third-party dependencies are not detected"
    );
}

/// The lexer handles every file of the repository: brackets match and functions are found.
#[test]
fn every_file_lexes_to_matching_brackets() {
    let tree = repository();
    let mut functions = 0;
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let source = Source::new(&file.text);
        let mut open: Vec<&str> = Vec::new();
        for token in &source.tokens {
            if ["(", "[", "{"].iter().any(|bracket| token.is(bracket)) {
                open.push(token.text);
            } else if let Some(expected) = [(")", "("), ("]", "["), ("}", "{")]
                .iter()
                .find(|(close, _)| token.is(close))
                .map(|(_, open)| *open)
            {
                assert_eq!(open.pop(), Some(expected), "{}:{}", file.path, token.line);
            }
        }
        assert!(open.is_empty(), "{} ends inside a bracket", file.path);
        functions += source.functions().len();
    }
    assert!(functions > 100, "only {functions} functions found");
}
