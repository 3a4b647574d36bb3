//! Loads modules: from bytes or text to a validated, lowered module.

use super::files::{MOST_DATA_BYTES, is_trace, not_a_trace, read_file};
use crate::exit::Exit;
use crate::failure::{Failure, Reason};
use std::path::Path;
use std::sync::Arc;
use wavelock_module::{Limits, LoadError, Module};

/// A module with the binary it was made from.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) module: Arc<Module>,
    /// The binary form, also of a text module, so that the same module has the same digest.
    pub(crate) bytes: Vec<u8>,
    /// The text of a text module.
    pub(super) text: Option<Vec<u8>>,
}

/// Reads, decodes and lowers a module. Text is recognised by its content, not by the name of the
/// file.
pub(super) fn load_module(path: &Path) -> Result<LoadedModule, Failure> {
    if is_trace(path) {
        return Err(not_a_trace(path, "a module"));
    }
    if path.extension().is_some_and(|extension| extension == "toml") {
        let message = format!(
            "`{}` looks like a manifest, not a module (.wasm, .wat): use `wavelock run` for manifests",
            path.display()
        );
        return Err(Failure::new(Exit::Host, message));
    }
    refuse_source(path)?;
    let file = read_file(path, MOST_DATA_BYTES)?;
    decode_module(path, &file)
}

/// A module from the contents of a file.
pub(crate) fn decode_module(path: &Path, file: &[u8]) -> Result<LoadedModule, Failure> {
    if let Some(found) = other_kind(file) {
        return Err(Failure::new(Exit::Host, format!("`{}` is {found}", path.display())));
    }
    if file.is_empty() {
        return Err(Failure::new(
            Exit::Host,
            format!("`{}` is empty, not a module", path.display()),
        ));
    }
    let bytes = wat::Parser::new().parse_bytes(Some(path), file).map_err(|error| {
        // The parser's message contains its own source excerpt over several lines.
        Failure::new(Exit::Host, format!("`{}` is not a module: {error}", path.display()))
    })?;
    let module = Module::new(&bytes, &Limits::default()).map_err(|error| {
        let exit = match error {
            LoadError::Limit { .. } => Exit::Refused,
            _ => Exit::Host,
        };
        Failure::new(exit, format!("`{}` cannot be loaded: {error}", path.display()))
    })?;
    let bytes = bytes.into_owned();
    let text = (bytes != file).then(|| file.to_vec());
    Ok(LoadedModule { module: Arc::new(module), bytes, text })
}

/// Source code of languages that have to be compiled first: ending, language, and how.
const LANGUAGES: &[(&str, &str, &str)] = &[
    ("c", "C", "with clang for wasm32, as in guests/c"),
    ("cc", "C++", "with clang++ for wasm32, as in guests/c"),
    ("cpp", "C++", "with clang++ for wasm32, as in guests/c"),
    ("rs", "Rust", "with `cargo build --target wasm32-unknown-unknown`, as in guests/rust"),
    ("ts", "AssemblyScript or TypeScript", "with `asc`, as in guests/assemblyscript"),
    ("go", "Go", "with TinyGo for wasm32"),
    ("zig", "Zig", "with `zig build-exe -target wasm32-wasi`"),
];

/// Refuses source code by its name, with how to compile it.
pub(super) fn refuse_source(path: &Path) -> Result<(), Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let found = LANGUAGES.iter().find(|(known, ..)| *known == ending);
    match found.filter(|_| path.is_file()) {
        Some((_, language, how)) => Err(Failure::new(
            Exit::Host,
            format!(
                "`{}` is {language} source, not a module: compile it {how}, and give the .wasm file",
                path.display()
            ),
        )),
        None => Ok(()),
    }
}

/// What a file is that is no module, by its first bytes.
pub(super) fn other_kind(file: &[u8]) -> Option<&'static str> {
    const COMPONENT: &str = "a WebAssembly component, which is not supported: give the core module it was made from (built for wasm32-wasip1, before `wasm-tools component new`)";
    const NATIVE: &str = "a native program, not a module: compile it for wasm32";
    match file {
        [0, b'a', b's', b'm', version @ ..] if version.get(2..4) == Some(&[1, 0][..]) => {
            Some(COMPONENT)
        }
        [0x7f, b'E', b'L', b'F', ..] | [b'M', b'Z', 0x90, ..] => Some(NATIVE),
        _ if file.trim_ascii_start().starts_with(b"(component") => Some(COMPONENT),
        _ => None,
    }
}

/// The message of a failure.
pub(crate) fn sentence(failure: &Failure) -> String {
    match &failure.reason {
        Reason::Message(message) => message.clone(),
        Reason::Diagnostics(diagnostics) => {
            diagnostics.list.first().map_or_else(String::new, |finding| finding.title.clone())
        }
    }
}
