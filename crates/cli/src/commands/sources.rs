//! Where a machine's modules come from, for the source lines of faults.
//!
//! A binary module has lines if it has DWARF sections. A text module is encoded once more with the
//! lines of its text: the machine runs the module without them, so that they are in no digest.

use std::path::PathBuf;
use wavelock_debug::Lines;

/// The modules of a machine, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(pub(super) Vec<Source>);

/// The source of one module.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Binary(Vec<u8>),
    Text { path: PathBuf, text: Vec<u8> },
}

impl Sources {
    /// The lines at these byte offsets of a module; `None` where nothing is known.
    pub(super) fn lines(&self, module: usize, offsets: &[u32]) -> Vec<Option<String>> {
        let encoded;
        let bytes = match self.0.get(module) {
            Some(Source::Binary(bytes)) => bytes.as_slice(),
            Some(Source::Text { path, text }) => {
                let mut parser = wat::Parser::new();
                parser.generate_dwarf(wat::GenerateDwarf::Lines);
                encoded = parser.parse_bytes(Some(path), text);
                encoded.as_deref().unwrap_or_default()
            }
            None => &[],
        };
        let lines = Lines::read(bytes);
        let line = |&offset: &u32| lines.as_ref().and_then(|lines| lines.line(offset));
        offsets.iter().map(line).collect()
    }
}
