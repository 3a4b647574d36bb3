//! Loads modules: from bytes or text to a validated, lowered module.

use super::files::{MOST_DATA_BYTES, is_trace, not_a_trace, read_file};
use crate::exit::Exit;
use crate::failure::{Failure, Reason};
use std::path::Path;
use std::sync::Arc;
use wavelock_module::{Limits, LoadError, Module};

/// A module with the binary it was made from.
#[derive(Clone, Debug)]
pub(super) struct LoadedModule {
    pub(super) module: Arc<Module>,
    /// The binary form, also of a text module, so that the same module has the same digest.
    pub(super) bytes: Vec<u8>,
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
    let file = read_file(path, MOST_DATA_BYTES)?;
    if file.is_empty() {
        return Err(Failure::new(
            Exit::Host,
            format!("`{}` is empty, not a module", path.display()),
        ));
    }
    let bytes = wat::Parser::new().parse_bytes(Some(path), &file).map_err(|error| {
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
    Ok(LoadedModule { module: Arc::new(module), bytes: bytes.into_owned() })
}

/// The message of a failure.
pub(super) fn sentence(failure: &Failure) -> String {
    match &failure.reason {
        Reason::Message(message) => message.clone(),
        Reason::Diagnostics(diagnostics) => {
            diagnostics.list.first().map_or_else(String::new, |finding| finding.title.clone())
        }
    }
}
