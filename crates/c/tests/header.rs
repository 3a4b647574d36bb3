//! The header is what `cbindgen` makes of the exported functions.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-c --test header` updates it.

use std::path::Path;

const TOP: &str = "/* The C interface of Wavelock: deterministic WebAssembly machines.\n\
    \n\
    Every function returns a code; wavelock_error has the text of the last refusal of the calling\n\
    thread. Texts are UTF-8 and end with a zero byte. Bytes come with their length, and may be null\n\
    if that is 0. Results are written through pointers, on success only; where a comment says so, a\n\
    pointer may be null. A handle is a number: one that was dropped, is of another kind or was made\n\
    up is refused. A machine that is in use by another thread, or by the call that called a function\n\
    of its host, is busy. Pointers are used during the call alone, but for those of a host, which\n\
    must stay valid until every machine and snapshot with it was dropped, and may be used from any\n\
    thread.\n\
    \n\
    Made by crates/c/tests/header.rs; do not edit. */";

fn header() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(TOP.into()),
        include_guard: Some("WAVELOCK_H".into()),
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::Cxx,
        style: cbindgen::Style::Type,
        line_length: 100,
        export: cbindgen::ExportConfig {
            include: vec!["wavelock_kind".into()],
            ..cbindgen::ExportConfig::default()
        },
        ..cbindgen::Config::default()
    };
    let source = folder.join("src");
    let made = cbindgen::Builder::new()
        .with_config(config)
        .with_src(source.join("failure.rs"))
        .with_src(source.join("exports.rs"))
        .generate()
        .expect("a header");
    let mut text = Vec::new();
    made.write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_header_on_file_is_the_one_of_the_functions() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/wavelock.h");
    let found = header();
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&file, &found).expect("bless");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(expected, found, "a changed interface: run with WAVELOCK_BLESS=1 to accept it");
}

/// The codes that C sees keep their numbers.
#[test]
fn every_exported_function_is_in_the_header() {
    let exports = include_str!("../src/exports.rs");
    let names = exports
        .lines()
        .filter_map(|line| line.strip_prefix("pub unsafe extern \"C\" fn ")?.split('(').next());
    let header = header();
    let mut count = 0;
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name}");
        count += 1;
    }
    assert!(count > 50, "{count} functions");
}
